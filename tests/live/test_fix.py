# SPDX-License-Identifier: GPL-2.0
"""`nagletrace fix`: what it sets, that it sets it back whatever happens, and what it says came of it.

The witness is the application: its clock, and the option of its socket as it reads it itself in each round.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from harness import IN_GUEST, NAGLETRACE, PATIENCE, Lab, Lines, Record, Tracer, run, seconds_to_end
from processes import Ends, descriptors, kill, wait_until
from terminal import Terminal
from test_unread import SIGNAL_TAKES, Pipe, nagletrace

#: Answers each 13 bytes at once, and tells when a connection ended. At a line on stdin each moves to another
#: descriptor.
SERVER = r"""
import json, os, socket, sys, threading, time
moves = []
threading.Thread(target=lambda: [moves.append(line) for line in sys.stdin], daemon=True).start()
def serve(connection, address):
    n = moved = 0
    while data := connection.recv(4096):
        if moved < len(moves):
            moved, old, connection = len(moves), connection, socket.socket(fileno=os.dup(connection.fileno()))
            old.close()
        n += len(data)
        if n >= 13:
            connection.sendall(b"r" * 13)
            n = 0
    print(json.dumps({"eof": time.monotonic(), "port": address[1]}), flush=True)
listener = socket.create_server(("127.0.0.1", 0))
print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
while True:
    threading.Thread(target=serve, args=listener.accept(), daemon=True).start()
"""

#: A request in two writes a round, on the newest connection; another connection is idle. After so many rounds (0:
#: never) it makes a new one; between rounds it does what a line on stdin says.
CLIENT = r"""
import json, select, socket, sys, time
OPTION = (socket.IPPROTO_TCP, socket.TCP_NODELAY)
def connect():
    return socket.create_connection(("127.0.0.1", int(sys.argv[1])))
talking, idle = connect(), connect()
rounds = int(sys.argv[2])
while True:
    rounds -= 1
    if rounds == 0:
        talking, rounds = connect(), int(sys.argv[2])
    if select.select([sys.stdin], [], [], 0.005)[0]:
        match sys.stdin.readline().split():
            case ["set", value]: talking.setsockopt(*OPTION, int(value))
            case ["reconnect"]: talking = connect()
            case ["close"]:
                at, port = time.monotonic(), talking.getsockname()[1]
                talking.close()
                print(json.dumps({"closed": at, "port": port}), flush=True)
                talking = connect()
            case _: break
    began = time.monotonic()
    talking.send(b"1" * 6)
    talking.send(b"2" * 7)
    n = 0
    while n < 13:
        n += len(talking.recv(99))
    print(json.dumps({"ms": 1e3 * (time.monotonic() - began), "nodelay": talking.getsockopt(*OPTION),
                      "idle": idle.getsockopt(*OPTION), "port": talking.getsockname()[1]}), flush=True)
"""


#: Both ends: holds requests of its own on one connection, and is what a client talks to that holds its requests.
PROXY = SERVER.replace("while True:\n", r"""
def ask(port):
    upstream = socket.create_connection(("127.0.0.1", port))
    while True:
        upstream.send(b"1" * 6)
        upstream.send(b"2" * 7)
        n = 0
        while n < 13:
            n += len(upstream.recv(99))
        time.sleep(0.02)
import sys
threading.Thread(target=ask, args=(int(sys.argv[1]),), daemon=True).start()
while True:
""")

#: Connects to the server: each connection, its fast first rounds behind it, stalls as soon as it asks in two parts.
FRESH = r"""
import json, socket, sys, time
OPTION = (socket.IPPROTO_TCP, socket.TCP_NODELAY)
def ask(s, *parts):
    for part in parts:
        s.send(part)
def take(s):
    n = 0
    while n < 13:
        n += len(s.recv(99))
def connect():
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    s.setsockopt(*OPTION, 1)
    for _ in range(3):
        ask(s, b"0" * 13)
        take(s)
    s.setsockopt(*OPTION, 0)
    return s
"""

#: Each connection stalls once and never again.
ONCE = FRESH + r"""
connections = [connect() for _ in range(400)]
print("ready", flush=True)
for s in connections:
    ask(s, b"1" * 6, b"2" * 7)
    take(s)
    time.sleep(0.003)
