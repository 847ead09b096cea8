# SPDX-License-Identifier: GPL-2.0
"""The records of nagletrace as typed values, by userspace/output/nagletrace.schema.json.

Each class is a shape of the schema. The annotation of a field says how decode() reads it; the field's name is the key.
decode() refuses a record of another shape: recordings come from outside, and the code behind this file does not ask
again whether a number is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache, lru_cache
from sys import getsizeof
from typing import Annotated, Any, Optional, TypeVar, get_type_hints

Json = Mapping[str, Any]

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: decode() cuts longer texts. The tracer's texts are shorter, except paths of files and C++ symbols: the path of a
#: cgroup has up to 256 bytes, and four characters for each that is escaped.
MAX_TEXT = 1024
#: No word of the schema, name of a process, or address with its port is longer. The limits matter, because a report
#: keeps some 10,000 events.
MAX_WORD, MAX_COMM, MAX_ADDRESS = 64, 128, 80
#: The most digits of a container's ID.
MAX_CONTAINER = 64
#: The tracer walks at most 127 frames.
MAX_FRAMES = 128
#: The most characters of one stack's names; stack_of() cuts off the calls further out.
MAX_STACK_TEXT = 32 << 10
#: The most words of a table; the schema's largest has 13.
MAX_TABLE = 64
#: A larger number (some 30,000 years in us) is no measurement, and would overflow a date.
MAX_NUMBER = 1 << 60
#: The most characters of a message about a wrong record, since it may name a key from outside.
MAX_MESSAGE = 200


class BadRecord(ValueError):
    """An object is no record of the schema. The message says what is wrong with it, on one printable line."""

    def __init__(self, what: str) -> None:
        super().__init__(for_message(what))


def text_of(record: Json, key: str, most: int = MAX_TEXT) -> str | None:
    value = record.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadRecord(f"{key} is no text")
    return kept_once(value[:most])


@lru_cache(maxsize=4096)
def kept_once(text: str) -> str:
    """Makes a text printable. All who keep it share one copy, because most texts come again and again."""
    return printable(text)


def printable(text: str) -> str:
    """Writes each character that could break a line, a terminal, or XML as \\xNN."""
    if text.isprintable():  # false for controls, surrogates, and what turns the direction of text
        return text
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def process_name(comm: str | None, pid: int | None) -> str:
    """Names a process for people, as far as it is known."""
    return f"{comm or 'unknown'}{f'[{pid}]' if pid is not None else ''}"


def for_message(text: str) -> str:
    """Makes a text from outside fit for a message: short and printable."""
    return printable(text[:MAX_MESSAGE])[:MAX_MESSAGE]


def needed_word(record: Json, key: str) -> str:
    return needed_text(record, key, MAX_WORD)


def needed_text(record: Json, key: str, most: int = MAX_TEXT) -> str:
    value = text_of(record, key, most)
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
    """Reads a table of words and counts."""
    table = object_of(record, key)
    if table is None:
        raise BadRecord(f"{key} is missing")
    if len(table) > MAX_TABLE:
        raise BadRecord(f"{key} has more than {MAX_TABLE} words")
    return {kept_once(word[:MAX_WORD]): needed_number(table, word) for word in table}


def maybe_counts_of(record: Json, key: str) -> dict[str, int] | None:
    return counts_of(record, key) if key in record else None


def time_of(record: Json, key: str = "time") -> int:
    """Returns microseconds since the epoch."""
    text = record.get(key)
    if not isinstance(text, str) or not TIME.fullmatch(text):
        raise BadRecord(f"{key} is no time")
    return second_of(text[:19]) * 1_000_000 + int(text[20:26])


@lru_cache(maxsize=1024)
def second_of(text: str) -> int:
    """Returns seconds since the epoch, UTC. The cache helps because many records are of one second."""
    try:
        return int(datetime.fromisoformat(text + "+00:00").timestamp())
    except (ValueError, OverflowError) as error:
        raise BadRecord("time is no time") from error


# ---- the decoder ----


@dataclass(frozen=True)
class Read:
    """Reads a field of a class from an object. `keys`: the keys that it reads, unless that is the field's name."""

    value: Callable[[Json, str], Any]
    keys: tuple[str, ...] = ()
    #: the object always has it, as the schema requires
    needed: bool = False
    #: the shape of the value under the key, or of keys in the same object
    shape: Any = None
    same_object: bool = False


