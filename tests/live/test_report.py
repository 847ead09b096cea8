# SPDX-License-Identifier: GPL-2.0
"""What a person reads: the lines of stalls, the report, call stacks."""

from __future__ import annotations

import multiprocessing
import re
import socket
import subprocess
from pathlib import Path

import harness
import pytest
import relay
from harness import PATIENCE, ROOT, STALLED_US, Lab, Tracer, assert_felt, lacking, trace
from spaces import Namespace


def text_of(lab: Lab, *arguments: str) -> tuple[dict, str, str]:
    result, tracer = trace(lab, "-p", str(lab.client), *arguments, text=True)
    return result, tracer.lines.text(), tracer.errors.text()


@pytest.mark.quick
def test_the_report_names_process_connection_cause_and_fix() -> None:
    with Lab("write-write-read", "--rounds", "8") as lab:
        result, text, _ = text_of(lab)
        connection = lab.ready["connections"][0]
        pids = lab.client, lab.server
    told = re.search(r"nagletrace: (\d+) stalls in ", text)
    assert told
    assert_felt(result, int(told[1]), missing=1)  # for a timer that the machine hides
    assert f"lab-client[{pids[0]}]  {connection['client']} → {connection['server']}" in text
    assert "write 6 B (sent), write 7 B (held), waits for the reply" in text
    flowing = " ".join(text.split())
    if " unseen " in flowing and "inferred from this end" in flowing:  # the last one's timer nobody saw
        assert "interactive mode" not in flowing
    else:
        known = f"lab-server[{pids[1]}], in interactive mode, delays that ACK until its timer fires"
        hidden = f"lab-server[{pids[1]}] delays that ACK for long"  # by the last one's timer
        assert known in flowing or (" unseen " in flowing and hidden in flowing), text
        inferred = re.search(r" evidence [1-9]\d* seen, (\d+) inferred ", flowing)
        unseen = re.search(r" unseen (\d+) ", flowing)
        assert "seen at both ends" in flowing or (inferred and unseen and int(inferred[1]) <= int(unseen[1])), text
    assert "writev" in flowing and "TCP_NODELAY" in flowing
    assert "0 dropped" in flowing
    for line in text.splitlines():
        assert len(line) <= 80, line


@pytest.mark.quick
def test_connections_with_one_problem_are_one_block() -> None:
    with Lab("write-write-read", "--rounds", "8", "--connections", "3") as lab, Tracer("-p", str(lab.client)) as tracer:
        _, text, _ = text_of(lab)
        tracer.wait()
        pairs = [f"{connection['client']} → {connection['server']}" for connection in lab.ready["connections"]]
        client = lab.client
    assert f"\n  lab-client[{client}]  3 connections  (sender)\n" in text and text.count("fix ") == 1
    worst = re.search(r"worst +(\S+ → \S+), \d+ stalls, \d+ ms\n +lasted +(\d+) stalls: p50 .* in all\n",
                      text.replace("\n              ", " "))
    assert worst and worst[1] in pairs, text
    with Lab("write-write-read", "--rounds", "8", "--connections", "3") as lab:
        _, text, _ = text_of(lab, "--wide")
        pairs = [f"{connection['client']} → {connection['server']}" for connection in lab.ready["connections"]]
    assert all(f"]  {pair}  (sender)\n" in text for pair in pairs), text
    # JSON has both; a connection of which the machine hid many timers may have another pattern
    told = tracer.closing()
    assert sum(group["connections"] for group in told["groups"]) == len(told["connections"]) == 3
    for key in ("stalls", "excess_us"):
        sums = [sum(one[key] for one in told[kind]) for kind in ("groups", "connections")]
        assert abs(sums[0] - sums[1]) <= 3 and abs(sums[0] - told[key]) <= 3, (key, sums, told[key])
    [group] = told["groups"]
    assert (group["processes"], group["pattern"]) == (1, "write_write_read")
    assert group["max_us"] == max(one["max_us"] for one in told["connections"])


