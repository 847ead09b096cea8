# SPDX-License-Identifier: GPL-2.0
"""Readers of the nagletrace daemon."""

from pathlib import Path

#: nagletrace's; in the source tree the file is a link to the one at the top
__version__ = (Path(__file__).parent / "VERSION").read_text().strip()
