# SPDX-License-Identifier: GPL-2.0
"""The command: its options, its pages, TLS and basic auth; driven over HTTP as Prometheus would."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bcrypt
import pytest
from fake_daemon import FakeDaemon, series, snapshot
from processes import wait_until
from run_exporter import COMMAND, HERE, PATIENCE, authorization, make_certificate, serving


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(tmp_path / "daemon", snapshot(series("java", [40.0]))) as fake:
        yield fake


def test_pages(daemon: FakeDaemon) -> None:
    with serving(daemon.path, "--web.telemetry-path", "/m") as exporter:
        landing = exporter.get("/")
        assert landing.status == 200 and b'href="/m"' in landing.body
        assert landing.headers["Content-Type"] == "text/html; charset=utf-8"
        assert exporter.get("/-/healthy").body == b"OK\n"
        metrics = exporter.get("/m?x=y")
        assert metrics.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert b"nagletrace_up 1.0\n" in metrics.body and b"process_cpu_seconds_total" in metrics.body
        openmetrics = exporter.get("/m", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        assert openmetrics.headers["Content-Type"].startswith("application/openmetrics-text")
        assert openmetrics.body.endswith(b"# EOF\n")
        packed = exporter.get("/m", headers={"Accept-Encoding": "br, gzip; q=0.5"})
        assert packed.headers["Content-Encoding"] == "gzip" and b"nagletrace_up 1.0\n" in gzip.decompress(packed.body)
        plain = exporter.get("/m", headers={"Accept-Encoding": "br, gzip; q=0.0"})
        assert plain.headers["Content-Encoding"] is None and b"nagletrace_up 1.0\n" in plain.body
        assert plain.headers["Vary"] == packed.headers["Vary"] == "Accept, Accept-Encoding"
        head = exporter.get("/m", method="HEAD")
        assert head.status == 200 and head.body == b"" and int(head.headers["Content-Length"]) > 1000
        assert exporter.get("/metrics").status == 404
        assert exporter.get("/m", method="POST").status == 405


def test_it_is_healthy_and_answers_without_a_daemon(tmp_path: Path) -> None:
    with serving(tmp_path / "none") as exporter:
        assert exporter.get("/-/healthy").status == 200
        for _ in range(3):
            answer = exporter.get()
            assert answer.status == 200 and b"nagletrace_up 0.0\n" in answer.body
        with FakeDaemon(tmp_path / "none", snapshot(series("java", [40.0]))):
            assert b"nagletrace_up 1.0\n" in exporter.get().body
        assert b"nagletrace_up 0.0\n" in exporter.get().body
    assert sum("No such file" in line for line in exporter.log) == 2, "told once each time"


def test_several_addresses_and_both_families(daemon: FakeDaemon) -> None:
    with serving(daemon.path, "--web.listen-address", "[::1]:0", "--web.listen-address", ":0") as exporter:
        one, other, every = exporter.ports
        assert exporter.get(port=one).status == exporter.get(port=other, host="::1").status == 200
        assert exporter.get(port=every).status == exporter.get(port=every, host="::1").status == 200


@pytest.mark.parametrize(("arguments", "code", "words"), [
    (["--web.listen-address", "nowhere"], 2, ("--web.listen-address", "nowhere", ":10040")),
    (["--web.listen-address", ":70000"], 2, ("--web.listen-address", ":70000")),
    (["--web.listen-address", "a..b:10040"], 2, ("--web.listen-address", "a..b:10040")),
    (["--web.listen-address", "\u00e4..b:10040"], 2, ("--web.listen-address", "..b:10040")),
    (["--web.listen-address", "192.0.2.1:1"], 1, ("--web.listen-address", "192.0.2.1:1", "give another")),
    (["--web.telemetry-path", "metrics"], 2, ("--web.telemetry-path", "metrics", "/metrics")),
    (["--web.telemetry-path=/-/healthy"], 2, ("--web.telemetry-path", "/-/healthy")),
    (["--web.config.file", "/no/such"], 2, ("--web.config.file", "/no/such", "No such file")),
    (["--otlp.endpoint", "localhost:4318"], 2, ("--otlp.endpoint", "localhost:4318", "http://127.0.0.1:4318")),
    (["--otlp.endpoint", "http://h:99999"], 2, ("--otlp.endpoint", "http://h:99999")),
    (["--otlp.endpoint", "http://a..b:4318"], 2, ("--otlp.endpoint", "http://a..b:4318")),
    (["--otlp.endpoint", "http://me:hush@h"], 2, ("--otlp.endpoint", "--otlp.config.file")),
    (["--otlp.endpoint", "http://h/?key=hush"], 2, ("--otlp.endpoint", "--otlp.config.file")),
    (["--otlp.endpoint", "http://h", "--otlp.config.file", "/no/such"], 2,
     ("--otlp.config.file: /no/such: No such file",)),
    (["--otlp.config.file", "x"], 2, ("--otlp.config.file", "--otlp.endpoint")),
    (["--otlp.queue-records", "7"], 2, ("--otlp.queue-records", "--otlp.endpoint")),
    (["--otlp.queue-mib", "7"], 2, ("--otlp.queue-mib", "--otlp.endpoint")),
    (["--otlp.queue-records", "0"], 2, ("--otlp.queue-records", "0", "1")),
    (["--otlp.queue-mib", "x"], 2, ("--otlp.queue-mib", "x", "MiB")),
    (["--log.level", "loud"], 2, ("--log.level", "loud")),
    (["--web.tel", "/x"], 2, ("--web.tel",)),
    (["more"], 2, ("more", "--help")),
])
def test_bad_options_get_one_line_and_a_code(arguments: list[str], code: int, words: tuple[str, ...]) -> None:
    done = subprocess.run([*COMMAND, *arguments], cwd=HERE, capture_output=True, text=True, timeout=PATIENCE,
                          check=False)
    assert (done.returncode, done.stdout) == (code, "")
    [line] = done.stderr.splitlines()
    assert all(word in line for word in words) and "hush" not in line, line


def test_an_address_in_use_is_named(daemon: FakeDaemon) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run([*COMMAND, "--daemon.socket", str(daemon.path), "--web.listen-address", address],
                              cwd=HERE, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1 and address in done.stderr and "in use" in done.stderr


def test_basic_auth(daemon: FakeDaemon, tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users:\n  prom: {bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}\n")
    with serving(daemon.path, "--web.config.file", str(config)) as exporter:
        refused = exporter.get()
        assert refused.status == 401 and refused.headers["WWW-Authenticate"] == "Basic"
        for headers in (authorization("prom", "wrong"), authorization("nobody", "secret"), authorization("prom", ""),
                        authorization("prom", "secret\0"), {"Authorization": "Basic %%%"},
                        {"Authorization": "Bearer secret"}, {"Authorization": "Basic cHJvbQ=="}):
            assert exporter.get(headers=headers).status == 401, headers
        for _ in range(2):
            assert exporter.get(headers=authorization("prom", "secret")).status == 200
        assert exporter.get("/-/healthy").status == 401
        # the file is read again when it changes; one that became unusable lets nobody in
        config.write_text(f"basic_auth_users:\n  prom: {bcrypt.hashpw(b'other', bcrypt.gensalt(4)).decode()}\n#\n")
        assert exporter.get(headers=authorization("prom", "secret")).status == 401
        assert exporter.get(headers=authorization("prom", "other")).status == 200
        config.write_text("basic_auth_users: 7")
        assert exporter.get(headers=authorization("prom", "other")).status == 500
    assert any("not a mapping" in line for line in exporter.log)


def test_tls(daemon: FakeDaemon, tmp_path: Path) -> None:
    certificate, _ = make_certificate(tmp_path, "server")
    client_certificate, client_key = make_certificate(tmp_path, "client")
    config = tmp_path / "web.yml"
    config.write_text("tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n  min_version: TLS13\n"
                      "  client_ca_file: client.pem\n  client_auth_type: RequireAndVerifyClientCert\n")
    context = ssl.create_default_context(cafile=str(certificate))
    with serving(daemon.path, "--web.config.file", str(config)) as exporter:
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            exporter.get(context=context)
        context.load_cert_chain(client_certificate, client_key)
        assert b"nagletrace_up 1.0\n" in exporter.get(context=context).body
        with pytest.raises((ConnectionError, http.client.HTTPException, TimeoutError)):
            exporter.get()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            exporter.get(context=context)
        # a client that says nothing keeps nobody waiting
        with socket.create_connection(("127.0.0.1", exporter.ports[0])):
            context.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED
            assert exporter.get(context=context).status == 200


def test_tls_follows_its_files_without_a_restart(daemon: FakeDaemon, tmp_path: Path) -> None:
    """A renewed certificate, and another rule for clients, of which one connection fails; not a file without TLS."""
    make_certificate(tmp_path, "server")
    config = tmp_path / "web.yml"
    text = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
    config.write_text(text)
    with serving(daemon.path, "--web.config.file", str(config)) as exporter:
        old = ssl.create_default_context(cafile=str(tmp_path / "server.pem"))
        assert exporter.get(context=old).status == 200
        make_certificate(tmp_path, "server")
        assert exporter.get(context=ssl.create_default_context(cafile=str(tmp_path / "server.pem"))).status == 200
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            exporter.get(context=old)
        address = ("127.0.0.1", exporter.ports[0])
        make_certificate(tmp_path, "server")
        context = ssl.create_default_context(cafile=str(tmp_path / "server.pem"))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        assert exporter.get(context=context).status == 200
        time.sleep(1.1)  # a session says in which second it began
        resumed, session = [], None
        for _ in range(4):  # those of after the renewal are good
            with context.wrap_socket(socket.create_connection(address), server_hostname="127.0.0.1",
                                     session=session) as client:
                resumed.append(client.session_reused)
                session = client.session
        assert resumed == [False, True, True, True]
        client_certificate, client_key = make_certificate(tmp_path, "client")
        config.write_text(f"{text}  client_ca_file: client.pem\n  client_auth_type: RequireAndVerifyClientCert\n")
        for _ in range(3):
            with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
                exporter.get(context=context)
        with pytest.raises((ssl.SSLError, ConnectionError)):  # a session of before the rule is none
            context.wrap_socket(socket.create_connection(address), server_hostname="127.0.0.1", session=session).read()
        context.load_cert_chain(client_certificate, client_key)
        assert exporter.get(context=context).status == 200
        config.write_text("{}")
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            exporter.get(context=context)
    assert any("restart nagletrace-exporter" in line for line in exporter.log)


@pytest.mark.parametrize(("text", "words"), [
    ("tls_server_config:\n  cert: x", ("tls_server_config", "cert", "cert_file")),
    ("tls:\n  cert_file: x", ("tls", "tls_server_config")),
    ("tls_server_config:\n  cert_file: x", ("key_file", "missing")),
    ("tls_server_config:\n  cert_file: x\n  key_file: y", ("No such file",)),
    ("tls_server_config:\n  cert_file: 1\n  key_file: y", ("cert_file", "not a path")),
    ("tls_server_config:\n  cert_file: x\n  key_file: y\n  min_version: TLS10", ("min_version", "TLS10", "TLS12")),
    ("tls_server_config:\n  cert_file: x\n  key_file: y\n  client_auth_type: RequireAndVerifyClientCert",
     ("client_ca_file", "missing")),
    ("basic_auth_users:\n  a: plain", ("basic_auth_users", "a", "bcrypt")),
    (f"basic_auth_users:\n  a: $2b$15${'x' * 53}", ("basic_auth_users", "a", "14")),
    ("- x", ("mapping",)),
    (": : :", ("not YAML, line 1",)),
    ("basic_auth_users:\n  a: 2024-13-45", ("not YAML",)),
])
def test_a_web_configuration_that_cannot_be_used_is_refused(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    config = tmp_path / "web.yml"
    config.write_text(text)
    done = subprocess.run([*COMMAND, "--web.listen-address", "127.0.0.1:0", "--web.config.file", str(config)],
                          cwd=HERE, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert all(word in line for word in (str(config), *words)), line


def test_nobody_is_asked_for_the_passphrase_of_a_key(tmp_path: Path) -> None:
    _, key = make_certificate(tmp_path, "server")
    subprocess.run(["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:hush", "-out", tmp_path / "locked.key"],
                   check=True)
    config = tmp_path / "web.yml"
    config.write_text("tls_server_config:\n  cert_file: server.pem\n  key_file: locked.key\n")
    done = subprocess.run([*COMMAND, "--web.listen-address", "127.0.0.1:0", "--web.config.file", str(config)], cwd=HERE,
                          stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False,
                          start_new_session=True)  # without a terminal, OpenSSL would ask stderr
    assert done.returncode == 2 and "pass phrase" not in done.stderr and "locked.key" in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1


def test_scrapes_at_the_same_time_share_the_next_answer(daemon: FakeDaemon) -> None:
    with serving(daemon.path) as exporter:
        with ThreadPoolExecutor(32) as pool:
            answers = list(pool.map(lambda _: exporter.get(), range(300)))
        assert {answer.status for answer in answers} == {200}
        assert len(daemon.requests) < 300
        daemon.answer = snapshot(series("java", [40.0] * 7))
        assert b"nagletrace_stalls_total{" in exporter.get().body and b"} 7.0\n" in exporter.get().body


def test_a_request_that_goes_wrong_while_it_is_answered_ends_its_connection_alone(daemon: FakeDaemon) -> None:
    with serving(daemon.path) as exporter:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", exporter.ports[0]), timeout=PATIENCE) as client:
                client.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
                assert client.recv(99).startswith(b"HTTP/1.1 400 ")
        with socket.create_connection(("127.0.0.1", exporter.ports[0]), timeout=PATIENCE) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"X: %s\r\n" % (b"x" * 9000) * 2 + b"\r\n")
            assert client.recv(99).startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))
        assert exporter.get().status == 200
        assert not [line for line in exporter.log if "Exception" in line]


@pytest.mark.slow
def test_prometheus_waits_for_a_scrape_that_comes_while_the_daemon_hangs(tmp_path: Path) -> None:
    """It waits for the round in progress and for its own."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(8)  # connects, and is never answered
        with serving(tmp_path / "s") as exporter, ThreadPoolExecutor() as pool:
            first = pool.submit(exporter.get)
            time.sleep(0.2)
            began = time.monotonic()
            assert b"nagletrace_up 0.0\n" in exporter.get().body and first.result().status == 200
            assert 4 < time.monotonic() - began < 10


def test_a_hangup_ends_nothing(daemon: FakeDaemon) -> None:
    with serving(daemon.path) as exporter:
        exporter.process.send_signal(signal.SIGHUP)
        wait_until("it says so", lambda: any("SIGHUP" in line for line in exporter.log))
        assert exporter.get("/-/healthy").status == 200


def test_it_ends_at_once_with_clients_that_say_nothing(daemon: FakeDaemon) -> None:
    with serving(daemon.path) as exporter, contextlib.ExitStack() as clients:
        for _ in range(200):
            clients.enter_context(socket.create_connection(("127.0.0.1", exporter.ports[0])))
        exporter.process.terminate()
        assert exporter.process.wait(PATIENCE) == 0
