# SPDX-License-Identifier: GPL-2.0
"""--otlp.endpoint: hands the daemon's stalls, late ACKs and late holds on to an OTLP receiver, as log records.

One thread follows the daemon's stream and fills a bounded queue, another empties it, so neither the daemon nor a scrape
waits for the receiver. What is dropped is counted by reason. A record may arrive twice: after a request without an
answer nobody knows whether the receiver took it.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from ...client import DaemonError, stream
from ...families import counter, counters, gauge
from ...lines import parse_object
from ...logs import Trouble
from ...records import BadRecord, needed_number, number_of
from .config import Endpoint, OtlpConfigFile
from .queue import Queue
from .receiver import Fate, Outcome, Receiver
from .records import SEVERITY, log_record_of, resource_of

log = logging.getLogger(__name__)

#: The most bytes and values of a record of the stream; one with a stack of 127 frames has some 20 KB.
LINE_BYTES, LINE_VALUES = 256 << 10, 4000
#: A first retry comes within this time, each further one within twice the time of the last.
FIRST_PAUSE_S, MOST_PAUSE_S, MOST_DAEMON_PAUSE_S = 0.5, 30.0, 2.0
#: How long an ending exporter delivers the records that wait: less than Kubernetes and systemd grant.
FLUSH_S = 5.0

#: What the lines of the log begin with.
ABOUT = "--otlp.endpoint: "
#: Why a record is dropped: no room, the receiver refused its batch or rejected it alone, the daemon's line is no
#: record, or the daemon did not hand it on since this program read too slowly.
DROPPED = ("queue_full", "refused", "rejected", "malformed", "skipped")
#: Why a request fails: how far it came.
FAILURES = ("config", "connection", "tls", "timeout", "answer", "status")


class Pauses:
    """Says how long to wait after each failure in a row: twice as long as before, up to a bound, and never in step with
    the exporters of other hosts."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._next = FIRST_PAUSE_S

    def next(self, least_s: float = 0.0) -> float:
        pause, self._next = self._next, min(2 * self._next, self._most_s)
        return max(least_s, pause / 2) + random.uniform(0.0, pause / 2)  # noqa: S311

    def reset(self) -> None:
        self._next = FIRST_PAUSE_S


