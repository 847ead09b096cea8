# SPDX-License-Identifier: GPL-2.0
"""--timeline: a connection's life, event by event, against the application and the wire; and --progress."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import wire
from harness import (IN_GUEST, NAGLETRACE, Lab, Record, Tracer, assert_felt, lacking, run, seen_at_both,
                     trace, unseen)
from terminal import Terminal
from witnesses import captures_of, end_captures

VETH = ("--over", "veth")


def events_of(tracer: Tracer) -> list[Record]:
    events = tracer.records("event")
    assert not [e for e in events if e["event"] == "dropped"], "events were dropped"
    return events


def play(lab: Lab, *arguments: str, text: bool = False) -> tuple[Record, Tracer]:
    """Plays the lab under a timeline of its client's connections."""
    return trace(lab, "-p", str(lab.client), "--timeline", *arguments, text=text)


def happened(events: list[Record], *wanted: dict[str, Any]) -> bool:
    """Did these events happen, in this order, whatever else happened between them?"""
    left = list(wanted)
    for event in events:
        if left and all(event.get(key) == value for key, value in left[0].items()):
            left.pop(0)
    return not left


def total(events: list[Record], kind: str, local: str) -> int:
    return sum(e["bytes"] for e in events if e["event"] == kind and e["local"] == local and "retransmission" not in e)


@pytest.mark.quick
@pytest.mark.guest
@pytest.mark.once
def test_a_stall_is_told_from_both_ends_in_the_order_in_which_it_happened() -> None:
    with Lab("write-write-read", "--rounds", "6") as lab:
        result, tracer = play(lab)
        client, server = (lab.ready["connections"][0][end] for end in ("client", "server"))
    stalls, events = tracer.stalls(), events_of(tracer)
    assert_felt(result, len(stalls), lacking(tracer))
    assert {e["connection"] for e in events} == {1}
    assert {e.get("pid") for e in events if e["local"] == server} == {lab.server}, "the other end is told of too"
    assert [e["time"] for e in events] == sorted(e["time"] for e in events)
    ends = [e for e in events if e["event"] == "hold_end" and e["duration_us"] > 30_000]
    told = [s["duration_us"] for s in stalls]
    assert 0 <= len(ends) - len(told) <= lacking(tracer)
    ends = [e for e in ends if e["duration_us"] in told]
    assert [e["duration_us"] for e in ends] == told
    both = seen_at_both(tracer, stalls)
    assert both
    for stall, end in zip(stalls, ends):
        if stall not in both:
            continue
        ended = events.index(end)
        begin = max(i for i, e in enumerate(events[:ended]) if e["event"] == "hold_begin")
        first = max(i for i, e in enumerate(events[:begin]) if e["event"] == "write" and e["bytes"] == 6)
        # up to where the next round begins
        after = next((i for i, e in enumerate(events) if i > ended and e["event"] == "write" and e["bytes"] == 6), None)
        of_round = events[first:after]
        assert happened(
            of_round,
            {"event": "write", "local": client, "bytes": 6},
            {"event": "sent", "local": client, "bytes": 6},
            {"event": "received", "local": server, "bytes": 6}), of_round
        assert happened(
            of_round,
            {"event": "write", "local": client, "bytes": 7},
            {"event": "hold_begin", "local": client, "reason": "nagle", "bytes": 7, "in_flight_bytes": 6},
            {"event": "ack_timer", "local": server},
            {"event": "sent", "local": server, "bytes": 0},
            {"event": "ack_sent", "local": server, "release": "timer"},
            {"event": "received", "local": client, "bytes": 0},
            {"event": "hold_end", "local": client, "release": "ack", "bytes": 7},
            {"event": "sent", "local": client, "bytes": 7},
            {"event": "received", "local": server, "bytes": 7},
            {"event": "read", "local": server}), of_round
        ack_delay = next(e["duration_us"] for e in events[begin:ended] if e["event"] == "ack_sent")
        # a read of what came moves the socket's clock: then the report has the time to a jiffy
        assert abs(ack_delay - stall["receiver"]["pending_ack"]["duration_us"]) < 5_000


