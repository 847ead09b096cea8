# SPDX-License-Identifier: GPL-2.0
"""The daemon lives within what its unit gives it, as the kernel counts: memory, tasks, descriptors."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import pytest
from daemon import Daemon
from harness import NAGLETRACE, Lab, stalled_rounds

UNIT = NAGLETRACE.parent.parent / "packaging" / "systemd" / "nagletrace.service"
#: What the manifest gives a daemon without --stacks.
POD_BYTES = 128 << 20


def limit(name: str) -> int:
    found = re.search(rf"^{name}=(\d+)(M?)$", UNIT.read_text(), re.MULTILINE)
    assert found, f"{UNIT} has no {name}"
    return int(found[1]) << (20 if found[2] else 0)


def children(pid: int) -> list[int]:
    own = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [pid, *(each for child in own for each in children(child))]


def status(pid: int, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


def map_bytes(pid: int) -> int:
    """What the kernel charges it for its BPF maps and programs."""
    total = 0
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += sum(map(int, re.findall(r"^memlock:\s+(\d+)$", info.read_text(), re.MULTILINE)))
    return total


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
        pids = children(daemon.process.pid)
        memory = sum(status(pid, "VmHWM") for pid in pids) * 1024
        maps = map_bytes(daemon.process.pid)
        tasks = sum(status(pid, "Threads") for pid in pids)
        descriptors = len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir()))
        print(f"VmHWM {memory / 1e6:.1f} MB, maps {maps / 1e6:.1f} MB, {tasks} tasks, {descriptors} descriptors")
    assert memory + maps <= POD_BYTES * 2 // 3 <= limit("MemoryMax")
    assert tasks <= limit("TasksMax") // 2 and descriptors <= limit("LimitNOFILE") // 2
