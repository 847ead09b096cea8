# SPDX-License-Identifier: GPL-2.0
"""Keeps which words of the kernel's side the tracers of this run have told, in their records and closing totals.

`test_zz_met.py` looks at them in the end.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

#: The words by kind: `reason`, `release`, `pattern`, `side`, `evidence`, `cause`, and `fix`, the sentences of advice.
MET: dict[str, set[str]] = defaultdict(set)


def note(lines: Iterable[str]) -> None:
    """Notes the words of a trace in JSON that has ended."""
    for line in lines:
        record = json.loads(line)
        if record["type"] in ("stall", "hold"):
            note_record(record)
        elif record["type"] == "report" and record["closing"]:
            note_closing(record)


def note_record(record: dict[str, Any]) -> None:
    for key in ("side", "evidence", "cause", "pattern"):
        if key in record:
            MET[key].add(record[key])
    if "reason" in record:
        MET["reason"].add(record["reason"])
    hold = record["sender"].get("hold")
    if hold:
        MET["reason"].add(hold["reason"])
        MET["release"].add(hold["release"])


def note_closing(report: dict[str, Any]) -> None:
    totals = report["totals"]
    for key, name in (("reason", "holds"), ("release", "releases")):
        MET[key] |= {word for word, count in totals[name].items() if count}
    MET["fix"] |= {connection["fix"] for connection in report["connections"]}
