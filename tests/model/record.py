#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Makes the recordings that tests/model/test_recorded.c plays: record.py DIRECTORY [function|tracepoint].

Each is a run of the lab over veth, as build/model/recorder wrote it down, and behind it, as JSON, what the wire and the
application's own log say of it. nagletrace takes no part.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / place) for place in (".", "live", "witness")]
from harness import IN_GUEST, PATIENCE, Lines  # noqa: E402
from processes import kill, wait_until  # noqa: E402
from witnesses import (  # noqa: E402
    AT_ONCE,
    DOUBT,
    Played,
    application_stalls,
    lab_for,
    play,
    score,
    wire,
)

RECORDER = ROOT / "build" / "model" / "recorder"
#: By name: the lab's arguments, and how many stalls it has at least; none, where that is 0.
SCENARIOS: dict[str, tuple[tuple[str, ...], int]] = {
    "write-write-read": (("write-write-read",), 9),
    "length-data": (("length-data", "--size", "100"), 16),
    "reply-tail": (("reply-tail", "--reply-sizes", "200,300"), 8),
    "cork-forgotten": (("cork-forgotten",), 4),
    "reset": (("reset-while-held",), 8),
    "quickack": (("header-body", "--quickack", "--interval", "20ms"), 0),
    "mix": (("mix", "--connections", "3", "--seconds", "1"), 1),
}
ATTEMPTS = 5


class Recorder:
    """build/model/recorder, which records when the constructor returns."""

    def __init__(self, family: str, path: Path, spaces: list[int]) -> None:
        self.process = subprocess.Popen([str(RECORDER), family, str(path), *map(str, spaces)],
                                        stderr=subprocess.PIPE, text=True)
        self.errors = Lines(self.process.stderr)
        try:
            self.errors.wait_for("recorder: ready")
        except BaseException:
            self.close()
            raise

    def end(self) -> bool:
        """Whether it saw all."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(PATIENCE)
        self.errors.finish()
        print(self.errors.text().splitlines()[-1])
        assert code in (0, 3), self.errors.text()
        return code == 0

    def close(self) -> None:
        kill(self.process)


def sockets(space: int) -> int:
    """How many a namespace has, without those that only wait (TIME_WAIT), which the hooks do not see."""
    table = subprocess.run(["nsenter", f"--net=/proc/self/fd/{space}", "cat", "/proc/net/tcp"], pass_fds=[space],
                           check=True, capture_output=True, text=True).stdout
    return sum(line.split()[3] != "06" for line in table.splitlines()[1:])


def truth_of(played: Played) -> list[score.Stall]:
    ends = played.result["client"]["tcp_info"] + played.result["server"]["tcp_info"]
    return score.truth(played.at_client, played.at_server, score.read_logs(played.lines, played.clock),
                       max(end["snd_mss"] for end in ends), wire.Limits(at_once=AT_ONCE), DOUBT)


def record(name: str, family: str, directory: Path) -> bool:
    """False: something was dropped, or the witnesses are in doubt."""
    scenario, least = SCENARIOS[name]
    with tempfile.TemporaryDirectory() as temporary, \
            lab_for(scenario[0], "--over", "veth", *scenario[1:]) as lab:
        raw = Path(temporary, name)
        spaces = [os.open(f"/proc/{pid}/ns/net", os.O_RDONLY) for pid in (lab.client, lab.server)]
        recorder = Recorder(family, raw, [lab.ready["client"]["netns"], lab.ready["server"]["netns"]])
        try:
            played = play(lab, name)
            wait_until("no socket stays", lambda: not any(map(sockets, spaces)))
            whole = recorder.end()
        finally:
            recorder.close()
            for space in spaces:
                os.close(space)
        stalls = truth_of(played)
        sure = [stall for stall in stalls if not stall.doubt]
        felt = application_stalls(played.lines, played.result)
        print(f"{name}: {len(sure)} stalls on the wire, {len(stalls) - len(sure)} in doubt, {felt} felt")
        if not whole or len(sure) < least or (not least and stalls) or (sure and not felt):
            return False
        release = os.uname().release.split("-")[0]
        told = {
            "scenario": list(scenario), "release": release, "guest": IN_GUEST, "felt": felt,
            "rounds": len(played.result["rounds"]),
            "stalls": [{"cause": s.cause, "sender": s.sender, "receiver": s.receiver,
                        "ended_ns": s.ended - played.clock, "duration_ns": s.duration, "doubt": s.doubt}
                       for s in stalls],
        }
        file = gzip.compress(raw.read_bytes() + json.dumps(told).encode(), 9, mtime=0)
        (directory / f"{name}-{release}-{family}.gz").write_bytes(file)
    return True


def main() -> int:
    if len(sys.argv) < 2 or (len(sys.argv) > 2 and sys.argv[2] not in ("function", "tracepoint")):
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    family = sys.argv[2] if len(sys.argv) > 2 else "tracepoint"
    wrong = 0
    for name in sys.argv[3:] or SCENARIOS:
        if not any(record(name, family, directory) for _ in range(ATTEMPTS)):
            print(f"record.py: {name}: no run was whole and sure in {ATTEMPTS} attempts", file=sys.stderr)
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
