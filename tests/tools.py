#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Python tools of the tests, in virtual environments in the cache: tests/requirements.txt says which, and
requirements.txt in tests/clickhouse, tests/carriers and tests/helm those of one part, which are big.

`tools.py` makes the first, or brings it up to date, and prints where it is.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from debian import Unavailable, cache, locked

TESTS = Path(__file__).parent
WANTED = TESTS / "requirements.txt"
ENGINE = TESTS / "clickhouse" / "requirements.txt"
#: What is in an environment: the digest of what was wanted.
STAMP = "installed"


def environment(name: str, wanted: Path, *options: str) -> Path:
    """The directory of the environment's programs; made when it is first wanted, and when what is wanted changes."""
    place = cache() / name
    with locked(cache() / f"{name}.lock"):
        if not is_made(place, wanted):
            shutil.rmtree(place, ignore_errors=True)
            subprocess.run(["/usr/bin/python3", "-m", "venv", str(place)], check=True)
            subprocess.run([place / "bin" / "pip", "install", "-q", "--disable-pip-version-check", *options,
                            "-r", wanted], check=True)
            (place / STAMP).write_text(digest(wanted))
    return place / "bin"


def is_made(place: Path, wanted: Path) -> bool:
    return (place / STAMP).exists() and (place / STAMP).read_text() == digest(wanted)


def digest(wanted: Path) -> str:
    """Of what is wanted, and of the Python that it is for."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return hashlib.sha256(version.encode() + wanted.read_bytes()).hexdigest()


def tools(requirements: Path = WANTED, name: str = "python-tools") -> Path:
    return environment(name, requirements)


def present() -> Path | None:
    """The programs of the first environment, if it is there: `make check` installs nothing."""
    place = cache() / "python-tools"
    return place / "bin" if is_made(place, WANTED) else None


def clickhouse() -> Path:
    """ClickHouse's engine as a library, 534 MB, without what it uses for data frames. Raises Unavailable."""
    try:
        return environment("clickhouse", ENGINE, "--no-deps")
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"chdb cannot be had: pip ended with {error.returncode}") from error


if __name__ == "__main__":
    print(tools())
    sys.exit(0)