def hidden_segments(tracer: Tracer) -> int:
    """Returns how many segments may come or go where the kernel runs no BPF program: in a softirq over process 1.

    The ACK that a timer sends there may free a segment in that same softirq. In a guest the kernel runs programs over
    all processes; those that it skips while the same one runs already, it counts.
    """
    return tracer.closing()["dropped"]["recursion"] if IN_GUEST else max(1, unseen(tracer))


@pytest.mark.parametrize("scenario", [pytest.param("write-write-read", marks=pytest.mark.quick), "reply-tail",
                                      "length-data", pytest.param("nodelay-while-held", marks=pytest.mark.quick)])
def test_the_bytes_are_those_of_the_application(scenario: str) -> None:
    """What one end wrote is what it sent, what came to the other and what that read."""
    with Lab(scenario, *VETH, "--rounds", "6") as lab:
        result, tracer = play(lab)
        client, server = (lab.ready["connections"][0][end] for end in ("client", "server"))
    events = events_of(tracer)
    for sender, receiver in (client, server), (server, client):
        written = total(events, "write", sender)
        assert written > 0
        most = max(e["bytes"] for e in events if e["event"] == "write" and e["local"] == sender)
        hidden = hidden_segments(tracer) * most
        assert written - hidden <= total(events, "sent", sender) <= written
        assert written - hidden <= total(events, "received", receiver) <= written
        # the first read has no event before it that would tell its size where nothing was seen to come
        assert total(events, "read", receiver) == written
    assert len(result["rounds"]) == 6


@pytest.mark.quick
@pytest.mark.guest
def test_the_segments_are_those_on_the_wire() -> None:
    with Lab("reply-tail", *VETH, "--rounds", "5") as lab, tempfile.TemporaryDirectory() as directory:
        captures = captures_of(lab, Path(directory))
        try:
            _, tracer = play(lab)
            end_captures(captures)
            at_client, at_server = (wire.read(capture.path) for capture in captures)
        finally:
            for capture in captures:
                capture.close()
    events = events_of(tracer)
    for local, segments in ((lab.ready["connections"][0]["client"], at_client),
                            (lab.ready["connections"][0]["server"], at_server)):
        sent = [(e["bytes"], e["ack"]) for e in events if e["event"] == "sent" and e["local"] == local]
        seen = relative([s for s in segments if s.source == local], [s for s in segments if s.source != local])
        told, real = (Counter(n for n, _ in segments if n) for segments in (sent, seen))
        assert told and not told - real and (real - told).total() <= hidden_segments(tracer), "of data"
        assert len({a for _, a in seen[1:-1]} - {a for _, a in sent}) <= hidden_segments(tracer)


def relative(segments: list[wire.Segment], others: list[wire.Segment]) -> list[tuple[int, int]]:
    """Length and acknowledgement of each, numbered as the timeline does: the other end's first byte is 1."""
    first = min(s.seq for s in others)
    return [(s.length, ((s.ack - first) & 0xffffffff) + 1) for s in segments]


@pytest.mark.quick
def test_options_that_change_and_what_they_release_are_told() -> None:
    with Lab("nodelay-while-held", "--rounds", "4") as lab:
        _, tracer = play(lab)
        client = lab.ready["connections"][0]["client"]
    events = events_of(tracer)
    assert happened(events, {"event": "hold_begin", "local": client, "reason": "nagle"},
                    {"event": "hold_end", "local": client, "release": "nodelay"},
                    {"event": "sent", "local": client})
    changes = [e["options"]["nodelay"] for e in events if e["event"] == "options" and e["local"] == client]
    assert changes[:2] == [False, True]


