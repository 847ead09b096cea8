# SPDX-License-Identifier: GPL-2.0
"""Lays the parts of a ladder out on a drawing, in which time runs down between two life lines: to scale, but where so
much happens in so little time that all would lie on one spot. A ladder over loopback ends so: an ACK, the held segment
and the reply within 100 us of the 40 ms.

The drawing is as wide as a telephone's screen, so that its text is readable there. templates/ladder.svg writes it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from ...units import milliseconds, milliseconds_short, round_numbers, signed
from .from_record import RECEIVER, SENDER, Ladder, Span

WIDTH = 384
#: From left to right stand the scale, the sender's marks, its life line, the receiver's life line, and its marks.
SCALE_X, SENDER_X, RECEIVER_X = 42, 134, 288
TOP, LENGTH = 58, 320
BAR = 11
LINE = 14
#: Segments that leave and arrive within the first part of the whole time cannot be told apart to scale: they are a
#: crowd, which ends where nothing happens for the second part.
CROWDED, APART = 1 / 25, 1 / 100
#: The height from one moment of a crowd to the next, and the most that all of them together add to the drawing.
STEP, MAX_STEPS = 17, 272
#: A label that would have to stand further from its arrow stands in the table only.
MAX_SHIFT = 22
NAME = 20


@dataclass(frozen=True)
class Text:
    x: float
    y: float
    anchor: str
    text: str
    kind: str = ""


@dataclass(frozen=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    kind: str
    measured: bool


@dataclass(frozen=True)
class Line:
    x1: float
    y1: float
    x2: float
    y2: float
    kind: str
    measured: bool
    head: str


@dataclass(frozen=True)
class Band:
    """Where a crowd is drawn. `us` is the time that it took."""

    y: float
    height: float
    us: int


@dataclass
class Drawing:
    """All parts, in the units of the drawing."""

    height: float
    width: int = WIDTH
    scale_x: int = SCALE_X
    sender_x: int = SENDER_X
    receiver_x: int = RECEIVER_X
    bands: list[Band] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    ticks: list[float] = field(default_factory=list)
    scale: list[Text] = field(default_factory=list)
    labels: list[Text] = field(default_factory=list)
    #: arrows whose label found no room
    unlabelled: int = 0


def crowds_of(ladder: Ladder, length: int) -> list[list[int]]:
    """Returns the moments of each crowd, in order."""
    crowds: list[list[int]] = []
    for at in sorted({t for a in ladder.arrows for t in (a.depart, a.arrive)} | {mark.at for mark in ladder.marks}):
        if crowds and at - crowds[-1][0] <= length * CROWDED and at - crowds[-1][-1] <= length * APART:
            crowds[-1].append(at)
        else:
            crowds.append([at])
    return [crowd for crowd in crowds if len(crowd) > 1 and sum(
        crowd[0] <= arrow.depart and arrow.arrive <= crowd[-1] for arrow in ladder.arrows) > 1]


class Scale:
    """Maps time to the drawing: to scale, and the moments of a crowd in order, evenly apart. Both ends have room for
    the parts beside them."""

    def __init__(self, ladder: Ladder) -> None:
        self.begin, finish = ladder.range()
        self.length = max(1, finish - self.begin)
        self.crowds = crowds_of(ladder, self.length)
        step = min(STEP, MAX_STEPS / max(1, sum(map(len, self.crowds))))
        #: moments, and where they are
        self.moments, self.places = [self.begin], [TOP + 14.0]
        for crowd in self.crowds:
            self._to(crowd[0])
            for at in crowd[1:]:
                self._add(at, step)
        self._to(self.begin + self.length)

    def _to(self, at: int) -> None:
        if at > self.moments[-1]:
            self._add(at, (at - self.moments[-1]) / self.length * (LENGTH - 28))

    def _add(self, at: int, height: float) -> None:
        self.moments.append(at)
        self.places.append(self.places[-1] + height)

    @property
    def bottom(self) -> float:
        """Returns the end of the life lines."""
        return round(self.places[-1] + 14, 2)

    def y(self, at: int) -> float:
        next_ = bisect_right(self.moments, at, 1, len(self.moments) - 1)
        before, after = self.moments[next_ - 1], self.moments[next_]
        low, high = self.places[next_ - 1], self.places[next_]
        return round(low + (at - before) / (after - before) * (high - low), 2)

    def ticks(self) -> list[int]:
        """Returns some six round moments, among them the beginning (0). No other is within a crowd."""
        step = next(step for step in round_numbers() if self.length / step <= 6)
        first = -(-self.begin // step)
        moments = [n * step for n in range(first, (self.begin + self.length) // step + 1)]
        return [at for at in moments if not at or not any(crowd[0] < at <= crowd[-1] for crowd in self.crowds)]


class Labels:
    """Places texts in one column so that none covers another."""

    def __init__(self, bottom: float = TOP + LENGTH) -> None:
        self.bottom = bottom
        self.taken: list[tuple[float, float]] = []

    def place(self, wanted: float, height: float = LINE, shift: float = MAX_SHIFT) -> float | None:
        """Returns the free place for the middle of a text that is nearest to the wanted one, or None."""
        for distance in range(0, int(shift) + 1, 2):
            for middle in (wanted - distance, wanted + distance):
                top, bottom = middle - height / 2, middle + height / 2
                if top > TOP - 12 and bottom < self.bottom + 18 and not any(
                        top < other_bottom and bottom > other_top for other_top, other_bottom in self.taken):
                    self.taken.append((top, bottom))
                    return middle
        return None


def draw(ladder: Ladder) -> Drawing:
    scale = Scale(ladder)
    drawing = Drawing(scale.bottom + 20)
    column = Labels(scale.bottom)
    for tick in scale.ticks():
        drawing.ticks.append(scale.y(tick))
        column.place(scale.y(tick), 12, 0)
        drawing.scale.append(Text(SCALE_X, scale.y(tick) + 4, "end", signed(tick, milliseconds_short)))
    for crowd in scale.crowds:
        y, bottom, us = scale.y(crowd[0]), scale.y(crowd[-1]), crowd[-1] - crowd[0]
        drawing.bands.append(Band(y, round(bottom - y, 2), us))
        place = column.place(round((y + bottom) / 2, 2), 12)
        if place is not None:
            drawing.scale.append(Text(SCALE_X, place + 4, "end", milliseconds(us)))
    for end, x in ((SENDER, SENDER_X), (RECEIVER, RECEIVER_X)):
        drawing.labels.append(Text(x, 16, "middle", end.capitalize(), "end"))
        drawing.labels.append(Text(x, 32, "middle", short(name_of(ladder, end)), "name"))
    labels = Labels(scale.bottom)
    draw_arrows(ladder, drawing, scale, labels)
    draw_spans(ladder, drawing, scale, labels)
    draw_marks(ladder, drawing, scale)
    return drawing


def name_of(ladder: Ladder, end: str) -> str:
    if end == ladder.stall.side:
        return ladder.stall.process.name()
    return ladder.stall.peer.name() if ladder.stall.peer else ladder.stall.socket.remote


def short(text: str) -> str:
    return text if len(text) <= NAME else text[:NAME - 1] + "…"


def draw_arrows(ladder: Ladder, drawing: Drawing, scale: Scale, labels: Labels) -> None:
    for arrow in ladder.arrows:
        x1, x2 = (SENDER_X, RECEIVER_X) if arrow.origin == SENDER else (RECEIVER_X, SENDER_X)
        y1, y2 = scale.y(arrow.depart), scale.y(arrow.arrive)
        back = -8 if x2 > x1 else 8
        head = f"{x2},{y2} {x2 + back},{y2 - 4} {x2 + back},{y2 + 4}"
        drawing.lines.append(Line(x1, y1, x2, y2, arrow.kind, arrow.measured, head))
    for arrow in ladder.arrows:
        # Labels stand above the line until the hold ends and below it from then on. So they part where an ACK arrives
        # and releases data.
        middle = (scale.y(arrow.depart) + scale.y(arrow.arrive)) / 2
        after = arrow.kind == "held" or (arrow.kind == "data" and arrow.depart >= ladder.stall.duration_us > 0)
        place = labels.place(middle + (11 if after else -10))
        if place is None:
            drawing.unlabelled += 1
            continue
        drawing.labels.append(Text((SENDER_X + RECEIVER_X) / 2, place + 4, "middle", arrow.label, arrow.kind))


def draw_spans(ladder: Ladder, drawing: Drawing, scale: Scale, labels: Labels) -> None:
    """Draws each bar outside of its life line, and its text inside, where there is room."""
    for span in ladder.spans:
        y, height = scale.y(span.begin), max(2.0, round(scale.y(span.finish) - scale.y(span.begin), 2))
        x = SENDER_X - BAR - 3 if span.end == SENDER else RECEIVER_X + 3
        drawing.bars.append(Bar(x, y, BAR, height, span.kind, span.basis != "inferred"))
    for span in ladder.spans:
        place_span(span, drawing, scale, labels)


def place_span(span: Span, drawing: Drawing, scale: Scale, labels: Labels) -> None:
    y, height = scale.y(span.begin), scale.y(span.finish) - scale.y(span.begin)
    share = 1 / 3 if span.end == SENDER else 2 / 3
    tall = len(span.lines) * LINE + 2
    middle = labels.place(y + height * share, tall, max(height / 2, MAX_SHIFT))
    if middle is None:
        drawing.unlabelled += 1
        return
    x, anchor = (SENDER_X + 6, "start") if span.end == SENDER else (RECEIVER_X - 6, "end")
    for number, line in enumerate(span.lines):
        drawing.labels.append(Text(x, round(middle - tall / 2 + (number + 1) * LINE - 2, 2), anchor, line, span.kind))


def draw_marks(ladder: Ladder, drawing: Drawing, scale: Scale) -> None:
    """Writes what the applications and the timer do, in small texts outside of the bars."""
    columns = {SENDER: (SENDER_X - BAR - 7, "end", Labels(scale.bottom)),
               RECEIVER: (RECEIVER_X + BAR + 7, "start", Labels(scale.bottom))}
    for mark in ladder.marks:
        x, anchor, column = columns[mark.end]
        place = column.place(scale.y(mark.at), 12, 14)
        if place is None:
            drawing.unlabelled += 1
        else:
            drawing.labels.append(Text(x, place + 4, anchor, mark.label, "mark"))
