# SPDX-License-Identifier: GPL-2.0
"""What each host tells of a stall whose other end is on another host: by this the two records are joined.

Two tracers stand for two hosts: each knows only its end's network namespace.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from daemon import Daemon, Reader
from harness import ROOT, Lab, Record, Tracer, day_s, run, stalled_rounds, unseen
from witnesses import Capture, end_captures

VETH = ("--over", "veth")


def ids(records: list[Record]) -> set[str]:
    return {record["ack_id"] for record in records if "ack_id" in record}


def numbers(tracer: Tracer) -> list[int]:
    return [record["number"] for kind in ("stall", "hold", "late_ack") for record in tracer.records(kind)]


@pytest.mark.quick
def test_both_hosts_name_the_ack_of_a_stall_alike_if_they_have_the_same_key(key: str) -> None:
    lab = Lab("write-write-read", *VETH)
    client, server = ("--netns", str(lab.client)), ("--netns", str(lab.server))
    with lab, Tracer(*client, "--fleet-key", key) as sender, \
            Tracer(*server, "--fleet-key", key, "--late-acks") as receiver, \
            Tracer(*server, "--late-acks") as keyless:
        result = lab.play()
        for tracer in (sender, receiver, keyless):
            tracer.stop()
    felt, told = stalled_rounds(result), sender.stalls()
    assert len(felt) >= 8 and len(told) == len(felt)
    assert {(stall["evidence"], stall["side"]) for stall in told} == {("inferred", "sender")}
    # the receiver's tracer may have missed timers, by its own audit: of those it says nothing
    late = receiver.records("late_ack")
    assert len(ids(told)) == len(told) and len(ids(told) - ids(late)) <= unseen(receiver)
    for record in late:
        assert record["receiver"]["pid"] == lab.server and "netns" not in record["sender"]
        assert record["receiver"]["pending_ack"]["release"] == "timer"
        assert 0 < record["receiver"]["pending_ack"]["limit_us"] <= 200_000
    # what its receiver infers has the same name
    assert ids(receiver.stalls()) <= ids(told) | ids(late)
    assert keyless.records("late_ack") and not ids(keyless.records("late_ack")) & ids(told)
    # each record has its host, and its number; the closing report has the last one's
    [start] = receiver.records("start")
    assert start["host"] == os.uname().nodename and start["late_acks"] == "all"
    assert start["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert sender.records("start")[0]["ack_key"] == start["ack_key"] != keyless.records("start")[0]["ack_key"]
    for tracer in (sender, receiver, keyless):
        assert sorted(numbers(tracer)) == list(range(1, tracer.closing()["number"] + 1))
    records = [*told, *late, receiver.closing()]
    assert {(record["host"], record["boot_id"]) for record in records} == {(start["host"], start["boot_id"])}


@pytest.mark.quick
def test_a_filter_leaves_out_late_acks_and_says_so(key: str) -> None:
    done = run("-o", "json", "--late-acks", "--fleet-key", key, "-P", "1", "-d", "10ms")
    start = json.loads(done.stdout.splitlines()[0])
    assert start["late_acks"] == "some" and "holds" not in start
    done = run("-o", "json", "--fleet-key", key, "-d", "10ms", "--host", "node-1.example")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert "late_acks" not in lines[0] and [line["host"] for line in lines] == ["node-1.example"] * 2


WAIT_FOR_AN_ACK = {"nagle", "msg_more", "cwnd"}


def test_holds_that_a_late_ack_on_another_host_may_have_ended_are_told(key: str) -> None:
    """What the receiver's host calls late is all there, and nothing but late holds that an ACK ends."""
    lab = Lab("mix", *VETH, "--seed", "3", "--seconds", "2")
    options = ("--fleet-key", key, "--late-acks")
    client, server = ("--netns", str(lab.client), *options), ("--netns", str(lab.server), *options)
    with lab, Tracer(*client) as sender, Tracer(*client, "--all-holds") as all_holds, Tracer(*server) as receiver:
        lab.play()
        for tracer in (sender, all_holds, receiver):
            tracer.catch_up()
            tracer.stop()
    assert [tracer.records("start")[0]["holds"] for tracer in (sender, all_holds)] == ["late", "all"]
    told = sender.records("hold")
    assert "nagle" in {one["sender"]["hold"]["reason"] for one in told} <= WAIT_FOR_AN_ACK
    assert {one["sender"]["hold"]["release"] for one in told} == {"ack"}
    assert all(one["excess_us"] >= 1000 and "cause" not in one for one in told)
    late = ids(receiver.records("late_ack"))
    # what the other end contradicts is a hold without the sender's part
    wanted = ids([one for one in all_holds.records("hold") if "hold" in one["sender"]
                  and one["sender"]["hold"]["reason"] in WAIT_FOR_AN_ACK
                  and one["sender"]["hold"]["release"] == "ack"
                  and one["excess_us"] > 1000])
    # of the two tracers one may infer what the other does not: both see the socket a moment apart
    assert wanted & late and not (wanted & late) - ids(told + sender.stalls())
    assert not ids(told) - ids(all_holds.records("hold") + all_holds.stalls())
    assert len(told) < len(all_holds.records("hold"))


