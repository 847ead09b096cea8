# SPDX-License-Identifier: GPL-2.0
"""What a program did to its sockets, as strace recorded its system calls: when it wrote, and which options it set.

On the wire a relay looks like a sender that holds a segment: it writes the next piece just as the ACK of the one before
comes, since it had nothing to write sooner. Only the program's own calls tell the two apart.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from score import Log, Write

#: What strace is asked for; -f follows children and threads, -yy names both ends of a socket.
STRACE = ("strace", "-f", "-ttt", "-T", "-yy", "-s", "0", "-e",
          "trace=write,writev,sendto,sendmsg,sendfile,splice,setsockopt,connect,accept,accept4")
OPTIONS = ("TCP_NODELAY", "TCP_CORK")

_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+)(<[^ ]*>)?[^<]*<([\d.]+)>$", re.DOTALL)
_ENDS = re.compile(r"<TCP:\[([\d.]+:\d+)->([\d.]+:\d+)\]>")
#: A socket with one end or none: what listens, and what is not connected yet (by its inode).
_SOCKET = re.compile(r"(\d+)<TCP:\[([^\]>]+)\]>")


@dataclass(frozen=True)
class Call:
    start: int  # ns since the epoch, as all times here
    end: int
    name: str
    arguments: str
    result: int
    returned: str  # what strace says of a descriptor that it returned


def read(path: Path) -> list[Call]:
    """All calls of a recording that returned, in the order in which they began."""
    begun: dict[str, tuple[str, str]] = {}
    calls = []
    for line in path.read_text().splitlines():
        thread, at, text = line.split(maxsplit=2)
        if text.endswith("<unfinished ...>"):
            begun[thread] = at, text.removesuffix("<unfinished ...>")
            continue
        if text.startswith("<... "):
            at, head = begun.pop(thread, (at, ""))
            text = head + text.partition(" resumed>")[2]
        call = _CALL.match(text)
        if call:
            name, arguments, result, returned, took = call.groups()
            start = _ns(at)
            calls.append(Call(start, start + _ns(took), name, arguments, int(result), returned or ""))
    return sorted(calls, key=lambda call: call.start)


def _ns(seconds: str) -> int:
    whole, _, part = seconds.partition(".")
    return int(whole) * 1_000_000_000 + int(part.ljust(9, "0"))


def target_of(call: Call) -> str:
    """The descriptor that a call writes to, as strace shows it."""
    arguments = call.arguments.split(", ")
    return arguments[2] if call.name == "splice" and len(arguments) > 2 else arguments[0]


def logs_of(calls: list[Call]) -> dict[tuple[str, str], Log]:
    """The log of each (sender, receiver) whose sender made these calls."""
    logs: dict[tuple[str, str], Log] = defaultdict(Log)
    #: what was set on a socket with one end or none, by its address or inode, and by descriptor once it is connected
    early: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for call in calls:
        ends = _ENDS.findall(target_of(call))
        alone = _SOCKET.match(call.arguments)
        if call.name == "setsockopt":
            for option in OPTIONS:
                value = re.search(rf"{option}, \[(\d+)\]", call.arguments)
                if value and not call.result and ends:
                    logs[ends[0]].options.append((call.start, call.end, option, int(value[1])))
                elif value and not call.result and alone:
                    early[alone[2]].append((option, int(value[1])))
        elif call.name.startswith("accept") and alone:
            for pair in _ENDS.findall(call.returned):
                logs[pair].options += [(call.start, call.end, *one) for one in early[alone[2]]]
        elif call.name == "connect" and alone:
            early[f"fd {alone[1]}"] = early.pop(alone[2], [])
        elif call.name not in ("connect", "accept", "accept4") and ends and call.result > 0:
            log = logs[ends[0]]
            descriptor = f"fd {target_of(call).partition('<')[0]}"
            log.options += [(call.start, call.start, *one) for one in early.pop(descriptor, [])]
            at = log.writes[-1].offset + log.writes[-1].length if log.writes else 0
            log.writes.append(Write(at, call.result, call.start, call.end, "_MORE" in call.arguments))
    return logs
