# SPDX-License-Identifier: GPL-2.0
"""Runs processes as other users, asks /proc of them, waits for what they do, and ends them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
import typing
from collections.abc import Callable
from pathlib import Path

PATIENCE = 60.0  # in s
T = typing.TypeVar("T")


class Ends:
    """Has a close(), which the end of its `with` block calls."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> typing.Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def by_user(uid: int) -> tuple[str, ...]:
    """What goes before a command so that it runs as that user, with no group and no capability."""
    return "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"


NOBODY = by_user(65534)


def fields_of(text: str) -> dict[str, str]:
    return dict(re.findall(r"^(\w+):\t(.*)$", text, re.MULTILINE))


def status(pid: int) -> dict[str, str]:
    """The fields of /proc/PID/status: proc(5)."""
    return fields_of(Path(f"/proc/{pid}/status").read_text())


def kilobytes(pid: int, name: str) -> int:
    """One of its sizes: VmRSS, VmHWM, …"""
    return int(status(pid)[name].split()[0])


def children(pid: int) -> list[int]:
    """None of one that has ended."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def descriptors(pid: int) -> list[str]:
    """What its descriptors refer to, without those that it closes meanwhile."""
    links = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(os.readlink(link))
    return links


def said_of_descriptors(pid: int, pattern: str) -> list[str]:
    """What the kernel says of its descriptors, without those that it closes meanwhile: /proc/PID/fdinfo."""
    found = []
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += re.findall(pattern, info.read_text(), re.MULTILINE)
    return found


def map_bytes(pid: int) -> int:
    """What the kernel charges it for its BPF maps and programs."""
    return sum(map(int, said_of_descriptors(pid, r"^memlock:\s+(\d+)$")))


def cpu_s(pid: int, *, of_children: bool = False) -> float:
    """The time on a CPU that it has used, or the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[13:15] if of_children else fields[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_until(what: str, true: Callable[[], T | None], patience: float = PATIENCE, why: Callable[[], object] = str
               ) -> T:
    """Returns what is true then. Fails with its name, and what `why` tells, when that does not come in this time."""
    end = time.monotonic() + patience
    while not (found := true()):
        assert time.monotonic() < end, f"{what}: not in {patience:.0f} s\n{why()}"
        time.sleep(0.05)
    return found


def listens(port: int) -> bool:
    """Whether somebody does, on loopback."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until_listening(process: subprocess.Popen[typing.Any], port: int, why: Callable[[], object] = str) -> None:
    """Fails at once if the process has ended, and no other listens there."""
    def there() -> bool:
        listening = listens(port)
        assert listening or process.poll() is None, f"{process.args} has ended\n{why()}"
        return listening

    wait_until(f"{process.args} listens at {port}", there, why=why)


def kill(process: subprocess.Popen[typing.Any]) -> None:
    """Nothing of one that has ended."""
    if process.poll() is None:
        process.kill()
        process.wait()


def end(process: subprocess.Popen[typing.Any], patience: float = 5.0, how: signal.Signals = signal.SIGTERM) -> None:
    """By this signal, or by SIGKILL if it is there after that time."""
    process.send_signal(how)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    kill(process)
