# SPDX-License-Identifier: GPL-2.0
"""Draws the report and `top` in a terminal, and the pages of nagletrace-report and nagletrace-flame, all of real
stalls. README and docs/reading-a-report.md show them."""

from __future__ import annotations

import contextlib
import html
import re
import subprocess
from pathlib import Path

import chromium
from daemon import Daemon
from harness import NAGLETRACE, ROOT, Lab, Tracer
from terminal import Screen, Terminal

#: Three programs that stall: by write, by sendfile, and by a cork that nobody takes off.
PROGRAMS = (
    ("write-write-read", "--rounds", "12", "--client-name", "checkout", "--server-name", "orders"),
    ("sendfile", "--rounds", "9", "--interval", "1ms", "--client-name", "search", "--server-name", "index"),
    ("cork-forgotten", "--rounds", "2", "--client-name", "mailer", "--server-name", "relay"),
)
TERMINAL = """<!doctype html><html lang=en><meta charset=utf-8><style>
body { margin: 0; padding: 14px 18px; width: max-content; background: #14181d; }
pre { margin: 0; font: 15px/1.25 "DejaVu Sans Mono", monospace; }
</style><body><pre>%s</pre></body></html>"""
INK, PAPER = "#e8ecf0", "#14181d"
#: The colours that `top` takes, by pyte's names.
COLOURS = {"red": "#ff7b72", "brown": "#ffb066"}


def record(path: Path) -> None:
    with contextlib.ExitStack() as leave:
        labs = [leave.enter_context(Lab(*program, "--linger", "1s")) for program in PROGRAMS]
        ports = ",".join(lab.port for lab in labs)
        with Tracer("-P", ports, "--timeline", "--stacks") as tracer:
            for lab in labs:
                lab.go()
            for lab in labs:
                lab.result()
            tracer.stop()
    path.write_text("".join(line + "\n" for _, line in tracer.lines.all))


def command(name: str, *arguments: str | Path) -> None:
    subprocess.run(["/usr/bin/python3", "-m", f"nagletrace_exporters.{name}.main", *map(str, arguments)],
                   cwd=ROOT / "exporters", check=True)


def part(page: Path, pattern: str, into: Path) -> None:
    """A page of its own with the style of another, and the first part of it that matches."""
    text = page.read_text()
    style = re.search(r"<style>.*?</style>", text, re.DOTALL)
    assert style
    found = re.search(pattern, text, re.DOTALL)
    assert found, pattern
    into.write_text(f"<!doctype html><html lang=en><meta charset=utf-8>{style[0]}<body>{found[0]}</body></html>")


def whole(page: Path, into: Path, width: int) -> None:
    """A page from its beginning to its end, without the policy that forbids it the script that measures it."""
    text, end = re.sub(r"<meta http-equiv=[^>]*>", "", page.read_text()), "</body>"
    measured = page.with_suffix(".measured.html")
    script = ("<script>const last = document.body.getBoundingClientRect();"
              "document.body.dataset.size = Math.ceil(last.right) + ' ' + Math.ceil(last.bottom)</script>")
    measured.write_text(text.replace(end, script + end))
    found = re.search(r'data-size="(\d+) (\d+)"', chromium.document(measured.as_uri(), width))
    assert found, page
    chromium.picture(page.as_uri(), into, min(width, int(found[1])), int(found[2]))


def drawn(screen: Screen, place: Path, into: Path) -> None:
    """What a terminal shows, with its colours, down to its last line that is not empty."""
    lines = []
    for y in range(screen.lines):
        cells = [screen.buffer[y][x] for x in range(screen.columns)]
        shown = ""
        for cell in cells:
            colours = [COLOURS.get(cell.fg, INK), PAPER]
            ink, paper = reversed(colours) if cell.reverse else colours
            weight = "bold" if cell.bold else "normal"
            shown += (f"<span style='color: {ink}; background: {paper}; font-weight: {weight}'>"
                      f"{html.escape(cell.data)}</span>")
        lines.append((shown, any(cell.data.strip() or cell.reverse for cell in cells)))
    while lines and not lines[-1][1]:
        lines.pop()
    place.write_text(TERMINAL % "\n".join(line for line, _ in lines))
    whole(place, into, 2000)


def report_in_a_terminal(place: Path, into: Path) -> None:
    said = place.with_suffix(".said")
    said.touch()
    with Lab("write-write-read", "--rounds", "6", "--client-name", "checkout", "--server-name", "orders") as lab, \
            Terminal("sh", "-c", f"echo '$ sudo nagletrace -p {lab.client} -U'; exec {NAGLETRACE} -p {lab.client} -U "
                     f"2>{said}", rows=60) as terminal:
        terminal.until(lambda _: "nagletrace: ready" in said.read_text())
        lab.play()
        terminal.ended()
        drawn(terminal.screen, place, into)


def top_in_a_terminal(place: Path, into: Path) -> None:
    endless = ("--rounds", "100000", "--timeout", "60s", "--client-name")
    with Lab("write-write-read", *endless, "checkout", "--server-name", "orders", "--connections", "2") as one, \
            Lab("cork-forgotten", *endless, "mailer", "--server-name", "relay", "--interval", "500ms") as two, \
            Lab("sendfile", *endless, "search", "--server-name", "index", "--interval", "150ms") as three:
        for lab in (one, two, three):
            lab.go()
        with Daemon() as daemon, \
                Terminal(str(NAGLETRACE), "top", "--socket", str(daemon.socket), rows=16, columns=100) as terminal:
            terminal.until(lambda screen: all(name in screen for name in ("checkout[", "mailer[", "search["))
                           and re.search(r"most .* in \d\ds", screen) is not None)
            drawn(terminal.screen, place, into)
            terminal.press("q")


def draw(place: Path, into: Path) -> None:
    recording, page, ladders, ladder, flame = (place / name for name in (
        "trace.jsonl", "report.html", "ladders.html", "ladder.html", "flame.svg"))
    report_in_a_terminal(place / "terminal.html", into / "terminal.png")
    top_in_a_terminal(place / "top.html", into / "top.png")
    record(recording)
    command("report", "-i", recording, "-o", page, "--ladders", "1")
    command("report", "-i", recording, "-o", ladders)
    command("flame", "-i", recording, "--output", "svg", "-o", flame)
    part(ladders, r'<svg class="ladder"(?:(?!</svg>).)*checkout.*?</svg>', ladder)
    whole(page, into / "report.png", 900)
    whole(ladder, into / "ladder.png", 560)
    height = re.search(r'<svg [^>]*height="(\d+)"', flame.read_text())
    assert height
    chromium.picture(flame.as_uri(), into / "flame.png", 1000, int(height[1]))
