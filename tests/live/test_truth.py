# SPDX-License-Identifier: GPL-2.0
"""Every scenario of the lab against the witnesses: no stall missed, none reported that was none.

A row names the scenario, its options, and how many stalls the witnesses must have seen at least for the row to
show anything; 0 means that there must be none.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ends import own_end
from harness import IN_GUEST, Lab, Record, Tracer, dropped, stalled_rounds, trace, unseen
from witnesses import MS, TOLERANCE, Run, Together, witness

pytestmark = pytest.mark.guest

VETH = ("--over", "veth")
Row = tuple[str, tuple[str, ...], int]

#: As they were published: docs/experiments.md.
PUBLISHED: list[Row] = [
    ("echo", VETH, 0),
    ("echo", (*VETH, "--nodelay"), 0),
    ("echo-64k", VETH, 0),
    ("echo-64k", (), 0),
    ("write-write-read", VETH, 9),
    ("write-write-read", (*VETH, "-6"), 9),
    ("write-write-read", (), 9),
    ("write-write-read", ("-6",), 9),
    ("write-write-read", (*VETH, "--nodelay"), 0),
    ("write-write-read", (*VETH, "--coalesce"), 0),
    ("header-body", (*VETH, "--interval", "20ms"), 9),
    ("header-body", (*VETH, "--interval", "20ms", "--quickack"), 0),
    ("header-body", (*VETH, "--interval", "20ms", "--nodelay"), 0),
    ("header-body", (*VETH, "--interval", "20ms", "--writev"), 0),
    ("header-body", (*VETH, "--interval", "20ms", "--no-reply"), 0),
    ("header-body", (*VETH, "--interval", "20ms", "--one-part"), 0),
    ("header-body", (*VETH, "--interval", "20ms", "--sizes", "1448,1448,1448"), 0),
    ("header-body", (*VETH, "--interval", "20ms", "--quickack-route"), 0),
    ("header-body", ("-6", "--interval", "20ms", "--quickack-route"), 0),
    ("length-data", (*VETH, "--size", "100"), 16),
    ("length-data", (*VETH, "--size", "1400"), 16),
    ("length-data", (*VETH, "--size", "1448"), 0),
    ("length-data", (*VETH, "--size", "2900"), 0),
    ("length-data", ("--size", "2900"), 16),
    ("length-data", (*VETH, "--nodelay"), 0),
    ("length-data", (*VETH, "--writev"), 0),
    ("length-data", (*VETH, "--agreed-length"), 0),
    ("length-data", (*VETH, "--size", "1000", "--parts", "5"), 16),
    ("reply-tail", VETH, 0),
    ("reply-tail", (*VETH, "--reply-sizes", "200,300"), 8),
    ("cork-forgotten", VETH, 4),
    ("cork-forgotten", (*VETH, "--msg-more"), 4),
]
CHUNKS: list[Row] = [
    ("chunks", (*VETH, "--rounds", "4", "--parts", str(parts), *how), least)
    for parts in (1, 10, 100, 1000)
    for how, least in (((), 0 if parts == 1 else 6), (("--cork",), 6), (("--nodelay",), 0),
                       (("--nodelay", "--msg-more"), 0))
]

#: Nothing of it is a stall.
INNOCENT: list[Row] = [
    ("bulk", VETH, 0),
    ("bulk", (), 0),
    ("slow-reader", VETH, 0),
    ("slow-reader", (), 0),
    ("small-window", VETH, 0),
    ("small-window", (), 0),
    ("long-rtt", VETH, 0),
    ("long-rtt", (*VETH, "--cc", "cubic"), 0),
    ("loss", VETH, 0),
    ("loss", (*VETH, "--cc", "cubic"), 0),
    ("paced", VETH, 0),
    ("paced", (*VETH, "--cc", "cubic"), 0),
    ("rate-limited", VETH, 0),
    ("rate-limited", (*VETH, "--cc", "cubic"), 0),
    ("rate-limited", (*VETH, "--cc", "cubic", "--size", "3000", "--rounds", "200"), 0),
    ("autocork", VETH, 0),
    ("autocork", (*VETH, "--cc", "cubic"), 0),
    ("idle", VETH, 0),
    ("one-way", VETH, 0),
    ("keepalive", VETH, 0),
    ("zero-window-probe", VETH, 0),
]

#: The stall is the same whatever the way of life.
WAYS: list[Row] = [
    ("late-connect", VETH, 9),
    ("threads", VETH, 9),
    ("fork-worker", VETH, 9),
    ("pass-fd", VETH, 9),
    ("nonblocking", VETH, 9),
    ("nonblocking", (*VETH, "--nodelay"), 0),
    ("writev", VETH, 0),
    ("sendmsg", VETH, 0),
    ("msg-more", VETH, 0),
    ("write-write-read", ("--writev",), 0),
    ("write-write-read", ("--msg-more",), 0),
    ("sendfile", VETH, 9),
    ("splice", VETH, 9),
    ("zerocopy", VETH, 9),
    ("io-uring", VETH, 9),
    ("io-uring", (*VETH, "--coalesce"), 0),
    ("ktls", VETH, 9),
    ("fast-open", VETH, 0),
    ("mptcp", VETH, 9),
    ("v4-mapped", VETH, 9),
    ("uncork", VETH, 0),
    ("nodelay-while-held", (*VETH, "--quickack-off"), 0),
    ("close-while-held", VETH, 8),
    ("shutdown-while-held", VETH, 8),
    ("reset-while-held", VETH, 8),
    ("killed-while-held", VETH, 8),
    ("changing", VETH, 9),
    ("churn", (*VETH, "--rounds", "100"), 0),
]


#: An emulated guest is ten times slower: all of them play these, one plays the others too.
IN_EVERY_GUEST = {
    "echo", "write-write-read", "length-data --size 100", "length-data --size 1448",
    "header-body --interval 20ms --quickack", "header-body --interval 20ms --quickack-route",
    "reply-tail --reply-sizes 200,300", "cork-forgotten",
    "cork-forgotten --msg-more", "chunks --rounds 4 --parts 100", "chunks --rounds 4 --parts 100 --cork",
    "chunks --rounds 4 --parts 100 --nodelay --msg-more",
    "bulk", "slow-reader", "small-window", "long-rtt --cc cubic", "loss", "loss --cc cubic", "paced --cc cubic",
    "rate-limited --cc cubic", "autocork", "one-way", "zero-window-probe",
    "nonblocking", "msg-more", "sendfile", "splice", "zerocopy", "io-uring", "ktls", "fast-open", "mptcp",
    "killed-while-held", "changing",
}


#: `make test` plays these, over veth where that is not said; test_zz_met.py says what is met.
QUICK = {
    "echo", "write-write-read", "write-write-read --nodelay", "header-body --interval 20ms",
    "header-body --interval 20ms --quickack", "header-body --interval 20ms --quickack-route",
    "length-data --size 100", "length-data --size 1448", "reply-tail", "reply-tail --reply-sizes 200,300",
    "cork-forgotten", "chunks --rounds 4 --parts 100", "chunks --rounds 4 --parts 100 --nodelay --msg-more",
    "bulk", "slow-reader", "small-window", "long-rtt --cc cubic", "loss --cc cubic", "paced --cc cubic",
    "autocork", "one-way", "zero-window-probe", "late-connect", "nonblocking", "msg-more", "sendfile", "zerocopy",
    "io-uring", "ktls", "fast-open", "mptcp", "v4-mapped", "uncork", "nodelay-while-held --quickack-off",
    "close-while-held", "reset-while-held", "killed-while-held", "changing",
}


def over_veth(row: Row) -> str:
    """Its name without what most rows have; "" of one that plays elsewhere."""
    return identity((row[0], row[1][2:], row[2])) if row[1][:2] == VETH else ""


def played(rows: list[Row]) -> list[Any]:
    marks = [((pytest.mark.quick,) if over_veth(row) in QUICK else ())
             + (() if over_veth(row) in IN_EVERY_GUEST else (pytest.mark.once,)) for row in rows]
    return [pytest.param(row, id=identity(row), marks=some) for row, some in zip(rows, marks)]


def identity(row: Row) -> str:
    return " ".join((row[0], *row[1]))


def check(run: Run, least: int, note: Callable[[str, object], None], exact_us: int = 1_000) -> None:
    """Precision and recall of 1.0, durations as the wire has them, and something to be found where it should be."""
    score = run.score
    note("score", score.line())
    print(score.line())
    if run.wrong():
        pytest.fail(run.wrong(), pytrace=False)
    if least:
        # a connection may stay in quick-ACK mode for a round or two more; the application did not stall then either
        shown = score.wire + score.doubtful
        assert shown >= max(1, least - 2), f"nothing to find: {score.line()}"
        assert IN_GUEST or shown >= min(least, score.application), f"the wire has less than was felt: {score.line()}"
        # what is in doubt counts as missed by nobody
        found = score.reported + run.lacking + run.not_by_timer()
        assert found >= max(1, least // 2), f"hardly one was reported: {score.line()}"
    else:
        assert score.wire == 0, f"the lab stalled where it should not: {run.stalls}"
    if score.errors_us:
        # 30 us on a quiet machine; a rule that is wrong by a jiffy is wrong by 2,000 and more
        assert score.median_error_us <= (20_000 if IN_GUEST else exact_us), score.line()
    closings[id(run.closing)] = run.closing


#: By identity: what the tracers of all rows so far have said in the end; rows may have one in common.
closings: dict[int, Record] = {}


@pytest.fixture(scope="module")
def together(request: pytest.FixtureRequest) -> Together:
    """Of the whole host's rows those that were chosen; only an emulated guest is slow enough to play them together."""
    chosen = [item for item in request.session.items if "together" in getattr(item, "fixturenames", ())]
    rows = [item.callspec.params["row"] for item in chosen if isinstance(item, pytest.Function)]
    return Together([(row[0], *row[1]) for row in rows] if IN_GUEST else [])


