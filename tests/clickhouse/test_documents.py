# SPDX-License-Identifier: GPL-2.0
"""What the documents say of the store: each command of docs/stalls-in-clickhouse.md as it stands, on two recordings;
the sizes in docs/fleets.md, measured again."""

from __future__ import annotations

import datetime
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import documents
import pytest
from debian import Unavailable
from store import ROOT, SQL, Store, write
from test_store import duckdb, recordings, sent
from tools import clickhouse

from clickhouse import measure

PAGE = ROOT / "docs" / "stalls-in-clickhouse.md"
QUERIES = sorted((SQL / "queries").glob("*.sql"))
COMMANDS = [command for command, _ in documents.commands(PAGE) if command.startswith("clickhouse ")]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the recordings of two hosts, where the commands find what they name."""
    try:
        clickhouse()
    except Unavailable as reason:
        pytest.skip(str(reason))
    room = tmp_path_factory.mktemp("shell")
    (room / "dashboards").symlink_to(ROOT / "dashboards")
    web, db = duckdb.slow_path(*duckdb.both_hosts())
    # the stack of one, as with --stacks
    web.records[0]["sender"]["stack"] = [{"ip": "0x10", "symbol": "NET_Send"}]
    # as if they had just been made
    by = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(minutes=5) - recordings.BEGIN
    for host in (web, db):
        write(room / f"{host.name}.jsonl", sent(host.lines(9 * duckdb.SECOND), by))
    yield room


def run(command: str, room: Path) -> str:
    path = f"{ROOT / 'tests' / 'clickhouse'}:{os.environ['PATH']}"
    done = subprocess.run(["sh", "-c", command], cwd=room, env={**os.environ, "PATH": path}, capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


def test_the_commands_lead_from_two_recordings_to_the_answers(shell: Path) -> None:
    told = {}
    for command in COMMANDS:
        word = next((word for word in ("lost-time", "last-hour", "contradicted", "connection", "hosts", "ack_key")
                     if word in command), command)
        told[word] = run(command.replace("10.0.0.1:51234", duckdb.CLIENT), shell).splitlines()
    assert len(COMMANDS) >= 10
    assert {re.sub(r"\t\S+ \S+\t[4-6]\t", " ", line) for line in told["hosts"][1:]} == {"web1 0\t1", "db1 0\t1"}
    assert re.search(r"^web1\tjava\t.*\tdb1\tnginx\t.*\t11\t11\t0.44\t40.3\t40.3$", "\n".join(told["lost-time"]), re.M)
    assert told["last-hour"][1:] == ["nagle_delayed_ack\t\twrite_write_read\tpingpong\tseen\t11\t1\t0.44"]
    [contradicted] = told["contradicted"][1:]
    assert contradicted.split("\t")[:5] == ["web1", "java", "db1", duckdb.VIP, "1"]
    assert len(told["connection"]) == 1 + 12 and "NET_Send" in told["connection"][1]
    assert [line.split("\t")[0] for line in told["ack_key"][1:]] in (["web1", "db1"], ["db1", "web1"])


@pytest.mark.parametrize("address", [duckdb.CLIENT, duckdb.VIP, duckdb.SERVER])
def test_a_connection_is_found_by_what_either_host_calls_it(address: str, shell: Path) -> None:
    [command] = [command for command in COMMANDS if "--param_address" in command]
    assert "\tseen\tweb1\tjava\t" in run(command.replace("10.0.0.1:51234", address), shell)


def test_each_query_is_in_the_page_and_in_the_readme() -> None:
    assert len(QUERIES) == 6
    for query in QUERIES:
        assert any(f"queries/{query.name}" in command for command in COMMANDS)
        assert f"(queries/{query.name})" in (SQL / "README.md").read_text()


def test_what_prometheus_counts_leads_to_the_store() -> None:
    for alert in ("NagletraceStalls40ms", "NagletraceStalls200ms", "NagletraceExcessTime"):
        page = (ROOT / "docs" / "runbooks" / f"{alert}.md").read_text()
        assert "(../stalls-in-clickhouse.md)" in page
        assert set(re.findall(r"`([\w-]+\.sql)`", page)) <= {query.name for query in QUERIES}
    for name, query in (("grafana/nagletrace.json", "lost-time.sql"), ("prometheus/recording.yml", "lost-time.sql"),
                        ("grafana/nagletrace-connection.json", "connection.sql")):
        text = (ROOT / "dashboards" / name).read_text()
        assert (SQL / "queries" / query).is_file() and query in text, name


# ---- sizes ----


def number(text: str) -> float:
    return float(text.replace(",", ""))


def tables() -> tuple[dict[bool, list[float]], list[list[float]]]:
    """Of docs/fleets.md: bytes of a line, a record and a row, by whether containers are named; and the rows of the
    fleet of ten thousand."""
    text = (ROOT / "docs" / "fleets.md").read_text()
    bytes_of = {word == "with": [number(cell) for cell in cells.split("|")] for word, cells in re.findall(
        r"^\| 1,000,000 (with|without) containers \|((?:[ \d,]+\|){2}[ \d,]+)\|", text, re.MULTILINE)}
    fleet = [[number(cell) for cell in re.findall(r"[\d,.]+", line)]
             for line in re.findall(r"^\| [\d.]+ a second \|.*$", text, re.MULTILINE)]
    return bytes_of, fleet


def test_the_bytes_of_a_record_are_as_measured(tmp_path: Path) -> None:
    bytes_of, _ = tables()
    try:
        store = Store(tmp_path / "store")
    except Unavailable as reason:
        pytest.skip(str(reason))
    store.create("REFRESH EVERY 1 YEAR")
    for containers in (False, True):
        store.empty()
        measured = measure(store, tmp_path, 50_000, containers)
        line, record, row = bytes_of[containers]
        assert abs(measured.line / line - 1) < 0.02
        # a small table packs less well
        assert 0.9 < measured.record / record < 1.25 and 0.9 < measured.row / row < 1.5
        assert measured.seen > 0.47 * 50_000
    store.close()


def test_the_fleet_of_ten_thousand_is_computed_from_them() -> None:
    bytes_of, fleet = tables()
    _, record, row = bytes_of[True]
    assert len(fleet) >= 3
    for a_second, millions, gigabytes, month in fleet:
        records = a_second * 10_000 * 86_400
        assert millions == pytest.approx(records / 1e6, rel=0.01)
        assert gigabytes == pytest.approx((records * record + records / 2 * row) / 1e9, rel=0.05)
        assert month == pytest.approx(30 * gigabytes, rel=0.05)
