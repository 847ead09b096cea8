# SPDX-License-Identifier: GPL-2.0
"""Whatever answers at the daemon's socket: `nagletrace report` and `top` end, say one line, and show nothing raw.

tests/hostile.py has the answers, which the tests in exporters/tests play against the Python programs.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from daemon import Daemon
from harness import NAGLETRACE, PATIENCE
from hostile import ANSWERS, GIVES_UP_S, MOST_BYTES, RAW, Answer, HostileServer, Then, fill_backlog
from processes import NOBODY, kilobytes
from terminal import Terminal

BY_NAME = {answer.name: answer for answer in ANSWERS}
#: `top` takes none of these for its answer, and waits for that until it gives up.
TOP_WAITS = ("text", "skipped", "report", "a stall", "a type that")
#: Those that are wrong alike follow one another.
QUICK = [answer.name for answer in ANSWERS
         if not answer.slow and not any(word in answer.name for word in TOP_WAITS)][::6]
REPORTS = {"report": (), "report -j": ("-j",), "report -f": ("-f",), "report -f -j": ("-f", "-j")}
CLIENTS = (*REPORTS, "top")
#: So many answers are played at a time; most of the time is spent waiting.
AT_ONCE = 8
#: A client that still runs so long after it was answered wants more.
SETTLED_S = 0.4


@dataclass
class Outcome:
    """How a client ended."""

    code: int
    output: bytes
    errors: bytes
    #: the most resident memory that was seen
    most_bytes: int
    #: it ended without being told to
    by_itself: bool


class Memory:
    """VmHWM of a process, as often as it is asked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.most_bytes = 0

    def look(self) -> None:
        with contextlib.suppress(OSError, KeyError):
            self.most_bytes = max(self.most_bytes, 1024 * kilobytes(self.pid, "VmHWM"))


def patience(answer: Answer) -> float:
    return GIVES_UP_S if answer.slow else PATIENCE


def ask_by_report(answer: Answer, server: HostileServer, *arguments: str) -> Outcome:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([str(NAGLETRACE), "report", "--socket", str(server.path), *arguments],
                                   stdout=output, stderr=errors)
        memory = Memory(process.pid)
        # one that was told nothing wrong follows for as long as the stream lasts
        ends = answer.wrong or answer.then is Then.GOES_ON or "-f" not in arguments
        until = time.monotonic() + (patience(answer) if ends else SETTLED_S)
        while process.poll() is None and time.monotonic() < until:
            memory.look()
            time.sleep(0.003)
        by_itself = process.poll() is not None
        if not by_itself:
            process.terminate()
        code = process.wait(PATIENCE)
        output.seek(0)
        errors.seek(0)
        return Outcome(code, output.read(), errors.read(), memory.most_bytes, by_itself)


def ask_by_top(answer: Answer, server: HostileServer) -> Outcome:
    """As nobody, since root's traces by itself where it cannot connect."""
    with Terminal(*NOBODY, str(NAGLETRACE), "top", "--socket", str(server.path), "-i", "100ms", columns=200) as top:
        memory = Memory(top.process.pid)
        until = time.monotonic() + patience(answer)
        shown = 0.0
        while top.process.poll() is None and time.monotonic() < until:
            memory.look()
            if b"\x1b[?1049h" in top.output and not shown:
                shown = time.monotonic()
            if shown and time.monotonic() > shown + SETTLED_S:
                break
            time.sleep(0.003)
        by_itself = top.process.poll() is not None
        if not by_itself:
            with contextlib.suppress(OSError):
                top.press("qqq" if shown else b"\x03")
        code = top.ended()
        return Outcome(code, top.output, b"" if shown else top.output, memory.most_bytes, by_itself)


