#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""How long nagletrace-join takes, and how much memory, by how much is recorded: writes the table in docs/fleets.md.

join.py [MILLIONS …], by default 1, 3, 10, 30 and 100: 20 minutes. Ten hosts have recorded an hour, each in a file: five
have stalls, each of the others has the late ACKs of one of the five, and one in twenty has no partner. Every record has
the keys of a real one (tests/unit/joinable.jsonl). The command runs as a user runs it, so that its start and its report
count too. Each host's recording is saved (--save), and what is saved is joined; the recordings themselves up to 10
million, beyond which they are removed one by one. Files lie below $TMPDIR: 0.6 GB for each million up to 10; of 100, 10
GB.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from tools import tools  # noqa: E402

PAGE = ROOT / "docs" / "fleets.md"
BEGIN, END = "<!-- make bench-join writes this -->\n", "<!-- until here -->\n"
#: Of --memory: its default, and of more than so many millions.
MEMORY, FITTING_MILLIONS, MORE_MEMORY = "750MB", 30, "2GB"
HOSTS = 10
#: Up to so many millions the recordings are joined too.
KEPT_MILLIONS = 10

START = ('{{"type":"start","schema":1,"time":"2026-11-18T11:06:39.000000Z","host":"host{host}","boot_id":'
         '"f6cc27e1-6ebd-45f6-9934-{host:012}","ack_key":"0011223344556677","late_acks":"all"}}')
REPORT = ('{{"type":"report","time":"2026-11-18T12:06:41.000000Z","closing":true,"number":{records},'
          '"span_us":3602000000,"unseen":0,'
          '"dropped":{{"ring_full":0,"ring_share":0,"ack_map_full":0,"function_return":0}}}}')
#: In the manner of DuckDB's format(): the time, and what SENT or DELAYED names.
NAMED = ('"family":4,"ack_id":"{{:016x}}","host":"host{host}","boot_id":"f6cc27e1-6ebd-45f6-9934-{host:012}",'
         '"number":{{}}')
OPTIONS = '"options":{{{{"nodelay":false,"cork":false,"pingpong":true,"quickack":false}}}}'
SENT = ('{{{{"type":"stall","cause":"nagle_delayed_ack","time":"{{}}","side":"sender","evidence":"inferred",'
        '"pattern":"write_write_read","duration_us":{{}},"excess_us":{{}},"min_rtt_us":35,' + NAMED
        + ',"sender":{{{{"address":"10.0.0.{host}:{{}}","netns":4026531840,"pid":{{}},"tid":4243,"comm":"java",'
        '"cgroup":"/system.slice/app.service",' + OPTIONS + ',"hold":{{{{"reason":"nagle","release":"ack","bytes":7,'
        '"in_flight_bytes":6,"writes":1,"mss":1448}}}}}}}},"receiver":{{{{"address":"203.0.113.1:8000"}}}}}}}}')
DELAYED = ('{{{{"type":"late_ack","time":"{{}}",' + NAMED + ',"sender":{{{{"address":"10.2.0.254:{{}}"}}}},"receiver":'
           '{{{{"address":"10.0.1.{host}:8000","netns":4026531840,"pid":{{}},"comm":"nginx",'
           '"cgroup":"/system.slice/nginx.service",' + OPTIONS + ',"pending_ack":{{{{"duration_us":{{}},'
           '"reason":"pingpong","release":"timer","limit_us":200000,"bytes":6}}}}}}}}}}}}')
WHEN = ("strftime(make_timestamp((1795000000000000 + i * 3600000000 // {records} - {before})::BIGINT), "
        "'%Y-%m-%dT%H:%M:%S.%fZ')")


def values(host: int) -> tuple[str, str]:
    """The format of a record of that host, and its values. A sender's partner is the next host."""
    port = f"hash(i + {host // 2}) % 600"
    if host % 2 == 0:
        return SENT, f"40000 + i % 997, 39965 + i % 997, hash(i * {HOSTS} + {host}), i, {port}, 1000 + i % 7"
    ack = f"hash((CASE WHEN i % 20 = 1 THEN -i ELSE i END) * {HOSTS} + {host - 1})"
    return DELAYED, f"{ack}, i, {port}, 2000 + i % 5, 39900 + i % 887"


