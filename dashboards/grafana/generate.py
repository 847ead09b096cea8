#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Writes the Grafana dashboards: `generate.py DIRECTORY` makes DIRECTORY/nagletrace*.json.

A panel is a call in the function of its dashboard; pieces.py has the kinds of panels and what several dashboards show.
Counters are looked at under rate or increase only.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pieces import (
    BY_PROCESS,
    COMM,
    DROPPED,
    NO_PODS,
    RECORDS,
    SELECTOR,
    STALLS,
    WRITES,
    Row,
    by_cgroup,
    by_evidence,
    by_pod,
    by_reason,
    delayed_acks,
    heat_map,
    holds,
    lines,
    link_to,
    make,
    marks,
    number,
    quantile,
    query,
    rate,
    rows,
    stalls_by,
    state,
    variable,
    words,
)

OVERVIEW, FLEET, CONNECTION = "nagletrace", "nagletrace-fleet", "nagletrace-connection"

HOST = "cluster, job, instance"

# ---- the overview: is there something, of whom, and of which kind ----


def overview() -> list[Row]:
    daemons, dropped, hooks, unseen = state()
    return [
        ("Overview", [
            number("Loses most now", "Who loses most time on one host, as a share of the time that passes: "
                   "4 % is one user waiting 40 ms each second. From 25 % on there is an alert.", "percentunit",
                   f"topk(1, {rate('nagletrace_stall_excess_seconds_total', f'{HOST}, comm', BY_PROCESS)} > 0)",
                   ("orange", 0.04), ("red", 0.25), span=8, instant=True, name="{{comm}} on {{instance}}"),
            number("Lost time now", "Of all hosts and processes chosen: what stalls lasted beyond the way of a prompt "
                   "ACK. Several connections can lose time at once, so it may exceed 100 %.", "percentunit",
                   rate("nagletrace_stall_excess_seconds_total", selector=BY_PROCESS) + " or vector(0)", span=4),
            number("Stalls per second now", "Of all hosts and processes chosen, whichever the cause.", STALLS,
                   rate("nagletrace_stalls_total", selector=BY_PROCESS) + " or vector(0)", span=4),
            number("Hosts watched", "Daemons that answer.", "short", f"sum(nagletrace_up{{{SELECTOR}}}) or vector(0)",
                   span=4),
            number("Records dropped now", "Stalls by process are too low while this is not zero; totals may be too. "
                   "recursion is not in it: NagletraceDroppedRecords fires where that is more than rare.", RECORDS,
                   rate("nagletrace_dropped_records_total", selector=f"{SELECTOR}, {DROPPED}") + " or vector(0)",
                   ("red", 0.001), span=4),
        ]),
        ("Who loses time", [
            rows("Top offenders", "Who lost most time in the range shown. A click on the process leads to its "
                 "connections.",
                 [("excess", "s", f"topk(20, sum by (cluster, instance, comm, cause, reason) (increase("
                   f"nagletrace_stall_excess_seconds_total{{{BY_PROCESS}}}[$__range])) > 0)")],
                 link=("comm", "Its connections",
                       link_to(CONNECTION, instance="instance", comm="comm"))),
            lines("Lost time by process", "What a fix would save, as a share of the time that passed. Where the "
                  "fleet's stalls are in ClickHouse, lost-time.sql of dashboards/clickhouse/queries names both hosts, "
                  "processes and pods.", "percentunit",
                  query(rate("nagletrace_stall_excess_seconds_total", "comm", BY_PROCESS), "{{comm}}"), stacked=True),
            lines("Stalls per second by process", "Each is a time that a connection lost since one end held a segment "
                  "and the other the ACK, or since a cork was not ended.", STALLS,
                  query(rate("nagletrace_stalls_total", "comm", BY_PROCESS), "{{comm}}"), stacked=True),
            lines("Stalls per second by cause", "nagle_delayed_ack: one end held a small segment, and the other the "
                  "ACK. delayed_ack: the other end held the ACK, and something other than Nagle waited (the reason "
                  "says what), or nobody knows. cork_ceiling: a cork was not ended.", STALLS,
                  query(stalls_by("cause"), "{{cause}}"), stacked=True),
            heat_map(),
            marks(lines("Durations, with the timers at 40 and 200 ms", "Half, nine of ten and 99 of 100 stalls are "
                        "shorter. Dashed: the delayed-ACK timer, and the smallest retransmission timeout, which ends "
                        "corks. Dots, where exporters run with --metrics.exemplars, are single stalls: each names its "
                        "process, its connection and the bytes that waited.", "s",
                        quantile(0.5), quantile(0.9), quantile(0.99))),
            by_pod(),
            by_evidence(),
        ]),
        ("What holds segments and ACKs", [
            holds(),
            by_reason("Held time by reason", "As a share of the time that passed; several connections at once add up.",
                      "percentunit", "nagletrace_hold_seconds_total"),
            delayed_acks(),
            lines("Writes per second", "To the sockets watched: with these the holds can be compared.", WRITES,
                  query(rate("nagletrace_writes_total", "instance"), "{{instance}}")),
        ]),
        ("The tracer itself", [
            lines("CPU of the tracer", "Of the daemon, and of its programs in the kernel where that keeps statistics "
                  "(kernel.bpf_stats_enabled). 100 % is a whole CPU.", "percentunit",
                  query(rate("nagletrace_tracer_cpu_seconds_total", "instance, part"), "{{instance}} {{part}}")),
            lines("Memory of the daemon, at most", "The most that it ever had.", "bytes",
                  query(f"nagletrace_tracer_resident_memory_max_bytes{{{SELECTOR}}}", "{{instance}}")),
            dropped,
            daemons,
            lines("Time a scrape takes", "Until the daemon answered.", "s",
                  query(f"nagletrace_scrape_duration_seconds{{{SELECTOR}}}", "{{instance}}")),
            hooks,
            unseen,
            lines("Waits contradicted, stalls folded", "Contradicted: looks like a stall from one end, and the other "
                  "end on the host says no; it is not counted as one. Folded: counted with the process `other`, since "
                  "the daemon's --max-series is reached.", STALLS,
                  query(rate("nagletrace_contradicted_stalls_total", "instance"), "{{instance}} contradicted"),
                  query(rate("nagletrace_folded_stalls_total", "instance"), "{{instance}} folded")),
        ]),
    ]


