# SPDX-License-Identifier: GPL-2.0
"""The recipe of docs/fleets.md with Debian's systemd: journald with the page's settings in a namespace of its own,
systemd-journal-upload, and systemd-journal-remote, from whose journal the lines come out as they were written."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import PATIENCE, free_port, kill, wait_until, wait_until_listening
from receivers import late_ack, stall
from recordings import stack
from test_rsyslog import settings

PROGRAMS = Path("/lib/systemd")
#: A machine's own files stay as they are: journald sees these in their places.
OWN_PLACES = """
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd
mount --bind "$0/log" /var/log && mount --bind "$0/etc" /etc/systemd
[ -s /etc/machine-id ] || { echo 0123456789abcdef0123456789abcdef >"$0/id" && mount --bind "$0/id" /etc/machine-id; }
exec /lib/systemd/systemd-journald nagletrace
"""


class Journald:
    """The host's: journald@nagletrace.conf as the page has it."""

    def __init__(self, directory: Path) -> None:
        (directory / "log" / "journal").mkdir(parents=True)
        shutil.copytree("/etc/systemd", directory / "etc", symlinks=True)
        (directory / "etc" / "journald@nagletrace.conf").write_text(settings("journald@nagletrace.conf"))
        self.output = directory / "journald.txt"
        with self.output.open("w") as output:
            self.process = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c", OWN_PLACES,
                                             directory], stdout=output, stderr=output)
        self.stdout = Path(f"/proc/{self.process.pid}/root/run/systemd/journal.nagletrace/stdout")
        wait_until("journald begins", lambda: self.stdout.exists() and any(self.journals(directory)),
                   why=self.output.read_text)
        [self.journal] = self.journals(directory)

    @staticmethod
    def journals(directory: Path) -> list[Path]:
        return list((directory / "log" / "journal").glob("*.nagletrace"))

    def unit(self) -> socket.socket:
        """What systemd makes the standard output of a unit with `LogNamespace=`; sd-daemon's protocol of a stream:
        identifier, unit, priority, whether lines have one, and whether they go elsewhere too."""
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(str(self.stdout))
        stream.sendall(b"nagletrace\nnagletrace-records.service\n6\n0\n0\n0\n0\n")
        return stream


class Uploading(threading.Thread):
    """systemd-journal-upload, started again when it ends, as its unit does on the page: it ends when the collector does
    not answer."""

    def __init__(self, directory: Path, journal: Path, port: int) -> None:
        super().__init__(daemon=True)
        self.command = [PROGRAMS / "systemd-journal-upload", f"--url=http://127.0.0.1:{port}", f"--directory={journal}",
                        f"--save-state={directory / 'state'}", "--follow"]
        self.output = directory / "upload.txt"
        self.process: subprocess.Popen[bytes] | None = None
        self.starts, self.over = 0, threading.Event()
        self.start()

    def run(self) -> None:
        with self.output.open("w") as output:
            while not self.over.wait(0.2 if self.starts else 0):
                self.starts += 1
                self.process = subprocess.Popen(self.command, stdout=output, stderr=output)
                self.process.wait()

    def kill(self) -> None:
        self.over.set()
        while self.is_alive():
            if self.process:
                self.process.kill()
            self.join(0.1)


class Remote:
    """The collector: systemd-journal-remote, here without TLS."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory, self.port = directory / "remote", port
        self.directory.mkdir()
        self.output = directory / "remote.txt"
        self.start()

    def start(self) -> None:
        with self.output.open("a") as output:
            self.process = subprocess.Popen([PROGRAMS / "systemd-journal-remote",
                                             f"--listen-http=127.0.0.1:{self.port}", f"--output={self.directory}/"],
                                            stdout=output, stderr=output)
        wait_until_listening(self.process, self.port, self.output.read_text)

    def lines(self) -> list[str]:
        """By the page's own command, with another directory."""
        command = settings("read").replace("/var/log/journal/remote", str(self.directory)).replace(">fleet.jsonl", "")
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=PATIENCE)
        return done.stdout.splitlines(keepends=True)


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[tuple[Journald, Uploading, Remote]]:
    port = free_port()
    journald = Journald(tmp_path)
    remote = Remote(tmp_path, port)
    uploading = Uploading(tmp_path, journald.journal, port)
    try:
        yield journald, uploading, remote
    finally:
        uploading.kill()
        kill(remote.process)
        kill(journald.process)


def test_what_the_journal_holds_arrives_when_the_collector_comes_back(
        parts: tuple[Journald, Uploading, Remote]) -> None:
    journald, uploading, remote = parts
    lines: list[str] = []

    def record(stream: socket.socket, count: int) -> None:
        for number in range(len(lines), len(lines) + count):
            deep = {"stack": stack(*["std::vector<ä>::" + "x" * 500] * 120)} if number % 500 == 0 else {}
            lines.append(json.dumps(late_ack(number) if number % 3 else stall(number, **deep)) + "\n")
            stream.sendall(lines[-1].encode())

    def arrived() -> str:
        return f"{len(remote.lines())} of {len(lines)}\n" + uploading.output.read_text() + remote.output.read_text()

    with journald.unit() as stream:
        record(stream, 100)
        wait_until("100 arrive", lambda: len(remote.lines()) >= 100, why=arrived)
        kill(remote.process)
        starts = uploading.starts
        record(stream, 5000)
        wait_until("it starts again", lambda: uploading.starts > starts + 1, why=uploading.output.read_text)
        remote.start()
        wait_until("all arrive", lambda: len(set(remote.lines())) >= len(lines), why=arrived)
    assert sorted(set(remote.lines())) == sorted(lines), "lines arrive as they were written"
    assert max(map(len, lines)) > 48 << 10, "those too that journald cuts without LineMax"


@pytest.mark.parametrize("name", ["nagletrace-records.service", "records.service", "upload.conf"])
def test_systemd_knows_all_that_stands_in_the_units(name: str, tmp_path: Path) -> None:
    unit = tmp_path / "nagletrace-records.service"
    if name == "upload.conf":
        unit = tmp_path / "systemd-journal-upload.service"
        shutil.copy(PROGRAMS / "system" / unit.name, unit)
        drop_in = tmp_path / f"{unit.name}.d" / "nagletrace.conf"
        drop_in.parent.mkdir()
        drop_in.write_text(settings(name))
    else:
        unit.write_text(settings(name).replace("/usr/bin/nagletrace", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit], capture_output=True,
                          text=True, check=False, timeout=PATIENCE)
    assert not re.search(rf"{tmp_path}.*(Unknown|Failed|Invalid|not an absolute)", done.stderr), done.stderr
    assert done.returncode == 0, done.stderr
