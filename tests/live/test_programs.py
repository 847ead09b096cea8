# SPDX-License-Identifier: GPL-2.0
"""Real programs, unmodified, in configurations that people run: found, explained, and gone with the remedy.

Each program is played twice: as it stalls, and with the remedy that the report names, which is a switch that the
program offers. The client's clock says how long each request took.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import select
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ends import own_end
from harness import PATIENCE, STALLED_US, Record, Tracer, lacking, nearest
from processes import free_port
from programs import LOOPBACK, started
from spaces import Namespace

ROUNDS = 8
Ask = Callable[[], None]


def play(ask: Ask, most: int) -> list[float]:
    """Rounds, one after the other, until enough of them stalled; what each took, in us."""
    latencies: list[float] = []
    while len(latencies) < most and sum(us >= STALLED_US for us in latencies) < ROUNDS:
        start = time.monotonic_ns()
        ask()
        latencies.append((time.monotonic_ns() - start) / 1000)
    return latencies


def traced(ask: Ask, pid: int, rounds: int = ROUNDS) -> tuple[list[float], list[Record], Record]:
    """(what the client felt, the stalls reported of this process, the closing report and how many it may lack)."""
    with Tracer("-p", str(pid)) as tracer:
        felt = play(ask, rounds)
        tracer.stop()
    return [us for us in felt if us >= STALLED_US], tracer.stalls(), tracer.closing() | {"lacking": lacking(tracer)}


def check_found(ask: Ask, pid: int, comm: str, pattern: str, fix: str, *, side: str = "sender",
                first: str = "handshake_flight", quick: int = 0) -> list[Record]:
    """first: the pattern that the first stalls may have. quick: so many rounds may precede them."""
    felt, stalls, closing = traced(ask, pid, quick + ROUNDS)
    assert len(felt) >= ROUNDS - 2, f"it does not stall: {felt}"
    told = [s["duration_us"] for s in stalls]
    fitting = nearest(felt, told, closing["lacking"])
    assert len(stalls) == len(fitting), f"felt {felt}, told {told}"
    for stall in stalls:
        assert (stall["cause"], stall["side"], own_end(stall)["comm"]) == ("nagle_delayed_ack", side, comm)
        assert own_end(stall)["pid"] == pid
    assert {s["pattern"] for s in stalls} <= {pattern, first}, stalls
    assert stalls[-1]["pattern"] == pattern
    assert all(abs(f - t) < 10_000 for f, t in zip(fitting, told)), f"felt {felt}, told {told}"
    (connection,) = closing["connections"]
    assert fix in connection["fix"], connection["fix"]
    return stalls


def check_cured(ask: Ask, pid: int) -> None:
    felt, stalls, _ = traced(ask, pid)
    assert felt == [] and stalls == []


def get(connection: http.client.HTTPConnection, path: str) -> Ask:
    def ask() -> None:
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.status == 200
        response.read()

    ask()  # connects
    return ask


def read_all(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more
        data += more
    return data


@contextlib.contextmanager
def http_client(port: int, path: str = "/page.txt") -> Iterator[Ask]:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=PATIENCE)
    try:
        yield get(connection, path)
    finally:
        connection.close()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "page.txt").write_text("hello\n" * 50)
    return tmp_path


HTTP_SERVER_OPTIONS = ["--bind", LOOPBACK, "--protocol", "HTTP/1.1"]
HTTP_SERVER = ["/usr/bin/python3", "-m", "http.server", *HTTP_SERVER_OPTIONS]
HTTP_SERVER_CURED = ["/usr/bin/python3", "-c",
                     "import runpy, socketserver; socketserver.StreamRequestHandler.disable_nagle_algorithm = True; "
                     "runpy.run_module('http.server', run_name='__main__', alter_sys=True)", *HTTP_SERVER_OPTIONS]


def test_python_http_server_writes_header_and_body(site: Path) -> None:
    """Python's own server with keep-alive (cpython 108736, oxhttp 39): the header is one write, the body another."""
    port = free_port()
    with started([*HTTP_SERVER, str(port)], port, site) as server, http_client(port) as ask:
        check_found(ask, server.pid, "python3", "write_write_read", "TCP_NODELAY")
    port = free_port()
    with started([*HTTP_SERVER_CURED, str(port)], port, site) as server, http_client(port) as ask:
        check_cured(ask, server.pid)


