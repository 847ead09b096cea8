# SPDX-License-Identifier: GPL-2.0
"""nagletrace-join on recordings as two hosts would have made them. DuckDB is in the environment of tests/tools.py."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import recordings
from processes import wait_until
from recordings import Record, at
from tools import tools

from nagletrace_exporters.join.main import check_files
from nagletrace_exporters.recording import Reading, RecordingError

HERE = Path(__file__).parent.parent
SCHEMA = json.loads((HERE.parent / "userspace" / "output" / "nagletrace.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
#: The addresses as each host sees them: a router between translates both.
CLIENT, VIP, ROUTER, SERVER = "10.1.0.1:51234", "203.0.113.1:80", "10.2.0.254:4242", "10.2.0.1:8000"
SECOND = 1_000_000
#: A recording begins and ends so long before and after what is in it.
ROOM = 10 * SECOND


def name_of(ack: int) -> str:
    return f"{ack + 0xfedc000000000000:016x}"


class Host:
    """Records what one host tells, in order of time."""

    def __init__(self, name: str, ahead_us: int = 0, late_acks: str | None = "all", key: str = "0" * 16) -> None:
        self.name, self.ahead_us, self.number = name, ahead_us, 0
        self.records: list[Record] = []
        more = {"late_acks": late_acks} if late_acks else {}
        self.start = {**recordings.start(), "time": at(ahead_us - ROOM), "host": name, "boot_id": name * 2,
                      "ack_key": key, **more}

    def tell(self, us: int, record: Record) -> Record:
        self.number += 1
        self.records.append({**record, "time": at(us + self.ahead_us), "host": self.name, "boot_id": self.name * 2,
                             "number": self.number})
        return self.records[-1]

    def sends(self, us: int, ack_id: int, kind: str = "stall", duration_us: int = 40_300, held_by: str = "nagle",
              address: str = CLIENT, **of: Any) -> Record:
        """Infers a stall (or has a hold) of which it sees the sender."""
        end = {"address": address, "netns": 1, "pid": 7, "tid": 7, "comm": "java", "options": recordings.options(),
               "hold": recordings.hold(mss=1448, reason=held_by)}
        stall = {"cause": "nagle_delayed_ack", "evidence": "inferred"}
        return self.tell(us, {"type": kind, "side": "sender", "pattern": "write_write_read", "duration_us": duration_us,
                              "excess_us": max(0, duration_us - 300), "min_rtt_us": 300, "family": 4,
                              "ack_id": name_of(ack_id), "sender": end, "receiver": {"address": VIP},
                              **(stall if kind == "stall" else {}), **of})

    def delays(self, us: int, ack_id: int, kind: str = "late_ack", pending_us: int = 40_000, address: str = SERVER,
               **of: Any) -> Record:
        """Has a late ACK, or infers a stall, of which it sees the receiver."""
        end = {"address": address, "netns": 2, "pid": 8, "comm": "nginx", "options": recordings.options(),
               "pending_ack": {"duration_us": pending_us, "reason": "pingpong", "release": of.pop("release", "timer"),
                               "limit_us": 200_000, "bytes": 6, **of.pop("ack", {})}}
        stall = {"cause": "delayed_ack", "reason": "unknown", "side": "receiver", "evidence": "inferred",
                 "pattern": "peer_holds", "duration_us": pending_us, "excess_us": pending_us}
        return self.tell(us, {"type": kind, "family": 4, "ack_id": name_of(ack_id), "sender": {"address": ROUTER},
                              "receiver": end, **(stall if kind == "stall" else {}), **of})

    def totals(self, us: int, span_us: int, **of: Any) -> None:
        """What a daemon's stream says of the time before."""
        record = {key: value for key, value in recordings.report().items() if key in ("totals", "dropped")}
        self.tell(us, {"type": "totals", "protocol": 1, "span_us": span_us, "unseen": 0, **record, **of})
        self.number -= 1
        self.records[-1]["number"] = self.number

    def lines(self, us: int, dropped: int = 0, unseen: int | None = 0, closing: bool = True) -> list[Record]:
        report = {**recordings.report(span_us=us + self.ahead_us + ROOM), "number": self.number}
        report["dropped"] = {**report["dropped"], "ring_full": dropped}
        report |= {} if unseen is None else {"unseen": unseen}
        return [self.start, *self.records, *([report] if closing else [])]


class Joined:
    """What it said of the recordings; with --output json each record."""

    def __init__(self, tmp_path: Path, *files: list[Record] | bytes, options: tuple[str, ...] = ()) -> None:
        names = []
        for number, content in enumerate(files):
            path = tmp_path / f"{number}.jsonl"
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                path.write_text("".join(json.dumps(record) + "\n" for record in content))
            names.append(str(path))
        self.done = join(*names, *options)
        self.records: list[Record] = []
        if "json" in options and not self.done.returncode:
            self.records = [json.loads(line) for line in self.done.stdout.splitlines()]
            for record in self.records:
                wrong = jsonschema.exceptions.best_match(VALIDATOR.iter_errors(record))
                assert wrong is None, f"{wrong.message}: {record}"

    @property
    def verdicts(self) -> Counter[str]:
        return Counter("contradicted" if record.get("contradicted") else record["evidence"] for record in self.records)


