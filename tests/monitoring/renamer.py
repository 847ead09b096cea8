#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Stalls under many names: renamer.py THREADS ROUNDS. Each round of each thread has a command name of its own.

The textbook stall over loopback: 6 bytes, 7 bytes, then wait for the answer. The first names are hostile. Prints as
JSON how many rounds the clock says have stalled, and how many names they had.
"""

from __future__ import annotations

import ctypes
import json
import socket
import sys
import threading
import time

PR_SET_NAME = 15
HOSTILE = [b'a"b', b"a\\b", b"a\nb", b"\xff\xfe\xfd", b"{le=\"1\"}", b"a\tb\rc", b"# HELP x", b"\xe2\x82", b"other",
           b"\x1b[2J", b"'; drop", b" ", b"-", b"unknown", b"\xf0\x9f\x90\x8c"]
REQUEST = 13
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


def stall(number: int, rounds: int, address: tuple[str, int], start: threading.Barrier,
          told: list[tuple[bytes, float]]) -> None:
    with socket.create_connection(address) as connection:
        start.wait()
        for i in range(rounds):
            at = number * rounds + i
            name = HOSTILE[at] if at < len(HOSTILE) else b"name-%d" % at
            prctl(PR_SET_NAME, name)
            began = time.monotonic()
            connection.sendall(b"x" * 6)
            connection.sendall(b"y" * 7)
            connection.recv(2)
            told.append((name, time.monotonic() - began))


def main() -> None:
    threads, rounds = int(sys.argv[1]), int(sys.argv[2])
    told: list[tuple[bytes, float]] = []
    start = threading.Barrier(threads)
    running: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0), backlog=threads) as listener:
        for number in range(threads):
            running.append(threading.Thread(target=serve, args=(listener,)))
            running.append(threading.Thread(target=stall, args=(number, rounds, listener.getsockname()[:2], start,
                                                                told)))
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    stalled = [name for name, latency in told if latency >= 0.03]
    json.dump({"rounds": len(told), "stalled": len(stalled), "names": len(set(stalled)),
               "hostile": sorted(name.hex() for name in set(stalled) & set(HOSTILE))}, sys.stdout)


if __name__ == "__main__":
    main()
