# SPDX-License-Identifier: GPL-2.0
"""Output that nobody reads. A command may wait for its reader, but not longer than until a signal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import NAGLETRACE, PATIENCE, Lab, Lines, Tracer, assert_valid, dropped, seconds_to_end, stalled_rounds
from processes import children, descriptors, kill, status
from scripted_daemon import FakeDaemon, Stalling, connection
from terminal import Terminal

CTRL_S = b"\x13"
#: fcntl.h; Python's fcntl has it from 3.10 on, its types later.
F_SETPIPE_SZ = 1031
LEAST_PIPE = 4096
#: SECURITY.md promises a second; the rest is a slow machine's, in s.
SIGNAL_TAKES = 3.0
#: What SECURITY.md promises, in s.
AT_ONCE = 1.0
#: So long a start may take here, in s, and at so many moments of it each command is ended.
START, MOMENTS = 0.6, 15


class Pipe:
    """A pipe as small as pipes can be."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        fcntl.fcntl(self.writing, F_SETPIPE_SZ, LEAST_PIPE)

    def fill(self) -> None:
        """Others may have written a part of it."""
        os.set_blocking(self.writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.writing, b"x")
        os.set_blocking(self.writing, True)

    def close(self) -> None:
        for fd in (self.reading, self.writing):
            with contextlib.suppress(OSError):
                os.close(fd)


@contextlib.contextmanager
def nagletrace(*arguments: str, pipe: Pipe, errors_too: bool = False) -> Iterator[tuple[subprocess.Popen[str], Lines]]:
    """Writes into the pipe: its stdout, and if so its stderr too."""
    command = [str(NAGLETRACE), *arguments]
    if arguments[0] != "sample" and Tracer.hooks != "auto":
        command += ["--hooks", Tracer.hooks]
    process = subprocess.Popen(command, stdout=pipe.writing, text=True,
                               stderr=pipe.writing if errors_too else subprocess.PIPE)
    errors = Lines([] if errors_too else process.stderr)
    try:
        yield process, errors
    finally:
        kill(process)
        pipe.close()


def wait_until(process: subprocess.Popen[str], signals: str) -> None:
    """Until SIGINT is one of these of its signals: SigBlk, those that it blocks; SigCgt, those that have a handler.

    libc blocks all for a moment, SIGUSR1 too, as it makes a thread."""
    end = time.monotonic() + PATIENCE
    both = 1 << signal.SIGINT - 1 | 1 << signal.SIGUSR1 - 1
    while int(status(process.pid)[signals], 16) & both != 1 << signal.SIGINT - 1:
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.001)


def wait_until_it_takes_signals(process: subprocess.Popen[str]) -> None:
    """Until it blocks them, they end it by themselves."""
    wait_until(process, "SigBlk")


def wait_until_it_loads(process: subprocess.Popen[str]) -> int:
    """Returns the process that strace runs, once it has made a map."""
    end = time.monotonic() + PATIENCE
    while True:
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
        for pid in children(process.pid):
            with contextlib.suppress(OSError):  # it may be strace's own, or have closed one
                if "anon_inode:bpf-map" in descriptors(pid):
                    return pid


@pytest.mark.parametrize("arguments,how", [([], signal.SIGINT), (["--json", "--stacks"], signal.SIGTERM),
                                           (["daemon"], signal.SIGTERM)])
def test_a_signal_ends_a_slow_start_while_nobody_reads(arguments: list[str], how: signal.Signals, tmp_path: Path
                                                       ) -> None:
    """As slow as on a kernel whose verifier takes long: strace delays each of its calls of bpf()."""
    pipe = Pipe()
    pipe.fill()
    if arguments == ["daemon"]:
        arguments = ["daemon", "--socket", str(tmp_path / "socket")]
    slow = ["strace", "-qq", "-o", "/dev/null", "-e", "trace=bpf", "-e", "inject=bpf:delay_enter=50000"]
    process = subprocess.Popen([*slow, str(NAGLETRACE), *arguments, "--hooks", Tracer.hooks], stdout=pipe.writing,
                               stderr=pipe.writing, text=True)
    try:
        pid = wait_until_it_loads(process)
        began = time.monotonic()
        os.kill(pid, how)
        try:
            assert process.wait(PATIENCE) == 0
            assert time.monotonic() - began < AT_ONCE
        finally:
            with contextlib.suppress(ProcessLookupError):  # strace would leave it alone
                os.kill(pid, signal.SIGKILL)
    finally:
        kill(process)
        pipe.close()


def end_at(after: float, arguments: list[str], how: signal.Signals, read: bool) -> float:
    """Returns how long a signal took to end it, sent so long after its start, by whatever it was doing then."""
    pipe = Pipe()
    if not read:
        pipe.fill()
    terminal, own = os.openpty()
    if read:
        threading.Thread(target=read_all, args=(terminal,), daemon=True).start()
    output = own if arguments == ["top"] else subprocess.DEVNULL if read else pipe.writing
    hooks = [] if arguments[0] == "sample" else ["--hooks", Tracer.hooks]
    process = subprocess.Popen([str(NAGLETRACE), *arguments, *hooks], stdin=own, stdout=output, stderr=output,
                               text=True)
    try:
        time.sleep(after)
        return seconds_to_end(process, how)
    finally:
        kill(process)
        pipe.close()
        os.close(own)
        if not read:
            os.close(terminal)


