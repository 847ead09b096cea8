# SPDX-License-Identifier: GPL-2.0
"""Reads a recording: JSON Lines as `nagletrace -o json` writes them, one at a time, however many there are.

It counts and reports lines that are no record, and goes on: recordings are cut off, and disks fill up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Union

from .cli import CommandError
from .lines import parse_object
from .records import (
    BadRecord,
    Event,
    Report,
    Stall,
    Start,
    decode,
    needed_number,
    needed_text,
    number_of,
    object_of,
    printable,
)

Record = Union[Start, Stall, Event, Report]


class RecordingError(CommandError):
    """The recording cannot be used. `code`: 2 if the user asked for it wrongly, 4 if permission is missing, else 1."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(printable(message))
        self.code = code


@dataclass
class Reading:
    """Counts what it reads, good and bad."""

    lines: int = 0
    #: the records that it could read, by `type`
    records: Counter[str] = field(default_factory=Counter)
    #: the lines that are no record
    broken: int = 0
    first_broken: str = ""
    #: the last line ends without a newline, and in the middle
    truncated: bool = False
    #: the records of a type that only a newer version knows
    unknown: int = 0
    #: what the daemon did not hand on, since this reader was too slow
    skipped_stalls: int = 0
    skipped_others: int = 0
    #: the events that the tracer dropped before it could record them
    dropped_events: int = 0

    def records_from(self, lines: Iterable[bytes]) -> Iterator[Record]:
        """Yields the records that a page shows, in their order, and counts the others."""
        for line in lines:
            self.lines += 1
            self.truncated = False
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
        record = parse_object(line)
        if not isinstance(record.get("type"), str):
            raise BadRecord("no object with a type")
        return self._make(record, record["type"])

    def _make(self, record: dict[str, Any], kind: str) -> Record | None:
        made: Record | None = None
        if kind == "stall":
            made = decode(Stall, record)
        elif kind == "event":
            made = self._event(record)
        elif kind == "report":
            made = decode(Report, record)
        elif kind == "start":
            made = decode(Start, record)
        elif kind == "skipped":
            self.skipped_stalls += needed_number(record, "stalls")
            self.skipped_others += number_of(record, "others") or 0
        elif kind in ("hold", "late_ack"):
            object_of(record, "sender")
        elif kind not in ("dropped", "overhead", "streaming", "totals", "fix", "sample", "check"):
            self.unknown += 1
            return None
        self.records[kind] += 1
        return made

    def _event(self, record: dict[str, Any]) -> Event | None:
        if needed_text(record, "event") == "dropped":
            self.dropped_events += needed_number(record, "events")
            return None
        return decode(Event, record)

    def check(self, name: str) -> None:
        """Raises RecordingError if there are lines but none is a record: then this is another file."""
        if self.broken and not self.records and not self.unknown:
            raise RecordingError(f"{name}: not a recording ({self.first_broken}); give what "
                                 "`nagletrace -o json` wrote", 2)

    def remarks(self) -> list[str]:
        """Returns what is wrong with the recording, a sentence each."""
        said = []
        if self.broken:
            which = f"{self.broken} of {self.lines} lines could not be read (the first: {self.first_broken})"
            said.append(which + ("; the recording ends in the middle of a line." if self.truncated else "."))
        if self.unknown:
            said.append(f"{self.unknown} records are of a type that this version does not know.")
        if self.skipped_stalls or self.skipped_others:
            said.append(f"The daemon did not hand on {self.skipped_stalls} stalls and {self.skipped_others} other "
                        "records, since they were read too slowly.")
        if self.dropped_events:
            said.append(f"{self.dropped_events} events were dropped before they could be recorded.")
        return said
