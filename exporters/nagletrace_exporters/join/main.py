# SPDX-License-Identifier: GPL-2.0
"""nagletrace-join: stalls with both ends, of the recordings of two or more hosts."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from ..cli import OutputError, Parser, add_output_option, duration, replacing, run_command, write_whole
from ..recording import RecordingError
from ..records import printable
from ..source import open_recording
from .engine import Engine, has_columns, is_fifo
from .text import remarks, report

MAX_FILES = 10_000


def memory(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d{0,6}(MB|GB)", text):
        raise argparse.ArgumentTypeError(f"{text!r}: not a size; give for example 512MB or 4GB")
    return text


def parser() -> Parser:
    options = Parser("nagletrace-join", __doc__)
    options.add_argument("files", nargs="+", metavar="FILE",
                         help="read a recording of `nagletrace -o json --late-acks`, or a stream of the daemon; .gz "
                         "too; - is stdin; or a file that --save wrote")
    options.add_argument("--save", metavar="FILE",
                         help="keep what was read in FILE besides (Parquet): a later join reads it much faster")
    options.add_argument("--window", type=duration, metavar="DURATION", default="2s",
                         help="how far the clocks of two hosts may be apart (default %(default)s)")
    options.add_argument("--output", choices=["text", "json"], default="text",
                         help="text: a report (the default); json: each stall, as nagletrace -o json writes it")
    options.add_argument("--memory", type=memory, metavar="SIZE", default="750MB",
                         help="the most memory that DuckDB may use; the rest lies in files below $TMPDIR (default "
                         "%(default)s)")
    add_output_option(options)
    return options


def check_files(files: list[str]) -> None:
    """Raises RecordingError for what cannot be read, in words of ours."""
    if len(files) > MAX_FILES:
        raise RecordingError(f"{len(files)} files are too many; give at most {MAX_FILES}", 2)
    known: set[object] = set()
    for name in files:
        found: object = name
        if name != "-" and not is_fifo(name):
            with open_recording(name, name) as file:
                status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode):
                found = status.st_dev, status.st_ino
        if found in known:
            raise RecordingError(f"{printable(name)}: named twice, maybe by another name; name each file once", 2)
        known.add(found)


def check_save(save: str, files: list[str]) -> None:
    """Raises RecordingError where a file would be replaced that holds more, or is no file."""
    for name in files:
        if has_columns(name):
            raise RecordingError(f"--save {printable(save)}: {printable(name)} is saved already; name recordings of "
                                 "`nagletrace -o json` only", 2)
        if name != "-" and Path(save).exists() and Path(save).samefile(name):
            raise RecordingError(f"--save {printable(save)}: it is one of the recordings; give another file", 2)
    if Path(save).exists() and not Path(save).is_file():
        raise RecordingError(f"--save {printable(save)}: it is no regular file; give one, or a new name", 2)


@contextlib.contextmanager
def saved(save: str | None) -> Iterator[str | None]:
    """Where to write what is to be saved: it has its own name once all went well."""
    if save is None:
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            part = stack.enter_context(replacing(Path(save).resolve()))  # a link stays one, and leads to the new file
        except OSError as error:
            raise cannot_save(save, error) from error
        yield str(part)
        try:
            stack.close()
        except OSError as error:
            raise cannot_save(save, error) from error


def cannot_save(save: str, error: OSError) -> OutputError:
    return OutputError(f"--save {printable(save)}: {error.strerror or error}; nothing was saved; "
                       "give a file in a directory that may be written")


def run(options: argparse.Namespace) -> None:
    check_files(options.files)
    if options.save is not None:
        check_save(options.save, options.files)
    whole = options.output == "json"
    with saved(options.save) as columns, contextlib.closing(Engine(options.memory, whole=whole)) as engine:
        engine.load(*options.files, save=columns)
        counts = engine.counts()
        if counts.lines and counts.broken == counts.lines:
            names = engine.sources(options.files) or options.files
            told = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise RecordingError(f"{told}: not a recording; give what `nagletrace -o json` wrote", 2)
        engine.join(int(options.window * 1_000_000))
        write_whole(options.output_file, engine.answers() if whole else report(engine))
        for remark in remarks(counts, engine.clocks()):
            print(f"nagletrace-join: {remark}", file=sys.stderr)


def main() -> int:
    options = parser().parse_args()
    return run_command("nagletrace-join", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
