#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Counts the instructions that tracing adds to an operation, by kernel, kind of hooks and load: docs/performance.md.

`instructions.py [KERNEL…] [--hooks KIND]` boots each kernel (names of tests/guests/kernels.py) in an emulated machine
with one CPU whose clock moves one nanosecond an instruction. So operations a second of the guest are operations a
billion instructions, the kernel's own work for the hooks included, whatever else this machine does meanwhile. Each
cycle runs every load under every subject once and bare twice; a figure is the ratio of the low medians over the cycles.

The counts lie in build/bench/instructions, written as a guest has them; `--write` only writes the page of what is
there. tests/instructions holds a part of them to a budget.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import bench  # noqa: E402
from bench import (  # noqa: E402
    BUILD,
    COUNTED,
    EMPTY,
    NAGLETRACE,
    ROOT,
    Missing,
    Subject,
    counted_part,
    load,
    pinned,
)
from servers import SERVED, serving  # noqa: E402
from spaces import Namespace  # noqa: E402

sys.path.insert(0, str(ROOT / "tests" / "guests"))
from debian import Unavailable  # noqa: E402
from guest import Machine, run_in_guest  # noqa: E402

Counts = dict[str, Any]

HOOKS = ("tracepoint", "function", "kprobe")
KERNELS = ("7", "6.12", "6.1", "5.10")
#: By its name in the table, the load's mode. A stream by one thread: two would settle in one of two rhythms (bench.py).
LOADS = {"ping-pong": "pingpong", "100 connections": "server", "churn": "churn", "bulk": "in-step"}
ALL_LOADS = [*LOADS, *SERVED]
BARE, EMPTY_NAME, WHOLE, STANDBY = "bare", "empty programs", "whole host", "standby"
#: Counted where --only names it.
LATE_ACKS = "late ACKs"
RESULTS, PAGE = BUILD / "bench" / "instructions", ROOT / "docs" / "performance.md"
#: A guest has so long; each kind of hooks takes it some five minutes on a quiet machine.
MOST_S = 3600.0
CYCLES, SECONDS = 2, 0.2
#: PostgreSQL takes 3 % more from its third time on, nginx less from its second.
WARM_UPS = 4
#: The guest's clock leaps to the next timer while the guest waits for a file of this machine; no patience is too much.
FOREVER = 1e6


# ---- in the guest ----


def subjects(hooks: str, sleeper: int, directory: Path) -> list[Subject]:
    ours, ready = (str(NAGLETRACE), "--hooks", hooks), "nagletrace: ready"
    daemon = (str(NAGLETRACE), "daemon", "--hooks", hooks, "--socket", str(directory / "socket"))
    return [
        Subject(EMPTY_NAME, (str(EMPTY), hooks), "empty: ready"),
        Subject(WHOLE, ours, ready),
        Subject("-p of another process", (*ours, "-p", str(sleeper)), ready),
        Subject("--stacks", (*ours, "--stacks"), ready),
        Subject("daemon", daemon, ready),
        Subject(STANDBY, (*daemon, "--standby"), ready),
        Subject(LATE_ACKS, (*ours, "--late-acks", "--output", "json"), ready),
    ]


def cost(space: Namespace, name: str, seconds: float) -> float:
    """Instructions of an operation: the guest's clock moves one ns an instruction, and leaps where nothing runs."""
    if name in SERVED:
        return 1e9 / SERVED[name].operations(space)
    told = load(space, LOADS[name], seconds, preexec=pinned({0}), warm_up=seconds / 4, patience=FOREVER)
    return float(told["seconds"] * 1e9 / told["operations"])


