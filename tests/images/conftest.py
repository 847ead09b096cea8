# SPDX-License-Identifier: GPL-2.0
"""The tests of the images: they need root, as buildah without a user namespace does, and what tests/live has."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
for directory in ("live", "monitoring", "packages", "."):
    sys.path.insert(0, str(TESTS / directory))


def pytest_configure() -> None:
    if os.geteuid():
        pytest.exit("these tests need root: run them by `make test-images`", 3)
