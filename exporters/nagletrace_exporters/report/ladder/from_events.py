# SPDX-License-Identifier: GPL-2.0
"""Makes a ladder of recorded events: each segment stands where and when the tracer saw it leave and arrive."""

from __future__ import annotations

from dataclasses import dataclass

from ...records import Event, Stall
from ...units import milliseconds
from .choose import Chosen, around_us
from .from_record import (
    INFERRED,
    MEASURED,
    PLACED,
    RECEIVER,
    SENDER,
    Arrow,
    Ladder,
    Mark,
    Span,
    ack_lines,
    from_stall,
    other,
)

#: The most that a reader can distinguish on one drawing.
MAX_ARROWS = 60
MAX_MARKS = 24
#: The most by which the segment that a hold's end released leaves before it: the two are events of one moment, in any
#: order. It leaves later where the machine is busy.
SAME_MOMENT_US = 200


@dataclass
class Picture:
    """A stall, its events and its time 0: all that a drawing is made of."""

    stall: Stall
    events: list[Event]
    #: time 0
    zero_us: int

    def end_of(self, event: Event) -> str:
        mine = event.socket == self.stall.socket
        return self.stall.side if mine else other(self.stall.side)

    def at(self, event: Event) -> int:
        return event.time_us - self.zero_us

    def sees(self, end: str) -> bool:
        return any(self.end_of(event) == end for event in self.events)

    @property
    def way(self) -> int:
        return (self.stall.min_rtt_us or 0) // 2


