#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Renews the outputs that are pasted into README.md, docs/ and the manual, from real runs; `make pasted`, as root.

`pasted.py [NAME…]` renews these only, and what is of the same run. A pasted one has `<!-- output: NAME -->` above it;
tests/documents.py says more. tests/live/test_docs.py compares the shape of each with that of a run: the text without
numbers, names of hosts, and times. So a report that is laid out anew makes it fail until this has run.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "live"))
import documents  # noqa: E402
from daemon import Daemon  # noqa: E402
from harness import NAGLE_LAB, NAGLETRACE, PATIENCE, Lab, Tracer, run  # noqa: E402
from terminal import Terminal  # noqa: E402

#: How long `fix` looks, before and while; 10s is what it does by itself, and is pasted.
FIX_FOR = "10s"


class NotSeen(Exception):
    """A run did not show what is to be pasted; another may."""


@dataclass(frozen=True)
class Output:
    #: what is pasted
    text: str
    #: lines of which the pasted ones may be any; "": the text itself, in its order
    whole: str = ""


# ---- runs ----


@functools.lru_cache
def demo() -> str:
    """What `make demo` prints, which runs this script."""
    done = subprocess.run([ROOT / "tests" / "demo.sh", NAGLETRACE, NAGLE_LAB], capture_output=True, text=True,
                          check=True, timeout=4 * PATIENCE)
    return done.stdout


def report() -> Output:
    return Output(demo()[demo().index("nagletrace: ", demo().index("\nTIME ")):].rstrip())


def lines() -> Output:
    """The heading and four stalls."""
    shown = demo()[demo().index("TIME "):].splitlines()[:5]
    return Output("\n".join(shown))


def help_text() -> Output:
    return Output(run("--help").stdout.rstrip())


@functools.lru_cache
def timeline_lines() -> tuple[tuple[str, ...], int]:
    """The lines of a timeline, and the place of its first stall."""
    with Lab("write-write-read", "--rounds", "12") as lab, \
            Tracer("-p", str(lab.client), "--timeline", text=True) as tracer:
        lab.play()
        tracer.wait()
    shown = tuple(line for _, line in tracer.lines.all)
    for place, line in enumerate(shown):
        if "* * *" in line:
            return shown, place
    raise NotSeen("no stall in the timeline")


def timeline() -> Output:
    shown, stall = timeline_lines()
    text = "\n".join(("$ sudo nagletrace -p PID --timeline", *shown[:stall + 5]))
    return Output(text, "\n".join(("$ sudo nagletrace -p PID --timeline", *shown)))


def timeline_stall() -> Output:
    """The request that stalled, to its second part."""
    shown, stall = timeline_lines()
    first = max(place for place, line in enumerate(shown[:stall]) if "write 6 B" in line)
    return Output("\n".join(shown[first:stall + 2]), "\n".join(shown))


def all_holds() -> Output:
    command = ("-n", "lab-client", "--all-holds", "--wide")
    labs = (Lab("write-write-read", "--rounds", "6"), Lab("uncork", "--rounds", "4"),
            Lab("slow-reader", "--rounds", "20"))
    wanted = ((" nagle +ack ", 3), (" uncork ", 2), (" rwnd +ack ", 1))  # a loss probe may release one too
    try:
        with Tracer(*command, text=True) as tracer:
            for lab in labs:
                lab.play()
            tracer.stop()
    finally:
        for lab in labs:
            lab.close()
    shown = [line for _, line in tracer.lines.all]
    chosen = [next(line for line in shown if line.startswith("TIME "))]
    for lab, (words, count) in zip(labs, wanted):
        found = [line for line in shown if re.match(rf"\S+ lab-client +{lab.client} .*{words}", line)]
        if len(found) < count:
            raise NotSeen(f"{len(found)} holds with{words}among\n{chr(10).join(shown)}")
        chosen += found[:count]
    return Output("\n".join((f"$ sudo nagletrace {' '.join(command)}", *chosen)))


def fix() -> Output:
    with Lab("write-write-read", "--rounds", "100000", "--interval", "1ms", "--timeout", "600s") as lab:
        lab.go()
        command = ("fix", "-p", str(lab.client), "--nodelay")
        for_ = ("--for", FIX_FOR) if FIX_FOR != "10s" else ()
        with Terminal(str(NAGLETRACE), *command, *for_, columns=120, rows=100) as terminal:
            terminal.until(lambda screen: "[y/N]" in screen or terminal.process.poll() is not None, "[y/N]")
            terminal.press("y\n")
            if terminal.process.wait(120):
                raise NotSeen(terminal.text())
            terminal.ended()
            text = terminal.text().rstrip()
    if "verdict" not in text:
        raise NotSeen(text)
    return Output(f"$ sudo nagletrace {' '.join(command)}\n…\n{text[text.index('    to try'):]}")


@functools.lru_cache
def top_screens() -> tuple[str, str]:
    with Lab("write-write-read", "--rounds", "20000", "--connections", "3", "--timeout", "60s") as one, \
            Lab("cork-forgotten", "--rounds", "100000", "--interval", "500ms", "--timeout", "60s") as two:
        for lab in (one, two):
            lab.go()
        with Terminal(str(NAGLETRACE), "top", "-n", "lab-client", rows=16) as terminal:
            rows = (rf"lab-client\[{one.client}\] .* 4\d\.\dms", rf"lab-client\[{two.client}\] .* 2\d\dms")
            table = terminal.until(lambda screen: all(re.search(row, screen) for row in rows)
                                   and "traced here for 3s" in screen, "both programs, after 3s")
            for _ in range(30):
                if str(one.client) in terminal.reversed_line():
                    break
                terminal.press("\x1b[B")
                terminal.until(lambda _: True)
            table = terminal.text()
            terminal.resize(80, 24)
            terminal.press("\r")
            connection = terminal.wait_for("timer fires")
            terminal.press("q")
            terminal.press("q")
    if "inferred" in connection:
        raise NotSeen(f"the machine hid a timer from BPF:\n{connection}")
    return table.rstrip(), connection.rstrip()


