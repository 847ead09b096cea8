#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Writes docs/experiments.md: each published experiment beside what the lab measured here and what the tracer said.

Run by `make experiments`, as root. Every figure on the page but the published ones comes from the run that wrote it.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / place) for place in ("live", "witness")]
from witnesses import Run, wire, witness  # noqa: E402

VETH = ("--over", "veth")


@dataclass(frozen=True)
class Experiment:
    scenario: str
    options: tuple[str, ...]
    published: str


EXPERIMENTS = [
    Experiment("echo", VETH, "0.686 s for ten rounds, read as Nagle's doing"),
    Experiment("echo", (*VETH, "--nodelay"), "0.179 s for ten rounds"),
    Experiment("echo-64k", VETH, "1024 of 65536 bytes answered"),
    Experiment("write-write-read", VETH, "8, 40, 40, 40, 39, 40 … ms"),
    Experiment("write-write-read", (*VETH, "--nodelay"), "0 to 1 ms"),
    Experiment("write-write-read", (*VETH, "--coalesce"), "0 to 1 ms"),
    Experiment("header-body", VETH, "40.6 to 40.9 ms from round 2 on"),
    Experiment("header-body", (*VETH, "--quickack"), "no delay"),
    Experiment("header-body", (*VETH, "--nodelay"), "no delay"),
    Experiment("header-body", (*VETH, "--writev"), "no delay"),
    Experiment("header-body", (*VETH, "--no-reply"), "no delayed ACK"),
    Experiment("header-body", (*VETH, "--one-part"), "no delay"),
    Experiment("header-body", (*VETH, "--sizes", "1448,1448,1448"), "no delay"),
    Experiment("header-body", (*VETH, "--quickack-route"), "no delay"),
    *(Experiment("length-data", (*VETH, "--rounds", "5", "--size", str(size)),
                 "slow for small N, fast at 3000 (4.3BSD)")
      for size in range(100, 3000, 100)),
    Experiment("length-data", (*VETH, "--nodelay"), "fast"),
    Experiment("length-data", (*VETH, "--writev"), "fast"),
    Experiment("length-data", (*VETH, "--agreed-length"), "fast"),
    *(Experiment("length-data", (*VETH, "--size", "1000", "--parts", str(parts)), "faster as P grows")
      for parts in (2, 5, 10, 50)),
]

CHUNK_OPTIONS = {
    "default": (),
    "CORK": ("--cork",),
    "NODELAY": ("--nodelay",),
    "NODELAY + MSG_MORE": ("--nodelay", "--msg-more"),
}


def milliseconds(microseconds: float) -> str:
    return f"{microseconds / 1000:.1f}"


def measured(run: Run) -> str:
    """The application's clock: every round where they are few, else first, median and last."""
    latencies = [r["latency_us"] for r in run.result["rounds"]]
    if len(latencies) <= 10:
        return " ".join(milliseconds(us) for us in latencies)
    return f"first {milliseconds(latencies[0])}, median {milliseconds(statistics.median(latencies))}"


def said(run: Run) -> str:
    """The tracer's verdict: stalls by cause and evidence, else what it looked at."""
    totals = run.closing["totals"]
    holds = ", ".join(f"{count} {reason}" for reason, count in totals["holds"].items() if count)
    beside = f"holds: {holds or 'none'}; delayed ACKs: {totals['delayed_acks']['timer'] or 'none'}"
    if not run.records:
        return f"no stall ({beside})"
    kinds = Counter((r["cause"], r["evidence"], r["sender"].get("hold", {}).get("release", "-")) for r in run.records)
    median = statistics.median(r["duration_us"] for r in run.records)
    told = "; ".join(f"{count} {cause}, {evidence}, release {release}"
                     for (cause, evidence, release), count in kinds.items())
    return f"{told}; median {milliseconds(median)} ms ({beside})"


def row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def command(scenario: str, options: tuple[str, ...]) -> str:
    return f"`{' '.join((scenario, *options))}`"


def experiments() -> Iterator[str]:
    yield row("experiment", "published", "measured here, ms a round", "stalls on the wire", "what nagletrace said")
    yield row(*["---"] * 5)
    for e in EXPERIMENTS:
        run = witness(e.scenario, *e.options)
        yield row(command(e.scenario, e.options), e.published, measured(run), run.score.wire, said(run))


def chunks() -> Iterator[str]:
    yield row("K", "options", "ms for ten rounds", "segments", "data segments", "bytes on the wire",
              "stalls on the wire", "what nagletrace said")
    yield row(*["---"] * 8)
    for parts in (1, 10, 100, 1000):
        for name, options in CHUNK_OPTIONS.items():
            run = witness("chunks", *VETH, "--parts", str(parts), *options)
            pairs = wire.connections(run.played.at_client)
            traffic = [wire.traffic(run.played.at_client, *ends) for c, s in pairs for ends in ((c, s), (s, c))]
            yield row(parts, name, milliseconds(sum(r["latency_us"] for r in run.result["rounds"])),
                      sum(t.segments for t in traffic), sum(t.data_segments for t in traffic),
                      sum(t.wire_bytes for t in traffic), run.score.wire, said(run))


PAGE = """\
# The experiments that the project grew from

`make experiments` wrote this page on {kernel}; every figure but the published ones is of that run.
`nagle-lab` plays both ends over a veth pair (MTU 1500, MSS 1448), tcpdump captures, and nagletrace traces.
`tests/witness`, which shares no code with the tracer, counts the *stalls on the wire*: a small segment that left right
after an ACK that the receiver had delayed for 30 ms or more. A delayed-ACK timer of 40 ms rounds up to the next jiffy:
44 ms at HZ=250.

## Stalls and their fixes

{experiments}

The publication blames Nagle's algorithm for the slow `echo`. That is wrong: one write a round leaves nothing in flight
that could hold another back. `length-data` stalls for every N below one MSS on Linux, not below 3000.

## 1024 bytes in K writes each way, ten rounds

The publication found that NODELAY is fast but at K = 1000 sends about 15 times the bytes, that CORK is slowest, and
that NODELAY with MSG_MORE is best at both.

{chunks}
"""


def main() -> int:
    if os.geteuid():
        print("experiments: needs root, for namespaces and BPF: run `make experiments`", file=sys.stderr)
        return 1
    uname = platform.uname()
    page = PAGE.format(kernel=f"{uname.system} {uname.release}", experiments="\n".join(experiments()),
                       chunks="\n".join(chunks()))
    path = ROOT / "docs" / "experiments.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text(page)
    print(f"experiments: wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