def read_all(terminal: int) -> None:
    with contextlib.suppress(OSError):  # its other end is closed
        while os.read(terminal, 1 << 16):
            pass
    os.close(terminal)


@pytest.mark.parametrize("read", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("arguments", [["--json"], ["--timeline", "--stacks"], ["daemon", "--socket", "SOCKET"],
                                       ["sample", "1"], ["top"]], ids=lambda arguments: arguments[0].strip("-"))
def test_a_signal_takes_effect_within_a_second_at_any_moment(arguments: list[str], read: bool, tmp_path: Path) -> None:
    """From exec() on, before `ready` and just after it."""
    arguments = [str(tmp_path / "socket") if word == "SOCKET" else word for word in arguments]
    took = {}
    for i in range(MOMENTS):
        how = signal.SIGTERM if i % 2 else signal.SIGINT
        took[START * i / MOMENTS] = end_at(START * i / MOMENTS, arguments, how, read)
    after = max(took, key=lambda moment: took[moment])
    print(f"the longest: {took[after]:.3f} s, {after:.3f} s after its start")
    assert took[after] < AT_ONCE


@pytest.mark.quick
def test_a_signal_before_ready_ends_it_without_a_word() -> None:
    """Also where the shell ignores SIGINT for it, as for a background job of a script."""
    for how in ("--default-signal=INT", "--ignore-signal=INT"):
        process = subprocess.Popen(["env", how, str(NAGLETRACE), "--hooks", Tracer.hooks], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            wait_until(process, "SigCgt")
            assert seconds_to_end(process) < AT_ONCE
        finally:
            process.kill()
        assert (*process.communicate(), process.returncode) == ("", "", 0)


@pytest.mark.parametrize("arguments,how", [
    pytest.param(["--all-holds"], signal.SIGINT, marks=pytest.mark.quick),
    (["--json"], signal.SIGTERM),
    (["sample", "1"], signal.SIGINT),
    (["--timeline"], signal.SIGTERM),
    (["--timeline", "--json"], signal.SIGINT),
])
def test_a_signal_ends_it_while_nobody_reads_its_output(arguments: list[str], how: signal.Signals) -> None:
    pipe = Pipe()
    with Lab("write-write-read", "--rounds", "3") as lab, nagletrace(*arguments, pipe=pipe) as (process, errors):
        errors.wait_for("nagletrace: ready")
        pipe.fill()
        assert stalled_rounds(lab.play())
        assert process.poll() is None
        assert seconds_to_end(process, how) <= SIGNAL_TAKES
        assert process.returncode == 1
    errors.finish()
    assert "nagletrace: cannot write the output: nobody reads it" in errors.text().splitlines()


def test_a_signal_ends_it_while_nobody_reads_its_messages_either() -> None:
    pipe = Pipe()
    pipe.fill()
    with nagletrace("--json", pipe=pipe, errors_too=True) as (process, _):
        wait_until_it_takes_signals(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 1


def test_a_signal_ends_the_daemon_while_nobody_reads_its_messages(tmp_path: Path) -> None:
    pipe = Pipe()
    pipe.fill()
    with nagletrace("daemon", "--socket", str(tmp_path / "socket"), pipe=pipe, errors_too=True) as (process, _):
        wait_until_it_takes_signals(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_after_its_duration_it_waits_for_its_reader_until_a_signal() -> None:
    pipe = Pipe()
    pipe.fill()
    with nagletrace("--json", "-d", "100ms", pipe=pipe) as (process, errors):
        wait_until_it_takes_signals(process)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)  # it would have given up by now
        assert seconds_to_end(process, signal.SIGINT) <= SIGNAL_TAKES
        assert process.returncode == 1
    errors.finish()
    assert "nobody reads it" in errors.text()


@pytest.mark.quick
def test_a_reader_that_comes_late_gets_everything() -> None:
    pipe = Pipe()
    with Lab("write-write-read", "--rounds", "12", "--connections", "4", "--own-netns") as lab, \
            nagletrace("--json", "--netns", str(lab.client), pipe=pipe) as (process, errors):
        errors.wait_for("nagletrace: ready")
        lab.play()
        os.close(pipe.writing)
        with os.fdopen(pipe.reading) as stream:
            lines = Lines(stream)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0, errors.text()
            lines.finish()
    records = [json.loads(line) for _, line in lines.all]
    for record in records:
        assert_valid(record)
    assert sum(len(line) for _, line in lines.all) > 4 * LEAST_PIPE
    assert [r["type"] for r in records].count("stall") == records[-1]["stalls"] > 10
    assert records[-1]["closing"] and not dropped(records[-1])


@pytest.mark.quick
def test_a_signal_ends_top_while_its_terminal_is_stopped(tmp_path: Path) -> None:
    with FakeDaemon(tmp_path / "socket", Stalling([connection(i) for i in range(40)])) as fake, \
            Terminal(str(NAGLETRACE), "top", "--socket", str(fake.path), "-i", "100ms") as top:
        top.wait_for("program-0[1000]")
        top.press(CTRL_S)
        drawn = -1
        while drawn != len(top.output):  # what it drew before
            drawn = len(top.output)
            with contextlib.suppress(subprocess.TimeoutExpired):
                top.process.wait(0.3)
        assert seconds_to_end(top.process, signal.SIGTERM) <= SIGNAL_TAKES
        assert top.ended() == 0
        assert top.state_at_end == top.state
