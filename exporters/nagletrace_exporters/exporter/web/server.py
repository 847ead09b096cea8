# SPDX-License-Identifier: GPL-2.0
"""Serves HTTP: one event loop has all connections, each bounded in time and memory; slots.py says who may stay.

A new client waits in the lobby until its request is here: there it costs a socket and what it sent. Then a task answers
it. http.server parses and writes heads. Two threads do the slow work, one makes scrapes and one checks passwords, so
that neither delays clients who want something else.
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import contextlib
import errno
import gc
import heapq
import logging
import signal
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from typing import Any, Optional

from ... import __version__
from ...config_file import ConfigError
from .config import ConfigFile, WebConfig, credentials
from .pages import PLAIN, Answer, Wanted
from .slots import MAX_CONNECTIONS, MAX_TLS_CONNECTIONS, Connection, Refusals, Slots, State
from .streams import PlainStream, Stream, TLSStream

log = logging.getLogger(__name__)

#: A page is a function: it makes the page in the wanted shape, or reuses one up to the given age in seconds.
Page = Callable[[Wanted, float], Awaitable[Answer]]

#: The most bytes of a request's line and headers together. Prometheus's have some 300.
HEAD_BYTES = 16 * 1024
#: The kernel gets an answer in parts of this size. A client that takes a part makes progress.
PART_BYTES = 32 * 1024
#: The most bytes of past answers that we keep for slow readers. An answer of 1000 label sets has 2.7 MB.
KEPT_BYTES = 6 << 20
#: A crowd gets answers up to this age, so that a flood of requests costs little more than sending.
CROWD_AGE_S = 4.0
#: The parts that a connection sends in its turn, or fewer if the kernel has no room for more.
PARTS_IN_A_TURN = 8
#: After turns for these bytes, a ms of work, the event loop looks for new clients and requests again.
BYTES_AT_ONCE = PARTS_IN_A_TURN * PART_BYTES
#: A connection's buffers in the kernel, which doubles these sizes. They count towards the unit's memory limit.
RECEIVE_BUFFER, SEND_BUFFER = 16 * 1024, 64 * 1024
#: The connections that the kernel queues for us, or fewer if net.core.somaxconn (4096 by default) is less. If it has no
#: room for one, it ignores the client, which tries again only after 1 s.
BACKLOG = 4096
#: The most connections that we accept in one go, so that the event loop can read earlier ones in between.
ACCEPT_AT_ONCE = 64
#: The pause between reads from a client that sends on after we refused its request.
LET_READ_PAUSE_S = 0.05
#: The ended connections after which we collect garbage, which takes some ms.
COLLECT_AFTER = 128
#: The most passwords that wait while we check one, which takes 60 ms at bcrypt's cost of 10.
MAX_PASSWORDS = 4
#: accept() fails with these when the process or the host has no descriptor or memory left for a connection.
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
NO_ROOM_PAUSE_S = 0.5

# asyncio zeroes a buffer of this size for each TLS connection. Its default is 256 KiB; our clients need far less.
if hasattr(asyncio.sslproto, "SSLProtocol") and hasattr(asyncio.sslproto.SSLProtocol, "max_size"):
    asyncio.sslproto.SSLProtocol.max_size = HEAD_BYTES


def end_of_head(data: bytes, searched: int = 0) -> int:
    """Returns where the first head ends, or 0. It has not ended within the bytes that were searched before."""
    ends = [at + len(end) for end in (b"\n\r\n", b"\n\n") if (at := data.find(end, max(0, searched - 2))) >= 0]
    return min(ends, default=0)


class Head(BaseHTTPRequestHandler):
    """Lets http.server parse a request's head and write the answer's, without a socket."""

    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"  # a request without a version gets a status line, too
    server_version = f"nagletrace-exporter/{__version__}"
    sys_version = ""

    def __init__(self, data: bytes) -> None:  # the base's would talk to a socket
        self.rfile = BytesIO(data)
        self.written = self.wfile = BytesIO()
        self.refused: int | None = None
        self.requestline = self.path = ""
        self.raw_requestline = self.rfile.readline()
        self.good = self.parse_request()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self.refused = code
        super().send_error(code, message, explain)

    def log_message(self, format: str, *args: Any) -> None:
        pass  # Server logs requests

    def wanted(self) -> Wanted:
        codings = [coding.strip().split(";")[0] for coding in self.headers.get("Accept-Encoding", "").split(",")]
        return Wanted(openmetrics="application/openmetrics-text" in self.headers.get("Accept", ""),
                      gzip="gzip" in codings)

    def has_body(self) -> bool:
        return self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers

    def head_of(self, status: HTTPStatus, answer: Answer, headers: dict[str, str]) -> bytes:
        self.send_response(status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        if answer.gzip:
            self.send_header("Content-Encoding", "gzip")
        if self.close_connection:
            self.send_header("Connection", "close")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        return self.written.getvalue()


class Passwords:
    """Checks passwords one at a time, in a thread. When too many wait, it turns one away unchecked."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._thread = ThreadPoolExecutor(1)
        self._waiting: list[tuple[Connection, asyncio.Future[None]]] = []
        self._busy = False

    async def right(self, connection: Connection, config: WebConfig, authorization: str | None) -> bool | None:
        """Returns whether the header has a user's right password; None: too many wait, so we did not check it."""
        given = credentials(authorization)
        if not config.users or (given and config.knows(*given)):
            return True
        if not given:
            return False
        self._slots.progress(connection, State.PASSWORD)
        if not await self._turn(connection):
            return None
        try:
            right = await asyncio.get_running_loop().run_in_executor(self._thread, config.check, *given)
        finally:
            self._next()
        self._slots.progress(connection, State.PAGE)
        return right

    async def _turn(self, connection: Connection) -> bool:
        if not self._busy:
            self._busy = True
            return True
        self._waiting = [(one, turn) for one, turn in self._waiting if not turn.done()]
        if len(self._waiting) >= MAX_PASSWORDS:
            owners = Counter(one.owner for one, _ in self._waiting)
            owners[connection.owner] += 1
            owner, _ = owners.most_common(1)[0]
            place = next((n for n, (one, _) in enumerate(self._waiting) if one.owner == owner), None)
            if place is None:
                return False
            self._waiting.pop(place)[1].set_exception(asyncio.QueueFull())
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection.wake = lambda: None if turn.done() else turn.set_exception(asyncio.QueueFull())
        self._waiting.append((connection, turn))
        try:
            await turn
        except asyncio.QueueFull:
            return False
        return True

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.pop(0)[1]
            if not turn.done():  # done: we ended its connection
                turn.set_result(None)
                return
        self._busy = False


