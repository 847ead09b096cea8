# SPDX-License-Identifier: GPL-2.0
"""Whose stalls are reported: the sockets of the processes asked for, however they came by them, and no other's."""

from __future__ import annotations

import ctypes
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from daemon import RELEASE
from ends import far_end, own_end
from harness import (IN_GUEST, PATIENCE, STALLED_US, Lab, Tracer, assert_durations_match, assert_felt, lacking, of_lab,
                     stalled_rounds, trace, unseen)

pytestmark = pytest.mark.guest


@pytest.mark.once
@pytest.mark.quick
def test_a_receiver_alone_gets_its_own_side_of_each_stall() -> None:
    with Lab("write-write-read", "--rounds", "8") as lab:
        result, tracer = trace(lab, "-p", str(lab.server))
    stalls = tracer.stalls()
    assert_durations_match(stalled_rounds(result), stalls, lacking(tracer))
    for stall in stalls:
        assert stall["side"] == "receiver" and own_end(stall)["pid"] == lab.server
        assert stall["receiver"]["pending_ack"]["release"] == "timer"
        assert far_end(stall)["pid"] == lab.client and stall["sender"]["hold"]["bytes"] == 7


@pytest.mark.once
@pytest.mark.quick
def test_other_processes_are_left_out() -> None:
    with Lab("write-write-read", "--rounds", "20") as other, Lab("echo", "--rounds", "20") as lab:
        with Tracer("-p", str(lab.client)) as tracer:
            other.go()
            lab.go()
            assert stalled_rounds(other.result())
            lab.result()
            tracer.wait()  # the process has ended
    assert tracer.stalls() == []
    assert tracer.closing()["stalls"] == 0
    assert tracer.closing()["totals"]["writes"] == 20


@pytest.mark.once
@pytest.mark.quick
def test_without_a_process_the_whole_host_is_seen_across_namespaces() -> None:
    with Lab("write-write-read", "--over", "veth") as first, Lab("write-write-read", "--over", "veth") as second:
        with Tracer() as tracer:
            first.go()
            second.go()
            results = {first.client: first.result(), second.client: second.result()}
            tracer.stop()
    for client, result in results.items():
        mine = [s for s in tracer.stalls() if own_end(s).get("pid") == client]
        assert_durations_match(stalled_rounds(result), mine, lacking(tracer))
        assert all(s["side"] == "sender" for s in mine), "one stall is one record, the sender's"
    spaces = {lab.ready[end]["netns"] for lab in (first, second) for end in ("client", "server")}
    assert len(spaces) == 4


WAYS = {
    "open before attaching": [],
    "connected after attaching": ["--late-connect"],
    "threads sharing a socket": ["--threads", "3"],
    "a forked worker": ["--fork-worker"],
    "a descriptor passed over a unix socket": ["--pass-fd"],
    "IPv4-mapped IPv6": ["--v4-mapped"],
}
QUICK = ("connected after attaching", "a forked worker")


@pytest.mark.parametrize("way", [pytest.param(way, marks=pytest.mark.quick if way in QUICK else ()) for way in WAYS])
def test_sockets_are_found_however_the_process_came_by_them(way: str) -> None:
    with Lab("write-write-read", "--rounds", "8", "--linger", "500ms", *WAYS[way]) as lab:
        pids = lab.ready["client"]["pids"]
        target = pids[-1] if way.startswith("a descriptor") else lab.client
        result, tracer = trace(lab, "-p", str(target))
    rounds = stalled_rounds(result)
    assert rounds
    assert_durations_match(rounds, tracer.stalls(), lacking(tracer))
    for stall in tracer.stalls():
        assert stall["side"] == "sender" and own_end(stall)["pid"] in pids
        assert stall["family"] == 4


@pytest.mark.once
@pytest.mark.quick
def test_children_that_a_process_forked_before_the_trace_are_traced() -> None:
    with Lab("write-write-read", "--rounds", "8") as lab, Tracer("-p", str(lab.process.pid)) as tracer:
        result = lab.play()
        tracer.wait()  # the process has ended
    assert_durations_match(stalled_rounds(result), tracer.stalls(), lacking(tracer))
    assert {own_end(stall)["pid"] for stall in tracer.stalls()} == {lab.client}


