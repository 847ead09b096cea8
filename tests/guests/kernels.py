# SPDX-License-Identifier: GPL-2.0
"""Debian's kernels, unpacked and never installed, in a cache outside the tree.

A kernel has a short name; which package that is today, the suite's meta-package says. The mirror is
the machine's own, apt works in a private directory, and signatures are checked.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: A cached kernel is taken as it is for this long; after that a newer one is looked for.
FRESH_S = 7 * 24 * 3600.0
#: A replaced kernel stays this long, since a guest may still be running from it.
REPLACED_S = 24 * 3600.0
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
META = "linux-image-amd64"

#: Short name → the suites to look in; the newest version among them is taken. A suite named
#: …-security lies on the security mirror, every other one on the main mirror.
KERNELS: dict[str, tuple[str, ...]] = {
    "5.10": ("bullseye", "bullseye-security"),
    "6.1": ("bookworm", "bookworm-security"),
    "6.12": ("trixie", "trixie-security"),
    "7": ("sid",),
}


class Unavailable(Exception):
    """A kernel or a tool cannot be had; the text is the reason."""


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel: the image to boot; its modules lie where virtme-ng looks for them."""

    name: str
    version: str
    image: Path


def cache() -> Path:
    """NAGLETRACE_CACHE, or nagletrace under the user's cache directory."""
    if own := os.environ.get("NAGLETRACE_CACHE"):
        path = Path(own)
    else:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nagletrace"
    path = path.absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"no cache directory: {error}") from error
    return path


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time prepares what the lock is named for."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run_whole(command: list[str], timeout: float, cwd: Path | None = None
              ) -> subprocess.CompletedProcess[str]:
    """As subprocess.run; where that is cut short, what the command started ends with it."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    process = subprocess.Popen(
        command, cwd=cwd, env={**os.environ, "PATH": path, "LC_ALL": "C.UTF-8"}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True)
    try:
        output, errors = process.communicate(timeout=timeout)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()  # ends when the last of them has let go of the pipes
        raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


# ---- the machine's mirrors ----


def one_line_entry(line: str) -> tuple[str, list[str]] | None:
    """`deb [options] URI SUITE COMPONENT…` as (URI, suites)."""
    found = re.match(r"\s*deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s+\S", line)
    return (found[1], [found[2]]) if found else None


def deb822_entries(text: str) -> Iterator[tuple[str, list[str]]]:
    """The stanzas of a .sources file as (URI, suites)."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for stanza in re.split(r"\n\s*\n", "\n".join(lines)):
        fields: dict[str, list[str]] = {}
        for key, value in re.findall(r"^([\w-]+):(.*(?:\n[ \t].*)*)", stanza, re.MULTILINE):
            fields[key.lower()] = value.split()
        if "deb" in fields.get("types", []) and fields.get("enabled", ["yes"]) != ["no"]:
            for uri in fields.get("uris", []):
                yield uri, fields.get("suites", [])


def machine_sources(etc: Path = Path("/etc/apt")) -> Iterator[tuple[str, list[str]]]:
    """The package sources of the machine, in both formats, as (URI, suites)."""
    parts = etc / "sources.list.d"
    for file in [etc / "sources.list", *sorted(parts.glob("*.list"))]:
        if file.is_file():
            entries = map(one_line_entry, file.read_text(errors="replace").splitlines())
            yield from filter(None, entries)
    for file in sorted(parts.glob("*.sources")):
        yield from deb822_entries(file.read_text(errors="replace"))


def mirrors(etc: Path = Path("/etc/apt")) -> dict[str, str]:
    """The machine's URIs of Debian's archive, by kind: main and security."""
    found: dict[str, str] = {}
    for uri, suites in machine_sources(etc):
        if re.search(r"/debian(-security)?/?$", uri):
            security = any(re.search(r"-security$|/updates$", suite) for suite in suites)
            found.setdefault("security" if security else "main", uri)
    if "main" not in found:
        raise Unavailable("no Debian mirror among the machine's package sources")
    return found


# ---- apt, apart from the machine's ----


