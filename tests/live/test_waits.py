# SPDX-License-Identifier: GPL-2.0
"""Who waits for a late ACK without Nagle, by the application's clock; and why an ACK was late."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ends import own_end
from harness import IN_GUEST, STALLED_US, Record, Tracer, lacking, nearest, unseen
from spaces import Namespace, inside_network

pytestmark = pytest.mark.guest

ROUNDS = 12
#: After so many exchanges both ends are in interactive mode.
WARM = 20


def take(connection: socket.socket, size: int) -> bool:
    while size:
        came = len(connection.recv(size))
        if not came:
            return False
        size -= came
    return True


def took_us(wait: Callable[[], object]) -> float:
    began = time.monotonic()
    wait()
    return (time.monotonic() - began) * 1e6


@contextlib.contextmanager
def server(request: int) -> Iterator[tuple[int, tuple[str, int]]]:
    """A process that answers each request of so many bytes with one: its pid and address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if not child:
            connection = listener.accept()[0]
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for size in (*[1] * WARM, *[request] * ROUNDS):
                take(connection, size)
                connection.send(b"x")
            os._exit(0)
        try:
            yield child, listener.getsockname()
        finally:
            os.waitpid(child, 0)


def connected(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address)
    for _ in range(WARM):
        connection.send(b"x")
        connection.recv(1)
    return connection


def assert_told(took: list[float], tracer: Tracer, exact_us: int = 1_000) -> list[Record]:
    """Each round that was slow is a stall as long, but for what the machine hid, and for one in which it stood still.

    The application's clock runs on while it is not scheduled: a round lasts longer than its stall by what the machine
    takes to wake both ends, and the shortest such time bounds what the reports lack.
    """
    felt, told = [us for us in took if us >= STALLED_US], tracer.stalls()
    assert len(felt) >= len(took) - 2, f"it does not stall: {took}"
    durations = [stall["duration_us"] for stall in told]
    fitting = nearest(felt, durations, lacking(tracer) + 1)
    assert len(fitting) == len(told), (took, durations)
    longer = [f - d for f, d in zip(fitting, durations)]
    assert min(longer) > -exact_us, (fitting, durations)
    if not IN_GUEST:
        assert min(longer) < 10_000, (fitting, durations)
    return told


@pytest.mark.parametrize("side,nodelay", [
    pytest.param("sender", 1, id="sender-nodelay", marks=pytest.mark.quick),
    pytest.param("sender", 0, id="sender-nagle", marks=pytest.mark.once),
    pytest.param("receiver", 1, id="receiver-nodelay", marks=pytest.mark.once),
    pytest.param("receiver", 0, id="receiver-nagle", marks=pytest.mark.quick)])
def test_a_last_part_with_msg_more_waits_for_the_late_ack(side: str, nodelay: int) -> None:
    """By mistake it has the flag: the next ACK frees it, and Nagle has no part in that."""
    took = []
    with server(150) as (child, address):
        with Tracer("-P", str(address[1])) if side == "sender" else Tracer("-p", str(child)) as tracer:
            with connected(address) as client:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
                for _ in range(ROUNDS):
                    began = time.monotonic()
                    client.send(bytes(100))
                    client.send(bytes(50), socket.MSG_MORE)
                    client.recv(1)
                    took.append((time.monotonic() - began) * 1e6)
            tracer.stop()
    for stall in assert_told(took, tracer):
        assert (stall["cause"], stall["reason"], stall["side"]) == ("delayed_ack", "msg_more", side)
        assert own_end(stall)["pid"] == (child if side == "receiver" else os.getpid())
        hold = stall["sender"]["hold"]
        assert (hold["reason"], hold["release"], hold["bytes"]) == ("msg_more", "ack", 50)
    assert all("without MSG_MORE" in connection["fix"] for connection in tracer.closing()["connections"])


@pytest.mark.quick
def test_an_ack_is_late_because_the_receiver_left_bytes_unread() -> None:
    """A read of all that came sends the ACK; this one leaves some, and the answer goes another way."""
    answers = os.pipe()

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as connection:
            for _ in range(WARM):
                take(connection, 1)
                connection.send(b"x")
            for _ in range(ROUNDS):
                take(connection, 4)  # of the first 8; more comes once these are acknowledged
                connection.recv(1004, socket.MSG_PEEK | socket.MSG_WAITALL)
                take(connection, 1004)
                os.write(answers[1], b"x")

    took = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        with Tracer("-P", str(listener.getsockname()[1])) as tracer:
            with connected(listener.getsockname()) as client:
                for _ in range(ROUNDS):
                    began = time.monotonic()
                    client.send(bytes(8))
                    client.send(bytes(1000))
                    os.read(answers[0], 1)
                    took.append((time.monotonic() - began) * 1e6)
                    time.sleep(0.02)
            tracer.stop()
        thread.join(10)
    told = assert_told(took, tracer)
    reasons = [stall["receiver"]["pending_ack"]["reason"] for stall in told if stall["evidence"] == "seen"]
    # the first ACK is late since the server had answered before
    assert reasons.count("left_unread") >= len(reasons) - 2, reasons


