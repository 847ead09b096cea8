# SPDX-License-Identifier: GPL-2.0
"""What `nagletrace check` says of costs is what docs/performance.md has."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_costs_of_check_are_those_of_the_page() -> None:
    source = (ROOT / "userspace" / "attach" / "kernel.c").read_text()
    rows = re.findall(r"\{NT_HOOKS_(\w+), (\d+), (\d+), COST\((\d+), (\d+), (\d+), ([\d.]+)\)\}", source)
    said = {(kernel, family.lower()): tuple(costs) for family, major, minor, *costs, kernel in rows
            if kernel == f"{major}.{minor}"}
    page = (ROOT / "docs" / "performance.md").read_text().partition("nagletrace on the whole host:")[2]
    measured = {(kernel, family): tuple(str(int(float(of_three) + 0.5)) for of_three in costs)
                for kernel, family, *costs in re.findall(
                    r"^\| (\d+\.\d+)\.\S+, (\w+) " + r"\| \+[\d.]+ / \+([\d.]+) % " * 3 + r"\|",
                    page.partition("nagletrace -p")[0], re.MULTILINE)}
    assert said == measured and len(said) >= 6
