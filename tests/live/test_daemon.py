# SPDX-License-Identifier: GPL-2.0
"""The daemon: what it counts, whom it serves, and what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import Daemon, Reader
from ends import own_end
from harness import (IN_GUEST, NAGLETRACE, PATIENCE, Lab, Tracer, assert_felt, dropped, felt_stalls, lacking,
                     of_lab, run, seen_at_both, stalled_rounds)
from processes import NOBODY, by_user, cpu_s, descriptors, kill, status, wait_until
from scripted_daemon import FakeDaemon
from terminal import Terminal

VETH = ("--over", "veth")


def report(daemon: Daemon, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*prefix, str(NAGLETRACE), "report", "--socket", str(daemon.socket), *arguments],
                          capture_output=True, text=True, timeout=PATIENCE)


def of_lab_only(lab: Lab) -> tuple[str, ...]:
    return ("--netns", str(lab.ready["client"]["pid"]))


@pytest.mark.quick
@pytest.mark.guest
@pytest.mark.once
def test_a_snapshot_has_what_the_application_felt_and_what_a_trace_beside_it_says() -> None:
    with Lab("write-write-read", *VETH, "--rounds", "12") as lab, Daemon(*of_lab_only(lab)) as daemon, \
            Tracer() as tracer, daemon.reader() as reader:
        assert reader.ask("stream")["type"] == "streaming"
        result = lab.play()
        tracer.stop()
        beside = of_lab(lab, tracer.stalls())
        assert_felt(result, len(beside), lacking(tracer))
        felt = len(beside)  # what ended where no BPF program runs, at both ends, no daemon sees either
        snapshot = daemon.until(lambda told: told["stalls"] >= felt, top=10)
        told = [stall for stall in (reader.line() for _ in range(felt)) if stall]
        assert daemon.stop() == 0
    assert len(told) == felt
    apart = sorted(abs(one["duration_us"] - other["duration_us"]) for one, other in zip(told, beside))
    # the kernel skips a program that interrupts itself: one of the two sees the end of a stall a little later
    assert apart[-2] <= (10_000 if IN_GUEST else 1_000) and apart[-1] <= 10_000, apart
    assert all(one["evidence"] == "inferred" for one in told)
    assert all(other["evidence"] == "seen" for other in seen_at_both(tracer, beside)), "the trace looks at both ends"
    [series] = [s for s in snapshot["series"] if s.get("comm") == "lab-client"]
    assert (series["cause"], series["side"], series["evidence"]) == ("nagle_delayed_ack", "sender", "inferred")
    assert series["stalls"] == felt == sum(series["buckets"])
    assert abs(series["duration_us"] - sum(s["duration_us"] for s in told)) <= felt
    assert abs(series["excess_us"] - sum(s["excess_us"] for s in told)) <= felt
    for bucket, (low, high) in zip(series["buckets"], zip([0, *snapshot["bounds_us"]], snapshot["bounds_us"])):
        assert bucket == sum(low < s["duration_us"] <= high for s in told)
    [connection] = [c for c in snapshot["connections"] if own_end(c)["comm"] == "lab-client"]
    assert connection["stalls"] == felt and connection["pattern"] == "write_write_read"
    assert snapshot["totals"]["holds"]["nagle"] >= felt
    assert not dropped(snapshot)


@pytest.mark.quick
def test_the_report_needs_no_privilege_but_the_group() -> None:
    with Lab("write-write-read", "--own-netns") as lab, Daemon("--group", "nogroup", *of_lab_only(lab)) as daemon:
        daemon.socket.parent.chmod(0o755)
        felt = len(stalled_rounds(lab.play()))
        daemon.until(lambda told: told["stalls"] >= felt)
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


@pytest.mark.quick
@pytest.mark.parametrize(("state", "code"), [("ok", 0), ("dropping", 0), ("blind", 1), (None, 1)])
def test_probes_learn_whether_a_daemon_sees_stalls(state: str | None, code: int, tmp_path: Path) -> None:
    health = {"type": "health", "protocol": 1, "state": state}
    with FakeDaemon(tmp_path / "socket", lambda request: [health if request["request"] == "health" else {}]) as fake:
        text, asked = (subprocess.run([NAGLETRACE, "report", "--health", *more, "--socket", fake.path], text=True,
                                      capture_output=True, timeout=PATIENCE) for more in ([], ["--json"]))
    assert (text.returncode, asked.returncode) == (code, code)
    assert text.stdout == (f"{state}\n" if state else "")
    assert (json.loads(asked.stdout) == health) if state else "--socket" in asked.stderr


@pytest.mark.quick
@pytest.mark.guest
@pytest.mark.once
def test_followers_get_each_stall_as_it_happens() -> None:
    with Lab("write-write-read", *VETH) as lab, Daemon(*of_lab_only(lab)) as daemon, daemon.reader() as reader:
        assert reader.ask("stream")["type"] == "streaming"
        follower = subprocess.Popen([str(NAGLETRACE), "report", "-f", "--socket", str(daemon.socket)],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert follower.stdout and follower.stderr
        assert follower.stdout.readline().startswith("TIME ")
        result = lab.play()
        felt = felt_stalls(result)
        stalls = [reader.line() for _ in range(felt)]
        lines = [follower.stdout.readline() for _ in range(felt)]
        daemon.stop()
        while more := reader.line():
            stalls.append(more)
        end = stalls.pop()
        lines += follower.stdout.readlines()
        assert follower.wait(PATIENCE) == 1
        assert "the daemon has ended" in follower.stderr.read()
    assert felt >= 8
    assert (end["type"], end["number"]) == ("totals", stalls[-1]["number"])
    assert [s for s in stalls if not s or s["type"] != "stall" or own_end(s)["comm"] != "lab-client"] == []
    assert_felt(result, len(stalls))
    assert len(lines) == len(stalls) and all("lab-client" in line for line in lines)


@pytest.mark.quick
def test_without_a_daemon_the_report_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run([str(NAGLETRACE), "report", "--socket", str(tmp_path / "none")], capture_output=True,
                          text=True, timeout=PATIENCE)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines() == [
        f"nagletrace: --socket {tmp_path}/none: no daemon serves it; start `nagletrace daemon`, or give its --socket"]


@pytest.mark.quick
def test_two_daemons_count_alike_but_not_at_one_socket(tmp_path: Path) -> None:
    with Lab("write-write-read", "--own-netns") as lab, Daemon(*of_lab_only(lab)) as one, \
            Daemon(*of_lab_only(lab)) as other:
        refused = subprocess.run([str(NAGLETRACE), "daemon", "--socket", str(one.socket)], capture_output=True,
                                 text=True, timeout=PATIENCE)
        felt = len(stalled_rounds(lab.play()))
        counts = [sum(s["stalls"] for s in daemon.until(lambda told: told["stalls"] >= felt)["series"]
                      if s.get("comm") == "lab-client") for daemon in (one, other)]
    assert refused.returncode == 1 and "a daemon serves it already" in refused.stderr
    assert counts == [felt, felt]


@pytest.mark.quick
def test_what_stands_in_the_way_is_named_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    for path, words in ((file, "no socket"), (tmp_path / "no" / "such" / "s", "directory is not there")):
        done = subprocess.run([str(NAGLETRACE), "daemon", "--socket", str(path)], capture_output=True, text=True,
                              timeout=PATIENCE)
        assert done.returncode == 1 and words in done.stderr and "--socket" in done.stderr
    assert file.read_text() == "precious"


@pytest.mark.quick
def test_what_it_says_of_its_options_is_harmless(tmp_path: Path) -> None:
    """They may come from another's file name."""
    place = tmp_path / "a\x1b[2J\nb"
    place.mkdir()
    with Daemon(directory=place) as daemon:
        assert "/a\\x1b[2J\\x0ab/nagletrace.sock; capabilities kept" in daemon.errors.text()
        done = report(daemon, "-f", "-j", prefix=("timeout", "1"))
        assert done.stderr == ""
    done = report(daemon)
    assert done.returncode == 1 and "/a\\x1b[2J\\x0ab/nagletrace.sock: no daemon serves it" in done.stderr
    done = run("--cgroup", "/no\x1b[2J\n" + "x" * 1000)
    assert done.returncode == 2 and "--cgroup /no\\x1b[2J\\x0axxx" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and len(done.stderr) < 300


