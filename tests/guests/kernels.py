# SPDX-License-Identifier: GPL-2.0
"""Debian's kernels, unpacked and never installed, in a cache outside the tree.

A kernel has a short name; which package that is today, the suite's meta-package says.
"""

from __future__ import annotations

import contextlib
import json
import platform
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from debian import FRESH_S, PrivateApt, Unavailable, cache, locked, run_tool

#: A replaced kernel stays this long, since a guest may still be running from it.
REPLACED_S = 24 * 3600.0
#: The package of each architecture that names the kernel of its suite. The cloud kernel is a third as large, and has
#: what the arm64 guests want.
META = {"amd64": "linux-image-amd64", "arm64": "linux-image-cloud-arm64"}
#: Likewise, of a kernel built with PREEMPT_RT.
META_RT = {"amd64": "linux-image-rt-amd64", "arm64": "linux-image-rt-arm64"}

#: Short name → the suites to look in; the newest version among them is taken. …-rt is built with PREEMPT_RT.
KERNELS: dict[str, tuple[str, ...]] = {
    "5.10": ("bullseye", "bullseye-security"),
    "6.1": ("bookworm", "bookworm-security"),
    "6.1-rt": ("bookworm", "bookworm-security"),
    "6.12": ("trixie", "trixie-security"),
    "6.12-rt": ("trixie", "trixie-security"),
    "7": ("sid",),
}


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel: the image to boot; its modules lie where virtme-ng looks for them."""

    name: str
    version: str
    image: Path


def image_packages(apt: PrivateApt, meta: str) -> tuple[str, str, list[str]]:
    """The newest image package, its version, and all packages that hold its kernel and modules.

    Up to 6.x the image holds everything; 7.x depends on linux-binary-…, -modules-… and -base-….
    """
    images = [name for name in apt.newest(meta)[1] if re.match(r"linux-image-\d", name)]
    if not images:
        raise Unavailable(f"{meta} names no kernel image")
    version, depends = apt.newest(images[0])
    parts = [name for name in depends if re.match(r"linux-(binary|modules|base)-\d", name)]
    return images[0], version, [images[0], *parts]


# ---- the cache ----


def find_image(root: Path) -> Path | None:
    """The kernel in an unpacked tree: under boot, or since 7.x beside its modules."""
    found = [*root.glob("boot/vmlinuz-*"), *root.glob("usr/lib/modules/*/vmlinuz")]
    return found[0] if found else None


def unpack(packages: list[Path], root: Path) -> None:
    """Unpacks, and lists the modules' dependencies, which the package does only when installed."""
    root.mkdir()
    for package in packages:
        run_tool(package.name, "dpkg-deb", "-x", str(package), str(root))
    if not find_image(root):
        raise Unavailable(f"no kernel in {', '.join(package.name for package in packages)}")
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")  # where depmod and virtme-ng look
    for modules in (root / "lib" / "modules").iterdir():
        run_tool(modules.name, "depmod", "-a", "-b", str(root), modules.name)


class Store:
    """The kernels in the cache, and for each name a small file that says which one it is now."""

    def __init__(self, kernel: str, architecture: str) -> None:
        self.kernel = kernel
        self.architecture = architecture
        self.name = kernel if architecture == "amd64" else f"{architecture}-{kernel}"
        self.meta = (META_RT if kernel.endswith("-rt") else META)[architecture]
        self.directory = cache() / "kernels"
        self.directory.mkdir(exist_ok=True)
        self._pointer = self.directory / f"{self.name}.json"

    def lock(self) -> contextlib.AbstractContextManager[None]:
        return locked(self.directory / f".{self.name}.lock")

    def present(self) -> Kernel | None:
        try:
            now = json.loads(self._pointer.read_text())
            image = find_image(self.directory / now["directory"] / "root")
        except (OSError, ValueError, KeyError):
            return None
        return Kernel(self.kernel, now["version"], image) if image else None

    def age(self) -> float:
        """Seconds since the mirror was last asked."""
        try:
            return time.time() - self._pointer.stat().st_mtime
        except OSError:
            return float("inf")

    def point(self, directory: str, version: str) -> None:
        new = self._pointer.with_suffix(".new")
        new.write_text(json.dumps({"directory": directory, "version": version}) + "\n")
        new.rename(self._pointer)

    def sweep(self) -> None:
        """Removes what an interrupted run left, and kernels that no name stands for any more."""
        for left in self.directory.glob(f".{self.name}-" + "?" * 8):  # as tempfile names them; not of 6.1-rt
            shutil.rmtree(left, ignore_errors=True)
        pointers = list(self.directory.glob("*.json"))
        if any(time.time() - pointer.stat().st_mtime < REPLACED_S for pointer in pointers):
            return
        used = {json.loads(pointer.read_text())["directory"] for pointer in pointers}
        for old in self.directory.glob("linux-image-*_*"):
            if old.name not in used:
                shutil.rmtree(old, ignore_errors=True)

    def refresh(self) -> None:
        """Asks the mirror for the newest, and takes it where it is not here yet."""
        with tempfile.TemporaryDirectory(prefix=f".{self.name}-", dir=self.directory,
                                         ignore_cleanup_errors=True) as temporary:
            apt = PrivateApt(Path(temporary) / "apt", KERNELS[self.kernel], self.architecture)
            apt.run(180, "apt-get", "update", "-q")
            package, version, packages = image_packages(apt, self.meta)
            place = self.directory / f"{package}_{version}"
            if not find_image(place / "root"):
                print(f"guest: fetching {package} {version}", file=sys.stderr, flush=True)
                apt.run(900, "apt-get", "download", "-q", *packages)
                whole = Path(temporary) / "whole"
                whole.mkdir()
                apt.packages.rename(whole / "packages")
                unpack(sorted((whole / "packages").glob("*.deb")), whole / "root")
                shutil.rmtree(place, ignore_errors=True)
                whole.rename(place)
            self.point(place.name, version)


def obtain(name: str, architecture: str = "amd64") -> Kernel:
    """The kernel of that short name, ready to boot. Raises Unavailable with the reason."""
    if name not in KERNELS:
        raise Unavailable(f"no such kernel; known are {', '.join(KERNELS)}")
    if architecture == "amd64" and platform.machine() != "x86_64":
        raise Unavailable(f"this machine is {platform.machine()}, and the kernels are x86-64")
    store = Store(name, architecture)
    with store.lock():
        present = store.present()
        if present and store.age() < FRESH_S:
            return present
        try:
            store.sweep()
            store.refresh()
        except (Unavailable, OSError) as error:
            if not present:
                raise Unavailable(str(error)) from error
            print(f"guest: kernel {name}: taking {present.version} from the cache: {error}",
                  file=sys.stderr)
            return present
        found = store.present()
    if not found:
        raise Unavailable("it was fetched and is not there")
    return found
