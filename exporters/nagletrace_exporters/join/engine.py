# SPDX-License-Identifier: GPL-2.0
"""Has DuckDB read recordings and join them: load() fills the tables that join.sql begins with.

All tables lie in a file of a temporary directory, so that memory stays bounded whatever the recordings hold.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..recording import RecordingError
from ..records import MAX_NUMBER

if TYPE_CHECKING:
    import duckdb

STEPS = Path(__file__).parent / "join.sql"
#: The tracer's longest line; beyond it, the rest of the file cannot be trusted either.
MAX_LINE = 16 << 20
#: So many rows are in Python's memory at a time.
ROWS = 10_000
#: So many calls of a stack are shown.
SHOWN_CALLS = 4

#: What is of interest.
KINDS = ("start", "streaming", "stall", "hold", "late_ack", "report")
#: What is read of a line, besides its two ends.
LINE = {"type": "VARCHAR", "time": "TIMESTAMP", "host": "VARCHAR", "boot_id": "VARCHAR", "ack_key": "VARCHAR",
        "late_acks": "VARCHAR", "holds": "VARCHAR", "ack_id": "VARCHAR", "number": "BIGINT", "cause": "VARCHAR",
        "side": "VARCHAR", "evidence": "VARCHAR", "pattern": "VARCHAR", "duration_us": "BIGINT", "excess_us": "BIGINT",
        "min_rtt_us": "BIGINT", "family": "INTEGER", "contradicted": "BOOLEAN", "ack_after_hold_us": "BIGINT",
        "unseen": "BIGINT", "dropped": "JSON"}
#: What is read of an end.
ENDS = {
    "sender": {"address": "VARCHAR", "netns": "BIGINT", "comm": "VARCHAR", "pid": "BIGINT",
               "hold": {"reason": "VARCHAR", "release": "VARCHAR", "bytes": "BIGINT", "in_flight_bytes": "BIGINT",
                        "mss": "BIGINT"},
               "stack": [{"ip": "VARCHAR", "symbol": "VARCHAR"}]},
    "receiver": {"address": "VARCHAR", "netns": "BIGINT", "comm": "VARCHAR", "pid": "BIGINT",
                 "pending_ack": {"duration_us": "BIGINT", "reason": "VARCHAR", "release": "VARCHAR",
                                 "limit_us": "BIGINT", "bytes": "BIGINT"}},
}

#: Which lines are records of the shape that is joined.
FIT = f"""
time IS NOT NULL AND CASE
    WHEN type IN ('stall', 'hold', 'late_ack') THEN
        sender.address IS NOT NULL AND receiver.address IS NOT NULL
        AND coalesce(min_rtt_us, 0) BETWEEN 0 AND {MAX_NUMBER}
        AND coalesce(receiver.pending_ack.duration_us, 0) BETWEEN 0 AND {MAX_NUMBER}
        AND (type = 'late_ack' OR coalesce(duration_us BETWEEN 0 AND {MAX_NUMBER} AND CASE side
                WHEN 'sender' THEN sender.netns >= 0 AND sender.hold.bytes >= 0 AND sender.hold.in_flight_bytes >= 0
                    AND sender.hold.mss >= 0 AND sender.hold.reason IS NOT NULL AND sender.hold.release IS NOT NULL
                WHEN 'receiver' THEN receiver.netns >= 0
                    AND (type = 'hold' OR receiver.pending_ack.duration_us >= 0)
                END, false))
        AND (type <> 'stall' OR cause IS NOT NULL AND evidence IS NOT NULL AND pattern IS NOT NULL
             AND coalesce(excess_us BETWEEN 0 AND {MAX_NUMBER}, false))
    ELSE true END
