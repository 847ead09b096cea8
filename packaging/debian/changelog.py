#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Prints debian/changelog, made of CHANGELOG.md: the version to be packaged, and those before it.

`changelog.py VERSION-REVISION CHANGELOG.md`; SOURCE_DATE_EPOCH (s since 1970) dates a version that is not released yet.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from datetime import datetime, timezone
from email.utils import format_datetime
from pathlib import Path

WIDTH = 78


def maintainer() -> str:
    """As in debian/control, unless DEBFULLNAME and DEBEMAIL say who packages."""
    control = Path(__file__).with_name("control").read_text()
    found = re.search(r"^Maintainer: (.*) <(.*)>$", control, re.MULTILINE)
    if not found:
        sys.exit("changelog.py: debian/control names no Maintainer")
    return f"{os.environ.get('DEBFULLNAME', found[1])} <{os.environ.get('DEBEMAIL', found[2])}>"


def plain(text: str) -> str:
    """Of Markdown the words: emphasis and links are for the page."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\*\*|`", "", " ".join(text.split()))


def changes(body: str) -> list[str]:
    """A section's bullets as Debian writes them, under its headings."""
    lines: list[str] = []
    for block in re.split(r"\n(?=- |### )|\n\n", body):
        if block.startswith("### "):
            lines += ["", f"  [ {plain(block[4:])} ]"]
        elif block.startswith("- "):
            lines += textwrap.wrap(plain(block[2:]), WIDTH, initial_indent="  * ", subsequent_indent="    ",
                                   break_long_words=False, break_on_hyphens=False)
    return lines


def entries(version: str, text: str) -> list[str]:
    """Each version's entry. The packaged version is the newest of the file, or the file has nothing of it yet."""
    upstream, _, revision = version.rpartition("-")
    found = re.findall(r"^## (\d+\.\d+\.\d+)(?: - (\S+))?$\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    known = [number for number, _, _ in found]
    if upstream not in known:
        sys.exit(f"changelog.py: CHANGELOG.md has no section {upstream}; it has {', '.join(known) or 'none'}")
    made = []
    for number, day, body in found[known.index(upstream):]:
        released = re.fullmatch(r"\d{4}-\d\d-\d\d", day)
        when = (datetime.fromisoformat(f"{day}T12:00:00+00:00") if released else
                datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc))
        packaged = f"{number}-{revision if number == upstream else 1}"
        suite = "unstable" if released else "UNRELEASED"
        lines = changes(body) or ["  * See CHANGELOG.md."]
        made.append("\n".join([f"nagletrace ({packaged}) {suite}; urgency=medium", "", *lines[lines[0] == "":], "",
                               f" -- {maintainer()}  {format_datetime(when)}", ""]))
    return made


def main() -> int:
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} VERSION-REVISION CHANGELOG.md")
    print("\n".join(entries(sys.argv[1], Path(sys.argv[2]).read_text())), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
