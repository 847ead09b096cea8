# SPDX-License-Identifier: GPL-2.0
"""The two ends of a record: of a stall, of a hold, or of a connection in a report."""

from __future__ import annotations

from typing import Any


def own_end(record: dict[str, Any]) -> Any:
    """The end that the filters chose."""
    return record[record["side"]]


def far_end(record: dict[str, Any]) -> Any:
    """The other one, of which perhaps nothing but its address is known."""
    return record["receiver" if record["side"] == "sender" else "sender"]
