# SPDX-License-Identifier: GPL-2.0
"""Ladders: what is measured is where it was measured, and what is inferred is called so."""

from __future__ import annotations

import pytest
import recordings as r

from nagletrace_exporters.records import MAX_NUMBER, Event, Stall, decode
from nagletrace_exporters.report.ladder.choose import Chooser, Chosen
from nagletrace_exporters.report.ladder.from_events import ladder_of
from nagletrace_exporters.report.ladder.from_record import INFERRED, MEASURED, PLACED, Arrow, Ladder, Span, from_stall
from nagletrace_exporters.report.ladder.svg import (
    LENGTH,
    RECEIVER_X,
    SENDER_X,
    STEP,
    TOP,
    Labels,
    Scale,
    draw,
)


def chosen(lines: list[r.Record], most: int = 6) -> list[Chosen]:
    chooser = Chooser(most)
    for line in lines:
        if line["type"] in ("stall", "event"):
            chooser.add(decode(Stall, line) if line["type"] == "stall" else decode(Event, line))
    return chooser.chosen()


def ladder(lines: list[r.Record]) -> Ladder:
    return ladder_of(chosen(lines)[0])


def span(ladder: Ladder, kind: str) -> Span:
    (one,) = [span for span in ladder.spans if span.kind == kind]
    return one


def arrows(ladder: Ladder, kind: str) -> list[Arrow]:
    return [arrow for arrow in ladder.arrows if arrow.kind == kind]


def test_of_both_ends_the_length_of_the_pending_ack_is_measured_and_its_place_inferred() -> None:
    made = from_stall(decode(Stall, r.seen(duration_us=44_000, rtt_us=2_000)))
    assert (span(made, "hold").begin, span(made, "hold").finish, span(made, "hold").basis) == (0, 44_000, MEASURED)
    ack = span(made, "pending_ack")
    assert (ack.begin, ack.finish, ack.basis) == (1_000, 43_000, PLACED)
    (first,), (answer,), (held,) = arrows(made, "data"), arrows(made, "ack"), arrows(made, "held")
    assert (first.origin, first.depart, first.arrive, first.label) == ("sender", 0, 1_000, "6 B in flight")
    assert (answer.origin, answer.depart, answer.arrive) == ("receiver", 43_000, 44_000)
    assert answer.basis() == "arrival measured, departure inferred"
    assert (held.depart, held.arrive, held.label) == (44_000, 45_000, "held 7 B")
    assert held.basis() == "departure measured, arrival inferred"
    assert "the ACK was pending, and its release" in made.notes[0]


def test_where_the_tracer_tells_when_the_ack_became_pending_it_is_drawn_there() -> None:
    made = from_stall(decode(Stall, r.seen(duration_us=44_000, rtt_us=2_000, ack_after_hold_us=-300)))
    ack = span(made, "pending_ack")
    assert (ack.begin, ack.finish, ack.basis) == (-300, 41_700, MEASURED)
    (first,), (answer,) = arrows(made, "data"), arrows(made, "ack")
    assert (first.depart, first.arrive) == (-1_300, -300) and (answer.depart, answer.arrive) == (41_700, 44_000)
    assert answer.measured and "when and how long" in made.notes[0] and "when it became pending" not in made.notes[0]


def test_the_ack_of_a_locked_socket_leaves_in_time_for_the_hold_to_end() -> None:
    record = r.seen(ack_after_hold_us=200)
    record["receiver"]["pending_ack"] |= {"duration_us": 20_000, "locked": True}
    made = ladder([record])
    ack, [arrow] = span(made, "pending_ack"), arrows(made, "ack")
    assert (ack.begin, ack.basis) == (200, INFERRED) and ack.finish == arrow.depart > 40_000
    assert arrow.depart_basis == INFERRED


