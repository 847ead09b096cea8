# SPDX-License-Identifier: GPL-2.0
"""Options and marks of the live tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

sys.path.insert(0, str(Path(__file__).parent))
import harness  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hooks", default="auto", help="which hooks the tracer takes: auto, function, kprobe, tracepoint")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "guest: runs in a guest too, under each kind of function hooks")
    harness.Tracer.hooks = config.getoption("--hooks")
    if os.geteuid():
        pytest.exit("the live tests need root: run them by `make test`", 3)
    for program in (harness.NAGLETRACE, harness.NAGLE_LAB):
        if not program.exists():
            pytest.exit(f"{program} is not built: run `make test`", 3)


@pytest.fixture
def hooks() -> str:
    """The kind of hooks in use."""
    return harness.Tracer.hooks


def blind_spot() -> str | None:
    """Why BPF programs may miss a timer on this machine, if they may.

    The development machine's kernel runs no BPF program in a softirq that interrupts a thread of its supervisor,
    process 1 (seen by ftrace beside our programs: timer_expire_entry traced, the program not run, no miss counted).
    A delayed ACK whose timer expires there is not seen. No kernel in a guest does that.
    """
    if harness.IN_GUEST or Path("/proc/1/comm").read_text().strip() != "process_api":
        return None
    return "a timer may have expired where this machine's kernel runs no BPF program"


def why(report: pytest.TestReport) -> str:
    """One line: what the score disputes, or what failed."""
    lines = str(report.longrepr).strip().splitlines()
    return next((line for line in lines if line.startswith(("missed: ", "false: ", "E  "))), lines[-1])[:300]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """On a machine with a blind spot a test that failed runs once more, which the summary tells and counts."""
    reason = blind_spot()
    if not reason:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed for report in reports):
        with (harness.ROOT / "build" / "results" / "reruns.txt").open("a") as reruns:
            reruns.write(f"{item.name}: {why(next(r for r in reports if r.failed))}; {reason}\n")
        item._initrequest()  # type: ignore[attr-defined]
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