T = TypeVar("T")


@cache
def readers_of(kind: Any) -> dict[str, Read]:
    """Returns how each field of a class is read, by the field's name."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: read for name, hint in hints.items() for read in getattr(hint, "__metadata__", ())}


@cache
def plan_of(kind: Any) -> list[tuple[str, str, Callable[[Json, str], Any]]]:
    return [(name, read.keys[0] if read.keys else name, read.value) for name, read in readers_of(kind).items()]


def decode(kind: Callable[..., T], record: Any, name: str = "the record") -> T:
    """Makes a value of that class from an object. Raises BadRecord if the object has another shape."""
    if not isinstance(record, dict):
        raise BadRecord(f"{name} is no object")
    return kind(**{attribute: value(record, key) for attribute, key, value in plan_of(kind)})


def part(kind: Any, needed: bool = False) -> Read:
    """Reads an object of that shape under a key of its own."""
    def value(record: Json, key: str) -> Any:
        if not needed and record.get(key) is None:
            return None
        if key not in record:
            raise BadRecord(f"{key} is missing")
        return decode(kind, record[key], key)
    return Read(value, needed=needed, shape=kind)


def elements(one: Callable[[Json, str], Any], needed: bool = False, shape: Any = None) -> Read:
    """Reads a list, each element as if it stood under the list's key."""
    def value(record: Json, key: str) -> Any:
        if needed and key not in record:
            raise BadRecord(f"{key} is missing")
        return [one({key: element}, key) for element in list_of(record, key)]
    return Read(value, needed=needed, shape=shape)


def parts(kind: Any, needed: bool = False) -> Read:
    """Reads a list of objects of that shape."""
    return elements(lambda record, key: decode(kind, record[key], f"one of {key}"), needed, kind)


def inlined(kind: Any) -> Read:
    """Reads keys of the same object that make a shape of their own."""
    return Read(lambda record, _: decode(kind, record), shape=kind, same_object=True)


def among(value: Callable[[Json, str], Any], keys: tuple[str, ...]) -> Read:
    """Reads those of the keys that the object has into a table."""
    return Read(lambda record, _: {key: value(record, key) for key in keys if key in record}, keys)


def needed_flag(record: Json, key: str) -> bool:
    value = record.get(key)
    if not isinstance(value, bool):
        raise BadRecord(f"{key} is neither true nor false")
    return value


def flag_of(record: Json, key: str) -> bool | None:
    return needed_flag(record, key) if key in record else None


def address_of(record: Json, key: str) -> str:
    return needed_text(record, key, MAX_ADDRESS)


Flag = Annotated[bool, Read(lambda record, key: record.get(key) is True)]
MaybeFlag = Annotated[Optional[bool], Read(flag_of)]
Word = Annotated[str, Read(needed_word, needed=True)]
MaybeWord = Annotated[Optional[str], Read(lambda record, key: text_of(record, key, MAX_WORD))]
Text = Annotated[str, Read(needed_text, needed=True)]
MaybeText = Annotated[Optional[str], Read(text_of)]
MaybeContainer = Annotated[Optional[str], Read(lambda record, key: text_of(record, key, MAX_CONTAINER))]
MaybeComm = Annotated[Optional[str], Read(lambda record, key: text_of(record, key, MAX_COMM))]
Address = Annotated[str, Read(address_of, needed=True)]
Count = Annotated[int, Read(needed_number, needed=True)]
MaybeCount = Annotated[Optional[int], Read(number_of)]
MaybeSigned = Annotated[Optional[int], Read(signed_of)]
Percentile = Annotated[Optional[int], Read(needed_number, needed=True)]
Counts = Annotated["dict[str, int]", Read(counts_of, needed=True)]
MaybeCounts = Annotated[Optional[dict[str, int]], Read(maybe_counts_of)]
Time = Annotated[int, Read(time_of, ("time",), needed=True)]


