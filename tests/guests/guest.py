#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Runs a command of the repository in an emulated guest with another kernel, and brings its results back.

guest.py --kernel 6.1 --results DIR [--timeout S] -- COMMAND…

The guest sees this machine's file system; of what it writes only DIR stays. Its exit code is the command's; 70: the
guest died, 124: it took too long, 77: the kernel or the emulator cannot be had (one line says why).
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kernels import Unavailable, cache, obtain

ROOT = Path(__file__).resolve().parent.parent.parent
VIRTME = "virtme-ng==1.42"
DIED, TOO_LONG, UNAVAILABLE = 70, 124, 77

#: What runs in the guest, as its only program. The results directory is a mount of the host's.
SCRIPT = """#!/bin/bash
exec >{log} 2>&1
mountpoint -q /sys/fs/bpf || mount -t bpf none /sys/fs/bpf
mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing
ip link set lo up
export PATH=$PATH:/usr/sbin:/sbin HOME=/tmp NAGLETRACE_GUEST={kernel} PYTHONDONTWRITEBYTECODE=1
cd {root} && {command}
echo $? >{code}.new && mv {code}.new {code} && sync
"""


def virtme() -> Path:
    """The emulator's front end, in a virtual environment in the cache."""
    place = cache() / f"venv-{VIRTME.replace('==', '-')}"
    if (place / "bin" / "vng").exists():
        return place / "bin"
    work = Path(tempfile.mkdtemp(prefix=".venv-", dir=place.parent))
    try:
        # a virtual environment cannot be moved: it is made in its place, and marked whole by its last file
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run(["/usr/bin/python3", "-m", "venv", str(place)], check=True, capture_output=True)
        subprocess.run([str(place / "bin" / "pip"), "install", "-q", VIRTME], check=True, capture_output=True,
                       timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(place, ignore_errors=True)
        raise Unavailable(f"{VIRTME}: {error}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return place / "bin"


def watch(process: subprocess.Popen[bytes], console: int, code: Path, timeout: float) -> bytes:
    """Reads the console until the guest is gone; returns its last words."""
    deadline = time.monotonic() + timeout
    words = b""
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise TimeoutError
        ready, _, _ = select.select([console], [], [], 0.5)
        if not ready:
            continue
        try:
            words = (words + os.read(console, 65536))[-4000:]
        except OSError:  # the pty's other side is closed
            process.wait(10)
    return words


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends the emulator with all it started: they are one process group."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            return
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue


def show_log(log: Path) -> None:
    if log.exists():
        sys.stdout.write(log.read_text(errors="replace"))
        sys.stdout.flush()


def run_in_guest(name: str, command: list[str], results: Path, timeout: float) -> int:
    kernel, tools = obtain(name), virtme()
    results = results.resolve()
    results.mkdir(parents=True, exist_ok=True)
    log, code = results / "log.txt", results / "exit-code"
    for leftover in (log, code):
        leftover.unlink(missing_ok=True)
    script = results / "guest.sh"
    script.write_text(SCRIPT.format(log=log, code=code, kernel=name, root=shlex.quote(str(ROOT)),
                                    command=shlex.join(command)))
    script.chmod(0o755)
    # without a terminal it prints nothing and ends early; the console shows more than the script's pipe does
    master, slave = pty.openpty()
    process = subprocess.Popen(
        ["vng", "--verbose", "--disable-kvm", "--force-9p", "-r", str(kernel), "--cpus", "2", "-m", "2G",
         f"--rwdir={results}", "--exec", str(script)],
        cwd=ROOT, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}:/usr/sbin:/sbin"})
    os.close(slave)
    try:
        words = watch(process, master, code, timeout)
    except TimeoutError:
        show_log(log)
        print(f"guest: kernel {name}: not done after {timeout:.0f} s", file=sys.stderr)
        return TOO_LONG
    finally:
        end(process)
        os.close(master)
        script.unlink(missing_ok=True)
    show_log(log)
    if not code.exists():
        sys.stderr.write(words.decode(errors="replace"))
        print(f"\nguest: kernel {name}: died before the command ended", file=sys.stderr)
        return DIED
    return int(code.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", required=True)
    parser.add_argument("--results", required=True, type=Path)
    parser.add_argument("--timeout", type=float, default=900)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    try:
        return run_in_guest(arguments.kernel, arguments.command, arguments.results, arguments.timeout)
    except Unavailable as reason:
        print(f"guest: kernel {arguments.kernel} cannot be had: {reason}", file=sys.stderr)
        return UNAVAILABLE


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