def test_from_one_end_nothing_of_the_other_is_called_measured() -> None:
    sender = from_stall(decode(Stall, r.inferred()))
    assert span(sender, "hold").basis == MEASURED and span(sender, "pending_ack").basis == INFERRED
    assert "was not seen" in " ".join(sender.notes) and not any(arrow.measured for arrow in sender.arrows)
    receiver = from_stall(decode(Stall, r.peer_holds(pending_us=40_000, rtt_us=900)))
    assert span(receiver, "pending_ack").basis == MEASURED and span(receiver, "hold").basis == INFERRED
    assert span(receiver, "pending_ack").finish == 40_000 and arrows(receiver, "held")[0].arrive == 40_900
    for made in (sender, receiver):
        told = {(row[1], row[3]) for row in made.rows()}
        assert ({"sender", "receiver"} - {made.stall.side}).pop() not in {end for end, basis in told
                                                                           if basis == MEASURED}


def test_a_cork_waits_for_no_ack() -> None:
    made = from_stall(decode(Stall, r.cork_ceiling()))
    assert [span.kind for span in made.spans] == ["hold"] and not arrows(made, "ack") and not arrows(made, "data")
    assert "by cork, until timer" in made.spans[0].text()


def test_a_round_trip_that_is_not_known_is_not_made_up() -> None:
    record = r.inferred()
    del record["min_rtt_us"]
    made = from_stall(decode(Stall, record))
    assert all(arrow.depart == arrow.arrive for arrow in made.arrows)
    assert "not known" in " ".join(made.notes)


def test_recorded_events_of_both_ends_are_drawn_where_they_were() -> None:
    made = ladder(r.with_events(1_000_000, 43_900, 2_000))
    assert all(arrow.measured for arrow in made.arrows)
    assert all(span.basis == MEASURED for span in made.spans)
    assert [(a.label, a.depart, a.arrive) for a in made.arrows] == [
        ("6 B", -5, 1_995), ("ACK 7", 41_900, 43_899), ("held 7 B", 43_900, 45_900), ("40 B", 45_930, 47_930)]
    assert (span(made, "pending_ack").begin, span(made, "pending_ack").finish) == (1_996, 41_901)
    assert [mark.label for mark in made.marks] == ["write 6 B", "write 7 B", "read 6 B", "ACK timer", "read 7 B"]


def test_the_released_segment_is_the_first_after_the_hold_however_late_it_leaves() -> None:
    lines = r.with_events(1_000_000, 43_900, 2_000)
    for line in lines:
        if line.get("event") == "sent" and line["bytes"] == 7:
            line["time"] = r.at(1_000_900)
    held = [arrow.label for arrow in ladder(lines).arrows if arrow.kind == "held"]
    assert held == ["held 7 B"]


def test_the_stalls_own_pending_ack_is_drawn_where_events_show_only_a_later_one() -> None:
    """By tracepoints, an ACK that is delayed in the same jiffy as the one before it has no event."""
    lines = [line for line in r.with_events(ack_after_hold_us=20)
             if line.get("event") not in ("ack_delayed", "ack_sent")]
    read = next(line for line in reversed(lines) if line.get("event") == "read")
    lines.insert(lines.index(read) + 1, {**read, "event": "ack_sent", "release": "read", "duration_us": 9})
    own, later = sorted((s for s in ladder(lines).spans if s.kind == "pending_ack"), key=lambda s: s.begin)
    assert (own.end, own.begin, own.basis) == ("receiver", 20, MEASURED) and own.finish > 40_000
    assert later.end == "receiver" and later.finish - later.begin == 9


@pytest.mark.parametrize(("end", "other"), [("sender", "receiver"), ("receiver", "sender")])
def test_events_of_one_end_leave_the_other_inferred(end: str, other: str) -> None:
    lines = r.with_events(1_000_000, 43_900, 2_000, ends=end)
    if end == "receiver":
        lines = [line for line in lines if line["type"] == "event"]
        lines.append(r.peer_holds(1_004_000, 39_906, 4_000, netns=r.NETNS, local=r.SERVER, remote=r.CLIENT))
    made = ladder(lines)
    assert not any(arrow.measured for arrow in made.arrows)
    assert all(row[3] != MEASURED for row in made.rows() if row[1] == other)
    assert f"of the {end}; the other end was not seen" in made.notes[0]