JSON = ("--output", "json")


def join(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(tools() / "python3"), "-m", "nagletrace_exporters.join.main", *arguments], cwd=HERE,
                          capture_output=True, text=True, timeout=120)


def verdicts(tmp_path: Path, *files: list[Record], options: tuple[str, ...] = ()) -> Counter[str]:
    joined = Joined(tmp_path, *files, options=(*JSON, *options))
    assert joined.done.returncode == 0, joined.done.stderr
    return joined.verdicts


def both_hosts(stalls: int = 10, ahead_us: int = 0) -> tuple[Host, Host]:
    """A stall each 100 ms; web1 holds, db1 delays the ACK."""
    web, db = Host("web1", ahead_us), Host("db1")
    for number in range(stalls):
        db.delays(100_000 * number - 150, number)
        web.sends(100_000 * number, number)
    return web, db


def test_a_stall_has_both_ends_in_the_end_whatever_their_addresses(tmp_path: Path) -> None:
    web, db = both_hosts()
    joined = Joined(tmp_path, web.lines(SECOND), db.lines(SECOND), options=JSON)
    assert joined.verdicts == {"seen": 10}, joined.done.stderr
    first = joined.records[0]
    assert first["time"] == at(0) and first["side"] == "sender" and first["pattern"] == "write_write_read"
    assert {first["sender"]["host"], first["host"]} == {"web1"} and first["receiver"]["host"] == "db1"
    assert (first["sender"]["comm"], first["receiver"]["comm"]) == ("java", "nginx")
    assert (first["sender"]["address"], first["receiver"]["address"]) == (CLIENT, SERVER)
    assert first["receiver"]["pending_ack"]["reason"] == "pingpong" and first["sender"]["hold"]["bytes"] == 7
    assert first["ack_after_hold_us"] == 40_300 - 150 - 40_000
    # and nagletrace-report, -flame read it
    reading = Reading()
    assert len(list(reading.records_from(joined.done.stdout.encode().splitlines(True)))) == 10 and not reading.remarks()


def test_the_report_names_both_processes_and_the_clocks(tmp_path: Path) -> None:
    web, db = both_hosts(ahead_us=-500_000)
    joined = Joined(tmp_path, web.lines(SECOND), db.lines(SECOND))
    assert joined.done.returncode == 0 and not joined.done.stderr
    text = " ".join(joined.done.stdout.split())
    for words in ("10 stalls on 2 hosts cost 400 ms", "seen 10 at both ends", "java[7] on web1 → nginx[8] on db1",
                  "p50 40.3 ms", "write_write_read: 6 B in flight, 7 B held", "nginx[8] delays that ACK by 40.0 ms",
                  "interactive mode; the kernel's limit there is 200 ms", "evidence seen at both ends"):
        assert words in text, words
    assert "db1 is 500 ms ahead of web1 (10 ACKs)" in text


@pytest.mark.parametrize("ends,reason,said", [
    ("both", "msg_more", "MSG_MORE of the last write holds the bytes"),
    pytest.param("both", "sndbuf", "the send buffer is full", marks=pytest.mark.slow),
    pytest.param("both, a hold of it", "cwnd", "small_cwnd: 6 B in flight, 7 B held", marks=pytest.mark.slow),
    ("both, a hold of it", "msg_more", "write_write_read: 6 B in flight, 7 B held"),
    ("receiver", "unknown", "the sender waited for this ACK, mostly with bytes that Nagle holds")])
def test_what_waited_without_nagle_keeps_its_reason(ends: str, reason: str, said: str, tmp_path: Path) -> None:
    web, db = Host("web1"), Host("db1")
    if ends == "both":
        db.delays(-150, 1)
        web.sends(0, 1, cause="delayed_ack", reason=reason)
        files = [web.lines(SECOND), db.lines(SECOND)]
    elif ends == "both, a hold of it":  # too short for a stall from one end
        db.delays(-150, 1, pending_us=20_000)
        web.sends(0, 1, "hold", 20_300, held_by=reason)
        files = [web.lines(SECOND), db.lines(SECOND)]
    else:
        db.delays(-150, 1, "stall", reason=reason)
        files = [db.lines(SECOND)]
    assert said in " ".join(Joined(tmp_path, *files).done.stdout.split())
    [record] = Joined(tmp_path, *files, options=JSON).records
    assert (record["cause"], record["reason"]) == ("delayed_ack", reason)


def test_a_reason_of_a_later_version_has_its_words_too(tmp_path: Path) -> None:
    db = Host("db1")
    db.delays(-150, 1, "stall", reason="of a later version")
    assert "the sender waited for this ACK" in " ".join(Joined(tmp_path, db.lines(SECOND)).done.stdout.split())


