#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What tracing costs, measured side by side: docs/performance.md, and build/bench/ with the raw data.

Each cycle runs every load under every subject once, in an order of its own, pinned, and bare between them; a figure is
the median over the cycles of the ratio to the bare runs before and after, with the quartiles beside it.
`bench.py programs` measures what each program costs by itself (in a guest too), `bench.py stalls` what a stall costs
the tracer, `bench.py late-acks` what late ACKs cost it and the exporter, `bench.py` all of it. nagletrace writes to a
file, since a tracer that nobody reads does less. Where it dropped a record of a stall that it was measured by, there is
no figure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from processes import end, kill  # noqa: E402
from repository import git  # noqa: E402
from spaces import Namespace, fdinfo, load  # noqa: E402

BUILD = Path(os.environ.get("NAGLETRACE_BUILD", ROOT / "build"))
NAGLETRACE, EMPTY = BUILD / "nagletrace", BUILD / "bench" / "empty"
RESULTS = BUILD / "bench"
READY_S = 30.0
#: The tracers on one CPU, the load on another, or on both.
ALL_CPUS = frozenset(os.sched_getaffinity(0))
TRACER_CPU, LOAD_CPU = 0, max(ALL_CPUS)
LOADS = {mode: {LOAD_CPU} for mode in ("pingpong", "server", "in-step", "bulk", "churn")}


def pinned(cpus: Collection[int]) -> Callable[[], None]:
    return lambda: os.sched_setaffinity(0, cpus)


@dataclass(frozen=True)
class Subject:
    """What runs beside the load; ready when it says so on stdout or stderr."""

    name: str
    command: tuple[str, ...]
    ready: str
    inside: bool = False  # in the load's network namespace

    @property
    def ours(self) -> bool:
        return self.command[0] == str(NAGLETRACE)

    @contextlib.contextmanager
    def running(self, space: Namespace, whole: bool = False,
                cpus: frozenset[int] = frozenset({TRACER_CPU})) -> Iterator[subprocess.Popen[str]]:
        """`whole`: the figures are of all its work, or Dropped is raised when it has ended."""
        command = space.enter(*self.command) if self.inside else list(self.command)
        with tempfile.TemporaryFile("w+", errors="replace") as file:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True,
                                       stdout=file if self.ours else subprocess.PIPE,
                                       stderr=subprocess.PIPE if self.ours else subprocess.STDOUT,
                                       preexec_fn=pinned(cpus))
            rest = threading.Thread(target=deque, args=(process.stderr or process.stdout, 0))
            try:
                said = wait_for(process, self.ready)
                rest.start()  # the others write too, and would wait for a reader
                if said is not None:
                    raise Missing(said)
                yield process
            finally:
                end(process, READY_S, signal.SIGINT)
                rest.join()
            if whole:
                file.seek(max(0, file.seek(0, os.SEEK_END) - REPORT_CHARACTERS))
                refuse_drops(self.name, file.read())


#: The closing report is within the last of them.
REPORT_CHARACTERS = 100_000


class Dropped(Exception):
    """The figures are not of all its work."""


def refuse_drops(name: str, report: str) -> None:
    """Raises Dropped if the report, text or JSON, says that a record was dropped."""
    last = report.rstrip().rpartition("\n")[2]
    if last.startswith("{"):
        counts = json.loads(last)["dropped"]
        dropped = sum(count for where, count in counts.items() if where not in ("owners", "stack", "late_ack_limit"))
    else:
        dropped = sum(map(int, re.findall(r", (\d+) dropped", report)[-1:]))
    if dropped:
        raise Dropped(f"bench: {name} dropped {dropped} records: these figures are not of all its work")


class Missing(Exception):
    """This machine or kernel does not run the subject; the text is the reason."""


def wait_for(process: subprocess.Popen[str], ready: str) -> str | None:
    """None once it has said so; else its last line."""
    says = process.stdout or process.stderr
    assert says
    last = "said nothing"
    for line in says:
        last = line.strip() or last
        if ready in line:
            return None
    return last


def family() -> str:
    """The hooks that `--hooks auto` takes here."""
    said = subprocess.run([NAGLETRACE, "-d", "10ms"], capture_output=True, text=True).stderr
    found = re.search(r"nagletrace: (\w+) hooks", said)
    if not found:
        sys.exit(f"bench: {said.strip()}")
    return found[1]


