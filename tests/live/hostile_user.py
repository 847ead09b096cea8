#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What one user may do to a tracer: hostile_user.py CONNECTIONS DUPLICATES FORKS NAMES.

It makes so many connections to itself; of the first end of each it has so many duplicates, all shared by so many forks.
It stalls on the first connection, under so many names in turn. It prints the port once all are there, ends when its
standard input does, and then prints how many names it had.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading

REQUEST = 13


def serve(connection: socket.socket) -> None:
    got = 0
    while more := connection.recv(REQUEST):
        got += len(more)
        while got >= REQUEST:
            got -= REQUEST
            connection.sendall(b"r")


def connect(listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, server


def fork_and_sleep() -> int:
    """A child that lives as long as this process."""
    child = os.fork()
    if not child:
        select.select([sys.stdin], [], [])
        os._exit(0)
    return child


def stall(client: socket.socket, names: int) -> int:
    """The textbook stall, again and again until nobody listens; how many names it had."""
    rounds = 0
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        if names:
            with open("/proc/self/comm", "w") as comm:
                comm.write(f"mallory-{rounds % names}")
        client.sendall(b"header")
        client.sendall(b"content")
        client.recv(1)
        rounds += 1
    return min(rounds, names)


def main() -> None:
    connections, duplicates, forks, names = map(int, sys.argv[1:])
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as listener:
        ends = [connect(listener) for _ in range(connections)]
    for _ in range(duplicates):
        os.dup(ends[0][0].fileno())
    children = [fork_and_sleep() for _ in range(forks)]
    threading.Thread(target=serve, args=(ends[0][1],), daemon=True).start()
    print(ends[0][1].getsockname()[1], flush=True)
    print(stall(ends[0][0], names))
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
