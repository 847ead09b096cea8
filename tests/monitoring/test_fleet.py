# SPDX-License-Identifier: GPL-2.0
"""docs/fleets.md: what a host costs Prometheus, measured anew; and its configuration, as promtool takes it.

`PYTHONPATH=tests:exporters/tests python3 tests/monitoring/test_fleet.py` prints the table.
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from fake_daemon import FakeDaemon, Snapshot, series, snapshot
from processes import free_port, wait_until
from stack import ROOT, Program, get

PAGE = ROOT / "docs" / "fleets.md"
#: How many label sets have stalled on the host; the last is the cap.
SIZES = (0, 5, 50, 1000)


def host(label_sets: int) -> Snapshot:
    return snapshot(*(series(f"process-{i}", [41.3, 43.9, 44.0] * (i + 1)) for i in range(label_sets)))


def measure(label_sets: int) -> tuple[int, int, int]:
    """Series, and bytes of a scrape as text and compressed."""
    with tempfile.TemporaryDirectory() as directory, \
            FakeDaemon(Path(directory) / "socket", host(label_sets)) as daemon:
        port = free_port()
        exporter = Program("exporter", Path(directory) / "log", [
            "/usr/bin/python3", "-m", "nagletrace_exporters.exporter.main", "--daemon.socket", daemon.path,
            "--web.listen-address", f"127.0.0.1:{port}"], {"PYTHONPATH": str(ROOT / "exporters")})
        try:
            wait_until("the exporter is ready", lambda: "ready" in exporter.log.read_text())
            text = get(f"http://127.0.0.1:{port}/metrics")
        finally:
            exporter.stop()
    count = sum(1 for line in text.splitlines() if line and not line.startswith("#"))
    return count, len(text), len(gzip.compress(text.encode(), compresslevel=1))


def rows() -> list[tuple[int, int, int, int]]:
    return [(size, *measure(size)) for size in SIZES]


def test_the_page_says_what_is_measured() -> None:
    written = [tuple(int(cell.replace(",", "")) for cell in match) for match in
               re.findall(r"^\| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", PAGE.read_text(), re.MULTILINE)]
    measured = rows()
    assert [row[:2] for row in written] == [row[:2] for row in measured], f"the page is to say {measured}"
    for said, found in zip(written, measured):
        # the exporter's own CPU time and memory have more digits or fewer
        assert all(abs(a - b) <= 60 for a, b in zip(said[2:], found[2:])), f"the page is to say {measured}"


@pytest.mark.quick
def test_promtool_takes_the_configurations_on_the_page(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    for number, block in enumerate(blocks):
        config = tmp_path / f"{number}.yml"
        config.write_text(block)
        done = subprocess.run(["promtool", "check", "config", config], capture_output=True, text=True,
                              cwd=ROOT / "dashboards" / "prometheus", env={**os.environ})
        assert done.returncode == 0, done.stdout + done.stderr
    kept = re.findall(r"nagletrace_stall_seconds_bucket;\((.+)\)", PAGE.read_text())
    asked = set(re.findall(r'le="([^"]+)"', (ROOT / "dashboards" / "prometheus" / "recording.yml").read_text()))
    assert len(kept) == 1 and len(asked) == 3
    assert [bound for bound in asked if not re.fullmatch(kept[0], bound)] == []


@pytest.mark.quick
def test_a_global_prometheus_has_what_the_dashboard_of_the_fleet_asks_for() -> None:
    patterns = re.findall(r"__name__=~\"([^\"]+)\"", PAGE.read_text().split("## Federation")[1].split("\n## ")[0])
    text = (ROOT / "dashboards" / "grafana" / "nagletrace-fleet.json").read_text()
    asked = set(re.findall(r"((?:[a-z_]+:)?nagletrace_[\w:]+)\{", text))
    assert len(asked) > 8 and len(patterns) == 2
    assert [metric for metric in asked if not any(re.fullmatch(pattern, metric) for pattern in patterns)] == []


if __name__ == "__main__":
    for row in rows():
        print("| " + " | ".join(f"{cell:,}" for cell in row) + " |")