@pytest.mark.quick
def test_each_stall_is_a_line_unless_reports_are_asked_for() -> None:
    line = re.compile(r"^\d\d:\d\d:\d\d\.\d{3} lab-client\[\d+\] +send +\d\d\.\d ms +7 :\d+ → 127\.0\.0\.1:\d+$", re.M)
    with Lab("write-write-read", "--rounds", "8") as lab:
        result, text, _ = text_of(lab)
    assert_felt(result, len(line.findall(text)), missing=1)  # for a timer that the machine hides
    with Lab("write-write-read", "--rounds", "8") as lab:
        _, text, _ = text_of(lab, "-i", "10s")
    assert line.findall(text) == []


@pytest.mark.quick
def test_wide_shows_both_addresses_in_full() -> None:
    with Lab("write-write-read", "-6", "--rounds", "5") as lab:
        connection = lab.ready["connections"][0]
        _, text, _ = text_of(lab, "--wide")
    assert re.search(rf"{re.escape(connection['client'])} → {re.escape(connection['server'])}", text)
    assert "write_write_read" in text and "seen" in text


@pytest.mark.quick
def test_without_a_stall_it_says_so_and_what_was_looked_at() -> None:
    with Lab("echo") as lab:
        _, text, _ = text_of(lab)
    assert "nagletrace: no stall in " in text
    assert re.search(r"looked at 10 writes, 0 holds, ", " ".join(text.split()))


@pytest.mark.quick
def test_where_nothing_was_seen_it_says_that_this_is_no_answer() -> None:
    # in the namespace asked for there is no timer that the machine may hide, which is not nothing
    with Namespace() as idle, Lab("write-write-read") as lab:
        _, tracer = trace(lab, "--netns", str(idle.holder.pid), text=True)
    flowing = " ".join(tracer.lines.text().split())
    assert ("looked at 0 writes, 0 holds, 0 delayed ACKs sent by the timer "
            "nothing no socket that was asked for wrote anything") in flowing
    with Lab("echo") as lab:
        _, text, _ = text_of(lab)
    assert "nothing" not in text


@pytest.mark.quick
def test_a_stall_behind_a_relay_is_pointed_at() -> None:
    """The client's own connection has none, and the relay holds nothing there."""
    fork = multiprocessing.get_context("fork")
    go = fork.Event()
    answers = fork.SimpleQueue()
    with socket.create_server(("127.0.0.1", 0)) as back, socket.create_server(("127.0.0.1", 0)) as front:
        upstream = f"127.0.0.1:{back.getsockname()[1]}"
        backend = fork.Process(target=relay.serve, args=(back, 3))
        between = fork.Process(target=relay.relay, args=(front, back.getsockname(), 3))
        client = fork.Process(target=lambda: go.wait(PATIENCE) and answers.put(relay.ask(front.getsockname(), 3)))
        processes = backend, between, client
        for process in processes:
            process.start()
        pids = [str(process.pid) for process in processes]
        with Tracer("-p", pids[2]) as tracer, Tracer("-p", pids[2], text=True) as told, \
                Tracer("-p", pids[0]) as of_backend:
            go.set()
            for process in processes:
                process.join(PATIENCE)
            felt = sum(us >= STALLED_US for us in answers.get()) if client.exitcode == 0 else 0
            tracer.wait()
            told.wait()
            of_backend.wait()
    assert felt and tracer.stalls() == []
    [behind] = tracer.closing()["behind"]
    assert (str(behind["receiver"]["pid"]), str(behind["sender"]["pid"])) == (pids[1], pids[0])
    assert (behind["side"], behind["connections"], behind["pattern"]) == ("receiver", 3, "write_write_read")
    assert felt - lacking(tracer) <= behind["stalls"] <= felt, (felt, behind)
    name = Path("/proc/self/comm").read_text().strip()
    flowing = " ".join(told.lines.text().split())
    assert re.search(rf"no stall in .* behind it {name}\[{pids[1]}\] waited for {name}\[{pids[0]}\] at {upstream}: "
                     rf"\d stalls, .* 3 such connections: \d stalls, .*\(-p {pids[1]} shows", flowing), flowing
    # nothing is behind the backend, whose own stalls these are
    assert felt - lacking(of_backend) <= len(of_backend.stalls()) <= felt and of_backend.closing()["behind"] == []