def test_segments_joined_on_the_way_are_drawn_from_each_that_left() -> None:
    lines = r.with_events(1_000_000, 43_900, 2_000)
    first = next(line for line in lines if line.get("event") == "sent")
    lines.insert(lines.index(first), {**first, "time": r.at(956_085), "seq": 1, "bytes": 3})
    first["seq"], first["bytes"] = 4, 3
    made = ladder(lines)
    assert [(a.depart, a.arrive) for a in arrows(made, "data")][:2] == [(-15, 1_995), (-5, 1_995)]


def test_a_segment_sent_again_says_so() -> None:
    lines = r.with_events()
    sent = next(line for line in lines if line.get("event") == "sent")
    lines.insert(lines.index(sent) + 1, {**sent, "retransmission": True})
    assert "6 B, sent again" in [arrow.label for arrow in ladder(lines).arrows]


def test_events_of_other_connections_and_times_are_not_drawn() -> None:
    other = [{**line, "connection": 2, "local": line["local"] + "1"} for line in r.events()]
    early = [{**line, "time": line["time"].replace(":00:", ":59:").replace("T08", "T07")} for line in r.events()]
    lines = sorted([*early, *other, *r.events()], key=lambda line: line["time"])
    assert len(ladder([*lines, r.seen(rtt_us=40)]).arrows) == len(ladder(r.with_events()).arrows) == 4


def test_the_exchange_before_is_not_drawn_but_what_was_in_flight_is() -> None:
    """A segment that left 15 ms before the hold began, and a whole exchange 18 ms before it."""
    before = [{**line, "time": r.at(n + 942_000)} for n, line in enumerate(r.events(duration_us=40_000))]
    late = r.with_events(1_000_000, 40_000, 20)
    sent = next(line for line in late if line.get("event") == "sent")
    sent["time"] = r.at(945_000)
    made = ladder([*before, *sorted(late, key=lambda line: line["time"])])
    assert [arrow.depart for arrow in made.arrows] == [-15_000, 39_980, 40_000, 40_050]


def test_the_chosen_ones_are_the_greatest_loss_of_each_kind() -> None:
    lines = [r.seen(duration_us=41_000), r.seen(duration_us=44_000), r.seen(duration_us=43_000), r.inferred(),
             r.cork_ceiling(), r.peer_holds()]
    made = chosen(lines)
    assert [one.stall.excess_us for one in made] == [203_320, 43_965, 41_100, 40_100]
    others = [r.seen(duration_us=42_000 + n, local=f"10.0.0.{n}:1") for n in range(9)]
    assert len(chosen([*lines, *others])) == 6 and len(chosen([*lines, *others], most=2)) == 2
    assert chosen(lines, most=0) == []


def test_events_after_the_stall_are_waited_for_and_those_kept_are_bounded() -> None:
    lines = r.with_events()
    stall = next(line for line in lines if line["type"] == "stall")
    last = [stall, *[line for line in lines if line["type"] == "event"]]
    assert len(chosen(lines)[0].events) == 17 and len(chosen(last)[0].events) == 0
    flood = [{**lines[0], "time": r.at(956_000), "seq": n} for n in range(5_000)]
    (one,) = chosen([*flood, *lines, *[{**lines[0], "time": r.at(1_000_050)}] * 5_000])
    assert len(one.events) <= 200 and one.cut


def test_the_drawing_is_to_scale() -> None:
    made = ladder(r.with_events(1_000_000, 40_000, 5_000))
    scale, drawing = Scale(made), draw(made)
    per_us = (scale.y(40_000) - scale.y(0)) / 40_000
    for bar, span_ in zip(drawing.bars, made.spans):
        assert bar.height == pytest.approx((span_.finish - span_.begin) * per_us, abs=0.1)
        assert bar.y == pytest.approx(scale.y(0) + span_.begin * per_us, abs=0.1)
    for line, arrow in zip(drawing.lines, made.arrows):
        assert line.y2 - line.y1 == pytest.approx((arrow.arrive - arrow.depart) * per_us, abs=0.1)
        assert {line.x1, line.x2} == {SENDER_X, RECEIVER_X}
        assert TOP <= line.y1 <= line.y2 <= TOP + LENGTH
    assert len(drawing.ticks) in range(3, 8)