#: Little more than bpftrace needs to start.
COUNTERS = ('BEGIN { printf("counters: ready\\n"); } tracepoint:sock:sock_send_length { @writes = count(); } '
            "tracepoint:tcp:tcp_probe { @segments = count(); }")


def subjects(sleeper: int) -> list[Subject]:
    ours, ready = str(NAGLETRACE), "nagletrace: ready"
    return [
        Subject("empty programs on the same hooks", (str(EMPTY), family()), "empty: ready"),
        Subject("nagletrace -p (another process)", (ours, "-p", str(sleeper)), ready),
        Subject("nagletrace", (ours,), ready),
        Subject("nagletrace --stacks", (ours, "--stacks"), ready),
        Subject("nagletrace --timeline", (ours, "--timeline"), ready),
        Subject("bpftrace, the same tracepoints", ("bpftrace", str(ROOT / "tests/bench/holds.bt")), "holds: ready"),
        Subject("bpftrace, two counters", ("bpftrace", "-e", COUNTERS), "counters: ready"),
        Subject("tcpdump, headers of that port", ("tcpdump", "-i", "lo", "-s", "96", "-w", "/dev/null", "tcp", "port",
                                                  "7000"), "listening on", inside=True),
        Subject("tcplife (bpftrace)", ("tcplife.bt",), "Tracing"),
        Subject("tcplife (bcc)", ("tcplife-bpfcc",), "PID"),
        Subject("tcprtt (bcc)", ("tcprtt-bpfcc",), "Tracing"),
        Subject("tcptop (bcc)", ("tcptop-bpfcc", "-C"), "Tracing"),
    ]


def rate(space: Namespace, mode: str, seconds: float, *more: object) -> float:
    """Operations a second."""
    told = load(space, mode, seconds, *more, preexec=pinned(LOADS.get(mode, {LOAD_CPU})))
    return float(told["operations"] / told["seconds"])


# ---- what it costs the load ----


def measure_loads(space: Namespace, all_subjects: list[Subject], cycles: int, seconds: float) -> dict[str, Any]:
    """By load and subject, one for each cycle: operations a second, and bare before and after, between which it ran.

    And the subjects that do not run here.
    """
    rates: dict[str, dict[str, list[list[float]]]] = {mode: defaultdict(list) for mode in LOADS}
    missing: dict[str, str] = {}
    for cycle in range(cycles):
        order = [s for s in all_subjects if s.name not in missing]
        random.Random(cycle).shuffle(order)
        before = {mode: rate(space, mode, seconds) for mode in LOADS}
        for subject in order:
            try:
                with subject.running(space):
                    with_it = {mode: rate(space, mode, seconds) for mode in LOADS}
            except (Missing, FileNotFoundError) as error:
                missing[subject.name] = str(error)[:200]
                continue
            after = {mode: rate(space, mode, seconds) for mode in LOADS}
            for mode in LOADS:
                rates[mode][subject.name].append([before[mode], with_it[mode], after[mode]])
            before = after
        print(f"bench: cycle {cycle + 1} of {cycles}", file=sys.stderr)
    return {"rates": rates, "missing": missing}


def added(measured: list[list[float]]) -> tuple[float, float, float]:
    """Time that an operation takes more than bare, in %: the median over cycles, and the quartiles."""
    more = [((before + after) / 2 / with_it - 1) * 100 for before, with_it, after in measured]
    low, _, high = statistics.quantiles(more, n=4) if len(more) > 1 else (more[0],) * 3
    return statistics.median(more), low, high


# ---- what a program costs ----


