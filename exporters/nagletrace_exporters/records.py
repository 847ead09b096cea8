# SPDX-License-Identifier: GPL-2.0
"""The records of nagletrace as typed values. What does not have the schema's shape is refused: recordings come from
outside, and nothing behind this file has to ask again whether a number is one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any

Json = Mapping[str, Any]

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: Longer texts are cut; the tracer's are shorter, but for paths and C++ symbols.
MAX_TEXT = 1000
#: The tracer walks 127 frames.
MAX_FRAMES = 256
#: Numbers beyond this (some 30,000 years in us) are no measurements, and would overflow a date.
MAX_NUMBER = 1 << 60


#: What is wrong with a record is told in fewer characters; it may name a key from outside.
MAX_TOLD = 200


class BadRecord(ValueError):
    """Not a record of the schema; says what is wrong with it, on one printable line."""

    def __init__(self, what: str) -> None:
        super().__init__(told(what))


def text_of(record: Json, key: str) -> str | None:
    value = record.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadRecord(f"{key} is no text")
    return printable(value[:MAX_TEXT])


def printable(text: str) -> str:
    """No character in it can break a line, a terminal, or XML: those that do are written as \\xNN."""
    if text.isprintable():  # false for controls, surrogates, and what turns the direction of text
        return text
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def told(text: str) -> str:
    """A text from outside as a message may have it."""
    return printable(text[:MAX_TOLD])[:MAX_TOLD]


def needed_text(record: Json, key: str) -> str:
    value = text_of(record, key)
    if value is None:
        raise BadRecord(f"{key} is missing")
    return value


def number_of(record: Json, key: str) -> int | None:
    value = record.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_NUMBER:
        raise BadRecord(f"{key} is no count")
    return value


def signed_of(record: Json, key: str) -> int | None:
    value = record.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or abs(value) > MAX_NUMBER):
        raise BadRecord(f"{key} is no number")
    return value


def needed_number(record: Json, key: str) -> int:
    value = number_of(record, key)
    if value is None:
        raise BadRecord(f"{key} is missing")
    return value


def object_of(record: Json, key: str) -> Json | None:
    value = record.get(key)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadRecord(f"{key} is no object")
    return value


def list_of(record: Json, key: str) -> list[Any]:
    value = record.get(key, [])
    if not isinstance(value, list):
        raise BadRecord(f"{key} is no list")
    return value


def counts_of(record: Json, key: str) -> dict[str, int]:
    """A table of words and counts."""
    table = object_of(record, key) or {}
    return {printable(word[:MAX_TEXT]): needed_number(table, word) for word in table}


def time_of(record: Json) -> int:
    """Microseconds since the epoch."""
    text = record.get("time")
    if not isinstance(text, str) or not TIME.fullmatch(text):
        raise BadRecord("time is no time")
    return second_of(text[:19]) * 1_000_000 + int(text[20:26])


@lru_cache(maxsize=1024)
def second_of(text: str) -> int:
    """Since the epoch, UTC; there are many records of one second."""
    try:
        return int(datetime.fromisoformat(text + "+00:00").timestamp())
    except (ValueError, OverflowError) as error:
        raise BadRecord("time is no time") from error


@dataclass(frozen=True)
class Hold:
    """What the sender held back, why, and what let it go."""

    reason: str
    release: str
    bytes: int
    in_flight_bytes: int
    mss: int

    @staticmethod
    def parse(record: Json) -> Hold:
        return Hold(needed_text(record, "reason"), needed_text(record, "release"), needed_number(record, "bytes"),
                    needed_number(record, "in_flight_bytes"), needed_number(record, "mss"))


@dataclass(frozen=True)
class PendingAck:
    """An ACK that the receiver put off. `bytes` is not told of a peer's."""

    us: int
    end: str
    why: str | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Process:
    """Who it was. Without a pid: it was gone before it could be named."""

    comm: str | None = None
    pid: int | None = None
    cgroup: str | None = None

    @staticmethod
    def parse(record: Json) -> Process:
        return Process(text_of(record, "comm"), number_of(record, "pid"), text_of(record, "cgroup"))

    def name(self) -> str:
        return f"{self.comm}[{self.pid}]" if self.pid is not None else self.comm or "unknown"


