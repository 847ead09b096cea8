# SPDX-License-Identifier: GPL-2.0
"""Makes the exporter's pages: /metrics, a landing page, /-/healthy."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

PLAIN = "text/plain; charset=utf-8"
#: The kernel gets an answer in parts of this size.
PART_BYTES = 32 * 1024
#: We unpack so much at a time: zlib keeps what it has not unpacked yet, for each reader.
PACKED_BYTES = 4096

PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>nagletrace exporter</title>
<style>body {{ font-family: sans-serif; margin: 2rem; max-width: 40rem; color-scheme: light dark }}</style></head>
<body>
<h1>nagletrace exporter</h1>
<p>Version {version}. Time that TCP connections lose to Nagle's algorithm and delayed ACKs, as the nagletrace daemon
at <code>{socket}</code> sees it.</p>
<ul><li><a href="{path}">Metrics</a></li><li><a href="/-/healthy">Health</a> of this exporter</li></ul>
</body>
</html>
"""


class Answer(NamedTuple):
    """Holds a page compressed, since slow readers keep many: the metrics of 1000 label sets have 2.7 MB, or 100 KB."""

    packed: bytes
    plain_bytes: int
    content_type: str

    @classmethod
    def of(cls, body: bytes, content_type: str) -> Answer:
        return cls(gzip.compress(body, compresslevel=1), len(body), content_type)

    def bytes_as(self, packed: bool) -> int:
        return len(self.packed) if packed else self.plain_bytes

    def parts(self, packed: bool) -> Iterator[bytes]:
        """Yields the body part by part. A client that takes a part makes progress."""
        if packed:
            yield from (self.packed[at:at + PART_BYTES] for at in range(0, len(self.packed), PART_BYTES))
            return
        unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)  # 16: with gzip's head
        for at in range(0, len(self.packed), PACKED_BYTES):
            rest = self.packed[at:at + PACKED_BYTES]
            while part := unpacker.decompress(rest, PART_BYTES):
                rest = unpacker.unconsumed_tail
                yield part


class Scrapes:
    """Makes the text of metrics in rounds. Clients that ask during a round share the next: many cost as much as one.

    A scrape waits at most for the round in progress and its own. In a crowd it does not wait, but for the first answer.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._thread = ThreadPoolExecutor(1)
        #: by whether the client wants OpenMetrics
        self._waiting: dict[bool, asyncio.Future[Answer]] = {}
        #: those of the round in progress, and when it began
        self._making: dict[bool, asyncio.Future[Answer]] = {}
        self._began = 0.0
        #: answers that may serve again, and when their round began
        self._made: dict[bool, tuple[float, Answer]] = {}
        self._rounds: asyncio.Task[None] | None = None

    async def answer(self, openmetrics: bool, age_s: float) -> Answer:
        """Returns the exposition, gathered after the call or at most `age_s` before it.

        When half of that has passed, a round begins that renews it, while clients still get the older one.
        """
        now = time.monotonic()
        self._made = {kind: (began, answer) for kind, (began, answer) in self._made.items() if began > now - age_s}
        began, made = self._made.get(openmetrics, (0.0, None))
        if made and began > now - age_s / 2:
            return made
        future = self._making.get(openmetrics) if self._began > now - age_s else None
        if future is None:
            future = self._waiting.setdefault(openmetrics, asyncio.get_running_loop().create_future())
            if self._rounds is None or self._rounds.done():
                self._rounds = asyncio.get_running_loop().create_task(self._make_all())
        return made if made else await asyncio.shield(future)

    async def _make_all(self) -> None:
        while self._waiting:
            self._making, self._waiting = self._waiting, {}
            self._began = time.monotonic()
            try:
                made = await asyncio.get_running_loop().run_in_executor(self._thread, self._make, set(self._making))
            except Exception as error:
                for future in self._making.values():
                    future.set_exception(error)
                    future.exception()  # asyncio would report that nobody waited for it
            else:
                self._made.update({kind: (self._began, answer) for kind, answer in made.items()})
                for kind, future in self._making.items():
                    future.set_result(made[kind])
            self._making = {}

    def _make(self, kinds: set[bool]) -> dict[bool, Answer]:
        families = list(self._registry.collect())
        gathered: Any = SimpleNamespace(collect=lambda: families)  # an encoder asks a registry for nothing else
        made: dict[bool, Answer] = {}
        for openmetrics in kinds:
            encoder, content_type = choose_encoder("application/openmetrics-text; version=1.0.0" if openmetrics else "")
            made[openmetrics] = Answer.of(encoder(gathered), content_type)
        return made


class Fixed:
    """Serves a page that never changes."""

    def __init__(self, body: bytes, content_type: str) -> None:
        self._answer = Answer.of(body, content_type)

    async def answer(self, _openmetrics: bool, _age_s: float) -> Answer:
        return self._answer