"""

#: The columns of the table `lines`: a row for each line that is of interest, in the recordings' order. A line that is
#: no such record has no kind.
COLUMNS = {
    "source": ("UBIGINT", "hash(filename)"),
    "kind": ("VARCHAR", f"CASE WHEN {FIT} THEN type END"),
    "time_us": ("BIGINT", "coalesce(epoch_us(time), 0)"),
    "host": ("VARCHAR", "host"),
    "boot_id": ("VARCHAR", "boot_id"),
    "origin": ("UBIGINT", "CASE WHEN host IS NULL THEN 0 ELSE hash(host, coalesce(boot_id, '')) END"),
    "ack_id": ("UBIGINT", "CASE WHEN regexp_full_match(ack_id, '[0-9a-f]{16}') THEN CAST('0x' || ack_id AS UBIGINT) "
               "ELSE 0 END"),
    "number": ("BIGINT", "coalesce(number, CASE WHEN type = 'start' THEN 0 ELSE -1 END)"),
    "complete": ("TINYINT", """CASE
        WHEN type IN ('start', 'streaming') THEN
            CASE WHEN late_acks = 'all' AND holds = 'all' THEN 2 WHEN late_acks = 'all' THEN 1 ELSE 0 END
        WHEN type = 'report' THEN CASE WHEN unseen = 0 AND NOT regexp_matches(
            CAST(dropped AS VARCHAR), '"(ring_full|ring_share|hold_map_full|ack_map_full|function_return)": *[1-9]')
            THEN 1 ELSE 0 END
        ELSE 1 END"""),
    "ack_key": ("VARCHAR", "ack_key"),
    "late_acks": ("VARCHAR", "late_acks"),
    "side": ("VARCHAR", "side"),
    "cause": ("VARCHAR", "cause"),
    "evidence": ("VARCHAR", "evidence"),
    "pattern": ("VARCHAR", "pattern"),
    "duration_us": ("BIGINT", "coalesce(duration_us, 0)"),
    "excess_us": ("BIGINT", "excess_us"),
    "rtt_us": ("BIGINT", "min_rtt_us"),
    "of_hold": ("TINYINT", "CASE WHEN type = 'hold' AND contradicted IS NULL AND sender.hold.reason = 'nagle' "
                "AND sender.hold.release = 'ack' THEN 1 ELSE 0 END"),
    "sender": ("VARCHAR", "sender.address"),
    "sender_netns": ("BIGINT", "sender.netns"),
    "sender_comm": ("VARCHAR", "sender.comm"),
    "sender_pid": ("BIGINT", "sender.pid"),
    "held": ("BIGINT", "sender.hold.bytes"),
    "in_flight": ("BIGINT", "sender.hold.in_flight_bytes"),
    "mss": ("BIGINT", "sender.hold.mss"),
    "calls": ("VARCHAR[]", "CASE WHEN sender.stack IS NOT NULL THEN "
              f"[coalesce(call.symbol, call.ip) FOR call IN sender.stack[:{SHOWN_CALLS}]] END"),
    "receiver": ("VARCHAR", "receiver.address"),
    "receiver_netns": ("BIGINT", "receiver.netns"),
    "receiver_comm": ("VARCHAR", "receiver.comm"),
    "receiver_pid": ("BIGINT", "receiver.pid"),
    "pending_us": ("BIGINT", "receiver.pending_ack.duration_us"),
    "pending_reason": ("VARCHAR", "receiver.pending_ack.reason"),
    "pending_release": ("VARCHAR", "receiver.pending_ack.release"),
    "limit_us": ("BIGINT", "receiver.pending_ack.limit_us"),
    # whose stall it is, for a report that counts them
    "who": ("UBIGINT", "hash(host, side, cause, sender.comm, sender.pid, receiver.comm, receiver.pid)"),
}
#: With the whole lines, what they are written from again. Keys of an end that this version does not know go through.
WHOLE = {"family": ("INTEGER", "family"), "ack_after_hold_us": ("BIGINT", "ack_after_hold_us"),
         "ack_name": ("VARCHAR", "ack_id"), "sender_end": ("VARCHAR", "sender_end"),
         "receiver_end": ("VARCHAR", "receiver_end")}

#: What join.sql begins with. A report names no host: it is of the host of the line before it.
RECORDS = """
UPDATE lines SET origin = named.origin FROM (
    SELECT r.rowid AS line, l.origin AS origin
    FROM (SELECT rowid, source FROM lines WHERE kind = 'report' AND origin = 0) AS r
    ASOF JOIN (SELECT rowid AS line, source, origin FROM (
        SELECT rowid, source, origin, lag(origin) OVER () AS before, lag(source) OVER () AS source_before FROM lines
        WHERE origin <> 0
    ) AS following WHERE before IS DISTINCT FROM origin OR source_before IS DISTINCT FROM source) AS l
    ON l.source = r.source AND l.line < r.rowid
) AS named WHERE lines.rowid = named.line;
CREATE TABLE origins AS
SELECT DISTINCT origin, host, boot_id FROM lines WHERE host IS NOT NULL;
CREATE TEMP VIEW records AS
SELECT source, rowid AS line, kind, time_us, origin, ack_id, number, complete,
       CASE WHEN sender_netns IS NOT NULL THEN 1 ELSE 0 END AS by_sender,
       CASE WHEN receiver_netns IS NOT NULL THEN 1 ELSE 0 END AS by_receiver, of_hold,
       coalesce(sender, '') AS sender, coalesce(receiver, '') AS receiver, duration_us, coalesce(rtt_us, 0) AS rtt_us,
       coalesce(pending_us, 0) AS pending_us, CASE WHEN pending_release = 'timer' THEN 1 ELSE 0 END AS by_timer
