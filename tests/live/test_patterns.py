# SPDX-License-Identifier: GPL-2.0
"""Patterns that the lab's scenarios meet seldom: each is made on purpose, and told by its name and advice."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import PATIENCE, STALLED_US, Lab, Tracer, lacking, trace, unseen
from spaces import Namespace

pytestmark = pytest.mark.quick
BUSY_RECEIVER = Path(__file__).with_name("busy_receiver.py")
REPLY_TAIL = Path(__file__).with_name("reply_tail.py")


@contextlib.contextmanager
def waiting(program: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The program in a network namespace of its own, and what it says; it goes on after a line."""
    with subprocess.Popen(["unshare", "--net", sys.executable, program, *arguments], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.parametrize("side,fix", [("sender", "write both parts at once"), ("receiver", "keep the calls on this")])
def test_a_receiver_that_was_busy_on_its_socket_is_told_so(side: str, fix: str) -> None:
    """The timer of its ACK expires while a call of it has the socket, as the kernel counts: the ACK waits for that."""
    with waiting(BUSY_RECEIVER, "12") as (program, ready):
        port = ready.removeprefix("ready ")
        with Tracer("--netns", str(program.pid), *(("-L", port) if side == "receiver" else ())) as tracer:
            found_locked, probes = map(int, program.communicate("\n", timeout=PATIENCE)[0].split())
            tracer.stop()
    told = [stall for stall in tracer.stalls() if stall["pattern"] == "locked_socket"]
    # the sender alone shows the stall of a timer that went unseen, and knows of no lock
    shown = [(stall["pattern"], stall["side"], stall["evidence"], stall["duration_us"]) for stall in tracer.stalls()]
    stalled = found_locked - probes
    assert stalled >= 2 and stalled - unseen(tracer) <= len(told) <= found_locked, (found_locked, probes, shown)
    assert len(shown) >= stalled - lacking(tracer), (found_locked, probes, shown)
    assert {stall["side"] for stall in told} == {side}
    # from where the tail was held until the call ended, 10 ms and 150 ms after
    assert all(150_000 <= stall["duration_us"] < 280_000 for stall in told), told
    assert all(stall["receiver"]["pending_ack"]["locked"] for stall in told), told
    assert tracer.closing()["connections"][0]["fix"].startswith(fix)


def test_the_tail_of_a_reply_is_told_so() -> None:
    """A segment of it goes at once; the tail waits for the ACK of a small part before."""
    with waiting(REPLY_TAIL, "24") as (program, _), Tracer("--netns", str(program.pid)) as tracer:
        took = json.loads(program.communicate("\n", timeout=PATIENCE)[0])["took"]
        tracer.stop()
    felt = [us for us in took if us >= STALLED_US]  # the delay grows to that in the first rounds
    told = [stall for stall in tracer.stalls() if stall["duration_us"] >= STALLED_US - 500]
    assert len(felt) >= 8, took
    assert abs(len(told) - len(felt)) <= 1, (took, told)
    assert {stall["pattern"] for stall in tracer.stalls()} <= {"reply_tail", "handshake_flight"}
    holds = [s["sender"]["hold"] for s in told]
    assert {(hold["in_flight_bytes"], hold["bytes"], hold["mss"]) for hold in holds} == {(348, 152, 248)}
    writes = Counter((hold.get("writes"), hold.get("write_bytes"), hold.get("sent_writes")) for hold in holds)
    # where something between write and look went unseen, it says nothing of them
    assert set(writes) <= {(1, 400, None), (None, None, None)} and writes[1, 400, None] > len(holds) // 2, writes
    [connection] = tracer.closing()["connections"]
    assert connection["pattern"] == "reply_tail" and connection["fix"].startswith("write the whole message at once")
    assert connection["pattern_text"].startswith(("write 400 B, of which the last 152 B are held", "348 B in flight"))


def answering(listener: socket.socket, sizes: tuple[int, ...]) -> None:
    """Answers each byte: twenty with one, so that both ends are in interactive mode, and the others so."""
    with listener.accept()[0] as connection:
        for answer in [(1,)] * 20 + [sizes] * 12:
            connection.recv(1)
            for size in answer:
                connection.send(bytes(size))


@pytest.mark.parametrize("sizes,told,text", [
    pytest.param((6, 7), (6, 1, 1, 7, 7), "write 6 B (sent), write 7 B (held), waits for the reply", id="two writes"),
    pytest.param((63, 63, 63, 63), (63, 1, 3, 63, 189), "write 63 B (sent), 3 writes of 63 B (held): parts of",
                 id="answers"),
    pytest.param((82, 30, 20, 32), (82, 1, 3, None, 82), "write 82 B (sent), 3 writes, 82 B (held): parts of",
                 id="lines")])
def test_sizes_are_those_of_the_writes(sizes: tuple[int, ...], told: tuple[int | None, ...], text: str) -> None:
    with Namespace() as space, space.inside():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = listener.getsockname()
            server = threading.Thread(target=answering, args=(listener, sizes), daemon=True)
            server.start()
            with Tracer("--netns", str(space.holder.pid), "-L", str(address[1])) as tracer:
                with socket.create_connection(address) as client:
                    for size in [1] * 20 + [sum(sizes)] * 12:
                        client.send(b"x")
                        while size:
                            size -= len(client.recv(size))
                tracer.stop()
            server.join(PATIENCE)
    holds = [stall["sender"]["hold"] for stall in tracer.stalls()]
    assert len(holds) >= 10 - unseen(tracer), tracer.closing()
    # a server that the machine keeps waiting for 40 ms between two writes leaves others
    seen = Counter(tuple(hold.get(key) for key in ("in_flight_bytes", "sent_writes", "writes", "write_bytes", "bytes"))
                   for hold in holds)
    assert seen[told] >= len(holds) - 2, seen
    if seen[told] == len(holds):
        assert tracer.closing()["connections"][0]["pattern_text"].startswith(text)


def test_a_loss_probe_that_takes_the_tail_along_is_told_so() -> None:
    """As many as the kernel counts, but for a timer that expires as the ACK comes, or unseen; no stalls."""
    with waiting(REPLY_TAIL, "--loss-probes", "40") as (program, _), \
            Tracer("--netns", str(program.pid), "--all-holds") as tracer:
        counted = json.loads(program.communicate("\n", timeout=PATIENCE)[0])["loss_probes"]
        tracer.stop()
    assert counted >= 4, "hardly a probe was sent; nothing is shown"
    told = tracer.closing()["totals"]["releases"]["loss_probe"]
    assert abs(told - counted) <= 2, (counted, tracer.closing()["totals"])
    holds = [hold for hold in tracer.records("hold") if hold["sender"]["hold"]["release"] == "loss_probe"]
    assert len(holds) == told


def test_a_stall_of_the_first_segments_is_told_so() -> None:
    """The first request, in two parts, to a server that is in interactive mode from the start."""
    connections, felt = 4, 0
    with Namespace() as space, Tracer("--netns", str(space.holder.pid)) as tracer:
        with space.inside(), socket.create_server(("127.0.0.1", 0)) as listener:
            for _ in range(connections):
                with socket.create_connection(listener.getsockname()) as client, listener.accept()[0] as server:
                    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
                    began = time.monotonic()
                    client.sendall(b"x" * 6)
                    client.sendall(b"y" * 7)
                    assert len(server.recv(13, socket.MSG_PEEK)) == 6
                    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 13)
                    select.select([server], [], [])
                    felt += (time.monotonic() - began) * 1e6 >= STALLED_US
        tracer.stop()
    told = [stall["pattern"] for stall in tracer.stalls()]
    assert felt and max(1, felt - lacking(tracer)) <= len(told) <= felt, (felt, tracer.closing())
    assert set(told) == {"handshake_flight"}, tracer.stalls()
    fixes = {connection["fix"] for connection in tracer.closing()["connections"]}
    assert len(fixes) == 1 and fixes.pop().startswith("set TCP_NODELAY right after connect() or accept()")


