# SPDX-License-Identifier: GPL-2.0
"""No change makes an operation cost half a point more instructions than budget.json has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from debian import Unavailable
from instructions import STANDBY, WHOLE, added, boot, one_line

BUDGET = json.loads((Path(__file__).parent / "budget.json").read_text())
#: In points: percent of the bare operation's instructions.
MORE = 0.5
#: Of a daemon in standby, under every load: docs/overhead.md.
IN_STANDBY = 0.3


def test_tracing_costs_no_more_instructions_than_its_budget(tmp_path: Path, record_property: pytest.RecordProperty
                                                             ) -> None:
    """Less is no fault, but then budget.json is to say so, lest a later change eat it up."""
    kernel, hooks, budget = BUDGET["kernel"], BUDGET["hooks"], BUDGET["points"]
    try:
        code = boot(kernel, tmp_path, "--hooks", hooks, "--only", WHOLE, STANDBY, "--loads", *budget)
    except Unavailable as why:
        pytest.skip(f"kernel {kernel} cannot be had: {why}")
    assert code == 0
    measured = json.loads((tmp_path / f"{hooks}.json").read_text())
    record_property("counted", one_line(measured))
    for load, points in budget.items():
        assert added(measured["loads"][load], WHOLE) <= points + MORE, load
        assert added(measured["loads"][load], STANDBY) <= IN_STANDBY + MORE, load