"""


def say(process: subprocess.Popen[str], line: str = "") -> None:
    assert process.stdin
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


class Talk(Ends):
    """The two programs, at it until the block ends."""

    def __init__(self, rounds_a_connection: int = 0) -> None:
        self.processes: list[subprocess.Popen[str]] = []
        self.server, self.server_lines = self.start(SERVER)
        self.port: int = json.loads(self.server_lines.wait_for("port"))["port"]
        self.client, self.lines = self.start(CLIENT, str(self.port), str(rounds_a_connection))
        self.until(lambda r: r["ms"] > 30)  # the first rounds are fast

    def start(self, script: str, *arguments: str,
              program: str = sys.executable) -> tuple[subprocess.Popen[str], Lines]:
        process = subprocess.Popen([program, "-c", script, *arguments], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process, Lines(process.stdout)

    @property
    def rounds(self) -> list[Record]:
        return [record for _, line in list(self.lines.all) if "ms" in (record := json.loads(line))]

    def until(self, seen: Callable[[Record], bool]) -> Record:
        """The next round that is so."""
        deadline = time.monotonic() + PATIENCE
        while True:
            round_ = json.loads(self.lines.wait_for('"ms"'))
            if seen(round_):
                return round_
            assert time.monotonic() < deadline, round_

    def now(self) -> Record:
        """A round that begins from now on."""
        done = len(self.rounds) + 1  # one is under way
        deadline = time.monotonic() + PATIENCE
        while len(rounds := self.rounds) <= done:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return rounds[done]

    def tell(self, command: str) -> None:
        say(self.client, command)

    def close(self) -> None:
        for process in reversed(self.processes):
            kill(process)


def fix(pid: int, *arguments: str, option: str = "--nodelay", text: bool = False,
        prefix: tuple[str, ...] = ()) -> Tracer:
    """Attached; it asks nothing."""
    return Tracer("fix", "-p", str(pid), option, "--yes", *arguments, text=text, prefix=prefix)


def result(tracer: Tracer) -> Record:
    """What a run that has ended says, after the report of the time before."""
    kinds = [record["type"] for _, record in tracer._records()]
    assert kinds == ["start", "report", "fix"]
    return tracer.records("fix")[0]


def socket_of(said: Record, port: int) -> Record:
    """What is said of the client's socket with that port; one entry, no more."""
    found = [s for s in said["sockets"] if s["local"].endswith(f":{port}")]
    assert len(found) == 1, said["sockets"]
    return found[0]


# ---- what it does ----


@pytest.mark.quick
@pytest.mark.guest
@pytest.mark.once
def test_rounds_are_fast_while_nodelay_is_set_and_slow_again_afterwards() -> None:
    with Talk() as talk:
        with fix(talk.client.pid, "--for", "1500ms") as tracer:
            before = talk.now()
            talk.until(lambda r: r["nodelay"] == 1)
            tracer.wait()
            after = [talk.now() for _ in range(3)]
        rounds = talk.rounds
    said = result(tracer)
    assert before["nodelay"] == 0 and before["ms"] > 30
    set_ = [r["ms"] for r in rounds if r["nodelay"]]
    assert len(set_) > 20 and statistics.median(set_) < 5, set_
    assert [r["nodelay"] for r in after] == [0, 0, 0] and min(r["ms"] for r in after) > 30
    assert not any(r["idle"] for r in rounds), "a connection that did not stall was touched"
    assert (said["option"], said["ended"], said["verdict"]) == ("TCP_NODELAY", "time", "cured")
    assert said["before"]["stalls"] > 10 and said["while_set"]["stalls"] <= said["before"]["stalls"] / 10
    assert 1_400_000 < said["while_set"]["span_us"] < (3_000_000 if IN_GUEST else 1_700_000)
    assert said["before"]["p50_us"] > 30_000
    entry = socket_of(said, rounds[0]["port"])
    assert (entry["state"], entry["was_set"], entry["pid"]) == ("restored", False, talk.client.pid)
    assert len(said["sockets"]) == 1 and entry["stalls_before"] == said["before"]["stalls"]
    assert "TCP_NODELAY" in said["fix"]


@pytest.mark.guest
@pytest.mark.once
def test_rounds_are_fast_while_quickack_is_set_at_the_receiver() -> None:
    with Talk() as talk:
        with fix(talk.server.pid, "--for", "1500ms", option="--quickack") as tracer:
            tracer.errors.wait_for("setting TCP_QUICKACK again and again on 1 connection")
            begun = len(talk.rounds) + 2
            tracer.wait()
            ended = len(talk.rounds)
            after = [talk.now() for _ in range(3)]
        during = [r["ms"] for r in talk.rounds[begun:ended]]
    said = result(tracer)
    assert len(during) > 20 and statistics.median(during) < (20 if IN_GUEST else 5), during
    assert min(r["ms"] for r in after[1:]) > 30
    assert (said["option"], said["verdict"]) == (
        "TCP_QUICKACK", "cured" if said["set_again_us"] <= 5_000 else "unclear")
    assert [s["state"] for s in said["sockets"]] == ["restored"]
    assert 1_000 <= said["set_again_us"] < (20_000 if IN_GUEST else 5_000)