def count_here(hooks: str, loads: list[str], only: list[str], cycles: int, seconds: float) -> Counts:
    """Per load and subject, one for each cycle: an operation's instructions; of BARE twice as many."""
    bench.READY_S = FOREVER
    counts: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in loads}
    sleeper = subprocess.Popen(["sleep", "infinity"])
    try:
        served = [name for name in loads if name in SERVED]
        with Namespace() as space, serving(space, served):
            for name in served * WARM_UPS:
                cost(space, name, seconds)
            wanted = [s for s in subjects(hooks, sleeper.pid, Path("/run"))
                      if (s.name in only if only else s.name != LATE_ACKS)]
            for _ in range(cycles):
                for subject in (None, *wanted[::2], None, *wanted[1::2]):
                    try:
                        with subject.running(space) if subject else contextlib.nullcontext():
                            for name in loads:
                                if name in LOADS or not subject or subject.name in (EMPTY_NAME, WHOLE):
                                    figures = counts[name][subject.name if subject else BARE]
                                    figures.append(cost(space, name, seconds))
                    except (Missing, FileNotFoundError) as error:
                        assert subject
                        print(f"instructions: {subject.name}: {error}", file=sys.stderr)
                        wanted = [s for s in wanted if s != subject]
    finally:
        sleeper.kill()
        sleeper.wait()
    return {"kernel": platform.release(), "hooks": hooks, "cycles": cycles, "seconds": seconds, "loads": counts}


def offered() -> list[str]:
    """The kinds of hooks that are complete on this kernel."""
    said = subprocess.run([NAGLETRACE, "check"], capture_output=True, text=True).stdout
    return [hooks for hooks in HOOKS if any(line.startswith(f"{hooks} ") and " yes" in line
                                            for line in said.splitlines()[:8])]


def in_guest(arguments: argparse.Namespace) -> int:
    """Writes the counts of each kind of hooks as it has them, so that a guest that is cut off loses none. Real servers
    are counted by the kind that `--hooks auto` takes."""
    place = Path(os.environ["NAGLETRACE_RESULTS"])
    taken = bench.family()
    for hooks in arguments.hooks or offered():
        loads = [name for name in arguments.loads if name in LOADS or hooks == taken]
        measured = count_here(hooks, loads, arguments.only, arguments.cycles, arguments.seconds)
        (place / f"{hooks}.json").write_text(json.dumps(measured, indent=1))
        print(one_line(measured), flush=True)
    return 0


# ---- figures ----


def added(counts: dict[str, list[float]], subject: str) -> float:
    """How many more instructions than bare an operation takes with the subject, in %. What else the guest does adds to
    a run: of two the lower one counts."""
    return (statistics.median_low(counts[subject]) / statistics.median_low(counts[BARE]) - 1) * 100


def spread(counts: dict[str, list[float]]) -> float:
    """How far the bare runs lie apart, in %."""
    return (max(counts[BARE]) / min(counts[BARE]) - 1) * 100


def one_line(measured: Counts) -> str:
    rows = [f"{name} {statistics.median(counts[BARE]):,.0f} (± {spread(counts) / 2:.2f} %): " + ", ".join(
                f"{subject} {added(counts, subject):+.2f} %" for subject in counts if subject != BARE)
            for name, counts in measured["loads"].items()]
    return f"{measured['kernel']} {measured['hooks']}: " + "; ".join(rows)


# ---- the page ----

HEAD = """\
## Instructions

`make bench-instructions` writes this part. It counts instructions in an emulated machine with one CPU, whose clock
moves one nanosecond an instruction: the kernel's own work for the hooks is in it, caches are not, and no other program
disturbs it. Nothing stalls; each figure says how many more instructions an operation takes than without any program
attached.

- *ping-pong*: one byte there and one back. Nearly all of it is the traced path.
- *100 connections*: requests of 64 bytes and replies of 200.
- *churn*: a connection for each request.
- *bulk*: writes of 64 KiB by one thread, which reads each before the next.
"""

REAL = """\
Real servers, each with one client on the same CPU, whose instructions count too: `redis-benchmark -t get`; `ab` with
`-k` and without, for a reply of 200 bytes; `pgbench -S`; `iperf3`. Empty programs on the same hooks / nagletrace on the
whole host, by the hooks that `--hooks auto` takes:
"""


