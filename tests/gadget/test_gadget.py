# SPDX-License-Identifier: GPL-2.0
"""The gadget, run by Inspektor Gadget's ig beside the lab: what it tells is what the application felt, and what
nagletrace says.
"""

from __future__ import annotations

import collections
import json
import os
import re
import tarfile
import time
from pathlib import Path
from typing import Any

import gadgets
import pytest
import yaml
from harness import ROOT, Lab, Tracer, assert_durations_match, lacking, of_lab, stalled_rounds, unseen
from running import Event, Gadgets, endpoint

METADATA = yaml.safe_load((gadgets.GADGET / "gadget.yaml").read_text())
FIELDS = METADATA["datasources"]["stalls"]["fields"]
CLOCK_MONOTONIC_COARSE = 6  # linux/time.h
#: What Inspektor Gadget adds, and has described.
ADDED = {"k8s", "runtime", "proc"}

needs_tracepoints = pytest.mark.skipif(
    not Path("/sys/kernel/btf/vmlinux").exists(), reason="this kernel has no BTF: the gadget cannot be had on it")


def as_told(event: Event) -> Event:
    """The event as harness.assert_durations_match() takes a stall."""
    return {"duration_us": event["duration_raw"] / 1000}


def facts_of_event(event: Event) -> tuple[Any, ...]:
    return (endpoint(event["src"]), endpoint(event["dst"]), event["side"], event["cause"], event["evidence"],
            event["pattern"], event["reason"], event["release"], event["bytes"], event["writes"],
            event["ack_reason"], event["ack_release"], event["proc"]["pid"], event["proc"]["comm"])


def facts_of_record(record: Event) -> tuple[Any, ...]:
    sender, receiver = record["sender"], record["receiver"]
    hold, ack = sender.get("hold", {}), receiver.get("pending_ack", {})
    return (sender["address"], receiver["address"], record["side"], record["cause"], record["evidence"],
            record["pattern"], hold["reason"], hold["release"], hold["bytes"], hold["writes"], ack.get("reason", ""),
            ack.get("release", ""), sender["pid"], sender["comm"])


# ---- the image ----


