# SPDX-License-Identifier: GPL-2.0
"""The choice of `make test` covers what can be told: each word and each advice was met in this run, or it says why not.

It runs last, and looks at what the tracers of all tests before it told (met.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from harness import ROOT, SCHEMA
from met import MET

pytestmark = pytest.mark.quick

#: In bpf/nagletrace.h, by what they are called in the records.
ENUMS = {"reason": "NT_HOLD", "release": "NT_RELEASE", "pattern": "NT_PATTERN", "evidence": "NT_EVIDENCE",
         "cause": "NT_CAUSE"}
#: What tracepoints on an idle machine do not meet, and why; `make test-kernels` and tests/unit have them.
NOT_HERE = {
    ("reason", "unknown"): "it is told when no rule explains a hold: a fault of ours, which test_truth.py bounds",
    ("release", "push"): "Nagle's tail that the kernel pushes for want of memory: nothing here runs out of it; "
                         "test_release.c has the rule",
    ("fix", "the sender has to clear TCP_CORK, or write the last part without MSG_MORE"):
        "a cork shows at the sender's end only, and is told there",
}
#: test_advice.c meets them.
NOT_HERE |= {("fix", text): "this machine's kernel has no client with a socket of its own" for text in (
    "the kernel itself uses this socket: `ip route change … quickack 1` towards the peer",
    "the kernel itself uses this socket: see the options of the mount or the module; or `ip route change … quickack 1` "
    "on the peer's host, towards this one")}


#: A string of C.
LITERAL = r'(?:"[^"\n]*"\s*)+'


def words(kind: str) -> set[str]:
    """Of an enum of the header; its first value is invalid."""
    prefix = ENUMS[kind]
    header = (ROOT / "bpf" / "nagletrace.h").read_text()
    found = re.findall(rf"^\t{prefix}_(\w+) = \d+,", header, re.MULTILINE)
    assert found[0] == "INVALID", found
    return {word.lower() for word in found[1:]} - {"reasons"}  # their number


def advice() -> set[str]:
    """The sentences that userspace/output/advice.c may give."""
    source = (ROOT / "userspace" / "output" / "advice.c").read_text().replace("\\\n", "")
    for name, text in re.findall(r'^#define (\w+)\s+(".*")$', source, re.M):
        source = re.sub(rf"\b{name}\s+(?=\")", f"{text} ", source)
    literals = []
    for function in re.findall(r"^static const char \*(?:sender|receiver|kernel)_fix\(.*?^}", source, re.M | re.S):
        literals += re.findall(LITERAL, function)
    [table] = re.findall(r"^} waited_for\[.*?^}", source, re.M | re.S)
    for row in re.findall(r"\[NT_HOLD_\w+\] =\s*\{(.*?)\}", table, re.S):
        literals += re.findall(LITERAL, row)[1:]  # the first says why
    return {"".join(re.findall(r'"([^"\n]*)"', text)) for text in literals}


def wanted() -> set[tuple[str, str]]:
    each = {kind: words(kind) for kind in ENUMS} | {"side": set(SCHEMA["$defs"]["side"]["enum"]), "fix": advice()}
    for kind in ENUMS:
        assert each[kind] == set(SCHEMA["$defs"][kind]["enum"]), f"header and schema differ: {kind}"
    assert len(each["fix"]) >= 6, each["fix"]
    return {(kind, word) for kind, some in each.items() for word in some}


def test_each_word_and_each_advice_was_met(request: pytest.FixtureRequest,
                                           record_property: Callable[[str, object], None]) -> None:
    option = request.config.option
    if option.keyword or option.markexpr not in ("", "quick"):
        pytest.skip("only some of the tests were asked for, which need not meet everything")
    every = wanted()
    assert set(NOT_HERE) <= every, "an exception for what is no word any more"
    for kind, word in sorted(set(NOT_HERE) & every):
        if word not in MET[kind]:
            record_property("not met", f"{kind} {word!r}: {NOT_HERE[kind, word]}")
    missing = sorted((kind, word) for kind, word in every - set(NOT_HERE) if word not in MET[kind])
    assert not missing, "the choice of live tests meets these no more: mark a row that does"