# ---- the shapes ----


@dataclass(frozen=True)
class Hold:
    """The bytes that the sender held back, why it did, and what released them."""

    reason: Word
    release: Word
    bytes: Count
    in_flight_bytes: Count
    mss: Count


@dataclass(frozen=True)
class PendingAck:
    """An ACK that the receiver delayed, why it did, and what released it."""

    duration_us: Count
    release: Word
    bytes: Count
    reason: MaybeWord = None
    #: it left later than that
    locked: Flag = False


@dataclass(frozen=True)
class Process:
    """The process at one end, or without a pid a part of the kernel, as "kernel (cifsd)". It has neither if it was gone
    before the tracer could name it."""

    comm: MaybeComm = None
    pid: MaybeCount = None
    cgroup: MaybeText = None
    #: of the container and of the pod of Kubernetes that the cgroup names
    container_id: MaybeContainer = None
    pod_uid: MaybeContainer = None

    def name(self) -> str:
        return process_name(self.comm, self.pid)

    def placed(self) -> str:
        """As a report of the tracer's says it: in which pod, or else in which container."""
        where = f" in pod {self.pod_uid[:8]}…" if self.pod_uid else ""
        return self.name() + (where or (f" in container {self.container_id[:12]}…" if self.container_id else ""))

    def memory(self) -> int:
        return sum(map(getsizeof, (self.cgroup, self.container_id, self.pod_uid)))


@dataclass(frozen=True)
class Socket:
    """One end of a connection, with the addresses as that end sees them."""

    netns: Count
    local: Address
    remote: Address


def frame_address(record: Json, key: str) -> int:
    ip = needed_text(record, key)
    if not re.fullmatch(r"0x[0-9a-f]{1,16}", ip):
        raise BadRecord(f"{key} is no address")
    return int(ip, 16)


@dataclass(frozen=True)
class Frame:
    """One call. It has a `symbol` only if the tracer could name it, and a `module` only if its code lies in a file."""

    ip: Annotated[int, Read(frame_address, needed=True)]
    module: MaybeText = None
    offset: MaybeText = None
    symbol: MaybeText = None


def stack_of(record: Json, key: str) -> tuple[Frame, ...]:
    frames: list[Frame] = []
    room = MAX_STACK_TEXT
    for frame in list_of(record, key)[:MAX_FRAMES]:
        frames.append(decode(Frame, frame, "a frame"))
        room -= sum(len(text or "") for text in (frames[-1].module, frames[-1].offset, frames[-1].symbol))
        if room < 0:
            break
    return tuple(frames)


MaybeHold = Annotated[Optional[Hold], part(Hold)]
MaybePendingAck = Annotated[Optional[PendingAck], part(PendingAck)]


@dataclass(frozen=True)
class End:
    """One of the two ends of a stall or of a connection. An end that the tracer did not see has only its address."""

    address: Address
    netns: MaybeCount
    process: Annotated[Process, inlined(Process)]
    #: only the sender's end has it
    hold: MaybeHold
    #: only the receiver's end has it
    pending_ack: MaybePendingAck
    #: only the sender's end has it, innermost call first; it is empty if the tracer did not record it
    stack: Annotated[tuple[Frame, ...], Read(stack_of, shape=Frame)] = ()