@pytest.mark.quick
def test_a_receiver_is_told_what_it_can_do() -> None:
    with Lab("write-write-read", "--rounds", "6") as lab:
        _, tracer = trace(lab, "-p", str(lab.server), text=True)
    flowing = " ".join(tracer.lines.text().split())
    assert "(receiver)" in flowing and "TCP_QUICKACK" in flowing and "quickack 1" in flowing


@pytest.mark.quick
def test_quiet_leaves_ready_only() -> None:
    with Tracer("-q", "-d", "100ms", text=True) as tracer:
        tracer.wait()
    assert tracer.errors.text() == "nagletrace: ready"


@pytest.mark.quick
def test_nothing_is_said_of_connections_that_do_not_stall() -> None:
    with Lab("write-write-read", "--nodelay", "--rounds", "200") as lab:
        _, tracer = trace(lab, "-p", str(lab.client))
    # what the kernel skipped of anybody's, on a busy machine, is said
    kinds = [record["type"] for _, record in tracer._records() if record["type"] != "dropped"]
    assert kinds == ["start", "report"]


@pytest.mark.guest
def test_stacks_name_the_call_that_made_the_held_write() -> None:
    with Lab("write-write-read", "--rounds", "6", "--linger", "2s") as lab:
        result, tracer = trace_while_it_lives(lab)
    stalls = tracer.stalls()
    assert_felt(result, len(stalls), lacking(tracer))
    for stall in stalls:
        modules = [f.get("module", "") for f in stall["sender"]["stack"]]
        symbols = [f.get("symbol", "") for f in stall["sender"]["stack"]]
        assert any("libc" in m for m in modules), stall["sender"]["stack"]
        assert any(m.endswith("nagle-lab") for m in modules), stall["sender"]["stack"]
        call = re.compile(r"(__)?(libc_)?(write|send|sendto|sendmsg|writev)(64)?(_nocancel)?")
        assert any(call.fullmatch(symbol) for symbol in symbols)
    # the held write is always made at the same place: one stack, named once
    assert len({str(s["sender"]["stack"]) for s in stalls}) == 1


def trace_while_it_lives(lab: Lab) -> tuple[dict, Tracer]:
    return trace(lab, "-p", str(lab.client), "--stacks")


def test_stacks_of_a_program_whose_files_only_its_container_has_are_named(monkeypatch: pytest.MonkeyPatch,
                                                                          tmp_path: Path) -> None:
    """In a mount namespace of its own, from a file system that is not there outside."""
    place, script = tmp_path / "inside", tmp_path / "contained"
    place.mkdir()
    script.write_text(f'#!/bin/sh\nexec unshare --mount --propagation private sh -c \'mount -t tmpfs none "{place}" && '
                      f'cp "{harness.NAGLE_LAB}" "{place}/program" && exec "$0" "$@"\' "{place}/program" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(Lab, "program", str(script))
    with Lab("write-write-read", "--rounds", "6", "--linger", "2s") as lab:
        assert not (place / "program").exists()
        _, tracer = trace_while_it_lives(lab)
    assert tracer.stalls()
    for stall in tracer.stalls():
        assert any(f.get("symbol") == "client_round" for f in stall["sender"]["stack"]), stall["sender"]["stack"]
        assert f"{place}/program" in {f.get("module") for f in stall["sender"]["stack"]}


@pytest.mark.quick
def test_stacks_stand_in_the_report_that_comes_after_the_process_has_ended() -> None:
    with Lab("write-write-read", "--rounds", "6") as lab:
        _, text, _ = text_of(lab, "--stacks")
    assert re.search(r"where +_*(write|send)\S* ← [a-z_]+ ← ", text)


def test_stacks_are_taken_however_many_there_were_before() -> None:
    """32768 call sites whose holds were no stalls, in a map for 4096; then one that stalls."""
    program = subprocess.Popen([ROOT / "build" / "many-stacks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True)
    try:
        with Tracer("-p", str(program.pid), "--stacks") as tracer:
            told, _ = program.communicate("go\n", timeout=PATIENCE)
            tracer.wait()
    finally:
        program.kill()
    stalls = tracer.stalls()
    assert tracer.closing()["totals"]["holds"]["cork"] >= 32768
    assert int(told) >= 50 and len(stalls) >= 0.9 * int(told)
    assert any(f.get("symbol") == "stalling_write" for f in stalls[-1]["sender"].get("stack", [])), stalls[-1]
