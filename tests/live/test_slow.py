# SPDX-License-Identifier: GPL-2.0
"""Not a stall, but time: what else held the bytes, by the application's clock."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from busy_receiver import BUSY_S, libc, register
from harness import IN_GUEST, Lab, Record, Tracer, trace
from test_report import text_of
from test_waits import WARM, Pair, take, took_us

pytestmark = pytest.mark.guest

ROUNDS = 10
SO_MAX_PACING_RATE = 47  # asm-generic/socket.h; bytes/s


@contextlib.contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """A process that serves one connection, until it has one byte more: its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        child = os.fork()
        if not child:
            with contextlib.suppress(OSError):
                connection = listener.accept()[0]
                serve(connection)
                take(connection, 1)
            os._exit(0)
    try:
        yield address
    finally:
        os.waitpid(child, 0)


def answers(connection: socket.socket, sizes: list[int], think_s: float) -> None:
    for size in (*[1] * WARM, *sizes):
        take(connection, size)
        time.sleep(think_s if size > 1 else 0)
        connection.send(b"x")


class Nagle:
    """The second request waits for the ACK that comes with the reply to the first."""

    reason, advice = "nagle", "TCP_NODELAY, or one write"
    ended = ("piggybacked_ack", "ack")

    @staticmethod
    def serve(connection: socket.socket) -> None:
        answers(connection, [100] * 2 * ROUNDS, 0.015)

    @staticmethod
    def play(client: socket.socket) -> float:
        held = 0.0
        for _ in range(ROUNDS):
            client.send(bytes(100))
            client.send(bytes(100))
            held += took_us(lambda: client.recv(1))
            client.recv(1)
        return held


class ReceiveWindow:
    """The receiver's window is smaller than a segment, so that a timer sends each piece. In the last third the reader
    pauses: then the window is closed when a hold begins."""

    reason, advice = "rwnd", "smaller than a segment"
    ended = None
    size = 100_000

    def serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        answers(connection, [], 0)
        left = self.size
        while left:
            time.sleep(0.1 if left < self.size // 3 else 0)
            left -= len(connection.recv(min(left, 3000)))
        connection.send(b"x")

    def play(self, client: socket.socket) -> float:
        return took_us(lambda: (client.sendall(bytes(self.size)), client.recv(1)))


class Pacing:
    """The second segment of a request waits until the pacing rate allows it."""

    reason, advice = "pacing", "SO_MAX_PACING_RATE"
    ended = (None, "device")

    @staticmethod
    def serve(connection: socket.socket) -> None:
        answers(connection, [2000] * ROUNDS, 0)

    @staticmethod
    def play(client: socket.socket) -> float:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 20_000)
        waited = 0.0
        for _ in range(ROUNDS):
            client.send(bytes(1000))
            client.send(bytes(1000))
            waited += took_us(lambda: client.recv(1))
        return waited


def read_promptly(listener: socket.socket) -> None:
    """Until the end, and so that no ACK is delayed."""
    with listener.accept()[0] as connection:
        while connection.recv(65536):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


@contextlib.contextmanager
def client_of_a_prompt_receiver(end: int, *discipline: str) -> Iterator[tuple[socket.socket, Tracer]]:
    """A client whose receiver delays no ACK meanwhile, and a tracer of the client's end alone. What an end of the pair
    sends goes through the queueing discipline."""
    with Pair() as pair:
        made = subprocess.run(pair.spaces[end].enter("tc", "qdisc", "replace", "dev", "pair", "root", *discipline),
                              capture_output=True, text=True)
        if made.returncode:
            pytest.skip(f"{discipline[0]}: {made.stderr}")
        far = pair.spaces[1]
        with pair.listening(4, read_promptly) as (_, address), Tracer("--netns", pair.client, "--all-holds") as tracer:
            with pair.socket(4) as client:
                client.connect(address)
                for _ in range(WARM):
                    client.send(bytes(100))
                    time.sleep(0.02)
                delayed = far.counter("TcpExtDelayedACKs")
                yield client, tracer
                assert far.counter("TcpExtDelayedACKs") == delayed
            tracer.stop()


def test_an_ack_that_waits_for_a_call_of_its_sender_is_not_late() -> None:
    """A write whose bytes the kernel has to wait for keeps the socket locked, and the ACK of the first waits in its
    backlog: it comes after 20 ms, and TCP processes it after BUSY_S."""
    memory = mmap.mmap(-1, ROUNDS * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with client_of_a_prompt_receiver(1, "netem", "delay", "20ms") as (client, tracer):
        begin = register(memory)
        for number in range(ROUNDS):
            client.send(bytes(100))
            client.send(bytes(100))
            libc.send(client.fileno(), ctypes.c_void_p(begin + number * mmap.PAGESIZE), 100, 0)
            time.sleep(0.05)
    holds = [hold for hold in tracer.records("hold") if hold["duration_us"] >= BUSY_S * 1e6 - 10_000]
    # Nagle holds nothing where this process came to its second write so late that the ACK was here
    assert len(holds) > ROUNDS // 2 and not tracer.stalls(), tracer.records("stall")


def test_a_segment_that_fq_keeps_back_is_no_late_ack_of_its_receiver() -> None:
    """Nagle holds the third piece until the second is acknowledged, which leaves some 50 ms after it was sent."""
    with client_of_a_prompt_receiver(0, "fq") as (client, tracer):
        client.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 10_000)
        for _ in range(ROUNDS):
            time.sleep(0.5)  # longer than the rate asks for
            client.send(bytes(1000))
            time.sleep(0.002)
            client.send(bytes(200))
            client.send(bytes(1000))
        time.sleep(0.5)
    holds = [hold for hold in tracer.records("hold") if hold["duration_us"] >= 30_000]
    assert len(holds) == ROUNDS and not tracer.stalls(), tracer.records("stall")


