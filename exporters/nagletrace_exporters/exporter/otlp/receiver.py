# SPDX-License-Identifier: GPL-2.0
"""Posts batches to an OTLP receiver over HTTP, one at a time, and says what became of each by OTLP's specification.

The receiver is not trusted: an answer is bounded in bytes and, with its request, in time; a redirect is not followed.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import socket
import ssl
import threading
import time
from enum import Enum
from typing import NamedTuple

from ... import __version__
from ...config_file import ConfigError
from ...records import for_message
from .config import Endpoint, OtlpConfig, OtlpConfigFile
from .queue import Batch

#: The most time for a request with its answer, and for each connection attempt before them.
REQUEST_S = 10.0
#: More of an answer is not read. A receiver has to say in it how many records it rejected.
ANSWER_BYTES = 64 << 10
#: The specification has these tried again, and no other.
RETRYABLE = {429, 502, 503, 504}
#: The longest pause that a receiver may ask for.
MOST_RETRY_AFTER_S = 3600.0


class Fate(Enum):
    DELIVERED = "delivered"
    REFUSED = "refused"
    RETRY = "retry"


class Outcome(NamedTuple):
    """What became of a batch."""

    fate: Fate
    #: why the request failed, as the metric has it; "" if it did not
    failure: str = ""
    #: for the log
    what: str = ""
    #: how many records of a delivered batch the receiver rejected
    rejected: int = 0
    retry_after_s: float = 0.0


class Receiver:
    """Keeps one connection. Its methods run in one thread."""

    def __init__(self, endpoint: Endpoint, config: OtlpConfigFile) -> None:
        self.endpoint = endpoint
        self.config = config
        self._used: OtlpConfig | None = None
        self._connection: http.client.HTTPConnection | None = None

    def post(self, batch: Batch) -> Outcome:
        """Says what became of the batch."""
        try:
            config = self.config.current()
        except ConfigError as error:
            return Outcome(Fate.RETRY, "config", f"--otlp.config.file: {error}")
        if config is not self._used:
            self.close()
            self._used = config
        while True:
            kept = self._connection is not None
            try:
                return self._try(config, batch)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.close()
                # A receiver may close a connection that it kept open, at any time: then a new one decides.
                if not kept or isinstance(error, socket.timeout):
                    return failed(self.endpoint, error)

    def close(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None

    def _try(self, config: OtlpConfig, batch: Batch) -> Outcome:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self.endpoint.host, self.endpoint.port)
            # http.client's own connect() would not return before the handshake, however long that takes.
            self._connection.sock = socket.create_connection((self.endpoint.host, self.endpoint.port), REQUEST_S)
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if config.context:
                self._connection.sock = config.context.wrap_socket(
                    self._connection.sock, server_hostname=config.server_name or self.endpoint.host,
                    do_handshake_on_connect=False)
        with Deadline(self._connection.sock) as deadline:
            try:
                outcome = self._exchange(self._connection, config, batch)
            except (OSError, http.client.HTTPException, ValueError):
                if not deadline.passed:
                    raise
        if deadline.passed:  # http.client takes a head that was cut off for a whole one
            raise socket.timeout(f"no whole answer within {REQUEST_S:g} s")
        return outcome

    def _exchange(self, connection: http.client.HTTPConnection, config: OtlpConfig, batch: Batch) -> Outcome:
        if isinstance(connection.sock, ssl.SSLSocket):
            connection.sock.do_handshake()  # does nothing on a kept connection
        host = f"[{self.endpoint.host}]" if ":" in self.endpoint.host else self.endpoint.host
        usual = 443 if self.endpoint.tls else 80
        connection.request("POST", self.endpoint.path, batch.body, {
            "Host": host if self.endpoint.port == usual else f"{host}:{self.endpoint.port}",
            "Content-Type": "application/json", "Content-Encoding": "gzip",
            "User-Agent": f"nagletrace-exporter/{__version__}", **config.headers})
        response = connection.getresponse()
        body = response.read(ANSWER_BYTES)
        if response.length and len(body) < ANSWER_BYTES:
            raise http.client.IncompleteRead(body, response.length)
        if connection.sock is None or not response.isclosed():  # it ends here, or the rest of its answer is in the way
            self.close()
        if 200 <= response.status < 300:
            return delivered(body, batch.records)
        what = f"{self.endpoint}: status {response.status}{said(body)}"
        if response.status in RETRYABLE:
            return Outcome(Fate.RETRY, "status", what, retry_after_s=retry_after(response.getheader("Retry-After")))
        if 300 <= response.status < 400:
            what += "; redirects are not followed, give the last URL"
        return Outcome(Fate.REFUSED, "status", what)


class Deadline:
    """Ends a socket's exchange after REQUEST_S, however slowly the other end goes on."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.passed = False
        self._timer = threading.Timer(REQUEST_S, self._pass)
        self._timer.daemon = True

    def _pass(self) -> None:
        self.passed = True
        try:
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # of TCP: TLS's own would touch its state
        except OSError:
            return  # it has ended

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


def failed(endpoint: Endpoint, error: Exception) -> Outcome:
    """Names the failure of a request that had no whole answer."""
    why = for_message(str(getattr(error, "strerror", None) or error)) or type(error).__name__
    if isinstance(error, socket.timeout):
        return Outcome(Fate.RETRY, "timeout", f"{endpoint}: {why}")
    if isinstance(error, ssl.SSLError):
        why = for_message(getattr(error, "verify_message", "") or error.reason or str(error))
        return Outcome(Fate.RETRY, "tls", f"{endpoint}: TLS: {why}")
    if isinstance(error, OSError):
        return Outcome(Fate.RETRY, "connection", f"{endpoint}: {why}")
    return Outcome(Fate.RETRY, "answer", f"{endpoint}: no answer of HTTP ({why})")


def delivered(body: bytes, records: int) -> Outcome:
    """Reads how many records the receiver rejected. An answer that says nothing of it rejects none."""
    partial = object_in(body).get("partialSuccess")
    if not isinstance(partial, dict):
        return Outcome(Fate.DELIVERED)
    count = str(partial.get("rejectedLogRecords", 0))  # 64 bits, in quotes or not
    rejected = min(int(count), records) if count.isascii() and count.isdigit() and len(count) < 20 else 0
    message = partial.get("errorMessage")
    why = f": {for_message(message)}" if isinstance(message, str) and message else ""
    what = f"{rejected} of {records} records rejected{why}" if rejected or why else ""
    return Outcome(Fate.DELIVERED, what=what, rejected=rejected)


def said(body: bytes) -> str:
    """Returns what a refusal's body says, for the log."""
    message = object_in(body).get("message")
    return f" ({for_message(message)})" if isinstance(message, str) and message else ""


def object_in(body: bytes) -> dict[str, object]:
    if len(body) >= ANSWER_BYTES:
        return {}
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def retry_after(header: str | None) -> float:
    """Returns the seconds of a Retry-After header, in either of its forms; 0 if it says nothing of use."""
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        seconds = float(text[:9])
    else:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except (TypeError, ValueError, IndexError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), MOST_RETRY_AFTER_S)
