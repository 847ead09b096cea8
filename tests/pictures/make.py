#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Writes docs/pictures/: the dashboards, of programs that stall for two minutes, and the pages of a trace.

Run by `make pictures`, as root.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / name) for name in ("pictures", "monitoring", "live", ".")]

import dashboards  # noqa: E402
import screens  # noqa: E402
from scene import looked_at  # noqa: E402

PICTURES = TESTS.parent / "docs" / "pictures"
STALLING_S, MENDED_S = 80.0, 60.0
#: Of each dashboard: what its picture is called, and with which panel it ends.
DRAWN = {"nagletrace": ("dashboard", "How long stalls last"), "nagletrace-fleet": ("fleet", "Hosts by hooks"),
         "nagletrace-connection": ("connection", "Lost time by pod")}


def main() -> int:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        screens.draw(Path(place), PICTURES)
    with dashboards.browser() as browser, tempfile.TemporaryDirectory(prefix="nagletrace-pictures-") as place:
        for shown in looked_at(Path(place), STALLING_S, MENDED_S):
            name, last = DRAWN[shown.dashboard["uid"]]
            for theme in dashboards.THEMES:
                browser.picture(shown, theme, PICTURES / f"{name}-{theme}.png", last)
    for picture in sorted(PICTURES.glob("*.png")):
        print(f"{picture}  {picture.stat().st_size // 1000} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
