# SPDX-License-Identifier: GPL-2.0
"""What each way of running needs, and what it keeps: every line of docs/privileges.md, played."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import harness
import pytest
from daemon import ATTACHED_ONCE, RELEASE, Daemon
from ends import own_end
from harness import NAGLE_LAB, NAGLETRACE, PATIENCE, ROOT, Lab, Lines, Tracer, of_lab, run, seen_at_both
from processes import status
from terminal import Terminal

#: bits of /proc/PID/status; linux/capability.h
BITS = {"DAC_READ_SEARCH": 2, "SYS_PTRACE": 19, "SYS_ADMIN": 21, "SYS_RESOURCE": 24, "PERFMON": 38, "BPF": 39,
        "CHECKPOINT_RESTORE": 40}
OLD = RELEASE < (5, 11)
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
USER = 65534


@dataclass(frozen=True)
class Line:
    """A line of the table, for the kernel that runs."""

    how: str
    needs: tuple[str, ...]
    parts: tuple[str, ...]
    keeps: set[str]


def table() -> dict[str, Line]:
    lines = {}
    for row in re.findall(r"^\| (`nagletrace.*)\|$", (ROOT / "docs" / "privileges.md").read_text(), re.MULTILINE):
        how, *cells = (cell.strip() for cell in row.split("|"))
        needs, keeps = cells[:2] if OLD else cells[2:]
        parts = re.search(r"\((.*)\)", needs)
        lines[how] = Line(how, tuple(re.sub(r"\(.*\)|none", "", needs).split()),
                          tuple(parts[1].split()) if parts else (), set(re.sub("none|ends", "", keeps).split()))
    return lines


# ---- how each line is run ----


def as_user(*capabilities: str, gid: int = USER) -> tuple[str, ...]:
    chosen = "-all" + "".join(f",+{name.lower()}" for name in capabilities)
    return ("setpriv", f"--reuid={USER}", f"--regid={gid}", "--clear-groups", f"--inh-caps={chosen}",
            f"--ambient-caps={chosen}", f"--bounding-set={chosen}")


@pytest.fixture(autouse=True)
def kprobes_for_cap_perfmon() -> Iterator[None]:
    """The lines but one are of kernels that let it open them."""
    if Tracer.hooks != "kprobe":
        yield
        return
    before = PARANOID.read_text()
    PARANOID.write_text("2")
    yield
    PARANOID.write_text(before)


def held_by(pid: int) -> set[str]:
    """What a process still has. It has nothing in another set, and no way to get any back: user 0 by the bounding set
    too, which others may not change, and all by no_new_privs."""
    fields = status(pid)
    assert fields["CapPrm"] == fields["CapEff"] and fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2", fields
    empty = ["CapInh", "CapAmb", *(["CapBnd"] if fields["Uid"].startswith("0\t") else [])]
    assert all(int(fields[which], 16) == 0 for which in empty), fields
    assert fields["Threads"] == "1", "the filter is in force in one thread"
    bits = int(fields["CapPrm"], 16)
    assert bits & ~sum(1 << bit for bit in BITS.values()) == 0, fields
    return {name for name, bit in BITS.items() if bits >> bit & 1}


#: The options of a trace: for a process that is to be traced, with a directory that may be used.
Options = Callable[[int, Path], list[str]]


def comms_of(stalls: list[harness.Record]) -> set[tuple[str, str]]:
    return {(stall["sender"]["comm"], stall["receiver"]["comm"]) for stall in stalls}


def a_trace(options: Options, prefix: tuple[str, ...], place: Path) -> set[str]:
    # it lingers: whose the last stall's other end is can be asked while that process is there
    with Lab("write-write-read", "--rounds", "5", "--linger", "200ms") as lab, \
            Tracer(*options(lab.client, place), prefix=prefix) as tracer:
        held = held_by(tracer.process.pid)
        lab.play()
        with contextlib.suppress(ProcessLookupError):
            tracer.process.send_signal(signal.SIGINT)
        tracer.wait()
        stalls = of_lab(lab, tracer.stalls())
    assert stalls, "no stall was found"
    assert comms_of(seen_at_both(tracer, stalls)) == {("lab-client", "lab-server")}
    return held


def top_by_itself(options: Options, prefix: tuple[str, ...], place: Path) -> set[str]:
    with Lab("write-write-read", "--rounds", "10") as lab, Terminal(
            *prefix, str(NAGLETRACE), *options(lab.client, place), "--hooks", Tracer.hooks, "-i", "250ms") as top:
        top.wait_for("traced here")
        held = held_by(top.process.pid)
        lab.play()
        top.wait_for(f"lab-client[{lab.client}]")
        top.press("q")
        assert top.ended() == 0
    return held


def the_daemon(options: Options, prefix: tuple[str, ...], place: Path, *more: str, rounds: int = 5) -> set[str]:
    with Lab("write-write-read", "--rounds", str(rounds)) as lab, \
            Daemon(*more, directory=place, prefix=prefix) as daemon:
        held = held_by(daemon.process.pid)
        lab.go()
        daemon.until(lambda told: any(own_end(c).get("pid") == lab.client for c in told["connections"]), top=1000)
    return held


def the_daemon_in_standby(options: Options, prefix: tuple[str, ...], place: Path) -> set[str]:
    """What it keeps suffices to look, to attach and to detach."""
    return the_daemon(options, prefix, place, "--standby", "--standby-after", "1s", rounds=100_000)


def the_fix(options: Options, prefix: tuple[str, ...], place: Path) -> set[str]:
    with Lab("write-write-read", "--rounds", "100", "--interval", "20ms") as lab, \
            Tracer(*options(lab.client, place), text=True, prefix=prefix) as tracer:
        held = held_by(tracer.process.pid)
        lab.go()
        tracer.wait()
        lab.result()
    said = tracer.lines.text()
    assert re.search(r"lab-client", said) and re.search(r"TCP_NODELAY (ends|cures)", said), said
    return held


def the_check(options: Options, prefix: tuple[str, ...], place: Path) -> set[str]:
    done = run("check", "--hooks", Tracer.hooks, prefix=prefix)
    assert done.returncode == 0 and "would be used" in done.stdout, done
    return set()


@dataclass(frozen=True)
class Run:
    options: Options
    run: Callable[[Options, tuple[str, ...], Path], set[str]] = a_trace


def a_file_of_the_namespace(pid: int, place: Path) -> list[str]:
    file = place / "space"
    file.touch()
    subprocess.run(["mount", "--bind", "/proc/self/ns/net", file], check=True)
    return ["--netns", str(file)]


def cgroup_of(pid: int) -> str:
    [path] = re.findall(r"^0::(.*)$", Path(f"/proc/{pid}/cgroup").read_text(), re.MULTILINE)
    return str(path)


STANDBY = "`nagletrace daemon --standby`"
RUNS = {
    "`nagletrace check`": Run(lambda pid, place: ["check"], the_check),
    "`nagletrace`": Run(lambda pid, place: []),
    "`nagletrace --pid PID --timeline`": Run(lambda pid, place: ["--pid", str(pid), "--timeline"]),
    "`nagletrace --name NAME`": Run(lambda pid, place: ["--name", "lab-client"]),
    "`nagletrace --cgroup PATH`": Run(lambda pid, place: ["--cgroup", cgroup_of(pid)]),
    "`nagletrace --netns FILE`": Run(a_file_of_the_namespace),
    "`nagletrace --netns PID` of another user": Run(lambda pid, place: ["--netns", str(pid)]),
    "`nagletrace --stacks`": Run(lambda pid, place: ["--stacks"]),
    "`nagletrace --max-overhead PERCENT`": Run(lambda pid, place: ["--max-overhead", "50"]),
    "`nagletrace --hooks kprobe` where perf_event_paranoid is above 2":
        Run(lambda pid, place: ["--hooks", "kprobe"]),
    "`nagletrace top --name NAME`, which traces by itself":
        Run(lambda pid, place: ["top", "--name", "lab-client"], top_by_itself),
    "`nagletrace fix --pid PID --nodelay` of another user":
        Run(lambda pid, place: ["fix", "--pid", str(pid), "--nodelay", "--yes", "--for", "1s"], the_fix),
    "`nagletrace daemon`": Run(lambda pid, place: ["daemon", "--socket", str(place / "socket")], the_daemon),
    STANDBY:
        Run(lambda pid, place: ["daemon", "--standby", "--socket", str(place / "socket")], the_daemon_in_standby),
}
READERS = ["`nagletrace report`", "`nagletrace top`, by the daemon", "`nagletrace-exporter`", "`nagletrace-report`",
           "`nagletrace-flame`"]
OF_KPROBES = "`nagletrace --hooks kprobe` where perf_event_paranoid is above 2"
LINES = table()

#: What a line needs is the same by every family but where it says so, and by every kernel since 5.19: the guests with
#: 5.10 and 6.1 play all of them by function hooks, newer ones some.
BY_EVERY_FAMILY = [OF_KPROBES, "`nagletrace --name NAME`"]
QUICK = ["`nagletrace`", "`nagletrace --stacks`", "`nagletrace daemon`", STANDBY]
in_guests_by_functions = [pytest.mark.guest] if Tracer.hooks == "function" else []
in_older_guests = in_guests_by_functions if RELEASE < (6, 2) else []


def cases(*more: Callable[[Line], tuple[str, ...]]) -> list[object]:
    """Each line that this kernel's hooks can play, alone or with each of those capabilities."""
    found = []
    for how in RUNS:
        if (how == OF_KPROBES and Tracer.hooks != "kprobe") or (how == STANDBY and ATTACHED_ONCE):
            continue
        marks = ([pytest.mark.guest] if how in BY_EVERY_FAMILY else
                 [pytest.mark.quick, *in_guests_by_functions] if how in QUICK else in_older_guests)
        for others in [(one,) for each in more for one in each(LINES[how])] if more else [()]:
            found.append(pytest.param(LINES[how], *others, marks=marks, id="-".join([how.replace("`", ""), *others])))
    return found


