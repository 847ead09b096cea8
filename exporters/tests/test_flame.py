# SPDX-License-Identifier: GPL-2.0
"""Lost time by call stack: folded, as a picture that works in a browser, and named by bcc."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import resource
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import recordings as r
from browser import needs_chromium, run_script
from pages import HERE, HOSTILE, check_svg, command, make

from nagletrace_exporters.flame import confine, svg, symbols
from nagletrace_exporters.flame.stacks import AT_PEER, NO_STACK, OTHERS, RUN_TIME_CODE, Stacks
from nagletrace_exporters.flame.svg import lay_out
from nagletrace_exporters.flame.symbols import MAX_MAP_BYTES, BccNamer, started_us
from nagletrace_exporters.records import Frame, Process, Stall, decode

SVG = "{http://www.w3.org/2000/svg}"


def stalls(*lines: r.Record, **options: Any) -> Stacks:
    stacks = Stacks(**options)
    for line in lines:
        stacks.add(decode(Stall, line))
    return stacks


def test_folded_stacks_add_excess_up_from_the_outermost_call(tmp_path: Path) -> None:
    calls = r.stack("__write", "flush", "main")
    lines = [r.start(), r.seen(duration_us=40_035, stack=calls), r.seen(duration_us=41_035, stack=calls),
             r.seen(duration_us=44_035, stack=r.stack("__send", "main")),
             r.inferred(duration_us=70_000, rtt_us=30_000)]
    assert make("flame", tmp_path, lines) == (
        f"java;main;__send 44000\njava;main;flush;__write 81000\nnginx;{NO_STACK} 40000\n")


def test_stalls_without_a_stack_are_shown_and_counted(tmp_path: Path) -> None:
    path = r.write(tmp_path / "x", [r.start(), r.cork_ceiling(), r.peer_holds()])
    done = command("flame", "-i", path)
    assert done.stdout == f"httpd;{NO_STACK} 203320\nredis;{AT_PEER};[delayed_ack (unknown)] 40100\n"
    assert "2 of 2 stalls have no stack" in done.stderr
    svg = command("flame", "-i", path, "--output", "svg").stdout
    assert NO_STACK in svg and AT_PEER in svg and "2 of 2 stalls have no stack" in svg


def by_reports(tmp_path: Path, *lines: r.Record) -> dict[str, int]:
    """What is made of a recording of reports: lost time by folded stack."""
    folded = make("flame", tmp_path, list(lines))
    return {stack: int(us) for stack, _, us in (line.rpartition(" ") for line in folded.splitlines())}


def test_reports_of_intervals_add_up_until_the_closing_one_tells_of_them_all(tmp_path: Path) -> None:
    java = r.connection(stack=r.stack("__write", "main"))
    other = r.connection(pid=9, comm="other", stalls=1, excess_us=500)
    intervals = [r.start(), r.report(java, closing=False), r.report(java, other, closing=False)]
    both = {"java;main;__write": 262_000, f"other;{NO_STACK}": 500}
    assert by_reports(tmp_path, *intervals) == both, "a recording that was cut off"
    closing = r.report(r.connection(stack=r.stack("__write", "main"), excess_us=270_000))
    assert by_reports(tmp_path, *intervals, closing) == {"java;main;__write": 270_000}
    # a second run, whose end is not recorded, then a third one that has only its end
    lines = [*intervals, closing, *intervals, r.start(), r.report(other)]
    assert by_reports(tmp_path, *lines) == {"java;main;__write": 270_000 + 262_000, f"other;{NO_STACK}": 1_000}


def test_reports_of_runs_appended_to_each_other_add_up(tmp_path: Path) -> None:
    run = [r.start(), r.report(r.connection(stack=r.stack("f")))]
    assert by_reports(tmp_path, *run, *run) == {"java;f": 262_000}
    assert by_reports(tmp_path, *[line for line in (*run, *run) if line["type"] == "report"]) == {"java;f": 262_000}


def test_stalls_that_were_counted_and_are_not_here_are_told_of(tmp_path: Path) -> None:
    path = r.write(tmp_path / "x", [r.start(), r.report(stalls=2)])
    done = command("flame", "-i", path)
    assert done.stdout == "" and done.stderr == "nagletrace-flame: The tracer reported 2 stalls; 0 of them are here.\n"
    svg = command("flame", "-i", path, "--output", "svg").stdout
    assert "reported 2 stalls" in svg and "No stall." not in svg
    done = command("flame", "-i", r.write(tmp_path / "x", [r.start(), r.report()]))
    assert done.stdout == done.stderr == "", "there was none"


def test_frames_without_a_name_are_called_by_their_file_or_by_what_they_are() -> None:
    frames = [{"ip": "0x1", "module": "/usr/lib/x/libc.so.6", "offset": "0x27285"}, {"ip": "0x2"}]
    (stack,) = stalls(r.seen(stack=frames)).excess_us
    assert stack == ("java", RUN_TIME_CODE, "[libc.so.6+0x27285]")


def test_stacks_are_bounded_and_the_others_one_frame() -> None:
    made = stalls(*[r.seen(stack=r.stack(f"f{n}")) for n in range(50)], most=10)
    assert len(made.excess_us) == 11 and made.excess_us[OTHERS,] == 40 * 43_865
    assert "40 stalls of stacks beyond the first 10" in " ".join(made.remarks())


@pytest.mark.parametrize("output", ["folded", "svg"])
def test_the_same_recording_makes_the_same_bytes(tmp_path: Path, output: str) -> None:
    lines = r.mixed()
    back = [lines[0], *reversed(lines[1:])]
    assert make("flame", tmp_path, lines, "--output", output) == make("flame", tmp_path, back, "--output", output)


def test_names_from_outside_cannot_break_out(tmp_path: Path) -> None:
    lines = []
    for name in HOSTILE:
        frames = [{"ip": "0x1", "module": name, "offset": name}, {"ip": "0x2", "symbol": name}]
        lines += [r.seen(comm=name, stack=frames), r.seen(stack=frames)]
    root = check_svg(make("flame", tmp_path, lines, "--output", "svg"))
    assert len(list(root.iter(f"{SVG}g"))) == 1 + 3 * len(HOSTILE) + 1 + 2 * len(HOSTILE)
    folded = make("flame", tmp_path, lines).splitlines()
    assert len(folded) == len(lines)
    for line in folded:
        assert re.fullmatch(r"[^;]+;[^;]+;[^;]+ 43865", line) and line.isprintable()


def test_an_empty_recording_makes_a_picture_that_says_so(tmp_path: Path) -> None:
    root = check_svg(make("flame", tmp_path, [], "--output", "svg"))
    assert "No stall." in "".join(root.itertext())
    assert make("flame", tmp_path, []) == ""


def test_frames_lie_in_their_callers_and_as_wide_as_their_time() -> None:
    flame = lay_out({("a", "b"): 300, ("a", "c"): 100, ("d",): 600})
    boxes = {box.name: box for box in flame.frames}
    assert {name: (box.x, box.width, box.depth) for name, box in boxes.items()} == {
        "all": (0, 100, 0), "a": (0, 40, 1), "b": (0, 30, 2), "c": (30, 10, 2), "d": (40, 60, 1)}
    assert boxes["b"].label == "b: 300 us lost, 30.0 %"


def test_a_picture_has_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svg, "MAX_FRAMES", 100)
    flame = lay_out({(f"p{n}", f"f{n}"): n + 1 for n in range(500)})
    assert len(flame.frames) == 100 and flame.left_out == 1001 - 100
    drawn = {(box.depth, box.name[1:]) for box in flame.frames}
    assert all((depth - 1, name) in drawn for depth, name in drawn if depth == 2), "each in its caller"
    monkeypatch.undo()
    deep = lay_out({tuple(f"f{n}" for n in range(257)): 5})
    assert deep.depth == 257


@needs_chromium
def test_zoom_search_reset_and_keys_work_in_a_browser(tmp_path: Path) -> None:
    page = tmp_path / "flame.svg"
    page.write_text(make("flame", tmp_path, r.mixed(), "--output", "svg"))
    check_svg(page.read_text())
    result = run_script(page, tmp_path, """
        const frame = name => [...document.querySelectorAll('.frame')].find(
          g => g.querySelector('text').textContent === name);
        const width = name => Math.round(frame(name).getBoundingClientRect().width);
        const seen = () => [...document.querySelectorAll('.frame')].filter(
          g => getComputedStyle(g).display !== 'none').map(g => g.querySelector('text').textContent);
        const key = (g, k) => g.dispatchEvent(new KeyboardEvent('keydown', {key: k, bubbles: true, cancelable: true}));
        const name = g => g.querySelector('text').textContent;
        const got = {before: seen().length, narrow: width('nginx'), all: width('all')};
        frame('flush').querySelector('rect').dispatchEvent(new MouseEvent('click', {bubbles: true}));
        got.zoomed = seen(); got.wide = width('flush'); got.told = document.getElementById('details').textContent;
        got.focused = name(document.activeElement);
        key(document.activeElement, 'ArrowUp'); got.up = name(document.activeElement);
        key(document.activeElement, 'ArrowDown'); key(document.activeElement, 'ArrowDown');
        got.down = name(document.activeElement);
        key(document.activeElement, 'Escape'); got.reset = seen().length; got.again = width('nginx');
        key(frame('nginx'), 'Enter'); got.entered = width('nginx');
        document.getElementById('reset').click(); got.button = width('nginx');
        const search = document.getElementById('search');
        key(document.activeElement, '/'); got.searching = document.activeElement === search;
        search.value = 'SEND'; search.dispatchEvent(new Event('input'));
        got.found = document.getElementById('found').textContent;
        got.marked = [...document.querySelectorAll('.match')].map(name).sort();
        got.fill = getComputedStyle(document.querySelector('.match rect')).fill;
        key(search, 'Escape'); got.cleared = document.querySelectorAll('.match').length;
        got.controls = document.getElementById('controls').getBoundingClientRect().height > 10;
        got.off = document.querySelectorAll('.frame:not([aria-label])').length;
        return got;
        """, "--window-size=1000,800")
    assert result["before"] == result["reset"] == 17 and result["controls"] and result["off"] == 0
    assert sorted(result["zoomed"]) == ["__send", "all", "flush", "nginx", "reply"]
    assert result["narrow"] < 200 and abs(result["wide"] - result["all"]) <= 2
    assert "flush: 292 ms lost, 13.3 %" in result["told"] and result["focused"] == "flush"
    assert (result["up"], result["down"]) == ("reply", "__send")
    assert result["again"] == result["button"] == result["narrow"] and abs(result["entered"] - result["all"]) <= 2
    assert result["searching"] and result["marked"] == ["NET_Send", "__send", "send_call"]
    assert result["found"] == "3 frames, 51.3 %", "those within another are not counted twice"
    assert result["fill"] == "rgb(91, 42, 134)" and result["cleared"] == 0


class FakeCache:
    """bcc's SymbolCache as far as it is used."""

    made: list[int]

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def resolve(self, address: int, demangle: bool) -> tuple[bytes | None, int, bytes | None]:
        assert demangle
        names = {0xFFF: b"Client.main\x1b", 0x1FFF: b"[unknown]", 0x2FFF: None}
        return names.get(address), 0, b"/tmp/perf-1.map"