@dataclass(frozen=True)
class TwoEnds:
    """The part that a stall and a connection have in common."""

    side: Word
    cause: Word
    sender: Annotated[End, part(End, needed=True)]
    receiver: Annotated[End, part(End, needed=True)]
    #: what waited, where the cause alone does not say it
    reason: MaybeWord = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.side not in ("sender", "receiver"):
            raise BadRecord("side is neither sender nor receiver")
        if self.own.netns is None:
            raise BadRecord("netns is missing")

    @property
    def why(self) -> str:
        """The cause, and the reason where it has one."""
        return f"{self.cause} ({self.reason})" if self.reason else self.cause

    @property
    def own(self) -> End:
        """The end that the tracer's filters chose."""
        return self.sender if self.side == "sender" else self.receiver

    @property
    def far(self) -> End:
        return self.receiver if self.side == "sender" else self.sender

    @property
    def process(self) -> Process:
        return self.own.process

    @property
    def socket(self) -> Socket:
        return Socket(self.own.netns or 0, self.own.address, self.far.address)

    @property
    def peer(self) -> Process | None:
        """The process at the other end, if it is known."""
        return self.far.process if self.far.process.comm is not None else None


@dataclass(frozen=True)
class Stall(TwoEnds):
    """Time that a connection lost for nothing."""

    time_us: Time
    evidence: Word
    duration_us: Count
    excess_us: Count
    min_rtt_us: MaybeCount
    pattern: Word
    #: us from the start of the hold to the start of the pending ACK; known only if the tracer saw both ends
    ack_after_hold_us: MaybeSigned = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.side == "sender" and self.hold is None:
            raise BadRecord("hold is missing")
        if self.side == "receiver" and self.pending_ack is None:
            raise BadRecord("pending_ack is missing")

    @property
    def hold(self) -> Hold | None:
        return self.sender.hold

    @property
    def pending_ack(self) -> PendingAck | None:
        return self.receiver.pending_ack


def event_number(record: Json, key: str) -> int:
    """Reads a count; seq and ack are relative to what the tracer saw first, and negative before that."""
    value = signed_of(record, key) if key in ("seq", "ack") else number_of(record, key)
    if value is None:
        raise BadRecord(f"{key} is missing")
    return value


EVENT_NUMBERS = ("bytes", "seq", "ack", "in_flight_bytes", "duration_us")
EVENT_WORDS = ("reason", "release", "state")


@dataclass(frozen=True)
class Event:
    """One event of a connection, at one of its ends: a record of --timeline."""

    event: Word
    time_us: Time
    connection: Count
    socket: Annotated[Socket, inlined(Socket)]
    numbers: Annotated[dict[str, int], among(event_number, EVENT_NUMBERS)]
    words: Annotated[dict[str, str], among(needed_word, EVENT_WORDS)]
    retransmission: Flag


@dataclass(frozen=True)
class Connection(TwoEnds):
    """The tracer's own sums of one connection."""

    stalls: Count
    excess_us: Count
    #: None for several reports together, since percentiles do not add up
    p50_us: Percentile
    p99_us: Percentile
    max_us: Count
    evidence: Counts
    pattern: Word
    pattern_text: Text
    cause_text: Text
    fix: Text

    def memory(self) -> int:
        """Returns about how many bytes it takes."""
        stack = self.sender.stack
        texts = (self.pattern_text, self.cause_text, self.fix,
                 *(frame.symbol for frame in stack), *(frame.module for frame in stack))
        processes = self.sender.process.memory() + self.receiver.process.memory()
        return 2500 + 200 * len(stack) + processes + sum(map(getsizeof, texts))


@dataclass(frozen=True)
class Totals:
    """The kernel side's counts of everything that it looked at."""

    writes: Count
    stalls: Counts
    holds: Counts
    hold_us: Counts
    releases: Counts
    delayed_acks: Counts
    contradicted: Count


@dataclass(frozen=True)
class SlowHolds:
    """Holds of processes of one name and for one reason that cost time and were no stall."""

    reason: Word
    socket: Annotated[Socket, inlined(Socket)]
    holds: Count
    hold_us: Count
    advice: Text
    comm: MaybeComm = None
    #: None: there are several, or none was seen
    pid: MaybeCount = None

    def name(self) -> str:
        return process_name(self.comm, self.pid)


