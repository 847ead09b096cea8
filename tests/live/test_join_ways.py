# SPDX-License-Identifier: GPL-2.0
"""Two hosts as in test_join.py, over ways that are slow or lose segments, and under daemons that are started anew:
nobody is accused who acknowledged promptly, and no stall is told twice."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from daemon import Daemon, Reader
from harness import IN_GUEST, NAGLETRACE, PATIENCE, REST, Record, dropped
from joined import join
from test_join import HOSTS, Recorded, assert_true, traced
from two_hosts import INNOCENT, READ_LATE, ROUNDS, STALLING, Exchange, Network, named, play

pytestmark = pytest.mark.skipif(IN_GUEST, reason="guests have neither nft nor DuckDB")

#: Of the first second of a recording, and of the last one, it is no witness: join.sql, `contradicted`.
MARGIN_S = 1.1
#: A stream of the daemon has totals this often.
TOTALS_S = 60.0


def record(network: Network, key: str, prompt_from: int, exchanges: list[Exchange] = STALLING,
           rounds: int = ROUNDS) -> Recorded:
    def played() -> list[Record]:
        time.sleep(MARGIN_S)
        return play(network, exchanges, rounds, prompt_from)

    return traced(network, key, played)


@pytest.mark.parametrize("by", ["traces", "daemons"])
def test_a_slow_way_is_no_late_ack(by: str, key: str, tmp_path: Path) -> None:
    """From round 6 on the way takes 40 ms there and back, and the ends acknowledge promptly: the sender's host, which
    remembers quicker round trips, infers stalls; the receiver's host shows that there was none."""
    with Network(slow=True) as network:
        recorded = (record if by == "traces" else follow)(network, key, prompt_from=6)
    joined = join(tmp_path, recorded.lines)
    told = [one for one in joined if one["type"] == "stall"]
    if recorded.unseen:  # the receiver's host is no witness: what was inferred stays, and is told as inferred
        assert_true(recorded, [one for one in told if one["evidence"] == "seen"], missing=recorded.unseen)
        return
    dismissed = [one for one in joined if one.get("contradicted")]
    inferred = {one["ack_id"] for one in recorded.lines["web1"] + recorded.lines["db1"] if one["type"] == "stall"}
    assert sum(one["sure"] for one in recorded.felt) >= 20 and len(dismissed) >= 10, (len(recorded.felt), dismissed)
    assert {one["ack_id"] for one in dismissed} <= inferred
    assert_true(recorded, told)
    assert {one["evidence"] for one in told} == {"seen"}


@pytest.mark.parametrize("by", ["traces", "daemons"])
def test_an_ack_that_a_late_read_sent_is_a_late_ack(by: str, key: str, tmp_path: Path) -> None:
    """No timer sends it, and the receiver's host is a witness of it all the same."""
    rounds = 40
    with Network() as network:
        recorded = (record if by == "traces" else follow)(network, key, rounds, READ_LATE, rounds)
    joined = join(tmp_path, recorded.lines)
    assert sum(one["sure"] for one in recorded.felt) >= rounds // 3, recorded.felt
    assert not [one for one in joined if one.get("contradicted")]
    assert_true(recorded, joined, missing=recorded.unseen)
    by_read = [one for one in joined if one["receiver"].get("pending_ack", {}).get("release") == "read"]
    assert len(by_read) >= rounds // 3 and {one["evidence"] for one in by_read} == {"seen"}, joined


def test_a_lost_segment_is_no_late_ack(key: str, tmp_path: Path) -> None:
    with Network(lossy=True) as network:
        recorded = record(network, key, prompt_from=0)
        lost = network.lost()
    assert lost >= 3, "hardly anything was lost: nothing was shown"
    told = [one for one in join(tmp_path, recorded.lines) if one["type"] == "stall"]
    assert not told, (told, lost)


