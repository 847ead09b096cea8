# SPDX-License-Identifier: GPL-2.0
"""Who waits for a late ACK without Nagle, by the application's clock; and why an ACK was late."""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import threading
import time
from collections.abc import Iterator

import pytest
from ends import own_end
from harness import IN_GUEST, STALLED_US, Record, Tracer, nearest, unseen

pytestmark = [pytest.mark.guest, pytest.mark.quick]

ROUNDS = 12
#: After so many exchanges both ends are in interactive mode.
WARM = 20


def take(connection: socket.socket, size: int) -> bool:
    while size:
        came = len(connection.recv(size))
        if not came:
            return False
        size -= came
    return True


@contextlib.contextmanager
def server(request: int) -> Iterator[tuple[int, tuple[str, int]]]:
    """A process that answers each request of so many bytes with one: its pid and address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if not child:
            connection = listener.accept()[0]
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for size in (*[1] * WARM, *[request] * ROUNDS):
                take(connection, size)
                connection.send(b"x")
            os._exit(0)
        try:
            yield child, listener.getsockname()
        finally:
            os.waitpid(child, 0)


def connected(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address)
    for _ in range(WARM):
        connection.send(b"x")
        connection.recv(1)
    return connection


def assert_told(took_us: list[float], tracer: Tracer) -> list[Record]:
    """Each round that was slow is a stall as long, but for what the machine hid, and for one in which it stood still.

    The application's clock runs on while it is not scheduled: single rounds last longer than their stall.
    """
    felt, told = [us for us in took_us if us >= STALLED_US], tracer.stalls()
    assert len(felt) >= ROUNDS - 2, f"it does not stall: {took_us}"
    durations = [stall["duration_us"] for stall in told]
    fitting = nearest(felt, durations, unseen(tracer) + 1)
    assert len(fitting) == len(told), (felt, durations)
    longer = [f - d for f, d in zip(fitting, durations)]
    assert min(longer) > -1_000 and (IN_GUEST or statistics.median(longer) < 5_000), (fitting, durations)
    return told


@pytest.mark.parametrize("nodelay", [1, 0], ids=["nodelay", "nagle"])
@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_a_last_part_with_msg_more_waits_for_the_late_ack(side: str, nodelay: int) -> None:
    """By mistake it has the flag: the next ACK frees it, and Nagle has no part in that."""
    took = []
    with server(150) as (child, address):
        with Tracer("-P", str(address[1])) if side == "sender" else Tracer("-p", str(child)) as tracer:
            with connected(address) as client:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
                for _ in range(ROUNDS):
                    began = time.monotonic()
                    client.send(bytes(100))
                    client.send(bytes(50), socket.MSG_MORE)
                    client.recv(1)
                    took.append((time.monotonic() - began) * 1e6)
            tracer.stop()
    for stall in assert_told(took, tracer):
        assert (stall["cause"], stall["reason"], stall["side"]) == ("delayed_ack", "msg_more", side)
        assert own_end(stall)["pid"] == (child if side == "receiver" else os.getpid())
        hold = stall["sender"]["hold"]
        assert (hold["reason"], hold["release"], hold["bytes"]) == ("msg_more", "ack", 50)
    assert all("without MSG_MORE" in connection["fix"] for connection in tracer.closing()["connections"])


def test_an_ack_is_late_because_the_receiver_left_bytes_unread() -> None:
    """A read of all that came sends the ACK; this one leaves some, and the answer goes another way."""
    answers = os.pipe()

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as connection:
            for _ in range(WARM):
                take(connection, 1)
                connection.send(b"x")
            for _ in range(ROUNDS):
                take(connection, 4)  # of the first 8; more comes once these are acknowledged
                connection.recv(1004, socket.MSG_PEEK | socket.MSG_WAITALL)
                take(connection, 1004)
                os.write(answers[1], b"x")

    took = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        with Tracer("-P", str(listener.getsockname()[1])) as tracer:
            with connected(listener.getsockname()) as client:
                for _ in range(ROUNDS):
                    began = time.monotonic()
                    client.send(bytes(8))
                    client.send(bytes(1000))
                    os.read(answers[0], 1)
                    took.append((time.monotonic() - began) * 1e6)
                    time.sleep(0.02)
            tracer.stop()
        thread.join(10)
    told = assert_told(took, tracer)
    reasons = [stall["receiver"]["pending_ack"]["reason"] for stall in told if stall["evidence"] == "seen"]
    # the first ACK is late since the server had answered before
    assert reasons.count("left_unread") >= len(reasons) - 2, reasons
