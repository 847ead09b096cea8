# SPDX-License-Identifier: GPL-2.0
"""The lab and the tracer as the live tests drive them: wait for `ready`, never for time."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import statistics
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NAGLETRACE = ROOT / "build" / "nagletrace"
NAGLE_LAB = ROOT / "build" / "nagle-lab"
IN_GUEST = "NAGLETRACE_GUEST" in os.environ
#: An emulated guest is slow; nothing waits longer than this.
PATIENCE = 60.0 if IN_GUEST else 15.0
#: A round in which the application waited this long has stalled: no timer is shorter, no fast round longer.
STALLED_US = 30_000.0
#: One that waited this long may have waited for a retransmission, where there was one: TCP_RTO_MIN less a tick.
RETRANSMITTED_US = 195_000.0

#: nagle-lab's exit code when this kernel cannot play the scenario.
CANNOT = 3

SCHEMA = json.loads((ROOT / "userspace" / "nagletrace.schema.json").read_text())
#: By `type`: to try all that a line may be takes five times as long, which is most of a long trace's test.
VALIDATORS = {
    SCHEMA["$defs"][kind["$ref"].removeprefix("#/$defs/")]["properties"]["type"]["const"]:
        jsonschema.Draft202012Validator({"$ref": kind["$ref"], "$defs": SCHEMA["$defs"]})
    for kind in SCHEMA["oneOf"]}

Record = dict[str, Any]


def assert_valid(record: Record) -> None:
    """It is what the schema says."""
    assert record["type"] in VALIDATORS, record
    wrong = jsonschema.exceptions.best_match(VALIDATORS[record["type"]].iter_errors(record))
    assert wrong is None, f"{wrong.message}: {record}"


#: Why a test is skipped for which no time was left; tests/run.py knows it too.
NO_TIME = "no time was left for it"


class Until:
    """When no other test begins: by CLOCK_MONOTONIC, in s, since a test turns the other one; set by conftest.py."""

    monotonic = float("inf")


def skip_when_late() -> None:
    if time.monotonic() > Until.monotonic:
        pytest.skip(NO_TIME)


class Lines:
    """Reads a stream line by line as it comes, with the time of arrival (CLOCK_MONOTONIC, s)."""

    def __init__(self, stream: Any) -> None:
        self.all: list[tuple[float, str]] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: Any) -> None:
        for line in stream:
            self.all.append((time.monotonic(), line.rstrip("\n")))
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def wait_for(self, text: str) -> str:
        """The next line with this text in it; fails when the stream ends or nothing comes."""
        while True:
            line = self._queue.get(timeout=PATIENCE)
            assert line is not None, f"no {text!r} before the end: {self.text()}"
            if text in line:
                return line

    def finish(self) -> None:
        self._thread.join(PATIENCE)

    def text(self) -> str:
        return "\n".join(line for _, line in self.all)


class Lab:
    """One run of nagle-lab, held at its start until go()."""

    def __init__(self, scenario: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [str(NAGLE_LAB), scenario, "--wait", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.errors = Lines(self.process.stderr)
        self.lines = Lines(self.process.stdout)
        try:
            self.ready: Record = json.loads(self.lines.wait_for('"ready"'))
        except Exception:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            self.close()
            if self.process.returncode == CANNOT:
                pytest.skip(self.errors.text().splitlines()[-1])
            raise AssertionError(f"nagle-lab {scenario} {arguments}: {self.errors.text()}") from None
        self.client: int = self.ready["client"]["pid"]
        self.server: int = self.ready["server"]["pid"]

    def go(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def result(self) -> Record:
        """Waits for the end; what the application measured."""
        try:
            result: Record = json.loads(self.lines.wait_for('"type":"result"'))
        except AssertionError:
            if self.process.wait(PATIENCE) == CANNOT:
                pytest.skip(self.errors.text().splitlines()[-1])
            raise AssertionError(self.errors.text()) from None
        code = self.process.wait(PATIENCE)
        assert code == 0, self.errors.text()
        return result

    def play(self) -> Record:
        self.go()
        return self.result()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Tracer:
    """A run of nagletrace, attached when the constructor returns. JSON unless text is asked for."""

    #: what --hooks is for all of them; set by conftest.py
    hooks = "auto"

    def __init__(self, *arguments: str, text: bool = False, prefix: tuple[str, ...] = (),
                 environment: dict[str, str] | None = None) -> None:
        command = [*prefix, str(NAGLETRACE), *arguments]
        if "--hooks" not in arguments and self.hooks != "auto":
            command += ["--hooks", self.hooks]
        if not text:
            command.append("--json")
        self.json = not text
        self.valid: list[tuple[float, Record]] = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **(environment or {})})
        self.errors = Lines(self.process.stderr)
        self.lines = Lines(self.process.stdout)
        try:
            self.errors.wait_for("nagletrace: ready")
        except BaseException:
            self.close()
            raise

    def _records(self) -> list[tuple[float, Record]]:
        """All so far; each is validated once."""
        for at, line in self.lines.all[len(self.valid):]:
            record = json.loads(line)
            assert_valid(record)
            self.valid.append((at, record))
        return self.valid

    def wait(self) -> None:
        """Waits until it ends by itself."""
        assert self.process.wait(PATIENCE) == 0, self.errors.text()
        self.lines.finish()
        self.errors.finish()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        self.process.send_signal(how)
        self.wait()

    def records(self, kind: str) -> list[Record]:
        return [record for _, record in self._records() if record["type"] == kind]

    def arrivals(self, kind: str) -> list[tuple[float, Record]]:
        return [(at, record) for at, record in self._records() if record["type"] == kind]

    def stalls(self) -> list[Record]:
        return self.records("stall")

    def closing(self) -> Record:
        """The closing report, which is the last line."""
        last = self._records()[-1][1]
        assert last["type"] == "report" and last["closing"]
        return last

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Tracer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def run(*arguments: str, prefix: tuple[str, ...] = (), environment: dict[str, str] | None = None
        ) -> subprocess.CompletedProcess[str]:
    """nagletrace to its end; for what ends by itself."""
    return subprocess.run([*prefix, str(NAGLETRACE), *arguments], capture_output=True, text=True,
                          timeout=PATIENCE, env={**os.environ, **(environment or {})})


def trace(lab: Lab, *arguments: str) -> tuple[Record, Tracer]:
    """Plays the lab under a trace; returns what the application measured, and the tracer, ended."""
    with Tracer(*arguments) as tracer:
        result = lab.play()
        if tracer.process.poll() is None:
            # the records of the last stall are there before the process that made it has ended
            try:
                tracer.stop()
            except ProcessLookupError:
                tracer.wait()
        else:
            tracer.wait()
    return result, tracer


def of_lab(lab: Lab, records: list[Record]) -> list[Record]:
    """Those of this lab's connections, where the whole host is traced and others may be at work on it."""
    connections = [{c["client"], c["server"]} for c in lab.ready["connections"]]
    spaces = {lab.ready["client"]["netns"], lab.ready["server"]["netns"]}
    return [r for r in records if {r["local"], r["remote"]} in connections and r["netns"] in spaces]


