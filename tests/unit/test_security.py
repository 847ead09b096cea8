# SPDX-License-Identifier: GPL-2.0
"""The numbers of SECURITY.md are those of the sources. That the sources keep to them, other tests show: the list at the
end of SECURITY.md. Those of the exporter's clients are in exporters/tests/test_hostile_clients.py."""

from __future__ import annotations

import re
from pathlib import Path

import hostile
import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = " ".join((ROOT / "SECURITY.md").read_text().split())
FILES = {path: path.read_text() for room in ("bpf", "userspace") for path in (ROOT / room).rglob("*.[ch]")}
WORDS = {"two": 2, "four": 4, "eight": 8, "nine": 9, "fifth": 5, "tenth": 10}
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SECOND = 10**9


def define(name: str, file: str = "") -> int:
    """The value of a #define, in that file if others have one of the same name."""
    found = [match[1] for path, text in FILES.items() if str(path).endswith(file)
             for match in re.finditer(rf"^#define {name}\b[ \t]+((?:[^\n]|\\\n)+)", text, re.MULTILINE)]
    assert len(found) == 1, f"{name}: {found}"
    text = re.sub(r"/\*.*|\\\n", "", found[0])
    text = re.sub(r"(?<=\d)(?:UL|ULL)\b", "", text)
    text = re.sub(r"\b[A-Z][A-Z0-9_]*\b", lambda other: str(define(other[0])), text)
    assert re.fullmatch(r"[\dx() <*/+-]+", text), f"{name}: {text}"
    return int(eval(text.replace("/", "//")))


def number(pattern: str, path: str) -> int:
    """The number that stands there in that file: a constant without a name, or one of Python."""
    found = re.findall(pattern, (ROOT / path).read_text())
    assert len(found) == 1, f"{path}: {pattern}: {found}"
    return int(eval(re.fullmatch(r"[\d_() <*.]+", found[0])[0]))  # type: ignore[index]


def python(name: str, path: str) -> int:
    return number(rf"(?m)^{name} = ([^\n#]+?)$", f"exporters/nagletrace_exporters/{path}")


def room_of(name: str, path: str) -> int:
    """How many entries a map of the kernel's has."""
    return number(r"max_entries, (\d+)\);(?:(?!max_entries)[^}])*\} " + name + r" SEC", f"bpf/{path}")


