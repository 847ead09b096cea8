#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Runs the tests, part by part, and ends with counts of passed, failed and skipped.

`run.py [unit] [live] [monitoring] [packages] [arm64] [guest] [-k PATTERN]`; without a part, all of them. `run.py
kernels [--kernel K] [--reuse]` runs the live tests in guests with each kernel of the matrix, or one. `run.py summary`
adds up what ran since the build, `run.py table` puts the matrix's table into the README. A part that could not run
counts as failed: nothing passes silently; only a kernel that cannot be had, and a guest's tests for which no time is
left, are skipped, with their reason.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
RESULTS = BUILD / "results"
PARTS = ("unit", "live", "monitoring", "packages", "arm64", "guest")
#: Kernels of the matrix and the hooks that each offers; the tracepoint family needs 6.3.
MATRIX = {
    "5.10": ("function", "kprobe"),
    "6.1": ("function", "kprobe"),
    "6.12": ("function", "kprobe", "tracepoint"),
    "7": ("function", "kprobe", "tracepoint"),
}
GUESTS_AT_ONCE = 2
GUEST_SECONDS = 3000.0  # for a guest, where no end of continuous integration is near
FUZZ_SECONDS = 5  # of each target, among the unit tests; `make fuzz` takes longer
NO_TIME = "no time was left for it"  # tests/live/harness.py
UNAVAILABLE = 77  # tests/guests/guest.py: the kernel cannot be had


@dataclass(frozen=True)
class Guest:
    """An emulated machine with that kernel, in which the live tests run by those hooks."""

    kernel: str
    hooks: str
    #: those tests that one guest of all runs; without it, those that each runs
    once: bool = False

    def __str__(self) -> str:
        return f"{self.kernel} {self.hooks}" + (" once" if self.once else "")

    @property
    def results(self) -> Path:
        return RESULTS / f"guest-{str(self).replace(' ', '-')}"

    @property
    def marks(self) -> str:
        return "guest and once" if self.once else "guest and not once"

    def ran_since_build(self) -> bool:
        results = self.results / "results.xml"
        return results.exists() and results.stat().st_mtime > (BUILD / "nagletrace").stat().st_mtime


def guests_of(kernel: str) -> list[Guest]:
    guests = [Guest(kernel, hooks) for hooks in MATRIX[kernel]]
    if kernel == "6.1":
        # it takes as long as the two others together, and runs beside them
        guests.insert(1, Guest(kernel, "function", once=True))
    return guests


@dataclass
class Counts:
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    #: tests that ran again; tests/live/rerun.py says when and why
    rerun: list[str] = field(default_factory=list)
    #: what tests measured, by kind: the witnesses' scores, the verifier's budget
    notes: dict[str, list[str]] = field(default_factory=dict)

    def add(self, other: Counts) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.rerun += other.rerun

    def out_of_time(self) -> bool:
        return any(line.endswith(NO_TIME) for line in self.skipped)


def run_unit(pattern: str | None) -> Counts:
    """The units in C, fuzzed inputs, and the witnesses, which are to be trusted by themselves."""
    counts = run_units_in_c(pattern)
    counts.add(run_fuzzers(pattern, FUZZ_SECONDS))
    counts.add(run_pytest("witness", "tests/witness", pattern, 300))
    return counts


def run_fuzzers(pattern: str | None, seconds: int, keep: bool = False) -> Counts:
    """Each program under build/fuzz for some time, from its corpus on. keep: new inputs go into the corpus."""
    counts = Counts()
    programs = sorted(p for p in (BUILD / "fuzz").glob("fuzz_*") if os.access(p, os.X_OK) and p.is_file())
    programs = [p for p in programs if not pattern or pattern in p.name]
    if not programs and not pattern:
        counts.failed.append("fuzz: no target was built")
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for program, output in zip(programs, pool.map(lambda p: fuzz(p, seconds, keep), programs)):
            runs = re.search(r"^Done (\d+) runs", output, re.MULTILINE)
            if runs and int(runs[1]):
                counts.passed += 1
                print(f"{program.name}: {runs[1]} runs")
            else:
                counts.failed.append(f"{program.name}: {' '.join(output.splitlines()[-3:])}")
                print(output)
    return counts