def programs_of(process: subprocess.Popen[str]) -> dict[str, tuple[int, int]]:
    """Runs and ns of each BPF program that the process holds, by name; same names added up."""
    listed = subprocess.run(["bpftool", "--json", "prog", "show"], capture_output=True, text=True, check=True,
                            env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"})
    held = fdinfo(process.pid, "prog_id")
    found: dict[str, tuple[int, int]] = {}
    for program in json.loads(listed.stdout):
        if not (info := held.get(str(program["id"]))):
            continue
        runs, ns = found.get(program["name"], (0, 0))
        found[program["name"]] = runs + int(info["run_cnt"]), ns + int(info["run_time_ns"])
    return found


def measure_programs(space: Namespace, seconds: float) -> dict[str, Any]:
    """ns a run of our programs and of empty ones on the same hooks, under ping-pong and under stalls."""
    stats = Path("/proc/sys/kernel/bpf_stats_enabled")
    before = stats.read_text()
    stats.write_text("1")
    measured: dict[str, Any] = {}
    try:
        for subject in (Subject("empty", (str(EMPTY), family()), "empty: ready"),
                        Subject("ours", (str(NAGLETRACE),), "nagletrace: ready")):
            with subject.running(space) as process:
                for mode, more in (("pingpong", ()), ("stall", (100,)), ("server", ()), ("bulk", ())):
                    first = programs_of(process)
                    rate(space, mode, seconds, *more)
                    after = programs_of(process)
                    measured.setdefault(mode, {})[subject.name] = {
                        name: {"runs": runs - first.get(name, (0, 0))[0], "ns": ns - first.get(name, (0, 0))[1]}
                        for name, (runs, ns) in after.items()}
    finally:
        stats.write_text(before)
    return {"kernel": platform.release(), "hooks": family(), "loads": measured}


# ---- the process itself ----


def cpu_seconds(pid: int) -> float:
    """Of all threads, to the ns, as the scheduler counts."""
    ns = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread has ended
            ns += int(path.read_text().split()[0])
    return ns / 1e9


def resident_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def measure_processes(space: Namespace, all_subjects: list[Subject], seconds: float) -> dict[str, Any]:
    """Start, memory, CPU while idle and while 1,000 connections stall, and the size of the program."""
    measured: dict[str, Any] = {}
    for subject in all_subjects:
        starts, busy = [], None
        try:
            for _ in range(5):
                began = time.monotonic()
                with subject.running(space, cpus=ALL_CPUS):
                    starts.append(time.monotonic() - began)
            with subject.running(space, whole=subject.ours) as process:
                pid = process.pid
                idle = cpu_seconds(pid)
                time.sleep(seconds)
                idle = (cpu_seconds(pid) - idle) / seconds
                before = cpu_seconds(pid)
                stalls = rate(space, "stall", seconds)
                busy = (cpu_seconds(pid) - before) / seconds
                memory = resident_mb(pid)
        except Dropped as error:
            busy = None
            print(error, file=sys.stderr)
        except (Missing, FileNotFoundError):
            continue
        program = subprocess.run(["sh", "-c", f"command -v {subject.command[0]}"], capture_output=True, text=True)
        measured[subject.name] = {
            "start_ms": statistics.median(starts) * 1000, "resident_mb": memory, "idle_cpu": idle, "busy_cpu": busy,
            "stalls_per_second": stalls, "bytes": Path(program.stdout.strip()).stat().st_size}
    return measured


# ---- what a stall costs the tracer ----

#: Each connection of the load stalls some 22 times a second.
STALLING = (5, 50, 500, 5000)


@contextlib.contextmanager
def streaming(path: Path, kind: str) -> Iterator[None]:
    """A reader of the daemon's stalls, where `kind` has one."""
    if not kind:
        yield
        return
    command = [NAGLETRACE, "report", "--follow", "-o", kind, "--socket", path]
    with tempfile.TemporaryFile() as file:
        reader = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL, preexec_fn=pinned({LOAD_CPU}))
        try:
            yield
        finally:
            reader.terminate()  # SIGINT may be ignored, as it is in a background job of a shell
            reader.wait(READY_S)


def report_of(path: Path) -> str:
    return subprocess.run([NAGLETRACE, "report", "--socket", path], capture_output=True, text=True, check=True).stdout