@contextlib.contextmanager
def prepared(line: Line, place: Path) -> Iterator[None]:
    """Settings in which the line means something."""
    if line.how == OF_KPROBES:
        PARANOID.write_text("3")
    try:
        yield
    finally:
        if (place / "space").exists():
            subprocess.run(["umount", place / "space"], check=True)


# ---- the tests ----


@pytest.mark.quick
def test_every_line_of_the_table_is_played() -> None:
    assert set(LINES) == {*RUNS, *READERS}
    assert all(not line.needs and not line.keeps for how, line in LINES.items() if how in READERS)


@pytest.mark.parametrize("line", cases())
def test_with_just_that_it_works_and_keeps_no_more_than_it_says(line: Line, place: Path) -> None:
    with prepared(line, place):
        played = RUNS[line.how]
        assert played.run(played.options, as_user(*line.needs, *line.parts), place) == line.keeps


@pytest.mark.quick
@pytest.mark.parametrize(("line", "missing"), cases(lambda line: line.needs))
def test_with_one_less_it_names_what_is_missing_and_the_remedy(line: Line, missing: str, place: Path) -> None:
    left = {*line.needs, *line.parts} - {missing}
    if missing == "SYS_ADMIN":  # it stood for these too
        left |= {"BPF", "PERFMON"}
    with prepared(line, place):
        arguments = RUNS[line.how].options(os.getpid(), place)
        hooks = [] if "--hooks" in arguments else ["--hooks", Tracer.hooks]
        with Terminal(*as_user(*left), str(NAGLETRACE), *arguments, *hooks, columns=400) as told:
            code = told.ended()
            said = [text for text in told.lines() if text]
    assert code == 4 and len(said) == 1, (code, said)
    assert f"CAP_{missing}" in said[0] and re.search(r"run as root|add|, or `sysctl", said[0]), said


