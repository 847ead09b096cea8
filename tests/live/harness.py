# SPDX-License-Identifier: GPL-2.0
"""Runs the lab and the tracer for the live tests. Tests wait for `ready`, never for time."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import os
import queue
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import met
import pytest
from ends import own_end
from processes import Ends, end, kill
from spaces import counter_of, enter_network, leave_network

ROOT = Path(__file__).resolve().parent.parent.parent
NAGLETRACE = ROOT / "build" / "nagletrace"
NAGLE_LAB = ROOT / "build" / "nagle-lab"
IN_GUEST = "NAGLETRACE_GUEST" in os.environ
#: Nothing waits longer than this. An emulated guest is slow.
PATIENCE = 60.0 if IN_GUEST else 30.0
#: The tracer rests at most so long between two looks for owners, on a host where a look takes 0.4 s.
REST = 2.0
#: A round in which the application waited this long has stalled: no timer is shorter, no fast round longer.
STALLED_US = 30_000.0
#: A round that waited this long may have waited for a retransmission, if there was one: TCP_RTO_MIN less a tick.
RETRANSMITTED_US = 195_000.0
#: A delayed ACK makes a round last 40 ms. If one takes so much longer in a guest, the guest stood still.
STOOD_STILL_US = 60_000.0
#: Beside other programs so many rounds may all last longer than their stall.
FEW = 5

#: nagle-lab's exit code when this kernel cannot play the scenario.
CANNOT = 3

#: The ring buffer has room for so many records, each with a header of 8 bytes: bpf/ring.h.
RING_RECORDS = (1 << 20) // 328
SCHEMA = json.loads((ROOT / "userspace" / "output" / "nagletrace.schema.json").read_text())
#: The validators by `type`. One validator that tries every kind takes five times as long, and would take most of the
#: time of a test with a long trace.
VALIDATORS = {
    SCHEMA["$defs"][kind["$ref"].removeprefix("#/$defs/")]["properties"]["type"]["const"]:
        jsonschema.Draft202012Validator({"$ref": kind["$ref"], "$defs": SCHEMA["$defs"]})
    for kind in SCHEMA["oneOf"]}

Record = dict[str, Any]

#: The delayed-ACK counters of the network namespaces in which others live; open, so that each stays readable.
OTHERS: list[Any] = []


def leave_others() -> None:
    """Moves the tests to a network namespace of their own: what happens in those of before is others'."""
    if OTHERS:
        return
    known = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            space = os.stat(process / "ns" / "net").st_ino
            if space not in known:
                OTHERS.append((process / "net" / "netstat").open())
                known.add(space)
    leave_network()


def timers_of_others() -> int:
    """Returns how many delayed ACKs a timer has sent in others' namespaces, by the kernel's count."""
    for file in OTHERS:
        file.seek(0)
    return sum(counter_of(file.read(), "TcpExtDelayedACKs") for file in OTHERS)


def assert_valid(record: Record) -> None:
    """Asserts that the record is one of the schema."""
    assert record["type"] in VALIDATORS, record
    wrong = jsonschema.exceptions.best_match(VALIDATORS[record["type"]].iter_errors(record))
    assert wrong is None, f"{wrong.message}: {record}"


class Lines:
    """Reads a stream line by line as it comes, and keeps when each line came (CLOCK_MONOTONIC, s)."""

    def __init__(self, stream: Any) -> None:
        self.all: list[tuple[float, str]] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: Any) -> None:
        for line in stream:
            self.all.append((time.monotonic(), line.rstrip("\n")))
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def wait_for(self, text: str, patience: float = PATIENCE) -> str:
        """Returns the next line that has this text. Fails if the stream ends or nothing comes."""
        while True:
            line = self._queue.get(timeout=patience)
            assert line is not None, f"no {text!r} before the end: {self.text()}"
            if text in line:
                return line

    def finish(self) -> None:
        self._thread.join(PATIENCE)

    def text(self) -> str:
        return "\n".join(line for _, line in self.all)


