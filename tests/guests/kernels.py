# SPDX-License-Identifier: GPL-2.0
"""Debian's kernels, unpacked and never installed, in a cache outside the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

#: A cached kernel is taken as it is for this long; then a newer one is looked for.
FRESH_S = 7 * 24 * 3600.0
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Unavailable(Exception):
    """A kernel or a tool cannot be had; the reason is the text."""


@dataclass(frozen=True)
class Source:
    """Where a kernel comes from: a suite, the meta-package that names the newest image."""

    suite: str
    meta: str = "linux-image-amd64"


#: By the short name that the tests use. The suites' images are looked up, since their versions move.
KERNELS = {
    "5.10": Source("bullseye"),
    "6.1": Source("bookworm"),
    "6.12": Source("trixie"),
    "7": Source("sid"),
}


def cache() -> Path:
    """NAGLETRACE_CACHE, or nagletrace under the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(os.environ.get("NAGLETRACE_CACHE") or Path(base) / "nagletrace")
    path.mkdir(parents=True, exist_ok=True)
    return path


def mirror() -> str:
    """The machine's own Debian mirror, from its package sources."""
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for file in files:
        if not file.is_file():
            continue
        for line in file.read_text(errors="replace").splitlines():
            one_line = re.match(r"\s*deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+\S+", line)
            deb822 = re.match(r"URIs:\s*(\S+)", line, re.IGNORECASE)
            uri = (one_line or deb822)[1] if one_line or deb822 else ""
            if uri.rstrip("/").endswith("/debian"):
                return uri
    raise Unavailable("no Debian mirror among the machine's package sources")


class PrivateApt:
    """apt with lists, cache and sources of its own, so that the machine's stay untouched."""

    def __init__(self, directory: Path, suite: str) -> None:
        self.directory = directory
        for sub in ("lists/partial", "cache/archives/partial", "etc"):
            (directory / sub).mkdir(parents=True, exist_ok=True)
        (directory / "status").touch()
        sources = directory / "etc" / "sources.list"
        sources.write_text(f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n")
        self.options = [
            f"Dir::Etc::sourcelist={sources}", "Dir::Etc::sourceparts=/dev/null",
            f"Dir::State::lists={directory / 'lists'}", f"Dir::State::status={directory / 'status'}",
            f"Dir::Cache={directory / 'cache'}", "APT::Architecture=amd64", "APT::Architectures=amd64",
            "Acquire::Languages=none", "Acquire::Retries=2", "APT::Sandbox::User=root",
            "Acquire::Check-Valid-Until=false",
        ]

    def run(self, tool: str, *arguments: str) -> str:
        command = [tool, *(word for option in self.options for word in ("-o", option)), *arguments]
        done = subprocess.run(command, cwd=self.directory, capture_output=True, text=True, timeout=600)
        if done.returncode:
            reason = (done.stderr or done.stdout).strip().splitlines()
            raise Unavailable(f"{tool} {arguments[0]}: {reason[-1] if reason else done.returncode}")
        return done.stdout

    def depends(self, package: str, pattern: str) -> list[str]:
        found = re.findall(r"Depends: (\S+)", self.run("apt-cache", "depends", package))
        return [name for name in found if re.fullmatch(pattern, name)]


def image_packages(apt: PrivateApt, meta: str) -> list[str]:
    """The packages that hold kernel and modules: one, or since 7.x several."""
    images = apt.depends(meta, r"linux-image-\d\S*")
    if not images:
        raise Unavailable(f"{meta} names no kernel image")
    parts = apt.depends(images[0], r"linux-(binary|modules|base)-\d\S*")
    return [images[0], *parts]


def find_kernel(root: Path) -> Path | None:
    """The kernel in an unpacked tree."""
    found = sorted([*root.glob("boot/vmlinuz-*"), *root.glob("usr/lib/modules/*/vmlinuz"),
                    *root.glob("lib/modules/*/vmlinuz")])
    return found[0] if found else None


def download(name: str, source: Source, place: Path) -> None:
    """Downloads and unpacks into a directory beside the place, which it becomes at the end."""
    work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=place.parent))
    try:
        apt = PrivateApt(work / "apt", source.suite)
        apt.run("apt-get", "update", "-q")
        packages = image_packages(apt, source.meta)
        apt.run("apt-get", "download", "-q", *packages)
        root = work / "root"
        for deb in sorted(apt.directory.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(deb), str(root)], check=True)
        if not find_kernel(root):
            raise Unavailable(f"{', '.join(packages)} hold no kernel")
        shutil.rmtree(place, ignore_errors=True)
        root.rename(place)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(str(error)) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def obtain(name: str) -> Path:
    """The kernel of that short name, ready to boot. Raises Unavailable with the reason."""
    if name not in KERNELS:
        raise Unavailable(f"no such kernel; known are {', '.join(KERNELS)}")
    directory = cache() / "kernels"
    directory.mkdir(exist_ok=True)
    place = directory / name
    kernel = find_kernel(place)
    if kernel and time.time() - place.stat().st_mtime < FRESH_S:
        return kernel
    try:
        download(name, KERNELS[name], place)
        place.touch()
    except Unavailable:
        if not kernel:
            raise
    kernel = find_kernel(place)
    if not kernel:
        raise Unavailable("the cache holds no kernel")
    return kernel
