# SPDX-License-Identifier: GPL-2.0
"""--otlp.endpoint: what leaves the host, for each answer of a receiver what becomes of the records, and that nothing
waits for it."""

from __future__ import annotations

import base64
import email.utils
import gzip
import json
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import jsonschema
import pytest
import recordings
from processes import wait_until
from prometheus_client.parser import text_string_to_metric_families
from receivers import (
    BOOT_ID,
    HOST,
    POD,
    STREAMING,
    FakeReceiver,
    Reply,
    StreamingDaemon,
    attributes_of,
    late_ack,
    numbered,
    reply,
    stall,
)
from run_exporter import HERE, PATIENCE, Exporter, make_certificate, most_memory

from nagletrace_exporters.config_file import ConfigError
from nagletrace_exporters.exporter.otlp import receiver as otlp_receiver
from nagletrace_exporters.exporter.otlp.carrier import MOST_PAUSE_S, Pauses
from nagletrace_exporters.exporter.otlp.config import OtlpConfigFile, endpoint, load, resource_attributes
from nagletrace_exporters.exporter.otlp.queue import BATCH_RECORDS, Batch, Queue, pack
from nagletrace_exporters.exporter.otlp.receiver import Fate, Outcome, Receiver, retry_after
from nagletrace_exporters.exporter.otlp.records import log_record_of, resource_of
from nagletrace_exporters.records import BadRecord

