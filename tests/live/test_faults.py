# SPDX-License-Identifier: GPL-2.0
"""What may befall a tracer on a production host: no crash, no leak, nothing left attached, right counts after it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import (IN_GUEST, NAGLETRACE, PATIENCE, Lab, Tracer, assert_durations_match, dropped, lacking,
                     stalled_rounds)

only_in_guests = pytest.mark.skipif(not IN_GUEST, reason="it would do that to this machine; guests do it to themselves")


def bpf_objects() -> dict[tuple[str, int], str]:
    """All programs and maps that the kernel holds: their names. A link holds a program."""
    found = {}
    for kind in ("prog", "map"):
        shown = subprocess.run(["bpftool", "--json", kind, "show"], capture_output=True, text=True, check=True,
                               env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})
        found.update({(kind, one["id"]): one.get("name", "") for one in json.loads(shown.stdout)})
    return found


def names_of_ours() -> set[str]:
    """Of the programs and maps of a tracer: others on this machine may load some meanwhile."""
    before = bpf_objects()
    with Tracer() as tracer:
        ours = {name for key, name in bpf_objects().items() if key not in before}
        tracer.stop()
    assert len(ours) > 10, ours
    return ours


def assert_nothing_is_left(before: dict[tuple[str, int], str], ours: set[str], what: str) -> None:
    deadline = time.monotonic() + PATIENCE  # the kernel frees them later
    while left := {key: name for key, name in bpf_objects().items() if key not in before and name in ours}:
        assert time.monotonic() < deadline, (what, left)
        time.sleep(0.05)


def system_calls(*arguments: str) -> int:
    """How many bpf() calls it takes from start to end, at least: stalls of others, while it traces, take more."""
    done = subprocess.run(["strace", "-f", "-qq", "-e", "trace=bpf", str(NAGLETRACE), *arguments],
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and "nagletrace: ready" in done.stderr, done.stderr[-2000:]
    until_ready = done.stderr.partition("nagletrace: ready")[0]
    return len(re.findall(r"^(?:\[pid +\d+\] )?bpf\(", until_ready, re.MULTILINE))


def test_killed_at_a_stage_of_its_start_it_leaves_nothing() -> None:
    """By strace: SIGKILL at its n-th call of bpf(), every seventh; each map, program and link takes one or more."""
    arguments = ("-d", "1ms", "--hooks", Tracer.hooks)
    ours, before = names_of_ours(), bpf_objects()
    calls = system_calls(*arguments)
    assert_nothing_is_left(before, ours, "after a run without a fault")
    assert calls > 50
    for n in range(1, calls, 7):
        done = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=bpf", "-e",
                               f"inject=bpf:signal=KILL:when={n}", str(NAGLETRACE), *arguments],
                              capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), (n, done)
        assert_nothing_is_left(before, ours, f"killed at call {n} of {calls}")


def test_refused_at_a_stage_of_its_start_it_says_so_and_leaves_nothing() -> None:
    """As a kernel short of memory would: the n-th call fails, every seventh. It goes on without the part, or ends."""
    arguments = ("-d", "1ms", "--hooks", Tracer.hooks)
    ours, before = names_of_ours(), bpf_objects()
    calls = system_calls(*arguments)
    ended = set()
    for n in range(1, calls, 7):
        done = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=bpf", "-e",
                               f"inject=bpf:error=ENOMEM:when={n}", str(NAGLETRACE), *arguments],
                              capture_output=True, text=True, timeout=PATIENCE)
        ended.add(done.returncode)
        assert done.returncode in (0, 1, 3), (n, done)
        assert (done.returncode == 0) == ("nagletrace: ready" in done.stderr), (n, done)
        assert done.returncode == 0 or done.stderr.splitlines()[-1].startswith("nagletrace: "), (n, done)
        assert_nothing_is_left(before, ours, f"refused at call {n} of {calls}")
    assert ended > {0}, "no refusal was of any consequence"


def test_stopped_for_a_minute_it_goes_on_where_it_was() -> None:
    """SIGSTOP, a minute in which there are stalls, SIGCONT: all of them are told, and those after it."""
    with Lab("write-write-read", "--rounds", "30") as lab, Tracer("-p", str(lab.client)) as tracer:
        tracer.process.send_signal(signal.SIGSTOP)
        result = lab.play()
        time.sleep(60)
        with Lab("write-write-read") as later, Tracer("-p", str(later.client)) as other:
            later.play()
            other.wait()
        tracer.process.send_signal(signal.SIGCONT)
        tracer.wait()
    assert_durations_match(stalled_rounds(result), tracer.stalls(), lacking(tracer))
    assert tracer.closing()["totals"]["writes"] == 60 and not dropped(tracer.closing())
    assert other.stalls()


@contextlib.contextmanager
def switched_off(cpu: int) -> Iterator[None]:
    online = Path(f"/sys/devices/system/cpu/cpu{cpu}/online")
    if not online.exists():
        pytest.skip("no CPU of this kernel can be switched off")
    online.write_text("0")
    try:
        yield
    finally:
        online.write_text("1")


@pytest.mark.guest
@pytest.mark.once
@only_in_guests
def test_a_cpu_goes_and_comes_back() -> None:
    """Counters and maps are kept by CPU: nothing that was counted is gone with it."""
    with Lab("write-write-read", "--rounds", "40") as lab, Tracer("-p", str(lab.client)) as tracer:
        lab.go()
        last = max(os.sched_getaffinity(0))
        for _ in range(2):
            time.sleep(0.3)
            with switched_off(last):
                time.sleep(0.3)
        result = lab.result()
        tracer.wait()
    assert len(tracer.stalls()) >= 30
    assert_durations_match(stalled_rounds(result), tracer.stalls(), lacking(tracer))
    assert tracer.closing()["totals"]["writes"] == 80


@pytest.mark.guest
@pytest.mark.once
@only_in_guests
def test_steps_of_the_clock_change_no_duration() -> None:
    """The time of day jumps by hours, there and back; each stall bears the time of day that it was told at."""
    jump = 3 * 3600
    with Lab("write-write-read", "--rounds", "30") as lab, Tracer("-p", str(lab.client)) as tracer:
        lab.go()
        for step in (jump, -2 * jump, jump):
            time.sleep(0.3)
            time.clock_settime(time.CLOCK_REALTIME, time.time() + step)
        result = lab.result()
        tracer.wait()
    assert_durations_match(stalled_rounds(result), tracer.stalls(), lacking(tracer))
    hours = {stall["time"][:13] for stall in tracer.stalls()}
    assert len(hours) >= 3, hours


@contextlib.contextmanager
def on_the_first_cpu() -> Iterator[None]:
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)


@pytest.mark.guest
@pytest.mark.once
@only_in_guests
def test_the_machine_goes_to_sleep_and_wakes() -> None:
    """As far as an emulated guest can: it has no clock that wakes it, so the kernel's own test of suspending does.

    All processes are frozen for some seconds, in the midst of a round, and come back; devices stay (their console
    does not come back here).
    """
    test, state = Path("/sys/power/pm_test"), Path("/sys/power/state")
    if not test.exists() or "freeze" not in state.read_text():
        pytest.skip("this kernel has no test of suspending")
    with Lab("write-write-read", "--rounds", "60", "--timeout", "60s") as lab, Tracer("-p", str(lab.client)) as tracer:
        lab.go()
        tracer.lines.wait_for('"stall"')
        test.write_text("freezer")
        with on_the_first_cpu():  # one that came back measured its speed anew, badly; mdelay() goes by it
            state.write_text("freeze")
        test.write_text("none")
        result = lab.result()
        tracer.wait()
    assert max(r["latency_us"] for r in result["rounds"]) > 500_000, "nobody slept"
    told = [stall["duration_us"] for stall in tracer.stalls()]
    assert len(told) >= 30 and max(told) < 400_000
    assert_durations_match(stalled_rounds(result), tracer.stalls(), lacking(tracer))
