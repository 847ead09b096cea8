# SPDX-License-Identifier: GPL-2.0
"""Clients that want to keep others from scraping, fill its memory, or learn its users: what SECURITY.md promises."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import re
import resource
import select
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bcrypt
import pytest
from fake_daemon import FakeDaemon, series, snapshot
from processes import wait_until
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from run_exporter import HERE, PATIENCE, Exporter, authorization, cpu_ns, make_certificate, most_memory, nginx, serving

from nagletrace_exporters.exporter.web import server
from nagletrace_exporters.exporter.web.clients import (
    ANSWER_S,
    CROWD,
    LOG_S,
    MAX_CLIENTS,
    NO_LINGER,
    REQUEST_S,
    Client,
    Clients,
    Refusals,
)
from nagletrace_exporters.exporter.web.config import MOST_COST, ConfigFile
from nagletrace_exporters.exporter.web.pages import PLAIN, Fixed, Scrapes
from nagletrace_exporters.logs import MOST_LINES, PERIOD_S

#: SECURITY.md: of memory, and of waiting; beside 80 clients, and beside 2,000 or (the memory) 80 with TLS.
MOST_BYTES, CROWD_BYTES = 64 << 20, 96 << 20
MOST_S, CROWD_S = 1.0, 10.0
#: What a spin of the scraper takes on a quiet machine with two CPUs, beside an attacker who keeps one of them busy.
SPIN_S = 0.2
#: How long an attack lasts here.
ATTACK_S = 2.5


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeDaemon]:
    """With as many label sets as the daemon keeps by default: a scrape of 2.7 MB."""
    made = snapshot(*(series(f"process-{i}", [41.0, 44.0]) for i in range(1000)))
    with FakeDaemon(tmp_path_factory.mktemp("daemon") / "s", made) as fake:
        yield fake


@pytest.fixture(autouse=True)
def _descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, before[1]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Stranger:
    """One hostile connection, which says `words` and reads `rate` bytes a second; reopened when it is closed."""

    def __init__(self, address: tuple[str, int], words: bytes, rate: int, drip: bytes, source: str) -> None:
        self.address, self.words, self.rate, self.drip, self.source = address, words, rate, drip, source
        self.unsent = b""
        self.sock: socket.socket | None = None
        self.opened = 0

    def step(self, dripping: bool) -> None:
        try:
            if self.sock is None:
                self.sock = socket.socket()
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                self.sock.settimeout(0.2)
                if self.source:
                    self.sock.bind((self.source, 0))
                self.sock.connect(self.address)
                self.sock.setblocking(False)
                self.unsent = self.words
                self.opened += 1
            if dripping:
                self.unsent += self.drip
            if self.unsent:
                with contextlib.suppress(BlockingIOError):
                    self.unsent = self.unsent[self.sock.send(self.unsent):]
            with contextlib.suppress(BlockingIOError):
                # one that reads nothing still notices its end, by MSG_PEEK
                if not self.sock.recv(self.rate // 10 or 1, 0 if self.rate else socket.MSG_PEEK):
                    self.close()
        except OSError:
            self.close()

    def close(self) -> None:
        if self.sock:
            self.sock.close()
        self.sock = None


@contextlib.contextmanager
def attack(port: int, count: int, words: bytes, rate: int = 0, drip: bytes = b"", source: str = ""
           ) -> Iterator[list[Stranger]]:
    """So many connections at once, each reopened as soon as it is closed, for as long as the block lasts."""
    clients = [Stranger(("127.0.0.1", port), words, rate, drip, source) for _ in range(count)]
    over = threading.Event()

    def play() -> None:
        drip_at = time.monotonic()
        while not over.is_set():
            dripping = time.monotonic() > drip_at
            if dripping:
                drip_at = time.monotonic() + 1
            for client in clients:
                client.step(dripping)
                if over.is_set():
                    break
            over.wait(0.02)

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield clients
    finally:
        over.set()
        thread.join()
        for client in clients:
            client.close()


def wait_for_opened(clients: list[Stranger], count: int) -> None:
    wait_until(f"{count} are open", lambda: sum(client.opened for client in clients) >= count)


#: A scraper in a process of its own, since the attackers keep this one busy. Prints how long each scrape took, and how
#: long a fixed piece of work before it and after it, which nobody delays but those who want the same CPUs.
SCRAPER = """
import gzip, http.client, json, ssl, sys, time
port, seconds, headers, ca = json.loads(sys.argv[1])
def spin():
    began, number = time.monotonic(), 0
    for i in range(1_500_000):
        number += i * i % 7
    return time.monotonic() - began
