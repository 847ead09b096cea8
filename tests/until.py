# SPDX-License-Identifier: GPL-2.0
"""The time that is left: tests that would begin later are skipped, and say so."""

from __future__ import annotations

import time

#: The reason of such a skip; tests/run.py tells it from others.
NO_TIME = "no time was left for it"


class Until:
    """When no other test begins: by CLOCK_MONOTONIC, in s, since a test turns the other one; conftest.py sets it."""

    monotonic = float("inf")


def skip_when_late() -> None:
    import pytest  # which tests/run.py, that asks for NO_TIME, may be about to have installed

    if time.monotonic() > Until.monotonic:
        pytest.skip(NO_TIME)
