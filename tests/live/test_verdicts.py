# SPDX-License-Identifier: GPL-2.0
"""The verdict against the application's clock: every stall it felt is reported, and none that it did not."""

from __future__ import annotations

import socket
import statistics
import struct
import subprocess
import sys
import threading
import time

import pytest
import relay
from daemon import RELEASE
from ends import far_end, own_end
from harness import (IN_GUEST, PATIENCE, STALLED_US, Lab, Tracer, assert_durations_match, lacking, seen_at_both,
                     stalled_rounds, trace, unseen)
from spaces import Namespace

PATHS = [(over, family) for over in ("loopback", "veth") for family in ("-4", "-6")]
QUICK = [("loopback", "-4"), ("veth", "-6")]


@pytest.mark.parametrize("scenario,over,family", [
    pytest.param(scenario, *path, marks=[pytest.mark.quick] if chosen and path in QUICK else [])
    for scenario, chosen in (("write-write-read", True), ("header-body", False)) for path in PATHS])
def test_every_stalled_round_is_reported_with_its_duration(scenario: str, over: str, family: str) -> None:
    with Lab(scenario, "--over", over, family, "--rounds", "8", "--interval", "20ms") as lab:
        result, tracer = trace(lab, "-p", str(lab.client))
    rounds = stalled_rounds(result)
    assert len(rounds) >= 6, "the lab did not stall; there is nothing to find"
    stalls = tracer.stalls()
    assert_durations_match(rounds, stalls, lacking(tracer))
    for stall in stalls:
        assert stall["cause"] == "nagle_delayed_ack"
        assert stall["side"] == "sender" and own_end(stall)["pid"] == lab.client
        assert stall["sender"]["hold"]["reason"] == "nagle" and stall["sender"]["hold"]["release"] == "ack"
        assert stall["sender"]["hold"]["bytes"] == (7 if scenario == "write-write-read" else 512)
        assert stall["sender"]["hold"]["in_flight_bytes"] == (6 if scenario == "write-write-read" else 512)
        assert (stall["sender"]["hold"]["writes"], stall["sender"]["hold"]["sent_writes"]) == (1, 1)
        assert own_end(stall)["address"] == result_address(lab, "client")
        assert far_end(stall)["address"] == result_address(lab, "server")
        assert stall["family"] == int(family[1])
        assert own_end(stall)["options"]["nodelay"] is False
        assert own_end(stall)["netns"] == lab.ready["client"]["netns"]
    for stall in seen_at_both(tracer, stalls):
        assert stall["evidence"] == "seen"
        assert far_end(stall)["pid"] == lab.server
        assert stall["receiver"]["pending_ack"]["release"] == "timer"


def result_address(lab: Lab, end: str) -> str:
    return lab.ready["connections"][0][end]


@pytest.mark.parametrize("over,family", [pytest.param(*path, marks=[pytest.mark.quick] if path in QUICK else [])
                                         for path in PATHS])
def test_echo_rules_nagle_out(over: str, family: str) -> None:
    """One write a round leaves nothing in flight: no hold by Nagle, no stall; the ACKs ride on the answers."""
    with Lab("echo", "--over", over, family) as lab:
        _, tracer = trace(lab, "-p", f"{lab.client},{lab.server}")
    closing = tracer.closing()
    assert tracer.stalls() == []
    assert closing["stalls"] == 0
    assert closing["totals"]["holds"]["nagle"] == 0
    assert closing["totals"]["writes"] == 20


@pytest.mark.guest
@pytest.mark.parametrize("over", [pytest.param(("--own-netns",), id="loopback"),
                                  pytest.param(("--over", "veth"), marks=pytest.mark.quick, id="veth")])