end, took, spins = time.monotonic() + seconds, [], [spin()]
while len(took) < 3 or time.monotonic() < end:
    began = time.monotonic()
    connection = (http.client.HTTPSConnection("127.0.0.1", port, timeout=20,
                  context=ssl.create_default_context(cafile=ca)) if ca
                  else http.client.HTTPConnection("127.0.0.1", port, timeout=20))
    connection.request("GET", "/metrics", headers=headers)
    response = connection.getresponse()
    body = response.read()
    took.append(time.monotonic() - began)
    if response.headers["Content-Encoding"] == "gzip":
        body = gzip.decompress(body)
    assert response.status == 200 and b"nagletrace_up 1.0\\n" in body, (response.status, body[:200])
    connection.close()
    spins.append(spin())
print(json.dumps([took, spins]))
"""


@dataclass
class Scraped:
    """How long scrapes took, and how long the work between them."""

    took: list[float]
    spins: list[float]

    def __str__(self) -> str:
        return (f"{len(self.took)} scrapes, median {statistics.median(self.took):.3f} s, "
                f"longest {max(self.took):.3f} s; spins {min(self.spins):.3f} to {max(self.spins):.3f} s")

    def in_time(self, most_s: float = MOST_S) -> bool:
        """Whether each took so long at most. Where the machine is slower or busier, both take as much longer."""
        return all(took <= most_s * max(1.0, (before + after) / 2 / SPIN_S)
                   for took, before, after in zip(self.took, self.spins, self.spins[1:], strict=False))


def scrapes(exporter: Exporter, seconds: float, headers: dict[str, str] | None = None, ca: Path | None = None,
            port: int = 0) -> Scraped:
    """At least three, one after the other; each has to succeed."""
    what = json.dumps([port or exporter.ports[0], seconds, headers or {}, str(ca) if ca else None])
    done = subprocess.run([sys.executable, "-c", SCRAPER, what], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    scraped = Scraped(*json.loads(done.stdout))
    print(scraped)
    return scraped


def limit(name: str) -> int:
    """Of the exporter's unit."""
    unit = (HERE.parent / "packaging" / "systemd" / "nagletrace-exporter.service").read_text()
    found = re.search(rf"^{name}=(\d+)(M?)$", unit, re.MULTILINE)
    assert found
    return int(found[1]) << (20 if found[2] else 0)


class Watch:
    """The most tasks, descriptors and memory of its sockets that a process has while the block lasts."""

    def __init__(self, exporter: Exporter) -> None:
        self.pid = exporter.process.pid
        self.port = exporter.ports[0]
        self.tasks = self.descriptors = self.sockets = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._over.wait(0.3):
            self.tasks = max(self.tasks, len(list(Path(f"/proc/{self.pid}/task").iterdir())))
            self.descriptors = max(self.descriptors, len(list(Path(f"/proc/{self.pid}/fd").iterdir())))
            # those too that it has not accepted yet
            told = subprocess.run(["ss", "-tnmH", "sport", f"= :{self.port}"], capture_output=True, text=True,
                                  check=True).stdout
            self.sockets = max(self.sockets, sum(int(number) for memory in re.findall(r"skmem:(\(.*?\))", told)
                                                 for number in re.findall(r"\b[rtwf](\d+)", memory)))

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