class Turns:
    """Chooses the next sender: the client with the fewest requests so far, then the one with the least left to send.

    So a scrape overtakes clients that ask again and again, and a long queue of answers does not delay new clients.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, int, asyncio.Future[None]]] = []
        self._number = 0
        self._running = False

    async def turn(self, connection: Connection) -> None:
        """Waits until the connection has its turn or ends."""
        self._number += 1
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection.wake = lambda: None if turn.done() else turn.set_result(None)
        heapq.heappush(self._waiting, (connection.requests, connection.left, self._number, turn))
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._give)  # not at once: others will ask before
        await turn

    def _give(self) -> None:
        given = 0
        while self._waiting and given < BYTES_AT_ONCE:
            _, left, _, turn = heapq.heappop(self._waiting)
            if not turn.done():  # done: we ended its connection
                turn.set_result(None)
                given += left
        self._running = bool(self._waiting)
        if self._running:
            asyncio.get_running_loop().call_soon(self._give)


class Server:
    """Serves all addresses."""

    def __init__(self, addresses: list[tuple[str, int]], pages: dict[str, Page], config: ConfigFile,
                 refusals: Refusals) -> None:
        """Listens on all addresses, or on none: then it raises OSError, with the failing address as its filename."""
        self.pages = pages
        self.config = config
        self.refusals = refusals
        self.slots = Slots(refusals, self._resume)
        self.passwords = Passwords(self.slots)
        self.turns = Turns()
        self.listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._paused = False
        self._closed = 0
        self._ended: Optional[asyncio.Event] = None  # noqa: UP045
        with contextlib.ExitStack() as opened:
            for host, port in addresses:
                try:
                    self.listeners.append(opened.enter_context(listen(host, port)))
                except OSError as error:
                    error.filename = f"{host}:{port}"
                    raise
            opened.pop_all()

    async def run(self, ready: Callable[[], None]) -> None:
        """Answers until SIGTERM or SIGINT. It calls `ready` as soon as it answers clients."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: log.debug("%s: %r", context.get("message"),
                                                                context.get("exception")))
        self._ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ended.set)
        for listener in self.listeners:
            loop.add_reader(listener, self._accept, listener)
        gc.freeze()  # all present objects stay, so later collections can skip them
        ready()
        sweeper = loop.create_task(self._sweep())
        await self._ended.wait()
        sweeper.cancel()
        self._pause()
        for listener in self.listeners:
            listener.close()
        for connection in list(self.slots.connections):
            self.slots.end(connection)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.slots.sweep()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            self.slots.make_room()
            if self.slots.full:
                self._pause(0.01)
                return
            try:
                sock, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in NO_ROOM:
                    log.error("cannot accept a connection: %s", error.strerror)
                    self._pause(NO_ROOM_PAUSE_S)
                return
            sock.setblocking(False)
            connection = Connection(sock, address[0])
            self.slots.most = MAX_TLS_CONNECTIONS if self.config.has_tls else MAX_CONNECTIONS
            self.slots.add(connection)
            if not connection.gone:
                self._await_request(connection)  # a client that had to wait has sent its request by now

    def _await_request(self, connection: Connection) -> None:
        """Has the client wait in the lobby until it sends a request, or with TLS the first byte of a handshake."""
        connection.has_task = False
        if not self._receive(connection):
            connection.enter_lobby(self._receive)

    def _receive(self, connection: Connection) -> bool:
        """Takes what a client in the lobby has sent. Returns whether it has left: a task answers it, or it is gone."""
        try:
            if self.config.has_tls:
                part = connection.sock.recv(1, socket.MSG_PEEK)
            else:
                part = connection.sock.recv(HEAD_BYTES - len(connection.received))
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            part = b""
        if not part:  # it has ended, or ends its output: it may still take an answer that the kernel has
            connection.leave_lobby()
            connection.sock.close()
            self.slots.remove(connection)
            return True
        if not self.config.has_tls:
            searched = len(connection.received)
            connection.received += part
            if end_of_head(connection.received, searched):
                self.slots.progress(connection, State.PAGE)
            elif len(connection.received) < HEAD_BYTES:
                return False
        connection.leave_lobby()
        connection.has_task = True
        task = asyncio.get_running_loop().create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    def _pause(self, seconds: float | None = None) -> None:
        """Leaves new connections in the kernel's queue for these seconds, or until a slot is free."""
        loop = asyncio.get_running_loop()
        self._paused = True
        for listener in self.listeners:
            loop.remove_reader(listener)
        if seconds is not None:
            loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        if not self._paused or (self._ended and self._ended.is_set()):
            return
        self._paused = False
        for listener in self.listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    async def _serve(self, connection: Connection) -> None:
        """Answers a client that has left the lobby. Without TLS it goes back there to wait for its next request."""
        stream: Stream | None = None
        stays = False
        try:
            stream = await self._open(connection)
            stays = await self._answer_all(connection, stream)
        except ConfigError as error:
            log.error("%s", error)
        except (OSError, EOFError) as error:
            log.debug("%s: the connection ended: %s", connection.host, error)
        finally:
            if stays and not connection.gone:
                self.slots.progress(connection, State.NEXT)
                self._await_request(connection)
            else:
                if stream and connection.gone:
                    stream.abort()
                elif stream:
                    await stream.close()  # the client keeps its slot meanwhile
                self.slots.remove(connection)
            if not isinstance(stream, PlainStream):
                self._collect()

    async def _answer_all(self, connection: Connection, stream: Stream) -> bool:
        """Answers the client's requests to the last. Returns whether it may wait for the next one in the lobby."""
        while not connection.gone:
            data = await self._read_head(connection, stream)
            if not data or connection.gone or not await self._answer(connection, stream, data):
                break
            if isinstance(stream, PlainStream) and not end_of_head(connection.received):
                return True
        return False

    def _collect(self) -> None:
        """Frees what asyncio and TLS leave behind: cycles of objects, whose large buffers the collector ignores."""
        self._closed += 1
        if self._closed % COLLECT_AFTER == 0:
            gc.collect()

    async def _open(self, connection: Connection) -> Stream:
        """Returns a client's stream, after the handshake if there is TLS."""
        try:
            context = self.config.current().context
        except ConfigError:
            connection.sock.close()
            raise
        if context is None:
            return PlainStream(connection.sock)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=HEAD_BYTES // 4)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection.sock, ssl=context)
        except OSError as error:  # ssl.SSLError is a subclass
            if not connection.gone:
                self.slots.refuse(connection, "tls")
            raise ConnectionError(str(error)) from error
        return TLSStream(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def _read_head(self, connection: Connection, stream: Stream) -> bytes:
        """Returns the next request's head. A head without an end was too long; an empty one: the client left."""
        data = connection.received
        connection.received = b""
        end = end_of_head(data)
        if not end:
            self.slots.progress(connection, State.NEXT if connection.requests else State.REQUEST)
        while not end and len(data) < HEAD_BYTES:
            part = await stream.read(HEAD_BYTES - len(data))
            if not part:
                return b""
            searched = len(data)
            data += part
            end = end_of_head(data, searched)
        if end:
            connection.received = data[end:]
        return data[:end or None]

    async def _answer(self, connection: Connection, stream: Stream, data: bytes) -> bool:
        """Answers one request, and returns whether the connection stays open for another."""
        self.slots.progress(connection, State.PAGE)
        head = Head(data)
        log.debug("%s: %s", connection.host, head.requestline)
        if not end_of_head(data):
            head.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif head.good and head.command not in ("GET", "HEAD"):
            head.send_error(HTTPStatus.NOT_IMPLEMENTED)
        if not head.good or head.refused:
            too_large = head.refused == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self.refusals.add("head_too_large" if too_large else "bad_request", connection.host)
            await self._send(connection, stream, head.written.getvalue(), b"")
            await self._let_read(connection, stream)
            return False
        if head.has_body():
            head.close_connection = True  # we read no bodies, so we could not find the next request behind this one
        status, answer, headers = await self._choose(connection, head)
        if connection.gone:
            return False
        text = head.head_of(status, answer, headers)
        await self._send(connection, stream, text, b"" if head.command == "HEAD" else answer.body)
        connection.requests += 1
        return not head.close_connection

    async def _choose(self, connection: Connection, head: Head) -> tuple[HTTPStatus, Answer, dict[str, str]]:
        try:
            config = self.config.current()
        except ConfigError as error:
            log.error("%s", error)
            return (HTTPStatus.INTERNAL_SERVER_ERROR,
                    Answer(b"the exporter's web configuration cannot be used\n", PLAIN), {})
        right = await self.passwords.right(connection, config, head.headers.get("Authorization"))
        if right is None:
            self.refusals.add("busy", connection.host)
            return (HTTPStatus.SERVICE_UNAVAILABLE, Answer(b"too many passwords wait to be checked\n", PLAIN),
                    {"Retry-After": "1"})
        if not right:
            self.refusals.add("unauthorized", connection.host)
            return HTTPStatus.UNAUTHORIZED, Answer(b"401 unauthorized\n", PLAIN), {"WWW-Authenticate": "Basic"}
        page = self.pages.get(head.path.partition("?")[0])
        if page is None:
            return HTTPStatus.NOT_FOUND, Answer(b"404 not found\n", PLAIN), {}
        try:
            return HTTPStatus.OK, await page(head.wanted(), CROWD_AGE_S if self.slots.crowded else 0.0), {}
        except Exception as error:
            log.error("cannot make %s: %r", head.path, error)
            return HTTPStatus.INTERNAL_SERVER_ERROR, Answer(b"the page cannot be made; the log has why\n", PLAIN), {}

    async def _let_read(self, connection: Connection, stream: Stream) -> None:
        """Reads on while the client has its slot: if we closed now, a reset would reach it before our answer."""
        self.slots.progress(connection, State.REQUEST)
        if stream.end_output():
            while await stream.read(HEAD_BYTES):
                await asyncio.sleep(LET_READ_PAUSE_S)

    async def _send(self, connection: Connection, stream: Stream, head: bytes, body: bytes) -> None:
        connection.body = body
        self.slots.progress(connection, State.ANSWER)
        connection.answer_began = connection.since
        self.slots.bound_bodies(body, KEPT_BYTES)
        size = connection.left = len(head) + len(body)
        while connection.left:
            await self.turns.turn(connection)
            for _ in range(PARTS_IN_A_TURN):
                if connection.gone:
                    raise ConnectionResetError("its slot was taken")
                self.slots.progress(connection, State.ANSWER)
                start = len(body) - connection.left
                # Head and first part leave as one write: two small ones would be the stall that this project finds.
                part = (head + body[:PART_BYTES - len(head)] if connection.left == size
                        else memoryview(body)[start:start + PART_BYTES])
                at_once = await stream.write(part)
                connection.left -= len(part)
                if not at_once or not connection.left:
                    break
        connection.body = None


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket; "" means every address, IPv4 included. Raises OSError."""
    if ":" in host or not host:
        try:
            listener = socket.create_server((host, port), family=socket.AF_INET6, backlog=BACKLOG,
                                            dualstack_ipv6=not host)
        except OSError as error:
            if host or error.errno == errno.EADDRINUSE:
                raise
            listener = socket.create_server(("", port), backlog=BACKLOG)  # the host has no IPv6
    else:
        listener = socket.create_server((host, port), backlog=BACKLOG)
    listener.setblocking(False)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    return listener
