# SPDX-License-Identifier: GPL-2.0
"""`nagletrace sample` names the sockets that are held, by an iterator and without privilege, and its estimate is the
time lost: by the application's clock, and by the tracer's."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from harness import NAGLETRACE, PATIENCE, Lab, Lines, Record, Tracer, assert_valid, run, trace
from processes import NOBODY, Ends, kill

OWN = ("--own-netns",)
VETH = ("--over", "veth")
#: Rounds that no test plays to their end.
MANY = ("--rounds", "100000")
#: The tracer's estimate is better than this over 30 s.
ACCURATE = 0.15


class Sampler(Ends):
    """A run of `nagletrace sample` in JSON, which looks when the constructor returns."""

    def __init__(self, *arguments: str, prefix: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen([*prefix, str(NAGLETRACE), "sample", "--json", *arguments],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.errors = Lines(self.process.stderr)
        self.lines = Lines(self.process.stdout)
        self.errors.wait_for("nagletrace: ready")

    def sees(self, word: str) -> None:
        """Waits for a report that has this in it."""
        until = time.monotonic() + PATIENCE
        while word not in (line := self.lines.wait_for('"type":"sample"')):
            assert time.monotonic() < until, (self.process.args, line, self.errors.text())

    def stop(self) -> Record:
        """The closing report."""
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self) -> Record:
        assert self.process.wait(PATIENCE + 60) == 0, self.errors.text()
        self.lines.finish()
        self.errors.finish()
        records = [json.loads(line) for _, line in self.lines.all]
        for record in records:
            assert_valid(record)
        assert [record["closing"] for record in records] == [False] * (len(records) - 1) + [True]
        return dict(records[-1])

    def close(self) -> None:
        kill(self.process)


def inside(lab: Lab) -> tuple[str, ...]:
    """Without privilege, in the namespace of the lab's client."""
    return ("nsenter", "-t", str(lab.client), "-n", *NOBODY)


def of_lab(lab: Lab) -> tuple[str, ...]:
    return ("-p", f"{lab.client},{lab.server}")


def stalls(sample: Record) -> list[Record]:
    return [c for c in sample["connections"] if c.get("cause") == "nagle_delayed_ack"]


# ---- who is held ----


@pytest.mark.quick
@pytest.mark.guest
def test_a_held_socket_is_named_with_process_and_addresses() -> None:
    with Lab("write-write-read", *VETH, *MANY) as lab, Sampler(*of_lab(lab), "-i", "300ms") as sampler:
        lab.go()
        sampler.sees('"cause":"nagle_delayed_ack"')
        sample = sampler.stop()
    assert sample["source"] == "iterator"
    [connection] = stalls(sample)
    sender = connection["sender"]
    assert (sender["pid"], sender["comm"], sender["netns"]) == (lab.client, "lab-client", lab.ready["client"]["netns"])
    assert {"client": sender["address"], "server": connection["receiver"]["address"]} in [
        {key: c[key] for key in ("client", "server")} for c in lab.ready["connections"]]
    assert sender["options"] == {"nodelay": False, "cork": False, "pingpong": True, "quickack": False}
    assert {key: sender["hold"][key] for key in ("reason", "bytes", "in_flight_bytes")} == {
        "reason": "nagle", "bytes": 7, "in_flight_bytes": 6}
    assert 15_000 <= sender["hold"]["duration_us"]


@pytest.mark.quick
@pytest.mark.guest
def test_without_privilege_the_own_namespace_is_seen_and_one_line_says_what_is_not() -> None:
    with Lab("write-write-read", *VETH, *MANY) as lab, Sampler("-i", "300ms", prefix=inside(lab)) as sampler:
        lab.go()
        sampler.sees('"cause":"nagle_delayed_ack"')
        sample = sampler.stop()
        [said] = [line for _, line in sampler.errors.all if "ready" not in line]
    assert re.fullmatch(r"nagletrace: by sock_diag \(.*CAP_BPF.*\): this network namespace only, other users' "
                        r"processes unnamed, TCP_NODELAY and TCP_CORK unknown", said)
    assert sample["source"] == "sock_diag"
    [connection] = stalls(sample)
    sender = connection["sender"]
    assert sender["address"] in [c["client"] for c in lab.ready["connections"]]
    assert sender["netns"] == lab.ready["client"]["netns"]
    assert not {"pid", "comm", "options"} & set(sender) and "in_flight_bytes" not in sender["hold"]
    assert (sender["hold"]["reason"], sender["hold"]["bytes"]) == ("nagle", 7)


