# SPDX-License-Identifier: GPL-2.0
"""A TCP peer that is a script: it plays the application at this kernel's end, and every packet of the other end.

CONTRIBUTING.md has the language. The peer answers nothing by itself, and a packet that the script does not expect ends
it: so the script knows what was sent, when and why, and asks nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

FLAGS = {"F": 1, "S": 2, "R": 4, "P": 8, ".": 16, "U": 32}
TUNSETIFF, IFF_TUN_NO_PI = 0x400454CA, 0x1001
STEP = re.compile(r"(?:\+(?P<low>\d+(?:\.\d+)?)(?:\.\.(?P<high>\d+))?\s+)?(?P<what>[^{}]+)"
                  r"(?:\}(?P<ends>[^{]*))?(?:\{(?P<begins>.*))?")
OPTIONS = {"nodelay": (socket.IPPROTO_TCP, socket.TCP_NODELAY), "cork": (socket.IPPROTO_TCP, socket.TCP_CORK),
           "quickack": (socket.IPPROTO_TCP, socket.TCP_QUICKACK), "rcvbuf": (socket.SOL_SOCKET, socket.SO_RCVBUF),
           "sndbuf": (socket.SOL_SOCKET, socket.SO_SNDBUF)}
PEER_FIRST = 0xFFFFFF80  # its numbers wrap around soon
AFTER_MS = 5  # nothing more may come after the last step
#: A packet of the kernel's: the end of its numbers, and what it acknowledges.
SENT = re.compile(r">\S* \S+ (?:\d+:)?(\d+)(?: ack (\d+))?")


class Departure(Exception):
    """The kernel did not do what the script says, so the script shows nothing of the tracer."""


@dataclass(frozen=True)
class Step:
    text: str
    what: list[str]
    low: float  # ms after the step before
    high: float
    ends: list[str] | None
    begins: list[str] | None

    @staticmethod
    def parse(text: str) -> Step:
        found = STEP.fullmatch(text)
        if not found:
            raise ValueError(f"no step of a packet script: {text}")
        low, high, what, ends, begins = found.groups()
        if what.strip() == ">*" and (low, ends, begins) != (None, None, None):
            raise ValueError(f"no wait begins or ends with >*, and it has no time: {text}")
        return Step(text, what.split(), float(low or 0), float(high or low or 0),
                    None if ends is None else ends.split(), None if begins is None else begins.split())


@dataclass(frozen=True)
class Script:
    name: str
    role: str
    family: int
    heads: dict[str, str]
    steps: list[Step]


def spelled(lines: list[str]) -> Iterator[str]:
    """The lines, with those written out that `send` and `exchange` stand for."""
    sent = came = 1  # the ends of what the kernel has sent, and of what it has acknowledged
    for line in lines:
        verb, *sizes = line.split()
        if verb not in ("send", "exchange"):
            if found := SENT.search(line):
                sent, came = max(sent, int(found[1])), int(found[2] or came)
            yield line
            continue
        if verb == "exchange":
            size = int(sizes.pop(0))
            yield from (f"< P. {came}:{came + size}", f"> . {sent} ack {came + size}", f"read {size}")
            came += size
        for size in map(int, sizes):
            yield from (f"write {size}", f"> P. {sent}:{sent + size} ack {came}")
            sent += size


def parse(page: str) -> list[Script]:
    """All scripts of a page, each in every role, family and value of its `for`."""
    scripts = []
    for block in re.split(r"^script ", page, flags=re.MULTILINE)[1:]:
        name, *lines = [line.split("#")[0].strip() for line in block.splitlines()]
        heads = {"roles": "client server", "over": "4 6", "for": "-",
                 "xfail": "", "stalls": "", "exact": "", "jiffy": ""}
        while lines and lines[0].partition(" ")[0] in heads:
            head, _, rest = lines.pop(0).partition(" ")
            heads[head] = rest or head
        variable, *values = heads["for"].split()
        for value in values or [""]:
            valued = [line.replace(f"${variable}", value) for line in lines if line]
            steps = [Step.parse(line) for line in spelled(valued)]
            scripts += [Script(name.replace(f"${variable}", value), role, int(family), heads, steps)
                        for role in heads["roles"].split() for family in heads["over"].split()]
    return scripts


@dataclass
class Played:
    """What was done; of each wait its words, and the shortest and longest it can have been, in us."""

    local: str = ""
    remote: str = ""
    departed: str = ""
    late_ms: float = 0.0
    waits: list[tuple[list[str], int, int]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)


def checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data[:len(data) & ~1])) + (data[-1] << 8) * (len(data) % 2)
    return 0xFFFF - (total % 0xFFFF or 0xFFFF)  # the words' sum in ones' complement


#: What the kernel sends at once comes within this time of what came before it.
TAKE_S = 0.002
#: No script takes longer; in s.
LONGEST_S = 10.0
#: Who waits looks so often, and so sees when the machine stands still.
TICK_S = 0.001


class Link:
    """A TUN device in the network namespace that we are in; number n has a network of each family to itself."""

    def __init__(self, n: int) -> None:
        self.name = f"peer{n}"
        #: For so long at most it was to look and could not, since the machine did other things.
        self.stood_s = 0.0
        #: When the packet that was received last came, at the earliest.
        self.since = 0.0
        self.ours = {4: f"10.9.{n}.1", 6: f"fd09:{n}::1"}
        self.peers = {4: f"10.9.{n}.2", 6: f"fd09:{n}::2"}
        self.fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        fcntl.ioctl(self.fd, TUNSETIFF, struct.pack("16sH22x", self.name.encode(), IFF_TUN_NO_PI))

    def send(self, family: int, tcp: bytes, spoil: bool) -> None:
        kind = socket.AF_INET6 if family == 6 else socket.AF_INET
        addresses = socket.inet_pton(kind, self.peers[family]) + socket.inet_pton(kind, self.ours[family])
        sum_of_tcp = checksum(addresses + struct.pack("!II", len(tcp), socket.IPPROTO_TCP) + tcp)
        tcp = tcp[:16] + struct.pack("!H", sum_of_tcp ^ spoil) + tcp[18:]
        if family == 6:
            ip = struct.pack("!IHBB", 6 << 28, len(tcp), socket.IPPROTO_TCP, 64)
        else:
            ip = struct.pack("!BBHIBB", 0x45, 0, 20 + len(tcp), 0x4000, 64, socket.IPPROTO_TCP)
            ip += struct.pack("!H", checksum(ip + addresses))
        os.write(self.fd, ip + addresses + tcp)

    def receive(self, family: int, port: int, until: float) -> bytes | None:
        """The next TCP segment to the peer's port; None when none has come until then."""
        while True:
            began = time.monotonic()
            ready = select.select([self.fd], [], [], min(TICK_S, max(0.0, until - began)))[0]
            now = time.monotonic()
            self.stood_s = max(self.stood_s, now - began - TICK_S)
            self.since = began if now - began > TICK_S else now
            if not ready:
                if now < until:
                    continue
                return None
            packet = os.read(self.fd, 65536)
            head, protocol = (40, packet[6]) if packet[0] >> 4 == 6 else (20, packet[9])
            to = int.from_bytes(packet[head + 2:head + 4], "big")
            if (packet[0] >> 4, protocol, to) == (family, socket.IPPROTO_TCP, port):
                return packet[head:]