@pytest.mark.parametrize("row", played(PUBLISHED + CHUNKS))
def test_published_experiments(
        row: Row, together: Together, record_property: Callable[[str, object], None]) -> None:
    check(together.witness(row[0], *row[1]), row[2], record_property)


@pytest.mark.parametrize("row", played(INNOCENT))
def test_what_is_no_stall_is_not_called_one(
        row: Row, together: Together, record_property: Callable[[str, object], None]) -> None:
    check(together.witness(row[0], *row[1]), row[2], record_property)


@pytest.mark.parametrize("row", played(WAYS))
def test_ways_of_life_do_not_confuse_it(
        row: Row, together: Together, record_property: Callable[[str, object], None]) -> None:
    check(together.witness(row[0], *row[1]), row[2], record_property)


#: The sender's end, the receiver's, and both in one connection; what of A and B stalls, and what could be taken for it.
ONE_SIDED: list[Row] = [
    *(row for row in PUBLISHED if VETH[1] in row[1]),
    *(row for row in INNOCENT if VETH[1] in row[1]),
    *((scenario, (*VETH, "--rtt", rtt, *jitter, *more), least)
      for rtt, jitter in (("1ms", ()), ("20ms", ()), ("80ms", ()), ("20ms", ("--jitter", "5ms")),
                          ("80ms", ("--jitter", "8ms")))
      for scenario, more, least in (("write-write-read", ("--rounds", "6"), 4),
                                    ("length-data", ("--rounds", "4"), 4))),
    ("header-body", (*VETH, "--rtt", "80ms", "--interval", "20ms", "--rounds", "6", "--quickack"), 0),
    ("header-body", (*VETH, "--rtt", "80ms", "--interval", "20ms", "--rounds", "6", "--nodelay"), 0),
    # jitter is not taken for a delayed ACK, whatever the route's rto_min, where no ACK is delayed
    ("header-body", (*VETH, "--rtt", "20ms", "--jitter", "8ms", "--rto-min", "10ms", "--interval", "20ms", "--rounds",
                     "12", "--quickack"), 0),
    # written on without waiting: what comes after our late ACK had left before that came
    ("write-write-read", (*VETH, "--rtt", "100ms", "--pause", "60ms", "--rounds", "8", "--nodelay"), 0),
    ("write-write-read", (*VETH, "--rtt", "20ms", "--pause", "55ms", "--rounds", "12", "--nodelay"), 0),
]