def slow_holds(tracer: Tracer, reason: str) -> Record:
    """The first row of this reason, which is the one of most time."""
    return next(row for row in tracer.closing()["slow_holds"] if row["reason"] == reason)


@pytest.mark.parametrize("kind", [pytest.param(Nagle, marks=pytest.mark.quick), ReceiveWindow, Pacing])
def test_what_held_the_bytes_is_told_with_process_time_and_advice(kind: type[Nagle | ReceiveWindow | Pacing]) -> None:
    wait = kind()
    with serving(wait.serve) as address:
        with Tracer("-P", str(address[1]), "--all-holds") as tracer, socket.create_connection(address) as client:
            for _ in range(WARM):
                client.send(b"x")
                client.recv(1)
            waited = wait.play(client)
            client.send(b"x")
            tracer.stop()
    row = slow_holds(tracer, wait.reason)
    assert (row["pid"], row["comm"]) == (os.getpid(), Path("/proc/self/comm").read_text()[:-1])
    assert row["remote"] == f"127.0.0.1:{address[1]}" and wait.advice in row["advice"]
    assert not tracer.stalls()
    over = {(hold.get("pattern"), hold["sender"]["hold"]["release"]) for hold in tracer.records("hold")
            if hold["sender"]["hold"]["reason"] == wait.reason and hold["duration_us"] >= 10_000}
    assert not wait.ended or over == {wait.ended}, tracer.records("hold")
    # it waits less where a pacing timer runs already, and longer than the clock between a send and the next call
    assert 0.7 * waited < row["hold_us"] < 1.05 * waited + 1000 * ROUNDS, (waited, row)


@pytest.mark.parametrize("arguments, reason, advice", [
    pytest.param(("slow-reader", "--over", "veth"), "rwnd", "reads more slowly", marks=pytest.mark.quick),
    (("bulk", "--over", "veth", "--rtt", "30ms"), "cwnd", "congestion window"),
    (("bulk", "--over", "veth", "--rate", "2000", "--rounds", "10"), "tsq", "device"),
])
def test_what_the_path_or_the_peer_holds_is_told(arguments: tuple[str, ...], reason: str, advice: str) -> None:
    with Lab(*arguments) as lab:
        with Tracer("-p", str(lab.client)) as tracer:
            took = took_us(lab.play)
            tracer.wait()
    row = slow_holds(tracer, reason)
    assert 100_000 < row["hold_us"] < took and advice in row["advice"] and not tracer.stalls()


@pytest.mark.parametrize("least", [pytest.param("1ms", marks=pytest.mark.quick), "1s"])
def test_a_stall_is_no_slow_hold_however_short(least: str) -> None:
    with Lab("write-write-read", "--rounds", "5") as lab:
        _, tracer = trace(lab, "-p", str(lab.client), "-m", least)
    assert bool(tracer.stalls()) == (least == "1ms")
    assert "nagle" not in {row["reason"] for row in tracer.closing()["slow_holds"]}


def test_holds_that_find_no_room_count_without_a_name() -> None:
    rounds, rows, name = 300, 256, Path("/proc/self/comm")
    before = name.read_text()
    with serving(lambda connection: answers(connection, [100] * 2 * rounds, 0.015)) as address:
        with Tracer("-P", str(address[1])) as tracer, socket.create_connection(address) as client:
            for _ in range(WARM):
                client.send(b"x")
                client.recv(1)
            for i in range(rounds):
                name.write_text(f"name-{i}")
                client.send(bytes(100))
                client.send(bytes(100))
                client.recv(1)
                client.recv(1)
            name.write_text(before)
            client.send(b"x")
            tracer.stop()
    nameless = slow_holds(tracer, "nagle")
    assert not {"comm", "pid"} & nameless.keys()
    assert rounds - rows <= nameless["holds"] <= rounds - rows + 20
    assert nameless["hold_us"] >= nameless["holds"] * 10_000


def test_the_text_says_it_in_a_section_of_its_own() -> None:
    with Lab("slow-reader", "--over", "veth") as lab:
        _, text, _ = text_of(lab)
    assert re.search(r"\n  not a stall, but time\n    rwnd +lab-client\[\d+\]: ", text), text
    said = " ".join(text.split())
    # in a guest the window may be left open for less than a segment, which is another sentence
    guests = said.count("is smaller than a segment") if IN_GUEST else 0
    assert said.count("reads more slowly than this end writes") + guests == 1
