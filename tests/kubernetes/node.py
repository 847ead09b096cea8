# SPDX-License-Identifier: GPL-2.0
"""The parent of all that runs on the node: starts what its stdin asks for, a line of JSON each, and ends all of it when
stdin closes. What its children leave behind, as containers, becomes its own (PR_SET_CHILD_SUBREAPER).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def children(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    below = children(pid)
    return below + [one for child in below for one in descendants(child)]


def reap() -> None:
    """Waits for whoever has ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def end_all() -> None:
    """Some start others as they end, so it looks until there is none."""
    for _ in range(1000):
        left = descendants(os.getpid())
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap()
        time.sleep(0.02)


def main() -> int:
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        return 1
    print("ready", flush=True)

    def reap_now_and_then() -> None:
        while True:
            reap()
            time.sleep(0.5)

    threading.Thread(target=reap_now_and_then, daemon=True).start()
    try:
        for line in sys.stdin:
            asked = json.loads(line)
            with open(asked["log"], "w") as log:
                subprocess.Popen(asked["command"], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    finally:
        end_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
