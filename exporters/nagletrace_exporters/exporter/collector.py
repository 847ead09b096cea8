# SPDX-License-Identifier: GPL-2.0
"""Makes metrics of the daemon's snapshot: fresh families at each scrape. Nothing is kept between two scrapes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample

from .. import __version__
from ..client import Answer, DaemonError, ask
from ..lines import TooLarge
from ..records import (
    MAX_ADDRESS,
    BadRecord,
    list_of,
    needed_number,
    needed_text,
    number_of,
    object_of,
    tables_of,
    text_of,
    time_of,
)

log = logging.getLogger(__name__)

#: The label `comm` of processes that were gone before the daemon could name them.
UNKNOWN = "unknown"
#: The labels of a daemon with --by-cgroup. One that is "", which Prometheus takes for no label, is of a process in no
#: container.
BY_CGROUP = ("cgroup", "container_id", "pod_uid")
#: The most label sets that the exporter takes from a daemon: the daemon's own default. Each needs 20 KB while a
#: scrape is made.
MAX_SERIES = 1000
#: Besides these, the daemon has one of `other` for each cause, reason, side and evidence.
OTHERS = 32
#: The most bytes and values of a snapshot, besides its series and for each series. A series takes about 700
#: bytes and the path of a cgroup.
SNAPSHOT_BYTES, SERIES_BYTES = 64 << 10, 3 << 9
SNAPSHOT_VALUES, SERIES_VALUES = 2000, 64
#: The most buckets of a histogram; the daemon's has 17.
MAX_BOUNDS = 50
#: The most characters of all label values of the stalls together, for each label set, since the exposition
#: repeats them on each of its 22 lines.
LABEL_CHARACTERS = 500
#: The most characters of an exemplar's labels, names and values together: OpenMetrics allows no more.
EXEMPLAR_CHARACTERS = 128


#: Of a daemon with --standby.
STATES = ("standby", "attached")


@dataclass
class Stalls:
    """Sums over the daemon's series that have the same labels here."""

    count: int = 0
    duration_us: int = 0
    excess_us: int = 0
    buckets: list[int] = field(default_factory=list)
    #: the last one
    exemplar: Exemplar | None = None
    _exemplar_us: int = -1

    def add(self, series: dict[str, Any], bounds: int) -> None:
        self.count += needed_number(series, "stalls")
        self.duration_us += needed_number(series, "duration_us")
        self.excess_us += needed_number(series, "excess_us")
        buckets = numbers_of(series, "buckets")
        if len(buckets) != bounds:
            raise BadRecord("buckets are not as many as bounds_us")
        self.buckets = [mine + its for mine, its in zip(self.buckets, buckets)] if self.buckets else buckets

    def add_exemplar(self, series: dict[str, Any]) -> None:
        """Takes the series' last stall, if it is later than the one that is known."""
        last = object_of(series, "last")
        if last is None:
            return
        wanted = {"pid": str(number_of(last, "pid") or ""), "local": needed_text(last, "local", MAX_ADDRESS),
                  "remote": needed_text(last, "remote", MAX_ADDRESS), "bytes": str(needed_number(last, "bytes"))}
        at = time_of(last)
        labels: dict[str, str] = {}
        room = EXEMPLAR_CHARACTERS
        for name, value in wanted.items():
            if value and len(name) + len(value) <= room:
                labels[name] = value
                room -= len(name) + len(value)
        exemplar = Exemplar(labels, needed_number(last, "duration_us") / 1e6, at / 1e6)
        if at > self._exemplar_us:
            self.exemplar, self._exemplar_us = exemplar, at