def measure_stalls(space: Namespace, seconds: float) -> dict[str, Any]:
    """us of CPU that the tracer takes for a stall, by what it does with it and by stalls a second."""
    measured: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        path, ready = Path(directory) / "s", "nagletrace: ready"
        trace, daemon = (str(NAGLETRACE),), (str(NAGLETRACE), "daemon", "--socket", str(path))
        for subject, kind in ((Subject("text to a file", trace, ready), ""),
                              (Subject("JSON to a file", (*trace, "-o", "json"), ready), ""),
                              (Subject("a report each second", (*trace, "-i", "1s"), ready), ""),
                              (Subject("daemon", daemon, ready), ""),
                              (Subject("daemon with a reader of JSON, who skips what comes too fast", daemon, ready),
                               "json")):
            for connections in STALLING:
                cost: dict[str, Any] = {}
                try:
                    with subject.running(space, whole=True) as process, streaming(path, kind):
                        rate(space, "stall", 0.5, connections)
                        before = cpu_seconds(process.pid)
                        told = load(space, "stall", seconds, connections, preexec=pinned({LOAD_CPU}))
                        cost["us"] = (cpu_seconds(process.pid) - before) / told["stalled"] * 1e6
                        cost["stalls_per_second"] = told["stalled"] / told["seconds"]
                        if subject.command == daemon:
                            refuse_drops(subject.name, report_of(path))
                except Dropped as error:
                    cost["dropped"] = str(error)
                measured.setdefault(subject.name, []).append(cost)
    return measured


# ---- what late ACKs cost that nobody waits for ----

#: Values of --max-late-acks: none, the default, and more than the load makes.
LIMITS = (0, 100, 4000)


def measure_late_acks(space: Namespace, seconds: float) -> list[dict[str, Any]]:
    """The daemon's and the exporter's share of a CPU while 100 connections think, by the daemon's limit."""
    sys.path.insert(0, str(ROOT / "exporters" / "tests"))
    from receivers import FakeReceiver
    measured = []
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "s"
        for limit in LIMITS:
            daemon = (str(NAGLETRACE), "daemon", "--socket", str(path), "--max-late-acks", str(limit))
            with Subject("daemon", daemon, "nagletrace: ready").running(space) as process, FakeReceiver() as receiver:
                exporter = subprocess.Popen(
                    ["/usr/bin/python3", "-m", "nagletrace_exporters.exporter.main", "--daemon.socket", path,
                     "--web.listen-address", "127.0.0.1:0", "--otlp.endpoint", receiver.url],
                    cwd=ROOT / "exporters", stderr=subprocess.DEVNULL, preexec_fn=pinned({TRACER_CPU}))
                try:
                    rate(space, "think", 3.0)
                    before = cpu_seconds(process.pid), cpu_seconds(exporter.pid), receiver.requests.qsize()
                    told = load(space, "think", seconds, preexec=pinned({LOAD_CPU}))
                    costs = cpu_seconds(process.pid) - before[0], cpu_seconds(exporter.pid) - before[1]
                    requests = list(receiver.requests.queue)[before[2]:]
                    refuse_drops("daemon", report_of(path))
                    records = Counter(record["eventName"] for one in requests for record in one.records())
                    assert exporter.poll() is None and (records["nagletrace.late_ack"] > 0) == (limit > 0), records
                finally:
                    exporter.terminate()
                    exporter.wait(READY_S)
            measured.append({"limit": limit, "rounds_per_second": told["operations"] / told["seconds"],
                             "daemon": costs[0] / told["seconds"], "exporter": costs[1] / told["seconds"],
                             "records_per_second": records.total() / told["seconds"]})
    return measured


# ---- memory by connection ----


def map_bytes(pid: int) -> int:
    """What the kernel holds for the maps of a process."""
    return sum(int(info["memlock"]) for info in fdinfo(pid, "map_id").values())


def measure_memory(space: Namespace, connections: int) -> dict[str, Any]:
    """Bytes in the kernel for each connection that has exchanged data and is open, and the process's own."""
    ours = Subject("nagletrace", (str(NAGLETRACE),), "nagletrace: ready")
    with ours.running(space) as process, ThreadPoolExecutor(1) as pool:
        idle, resident = map_bytes(process.pid), resident_mb(process.pid)
        run = pool.submit(load, space, "server", 3.0, connections, preexec=pinned({LOAD_CPU}))
        most, most_resident = idle, resident
        while not run.done():
            most = max(most, map_bytes(process.pid))
            most_resident = max(most_resident, resident_mb(process.pid))
            time.sleep(0.1)
        told = run.result()
    return {"connections": connections, "requests": told["operations"], "idle_bytes": idle, "most_bytes": most,
            "resident_mb": resident, "most_resident_mb": most_resident}


# ---- the page ----

#: What encloses the part of it that instructions.py writes.
COUNTED = "<!-- written by make bench-instructions -->", "<!-- end of what make bench-instructions writes -->"


