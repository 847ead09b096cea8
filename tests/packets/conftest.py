# SPDX-License-Identifier: GPL-2.0
"""What the packet scripts need: the live tests' helpers, and root."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "live"), str(TESTS / "packets")]
import harness  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    harness.Tracer.hooks = config.getoption("--hooks")
    if os.geteuid():
        pytest.exit("the packet scripts need root: run them by `make test-packets`", 3)
    if not harness.NAGLETRACE.exists():
        pytest.exit(f"{harness.NAGLETRACE} is not built: run `make test-packets`", 3)
