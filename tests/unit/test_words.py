# SPDX-License-Identifier: GPL-2.0
"""One word for one thing: which words names and sentences leave to others, in code, comments, messages and documents.

exporters/tests/test_schema.py asks the same of the keys of JSON, and exporters/tests/test_words.py of metrics, alerts
and dashboards.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
#: What the repository is made of, but recordings, pictures and the licences.
FILES = sorted({path for pattern in (
    "*.md", "Makefile", "bpf/*.[ch]", "userspace/*/*.[ch]", "userspace/output/*.json", "exporters/*.toml",
    "exporters/*.in", "exporters/**/*.py", "exporters/**/*.html", "exporters/**/*.css", "exporters/**/*.js",
    "dashboards/**/*.*", "docs/*.md", "docs/runbooks/*.md", "docs/man/*.[0-9]", "packaging/**/*", "tests/*.py",
    "tests/**/*.py", "tests/**/*.[ch]", "tests/**/*.txt", "tests/**/*.sh") for path in ROOT.glob(pattern)
    if path.is_file() and path != Path(__file__).resolve()})
#: Names of tests are sentences, and in sentences lost time is a good word.
PRODUCT = ("bpf/*", "userspace/*", "exporters/nagletrace_exporters/*", "dashboards/*", "packaging/*")


class Rule(NamedTuple):
    say: str
    #: the banned words in a name, joined by underscores, whatever the name joins them by
    names: str
    #: the banned words in a sentence
    text: str
    #: which files' names
    where: tuple[str, ...] = ("*",)


RULES = (
    Rule("pending ACK (the state), delayed (by the kernel) or late (when it goes out)",
         r"owed?|owes|puts?_off|withh[eo]ld",
         r"\bput(s|ting)?( (?!on\b|or\b)[\w'’]+){0,3} off\b|\bput-off\b|\bowe[sd]?\b|\bwithh[eo]ld"),
    Rule("detach (a hook), release (held bytes, a pending ACK)", r"lets?_go",
         r"\blet(s|ting)?( [\w'’${}]+){0,6} go(es)?\b(?! on\b)"),
    Rule("dropped (a record or event that found no room)", r"lost|losing",
         r"\blost (records?|events?)\b|\b(records?|events?)( that)?( are| were| was| is| be)? lost\b|"
         r"\blos(es?|ing)( an?| the| no| any| some)? (records?|events?)\b|(\b\d+|%l*[ud]?) lost\b", PRODUCT),
)


class Exemption(NamedTuple):
    where: str
    found: str
    reason: str


EXEMPTIONS = (
    Exemption("bpf/*", "lost_out", "a field of the kernel's struct tcp_sock"),
    Exemption("exporters/nagletrace_exporters/exporter/web/clients.py", "connection_lost", "asyncio's name"),
    Exemption("userspace/sample/diag_message.c", "*lost*", "fields of the kernel's structs tcp_sock and tcp_info"),
    Exemption("CHANGELOG.md", "*", "the tables of what was renamed have the old names"),
    Exemption("exporters/tests/test_words.py", "*", "it looks for these words in metrics and dashboards"),
    Exemption("exporters/tests/test_schema.py", "*", "it looks for these words in keys of JSON"),
)


def words_of(name: str) -> str:
    """letGo, LET_GO and let_go are let_go."""
    return "_".join(re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)).lower()


def names_in(path: str, text: str) -> Iterator[str]:
    """The identifiers of a program, and what looks like one in a document."""
    if path.endswith((".c", ".h")):
        code = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', " ", text, flags=re.DOTALL)
        yield from re.findall(r"\b[A-Za-z_]\w*", code)
    elif path.endswith(".py"):
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        yield from (token.string for token in tokens if token.type == tokenize.NAME)
    else:
        yield from re.findall(r"\b[A-Za-z]\w*_\w+", text)


def sentences_of(text: str) -> str:
    """The text in one line: as it reads where comments, strings of a program and manuals go on in the next line."""
    text = re.sub(r'"\s*(PRI[a-z]\d+)?\s*[fr]?"', "", text)
    text = re.sub(r"\n[ \t]*(\*|//|#:?|>|\.[A-Z][a-z])[ \t]", " ", text)
    return re.sub(r"\s+", " ", text)


def found_in(path: str, text: str) -> list[tuple[str, Rule]]:
    names, sentences = {name: words_of(name) for name in set(names_in(path, text))}, sentences_of(text)
    found = []
    for rule in RULES:
        if any(fnmatch(path, pattern) for pattern in rule.where):
            banned = re.compile(rf"(^|_)({rule.names})(_|$)")
            found += [(name, rule) for name, words in sorted(names.items()) if banned.search(words)]
        found += [(match[0], rule) for match in re.finditer(rule.text, sentences, re.IGNORECASE)]
    return found


def exemption(path: str, found: str) -> Exemption | None:
    return next((one for one in EXEMPTIONS if fnmatch(path, one.where) and fnmatch(found, one.found)), None)


def test_no_file_has_a_word_that_leaves_its_place_to_another() -> None:
    assert len(FILES) > 300
    wrong, needed = [], set()
    for path in FILES:
        name = str(path.relative_to(ROOT))
        for found, rule in found_in(name, path.read_text()):
            if exempt := exemption(name, found):
                needed.add(exempt)
            else:
                wrong.append(f"{name}: {found!r}; say {rule.say}")
    assert not wrong, "\n".join(wrong)
    assert needed == set(EXEMPTIONS), "these exemptions are no longer needed"


@pytest.mark.parametrize("path, text", [
    ("bpf/hold.h", "u64 owed_ns;"),
    ("userspace/output/text.c", 'printf("the ACK was put "\n\t"off");'),
    ("userspace/top/ladder.c", "/* This puts\n * its ACK off. */"),
    ("userspace/attach/hooks.h", "unsigned int let_go;"),
    ("userspace/attach/hooks.h", "#define NT_LET_GO_STEPS 2"),
    ("userspace/capture/overhead.c", 'nt_log("let go of %s", name);'),
    ("userspace/capture/stacks.c", "stacks->lost++;"),
    ("userspace/top/table.c", 'print("%" PRIu64 " records lost", n);'),
    ("userspace/cmd/trace.c", 'print("%llu lost", n);'),
    ("exporters/nagletrace_exporters/report/page.py", "withheld = 1\n"),
    ("exporters/nagletrace_exporters/flame/symbols.py", "class HasLost: pass\n"),
    ("exporters/nagletrace_exporters/report/ladder/from_record.py", 'note("what lets "\n     f"{a} go")\n'),
    ("docs/design.md", "an owed ACK"),
    ("docs/protocol.md", "`put_off_us` is a number"),
    ("docs/man/nagletrace.8", "how many records\n.Nm\nlost, how many events were\nlost there"),
    ("tests/packets/scripts/resets.txt", "script a SYN lets nothing go"),
])
def test_each_banned_word_is_found(path: str, text: str) -> None:
    assert [found for found, _ in found_in(path, text) if not exemption(path, found)]


@pytest.mark.parametrize("path, text", [
    ("bpf/verdict.h", "__u32 lost_out;"),
    ("userspace/attach/iterator.h", "/* as long as the program lets the kernel go on */"),
    ("userspace/output/text.c", '/* the process that lost most */ printf("%s lost %s", name, excess);'),
    ("userspace/capture/start.c", 'nt_log("lost with it: %s", hook->part);'),
    ("userspace/privileges/confine.c", "static const char *const allowed[] = {0};"),
    ("tests/unit/test_top_model.c", "TEST(what_lost_most_time_stands_first)"),
    ("docs/usage.md", "put it on or off, and let the trace run"),
])
def test_other_words_are_left_alone(path: str, text: str) -> None:
    assert not [found for found, _ in found_in(path, text) if not exemption(path, found)]
