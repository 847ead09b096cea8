#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Writes docs/accuracy.md: how right the tracer is, by kernel and kind of hooks, against witnesses that share no code.

`accuracy.py [KERNEL…] [--hooks KIND]` plays a fixed choice of labs on this machine (`native`) and in guests (the names
of tests/guests/kernels.py; `rt` is all that end so), one guest at a time, and writes the page (accuracy_page.py). Each
kernel's scores by one kind of hooks lie in build/accuracy, written lab by lab, so that a run that is cut off loses
none; `--write` writes the page of what is there. Run by `make accuracy`, as root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accuracy_page import HOOKS, KERNELS, NATIVE, PAGE, ROOT, SCORES, Lab, names_of, write_page
from repository import git

if TYPE_CHECKING:
    import score
    from witnesses import Run

UNAVAILABLE = 77  # tests/guests/guest.py: the kernel cannot be had
CANNOT = 3  # nagletrace's own: this kernel has no such hooks
GUEST_SECONDS = 3600
EVIDENCE = 20  # of so many wrong verdicts of a lab at most

#: Why some hooks are not measured on some kernels.
INCOMPLETE = "the tracepoints are incomplete before Linux 6.3: there is no sock_send_length"
WITHOUT = {("5.10", "tracepoint"): INCOMPLETE, ("6.1", "tracepoint"): INCOMPLETE, ("6.1-rt", "tracepoint"): INCOMPLETE}

# ---- what is played; of tests/live/test_truth.py and test_mix.py, the same on every kernel ----

VETH = ("--over", "veth")

#: Both ends traced, as on one host: published experiments, what is no stall, ways to write and to live.
BOTH: list[Lab] = [
    ("echo",),
    ("write-write-read",),
    ("header-body", "--interval", "20ms", "--quickack-route"),
    ("length-data", "--size", "100"),
    ("reply-tail", "--reply-sizes", "200,300"),
    ("cork-forgotten",),
    ("cork-forgotten", "--msg-more"),
    ("chunks", "--rounds", "4", "--parts", "100"),
    ("bulk",),
    ("loss", "--cc", "cubic"),
    ("rate-limited", "--cc", "cubic"),
    ("autocork",),
    ("one-way",),
    ("nonblocking",),
    ("sendfile",),
    ("io-uring",),
    ("killed-while-held",),
]
#: One end traced, as if the other were on another host.
CLIENT: list[Lab] = [
    ("write-write-read",),
    ("length-data", "--rtt", "20ms", "--rounds", "4"),
    ("write-write-read", "--rtt", "80ms", "--jitter", "8ms", "--rounds", "6"),
    ("header-body", "--interval", "20ms"),
    ("reply-tail", "--reply-sizes", "200,300"),
    ("long-rtt", "--cc", "cubic"),
]
SERVER: list[Lab] = [
    ("write-write-read",),
    ("length-data", "--size", "100", "--rounds", "8"),
    ("write-write-read", "--rtt", "80ms", "--jitter", "8ms", "--rounds", "6"),
    ("reply-tail", "--reply-sizes", "200,300"),
    ("write-write-read", "--rtt", "100ms", "--pause", "60ms", "--rounds", "8", "--nodelay"),
    ("loss", "--cc", "cubic"),
]
MIX: Lab = ("mix", "--seed", "1", "--seconds", "6", "--connections", "8")
CHOICE = {"both ends": BOTH, "the client's end": CLIENT, "the server's end": SERVER, "the mixture": [MIX]}

# ---- measuring, on the kernel that runs ----


