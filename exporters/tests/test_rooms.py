# SPDX-License-Identifier: GPL-2.0
"""The rooms of the package: exporter, report and flame know the modules that all read, and not each other.

A package is a room. A module may import modules of its own room, of rooms inside it, and of the package's top; never
of the room around it, nor of a room beside it. No import leads back to where it began.
"""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

HERE = Path(__file__).parent.parent
TOP = "nagletrace_exporters"
Imports = dict[str, set[str]]


def name_of(path: Path, root: Path) -> str:
    """`a.b` for a/b.py, `a` for a/__init__.py."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imports_under(root: Path) -> Imports:
    """By module: which modules of the package it imports."""
    paths = {name_of(path, root): path for path in sorted((root / TOP).rglob("*.py"))}
    rooms = {name for name, path in paths.items() if path.name == "__init__.py"}
    found: Imports = {name: set() for name in paths}
    for name, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names if alias.name in paths}
            elif isinstance(node, ast.ImportFrom):
                around = name.split(".") if name in rooms else name.split(".")[:-1]
                base = around[:len(around) - node.level + 1] if node.level else []
                module = ".".join([*base, *filter(None, [node.module])])
                for alias in node.names:
                    found[name] |= {wanted for wanted in (f"{module}.{alias.name}", module) if wanted in paths} - {name}
                    # `from .room import module` asks the room for nothing else
                    if f"{module}.{alias.name}" in paths:
                        found[name].discard(module)
    return found


def room_of(module: str, rooms: set[str]) -> str:
    return module if module in rooms else module.rpartition(".")[0]


def climbing(imports: Imports) -> list[str]:
    """Imports that the rule in this file's first lines forbids."""
    rooms = {module.rpartition(".")[0] for module in imports} - {""}
    return [f"{module} imports {wanted}" for module, all_wanted in imports.items() for wanted in sorted(all_wanted)
            if (here := room_of(module, rooms)) != (there := room_of(wanted, rooms))
            and there != TOP and not there.startswith(f"{here}." if here != TOP else "no room")]


def circle(imports: Imports) -> list[str]:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_import_climbs() -> None:
    assert climbing(imports_under(HERE)) == []


def test_imports_have_no_circle() -> None:
    assert circle(imports_under(HERE)) == []


@pytest.mark.parametrize(("path", "line", "told"), [
    ("records.py", "from .report.page import Page", f"{TOP}.records imports {TOP}.report.page"),
    ("flame/svg.py", "from ..report import page", f"{TOP}.flame.svg imports {TOP}.report.page"),
    ("report/ladder/svg.py", f"import {TOP}.report.page", f"{TOP}.report.ladder.svg imports {TOP}.report.page"),
    ("report/page.py", "from ..records import Stall\nfrom .ladder.svg import draw\nfrom .. import __version__", None)])
def test_an_arrow_that_climbs_is_told(path: str, line: str, told: str | None, tmp_path: Path) -> None:
    for name in ("__init__.py", "records.py", "flame/__init__.py", "flame/svg.py", "report/__init__.py",
                 "report/page.py", "report/ladder/__init__.py", "report/ladder/svg.py"):
        (tmp_path / TOP / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / TOP / name).write_text(line if name == path else "")
    assert climbing(imports_under(tmp_path)) == ([told] if told else [])


def test_a_circle_is_told(tmp_path: Path) -> None:
    (tmp_path / TOP).mkdir()
    (tmp_path / TOP / "a.py").write_text("from .b import B")
    (tmp_path / TOP / "b.py").write_text("def later() -> None:\n    from . import a")
    assert {f"{TOP}.a", f"{TOP}.b"} == set(circle(imports_under(tmp_path)))


def test_every_room_is_installed_by_pip() -> None:
    """pip finds a room by its __init__.py."""
    rooms = {path.parent for path in (HERE / TOP).rglob("__init__.py")}
    assert {path.parent for path in (HERE / TOP).rglob("*.py")} == rooms