# ---- the fleet: which clusters, hosts and pods lose time, and which hosts nobody watches ----

#: Recorded, so that they can be asked of thousands of hosts, and of a global Prometheus that has nothing else.
EXCESS = f"instance_comm:nagletrace_stall_excess_seconds:rate5m{{{SELECTOR}}}"
#: With what a daemon in standby estimates, of whichever process.
HOST_EXCESS = f"instance:nagletrace_excess_seconds:rate5m{{{SELECTOR}}}"
POD_EXCESS = f"namespace_pod_container_comm:nagletrace_stall_excess_seconds:rate5m{{{SELECTOR}}}"
def by_host(expr: str) -> str:
    return f"sum by ({HOST}) ({expr})"


#: A host without a stall has no series of it, and loses nothing.
EXCESS_BY_HOST = f"({by_host(HOST_EXCESS)} or {by_host(f'nagletrace_up{{{SELECTOR}}}')} * 0)"
CPU_BY_HOST = by_host(f"instance:nagletrace_tracer_cpu_seconds:rate5m{{{SELECTOR}}}")
#: What a tracer can be short of, by host: Prometheus Operator adds the pod, which each roll-out changes.
NOT_WATCHED = (f"group by ({HOST}) (last_over_time(nagletrace_up{{{SELECTOR}}}[$__range]) "
               f"unless on ({HOST}) (nagletrace_up{{{SELECTOR}}} == 1))")
MISSING = by_host(f"nagletrace_missing_hooks{{{SELECTOR}}}")
DETACHED = by_host(f"nagletrace_detached_hooks{{{SELECTOR}}}")
DROPPING = by_host(f"instance:nagletrace_dropped_records:rate5m{{{SELECTOR}, {DROPPED}}}")
UNSEEN = by_host(f"instance:nagletrace_unseen_delayed_acks:ratio_rate5m{{{SELECTOR}}}")


def how_many(hosts: str) -> str:
    return f"count({hosts}) or vector(0)"


def spread(expr: str) -> list[Any]:
    """Whether it is one host or all."""
    return [query(f"quantile(0.5, {expr})", "half of the hosts: less"),
            query(f"quantile(0.9, {expr})", "nine of ten: less"), query(f"max({expr})", "the highest")]


#: How many samples a recorded series has in the range shown that is there all the time.
SAMPLES = f"max by (cluster) (count_over_time(instance:nagletrace_tracer_cpu_seconds:rate5m{{{SELECTOR}}}[$__range]))"


def mean(expr: str, by: str) -> str:
    """Over the range shown; where there is no sample, there was no stall."""
    return f"sum by ({by}) (sum_over_time({expr}[$__range]) / on (cluster) group_left {SAMPLES}) > 0"


def most(expr: str, by: str) -> str:
    return f"topk(20, {mean(expr, by)})"


