# SPDX-License-Identifier: GPL-2.0
"""Ten million stalls of four hours through what the daemon keeps: memory is flat."""

from __future__ import annotations

import json
import subprocess

from stack import ROOT


def test_ten_million_stalls_leave_memory_flat() -> None:
    done = subprocess.run([ROOT / "build" / "soak"], capture_output=True, text=True, timeout=300, check=True)
    told = json.loads(done.stdout)
    first, *later = told["tenths"]
    assert told["stalls"] == 10_000_000 and len(later) == 9
    # label sets and connections are at their caps from the first tenth on, and so is what they take
    assert first["series"] == 1000 and first["connections"] == 1024
    for tenth in later:
        assert tenth["heap_bytes"] <= first["heap_bytes"] * 1.02, told
        assert tenth["resident_kb"] <= first["resident_kb"] * 1.05 + 256, told
        assert (tenth["series"], tenth["connections"]) == (1000, 1024)
    assert told["folded"] > 0 and told["evicted"] >= 8000, "those that were gone made room"
    assert told["stalls"] / told["cpu_s"] > 100_000, "it does not take a hundred thousand stalls a second"
