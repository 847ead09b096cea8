# SPDX-License-Identifier: GPL-2.0
"""Makes metrics of the daemon's snapshot: fresh families at each scrape. Nothing is kept between two scrapes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample

from .. import __version__
from ..client import DaemonError, ask
from ..families import counter, counters, gauge, gauges, info
from ..lines import TooLarge
from ..logs import Trouble
from ..records import BadRecord, Costs, LastStall, Limits, Series, Snapshot, Standby, Totals, decode

#: The label `comm` of processes that were gone before the daemon could name them.
UNKNOWN = "unknown"
#: The label of processes that have that name: a process's own has 15 bytes at most.
SO_NAMED = "unknown (so named)"
#: The labels of a daemon with --by-cgroup. One that is "", which Prometheus takes for no label, is of a process in no
#: container.
BY_CGROUP = ("cgroup", "container_id", "pod_uid")
#: The most label sets that the exporter takes from a daemon: the daemon's own default. Each needs 20 KB while a
#: scrape is made.
MAX_SERIES = 1000
#: Besides these, the daemon has one of `other` for each cause, reason, side and evidence.
OTHERS = 32
#: The most bytes and values of a snapshot, besides its series and for each series. A series takes about 700
#: bytes, and the path of a cgroup five for each of its 256, where the daemon escapes them all.
SNAPSHOT_BYTES, SERIES_BYTES = 64 << 10, 2400
SNAPSHOT_VALUES, SERIES_VALUES = 2000, 64
#: The most buckets of a histogram; the daemon's has 17.
MAX_BOUNDS = 50
#: The most characters of a label's value: no path of a cgroup is cut, unless escapes make it longer.
VALUE_CHARACTERS = 256
#: The most characters of all label values of the stalls together, for each label set, since the exposition
#: repeats them on each of its 22 lines.
LABEL_CHARACTERS = 500
#: The most characters of an exemplar's labels, names and values together: OpenMetrics allows no more.
EXEMPLAR_CHARACTERS = 128


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

    def add(self, series: Series) -> None:
        self.count += series.stalls
        self.duration_us += series.duration_us
        self.excess_us += series.excess_us
        self.buckets = ([mine + its for mine, its in zip(self.buckets, series.buckets)] if self.buckets
                        else series.buckets)

    def add_exemplar(self, last: LastStall) -> None:
        """Takes the last stall of a series, if it is later than the one that is known."""
        if last.time_us <= self._exemplar_us:
            return
        wanted = {"pid": str(last.pid or ""), "local": last.local, "remote": last.remote, "bytes": str(last.bytes)}
        labels: dict[str, str] = {}
        room = EXEMPLAR_CHARACTERS
        for name, value in wanted.items():
            if value and len(name) + len(value) <= room:
                labels[name] = value
                room -= len(name) + len(value)
        self.exemplar, self._exemplar_us = Exemplar(labels, last.duration_us / 1e6, last.time_us / 1e6), last.time_us


class NagletraceCollector(Collector):
    """Asks the daemon at each collect(). Without an answer it yields nagletrace_up 0 and the exporter's own metrics."""

    def __init__(self, socket: Path, timeout_s: float, max_series: int = MAX_SERIES, exemplars: bool = False) -> None:
        self.socket = socket
        self.exemplars = exemplars
        self.timeout_s = timeout_s
        self.max_series = max_series
        self._trouble = Trouble("the daemon is back")

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
            answer = ask(self.socket, {"request": "snapshot", **({"last": True} if self.exemplars else {})},
                         self.timeout_s, SNAPSHOT_BYTES + self.max_series * SERIES_BYTES,
                         SNAPSHOT_VALUES + self.max_series * SERIES_VALUES)
            metrics = list(self._metrics(decode(Snapshot, answer, "the snapshot")))
        except DaemonError as error:
            self._trouble.tell(f"{error}{self._remedy() if isinstance(error.__cause__, TooLarge) else ''}")
            return []
        except Exception as error:  # whatever the error is, a scrape without the daemon beats none
            self._trouble.tell(f"the daemon's answer lacks something: {error!r}")
            return []
        self._trouble.end()
        return metrics

    def _remedy(self) -> str:
        return (f"; if it runs with --max-series above {self.max_series}, give --daemon.max-series as many, and this "
                "program 20 KB of memory for each")

    def _metrics(self, snapshot: Snapshot) -> Iterator[Metric]:
        missing = snapshot.start.missing_hooks
        yield info("nagletrace_build_info", "The daemon.", {"version": snapshot.start.version})
        yield info("nagletrace_hooks_info", "Which hooks the daemon uses, and which of them the kernel lacks.",
                   {"hooks": snapshot.start.hooks, "missing": ",".join(missing)})
        yield gauge("nagletrace_missing_hooks", "How many of the hooks the kernel lacks.", len(missing))
        yield gauge("nagletrace_detached_hooks", "How many hooks the daemon detached for --max-overhead.",
                    len(snapshot.detached_hooks))
        if snapshot.filtered is not None:  # absent of an older daemon
            yield gauge("nagletrace_filtered", "Whether the daemon's options choose processes or connections: then its "
                        "counts are of these alone, but for dropped records, which are the whole host's, and unseen "
                        "ACKs, which are all those of the namespaces traced.", int(snapshot.filtered))
        yield gauge("nagletrace_start_time_seconds", "When the daemon started, since the epoch.",
                    snapshot.started_us / 1e6)
        yield from self._stalls(snapshot)
        yield from totals(snapshot.totals)
        yield counters("nagletrace_dropped_records", "Records that found no room, by place; of ring_full and "
                       "ring_share the totals stay right.", "where", snapshot.dropped)
        if snapshot.unnamed_stacks is not None:  # only with --stacks
            yield counters("nagletrace_unnamed_stacks", "Call stacks that stayed without names, by reason; no record "
                           "was dropped for that.", "reason", snapshot.unnamed_stacks)
        if snapshot.unseen is not None:  # absent where it cannot be known
            yield counter("nagletrace_unseen_delayed_acks", "Delayed ACKs that the kernel's timer sent and no hook "
                          "saw, at least.", snapshot.unseen)
        if snapshot.kept is not None:  # absent where the kernel does not list them
            yield gauges("nagletrace_kept_remedies", "Remedies that `nagletrace fix --keep` and `--pin` keep on this "
                         "host, by the option that they set.", "option", snapshot.kept)
        yield from merged(snapshot.limits)
        yield from tracer(snapshot.tracer)
        if snapshot.standby is not None:
            yield from standby(snapshot.standby)

    def _stalls(self, snapshot: Snapshot) -> Iterator[Metric]:
        # The labels are all those by which the daemon tells series apart. Otherwise a series that made room would be
        # missing from a sum, and the counter would go down.
        labels = ["cause", "reason", "side", "evidence", "comm", *(BY_CGROUP if snapshot.by_cgroup else ())]
        bounds = [bound / 1e6 for bound in snapshot.bounds_us]
        if not 0 < len(bounds) <= MAX_BOUNDS or sorted(set(bounds)) != bounds:
            raise BadRecord(f"bounds_us are not up to {MAX_BOUNDS} bounds that grow")
        if len(snapshot.series) > self.max_series + OTHERS:
            raise BadRecord(f"{len(snapshot.series)} series, and not at most {self.max_series}{self._remedy()}")
        sums: dict[tuple[str, ...], Stalls] = {}
        for series in snapshot.series:
            comm = UNKNOWN if series.comm is None else SO_NAMED if series.comm == UNKNOWN else series.comm
            values = tuple(bounded(comm if label == "comm" else getattr(series, label) or "") for label in labels)
            stalls = sums.setdefault(values, Stalls())
            stalls.add(series)
            if self.exemplars and series.last:
                stalls.add_exemplar(series.last)
        if sum(len(value) for values in sums for value in values) > LABEL_CHARACTERS * (self.max_series + OTHERS):
            raise BadRecord("label values of the series that are too long together")
        count = CounterMetricFamily("nagletrace_stalls", "Stalls.", labels=labels)
        excess = CounterMetricFamily("nagletrace_stall_excess_seconds",
                                     "Time lost by stalls: what they lasted beyond the way of a prompt ACK.",
                                     labels=labels)
        for values, stalls in sums.items():
            count.add_metric(values, stalls.count)
            excess.add_metric(values, stalls.excess_us / 1e6)
        yield from (count, excess, durations(labels, bounds, sums))


