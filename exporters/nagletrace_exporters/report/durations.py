# SPDX-License-Identifier: GPL-2.0
"""Many durations in bounded memory: the daemon's buckets, and percentiles."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

#: A recording has no buckets. Its histogram has the daemon's (nt_bucket_ns in userspace/summary/series.c).
BOUNDS_US = tuple(ms * 1000 for ms in (1, 5, 10, 20, 30, 35, 40, 45, 50, 75, 100, 150, 200, 250, 500, 1000, 2000))


class Histogram:
    """Counts durations by bucket. A bound belongs to its bucket; one more bucket has what exceeds the last bound."""

    def __init__(self, bounds_us: Sequence[int] = BOUNDS_US, counts: Iterable[int] = (), every: int = 0) -> None:
        """`counts` are those of the buckets with a bound, `every` is the count of all durations."""
        self.bounds_us = bounds_us
        self.counts = list(counts) or [0] * len(bounds_us)
        self.counts.append(max(0, every - sum(self.counts)))

    def add(self, us: int) -> None:
        self.counts[bisect_left(self.bounds_us, us)] += 1


class Durations:
    """Finds percentiles: it counts durations on a logarithmic scale, whose steps are about 3 % apart."""

    STEPS = 32

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.longest = 0

    def add(self, us: int) -> int:
        """Returns how many more bytes it takes now, about."""
        before = len(self.counts)
        self.counts[self._bucket(us)] += 1
        self.longest = max(self.longest, us)
        return 100 * (len(self.counts) - before)

    def _bucket(self, us: int) -> int:
        shift = max(0, us.bit_length() - 6)
        return shift * self.STEPS + (us >> shift)

    def _highest(self, bucket: int) -> int:
        shift = max(0, bucket // self.STEPS - 1)
        return (((bucket - shift * self.STEPS) + 1) << shift) - 1

    def percentile(self, percent: int) -> int:
        """Returns the shortest duration that at least `percent` of all do not exceed, or up to 3 % more."""
        wanted = -(-sum(self.counts.values()) * percent // 100)
        below = 0
        for bucket in sorted(self.counts):
            below += self.counts[bucket]
            if below >= wanted:
                return min(self._highest(bucket), self.longest)
        return 0
