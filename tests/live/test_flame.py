# SPDX-License-Identifier: GPL-2.0
"""Lost time by call stack, of programs whose code is made at run time: Java, Node.js."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import IN_GUEST, PATIENCE, ROOT, Lines, Tracer

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Language:
    """A program that says `ready`, stalls when it is told to, and says `done`; and how its functions are called."""

    name: str
    package: str
    needs: tuple[str, ...]
    command: tuple[str, ...]
    #: the outer function and the one that made the held write, as the perf map has them
    caller: str
    callee: str
    compile: tuple[str, ...] = ()

    def why_not(self) -> str | None:
        if IN_GUEST:
            return f"{self.name} takes minutes in an emulated guest"
        if not all(shutil.which(program) for program in self.needs):
            return f"there is no {self.name} here (Debian: {self.package})"
        probe = subprocess.run(["/usr/bin/python3", "-c", "import bcc"], capture_output=True)
        return "bcc's Python bindings are not installed (Debian: python3-bpfcc)" if probe.returncode else None


LANGUAGES = [
    # Without frame pointers compiled Java cannot be unwound; a method that is inlined has no frame of its own. The
    # names are those of JDK 17's map.
    Language("Java", "default-jdk-headless", ("java", "javac"),
             ("java", "-XX:+PreserveFramePointer", "-XX:TieredStopAtLevel=1", "-Xbatch", "-XX:CompileCommand=quiet",
              "-XX:CompileCommand=dontinline,TwoWrites::*", "-cp", ".", "TwoWrites"),
             "void TwoWrites.request(", "void TwoWrites.writeBody(",
             ("javac", "-d", ".", str(HERE / "TwoWrites.java"))),
    Language("Node.js", "nodejs", ("node",),
             ("node", "--perf-basic-prof", "--interpreted-frames-native-stack", "--max-inlined-bytecode-size=0",
              str(HERE / "two_writes.js")),
             "processTicksAndRejections", "writeBody "),
]


class Program:
    """It runs, its code is compiled, and it waits; its map is there after play()."""

    def __init__(self, language: Language, place: Path) -> None:
        if language.compile:
            subprocess.run(language.compile, check=True, cwd=place)
        self.process = subprocess.Popen(language.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        cwd=place)
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


@pytest.fixture(params=LANGUAGES, ids=[language.name for language in LANGUAGES])
def language(request: pytest.FixtureRequest) -> Language:
    chosen: Language = request.param
    if reason := chosen.why_not():
        pytest.skip(reason)
    return chosen


@pytest.fixture
def program(language: Language, tmp_path: Path) -> Iterator[Program]:
    running = Program(language, tmp_path)
    try:
        yield running
    finally:
        running.end()


def flame(recording: Path, *arguments: str) -> str:
    done = subprocess.run(["/usr/bin/python3", "-m", "nagletrace_exporters.flame.main", "-i", recording, *arguments],
                          cwd=ROOT / "exporters", capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_held_writes_are_named_by_the_functions_that_made_them(language: Language, program: Program, tmp_path: Path
                                                               ) -> None:
    with Tracer("-p", str(program.process.pid), "--stacks") as tracer:
        program.play()
        tracer.stop()
    stalls = tracer.stalls()
    assert len(stalls) >= 10
    recording = tmp_path / "recording"
    recording.write_text("".join(json.dumps(record) + "\n" for record in stalls))
    named = flame(recording, "--symbols", "bcc")
    excess = {stack: int(us) for stack, us in (line.rsplit(" ", 1) for line in named.splitlines())}
    by_function = sum(us for stack, us in excess.items() if language.callee in stack)
    assert by_function >= 0.9 * sum(stall["excess_us"] for stall in stalls), named
    assert all(0 < stack.index(language.caller) < stack.index(language.callee) < stack.rindex("write")
               for stack in excess if language.callee in stack), named
    assert language.callee not in flame(recording), "without bcc nobody names them"
    assert language.callee in flame(recording, "--symbols", "bcc", "--output", "svg")
