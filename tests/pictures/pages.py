# SPDX-License-Identifier: GPL-2.0
"""The pages of nagletrace-report and nagletrace-flame of a real trace. docs/reading-a-report.md shows them, with the
commands that this runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import chromium
from harness import ROOT, Lab, Tracer


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


def part(page: Path, pattern: str, into: Path) -> None:
    """A page of its own with the style of another, and the parts of it that match."""
    text = page.read_text()
    style = re.search(r"<style>.*?</style>", text, re.DOTALL)
    assert style
    parts = "".join(re.findall(pattern, text, re.DOTALL)[-1:])
    into.write_text(f"<!doctype html><html lang=en><meta charset=utf-8>{style[0]}<body>{parts}</body></html>")


def draw(place: Path, into: Path) -> None:
    recording, page, flame, ladder = (place / name for name in ("trace.jsonl", "report.html", "flame.svg",
                                                                "ladder.html"))
    record(recording)
    command("report", "-i", recording, "-o", page)
    command("flame", "-i", recording, "--output", "svg", "-o", flame)
    part(page, r'<svg class="ladder".*?</svg>', ladder)
    chromium.picture(page.as_uri(), into / "report.png", 900, 1100)
    chromium.picture(ladder.as_uri(), into / "ladder.png", 560, 560)
    chromium.picture(flame.as_uri(), into / "flame.png", 1000, 580)