class Followed:
    """A daemon on a host, and its stream up to now."""

    def __init__(self, daemon: Daemon, stack: ExitStack) -> None:
        self.daemon = daemon
        self.stream, self.asks = (stack.enter_context(Reader(daemon.socket)) for _ in range(2))
        self.lines = [self.stream.ask("stream", format="json")]

    def read(self) -> list[Record]:
        """All that was told up to now. A stall waits for a look at all processes; nothing new comes after that."""
        last, before = self._last(), -1
        while last != before:
            time.sleep(REST)
            last, before = self._last(), last
        while self.lines[-1]["number"] < last:
            self.lines += itertools.islice(self.stream.lines(), 1)
        return self.lines

    def _last(self) -> int:
        """How much was told: late ACKs and stalls, as the kernel side counts them, and holds."""
        counts = self.asks.ask("snapshot")
        with Reader(self.daemon.socket) as reader:
            told = reader.ask("stream", format="json")["number"]
        return int(max(told, counts["totals"]["delayed_acks"]["timer"] + counts["stalls"]))


def follow(network: Network, key: str, prompt_from: int, exchanges: list[Exchange] = STALLING,
           rounds: int = ROUNDS) -> Recorded:
    """As record(), by daemons whose streams `nagletrace report -f` records: each minute they have totals. One in
    standby beside them does not say what it has not seen."""
    daemons = [(*host, ()) for host in HOSTS] + [("standby", "client", ("--standby",))]
    recordings = {host: Path(key).with_name(f"{host}.jsonl") for host, *_ in daemons}

    def lines_of(host: str) -> list[Record]:
        return [json.loads(line) for line in recordings[host].read_text().splitlines(keepends=True)
                if line.endswith("\n")]

    def wait_for(kind: str, after: str, least_s: float) -> None:
        until = time.monotonic() + least_s + PATIENCE
        while not all(any(line["type"] == kind and line["time"] > after for line in lines_of(host))
                      for host in recordings):
            assert time.monotonic() < until, f"no {kind} after {after}"
            time.sleep(REST)

    with ExitStack() as stack:
        for host, end, options in daemons:
            daemon = stack.enter_context(Daemon("--netns", str(network.pid(end)), "--fleet-key", key, *options,
                                                prefix=named(host)))
            follower = subprocess.Popen([NAGLETRACE, "report", "-f", "-o", "json", "--socket", daemon.socket],
                                        stdout=recordings[host].open("w"))
            stack.callback(follower.wait, PATIENCE)
            stack.callback(follower.terminate)
        wait_for("streaming", "", 0)
        time.sleep(MARGIN_S)
        felt = play(network, exchanges, rounds, prompt_from)
        wait_for("totals", (datetime.now(timezone.utc) + timedelta(seconds=MARGIN_S)).isoformat(), TOTALS_S)
        lines = {host: lines_of(host) for host in recordings}
    assert not any("unseen" in line for line in lines.pop("standby"))
    totals = [line for of_host in lines.values() for line in of_host if line["type"] == "totals"]
    assert not any(dropped(line) for line in totals)
    return Recorded(felt, lines, sum(line["unseen"] for line in totals))


def test_daemons_that_are_started_anew_tell_no_stall_twice(key: str, tmp_path: Path) -> None:
    """Each host's stream goes to one log, from the daemon before and the one after; and once more to another log, as
    where a carrier delivers twice."""
    logs: dict[str, list[Record]] = {host: [] for host, _ in HOSTS}
    felt: list[Record] = []
    with Network() as network:
        for _ in range(2):
            with ExitStack() as stack:
                followed = {host: Followed(stack.enter_context(Daemon("--netns", str(network.pid(end)), "--fleet-key",
                                                                      key, prefix=named(host))), stack)
                            for host, end in HOSTS}
                felt += play(network, STALLING[:2] + INNOCENT[:1])
                for host, one in followed.items():
                    logs[host] += one.read()
    starts = [one["number"] for one in logs["db1"] if one["type"] in ("start", "streaming")]
    assert starts == [0, 0] and sum(one["sure"] for one in felt) >= 40
    again = {f"{host} again": lines for host, lines in logs.items()}
    told = join(tmp_path, {**logs, **again})
    assert_true(Recorded(felt, {}, 0), told)
    assert len({one["ack_id"] for one in told}) == len(told)
    assert told == join(tmp_path, logs)
