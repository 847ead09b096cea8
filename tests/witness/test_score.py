# SPDX-License-Identifier: GPL-2.0
"""The scorer on runs made by hand: what the application's log adds to the wire, and the matching."""

from __future__ import annotations

from dataclasses import replace

import pytest
import score
import wire
from score import Doubt, Log, Stall, Write

MS = 1_000_000
A, B = "192.0.2.1:40000", "192.0.2.2:8000"
LIMITS = wire.Limits()


def on_the_wire(pending: int = 41 * MS, left: int = 100 * MS) -> wire.WireStall:
    return wire.WireStall(A, B, offset=6, length=7, left=left, ack_came=left - MS // 20, pending=pending,
                          waited=41 * MS, ack_left=left - MS // 20, answered=MS)


def log(written_at: int = 60 * MS, more: bool = False, **options: int) -> Log:
    made = Log([Write(0, 6, 59 * MS, 59 * MS + 9000, False), Write(6, 7, written_at, written_at + 9000, more)])
    made.options = [(10 * MS, 10 * MS + 1000, name, value) for name, value in options.items()]
    return made


def judged(found: wire.WireStall, of: Log) -> list[Stall]:
    return score.nagle_stalls([found], of, LIMITS, Doubt())


def test_written_before_the_ack_is_a_stall_from_the_write_on() -> None:
    (stall,) = judged(on_the_wire(), log())
    assert (stall.duration, stall.doubt) == (40 * MS, "")


def test_written_after_the_ack_is_chance() -> None:
    assert judged(on_the_wire(), log(written_at=100 * MS - 1000)) == []
    paced = wire.WireStall(A, B, offset=6, length=7, left=100 * MS, ack_came=85 * MS, pending=41 * MS, waited=56 * MS,
                           ack_left=85 * MS, answered=MS)
    assert judged(paced, log(written_at=90 * MS)) == []
    assert "pacing" in judged(paced, log())[0].doubt


def test_what_nodelay_cork_or_msg_more_governs_is_not_nagles() -> None:
    assert judged(on_the_wire(), log(TCP_NODELAY=1)) == []
    assert judged(on_the_wire(), log(TCP_CORK=1)) == []
    assert [stall.cause for stall in judged(on_the_wire(), log(more=True, TCP_NODELAY=1))] == ["delayed_ack"]
    assert judged(on_the_wire(), log(more=True, TCP_CORK=1)) == []
    assert judged(on_the_wire(), log(TCP_NODELAY=0, TCP_CORK=0)) != []


def test_a_tail_behind_full_segments_is_in_doubt_if_the_ack_came_into_its_write() -> None:
    behind = replace(on_the_wire(), behind=True)
    assert judged(behind, log()) == []
    within = Log([Write(0, 6, 59 * MS, 59 * MS + 9000, False), Write(6, 7, 60 * MS, 101 * MS, False)])
    assert "full segments" in judged(behind, within)[0].doubt


def test_a_stall_in_which_a_segment_was_long_on_its_way_is_in_doubt() -> None:
    (stall,) = judged(on_the_wire(), log())
    long = [(50 * MS, 59 * MS + 1), (101 * MS, 110 * MS)]
    assert score.on_long_ways([stall], long[1:]) == [stall]
    assert score.on_long_ways([stall], [(20 * MS, 55 * MS)]) == [stall]
    assert "took long" in score.on_long_ways([stall], long)[0].doubt


def test_written_as_the_ack_was_on_its_way_is_chance() -> None:
    far = replace(on_the_wire(), ack_left=60 * MS)
    assert judged(far, log(written_at=80 * MS)) == []


def test_a_stall_begins_when_nothing_but_nagle_holds() -> None:
    opened = log()
    opened.options = [(10 * MS, 10 * MS, "TCP_CORK", 1), (80 * MS, 80 * MS, "TCP_CORK", 0)]
    assert judged(on_the_wire(), opened)[0].duration == 20 * MS
    after_more = Log([Write(0, 6, 59 * MS, 59 * MS, False), Write(6, 3, 60 * MS, 60 * MS, True),
                      Write(9, 4, 70 * MS, 70 * MS, False)])
    assert judged(on_the_wire(), after_more)[0].duration == 30 * MS


@pytest.mark.parametrize("more,cause", [(False, "nagle_delayed_ack"), (True, "delayed_ack")])
def test_what_nagle_holds_stays_nagles_when_writes_with_more_add_to_it(more: bool, cause: str) -> None:
    writes = Log([Write(0, 6, 59 * MS, 59 * MS, False), Write(6, 3, 60 * MS, 60 * MS, more),
                  Write(9, 2, 70 * MS, 70 * MS, True), Write(11, 2, 99 * MS, 99 * MS, True)])
    (stall,) = judged(on_the_wire(), writes)
    assert (stall.cause, stall.duration, stall.doubt) == (cause, 40 * MS, "")
    writes.options = log(TCP_NODELAY=1).options
    assert [stall.cause for stall in judged(on_the_wire(), writes)] == ["delayed_ack"]


def test_what_is_too_close_to_call_is_in_doubt() -> None:
    assert judged(on_the_wire(), log(written_at=100 * MS - 60_000))[0:1] == []  # not held long enough for anything
    assert "--min" in judged(on_the_wire(), log(written_at=99 * MS))[0].doubt
    assert "pending" in judged(on_the_wire(pending=31 * MS), log())[0].doubt


def segment(at: int, seq: int, length: int) -> wire.Segment:
    return wire.Segment(at, A, B, seq, 1, length, wire.ACK, 65535, False, length + 52)


def corked(opened_at: int | None = None) -> Log:
    made = Log([Write(0, 100, 20 * MS, 20 * MS + 1000, False)])
    made.options = [(10 * MS, 10 * MS, "TCP_CORK", 1)]
    if opened_at:
        made.options.append((opened_at, opened_at, "TCP_CORK", 0))
    return made


def test_a_cork_that_nobody_opened_is_a_ceiling() -> None:
    left = [segment(230 * MS, 1, 100)]
    (stall,) = score.ceiling_stalls(left, A, B, 1448, corked())
    assert (stall.cause, stall.duration) == ("cork_ceiling", 210 * MS)
    assert score.ceiling_stalls(left, A, B, 1448, corked(opened_at=229 * MS)) == []
    assert score.ceiling_stalls([segment(150 * MS, 1, 100)], A, B, 1448, corked()) == []
    assert score.ceiling_stalls(left, A, B, 100, corked()) == []  # it filled a segment


def record(at_us: int, side: str = "sender", duration: int = 40000) -> score.Record:
    return {"type": "stall", "cause": "nagle_delayed_ack", "time": f"1970-01-01T00:00:00.{at_us:06d}Z", "side": side,
            "duration_us": duration, "sender": {"address": A}, "receiver": {"address": B}}


def stall(ended: int, doubt: str = "") -> Stall:
    return Stall("nagle_delayed_ack", A, B, ended, 40 * MS, doubt)


def test_stalls_and_records_match_one_to_one() -> None:
    made = score.compare("x", [stall(100 * MS), stall(200 * MS)], [record(100_100), record(200_300, side="receiver")])
    assert (made.matched, made.missed, made.false) == (2, [], [])
    assert made.wrong() == ""


def test_a_stall_whose_record_is_missing_takes_none_of_a_later_one() -> None:
    missed, found = stall(100 * MS), stall(146 * MS)
    made = score.compare("x", [missed, found], [record(145_000)], tolerance=60 * MS)
    assert (made.matched, made.missed, made.false) == (1, [missed], [])


def test_each_end_is_compared_with_the_duration_that_it_tells() -> None:
    """The sender's with the hold's, the receiver's with the pending ACK's."""
    pending = [replace(stall(at * MS), pending=39 * MS) for at in (100, 200)]
    made = score.compare("x", pending, [record(100_000), record(200_000, side="receiver")])
    assert made.errors_us == [0.0, 1000.0]


def test_what_has_no_match_is_missed_or_false() -> None:
    made = score.compare("x", [stall(100 * MS), stall(200 * MS)], [record(100_100), record(150_000)])
    assert (made.matched, len(made.missed), len(made.false)) == (1, 1, 1)
    assert "missed" in made.wrong() and "false" in made.wrong()


@pytest.mark.parametrize(("held", "sent", "says", "agrees"), [
    ((7,), (6,), {"writes": 1, "write_bytes": 7, "sent_writes": 1, "in_flight_bytes": 6}, True),
    ((7,), (3,), {"writes": 1, "write_bytes": 7, "sent_writes": 1, "in_flight_bytes": 6}, False),
    ((7,), (3,), {"writes": 1, "write_bytes": 7, "in_flight_bytes": 6}, True),
    ((7,), (6,), {"writes": 1, "write_bytes": 8}, False),
    ((7, 7), (6,), {"writes": 2, "write_bytes": 7}, True),
    ((7, 7), (6,), {"writes": 1, "write_bytes": 14}, False),
    ((7, 8), (6,), {"writes": 2}, True),
    ((7, 8), (6,), {"writes": 2, "write_bytes": 8}, False),
    ((7, 7), (6,), {"writes": 2}, False),
    ((7, 7), (6,), {}, True),
    ((), (), {"writes": 1, "write_bytes": 7}, True)])
def test_the_record_has_the_writes_of_the_log(held: tuple[int, ...], sent: tuple[int, ...], says: score.Record,
                                              agrees: bool) -> None:
    told = record(100_100)
    told["sender"]["hold"] = says
    made = score.compare("x", [replace(stall(100 * MS), held=held, sent=sent)], [told])
    assert (made.wrong() == "") == agrees


def test_parts_with_msg_more_may_be_one_write() -> None:
    made = Log([Write(0, 9, 0, 0, False), Write(9, 4, 0, 0, True), Write(13, 2, 0, 0, False),
                Write(15, 7, 0, 0, False)])
    assert made.sizes_around(15, 22) == ((7,), (2, 6))
    assert made.sizes_around(14, 22) == ((2, 7), ())
    assert made.sizes_around(9, 22) == ((4, 2, 7), (9,))


def test_the_doubtful_are_neither_demanded_nor_forbidden() -> None:
    assert score.compare("x", [stall(100 * MS, "why")], []).wrong() == ""
    made = score.compare("x", [stall(100 * MS, "why"), stall(101 * MS)], [record(101_000)])
    assert (made.matched, made.doubtful, made.wrong()) == (1, 1, "")


def test_a_doubtful_one_may_be_reported_as_ended_when_its_ack_came() -> None:
    """The machine stood still between the two: the record has the one time, the wire the other."""
    late = replace(stall(120 * MS, "left late after the ACK"), released_before=20 * MS)
    assert score.compare("x", [late], [record(100_000)]).wrong() == ""
    assert score.compare("x", [late], [record(94_000)]).false
    assert score.compare("x", [replace(late, doubt="")], [record(100_000)]).false


def test_an_answer_later_than_the_others_is_chance_for_its_receiver_alone() -> None:
    stalls = [replace(stall(at * MS), answered=answered * MS) for at, answered in ((100, 20), (200, 32), (300, 34))]
    assert [bool(s.doubt) for s in score.seen_by_receiver(stalls)] == [False, False, True]


def test_a_log_that_does_not_explain_the_stream_is_not_used() -> None:
    written = log()
    assert score.usable(written, [segment(1, 1, 13)], A) is written
    assert score.usable(written, [segment(1, 1, 42)], A).writes == []