@pytest.mark.quick
def test_without_privilege_one_s_own_processes_are_named() -> None:
    with Lab("idle", *OWN, *MANY) as lab, Lab("write-write-read", *MANY, prefix=inside(lab)) as own, \
            Sampler("-i", "300ms", "-p", str(own.client), prefix=inside(lab)) as sampler:
        own.go()
        sampler.sees('"cause":"nagle_delayed_ack"')
        sample = sampler.stop()
    assert sample["source"] == "sock_diag"
    assert [c["sender"]["pid"] for c in stalls(sample)] == [own.client]


@pytest.mark.quick
@pytest.mark.parametrize("more,reason", [((), "cork"), (("--msg-more",), "msg_more")])
def test_a_corked_writer_is_held_and_no_stall(more: tuple[str, ...], reason: str) -> None:
    with Lab("cork-forgotten", *VETH, *more, *MANY) as lab:
        with Sampler(*of_lab(lab), "-i", "300ms") as by_iterator, \
                Sampler("-i", "300ms", prefix=inside(lab)) as by_diag:
            lab.go()
            by_iterator.sees(f'"reason":"{reason}"')
            by_diag.sees('"connections":[{')
            one, other = by_iterator.stop(), by_diag.stop()
    assert [c["sender"]["hold"]["reason"] for c in one["connections"]] == [reason]
    # nothing is in flight, which sock_diag does tell: that is no Nagle, and it does not say that it is
    assert [c["sender"]["hold"].get("reason") for c in other["connections"]] == [None]
    for sample in (one, other):
        assert not stalls(sample) and sample["excess_us_per_s"] == 0


@pytest.mark.guest
@pytest.mark.parametrize("scenario", [
    *(pytest.param(one, marks=pytest.mark.quick, id=" ".join(one)) for one in (("slow-reader",),)),
    *(pytest.param(one, id=" ".join(one)) for one in (
        ("echo",), ("bulk",), ("rate-limited", "--cc", "cubic", "--size", "3000"), ("long-rtt", "--cc", "cubic"),
        ("write-write-read", "--nodelay")))])
def test_what_is_no_stall_is_not_called_one(scenario: tuple[str, ...]) -> None:
    holds = scenario[0] in ("bulk", "rate-limited", "slow-reader", "long-rtt")
    with Lab(*scenario, *VETH, *MANY) as lab:
        with Sampler("--all-holds", *of_lab(lab), "-i", "1s") as by_iterator, \
                Sampler("--all-holds", "-i", "1s", "--count", "1", prefix=inside(lab)) as by_diag:
            lab.go()
            other = by_diag.wait()
            if holds:  # a slow machine looks once a second, and may look when nothing is held
                by_iterator.sees('"connections":[{')
            samples = by_iterator.stop(), other
    for sample in samples:
        assert not stalls(sample) and sample["excess_us_per_s"] == 0, sample
        assert sample["looks"] and sample["error_us_per_s"] == 3_000_000 // sample["looks"]
    if holds:
        assert "nagle" not in {c["sender"]["hold"]["reason"] for c in samples[0]["connections"] if c["late_looks"]}
        assert samples[0]["connections"], "it holds bytes all the time, for reasons that are not Nagle's"


def delayed_acks(pid: int) -> int:
    """How many the kernel's timers have sent in the namespace of this process."""
    names, counts = (line.split() for line in Path(f"/proc/{pid}/net/netstat").read_text().splitlines()[:2])
    return int(counts[names.index("DelayedACKs")])


