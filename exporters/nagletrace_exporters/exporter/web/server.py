# SPDX-License-Identifier: GPL-2.0
"""Serves HTTP with uvicorn: which page a request gets, passwords, TLS.

uvicorn reads a client's next request when that has taken its answer, and its parser h11 bounds heads: so no client
costs more memory than a read, a head, a part of an answer, and buffers of the kernel. clients.py bounds the rest.
Of the other servers in Debian 12, aiohttp keeps every request that a client pipelines, 460 MiB in four seconds; 500
clients that say nothing keep everybody else out of cheroot and waitress.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import re
import signal
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from types import FrameType
from typing import Any

import uvicorn

from ... import __version__
from ...config_file import ConfigError
from .clients import LOG_S, Client, Clients, Refusals
from .config import ConfigFile, WebConfig, credentials
from .pages import PLAIN, Answer

log = logging.getLogger(__name__)

#: A page is a function: it makes the page, for OpenMetrics or not, or reuses one up to the given age in seconds.
Page = Callable[[bool, float], Awaitable[Answer]]

#: The most bytes of a request's line and headers together. Prometheus's have some 300.
HEAD_BYTES = 16 * 1024
#: A connection's buffers in the kernel, which doubles these sizes: a read takes no more at once than is received there.
RECEIVE_BUFFER, SEND_BUFFER = 16 * 1024, 64 * 1024
#: In a crowd an answer serves for this long, so that a flood of requests costs little more than sending.
CROWD_AGE_S = 4.0
#: The connections that the kernel queues for us, each with up to 60 KB that its client sent. If the kernel has no
#: room for one, it ignores the client, which tries again only after 1 s.
BACKLOG = 1024
#: The most connections that asyncio accepts in one go. Those who were accepted before have their turn in between: a
#: client's request is read before as many follow it as would cost it the connection.
ACCEPT_AT_ONCE = 32
#: The most passwords that wait while we check one, which takes 60 ms at bcrypt's cost of 10.
MAX_PASSWORDS = 4
#: accept() fails with these when the process or the host has no descriptor or memory left for a connection.
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

NOT_FOUND = Answer.of(b"404 not found\n", PLAIN)
TOO_LARGE = Answer.of(b"431 request header fields too large\n", PLAIN)
NOT_ALLOWED = Answer.of(b"405 method not allowed\n", PLAIN)
UNAUTHORIZED = Answer.of(b"401 unauthorized\n", PLAIN)
BUSY = Answer.of(b"too many passwords wait to be checked\n", PLAIN)
UNUSABLE = Answer.of(b"the exporter's web configuration cannot be used\n", PLAIN)
FAILED = Answer.of(b"the page cannot be made; the log has why\n", PLAIN)


def takes_gzip(accepted: str) -> bool:
    """Reads a header Accept-Encoding, by which a coding of weight 0 is refused."""
    return any(re.fullmatch(r"gzip(;q=(?!0(\.0*)?$).*)?", coding)
               for coding in accepted.lower().replace(" ", "").split(","))


class Passwords:
    """Checks passwords one at a time, in a thread. When too many wait, it turns one away unchecked."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._given = 0

    async def right(self, config: WebConfig, authorization: str | None) -> bool | None:
        """Returns whether the header has a user's right password; None: too many wait, so we did not check it."""
        given = credentials(authorization)
        if not config.users or (given and config.knows(*given)):
            return True
        if not given:
            return False
        if self._given > MAX_PASSWORDS:
            return None
        self._given += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, config.check, *given)
        finally:
            self._given -= 1


class App:
    """Answers requests, as an ASGI application."""

    def __init__(self, pages: dict[str, Page], config: ConfigFile, refusals: Refusals) -> None:
        self.pages = pages
        self.config = config
        self.refusals = refusals
        self.clients = Clients(refusals)
        self._passwords = Passwords()

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        host = scope["client"][0] if scope["client"] else ""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        log.debug("%s: %s %s", host, scope["method"], scope["path"])
        try:
            await self._answer(scope, host, headers, send)
        except Exception as error:
            log.debug("%s: the answer ended: %r", host, error)
            raise  # uvicorn closes the connection

    async def _answer(self, scope: Any, host: str, headers: dict[str, str], send: Any) -> None:
        status, answer, more = await self._choose(scope, host, headers)
        gzip = takes_gzip(headers.get("accept-encoding", ""))
        more = {"content-type": answer.content_type, "content-length": str(answer.bytes_as(gzip)),
                "vary": "Accept, Accept-Encoding", **more}
        if gzip:
            more["content-encoding"] = "gzip"
        await send({"type": "http.response.start", "status": status.value,
                    "headers": [(name.encode(), value.encode()) for name, value in more.items()]})
        if scope["method"] != "HEAD":
            for part in answer.parts(gzip):
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _choose(self, scope: Any, host: str, headers: dict[str, str]
                      ) -> tuple[HTTPStatus, Answer, dict[str, str]]:
        try:
            config = self.config.current()
        except ConfigError as error:
            log.error("%s", error)
            return HTTPStatus.INTERNAL_SERVER_ERROR, UNUSABLE, {}
        right = await self._passwords.right(config, headers.get("authorization"))
        if right is None:
            self.refusals.add("busy", host)
            return HTTPStatus.SERVICE_UNAVAILABLE, BUSY, {"retry-after": "1"}
        if not right:
            self.refusals.add("unauthorized", host)
            return HTTPStatus.UNAUTHORIZED, UNAUTHORIZED, {"www-authenticate": "Basic"}
        line = len(scope["raw_path"]) + len(scope["query_string"])
        if line + sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD_BYTES:
            # h11 bounds unfinished heads only
            self.refusals.add("bad_request", host)
            return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, TOO_LARGE, {"connection": "close"}
        if scope["method"] not in ("GET", "HEAD"):
            self.refusals.add("bad_request", host)
            return HTTPStatus.METHOD_NOT_ALLOWED, NOT_ALLOWED, {"allow": "GET, HEAD"}
        page = self.pages.get(scope["raw_path"].decode("latin-1"))
        if page is None:
            return HTTPStatus.NOT_FOUND, NOT_FOUND, {}
        try:
            return HTTPStatus.OK, await page("application/openmetrics-text" in headers.get("accept", ""),
                                             CROWD_AGE_S if self.clients.crowded else 0.0), {}
        except Exception as error:
            log.error("cannot make %s: %r", scope["path"], error)
            return HTTPStatus.INTERNAL_SERVER_ERROR, FAILED, {}


