#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Writes docs/pictures/: the pages of nagletrace-report and nagletrace-flame of a real trace, seen in a browser.

Run by `make pictures`, as root. docs/reading-a-report.md shows them, with the commands that this runs.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
sys.path.insert(0, str(ROOT / "tests" / "live"))
from harness import Lab, Tracer  # noqa: E402

CHROMIUM = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic")


def record(path: Path) -> None:
    """Two programs that stall, one by Nagle and a delayed ACK, one by a cork that nobody takes off."""
    with Lab("write-write-read", "--rounds", "12", "--linger", "1s") as one, \
            Lab("cork-forgotten", "--rounds", "4", "--linger", "1s") as two:
        ports = ",".join(lab.ready["connections"][0]["server"].rpartition(":")[2] for lab in (one, two))
        with Tracer("-P", ports, "--timeline", "--stacks") as tracer:
            for lab in (one, two):
                lab.go()
            for lab in (one, two):
                lab.result()
            tracer.stop()
    path.write_text("".join(line + "\n" for _, line in tracer.lines.all))


def command(name: str, *arguments: str | Path) -> None:
    subprocess.run(["/usr/bin/python3", "-m", f"nagletrace_exporters.{name}.main", *map(str, arguments)],
                   cwd=ROOT / "exporters", check=True)


def show(page: Path, picture: str, width: int, height: int) -> None:
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run([*CHROMIUM, f"--user-data-dir={profile}", f"--window-size={width},{height}",
                        f"--screenshot={PICTURES / picture}", page.as_uri()], check=True, capture_output=True,
                       timeout=60)
    print(PICTURES / picture)


def part(page: Path, pattern: str, into: Path) -> None:
    """A page of its own with the style of another, and the parts of it that match."""
    text = page.read_text()
    style = re.search(r"<style>.*?</style>", text, re.DOTALL)
    assert style
    parts = "".join(re.findall(pattern, text, re.DOTALL)[-1:])
    into.write_text(f"<!doctype html><html lang=en><meta charset=utf-8>{style[0]}<body>{parts}</body></html>")


def main() -> int:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        recording, page, flame, ladder = (Path(place) / name for name in ("trace.jsonl", "report.html", "flame.svg",
                                                                          "ladder.html"))
        record(recording)
        command("report", "-i", recording, "-o", page)
        command("flame", "-i", recording, "--output", "svg", "-o", flame)
        part(page, r'<svg class="ladder".*?</svg>', ladder)
        show(page, "report.png", 900, 1100)
        show(ladder, "ladder.png", 560, 560)
        show(flame, "flame.png", 1000, 580)
    return 0


if __name__ == "__main__":
    sys.exit(main())
