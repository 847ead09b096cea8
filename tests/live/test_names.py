# SPDX-License-Identifier: GPL-2.0
"""Frames are named by a process of their own: what a hostile process has mapped costs its own names, and no more.

The hostile process is user 65534, who makes up the call stacks of its stalls (hostile_stacks.c): they go through a file
that it chose. Beside it a well-behaved process of another user stalls, and has its names. Memory is what /proc says.
"""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import platform
import re
import signal
import statistics
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from daemon import Daemon
from ends import own_end
from harness import (NAGLETRACE, PATIENCE, ROOT, Lab, Lines, Record, Tracer, assert_felt, day_s, lacking, of_lab,
                     seconds_to_end, stalled_rounds)
from processes import children, cpu_s, descriptors, status, wait_until
from terminal import Terminal

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="hostile_stacks.c makes its frames up on x86-64")

HOSTILE = ROOT / "build" / "hostile-stacks"
USER = 65534
MIB = 1 << 20
#: What a worker may have (userspace/names/worker.h), and the most that it, the keeper and the tracer are to have.
WORKER = 256 * MIB
#: CPU time of the tracer itself that one stall may cost, in s.
STALL_COSTS = 0.05
#: The hostile file's code, by its offset.
FIRST, LAST = 0x1000, 0xf000
END = 0x10000


# ---- files ----


@dataclass
class Elf:
    """A library that is loaded whole at offset 0, with these sections behind its code."""

    sections: list[tuple[str, int, int, int, int, int]] = field(default_factory=list)
    data: list[tuple[int, bytes]] = field(default_factory=list)
    end: int = END

    def section(self, name: str, kind: int, content: bytes, link: int = 0, entry: int = 0, size: int | None = None
                ) -> None:
        """With a size it is a hole: all zeros, and nothing on the disk."""
        self.sections.append((name, kind, self.end, len(content) if size is None else size, link, entry))
        self.data.append((self.end, content))
        self.end += self.sections[-1][3]

    def write(self, path: Path) -> Path:
        self.sections.insert(0, (".text", 1, FIRST, LAST - FIRST, 0, 0))
        names = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in self.sections) + b".shstrtab\0"
        self.section(".shstrtab", 3, names)
        self.end += -self.end % 8
        headers = bytes(64)
        for name, kind, offset, size, link, entry in self.sections:
            flags, address = (6, offset) if name == ".text" else (0, 0)
            headers += struct.pack("<IIQQQQIIQQ", names.index(name.encode()), kind, flags, address, offset, size, link,
                                   1 if kind == 2 else 0, 8, entry)
        with path.open("wb") as file:
            file.write(struct.pack("<4s5B7xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 0, 3, 62, 1, 0, 64, self.end, 0, 64,
                                   56, 1, 64, len(self.sections) + 1, len(self.sections)))
            file.write(struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, END, END, 4096))
            for offset, content in self.data:
                file.seek(offset)
                file.write(content)
            file.seek(self.end)
            file.write(headers)
        path.chmod(0o666)
        return path


def symbols(*names: bytes) -> Elf:
    """The code is divided among functions of these names."""
    elf, strings, table = Elf(), b"\0", bytes(24)
    each = (LAST - FIRST) // len(names)
    for i, name in enumerate(names):
        table += struct.pack("<IBBHQQ", len(strings), 0x12, 0, 1, FIRST + i * each, each)
        strings += name + b"\0"
    elf.section(".symtab", 2, table, link=3, entry=24)
    elf.section(".strtab", 3, strings)
    return elf


def many_symbols(count: int) -> Elf:
    elf = Elf()
    elf.section(".symtab", 2, b"", link=3, entry=24, size=count * 24)
    elf.section(".strtab", 3, b"\0through\0")
    return elf


