# SPDX-License-Identifier: GPL-2.0
"""Debian's packages, fetched and unpacked in a cache outside the tree, never installed.

The mirror is the machine's own, apt works in a private directory, and signatures are checked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

#: What is in the cache is taken as it is for this long; after that something newer is looked for.
FRESH_S = 7 * 24 * 3600.0
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class Unavailable(Exception):
    """A package, a kernel or a tool cannot be had; the text is the reason."""


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
        process.communicate()  # ends when the last of them has closed the pipes
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


def of_list(uri: str) -> str:
    """The first of a list of mirrors, as Debian's images for clouds have it; another URI as it is."""
    if not uri.startswith("mirror+file:"):
        return uri
    path = Path(urlsplit(uri).path)
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    return next((line.split()[0] for line in lines if line.strip() and not line.startswith("#")), uri)


def mirrors(etc: Path = Path("/etc/apt")) -> dict[str, str]:
    """The machine's URIs of Debian's archive, by kind: main and security."""
    found: dict[str, str] = {}
    for named, suites in machine_sources(etc):
        uri = of_list(named)
        if re.search(r"/debian(-security)?/?$", uri):
            security = any(re.search(r"-security$|/updates$", suite) for suite in suites)
            found.setdefault("security" if security else "main", uri)
    if "main" not in found:
        raise Unavailable("no Debian mirror among the machine's package sources")
    return found


# ---- apt, apart from the machine's ----


class PrivateApt:
    """apt with sources, lists and cache of its own; proxies and the like stay the machine's.

    suites: one named …-security lies on the security mirror, every other one on the main mirror. architecture: Debian's
    name of it.
    """

    def __init__(self, directory: Path, suites: tuple[str, ...], architecture: str) -> None:
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
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
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
            if uri:  # a machine without security sources still has the suite's own packages
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


def run_tool(what: str, *command: str) -> None:
    try:
        done = run_whole(list(command), 300)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} {what}: not done in 300 s") from None
    if done.returncode:
        raise Unavailable(f"{command[0]} {what}: {done.stderr.strip()}")
