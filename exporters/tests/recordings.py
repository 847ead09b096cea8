# SPDX-License-Identifier: GPL-2.0
"""Recordings as the tracer would have made them, by userspace/output/nagletrace.schema.json."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from fake_daemon import DROPPED, REASONS, RELEASES

Record = dict[str, Any]

BEGIN = datetime(2026, 11, 21, 8, 0, 0, tzinfo=timezone.utc)
NETNS = 4026531840
CLIENT, SERVER = "127.0.0.1:51234", "127.0.0.1:8000"


def at(us: int) -> str:
    return (BEGIN + timedelta(microseconds=us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def start() -> Record:
    return {"type": "start", "schema": 1, "version": "0.1.0", "kernel": "6.1.0-25-amd64", "hooks": "function",
            "clock": "CLOCK_REALTIME", "missing_hooks": []}


def options(**of: bool) -> Record:
    return {"nodelay": False, "cork": False, "pingpong": True, "quickack": False, **of}


def hold(**of: Any) -> Record:
    return {"reason": "nagle", "release": "ack", "bytes": 7, "in_flight_bytes": 6, "writes": 1, "mss": 32768, **of}


#: Keys of an end; changed() puts them into the end that the record is told of, and `local` and `remote` likewise.
OF_AN_END = ("pid", "tid", "comm", "cgroup", "container_id", "pod_uid", "netns", "options", "hold", "pending_ack",
             "stack")


def changed(record: Record, **of: Any) -> Record:
    """With other values."""
    ends = {side: dict(record[side]) for side in ("sender", "receiver")}
    own, far = ends[record["side"]], ends["receiver" if record["side"] == "sender" else "sender"]
    own |= {key: value for key, value in of.items() if key in OF_AN_END}
    for key, end in (("local", own), ("remote", far)):
        if key in of:
            end["address"] = of.pop(key)
    return {**record, **ends, **{key: value for key, value in of.items() if key not in OF_AN_END}}


def seen(end_us: int = 1_000_000, duration_us: int = 43_900, rtt_us: int = 35, **of: Any) -> Record:
    """Both ends on this host: the sender's record, with the receiver's pending ACK."""
    ack = {"duration_us": max(0, duration_us - rtt_us), "reason": "pingpong", "release": "timer", "bytes": 6}
    return changed({
        "type": "stall", "cause": "nagle_delayed_ack", "time": at(end_us), "side": "sender", "evidence": "seen",
        "pattern": "write_write_read", "duration_us": duration_us, "excess_us": max(0, duration_us - rtt_us),
        "min_rtt_us": rtt_us, "family": 4,
        "sender": {"address": CLIENT, "netns": NETNS, "pid": 4242, "tid": 4243, "comm": "java",
                   "cgroup": "/system.slice/app.service", "options": options(), "hold": hold()},
        "receiver": {"address": SERVER, "netns": NETNS, "pid": 4200, "comm": "server", "options": options(),
                     "pending_ack": ack}}, **of)


def inferred(end_us: int = 1_000_000, duration_us: int = 71_200, rtt_us: int = 30_100, **of: Any) -> Record:
    """The receiver is another host."""
    return changed(seen(end_us, duration_us, rtt_us, evidence="inferred", pid=77, tid=77, comm="nginx",
                        local="10.0.0.2:443", pattern="reply_tail",
                        hold=hold(bytes=512, in_flight_bytes=1448, mss=1448)),
                   receiver={"address": "192.0.2.7:40001"}, **of)


def peer_holds(end_us: int = 1_000_000, pending_us: int = 40_100, rtt_us: int = 900, **of: Any) -> Record:
    """The sender is another host."""
    ack = {"duration_us": pending_us, "reason": "quick_exhausted", "release": "timer", "bytes": 112}
    return changed({
        "type": "stall", "cause": "delayed_ack", "reason": "unknown", "time": at(end_us), "side": "receiver",
        "evidence": "inferred", "pattern": "peer_holds", "duration_us": pending_us, "excess_us": pending_us,
        "min_rtt_us": rtt_us, "family": 6,
        "sender": {"address": "[2001:db8::1]:50000"},
        "receiver": {"address": "[2001:db8::2]:6379", "netns": NETNS, "pid": 900, "comm": "redis",
                     "options": options(), "pending_ack": ack}}, **of)


def cork_ceiling(end_us: int = 1_000_000, duration_us: int = 203_400, **of: Any) -> Record:
    return changed(seen(end_us, duration_us, 80, cause="cork_ceiling", pid=55, tid=55, comm="httpd",
                        local="10.0.0.2:80", pattern="cork_ceiling", options=options(cork=True),
                        hold=hold(reason="cork", release="timer", bytes=300, in_flight_bytes=0, mss=1448)),
                   receiver={"address": "10.0.0.9:33333"}, **of)


def stack(*symbols: str) -> list[Record]:
    """Innermost first. A name that begins with 0x is an address that nobody could name."""
    frames = []
    for number, symbol in enumerate(symbols):
        frame: Record = {"ip": hex(0x7F00_0000_1000 + 16 * number)}
        if symbol.startswith("0x"):
            frame["ip"] = symbol
        else:
            frame |= {"module": "/usr/lib/libnet.so", "offset": hex(0x1000 + 16 * number), "symbol": symbol}
        frames.append(frame)
    return frames


def events(end_us: int = 1_000_000, duration_us: int = 43_900, way_us: int = 20, ends: str = "both") -> list[Record]:
    """A request in two writes and its answer: what happens at both ends, or at one, around a stall like seen()."""
    begin = end_us - duration_us
    client = {"connection": 1, "pid": 4242, "comm": "java", "netns": NETNS, "family": 4, "local": CLIENT,
              "remote": SERVER}
    server = {"connection": 1, "pid": 4200, "comm": "server", "netns": NETNS, "family": 4, "local": SERVER,
              "remote": CLIENT}
    acked = end_us - way_us
    told = [
        (begin - 9, client, {"event": "write", "bytes": 6}),
        (begin - 5, client, {"event": "sent", "seq": 1, "bytes": 6, "ack": 1}),
        (begin, client, {"event": "hold_begin", "reason": "nagle", "bytes": 7, "in_flight_bytes": 6}),
        (begin + 2, client, {"event": "write", "bytes": 7}),
        (begin - 5 + way_us, server, {"event": "received", "seq": 1, "bytes": 6, "ack": 1}),
        (begin - 4 + way_us, server, {"event": "ack_delayed"}),
        (begin + 3 + way_us, server, {"event": "read", "bytes": 6}),
        (acked - 3, server, {"event": "ack_timer"}),
        (acked, server, {"event": "sent", "seq": 1, "bytes": 0, "ack": 7}),
        (acked + 1, server, {"event": "ack_sent", "release": "timer",
                            "duration_us": acked + 1 - (begin - 4 + way_us)}),
        (end_us - 1, client, {"event": "received", "seq": 1, "bytes": 0, "ack": 7}),
        (end_us, client, {"event": "sent", "seq": 7, "bytes": 7, "ack": 1}),
        (end_us, client, {"event": "hold_end", "reason": "nagle", "release": "ack", "bytes": 7,
                          "duration_us": duration_us}),
        (end_us + way_us, server, {"event": "received", "seq": 7, "bytes": 7, "ack": 1}),
        (end_us + way_us + 9, server, {"event": "read", "bytes": 7}),
        (end_us + way_us + 30, server, {"event": "sent", "seq": 1, "bytes": 40, "ack": 14}),
        (end_us + 2 * way_us + 30, client, {"event": "received", "seq": 1, "bytes": 40, "ack": 14}),
    ]
    wanted = {"both": (client, server), "sender": (client,), "receiver": (server,)}[ends]
    return [{"type": "event", "time": at(when), **end, **what}
            for when, end, what in sorted(told, key=lambda one: one[0]) if any(end is one for one in wanted)]


def with_events(end_us: int = 1_000_000, duration_us: int = 43_900, way_us: int = 20, ends: str = "both",
                **of: Any) -> list[Record]:
    """The events and, among them, the stall's record, where the tracer writes it."""
    stall = seen(end_us, duration_us, 2 * way_us, **of)
    lines = [*events(end_us, duration_us, way_us, ends)]
    later = next((i for i, line in enumerate(lines) if line["time"] > stall["time"]), len(lines))
    return [*lines[:later], stall, *lines[later:]]


