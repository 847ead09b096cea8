#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Stalls under many names: renamer.py PROCESSES ROUNDS. Each round of each has a name of its own.

The textbook stall over loopback: 6 bytes, 7 bytes, then wait for the answer. Some names of the first process are
hostile. Prints as JSON how many rounds the clock says have stalled, and how many names they had.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import socket
import sys
import threading
import time
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier

PR_SET_NAME = 15
HOSTILE = [b'a"b', b"a\\b", b"a\nb", b"\xff\xfe\xfd", b"{le=\"1\"}", b"a\tb\rc", b"# HELP x", b"\xe2\x82", b"other",
           b"\x1b[2J", b"'; drop", b" ", b"-", b"unknown", b"\xf0\x9f\x90\x8c"]
REQUEST = 13
#: The first rounds of a connection may be acknowledged at once, and stall nothing: plain names have them.
QUICK_ROUNDS = 8

#: The name that a round had, and how long it took, in s.
Told = list[tuple[bytes, float]]

prctl = ctypes.CDLL(None, use_errno=True).prctl


def serve(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        while True:
            got = b""
            while len(got) < REQUEST:
                more = connection.recv(REQUEST - len(got))
                if not more:
                    return
                got += more
            connection.sendall(b"ok")


def stall(number: int, rounds: int, address: tuple[str, int], start: Barrier, told: SimpleQueue[Told]) -> None:
    mine: Told = []
    with socket.create_connection(address) as connection:
        start.wait()
        for i in range(rounds):
            at = number * rounds + i
            hostile = QUICK_ROUNDS <= at < QUICK_ROUNDS + len(HOSTILE)
            name = HOSTILE[at - QUICK_ROUNDS] if hostile else b"name-%d" % at
            prctl(PR_SET_NAME, name)
            began = time.monotonic()
            connection.sendall(b"x" * 6)
            connection.sendall(b"y" * 7)
            connection.recv(2)
            mine.append((name, time.monotonic() - began))
    told.put(mine)


def main() -> None:
    processes, rounds = int(sys.argv[1]), int(sys.argv[2])
    fork = multiprocessing.get_context("fork")
    start, queue = fork.Barrier(processes), fork.SimpleQueue()
    with socket.create_server(("127.0.0.1", 0), backlog=processes) as listener:
        clients = [fork.Process(target=stall, args=(number, rounds, listener.getsockname()[:2], start, queue))
                   for number in range(processes)]
        for client in clients:
            client.start()
        for _ in clients:
            threading.Thread(target=serve, args=(listener,)).start()
        told = [one for _ in clients for one in queue.get()]
        for client in clients:
            client.join()
    stalled = [name for name, latency in told if latency >= 0.03]
    json.dump({"rounds": len(told), "stalled": len(stalled), "names": len(set(stalled)),
               "hostile": sorted(name.hex() for name in set(stalled) & set(HOSTILE))}, sys.stdout)


if __name__ == "__main__":
    main()
