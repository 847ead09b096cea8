# SPDX-License-Identifier: GPL-2.0
"""--max-overhead: what the programs cost is looked at now and then, and past the limit hooks are detached, in order."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from daemon import Daemon
from harness import PATIENCE, Lab, Tracer, trace
from spaces import fdinfo

#: No host that has any traffic keeps below this.
ABSURD = ("--max-overhead", "0.0001")
#: The order of docs/overhead.md: what each step detaches; then all that are left.
STEPS = {
    "function": [{"tcp_sendmsg_locked"}],
    "kprobe": [{"tcp_sendmsg_locked"}],
    "tracepoint": [],
}


@contextlib.contextmanager
def traffic() -> Iterator[None]:
    """A byte there and a byte back over loopback, all the time."""
    over = threading.Event()

    def bounce(end: socket.socket, first: bool) -> None:
        with end, contextlib.suppress(OSError):
            if first:
                end.sendall(b"x")
            while not over.is_set() and end.recv(1):
                end.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname(), PATIENCE)
        other = server.accept()[0]
    threads = [threading.Thread(target=bounce, args=(end, end is client)) for end in (client, other)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE)


def runs_of(pid: int) -> dict[str, int]:
    """How often each BPF program of a process ran, as far as the kernel kept statistics, by the program's id."""
    return {program: int(fields["run_cnt"]) for program, fields in fdinfo(pid, "prog_id").items()}


@pytest.mark.quick
@pytest.mark.guest
@pytest.mark.once
def test_past_the_limit_hooks_are_detached_in_order_and_all_in_the_end() -> None:
    with traffic(), Tracer(*ABSURD) as tracer:
        assert tracer.process.wait(PATIENCE) == 1, tracer.errors.text()
        tracer.lines.finish()
        tracer.errors.finish()
    [start] = tracer.records("start")
    told = tracer.records("overhead")
    assert all(one["share_ppm"] > one["limit_ppm"] == 1 for one in told)
    gone: set[str] = set()
    for step, one in zip(STEPS[start["hooks"]], told):
        assert set(one["detached_hooks"]) == (gone := gone | step)
    assert len(told) == len(STEPS[start["hooks"]]) + 1 and set(told[-1]["detached_hooks"]) > gone
    assert tracer.closing()["detached_hooks"] == told[-1]["detached_hooks"]
    assert tracer.closing()["dropped"]["function_return"] == 0, "returns went before their entries"
    said = tracer.errors.text()
    assert "past --max-overhead 0.0001" in said and "detached all hooks: nothing is traced any more" in said
    assert all(f"detached {hook}; lost with it: " in said for hook in gone)


def test_within_the_limit_nothing_changes_and_the_statistics_are_off_between_looks() -> None:
    with traffic(), Tracer("--max-overhead", "100") as tracer:
        time.sleep(1)  # a look takes 0.2 s; the next one begins 5 s later
        before = runs_of(tracer.process.pid)
        time.sleep(1)
        assert any(before.values()), "the kernel kept no statistics: nothing was looked at"
        assert runs_of(tracer.process.pid) == before
        tracer.stop()
    assert not tracer.records("overhead") and tracer.closing()["detached_hooks"] == []
    with Lab("write-write-read") as lab:
        result, tracer = trace(lab, "--max-overhead", "100", "-p", str(lab.client))
    assert len(tracer.stalls()) >= len(result["rounds"]) - 2


def test_the_daemon_detaches_stays_and_says_so() -> None:
    with traffic(), Daemon(*ABSURD) as daemon:
        assert "cap_sys_admin" in daemon.errors.text()
        before = daemon.ask("health")
        daemon.errors.wait_for("nothing is traced any more")
        health, snapshot = daemon.ask("health"), daemon.ask("snapshot")
    assert before["state"] == "ok" and len(before["detached_hooks"]) < len(health["detached_hooks"])
    assert health["state"] == "blind" and "tcp_probe" in health["detached_hooks"]
    assert health["missing_hooks"] == before["missing_hooks"], "the kernel lacks no more than before"
    assert snapshot["tracer"]["share_ppm"] > snapshot["tracer"]["limit_ppm"] == 1
    assert "bpf_cpu_us" not in snapshot["tracer"]