def test_quickack_is_set_often_where_it_matters_though_hundreds_of_others_are_idle() -> None:
    with Talk() as talk:
        with contextlib.ExitStack() as idle:
            for _ in range(400):
                idle.enter_context(socket.create_connection(("127.0.0.1", talk.port)))
            with fix(talk.server.pid, "--all", "--for", "1500ms", option="--quickack") as tracer:
                tracer.wait()
    said = result(tracer)
    assert len(said["sockets"]) > 400 and said["set_again_us"] < 5_000, said["set_again_us"]
    assert said["verdict"] == "cured"


@pytest.mark.parametrize("scenario,options", [
    ("write-write-read", ["--v4-mapped"]), ("write-write-read", ["-6", "--over", "veth"]), ("fork-worker", []),
    ("pass-fd", []), ("write-write-read", ["--mptcp", "--over", "veth"])],
    ids=["v4-mapped", "ipv6-netns", "child", "passed", "mptcp"])
def test_the_socket_is_found_however_the_process_came_by_it(scenario: str, options: list[str]) -> None:
    with Lab(scenario, "--rounds", "100000", "--interval", "2ms", "--seconds", "3", *options) as lab:
        pid = lab.ready["client"]["pid"]
        whose = ["-n", "lab-client"] if scenario == "pass-fd" else ["-p", str(pid)]
        with Tracer("fix", *whose, "--nodelay", "--yes", "--for", "1s", "-P", lab.port) as tracer:
            lab.go()
            tracer.wait()
        rounds = [r["latency_us"] for r in lab.result()["rounds"]]
    said = result(tracer)
    assert said["verdict"] == "cured" and [s["state"] for s in said["sockets"]] == ["restored"], said
    slow = [i for i, us in enumerate(rounds) if us > 30_000]
    assert len(slow) > 20 and len(rounds) > 300
    assert max(b - a for a, b in zip(slow, slow[1:])) > 200, "no fast rounds between the slow ones before and after"


def test_all_takes_connections_too_that_did_not_stall_and_those_that_come_meanwhile() -> None:
    with Talk() as talk:
        with fix(talk.client.pid, "--all", "--for", "2s") as tracer:
            talk.until(lambda r: r["nodelay"] == 1 and r["idle"] == 1)
            port = talk.now()["port"]
            talk.tell("reconnect")
            new = talk.until(lambda r: r["port"] != port)
            assert new["nodelay"] == 0
            talk.until(lambda r: r["port"] == new["port"] and r["nodelay"] == 1)
            tracer.wait()
            after = talk.now()
    assert (after["nodelay"], after["idle"]) == (0, 0)
    # the old one is closed by then: the client has closed it
    assert sorted(s["state"] for s in result(tracer)["sockets"]) == ["closed", "restored", "restored"]


def test_a_connection_that_is_new_is_set_once_it_stalls() -> None:
    with Talk() as talk:
        with fix(talk.client.pid, "--for", "1500ms") as tracer:
            port = talk.until(lambda r: r["nodelay"] == 1)["port"]
            talk.tell("reconnect")
            new = talk.until(lambda r: r["port"] != port)["port"]
            talk.until(lambda r: r["nodelay"] == 1)
            tracer.wait()
            assert talk.now()["nodelay"] == 0
        slow = [r for r in talk.rounds if r["port"] == new and r["ms"] > 30 and r["nodelay"]]
    said = result(tracer)
    assert socket_of(said, new)["state"] == "restored" and socket_of(said, port)["state"] == "closed"
    assert 1 <= said["while_set"]["stalls"] <= 2 and len(slow) <= 1


def test_of_many_short_connections_each_stalls_only_until_it_is_set() -> None:
    with Talk(rounds_a_connection=8) as talk:
        with fix(talk.client.pid, "--for", "2s") as tracer:
            tracer.errors.wait_for("setting TCP_NODELAY")
            first = talk.now()["port"]
            tracer.wait()
            last = talk.now()["port"]
        rounds = talk.rounds
    slow = dict.fromkeys((r["port"] for r in rounds), 0)
    for r in rounds:
        slow[r["port"]] += r["ms"] > 30
    ports = list(slow)
    before, while_set = ports[1:ports.index(first)], ports[ports.index(first) + 1:ports.index(last)]
    assert len(before) > 3 and statistics.median(slow[port] for port in before) >= 6, slow
    assert len(while_set) > 8 and statistics.median(slow[port] for port in while_set) == 1, slow
    said = result(tracer)
    # what stalled before was closed by then: there is nothing to compare on the same connection
    assert said["verdict"] == "unclear" and said["while_set"]["p50_us"] > 30_000
    assert {s["state"] for s in said["sockets"]} <= {"closed", "restored"}