class PrivateApt:
    """apt with sources, lists and cache of its own; proxies and the like stay the machine's."""

    def __init__(self, directory: Path, suites: tuple[str, ...]) -> None:
        self.directory = directory
        self.packages = directory / "packages"
        for sub in ("lists/partial", "cache/archives/partial", "packages"):
            (directory / sub).mkdir(parents=True, exist_ok=True)
        (directory / "status").touch()
        sources = directory / "sources.list"
        sources.write_text("".join(self._lines(suites)))
        options = {
            "Dir::Etc::sourcelist": sources,
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State::lists": directory / "lists",
            "Dir::State::status": directory / "status",
            "Dir::Cache": directory / "cache",
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Sandbox::User": "root",  # _apt cannot enter a cache below /root
            "APT::Update::Error-Mode": "any",  # else a mirror that fails is but a warning
            "Acquire::AllowInsecureRepositories": "false",
            "Acquire::Check-Valid-Until": "false",  # bullseye is not signed anew any more
            "Acquire::Languages": "none",
            "Acquire::Retries": "1",
            "Acquire::http::Timeout": "20",
            "Acquire::https::Timeout": "20",
        }
        self._options = [word for item in options.items() for word in ("-o", "{}={}".format(*item))]

    @staticmethod
    def _lines(suites: tuple[str, ...]) -> Iterator[str]:
        uris = mirrors()
        for suite in suites:
            uri = uris.get("security" if suite.endswith("-security") else "main")
            if uri:  # a machine without security sources still has the suite's own kernel
                yield f"deb [signed-by={KEYRING}] {uri} {suite} main\n"

    def run(self, timeout: float, tool: str, *arguments: str) -> str:
        try:
            done = run_whole([tool, *self._options, *arguments], timeout, self.packages)
        except FileNotFoundError:
            raise Unavailable(f"{tool} is not installed") from None
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{tool} {arguments[0]}: not done in {timeout:.0f} s") from None
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines() or [str(done.returncode)]
            reason = next((line for line in lines if line.startswith("E:")), lines[-1])
            raise Unavailable(f"{tool} {arguments[0]}: {reason}")
        return done.stdout

    def newest(self, package: str) -> tuple[str, list[str]]:
        """The version of the newest such package, and the names that it depends on."""
        text = self.run(60, "apt-cache", "show", "--no-all-versions", package)
        fields = dict(re.findall(r"^(Version|Depends): (.*)", text, re.MULTILINE))
        depends = re.findall(r"(?:^|[,|])\s*([^\s,|(]+)", fields.get("Depends", ""))
        return fields.get("Version", ""), depends


def image_packages(apt: PrivateApt) -> tuple[str, str, list[str]]:
    """The newest image package, its version, and all packages that hold its kernel and modules.

    Up to 6.x the image holds everything; 7.x depends on linux-binary-…, -modules-… and -base-….
    """
    images = [name for name in apt.newest(META)[1] if re.match(r"linux-image-\d", name)]
    if not images:
        raise Unavailable(f"{META} names no kernel image")
    version, depends = apt.newest(images[0])
    parts = [name for name in depends if re.match(r"linux-(binary|modules|base)-\d", name)]
    return images[0], version, [images[0], *parts]


# ---- the cache ----


def find_image(root: Path) -> Path | None:
    """The kernel in an unpacked tree: under boot, or since 7.x beside its modules."""
    found = [*root.glob("boot/vmlinuz-*"), *root.glob("usr/lib/modules/*/vmlinuz")]
    return found[0] if found else None


def run_tool(what: str, *command: str) -> None:
    try:
        done = run_whole(list(command), 300)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} {what}: not done in 300 s") from None
    if done.returncode:
        raise Unavailable(f"{command[0]} {what}: {done.stderr.strip()}")


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

    def __init__(self, name: str) -> None:
        self.name = name
        self.directory = cache() / "kernels"
        self.directory.mkdir(exist_ok=True)
        self._pointer = self.directory / f"{name}.json"

    def lock(self) -> contextlib.AbstractContextManager[None]:
        return locked(self.directory / f".{self.name}.lock")

    def present(self) -> Kernel | None:
        try:
            now = json.loads(self._pointer.read_text())
            image = find_image(self.directory / now["directory"] / "root")
        except (OSError, ValueError, KeyError):
            return None
        return Kernel(self.name, now["version"], image) if image else None

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
        for left in self.directory.glob(f".{self.name}-*"):
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
            apt = PrivateApt(Path(temporary) / "apt", KERNELS[self.name])
            apt.run(180, "apt-get", "update", "-q")
            package, version, packages = image_packages(apt)
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


def obtain(name: str) -> Kernel:
    """The kernel of that short name, ready to boot. Raises Unavailable with the reason."""
    if name not in KERNELS:
        raise Unavailable(f"no such kernel; known are {', '.join(KERNELS)}")
    if platform.machine() != "x86_64":
        raise Unavailable(f"this machine is {platform.machine()}, and the kernels are x86-64")
    store = Store(name)
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
