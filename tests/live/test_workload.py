# SPDX-License-Identifier: GPL-2.0
"""`nagletrace -- COMMAND`: whose stalls it traces, and as whom, with which streams and signals the command runs."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import IN_GUEST, NAGLE_LAB, NAGLETRACE, PATIENCE, ROOT, Lab, Tracer, assert_felt, lacking, run
from processes import children, fields_of, status, wait_until
from terminal import Terminal
from test_unread import Pipe

NOBODY = pwd.getpwnam("nobody")
#: who called sudo; else nobody did
SUDO = {"SUDO_UID": str(NOBODY.pw_uid)}
NO_SUDO = {"SUDO_UID": ""}
#: What docker gives to a container, with the two that the documents add.
CONTAINER = ("unshare", "--mount", "--uts", "--ipc", "--cgroup", "setpriv", "--bounding-set",
             "-all," + ",".join(f"+{cap}" for cap in (
                 "chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap", "net_bind_service",
                 "net_raw", "sys_chroot", "mknod", "audit_write", "setfcap", "bpf", "perfmon")))
STALLING = (str(NAGLE_LAB), "write-write-read", "--rounds", "8")


def stalls_of(report: str) -> int:
    """How many a report in text has."""
    found = re.search(r"^nagletrace: (?:(\d+) stalls? in|no stall)", report, re.MULTILINE)
    assert found, report
    return int(found[1] or 0)


@pytest.mark.quick
@pytest.mark.guest
def test_a_command_is_traced_from_its_first_connection_to_its_end(hooks: str, tmp_path: Path) -> None:
    """The witness is the clock of the lab, whose output is the command's own."""
    records = tmp_path / "records.jsonl"
    records.write_text("what was there before\n")
    done = run("--hooks", hooks, "--json", "--output-file", str(records), "--", *STALLING)
    assert done.returncode == 0, done
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["type"] == "result"
    found = [json.loads(line) for line in records.read_text().splitlines()]
    closing = found[-1]
    assert closing["closing"] and closing["stalls"] == sum(record["type"] == "stall" for record in found)
    assert_felt(result, closing["stalls"], closing.get("unseen", 0) if IN_GUEST else 0)
    assert {record["sender"]["comm"] for record in found if record["type"] == "stall"} == {"lab-client"}


@pytest.mark.quick
@pytest.mark.parametrize("command,code,said", [
    (["sh", "-c", "exit 7"], 7, ""),
    (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM, ""),
    (["no-such-command"], 127, "nagletrace: no-such-command: cannot run it: No such file or directory\n"),
    (["/etc/passwd"], 126, "nagletrace: /etc/passwd: cannot run it: Permission denied\n"),
], ids=["fails", "killed", "missing", "no-program"])
def test_the_exit_code_is_the_commands(command: list[str], code: int, said: str) -> None:
    done = run("--", *command, environment=NO_SUDO)
    assert done.returncode == code, done
    assert done.stdout == ""
    if said:  # nothing was traced, so that there is no report
        assert done.stderr.endswith(f"nagletrace: ready\n{said}"), done.stderr
    else:
        assert stalls_of(done.stderr) == 0


@pytest.mark.quick
def test_the_command_has_our_streams_and_reports_go_to_stderr() -> None:
    done = subprocess.run([NAGLETRACE, "--", "sh", "-c", "cat; echo complaint >&2"], input="typed\n",
                          capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, "typed\n")
    assert "\ncomplaint\n" in done.stderr and stalls_of(done.stderr) == 0


@pytest.mark.parametrize("limit,command,code", [
    pytest.param("--fail-on-stall", STALLING, 5, marks=pytest.mark.quick, id="stalls"),
    pytest.param("--fail-on-stall=1000", STALLING, 0, marks=pytest.mark.quick, id="few"),
    pytest.param("--fail-on-stall", ["true"], 0, id="none"),
    pytest.param("--fail-on-stall", ["sh", "-c", f"{' '.join(STALLING)}; exit 9"], 9, id="fails-by-itself"),
])
def test_stalls_fail_the_command_that_asks_for_it(limit: str, command: list[str], code: int) -> None:
    done = run(limit, "--", *command)
    assert done.returncode == code, done
    stalls = stalls_of(done.stderr)
    said = [line for line in done.stderr.splitlines() if "--fail-on-stall" in line]
    assert said == ([f"nagletrace: --fail-on-stall=1: found {stalls} stall{'s' * (stalls > 1)}"] if code in (5, 9)
                    else [])
    assert (stalls > 0) == (command != ["true"])


@pytest.mark.quick
def test_as_many_stalls_as_the_limit_fail_the_command_and_one_less_does_not() -> None:
    for limit in range(6, 10):
        done = run(f"--fail-on-stall={limit}", "--", *STALLING)
        assert done.returncode == (5 if stalls_of(done.stderr) >= limit else 0), done


