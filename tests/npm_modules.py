#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Modules of npm, in the cache: those of a directory's package-lock.json, and no other.

`npm_modules.py DIRECTORY` writes that file anew, of what package.json names. It names no host: the modules come from
the registry that the machine's npm asks, and their checksums are compared.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from debian import Unavailable, cache, locked, run_whole

#: In s: Grafana's components and what they need are 450 modules, 460 MB unpacked.
PATIENCE = 900.0
#: Scripts of modules are not run.
INSTALL = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def run_npm(where: Path, *arguments: str) -> None:
    if not shutil.which("npm"):
        raise Unavailable("no npm is installed")
    try:
        done = run_whole(["nice", "-n", "10", "npm", *arguments], PATIENCE, where)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"npm {arguments[0]}: not done in {PATIENCE:.0f} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [str(done.returncode)]
        raise Unavailable(f"npm {arguments[0]}: {' '.join(lines[:3])}")


def modules(directory: Path) -> Path:
    """Their node_modules. Raises Unavailable."""
    files = [directory / name for name in ("package.json", "package-lock.json")]
    key = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    place = cache() / f"npm-{directory.name}-{key}"
    with locked(cache() / f"npm-{directory.name}.lock"):
        if not place.exists():
            for old in cache().glob(f"npm-{directory.name}-*"):
                shutil.rmtree(old)
            part = place.with_suffix(".part")
            part.mkdir()
            for file in files:
                shutil.copy(file, part)
            try:
                run_npm(part, "ci", *INSTALL)
            except Unavailable as reason:
                raise Unavailable(f"the modules of {directory.name} cannot be had: {reason}") from None
            part.rename(place)
    return place / "node_modules"


def without_hosts(of: Any) -> Any:
    """The lock without what it says of where a module comes from and who pays for it."""
    if isinstance(of, dict):
        return {name: without_hosts(value) for name, value in of.items() if name not in ("resolved", "funding")}
    return [without_hosts(value) for value in of] if isinstance(of, list) else of


def a_line_each(lock: dict[str, Any]) -> str:
    """The lock as JSON, each module on one line."""
    about = json.dumps({name: value for name, value in lock.items() if name != "packages"})
    lines = ",\n".join(f"{json.dumps(path)}: {json.dumps(one)}" for path, one in lock["packages"].items())
    return f'{about[:-1]}, "packages": {{\n{lines}\n}}}}\n'


def write_lock(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        shutil.copy(directory / "package.json", temporary)
        run_npm(Path(temporary), "install", "--package-lock-only", *INSTALL)
        lock = json.loads((Path(temporary) / "package-lock.json").read_text())
    (directory / "package-lock.json").write_text(a_line_each(without_hosts(lock)))


if __name__ == "__main__":
    write_lock(Path(sys.argv[1]))
