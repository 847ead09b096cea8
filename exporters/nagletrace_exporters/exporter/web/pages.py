# SPDX-License-Identifier: GPL-2.0
"""Makes the exporter's pages: /metrics, a landing page, /-/healthy."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

PLAIN = "text/plain; charset=utf-8"

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


class Wanted(NamedTuple):
    """Names one of the four shapes in which clients take an answer. No other header changes the answer."""

    openmetrics: bool
    gzip: bool


class Answer(NamedTuple):
    body: bytes
    content_type: str
    gzip: bool = False


def packed(body: bytes) -> bytes:
    return gzip.compress(body, compresslevel=1)


class Gathered:
    """Poses as a registry for an encoder, and has families that were gathered before."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


class Scrapes:
    """Makes the text of metrics in rounds. Clients that ask during a round share the next: many cost as much as one.

    A scrape waits at most for the round in progress and its own. In a crowd it does not wait, but for the first answer.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._thread = ThreadPoolExecutor(1)
        self._waiting: dict[Wanted, asyncio.Future[Answer]] = {}
        #: those of the round in progress, and when it began
        self._making: dict[Wanted, asyncio.Future[Answer]] = {}
        self._began = 0.0
        #: answers that may serve again, and when their round began
        self._made: dict[Wanted, tuple[float, Answer]] = {}
        self._rounds: asyncio.Task[None] | None = None

    async def answer(self, wanted: Wanted, age_s: float) -> Answer:
        """Returns the exposition, gathered after the call or at most `age_s` before it.

        When half of that has passed, a round begins that renews it, while clients still get the older one.
        """
        now = time.monotonic()
        self._made = {shape: (began, answer) for shape, (began, answer) in self._made.items() if began > now - age_s}
        began, made = self._made.get(wanted, (0.0, None))
        if made and began > now - age_s / 2:
            return made
        future = self._making.get(wanted) if self._began > now - age_s else None
        if future is None:
            future = self._waiting.setdefault(wanted, asyncio.get_running_loop().create_future())
            if self._rounds is None or self._rounds.done():
                self._rounds = asyncio.get_running_loop().create_task(self._make_all())
        return made if made else await asyncio.shield(future)

    async def _make_all(self) -> None:
        while self._waiting:
            self._making, self._waiting = self._waiting, {}
            self._began = time.monotonic()
            try:
                made = await asyncio.get_running_loop().run_in_executor(self._thread, self._make, list(self._making))
            except Exception as error:
                for future in self._making.values():
                    future.set_exception(error)
                    future.exception()  # asyncio would report that nobody waited for it
            else:
                self._made.update({wanted: (self._began, answer) for wanted, answer in made.items()})
                for wanted, future in self._making.items():
                    future.set_result(made[wanted])
            self._making = {}

    def _make(self, all_wanted: list[Wanted]) -> dict[Wanted, Answer]:
        gathered = Gathered(self._registry.collect())
        made: dict[Wanted, Answer] = {}
        for openmetrics in {wanted.openmetrics for wanted in all_wanted}:
            encoder, content_type = choose_encoder("application/openmetrics-text; version=1.0.0" if openmetrics else "")
            plain = encoder(gathered)  # type: ignore[arg-type]
            for wanted in all_wanted:
                if wanted.openmetrics == openmetrics:
                    made[wanted] = Answer(packed(plain) if wanted.gzip else plain, content_type, wanted.gzip)
        return made


class Fixed:
    """Serves a page that never changes."""

    def __init__(self, body: bytes, content_type: str) -> None:
        self._plain = Answer(body, content_type)
        self._packed = Answer(packed(body), content_type, True)

    async def answer(self, wanted: Wanted, _age_s: float) -> Answer:
        return self._packed if wanted.gzip else self._plain
