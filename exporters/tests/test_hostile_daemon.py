# SPDX-License-Identifier: GPL-2.0
"""What a hostile server may answer at the daemon's socket (tests/hostile.py), against each of the Python programs."""

from __future__ import annotations

import contextlib
import functools
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_daemon import FakeDaemon, series, snapshot
from hostile import ANSWERS, GIVES_UP_S, MOST_BYTES, RAW, Answer, HostileServer
from processes import wait_until
from prometheus_client.parser import text_string_to_metric_families
from receivers import FakeReceiver, StreamingDaemon, attributes_of, stall
from run_exporter import PATIENCE, Exporter, most_memory, played, serving

from nagletrace_exporters.exporter.otlp import carrier
from nagletrace_exporters.exporter.otlp.config import OtlpConfigFile, endpoint
from nagletrace_exporters.flame.main import main as flame
from nagletrace_exporters.report.main import main as report

#: Of which the exporter takes nothing, although another client may have no use for the value that is wrong.
NOT_TAKEN = re.compile(
    r"(stalls|a series's stalls|buckets|bounds_us|series|totals|tracer|limits|version|started|missing_hooks) "
    r"(?!['\"]?3['\"]?$).*|100,000 series|five million numbers|a million empty objects|two million keys|dropped \\[\\]")
#: The exporter's own: with its process at 28 MB, and a scrape of 1000 label sets 12.
EXPORTER_BYTES = 64 << 20


