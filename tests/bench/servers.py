# SPDX-License-Identifier: GPL-2.0
"""Real servers at their own ports, and what their field measures them with, for instructions.py."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from spaces import Namespace

#: Debian has PostgreSQL's programs in no PATH; they refuse to run as root.
POSTGRES = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/usr/bin"))
AS_NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
DATABASE = ("-h", "127.0.0.1", "-U", "nobody", "postgres")

NGINX = """\
daemon off;
worker_processes 1;
pid {0}/pid;
events {{ }}
http {{
	access_log off;
	keepalive_requests 1000000;
	server {{
		listen 127.0.0.1:80;
		return 200 "{1}";
	}}
}}
"""

Command = tuple[object, ...]


def iperf3(_: Path) -> Command:
    return "iperf3", "--server"


def nginx(directory: Path) -> Command:
    path = directory / "conf"
    path.write_text(NGINX.format(directory, 200 * "x"))
    return "nginx", "-e", "stderr", "-c", path


def postgres(directory: Path) -> Command:
    shutil.chown(directory, "nobody")
    data = directory / "data"
    run(*AS_NOBODY, POSTGRES / "initdb", "--no-sync", "-A", "trust", "-D", data)
    return *AS_NOBODY, POSTGRES / "postgres", "-D", data, "-k", directory, "-c", "autovacuum=off"


def redis(directory: Path) -> Command:
    return "redis-server", "--save", "", "--dir", directory


@dataclass(frozen=True)
class Served:
    """A load: who serves it where, what asks, and where that says how many operations were done in a second."""

    server: Callable[[Path], Command]
    port: int
    ask: Command
    rate: str
    unit: float = 1

    def operations(self, space: Namespace) -> float:
        """Asks, and returns how many operations were done in a second."""
        said = run(*space.enter(*self.ask))
        found = re.search(self.rate, said)
        assert found, said
        return float(found[1]) / self.unit


SITE = "http://127.0.0.1/"
HTTP = r"Requests per second:\s+([\d.]+)"
#: One client each: of several, the scheduler decides how many requests are served at a time, and that costs more than
#: the hooks. Each asks for some tenths of a second.
SERVED = {
    "redis": Served(redis, 6379, ("redis-benchmark", "-c", 1, "-t", "get", "-n", 20_000, "--csv"), r'"GET","([\d.]+)"'),
    "nginx": Served(nginx, 80, ("ab", "-q", "-k", "-n", 8_000, SITE), HTTP),
    "nginx, a connection each": Served(nginx, 80, ("ab", "-q", "-n", 2_000, SITE), HTTP),
    "PostgreSQL": Served(postgres, 5432, (POSTGRES / "pgbench", "-n", "-S", "-t", 3_000, *DATABASE),
                         r"tps = ([\d.]+)"),
    "iperf3": Served(iperf3, 5201, ("iperf3", "-c", "127.0.0.1", "-n", "128M", "-J"),
                     r'"sum_received":\s*{[^}]*"bits_per_second":\s*([\d.e+]+)', 8 * 65_536),
}


def run(*command: object) -> str:
    """Returns what it wrote. Raises RuntimeError with its words if it fails."""
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stdout[-300:]}{done.stderr[-500:]}")
    return done.stdout


@contextlib.contextmanager
def serving(space: Namespace, loads: list[str]) -> Iterator[None]:
    """The servers of these loads run, and answer."""
    with contextlib.ExitStack() as stack:
        for server, port in {(SERVED[name].server, SERVED[name].port) for name in loads}:
            stack.enter_context(one_server(space, server, port))
        if any(SERVED[name].server == postgres for name in loads):
            run(*space.enter(POSTGRES / "pgbench", "-i", "-I", "dtgvp", *DATABASE))
        yield


@contextlib.contextmanager
def one_server(space: Namespace, server: Callable[[Path], Command], port: int) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(space.enter(*server(Path(directory))), stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=log)
        try:
            while not answers(space, port):
                if process.poll() is not None:
                    log.seek(0)
                    raise RuntimeError(f"{server.__name__}: {log.read()[-500:]}")
                time.sleep(0.1)
            yield
        finally:
            process.terminate()
            process.wait()


def answers(space: Namespace, port: int) -> bool:
    with space.inside(), contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False
