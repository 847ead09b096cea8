# SPDX-License-Identifier: GPL-2.0
"""What a capture shows: the TCP segments that tcpdump saw at one place, and the stalls they tell of.

A stall on the wire: a data segment below the MSS that leaves right after a pure ACK which its receiver had delayed.
Nothing here knows what a kernel holds; it sees only what went by, at the sender's end and at the receiver's.
"""

from __future__ import annotations

import ipaddress
import struct
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dpkt

FIN, SYN, RST, ACK = 1, 2, 4, 16
#: Kinds of TCP options.
OPTION_END, OPTION_NOP, OPTION_WINDOW_SCALE, OPTION_SACK = 0, 1, 3, 5

NS = 1_000_000_000

#: By link type: where the protocol stands in the frame, and where the IP header begins.
LINKS = {1: (12, 14), 276: (0, 20)}  # LINKTYPE_ETHERNET, LINKTYPE_LINUX_SLL2


@dataclass(frozen=True, slots=True)
class Segment:
    """One TCP segment as seen at one place."""

    time: int  # ns since the epoch
    source: str  # "192.0.2.1:1234" or "[2001:db8::1]:1234"
    destination: str
    seq: int  # relative to the direction's ISN and unwrapped: the SYN is 0, the first byte of data 1
    ack: int  # relative to the other direction's ISN; 0 without the ACK flag
    length: int  # payload bytes
    flags: int
    window: int  # in bytes
    sack: bool  # SACK blocks are present
    total: int  # bytes of the IP packet

    @property
    def end(self) -> int:
        return self.seq + self.length

    @property
    def pure_ack(self) -> bool:
        return self.flags & (SYN | FIN | RST | ACK) == ACK and not self.length


@dataclass(frozen=True)
class WireStall:
    sender: str
    receiver: str
    offset: int  # stream offset of the first released byte
    length: int
    left: int  # ns since the epoch, at the sender's end, as the next
    ack_came: int
    pending: int  # ns from the arrival of the earliest data that the ACK newly acknowledges to it, at the receiver
    waited: int  # ns since the data segment before left
    ack_left: int  # ns since the epoch: when that ACK left, at the receiver's end
    answered: int  # ns from the ACK's departure to the segment's arrival, at the receiver
    behind: bool = False  # full segments left, or other ACKs came, between the ACK and this one


@dataclass(frozen=True)
class Limits:
    late: int = 30_000_000  # ns; an ACK pending for less is prompt
    at_once: int = 2_000_000  # ns; what leaves later after the ACK was not released by it
    small: int = 1  # with more small segments out, the sender has TCP_NODELAY, unless it had it only before
    behind: bool = False  # what leaves behind full segments and other ACKs is found too: those may have released it


@dataclass
class Traffic:
    segments: int = 0
    data_segments: int = 0
    bytes: int = 0  # payload
    wire_bytes: int = 0  # IP packets
    pure_acks: int = 0
    retransmitted: int = 0


def tcpdump_command(interface: str, path: str) -> list[str]:
    """Captures TCP headers with nanosecond times, each as it comes, so that none is lost at the end."""
    return ["tcpdump", "-i", interface, "-n", "-U", "--immediate-mode", "-s", "128", "-B", "32768", "-Z", "root",
            "--time-stamp-precision", "nano", "-w", path, "tcp"]


@dataclass(slots=True)
class _Raw:
    """A segment with the sequence numbers that stand in it."""

    time: int
    source: str
    destination: str
    seq: int
    ack: int
    length: int
    flags: int
    window: int
    sack: bool
    scale: int | None
    total: int


def _network(frame: bytes, link: tuple[int, int]) -> tuple[int, int, int, str, str] | None:
    """(offset of the TCP header, its length with payload, IP total length, source, destination) of a frame.

    Lengths are what the IP header says: the capture keeps only the beginning of each packet.
    """
    protocol, ip = link
    (kind,) = struct.unpack_from("!H", frame, protocol)
    if kind == dpkt.ethernet.ETH_TYPE_IP:
        header = (frame[ip] & 15) * 4
        (total,) = struct.unpack_from("!H", frame, ip + 2)
        source, destination = frame[ip + 12:ip + 16], frame[ip + 16:ip + 20]
    elif kind == dpkt.ethernet.ETH_TYPE_IP6:
        header = 40
        total = struct.unpack_from("!H", frame, ip + 4)[0] + header
        source, destination = frame[ip + 8:ip + 24], frame[ip + 24:ip + 40]
    else:
        return None
    return ip + header, total - header, total, _address(source), _address(destination)