#: The server sends a byte each so many s, whatever comes; the client writes twice after each byte.
RHYTHM = """
import socket, sys, threading, time
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server = listener.accept()[0]
def take():
    while server.recv(100):
        pass
def ask():
    while client.recv(1):
        client.sendall(b"question1")
        client.sendall(b"question2")
for work in (take, ask):
    threading.Thread(target=work, daemon=True).start()
print(flush=True)
while True:
    time.sleep(float(sys.argv[1]))
    server.sendall(b"1")
"""


@pytest.mark.parametrize("pace", [pytest.param("0.025", marks=pytest.mark.quick), "0.030"])
def test_a_hold_that_the_peer_s_data_ends_is_no_stall(pace: str) -> None:
    with Lab("idle", *OWN, *MANY) as lab:
        command = [*inside(lab), sys.executable, "-c", RHYTHM, pace]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as own:
            try:
                assert own.stdout and own.stdout.readline() == b"\n"
                before = delayed_acks(own.pid)
                here = ("-i", "3s", "--count", "1", "--all-holds")
                with Sampler(*here, "-p", str(own.pid)) as by_iterator, \
                        Sampler(*here, prefix=inside(lab)) as by_diag:
                    samples = by_iterator.wait(), by_diag.wait()
                late = delayed_acks(own.pid) - before
            finally:
                own.kill()
    for sample in samples:
        assert sample["connections"], "it holds bytes most of the time"
        # on a busy machine the server may be so late that its timer does send an ACK
        assert sample["excess_us_per_s"] <= 100_000 * late, (late, sample)


@pytest.mark.quick
def test_an_idle_host_loses_nothing() -> None:
    with Lab("idle", *OWN, *MANY) as lab:
        lab.go()
        done = run("sample", "--netns", str(lab.client), "-d", "1s")
    assert done.returncode == 0
    assert re.match(r"nagletrace: no stall seen; they cost less than \d+(\.\d+)? ms a second\n +"
                    r"\(\d+ looks in 1\.0\d s by iterator, .* of CPU each\)\n\n$", done.stdout), done.stdout


@pytest.mark.quick
def test_it_says_when_it_sees_not_all_namespaces() -> None:
    bpf = ("--inh-caps=-all,+bpf,+perfmon", "--ambient-caps=-all,+bpf,+perfmon", "--bounding-set=-all,+bpf,+perfmon")
    with Lab("idle", *VETH, *MANY) as lab:
        lab.go()
        few = run("sample", "-d", "300ms", prefix=(*NOBODY[:4], *bpf))
        root = run("sample", "-d", "300ms")
    assert few.returncode == root.returncode == 0
    assert "by iterator" in few.stdout and "by iterator" in root.stdout
    said = "nagletrace: not all network namespaces looked at: CAP_SYS_ADMIN or CAP_SYS_PTRACE missing"
    assert few.stderr.splitlines() == ["nagletrace: ready", said] and root.stderr == "nagletrace: ready\n"


# ---- how much ----


def check_estimate(sample: Record, lost_us_per_s: float, allowed: float) -> None:
    """It is within its own error, at 95 % confidence, or within what is allowed besides."""
    difference = abs(sample["excess_us_per_s"] - lost_us_per_s)
    assert difference <= max(1.5 * sample["error_us_per_s"], allowed * lost_us_per_s), (sample, lost_us_per_s)


def compare(scenario: tuple[str, ...], seconds: float) -> None:
    """An estimate by both ways beside what the tracer told and what the application measured.

    The lab ends when it has played its rounds, and then all end: all see the same time.
    """
    rounds = round(seconds / 0.044)
    with Lab(*scenario, *VETH, "--rounds", str(rounds)) as lab:
        with Sampler(*of_lab(lab)) as by_iterator, Sampler(prefix=inside(lab)) as by_diag:
            result, tracer = trace(lab, *of_lab(lab))
            samples = by_iterator.wait(), by_diag.stop()
    felt_us = sum(r["latency_us"] for r in result["rounds"] if r["latency_us"] >= 30_000)
    told_us = sum(s["excess_us"] for s in tracer.stalls() if s["side"] == "sender")
    assert told_us, "the tracer told of stalls"
    for sample in samples:
        span_s = sample["span_us"] / 1e6
        check_estimate(sample, told_us / span_s, ACCURATE)
        check_estimate(sample, felt_us / span_s, ACCURATE)


