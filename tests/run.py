#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Runs parts of the tests, each by pytest, and ends with counts of passed, failed and skipped.

`run.py PART[:MARKS]…` runs the tests of these parts: those in tests/PART, or as PARTS has it. `PART+PART` runs two at
once. `kernels` runs the live tests in guests. `run.py steps TARGET…` has make build and run one target after the other,
and ends with a table of them.

Nothing passes silently: a part that could not run, or was not done in time, counts as failed. Only a kernel that cannot
be had is skipped, with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "results"
#: For a part of the tests, and for a guest, in s.
MOST = 2400.0
LAST_WORDS = 60.0  # in s: an interrupted run writes its results
SLOWEST = 10


@dataclass(frozen=True)
class Part:
    tests: tuple[str, ...]
    #: which of them, as pytest's -m takes it
    marks: str = ""
    root: bool = True


#: What is not all of tests/PART, run by root.
PARTS = {
    "unit": Part(("tests/unit", "tests/fuzz", "tests/witness"), root=False),
    "style": Part(("tests/style",), root=False),
    "model": Part(("tests/model",), root=False),
    "fuzz": Part(("tests/fuzz",), root=False),
    "exporters": Part(("exporters/tests",), "not browser", root=False),
    "clickhouse": Part(("tests/clickhouse",), root=False),
    "helm": Part(("tests/helm",), root=False),
    "browser": Part(("exporters/tests",), "browser", root=False),
}