class Pair:
    """Two network namespaces, joined by a veth. On the clients' route a connection begins with one segment."""

    ADDRESSES = {4: ("10.77.0.1", "10.77.0.2"), 6: ("fd77::1", "fd77::2")}

    def __enter__(self) -> Pair:
        self.spaces = Namespace().__enter__(), Namespace().__enter__()
        self.client, self.server = (str(space.holder.pid) for space in self.spaces)
        self.ip(self.client, "link", "add", "pair", "type", "veth", "peer", "name", "pair", "netns", self.server)
        for end, number in ((self.client, 0), (self.server, 1)):
            self.ip(end, "addr", "add", f"{self.ADDRESSES[4][number]}/24", "dev", "pair")
            self.ip(end, "addr", "add", f"{self.ADDRESSES[6][number]}/64", "dev", "pair", "nodad")
            self.ip(end, "link", "set", "pair", "mtu", "9000", "up")
        for end in (self.client, self.server):
            with self.inside(end):
                Path("/proc/sys/net/ipv4/tcp_fastopen").write_text("0x207")  # as both ends, without a cookie
        self.ip(self.client, "route", "replace", "10.77.0.0/24", "dev", "pair", "initcwnd", "1")
        self.ip(self.client, "-6", "route", "add", "fd77::/64", "dev", "pair", "initcwnd", "1", "metric", "1")
        return self

    def __exit__(self, *_: object) -> None:
        for space in self.spaces:
            space.__exit__()

    @staticmethod
    def ip(end: str, *command: str) -> None:
        subprocess.run(["nsenter", "-t", end, "-n", "ip", *command], check=True)

    @staticmethod
    def inside(end: str) -> contextlib.AbstractContextManager[None]:
        return inside_network(Path(f"/proc/{end}/ns/net"))

    def socket(self, family: int) -> socket.socket:
        with self.inside(self.client):
            return socket.socket(socket.AF_INET6 if family == 6 else socket.AF_INET)

    @contextlib.contextmanager
    def listening(self, family: int, serve: Callable[[socket.socket], None]) -> Iterator[tuple[int, tuple[str, int]]]:
        """A process that serves, and its address."""
        with self.inside(self.server), socket.create_server(
                (self.ADDRESSES[family][1], 0), family=socket.AF_INET6 if family == 6 else socket.AF_INET) as listener:
            address = listener.getsockname()[:2]
            child = os.fork()
            if not child:
                with contextlib.suppress(OSError):
                    serve(listener)
                os._exit(0)
        try:
            yield child, address
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            os.waitpid(child, 0)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Pair() as made:
        yield made


class Wait:
    """Somebody waits for a late ACK, and no segment that Nagle holds: plays the client, and then the server."""

    reason, pattern, remedy = "", "", ""
    rounds = ROUNDS

    def connected(self, pair: Pair, family: int, address: tuple[str, int]) -> socket.socket:
        client = pair.socket(family)
        self.before(client)
        self.began = time.monotonic()  # the way into the namespace takes some ms at times
        client.connect(address)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def before(self, client: socket.socket) -> None:
        """Sets what must be set before connect()."""

    def play(self, connect: Callable[[], socket.socket]) -> list[float]:
        raise NotImplementedError

    def serve(self, listener: socket.socket) -> None:
        raise NotImplementedError


class Requests(Wait):
    """Requests on one connection, each answered once all of it has come; both ends are in interactive mode."""

    size, pause = 0, 0.0

    def play(self, connect: Callable[[], socket.socket]) -> list[float]:
        with connect() as client:
            for _ in range(WARM):
                client.send(b"x")
                client.recv(1)
            took = []
            for _ in range(self.rounds):
                time.sleep(self.pause)
                took.append(took_us(lambda: (self.send(client), take(client, 1))))
            return took

    def send(self, client: socket.socket) -> None:
        raise NotImplementedError

    def serve(self, listener: socket.socket) -> None:
        with listener.accept()[0] as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for size in (*[1] * WARM, *[self.size] * self.rounds):
                take(connection, size)
                connection.send(b"x")
            take(connection, 1)


