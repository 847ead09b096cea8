# SPDX-License-Identifier: GPL-2.0
"""Computes what the daemon counted while we watched it. Its own report covers a window that may begin earlier."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from .records import Report, Snapshot, Stall, Totals
from .reports import MAX_GROUPS, connection_key


class Watched:
    """Keeps, from a snapshot on, the connections whose stalls the daemon streamed: those seen last, up to `most`."""

    def __init__(self, before: Snapshot, most: int = MAX_GROUPS) -> None:
        self.before = before
        self.most = most
        self.connections: dict[Hashable, None] = {}

    def saw(self, stall: Stall) -> None:
        key = connection_key(stall)
        self.connections.pop(key, None)
        self.connections[key] = None
        if len(self.connections) > self.most:
            del self.connections[next(iter(self.connections))]

    def began_anew(self, after: Snapshot) -> bool:
        """Returns whether another daemon runs by now, whose counters began at zero."""
        return after.started_us != self.before.started_us

    def report(self, after: Snapshot, window: Report) -> Report:
        """Returns the counts since the snapshot, and those connections of the window whose stalls were streamed."""
        since = anew(self.before) if self.began_anew(after) else self.before
        return Report(after.time_us, True, max(0, after.time_us - self.before.time_us),
                      max(0, after.stalls - since.stalls), max(0, after.excess_us - since.excess_us),
                      [one for one in window.connections if connection_key(one) in self.connections], 0,
                      totals_since(after.totals, since.totals), counted_since(after.dropped, since.dropped))


def anew(snapshot: Snapshot) -> Snapshot:
    """Returns the counts that a daemon begins with."""
    return replace(snapshot, stalls=0, excess_us=0, totals=Totals(0, {}, {}, {}, {}, {}, 0), dropped={})


def counted_since(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {word: max(0, count - before.get(word, 0)) for word, count in now.items()}


def totals_since(now: Totals, before: Totals) -> Totals:
    """Returns the counts between two snapshots."""
    return Totals(max(0, now.writes - before.writes), counted_since(now.stalls, before.stalls),
                  counted_since(now.holds, before.holds), counted_since(now.hold_us, before.hold_us),
                  counted_since(now.releases, before.releases), counted_since(now.delayed_acks, before.delayed_acks),
                  max(0, now.contradicted - before.contradicted))