#: With netem in the kernel, as in guests, what matters is the round trip; without it, the rest. All guests play these.
ONE_SIDED_IN_EVERY_GUEST = {
    "long-rtt --cc cubic": "client", "loss --cc cubic": "server", "length-data --rtt 20ms --rounds 4": "client",
    "write-write-read --rtt 80ms --jitter 8ms --rounds 6": "server",
    "write-write-read --rtt 100ms --pause 60ms --rounds 8 --nodelay": "server",
    # by its version a kernel lets rto_min count or not
    "header-body --rtt 20ms --jitter 8ms --rto-min 10ms --interval 20ms --rounds 12 --quickack": "client",
}
#: One plays these too, and the others from the other end.
ONE_SIDED_IN_A_GUEST = {
    "rate-limited --cc cubic", "write-write-read --rtt 1ms --rounds 6", "write-write-read --rtt 80ms --rounds 6",
    "length-data --rtt 20ms --jitter 5ms --rounds 4",
    "header-body --rtt 80ms --interval 20ms --rounds 6 --quickack",
    "write-write-read --rtt 20ms --pause 55ms --rounds 12 --nodelay",
}


#: `make test` plays these.
ONE_SIDED_QUICK = {
    "write-write-read-client", "header-body --interval 20ms-server", "cork-forgotten-client", "bulk-server",
    "small-window-client", "one-way-server",
    "length-data --rtt 20ms --rounds 4-client", "write-write-read --rtt 80ms --rounds 6-server",
    "write-write-read --rtt 20ms --pause 55ms --rounds 12 --nodelay-server",
}


