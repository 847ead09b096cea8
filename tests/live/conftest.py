# SPDX-License-Identifier: GPL-2.0
"""Options and marks of the live tests."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import harness  # noqa: E402
from rerun import pytest_runtest_protocol  # noqa: E402, F401


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hooks", default="auto", help="which hooks the tracer takes: auto, function, kprobe, tracepoint")
    parser.addoption("--until", type=float, default=float("inf"), metavar="TIME",
                     help="s since 1970: no test begins later, those that are left are skipped")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "guest: runs in a guest too, under each kind of function hooks")
    config.addinivalue_line("markers", "once: it hardly depends on the kernel; of the guests one runs it")
    harness.Tracer.hooks = config.getoption("--hooks")
    harness.Until.monotonic = config.getoption("--until") - time.time() + time.monotonic()
    if os.geteuid():
        pytest.exit("the live tests need root: run them by `make test`", 3)
    for program in (harness.NAGLETRACE, harness.NAGLE_LAB):
        if not program.exists():
            pytest.exit(f"{program} is not built: run `make test`", 3)


#: In a guest the time may be over before all is done: what matters most comes first, what only one guest does last.
FIRST = ("test_budget.py", "test_truth.py", "test_verdicts.py")


def rank(item: pytest.Item) -> tuple[bool, bool, int]:
    place = FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST)
    once = item.get_closest_marker("once") is not None
    return item.path.name == "test_zz_lockdown.py", once, -place if once else place


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if harness.IN_GUEST:
        items.sort(key=rank)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    harness.skip_when_late()


@pytest.fixture
def hooks() -> str:
    """The kind of hooks in use."""
    return harness.Tracer.hooks
