# SPDX-License-Identifier: GPL-2.0
"""The joined stalls as a report for people, in the manner of the tracer's own."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ..records import printable, process_name
from ..units import milliseconds
from .engine import Clock, Counts, Engine, Totals

WIDTH = 80
#: The pairs of processes that are shown, and of hosts.
SHOWN = 20

#: Why the kernel delayed the ACK, as the tracer says it.
REASONS = {
    "pingpong": "its socket is in interactive mode",
    "quick_exhausted": "its credit of quick ACKs is used up",
    "left_unread": "it read a part and left the rest, and only a read of all sends the ACK",
    "quickack_off": "it has switched TCP_QUICKACK off",
    "delack_max": "its socket or route sets the delay",
}
#: What waited for it, by the reason of the cause delayed_ack.
WAITED = {
    "nagle": "Nagle holds the bytes until what is sent is acknowledged",
    "msg_more": "MSG_MORE of the last write holds the bytes until what is sent is acknowledged",
    "cwnd": "the congestion window lets nothing more out until what is sent is acknowledged",
    "sndbuf": "the send buffer is full until what is sent is acknowledged",
    "linger": "close() lingers until its FIN is acknowledged",
    "handshake": "accept() waits for the last ACK of the handshake",
    "unknown": "the sender waited for this ACK, mostly with bytes that Nagle holds, or wrote just then",
}
EVIDENCE = {
    "seen": "seen at both ends",
    "inferred": "inferred: the other end's host was not recorded then, or its records are not complete",
}


class Group:
    """Stalls between the same two processes: the row of them all, of which the last is an example."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.durations: Counter[int] = Counter()
        for duration, stalls in row["durations"]:
            self.durations[duration] += stalls
        self.last: dict[str, Any] = {key: printable(value) if isinstance(value, str) else value
                                     for key, value in row.items()}

    @property
    def stalls(self) -> int:
        return sum(self.durations.values())

    def percentile(self, percent: int) -> int:
        wanted, seen = max(1, -(-self.stalls * percent // 100)), 0
        for duration in sorted(self.durations):
            seen += self.durations[duration]
            if seen >= wanted:
                return duration
        return 0

    def process(self, end: str) -> str:
        return process_name(self.last[f"{end}_comm"], self.last[f"{end}_pid"])

    def who(self, end: str) -> str:
        """The process and its host, or the address where another host has it."""
        last = self.last
        host = last["host"] or "?"
        if end != last["side"]:
            host = last["other_host"] or (host if last[f"{end}_netns"] is not None else None)
        return f"{self.process(end)} on {host}" if host else str(last[end])


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def delay(group: Group) -> str:
    why = REASONS.get(group.last["pending_reason"], "")
    limit_us = group.last["limit_us"]
    limit = f"the kernel's limit there is {milliseconds(limit_us)}" if limit_us else ""
    return "; ".join(filter(None, (why, limit)))


def labelled(label: str, text: str) -> Iterator[str]:
    for i, line in enumerate(textwrap.wrap(text, WIDTH - 14, break_long_words=False, break_on_hyphens=False)):
        yield f"    {label if not i else '':<10}{line}\n"


def lines_of(group: Group) -> Iterator[str]:
    last = group.last
    yield f"\n  {group.who('sender')} → {group.who('receiver')}\n"
    yield (f"    {counted(group.stalls, 'stall')}  p50 {milliseconds(group.percentile(50))}  "
           f"p99 {milliseconds(group.percentile(99))}  max {milliseconds(max(group.durations))}\n")
    yield from labelled("address", f"{last['sender']} → {last['receiver']}")
    if last["held"] is not None:
        yield from labelled("pattern", f"{last['pattern']}: {last['in_flight']} B in flight, {last['held']} B held")
    if last["cause"] == "cork_ceiling":
        yield from labelled("why", "the sender's cork held the bytes until the probe timer sent them")
    elif last["pending_us"] is not None:
        why = delay(group)
        yield from labelled("why", f"{WAITED.get(last['reason'] or 'nagle', WAITED['unknown'])}; "
                            f"{group.process('receiver')} delays that ACK by "
                            f"{milliseconds(last['pending_us'])}{f' ({why})' if why else ''}")
    if last["calls"]:
        yield from labelled("where", " ← ".join(printable(call or "?") for call in last["calls"]))
    yield from labelled("evidence", EVIDENCE.get(last["verdict"], last["verdict"]))


def clock_line(clock: Clock) -> str:
    one, other = printable(clock.one), printable(clock.other)
    acks = counted(clock.acks, "ACK")
    if abs(clock.ahead_us) < 100:
        return f"{one} and {other} agree ({acks})"
    word = "ahead of" if clock.ahead_us > 0 else "behind"
    return f"{one} is {milliseconds(abs(clock.ahead_us))} {word} {other} ({acks})"


def report(engine: Engine) -> Iterator[str]:
    totals = {verdict: Totals(0, 0) for verdict in ("seen", "inferred", "contradicted")} | engine.tally()
    known = [totals["seen"], totals["inferred"]]
    stalls = sum(one.stalls for one in known)
    yield (f"nagletrace-join: {counted(stalls, 'stall')} on {counted(engine.hosts(), 'host')} cost "
           f"{milliseconds(sum(one.excess_us for one in known))}\n\n")
    yield from labelled("seen", f"{totals['seen'].stalls:,} at both ends")
    yield from labelled("inferred", f"{totals['inferred'].stalls:,} from one end")
    if totals["contradicted"].stalls:
        yield from labelled("dismissed",
                            f"{totals['contradicted'].stalls:,} that one end inferred and the other host contradicts")
    for i, clock in enumerate(engine.clocks()[:SHOWN]):
        yield from labelled("" if i else "clocks", clock_line(clock))
    groups = [Group(row) for row in engine.groups(SHOWN)]
    for group in groups:
        yield from lines_of(group)
    more = stalls - sum(group.stalls for group in groups)
    if more:
        yield f"\n  {more:,} more stalls between other processes; --output json has all\n"


def remarks(counts: Counts, clocks: list[Clock]) -> list[str]:
    """What keeps records from being joined, a sentence each."""
    said = []
    if counts.broken:
        said.append(f"{counts.broken:,} of {counts.lines:,} lines could not be read.")
    if counts.keys > 1 and not clocks:
        said.append("the recordings have different keys, so that nothing can be joined; give all hosts the same "
                    "--fleet-key.")
    if counts.without_ids and not counts.with_ids:
        said.append("no record names its ACK; record with a nagletrace that has --fleet-key.")
    elif counts.starts_without_late_acks:
        said.append(f"{counts.starts_without_late_acks:,} of the recordings have no late ACKs; give nagletrace "
                    "--late-acks, or its daemon --max-late-acks 100.")
    return said
