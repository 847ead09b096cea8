# SPDX-License-Identifier: GPL-2.0
"""Readers of the nagletrace daemon."""

from pathlib import Path

#: all of nagletrace's; VERSION at the top of the source tree is a link to it
__version__ = (Path(__file__).parent / "VERSION").read_text().strip()
