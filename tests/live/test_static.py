# SPDX-License-Identifier: GPL-2.0
"""The static binary of `make static` on this machine: it needs no file of the host, and does what the other does."""

from __future__ import annotations

import grp
import os
import platform
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import harness
import pytest
from daemon import Daemon
from ends import own_end
from harness import (PATIENCE, ROOT, Lab, Lines, assert_durations_match, lacking, of_lab, run, seen_at_both,
                     stalled_rounds, trace)
from processes import NOBODY, status
from terminal import Terminal

VERSION = (ROOT / "VERSION").read_text().strip()
STATIC = ROOT / "build" / "static" / f"nagletrace-{VERSION}-{platform.machine()}"
PLAY = ("write-write-read", "--rounds", "8", "--interval", "10ms")
#: In it, the program's own path.
INSIDE = "/nagletrace"


@pytest.fixture(autouse=True)
def static(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the harness starts is this binary."""
    assert STATIC.exists(), f"{STATIC} is not built: run `make static`"
    monkeypatch.setattr(harness, "NAGLETRACE", STATIC)
    monkeypatch.setattr("daemon.NAGLETRACE", STATIC)


@pytest.fixture
def empty_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A root in which there is the binary, /proc, /sys, /run and nothing else; the harness starts it there."""
    root = tmp_path / "root"
    for name in ("proc", "sys", "run"):
        (root / name).mkdir(parents=True)
    shutil.copy(STATIC, root / INSIDE[1:])
    root.chmod(0o755)
    mounts = "mount --rbind /proc {0}/proc && mount --rbind /sys {0}/sys && exec chroot {0} \"$@\"".format(root)
    prefix = ("unshare", "--mount", "--propagation", "private", "sh", "-c", mounts, "sh")
    start = subprocess.Popen

    def start_inside(command: list[str], *arguments: object, **more: object) -> subprocess.Popen[str]:
        inside = [*prefix, INSIDE, *command[1:]] if command[0] == str(STATIC) else command
        return start(inside, *arguments, **more)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(subprocess, "Popen", start_inside)
    yield root


def told_by_readelf(option: str) -> str:
    return subprocess.run(["readelf", "--wide", option, STATIC], capture_output=True, text=True, check=True).stdout


def test_it_is_one_stripped_file_that_asks_for_no_other() -> None:
    described = subprocess.run(["file", "--brief", STATIC], capture_output=True, text=True, check=True).stdout
    assert "statically linked" in described and described.rstrip().endswith("stripped") and "not str" not in described
    assert "INTERP" not in told_by_readelf("--program-headers") and "NEEDED" not in told_by_readelf("--dynamic")
    assert ".symtab" not in told_by_readelf("--sections") and ".debug_info" not in told_by_readelf("--sections")
    assert STATIC.stat().st_size < 8 << 20 and stat.S_IMODE(STATIC.stat().st_mode) == 0o755


def test_it_says_neither_where_it_was_built_nor_loads_what_answers_for_names() -> None:
    content = STATIC.read_bytes()
    assert VERSION.encode() in content, "this is not how it keeps its texts"
    assert str(ROOT).encode() not in content
    # libnss_files.so, …: the modules that glibc takes from the host
    assert b"libnss_" not in content


def test_it_finds_the_stalls_in_an_empty_root(empty_root: Path) -> None:
    with Lab(*PLAY) as lab:
        result, tracer = trace(lab, "-p", str(lab.client))
    assert_durations_match(stalled_rounds(result), tracer.stalls(), lacking(tracer))
    assert len(tracer.stalls()) >= 6
    for stall in seen_at_both(tracer, tracer.stalls()):
        assert (stall["sender"]["pid"], stall["sender"]["comm"], stall["receiver"]["comm"]) == (
            lab.client, "lab-client", "lab-server")
        assert (stall["cause"], stall["pattern"]) == ("nagle_delayed_ack", "write_write_read")


def test_it_reports_to_a_person_from_an_empty_root(empty_root: Path) -> None:
    with Lab(*PLAY) as lab:
        _, tracer = trace(lab, "-p", str(lab.client), "-i", "60s", text=True)
    assert f"lab-client[{lab.client}]" in tracer.lines.text() and "TCP_NODELAY" in tracer.lines.text()


def test_it_names_the_frames_of_a_program_with_shared_libraries() -> None:
    """libdw is in it, and reads DWARF; nothing else is loaded for that."""
    with Lab(*PLAY) as lab:
        _, tracer = trace(lab, "-p", str(lab.client), "--stacks")
    assert len(tracer.stalls()) >= 6
    for stall in tracer.stalls():
        symbols = [frame.get("symbol") for frame in stall["sender"]["stack"]]
        assert {"client_round", "send_call", "main"} <= set(symbols), stall["sender"]["stack"]


def test_it_loads_no_library_of_the_host(tmp_path: Path) -> None:
    """With what makes glibc look for some: a group, names of frames, a terminal and its character set."""
    log, opened = tmp_path / "log", ""
    not_there = ("--socket", str(tmp_path / "nagletrace.sock"))
    for arguments in (("check",), ("daemon", "--group", "no-such-group"), ("report", *not_there),
                      ("-d", "100ms", "--stacks", "--json"), ("top", "-i", "100ms")):
        command = ["strace", "-f", "-o", str(log), "-e", "trace=open,openat", str(STATIC), *arguments]
        with Terminal(*command, environment={"LC_ALL": "en_US.UTF-8"}) as terminal:
            if arguments[0] == "top":
                terminal.wait_for("PROCESS")
                terminal.press("q")
            terminal.ended()
        opened += log.read_text()
    assert all(place in opened for place in ("/sys/kernel/btf/vmlinux", "/etc/group", "terminfo")), opened
    assert not re.findall(r'"([^"]*(?:\.so\b|ld\.so|nsswitch)[^"]*)"', opened)


def test_groups_are_those_of_etc_group() -> None:
    group = next(entry for entry in grp.getgrall() if entry.gr_gid == 4)  # adm, of Debian's base-passwd
    with Daemon("--group", group.gr_name) as daemon:
        assert daemon.socket.stat().st_gid == group.gr_gid
        assert run("report", "--socket", str(daemon.socket)).returncode == 0
        refused = run("report", "--socket", str(daemon.socket), prefix=NOBODY)
    # the socket's directory is not for others either, and of the group of who runs this
    assert refused.returncode == 4 and f"be of its group, {grp.getgrgid(os.getgid()).gr_name}, or" in refused.stderr
    done = run("daemon", "--group", "no-such-group")
    assert done.returncode == 2 and "no such group" in done.stderr


def test_the_daemon_gives_its_privileges_back_and_refuses_system_calls(empty_root: Path) -> None:
    (empty_root / "etc").mkdir()
    (empty_root / "etc" / "group").write_text("root:x:0:\nreaders:x:4321:\n")
    command = [str(STATIC), "daemon", "--socket", "/run/nagletrace.sock", "--group", "readers"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            errors = Lines(process.stderr)
            errors.wait_for("nagletrace: ready")
            socket = empty_root / "run" / "nagletrace.sock"
            assert socket.stat().st_gid == 4321
            of_daemon = status(process.pid)
            assert of_daemon["Seccomp"] == "2" and int(of_daemon["CapEff"], 16) == int(of_daemon["CapPrm"], 16) == 0
            with Lab(*PLAY) as lab:
                lab.play()
            done = subprocess.run([str(STATIC), "report", "--socket", "/run/nagletrace.sock", "--json"],
                                  capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0 and f'"pid":{lab.client}' in done.stdout
        finally:
            process.terminate()


@pytest.mark.parametrize("term,hidden", [("xterm-256color", False), ("screen", True)], ids=["the host's", "its own"])
def test_top_draws_by_the_hosts_terminfo_or_its_own(term: str, hidden: bool) -> None:
    """Where the host has no terminfo, as in an empty root."""
    command = [str(STATIC), "top", "-n", "lab-client", "-i", "200ms"]
    if hidden:
        hide = 'for d in /etc/terminfo /lib/terminfo /usr/share/terminfo; do mount -t tmpfs none $d; done; exec "$@"'
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", hide, "sh", *command]
    with Lab("write-write-read", "--rounds", "100000", "--interval", "2ms", "--seconds", "4") as lab, \
            Terminal(*command, environment={"TERM": term}) as top:
        top.wait_for("PROCESS")
        lab.go()
        assert "write_write_read" in top.wait_for(f"lab-client[{lab.client}]")
        top.press("q")
        assert top.ended() == 0 and top.is_restored()


def test_a_terminal_that_nobody_knows_is_refused() -> None:
    with Terminal(str(STATIC), "top", environment={"TERM": "no-such-terminal"}) as top:
        assert top.ended() == 2
        assert "no terminal that is known here" in top.output.decode()


def test_fix_tries_the_remedy() -> None:
    with Lab("write-write-read", "--rounds", "100000", "--interval", "2ms", "--seconds", "4") as lab:
        with harness.Tracer("fix", "-p", str(lab.client), "--nodelay", "--for", "500ms", "--yes") as tracer:
            lab.go()
            tracer.wait()
    [said] = tracer.records("fix")
    assert (said["verdict"], [socket["state"] for socket in said["sockets"]]) == ("cured", ["restored"])


def test_the_whole_host_is_traced_with_names() -> None:
    with Lab(*PLAY, "--over", "veth") as lab:
        _, tracer = trace(lab)
    of_both = of_lab(lab, tracer.stalls())
    assert len(of_both) >= 6 and {own_end(stall)["comm"] for stall in of_both} == {"lab-client"}
