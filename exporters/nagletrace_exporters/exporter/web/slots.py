# SPDX-License-Identifier: GPL-2.0
"""Decides which clients stay connected to the exporter, and which one goes when another needs its slot.

The number of slots is bounded. A client earns its slot by progress: it completes a request, or takes the next part of
an answer. Bytes that drip in are no progress. When all slots are taken, the address with the most of them gives one up:
that of the client whose last progress is oldest. If all its clients make progress, it gives up that of the client with
the most answers, or with the largest rest of an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import ipaddress
import logging
import socket
import struct
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from operator import attrgetter

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)

#: Slots, for all addresses together. One or two Prometheus servers, a browser and the kubelet need five. The others
#: absorb a flood: while strangers open R connections a second, each client has MAX_CONNECTIONS / R seconds to make
#: progress. A connection takes up to 50 KB of memory, with TLS up to 120 KB.
MAX_CONNECTIONS, MAX_TLS_CONNECTIONS = 256, 128
#: A client sends a whole request within this time, TLS handshake included, or its next one on a kept connection.
REQUEST_S = 15.0
#: A client takes a whole answer within this time. Prometheus itself gives up after 10 s by default.
ANSWER_S = 30.0
#: While one address has all slots and its clients make progress, an answer with more left than this gives way to the
#: next client. Compressed, the metrics of 1000 label sets have 100 KB.
LARGE_BYTES = 512 * 1024
#: Answers up to this size never count when kept answers take too much memory.
SMALL_BYTES = 4096
#: The log reports refused clients at most this often.
TELL_S = 60.0

REASONS = {
    "evicted": "another client needed the slot, and this one made no progress or had the most left to take",
    "slow_request": "no whole request within 15 s",
    "slow_reader": "the answer was not taken within 30 s, or its memory was needed",
    "head_too_large": "a request's head of more than 16 KiB",
    "bad_request": "no request of HTTP/1, or not by GET or HEAD",
    "tls": "the TLS handshake failed",
    "unauthorized": "no password, or a wrong one",
    "busy": "too many passwords waited to be checked",
}


class State(enum.Enum):
    """Names what a client's connection waits for."""

    REQUEST = "its request"
    PASSWORD = "its turn to have the password checked"  # noqa: S105
    PAGE = "our making of the answer"
    ANSWER = "its taking of the answer"
    NEXT = "its next request; it may still take what the kernel has of the answer"


#: A client keeps its slot for this long without progress, even if others need it: until its first request is here,
#: which follows the connection at once, and until it takes the next part of an answer. A client in the state PAGE waits
#: for us, and keeps its slot.
GRACE_S = {State.REQUEST: 0.01, State.PASSWORD: 0.01, State.ANSWER: 0.05, State.NEXT: 0.05}


@dataclass(eq=False)
class Connection:
    """One client."""

    sock: socket.socket
    host: str
    #: a task answers it
    has_task: bool = False
    #: bytes that it sent and no answer has used yet
    received: bytes = b""
    state: State = State.REQUEST
    #: when it made progress last, by time.monotonic()
    since: float = field(default_factory=time.monotonic)
    #: when its answer began
    answer_began: float = 0.0
    requests: int = 0
    #: the answer that it takes at present
    body: bytes | None = None
    #: bytes of the answer that wait to be sent
    left: int = 0
    gone: bool = False
    #: wakes its task if that waits for a turn, so that the task ends and frees its memory
    wake: Callable[[], None] = lambda: None
    _in_lobby: bool = False

    def __post_init__(self) -> None:
        self.owner = owner_of(self.host)

    def enter_lobby(self, receive: Callable[[Connection], object]) -> None:
        """Has the event loop call `receive` when there is something to read."""
        self._in_lobby = True
        # by its number: asyncio looks a socket up by its text, which takes two system calls
        asyncio.get_running_loop().add_reader(self.sock.fileno(), receive, self)

    def leave_lobby(self) -> None:
        if self._in_lobby:
            self._in_lobby = False
            asyncio.get_running_loop().remove_reader(self.sock.fileno())