PIPELINED = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 200
LONG_HEAD = b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"x" * 65_000) for i in range(98))
POSTED = b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 90_000
ATTACKS = {
    "of one byte": (b"G", 0, b""),
    "dripping": (b"GET /metrics HTTP/1.1\r\nHost: x\r\n", 0, b"X: y\r\n"),
    "pipelining and reading 500 B/s": (PIPELINED, 500, b""),
    "pipelining and reading nothing": (PIPELINED, 0, b""),
    "asking again and again": (PIPELINED, 1 << 24, PIPELINED),
    "with 98 headers of 64 KB": (LONG_HEAD, 0, b""),
    "that send a body": (POSTED, 0, b""),
    "that are served and stay": (b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n", 4096, b""),
}


#: The others are played less often, for each takes seconds.
QUICK = ("of one byte",)


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
                                  for name in ATTACKS])
def test_a_scrape_waits_at_most_a_second_beside_80_clients(daemon: FakeDaemon, name: str) -> None:
    """They come from the same address as the scrape, which so cannot be told from them by it."""
    words, rate, drip = ATTACKS[name]
    with serving(daemon.path) as exporter:
        with attack(exporter.ports[0], 80, words, rate, drip):
            took = scrapes(exporter, ATTACK_S)
        memory = most_memory(exporter.process)
        print(f"{name}: {memory >> 20} MiB")
        assert took.in_time()
        assert memory <= MOST_BYTES


@pytest.mark.slow
def test_2000_clients_of_all_kinds_cost_it_96_mib_and_every_scrape_succeeds(daemon: FakeDaemon) -> None:
    """They reopen what is closed as fast as they can, which is as fast as the CPU lets them: no scrape fails for it."""
    with serving(daemon.path) as exporter, contextlib.ExitStack() as attacks:
        clients: list[Stranger] = []
        for words, rate, drip in ATTACKS.values():
            clients += attacks.enter_context(attack(exporter.ports[0], 2000 // len(ATTACKS) + 1, words, rate, drip))
        wait_for_opened(clients, 2000)
        with Watch(exporter) as most:
            took = scrapes(exporter, ATTACK_S, headers={"Accept-Encoding": "gzip"})  # as Prometheus asks
        memory = most_memory(exporter.process)
        print(f"{memory >> 20} MiB; opened {sum(client.opened for client in clients)}")
        assert took.in_time(CROWD_S)
        assert memory <= CROWD_BYTES
        print(f"{most.tasks} tasks, {most.descriptors} descriptors, {most.sockets >> 10} KiB in sockets")
        assert memory + most.sockets <= limit("MemoryMax")
        assert most.tasks <= limit("TasksMax") // 2 and most.descriptors <= limit("LimitNOFILE") // 2


@pytest.mark.slow
def test_without_a_whole_request_a_client_has_15_s_and_for_the_answer_30_s(daemon: FakeDaemon) -> None:
    """Also when nobody needs its slot, and however often a byte of it comes."""
    with serving(daemon.path) as exporter, socket.create_connection(("127.0.0.1", exporter.ports[0])) as silent, \
            socket.create_connection(("127.0.0.1", exporter.ports[0])) as dripping, \
            socket.create_connection(("127.0.0.1", exporter.ports[0])) as unread:
        began = time.monotonic()
        unread.sendall(PIPELINED)
        dripping.settimeout(1)
        while time.monotonic() < began + 20:
            try:
                dripping.sendall(b"X")
                if dripping.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        assert 14 < time.monotonic() - began < 19
        silent.settimeout(PATIENCE)
        with contextlib.suppress(ConnectionResetError):
            assert silent.recv(1) == b""
        assert b'nagletrace_exporter_refused_clients_total{reason="slow_request"} 2.0\n' in exporter.get().body
        end = select.poll()
        end.register(unread, select.POLLHUP)
        while not end.poll(1000):
            assert time.monotonic() < began + PATIENCE + ANSWER_S
        assert 29 < time.monotonic() - began < 35
        assert b'nagletrace_exporter_refused_clients_total{reason="slow_reader"} 1.0\n' in exporter.get().body
    assert sum("slow_request" in line for line in exporter.log) == 1


@pytest.mark.slow
def test_without_descriptors_it_waits_says_so_and_goes_on(daemon: FakeDaemon) -> None:
    with serving(daemon.path) as exporter, contextlib.ExitStack() as stack:
        pid = exporter.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        most = max(int(link.name) for link in Path(f"/proc/{pid}/fd").iterdir())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most + 1, before[1]))
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", exporter.ports[0]), timeout=PATIENCE))
                   for _ in range(20)]
        for client in clients:
            client.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until("it lacks descriptors", lambda: any("cannot accept a connection: Too many open files" in line
                                                       for line in exporter.log))
        worked, lines = cpu_ns(exporter.process), len(exporter.log)
        time.sleep(2)
        assert cpu_ns(exporter.process) - worked < 0.2e9, "it spins"
        assert len(exporter.log) - lines <= 5
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        for client in clients:
            assert client.recv(99).startswith(b"HTTP/1.1 200 ")