@pytest.mark.quick
def test_the_daemon_streams_late_acks_to_readers_of_json_and_counts_none_as_a_stall(key: str) -> None:
    lab = Lab("write-write-read", *VETH)
    with lab, Daemon("--netns", str(lab.server), "--fleet-key", key) as daemon, \
            Reader(daemon.socket) as stream, Reader(daemon.socket) as asks:
        begin = stream.ask("stream", format="json")
        assert begin["number"] == 0 and begin["late_acks"] == "all" and begin["host"] == os.uname().nodename
        lab.play()
        counts = asks.ask("snapshot")
        wanted = Counter(late_ack=counts["totals"]["delayed_acks"]["timer"], stall=counts["stalls"])
        assert wanted["late_ack"] and wanted["stall"]
        told: list[Record] = []
        while not wanted <= Counter(record["type"] for record in told):
            told += itertools.islice(stream.lines(), 1)
        assert [record["number"] for record in told] == list(range(1, len(told) + 1))
        assert asks.ask("snapshot")["stalls"] == sum(record["type"] == "stall" for record in told)


@pytest.mark.quick
@pytest.mark.parametrize("most", [0, 1])
def test_what_the_daemon_streams_besides_stalls_has_a_limit_and_the_rest_is_counted(most: int) -> None:
    lab = Lab("write-write-read", *VETH)
    with lab, Daemon("--netns", str(lab.server), "--max-late-acks", str(most)) as daemon, \
            Reader(daemon.socket) as stream, Reader(daemon.socket) as asks:
        begin = stream.ask("stream", format="json")
        assert begin.get("late_acks") == ("all" if most else None) and ("holds" in begin) == bool(most)
        began = time.monotonic()
        lab.play()
        counts, lasted_s = asks.ask("snapshot"), time.monotonic() - began
        left_out = counts["dropped"]["late_ack_limit"]
        late = counts["totals"]["delayed_acks"]["timer"] - left_out if most else 0
        told = Counter(record["type"] for record in itertools.islice(stream.lines(), counts["stalls"] + late))
        assert told == Counter(stall=counts["stalls"], late_ack=late) and told["stall"] >= 8
        assert 1 <= late <= 2 + lasted_s and left_out >= 4 if most else left_out == 0
        assert ("0 dropped: late_ack_limit" if most else "0 dropped)") in asks.ask("report", format="text")["text"]


@pytest.mark.quick
def test_without_a_reader_the_daemon_makes_no_late_acks() -> None:
    lab = Lab("write-write-read", *VETH)
    with lab, Daemon("--netns", str(lab.server)) as daemon, Reader(daemon.socket) as asks:
        lab.play()
        timers = asks.ask("snapshot")["totals"]["delayed_acks"]["timer"]
        assert timers > 1
        told = asks.ask("stream", format="json")["number"]
    # stalls alone have numbers: a receiver infers one of each timer at most
    assert told <= timers


def numbers_on_the_wire(capture: Path) -> set[int]:
    """Every sequence number and acknowledged number of the TCP segments, as they are on the wire."""
    numbers: set[int] = set()
    text = subprocess.check_output(["tcpdump", "-r", str(capture), "-n", "-S", "-t", "tcp"], text=True,
                                   stderr=subprocess.DEVNULL)
    for line in text.splitlines():
        for key in ("seq", "ack"):
            found = re.search(rf"\b{key} (\d+)(?::(\d+))?", line)
            numbers |= {int(number) for number in (found.groups() if found else ()) if number}
    return {number for number in numbers if number > 1 << 16}  # a smaller one may be anything


@pytest.mark.quick
def test_no_sequence_number_is_told(key: str, tmp_path: Path) -> None:
    """Of stalls, late ACKs, holds, events and reports: nothing that is told is a number of the wire."""
    lab = Lab("write-write-read", "--late-connect", *VETH)
    with lab:
        options = ("-o", "json", "--fleet-key", key, "--all-holds", "--stacks")
        with Tracer("--netns", str(lab.client), *options, "--timeline") as sender, \
                Tracer("--netns", str(lab.server), *options, "--late-acks") as receiver:
            capture = Capture(lab.client, "lab-client", tmp_path / "wire.pcap")
            try:
                lab.play()
                end_captures([capture])
            finally:
                capture.close()
            for tracer in (sender, receiver):
                tracer.stop()
    numbers = numbers_on_the_wire(capture.path)
    lines = [line for tracer in (sender, receiver) for _, line in tracer.lines.all]
    assert len(numbers) > 20 and receiver.records("late_ack") and sender.stalls() and sender.records("event")
    written = {form for number in numbers for form in (
        str(number), f"{number:08x}", number.to_bytes(4, "little").hex())}
    words = {word for line in lines for word in re.findall(r"[0-9a-z]+", line)}
    halves = {half for word in words if len(word) == 16 for half in (word[:8], word[8:])}
    assert not written & (words | halves)