def test_frames_are_named_by_bcc_while_the_process_lives() -> None:
    namer = BccNamer(lambda: FakeCache)
    now = time.time_ns() // 1000
    me, gone = Process("java", os.getpid()), Process("java", 4_190_000)
    assert namer(me, Frame(0x1000), now) == "Client.main\\x1b"
    assert namer(me, Frame(0x2000), now) is None and namer(me, Frame(0x3000), now) is None
    assert namer(gone, Frame(0x1000), now) is None and namer(Process("java"), Frame(0x1000), now) is None
    assert namer.gone == {4_190_000} and namer.named == 1


def test_a_process_that_began_after_the_stall_lends_no_names() -> None:
    """Its number was another's, or the recording is another host's."""
    began = started_us(os.getpid())
    assert began is not None and time.time_ns() // 1000 - 3600_000_000 < began <= time.time_ns() // 1000
    namer = BccNamer(lambda: FakeCache)
    assert namer(Process("java", os.getpid()), Frame(0x1000), began - 1_000_000) is None
    assert namer(Process("java", os.getpid()), Frame(0x1000), began + 1_000_000) == "Client.main\\x1b"


def test_bcc_is_imported_only_when_it_is_asked_for(tmp_path: Path) -> None:
    path = r.write(tmp_path / "x", r.mixed())
    code = ("import sys; sys.modules['bcc'] = None; sys.argv = ['nagletrace-flame', '-i', sys.argv[1], *sys.argv[2:]];"
            "from nagletrace_exporters.flame.main import main; sys.exit(main())")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code, path, *arguments], cwd=HERE, capture_output=True, text=True)

    assert run().returncode == 0
    done = run("--symbols", "bcc")
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1
    assert "--symbols bcc" in done.stderr and "python3-bpfcc" in done.stderr


