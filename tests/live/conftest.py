# SPDX-License-Identifier: GPL-2.0
"""Options and marks of the live tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import harness  # noqa: E402
from rerun import pytest_runtest_protocol  # noqa: E402, F401


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