FROM lines WHERE kind IS NOT NULL
"""

#: How often each stall of the same processes lasted how long, to three digits; and the last one of each.
TALLIES = """
CREATE TEMP TABLE tallies AS
SELECT verdict, who, other_who, duration_us // step * step AS rounded_us, count(*) AS stalls,
       sum(excess_us)::BIGINT AS excess_us, max(time_us) AS last_us, max_by(line, time_us) AS line,
       max_by(other_line, time_us) AS other_line
FROM (
    SELECT CASE WHEN a.evidence = 'as it is' THEN s.evidence ELSE a.evidence END AS verdict, s.who AS who,
           o.who AS other_who, s.duration_us AS duration_us,
           CASE WHEN s.duration_us < 1000 THEN 1 ELSE 10 ** (length(s.duration_us::VARCHAR) - 3) END::BIGINT AS step,
           CASE WHEN a.evidence = 'seen' THEN greatest(0, s.duration_us - coalesce(s.rtt_us, 0)) ELSE s.excess_us END
               AS excess_us, a.time_us AS time_us, a.line AS line, a.other_line AS other_line
    FROM answers AS a INNER JOIN lines AS s ON s.rowid = a.line LEFT JOIN lines AS o ON o.rowid = a.other_line
) AS told
GROUP BY verdict, who, other_who, duration_us // step * step
"""

#: The processes that lost most, with the last stall of each.
GROUPS = """
SELECT g.verdict, g.durations, s.kind, s.side, s.cause, s.pattern, s.host, o.host AS other_host,
       s.sender, s.sender_netns, s.sender_comm, s.sender_pid, s.held, s.in_flight, s.mss, s.calls,
       coalesce(o.receiver, s.receiver) AS receiver, coalesce(o.receiver_comm, s.receiver_comm) AS receiver_comm,
       coalesce(o.receiver_pid, s.receiver_pid) AS receiver_pid,
       coalesce(o.pending_us, s.pending_us) AS pending_us,
       CASE WHEN o.source IS NULL THEN s.pending_reason ELSE o.pending_reason END AS pending_reason,
       coalesce(o.limit_us, s.limit_us) AS limit_us, s.receiver_netns
FROM (
    SELECT verdict, who, other_who, sum(excess_us)::BIGINT AS excess_us, max_by(line, last_us) AS line,
           max_by(other_line, last_us) AS other_line, list([rounded_us, stalls]) AS durations
    FROM tallies WHERE verdict <> 'contradicted'
    GROUP BY verdict, who, other_who ORDER BY excess_us DESC, line LIMIT $most
) AS g INNER JOIN lines AS s ON s.rowid = g.line LEFT JOIN lines AS o ON o.rowid = g.other_line
ORDER BY g.excess_us DESC, g.line
"""


def member(key: str, value: str) -> str:
    """SQL that writes a member of an object, with the comma before it, or nothing where there is no value."""
    return f"""coalesce(',"{key}":' || CAST(to_json({value}) AS VARCHAR), '')"""


def with_host(end: str, host: str) -> str:
    """SQL that writes an end; where both hosts have the stall, with its own."""
    named = f"CAST(json_merge_patch({end}, json_object('host', {host})) AS VARCHAR)"
    return f"CASE WHEN a.evidence = 'seen' THEN {named} ELSE {end} END"


def whole_lines() -> str:
    """SQL that writes each answer as a line of JSON, in order of time and with the tracer's own order of keys."""
    seen, dismissed = "a.evidence = 'seen'", "a.evidence = 'contradicted'"
    rtt = "coalesce(s.rtt_us, 0)"
    members = [
        member("cause", f"CASE WHEN {seen} THEN 'nagle_delayed_ack' WHEN NOT {dismissed} THEN s.cause END"),
        member("time", "strftime(make_timestamp(s.time_us), '%Y-%m-%dT%H:%M:%S.%fZ')"),
        member("side", f"CASE WHEN {seen} THEN 'sender' ELSE s.side END"),
        member("evidence", f"CASE WHEN {seen} THEN 'seen' WHEN NOT {dismissed} THEN s.evidence END"),
        # the sender's host may have called it no stall, and named no pattern
        member("pattern", f"""CASE WHEN {dismissed} THEN CASE WHEN s.side = 'sender' THEN 'ack_clocked' END
            WHEN s.kind <> 'hold' THEN s.pattern WHEN s.in_flight >= s.mss THEN 'reply_tail'
            ELSE 'write_write_read' END"""),
        member("duration_us", "s.duration_us"),
        member("excess_us", f"CASE WHEN {seen} THEN greatest(0, s.duration_us - {rtt}) WHEN NOT {dismissed} "
               "THEN s.excess_us END"),
        member("min_rtt_us", "s.rtt_us"), member("family", "s.family"), member("ack_id", "s.ack_name"),
        member("host", "s.host"), member("boot_id", "s.boot_id"),
        f"CASE WHEN {dismissed} THEN ',\"contradicted\":true' ELSE '' END",
        f"""',"sender":' || {with_host("s.sender_end", "s.host")}""",
        f"""',"receiver":' || {with_host("coalesce(o.receiver_end, s.receiver_end)", "o.host")}""",
        # the ACK took half a round trip; so no clock of the two hosts is compared
        member("ack_after_hold_us", f"CASE WHEN {seen} THEN s.duration_us - {rtt} // 2 - o.pending_us "
               f"WHEN NOT {dismissed} THEN s.ack_after_hold_us END")]
    return ("SELECT '{\"type\":\"' || CASE WHEN a.evidence = 'contradicted' THEN 'hold' ELSE 'stall' END || '\"' || "  # noqa: S608
            + " || ".join(members) + " || '}' AS line FROM answers AS a INNER JOIN lines AS s ON s.rowid = a.line "
            "LEFT JOIN lines AS o ON o.rowid = a.other_line ORDER BY a.time_us, a.line")