@pytest.mark.quick
def test_no_record_has_a_place_for_a_sequence_number() -> None:
    """The keys of all records, by the schema; an event's `seq` and `ack` count from the begin of the connection."""
    schema = json.loads((ROOT / "userspace" / "output" / "nagletrace.schema.json").read_text())
    found: dict[str, list[object]] = {}

    def look(at: object) -> None:
        if isinstance(at, dict):
            for key, value in at.get("properties", {}).items():
                if re.search(r"(^|_)(seq|ack|isn|snd|rcv|sequence|numbers)(_|$)", key):
                    found.setdefault(key, []).append(value)
            for value in at.values():
                look(value)
        elif isinstance(at, list):
            for value in at:
                look(value)

    look(schema)
    relative = {"$ref": "#/$defs/relative"}
    assert found.pop("seq") == [relative] and found.pop("ack") == [relative]
    assert set(found) <= {"pending_ack", "ack_id", "ack_key", "late_ack", "late_acks", "late_ack_limit",
                          "ack_after_hold_us", "ack_map_full", "delayed_acks", "unseen_delayed_acks"}, found


@pytest.mark.parametrize(("text", "mode", "told"), [
    (b"00" * 16, 0o644, "other users may use it; `chmod 600` it"), (b"00" * 16, 0o602, "other users may use it"),
    (b"", 0o600, "not a key"), (b"\n", 0o600, "not a key"), (b"00" * 15, 0o600, "not a key"),
    (b"00" * 17, 0o600, "not a key"), (b"\x00" * 15, 0o600, "not a key"), (b"\xff" * 17, 0o600, "not a key"),
    (b"\x1b[2J" * 8, 0o600, "not a key"), (None, 0, "No such file")])
@pytest.mark.quick
def test_a_bad_key_is_one_line_and_exit_code_2(text: bytes | None, mode: int, told: str, tmp_path: Path) -> None:
    path = tmp_path / "key"
    if text is not None:
        path.write_bytes(text)
        path.chmod(mode)
    done = run("--fleet-key", str(path), "-d", "10ms")
    assert done.returncode == 2 and not done.stdout
    assert re.fullmatch(r"nagletrace: --fleet-key [^\n]*\n", done.stderr) and told in done.stderr
    assert str(path)[:20] in done.stderr and (told != "not a key" or "openssl rand -hex 16" in done.stderr)


@pytest.mark.quick
def test_a_key_that_is_to_come_is_used_from_its_moment_on(tmp_path: Path) -> None:
    """By both hosts, though one of them was started with both keys, and the other one after the change."""
    old, new = ("0" * 32, "1" * 32)
    files = {name: tmp_path / name for name in ("old", "both", "new")}
    for name, path in files.items():
        path.touch(mode=0o600)
        path.write_text(new if name == "new" else old)
    lab = Lab("write-write-read", *VETH, "--rounds", "20", "--interval", "100ms")
    client, server = ("--netns", str(lab.client)), ("--netns", str(lab.server), "--late-acks")
    moment = int(time.time()) + 4
    files["both"].write_text(f"{old}\n{new} {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(moment))}\n")
    with lab, Tracer(*client, "--fleet-key", str(files["both"]), "-i", "500ms") as sender, \
            Tracer(*server, "--fleet-key", str(files["old"])) as before, \
            Tracer(*server, "--fleet-key", str(files["new"])) as after:
        time.sleep(max(0, moment - 1.5 - time.time()))
        lab.play()
        for tracer in (sender, before, after):
            tracer.stop()
    told = {early: ids([stall for stall in sender.stalls() if (day_s(stall["time"]) < moment) == early])
            for early in (True, False)}
    hidden = unseen(before) + unseen(after)
    assert len(told[True] - ids(before.records("late_ack"))) <= hidden < len(told[True])
    assert len(told[False] - ids(after.records("late_ack"))) <= hidden < len(told[False])
    changed = [report for report in sender.records("report") if "key_changed" in report]
    assert len(changed) == 2 and [report["closing"] for report in changed] == [False, True]
    assert 0 <= day_s(changed[0]["time"]) - moment <= changed[0]["span_us"] / 1e6
    assert not any("key_changed" in report for report in before.records("report") + after.records("report"))
    assert sender.records("start")[0]["ack_key"] == before.records("start")[0]["ack_key"]


@pytest.mark.quick
def test_a_key_may_be_bytes_or_digits(tmp_path: Path) -> None:
    """The same key, as `openssl rand 16` and `openssl rand -hex 16` write it, and readable by a group."""
    names = set()
    for number, text in enumerate((bytes(range(16)), bytes(range(16)).hex().encode(),
                                   bytes(range(16)).hex().upper().encode() + b"\n")):
        path = tmp_path / str(number)
        path.touch(mode=0o640)
        path.write_bytes(text)
        start = json.loads(run("-o", "json", "--fleet-key", str(path), "-d", "10ms").stdout.splitlines()[0])
        names.add(start["ack_key"])
    assert len(names) == 1
