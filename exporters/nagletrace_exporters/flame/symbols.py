# SPDX-License-Identifier: GPL-2.0
"""Names frames that the tracer could not name, by bcc's SymbolCache: perf maps of JIT compilers, containers' files.

It works only on the host of the recording while the processes live: another host's process 4242 gives false names.
The processes choose the files that bcc reads. So a child process reads them, with limits, a deadline and privileges for
reading alone, and may die. Importing bcc costs 72 MB, so only the child does it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import resource
import stat
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ..cli import CommandError
from ..records import MAX_TEXT, Frame, Process, printable
from .confine import confine

#: The child's address space: bcc needs 400 MB of it, a Java process's perf map and libraries some 100 MB.
CHILD_BYTES = 1 << 30
#: CPU time of a child, in all.
CHILD_CPU_S = 60
#: The longest time for a name. A process's first name takes seconds, since bcc reads all its files.
DEADLINE_S = 10.0
#: The children that may die, be late or not load before we name nothing more. Without the first there is no picture.
MAX_CHILDREN = 4
#: A perf map of this size has a million functions.
MAX_MAP_BYTES = 128 << 20
#: The most processes whose symbols the child keeps.
MAX_CACHES = 32
#: The most names that we keep, and bytes of them.
MAX_NAMES, MAX_NAME_BYTES = 200_000, 32 << 20

MakeCache = Callable[[int], Any]


class SymbolsError(CommandError):
    """bcc cannot be used."""


class NoAnswer(Exception):
    """The child died, or did not answer in time."""


class Child:
    """Names addresses in a process of its own. `load` returns the function that makes a pid's SymbolCache."""

    def __init__(self, load: Callable[[], MakeCache]) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, its = context.Pipe()
        self._process = context.Process(target=answer, args=(its, self._pipe, load), daemon=True)
        self._process.start()
        its.close()
        try:
            said = self._receive()
        except NoAnswer as error:
            raise SymbolsError("--symbols bcc: bcc's Python bindings do not load in time and memory; leave the option "
                               "out") from error
        if said:
            raise SymbolsError(f"--symbols bcc: {printable(said.decode(errors='replace'))}, or leave the option out")

    def name(self, pid: int, ip: int) -> bytes:
        """Returns a name, or nothing if there is none. Raises NoAnswer."""
        try:
            self._pipe.send_bytes(f"{pid} {ip}".encode())
        except OSError as error:
            raise NoAnswer from error
        return self._receive()

    def _receive(self) -> bytes:
        try:
            if self._pipe.poll(DEADLINE_S):
                return self._pipe.recv_bytes(4 * MAX_TEXT)
        except (EOFError, OSError):
            pass
        self.end()
        raise NoAnswer

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def answer(pipe: Connection, parents: Connection, load: Callable[[], MakeCache]) -> None:
    """Runs in the child: it sends a name for each request until the parent is gone. Any error ends it."""
    os.setsid()  # it has no terminal in which it could type
    parents.close()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # bcc and the C++ library write to stderr
        os.dup2(nothing, number)
    os.closerange(3, pipe.fileno())
    os.closerange(pipe.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    remedy = "install bcc's Python bindings (Debian: python3-bpfcc)"
    try:
        make_cache = load()
        remedy = "install libseccomp (Debian: libseccomp2), and allow seccomp() and a change of user"
        confine()
    except (ImportError, OSError) as error:
        said = " ".join(str(error).split()).encode(errors="replace")[:MAX_TEXT]
        pipe.send_bytes(said + f"; {remedy}".encode())
        return
    for what, most in ((resource.RLIMIT_AS, CHILD_BYTES), (resource.RLIMIT_CPU, CHILD_CPU_S), (resource.RLIMIT_CORE, 0),
                       (resource.RLIMIT_FSIZE, 0)):
        resource.setrlimit(what, (most, most))
    pipe.send_bytes(b"")
    caches: dict[int, Any] = {}
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            pid, ip = map(int, pipe.recv_bytes(100).split())
            if pid not in caches:
                caches[pid] = make_cache(pid)
                if len(caches) > MAX_CACHES:
                    del caches[next(iter(caches))]
            # a return address may lie behind the function's last instruction
            name, _offset, _module = caches[pid].resolve(ip - 1, True)
            pipe.send_bytes(b"" if not name or name == b"[unknown]" else name[:MAX_TEXT])


class BccNamer:
    """Names frames, and asks for each address once."""

    def __init__(self, load: Callable[[], MakeCache]) -> None:
        """Raises SymbolsError if the first child does not load bcc."""
        self._load = load
        self._child: Child | None = Child(load)
        self._children = 1
        self._started: dict[int, int | None] = {}
        self._names: dict[tuple[int, int], str | None] = {}
        self._bytes = 0
        self.named = 0
        #: processes that are gone, or that began after their stall
        self.gone: set[int] = set()
        #: processes whose files we did not read, or not to their end, since that would do harm
        self.refused: set[int] = set()

    def __call__(self, process: Process, frame: Frame, time_us: int) -> str | None:
        if process.pid is None or not self._is_the_same(process.pid, time_us):
            return None
        key = process.pid, frame.ip
        if key not in self._names:
            if len(self._names) >= MAX_NAMES or self._bytes >= MAX_NAME_BYTES:
                return None
            self._names[key] = self._resolve(*key)
            self._bytes += sys.getsizeof(self._names[key])
        self.named += self._names[key] is not None
        return self._names[key]

    def remarks(self) -> list[str]:
        """Says in a sentence each what stayed unnamed."""
        said = []
        if self.gone:
            said.append(f"{len(self.gone)} processes are gone, or began after their stalls: their frames stay unnamed.")
        if self.refused:
            said.append(f"{len(self.refused)} processes' frames stay unnamed: their perf map is no file of theirs of "
                        f"at most {MAX_MAP_BYTES >> 20} MiB, or naming them took more than {CHILD_BYTES >> 30} GiB "
                        f"or {DEADLINE_S:g} s.")
        return said

    def _is_the_same(self, pid: int, time_us: int) -> bool:
        """Returns whether the pid is still the process that stalled: it is if it began before the stall."""
        if pid not in self._started:
            self._started[pid] = started_us(pid)
            if self._started[pid] is not None and not has_harmless_map(pid):
                self.refused.add(pid)
        started = self._started[pid]
        if started is None or started > time_us:
            self.gone.add(pid)
            return False
        return True

    def _resolve(self, pid: int, ip: int) -> str | None:
        if pid in self.refused:
            return None
        if self._child is None and self._children >= MAX_CHILDREN:
            self.refused.add(pid)
            return None
        try:
            if self._child is None:
                self._children += 1
                self._child = Child(self._load)
            name = self._child.name(pid, ip)
        except (NoAnswer, SymbolsError, OSError):  # OSError: there is no room for another process
            self._child = None
            self.refused.add(pid)
            return None
        return printable(name.decode(errors="replace")[:MAX_TEXT]) or None


def has_harmless_map(pid: int) -> bool:
    """Returns whether its perf map is a regular file, of the process's user or root, and not too large.

    bcc opens it by its name, follows links, and reads to the end: a FIFO hangs it, a link to /dev/zero fills its
    memory. It looks in the process's mount namespace, by the process's number there. No map at all is harmless.
    """
    try:
        status = (Path("/proc") / str(pid) / "status").read_text(errors="replace")
        owners = {0, *map(int, re.findall(r"^Uid:\s+(\d+)\s+(\d+)", status, re.MULTILINE)[0])}
        inside = re.findall(r"^NSpid:.*\s(\d+)$", status, re.MULTILINE)
    except (OSError, IndexError):
        return False
    numbers = {str(pid), *inside}
    for directory in (f"/proc/{pid}/root/tmp", "/tmp"):  # noqa: S108
        for number in numbers:
            try:
                found = os.lstat(f"{directory}/perf-{number}.map")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                return False
            if not stat.S_ISREG(found.st_mode) or found.st_uid not in owners or found.st_size > MAX_MAP_BYTES:
                return False
    return True


def started_us(pid: int) -> int | None:
    """Returns the start of the process in us since the epoch, a tick early; None: there is no process."""
    try:
        ticks = int((Path("/proc") / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
    boot_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return boot_ns // 1000 + (ticks - 1) * 1_000_000 // os.sysconf("SC_CLK_TCK")


def load_bcc() -> MakeCache:
    from bcc import SymbolCache

    return SymbolCache  # type: ignore[no-any-return]


def bcc_namer() -> BccNamer:
    """Raises SymbolsError."""
    return BccNamer(load_bcc)
