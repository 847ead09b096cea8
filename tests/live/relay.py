# SPDX-License-Identifier: GPL-2.0
"""A relay that holds nothing, between a client and a backend whose replies stall by Nagle.

It writes the second piece of a reply just after the client's late ACK of the first, for its backend had stalled just as
long: on the wire that looks like a stall.
"""

from __future__ import annotations

import socket
import threading
import time

#: A reply, as the backend writes it.
PIECES = (201, 100)
REQUESTS = 4


def read_all(connection: socket.socket, size: int) -> None:
    while size:
        got = len(connection.recv(size))
        assert got, "the peer has closed"
        size -= got


def serve(listener: socket.socket, connections: int) -> None:
    for _ in range(connections):
        with listener.accept()[0] as connection:
            while connection.recv(100):
                for size in PIECES:
                    connection.send(bytes(size))


def relay(listener: socket.socket, backend: tuple[str, int], connections: int) -> None:
    """Passes each piece of a reply on as it comes, with TCP_NODELAY at both legs."""
    for _ in range(connections):
        with listener.accept()[0] as front, socket.create_connection(backend) as back:
            for leg in (front, back):
                leg.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while request := front.recv(100):
                back.sendall(request)
                left = sum(PIECES)
                while left:
                    piece = back.recv(left)
                    if not piece:
                        return
                    left -= len(piece)
                    front.sendall(piece)


def ask(front: tuple[str, int], connections: int) -> list[float]:
    """Makes connections, each of four requests and closed at once. Returns what the requests took, in us."""
    took = []
    for _ in range(connections):
        with socket.create_connection(front) as client:
            for _ in range(REQUESTS):
                began = time.monotonic()
                client.sendall(bytes(20))
                read_all(client, sum(PIECES))
                took.append((time.monotonic() - began) * 1e6)
    return took


def play(connections: int) -> tuple[list[float], int, int]:
    """Plays all of them, and returns what the requests took, in us, and the ports of relay and backend."""
    with socket.create_server(("127.0.0.1", 0)) as back, socket.create_server(("127.0.0.1", 0)) as front:
        threads = [threading.Thread(target=serve, args=(back, connections), daemon=True),
                   threading.Thread(target=relay, args=(front, back.getsockname(), connections), daemon=True)]
        for thread in threads:
            thread.start()
        took = ask(front.getsockname(), connections)
        for thread in threads:
            thread.join(10)
        return took, front.getsockname()[1], back.getsockname()[1]