def test_what_lies_on_one_spot_to_scale_is_drawn_in_order() -> None:
    """Over loopback: the ACK, the held segment and the reply within 80 us of the 44 ms."""
    made = ladder(r.with_events(1_000_000, 43_900, 20))
    scale, drawing = Scale(made), draw(made)
    (band,) = drawing.bands
    crowd = [43_877, 43_880, 43_899, 43_900, 43_920, 43_929, 43_950, 43_970]
    assert band.us == crowd[-1] - crowd[0] and band.y == scale.y(crowd[0])
    assert [scale.y(after) - scale.y(at) for at, after in zip(crowd, crowd[1:])] == pytest.approx([STEP] * 7, abs=0.1)
    arrows_of_the_end = drawing.lines[1:]
    assert len(arrows_of_the_end) == 3
    assert all(after.y1 - line.y1 >= STEP for line, after in zip(arrows_of_the_end, arrows_of_the_end[1:]))
    assert not drawing.unlabelled and drawing.height > TOP + LENGTH + 20
    per_us = (LENGTH - 28) / scale.length
    assert scale.y(20_000) - scale.y(10_000) == pytest.approx(10_000 * per_us, abs=0.2), "the rest is to scale"


def test_a_crowd_of_many_adds_a_bounded_height_and_leaves_the_scale_its_beginning() -> None:
    lines = r.with_events(1_000_000, 43_900, 20)
    first = next(line for line in lines if line.get("event") == "sent")
    burst = [{**first, "time": r.at(956_116 - n), "seq": 7 + n, "bytes": 1} for n in range(50, 0, -1)]
    made = ladder(sorted([*burst, *lines], key=lambda line: line["time"]))
    drawing = draw(made)
    assert len(made.arrows) > 50 and len(drawing.bands) == 2
    assert drawing.height <= TOP + LENGTH + 300
    places = [text.y for text in drawing.scale]
    assert "0" in [text.text for text in drawing.scale]
    assert all(abs(one - other) >= 12 for i, one in enumerate(places) for other in places[:i])


def test_a_moment_apart_is_in_no_crowd() -> None:
    lines = r.with_events(1_000_000, 43_900, 20)
    lines += [{**lines[0], "time": r.at(998_900)}]
    (band,) = draw(ladder(sorted(lines, key=lambda line: line["time"]))).bands
    assert band.us == 43_970 - 43_877


@pytest.mark.parametrize("record", [r.seen(rtt_us=1), r.seen(duration_us=0, rtt_us=1), r.seen(duration_us=1 << 50),
                                    r.peer_holds(pending_us=0), r.inferred(duration_us=10, rtt_us=1 << 40),
                                    r.seen(duration_us=MAX_NUMBER), r.inferred(duration_us=10, rtt_us=MAX_NUMBER),
                                    r.seen(duration_us=MAX_NUMBER, rtt_us=MAX_NUMBER),
                                    r.peer_holds(pending_us=MAX_NUMBER, rtt_us=MAX_NUMBER)])
def test_extreme_durations_stay_on_the_drawing(record: r.Record) -> None:
    drawing = draw(from_stall(decode(Stall, record)))
    for line in drawing.lines:
        assert TOP <= line.y1 <= drawing.height and TOP <= line.y2 <= drawing.height
    assert all(0 <= label.y <= drawing.height for label in drawing.labels)
    assert len(drawing.ticks) <= 8


def test_labels_do_not_cover_each_other() -> None:
    labels = Labels()
    places = [labels.place(200, 14, 60) for _ in range(8)]
    assert len({place for place in places if place is not None}) == 8
    got = sorted(place for place in places if place is not None)
    assert all(after - before >= 14 for before, after in zip(got, got[1:]))
    assert labels.place(200, 14, 20) is None
