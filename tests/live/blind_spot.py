# SPDX-License-Identifier: GPL-2.0
"""Where a machine itself hides from the tracer what happens, and when it may have."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness import IN_GUEST


def blind_spot() -> str | None:
    """What may go wrong on this machine that is nobody's fault, if something may.

    The development machine's kernel runs no BPF program in a softirq that interrupts a thread of its supervisor,
    process 1 (seen by ftrace beside our programs: timer_expire_entry traced, the program not run, no miss counted).
    A delayed ACK whose timer expires there is not seen. An emulated guest does not do that, but stands still now and
    then, for tens of milliseconds: a round may feel like a stall then, and the timers that it makes up for come early.
    """
    if IN_GUEST:
        return "an emulated guest may have stood still"
    if on_the_development_machine():
        return "a timer may have expired where this machine's kernel runs no BPF program"
    return None


def on_the_development_machine() -> bool:
    return not IN_GUEST and Path("/proc/1/comm").read_text().strip() == "process_api"


def supervisor_seconds() -> float:
    """How long the threads of process 1 have run."""
    run = 0
    for thread in Path("/proc/1/task").iterdir():
        with contextlib.suppress(OSError):  # it may end meanwhile
            run += int((thread / "schedstat").read_text().split()[0])
    return run / 1e9


@contextlib.contextmanager
def timers_in_the_blind_spot() -> Iterator[Callable[[int], float]]:
    """Yields a function: of so many timers, the most that may have expired over process 1 while the block ran.

    The mean is its share of the time; four standard deviations more, and one, are not met by chance. (Nothing tells
    when it ran: the kernel keeps its threads out of traces too.)
    """
    began, run = time.monotonic(), supervisor_seconds()

    def most(timers: int) -> float:
        if not on_the_development_machine():
            return 0
        mean = timers * (supervisor_seconds() - run) / (time.monotonic() - began)
        return mean + 4 * math.sqrt(mean) + 1

    yield most