def test_the_estimate_is_the_tracer_s_and_the_application_s_within_its_error() -> None:
    compare(("write-write-read",), 4)


@pytest.mark.parametrize("scenario", [("write-write-read",), ("header-body", "--interval", "20ms"),
                                      ("write-write-read", "-6")], ids=" ".join)
def test_over_30_s_the_estimate_is_within_its_error(scenario: tuple[str, ...]) -> None:
    with Lab(*scenario, *VETH, *MANY) as lab, Tracer(*of_lab(lab)) as tracer, \
            Sampler(*of_lab(lab), "-i", "30s", "--count", "1") as by_iterator, \
            Sampler("-i", "30s", "--count", "1", prefix=inside(lab)) as by_diag:
        lab.go()
        samples = by_iterator.wait(), by_diag.wait()
        tracer.stop()
    report = tracer.closing()
    lost = report["excess_us"] / (report["span_us"] / 1e6)
    for sample in samples:
        check_estimate(sample, lost, ACCURATE)
        assert sample["error_us_per_s"] <= 0.3 * lost, (sample, lost)


def test_over_30_s_the_estimate_of_many_connections_is_within_15_percent() -> None:
    """Random rounds on 40 connections, some of them corked, paced, or without Nagle."""
    with Lab("mix", *VETH, "--seconds", "35", "--seed", "3") as lab, \
            Tracer(*of_lab(lab)) as tracer, Sampler(*of_lab(lab), "-i", "30s", "--count", "1") as sampler:
        lab.go()
        sample = sampler.wait()
        tracer.stop()
    told = [s["excess_us"] for s in tracer.stalls() if s["side"] == "sender" and s["cause"] == "nagle_delayed_ack"]
    lost = sum(told) / (tracer.closing()["span_us"] / 1e6)
    assert abs(sample["excess_us_per_s"] - lost) <= ACCURATE * lost, (sample["excess_us_per_s"], lost)


# ---- what is asked for ----


def test_text_fits_80_columns_and_wide_has_whole_addresses() -> None:
    with Lab("write-write-read", "-6", *VETH, *MANY) as lab:
        lab.go()
        narrow = run("sample", *of_lab(lab), "1", "1")
        wide = run("sample", *of_lab(lab), "1", "1", "--wide")
    for done in (narrow, wide):
        assert done.returncode == 0 and re.match(r"nagletrace: stalls cost .* a second, ± ", done.stdout), done
    assert max(map(len, narrow.stdout.splitlines())) <= 80
    assert "looked too seldom" not in narrow.stdout or int(re.findall(r"(\d+) looks", narrow.stdout)[0]) < 10
    assert re.search(rf"^lab-client\[{lab.client}\] +nagle +", narrow.stdout, re.MULTILINE)
    connection = lab.ready["connections"][0]
    assert f"{connection['client']} → {connection['server']}" in wide.stdout


@pytest.mark.quick
def test_few_looks_are_called_few_and_no_connection_loses_more_than_there_is() -> None:
    with Lab("write-write-read", "--rounds", "30") as lab:
        lab.go()
        done = run("sample", *of_lab(lab), "0.2", "3", "-j")
    assert "looked too seldom" in run("sample", "0.2", "1").stdout
    records = [json.loads(line) for line in done.stdout.splitlines()]
    lost = [connection.get("excess_us_per_s", 0) for record in records for connection in record["connections"]]
    assert done.returncode == 0 and len(records) == 4 and 0 < max(lost) <= 1_000_000, records


