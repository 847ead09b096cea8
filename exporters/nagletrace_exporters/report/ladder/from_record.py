# SPDX-License-Identifier: GPL-2.0
"""A ladder shows what happened between two ends around a stall: spans, arrows and marks on one scale of time. Each says
whether it was measured or inferred.

from_stall() makes a ladder of the stall's record alone. It places what the record does not say by the smallest round
trip, and calls that inferred. ladder_of() (from_events.py) uses the recorded events. Times are microseconds since the
hold began.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...records import Stall
from ...units import milliseconds

SENDER, RECEIVER = "sender", "receiver"
MEASURED, PLACED, INFERRED = "measured", "length measured, place inferred", "inferred"


@dataclass(frozen=True)
class Span:
    """A hold or a pending ACK, beside the life line of its end."""

    end: str
    kind: str
    begin: int
    finish: int
    basis: str
    lines: tuple[str, ...]

    def text(self) -> str:
        return ", ".join(self.lines)


@dataclass(frozen=True)
class Arrow:
    """A segment or a pure ACK on its way. `depart_basis` and `arrive_basis` say whether that moment was measured."""

    origin: str
    kind: str
    depart: int
    arrive: int
    label: str
    depart_basis: str = MEASURED
    arrive_basis: str = MEASURED

    @property
    def measured(self) -> bool:
        return self.depart_basis == self.arrive_basis == MEASURED

    def basis(self) -> str:
        if self.measured:
            return MEASURED
        if self.depart_basis == MEASURED:
            return "departure measured, arrival inferred"
        return "arrival measured, departure inferred" if self.arrive_basis == MEASURED else INFERRED


@dataclass(frozen=True)
class Mark:
    """A moment at one end: a write, a read, the timer."""

    end: str
    at: int
    label: str


@dataclass
class Ladder:
    """All parts of a drawing. `notes` say in a sentence each what was measured and what is inferred."""

    stall: Stall
    spans: list[Span] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def range(self) -> tuple[int, int]:
        times = [t for s in self.spans for t in (s.begin, s.finish)] + [m.at for m in self.marks]
        times += [t for a in self.arrows for t in (a.depart, a.arrive)]
        return min(times, default=0), max(times, default=0)

    def rows(self) -> list[tuple[int, str, str, str]]:
        """Returns the ladder as a table in order of time: when, at which end, what, and on what basis."""
        rows: list[tuple[int, str, str, str]] = []
        for span in self.spans:
            name = "hold" if span.kind == "hold" else "pending ACK"
            rows.append((span.begin, span.end, f"{name} begins: {span.text()}", span.basis))
            rows.append((span.finish, span.end, f"{name} ends", span.basis))
        for arrow in self.arrows:
            rows.append((arrow.depart, arrow.origin, f"leaves: {arrow.label}", basis_of(arrow.depart_basis)))
            rows.append((arrow.arrive, other(arrow.origin), f"arrives: {arrow.label}", basis_of(arrow.arrive_basis)))
        rows += [(mark.at, mark.end, mark.label, MEASURED) for mark in self.marks]
        return sorted(rows, key=lambda row: row[0])


def basis_of(basis: str) -> str:
    return MEASURED if basis == MEASURED else INFERRED


def other(end: str) -> str:
    return RECEIVER if end == SENDER else SENDER


def hold_lines(stall: Stall) -> tuple[str, ...]:
    if stall.hold is None:
        return ()
    return (f"hold: {stall.hold.bytes} B" if stall.hold.bytes else "wait", f"for {milliseconds(stall.duration_us)}",
            f"by {stall.hold.reason}, until {stall.hold.release}")


def ack_lines(stall: Stall) -> tuple[str, ...]:
    ack = stall.pending_ack
    if ack is None:
        return ()
    reason = (f"({ack.reason})",) if ack.reason else ()
    return ("pending ACK", f"for {milliseconds(ack.duration_us)}", f"until {ack.release}", *reason)


def from_stall(stall: Stall) -> Ladder:
    """Makes a ladder of the record alone. Time 0 is the start of the hold or pending ACK that the record measured."""
    ladder = Ladder(stall)
    way = (stall.min_rtt_us or 0) // 2
    if stall.hold is None:
        receiver_only(ladder, way)
    elif stall.cause == "cork_ceiling":
        held(ladder, way)
        ladder.notes.append(f"Measured: the hold and its release ({stall.hold.release}). No ACK was waited for.")
    else:
        held(ladder, way)
        waited_for(ladder, way)
    if stall.min_rtt_us:
        ladder.notes.append(f"Slopes are half of the connection's smallest round trip, {milliseconds(stall.min_rtt_us)}"
                            "; how long each way took was not measured.")
    else:
        ladder.notes.append("The round trip is not known: arrows are drawn level.")
    return ladder


def held(ladder: Ladder, way: int) -> None:
    """Adds the sender's hold, and the held bytes on their way."""
    stall = ladder.stall
    ladder.spans.append(Span(SENDER, "hold", 0, stall.duration_us, MEASURED, hold_lines(stall)))
    size = stall.hold.bytes if stall.hold else 0
    ladder.arrows.append(Arrow(SENDER, "held", stall.duration_us, stall.duration_us + way,
                               f"held {size} B" if size else "what came next",
                               MEASURED, INFERRED))