def bounded(value: str) -> str:
    """Returns the value, or of one that is too long the start and a hash, by which it still differs from others."""
    if len(value) <= VALUE_CHARACTERS:
        return value
    return f"{value[:VALUE_CHARACTERS - 17]}…{hashlib.sha256(value.encode()).hexdigest()[:16]}"


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


def cumulative(bounds: list[float], stalls: Stalls) -> list[tuple[str, float]]:
    """Returns the buckets as the exposition wants them: all of them, each with the counts below it, and +Inf."""
    buckets: list[tuple[str, float]] = []
    below = 0
    for bound, alone in zip(bounds, stalls.buckets):
        below += alone
        buckets.append((repr(bound), below))
    return [*buckets, ("+Inf", stalls.count)]


def totals(counted: Totals) -> Iterator[Metric]:
    """Yields the kernel side's counts."""
    yield counters("nagletrace_holds", "Holds of unsent tails, by reason.", "reason", counted.holds)
    yield counters("nagletrace_hold_seconds", "Time that unsent tails were held, by reason.", "reason",
                   counted.hold_us, 1e-6)
    yield counters("nagletrace_hold_releases", "Holds that ended, by release.", "release", counted.releases)
    yield counters("nagletrace_delayed_acks", "Delayed ACKs that their timer sent.", "release",
                   counted.delayed_acks)
    yield counter("nagletrace_writes", "Writes to the sockets that the daemon watches.", counted.writes)
    yield counter("nagletrace_contradicted_stalls", "Waits that look like stalls from one end, which the other end, on "
                  "this host too, contradicts; they are no stalls.", counted.contradicted)


