# SPDX-License-Identifier: GPL-2.0
"""`nagletrace top` in a terminal: what its screen shows, what its keys do, and how it leaves the terminal."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import Daemon
from harness import NAGLETRACE, PATIENCE, Lab, Record, Tracer, run
from processes import NOBODY
from scripted_daemon import FakeDaemon, Stalling, connection, snapshot, stall
from terminal import Terminal
from test_command import WITHOUT_BTF, assert_one_line

TOP = (str(NAGLETRACE), "top")
COLOUR = re.compile(rb"\x1b\[(?:[0-9;]*;)?3[0-7]m")
DOWN, ESCAPE, CTRL_C, CTRL_Z = b"\x1bOB", "\x1b", b"\x03", b"\x1a"
SEVERAL = [connection(i) for i in range(40)]


def top_of(fake: FakeDaemon, *arguments: str, **more: object) -> Terminal:
    return Terminal(*TOP, "--socket", str(fake.path), "-i", "100ms", *arguments, **more)  # type: ignore[arg-type]


def rows_of(text: str) -> list[str]:
    """The lines of the table."""
    lines = text.splitlines()
    [title] = [i for i, line in enumerate(lines) if line.startswith("PROCESS")]
    return [line for line in lines[title + 1:] if re.match(r"\S+\[\d+\] ", line)]


@pytest.fixture
def fake(place: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(place / "socket", Stalling(SEVERAL)) as daemon:
        yield daemon


# ---- what it shows, and what keys do ----


@pytest.mark.quick
def test_the_table_says_who_loses_time(fake: FakeDaemon) -> None:
    with top_of(fake) as top:
        text = top.wait_for("program-0[1000]")
        lines = text.splitlines()
        assert "from the daemon" in lines[0] and "6.1.0, function hooks" in lines[0]
        assert "stalls/s" in lines[1] and "0 records dropped" in lines[1]
        assert re.search(r"program-0\[1000\] +send :30000 → 127\.0\.0\.1:8000 +1000 +40\.0s +40\.0ms +42\.0ms +0", text)
        assert "▼LOST" in text and "write_write_read: write 6 B (sent), write 7 B (held)" in text
        assert max(map(len, lines)) <= 80
        # of 20 a second; one look may come late, and the next one sooner after it
        top.until(lambda text: bool(re.search(r"[▃-█]{5} most (1[89]|2\d|3\d|40)", text)), "a sparkline of 20 a second")
        top.until(lambda text: bool(re.search(r"(19|20|21)(\.\d)? stalls/s now", text)), "the rate of 20 a second")


@pytest.mark.quick
def test_keys_sort_reverse_and_change_the_view(fake: FakeDaemon) -> None:
    with top_of(fake) as top:
        top.wait_for("▼LOST")
        assert rows_of(top.text())[0].startswith("program-0[")
        top.press("m")
        assert rows_of(top.wait_for("▼MAX"))[0].startswith("program-39[")
        top.press("r")
        assert rows_of(top.wait_for("▲MAX"))[0].startswith("program-0[")
        top.press("p")
        text = top.wait_for("40 processes")
        assert "CONNS" in text and "write_write_read" in text
        top.press("\t\t")
        top.wait_for("40 connections")
        top.press("?")
        assert "underlined" in top.wait_for("any key: back")
        top.press("x")
        top.wait_for("40 connections")


@pytest.mark.quick
def test_a_filter_narrows_and_escape_shows_all(fake: FakeDaemon) -> None:
    with top_of(fake) as top:
        top.wait_for("40 connections")
        top.press("/[1007]")
        text = top.wait_for('1 connection with "[1007]"')
        assert [row.split()[0] for row in rows_of(text)] == ["program-7[1007]"]
        top.press("\r")
        top.wait_for("Esc all")
        top.press(ESCAPE)
        top.wait_for("40 connections that")
        top.press("/nothing-like-it\r")
        top.wait_for("no connection like that has stalled")


@pytest.mark.quick
def test_the_choice_moves_and_enter_shows_the_last_stall_as_a_ladder(fake: FakeDaemon) -> None:
    with top_of(fake) as top:
        top.wait_for("program-0[1000]")
        top.press(DOWN + DOWN + b"k")
        top.until(lambda _: top.reversed_line().startswith("program-1["), "the second line chosen")
        top.press("\r")
        text = top.wait_for("last stall, at 00:00:00.123" if time.tzname[0] == "UTC" else "last stall, at ")
        assert "program-1[1001]  127.0.0.1:30001 → 127.0.0.1:8000  (sender)" in text
        assert "cgroup    /system.slice/1.service" in text
        assert "why       Nagle holds" in text and "fix       write both parts" in text
        for drawn in ("server[4200]", "─ 6 B ─", "ACK delayed", "7 B held: Nagle", "pending 40.2 ms", "held 40.3 ms",
                      "◀───────── ACK ─", "timer fires", "released"):
            assert drawn in text, (drawn, text)
        top.press("j")
        top.wait_for("program-2[1002]  127.0.0.1:30002")
        top.press("q")
        top.wait_for("▼LOST")


@pytest.mark.quick
def test_the_pod_is_a_column_of_wide_screens_and_a_line_of_the_detail(place: Path) -> None:
    uid, container = "3f2a91c4-6b0e-4d7a-9c35-d1e8f0a2b467", "6d1f0a2c9b8e" + 52 * "7"
    placed = [connection(0, {"pod_uid": uid, "container_id": container}), connection(1, {"container_id": container}),
              connection(2)]
    with FakeDaemon(place / "socket", Stalling(placed)) as fake, top_of(fake, columns=130) as top:
        lines = rows_of(top.wait_for("3 connections"))
        assert lines[0].rstrip().endswith(" 3f2a91c4") and lines[1].rstrip().endswith(" write_write_read")
        top.press("/" + uid[-8:] + "\r")
        top.wait_for("1 connection with")
        top.press("\r")
        assert f"pod       {uid}, container 6d1f0a2c9b8e\n" in top.wait_for("(sender)")
        top.press("q")
        top.wait_for("Esc all")
        top.press(ESCAPE)
        top.wait_for("3 connections that")
        top.press("/[1001]\r")
        top.wait_for('1 connection with "[1001]"')
        top.press("\r")
        assert f"container {container}" in top.wait_for("(sender)")


@pytest.mark.quick
def test_paused_it_stands_still_and_gathers_all_the_same(place: Path) -> None:
    stalls = 0

    def answer(request: Record) -> list[Record]:
        nonlocal stalls
        stalls += 1
        return [snapshot([connection(1, stalls=stalls)], stalls)] if request["request"] == "snapshot" else []

    with FakeDaemon(place / "socket", answer) as fake, top_of(fake) as top:
        top.wait_for("program-1[1001]")
        top.press(" ")
        still = top.wait_for("PAUSED")
        asked = len(fake.requests)
        top.until(lambda _: len(fake.requests) >= asked + 5, "five more questions")
        assert top.text() == still
        top.press(" ")
        top.until(lambda text: f"in all {stalls}" in text or f"in all {stalls - 1}" in text, "what was gathered")
        assert "PAUSED" not in top.text()


@pytest.mark.quick
def test_names_from_outside_do_not_reach_the_terminal(place: Path) -> None:
    bad = connection(1, {"comm": "a\x1b[2J\x07\x9b1mb", "address": "\n\n:1"}, fix="\x1b]0;title\x07")
    with FakeDaemon(place / "socket", Stalling([bad])) as fake, top_of(fake) as top:
        text = top.wait_for("[1001]")
        assert "\\x1b" in text and "▼LOST" in text
        top.press("\r")
        assert "a\\x1b[2J\\x07\\xc2\\x9b1mb[1001]" in top.wait_for("last stall")
        assert b"\x1b]" not in top.output and b"\x07" not in top.output


# ---- whatever the terminal is ----


@pytest.mark.quick
@pytest.mark.parametrize("term", ["xterm", "screen", "linux", "vt100", "tmux-256color"])
def test_it_draws_on_other_terminals(fake: FakeDaemon, term: str) -> None:
    with top_of(fake, environment={"TERM": term}) as top:
        top.wait_for("program-0[1000]")
        top.press("\r")
        top.wait_for("timer fires")
        top.press("qq")
        assert top.ended() == 0 and top.is_restored()
        if term in ("linux", "vt100"):
            assert top.output.isascii()


@pytest.mark.quick
def test_without_utf8_all_is_ascii_and_with_no_color_nothing_is_coloured(fake: FakeDaemon) -> None:
    with top_of(fake, environment={"LC_ALL": "C", "NO_COLOR": "1"}) as top:
        assert ":30000 > 127.0.0.1:8000" in top.wait_for("program-0[1000]")
        top.press("\r")
        assert "7 B held: Nagle #" in top.wait_for("timer fires")
        top.press("qq")
        assert top.ended() == 0
        assert top.output.isascii()
        assert not COLOUR.search(top.output)
    with top_of(fake) as top:
        top.wait_for("program-0[1000]")
        top.until(lambda _: bool(COLOUR.search(top.output)), "a colour")


@pytest.mark.quick
@pytest.mark.parametrize("environment", [{"TERM": "linux"}, {"LC_ALL": "C"}], ids=str)
def test_a_wide_line_is_whole_in_ascii(place: Path, environment: dict[str, str]) -> None:
    """As a sparkline of 21 s would be: its characters take three bytes each until they are ASCII."""
    wide = connection(1, pattern_text="→" * 168 + "end")
    with FakeDaemon(place / "socket", Stalling([wide])) as fake, top_of(fake, columns=240, environment=environment
                                                                        ) as top:
        top.wait_for("what  write_write_read: " + ">" * 168 + "end\n")


@pytest.mark.quick
def test_a_locale_that_the_host_lacks_is_utf8_all_the_same(fake: FakeDaemon) -> None:
    with top_of(fake, environment={"LC_ALL": "xx_XX.UTF-8"}) as top:
        assert ":30000 → 127.0.0.1:8000" in top.wait_for("program-0[1000]")


@pytest.mark.quick
@pytest.mark.parametrize("term,what", [("dumb", "place its cursor"), ("no-such-terminal", "known here")])
def test_a_terminal_that_cannot_is_refused(fake: FakeDaemon, term: str, what: str) -> None:
    with top_of(fake, environment={"TERM": term}) as top:
        assert top.ended() == 2
        assert what in top.text() and f"TERM={term}" in top.text() and top.is_restored()


def test_any_size_will_do(fake: FakeDaemon) -> None:
    with top_of(fake) as top:
        top.wait_for("program-0[1000]")
        for page in ("", "\r", "?"):
            top.press(page)
            for columns, rows in ((20, 5), (1, 1), (3, 40), (200, 2), (300, 100), (59, 7), (80, 24)):
                top.resize(columns, rows)
                for _ in range(3):
                    time.sleep(0.03)
                    assert top.process.poll() is None, (page, columns, rows)
        top.press("qq")
        top.wait_for("program-0[1000]")
        top.resize(20, 5)
        text = top.until(lambda text: "LOST" in text and "[1000]" in text, "a table in 20 columns and 5 lines")
        assert len(text.splitlines()) == 5
        top.resize(132, 24)
        top.wait_for("127.0.0.1:30000 → 127.0.0.1:8000")
        assert "PATTERN" in top.text()


# ---- how it ends ----


@pytest.mark.quick
@pytest.mark.parametrize("how", ["q", "Ctrl-C", "SIGTERM", "SIGHUP", "--duration"])
def test_the_terminal_is_given_back(fake: FakeDaemon, how: str) -> None:
    with top_of(fake, *(("-d", "500ms") if how == "--duration" else ())) as top:
        top.wait_for("program-0[1000]")
        if how == "q":
            top.press("q")
        elif how == "Ctrl-C":
            top.press(CTRL_C)
        elif how != "--duration":
            top.process.send_signal(signal.Signals[how])
        assert top.ended() == 0
        assert top.is_restored(), top.output[-200:]


@pytest.mark.quick
def test_ctrl_c_and_ctrl_z_drop_nothing_that_was_written(fake: FakeDaemon) -> None:
    """The kernel (n_tty.c: isig()) empties the terminal's queues after it has sent the signal, unless told not to."""
    with top_of(fake) as top:
        top.wait_for("program-0[1000]")
        assert termios.tcgetattr(top.slave)[3] & termios.NOFLSH


