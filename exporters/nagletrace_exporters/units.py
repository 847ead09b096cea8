# SPDX-License-Identifier: GPL-2.0
"""Formats durations and times for pages and messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count

from .records import EPOCH


def milliseconds(us: int) -> str:
    """Formats a duration as the tracer's nt_duration() does, with three significant figures."""
    unit_us, name = (1, "us") if us < 1000 else (1000, "ms") if us < 999_500 else (1_000_000, "s")
    value = us / unit_us
    return f"{value:.{0 if us < 1000 or value >= 99.95 else 1 if value >= 9.995 else 2}f} {name}"


def milliseconds_short(us: int) -> str:
    return f"{us} us" if us < 1000 else bound(us)


def signed(us: int, form: Callable[[int], str]) -> str:
    return "0" if not us else f"−{form(-us)}" if us < 0 else form(us)


def bound(us: int) -> str:
    return f"{us / 1000:g} ms" if us < 1_000_000 else f"{us / 1_000_000:g} s"


def duration(us: int) -> str:
    for unit, name in ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s")):
        if us >= unit and us % unit == 0:
            return f"{us // unit} {name}"
    return f"{us // 1000} ms"


def clock(time_us: int, with_date: bool) -> str:
    """Formats a time in UTC, or as "?": a hostile recording may have times that no calendar has."""
    try:
        when = EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return "?"
    return when.strftime("%Y-%m-%d %H:%M:%S" if with_date else "%H:%M:%S") + f".{time_us // 1000 % 1000:03d}"


def round_numbers() -> Iterator[int]:
    """Yields 1, 2, 5, 10, 20, 50 and so on without end, since a hostile recording may have any duration."""
    return (step * 10**power for power in count() for step in (1, 2, 5))
