# SPDX-License-Identifier: GPL-2.0
"""The documents are true: every command in them is tried, what they paste is what is printed, links lead somewhere.

The commands run on a host of their own: network and mount namespaces with an interface eth0, /run and /etc/prometheus
empty, nagletrace installed, and programs that stall: myapp on port 8000, nginx and redis.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import documents
import pasted
import pytest
from docs_commands import COMMANDS, DAEMON, Packages, Run, Target, Tried, Units
from harness import NAGLE_LAB, PATIENCE, ROOT, Lines
from terminal import Terminal
from test_manual import READERS, options, options_of_reader

DOCUMENTS = [*documents.MARKDOWN, *documents.MANUAL]
RENEW = "`make pasted OUTPUT={}` renews it"
HOST = r"""
set -e
mount -t tmpfs none /run
mount -t tmpfs none /etc/prometheus
ip link set lo up
ip link add eth0 type veth peer name eth1
ip addr add 192.0.2.2/24 dev eth0
ip link set eth1 up
ip link set eth0 up
ip route add default via 192.0.2.1
echo up
exec sleep 1000
"""


# ---- the host ----


class Host:
    def __init__(self, place: Path) -> None:
        self.done: set[str] = set()
        self.processes: list[subprocess.Popen[str]] = []
        self.talks: dict[str, tuple[str, str]] = {}
        #: the clone: what is written there does not reach the real one
        self.clone = place / "clone"
        self.clone.mkdir()
        for name in os.listdir(ROOT):
            (self.clone / name).symlink_to(ROOT / name)
        installed = place / "installed"
        shims = place / "shims"
        shims.mkdir()
        # the PATH of a user, and sudo's, as Debian has them
        path = "/usr/local/bin:/usr/bin:/bin"
        (shims / "sudo").write_text(f'#!/bin/sh\nPATH={installed}/sbin:{installed}/bin:$PATH:/usr/sbin:/sbin '
                                    'exec "$@"\n')
        (shims / "sudo").chmod(0o755)
        (place / "gitconfig").write_text("[safe]\n\tdirectory = *\n")  # this tree, whoever owns it
        self.environment = {**os.environ, "DEPS": "have", "prefix": str(installed), "LC_ALL": "C.UTF-8",
                            "GIT_CONFIG_GLOBAL": str(place / "gitconfig"),
                            "PATH": f"{shims}:{installed}/bin:{path}"}
        self.environment.pop("MAKEFLAGS", None)
        self.holder = self.start("unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", HOST)
        lines = Lines(self.holder.stdout)
        lines.wait_for("up")
        subprocess.run(["make", "--no-print-directory", "install"], cwd=ROOT, check=True, capture_output=True,
                       env=self.environment, timeout=4 * PATIENCE)
        for name, port in (("myapp", "8000"), ("redis", "6379"), ("nginx", "8080")):
            # so slowly that the rounds last to the end, also while `fix` makes them fast
            talk = self.start(*self.enter(), str(NAGLE_LAB), "write-write-read", "--port", port, "--client-name", name,
                              "--server-name", name, "--rounds", "100000", "--interval", "2ms", "--timeout", "3600s")
            ready = json.loads(Lines(talk.stdout).wait_for('"ready"'))
            self.talks[name] = str(ready["client"]["pid"]), str(ready["server"]["pid"])

    def start(self, *command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, env=self.environment, start_new_session=True)
        self.processes.append(process)
        return process

    def enter(self) -> list[str]:
        return ["nsenter", "-t", str(self.holder.pid), "--net", "--mount"]

    def close(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM if process is not self.holder else signal.SIGKILL)
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    # ---- commands

    def script(self, command: str, how: Run) -> list[str]:
        """What runs the command here."""
        pid = self.talks["myapp"][how.end == "server"]
        command = re.sub(r"\b(PID|4242)\b", pid, command)
        command = re.sub(r"\bPEER\b", "198.51.100.7", re.sub(r"\bCOMM\b", "myapp", command))
        command = command.removesuffix("&")
        command = re.sub(r"(?<=-d |-i )\d+s|(?<=--duration )\d+s", "1s", command)
        command = re.sub(r"(?<=sleep )\d+", "1", command)
        if " fix " in command:
            command = re.sub(r" --for \d+s", "", command).replace(" fix ", " fix --for 1s ")
        alone = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh"] if how.alone else []
        return [*self.enter(), *alone, "bash", "-o", "pipefail", "-c",
                f"cd {shlex.quote(str(self.clone))} && {command}"]

    def ran(self, command: str) -> None:
        """Runs it, unless it ran before, after those that it needs."""
        how = COMMANDS[command]
        assert isinstance(how, Run)
        if command in self.done:
            return
        for other in how.needs:
            self.ran(other)
        if how.keys:
            output = self.in_terminal(command, how)
        elif how.ends == "itself":
            output = self.to_its_end(command, how)
        else:
            output = self.until_shown(command, how)
        if how.writes:
            output = (self.clone / how.writes).read_text()
        assert re.search(how.shows, output, re.MULTILINE), f"{command}\n{output[-3000:]}"
        self.done.add(command)

    def to_its_end(self, command: str, how: Run) -> str:
        """Runs it; again within 2 s, if it asks a daemon that may have seen no stall yet."""
        end = time.monotonic() + (2 if DAEMON in how.needs else 0)
        while True:
            done = subprocess.run(self.script(command, how), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, env=self.environment, timeout=4 * PATIENCE)
            assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout[-3000:]}"
            if how.writes or re.search(how.shows, done.stdout, re.MULTILINE) or time.monotonic() > end:
                return done.stdout

    def until_shown(self, command: str, how: Run) -> str:
        process = self.start(*self.script(command, how))
        lines = Lines(process.stdout)
        end = time.monotonic() + PATIENCE
        while not re.search(how.shows, lines.text(), re.MULTILINE):
            assert process.poll() is None and time.monotonic() < end, f"{command}\n{lines.text()}"
            time.sleep(0.02)
        if how.ends == "interrupt":
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(PATIENCE) == 0, f"{command}\n{lines.text()}"
            lines.finish()
        return lines.text()

    def in_terminal(self, command: str, how: Run) -> str:
        with Terminal(*self.script(command, how), columns=100, rows=100, environment=self.environment) as terminal:
            for text, keys in how.keys:
                terminal.wait_for(text)
                terminal.press(keys)
            assert terminal.ended() == 0, f"{command}\n{terminal.text()}"
            return terminal.text()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = Host(tmp_path_factory.mktemp("docs"))
    try:
        yield host
    finally:
        host.close()


# ---- commands ----


def wanted() -> dict[str, str]:
    """Where each command stands."""
    found = {}
    for path in DOCUMENTS:
        for command, where in documents.commands(path):
            command = re.sub(r"(?<=fix -p )\d+(?= --nodelay$)", "NUMBER", command)  # a pasted one
            found.setdefault(command, where)
        if path.parent.name == "runbooks" or path.name == "what-to-do.md":
            for span in documents.spans(path):
                if "…" not in span:
                    found.setdefault(span, str(path.relative_to(ROOT)))
    return found


@pytest.mark.quick
def test_every_command_in_the_documents_is_tried_and_no_other() -> None:
    found = wanted()
    assert len(found) > 50
    missing = [f"{where}: {command}" for command, where in found.items() if command not in COMMANDS]
    assert not missing, "not in tests/live/docs_commands.py, which says how a command is tried:\n" + "\n".join(missing)
    left = [command for command in COMMANDS if command not in found]
    assert not left, "in tests/live/docs_commands.py, but in no document any more:\n" + "\n".join(left)


def names(kind: type) -> list[str]:
    return [command for command, how in COMMANDS.items() if isinstance(how, kind)]


@pytest.mark.parametrize("command", names(Run))
def test_a_command_does_what_the_document_says(command: str, host: Host) -> None:
    how = COMMANDS[command]
    assert isinstance(how, Run)
    if how.where and not (ROOT / how.where).exists():
        pytest.skip(f"there is no {how.where}")
    host.ran(command)


@pytest.mark.quick
@pytest.mark.parametrize("command", names(Tried))
def test_what_another_test_tries_has_that_test(command: str) -> None:
    how = COMMANDS[command]
    assert isinstance(how, Tried)
    file, _, test = how.by.partition("::")
    assert (f"\ndef {test}(" if test else how.words) in (ROOT / file).read_text(), how.by
    assert test or how.words


def make_dry(*arguments: str) -> str:
    """What make would run."""
    done = subprocess.run(["make", "-n", "--no-print-directory", *arguments], cwd=ROOT, capture_output=True, text=True,
                          timeout=4 * PATIENCE, env={**os.environ, "DEPS": "have", "MAKEFLAGS": ""})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("command", names(Target))
def test_a_long_target_is_there_with_what_it_starts(command: str) -> None:
    for script in re.findall(r"\b(?:tests|packaging)/[\w/.-]+\.(?:py|sh)\b", make_dry(*command.split()[1:])):
        assert (ROOT / script).is_file(), script


@pytest.mark.quick
@pytest.mark.parametrize("command", names(Packages))
def test_packages_to_install_are_those_of_the_makefile(command: str) -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    packages = " ".join(re.findall(r"^\w+_PACKAGES +:= (.*)$", makefile, re.MULTILINE)).split()
    named = command.split()[3:]
    assert named and set(named) <= set(packages)


@pytest.mark.quick
@pytest.mark.parametrize("command", names(Units))
def test_units_that_are_talked_of_are_installed(command: str) -> None:
    words = command.removeprefix("sudo ").split()
    units = [word for word in words[1:] if word.startswith("nagletrace")]
    assert units or words[1] == "daemon-reload"
    for unit in units:
        assert (ROOT / "packaging" / "systemd" / f"{unit}.service").is_file(), unit


def test_systemd_finds_what_is_installed(tmp_path: Path) -> None:
    """By the commands of docs/install.md, on a root directory of their own."""
    (tmp_path / "etc").mkdir()
    for name in ("passwd", "group"):
        (tmp_path / "etc" / name).touch()
    for command in (["make", "--no-print-directory", "install", f"DESTDIR={tmp_path}"],
                    ["systemd-sysusers", f"--root={tmp_path}"],
                    ["systemctl", f"--root={tmp_path}", "enable", "nagletrace", "nagletrace-exporter"]):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=4 * PATIENCE,
                              env={**os.environ, "DEPS": "have", "MAKEFLAGS": ""})
        assert done.returncode == 0, done.stderr
    assert re.search(r"^nagletrace:", (tmp_path / "etc/passwd").read_text(), re.MULTILINE)
    for unit in ("nagletrace", "nagletrace-exporter"):
        assert (tmp_path / f"etc/systemd/system/multi-user.target.wants/{unit}.service").is_symlink()


def known_options(program: str) -> set[str]:
    """As they may be written."""
    reader = program.removeprefix("nagletrace").removeprefix("-")
    found = options_of_reader(reader) if reader else options()
    return {f"--{option.name}" for option in found} | {f"-{option.short}" for option in found if option.short}


@pytest.mark.quick
def test_options_in_the_documents_are_the_programs() -> None:
    programs = ("nagletrace", *(f"nagletrace-{name}" for name in READERS))
    known = {program: known_options(program) for program in programs}
    looked_at = 0
    for path in DOCUMENTS:
        spans = documents.spans(path) if path in documents.MARKDOWN else []
        for command in [command for command, _ in documents.commands(path)] + spans:
            for part in re.split(r"[|;&]", command):
                match = re.match(r"(?:sudo )?(?:build/)?(nagletrace[a-z-]*)\s(.*)", part.strip())
                if not match:
                    continue
                assert match[1] in programs, f"{path.name}: {command}"
                for word in re.findall(r"(?<!\S)--?[a-z][\w.-]*", match[2]):
                    letters = {f"-{letter}" for letter in word[1:]} if re.fullmatch(r"-\w{2,}", word) else {word}
                    assert letters <= known[match[1]], f"{path.name}: {command}: {word}"
                    looked_at += 1
    assert looked_at > 50


def test_targets_in_the_text_are_the_makefiles() -> None:
    found = {span for path in documents.MARKDOWN for span in documents.spans(path) if span.startswith("make ")}
    assert len(found) > 10
    make_dry(*sorted({word for span in found for word in span.split()[1:] if word != "…"}))


# ---- what is pasted, and links ----


@pytest.mark.quick
@pytest.mark.parametrize("path", documents.MARKDOWN, ids=lambda path: path.stem)
def test_each_block_says_what_it_is(path: Path) -> None:
    for block in documents.blocks(path):
        assert block.language or block.output, f"{block.where}: it has no language, nor <!-- output: NAME --> above it"
        assert block.output in ("", *pasted.OUTPUTS), f"{block.where}: tests/pasted.py has no {block.output}"
        assert block.language != "console" or block.output, f"{block.where}: what it prints is tested by nobody"
    markers = re.findall(r"^ *<!-- output: .*$", path.read_text(), re.MULTILINE)
    assert len(markers) == sum(bool(block.output) for block in documents.blocks(path)), "a marker without a fence below"


@pytest.mark.parametrize("name", pasted.OUTPUTS)
def test_what_is_pasted_has_the_shape_of_what_is_printed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pasted, "FIX_FOR", "1s")
    blocks = [block for block in documents.outputs() if block.output == name]
    assert blocks, f"{name} is pasted nowhere"
    real = pasted.made(name)
    for block in blocks:
        if name == "help":
            assert block.text == real.text, f"{block.where}: {RENEW.format(name)}"
        different = pasted.difference(block.text, real)
        assert not different, f"{block.where}: {RENEW.format(name)}:\n" + "\n".join(different)


@pytest.mark.quick
def test_the_same_output_is_pasted_everywhere() -> None:
    texts: dict[str, set[str]] = {}
    for block in documents.outputs():
        texts.setdefault(block.output, set()).add(block.text)
    assert [name for name, told in texts.items() if len(told) > 1] == []


@pytest.mark.quick
@pytest.mark.parametrize("path", [*documents.MARKDOWN, ROOT / "CHANGELOG.md", *sorted(ROOT.glob("tests/*/README.md"))],
                         ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in documents.links(path):
        file, _, name = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), f"{path.name}: {target}: there is no such file"
        assert not name or name in documents.anchors(there), f"{path.name}: {target}: there is no such heading"


@pytest.mark.quick
@pytest.mark.parametrize("path", documents.MARKDOWN, ids=lambda path: path.stem)
def test_files_that_are_named_are_there(path: Path) -> None:
    ours = r"(?:bpf|userspace|exporters|dashboards|packaging|tests|\.ci)/[\w./-]*|docs/[\w/-]*(?:\.md)?"
    for name in re.findall(rf"(?<!`)`({ours})`", documents.prose(path)):
        # some are named from the directory that the sentence is about
        assert (ROOT / name).exists() or any(ROOT.glob(f"*/*/{name}")), f"{path.name}: {name}"
