# SPDX-License-Identifier: GPL-2.0
"""nagletrace-join: stalls with both ends, of the recordings of two or more hosts."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from ..cli import Parser, add_output_option, duration, run_command, write_whole
from ..recording import RecordingError
from .engine import Engine
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
                         "too; - is stdin")
    options.add_argument("--window", type=duration, metavar="DURATION", default="2s",
                         help="let the clocks of two hosts be so far apart (default %(default)s)")
    options.add_argument("--output", choices=["text", "json"], default="text",
                         help="text: a report (the default); json: each stall, as nagletrace -o json writes it")
    options.add_argument("--memory", type=memory, metavar="SIZE", default="1GB",
                         help="let DuckDB use so much memory; the rest lies in files below $TMPDIR (default "
                         "%(default)s)")
    add_output_option(options)
    return options


def check_files(files: list[str]) -> None:
    """Raises RecordingError for what cannot be read, in words of ours."""
    if files.count("-") > 1 or len(set(files)) != len(files):
        raise RecordingError("a file is named twice; name each once", 2)
    if len(files) > MAX_FILES:
        raise RecordingError(f"{len(files)} files are too many; give at most {MAX_FILES}", 2)
    for name in files:
        if name == "-":
            continue
        try:
            if Path(name).is_dir():
                raise RecordingError(f"{name}: a directory; give a recording of `nagletrace -o json`", 2)
            with Path(name).open("rb"):
                pass
        except (OSError, ValueError) as error:
            what = error.strerror if isinstance(error, OSError) else error
            raise RecordingError(f"{name}: {what}; give a recording of `nagletrace -o json`", 2) from error


def run(options: argparse.Namespace) -> None:
    check_files(options.files)
    whole = options.output == "json"
    engine = Engine(options.memory, whole=whole)
    try:
        engine.load(*options.files)
        counts = engine.counts()
        if counts.lines and counts.broken == counts.lines:
            raise RecordingError(f"{options.files[0]}: not a recording; give what `nagletrace -o json` wrote", 2)
        window_s = duration(options.window) if isinstance(options.window, str) else options.window
        engine.join(int(window_s * 1_000_000))
        write_whole(options.output_file, engine.answers() if whole else report(engine))
        for remark in remarks(counts, engine.clocks()):
            print(f"nagletrace-join: {remark}", file=sys.stderr)
    finally:
        engine.close()


def main() -> int:
    options = parser().parse_args()
    return run_command("nagletrace-join", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