def zero_of(stall: Stall) -> int:
    """Returns a ladder's time 0: the start of the hold, or of the pending ACK where only that was measured."""
    began = stall.time_us - stall.duration_us
    if stall.hold is None:  # the record's time is when data came next, a round trip after the pending ACK's end
        began -= 2 * ((stall.min_rtt_us or 0) // 2)
    return began


def ladder_of(chosen: Chosen) -> Ladder:
    """Makes a ladder of the events if some of them show segments, else of the stall's record alone."""
    stall = chosen.stall
    picture = Picture(stall, shown(stall, chosen.events), zero_of(stall))
    if not any(event.event in ("sent", "received") for event in picture.events):
        return from_stall(stall)
    ladder = Ladder(stall)
    spans_from(picture, ladder)
    arrows = arrows_from(picture, ladder)
    ladder.arrows = arrows[:MAX_ARROWS]
    ladder.marks = marks_from(picture)
    notes_on(picture, ladder, chosen.cut, len(arrows) - len(ladder.arrows))
    return ladder


def shown(stall: Stall, events: list[Event]) -> list[Event]:
    """Returns the events of one stall's exchange.

    It begins with the write of the bytes that were in flight when the stall began, or a little before the stall. It
    ends a little after the stall. What came before, and what the sender writes next, are other exchanges, and may be
    other stalls.
    """
    begin, margin = stall.time_us - stall.duration_us, around_us(stall)
    by_sender = [event for event in events if (event.socket == stall.socket) == (stall.side == SENDER)]
    since = in_flight_since([event for event in by_sender if event.time_us <= begin], begin - margin)
    until = min((event.time_us for event in by_sender if event.event == "write" and event.time_us > stall.time_us),
                default=stall.time_us + margin)
    return sorted((event for event in events
                   if since <= event.time_us < until and event.time_us <= stall.time_us + margin),
                  key=lambda event: event.time_us)


def in_flight_since(before: list[Event], default: int) -> int:
    """Returns when the application began to write the bytes in flight: the first write after the sender last took
    something."""
    since = None
    for event in sorted(before, key=lambda event: event.time_us, reverse=True):
        if since is not None and event.event in ("read", "received", "hold_end"):
            break
        if (event.event == "sent" and event.numbers.get("bytes")) or (since is not None and event.event == "write"):
            since = event.time_us
    return default if since is None else since


def spans_from(picture: Picture, ladder: Ladder) -> None:
    """Adds the holds and pending ACKs that end within the drawing. The record adds the stall's own if no event did."""
    stall = picture.stall
    begun: dict[str, int] = {}
    for event in picture.events:
        end, at = picture.end_of(event), picture.at(event)
        if event.event == "ack_delayed":
            begun.setdefault(end, at)
        elif event.event == "ack_sent":
            lasted = event.numbers.get("duration_us", 0)
            ladder.spans.append(Span(end, "pending_ack", begun.pop(end, at - lasted), at, MEASURED, (
                "pending ACK", f"for {milliseconds(lasted)}", f"until {event.words.get('release', 'its end')}")))
        elif event.event == "hold_end":
            lasted = event.numbers.get("duration_us", 0)
            held = event.numbers.get("bytes", 0)
            ladder.spans.append(Span(end, "hold", at - lasted, at, MEASURED, (
                f"hold: {held} B" if held else "wait", f"for {milliseconds(lasted)}",
                f"by {event.words.get('reason', 'unknown')}, until {event.words.get('release', 'its end')}")))
    for known in from_stall(stall).spans:
        if not any(same_wait(span, known) for span in ladder.spans):
            ladder.spans.append(known)
    for span in ladder.spans:
        if span.basis == PLACED:
            ladder.notes.append(f"How long the ACK was pending was measured ({' '.join(ack_lines(stall)[1:])}); when, "
                                "is inferred.")


def same_wait(one: Span, other_: Span) -> bool:
    """Are both the same hold or pending ACK? The exchanges around the stall may have others, which do not overlap."""
    return one.end == other_.end and one.kind == other_.kind and one.begin < other_.finish and other_.begin < one.finish


def arrows_from(picture: Picture, ladder: Ladder) -> list[Arrow]:
    """Returns each segment that the tracer saw leave, with its arrival if it saw that, and those it only saw arrive."""
    received = [event for event in picture.events if event.event == "received"]
    taken: set[int] = set()
    arrows = []
    released = released_by(picture, ladder)
    for event in picture.events:
        if event.event != "sent":
            continue
        end, at = picture.end_of(event), picture.at(event)
        arrival = next((i for i, other_ in enumerate(received)
                        if picture.end_of(other_) != end and i not in taken and same_segment(event, other_)), None)
        arrives, basis = at + picture.way, INFERRED
        if arrival is not None:
            arrives, basis = picture.at(received[arrival]), MEASURED
            if covers(event, received[arrival]):
                taken.add(arrival)
        held = any(event is one for one in released)
        arrows.append(Arrow(end, kind_of(event, held), at, arrives, label_of(event, held), MEASURED, basis))
    matched = {i for i, event in enumerate(received) for sent in picture.events
               if sent.event == "sent" and picture.end_of(sent) != picture.end_of(event) and same_segment(sent, event)}
    for i, event in enumerate(received):
        if i not in matched:
            at = picture.at(event)
            arrows.append(Arrow(other(picture.end_of(event)), kind_of(event, False), at - picture.way, at,
                                label_of(event, False), INFERRED, MEASURED))
    return sorted(arrows, key=lambda arrow: arrow.depart)


def released_by(picture: Picture, ladder: Ladder) -> list[Event]:
    """Returns the segments that the ends of holds released: of each the first that the sender sent then."""
    sent = [event for event in picture.events
            if event.event == "sent" and event.numbers.get("bytes", 0) and picture.end_of(event) == SENDER]
    moments = [span.finish - SAME_MOMENT_US for span in ladder.spans if span.end == SENDER and span.kind == "hold"]
    firsts = [next((event for event in sent if picture.at(event) >= moment), None) for moment in moments]
    return [event for event in firsts if event]


def same_segment(sent: Event, received: Event) -> bool:
    """Can the received segment be the sent one? Segments are cut and joined on the way; pure ACKs are not."""
    if received.time_us < sent.time_us:
        return False
    size, came = sent.numbers.get("bytes", 0), received.numbers.get("bytes", 0)
    seq, came_seq = sent.numbers.get("seq", 0), received.numbers.get("seq", 0)
    if not size or not came:
        return size == came and sent.numbers.get("ack") == received.numbers.get("ack") and seq == came_seq
    return came_seq < seq + size and seq < came_seq + came


def covers(sent: Event, received: Event) -> bool:
    """Does the received segment hold bytes of this one alone? A segment joined from several belongs to each of them."""
    return (received.numbers.get("seq", 0) + received.numbers.get("bytes", 0)
            <= sent.numbers.get("seq", 0) + sent.numbers.get("bytes", 0))


def kind_of(event: Event, held: bool) -> str:
    if not event.numbers.get("bytes", 0):
        return "ack"
    return "held" if held else "data"


def label_of(event: Event, held: bool) -> str:
    size = event.numbers.get("bytes", 0)
    again = ", sent again" if event.retransmission else ""
    if not size:
        return f"ACK {event.numbers.get('ack', 0)}{again}"
    return f"{'held ' if held else ''}{size} B{again}"


def marks_from(picture: Picture) -> list[Mark]:
    """Returns what the applications and the timer did."""
    labels = {"write": "write {bytes} B", "read": "read {bytes} B", "ack_timer": "ACK timer"}
    marks = []
    for event in picture.events:
        if event.event in labels:
            label = labels[event.event].format(bytes=event.numbers.get("bytes", 0))
            marks.append(Mark(picture.end_of(event), picture.at(event), label))
    return marks[:MAX_MARKS]


def notes_on(picture: Picture, ladder: Ladder, cut: bool, left_out: int) -> None:
    ends = [end for end in (SENDER, RECEIVER) if picture.sees(end)]
    if len(ends) == 2:
        ladder.notes.insert(0, "Drawn from recorded events of both ends.")
    else:
        ladder.notes.insert(0, f"Drawn from recorded events of the {ends[0]}; the other end was not seen.")
    if any(not arrow.measured for arrow in ladder.arrows):
        ladder.notes.append("Dashed arrows: one of their ends was not recorded, and is drawn half of the smallest "
                            "round trip away." if picture.stall.min_rtt_us else
                            "Dashed arrows: one of their ends was not recorded; the round trip is not known, and they "
                            "are drawn level.")
    if left_out:
        ladder.notes.append(f"{left_out} later segments are left out.")
    if cut:
        ladder.notes.append("There were more events before these.")