def counted_part(text: str) -> str:
    """That part of the page, with its marks; empty if there is none."""
    begin, end = map(text.find, COUNTED)
    return text[begin:end + len(COUNTED[1]) + 1] if 0 <= begin < end else ""


def page(results: dict[str, Any]) -> str:
    lines = [(ROOT / "tests" / "bench" / "performance.head.md").read_text().rstrip(), "",
             f"Kernel {results['kernel']}, {results['hooks']} hooks, {results['cpus']} CPUs, "
             f"{results['cycles']} cycles of {results['seconds']} s; at commit `{results['commit']}`.", "",
             "## What it costs the load", "",
             "Extra time that an operation takes over bare: the median, with quartiles in brackets. Both ends of the "
             "load are on one CPU, so that all of the cost is in the time; the tracer is on another.", "",
             "| | " + " | ".join(LOADS) + " |", "|---|" + "---|" * len(LOADS)]
    rates = results["loads"]["rates"]
    bare = [statistics.median(r[0] for runs in rates[mode].values() for r in runs) for mode in LOADS]
    lines.append("| bare | " + " | ".join(f"{each:,.0f} /s" for each in bare) + " |")
    for name in rates["pingpong"]:
        cells = ["{:+.1f} % [{:+.1f}, {:+.1f}]".format(*added(rates[mode][name])) for mode in LOADS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [f"\nNot run here: {name} ({why})." for name, why in results["loads"]["missing"].items()]
    for measured in results["programs"]:
        lines += ["", f"## What a run of a program costs: {measured['kernel']}, {measured['hooks']} hooks", "",
                  "The kernel's statistics measured this; they add some 20 ns to each run themselves.", "",
                  "| program | runs a ping-pong | ns | ns while 100 connections stall |", "|---|---|---|---|"]
        pingpong, stall = measured["loads"]["pingpong"], measured["loads"]["stall"]
        most = max((p["runs"] for p in pingpong["ours"].values()), default=1) or 1
        for name, cost in sorted(pingpong["ours"].items(), key=lambda item: -item[1]["ns"]):
            lines.append(f"| {name} | {cost['runs'] / most * 2:.2f} | {per_run(cost)} | "
                         f"{per_run(stall['ours'][name])} |")
        for name, cost in pingpong["empty"].items():
            lines.append(f"| {name} | | {per_run(cost)} | {per_run(stall['empty'][name])} |")
    lines += ["", "## The process", "",
              "| | to ready | resident | CPU idle | CPU with 1,000 connections stalling | program |",
              "|---|---|---|---|---|---|"]
    for name, cost in results["processes"].items():
        lines.append(f"| {name} | {cost['start_ms']:.0f} ms | {cost['resident_mb']:.1f} MB | {cost['idle_cpu']:.1%} | "
                     f"{'drops' if cost['busy_cpu'] is None else format(cost['busy_cpu'], '.1%')} "
                     f"({cost['stalls_per_second']:,.0f} stalls/s) | {cost['bytes']:,} bytes |")
    lines += ["", "*drops*: it dropped records, so that its CPU time is not that of so many stalls.", "",
              "## What a stall costs the tracer", "",
              "us of CPU for each, and in brackets how many there were a second; 5,000 connections ask for 110,000, "
              "and have what the load's CPU can do.", "",
              "| | " + " | ".join(f"{count:,} connections" for count in STALLING) + " |",
              "|---|" + "---|" * len(STALLING)]
    lines += [f"| {name} | " + " | ".join("drops" if "dropped" in cost else f"{cost['us']:.1f} "
              f"({cost['stalls_per_second']:,.0f}/s)" for cost in costs) + " |"
              for name, costs in results["stalls"].items()]
    replies = results["late_acks"][0]["rounds_per_second"]
    lines += ["", "## What late ACKs cost that nobody waits for", "",
              f"{replies:,.0f} replies a second, to 100 connections that then think: the ACK of each second one "
              "goes late and alone. The daemon streams them to the exporter, which hands them on "
              "(`--otlp.endpoint`). Of one CPU:",
              "",
              "| `--max-late-acks` | records a second | daemon | exporter |", "|---|---|---|---|"]
    lines += [f"| {cost['limit']:,} | {cost['records_per_second']:,.0f} | {cost['daemon']:.1%} | "
              f"{cost['exporter']:.1%} |" for cost in results["late_acks"]]
    memory = results["memory"]
    each = (memory["most_bytes"] - memory["idle_bytes"]) / memory["connections"] / 2
    lines += ["", "## Memory by connection", "",
              f"{memory['connections']:,} connections over loopback, so twice as many sockets, {memory['requests']:,} "
              f"requests on them: the maps took {memory['idle_bytes'] / 1e6:.1f} MB before and "
              f"{memory['most_bytes'] / 1e6:.1f} MB at most, so each socket {each:.0f} B; the process "
              f"{memory['resident_mb']:.1f} MB before and {memory['most_resident_mb']:.1f} MB at most."]
    stored = ROOT / "docs" / "performance.md"
    return "\n".join(lines) + "\n\n" + (counted_part(stored.read_text()) if stored.exists() else "")


def per_run(cost: dict[str, int]) -> str:
    return f"{cost['ns'] / cost['runs']:.0f}" if cost["runs"] else "not run"


@contextlib.contextmanager
def tracing_files() -> Iterator[None]:
    """bpftrace looks for tracepoints in tracefs, below debugfs; mounted for the run where they are not."""
    mounted = []
    try:
        for kind, place in (("tracefs", "/sys/kernel/tracing"), ("debugfs", "/sys/kernel/debug")):
            if not os.path.ismount(place) and not subprocess.run(["mount", "-t", kind, "none", place]).returncode:
                mounted.append(place)
        yield
    finally:
        for place in reversed(mounted):
            subprocess.run(["umount", "-l", place], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["all", "programs", "stalls", "late-acks"], default="all")
    parser.add_argument("--cycles", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each load")
    arguments = parser.parse_args()
    sleeper = subprocess.Popen(["sleep", "100000"])
    try:
        with tracing_files(), Namespace() as space:
            if arguments.what == "programs":
                print(json.dumps(measure_programs(space, 2.0)))
                return 0
            if arguments.what == "stalls":
                print(json.dumps(measure_stalls(space, 3.0), indent=1))
                return 0
            if arguments.what == "late-acks":
                print(json.dumps(measure_late_acks(space, 10.0), indent=1))
                return 0
            results: dict[str, Any] = {"commit": commit(), "kernel": platform.release(), "hooks": family(),
                                       "cpus": os.cpu_count(), "cycles": arguments.cycles,
                                       "seconds": arguments.seconds}
            RESULTS.mkdir(parents=True, exist_ok=True)
            for name, measure in (
                    ("loads", lambda: measure_loads(space, subjects(sleeper.pid), arguments.cycles, arguments.seconds)),
                    ("programs", lambda: [measure_programs(space, 2.0), *in_guest()]),
                    ("processes", lambda: measure_processes(space, subjects(sleeper.pid), 3.0)),
                    ("stalls", lambda: measure_stalls(space, 3.0)),
                    ("late_acks", lambda: measure_late_acks(space, 10.0)),
                    ("memory", lambda: measure_memory(space, 100_000))):
                results[name] = measure()
                (RESULTS / "results.json").write_text(json.dumps(results, indent=1))
    finally:
        kill(sleeper)
    text = page(results)
    for place in (RESULTS, ROOT / "docs"):
        (place / "performance.md").write_text(text)
    print(text)
    return 0


def commit() -> str:
    """What is measured; with a + where a program differs from it."""
    return git("rev-parse", "--short=10", "HEAD") + ("+" if git("status", "--porcelain", "bpf", "userspace") else "")


def in_guest() -> list[dict[str, Any]]:
    """The same programs by function hooks in a guest with 6.1; none where that cannot be had."""
    guest = ["/usr/bin/python3", ROOT / "tests/guests/guest.py", "--kernel", "6.1", "--timeout", "300"]
    command = ["/usr/bin/python3", "tests/bench/bench.py", "programs"]
    done = subprocess.run([*guest, "--results", RESULTS / "guest", "--", *command], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        print(f"bench: no guest: {done.stderr[-500:]}", file=sys.stderr)
        return []
    measured: dict[str, Any] = json.loads(lines[-1])
    return [measured]


if __name__ == "__main__":
    sys.exit(main())
