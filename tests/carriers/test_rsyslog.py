# SPDX-License-Identifier: GPL-2.0
"""The recipe of docs/fleets.md with Debian's rsyslog: its configurations as they stand there, but for paths, the port
and how much waits in memory."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import PATIENCE, free_port, kill, wait_until, wait_until_listening
from receivers import late_ack, stall
from recordings import stack

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "fleets.md").read_text()


def settings(name: str) -> str:
    """A file of the page: what stands in the fence behind its mark."""
    found = re.search(rf"<!-- (?:journald|rsyslog): {name} -->\n```(?:ini|sh|rsyslog)\n(.*?)```", PAGE, re.DOTALL)
    assert found, name
    return found[1]


class Rsyslog:
    """rsyslogd with one of the page's configurations."""

    def __init__(self, name: str, directory: Path, port: int) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        text = settings(name)
        for wanted, ours in (("/var/log/nagletrace", str(directory)), ("logs.example", "127.0.0.1"),
                             ("2514", str(port)), ('resumeInterval="5"', 'resumeInterval="1"'),
                             ('queue.size="10000"', 'queue.size="2000"')):
            assert wanted in text or name == "collector", wanted
            text = text.replace(wanted, ours)
        self.config = directory / "rsyslog.conf"
        included = directory / "nagletrace.conf"
        included.write_text(text)
        # as a distribution's, which loads others first
        self.config.write_text(f'module(load="imuxsock" SysSock.Use="off")\nglobal(workDirectory="{directory}")\n'
                               f'include(file="{included}" mode="required")\n')
        self.start()
        if name == "collector":
            wait_until_listening(self.process, port, self.told)

    def start(self) -> None:
        self.process = subprocess.Popen(["rsyslogd", "-n", "-f", self.config, "-i", self.directory / "pid"],
                                        stderr=(self.directory / "stderr").open("a"))

    def told(self) -> str:
        return (self.directory / "stderr").read_text()


def numbers(path: Path) -> list[int]:
    """Of whole lines."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line)["number"] for line in text.splitlines(keepends=True) if line.endswith("\n")]


def test_what_the_queue_holds_arrives_when_the_collector_comes_back(tmp_path: Path,
                                                                    record_property: Callable[[str, object], None]
                                                                    ) -> None:
    port = free_port()
    told = tmp_path / "host" / "records.jsonl"
    got = tmp_path / "collector" / "fleet.jsonl"
    lines: list[str] = []

    def record(count: int) -> None:
        with told.open("a") as out:
            for number in range(len(lines), len(lines) + count):
                deep = {"stack": stack(*["std::vector<ä>::" + "x" * 500] * 60)} if number % 500 == 0 else {}
                lines.append(json.dumps(late_ack(number) if number % 3 else stall(number, **deep)) + "\n")
                out.write(lines[-1])

    told.parent.mkdir()
    collector = Rsyslog("collector", tmp_path / "collector", port)
    host = Rsyslog("host", tmp_path / "host", port)
    try:
        record(100)
        wait_until("100 arrive", lambda: len(numbers(got)) >= 100, why=lambda: host.told() + collector.told())
        kill(collector.process)
        record(5000)
        spooled = tmp_path / "host"
        wait_until("it spools", lambda: any(spooled.glob("nagletrace.0*")), why=host.told)
        on_disk = sum(path.stat().st_size for path in spooled.glob("nagletrace.0*"))
        assert len(numbers(got)) == 100
        collector.start()
        wait_until("all arrive", lambda: len(set(numbers(got))) == len(lines), why=lambda:
                   f"{len(set(numbers(got)))} of {len(lines)}\n{host.told()}{collector.told()}")
        arrived = got.read_text().splitlines(keepends=True)
        assert set(arrived) == set(lines), "lines arrive as they were written"
        assert max(map(len, lines)) > 30_000, "the longest ones too"
        record_property("rsyslog", f"{len(lines)} lines, {len(arrived) - len(lines)} of them twice; "
                                   f"{on_disk} bytes waited on disk")
    finally:
        kill(collector.process)
        kill(host.process)


def test_a_file_that_is_truncated_is_read_from_its_begin(tmp_path: Path) -> None:
    port = free_port()
    told, got = tmp_path / "host" / "records.jsonl", tmp_path / "collector" / "fleet.jsonl"
    told.parent.mkdir()
    collector = Rsyslog("collector", tmp_path / "collector", port)
    host = Rsyslog("host", tmp_path / "host", port)
    try:
        for number in range(3):
            told.write_text(json.dumps(stall(number, duration_us=10 ** (6 - number))) + "\n")  # each shorter
            wait_until("it arrives", lambda: numbers(got) == list(range(number + 1)), why=host.told)  # noqa: B023
    finally:
        kill(collector.process)
        kill(host.process)


@pytest.mark.parametrize("name", ["host", "collector"])
def test_rsyslog_accepts_the_configuration(name: str, tmp_path: Path) -> None:
    (tmp_path / "conf").write_text(f'global(workDirectory="{tmp_path}")\n{settings(name)}')
    done = subprocess.run(["rsyslogd", "-N1", "-f", tmp_path / "conf"], capture_output=True, text=True,
                          timeout=PATIENCE, check=False)
    assert done.returncode == 0 and "error" not in done.stderr, done.stderr
