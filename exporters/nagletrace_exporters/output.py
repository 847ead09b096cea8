# SPDX-License-Identifier: GPL-2.0
"""Writes a file whole or not at all: who reads it never sees half a report, and a failure leaves the old one."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from .records import printable


class OutputError(Exception):
    """Nothing was written; says why and what to do on one line."""


def write_whole(target: str, parts: Iterable[str]) -> None:
    """Writes the text to the file of that name, or to stdout for "-"."""
    try:
        if target == "-":
            write_stdout(parts)
        elif Path(target).exists() and not Path(target).is_file():
            with Path(target).open("w", encoding="utf-8") as out:  # a pipe or a device: it cannot be replaced
                out.writelines(parts)
        else:
            replace(Path(target).resolve(), parts)  # resolved: a link stays a link, to the new text
    except OSError as error:
        raise OutputError(f"--output-file {printable(target)}: {error.strerror or error}; nothing was written; "
                          "give a file in a directory that may be written") from error


def write_stdout(parts: Iterable[str]) -> None:
    try:
        for part in parts:
            sys.stdout.buffer.write(part.encode())
        sys.stdout.buffer.flush()
    except OSError:
        # what is left in the buffer would be tried, and complained of, once more at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def replace(path: Path, parts: Iterable[str]) -> None:
    """By a temporary file in the same directory, since only within one a rename is all or nothing."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.writelines(parts)
            out.flush()
            os.fchmod(out.fileno(), mode_for(path))
            os.fsync(out.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def mode_for(path: Path) -> int:
    """As the file had it before, else what a new file gets."""
    with contextlib.suppress(OSError):
        return path.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
