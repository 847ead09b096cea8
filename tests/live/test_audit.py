# SPDX-License-Identifier: GPL-2.0
"""The audit: what the machine hides is counted, no more and no less, and its stalls are told all the same.

The machine is build/nagletrace-blind: its programs do not see one timer in four. Witnesses are the application's clock
and the kernel's own counter, which the tests read by themselves.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import harness
import pytest
import relay
from daemon import Daemon
from ends import own_end
from harness import PATIENCE, ROOT, Lab, Record, Tracer, assert_felt, of_lab, trace, unseen
from processes import wait_until
from spaces import Namespace
from test_mix import one_busy_core
from witnesses import MS, witness

pytestmark = pytest.mark.quick

BLIND = ROOT / "build" / "nagletrace-blind"
OWN = ("--own-netns", "--rounds", "40", "--linger", "300ms")


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch, hooks: str) -> None:
    """The tracer is the one that does not see all."""
    assert BLIND.exists(), f"{BLIND} is not built: run `make test`"
    if hooks not in ("auto", "tracepoint"):
        pytest.skip("it hides timers from the tracepoint family")
    monkeypatch.setattr(harness, "NAGLETRACE", BLIND)
    monkeypatch.setattr("daemon.NAGLETRACE", BLIND)
    monkeypatch.setattr(Tracer, "hooks", "tracepoint")


@contextlib.contextmanager
def playing(*arguments: str) -> Iterator[tuple[Lab, Namespace]]:
    """The textbook stall in a namespace whose counters can be read."""
    with Namespace() as space, Lab("write-write-read", "--rounds", "40", "--linger", "300ms", *arguments,
                                   prefix=space.enter()) as lab:
        yield lab, space


def inferred(stalls: list[Record]) -> list[Record]:
    return [s for s in stalls if s["evidence"] == "inferred"]


def test_what_is_hidden_is_counted_and_its_stalls_are_told_as_inferred(blind: None) -> None:
    run = witness("write-write-read", *OWN[1:], only="client")  # in a namespace with the server
    counted = run.result["server"]["counters"]["TcpExtDelayedACKs"]
    closing = run.closing
    assert counted >= 30 and not run.score.missed and not run.score.false, run.wrong()
    assert closing["totals"]["delayed_acks"]["timer"] + closing["unseen"] == counted
    assert counted // 5 <= closing["unseen"] <= counted // 3, (closing["unseen"], counted)
    hidden = inferred(run.records)
    assert closing["unseen"] - 2 <= len(hidden) <= closing["unseen"], "not each timer ends a stall"
    assert all(s["side"] == "sender" and s["pattern"] == "write_write_read" and "netns" not in s["receiver"]
               for s in hidden)
    assert sum(closing["totals"]["stalls"].values()) == closing["stalls"] + closing["totals"]["contradicted"]


@pytest.mark.parametrize("over", ["loopback", "veth"])
def test_the_whole_host_is_audited_across_namespaces(blind: None, over: str) -> None:
    run = witness("write-write-read", *(() if over == "loopback" else ("--over", "veth")), *OWN[1:])
    assert not run.score.missed and not run.score.false, run.wrong()
    assert 5 <= len(inferred(run.records)) <= run.closing["unseen"]


def test_a_namespace_that_comes_and_goes_during_the_trace_is_audited_from_its_begin(blind: None) -> None:
    with Tracer("-i", "100ms") as tracer:
        with playing() as (lab, _):
            lab.play()
        with playing() as (other, _):
            other.play()
        tracer.stop()
    reports = tracer.records("report")
    for client in (lab.client, other.client):
        assert len(inferred([s for s in tracer.stalls() if own_end(s).get("pid") == client])) >= 5
    assert len(inferred(tracer.stalls())) <= reports[-1]["unseen"]
    assert sum(r["unseen"] for r in reports[:-1]) <= reports[-1]["unseen"]


@pytest.mark.parametrize("filter_of", [lambda lab: ("-P", lab.port), lambda lab: ("-4", "-D", lab.port),
                                       lambda lab: ("-p", str(lab.client))], ids=["port", "remote port", "process"])
def test_a_filter_leaves_no_stall_out_whose_timer_was_hidden(blind: None, filter_of: Callable[[Lab], tuple[str, ...]]
                                                            ) -> None:
    """Another connection, which nobody asked for, stalls beside it: the audit counts its timers too."""
    with playing() as (lab, space), \
            Lab("write-write-read", "--rounds", "40", "--connections", "2", prefix=space.enter()) as other:
        with Tracer("--netns", str(space.holder.pid), *filter_of(lab)) as tracer:
            before = space.counter("TcpExtDelayedACKs")
            other.go()
            result = lab.play()
            other.result()
            counted = space.counter("TcpExtDelayedACKs") - before
            tracer.stop()
    assert counted // 5 <= unseen(tracer) <= counted // 3, counted
    assert_felt(result, len(tracer.stalls()))
    hidden = inferred(tracer.stalls())
    # of which connection the hidden timers are is chance
    assert 0 < len(hidden) <= unseen(tracer) and {own_end(s).get("pid") for s in hidden} == {lab.client}


def test_a_namespace_in_which_nobody_lived_at_the_start_loses_none(blind: None) -> None:
    with contextlib.ExitStack() as kept:
        with Namespace() as space:
            held = kept.enter_context(Path(f"/proc/{space.holder.pid}/ns/net").open())
        tracer = kept.enter_context(Tracer())
        inside = ("nsenter", f"--net=/proc/{os.getpid()}/fd/{held.fileno()}")
        with Lab("write-write-read", "--rounds", "40", "--linger", "300ms", prefix=inside) as lab:
            result = lab.play()
            tracer.stop()
        told = of_lab(lab, tracer.stalls())
    assert_felt(result, len(told))
    assert 5 <= len(inferred(told)) <= unseen(tracer)


def test_what_the_other_end_contradicts_is_shown_among_all_holds_and_in_no_sum(blind: None) -> None:
    """A relay's late ACK, at a machine that sees it: nothing was held for it."""
    with Namespace() as space, Tracer("--netns", str(space.holder.pid), "--all-holds") as tracer:
        with space.inside():
            relay.play(connections=5)
        tracer.stop()
    closing = tracer.closing()
    contradicted = [h for h in tracer.records("hold") if "contradicted" in h]
    assert len(contradicted) == closing["totals"]["contradicted"] > 0
    assert {(h["side"], h["evidence"] if "evidence" in h else None) for h in contradicted} == {("receiver", None)}
    assert closing["stalls"] == len(tracer.stalls())


