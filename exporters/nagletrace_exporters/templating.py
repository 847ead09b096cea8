# SPDX-License-Identifier: GPL-2.0
"""Fills in templates, and escapes all values in them."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render(template: Path, **values: object) -> str:
    environment = Environment(loader=FileSystemLoader(template.parent), autoescape=True, undefined=StrictUndefined,
                              keep_trailing_newline=True)
    return environment.get_template(template.name).render(**values)