def stay_in_network(path: Path, there: threading.Barrier, until: threading.Event) -> None:
    enter_network(path)
    there.wait(PATIENCE)
    until.wait()


class Lab(Ends):
    """Runs nagle-lab once; the lab waits at its start for go().

    Its network namespaces stay until close(): a tracer's audit and a capture read there in the end.
    """

    program = str(NAGLE_LAB)

    def __init__(self, scenario: str, *arguments: str, prefix: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [*prefix, self.program, scenario, "--wait", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.errors = Lines(self.process.stderr)
        self.lines = Lines(self.process.stdout)
        self._closed = threading.Event()
        try:
            self.ready: Record = json.loads(self.lines.wait_for('"ready"'))
        except Exception:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            self.close()
            if self.process.returncode == CANNOT:
                self.errors.finish()
                pytest.skip(self.errors.text().splitlines()[-1])
            raise AssertionError(f"nagle-lab {scenario} {arguments}: {self.errors.text()}") from None
        self.client: int = self.ready["client"]["pid"]
        self.server: int = self.ready["server"]["pid"]
        self._keep_networks()

    @property
    def port(self) -> str:
        """The server's port, of the first connection."""
        return str(self.ready["connections"][0]["server"].rpartition(":")[2])

    def go(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def result(self) -> Record:
        """Waits for the end, and returns what the application measured."""
        try:
            result: Record = json.loads(self.lines.wait_for('"type":"result"'))
        except AssertionError:
            if self.process.wait(PATIENCE) == CANNOT:
                self.errors.finish()
                pytest.skip(self.errors.text().splitlines()[-1])
            raise AssertionError(self.errors.text()) from None
        code = self.process.wait(PATIENCE)
        assert code == 0, self.errors.text()
        return result

    def play(self) -> Record:
        self.go()
        return self.result()

    def _keep_networks(self) -> None:
        """Keeps each namespace by a thread that lives there, through which the tracer reads its counters too.

        With a delay the lab's own lies between those of the ends, and their interfaces vanish with it.
        """
        paths = [Path(f"/proc/{pid}/ns/net") for pid in (self.client, self.server, self.process.pid)]
        networks = {os.stat(path).st_ino: path for path in paths}
        networks.pop(os.stat("/proc/self/ns/net").st_ino, None)
        there = threading.Barrier(len(networks) + 1)
        for path in networks.values():
            threading.Thread(target=stay_in_network, args=(path, there, self._closed), daemon=True).start()
        there.wait(PATIENCE)

    def close(self) -> None:
        self._closed.set()
        end(self.process)


class Tracer(Ends):
    """Runs nagletrace, which is attached when the constructor returns. It writes JSON unless a test wants text."""

    #: the --hooks of all tracers; conftest.py sets it
    hooks = "auto"

    def __init__(self, *arguments: str, text: bool = False, prefix: tuple[str, ...] = (),
                 environment: dict[str, str] | None = None) -> None:
        command = [*prefix, str(NAGLETRACE), *arguments]
        if "--hooks" not in arguments and self.hooks != "auto":
            command += ["--hooks", self.hooks]
        if not text:
            command.append("--json")
        self.json = not text
        self.confined = "--netns" in arguments
        self.others_began = timers_of_others()
        self.valid: list[tuple[float, Record]] = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **(environment or {})})
        self.errors = Lines(self.process.stderr)
        self.lines = Lines(self.process.stdout)
        try:
            self.errors.wait_for("nagletrace: ready")
        except BaseException:
            self.close()
            raise

    def _records(self) -> list[tuple[float, Record]]:
        """Returns all records so far, and validates each of them once."""
        for at, line in self.lines.all[len(self.valid):]:
            record = json.loads(line)
            assert_valid(record)
            self.valid.append((at, record))
        return self.valid

    def wait(self) -> None:
        """Waits until it ends by itself."""
        assert self.process.wait(PATIENCE) == 0, self.errors.text()
        self.lines.finish()
        self.errors.finish()
        if self.json:
            met.note(line for _, line in self.lines.all)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        self.process.send_signal(how)
        self.wait()

    def catch_up(self) -> None:
        """Waits until the tracer has told all that happened up to now. At its end it takes at most a third of a second.

        Between two looks for owners it rests, five times as long as a look takes, and says nothing meanwhile.
        """
        now, until, told, told_at = time.time(), time.monotonic() + PATIENCE, -1, time.monotonic()
        while time.monotonic() < min(until, told_at + REST):
            if told != len(self.lines.all):
                told, told_at = len(self.lines.all), time.monotonic()
                newest = json.loads(self.lines.all[-1][1]).get("time") if told else None
                if newest and day_s(newest) > now + REST:
                    break
            time.sleep(0.1)

    def records(self, kind: str) -> list[Record]:
        return [record for _, record in self._records() if record["type"] == kind]

    def arrivals(self, kind: str) -> list[tuple[float, Record]]:
        return [(at, record) for at, record in self._records() if record["type"] == kind]

    def stalls(self) -> list[Record]:
        return self.records("stall")

    def closing(self) -> Record:
        """Returns the closing report, which is the last line."""
        last = self._records()[-1][1]
        assert last["type"] == "report" and last["closing"]
        return last

    def close(self) -> None:
        kill(self.process)


def run(*arguments: str, prefix: tuple[str, ...] = (), environment: dict[str, str] | None = None
        ) -> subprocess.CompletedProcess[str]:
    """Runs nagletrace to its end, for commands that end by themselves."""
    return subprocess.run([*prefix, str(NAGLETRACE), *arguments], capture_output=True, text=True,
                          timeout=PATIENCE, env={**os.environ, **(environment or {})})


def seconds_to_end(process: subprocess.Popen[Any], how: signal.Signals = signal.SIGINT) -> float:
    began = time.monotonic()
    process.send_signal(how)
    process.wait(PATIENCE)
    return time.monotonic() - began


def trace(lab: Lab, *arguments: str, **more: Any) -> tuple[Record, Tracer]:
    """Plays the lab under a trace. Returns what the application measured, and the tracer, which has ended.

    more: what Tracer takes by name.
    """
    with Tracer(*arguments, **more) as tracer:
        result = lab.play()
        if tracer.process.poll() is None:
            # the record of the last stall comes before the process that made it ends
            try:
                tracer.stop()
            except ProcessLookupError:
                tracer.wait()
        else:
            tracer.wait()
    return result, tracer


def of_lab(lab: Lab, records: list[Record]) -> list[Record]:
    """Returns the records of this lab's connections, in case the trace covers the whole host and others use it too."""
    connections = [{c["client"], c["server"]} for c in lab.ready["connections"]]
    spaces = {lab.ready["client"]["netns"], lab.ready["server"]["netns"]}
    return [r for r in records
            if {r["sender"]["address"], r["receiver"]["address"]} in connections and own_end(r)["netns"] in spaces]


def dropped(record: Record) -> Record:
    """Returns how many records found no room, by place.

    It leaves out the programs that the kernel skipped for another on the same CPU, which may be anybody's: the tracer
    makes up for them.
    """
    return {place: count for place, count in record["dropped"].items() if count and place != "recursion"}


def slow_rounds(result: Record) -> list[Record]:
    """Returns the rounds in which the application waited so long that it was a stall or a retransmission."""
    return [r for r in result["rounds"] if r["latency_us"] >= STALLED_US]


def stalled_rounds(result: Record) -> list[Record]:
    """Returns the rounds in which the application felt a stall, without those that a retransmission explains."""
    retransmitted = any(result[end]["counters"]["TcpRetransSegs"] for end in ("client", "server"))
    most = RETRANSMITTED_US if retransmitted else float("inf")
    return [r for r in slow_rounds(result) if r["latency_us"] < most]


def felt_stalls(result: Record) -> int:
    """Returns how many stalls the application felt.

    In a guest that stands still it may read, and so acknowledge, as late as a timer would, and the kernel counts fewer
    timers: then these are as many.
    """
    timers = max(result[end]["counters"]["TcpExtDelayedACKs"] for end in ("client", "server"))
    felt = len(stalled_rounds(result))
    return min(felt, timers) if IN_GUEST and timers else felt


def assert_felt(result: Record, told: int, missing: int = 0) -> None:
    """Asserts that as many stalls are told as the application felt, at least one.

    missing: so many may lack. A round during which a segment was sent again may be a stall or not: where the machine
    stood still for longer than a retransmission takes, the delayed ACK came besides.
    """
    felt, slow = felt_stalls(result), len(slow_rounds(result))
    assert max(1, felt - missing) <= told <= slow, [round(r["latency_us"]) for r in result["rounds"]]


def day_s(time_of_day: str) -> float:
    """Returns a time that a record has, in s since 1970."""
    return datetime.datetime.fromisoformat(time_of_day).timestamp()


def unseen(tracer: Tracer) -> int:
    """Returns how many delayed ACKs a timer sent where the kernel runs no BPF program, by the tracer's own audit.

    If the tracer sees the sender, it reports their stalls all the same, as inferred. If it sees the receiver's end
    alone, so many stalls may be missing, and no more. Of a tracer that looks at others' namespaces, too, those that may
    be theirs do not count.
    """
    theirs = 0 if tracer.confined else timers_of_others() - tracer.others_began
    return max(0, int(tracer.closing().get("unseen", 0)) - theirs)


def lacking(tracer: Tracer) -> int:
    """Returns how many stalls may be missing: as many as timers went unseen, but for those whose stall is reported as
    inferred from the sender's end."""
    return max(0, unseen(tracer) - len(at_the_sender_alone(tracer.stalls())))


def at_the_sender_alone(stalls: list[Record]) -> list[Record]:
    """Returns the stalls that the sender's end alone showed."""
    return [s for s in stalls
            if s["evidence"] == "inferred" and s["side"] == "sender" and "netns" not in s["receiver"]]


def seen_at_both(tracer: Tracer, stalls: list[Record]) -> list[Record]:
    """Returns the stalls that both ends on this host showed. Asserts that the audit allows for the others."""
    inferred = at_the_sender_alone(stalls)
    assert len(inferred) <= unseen(tracer), inferred
    return [s for s in stalls if s not in inferred]


def nearest(felt: Sequence[float], told: Sequence[float], missing: int) -> Sequence[float]:
    """Chooses as many felt rounds as stalls were told (in us), those that fit best: none is shorter than its stall, if
    that can be. It leaves out at most `missing` rounds."""
    if not 0 < len(felt) - len(told) <= missing:
        return felt
    return min(itertools.combinations(felt, len(told)), key=lambda some: (any(a < b - 500 for a, b in zip(some, told)),
                                                                          sum(abs(a - b) for a, b in zip(some, told))))


def assert_durations_match(rounds: list[Record], stalls: list[Record], missing: int = 0) -> None:
    """Asserts that each round has one stall, in order, no longer than the application waited, in a quiet round as long.

    missing: so many rounds may have none.

    The application's clock runs on while it is not scheduled: beside other programs most rounds last longer than their
    stall, and in an emulated guest all do, by 10 ms and more. The wire is the better witness (test_truth.py). A round
    that took much longer than a delayed ACK shows that the guest stood still: nobody knows whether it was a stall too.
    """
    told = [s["duration_us"] for s in stalls]
    if IN_GUEST:
        missing += sum(r["latency_us"] >= STOOD_STILL_US for r in rounds)
    felt = nearest([round(r["latency_us"]) for r in rounds], told, missing)
    assert len(told) == len(felt), f"felt {felt}, told {told}"
    shorter = [latency - duration for latency, duration in zip(felt, told)]
    assert not shorter or min(shorter) >= -500, f"felt {felt}, told {told}"
    may_lack_a_quiet_one = IN_GUEST or len(shorter) < FEW
    assert not shorter or min(shorter) <= (20_000 if may_lack_a_quiet_one else 2_000), f"felt {felt}, told {told}"
    assert not shorter or statistics.median(shorter) <= 20_000, f"felt {felt}, told {told}"