class Clock(NamedTuple):
    """How far the one's clock is ahead of the other's, by so many ACKs."""

    one: str
    other: str
    acks: int
    ahead_us: int


class Counts(NamedTuple):
    """Of the lines; `lines`: those that may be records."""

    lines: int
    broken: int
    keys: int
    with_ids: int
    without_ids: int
    starts_without_late_acks: int


class Totals(NamedTuple):
    """Of all stalls of one verdict."""

    stalls: int
    excess_us: int


def need_duckdb() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise RecordingError("DuckDB, which joins the records, is not installed; install it: "
                             "pip install 'nagletrace-exporters[join]', or pip install duckdb") from error
    return duckdb


def steps() -> Iterator[str]:
    """The statements of join.sql, in order."""
    for step in STEPS.read_text(encoding="utf-8").split("\n-- step: ")[1:]:
        yield step.partition("\n")[2]


def shape(kind: Any) -> str:
    """DuckDB's name of a type."""
    if isinstance(kind, dict):
        return "STRUCT(" + ", ".join(f'"{name}" {shape(of)}' for name, of in kind.items()) + ")"
    return f"{shape(kind[0])}[]" if isinstance(kind, list) else str(kind)


def load_statement(whole: bool) -> str:
    """Reads recordings, with one look at each line."""
    columns = {**COLUMNS, **WHOLE} if whole else COLUMNS
    read = {**LINE, **{end: "JSON" if whole else shape(kind) for end, kind in ENDS.items()}}
    wanted = ", ".join(f"'{name}': '{kind}'" for name, kind in read.items())
    ends = ""
    if whole:
        parts = ", ".join(f"json_transform({end}, '{json.dumps(kind)}') AS {end}" for end, kind in ENDS.items())
        texts = ", ".join(f"CAST({end} AS VARCHAR) AS {end}_end" for end in ENDS)
        ends = f" REPLACE ({parts}), {texts}"
    values = ", ".join(value for _, value in columns.values())
    return (f"INSERT INTO lines SELECT {values} FROM (SELECT *{ends} FROM read_json($files, "  # noqa: S608
            f"filename=true, format='newline_delimited', ignore_errors=true, maximum_object_size={MAX_LINE}, "
            f"columns={{{wanted}}})) AS read WHERE type IS NULL OR type IN ({', '.join(map(repr, KINDS))})")


