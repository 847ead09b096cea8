# SPDX-License-Identifier: GPL-2.0
"""Asks the daemon, by docs/protocol.md: one request, one answer; or the stalls as they happen."""

from __future__ import annotations

import contextlib
import grp
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .records import printable, told

DEFAULT_SOCKET = Path("/run/nagletrace/nagletrace.sock")
PROTOCOL = 1

#: No answer is longer; 100,000 label sets take less.
MAX_ANSWER_BYTES = 64 * 1024 * 1024

#: How soon one who follows notices that it is to stop.
STOP_S = 0.2

Answer = dict[str, Any]


class DaemonError(Exception):
    """The daemon could not be asked; says why on one printable line."""

    def __init__(self, path: Path, why: object) -> None:
        super().__init__(f"{printable(str(path))}: {told(str(why))}")


def refused(path: Path, error: OSError) -> DaemonError:
    """Why there is no talking to the daemon; where it is for the group, which one that is."""
    if not isinstance(error, PermissionError):
        return DaemonError(path, error.strerror or error)
    group = "unknown"
    for place in (path, path.parent):  # others may not see the socket in a directory of its group's
        with contextlib.suppress(OSError):
            gid = place.stat().st_gid
            group = str(gid)
            with contextlib.suppress(KeyError):
                group = grp.getgrgid(gid).gr_name
            break
    return DaemonError(path, f"not permitted; be of its group, {group}, or give `nagletrace daemon` another --group")


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
        raise refused(path, error) from error
    return _parse(path, line)


def stream(path: Path, seconds: float, stop: threading.Event) -> Iterator[bytes]:
    """The daemon's stalls as they happen, a line each, until the time is over, it ends, or `stop` is set.

    Raises DaemonError when it does not take the request.
    """
    deadline = time.monotonic() + seconds
    waiting = b""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(STOP_S)
            connection.connect(str(path))
            request = {"protocol": PROTOCOL, "request": "stream", "format": "json"}
            connection.sendall(json.dumps(request).encode() + b"\n")
            for chunk in _chunks(connection, deadline, stop):
                *lines, waiting = (waiting + chunk).split(b"\n")
                for line in lines:
                    if line.startswith(b'{"type":"error"'):
                        _parse(path, line + b"\n")
                    yield line + b"\n"
    except OSError as error:
        raise refused(path, error) from error


def _chunks(connection: socket.socket, deadline: float, stop: threading.Event) -> Iterator[bytes]:
    """What comes until it is time to end, and what has come by then."""
    while not stop.is_set() and time.monotonic() < deadline:
        try:
            chunk = connection.recv(1 << 16)
        except socket.timeout:
            continue
        except ConnectionResetError:  # it ended before it had read all
            return
        if not chunk:
            return
        yield chunk
    connection.setblocking(False)
    for _ in range(64):  # more than a socket's buffer holds
        try:
            chunk = connection.recv(1 << 16)
        except (BlockingIOError, ConnectionResetError):
            return
        if not chunk:
            return
        yield chunk


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
        raise DaemonError(path, "the answer is not whole")
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DaemonError(path, f"the answer is not JSON: {error}") from error
    # a report is the record that nagletrace -i writes, and has no word of the protocol
    if not isinstance(answer, dict) or (answer.get("protocol") != PROTOCOL and answer.get("type") != "report"):
        raise DaemonError(path, f"not an answer of protocol {PROTOCOL}")
    if answer.get("type") == "error":
        raise DaemonError(path, answer.get("error"))
    return answer