@pytest.mark.parametrize("ahead_us", [500_000, pytest.param(-1_900_000, marks=pytest.mark.slow)])
def test_clocks_that_are_apart_join_within_the_window(ahead_us: int, tmp_path: Path) -> None:
    web, db = both_hosts(ahead_us=ahead_us)
    assert verdicts(tmp_path, web.lines(SECOND), db.lines(SECOND)) == {"seen": 10}


def test_the_window_is_an_option(tmp_path: Path) -> None:
    web, db = both_hosts(ahead_us=3 * SECOND)
    files = web.lines(SECOND), db.lines(SECOND)
    assert verdicts(tmp_path, *files)["seen"] == 0
    assert verdicts(tmp_path, *files, options=("--window", "5s")) == {"seen": 10}


def test_a_stall_that_both_hosts_infer_is_one(tmp_path: Path) -> None:
    web, db = both_hosts()
    for number in range(10):
        db.delays(100_000 * number + 200, number, kind="stall")
    assert verdicts(tmp_path, web.lines(SECOND), db.lines(SECOND)) == {"seen": 10}


def test_without_late_acks_two_inferences_meet(tmp_path: Path) -> None:
    web, db = Host("web1", late_acks=None), Host("db1", late_acks=None)
    web.sends(0, 1)
    db.delays(200, 1, kind="stall")
    db.delays(SECOND, 2, kind="stall")
    assert verdicts(tmp_path, web.lines(SECOND), db.lines(SECOND)) == {"seen": 1, "inferred": 1}


def test_what_another_file_or_a_restarted_daemon_has_again_is_told_once(tmp_path: Path) -> None:
    web, db = both_hosts()
    again = [{**web.start, "time": at(450_000)}, *({**record, "number": number} for number, record
                                                   in enumerate(web.records[3:], 1))]
    assert verdicts(tmp_path, web.lines(SECOND) + again, db.lines(SECOND), web.lines(SECOND), again) == {"seen": 10}


def test_a_stall_without_an_ack_that_is_delivered_twice_is_told_once(tmp_path: Path) -> None:
    """A tracer that numbers nothing may have had two at the same time."""
    web = Host("web1")
    for us in (0, 0, SECOND):
        web.tell(us, recordings.cork_ceiling())
    lines = web.lines(2 * SECOND)
    without_numbers = [{key: value for key, value in line.items() if key != "number"} for line in lines]
    assert Joined(tmp_path, lines, lines).done.stdout.startswith("nagletrace-join: 3 stalls on 1 host ")
    assert Joined(tmp_path, without_numbers).done.stdout.startswith("nagletrace-join: 3 stalls on 1 host ")


# ---- what the other host contradicts ----


def slow_path(web: Host, db: Host) -> tuple[Host, Host]:
    """One more of the same connection, for which db1 has no late ACK."""
    web.sends(5 * SECOND, 99)
    web.sends(8 * SECOND, 100)
    db.delays(8 * SECOND, 100)
    return web, db


def test_a_stall_whose_receiver_was_traced_and_sent_no_late_ack_is_none(tmp_path: Path) -> None:
    web, db = slow_path(*both_hosts(ahead_us=700_000))
    joined = Joined(tmp_path, web.lines(9 * SECOND), db.lines(9 * SECOND), options=JSON)
    assert joined.verdicts == {"seen": 11, "contradicted": 1}
    [dismissed] = [record for record in joined.records if record["type"] == "hold"]
    assert dismissed["ack_id"] == name_of(99) and "evidence" not in dismissed
    text = Joined(tmp_path, web.lines(9 * SECOND), db.lines(9 * SECOND)).done.stdout
    assert "1 that one end inferred and the other host contradicts" in text


@pytest.mark.parametrize(("far", "theirs"), [
    pytest.param("172.17.0.2:5432", "172.17.0.2:5432", id="containers"),  # of docker0: each host has this one
    pytest.param("10.2.0.1:30080", "10.2.0.1:9999", id="forwarded"),  # by a node, to one that nobody traces
    pytest.param("10.244.1.9:80", "10.244.1.9:80", id="clusters"),  # whose pods have the same range
])
def test_addresses_contradict_nothing(far: str, theirs: str, tmp_path: Path) -> None:
    """Neither what a sender's host infers, nor what a receiver's does: a host that has these addresses too has no part
    of the connection."""
    web, db = both_hosts()
    web.start["holds"] = "all"
    web.sends(5 * SECOND, 97, address="10.244.0.7:40000", receiver={"address": far})
    db.delays(5 * SECOND, 98, address=theirs, sender={"address": "10.244.0.7:40000"})
    db.delays(6 * SECOND, 99, kind="stall", address=theirs, sender={"address": "10.244.0.7:40000"})
    assert verdicts(tmp_path, web.lines(9 * SECOND), db.lines(9 * SECOND)) == {"seen": 10, "inferred": 2}