@pytest.mark.quick
def test_it_ends_with_its_terminal(fake: FakeDaemon) -> None:
    with top_of(fake) as top:
        top.wait_for("program-0[1000]")
        os.close(top.slave)
        top.slave = os.open(os.devnull, os.O_RDONLY)
        os.close(top.master)
        top.master = os.open(os.devnull, os.O_RDONLY)
        assert top.process.wait(PATIENCE) == 0


@pytest.mark.quick
def test_stopped_it_gives_the_terminal_back_and_takes_it_again(fake: FakeDaemon) -> None:
    shell = ("sh", "-c", 'set -m; "$@"; echo "stopped: $?"; read -r line; fg; exit $?', "sh")
    with Terminal(*shell, *TOP, "--socket", str(fake.path), "-i", "100ms") as top:
        top.wait_for("program-0[1000]")
        top.press(CTRL_Z)
        top.wait_for(f"stopped: {128 + signal.SIGTSTP}")
        assert top.is_restored()
        with top.lock:
            top.screen.reset()
        top.press("\n")
        top.wait_for("program-0[1000]")
        top.press("q")
        assert top.ended() == 0 and top.is_restored()


def press_ctrl_z_and_go_on(top: Terminal) -> None:
    taken = top.output.count(b"\x1b[?1049h")
    for _ in range(20):
        top.press("l")  # it is to draw as the signal comes, which ncurses would discard
    top.press(CTRL_Z)
    top.until(lambda _: top.output.count(b"\x1b[?1049h") > taken, "the terminal taken again")
    top.wait_for("program-0[1000]")


