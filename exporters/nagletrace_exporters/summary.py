# SPDX-License-Identifier: GPL-2.0
"""Sums a recording up in one pass and in bounded memory; what the bounds left out is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .recording import Record
from .records import Connection, Process, Report, Snapshot, Socket, Stall, Start
from .reports import MAX_WORDS, Reports, connection_key, count_word

#: Upper bounds of the histogram's buckets in ms, those of the daemon and the exporter.
BOUNDS_MS = (1, 5, 10, 20, 30, 35, 40, 45, 50, 75, 100, 150, 200, 250, 500, 1000, 2000)
#: Connections and processes told apart at a time; when there are more, the half that lost less is summed up.
MAX_GROUPS = 10_000
#: Points of the time line: every stall, every second, every fourth …, whatever stays below.
MAX_POINTS = 1500
#: Of the longest stalls none is left out of the time line.
LONGEST_POINTS = 40

Key = TypeVar("Key", bound=Hashable)


class Durations:
    """Durations on a logarithmic scale, told apart by about 3 %, to find percentiles by."""

    STEPS = 32

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.longest = 0

    def add(self, us: int) -> None:
        self.counts[self._bucket(us)] += 1
        self.longest = max(self.longest, us)

    def _bucket(self, us: int) -> int:
        shift = max(0, us.bit_length() - 6)
        return shift * self.STEPS + (us >> shift)

    def _highest(self, bucket: int) -> int:
        shift = max(0, bucket // self.STEPS - 1)
        return (((bucket - shift * self.STEPS) + 1) << shift) - 1

    def percentile(self, percent: int) -> int:
        """At least so many percent lasted no longer than this, and not much less."""
        wanted = -(-sum(self.counts.values()) * percent // 100)
        below = 0
        for bucket in sorted(self.counts):
            below += self.counts[bucket]
            if below >= wanted:
                return min(self._highest(bucket), self.longest)
        return 0


@dataclass
class Group:
    """Stalls that belong together: of a connection, of a process, or all."""

    process: Process = field(default_factory=Process)
    socket: Socket | None = None
    side: str = ""
    cause: str = ""
    stalls: int = 0
    lost_us: int = 0
    evidence: Counter[str] = field(default_factory=Counter)
    patterns: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    durations: Durations = field(default_factory=Durations)

    def add(self, stall: Stall) -> None:
        self.stalls += 1
        self.lost_us += stall.excess_us
        self.durations.add(stall.duration_us)
        count_word(self.evidence, stall.evidence)
        count_word(self.patterns, stall.pattern)
        count_word(self.causes, stall.cause)

    def take(self, other: Group) -> None:
        self.stalls += other.stalls
        self.lost_us += other.lost_us
        self.durations.longest = max(self.durations.longest, other.durations.longest)


class Groups(Generic[Key]):
    """Groups by key, bounded: `folded` are those that had to make room, as one."""

    def __init__(self, most: int = MAX_GROUPS) -> None:
        self.most = most
        self.groups: dict[Key, Group] = {}
        self.folded_stalls = 0
        self.folded_us = 0

    def find(self, key: Key, process: Process, socket: Socket | None, stall: Stall) -> Group:
        group = self.groups.get(key)
        if group is None:
            if len(self.groups) >= self.most:
                self._fold()
            group = self.groups[key] = Group(process, socket, stall.side, stall.cause)
        return group

    def _fold(self) -> None:
        by_loss = sorted(self.groups, key=lambda key: (self.groups[key].lost_us, self.groups[key].stalls))
        for key in by_loss[:max(1, len(by_loss) // 2)]:
            group = self.groups.pop(key)
            self.folded_stalls += group.stalls
            self.folded_us += group.lost_us

    def top(self, most: int) -> list[Group]:
        """Those that lost most; among equals the one met first."""
        return sorted(self.groups.values(), key=lambda group: (-group.lost_us, -group.stalls))[:most]


@dataclass(frozen=True)
class Point:
    """A stall on the time line."""

    time_us: int
    duration_us: int
    cause: str
    evidence: str


class Slices:
    """Stalls by when they ended, in at most so many slices of time: the time line in figures."""

    #: us; each is some times the one before
    DAY_MS = 86_400_000
    WIDTHS_MS = (1, 5, 10, 50, 100, 500, 1000, 5000, 10_000, 60_000, 300_000, 600_000, 3_600_000, 14_400_000, DAY_MS,
                 DAY_MS * 10, DAY_MS * 100, DAY_MS * 1000, DAY_MS * 10_000, DAY_MS * 100_000, DAY_MS * 1000_000)

    def __init__(self, most: int = 24) -> None:
        self.most = most
        self.width = 0
        self.slices: dict[int, Group] = {}

    @property
    def width_us(self) -> int:
        return self.WIDTHS_MS[self.width] * 1000

    def add(self, stall: Stall) -> None:
        number = stall.time_us // self.width_us
        self._slice(number).add(stall)
        while max(self.slices) - min(self.slices) >= self.most:
            self._widen()

    def _slice(self, number: int) -> Group:
        return self.slices.setdefault(number, Group())

    def _widen(self) -> None:
        narrow, old = self.slices, self.width_us
        self.slices = {}
        self.width += 1
        for number in sorted(narrow):
            self._slice(number * old // self.width_us).take(narrow[number])


class Points:
    """An even choice of stalls: each k-th, and the longest."""

    def __init__(self, most: int = MAX_POINTS) -> None:
        self.most = most
        self.step = 1
        self.seen = 0
        self.kept: dict[int, Point] = {}
        self.longest: dict[int, Point] = {}
        self._shortest_of_them = 0

    def add(self, stall: Stall) -> None:
        number, self.seen = self.seen, self.seen + 1
        point = Point(stall.time_us, stall.duration_us, stall.cause, stall.evidence)
        if number % self.step == 0:
            self.kept[number] = point
            if len(self.kept) > self.most:
                self.step *= 2
                self.kept = {n: kept for n, kept in self.kept.items() if n % self.step == 0}
        if len(self.longest) < LONGEST_POINTS or point.duration_us > self._shortest_of_them:
            self.longest[number] = point
            if len(self.longest) > LONGEST_POINTS:
                del self.longest[min(self.longest, key=lambda n: (self.longest[n].duration_us, -n))]
            self._shortest_of_them = min(kept.duration_us for kept in self.longest.values())

    def chosen(self) -> list[Point]:
        both = {**self.kept, **self.longest}
        return [both[number] for number in sorted(both)]


class Summary:
    """All that the report shows, but for the ladders."""

    def __init__(self, max_groups: int = MAX_GROUPS, max_points: int = MAX_POINTS) -> None:
        self.starts: list[Start] = []
        self.traces = 0
        self.all = Group()
        self.by_connection: Groups[Hashable] = Groups(max_groups)
        self.by_process: Groups[Hashable] = Groups(max_groups)
        self.points = Points(max_points)
        self.slices = Slices()
        self.buckets = [0] * (len(BOUNDS_MS) + 1)
        self.first_us: int | None = None
        self.last_us: int | None = None
        self.reports = Reports(max_groups)
        self.snapshot: Snapshot | None = None
        #: what the tracer's reports say of connections; the last one says it
        self.advice: dict[Hashable, Connection] = {}
        self.max_groups = max_groups

    def add(self, record: Record | Snapshot) -> None:
        if isinstance(record, Stall):
            self._add_stall(record)
        elif isinstance(record, Start):
            self.traces += 1
            self.starts = [*self.starts, record][-MAX_WORDS:]
            self.reports.begin()
        elif isinstance(record, Report):
            self._add_report(record)
        elif isinstance(record, Snapshot):
            self.snapshot = record

    def _add_stall(self, stall: Stall) -> None:
        self.all.add(stall)
        for bucket, bound in enumerate(BOUNDS_MS):
            if stall.duration_us <= bound * 1000:
                self.buckets[bucket] += 1
                break
        else:
            self.buckets[-1] += 1
        self.points.add(stall)
        self.slices.add(stall)
        self.by_connection.find(connection_key(stall), stall.process, stall.socket, stall).add(stall)
        self.by_process.find((stall.process.pid, stall.process.comm), stall.process, None, stall).add(stall)
        began = stall.time_us - stall.duration_us
        self.first_us = began if self.first_us is None else min(self.first_us, began)
        self.last_us = stall.time_us if self.last_us is None else max(self.last_us, stall.time_us)

    def _add_report(self, report: Report) -> None:
        for connection in report.connections:
            key = connection_key(connection)
            self.advice.pop(key, None)
            self.advice[key] = connection
        while len(self.advice) > self.max_groups:
            del self.advice[next(iter(self.advice))]
        self.reports.add(report)

    def report(self) -> Report | None:
        """The tracer's own words of all that is recorded; None: it has not told any."""
        return self.reports.whole()
