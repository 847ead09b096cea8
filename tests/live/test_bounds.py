# SPDX-License-Identifier: GPL-2.0
"""What one user does costs the tracer, and the other users, no more than SECURITY.md says."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import Daemon, lacking_in
from ends import far_end, own_end
from harness import (NAGLETRACE, PATIENCE, RING_RECORDS, Lab, Lines, Tracer, assert_felt, lacking, seconds_to_end,
                     slow_rounds, stalled_rounds)
from pods import Place
from processes import by_user, cpu_s, kilobytes, kill, wait_until

#: Its text is passed on: that user may not be let into the directory of this tree.
HOSTILE = Path(__file__).parent / "hostile_user.py"
#: Two users without any privilege; none of them need have a name.
MALLORY, ALICE = 65534, 1
#: A signal takes effect, and `health` is answered, in so many seconds.
AT_ONCE = 1.0
#: Of the daemon's memory.
MOST_BYTES = 64_000_000
#: Output of a timeline after which its events have outrun it.
FLOOD_BYTES = 20_000_000


@contextlib.contextmanager
def hostile(connections: int, duplicates: int, forks: int, names: int = 0,
            prefix: tuple[str, ...] = ()) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Runs hostile_user.py once all is there; with the port on which it stalls."""
    process = subprocess.Popen(
        [*prefix, *by_user(MALLORY), sys.executable, "-c", HOSTILE.read_text(),
         *map(str, (connections, duplicates, forks, names))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(PATIENCE)
        process.stdout.close()


def forget_peak(pid: int) -> None:
    """VmHWM begins anew: clear_refs, proc(5)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def watch(daemon: Daemon, seconds: float) -> float:
    """The slowest answer to `health` within that time."""
    slowest, until = 0.0, time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        assert daemon.ask("health")["type"] == "health"
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.05)
    return slowest


@pytest.mark.parametrize(("connections", "duplicates", "forks"), [(1, 2_000, 80), (600, 0, 120)],
                         ids=["duplicates", "forks"])
def test_many_descriptors_of_one_user_take_little_memory_and_hold_up_nothing(connections: int, duplicates: int,
                                                                            forks: int) -> None:
    """160,000 descriptors of a socket, or 144,000 pairs of a socket and a process, of which a few are kept."""
    with Daemon() as daemon:
        pid = daemon.process.pid
        before = kilobytes(pid, "VmRSS")
        with hostile(connections, duplicates, forks):
            forget_peak(pid)
            slowest = watch(daemon, 4)
            grown = kilobytes(pid, "VmHWM") - before
            stalls = daemon.ask("snapshot")["stalls"]
            took = seconds_to_end(daemon.process)
    print(f"{grown} KB more at most, health in {slowest:.3f} s, {stalls} stalls, ended in {took:.3f} s")
    assert stalls, "nothing to look for owners for"
    assert grown < 5_000
    assert slowest < AT_ONCE
    assert took < AT_ONCE


@pytest.mark.parametrize(("connections", "duplicates", "forks", "chosen"),
                         [(1, 19_700, 150, False), (9_500, 0, 150, False), (9_500, 0, 150, True)],
                         ids=["duplicates", "forks", "forks in the --cgroup"])
def test_three_million_descriptors_leave_the_daemon_within_its_bounds(connections: int, duplicates: int, forks: int,
                                                                      chosen: bool) -> None:
    """As many as the kernel lets one user have; it takes the kernel longer to make them than us to look at them."""
    with Place(f"/nagletrace-test-{os.getpid()}") as place, \
            Daemon(*(("--cgroup", str(place.directory)) if chosen else ())) as daemon, \
            hostile(connections, duplicates, forks, prefix=place.enter()):
        pid = daemon.process.pid
        slowest = watch(daemon, 15)
        memory = kilobytes(pid, "VmHWM")
        stalls = daemon.ask("snapshot")["stalls"]
        took = seconds_to_end(daemon.process)
    print(f"{memory} KB at most, health in {slowest:.3f} s, {stalls} stalls, ended in {took:.3f} s")
    assert stalls, "nothing to look for owners for"
    assert memory * 1024 < MOST_BYTES
    assert slowest < AT_ONCE
    assert took < AT_ONCE


@pytest.mark.quick
def test_the_start_asks_each_process_once_however_many_sockets_it_has() -> None:
    """2,000 sockets shared by 100 processes are 200,000 pairs, of each of which /proc was read before."""
    with hostile(1_000, 0, 100), Tracer("--name", "alice") as tracer:
        took = cpu_s(tracer.process.pid)
        tracer.stop()
    print(f"ready after {took:.2f} s of CPU")
    assert took < 1.5


FIX = ("fix", "--name", "mallory-0", "--nodelay", "--yes")


@pytest.mark.parametrize(("arguments", "after"), [(("--name", "alice"), after) for after in (0.1, 0.4, 0.7, 1.0)]
                         + [(FIX, after) for after in (0.2, 0.5)])
def test_a_signal_takes_effect_at_any_moment_of_the_start(arguments: tuple[str, ...], after: float) -> None:
    """`fix` asks each process of which it may take a socket, and 60 have those that it is to fix."""
    with hostile(1_000, 0, 60, names=1) as (mallory, _):
        comm = Path(f"/proc/{mallory.pid}/comm")
        wait_until("it has its name", lambda: comm.read_text() == "mallory-0\n")
        process = subprocess.Popen([str(NAGLETRACE), *arguments, "--hooks", Tracer.hooks], text=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(after)
        assert process.poll() is None
        took = seconds_to_end(process)
    assert took < AT_ONCE


@pytest.mark.quick
def test_beside_a_user_with_many_descriptors_another_ones_stalls_are_told_with_both_processes() -> None:
    with (hostile(1, 2_000, 60),
          Lab("write-write-read", "--connections", "4", "--rounds", "30", prefix=by_user(ALICE)) as lab,
          Tracer() as tracer):  # not by port: then it could not tell timers that the machine hides
        felt = len(stalled_rounds(lab.play()))
        tracer.stop()
        told, dropped = tracer.stalls(), tracer.closing()["dropped"]
    of_alice = [s for s in told if own_end(s).get("pid") == lab.client]
    # where the machine hides the receiver's timer the stall is inferred, without the other end, or contradicted
    unnamed = [s for s in of_alice if s["evidence"] == "seen" and far_end(s).get("pid") != lab.server]
    print(f"{len(told)} stalls, {felt} felt, {len(of_alice)} told, {unnamed} without the peer, dropped {dropped}")
    assert felt > 60
    most = 1 + lacking(tracer)
    assert -1 <= felt - len(of_alice) <= most, "a round of just STALLED_US may be either"
    assert not unnamed
    assert len(told) > len(of_alice), "the other user stalled too"


def test_a_flood_of_one_users_stalls_pushes_out_none_of_anothers() -> None:
    """While the tracer stands still there are more of one user's stalls than have room; another has some after them.

    In three seconds or four, also on a busy machine: a share that goes on for eight seconds fills what is left.
    """
    with (Lab("write-write-read", "--connections", "64", "--rounds", "68", "--timeout", "60s",
              prefix=by_user(MALLORY)) as flood,
          Lab("write-write-read", "--connections", "4", "--rounds", "20", "--timeout", "60s",
              prefix=by_user(ALICE)) as lab, Tracer() as tracer):
        tracer.process.send_signal(signal.SIGSTOP)
        flooded = len(stalled_rounds(flood.play()))
        result = lab.play()
        felt, slow = len(stalled_rounds(result)), len(slow_rounds(result))
        tracer.process.send_signal(signal.SIGCONT)
        tracer.catch_up()
        tracer.stop()
        told, closing = sum(own_end(s).get("pid") == lab.client for s in tracer.stalls()), tracer.closing()
    print(f"{flooded} stalls of one user, {felt} of the other, told {told}, dropped {closing['dropped']}")
    assert flooded > RING_RECORDS, "too few to fill it"
    assert closing["dropped"]["ring_share"] > 0 == closing["dropped"]["ring_full"]
    assert felt > 40
    # nor is it a matter of room what the kernel skipped, or hid
    missing = felt - told - closing["dropped"]["recursion"] - lacking(tracer)
    assert told <= slow + 1 and missing <= 1, "a round of just STALLED_US may be either"


def test_one_users_names_leave_room_for_anothers() -> None:
    with (hostile(1, 0, 0, names=40) as (process, port),
          Lab("write-write-read", "--rounds", "10", prefix=by_user(ALICE)) as lab,
          Daemon("--max-series", "8", "--port", f"{port},{lab.port}") as daemon):
        time.sleep(4)
        assert process.stdin and process.stdout
        process.stdin.close()
        names = int(process.stdout.readline())
        before = daemon.ask("snapshot")
        result = lab.play()
        time.sleep(0.2)
        answer = daemon.ask("snapshot")
    assert names > 20, "too few to take all label sets"
    assert answer["limits"]["folded_stalls"] > 0 and answer["filtered"] is True
    told = sum(s["stalls"] for s in answer["series"] if s["comm"].startswith("lab-"))
    assert told > 5
    assert_felt(result, told, max(0, lacking_in(answer) - lacking_in(before)))


class Drain:
    """Reads what comes from a pipe, and knows how much it was and when the last of it came."""

    def __init__(self, fd: int) -> None:
        self.fd, self.bytes, self.last = fd, 0, 0.0
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        while chunk := os.read(self.fd, 1 << 20):
            self.bytes, self.last = self.bytes + len(chunk), time.monotonic()


@pytest.mark.parametrize("how", [["--json"], ["--wide"]], ids=["json", "text"])
def test_a_flood_of_events_does_not_keep_a_signal_from_taking_effect(how: list[str]) -> None:
    """More events than it can write: some always wait, and the flood goes on while it ends."""
    flood = ("write-write-read", "--nodelay", "--own-netns", "--connections", "2", "--rounds", "100000",
             "--timeout", "60s")
    with Lab(*flood) as one, Lab(*flood) as other:
        tracer = subprocess.Popen([str(NAGLETRACE), "--hooks", Tracer.hooks, "--timeline", *how], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert tracer.stdout and tracer.stderr
        output, errors = Drain(tracer.stdout.fileno()), Lines(tracer.stderr)
        try:
            errors.wait_for("nagletrace: ready")
            one.go()
            other.go()
            wait_until("it is a flood", lambda: output.bytes >= FLOOD_BYTES, why=errors.text)
            amount, began = output.bytes, time.monotonic()
            tracer.send_signal(signal.SIGINT)
            tracer.wait(PATIENCE)
        finally:
            kill(tracer)
            output.thread.join(PATIENCE)
            errors.finish()
        assert one.process.poll() is None and other.process.poll() is None, "the flood was over"
    # the report is the last that it writes; how long the kernel then takes to detach is not ours
    took = output.last - began
    print(f"{amount} bytes, then it wrote for {took:.3f} s: {errors.text()}")
    assert tracer.returncode == 0
    assert took < AT_ONCE
