# SPDX-License-Identifier: GPL-2.0
"""Asks the daemon: one request, one answer, by docs/protocol.md."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

DEFAULT_SOCKET = Path("/run/nagletrace/nagletrace.sock")
PROTOCOL = 1

#: No answer is longer; 100,000 label sets take less.
MAX_ANSWER_BYTES = 64 * 1024 * 1024

Answer = dict[str, Any]


class DaemonError(Exception):
    """The daemon could not be asked; says why on one line."""


def ask(path: Path, request: dict[str, Any], timeout_s: float) -> Answer:
    """The daemon's answer to a request, got within so many seconds in all.

    Raises DaemonError when the daemon is not there, does not answer in time, or answers with an error.
    """
    deadline = time.monotonic() + timeout_s
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
            connection.sendall(json.dumps({"protocol": PROTOCOL, **request}).encode() + b"\n")
            line = _read_line(connection, deadline)
    except OSError as error:
        raise DaemonError(f"{path}: {error.strerror or error}") from error
    return _parse(path, line)


def _read_line(connection: socket.socket, deadline: float) -> bytes:
    """Up to the newline; what a daemon that has ended sent of it, without."""
    chunks: list[bytes] = []
    size = 0
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(left)
        chunk = connection.recv(1 << 16)
        chunks.append(chunk)
        size += len(chunk)
        if not chunk or chunk.endswith(b"\n") or size > MAX_ANSWER_BYTES:
            return b"".join(chunks)


def _parse(path: Path, line: bytes) -> Answer:
    if not line.endswith(b"\n"):
        raise DaemonError(f"{path}: the answer is not whole")
    try:
        answer = json.loads(line)
    except ValueError as error:
        raise DaemonError(f"{path}: the answer is not JSON: {error}") from error
    if not isinstance(answer, dict) or answer.get("protocol") != PROTOCOL:
        raise DaemonError(f"{path}: not an answer of protocol {PROTOCOL}")
    if answer.get("type") == "error":
        raise DaemonError(f"{path}: {answer.get('error')}")
    return answer
