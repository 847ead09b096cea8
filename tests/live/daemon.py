# SPDX-License-Identifier: GPL-2.0
"""`nagletrace daemon` as the tests drive it, and a reader of its socket that shares no code with ours."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness import NAGLETRACE, PATIENCE, Lines, Record, Tracer, assert_valid


class Reader:
    """A connection to the daemon; each answer is checked against the schema."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def line(self) -> Record | None:
        """The next line; None: the daemon has closed the connection."""
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


class Daemon:
    """Runs from `ready` on; ended by SIGTERM when the block ends."""

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

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop()
        self.temporary.cleanup()

    def reader(self) -> Reader:
        return Reader(self.socket)

    def ask(self, request: str, **more: object) -> Record:
        with self.reader() as reader:
            return reader.ask(request, **more)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
