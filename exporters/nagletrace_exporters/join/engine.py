# SPDX-License-Identifier: GPL-2.0
"""Has DuckDB read recordings and join them: load() makes what join.sql begins with.

The lines are written to a file of columns (Parquet) in a temporary directory, or where the user says; tables lie beside
it where memory ends. So memory stays bounded whatever the recordings hold.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..lines import MAX_LINE
from ..recording import RecordingError
from ..records import MAX_NUMBER

if TYPE_CHECKING:
    import duckdb

STEPS = Path(__file__).parent / "join.sql"
#: The rows in Python's memory at a time.
ROWS = 10_000
#: The calls of a stack that are shown.
SHOWN_CALLS = 4

#: What is of interest.
KINDS = ("start", "streaming", "stall", "hold", "late_ack", "report", "totals")
#: What is read of a line, besides its two ends.
LINE = {"type": "VARCHAR", "time": "TIMESTAMP", "host": "VARCHAR", "boot_id": "VARCHAR", "ack_key": "VARCHAR",
        "late_acks": "VARCHAR", "holds": "VARCHAR", "ack_id": "VARCHAR", "number": "BIGINT", "cause": "VARCHAR",
        "reason": "VARCHAR", "side": "VARCHAR", "evidence": "VARCHAR", "pattern": "VARCHAR", "duration_us": "BIGINT",
        "excess_us": "BIGINT", "min_rtt_us": "BIGINT", "contradicted": "BOOLEAN", "unseen": "BIGINT", "dropped": "JSON",
        "detached_hooks": "JSON", "standby": "JSON", "span_us": "BIGINT", "key_changed": "BOOLEAN"}
#: And with the whole lines.
WHOLE_LINE = {"family": "INTEGER", "ack_after_hold_us": "BIGINT"}
#: What is read of an end.
ENDS = {
    "sender": {"address": "VARCHAR", "netns": "BIGINT", "comm": "VARCHAR", "pid": "BIGINT",
               "hold": {"reason": "VARCHAR", "release": "VARCHAR", "bytes": "BIGINT", "in_flight_bytes": "BIGINT",
                        "writes": "BIGINT", "write_bytes": "BIGINT", "mss": "BIGINT"},
               "stack": [{"ip": "VARCHAR", "symbol": "VARCHAR"}]},
    "receiver": {"address": "VARCHAR", "netns": "BIGINT", "comm": "VARCHAR", "pid": "BIGINT",
                 "pending_ack": {"duration_us": "BIGINT", "reason": "VARCHAR", "release": "VARCHAR",
                                 "limit_us": "BIGINT", "locked": "BOOLEAN"}},
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
    "kind": ("VARCHAR", f"CASE WHEN {FIT} THEN CASE type WHEN 'totals' THEN 'report' ELSE type END END"),
    "time_us": ("BIGINT", "coalesce(epoch_us(time), 0)"),
    "host": ("VARCHAR", "host"),
    "boot_id": ("VARCHAR", "boot_id"),
    "origin": ("UBIGINT", "CASE WHEN host IS NULL THEN 0 ELSE hash(host, coalesce(boot_id, '')) END"),
    "ack_id": ("UBIGINT", "CASE WHEN length(ack_id) = 16 THEN coalesce(TRY_CAST('0x' || ack_id AS UBIGINT), 0) "
               "ELSE 0 END"),
    "number": ("BIGINT", "coalesce(number, CASE WHEN type = 'start' THEN 0 ELSE -1 END)"),
    "complete": ("TINYINT", """CASE
        WHEN type IN ('start', 'streaming') THEN
            CASE WHEN late_acks = 'all' AND holds IN ('all', 'late') THEN 2 WHEN late_acks = 'all' THEN 1 ELSE 0 END
        WHEN type IN ('report', 'totals') THEN CASE WHEN unseen = 0 AND NOT regexp_matches(CAST(dropped AS VARCHAR),
                '"(ring_full|ring_share|hold_map_full|ack_map_full|function_return|late_ack_limit)": *[1-9]')
            AND NOT regexp_matches(coalesce(CAST(detached_hooks AS VARCHAR), ''), '[a-z]') AND standby IS NULL
            AND key_changed IS NULL THEN 1 ELSE 0 END
        ELSE 1 END"""),
    "span_us": ("BIGINT", "span_us"),
    "ack_key": ("VARCHAR", "ack_key"),
    "late_acks": ("VARCHAR", "late_acks"),
    "side": ("VARCHAR", "side"),
    # of a hold, what it is where the other host has a late ACK
    "cause": ("VARCHAR", "CASE WHEN type <> 'hold' THEN cause WHEN sender.hold.reason = 'nagle' "
              "THEN 'nagle_delayed_ack' ELSE 'delayed_ack' END"),
    "reason": ("VARCHAR", "CASE WHEN type <> 'hold' THEN reason WHEN sender.hold.reason <> 'nagle' "
               "THEN sender.hold.reason END"),
    "evidence": ("VARCHAR", "evidence"),
    "pattern": ("VARCHAR", """CASE WHEN type <> 'hold' THEN pattern
        WHEN sender.hold.reason = 'sndbuf' THEN 'full_buffer' WHEN sender.hold.reason = 'cwnd' THEN 'small_cwnd'
        WHEN sender.hold.reason = 'linger' THEN 'lingering_close'
        WHEN sender.hold.in_flight_bytes >= sender.hold.mss OR sender.hold.writes = 1
            AND sender.hold.write_bytes > sender.hold.bytes THEN 'reply_tail'
        WHEN sender.hold.writes > 1 THEN 'several_writes' ELSE 'write_write_read' END"""),
    "duration_us": ("BIGINT", "coalesce(duration_us, 0)"),
    # of a hold an older tracer has not said it: no less than this
    "excess_us": ("BIGINT", "CASE WHEN type = 'hold' THEN greatest(coalesce(excess_us, 0), duration_us - "
                  "coalesce(min_rtt_us, 0)) ELSE excess_us END"),
    "rtt_us": ("BIGINT", "min_rtt_us"),
    "of_hold": ("TINYINT", "CASE WHEN type = 'hold' AND contradicted IS NULL AND sender.hold.reason IN "
                "('nagle', 'msg_more', 'cwnd', 'sndbuf', 'linger') AND sender.hold.release = 'ack' THEN 1 ELSE 0 END"),
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
    "by_timer": ("TINYINT", "CASE WHEN receiver.pending_ack.release <> 'timer' THEN 0 "
                 "WHEN receiver.pending_ack.locked THEN 2 ELSE 1 END"),
    "limit_us": ("BIGINT", "receiver.pending_ack.limit_us"),
    # whose stall it is, for a report that counts them
    "who": ("UBIGINT", "hash(host, side, cause, reason, sender.comm, sender.pid, receiver.comm, receiver.pid)"),
}
#: With the whole lines, what they are written from again. Keys of an end that this version does not know go through.
WHOLE = {"family": ("INTEGER", "family"), "ack_after_hold_us": ("BIGINT", "ack_after_hold_us"),
         "ack_name": ("VARCHAR", "ack_id"), "sender_end": ("VARCHAR", "sender_end"),
         "receiver_end": ("VARCHAR", "receiver_end")}

#: The version of the files that hold these columns: one whose columns were made otherwise is not read.
SHAPE = hashlib.sha256(json.dumps({**COLUMNS, **WHOLE}).encode()).hexdigest()
#: A file of columns begins with it.
MAGIC = b"PAR1"
#: The lines of a group: a group has to fit into memory, with their stacks where whole lines are kept.
GROUP, WHOLE_GROUP = 65_536, 8_192

#: What join.sql begins with; the files of columns follow one another.
RECORDS = """
CREATE TEMP VIEW lines AS
SELECT {columns}, CAST((file_index << 40) + file_row_number AS BIGINT) AS line
FROM read_parquet([{files}], file_row_number=true);
CREATE TEMP TABLE origins AS
SELECT origin, any_value(host) AS host, any_value(boot_id) AS boot_id FROM lines WHERE origin <> 0 GROUP BY origin;
CREATE TEMP VIEW records AS
SELECT source, line, kind, time_us, origin, ack_id, number, complete,
       sender_netns IS NOT NULL AS by_sender, receiver_netns IS NOT NULL AS by_receiver, of_hold,
       coalesce(sender, '') AS sender, coalesce(receiver, '') AS receiver, duration_us, coalesce(rtt_us, 0) AS rtt_us,
       coalesce(pending_us, 0) AS pending_us, coalesce(span_us, 0) AS span_us,
       coalesce(by_timer, 0) AS by_timer,
       evidence, excess_us, who