def one_sided() -> list[Any]:
    """Each row from each end; a peer that is no socket of this kernel plays in tests/packets."""
    chosen = []
    for row in ONE_SIDED:
        name = over_veth(row)
        if IN_GUEST and name not in ONE_SIDED_IN_A_GUEST and name not in ONE_SIDED_IN_EVERY_GUEST:
            continue
        for end in ("client", "server"):
            marks = (() if ONE_SIDED_IN_EVERY_GUEST.get(name) == end else (pytest.mark.once,)) + (
                (pytest.mark.quick,) if f"{name}-{end}" in ONE_SIDED_QUICK else ())
            chosen.append(pytest.param(row, end, id=f"{identity(row)}-{end}", marks=marks))
    return chosen


@pytest.mark.parametrize("row,only", one_sided())
def test_one_end_alone_reaches_the_same_verdicts(row: Row, only: str,
                                                 record_property: Callable[[str, object], None]) -> None:
    """The other end is in a namespace that is not traced, as if it were on another host."""
    run = witness(row[0], *row[1], only=only, tolerance=TOLERANCE + 100 * MS)
    shown = 0 if only == "server" and row[0] == "cork-forgotten" else row[2]  # a cork shows at its own end only
    # a read that is late moves the receiver's clock, and the time is known to a jiffy then
    check(run, shown, record_property, 5_000 if only == "server" else 1_000)
    # what an emulated guest is late for may be chance, as far as one end can tell
    most = 5 * run.score.wire if IN_GUEST else run.score.wire // 5
    assert run.score.doubtful <= max(2, most), run.score.line()
    for record in run.records:
        # a prompt ACK would have ended the hold a round trip after it began, or earlier, and the pending ACK at once
        waited = record["side"] == "sender" and record["cause"] != "cork_ceiling"
        way = min(record.get("min_rtt_us", 0), record["duration_us"]) if waited else 0
        assert way // 2 - 1 <= record["duration_us"] - record["excess_us"] <= way + 1, record
        assert record["evidence"] == "inferred" or record["cause"] == "cork_ceiling"
        assert (record.get("reason") == "unknown") == (record["side"] == "receiver"), "Nagle is a fact at its own end"


@pytest.mark.parametrize("scenario", [pytest.param("length-data", marks=pytest.mark.quick), "mix",
                                      *(pytest.param(scenario, marks=pytest.mark.once)
                                        for scenario in ("write-write-read", "one-way"))])