def test_where_each_side_stalls_the_other_both_are_reported(over: tuple[str, ...]) -> None:
    """length-data, answered the same way: of each round one process sees one stall from either side."""
    with Lab("length-data", *over, "--rounds", "8") as lab:
        result, tracer = trace(lab, "-p", str(lab.client))
    rounds = stalled_rounds(result)
    by_side: dict[str, list[dict]] = {"sender": [], "receiver": []}
    for stall in tracer.stalls():
        assert own_end(stall)["pid"] == lab.client
        by_side[stall["side"]].append(stall)
    # a round of two stalls takes 80 ms; the first ones have one, as one end is in quick-ACK mode still
    told = len(tracer.stalls())
    if IN_GUEST:  # where a round lasts longer than its stalls, nobody knows for how many
        unexplained = sum(r["latency_us"] for r in rounds) - sum(s["duration_us"] for s in tracer.stalls())
        assert len(rounds) <= told <= 2 * len(rounds)
        assert -500 * told <= unexplained <= 20_000 * told, (rounds, tracer.stalls())
    else:
        # a busy machine lengthens rounds, and lets the timer expire where nothing is held
        felt = sum(round(r["latency_us"] / 42_000) for r in rounds)
        timers = sum(result[end]["counters"]["TcpExtDelayedACKs"] for end in ("client", "server"))
        if over == ("--own-netns",):
            timers //= 2  # both are in one namespace
        assert min(felt, timers) - lacking(tracer) <= told <= timers
    assert len(by_side["sender"]) >= 5 and len(by_side["receiver"]) >= 5
    for stall in seen_at_both(tracer, by_side["sender"]):
        assert stall["sender"]["hold"]["bytes"] == 100 and far_end(stall)["pid"] == lab.server
    for stall in by_side["receiver"]:
        assert stall["receiver"]["pending_ack"]["release"] == "timer" and stall["receiver"]["pending_ack"]["bytes"] == 4
        assert far_end(stall)["pid"] == lab.server and stall["sender"]["hold"]["reason"] == "nagle"
        assert stall["sender"]["hold"]["bytes"] == 100


@pytest.mark.skipif(RELEASE < (6, 6), reason="the timer follows rto_min since Linux 6.7 and 6.6.10")
@pytest.mark.quick
def test_a_stall_is_as_short_as_the_routes_rto_min_makes_it_and_that_is_said() -> None:
    with Lab("write-write-read", "--over", "veth", "--rto-min", "10ms", "--rounds", "12") as lab:
        result, tracer = trace(lab, "-p", str(lab.client))
    # a receiver that has answered nothing yet delays no ACK; but in a guest the first round may take as long
    rounds = [r for r in result["rounds"][1:] if r["latency_us"] > 6_000]
    assert len(rounds) >= 9, "hardly a round stalled; nothing is shown"
    assert statistics.median(r["latency_us"] for r in rounds) < 30_000, "the timer is as long as ever"
    assert_durations_match(rounds, tracer.stalls(), lacking(tracer))  # the sender's end alone does not know the route
    acks = [s["receiver"]["pending_ack"] for s in seen_at_both(tracer, tracer.stalls())]
    assert {(ack["release"], ack["reason"]) for ack in acks} == {
        ("timer", "delack_max")}


@pytest.mark.parametrize("how,reason", [([], "cork"),
                                        pytest.param(["--msg-more"], "msg_more", marks=pytest.mark.quick)])
def test_a_cork_that_is_forgotten_ends_at_its_ceiling(how: list[str], reason: str) -> None:
    with Lab("cork-forgotten", "--rounds", "3", *how) as lab:
        result, tracer = trace(lab, "-p", str(lab.client))
    stalls = tracer.stalls()
    rounds = [r for r in result["rounds"] if r["latency_us"] > 150_000]
    assert rounds, "the lab's cork held nothing"
    assert_durations_match(rounds, stalls)
    for stall in stalls:
        assert stall["cause"] == "cork_ceiling" and stall["pattern"] == "cork_ceiling"
        assert stall["sender"]["hold"]["reason"] == reason and stall["sender"]["hold"]["release"] == "timer"
        assert stall["evidence"] == "seen" and "netns" not in far_end(stall)


#: Megabytes that are corked at their end, a reply, and again; its reader's buffer is small.
CORKED_TRANSFER = """
import os, socket, sys
size, rounds, rest = 6 << 20, int(sys.argv[1]), 500
listener = socket.create_server(("127.0.0.1", 0))
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
if not os.fork():
    reader, left = listener.accept()[0], size + rest
    while data := reader.recv(1 << 20):
        left -= len(data)
        if not left:
            reader.sendall(b"r")
            left = size + rest
    os._exit(0)
writer = socket.create_connection(listener.getsockname())
writer.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1000)
writer.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
print("connected", flush=True)
sys.stdin.readline()
for _ in range(rounds):
    writer.sendall(bytes(size))
    writer.sendall(bytes(rest))
    writer.recv(1)
"""


