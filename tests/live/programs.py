# SPDX-License-Identifier: GPL-2.0
"""Starts servers as Debian ships them, on ports of their own, and records their calls."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import calls
import pytest
from processes import end, wait_until_listening

LOOPBACK = "127.0.0.1"


@contextlib.contextmanager
def started(command: list[str], port: int, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program, once it listens."""
    try:
        process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except FileNotFoundError:
        pytest.fail(f"{command[0]} is not installed: make deps-test installs it", pytrace=False)
    try:
        wait_until_listening(process, port)
        yield process
    finally:
        end(process)


def recorded(command: list[str], recording: Path) -> list[str]:
    """The command with its calls recorded, and those of its threads and children; the process is the program itself."""
    assert shutil.which(command[0]), f"{command[0]} is not installed: make deps-test installs it"
    return [*calls.STRACE, "-D", "-o", str(recording), *command]
