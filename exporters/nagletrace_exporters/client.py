# SPDX-License-Identifier: GPL-2.0
"""Asks the daemon, as docs/protocol.md describes: for one answer, or for stalls as they happen."""

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

from .lines import CHUNK, MAX_LINE, MAX_VALUES, parse_object, split_lines
from .records import BadRecord, for_message, printable

DEFAULT_SOCKET = Path("/run/nagletrace/nagletrace.sock")
PROTOCOL = 1

#: A daemon that takes no connection within this time does not answer.
DAEMON_S = 5.0
NO_ANSWER = "the daemon does not answer; look at its log, or restart it"
#: A follower notices within this time that it shall stop.
STOP_S = 0.2

Answer = dict[str, Any]


class DaemonError(Exception):
    """The daemon could not be asked; the message says why on one printable line."""

    def __init__(self, path: Path, why: object) -> None:
        super().__init__(f"{printable(str(path))}: {for_message(str(why))}")


def refused(path: Path, error: OSError) -> DaemonError:
    """Explains an error of the socket; if the caller lacks the group, it names the group."""
    if not isinstance(error, PermissionError):
        return DaemonError(path, error.strerror or error)
    group = "unknown"
    for place in (path, path.parent):  # strangers may not see into the directory of the socket
        with contextlib.suppress(OSError):
            gid = place.stat().st_gid
            group = str(gid)
            with contextlib.suppress(KeyError):
                group = grp.getgrgid(gid).gr_name
            break
    return DaemonError(path, f"not permitted; be of its group, {group}, or give `nagletrace daemon` another --group")


def _connect(connection: socket.socket, path: Path, deadline: float, stop: threading.Event) -> None:
    """Waits for a place in the daemon's queue, which a socket with a timeout does not do by itself."""
    while True:
        try:
            return connection.connect(str(path))
        except BlockingIOError as error:
            if time.monotonic() > deadline or stop.wait(STOP_S / 4):
                raise DaemonError(path, NO_ANSWER) from error


@contextlib.contextmanager
def _asking(path: Path, request: dict[str, Any], deadline: float, stop: threading.Event) -> Iterator[socket.socket]:
    """Yields a connection on which the request is sent."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(max(0.0, deadline - time.monotonic()))
        _connect(connection, path, deadline, stop)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the daemon refuses us, and has said why
            connection.sendall(json.dumps({"protocol": PROTOCOL, **request}).encode() + b"\n")
        yield connection


def ask(path: Path, request: dict[str, Any], timeout_s: float, most_bytes: int = MAX_LINE,
        most_values: int = MAX_VALUES) -> Answer:
    """Returns the daemon's answer to a request, within `timeout_s` in all.

    Raises DaemonError if the daemon is not there, does not answer in time, or answers with an error or with more than
    `most_bytes` or `most_values` (lines.py).
    """
    deadline = time.monotonic() + timeout_s
    try:
        with _asking(path, request, deadline, threading.Event()) as connection:
            line = next(split_lines(_until(connection, deadline, most_bytes), most_bytes), b"")
    except OSError as error:
        raise refused(path, error) from error
    return _parse(path, line, most_bytes, most_values)


def stream(path: Path, seconds: float, stop: threading.Event, most_bytes: int = MAX_LINE) -> Iterator[bytes]:
    """Yields the daemon's stalls as they happen, a line each, until the time is over, it ends, or `stop` is set.

    It cuts a line off after `most_bytes`.
    Raises DaemonError if the daemon refuses the request.
    """
    deadline = time.monotonic() + seconds
    try:
        with _asking(path, {"request": "stream", "format": "json"}, time.monotonic() + DAEMON_S, stop) as connection:
            connection.settimeout(STOP_S)
            for line in split_lines(_chunks(connection, deadline, stop), most_bytes):
                if line.startswith(b'{"type":"error"'):
                    _parse(path, line, most_bytes, MAX_VALUES)
                yield line
    except OSError as error:
        raise refused(path, error) from error


def _chunks(connection: socket.socket, deadline: float, stop: threading.Event) -> Iterator[bytes]:
    """Yields what arrives until it is time to end, and what the socket still holds by then."""
    while not stop.is_set() and time.monotonic() < deadline:
        try:
            chunk = connection.recv(CHUNK)
        except socket.timeout:
            continue
        except ConnectionResetError:  # the daemon ended before it had read our request
            return
        if not chunk:
            return
        yield chunk
    connection.setblocking(False)
    for _ in range(64):  # a socket's buffer holds less
        try:
            chunk = connection.recv(CHUNK)
        except (BlockingIOError, ConnectionResetError):
            return
        if not chunk:
            return
        yield chunk


def _until(connection: socket.socket, deadline: float, most: int) -> Iterator[bytes]:
    """Yields what arrives until the deadline, but not much more than `most` bytes."""
    size = 0
    while size <= most:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(left)
        chunk = connection.recv(CHUNK)
        if not chunk:
            return
        size += len(chunk)
        yield chunk


def _parse(path: Path, line: bytes, most_bytes: int, most_values: int) -> Answer:
    if not line.endswith(b"\n") and len(line) < most_bytes:
        raise DaemonError(path, "the answer is not whole")
    try:
        answer = parse_object(line, most_bytes, most_values)
    except BadRecord as error:
        raise DaemonError(path, f"the answer is {error}") from error
    # A report is the same record that nagletrace -i writes, so it does not name the protocol.
    if answer.get("protocol") != PROTOCOL and answer.get("type") != "report":
        raise DaemonError(path, f"not an answer of protocol {PROTOCOL}")
    if answer.get("type") == "error":
        raise DaemonError(path, answer.get("error"))
    return answer
