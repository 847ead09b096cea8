# SPDX-License-Identifier: GPL-2.0
"""Lays out the bars of the histogram and the points of the time line."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from ..units import bound, clock, duration, milliseconds, milliseconds_short, round_numbers
from .durations import Histogram
from .summary import Point, Slices

#: Height of the time line's plot. Its width is the page's, so horizontal places are percents.
HEIGHT = 220
MARGIN = 12


@dataclass(frozen=True)
class Row:
    """A bucket of the histogram. `share` is its percentage of the fullest one."""

    label: str
    count: int
    share: float


@dataclass(frozen=True)
class Spot:
    """A stall on the time line: a circle or a square, filled or hollow."""

    x: float
    y: float
    square: bool
    filled: bool


@dataclass(frozen=True)
class Level:
    y: float
    label: str


@dataclass(frozen=True)
class TimeLine:
    spots: list[Spot]
    levels: list[Level]
    begin: str
    end: str


@dataclass(frozen=True)
class SliceRow:
    label: str
    stalls: int
    excess: str
    longest: str


def histogram_rows(histogram: Histogram) -> list[Row]:
    """Returns the buckets from the first that has stalls to the last."""
    bounds_us, counts = histogram.bounds_us, histogram.counts
    full = [number for number, count in enumerate(counts) if count]
    if not full:
        return []
    most = max(counts)
    rows = []
    for number in range(full[0], full[-1] + 1):
        if number == len(bounds_us):
            label = f"more than {bound(bounds_us[-1])}"
        else:
            label = f"{bound(bounds_us[number - 1]) if number else '0'} to {bound(bounds_us[number])}"
        rows.append(Row(label, counts[number], round(100 * counts[number] / most, 2)))
    return rows


def levels_between(least: int, most: int) -> list[int]:
    """Returns round durations on a logarithmic scale that enclose both."""
    levels: list[int] = []
    for step in round_numbers():
        if step <= least:
            levels.clear()
        levels.append(step)
        if step > least and step >= most:
            break
    return levels


def time_line(points: list[Point], first_us: int, last_us: int) -> TimeLine | None:
    if not points:
        return None
    levels = levels_between(max(1, min(point.duration_us for point in points)),
                            max(1, max(point.duration_us for point in points)))
    span = max(1, last_us - first_us)
    spots = [Spot(round(100 * (point.time_us - first_us) / span, 3), height_of(max(1, point.duration_us), levels),
                  point.cause == "cork_ceiling", point.evidence == "seen") for point in points]
    shown = levels if len(levels) <= 8 else [level for level in levels if str(level)[0] == "1"]
    shown = shown[::-(-len(shown) // 8)]
    return TimeLine(spots, [Level(height_of(level, levels), milliseconds_short(level)) for level in shown],
                    clock(first_us, True), clock(last_us, span > 12 * 3_600_000_000))


def height_of(duration_us: int, levels: list[int]) -> float:
    """Returns the place of a duration on a logarithmic scale."""
    low, high = log(levels[0]), log(levels[-1])
    return round(HEIGHT - MARGIN - (log(duration_us) - low) / (high - low) * (HEIGHT - 2 * MARGIN), 2)


def slice_rows(slices: Slices) -> list[SliceRow]:
    width = slices.width_us
    return [SliceRow(f"{clock(number * width, True)} and {duration(width)} on", group.stalls,
                     milliseconds(group.excess_us), milliseconds(group.durations.longest))
            for number, group in sorted(slices.slices.items())]
