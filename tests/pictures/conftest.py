# SPDX-License-Identifier: GPL-2.0
"""The tests of what people look at: they need root, since the daemon does, and what tests/monitoring has to run it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
for directory in ("live", "monitoring", "pictures", "."):
    sys.path.insert(0, str(TESTS / directory))


def pytest_configure() -> None:
    if os.geteuid():
        pytest.exit("these tests need root: run them by `make test-pictures`", 3)