@pytest.mark.guest
def test_a_stall_at_the_end_of_a_large_transfer_has_its_writer() -> None:
    """While the tail is large it is seldom looked at; who wrote is noted all the same."""
    rounds = 16
    with subprocess.Popen([sys.executable, "-c", CORKED_TRANSFER, str(rounds)], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as program:
        assert program.stdout and program.stdout.readline() == "connected\n"
        with Tracer("-p", str(program.pid), "--stacks") as tracer:
            program.communicate("\n", timeout=2 * PATIENCE)
            tracer.stop()
    stalls = [s for s in tracer.stalls() if s["side"] == "sender"]
    assert len(stalls) >= rounds / 2 and {s["cause"] for s in stalls} == {"cork_ceiling"}, stalls
    with_writer = [s for s in stalls if own_end(s).get("tid") == program.pid and s["sender"].get("stack")]
    assert len(with_writer) >= len(stalls) - 1, [s for s in stalls if s not in with_writer]


@pytest.mark.quick
@pytest.mark.guest
def test_a_window_that_is_closed_holds_as_long_as_the_kernel_says() -> None:
    """Its own clock of it, tcpi_rwnd_limited; a transfer's large tail is one hold, though each ACK takes some of it."""
    rwnd_limited = struct.Struct("176xQ")  # microseconds, in struct tcp_info
    chunk, transfers, pauses = 1 << 20, 2, 5
    with socket.create_server(("127.0.0.1", 0)) as listener, Tracer("-P", str(listener.getsockname()[1])) as tracer:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        with socket.create_connection(listener.getsockname()) as writer, listener.accept()[0] as reader:
            for _ in range(transfers):
                sender = threading.Thread(target=writer.sendall, args=[bytes(pauses * chunk)])
                sender.start()
                for _ in range(pauses):
                    time.sleep(0.03)
                    left = chunk
                    while left:
                        left -= len(reader.recv(min(left, 16384)))
                sender.join()
            info = writer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, rwnd_limited.size)
        tracer.stop()
    limited_us, totals = rwnd_limited.unpack(info)[0], tracer.closing()["totals"]
    assert limited_us > transfers * pauses * 20_000, "the window was not closed; nothing shown"
    assert 0.8 * limited_us <= totals["hold_us"]["rwnd"] <= 1.2 * limited_us, (limited_us, totals)
    assert totals["holds"]["rwnd"] < transfers * pauses, totals
    assert tracer.stalls() == []


@pytest.mark.quick
@pytest.mark.skipif(IN_GUEST, reason="an emulated reader is later than its delayed-ACK timer")
def test_an_ack_that_a_late_read_sent_ends_a_stall_like_a_timer_s() -> None:
    """The reader comes before its delayed-ACK timer. It knows what was held: what its first read did not get."""
    rounds, held, by_timer, late_s = 30, 0, 0, 0.035
    with socket.create_server(("127.0.0.1", 0)) as listener, \
            Tracer("-P", str(listener.getsockname()[1]), "--late-acks") as tracer:
        with socket.create_connection(listener.getsockname()) as writer, listener.accept()[0] as reader:
            for _ in range(rounds):
                began = time.monotonic()
                writer.sendall(b"a")
                writer.sendall(b"b")
                time.sleep(late_s)
                if reader.recv(2) == b"a":
                    held += 1
                    reader.recv(1)
                elif time.monotonic() > began + late_s + 0.001:
                    by_timer += 1  # on a busy machine the timer may have been there first
        tracer.stop()
    stalls = tracer.stalls()
    by_read = [s for s in stalls if s["receiver"].get("pending_ack", {}).get("release") == "read"]
    assert held >= rounds / 4, "the reader was not late; there is nothing to find"
    assert by_read and held - lacking(tracer) <= len(stalls) <= held + by_timer, (held, by_timer, stalls)
    for stall in by_read:
        assert stall["evidence"] == "seen" and stall["cause"] == "nagle_delayed_ack"
        assert stall["duration_us"] >= 1e6 * late_s - 5000


@pytest.mark.quick
def test_the_delayed_acks_that_the_timer_ended_are_as_many_as_the_kernel_counts() -> None:
    with Lab("write-write-read", "--over", "veth", "--rounds", "10", "--linger", "300ms") as lab:
        result, tracer = trace(lab, "--netns", str(lab.server), "-p", str(lab.server))
    counted = result["server"]["counters"]["TcpExtDelayedACKs"]
    assert counted >= 8
    assert tracer.closing()["totals"]["delayed_acks"]["timer"] + unseen(tracer) == counted


@pytest.mark.guest
@pytest.mark.parametrize("scenario,how,reason", [
    ("uncork", [], "cork"), pytest.param("write-write-read", ["--msg-more"], "msg_more", marks=pytest.mark.quick)])