ALLOWED = (ROOT / "userspace/names/worker.c").read_text().partition("allowed[] = {")[2].partition("}")[0]
MODEL = "tests/model/test_model.c"
#: A sentence of SECURITY.md, in which each group is a number, and what these are in the sources.
TOLD = {
    # a traced process
    r"with (\d+) MiB of address space, (\d+) s of CPU and (\d+) s for an answer": (
        define("NT_WORKER_BYTES") // MIB, define("NT_WORKER_CPU_S"), define("NT_KEEPER_DEADLINE_NS") // SECOND),
    r"a child process, with (\d+) GiB, (\d+) s of CPU and (\d+) s for an answer. After (\w+) lost children": (
        python("CHILD_BYTES", "flame/symbols.py") // GIB, python("CHILD_CPU_S", "flame/symbols.py"),
        python("DEADLINE_S", "flame/symbols.py"), python("MAX_CHILDREN", "flame/symbols.py")),
    r"of the process's user or of root, of at most (\d+) MiB": (python("MAX_MAP_BYTES", "flame/symbols.py") // MIB,),
    # recordings
    r"A line has at most (\d+) MiB and ([\d,]+) values": (
        python("MAX_LINE", "lines.py") // MIB, python("MAX_VALUES", "lines.py")),
    # names of frames
    r"up to (\d+) KiB of that thread's stack": (define("NT_STACK_BYTES") // KIB,),
    r"Pieces of stack wait in a map in the kernel \((\d+) at most": (room_of("stack_dumps", "user_stack.h"),),
    r"It may cost (\d+) s of CPU, and (\d+) MiB with its mapped files. (\w+) run at a time": (
        define("NT_WORKER_CPU_S"), define("NT_WORKER_BYTES") // MIB, define("NT_KEEPER_WORKERS")),
    r"passes its answer on unread, and kills it after (\d+) s": (define("NT_KEEPER_DEADLINE_NS") // SECOND,),
    r"or of the piece of stack points: at most (\d+)": (define("NT_MAPPINGS_MOST"),),
    r"a list of (\d+) system calls": (ALLOWED.count('"') // 2 + len(("mmap", "mprotect")),),
    r"at most: (\d+) frames, names of (\d+) bytes each and (\d+) KiB together. The tracer keeps up to (\d+) MiB": (
        define("NT_STACK_DEPTH"), define("NT_NAME_BYTES"), define("NT_NAMES_BYTES") // KIB,
        define("MOST_BYTES", "stacks.c") // MIB),
    r"naming takes a (\w+) of one CPU at most, and one owner half of that": (define("SHARE_ALL"),),
    r"After a pause it may take (\d+) s, and one owner (\d+) s": (
        define("AT_ONCE_ALL") // SECOND, define("AT_ONCE_OWNER") // SECOND),
    # a hostile daemon
    r"an answer of at most (\d+) MiB, within (\d+) s": (
        define("NT_ANSWER_MAX") // MIB, define("NT_CLIENT_PATIENCE_S")),
    r"ASan and UBSan, (\w+) targets": (len(list((ROOT / "tests/fuzz").glob("fuzz_*.c"))),),
    r"Hostile servers\*\*, (\d+) answers": (len(hostile.ANSWERS),),
    # what one user may cost
    r"who has which socket:\*\* ([\d,]+) pairs of a socket and a process \(\d+ MB\), (\d+) processes for each socket": (
        define("NT_MOST_OWNERS"), define("NT_OWNERS_OF_SOCKET")),
    r"all descriptors that makes this list:\*\* a (\w+) of one CPU": (define("TAKES_TIMES_COST"),),
    r"After (\d+) descriptors others have their turn within (\d+) ms": (
        define("STEPS_AT_ONCE"), define("NT_SLICE_NS") // 10**6),
    r"The search gives up after (\d+) s of CPU": (define("MOST_COST_NS") // SECOND,),
    r"Stalls wait for it, (\d+) at most": (define("NT_MOST_WAITING"),),
    r"ring buffer of records,\*\* (\d+) MiB \((\d+) stalls\)": (
        define("RECORDS_BYTES") // MIB, number(r"RECORDS_BYTES / \(sizeof\(struct nt_record\) \+ 8\), (\d+)", MODEL)),
    r"each share has (\d+) records a second": (number(r"i < (\d+); i\+\+\)\s+assert_false\(share_is_used_up", MODEL),),
    r"names of processes that are gone\*\* \((\d+)\)": (define("NT_KNOWN_OWNERS"),),
    r"the daemon reads them for (\d+) ms at once": (define("READ_NS", "audit.c") // 10**6,),
    r"fall into the same of (\d+) places": (define("NT_SHARES"),),
    r"The evidence of late ACKs \((\d+) for the host\) and the counts of namespaces \((\d+)\)": (
        room_of("late_acks", "late_ack.h"), room_of("timers_seen", "totals.h")),
    # the socket
    r"(\d+) connections, (\d+) of them for a user, (\d+) for all users but root": (
        define("NT_MAX_READERS"), define("NT_USER_READERS"), define("NT_ALL_USERS_READERS")),
    r"queued output: (\d+) KiB for a connection, (\d+) MiB for a user, (\d+) MiB for all": (
        define("BACKLOG_BYTES") // KIB, define("USER_BACKLOG_BYTES") // MIB, define("ALL_BACKLOG_BYTES") // MIB),
    r"requests of (\d+) bytes": (define("NT_REQUEST_MAX"),),
    r"silence of (\d+) s": (number(r"silence = \{\.tv_sec = (\d+)\}", "userspace/daemon/server.c"),),
    # an OTLP receiver
    r"(\d+) KiB of an answer are read, a request with its answer has (\d+) s": (
        python("ANSWER_BYTES", "exporter/otlp/receiver.py") // KIB, python("REQUEST_S", "exporter/otlp/receiver.py")),
}


@pytest.mark.parametrize("words", TOLD)
def test_the_numbers_of_security_are_those_of_the_sources(words: str) -> None:
    found = re.findall(words, TEXT)
    assert len(found) == 1, found
    told = found[0] if isinstance(found[0], tuple) else found
    assert tuple(WORDS.get(one.lower()) or int(one.replace(",", "")) for one in told) == TOLD[words]


def test_each_attack_has_the_tests_that_security_names() -> None:
    rows = re.findall(r"^\| ([^|]+) \| (`[\w/]+\.py`: [^|]+) \|$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    assert len(rows) > 15
    for attack, told in rows:
        for file, names in re.findall(r"`([\w/]+\.py)`: ((?:`test_\w+`(?:, )?)+)", told):
            [path] = [place / file for place in (ROOT, ROOT / "tests/live", ROOT / "exporters/tests")
                      if (place / file).exists()]
            for name in re.findall(r"`(\w+)`", names):
                assert f"\ndef {name}(" in path.read_text(), f"{attack}: {name}"