@dataclass
class Scores:
    """The file of one kernel's scores by one kind of hooks; written anew after each lab."""

    path: Path
    about: dict[str, Any]

    def __post_init__(self) -> None:
        self.path.with_suffix(".wrong.txt").unlink(missing_ok=True)
        self.about |= {"complete": False, "why_not": "", "labs": [], "not_played": [], "lost": {}, "unseen": 0}
        self.write()

    def write(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.about, indent=1) + "\n")
        new.replace(self.path)

    def add(self, part: str, made: score.Score, run: Run, traced: str = "both ends") -> None:
        self.about["labs"].append({
            "part": part, "lab": made.scenario, "traced": traced, "wire": made.wire, "reported": made.reported,
            "matched": made.matched, "doubtful": made.doubtful, "missed": [missed_words(s) for s in made.missed],
            "false": [false_words(r) for r in made.false], "errors_us": [round(e, 1) for e in made.errors_us]})
        self.write()
        print(f"{part:<8} {made.line()}", flush=True)
        self.keep_evidence(made, run)

    def keep_evidence(self, made: score.Score, run: Run) -> None:
        """Of what was wrong: the wire and the application's calls around it, beside the scores."""
        from score import ends_of, when

        wrong = [(f"missed: {missed_words(s)}", s.ended, s.sender, s.receiver) for s in made.missed]
        wrong += [(f"false: {false_words(r)}", when(r), *ends_of(r)) for r in made.false]
        told = [f"{made.scenario}: {what}\n{sender} -> {receiver} at {at}{run.about(at, sender, receiver)}\n\n"
                for what, at, sender, receiver in wrong[:EVIDENCE]]
        if told:
            with self.path.with_suffix(".wrong.txt").open("a") as file:
                file.writelines(told)

    def add_closing(self, closing: dict[str, Any]) -> None:
        """What the tracer says itself that it dropped, and that the kernel hid from it."""
        self.about["lost"] = dict(Counter(self.about["lost"]) + Counter(closing["dropped"]))
        self.about["unseen"] += closing.get("unseen", 0)

    def could_not(self, what: str, reason: str) -> None:
        """reason: of the lab where this kernel cannot play it, else of us."""
        self.about["not_played"].append({"lab": what, "why": reason})
        self.write()
        print(f"not played: {what}: {reason}", flush=True)


def missed_words(stall: score.Stall) -> str:
    return f"{stall.cause} of {stall.duration / 1e6:.1f} ms"


def false_words(record: dict[str, Any]) -> str:
    return f"{record['cause']} of {record['duration_us'] / 1000:.1f} ms, {record['side']}, {record['evidence']}"


def one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(lines[0].split())[:200]


def over(lab: Lab) -> Lab:
    return (lab[0], *VETH, *lab[1:])


def measure(scores: Scores) -> bool:
    """Plays all labs; false when something went wrong that is not for want of a kernel's feature."""
    import pytest
    from harness import IN_GUEST
    from witnesses import Together, witness

    whole = True

    @contextlib.contextmanager
    def keeping(what: str) -> Iterator[None]:
        nonlocal whole
        try:
            yield
        except pytest.skip.Exception as reason:
            scores.could_not(what, one_line(reason))
        except (Exception, pytest.fail.Exception) as error:
            whole = False
            scores.could_not(what, "it failed: " + one_line(error))

    # natively each by itself: others on this machine may get the number of a namespace whose lab has played
    together = Together([over(lab) for lab in BOTH] if IN_GUEST else [])
    closings = {}
    for lab in BOTH:
        with keeping(" ".join(lab)):
            run = together.witness(*over(lab))
            closings[id(run.closing)] = run.closing
            run.score.scenario = " ".join(lab)
            scores.add("both", run.score, run)
    for closing in closings.values():
        scores.add_closing(closing)
    for only, labs in (("client", CLIENT), ("server", SERVER)):
        for lab in labs:
            with keeping(f"{' '.join(lab)} (the {only}'s end)"):
                add_one_end(scores, lab, only)
    with keeping("mix"):
        run = witness(*over(MIX))
        scores.add_closing(run.closing)
        run.score.scenario = " ".join(MIX)
        scores.add("mix", run.score, run)
    scores.about["complete"] = True
    scores.write()
    return whole


