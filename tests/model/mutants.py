#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Does the model notice when a rule is wrong?

Makes 100 mutants of the rules in bpf/ (one wrong operator, condition, constant or statement each),
compiles the model and the unit tests of the pure functions with each, runs them, and prints the
mutants that no test found. Deterministic: the places are shuffled with a fixed seed.
"""
import argparse
import json
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = ["verdict.h", "release.h", "judge.h", "hold.h", "pending_ack.h", "rules.h", "late_ack.h", "record.h"]
PURE = {"verdict.h", "release.h", "judge.h"}
UNITS = ["test_verdict", "test_release", "test_judge"]
WANTED, LEAST, SEED = 100, 95, 20261123
# of a compiler or a test, in s of CPU time, so that a busy machine makes no hang
MOST_CPU = 60
# what a mutant leaves unset is not by chance what was there before
FLAGS = ["-Og", "-w", "-std=gnu11", "-D_GNU_SOURCE", "-D__TARGET_ARCH_x86", "-ftrivial-auto-var-init=pattern"]

# What changes no verdict: how it is told, what is dropped, what is checked as it compiles.
NO_VERDICT = re.compile(
    r"^\s*(#|//|/?\*|SEC\(|__uint\(|__type\(|_Static_assert|event_|timeline_|count_dropped|barrier|"
    r"if \(ring_used_bytes|share_is_used_up|r->size|hold_slow|before|"
    r"struct \w+( \w+)? \{|static|__noinline|enum|\}|__builtin_memset|const bool trusted)"
)
STATEMENT = re.compile(r"^\t+(?!return\b|struct\b|u\d+\b|bool\b|enum\b|else\b|case\b|default\b|const\b)"
                       r"[\w*>.\[\]-]+( [|+-]?= |\(|\+\+|--).*;\s*(/\*.*\*/)?$")
NEIGHBOURS = {
    "NT_HOLD_": "NAGLE CORK MSG_MORE AUTOCORK TSO_DEFER CWND RWND PACING TSQ UNKNOWN",
    "NT_RELEASE_": "ACK FULL_SEGMENT NODELAY UNCORK TIMER LOSS_PROBE PUSH CLOSE RESET DEVICE",
    "NT_ACK_": "TIMER PIGGYBACK READ SEGMENT",
    "NT_PATTERN_": "WRITE_WRITE_READ REPLY_TAIL HANDSHAKE_FLIGHT ACK_CLOCKED PIGGYBACKED_ACK SEVERAL_WRITES ONE_WAY",
    "NT_EVIDENCE_": "SEEN INFERRED",
    "NT_NAGLE_": "OFF CORK PUSH",
    "NT_ACK_REASON_": "DELACK_MAX QUICK_EXHAUSTED LEFT_UNREAD PINGPONG QUICKACK_OFF",
}
OPERATORS = [(" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > "), (" && ", " || "),
             (" || ", " && "), (" + ", " - "), (" - ", " + "), (" == ", " != "), (" != ", " == "),
             ("true", "false"), ("false", "true")]

# Mutants that change no verdict: (file, the line before, the line, what it becomes), and above each the reason.
EQUIVALENT = {
    # at its limit it is the limit
    ("pending_ack.h", "u64 most_ns = rtt_ns + rtt_ns / 2;", "if (smooth_ns > most_ns)", "if (smooth_ns >= most_ns)"),
    ("hold.h", "written_since = s->tcp_state == NT_TCP_CLOSE_WAIT && latest_ns < s->clock_ns;",
     "if (latest_ns > s->clock_ns || nt_closing(s->tcp_state)) /* a FIN alone is no data */",
     "if (latest_ns >= s->clock_ns || nt_closing(s->tcp_state)) /* a FIN alone is no data */"),
    # what follows finds the hold deleted, and judges nothing
    ("hold.h", "hold_delete(t->sk);", "return;", ";"),
    # what follows finds no segment, and notes nothing
    ("rules.h", "if (!has_tail(&t, false))", "return 0;", ";"),
}
# Where both are equal, both branches give the same: a > b ? a - b : 0, a < b ? a : b
SAME_IF_EQUAL = re.compile(r"return (?:\(s32\))?(\S+) [<>]=? (\S+) \? (?:\1 - \2 : 0|\1 : \2|\2 : \1);$")


def code_of(text):
    """The text with comments blanked, places kept."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def neighbours(line):
    for prefix, names in NEIGHBOURS.items():
        names = names.split()
        for match in re.finditer(prefix + r"(\w+)\b", line):
            if match.group(1) in names:
                other = names[(names.index(match.group(1)) + 1) % len(names)]
                yield line[:match.start()] + prefix + other + line[match.end():]


def of_line(line, raw):
    """All mutants of a line of code."""
    for before, after in OPERATORS:
        for match in re.finditer(re.escape(before) if " " in before else rf"\b{before}\b", line):
            yield raw[:match.start()] + after + raw[match.end():]
    for match in re.finditer(r"(?<![\w)])!(?=[\w(])", line):
        yield raw[:match.start()] + raw[match.end():]
    match = re.search(r"\b(if|while) \((.*)\)( \{)?\s*$", line)
    if match and line.count("(") == line.count(")"):
        yield f"{raw[:match.start(2)]}!({match.group(2)}){raw[match.end(2):]}"
    yield from neighbours(line)
    if STATEMENT.match(line) and line.count("(") == line.count(")"):
        yield re.match(r"\t*", line).group() + ";"
    for match in re.finditer(r"\b2 \* |\b(?<=/ )[28]\b", line):
        yield raw[:match.start()] + match.group().replace("2", "3").replace("8", "4") + raw[match.end():]