class Engine:
    """Joins recordings. Close it, or its files stay. `whole`: whole lines are wanted in the end, not sums."""

    def __init__(self, memory: str, threads: int | None = None, whole: bool = False) -> None:
        module = need_duckdb()
        self.error: type[Exception] = module.Error
        self.room = tempfile.TemporaryDirectory(prefix="nagletrace-join-")
        settings: dict[str, Any] = {"memory_limit": memory, "temp_directory": self.room.name,
                                    "autoinstall_known_extensions": False, "autoload_known_extensions": False}
        if threads:
            settings["threads"] = threads
        place = str(Path(self.room.name) / "records")
        self.database: duckdb.DuckDBPyConnection = module.connect(place, config=settings)
        columns = {**COLUMNS, **WHOLE} if whole else COLUMNS
        self.database.execute("CREATE TABLE lines ("
                              + ", ".join(f'"{name}" {kind}' for name, (kind, _) in columns.items()) + ")")
        self.statement = load_statement(whole)

    def load(self, *names: str) -> None:
        """Reads recordings, several of them at a time."""
        try:
            self.database.execute(self.statement, {"files": [literal(name) for name in names]})
        except self.error:
            for name in names:  # one after the other, to tell which of them it is
                self._run(self.statement, {"files": [literal(name)]}, name)

    def join(self, window_us: int) -> None:
        for statement in [*RECORDS.split(";"), *steps()]:
            wanted = {"window": window_us} if "$window" in statement else {}
            self._run(statement, wanted, None)

    def _run(self, statement: str, values: dict[str, Any], name: str | None) -> None:
        try:
            self.database.execute(statement, values)
        except self.error as error:
            what = " ".join(str(error).split())[:160]
            if name is not None:
                raise RecordingError(f"{name}: cannot read it: {what}; give what `nagletrace -o json` wrote",
                                     2) from error
            raise RecordingError(f"DuckDB cannot join the records: {what}; "
                                 "give it more memory with --memory") from error

    def clocks(self) -> list[Clock]:
        """Of each two hosts, whichever of them sent."""
        rows = self.database.execute("""
            SELECT a.host, b.host, sum(acks)::BIGINT AS common,
                   round(sum(acks * CASE WHEN a.origin = s_origin THEN ahead_us ELSE -ahead_us END) / sum(acks))::BIGINT
            FROM (SELECT *, (SELECT host FROM origins WHERE origin = s_origin)
                         <= (SELECT host FROM origins WHERE origin = r_origin) AS ordered FROM clocks) AS k
            INNER JOIN origins AS a ON a.origin = CASE WHEN ordered THEN s_origin ELSE r_origin END
            INNER JOIN origins AS b ON b.origin = CASE WHEN ordered THEN r_origin ELSE s_origin END
            GROUP BY a.origin, a.host, b.origin, b.host ORDER BY common DESC, a.host, b.host""").fetchall()
        return [Clock(*row) for row in rows]

    def counts(self) -> Counts:
        [row] = self.database.execute(
            "SELECT count(*), count(*) FILTER (kind IS NULL), count(DISTINCT ack_key), "
            "count(*) FILTER (ack_id <> 0), "
            "count(*) FILTER (ack_id = 0 AND kind = 'stall' AND cause = 'nagle_delayed_ack'), "
            "count(*) FILTER (kind = 'start' AND late_acks IS NULL) FROM lines").fetchall()
        return Counts(*row)

    def hosts(self) -> int:
        [[hosts]] = self.database.execute("SELECT count(DISTINCT host) FROM origins").fetchall()
        return int(hosts)

    def tally(self) -> dict[str, Totals]:
        """Sums the answers up, by verdict; groups() tells more of them."""
        self._run(TALLIES, {}, None)
        rows = self.database.execute("SELECT verdict, sum(stalls)::BIGINT, coalesce(sum(excess_us), 0)::BIGINT "
                                     "FROM tallies GROUP BY verdict").fetchall()
        return {verdict: Totals(stalls, excess_us) for verdict, stalls, excess_us in rows}

    def groups(self, most: int) -> list[dict[str, Any]]:
        """The processes that lost most."""
        cursor = self.database.execute(GROUPS, {"most": most})
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row)) for row in cursor.fetchall()]

    def answers(self) -> Iterator[str]:
        """What is told in the end, in order of time: a line of JSON each."""
        cursor = self.database.execute(whole_lines())
        while rows := cursor.fetchmany(ROWS):
            yield "".join([line + "\n" for [line] in rows])

    def close(self) -> None:
        self.database.close()
        self.room.cleanup()


def literal(name: str) -> str:
    """A file's name in which DuckDB finds no pattern: it would read others besides."""
    if name == "-":
        return "/dev/stdin"
    return re.sub(r"([*?\[])", r"[\1]", name)