def merged(limits: Limits) -> Iterator[Metric]:
    """Yields what the bounds of the daemon's memory merged."""
    yield counter("nagletrace_folded_stalls", "Stalls counted with comm `other`, since the label sets are bounded.",
                  limits.folded_stalls)
    yield counter("nagletrace_evicted_series", "Label sets that made room for others: idle ones, or those of the user "
                  "who had most.", limits.evicted_series)


def tracer(costs: Costs) -> Iterator[Metric]:
    """Yields what tracing costs, and how the daemon's readers fare."""
    cpu = {"daemon": costs.cpu_us}
    if costs.bpf_cpu_us is not None:  # only with kernel.bpf_stats_enabled
        cpu["bpf"] = costs.bpf_cpu_us
    yield counters("nagletrace_tracer_cpu_seconds", "CPU time that tracing took: the daemon's process, and its BPF "
                   "programs where the kernel keeps statistics.", "part", cpu, 1e-6)
    if costs.share_ppm is not None:  # only with --max-overhead
        yield gauge("nagletrace_tracer_bpf_cpu_ratio", "Share of all CPUs' time that the BPF programs took, as sampled "
                    "last.", costs.share_ppm * 1e-6)
    yield gauge("nagletrace_tracer_resident_memory_max_bytes", "The most memory that the daemon had.",
                costs.max_resident_bytes)
    yield gauge("nagletrace_readers", "Readers connected to the daemon.", costs.readers)
    yield counter("nagletrace_dropped_readers", "Readers sent away: too slow, too silent, too many.",
                  costs.dropped_readers)
    yield counter("nagletrace_skipped_stalls", "Stalls that slow followers did not get.", costs.skipped_stalls)
    if costs.refusals is not None:
        yield counters("nagletrace_refusals", "Connections and requests that the daemon did not serve for lack of "
                       "room, by reason.", "reason", costs.refusals)


def standby(counted: Standby) -> Iterator[Metric]:
    """Yields in which state a daemon with --standby is, and what its looks at the sockets estimate."""
    in_state = {"standby": counted.standby_us, "attached": counted.attached_us}
    if counted.state not in in_state:
        raise BadRecord(f"standby has a state that is none of {', '.join(in_state)}")
    yield gauge("nagletrace_attached", "Whether the hooks are attached now: with --standby, while something stalls.",
                1 if counted.state == "attached" else 0)
    yield gauge("nagletrace_state_start_time_seconds", "When the daemon came into this state, since the epoch.",
                counted.since_us / 1e6)
    yield counters("nagletrace_state_seconds", "Time in which nothing was attached (standby), and in which the hooks "
                   "were.", "state", in_state, 1e-6)
    yield counter("nagletrace_state_changes", "Times that the hooks were attached or detached.", counted.changes)
    yield counter("nagletrace_false_alarms", "Times that the hooks were attached, and no stall came.",
                  counted.false_alarms)
    yield counter("nagletrace_attach_failures", "Times that the hooks could not be attached.",
                  counted.attach_failures)
    yield counter("nagletrace_looks", "Looks at all sockets, with nothing attached.", counted.looks)
    yield counter("nagletrace_look_cpu_seconds", "CPU time of these looks.", counted.look_cpu_us / 1e6)
    yield counter("nagletrace_sampled_excess_seconds", "Time lost by stalls in standby, as looks estimate it; it is "
                  "not in nagletrace_stall_excess_seconds_total.", counted.sampled_excess_us / 1e6)
