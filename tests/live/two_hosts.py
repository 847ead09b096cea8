# SPDX-License-Identifier: GPL-2.0
"""Two hosts with a router between them that translates both addresses, and exchanges of messages between the two.

A host is a network namespace, and a host's name to those who trace it. The client connects to the router, which gives
the connection to the server (DNAT) as if it came from the router (SNAT): neither end knows the other's address.

The way between client and router can be slow or lossy: Network(slow=True), Network(lossy=True).

The exchanges are played by this file as a program, once for each end. The ends witness what stalled: the last part of a
message came long after it was written, by the clock that all namespaces share.
"""

from __future__ import annotations

import errno
import json
import select
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import typing
from collections import deque
from typing import Any

PORT = 8000
#: A part that comes so much later than it was written waited for a delayed ACK. A little more or less is in doubt, as
#: a writer may have waited for a CPU between the write and the look at its clock.
STALLED_S, DOUBT_S = 0.030, 0.005
#: Of a longer wait an ACK that was delayed by 40 ms may be the smaller part, as where the way gets slow: no stall.
HALF_LATE_S = 0.080
SO_TIMESTAMPNS = 35  # asm-generic/socket.h
ROUNDS = 12
#: What is marked so takes a slow way, so much longer in each direction. One who takes the ACK for late errs.
SLOW_TOS, SLOW_S = 0x10, 0.02
#: One packet in so many is lost.
LOST_ONE_IN = 20
# linux/if_packet.h
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
VNET_HEADER, ETHERNET = 10, 14

#: Request's parts, reply's parts, whether the ends set TCP_NODELAY, and how long the server thinks.
Exchange = tuple[list[int], list[int], bool, float]
STALLING: list[Exchange] = [
    ([6, 7], [13], False, 0.0),  # write, write, read
    ([512, 512], [1448], False, 0.0),  # header and body
    ([4, 100], [4, 100], False, 0.0),  # length and data, both ways
    ([200], [200, 300], False, 0.0),  # the tail of a reply
]
INNOCENT: list[Exchange] = [
    ([13], [13], False, 0.0),  # all in one write
    ([6, 7], [13], True, 0.0),
    ([20], [20], False, 0.08),  # a server that thinks
]
#: The server reads a message that has no reply so long after it came: the read sends the ACK before the timer does.
READ_LATE_S = 0.036
#: The client rests so long before each such message, so that the one before is acknowledged.
PAUSE_S = 0.06
READ_LATE: list[Exchange] = [([6, 7], [], False, 0.0)]


def run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)


def skip(why: str) -> typing.NoReturn:
    """Skips the test. The ends of a connection import this file where pytest is not wanted."""
    import pytest
    pytest.skip(why)