def test_holds_that_the_application_ends_itself_are_no_stalls(scenario: str, how: list[str], reason: str) -> None:
    with Lab(scenario, "--rounds", "5", "--pause", "20ms", *how) as lab:
        _, tracer = trace(lab, "-p", str(lab.client), "--all-holds")
    holds = [h for h in tracer.records("hold") if h["sender"]["hold"]["reason"] == reason]
    assert tracer.stalls() == []
    assert len(holds) == 5 == tracer.closing()["totals"]["holds"][reason]
    for hold in holds:
        assert hold["sender"]["hold"]["release"] == "uncork"
        assert 20_000 <= hold["duration_us"] < 150_000
    assert min(hold["duration_us"] for hold in holds) < (150_000 if IN_GUEST else 30_000), "none of a quiet round"
    # no report has them, so that each has its line in spite of --interval
    with Lab(scenario, "--rounds", "5", "--pause", "20ms", *how) as lab:
        _, tracer = trace(lab, "-p", str(lab.client), "--all-holds", "-i", "60s", text=True)
    assert tracer.lines.text().count(f" lab-client[{lab.client}] ") == 5
    # without --all-holds they are counted only
    with Lab(scenario, "--rounds", "5", "--pause", "20ms", *how) as lab:
        _, tracer = trace(lab, "-p", str(lab.client))
    assert tracer.records("hold") == []
    assert tracer.closing()["totals"]["holds"][reason] == 5


RELEASES = {"--nodelay-while-held": "nodelay", "--ending close": "close", "--ending kill": "close",
            "--ending shutdown": "close", "--ending reset": "reset"}


@pytest.mark.quick
@pytest.mark.guest
@pytest.mark.parametrize("option", RELEASES)
def test_what_the_application_releases_is_no_stall(option: str) -> None:
    """TCP_NODELAY set, or the socket gone, 10 ms into a hold: told apart from the ACK that would have come."""
    rounds = "1" if option.startswith("--ending") else "6"
    with Lab("write-write-read", "--rounds", rounds, "--quickack-off", *option.split()) as lab:
        _, tracer = trace(lab, "-p", str(lab.client), "--all-holds", "--min", "5ms")
    holds = [h for h in tracer.records("hold") if h["sender"]["hold"]["reason"] == "nagle"]
    # a guest may stand still for longer than the 10 ms, until the late ACK has come
    assert all(IN_GUEST and stall["duration_us"] >= 36_000 for stall in tracer.stalls())
    assert holds
    for hold in holds:
        assert hold["sender"]["hold"]["release"] == RELEASES[option]
        assert 9_000 <= hold["duration_us"] < 150_000
    assert min(hold["duration_us"] for hold in holds) < (150_000 if IN_GUEST else 35_000), "none of a quiet round"


def closes_when_acknowledged(listener: socket.socket, rounds: int) -> None:
    """Answers, and closes the connection as soon as the last answer is acknowledged."""
    acknowledged = struct.Struct("24xI")  # tcpi_unacked of struct tcp_info
    connection, _ = listener.accept()
    with connection:
        for _ in range(rounds):
            connection.recv(10)
            connection.sendall(b"y" * 10)
        give_up = time.monotonic() + 2
        while time.monotonic() < give_up:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, acknowledged.size)
            if acknowledged.unpack(info)[0] == 0:
                break


@pytest.mark.quick
@pytest.mark.guest
def test_a_relay_whose_backend_stalls_is_not_accused_when_its_client_closes() -> None:
    with Namespace() as space, Tracer("--netns", str(space.holder.pid)) as tracer:
        with space.inside():
            took, front, back = relay.play(connections=20)
        tracer.stop()
    felt = 1 if IN_GUEST else sum(us >= STALLED_US for us in took)
    of_port = {port: [s for s in tracer.stalls() if f":{port}" in s["sender"]["address"] + s["receiver"]["address"]]
               for port in (front, back)}
    assert felt and felt - lacking(tracer) <= len(of_port[back]) > 0
    assert of_port[front] == [] and tracer.closing()["totals"]["contradicted"] > 0


@pytest.mark.quick
@pytest.mark.guest
def test_a_fin_that_follows_our_late_ack_was_not_held_for_it() -> None:
    """What comes a round trip after the timer sent our ACK is no data, and nobody has waited."""
    connections, rounds = 5, 4
    with Namespace() as space, Tracer("--netns", str(space.holder.pid)) as tracer:
        with space.inside(), socket.create_server(("127.0.0.1", 0)) as listener:
            for _ in range(connections):
                server = threading.Thread(target=closes_when_acknowledged, args=(listener, rounds))
                server.start()
                with socket.create_connection(listener.getsockname()) as client:
                    for _ in range(rounds):
                        client.sendall(b"x" * 10)
                        assert client.recv(10)
                    assert client.recv(10) == b""
                server.join()
        tracer.stop()
    late = tracer.closing()["totals"]["delayed_acks"]["timer"]
    assert late + unseen(tracer) >= connections, "no late ACK, nothing shown"
    assert tracer.stalls() == []
