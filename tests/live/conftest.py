# SPDX-License-Identifier: GPL-2.0
"""Checks what the live tests need, and orders them in a guest."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import harness
import pytest


def pytest_configure(config: pytest.Config) -> None:
    harness.Tracer.hooks = config.getoption("--hooks")
    for program in (harness.NAGLETRACE, harness.NAGLE_LAB):
        if not program.exists():
            pytest.exit(f"{program} is not built: run `make test`", 3)
    harness.leave_others()


#: In a guest the time may be over before all tests are done. The most important come first, and last those that run in
#: one guest only.
FIRST = ("test_budget.py", "test_truth.py", "test_verdicts.py")


def rank(item: pytest.Item) -> tuple[bool, bool, int]:
    place = FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST)
    once = item.get_closest_marker("once") is not None
    return item.path.name == "test_zz_lockdown.py", once, -place if once else place


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if harness.IN_GUEST:
        items.sort(key=rank)


@pytest.fixture
def hooks() -> str:
    """Returns the kind of hooks in use."""
    return harness.Tracer.hooks


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with a fleet's key."""
    path = tmp_path_factory.mktemp("key") / "fleet.key"
    path.touch(mode=0o600)
    path.write_text(os.urandom(16).hex() + "\n")
    return str(path)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of the user nobody, where he may reach it."""
    with tempfile.TemporaryDirectory() as path:
        os.chown(path, 65534, 65534)
        yield Path(path)
