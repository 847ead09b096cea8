#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Python tools of the tests, in a virtual environment in the cache: tests/requirements.txt says which.

`tools.py` makes it, or brings it up to date, and prints where it is.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from debian import cache, locked

WANTED = Path(__file__).parent / "requirements.txt"


def tools() -> Path:
    """The directory of the environment's programs; made when it is first wanted, and when what is wanted changes."""
    place = cache() / "python-tools"
    stamp = place / "installed"
    wanted = hashlib.sha256(WANTED.read_bytes()).hexdigest()
    with locked(cache() / "python-tools.lock"):
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(place, ignore_errors=True)
            subprocess.run(["/usr/bin/python3", "-m", "venv", str(place)], check=True)
            subprocess.run([place / "bin" / "pip", "install", "-q", "--disable-pip-version-check", "-r", WANTED],
                           check=True)
            stamp.write_text(wanted)
    return place / "bin"


if __name__ == "__main__":
    print(tools())
    sys.exit(0)