def test_a_sender_elsewhere_is_not_audited_for_the_receiver(blind: None) -> None:
    """From the receiver's end alone a timer that nobody saw shows nothing: so many stalls are missing, and no more."""
    with Lab("write-write-read", "--over", "veth", *OWN[1:]) as lab:
        result, tracer = trace(lab, "--netns", str(lab.server))
    told, counted = tracer.stalls(), result["server"]["counters"]["TcpExtDelayedACKs"]
    assert unseen(tracer) >= 5 and 20 <= len(told) <= counted - unseen(tracer)
    assert {(s["side"], s["evidence"]) for s in told} == {("receiver", "inferred")}


def test_the_text_tells_it_in_a_line(blind: None) -> None:
    with playing() as (lab, space):
        _, tracer = trace(lab, "--netns", str(space.holder.pid), text=True)
    said = re.search(r"^    unseen    (\d+) delayed ACKs? whose timer this machine hid from BPF$", tracer.lines.text(),
                     re.MULTILINE)
    assert said and int(said[1]) >= 8, tracer.lines.text()


def namespaces_counted() -> int:
    """Returns of how many namespaces the programs keep a count."""
    done = subprocess.run(["bpftool", "-j", "map", "dump", "name", "timers_seen"], capture_output=True, check=True)
    return len(json.loads(done.stdout))


def test_namespaces_that_come_and_go_between_two_looks_leave_no_count_behind() -> None:
    with Daemon() as daemon:
        daemon.ask("snapshot")
        before = namespaces_counted()
        for _ in range(5):
            with Lab("write-write-read", "--own-netns", "--rounds", "3") as lab:
                lab.play()
        assert namespaces_counted() >= before + 5
        wait_until("a look that misses them", lambda: daemon.ask("report", format="json")
                   and namespaces_counted() <= before + 1, PATIENCE)


def test_what_is_all_seen_needs_no_line() -> None:
    with Lab("echo", "--own-netns") as lab:
        _, tracer = trace(lab, "--netns", str(lab.client), text=True)
    assert "looked at" in tracer.lines.text() and "unseen" not in tracer.lines.text()


def test_the_daemon_tells_it_and_it_never_goes_down(blind: None) -> None:
    with playing() as (lab, space), Daemon("--netns", str(space.holder.pid)) as daemon:
        before = space.counter("TcpExtDelayedACKs")
        lab.go()
        told = [daemon.ask("snapshot")["unseen"]]
        while lab.process.poll() is None:
            told.append(daemon.ask("snapshot")["unseen"])
            with contextlib.suppress(Exception):
                lab.process.wait(0.15)
        lab.result()
        counted = space.counter("TcpExtDelayedACKs") - before
        snapshot = daemon.ask("snapshot")
        report = daemon.ask("report", format="json")
    assert told == sorted(told) and told[0] == 0 < told[-1]
    assert snapshot["unseen"] == counted - snapshot["totals"]["delayed_acks"]["timer"] == report["unseen"]
    assert snapshot["stalls"] + snapshot["totals"]["contradicted"] == sum(snapshot["totals"]["stalls"].values())
    by_evidence = {s["evidence"]: s["stalls"] for s in snapshot["series"]}
    assert 0 < by_evidence["inferred"] <= snapshot["unseen"]


def test_on_a_busy_core_unseen_timers_excuse_stalls_and_not_what_was_none(blind: None) -> None:
    """There one wait in a hundred looks like a stall from one end, and none of these becomes one of the many told.

    A stall of less than 30 ms and the round trip (the held part was written when the ACK was pending already) no end
    alone can infer; the round trip is less than a millisecond. Nor what pacing held at first: cubic does not pace.
    """
    run = witness("mix", "--over", "veth", "--cc", "cubic", "--seed", "1", "--seconds", "4", around=one_busy_core())
    assert not run.score.false, run.wrong()
    assert run.closing["totals"]["contradicted"] > 0 and len(inferred(run.records)) > 50, "nothing was shown"
    assert all(stall.least < 31 * MS for stall in run.score.missed), run.score.line()


@pytest.mark.parametrize("row", [("rate-limited", "--over", "veth", "--cc", "cubic"), ("bulk", "--over", "veth"),
                                 ("write-write-read", "--over", "veth", "--coalesce")])
def test_what_is_no_stall_is_none_on_such_a_machine_either(blind: None, row: tuple[str, ...]) -> None:
    run = witness(*row)
    assert not run.score.false and run.score.wire == 0, run.score.line()
