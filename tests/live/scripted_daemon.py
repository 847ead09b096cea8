# SPDX-License-Identifier: GPL-2.0
"""Something at the daemon's socket that says what a test wants it to say."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from harness import Record
from processes import Ends

IDENTITY = {"protocol": 1, "time": "2026-11-22T00:00:00.000000Z", "started": "2026-11-21T00:00:00.000000Z",
            "version": "0.1.0", "kernel": "6.1.0-test", "hooks": "function", "missing_hooks": []}
DROPPED = {"ring_full": 0, "hold_map_full": 0, "ack_map_full": 0, "stack": 0, "function_return": 0, "ring_share": 0,
           "late_ack_limit": 0, "recursion": 0, "owners": 0}


def connection(number: int, sender: Record | None = None, **changes: object) -> Record:
    """One of a snapshot; the first ones lost most time."""
    return {"side": "sender", "cause": "nagle_delayed_ack", "family": 4,
            "sender": {"address": f"127.0.0.1:{30000 + number}", "netns": 4026531840, "pid": 1000 + number,
                       "comm": f"program-{number}", "cgroup": f"/system.slice/{number}.service", **(sender or {})},
            "receiver": {"address": "127.0.0.1:8000", "netns": 4026531840, "pid": 4200, "comm": "server"},
            "stalls": 1000 - number, "excess_us": (1000 - number) * 40_000,
            "p50_us": 40_000 + number, "p99_us": 41_000, "max_us": 42_000 + number,
            "evidence": {"seen": 1000 - number, "inferred": 0}, "pattern": "write_write_read",
            "pattern_text": "write 6 B (sent), write 7 B (held), waits for the reply",
            "cause_text": "Nagle holds the small segment",
            "fix": "write both parts at once (writev, a buffer, MSG_MORE), or set TCP_NODELAY", **changes}


def stall(of: Record, **changes: object) -> Record:
    """The last one of that connection, seen at both ends."""
    options = {"nodelay": False, "cork": False, "pingpong": True, "quickack": False}
    same = {key: of[key] for key in ("side", "cause", "family", "pattern")}
    hold = {"reason": "nagle", "release": "ack", "bytes": 7, "in_flight_bytes": 6, "mss": 32768}
    pending_ack = {"duration_us": 40_200, "reason": "pingpong", "release": "timer", "bytes": 6}
    return {"type": "stall", **same, "time": "2026-11-22T00:00:00.123456Z", "evidence": "seen", "duration_us": 40_312,
            "excess_us": 40_277, "ack_after_hold_us": -20,
            "sender": {**of["sender"], "options": options, "hold": hold},
            "receiver": {**of["receiver"], "options": options, "pending_ack": pending_ack}, **changes}


def snapshot(connections: list[Record], stalls: int, **changes: object) -> Record:
    return {"type": "snapshot", **IDENTITY, "uptime_us": 3_600_000_000, "stalls": stalls, "excess_us": stalls * 40_000,
            "dropped": DROPPED, "connections": connections, "connections_span_us": 312_000_000, **changes}


class Asker:
    """Who is connected. What is said to it comes whole, whichever thread says it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.lock = threading.Lock()

    def say(self, lines: bytes) -> None:
        with self.lock:
            self.connection.sendall(lines)

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        with self.lock:  # nobody speaks any more
            self.connection.close()


class FakeDaemon(Ends):
    """Answers each request by answer(request), which returns bytes or what is one JSON line each; None: hangs up."""

    def __init__(self, path: Path, answer: Callable[[Record], bytes | list[Record] | None]) -> None:
        self.path = path
        self.answer = answer
        self.requests: list[Record] = []
        self.askers: list[Asker] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            asker = Asker(connection)
            self.askers.append(asker)
            threading.Thread(target=self._serve, args=(asker,), daemon=True).start()

    def _serve(self, asker: Asker) -> None:
        with contextlib.suppress(OSError):
            for line in asker.connection.makefile("rb"):
                request = json.loads(line)
                self.requests.append(request)
                answer = self.answer(request)
                if answer is None:
                    break
                if not isinstance(answer, bytes):
                    answer = b"".join(json.dumps(record).encode() + b"\n" for record in answer)
                asker.say(answer)
        asker.hang_up()

    def say(self, lines: bytes) -> None:
        """To everybody, without being asked."""
        for asker in self.askers:
            with contextlib.suppress(OSError):
                asker.say(lines)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for asker in self.askers:
            asker.hang_up()
        self.path.unlink(missing_ok=True)


class Stalling:
    """Answers as a daemon would on whose host so many connections stall, 20 times a second together."""

    def __init__(self, connections: list[Record]) -> None:
        self.connections = connections
        self.began = time.monotonic()

    def __call__(self, request: Record) -> list[Record]:
        if request["request"] == "stream":
            return [{"type": "streaming", "protocol": 1}, *(stall(c) for c in self.connections)]
        return [snapshot(self.connections, int(5000 + 20 * (time.monotonic() - self.began)))]