def test_a_real_perf_map_is_read_by_bcc(tmp_path: Path) -> None:
    program = ("import mmap, ctypes, os, sys; m = mmap.mmap(-1, 4096, prot=7);"
               "at = ctypes.addressof(ctypes.c_char.from_buffer(m));"
               "path = f'/tmp/perf-{os.getpid()}.map';"
               "open(path, 'w').write(f'{at:x} 100 LClient;::main\\n');"
               "print(hex(at), flush=True); sys.stdin.read(); os.unlink(path)")
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        assert process.stdout and process.stdin
        at = int(process.stdout.readline(), 16)
        # by now: the times of other recordings here are of another day
        stall = r.seen(pid=process.pid, stack=[{"ip": hex(at + 0x20)}])
        stall["time"] = time.strftime("%Y-%m-%dT%H:%M:%S.999999Z", time.gmtime(time.time() + 1))
        path = r.write(tmp_path / "x", [stall])
        named = command("flame", "-i", path, "--symbols", "bcc")
        plain = command("flame", "-i", path)
        process.stdin.close()
    assert named.stdout == "java;LClient:::main 43865\n", named.stderr
    assert plain.stdout == f"java;{RUN_TIME_CODE} 43865\n" and "frames without a name" in plain.stderr


HOSTILE_MAPS = ("a FIFO", "a link to /dev/zero", "a link to a file", "a directory", "of another user", "too large")


