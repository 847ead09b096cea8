# SPDX-License-Identifier: GPL-2.0
"""Chooses the stalls to draw as ladders, with the events around them, while the recording goes by."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from ...recording import Record
from ...records import Event, Snapshot, Socket, Stall, Start

#: The most kinds of stalls, by cause, reason, side, evidence and pattern. The schema has fewer.
MAX_KINDS = 64
#: The most connections whose last events are kept, and the most events of each.
MAX_CONNECTIONS = 512
EVENTS_BEFORE = 160
#: The most events that are kept of all connections together; each takes up to 3 KB.
MAX_EVENTS = 40_000
EVENTS_AFTER = 40
#: The most stalls of one connection that wait for the events after them.
MAX_WAITING = 32
#: The most stalls of all connections that wait.
MAX_ALL_WAITING = 256


@dataclass
class Chosen:
    """A stall with the recorded events of its connection around it, in order of time."""

    stall: Stall
    events: list[Event] = field(default_factory=list)
    #: events up to this time belong to the stall
    until_us: int = 0
    #: there were too many events, so the oldest are missing
    cut: bool = False
    room: int = EVENTS_AFTER


def around_us(stall: Stall) -> int:
    """Returns how much time before and after a stall its ladder shows."""
    return max(stall.duration_us // 8, 3 * (stall.min_rtt_us or 0), 100)


class LastEvents:
    """Keeps the last events of the connections that had an event most recently."""

    def __init__(self) -> None:
        self._events: OrderedDict[int, deque[Event]] = OrderedDict()
        self._numbers: dict[Socket, int] = {}
        self._count = 0

    def add(self, event: Event) -> None:
        events = self._events.get(event.connection)
        if events is None:
            events = self._events[event.connection] = deque(maxlen=EVENTS_BEFORE)
        self._events.move_to_end(event.connection)
        self._numbers[event.socket] = event.connection
        self._count += len(events) < EVENTS_BEFORE
        events.append(event)
        while len(self._events) > MAX_CONNECTIONS or self._count > MAX_EVENTS:
            gone, its = self._events.popitem(last=False)
            self._count -= len(its)
            self._numbers = {socket: number for socket, number in self._numbers.items() if number != gone}
        if len(self._numbers) > 4 * MAX_CONNECTIONS:  # a connection has two ends, but this recording gives one many
            self._numbers = {event.socket: event.connection}

    def number_of(self, socket: Socket) -> int | None:
        """Returns the number of the connection that had this end last."""
        return self._numbers.get(socket)

    def around(self, stall: Stall) -> tuple[list[Event], bool]:
        events = self._events.get(self._numbers.get(stall.socket, -1), deque())
        since = stall.time_us - stall.duration_us - stall.duration_us // 2 - around_us(stall)
        kept = [event for event in events if since <= event.time_us <= stall.time_us + around_us(stall)]
        return kept, len(events) == EVENTS_BEFORE and len(kept) == len(events)


class Chooser:
    """Chooses the stall of each kind that lost most, then stalls of other connections. Those with events come first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.events = LastEvents()
        self._by_kind: dict[Hashable, Chosen] = {}
        self._longest: list[Chosen] = []
        #: the stalls that wait for events after their end, by connection
        self._open: dict[int, list[Chosen]] = {}

    def add(self, record: Record | Snapshot) -> None:
        if not self.most:
            return
        if isinstance(record, Event):
            self._add_event(record)
        elif isinstance(record, Stall):
            self._add_stall(record)
        elif isinstance(record, Start):  # the new trace numbers its connections anew
            self.events = LastEvents()
            self._open = {}

    def _add_event(self, event: Event) -> None:
        self.events.add(event)
        waiting = self._open.get(event.connection)
        if not waiting:
            return
        for chosen in waiting:
            if event.time_us <= chosen.until_us and chosen.room:
                chosen.events.append(event)
                chosen.room -= 1
        self._open[event.connection] = [chosen for chosen in waiting
                                        if event.time_us <= chosen.until_us and chosen.room]
        if not self._open[event.connection]:
            del self._open[event.connection]

    def _add_stall(self, stall: Stall) -> None:
        number = self.events.number_of(stall.socket)
        rank = (number is not None, stall.excess_us)
        kind = (stall.why, stall.side, stall.evidence, stall.pattern, stall.hold is None, stall.pending_ack is None)
        best = self._by_kind.get(kind)
        best_of_kind = rank > rank_of(best) if best else len(self._by_kind) < MAX_KINDS
        among_longest = len(self._longest) < self.most or rank > rank_of(self._longest[-1])
        if not best_of_kind and not among_longest:
            return
        chosen = Chosen(stall)
        chosen.until_us = stall.time_us + around_us(stall)
        chosen.events, chosen.cut = self.events.around(stall)
        if best_of_kind:
            self._by_kind[kind] = chosen
        if among_longest:
            self._longest = sorted([*self._longest, chosen], key=rank_of, reverse=True)[:self.most]
        if number is not None:
            waiting = self._open.setdefault(number, [])
            waiting.append(chosen)
            del waiting[:-MAX_WAITING]
            if sum(map(len, self._open.values())) > MAX_ALL_WAITING:
                self._close()

    def _close(self) -> None:
        """Forgets the stalls that greater ones have replaced."""
        still = {id(chosen) for chosen in (*self._by_kind.values(), *self._longest)}
        left = {number: [chosen for chosen in waiting if id(chosen) in still] for number, waiting in self._open.items()}
        self._open = {number: waiting for number, waiting in left.items() if waiting}

    def chosen(self) -> list[Chosen]:
        """Returns the stalls to draw: the greatest of each kind first, then at most one of each other connection."""
        made = sorted(self._by_kind.values(), key=rank_of, reverse=True)
        for candidate in self._longest:
            if not any(candidate.stall.socket == other.stall.socket for other in made):
                made.append(candidate)
        return made[:self.most]


def rank_of(chosen: Chosen) -> tuple[bool, int]:
    return bool(chosen.events), chosen.stall.excess_us
