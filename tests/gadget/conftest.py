# SPDX-License-Identifier: GPL-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gadgets
import harness
import pytest
from debian import Unavailable
from running import Gadgets

collect_ignore = [] if harness.IN_GUEST else ["test_pods.py"]


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
