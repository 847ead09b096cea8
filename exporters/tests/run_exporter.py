# SPDX-License-Identifier: GPL-2.0
"""Runs nagletrace-exporter as a process of its own, and talks to it over HTTP as Prometheus would."""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from processes import Ends, wait_until, wait_until_listening

HERE = Path(__file__).parent.parent
COMMAND = [sys.executable, "-m", "nagletrace_exporters.exporter.main"]
#: nothing waits longer
PATIENCE = 20.0


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Exporter(Ends):
    """Runs from `ready` on. `ports` are those it said it listens at."""

    def __init__(self, *arguments: str) -> None:
        # Into a file: whoever has an answer finds there what was said before it, and no reader is late.
        self._told = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen([*COMMAND, *arguments], cwd=HERE, stderr=self._told)
        wait_until("it is ready or has ended", why=lambda: self.log, true=lambda:
                   "nagletrace-exporter: ready" in self.log or self.process.poll() is not None)
        self.ports = [int(match[1]) for line in self.log if (match := re.search(r"listening on .*:(\d+)$", line))]

    @property
    def log(self) -> list[str]:
        """All lines so far."""
        return os.pread(self._told.fileno(), 1 << 24, 0).decode().splitlines()

    def get(self, path: str = "/metrics", port: int | None = None, headers: dict[str, str] | None = None,
            context: ssl.SSLContext | None = None, method: str = "GET", host: str = "127.0.0.1") -> Answer:
        port = port or self.ports[0]
        connection = (http.client.HTTPSConnection(host, port, context=context, timeout=PATIENCE) if context
                      else http.client.HTTPConnection(host, port, timeout=PATIENCE))
        with contextlib.closing(connection):
            connection.request(method, path, headers=headers or {})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0


def serving(daemon: Path, *more: str) -> Exporter:
    """At a free port, what the daemon at this socket says."""
    return Exporter("--daemon.socket", str(daemon), "--web.listen-address", "127.0.0.1:0", *more)


def make_certificate(directory: Path, name: str, by: str = "") -> tuple[Path, Path]:
    """Makes one that is signed by that of the name `by`, or by itself."""
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    signer = ["-CA", str(directory / f"{by}.pem"), "-CAkey", str(directory / f"{by}.key")] if by else []
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                    str(key), "-out", str(certificate), *signer], check=True, capture_output=True)
    return certificate, key


#: What is around the site of docs/install.md.
PROXY = """
daemon off; worker_rlimit_nofile 8192; error_log {at}/error.log; pid {at}/pid;
events {{ worker_connections 4096; }}
http {{ access_log off; client_body_temp_path {at}; proxy_temp_path {at}; fastcgi_temp_path {at};
uwsgi_temp_path {at}; scgi_temp_path {at};
{site} }}
"""


@contextlib.contextmanager
def nginx(at: Path, site: Callable[[int], str]) -> Iterator[int]:
    """Runs nginx with the `server` blocks that `site` makes of a free port of 127.0.0.1, which is what is yielded."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (at / "conf").write_text(PROXY.format(at=at, site=site(port)))
    with subprocess.Popen(["/usr/sbin/nginx", "-e", "stderr", "-p", at, "-c", at / "conf"]) as proxy:
        try:
            wait_until_listening(proxy, port)
            yield port
        finally:
            proxy.terminate()


def authorization(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def most_memory(process: subprocess.Popen[bytes]) -> int:
    """Bytes that it had resident at most (VmHWM), as the kernel counted."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert found
    return int(found[1]) * 1024


def cpu_ns(process: subprocess.Popen[bytes]) -> int:
    """CPU time of all its threads, those that have ended too: the clock that the kernel keeps of each process."""
    return time.clock_gettime_ns(~process.pid << 3 | 2)


def played(name: str, *arguments: str, python: Path | str = sys.executable
           ) -> tuple[subprocess.CompletedProcess[bytes], int]:
    """The program's end, and the most memory that the kernel saw it have, in bytes."""
    run = ("import resource, subprocess, sys; done = subprocess.run(sys.argv[1:]); "
           "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); sys.exit(done.returncode)")
    command = [sys.executable, "-c", run, str(python), "-m", f"nagletrace_exporters.{name}.main", *arguments]
    done = subprocess.run(command, cwd=HERE, capture_output=True, timeout=120, check=False)
    *_, last = done.stderr.splitlines()
    return done, int(last) * 1024
