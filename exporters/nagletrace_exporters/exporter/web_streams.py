# SPDX-License-Identifier: GPL-2.0
"""Reads and writes a client's connection, with TLS or without."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Union


class PlainStream:
    """Uses the socket itself: to make and end one of asyncio's transports takes longer than most of our answers."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()

    async def read(self, most: int) -> bytes:
        return await self._loop.sock_recv(self._sock, most)

    async def write(self, data: bytes | memoryview) -> bool:
        """Waits until the kernel has everything. Returns whether it took it at once."""
        try:
            sent = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent == len(data):
            return True
        await self._loop.sock_sendall(self._sock, memoryview(data)[sent:])
        return False

    def end_output(self) -> bool:
        """Tells the client that no more follows. Returns whether we can go on to read."""
        self._sock.shutdown(socket.SHUT_WR)
        return True

    async def close(self) -> None:
        self._sock.close()

    def abort(self) -> None:
        self._sock.close()


class TLSStream:
    """Uses a socket that has shaken hands: asyncio's own TLS costs as much again as the cryptography."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()

    async def read(self, most: int) -> bytes:
        while True:
            try:
                return self._sock.recv(most)
            except (ssl.SSLWantReadError, BlockingIOError):  # the latter after the end of our output
                await self._ready(self._loop.add_reader, self._loop.remove_reader)

    async def write(self, data: bytes | memoryview) -> bool:
        """Waits until the kernel has everything. Returns whether it took it at once."""
        at_once = True
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._sock.send(rest):]
            except ssl.SSLWantWriteError:
                at_once = False
                await self._ready(self._loop.add_writer, self._loop.remove_writer)
        return at_once

    async def _ready(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        """Waits until the kernel has something, or takes something: also the end of the connection."""
        fd = self._sock.fileno()
        ready = self._loop.create_future()
        add(fd, lambda: None if ready.done() else ready.set_result(None))
        try:
            await ready
        finally:
            remove(fd)

    def end_output(self) -> bool:
        """Tells the client that no more follows. Returns whether we can go on to read, which then is not decrypted."""
        self._say_goodbye()
        self._sock.shutdown(socket.SHUT_WR)
        return True

    async def close(self) -> None:
        self._say_goodbye()
        self._sock.close()

    def abort(self) -> None:
        self._sock.close()

    def _say_goodbye(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # it is sent; we do not wait for the client's
            self._sock.unwrap()


Stream = Union[PlainStream, TLSStream]