@pytest.mark.quick
def test_where_nobody_could_continue_it_it_does_not_stop(fake: FakeDaemon) -> None:
    """A session's leader, as `ssh -t` and `docker exec -it` make it: its process group is orphaned."""
    with top_of(fake) as top:
        top.wait_for("program-0[1000]")
        for _ in range(8):
            press_ctrl_z_and_go_on(top)
        top.press("m")
        top.wait_for("▼MAX")
        top.press("q")
        assert top.ended() == 0 and top.is_restored()


# ---- whatever the daemon does ----


def test_when_the_daemon_ends_its_last_state_stays_until_another_answers(place: Path) -> None:
    path = place / "socket"
    fake = FakeDaemon(path, Stalling(SEVERAL))
    with top_of(fake) as top:
        top.wait_for("program-0[1000]")
        fake.close()
        text = top.wait_for("the daemon has ended")
        assert "program-0[1000]" in text and "asking again" in text
        with FakeDaemon(path, lambda request: [snapshot([connection(77)], 3, started="2026-11-22T01:00:00.000000Z")]
                        if request["request"] == "snapshot" else []):
            text = top.wait_for("program-77[1077]")
            assert "the daemon has ended" not in text
            top.until(lambda text: "program-0[1000]" not in text, "the first daemon's connections gone")
        top.press("q")
        assert top.ended() == 0 and top.is_restored()


