# SPDX-License-Identifier: GPL-2.0
"""A daemon that says what a test wants it to say, by docs/protocol.md."""

from __future__ import annotations

import copy
import json
import socket
import threading
from pathlib import Path
from typing import Any

from processes import Ends

BOUNDS_MS = (1, 5, 10, 20, 30, 35, 40, 45, 50, 75, 100, 150, 200, 250, 500, 1000, 2000)
REASONS = ("nagle", "cork", "msg_more", "autocork", "tso_defer", "cwnd", "rwnd", "pacing", "tsq", "unknown")
RELEASES = ("ack", "full_segment", "nodelay", "uncork", "timer", "loss_probe", "push", "close", "reset", "device")
DROPPED = ("ring_full", "hold_map_full", "ack_map_full", "stack", "function_return", "ring_share", "late_ack_limit",
           "recursion", "owners")

REFUSALS = ("user_readers", "all_readers", "user_waiting", "all_waiting", "descriptors")

Snapshot = dict[str, Any]


def series(comm: str | None, durations_ms: list[float], **labels: str) -> dict[str, Any]:
    """A series with stalls of these durations, each sorted into its bucket by a rule of the test's own."""
    made: dict[str, Any] = {"cause": "nagle_delayed_ack", "side": "sender", "evidence": "seen", **labels}
    if comm is not None:
        made["comm"] = comm
    buckets = [0] * len(BOUNDS_MS)
    for duration in durations_ms:
        for i, bound in enumerate(BOUNDS_MS):
            if duration <= bound:
                buckets[i] += 1
                break
    return {**made, "stalls": len(durations_ms), "duration_us": round(sum(durations_ms) * 1000),
            "excess_us": round(sum(durations_ms) * 900), "buckets": buckets}


def last_stall(duration_ms: float, **other: Any) -> dict[str, Any]:
    return {"time": "2026-11-21T08:00:09.500000Z", "duration_us": round(duration_ms * 1000), "pid": 4242,
            "netns": 4026531840, "family": 4, "local": "10.0.0.1:51234", "remote": "10.0.0.2:8000", "bytes": 7, **other}


def snapshot(*all_series: dict[str, Any], started: str = "2026-11-21T08:00:00.000000Z") -> Snapshot:
    return {
        "type": "snapshot", "protocol": 1, "time": "2026-11-21T08:00:10.000000Z", "started": started,
        "uptime_us": 10_000_000, "version": "0.1.0", "kernel": "6.1.0", "hooks": "function", "missing_hooks": [],
        "stalls": sum(s["stalls"] for s in all_series), "excess_us": sum(s["excess_us"] for s in all_series),
        "bounds_us": [bound * 1000 for bound in BOUNDS_MS], "series": list(all_series),
        "by_cgroup": any("cgroup" in s for s in all_series),
        "limits": {"max_series": 1000, "folded_stalls": 0, "evicted_series": 0, "max_connections": 1024},
        "totals": {"writes": 100, "stalls": {"nagle_delayed_ack": 0, "cork_ceiling": 0},
                   "holds": dict.fromkeys(REASONS, 0), "hold_us": dict.fromkeys(REASONS, 0),
                   "releases": dict.fromkeys(RELEASES, 0), "delayed_acks": {"timer": 0},
                   "contradicted": 0},
        "dropped": dict.fromkeys(DROPPED, 0),
        "tracer": {"cpu_us": 1500, "max_resident_bytes": 8 << 20, "readers": 1, "streaming": 0, "requests": 3,
                   "refused_requests": 0, "dropped_readers": 0, "skipped_stalls": 0,
                   "refusals": dict.fromkeys(REFUSALS, 0)},
    }


def standby(**other: Any) -> dict[str, Any]:
    """The state of a daemon with --standby."""
    return {"state": "standby", "since": "2026-11-21T08:00:04.000000Z", "standby_us": 8_000_000,
            "attached_us": 2_500_000, "changes": 2, "false_alarms": 1, "attach_failures": 3, "looks": 16,
            "look_cpu_us": 4000, "look_interval_us": 500_000, "quiet_us": 300_000_000, "sampled_excess_us": 750_000,
            **other}


class FakeDaemon(Ends):
    """Answers every line with `answer`, as long as the block lasts."""

    def __init__(self, path: Path, answer: Snapshot | bytes) -> None:
        self.path = path
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(128)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        with connection:
            self._reply(connection, connection.makefile("rb").readline())

    def _reply(self, connection: socket.socket, line: bytes) -> None:
        self.requests.append(json.loads(line))
        answer = copy.copy(self.answer)
        connection.sendall(answer if isinstance(answer, bytes) else json.dumps(answer).encode() + b"\n")

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.path.unlink(missing_ok=True)
