# SPDX-License-Identifier: GPL-2.0
"""The manual pages and completions say what the programs say of themselves. Nothing is traced here.

`make options` writes what they have of the options of nagletrace; the other tests try what is made of it."""

from __future__ import annotations

import functools
import grp
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import PATIENCE, ROOT, SCHEMA, run
from terminal import Terminal

PAGES = sorted((ROOT / "docs" / "man").glob("*.[18]"))
BASH = ROOT / "packaging" / "completion" / "nagletrace.bash"
ZSH = ROOT / "packaging" / "completion" / "_nagletrace"
READERS = ("exporter", "report", "flame", "join")
#: "" is to trace
COMMANDS = ("", "check", "daemon", "report", "top", "fix", "sample")
#: They answer at once, with any command.
ANSWERS = {"help", "version", "json-schema"}
#: A file that nobody else may read, of 16 bytes: --fleet-key takes no other.
KEY = tempfile.NamedTemporaryFile()
KEY.write(b"0123456789abcdef")
KEY.flush()
#: A value for each kind of argument that parses.
VALUES = {"PID[,PID]": str(os.getpid()), "PID|PATH": str(os.getpid()), "NAME": "root", "PATH": "/x",
          "PORT[,PORT]": "80", "PORT": "80", "DURATION": "5s", "N": "5", "text|json": "text", "WHICH": "auto",
          "FILE": KEY.name, "PERCENT": "1", "ID|NAME": "web", "UID": str(uuid.uuid4()), "UNIT": "nginx.service"}

#: Another cgroup hierarchy than this host's, in a mount namespace of its own.
WITH_CGROUPS = ("unshare", "--mount", "--propagation", "private", "sh", "-c",
                "mount -t tmpfs none /sys/fs/cgroup && touch /sys/fs/cgroup/cgroup.controllers && mkdir -p "
                "'/sys/fs/cgroup/system.slice/a\\x2db' '/sys/fs/cgroup/system.slice/c d' /sys/fs/cgroup/user.slice && "
                'exec "$@"', "sh")


@dataclass(frozen=True)
class Option:
    name: str
    short: str | None
    argument: str | None
    help: str

    @property
    def tag(self) -> str:
        """As --help of nagletrace and the pages head it."""
        between = " " if self.takes_value else ""
        return (f"-{self.short}, " if self.short else "") + f"--{self.name}{between}{self.argument or ''}"

    @property
    def takes_value(self) -> bool:
        """Not so where the value may be left out: [=N]."""
        return self.argument is not None and not self.argument.startswith("[")

    @property
    def defaults(self) -> list[str]:
        return re.findall(r"\(default ([^)]+)\)", self.help)


def options_in(help_text: str, row: re.Pattern[str]) -> list[Option]:
    """One of each row that begins an option, with what stands behind it and on the lines that go on."""
    found: list[Option] = []
    for line in help_text.splitlines():
        if match := row.match(line):
            argument = match["argument"]
            if argument and argument.startswith("{"):
                argument = argument[1:-1].replace(",", "|")
            found.append(Option(match["name"], match["short"], argument, line[match.end():].strip()))
        elif found and line.startswith(" " * 20):
            found[-1] = Option(found[-1].name, found[-1].short, found[-1].argument,
                               f"{found[-1].help} {line.strip()}".strip())
    return found


@functools.lru_cache
def options() -> list[Option]:
    return options_in(run("--help").stdout,
                      re.compile(r"  (?:-(?P<short>\w), |    )--(?P<name>[\w-]+)(?: ?(?P<argument>\S+))?"))


@functools.lru_cache
def options_of_reader(name: str) -> list[Option]:
    """Of a command in Python, by its argparse."""
    done = subprocess.run([sys.executable, "-m", f"nagletrace_exporters.{name}.main", "--help"], capture_output=True,
                          text=True, check=True, cwd=ROOT / "exporters", timeout=PATIENCE,
                          env={**os.environ, "COLUMNS": "200", "PYTHONDONTWRITEBYTECODE": "1"})
    return options_in(done.stdout, re.compile(
        r"  (?:-(?P<short>\w)(?: \S+)?, )?--(?P<name>[\w.-]+)(?: (?P<argument>\S+))?"))


@functools.lru_cache
def goes_with(command: str) -> frozenset[Option]:
    """By trying each; something else is wrong with the command line, so that nothing begins."""
    wrong = ["--quiet", "--verbose"] if command in ("", "daemon") else ["--max-connections", "5"]
    taken = set()
    for option in options():
        given = [f"--{option.name}"] + ([VALUES[str(option.argument)]] if option.takes_value else [])
        done = run(*([command] if command else []), *given, *wrong)
        if option.name in ANSWERS:
            assert done.returncode == 0
        else:
            assert done.returncode == 2 and done.stderr.count("\n") == 1, done
            if not re.match(rf"nagletrace: --{option.name}: (does not go with|goes with)", done.stderr):
                assert wrong[0] in done.stderr, done.stderr
                taken.add(option)
    assert taken, command
    return frozenset(taken)


