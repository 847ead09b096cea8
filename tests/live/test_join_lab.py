# SPDX-License-Identifier: GPL-2.0
"""The lab's experiments between two hosts, with a router that translates addresses: what is joined, against the wire.

The lab plays between two namespaces; a router takes the place of the cable between them. A tracer at each end knows
only its own.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from harness import IN_GUEST, Lab, Record, Tracer, at_the_sender_alone, dropped, unseen
from joined import join
from processes import wait_until
from spaces import Namespace
from test_truth import INNOCENT, PUBLISHED, VETH, Row, identity
from two_hosts import named, nft, run
from witnesses import AT_ONCE, DOUBT, TOLERANCE, Run, lab_for, play, score, wire

pytestmark = pytest.mark.skipif(IN_GUEST, reason="guests have neither nft nor DuckDB")

#: Of the first second of a recording, and of the last one, it is no witness: join.sql, `contradicted`.
MARGIN_S = 1.1
#: As the server's host calls both ends, and as the client's does.
CLIENTS_VIEW = {"198.51.100.254:": "192.0.2.1:", "198.51.100.2:": "192.0.2.2:",
                "[2001:db8:1::1]:": "[2001:db8::1]:", "[2001:db8:1::2]:": "[2001:db8::2]:"}
HOSTS = ("web1", "db1")
#: The router's address for the client, its address for the server, and the server's.
ADDRESSES = {"ip": ("192.0.2.2/24", "198.51.100.254/24", "198.51.100.2/24"),
             "ip6": ("2001:db8::2/64", "2001:db8:1::1/64", "2001:db8:1::2/64")}

#: Behind a router the lab's server has lost its route.
ROWS: list[Row] = [row for row in PUBLISHED + INNOCENT if row[1][:2] == VETH and "--quickack-route" not in row[1]]
MIXTURE: Row = ("mix", (*VETH, "--seed", "1", "--seconds", "4"), 100)


def as_client_sees(text: str) -> str:
    for one, other in CLIENTS_VIEW.items():
        text = text.replace(one, other)
    return text


def excused(record: Record, unseen_at: dict[str, int]) -> bool:
    """A stall that a receiver's host infers, where a timer ran unseen at the sender's, so that this denies nothing."""
    return (record["evidence"] == "inferred" and record["side"] == "receiver"
            and unseen_at["db1" if record["host"] == "web1" else "web1"] > 0)


@contextlib.contextmanager
def routed(lab: Lab) -> Iterator[None]:
    """A router has the server's end of the lab's cable, with the address that the client connects to, and a cable of
    its own to the server, which sees nobody but the router."""
    with Namespace() as space:
        router, server = space.enter(), ["nsenter", "-t", str(lab.server), "-n"]
        links = ((router, "lab-server"), (router, "to-server"), (server, "lab-server"))
        run(*server, "ip", "link", "set", "lab-server", "netns", space.holder.pid)
        run(*router, "ip", "link", "add", "to-server", "type", "veth", "peer", "name", "lab-server", "netns",
            lab.server)
        run(*router, "sh", "-c", "cd /proc/sys/net && echo 1 | tee ipv4/ip_forward ipv6/conf/all/forwarding")
        for place, device in links:
            run(*place, "ip", "link", "set", device, "up")
        for family, addresses in ADDRESSES.items():
            for (place, device), address in zip(links, addresses):
                run(*place, "ip", "address", "add", address, "dev", device, *(["nodad"] if family == "ip6" else []))
            _, gate, own = (address.partition("/")[0] for address in addresses)
            nft(router,
                f"add table {family} nat",
                f"add chain {family} nat before {{ type nat hook prerouting priority -100; }}",
                f'add rule {family} nat before iifname "lab-server" meta l4proto tcp dnat to {own}',
                f"add chain {family} nat after {{ type nat hook postrouting priority 100; }}",
                f'add rule {family} nat after oifname "to-server" meta l4proto tcp snat to {gate}')
        # a link takes a while to run, and its first packets would be lost
        for place, device in links:
            wait_until(f"{device} is up", lambda: " UP " in subprocess.check_output(
                [*place, "ip", "-br", "link", "show", device], text=True))
        yield


def traced(lab: Lab, key: str) -> Iterator[Tracer]:
    for host, end in zip(HOSTS, (lab.client, lab.server)):
        yield Tracer("--netns", str(end), "--fleet-key", key, "--late-acks", "--all-holds", prefix=named(host))


def between_hosts(row: Row, key: str, tmp_path: Path) -> tuple[Run, dict[str, list[Record]]]:
    """The joined records against the witnesses', and each host's own."""
    tracers: list[Tracer] = []
    with lab_for(row[0], *row[1], "--any-address", "--timeout", "120s") as lab, routed(lab):
        try:
            for tracer in traced(lab, key):
                tracers.append(tracer)
            time.sleep(MARGIN_S)
            played = play(lab, identity(row))
            time.sleep(MARGIN_S)
            for tracer in tracers:
                tracer.catch_up()
                tracer.stop()
        finally:
            for tracer in tracers:
                tracer.close()
    assert not any(dropped(tracer.closing()) for tracer in tracers)
    own = {host: [json.loads(line) for _, line in tracer.lines.all] for host, tracer in zip(HOSTS, tracers)}
    played.log = [as_client_sees(line) for line in played.log]
    played.result = json.loads(as_client_sees(json.dumps(played.result)))
    segments = [replace(one, source=as_client_sees(one.source), destination=as_client_sees(one.destination))
                for one in played.at_server]
    played.at_server = segments
    told = [json.loads(as_client_sees(json.dumps(record))) for record in join(tmp_path, own)
            if record["type"] == "stall"]
    mss = max(end["snd_mss"] for end in played.result["client"]["tcp_info"] + played.result["server"]["tcp_info"])
    limits = wire.Limits(at_once=AT_ONCE)
    stalls = score.truth(played.at_client, segments, score.read_logs(played.lines, played.clock), mss, limits,
                         DOUBT)
    made = score.compare(f"{identity(row)} (between hosts)", stalls, told, TOLERANCE)
    unseen_at = {host: unseen(tracer) for host, tracer in zip(HOSTS, tracers)}
    hidden = sum(unseen_at.values())
    return Run(made, stalls, told, {"unseen": hidden, "unseen_at": unseen_at}, played,
               max(0, hidden - len(at_the_sender_alone(told)))), own


def check(row: Row, run: Run, own: dict[str, list[Record]], note: Callable[[str, object], None]) -> None:
    """Recall and precision are 1.0, and each stall of Nagle's is seen."""
    note("score", run.score.line())
    print(run.score.line())
    if run.score.false or run.wrong():
        pytest.fail(run.wrong(), pytrace=False)
    least = row[2]
    if least:
        assert run.score.matched >= max(1, least - 2) - run.closing["unseen"], f"nothing to find: {run.score.line()}"
    else:
        assert run.score.wire == 0, f"the lab stalled where it should not: {run.stalls}"
    # a receiver whose timer ran unseen, by the tracer's own audit, has no late ACK to tell of
    inferred = [one for one in run.records if one["cause"] != "cork_ceiling" and one["evidence"] != "seen"]
    assert len(inferred) <= run.closing["unseen"], inferred
    # alone, no host could tell: each knows its own address and the router's
    assert not [one for lines in own.values() for one in lines if one["type"] == "stall"
                and one["cause"] == "nagle_delayed_ack" and one["evidence"] == "seen"]


