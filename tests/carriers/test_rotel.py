# SPDX-License-Identifier: GPL-2.0
"""--otlp.endpoint with rotel, an OTLP receiver that shares no code with us."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import free_port, kill, wait_until, wait_until_listening
from receivers import BOOT_ID, HOST, STREAMING, StreamingDaemon, late_ack, stall
from run_exporter import make_certificate, nginx
from test_otlp import Carrying
from tools import tools

WANTED = Path(__file__).parent / "requirements.txt"


class Rotel:
    """Prints each record that it takes. After a start anew it prints on."""

    def __init__(self, directory: Path, *more: str) -> None:
        [agent] = tools(WANTED, "carriers-tools").parent.glob("lib/python3*/site-packages/rotel/rotel-agent")
        self.port = free_port()
        self.output = directory / "rotel.txt"
        self._command = [agent, "start", "--otlp-http-endpoint", f"127.0.0.1:{self.port}", "--otlp-grpc-endpoint",
                         f"127.0.0.1:{free_port()}", "--exporter", "blackhole", "--debug-log", "logs",
                         "--debug-log-verbosity", "detailed", *more]
        self.start()

    def start(self) -> None:
        with self.output.open("a") as output:
            self.process = subprocess.Popen(self._command, stdout=output, stderr=output, env={})
        wait_until_listening(self.process, self.port, self.text)

    def text(self) -> str:
        return self.output.read_text()

    def numbers(self) -> list[int]:
        return [int(number) for number in re.findall(r"-> nagletrace\.number: Int\((\d+)\)", self.text())]

    def wait_for(self, wanted: set[int]) -> None:
        wait_until(f"{len(wanted)} arrive", lambda: set(self.numbers()) == wanted, why=lambda: len(set(self.numbers())))


@pytest.fixture
def rotel(tmp_path: Path) -> Iterator[Rotel]:
    receiver = Rotel(tmp_path)
    try:
        yield receiver
    finally:
        kill(receiver.process)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[StreamingDaemon]:
    with StreamingDaemon(tmp_path / "daemon") as streaming:
        yield streaming


def test_rotel_reads_what_we_write(rotel: Rotel, daemon: StreamingDaemon) -> None:
    with Carrying(daemon, f"http://127.0.0.1:{rotel.port}"):
        daemon.tell(stall(1, comm='a"\\ü'), late_ack(2))
        rotel.wait_for({1, 2})
    text = rotel.text()
    for line in ("Resource attributes:\n     -> service.name: Str(nagletrace)", f"-> host.name: Str({HOST})",
                 f"-> nagletrace.ack_key: Str({STREAMING['ack_key']})", f"-> nagletrace.boot_id: Str({BOOT_ID})",
                 "Timestamp: 1795248001000000000", "SeverityNumber: SEVERITY_NUMBER_WARN(13)",
                 "EventName: nagletrace.stall", "EventName: nagletrace.late_ack",
                 '-> process.executable.name: Str(a"\\ü)',
                 "-> network.peer.port: Int(40001)", "-> nagletrace.sender.options.nodelay: Bool(false)",
                 "-> nagletrace.ack_id: Str(0000000000000002)"):
        assert line in text, line


def test_what_the_queue_holds_arrives_when_rotel_comes_back(rotel: Rotel, daemon: StreamingDaemon) -> None:
    with Carrying(daemon, f"http://127.0.0.1:{rotel.port}") as exporter:
        daemon.tell(*[stall(number) for number in range(100)])
        rotel.wait_for(set(range(100)))
        kill(rotel.process)
        for begin in range(100, 3000, 100):
            daemon.tell(*[stall(number) for number in range(begin, begin + 100)])
        exporter.wait_for(queued_records=2900, **{"failed_requests connection": 2})
        rotel.start()
        rotel.wait_for(set(range(3000)))
        assert exporter.wait_for(delivered_records=3000).get("queued_records", 0) == 0
    assert len(rotel.numbers()) == 3000, "none twice: it was killed when no request was under way"


#: rotel takes no TLS: nginx ends it, as in front of a Collector, and asks the exporter for its certificate.
TLS = """server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {at}/server.pem;
    ssl_certificate_key {at}/server.key;
    ssl_client_certificate {at}/client.pem;
    ssl_verify_client on;
    location / {{ proxy_pass http://127.0.0.1:{rotel}; }}
}}"""


def test_it_arrives_over_tls_and_from_nobody_without_a_certificate(rotel: Rotel, daemon: StreamingDaemon,
                                                                   tmp_path: Path) -> None:
    config = tmp_path / "otlp.yml"
    for name in ("server", "client"):
        make_certificate(tmp_path, name)
    with nginx(tmp_path, lambda port: TLS.format(at=tmp_path, port=port, rotel=rotel.port)) as port:
        to = (f"https://127.0.0.1:{port}", "--otlp.config.file", str(config))
        config.write_text("tls_config: {ca_file: server.pem}\n")
        with Carrying(daemon, *to) as exporter:
            daemon.tell(stall(1))
            exporter.wait_for(**{"dropped_records refused": 1})
        daemon.followers.clear()
        config.write_text("tls_config: {ca_file: server.pem, cert_file: client.pem, key_file: client.key}\n")
        with Carrying(daemon, *to):
            daemon.tell(stall(2), late_ack(3))
            rotel.wait_for({2, 3})