def fleet() -> list[Row]:
    processes = most(EXCESS, "cluster, comm")
    on_hosts = f"count by (cluster, comm) ({mean(EXCESS, f'{HOST}, comm')}) and {processes}"
    return [
        ("The fleet", [
            number("Lost time now", "Of all hosts chosen, as a share of the time that passes. Many hosts lose time at "
                   "once, so it may exceed 100 %.", "percentunit", f"sum({HOST_EXCESS}) or vector(0)", span=4),
            number("Hosts that lose time", "More than 1 % of it now, all their connections together.", "short",
                   how_many(f"{EXCESS_BY_HOST} > 0.01"), span=4),
            number("Hosts watched", "Daemons that answer.", "short", f"sum(nagletrace_up{{{SELECTOR}}}) or vector(0)",
                   span=4),
            number("Hosts not watched", "They were watched in the range shown, and their daemon or exporter does not "
                   "answer now. A host that you have removed is among them until it leaves the range.", "short",
                   how_many(NOT_WATCHED), ("red", 1), span=4, instant=True),
            number("Hosts that lack hooks", "Their kernel has not all hooks, or the daemon detached some for "
                   "--max-overhead: something is not seen there.", "short", how_many(f"{MISSING} + {DETACHED} > 0"),
                   ("red", 1), span=4),
            number("Hosts that drop records", "Their stalls by process are too low.", "short",
                   how_many(f"{DROPPING} > 0"), ("red", 1), span=4),
        ]),
        ("Where time is lost", [
            lines("Lost time by cluster", "As a share of the time that passed. Where Prometheus has no label "
                  "`cluster`, all hosts are one line.", "percentunit",
                  query(f"sum by (cluster) ({HOST_EXCESS})", "cluster {{cluster}}"), stacked=True),
            lines("Lost time: one host or all", "If only the highest is high, it is one host. If half of the hosts "
                  "are, look for what they have in common.", "percentunit", *spread(EXCESS_BY_HOST)),
            rows("Hosts that lose most", "On average over the range shown. A click leads to the host's processes.",
                 [("lost time", "percentunit", most(HOST_EXCESS, HOST))],
                 link=("instance", "Its processes", link_to(OVERVIEW, instance="instance"))),
            rows("Processes that lose most, and on how many hosts", "On average over the range shown. A click leads "
                 "to the process's connections.",
                 [("lost time", "percentunit", processes), ("hosts", "short", on_hosts)],
                 link=("comm", "Its connections", link_to(CONNECTION, comm="comm"))),
            rows("Pods that lose most", "In Kubernetes, where the daemons run with --by-cgroup and Prometheus scrapes "
                 "kube-state-metrics too. The names are those of recording.yml.",
                 [("lost time", "percentunit", most(POD_EXCESS, "cluster, namespace, pod, container, comm"))],
                 link=("comm", "Its connections", link_to(CONNECTION, comm="comm"))).no_value(NO_PODS),
            lines("Lost time by namespace", "Of pods, as the table beside it.", "percentunit",
                  query(f"sum by (cluster, namespace) ({POD_EXCESS})", "{{cluster}} {{namespace}}"),
                  stacked=True).no_value(NO_PODS),
        ]),
        ("The tracers themselves", [
            rows("Hosts to look after", "What a tracer is short of; a host without trouble is not here. not watched: "
                 "the daemon or its exporter does not answer, and did in the range shown. missing: hooks that the "
                 "kernel lacks. detached: hooks that the daemon detached for --max-overhead. dropped: records per "
                 "second. unseen: delayed-ACK timers that no hook saw, if more than 5 %.",
                 [("not watched", "short", NOT_WATCHED), ("missing", "short", f"{MISSING} > 0"),
                  ("detached", "short", f"{DETACHED} > 0"), ("dropped", RECORDS, f"{DROPPING} > 0"),
                  ("unseen", "percentunit", f"{UNSEEN} > 0.05")], span=24,
                 link=("instance", "Its tracer", link_to(OVERVIEW, instance="instance"))),
            lines("Hosts watched by cluster", "Daemons that answer.", "short",
                  query(f"sum by (cluster) (nagletrace_up{{{SELECTOR}}})", "cluster {{cluster}}"), stacked=True),
            lines("Records dropped per second by where", "Each record that finds no room is counted.", RECORDS,
                  query(f"sum by (where) (instance:nagletrace_dropped_records:rate5m{{{SELECTOR}}})", "{{where}}")),
            lines("CPU of the tracer by host", "100 % is a whole CPU.", "percentunit", *spread(CPU_BY_HOST)),
            lines("Delayed-ACK timers that no hook saw, by host", "As a share of those that the kernel counts. Stalls "
                  "that such a timer ended are inferred, or missing.", "percentunit", *spread(UNSEEN)),
            lines("Hosts by hooks", "Which family each daemon uses.", "short",
                  query(f"count by (hooks) (nagletrace_hooks_info{{{SELECTOR}}})", "{{hooks}}"), stacked=True),
            lines("Hosts by version", "Of the daemon: how far a roll-out has come.", "short",
                  query(f"count by (version) (nagletrace_build_info{{{SELECTOR}}})", "{{version}}"), stacked=True),
        ]),
    ]