FROM lines WHERE kind IS NOT NULL
"""

#: How often each stall of the same processes lasted how long, to three digits; and when the last one of each ended.
TALLIES = f"""
CREATE TEMP TABLE tallies AS
SELECT evidence, who, other_who, duration_us // step * step AS rounded_us, count(*) AS stalls,
       sum(excess_us)::BIGINT AS excess_us, max(time_us) AS last_us
FROM (
    SELECT evidence, who, other_who, duration_us, excess_us, time_us,
           CASE {" ".join(f"WHEN duration_us < {10 ** digits} THEN {10 ** (digits - 3)}" for digits in range(3, 18))}
                ELSE {10 ** 15} END AS step
    FROM answers
) AS each
GROUP BY evidence, who, other_who, duration_us // step * step
"""  # noqa: S608

#: The processes that lost most, and the last stall of each.
GROUPS = """
CREATE TEMP TABLE groups AS
SELECT g.*, a.line, a.time_us, a.other_line, a.other_time_us
FROM (
    SELECT evidence, who, other_who, sum(excess_us)::BIGINT AS excess_us, max(last_us) AS last_us,
           list([rounded_us, stalls]) AS durations
    FROM tallies WHERE evidence <> 'contradicted'
    GROUP BY evidence, who, other_who ORDER BY excess_us DESC, who, other_who LIMIT $most
) AS g INNER JOIN answers AS a ON a.evidence = g.evidence AND a.who = g.who AND a.time_us = g.last_us
    AND a.other_who IS NOT DISTINCT FROM g.other_who
