#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A receiver whose call on the socket lasts: busy_receiver.py ROUNDS, in a network namespace of its own.

It reads into memory that a thread of its own provides only after BUSY_S (userfaultfd), so the kernel keeps the socket
for that long. It begins BEFORE_S after the first byte has come: the timer of the delayed ACK expires meanwhile. Its
client, a child, writes 6 bytes and 7, and waits for the answer. Says when it is ready, and its port; waits for a line;
prints in the end how many timers found the socket in use, as the kernel counts them (TcpExtDelayedACKLocked), and how
many loss probes it sent: where threads wake 40 ms late, one takes the first tail along, and that one is no stall.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

REQUEST = 13
BEFORE_S, BUSY_S = 0.010, 0.150
SYS_USERFAULTFD = {"x86_64": 323, "aarch64": 282}[os.uname().machine]
UFFDIO_API, UFFDIO_REGISTER, UFFDIO_ZEROPAGE = 0xC018AA3F, 0xC020AA00, 0xC020AA04  # linux/userfaultfd.h
UFFD_API, MODE_MISSING = 0xAA, 1
PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)


def provide(faults: int) -> None:
    """Each page that is touched, late."""
    while True:
        select.select([faults], [], [])
        address = struct.unpack_from("=16xQ", os.read(faults, 32))[0] & -PAGE
        time.sleep(BUSY_S)
        fcntl.ioctl(faults, UFFDIO_ZEROPAGE, struct.pack("=QQQq", address, PAGE, 0, 0))


def register(memory: mmap.mmap) -> int:
    """Where it begins, from now on a page at a time."""
    faults = libc.syscall(SYS_USERFAULTFD, os.O_CLOEXEC)
    if faults < 0:
        sys.exit(f"userfaultfd: {os.strerror(ctypes.get_errno())}")
    fcntl.ioctl(faults, UFFDIO_API, struct.pack("=QQQ", UFFD_API, 0, 0))
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fcntl.ioctl(faults, UFFDIO_REGISTER, struct.pack("=QQQQ", begin, len(memory), MODE_MISSING, 0))
    threading.Thread(target=provide, args=[faults], daemon=True).start()
    return begin


def ask(address: tuple[str, int], rounds: int) -> None:
    with socket.create_connection(address) as connection:
        for _ in range(rounds):
            connection.sendall(b"x" * 6)
            connection.sendall(b"y" * 7)
            assert connection.recv(1) == b"r"


def answer(connection: socket.socket, begin: int, rounds: int) -> None:
    for number in range(rounds):
        select.select([connection], [], [])
        time.sleep(BEFORE_S)
        got = libc.recv(connection.fileno(), ctypes.c_void_p(begin + number * PAGE), REQUEST, 0)
        while got < REQUEST:
            got += len(connection.recv(REQUEST - got)) or sys.exit("the client has gone")
        # interactive again, as who answers sooner is: a delayed ACK ends that
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        connection.sendall(b"r")


def counted(name: str) -> int:
    names, values = [line.split() for line in Path("/proc/net/netstat").read_text().splitlines()
                     if line.startswith("TcpExt:")]
    return int(values[names.index(name)])


def main() -> None:
    rounds = int(sys.argv[1])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print("ready", listener.getsockname()[1], flush=True)
        sys.stdin.readline()
        if not os.fork():
            ask(listener.getsockname(), rounds)
            os._exit(0)
        memory = mmap.mmap(-1, rounds * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        answer(listener.accept()[0], register(memory), rounds)
    print(counted("DelayedACKLocked"), counted("TCPLossProbes"), flush=True)
    os._exit(0)  # its memory is in use by the thread


if __name__ == "__main__":
    main()