def rows(all_measured: list[Counts], loads: Iterable[str], subjects_of: tuple[str, ...]) -> list[str]:
    loads = list(loads)
    lines = ["| kernel, hooks | " + " | ".join(loads) + " |", "|---|" + "---|" * len(loads)]
    for measured in all_measured:
        cells = [" / ".join(f"{added(counts, subject):+.1f}" if subject in counts else "–" for subject in subjects_of)
                 + " %" for counts in (measured["loads"][name] for name in loads)]
        lines.append(f"| {measured['kernel']}, {measured['hooks']} | " + " | ".join(cells) + " |")
    return lines


def section(all_measured: list[Counts]) -> str:
    more = ("-p of another process", "--stacks", "daemon", STANDBY)
    return "\n".join([HEAD, f"{EMPTY_NAME.capitalize()} on the same hooks / nagletrace on the {WHOLE}:", "",
                      *rows(all_measured, LOADS, (EMPTY_NAME, WHOLE)), "",
                      f"nagletrace {' / '.join(more)}:", "", *rows(all_measured, LOADS, more), "",
                      REAL, *rows([one for one in all_measured if set(SERVED) <= set(one["loads"])], SERVED,
                                  (EMPTY_NAME, WHOLE)), ""])


def write_page(all_measured: list[Counts]) -> None:
    page = PAGE.read_text()
    new = f"{COUNTED[0]}\n{section(all_measured)}{COUNTED[1]}\n"
    old = counted_part(page)
    PAGE.write_text(page.replace(old, new) if old else f"{page.rstrip()}\n\n{new}")
    print(f"instructions: wrote {PAGE.relative_to(ROOT)}")


# ---- guests ----


def stored() -> list[Counts]:
    """All counts that are there, newest kernel first, the cheapest kind of hooks first."""
    found = [json.loads(path.read_text()) for path in RESULTS.glob("*/*.json")]
    return sorted(found, key=lambda one: ([-int(part) for part in re.findall(r"\d+", one["kernel"])[:2]],
                                          HOOKS.index(one["hooks"])))


def boot(kernel: str, place: Path, *arguments: str) -> int:
    """Counts in a guest with that kernel; leaves KIND.json in that place. Raises Unavailable if it cannot be had."""
    command = ["/usr/bin/python3", "tests/bench/instructions.py", "--here", *arguments]
    return run_in_guest(kernel, command, place, MOST_S, Machine(cpus=1, counted=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=f"of {', '.join(KERNELS)}; all of them")
    parser.add_argument("--hooks", nargs="*", choices=HOOKS, help="all that the kernel offers")
    parser.add_argument("--loads", nargs="*", choices=ALL_LOADS, default=ALL_LOADS, help="all")
    parser.add_argument("--only", nargs="*", metavar="SUBJECT", help="nothing but these, and bare")
    parser.add_argument("--cycles", type=int, default=CYCLES)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each load, in the guest")
    parser.add_argument("--write", action="store_true", help="measure nothing; write the page of what is there")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # in the guest
    arguments = parser.parse_args()
    if arguments.here:
        return in_guest(arguments)
    if wrong := set(arguments.kernels) - set(KERNELS):
        parser.error(f"{' '.join(sorted(wrong))}: not known here; give of {', '.join(KERNELS)}")
    code = 0
    partial = bool(arguments.only) or set(arguments.loads) != set(ALL_LOADS)
    if not arguments.write:
        same = [word for word in sys.argv[1:] if word not in arguments.kernels]
        for kernel in arguments.kernels or KERNELS:
            try:
                code |= boot(kernel, (RESULTS / "partial" if partial else RESULTS) / kernel, *same)
            except Unavailable as why:
                print(f"instructions: kernel {kernel} cannot be had: {why}", file=sys.stderr)
    if not partial and (measured := stored()):
        write_page(measured)
    return code


if __name__ == "__main__":
    sys.exit(main())