def add_one_end(scores: Scores, lab: Lab, only: str) -> None:
    """The traced end sends in one direction and receives in the other: two scores, of what it knows in each."""
    import score
    from witnesses import MS, TOLERANCE, witness

    tolerance = TOLERANCE + 100 * MS  # as in test_truth.py
    run: Run = witness(*over(lab), only=only, tolerance=tolerance)
    scores.add_closing(run.closing)
    here = {connection[only] for connection in run.result["connections"]}
    for side in ("sender", "receiver"):
        stalls = [s for s in run.stalls if (s.sender in here) == (side == "sender")]
        records = [r for r in run.records if r["side"] == side]
        made = score.compare(" ".join(lab), stalls, records, tolerance)
        if made.wire or made.reported or made.doubtful or (only == "client") == (side == "sender"):
            scores.add(side, made, run, only)


def refusal(hooks: str) -> str:
    """Why this kernel does not take these hooks; "" where it does."""
    done = subprocess.run([str(ROOT / "build" / "nagletrace"), "--hooks", hooks, "-d", "1ms", "--json"],
                          capture_output=True, text=True, timeout=120)
    if done.returncode == 0:
        return ""
    lines = [line.removeprefix("nagletrace: ") for line in done.stderr.splitlines() if line.strip()]
    if done.returncode != CANNOT:
        raise RuntimeError(f"nagletrace --hooks {hooks} ended with {done.returncode}: {' '.join(lines)}")
    return lines[0].removeprefix(f"--hooks {hooks}: ").split("; ")[0] if lines else "it gives no reason"


def measure_here(name: str, hooks: list[str], directory: Path, commit: str, dirty: bool) -> int:
    """In the guest, or natively: a file of scores for each kind of hooks."""
    sys.path[:0] = [str(ROOT / "tests" / place) for place in ("live", "witness")]
    from harness import IN_GUEST, Tracer
    from witnesses import DOUBT, MS, TOLERANCE, score, wire

    def about(limit: int, below: int, above: int) -> str:
        return f"{(limit - below) / MS:g} to {(limit + above) / MS:g} ms"

    near = {"tolerance": f"within {TOLERANCE / MS:g} ms",
            "late": about(wire.Limits().late, DOUBT.early, DOUBT.late),
            "minimum": about(score.MINIMUM, min(DOUBT.minimum, score.MINIMUM), DOUBT.minimum)}
    good = True
    for kind in hooks:
        began = time.time()
        scores = Scores(directory / f"{name}-{kind}.json", {
            "kernel": name, "release": platform.release() if IN_GUEST else platform.release().split("-")[0],
            "hooks": kind, "commit": commit, "dirty": dirty,
            "limits": near, "choice": names_of(CHOICE), "date": time.strftime("%Y-%m-%d", time.gmtime(began))})
        why_not = WITHOUT.get((name, kind), "") or refusal(kind)
        if why_not:
            scores.about["why_not"] = why_not
            scores.write()
            print(f"---- {name} {kind}: {why_not}", flush=True)
            continue
        print(f"---- {name} {kind}", flush=True)
        Tracer.hooks = kind
        good = measure(scores) and good
        print(f"---- {name} {kind}: {time.time() - began:.0f} s", flush=True)
    return 0 if good else 1


# ---- from outside ----


def state_of_tree() -> tuple[str, bool]:
    """The commit, and whether anything but the page differs from it; "unknown" in a source archive."""
    try:
        commit = git("describe", "--always", "--tags", "--abbrev=10")
        return commit, bool(git("status", "--porcelain", "--", ".", f":!{PAGE.relative_to(ROOT)}"))
    except (OSError, subprocess.CalledProcessError):
        return "unknown", False