_names: dict[bytes, str] = {}


def _address(packed: bytes) -> str:
    if packed not in _names:
        text = str(ipaddress.ip_address(packed))
        _names[packed] = f"[{text}]" if len(packed) == 16 else text
    return _names[packed]


def _options(options: bytes) -> tuple[bool, int | None]:
    """(SACK blocks present, window scale offered)."""
    sack, scale, i = False, None, 0
    while i < len(options) and options[i] != OPTION_END:
        if options[i] == OPTION_NOP:
            i += 1
            continue
        if i + 1 >= len(options) or options[i + 1] < 2:
            break
        sack = sack or options[i] == OPTION_SACK
        if options[i] == OPTION_WINDOW_SCALE:
            scale = options[i + 2]
        i += options[i + 1]
    return sack, scale


def _packets(path: Path) -> Iterator[_Raw]:
    with open(path, "rb") as file:
        # a capture in nanoseconds has its times as Decimal, one in microseconds as float
        capture = dpkt.pcap.Reader(file)
        if capture.datalink() not in LINKS:
            # read as another type it would look like a capture in which nothing happened
            raise ValueError(f"reading '{path}': link type {capture.datalink()} is not known; capture Ethernet or lo")
        link = LINKS[capture.datalink()]
        for when, frame in capture:
            time = round(when * 1_000_000) * 1000 if isinstance(when, float) else int(when * NS)
            network = _network(frame, link)
            if not network:
                continue
            tcp, size, total, source, destination = network
            sport, dport, seq, ack, offset, flags, window = struct.unpack_from("!HHIIBBH", frame, tcp)
            header = (offset >> 4) * 4
            sack, scale = _options(frame[tcp + 20:tcp + header])
            yield _Raw(time, f"{source}:{sport}", f"{destination}:{dport}", seq, ack, size - header, flags, window,
                       sack, scale, total)


class _Stream:
    """One direction of a connection: its ISN, and how far its sequence numbers have come."""

    def __init__(self) -> None:
        self.isn: int | None = None
        self.highest = 0
        self.scale: int | None = None
        self.lowest: int | None = None  # of the sequence numbers, where the SYN was not seen
        self.syn_seen = False

    def relative(self, number: int) -> int:
        """Unwrapped: the one nearest to the highest seen. Without a SYN this is provisional: see shift."""
        if self.isn is None:
            self.isn = (number - 1) & 0xFFFFFFFF
        ahead = (number - self.isn - self.highest) & 0xFFFFFFFF
        if ahead >= 1 << 31:
            ahead -= 1 << 32
        result = self.highest + ahead
        self.highest = max(self.highest, result)
        return result

    @property
    def shift(self) -> int:
        """What to add so that, without a SYN, the lowest sequence number seen is the first byte's."""
        return 0 if self.syn_seen or self.lowest is None else 1 - self.lowest


def read(path: Path | str) -> list[Segment]:
    """All TCP segments of a capture, in its order. A port pair that is used again begins anew with its SYN."""
    streams: dict[tuple[str, str], _Stream] = defaultdict(_Stream)
    seen: list[tuple[_Raw, _Stream, int, _Stream, int]] = []
    for raw in _packets(Path(path)):
        key, back = (raw.source, raw.destination), (raw.destination, raw.source)
        if raw.flags & SYN:
            streams[key] = _Stream()
            streams[key].isn = raw.seq
            streams[key].scale = raw.scale
            streams[key].syn_seen = True
        here, there = streams[key], streams[back]
        seq = here.relative(raw.seq)
        here.lowest = seq if here.lowest is None else min(here.lowest, seq)
        seen.append((raw, here, seq, there, there.relative(raw.ack) if raw.flags & ACK else 0))
    return [_segment(*one) for one in seen]