def test_the_image_has_the_programs_for_both_architectures(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        def blob(digest: str) -> Any:
            member = tar.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert member
            return json.load(member)

        index = tar.extractfile("index.json")
        assert index
        [image] = (one for one in json.load(index)["manifests"] if one["mediaType"].endswith(".index.v1+json"))
        manifests = blob(image["digest"])["manifests"]
    assert {one["platform"]["architecture"] for one in manifests} == {"amd64", "arm64"}
    assert image["annotations"]["org.opencontainers.image.title"] == "nagletrace"


@pytest.mark.parametrize(("field", "table"), [
    ("reason", "hold_reasons"), ("release", "releases"), ("ack_release", "ack_releases"),
    ("ack_reason", "ack_reasons"), ("cause", "causes"), ("evidence", "evidences"), ("pattern", "patterns")])
def test_the_words_of_its_description_are_those_of_its_events(field: str, table: str) -> None:
    [body] = re.findall(rf"\b{table}\[\w+\] = {{(.*?)}};", (ROOT / "bpf/words.h").read_text(), re.DOTALL)
    described = set(FIELDS[field]["annotations"]["value.one-of"].split(", "))
    all_words = set(re.findall(r'"(\w+)"', body))
    assert described <= all_words
    # not all holds become stalls, which is all that a gadget tells
    assert described == all_words or field in ("pattern", "reason", "release")


def test_each_field_is_described() -> None:
    assert all(one["annotations"].get("description") for one in FIELDS.values())
    assert all(one["description"] for one in METADATA["params"]["ebpf"].values())


# ---- what it tells ----


@needs_tracepoints
def test_each_stall_comes_out_with_process_connection_duration_and_reason(images: Gadgets) -> None:
    with images.run() as running, Tracer("--hooks", "tracepoint") as tracer, \
            Lab("write-write-read", "--rounds", "20") as lab:
        rounds = stalled_rounds(lab.play())
        tracer.stop()
        running.wait_for(len(rounds) - lacking(tracer), lambda: running.of(*lab.ready["connections"]))
        running.stop()
        told = running.of(*lab.ready["connections"])
    assert len(rounds) > 5
    assert_durations_match(rounds, [as_told(event) for event in told], lacking(tracer))
    [connection] = lab.ready["connections"]
    for event in told:
        assert event.keys() - ADDED <= FIELDS.keys()
        assert (endpoint(event["src"]), endpoint(event["dst"])) == (connection["client"], connection["server"])
        assert (event["proc"]["pid"], event["proc"]["comm"]) == (lab.client, "lab-client")
        assert event["proc"]["mntns_id"] == os.stat(f"/proc/{os.getpid()}/ns/mnt").st_ino
        assert event["proc"]["parent"]["pid"] == lab.process.pid
        assert event["netns_id"] == lab.ready["client"]["netns"]
        assert (event["side"], event["cause"], event["reason"], event["release"], event["pattern"]) == (
            "sender", "nagle_delayed_ack", "nagle", "ack", "write_write_read")
        assert 0 <= event["duration_raw"] - event["excess_raw"] <= event["min_rtt_raw"] < 5e6
        assert (event["bytes"], event["writes"], event["nodelay"]) == (7, 1, False)
    seen = [event for event in told if event["evidence"] == "seen"]
    assert len(told) - len(seen) <= unseen(tracer), "a sender infers what a hidden timer ended"
    for event in seen:
        assert (event["peer_pid"], event["peer_comm"]) == (lab.server, "lab-server")
        assert (event["ack_reason"], event["ack_release"]) == ("pingpong", "timer")
        # the ACK is pending since the first write, and the second is held
        assert 0 < event["pending_ack_raw"] <= event["duration_raw"] + 20e6


@needs_tracepoints
def test_it_says_what_nagletrace_says(images: Gadgets) -> None:
    """Of stalls of several kinds, one by one; both have the same programs, and each its own user space."""
    labs = [("reply-tail", "--rounds", "5"), ("header-body", "--rounds", "5", "--interval", "10ms"),
            ("cork-forgotten", "--rounds", "3"), ("msg-more", "--rounds", "3", "--pause", "250ms"),
            ("write-write-read", "--rounds", "5", "--v4-mapped"), ("echo", "--rounds", "3")]
    records: list[Event] = []
    connections: list[Event] = []
    with images.run() as running, Tracer("--hooks", "tracepoint") as tracer:
        for scenario, *arguments in labs:
            with Lab(scenario, *arguments) as lab:
                lab.play()
                tracer.catch_up()
                records += of_lab(lab, tracer.stalls()[len(records):])
                connections += lab.ready["connections"]
        tracer.stop()
        running.wait_for(len(records), lambda: running.of(*connections))
        running.stop()
        told = running.of(*connections)
    by_nagletrace = collections.Counter(map(facts_of_record, records))
    by_gadget = collections.Counter(map(facts_of_event, told))
    assert len({facts[3:7] for facts in by_nagletrace}) >= 3, "the lab stalls in several ways"
    # a timer that the machine hides may be hidden from the one and not from the other
    assert (by_nagletrace - by_gadget).total() <= unseen(tracer), (by_nagletrace - by_gadget, by_gadget - by_nagletrace)
    assert (by_gadget - by_nagletrace).total() <= unseen(tracer), (by_nagletrace - by_gadget, by_gadget - by_nagletrace)


@needs_tracepoints
def test_without_a_stall_it_says_nothing(images: Gadgets) -> None:
    """The same writes with TCP_NODELAY, and in between some that stall, which show that it is awake."""
    with images.run() as running:
        with Lab("write-write-read", "--rounds", "200", "--nodelay") as lab:
            lab.play()
        with Lab("write-write-read", "--rounds", "5") as witness:
            witness.play()
            assert running.wait_for(1, lambda: running.of(*witness.ready["connections"]))
        running.stop()
        assert not running.of(*lab.ready["connections"])


@needs_tracepoints
def test_the_end_that_is_asked_for_is_the_one_that_is_told(images: Gadgets) -> None:
    """The receiver's process delays the ACK; the sender is then its peer."""
    with images.run("--comm", "lab-server") as running, Lab("write-write-read", "--rounds", "8") as lab:
        lab.play()
        running.wait_for(3, lambda: running.of(*lab.ready["connections"]))
        running.stop()
        told = running.of(*lab.ready["connections"])
        others = [event for event in running.events() if event["proc"]["comm"] != "lab-server"]
    [connection] = lab.ready["connections"]
    assert told and not others
    for event in told:
        assert (event["side"], event["proc"]["pid"], event["peer_pid"]) == ("receiver", lab.server, lab.client)
        assert (endpoint(event["src"]), endpoint(event["dst"])) == (connection["server"], connection["client"])


@needs_tracepoints
def test_shorter_stalls_can_be_left_out(images: Gadgets) -> None:
    with images.run("--min-duration", "100000000") as running:
        with Lab("write-write-read", "--rounds", "10") as short:
            short.play()
        with Lab("cork-forgotten", "--rounds", "3") as long:
            long.play()
            told = running.wait_for(1, lambda: running.of(*long.ready["connections"]))
        running.stop()
        assert told and {event["cause"] for event in told} == {"cork_ceiling"}
        assert not running.of(*short.ready["connections"])


@needs_tracepoints
def test_it_learns_how_long_a_jiffy_is(images: Gadgets) -> None:
    """From the first socket that sends; nagletrace's user space asks the kernel's coarse clock."""
    with images.run() as running, Lab("write-write-read", "--rounds", "5") as lab:
        lab.play()
        assert running.wait_for(1, lambda: running.of(*lab.ready["connections"]))
        learned = running.variables()
        running.stop()
    assert learned["tick_learned"]
    assert learned["tick_ns"] == round(time.clock_getres(CLOCK_MONOTONIC_COARSE) * 1e9)