@functools.lru_cache
def manual(name: str) -> dict[str, list[str]]:
    """The lines of each section, as they are read."""
    page = next(p for p in PAGES if p.stem == name)
    shown = subprocess.run(["mandoc", "-Tascii", "-Owidth=300", page], capture_output=True, text=True, check=True,
                           timeout=PATIENCE).stdout
    sections: dict[str, list[str]] = {}
    for line in re.sub(".\b", "", shown).splitlines()[1:-1]:
        if line[:1].isupper():
            sections[line] = []
        elif sections:
            sections[list(sections)[-1]].append(line)
    return sections


def tags(lines: list[str], first: str) -> dict[str, str]:
    """What each tag of the section's lists is said to be; a tag begins with this."""
    found: dict[str, str] = {}
    for line in lines:
        if re.match(rf" {{5}}{first}", line):
            tag, _, rest = line.strip().partition("  ")
            found[tag] = rest
        elif found:
            found[list(found)[-1]] += f" {line.strip()}"
    return found


# ---- what is written from the table of options ----


@pytest.mark.quick
@pytest.mark.parametrize("part,file", [("bash", BASH), ("zsh", ZSH), ("man", ROOT / "docs" / "man" / "nagletrace.8")])
def test_the_options_of_a_file_are_those_of_the_table(part: str, file: Path) -> None:
    written = subprocess.run([ROOT / "build" / "options", part], input=file.read_text(), capture_output=True, text=True,
                             check=True, timeout=PATIENCE).stdout
    assert file.read_text() == written, f"{file.relative_to(ROOT)}: run `make options`"


