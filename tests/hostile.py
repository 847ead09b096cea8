# SPDX-License-Identifier: GPL-2.0
"""What a hostile server may answer at the daemon's socket: one table, played against every client, in C and in Python.

`ANSWERS` has each answer with what a client must make of it. `HostileServer` plays one. tests/live and exporters/tests
import both; a client that is added is played against the same table.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import json
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import Ends

#: No client's resident memory (VmHWM) grows beyond what it has anyway by more than this, whatever it is told.
MOST_BYTES = 64 << 20
#: Without an answer a client gives up after 10 s (docs/protocol.md); the rest is for a loaded machine.
GIVES_UP_S = 20.0

Record = dict[str, Any]

# ---- what a good daemon says ----

IDENTITY: Record = {"protocol": 1, "time": "2026-11-22T00:00:00.000000Z", "started": "2026-11-21T00:00:00.000000Z",
                    "uptime_us": 3_600_000_000, "version": "0.1.0", "kernel": "6.1.0-test", "hooks": "function",
                    "missing_hooks": [],
                    "dropped": {"ring_full": 0, "hold_map_full": 0, "ack_map_full": 0, "stack": 0, "function_return": 0,
                                "recursion": 0}}
REASONS = ("nagle", "cork", "msg_more", "autocork", "tso_defer", "cwnd", "rwnd", "pacing", "tsq", "unknown")
RELEASES = ("ack", "full_segment", "nodelay", "uncork", "timer", "loss_probe", "push", "close", "reset", "device")
REFUSALS = ("user_readers", "all_readers", "user_waiting", "all_waiting", "descriptors")
TOTALS: Record = {"writes": 100, "stalls": {"nagle_delayed_ack": 3, "cork_ceiling": 0},
                  "holds": dict.fromkeys(REASONS, 0), "hold_us": dict.fromkeys(REASONS, 0),
                  "releases": dict.fromkeys(RELEASES, 0), "delayed_acks": {"timer": 0}, "contradicted": 0}
CONNECTION: Record = {"side": "sender", "cause": "nagle_delayed_ack", "family": 4,
                      "sender": {"address": "127.0.0.1:30001", "netns": 4026531840, "pid": 1001, "comm": "program",
                                 "cgroup": "/system.slice/program.service"},
                      "receiver": {"address": "127.0.0.1:8000", "netns": 4026531840, "pid": 4200, "comm": "server"},
                      "stalls": 3, "excess_us": 120_000,
                      "p50_us": 40_000, "p99_us": 41_000, "max_us": 42_000, "evidence": {"seen": 3, "inferred": 0},
                      "pattern": "write_write_read", "pattern_text": "write 6 B (sent), write 7 B (held)",
                      "cause_text": "Nagle holds the small segment", "fix": "set TCP_NODELAY"}
SERIES: Record = {"cause": "nagle_delayed_ack", "side": "sender", "evidence": "seen", "comm": "program", "stalls": 3,
                  "duration_us": 120_000, "excess_us": 119_000, "buckets": [0] * 6 + [3] + [0] * 10}
BOUNDS_MS = (1, 5, 10, 20, 30, 35, 40, 45, 50, 75, 100, 150, 200, 250, 500, 1000, 2000)
SNAPSHOT: Record = {"type": "snapshot", **IDENTITY, "stalls": 3, "excess_us": 120_000,
                    "bounds_us": [bound * 1000 for bound in BOUNDS_MS], "series": [SERIES], "by_cgroup": False,
                    "limits": {"max_series": 1000, "folded_stalls": 0, "evicted_series": 0, "max_connections": 1024},
                    "totals": TOTALS,
                    "tracer": {"cpu_us": 1500, "max_resident_bytes": 8 << 20, "readers": 1, "streaming": 0,
                               "requests": 3, "refused_requests": 0, "dropped_readers": 0, "skipped_stalls": 0,
                               "refusals": dict.fromkeys(REFUSALS, 0)},
                    "connections": [CONNECTION], "connections_span_us": 312_000_000}
STALL: Record = {"type": "stall", "side": "sender", "cause": "nagle_delayed_ack", "family": 4,
                 "pattern": "write_write_read", "time": "2026-11-22T00:00:00.123456Z", "evidence": "inferred",
                 "duration_us": 40_312, "excess_us": 40_277,
                 "sender": {"address": "127.0.0.1:30001", "netns": 4026531840, "pid": 1001, "comm": "program",
                            "options": {"nodelay": False, "cork": False, "pingpong": True, "quickack": False},
                            "hold": {"reason": "nagle", "release": "ack", "bytes": 7, "in_flight_bytes": 6,
                                     "mss": 32768}},
                 "receiver": {"address": "127.0.0.1:8000"}}
REPORT: Record = {"type": "report", "time": IDENTITY["time"], "closing": False, "span_us": 1_000_000, "stalls": 3,
                  "excess_us": 120_000, "connections": [CONNECTION], "folded_stalls": 0, "totals": TOTALS,
                  "dropped": IDENTITY["dropped"]}
STREAMING: Record = {"type": "streaming", "protocol": 1}


def changed(record: Record, *keys: str | int, to: object) -> Record:
    """The record with one value in it, found by its keys, that is another."""
    made = copy.deepcopy(record)
    at: Any = made
    for key in keys[:-1]:
        at = at[key]
    at[keys[-1]] = to
    return made


def line(record: object) -> bytes:
    return json.dumps(record).encode() + b"\n"


def with_number(record: Record, key: str, number: str) -> bytes:
    """The record as a line, in which the value of that key is written as json.dumps() would not write it."""
    return line(changed(record, key, to="NUMBER")).replace(b'"NUMBER"', number.encode())


# ---- the table ----


class Then(enum.Enum):
    """What the server does when it has said its answer."""

    WAITS = enum.auto()  # it keeps the connection, and answers the next request likewise
    CLOSES = enum.auto()
    GOES_ON = enum.auto()  # it says `again` over and over
    DRIPS = enum.auto()  # it says `again` byte by byte, two a second


@dataclass(frozen=True)
class Answer:
    name: str
    says: bytes = b""
    then: Then = Then.WAITS
    again: bytes = b""
    #: So often, and then `ends`; 0: as long as somebody reads.
    times: int = 0
    ends: bytes = b""
    #: No client may take this for an answer: it ends with a documented exit code other than 0, or says
    #: `nagletrace_up 0`. Else it may take it; what it shows of it does no harm.
    wrong: bool = False
    #: An answer is to be had only by waiting until the client gives up.
    slow: bool = False
    #: It accepts nobody, and its backlog is full.
    accepts: bool = True


#: A window's title, a bell, a cleared screen, CSI in one byte, a line that reads backwards, a line separator, and a
#: line that a client could have written itself. No client shows any of it raw.
EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202egpj\u2028b\nnagletrace: 0 stalls\r\x7f\\x41"
#: What no client's output has, in no encoding of the above.
RAW = (b"\x1b", b"\x07", b"\x7f", b"\r", b"\xc2\x9b", b"\xe2\x80\xae", b"\xe2\x80\xa8")

NO_JSON = {
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "an empty line": b"\n",
    "bytes that are not UTF-8": b'{"type":"text","protocol":1,"text":"\xff\xfe\x80"}\n',
    "overlong UTF-8": b'{"type":"text","protocol":1,"text":"\xc0\x9b"}\n',
    "a surrogate as UTF-8": b'{"type":"text","protocol":1,"text":"\xed\xa0\x80"}\n',
    "NUL bytes": b'{"type":"text","protocol":1,\0"text":"a"}\n',
    "raw escapes outside of a string": b'{"type":"text",\x1b[2J"protocol":1,"text":"a"}\n',
    "raw escapes in a string": b'{"type":"text","protocol":1,"text":"\x1b[2J\x07"}\n',
    "half an object": b'{"type":"text","protocol":1,\n',
    "two objects": line({"type": "text", "protocol": 1, "text": "a"})[:-1] * 2 + b"\n",
    "a comment": b'{"type":"text","protocol":1,"text":"a" /* b */}\n',
    "NaN": with_number(SNAPSHOT, "stalls", "NaN"),
    "Infinity": with_number(SNAPSHOT, "stalls", "-Infinity"),
    "deep lists": b"[" * 100_000 + b"]" * 100_000 + b"\n",
    "deep objects": b'{"type":' * 100_000 + b"1" + b"}" * 100_000 + b"\n",
    "deep in a good answer": line(changed(SNAPSHOT, "series", to="DEEP")).replace(
        b'"DEEP"', b"[" * 5_000 + b"]" * 5_000),
}

NO_OBJECTS: tuple[object, ...] = (None, True, 7, "text", [], [{"type": "text", "text": "a"}], {})
NO_TYPES: tuple[object, ...] = (None, 7, ["text"], {}, "", "tex")
NO_TEXTS: tuple[object, ...] = (None, 7, ["a"], {"a": "b"}, False)
NO_ANSWER: dict[str, object] = {
    **{f"{value!r}": value for value in NO_OBJECTS},
    **{f"type {value!r}": {"type": value, "protocol": 1, "text": "a"} for value in NO_TYPES},
    "protocol 2": {"type": "text", "protocol": 2, "text": "a"},
    "an error that is null": {"type": "error", "protocol": 1, "error": None},
    "an error that is a number": {"type": "error", "protocol": 1, "error": 5},
    "an error without words": {"type": "error", "protocol": 1},
    "an error with escapes": {"type": "error", "protocol": 1, "error": EVIL},
    "an error of a megabyte": {"type": "error", "protocol": 1, "error": "x" * 1_000_000},
    **{f"text {value!r}": {"type": "text", "protocol": 1, "text": value} for value in NO_TEXTS},
    "text that is absent": {"type": "text", "protocol": 1},
    "skipped null": {"type": "skipped", "protocol": 1, "stalls": None},
    "skipped with escapes": {"type": "skipped", "protocol": 1, "stalls": EVIL},
}

#: Wrong for whoever reads that value, of no interest to the others.
BAD_VALUES = {
    **{f"{name} {value!r:.20}": line(changed(SNAPSHOT, *keys, to=value)) for name, keys, values in (
        ("protocol", ("protocol",), (None, "1", [1])),
        ("version", ("version",), (["0.1.0"], None)),
        ("kernel", ("kernel",), (6, {})),
        ("started", ("started",), (None, "yesterday", 10 ** 30)),
        ("missing_hooks", ("missing_hooks",), (None, 3, [None])),
        ("stalls", ("stalls",), ("3", None, -1, 1.5, 10 ** 400)),
        ("series", ("series",), (None, 3, [None], ["a"], {})),
        ("a series's stalls", ("series", 0, "stalls"), ("3", 10 ** 400, -1)),
        ("a series's comm", ("series", 0, "comm"), (None, 3, EVIL)),
        ("buckets", ("series", 0, "buckets"), (None, "0", [], [0] * 16, [None] * 17, [10 ** 400] * 17)),
        ("bounds_us", ("bounds_us",), (None, [], ["1"] * 17)),
        ("totals", ("totals",), (None, [], {})),
        ("holds", ("totals", "holds"), (None, 5, {EVIL: 1}, {"nagle": EVIL})),
        ("dropped", ("dropped",), ([], 5, {"ring_full": "0"}, {EVIL: 1})),
        ("tracer", ("tracer",), (None, [])),
        ("limits", ("limits",), (None, 7)),
        ("connections", ("connections",), (None, 5, [None], [5], {})),
        ("a connection's pid", ("connections", 0, "sender", "pid"), ("1001", 10 ** 400, -1)),
        ("a connection's stack", ("connections", 0, "sender", "stack"), (5, [None], [{"symbol": 5}])),
        ("a connection's receiver", ("connections", 0, "receiver"), (None, [], {"pid": EVIL})),
    ) for value in values},
    "stalls 1e400": with_number(SNAPSHOT, "stalls", "1e400"),
    "stalls -1e400": with_number(SNAPSHOT, "stalls", "-1e400"),
    "stalls 2**64": with_number(SNAPSHOT, "stalls", "18446744073709551616"),
    "stalls with a million digits": with_number(SNAPSHOT, "stalls", "9" * 1_000_000),
    "a lone surrogate": line(changed(SNAPSHOT, "series", 0, "comm", to="a\ud800b")),
    "a lone surrogate in a text": line({"type": "text", "protocol": 1, "text": "a\ud800b\udfffc\n"}),
    "a NUL in a text": line({"type": "text", "protocol": 1, "text": "a\0b\n"}),
    "keys twice": b'{"type":null,"type":"text","protocol":2,"protocol":1,"text":null,"text":"a\\n"}\n',
    "keys twice, at last null": b'{"type":"text","type":null,"protocol":1,"text":"a","text":null}\n',
    "text with escapes": line({"type": "text", "protocol": 1, "text": EVIL}),
    "a report with escapes": line(changed(REPORT, "connections", 0, "comm", to=EVIL)),
    "a report with escapes for a key": line({**REPORT, EVIL: EVIL}),
    "a report of wrong types": line(changed(REPORT, "connections", to=None)),
    "a snapshot with escapes": line(changed(changed(SNAPSHOT, "connections", 0, "comm", to=EVIL), "kernel", to=EVIL)),
    "skipped 10**400": line({"type": "skipped", "protocol": 1, "stalls": 10 ** 400}),
    "a stall with escapes": line(STREAMING) + line(changed(STALL, "comm", to=EVIL)),
    "a stall with lists for texts": line(STREAMING) + line(changed(STALL, "comm", to=[EVIL])),
    "a stall whose numbers are texts": line(STREAMING) + line(changed(STALL, "duration_us", to=EVIL)),
    "a stall without a hold": line(STREAMING) + line(changed(STALL, "hold", to=None)),
    "stalls after which nothing is JSON": line(STREAMING) + line(STALL) + b"\x1b[2J{{{\n",
    "a type that is not known": line({"type": "gossip", "protocol": 1, "gossip": EVIL}),
}

#: Short to say and costly to keep: a beginning, what is said over and over, how often, and the end.
LARGE: dict[str, tuple[bytes, bytes, int, bytes]] = {
    "a million empty objects": (b'{"type":"snapshot","protocol":1,"series":[', b"{}," * 10_000, 100, b"{}]}\n"),
    "five million numbers": (b'{"type":"snapshot","protocol":1,"series":[', b"0," * 50_000, 100, b"0]}\n"),
    "two million keys": (b'{"type":"snapshot","protocol":1', b"".join(b',"%x":0' % number for number in range(200_000)),
                         10, b"}\n"),
    "a text of 40 MB": (b'{"type":"text","protocol":1,"text":"', b"x" * 400_000, 100, b'"}\n'),
    "a text of 40 MB of escapes": (b'{"type":"text","protocol":1,"text":"', b"\\u001b" * 66_000, 100, b'"}\n'),
    "100,000 series": (line({key: value for key, value in SNAPSHOT.items() if key != "series"})[:-2] + b',"series":[',
                       line(SERIES)[:-1] + b",", 100_000, line(SERIES)[:-1] + b"]}\n"),
}

ANSWERS: tuple[Answer, ...] = (
    *(Answer(name, says, wrong=True) for name, says in NO_JSON.items()),
    *(Answer(name, line(record), wrong=True) for name, record in NO_ANSWER.items()),
    *(Answer(name, says) for name, says in BAD_VALUES.items()),
    *(Answer(name, begins, Then.GOES_ON, again, times, ends) for name, (begins, again, times, ends) in LARGE.items()),
    Answer("it closes at once", then=Then.CLOSES, wrong=True),
    Answer("half a line, and it closes", b'{"type":"text","protocol":1,"te', Then.CLOSES, wrong=True),
    Answer("a line without its end, and it closes", line({"type": "text", "protocol": 1, "text": "a"})[:-1],
           Then.CLOSES, wrong=True),
    Answer("a line that never ends", then=Then.GOES_ON, again=b"x" * 65536, wrong=True),
    Answer("a text that never ends", b'{"type":"text","protocol":1,"text":"', Then.GOES_ON, b"x" * 65536, wrong=True),
    Answer("a list that never ends", b'{"type":"snapshot","protocol":1,"series":[', Then.GOES_ON, b"{}," * 20_000,
           wrong=True),
    Answer("white space that never ends", then=Then.GOES_ON, again=b" " * 65536, wrong=True),
    Answer("empty lines that never end", then=Then.GOES_ON, again=b"\n" * 65536, wrong=True),
    Answer("silence", wrong=True, slow=True),
    Answer("half a line, and silence", b'{"type":"text","protocol":1,"te', wrong=True, slow=True),
    Answer("a byte now and then", then=Then.DRIPS, again=b'{"type":"text","protocol":1,"text":"' + b"x" * 200,
           wrong=True, slow=True),
    Answer("nobody accepts, and no more may wait", wrong=True, slow=True, accepts=False),
)


# ---- the server ----


def fill_backlog(path: Path) -> list[socket.socket]:
    """Connections that wait to be accepted, so many that no more may; they are the caller's to close."""
    waiting = []
    for _ in range(1000):
        waiting.append(socket.socket(socket.AF_UNIX))
        waiting[-1].setblocking(False)
        try:
            waiting[-1].connect(str(path))
        except BlockingIOError:
            return waiting
    raise AssertionError("the backlog has no end")