@pytest.mark.parametrize("how", [how for how, played in RUNS.items() if played.run != the_check and how != OF_KPROBES])
def test_by_root_it_keeps_no_more_either(how: str, place: Path) -> None:
    with prepared(LINES[how], place):
        assert RUNS[how].run(RUNS[how].options, (), place) == LINES[how].keeps


@pytest.fixture
def private_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The lab, from a file that only root may read, in root's own directory, and that is gone once it runs."""
    tmp_path.chmod(0o700)
    program = tmp_path / "nagle-lab"
    shutil.copy(NAGLE_LAB, program)
    program.chmod(0o711)
    monkeypatch.setattr(Lab, "program", str(program))
    yield program


@pytest.mark.skipif(RELEASE < (5, 15), reason="this kernel shows no registers, and the lab has no frame pointers")
@pytest.mark.parametrize("missing", [pytest.param(missing, marks=in_guests_by_functions) for missing in
                                     (None, *LINES["`nagletrace --stacks`"].parts)])
def test_frames_are_named_as_far_as_they_may_be(missing: str | None, private_program: Path) -> None:
    line = LINES["`nagletrace --stacks`"]
    parts = [part for part in line.parts if part != missing]
    with Lab("write-write-read", "--rounds", "5") as lab:
        private_program.unlink()
        with Tracer("--stacks", "-n", "lab-client", prefix=as_user(*line.needs, *parts)) as tracer:
            assert held_by(tracer.process.pid) == line.keeps - {missing}
            lab.play()
            tracer.stop()
    stalls = of_lab(lab, tracer.stalls())
    frames = [f for stall in stalls for f in stall["sender"]["stack"] if str(private_program) in f.get("module", "")]
    told = [text for text in tracer.errors.text().splitlines() if "--stacks" in text]
    assert stalls and bool(frames) == (missing != "SYS_PTRACE")
    assert any("symbol" in frame for frame in frames) == (missing is None), (tracer.closing()["unnamed_stacks"], frames)
    assert len(told) == (missing is not None) and (not missing or f"without CAP_{missing} " in told[0]), told


