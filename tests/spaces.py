# SPDX-License-Identifier: GPL-2.0
"""Network namespaces of the tests' own, and the bench's loads played in them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOAD = Path(os.environ.get("NAGLETRACE_BUILD", Path(__file__).resolve().parent.parent / "build")) / "bench" / "load"

Counts = dict[str, Any]


class Namespace:
    """A network namespace with lo up and all ports for clients, held by a process that sleeps."""

    def __enter__(self) -> Namespace:
        # bounded, if we should end without ending it
        script = ("ip link set lo up && echo 10000 65000 >/proc/sys/net/ipv4/ip_local_port_range && echo up; "
                  "exec sleep 10000")
        self.holder = subprocess.Popen(["unshare", "-n", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout and self.holder.stdout.readline() == "up\n"
        return self

    def __exit__(self, *_: object) -> None:
        self.holder.kill()
        self.holder.wait()

    def enter(self, *command: object) -> list[str]:
        return ["nsenter", "-t", str(self.holder.pid), "-n", *map(str, command)]

    def counter(self, name: str) -> int:
        """Of /proc/net/netstat, as TcpExtDelayedACKs."""
        lines = Path(f"/proc/{self.holder.pid}/net/netstat").read_text().splitlines()
        for names, values in zip(lines[::2], lines[1::2]):
            prefix, _, rest = names.partition(": ")
            found = dict(zip(rest.split(), values.partition(": ")[2].split()))
            if name.startswith(prefix) and name.removeprefix(prefix) in found:
                return int(found[name.removeprefix(prefix)])
        raise KeyError(name)


def load(space: Namespace, mode: str, seconds: float, *more: object,
         preexec: Callable[[], None] | None = None) -> Counts:
    """What build/bench/load counted."""
    done = subprocess.run(space.enter(LOAD, mode, seconds, *more), capture_output=True, text=True, preexec_fn=preexec,
                          timeout=seconds * 10 + 60)
    if done.returncode:
        raise RuntimeError(done.stderr)
    told: Counts = json.loads(done.stdout)
    return told