def _segment(raw: _Raw, here: _Stream, seq: int, there: _Stream, ack: int) -> Segment:
    # RFC 7323: windows are scaled only where both SYNs offered it, and never in a SYN
    scaled = here.scale is not None and (there.scale is not None or not there.syn_seen)
    window = raw.window << here.scale if scaled and not raw.flags & SYN else raw.window
    return Segment(raw.time, raw.source, raw.destination, seq + here.shift,
                   ack + there.shift if raw.flags & ACK else 0, raw.length, raw.flags, window, raw.sack, raw.total)


def connections(segments: list[Segment]) -> list[tuple[str, str]]:
    """(client, server) of each: the client sent the SYN; without one the higher port is the client's."""
    found: dict[frozenset[str], tuple[str, str]] = {}
    for s in segments:
        key = frozenset((s.source, s.destination))
        if key in found:
            continue
        ends = sorted(key, key=lambda end: int(end.rsplit(":", 1)[1]), reverse=True)
        found[key] = (s.source, s.destination) if s.flags & (SYN | ACK) == SYN else (ends[0], ends[-1])
    return list(found.values())


def traffic(segments: list[Segment], source: str, destination: str) -> Traffic:
    result = Traffic()
    highest = 0
    for s in segments:
        if (s.source, s.destination) != (source, destination):
            continue
        result.segments += 1
        result.wire_bytes += s.total
        result.bytes += s.length
        result.data_segments += s.length > 0
        result.pure_acks += s.pure_ack
        result.retransmitted += 0 < s.length and s.end <= highest
        highest = max(highest, s.end)
    return result


def min_rtt(segments: list[Segment], sender: str, receiver: str) -> int | None:
    """The shortest time from data or a SYN to its acknowledgement, in the sender's capture.

    Without what was sent again, since nobody can say which of the two was acknowledged (Karn).
    """
    best = None
    for life in _lives(segments, sender, receiver):
        out: deque[tuple[int, int]] = deque()  # (end, left) of what is not acknowledged
        nxt = 0
        for s in life:
            if s.source == sender and (s.length or s.flags & SYN):
                end = s.end + (s.flags & SYN == SYN)
                while s.seq < nxt and out and out[-1][0] > s.seq:
                    out.pop()
                if s.seq >= nxt:
                    out.append((end, s.time))
                nxt = max(nxt, end)
            elif s.source == receiver and s.flags & ACK:
                while out and out[0][0] <= s.ack:
                    took = s.time - out.popleft()[1]
                    best = took if best is None else min(best, took)
    return best


@dataclass
class _Receiver:
    """What the receiver's end shows of one direction."""

    #: for each pure ACK that acknowledged something new, by (ack, seq): how long the data had been there, when it left
    acks: dict[tuple[int, int], tuple[int, int]]
    arrivals: dict[int, int]  # by the end of the data


def _receiver(receiver_side: list[Segment], sender: str, receiver: str) -> _Receiver:
    arrived: deque[tuple[int, int]] = deque()  # (end of the data, its arrival)
    highest = 1
    result = _Receiver({}, {})
    for s in receiver_side:
        if s.source == sender and s.destination == receiver:
            if s.length and s.end > highest:
                arrived.append((s.end, s.time))
                result.arrivals[s.end] = s.time
                highest = s.end
        elif s.source == receiver and s.destination == sender and s.flags & ACK:
            earliest = None
            while arrived and arrived[0][0] <= s.ack:
                _, time = arrived.popleft()
                earliest = time if earliest is None else earliest
            if earliest is not None and s.pure_ack:
                result.acks[s.ack, s.seq] = s.time - earliest, s.time
    return result