def lost(record: Record) -> Record:
    """What was lost, by place. In a guest not what was skipped for another program on its CPU: that is made up for."""
    return {place: count for place, count in record["lost"].items()
            if count and not (IN_GUEST and place == "recursion")}


def stalled_rounds(result: Record) -> list[Record]:
    """The rounds in which the application felt a stall; what a retransmission explains is none."""
    retransmitted = any(result[end]["counters"]["TcpRetransSegs"] for end in ("client", "server"))
    most = RETRANSMITTED_US if retransmitted else float("inf")
    return [r for r in result["rounds"] if STALLED_US <= r["latency_us"] < most]


def assert_durations_match(rounds: list[Record], stalls: list[Record]) -> None:
    """One stall a round, in order, none longer than the application waited, and at the median as long.

    The application's clock runs on while it is not scheduled, so single rounds may last longer than their stall, and in
    an emulated guest on a slow machine all do, by 10 ms and more; there the wire is the better witness (test_truth.py).
    """
    felt = [round(r["latency_us"]) for r in rounds]
    told = [s["duration_us"] for s in stalls]
    assert len(told) == len(felt), f"felt {felt}, told {told}"
    missing = [latency - duration for latency, duration in zip(felt, told)]
    assert not missing or min(missing) >= -500, f"felt {felt}, told {told}"
    assert not missing or statistics.median(missing) <= (20_000 if IN_GUEST else 2_000), f"felt {felt}, told {told}"
