# SPDX-License-Identifier: GPL-2.0
"""Lost time by call stack of the held write, outermost call first, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .recording import Record
from .records import Frame, Process, Report, Snapshot, Stall, Start
from .reports import Reports

#: Stacks told apart; the tracer itself keeps fewer.
MAX_STACKS = 20_000
NO_STACK = "[no stack recorded]"
AT_PEER = "[no stack: the peer held the write]"
OTHERS = "[other stacks]"
#: A frame outside of any file and without a name: code made at run time, by a JIT compiler mostly.
RUN_TIME_CODE = "[code made at run time]"

Stack = tuple[str, ...]
#: Names a frame of a process that the tracer could not name, as of this time (us since the epoch); None: nor can it.
Namer = Callable[[Process, Frame, int], "str | None"]


def no_namer(process: Process, frame: Frame, time_us: int) -> str | None:  # noqa: ARG001
    return None


@dataclass
class Stacks:
    """Excess by stack. `unnamed_us`: of stalls with a frame that has no name."""

    namer: Namer = no_namer
    most: int = MAX_STACKS
    excess_us: dict[Stack, int] = field(default_factory=dict)
    stalls: int = 0
    without_stack: int = 0
    folded_stalls: int = 0
    unnamed_stalls: int = 0
    #: by connections of the tracer's reports, where no single stalls are recorded
    by_last: bool = False
    #: stalls that the tracer counted, here or not
    told: int = 0
    _reports: Reports = field(default_factory=lambda: Reports(MAX_STACKS))

    def add(self, record: Record | Snapshot) -> None:
        if isinstance(record, Stall):
            self._add(record.process, record.side, record.stack, record.excess_us, 1, record.time_us)
        elif isinstance(record, Start):
            self._reports.begin()
        elif isinstance(record, Report):
            self._reports.add(record)

    def finish(self) -> None:
        """Without single stalls, each connection's lost time goes to the stack of its last stall."""
        report = self._reports.whole()
        self.told = report.stalls if report else 0
        if self.stalls or report is None:
            return
        self.by_last = bool(report.connections)
        for connection in report.connections:
            self._add(connection.process, connection.side, connection.stack, connection.lost_us, connection.stalls,
                      report.time_us)

    def _add(self, process: Process, side: str, frames: tuple[Frame, ...], excess_us: int, stalls: int,
             time_us: int) -> None:
        self.stalls += stalls
        root = process.comm or "unknown"
        if frames:
            names = tuple(self._name(process, frame, time_us) for frame in reversed(frames))
            if any(name.startswith("[") for name in names):
                self.unnamed_stalls += stalls
        else:
            self.without_stack += stalls
            names = (AT_PEER if side == "receiver" else NO_STACK,)
        stack = (root, *names)
        if stack not in self.excess_us and len(self.excess_us) >= self.most:
            self.folded_stalls += stalls
            stack = (OTHERS,)
        self.excess_us[stack] = self.excess_us.get(stack, 0) + excess_us

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
        """What to know before believing the picture, a sentence each."""
        said = []
        if self.by_last:
            said.append("No single stalls are told of here: each connection's lost time is given to the stack of its "
                        "last stall.")
        if self.told > self.stalls:
            said.append(f"The tracer told of {self.told} stalls; {self.stalls} of them are here.")
        if self.without_stack:
            said.append(f"{self.without_stack} of {self.stalls} stalls have no stack (nagletrace --stacks records "
                        "them, at the sender).")
        if self.unnamed_stalls:
            said.append(f"{self.unnamed_stalls} of {self.stalls} stalls have frames without a name "
                        "(--symbols bcc may know them, on the host traced and while the processes live).")
        if self.folded_stalls:
            said.append(f"{self.folded_stalls} stalls of stacks beyond the first {self.most} are in {OTHERS}.")
        return said


def folded(stacks: Stacks) -> Iterator[str]:
    """A line each: frames with semicolons between them, a space, microseconds. flamegraph.pl and speedscope read it."""
    lines = (";".join(name.replace(";", ":") for name in stack) + f" {us}\n"
             for stack, us in stacks.excess_us.items())
    yield from sorted(lines)