@dataclass(frozen=True)
class Socket:
    """One end of a connection."""

    netns: int
    local: str
    remote: str

    @staticmethod
    def parse(record: Json) -> Socket:
        return Socket(needed_number(record, "netns"), needed_text(record, "local"), needed_text(record, "remote"))


@dataclass(frozen=True)
class Frame:
    """One call; `symbol` only where the tracer could name it, `module` only where it lies in a file."""

    ip: int
    module: str | None = None
    offset: str | None = None
    symbol: str | None = None

    @staticmethod
    def parse(record: Any) -> Frame:
        if not isinstance(record, dict):
            raise BadRecord("a frame is no object")
        ip = needed_text(record, "ip")
        if not re.fullmatch(r"0x[0-9a-f]{1,16}", ip):
            raise BadRecord("ip is no address")
        return Frame(int(ip, 16), text_of(record, "module"), text_of(record, "offset"), text_of(record, "symbol"))


@dataclass(frozen=True)
class Stall:
    """Time lost for nothing, or (`type` hold) a hold that is none: then without cause, evidence and excess."""

    cause: str
    time_us: int
    side: str
    evidence: str
    duration_us: int
    excess_us: int
    min_rtt_us: int | None
    process: Process
    socket: Socket
    pattern: str
    #: the sender's; from a receiver's record only where the sender was seen too
    hold: Hold | None
    #: the receiver's; from a sender's record only where the receiver was seen too
    pending_ack: PendingAck | None
    #: the process at the other end, where it is known
    peer: Process | None
    #: innermost call first; empty: not recorded
    stack: tuple[Frame, ...] = ()
    #: when the ACK was put off, from the hold's begin on; only where both ends were seen
    ack_after_hold_us: int | None = None

    @staticmethod
    def parse(record: Json) -> Stall:
        peer = object_of(record, "peer")
        side = needed_text(record, "side")
        if side == "sender":
            mine, pending_ack = object_of(record, "hold"), peer_ack(peer)
            if mine is None:
                raise BadRecord("hold is missing")
        elif side == "receiver":
            mine, own = object_of(peer or {}, "hold"), object_of(record, "pending_ack")
            if own is None:
                raise BadRecord("pending_ack is missing")
            pending_ack = PendingAck(needed_number(own, "us"), needed_text(own, "end"), text_of(own, "why"),
                                     number_of(own, "bytes"))
        else:
            raise BadRecord("side is neither sender nor receiver")
        who = Process.parse(peer) if peer and peer.get("pid") is not None else None
        return Stall(
            needed_text(record, "cause"), time_of(record), side, needed_text(record, "evidence"),
            needed_number(record, "duration_us"), needed_number(record, "excess_us"), number_of(record, "min_rtt_us"),
            Process.parse(record), Socket.parse(record), needed_text(record, "pattern"),
            Hold.parse(mine) if mine is not None else None, pending_ack, who, stack_of(record),
            signed_of(record, "ack_after_hold_us"))


def peer_ack(peer: Json | None) -> PendingAck | None:
    if not peer or peer.get("pending_ack_us") is None:
        return None
    return PendingAck(needed_number(peer, "pending_ack_us"), needed_text(peer, "end"), text_of(peer, "why"))


def stack_of(record: Json) -> tuple[Frame, ...]:
    return tuple(Frame.parse(frame) for frame in list_of(record, "stack")[:MAX_FRAMES])


@dataclass(frozen=True)
class Event:
    """One event of a connection, at one of its ends: a record of --timeline."""

    event: str
    time_us: int
    connection: int
    process: Process
    socket: Socket
    numbers: dict[str, int] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    retransmission: bool = False

    NUMBERS = ("bytes", "seq", "ack", "in_flight_bytes", "duration_us")
    WORDS = ("reason", "release", "end", "state")

    @staticmethod
    def parse(record: Json) -> Event:
        numbers = {key: needed_number(record, key) for key in Event.NUMBERS if key in record}
        words = {key: needed_text(record, key) for key in Event.WORDS if key in record}
        return Event(needed_text(record, "event"), time_of(record), needed_number(record, "connection"),
                     Process.parse(record), Socket.parse(record), numbers, words,
                     record.get("retransmission") is True)


