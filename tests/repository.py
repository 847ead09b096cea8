# SPDX-License-Identifier: GPL-2.0
"""What git knows of this repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def git(*arguments: str) -> str:
    # root may measure a tree that is somebody else's
    return subprocess.run(["git", "-c", f"safe.directory={ROOT}", *arguments], cwd=ROOT, capture_output=True, text=True,
                          check=True).stdout.strip()