def cpu_seconds() -> float:
    """Of all that was started here and has ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_guest(name: str, hooks: list[str], commit: str, dirty: bool) -> int:
    place = SCORES / "guests" / name
    place.mkdir(parents=True, exist_ok=True)
    for left in place.glob(f"{name}-*"):
        left.unlink()
    inside = ["/usr/bin/python3", "tests/accuracy.py", name, "--here", str(place), "--commit", commit]
    inside += [word for kind in hooks for word in ("--hooks", kind)] + (["--dirty"] if dirty else [])
    print(f"==== kernel {name}: a guest boots", flush=True)
    began, used = time.monotonic(), cpu_seconds()
    done = subprocess.run(["/usr/bin/python3", "tests/guests/guest.py", "--kernel", name, "--timeout",
                           str(GUEST_SECONDS), "--results", str(place), "--", *inside], cwd=ROOT, text=True,
                          stderr=subprocess.PIPE)
    sys.stderr.write(done.stderr)
    cpu = (cpu_seconds() - used) / (time.monotonic() - began)
    for path in place.glob(f"{name}-*.json"):  # what was wrong in an older run
        (SCORES / path.name).with_suffix(".wrong.txt").unlink(missing_ok=True)
    for path in place.glob(f"{name}-*"):
        if path.suffix == ".json" and done.returncode in (0, 1):  # else nobody waited for the emulator
            path.write_text(json.dumps({**json.loads(path.read_text()), "cpu": round(cpu, 2)}, indent=1) + "\n")
        shutil.copy(path, SCORES / path.name)
    if done.returncode not in (0, 1):
        reasons = [line for line in done.stderr.splitlines() if line.startswith("guest: ")]
        never_began(name, hooks, reasons[-1].removeprefix("guest: ") if reasons else f"ended with {done.returncode}")
    return 0 if done.returncode == UNAVAILABLE else done.returncode


def never_began(name: str, hooks: list[str], why: str) -> None:
    """Scores that a run of before left are as true as they were; where there are none, why not."""
    for kind in hooks:
        path = SCORES / f"{name}-{kind}.json"
        if not path.exists():
            reason = WITHOUT.get((name, kind), why)
            path.write_text(json.dumps({"kernel": name, "hooks": kind, "why_not": reason}) + "\n")


def run_kernels(names: list[str], hooks: list[str]) -> int:
    commit, dirty = state_of_tree()
    SCORES.mkdir(parents=True, exist_ok=True)
    worst = 0
    for name in names:
        code = measure_here(name, hooks, SCORES, commit, dirty) if name == NATIVE else \
            run_guest(name, hooks, commit, dirty)
        worst = max(worst, code)
        write_page(CHOICE)
    return worst


# ---- the command line ----


def chosen(words: list[str]) -> list[str]:
    """The kernels that these words name, in the page's order."""
    names = []
    for word in words or KERNELS:
        some = [name for name in KERNELS if name == word or name.endswith(f"-{word}")]
        if not some:
            raise ValueError(f"kernel {word}: no such kernel; give {', '.join(KERNELS)} or rt")
        names += some
    return [name for name in KERNELS if name in names]


def parser() -> argparse.ArgumentParser:
    own = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    own.add_argument("kernels", nargs="*", metavar="KERNEL", help=f"{', '.join(KERNELS)} or rt; all")
    own.add_argument("--hooks", choices=HOOKS, action="append", help="only these; again for more")
    own.add_argument("--write", action="store_true", help="only write the page, of the scores that there are")
    # what a guest is started with
    own.add_argument("--here", type=Path, metavar="DIR", help=argparse.SUPPRESS)
    own.add_argument("--commit", default="", help=argparse.SUPPRESS)
    own.add_argument("--dirty", action="store_true", help=argparse.SUPPRESS)
    return own


def main() -> int:
    arguments = parser().parse_args()
    hooks = [kind for kind in HOOKS if kind in (arguments.hooks or HOOKS)]
    try:
        names = chosen(arguments.kernels)
    except ValueError as error:
        print(f"accuracy: {error}", file=sys.stderr)
        return 2
    if arguments.write:
        write_page(CHOICE)
        return 0
    if os.geteuid():
        print("accuracy: needs root, for namespaces and BPF: run `make accuracy`", file=sys.stderr)
        return 1
    if arguments.here:
        return measure_here(names[0], hooks, arguments.here, arguments.commit, arguments.dirty)
    return run_kernels(names, hooks)


if __name__ == "__main__":
    sys.exit(main())
