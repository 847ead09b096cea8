# SPDX-License-Identifier: GPL-2.0
"""The HTTP side: /metrics, a landing page, /-/healthy."""

from __future__ import annotations

import contextlib
import gzip
import html
import logging
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, ClassVar

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from . import __version__
from .web_config import ConfigError, ConfigFile

log = logging.getLogger(__name__)

#: A client that is slower than this in anything is left.
CLIENT_TIMEOUT_S = 15.0
#: More connections than these are closed at once.
MAX_CONNECTIONS = 64

PLAIN = "text/plain; charset=utf-8"

PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>nagletrace exporter</title>
<style>body {{ font-family: sans-serif; margin: 2rem; max-width: 40rem; color-scheme: light dark }}</style></head>
<body>
<h1>nagletrace exporter</h1>
<p>Version {version}. Time that TCP connections lose to Nagle's algorithm and delayed ACKs, as the nagletrace daemon
at <code>{socket}</code> sees it.</p>
<ul><li><a href="{path}">Metrics</a></li><li><a href="/-/healthy">Health</a> of this exporter</li></ul>
</body>
</html>
"""


class Scrapes:
    """Metrics as text. Those who ask while one answer is being made share the next one."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._lock = threading.Lock()
        self._made: dict[str, tuple[float, bytes]] = {}

    def text(self, accept: str) -> tuple[bytes, str]:
        """The exposition that this Accept header prefers, gathered after the call, and its content type."""
        arrived = time.monotonic()
        encoder, content_type = choose_encoder(accept)
        with self._lock:
            began, body = self._made.get(content_type, (0.0, b""))
            if began <= arrived:
                began = time.monotonic()
                body = encoder(self.registry)
                self._made = {content_type: (began, body)}
        return body, content_type


class Handler(BaseHTTPRequestHandler):
    """One client's connection."""

    protocol_version = "HTTP/1.1"
    server_version = f"nagletrace-exporter/{__version__}"
    sys_version = ""
    timeout = CLIENT_TIMEOUT_S
    disable_nagle_algorithm = True  # head and body are two writes: of all programs, not this one
    server: Server

    def handle_one_request(self) -> None:
        self.server.waiting[self.connection] = time.monotonic()
        try:
            super().handle_one_request()
        finally:
            self.server.waiting.pop(self.connection, None)

    def parse_request(self) -> bool:
        """The head has come; what is left is ours to do."""
        parsed = super().parse_request()
        self.server.waiting.pop(self.connection, None)
        return parsed

    def do_GET(self) -> None:
        self._respond(with_body=True)

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def _respond(self, with_body: bool) -> None:
        if not self._allowed():
            return
        path = self.path.partition("?")[0]
        page = self.server.pages.get(path)
        if page is None:
            self._send(HTTPStatus.NOT_FOUND, b"404 not found\n", PLAIN, with_body)
            return
        body, content_type = page(self.headers.get("Accept", ""))
        self._send(HTTPStatus.OK, body, content_type, with_body)

    def _allowed(self) -> bool:
        try:
            config = self.server.config.current()
        except ConfigError as error:
            log.error("%s", error)
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, b"the exporter's web configuration cannot be used\n",
                       PLAIN, True)
            return False
        if config.allows(self.headers.get("Authorization")):
            return True
        self._send(HTTPStatus.UNAUTHORIZED, b"401 unauthorized\n", PLAIN, True,
                   {"WWW-Authenticate": "Basic"})
        return False

    def _send(self, status: HTTPStatus, body: bytes, content_type: str, with_body: bool,
              headers: dict[str, str] | None = None) -> None:
        if status == HTTPStatus.OK and "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, compresslevel=1)
            headers = {**(headers or {}), "Content-Encoding": "gzip"}
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s %s", self.client_address[0], format % args)


class Server(ThreadingMixIn, TCPServer):
    """Serves one address; a connection is a thread, and their number is bounded."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128
    #: of all servers of this process
    slots: ClassVar[threading.BoundedSemaphore] = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def __init__(self, host: str, port: int, pages: dict[str, Callable[[str], tuple[bytes, str]]],
                 config: ConfigFile) -> None:
        self.pages = pages
        self.config = config
        #: connections whose next request has not come whole, and since when; a thread adds and removes its own
        self.waiting: dict[socket.socket, float] = {}
        self.address_family = socket.AF_INET6 if ":" in host or not host else socket.AF_INET
        try:
            super().__init__((host, port), Handler)
        except OSError:
            if host:
                raise
            self.address_family = socket.AF_INET  # a host without IPv6
            super().__init__(("", port), Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            # every address means those of IPv4 too
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.slots.acquire(blocking=False):
            self.shutdown_request(request)  # the listener must not wait for those who have all the slots
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.slots.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """The handshake is the client's thread's, so that a slow one keeps nobody else waiting."""
        request.settimeout(CLIENT_TIMEOUT_S)
        try:
            context = self.config.current().context
        except ConfigError as error:
            log.error("%s", error)
            return
        if context:
            request = context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)
        if context:
            request.close()

    def service_actions(self) -> None:
        """Once a second: who has not brought a whole request by now is let go, however often a byte of it comes."""
        now = time.monotonic()
        for request, since in list(self.waiting.items()):
            if now > since + CLIENT_TIMEOUT_S:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        log.debug("%s: connection ended", client_address[0], exc_info=True)


def serve(addresses: list[tuple[str, int]], pages: dict[str, Callable[[str], tuple[bytes, str]]],
          config: ConfigFile) -> list[Server]:
    """Listens on all addresses, and answers from threads of its own. Raises OSError: none listens then."""
    servers: list[Server] = []
    try:
        for host, port in addresses:
            servers.append(Server(host, port, pages, config))
    except OSError as error:
        for server in servers:
            server.server_close()
        error.filename = f"{host}:{port}"
        raise
    for server in servers:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 1.0}, daemon=True).start()
    return servers


def make_pages(registry: CollectorRegistry, metrics_path: str, daemon_socket: str
               ) -> dict[str, Callable[[str], tuple[bytes, str]]]:
    """By path: what makes the body for an Accept header, and its content type."""
    scrapes = Scrapes(registry)
    landing = PAGE.format(version=__version__, socket=html.escape(daemon_socket),
                          path=html.escape(metrics_path)).encode()
    pages: dict[str, Callable[[str], tuple[bytes, str]]] = {
        "/": lambda _: (landing, "text/html; charset=utf-8"),
        "/-/healthy": lambda _: (b"OK\n", PLAIN),
    }
    pages[metrics_path] = scrapes.text
    return pages
