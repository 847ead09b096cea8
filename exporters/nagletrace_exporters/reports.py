# SPDX-License-Identifier: GPL-2.0
"""The tracer's own reports of a recording as one: intervals and runs added up, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from .records import Connection, Report, Stall, Totals

#: Words of one kind that are told apart: the schema has fewer.
MAX_WORDS = 16


def count_word(words: Counter[str], word: str, by: int = 1) -> None:
    words[word if word in words or len(words) < MAX_WORDS else "other"] += by


def connection_key(of: Stall | Connection) -> tuple[Hashable, ...]:
    return of.side, of.cause, of.process.pid, of.process.comm, of.socket.netns, of.socket.local, of.socket.remote


class Reports:
    """Intervals of a run add up until its closing report comes, which tells of all of it; runs add up."""

    def __init__(self, most: int) -> None:
        #: connections told apart
        self.most = most
        #: of the runs before, and of the intervals of this one
        self._runs: Report | None = None
        self._intervals: Report | None = None

    def begin(self) -> None:
        """Another run: when the end of the one before is not recorded, its intervals are all that is known of it."""
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
    """One report of both spans. Percentiles cannot be added: connections met in both have none."""
    if one is None:
        return report
    connections = {connection_key(connection): connection for connection in one.connections}
    for new in report.connections:
        key = connection_key(new)
        old = connections.get(key)
        connections[key] = new if old is None else joined(old, new)
    kept = sorted(connections.values(), key=lambda c: -c.lost_us)
    folded = sum(c.stalls for c in kept[most:])
    return Report(report.time_us, report.closing, one.span_us + report.span_us, one.stalls + report.stalls,
                  one.lost_us + report.lost_us, kept[:most], one.folded_stalls + report.folded_stalls + folded,
                  joined_totals(one.totals, report.totals), added(one.lost, report.lost))


def joined(old: Connection, new: Connection) -> Connection:
    return Connection(new.side, new.cause, new.process, new.socket, old.stalls + new.stalls,
                      old.lost_us + new.lost_us, None, None, max(old.max_us, new.max_us),
                      added(old.evidence, new.evidence), new.pattern, new.what, new.why, new.fix, new.stack)


def added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    sums = Counter(one)
    for word, count in other.items():
        count_word(sums, word, count)
    return dict(sums)


def joined_totals(one: Totals, other: Totals) -> Totals:
    return Totals(one.writes + other.writes, added(one.stalls, other.stalls), added(one.holds, other.holds),
                  added(one.hold_us, other.hold_us), added(one.releases, other.releases),
                  added(one.delayed_acks, other.delayed_acks))