def test_the_address_of_a_service_leads_to_several_hosts(tmp_path: Path) -> None:
    """One of which has recorded an ACK of such a connection: later, and where another has one too, nobody knows whose
    end it is."""
    web, db = both_hosts()
    web.sends(10 * SECOND, 97)
    web.sends(70 * SECOND, 98)
    files = [web.lines(80 * SECOND), db.lines(80 * SECOND)]
    assert verdicts(tmp_path, *files) == {"seen": 10, "contradicted": 1, "inferred": 1}
    other = Host("db2")
    web.sends(20 * SECOND, 99)
    other.delays(20 * SECOND, 99)
    files[0] = web.lines(80 * SECOND)
    assert verdicts(tmp_path, *files, other.lines(80 * SECOND)) == {"seen": 11, "inferred": 2}


@pytest.mark.parametrize(("of", "verdict"), [
    ({}, "contradicted"), ({"unseen": 1}, "inferred"), ({"unseen": None}, "inferred")])
def test_a_stream_is_a_witness_by_its_totals(of: Record, verdict: str, tmp_path: Path) -> None:
    """Each excuses its own time only: what was unseen a minute before says nothing of this stall."""
    web, db = both_hosts()
    db.start |= {"type": "streaming", "protocol": 1, "number": 0}
    db.totals(2 * SECOND, 12 * SECOND, unseen=3)
    web.sends(10 * SECOND, 99)
    db.totals(20 * SECOND, 18 * SECOND, **of)
    files = [web.lines(30 * SECOND), db.lines(0, closing=False)]
    assert verdicts(tmp_path, *files) == {"seen": 10, verdict: 1}


@pytest.mark.parametrize("why", ["lost", "none after"])
def test_no_totals_of_that_time_contradict_nothing(why: str, tmp_path: Path) -> None:
    """They have no number, so that the loss of one shows by its time only."""
    web, db = both_hosts()
    db.start |= {"type": "streaming", "protocol": 1, "number": 0}
    db.totals(2 * SECOND, 12 * SECOND)
    web.sends(10 * SECOND, 99)
    if why == "lost":
        db.totals(40 * SECOND, 20 * SECOND)
    else:  # another run follows
        again = {**db.start, "time": at(25 * SECOND)}
        db.delays(20 * SECOND, 55)
    lines = db.lines(0, closing=False)
    if why == "none after":
        db.totals(40 * SECOND, 15 * SECOND, number=0)
        lines += [again, {**db.records[-1], "number": 0}]
    assert verdicts(tmp_path, web.lines(50 * SECOND), lines) == {"seen": 10, "inferred": 1}


@pytest.mark.parametrize("kind", ["late_ack", "stall"])
def test_an_ack_that_a_clock_has_moved_away_contradicts_nothing(kind: str, tmp_path: Path) -> None:
    web, db = both_hosts()
    web.sends(2 * SECOND, 50)
    db.delays(7 * SECOND, 50, kind=kind)  # somebody sets the clock of db1
    assert verdicts(tmp_path, web.lines(9 * SECOND), db.lines(9 * SECOND))["contradicted"] == 0


def test_an_ack_the_other_way_shows_whose_end_it_is(tmp_path: Path) -> None:
    web, db = Host("web1"), Host("db1")
    web.sends(5 * SECOND, 97)
    db.sends(6 * SECOND, 98, address=SERVER, receiver={"address": ROUTER})
    web.delays(6 * SECOND, 98, address=CLIENT, sender={"address": VIP})
    assert verdicts(tmp_path, web.lines(9 * SECOND), db.lines(9 * SECOND)) == {"seen": 1, "contradicted": 1}


@pytest.mark.parametrize("why", ["gap", *(pytest.param(why, marks=pytest.mark.slow) for why in (
    "dropped", "left out", "unseen", "no audit", "detached", "key changed", "filtered", "no late ACKs", "not yet",
    "over", "no report", "restarted"))])
def test_a_recording_that_may_lack_the_late_ack_contradicts_nothing(why: str, tmp_path: Path) -> None:
    web, db = slow_path(*both_hosts())
    lines = db.lines(9 * SECOND, dropped=int(why == "dropped"), unseen={"unseen": 1, "no audit": None}.get(why, 0),
                     closing=why != "no report")
    if why == "gap":  # it had the number 11, which a log has lost; the next line tells
        db.records[-1]["number"] = 12
        lines[-1]["number"] = 12
    elif why == "left out":
        lines[-1]["dropped"]["late_ack_limit"] = 1
    elif why == "detached":
        lines[-1]["detached_hooks"] = ["tcp_recvmsg"]
    elif why == "key changed":
        lines[-1]["key_changed"] = True
    elif why == "filtered":
        lines[0]["late_acks"] = "some"
    elif why == "no late ACKs":
        del lines[0]["late_acks"]
    elif why == "not yet":
        lines = [{**lines[0], "time": at(4_500_000)}, *lines[11:]]
        lines[1]["number"] = lines[2]["number"] = 1
        lines.insert(0, lines.pop(0))
        web.records = [record for record in web.records if record["time"] >= at(5 * SECOND)]
    elif why == "over":
        lines[-1]["time"] = at(5_500_000)
        del lines[-2]
        lines[-1]["number"] = 10
    elif why == "restarted":
        lines[-2]["number"] = lines[-1]["number"] = 1
        lines.insert(-2, {**lines[0], "time": at(7 * SECOND)})
    assert verdicts(tmp_path, web.lines(9 * SECOND), lines)["contradicted"] == 0


