# SPDX-License-Identifier: GPL-2.0
"""The store of dashboards/clickhouse gives the answers of nagletrace-join, whatever the order in which lines come."""

from __future__ import annotations

import datetime
import inspect
import itertools
import json
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import recordings
import test_join as duckdb
from debian import Unavailable
from store import EVERY, ROOT, Row, Store, statements, write

from nagletrace_exporters.exporter.otlp.records import log_record_of

#: What is moved to yesterday: the store keeps 30 days.
DAYS = datetime.datetime.now(datetime.timezone.utc).date() - recordings.BEGIN.date() - datetime.timedelta(days=1)
SECOND = duckdb.SECOND


@pytest.fixture(scope="module")
def engine() -> Iterator[Store]:
    try:
        store = Store()
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert sum(EVERY in one for one in statements("schema.sql")) == 2
    for _ in range(2):  # the second time changes nothing
        store.create("REFRESH EVERY 1 YEAR")  # the tests say when
    yield store
    store.close()


@pytest.fixture
def store(engine: Store) -> Store:
    engine.empty()
    return engine


# ---- the recordings of the tests of nagletrace-join, and its answers ----


def calls(function: Callable[..., None]) -> Iterator[dict[str, Any]]:
    """The arguments with which pytest calls it."""
    marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "parametrize"]
    names = [[name.strip() for name in (mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0])]
             for mark in marks]
    for chosen in itertools.product(*(mark.args[1] for mark in marks)):
        call: dict[str, Any] = {}
        for keys, values in zip(names, chosen):
            values = getattr(values, "values", values) if hasattr(values, "marks") else values
            call |= dict(zip(keys, values if isinstance(values, tuple) else (values,)))
        yield call


def scenarios() -> list[Any]:
    """Those of its tests that ask it for JSON."""
    found = []
    for name, function in vars(duckdb).items():
        if name.startswith("test_") and re.search(r"\bverdicts\(|\bJSON\b", inspect.getsource(function)):
            found += [pytest.param(function, call, id="-".join([name, *map(str, call.values())]))
                      for call in calls(function)]
    return found