@lru_cache(MAX_CONNECTIONS)
def owner_of(host: str) -> str:
    """Returns the owner of an address. An IPv6 host can choose from a /64, so a whole /64 is one owner."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


class Owned:
    """Holds the clients of one owner: those in each state in the order of their last progress."""

    def __init__(self) -> None:
        self.count = 0
        self._by_state: dict[State, OrderedDict[Connection, None]] = {}

    def __iter__(self) -> Iterator[Connection]:
        return chain.from_iterable(self._by_state.values())

    def add(self, connection: Connection) -> None:
        self.count += 1
        self._by_state.setdefault(connection.state, OrderedDict())[connection] = None

    def remove(self, connection: Connection) -> None:
        self.count -= 1
        del self._by_state[connection.state][connection]

    def move(self, connection: Connection, state: State) -> None:
        """Puts the client behind those in that state."""
        self._by_state[connection.state].pop(connection)
        self._by_state.setdefault(state, OrderedDict())[connection] = None
        connection.state = state

    def stalest(self, now: float) -> Connection | None:
        """Returns the client with the oldest progress of those whose slot may go to another client, if there is one."""
        oldest = (next(iter(self._by_state.get(state, ())), None) for state in GRACE_S)
        return min((one for one in oldest if one and now > one.since + GRACE_S[one.state]),
                   key=attrgetter("since"), default=None)

    def greediest(self) -> Connection:
        """Returns the client with the most answers. Of those with as many it is the one that has had time to take them.

        Of those without an answer it is the newest.
        """
        return max(self, key=lambda one: (one.requests, -one.since if one.requests else one.since))

    def largest(self) -> Connection | None:
        """Returns the client with the largest rest of an answer, and of those with as much the newest."""
        return max(self._by_state.get(State.ANSWER, ()), key=attrgetter("left", "since"), default=None)


class Refusals(Collector):
    """Counts refused clients by reason, and logs them at a bounded rate."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._unlogged: Counter[str] = Counter()
        self._last_host = ""
        self._next_line = 0.0

    def add(self, reason: str, host: str) -> None:
        self.counts[reason] += 1
        self._unlogged[reason] += 1
        self._last_host = host
        self.log()

    def log(self) -> None:
        """Logs one line if there is news and the last line is TELL_S old."""
        now = time.monotonic()
        if not self._unlogged or now < self._next_line:
            return
        self._next_line = now + TELL_S
        counts = "; ".join(f"{count} × {REASONS[reason]} ({reason})" for reason, count in self._unlogged.most_common())
        log.warning("clients refused: %s; the last from %s", counts, self._last_host)
        self._unlogged.clear()

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily("nagletrace_exporter_refused_clients",
                                     "Clients and requests that this exporter refused, by reason.", labels=["reason"])
        for reason in REASONS:
            family.add_metric([reason], self.counts[reason])
        yield family


class Slots:
    """Holds all connected clients. Its methods run in the event loop."""

    def __init__(self, refusals: Refusals, changed: Callable[[], None]) -> None:
        self.refusals = refusals
        #: we call it when a slot becomes free
        self._changed = changed
        self.most = MAX_CONNECTIONS
        self.connections: set[Connection] = set()
        self._by_owner: dict[str, Owned] = {}
        self._newest = b""

    @property
    def full(self) -> bool:
        """True while there is one client too many: it waits for a slot, and we accept nobody else."""
        return len(self.connections) > self.most

    @property
    def crowded(self) -> bool:
        """True when there are more clients than have business here."""
        return len(self.connections) > self.most // 4

    def add(self, connection: Connection) -> None:
        """Adds a client, and ends another one for it if necessary. `full` if none could be ended."""
        self.connections.add(connection)
        self._by_owner.setdefault(connection.owner, Owned()).add(connection)
        self.make_room()

    def progress(self, connection: Connection, state: State) -> None:
        """Notes that the client made progress, and what it waits for now."""
        if connection in self.connections:
            self._by_owner[connection.owner].move(connection, state)
            connection.since = time.monotonic()

    def make_room(self) -> None:
        while self.full:
            victim = self._victim()
            if victim is None:
                return
            self.refuse(victim, "evicted")

    def _victim(self) -> Connection | None:
        """Chooses the client whose slot goes to another; None: all have one owner, and wait for us or came just now."""
        owned = max(self._by_owner.values(), key=attrgetter("count"))
        stale = owned.stalest(time.monotonic())
        if stale:
            return stale
        greediest = owned.greediest()
        if greediest.requests or len(self._by_owner) > 1:
            return greediest
        largest = owned.largest()
        return largest if largest and largest.left > LARGE_BYTES else None

    def refuse(self, connection: Connection, reason: str) -> None:
        self.refusals.add(reason, connection.host)
        self.end(connection)

    def end(self, connection: Connection) -> None:
        """Ends a connection at once: the kernel discards its unsent data, and its task finds the socket closed."""
        connection.gone = True
        with contextlib.suppress(OSError):
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if connection.has_task:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)
            connection.wake()
        else:
            connection.leave_lobby()
            connection.sock.close()
        self.remove(connection)

    def remove(self, connection: Connection) -> None:
        connection.body = None
        if connection in self.connections:
            self.connections.remove(connection)
            owned = self._by_owner[connection.owner]
            owned.remove(connection)
            if not owned.count:
                del self._by_owner[connection.owner]
            self._changed()

    def sweep(self) -> None:
        """Runs once a second: it ends clients whose time is over, and logs refusals."""
        now = time.monotonic()
        for connection in list(self.connections):
            if connection.state == State.REQUEST and now > connection.since + REQUEST_S:
                self.refuse(connection, "slow_request")
            elif connection.state == State.NEXT and now > connection.since + REQUEST_S:
                self.end(connection)
            elif connection.state == State.ANSWER and now > connection.answer_began + ANSWER_S:
                self.refuse(connection, "slow_reader")
        self.refusals.log()

    def bound_bodies(self, newest: bytes, most: int) -> None:
        """Bounds the memory of answers that slow readers have not taken: the readers of the oldest ones are refused.

        The newest answer always stays, since its readers have had no time yet.
        """
        if len(newest) <= SMALL_BYTES or newest is self._newest:
            return
        self._newest = newest
        held: dict[int, int] = {id(newest): len(newest)}
        for one in sorted(self.connections, key=lambda one: -one.answer_began):
            if one.body is None or id(one.body) in held:
                continue
            if sum(held.values()) + len(one.body) > most:
                self.refuse(one, "slow_reader")
            else:
                held[id(one.body)] = len(one.body)