# mostly the ACK of the header comes within its write, and the body is not held: of 20 rounds maybe none is
@pytest.mark.parametrize("scenario,how,pattern", [
    ("autocork", ("--rounds", "20", "--over", "veth"), "autocork"),
    ("header-body", ("--rounds", "400", "--interval", "1ms", "--quickack"), "ack_clocked")])
def test_a_hold_that_is_no_stall_has_its_pattern(scenario: str, how: tuple[str, ...], pattern: str) -> None:
    with Lab(scenario, *how) as lab:
        _, tracer = trace(lab, "-p", str(lab.client), "--all-holds", "--min", "1us")
    assert tracer.stalls() == []
    assert pattern in {hold.get("pattern") for hold in tracer.records("hold")}, tracer.closing()["totals"]


def test_what_fills_a_held_segment_lets_it_go() -> None:
    """Nagle holds a small write; what is written after it makes a segment of it, which goes at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener, \
            Tracer("-P", str(listener.getsockname()[1]), "--all-holds", "--min", "1us") as tracer:
        with socket.create_connection(listener.getsockname()) as writer, listener.accept()[0] as reader:
            reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            for size in (6, 7, 1 << 17):
                writer.sendall(bytes(size))
            left = 13 + (1 << 17)
            while left:
                left -= len(reader.recv(left))
        tracer.stop()
    holds = [hold["sender"]["hold"] for hold in tracer.records("hold")]
    releases = {(hold["reason"], hold["release"]) for hold in holds}
    assert ("nagle", "full_segment") in releases, tracer.records("hold")
    assert tracer.stalls() == []