def unpacks_to(size: int) -> Elf:
    elf, packer = Elf(), lzma.LZMACompressor(preset=0)
    packed = [packer.compress(bytes(MIB)) for _ in range(size // MIB)]
    elf.section(".gnu_debugdata", 1, b"".join([*packed, packer.flush()]))
    return elf


# ---- processes ----


class Hostile:
    """Of an unprivileged user, in the lab's network namespace."""

    def __init__(self, lab: Lab, file: Path, how: str = "plain", user: int = USER) -> None:
        self.process = subprocess.Popen(
            ["nsenter", f"--net=/proc/{lab.client}/ns/net", "setpriv", f"--reuid={user}", f"--regid={user}",
             "--clear-groups", HOSTILE, file, hex(FIRST), hex(LAST), how],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        Lines(self.process.stdout).wait_for("ready")

    def __enter__(self) -> Hostile:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def stalls(self, tracer: Tracer) -> list[Record]:
        return [stall for stall in tracer.stalls() if own_end(stall).get("pid") == self.process.pid]

    def wait_for_stalls(self, tracer: Tracer, count: int) -> None:
        wait_until(f"{count} stalls", lambda: len(self.stalls(tracer)) >= count, why=tracer.errors.text)


def keeper_of(tracer: int) -> int:
    [keeper] = children(tracer)
    assert status(keeper)["Name"] == "nagletrace-keep"
    return keeper


class Watch:
    """The largest resident size of a process, its keeper and workers, while the block lasts."""

    def __init__(self, tracer: int) -> None:
        self.tracer, self.keeper = tracer, keeper_of(tracer)
        self.peak: dict[str, int] = {}
        self._look(tracer)  # loading takes the most
        self.loading = self.peak["nagletrace"]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _look(self, pid: int) -> None:
        with contextlib.suppress(OSError, KeyError):  # it has ended
            told = status(pid)
            size = int(told["VmHWM"].split()[0]) * 1024
            self.peak[told["Name"]] = max(size, self.peak.get(told["Name"], 0))

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            for pid in (self.tracer, self.keeper, *children(self.keeper)):
                self._look(pid)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def a_worker_of(keeper: int) -> int:
    """The next one that has begun to read what is hostile."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for pid in children(keeper):
            with contextlib.suppress(OSError, KeyError):
                told = status(pid)
                if told["Name"] == "nagletrace-name" and int(told["CapPrm"], 16) == 0:
                    return pid
        time.sleep(0.002)
    raise AssertionError("no worker came")


def is_left(pid: int) -> bool:
    """Not when it is only init's turn to note that it has ended."""
    with contextlib.suppress(OSError):
        told = status(pid)
        return not told["State"].startswith("Z") or told["PPid"] != "1"
    return False


def assert_nobody_is_left(pids: list[int]) -> None:
    wait_until("nobody is left", lambda: not any(map(is_left, pids)), 1,
               why=lambda: [status(pid) for pid in pids if is_left(pid)])


@contextlib.contextmanager
def a_lab(*arguments: str) -> Iterator[Lab]:
    with Lab("write-write-read", "--rounds", "12", "--own-netns", "--linger", "500ms", *arguments) as lab:
        yield lab


def assert_all_is_told(lab: Lab, result: Record, tracer: Tracer) -> None:
    """Each stall of the well-behaved process, which lives until its last stack has names, and all stacks with these."""
    stalls = [s for s in of_lab(lab, tracer.stalls()) if s["side"] == "sender"]
    assert_felt(result, len(stalls), lacking(tracer))
    # where the kernel had no place for a stack, the stall is told without one, and that is counted
    with_stack = [stall for stall in stalls if "stack" in stall["sender"]]
    assert len(stalls) - len(with_stack) <= tracer.closing()["dropped"]["stack"]
    for stall in with_stack:
        assert "client_round" in {frame.get("symbol") for frame in stall["sender"]["stack"]}, (
            tracer.closing()["unnamed_stacks"], stall["sender"]["stack"])


# ---- attacks ----


@dataclass(frozen=True)
class Attack:
    file: Elf
    how: str
    #: why names are missing, one of these at least; none: they need not be
    reasons: tuple[str, ...]


ATTACKS = {
    "a file that is truncated while it is read": lambda: Attack(symbols(b"through"), "truncated", ()),
    "data that unpack to 600 MiB": lambda: Attack(unpacks_to(600 * MIB), "plain", ("limit", "deadline")),
    "a billion symbols": lambda: Attack(many_symbols(1_000_000_000), "plain", ("limit",)),
    "eight million symbols": lambda: Attack(many_symbols(8_000_000), "plain", ("limit", "deadline")),
    "sixty thousand mappings": lambda: Attack(symbols(b"through"), "many", ()),
    "a FIFO in the file's place": lambda: Attack(symbols(b"through"), "fifo", ()),
    "a link to a FIFO in the file's place": lambda: Attack(symbols(b"through"), "link", ()),
}
QUICK = ("a billion symbols", "a link to a FIFO in the file's place")
#: without it the mapped file is looked for by its name
BY_NAME = ("setpriv", "--bounding-set=-checkpoint_restore", "--inh-caps=-checkpoint_restore")


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.quick if name in QUICK else ())
                                  for name in ATTACKS])