def test_an_ack_that_was_not_late_by_the_rules_of_one_host_makes_no_stall(tmp_path: Path) -> None:
    web, db = Host("web1"), Host("db1")
    web.sends(0, 1)
    db.delays(0, 1, pending_us=12_000, release="read")  # 28 of the 40 ms are the network's
    web.sends(SECOND, 2, kind="hold", duration_us=200)
    db.delays(SECOND, 2)  # written while the ACK was on its way
    web.sends(2 * SECOND, 3, kind="hold", duration_us=20_000)
    db.delays(2 * SECOND, 3)  # the sender knew too little to infer this one
    # half of the round trip was over when these bytes were written
    web.sends(3 * SECOND, 4, kind="hold", duration_us=65_000, min_rtt_us=50_000, excess_us=40_000)
    db.delays(3 * SECOND, 4)
    joined = Joined(tmp_path, web.lines(4 * SECOND), db.lines(4 * SECOND), options=JSON)
    assert joined.verdicts == {"contradicted": 1, "seen": 2}
    assert [(one["ack_id"], one["excess_us"]) for one in joined.records if "excess_us" in one] == [
        (name_of(3), 19_700), (name_of(4), 40_000)]


def test_the_ack_of_a_locked_socket_left_later_than_its_timer_says(tmp_path: Path) -> None:
    web, db = Host("web1"), Host("db1")
    for number, pending_us, ack in ((1, 40_000, {}), (2, 40_000, {"locked": True}), (3, 29_000, {"locked": True})):
        web.sends(number * SECOND, number, duration_us=160_000)
        db.delays(number * SECOND, number, pending_us=pending_us, ack=ack)
    joined = Joined(tmp_path, web.lines(4 * SECOND), db.lines(4 * SECOND), options=JSON)
    assert joined.verdicts == {"contradicted": 2, "seen": 1}
    [seen] = [record for record in joined.records if record.get("evidence") == "seen"]
    assert seen["ack_id"] == name_of(2) and "ack_after_hold_us" not in seen, "nobody knows when the ACK left"


def test_with_one_record_in_ten_removed_nothing_false_is_told(tmp_path: Path) -> None:
    web, db = both_hosts(stalls=100)
    for lost in (web, db):
        kept = {host.name: [line for line in host.lines(10 * SECOND)
                            if host is not lost or line["type"] == "report" or line.get("number", 0) % 10 != 7]
                for host in (web, db)}
        joined = Joined(tmp_path, kept["web1"], kept["db1"], options=JSON)
        wanted = {"seen": 90} if lost is web else {"seen": 90, "inferred": 10}
        assert joined.verdicts == wanted, joined.done.stderr


@pytest.mark.parametrize("why", ["", "no holds", *(pytest.param(why, marks=pytest.mark.slow)
                                                   for why in ("gap", "over", "in time", "dropped"))])
def test_a_stall_whose_sender_told_all_its_holds_and_not_this_one_is_none(why: str, tmp_path: Path) -> None:
    """The receiver's host infers it, since data came by chance just after its late ACK."""
    web, db = both_hosts(ahead_us=-700_000)
    web.start["holds"] = "all" if why == "in time" else "late"
    db.delays(5 * SECOND, 99, kind="stall")
    web.sends(5_100_000, 100)
    db.delays(5_100_000, 100)
    lines = web.lines(9 * SECOND)
    if why == "no holds":
        db.start["holds"] = web.start.pop("holds")
    elif why == "gap":
        lines[-2]["number"] += 1
        lines[-1]["number"] += 1
    elif why == "dropped":
        lines[-1]["dropped"]["hold_map_full"] = 1
    elif why in ("over", "in time"):  # a second after the stall it is 5.3 s by web1's clock
        lines[-1]["time"] = at(5_200_000 if why == "over" else 5_400_000)
    wanted = "contradicted" if why in ("", "in time") else "inferred"
    assert verdicts(tmp_path, lines, db.lines(9 * SECOND)) == {"seen": 11, wanted: 1}


# ---- what is wrong with the input ----


def test_different_keys_are_told(tmp_path: Path) -> None:
    web, db = Host("web1", key="1" * 16), Host("db1")
    web.sends(0, 1)
    db.delays(0, 2)
    done = Joined(tmp_path, web.lines(SECOND), db.lines(SECOND)).done
    assert "give all hosts the same --fleet-key" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("kind", ["start", "streaming"])
