# SPDX-License-Identifier: GPL-2.0
"""A run of the lab under the tracer, with the wire captured: what the witnesses saw beside what was reported."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import IN_GUEST, PATIENCE, ROOT, Lab, Lines, Record, Tracer, skip_when_late

sys.path.insert(0, str(ROOT / "tests" / "witness"))
import score  # noqa: E402
import wire  # noqa: E402

MS = 1_000_000
#: How exact clocks are: an emulated guest may be away for milliseconds between two instructions, and the ticks that it
#: makes up for then end a delayed ACK of 40 ms after 8.
DOUBT = score.Doubt(minimum=5 * MS, late=8 * MS, early=25 * MS) if IN_GUEST else score.Doubt()
AT_ONCE = 25 * MS if IN_GUEST else 2 * MS
TOLERANCE = 60 * MS if IN_GUEST else 5 * MS


class Capture:
    """tcpdump on an interface of a process's network namespace, capturing when the constructor returns."""

    def __init__(self, pid: int, interface: str, path: Path) -> None:
        self.path = path
        command = ["nsenter", "-t", str(pid), "-n", *wire.tcpdump_command(interface, str(path))]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.errors = Lines(self.process.stderr)
        try:
            self.errors.wait_for("listening on")
        except BaseException:
            self.close()
            raise

    def end(self) -> None:
        """Nothing may have been lost, for then the wire would be no witness."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)
        self.errors.finish()
        dropped = re.search(r"(\d+) packets? dropped by kernel", self.errors.text())
        assert dropped and dropped[1] == "0", self.errors.text()

    def segments(self) -> list[wire.Segment]:
        self.end()
        return wire.read(self.path)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@dataclass
class Played:
    """What a lab left that has played: the application's account and the wire's, read when somebody asks for them."""

    name: str
    ready: Record
    result: Record
    log: list[str]
    clock: int
    directory: tempfile.TemporaryDirectory[str]
    captures: list[Path]

    @functools.cached_property
    def lines(self) -> list[Record]:
        return [json.loads(line) for line in self.log]

    @functools.cached_property
    def at_client(self) -> list[wire.Segment]:
        return wire.read(self.captures[0])

    @functools.cached_property
    def at_server(self) -> list[wire.Segment]:
        return wire.read(self.captures[1]) if len(self.captures) > 1 else self.at_client

    @property
    def over_veth(self) -> bool:
        return bool(self.ready["over"] == "veth")


@dataclass
class Run:
    """What one run left: the witnesses' stalls, the tracer's records and totals, and the score of the two."""

    score: score.Score
    stalls: list[score.Stall]
    records: list[Record]
    closing: Record
    played: Played

    @property
    def result(self) -> Record:
        return self.played.result

    def wrong(self) -> str:
        """What was missed or invented, and what went on about the first of it; "" when nothing was."""
        told = self.score.wrong()
        disputed = [(s.ended, s.sender, s.receiver) for s in self.score.missed]
        disputed += [(score.when(r), *score.ends_of(r)) for r in self.score.false]
        return told + self.about(*min(disputed)) if told and disputed else told

    def about(self, at: int, sender: str, receiver: str) -> str:
        """The wire at both ends and the application's calls, in ms before and after a time (ns since the epoch)."""
        played, seen = self.played, list[tuple[int, str]]()
        for place, segments in (("client's end", played.at_client), ("server's end", played.at_server)):
            seen += [(s.time, f"{place}: {s.source} seq {s.seq} len {s.length} ack {s.ack} win {s.window} "
                              f"flags {s.flags}{' sack' if s.sack else ''}")
                     for s in segments if {s.source, s.destination} == {sender, receiver}]
        number = next((i for i, c in enumerate(played.result["connections"])
                       if {c["client"], c["server"]} == {sender, receiver}), None)
        seen += [(e["start_ns"] + played.clock, " ".join(f"{key} {value}" for key, value in e.items()
                                                       if key not in ("type", "connection", "start_ns")))
                 for e in played.lines if e["type"] == "event" and e["connection"] == number]
        seen = [(time, what) for time, what in sorted(seen) if at - 150 * MS <= time <= at + 50 * MS]
        return "\n" + "\n".join(f"{(time - at) / MS:10.3f} ms  {what}" for time, what in seen)


def clock_offset() -> int:
    """ns from CLOCK_MONOTONIC to the epoch."""
    before = time.monotonic_ns()
    epoch = time.time_ns()
    return epoch - (before + time.monotonic_ns()) // 2


def captures_of(lab: Lab, directory: Path) -> list[Capture]:
    if lab.ready["over"] != "veth":
        return [Capture(lab.client, "lo", directory / "lo.pcap")]
    captures = []
    try:
        captures.append(Capture(lab.client, "lab-client", directory / "client.pcap"))
        captures.append(Capture(lab.server, "lab-server", directory / "server.pcap"))
    except BaseException:
        for capture in captures:
            capture.close()
        raise
    return captures


def slept_us(lines: list[Record], result: Record) -> dict[tuple[int, int], float]:
    """What the application itself waited in each (connection, round): between its calls, at both ends."""
    slept: dict[tuple[int, int], float] = {}
    spans: dict[tuple[str, int, int], tuple[int, float]] = {}
    for event in lines:
        if event["type"] != "event" or event["op"] in ("close", "shutdown"):
            continue
        key = (event["end"], event["connection"], event["round"])
        last, idle = spans.get(key, (event["start_ns"], 0.0))
        spans[key] = (event["end_ns"], idle + (event["start_ns"] - last) / 1000)
    for (_, connection, number), (_, idle) in spans.items():
        slept[connection, number] = slept.get((connection, number), 0.0) + idle
    return slept