@dataclass
class Counts:
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    #: how long each test took, in s, with its name
    took: list[tuple[float, str]] = field(default_factory=list)

    def add(self, other: Counts) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.took += other.took

    def tell(self) -> int:
        """The exit code. The last line is read by machines."""
        if not self.passed and not self.failed:
            self.failed.append("no test ran")
        for seconds, name in sorted(self.took, reverse=True)[:SLOWEST]:
            print(f"slowest  {seconds:6.1f} s  {name}")
        for line in self.skipped:
            print(f"skipped  {line}")
        for line in self.failed:
            print(f"FAILED   {line}")
        print(f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped", flush=True)
        return 1 if self.failed else 0


# ---- one run of pytest ----


def read(results: Path, name: str) -> Counts:
    """What pytest wrote of each test. What a test measured is printed: the witnesses' scores, the verifier's budget."""
    counts = Counts()
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        if not case.get("name"):
            continue  # what was interrupted, which the exit code tells
        test = f"{name}: {case.get('name')}"
        bad = next((case.find(tag) for tag in ("failure", "error") if case.find(tag) is not None), None)
        skip = case.find("skipped")
        if bad is not None:
            counts.failed.append(f"{test}: {' '.join((bad.get('message') or bad.text or '').split())[:600]}")
        elif skip is not None:
            counts.skipped.append(f"{test}: {skip.get('message')}")
        else:
            counts.passed += 1
        counts.took.append((float(case.get("time") or 0), test))
        for note in case.iter("property"):
            print(f"{note.get('name'):<8} {note.get('value')}")
    return counts


def judge(name: str, results: Path, code: int, pattern: str | None) -> Counts:
    """A run in which no test passed has not shown anything, unless nothing can be done about it."""
    if code == 5 and pattern:
        return Counts()  # no test has that name here
    if not results.exists():
        return Counts(failed=[f"{name}: could not run (exit code {code})"])
    counts = read(results, name)
    if code and not counts.failed:
        counts.failed.append(f"{name}: not all of it ran (exit code {code})")
    excused = counts.skipped and all("cannot be had" in line for line in counts.skipped)
    if not counts.passed and not counts.failed and not pattern and not excused:
        counts.failed.append(f"{name}: no test ran")
    return counts


@dataclass(frozen=True)
class Pytest:
    """What is common to all runs of it."""

    pattern: str | None
    arguments: tuple[str, ...] = ()

    def command(self, tests: list[str], results: Path, marks: str, *more: str) -> list[str]:
        command = ["/usr/bin/python3", "-m", "pytest", *tests, f"--junitxml={results}", *self.arguments, *more]
        return command + (["-m", marks] if marks else []) + (["-k", self.pattern] if self.pattern else [])


def limited(command: list[str], seconds: float) -> list[str]:
    """What takes longer is interrupted, and tells what it has done."""
    return ["timeout", "--foreground", "--signal=INT", f"--kill-after={LAST_WORDS:.0f}", f"{seconds:.0f}", *command]


def prepare(directory: Path) -> Path:
    """Where a run leaves its results; what another left there is gone."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("results.xml", "exit-code"):
        (directory / name).unlink(missing_ok=True)
    return directory / "results.xml"


def run_part(spec: str, pytest: Pytest, *, quiet: bool = False) -> Counts:
    """With `quiet`, what pytest prints is shown when it has ended, in one piece."""
    name, _, marks = spec.partition(":")
    part = PARTS.get(name, Part((f"tests/{name}",)))
    tests = [place for place in part.tests if (ROOT / place).exists()]
    if not tests:
        return Counts(failed=[f"{name}: there is no {' or '.join(part.tests)}"])
    results = prepare(RESULTS / spec.replace(":", " ").replace(" ", "-"))
    sudo = ["sudo"] if part.root and os.geteuid() else []
    both = f"({part.marks}) and ({marks})" if part.marks and marks else part.marks or marks
    done = subprocess.run([*sudo, *limited(pytest.command(tests, results, both), MOST)], cwd=ROOT, text=True,
                          errors="replace", stdout=subprocess.PIPE if quiet else None,
                          stderr=subprocess.STDOUT if quiet else None)
    if quiet:
        print(f"---- {spec}\n{done.stdout}", flush=True)
    return judge(spec, results, done.returncode, pytest.pattern)


def run_at_once(specs: list[str], pytest: Pytest) -> Counts:
    counts = Counts()
    with ThreadPoolExecutor(len(specs)) as pool:
        for one in pool.map(lambda spec: run_part(spec, pytest, quiet=len(specs) > 1), specs):
            counts.add(one)
    return counts


# ---- guests ----

#: Kernels and the hooks that each offers; the tracepoint family needs 6.3. `once`: what one guest of all runs.
MATRIX = {
    "6.1": ("function", "once", "kprobe"),
    "7": ("function", "kprobe", "tracepoint"),
    "6.12": ("function", "kprobe", "tracepoint"),
    "5.10": ("function", "kprobe"),
}
KINDS = ("function", "kprobe", "tracepoint", "once")
GUESTS_AT_ONCE = 2  # each takes one CPU
#: One guest plays these of tests/live, and beside it another the rest: each takes some twenty minutes.
FIRST_HALF = ("budget", "truth", "verdicts", "standby", "kernel_sockets", "mix", "command")
UNAVAILABLE = 77  # tests/guests/guest.py: the kernel cannot be had


@dataclass(frozen=True)
class Guest:
    """An emulated machine with that kernel, in which half of the live tests run by those hooks."""

    kernel: str
    kind: str
    half: int

    def __str__(self) -> str:
        return f"{self.kernel} {self.kind} {self.half}"

    @property
    def results(self) -> Path:
        return RESULTS / f"guest-{self.kernel}-{self.kind}-{self.half}"

    @property
    def tests(self) -> list[str]:
        first = [f"tests/live/test_{name}.py" for name in FIRST_HALF]
        if self.half == 1:
            return first
        packets = ["tests/packets"] if self.kernel == "6.1" else []
        return ["tests/live", *packets, *(f"--ignore={path}" for path in first)]

    def run(self, pytest: Pytest) -> Counts:
        results, once = prepare(self.results), self.kind == "once"
        command = pytest.command(self.tests, results, f"guest and {'once' if once else 'not once'}",
                                 f"--hooks={'function' if once else self.kind}")
        machine = ["/usr/bin/python3", "tests/guests/guest.py", "--kernel", self.kernel, "--results",
                   str(self.results), "--timeout", f"{MOST:.0f}", "--"]
        print(f"---- kernel {self}: begun", flush=True)
        sudo = ["sudo"] if os.geteuid() else []
        done = subprocess.run([*sudo, *machine, *limited(command, MOST - 2 * LAST_WORDS)], cwd=ROOT, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        print(f"---- kernel {self}\n{done.stdout}", flush=True)
        if done.returncode == UNAVAILABLE and not (self.results / "exit-code").exists() and self.kernel != "6.1":
            return Counts(skipped=[f"kernel {self}: it cannot be had, for the reason above"])
        return judge(str(self), results, done.returncode, pytest.pattern)


def compile_for_guests() -> None:
    """Leaves the live tests' bytecode beside them: a guest, where it takes twenty times as long, can keep none."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    sudo = ["sudo"] if os.geteuid() else []
    subprocess.run([*sudo, "/usr/bin/python3", "-m", "pytest", "--collect-only", "tests/live"], cwd=ROOT,
                   capture_output=True, timeout=300, env=environment)


def run_kernels(kernels: list[str], kinds: list[str], pytest: Pytest) -> Counts:
    counts = Counts()
    guests = [Guest(kernel, kind, half) for kernel in kernels for kind in MATRIX[kernel] if kind in kinds
              for half in (1, 2)]
    compile_for_guests()
    with ThreadPoolExecutor(GUESTS_AT_ONCE) as pool:
        for one in pool.map(lambda guest: guest.run(pytest), guests):
            counts.add(one)
    return counts


# ---- several targets of make ----


def run_step(step: str) -> Counts:
    """A target of make with its variables; make builds and installs what it needs, and run.py leaves its counts."""
    print(f"==== make {step}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        told = Path(directory) / "counts.json"
        command = ["make", "--no-print-directory", *shlex.split(step), f"COUNTS={told}"]
        code = subprocess.run(command, cwd=ROOT).returncode
        counts = Counts(**json.loads(told.read_text())) if told.exists() else Counts()
    if code and not counts.failed:
        counts.failed.append(f"make {step}: could not run (exit code {code})")
    elif not code and not counts.passed and not counts.skipped:
        counts.failed.append(f"make {step}: no test ran")
    return counts


def run_steps(steps: list[str]) -> Counts:
    total, rows = Counts(), []
    for step in steps:
        began = time.monotonic()
        counts = run_step(step)
        rows.append(f"{step:<40} {(time.monotonic() - began) / 60:7.1f} {counts.passed:7} {len(counts.failed):7} "
                    f"{len(counts.skipped):8}")
        total.add(counts)
    print(f"{'part':<40} {'minutes':>7} {'passed':>7} {'failed':>7} {'skipped':>8}", *rows, sep="\n")
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", metavar="PART", help="PART[:MARKS], PART+PART, kernels, or steps TARGET…")
    parser.add_argument("-k", metavar="PATTERN", dest="pattern", help="only tests whose name has this in it")
    parser.add_argument("--kernels", default=" ".join(MATRIX), help=f"with kernels: of {', '.join(MATRIX)}")
    parser.add_argument("--kinds", default=" ".join(KINDS), help=f"with kernels: of {', '.join(KINDS)}")
    parser.add_argument("--counts", type=Path, metavar="FILE", help="write the counts there too, as JSON")
    arguments, others = parser.parse_known_args()
    kernels, kinds = arguments.kernels.split(), arguments.kinds.split()
    for wrong, known in ((set(kernels) - set(MATRIX), MATRIX), (set(kinds) - set(KINDS), KINDS)):
        if wrong:
            parser.error(f"{' '.join(sorted(wrong))}: not known here; give of {', '.join(known)}")
    if arguments.parts[0] == "steps":
        return run_steps(arguments.parts[1:]).tell()
    pytest = Pytest(arguments.pattern, tuple(others))
    total = Counts()
    for part in arguments.parts:
        print(f"==== {part}", flush=True)
        began = time.monotonic()
        counts = run_kernels(kernels, kinds, pytest) if part == "kernels" else run_at_once(part.split("+"), pytest)
        print(f"==== {part}: {counts.passed} passed, {len(counts.failed)} failed, {len(counts.skipped)} skipped, "
              f"{time.monotonic() - began:.0f} s", flush=True)
        total.add(counts)
    code = total.tell()
    if arguments.counts:
        arguments.counts.write_text(json.dumps(asdict(total)))
    return code


if __name__ == "__main__":
    sys.exit(main())
