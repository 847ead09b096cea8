# SPDX-License-Identifier: GPL-2.0
from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
for directory in ("gadget", "kubernetes", "packages", "live", "."):
    sys.path.insert(0, str(TESTS / directory))

import gadgets  # noqa: E402
import harness  # noqa: E402
from debian import Unavailable  # noqa: E402
from running import Gadgets  # noqa: E402

collect_ignore = [] if harness.IN_GUEST else ["test_pods.py"]


def pytest_configure() -> None:
    if os.geteuid():
        pytest.exit("these tests need root: run them by `make test`", 3)


@pytest.fixture(scope="session")
def archive() -> Path:
    """The image; in a guest the one that was built outside."""
    directory = gadgets.ROOT / "build" / "gadget"
    if harness.IN_GUEST:
        return directory / f"{gadgets.image().replace(':', '-')}.tar"
    try:
        return gadgets.build(directory)
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def images(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gadgets]:
    """ig with the image imported, as a user does it."""
    yield Gadgets(archive, tmp_path_factory.mktemp("images"))
