# SPDX-License-Identifier: GPL-2.0
"""arm64: the static binary on Debian's kernels in an emulated machine, by each family of hooks.

A kernel is booted once and plays all of its cases; the tests look at what came of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from emulated import Case, Played, Record, Unavailable, play
from ends import far_end, own_end

#: Name of the kernel, and the families that play, the first of which it takes; fentry is there from 6.4, and what the
#: tracepoint family is made for from 6.3.
PLAYED = {"6.12": ("tracepoint", "function", "kprobe"), "6.1": ("kprobe",)}
FAMILIES = [(kernel, family) for kernel, families in PLAYED.items() for family in families]
ROUNDS = 6
LABS = (f"write-write-read --rounds {ROUNDS} --interval 10ms", f"write-write-read --rounds {ROUNDS} --nodelay",
        f"header-body -6 --rounds {ROUNDS} --interval 10ms", "echo --rounds 5", "cork-forgotten --rounds 2",
        f"length-data --rounds {ROUNDS}")
WRITES, NODELAY, IPV6, ECHO, CORK, BOTH_ENDS = range(1, len(LABS) + 1)
#: For one kernel's cases, in s; 40 to 80 s on a machine of two cores.
PATIENCE = 280.0


def cases(kernel: str) -> list[Case]:
    chosen = [Case("check", "check"),
              *(Case(family, f"--json --stacks --hooks {family}", LABS) for family in PLAYED[kernel])]
    if "function" not in PLAYED[kernel]:
        chosen += [Case("by-functions", "--json --hooks function --duration 100ms"),
                   Case("fix", "fix -p CLIENT --nodelay --for 2s --yes --json",
                        ("write-write-read --rounds 100000 --interval 2ms --seconds 7",))]
    return chosen


@pytest.fixture(scope="session")
def guests() -> Iterator[dict[str, Future[dict[str, Played]]]]:
    """Both kernels play at the same time."""
    with ThreadPoolExecutor(len(PLAYED)) as pool:
        yield {kernel: pool.submit(play, kernel, cases(kernel), PATIENCE) for kernel in PLAYED}


def played(guests: dict[str, Future[dict[str, Played]]], kernel: str) -> dict[str, Played]:
    try:
        return guests[kernel].result()
    except Unavailable as reason:
        pytest.skip(f"arm64 kernel {kernel} cannot be had: {reason}")


@pytest.fixture(params=FAMILIES, ids=[" ".join(pair) for pair in FAMILIES])
def traced(request: pytest.FixtureRequest, guests: dict[str, Future[dict[str, Played]]]) -> Played:
    """The whole machine, traced by one family while all labs played."""
    kernel, family = request.param
    case = played(guests, kernel)[family]
    assert case.code == 0, case.files
    return case


@pytest.fixture(params=PLAYED)
def kernel(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def assert_in_rounds(stalls: list[Record], rounds: list[Record]) -> None:
    """As long as a delayed ACK takes, and none longer than its round; the emulated machine is slow and uneven."""
    durations = sorted(stall["duration_us"] for stall in stalls)
    latencies = sorted(one["latency_us"] for one in rounds)
    assert durations[0] >= 5_000 and statistics.median(durations) >= 25_000, durations
    for duration, latency in zip(reversed(durations), reversed(latencies)):
        assert duration <= latency + 500, (durations, latencies)


@pytest.mark.parametrize("lab,first,second", [(WRITES, 6, 7), (IPV6, 512, 512)], ids=["ipv4", "ipv6"])
def test_every_stall_is_found_with_its_process_cause_and_duration(traced: Played, lab: int, first: int, second: int
                                                                  ) -> None:
    stalls, ready = traced.stalls(lab), traced.lab(lab, "ready")
    # the first rounds may meet a receiver in quick-ACK mode
    assert ROUNDS - 2 <= len(stalls) <= ROUNDS, traced.files
    assert_in_rounds(stalls, traced.lab(lab, "result")["rounds"])
    for stall in stalls:
        assert (stall["cause"], stall["side"], stall["evidence"]) == ("nagle_delayed_ack", "sender", "seen")
        assert (own_end(stall)["pid"], own_end(stall)["comm"]) == (ready["client"]["pid"], "lab-client")
        assert (far_end(stall)["pid"], far_end(stall)["comm"]) == (ready["server"]["pid"], "lab-server")
        assert (stall["sender"]["hold"]["reason"], stall["sender"]["hold"]["release"]) == ("nagle", "ack")
        assert (stall["sender"]["hold"]["in_flight_bytes"], stall["sender"]["hold"]["bytes"]) == (first, second)
        assert stall["receiver"]["pending_ack"]["release"] == "timer" and own_end(stall)["options"]["nodelay"] is False
        assert stall["pattern"] == "write_write_read"


def test_the_call_stack_of_the_held_write_is_named(traced: Played) -> None:
    """By registers and stack as arm64 keeps them."""
    for stall in traced.stalls(WRITES):
        symbols = [frame.get("symbol") for frame in stall["sender"]["stack"]]
        at = symbols.index("send_call")
        assert symbols[at:at + 4] == ["send_call", "send_all", "message_send", "client_round"]
        assert "main" in symbols and {frame.get("module") for frame in stall["sender"]["stack"]} == {"/bin/nagle-lab"}


@pytest.mark.parametrize("lab", [NODELAY, ECHO], ids=["nodelay", "echo"])
def test_where_nothing_stalls_nothing_is_reported(traced: Played, lab: int) -> None:
    assert traced.lab(lab, "result")["rounds"] and traced.stalls(lab) == []


def test_a_forgotten_cork_ends_at_its_ceiling(traced: Played) -> None:
    stalls = traced.stalls(CORK)
    assert [stall["cause"] for stall in stalls] == ["cork_ceiling"] * len(stalls) and stalls
    assert all(stall["duration_us"] > 150_000 and stall["sender"]["hold"]["reason"] == "cork" for stall in stalls)


def test_where_each_end_stalls_the_other_both_are_reported(traced: Played) -> None:
    client = traced.lab(BOTH_ENDS, "ready")["client"]["pid"]
    of_client = {own_end(stall)["pid"] == client for stall in traced.stalls(BOTH_ENDS)}
    assert of_client == {True, False}


def test_nothing_is_lost_and_nothing_is_complained_of(traced: Played) -> None:
    [closing] = [report for report in traced.records("report") if report["closing"]]
    assert closing["stalls"] == len(traced.records("stall"))
    # a program that was skipped over another is made up for by the next event
    assert not {place: n for place, n in closing["dropped"].items() if n and place != "recursion"}
    # among others, that system calls are refused: by seccomp, which knows each architecture's own numbers
    lines = traced.files["errors"].splitlines()
    assert len(lines) == 2 and lines[0].endswith(" hooks") and lines[1] == "nagletrace: ready", lines


def test_check_says_what_the_kernel_offers(guests: dict[str, Future[dict[str, Played]]], kernel: str) -> None:
    said = played(guests, kernel)["check"]
    assert said.code == 0 and " aarch64" in said.files["output"]
    lines = [line for line in said.files["output"].splitlines() if line.split()[1:2] in (["yes"], ["yes,"], ["no:"])]
    offered = {line.split()[0]: line.split()[1].strip(",:") for line in lines}
    assert offered == {"BTF": "yes", "function": "yes" if "function" in PLAYED[kernel] else "no", "kprobe": "yes",
                       "tracepoint": "yes"}
    assert [line.split()[0] for line in lines if "would be used" in line] == [PLAYED[kernel][0]]


def test_fentry_is_refused_with_the_reason_where_there_is_none(guests: dict[str, Future[dict[str, Played]]]) -> None:
    refused = played(guests, "6.1")["by-functions"]
    assert refused.code == 3 and refused.files["output"] == ""
    assert refused.files["errors"] == ("nagletrace: --hooks function: this kernel or architecture does not support it; "
                                       "`nagletrace check` shows what can be used")


def test_nodelay_is_tried_on_the_running_process(guests: dict[str, Future[dict[str, Played]]]) -> None:
    """By kprobes, which it takes of itself."""
    fix = played(guests, "6.1")["fix"]
    assert fix.code == 0, fix.files
    [started], [result] = fix.records("start"), fix.records("fix")
    assert started["hooks"] == "kprobe"
    assert (result["option"], result["verdict"]) == ("TCP_NODELAY", "cured")
    assert result["before"]["stalls"] > 5 * result["while_set"]["stalls"]
    assert [socket["state"] for socket in result["sockets"]] == ["restored"]