class Joins:
    """Listens to what a test has nagletrace-join do with recordings; the store takes no files of columns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.heard: list[tuple[list[list[Row]], list[Row]]] = []
        self.join = duckdb.join
        monkeypatch.setattr(duckdb, "join", self.hear)

    def hear(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = self.join(*arguments)
        columns = any(name.endswith(".columns") for name in arguments)
        if "json" in arguments and not done.returncode and "--window" not in arguments and not columns:
            files = [[json.loads(line) for line in Path(name).read_text().splitlines()]
                     for name in arguments if name.endswith(".jsonl")]
            self.heard.append((files, [json.loads(line) for line in done.stdout.splitlines()]))
        return done


def moved(record: Row, by: datetime.timedelta) -> Row:
    when = datetime.datetime.fromisoformat(record["time"]) + by
    return {**record, "time": when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}


def sent(lines: list[Row], by: datetime.timedelta = DAYS) -> list[Row]:
    """As a tracer writes it: its reports have the host, too."""
    host = {key: line[key] for line in lines for key in ("host", "boot_id") if line["type"] == "start"}
    return [moved(line | (host if line["type"] == "report" else {}), by) for line in lines]


END = {"address": "", "pid": 0, "tid": 0, "comm": ""}
HOLD = {"reason": "", "release": "", "bytes": 0, "in_flight_bytes": 0, "mss": 0}
PENDING = {"duration_us": 0, "reason": "", "release": "", "limit_us": 0, "bytes": 0, "locked": False}


def known(of: Row, keys: Row) -> tuple[Any, ...]:
    return tuple(of.get(key, default) for key, default in keys.items())


def row(of: Row, verdict: str, ack: str, time: str) -> tuple[Any, ...]:
    """What is compared of an answer."""
    sender, receiver = of["sender"], of["receiver"]
    return (time, ack, verdict, of["side"], of.get("cause") or "", of.get("reason") or "", of.get("pattern") or "",
            of["duration_us"], of.get("excess_us") or 0, of.get("min_rtt_us") or 0, of["family"],
            of.get("ack_after_hold_us"),
            known(sender, END), known(sender.get("hold", {}), HOLD), len(sender.get("stack") or ""),
            known(receiver, END), known(receiver.get("pending_ack", {}), PENDING))


def expected(answers: list[Row]) -> list[tuple[Any, ...]]:
    found = []
    for answer in (moved(answer, DAYS) for answer in answers):
        verdict = "contradicted" if answer.get("contradicted") else answer["evidence"]
        hosts = (answer["sender"]["host"], answer["receiver"]["host"]) if "host" in answer["sender"] else None
        time = answer["time"].replace("T", " ").removesuffix("Z")
        found.append((row(answer, verdict, answer.get("ack_id", "0" * 16), time), hosts))
    return sorted(found, key=str)


def answered(store: Store) -> list[tuple[Any, ...]]:
    found = []
    for stall in store.rows("SELECT * FROM nagletrace.stalls"):
        met = stall["ahead_us"] is not None and stall["verdict"] == "seen"
        found.append((row(stall, stall["verdict"], stall["ack_id"], stall["time"]),
                      (stall["sender_host"], stall["receiver_host"]) if met else None))
    return sorted(found, key=str)


@pytest.mark.parametrize(("function", "call"), scenarios())
def test_it_answers_as_nagletrace_join(function: Callable[..., None], call: dict[str, Any], store: Store,
                                       monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    joins = Joins(monkeypatch)
    function(tmp_path=tmp_path, **call)
    assert joins.heard
    for files, answers in joins.heard:
        store.empty()
        for number, lines in enumerate(files):
            store.insert(write(tmp_path / f"sent{number}.jsonl", sent(lines)))
        store.refresh()
        assert answered(store) == expected(answers)


# ---- what comes by OpenTelemetry ----

#: As the Collector's ClickHouse exporter makes it, without indexes and codecs.
OTEL_LOGS = """CREATE TABLE otel_logs (
    Timestamp DateTime64(9), TimestampTime DateTime DEFAULT toDateTime(Timestamp), TraceId String, SpanId String,
    TraceFlags UInt8, SeverityText LowCardinality(String), SeverityNumber UInt8, ServiceName LowCardinality(String),
    Body String, ResourceSchemaUrl LowCardinality(String), ResourceAttributes Map(LowCardinality(String), String),
    ScopeSchemaUrl LowCardinality(String), ScopeName String, ScopeVersion LowCardinality(String),
    ScopeAttributes Map(LowCardinality(String), String), LogAttributes Map(LowCardinality(String), String)
) ENGINE = MergeTree ORDER BY Timestamp"""


def otel_row(record: Row) -> Row:
    """A record as the exporter hands it on and the Collector stores it: each value as text."""
    made = json.loads(log_record_of(record, 1))
    attributes = {one["key"]: json.dumps(value) if isinstance(value, bool) else value
                  for one in made["attributes"] for value in one["value"].values()}
    return {"Timestamp": f"{made['timeUnixNano'][:-9]}.{made['timeUnixNano'][-9:]}", "ServiceName": "nagletrace",
            "Body": made["body"]["stringValue"], "LogAttributes": attributes}


def test_records_that_a_collector_stored_are_those_that_came_as_lines(lines: list[Row], store: Store,
                                                                      tmp_path: Path) -> None:
    records = [line for line in lines if "ack_id" in line]
    odd = {**records[0], "ack_id": f"{999:016x}", "contradicted": True, "ack_after_hold_us": 7}
    odd["sender"] = {**odd["sender"], "comm": '"true.x\\', "options": {"nodelay": True, "cork": False}}
    records.append({key: value for key, value in odd.items() if key not in ("cause", "evidence")} | {"type": "hold"})
    late = next(record for record in records if "pending_ack" in record["receiver"])
    receiver = {**late["receiver"], "pending_ack": {**late["receiver"]["pending_ack"], "locked": True}}
    records.append({**late, "ack_id": f"{998:016x}", "number": 998, "receiver": receiver})
    store.insert(write(tmp_path / "lines.jsonl", records))
    by_lines = store.rows("SELECT * FROM nagletrace.records FINAL ORDER BY host, number, ack_id")
    assert len(by_lines) == len(records)
    store.empty()
    store.run(OTEL_LOGS)
    [view] = statements("from-otel.sql")
    store.run(view)
    first, *rest = map(otel_row, records)
    first["LogAttributes"]["code.stacktrace"] = "send\nmain"
    others = [{**first, "LogAttributes": {"http.route": "/"}}, {"ServiceName": "nagletrace", "Body": "it started"},
              {**first, "LogAttributes": {**first["LogAttributes"], "nagletrace.type": "stall"}}]
    rows = write(tmp_path / "rows.jsonl", [first, *rest, *others])
    store.run(f"INSERT INTO otel_logs SELECT * FROM file('{rows}', 'JSONEachRow')")
    by_collector = store.rows("SELECT * FROM nagletrace.records FINAL ORDER BY host, number, ack_id")
    store.run("DROP TABLE nagletrace.from_otel")
    store.run("DROP TABLE otel_logs")
    [with_stack] = [row for row in by_collector if row["sender"]["stack"]]
    assert with_stack["sender"].pop("stack") == "send\nmain"
    with_stack["sender"]["stack"] = ""
    assert by_collector == by_lines
    assert sum(int(row["lines"]) for row in store.rows("SELECT lines FROM nagletrace.refused")) == 1


# ---- what comes in another order, twice, late, or is no record ----


def play(web: Any, db: Any) -> list[Row]:
    """What both hosts tell: stalls over the turn of an hour, one that db1 contradicts, one that web1 contradicts by all
    its holds, one of which web1 alone tells, and one whose ends are both on web1."""
    turn = 3600 * SECOND
    web.start["holds"] = "late"
    for number in range(40):
        at = turn + 100_000 * (number - 20)
        db.delays(at - 150, number, kind="late_ack" if number % 4 else "stall")
        web.sends(at, number)
    web.sends(turn + 5 * SECOND, 98)
    db.delays(turn + 6 * SECOND, 97, kind="stall")
    db.delays(turn + 8 * SECOND, 99)
    web.sends(turn + 8 * SECOND, 99)
    web.sends(turn + 30 * SECOND, 100)
    both = recordings.seen()
    web.tell(turn, {key: value for key, value in both.items() if key != "time"} | {"ack_id": f"{200:016x}"})
    return sent(web.lines(turn + 40 * SECOND)) + sent(db.lines(turn + 20 * SECOND))


def told_of(store: Store) -> dict[str, int]:
    rows = store.rows("SELECT verdict, count() AS stalls FROM nagletrace.stalls GROUP BY verdict")
    return {row["verdict"]: int(row["stalls"]) for row in rows}


@pytest.fixture(scope="module")
def lines() -> list[Row]:
    return play(duckdb.Host("web1", ahead_us=300_000), duckdb.Host("db1"))


TOLD = {"seen": 42, "contradicted": 2, "inferred": 1}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_order_of_lines_and_lines_that_come_twice_change_nothing(seed: int, lines: list[Row], store: Store,
                                                                     tmp_path: Path) -> None:
    store.insert(write(tmp_path / "whole.jsonl", lines))
    store.refresh()
    assert told_of(store) == TOLD
    whole = answered(store)
    assert any(f"{200:016x}" in stall for stall, _ in whole)
    chance = random.Random(seed)
    left = lines + chance.sample(lines, len(lines) // 2)
    chance.shuffle(left)
    store.empty()
    for number in range(4):  # joined each time, whatever has come by then
        store.insert(write(tmp_path / f"{number}.jsonl", left[number::4]))
        store.refresh()
    assert answered(store) == whole
    store.insert(write(tmp_path / "again.jsonl", lines))
    store.refresh()
    assert answered(store) == whole
    store.run("OPTIMIZE TABLE nagletrace.records FINAL")
    records = [line for line in lines if "ack_id" in line]
    assert store.rows("SELECT count() AS n FROM nagletrace.records")[0]["n"] == len(records)


@pytest.mark.parametrize("host", ["web1", "db1"])
def test_an_end_that_comes_late_is_joined_with_the_other(host: str, lines: list[Row], store: Store,
                                                         tmp_path: Path) -> None:
    """As after an outage of what carries the lines."""
    early = [line for line in lines if line["host"] != host]
    store.insert(write(tmp_path / "early.jsonl", early))
    store.refresh()
    assert "seen" not in told_of(store) or host == "db1" and told_of(store)["seen"] == 1
    store.insert(write(tmp_path / "late.jsonl", [line for line in lines if line["host"] == host]))
    store.refresh()
    assert told_of(store) == TOLD


def test_hours_that_were_joined_are_left_alone_until_something_comes(lines: list[Row], store: Store,
                                                                     tmp_path: Path) -> None:
    store.insert(write(tmp_path / "lines.jsonl", lines))
    assert len(store.rows("SELECT * FROM nagletrace.due")) == 3  # the recordings began an hour before
    store.refresh()
    assert not store.rows("SELECT * FROM nagletrace.judging")
    # rows of an insert may show a minute after they came
    store.run("INSERT INTO nagletrace.joined (hour, side, verdict, version) "
              "SELECT hour, 'met', 'met', now64(3, 'UTC') + INTERVAL 2 MINUTE FROM nagletrace.due")
    assert not store.rows("SELECT * FROM nagletrace.due")


def test_an_end_after_the_turn_of_an_hour_has_the_hour_before_joined_again(store: Store, tmp_path: Path) -> None:
    web, db = duckdb.Host("web1"), duckdb.Host("db1")
    web.sends(3600 * SECOND - 100, 1)
    db.delays(3600 * SECOND + 100, 1)
    store.insert(write(tmp_path / "web1.jsonl", sent(web.lines(0)[1:2])))
    store.refresh()
    assert told_of(store) == {"inferred": 1}
    store.run("TRUNCATE TABLE nagletrace.arrivals")  # all that came has been joined
    store.insert(write(tmp_path / "db1.jsonl", sent(db.lines(0)[1:2])))
    store.refresh()
    assert told_of(store) == {"seen": 1}


def test_a_report_has_the_hours_joined_again_of_which_it_speaks(store: Store, tmp_path: Path) -> None:
    web, db = duckdb.Host("web1"), duckdb.Host("db1")
    for host, end in ((web, web.sends), (db, db.delays)):
        end(0, 1)
    web.sends(10 * SECOND, 2)
    *lines, report = sent(db.lines(2 * 3600 * SECOND))
    store.insert(write(tmp_path / "lines.jsonl", [*sent(web.lines(SECOND)), *lines]))
    store.refresh()
    assert told_of(store) == {"seen": 1, "inferred": 1}
    store.run("TRUNCATE TABLE nagletrace.arrivals")
    store.insert(write(tmp_path / "report.jsonl", [report]))
    store.refresh()
    assert told_of(store) == {"seen": 1, "contradicted": 1}


def test_an_ack_that_a_clock_has_moved_away_contradicts_nothing(store: Store, tmp_path: Path) -> None:
    web, db = duckdb.Host("web1"), duckdb.Host("db1")
    web.start["holds"] = "all"
    web.sends(0, 1)
    db.delays(0, 1)
    web.sends(10 * SECOND, 2)
    db.delays(15 * SECOND, 2)
    db.delays(20 * SECOND, 3, kind="stall")
    web.sends(25 * SECOND, 3, kind="hold")
    web.sends(30 * SECOND, 4)  # of this one the other host has nothing
    store.insert(write(tmp_path / "all.jsonl", [*sent(web.lines(60 * SECOND)), *sent(db.lines(60 * SECOND))]))
    store.refresh()
    assert told_of(store) == {"seen": 1, "inferred": 2, "contradicted": 1}


@pytest.mark.parametrize("late", ["web1", "db1"])
def test_a_start_that_comes_late_has_the_hours_joined_again_that_it_makes_whole(late: str, store: Store,
                                                                               tmp_path: Path) -> None:
    web, db = duckdb.Host("web1"), duckdb.Host("db1")
    web.start["holds"] = "all"
    later = 2 * 3600 * SECOND
    for at in (0, later):
        for host, end in ((web, web.sends), (db, db.delays)):
            end(at, at + 1)
    web.sends(later + 10 * SECOND, 2)
    db.delays(later + 20 * SECOND, 3, kind="stall")
    lines = [*sent(web.lines(3 * 3600 * SECOND)), *sent(db.lines(3 * 3600 * SECOND))]
    [start] = [line for line in lines if line["type"] == "start" and line["host"] == late]
    store.insert(write(tmp_path / "lines.jsonl", [line for line in lines if line is not start]))
    store.refresh()
    assert told_of(store) == {"seen": 2, "contradicted": 1, "inferred": 1}
    # all that came has been joined
    store.run("TRUNCATE TABLE nagletrace.arrivals")
    store.run("INSERT INTO nagletrace.arrivals SELECT DISTINCT hour, toDateTime64(0, 3, 'UTC') FROM nagletrace.joined")
    assert not store.rows("SELECT * FROM nagletrace.due")
    store.insert(write(tmp_path / "start.jsonl", [start]))
    store.refresh()
    assert told_of(store) == {"seen": 2, "contradicted": 2}


def test_hours_take_turns(store: Store, tmp_path: Path) -> None:
    """Also where lines of many hours come all the time."""
    hosts = [duckdb.Host("web1") for _ in range(14)]
    for back, host in enumerate(hosts):
        host.sends(10 * SECOND - 3600 * SECOND * back, back + 1)
    path = write(tmp_path / "lines.jsonl", sent([host.records[0] for host in hosts]))
    for turn in range(1, 4):
        store.insert(path)
        store.refresh()
        assert told_of(store) == {"inferred": min(6 * turn, len(hosts))}


def test_a_crowd_under_one_ack_id_is_cut(store: Store, tmp_path: Path) -> None:
    crowd = []
    for number in range(300):
        host = duckdb.Host(f"web{number}")
        host.sends(number, 1)
        crowd += host.records
    store.insert(write(tmp_path / "crowd.jsonl", sent(crowd)))
    store.refresh()
    assert told_of(store) == {"inferred": 64}


def test_what_came_too_late_or_with_a_wrong_clock_is_counted_and_makes_no_partition(lines: list[Row], store: Store,
                                                                                   tmp_path: Path) -> None:
    now = datetime.datetime.now(datetime.timezone.utc)
    wrong = [{**lines[1], "time": (now + datetime.timedelta(days=40 * far)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
             for far in range(-30, 30) if far]
    wrong += [{**lines[1], "time": "yesterday"}, {key: value for key, value in lines[1].items() if key != "host"}]
    path = write(tmp_path / "wrong.jsonl", wrong)
    with path.open("ab") as file:
        file.write(b'\xff\xfe\n[1]\n{\nnull\n{"type":{}}\n"x"\n' + b'{"type":"event"}\n'
                   + json.dumps({**lines[1], "number": 10**30, "duration_us": -1, "host": "'; DROP"}).encode() + b"\n")
    store.insert(path)
    [hosts] = statements("queries/hosts.sql")
    assert sum(int(row["refused_lines"]) for row in store.rows(hosts)) == len(wrong) + 6
    assert [row["host"] for row in store.rows("SELECT host FROM nagletrace.records")] == ["'; DROP"]
    store.refresh()
    assert len(answered(store)) <= 1


def test_each_key_of_a_record_is_kept_or_named_as_left_out() -> None:
    schema = json.loads((ROOT / "userspace" / "output" / "nagletrace.schema.json").read_text())["$defs"]
    [table] = [one for one in statements("schema.sql") if "nagletrace.understood (" in one]
    words = set(re.findall(r"\w+", table))
    left_out = {"schema", "hooks", "hooks_because", "clock", "missing_hooks", "timeline_cost",  # of a start
                "closing", "stalls", "excess_us", "connections", "folded_stalls", "totals", "unnamed_stacks",
                "detached_hooks", "standby", "untraced", "slow_holds", "groups", "behind"}  # of a report
    for shape in ("socket_record", "late_ack", "stall", "start", "report", "end", "hold", "pending_ack"):
        keys = set(schema[shape]["properties"])
        assert keys - left_out - {"host"} <= words, shape
