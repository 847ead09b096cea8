# SPDX-License-Identifier: GPL-2.0
"""Debian's Chromium without a window: what a page becomes, and pictures of it."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

#: Time in the page passes as fast as it has nothing to do, 20 s of it.
COMMAND = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
           "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
           "--virtual-time-budget=20000")
PATIENCE = 120.0


def run(address: str, width: int, height: int, what: str) -> str:
    with tempfile.TemporaryDirectory() as profile:
        size = f"--window-size={width},{height}"
        done = subprocess.run([*COMMAND, f"--user-data-dir={profile}", size, what, address], capture_output=True,
                              text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def document(address: str, width: int) -> str:
    """What the page is after its scripts."""
    return run(address, width, 3000, "--dump-dom")


def picture(address: str, into: Path, width: int, height: int) -> None:
    """Its first `height` px, as a PNG of 256 colors, which is a third of the bytes."""
    run(address, width, height, f"--screenshot={into}")
    subprocess.run(["pngquant", "--force", "--strip", "--speed=1", "--output", into, "256", into], check=True)
