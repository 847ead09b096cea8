# SPDX-License-Identifier: GPL-2.0
"""Both sides of --otlp.endpoint as a test wants them: a daemon that streams, and a receiver that answers as told."""

from __future__ import annotations

import gzip
import json
import queue
import socket
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import recordings
from fake_daemon import FakeDaemon, series, snapshot
from processes import Ends
from recordings import Record

HOST, BOOT_ID = "web1", "0c8f1f5e-7a4f-4f0e-9a53-4d2f6a1c9b11"
STREAMING: Record = {"type": "streaming", "protocol": 1, "time": recordings.at(0), "host": HOST, "boot_id": BOOT_ID,
                     "ack_key": "1e924b9d737700d7", "late_acks": "all", "holds": "late", "number": 0}
POD = "0a1b2c3d-0000-4000-8000-00000000000f"


def numbered(number: int, record: Record) -> Record:
    return {**record, "ack_id": f"{number:016x}", "host": HOST, "boot_id": BOOT_ID, "number": number}


def stall(number: int, **of: Any) -> Record:
    return numbered(number, recordings.inferred(**of))


def late_ack(number: int) -> Record:
    told = recordings.peer_holds()
    told["receiver"]["pending_ack"]["limit_us"] = 200_000
    keys = ("time", "family", "sender", "receiver")
    return numbered(number, {"type": "late_ack", **{key: told[key] for key in keys}})


class StreamingDaemon(FakeDaemon):
    """Answers a request for a snapshot, and streams to every other reader what tell() is given."""

    def __init__(self, path: Path) -> None:
        self.begin: bytes = json.dumps(STREAMING).encode() + b"\n"
        self.followers: list[socket.socket] = []
        self.followed = threading.Semaphore(0)
        super().__init__(path, snapshot(series("java", [40.0])))

    def _take(self, connection: socket.socket) -> None:
        line = connection.makefile("rb").readline()
        request = json.loads(line)
        if request["request"] == "snapshot":
            with connection:
                self._reply(connection, line)
            return
        assert request == {"protocol": 1, "request": "stream", "format": "json"}
        connection.sendall(self.begin)
        self.followers.append(connection)
        self.followed.release()

    def tell(self, *records: Record | bytes) -> None:
        lines = b"".join(record if isinstance(record, bytes) else json.dumps(record).encode() + b"\n"
                         for record in records)
        for follower in self.followers:
            follower.sendall(lines)

    def hang_up(self) -> None:
        for follower in self.followers:
            follower.close()
        self.followers.clear()

    def close(self) -> None:
        super().close()
        self.hang_up()


class Request:
    """What the receiver got."""

    def __init__(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.path, self.headers, self.body = path, headers, body

    def records(self) -> list[Record]:
        [of_resource] = json.loads(gzip.decompress(self.body))["resourceLogs"]
        [of_scope] = of_resource["scopeLogs"]
        return of_scope["logRecords"]  # type: ignore[no-any-return]

    def numbers(self) -> list[int]:
        return [int(attributes_of(record)["nagletrace.number"]) for record in self.records()]


def attributes_of(part: Record) -> dict[str, Any]:
    """Of a resource or a log record: each attribute's only value, by its key."""
    found: dict[str, Any] = {}
    for attribute in part["attributes"]:
        [(kind, value)] = attribute["value"].items()
        assert isinstance(value, {"stringValue": str, "intValue": str, "boolValue": bool}[kind]), attribute
        assert attribute["key"] not in found
        found[attribute["key"]] = int(str(value)) if kind == "intValue" else value
    return found


#: Writes an answer; the default one takes everything.
Reply = Callable[[BaseHTTPRequestHandler], None]


def reply(status: int, body: bytes = b"{}", **headers: str) -> Reply:
    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
    return write


class FakeReceiver(Ends):
    """Keeps all requests, and answers with one of `replies` after the other, then with 200."""

    def __init__(self, *replies: Reply, port: int = 0, context: ssl.SSLContext | None = None) -> None:
        self.replies = list(replies)
        self.requests: queue.Queue[Request] = queue.Queue()
        self.connections = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def setup(self) -> None:
                receiver.connections += 1
                super().setup()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = Request(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                answer = receiver.replies.pop(0) if receiver.replies else reply(200)
                receiver.requests.put(request)
                try:
                    answer(self)
                except OSError:
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if context:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