@pytest.mark.quick
def test_filters_choose() -> None:
    with Lab("write-write-read", *OWN, *MANY) as lab:
        lab.go()
        client = lab.ready["connections"][0]["client"].rpartition(":")[2]
        here = ("--netns", str(lab.client))
        cases: list[tuple[bool, tuple[str, ...]]] = [
            (True, ("-P", lab.port)), (True, ("-L", client)), (False, ("-L", lab.port)), (True, ("-D", lab.port)),
            (False, ("-D", client)), (True, ("-4",)), (False, ("-6",)), (True, ("-n", "lab-client")),
            (False, ("-n", "nobody")), (True, ("-p", str(lab.client))), (True, ("-p", str(lab.process.pid))),
            (False, ("-p", str(os.getppid()), "-P", "1"))]
        with contextlib.ExitStack() as stack:
            samplers = [stack.enter_context(Sampler("-i", "300ms", *here, *filters)) for _, filters in cases]
            for sampler, (seen, _) in zip(samplers, cases):
                if seen:
                    sampler.sees('"cause":"nagle_delayed_ack"')
            for sampler, (seen, filters) in zip(samplers, cases):
                sample = sampler.stop()
                assert sample["looks"] and bool(stalls(sample)) == seen, (filters, sample)


@pytest.mark.quick
def test_the_end_of_the_process_ends_it() -> None:
    with Lab("write-write-read", *VETH, "--rounds", "5") as lab, Sampler("-p", str(lab.client)) as sampler:
        lab.play()
        sampler.wait()
        assert "nagletrace: the process ended" in sampler.errors.text()


@pytest.mark.quick
def test_of_two_processes_the_last_one_ends_it() -> None:
    first, second = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    with Sampler("-p", f"{first.pid},{second.pid}", "-i", "100ms") as sampler:
        kill(first)
        for _ in range(len(sampler.lines.all) + 2):  # all that were written by now, and two more
            sampler.sees('"closing":false')
        kill(second)
        sampler.wait()
        assert sampler.errors.text().splitlines()[-1] == "nagletrace: all processes ended"


@pytest.mark.quick
@pytest.mark.parametrize("arguments,code,said", [
    (("5x",), 2, "5x: one word too many|INTERVAL 5x: not a number of seconds; give for example 5"),
    (("0",), 2, "INTERVAL 0: not a number of seconds; give for example 5"),
    (("1", "0"), 2, "COUNT 0: not a count; give 1 or more"),
    (("1", "2", "3"), 2, "3: one word too many; give INTERVAL [COUNT] in seconds"),
    (("--count", "2"), 2, "--count 2: counts the reports of --interval; give both"),
    (("--stacks",), 2, "--stacks: does not go with `sample`; leave it out"),
    (("--hooks", "function"), 2, "--hooks: does not go with `sample`; leave it out"),
    (("--min", "5ms"), 2, "--min: does not go with `sample`; leave it out"),
    (("--timeline",), 2, "--timeline: does not go with `sample`; leave it out"),
    (("-p", "4194304"), 2, "--pid 4194304: no such process; `pgrep -a NAME` lists those that run"),
    (("-c", "/no/such"), 2, "--cgroup /no/such: no such cgroup v2; give a path under /sys/fs/cgroup, as "
                            "/proc/PID/cgroup shows it"),
])
def test_a_wrong_command_line_is_one_line(arguments: tuple[str, ...], code: int, said: str) -> None:
    done = run("sample", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr in {f"nagletrace: {one}\n" for one in said.split("|")}


@pytest.mark.quick
def test_another_namespace_takes_privileges() -> None:
    with Lab("idle", *OWN, *MANY) as lab:
        netns = f"/proc/{lab.client}/ns/net"
        # the file is opened by one who may, and read by one who may not
        done = subprocess.run(["sh", "-c", f'exec 3<{netns} && exec {" ".join(NOBODY)} "$@" --netns /proc/self/fd/3',
                               "sh", str(NAGLETRACE), "sample"], capture_output=True, text=True, timeout=PATIENCE,
                              pass_fds=())
    assert done.returncode == 4 and done.stderr.count("\n") == 1, done
    assert "--netns" in done.stderr