#: Its first thread ends after a line, and another one forks a child, which asks.
HEADLESS = """
import ctypes, os, socket, sys, threading, time
def fork():
    while open(f"/proc/self/task/{os.getpid()}/stat").read().split()[2] != "Z":
        time.sleep(0.01)
    child = os.fork()
    if not child:
        with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
            for _ in range(30):
                for part in (b"x" * 6, b"y" * 7):
                    connection.sendall(part)
                connection.recv(1)
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
    os._exit(0)
threading.Thread(target=fork).start()
print("ready", flush=True)
sys.stdin.readline()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.once
@pytest.mark.quick
def test_a_process_whose_first_thread_has_ended_is_traced_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answers, args=[listener, 13], daemon=True).start()
        with subprocess.Popen([sys.executable, "-c", HEADLESS, str(listener.getsockname()[1])], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout and process.stdout.readline() == "ready\n"
            with Tracer("-p", str(process.pid)) as tracer:
                child, _ = process.communicate("\n", timeout=PATIENCE)
                tracer.wait()
    assert {own_end(stall)["pid"] for stall in tracer.stalls()} == {int(child)}


@pytest.mark.once
@pytest.mark.quick
def test_several_connections_are_told_apart() -> None:
    with Lab("write-write-read", "--connections", "4", "--rounds", "6") as lab:
        result, tracer = trace(lab, "-p", str(lab.client))
    for i, connection in enumerate(lab.ready["connections"]):
        rounds = [r for r in stalled_rounds(result) if r["connection"] == i]
        assert_durations_match(rounds, [s for s in tracer.stalls() if own_end(s)["address"] == connection["client"]],
                               lacking(tracer))
    assert len(tracer.closing()["connections"]) == 4


CLIENT, SERVER = "the client's port", "the server's port"
#: Filters, and from whose side they tell the stalls of a lab; "" of those that leave them out.
CHOICES: dict[str, dict[tuple[str, ...], str]] = {
    "ports": {("-P", SERVER): "sender", ("-P", CLIENT): "sender", ("-L", CLIENT): "sender", ("-D", SERVER): "sender",
              ("-L", SERVER): "receiver", ("-P", "1"): ""},
    "names": {("-n", "lab-client"): "sender", ("-n", "lab-server"): "receiver", ("-n", "nobody"): ""},
    "-4": {("-4",): "sender", ("-6",): ""},
    "-6": {("-6",): "sender", ("-4",): ""},
}


@pytest.mark.once
@pytest.mark.parametrize("kind", ["-4", *(pytest.param(kind, marks=pytest.mark.quick)
                                          for kind in ("ports", "names", "-6"))])
def test_filters_choose_by_either_end_or_by_one(kind: str) -> None:
    family = "-6" if kind == "-6" else "-4"
    with Lab("write-write-read", family, "--own-netns") as lab:
        ports = {CLIENT: lab.ready["connections"][0]["client"].rsplit(":", 1)[1], SERVER: lab.port}
        tracers = {choice: Tracer(*(ports.get(word, word) for word in choice)) for choice in CHOICES[kind]}
        result = lab.play()
        for tracer in tracers.values():
            tracer.stop()
    for choice, side in CHOICES[kind].items():
        stalls = of_lab(lab, tracers[choice].stalls())
        # other programs may use the other family, but none is called so
        assert kind != "names" or side or not tracers[choice].stalls(), choice
        assert {(s["side"], s["family"]) for s in stalls} == ({(side, int(family[1]))} if side else set()), choice
        missing = lacking(tracers[choice]) if side == "receiver" else 0
        if side and IN_GUEST and kind == "ports":
            # beside so many tracers a round takes an emulated guest longer than its stall lasts
            assert_felt(result, len(stalls), missing)
        elif side:
            assert_durations_match(stalled_rounds(result), stalls, missing)


#: As a web server starts CGI programs: the sockets are closed by the exec, and the children have them until then.
FORKING_SERVER = """
import os, socket, sys, threading, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection = listener.accept()[0]
def fork():
    while True:
        child = os.fork()
        if not child:
            time.sleep(0.002)
            os.execv("/bin/true", ["true"])
        os.waitpid(child, 0)
threading.Thread(target=fork, daemon=True).start()
# who sleeps leaves no trace of itself at the socket
connection.setblocking(False)
came = 0
while True:
    try:
        came += len(connection.recv(100))
    except BlockingIOError:
        time.sleep(0.001)
    if came == 13:
        came = 0
        connection.sendall(b"x")