@dataclass(frozen=True)
class Report:
    """The tracer's report of an interval, or (closing) of a whole trace."""

    time_us: Time
    closing: Flag
    span_us: Count
    stalls: Count
    excess_us: Count
    connections: Annotated[list[Connection], parts(Connection)]
    folded_stalls: Count
    totals: Annotated[Totals, part(Totals, needed=True)]
    dropped: Counts
    slow_holds: Annotated[list[SlowHolds], parts(SlowHolds)] = field(default_factory=list)


@dataclass(frozen=True)
class Start:
    """The first line of a trace."""

    version: Text
    kernel: Text
    hooks: Text
    missing_hooks: Annotated[list[str], elements(needed_text, needed=True)]


@dataclass(frozen=True)
class LastStall:
    """The last stall of a label set, at our end."""

    time_us: Time
    duration_us: Count
    local: Address
    remote: Address
    bytes: Count
    pid: MaybeCount = None


MaybeLastStall = Annotated[Optional[LastStall], part(LastStall)]


@dataclass(frozen=True)
class Series:
    """Stalls of one label set."""

    cause: Word
    side: Word
    evidence: Word
    stalls: Count
    duration_us: Count
    excess_us: Count
    #: Each bucket counts its own stalls only; no bucket counts a stall longer than the last bound.
    buckets: Annotated[list[int], elements(needed_number, needed=True)]
    reason: MaybeWord
    comm: MaybeComm
    cgroup: MaybeText
    container_id: MaybeContainer
    pod_uid: MaybeContainer
    last: MaybeLastStall


@dataclass(frozen=True)
class Limits:
    """What the bounds of the daemon's memory merged."""

    folded_stalls: Count
    evicted_series: Count


@dataclass(frozen=True)
class Costs:
    """What the daemon costs, and how its readers fare."""

    cpu_us: Count
    #: of the BPF programs, where the kernel keeps statistics; with --max-overhead their share instead
    bpf_cpu_us: MaybeCount
    share_ppm: MaybeCount
    max_resident_bytes: Count
    readers: Count
    dropped_readers: Count
    skipped_stalls: Count
    #: None: of an older daemon
    refusals: MaybeCounts


@dataclass(frozen=True)
class Standby:
    """In which state a daemon with --standby is, and what its looks at the sockets estimate."""

    state: Word
    since_us: Annotated[int, Read(time_of, ("since",), needed=True)]
    standby_us: Count
    attached_us: Count
    changes: Count
    false_alarms: Count
    attach_failures: Count
    looks: Count
    look_cpu_us: Count
    sampled_excess_us: Count


MaybeStandby = Annotated[Optional[Standby], part(Standby)]


@dataclass(frozen=True)
class Snapshot:
    """The daemon's counts since it started."""

    started_us: Annotated[int, Read(time_of, ("started",), needed=True)]
    time_us: Time
    start: Annotated[Start, inlined(Start)]
    stalls: Count
    excess_us: Count
    bounds_us: Annotated[list[int], elements(needed_number, needed=True)]
    series: Annotated[list[Series], parts(Series, needed=True)]
    by_cgroup: Annotated[bool, Read(needed_flag, needed=True)]
    #: None: of an older daemon
    filtered: MaybeFlag
    totals: Annotated[Totals, part(Totals, needed=True)]
    limits: Annotated[Limits, part(Limits, needed=True)]
    tracer: Annotated[Costs, part(Costs, needed=True)]
    dropped: Counts
    detached_hooks: Annotated[list[str], elements(needed_text)]
    unseen: MaybeCount
    unnamed_stacks: MaybeCounts
    standby: MaybeStandby
    #: by option; None: the kernel does not list them
    kept: MaybeCounts

    def __post_init__(self) -> None:
        if any(len(series.buckets) != len(self.bounds_us) for series in self.series):
            raise BadRecord("buckets are not as many as bounds_us")

    def buckets(self) -> list[int]:
        """Returns the stalls of all series in each bucket."""
        return [sum(counts) for counts in zip([0] * len(self.bounds_us), *(series.buckets for series in self.series))]
