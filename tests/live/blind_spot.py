# SPDX-License-Identifier: GPL-2.0
"""Where a machine itself hides from the tracer what happens, and when it may have."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
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


@contextlib.contextmanager
def delayed_acks_in_the_blind_spot() -> Iterator[Callable[[], int]]:
    """Yields a function: how many timers of delayed ACKs have expired over process 1 since; ftrace sees them there."""
    if not on_the_development_machine():
        yield lambda: 0
        return
    names = set()  # those of threads that are still to come, too
    for thread in Path("/proc/1/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it may end meanwhile
            names.add(thread.read_text().strip())
    threads = " || ".join(f'COMM == "{name}"' for name in names)
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["mount", "-t", "tracefs", "none", place], check=True)
        traced = Path(place) / "instances" / f"nagletrace-{Path(place).name}"
        try:
            traced.mkdir()
            event = traced / "events/timer/timer_expire_entry"
            (event / "filter").write_text(f"function.function == tcp_delack_timer && ({threads})")
            (event / "enable").write_text("1")

            def expired() -> int:
                stats = "".join(cpu.read_text() for cpu in traced.glob("per_cpu/cpu*/stats"))
                return sum(map(int, re.findall(r"^(?:entries|overrun): (\d+)$", stats, re.MULTILINE)))

            yield expired
        finally:
            if traced.exists():
                traced.rmdir()
            subprocess.run(["umount", place], check=True)