def test_acks_sent_by_the_timer_are_as_many_as_the_kernel_counts(scenario: str) -> None:
    """
    The server's namespace traced whole: what was seen and what the audit calls unseen are its TcpExtDelayedACKs. By
    tracepoints a timer that found the socket in use counts too, though the program that used it may have sent the ACK.
    """
    more = ("--seconds", "5", "--connections", "10") if scenario == "mix" else ()
    with Lab(scenario, *VETH, *more, "--linger", "300ms") as lab:
        result, tracer = trace(lab, "--netns", str(lab.server))
    counters = result["server"]["counters"]
    counted = counters["TcpExtDelayedACKs"]
    assert counted or scenario == "one-way"
    closing = tracer.closing()
    seen = closing["totals"]["delayed_acks"]["timer"]
    in_use = counters["TcpExtDelayedACKLocked"] if tracer.records("start")[0]["hooks"] == "tracepoint" else 0
    assert counted <= seen + unseen(tracer) <= counted + in_use, (seen, counters, closing["unseen"])
    assert closing["dropped"]["hold_map_full"] == closing["dropped"]["ack_map_full"] == 0, closing["dropped"]


@pytest.mark.quick
@pytest.mark.once
def test_connections_of_the_same_addresses_in_other_namespaces_are_told_apart() -> None:
    """Two pairs of namespaces, four ends of the same addresses and ports: one pair stalls, the other has the fix."""
    arguments = (*VETH, "--port", "8000", "--client-port", "40000", "--rounds", "8")
    with Lab("write-write-read", *arguments) as stalling, Lab("write-write-read", *arguments, "--nodelay") as fixed:
        with Tracer() as tracer:
            fixed.go()
            stalling.go()
            felt = len(stalled_rounds(stalling.result()))
            assert stalled_rounds(fixed.result()) == []
            tracer.stop()
    by_space = Counter(own_end(r)["netns"] for r in tracer.stalls())
    assert felt and by_space[stalling.ready["client"]["netns"]] == felt
    assert by_space[fixed.ready["client"]["netns"]] == by_space[fixed.ready["server"]["netns"]] == 0


def stalls_under_the_number(pid: int) -> bool:
    """A lab whose client gets that number stalls; False where somebody else got it, and keeps it."""
    last = Path("/proc/sys/kernel/ns_last_pid")
    for attempt in range(40):
        # the lab's own process comes first, and others may come between
        last.write_text(str(pid - 2 - attempt % 8))
        with Lab("write-write-read", "--rounds", "4") as stranger:
            if stranger.client == pid:
                assert stalled_rounds(stranger.play())
                return True
    return False


@pytest.mark.quick
@pytest.mark.once
def test_a_number_that_another_process_gets_is_not_the_process_that_was_asked_for() -> None:
    """The process of -p ends while another asked for lives on; a stranger then gets its number and stalls."""
    numbers = []
    for _ in range(5):
        gone = subprocess.Popen(["sleep", "600"])
        numbers.append(gone.pid)
        with Lab("echo") as other, Tracer("-p", f"{gone.pid},{other.client}") as tracer:
            gone.kill()
            gone.wait()
            if stalls_under_the_number(gone.pid):
                tracer.stop()
                assert tracer.stalls() == []
                return
    pytest.fail(f"no process got one of the numbers {numbers} again")


@pytest.mark.once
def test_thousands_of_connections_that_come_and_go_leave_nothing_behind(
        record_property: Callable[[str, object], None]) -> None:
    """50,000 connections (fewer in a guest), each closed by a reset, beside one that stalls all the time."""
    each = "400" if IN_GUEST else "12500"
    with Lab("churn", "--own-netns", "--rounds", each, "--connections", "4", "--timeout", "120s") as churn:
        churn.go()
        run = witness("write-write-read", *VETH, "--rounds", "60" if IN_GUEST else "100")
        assert churn.process.poll() is not None or IN_GUEST, "the connections did not all come and go meanwhile"
        churn.result()
    check(run, 50, record_property)
    assert not dropped(run.closing)


@pytest.mark.quick
def test_hardly_any_hold_is_of_unknown_reason() -> None:
    """Less than one in a thousand, over all rows above; a few rows allow for one."""
    seen: Counter[str] = Counter()
    for closing in closings.values():
        seen.update(closing["totals"]["holds"])
    assert seen["unknown"] * 1000 <= max(seen.total(), 1000), seen