def test_stalls_on_which_the_option_cannot_act_are_no_part_of_the_verdict() -> None:
    with Talk() as talk:
        proxy, lines = talk.start(PROXY, str(talk.port))
        proxys_port = str(json.loads(lines.wait_for("port"))["port"])
        for _ in range(4):
            talk.start(CLIENT, proxys_port, "0")
        with fix(proxy.pid, "--for", "1500ms") as tracer:
            tracer.wait()
    said = result(tracer)
    assert said["while_set"]["other_end_stalls"] > 20 and said["before"]["other_end_stalls"] > 20
    assert said["while_set"]["excess_us"] > said["before"]["excess_us"] / 2, "the other end's are not most of it"
    assert said["verdict"] == "cured", said
    compared, (entry,) = said["compared"], said["sockets"]
    assert compared["connections"] == 1 and compared["stalls_before"] == entry["stalls_before"] - 1


def test_connections_that_stall_but_once_show_no_cure() -> None:
    with Talk() as talk:
        client, lines = talk.start(ONCE, str(talk.port))
        lines.wait_for("ready")
        with fix(client.pid, "--for", "1s") as tracer:
            tracer.wait()
    said = result(tracer)
    assert said["before"]["stalls"] > 10 and said["while_set"]["stalls"] > 10
    assert len([s for s in said["sockets"] if s["state"] == "restored"]) > 20
    assert said["while_set"]["not_yet_set_stalls"] == said["while_set"]["stalls"]
    assert said["verdict"] == "unclear" and "no connection stalled twice" in said["verdict_text"], said


def test_stalls_of_connections_that_are_never_set_are_told_from_those_before_they_are_set() -> None:
    with Talk() as talk:
        talk.tell("set 1")
        talk.until(lambda r: r["nodelay"] == 1)
        with fix(talk.client.pid, "--all", "--for", "700ms") as tracer:
            talk.until(lambda r: r["idle"] == 1)
            talk.tell("set 0")  # what was found set is left alone
            tracer.wait()
    while_set = result(tracer)["while_set"]
    assert while_set["never_set_stalls"] == while_set["stalls"] > 3 and while_set["not_yet_set_stalls"] == 0


# ---- that it changes nothing else, and sets all back ----


def test_close_sends_its_fin_at_once_while_a_connection_is_set() -> None:
    for option in ("--nodelay", "--quickack"):
        with Talk() as talk:
            pid = talk.client.pid if option == "--nodelay" else talk.server.pid
            with fix(pid, "--for", "1500ms", option=option) as tracer:
                tracer.errors.wait_for("setting TCP_")
                talk.now()
                for _ in range(5):
                    talk.tell("close")
                    talk.now()
                tracer.wait()
            closed = {r["port"]: r["closed"] for _, line in talk.lines.all if "closed" in (r := json.loads(line))}
            ends = {r["port"]: r["eof"] for _, line in talk.server_lines.all if "eof" in (r := json.loads(line))}
        assert len(closed) == 5 and closed.keys() <= ends.keys(), (closed, ends)
        assert max(ends[port] - at for port, at in closed.items()) < 0.02
        assert "closed" in {s["state"] for s in result(tracer)["sockets"]} or option == "--quickack"


def sockets_of(pid: int) -> list[str]:
    links = descriptors(pid)
    assert links
    return [link for link in links if link.startswith("socket:")]


def test_it_keeps_no_descriptor_of_a_connection() -> None:
    with Talk() as talk, fix(talk.client.pid, "--for", "1s") as tracer:
        talk.until(lambda r: r["nodelay"] == 1)
        # by which it has set the option just now
        wait_until("it closes its descriptors", lambda: not sockets_of(tracer.process.pid))
        for _ in range(20):
            assert not sockets_of(tracer.process.pid)
        tracer.wait()


#: 32 and 33 are the C library's own.
ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2,
          signal.SIGTSTP, signal.SIGXFSZ, signal.SIGRTMIN, 32, 33]


@pytest.mark.guest
@pytest.mark.once
def test_each_signal_that_can_be_waited_for_ends_it_with_its_result_and_all_set_back() -> None:
    with Talk() as talk:
        for how in ENDING[:2] if IN_GUEST else ENDING:
            talk.until(lambda r: r["nodelay"] == 0)  # what was still to be read of the last one
            # whoever runs the tests may have said nohup
            with fix(talk.client.pid, "--all", "--for", "600ms", prefix=("env", "--default-signal=HUP")) as tracer:
                talk.until(lambda r: r["nodelay"] == 1 and r["idle"] == 1)
                tracer.stop(how)
                now = talk.now()
            said = result(tracer)
            assert (now["nodelay"], now["idle"]) == (0, 0), how
            assert said["ended"] == "signal" and said["while_set"]["span_us"] < 600_000, how
            assert {s["state"] for s in said["sockets"]} == {"restored"}