class NagletraceCollector(Collector):
    """Asks the daemon at each collect(). Without an answer it yields nagletrace_up 0 and the exporter's own metrics."""

    def __init__(self, socket: Path, timeout_s: float, max_series: int = MAX_SERIES, exemplars: bool = False) -> None:
        self.socket = socket
        self.exemplars = exemplars
        self.timeout_s = timeout_s
        self.max_series = max_series
        self._logged: str | None = None

    def describe(self) -> Iterable[Metric]:
        """Yields nothing: the registry need not ask the daemon to know names."""
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
        """Returns all metrics of the daemon, or none if it does not answer or anything is wrong with its answer."""
        try:
            metrics = list(self._metrics(ask(
                self.socket, {"request": "snapshot", **({"last": True} if self.exemplars else {})}, self.timeout_s,
                SNAPSHOT_BYTES + self.max_series * SERIES_BYTES, SNAPSHOT_VALUES + self.max_series * SERIES_VALUES)))
        except DaemonError as error:
            self._log(f"{error}{self._remedy() if isinstance(error.__cause__, TooLarge) else ''}")
            return []
        except Exception as error:  # whatever the error is, a scrape without the daemon beats none
            self._log(f"the daemon's answer lacks something: {error!r}")
            return []
        if self._logged:
            log.info("the daemon is back")
        self._logged = None
        return metrics

    def _remedy(self) -> str:
        return (f"; if it runs with --max-series above {self.max_series}, give --daemon.max-series as many, and this "
                "program 20 KB of memory for each")

    def _log(self, what: str) -> None:
        """Logs a trouble once, not at every scrape."""
        if what != self._logged:
            log.warning("%s", what)
        self._logged = what

    def _metrics(self, snapshot: Answer) -> Iterator[Metric]:
        """Checks all values before it uses the first: a scrape has the whole answer or nothing of it."""
        missing = texts_of(snapshot, "missing_hooks")
        needed_number(snapshot, "stalls")
        yield info("nagletrace_build_info", "The daemon.", {"version": needed_text(snapshot, "version")})
        yield info("nagletrace_hooks_info", "Which hooks the daemon uses, and which of them the kernel lacks.",
                   {"hooks": needed_text(snapshot, "hooks"), "missing": ",".join(missing)})
        yield gauge("nagletrace_missing_hooks", "How many of the hooks the kernel lacks.", len(missing))
        yield gauge("nagletrace_detached_hooks", "How many hooks the daemon detached for --max-overhead.",
                    len(texts_of(snapshot, "detached_hooks") if "detached_hooks" in snapshot else []))
        yield gauge("nagletrace_start_time_seconds", "When the daemon started, since the epoch.",
                    time_of({"time": snapshot.get("started")}) / 1e6)
        yield from self._stalls(snapshot)
        optional = [key for key in ("unnamed_stacks",) if key in snapshot]
        checked = {key: tables_of(snapshot, key) for key in ("totals", "limits", "tracer", "dropped", *optional)}
        if "unseen" in snapshot:
            checked["unseen"] = needed_number(snapshot, "unseen")  # type: ignore[assignment]
        yield from totals(checked)
        yield from tracer(checked)
        state = object_of(snapshot, "standby")
        if state is not None:
            yield from standby(dict(state))

    def _stalls(self, snapshot: Answer) -> Iterator[Metric]:
        # The labels are all those by which the daemon tells series apart. Otherwise a series that made room would be
        # missing from a sum, and the counter would go down.
        labels = ["cause", "reason", "side", "evidence", "comm", *(BY_CGROUP if snapshot["by_cgroup"] is True else ())]
        bounds = [bound / 1e6 for bound in numbers_of(snapshot, "bounds_us")]
        if not 0 < len(bounds) <= MAX_BOUNDS or sorted(set(bounds)) != bounds:
            raise BadRecord(f"bounds_us are not up to {MAX_BOUNDS} bounds that grow")
        all_series = list_of(snapshot, "series")
        if "series" not in snapshot or len(all_series) > self.max_series + OTHERS:
            raise BadRecord(f"{len(all_series)} series, and not at most {self.max_series}{self._remedy()}")
        sums: dict[tuple[str, ...], Stalls] = {}
        for series in all_series:
            if not isinstance(series, dict):
                raise BadRecord("a series is no object")
            values = tuple(text_of(series, label) or (UNKNOWN if label == "comm" and label not in series else "")
                           for label in labels)
            stalls = sums.setdefault(values, Stalls())
            stalls.add(series, len(bounds))
            if self.exemplars:
                stalls.add_exemplar(series)
        if sum(len(value) for values in sums for value in values) > LABEL_CHARACTERS * (self.max_series + OTHERS):
            raise BadRecord("label values of the series that are too long together")
        count = CounterMetricFamily("nagletrace_stalls", "Stalls.", labels=labels)
        excess = CounterMetricFamily("nagletrace_stall_excess_seconds",
                                     "Time lost by stalls: what they lasted beyond the smallest round trip.",
                                     labels=labels)
        for values, stalls in sums.items():
            count.add_metric(values, stalls.count)
            excess.add_metric(values, stalls.excess_us / 1e6)
        yield from (count, excess, durations(labels, bounds, sums))


class Histograms:
    """Makes the samples of a histogram family as they are written: all of them at once would take 10 MB."""

    def __init__(self, name: str, labels: list[str], bounds: list[float], sums: dict[tuple[str, ...], Stalls]) -> None:
        self._name = name
        self._labels = labels
        self._bounds = bounds
        self._sums = sums

    def __iter__(self) -> Iterator[Sample]:
        for values, stalls in self._sums.items():
            labels = dict(zip(self._labels, values))
            exemplar = stalls.exemplar
            for bound, count in cumulative(self._bounds, stalls):
                in_it = exemplar if exemplar and exemplar.value <= float(bound) else None
                yield Sample(f"{self._name}_bucket", {**labels, "le": bound}, count, None, in_it)
                exemplar = None if in_it else exemplar
            yield Sample(f"{self._name}_count", labels, stalls.count)
            yield Sample(f"{self._name}_sum", labels, stalls.duration_us / 1e6)


def durations(labels: list[str], bounds: list[float], sums: dict[tuple[str, ...], Stalls]) -> Metric:
    family = Metric("nagletrace_stall_seconds", "How long stalls lasted.", "histogram")
    family.samples = Histograms(family.name, labels, bounds, sums)  # type: ignore[assignment]
    return family