class FullBuffer(Requests):
    """The send buffer has no room for the message, and the writer sleeps until an ACK makes some."""

    reason, pattern, remedy = "sndbuf", "full_buffer", "SO_SNDBUF"
    size = 16_000  # the first half of it fills the buffer

    def before(self, client: socket.socket) -> None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    def send(self, client: socket.socket) -> None:
        client.sendall(bytes(self.size // 2))
        client.sendall(bytes(self.size // 2))


class FullBufferOfAPoller(FullBuffer):
    """The same of a writer that must not sleep: it polls until there is room."""

    def send(self, client: socket.socket) -> None:
        poll = select.poll()
        poll.register(client, select.POLLOUT)
        for left in [self.size // 2] * 2:
            while left:
                poll.poll()
                left -= client.send(bytes(left), socket.MSG_DONTWAIT)


class SmallWindow(Requests):
    """After a rest the congestion window is one segment, and a message has two."""

    reason, pattern, remedy = "cwnd", "small_cwnd", "initcwnd"
    size, pause, rounds = 150, 0.3, 5

    def before(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")

    def send(self, client: socket.socket) -> None:
        client.send(bytes(100))
        client.send(bytes(50))


class Connections(Wait):
    """A connection each round, of which the server closes its end later."""

    rounds = 5

    def serve(self, listener: socket.socket) -> None:
        connections = []
        for _ in range(self.rounds):
            connections.append(listener.accept()[0])
            self.answer(connections[-1])
        listener.close()
        for connection in connections:
            take(connection, 1 << 20)
        time.sleep(0.1)  # it does not close its end with the ACK of the last FIN

    def answer(self, connection: socket.socket) -> None:
        raise NotImplementedError


class LingeringClose(Connections):
    """close() waits for the ACK of its FIN, as SO_LINGER asks for."""

    reason, pattern, remedy = "linger", "lingering_close", "SO_LINGER"

    def play(self, connect: Callable[[], socket.socket]) -> list[float]:
        return [took_us(self.exchanged(connect()).close) for _ in range(self.rounds)]

    @staticmethod
    def exchanged(client: socket.socket) -> socket.socket:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 5))
        client.send(b"x")
        client.recv(1)
        return client

    def answer(self, connection: socket.socket) -> None:
        connection.recv(1)
        connection.send(b"x")


class DeferredHandshake(Connections):
    """The server speaks first, and accept() waits for the ACK that the client has delayed."""

    reason, pattern, remedy = "handshake", "server_first", "before connect()"

    def before(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)

    def play(self, connect: Callable[[], socket.socket]) -> list[float]:
        took = []
        for _ in range(self.rounds):
            with connect() as client:
                client.recv(9)
                took.append((time.monotonic() - self.began) * 1e6)
        return took

    def answer(self, connection: socket.socket) -> None:
        connection.send(b"220 hello")


class DeferredAccept(DeferredHandshake):
    def before(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 5)


WAITS = [FullBuffer, FullBufferOfAPoller, SmallWindow, LingeringClose, DeferredHandshake, DeferredAccept]


def played(wait: Wait, pair: Pair, family: int, only: str = "", *more: str) -> tuple[list[float], Tracer, int]:
    """What the client felt, who traced it, and the process asked for, or else the client."""
    with pair.listening(family, wait.serve) as (server, address):
        arguments = {"client": ("--netns", pair.client), "server": ("-p", str(server))}.get(only, ())
        with Tracer("-P", str(address[1]), *arguments, *more) as tracer:
            took = wait.play(lambda: wait.connected(pair, family, address))
            tracer.stop()
    return took, tracer, server if only == "server" else os.getpid()


#: `make test` plays these, some at one end and some at the other.
QUICK = {("client", FullBuffer), ("client", FullBufferOfAPoller), ("client", DeferredHandshake),
         ("server", FullBuffer), ("server", SmallWindow), ("server", LingeringClose)}


@pytest.mark.parametrize("only, family, kind", [
    *[pytest.param("", 4, kind, id=f"{kind.__name__}") for kind in WAITS],
    *[pytest.param("", 6, kind, marks=pytest.mark.once, id=f"{kind.__name__}-ipv6") for kind in WAITS],
    *[pytest.param(end, 4, kind, id=f"{kind.__name__}-{end}",
                   marks=[pytest.mark.once, *([pytest.mark.quick] if (end, kind) in QUICK else [])])
      for end, kinds in (("client", WAITS), ("server", [FullBuffer, SmallWindow, LingeringClose, DeferredHandshake]))
      for kind in kinds],
])
def test_who_waits_for_a_late_ack_is_told(pair: Pair, only: str, family: int, kind: type[Wait]) -> None:
    wait = kind()
    took, tracer, process = played(wait, pair, family, only)
    # a handshake's wait is that of the pending ACK, whose start may be known to a jiffy
    told = assert_told(took, tracer, 3_000 if wait.reason == "handshake" else 1_000)
    for stall in told:
        assert (stall["cause"], stall["reason"], stall["pattern"]) == ("delayed_ack", wait.reason, wait.pattern), stall
        assert own_end(stall)["pid"] == (os.getpid() if wait.reason == "handshake" else process), stall
    inferred = sum(stall["evidence"] == "inferred" for stall in told)
    if only == "client" and wait.reason != "handshake":
        assert inferred == len(told)
    else:
        assert inferred <= unseen(tracer), "of what the machine hid, one end is left"
    assert all(wait.remedy in connection["fix"] for connection in tracer.closing()["connections"])


@pytest.mark.parametrize("kind", [pytest.param(FullBuffer, marks=pytest.mark.quick),
                                  pytest.param(LingeringClose, marks=pytest.mark.once)])
def test_a_timeline_has_the_wait_that_its_ack_ended(pair: Pair, kind: type[Wait]) -> None:
    wait = kind()
    took, tracer, _ = played(wait, pair, 4, "", "--timeline")
    waits = {event["duration_us"] for event in tracer.records("event")
             if event["event"] == "hold_end" and event["reason"] == wait.reason and event["bytes"] == 0}
    assert {stall["duration_us"] for stall in assert_told(took, tracer)} <= waits


@pytest.mark.once
@pytest.mark.parametrize("kind, option, said", [
    pytest.param(FullBuffer, "--nodelay", "by sndbuf, which TCP_NODELAY does not end: leave SO_SNDBUF",
                 marks=pytest.mark.quick),
    (DeferredHandshake, "--quickack", "by handshake, which TCP_QUICKACK does not end: "),
])
def test_fix_says_what_its_option_does_nothing_for(pair: Pair, kind: type[Wait], option: str, said: str) -> None:
    """The client waits for room, or the server for the client's ACK; the process asked for is who waits."""
    wait = kind()
    with pair.listening(4, wait.serve) as (server, address):
        process = server if kind is DeferredHandshake else os.getpid()
        with Tracer("fix", "-p", str(process), option, "--yes", "--for", "900ms", text=True) as tracer:
            wait.play(lambda: wait.connected(pair, 4, address))
            tracer.wait()
    text = " ".join(tracer.lines.text().split())
    assert re.search(rf"\d stalls {said}", text), text
    assert "no connection was touched" in text


class MoreBehindNagle(Requests):
    """Nagle holds a part of the message when the next comes with MSG_MORE."""

    size = 150

    def send(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        client.send(bytes(50))
        client.send(bytes(50))
        self.more(client)

    def more(self, client: socket.socket) -> None:
        time.sleep(0.025)
        client.send(bytes(50), socket.MSG_MORE)


class CorksBehindNagle(MoreBehindNagle):
    """More comes meanwhile, in corks that end with it."""

    size = 220

    def more(self, client: socket.socket) -> None:
        for _ in range(3):
            time.sleep(0.008)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            client.send(bytes(20))
            client.send(bytes(20))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)


@pytest.mark.quick
@pytest.mark.parametrize("only, kind", [("", MoreBehindNagle), ("client", CorksBehindNagle)])
def test_nagle_holds_until_the_ack_whatever_is_written_meanwhile(pair: Pair, only: str, kind: type[Wait]) -> None:
    took, tracer, _ = played(kind(), pair, 4, only)
    for stall in assert_told(took, tracer):
        hold = stall["sender"]["hold"]
        assert (stall["cause"], hold["reason"], hold["release"]) == ("nagle_delayed_ack", "nagle", "ack"), stall


class CorkThatStays(MoreBehindNagle):
    """It is in force when the ACK comes that Nagle waits for; one more write comes before the cork's ceiling."""

    size, rounds = 140, 5

    def send(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        super().send(client)

    def more(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        client.send(bytes(20))
        time.sleep(0.2)
        client.send(bytes(20))


@pytest.mark.quick
def test_a_cork_holds_from_the_ack_on_that_nagle_waited_for(pair: Pair) -> None:
    took, tracer, _ = played(CorkThatStays(), pair, 4)
    told = tracer.stalls()
    assert {stall["cause"] for stall in told} == {"cork_ceiling"} and len(told) >= len(took) - 1, (took, told)
    # of the timers that the machine hid, the ACK went unseen too: a cork holds from the next write on
    short = [stall["duration_us"] for stall in told if stall["duration_us"] < min(took) - 100_000]
    assert len(short) <= lacking(tracer), (took, short)


class CloseOfNobody(LingeringClose):
    """A process ends with a socket that lingers: no close() waits."""

    def play(self, connect: Callable[[], socket.socket]) -> list[float]:
        for _ in range(self.rounds):
            child = os.fork()
            if not child:
                with self.exchanged(connect()):
                    os._exit(0)
            os.waitpid(child, 0)
        time.sleep(0.1)
        return []


class CloseAfterItsFin(LingeringClose):
    """close() comes when the FIN is acknowledged already."""

    def play(self, connect: Callable[[], socket.socket]) -> list[float]:
        for _ in range(self.rounds):
            with self.exchanged(connect()) as client:
                self.wait(client)
        return []

    def wait(self, client: socket.socket) -> None:
        client.shutdown(socket.SHUT_WR)
        time.sleep(0.06)


class CloseAfterTheReply(CloseAfterItsFin):
    """close() comes with the reply, long after the FIN and its ACK."""

    def wait(self, client: socket.socket) -> None:
        client.shutdown(socket.SHUT_WR)
        client.recv(1)

    def answer(self, connection: socket.socket) -> None:
        super().answer(connection)
        take(connection, 1)
        time.sleep(0.1)
        connection.send(b"x")


class CloseAfterReset(CloseAfterItsFin):
    """The server resets the connection after its late ACK: there is no FIN to wait for."""

    def wait(self, client: socket.socket) -> None:
        client.send(b"x")
        with contextlib.suppress(ConnectionResetError):
            client.recv(1)

    def answer(self, connection: socket.socket) -> None:
        super().answer(connection)
        connection.recv(1)
        time.sleep(0.06)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


class ClientFirst(DeferredHandshake):
    """The ACK of the handshake is delayed, and the server waits for its request anyway."""

    def play(self, connect: Callable[[], socket.socket]) -> list[float]:
        for _ in range(self.rounds):
            with connect() as client:
                time.sleep(0.25)
                client.send(b"x")
                client.recv(9)
        return []

    def answer(self, connection: socket.socket) -> None:
        connection.recv(1)
        connection.send(b"220 hello")


class LateGreeting(DeferredHandshake):
    """The server speaks first, of its own accord and long after the handshake."""

    def answer(self, connection: socket.socket) -> None:
        time.sleep(0.08)
        connection.send(b"220 hello")


class FastOpen(LateGreeting):
    """The SYN brings the request, so that accept() waits for no ACK; the server works on it until just after that."""

    def connected(self, pair: Pair, family: int, address: tuple[str, int]) -> socket.socket:
        client = pair.socket(family)
        self.before(client)
        self.began = time.monotonic()
        client.sendto(b"x", socket.MSG_FASTOPEN, address)
        return client

    def serve(self, listener: socket.socket) -> None:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 5)
        super().serve(listener)

    def answer(self, connection: socket.socket) -> None:
        connection.recv(1)
        time.sleep(0.215)
        connection.send(b"220 hello")


class FullBufferOfNobody(FullBuffer):
    """The message fills the buffer and waits for nothing; the next one comes with the reply, just after the late ACK.

    The client polls for room too, as those do who always ask for both.
    """

    size = 8_000

    def send(self, client: socket.socket) -> None:
        client.send(bytes(self.size))
        poll = select.poll()
        poll.register(client, select.POLLIN | select.POLLOUT)
        while not any(events & select.POLLIN for _, events in poll.poll()):
            poll.modify(client, select.POLLIN)

    def serve(self, listener: socket.socket) -> None:
        with listener.accept()[0] as connection:
            for size in (*[1] * WARM, *[self.size] * self.rounds):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
                take(connection, size)
                time.sleep(0.05 if size > 1 else 0)
                connection.send(b"x")
            take(connection, 1)


HARMLESS = [CloseOfNobody, CloseAfterItsFin, CloseAfterTheReply, CloseAfterReset,
            ClientFirst, LateGreeting, FastOpen, FullBufferOfNobody]


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=[] if kind in (ClientFirst, CloseAfterReset, FullBufferOfNobody) else pytest.mark.quick,
                 id=kind.__name__) for kind in HARMLESS])
def test_a_late_ack_that_nobody_waits_for_is_not_told(pair: Pair, kind: type[Wait]) -> None:
    wait = kind()
    _, tracer, _ = played(wait, pair, 4)
    late = int(tracer.closing()["totals"]["delayed_acks"]["timer"]) + unseen(tracer)
    assert late >= wait.rounds // 2, "hardly an ACK was late"
    assert not tracer.stalls()