class HostileServer(Ends):
    """Plays one answer at a socket for as long as the block lasts, to everybody who comes, at each request."""

    #: What one client is told at most, so that a test of a client without a limit ends.
    MOST_SAID = 1 << 30
    DRIP_S = 0.5

    def __init__(self, path: Path, answer: Answer) -> None:
        self.path = path
        self.answer = answer
        self.over = threading.Event()
        self.connections: list[socket.socket] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        path.chmod(0o666)
        self.listener.listen(64 if answer.accepts else 0)
        if answer.accepts:
            threading.Thread(target=self._accept, daemon=True).start()
        else:
            self.connections += fill_backlog(path)

    def _accept(self) -> None:
        while not self.over.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), connection:
            if self.answer.then is Then.CLOSES and not self.answer.says:
                return
            for _ in connection.makefile("rb"):
                self._say(connection)
                if self.answer.then is Then.CLOSES:
                    return

    def _say(self, connection: socket.socket) -> None:
        connection.sendall(self.answer.says)
        if self.answer.then is Then.GOES_ON:
            for _ in range(self.answer.times or self.MOST_SAID // len(self.answer.again)):
                connection.sendall(self.answer.again)
                if self.over.is_set():
                    return
            connection.sendall(self.answer.ends)
        elif self.answer.then is Then.DRIPS:
            for byte in self.answer.again:
                if self.over.is_set():
                    return
                connection.sendall(bytes([byte]))
                time.sleep(self.DRIP_S)

    def close(self) -> None:
        self.over.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self.path.unlink(missing_ok=True)
