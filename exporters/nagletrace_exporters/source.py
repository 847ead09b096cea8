# SPDX-License-Identifier: GPL-2.0
"""Reads the records of a command from a file, stdin, or the daemon."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Union

from .cli import Parser
from .client import DaemonError, ask, stream
from .delta import Watched
from .lines import TooLarge, chunks_of, split_lines
from .recording import Reading, Record, RecordingError
from .records import BadRecord, Report, Snapshot, Stall, decode, printable
from .units import milliseconds

DAEMON_TIMEOUT_S = 10.0

AnyRecord = Union[Record, Snapshot]


@dataclass
class Source:
    """Yields the records once, and has remarks about them afterwards."""

    options: argparse.Namespace
    reading: Reading = field(default_factory=Reading)
    more_remarks: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        if self.options.socket is not None:
            return f"the daemon at {printable(self.options.socket)}"
        return "stdin" if self.options.input in (None, "-") else printable(Path(self.options.input).name)

    def records(self) -> Iterator[AnyRecord]:
        """Yields the records. Raises RecordingError if there is nothing to read, or it is no recording."""
        if self.options.socket is not None:
            yield from self._from_daemon(Path(self.options.socket))
            return
        stdin = self.options.input in (None, "-")
        with contextlib.ExitStack() as open_:
            if stdin:
                open_.enter_context(reading_on())
            file = sys.stdin.buffer if stdin else open_.enter_context(
                open_recording(self.options.input, f"--input {self.options.input}"))
            try:
                yield from self.reading.records_from(split_lines(chunks_of(file)))
            except OSError as error:
                raise RecordingError(f"--input {self.options.input or '-'}: {error.strerror or error}; "
                                     "give a file that can be read", 2) from error
        self.reading.check(f"--input {self.options.input or '-'}")

    def read(self) -> str:
        """Says what it has read, for the end of a report."""
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.reading.records.items()))
        return f"Read from {self.name}: {self.reading.lines:,} lines{f' ({kinds})' if kinds else ''}."

    def remarks(self) -> list[str]:
        return self.reading.remarks() + self.more_remarks

    def _from_daemon(self, path: Path) -> Iterator[AnyRecord]:
        try:
            before = snapshot(path)
            yield before.start
            if self.options.duration:
                watched = Watched(before)
                for record in self._watch(path, self.options.duration):
                    if isinstance(record, Stall):
                        watched.saw(record)
                    yield record
                yield from self._counted(path, watched)
            else:
                yield before
                yield window(path)
        except DaemonError as error:
            if isinstance(error.__cause__, PermissionError):
                raise RecordingError(f"--socket {error}", 4) from error
            remedy = ""
            if isinstance(error.__cause__, TooLarge):
                remedy = "; start `nagletrace daemon` with a smaller --max-series and --max-connections"
            elif isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, BlockingIOError):
                remedy = "; is `nagletrace daemon` running?"
            raise RecordingError(f"--socket {error}{remedy}") from error
        except BadRecord as error:
            raise RecordingError(f"--socket {path}: the daemon's answer lacks something: {error}") from error

    def _watch(self, path: Path, seconds: float) -> Iterator[Record]:
        with stopping() as stop:
            began = time.monotonic()
            yield from self.reading.records_from(stream(path, seconds, stop))
            watched = time.monotonic() - began
        if watched < seconds:
            self.more_remarks.append(f"Watched for {watched:.1f} s of {seconds:g} s: "
                                     + ("stopped." if stop.is_set() else "the daemon closed the connection."))

    def _counted(self, path: Path, watched: Watched) -> Iterator[Report]:
        """Yields the daemon's counts of the time watched, or a remark if the daemon has ended by now."""
        try:
            after = snapshot(path)
            report = watched.report(after, window(path))
        except (DaemonError, BadRecord) as error:
            self.more_remarks.append(f"What the daemon counted while it was watched is not known ({error}).")
            return
        if watched.began_anew(after):
            self.more_remarks.append("The daemon was started anew while it was watched: its counts are of its last "
                                     f"{milliseconds(max(0, after.time_us - after.started_us))} alone.")
        yield report


def snapshot(path: Path) -> Snapshot:
    return decode(Snapshot, ask(path, {"request": "snapshot"}, DAEMON_TIMEOUT_S))


def window(path: Path) -> Report:
    """The daemon's report of the last minutes."""
    return decode(Report, ask(path, {"request": "report", "format": "json"}, DAEMON_TIMEOUT_S))


def check_source(parser: Parser, options: argparse.Namespace) -> None:
    """Ends the command with one line if the options name no source or exclude each other."""
    if options.duration is not None and options.socket is None:
        parser.error("--duration goes with --socket only; a recording is read to its end")
    if options.socket is None and options.input is None and sys.stdin.isatty():
        parser.error("no recording: give --input FILE, --socket PATH, or a recording on stdin")


def open_recording(name: str, given: str) -> BinaryIO:
    """Raises RecordingError, in words of ours, about what was given."""
    try:
        if Path(name).is_dir():
            raise RecordingError(f"{given}: a directory; give a recording of `nagletrace -o json`", 2)
        return Path(name).open("rb")
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise RecordingError(f"{given}: {what}; give a recording of `nagletrace -o json`", 2) from error


@contextlib.contextmanager
def reading_on() -> Iterator[None]:
    """Makes Ctrl-C end only the nagletrace that writes into our pipe: we still read its closing report."""

    def once(*_: object) -> None:
        os.write(2, b"reading to the end; Ctrl-C once more stops\n")
        signal.signal(signal.SIGINT, before)

    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def stopping() -> Iterator[threading.Event]:
    """Makes Ctrl-C and SIGTERM end the watching; we still show what we saw until then."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