@pytest.mark.quick
@pytest.mark.guest
@pytest.mark.once
def test_a_connection_begins_and_ends_and_its_numbers_begin_with_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with Tracer("-P", str(port), "--timeline") as tracer:
            with socket.create_connection(("127.0.0.1", port)) as client, listener.accept()[0] as server:
                client.sendall(b"x" * 100)
                assert server.recv(1000)
            time.sleep(0.2)
            tracer.stop()
    events = events_of(tracer)
    assert [e["state"] for e in events if e["event"] == "state"].count("established") == 2
    assert [e["state"] for e in events if e["event"] == "state"].count("closed") == 2
    assert happened(events, {"event": "state", "state": "established"},
                    {"event": "sent", "seq": 1, "bytes": 100, "ack": 1},
                    {"event": "received", "seq": 1, "bytes": 100, "ack": 1},
                    {"event": "state", "state": "closed"})
    assert {e.get("pid") for e in events if e["event"] in ("write", "read")} == {os.getpid()}


@pytest.mark.quick
def test_a_connection_that_its_own_process_opens_is_told_of_from_its_first_segment_on() -> None:
    with Lab("write-write-read", "--late-connect", "--rounds", "4") as lab:
        _, tracer = play(lab)
    events = events_of(tracer)
    client = next(e["local"] for e in events if e.get("comm") == "lab-client")
    assert happened(events, {"event": "state", "state": "established", "local": client},
                    {"event": "write", "local": client, "bytes": 6},
                    {"event": "sent", "local": client, "seq": 1, "bytes": 6},
                    {"event": "write", "local": client, "bytes": 7})