def test_it_costs_its_own_names_and_no_more(name: str, place: Path) -> None:
    attack = ATTACKS[name]()
    file = attack.file.write(place / "file")
    with a_lab() as lab, Tracer("--netns", str(lab.client), "--stacks",
                                prefix=BY_NAME if "FIFO" in name else ()) as tracer:
        with Watch(tracer.process.pid) as watch, Hostile(lab, file, attack.how) as hostile:
            worked = time.clock_gettime(~tracer.process.pid << 3 | 2)  # its CPU clock, without its children's
            hostile.wait_for_stalls(tracer, 5)
            worked = time.clock_gettime(~tracer.process.pid << 3 | 2) - worked
            each = worked / len(hostile.stalls(tracer))
            if attack.reasons:
                tracer.errors.wait_for("some stacks have no names")
            result = lab.play()
            took = seconds_to_end(tracer.process)
        tracer.wait()
    assert took <= 1, took
    assert_all_is_told(lab, result, tracer)
    assert len(hostile.stalls(tracer)) >= 5
    missing = tracer.closing()["unnamed_stacks"]
    assert not attack.reasons or any(missing[reason] for reason in attack.reasons), missing
    said = tracer.errors.text().count("some stacks have no names")
    assert said == any(count for reason, count in missing.items() if reason != "gone"), tracer.errors.text()
    print(watch.peak, missing, took, f"{1000 * each:.1f} ms of the tracer's for a stall")
    assert each <= STALL_COSTS
    assert watch.peak["nagletrace"] < watch.loading + MIB and watch.peak["nagletrace-keep"] < 8 * MIB, watch.peak
    assert watch.peak.get("nagletrace-name", 0) < WORKER + 32 * MIB, watch.peak


def assert_names_come_through(file: Path) -> None:
    """A process whose stacks lead through the file has all their names."""
    with a_lab() as lab, Tracer("--netns", str(lab.client), "--stacks") as tracer:
        with Hostile(lab, file) as hostile:
            hostile.wait_for_stalls(tracer, 5)
        tracer.stop()
    closing = tracer.closing()
    unnamed, dropped = closing["unnamed_stacks"], closing["dropped"]
    without = [stall for stall in hostile.stalls(tracer)[:5]  # of the last ones the process may have been gone
               if "through" not in {frame.get("symbol") for frame in stall["sender"].get("stack", ())}]
    # who is late on a busy machine is given up, and not asked about for a while; and where the kernel skipped the
    # program that saw the write, there is no stack
    lost = dropped["stack"] + dropped["recursion"]
    assert len(without) <= unnamed.pop("deadline") + unnamed.pop("busy") + lost, without
    assert not any(count for reason, count in unnamed.items() if reason != "gone")


