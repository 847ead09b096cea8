# SPDX-License-Identifier: GPL-2.0
"""Each number of SECURITY.md stands beside the test that holds it, and is that of the sources. Those of the exporter's
clients are compared in exporters/tests/test_hostile_clients.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()
TEXT = " ".join(PAGE.split())
FILES = {path: path.read_text() for room in ("bpf", "userspace") for path in (ROOT / room).rglob("*.[ch]")}
WORDS = {"two": 2, "three": 3, "four": 4, "tenth": 10, "twentieth": 20}
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


MODEL = "tests/model/test_model.c"
#: A sentence of SECURITY.md, in which each group is a number, and what these are in the sources.
TOLD = {
    # a traced process
    r"with (\d+) MiB of address space, (\d+) s of CPU and (\d+) s for an answer": (
        define("NT_WORKER_BYTES") // MIB, define("NT_WORKER_CPU_S"), define("NT_KEEPER_DEADLINE_NS") // SECOND),
    r"only read, with (\d+) GiB, (\d+) s of CPU and a deadline. After (\w+) lost children": (
        python("CHILD_BYTES", "flame/symbols.py") // GIB, python("CHILD_CPU_S", "flame/symbols.py"),
        python("MAX_CHILDREN", "flame/symbols.py")),
    r"of the process's user or of root, of at most (\d+) MiB": (python("MAX_MAP_BYTES", "flame/symbols.py") // MIB,),
    # recordings
    r"A line has at most (\d+) MiB and ([\d,]+) values": (
        python("MAX_LINE", "lines.py") // MIB, python("MAX_VALUES", "lines.py")),
    # names of frames
    r"all owners (\w+), which take what they may": (define("NT_KEEPER_WORKERS"),),
    r"an owner may use (\d+) s of CPU at once and all owners (\d+) s, then a (\w+) and a (\w+) of one CPU": (
        define("AT_ONCE_OWNER") // SECOND, define("AT_ONCE_ALL") // SECOND, define("SHARE_OWNER"), define("SHARE_ALL")),
    r"written at most (\d+) s late": (define("WAIT_NS", "stall_queue.c") // SECOND,),
    # a hostile daemon
    r"take an answer of at most (\d+) MiB": (define("NT_ANSWER_MAX") // MIB,),
    # what one user may cost
    r"cut at (\w+) levels below the root": (define("SHARE_LEVEL"),),
    r"([\d,]+) pairs of a socket and a process, \d+ MiB, (\d+) processes for each socket": (
        define("NT_MOST_OWNERS"), define("NT_OWNERS_OF_SOCKET")),
    r"half of them in shares \(`owners`\) \| (\d+) \|": (define("NT_MOST_WAITING"),),
    r"(\d+) MiB, (\d+) stalls": (
        define("RECORDS_BYTES") // MIB, number(r"RECORDS_BYTES / \(sizeof\(struct nt_record\) \+ 8\), (\d+)", MODEL)),
    r"each share has (\d+) records a second": (number(r"i < (\d+); i\+\+\)\s+assert_false\(share_is_used_up", MODEL),),
    r"for the audit at once \| (\d+) ms": (define("READ_NS", "audit.c") // 10**6,),
    r"whose counts are compared \| (\d+) \|": (room_of("timers_seen", "totals.h"),),
    # the socket
    r"(\d+) connections, (\d+) of them for a user, (\d+) for all users but root": (
        define("NT_MAX_READERS"), define("NT_USER_READERS"), define("NT_ALL_USERS_READERS")),
    r"queued output: (\d+) KiB for a connection, (\d+) MiB for a user, (\d+) MiB for all": (
        define("BACKLOG_BYTES") // KIB, define("USER_BACKLOG_BYTES") // MIB, define("ALL_BACKLOG_BYTES") // MIB),
    r"requests of (\d+) bytes": (define("NT_REQUEST_MAX"),),
    r"silence of (\d+) s": (number(r"silence = \{\.tv_sec = (\d+)\}", "userspace/daemon/server.c"),),
    # an OTLP receiver
    r"(\d+) KiB of its answer are read, a request with its answer has (\d+) s": (
        python("ANSWER_BYTES", "exporter/otlp/receiver.py") // KIB, python("REQUEST_S", "exporter/otlp/receiver.py")),
}


@pytest.mark.parametrize("words", TOLD)
def test_the_numbers_of_security_are_those_of_the_sources(words: str) -> None:
    found = re.findall(words, TEXT)
    assert len(found) == 1, found
    told = found[0] if isinstance(found[0], tuple) else found
    assert tuple(WORDS.get(one.lower()) or int(one.replace(",", "")) for one in told) == TOLD[words]


#: What is no bound: a program's text, a link's address, an error's number, and a name with a digit.
NO_NUMBER = re.compile(r"`[^`]*`|\]\([^)]*\)|get 503|user 0|C1|SO_COOKIE")
PLACES = [ROOT / "tests" / room for room in ("live", "unit", "model", "monitoring")] + [ROOT / "exporters" / "tests"]


def parts() -> list[str]:
    """The page's paragraphs, list items and rows of tables."""
    return re.split(r"\n(?=\||- |#)|\n\n", PAGE)


def test_each_number_stands_beside_the_test_that_holds_it() -> None:
    without = [part for part in parts() if re.search(r"\d", NO_NUMBER.sub("", part)) and "::" not in part]
    assert not without


def test_each_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`(test_\w+\.(?:py|c))(?:::(\w+))?`", PAGE)
    assert len(named) > 50 and len(named) == PAGE.count("`test_")
    for file, name in named:
        texts = [(place / file).read_text() for place in PLACES if (place / file).exists()]
        found = [re.search(rf"^(def |static void |TEST\(){name}[()]", text, re.MULTILINE) for text in texts]
        assert any(found) if name else texts, (file, name)