@pytest.mark.quick
def test_stalls_fail_a_trace_of_processes_too() -> None:
    with Lab("write-write-read", "--rounds", "8") as lab, Tracer("-p", str(lab.client), "--fail-on-stall=2") as tracer:
        result = lab.play()
        assert tracer.process.wait(PATIENCE) == 5
        tracer.lines.finish()
        assert_felt(result, tracer.closing()["stalls"], lacking(tracer))


def identity(*arguments: str, environment: dict[str, str]) -> list[str]:
    done = run("-q", *arguments, "--", "sh", "-c", "id -u; id -g; id -G; echo $HOME $USER", environment=environment)
    assert done.returncode == 0, done
    return done.stdout.splitlines()


@pytest.mark.quick
def test_the_command_runs_as_who_called_sudo_or_whom_user_names() -> None:
    groups = subprocess.run(["id", "-G", "nobody"], capture_output=True, text=True, check=True).stdout.strip()
    nobody = [str(NOBODY.pw_uid), str(NOBODY.pw_gid), groups, f"{NOBODY.pw_dir} nobody"]
    assert identity(environment=SUDO) == nobody
    assert identity("--user", "nobody", environment=NO_SUDO) == nobody
    assert identity("--user", "root", environment=SUDO)[0] == "0"
    assert identity(environment=NO_SUDO)[0] == "0"
    done = run("--", "true", environment={"SUDO_UID": "4000000"})
    assert (done.returncode, done.stderr) == (2, "nagletrace: cannot find the user who called sudo; give --user NAME\n")
    done = run("--", "true", environment={"SUDO_UID": "nobody"})
    assert done.returncode == 2 and "cannot find the user who called sudo" in done.stderr
    done = run("--user", "root", "--", "true", prefix=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"))
    assert done.returncode == 4 and done.stderr.count("\n") == 1 and "only root may run" in done.stderr


@contextlib.contextmanager
def killed_at_last(process: subprocess.Popen[str]) -> Iterator[None]:
    """So that a failure ends the test."""
    try:
        yield
    finally:
        if process.poll() is None:
            subprocess.run(["pkill", "-KILL", "-P", str(process.pid)])


@pytest.mark.quick
@pytest.mark.parametrize("environment", [SUDO, NO_SUDO], ids=["as-nobody", "as-root"])
def test_signals_reach_the_command_and_nobody_keeps_privileges(environment: dict[str, str]) -> None:
    script = ("cat /proc/self/status; trap 'echo term; exit 3' TERM; trap 'echo user' USR1; echo up; "
              "while :; do sleep 0.05; done")
    untraced = fields_of(subprocess.check_output(["cat", "/proc/self/status"], text=True))
    with subprocess.Popen([NAGLETRACE, "--", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, env={**os.environ, **environment}) as process, killed_at_last(process):
        assert process.stdout and process.stderr
        of_command = fields_of("".join(iter(process.stdout.readline, "up\n")))
        of_tracer, of_supervisor = (status(pid) for pid in (children(process.pid)[1], process.pid))
        # as root it may signal a command that has become another user
        kept = "0000000000000020" if environment == NO_SUDO else "0000000000000000"
        assert (of_supervisor["CapPrm"], of_supervisor["NoNewPrivs"]) == (kept, "1")
        assert of_tracer["CapPrm"] == "0000000000000000" and of_tracer["Seccomp"] == "2"
        assert of_supervisor["Uid"] == of_command["Uid"]
        for field in ("NoNewPrivs", "Seccomp", "SigBlk", "SigIgn", "CapBnd"):
            assert of_command[field] == untraced[field], field
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "user\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "term\n"
        assert process.wait(PATIENCE) == 3
        assert stalls_of(process.stderr.read()) == 0


@pytest.mark.quick
def test_a_terminals_interrupt_reaches_the_command_once_and_ends_neither_trace_nor_report() -> None:
    script = "n=0; trap 'n=$((n+1)); echo interrupts: $n' INT; echo up; while [ $n = 0 ]; do sleep 0.1; done; sleep 1"
    with Terminal(str(NAGLETRACE), "--", "bash", "-c", script, columns=100) as terminal:
        terminal.wait_for("up")
        # the process in between would pass a signal on only when the command has had the first
        terminal.process.send_signal(signal.SIGSTOP)
        terminal.press("\x03")
        terminal.wait_for("interrupts: 1")
        terminal.process.send_signal(signal.SIGCONT)
        assert terminal.process.wait(PATIENCE) == 0
        terminal.reader.join(1)
        assert "interrupts: 2" not in terminal.output.decode()
        assert stalls_of(terminal.output.decode().replace("\r", "")) == 0


@pytest.mark.quick
def test_a_command_that_becomes_another_user_still_gets_our_signals() -> None:
    with subprocess.Popen([NAGLETRACE, "--", "setpriv", "--reuid=65534", "--clear-groups", "sh", "-c",
                           "echo up; exec sleep 60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, **NO_SUDO}) as process, killed_at_last(process):
        assert process.stdout and process.stdout.readline() == "up\n"
        process.terminate()
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM


@pytest.mark.quick
def test_a_command_in_a_group_of_its_own_gets_the_terminals_signals_too() -> None:
    with Terminal(str(NAGLETRACE), "--", "setsid", "sh", "-c", "echo up; exec sleep 60") as terminal:
        terminal.wait_for("up")
        terminal.press(b"\x03")
        assert terminal.process.wait(PATIENCE) == 128 + signal.SIGINT


@pytest.mark.quick
def test_a_signal_before_ready_means_that_the_command_never_runs_and_that_shows() -> None:
    for how in (signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen([NAGLETRACE, "--", "echo", "ran"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, start_new_session=True) as process:
            while not children(process.pid):
                pass
            os.killpg(process.pid, how)
            assert process.wait(PATIENCE) != 0
            assert process.stdout and process.stdout.read() == ""


@pytest.mark.quick
def test_a_command_that_ignores_the_signal_that_ends_the_tracer_before_ready_never_runs_either() -> None:
    """As a job in the background of a script, whose SIGINT is ignored."""
    caught = 1 << (signal.SIGINT - 1)
    with subprocess.Popen(["sh", "-c", "trap '' INT; exec \"$@\"", "sh", NAGLETRACE, "--", "echo", "ran"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        while len(found := children(process.pid)) < 2:
            pass
        while not int(status(found[1])["SigCgt"], 16) & caught:
            pass
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE) == 1
        assert process.stdout and process.stdout.read() == ""


def runs(pid: int) -> bool:
    """Not so a zombie, which its new parent may leave."""
    try:
        return status(pid)["State"][0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("when", ["before ready", pytest.param("after the command", marks=pytest.mark.quick)])
def test_a_signal_ends_a_tracer_whose_output_nobody_reads(when: str) -> None:
    pipe = Pipe()
    if when == "before ready":
        pipe.fill()
    with subprocess.Popen([NAGLETRACE, "-q", "--", "sleep", "0.5"], stderr=pipe.writing,
                          env={**os.environ, **SUDO}) as process:
        if when == "after the command":
            assert os.read(pipe.reading, 100) == b"nagletrace: ready\n"
            pipe.fill()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)
        tracer = children(process.pid)[-1]
        process.terminate()
        process.wait(2)
        wait_until("the tracer has ended", lambda: not runs(tracer), 2)
    pipe.close()


@pytest.mark.quick
def test_closed_streams_and_other_answers_leave_files_and_commands_alone(tmp_path: Path) -> None:
    ran, kept = tmp_path / "ran", tmp_path / "kept"
    done = subprocess.run(["sh", "-c", f'"$1" -- touch {ran} <&- >&- 2>{tmp_path}/errors', "sh", NAGLETRACE],
                          timeout=PATIENCE, env={**os.environ, **NO_SUDO})
    assert done.returncode == 0 and ran.exists(), (tmp_path / "errors").read_text()
    kept.write_text("kept")
    assert "Exit codes" in run("--output-file", str(kept), "--help").stdout and kept.read_text() == "kept"


@pytest.mark.quick
def test_a_command_does_not_run_where_the_trace_cannot(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("an older recording")
    done = run("--btf", "/dev/null", "--output-file", str(kept), "--", "echo", "ran")
    assert done.returncode not in (0, 126, 127) and done.stdout == "", done
    assert kept.read_text() == "an older recording"
    assert run("--output-file", str(kept), "--duration", "1ms").returncode == 0
    assert kept.read_text().startswith("nagletrace: no stall in "), "of the older one nothing is left"
    done = run("--output-file", "/no/such/directory/file", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ("nagletrace: --output-file /no/such/directory/file: cannot write it: No such file or "
                           "directory; give a path that you may write\n")


@pytest.mark.quick
def test_a_container_needs_two_capabilities_and_the_hosts_process_ids() -> None:
    done = run("--fail-on-stall", "--", *STALLING, prefix=CONTAINER, environment=NO_SUDO)
    assert done.returncode == 5 and stalls_of(done.stderr) > 0, done
    for option in (("--", "echo", "ran"), ("--name", "init"), ("--cgroup", "/")):
        done = run(*option, prefix=("unshare", "--pid", "--fork", "--mount-proc"), environment=NO_SUDO)
        assert (done.returncode, done.stdout) == (2, "") and done.stderr.count("\n") == 1, done
        assert f"{option[0]}: this container" in done.stderr and "--pid=host" in done.stderr
    assert "docker run --rm --pid=host --cap-add BPF" in (ROOT / "docs" / "usage.md").read_text()
