# SPDX-License-Identifier: GPL-2.0
"""The templates, in which whatever is put is escaped."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **values: object) -> str:
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined,
                              keep_trailing_newline=True)
    return environment.get_template(template).render(**values)
