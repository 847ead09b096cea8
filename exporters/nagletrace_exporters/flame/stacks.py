# SPDX-License-Identifier: GPL-2.0
"""Sums lost time up by call stack of the held write, outermost call first, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from sys import getsizeof

from ..recording import Record
from ..records import Frame, Process, Report, Snapshot, Stall, Start, TwoEnds
from ..reports import Reports

#: The most stacks that are kept, and about the bytes that they take with their names. The tracer itself keeps fewer.
MAX_STACKS = 20_000
MAX_BYTES = 48 << 20
NO_STACK = "[no stack recorded]"
AT_PEER = "[no stack: the peer waited]"
OTHERS = "[other stacks]"
#: A frame outside of any file and without a name is code made at run time, mostly by a JIT compiler.
RUN_TIME_CODE = "[code made at run time]"

Stack = tuple[str, ...]
#: It names a frame that the tracer could not name, as of this time (us since the epoch), or returns None.
Namer = Callable[[Process, Frame, int], "str | None"]


def no_namer(process: Process, frame: Frame, time_us: int) -> str | None:  # noqa: ARG001
    return None


@dataclass
class Stacks:
    """Sums excess up by stack, and counts the stalls whose stack is missing or incomplete."""

    namer: Namer = no_namer
    most: int = MAX_STACKS
    excess_us: dict[Stack, int] = field(default_factory=dict)
    stalls: int = 0
    without_stack: int = 0
    folded_stalls: int = 0
    unnamed_stalls: int = 0
    #: the sums come from connections of the tracer's reports, since the recording has no single stalls
    by_last: bool = False
    #: all stalls that the tracer counted, whether they are here or not
    reported: int = 0
    #: one copy of each name in the kept stacks
    _names: dict[str, str] = field(default_factory=dict)
    _memory: int = 0
    _reports: Reports = field(default_factory=lambda: Reports(MAX_STACKS))

    def add(self, record: Record | Snapshot) -> None:
        if isinstance(record, Stall):
            self._add(record, record.excess_us, 1, record.time_us)
        elif isinstance(record, Start):
            self._reports.begin()
        elif isinstance(record, Report):
            self._reports.add(record)

    def finish(self) -> None:
        """If there are no single stalls, gives each connection's lost time to the stack of its last stall."""
        report = self._reports.whole()
        self.reported = report.stalls if report else 0
        if self.stalls or report is None:
            return
        self.by_last = bool(report.connections)
        for connection in report.connections:
            self._add(connection, connection.excess_us, connection.stalls, report.time_us)

    def _add(self, ends: TwoEnds, excess_us: int, stalls: int, time_us: int) -> None:
        self.stalls += stalls
        names: tuple[str, ...]
        if ends.sender.stack:
            names = tuple(self._name(ends.process, frame, time_us) for frame in reversed(ends.sender.stack))
            if any(name.startswith("[") for name in names):
                self.unnamed_stalls += stalls
        else:
            self.without_stack += stalls
            names = (AT_PEER if ends.side == "receiver" else NO_STACK,)
        stack = (ends.process.comm or "unknown", *names, *([f"[{ends.why}]"] if ends.reason else []))
        if stack not in self.excess_us and not self._keep(stack):
            self.folded_stalls += stalls
            stack = (OTHERS,)
        stack = tuple(self._names.get(name, name) for name in stack)
        self.excess_us[stack] = self.excess_us.get(stack, 0) + excess_us

    def _keep(self, stack: Stack) -> bool:
        """Keeps another stack, and returns whether there was room."""
        new = {name for name in stack if name not in self._names}
        memory = 200 + 8 * len(stack) + sum(100 + getsizeof(name) for name in new)
        if len(self.excess_us) >= self.most or self._memory + memory > MAX_BYTES:
            return False
        self._memory += memory
        self._names.update((name, name) for name in new)
        return True

    def _name(self, process: Process, frame: Frame, time_us: int) -> str:
        if frame.symbol:
            return frame.symbol
        named = self.namer(process, frame, time_us)
        if named:
            return named
        if frame.module:
            return f"[{frame.module.rpartition('/')[2]}+{frame.offset or '?'}]"
        return RUN_TIME_CODE

    def remarks(self) -> list[str]:
        """Returns what the reader has to know before believing the picture, a sentence each."""
        said = []
        if self.by_last:
            said.append("No single stalls are recorded here: each connection's lost time is given to the stack of its "
                        "last stall.")
        if self.reported > self.stalls:
            said.append(f"The tracer reported {self.reported} stalls; {self.stalls} of them are here.")
        if self.without_stack:
            said.append(f"{self.without_stack} of {self.stalls} stalls have no stack (nagletrace --stacks records "
                        "them, at the sender).")
        if self.unnamed_stalls:
            said.append(f"{self.unnamed_stalls} of {self.stalls} stalls have frames without a name "
                        "(--symbols bcc may know them, on the host traced and while the processes live).")
        if self.folded_stalls:
            said.append(f"{self.folded_stalls} stalls of stacks beyond the first {len(self.excess_us) - 1} are in "
                        f"{OTHERS}.")
        return said


def folded(stacks: Stacks) -> Iterator[str]:
    """Yields a line for each stack, as flamegraph.pl and speedscope read it: frames joined by semicolons, then us."""
    lines = (";".join(name.replace(";", ":") for name in stack) + f" {us}\n"
             for stack, us in stacks.excess_us.items())
    yield from sorted(lines)
