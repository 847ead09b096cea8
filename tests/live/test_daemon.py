# SPDX-License-Identifier: GPL-2.0
"""The daemon: what it counts, whom it serves, and what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import Daemon, Reader
from harness import IN_GUEST, NAGLETRACE, PATIENCE, Lab, Record, Tracer, lost, of_lab, stalled_rounds

VETH = ("--over", "veth")
#: who has no privilege at all, and the group 65534
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all")


def report(daemon: Daemon, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*prefix, str(NAGLETRACE), "report", "--socket", str(daemon.socket), *arguments],
                          capture_output=True, text=True, timeout=PATIENCE)


def of_lab_only(lab: Lab) -> tuple[str, ...]:
    return ("--netns", str(lab.ready["client"]["pid"]))


def until(daemon: Daemon, stalls: int) -> Record:
    """The first snapshot with so many stalls."""
    end = time.monotonic() + PATIENCE
    while True:
        snapshot = daemon.ask("snapshot", top=10)
        if snapshot["stalls"] >= stalls or time.monotonic() > end:
            return snapshot
        time.sleep(0.1)


@pytest.mark.guest
@pytest.mark.once
def test_a_snapshot_has_what_the_application_felt_and_what_a_trace_beside_it_says() -> None:
    with Lab("write-write-read", *VETH, "--rounds", "12") as lab, Daemon(*of_lab_only(lab)) as daemon, \
            Tracer() as tracer, daemon.reader() as reader:
        assert reader.ask("stream")["type"] == "streaming"
        felt = len(stalled_rounds(lab.play()))
        tracer.stop()
        beside = of_lab(lab, tracer.stalls())
        snapshot = until(daemon, felt)
        told = [stall for stall in (reader.line() for _ in range(felt)) if stall]
        assert daemon.stop() == 0
    assert felt >= 10 and len(told) == len(beside) == felt
    for one, other in zip(told, beside):
        assert abs(one["duration_us"] - other["duration_us"]) <= (10_000 if IN_GUEST else 1_000)
        assert one["evidence"] == "inferred" and other["evidence"] == "seen", "the trace looks at both ends"
    [series] = [s for s in snapshot["series"] if s.get("comm") == "lab-client"]
    assert (series["cause"], series["side"], series["evidence"]) == ("nagle_delayed_ack", "sender", "inferred")
    assert series["stalls"] == felt == sum(series["buckets"])
    assert abs(series["duration_us"] - sum(s["duration_us"] for s in told)) <= felt
    assert abs(series["excess_us"] - sum(s["excess_us"] for s in told)) <= felt
    for bucket, (low, high) in zip(series["buckets"], zip([0, *snapshot["bounds_us"]], snapshot["bounds_us"])):
        assert bucket == sum(low < s["duration_us"] <= high for s in told)
    [connection] = [c for c in snapshot["connections"] if c["comm"] == "lab-client"]
    assert connection["stalls"] == felt and connection["pattern"] == "write_write_read"
    assert snapshot["totals"]["holds"]["nagle"] >= felt
    assert not lost(snapshot)


def test_the_report_needs_no_privilege_but_the_group() -> None:
    with Lab("write-write-read", *VETH) as lab, Daemon("--group", "nogroup") as daemon:
        daemon.socket.parent.chmod(0o755)
        felt = len(stalled_rounds(lab.play()))
        until(daemon, felt)
        text = report(daemon, prefix=NOBODY)
        wide = report(daemon, "--wide", prefix=NOBODY)
        records = report(daemon, "--json", prefix=NOBODY)
        daemon.socket.chmod(0o600)
        refused = report(daemon, prefix=NOBODY)
    assert text.returncode == 0 and f"{felt} stalls" in text.stdout and "fix " in text.stdout, text
    assert max(len(line) for line in text.stdout.splitlines()) <= 80
    assert wide.returncode == 0 and f"{felt} stalls" in wide.stdout
    record = json.loads(records.stdout)
    assert record["type"] == "report" and record["stalls"] == felt
    assert refused.returncode == 4 and "--group" in refused.stderr and str(daemon.socket) in refused.stderr
    assert refused.stdout == "" and len(refused.stderr.splitlines()) == 1


@pytest.mark.guest
@pytest.mark.once
def test_followers_get_each_stall_as_it_happens() -> None:
    with Lab("write-write-read", *VETH) as lab, Daemon(*of_lab_only(lab)) as daemon, daemon.reader() as reader:
        assert reader.ask("stream")["type"] == "streaming"
        follower = subprocess.Popen([str(NAGLETRACE), "report", "-f", "--socket", str(daemon.socket)],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert follower.stdout and follower.stderr
        assert follower.stdout.readline().startswith("TIME ")
        felt = len(stalled_rounds(lab.play()))
        stalls = [reader.line() for _ in range(felt)]
        lines = [follower.stdout.readline() for _ in range(felt)]
        daemon.stop()
        assert reader.line() is None
        assert follower.wait(PATIENCE) == 1
        assert "the daemon has ended" in follower.stderr.read()
    assert felt >= 8 and all(s and s["type"] == "stall" and s["comm"] == "lab-client" for s in stalls)
    assert all("lab-client" in line for line in lines)


def test_without_a_daemon_the_report_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run([str(NAGLETRACE), "report", "--socket", str(tmp_path / "none")], capture_output=True,
                          text=True, timeout=PATIENCE)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines() == [
        f"nagletrace: --socket {tmp_path}/none: no daemon serves it; start `nagletrace daemon`, or give its --socket"]


def test_two_daemons_count_alike_but_not_at_one_socket(tmp_path: Path) -> None:
    with Lab("write-write-read", *VETH) as lab, Daemon() as one, Daemon() as other:
        refused = subprocess.run([str(NAGLETRACE), "daemon", "--socket", str(one.socket)], capture_output=True,
                                 text=True, timeout=PATIENCE)
        felt = len(stalled_rounds(lab.play()))
        counts = [sum(s["stalls"] for s in until(d, felt)["series"] if s.get("comm") == "lab-client")
                  for d in (one, other)]
    assert refused.returncode == 1 and "a daemon serves it already" in refused.stderr
    assert counts == [felt, felt]


def test_what_stands_in_the_way_is_named_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    for path, words in ((file, "no socket"), (tmp_path / "no" / "such" / "s", "directory is not there")):
        done = subprocess.run([str(NAGLETRACE), "daemon", "--socket", str(path)], capture_output=True, text=True,
                              timeout=PATIENCE)
        assert done.returncode == 1 and words in done.stderr and "--socket" in done.stderr
    assert file.read_text() == "precious"


def attached_by(pid: int) -> bool:
    """Does the process hold a BPF program or link?"""
    links = Path(f"/proc/{pid}/fd")
    return any("bpf" in os.readlink(link) for link in links.iterdir())


def programs() -> set[int]:
    listed = subprocess.run(["bpftool", "--json", "prog", "list"], capture_output=True, text=True, check=True,
                            env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"})
    return {program["id"] for program in json.loads(listed.stdout)}


@pytest.mark.guest
@pytest.mark.once
def test_it_ends_cleanly_survives_sighup_and_leaves_nothing_when_killed(tmp_path: Path) -> None:
    before = programs()
    with Daemon(directory=tmp_path) as daemon:
        daemon.process.send_signal(signal.SIGHUP)
        daemon.errors.wait_for("SIGHUP")
        assert daemon.ask("health")["state"] == "ok"
        assert attached_by(daemon.process.pid) and programs() - before
        daemon.kill()
        assert daemon.socket.exists(), "this is what a killed one leaves"
        end = time.monotonic() + PATIENCE
        while programs() - before and time.monotonic() < end:
            time.sleep(0.1)  # the kernel frees them when nobody runs them any more
        assert programs() - before == set()
    with Daemon(directory=tmp_path) as daemon:
        assert daemon.ask("health")["state"] == "ok"
        assert daemon.stop() == 0
        assert not daemon.socket.exists()


@pytest.mark.guest
@pytest.mark.once
def test_it_keeps_no_privilege_that_it_does_not_need() -> None:
    with Lab("write-write-read", *VETH) as lab, Daemon() as daemon:
        status = dict(line.split(":\t", 1) for line in
                      Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines() if ":\t" in line)
        felt = len(stalled_rounds(lab.play()))
        assert until(daemon, felt)["stalls"] >= felt, "without them it still works"
    bpf = 1 << 39
    older = tuple(int(part) for part in os.uname().release.split(".")[:2]) < (5, 19)
    for which in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[which], 16) & ~(bpf if older and which in ("CapPrm", "CapEff") else 0) == 0, which
    assert status["NoNewPrivs"] == "1"


@contextlib.contextmanager
def service_manager(tmp_path: Path) -> Iterator[tuple[socket.socket, dict[str, str]]]:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(PATIENCE)
        yield manager, {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "400000"}


def test_it_tells_the_service_manager(tmp_path: Path) -> None:
    with service_manager(tmp_path) as (manager, env), Daemon(env=env) as daemon:
        assert manager.recv(100) == b"READY=1"
        began = time.monotonic()
        assert [manager.recv(100) for _ in range(5)] == [b"WATCHDOG=1"] * 5
        assert time.monotonic() - began < 5 * 0.4, "later than the watchdog waits"
        daemon.process.send_signal(signal.SIGTERM)
        while (state := manager.recv(100)) == b"WATCHDOG=1":
            pass
        assert state == b"STOPPING=1"


def test_bad_readers_cost_themselves_only() -> None:
    with Lab("write-write-read", *VETH, "--rounds", "20") as lab, Daemon(*of_lab_only(lab)) as daemon, \
            contextlib.ExitStack() as readers:
        def another() -> Reader:
            return readers.enter_context(daemon.reader())

        good, slow, silent, gone = another(), another(), another(), another()
        assert good.ask("stream")["type"] == "streaming"
        slow.send(b'{"request":"stream"}\n' * 3)
        for _ in range(20):  # asks, and reads nothing
            slow.send(b'{"request":"snapshot","top":1000}\n')
        gone.send(b'{"request":"stream"}\n{"requ')
        gone.close()
        for garbage in (b"\xff\x00\xfe\n", b"{" * 3000 + b"\n", b"GET / HTTP/1.1\r\n\r\n", b'{"request":5}\n'):
            reader = another()
            reader.send(garbage)
            answer = reader.line()
            assert answer and answer["type"] == "error"
            assert reader.ask("health")["type"] in ("health", "error")
        endless = another()
        with contextlib.suppress(ConnectionError):
            endless.send(b"x" * 100_000)
            assert endless.line() is None
        felt = len(stalled_rounds(lab.play()))
        got = [good.line() for _ in range(felt)]
        assert felt >= 18 and all(line and line["type"] == "stall" for line in got)
        assert silent.ask("health")["state"] == "ok"
        tracer = daemon.ask("snapshot")["tracer"]
        assert tracer["refused_requests"] >= 5 and tracer["dropped_readers"] >= 1


def test_who_says_no_more_gets_all_that_was_asked_for() -> None:
    """As `echo … | socat - UNIX-CONNECT:…` does it; more than fits into the buffers between the two."""
    with Daemon() as daemon, daemon.reader() as reader:
        reader.send(b'{"request":"snapshot"}\n' * 250)
        reader.socket.shutdown(socket.SHUT_WR)
        time.sleep(0.5)
        assert [line["type"] for line in reader.lines()] == ["snapshot"] * 250
        assert daemon.ask("snapshot")["tracer"]["readers"] == 1


def test_the_readers_are_bounded_in_number() -> None:
    with Daemon() as daemon, contextlib.ExitStack() as readers:
        inside = [readers.enter_context(daemon.reader()) for _ in range(64)]
        assert inside[-1].ask("health")["type"] == "health"
        with contextlib.suppress(ConnectionError):
            assert readers.enter_context(daemon.reader()).line() is None
        inside.pop().close()
        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(ConnectionError, AssertionError):
                assert daemon.ask("health")["type"] == "health"
                break
            assert time.monotonic() < end, "the place of one that left is not given to another"


def test_a_reader_that_reads_too_slowly_is_told_what_it_did_not_get() -> None:
    """Some thousand stalls, of which the buffers between them hold a few hundred."""
    with Lab("length-data", *VETH, "--rounds", "60", "--connections", "40", "--size", "100") as lab, \
            Daemon(*of_lab_only(lab)) as daemon, daemon.reader() as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.send(b'{"request":"stream"}\n')
        lab.play()
        counted = daemon.ask("snapshot")
        assert counted["tracer"]["skipped_stalls"] > 0, "the reader was not slow enough to show anything"
        got = skipped = 0
        for line in slow.lines():
            got += line["type"] == "stall"
            skipped += line.get("stalls", 0) if line["type"] == "skipped" else 0
            if got + skipped == counted["stalls"]:
                break
        assert got and skipped == counted["tracer"]["skipped_stalls"]