def test_a_mixture_is_seen_from_both_ends(key: str, tmp_path: Path,
                                          record_property: Callable[[str, object], None]) -> None:
    """What is written while an ACK is pending is held for less than the sender's host takes for a late ACK; and a peer
    writes by chance just after a late ACK, which its receiver takes for a stall. Both hosts together know better."""
    run, own = between_hosts(MIXTURE, key, tmp_path)
    unseen_at = run.closing["unseen_at"]
    record_property("mixture", f"{run.score.line()}  unseen {unseen_at}")
    sure = [one for one in run.records if not excused(one, unseen_at)]
    few = len(run.records) // 200
    assert len(run.records) - len(sure) <= few, "too many are excused"
    told = [one for one in run.records if one in sure or one not in run.score.false]
    run = replace(run, score=score.compare(run.score.scenario, run.stalls, told, TOLERANCE), records=sure)
    # where timers run unseen, a probe timer or an ACK may come unseen, too, and nothing counts these
    if run.closing["unseen"]:
        run = replace(run, closing={"unseen": run.closing["unseen"] + few}, lacking=run.lacking + few)
    check(MIXTURE, run, own, record_property)
    short = [one for one in run.records if one["duration_us"] < 30_000 and one["evidence"] == "seen"]
    assert short, "nothing was shown: each host alone would have told all"


@pytest.mark.parametrize("row", [pytest.param(row, id=identity(row)) for row in ROWS])
def test_what_two_hosts_tell_is_what_the_wire_shows(row: Row, key: str, tmp_path: Path,
                                                   record_property: Callable[[str, object], None]) -> None:
    run, own = between_hosts(row, key, tmp_path)
    check(row, run, own, record_property)
