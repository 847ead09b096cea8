# SPDX-License-Identifier: GPL-2.0
"""The commands' options in common, and their output.

One line says what is wrong with an option, with exit code 2. A file is written whole or not at all: its readers never
see half a report, and a failure leaves the old one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NoReturn

from . import __version__
from .records import printable

DURATION_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
#: The longest time for which one may watch the daemon.
LONGEST_S = 24 * 3600.0


class Parser(argparse.ArgumentParser):
    """Explains a wrong option on one line."""

    def __init__(self, prog: str, description: str | None) -> None:
        super().__init__(prog=prog, allow_abbrev=False, description=(description or "").split("\n")[0])
        self.add_argument("--version", action="version", version=f"{prog} {__version__}")

    def error(self, message: str) -> NoReturn:
        one_line = " ".join(message.removeprefix("argument ").split())
        print(f"{self.prog}: {one_line}; --help lists the options", file=sys.stderr)
        raise SystemExit(2)


def duration(text: str) -> float:
    """Returns seconds. The unit is mandatory, as it is for nagletrace."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(us|ms|s|m|h)", text)
    if not match and re.fullmatch(r"[\d.]+", text):
        raise argparse.ArgumentTypeError(f"{text!r}: a duration needs a unit; for example 40ms, 5s or 2m")
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r}: not a duration; give for example 40ms, 5s or 2m")
    seconds = float(match[1]) * DURATION_UNITS[match[2]]
    if not 0 < seconds <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r}: must be more than zero and at most 24h; for example 30s")
    return seconds


def bounded_number(least: int, most: int, unit: str) -> type:
    """Returns a type for argparse that takes whole numbers from least to most."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: not a number of {unit}; give one from {least} to {most}")
        return int(text)

    return parse  # type: ignore[return-value]


def add_source_options(options: Parser) -> None:
    """Adds the options that choose a source of records; source.py reads it."""
    source = options.add_mutually_exclusive_group()
    source.add_argument("-i", "--input", metavar="FILE",
                        help="read a recording of `nagletrace -o json`; - is stdin (the default)")
    source.add_argument("--socket", metavar="PATH", help="ask the daemon at this socket")
    options.add_argument("-d", "--duration", type=duration, metavar="DURATION",
                         help="with --socket: watch the daemon for this time; without it, show what the daemon has")


def add_output_option(options: Parser) -> None:
    options.add_argument("-o", "--output-file", metavar="FILE", default="-",
                         help="write this file, whole or not at all; - is stdout (the default)")


class CommandError(Exception):
    """Ends a command. The message says why, and what to do, on one line; `code` is the exit code."""

    code = 1


def run_command(name: str, run: Callable[[], None]) -> int:
    """Runs what the command of this name does, and returns its exit code. SIGTERM ends it as Ctrl-C does: no file that
    it made for itself stays."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run()
    except CommandError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print(f"{name}: stopped", file=sys.stderr)
        return 1
    return 0


class OutputError(CommandError):
    """The output could not be written."""


def write_whole(target: str, parts: Iterable[str]) -> None:
    """Writes the text to the file of that name, or to stdout for "-"."""
    written = "a part at most"
    try:
        if target == "-" or is_stdout(target):
            write_stdout(parts)
        elif Path(target).exists() and not Path(target).is_file():
            with Path(target).open("w", encoding="utf-8") as out:  # we can write a pipe or a device, but not replace it
                out.writelines(parts)
        else:
            written = "nothing"
            replace(Path(target).resolve(), parts)  # we resolve a link, so that it stays one and leads to the new text
    except OSError as error:
        raise OutputError(f"--output-file {printable(target)}: {error.strerror or error}; {written} was written; "
                          "give a file in a directory that may be written") from error


def is_stdout(target: str) -> bool:
    """Returns whether that is the file behind stdout, as /dev/stdout is: what it holds already stays."""
    try:
        return os.path.samestat(Path(target).stat(), os.fstat(1))
    except OSError:
        return False


def write_stdout(parts: Iterable[str]) -> None:
    try:
        for part in parts:
            sys.stdout.buffer.write(part.encode())
        sys.stdout.buffer.flush()
    except OSError as error:
        # Python would try to write the rest of the buffer again at the end, and complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # a reader that has enough is no failure
            raise


def replace(path: Path, parts: Iterable[str]) -> None:
    with replacing(path) as part, part.open("w", encoding="utf-8") as out:
        out.writelines(parts)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary file in the same directory, which gets the path's name when the block has ended well: within a
    file system that is all or nothing."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(descriptor)
    part = Path(name)
    try:
        yield part
        with part.open("rb") as written:
            os.fchmod(written.fileno(), mode_for(path))
            os.fsync(written.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def mode_for(path: Path) -> int:
    """Returns the mode of the present file, else the mode that a new one gets."""
    with contextlib.suppress(OSError):
        return path.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