NGINX = """\
daemon off; master_process off; worker_processes 1; pid {site}/nginx.pid; error_log {site}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off; sendfile on; tcp_nopush off; tcp_nodelay {nodelay};
    client_body_temp_path {site}/a; proxy_temp_path {site}/b; fastcgi_temp_path {site}/c; uwsgi_temp_path {site}/d;
    scgi_temp_path {site}/e;
    server {{ listen 127.0.0.1:{port}; root {site}; }}
}}
"""


@contextlib.contextmanager
def nginx(site: Path, nodelay: str) -> Iterator[tuple[int, Ask]]:
    port = free_port()
    config = site / "nginx.conf"
    config.write_text(NGINX.format(site=site, port=port, nodelay=nodelay))
    site.chmod(0o755)
    with started(["/usr/sbin/nginx", "-e", "stderr", "-p", str(site), "-c", str(config)], port, site) as server, \
            http_client(port) as ask:
        yield server.pid, ask


def test_nginx_with_tcp_nodelay_off_sends_header_and_file(site: Path) -> None:
    """`tcp_nodelay off` and no tcp_nopush: the header by writev, the file by sendfile (uhttpd 34, requests 2957)."""
    with nginx(site, "off") as (pid, ask):
        check_found(ask, pid, "nginx", "write_write_read", "TCP_NODELAY")
    with nginx(site, "on") as (pid, ask):
        check_cured(ask, pid)


PYMEMCACHE = """\
import sys, time
from pymemcache.client.base import Client
client = Client(("127.0.0.1", int(sys.argv[1])), no_delay=sys.argv[2] == "nodelay")
for line in sys.stdin:
    client.set("key", "value")  # without waiting for an answer, which is the library's default
    time.sleep(0.002)  # what an application does between two calls
    client.get("key")
    print("done", flush=True)
"""


