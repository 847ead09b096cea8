# SPDX-License-Identifier: GPL-2.0
"""The rooms of userspace/: each includes only rooms on lower floors, and no files of a room include each other in a
circle. The picture in docs/design.md says which floor a room is on; it is compared with the tree.
"""

from __future__ import annotations

import graphlib
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
USERSPACE = ROOT / "userspace"
DESIGN = ROOT / "docs" / "design.md"
#: What the build makes has no room, and the kernel side is below all of them: these are all that a room sees of it.
BUILT = {"keep.skel.h", "nagletrace.skel.h", "probed.skel.h", "sample.skel.h", "terminfo.h", "version.h"}
SHARED = {"bpf/keep.h", "bpf/nagletrace.h", "bpf/verdict.h", "bpf/words.h"}


class Include(NamedTuple):
    """Both as userspace/ has them: cmd/trace.c includes base/log.h."""

    file: str
    included: str

    def __str__(self) -> str:
        return f"userspace/{self.file} includes {self.included}"

    def modules(self) -> tuple[str, str]:
        """A module is a header with its source: base/log."""
        return self.file.rpartition(".")[0], self.included.rpartition(".")[0]


class Room(NamedTuple):
    name: str
    #: from 0 at the top
    floor: int
    modules: set[str]


def picture(text: str) -> list[Room]:
    """A room is a line with its name and what it is for, and lines with its files; a blank line ends a floor."""
    found = re.search(r"<!-- rooms -->\n+```text\n(.*?)```", text, re.DOTALL)
    assert found, "docs/design.md has no picture of the rooms: a fence after <!-- rooms -->"
    rooms: list[Room] = []
    for floor, lines in enumerate(re.split(r"\n\s*\n", found[1].strip("\n"))):
        for line in lines.splitlines():
            if name := re.match(r"(\w+)/  ", line):
                rooms.append(Room(name[1], floor, set()))
            else:
                rooms[-1].modules.update(line.split())
    return rooms


def includes(tree: Path) -> list[Include]:
    return [Include(str(path.relative_to(tree)), name)
            for path in sorted(tree.glob("*/*.[ch]"))
            for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.MULTILINE)
            if name not in BUILT | SHARED]


def climbing(found: list[Include], rooms: list[Room]) -> list[str]:
    """Each include of another room that is not on a lower floor."""
    floors = {room.name: room.floor for room in rooms}
    wrong = []
    for include in found:
        here, there = include.file.split("/")[0], include.included.split("/")[0]
        if there not in floors:
            wrong.append(f"{include}, which is in no room")
        elif here != there and floors[here] >= floors[there]:
            where = "beside" if floors[here] == floors[there] else "above"
            wrong.append(f"{include}, but {there}/ is {where} {here}/")
    return wrong


def circle(found: list[Include]) -> list[str]:
    """The includes of one circle between files of a room, [] where there is none."""
    arrows = {include.modules(): include for include in found if len({*include.modules()}) == 2}
    modules = graphlib.TopologicalSorter[str]()
    for here, there in arrows:
        modules.add(here, there)
    try:
        modules.prepare()
    except graphlib.CycleError as error:
        around = error.args[1]
        return sorted(str(arrows[here, there]) for there, here in zip(around, around[1:]))
    return []


def test_rooms_include_only_rooms_on_lower_floors() -> None:
    wrong = climbing(includes(USERSPACE), picture(DESIGN.read_text()))
    assert not wrong, "\n".join(["these includes climb:", *wrong])


def test_base_knows_nothing_of_tcp() -> None:
    wrong = [path.name for path in USERSPACE.glob("base/*.[ch]") if '#include "bpf/' in path.read_text()]
    assert not wrong, f"these see the kernel side: {wrong}"


def test_no_files_include_each_other_in_a_circle() -> None:
    around = circle(includes(USERSPACE))
    assert not around, "\n".join(["these includes are a circle:", *around])


def test_the_picture_shows_the_rooms_and_files_that_there_are() -> None:
    shown = {f"{room.name}/{module}" for room in picture(DESIGN.read_text()) for module in room.modules}
    there = {str(path.relative_to(USERSPACE).with_suffix("")) for path in USERSPACE.glob("*/*.[ch]")}
    assert shown == there, f"only shown: {sorted(shown - there)}, only there: {sorted(there - shown)}"


def test_each_include_says_the_room() -> None:
    missing = [str(include) for include in includes(USERSPACE) if not (USERSPACE / include.included).is_file()]
    assert not missing, "\n".join(["no such file in any room:", *missing])


PICTURE = """<!-- rooms -->

```text
upper/  what knows the rest
        one two

left/   a room
        three
right/  another
        four

lower/  the ground
        five
```
"""


@pytest.mark.parametrize("file, included, told", [
    ("lower/five.h", "upper/one.h", "userspace/lower/five.h includes upper/one.h, but upper/ is above lower/"),
    ("left/three.c", "right/four.h", "userspace/left/three.c includes right/four.h, but right/ is beside left/"),
    ("upper/one.c", "cellar/six.h", "userspace/upper/one.c includes cellar/six.h, which is in no room"),
])
def test_an_include_that_climbs_is_told(file: str, included: str, told: str) -> None:
    fine = [Include("upper/one.c", "upper/two.h"), Include("upper/one.c", "lower/five.h")]
    assert climbing([*fine, Include(file, included)], picture(PICTURE)) == [told]


def test_a_circle_is_told() -> None:
    found = [Include("upper/one.c", "upper/one.h"), Include("upper/one.c", "upper/two.h"),
             Include("upper/two.h", "lower/five.h")]
    assert not circle(found)
    assert circle([*found, Include("upper/two.c", "upper/one.h")]) == [
        "userspace/upper/one.c includes upper/two.h", "userspace/upper/two.c includes upper/one.h"]