def top() -> Output:
    text = f"$ sudo nagletrace top -n lab-client\n{top_screens()[0]}"
    return Output(text, text)


def top_connection() -> Output:
    return Output(top_screens()[1], top_screens()[1])


def health() -> Output:
    """The answer's first members."""
    command = "echo '{\"request\":\"health\"}' | socat - UNIX-CONNECT:"
    with Daemon() as daemon:
        answer = subprocess.run(command + str(daemon.socket), shell=True, capture_output=True, text=True, check=True,
                                timeout=PATIENCE).stdout
    match = re.match(r'.*?"started":"[^"]*",', answer)
    if not match:
        raise NotSeen(answer)
    return Output(f"$ {command}/run/nagletrace/nagletrace.sock\n{match[0]}…}}")


OUTPUTS: dict[str, Callable[[], Output]] = {
    "help": help_text, "report": report, "lines": lines, "timeline": timeline, "timeline-stall": timeline_stall,
    "all-holds": all_holds, "fix": fix, "top": top, "top-connection": top_connection, "health": health,
}
#: They tell of one run, on one page.
TOGETHER = ({"report", "lines"}, {"timeline", "timeline-stall"}, {"top", "top-connection"})


# ---- shapes ----

#: What differs between two runs, and what stands for it.
MASKS = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z|\d\d:\d\d:\d\d\.\d+", "CLOCK"),
    (r"\b(kernel )?\d+\.\d+\.\d+[\w.~+-]*(?=[,)])", r"\1VERSION"),
    (r"\b(function|kprobe|tracepoint) hooks", "WHICH hooks"),
    (r"\b(top) +\S+( +traced)", r"\1 HOST\2"),
    (r"(?<=cgroup) +\S+$", " PATH"),
    (r"[-·]?\b\d+([.,]\d+)* ?(us|ms|s|m)\b", "TIME"),
    (r"\d+([.,]\d+)*", "N"),
    (r"(?<=\s)-(?=\s|$)", "TIME"),  # no duration, in a table of them
    # one or more, or none, of what was counted
    (r"(nagle|cork|msg_more|autocork|tso_defer|cwnd|rwnd|pacing|tsq|unknown) N, mean TIME(; )?", "HOLDS"),
    (r"(HOLDS)+", "HOLDS"),
    (r"[▁▂▃▄▅▆▇█]+", "RATE"),
    # the machine may hide a timer from BPF, or the kernel a page of a stack
    (r"(?<=evidence) +(seen at both ends|N seen, N inferred)", " EVIDENCE"),
    (r"N dropped: stack N", "N dropped"),
    (r"[┃│]", "│"),
    (r"─+", "─"),
)


def shape(text: str) -> list[str]:
    """The text's lines without what differs between runs; a line that goes on is one with those that it goes on in."""
    joined: list[str] = []
    for line in text.splitlines():
        goes_on = re.match(r" {10,}[^\s┃│]", line) and "┃" not in line
        if joined and goes_on and re.match(r" {2,4}\S|nagletrace: |(why|fix) ", joined[-1]):
            joined[-1] += f" {line.strip()}"
        else:
            joined.append(line.rstrip())
    shaped = []
    for line in joined:
        indent = re.match(r" *", line)
        for pattern, mask in MASKS:
            line = re.sub(pattern, mask, line)
        shaped.append((indent[0] if indent else "") + " ".join(line.split()))
    return shaped


def cells(line: str) -> set[str]:
    """What a line may be made of: itself, or, in a ladder, what stands between the life lines, but for times at the
    left, which stand where there is room."""
    return {re.sub(r"^TIME ?", "", cell.strip()) for cell in line.split("│")} if "│" in line else {line.strip()}


#: A line that stands in a report only where the machine hid a timer from BPF meanwhile.
CHANCE = re.compile(r"\s*unseen\s")


def difference(pasted: str, real: Output) -> list[str]:
    """The lines of what is pasted whose shape no run has, and, where all is pasted, those that it lacks."""
    told = shape(pasted)
    if real.whole:
        may = {cell for line in shape(real.whole) for cell in cells(line)}
        return [line for line in told if not cells(line) <= may]
    wanted = [line for line in shape(real.text) if line in told or not CHANCE.match(line)]
    if told == wanted:
        return []
    return [f"- {line}" for line in told if line not in wanted] + [f"+ {line}" for line in wanted if line not in told] \
        or ["the same lines in another order, or more often"]


def made(name: str) -> Output:
    """Of a run that shows it; the machine may miss one."""
    for attempt in range(3):
        try:
            return OUTPUTS[name]()
        except NotSeen:
            if attempt == 2:
                raise
    raise AssertionError


def main() -> int:
    wanted = sys.argv[1:] or list(OUTPUTS)
    wanted += sorted({name for names in TOGETHER if names & set(wanted) for name in names} - set(wanted))
    if unknown := [name for name in wanted if name not in OUTPUTS]:
        print(f"pasted.py: {unknown[0]}: no such output; give {', '.join(OUTPUTS)}", file=sys.stderr)
        return 2
    for name in wanted:
        output = made(name)
        for path in {block.path for block in documents.outputs() if block.output == name}:
            # a page may have it twice; what is replaced moves the lines behind it
            for number in range(sum(block.output == name for block in documents.outputs() if block.path == path)):
                block = [b for b in documents.outputs() if b.output == name and b.path == path][number]
                path.write_text(documents.replaced(block, output.text))
                print(f"{name}: {block.where}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
