# SPDX-License-Identifier: GPL-2.0
"""Adds the tracer's own reports of a recording up to one, over intervals and runs, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

from .records import Connection, Report, SlowHolds, Stall, Totals

#: The most connections and processes that are kept. When there are more, the half that lost less is folded.
MAX_GROUPS = 10_000
#: About the most bytes of the kept connections, with their stacks.
MAX_BYTES = 64 << 20
#: The most pairs of a process and a reason that are kept of holds that cost time and were no stall.
MAX_SLOW_HOLDS = 1000
#: The most words of one kind; the schema has fewer.
MAX_WORDS = 16


def count_word(words: Counter[str], word: str, by: int = 1) -> None:
    words[word if word in words or len(words) < MAX_WORDS else "other"] += by


def connection_key(of: Stall | Connection) -> tuple[Hashable, ...]:
    return of.side, of.why, of.process.pid, of.process.comm, of.socket.netns, of.socket.local, of.socket.remote


class Reports:
    """Adds up runs. The intervals of a run count until its closing report comes, which covers the whole run."""

    def __init__(self, most: int) -> None:
        #: the most connections that are kept
        self.most = most
        #: the sums of the runs before, and of the intervals of this run
        self._runs: Report | None = None
        self._intervals: Report | None = None

    def begin(self) -> None:
        """Begins another run. If the recording lacks the end of the run before, only its intervals are known."""
        self._runs, self._intervals = self.whole(), None

    def add(self, report: Report) -> None:
        if report.closing:
            self._runs, self._intervals = join(self._runs, report, self.most), None
        else:
            self._intervals = join(self._intervals, report, self.most)

    def whole(self) -> Report | None:
        if self._intervals is None:
            return self._runs
        return join(self._runs, self._intervals, self.most)


def join(one: Report | None, report: Report, most: int) -> Report:
    """Returns one report of both spans. Percentiles do not add up, so connections met in both have none."""
    if one is None:
        return bounded(report, most)
    connections = {connection_key(connection): connection for connection in one.connections}
    for new in report.connections:
        key = connection_key(new)
        old = connections.get(key)
        connections[key] = new if old is None else joined(old, new)
    return bounded(Report(report.time_us, report.closing, one.span_us + report.span_us, one.stalls + report.stalls,
                          one.excess_us + report.excess_us, list(connections.values()),
                          one.folded_stalls + report.folded_stalls, joined_totals(one.totals, report.totals),
                          added(one.dropped, report.dropped),
                          joined_slow_holds(one.slow_holds, report.slow_holds)), most)


def bounded(report: Report, most: int) -> Report:
    """Keeps as many of the connections that lost most as there is room for, and folds the stalls of the others."""
    kept: list[Connection] = []
    room = MAX_BYTES
    by_excess = sorted(report.connections, key=lambda c: -c.excess_us)
    for connection in by_excess[:most]:
        room -= connection.memory()
        if room < 0:
            break
        kept.append(connection)
    folded = sum(c.stalls for c in by_excess[len(kept):])
    return replace(report, connections=kept, folded_stalls=report.folded_stalls + folded,
                   slow_holds=report.slow_holds[:MAX_SLOW_HOLDS])


def joined(old: Connection, new: Connection) -> Connection:
    return replace(new, stalls=old.stalls + new.stalls, excess_us=old.excess_us + new.excess_us, p50_us=None,
                   p99_us=None, max_us=max(old.max_us, new.max_us), evidence=added(old.evidence, new.evidence))


def joined_slow_holds(one: list[SlowHolds], other: list[SlowHolds]) -> list[SlowHolds]:
    """Returns them summed up, those that cost most first."""
    sums: dict[tuple[str, str | None], SlowHolds] = {}
    for new in (*one, *other):
        old = sums.get((new.reason, new.comm))
        sums[new.reason, new.comm] = replace(
            new, holds=old.holds + new.holds, hold_us=old.hold_us + new.hold_us,
            pid=new.pid if old.pid == new.pid else None) if old else new
    return sorted(sums.values(), key=lambda slow: -slow.hold_us)


def added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    sums = Counter(one)
    for word, count in other.items():
        count_word(sums, word, count)
    return dict(sums)


def joined_totals(one: Totals, other: Totals) -> Totals:
    return Totals(one.writes + other.writes, added(one.stalls, other.stalls), added(one.holds, other.holds),
                  added(one.hold_us, other.hold_us), added(one.releases, other.releases),
                  added(one.delayed_acks, other.delayed_acks), one.contradicted + other.contradicted)
