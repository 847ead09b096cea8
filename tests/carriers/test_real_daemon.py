# SPDX-License-Identifier: GPL-2.0
"""A real daemon, real stalls: what it streams is what the receiver gets."""

from __future__ import annotations

import json
from collections import Counter

from daemon import Daemon, Reader
from harness import Lab, Record
from processes import PATIENCE, wait_until
from receivers import FakeReceiver, attributes_of
from run_exporter import serving

VETH = ("--over", "veth")


def test_what_the_daemon_streams_is_what_the_receiver_gets() -> None:
    lab = Lab("write-write-read", *VETH)
    with lab, Daemon("--netns", str(lab.server)) as daemon, Reader(daemon.socket) as stream, \
            Reader(daemon.socket) as asks, FakeReceiver() as receiver:
        begin = stream.ask("stream", format="json")
        with serving(daemon.socket, "--otlp.endpoint", receiver.url) as exporter:
            wait_until("it follows", lambda: b"nagletrace_otlp_following 1.0" in exporter.get().body,
                       why=lambda: exporter.log)
            lab.play()
            counts = asks.ask("snapshot")
            wanted = counts["totals"]["delayed_acks"]["timer"] + counts["stalls"]
            told = [record for _ in range(wanted) if (record := stream.line())]
            got: list[Record] = []
            while len(got) < wanted:
                got += receiver.requests.get(timeout=PATIENCE).records()
    assert Counter(record["type"] for record in told).keys() == {"stall", "late_ack"}

    def identity(record: Record) -> tuple[object, ...]:
        found = attributes_of(record)
        return (record["eventName"], found["nagletrace.ack_id"], found["nagletrace.number"], found["nagletrace.host"],
                found["nagletrace.boot_id"])

    assert [identity(record) for record in got] == [
        (f"nagletrace.{record['type']}", record["ack_id"], record["number"], begin["host"], begin["boot_id"])
        for record in told], json.dumps(got[:2])