SCHEMA = json.loads((HERE.parent / "userspace" / "output" / "nagletrace.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
OK_BATCH = pack(b'{"attributes":[]}', [b"{}"] * 10)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[StreamingDaemon]:
    with StreamingDaemon(tmp_path / "daemon") as streaming:
        yield streaming


class Carrying(Exporter):
    """An exporter that hands on, once it follows the daemon."""

    def __init__(self, daemon: StreamingDaemon, url: str, *more: str) -> None:
        super().__init__("--daemon.socket", str(daemon.path), "--web.listen-address", "127.0.0.1:0",
                         "--otlp.endpoint", url, *more)
        assert daemon.followed.acquire(timeout=PATIENCE)

    def metrics(self) -> dict[str, float]:
        """Its own counts, such as `dropped_records queue_full`, without those that are 0."""
        text = self.get().body.decode()
        return {" ".join([sample.name.removeprefix("nagletrace_otlp_").removesuffix("_total"),
                          *sample.labels.values()]): sample.value
                for family in text_string_to_metric_families(text) for sample in family.samples
                if sample.name.startswith("nagletrace_otlp_") and sample.value}

    def wait_for(self, **wanted: float) -> dict[str, float]:
        def counted() -> dict[str, float] | None:
            found = self.metrics()
            return found if all(found.get(name, 0) >= value for name, value in wanted.items()) else None

        return wait_until(f"{wanted}", counted, why=self.metrics)


# ---- what leaves the host ----


def test_a_stall_has_its_words_and_opentelemetrys() -> None:
    told = stall(7, cgroup="/kubepods/pod", pod_uid=POD, container_id="c" * 64, stack=recordings.stack("write", "0x7"))
    VALIDATOR.validate(told)
    record = json.loads(log_record_of(told, 5))
    assert record["timeUnixNano"] == "1795248001000000000" and record["observedTimeUnixNano"] == "5"
    assert (record["severityNumber"], record["severityText"]) == (13, "WARN")
    assert record["eventName"] == "nagletrace.stall"
    assert record["body"] == {"stringValue": "stall of 71.2 ms (nagle_delayed_ack, inferred): "
                                             "nginx[77] 10.0.0.2:443 -> 192.0.2.7:40001"}
    found = attributes_of(record)
    assert {key: value for key, value in found.items() if not key.startswith("nagletrace.")} == {
        "network.transport": "tcp", "network.type": "ipv4", "network.local.address": "10.0.0.2",
        "network.local.port": 443, "network.peer.address": "192.0.2.7", "network.peer.port": 40001,
        "process.pid": 77, "thread.id": 77, "process.executable.name": "nginx", "process.linux.cgroup": "/kubepods/pod",
        "container.id": "c" * 64, "k8s.pod.uid": POD, "code.stacktrace": "write\n0x7"}
    assert found["nagletrace.ack_id"] == "0000000000000007" and found["nagletrace.number"] == 7
    assert (found["nagletrace.host"], found["nagletrace.boot_id"]) == (HOST, BOOT_ID)


@pytest.mark.parametrize("record", [stall(1), late_ack(2), numbered(3, recordings.seen()),
                                    numbered(4, recordings.cork_ceiling()), numbered(5, recordings.peer_holds())])
def test_all_values_of_a_record_can_be_put_together_again(record: recordings.Record) -> None:
    VALIDATOR.validate(record)
    made: recordings.Record = {}
    told = json.loads(log_record_of(record, 1))
    for key, value in attributes_of(told).items():
        if key.startswith("nagletrace."):
            *path, last = key.split(".")[1:]
            part = made
            for name in path:
                part = part.setdefault(name, {})
            part[last] = value
    kind = told["eventName"].removeprefix("nagletrace.")
    assert {"type": kind, "time": record["time"], **made} == record
    assert all(record[end]["address"] in told["body"]["stringValue"] for end in ("sender", "receiver"))


def test_a_late_ack_is_told_by_the_receivers_end() -> None:
    record = json.loads(log_record_of(late_ack(3), 1))
    found = attributes_of(record)
    assert record["eventName"] == "nagletrace.late_ack" and record["severityText"] == "INFO"
    assert found["network.type"] == "ipv6" and found["network.local.address"] == "2001:db8::2"
    assert found["process.executable.name"] == "redis" and found["nagletrace.ack_id"] == "0000000000000003"
    assert found["nagletrace.receiver.pending_ack.limit_us"] == 200_000


def test_a_late_hold_is_told_by_its_own_end_and_is_no_stall() -> None:
    told = stall(4)
    record = {key: told[key] for key in told if key not in ("cause", "evidence")}
    made = json.loads(log_record_of({**record, "type": "hold"}, 1))
    found, wanted = attributes_of(made), attributes_of(json.loads(log_record_of(told, 1)))
    assert made["eventName"] == "nagletrace.hold" and made["severityText"] == "INFO"
    assert made["body"]["stringValue"].startswith("hold of ")
    assert found == {key: value for key, value in wanted.items() if key.removeprefix("nagletrace.") in record
                     or key.removeprefix("nagletrace.") not in told}


def test_the_resource_is_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "machine-id").write_text("0123456789abcdef" * 2 + "\n")
    monkeypatch.setattr("nagletrace_exporters.exporter.otlp.records.MACHINE_ID", tmp_path / "machine-id")
    found = attributes_of(json.loads(resource_of(STREAMING, {"k8s.node.name": "node 1"})))
    assert found.pop("service.version")
    assert found == {"service.name": "nagletrace", "service.instance.id": BOOT_ID, "host.name": HOST,
                     "host.id": "0123456789abcdef" * 2, "k8s.node.name": "node 1", "nagletrace.boot_id": BOOT_ID,
                     "nagletrace.ack_key": STREAMING["ack_key"], "nagletrace.late_acks": "all",
                     "nagletrace.holds": "late"}


@pytest.mark.parametrize("change", [
    {"side": "middle"}, {"family": 5}, {"sender": 7}, {"receiver": {"address": "nowhere"}}, {"time": "now"},
    {"duration_us": 1.5}, {"more": [1]}, {"more": None}, {"Key": 1}, {"a": {"b": {"c": {"d": 1}}}},
    {"number": 1 << 70}, {f"k{i}": i for i in range(100)}, {"sender": {"address": "1.2.3.4:5", "pid": "x"}}])
def test_a_record_of_another_shape_is_none(change: recordings.Record) -> None:
    with pytest.raises(BadRecord):
        log_record_of({**stall(1), **change}, 1)


def test_texts_from_outside_are_printable() -> None:
    told = log_record_of(stall(1, comm="a\x1b[2J\u202eb"), 1).decode()
    assert "\\u001b" not in told and "202e" in told and "\\\\x1b" in told


# ---- the queue ----


def test_the_queue_is_bounded_in_records_and_in_bytes() -> None:
    queue = Queue(max_records=3, max_bytes=1000)
    assert [queue.put(b"{}", b"x" * 10) for _ in range(5)] == [True, True, True, False, False]
    assert queue.size() == (3, 30)
    by_bytes = Queue(max_records=100, max_bytes=1000)
    assert [by_bytes.put(b"{}", b"x" * 400) for _ in range(3)] == [True, True, False]
    by_bytes.close()
    batch = by_bytes.first(0)
    assert batch and batch.records == 2 and by_bytes.size() == (2, len(batch.body)), "it waits until it is dropped"
    by_bytes.drop_first()
    assert by_bytes.size() == (0, 0) and by_bytes.put(b"{}", b"x" * 400)


def test_a_batch_has_one_resource_and_so_many_records() -> None:
    queue = Queue(max_records=10_000, max_bytes=1 << 30)
    for number in range(BATCH_RECORDS + 1):
        assert queue.put(b'"a"', b"%d" % number)
    assert queue.put(b'"b"', b"7")
    queue.close()
    sizes = []
    while batch := queue.first(0):
        sizes.append(batch.records)
        queue.drop_first()
    assert sizes == [BATCH_RECORDS, 1, 1] and queue.size() == (0, 0)


def test_a_record_waits_for_others_but_not_for_ever() -> None:
    queue = Queue(10, 1 << 20)
    queue.put(b"{}", b"1")
    assert queue.first(0) is None, "no batch yet"
    batch = queue.first(PATIENCE)
    assert batch and batch.records == 1


def test_pauses_grow_to_a_bound_and_differ() -> None:
    pauses = Pauses(MOST_PAUSE_S)
    waits = [pauses.next() for _ in range(20)]
    assert all(MOST_PAUSE_S / 2 <= wait <= MOST_PAUSE_S for wait in waits[10:]) and waits[0] < 1
    assert len({round(wait, 6) for wait in waits[10:]}) > 1
    assert pauses.next(100.0) >= 100.0
    pauses.reset()
    assert pauses.next() < 1


# ---- what becomes of a batch ----


def posted(*replies: Reply, batch: Batch = OK_BATCH) -> tuple[Outcome, list[str]]:
    """The outcome, and the paths of the requests."""
    with FakeReceiver(*replies) as receiver:
        target = endpoint(receiver.url)
        outcome = Receiver(target, OtlpConfigFile(None, target.tls)).post(batch)
        return outcome, [receiver.requests.get_nowait().path for _ in range(receiver.requests.qsize())]


def raw(data: bytes) -> Reply:
    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(data)
        handler.close_connection = True
    return write


def endless(handler: BaseHTTPRequestHandler) -> None:
    """Announces a terabyte, and sends the start of it: 64 KiB, and a byte."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 40) + b"x" * ((64 << 10) + 1))
    handler.rfile.read(1)
    handler.close_connection = True


PARTIAL = b'{"partialSuccess":{"rejectedLogRecords":%s,"errorMessage":"too old\\u001b[2J"}}'


@pytest.mark.parametrize(("answer", "fate", "failure", "rejected"), [
    (reply(200), Fate.DELIVERED, "", 0),
    (reply(204, b""), Fate.DELIVERED, "", 0),
    (reply(200, PARTIAL % b'"3"'), Fate.DELIVERED, "", 3),
    (reply(200, PARTIAL % b"3"), Fate.DELIVERED, "", 3),
    (reply(200, PARTIAL % b"999999"), Fate.DELIVERED, "", 10),
    (reply(200, PARTIAL % b'"-3"'), Fate.DELIVERED, "", 0),
    (reply(200, b"<html>"), Fate.DELIVERED, "", 0),
    (reply(200, b"[" * 60_000), Fate.DELIVERED, "", 0),
    (endless, Fate.DELIVERED, "", 0),
    (reply(400, b'{"message":"bad"}'), Fate.REFUSED, "status", 0),
    (reply(401), Fate.REFUSED, "status", 0),
    (reply(413), Fate.REFUSED, "status", 0),
    (reply(500), Fate.REFUSED, "status", 0),
    (reply(302, b"", Location="/elsewhere"), Fate.REFUSED, "status", 0),
    (reply(307, b"", Location="/elsewhere"), Fate.REFUSED, "status", 0),
    (reply(429), Fate.RETRY, "status", 0),
    (reply(502), Fate.RETRY, "status", 0),
    (reply(503), Fate.RETRY, "status", 0),
    (reply(504), Fate.RETRY, "status", 0),
    (raw(b"\x15\x03\x01 garbage\r\n\r\n"), Fate.RETRY, "answer", 0),
    (raw(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000 + b"\r\n"), Fate.RETRY, "answer", 0),
    (raw(b"HTTP/1.1 200 OK\r\nA: " + b"b" * (1 << 20)), Fate.RETRY, "answer", 0),
    (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), Fate.RETRY, "answer", 0),
    (raw(b""), Fate.RETRY, "connection", 0)])
def test_each_answer_has_its_fate(answer: Reply, fate: Fate, failure: str, rejected: int) -> None:
    outcome, paths = posted(answer)
    assert (outcome.fate, outcome.failure, outcome.rejected) == (fate, failure, rejected), outcome
    assert paths == ["/v1/logs"], "it is asked once, and nowhere else"
    assert outcome.what.isprintable() and len(outcome.what) < 500


def test_retry_after_is_told_and_bounded() -> None:
    outcome, _ = posted(reply(429, Retry_After="7"))
    assert (outcome.fate, outcome.retry_after_s) == (Fate.RETRY, 7.0)
    in_a_minute = email.utils.formatdate(time.time() + 60, usegmt=True)
    assert 30 < retry_after(in_a_minute) <= 61
    assert retry_after("3601") == retry_after("9" * 5000) == 3600.0
    for text in (None, "", "soon", "-5", "1e9", "nan", "Mon, 99 Foo 2026"):
        assert retry_after(text) == 0.0, text


def test_nobody_there_is_a_failed_connection() -> None:
    with FakeReceiver() as receiver:
        target = endpoint(receiver.url)
    assert Receiver(target, OtlpConfigFile(None, False)).post(OK_BATCH)[:2] == (Fate.RETRY, "connection")


def test_a_connection_is_kept_and_a_closed_one_costs_nothing() -> None:
    def closing(handler: BaseHTTPRequestHandler) -> None:
        reply(200)(handler)
        handler.close_connection = True  # without having said so

    with FakeReceiver(reply(200), reply(200), closing) as receiver:
        target = endpoint(receiver.url)
        sender = Receiver(target, OtlpConfigFile(None, False))
        for connections in (1, 1, 1, 2):
            assert sender.post(OK_BATCH).fate is Fate.DELIVERED
            assert receiver.connections == connections


def test_a_receiver_that_answers_byte_by_byte_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_receiver, "REQUEST_S", 0.5)
    over = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nA: ")
        while not over.wait(0.05):
            handler.wfile.write(b"a")

    outcome, _ = posted(drip)
    over.set()
    assert (outcome.fate, outcome.failure) == (Fate.RETRY, "timeout"), outcome


# ---- URL, TLS, credentials ----


@pytest.mark.parametrize(("text", "made"), [
    ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/logs"), ("http://loki/", "http://loki:80/v1/logs"),
    ("https://[2001:db8::1]:4318", "https://[2001:db8::1]:4318/v1/logs"),
    ("https://loki.example/otlp/v1/logs", "https://loki.example:443/otlp/v1/logs")])
def test_urls(text: str, made: str) -> None:
    assert str(endpoint(text)) == made


@pytest.mark.parametrize(("text", "found"), [
    ("", {}), (" k8s.node.name = node%201 ,Host=7,", {"k8s.node.name": "node 1", "Host": "7"}),
    ("k8s.node.name", {}), ("a b=c,host.id=7", {"host.id": "7"})])
def test_the_environment_names_the_host(text: str, found: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    assert resource_attributes(text) == found
    wrong = text.split(",")[0] if len(found) < 2 and text else ""
    assert (wrong in caplog.text) if wrong else not caplog.text


@pytest.mark.parametrize(("text", "tls", "words"), [
    ("auth: x", False, ("auth", "authorization")), ("7", False, ("not a mapping",)),
    ("a: [hush", False, ("not YAML", "line 1")), ("hush: 2024-13-45", False, ("not YAML",)),
    pytest.param("[" * 5000, False, ("not YAML",), id="deep"),
    ("tls_config: {}", False, ("tls_config", "https")),
    ("tls_config: {insecure_skip_verify: true}", True, ("insecure_skip_verify", "ca_file")),
    ("tls_config: {cert_file: x}", True, ("cert_file and key_file",)),
    ("tls_config: {ca_file: none.pem}", True, ("none.pem", "No such file")),
    ("tls_config: {min_version: SSL3}", True, ("min_version", "SSL3", "TLS12")),
    ("tls_config: {server_name: 'a b'}", True, ("server_name",)),
    ("tls_config: {server_name: a..b}", True, ("server_name",)),
    ("authorization: {credentials: hush, credentials_file: x}", False, ("credentials_file", "either")),
    ("authorization: {}\nbasic_auth: {}", False, ("exclude",)),
    ("authorization: {credentials: 'hush\\r\\nX: y'}", False, ("credentials",)),
    ('authorization: {credentials: "hush\\nX: y"}', False, ("not one line",)),
    ("authorization: {type: Basic, credentials: hush}", False, ("basic_auth",)),
    ("authorization: {credentials_file: none}", False, ("none", "No such file")),
    ("basic_auth: {username: 'a:b', password: hush}", False, ("username",)),
    ("http_headers: {Host: {value: x}}", False, ("Host", "not a header")),
    ("http_headers: {'A b': {value: x}}", False, ("not a header",)),
    ("http_headers: {A: x}", False, ("http_headers: A", "not a mapping"))])
def test_a_wrong_config_is_refused(text: str, tls: bool, words: tuple[str, ...], tmp_path: Path) -> None:
    config = tmp_path / "otlp.yml"
    config.write_text(text)
    if "\\r\\n" in text:  # two backslashes are four characters in YAML's single quotes: harmless
        assert load(config, tls).headers["Authorization"] == "Bearer hush\\r\\nX: y"
        return
    with pytest.raises(ConfigError) as refused:
        load(config, tls)
    said = str(refused.value)
    assert str(config) in said and all(word in said for word in words), said
    assert "hush" not in said and "\n" not in said


def test_the_config_in_the_documents_is_accepted(tmp_path: Path) -> None:
    page = (HERE.parent / "docs" / "fleets.md").read_text()
    found = re.search(r"```yml\n(.*?)```", page, re.DOTALL)
    assert found
    (tmp_path / "otlp.yml").write_text(found[1])
    (tmp_path / "token").write_text("hush\n")
    certificate, _ = make_certificate(tmp_path, "client")
    certificate.rename(tmp_path / "ca.pem")
    make_certificate(tmp_path, "client")
    config = load(tmp_path / "otlp.yml", True)
    assert config.headers == {"X-Scope-OrgID": "network-team", "Authorization": "Bearer hush"}
    assert config.context and len(config.stamps) == 5


def test_credentials_come_from_files_and_change_with_them(tmp_path: Path) -> None:
    config = tmp_path / "otlp.yml"
    (tmp_path / "token").write_text("one\n")
    config.write_text("authorization: {credentials_file: token}\nhttp_headers: {X-Scope-OrgID: {value: us}}\n")
    with FakeReceiver() as receiver:
        sender = Receiver(endpoint(receiver.url), OtlpConfigFile(config, False))
        assert sender.post(OK_BATCH).fate is Fate.DELIVERED
        (tmp_path / "token").unlink()
        gone = sender.post(OK_BATCH)
        assert gone[:2] == (Fate.RETRY, "config") and "token" in gone.what, "the batch waits for the token"
        (tmp_path / "token").write_text("two, which is longer")
        assert sender.post(OK_BATCH).fate is Fate.DELIVERED
        config.write_text("basic_auth: {username: me, password: hush}\n")
        assert sender.post(OK_BATCH).fate is Fate.DELIVERED
        got = [receiver.requests.get_nowait().headers for _ in range(receiver.requests.qsize())]
    assert [headers["authorization"] for headers in got] == [
        "Bearer one", "Bearer two, which is longer", "Basic " + base64.b64encode(b"me:hush").decode()]
    assert got[0]["x-scope-orgid"] == "us" and got[0]["content-type"] == "application/json"
    assert got[0]["content-encoding"] == "gzip" and got[0]["user-agent"].startswith("nagletrace-exporter/")


def test_headers_in_clear_are_told_of_also_when_they_come_later(tmp_path: Path, caplog: pytest.LogCaptureFixture
                                                                 ) -> None:
    config, changed = tmp_path / "otlp.yml", tmp_path / "changed.yml"
    config.write_text("{}")
    changed.write_text("http_headers: {api-key: {value: hush}}\n")
    load(changed, True)
    file = OtlpConfigFile(config, False)
    assert not caplog.text, "without headers, or with TLS, there is nothing to tell"
    changed.replace(config)
    assert file.current().headers == {"api-key": "hush"}
    assert caplog.text.count("in clear") == 1 and "hush" not in caplog.text


def test_tls_in_both_directions(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "server")
    client, _ = make_certificate(tmp_path, "client")
    make_certificate(tmp_path, "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(client)
    context.verify_mode = ssl.CERT_REQUIRED
    config = tmp_path / "otlp.yml"
    both = "cert_file: client.pem, key_file: client.key, min_version: TLS13"
    with FakeReceiver(context=context) as receiver:
        def outcome(text: str, host: str = "127.0.0.1") -> Outcome:
            config.write_text(f"tls_config: {{{text}}}\n")
            return Receiver(endpoint(f"https://{host}:{receiver.port}"), OtlpConfigFile(config, True)).post(OK_BATCH)

        assert outcome(f"ca_file: server.pem, {both}").fate is Fate.DELIVERED
        unknown = outcome(f"ca_file: other.pem, {both}")
        assert unknown[:2] == (Fate.RETRY, "tls") and "certificate" in unknown.what, unknown
        assert outcome(f"ca_file: server.pem, server_name: elsewhere.example, {both}")[:2] == (Fate.RETRY, "tls")
        assert outcome("ca_file: server.pem").fate is Fate.RETRY, "without a certificate of its own"
        assert receiver.requests.qsize() == 1
        plain = Receiver(endpoint(f"http://127.0.0.1:{receiver.port}"), OtlpConfigFile(None, False)).post(OK_BATCH)
        assert plain.fate is Fate.RETRY


def test_a_private_ca_is_good_whatever_python_asks_of_public_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                                  ) -> None:
    usual = ssl.create_default_context

    def strict() -> ssl.SSLContext:
        """What Python 3.13 makes."""
        made = usual()
        made.verify_flags |= ssl.VERIFY_X509_STRICT
        return made

    monkeypatch.setattr(ssl, "create_default_context", strict)
    make_certificate(tmp_path, "ca")
    (tmp_path / "otlp.yml").write_text("tls_config: {ca_file: ca.pem}\n")
    for path, is_strict in ((tmp_path / "otlp.yml", False), (None, True)):
        context = load(path, True).context
        assert context and bool(context.verify_flags & ssl.VERIFY_X509_STRICT) == is_strict


def test_a_ca_file_may_have_an_intermediate_one_alone(tmp_path: Path) -> None:
    for name, by in (("root", ""), ("intermediate", "root"), ("server", "intermediate")):
        certificate, key = make_certificate(tmp_path, name, by)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    config = tmp_path / "otlp.yml"
    config.write_text("tls_config: {ca_file: intermediate.pem}\n")
    with FakeReceiver(context=context) as receiver:
        sender = Receiver(endpoint(f"https://127.0.0.1:{receiver.port}"), OtlpConfigFile(config, True))
        assert sender.post(OK_BATCH).fate is Fate.DELIVERED


# ---- the program ----


def test_what_the_daemon_streams_arrives(daemon: StreamingDaemon) -> None:
    with FakeReceiver() as receiver, Carrying(daemon, receiver.url) as exporter:
        daemon.tell(stall(1), late_ack(2), {"type": "newer"},
                    {"type": "skipped", "protocol": 1, "stalls": 4, "others": 2})
        daemon.tell(b"garbage\n", {**stall(3), "side": "middle"}, stall(4))
        request = receiver.requests.get(timeout=PATIENCE)
        assert request.numbers() == [1, 2, 4]
        [of_resource] = json.loads(gzip.decompress(request.body))["resourceLogs"]
        assert attributes_of(of_resource["resource"])["host.name"] == HOST
        assert exporter.wait_for(delivered_records=3) == {
            "delivered_records": 3, "dropped_records skipped": 6, "dropped_records malformed": 2, "following": 1}


def test_what_came_between_two_streams_of_one_daemon_is_counted(daemon: StreamingDaemon) -> None:
    with FakeReceiver() as receiver, Carrying(daemon, receiver.url) as exporter:
        for number, started, dropped in ((3, 0, 1), (9, 0, 6), (14, 7, 7)):  # the last one is another start's
            begin = {**STREAMING, "number": number, "started": recordings.at(started)}
            daemon.begin = json.dumps(begin).encode() + b"\n"
            daemon.hang_up()
            assert daemon.followed.acquire(timeout=PATIENCE)
            daemon.tell(stall(number + 1), {"type": "skipped", "protocol": 1, "stalls": 1})
            assert receiver.requests.get(timeout=PATIENCE).numbers() == [number + 1]
            name = "dropped_records skipped"
            assert exporter.wait_for(**{name: dropped})[name] == dropped


@pytest.mark.slow
def test_a_daemon_that_starts_anew_is_followed_again(daemon: StreamingDaemon) -> None:
    with FakeReceiver() as receiver, Carrying(daemon, receiver.url) as exporter:
        daemon.begin = json.dumps({**STREAMING, "host": "web2"}).encode() + b"\n"
        daemon.hang_up()
        assert daemon.followed.acquire(timeout=PATIENCE)
        daemon.tell(stall(1))
        again = receiver.requests.get(timeout=PATIENCE)
        assert b'"web2"' in gzip.decompress(again.body) and again.numbers() == [1]
    told = [line for line in exporter.log if "the daemon" in line]
    assert "closed the stream" in told[0] and "streams again" in told[1], exporter.log


@pytest.mark.slow
def test_what_is_retried_arrives_and_what_is_refused_is_counted(daemon: StreamingDaemon) -> None:
    answers = (reply(503), reply(429, Retry_After="1"), reply(200, PARTIAL % b"1"), reply(400))
    with FakeReceiver(*answers) as receiver, Carrying(daemon, receiver.url) as exporter:
        daemon.tell(*[stall(number) for number in range(5)])
        times = []
        for _ in range(3):
            assert receiver.requests.get(timeout=PATIENCE).numbers() == [0, 1, 2, 3, 4]
            times.append(time.monotonic())
        assert times[2] - times[1] >= 1.0, "Retry-After is honoured"
        exporter.wait_for(delivered_records=4)
        daemon.tell(stall(5))
        receiver.requests.get(timeout=PATIENCE)
        exporter.wait_for(**{"dropped_records refused": 1})
        daemon.tell(stall(6))
        assert receiver.requests.get(timeout=PATIENCE).numbers() == [6], "a refused batch is not tried again"
        assert exporter.wait_for(delivered_records=5) == {
            "delivered_records": 5, "dropped_records rejected": 1, "dropped_records refused": 1,
            "failed_requests status": 3, "following": 1}
    told = "\n".join(exporter.log)
    assert "status 503" in told and "1 of 5 records rejected" in told and "takes records again" in told


@pytest.mark.slow
def test_a_receiver_that_says_nothing_holds_up_no_scrape_and_no_daemon(daemon: StreamingDaemon) -> None:
    over = threading.Event()

    def silence(_: BaseHTTPRequestHandler) -> None:
        over.wait(60)

    with FakeReceiver(silence) as receiver:
        exporter = Carrying(daemon, receiver.url, "--otlp.queue-records", "20")
        daemon.tell(stall(0))
        receiver.requests.get(timeout=PATIENCE)  # it has the receiver's silence from now on
        daemon.tell(*[stall(number) for number in range(1, 101)])
        found = exporter.wait_for(**{"dropped_records queue_full": 81})
        assert found == {"queued_records": 20, "queued_bytes": found["queued_bytes"], "following": 1,
                         "dropped_records queue_full": 81}, "scrapes are answered while the request waits"
        exporter.process.terminate()
        assert exporter.process.wait(PATIENCE) == 0, "it ends in bounded time, and says what it leaves"
        over.set()
    assert any("20 records were not delivered" in line for line in exporter.log), exporter.log


@pytest.mark.slow
def test_what_waits_is_delivered_at_the_end(daemon: StreamingDaemon) -> None:
    with FakeReceiver() as away:
        port = away.port
    with Carrying(daemon, f"http://127.0.0.1:{port}") as exporter:
        daemon.tell(*[stall(number) for number in range(1500)])
        exporter.wait_for(queued_records=1500, **{"failed_requests connection": 3})
        with FakeReceiver(port=port) as receiver:
            exporter.process.terminate()
            assert exporter.process.wait(PATIENCE) == 0
            got = [number for _ in range(receiver.requests.qsize()) for number in receiver.requests.get().numbers()]
    assert got == list(range(1500))
    assert not any("not delivered" in line for line in exporter.log)


@pytest.mark.slow
def test_credentials_in_clear_are_told_of(daemon: StreamingDaemon, tmp_path: Path) -> None:
    config = tmp_path / "otlp.yml"
    config.write_text("authorization: {credentials: hush}\n")
    with FakeReceiver() as receiver, Carrying(daemon, receiver.url, "--otlp.config.file", str(config)) as exporter:
        daemon.tell(stall(1))
        assert receiver.requests.get(timeout=PATIENCE).headers["authorization"] == "Bearer hush"
        assert b"hush" not in exporter.get().body
    assert any("in clear" in line for line in exporter.log) and not any("hush" in line for line in exporter.log)


@pytest.mark.slow
def test_memory_is_bounded_while_the_receiver_is_away(daemon: StreamingDaemon) -> None:
    """Records that are as large as a daemon's may be, and do not pack well."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Carrying(daemon, url) as exporter:
            before = most_memory(exporter.process)
            frames = [random.Random(number).randbytes(400).hex()  # noqa: S311
                      for number in range(4000)]
            for number in range(9000):
                deep = recordings.stack(*[frames[(number * 37 + frame * 7) % 4000] for frame in range(4)])
                daemon.tell(stall(number, stack=deep))
            found = exporter.wait_for(**{"dropped_records queue_full": 1})
            assert found["queued_bytes"] <= 16 << 20
            grown = most_memory(exporter.process) - before
            print(f"{found['queued_records']:.0f} records, {found['queued_bytes']:.0f} bytes; memory {before >> 20} "
                  f"MiB and {grown >> 20} MiB more")
            assert grown < 40 << 20
