# SPDX-License-Identifier: GPL-2.0
"""Runs nagletrace-join on what the tracers of several hosts wrote."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from harness import ROOT, Record, assert_valid, day_s
from tools import tools


def join(tmp_path: Path, lines: dict[str, list[Record]]) -> list[Record]:
    files = []
    for host, records in lines.items():
        files.append(tmp_path / f"{host}.jsonl")
        files[-1].write_text("".join(json.dumps(record) + "\n" for record in records))
    command = [tools() / "python3", "-m", "nagletrace_exporters.join.main", *files, "--output", "json"]
    done = subprocess.run(command, cwd=ROOT / "exporters", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr, done.stderr
    joined: list[Record] = [json.loads(line) for line in done.stdout.splitlines()]
    for record in joined:
        assert_valid(record)
    return joined


def at(record: Record) -> float:
    return day_s(record["time"])
