#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Runs a command in an emulated guest that boots another kernel, and brings its results back.

The guest sees this machine's files and can change none of them but those in the results directory.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from debian import Unavailable, cache, locked, run_whole
from kernels import KERNELS, Kernel, obtain

ROOT = Path(__file__).resolve().parent.parent.parent
VIRTME = "virtme-ng==1.42"

#: Exit codes of our own; every other one is the command's.
DIED = 70
UNAVAILABLE = 77
TOO_LONG = 124

#: After the command has ended the guest may take this long to power off; then it is ended.
POWER_OFF_S = 20.0
#: So many lines of the console are shown when a guest dies.
LAST_LINES = 30

#: What runs in the guest. The file systems there are the machine's, read-only or with a layer that
#: is thrown away. /tmp becomes empty, so that leftovers of the machine's tests do not leak in; what
#: the guest needs from below it is bound back.
SCRIPT = """\
main() {{
	mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf
	mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
	mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
	ip link set lo up
	i=0
	for path in {kept}; do
		i=$((i + 1))
		mkdir -p /run/kept/$i && mount --rbind "$path" /run/kept/$i
	done
	mount -t tmpfs -o mode=1777 tmpfs /tmp
	i=0
	for path in {kept}; do
		i=$((i + 1))
		mkdir -p "$path" && mount --rbind /run/kept/$i "$path"
	done
	cd {root} || exit
	env -i {environment} {command} </dev/null >>{log} 2>&1
	code=$?
	echo $code >{code}.new && mv {code}.new {code}
	exit $code
}}
main
"""


class Interrupted(Exception):
    """A signal asks us to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@dataclass(frozen=True)
class Machine:
    """The emulated machine."""

    cpus: int = 2
    memory: str = "2G"
    #: its clock moves one ns an instruction, so that what is done in a second does not depend on this machine
    counted: bool = False


@dataclass
class Run:
    """The files of one run, in the results directory, which is the host's in the guest too."""

    results: Path
    log: Path = field(init=False)
    code: Path = field(init=False)
    console: Path = field(init=False)

    def __post_init__(self) -> None:
        self.results = self.results.resolve()
        for path in (self.results, ROOT):
            if any(not (c.isalnum() or c in "/._+-~") for c in str(path)):
                raise ValueError(f"{path}: the emulator takes no such path")
        self.results.mkdir(parents=True, exist_ok=True)
        self.log = self.results / "log.txt"
        self.code = self.results / "exit-code"
        self.console = self.results / "console.txt"
        for leftover in (self.log, self.code, self.console):
            leftover.unlink(missing_ok=True)
        self.log.touch()

    def exit_code(self) -> int | None:
        """The command's, or None while it runs or when it never ended."""
        try:
            return int(self.code.read_text())
        except (OSError, ValueError):
            return None

    def last_lines(self) -> str:
        text = self.console.read_text(errors="replace") if self.console.exists() else ""
        lines = [line.rstrip() for line in text.replace("\r", "").split("\n") if line.strip()]
        return "\n".join(f"console: {line}" for line in lines[-LAST_LINES:])


# ---- what is needed ----


