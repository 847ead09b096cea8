# SPDX-License-Identifier: GPL-2.0
from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
for directory in ("kubernetes", "packages", "monitoring", "helm", "gadget", "live", "."):
    sys.path.insert(0, str(TESTS / directory))

import charts  # noqa: E402
import images  # noqa: E402
from cluster import Cgroups, Cluster  # noqa: E402
from debian import Unavailable  # noqa: E402


def pytest_configure() -> None:
    if os.geteuid():
        pytest.exit("these tests need root: run them by `make test-kubernetes`", 3)


@pytest.fixture(scope="session")
def helm() -> charts.Helm:
    try:
        return charts.Helm()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def cluster(helm: charts.Helm) -> Iterator[Cluster]:
    """A node that is ready and has the images."""
    # sockets are in it, whose paths are short
    directory = Path(tempfile.mkdtemp(prefix="nagletrace-"))
    try:
        archives = directory / "images"
        archives.mkdir()
        try:
            made = [images.pause(archives), images.lab(archives), images.of_packages(archives)]
            with Cgroups() as cgroups:
                running = Cluster(directory, cgroups)
                try:
                    for archive in made:
                        running.import_image(archive)
                    running.start_kubelet()
                    yield running
                finally:
                    running.stop()
        except Unavailable as reason:
            pytest.skip(str(reason))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
