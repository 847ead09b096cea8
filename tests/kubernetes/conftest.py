# SPDX-License-Identifier: GPL-2.0
from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import charts
import images
import pytest
from cluster import Cgroups, Cluster
from debian import Unavailable


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
