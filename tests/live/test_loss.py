# SPDX-License-Identifier: GPL-2.0
"""Nothing is dropped silently: what finds no room is counted, and the kernel side's totals stay right."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import RING_RECORDS, Lab, Tracer, slow_rounds, stalled_rounds, trace
from pods import into
from spaces import Namespace, load


@pytest.mark.quick
def test_a_full_ring_buffer_loses_records_and_counts_them() -> None:
    """While the tracer stands still there are more stalls than have room: each is told, or counted as dropped.

    They are all of one user, who has three quarters of the room and a share of the rest; test_bounds.py has two.
    """
    with Lab("write-write-read", "--connections", "64", "--rounds", "70", "--timeout", "60s") as lab:
        with Tracer("-P", lab.port) as tracer:
            tracer.process.send_signal(signal.SIGSTOP)
            result = lab.play()
            tracer.process.send_signal(signal.SIGCONT)
            tracer.catch_up()
            tracer.stop()
    felt, slow, closing = len(stalled_rounds(result)), len(slow_rounds(result)), tracer.closing()
    dropped, told = closing["dropped"]["ring_full"] + closing["dropped"]["ring_share"], len(tracer.stalls())
    assert felt > RING_RECORDS * 7 // 8, "too few to fill it"
    assert RING_RECORDS * 3 // 4 <= told < RING_RECORDS * 7 // 8 + felt // 10
    assert dropped > 0
    assert sum(closing["totals"]["stalls"].values()) == told + dropped + closing["totals"]["contradicted"]
    assert felt - felt // 100 <= told + dropped <= slow + felt // 100, (told, dropped, felt, slow)


def test_fifty_thousand_connections_that_all_stall() -> None:
    """As many stalls a second as this machine makes, each told on a line, which is the slowest way to take them."""
    with Namespace() as space, Tracer("--netns", str(space.holder.pid)) as tracer:
        before = space.counter("TcpExtDelayedACKs")
        told = load(space, "stall", 5, 50_000)
        counted = space.counter("TcpExtDelayedACKs") - before
        tracer.stop()
        late = space.counter("TcpExtDelayedACKs") - before - counted  # what fired until it had stopped
    lines = [line for _, line in tracer.lines.all]  # too many for the schema to look at each
    closing = json.loads(lines[-1])
    timers, stalls = closing["totals"]["delayed_acks"]["timer"], sum(closing["totals"]["stalls"].values())
    contradicted = closing["totals"]["contradicted"]
    print(f"{told['operations'] / told['seconds']:,.0f} rounds and {stalls / told['seconds']:,.0f} stalls a second, "
          f"{counted} timers, {timers} seen, {closing['unseen']} not, {contradicted} contradicted, "
          f"dropped {closing['dropped']}")
    if counted < 50_000:
        pytest.skip(f"a machine that is too slow for this: {counted} timers")
    assert counted <= timers + closing["unseen"] <= counted + late, (timers, counted, closing["unseen"], late)
    assert stalls - contradicted <= timers + closing["unseen"], "each takes a timer of its own"
    assert stalls == sum('"type":"stall"' in line for line in lines) + closing["dropped"]["ring_full"] + \
        closing["dropped"]["ring_share"] + contradicted
    assert closing["dropped"]["hold_map_full"] == closing["dropped"]["ack_map_full"] == 0, closing["dropped"]


@contextlib.contextmanager
def memory_cgroup(kills: bool = False) -> Iterator[tuple[Path, Path, Path]]:
    """A memory cgroup's directory, and the files that hold its use and its limit; version 1 or 2.

    At the limit of one of version 1 its processes wait for more, unless it kills.
    """
    first, second = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    version_1 = (first / "memory.limit_in_bytes").exists()
    if not version_1 and "memory" not in (second / "cgroup.subtree_control").read_text():
        pytest.skip("no memory controller in cgroup v1 or v2")
    group = (first if version_1 else second) / f"nagletrace-test-{os.getpid()}"
    group.mkdir()
    if version_1 and not kills:
        (group / "memory.oom_control").write_text("1")
    try:
        yield group, group / ("memory.usage_in_bytes" if version_1 else "memory.current"), \
            group / ("memory.limit_in_bytes" if version_1 else "memory.max")
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


def kills_in(group: Path) -> int:
    """How many processes of that memory cgroup the kernel has killed for want of memory."""
    told = next(path for name in ("memory.oom_control", "memory.events") if (path := group / name).exists())
    return int(re.search(r"^oom_kill (\d+)", told.read_text(), re.MULTILINE)[1])  # type: ignore[index]


def test_maps_that_cannot_grow_lose_holds_and_count_them() -> None:
    """Twenty thousand connections whose readers do not read, and memory for the state of a few thousand."""
    blocked = 20_000
    with memory_cgroup() as (group, used, limit), Namespace() as space:
        with Tracer("--netns", str(space.holder.pid), prefix=into(group)) as tracer:
            limit.write_text(str(int(used.read_text()) + (1 << 20)))
            assert load(space, "blocked", 1, blocked)["operations"] == blocked
            with Lab("write-write-read") as lab:  # it still does its work
                _, other = trace(lab, "-p", str(lab.client))
            limit.write_text(str(1 << 30))  # what the report takes is not what is to be refused
            tracer.stop()
    assert len(other.stalls()) >= 8
    closing = tracer.closing()
    held, dropped = closing["totals"]["holds"]["rwnd"], closing["dropped"]["hold_map_full"]
    assert 0 < held < blocked and dropped > 0 and held + dropped >= blocked, closing


@contextlib.contextmanager
def blocked_writers(count: int) -> Iterator[None]:
    """Threads that each wait in a write to a connection whose reader does not read."""

    def write(writer: socket.socket) -> None:
        with contextlib.suppress(OSError):
            writer.sendall(bytes(1 << 25))

    with contextlib.ExitStack() as ends:
        listener = ends.enter_context(socket.create_server(("127.0.0.1", 0), backlog=count))
        for _ in range(count):
            writer = ends.enter_context(socket.create_connection(listener.getsockname()))
            ends.enter_context(listener.accept()[0])
            thread = threading.Thread(target=write, args=[writer])
            thread.start()
            ends.callback(thread.join)
            ends.callback(writer.shutdown, socket.SHUT_RDWR)  # before the join
        yield


@pytest.mark.guest
def test_returns_that_the_kernel_does_not_show_are_counted_and_hide_no_stall(hooks: str) -> None:
    """More writes that wait than a kretprobe follows at once, max(10, 2 * CPUs)."""
    if hooks != "kprobe":
        pytest.skip("a kretprobe's limit")
    writers = 64
    with Lab("write-write-read") as lab:
        with Tracer("-P", lab.port) as tracer:
            with blocked_writers(writers):
                time.sleep(1)
                result = lab.play()
            tracer.stop()
    assert len(tracer.stalls()) == len(stalled_rounds(result)) > 0
    dropped, release = tracer.closing()["dropped"]["recursion"], platform.release().split(".")
    if (int(release[0]), int(release[1])) >= (6, 7):  # older kernels do not tell
        assert dropped >= writers - max(10, 2 * (os.cpu_count() or 1))