def test_the_refused_are_counted_by_reason_and_told_at_a_bounded_rate(daemon: FakeDaemon, tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users:\n  prom: {bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}\n")
    right = authorization("prom", "secret")
    began = time.monotonic()
    with serving(daemon.path, "--web.config.file", str(config), "--log.level", "debug") as exporter:
        for number in range(300):
            with socket.create_connection(("127.0.0.1", exporter.ports[0]), timeout=PATIENCE) as client:
                if number % 3 == 0:
                    client.sendall(b"GET /%1b[31mred%c2%9b HTTP/1.1\r\nHost: x\r\n\r\n")
                    assert client.recv(99).startswith(b"HTTP/1.1 401 ")
                elif number % 3 == 1:
                    client.sendall(b"\x1b]0;title\x07 non sense\r\n\r\n")
                    assert client.recv(99).startswith(b"HTTP/1.1 400 ")
                else:
                    client.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 17_000)
                    assert client.recv(99).startswith(b"HTTP/1.1 400 ")
        assert exporter.get(headers=right, method="PUT").status == 405
        body = exporter.get(headers=right).body
        for reason, count in (("unauthorized", 100), ("bad_request", 201), ("evicted", 0)):
            assert b'nagletrace_exporter_refused_clients_total{reason="%s"} %d.0\n' % (reason.encode(), count) in body
    most = MOST_LINES * (1 + (time.monotonic() - began) // PERIOD_S)
    assert 10 < len(exporter.log) < most + 30 and "\\x1b[31mred\\x9b" in "".join(exporter.log)
    for line in exporter.log:
        assert line.isprintable() and line.startswith("nagletrace-exporter: "), line
    assert sum("clients refused" in line for line in exporter.log) == 1


def cost_of_wrong(exporter: Exporter, user: str, times: int) -> float:
    """CPU time of one wrong password, in ms: what its answer takes on a machine that has nothing else to do."""
    before = cpu_ns(exporter.process)
    for number in range(times):
        assert exporter.get("/-/healthy", headers=authorization(user, f"wrong{number}")).status == 401
    return (cpu_ns(exporter.process) - before) / times / 1e6


@pytest.mark.slow
def test_the_time_of_a_wrong_password_tells_no_users(daemon: FakeDaemon, tmp_path: Path) -> None:
    """Users of different costs, one who is told by the right password, and nobody: all take as long.

    A core slows down by more than what is asked for while another machine shares it. So all take turns, and the
    cheapest turn of each is compared."""
    config = tmp_path / "web.yml"
    costs = {"cheap": 5, "middle": 8, "dear": 10}
    config.write_text("basic_auth_users:\n" + "".join(
        f"  {user}: {bcrypt.hashpw(b'secret', bcrypt.gensalt(cost)).decode()}\n" for user, cost in costs.items()))
    with serving(daemon.path, "--web.config.file", str(config)) as exporter:
        assert exporter.get(headers=authorization("middle", "secret")).status == 200
        users = (*costs, "nobody", "")
        turns = [[cost_of_wrong(exporter, user, 1) for user in users] for _ in range(7)]
        took = dict(zip(users, (min(turn[i] for turn in turns) for i in range(len(users))), strict=True))
        print(took)
        assert max(took.values()) < 1.25 * min(took.values())
        assert exporter.get(headers=authorization("cheap", "secret\0")).status == 401


@pytest.mark.slow
def test_wrong_passwords_keep_no_scraper_waiting(daemon: FakeDaemon, tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users:\n  prom: {bcrypt.hashpw(b'secret', bcrypt.gensalt(10)).decode()}\n")
    header = authorization("prom", "wrong")["Authorization"].encode()
    with serving(daemon.path, "--web.config.file", str(config)) as exporter:
        assert exporter.get(headers=authorization("prom", "secret")).status == 200
        request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: " + header + b"\r\n\r\n"
        with attack(exporter.ports[0], 80, request * 20, 1 << 20, request * 20):
            took = scrapes(exporter, ATTACK_S, headers=authorization("prom", "secret"))
        body = exporter.get(headers=authorization("prom", "secret")).body.decode()
        assert 'refused_clients_total{reason="busy"} 0.0' not in body, "they came faster than they were checked"
        assert took.in_time() and most_memory(exporter.process) <= MOST_BYTES


def shaken(port: int, context: ssl.SSLContext, clients: list[ssl.SSLSocket]) -> None:
    with contextlib.suppress(OSError):
        clients.append(context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=1)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["silent", "shaken hands", "nonsense"])
def test_hostile_clients_of_tls(daemon: FakeDaemon, tmp_path: Path, kind: str) -> None:
    certificate, _ = make_certificate(tmp_path, "server")
    config = tmp_path / "web.yml"
    config.write_text("tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n")
    careless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    with serving(daemon.path, "--web.config.file", str(config)) as exporter:
        clients: list[ssl.SSLSocket] = []
        if kind == "shaken hands":
            for _ in range(100):
                shaken(exporter.ports[0], careless, clients)
            took = scrapes(exporter, ATTACK_S / 2, ca=certificate)
        else:
            words = b"\x16\x03\x01\x02\x00\x01" if kind == "silent" else b"\x16\x03\x01\x00\x05xxxxxx" * 9
            with attack(exporter.ports[0], 80, words):
                took = scrapes(exporter, ATTACK_S, ca=certificate)
        for client in clients:
            client.close()
        memory = most_memory(exporter.process)
        print(f"{kind}: {memory >> 20} MiB")
        assert took.in_time() and memory <= CROWD_BYTES


@dataclass(eq=False)
class Waiting:
    """Poses as a connected client."""

    since: float = field(default_factory=time.monotonic)
    is_served: bool = False
    waits_for_us: bool = False
    cycle: object = None
    host: str = "127.0.0.1"
    ended: bool = False

    @property
    def transport(self) -> Waiting:
        return self

    @property
    def sock(self) -> Waiting:
        return self

    def setsockopt(self, *_: object) -> None:
        pass

    def abort(self) -> None:
        self.ended = True


def test_who_made_no_progress_for_longest_gives_way_and_nobody_who_waits_for_us() -> None:
    refusals = Refusals()
    clients: Any = Clients(refusals)
    connected = [Waiting(waits_for_us=i == 1) for i in range(MAX_CLIENTS)]
    for one in connected:
        clients.enter(one)
    clients.progress(connected[0])
    for _ in range(2):
        clients.enter(Waiting())
    assert [i for i, one in enumerate(connected) if one.ended] == [2, 3]
    clients.leave(connected[4])
    clients.enter(Waiting())
    assert refusals.counts["evicted"] == 2 and clients.crowded and MAX_CLIENTS == 256


def test_in_a_crowd_an_answer_serves_for_some_seconds() -> None:
    clients: Any = Clients(Refusals())
    crowded = []
    for _ in range(65):
        clients.enter(Waiting())
        crowded.append(clients.crowded)
    assert crowded == [False] * 64 + [True]
    registry, counted = CollectorRegistry(), Counted()
    registry.register(counted)

    async def ask() -> None:
        scrapes = Scrapes(registry)
        answer = await scrapes.answer(False, server.CROWD_AGE_S)
        for age, serves in ((3.5, True), (4.5, False)):
            scrapes._made[False] = time.monotonic() - age, answer
            assert (await scrapes.answer(False, server.CROWD_AGE_S) is answer) == serves

    asyncio.run(ask())


def test_who_takes_too_long_is_refused() -> None:
    """Who was answered before and says no more goes too, and was not refused."""
    refusals = Refusals()
    clients: Any = Clients(refusals)
    now = time.monotonic()
    for since, served, answered in ((REQUEST_S + 1, False, False), (ANSWER_S + 1, True, True),
                                    (REQUEST_S + 1, False, True), (REQUEST_S - 5, False, False),
                                    (ANSWER_S - 5, True, False)):
        clients.enter(Waiting(now - since, served, cycle=object() if answered else None))
    connected = list(clients._connected)
    clients.sweep()
    assert [one.ended for one in connected] == [True, True, True, False, False]
    assert refusals.counts["slow_request"] == refusals.counts["slow_reader"] == 1


def test_a_client_whose_request_went_wrong_does_not_wait_for_us() -> None:
    client: Any = Client.__new__(Client)
    client.cycle = SimpleNamespace(response_complete=False, response_started=False, disconnected=False)
    assert client.is_served and client.waits_for_us
    client.cycle.disconnected = True
    assert not client.is_served and not client.waits_for_us


def test_nothing_is_left_of_a_client_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it ends its connection or resets it."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)

    async def play() -> int:
        page = Fixed(b"x", PLAIN)
        serving = server.Server([("127.0.0.1", 0)], server.App({"/": page.answer}, ConfigFile(None), Refusals()))
        ready = asyncio.Event()
        running = asyncio.create_task(serving.run_until_signal(ready.set))
        await ready.wait()
        for number in range(40):
            reader, writer = await asyncio.open_connection(*serving.listeners[0].getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.read(99)).startswith(b"HTTP/1.1 200 ")
            if number % 2:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            writer.transport.abort()
        await asyncio.sleep(0.2)
        gc.collect()
        left = sum(isinstance(one, Client) for one in gc.get_objects())
        serving.handle_exit(signal.SIGTERM, None)
        await running
        return left

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert asyncio.run(play()) == 0
    finally:
        gc.unfreeze()
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.mark.slow
def test_behind_the_proxy_of_the_documents_no_handshake_that_never_ends_costs_a_scrape(daemon: FakeDaemon,
                                                                                       tmp_path: Path) -> None:
    found = re.search(r"```nginx\n(.*?)```", (HERE.parent / "docs" / "install.md").read_text(), re.DOTALL)
    assert found
    certificate, _ = make_certificate(tmp_path, "nagletrace")
    with serving(daemon.path) as exporter:
        site = found[1].replace("/etc/nginx", str(tmp_path)).replace(":10040", f":{exporter.ports[0]}")
        with nginx(tmp_path, lambda port: site.replace("10041", f"127.0.0.1:{port}")) as port:
            with attack(port, 1000, b"\x16\x03\x01\x02\x00\x01") as strangers:
                wait_for_opened(strangers, 1000)
                took = scrapes(exporter, ATTACK_S, ca=certificate, port=port)
            memory = most_memory(exporter.process)
            assert took.in_time() and memory <= MOST_BYTES


class Broken(Collector):
    def collect(self) -> Iterator[Metric]:
        raise RuntimeError("a fault")
        yield


def test_after_a_scrape_that_could_not_be_made_the_next_one_is_tried() -> None:
    registry = CollectorRegistry()
    registry.register(Broken())

    async def ask() -> None:
        scrapes = Scrapes(registry)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="a fault"):
                await scrapes.answer(False, 0.0)

    asyncio.run(ask())


