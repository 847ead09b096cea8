# SPDX-License-Identifier: GPL-2.0
"""nagletrace-report and nagletrace-flame on what the tracer and its daemon really say."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest
from daemon import Daemon
from harness import PATIENCE, ROOT, Lab, Tracer, assert_felt, stalled_rounds, trace


def command(name: str, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(["/usr/bin/python3", "-m", f"nagletrace_exporters.{name}.main", *map(str, arguments)],
                            cwd=ROOT / "exporters", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def output(process: subprocess.Popen[str]) -> str:
    text, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return text


def recorded(tracer: Tracer, place: Path) -> Path:
    """What it said, as a file."""
    recording = place / "recording"
    recording.write_text("".join(line + "\n" for _, line in tracer.lines.all))
    return recording


@pytest.mark.quick
def test_a_recording_becomes_a_page_and_a_flame_graph(tmp_path: Path) -> None:
    with Lab("write-write-read", "--rounds", "10") as lab:
        result, tracer = trace(lab, "-p", str(lab.client), "--stacks")
    stalls = len(tracer.stalls())
    assert_felt(result, stalls, missing=1)  # for a timer that the machine hides
    recording = recorded(tracer, tmp_path)
    page = output(command("report", "-i", recording))
    assert f"{stalls} stalls in " in page and f"lab-client[{lab.client}]" in page
    assert "write 6 B (sent), write 7 B (held)" in page and '<svg class="ladder"' in page
    assert "could not be read" not in page and "a type that this version does not know" not in page
    folded = output(command("flame", "-i", recording))
    excess = sum(json.loads(line)["excess_us"] for _, line in tracer.lines.all if '"type":"stall"' in line)
    assert sum(int(line.rsplit(" ", 1)[1]) for line in folded.splitlines()) == excess
    assert re.match(r"lab-client;.*client_round;.*__write \d+$", folded)


@pytest.mark.quick
def test_a_timeline_becomes_a_ladder_of_what_happened(tmp_path: Path) -> None:
    with Lab("write-write-read", "--rounds", "10") as lab:
        result, tracer = trace(lab, "-p", str(lab.client), "--timeline")
    stalls = len(tracer.stalls())
    assert_felt(result, stalls, missing=1)  # for a timer that the machine hides
    recording = recorded(tracer, tmp_path)
    page = output(command("report", "-i", recording))
    assert f"{stalls} stalls in " in page and "could not be read" not in page
    assert "Drawn from recorded events of both ends." in page and f"lab-server[{lab.server}]" in page
    ladders = [re.findall(r'<text class="label ([\w-]*)-label"[^>]*>([^<]*)</text>', ladder[:ladder.index("</svg>")])
               for ladder in page.split('<svg class="ladder"')[1:]]
    # one for each kind of stall: if the machine hid a timer, that stall has one too, without what nobody saw
    [labels] = [labels for labels in ladders if ("mark", "ACK timer") in labels]
    assert {("held", "held 7 B"), ("data", "6 B")} <= set(labels), labels[:40]
    assert [text for kind, text in labels if kind == "mark"].count("write 6 B") == 1, "one exchange, and no other"
    assert any(kind == "hold" and text == "by nagle, until ack" for kind, text in labels)


def test_the_daemon_is_watched_until_ctrl_c(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with Lab("write-write-read", "--rounds", "10", "--own-netns") as lab, \
            Daemon("--stacks", "--netns", str(lab.client)) as daemon:
        watching = command("report", "--socket", daemon.socket, "--duration", "10m", "-o", page)
        daemon.until(lambda snapshot: snapshot["tracer"]["streaming"] == 1)
        stalls = len(stalled_rounds(lab.play()))
        daemon.until(lambda snapshot: snapshot["stalls"] >= stalls)
        watching.send_signal(signal.SIGINT)
        output(watching)
        folded = output(command("flame", "--socket", daemon.socket))
        now = output(command("report", "--socket", daemon.socket))
    seen = page.read_text()
    assert f"{stalls} stalls in " in seen and "stopped" in seen and '<svg class="ladder"' in seen
    assert f"{stalls} stalls in " in now and re.search(r"\d+ ms to \d+ ms</th>", now)
    assert '<svg class="ladder"' not in now, "the daemon keeps no single stalls"
    assert "client_round" in folded
