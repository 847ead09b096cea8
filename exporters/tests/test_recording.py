# SPDX-License-Identifier: GPL-2.0
"""What is read: recordings whole, cut off, broken and hostile; the daemon; and where it is written to."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import recordings as r
from fake_daemon import FakeDaemon, series, snapshot
from pages import HERE, check_html, check_svg, command, text_of
from processes import wait_until

from nagletrace_exporters.cli import OutputError, duration, run_command, write_whole
from nagletrace_exporters.client import DaemonError, _chunks, ask
from nagletrace_exporters.lines import TooLarge, chunks_of, parse_object, split_lines
from nagletrace_exporters.recording import Reading
from nagletrace_exporters.records import BadRecord, Event, Report, Snapshot, Stall, Start, decode, process_name

SCHEMA = json.loads((HERE.parent / "userspace" / "output" / "nagletrace.schema.json").read_text())


def encoded(lines: list[r.Record]) -> list[bytes]:
    return [json.dumps(line).encode() + b"\n" for line in lines]


def test_the_recordings_and_answers_of_these_tests_are_as_the_schema_wants_them(tmp_path: Path) -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    daemon = FakeStream(tmp_path / "s", [r.seen()])
    answers = [line for request in ("snapshot", "report", "stream") for line in daemon.answers(request)]
    for line in [*r.mixed(), *r.with_events(), r.report(closing=False), *answers]:
        if line["type"] != "event":  # docs of --timeline come with the tracer
            wrong = jsonschema.exceptions.best_match(validator.iter_errors(line))
            assert wrong is None, f"{wrong.message}: {line}"


def test_records_come_typed_and_in_order() -> None:
    reading = Reading()
    made = list(reading.records_from(encoded([r.start(), *r.with_events(), r.report(r.connection())])))
    assert isinstance(made[0], Start) and isinstance(made[-1], Report)
    assert sum(isinstance(one, Event) for one in made) == 17 and sum(isinstance(one, Stall) for one in made) == 1
    assert not reading.broken and reading.remarks() == [] and reading.lines == 20


def test_a_segment_from_before_what_the_tracer_saw_first_is_a_record() -> None:
    probe = {**r.events()[1], "seq": -1, "ack": -40}
    reading = Reading()
    [made] = reading.records_from(encoded([probe, {**probe, "bytes": -6}]))
    assert isinstance(made, Event) and made.numbers == {"seq": -1, "bytes": 6, "ack": -40}
    assert (reading.broken, reading.first_broken) == (1, "line 2: bytes is no count")


def test_a_truncated_recording_is_read_up_to_its_end() -> None:
    text = b"".join(encoded([r.start(), r.seen(), r.seen()]))[:-40]
    reading = Reading()
    assert len(list(reading.records_from(split_lines(chunks_of(io.BytesIO(text)))))) == 2
    assert reading.truncated and reading.broken == 1
    assert reading.remarks() == ["1 of 3 lines could not be read (the first: line 3: not JSON); the recording ends in "
                                 "the middle of a line."]


@pytest.mark.parametrize("change", [
    {"duration_us": "40"}, {"duration_us": -1}, {"duration_us": 1e300}, {"duration_us": 1 << 80}, {"time": "now"},
    {"time": "2026-13-41T08:00:00.000000Z"}, {"hold": None}, {"hold": []}, {"side": "middle"}, {"comm": ["x"]},
    {"excess_us": True}, {"stack": [1]}, {"stack": [{"ip": "0xzz"}]}, {"receiver": 3}, {"local": None}, {"netns": {}},
    {"netns": None}, {"pending_ack": 3}, {"sender": None}, {"receiver": {}},
])
def test_a_stall_of_another_shape_is_counted_and_left_out(change: r.Record) -> None:
    reading = Reading()
    assert len(list(reading.records_from(encoded([r.changed(r.seen(), **change), r.seen()])))) == 1
    assert reading.broken == 1 and reading.first_broken.startswith("line 1: ")


def test_what_is_no_record_never_stops_the_reading() -> None:
    rubbish = [b"\n", b"null\n", b"[]\n", b"{}\n", b'{"type":7}\n', b"\xff\xfe\n", b"[" * 200_000 + b"\n", b'"x\n',
               b'{"type":"stall"}\n', b'{"type":"report","time":1}\n', b'{"type":"event"}\n', b"9" * 10_000 + b"\n"]
    reading = Reading()
    assert len(list(reading.records_from([*rubbish, *encoded([r.seen()])]))) == 1
    assert reading.broken == len(rubbish) - 1
    reading = Reading()
    assert list(reading.records_from([b'{"type":"of tomorrow"}\n'])) == [] and reading.unknown == 1


def test_whatever_the_tracer_writes_is_known() -> None:
    reading = Reading()
    kinds = [shape for one in SCHEMA["oneOf"] if not (shape := one["$ref"].rpartition("/")[2]).startswith("reply_")]
    list(reading.records_from(encoded([{"type": SCHEMA["$defs"][kind]["properties"]["type"]["const"]}
                                       for kind in kinds])))
    assert len(kinds) > 10 and reading.lines == len(kinds) and not reading.unknown


#: Keys that would break a line, a terminal, UTF-8, or the page's patience.
HOSTILE_KEYS = ("\x1b[31m\nred\x00", "\ud800", "\u202elanif", "<script>&]]>", "x" * 100_000)


@pytest.mark.parametrize("key", HOSTILE_KEYS, ids=lambda key: ascii(key[:20]))
@pytest.mark.parametrize("output", ["html", pytest.param("svg", marks=pytest.mark.slow),
                                    pytest.param("folded", marks=pytest.mark.slow)])
def test_what_is_wrong_with_a_hostile_key_is_one_printable_line(tmp_path: Path, key: str, output: str) -> None:
    bad = r.report(r.connection())
    bad["totals"]["holds"] = {key: "many"}
    name, more = ("report", []) if output == "html" else ("flame", ["--output", output])
    done = command(name, "-i", r.write(tmp_path / "x", [r.start(), r.seen(stack=r.stack("f")), bad]), *more)
    assert done.returncode == 0, done.stderr
    if output == "html":
        check_html(done.stdout)
        assert done.stderr == "" and "1 of 3 lines could not be read (the first: line 3: " in done.stdout
    else:
        line, end = done.stderr[:-1], done.stderr[-1]
        assert end == "\n" and line.isprintable() and len(line) < 400 and "1 of 3 lines" in line, line
    if output == "svg":
        check_svg(done.stdout)
    if output == "folded":
        assert done.stdout == "java;f 43865\n"
    none = command(name, "-i", r.write(tmp_path / "x", [bad]), *more)
    assert none.returncode == 2 and none.stdout == "" and none.stderr[:-1].isprintable() and len(none.stderr) < 400


@pytest.mark.parametrize("name", [b"caf\xe9.jsonl", b"a\x1b[31m\nb.jsonl", "caf\u00e9.jsonl".encode()])
@pytest.mark.parametrize("output", ["html", pytest.param("svg", marks=pytest.mark.slow)])
def test_a_file_of_any_name_is_read_and_named(tmp_path: Path, name: bytes, output: str) -> None:
    path = tmp_path / os.fsdecode(name)
    r.write(path, [r.start(), r.seen()])
    command_, more = ("report", []) if output == "html" else ("flame", ["--output", output])
    done = command(command_, "-i", path, *more)
    assert done.returncode == 0, done.stderr
    (check_html if output == "html" else check_svg)(done.stdout)
    assert "jsonl" in done.stdout
    path.write_text("no recording")
    done = command(command_, "-i", path, *more)
    assert done.returncode == 2 and done.stderr[:-1].isprintable(), done.stderr
    done = command(command_, "-i", r.write(tmp_path / "x", [r.start()]), "-o", tmp_path / "none" / os.fsdecode(name))
    assert done.returncode == 1 and done.stderr[:-1].isprintable(), done.stderr


def test_a_process_without_a_name_is_unknown() -> None:
    names = [process_name(comm, pid) for comm in ("java", None) for pid in (7, None)]
    assert names == ["java[7]", "java", "unknown[7]", "unknown"]


def test_a_line_has_so_many_bytes_and_values() -> None:
    pad = b'{"x":"%s"}\n'
    empty = len(pad) - 2
    assert parse_object(pad % (b"x" * ((16 << 20) - empty - 1)))
    with pytest.raises(TooLarge):
        parse_object(pad % (b"x" * ((16 << 20) - empty)))
    assert parse_object(b'{"x":[' + b"1," * 499_997 + b"1]}\n")
    with pytest.raises(TooLarge):
        parse_object(b'{"x":[' + b"1," * 500_000 + b"1]}\n")
    assert parse_object(b'{"x":["' + b',[{\\"' * 500_000 + b'"]}\n'), "a comma in a text precedes no value"
    with pytest.raises(TooLarge):
        parse_object(b'{"x":["\\\\",' + b"1," * 500_000 + b'"]}\n')
    with pytest.raises(BadRecord, match="not JSON"):
        parse_object('{"x":["\u0122"]}\n'.encode("utf-16-le"))


def test_a_line_without_end_takes_bounded_memory() -> None:
    reading = Reading()
    text = b'{"type":"stall",' + b"x" * 50_000 + b"\n" + encoded([r.start()])[0]
    lines = list(split_lines(chunks_of(io.BytesIO(text)), 1000))
    assert [len(line) for line in lines[:1]] == [1000]
    assert [type(one) for one in reading.records_from(lines)] == [Start]
    assert reading.broken == 1 and reading.lines == 2


@pytest.mark.parametrize("name", ["report", "flame"])
@pytest.mark.parametrize(("arguments", "code", "words"), [
    (["--input", "/nowhere/x"], 2, ["--input /nowhere/x", "No such file", "give a recording"]),
    (["--input", "/"], 2, ["--input /", "a directory", "give a recording"]),
    (["--input", "/bin/true"], 2, ["--input /bin/true", "not a recording", "nagletrace -o json"]),
    (["--socket", "/nowhere/s"], 1, ["--socket /nowhere/s", "No such file", "nagletrace daemon"]),
    (["--input", "-", "--duration", "5s"], 2, ["--duration", "--socket"]),
    (["--socket", "/x", "--duration", "5"], 2, ["--duration", "'5'", "needs a unit"]),
    (["--socket", "/x", "--duration", "soon"], 2, ["--duration", "'soon'", "give for example"]),
    (["--socket", "/x", "--duration", "0s"], 2, ["--duration", "'0s'", "more than zero"]),
    (["--socket", "/x", "--input", "-"], 2, ["--input", "not allowed with", "--socket"]),
    (["--wrong"], 2, ["--wrong", "--help"]),
    (["--input", "-", "-o", "/nowhere/x.html"], 1, ["--output-file /nowhere/x.html", "No such file", "nothing was"]),
])
def test_what_is_wrong_is_one_line_that_names_it_and_the_remedy(name: str, arguments: list[str], code: int,
                                                                words: list[str]) -> None:
    done = command(name, *arguments, given="")
    assert done.returncode == code and done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith(f"nagletrace-{name}: "), done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_durations_are_as_nagletrace_takes_them() -> None:
    assert [duration(text) for text in ("250us", "40ms", "5s", "1.5s", "2m")] == [0.00025, 0.04, 5, 1.5, 120]


def test_stdin_is_read_without_options(tmp_path: Path) -> None:
    text = r.write(tmp_path / "x", r.mixed()).read_text()
    assert "37 stalls" in command("report", given=text).stdout
    assert "__write" in command("flame", "-i", "-", given=text).stdout


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    def fails() -> Iterator[str]:
        yield "half"
        raise RuntimeError

    target = tmp_path / "page"
    target.write_text("old")
    target.chmod(0o640)
    write_whole(str(target), ["new", " text"])
    assert target.read_text() == "new text" and stat.S_IMODE(target.stat().st_mode) == 0o640
    with pytest.raises(RuntimeError):
        write_whole(str(target), fails())
    assert target.read_text() == "new text"
    with pytest.raises(OutputError, match="No space left on device; a part at most was written"):
        write_whole("/dev/full", ["x"] * 100_000)
    (tmp_path / "link").symlink_to(target)
    write_whole(str(tmp_path / "link"), ["newer"])
    assert target.read_text() == "newer" and (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "page"]


def test_a_command_that_is_interrupted_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    assert run_command("nagletrace-x", interrupted) == 1
    assert capsys.readouterr().err == "nagletrace-x: stopped\n"


def test_what_the_file_behind_stdout_holds_stays(tmp_path: Path) -> None:
    path, out = r.write(tmp_path / "x", [r.seen(stack=r.stack("f"))]), tmp_path / "all.folded"
    out.write_text("old\n")
    with out.open("a") as stdout:
        subprocess.run([sys.executable, "-m", "nagletrace_exporters.flame.main", "-i", str(path), "-o", "/dev/stdout"],
                       cwd=HERE, stdout=stdout, check=True)
    assert out.read_text() == "old\njava;f 43865\n"


def test_a_reader_that_is_gone_has_had_enough(tmp_path: Path) -> None:
    path = r.write(tmp_path / "x", r.mixed())
    process = subprocess.Popen([sys.executable, "-m", "nagletrace_exporters.report.main", "-i", str(path)], cwd=HERE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout and process.stderr
    process.stdout.close()
    assert (process.wait(60), process.stderr.read()) == (0, "")


def test_ctrl_c_does_not_cut_off_what_the_tracer_says_last(tmp_path: Path) -> None:
    """It reaches both ends of `nagletrace -o json | nagletrace-report`."""
    out = tmp_path / "page"
    process = subprocess.Popen([sys.executable, "-m", "nagletrace_exporters.report.main", "-o", str(out)], cwd=HERE,
                               stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin and process.stderr
    process.stdin.write(b"".join(encoded([r.start(), r.seen()])))
    process.stdin.flush()
    wait_until("it reads", lambda: reads_a_pipe(process.pid))
    process.send_signal(signal.SIGINT)
    assert b"reading to the end" in process.stderr.readline()
    process.stdin.write(encoded([r.report(r.connection(stalls=1))])[0])
    process.stdin.close()
    assert process.wait(60) == 0, process.stderr.read()
    assert "50 writes" in out.read_text()


def reads_a_pipe(pid: int) -> bool:
    """Then its handler of SIGINT is there."""
    return "pipe" in Path(f"/proc/{pid}/wchan").read_text()


class FakeStream(threading.Thread):
    """A daemon that answers snapshots and reports, and streams some stalls, by docs/protocol.md.

    `snapshots`: its answers, one after the other. `gone_at`: with the answer to this request it ends.
    """

    def __init__(self, path: Path, stalls: list[r.Record], *, snapshots: list[r.Record] | None = None,
                 window: r.Record | None = None, gone_at: str = "") -> None:
        super().__init__(daemon=True)
        self.path = path
        self.stalls = stalls
        self.snapshots = snapshots or [daemon_snapshot(1), daemon_snapshot(2)]
        self.window = window or r.report(r.connection(), closing=False, span_us=300_000_000)
        self.gone_at = gone_at
        self.asked: list[str] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(8)
        self.start()

    def run(self) -> None:
        while self.path.exists():
            connection, _ = self.listener.accept()
            with connection:
                request = json.loads(connection.makefile("rb").readline())["request"]
                self.asked.append(request)
                if request == self.gone_at:  # before it hangs up: who asks next finds nobody
                    self.listener.close()
                    self.path.unlink()
                for line in self.answers(request):
                    connection.sendall(json.dumps(line).encode() + b"\n")

    def answers(self, request: str) -> list[r.Record]:
        if request == "report":
            return [self.window]
        if request == "stream":
            return [{"type": "streaming", "protocol": 1}, *self.stalls,
                    {"type": "skipped", "protocol": 1, "stalls": 5, "others": 7}]
        return [self.snapshots[max(0, self.asked.count("snapshot") - 1)]]


def daemon_snapshot(which: int = 1, **of: Any) -> r.Record:
    made = snapshot(series("java", [40.0, 41.0, 43.0, 3000.0]))
    made["totals"]["writes"] = 100 * which
    return {**made, "time": r.at(30_000_000 * which), **of}


@pytest.mark.parametrize("name", ["report", "flame"])
def test_the_daemon_is_asked_for_what_it_has(tmp_path: Path, name: str) -> None:
    daemon = FakeStream(tmp_path / "s", [])
    done = command(name, "--socket", tmp_path / "s")
    assert done.returncode == 0, done.stderr
    assert daemon.asked == ["snapshot", "report"]
    if name == "report":
        assert "no time line" in done.stdout and "40 ms to 45 ms" in done.stdout and "more than 2 s" in done.stdout
        assert "since the daemon&#39;s start" in done.stdout and "127.0.0.1:51234" in done.stdout
    else:
        assert done.stdout == "java;[no stack recorded] 131000\n" and "stack of its last stall" in done.stderr


def test_the_daemon_is_watched_stall_by_stall(tmp_path: Path) -> None:
    daemon = FakeStream(tmp_path / "s", [r.seen(1_000_000 * n) for n in (1, 2, 3)])
    done = command("report", "--socket", tmp_path / "s", "--duration", "30s")
    assert done.returncode == 0, done.stderr
    assert daemon.asked == ["snapshot", "stream", "snapshot", "report"]
    assert "3 stalls" in done.stdout and "<svg class=\"ladder\"" in done.stdout
    assert "100 writes" in done.stdout, "counted between the two snapshots"
    assert "did not hand on 5 stalls and 7 other records" in done.stdout
    assert "the daemon closed the connection" in done.stdout
    assert "writev" in done.stdout, "the daemon's advice"


@pytest.mark.parametrize("streamed", [0, 3])
def test_what_the_daemon_had_before_it_was_watched_is_not_in_the_figures(tmp_path: Path, streamed: int) -> None:
    """Its report is of its whole window, 300 stalls of two connections."""
    window = r.report(r.connection(stalls=200, excess_us=9_000_000),
                      r.connection(stalls=100, excess_us=4_000_000, comm="earlier", pid=9), closing=False)
    snapshots = [daemon_snapshot(1, stalls=700, excess_us=31_000_000),
                 daemon_snapshot(2, stalls=700 + streamed, excess_us=31_000_000 + streamed * 43_865)]
    stalls = [r.seen(1_000_000 * n) for n in range(1, streamed + 1)]
    for name in ("report", "flame"):
        FakeStream(tmp_path / name, stalls, snapshots=snapshots, window=window)
        done = command(name, "--socket", tmp_path / name, "--duration", "30s")
        assert done.returncode == 0, done.stderr
        assert "earlier" not in done.stdout
        if name == "flame":
            assert done.stdout == ("java;[no stack recorded] 131595\n" if streamed else "")
            continue
        text = text_of(done.stdout)
        for wrong in ("300", "200 ", "700", "told of", "9.00 s", "13.0 s", "31.0", "the tracer's sums"):
            assert wrong not in text, wrong
        assert ("3 stalls in 30.0 s lost 132 ms" if streamed else "No stall in 30.0 s") in done.stdout
        assert ("writev" in done.stdout) is bool(streamed), "advice on what was seen"


@pytest.mark.parametrize("name", ["report", "flame"])
@pytest.mark.parametrize("gone_at", ["stream", "report"])
def test_what_was_seen_of_a_daemon_that_ended_is_shown(tmp_path: Path, name: str, gone_at: str) -> None:
    daemon = FakeStream(tmp_path / "s", [r.seen()], gone_at=gone_at)
    if gone_at == "report":
        daemon.window = {"type": "error", "protocol": 1, "error": "ending"}
    done = command(name, "--socket", tmp_path / "s", "--duration", "30s")
    assert done.returncode == 0, done.stderr
    assert not daemon.path.exists()
    assert ("1 stall in 43.9 ms lost 43.9 ms" in done.stdout if name == "report" else "java;" in done.stdout)
    said = done.stdout if name == "report" else done.stderr
    assert "What the daemon counted while it was watched is not known (" in said
    assert ("No such file" if gone_at == "stream" else "ending") in said


def test_a_daemon_that_began_anew_while_it_was_watched_tells_what_it_counted_since(tmp_path: Path) -> None:
    before = daemon_snapshot(9, stalls=700, excess_us=31_000_000, time=r.at(0))
    after = daemon_snapshot(1, stalls=2, excess_us=80_000, started=r.at(28_000_000))
    FakeStream(tmp_path / "s", [], snapshots=[before, after])
    done = command("report", "--socket", tmp_path / "s", "--duration", "30s")
    assert done.returncode == 0, done.stderr
    assert "100 writes" in done.stdout and "2 stalls in 30.0 s lost 80.0 ms" in done.stdout
    assert "was started anew while it was watched: its counts are of its last 2.00 s alone" in done.stdout


def test_a_connection_that_is_reset_has_ended() -> None:
    ours, its = socket.socketpair()
    with ours:
        ours.sendall(b"never read")
        its.sendall(b"last words")
        its.close()
        assert list(_chunks(ours, time.monotonic() + 30, threading.Event())) == [b"last words"]


def test_what_has_come_by_the_end_of_watching_is_read() -> None:
    ours, its = socket.socketpair()
    with ours, its:
        stop = threading.Event()
        chunks = _chunks(ours, time.monotonic() + 30, stop)
        its.sendall(b"first")
        assert next(chunks) == b"first"
        its.sendall(b"x" * 100_000)
        stop.set()
        assert len(b"".join(chunks)) == 100_000


def test_a_daemon_of_another_kind_is_one_line(tmp_path: Path) -> None:
    with FakeDaemon(tmp_path / "s", {"type": "snapshot", "protocol": 1}):
        done = command("report", "--socket", tmp_path / "s")
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "lacks something" in done.stderr


def test_a_daemons_socket_of_any_name_is_asked_and_named(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9\x1b\n")
    FakeStream(path, [])
    done = command("report", "--socket", path)
    assert done.returncode == 0, done.stderr
    check_html(done.stdout)
    path.unlink()
    done = command("report", "--socket", path)
    assert done.returncode == 1 and done.stderr[:-1].isprintable(), done.stderr


@pytest.mark.parametrize("answer", [{"type": "error", "protocol": 1, "error": "\x1b[31m\nred \ud800" + "x" * 100_000},
                                    b"[" * 200_000 + b"\n", b"9" * 10_000 + b"\n", b"\xff\n"])
def test_an_answer_of_a_hostile_daemon_is_one_printable_line(tmp_path: Path, answer: r.Record | bytes) -> None:
    with FakeDaemon(tmp_path / "s", answer), pytest.raises(DaemonError) as told:
        ask(tmp_path / "s", {"request": "snapshot"}, 30)
    assert str(told.value).isprintable() and len(str(told.value)) < 500


def test_a_daemon_that_accepts_nobody_is_waited_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as daemon, socket.socket(socket.AF_UNIX) as other:
        daemon.bind(str(tmp_path / "s"))
        daemon.listen(0)
        other.connect(str(tmp_path / "s"))
        began = time.monotonic()
        with pytest.raises(DaemonError, match="does not answer"):
            ask(tmp_path / "s", {"request": "snapshot"}, 0.3)
        assert time.monotonic() > began + 0.2


def test_who_is_refused_at_once_learns_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, write = b'{"type":"error","protocol":1,"error":"too many readers"}\n', json.dumps
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(tmp_path / "s"))
        daemon.listen()

        def refuse() -> None:
            with daemon.accept()[0] as connection:
                connection.sendall(answer)

        def write_once_refused(request: object) -> str:
            refusing.join()
            return write(request)

        refusing = threading.Thread(target=refuse)
        refusing.start()
        monkeypatch.setattr(json, "dumps", write_once_refused)
        with pytest.raises(DaemonError, match="too many readers"):
            ask(tmp_path / "s", {"request": "snapshot"}, 5)


def test_a_series_of_another_shape_is_refused() -> None:
    for wrong in ({"series": [3]}, {"series": [{"buckets": 3}]}, {"series": [{"buckets": ["x"]}]}, {"series": 3}):
        with pytest.raises(BadRecord):
            decode(Snapshot, {**daemon_snapshot(), **wrong})