# ---- one connection's story: from a process to its connection and the write ----

NEXT = """\
1. Point at a dot below: `pid`, `local` and `remote` are the process and its connection, `bytes` is what waited.
2. On the host, the connection with its write, the reason and the fix: `nagletrace report`
3. Where in the program the write is: `sudo nagletrace -p PID --stacks -d 30s`
4. Both hosts' ends, where the fleet's stalls are in ClickHouse:
   ```
   clickhouse client --param_address ADDRESS \\
     --queries-file dashboards/clickhouse/queries/connection.sql
   ```

What mends it, by cause:

- nagle_delayed_ack: write the whole message at once (writev, a buffer, MSG_MORE), or set TCP_NODELAY
- delayed_ack: have the receiver read or answer sooner, or the sender not wait for the ACK
- cork_ceiling: end the cork, or write the last part without MSG_MORE, when the message is whole
"""


def connection() -> list[Row]:
    stalls = f"nagletrace_stalls_total{{{BY_PROCESS}}}[$__range]"
    seen = f'nagletrace_stalls_total{{{BY_PROCESS}, evidence="seen"}}[$__range]'
    return [
        ("One process", [
            number("Stalls", "Of the process chosen, in the range shown.", "short", f"sum(increase({stalls}))",
                   instant=True),
            number("Lost time now", "What its stalls last beyond the way of a prompt ACK, as a share of the time that "
                   "passes. 4 % is one user waiting 40 ms each second.", "percentunit",
                   rate("nagletrace_stall_excess_seconds_total", selector=BY_PROCESS) + " or vector(0)",
                   ("orange", 0.04), ("red", 0.25)),
            number("A stall lasts", "Half of the stalls in the range shown are shorter.", "s",
                   "histogram_quantile(0.5, sum by (le) (increase(nagletrace_stall_seconds_bucket"
                   f"{{{BY_PROCESS}}}[$__range])))", instant=True),
            number("Seen, not inferred", "The share of the stalls of which nothing was inferred: both ends are on the "
                   "host, or one end shows it all, as of a cork.", "percentunit",
                   f"sum(increase({seen})) / (sum(increase({stalls})) > 0)", instant=True),
            rows("Where, and why", "In the range shown. A click on the host leads to all its processes.",
                 [("excess", "s", "sum by (cluster, instance, cause, reason, side) (increase("
                   f"nagletrace_stall_excess_seconds_total{{{BY_PROCESS}}}[$__range])) > 0")],
                 link=("instance", "Its processes", link_to(OVERVIEW, instance="instance"))),
            words("From the dot to the write, and to the fix", "What to run next, and what mends it.", NEXT),
        ]),
        ("Which connection, which write", [
            marks(lines("Each dot is a stall, with its connection", "Dots, where exporters run with "
                        "--metrics.exemplars and Prometheus with --enable-feature=exemplar-storage: each exporter "
                        "gives the last stall of each series at each scrape, with pid, local and remote address, and "
                        "the bytes that waited. Half, and 99 of 100 stalls are shorter than the lines.", "s",
                        quantile(0.5), quantile(0.99), span=24)),
            heat_map(),
            lines("Stalls per second by cause, reason and side", "sender: the process held a segment back, or waited "
                  "itself (the reason says for what). receiver: it delayed the ACK that the other end waited for.",
                  STALLS, query(stalls_by("cause, side"), "{{cause}}, {{side}}"),
                  stacked=True),
        ]),
        ("On which hosts and in which pods", [
            lines("Lost time by host and cgroup", "cgroup: where the daemons run with --by-cgroup.", "percentunit",
                  query(by_cgroup("nagletrace_stall_excess_seconds_total"), "{{instance}} {{cgroup}}"), stacked=True),
            by_pod(),
        ]),
        ("What holds segments and ACKs on its hosts", [holds(), delayed_acks()]),
        ("The tracer itself", state()),
    ]


def dashboards() -> dict[str, Any]:
    """By uid, which is the file's name too."""
    return {
        OVERVIEW: make(OVERVIEW, "nagletrace", "Time that TCP connections lose to Nagle's algorithm, cork and delayed "
                       "ACKs.", overview(), variable(*COMM)),
        FLEET: make(FLEET, "nagletrace: the fleet", "Which clusters, hosts and pods lose time, and which hosts nobody "
                    "watches, or not well. Needs the rules of recording.yml.", fleet()),
        CONNECTION: make(CONNECTION, "nagletrace: one connection's story", "From a process that loses time to its "
                         "connection and the write.", connection(), variable(*COMM, one=True)),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Writes nagletrace*.json, the Grafana dashboards.")
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="where to; it has to exist")
    directory = parser.parse_args().directory
    for name, content in dashboards().items():
        (directory / f"{name}.json").write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
