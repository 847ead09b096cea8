# SPDX-License-Identifier: GPL-2.0
"""Cgroups named as kubelet and Docker name them, whichever version this host has mounted."""

from __future__ import annotations

import contextlib
import secrets
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

#: Version 2 where there is one, alone or beside version 1.
ROOTS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory"))


def into(directory: Path, *then: str) -> tuple[str, ...]:
    """What to put before a command that is to run in that cgroup, and `then` before the command."""
    return ("sh", "-c", f'echo $$ >{directory}/cgroup.procs && exec "$@"', "sh", *then)


class Place:
    """A cgroup of its own. path: as /proc/PID/cgroup shows it; no process is in it in the end."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.root = next(root for root in ROOTS if (root / "cgroup.procs").exists())
        self.directory = self.root / path.lstrip("/")
        self._made = [directory for directory in (*reversed(self.directory.parents), self.directory)
                      if self.root in directory.parents and not directory.exists()]

    @property
    def version_2(self) -> bool:
        return (self.root / "cgroup.controllers").exists()

    def take(self, pid: int) -> None:
        (self.directory / "cgroup.procs").write_text(str(pid))

    def enter(self, *then: str) -> tuple[str, ...]:
        return into(self.directory, *then)

    def __enter__(self) -> Place:
        for directory in self._made:
            directory.mkdir(exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        for directory in reversed(self._made):
            for _ in range(100):  # who was in it may be about to end
                with contextlib.suppress(OSError):
                    directory.rmdir()
                    break
                if any(child.is_dir() for child in directory.iterdir()):
                    break  # another test's
                time.sleep(0.1)


class Pod:
    """A pod of one container."""

    def __init__(self) -> None:
        self.uid, self.container = str(uuid.uuid4()), secrets.token_hex(32)
        self.path = f"/kubepods/burstable/pod{self.uid}"
        self.place = Place(f"{self.path}/{self.container}")

    def container_beside(self) -> Place:
        return Place(f"{self.path}/{secrets.token_hex(32)}")


@contextlib.contextmanager
def a_pod() -> Iterator[Pod]:
    pod = Pod()
    with pod.place:
        yield pod