def all_mutants():
    """(file, number of the line, before, after) of each place and operator."""
    found = []
    for name in FILES:
        text = (ROOT / "bpf" / name).read_text()
        raw_lines, lines = text.split("\n"), code_of(text).split("\n")
        early = re.compile(r"^\t+return( \w+)?;$")
        for i, (raw, line) in enumerate(zip(raw_lines, lines)):
            if not line.strip() or NO_VERDICT.match(line) or raw.endswith("\\") or '"' in line:
                continue
            for after in of_line(line, raw):
                found.append((name, i, raw, after))
            nested = i + 1 < len(lines) and not lines[i + 1].startswith("}")
            if early.match(line) and nested and "case" not in lines[i - 1]:
                found.append((name, i, raw, re.match(r"\t*", line).group() + ";"))
    return sorted(set(found))


def is_equivalent(mutant, lines):
    name, number, before, after = mutant
    above = next(line for line in reversed(lines[name][:number]) if line.strip())
    if (name, above.strip(), before.strip(), after.strip()) in EQUIVALENT:
        return True
    if re.sub("[<>]=? ", "", before) != re.sub("[<>]=? ", "", after):
        return False
    clamp = re.match(r"if \((\S+) [<>]=? (\S+)\)$", before.strip())  # if (a < b) a = b;
    return bool(SAME_IF_EQUAL.match(before.strip())) or (
        clamp is not None and lines[name][number + 1].strip() == f"{clamp[1]} = {clamp[2]};")


def limit():
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU, MOST_CPU))


def run(command):
    return subprocess.run(command, preexec_fn=limit, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def compiles(source, output, bpf, include):
    return run(["gcc", *FLAGS, f"-I{bpf}", *(f"-I{i}" for i in include), str(source), "-lcmocka",
                "-ljson-c", "-lz", "-o", str(output)]) == 0


def fails(program):
    """Ends it at the first test that fails; a hang is a failure, too."""
    with subprocess.Popen([str(program)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          preexec_fn=limit) as model:
        failed = any(b"FAILED" in line for line in model.stdout)
        if failed:
            model.kill()
    return failed or model.returncode != 0


def judge(mutant):
    """"found", "survives", or "no code" where it does not compile."""
    name, number, _, after = mutant
    with tempfile.TemporaryDirectory(prefix="nagletrace-mutant.") as place:
        place = Path(place)
        for part in ["bpf", "tests/unit", "tests/model"]:  # some include by a path from where they are
            shutil.copytree(ROOT / part, place / part, ignore=shutil.ignore_patterns("recordings"))
        lines = (ROOT / "bpf" / name).read_text().split("\n")
        lines[number] = after
        (place / "bpf" / name).write_text("\n".join(lines))
        units = place / "tests/unit"
        for unit in UNITS if name in PURE else []:
            if not compiles(units / f"{unit}.c", place / unit, place / "bpf", [units]):
                return "no code"
            if run([str(place / unit)]):
                return "found"
        model = place / "tests/model"
        for test in ["test_model", "test_recorded"]:
            if not compiles(model / f"{test}.c", place / test, place / "bpf", [model / "shim", model]):
                return "no code"
            if fails(place / test):
                return "found"
        return "survives"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (2)")
    parser.add_argument("--count", type=int, default=WANTED, help="how many (100)")
    parser.add_argument("--first", type=int, default=0, help="begin behind so many (0)")
    parser.add_argument("--seed", type=int, default=SEED, help="another one shuffles others to the front")
    parser.add_argument("--counts", type=Path, metavar="FILE", help="write for tests/run.py whether it passed")
    arguments = parser.parse_args()
    mutants = all_mutants()
    random.Random(arguments.seed).shuffle(mutants)
    lines = {name: (ROOT / "bpf" / name).read_text().split("\n") for name in FILES}
    mutants = [m for m in mutants if not is_equivalent(m, lines)]
    del mutants[:arguments.first]
    none = ("verdict.h", 0, *[(ROOT / "bpf/verdict.h").read_text().split("\n")[0]] * 2)
    if judge(none) != "survives":
        sys.exit("mutants.py: the tests fail without a mutant; run them first")
    print(f"{len(mutants)} places and operators, of which {arguments.count} are tried", flush=True)
    tried, found, began = 0, 0, time.monotonic()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        while tried < arguments.count and mutants:
            batch, mutants = mutants[:arguments.count - tried], mutants[arguments.count - tried:]
            for mutant, end in zip(batch, pool.map(judge, batch)):
                if end == "no code":
                    continue
                tried += 1
                found += end == "found"
                if end == "survives":
                    name, number, before, after = mutant
                    print(f"survives: bpf/{name}:{number + 1}\n  - {before.strip()}\n  + {after.strip()}",
                          flush=True)
                if tried % 10 == 0:
                    print(f"{found} of {tried} found, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{found} of {tried} mutants found")
    enough = tried > 0 and found * WANTED >= LEAST * tried
    if arguments.counts:
        failed = [] if enough else [f"make mutants: the tests find {found} of {tried}"]
        arguments.counts.write_text(json.dumps({"passed": int(enough), "failed": failed}))
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