# ---- manual pages ----


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_mandoc_has_nothing_to_say_of_a_page(page: Path) -> None:
    done = subprocess.run(["mandoc", "-Tlint", "-Wwarning", page], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.quick
def test_there_is_a_page_for_each_command() -> None:
    assert {p.name for p in PAGES} == {"nagletrace.8"} | {f"nagletrace-{name}.1" for name in READERS}
    assert f"\nPYTHON_COMMANDS := {' '.join(READERS)}\n" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("name", ["", *READERS])
def test_the_options_of_a_page_are_the_programs(name: str) -> None:
    wanted = options_of_reader(name) if name else options()
    told = tags(manual(f"nagletrace-{name}" if name else "nagletrace")["OPTIONS"], "-")
    assert sorted(told) == sorted(option.tag for option in wanted)
    for option in wanted:
        assert re.search(r"[A-Za-z]{3}", told[option.tag]), f"{option.tag} is not explained"
        for default in option.defaults:
            assert f"(default {default})" in told[option.tag], option.tag


def synopsis(name: str) -> dict[str, set[str]]:
    """The options by command, as letters where they have one; "answers" are those of the last form."""
    told: dict[str, set[str]] = {}
    text = " ".join(line.strip() for line in manual(name)["SYNOPSIS"])
    for form in re.split(rf"(?:^|(?<= )){name} ", text)[1:]:
        word = form.split()[0]
        given = told.setdefault(word if word in COMMANDS else "answers" if word == "--help" else "", set())
        given.update(re.findall(r"--([\w.-]+)", form))
        given.update(letter for letters in re.findall(r"(?<![\w-])-(\w+)", form) for letter in letters)
    return told


@pytest.mark.quick
def test_the_synopsis_has_for_each_command_the_options_that_go_with_it() -> None:
    told = synopsis("nagletrace")
    assert told.pop("answers") == ANSWERS
    assert told == {command: {option.short or option.name for option in goes_with(command)} for command in COMMANDS}


@pytest.mark.quick
@pytest.mark.parametrize("name", READERS)
def test_the_synopsis_of_a_reader_has_its_options(name: str) -> None:
    wanted = {option.short or option.name for option in options_of_reader(name) if option.name not in ANSWERS}
    assert synopsis(f"nagletrace-{name}") == {"": wanted, "answers": {"help", "version"}}


@pytest.mark.quick
def test_the_commands_of_the_page_are_the_programs() -> None:
    named = set(re.findall(r"^  nagletrace ([a-z]+)", run("--help").stdout, re.MULTILINE))
    assert named == {"help", *filter(None, COMMANDS)}
    assert set(tags(manual("nagletrace")["COMMANDS"], r"\S")) == {
        *filter(None, COMMANDS), "help [COMMAND]", "INTERVAL [COUNT]", "-- COMMAND"}


@pytest.mark.quick
def test_the_words_of_the_output_are_all_there() -> None:
    output, timeline = ("\n".join(manual("nagletrace")[section]) for section in ("OUTPUT", "TIMELINE"))
    for kind in ("side", "cause", "evidence", "pattern", "reason", "release", "ack_release", "ack_reason"):
        for word in SCHEMA["$defs"][kind]["enum"]:
            assert re.search(rf"\b{word}\b", output), (kind, word)
    for word in SCHEMA["$defs"]["event"]["properties"]["event"]["enum"]:
        assert re.search(rf"\b{word}\b", timeline), word


@pytest.mark.quick
def test_the_exit_statuses_are_those_of_the_help() -> None:
    said = re.search(r"Exit codes: ([^.]*)", run("--help").stdout)
    assert said and list(tags(manual("nagletrace")["EXIT STATUS"], r"\d")) == re.findall(r"\d", said[1])


def examples(page: str, command: str) -> list[list[str]]:
    """The arguments of each example of a command, up to where the shell goes on."""
    lines = (line.strip() for line in manual(page)["EXAMPLES"])
    return [shlex.split(re.split(r"[|>&]", line)[0])[2:] for line in lines if re.match(rf"[#$] {command} ", line)]


@pytest.mark.quick
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_parse(page: Path) -> None:
    for words in examples(page.stem, "nagletrace"):
        words = [str(os.getpid()) if word == "4242" else word for word in words]
        wrong = ["--max-connections", "5"] if words[0] in ("report", "top") else ["-q", "-v"]
        done = run(*wrong, *words)
        assert done.returncode == 2 and ("do not go together" in done.stderr or wrong[0] in done.stderr), done
    for name in READERS:
        known = {spelled for option in options_of_reader(name) for spelled in (f"--{option.name}", f"-{option.short}")}
        for words in examples(page.stem, f"nagletrace-{name}"):
            assert {word for word in words if word.startswith("-")} <= known, words
    assert examples(page.stem, page.stem)


# ---- bash ----


def bash(*words: str, cwd: Path | None = None, prefix: tuple[str, ...] = ()) -> list[str]:
    """What is offered for the last word."""
    script = ('source "$1"; shift; COMP_WORDS=(nagletrace "$@"); COMP_CWORD=$#; _nagletrace; '
              r'printf "%s\n" "${COMPREPLY[@]}"')
    done = subprocess.run([*prefix, "bash", "--norc", "-uc", script, "bash", BASH, *words], capture_output=True,
                          text=True, check=True, cwd=cwd, timeout=PATIENCE)
    assert not done.stderr
    return [line for line in done.stdout.split("\n") if line]


@pytest.mark.quick
@pytest.mark.parametrize("command", COMMANDS)
def test_bash_offers_the_options_that_go_with_the_command(command: str) -> None:
    words = [command] if command else []
    wanted = {f"--{option.name}" for option in goes_with(command)} | {f"--{name}" for name in ANSWERS}
    offered = bash(*words, "--")
    assert len(offered) == len(set(offered)) and set(offered) == wanted
    assert set(bash(*words, "--m")) == {name for name in wanted if name.startswith("--m")}


@pytest.mark.quick
def test_bash_knows_which_options_take_a_value() -> None:
    for option in options():
        for spelled in [f"--{option.name}"] + ([f"-{option.short}"] if option.short else []):
            offered = bash(spelled, "")
            assert ("check" in offered) != option.takes_value, (spelled, offered)


@pytest.mark.quick
def test_bash_offers_the_commands_and_values(tmp_path: Path) -> None:
    pid, cut = str(os.getpid()), str(os.getpid())[:-1]
    (tmp_path / "vmlinux.btf").touch()
    assert set(bash("")) == set(COMMANDS) - {""}
    assert bash("-p", "1", "d") == ["daemon"]
    assert bash("--name", "top", "che") == ["check"]
    assert bash("-o", "") == bash("report", "--output", "=") == ["text", "json"]
    assert bash("check", "--output", "=", "j") == ["json"]
    assert bash("--hooks", "") == ["auto", "function", "kprobe", "tracepoint"]
    assert pid in bash("--pid", cut) and f"1,{pid}" in bash("-p", f"1,{cut}") and pid in bash("--netns", cut)
    assert Path("/proc/self/comm").read_text().strip() in bash("-n", "")
    assert bash("--btf", f"{tmp_path}/vm") == [f"{tmp_path}/vmlinux.btf"] == bash("daemon", "--socket", f"{tmp_path}/v")
    assert set(bash("daemon", "--group", "")) == {group.gr_name for group in grp.getgrall()}
    assert bash("--port", "") == []


@pytest.mark.quick
def test_bash_offers_cgroups() -> None:
    assert set(bash("--cgroup", "", prefix=WITH_CGROUPS)) == {"/system.slice/", "/user.slice/"}
    assert set(bash("-c", "/system.slice/", prefix=WITH_CGROUPS)) == {r"/system.slice/a\x2db/", "/system.slice/c d/"}
    assert bash("-c", "/none", prefix=WITH_CGROUPS) == []


def test_a_process_name_is_offered_to_no_shell_that_would_run_it(tmp_path: Path) -> None:
    name = "$(touch pwned)"
    script = f"import ctypes, sys; ctypes.CDLL(None).prctl(15, {name.encode()!r}); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        assert Path(f"/proc/{process.pid}/comm").read_text() == f"{name}\n"
        for words in (("-n", ""), ("-n", "$"), ("--name", "=", "$(")):
            assert not [offered for offered in bash(*words, cwd=tmp_path) if "$" in offered]
        stub = 'setopt extendedglob; _arguments() { :; }; compadd() { print -rl -- $names; }; words=(); CURRENT=1'
        done = subprocess.run(["zsh", "-fc", f'{stub}; source "$1"; _nagletrace_names', "zsh", ZSH], cwd=tmp_path,
                              capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert Path("/proc/self/comm").read_text() in done.stdout and "$" not in done.stdout
    assert not list(tmp_path.iterdir())


# ---- zsh ----


def zsh_specs(command: str) -> dict[str, bool]:
    """Whether it takes a value, by option, of those that _arguments is told of."""
    script = ('setopt extendedglob; _arguments() { print -rl -- "$@" }; words=(nagletrace $2 ""); CURRENT=$#words; '
              'source "$1"')
    done = subprocess.run(["zsh", "-fc", script, "zsh", ZSH, command], capture_output=True, text=True, check=True,
                          timeout=PATIENCE)
    assert not done.stderr
    found: dict[str, bool] = {}
    for line in done.stdout.splitlines():
        if match := re.match(r"(?:\([^)]*\))?\*?--?([\w-]+?)([+=]?|=-)\[(?:[^]\\]|\\.)+\](:{,2})", line):
            assert match[1] not in found and len(match[2]) == len(match[3]), line
            found[match[1]] = match[3] == ":"
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_zsh_is_told_the_options_that_go_with_the_command(command: str) -> None:
    wanted: dict[str, bool] = {}
    for option in options():
        if option.name in ANSWERS or option in goes_with(command):
            wanted.update({spelled: option.takes_value for spelled in (option.name, option.short) if spelled})
    assert zsh_specs(command) == wanted


# ---- both, in a terminal ----


@pytest.mark.parametrize("shell,begin", [
    (["bash", "--norc", "-i"], f"bind 'set enable-bracketed-paste off'; source {BASH}"),
    (["zsh", "-f", "-i"], f"fpath=({ZSH.parent} $fpath); autoload -Uz compinit; compinit -u -D"),
], ids=["bash", "zsh"])
def test_tab_completes_in_a_terminal(shell: list[str], begin: str, tmp_path: Path) -> None:
    (tmp_path / "vmlinux.btf").touch()
    sleeper = subprocess.Popen([shutil.copy(shutil.which("sleep") or "", tmp_path / "nt-sleeper"), "60"])
    pid = str(sleeper.pid)
    try:
        with Terminal(*WITH_CGROUPS, *shell, columns=200, environment={"PS1": "> "}) as terminal:
            terminal.press(f"{begin}; echo completes; cd {tmp_path}\n")
            terminal.until(lambda screen: "\ncompletes\n" in screen, "completes")
            for typed, completed in (("nagletrace ch\t", "> nagletrace check"), (" --ho\t", " --hooks"),
                                     (" fu\t", " function"), (" --ou\t", " --output"), (" j\t", " json"),
                                     (" --btf vm\t", " --btf vmlinux.btf"),
                                     ("\x15nagletrace -n nt-sl\t", "> nagletrace -n nt-sleeper"),
                                     ("\x15nagletrace -c /sy\t", "> nagletrace -c /system.slice/"),
                                     ("a\t", r" -c /system.slice/a\\x2db/"),
                             ("\x15nagletrace -q -- mkte\t", "> nagletrace -q -- mktemp"),
                                     (f"\x15nagletrace -p 1,{pid[:-1]}\t\t", pid)):  # or it is in the list of those
                terminal.press(typed)
                shown = re.compile(re.escape(completed).replace(r"\ ", "[ =]+"))
                terminal.until(lambda screen: shown.search(screen) is not None, completed)
    finally:
        sleeper.kill()
        sleeper.wait()