QUALIFY row_number() OVER (PARTITION BY g.evidence, g.who, g.other_who ORDER BY a.line) = 1
"""
#: The last stall of each. Its time says where to look for its line.
EXAMPLES = """
CREATE TEMP TABLE examples AS SELECT * FROM lines WHERE time_us IN ({times}) AND line IN ({lines})
"""
SHOWN = """
SELECT g.evidence AS verdict, g.durations, s.kind, s.side, s.cause, s.reason, s.pattern, s.host, o.host AS other_host,
       s.sender, s.sender_netns, s.sender_comm, s.sender_pid, s.held, s.in_flight, s.mss, s.calls,
       coalesce(o.receiver, s.receiver) AS receiver, coalesce(o.receiver_comm, s.receiver_comm) AS receiver_comm,
       coalesce(o.receiver_pid, s.receiver_pid) AS receiver_pid,
       coalesce(o.pending_us, s.pending_us) AS pending_us,
       CASE WHEN o.source IS NULL THEN s.pending_reason ELSE o.pending_reason END AS pending_reason,
       coalesce(o.limit_us, s.limit_us) AS limit_us, s.receiver_netns
FROM groups AS g
INNER JOIN examples AS s ON s.line = g.line
LEFT JOIN examples AS o ON o.line = g.other_line
ORDER BY g.excess_us DESC, g.line
"""


def member(key: str, value: str) -> str:
    """SQL that writes a member of an object, with the comma before it, or nothing where there is no value."""
    return f"""coalesce(',"{key}":' || CAST(to_json({value}) AS VARCHAR), '')"""


def with_host(end: str, host: str) -> str:
    """SQL that writes an end; where both hosts have the stall, with its own."""
    named = f"CAST(json_merge_patch({end}, json_object('host', {host})) AS VARCHAR)"
    return f"CASE WHEN a.other_line IS NOT NULL THEN {named} ELSE {end} END"


def whole_lines() -> str:
    """SQL that writes each answer as a line of JSON, in order of time and with the tracer's own order of keys."""
    seen, dismissed = "a.other_line IS NOT NULL", "a.evidence = 'contradicted'"
    rtt = "coalesce(s.rtt_us, 0)"
    members = [
        # the sender knows what waited, and may have called it no stall; the receiver does not know
        member("cause", f"CASE WHEN NOT {dismissed} THEN s.cause END"),
        member("reason", f"CASE WHEN NOT {dismissed} AND s.cause = 'delayed_ack' THEN s.reason END"),
        member("time", "strftime(make_timestamp(s.time_us), '%Y-%m-%dT%H:%M:%S.%fZ')"),
        member("side", f"CASE WHEN {seen} THEN 'sender' ELSE s.side END"),
        member("evidence", f"CASE WHEN {seen} THEN 'seen' WHEN NOT {dismissed} THEN s.evidence END"),
        member("pattern", "s.pattern"),
        member("duration_us", "s.duration_us"),
        member("excess_us", f"CASE WHEN NOT {dismissed} THEN s.excess_us END"),
        member("min_rtt_us", "s.rtt_us"), member("family", "s.family"), member("ack_id", "s.ack_name"),
        member("host", "s.host"), member("boot_id", "s.boot_id"),
        f"CASE WHEN {dismissed} THEN ',\"contradicted\":true' ELSE '' END",
        f"""',"sender":' || {with_host("s.sender_end", "s.host")}""",
        f"""',"receiver":' || {with_host("coalesce(o.receiver_end, s.receiver_end)", "o.host")}""",
        # the ACK took half a round trip; so no clock of the two hosts is compared
        member("ack_after_hold_us", f"CASE WHEN {seen} AND coalesce(o.by_timer, 0) <> 2 THEN s.duration_us "
               f"- {rtt} // 2 - o.pending_us WHEN NOT {seen} AND NOT {dismissed} THEN s.ack_after_hold_us END")]
    return ("SELECT '{\"type\":\"' || CASE WHEN a.evidence = 'contradicted' THEN 'hold' ELSE 'stall' END || '\"' || "  # noqa: S608
            + " || ".join(members) + " || '}' AS line FROM answers AS a INNER JOIN lines AS s ON s.line = a.line "
            "LEFT JOIN lines AS o ON o.line = a.other_line ORDER BY a.time_us, a.line")