@pytest.mark.quick
def test_a_stack_through_such_a_file_has_its_names_if_nothing_is_wrong_with_it(place: Path) -> None:
    """So it is the attacks that the others lose their names by."""
    file = symbols(b"through").write(place / "file")
    assert_names_come_through(file)


@pytest.mark.quick
def test_a_program_larger_than_a_workers_memory_has_its_names_too(place: Path) -> None:
    elf = symbols(b"through")
    elf.section(".large", 8, b"", size=2 * WORKER)
    file = elf.write(place / "file")
    assert file.stat().st_size > WORKER
    assert_names_come_through(file)


@pytest.fixture
def slow_file(place: Path) -> Path:
    """A worker reads it until it may no longer."""
    return many_symbols(8_000_000).write(place / "file")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_does_not_answer_costs_the_names_of_its_stack(how: signal.Signals, slow_file: Path) -> None:
    """Killed, or stopped: then the keeper kills it after 2 s."""
    with a_lab() as lab, Tracer("--netns", str(lab.client), "--stacks") as tracer:
        keeper = keeper_of(tracer.process.pid)
        with Hostile(lab, slow_file):
            worker = a_worker_of(keeper)
            os.kill(worker, how)
            began = time.monotonic()
            while worker in children(keeper):
                assert time.monotonic() < began + PATIENCE
                time.sleep(0.02)
            took = time.monotonic() - began
            result = lab.play()
        tracer.stop()
    assert_all_is_told(lab, result, tracer)
    assert tracer.closing()["unnamed_stacks"]["deadline" if how == signal.SIGSTOP else "worker_died"] >= 1
    assert how != signal.SIGSTOP or 1.5 < took < 3, took
    assert tracer.errors.text().count("some stacks have no names") == 1


@pytest.mark.quick
def test_a_keeper_that_is_killed_costs_all_names_and_no_stall(slow_file: Path) -> None:
    with a_lab() as lab, Tracer("--netns", str(lab.client), "--stacks") as tracer:
        keeper = keeper_of(tracer.process.pid)
        with Hostile(lab, slow_file):
            worker = a_worker_of(keeper)
            os.kill(keeper, signal.SIGKILL)
            assert_nobody_is_left([keeper, worker])  # no zombie either
            result = lab.play()
        tracer.stop()
    stalls = [s for s in of_lab(lab, tracer.stalls()) if s["side"] == "sender"]
    assert_felt(result, len(stalls), lacking(tracer))
    assert all("ip" in frame and "symbol" not in frame for stall in stalls for frame in stall["sender"]["stack"])
    assert tracer.closing()["unnamed_stacks"]["worker_died"] >= 1
    assert tracer.errors.text().count("the process that names frames has ended") == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_ends_within_a_second_while_a_worker_reads_and_leaves_nobody(how: signal.Signals, slow_file: Path) -> None:
    with a_lab() as lab, Tracer("--netns", str(lab.client), "--stacks") as tracer:
        keeper = keeper_of(tracer.process.pid)
        with Hostile(lab, slow_file):
            worker = a_worker_of(keeper)
            assert seconds_to_end(tracer.process, how) <= 1
            assert_nobody_is_left([keeper, worker])


def test_who_makes_naming_slow_is_not_named_for_a_while(slow_file: Path) -> None:
    """However many he is: his processes have one share of time, 2 s at once and 0.05 of a CPU from then on."""
    with a_lab() as lab, Tracer("--netns", str(lab.client), "--stacks") as tracer:
        keeper = keeper_of(tracer.process.pid)
        with Hostile(lab, slow_file) as one, Hostile(lab, slow_file) as another:
            end = time.monotonic() + 5
            while time.monotonic() < end:
                assert len(children(keeper)) <= 1, "an owner has one worker"
                time.sleep(0.05)
            used = cpu_s(keeper, of_children=True)
            result = lab.play()
        tracer.stop()
    assert_all_is_told(lab, result, tracer)
    assert used <= 2 + 1 + 5 * 0.05 + 0.5, used
    missing = tracer.closing()["unnamed_stacks"]
    assert missing["busy"] >= 50 and 1 <= missing["limit"] + missing["deadline"] <= 5, missing
    assert min(len(hostile.stalls(tracer)) for hostile in (one, another)) >= 50


