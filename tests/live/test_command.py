# SPDX-License-Identifier: GPL-2.0
"""The command: how it starts and ends, what it says, what it refuses."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import time
from pathlib import Path

import harness
import jsonschema
import pytest
from ends import own_end
from harness import (IN_GUEST, NAGLETRACE, ROOT, SCHEMA, Lab, Tracer, assert_felt, assert_valid, day_s, lacking, of_lab,
                     run, stalled_rounds, trace)
from processes import NOBODY, kill, wait_until

#: The kernel's BTF out of sight, in a mount namespace of its own.
WITHOUT_BTF = ("unshare", "--mount", "--propagation", "private", "sh", "-c",
               'mount -t tmpfs none /sys/kernel/btf && exec "$@"', "sh")


def assert_one_line(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("nagletrace: ")
    for word in words:
        assert word in lines[0], (word, lines[0])


def dead_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


# ---- how it ends ----


@pytest.mark.quick
@pytest.mark.guest
@pytest.mark.once
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_the_closing_report(how: signal.Signals) -> None:
    with Tracer() as tracer:
        tracer.stop(how)
    assert tracer.closing()["stalls"] >= 0


@pytest.mark.quick
def test_a_duration_ends_it() -> None:
    began = time.monotonic()
    with Tracer("-d", "300ms") as tracer:
        tracer.wait()
    assert 0.3 <= time.monotonic() - began < 3
    assert tracer.closing()["span_us"] >= 300_000


@pytest.mark.quick
@pytest.mark.guest
@pytest.mark.once
def test_the_end_of_the_process_ends_it_with_the_closing_report() -> None:
    process = subprocess.Popen(["sleep", "60"])
    with Tracer("-p", str(process.pid)) as tracer:
        kill(process)
        tracer.wait()
    assert tracer.closing()["stalls"] == 0
    assert "ended" in tracer.errors.text()


@pytest.mark.quick
def test_of_two_processes_the_last_one_ends_it() -> None:
    first, second = subprocess.Popen(["sleep", "60"]), subprocess.Popen(["sleep", "60"])
    with Tracer("-p", f"{first.pid},{second.pid}") as tracer:
        kill(first)
        with pytest.raises(subprocess.TimeoutExpired):
            tracer.process.wait(0.3)
        kill(second)
        tracer.wait()


@pytest.mark.quick
def test_a_closed_stdout_ends_it_quietly() -> None:
    with Lab("write-write-read", "--rounds", "10") as lab:
        process = subprocess.Popen([str(NAGLETRACE), "-p", str(lab.client), "-j"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        assert process.stderr and process.stdout
        while "ready" not in process.stderr.readline():
            pass
        process.stdout.close()
        lab.play()
        assert process.wait(10) == 0
        assert "cannot" not in process.stderr.read()
        process.stderr.close()


@pytest.mark.quick
def test_a_full_disk_is_told() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(NAGLETRACE), "-d", "200ms"], stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=10)
    assert done.returncode == 1
    assert "cannot write the output: No space left on device" in done.stderr


def our_programs() -> set[int]:
    shown = subprocess.run(["bpftool", "--json", "prog", "show"], capture_output=True, text=True, check=True,
                           env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})
    return {p["id"] for p in json.loads(shown.stdout) if p.get("name", "").startswith(("on_tcp_probe", "fexit_tcp_wri",
                                                                                      "kretprobe_tcp_"))}


@pytest.mark.quick
@pytest.mark.guest
@pytest.mark.once
def test_killed_it_leaves_nothing_attached() -> None:
    before = our_programs()
    with Tracer() as tracer:
        assert our_programs() - before
        kill(tracer.process)
    wait_until("the kernel frees its programs", lambda: our_programs() <= before, 10)


# ---- what it says ----


@pytest.mark.quick
@pytest.mark.guest
def test_the_first_line_says_what_traces(hooks: str) -> None:
    with Tracer() as tracer:
        tracer.stop()
    start = tracer.records("start")
    assert len(start) == 1
    assert start[0]["schema"] == 1
    assert start[0]["kernel"] == os.uname().release
    assert hooks == "auto" or start[0]["hooks"] == hooks
    assert f"{start[0]['hooks']} hooks" in tracer.errors.text()


@pytest.mark.quick
def test_intervals_give_reports_and_a_count_ends_them() -> None:
    with Lab("write-write-read", "--rounds", "15") as lab:
        with Tracer("-p", str(lab.client), "-i", "250ms", "--count", "3") as tracer:
            result = lab.play()
            tracer.wait()
    offset = time.time() - time.monotonic()
    reports = tracer.records("report")
    assert [r["closing"] for r in reports] == [False] * (len(reports) - 1) + [True]
    assert len(reports) <= 4
    felt = stalled_rounds(result)
    # on a busy machine the last rounds may come after the third report
    ended = day_s(reports[-1]["time"]) - offset - 0.05
    in_time = sum(r["start_ns"] / 1e9 + r["latency_us"] / 1e6 < ended for r in felt)
    assert in_time - lacking(tracer) <= reports[-1]["stalls"] == len(tracer.stalls()) <= len(felt)
    assert sum(r["stalls"] for r in reports[:-1]) <= reports[-1]["stalls"]
    # one that comes late, since the machine is busy, makes the next one shorter
    ends = list(itertools.accumulate(report["span_us"] for report in reports[:-1]))
    for number, end in enumerate(ends, 1):
        assert end >= number * 250_000 - 50_000, ends
    assert ends[-1] <= len(ends) * 250_000 + 750_000, ends


@pytest.mark.quick
def test_the_bcc_habit_counts_seconds() -> None:
    with Tracer("0.2", "2") as tracer:
        tracer.wait()
    assert [r["closing"] for r in tracer.records("report")] == [False, False, True]


@pytest.mark.parametrize("command", [(), ("sample",)], ids=["trace", "sample"])
def test_as_many_reports_are_printed_as_were_asked_for(command: tuple[str, ...]) -> None:
    for count in (1, 3):
        done = run(*command, "0.2", str(count))
        assert done.returncode == 0
        assert len(re.findall(r"^nagletrace: ", done.stdout, re.MULTILINE)) == count, done.stdout


@pytest.mark.quick
def test_a_stall_in_text_can_carry_date_and_zone() -> None:
    with Lab("write-write-read", "--rounds", "3") as lab, \
            Tracer("-p", str(lab.client), "--utc", text=True, environment={"TZ": "Asia/Tokyo"}) as tracer:
        began = time.time()
        lab.play()
        tracer.wait()
    found = [line.split()[0] for _, line in tracer.lines.all if " send " in line]
    assert found
    for text in found:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", text)
        assert began <= day_s(text) <= time.time()


@pytest.mark.quick
@pytest.mark.guest
@pytest.mark.once
def test_a_stall_is_told_within_100_ms_of_its_end() -> None:
    with Lab("write-write-read", "--rounds", "8") as lab:
        _, tracer = trace(lab, "-p", str(lab.client))
    offset = time.time() - time.monotonic()
    arrivals = tracer.arrivals("stall")
    assert len(arrivals) >= 5
    delays = []
    for at, stall in arrivals:
        delays.append(at + offset - day_s(stall["time"]))
    # a busy machine may keep the tracer, or the reader of its lines, from some of them
    assert statistics.median(delays) < (0.5 if IN_GUEST else 0.1), delays


@pytest.mark.quick
def test_the_schema_is_a_schema_and_the_program_prints_it() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(run("--json-schema").stdout) == SCHEMA


@pytest.mark.quick
def test_the_schema_refuses_what_is_no_record() -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    with Lab("write-write-read", "--rounds", "4") as lab:
        _, tracer = trace(lab, "-p", str(lab.client))
    stall = tracer.stalls()[0]
    for change in ({"hold": None}, {"sender": None}, {"cause": "nagle"}, {"unknown": 1}, {"receiver": {}},
                   {"sender": stall["receiver"]}, {"receiver": stall["sender"]}, {"duration_us": -1}):
        assert not validator.is_valid({**stall, **change}), change
    for change in ({"hold": None}, {"pid": None}, {"comm": "a\nb"}, {"unknown": 1}, {"address": "here"}):
        assert not validator.is_valid({**stall, "sender": {**stall["sender"], **change}}), change
    for key in ("time", "side", "cause", "evidence", "sender", "receiver", "excess_us"):
        assert not validator.is_valid({k: v for k, v in stall.items() if k != key}), key
    for key in ("address", "netns", "comm", "options", "hold"):
        sender = {k: v for k, v in stall["sender"].items() if k != key}
        assert not validator.is_valid({**stall, "sender": sender}), key


@pytest.mark.quick
def test_version_and_help() -> None:
    assert re.fullmatch(r"nagletrace \d+\.\d+\.\d+\n", run("--version").stdout)
    done = run("--help")
    assert done.returncode == 0 and "--all-holds" in done.stdout
    assert done.stdout in (ROOT / "docs" / "usage.md").read_text(), "docs/usage.md shows another --help"
    of_fix = run("fix", "--help").stdout
    assert of_fix.startswith("  nagletrace fix ") and "--nodelay" in of_fix and "--group" not in of_fix
    assert run("help", "fix").stdout == of_fix
    assert run("-a", "report", "-h").stdout.count("  nagletrace report [-f]") == 1


@pytest.mark.quick
def test_a_process_name_with_any_bytes_breaks_nothing() -> None:
    name = b"a\n\x1b[2J\xff"
    script = ("import ctypes, socket, time, sys; "
              f"ctypes.CDLL(None).prctl(15, ctypes.c_char_p({name!r})); "
              "l = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(l.getsockname()); "
              "s, _ = l.accept(); sys.stdin.readline()\n"
              "for i in range(4):\n"
              "    c.send(b'1' * 6); c.send(b'2' * 7); n = 0\n"
              "    while n < 13: n += len(s.recv(99))\n"
              "    s.send(b'x' * 13); c.recv(99)\n")
    process = subprocess.Popen(["/usr/bin/python3", "-c", script], stdin=subprocess.PIPE)
    with Tracer("-p", str(process.pid)) as as_json, Tracer("-p", str(process.pid), text=True) as as_text:
        process.communicate(b"\n")
        as_json.wait()
        as_text.wait()
    stalls = as_json.stalls()
    assert stalls and {own_end(s)["comm"] for s in stalls} == {"a\\x0a\\x1b[2J\\xff"}
    assert "\x1b" not in as_text.lines.text()


# ---- what it refuses ----


@pytest.mark.quick
@pytest.mark.parametrize("arguments,words", [
    (["-p", "12x"], ["--pid", "12x"]),
    (["-m", "40"], ["--min", "40", "unit"]),
    (["-P", "70000"], ["--port", "70000", "65535"]),
    (["-4", "-6"], ["--ipv4", "--ipv6"]),
    (["-p", "1", "-n", "x"], ["--pid", "--name"]),
    (["--nonsense"], ["--nonsense", "--help"]),
    (["-c", "/no/such/cgroup"], ["--cgroup", "/no/such/cgroup"]),
    (["--btf", "/no/such/file"], ["--btf", "/no/such/file"]),
])
def test_bad_usage_is_one_line_and_exit_code_2(arguments: list[str], words: list[str]) -> None:
    assert_one_line(run(*arguments), 2, *words)


@pytest.mark.quick
@pytest.mark.guest
@pytest.mark.once
def test_an_unknown_pid_is_refused() -> None:
    pid = str(dead_pid())
    assert_one_line(run("-p", pid), 2, "--pid", pid, "no such process")


@pytest.mark.quick
def test_a_thread_is_told_from_a_process() -> None:
    script = ("import sys, threading; t = threading.Thread(target=sys.stdin.read); t.start(); "
              "print(t.native_id, flush=True); t.join()")
    process = subprocess.Popen(["/usr/bin/python3", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True)
    assert process.stdout
    thread = process.stdout.readline().strip()
    assert_one_line(run("-p", thread), 2, "--pid", thread, f"a thread of process {process.pid}")
    process.communicate()


@pytest.mark.quick
@pytest.mark.guest
@pytest.mark.once
@pytest.mark.parametrize("command", [["-d", "1s"], ["check"]])
def test_without_privilege_the_missing_capabilities_are_named(command: list[str]) -> None:
    assert_one_line(run(*command, prefix=NOBODY), 4, "CAP_BPF and CAP_PERFMON")


@pytest.mark.quick
def test_without_btf_it_says_what_to_give() -> None:
    done = run("-d", "1s", prefix=WITHOUT_BTF)
    assert_one_line(done, 3, "BTF", "--btf FILE", os.uname().release)
    assert run("check", prefix=WITHOUT_BTF).returncode == 3
    assert_one_line(run("-d", "1s", "--btf", "/etc/passwd"), 3, "--btf /etc/passwd", os.uname().release)
    assert_one_line(run("check", "--btf", "/etc/passwd"), 3, "--btf /etc/passwd", "it has no BTF")


@pytest.mark.quick
def test_with_btf_given_it_traces_without_the_kernels_own(tmp_path: Path) -> None:
    btf = tmp_path / "vmlinux.btf"
    btf.write_bytes(Path("/sys/kernel/btf/vmlinux").read_bytes())
    with Lab("write-write-read", "--rounds", "8", "--own-netns") as lab:
        result, tracer = trace(lab, "-P", lab.port, "--btf", str(btf), prefix=WITHOUT_BTF)
    assert "unseen" not in tracer.closing(), "without the kernel's own BTF nothing shows its namespaces"
    assert_felt(result, len(of_lab(lab, tracer.stalls())))


# ---- hooks ----


@pytest.mark.quick
@pytest.mark.guest
def test_check_says_what_would_be_used(hooks: str) -> None:
    arguments = [] if hooks == "auto" else ["--hooks", hooks]
    done = run("check", *arguments)
    assert done.returncode == 0
    table = json.loads(run("check", "--json", *arguments).stdout)
    assert_valid(table)
    assert table["hooks"] in ("function", "kprobe", "tracepoint")
    required = [h for h in table["table"] if h["family"] == table["hooks"] and h["required"]]
    assert required and all(h["offered"] for h in required)
    assert "would be used" in done.stdout
    with Tracer() as tracer:
        tracer.stop()
    assert tracer.records("start")[0]["hooks"] == table["hooks"]


@pytest.mark.quick
def test_hooks_that_the_kernel_refuses_are_exit_code_3() -> None:
    table = json.loads(run("check", "--json").stdout)
    if table["hooks"] != "tracepoint":
        pytest.skip("this kernel takes function hooks")
    for family in ("function", "kprobe"):
        assert_one_line(run("--hooks", family, "-d", "1s"), 3, f"--hooks {family}", "nagletrace check")


OF_FUNCTIONS = ["tcp_sendmsg_locked", "tcp_delack_timer_handler", "tcp_send_ack", "tcp_probe", "tcp_write_wakeup"]
OPTIONAL = {"tracepoint": ["sock_send_length"], "function": OF_FUNCTIONS, "kprobe": OF_FUNCTIONS}


@pytest.fixture
def gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tracer is on a kernel that has no such hooks as $NAGLETRACE_GAPS names."""
    program = ROOT / "build" / "nagletrace-gaps"
    assert program.exists(), f"{program} is not built: run `make test`"
    monkeypatch.setattr(harness, "NAGLETRACE", program)


