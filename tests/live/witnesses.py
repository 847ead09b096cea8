# SPDX-License-Identifier: GPL-2.0
"""A run of the lab under the tracer, with the wire captured: what the witnesses saw beside what was reported."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness import IN_GUEST, PATIENCE, ROOT, Lab, Lines, Record, Tracer

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

    def segments(self) -> list[wire.Segment]:
        """Ends the capture; nothing may have been lost, for then the wire would be no witness."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)
        self.errors.finish()
        dropped = re.search(r"(\d+) packets? dropped by kernel", self.errors.text())
        assert dropped and dropped[1] == "0", self.errors.text()
        return wire.read(self.path)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@dataclass
class Run:
    """What one run left: the witnesses' stalls, the tracer's records and totals, and the score of the two."""

    score: score.Score
    stalls: list[score.Stall]
    records: list[Record]
    closing: Record
    result: Record
    at_client: list[wire.Segment]
    at_server: list[wire.Segment]
    lines: list[Record]
    clock: int

    def wrong(self) -> str:
        """What was missed or invented, and what went on about the first of it; "" when nothing was."""
        told = self.score.wrong()
        disputed = [(s.ended, s.sender, s.receiver) for s in self.score.missed]
        disputed += [(score.when(r), *score.ends_of(r)) for r in self.score.false]
        return told + self.about(*min(disputed)) if told and disputed else told

    def about(self, at: int, sender: str, receiver: str) -> str:
        """The wire at both ends and the application's calls, in ms before and after a time (ns since the epoch)."""
        seen: list[tuple[int, str]] = []
        for place, segments in (("client's end", self.at_client), ("server's end", self.at_server)):
            seen += [(s.time, f"{place}: {s.source} seq {s.seq} len {s.length} ack {s.ack} win {s.window} "
                              f"flags {s.flags}{' sack' if s.sack else ''}")
                     for s in segments if {s.source, s.destination} == {sender, receiver}]
        number = next((i for i, c in enumerate(self.result["connections"])
                       if {c["client"], c["server"]} == {sender, receiver}), None)
        seen += [(e["start_ns"] + self.clock, " ".join(f"{key} {value}" for key, value in e.items()
                                                       if key not in ("type", "connection", "start_ns")))
                 for e in self.lines if e["type"] == "event" and e["connection"] == number]
        seen = [(time, what) for time, what in sorted(seen) if at - 150 * MS <= time <= at + 50 * MS]
        return "\n" + "\n".join(f"{(time - at) / MS:10.3f} ms  {what}" for time, what in seen)


def clock_offset() -> int:
    """ns from CLOCK_MONOTONIC to the epoch."""
    before = time.monotonic_ns()
    epoch = time.time_ns()
    return epoch - (before + time.monotonic_ns()) // 2


def is_over_veth(lab: Lab) -> bool:
    return lab.ready["over"] == "veth"


def captures_of(lab: Lab, directory: Path) -> list[Capture]:
    if not is_over_veth(lab):
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


def witness(scenario: str, *arguments: str, tracer_arguments: tuple[str, ...] = (), only: str | None = None,
            limits: wire.Limits | None = None, tolerance: int = TOLERANCE,
            around: contextlib.AbstractContextManager[None] | None = None) -> Run:
    """Plays the lab under capture and trace.

    only: the one end ("client" or "server") whose namespace is traced. around: what holds while it plays.
    """
    where = () if "veth" in arguments or "--peer-delack" in arguments else ("--own-netns",)
    with around or contextlib.nullcontext(), tempfile.TemporaryDirectory() as directory, \
            Lab(scenario, "--late-connect", "--events", *where, *arguments) as lab:
        filters = ("--netns", str(lab.ready[only]["pid"])) if only else ()
        with Tracer(*filters, *tracer_arguments) as tracer:
            captures = captures_of(lab, Path(directory))
            try:
                result = lab.play()
                clock = clock_offset()
                tracer.stop()
                segments = [capture.segments() for capture in captures]
            finally:
                for capture in captures:
                    capture.close()
        lines = [json.loads(line) for _, line in lab.lines.all]
    spaces = {lab.ready["client"]["netns"], lab.ready["server"]["netns"]}
    records = [r for r in tracer.stalls() if r["netns"] in spaces]
    mss = max(end["snd_mss"] for end in result["client"]["tcp_info"] + result["server"]["tcp_info"])
    stalls = score.truth(segments[0], segments[-1], lines, clock, mss,
                         limits or wire.Limits(at_once=AT_ONCE), DOUBT)
    name = " ".join((scenario, *arguments))
    if only:
        stalls = visible(stalls, result, only)
        name += f" (only the {only}'s end)"
    made = score.compare(name, stalls, records, tolerance)
    made.application = application_stalls(lines, result)
    made.kernel = delayed_acks(result, is_over_veth(lab))
    return Run(made, stalls, records, tracer.closing(), result, segments[0], segments[-1], lines, clock)