def fuzz(program: Path, seconds: int, keep: bool) -> str:
    """What it says."""
    corpus = ROOT / "tests" / "fuzz" / "corpus" / program.name.removeprefix("fuzz_")
    with tempfile.TemporaryDirectory() as new:
        done = subprocess.run([program, f"-max_total_time={seconds}", f"-artifact_prefix={BUILD}/fuzz/", new, corpus],
                              capture_output=True, text=True, errors="replace", timeout=2 * seconds + 60)
        if keep:
            subprocess.run([program, "-merge=1", corpus, new], check=True, capture_output=True)
    return done.stderr


def run_units_in_c(pattern: str | None) -> Counts:
    """Each program under build/unit is one group of cmocka tests, built with ASan and UBSan."""
    counts = Counts()
    programs = sorted(p for p in (BUILD / "unit").glob("test_*") if os.access(p, os.X_OK) and p.is_file())
    if not programs:
        counts.failed.append("unit: no test was built")
    for program in programs:
        command = [str(program)] + ([f"*{pattern}*"] if pattern else [])
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        output = done.stdout + done.stderr
        failed = sorted(set(re.findall(r"\[  FAILED  \] ([a-z]\w+)", output)))
        counts.passed += len(re.findall(r"\[       OK \]", output))
        counts.skipped += [f"{program.name}: {name}" for name in re.findall(r"\[  SKIPPED \] (\w+)", output)]
        counts.failed += [f"{program.name}: {name}" for name in failed]
        if done.returncode and not failed:
            counts.failed.append(f"{program.name}: ended with {done.returncode}")
        if done.returncode:
            print(output)
    return counts


def read_junit(path: Path, part: str) -> Counts:
    counts = Counts()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{part}: {case.get('name')}"
        skip = case.find("skipped")
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        if bad is not None:
            counts.failed.append(f"{name}: {reason_of(bad)}")
        elif skip is not None:
            counts.skipped.append(f"{name}: {skip.get('message')}")
        else:
            counts.passed += 1
        for note in case.iter("property"):
            counts.notes.setdefault(str(note.get("name")), []).append(str(note.get("value")))
    return counts


def reason_of(bad: ElementTree.Element) -> str:
    """Why a test failed, on one line."""
    return " ".join((bad.get("message") or bad.text or "").split())[:600]


def pytest_command(tests: str, results: Path, pattern: str | None, arguments: list[str]) -> list[str]:
    command = ["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1", tests]
    command += [f"--junitxml={results}", *arguments]
    return command + (["-k", pattern] if pattern else [])


def judge(part: str, results: Path, code: int, chosen: bool) -> Counts:
    """The results of a pytest run; one without a single test that passed has not shown anything."""
    if code == 5 and chosen:
        return Counts()  # no test has that name here
    if not results.exists():
        return Counts(failed=[f"{part}: could not run (exit code {code})"])
    counts = read_junit(results, part)
    reruns = results.with_name("reruns.txt")
    if reruns.exists():
        counts.rerun = [f"{part}: {line}" for line in reruns.read_text().splitlines()]
    if code and not counts.failed:
        counts.failed.append(f"{part}: ended with {code}")
    if not counts.passed and not counts.failed and not chosen and not counts.out_of_time():
        counts.failed.append(f"{part}: no test ran")
    return counts


def prepare(directory: Path) -> Path:
    """Where a run of pytest leaves its results; what a run left there before is gone."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("results.xml", "reruns.txt", "exit-code"):
        (directory / name).unlink(missing_ok=True)
    return directory / "results.xml"


def run_pytest(part: str, tests: str, pattern: str | None, timeout: int) -> Counts:
    """The tests below a directory, on this machine; timeout in s."""
    results = prepare(RESULTS / part)
    try:
        code = subprocess.run(pytest_command(tests, results, pattern, []), cwd=ROOT, timeout=timeout,
                              env={**os.environ, "NAGLETRACE_RESULTS": str(results.parent)}).returncode
    except subprocess.TimeoutExpired:
        return Counts(failed=[f"{part}: not done after {timeout} s"])
    return judge(part, results, code, pattern is not None)


def run_live(pattern: str | None) -> Counts:
    counts = run_pytest("live", "tests/live", pattern, 3000)
    print_notes(counts)
    return counts


def run_monitoring(pattern: str | None) -> Counts:
    """The daemon's readers: exporter, rules and dashboard, each by itself and all together."""
    counts = run_pytest("exporters", "exporters/tests", pattern, 300)
    counts.add(run_pytest("monitoring", "tests/monitoring", pattern, 1800))
    return counts


def run_packages(pattern: str | None) -> Counts:
    """The Debian packages, built here and installed in roots of Debian 12 and 13."""
    return run_pytest("packages", "tests/packages", pattern, 900)