def application_stalls(lines: list[Record], result: Record) -> int:
    """Rounds in which the application waited 30 ms and more for the other end, its own sleeps taken off."""
    slept = slept_us(lines, result)
    return sum(r["latency_us"] - slept.get((r["connection"], r["round"]), 0.0) >= 30_000 for r in result["rounds"])


def delayed_acks(result: Record, over_veth: bool) -> int:
    ends = ("client", "server") if over_veth else ("server",)
    return sum(result[end]["counters"]["TcpExtDelayedACKs"] for end in ends)


def visible(stalls: list[score.Stall], result: Record, only: str) -> list[score.Stall]:
    """As the one end can know them; a cork at the other shows nothing here."""
    here = {connection[only] for connection in result["connections"]}
    from_here = [s for s in stalls if s.sender in here]
    there = [s for s in stalls if s.sender not in here and s.cause != "cork_ceiling"]
    return from_here + score.seen_by_receiver(there, MS if IN_GUEST else 3 * MS)


def lab_for(scenario: str, *arguments: str) -> Lab:
    """One in namespaces of its own, with its events."""
    where = () if "veth" in arguments or "--peer-delack" in arguments else ("--own-netns",)
    return Lab(scenario, "--late-connect", "--events", *where, *arguments)


def play(lab: Lab, name: str) -> Played:
    """Under capture."""
    directory = tempfile.TemporaryDirectory()
    captures = captures_of(lab, Path(directory.name))
    try:
        result = lab.play()
        clock = clock_offset()
        for capture in captures:
            capture.end()
    finally:
        for capture in captures:
            capture.close()
    log = [line for _, line in lab.lines.all]
    return Played(name, lab.ready, result, log, clock, directory, [capture.path for capture in captures])


def judge(played: Played, tracer: Tracer, only: str | None = None, limits: wire.Limits | None = None,
          tolerance: int = TOLERANCE) -> Run:
    """What the tracer, which has ended, said of what was played."""
    spaces = {played.ready["client"]["netns"], played.ready["server"]["netns"]}
    records = [r for r in tracer.stalls() if r["netns"] in spaces]
    result = played.result
    mss = max(end["snd_mss"] for end in result["client"]["tcp_info"] + result["server"]["tcp_info"])
    stalls = score.truth(played.at_client, played.at_server, played.lines, played.clock, mss,
                         limits or wire.Limits(at_once=AT_ONCE), DOUBT)
    name = played.name
    if only:
        stalls = visible(stalls, result, only)
        name += f" (only the {only}'s end)"
    made = score.compare(name, stalls, records, tolerance)
    made.application = application_stalls(played.lines, result)
    made.kernel = delayed_acks(result, played.over_veth)
    return Run(made, stalls, records, tracer.closing(), played)


def witness(scenario: str, *arguments: str, tracer_arguments: tuple[str, ...] = (), only: str | None = None,
            limits: wire.Limits | None = None, tolerance: int = TOLERANCE,
            around: contextlib.AbstractContextManager[None] | None = None) -> Run:
    """Plays the lab under capture and trace.

    only: the one end ("client" or "server") whose namespace is traced. around: what holds while it plays.
    """
    with around or contextlib.nullcontext(), lab_for(scenario, *arguments) as lab:
        filters = ("--netns", str(lab.ready[only]["pid"])) if only else ()
        with Tracer(*filters, *tracer_arguments) as tracer:
            played = play(lab, " ".join((scenario, *arguments)))
            tracer.stop()
    return judge(played, tracer, only, limits, tolerance)


class Together:
    """Labs that play one after another under one tracer of the whole host.

    In an emulated guest a tracer takes 8 s to start, and what is played seldom more than 2.
    """

    #: So many at most: what is wrong with one tracer shall not cost all.
    AT_ONCE = 12

    def __init__(self, wanted: list[tuple[str, ...]]) -> None:
        """wanted: the scenario and the arguments of each."""
        self.waiting = list(dict.fromkeys(wanted))
        self.runs: dict[tuple[str, ...], Run | BaseException] = {}

    def witness(self, *lab: str) -> Run:
        """One of the wanted; whoever asks for it again has it played again, by itself."""
        while lab in self.waiting:
            some, self.waiting = self.waiting[:self.AT_ONCE], self.waiting[self.AT_ONCE:]
            self._play(some)
        run = self.runs.pop(lab, None) or witness(*lab)
        if isinstance(run, BaseException):
            raise run
        return run

    def _play(self, some: list[tuple[str, ...]]) -> None:
        played: dict[tuple[str, ...], Played] = {}
        # all are there before the first plays: the number of a namespace that is gone is given again
        with contextlib.ExitStack() as stack:
            labs = {}
            for arguments in some:
                with self._keeping(arguments):
                    skip_when_late()
                    labs[arguments] = stack.enter_context(lab_for(*arguments, "--timeout", "1200s"))
            try:
                with Tracer() as tracer:
                    for arguments, lab in labs.items():
                        with self._keeping(arguments):
                            skip_when_late()
                            played[arguments] = play(lab, " ".join(arguments))
                    tracer.stop()
            except Exception as error:
                self.runs |= {arguments: error for arguments in played}
                return
        for arguments, one in played.items():
            with self._keeping(arguments):
                self.runs[arguments] = judge(one, tracer)

    @contextlib.contextmanager
    def _keeping(self, arguments: tuple[str, ...]) -> Iterator[None]:
        """What becomes of it in the block, for the test whose it is."""
        try:
            yield
        except (Exception, pytest.skip.Exception) as error:
            self.runs[arguments] = error
