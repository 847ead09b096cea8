# SPDX-License-Identifier: GPL-2.0
"""The exporter's log: each message is one printable line, and no client can make it write more than a few a second."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TextIO

from .records import printable

log = logging.getLogger(__name__)

#: Lines of one level in one period. A person can follow these; a flood of requests at level debug writes far more.
MOST_LINES = 50
PERIOD_S = 10.0
#: Characters of a line. A request's target makes up most of it, and may have 16 KiB.
MOST_CHARACTERS = 500


class BoundedHandler(logging.Handler):
    """Writes at most MOST_LINES lines of a level in PERIOD_S, and later how many it left out."""

    def __init__(self, stream: TextIO, program: str) -> None:
        super().__init__()
        self.stream = stream
        self.program = program
        #: by level: when its period began, lines written in it, lines left out since the last one written
        self._periods: dict[int, tuple[float, int, int]] = {}

    def format(self, record: logging.LogRecord) -> str:
        return f"{self.program}: {printable(record.getMessage()[:MOST_CHARACTERS])}"

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        began, written, left_out = self._periods.get(record.levelno, (now, 0, 0))
        if now >= began + PERIOD_S:
            began, written = now, 0
        if written >= MOST_LINES:
            self._periods[record.levelno] = began, written, left_out + 1
            return
        self._periods[record.levelno] = began, written + 1, 0
        note = f"{self.program}: {left_out} lines were left out here\n" if left_out else ""
        with contextlib.suppress(OSError):  # nobody reads the log; the exporter goes on answering
            self.stream.write(f"{note}{self.format(record)}\n")
            self.stream.flush()


class Trouble:
    """Logs a trouble once, not at each attempt, and once that it is over. `about` precedes each line."""

    def __init__(self, over: str, about: str = "") -> None:
        self._over = over
        self._about = about
        self._logged = ""

    def tell(self, what: str) -> None:
        if what != self._logged:
            log.warning("%s%s", self._about, what)
        self._logged = what

    def end(self) -> None:
        if self._logged:
            log.info("%s%s", self._about, self._over)
        self._logged = ""