@dataclass(frozen=True)
class Connection:
    """A connection as the tracer's own report sums it up."""

    side: str
    cause: str
    process: Process
    socket: Socket
    stalls: int
    lost_us: int
    #: None: of several reports together, of which percentiles cannot be added
    p50_us: int | None
    p99_us: int | None
    max_us: int
    evidence: dict[str, int]
    pattern: str
    what: str
    why: str
    fix: str
    stack: tuple[Frame, ...]

    @staticmethod
    def parse(record: Any) -> Connection:
        if not isinstance(record, dict):
            raise BadRecord("a connection is no object")
        return Connection(
            needed_text(record, "side"), needed_text(record, "cause"), Process.parse(record), Socket.parse(record),
            needed_number(record, "stalls"), needed_number(record, "lost_us"), needed_number(record, "p50_us"),
            needed_number(record, "p99_us"), needed_number(record, "max_us"), counts_of(record, "evidence"),
            needed_text(record, "pattern"), needed_text(record, "what"), needed_text(record, "why"),
            needed_text(record, "fix"), stack_of(record))


@dataclass(frozen=True)
class Totals:
    """What the kernel side counted of everything that it looked at."""

    writes: int
    stalls: dict[str, int]
    holds: dict[str, int]
    hold_us: dict[str, int]
    releases: dict[str, int]
    delayed_acks: dict[str, int]

    @staticmethod
    def parse(record: Json) -> Totals:
        return Totals(needed_number(record, "writes"), counts_of(record, "stalls"), counts_of(record, "holds"),
                      counts_of(record, "hold_us"), counts_of(record, "releases"), counts_of(record, "delayed_acks"))


@dataclass(frozen=True)
class Report:
    """What the tracer told of an interval, or (closing) of all of a trace."""

    time_us: int
    closing: bool
    span_us: int
    stalls: int
    lost_us: int
    connections: list[Connection]
    folded_stalls: int
    totals: Totals
    lost: dict[str, int]

    @staticmethod
    def parse(record: Json) -> Report:
        totals = object_of(record, "totals")
        if totals is None:
            raise BadRecord("totals is missing")
        return Report(
            time_of(record), record.get("closing") is True, needed_number(record, "span_us"),
            needed_number(record, "stalls"), needed_number(record, "lost_us"),
            [Connection.parse(connection) for connection in list_of(record, "connections")],
            needed_number(record, "folded_stalls"), Totals.parse(totals), counts_of(record, "lost"))


@dataclass(frozen=True)
class Start:
    """The first line of a trace."""

    version: str
    kernel: str
    hooks: str
    missing_hooks: list[str]

    @staticmethod
    def parse(record: Json) -> Start:
        missing = [printable(hook[:MAX_TEXT]) for hook in list_of(record, "missing_hooks") if isinstance(hook, str)]
        return Start(needed_text(record, "version"), needed_text(record, "kernel"), needed_text(record, "hooks"),
                     missing)


@dataclass(frozen=True)
class Snapshot:
    """The daemon's counts since its start."""

    started_us: int
    time_us: int
    start: Start
    stalls: int
    lost_us: int
    bounds_us: list[int]
    #: stalls in each bucket alone; those longer than the last bound are in none
    buckets: list[int]
    totals: Totals
    lost: dict[str, int]

    @staticmethod
    def parse(record: Json) -> Snapshot:
        totals = object_of(record, "totals")
        if totals is None:
            raise BadRecord("totals is missing")
        bounds = [needed_number({"bound": bound}, "bound") for bound in list_of(record, "bounds_us")]
        buckets = [0] * len(bounds)
        for series in list_of(record, "series"):
            if not isinstance(series, dict):
                raise BadRecord("a series is no object")
            for i, count in enumerate(list_of(series, "buckets")[:len(bounds)]):
                buckets[i] += needed_number({"count": count}, "count")
        return Snapshot(
            time_of({"time": record.get("started")}), time_of(record), Start.parse(record),
            needed_number(record, "stalls"), needed_number(record, "lost_us"), bounds, buckets, Totals.parse(totals),
            counts_of(record, "lost"))
