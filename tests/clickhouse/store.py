# SPDX-License-Identifier: GPL-2.0
"""The tables of dashboards/clickhouse in ClickHouse's engine, which tests/tools.py installs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools import clickhouse

ROOT = Path(__file__).resolve().parent.parent.parent
SQL = ROOT / "dashboards" / "clickhouse"
EVERY = "REFRESH EVERY 5 MINUTE"
TABLES = ("records", "runs", "refused", "arrivals", "joined")
Row = dict[str, Any]


def split(text: str) -> list[str]:
    """The statements, without those that hold comments only."""
    return [one for one in text.split(";\n") if re.sub(r"^--.*$", "", one, flags=re.MULTILINE).strip()]


def statements(name: str) -> list[str]:
    return split((SQL / name).read_text())


class Store:
    """A session of the engine; it keeps its tables below a directory, or in memory. One at a time in a process."""

    def __init__(self, place: Path | None = None) -> None:
        [packages] = (clickhouse().parent / "lib").glob("python3*/site-packages")
        if str(packages) not in sys.path:
            sys.path.append(str(packages))
        from chdb import session  # type: ignore[import-not-found]
        self.session = session.Session(str(place) if place else None)

    def run(self, query: str, form: str = "JSONEachRow", **values: object) -> str:
        for name, value in values.items():
            self.session.query(f"SET param_{name} = '{value}'")
        return str(self.session.query(query, form) or "")

    def rows(self, query: str, **values: object) -> list[Row]:
        return [json.loads(line) for line in self.run(query, **values).splitlines()]

    def create(self, every: str = EVERY) -> None:
        """As schema.sql has it, but for how often it joins by itself."""
        for statement in statements("schema.sql"):
            self.run(statement.replace(EVERY, every))

    def insert(self, path: Path) -> None:
        self.run(f"INSERT INTO nagletrace.incoming SELECT line FROM file('{path}', 'LineAsString')")

    def refresh(self, *views: str) -> None:
        for view in views or ("meet", "dismiss"):
            self.run(f"SYSTEM REFRESH VIEW nagletrace.{view}")
            self.run(f"SYSTEM WAIT VIEW nagletrace.{view}")

    def empty(self) -> None:
        for table in TABLES:
            self.run(f"TRUNCATE TABLE nagletrace.{table}")

    def close(self) -> None:
        self.session.close()


def write(path: Path, lines: Iterable[Row]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