class Server(uvicorn.Server):  # type: ignore[misc]
    """Serves all addresses until SIGTERM or SIGINT."""

    def __init__(self, addresses: list[tuple[str, int]], app: App) -> None:
        """Listens on all addresses, or on none: then it raises OSError, with the failing address as its filename."""
        self.app = app
        self.listeners: list[socket.socket] = []
        self._next_line = 0.0
        try:
            for host, port in addresses:
                self.listeners.append(listen(host, port))
        except OSError as error:
            error.filename = f"{host}:{port}"
            for listener in self.listeners:
                listener.close()
            raise
        for name in ("uvicorn.error", "asyncio"):  # strangers can make them log as often as they like
            logging.getLogger(name).setLevel(logging.CRITICAL)
        settings = uvicorn.Config(app, http=Client, ws="none", loop="asyncio", lifespan="off", interface="asgi3",
                                  log_config=None, access_log=False, proxy_headers=False, server_header=False,
                                  headers=[("server", f"nagletrace-exporter/{__version__}")],
                                  backlog=ACCEPT_AT_ONCE)
        settings.load()
        settings.h11_max_incomplete_event_size = HEAD_BYTES  # before 0.20 uvicorn has no such option, and h11's is this
        settings.ssl = tls_that_renews(app.config)
        super().__init__(settings)

    async def run_until_signal(self, ready: Callable[[], None]) -> None:
        """Calls `ready` as soon as it answers clients."""
        self._ready = ready
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._log_of_loop)
        sys.unraisablehook = lambda wrong: log.debug("%s: %r", wrong.err_msg, wrong.exc_value)  # a TLS name of no ASCII
        gc.freeze()  # all present objects stay, so later collections can skip them
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)  # from 0.29 on uvicorn raises the signal again when it has ended
        self._loop.add_signal_handler(signal.SIGHUP, log.info, "SIGHUP: files are read again by themselves once they "
                                      "have changed; restart it to change its options")
        await self.serve(sockets=self.listeners)

    def _log_of_loop(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Logs what asyncio reports. It tries a failed accept() again in 1 s, so that message comes again and again."""
        error = context.get("exception")
        now = time.monotonic()
        if isinstance(error, OSError) and error.errno in NO_ROOM and now >= self._next_line:
            self._next_line = now + LOG_S
            log.error("cannot accept a connection: %s", error.strerror)
        else:
            log.debug("%s: %r", context.get("message"), error)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        for listener in self.listeners:
            listener.listen(BACKLOG)  # asyncio has one number for this and for how many it accepts in one go
        self._ready()

    async def main_loop(self) -> None:
        """Wakes once a second, as often as uvicorn makes a new header `Date`. Its own main loop wakes ten times."""
        while not await self.on_tick(0):
            self.app.clients.sweep()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ended.wait(), 1)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._loop.call_soon_threadsafe(self._ended.set)  # from 0.29 on a signal interrupts the loop, and wakes it not

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        """Ends all connections at once. uvicorn would wait for clients that take an answer slowly, or say nothing."""
        for server in self.servers:
            server.close()
        self.app.clients.close()
        await asyncio.sleep(0)


def tls_that_renews(config: ConfigFile) -> ssl.SSLContext | None:
    """Returns the context to listen with, or None without TLS. Each handshake takes the file's present certificates.

    OpenSSL lets a handshake in progress change to other certificates, but not to other rules: when those have changed,
    one handshake fails, and the next follows the new ones.
    """
    listening = config.current().context
    if listening is None:
        return None

    def renew(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
        try:
            loaded = config.current()
        except ConfigError as error:
            log.error("%s", error)
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        present = loaded.context
        assert present is not None  # noqa: S101  ConfigFile refuses files that turn TLS off
        rules = present.verify_mode, present.minimum_version
        if rules != (listening.verify_mode, listening.minimum_version):
            listening.verify_mode, listening.minimum_version = rules
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        session = connection.session if connection.session_reused else None  # others have none yet
        if session and present is not listening and session.time <= loaded.loaded_s:
            # it may be of a client that the file no longer knows
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = present
        return None

    listening.sni_callback = renew
    return listening


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket; "" means every address, IPv4 included. Raises OSError."""
    try:
        family = socket.AF_INET6 if ":" in host or not host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, dualstack_ipv6=not host)
    except OSError as error:
        if host or error.errno == errno.EADDRINUSE:
            raise
        listener = socket.create_server((host, port))  # the host has no IPv6
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    return listener
