# SPDX-License-Identifier: GPL-2.0
"""The tests of the Debian packages: they need root, for roots of other suites, and what tests/live has to drive it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
for directory in ("packages", "monitoring", "live", "."):
    sys.path.insert(0, str(TESTS / directory))

import rerun  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "traces: counts stalls, which may be done once more (tests/live/rerun.py)")
    if os.geteuid():
        pytest.exit("these tests need root: run them by `make test`", 3)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """What was installed or purged once cannot be so again."""
    return rerun.pytest_runtest_protocol(item, nextitem) if item.get_closest_marker("traces") else None