def test_recordings_without_late_acks_are_told(kind: str, tmp_path: Path) -> None:
    web, db = Host("web1", late_acks=None), Host("db1")
    web.start["type"] = kind
    web.sends(0, 1)
    done = Joined(tmp_path, web.lines(SECOND), db.lines(SECOND)).done
    told = "1 of the recordings have no late ACKs; give nagletrace --late-acks, or its daemon --max-late-acks 100."
    assert told in done.stderr


def test_recordings_of_a_nagletrace_that_names_no_ack_are_told(tmp_path: Path) -> None:
    web, db = both_hosts(stalls=1)
    for record in web.records + db.records:
        del record["ack_id"]
    told = "no record names its ACK; record with a nagletrace that has --fleet-key."
    assert told in Joined(tmp_path, web.lines(SECOND), db.lines(SECOND)).done.stderr
    # of hosts on which nothing stalls there is nothing to say
    done = Joined(tmp_path, Host("web1").lines(SECOND), Host("db1").lines(SECOND)).done
    assert done.stdout.startswith("nagletrace-join: 0 stalls on 2 hosts") and not done.stderr


NAME = "\x1b[2J\n<b>" + "x" * 5000


def test_hostile_lines_break_nothing(tmp_path: Path) -> None:
    web, db = both_hosts()
    bad = [b"\xff\xfe\n", b"[1]\n", b"{\n", b"null\n", b'{"type":7}\n', b'{"type":"stall","sender":7}\n', b'"x"\n',
           json.dumps({**web.records[0], "number": 10**30, "duration_us": -1}).encode() + b"\n",
           json.dumps({**web.records[1], "host": NAME, "sender": {**web.records[1]["sender"], "comm": NAME}}).encode()
           + b"\n", json.dumps({**web.records[2], "time": "yesterday", "ack_id": "'; DROP"}).encode() + b"\n"]
    good = "".join(json.dumps(record) + "\n" for record in web.lines(SECOND)).encode()
    joined = Joined(tmp_path, b"".join(bad) + good, db.lines(SECOND))
    assert joined.done.returncode == 0 and "lines could not be read" in joined.done.stderr
    assert "at both ends" in joined.done.stdout and "\x1b" not in joined.done.stdout and "<b>x" in joined.done.stdout


@pytest.mark.parametrize(("content", "told"), [(b"hello\nworld\n", "not a recording"), (b"\0" * 5000, "0.jsonl: ")],
                         ids=["text", "zeros"])
def test_another_file_is_refused_in_one_line(content: bytes, told: str, tmp_path: Path) -> None:
    done = Joined(tmp_path, content).done
    assert done.returncode == 2 and told in done.stderr and done.stderr.count("\n") == 1 and not done.stdout


def test_the_files_that_are_no_recordings_are_named(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("empty", "bro[ck]en", "another")]
    for path, text in zip(paths, ("", "hello\n", '{"type":"sample"}\n')):
        path.write_text(text)
    done = subprocess.run([tools() / "python3", "-m", "nagletrace_exporters.join.main", *paths, "-"], cwd=HERE,
                          input="world\n", capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"nagletrace-join: {paths[1]}, -: not a recording"), done.stderr


@pytest.mark.parametrize(("arguments", "told"), [
    (("/no/such/file",), "No such file"), (("/",), "a directory"), (("-", "-"), "named twice"),
    (("x", "--window", "5"), "needs a unit"), (("x", "--memory", "lots"), "512MB"), ((), "required: FILE")])
def test_a_wrong_command_line_is_one_line_and_exit_code_2(arguments: tuple[str, ...], told: str) -> None:
    done = join(*arguments)
    assert done.returncode == 2 and told in done.stderr and done.stderr.count("\n") == 1


def test_a_file_of_two_names_is_named_twice(tmp_path: Path) -> None:
    file, link = tmp_path / "a.jsonl", tmp_path / "link"
    file.touch()
    link.symlink_to(file)
    for name in (f"{tmp_path}/./a.jsonl", str(link)):
        with pytest.raises(RecordingError, match="named twice"):
            check_files(["-", str(file), name])
    check_files(["-", str(file), "/dev/null", "/dev/./null"])


def test_a_recording_may_come_by_a_pipe_or_be_compressed(tmp_path: Path) -> None:
    web, db = both_hosts()
    text = "".join(json.dumps(record) + "\n" for record in web.lines(SECOND))
    (tmp_path / "db.jsonl.gz").write_bytes(gzip.compress("".join(
        json.dumps(record) + "\n" for record in db.lines(SECOND)).encode()))
    done = subprocess.run([str(tools() / "python3"), "-m", "nagletrace_exporters.join.main", "-",
                           str(tmp_path / "db.jsonl.gz")], cwd=HERE, input=text, capture_output=True, text=True,
                          timeout=120)
    assert "10 at both ends" in " ".join(done.stdout.split()), done.stderr