def programs() -> set[int]:
    listed = subprocess.run(["bpftool", "--json", "prog", "list"], capture_output=True, text=True, check=True,
                            env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"})
    return {program["id"] for program in json.loads(listed.stdout)}


@pytest.mark.quick
@pytest.mark.guest
@pytest.mark.once
def test_it_ends_cleanly_survives_sighup_and_leaves_nothing_when_killed(tmp_path: Path) -> None:
    before = programs()
    with Daemon(directory=tmp_path) as daemon:
        daemon.process.send_signal(signal.SIGHUP)
        daemon.errors.wait_for("SIGHUP")
        assert daemon.ask("health")["state"] == "ok"
        assert any("bpf" in link for link in descriptors(daemon.process.pid)) and programs() - before
        daemon.kill()
        assert daemon.socket.exists(), "this is what a killed one leaves"
        wait_until("the kernel frees them when nobody runs them any more", lambda: not programs() - before)
    with Daemon(directory=tmp_path) as daemon:
        assert daemon.ask("health")["state"] == "ok"
        assert daemon.stop() == 0
        assert not daemon.socket.exists()


@pytest.mark.quick
@pytest.mark.guest
@pytest.mark.once
def test_it_keeps_no_privilege_that_it_does_not_need() -> None:
    with Lab("write-write-read", "--own-netns") as lab, Daemon(*of_lab_only(lab)) as daemon:
        of_daemon = status(daemon.process.pid)
        felt = len(stalled_rounds(lab.play()))
        snapshot = daemon.until(lambda told: told["stalls"] >= felt, top=10)
        assert snapshot["stalls"] == felt and "unseen" in snapshot, "without them it still works"
    bpf = 1 << 39
    older = tuple(int(part) for part in os.uname().release.split(".")[:2]) < (5, 19)
    for which in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(of_daemon[which], 16) & ~(bpf if older and which in ("CapPrm", "CapEff") else 0) == 0, which
    assert of_daemon["NoNewPrivs"] == "1"


@contextlib.contextmanager
def service_manager(tmp_path: Path) -> Iterator[tuple[socket.socket, dict[str, str]]]:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(PATIENCE)
        yield manager, {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "400000"}


@pytest.mark.quick
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


def test_a_service_manager_that_reads_nothing_holds_nothing_up(tmp_path: Path) -> None:
    with service_manager(tmp_path) as (_, env), Daemon(env={**env, "WATCHDOG_USEC": "20000"}) as daemon:
        time.sleep(1)  # more datagrams than wait
        began = time.monotonic()
        assert daemon.ask("health")["state"] == "ok"
        daemon.process.send_signal(signal.SIGINT)
        assert daemon.process.wait(PATIENCE) == 0
        assert time.monotonic() - began < 1


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
        answer = daemon.ask("snapshot")
        assert answer["tracer"]["readers"] == 1 and answer["filtered"] is False


# ---- room for all ----


@contextlib.contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """What connects meanwhile is that user's (SO_PEERCRED)."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_to_all() -> Iterator[Daemon]:
    with Daemon() as daemon:
        daemon.socket.parent.chmod(0o755)
        daemon.socket.chmod(0o666)
        yield daemon


def connected(daemon: Daemon, uid: int, number: int, says: bytes = b"") -> list[Reader]:
    """So many connections of that user, which is refused some, say something and then nothing more."""
    readers = []
    with acting_as(uid):
        for _ in range(number):
            readers.append(daemon.reader())
            with contextlib.suppress(OSError):
                readers[-1].send(says)
    return readers


def assert_served(daemon: Daemon, *uids: int) -> None:
    for uid in uids:
        began = time.monotonic()
        done = report(daemon, prefix=by_user(uid) if uid else ())
        assert done.returncode == 0 and "looked at" in done.stdout and not done.stderr, (uid, done)
        with acting_as(uid):
            assert daemon.ask("snapshot")["type"] == "snapshot"  # as the exporter does
        assert time.monotonic() - began < PATIENCE / 3, "an exporter has given up by now"


def assert_refused(daemon: Daemon, uid: int, words: str) -> None:
    for arguments in ((), ("-j",), ("-f",)):
        done = report(daemon, *arguments, prefix=by_user(uid))
        assert done.returncode == 1 and done.stdout == "", done
        [line] = done.stderr.splitlines()
        assert line.startswith(f"nagletrace: --socket {daemon.socket}: the daemon says: {words}"), line
        assert "ask again later" in line


STREAM = b'{"request":"stream"}\n'


@pytest.mark.quick
def test_idle_streams_of_one_user_keep_nobody_else_out_and_that_user_is_told(open_to_all: Daemon) -> None:
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(reader) for reader in connected(open_to_all, 1001, 64, STREAM)]
        assert_served(open_to_all, 1002, 0)
        assert_refused(open_to_all, 1001, "user 1001 has 16 connections")
        with Terminal(*by_user(1001), str(NAGLETRACE), "top", "--socket", str(open_to_all.socket), columns=300) as top:
            assert top.ended() == 1 and "the daemon says: user 1001 has 16 connections" in top.text()
        told = [reader.line() for reader in idle]
        assert [line["type"] for line in told if line] == ["streaming"] * 16 + ["error"] * 48
        assert all(reader.line() is None for reader in idle[16:])
        health = open_to_all.ask("health")
        assert health["refusals"]["user_readers"] == 48 + 3 + 1 and not health["refusals"]["all_readers"]
        idle[0].close()
        wait_until("the place of one that left is given to another",
                   lambda: not report(open_to_all, prefix=by_user(1001)).returncode)


@pytest.mark.quick
def test_all_users_together_leave_room_for_root(open_to_all: Daemon) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(open_to_all.reader()).send(STREAM)
        for uid in range(1001, 1009):
            for reader in connected(open_to_all, uid, 16, STREAM):
                stack.enter_context(reader)
        assert_served(open_to_all, 0)
        assert_refused(open_to_all, 1010, "all 56 connections that there are for users are taken; ask again later, "
                       "or as root")
        for _ in range(6):
            stack.enter_context(open_to_all.reader()).send(STREAM)
        last = stack.enter_context(open_to_all.reader())
        assert last.ask("health")["refusals"]["all_readers"] >= 4 * 16
        assert last.ask("snapshot", top=1)["tracer"]["readers"] == 64
        refused = stack.enter_context(open_to_all.reader()).line()
        assert refused and refused["error"].startswith("all 64 connections that there are for anybody are taken")


def test_greedy_readers_of_one_user_keep_nobody_waiting() -> None:
    """They ask and do not read, or ask much at once; each answer is long."""
    with Lab("length-data", *VETH, "--rounds", "8", "--connections", "60", "--size", "100") as lab, \
            Daemon(*of_lab_only(lab)) as daemon, contextlib.ExitStack() as stack:
        daemon.socket.parent.chmod(0o755)
        daemon.socket.chmod(0o666)
        lab.play()
        asks = b'{"request":"snapshot","top":1000}\n' * 4 + b'{"request":"report","format":"text"}\n' * 60
        for uid in (1001, 1003):
            for reader in connected(daemon, uid, 50):
                stack.enter_context(reader)
                reader.socket.setblocking(False)
                with contextlib.suppress(OSError):
                    while True:
                        reader.socket.sendall(asks)
        assert_served(daemon, 1002, 0)
        assert sum(daemon.ask("health")["refusals"].values()) >= 2 * 34


FLOOD = """
import socket, sys, time
end = time.monotonic() + 5
while time.monotonic() < end:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(sys.argv[1])
    except OSError:
        pass
    connection.close()
"""


def test_who_connects_over_and_over_keeps_nobody_waiting(open_to_all: Daemon) -> None:
    flood = [subprocess.Popen([*by_user(1001), sys.executable, "-c", FLOOD, str(open_to_all.socket)])
             for _ in range(3)]
    try:
        time.sleep(0.5)
        for _ in range(5):
            assert_served(open_to_all, 1002, 0)
        assert any(process.poll() is None for process in flood), "it was over before it showed anything"
    finally:
        for process in flood:
            kill(process)


def test_without_descriptors_it_waits_says_so_once_and_goes_on(open_to_all: Daemon) -> None:
    pid = open_to_all.process.pid

    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        inside = stack.enter_context(open_to_all.reader())
        assert inside.ask("health")["refusals"]["descriptors"] == 0
        most = max(int(link.name) for link in Path(f"/proc/{pid}/fd").iterdir())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most + 1, before[1]))
        waiting = [stack.enter_context(open_to_all.reader()) for _ in range(20)]
        for reader in waiting:
            reader.send(b'{"request":"health"}\n')
        open_to_all.errors.wait_for("LimitNOFILE=")
        began = cpu_s(pid)
        time.sleep(2)
        assert cpu_s(pid) - began < 0.2, "it spins"
        assert open_to_all.errors.text().count("readers have to wait") == 1
        assert len(open_to_all.errors.text()) < 2000
        assert 10 < inside.ask("health")["refusals"]["descriptors"] < 60
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        for reader in waiting:
            answer = reader.line()
            assert answer and answer["type"] == "health"
    assert open_to_all.ask("health")["state"] == "ok"


def test_a_reader_that_reads_too_slowly_is_told_what_it_did_not_get() -> None:
    """Some thousand stalls, of which the buffers between them hold a few hundred."""
    with Lab("length-data", *VETH, "--rounds", "60", "--connections", "40", "--size", "100") as lab, \
            Daemon(*of_lab_only(lab)) as daemon, daemon.reader() as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        first = slow.ask("stream")["number"]
        lab.play()
        assert daemon.ask("snapshot")["tracer"]["skipped_stalls"] > 0, "the reader was not slow enough to show anything"
        last, got, skipped = first, Counter[str](), Counter[str]()
        for line in slow.lines():
            got[line["type"]] += 1
            if line["type"] == "skipped":
                skipped.update(stalls=line["stalls"], others=line["others"])
            known = first + got["stall"] + got["late_ack"] + got["hold"] + skipped.total()
            if known >= last:
                last = daemon.ask("report")["number"]
            if known == last:
                break
        counted = daemon.ask("snapshot")
        assert got["stall"] and skipped["stalls"] == counted["tracer"]["skipped_stalls"]
        assert got["stall"] + skipped["stalls"] == counted["stalls"]
