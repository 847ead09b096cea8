# SPDX-License-Identifier: GPL-2.0
"""Names of frames that the tracer could not name, by bcc's SymbolCache: perf maps of JIT compilers, containers' files.

Only on the host of the recording, and while the processes live: another host's process 4242 would lend false names.
Importing bcc costs 72 MB, so it is imported when it is asked for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .records import MAX_TEXT, Frame, Process, printable


class SymbolsError(Exception):
    """bcc cannot be used; says why and what to do on one line."""


class BccNamer:
    """Names frames; each process is looked at once, each address once."""

    def __init__(self, make_cache: Callable[[int], Any], resolve_limit: int = 200_000) -> None:
        self._make_cache = make_cache
        self._caches: dict[int, Any] = {}
        self._started: dict[int, int | None] = {}
        self._names: dict[tuple[int, int], str | None] = {}
        self._limit = resolve_limit
        self.named = 0
        #: processes that are gone, or that began after their stall
        self.gone: set[int] = set()

    def __call__(self, process: Process, frame: Frame, time_us: int) -> str | None:
        if process.pid is None or not self._is_the_same(process.pid, time_us):
            return None
        key = process.pid, frame.ip
        if key not in self._names:
            if len(self._names) >= self._limit:
                return None
            self._names[key] = self._resolve(*key)
        self.named += self._names[key] is not None
        return self._names[key]

    def _is_the_same(self, pid: int, time_us: int) -> bool:
        """Is the process of this number the one that stalled? It is, if it was there by then."""
        if pid not in self._started:
            self._started[pid] = started_us(pid)
        started = self._started[pid]
        if started is None or started > time_us:
            self.gone.add(pid)
            return False
        return True

    def _resolve(self, pid: int, ip: int) -> str | None:
        if pid not in self._caches:
            self._caches[pid] = self._make_cache(pid)
        # a return address may lie behind the function's last instruction
        name, _offset, _module = self._caches[pid].resolve(ip - 1, True)
        if not name or name == b"[unknown]":
            return None
        return printable(name.decode(errors="replace")[:MAX_TEXT])


def started_us(pid: int) -> int | None:
    """When the process began, in us since the epoch, a tick early; None: there is none."""
    try:
        ticks = int((Path("/proc") / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
    boot_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return boot_ns // 1000 + (ticks - 1) * 1_000_000 // os.sysconf("SC_CLK_TCK")


def bcc_namer() -> BccNamer:
    try:
        from bcc import SymbolCache
    except (ImportError, OSError) as error:
        raise SymbolsError(f"--symbols bcc: {' '.join(str(error).split())}; install bcc's Python bindings "
                           "(Debian: python3-bpfcc), or leave the option out") from error
    return BccNamer(SymbolCache)