def test_many_who_make_naming_slow_have_one_share_together(slow_file: Path) -> None:
    """4 users, of whom each alone may use 2 s at once: together 5 s, and a tenth of a CPU from then on."""
    slow_file.parent.chmod(0o755)
    with a_lab() as lab, Tracer("--netns", str(lab.client), "--stacks") as tracer:
        keeper = keeper_of(tracer.process.pid)
        with contextlib.ExitStack() as users:
            for number in range(4):
                users.enter_context(Hostile(lab, slow_file, user=USER - number))
            time.sleep(15)
            used = cpu_s(keeper, of_children=True)
        tracer.stop()
    print(f"{used:.1f} s")
    assert 3 < used <= 5 + 2 + 15 * 0.1 + 0.5, used


def test_who_asks_for_many_names_at_once_leaves_room_for_anothers(slow_file: Path) -> None:
    """While one user's share of time lasts, his stacks come faster than they are named: 100 a second, one a second."""
    with a_lab("--rounds", "60") as lab, Tracer("--netns", str(lab.client), "--stacks") as tracer:
        with contextlib.ExitStack() as many:
            for _ in range(4):
                many.enter_context(Hostile(lab, slow_file))
            time.sleep(0.6)
            lab.play()
        tracer.stop()
    stalls = [s for s in of_lab(lab, tracer.stalls()) if s["side"] == "sender" and "stack" in s["sender"]]
    named = ["client_round" in {frame.get("symbol") for frame in s["sender"]["stack"]} for s in stalls]
    # a stall waits 1 s for its names, which on a busy machine may come later. Without room the first 33 lack them
    assert len(stalls) > 40 and True in named[:17], named
    assert tracer.closing()["unnamed_stacks"]["busy"] >= 32, "the hostile user asked for too little"


def test_a_keeper_that_is_stopped_holds_up_nothing(place: Path) -> None:
    with a_lab("--rounds", "60") as lab, Tracer("--netns", str(lab.client), "--stacks") as tracer:
        keeper = keeper_of(tracer.process.pid)
        os.kill(keeper, signal.SIGSTOP)
        result = lab.play()
        ended = time.monotonic()
        took = seconds_to_end(tracer.process)
        tracer.wait()
        offset = time.time() - time.monotonic()
        late = [at + offset - day_s(stall["time"]) for at, stall in tracer.arrivals("stall") if at < ended]
    assert took <= 1
    assert len(late) > 10 and 0.9 < statistics.median(late) < 1.1, late
    assert_nobody_is_left([keeper])
    stalls = [s for s in of_lab(lab, tracer.stalls()) if s["side"] == "sender"]
    assert_felt(result, len(stalls), lacking(tracer))


