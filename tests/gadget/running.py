# SPDX-License-Identifier: GPL-2.0
"""Runs the gadget by `ig run`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gadgets
from harness import IN_GUEST, PATIENCE, Lines
from processes import Ends
from spaces import fdinfo

Event = dict[str, Any]

#: ig wants the kernel's file systems of debugging and tracing; $1 is the directory that is /var/lib in there. Where the
#: first process is hidden, ig looks at the first one of a PID namespace.
ENTER = """\
mount --bind "$1" /var/lib
shift
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
mountpoint -q /sys/kernel/debug/tracing || mount -t tracefs tracefs /sys/kernel/debug/tracing
mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf
stat -L /proc/1/ns/mnt >/dev/null 2>&1 || exec unshare --pid --fork --mount-proc --kill-child=INT "$@"
exec "$@"
"""
#: In s, for ig's start.
START = 600.0 if IN_GUEST else 60.0


class Gadgets:
    def __init__(self, archive: Path, store: Path) -> None:
        self.ig, self.store = archive.with_name("ig").resolve(), store
        if IN_GUEST:
            # ig takes minutes to start there, and longer from the machine's files, whose pages come one by one
            self.ig = Path(shutil.copy(self.ig, store.with_name("ig")))
            shutil.copytree(archive.with_name("store"), store, dirs_exist_ok=True)
            return
        done = subprocess.run(self.command("image", "import", archive), capture_output=True, text=True, timeout=START)
        assert done.returncode == 0, done.stderr
        assert gadgets.image() in done.stdout + done.stderr

    def command(self, *arguments: object) -> list[str]:
        return ["unshare", "--mount", "--propagation", "private", "sh", "-euc", ENTER, "sh", str(self.store),
                str(self.ig), *map(str, arguments)]

    def run(self, *arguments: str, whole_host: bool = True) -> Running:
        """Of the whole host or of containers only, attached when this returns; a local image has no signature."""
        host = ["--host"] if whole_host else []
        return Running(self.command("run", gadgets.image(), "--verify-image=false", "--pull", "never", *host,
                                    "--verbose", "--output", "json", *arguments))


class Running(Ends):
    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.errors, self.lines = Lines(self.process.stderr), Lines(self.process.stdout)
        try:
            self.errors.wait_for("msg=running", START)
        except BaseException:
            self.close()
            raise

    def events(self) -> list[Event]:
        return [json.loads(line) for _, line in self.lines.all]

    def of(self, *connections: Event) -> list[Event]:
        """The events of these connections of a lab, from either end."""
        wanted = [{one["client"], one["server"]} for one in connections]
        return [event for event in self.events() if {endpoint(event["src"]), endpoint(event["dst"])} in wanted]

    def wait_for(self, count: int, tell: Callable[[], list[Event]]) -> list[Event]:
        """Waits until it has told so many of these. More may come."""
        end = time.monotonic() + PATIENCE
        while len(told := tell()) < count and time.monotonic() < end:
            time.sleep(0.05)
        return told

    def variables(self) -> Event:
        """The programs' own, as the kernel has them."""
        ids = set()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.getsid(int(process.name)) == self.process.pid:
                    ids |= fdinfo(int(process.name), "map_id").keys()
        told = {}
        for number in ids:
            name = bpftool("map", "show", "id", number)["name"]
            if name.endswith((".bss", ".data")):
                [section] = bpftool("map", "dump", "id", number)
                [values] = section["formatted"]["value"].values()
                told.update({name: value for one in values for name, value in one.items()})
        return told

    def stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)
        assert self.process.wait(PATIENCE) == 0, self.errors.text()[-2000:]
        self.lines.finish()

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def bpftool(*arguments: str) -> Any:
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    done = subprocess.run(["bpftool", "--json", *arguments], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, "PATH": path}, check=True)
    return json.loads(done.stdout)


def endpoint(end: Event) -> str:
    return f"{end['addr']}:{end['port']}" if end["version"] == 4 else f"[{end['addr']}]:{end['port']}"
