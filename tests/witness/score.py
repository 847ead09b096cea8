# SPDX-License-Identifier: GPL-2.0
"""What really happened, from the wire and the application's log together, and how the tracer's records compare.

The wire (wire.py) shows a small segment leave right after a late ACK; the application's log says when its bytes were
written and which options were set. A stall is real when both agree: written before the ACK came, held until it did.
Nothing here shares code or an assumption about the kernel's state with the tracer.
"""

from __future__ import annotations

import bisect
import functools
import statistics
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import wire

Record = dict[str, Any]
MS = 1_000_000
#: The tracer's --min: what is held for less is not asked for.
MINIMUM = 1 * MS
#: A cork that nobody opens is opened by the probe timer, after one RTO: 200 ms and more.
CEILING = 190 * MS


@dataclass(frozen=True)
class Write:
    offset: int
    length: int
    start: int  # ns since the epoch, as all times here
    end: int
    more: bool


@dataclass
class Log:
    """What the application did on one end of one connection."""

    writes: list[Write] = field(default_factory=list)
    #: (time of the call's start, of its end, option, value)
    options: list[tuple[int, int, str, int]] = field(default_factory=list)

    def write_of(self, offset: int) -> Write | None:
        """The write that queued the byte at this stream offset."""
        i = bisect.bisect_right(self.writes, offset, key=lambda w: w.offset) - 1
        if i < 0 or offset >= self.writes[i].offset + self.writes[i].length:
            return None
        return self.writes[i]

    def nagle_since(self, offset: int, last_offset: int, before: int) -> int:
        """Since when these bytes were left to Nagle alone: written, the last MSG_MORE followed, the cork opened; or
        since when nothing but MSG_MORE held them, where all that was written last had it."""
        first, last = (bisect.bisect_right(self.writes, o, key=lambda w: w.offset) - 1 for o in (offset, last_offset))
        since = self.writes[first].start
        while last > first and self.writes[last].more and self.writes[last - 1].more:
            last -= 1
        for i in range(first, last):
            if self.writes[i].more:
                since = self.writes[i + 1].start
        opened = [start for start, _, option, value in self.options
                  if option in ("TCP_CORK", "TCP_NODELAY") and not value and since < start <= before]
        return max([since, *opened])

    def writes_of(self, begin: int, end: int) -> list[Write]:
        """The writes that wrote these bytes."""
        return [w for w in self.writes if w.offset < end and w.offset + w.length > begin]

    def sizes_around(self, begin: int, end: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of the writes that wrote these bytes, and of the one before them, alone or with parts that had MSG_MORE."""
        held = tuple(w.length for w in self.writes_of(begin, end))
        sent: list[int] = [0]
        for write in reversed(self.writes):
            if write.offset + write.length == begin - sent[-1] and (len(sent) == 1 or write.more):
                sent.append(sent[-1] + write.length)
        return held, tuple(sent[1:])

    def option_at(self, name: str, time: int) -> int:
        """Its value at this time, as far as calls that had returned set it."""
        value = 0
        for _, end, option, to in self.options:
            if option == name and end <= time:
                value = to
        return value

    def changed_within(self, name: str, since: int, until: int) -> bool:
        return any(option == name and end >= since and start <= until for start, end, option, _ in self.options)


@dataclass(frozen=True)
class Stall:
    """A stall that the witnesses saw."""

    cause: str
    sender: str
    receiver: str
    ended: int
    duration: int  # since the write began, at most
    #: too close to a limit to demand it or to forbid it, and why
    doubt: str = ""
    #: ns from the ACK's departure to the released segment's arrival, at the receiver
    answered: int = 0
    #: ns for which the receiver's ACK was pending
    pending: int = 0
    #: how long before it ended the ACK had come; between the two the machine may have stood still, and clocks differ
    released_before: int = 0
    #: ns since the write was over
    least: int = 0
    #: the sizes of the writes that wrote what was held, and what the one before them may count as; none where nobody
    #: logged them
    held: tuple[int, ...] = ()
    sent: tuple[int, ...] = ()


@dataclass
class Score:
    scenario: str
    application: int = 0
    wire: int = 0
    kernel: int | None = None
    reported: int = 0
    matched: int = 0
    doubtful: int = 0
    missed: list[Stall] = field(default_factory=list)
    false: list[Record] = field(default_factory=list)
    errors_us: list[float] = field(default_factory=list)
    #: records whose writes are not those of the log
    other_writes: list[str] = field(default_factory=list)

    @property
    def median_error_us(self) -> float:
        return statistics.median(self.errors_us) if self.errors_us else 0.0

    def wrong(self) -> str:
        """What was missed or invented, shortly; "" when nothing was."""
        told = [f"missed: {s.sender} -> {s.receiver} {s.cause} {s.duration / MS:.1f} ms, ended {s.ended}, "
                f"answered after {s.answered / MS:.1f} ms" for s in self.missed]
        told += [f"false: {' -> '.join(ends_of(r))} {r['cause']} {r['duration_us'] / 1000:.1f} ms, ended {when(r)}: {r}"
                 for r in self.false]
        told += [f"other writes: {text}" for text in self.other_writes]
        return "\n".join([self.line(), *told[:6]]) if told else ""

    def line(self) -> str:
        kernel = "-" if self.kernel is None else str(self.kernel)
        worst = max(self.errors_us, default=0.0)
        return (f"{self.scenario:<44} application {self.application:>4}  wire {self.wire:>4}  kernel {kernel:>4}  "
                f"reported {self.reported:>4}  matched {self.matched:>4}  missed {len(self.missed)}  "
                f"false {len(self.false)}  doubtful {self.doubtful}  "
                f"error {self.median_error_us:.0f} us, at most {worst:.0f}")


def read_logs(lines: list[Record], clock: int) -> dict[tuple[str, str], Log]:
    """Of nagle-lab --events: the log of each (sender, receiver). clock: ns from CLOCK_MONOTONIC to the epoch."""
    result = next(line for line in lines if line["type"] == "result")
    logs: dict[tuple[str, str], Log] = defaultdict(Log)
    for event in lines:
        if event["type"] != "event":
            continue
        ends = addresses(event, result)
        log = logs[ends if event["end"] == "client" else (ends[1], ends[0])]
        start, end = event["start_ns"] + clock, event["end_ns"] + clock
        if event["op"] == "write" and event["result"] > 0:
            log.writes.append(Write(event["offset"], event["result"], start, end, event.get("flags") == "MSG_MORE"))
        elif event["op"] == "setsockopt" and isinstance(event["value"], int):
            log.options.append((start, end, event["option"], event["value"]))
    for log in logs.values():
        log.writes.sort(key=lambda w: w.offset)
        log.options.sort()
    return logs


def addresses(event: Record, result: Record) -> tuple[str, str]:
    """(client, server); where each round has a connection of its own, by the client's port."""
    if "port" not in event:
        connection = result["connections"][event["connection"]]
        return connection["client"], connection["server"]
    return f"port {event['port']}", "server"


def log_of(logs: dict[tuple[str, str], Log], sender: str, receiver: str, client: str) -> Log:
    if (sender, receiver) in logs:
        return logs[sender, receiver]
    port = "port " + client.rsplit(":", 1)[1]
    return logs.get((port, "server") if sender == client else ("server", port), Log())


def usable(log: Log, segments: list[wire.Segment], sender: str) -> Log:
    """The log, or none where the stream has other bytes than the application wrote, as kernel TLS has."""
    written = sum(w.length for w in log.writes)
    seen = max((s.seq - 1 + s.length for s in segments if s.source == sender and s.length), default=0)
    return log if seen <= written else Log()


@dataclass(frozen=True)
class Doubt:
    """How near to a limit a measurement may be for a machine's clocks to decide it either way, in ns."""

    race: int = MS // 5
    minimum: int = MS // 2
    late: int = 2 * MS
    early: int = 2 * MS
    at_once: int = 20 * MS
    #: Segments may leave long before they are captured: full ones before an ACK that the capture shows before them.
    behind: bool = False
    #: Both ends are on one machine: a segment that takes longer from one to the other shows that it stood still, and
    #: what it would have done meanwhile nobody knows. None: ways may be as long as they like.
    way: int | None = None


def nagle_stalls(found: list[wire.WireStall], log: Log, limits: wire.Limits, doubt: Doubt) -> list[Stall]:
    stalls = []
    for s in found:
        write = log.write_of(s.offset)
        if write is None:  # nobody logged it
            stalls.append(Stall("nagle_delayed_ack", s.sender, s.receiver, s.left, s.waited, "", s.answered,
                                s.pending, least=s.waited))
            continue
        if write.start > s.ack_came:
            continue
        # what TCP_NODELAY, a cork or MSG_MORE governs is not Nagle's; as it is when the ACK comes, since what pacing
        # held before may be Nagle's now. MSG_MORE binds its own call only, and the next ACK sends what it held.
        last = log.write_of(s.offset + s.length - 1) or write
        if log.option_at("TCP_CORK", s.ack_came) or (log.option_at("TCP_NODELAY", s.ack_came) and not last.more):
            continue
        since = log.nagle_since(s.offset, s.offset + s.length - 1, s.ack_came)
        # what was written as the ACK was on its way waited for the way
        held = s.ack_left - since
        if held < MINIMUM - doubt.minimum or (s.behind and write.end < s.ack_came):
            continue
        why = ""
        if s.behind:
            why = "behind full segments of a write that the ACK came into"
        elif write.end > s.ack_came - doubt.race:
            why = "written as the ACK came"
        elif s.left > s.ack_came + limits.at_once:
            why = "left late after the ACK, as pacing or a machine that stood still may have it"
        elif held < MINIMUM + doubt.minimum or 2 * held < s.left - since:
            why = "held for hardly longer than --min"
        elif s.pending < limits.late + doubt.late:
            why = "pending for hardly long enough"
        elif any(log.changed_within(o, s.ack_came, s.left) for o in ("TCP_NODELAY", "TCP_CORK")):
            why = "an option set as the ACK came"
        # what Nagle holds waits for the same ACK whatever is added to it
        more = log.option_at("TCP_NODELAY", s.ack_came) or all(
            w.more for w in log.writes_of(s.offset, s.offset + s.length))
        cause = "delayed_ack" if more else "nagle_delayed_ack"
        stalls.append(Stall(cause, s.sender, s.receiver, s.left, s.left - since, why, s.answered,
                            s.pending, s.left - s.ack_came, s.left - max(since, write.end),
                            *log.sizes_around(s.offset, s.offset + s.length)))
    return stalls


def seen_by_receiver(stalls: list[Stall], slack: int = 3 * MS) -> list[Stall]:
    """As far as the receiver alone can tell: what comes much later than a round trip after its ACK may be chance."""
    prompt = min((s.answered for s in stalls), default=0)
    why = "answered later than a round trip"
    return [replace(s, doubt=s.doubt or why) if s.answered > prompt * 3 // 2 + slack else s for s in stalls]


def on_long_ways(stalls: list[Stall], ways: list[tuple[int, int]]) -> list[Stall]:
    """In doubt is what a segment was on such a way in, since the data came whose ACK was pending."""
    why = "a segment took long from one end to the other"
    return [replace(s, doubt=s.doubt or why)
            if any(came >= s.ended - max(s.duration, s.pending + s.answered) and left <= s.ended for left, came in ways)
            else s for s in stalls]


def ceiling_stalls(segments: list[wire.Segment], sender: str, receiver: str, mss: int, log: Log) -> list[Stall]:
    """Corked bytes that left, though they filled no segment and nobody had opened the cork, one RTO later."""
    stalls = []
    last = 0
    for s in segments:
        if (s.source, s.destination) != (sender, receiver) or not s.length or s.seq - 1 < last:
            continue
        last = s.seq - 1 + s.length
        write = log.write_of(s.seq - 1)
        if write is None or s.length >= mss or s.time - write.start < CEILING:
            continue
        since = s.time - CEILING
        corked = log.option_at("TCP_CORK", since) and not log.changed_within("TCP_CORK", since, s.time)
        newest = log.write_of(s.seq - 1 + s.length - 1) or write
        later = log.write_of(newest.offset + newest.length)
        forgotten = write.more and newest.more and (later is None or later.start > s.time)
        if corked or forgotten:
            stalls.append(Stall("cork_ceiling", sender, receiver, s.time, s.time - write.start,
                                least=s.time - write.end))
    return stalls


def truth(client_side: list[wire.Segment], server_side: list[wire.Segment], logs: dict[tuple[str, str], Log], mss: int,
          limits: wire.Limits | None = None, doubt: Doubt | None = None) -> list[Stall]:
    """Every stall of a run, both directions of all its connections. limits: wire.Limits of this run."""
    limits, doubt = limits or wire.Limits(), doubt or Doubt()
    by_connection = split(client_side), split(server_side)
    stalls: list[Stall] = []
    for client, server in wire.connections(client_side):
        key = frozenset((client, server))
        at_client, at_server = by_connection[0][key], by_connection[1][key]
        for sender, receiver, here, there in ((client, server, at_client, at_server),
                                              (server, client, at_server, at_client)):
            log = usable(log_of(logs, sender, receiver, client), here, sender)
            # the log knows when TCP_NODELAY was on; without one the wire must tell
            small = 10**6 if log.writes else limits.small
            wide = wire.Limits(limits.late - doubt.early, limits.at_once + doubt.at_once, small, doubt.behind)
            found = wire.stalls(here, there, sender, receiver, mss, wide)
            judged = nagle_stalls(found, log, limits, doubt)
            stalls += judged if doubt.way is None else on_long_ways(judged, wire.long_ways(here, there, doubt.way))
            stalls += ceiling_stalls(here, sender, receiver, mss, log)
    return sorted(stalls, key=lambda s: s.ended)


def split(segments: list[wire.Segment]) -> dict[frozenset[str], list[wire.Segment]]:
    by_connection: dict[frozenset[str], list[wire.Segment]] = defaultdict(list)
    for s in segments:
        by_connection[frozenset((s.source, s.destination))].append(s)
    return by_connection


def when(record: Record) -> int:
    """The record's time in ns since the epoch; Python's datetime keeps microseconds."""
    return epoch_ns(record["time"])


@functools.cache
def epoch_ns(time: str) -> int:
    at = datetime.strptime(time, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
    return int(at.timestamp()) * 1_000_000_000 + at.microsecond * 1000


def ends_of(record: Record) -> tuple[str, str]:
    """(sender, receiver) of a record, whichever side it reports."""
    return record["sender"]["address"], record["receiver"]["address"]


def cause_of(record: Record) -> str:
    """The witnesses' cause that a record agrees with: the receiver's end alone does not know what waited."""
    unknown = record["cause"] == "delayed_ack" and record["reason"] == "unknown"
    return "nagle_delayed_ack" if unknown else str(record["cause"])


def other_writes(stall: Stall, record: Record) -> str:
    """What the record says of the sender's writes and the log does not; "" if they agree, or one of them is silent."""
    hold = record["sender"].get("hold", {})
    if not stall.held or "writes" not in hold:
        return ""
    alike = stall.held[0] if len(set(stall.held)) == 1 else None
    agree = (hold["writes"], hold.get("write_bytes")) == (len(stall.held), alike)
    if agree and ("sent_writes" not in hold or hold["in_flight_bytes"] in stall.sent):
        return ""
    return f"{stall.sender} wrote {stall.sent}, then {stall.held}; ended {stall.ended}: {hold}"


def apart(stall: Stall, record: Record) -> int:
    """How far the record's end is from the stall's, ns; of a doubtful one also from when its ACK came."""
    earliest = stall.ended - stall.released_before if stall.doubt else stall.ended
    return max(earliest - when(record), when(record) - stall.ended, 0)


def nearest_records(stalls: list[Stall], records: list[Record], tolerance: int) -> dict[int, int]:
    """The record of each stall, by their places, the nearest pairs first: a stall whose record is missing takes none of
    a later one. The doubtful come last, so that none takes a record that a certain one needs."""
    by_ends: dict[tuple[str, str, str], list[tuple[int, int]]] = defaultdict(list)
    for i in sorted(range(len(records)), key=lambda i: when(records[i])):
        by_ends[cause_of(records[i]), *ends_of(records[i])].append((when(records[i]), i))
    pairs = []
    for i, stall in enumerate(stalls):
        there = by_ends[stall.cause, stall.sender, stall.receiver]
        first = bisect.bisect_left(there, stall.ended - stall.released_before - tolerance, key=lambda one: one[0])
        for time, j in there[first:]:
            if time > stall.ended + tolerance:
                break
            if (distance := apart(stall, records[j])) <= tolerance:
                pairs.append((bool(stall.doubt), distance, i, j))
    matches: dict[int, int] = {}
    taken: set[int] = set()
    for _, _, i, j in sorted(pairs):
        if i not in matches and j not in taken:
            matches[i] = j
            taken.add(j)
    return matches


def compare(name: str, stalls: list[Stall], records: list[Record], tolerance: int = 5 * MS) -> Score:
    """Matches stall by stall: the same cause and direction, ended within tolerance (ns) of each other.

    A record from the receiver's end measures the pending ACK, not the hold, and is compared with that.
    """
    score = Score(name, wire=sum(not s.doubt for s in stalls), reported=len(records))
    matches = nearest_records(stalls, records, tolerance)
    for i, stall in enumerate(stalls):
        match = records[matches[i]] if i in matches else None
        if stall.doubt:
            score.doubtful += 1
        elif match is None:
            score.missed.append(stall)
        else:
            score.matched += 1
            if wrong := other_writes(stall, match):
                score.other_writes.append(wrong)
            duration = stall.duration if match["side"] == "sender" else stall.pending
            score.errors_us.append(abs(match["duration_us"] - duration / 1000))
    taken = set(matches.values())
    score.false = [record for i, record in enumerate(records) if i not in taken]
    return score