class _Sender:
    """Follows the sender's end of one direction."""

    def __init__(self, sender: str, receiver: str, mss: int, there: _Receiver, limits: Limits) -> None:
        self.sender, self.receiver, self.mss, self.there, self.limits = sender, receiver, mss, there, limits
        self.flight: deque[tuple[int, bool]] = deque()  # (end, below the MSS) of what is not acknowledged
        self.small_out = 0  # how many of them are below the MSS
        self.retransmitted = 0  # up to here something was sent again
        self.una = self.nxt = 1
        self.last_left = 0
        self.edge: int | None = None  # the receiver takes bytes up to here
        self.late: Segment | None = None  # the ACK that may have released what leaves next
        self.late_edge: int | None = None  # the edge before it
        self.behind = False  # full segments have left since it came, or other ACKs have come

    def ack(self, s: Segment) -> None:
        fresh = s.ack > self.una
        if fresh or s.length:
            explained = s.sack or self.retransmitted > self.una or self.small_out > self.limits.small
            late = fresh and not explained and self.there.acks.get((s.ack, s.seq), (0, 0))[0] >= self.limits.late
            if self.limits.behind and self.late and not late:
                self.behind = True
            else:
                self.late, self.late_edge, self.behind = s if late else None, self.edge, False
        if fresh:
            self.una = s.ack
            while self.flight and self.flight[0][0] <= s.ack:
                self.small_out -= self.flight.popleft()[1]
        self.edge = s.ack + s.window

    def data(self, s: Segment) -> WireStall | None:
        late, self.late = self.late, None
        behind, self.behind = self.behind, False
        before, self.last_left = self.last_left, s.time
        if s.seq < self.nxt:
            self.retransmitted = max(self.retransmitted, min(s.end, self.nxt))
            late = None
        if s.end <= self.nxt:
            return None
        self.nxt = s.end
        self.flight.append((s.end, s.length < self.mss))
        self.small_out += s.length < self.mss
        if not late or s.time > late.time + self.limits.at_once:
            return None
        if s.length >= self.mss:
            if self.limits.behind:
                self.late, self.behind = late, True
            return None
        if self.late_edge is not None and s.end > self.late_edge:
            return None
        pending, departed = self.there.acks[late.ack, late.seq]
        return WireStall(self.sender, self.receiver, s.seq - 1, s.length, s.time, late.time, pending, s.time - before,
                         departed, self.there.arrivals.get(s.end, s.time) - departed, behind)


def _lives(segments: list[Segment], one: str, other: str) -> list[list[Segment]]:
    """The segments between two ends, by connection: one whose ports are used again begins with a SYN."""
    lives: list[list[Segment]] = [[]]
    for s in segments:
        if {s.source, s.destination} != {one, other}:
            continue
        if s.flags & (SYN | ACK) == SYN and any(not before.flags & SYN for before in lives[-1][-3:]):
            lives.append([])
        lives[-1].append(s)
    return lives


def long_ways(one_side: list[Segment], other_side: list[Segment], limit: int) -> list[tuple[int, int]]:
    """(left, came) of each segment that took longer than limit (ns) between the two captures, in either direction."""
    waiting: dict[tuple[str, int, int, int, int], deque[int]] = defaultdict(deque)
    for s in one_side:
        waiting[s.source, s.seq, s.ack, s.length, s.flags].append(s.time)
    ways = []
    for s in other_side:
        times = waiting[s.source, s.seq, s.ack, s.length, s.flags]
        if times:
            left, came = sorted((times.popleft(), s.time))
            if came - left > limit:
                ways.append((left, came))
    return ways


def stalls(sender_side: list[Segment], receiver_side: list[Segment], sender: str, receiver: str, mss: int,
           limits: Limits = Limits()) -> list[WireStall]:
    """The stalls of one direction of a connection; both captures may be the same one.

    Not a stall: what loss explains (retransmission, SACK), what did not fit the receive window before the ACK, what
    leaves while several small segments were out (that sender has TCP_NODELAY), and what leaves behind a full segment
    (unless limits.behind).
    """
    found = []
    for here, there in zip(_lives(sender_side, sender, receiver), _lives(receiver_side, sender, receiver)):
        follower = _Sender(sender, receiver, mss, _receiver(there, sender, receiver), limits)
        for s in here:
            stall = None
            if s.source == sender and s.length:
                stall = follower.data(s)
            elif s.source == receiver and s.flags & ACK:
                follower.ack(s)
            if stall:
                found.append(stall)
    return found