def record(path: Path, host: int, records: int) -> None:
    import duckdb
    line, of = values(host)
    when = WHEN.format(records=records, before=host % 2 * 200)
    duckdb.execute(
        f"COPY (SELECT CASE WHEN i = 0 THEN '{START.format(host=host)}' "  # noqa: S608
        f"WHEN i = {records + 1} THEN '{REPORT.format(records=records)}' "
        f"ELSE format('{line.format(host=host)}', {when}, {of}) END FROM range({records + 2}) AS made(i)) "
        f"TO '{path}' (FORMAT csv, HEADER false, QUOTE '', ESCAPE '', DELIM '\x01')")


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float
    memory_mb: int
    files_mb: int


class Files(threading.Thread):
    """Looks again and again how much lies in a directory."""

    def __init__(self, room: Path) -> None:
        super().__init__(daemon=True)
        self.room, self.most, self.over = room, 0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.2):
            sizes = 0
            for path in self.room.rglob("*"):
                try:
                    sizes += path.stat().st_blocks * 512
                except OSError:
                    continue  # it is gone by now
            self.most = max(self.most, sizes)


def run(options: list[object], room: Path, memory: str = MEMORY) -> tuple[Cost, str]:
    """The command with these options, and what it wrote."""
    room.mkdir()
    watch = Files(room)
    watch.start()
    began = time.monotonic()
    with (room.parent / "output").open("w+") as output:
        process = subprocess.Popen([tools() / "python3", "-m", "nagletrace_exporters.join.main", "--memory", memory,
                                    *map(str, options)], cwd=ROOT / "exporters", stdout=output,
                                   env={**os.environ, "TMPDIR": str(room)})
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - began
        watch.over.set()
        watch.join()
        assert status == 0
        output.seek(0)
        said = output.read(1000)
    room.rmdir()
    return Cost(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss >> 10, watch.most >> 20), " ".join(said.split())


def summed(costs: list[Cost]) -> Cost:
    """Of commands that ran one after the other."""
    return Cost(sum(one.wall_s for one in costs), sum(one.cpu_s for one in costs),
                max(one.memory_mb for one in costs), max(one.files_mb for one in costs))


def check(said: str, millions: int) -> None:
    """All that have a partner are seen, and nobody is a witness for less than all of the hour."""
    stalls = millions * 1_000_000 // 2
    assert f"seen {stalls * 19 // 20:,} at both ends" in said, said
    inferred, dismissed = (int(re.search(rf"{word} ([\d,]+)", said)[1].replace(",", ""))  # type: ignore[index]
                           for word in ("inferred", "dismissed"))
    assert inferred + dismissed == stalls // 20 and dismissed > inferred, said


