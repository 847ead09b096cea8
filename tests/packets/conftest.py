# SPDX-License-Identifier: GPL-2.0
from __future__ import annotations

import harness
import pytest


def pytest_configure(config: pytest.Config) -> None:
    harness.Tracer.hooks = config.getoption("--hooks")
    if not harness.NAGLETRACE.exists():
        pytest.exit(f"{harness.NAGLETRACE} is not built: run `make test-packets`", 3)
