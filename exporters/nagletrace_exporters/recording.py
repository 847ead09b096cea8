# SPDX-License-Identifier: GPL-2.0
"""Reads a recording: JSON Lines as `nagletrace -o json` writes them, one at a time, whatever their number.

A line that is none is counted and said, never fatal: recordings are cut off, and disks fill up.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Union

from .records import BadRecord, Event, Report, Stall, Start, needed_number, needed_text, object_of, printable

#: No record is longer: a report of a thousand connections with their stacks is a few MB.
MAX_LINE = 16 << 20

Record = Union[Start, Stall, Event, Report]


class RecordingError(Exception):
    """The recording cannot be used; says why and what to do on one printable line, and the exit code: 1, 2 where it
    was asked for wrongly, 4 where it may not be had."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(printable(message))
        self.code = code


@dataclass
class Reading:
    """What was met on the way, good and bad."""

    lines: int = 0
    #: by `type`, those that could be read
    records: Counter[str] = field(default_factory=Counter)
    #: lines that are no record
    broken: int = 0
    first_broken: str = ""
    #: the last line ends without a newline, and in the middle
    truncated: bool = False
    #: records of a type that is not known here, of a newer tracer
    unknown: int = 0
    #: stalls that the daemon did not hand on, since this reader was too slow
    skipped_stalls: int = 0
    #: events that were lost before they could be recorded
    lost_events: int = 0

    def records_from(self, lines: Iterable[bytes]) -> Iterator[Record]:
        """The records that are shown, in their order; what else there is is counted."""
        for line in lines:
            self.lines += 1
            if not line.strip():
                continue
            try:
                record = self._parse(line)
            except BadRecord as error:
                self._refuse(line, str(error))
                continue
            if record is not None:
                yield record

    def _refuse(self, line: bytes, why: str) -> None:
        self.broken += 1
        self.truncated = not line.endswith(b"\n")
        if not self.first_broken:
            self.first_broken = f"line {self.lines}: {why}"

    def _parse(self, line: bytes) -> Record | None:
        if len(line) >= MAX_LINE:
            raise BadRecord(f"longer than {MAX_LINE >> 20} MiB")
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadRecord("not JSON") from error
        if not isinstance(record, dict) or not isinstance(record.get("type"), str):
            raise BadRecord("no object with a type")
        return self._make(record, record["type"])

    def _make(self, record: dict[str, Any], kind: str) -> Record | None:
        made: Record | None = None
        if kind == "stall":
            made = Stall.parse(record)
        elif kind == "event":
            made = self._event(record)
        elif kind == "report":
            made = Report.parse(record)
        elif kind == "start":
            made = Start.parse(record)
        elif kind == "skipped":
            self.skipped_stalls += needed_number(record, "stalls")
        elif kind == "hold":
            object_of(record, "hold")
        elif kind not in ("lost", "overhead", "streaming", "fix"):
            self.unknown += 1
            return None
        self.records[kind] += 1
        return made

    def _event(self, record: dict[str, Any]) -> Event | None:
        if needed_text(record, "event") == "lost":
            self.lost_events += needed_number(record, "events")
            return None
        return Event.parse(record)

    def check(self, name: str) -> None:
        """Raises RecordingError when there are lines and none of them is a record: this is another file."""
        if self.broken and not self.records and not self.unknown:
            raise RecordingError(f"{name}: not a recording ({self.first_broken}); give what "
                                 "`nagletrace -o json` wrote", 2)

    def remarks(self) -> list[str]:
        """What is wrong with the recording, a sentence each."""
        said = []
        if self.broken:
            which = f"{self.broken} of {self.lines} lines could not be read (the first: {self.first_broken})"
            said.append(which + ("; the recording ends in the middle of a line." if self.truncated else "."))
        if self.unknown:
            said.append(f"{self.unknown} records are of a type that this version does not know.")
        if self.skipped_stalls:
            said.append(f"The daemon did not hand on {self.skipped_stalls} stalls, since they were read too slowly.")
        if self.lost_events:
            said.append(f"{self.lost_events} events were lost before they could be recorded.")
        return said


def lines_of(stream: BinaryIO) -> Iterator[bytes]:
    """Line by line. Of one that is too long only the beginning is kept."""
    while line := stream.readline(MAX_LINE):
        rest = line
        while len(rest) == MAX_LINE and not rest.endswith(b"\n"):
            rest = stream.readline(MAX_LINE)
        yield line