class Session:
    """One exporter, at whose daemon's socket all the answers are played."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "s"
        self.exporter = serving(self.path)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    made = Session(tmp_path_factory.mktemp("hostile"))
    with made.exporter:
        yield made


def lines_of(exporter: Exporter) -> list[str]:
    """Its log, without the lines that say how many a period had too many: when one ends is a matter of time."""
    return [line for line in exporter.log if not line.endswith("lines were left out here")]


@pytest.mark.parametrize("answer", [pytest.param(answer, marks=pytest.mark.slow if answer.slow else (), id=answer.name)
                                    for answer in ANSWERS])
def test_the_exporter_takes_an_answer_whole_or_says_that_there_is_none(session: Session, answer: Answer) -> None:
    before = len(lines_of(session.exporter))
    with HostileServer(session.path, answer):
        began = time.monotonic()
        scraped = session.exporter.get()
        assert time.monotonic() - began < GIVES_UP_S
    text = scraped.body.decode()
    samples = {sample.name: sample.value for family in text_string_to_metric_families(text)
               for sample in family.samples}
    assert scraped.status == 200 and not any(raw in scraped.body for raw in RAW)
    assert all(line.isprintable() for line in text.splitlines())
    assert samples["nagletrace_up"] in (0, 1)
    if answer.wrong or NOT_TAKEN.fullmatch(answer.name):
        assert samples["nagletrace_up"] == 0 and "nagletrace_stalls_total" not in samples
    assert len(lines_of(session.exporter)) <= before + 2, "one line, and one when the daemon was back in between"
    assert all(line.strip().isprintable() and len(line) < 600 for line in session.exporter.log)
    assert most_memory(session.exporter.process) <= EXPORTER_BYTES


def test_after_all_of_that_a_good_answer_is_taken(session: Session) -> None:
    with FakeDaemon(session.path, snapshot(series("java", [40.0]))):
        assert b"nagletrace_up 1.0\n" in session.exporter.get().body


@pytest.mark.parametrize("count", [pytest.param(1500, id="more than are taken", marks=pytest.mark.slow),
                                   pytest.param(4000, id="longer than is read")])
def test_more_label_sets_are_taken_when_they_are_asked_for(tmp_path: Path, count: int) -> None:
    many = snapshot(*(series(f"p{number}", [40.0]) for number in range(count)))
    with FakeDaemon(tmp_path / "s", many):
        for arguments, up in (((), b"0.0"), (("--daemon.max-series", str(count)), b"1.0")):
            with serving(tmp_path / "s", *arguments) as exporter:
                assert b"nagletrace_up " + up in exporter.get().body
            told = [line for line in exporter.log if "--daemon.max-series" in line]
            assert len(told) == (up == b"0.0")


@pytest.mark.parametrize("watched", [False, True], ids=["asked", "watched"])
@pytest.mark.parametrize("answer", [pytest.param(answer, marks=pytest.mark.slow if number % 4 else (), id=answer.name)
                                    for number, answer in enumerate(ANSWERS) if not answer.slow and not answer.again])
def test_report_and_flame_show_it_or_end_with_one_line(tmp_path: Path, watched: bool, answer: Answer,
                                                       capfd: pytest.CaptureFixture[str]) -> None:
    """In this process, since there are many."""
    for name, main in (("report", report), ("flame", flame)):
        with HostileServer(tmp_path / "s", answer), pytest.MonkeyPatch.context() as patch:
            duration = ["--duration", "100ms"] if watched else []
            patch.setattr(sys, "argv", [name, "--socket", str(tmp_path / "s"), *duration, "-o", str(tmp_path / "out")])
            code = main()
        told = capfd.readouterr().err.splitlines()
        assert code in (0, 1) and (code == 0 or len(told) == 1) and all(line.isprintable() for line in told), told
        assert code == 1 or not answer.wrong
        if code == 0:
            assert not any(raw in (tmp_path / "out").read_bytes() for raw in RAW)


@pytest.mark.parametrize("answer", [pytest.param(answer, marks=pytest.mark.slow if number % 40 else (), id=answer.name)
                                    for number, answer in enumerate(ANSWERS) if not answer.slow])
def test_the_follower_of_otlp_lives_and_follows_the_next_daemon(
        tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """In this process, since there are many."""
    monkeypatch.setattr(carrier, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(carrier, "MOST_DAEMON_PAUSE_S", 0.1)
    with FakeReceiver() as receiver:
        target = endpoint(receiver.url)
        carries = carrier.Carrier(tmp_path / "s", target, OtlpConfigFile(None, target.tls), {}, 100, 1 << 20)
        with HostileServer(tmp_path / "s", answer) as server:
            carries.start()
            wait_until("it has connected", lambda: server.connections)
            end = time.monotonic() + 0.3
            while len(server.connections) < 2 and time.monotonic() < end:
                time.sleep(0.01)
        with StreamingDaemon(tmp_path / "s") as daemon:
            assert daemon.followed.acquire(timeout=PATIENCE)
            daemon.tell(stall(1))
            numbers: list[str] = []
            while "1" not in numbers:
                request = receiver.requests.get(timeout=PATIENCE)
                numbers = [str(attributes_of(record).get("nagletrace.number")) for record in request.records()]
            began = time.monotonic()
            carries.stop()
            assert time.monotonic() - began < carrier.FLUSH_S
    assert all(record.getMessage().isprintable() and len(record.getMessage()) < 600 for record in caplog.records)
    assert len(caplog.records) <= 6, "a trouble is logged once"


@functools.cache
def least_memory(name: str) -> int:
    """What the program takes anyway, in bytes."""
    return played(name, "--help")[1]


@pytest.mark.parametrize("name", ["report", pytest.param("flame", marks=pytest.mark.slow)])
@pytest.mark.parametrize("answer", [answer for answer in ANSWERS if answer.again and not answer.slow],
                         ids=lambda answer: answer.name)
def test_what_has_no_end_costs_report_and_flame_bounded_memory(tmp_path: Path, name: str, answer: Answer) -> None:
    with HostileServer(tmp_path / "s", answer):
        done, most = played(name, "--socket", str(tmp_path / "s"))
    told = done.stderr.decode().splitlines()[:-1]
    assert done.returncode == 1 and len(told) == 1 and told[0].isprintable(), told
    assert most <= least_memory(name) + MOST_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report", "flame", "exporter"])
@pytest.mark.parametrize("again", [b"x" * 65536, b"\n" * 65536, b'{"type":"stall"}\n' * 4096],
                         ids=["a line", "empty lines", "lines that are no stalls"])
def test_a_stream_without_end_costs_bounded_memory(tmp_path: Path, name: str, again: bytes) -> None:
    """What is asked for first is answered well; then comes a line, or lines, without end."""

    class Streams(FakeDaemon):
        asked = threading.Event()

        def _reply(self, connection: socket.socket, line: bytes) -> None:
            if b'"stream"' not in line:
                super()._reply(connection, line)
                return
            self.asked.set()
            with contextlib.suppress(OSError):
                for _ in range((300 << 20) // len(again)):
                    connection.sendall(again)

    with Streams(tmp_path / "s", snapshot(series("java", [40.0]))):
        if name == "exporter":
            with serving(tmp_path / "s", "--otlp.endpoint", "http://127.0.0.1:1") as exporter:
                assert Streams.asked.wait(PATIENCE)
                time.sleep(2)
                most = most_memory(exporter.process)
        else:
            _, most = played(name, "--socket", str(tmp_path / "s"), "--duration", "2s")
    assert Streams.asked.is_set() and most <= least_memory(name) + MOST_BYTES
