# SPDX-License-Identifier: GPL-2.0
"""A test that failed runs once more where the machine itself may be why; the summary names each, and its reason.

If it fails again, and a timer did expire where no BPF program runs, it does so again: three times at most.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from blind_spot import blind_spot, delayed_acks_in_the_blind_spot

RERUNS = 3


def why(report: pytest.TestReport) -> str:
    """One line: what the score disputes, or what failed."""
    lines = str(report.longrepr).strip().splitlines()
    return next((line for line in lines if line.startswith(("missed: ", "false: ", "E  "))), lines[-1])[:300]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Where that may be a test that failed runs again, which the summary tells and counts."""
    reason = blind_spot()
    if not reason:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    again = RERUNS
    while again and any(report.failed for report in reports):
        told = f"{item.name}: {why(next(r for r in reports if r.failed))}; {reason}\n"
        if results := os.environ.get("NAGLETRACE_RESULTS"):  # of tests/run.py, which tells it in the end
            with (Path(results) / "reruns.txt").open("a") as reruns:
                reruns.write(told)
        item._initrequest()  # type: ignore[attr-defined]
        with delayed_acks_in_the_blind_spot() as hidden:
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            again = again - 1 if hidden() else 0
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
