# SPDX-License-Identifier: GPL-2.0
"""The queue of --otlp.endpoint: records that wait for the receiver, in batches, bounded in number and in bytes.

Batches that wait are packed as they will be posted, so that hours of a receiver's outage fit into some MB.
"""

from __future__ import annotations

import gzip
import threading
import time
from collections import deque
from typing import NamedTuple

#: The most records of a batch, and bytes before it is packed. Receivers take requests of some MB.
BATCH_RECORDS, BATCH_BYTES = 512, 1 << 20
#: The longest time that a record waits for others to share its batch, if the receiver takes what it gets.
BATCH_S = 1.0

SCOPE = b'"scope":{"name":"nagletrace"}'


class Batch(NamedTuple):
    """A request's body, packed by gzip, and how many records it has."""

    body: bytes
    records: int


def pack(resource: bytes, records: list[bytes]) -> Batch:
    plain = (b'{"resourceLogs":[{"resource":' + resource + b',"scopeLogs":[{' + SCOPE + b',"logRecords":['
             + b",".join(records) + b"]}]}]}")
    return Batch(gzip.compress(plain, compresslevel=1), len(records))


class Queue:
    """One thread puts records in, another takes batches out: it asks for the first, and drops it once it is done."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._packed: deque[Batch] = deque()
        #: what is not packed yet: the records' resource, and when the first of them came
        self._open: list[bytes] = []
        self._resource = b""
        self._since = 0.0
        self.closed = False
        self._records = self._bytes = self._open_bytes = 0

    def size(self) -> tuple[int, int]:
        """Returns how many records and bytes wait."""
        with self._changed:
            return self._records, self._bytes + self._open_bytes

    def put(self, resource: bytes, record: bytes) -> bool:
        """Returns False if there is no room for the record."""
        with self._changed:
            if self._open and (resource != self._resource or len(self._open) == BATCH_RECORDS
                               or self._open_bytes + len(record) > BATCH_BYTES):
                self._pack()
            if self._records == self._max_records or self._bytes + self._open_bytes + len(record) > self._max_bytes:
                return False
            if not self._open:
                self._resource, self._since = resource, time.monotonic()
                self._changed.notify_all()
            self._open.append(record)
            self._open_bytes += len(record)
            self._records += 1
            return True

    def first(self, wait_s: float) -> Batch | None:
        """Returns the first batch once it is whole or old enough; None if there is none within that time."""
        deadline = time.monotonic() + wait_s
        with self._changed:
            while not self._packed:
                now = time.monotonic()
                if self._open and (self.closed or now >= self._since + BATCH_S):
                    self._pack()
                    break
                if now >= deadline or self.closed:
                    return None
                self._changed.wait(max(0.0, min(deadline, self._since + BATCH_S) - now if self._open
                                       else deadline - now))
            return self._packed[0]

    def drop_first(self) -> None:
        """Forgets the first batch: the receiver has it, or will never take it."""
        with self._changed:
            batch = self._packed.popleft()
            self._records -= batch.records
            self._bytes -= len(batch.body)

    def close(self) -> None:
        """Says that no record will follow, so nothing that waits needs to wait for others."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def _pack(self) -> None:
        batch = pack(self._resource, self._open)
        self._packed.append(batch)
        self._bytes += len(batch.body)
        self._open, self._open_bytes = [], 0
        self._changed.notify_all()
