#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Unpacks Debian packages of another architecture in the cache, and prints where.

`sysroot.py ARCHITECTURE PACKAGE…`: of the machine's own release, so that they fit its cross compiler's C library. Exit
code: 1 when they cannot be had, with the reason.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path

from debian import FRESH_S, PrivateApt, Unavailable, cache, locked, run_tool


def release() -> str:
    """The machine's release of Debian, by its code name."""
    try:
        codename = platform.freedesktop_os_release().get("VERSION_CODENAME")
    except OSError:
        codename = None
    if not codename:
        raise Unavailable("/etc/os-release names no release of Debian (VERSION_CODENAME)")
    return codename


def unpack(place: Path, suite: str, architecture: str, packages: list[str]) -> None:
    """Fetches the newest of these packages, and puts them in the place of what is there."""
    with tempfile.TemporaryDirectory(prefix=f".{place.name}-", dir=place.parent, ignore_cleanup_errors=True) as name:
        temporary = Path(name)
        apt = PrivateApt(temporary / "apt", (suite, f"{suite}-security"), architecture)
        apt.run(180, "apt-get", "update", "-q")
        apt.run(300, "apt-get", "download", "-q", *packages)
        for package in sorted(apt.packages.glob("*.deb")):
            run_tool(package.name, "dpkg-deb", "-x", str(package), str(temporary / "root"))
        (temporary / "root" / "complete").touch()
        shutil.rmtree(place, ignore_errors=True)
        (temporary / "root").rename(place)


def unpacked(architecture: str, packages: list[str]) -> Path:
    """The directory in which they lie unpacked. Raises Unavailable with the reason."""
    suite = release()
    chosen = hashlib.sha256(" ".join(sorted(packages)).encode()).hexdigest()[:8]
    place = cache() / f"sysroot-{suite}-{architecture}-{chosen}"
    mark = place / "complete"
    with locked(cache() / f".{place.name}.lock"):
        if mark.exists() and time.time() - mark.stat().st_mtime < FRESH_S:
            return place
        print(f"sysroot: fetching {architecture}'s {' '.join(packages)}", file=sys.stderr, flush=True)
        try:
            unpack(place, suite, architecture, packages)
        except (Unavailable, OSError) as error:
            if not mark.exists():
                raise Unavailable(str(error)) from error
            print(f"sysroot: taking what is in the cache: {error}", file=sys.stderr)
    return place


def main() -> int:
    if len(sys.argv) < 3:
        print("sysroot: usage: sysroot.py ARCHITECTURE PACKAGE...", file=sys.stderr)
        return 2
    try:
        print(unpacked(sys.argv[1], sys.argv[2:]))
    except Unavailable as reason:
        print(f"sysroot: {sys.argv[1]}'s packages cannot be had: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
