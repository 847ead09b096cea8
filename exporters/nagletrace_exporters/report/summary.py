# SPDX-License-Identifier: GPL-2.0
"""Sums a recording up in one pass and in bounded memory, and counts what the bounds leave out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from ..recording import Record
from ..records import Connection, Process, Report, Snapshot, Socket, Stall, Start
from ..reports import MAX_GROUPS, MAX_WORDS, Reports, connection_key, count_word
from .durations import Durations, Histogram

#: About the most bytes of the groups of each kind, and of the tracer's reports of connections.
MAX_GROUP_BYTES = 48 << 20
MAX_ADVICE_BYTES = 32 << 20
#: The most points of the time line: it shows every stall, every second, every fourth … as the limit allows.
MAX_POINTS = 1500
#: How many of the longest stalls the time line always shows.
LONGEST_POINTS = 40

Key = TypeVar("Key", bound=Hashable)


@dataclass
class Group:
    """The sums of stalls that belong together: of a connection, of a process, or all."""

    process: Process = field(default_factory=Process)
    socket: Socket | None = None
    side: str = ""
    cause: str = ""
    stalls: int = 0
    excess_us: int = 0
    evidence: Counter[str] = field(default_factory=Counter)
    patterns: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    durations: Durations = field(default_factory=Durations)
    #: about how many bytes it takes
    memory: int = 0

    def __post_init__(self) -> None:
        self.memory = 3000 + self.process.memory()

    def add(self, stall: Stall) -> None:
        self.stalls += 1
        self.excess_us += stall.excess_us
        self.memory += self.durations.add(stall.duration_us)
        count_word(self.evidence, stall.evidence)
        count_word(self.patterns, stall.pattern)
        count_word(self.causes, stall.why)

    def take(self, other: Group) -> None:
        self.stalls += other.stalls
        self.excess_us += other.excess_us
        self.durations.longest = max(self.durations.longest, other.durations.longest)


class Groups(Generic[Key]):
    """Keeps groups by key in bounded memory; `folded` sums up the groups that had to make room."""

    def __init__(self, most: int = MAX_GROUPS) -> None:
        self.most = most
        self.groups: dict[Key, Group] = {}
        self.folded_stalls = 0
        self.folded_us = 0
        self._memory = 0

    def add(self, key: Key, process: Process, socket: Socket | None, stall: Stall) -> None:
        group = self.groups.get(key)
        if group is None:
            if len(self.groups) >= self.most or self._memory > MAX_GROUP_BYTES:
                self._fold()
            group = self.groups[key] = Group(process, socket, stall.side, stall.why)
            self._memory += group.memory
        before = group.memory
        group.add(stall)
        self._memory += group.memory - before

    def _fold(self) -> None:
        by_excess = sorted(self.groups, key=lambda key: (self.groups[key].excess_us, self.groups[key].stalls))
        for key in by_excess[:max(1, len(by_excess) // 2)]:
            group = self.groups.pop(key)
            self.folded_stalls += group.stalls
            self.folded_us += group.excess_us
            self._memory -= group.memory

    def top(self, most: int) -> list[Group]:
        """Returns the groups that lost most; among equals, the one met first comes first."""
        return sorted(self.groups.values(), key=lambda group: (-group.excess_us, -group.stalls))[:most]


@dataclass(frozen=True)
class Point:
    """A stall on the time line."""

    time_us: int
    duration_us: int
    cause: str
    evidence: str


class Slices:
    """Sums stalls up by when they ended, in at most `most` slices of time: the time line in figures."""

    #: Each width is a multiple of the one before.
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
    """Chooses stalls evenly: each k-th, and the longest."""

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
    """Holds all that the report shows, except the ladders."""

    def __init__(self, max_groups: int = MAX_GROUPS, max_points: int = MAX_POINTS) -> None:
        self.starts: list[Start] = []
        self.traces = 0
        self.all = Group()
        self.by_connection: Groups[Hashable] = Groups(max_groups)
        self.by_process: Groups[Hashable] = Groups(max_groups)
        self.points = Points(max_points)
        self.slices = Slices()
        self.histogram = Histogram()
        self.first_us: int | None = None
        self.last_us: int | None = None
        self.reports = Reports(max_groups)
        self.snapshot: Snapshot | None = None
        #: what the tracer's last report of each connection says
        self.advice: dict[Hashable, Connection] = {}
        self._advice_bytes = 0
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
        self.histogram.add(stall.duration_us)
        self.points.add(stall)
        self.slices.add(stall)
        self.by_connection.add(connection_key(stall), stall.process, stall.socket, stall)
        self.by_process.add((stall.process.pid, stall.process.comm), stall.process, None, stall)
        began = stall.time_us - stall.duration_us
        self.first_us = began if self.first_us is None else min(self.first_us, began)
        self.last_us = stall.time_us if self.last_us is None else max(self.last_us, stall.time_us)

    def _add_report(self, report: Report) -> None:
        # the page shows no stacks
        without = [replace(one, sender=replace(one.sender, stack=())) for one in report.connections]
        for connection in without:
            key = connection_key(connection)
            old = self.advice.pop(key, None)
            self.advice[key] = connection
            self._advice_bytes += connection.memory() - (old.memory() if old else 0)
        while len(self.advice) > self.max_groups or self._advice_bytes > MAX_ADVICE_BYTES:
            self._advice_bytes -= self.advice.pop(next(iter(self.advice))).memory()
        self.reports.add(replace(report, connections=without))

    def report(self) -> Report | None:
        """Returns the tracer's own sums of the whole recording; None if the recording has no report."""
        return self.reports.whole()
