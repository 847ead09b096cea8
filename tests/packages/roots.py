# SPDX-License-Identifier: GPL-2.0
"""Root directories of Debian's suites, made by debootstrap of this machine's mirror, to install packages in.

An archive of each, with what the packages depend on, lies in the cache; a root is unpacked from it and thrown away.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from debian import FRESH_S, KEYRING, Unavailable, cache, locked, mirrors, run_whole

#: What the tests look at the packages with, besides what they depend on.
TOOLS = ("man-db", "bash-completion")
#: Making one takes this long at most, in s; it is some 100 MB to fetch.
MAKING_S = 420
#: Nothing else that is run in a root does.
COMMAND_S = 120

#: $1 is the root; then pairs of a file and the path in the root that shows it, up to --; then the command. The mounts
#: go with the process.
ENTER = """\
root=$1
shift
for directory in proc sys dev; do mount --rbind /$directory "$root/$directory"; done
while [ "$1" != -- ]; do
	mount --bind "$1" "$root$2"
	shift 2
done
shift
exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root \
	DEBIAN_FRONTEND=noninteractive "$@"
"""


class Root:
    """A suite's files below a directory, and what runs there: on this kernel, in a mount namespace of its own."""

    def __init__(self, suite: str, directory: Path) -> None:
        self.suite, self.directory = suite, directory

    def command(self, *words: str, shown: Mapping[str, Path] = {}) -> list[str]:
        """The command line that runs these words in the root; shown: files of the machine, by the path there."""
        binds = [word for path, file in shown.items() for word in (str(file), path)]
        return ["unshare", "--mount", "--propagation", "private", "sh", "-euc", ENTER, "sh", str(self.directory),
                *binds, "--", *words]

    def run(self, *words: str, shown: Mapping[str, Path] = {}, timeout: float = COMMAND_S
            ) -> subprocess.CompletedProcess[str]:
        """To its end; timeout in s."""
        return run_whole(self.command(*words, shown=shown), timeout)

    def say(self, *words: str, shown: Mapping[str, Path] = {}, timeout: float = COMMAND_S) -> str:
        """What it prints; it is to succeed."""
        done = self.run(*words, shown=shown, timeout=timeout)
        assert done.returncode == 0, f"{self.suite}: {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def apt(self, *words: str, shown: Mapping[str, Path] = {}, timeout: float = COMMAND_S) -> str:
        return self.say("apt-get", "-q", "-y", "-o", "Dpkg::Use-Pty=0", "--no-install-recommends", *words, shown=shown,
                        timeout=timeout)

    def path(self, name: str) -> Path:
        """Of a file in the root, named as it is there."""
        return self.directory / name.lstrip("/")


def proxies() -> dict[str, str]:
    """debootstrap does not ask apt for the machine's proxies."""
    found = {}
    for scheme in ("http", "https"):
        done = run_whole(["apt-config", "shell", "PROXY", f"Acquire::{scheme}::Proxy"], 30)
        if (said := re.search(r"'(.+)'", done.stdout)) and said[1] != "DIRECT":
            found[f"{scheme}_proxy"] = said[1]
    return found


def bootstrap(suite: str, directory: Path, depends: str) -> None:
    """A minimal system of that suite with what is wanted, in apt's syntax, and the tools."""
    mirror = mirrors()["main"]
    environment = [f"{name}={value}" for name, value in proxies().items()]
    done = run_whole(["env", *environment, "debootstrap", "--variant=minbase", f"--keyring={KEYRING}", suite,
                      str(directory), mirror], MAKING_S)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no reason given"]
        raise Unavailable(f"debootstrap {suite}: {' '.join(lines[-3:])}")
    root = Root(suite, directory)
    # as `apt-get install` of the packages would have it
    for words in (("update",), ("install", *TOOLS), ("satisfy", depends)):
        done = root.run("env", *environment, "apt-get", "-q", "-y", "--no-install-recommends", *words, timeout=MAKING_S)
        if done.returncode:
            raise Unavailable(f"{suite}: apt-get {' '.join(words)}: {(done.stderr or done.stdout).strip()[-600:]}")
    root.say("apt-get", "clean")


def archive(suite: str, depends: str) -> Path:
    """That root as a tar file. An old one is taken where the mirror does not answer."""
    places = cache() / "roots"
    places.mkdir(exist_ok=True)
    key = hashlib.sha256("\n".join((suite, depends, *TOOLS)).encode()).hexdigest()[:16]
    place = places / f"{suite}-{key}.tar"
    with locked(places / f".{suite}.lock"):
        if place.exists() and time.time() - place.stat().st_mtime < FRESH_S:
            return place
        try:
            with tempfile.TemporaryDirectory(prefix=f".{suite}-", dir=places) as temporary:
                print(f"packages: making a root of {suite}", file=sys.stderr, flush=True)
                root, new = Path(temporary) / "root", Path(temporary) / "new.tar"
                bootstrap(suite, root, depends)
                subprocess.run(["tar", "-C", root, "--exclude=./var/lib/apt/lists/*", "-cf", new, "."], check=True)
                for old in places.glob(f"{suite}-*.tar"):
                    old.unlink()
                new.rename(place)
        except (Unavailable, subprocess.TimeoutExpired, OSError) as error:
            if not place.exists():
                raise
            print(f"packages: taking the root of {suite} from the cache: {error}", file=sys.stderr)
    return place


@contextlib.contextmanager
def unpacked(suite: str, tar: Path) -> Iterator[Root]:
    """A root of its own, for as long as it is wanted."""
    with tempfile.TemporaryDirectory(prefix=f"nagletrace-{suite}-", ignore_cleanup_errors=True) as directory:
        os.chmod(directory, 0o755)  # what runs in it is not root only
        subprocess.run(["tar", "-C", directory, "-xpf", tar], check=True)
        yield Root(suite, Path(directory))


#: What dpkg, apt and their triggers write down for themselves, and what is the machine's.
NOT_COMPARED = re.compile(r"(proc|sys|dev|tmp|var/lib/(dpkg|apt|rpm)|var/cache/(apt|debconf|man|ldconfig)|var/log)/")
#: The accounts. A user stays when its package goes, lest another gets its number and its files.
ACCOUNTS = re.compile(r"etc/(passwd|group|shadow|gshadow)-?")


def contents(root: Root) -> dict[str, str]:
    """A digest of each file of the root that a package may own, "" for a directory; accounts without the daemon's."""
    found: dict[str, str] = {}
    for directory, names, files in os.walk(root.directory):
        below = "" if Path(directory) == root.directory else f"{Path(directory).relative_to(root.directory)}/"
        names[:] = [name for name in names if not NOT_COMPARED.match(f"{below}{name}/")]
        found.update(dict.fromkeys((f"{below}{name}" for name in names), ""))
        for name in files:
            path = Path(directory) / name
            if path.is_symlink():
                data = os.readlink(path).encode()
            elif not path.is_file():
                data = b"no file"
            elif ACCOUNTS.fullmatch(f"{below}{name}"):
                if name.endswith("-"):
                    continue  # the state before the last change
                lines = path.read_bytes().splitlines(keepends=True)
                data = b"".join(line for line in lines if not line.startswith(b"nagletrace:"))
            else:
                data = path.read_bytes()
            found[f"{below}{name}"] = hashlib.sha256(data).hexdigest()
    return found
