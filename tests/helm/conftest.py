# SPDX-License-Identifier: GPL-2.0
from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

import charts  # noqa: E402
from debian import Unavailable  # noqa: E402


@pytest.fixture(scope="session")
def helm() -> charts.Helm:
    try:
        return charts.Helm()
    except Unavailable as reason:
        pytest.skip(str(reason))
