# SPDX-License-Identifier: GPL-2.0
"""Lost time by call stack, of a program whose code is made at run time: Java."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import IN_GUEST, PATIENCE, ROOT, Lines, Tracer

SOURCE = Path(__file__).parent / "TwoWrites.java"
#: Without frame pointers compiled Java cannot be unwound; a method that is inlined has no frame of its own.
FLAGS = ("-XX:+PreserveFramePointer", "-XX:TieredStopAtLevel=1", "-Xbatch", "-XX:CompileCommand=quiet",
         "-XX:CompileCommand=dontinline,TwoWrites::*")
#: As the map of JDK 17 has them.
CALLER, CALLEE = "void TwoWrites.request(", "void TwoWrites.writeBody("


def why_not() -> str | None:
    if IN_GUEST:
        return "Java takes minutes in an emulated guest"
    if not shutil.which("java") or not shutil.which("javac"):
        return "there is no JDK here (Debian: default-jdk-headless)"
    probe = subprocess.run(["/usr/bin/python3", "-c", "import bcc"], capture_output=True)
    return "bcc's Python bindings are not installed (Debian: python3-bpfcc)" if probe.returncode else None


pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


class Java:
    """TwoWrites, compiled by its virtual machine and ready to stall; its map is there after play()."""

    def __init__(self, classes: Path) -> None:
        subprocess.run(["javac", "-d", classes, SOURCE], check=True)
        self.process = subprocess.Popen(["java", *FLAGS, "-cp", str(classes), "TwoWrites"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.lines = Lines(self.process.stdout)
        self.lines.wait_for("ready")

    def play(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.lines.wait_for("done")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        Path(f"/tmp/perf-{self.process.pid}.map").unlink(missing_ok=True)


@pytest.fixture
def java(tmp_path: Path) -> Iterator[Java]:
    program = Java(tmp_path)
    try:
        yield program
    finally:
        program.end()


def flame(recording: Path, *arguments: str) -> str:
    done = subprocess.run(["/usr/bin/python3", "-m", "nagletrace_exporters.flame", "-i", recording, *arguments],
                          cwd=ROOT / "exporters", capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_held_writes_of_a_java_program_are_named_by_its_methods(java: Java, tmp_path: Path) -> None:
    with Tracer("-p", str(java.process.pid), "--stacks") as tracer:
        java.play()
        tracer.stop()
    stalls = tracer.stalls()
    assert len(stalls) >= 10
    recording = tmp_path / "recording"
    recording.write_text("".join(json.dumps(record) + "\n" for record in stalls))
    named = flame(recording, "--symbols", "bcc")
    lost = {stack: int(us) for stack, us in (line.rsplit(" ", 1) for line in named.splitlines())}
    by_method = sum(us for stack, us in lost.items() if CALLEE in stack)
    assert by_method >= 0.9 * sum(stall["excess_us"] for stall in stalls), named
    assert all(0 < stack.index(CALLER) < stack.index(CALLEE) < stack.index("__write")
               for stack in lost if CALLEE in stack), "the outer call first"
    assert "TwoWrites" not in flame(recording), "without bcc nobody names them"
    assert CALLEE in flame(recording, "--symbols", "bcc", "--output", "svg")