def host_path(*before: Path) -> str:
    return ":".join([*map(str, before), os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def require_tools() -> None:
    """vng wants `file`, or `strings`, to learn a kernel's version, and dies when it has neither."""
    wanted = {"qemu-system-x86": ("qemu-system-x86_64",), "busybox-static": ("busybox",),
              "kmod": ("depmod",), "file": ("file", "strings")}
    for package, tools in wanted.items():
        if not any(shutil.which(tool, path=host_path()) for tool in tools):
            raise Unavailable(f"{tools[0]} is not installed (Debian package {package})")


def virtme() -> Path:
    """The directory with vng in it: a virtual environment in the cache, whole once it is marked."""
    place = cache() / f"{VIRTME.replace('==', '-')}-python{sys.version_info.major}.{sys.version_info.minor}"
    mark = place / "complete"
    with locked(place.with_name(f".{place.name}.lock")):
        if mark.exists() and (place / "bin" / "vng").exists():
            return place / "bin"
        # it cannot be made elsewhere and renamed: its scripts name the place they were made for
        shutil.rmtree(place, ignore_errors=True)
        print(f"guest: installing {VIRTME} in the cache", file=sys.stderr, flush=True)
        for command in (["/usr/bin/python3", "-m", "venv", str(place)],
                        [str(place / "bin" / "python3"), "-m", "pip", "install", "-q", VIRTME]):
            try:
                done = run_whole(command, 600)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise Unavailable(f"{VIRTME}: {error}") from error
            if done.returncode:
                lines = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
                raise Unavailable(f"{VIRTME}: {lines[-1]}")
        mark.touch()
    return place / "bin"


# ---- the guest ----


def host_has_tsc() -> bool:
    """Whether this machine keeps time by its TSC, which an emulated one hands through."""
    path = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    with contextlib.suppress(OSError):
        return path.read_text().strip() == "tsc"
    return False


def guest_script(kernel: Kernel, command: list[str], run: Run) -> str:
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/tmp", "LANG": "C.UTF-8", "TERM": "dumb", "USER": "root",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NAGLETRACE_GUEST": kernel.name, "NAGLETRACE_RESULTS": str(run.results),
    }
    needed = {ROOT, run.results, cache().resolve()}
    below_tmp = [path for path in sorted(needed) if Path("/tmp") in path.parents]
    outermost = [path for path in below_tmp if not any(up in below_tmp for up in path.parents)]
    return SCRIPT.format(
        kept=shlex.join(map(str, outermost)), root=shlex.quote(str(ROOT)),
        environment=shlex.join(f"{key}={value}" for key, value in environment.items()),
        command=shlex.join(command), log=shlex.quote(str(run.log)), code=shlex.quote(str(run.code)))


def vng_command(kernel: Kernel, machine: Machine, run: Run, script: Path) -> list[str]:
    # an oops would leave a test hanging: as a panic it ends the guest at once (vng adds panic=-1)
    append = ["oops=panic"]
    # where this machine gives the emulator no time, the kernel finds at its start that the timer does not tick
    append.append("no_timer_check")
    if host_has_tsc():
        # the kernel mistrusts an emulated TSC and takes the HPET, at 700 ns a reading and not 50
        append.append("tsc=reliable")
    counted = " -icount shift=0,sleep=off" if machine.counted else ""
    options = ["--disable-kvm", "--force-9p", "--verbose", "--user", "root",
               "--cpus", str(machine.cpus), "--memory", machine.memory,
               # one host thread for all CPUs: with a thread each, one may run what another has just patched (the
               # kernel's jump labels, which tracepoints switch) as it was, and dies of a stale int3
               f"--qemu-opts=-accel tcg,thread=single{counted}",
               "--cwd", str(ROOT), "--rwdir", str(run.results)]
    for word in append:
        options += ["--append", word]
    command = f"bash {shlex.quote(str(script))}"
    return ["vng", "--run", str(kernel.image), *options, "--exec", command]


@contextlib.contextmanager
def started(command: list[str], tools: Path, temporary: Path
            ) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """vng on a terminal of its own, which it needs; nothing of it is left at the end.

    The terminal controls its session: should we be killed outright, the kernel hangs up on qemu.
    """
    environment = {**os.environ, "PATH": host_path(tools), "HOME": str(temporary),
                   "TMPDIR": str(temporary)}
    master, slave = pty.openpty()
    try:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    try:
        yield process, master
    finally:
        end(process)
        os.close(master)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process group that vng leads: vng, virtme-run and qemu."""
    for how, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            process.poll()  # reaps the leader
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.02)


class Follower:
    """Copies to our output what is appended to a file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")

    def copy(self) -> None:
        while block := self._file.read(65536):
            sys.stdout.buffer.write(block)
        sys.stdout.flush()

    def close(self) -> None:
        self.copy()
        self._file.close()


class Console:
    """Keeps what comes from the guest's terminal."""

    def __init__(self, terminal: int, path: Path) -> None:
        self._terminal = terminal
        self._file = path.open("wb", buffering=0)

    def copy(self, wait: float) -> bool:
        """False when nothing came in that time."""
        if not select.select([self._terminal], [], [], wait)[0]:
            return False
        try:
            self._file.write(os.read(self._terminal, 65536))
        except OSError:  # nobody has the other side open any more
            time.sleep(min(wait, 0.05))
            return False
        return True

    def close(self) -> None:
        while self.copy(0):
            pass
        self._file.close()


def watch(process: subprocess.Popen[bytes], terminal: int, run: Run, timeout: float) -> bool:
    """Follows the guest to its end; false when the time was over before."""
    deadline = time.monotonic() + timeout
    done = False
    with contextlib.closing(Console(terminal, run.console)) as console, \
            contextlib.closing(Follower(run.log)) as follower:
        while process.poll() is None:
            if time.monotonic() > deadline:
                return done
            console.copy(0.2)
            follower.copy()
            if not done and run.exit_code() is not None:
                done = True
                deadline = time.monotonic() + POWER_OFF_S
    return True


def run_in_guest(kernel: str, command: list[str], results: Path, timeout: float,
                 machine: Machine | None = None) -> int:
    """Runs the command at the repository's root in a guest with that kernel; returns its exit code.

    DIED when the guest ended before the command did, TOO_LONG when boot and command were not done
    in `timeout` seconds. Raises Unavailable when the kernel or the emulator cannot be had.
    """
    require_tools()
    image, tools, run = obtain(kernel), virtme(), Run(results)
    with tempfile.TemporaryDirectory(
            prefix="nagletrace-guest-", ignore_cleanup_errors=True) as temporary:
        script = Path(temporary) / "guest.sh"
        script.write_text(guest_script(image, command, run))
        vng = vng_command(image, machine or Machine(), run, script)
        with started(vng, tools, Path(temporary)) as (process, terminal):
            in_time = watch(process, terminal, run, timeout)
    code = run.exit_code()
    if code is not None:
        return code
    what = "died before the command ended" if in_time else f"ended, not done after {timeout:.0f} s"
    print(f"{run.last_lines()}\nguest: kernel {kernel}: {what}; see {run.results}", file=sys.stderr)
    return DIED if in_time else TOO_LONG


# ---- the command line ----


def interrupt(number: int, frame: FrameType | None) -> None:
    for again in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(again, signal.SIG_IGN)  # a second one must not break the clearing up
    raise Interrupted(number)


def parser() -> argparse.ArgumentParser:
    own = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"Exit code: the command's; {DIED} the guest died, {TOO_LONG} it took too long, "
               f"{UNAVAILABLE} kernel or emulator cannot be had.")
    own.add_argument("--kernel", required=True, metavar="NAME", help=", ".join(KERNELS))
    own.add_argument("--results", required=True, type=Path, metavar="DIR",
                     help="writable in the guest; gets log.txt, console.txt and exit-code")
    own.add_argument("--timeout", type=float, default=900, metavar="S",
                     help="for boot and command together; 900")
    own.add_argument("--cpus", type=int, default=Machine.cpus, metavar="N", help="2")
    own.add_argument("--memory", default=Machine.memory, metavar="SIZE", help="2G")
    own.add_argument("--counted", action="store_true",
                     help="a clock that moves one ns an instruction; give --cpus 1")
    own.add_argument("command", nargs="+", metavar="COMMAND", help="after --")
    return own


def main() -> int:
    arguments = parser().parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    machine = Machine(arguments.cpus, arguments.memory, arguments.counted)
    try:
        return run_in_guest(arguments.kernel, arguments.command, arguments.results,
                            arguments.timeout, machine)
    except Unavailable as reason:
        text = " ".join(str(reason).split())
        print(f"guest: kernel {arguments.kernel} cannot be had: {text}", file=sys.stderr)
        return UNAVAILABLE
    except ValueError as error:
        print(f"guest: {error}", file=sys.stderr)
        return 2
    except Interrupted as how:
        print(f"guest: kernel {arguments.kernel}: ended by {how}", file=sys.stderr)
        return 128 + how.number


if __name__ == "__main__":
    sys.exit(main())