def test_nohup_keeps_it_from_ending_with_the_terminal() -> None:
    with Talk() as talk:
        with fix(talk.client.pid, "--for", "600ms", prefix=("env", "--ignore-signal=HUP")) as tracer:
            talk.until(lambda r: r["nodelay"] == 1)
            tracer.stop(signal.SIGHUP)
    said = result(tracer)
    assert said["ended"] == "time" and said["while_set"]["span_us"] >= 600_000


def test_each_signal_of_a_crash_ends_it_with_all_set_back() -> None:
    with Talk() as talk:
        for how in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS):
            talk.until(lambda r: r["nodelay"] == 0)  # what was still to be read of the last one
            with fix(talk.client.pid, "--all", "--for", "5s" if IN_GUEST else "600ms") as tracer:
                talk.until(lambda r: r["nodelay"] == 1 and r["idle"] == 1)
                tracer.process.send_signal(how)
                assert tracer.process.wait(PATIENCE) == -how
                now = talk.now()
            assert (now["nodelay"], now["idle"]) == (0, 0), how


def test_an_option_that_the_program_sets_itself_is_left_to_it() -> None:
    with Talk() as talk:
        with fix(talk.client.pid, "--for", "1s") as tracer:
            port = talk.until(lambda r: r["nodelay"] == 1)["port"]
            talk.tell("set 0")
            tracer.wait()
            assert talk.now()["nodelay"] == 0
        said = result(tracer)
        assert socket_of(said, port)["state"] == "changed"
        assert said["while_set"]["stalls"] > 3, "it does not stall again once it is off"
        assert said["verdict"] == "unclear" and "the program itself switched TCP_NODELAY off" in said["verdict_text"]
        talk.tell("set 1")
        talk.until(lambda r: r["nodelay"] == 1)
        with fix(talk.client.pid, "--all", "--for", "500ms") as tracer:
            tracer.wait()
            assert talk.now()["nodelay"] == 1
    said = result(tracer)
    assert (socket_of(said, port)["state"], socket_of(said, port)["was_set"]) == ("had_it", True)
    assert [s["state"] for s in said["sockets"] if not s["local"].endswith(f":{port}")] == ["restored"]


@pytest.mark.parametrize("make", [os.pipe, lambda: [end.detach() for end in socket.socketpair()]],
                         ids=["pipe", "socket"])
def test_a_closed_stdout_ends_it_quietly_with_all_set_back(make: Callable[[], Sequence[int]]) -> None:
    reader, writer = make()
    with Talk() as talk:
        process = subprocess.Popen([str(NAGLETRACE), "fix", "-p", str(talk.client.pid), "--nodelay", "--yes",
                                    "--for", "1s"], stdout=writer, stderr=subprocess.PIPE, text=True)
        os.close(writer)
        talk.until(lambda r: r["nodelay"] == 1)
        assert process.stderr
        assert b"to try" in os.read(reader, 65536)  # what is left unread, a socket shows as an error
        os.close(reader)
        began = time.monotonic()
        assert process.wait(PATIENCE) == 0
        assert time.monotonic() - began < 0.8 and talk.now()["nodelay"] == 0
        assert "cannot" not in process.stderr.read()
        process.stderr.close()


