# SPDX-License-Identifier: GPL-2.0
"""Two hosts, a router that translates addresses, a tracer at each end that knows only its own: what nagletrace-join
makes of the two recordings, against what the ends felt by their own clocks."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import IN_GUEST, ROOT, Record, Tracer, dropped, unseen
from joined import at, join
from tools import tools
from two_hosts import INNOCENT, STALLING, Network, named, play

pytestmark = pytest.mark.skipif(IN_GUEST, reason="guests have neither nft nor DuckDB")

#: The end of a stall is told by the host that sent, and felt by the one that received; one machine's clock tells both.
NEAR_S = 0.025
HOSTS = (("web1", "client"), ("db1", "server"))


@dataclass
class Recorded:
    """What the ends felt, in order of time, and what each host's tracer wrote."""

    felt: list[Record]
    lines: dict[str, list[Record]]
    unseen: int


def traced(network: Network, key: str, played: Callable[[], list[Record]]) -> Recorded:
    """Under a tracer on each host; played() returns what the ends felt."""
    with ExitStack() as stack:
        tracers = {host: stack.enter_context(Tracer("--netns", str(network.pid(end)), "--fleet-key", key, "--late-acks",
                                                    prefix=named(host))) for host, end in HOSTS}
        felt = played()
        for tracer in tracers.values():
            tracer.catch_up()
            tracer.stop()
    assert not any(dropped(tracer.closing()) for tracer in tracers.values())
    lines = {host: [json.loads(line) for _, line in tracer.lines.all] for host, tracer in tracers.items()}
    return Recorded(felt, lines, sum(unseen(tracer) for tracer in tracers.values()))


@pytest.fixture(scope="module")
def recorded(key: str) -> Recorded:
    with Network() as network:
        return traced(network, key, lambda: play(network, STALLING + INNOCENT))


def assert_true(recorded: Recorded, joined: list[Record], missing: int = 0) -> None:
    """Each stall that is told was felt, by the end that received; and each that was felt is told, but so many."""
    receivers = {("web1", "receiver"): "client", ("web1", "sender"): "server",
                 ("db1", "receiver"): "server", ("db1", "sender"): "client"}
    left = list(recorded.felt)
    for stall in joined:
        assert stall["type"] == "stall", stall
        receiver = receivers[stall["host"], stall["side"]]
        fits = [one for one in left if one["to"] == receiver and abs(one["time"] - at(stall)) < NEAR_S
                and abs(one["waited_s"] - stall["duration_us"] / 1e6) < NEAR_S]
        assert fits, f"{stall} was not felt: {left}"
        left.remove(min(fits, key=lambda one: abs(one["time"] - at(stall))))
    assert sum(one["sure"] for one in left) <= missing, left


def test_each_stall_between_two_hosts_is_seen_at_both_ends_and_nothing_else_is_told(recorded: Recorded,
                                                                                  tmp_path: Path) -> None:
    assert sum(one["sure"] for one in recorded.felt) >= 40
    assert {one["to"] for one in recorded.felt} == {"client", "server"}
    joined = join(tmp_path, recorded.lines)
    assert_true(recorded, joined)
    # a receiver whose timer ran unseen, by the tracer's own audit, has no late ACK to tell of
    inferred = [stall for stall in joined if stall["evidence"] != "seen"]
    assert len(inferred) <= recorded.unseen, inferred
    for stall in joined:
        if stall["evidence"] == "seen":
            hosts = {stall["sender"]["host"], stall["receiver"]["host"]}
            assert hosts == {"web1", "db1"} and stall["sender"]["hold"] and stall["receiver"]["pending_ack"]
            assert stall["sender"]["pid"] != stall["receiver"]["pid"]
    # no address was needed: neither host knows the other's
    addresses = {host: {record[end]["address"].rpartition(":")[0] for record in lines for end in ("sender", "receiver")
                        if end in record} for host, lines in recorded.lines.items()}
    assert addresses == {"web1": {"192.0.2.1", "192.0.2.254"}, "db1": {"198.51.100.1", "198.51.100.254"}}


@pytest.mark.parametrize("host", ["web1", "db1"])
def test_with_one_record_in_ten_removed_nothing_false_is_told(host: str, recorded: Recorded, tmp_path: Path) -> None:
    def kept(record: Record) -> bool:
        return record["type"] in ("start", "report") or record["number"] % 10 != 3

    whole = {stall["ack_id"]: stall for stall in join(tmp_path, recorded.lines)}
    fewer = {**recorded.lines, host: [record for record in recorded.lines[host] if kept(record)]}
    removed = len(recorded.lines[host]) - len(fewer[host])
    joined = join(tmp_path, fewer)
    assert_true(recorded, joined, missing=removed)
    for stall in joined:
        if stall["evidence"] == "seen":
            assert stall == whole[stall["ack_id"]]
    evidence = Counter(stall["evidence"] for stall in joined)
    assert removed >= 4 and evidence["seen"] >= len(whole) - removed - recorded.unseen


@pytest.mark.parametrize("shift_s", [0.5, -0.5])
def test_with_a_clock_that_is_half_a_second_off_all_are_found(shift_s: float, recorded: Recorded,
                                                              tmp_path: Path) -> None:
    def shifted(record: Record) -> Record:
        moved = datetime.datetime.fromisoformat(record["time"]) + datetime.timedelta(seconds=shift_s)
        return {**record, "time": moved.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}

    def found(lines: dict[str, list[Record]]) -> set[tuple[str, str]]:
        return {(stall["ack_id"], stall["evidence"]) for stall in join(tmp_path, lines)}

    off = {**recorded.lines, "db1": [shifted(record) for record in recorded.lines["db1"]]}
    assert found(off) == found(recorded.lines)


def test_the_joined_stalls_make_a_page(recorded: Recorded, tmp_path: Path) -> None:
    """With the commands of docs/fleets.md."""
    stalls = len(join(tmp_path, recorded.lines))

    def say(python: str | Path, program: str, *arguments: str) -> str:
        done = subprocess.run([python, "-m", f"nagletrace_exporters.{program}.main", *arguments], cwd=tmp_path,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "exporters")}, text=True, timeout=120,
                              capture_output=True)
        assert done.returncode == 0 and not done.stderr, done.stderr
        return done.stdout

    assert f"{stalls} stalls on 2 hosts" in say(tools() / "python3", "join", "web1.jsonl", "db1.jsonl")
    say(tools() / "python3", "join", "web1.jsonl", "db1.jsonl", "--output", "json", "-o", "both.jsonl")
    say("/usr/bin/python3", "report", "-i", "both.jsonl", "-o", "both.html")
    assert f"stall {stalls}" in (tmp_path / "both.html").read_text()


def test_recordings_of_several_starts_tell_each_stall_once(recorded: Recorded, tmp_path: Path) -> None:
    """As of daemons that were started anew in between: their numbers begin at 1 again."""
    def again(lines: list[Record]) -> list[Record]:
        half = len(lines) // 2
        second = [{**record, "number": record["number"] - lines[half]["number"] + 1} for record in lines[half:]]
        return [*lines[:half], {**lines[0], "time": lines[half]["time"]}, *second]

    restarted = {host: again(lines) for host, lines in recorded.lines.items()}
    stalls = join(tmp_path, restarted)
    told = {stall["ack_id"]: stall for stall in stalls}
    whole = {stall["ack_id"] for stall in join(tmp_path, recorded.lines)}
    assert len(told) == len(stalls) and whole <= set(told)
    # the begin of a recording is no witness against an inference, and the second one begins in the midst
    assert {told[ack_id]["evidence"] for ack_id in set(told) - whole} <= {"inferred"}
