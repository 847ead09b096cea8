# SPDX-License-Identifier: GPL-2.0
"""Lays out a flame graph: places are percents of its width, and the outermost call is on top."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from ..units import milliseconds
from .stacks import Stack

ALL = "all"
ROW = 19
#: We leave out frames narrower than this many percent: a tenth of a pixel, before one zooms in.
MIN_PERCENT = 0.01
#: More elements make browsers slow, so we draw the widest.
MAX_FRAMES = 8000


@dataclass
class Node:
    """A call with its inner calls."""

    name: str
    us: int = 0
    calls: dict[str, Node] = field(default_factory=dict)


@dataclass(frozen=True)
class FrameBox:
    """One frame. x and width are percents; the colour separates frames and means nothing."""

    name: str
    x: float
    width: float
    depth: int
    label: str
    colour: str

    @property
    def y(self) -> int:
        return self.depth * ROW


@dataclass
class Flame:
    frames: list[FrameBox]
    depth: int
    total_us: int
    left_out: int

    @property
    def height(self) -> int:
        return (self.depth + 1) * ROW


def tree(stacks: dict[Stack, int]) -> Node:
    root = Node(ALL)
    for stack, us in stacks.items():
        node = root
        node.us += us
        for name in stack:
            node = node.calls.setdefault(name, Node(name))
            node.us += us
    return root


def frames_of(node: Node) -> int:
    count, pending = 0, [node]
    while pending:
        count += 1
        pending += pending.pop().calls.values()
    return count


def lay_out(stacks: dict[Stack, int]) -> Flame:
    root = tree(stacks)
    flame = Flame([], 0, root.us, 0)
    boxes: list[tuple[int, FrameBox]] = []
    pending = [(root, 0, 0)]
    while pending:
        node, begin, depth = pending.pop()
        share = 100 * node.us / root.us if root.us else 100.0
        if share < MIN_PERCENT:
            flame.left_out += frames_of(node)
            continue
        boxes.append((node.us, FrameBox(
            node.name, round(100 * begin / root.us, 5) if root.us else 0.0, round(share, 5), depth,
            f"{node.name}: {milliseconds(node.us)} lost, {share:.{1 if share >= 1 else 2}f} %", colour(node.name))))
        at = begin
        children = sorted(node.calls.values(), key=lambda call: call.name)
        for call in children:
            pending.append((call, at, depth + 1))
            at += call.us
    if len(boxes) > MAX_FRAMES:  # a frame is at least as wide as its inner ones, so none loses the one around it
        boxes.sort(key=lambda box: (-box[0], box[1].depth))
        flame.left_out += len(boxes) - MAX_FRAMES
        boxes = boxes[:MAX_FRAMES]
    flame.frames = sorted((box for _, box in boxes), key=lambda box: (box.depth, box.x, box.name))
    flame.depth = max(box.depth for box in flame.frames)
    return flame


def colour(name: str) -> str:
    """Chooses a colour by the name, so that a function has the same one in each picture. It is light, for dark text."""
    if name.startswith("[") or name == ALL:
        return "hsl(0 0% 84%)"
    hashed = zlib.crc32(name.encode())
    return f"hsl({20 + hashed % 36} {70 + hashed // 36 % 25}% {68 + hashed // 900 % 12}%)"