@pytest.mark.quick
@pytest.mark.guest
def test_a_missing_hook_costs_its_part_and_is_said(hooks: str, gaps: None) -> None:
    family = json.loads(run("check", "--json").stdout)["hooks"] if hooks == "auto" else hooks
    for hook in OPTIONAL[family]:
        missing = {"NAGLETRACE_GAPS": hook}
        with Lab("write-write-read", "--rounds", "6") as lab:
            result, tracer = trace(lab, "-p", str(lab.client), environment=missing)
        said = tracer.records("start")[0]["missing_hooks"]
        if hook == "tcp_sendmsg_locked":
            assert said == []  # tcp_sendmsg takes its place
        else:
            assert f"{hook}_gone" in said and f"{hook}_gone is missing" in tracer.errors.text()
        stalls = tracer.stalls()
        assert_felt(result, len(stalls), lacking(tracer))
        assert {own_end(s)["pid"] for s in stalls} == {lab.client}, hook


@pytest.mark.quick
def test_without_a_required_hook_the_family_is_refused(gaps: None) -> None:
    without = {"NAGLETRACE_GAPS": "tcp_probe,timer_expire_entry"}
    done = run("--hooks", "tracepoint", "-d", "1s", environment=without)
    assert_one_line(done, 3, "--hooks tracepoint")
    assert run("check", "--hooks", "tracepoint", environment=without).returncode == 3
