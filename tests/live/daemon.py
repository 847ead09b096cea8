# SPDX-License-Identifier: GPL-2.0
"""Runs `nagletrace daemon` for the tests, and reads its socket with code that shares nothing with ours."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from harness import NAGLETRACE, PATIENCE, Lines, Record, Tracer, assert_valid
from processes import Ends, wait_until

RELEASE = tuple(int(part) for part in os.uname().release.split(".")[:2])
#: Then the kernel attaches function hooks only once, so that --standby cannot use them.
ATTACHED_ONCE = Tracer.hooks == "function" and RELEASE < (5, 13)


class Reader(Ends):
    """Connects to the daemon, and checks each answer against the schema."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        # With settimeout(), connect() would fail at once if the backlog is full.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(PATIENCE), 0))
        self.socket.connect(str(path))
        self.socket.settimeout(PATIENCE)
        self.file = self.socket.makefile("rb")

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def line(self) -> Record | None:
        """Returns the next line, or None if the daemon has closed the connection."""
        line = self.file.readline()
        if not line:
            return None
        record: Record = json.loads(line)
        assert_valid(record)
        return record

    def ask(self, request: str, **more: object) -> Record:
        self.send(json.dumps({"request": request, **more}).encode() + b"\n")
        answer = self.line()
        assert answer is not None, "the daemon closed the connection"
        return answer

    def lines(self) -> Iterator[Record]:
        while (line := self.line()) is not None:
            yield line


class Daemon(Ends):
    """Runs the daemon. It is ready when the constructor returns, and SIGTERM ends it when the block ends."""

    def __init__(self, *arguments: str, directory: Path | None = None, env: dict[str, str] | None = None,
                 prefix: tuple[str, ...] = ()) -> None:
        self.temporary = tempfile.TemporaryDirectory()
        self.socket = (directory or Path(self.temporary.name)) / "nagletrace.sock"
        self.process = subprocess.Popen(
            [*prefix, str(NAGLETRACE), "daemon", "--socket", str(self.socket), "--hooks", Tracer.hooks, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        self.errors = Lines(self.process.stderr)
        try:
            self.errors.wait_for("nagletrace: ready")
        except BaseException:
            self.kill()
            raise

    def close(self) -> None:
        if self.process.poll() is None:
            self.stop()
        self.temporary.cleanup()

    def reader(self) -> Reader:
        return Reader(self.socket)

    def ask(self, request: str, **more: object) -> Record:
        with self.reader() as reader:
            return reader.ask(request, **more)

    def until(self, happened: Callable[[Record], object], **more: object) -> Record:
        """The first snapshot that is so."""
        def seen() -> Record | None:
            snapshot = self.ask("snapshot", **more)
            return snapshot if happened(snapshot) else None

        return wait_until("a snapshot is so", seen)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)


def lacking_in(snapshot: Record) -> int:
    """Returns how many stalls may be missing; as harness.lacking(), of a daemon that sees both ends."""
    inferred = sum(series["stalls"] for series in snapshot["series"] if series["evidence"] == "inferred")
    return max(0, int(snapshot.get("unseen", 0)) - inferred)