def test_refusals_are_logged_once_a_minute(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    refusals = Refusals()
    lines = []
    for second in (0, 1, 59, 61, 62, 120, 122):
        now = 1000.0 + second
        refusals.add("evicted", "192.0.2.1")
        lines.append(len(caplog.records))
    assert lines == [1, 1, 1, 2, 2, 2, 3]
    assert "3 × another client" in caplog.records[1].getMessage()


def test_passwords_are_checked_one_at_a_time_and_few_wait() -> None:
    at_once, most = 0, 0
    lock = threading.Lock()

    def check(*_: str) -> bool:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.05)
        with lock:
            at_once -= 1
        return False

    async def ask() -> list[bool | None]:
        passwords = server.Passwords()
        config: Any = SimpleNamespace(users={"prom": b""}, knows=lambda *_: False, check=check)
        header = authorization("prom", "wrong")["Authorization"]
        return await asyncio.gather(*(passwords.right(config, header) for _ in range(8)))

    assert asyncio.run(ask()) == [False] * 5 + [None] * 3 and most == 1


class Counted(Collector):
    """Counts how often it was asked."""

    asked = 0

    def collect(self) -> Iterator[Metric]:
        self.asked += 1
        yield Metric("asked", "How often.", "gauge")


class Gated(Counted):
    """Answers the first time at once, and then only when it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.may.set()

    def collect(self) -> Iterator[Metric]:
        assert self.may.wait(PATIENCE)
        return super().collect()


def test_a_crowd_does_not_wait_for_the_round_that_renews_an_answer() -> None:
    """And who finds none, or one that is too old, joins a round that has begun since."""
    registry, gated = CollectorRegistry(), Gated()
    registry.register(gated)

    async def ask() -> None:
        scrapes = Scrapes(registry)
        first = await scrapes.answer(False, 60.0)
        gated.may.clear()
        scrapes._made[False] = time.monotonic() - 45.0, first
        for _ in range(50):
            assert await scrapes.answer(False, 60.0) is first
        waiting = [asyncio.ensure_future(scrapes.answer(False, 30.0)) for _ in range(50)]
        await asyncio.sleep(0)
        assert not any(one.done() for one in waiting)
        gated.may.set()
        renewed = await asyncio.gather(*waiting)
        assert renewed[0] is not first and renewed.count(renewed[0]) == 50 and gated.asked == 2
        scrapes._made[False] = time.monotonic() - 31.0, first
        assert await scrapes.answer(False, 60.0) is first
        end = time.monotonic() + PATIENCE
        while await scrapes.answer(False, 60.0) is first:
            assert time.monotonic() < end, "nobody waits for it, and it is renewed all the same"
            await asyncio.sleep(0.01)
        assert gated.asked == 3

    asyncio.run(ask())


def test_in_a_crowd_each_kind_of_answer_is_made_once_in_a_while() -> None:
    registry, counted = CollectorRegistry(), Counted()
    registry.register(counted)

    async def ask() -> None:
        scrapes = Scrapes(registry)
        for _ in range(50):
            for openmetrics in (False, True):
                await scrapes.answer(openmetrics, 60.0)
        assert counted.asked == 2
        await scrapes.answer(False, 0.0)
        assert counted.asked == 3, "without a crowd it is made after it was asked for"

    asyncio.run(ask())


#: What SECURITY.md says of the exporter in numbers, and what they are in the program.
TOLD = {
    r"head has at most (\d+) KiB": (server.HEAD_BYTES >> 10,),
    r"whole request arrives within (\d+) s": (REQUEST_S,),
    r"has the answer within (\d+) s": (ANSWER_S,),
    r"logs them every (\d+) s at most": (LOG_S,),
    r"At most (\d+) clients are connected": (MAX_CLIENTS,),
    r"one password at a time and lets at most (\d+) wait": (server.MAX_PASSWORDS,),
    r"While more than (\d+) clients are connected": (CROWD,),
    r"metrics may be (\d+) s old": (server.CROWD_AGE_S,),
    r"a cost above (\d+) is refused": (MOST_COST,),
}


@pytest.mark.parametrize("words", TOLD)
def test_the_numbers_of_security_are_those_of_the_program(words: str) -> None:
    found = re.findall(words, " ".join((HERE.parent / "SECURITY.md").read_text().split()))
    assert len(found) == 1, found
    told = found[0] if isinstance(found[0], tuple) else found
    assert tuple(int(one.replace(",", "")) for one in told) == TOLD[words]