"""


@pytest.mark.quick
@pytest.mark.skipif(IN_GUEST, reason="where it is emulated, a child takes longer than 100 ms to its exec")
def test_a_child_between_fork_and_exec_is_not_taken_for_the_owner() -> None:
    with subprocess.Popen([sys.executable, "-c", FORKING_SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        port = int(server.stdout.readline())
        with Tracer("-P", str(port)) as tracer:
            with socket.create_connection(("127.0.0.1", port)) as client:
                for _ in range(30):
                    for part in (b"x" * 6, b"y" * 7):
                        client.sendall(part)
                    client.recv(1)
            tracer.stop()
        server.kill()
    receivers = Counter(s["receiver"]["pid"] for s in tracer.stalls() if s["evidence"] == "seen")
    assert set(receivers) == {server.pid}, receivers


def asks_and_ends(address: tuple[str, int], way: str) -> None:
    """Asks three times, waits in this way for the last answer, which stalls, and ends as soon as it has it."""
    connection = socket.create_connection(address)
    for answer in (1, 1, 13):
        connection.sendall(b"x")
        while answer:
            if answer == 7 and way == "poll":
                poll = select.poll()
                poll.register(connection, select.POLLIN)
                poll.poll()
            elif answer == 7 and way == "epoll":
                epoll = select.epoll()
                epoll.register(connection, select.EPOLLIN)
                epoll.poll()
            elif answer == 7 and way == "sleep":
                time.sleep(0.05)
            answer -= len(connection.recv(answer))
    os._exit(0)


@pytest.mark.parametrize("way", ["recv", "poll", pytest.param("epoll", marks=pytest.mark.quick), "sleep"])
def test_a_receiver_that_ends_at_once_has_its_name_or_counts(way: str) -> None:
    children = set()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with Tracer("-P", str(listener.getsockname()[1])) as tracer:
            for _ in range(20):
                child = os.fork()
                if not child:
                    asks_and_ends(listener.getsockname(), way)
                children.add(child)
                with listener.accept()[0] as connection:
                    for answer in (b"x", b"x", b"header"):
                        connection.recv(1)
                        connection.sendall(answer)
                    connection.sendall(b"content")
                    os.waitpid(child, 0)
            tracer.stop()
    told = [s["receiver"] for s in tracer.stalls() if s["evidence"] == "seen"]
    named = [end for end in told if "pid" in end]
    skipped = tracer.closing()["dropped"]["recursion"]
    assert len(told) >= 20 - unseen(tracer) - skipped and {end["pid"] for end in named} <= children, told
    assert all(end["comm"] for end in named), named
    assert len(told) - len(named) == tracer.closing()["dropped"]["owners"]
    # a busy machine lets one or two sleep on while their data is there
    assert way == "sleep" or len(named) >= len(told) - 2, told


@pytest.mark.quick
def test_a_report_says_which_sockets_it_did_not_follow() -> None:
    with Tracer("-p", str(os.getpid()), text=True) as tracer:
        with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM):
            tracer.stop()
    assert "untraced  1 socket for packets: TCP in user space (gVisor, DPDK) is not seen" in tracer.lines.text()


@pytest.mark.quick
def test_a_report_counts_sockets_with_kernel_tls() -> None:
    with Lab("ktls", "--rounds", "5") as lab:
        tracer = trace(lab, "-p", f"{lab.client},{lab.server}")[1]
    assert tracer.closing()["untraced"] == {"ktls": 2, "packets": 0}


MPTCP = 262  # IPPROTO_MPTCP, include/uapi/linux/in.h


def answers(listener: socket.socket, request: int) -> None:
    with listener.accept()[0] as connection:
        came = 0
        while data := connection.recv(4096):
            came += len(data)
            if came == request:
                came = 0
                connection.sendall(b"x")


@pytest.mark.parametrize("server", [pytest.param(MPTCP, marks=pytest.mark.quick, id="mptcp"),
                                    pytest.param(0, id="tcp")])
def test_who_has_an_mptcp_socket_owns_its_subflows(server: int) -> None:
    try:
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP)
    except OSError as error:
        pytest.skip(f"this kernel has no MPTCP: {error}")
    took = []
    with client, socket.socket(socket.AF_INET, socket.SOCK_STREAM, server) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=answers, args=(listener, 1500), daemon=True)
        thread.start()
        with Tracer("-p", str(os.getpid()), "-P", str(listener.getsockname()[1])) as tracer:
            client.connect(listener.getsockname())
            for _ in range(10):
                began = time.monotonic()
                client.send(bytes(500))
                client.send(bytes(1000))
                client.recv(1)
                took.append((time.monotonic() - began) * 1e6)
            tracer.stop()
    thread.join(10)
    felt = sum(us >= STALLED_US for us in took)
    assert felt and max(1, felt - 1) <= len(tracer.stalls()) <= felt, took
    assert {own_end(s).get("pid") for s in tracer.stalls()} == {os.getpid()}
    if Tracer.hooks in ("auto", "tracepoint"):
        assert tracer.closing()["totals"]["writes"] >= 20


BPF = {"x86_64": 321, "aarch64": 280}[os.uname().machine]


def bpf(command: int, *parts: bytes) -> int:
    """bpf(2); the attributes beyond these parts are 0."""
    number = ctypes.CDLL(None, use_errno=True).syscall(BPF, command, b"".join(parts).ljust(120, b"\0"), 120)
    assert number >= 0, os.strerror(ctypes.get_errno())
    return number


def splice(come: socket.socket, go: socket.socket) -> None:
    """What comes on one socket, the kernel sends on the other (BPF_MAP_TYPE_SOCKMAP)."""
    kept = []

    def at(data: bytes) -> int:
        kept.append(ctypes.create_string_buffer(data, len(data)))
        return ctypes.addressof(kept[-1])

    def set_first(sockets: int, one: socket.socket) -> None:
        bpf(2, struct.pack("IxxxxQQQ", sockets, at(bytes(4)), at(struct.pack("I", one.fileno())), 0))

    sources, targets = (bpf(0, struct.pack("IIII", 15, 4, 4, 1)) for _ in range(2))
    # return bpf_sk_redirect_map(context, targets, 0, 0);
    code = struct.pack("<BBhiq", 0x18, 0x12, 0, targets, 0) + b"".join(
        struct.pack("<BBhi", operation, register, 0, value)
        for operation, register, value in ((0xb7, 3, 0), (0xb7, 4, 0), (0x85, 0, 52), (0x95, 0, 0)))
    program = bpf(5, struct.pack("IIQQ", 14, len(code) // 8, at(code), at(b"GPL\0")))
    bpf(8, struct.pack("III", sources, program, 38))
    set_first(targets, go)
    set_first(sources, come)


@pytest.mark.skipif(RELEASE < (5, 13), reason="BPF_SK_SKB_VERDICT is of Linux 5.13")
@pytest.mark.quick
def test_what_a_kworker_sends_for_a_process_is_the_process_s() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here, out = (socket.create_connection(server.getsockname()) for _ in range(2))
        come, far = (server.accept()[0] for _ in range(2))
    here.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with here, out, come, far, Tracer("-P", str(far.getsockname()[1])) as tracer:
        splice(come, out)
        took = []
        for _ in range(6):
            here.send(b"x")
            time.sleep(0.002)
            began = time.monotonic()
            here.send(b"y")
            while len(far.recv(2, socket.MSG_PEEK)) < 2:
                time.sleep(0.0005)
            took.append({"latency_us": (time.monotonic() - began) * 1e6})
            far.recv(2)
            far.send(b"z")
            out.recv(1)
        tracer.stop()
    stalled = [one for one in took if one["latency_us"] >= STALLED_US]
    assert len(stalled) >= 4
    assert_durations_match(stalled, tracer.stalls(), lacking(tracer))
    own = os.getpid(), Path("/proc/self/comm").read_text().strip()
    assert {(s["sender"]["pid"], s["sender"]["comm"]) for s in tracer.stalls()} == {own}


@pytest.mark.once
@pytest.mark.quick
def test_a_short_stall_is_left_out_by_min() -> None:
    with Lab("write-write-read") as lab:
        result, tracer = trace(lab, "-p", str(lab.client), "--min", "100ms")
    assert stalled_rounds(result)
    assert tracer.stalls() == []


@pytest.mark.quick
def test_a_cgroup_chooses_the_processes_in_it() -> None:
    root = Path("/sys/fs/cgroup")
    if not (root / "cgroup.controllers").exists():
        pytest.skip("no cgroup v2 at /sys/fs/cgroup")
    group, other = root / "nagletrace-test", root / "nagletrace-other"
    for directory in (group, other):
        directory.mkdir()
    try:
        # one after the other: beside a second tracer, an emulated guest takes longer for a round than its stall lasts
        for traced, side in ((group, "sender"), (group, "receiver"), (other, "sender")):
            with Lab("write-write-read") as lab:
                (group / "cgroup.procs").write_text(str(lab.client if side == "sender" else lab.server))
                result, tracer = trace(lab, "-c", f"/{other.name}//../{traced.name}/")
            stalls = tracer.stalls()
            if traced == group:
                assert_durations_match(stalled_rounds(result), stalls, lacking(tracer))
                assert {(s["side"], s[side]["cgroup"]) for s in stalls} == {(side, "/nagletrace-test")}
            else:
                assert stalled_rounds(result) and stalls == []
    finally:
        for directory in (group, other):
            directory.rmdir()