@pytest.mark.quick
def test_what_reads_hostile_files_has_no_privilege_and_no_files_of_the_tracer(slow_file: Path) -> None:
    with a_lab() as lab, Tracer("--netns", str(lab.client), "--stacks") as tracer:
        keeper = keeper_of(tracer.process.pid)
        with Hostile(lab, slow_file) as hostile:
            worker = a_worker_of(keeper)
            time.sleep(0.05)  # privileges are gone; now the last filter
            of_worker, of_keeper = status(worker), status(keeper)
            limits = Path(f"/proc/{worker}/limits").read_text()
            own_kb = int(of_keeper["VmSize"].split()[0])
            links = descriptors(worker)
            mapped = {line.split(maxsplit=5)[-1] for line in
                      Path(f"/proc/{hostile.process.pid}/maps").read_text().splitlines()}
            kept = descriptors(keeper)
    for told in (of_worker, of_keeper):
        assert told["NoNewPrivs"] == "1" and told["Seccomp"] == "2", told
        assert all(int(told[which], 16) == 0 for which in ("CapInh", "CapAmb", "CapBnd")), told
    assert int(of_worker["CapPrm"], 16) == int(of_worker["CapEff"], 16) == 0
    assert int(of_worker["Seccomp_filters"]) == int(of_keeper["Seccomp_filters"]) + 1
    # DAC_READ_SEARCH, SYS_PTRACE, CHECKPOINT_RESTORE
    assert int(of_keeper["CapPrm"], 16) == 1 << 2 | 1 << 19 | 1 << 40
    for limit in (r"Max cpu time +1 ", r"Max core file size +0 ", r"Max file size +0 "):
        assert re.search(limit, limits), limits
    [most] = re.findall(r"Max address space +(\d+) ", limits)
    assert abs(int(most) - 1024 * own_kb - WORKER) < MIB, "of its own, beside that of the keeper"
    assert all(link in {"/dev/null", *mapped} or link.startswith("socket:") for link in links), links
    assert len([link for link in links if link.startswith("socket:")]) == 1, links
    assert {"socket"} <= {link.split(":")[0] for link in kept} <= {"/dev/null", "socket", "anon_inode"}, kept


def test_the_daemon_answers_while_a_worker_reads_and_goes_on_without_a_keeper(slow_file: Path) -> None:
    with a_lab() as lab, Daemon("--stacks", "--netns", str(lab.client)) as daemon:
        keeper = keeper_of(daemon.process.pid)
        with Hostile(lab, slow_file):
            a_worker_of(keeper)
            began = time.monotonic()
            daemon.ask("health")
            assert time.monotonic() - began < 0.5
            worker = a_worker_of(keeper)
            os.kill(keeper, signal.SIGKILL)
            assert_nobody_is_left([keeper, worker])
            daemon.errors.wait_for("the process that names frames has ended")
            before = daemon.ask("snapshot")["stalls"]
            felt = len(stalled_rounds(lab.play()))
            wait_until("it tells all", lambda: daemon.ask("snapshot")["stalls"] >= before + felt)
            assert daemon.ask("snapshot")["unnamed_stacks"]["worker_died"] >= 1
        began = time.monotonic()
        assert daemon.stop() == 0 and time.monotonic() - began <= 1


@pytest.mark.quick
def test_top_shows_where_of_a_process_beside_a_hostile_one(slow_file: Path) -> None:
    with Lab("write-write-read", "--rounds", "100", "--own-netns") as lab, Terminal(
            NAGLETRACE, "top", "--netns", str(lab.client), "--stacks", "-i", "250ms") as top:
        top.wait_for("traced here")
        with Hostile(lab, slow_file):
            a_worker_of(keeper_of(top.process.pid))
            lab.go()
            top.wait_for(f"lab-client[{lab.client}]")
            top.press(f"/[{lab.client}]\r")
            top.press("\r")
            top.wait_for("client_round")
            began = time.monotonic()
            top.process.send_signal(signal.SIGINT)
            assert top.ended() == 0 and time.monotonic() - began <= 1


@pytest.mark.quick
def test_long_names_of_utf8_do_not_break_the_daemons_lines(place: Path) -> None:
    """Whatever is cut off is cut between characters."""
    names = [(chr(0x30 + i % 64) + "→" * 340).encode() for i in range(64)]
    file = symbols(*names).write(place / "file")
    with a_lab() as lab, Daemon("--stacks", "--netns", str(lab.client)) as daemon:
        with Hostile(lab, file) as hostile:
            wait_until("a stall is named", lambda: any(
                own_end(c).get("pid") == hostile.process.pid and "symbol" in str(c["sender"].get("stack"))
                for c in daemon.ask("snapshot", top=1000)["connections"]))
            for form in ("text", "wide", "json"):
                with daemon.reader() as reader:
                    reader.send(json.dumps({"request": "report", "format": form}).encode() + b"\n")
                    line = reader.file.readline()
                assert "→→→" in json.loads(line.decode())["text"] if form != "json" else line.decode(), form