@pytest.mark.quick
@pytest.mark.parametrize("answer,words", [
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no nagletrace daemon"),
    (b"\0\xff\xfe\n", "no nagletrace daemon"),
    (b'{"type":"snapshot","protocol":2}\n', "protocol 2"),
    (b'{"type":"error","protocol":1,"error":"no \\u001b[2J"}\n', "the daemon says: no \\x1b[2J"),
    (None, "the daemon has ended"),
])
def test_what_is_no_daemon_is_told_in_one_line(place: Path, answer: bytes | None, words: str) -> None:
    with FakeDaemon(place / "socket", lambda _: answer) as fake, top_of(fake, columns=200) as top:
        assert top.ended() == 1
        lines = [line for line in top.lines() if line]
        assert len(lines) == 1 and lines[0].startswith("nagletrace: ") and words in lines[0], lines
        assert b"\x1b[?1049h" not in top.output


def test_garbage_later_on_is_told_and_asked_over(fake: FakeDaemon) -> None:
    with top_of(fake) as top:
        for garbage in (b"\xff\xfe{{{\n", b"[" * 100_000 + b"\n", b"x" * 3_000_000 + b"\n", b'{"type":7}\n'):
            top.wait_for("program-0[1000]")
            top.until(lambda text: "asking again" not in text, "no trouble")
            fake.say(garbage)
            top.wait_for("what answers is no nagletrace daemon")
        top.press("q")
        assert top.ended() == 0 and top.is_restored()