class Carrier(Collector):
    """Owns both threads and the queue, and counts what they do."""

    def __init__(self, socket: Path, endpoint: Endpoint, config: OtlpConfigFile, resource: dict[str, str],
                 max_records: int, max_bytes: int) -> None:
        self._socket = socket
        self._resource = resource
        self._queue = Queue(max_records, max_bytes)
        self._receiver = Receiver(endpoint, config)
        self._stop = threading.Event()
        self._flush_until = math.inf
        self._lock = threading.Lock()
        self._delivered = 0
        self._dropped: Counter[str] = Counter(dict.fromkeys(DROPPED, 0))
        self._failures: Counter[str] = Counter(dict.fromkeys(FAILURES, 0))
        self._following = False
        #: the daemon of the last stream, and the last number of it that came
        self._daemon: tuple[object, object] = (None, None)
        self._number = 0
        self._threads = [threading.Thread(target=work, name=name, daemon=True)
                         for name, work in (("otlp-follow", self._follow), ("otlp-deliver", self._deliver))]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Follows no longer, and delivers what waits, for FLUSH_S at most."""
        self._flush_until = time.monotonic() + FLUSH_S
        self._stop.set()
        for thread in self._threads:
            thread.join(max(0.0, self._flush_until - time.monotonic()))
        records, _ = self._queue.size()
        if records:
            log.warning("--otlp.endpoint: %d records were not delivered before the end", records)

    # ---- the daemon's side ----

    def _follow(self) -> None:
        pauses, trouble = Pauses(MOST_DAEMON_PAUSE_S), Trouble("the daemon streams again", ABOUT)
        while not self._stop.is_set():
            try:
                resource = b""
                for line in stream(self._socket, math.inf, self._stop, LINE_BYTES):
                    resource = self._take(line, resource)
                    if resource and not self._following:
                        self._following = True
                        pauses.reset()
                        trouble.end()
                why = "the daemon closed the stream"
            except DaemonError as error:
                why = str(error)
            except Exception as error:  # whatever it is, the next stream may be right
                why = repr(error)
            self._following = False
            if not self._stop.is_set():
                trouble.tell(f"nothing to hand on: {why}")
                self._stop.wait(pauses.next())
        self._queue.close()

    def _take(self, line: bytes, resource: bytes) -> bytes:
        """Queues a record. Returns the resource of those that follow."""
        try:
            record: dict[str, Any] = parse_object(line, LINE_BYTES, LINE_VALUES)
            kind = record.get("type")
            if kind == "streaming":
                self._begin(record)
                return resource_of(record, self._resource)
            if kind == "skipped":
                skipped = needed_number(record, "stalls") + (number_of(record, "others") or 0)
                self._drop("skipped", skipped)
                self._number += skipped
            elif kind in SEVERITY:
                if not resource:
                    raise BadRecord("a record before the stream's start")
                self._number = number_of(record, "number") or self._number
                if not self._queue.put(resource, log_record_of(record, time.time_ns())):
                    self._drop("queue_full", 1)
            elif not isinstance(kind, str):
                raise BadRecord("no object with a type")
        except BadRecord as error:
            self._drop("malformed", 1)
            log.debug("--otlp.endpoint: the daemon's line is malformed: %s", error)
        return resource

    def _begin(self, streaming: dict[str, Any]) -> None:
        """Counts what the same daemon reported since the stream before."""
        daemon, number = (streaming.get("boot_id"), streaming.get("started")), number_of(streaming, "number") or 0
        if daemon == self._daemon and None not in daemon and number > self._number:
            self._drop("skipped", number - self._number)
        self._daemon, self._number = daemon, number

    # ---- the receiver's side ----

    def _deliver(self) -> None:
        pauses, trouble = Pauses(MOST_PAUSE_S), Trouble("the receiver takes records again", ABOUT)
        while time.monotonic() < self._flush_until:
            batch = self._queue.first(1.0)
            if batch is None:
                if self._queue.closed:
                    break
                continue
            try:
                outcome = self._receiver.post(batch)
            except Exception as error:  # whatever it is, the thread stays, and the batch too
                outcome = Outcome(Fate.RETRY, "answer", repr(error))
            self._count(outcome, batch.records)
            if outcome.what:
                trouble.tell(outcome.what)
            else:
                trouble.end()
            if outcome.fate is Fate.RETRY:
                self._pause(pauses.next(outcome.retry_after_s))
            else:
                self._queue.drop_first()
                pauses.reset()
        self._receiver.close()

    def _pause(self, seconds: float) -> None:
        """Waits; the exporter's end cuts it short once, for the last attempts."""
        if self._stop.is_set():
            time.sleep(max(0.0, min(seconds, self._flush_until - time.monotonic())))
        else:
            self._stop.wait(seconds)

    # ---- what is counted ----

    def _drop(self, reason: str, records: int) -> None:
        with self._lock:
            self._dropped[reason] += records

    def _count(self, outcome: Outcome, records: int) -> None:
        with self._lock:
            if outcome.failure:
                self._failures[outcome.failure] += 1
            if outcome.fate is Fate.DELIVERED:
                self._delivered += records - outcome.rejected
                self._dropped["rejected"] += outcome.rejected
            elif outcome.fate is Fate.REFUSED:
                self._dropped["refused"] += records

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            delivered, dropped, failures = self._delivered, dict(self._dropped), dict(self._failures)
        records, size = self._queue.size()
        yield counter("nagletrace_otlp_delivered_records", "Records that the receiver of --otlp.endpoint took.",
                      delivered)
        yield counters("nagletrace_otlp_dropped_records", "Records that the receiver of --otlp.endpoint will not get, "
                       "by reason.", "reason", dropped)
        yield counters("nagletrace_otlp_failed_requests", "Requests to --otlp.endpoint that failed, by reason; all but "
                       "refusals are tried again.", "reason", failures)
        yield gauge("nagletrace_otlp_queued_records", "Records that wait for the receiver.", records)
        yield gauge("nagletrace_otlp_queued_bytes", "What these records take, packed.", size)
        yield gauge("nagletrace_otlp_following", "Whether the daemon streams to this exporter.", int(self._following))
