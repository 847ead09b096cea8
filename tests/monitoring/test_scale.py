# SPDX-License-Identifier: GPL-2.0
"""Many names, hostile names and many scrapes: what is exposed stays bounded, valid and right."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon import Reader
from harness import Lab, dropped, stalled_rounds
from prometheus_client.parser import text_string_to_metric_families
from processes import wait_until
from spaces import Namespace
from stack import PATIENCE, ROOT, Stack, get, running

RENAMER = ROOT / "tests" / "monitoring" / "renamer.py"
MOST_SERIES = 1000  # the default of --max-series


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with Namespace() as space, running(tmp_path, "--netns", str(space.holder.pid)) as made:
        made.space = space
        yield made


def rename(stack: Stack, processes: int, rounds: int) -> dict[str, Any]:
    """In the namespace that the daemon watches: whoever stalls elsewhere on this host changes nothing."""
    before = stack.space.counter("TcpExtDelayedACKs")
    done = subprocess.run(stack.space.enter("/usr/bin/python3", RENAMER, processes, rounds), capture_output=True,
                          text=True, timeout=120, check=True)
    told: dict[str, Any] = json.loads(done.stdout)
    # the clock takes a round in which the machine stood still for a stall; the kernel ran no timer for it
    told["least"] = min(told["stalled"], stack.space.counter("TcpExtDelayedACKs") - before)
    return told


def snapshot(stack: Stack) -> dict[str, Any]:
    with Reader(stack.socket) as reader:
        return reader.ask("snapshot")


def wait_for_all(stack: Stack, least: int, most: int, before: int = 0, patience: float = PATIENCE) -> None:
    """All that the application felt; as many may be missing as there were timers that nobody saw."""
    def has_all() -> bool:
        now.update(snapshot(stack))
        return bool(least - now["unseen"] <= now["stalls"] - before <= most)

    now: dict[str, Any] = {}
    try:
        wait_until("the daemon has them all", has_all, patience)
    except AssertionError as error:
        raise AssertionError(f"{now['stalls'] - before} of {least} to {most}, {now['unseen']} unseen") from error


def samples(stack: Stack, name: str) -> list[Any]:
    """Of the exposition, parsed whole by somebody else's parser."""
    text = get(stack.addresses["exporter"] + "/metrics")
    families = list(text_string_to_metric_families(text))
    return [sample for family in families for sample in family.samples if sample.name == name]


def test_five_thousand_names_keep_the_label_sets_bounded(stack: Stack) -> None:
    told = rename(stack, 96, 64)
    assert told["names"] > 5000, told
    wait_for_all(stack, told["least"], told["stalled"])
    kept = snapshot(stack)
    series = samples(stack, "nagletrace_stalls_total")
    assert MOST_SERIES <= len(kept["series"]) <= MOST_SERIES + 20, "and those of `other`"
    # a process may be called `other` itself
    assert len(series) == len({tuple(s.get(label) for label in ("comm", "cause", "reason", "side", "evidence"))
                               for s in kept["series"]})
    # None is dropped: what has no room of its own is counted as other. Stalls of which one end alone was seen are
    # another share, for which names of the largest share make room. Each name has stalled once.
    here = kept["stalls"] - kept["limits"]["evicted_series"]
    assert sum(sample.value for sample in series) == here
    folded = sum(sample.value for sample in series if sample.labels["comm"] == "other")
    assert folded >= here - MOST_SERIES - 20
    [said] = samples(stack, "nagletrace_folded_stalls_total")
    assert said.value == kept["limits"]["folded_stalls"] > 0
    buckets = samples(stack, "nagletrace_stall_seconds_bucket")
    assert len(buckets) == 18 * len(series), "all buckets, always"
    assert kept["tracer"]["max_resident_bytes"] < 64 << 20


@pytest.mark.quick
def test_names_of_any_bytes_give_valid_exposition(stack: Stack) -> None:
    told = rename(stack, 2, 40)
    assert len(told["hostile"]) >= 10, told
    wait_for_all(stack, told["least"], told["stalled"])
    kept = snapshot(stack)
    series = samples(stack, "nagletrace_stalls_total")
    assert sum(sample.value for sample in series) == kept["stalls"] <= told["stalled"]
    assert len({sample.labels["comm"] for sample in series}) >= told["names"] - kept["unseen"]
    [said] = samples(stack, "nagletrace_unseen_delayed_acks_total")
    assert said.value == kept["unseen"]
    assert any('"' in sample.labels["comm"] for sample in series)
    stack.check_metrics()
    wait_until("Prometheus takes them", lambda: len(stack.query("nagletrace_stalls_total")) == len(series))


class Scraper(threading.Thread):
    """Scrapes at this rate until it is stopped, on one connection."""

    def __init__(self, port: int, per_second: float) -> None:
        super().__init__(daemon=True)
        self.port, self.pause = port, 1 / per_second
        self.scrapes = 0
        self.over = False

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        due = time.monotonic()
        while not self.over:
            connection.request("GET", "/metrics")
            body = connection.getresponse().read()
            assert b"nagletrace_up 1.0" in body
            self.scrapes += 1
            due += self.pause
            time.sleep(max(0.0, due - time.monotonic()))


@contextlib.contextmanager
def scraped(port: int, per_second: float) -> Iterator[list[Scraper]]:
    """By four of them together, while the block runs."""
    scrapers = [Scraper(port, per_second / 4) for _ in range(4)]
    for scraper in scrapers:
        scraper.start()
    try:
        yield scrapers
    finally:
        for scraper in scrapers:
            scraper.over = True
        for scraper in scrapers:
            scraper.join(30)


def test_a_thousand_scrapes_a_second_for_a_minute_do_not_disturb_tracing(stack: Stack) -> None:
    seconds, rate = 60, 1000
    port = int(stack.addresses["exporter"].rsplit(":", 1)[1])
    with scraped(port, 100 * rate) as scrapers:
        time.sleep(3)
    possible = sum(scraper.scrapes for scraper in scrapers) / 3  # a slow machine answers fewer than a thousand
    with Lab("write-write-read", "--rounds", str(seconds * 22), prefix=stack.space.enter()) as lab:
        before = snapshot(stack)
        began = time.monotonic()
        with scraped(port, rate) as scrapers:
            lab.go()
            lab.process.wait(2 * seconds)
            took = time.monotonic() - began
        result = lab.result()
    made = sum(scraper.scrapes for scraper in scrapers)
    assert took >= seconds * 0.9
    assert made >= min(0.9 * rate, 0.7 * possible) * took, f"{made} scrapes in {took:.0f} s, {possible:.0f}/s possible"
    felt = stalled_rounds(result)
    wait_for_all(stack, len(felt), len(felt), before["stalls"], 5)
    after = snapshot(stack)
    told = after["stalls"] - before["stalls"]
    assert len(felt) > seconds * 15
    assert not dropped(after)
    lasted = sum(s["duration_us"] for s in after["series"]) - sum(s["duration_us"] for s in before["series"])
    waited = sum(r["latency_us"] for r in felt)
    assert 0.95 * waited * told / len(felt) <= lasted <= waited, "durations are as right as without the scrapes"
    assert after["tracer"]["dropped_readers"] == before["tracer"]["dropped_readers"]