def numbers_of(record: Answer, key: str) -> list[int]:
    if key not in record:
        raise BadRecord(f"{key} is missing")
    return [needed_number({key: value}, key) for value in list_of(record, key)]


def texts_of(record: Answer, key: str) -> list[str]:
    if key not in record:
        raise BadRecord(f"{key} is missing")
    return [needed_text({key: value}, key) for value in list_of(record, key)[:MAX_BOUNDS]]


def cumulative(bounds: list[float], stalls: Stalls) -> list[tuple[str, float]]:
    """Returns the buckets as the exposition wants them: all of them, each with the counts below it, and +Inf."""
    buckets: list[tuple[str, float]] = []
    below = 0
    for bound, alone in zip(bounds, stalls.buckets):
        below += alone
        buckets.append((repr(bound), below))
    return [*buckets, ("+Inf", stalls.count)]


def totals(snapshot: Answer) -> Iterator[Metric]:
    """Yields the kernel side's counts."""
    counted = snapshot["totals"]
    yield counters("nagletrace_holds", "Holds of unsent tails, by reason.", "reason", counted["holds"])
    yield counters("nagletrace_hold_seconds", "Time that unsent tails were held, by reason.", "reason",
                   counted["hold_us"], 1e-6)
    yield counters("nagletrace_hold_releases", "Holds that ended, by release.", "release", counted["releases"])
    yield counters("nagletrace_delayed_acks", "Delayed ACKs, by the release of the pending ACK.", "release",
                   counted["delayed_acks"])
    yield counter("nagletrace_writes", "Writes to the sockets that the daemon watches.", counted["writes"])
    yield counters("nagletrace_dropped_records", "Records that found no room, by place; totals stay right.", "where",
                   snapshot["dropped"])
    if "unnamed_stacks" in snapshot:  # only with --stacks
        yield counters("nagletrace_unnamed_stacks", "Call stacks that stayed without names, by reason; no record was "
                       "dropped for that.", "reason", snapshot["unnamed_stacks"])
    yield counter("nagletrace_contradicted_stalls", "Waits that look like stalls from one end, which the other end, on "
                  "this host too, contradicts; they are no stalls.", counted["contradicted"])
    if "unseen" in snapshot:  # absent where it cannot be known
        yield counter("nagletrace_unseen_delayed_acks", "Delayed ACKs that the kernel's timer sent and no hook saw, at "
                      "least.", snapshot["unseen"])
    limits = snapshot["limits"]
    yield counter("nagletrace_folded_stalls", "Stalls counted with comm `other`, since the label sets are bounded.",
                  limits["folded_stalls"])
    yield counter("nagletrace_evicted_series", "Label sets that were idle and made room for others.",
                  limits["evicted_series"])


def tracer(snapshot: Answer) -> Iterator[Metric]:
    """Yields what tracing costs, and how the daemon's readers fare."""
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
    if "refusals" in costs:  # an older daemon lacks it
        yield counters("nagletrace_refusals", "Connections and requests that the daemon did not serve for lack of "
                       "room, by reason.", "reason", costs["refusals"])


def standby(counted: Answer) -> Iterator[Metric]:
    """Yields in which state a daemon with --standby is, and what its looks at the sockets estimate."""
    state = needed_text(counted, "state")
    if state not in STATES:
        raise BadRecord(f"standby has a state that is none of {', '.join(STATES)}")
    yield gauge("nagletrace_attached", "Whether the hooks are attached now: with --standby, while something stalls.",
                1 if state == "attached" else 0)
    yield gauge("nagletrace_state_start_time_seconds", "When the daemon came into this state, since the epoch.",
                time_of({"time": counted.get("since")}) / 1e6)
    yield counters("nagletrace_state_seconds", "Time in which nothing was attached (standby), and in which the hooks "
                   "were.", "state", {name: needed_number(counted, f"{name}_us") for name in STATES}, 1e-6)
    yield counter("nagletrace_state_changes", "Times that the hooks were attached or detached.",
                  needed_number(counted, "changes"))
    yield counter("nagletrace_false_alarms", "Times that the hooks were attached, and no stall came.",
                  needed_number(counted, "false_alarms"))
    yield counter("nagletrace_attach_failures", "Times that the hooks could not be attached.",
                  needed_number(counted, "attach_failures"))
    yield counter("nagletrace_looks", "Looks at all sockets, with nothing attached.", needed_number(counted, "looks"))
    yield counter("nagletrace_look_cpu_seconds", "CPU time of these looks.",
                  needed_number(counted, "look_cpu_us") / 1e6)
    yield counter("nagletrace_sampled_excess_seconds", "Time lost by stalls in standby, as looks estimate it; it is "
                  "not in nagletrace_stall_excess_seconds_total.", needed_number(counted, "sampled_excess_us") / 1e6)


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
