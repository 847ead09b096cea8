# SPDX-License-Identifier: GPL-2.0
"""The daemon's snapshot as metrics: fresh families at each scrape, nothing kept between them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from . import __version__
from .daemon import Answer, DaemonError, ask

log = logging.getLogger(__name__)

#: `comm` of processes that were gone before they could be named.
UNKNOWN = "unknown"


@dataclass
class Stalls:
    """Sums over the daemon's series that have the same labels here."""

    count: int = 0
    duration_us: int = 0
    excess_us: int = 0
    buckets: list[int] = field(default_factory=list)

    def add(self, series: dict[str, Any]) -> None:
        self.count += series["stalls"]
        self.duration_us += series["duration_us"]
        self.excess_us += series["excess_us"]
        if not self.buckets:
            self.buckets = [0] * len(series["buckets"])
        self.buckets = [mine + its for mine, its in zip(self.buckets, series["buckets"])]


class NagletraceCollector(Collector):
    """Asks the daemon at each collect(); without it, only nagletrace_up 0 and what the exporter knows itself."""

    def __init__(self, socket: Path, timeout_s: float) -> None:
        self.socket = socket
        self.timeout_s = timeout_s
        self._told: str | None = None

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry need not ask the daemon to know names."""
        return []

    def collect(self) -> Iterator[Metric]:
        began = time.monotonic()
        metrics = self._ask()
        yield gauge("nagletrace_up", "Whether the daemon answered.", 1 if metrics else 0)
        yield info("nagletrace_exporter_build_info", "This exporter.", {"version": __version__})
        yield from metrics
        yield gauge("nagletrace_scrape_duration_seconds", "How long the daemon took to answer.",
                    time.monotonic() - began)

    def _ask(self) -> list[Metric]:
        """All that the daemon says; nothing when it does not answer, or half an answer."""
        try:
            metrics = list(self._metrics(ask(self.socket, {"request": "snapshot"}, self.timeout_s)))
        except DaemonError as error:
            self._tell(str(error))
            return []
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self._tell(f"the daemon's answer lacks something: {error!r}")
            return []
        if self._told:
            log.info("the daemon is back")
        self._told = None
        return metrics

    def _tell(self, what: str) -> None:
        """Says it once, not at every scrape."""
        if what != self._told:
            log.warning("%s", what)
        self._told = what

    def _metrics(self, snapshot: Answer) -> Iterator[Metric]:
        yield info("nagletrace_build_info", "The daemon.", {"version": snapshot["version"]})
        yield info("nagletrace_hooks_info", "Which hooks the daemon uses, and which of them the kernel lacks.",
                   {"hooks": snapshot["hooks"], "missing": ",".join(snapshot["missing_hooks"])})
        yield gauge("nagletrace_hooks_missing", "How many of the hooks the kernel lacks.",
                    len(snapshot["missing_hooks"]))
        yield gauge("nagletrace_hooks_let_go", "How many hooks --max-overhead let go of.",
                    len(snapshot.get("hooks_let_go", [])))
        yield gauge("nagletrace_start_time_seconds", "When the daemon started, since the epoch.",
                    seconds_since_epoch(snapshot["started"]))
        yield from self._stalls(snapshot)
        yield from totals(snapshot)
        yield from tracer(snapshot)

    def _stalls(self, snapshot: Answer) -> Iterator[Metric]:
        # each label that the daemon tells series apart by: else one that made room would be missing from a sum, which
        # would go down
        labels = ["cause", "side", "evidence", "comm", *(["cgroup"] if snapshot["by_cgroup"] else [])]
        sums: dict[tuple[str, ...], Stalls] = {}
        for series in snapshot["series"]:
            values = tuple(series.get(label, UNKNOWN if label == "comm" else "") for label in labels)
            sums.setdefault(values, Stalls()).add(series)
        count = CounterMetricFamily("nagletrace_stalls", "Stalls.", labels=labels)
        excess = CounterMetricFamily("nagletrace_stall_excess_seconds",
                                     "Time lost by stalls: what they lasted beyond the smallest round trip.",
                                     labels=labels)
        durations = HistogramMetricFamily("nagletrace_stall_seconds", "How long stalls lasted.", labels=labels)
        bounds = [bound / 1e6 for bound in snapshot["bounds_us"]]
        for values, stalls in sums.items():
            count.add_metric(values, stalls.count)
            excess.add_metric(values, stalls.excess_us / 1e6)
            durations.add_metric(values, cumulative(bounds, stalls), stalls.duration_us / 1e6)
        yield from (count, excess, durations)


def cumulative(bounds: list[float], stalls: Stalls) -> list[tuple[str, float]]:
    """Buckets as the exposition wants them: all of them, each with those below it, and +Inf."""
    buckets: list[tuple[str, float]] = []
    below = 0
    for bound, alone in zip(bounds, stalls.buckets):
        below += alone
        buckets.append((repr(bound), below))
    return [*buckets, ("+Inf", stalls.count)]


def totals(snapshot: Answer) -> Iterator[Metric]:
    """What the kernel side counted."""
    counted = snapshot["totals"]
    yield counters("nagletrace_holds", "Holds: unsent tails, by what held them.", "reason", counted["holds"])
    yield counters("nagletrace_hold_seconds", "How long unsent tails were held.", "reason", counted["hold_us"], 1e-6)
    yield counters("nagletrace_hold_releases", "Holds, by what let them go.", "release", counted["releases"])
    yield counters("nagletrace_delayed_acks", "ACKs that were put off, by how they ended.", "end",
                   counted["delayed_acks"])
    yield counter("nagletrace_sends", "Writes to the sockets watched.", counted["writes"])
    yield counters("nagletrace_lost_records", "Records lost, by where; totals stay right.", "where", snapshot["lost"])
    limits = snapshot["limits"]
    yield counter("nagletrace_folded_stalls", "Stalls counted with comm `other`, since the label sets are bounded.",
                  limits["folded_stalls"])
    yield counter("nagletrace_evicted_series", "Label sets that were idle and made room for others.",
                  limits["evicted_series"])


def tracer(snapshot: Answer) -> Iterator[Metric]:
    """What tracing costs, and how the daemon's readers fare."""
    costs = snapshot["tracer"]
    cpu = {"daemon": costs["cpu_us"]}
    if "bpf_cpu_us" in costs:  # only with kernel.bpf_stats_enabled
        cpu["bpf"] = costs["bpf_cpu_us"]
    yield counters("nagletrace_tracer_cpu_seconds", "CPU time that tracing took: the daemon's process, and its BPF "
                   "programs where the kernel keeps statistics.", "part", cpu, 1e-6)
    if "share_ppm" in costs:  # only with --max-overhead
        yield gauge("nagletrace_tracer_bpf_cpu_ratio", "Share of all CPUs' time that the BPF programs took, as sampled "
                    "last.", costs["share_ppm"] * 1e-6)
    yield gauge("nagletrace_tracer_resident_memory_max_bytes", "The most memory that the daemon had.",
                costs["max_resident_bytes"])
    yield gauge("nagletrace_readers", "Readers connected to the daemon.", costs["readers"])
    yield counter("nagletrace_dropped_readers", "Readers sent away: too slow, too silent, too many.",
                  costs["dropped_readers"])
    yield counter("nagletrace_skipped_stalls", "Stalls that slow followers did not get.", costs["skipped_stalls"])


def counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def counters(name: str, text: str, label: str, values: dict[str, int], unit: float = 1) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count * unit)
    return family


def gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def info(name: str, text: str, labels: dict[str, str]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), 1)
    return family


def seconds_since_epoch(text: str) -> float:
    parsed = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")
    return parsed.replace(tzinfo=timezone.utc).timestamp()
