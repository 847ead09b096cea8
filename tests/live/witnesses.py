# SPDX-License-Identifier: GPL-2.0
"""Runs the lab under the tracer and captures the wire, to compare what the witnesses saw with the reports."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import score
import wire
from ends import own_end
from harness import IN_GUEST, PATIENCE, Lab, Lines, Record, Tracer, lacking
from processes import kill

MS = 1_000_000
#: How exact clocks are. An emulated guest may stand still for milliseconds between two instructions. The ticks that it
#: then makes up for can end a delayed ACK of 40 ms after 8.
DOUBT = score.Doubt(minimum=5 * MS, late=8 * MS, early=25 * MS, behind=True) if IN_GUEST else score.Doubt()
AT_ONCE = 25 * MS if IN_GUEST else 2 * MS
TOLERANCE = 60 * MS if IN_GUEST else 5 * MS


class Capture:
    """Runs tcpdump on an interface of a process's network namespace. It captures when the constructor returns."""

    def __init__(self, pid: int, interface: str, path: Path) -> None:
        self.path = path
        self.interface = interface
        command = ["nsenter", "-t", str(pid), "-n", *wire.tcpdump_command(interface, str(path))]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.errors = Lines(self.process.stderr)
        try:
            self.errors.wait_for("listening on")
            first = self.counts()
            self.before = first[1] - first[0] if first else 0
        except BaseException:
            self.close()
            raise

    def counts(self) -> tuple[int, int] | None:
        """Returns how many packets tcpdump has read, and how many the kernel had for it. None: ask again."""
        self.process.send_signal(signal.SIGUSR1)
        numbers = re.findall(r"(\d+) packets? (?:captured|received by filter)",
                             self.errors.wait_for("received by filter"))
        # tcpdump writes the line in pieces, and another line may come between them
        return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None

    def read_all(self) -> None:
        """Waits until tcpdump has read all packets. It loses those that it has not read when it ends, and counts them
        nowhere.

        Packets that came before it set its filter, as a veth's first ones may, count as received, and tcpdump never
        reads them. Such a difference stays what it was at the begin.
        """
        each = 2 if self.interface == "lo" else 1  # a packet on lo goes out and comes in, and tcpdump captures it once
        begun = time.monotonic()
        while True:
            counts = self.counts()
            if counts:
                unread, waited = counts[1] - counts[0] * each, time.monotonic() - begun
                if not unread or (unread <= self.before and waited > 1):
                    return
                assert waited < PATIENCE, f"tcpdump has not read all: {counts}, {self.before} at the begin"
            time.sleep(0.01)

    def end(self) -> None:
        """Ends tcpdump, and asserts that the kernel dropped no packet: else the wire would be no witness."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)
        self.errors.finish()
        dropped = re.search(r"(\d+) packets? dropped by kernel\s*$", self.errors.text())
        assert dropped and dropped[1] == "0", self.errors.text()

    def close(self) -> None:
        kill(self.process)


def end_captures(captures: list[Capture]) -> None:
    """Ends all captures after each has read all packets. With the first, the namespace and the interface of the other
    may vanish."""
    for capture in captures:
        capture.read_all()
    for capture in captures:
        capture.end()


@dataclass
class Played:
    """The accounts that a lab left: the application's and the wire's. They are read when a test asks for them."""

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
    """The results of one run: the witnesses' stalls, the tracer's records and totals, and the score of the two."""

    score: score.Score
    stalls: list[score.Stall]
    records: list[Record]
    closing: Record
    played: Played
    lacking: int

    @property
    def result(self) -> Record:
        return self.played.result

    def wrong(self, may_be: int = 0) -> str:
        """Returns what the tracer missed or invented, and what went on around the first of it; "" if there is nothing.

        It may miss as many stalls as may be lacking: where the kernel runs no BPF program, a whole softirq runs unseen,
        and the sender's end may be part of it. No late ACK is lacking in what a cork held. may_be: so many more may be
        wrong: missed, invented, or told with other writes.
        """
        by_ack = sum(stall.cause != "cork_ceiling" for stall in self.score.missed)
        missed = len(self.score.missed) - min(by_ack, self.lacking + self.not_by_timer())
        # two connections may have one bucket, in which the kernel side keeps what it knows of the last one's writes
        other_writes = max(0, len(self.score.other_writes) - self.score.matched // 1000)
        if missed + len(self.score.false) + other_writes <= may_be:
            return ""
        told = self.score.wrong()
        disputed = [(s.ended, s.sender, s.receiver) for s in self.score.missed]
        disputed += [(score.when(r), *score.ends_of(r)) for r in self.score.false]
        return told + self.about(*min(disputed)) if told and disputed else told

    def not_by_timer(self) -> int:
        """Returns how many of the wire's late ACKs no timer sent, since the kernel counted fewer.

        In a guest that stands still an application may read, and so acknowledge, as late as a timer would.
        """
        if not IN_GUEST or self.score.kernel is None:
            return 0
        late = sum(s.cause == "nagle_delayed_ack" and not s.doubt for s in self.stalls)
        return max(0, late - self.score.kernel)

    def about(self, at: int, sender: str, receiver: str) -> str:
        """Shows the wire at both ends and the application's calls, in ms around a time (ns since the epoch)."""
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
    """Returns the ns from CLOCK_MONOTONIC to the epoch, by the two readings that were nearest to each other: between
    two others the machine may stand still for milliseconds."""
    def read() -> tuple[int, int]:
        before, epoch, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        return after - before, epoch - (before + after) // 2
    return min(read() for _ in range(100))[1]


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
    """Returns how long the application itself waited in each (connection, round): between its calls, at both ends."""
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
    """Counts the rounds in which the application waited 30 ms and more for the other end, without its own sleeps."""
    slept = slept_us(lines, result)
    return sum(r["latency_us"] - slept.get((r["connection"], r["round"]), 0.0) >= 30_000 for r in result["rounds"])