def connection(**of: Any) -> Record:
    return changed({
        "side": "sender", "cause": "nagle_delayed_ack", "family": 4,
        "sender": {"address": CLIENT, "netns": NETNS, "pid": 4242, "comm": "java"}, "receiver": {"address": SERVER},
        "stalls": 3, "excess_us": 131_000, "p50_us": 43_900, "p99_us": 44_000,
        "max_us": 44_000, "evidence": {"seen": 3, "inferred": 0}, "pattern": "write_write_read",
        "pattern_text": "write 6 B (sent), write 7 B (held), waits for the reply",
        "cause_text": "Nagle holds the small segment until what is in flight is acknowledged; server[4200], in "
                      "interactive mode, delays that ACK until its timer fires (43.8 ms)",
        "fix": "write both parts at once (writev, a buffer, MSG_MORE), or set TCP_NODELAY"}, **of)


def report(*connections: Record, closing: bool = True, span_us: int = 30_000_000, stalls: int | None = None,
           **of: Any) -> Record:
    held = dict.fromkeys(REASONS, 0) | {"nagle": 24, "cwnd": 2}
    totals = {"writes": 50, "stalls": {"nagle_delayed_ack": 24, "cork_ceiling": 0}, "holds": held,
              "hold_us": dict.fromkeys(REASONS, 0) | {"nagle": 1_053_600},
              "releases": dict.fromkeys(RELEASES, 0) | {"ack": 26},
              "delayed_acks": {"timer": 24}, "contradicted": 0}
    return {"type": "report", "time": at(span_us), "closing": closing, "span_us": span_us,
            "stalls": sum(c["stalls"] for c in connections) if stalls is None else stalls,
            "excess_us": sum(c["excess_us"] for c in connections), "connections": list(connections),
            "groups": [{**c, "connections": 1, "processes": 1} for c in connections], "folded_stalls": 0,
            "totals": totals, "dropped": dict.fromkeys(DROPPED, 0), **of}


def mixed(rounds: int = 20) -> list[Record]:
    """Every kind of stall, one of them with its events, and the closing report."""
    lines: list[Record] = [start()]
    trace = ("__write", "send_call", "NET_Send", "0x7f8810001234", "Client.main")
    for n in range(rounds):
        then = 1_000_000 * (n + 1)
        lines.append(seen(then, 39_000 + 977 * (n % 7), stack=stack(*trace)))
        if n % 3 == 0:
            lines.append(inferred(then + 100_000, 69_000 + 311 * n, stack=stack("__send", "flush", "reply")))
        if n % 4 == 0:
            lines.append(peer_holds(then + 200_000, 40_000 + 13 * n))
        if n % 5 == 0:
            lines.append(cork_ceiling(then + 300_000, 203_000 + 400 * n))
    lines += with_events((rounds + 2) * 1_000_000, 43_900)
    stalls = sum(line["type"] == "stall" for line in lines)
    return [*lines, report(connection(stalls=rounds + 1), stalls=stalls, span_us=(rounds + 3) * 1_000_000)]


def write(path: Path, lines: list[Record]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
