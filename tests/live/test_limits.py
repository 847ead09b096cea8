# SPDX-License-Identifier: GPL-2.0
"""The daemon lives within what its unit gives it, as the kernel counts: memory, tasks, descriptors.

`make test-live T=test_limits` measures what docs/design.md has, "What bounds the rest".
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import platform
import re
import tempfile
import time
from pathlib import Path

import pytest
from daemon import Daemon, lacking_in
from harness import NAGLETRACE, PATIENCE, Lab, assert_felt, stalled_rounds
from pods import into
from processes import children, descriptors, kilobytes, map_bytes, status
from test_loss import kills_in, memory_cgroup
from test_names import USER, Hostile, a_lab, many_symbols, unpacks_to

UNIT = NAGLETRACE.parent.parent / "packaging" / "systemd" / "nagletrace.service"
#: What the manifest gives a daemon without --stacks.
POD_BYTES = 128 << 20


def limit(name: str) -> int:
    found = re.search(rf"^{name}=(\d+)(M?)$", UNIT.read_text(), re.MULTILINE)
    assert found, f"{UNIT} has no {name}"
    return int(found[1]) << (20 if found[2] else 0)


def family(pid: int) -> list[int]:
    return [pid, *(each for child in children(pid) for each in family(child))]


@pytest.mark.quick
def test_the_daemon_lives_within_what_its_unit_gives_it() -> None:
    """With as many readers as it takes, all of which want all that it has, and stalls."""
    with Daemon() as daemon, contextlib.ExitStack() as all_of_them:
        with Lab("write-write-read", "--rounds", "12") as lab:
            assert len(stalled_rounds(lab.play())) >= 6
        request = json.dumps({"request": "report", "format": "json"}).encode() + b"\n"
        for _ in range(64):
            reader = all_of_them.enter_context(daemon.reader())
            with contextlib.suppress(OSError):  # there may be too many
                for _ in range(20):
                    reader.send(request)
        pids = family(daemon.process.pid)
        memory = sum(kilobytes(pid, "VmHWM") for pid in pids) * 1024
        maps = map_bytes(daemon.process.pid)
        tasks = sum(int(status(pid)["Threads"]) for pid in pids)
        opened = len(descriptors(daemon.process.pid))
        print(f"VmHWM {memory / 1e6:.1f} MB, maps {maps / 1e6:.1f} MB, {tasks} tasks, {opened} descriptors")
    assert memory + maps <= POD_BYTES * 2 // 3 <= limit("MemoryMax")
    assert tasks <= limit("TasksMax") // 2 and opened <= limit("LimitNOFILE") // 2


@pytest.mark.skipif(platform.machine() != "x86_64", reason="hostile_stacks.c makes its frames up on x86-64")
@pytest.mark.parametrize("kind", [pytest.param("symbols", marks=pytest.mark.quick), "debugdata"])
def test_with_stacks_it_does_too_while_two_users_workers_take_all_that_they_may(kind: str) -> None:
    """The kernel holds it to the unit's MemoryMax, kills nobody, and no stall of a third user is missing."""
    elf = many_symbols(8_000_000) if kind == "symbols" else unpacks_to(600 << 20)
    most = tasks = opened = 0
    with tempfile.TemporaryDirectory() as place, a_lab() as lab, memory_cgroup(kills=True) as (group, _, most_bytes), \
            Daemon("--stacks", "--netns", str(lab.client), prefix=into(group)) as daemon, \
            contextlib.ExitStack() as stack:
        most_bytes.write_text(str(limit("MemoryMax")))
        Path(place).chmod(0o755)
        file = elf.write(Path(place) / "file")
        for user in (USER, USER - 1):
            stack.enter_context(Hostile(lab, file, user=user))
        result = stack.enter_context(concurrent.futures.ThreadPoolExecutor()).submit(lab.play)
        pid = daemon.process.pid
        maps, end = map_bytes(pid), time.monotonic() + PATIENCE
        lost = {"busy": 0}
        while not result.done() or tasks < 4 or sum(lost.values()) - lost["busy"] < 2:
            assert time.monotonic() < end, lost
            lost = daemon.ask("snapshot")["unnamed_stacks"]
            with contextlib.suppress(OSError, KeyError):  # a worker has ended meanwhile
                pids = family(pid)
                most = max(most, sum(kilobytes(each, "VmRSS") for each in pids) * 1024)
                tasks = max(tasks, sum(int(status(each)["Threads"]) for each in pids))
                opened = max(opened, sum(len(descriptors(each)) for each in pids))
        time.sleep(1.1)  # a stall waits 1 s for its names
        snapshot = daemon.ask("snapshot")
        stalls = sum(s["stalls"] for s in snapshot["series"] if s["comm"] == "lab-client")
        killed = kills_in(group)
    print(f"VmRSS {most / 1e6:.1f} MB, maps {maps / 1e6:.1f} MB, {tasks} tasks, {opened} descriptors")
    assert killed == 0, "the kernel killed a process for want of memory"
    assert_felt(result.result(), stalls, lacking_in(snapshot))
    assert most + maps <= limit("MemoryMax")
    assert tasks == 4, "the daemon, the keeper, and two workers"
    assert tasks <= limit("TasksMax") // 2 and opened <= limit("LimitNOFILE") // 2