@pytest.mark.quick
def test_a_full_disk_is_told_and_nothing_is_set() -> None:
    with Talk() as talk, open("/dev/full", "w") as full:
        done = subprocess.run([str(NAGLETRACE), "fix", "-p", str(talk.client.pid), "--nodelay", "--yes", "--for",
                               "300ms"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
        assert not any(r["nodelay"] for r in talk.rounds)
    assert done.returncode == 1 and "cannot write the output: No space left on device" in done.stderr


def test_the_end_of_the_process_ends_it() -> None:
    with Talk() as talk, fix(talk.client.pid, "--for", "1s") as tracer:
        talk.until(lambda r: r["nodelay"] == 1)
        kill(talk.client)
        tracer.wait()
    said = result(tracer)
    assert said["ended"] == "process_ended" and [s["state"] for s in said["sockets"]] == ["closed"]


#: Connections that stall in bursts, all new to `fix`, from when the first is set until it is no more. Then: on how many
#: the option still is.
BURSTS = FRESH + r"""
connections = [connect() for _ in range(700)]
first, others = connections[0], connections[1:]
print(json.dumps({"ready": True}), flush=True)
while not first.getsockopt(*OPTION):
    ask(first, b"1" * 6, b"2" * 7)
    take(first)
while first.getsockopt(*OPTION):
    for _ in range(150):
        if others:
            ask(others.pop(), b"1" * 6, b"2" * 7)
    time.sleep(0.04)
sys.stdin.readline()
for s in connections[1 + len(others):]:  # a reply that nobody reads would make its end a reset
    take(s)
print(json.dumps({"left": sum(s.getsockopt(*OPTION) for s in connections)}), flush=True)
"""


@pytest.mark.quick
def test_an_end_that_was_not_asked_for_is_not_touched() -> None:
    """The stalls are seen at the sender's end, which the port chooses; quick ACKs would be the other end's."""
    with Talk() as talk:
        both = f"{talk.client.pid},{talk.server.pid}"
        with Tracer("fix", "-p", both, "-D", str(talk.port), "--quickack", "--yes", "--for", "500ms") as tracer:
            tracer.wait()
    said = result(tracer)
    assert said["before"]["stalls"] > 3 and said["sockets"] == [] and said["ended"] == "nothing_to_set"


#: Connections to itself, more than there is room for, in a network namespace that no process is in. At a line on stdin:
#: at how many ends the option is set.
CROWD = r"""
import ctypes, os, resource, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
home = os.open("/proc/self/ns/net", os.O_RDONLY)
assert libc.unshare(0x40000000) == 0  # CLONE_NEWNET
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
listener = socket.create_server(("127.0.0.1", 0), backlog=64)
ends = []
for _ in range(2100):
    ends += [socket.create_connection(listener.getsockname()), listener.accept()[0]]
assert libc.setns(home, 0) == 0
print("connected", flush=True)
for line in sys.stdin:
    print("set", sum(bool(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)) for s in ends), flush=True)
"""


# the development machine's first process does not say which is its namespace, so that none is without
@pytest.mark.guest
@pytest.mark.once
def test_what_is_open_in_a_namespace_without_a_process_is_not_taken_for_closed() -> None:
    with Talk() as talk:
        crowd, lines = talk.start(CROWD)
        lines.wait_for("connected")
        with fix(crowd.pid, "--all", "--for", "5s") as tracer:
            tracer.errors.wait_for("setting TCP_NODELAY")
            time.sleep(1)
            say(crowd)
            assert int(lines.wait_for("set ").split()[1]) == 4096
            tracer.wait()
        say(crowd)
        assert int(lines.wait_for("set ").split()[1]) == 0
    assert Counter(s["state"] for s in result(tracer)["sockets"]) == {"restored": 4096}


def test_a_stall_that_is_read_after_the_end_sets_nothing_more() -> None:
    with Talk() as talk:
        client, lines = talk.start(BURSTS, str(talk.port))
        lines.wait_for("ready")
        with fix(client.pid, "--for", "300ms") as tracer:
            tracer.wait()
        say(client)
        left = json.loads(lines.wait_for("left"))["left"]
    states = {s["state"] for s in result(tracer)["sockets"]}
    assert left == 0 and "restored" in states and not states & {"set", "stuck"}, (left, states)


#: One connection, at it until the option is set. Then, until a line on stdin, its first thread ends; or its socket is
#: at another descriptor, or in flight, all the time or half of it, or goes on from one to the next. Then: its option.
WANDERER = r"""
import ctypes, json, os, socket, sys, threading, time
OPTION = (socket.IPPROTO_TCP, socket.TCP_NODELAY)
here, there = socket.socketpair()
ended, leave = threading.Event(), threading.Event()
def rounds(s, still):
    while still(s):
        s.send(b"1" * 6)
        s.send(b"2" * 7)
        n = 0
        while n < 13:
            n += len(s.recv(99))
def fly(s, seconds):
    socket.send_fds(here, [b"x"], [s.fileno()])
    s.close()
    ended.wait(seconds)
    return socket.socket(fileno=socket.recv_fds(there, 1, 1)[1][0])
def work():
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    rounds(s, lambda s: not s.getsockopt(*OPTION))
    match sys.argv[2]:
        case "leader":
            leave.set()
            rounds(s, lambda s: not ended.is_set())
        case "moved":
            s = socket.socket(fileno=os.dup(s.fileno()))
            rounds(s, lambda s: not ended.is_set())
        case "flight":
            s = fly(s, 60)
        case "passes":
            while not ended.is_set():
                s = fly(s, 0.01)
                ended.wait(0.01)
        case "moves":
            fd = s.detach()
            while not ended.is_set():
                other = os.dup(fd)
                os.close(fd)
                fd = other
            s = socket.socket(fileno=fd)
    print(json.dumps({"nodelay": s.getsockopt(*OPTION)}), flush=True)
    os._exit(0)
threading.Thread(target=work).start()
threading.Thread(target=lambda: (sys.stdin.readline(), ended.set())).start()
leave.wait()
ctypes.CDLL(None).syscall(93 if os.uname().machine == "aarch64" else 60, 0)
"""


@pytest.mark.parametrize("how,is_found", [("leader", True), ("moved", True), ("passes", True), ("moves", True),
                                          ("flight", False)])
def test_what_is_set_is_set_back_wherever_it_is_or_it_is_said_that_it_is_not(how: str, is_found: bool) -> None:
    with Talk() as talk:
        client, lines = talk.start(WANDERER, str(talk.port), how)
        with fix(client.pid, "--for", "500ms") as tracer:
            code = tracer.process.wait(PATIENCE)
            tracer.lines.finish()
            tracer.errors.finish()
        say(client)
        nodelay = json.loads(lines.wait_for("nodelay"))["nodelay"]
    socket, = result(tracer)["sockets"]
    told = "cannot set TCP_NODELAY back on fd" in tracer.errors.text()
    if is_found:
        assert (code, socket["state"], nodelay, told) == (0, "restored", 0, False), tracer.errors.text()
    else:
        assert (code, socket["state"], nodelay, told) == (1, "stuck", 1, True), tracer.errors.text()
        assert "it is open, but at no descriptor" in socket["error"]


def test_quickack_goes_on_at_a_socket_that_has_moved() -> None:
    with Talk() as talk:
        with fix(talk.server.pid, "--for", "2500ms", option="--quickack") as tracer:
            tracer.errors.wait_for("setting TCP_QUICKACK")
            time.sleep(0.2)
            at = len(talk.rounds)
            say(talk.server)
            time.sleep(2)
            rounds = [r["ms"] for r in talk.rounds[at:]]
            tracer.wait()
    # for a second at most it is not set
    assert sum(ms > 30 for ms in rounds) >= 2 and statistics.median(rounds[-20:]) < 20, rounds
    assert [s["state"] for s in result(tracer)["sockets"]] == ["restored"]


#: At a line on stdin it connects to where no connection is accepted, so that the SYN is repeated after a second; at the
#: next line it is. Tells when the option is seen on that connection.
SLOW = r"""
import json, select, socket, sys, time
OPTION = (socket.IPPROTO_TCP, socket.TCP_NODELAY)
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(0)
first = socket.create_connection(listener.getsockname())
sys.stdin.readline()
slow = socket.socket()
slow.setblocking(False)
slow.connect_ex(listener.getsockname())
sys.stdin.readline()
print(json.dumps({"at_once": bool(select.select([], [slow], [], 0)[1])}), flush=True)
accepted = listener.accept()
while not slow.getsockopt(*OPTION):
    time.sleep(0.005)
print(json.dumps({"nodelay": 1}), flush=True)
sys.stdin.readline()
"""


def test_all_takes_a_connection_too_that_was_not_yet_connected_when_it_was_first_seen() -> None:
    with Talk() as talk:
        client, lines = talk.start(SLOW)
        with fix(client.pid, "--all", "--for", "1500ms") as tracer:
            time.sleep(0.8)
            say(client)
            tracer.errors.wait_for("setting TCP_NODELAY")
            say(client)
            tracer.wait()
        assert not json.loads(lines.wait_for("at_once"))["at_once"]
        lines.wait_for("nodelay")
    assert {s["state"] for s in result(tracer)["sockets"]} == {"restored"}


@pytest.mark.parametrize("output,before", [("text", "watching for stalls"), ("json", " hooks")])
def test_a_signal_ends_it_while_nobody_takes_its_output(output: str, before: str) -> None:
    pipe = Pipe()
    pipe.fill()
    with Talk() as talk:
        with nagletrace("fix", "-p", str(talk.client.pid), "--nodelay", "--yes", "--for", "200ms", "-o", output,
                        pipe=pipe) as (process, errors):
            errors.wait_for(before)
            time.sleep(1)
            assert process.poll() is None
            assert seconds_to_end(process) <= SIGNAL_TAKES
            assert process.returncode == 1
        assert not any(r["nodelay"] for r in talk.rounds)
    errors.finish()
    assert "cannot write the output" in errors.text()


def test_no_symbol_is_looked_up_while_it_is_set(tmp_path: Path) -> None:
    programs = [tmp_path / name / "nt-fix-python" for name in ("first", "second")]
    for program in programs:
        program.parent.mkdir()
        shutil.copy(sys.executable, program)
    libc = ctypes.CDLL(None)
    seen = [libc.inotify_init1(os.O_NONBLOCK) for _ in programs]

    def start(talk: Talk, i: int) -> Lines:
        """A client that runs that program; from now on who opens it is seen."""
        _, lines = talk.start(CLIENT, str(talk.port), "0", program=str(programs[i]))
        lines.wait_for('"ms"')
        assert libc.inotify_add_watch(seen[i], str(programs[i]).encode(), 0x20) > 0  # IN_OPEN
        return lines

    with Talk() as talk:
        start(talk, 0)
        with Tracer("fix", "-n", "nt-fix-python", "--nodelay", "--yes", "--stacks", "--for", "1s") as tracer:
            tracer.errors.wait_for("setting TCP_NODELAY")
            start(talk, 1).wait_for('"nodelay": 1')
            tracer.wait()
    assert os.read(seen[0], 4096), "it looks up no symbol at all"
    with pytest.raises(BlockingIOError):
        os.read(seen[1], 4096)
    for fd in seen:
        os.close(fd)


# ---- what it leaves alone ----


@pytest.mark.guest
@pytest.mark.once
def test_at_the_receiving_end_nodelay_sets_nothing_and_names_what_would_help() -> None:
    with Talk() as talk:
        done = run("fix", "-p", str(talk.server.pid), "--nodelay", "--yes", "--for", "700ms")
        said = run("fix", "-p", str(talk.client.pid), "--quickack", "--yes", "--for", "300ms", "--json")
    assert done.returncode == 0 and "--quickack" in done.stdout and "no connection was touched" in done.stdout
    record = json.loads(said.stdout.splitlines()[-1])
    assert (record["ended"], record["sockets"]) == ("nothing_to_set", [])
    assert record["before"]["other_end_stalls"] == record["before"]["stalls"] > 0


@pytest.mark.quick
def test_a_cork_is_told_from_what_nodelay_cures() -> None:
    with Lab("cork-forgotten", "--rounds", "5") as lab:
        with Tracer("fix", "-p", str(lab.client), "--nodelay", "--yes", "--for", "900ms", text=True) as tracer:
            lab.play()
            tracer.wait()
    text = " ".join(tracer.lines.text().split())
    assert re.search(r"\d stalls by cork, which TCP_NODELAY does not end: clear TCP_CORK", text), text
    assert "no connection was touched" in text


@pytest.mark.quick
def test_where_nothing_stalled_nothing_is_touched() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        done = run("fix", "-p", str(process.pid), "--nodelay", "--yes", "--for", "200ms")
        process.kill()
    assert done.returncode == 0
    assert "nothing stalled; no connection was touched" in " ".join(done.stdout.split())


# ---- the question ----


@pytest.mark.parametrize("answer,is_set", [
    pytest.param("y\n", True, id="yes"), pytest.param("n\n", False, id="no"),
    pytest.param("\n", False, marks=pytest.mark.quick, id="enter"), pytest.param("\x03", False, id="ctrl-c"),
    pytest.param("\x04", False, id="ctrl-d")])
def test_it_asks_on_the_terminal_and_sets_nothing_without_a_yes(answer: str, is_set: bool) -> None:
    with Talk() as talk:
        with Terminal(str(NAGLETRACE), "fix", "-p", str(talk.client.pid), "--nodelay", "--for", "500ms", "-q",
                      rows=60) as terminal:
            terminal.press("y\n")  # no answer to what was not asked yet
            terminal.wait_for("[y/N]")
            asked = " ".join(terminal.text().split())
            assert "Set TCP_NODELAY on 1 connection of python" in asked and "for 500 ms? [y/N]" in asked
            assert talk.now()["nodelay"] == 0
            terminal.press(answer)
            assert terminal.ended() == 0
            shown = terminal.text()
        assert any(r["nodelay"] for r in talk.rounds) is is_set
        assert talk.now()["nodelay"] == 0
    assert ("verdict" in shown) is is_set and ("no connection was touched" in shown) is not is_set


@pytest.mark.quick
def test_without_a_terminal_and_without_yes_it_refuses_at_once() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        done = subprocess.run([str(NAGLETRACE), "fix", "-p", str(process.pid), "--nodelay"], text=True,
                              timeout=PATIENCE, stdin=subprocess.DEVNULL, capture_output=True)
        process.kill()
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert "--yes" in done.stderr and "terminal" in done.stderr


@pytest.mark.quick
@pytest.mark.guest
@pytest.mark.once
def test_without_the_right_to_use_the_sockets_it_ends_at_once() -> None:
    # before 5.11 the memory of maps counts as locked
    some = ("sh", "-c", 'ulimit -l unlimited 2>/dev/null; exec "$@"', "sh", "setpriv", "--reuid=65534", "--regid=65534",
            "--clear-groups", "--inh-caps=-all,+bpf,+perfmon", "--ambient-caps=-all,+bpf,+perfmon")
    with Talk() as talk:
        for whose in (["-p", str(talk.client.pid)], ["-n", Path(f"/proc/{talk.client.pid}/comm").read_text().strip()]):
            done = run("fix", *whose, "--nodelay", "--yes", prefix=some)
            assert done.returncode == 4 and done.stdout == "", done
            assert "CAP_SYS_PTRACE missing" in done.stderr and done.stderr.count("\n") == 1
