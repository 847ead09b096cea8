# SPDX-License-Identifier: GPL-2.0
"""Chooses the stalls that are drawn as ladders while the recording goes by, with the events around them."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from .recording import Record
from .records import Event, Snapshot, Socket, Stall, Start

#: Kinds of stalls that are told apart: cause, side, evidence and pattern, of which the schema has fewer.
MAX_KINDS = 64
#: Connections whose last events are kept, and how many of each.
MAX_CONNECTIONS = 512
EVENTS_BEFORE = 160
EVENTS_AFTER = 40
#: Stalls of one connection that wait for what comes after them.
MAX_WAITING = 32


@dataclass
class Chosen:
    """A stall and what is recorded of its connection around it, in order of time."""

    stall: Stall
    events: list[Event] = field(default_factory=list)
    #: events that come later belong here up to this time
    until_us: int = 0
    #: the oldest events were let go, since there were too many
    cut: bool = False
    room: int = EVENTS_AFTER


def around_us(stall: Stall) -> int:
    """How much before and after a stall is shown with it."""
    return max(stall.duration_us // 8, 3 * (stall.min_rtt_us or 0), 100)


class LastEvents:
    """The last events of the connections that had one most recently."""

    def __init__(self) -> None:
        self._events: OrderedDict[int, deque[Event]] = OrderedDict()
        self._numbers: dict[Socket, int] = {}

    def add(self, event: Event) -> None:
        events = self._events.get(event.connection)
        if events is None:
            events = self._events[event.connection] = deque(maxlen=EVENTS_BEFORE)
            if len(self._events) > MAX_CONNECTIONS:
                gone, _ = self._events.popitem(last=False)
                self._numbers = {socket: number for socket, number in self._numbers.items() if number != gone}
        self._events.move_to_end(event.connection)
        self._numbers[event.socket] = event.connection
        events.append(event)

    def number_of(self, socket: Socket) -> int | None:
        """The number of the connection that has this end, as it was last seen."""
        return self._numbers.get(socket)

    def around(self, stall: Stall) -> tuple[list[Event], bool]:
        events = self._events.get(self._numbers.get(stall.socket, -1), deque())
        since = stall.time_us - stall.duration_us - stall.duration_us // 2 - around_us(stall)
        kept = [event for event in events if since <= event.time_us <= stall.time_us + around_us(stall)]
        return kept, len(events) == EVENTS_BEFORE and len(kept) == len(events)


class Chooser:
    """The stall of each kind that lost most, then of other connections; one with its events before one without."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.events = LastEvents()
        self._by_kind: dict[Hashable, Chosen] = {}
        self._longest: list[Chosen] = []
        #: those that wait for events after their end, by connection
        self._open: dict[int, list[Chosen]] = {}

    def add(self, record: Record | Snapshot) -> None:
        if not self.most:
            return
        if isinstance(record, Event):
            self._add_event(record)
        elif isinstance(record, Stall):
            self._add_stall(record)
        elif isinstance(record, Start):  # connections are numbered anew
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
        kind = (stall.cause, stall.side, stall.evidence, stall.pattern, stall.hold is None, stall.pending_ack is None)
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
            while len(self._open) > MAX_CONNECTIONS:
                del self._open[next(iter(self._open))]

    def chosen(self) -> list[Chosen]:
        """Those to draw, the greatest loss of each kind first; besides these, none of a connection that has one."""
        made = sorted(self._by_kind.values(), key=rank_of, reverse=True)
        for candidate in self._longest:
            if not any(candidate.stall.socket == other.stall.socket for other in made):
                made.append(candidate)
        return made[:self.most]


def rank_of(chosen: Chosen) -> tuple[bool, int]:
    return bool(chosen.events), chosen.stall.excess_us