def play(answer: Answer) -> dict[str, Outcome]:
    """One answer to all clients, of which each has a server."""
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as servers, \
            ThreadPoolExecutor(len(CLIENTS)) as pool:
        Path(place).chmod(0o755)
        asked: dict[str, Future[Outcome]] = {}
        for number, client in enumerate(CLIENTS):
            server = servers.enter_context(HostileServer(Path(place) / str(number), answer))
            asked[client] = pool.submit(ask_by_top, answer, server) if client == "top" else \
                pool.submit(ask_by_report, answer, server, *REPORTS[client])
        for client, outcome in asked.items():
            outcomes[client] = outcome.result()
    return outcomes


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest) -> Iterator[Callable[[str], dict[str, Outcome]]]:
    """What came of an answer. Those that were chosen begin together, the slow ones first."""
    chosen = {item.callspec.params["name"] for item in request.session.items
              if item.path == Path(__file__) and hasattr(item, "callspec") and "name" in item.callspec.params}
    pool = ThreadPoolExecutor(AT_ONCE)
    begun = {answer.name: pool.submit(play, answer) for answer in sorted(ANSWERS, key=lambda a: not a.slow)
             if answer.name in chosen}
    yield lambda name: begun[name].result()
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.quick if name in QUICK else ())
                                  for name in BY_NAME])
def test_whatever_is_answered_the_client_ends_says_one_line_and_shows_nothing_raw(
        name: str, played: Callable[[str], dict[str, Outcome]]) -> None:
    answer = BY_NAME[name]
    for client, outcome in played(name).items():
        told = f"{client}: {outcome}"[:2000]
        terminal = client == "top" and not outcome.errors
        if answer.wrong or not terminal and "-f" not in client:
            assert outcome.by_itself, told
        if answer.wrong:
            assert outcome.code in ((1, 4) if client == "top" and not answer.accepts else (1,)), told
        if outcome.by_itself:
            assert outcome.code in (0, 1, 4), told
        assert outcome.most_bytes < MOST_BYTES, f"{outcome.most_bytes >> 20} MB: {told}"
        lines = outcome.errors.replace(b"\r\n", b"\n").splitlines()
        if outcome.by_itself and outcome.code:
            assert len(lines) == 1 and len(lines[0]) < 1000 and lines[0].startswith(b"nagletrace: "), told
        raw = tuple(what for what in RAW if what not in (b"\x1b", b"\r")) + (b"\x1b]",) if client == "top" else RAW
        assert not [what for what in raw if what in outcome.output + outcome.errors], told
        (outcome.output + outcome.errors).decode()  # it is UTF-8


@pytest.mark.parametrize("name,client", [("silence", "report"), ("silence", "report -f"), ("silence", "top"),
                                         ("half a line, and silence", "report"),
                                         ("a byte now and then", "report -f"),
                                         ("nobody accepts, and no more may wait", "report")])
def test_sigint_takes_effect_at_once_whatever_is_waited_for(name: str, client: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(HostileServer(tmp_path / "socket", BY_NAME[name]))
        command = [str(NAGLETRACE), *client.split(), "--socket", str(server.path)]
        process = stack.enter_context(Terminal(*command)).process if client == "top" else \
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)  # it waits by now
        assert process.poll() is None
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
        assert time.monotonic() - began < 1


@pytest.mark.quick
def test_a_socket_whose_daemon_is_stopped_and_whose_backlog_is_full_is_not_waited_for() -> None:
    """A second daemon says what is wrong, at once."""
    with Daemon() as daemon, contextlib.ExitStack() as stack:
        daemon.process.send_signal(signal.SIGSTOP)
        stack.callback(daemon.process.send_signal, signal.SIGCONT)
        for waiting in fill_backlog(daemon.socket):
            stack.enter_context(waiting)
        began = time.monotonic()
        done = subprocess.run([str(NAGLETRACE), "daemon", "--socket", str(daemon.socket)], capture_output=True,
                              text=True, timeout=PATIENCE)
        assert time.monotonic() - began < 5 and done.returncode == 1
        assert "a daemon serves it already" in done.stderr and len(done.stderr.splitlines()) == 1