@contextlib.contextmanager
def sleeper(as_nobody: bool = False) -> Iterator[int]:
    drop = "os.setresuid(65534, 65534, 65534);" if as_nobody else ""
    with subprocess.Popen([sys.executable, "-c", f"import os, sys; {drop} print(flush=True); sys.stdin.read()"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdin
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.stdin.close()


def recorded_of(tmp_path: Path, pid: int) -> Path:
    stall = r.seen(pid=pid, stack=[{"ip": "0x1000"}])
    stall["time"] = time.strftime("%Y-%m-%dT%H:%M:%S.999999Z", time.gmtime(time.time() + 1))
    return r.write(tmp_path / "x", [stall])


@pytest.mark.skipif(os.geteuid() != 0, reason="files of other users take root")
@pytest.mark.parametrize("kind", HOSTILE_MAPS)
def test_a_hostile_perf_map_is_not_opened(tmp_path: Path, kind: str) -> None:
    with sleeper(as_nobody=True) as pid:
        path = Path(f"/tmp/perf-{pid}.map")  # noqa: S108
        if kind == "a FIFO":
            os.mkfifo(path)
        elif "link" in kind:
            path.symlink_to("/dev/zero" if "zero" in kind else "/etc/shadow")
        elif kind == "a directory":
            path.mkdir()
        else:
            path.write_text("1000 100 Client.main\n")
            if kind == "too large":
                os.truncate(path, MAX_MAP_BYTES + 1)
            os.chown(path, 65534 if kind == "too large" else 1, 0)
        try:
            began = time.monotonic()
            done = command("flame", "-i", recorded_of(tmp_path, pid), "--symbols", "bcc")
        finally:
            (path.rmdir if path.is_dir() and not path.is_symlink() else path.unlink)()
    assert done.returncode == 0 and done.stdout == f"java;{RUN_TIME_CODE} 43865\n", done.stderr
    assert time.monotonic() - began < 20 and "1 processes' frames stay unnamed" in done.stderr


def tries() -> str:
    """What a child that was taken over would try, as far as it is not refused, and what it is."""
    attempts: dict[str, Callable[[], object]] = {
        "write": lambda: os.open(f"/tmp/nagletrace-{os.getpid()}", os.O_WRONLY | os.O_CREAT),  # noqa: S108
        "run": lambda: os.execv("/bin/true", ["true"]),  # noqa: S606
        "signal": lambda: os.kill(-os.getpid(), 0),
        "type": lambda: fcntl.ioctl(0, termios.TIOCSTI, b"x"),
        "limit": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CORE),
        "socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        "be root": lambda: os.setresuid(0, 0, 0),
        "read": lambda: os.open("/etc/shadow" if os.getuid() == 65534 else "/etc/passwd", os.O_RDONLY)}
    done = []
    for what, attempt in attempts.items():
        try:
            attempt()
        except PermissionError:
            continue
        except OSError as error:  # the filter did not refuse it
            what = f"{what}: {error}"
        done.append(what)
    status = Path("/proc/self/status").read_text()
    told = [re.findall(rf"^{name}:\s+(\w+)", status, re.MULTILINE)[0] for name in ("CapEff", "CapPrm", "Seccomp")]
    limits = [str(resource.getrlimit(what)[1]) for what in (resource.RLIMIT_AS, resource.RLIMIT_CPU)]
    session = "" if os.getsid(0) == os.getpid() else "of its parent's session"
    return " ".join([str(os.getuid()), *told, *limits, *done, session]).strip()


def test_the_child_can_read_and_do_nothing_else() -> None:
    class Tries(FakeCache):
        def resolve(self, *_: object) -> tuple[bytes | None, int, bytes | None]:
            return tries().encode(), 0, None

    name = BccNamer(lambda: Tries)(Process("java", os.getpid()), Frame(0x1000), time.time_ns() // 1000)
    [permitted] = re.findall(r"^CapPrm:\s+(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    kept = f"{int(permitted, 16) & (1 << 2 | 1 << 19):016x}"
    user = 65534 if os.geteuid() == 0 and int(permitted, 16) & 1 << 19 else os.geteuid()
    assert name == f"{user} {kept} {kept} 2 {1 << 30} 60 read"


def hangs() -> object:
    return time.sleep(1000)


def eats() -> object:
    return [bytearray(1 << 20) for _ in range(1 << 20)]


def crashes() -> object:
    os.abort()


@pytest.mark.parametrize("harm", [hangs, eats, crashes])
def test_a_child_that_is_lost_costs_names_only(monkeypatch: pytest.MonkeyPatch, harm: Callable[[], object]) -> None:
    """bcc was deceived after all: a process is renamed, and another one is asked for its map in the same moment."""
    now = time.time_ns() // 1000 + 10_000_000
    with sleeper() as bad:
        namer = BccNamer(lambda: lambda pid: harm() if pid == bad else FakeCache(pid))
        me = Process("java", os.getpid())
        assert namer(me, Frame(0x1000), now) == "Client.main\\x1b"
        with monkeypatch.context() as while_it_is_asked:
            while_it_is_asked.setattr(symbols, "DEADLINE_S", 0.2)
            assert namer(Process("java", bad), Frame(0x1000), now) is None
        assert namer(Process("java", bad), Frame(0x1001), now) is None
        assert namer(me, Frame(0x2000), now) is None and namer(me, Frame(0x1000), now) == "Client.main\\x1b"
        assert namer.refused == {bad} and "1 processes' frames" in " ".join(namer.remarks())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 400 << 10


def test_a_later_child_that_does_not_load_costs_names_only() -> None:
    gone: list[str] = []
    now = time.time_ns() // 1000 + 10_000_000
    with sleeper() as bad:
        def load() -> Callable[[int], object]:
            if gone:
                raise ImportError(gone)
            return lambda pid: crashes() if pid == bad else FakeCache(pid)

        namer = BccNamer(load)
        assert namer(Process("java", bad), Frame(0x1000), now) is None
        gone.append("bcc")
        assert namer(Process("java", os.getpid()), Frame(0x1000), now) is None
        assert namer.refused == {bad, os.getpid()}


def test_the_child_is_refused_what_the_tracer_is() -> None:
    text = (HERE.parent / "userspace" / "privileges" / "refusals.c").read_text()
    names = re.findall(r'"(\w+)"', text.partition("always[] = {")[2].partition("};")[0])
    assert len(names) > 90 and not set(names) - set(confine.REFUSED.split())


def test_after_four_lost_children_the_naming_ends() -> None:
    now = time.time_ns() // 1000 + 10_000_000
    with contextlib.ExitStack() as stack:
        bad = [stack.enter_context(sleeper()) for _ in range(4)]
        namer = BccNamer(lambda: lambda pid: crashes() if pid in bad else FakeCache(pid))
        me = Process("java", os.getpid())
        for pid in bad:
            assert namer(me, Frame(0x1000), now) == "Client.main\\x1b"
            assert namer(Process("java", pid), Frame(0x1000), now) is None
        assert namer(me, Frame(0x1001), now) is None
        assert namer.refused == {*bad, os.getpid()}