class Network:
    """The namespaces, held by processes that sleep."""

    def __init__(self, slow: bool = False, lossy: bool = False) -> None:
        self.slow, self.lossy = slow, lossy
        self.stamps: list[socket.socket] = []
        self.holders: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Network:
        try:
            for name in ("client", "router", "server"):
                script = "ip link set lo up && echo up; exec sleep 3000"
                holder = subprocess.Popen(["unshare", "-n", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
                self.holders[name] = holder
                assert holder.stdout and holder.stdout.readline() == "up\n"
            self._connect("client", "192.0.2.1/24", "192.0.2.254/24")
            self._connect("server", "198.51.100.1/24", "198.51.100.254/24")
            self._translate()
            if self.slow:
                self._slow_down()
            if self.lossy:
                nft(self.inside("router"), "add table ip loss",
                    "add chain ip loss forwarded { type filter hook forward priority 0; }",
                    f"add rule ip loss forwarded numgen random mod {LOST_ONE_IN} 0 counter drop")
            self.stamps = stamps_on()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for holder in self.holders.values():
            holder.kill()
            holder.communicate()
        for stamp in self.stamps:
            stamp.close()

    def pid(self, name: str) -> int:
        return self.holders[name].pid

    def inside(self, name: str) -> list[str]:
        return ["nsenter", "-t", str(self.pid(name)), "-n"]

    def _connect(self, name: str, own: str, routers: str) -> None:
        run(*self.inside("router"), "ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns",
            self.pid(name))
        run(*self.inside("router"), "ip", "address", "add", routers, "dev", f"to-{name}")
        run(*self.inside("router"), "ip", "link", "set", f"to-{name}", "up")
        run(*self.inside(name), "ip", "address", "add", own, "dev", "eth0")
        run(*self.inside(name), "ip", "link", "set", "eth0", "up")

    def _translate(self) -> None:
        """The server has no route to the client, nor the client to the server."""
        run(*self.inside("router"), "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        nft(self.inside("router"),
            "add table ip nat",
            "add chain ip nat before { type nat hook prerouting priority -100; }",
            f"add rule ip nat before tcp dport {PORT} dnat to 198.51.100.1:{PORT}",
            "add chain ip nat after { type nat hook postrouting priority 100; }",
            'add rule ip nat after oifname "to-server" masquerade random')


    def _slow_down(self) -> None:
        """Cuts the client's cable, and puts a namespace between in which a program forwards what comes."""
        script = 'echo up; exec "$@"'
        path = subprocess.Popen(["unshare", "-n", "sh", "-c", script, "sh", sys.executable, __file__, "path", "[]"],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.holders["path"] = path
        assert path.stdout and path.stdin and path.stdout.readline() == "up\n"
        run(*self.inside("router"), "ip", "link", "set", "to-client", "netns", self.pid("path"))
        run(*self.inside("router"), "ip", "link", "add", "to-client", "type", "veth", "peer", "name", "to-router",
            "netns", self.pid("path"))
        run(*self.inside("router"), "ip", "address", "add", "192.0.2.254/24", "dev", "to-client")
        run(*self.inside("router"), "ip", "link", "set", "to-client", "up")
        for device in ("to-client", "to-router"):
            run(*self.inside("path"), "ip", "link", "set", device, "up")
        path.stdin.write("begin\n")
        path.stdin.flush()
        assert path.stdout.readline() == "forwarding\n"

    def lost(self) -> int:
        """How many packets were lost on purpose."""
        rules = subprocess.check_output([*self.inside("router"), "nft", "list", "table", "ip", "loss"], text=True)
        return int(rules.split("packets ")[1].split()[0])


def nft(inside: list[str], *rules: str) -> None:
    if not shutil.which("nft"):
        skip("nft is missing; install nftables")
    done = subprocess.run([*inside, "nft", "\n".join(rules)], capture_output=True, text=True)
    if done.returncode:
        skip(f"nft cannot translate addresses: {' '.join(done.stderr.split())}")


def stamps_on() -> list[socket.socket]:
    """Sockets that have the kernel stamp what comes, in all namespaces, while they are open."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        writer = socket.create_connection(listener.getsockname())
        reader, _ = listener.accept()
    reader.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        writer.sendall(b"x")
        if reader.recvmsg(1, 256)[1]:
            return [reader, writer]
        time.sleep(0.01)
    skip("the kernel stamps nothing that comes")


def named(host: str) -> tuple[str, ...]:
    """Before a command: it runs on a host of that name."""
    return ("unshare", "-u", "sh", "-c", f'hostname {host}; exec "$@"', "sh")


def play(network: Network, exchanges: list[Exchange], rounds: int = ROUNDS,
         prompt_from: int = ROUNDS) -> list[dict[str, Any]]:
    """Plays each on a connection of its own, all at once. What came late, in order of time: `time` (s) and `to` whom,
    `waited_s` since it was written, and whether it is `sure` that it waited for a delayed ACK.

    prompt_from: from this round on both ends acknowledge promptly, and take the slow way where there is one; what comes
    late then is not among those.
    """
    words = json.dumps([exchanges, rounds, prompt_from])
    server = subprocess.Popen([*network.inside("server"), sys.executable, __file__, "server", words],
                              stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout and server.stdout.readline() == "listening\n"
        client = subprocess.run([*network.inside("client"), sys.executable, __file__, "client", words], text=True,
                                capture_output=True, timeout=60)
        assert client.returncode == 0, client.stderr
        told, _ = server.communicate(timeout=60)
    finally:
        server.kill()
        server.wait()
    ends = {"client": by_number(client.stdout), "server": by_number(told)}
    late = [one for to, other in (("client", "server"), ("server", "client")) for number, end in ends[to].items()
            for one in waits(ends[other][number]["wrote"][:prompt_from], end["came"], to)]
    return sorted(late, key=lambda one: one["time"])


def by_number(text: str) -> dict[int, dict[str, Any]]:
    return {end["number"]: end for end in json.loads(text)}


def waits(wrote: list[tuple[float, float]], came: list[float], to: str) -> list[dict[str, Any]]:
    return [{"time": at, "to": to, "waited_s": at - before,
             "sure": at - after >= STALLED_S + DOUBT_S and at - before <= HALF_LATE_S}
            for (before, after), at in zip(wrote, came) if at - before >= STALLED_S - DOUBT_S]


# ---- the two programs ----


class End:
    """One end of a connection: when it wrote the last part of each message, and when the last part came to it."""

    def __init__(self, connection: socket.socket, number: int, exchange: Exchange) -> None:
        self.connection, self.number = connection, number
        self.prompt = False
        self.wrote: list[tuple[float, float]] = []
        self.came: list[float] = []
        self.request, self.reply, nodelay, self.think = exchange
        connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        if nodelay:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def begin(self, prompt: bool) -> None:
        """Begins a round."""
        if prompt and not self.prompt:
            self.connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, SLOW_TOS)
        self.prompt = prompt

    def write(self, parts: list[int]) -> None:
        before = after = 0.0
        for part in parts:
            before = time.time()
            self.connection.sendall(bytes(part))
            after = time.time()
        self.wrote.append((before, after))

    def read(self, parts: list[int]) -> None:
        """By the kernel's time: this process may have waited for a CPU."""
        left, came = sum(parts), 0.0
        if left and not self.reply:
            select.select([self.connection], [], [])
            time.sleep(READ_LATE_S)
        while left:
            if self.prompt:
                self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            data, more, _, _ = self.connection.recvmsg(left, 256)
            assert data, "the other end has gone"
            left -= len(data)
            [(_, _, stamp)] = more
            seconds, nanoseconds = struct.unpack("ll", stamp)
            came = seconds + nanoseconds / 1e9
        self.came.append(came)

    def told(self) -> dict[str, Any]:
        return {"number": self.number, "wrote": self.wrote, "came": self.came}


def threads_of(one: Any, exchanges: list[Exchange]) -> None:
    told: list[dict[str, Any]] = []
    threads = [threading.Thread(target=lambda number=number: told.append(one(number)))
               for number in range(len(exchanges))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == len(exchanges), "a connection failed"
    print(json.dumps(told), flush=True)


def serve(exchanges: list[Exchange], rounds: int, prompt_from: int) -> None:
    listener = socket.create_server(("0.0.0.0", PORT))
    print("listening", flush=True)
    lock = threading.Lock()

    def one(_: int) -> dict[str, Any]:
        with lock:
            connection, _address = listener.accept()
        with connection:
            [number] = struct.unpack("!B", connection.recv(1))
            connection.sendall(b"!")
            end = End(connection, number, exchanges[number])
            for number in range(rounds):
                end.begin(number >= prompt_from)
                end.read(end.request)
                time.sleep(end.think)
                end.write(end.reply)
            connection.recv(1)
            return end.told()

    threads_of(one, exchanges)


def ask(exchanges: list[Exchange], rounds: int, prompt_from: int) -> None:
    def one(number: int) -> dict[str, Any]:
        with socket.create_connection(("192.0.2.254", PORT)) as connection:
            connection.sendall(struct.pack("!B", number))
            connection.recv(1)
            end = End(connection, number, exchanges[number])
            for number in range(rounds):
                end.begin(number >= prompt_from)
                time.sleep(0.0 if end.reply else PAUSE_S)
                end.write(end.request)
                end.read(end.reply)
            return end.told()

    threads_of(one, exchanges)


def forward() -> None:
    """Forwards frames between two interfaces in their order, with what the kernel left to do for a network card."""
    assert sys.stdin.readline() == "begin\n"
    ends = []
    for device in ("to-client", "to-router"):
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
        end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        end.bind((device, 0))
        ends.append(end)
    print("forwarding", flush=True)
    waiting: list[deque[tuple[float, bytes]]] = [deque(), deque()]
    while True:
        now = time.monotonic()
        for queue, other in zip(waiting, reversed(ends)):
            while queue and queue[0][0] <= now:
                other.send(queue.popleft()[1])
        due = min((queue[0][0] for queue in waiting if queue), default=now + 1)
        ready, _, _ = select.select(ends, [], [], max(0.0, due - now))
        for queue, end in zip(waiting, ends):
            if end in ready:
                try:
                    frame = end.recv(1 << 17)
                except OSError as error:
                    if error.errno == errno.ENETDOWN:
                        return  # a neighbour's namespace is gone: it is over
                    raise
                ip = frame[VNET_HEADER + ETHERNET:]
                slow = frame[VNET_HEADER + 12:][:2] == b"\x08\x00" and ip[1] & 0xFC == SLOW_TOS
                at = time.monotonic() + (SLOW_S if slow else 0.0)
                queue.append((max(at, queue[-1][0] if queue else 0.0), frame))


if __name__ == "__main__":
    role, words = sys.argv[1:]
    {"server": serve, "client": ask, "path": forward}[role](*json.loads(words))
