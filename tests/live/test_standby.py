# SPDX-License-Identifier: GPL-2.0
"""`nagletrace daemon --standby`: nothing is attached until something stalls, then all is counted, then it detaches.

What is attached the kernel says itself, of each link that the daemon has open.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemon import ATTACHED_ONCE, Daemon, Reader, lacking_in
from harness import IN_GUEST, NAGLETRACE, PATIENCE, Lab, Lines, Record, day_s, run, stalled_rounds
from processes import descriptors, kilobytes, map_bytes, said_of_descriptors, wait_until
from spaces import Namespace

MANY = ("--rounds", "100000")
#: Stalls for 3 s; in a guest for longer, since a look takes some 20 ms there, and so comes once in 15 s.
SOME = ("--rounds", "1500" if IN_GUEST else "60")


@pytest.fixture
def space() -> Iterator[Namespace]:
    """Only this namespace is watched: whoever stalls elsewhere on this host attaches nothing."""
    if ATTACHED_ONCE:
        pytest.skip("this kernel attaches function hooks only once")
    with Namespace() as made:
        yield made


def standby(space: Namespace, *arguments: str, after: str = "1s") -> Daemon:
    return Daemon("--standby", "--standby-after", after, "--netns", str(space.holder.pid), *arguments)


def lab_in(space: Namespace, scenario: str = "write-write-read", *arguments: str) -> Lab:
    return Lab(scenario, *arguments, prefix=space.enter())


def links(daemon: Daemon) -> Counter[str]:
    """The links that the daemon has open, by their kind, and kprobes, which are none before 5.15; iterators hook
    nothing."""
    kinds = Counter(said_of_descriptors(daemon.process.pid, r"^link_type:\t(\S+)$"))
    kinds.pop("iter", None)
    kinds.update("perf_event" for link in descriptors(daemon.process.pid) if link == "anon_inode:[perf_event]")
    return kinds


def wait_for_looks(what: str, daemon: Daemon, true: Callable[[], object], looks: int = 1) -> float:
    """Asks until it is true, as wait_until() does. The more files this host has open, the rarer the daemon looks."""
    began, interval_s = time.monotonic(), 0.0
    while not true():
        interval_s = max(interval_s, daemon.ask("health")["standby"]["look_interval_us"] / 1e6)
        assert time.monotonic() < began + PATIENCE + looks * interval_s, what
        time.sleep(0.02)
    return time.monotonic() - began


def state(daemon: Daemon) -> str:
    return str(daemon.ask("health")["standby"]["state"])


def is_attached(daemon: Daemon) -> Callable[[], bool]:
    return lambda: state(daemon) == "attached"


def still_waiting(daemon: Daemon, times: list[float]) -> bool:
    """Adds to the times, in s since 1970, that of an answer by which nothing is attached yet."""
    asked = time.time()
    if state(daemon) != "standby":
        return False
    times.append(asked)
    return True


def is_waiting(daemon: Daemon) -> Callable[[], bool]:
    return lambda: state(daemon) == "standby"


def growing(before: Record, after: Record) -> None:
    """No counter of a snapshot has gone back."""
    for key, value in after.items():
        if isinstance(value, dict) and key not in ("last", "limits"):
            growing(before[key], value)
        elif isinstance(value, int) and key not in ("readers", "streaming", "look_interval_us"):
            assert value >= before[key], (key, before[key], value)


# ---- it attaches, counts and detaches ----


@pytest.mark.quick
def test_reads_are_hooked_only_while_somebody_reads_a_stream() -> None:
    with Daemon() as daemon:
        before = links(daemon)
        with Reader(daemon.socket) as reader:
            assert reader.ask("stream", format="json")["late_acks"] == "all"
            meanwhile = links(daemon)
        wait_until("nobody reads the stream any more", lambda: links(daemon) == before)
        by_tracepoints = daemon.ask("health")["hooks"] == "tracepoint"
    assert sum((meanwhile - before).values()) == by_tracepoints


@pytest.mark.guest
@pytest.mark.skipif(not ATTACHED_ONCE, reason="this kernel attaches function hooks again")
def test_where_function_hooks_are_attached_only_once_it_takes_kprobes(tmp_path: Path) -> None:
    command = ("daemon", "--standby", "--socket", str(tmp_path / "socket"), "--hooks")
    refused = run(*command, "function")
    assert refused.returncode == 3 and "before Linux 5.13 they are attached only once" in refused.stderr, refused
    with subprocess.Popen([NAGLETRACE, *command, "auto"], stderr=subprocess.PIPE, text=True) as daemon:
        errors = Lines(daemon.stderr)
        errors.wait_for("nagletrace: ready")
        daemon.terminate()
        assert daemon.wait(PATIENCE) == 0 and "nagletrace: kprobe hooks (fentry: before Linux 5.13" in errors.text()


@pytest.mark.quick
@pytest.mark.guest
def test_it_attaches_within_two_seconds_counts_exactly_and_detaches_when_it_is_quiet(space: Namespace) -> None:
    with standby(space) as daemon:
        before = daemon.ask("snapshot")
        assert before["standby"]["state"] == "standby" and links(daemon) == Counter()
        with lab_in(space, "write-write-read", *SOME) as lab:
            offset = time.time() - time.monotonic()
            lab.go()
            waited = [time.time()]
            found_s = wait_for_looks("a look finds the stall", daemon, lambda: not still_waiting(daemon, waited))
            hooks = links(daemon)
            since = day_s(daemon.ask("health")["standby"]["since"])
            wait_until("the lab ends", lambda: lab.process.poll() is not None, 2 * PATIENCE)
            result = lab.result()
        attached = daemon.ask("snapshot")
        wait_until("it is quiet, and nothing is attached any more", is_waiting(daemon))
        after = daemon.ask("snapshot")
        assert links(daemon) == Counter()
        daemon.stop()
    assert sum(hooks.values()) >= 5, hooks
    assert found_s < 2.0 or IN_GUEST
    # each round from then on is counted; those during which one hook after the other was attached may be
    later, felt = ([one for one in rounds if one["start_ns"] / 1e9 + offset > since]
                   for rounds in (result["rounds"], stalled_rounds(result)))
    meanwhile = sum(waited[-1] < one["start_ns"] / 1e9 + one["latency_us"] / 1e6 + offset
                    for one in result["rounds"]) - len(later)
    # in a guest that stood still a stall may be shorter than what is felt as one
    skipped = after["dropped"].pop("recursion")  # runs that the kernel left out, by function hooks
    fewest, most = len(felt) - lacking_in(after) - skipped, len(later if IN_GUEST else felt) + meanwhile
    assert fewest <= after["stalls"] <= most
    assert len(felt) > 20
    assert [s["standby"]["changes"] for s in (before, attached, after)] == [0, 1, 2]
    assert after["standby"]["false_alarms"] == 0 and not any(after["dropped"].values())
    for one, other in ((before, attached), (attached, after)):
        growing(one, other)
    said = daemon.errors.text()
    assert re.search(r"standby: attached, since lab-client\[\d+\] \S+ → \S+ waits for an ACK that is late by \d", said)
    assert "standby: detached after 1.00 s without a stall" in said


@pytest.mark.quick
def test_what_makes_no_stall_attaches_nothing(space: Namespace) -> None:
    """Echoes, a stream, a slow reader, and a socket that is corked shortly: no stalls to `sample` either."""
    with standby(space) as daemon:
        looks = daemon.ask("health")["standby"]["looks"]
        with lab_in(space, "echo", *MANY) as echo, lab_in(space, "bulk", *MANY) as bulk, \
                lab_in(space, "slow-reader", *MANY) as slow, lab_in(space, "writev", *MANY) as writev:
            for lab in (echo, bulk, slow, writev):
                lab.go()
            wait_for_looks("five looks", daemon, lambda: daemon.ask("health")["standby"]["looks"] >= looks + 5, 5)
        told = daemon.ask("health")["standby"]
    assert (told["changes"], told["sampled_excess_us"], told["state"]) == (0, 0, "standby")


def test_a_cork_that_nobody_ends_is_found_too(space: Namespace) -> None:
    with standby(space) as daemon, lab_in(space, "cork-forgotten", *MANY) as lab:
        lab.go()
        wait_for_looks("a look finds the cork", daemon, is_attached(daemon))
        wait_until("its ceilings are counted", lambda: daemon.ask("snapshot")["stalls"] >= 2)
        [series] = {series["cause"] for series in daemon.ask("snapshot")["series"]}
        assert series == "cork_ceiling"
        daemon.stop()
        assert "has had bytes corked for" in daemon.errors.text()


def test_only_processes_that_are_asked_for_attach_it(space: Namespace) -> None:
    """By the sender's name and by the receiver's; whoever else stalls attaches nothing."""
    with standby(space, "--name", "somebody") as other, standby(space, "--name", "lab-server") as daemon, \
            lab_in(space, "write-write-read", *MANY) as lab:
        lab.go()
        wait_for_looks("a look finds it by the receiver's name", daemon, is_attached(daemon))
        wait_until("its stalls are counted", lambda: daemon.ask("snapshot")["stalls"])
        looks = other.ask("health")["standby"]["looks"]
        wait_for_looks("a look finds nothing", other,
                       lambda: other.ask("health")["standby"]["looks"] > looks + 1, 2)
        assert state(other) == "standby" and daemon.ask("snapshot")["totals"]["writes"]


# ---- what is left over ----


def blocked_pair(space: Namespace) -> tuple[socket.socket, socket.socket]:
    """A sender whose receiver does not read: its window is closed, and bytes wait."""
    with space.inside(), socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sender = socket.create_connection(listener.getsockname())
        receiver = listener.accept()[0]
    sender.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sender.send(bytes(1 << 16))
    return sender, receiver


@pytest.mark.guest
def test_a_hold_that_began_before_it_detached_is_not_told_as_if_it_had_lasted_since(space: Namespace) -> None:
    with standby(space) as daemon:
        for round_ in range(2):
            with lab_in(space, "write-write-read", *MANY) as lab:
                lab.go()
                wait_for_looks("it attaches", daemon, is_attached(daemon))
                if not round_:
                    held = blocked_pair(space)
                    began = time.monotonic()
                else:  # the hold ends, long after it was forgotten
                    for end in held:
                        end.close()
                    held_us = (time.monotonic() - began) * 1e6
                    wait_until("the second is counted", lambda: daemon.ask("snapshot")["stalls"] > counted)
            wait_until("it detaches", is_waiting(daemon))
            counted = daemon.ask("snapshot")["stalls"]
            pause = time.monotonic()
            wait_until("a while passes in standby", lambda: time.monotonic() > pause + 3)
        snapshot = daemon.ask("snapshot")
        hold_us, attached_us = snapshot["totals"]["hold_us"], snapshot["standby"]["attached_us"]
    # forgotten, it begins with the last window probe; each waits twice as long as the one before
    assert hold_us["rwnd"] <= held_us / 2 + 1e6, "a hold of the time before it detached was told whole"
    assert sum(hold_us.values()) - hold_us["rwnd"] <= attached_us


def test_a_storm_that_flips_it_leaves_nothing_behind(space: Namespace) -> None:
    """Bursts with a second of quiet between them: ten times attached and detached. Nothing grows but counters."""
    sizes = []
    with standby(space, "--quiet") as daemon:
        last = daemon.ask("snapshot")
        for n in range(10):
            with lab_in(space, "write-write-read", *MANY) as lab:
                lab.go()
                wait_for_looks("it attaches", daemon, is_attached(daemon))
                wait_until("it counts", lambda: daemon.ask("snapshot")["stalls"] > last["stalls"])
            wait_until("it detaches", is_waiting(daemon))
            now = daemon.ask("snapshot")
            growing(last, now)
            assert now["standby"]["changes"] == 2 * (n + 1)
            last = now
            sizes.append((len(os.listdir(f"/proc/{daemon.process.pid}/fd")), map_bytes(daemon.process.pid),
                          kilobytes(daemon.process.pid, "VmRSS")))
        assert daemon.stop() == 0
        assert daemon.errors.text().endswith("ready")
    assert not any(last["dropped"].values()) and last["standby"]["attach_failures"] == 0
    first, end = sizes[2], sizes[-1]
    assert end[0] <= first[0] + 1 and end[1] <= first[1] + 65536 and end[2] <= first[2] + 512, sizes


# ---- what goes wrong ----


def test_hooks_that_cannot_be_attached_are_told_and_tried_again(space: Namespace) -> None:
    """No descriptor is left for the third hook: those before it are detached again, and looks go on."""
    with standby(space) as daemon, lab_in(space, "write-write-read", *MANY) as lab:
        with daemon.reader() as reader:
            used = {int(fd) for fd in os.listdir(f"/proc/{daemon.process.pid}/fd")}
            fourth = [fd for fd in range(len(used) + 4) if fd not in used][3]
            before = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (fourth, before[1]))
            lab.go()
            wait_until("an attempt fails", lambda: reader.ask("health")["standby"]["attach_failures"])
            health = reader.ask("health")
            assert health["state"] == "blind" and health["standby"]["state"] == "standby"
            assert links(daemon) == Counter()
            looks, excess = (health["standby"][key] for key in ("looks", "sampled_excess_us"))
            # the estimate goes on, and alone tells of the time that is lost
            wait_until("looks go on", lambda: reader.ask("health")["standby"]["sampled_excess_us"] > excess + 10**6)
            assert "could not be attached" in reader.ask("report", format="text")["text"].replace("\n" + " " * 14, " ")
            assert reader.ask("health")["standby"]["looks"] > looks
            resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, before)
            wait_until("it tries again", is_attached(daemon), 2 * PATIENCE)
            wait_until("it counts", lambda: reader.ask("snapshot")["stalls"] > 0)
            health = reader.ask("health")
        assert health["state"] == "ok" and health["standby"]["attach_failures"] >= 1
        daemon.stop()
        complaints = re.findall(r"standby: cannot attach to \w+: Too many open files", daemon.errors.text())
        assert len(complaints) == 1, "once a minute is enough"


@pytest.mark.quick
@pytest.mark.parametrize("attached", [False, True], ids=["in standby", "attached"])
def test_a_signal_ends_it_in_either_state(space: Namespace, attached: bool) -> None:
    with standby(space, after="1m") as daemon, lab_in(space, "write-write-read", *MANY) as lab:
        if attached:
            lab.go()
            wait_for_looks("it attaches", daemon, is_attached(daemon))
        daemon.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert daemon.process.wait(PATIENCE) == 0
        assert time.monotonic() - began < 1 or IN_GUEST
        assert not daemon.socket.exists()


@pytest.mark.quick
def test_report_says_in_which_state_it_is_and_what_looks_found(space: Namespace) -> None:
    with standby(space) as daemon:
        text = daemon.ask("report", format="text")["text"]
        assert re.search(r"^ +standby +in standby for [\d.]+ m?s; nothing was attached for", text, re.MULTILINE), text
        assert "found no time" in text.replace("\n" + " " * 14, " ")
        with lab_in(space, "write-write-read", *MANY) as lab:
            lab.go()
            wait_for_looks("it attaches", daemon, is_attached(daemon))
            wait_until("it counts", lambda: daemon.ask("snapshot")["stalls"])
            done = run("report", "--socket", str(daemon.socket))
            record = daemon.ask("report", format="json")
    assert re.search(r"^ +standby +attached for", done.stdout, re.MULTILINE), done.stdout
    assert record["standby"]["state"] == "attached"
    assert 0 < record["standby"]["attached_us"] < record["span_us"]


def test_one_stall_a_second_is_found_within_a_minute(space: Namespace) -> None:
    """A look finds it with 4 %, so two a second find it in 99 of 100 minutes: 1 - 0.96^120. Here five daemons look, as
    often as their budget allows: a busy machine makes looks dearer.
    """
    with contextlib.ExitStack() as stack:
        daemons = [stack.enter_context(standby(space, after="10m")) for _ in range(5)]
        lab = stack.enter_context(lab_in(space, "write-write-read", "--interval", "960ms", *MANY))
        lab.go()
        began = time.monotonic()
        wait_until("a minute passes, or all have found it", lambda: time.monotonic() > began + 60 or all(
            state(daemon) == "attached" for daemon in daemons), 70)
        told = [daemon.ask("health")["standby"] for daemon in daemons]
    found = sum(one["state"] == "attached" for one in told)
    looks = sum(one["looks"] for one in told)
    assert found >= 1 and looks / found < 100, (found, looks)