def run_arm64(pattern: str | None) -> Counts:
    """The static binary and the lab, for arm64, in an emulated machine; skipped where its kernels cannot be had."""
    build = ["make", "--no-print-directory", f"-j{os.cpu_count() or 1}", "static-aarch64", "lab-aarch64"]
    built = subprocess.run(build, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if built.returncode:
        print(built.stdout)
    counts = run_pytest("arm64", "tests/arm64", pattern, 600)
    if counts.skipped and not counts.passed:
        counts.failed = [line for line in counts.failed if line != "arm64: no test ran"]
    return counts


def print_notes(counts: Counts) -> None:
    for kind, lines in counts.notes.items():
        for line in lines:
            print(f"{kind:<8} {line}")


class Deadline:
    """When continuous integration ends (.ci/run says so, in s since 1970), and each guest's share of the time left."""

    #: Less would hardly boot a guest on a slow day.
    LEAST = 300.0
    #: Once the time is over, the tests that have begun end, and the guest.
    GRACE = 240.0

    def __init__(self, guests: int) -> None:
        """guests: how many are still to come, until continuous integration ends."""
        self.ends = float(os.environ.get("NAGLETRACE_CI_ENDS", "inf"))
        self.guests = guests
        self.lock = threading.Lock()

    def of(self, guest: Guest) -> float | None:
        """Until when, in s since 1970, it may begin tests; None when too little is left for it."""
        with self.lock:
            left = self.ends - self.GRACE - time.time()
            share = left * GUESTS_AT_ONCE / max(self.guests, 1) * (2 if guest.once else 1)
            self.guests -= 1
        return time.time() + min(left, max(share, self.LEAST)) if left >= self.LEAST else None


def run_in_guest(guest: Guest, pattern: str | None, deadline: Deadline) -> Counts:
    until = deadline.of(guest)
    if until is None:
        print(f"---- kernel {guest}: skipped, no time is left", flush=True)
        return Counts(skipped=[f"{guest}: {NO_TIME}"])
    results = prepare(guest.results)
    command = pytest_command("tests/live", results, pattern,
                             [f"--hooks={guest.hooks}", "-m", guest.marks, f"--until={until}"])
    timeout = min(until + deadline.GRACE - time.time(), GUEST_SECONDS)
    machine = ["/usr/bin/python3", "tests/guests/guest.py", "--kernel", guest.kernel, "--timeout", f"{timeout:.0f}"]
    print(f"---- kernel {guest}: begun", flush=True)
    done = subprocess.run([*machine, "--results", str(guest.results), "--", *command], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    code = done.returncode
    print(f"---- kernel {guest}\n{done.stdout}", flush=True)
    if code == UNAVAILABLE and not (guest.results / "exit-code").exists():
        return Counts(skipped=[f"{guest}: the kernel cannot be had (its reason stands above)"])
    counts = judge(str(guest), results, code, pattern is not None)
    print_notes(counts)
    return counts


def compile_for_guests() -> None:
    """Leaves the live tests' bytecode beside them: a guest, where it takes twenty times as long, can keep none."""
    command = ["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", "tests/live"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300, env=environment)


def run_in_guests(wanted: list[Guest], pattern: str | None, later: int = 0) -> dict[Guest, Counts]:
    """Two guests at a time, each of which takes one CPU. later: how many come after these."""
    deadline = Deadline(len(wanted) + later)
    if wanted:
        compile_for_guests()
    with ThreadPoolExecutor(GUESTS_AT_ONCE) as pool:
        jobs = {guest: pool.submit(run_in_guest, guest, pattern, deadline) for guest in wanted}
        return {guest: job.result() for guest, job in jobs.items()}


def run_guest(pattern: str | None) -> Counts:
    """Debian's 6.1, which is always to be had, by function hooks and by kprobes."""
    counts = Counts()
    later = sum(len(guests_of(kernel)) for kernel in MATRIX if kernel != "6.1")
    for one in run_in_guests(guests_of("6.1"), pattern, later).values():
        if not one.passed and one.skipped and not pattern and not one.out_of_time():
            one.failed, one.skipped = one.failed + one.skipped, []
        counts.add(one)
    return counts


def run_kernels(kernels: list[str], pattern: str | None, reuse: bool) -> Counts:
    """The matrix, and its table for the README in build/results/kernels.md."""
    counts = Counts()
    lines = ["| kernel | " + " | ".join(("function", "kprobe", "tracepoint")) + " |", "|---|---|---|---|"]
    wanted = [guest for kernel in kernels for guest in guests_of(kernel)]
    ran: dict[Guest, Counts] = {}
    for guest in wanted:
        if reuse and guest.ran_since_build():
            print(f"---- kernel {guest}: as it ran before, since the build", flush=True)
            ran[guest] = judge(str(guest), guest.results / "results.xml", 0, False)
    ran |= run_in_guests([guest for guest in wanted if guest not in ran], pattern)
    for one in ran.values():
        counts.add(one)
    for kernel in kernels:
        cells = []
        for hooks in ("function", "kprobe", "tracepoint"):
            some = [one for guest, one in ran.items() if (guest.kernel, guest.hooks) == (kernel, hooks)]
            passed, failed = sum(one.passed for one in some), sum(len(one.failed) for one in some)
            cells.append("not tested" if not some else "skipped" if not passed and not failed else
                         f"{passed} passed" + (f", {failed} failed" if failed else ""))
        lines.append(f"| {kernel} | " + " | ".join(cells) + " |")
    (RESULTS / "kernels.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return counts


def put_table() -> int:
    """Puts the table of the last whole run of the matrix into the README."""
    readme = ROOT / "README.md"
    begin, end = "<!-- kernels -->\n", "<!-- /kernels -->\n"
    before, rest = readme.read_text().split(begin)
    table = "".join(f"  {line}\n" for line in (RESULTS / "kernels.md").read_text().splitlines())
    readme.write_text(before + begin + table + "  " + end + rest.split(end, 1)[1])
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART",
                        help="unit, live, monitoring, packages, arm64, guest (all by default), kernels, fuzz, summary, "
                             "or table")
    parser.add_argument("--kernel", choices=MATRIX, help="with kernels: this one only")
    parser.add_argument("-k", metavar="PATTERN", dest="pattern", help="only tests whose name has this in it")
    parser.add_argument("--seconds", type=int, default=600, help="with fuzz: for each target (600)")
    parser.add_argument("--reuse", action="store_true", help="with kernels: not again what ran since the build")
    arguments = parser.parse_args()
    for part in arguments.parts:
        if part not in (*PARTS, "kernels", "fuzz", "summary", "table"):
            parser.error(f"{part}: no such part; give {', '.join(PARTS)}, kernels, fuzz, summary or table")
    RESULTS.mkdir(parents=True, exist_ok=True)
    kernels = [arguments.kernel] if arguments.kernel else list(MATRIX)
    runners = {"unit": run_unit, "live": run_live, "monitoring": run_monitoring, "packages": run_packages,
               "arm64": run_arm64, "guest": run_guest,
               "kernels": lambda pattern: run_kernels(kernels, pattern, arguments.reuse),
               "fuzz": lambda pattern: run_fuzzers(pattern, arguments.seconds, keep=True)}
    total = Counts()
    if arguments.parts == ["summary"]:
        return tell(add_up())
    if arguments.parts == ["table"]:
        return put_table()
    for part in arguments.parts or PARTS:
        print(f"==== {part}", flush=True)
        counts = runners[part](arguments.pattern)
        print(f"==== {part}: {counts.passed} passed, {len(counts.failed)} failed, "
              f"{len(counts.skipped)} skipped", flush=True)
        total.add(counts)
        if not arguments.pattern:
            (RESULTS / f"{part}.counts.json").write_text(json.dumps(asdict(counts)))
    return tell(total)


def add_up() -> Counts:
    """What each part counted when it last ran since the build; the matrix has the guests of 6.1 in it."""
    total = Counts()
    built = (BUILD / "nagletrace").stat().st_mtime
    for part in ("unit", "live", "monitoring", "packages", "arm64", "kernels"):
        path = RESULTS / f"{part}.counts.json"
        if path.exists() and path.stat().st_mtime > built:
            total.add(Counts(**json.loads(path.read_text())))
        else:
            total.failed.append(f"{part}: did not run")
    return total


def tell(total: Counts) -> int:
    for line in total.rerun:
        print(f"rerun    {line}")
    for line in total.skipped:
        print(f"skipped  {line}")
    for line in total.failed:
        print(f"FAILED   {line}")
    if not total.passed and not total.failed:
        total.failed.append("no test ran")
    print(f"{total.passed} passed, {len(total.failed)} failed, {len(total.skipped)} skipped, "
          f"{len(total.rerun)} run again")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