class Clock(NamedTuple):
    """How far the one's clock is ahead of the other's, and the number of ACKs that say so."""

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
                             "sudo pip install duckdb (Debian: with --break-system-packages)") from error
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
    read = {**LINE, **(WHOLE_LINE if whole else {}),
            **{end: "JSON" if whole else shape(kind) for end, kind in ENDS.items()}}
    wanted = ", ".join(f"'{name}': '{kind}'" for name, kind in read.items())
    ends = ""
    if whole:
        parts = ", ".join(f"json_transform({end}, '{json.dumps(kind)}') AS {end}" for end, kind in ENDS.items())
        texts = ", ".join(f"CAST({end} AS VARCHAR) AS {end}_end" for end in ENDS)
        ends = f" REPLACE ({parts}), {texts}"
    values = ", ".join(f"CAST({value} AS {kind}) AS {name}" for name, (kind, value) in columns.items())
    return (f"COPY (SELECT {values} FROM (SELECT *{ends} FROM read_json($files, "  # noqa: S608
            f"filename=true, format='newline_delimited', ignore_errors=true, maximum_object_size={MAX_LINE}, "
            f"columns={{{wanted}}})) AS read WHERE type IS NULL OR type IN ({', '.join(map(repr, KINDS))})) "
            "TO $columns "
            f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {WHOLE_GROUP if whole else GROUP}, "
            f"KV_METADATA {{nagletrace_join: '{SHAPE if whole else ''}'}})")


def quoted(name: str) -> str:
    return "'" + literal(name).replace("'", "''") + "'"


