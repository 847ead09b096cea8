# SPDX-License-Identifier: GPL-2.0
"""Reads and writes a client's connection, with TLS or without."""

from __future__ import annotations

import asyncio
import contextlib
import socket
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
    """Uses asyncio's streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        # drain() waits until the kernel has everything; 64 KiB more wait in a lower buffer without a limit.
        writer.transport.set_write_buffer_limits(high=1, low=0)

    async def read(self, most: int) -> bytes:
        return await self._reader.read(most)

    async def write(self, data: bytes | memoryview) -> bool:
        """Waits until the kernel has nearly everything. Returns whether it took it at once."""
        self._writer.write(data)
        at_once = not self._writer.transport.get_write_buffer_size()
        await self._writer.drain()
        return at_once

    def end_output(self) -> bool:
        """Does nothing: TLS ends both directions at once."""
        return False

    async def close(self) -> None:
        """Exchanges the goodbyes of TLS."""
        with contextlib.suppress(OSError):
            self._writer.close()
            await self._writer.wait_closed()

    def abort(self) -> None:
        self._writer.transport.abort()


Stream = Union[PlainStream, TLSStream]