class Bench:
    def __init__(self) -> None:
        self.table = ["| recorded | what is done | time | CPU time | memory | files |", "|---|---|---|---|---|---|"]
        print("\n".join(self.table), flush=True)

    def tell(self, millions: int, megabytes: int, what: str, cost: Cost) -> None:
        self.table.append(f"| {millions} M, {megabytes:,} MB | {what} | {cost.wall_s:.0f} s | {cost.cpu_s:.0f} s | "
                          f"{cost.memory_mb:,} MB | {cost.files_mb:,} MB |")
        print(self.table[-1], flush=True)

    def size(self, millions: int, with_json: bool) -> None:
        with tempfile.TemporaryDirectory(prefix="nagletrace-bench-") as place:
            room = Path(place) / "room"
            kept_all = millions <= KEPT_MILLIONS
            files = [Path(place) / f"host{host}.jsonl" for host in range(HOSTS)]
            saved, costs, size = [path.with_suffix(".columns") for path in files], [], 0
            for host, path in enumerate(files):
                # each in a process of its own: DuckDB keeps memory
                subprocess.run([tools() / "python3", __file__, "record", path, str(host),
                                str(millions * 1_000_000 // HOSTS)], check=True)
                size += path.stat().st_size
                costs.append(run([path, "--save", saved[host], "-o", os.devnull], room)[0])
                if not kept_all:
                    path.unlink()
            if kept_all:
                cost, said = run([*files], room)
                check(said, millions)
                self.tell(millions, size // 1_000_000, "the recordings are joined", cost)
                if with_json:
                    cost, _ = run([*files, "--output", "json"], room)
                    self.tell(millions, size // 1_000_000, "the same, `--output json`", cost)
            megabytes = sum(path.stat().st_size for path in saved) // 1_000_000
            self.tell(millions, size // 1_000_000, f"`--save`, for each host: {megabytes:,} MB in all", summed(costs))
            memory = MEMORY if millions <= FITTING_MILLIONS else MORE_MEMORY
            cost, said = run([*saved], room, memory)
            check(said, millions)
            with_more = f", `--memory {memory}`" if memory != MEMORY else ""
            self.tell(millions, size // 1_000_000, f"what is saved is joined{with_more}", cost)

    def bound(self) -> str:
        """How fast DuckDB reads JSON here, whatever is done with it then."""
        with tempfile.TemporaryDirectory(prefix="nagletrace-bench-") as place:
            path = Path(place) / "host0.jsonl"
            subprocess.run([tools() / "python3", __file__, "record", path, "0", "500000"], check=True)
            rates = [path.stat().st_size / 1e6 / float(subprocess.check_output(
                [tools() / "python3", __file__, "read", path, how])) for how in ("lines", "values")]
        return (f"In a second of CPU, DuckDB's reader finds the lines of {rates[0]:.0f} MB of JSON, and reads the "
                f"values that are needed of {rates[1]:.0f} MB.")


def read(path: str, how: str) -> float:
    """Has DuckDB read a recording and keep nothing of it; the CPU time in seconds, the least of three."""
    import duckdb
    sys.path.insert(0, str(ROOT / "exporters"))
    from nagletrace_exporters.join.engine import ENDS, LINE, shape
    wanted = LINE | {end: shape(of) for end, of in ENDS.items()}
    columns = ", ".join(f"'{name}': '{of}'" for name, of in wanted.items())
    statement = {"lines": "SELECT count(*) FROM read_ndjson_objects($1)",
                 "values": "SELECT " + ", ".join(f"count({name})" for name in wanted)
                 + f" FROM read_json($1, format='newline_delimited', columns={{{columns}}})"}[how]
    least = float("inf")
    for _ in range(3):
        began = time.process_time()
        duckdb.execute(statement, [path]).fetchall()
        least = min(least, time.process_time() - began)
    return least


def main() -> int:
    if sys.argv[1:2] == ["record"]:
        record(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
        return 0
    if sys.argv[1:2] == ["read"]:
        print(read(sys.argv[2], sys.argv[3]))
        return 0
    sizes = [int(word) for word in sys.argv[1:]] or [1, 3, 10, 30, 100]
    bench = Bench()
    load = os.getloadavg()[1]
    for millions in sizes:
        bench.size(millions, millions == sizes[0])
    bound = bench.bound()
    load = (load + os.getloadavg()[1]) / 2
    bench.table += ["", bound, "", f"On {os.cpu_count()} CPUs, beside other programs if the load is above 2: it was "
                    f"{load:.1f}. `--memory {MEMORY}`, where nothing else is said."]
    text = PAGE.read_text()
    pattern = re.escape(BEGIN) + ".*?" + re.escape(END)
    assert re.search(pattern, text, re.S), f"{PAGE} has no place for the table"
    PAGE.write_text(re.sub(pattern, lambda _: BEGIN + "\n" + "\n".join(bench.table) + "\n\n" + END, text, flags=re.S))
    return 0


if __name__ == "__main__":
    sys.exit(main())