@contextlib.contextmanager
def cache_client(port: int, how: str) -> Iterator[tuple[int, Ask]]:
    """A process that uses pymemcache, doing one set and one get for each line that it is told."""
    process = subprocess.Popen(["/usr/bin/python3", "-c", PYMEMCACHE, str(port), how], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout

    def ask() -> None:
        process.stdin.write("go\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        assert process.stdout.readline() == "done\n", "pymemcache is not installed or failed"  # type: ignore[union-attr]

    try:
        ask()
        ask()
        yield process.pid, ask
    finally:
        process.stdin.close()
        process.wait(5)
        process.stdout.close()


@contextlib.contextmanager
def memcached(directory: Path) -> Iterator[tuple[int, int]]:
    port = free_port()
    user = ["-u", "root"] if os.geteuid() == 0 else []
    command = ["memcached", *user, "-l", LOOPBACK, "-p", str(port), "-m", "16", "-t", "1"]
    with started(command, port, directory) as server:
        yield server.pid, port


def test_a_cache_client_that_writes_without_waiting(tmp_path: Path) -> None:
    """pymemcache's default: set does not wait, get follows, Nagle holds it (memcached 1003, electrode memcache 20)."""
    with memcached(tmp_path) as (_, port):
        with cache_client(port, "default") as (pid, ask):
            check_found(ask, pid, "python3", "write_write_read", "TCP_NODELAY")
        with cache_client(port, "nodelay") as (pid, ask):
            check_cured(ask, pid)


def test_the_cache_server_is_told_that_its_client_holds(tmp_path: Path) -> None:
    """The same seen from memcached: it is the receiver, whose ACKs are late, and is told of quick ACKs."""
    with memcached(tmp_path) as (pid, port):
        with cache_client(port, "default") as (_, ask):
            check_found(ask, pid, "memcached", "write_write_read", "QUICKACK", side="receiver")
        with cache_client(port, "nodelay") as (_, ask):
            check_cured(ask, pid)


@contextlib.contextmanager
def relay(to: int, options: str, directory: Path) -> Iterator[tuple[int, int]]:
    port = free_port()
    listen = f"TCP-LISTEN:{port},bind={LOOPBACK},reuseaddr,fork,nodelay"
    with started(["socat", listen, f"TCP:{LOOPBACK}:{to}{options}"], port, directory) as server:
        yield server.pid, port


def test_a_relay_that_passes_each_write_on(tmp_path: Path) -> None:
    """socat between a client with TCP_NODELAY and its server: the hop has Nagle on (OpenShell 2219, mirrord 4635)."""
    with memcached(tmp_path) as (_, upstream):
        with relay(upstream, "", tmp_path) as (pid, port), cache_client(port, "nodelay") as (_, ask):
            felt, stalls, closing = traced(ask, pid)
            assert len(felt) >= ROUNDS - 2 and len(felt) - closing["lacking"] <= len(stalls) <= len(felt)
            # a child of it serves the connection
            assert {own_end(s)["comm"] for s in stalls} == {"socat"} and {s["side"] for s in stalls} == {"sender"}
            assert "TCP_NODELAY" in closing["connections"][0]["fix"]
        with relay(upstream, ",nodelay", tmp_path) as (pid, port), cache_client(port, "nodelay") as (_, ask):
            check_cured(ask, pid)


@contextlib.contextmanager
def tls_server(options: str, directory: Path) -> Iterator[int]:
    """socat takes TLS off for memcached, as people put it before servers that know none."""
    port = free_port()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-keyout", "key.pem", "-out", "cert.pem"], cwd=directory, check=True, capture_output=True)
    listen = f"OPENSSL-LISTEN:{port},bind={LOOPBACK},reuseaddr,fork,cert=cert.pem,key=key.pem,verify=0{options}"
    with memcached(directory) as (_, upstream), \
            started(["socat", listen, f"TCP:{LOOPBACK}:{upstream}"], port, directory):
        yield port


def tls_request(port: int) -> float:
    """What the first request takes once the handshake is over, in us."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((LOOPBACK, port), PATIENCE) as tcp, context.wrap_socket(tcp) as client:
        start = time.monotonic_ns()
        client.sendall(b"version\r\n")
        assert client.recv(100).startswith(b"VERSION")
        return (time.monotonic_ns() - start) / 1000


def tls_traced(options: str, directory: Path) -> tuple[list[float], list[Record], Record]:
    """traced(), of a server with these options, whose every connection has a process of its own."""
    with tls_server(options, directory) as port, Tracer("-L", str(port)) as tracer:
        felt = [us for us in (tls_request(port) for _ in range(ROUNDS)) if us >= STALLED_US]
        tracer.stop()
    return felt, tracer.stalls(), tracer.closing() | {"lacking": lacking(tracer)}


def test_the_session_tickets_of_tls_hold_the_first_answer(tmp_path: Path) -> None:
    """TLS 1.3: the client asks with its Finished, the server's tickets go first, and the answer waits for their ACK."""
    felt, stalls, closing = tls_traced("", tmp_path)
    assert len(felt) >= ROUNDS - 2 and len(felt) - closing["lacking"] <= len(stalls) <= len(felt), (felt, stalls)
    assert {(s["cause"], s["pattern"], own_end(s)["comm"]) for s in stalls} == \
        {("nagle_delayed_ack", "handshake_flight", "socat")}
    assert all(group["fix"].startswith("set TCP_NODELAY right after") for group in closing["groups"])
    felt, stalls, _ = tls_traced(",nodelay", tmp_path)
    assert felt == [] and stalls == []


HTTP_DAEMON = """\
use HTTP::Daemon; use HTTP::Response; use Socket qw(IPPROTO_TCP TCP_NODELAY);
my $d = HTTP::Daemon->new(LocalAddr => "127.0.0.1", LocalPort => $ARGV[0], ReuseAddr => 1) or die;
while (my $c = $d->accept) {
    $c->setsockopt(IPPROTO_TCP, TCP_NODELAY, 1) if $ARGV[1] eq "nodelay";
    while (my $r = $c->get_request) { $c->send_response(HTTP::Response->new(200, "OK", undef, "hello\\n" x 50)) }
    $c->close;
}
"""


@contextlib.contextmanager
def perl_daemon(how: str, directory: Path) -> Iterator[tuple[int, Ask]]:
    port = free_port()
    with started(["perl", "-e", HTTP_DAEMON, str(port), how], port, directory) as server, http_client(port) as ask:
        yield server.pid, ask


def test_perls_http_daemon_writes_header_and_body(tmp_path: Path) -> None:
    """The example of HTTP::Daemon's manual: status, header lines and body are writes (httpcore 651, touche 4)."""
    with perl_daemon("default", tmp_path) as (pid, ask):
        check_found(ask, pid, "perl", "several_writes", "TCP_NODELAY")
    with perl_daemon("nodelay", tmp_path) as (pid, ask):
        check_cured(ask, pid)


BEGIN, END, PARAMETERS, STDIN = 1, 3, 4, 5  # types of FastCGI's records


def fastcgi(kind: int, content: bytes = b"") -> bytes:
    return struct.pack("!BBHHxx", 1, kind, 1, len(content)) + content


@contextlib.contextmanager
def php(directory: Path) -> Iterator[tuple[int, Ask]]:
    """PHP's FastCGI server, and what asks it for a page; segments are those of Ethernet."""
    page, port = directory / "page.php", free_port()
    page.write_text("<?php echo str_repeat('x', 42000);")
    names = {"SCRIPT_FILENAME": str(page), "REQUEST_METHOD": "GET", "REDIRECT_STATUS": "1"}
    parameters = b"".join(bytes([len(name), len(value)]) + (name + value).encode() for name, value in names.items())
    request = (fastcgi(BEGIN, struct.pack("!HB5x", 1, 1)) + fastcgi(PARAMETERS, parameters) + fastcgi(PARAMETERS)
               + fastcgi(STDIN))
    with Namespace() as space, space.inside():
        subprocess.run(["ip", "link", "set", "lo", "mtu", "1500", "gso_max_segs", "1"], check=True)
        endless = ["env", "PHP_FCGI_MAX_REQUESTS=0"]  # by itself it ends after 500
        with started([*endless, "php-cgi", "-b", f"{LOOPBACK}:{port}"], port, directory) as server, \
                socket.create_connection((LOOPBACK, port)) as connection:

            def ask() -> None:
                connection.sendall(request)
                kind = 0
                while kind != END:
                    kind, size, padding = struct.unpack("!xBxxHBx", read_all(connection, 8))
                    read_all(connection, size + padding)

            for _ in range(5):
                ask()
            yield server.pid, ask


def test_a_reply_whose_last_record_is_a_write_of_its_own(tmp_path: Path) -> None:
    """FastCGI: the end of the page is on its way, most of it acknowledged, and Nagle holds 16 B behind it."""
    with php(tmp_path) as (pid, ask):
        stalls = check_found(ask, pid, "php-cgi", "reply_tail", "write the whole message at once", quick=1000)
    assert {stall["sender"]["hold"]["bytes"] for stall in stalls} == {16}


UNBOUND = """\
server:
    do-daemonize: no
    username: ""
    chroot: ""
    pidfile: ""
    interface: 127.0.0.1@{port}
    do-udp: no
    local-data: "a.test. A 192.0.2.1"
"""


@contextlib.contextmanager
def unbound(directory: Path) -> Iterator[tuple[int, int]]:
    port = free_port()
    (directory / "unbound.conf").write_text(UNBOUND.format(port=port))
    with started(["/usr/sbin/unbound", "-c", "unbound.conf"], port, directory) as server:
        yield server.pid, port


def resolve(connection: socket.socket, requests: int) -> Ask:
    """Sends so many queries in one write (RFC 7766), and reads the answers."""
    question = struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + b"\1a\4test\0" + struct.pack("!HH", 1, 1)

    def ask() -> None:
        connection.sendall((struct.pack("!H", len(question)) + question) * requests)
        for _ in range(requests):
            [size] = struct.unpack("!H", read_all(connection, 2))
            assert read_all(connection, size).endswith(bytes([192, 0, 2, 1]))

    for _ in range(10):
        ask()
    return ask


def test_a_resolver_answers_queries_that_come_together(tmp_path: Path) -> None:
    """Each answer is a write, and Nagle holds all but the first (unbound 1045, dragonfly 1910)."""
    with unbound(tmp_path) as (pid, port), socket.create_connection((LOOPBACK, port)) as connection:
        check_found(resolve(connection, 4), pid, "unbound", "several_writes", "gather what is ready into one write")
        check_cured(resolve(connection, 1), pid)


MOSQUITTO = """\
listener {port} 127.0.0.1
allow_anonymous true
user root
set_tcp_nodelay {nodelay}
"""
CONNECT, SUBSCRIBE = b"\x10\x0d\0\4MQTT\4\2\0\0\0\1s", b"\x82\6\0\1\0\1t\0"
MESSAGE = b"x" * 40
PACKET = 5 + len(MESSAGE)
UNHEARD = b"\x30\4\0\1u!"  # a message to nobody
QUICK_ACKS = 16  # TCP_MAX_QUICKACKS: so many, after a pause, of a program that answers nothing


@contextlib.contextmanager
def broker(directory: Path, nodelay: str) -> Iterator[tuple[int, socket.socket, Ask]]:
    """mosquitto, a subscriber, and how to have mosquitto_pub send two messages."""
    port = free_port()
    (directory / "mosquitto.conf").write_text(MOSQUITTO.format(port=port, nodelay=nodelay))
    publishing = ["mosquitto_pub", "-h", LOOPBACK, "-p", str(port), "-t", "t", "-l", "--nodelay"]
    with started(["/usr/sbin/mosquitto", "-c", "mosquitto.conf"], port, directory) as server, \
            socket.create_connection((LOOPBACK, port)) as subscriber, \
            subprocess.Popen(publishing, stdin=subprocess.PIPE) as publisher:
        subscriber.sendall(CONNECT)
        read_all(subscriber, 4)
        subscriber.sendall(SUBSCRIBE)
        read_all(subscriber, 5)

        def publish() -> None:
            assert publisher.stdin
            publisher.stdin.write((MESSAGE + b"\n") * 2)
            publisher.stdin.flush()

        publish()  # it has connected once this has come, which takes tens of milliseconds
        read_all(subscriber, 2 * PACKET)
        yield server.pid, subscriber, publish


def wait_for_both(subscriber: socket.socket, publish: Ask) -> Ask:
    subscriber.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 2 * PACKET)

    def ask() -> None:
        publish()
        select.select([subscriber], [], [], PATIENCE)
        read_all(subscriber, 2 * PACKET)

    return ask


def test_a_broker_sends_messages_that_nobody_answers(tmp_path: Path) -> None:
    """MQTT with QoS 0: the second message waits for the ACK of the first (mosquitto 433)."""
    with broker(tmp_path, "false") as (pid, subscriber, publish):
        check_found(wait_for_both(subscriber, publish), pid, "mosquitto", "one_way", "set TCP_NODELAY if each message",
                    first="write_write_read", quick=QUICK_ACKS)
    with broker(tmp_path, "true") as (pid, subscriber, publish):
        check_cured(wait_for_both(subscriber, publish), pid)


def test_a_brokers_message_that_waits_until_the_subscriber_says_something_is_no_prompt_ack(tmp_path: Path) -> None:
    """What the subscriber sends takes the ACK of the first message along, before a timer sends it."""
    thinks_s, late = 0.02, 0
    waited = []
    with broker(tmp_path, "false") as (pid, subscriber, publish), Tracer("-p", str(pid), "--all-holds") as tracer:
        subscriber.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ROUNDS + QUICK_ACKS):
            publish()
            read_all(subscriber, PACKET)
            began = time.monotonic()
            time.sleep(thinks_s)
            waited.append(not select.select([subscriber], [], [], 0)[0])
            subscriber.sendall(UNHEARD)
            late += time.monotonic() - began > 0.03  # so that the timer may have sent the ACK
            read_all(subscriber, PACKET)
            subscriber.sendall(UNHEARD)
        tracer.stop()
    holds = [hold for hold in tracer.records("hold") if hold["duration_us"] >= thinks_s * 0.9e6]
    assert sum(waited) >= ROUNDS - 2 and len(tracer.stalls()) <= late, waited
    assert sum(waited) - late <= len(holds) <= sum(waited), (waited, holds)
    assert {hold["pattern"] for hold in holds} == {"piggybacked_ack"}
    [row] = [row for row in tracer.closing()["slow_holds"] if row["reason"] == "nagle"]
    assert row["comm"] == "mosquitto" and row["holds"] >= len(holds)
    assert row["hold_us"] >= 0.9e6 * thinks_s * len(holds)
