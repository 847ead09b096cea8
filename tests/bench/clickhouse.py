#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What the store of dashboards/clickhouse takes: bytes a record on disk, and the time to load and to join an hour: the
table in docs/fleets.md.

clickhouse.py [RECORDS], by default 1000000, of 1,000 hosts within an hour: half are a sender's stalls, half a
receiver's late ACKs, and 95 % have a partner. Ports, delays and round trips differ from record to record; each host has
twenty containers, of which the first stall most. It runs ClickHouse's engine, which tests/tools.py installs.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "clickhouse")]

from store import Store  # noqa: E402

PART = 250_000

MADE = """
SELECT number AS i, i % 2 = 0 AS sends, if(i % 40 = 1, i + {records}, intDiv(i, 2)) AS ack, sipHash64(ack) AS chance,
       toStartOfHour(now('UTC')) - 3600 + ack % 3600 AS second, chance % 1000000 AS us,
       toUInt32(1000 * pow(sipHash64(ack, sends) % 100000 / 100000, 2)) AS host,
       toUInt32(20 * pow(sipHash64(ack, sends, 1) % 100000 / 100000, 2)) AS container,
       50 + sipHash64(ack, 2) % 2000 AS rtt, 40000 + sipHash64(ack, 3) % 4000 AS pending, pending + rtt AS duration,
       20000 + container AS pid, 32768 + sipHash64(ack, 4) % 28000 AS port,
       arrayElement(['java', 'nginx', 'python3', 'node', 'redis-server', 'envoy', 'postgres', 'app'], 1 + container % 8)
           AS comm,
       if({containers}, concat(',"container_id":"', lower(hex(sipHash128(host, container))),
                               lower(hex(sipHash128(container, host))), '","pod_uid":"',
                               toString(reinterpretAsUUID(sipHash128(host, container, 1))), '"'), '') AS of_container,
       '"options":{{"nodelay":false,"cork":false,"pingpong":true,"quickack":false}}' AS options,
       concat('","time":"',
              formatDateTime(toDateTime64(second, 6) + toIntervalMicrosecond(us), '%Y-%m-%dT%H:%i:%S.%fZ', 'UTC'),
              '","family":4,"ack_id":"', lower(leftPad(hex(chance), 16, '0')), '","host":"node-', toString(host),
              '","boot_id":"', toString(reinterpretAsUUID(sipHash128(host))), '","number":', toString(i)) AS head
FROM numbers({begin}, {part})
"""

LINES = """
INSERT INTO FUNCTION file('{path}', 'LineAsString', 'line String') SELECT concat(
    '{{"type":"', if(sends, 'stall', 'late_ack'), head,
    if(sends, concat(',"cause":"nagle_delayed_ack","side":"sender","evidence":"inferred","pattern":"write_write_read",',
                     '"duration_us":', toString(duration), ',"excess_us":', toString(pending), ',"min_rtt_us":',
                     toString(rtt)), ''),
    ',"sender":{{"address":"10.', toString(intDiv(host, 250)), '.', toString(host % 250), '.7:', toString(port), '"',
    if(sends, concat(',"netns":', toString(4026531840 + container), ',"pid":', toString(pid), ',"tid":', toString(pid),
                     ',"comm":"', comm, '"', of_container, ',', options, ',"hold":{{"reason":"nagle","release":"ack",',
                     '"bytes":', toString(chance % 500), ',"in_flight_bytes":', toString(chance % 700),
                     ',"writes":1,"mss":1448}}'), ''),
    '}},"receiver":{{"address":"10.96.', toString(container), '.1:8080"',
    if(sends, '', concat(',"netns":', toString(4026531840 + container), ',"pid":', toString(pid), ',"comm":"', comm,
                         '"', of_container, ',', options, ',"pending_ack":{{"duration_us":', toString(pending),
                         ',"reason":"pingpong","release":"timer","limit_us":200000,"bytes":', toString(chance % 700),
                         '}}')), '}}}}') AS line FROM ({made})
"""


@dataclass
class Measured:
    records: int
    containers: bool
    #: bytes each
    line: float
    record: float
    row: float
    #: seconds, and seconds of CPU time
    load: tuple[float, float]
    meet: tuple[float, float]
    dismiss: tuple[float, float]
    ask: tuple[float, float]
    seen: int

    def words(self) -> str:
        times = " | ".join(f"{one[0]:.1f} s, {one[1]:.1f} s" for one in (self.load, self.meet, self.dismiss, self.ask))
        return (f"| {self.records:,} {'with' if self.containers else 'without'} containers | {self.line:.0f} | "
                f"{self.record:.0f} | {self.row:.0f} | {times} |")


def size(store: Store, table: str) -> float:
    """Bytes a row."""
    store.run(f"OPTIMIZE TABLE nagletrace.{table} FINAL")
    [row] = store.rows("SELECT sum(rows) AS n, sum(bytes_on_disk) AS bytes FROM system.parts "
                       f"WHERE database = 'nagletrace' AND table = '{table}' AND active")
    return int(row["bytes"]) / int(row["n"])


def timed(what: Callable[..., object], *arguments: object) -> tuple[float, float]:
    began, busy = time.monotonic(), time.process_time()
    what(*arguments)
    return time.monotonic() - began, time.process_time() - busy


def measure(store: Store, room: Path, records: int, containers: bool) -> Measured:
    """Into empty tables."""
    written, load = 0, (0.0, 0.0)
    for begin in range(0, records, PART):
        path = room / f"{begin}.jsonl"
        made = MADE.format(records=records, begin=begin, part=min(PART, records - begin), containers=int(containers))
        store.run(LINES.format(path=path, made=made))
        written += path.stat().st_size
        wall, busy = timed(store.insert, path)
        load = load[0] + wall, load[1] + busy
        path.unlink()
    record = size(store, "records")
    meet, dismiss = timed(store.refresh, "meet"), timed(store.refresh, "dismiss")
    row = size(store, "joined")
    ask = timed(store.rows, "SELECT sender_host, sender.comm, sum(excess_us) FROM nagletrace.stalls GROUP BY ALL")
    [seen] = store.rows("SELECT count() AS n FROM nagletrace.stalls WHERE verdict = 'seen'")
    return Measured(records, containers, written / records, record, row, load, meet, dismiss, ask, int(seen["n"]))


def main() -> int:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    print(f"{os.cpu_count()} CPUs\n\n| records | a line | a record | a row of `joined` | loaded | met | dismissed | "
          "a query |\n|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="nagletrace-bench-") as place:
        store = Store(Path(place) / "store")
        store.create("REFRESH EVERY 1 YEAR")
        for containers in (False, True):
            store.empty()
            print(measure(store, Path(place), records, containers).words(), flush=True)
        store.close()
    print(f"\nThe process took at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024:,} MB.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