def test_a_recording_may_come_by_a_named_pipe(tmp_path: Path) -> None:
    web, db = both_hosts()
    paths = [tmp_path / "web", tmp_path / "db"]
    os.mkfifo(paths[0])
    paths[1].write_text("".join(json.dumps(record) + "\n" for record in db.lines(SECOND)))
    text = "".join(json.dumps(record) + "\n" for record in web.lines(SECOND))
    writer = threading.Thread(target=paths[0].write_text, args=(text,), daemon=True)
    writer.start()
    done = join(*map(str, paths))
    writer.join(60)
    assert "10 at both ends" in " ".join(done.stdout.split()), done.stderr
    paths[1] = tmp_path / "db.gz"
    paths[1].write_bytes(gzip.compress(text.encode())[:100])
    writer = threading.Thread(target=paths[0].write_text, args=(text,), daemon=True)
    writer.start()
    done = join(*map(str, paths))  # which of them it is cannot be found out: nobody writes the other one again
    assert done.returncode == 2 and "one of the recordings: cannot read it" in done.stderr, done.stderr


def test_sigterm_leaves_no_file_behind(tmp_path: Path) -> None:
    process = subprocess.Popen([str(tools() / "python3"), "-m", "nagletrace_exporters.join.main", "-"], cwd=HERE,
                               text=True, env={**os.environ, "TMPDIR": str(tmp_path)}, stdin=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    wait_until("it has its directory", lambda: list(tmp_path.iterdir()))
    process.terminate()
    assert process.communicate(timeout=60) == (None, "nagletrace-join: stopped\n")
    assert (process.returncode, list(tmp_path.iterdir())) == (1, [])


def test_a_pipe_that_is_no_recording_is_read_once(tmp_path: Path) -> None:
    good = tmp_path / "good.jsonl"
    good.write_text(json.dumps(Host("web1").start) + "\n")
    done = subprocess.run([tools() / "python3", "-m", "nagletrace_exporters.join.main", good, "-"], cwd=HERE,
                          input="x" * (17 << 20), capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "one of the recordings: cannot read it" in done.stderr, done.stderr


@pytest.mark.parametrize(("save", "files", "told"), [
    ((), 2, "$TMPDIR"), (("--save", "kept"), 2, "--save"), (("--save", "kept"), 1, "--save")])
def test_a_full_disk_is_no_recordings_fault(save: tuple[str, ...], files: int, told: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.jsonl" for number in range(files)]
    for path, host in zip(paths, both_hosts(stalls=1000)):
        path.write_text("".join(json.dumps(record) + "\n" for record in host.lines(SECOND)))
    save = tuple(str(tmp_path / one) if one == "kept" else one for one in save)
    done = subprocess.run(["prlimit", "--fsize=8192", tools() / "python3", "-m", "nagletrace_exporters.join.main",
                           *paths, *save], cwd=HERE, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert done.stderr.startswith('nagletrace-join: DuckDB has no room: Could not write file "/'), done.stderr
    assert done.stderr.endswith(f'": File too large; name another place with {told}\n'), done.stderr


def test_whatever_duckdb_is_asked_its_errors_are_one_line() -> None:
    """At first there are no tables, then no row can be had."""
    script = """
import duckdb
from nagletrace_exporters.cli import CommandError
from nagletrace_exporters.join.engine import Engine
class Fails:
    description = ()
    def execute(self, *_): return self
    def fetchall(self, *_): raise duckdb.Error("no row")
    fetchmany = fetchall
engine = Engine("100MB")
for engine.database in (engine.database, Fails()):
    for ask in (engine.clocks, engine.counts, engine.hosts, engine.tally, lambda: engine.groups(1),
                lambda: list(engine.answers())):
        try:
            ask()
        except CommandError as error:
            print(error)
try:
    Engine("much")
except CommandError as error:
    print(error)
"""
    done = subprocess.run([tools() / "python3", "-c", script], cwd=HERE, capture_output=True, text=True)
    told = done.stdout.splitlines()
    assert len(told) == 13 and all("give it more memory with --memory" in line for line in told), [*told, done.stderr]


@pytest.mark.slow
def test_what_is_saved_is_joined_as_the_recordings_are(tmp_path: Path) -> None:
    """Also with recordings, and whatever it is made of."""
    web, db = slow_path(*both_hosts(ahead_us=700_000))
    files = web.lines(9 * SECOND), db.lines(9 * SECOND)
    paths = [str(tmp_path / f"{number}.jsonl") for number in range(2)]
    for options in ((), JSON):
        wanted = Joined(tmp_path, *files, options=options).done.stdout
        kept = [str(tmp_path / f"{number}.columns") for number in range(2)]
        for path, column in zip(paths, kept):
            assert join(path, "--save", column, *options).returncode == 0
        both = str(tmp_path / "both's [1].columns")
        assert join(*paths, "--save", both, *options).stdout == wanted
        for again in (kept, [kept[0], paths[1]], [kept[1], paths[0]], [both], [both, *kept], [both, *paths]):
            done = join(*again, *options)
            assert (done.stdout, done.stderr, done.returncode) == (wanted, "", 0), again
    assert not list(tmp_path.glob(".*")), "nothing else is left"


def test_what_is_no_recording_is_not_saved(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("as before")
    joined = Joined(tmp_path, b"no recording\n", options=("--save", str(kept)))
    assert joined.done.returncode == 2 and "not a recording" in joined.done.stderr
    assert kept.read_text() == "as before" and not list(tmp_path.glob(".*"))


def foreign_columns(path: Path, metadata: str = "") -> str:
    code = f"import duckdb; duckdb.execute(\"COPY (SELECT 1 AS line) TO '{path}' (FORMAT parquet{metadata})\")"
    subprocess.run([tools() / "python3", "-c", code], check=True)
    return str(path)


@pytest.mark.parametrize("what", ["saved already", *(pytest.param(what, marks=pytest.mark.slow) for what in (
    "a recording", "no file"))])
def test_no_file_is_replaced_that_holds_more(what: str, tmp_path: Path) -> None:
    recording, kept = tmp_path / "web1.jsonl", tmp_path / "kept; of web1"
    recording.write_text(json.dumps(both_hosts()[0].start) + "\n")
    assert join(str(recording), "--save", str(kept)).returncode == 0
    files, save = {"saved already": ([kept, recording], kept), "a recording": ([recording], recording),
                   "no file": ([recording], Path("/dev/null"))}[what]
    before = [path.read_bytes() for path in (recording, kept)]
    done = join(*map(str, files), "--save", str(save))
    told = {"saved already": "is saved already", "a recording": "it is one of the recordings",
            "no file": "it is no regular file"}[what]
    assert done.returncode == 2 and told in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert [path.read_bytes() for path in (recording, kept)] == before and Path("/dev/null").is_char_device()
    assert join(str(kept)).returncode == 0, "its name has a semicolon"


@pytest.mark.parametrize("what", ["foreign", "older", "cut", "no recording", "no directory"])
def test_a_file_of_columns_that_is_not_ours_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    path = tmp_path / "kept"
    if what == "cut":
        path.write_bytes(b"PAR1" + b"x" * 100)
    elif what == "older":
        foreign_columns(path, ", KV_METADATA {nagletrace_join: '0123456789abcdef'}")
    else:
        foreign_columns(path)
    save = {"no recording": str(tmp_path / "again"), "no directory": "/nowhere/kept"}.get(what)
    options = ("--save", save) if save else ()
    if what == "no directory":
        path.write_text(json.dumps(both_hosts()[0].start) + "\n")
    done = join(str(path), *options)
    told = {"cut": "cannot read it", "no recording": "is saved already",
            "no directory": "give a file in a directory"}.get(what, "this nagletrace-join did not make it")
    assert done.returncode == (1 if what == "no directory" else 2) and told in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and not done.stdout


@pytest.mark.slow
def test_a_recording_that_is_read_in_parts_has_no_gap(tmp_path: Path) -> None:
    """DuckDB's threads take parts of 32 MB of a file each, and may have them in any order."""
    web, db = Host("web1"), Host("db1")
    filler = "x" * 20_000
    for number in range(5_000):
        db.delays(2_000 * number - 150, number, filler=filler)
        web.sends(2_000 * number, number, filler=filler)
    web.sends(6 * SECOND, 999_999)
    files = [sorted(host.lines(11 * SECOND), key=lambda line: line["time"]) for host in (web, db)]
    for lines in files:
        for number, line in enumerate(lines[1:-1], 1):
            line["number"] = number
    for _ in range(3):
        assert verdicts_of_text(tmp_path, *files) == (5_000, 1)


def verdicts_of_text(tmp_path: Path, *files: list[Record]) -> tuple[int, int]:
    """How many are seen, and how many dismissed."""
    text = Joined(tmp_path, *files).done.stdout
    return tuple(int(found[1].replace(",", "")) if (found := re.search(pattern, text)) else 0
                 for pattern in (r"seen +([\d,]+)", r"dismissed +([\d,]+)"))


def test_a_name_is_no_pattern(tmp_path: Path) -> None:
    web, db = both_hosts()
    for name, host in (("[ab]*.jsonl", web), ("a.jsonl", db)):
        (tmp_path / name).write_text("".join(json.dumps(record) + "\n" for record in host.lines(SECOND)))
    done = join(str(tmp_path / "[ab]*.jsonl"))
    assert "10 from one end" in done.stdout, done.stderr


def test_without_duckdb_one_line_says_how_to_get_it() -> None:
    script = ("import sys; sys.modules['duckdb'] = None; sys.argv = ['nagletrace-join', '/dev/null']; "
              "from nagletrace_exporters.join.main import main; sys.exit(main())")
    done = subprocess.run([sys.executable, "-c", script], cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("nagletrace-join: DuckDB")
    assert "sudo pip install duckdb" in done.stderr
