# SPDX-License-Identifier: GPL-2.0
"""Bounds the exporter's clients: how many are connected, and how long each may take. Counts those that it refuses.

uvicorn has neither bound: clients that say nothing would keep their connections, and in the end all descriptors.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import socket
import struct
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...families import counters

log = logging.getLogger(__name__)

#: Connections. One or two Prometheus servers, a browser and the kubelet need five. The others absorb a flood: while
#: strangers open R connections a second, each client has MAX_CLIENTS / R seconds for a request or a part of an answer.
MAX_CLIENTS = 256
#: With more clients than have business here, one answer serves all for some time.
CROWD = MAX_CLIENTS // 4
#: A client sends a whole request within this time, or its next one on a kept connection.
REQUEST_S = 15.0
#: A client has its whole answer within this time. Prometheus itself gives up after 10 s by default.
ANSWER_S = 30.0
#: The handshakes after which we collect garbage, which takes some ms.
COLLECT_AFTER = 64
#: With this the kernel resets a connection that is closed, and frees its memory.
NO_LINGER = struct.pack("ii", 1, 0)
#: The log reports refused clients at most this often.
LOG_S = 60.0

REASONS = {
    "evicted": "another client needed the connection, and this one had made no progress for longest",
    "slow_request": "no whole request within 15 s",
    "slow_reader": "the answer was not taken within 30 s",
    "bad_request": "no request of HTTP/1, a head of more than 16 KiB, or not by GET or HEAD",
    "unauthorized": "no password, or a wrong one",
    "busy": "too many passwords waited to be checked",
}


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
        """Logs one line if there is news and the last line is LOG_S old."""
        now = time.monotonic()
        if not self._unlogged or now < self._next_line:
            return
        self._next_line = now + LOG_S
        counts = "; ".join(f"{count} × {REASONS[reason]} ({reason})" for reason, count in self._unlogged.most_common())
        log.warning("clients refused: %s; the last from %s", counts, self._last_host)
        self._unlogged.clear()

    def collect(self) -> Iterator[Metric]:
        yield counters("nagletrace_exporter_refused_clients",
                       "Clients and requests that this exporter refused, by reason.", "reason", self.counts)


class Clients:
    """Holds all connected clients, in the order of their last progress."""

    def __init__(self, refusals: Refusals) -> None:
        self.refusals = refusals
        self._connected: OrderedDict[Client, None] = OrderedDict()
        self._handshakes = 0
        self._closed = False

    @property
    def crowded(self) -> bool:
        return len(self._connected) > CROWD

    def count_handshake(self) -> None:
        """Collects garbage now and then: a handshake that fails leaves 256 KiB in a cycle, and nobody learns of it."""
        self._handshakes += 1
        if self._handshakes % COLLECT_AFTER == 0:
            gc.collect()

    def enter(self, client: Client) -> None:
        """Adds a client. One too many costs the connection whose last progress is oldest."""
        self._connected[client] = None
        if self._closed:
            self.end(client)
        elif len(self._connected) > MAX_CLIENTS:
            victim = next((one for one in self._connected if not one.waits_for_us), client)
            self.refuse(victim, "evicted")

    def progress(self, client: Client) -> None:
        if client in self._connected:
            self._connected.move_to_end(client)

    def leave(self, client: Client) -> None:
        self._connected.pop(client, None)

    def refuse(self, client: Client, reason: str) -> None:
        self.refusals.add(reason, client.host)
        self.end(client)

    def end(self, client: Client) -> None:
        """Ends a connection at once, and has the kernel drop what the client has not taken."""
        self.leave(client)
        with contextlib.suppress(OSError):  # it is closed already
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        client.transport.abort()

    def close(self) -> None:
        """Ends all, and whoever enters from now on."""
        self._closed = True
        for client in list(self._connected):
            self.end(client)

    def sweep(self) -> None:
        """Ends the clients whose time is over."""
        now = time.monotonic()
        for client in list(self._connected):
            if client.is_served and now > client.since + ANSWER_S:
                self.refuse(client, "slow_reader")
            elif not client.is_served and now > client.since + REQUEST_S:
                if client.cycle:
                    self.end(client)  # it has had an answer
                else:
                    self.refuse(client, "slow_request")
        self.refusals.log()


class Client(H11Protocol):  # type: ignore[misc]
    """Is one connection, as uvicorn serves it. A request is progress, and so is a part of an answer; a byte is not."""

    def __init__(self, config: Any, server_state: Any, **more: Any) -> None:
        super().__init__(config, server_state, **more)
        self.clients: Clients = config.app.clients
        if config.ssl:
            self.clients.count_handshake()
        #: when it began to wait for a request, or when that was here; by time.monotonic()
        self.since = time.monotonic()
        self._last_cycle: object = None
        self.timeout_keep_alive_task: Any = None

    @property
    def host(self) -> str:
        return str(self.client[0]) if self.client else "an unknown address"

    @property
    def is_served(self) -> bool:
        """True from its request on to the end of the answer."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.disconnected

    @property
    def waits_for_us(self) -> bool:
        """True while its answer is made."""
        return self.is_served and not self.cycle.response_started

    def _note_request(self) -> None:
        if self.cycle:
            self.cycle.body = b""  # uvicorn would keep 64 KiB of it
        if self.cycle is not self._last_cycle:
            self._last_cycle = self.cycle
            self.since = time.monotonic()
            self.clients.progress(self)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.sock = transport.get_extra_info("socket")  # a TLS transport that has ended no longer gives it
        transport.set_write_buffer_limits(high=1, low=0)  # the next part waits until the kernel has this one
        self.clients.enter(self)

    def _stop_timer(self) -> None:
        """Stops uvicorn's timer of a kept connection; sweep() ends those. It would run on as the next answer begins,
        and after the connection, with all that the client has."""
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.clients.leave(self)
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.default_headers = self.server_state.default_headers  # before 0.20 uvicorn keeps the first `Date`
        super().data_received(data)
        self._note_request()

    def on_response_complete(self) -> None:
        self.since = time.monotonic()
        self.clients.progress(self)
        super().on_response_complete()  # it may find the next request
        self._stop_timer()
        self._note_request()

    def resume_writing(self) -> None:
        self.clients.progress(self)
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        self.clients.refusals.add("bad_request", self.host)
        if self.is_served:
            self.cycle.disconnected = True  # its answer has no place behind this one
        super().send_400_response(msg)
