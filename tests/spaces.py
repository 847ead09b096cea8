# SPDX-License-Identifier: GPL-2.0
"""Network namespaces of the tests' own, and the bench's loads played in them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LOAD = Path(os.environ.get("NAGLETRACE_BUILD", Path(__file__).resolve().parent.parent / "build")) / "bench" / "load"

#: Of the servers.
FIRST_PORT = 7000
#: Loads of many connections, which wait for the word to begin.
MANY = ("server", "stall", "blocked")

Counts = dict[str, Any]

CLONE_NEWNET = 0x40000000  # linux/sched.h


def enter_network(path: Path) -> None:
    """Moves this thread, and what it starts, to the network namespace that a file names, /proc/PID/ns/net."""
    with path.open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def leave_network() -> None:
    """Moves this thread, and what it starts, to a new network namespace with lo up."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


@contextlib.contextmanager
def inside_network(path: Path) -> Iterator[None]:
    """What the block's thread opens and starts is in the network namespace that a file names."""
    ours = Path("/proc/thread-self/ns/net").open()
    enter_network(path)
    try:
        yield
    finally:
        with ours:
            enter_network(Path(f"/proc/self/fd/{ours.fileno()}"))


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

    def inside(self) -> contextlib.AbstractContextManager[None]:
        """What the block's thread opens and starts is in this namespace."""
        return inside_network(Path(f"/proc/{self.holder.pid}/ns/net"))

    def enter(self, *command: object) -> list[str]:
        return ["nsenter", "-t", str(self.holder.pid), "-n", *map(str, command)]

    def counter(self, name: str) -> int:
        return counter_of(Path(f"/proc/{self.holder.pid}/net/netstat").read_text(), name)


def counter_of(netstat: str, name: str) -> int:
    """Of the content of /proc/net/netstat, as TcpExtDelayedACKs."""
    lines = netstat.splitlines()
    for names, values in zip(lines[::2], lines[1::2]):
        prefix, _, rest = names.partition(": ")
        found = dict(zip(rest.split(), values.partition(": ")[2].split()))
        if name.startswith(prefix) and name.removeprefix(prefix) in found:
            return int(found[name.removeprefix(prefix)])
    raise KeyError(name)


def fdinfo(pid: int, key: str) -> dict[str, dict[str, str]]:
    """What the kernel says of the BPF objects that a process holds, by their id; key is prog_id or map_id."""
    found = {}
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        fields = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
        fields = {name: value.strip() for name, value in fields.items()}
        if key in fields and (key == "map_id" or "run_cnt" in fields):
            found[fields[key]] = fields
    return found


def load(space: Namespace, mode: str, seconds: float, connections: int | None = None,
         preexec: Callable[[], None] | None = None, warm_up: float = 0, patience: float = 60.0) -> Counts:
    """What build/bench/load counted; as many of them as their descriptors ask for, which begin together.

    Raises subprocess.TimeoutExpired if it takes `patience` s longer than ten times its own.
    """
    counts = shares(connections) if connections else [None]
    processes = []
    try:
        for i, count in enumerate(counts):
            more = [count or 0, FIRST_PORT + i, warm_up] if count or warm_up else []
            command = space.enter(LOAD, mode, seconds, *more)
            processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                              stderr=subprocess.PIPE, preexec_fn=preexec))
        if connections != 1 and mode in MANY:
            for process in processes:
                assert process.stderr and process.stderr.readline() == "connected\n"
            for process in processes:
                assert process.stdin
                process.stdin.write("\n")
                process.stdin.flush()
        told = [process.communicate(timeout=seconds * 10 + patience) for process in processes]
        if any(process.returncode for process in processes):
            raise RuntimeError("".join(errors for _, errors in told))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    results = [json.loads(out) for out, _ in told]
    return {**results[0], "seconds": max(one["seconds"] for one in results),
            **{key: sum(one[key] for one in results) for key in ("connections", "operations", "stalled")}}


def shares(connections: int) -> list[int]:
    """What each of the loads has of them; each end of a connection is a descriptor of its process."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 100
    loads = -(-connections // most)
    return [connections // loads + (i < connections % loads) for i in range(loads)]
