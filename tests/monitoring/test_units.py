# SPDX-License-Identifier: GPL-2.0
"""The systemd units, started by a real systemd in a guest: they trace with two capabilities, and keep none."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from stack import ROOT

KERNELS = ["5.10", "6.1"]
CAP_BPF, CAP_PERFMON = 1 << 39, 1 << 38
CAP_SYS_ADMIN, FOR_STACKS = 1 << 21, 1 << 19 | 1 << 2 | 1 << 40  # as docs/install.md has them


def in_guest(kernel: str, results: Path) -> dict[str, str]:
    command = ["/usr/bin/python3", ROOT / "tests" / "guests" / "guest.py", "--kernel", kernel, "--timeout", "1200",
               "--results", results, "--", "sh", "tests/monitoring/units_in_guest.sh"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    # a line is a unit's or a thing's name, what it is about, and the value
    return dict(line.rsplit(" ", 1) for line in done.stdout.splitlines() if " " in line)


@pytest.fixture(scope="module")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[dict[str, str]]]]:
    """What each will have told; they run at the same time, since they wait most of theirs."""
    with ThreadPoolExecutor(len(KERNELS)) as pool:
        yield {kernel: pool.submit(in_guest, kernel, tmp_path_factory.mktemp(kernel)) for kernel in KERNELS}


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_units_trace_with_what_they_are_given(kernel: str, guests: dict[str, Future[dict[str, str]]]) -> None:
    told = guests[kernel].result()
    print(told)
    assert told["daemon active"] == told["exporter active"] == "active"
    assert told["socket 660"] == "nagletrace:nagletrace"
    assert told["nagletrace user"] == "nagletrace"
    assert int(told["nagletrace Bnd"], 16) == CAP_BPF | CAP_PERFMON, "lowering it would take one more"
    # before 5.19 reading the counters of the programs takes CAP_BPF
    assert int(told["nagletrace Eff"], 16) & ~(CAP_BPF if kernel == "5.10" else 0) == 0
    for unit in ("nagletrace", "nagletrace-exporter"):
        assert told[f"{unit} NoNewPrivs"] == "1" and told[f"{unit} Seccomp"] == "2"
        assert float(told[f"{unit} exposure"]) <= 2.5, "systemd-analyze security"
    assert told["unfiltered"] == "0", "the unit lets the daemon refuse system calls besides"
    assert int(told["nagletrace-exporter Eff"], 16) == int(told["nagletrace-exporter Bnd"], 16) == 0
    assert int(told["legacy-felt"]) >= 8
    assert told["legacy-kept"] == ("refused" if kernel == "5.10" else "0"), "the drop-in of docs/what-to-do.md"
    assert told["legacy-left"] == "0"
    assert int(told["felt"]) >= 8 and float(told["told"]) == int(told["felt"])
    assert told["up"] == "1.0"
    assert int(told["felt-again"]) >= 8 and float(told["told-again"]) == int(told["felt-again"])
    assert told["watchdog"] == "2"
    assert told["stopped success"] == "inactive"
    assert told["up-after"] == "0.0"
    assert int(told["with --max-overhead"], 16) == CAP_SYS_ADMIN
    assert int(told["with --stacks"], 16) & ~(CAP_BPF if kernel == "5.10" else 0) == 0
    assert int(told["keeper with --stacks"], 16) == FOR_STACKS