@pytest.mark.quick
def test_resets_and_listeners_make_no_connections() -> None:
    """A socket closed with unread data sends a reset after its end; a listener is no connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with Tracer("-P", str(port), "--timeline") as tracer:
        for _ in range(3):
            client = socket.create_connection(("127.0.0.1", port))
            server = listener.accept()[0]
            client.sendall(b"unread")
            time.sleep(0.05)
            server.close()
            client.close()
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        time.sleep(0.3)
        tracer.stop()
    events = events_of(tracer)
    ends = {(e["connection"], e["local"], e["remote"]) for e in events}
    assert len({number for number, _, _ in ends if number <= 3}) == 3
    assert sum(local.endswith(f":{port}") for _, local, _ in ends) == 3, "an end for each that was accepted"
    assert not [e for e in events if e["remote"] == "0.0.0.0:0"]


def test_a_flood_of_stalls_does_not_keep_it_from_ending() -> None:
    with Lab("write-write-read", "--connections", "64", "--rounds", "100") as lab:
        with Tracer("-P", lab.port, "--timeline", "-d", "1500ms", text=True) as tracer:
            lab.go()
            began = time.monotonic()
            tracer.wait()
            assert time.monotonic() - began < 10
    assert "stalls in " in tracer.lines.text()


@pytest.mark.quick
def test_only_connections_asked_for_are_told_of_and_each_by_itself() -> None:
    """Two pairs of namespaces with the same addresses and ports, and a third lab that nobody asked for."""
    arguments = (*VETH, "--port", "8000", "--client-port", "40000", "--rounds", "8")
    with Lab("write-write-read", *arguments) as one, Lab("write-write-read", *arguments) as two, \
            Lab("echo", "--rounds", "2") as other, Tracer("-P", "8000", "--timeline") as tracer:
        for lab in (one, two, other):
            lab.go()
        for lab in (one, two, other):
            lab.result()
        tracer.stop()
    spaces: dict[int, set[int]] = {}
    for event in events_of(tracer):
        assert "8000" in event["local"] + event["remote"]
        spaces.setdefault(event["connection"], set()).add(event["netns"])
    pairs = [{lab.ready[end]["netns"] for end in ("client", "server")} for lab in (one, two)]
    # another program of this host may use the port too
    ours = [space for space in spaces.values() if space & (pairs[0] | pairs[1])]
    assert len(ours) == 2 and all(pair in ours for pair in pairs), spaces


@pytest.mark.quick
def test_the_text_fits_a_terminal_marks_the_gap_and_says_what_it_costs() -> None:
    with Lab("write-write-read", "--rounds", "4") as lab:
        _, tracer = play(lab, text=True)
    lines = tracer.lines.text().splitlines()
    assert all(len(line) <= 80 for line in lines), max(lines, key=len)
    # another gap may lie between the write and the data's arrival, where the machine is busy
    gaps = [line for line in lines if "· · ·" in line and "left holds 7 B (nagle)" in line
            and "right delays its ACK" in line]
    stalls = [line for line in lines if "* * *" in line and "stall of" in line]
    assert len(gaps) >= len(stalls) > 0, lines
    for number, line in enumerate(lines):
        if "* * *" in line:  # what happened in the same moment may stand between
            before = "\n".join(lines[number - 3:number])
            assert re.search(r"releases 7 B: ack, \d", before), lines[number - 4:number + 1]
    assert re.search(r"timeline: every write, .* takes the traced host some", tracer.errors.text())


@pytest.mark.quick
def test_without_it_there_are_no_events() -> None:
    with Lab("write-write-read", "--rounds", "4") as lab:
        _, tracer = trace(lab, "-p", str(lab.client))
    assert tracer.stalls() and not tracer.records("event")
    assert "timeline" not in tracer.errors.text()


@pytest.mark.parametrize("text", [False, True])
def test_events_for_which_there_is_no_room_are_counted_where_they_are_missing(text: bool) -> None:
    """The tracer stands still while the ring buffer overflows."""
    with Lab("write-write-read", "--nodelay", "--rounds", "10000") as lab:
        with Tracer("-P", lab.port, "--timeline", text=text) as tracer:
            tracer.process.send_signal(signal.SIGSTOP)
            result = lab.play()
            tracer.process.send_signal(signal.SIGCONT)
            time.sleep(1)
            tracer.stop()
    if text:
        assert re.search(r"! ! ! \d+ events dropped here", tracer.lines.text())
        return
    # so many lines are not to be validated one by one
    events = [json.loads(line) for _, line in tracer.lines.all if '"type":"event"' in line]
    dropped = sum(e["events"] for e in events if e["event"] == "dropped")
    told = sum(e["event"] == "write" for e in events)
    writes = 3 * len(result["rounds"])
    assert dropped > 0 and told < writes <= told + dropped, "every write was told or is among the dropped"


@pytest.mark.quick
def test_the_timeline_goes_with_a_trace_only() -> None:
    assert "--timeline" in run("daemon", "--timeline").stderr
    assert run("daemon", "--timeline").returncode == run("report", "--progress").returncode == 2


def on_a_terminal(*arguments: str) -> str:
    """What nagletrace writes to stderr where that is a terminal."""
    with Terminal("sh", "-c", 'exec "$@" >/dev/null', "sh", str(NAGLETRACE), *arguments) as terminal:
        assert terminal.ended() == 0
        return terminal.output.decode()


def test_progress_shows_on_a_terminal_over_itself_and_never_in_pipes() -> None:
    said = on_a_terminal("--progress", "-d", "3500ms")
    shown = re.findall(r"\r\x1b\[Knagletrace: ([\d.]+) s, \d+ stalls?, \d+ dropped", said)
    assert len(shown) >= 3 and shown == sorted(shown, key=float)
    assert said.endswith("\r\x1b[K"), "the last one is wiped away"
    assert "\r" not in run("--progress", "-d", "1200ms").stderr
    # where nothing is written it stays, a timeline or not
    with_timeline = on_a_terminal("--progress", "--timeline", "-P", "1", "-d", "2500ms")
    assert with_timeline.count("\r\x1b[K") == with_timeline.count("stalls, ") + 1