def test_a_daemon_that_answers_no_more_is_told_and_keys_work(place: Path) -> None:
    asked = Stalling(SEVERAL)
    silent = threading.Event()
    with FakeDaemon(place / "socket", lambda r: [] if silent.is_set() else asked(r)) as fake, top_of(fake) as top:
        top.wait_for("program-0[1000]")
        silent.set()
        assert "program-0[1000]" in top.wait_for("the daemon has not answered for")
        top.press("m")
        top.wait_for("▼MAX")
        silent.clear()
        top.press("q")
        assert top.ended() == 0


@contextlib.contextmanager
def flood(fake: FakeDaemon, stalls: list[Record]) -> Iterator[None]:
    """Stalls as fast as they are read, for as long as the block lasts."""
    lines = b"".join(json.dumps(record).encode() + b"\n" for record in stalls)
    over = threading.Event()

    def stream() -> None:
        while not over.wait(0.001):  # or answers would never have their turn
            fake.say(lines)

    threading.Thread(target=stream, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def test_a_fast_stream_leaves_time_for_keys_and_answers(fake: FakeDaemon) -> None:
    with top_of(fake) as top:
        top.wait_for("program-0[1000]")
        with flood(fake, [stall(c) for c in SEVERAL] * 25):
            for key, shows in (("m", "▼MAX"), ("p", "40 processes"), ("c", "40 connections"), ("\r", "last stall")) * 5:
                began = time.monotonic()
                top.press(key)
                text = top.wait_for(shows)
                assert time.monotonic() - began < 2  # ten times what the slowest takes
                assert "asking again" not in text, text
                top.press("q" if key == "\r" else "l")
                top.wait_for("▼LOST")
            top.press("q")
            assert top.ended() == 0 and top.is_restored()
        assert len(fake.askers) == 1


# ---- what it refuses ----


@pytest.mark.quick
def test_without_a_terminal_it_says_what_else_there_is(fake: FakeDaemon) -> None:
    assert_one_line(run("top"), 2, "terminal", "ssh -t", "nagletrace report")
    assert_one_line(run("top", "--socket", str(fake.path)), 2, "terminal")
    assert not fake.requests


def in_terminal(*command: str) -> tuple[int, list[str]]:
    """The exit code, and what is said."""
    with Terminal(*command, columns=400) as top:
        code = top.ended()
        return code, [line for line in top.lines() if line]


@pytest.mark.quick
def test_without_a_daemon_and_privilege_it_says_what_to_do(place: Path) -> None:
    code, lines = in_terminal(*NOBODY, *TOP, "--socket", str(place / "none"))
    assert code == 4 and len(lines) == 1
    assert "start `nagletrace daemon`" in lines[0] and "as root" in lines[0]
    code, lines = in_terminal(*NOBODY, *TOP, "-p", str(os.getpid()))
    assert code == 4 and len(lines) == 1 and "CAP_BPF" in lines[0]


@pytest.mark.quick
def test_on_a_kernel_that_cannot_it_says_why(place: Path) -> None:
    code, lines = in_terminal(*WITHOUT_BTF, *TOP, "--socket", str(place / "none"))
    assert code == 3 and len(lines) == 1 and "--btf FILE" in lines[0]


# ---- real stalls ----


@pytest.mark.quick
def test_by_the_daemon_it_shows_what_stalls_without_any_privilege() -> None:
    with Daemon("--group", "nogroup") as daemon, Lab("write-write-read", "--rounds", "400") as lab:
        daemon.socket.parent.chmod(0o755)
        with Terminal(*NOBODY, *TOP, "--socket", str(daemon.socket), "-i", "250ms") as top:
            top.wait_for("from the daemon")
            process = f"lab-client[{lab.client}]"
            top.press(f"/[{lab.client}]\r")  # others may be at work on this host
            lab.go()
            twenty = re.compile(rf"^{re.escape(process)} .* [12]\d\.\d$", re.MULTILINE)
            [row] = rows_of(top.until(lambda text: bool(twenty.search(text)), "some 20 stalls a second"))
            port = lab.ready["connections"][0]["client"].rsplit(":", 1)[1]
            assert f"send :{port}→{lab.ready['connections'][0]['server']}" in row.replace(" → ", "→")
            assert re.search(r" 4\d\.\dms", row), row
            top.press("\r")
            drawn = (process, f"lab-server[{lab.server}]", "timer fires", "seen at both ends", "held: Nagle",
                     "pending 4", "TCP_NODELAY")
            # of a stall that is seen: the machine may hide a timer
            text = top.until(lambda text: all(word in text for word in drawn), "its last stall with both ends")
            # both wait, in whichever order they began, until the ACK goes out, which releases the held part
            at = {word: text[:text.index(word)].count("\n") for word in ("ACK delayed", "held: Nagle", "◀─", "▶│")}
            assert max(at["ACK delayed"], at["held: Nagle"]) < at["◀─"] < at["▶│"], text
            top.press("qq")
            assert top.ended() == 0 and top.is_restored()


def test_as_root_it_traces_by_itself_until_the_process_has_ended() -> None:
    with Lab("write-write-read", "--rounds", "100") as lab:
        with Tracer("-p", str(lab.client)) as beside, Terminal(*TOP, "-p", str(lab.client), "-i", "250ms") as top:
            assert re.search(r"looked at \d+ writes, \d+ holds", top.wait_for("no stall"))
            assert "traced here" in top.text()
            felt = len([r for r in lab.play()["rounds"] if r["latency_us"] > 30_000])
            text = top.wait_for("the process has ended")
            assert re.search(rf"lab-client\[{lab.client}\] .* {felt} ", text), (felt, text)
            assert f"in all {felt} stalls" in text
            top.press("\r")
            beside.wait()
            if beside.stalls()[-1]["evidence"] == "seen":
                assert "seen at both ends" in top.wait_for("timer fires")
            else:  # it was one whose timer nobody saw
                assert beside.closing()["unseen"] and top.wait_for("inferred from this end")
            top.press("qq")
            assert top.ended() == 0 and top.is_restored()


def test_without_a_daemon_root_traces_by_itself(place: Path) -> None:
    with Terminal(*TOP, "--socket", str(place / "none"), "-d", "2s") as top:
        top.wait_for("traced here")
        assert top.ended() == 0 and top.is_restored()