@pytest.mark.parametrize("capabilities", [("SYS_PTRACE",), ()])
def test_names_that_proc_hides_take_a_capability_and_else_are_said_to_be_missing(capabilities: tuple[str, ...]) -> None:
    hidden = ("unshare", "--mount", "--propagation", "private", "sh", "-c",
              'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh")
    needs = LINES["`nagletrace`"].needs
    with Lab("write-write-read", "--rounds", "5") as lab, \
            Tracer(prefix=hidden + as_user(*needs, *capabilities)) as tracer:
        held = held_by(tracer.process.pid)
        lab.play()
        tracer.stop()
    stalls = of_lab(lab, tracer.stalls())
    said = "hidepid" in tracer.errors.text()
    assert stalls and held == set(capabilities) and said == (not capabilities), (held, tracer.errors.text())
    if capabilities:
        assert comms_of(seen_at_both(tracer, stalls)) == {("lab-client", "lab-server")}


# ---- the daemon's readers ----


@functools.cache
def exporters() -> tempfile.TemporaryDirectory[str]:
    """The Python programs where every user may read them: this tree may lie where only its owner may look."""
    place = tempfile.TemporaryDirectory()
    Path(place.name).chmod(0o755)
    shutil.copytree(ROOT / "exporters" / "nagletrace_exporters", Path(place.name) / "nagletrace_exporters")
    return place


def python_reader(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {exporters().name!r}); "
            f"from nagletrace_exporters.{name}.main import main; sys.exit(main())", *arguments]


def to_its_end(*command: str) -> tuple[int, str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout + done.stderr


def ask_with_top(prefix: tuple[str, ...], socket: Path) -> tuple[int, str]:
    with Terminal(*prefix, str(NAGLETRACE), "top", "--socket", str(socket), columns=400) as top:
        if top.process.poll() is None:
            with contextlib.suppress(AssertionError):
                top.wait_for("lab-client")
                text = top.text()
                top.press("q")
                return top.ended(), text
        return top.ended(), top.text()


def ask_with_exporter(prefix: tuple[str, ...], socket: Path) -> tuple[int, str]:
    """What Prometheus gets, and the log."""
    command = python_reader("exporter", "--daemon.socket", str(socket), "--web.listen-address", "127.0.0.1:0")
    process = subprocess.Popen([*prefix, *command], stderr=subprocess.PIPE, text=True)
    log = Lines(process.stderr)
    try:
        address = log.wait_for("listening on").rsplit(" ", 1)[1]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE) as answer:
            metrics = answer.read().decode()
    finally:
        process.terminate()
        process.wait(PATIENCE)
    log.finish()
    up = re.search(r"^nagletrace_up (\d)", metrics, re.MULTILINE)
    assert up
    return (0 if up[1] == "1" else 4), (metrics if up[1] == "1" else log.text())


ASK: dict[str, Callable[[tuple[str, ...], Path], tuple[int, str]]] = {
    "`nagletrace report`": lambda prefix, socket: to_its_end(
        *prefix, str(NAGLETRACE), "report", "--socket", str(socket)),
    "`nagletrace top`, by the daemon": ask_with_top,
    "`nagletrace-exporter`": ask_with_exporter,
    "`nagletrace-report`": lambda prefix, socket: to_its_end(
        *prefix, *python_reader("report", "--socket", str(socket))),
    "`nagletrace-flame`": lambda prefix, socket: to_its_end(*prefix, *python_reader("flame", "--socket", str(socket))),
}


@pytest.fixture(scope="module")
def served() -> Iterator[Daemon]:
    """A daemon that has seen a stall, for the group nogroup."""
    with Lab("write-write-read", "--rounds", "5", "--own-netns") as lab, \
            Daemon("--group", "nogroup", "--stacks", "--netns", str(lab.client)) as daemon:
        daemon.socket.parent.chmod(0o755)
        lab.play()
        daemon.until(lambda told: told["stalls"])
        yield daemon


@pytest.mark.parametrize("reader", READERS)
def test_who_is_in_the_sockets_group_may_ask_without_any_capability(reader: str, served: Daemon) -> None:
    code, said = ASK[reader](as_user(), served.socket)
    assert code == 0 and re.search("lab-client|client_round", said), said


@pytest.mark.quick
@pytest.mark.parametrize("hidden", [False, True], ids=["socket", "directory"])
@pytest.mark.parametrize("reader", READERS)
def test_who_is_not_is_refused_and_told_which_group_it_is(reader: str, hidden: bool, served: Daemon) -> None:
    directory = served.socket.parent
    if hidden:  # as systemd's RuntimeDirectoryMode=0750 does
        os.chown(directory, -1, USER)
        directory.chmod(0o750)
    try:
        code, said = ASK[reader](as_user(gid=12345), served.socket)
    finally:
        directory.chmod(0o755)
    [line] = [text for text in said.splitlines() if str(served.socket) in text]
    assert code == 4 and "not permitted" in line and "its group, nogroup" in line, said
    assert len([text for text in said.splitlines() if text]) == 1 or "exporter" in reader
    assert "lab-client" not in said