@dataclass
class Segment:
    flags: int
    seq: int
    bytes: int
    ack: int
    win: int
    sack: str

    def __str__(self) -> str:
        flags = "".join(letter for letter, bit in FLAGS.items() if self.flags & bit)
        return f"{flags} {self.seq}:{self.seq + self.bytes} ack {self.ack} win {self.win} sack {self.sack or '-'}"


class Player:
    """Plays one script; the kernel's end is a socket of our own namespace."""

    def __init__(self, script: Script, link: Link, port: int, slack_ms: float) -> None:
        """port: the peer's, and the kernel's where that is the server. slack_ms: at once is no later than this."""
        self.script, self.link, self.slack, self.port, self.kernel_port = script, link, slack_ms / 1000, port, port
        self.played, self.socket = Played(), socket.socket(socket.AF_INET6 if script.family == 6 else socket.AF_INET)
        self.kernel_first, self.kernel_stamp = 0, 0
        self.next, self.acked, self.window, self.stamps, self.sackable = 0, 0, 65535, True, True
        self.lingers = False
        self.writer: threading.Thread | None = None  # who waits for room
        self.got = 0  # the end of what the kernel has sent
        self.begun = self.before = self.after = time.monotonic()  # of it all; before and after its last step
        self.came = self.after  # the last step was done, or its packet came, as early as then

    def note(self, text: str) -> None:
        self.played.log.append(f"{(time.monotonic() - self.begun) * 1000:8.1f} {text}")

    def receive(self, until: float) -> Segment | None:
        tcp = self.link.receive(self.script.family, self.port, until)
        if tcp is None:
            return None
        self.kernel_port, _, seq, ack, offset, flags, window = struct.unpack("!HHIIBBH", tcp[:16])
        self.kernel_first = seq if flags & FLAGS["S"] else self.kernel_first
        offset = offset >> 4 << 2
        at, numbers = 20, {}  # of the options of 32-bit numbers
        while at < offset and tcp[at]:
            size = tcp[at + 1] if tcp[at] > 1 else 1
            numbers[tcp[at]] = struct.unpack(f"!{(size - 1) // 4}I", tcp[at + 2:at + 2 + (size - 1) // 4 * 4])
            at += size
        self.kernel_stamp = numbers.get(8, (0,))[0]
        segment = Segment(flags, (seq - self.kernel_first) % 2**32, len(tcp) - offset,
                          (ack - PEER_FIRST) % 2**32 if flags & FLAGS["."] else 0, window,
                          ":".join(str((edge - PEER_FIRST) % 2**32) for edge in numbers.get(5, ())))
        self.got = max(self.got, segment.seq + segment.bytes + bool(flags & 3))
        self.note(f"> {segment}")
        return segment

    def send(self, flags: str, *words: str) -> None:
        """FLAGS [SEQ[:END]] [ack N|all] [win W] [sack A:B] [ts MS] [ecr MS] [mss N] [badsum 1]"""
        numbers, *rest = words if words and words[0][0].isdigit() else (str(self.next), *words)
        start, _, end = numbers.partition(":")
        given = {"ack": self.acked, "win": self.window, "ts": 0, "ecr": 0, "mss": 0, "badsum": 0}
        given |= {name: self.got if value == "all" else int(value)
                  for name, value in zip(rest[::2], rest[1::2]) if name != "sack"}
        sack = dict(zip(rest[::2], rest[1::2])).get("sack", "")
        seq, size, bits = int(start), int(end or start) - int(start), sum(FLAGS[letter] for letter in flags)
        options = b""
        if given["mss"]:
            options += struct.pack("!BBHBBBB", 2, 4, given["mss"], 1, 3, 3, 0) + b"\1\1\4\2" * self.sackable
        if self.stamps:
            options += struct.pack("!BBBBII", 1, 1, 8, 10, (int(time.monotonic() * 1000) + given["ts"]) % 2**32,
                                   (self.kernel_stamp + given["ecr"]) % 2**32)
        if edges := [(int(edge) + self.kernel_first) % 2**32 for edge in sack.split(":") if edge]:
            options += struct.pack(f"!BBBB{len(edges)}I", 1, 1, 5, 2 + 4 * len(edges), *edges)
        ack = (given["ack"] + self.kernel_first) % 2**32 if bits & FLAGS["."] else 0
        header = struct.pack("!HHIIBBHI", self.port, self.kernel_port, (seq + PEER_FIRST) % 2**32, ack,
                             5 + len(options) // 4 << 4, bits, given["win"], 0)
        self.note(f"< {flags} {' '.join(words)}")
        self.link.send(self.script.family, header + options + b"x" * size, bool(given["badsum"]))
        self.next = max(self.next, seq + size + bool(bits & 3))
        self.acked = max(self.acked, given["ack"])

    def expect(self, low: float, high: float, flags: str, numbers: str, *words: str, optional: bool = False) -> None:
        """FLAGS SEQ[:END] [ack N] [win W] [sack A:B]; what is not named is not asked, nor is PSH."""
        segment, before = self.receive(self.after + high / 1000 + self.slack), self.after
        self.after, self.came = time.monotonic(), self.link.since
        if not segment and optional:
            return
        if not segment:
            raise Departure("did not come")
        self.before = max(before, self.after - self.slack)
        self.late(before, high)
        start, _, end = numbers.partition(":")
        wanted = {"flags": str(sum(FLAGS[letter] for letter in flags) | FLAGS["P"]), "seq": start,
                  "bytes": str(int(end or start) - int(start)), **dict(zip(words[::2], words[1::2]))}
        got = {**vars(segment), "flags": segment.flags | FLAGS["P"]}
        if any(str(got[name]) != value for name, value in wanted.items()) or self.after < before + low / 1000:
            raise Departure(f"came after {(self.after - before) * 1000:.1f} ms: {segment}")

    def take(self) -> None:
        """Receives what the kernel sends at once: something at least."""
        if not self.receive(time.monotonic() + self.slack):
            raise Departure("nothing came")
        while self.receive(time.monotonic() + TAKE_S):
            pass

    def fill(self, size: int) -> None:
        """Writes so many bytes at a time until the send buffer is full."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.socket.send(b"y" * size, socket.MSG_DONTWAIT)

    def wait_for_room(self, size: int, how: str) -> None:
        """Writes once more, when there is room: until then a thread sleeps in the write, or polls."""
        def write() -> None:
            with contextlib.suppress(OSError):  # the script may be over, and the socket closed
                if how == "poll":
                    select.select([], [self.socket], [], LONGEST_S)
                self.socket.settimeout(None)
                self.socket.send(b"y" * size, socket.MSG_DONTWAIT if how == "poll" else 0)

        self.writer = threading.Thread(target=write, daemon=True)
        self.writer.start()

    def late(self, since: float, ms: float) -> None:
        self.played.late_ms = max(self.played.late_ms, (time.monotonic() - since) * 1000 - ms)

    def wait(self, ms: float) -> None:
        """Since the last step; nothing is to come meanwhile."""
        came = ms and self.receive(self.after + ms / 1000)
        self.before = time.monotonic()
        self.late(self.came, ms)
        if came:
            raise Departure(f"before it came {came}")

    def call(self, verb: str, *words: str) -> None:
        """What the application does."""
        self.note(f"  {verb} {' '.join(words)}")
        wanted = done = int(words[0]) if words else 0
        if verb == "write":
            flags = {"more": socket.MSG_MORE, "eor": socket.MSG_EOR, "oob": socket.MSG_OOB}
            done = self.socket.send(b"y" * wanted, socket.MSG_DONTWAIT | sum(flags[word] for word in words[1:]))
        elif verb == "read":
            done = len(self.socket.recv(wanted, socket.MSG_DONTWAIT))
        elif verb == "fill":
            self.fill(wanted)
        elif verb == "linger":
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, wanted))
            self.lingers = wanted > 0
        elif verb == "close" and self.lingers:
            threading.Thread(target=self.socket.close, daemon=True).start()
        elif verb in OPTIONS:
            self.socket.setsockopt(*OPTIONS[verb], wanted)
        else:
            getattr(self.socket, verb)(*{"shutdown": [socket.SHUT_WR], "close": []}[verb])
        self.late(self.before, 0)
        if done != wanted:
            raise Departure(f"did {done}")

    def open(self, *words: str) -> None:
        """[rtt MS] [mss N] [win W] [stamps 0] [sack 0] [quickack 0]: the handshake, by the script's role."""
        family, how = self.script.family, dict(zip(words[::2], words[1::2]))
        self.window, self.stamps, self.sackable = int(how.get("win", 65535)), "stamps" not in how, "sack" not in how
        rtt, begun = float(how.get("rtt", 0)), self.before
        syn = ("mss", how.get("mss", "1440" if family == 6 else "1460"))
        if self.script.role == "server":
            with self.socket as listener:
                listener.bind((self.link.ours[family], self.port))
                listener.listen()
                self.send("S", "0", "ack", "0", *syn)
                self.expect(0, 0, "S.", "0", "ack", "1")
                self.wait(rtt)
                self.send(".", "1", "ack", "1")
                self.socket, _ = listener.accept()
        else:
            self.socket.setblocking(False)
            if "quickack" in how:
                self.call("quickack", how["quickack"])
            self.socket.connect_ex((self.link.peers[family], self.port))
            self.expect(0, 0, "S", "0")
            self.wait(rtt)
            self.send("S.", "0", "ack", "1", *syn)
            if "quickack" not in how:
                self.expect(0, rtt, ".", "1", "ack", "1")
        self.late(begun, rtt)
        self.played.local, self.played.remote = (("[{}]:{}" if family == 6 else "{}:{}").format(*end[:2]) for end in (
            self.socket.getsockname(), self.socket.getpeername()))

    def step(self, step: Step) -> None:
        verb, *words = step.what
        if verb == ">*":
            self.take()
            self.after = self.came = time.monotonic()
            return
        if verb[0] == ">":
            self.expect(step.low, step.high, *words, optional=verb == ">?")
            return
        self.wait(step.low)
        others: dict[str, Callable[..., None]] = {"<": self.send, "open": self.open}
        others[verb](*words) if verb in others else self.call(verb, *words)
        self.after = self.came = time.monotonic()
        if verb == "fill":
            self.take()
            if words[1:]:
                self.wait_for_room(int(words[0]), words[1])

    def play(self) -> Played:
        begun: list[tuple[list[str], float, float]] = []
        self.link.stood_s = 0.0
        try:
            for step in self.script.steps:
                self.step(step)
                if step.ends is not None:
                    words, before, after = begun.pop(0)
                    self.played.waits.append((words + step.ends, int((self.before - after) * 1e6),
                                              int((self.after - before) * 1e6)))
                if step.begins is not None:
                    begun.append((step.begins, self.before, self.after))
            self.wait(AFTER_MS)
        except (Departure, OSError) as error:
            self.played.departed = f"`{step.text}`: {error}"
        if self.link.stood_s > self.slack:  # then what came may have come before
            self.played.late_ms = max(self.played.late_ms, self.link.stood_s * 1000)
        with self.socket:
            if self.writer and self.writer.is_alive():
                with contextlib.suppress(OSError):
                    self.socket.shutdown(socket.SHUT_RDWR)  # it sleeps no longer
                self.writer.join(LONGEST_S)
            if self.socket.fileno() >= 0:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return self.played