def delayed_acks(result: Record, over_veth: bool) -> int:
    ends = ("client", "server") if over_veth else ("server",)
    return sum(result[end]["counters"]["TcpExtDelayedACKs"] for end in ends)


def visible(stalls: list[score.Stall], played: Played, only: str, late: int) -> list[score.Stall]:
    """Returns the stalls as this one end can know them. A cork at the other end shows nothing here.

    late: the sender alone calls an ACK delayed if it is so many ns later than a prompt one, by the smallest round trip
    so far.
    """
    here = {connection[only] for connection in played.result["connections"]}
    segments = played.at_client if only == "client" else played.at_server
    there = [s for s in stalls if s.sender not in here and s.cause != "cork_ceiling"]
    from_here = []
    for stall in stalls:
        if stall.sender not in here:
            continue
        rtt = wire.min_rtt([s for s in segments if s.time < stall.ended], stall.sender, stall.receiver)
        begun = stall.ended - stall.duration
        sent = max((s.time for s in segments if s.source == stall.sender and s.length and s.time < begun + MS),
                   default=begun)
        if stall.cause == "nagle_delayed_ack" and (
                rtt is None or stall.duration - max(rtt - max(0, begun - sent), rtt // 2) < late + DOUBT.late):
            stall = replace(stall, doubt=stall.doubt or "hardly longer than the round trips so far")
        from_here.append(stall)
    return from_here + score.seen_by_receiver(there, MS if IN_GUEST else 3 * MS)


def lab_for(scenario: str, *arguments: str) -> Lab:
    """Starts a lab in namespaces of its own, which records its events."""
    where = () if "veth" in arguments else ("--own-netns",)
    return Lab(scenario, "--late-connect", "--events", *where, *arguments)


def play(lab: Lab, name: str) -> Played:
    """Plays the lab under capture."""
    directory = tempfile.TemporaryDirectory()
    captures = captures_of(lab, Path(directory.name))
    try:
        result = lab.play()
        clock = clock_offset()
        end_captures(captures)
    finally:
        for capture in captures:
            capture.close()
    log = [line for _, line in lab.lines.all]
    return Played(name, lab.ready, result, log, clock, directory, [capture.path for capture in captures])


def judge(played: Played, tracer: Tracer, only: str | None = None, limits: wire.Limits | None = None,
          tolerance: int = TOLERANCE, doubt: score.Doubt = DOUBT) -> Run:
    """Compares the records of the tracer, which has ended, with what the lab played."""
    spaces = {played.ready["client"]["netns"], played.ready["server"]["netns"]}
    records = [r for r in tracer.stalls() if own_end(r)["netns"] in spaces]
    result = played.result
    mss = max(end["snd_mss"] for end in result["client"]["tcp_info"] + result["server"]["tcp_info"])
    stalls = score.truth(played.at_client, played.at_server, score.read_logs(played.lines, played.clock), mss,
                         limits or wire.Limits(at_once=AT_ONCE), doubt)
    name = played.name
    if only:
        stalls = visible(stalls, played, only, (limits or wire.Limits()).late)
        name += f" (only the {only}'s end)"
    made = score.compare(name, stalls, records, tolerance)
    made.application = application_stalls(played.lines, result)
    made.kernel = delayed_acks(result, played.over_veth)
    return Run(made, stalls, records, tracer.closing(), played, lacking(tracer))


def witness(scenario: str, *arguments: str, tracer_arguments: tuple[str, ...] = (), only: str | None = None,
            limits: wire.Limits | None = None, tolerance: int = TOLERANCE,
            around: contextlib.AbstractContextManager[None] | None = None, doubt: score.Doubt = DOUBT) -> Run:
    """Plays the lab under capture and trace.

    only: the tracer sees the namespace of this end only, "client" or "server". around: a context to play in.
    """
    with around or contextlib.nullcontext(), lab_for(scenario, *arguments) as lab:
        filters = ("--netns", str(lab.ready[only]["pid"])) if only else ()
        with Tracer(*filters, *tracer_arguments) as tracer:
            played = play(lab, " ".join((scenario, *arguments)))
            tracer.stop()
    return judge(played, tracer, only, limits, tolerance, doubt)


class Together:
    """Plays labs one after another under one tracer of the whole host.

    In an emulated guest a tracer takes 8 s to start, while a lab seldom plays for more than 2 s.
    """

    #: At most so many labs share a tracer, so that a fault of one tracer does not cost all.
    AT_ONCE = 12

    def __init__(self, wanted: list[tuple[str, ...]]) -> None:
        """wanted: the scenario and the arguments of each lab."""
        self.waiting = list(dict.fromkeys(wanted))
        self.runs: dict[tuple[str, ...], Run | BaseException] = {}

    def witness(self, *lab: str) -> Run:
        """Returns the run of a wanted lab. If a test asks for it again, the lab plays again, by itself."""
        while lab in self.waiting:
            some, self.waiting = self.waiting[:self.AT_ONCE], self.waiting[self.AT_ONCE:]
            self._play(some)
        run = self.runs.pop(lab, None) or witness(*lab)
        if isinstance(run, BaseException):
            raise run
        return run

    def _play(self, some: list[tuple[str, ...]]) -> None:
        played: dict[tuple[str, ...], Played] = {}
        # All labs exist before the first plays, because the kernel reuses the number of a namespace that is gone.
        with contextlib.ExitStack() as stack:
            labs = {}
            for arguments in some:
                with self._keeping(arguments):
                    labs[arguments] = stack.enter_context(lab_for(*arguments, "--timeout", "1200s"))
            try:
                with Tracer() as tracer:
                    for arguments, lab in labs.items():
                        with self._keeping(arguments):
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
        """Keeps an error of the block for the test that the lab belongs to."""
        try:
            yield
        except (Exception, pytest.skip.Exception) as error:
            self.runs[arguments] = error