def waited_for(ladder: Ladder, way: int) -> None:
    """Adds the bytes in flight, and their ACK, which came late."""
    stall, end = ladder.stall, ladder.stall.duration_us
    acked = end - way
    departed, label = 0, "in flight"
    seen = MEASURED if stall.ack_after_hold_us is not None and stall.pending_ack else INFERRED
    if stall.pending_ack and stall.pending_ack.locked:
        begin, seen = stall.ack_after_hold_us or 0, INFERRED
        departed = min(0, begin - way)
        ladder.spans.append(Span(RECEIVER, "pending_ack", begin, acked, INFERRED, ack_lines(stall)))
        ladder.notes.append("Measured: the hold and its release, and that the ACK's timer found the socket in use. "
                            "Inferred: when the ACK left.")
    elif stall.pending_ack:
        begin, basis = acked - stall.pending_ack.duration_us, PLACED
        if stall.ack_after_hold_us is not None:
            begin, basis = stall.ack_after_hold_us, MEASURED
        acked = begin + stall.pending_ack.duration_us
        departed = min(0, begin - way)
        ladder.spans.append(Span(RECEIVER, "pending_ack", begin, acked, basis, ack_lines(stall)))
        when = "when and how long" if basis == MEASURED else "how long"
        ladder.notes.append(f"Measured: the hold and its release, {when} the ACK was pending, and its release. "
                            f"Inferred: {'' if basis == MEASURED else 'when it became pending, and '}when what was in "
                            "flight had left.")
    else:
        begin = departed + way
        ladder.spans.append(Span(RECEIVER, "pending_ack", min(begin, acked), acked, INFERRED,
                                 ("pending ACK", "inferred: this end", "was not seen")))
        ladder.notes.append("Measured: the hold and its release. The other end was not seen: that its ACK was pending, "
                            "and when, is inferred; what was in flight had left by the time the hold began.")
    if stall.hold and stall.hold.in_flight_bytes:
        label = f"{stall.hold.in_flight_bytes} B in flight"
    ladder.arrows.append(Arrow(SENDER, "data", departed, begin, label, INFERRED, seen))
    ladder.arrows.append(Arrow(RECEIVER, "ack", acked, end, "ACK", seen, MEASURED))


def receiver_only(ladder: Ladder, way: int) -> None:
    """Makes the ladder where the tracer saw the pending ACK and the data a round trip after it, but not the sender."""
    stall, ack = ladder.stall, ladder.stall.pending_ack
    if ack is None:
        return
    size = f"{ack.bytes} B" if ack.bytes else "data"
    came = ack.duration_us + 2 * way
    ladder.spans.append(Span(RECEIVER, "pending_ack", 0, ack.duration_us, MEASURED, ack_lines(stall)))
    ladder.spans.append(Span(SENDER, "hold", min(-way, ack.duration_us + way), ack.duration_us + way, INFERRED,
                             ("hold", "inferred: this end", "was not seen")))
    ladder.arrows.append(Arrow(SENDER, "data", -way, 0, size, INFERRED, MEASURED))
    ladder.arrows.append(Arrow(RECEIVER, "ack", ack.duration_us, ack.duration_us + way, "ACK", MEASURED, INFERRED))
    ladder.arrows.append(Arrow(SENDER, "held", ack.duration_us + way, came, "what came next", INFERRED, INFERRED))
    ladder.notes.append("Measured: how long the ACK was pending, and its release; data came next about a round "
                        "trip after it. The sender was not seen: that it held that data for the ACK is inferred.")