class Engine:
    """Joins recordings. Close it, or its files stay. `whole`: whole lines are wanted in the end, not sums.

    `memory` is what DuckDB may use, as '1GB'; `threads` 0: as many as there are CPUs.
    """

    def __init__(self, memory: str, threads: int = 0, whole: bool = False) -> None:
        self.module: Any = need_duckdb()
        self.whole = whole
        try:
            self.room = tempfile.TemporaryDirectory(prefix="nagletrace-join-")
        except OSError as error:
            raise RecordingError(f"$TMPDIR: {error.strerror or error}; name a directory that has room") from error
        settings: dict[str, Any] = {"memory_limit": memory, "temp_directory": self.room.name,
                                    "autoinstall_known_extensions": False, "autoload_known_extensions": False}
        if threads:
            settings["threads"] = threads
        with self._explained():
            self.database: duckdb.DuckDBPyConnection = self.module.connect(":memory:", config=settings)

    def load(self, *names: str, save: str | None = None) -> None:
        """Reads recordings, once, several of them at a time; and files of columns that an earlier load() has saved.
        `save`: a path for such a file of these recordings, which stays."""
        files = [name for name in names if has_columns(name)]
        for name in files:
            self._check_columns(name)
        recordings = [name for name in names if name not in files]
        if recordings:
            files.append(save or str(Path(self.room.name) / "lines.parquet"))
            self._read(recordings, files[-1], self.whole or save is not None)
        # files of the same name may have been saved in several
        columns = ["xor(source, file_index) AS source", *list({**COLUMNS, **(WHOLE if self.whole else {})})[1:]]
        for statement in RECORDS.split(";"):
            self._run(statement.format(columns=", ".join(columns), files=", ".join(map(quoted, files))))

    def _read(self, recordings: list[str], columns: str, whole: bool) -> None:
        statement = load_statement(whole)

        def read(files: list[str], name: str) -> None:
            self._run(statement, {"files": [literal(file) for file in files], "columns": columns}, name,
                      "give what `nagletrace -o json` wrote")

        try:
            read(recordings, recordings[0] if len(recordings) == 1 else "one of the recordings")
        except RecordingError as error:
            # nobody reads stdin twice, or a pipe
            if error.code == 2 and len(recordings) > 1 and not any(name == "-" or is_fifo(name) for name in recordings):
                for name in recordings:  # one after the other, to know which of them it is
                    read([name], name)
            raise

    def _check_columns(self, name: str) -> None:
        found = self._run("SELECT decode(value) FROM parquet_kv_metadata($name) WHERE key = 'nagletrace_join'",
                          {"name": literal(name)}, name, "make it anew with --save")
        if found != [(SHAPE,)]:
            raise RecordingError(f"{name}: this nagletrace-join did not make it; make it anew with --save", 2)

    def join(self, window_us: int) -> None:
        for statement in steps():
            self._run(statement.replace("$window", str(window_us)))

    def _run(self, statement: str, values: dict[str, Any] | None = None, name: str = "", remedy: str = "") -> list[Any]:
        """Returns all rows. Raises RecordingError."""
        with self._explained(name, remedy):
            rows: list[Any] = self.database.execute(statement, values).fetchall()
        return rows

    @contextlib.contextmanager
    def _explained(self, name: str = "", remedy: str = "") -> Iterator[None]:
        """Raises RecordingError for an error of DuckDB, about the file of this name unless memory or disk ended."""
        try:
            yield
        except (self.module.Error, RuntimeError) as error:
            said = " ".join(str(error).split())
            if "interrupted" in said.lower():  # by a signal, whose KeyboardInterrupt DuckDB drops
                raise KeyboardInterrupt from error
            full = re.search(r'Could not write.*?(?=","|$)|.*max_temp_directory_size', said)
            said = (full[0].replace('\\"', '"') if full else said)[:160]
            if full:
                place = "--save" if said.startswith("Could") and self.room.name not in str(error) else "$TMPDIR"
                raise RecordingError(f"DuckDB has no room: {said}; name another place with {place}") from error
            if name and not isinstance(error, self.module.OutOfMemoryException):
                raise RecordingError(f"{name}: cannot read it: {said}; {remedy}", 2) from error
            raise RecordingError(f"DuckDB cannot join the records: {said}; give it more memory with "
                                 "--memory") from error

    def clocks(self) -> list[Clock]:
        """Of each two hosts, whichever of them sent."""
        rows = self._run("""
            SELECT a.host, b.host, sum(acks)::BIGINT AS common,
                   round(sum(acks * CASE WHEN a.origin = s_origin THEN ahead_us ELSE -ahead_us END) / sum(acks))::BIGINT
            FROM (SELECT *, (SELECT host FROM origins WHERE origin = s_origin)
                         <= (SELECT host FROM origins WHERE origin = r_origin) AS ordered FROM clocks) AS k
            INNER JOIN origins AS a ON a.origin = CASE WHEN ordered THEN s_origin ELSE r_origin END
            INNER JOIN origins AS b ON b.origin = CASE WHEN ordered THEN r_origin ELSE s_origin END
            GROUP BY a.origin, a.host, b.origin, b.host ORDER BY common DESC, a.host, b.host""")
        return [Clock(*row) for row in rows]

    def counts(self) -> Counts:
        [row] = self._run(
            "SELECT count(*), count(*) FILTER (kind IS NULL), count(DISTINCT ack_key), "
            "count(*) FILTER (ack_id <> 0), "
            "count(*) FILTER (ack_id = 0 AND kind = 'stall' AND cause <> 'cork_ceiling'), "
            "count(*) FILTER (kind IN ('start', 'streaming') AND late_acks IS NULL) FROM lines")
        return Counts(*row)

    def sources(self, names: list[str]) -> list[str]:
        """Which of these recordings have lines that may be records."""
        given = {"/dev/stdin" if name == "-" else name: name for name in names}
        rows = self._run("SELECT name FROM (SELECT unnest($names) AS name) WHERE hash(name) IN "
                         "(SELECT xor(source, CAST(line >> 40 AS UBIGINT)) FROM lines)", {"names": list(given)})
        found = {name for [name] in rows}
        return [given[name] for name in given if name in found]

    def hosts(self) -> int:
        [[hosts]] = self._run("SELECT count(DISTINCT host) FROM origins")
        return int(hosts)

    def tally(self) -> dict[str, Totals]:
        """Sums the answers up, by verdict; groups() has more of them."""
        self._run(TALLIES)
        rows = self._run("SELECT evidence, sum(stalls)::BIGINT, coalesce(sum(excess_us), 0)::BIGINT "
                         "FROM tallies GROUP BY evidence")
        return {verdict: Totals(stalls, excess_us) for verdict, stalls, excess_us in rows}

    def groups(self, most: int) -> list[dict[str, Any]]:
        """The processes that lost most."""
        self._run(GROUPS, {"most": most})
        found = self._run("SELECT unnest([line, other_line]), unnest([time_us, other_time_us]) FROM groups")
        lines, times = (", ".join({str(one[i]) for one in found if one[0] is not None}) or "NULL" for i in (0, 1))
        self._run(EXAMPLES.format(lines=lines, times=times))
        with self._explained():
            cursor = self.database.execute(SHOWN)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row)) for row in cursor.fetchall()]

    def answers(self) -> Iterator[str]:
        """The answers, in order of time: a line of JSON each."""
        with self._explained():
            cursor = self.database.execute(whole_lines())
            while rows := cursor.fetchmany(ROWS):
                yield "".join([line + "\n" for [line] in rows])

    def close(self) -> None:
        self.database.close()
        self.room.cleanup()


def is_fifo(name: str) -> bool:
    """Is it a pipe, whose writer a look would end? Who opens it says what else is wrong with the name."""
    try:
        return Path(name).is_fifo()
    except (OSError, ValueError):
        return False


def has_columns(name: str) -> bool:
    """Is it such a file as load() saves?"""
    if name == "-" or not Path(name).is_file():
        return False
    with Path(name).open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def literal(name: str) -> str:
    """A file's name in which DuckDB finds no pattern: it would read others besides."""
    if name == "-":
        return "/dev/stdin"
    return re.sub(r"([*?\[])", r"[\1]", name)
