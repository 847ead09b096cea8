# SPDX-License-Identifier: GPL-2.0
"""Runs the commands that make pages, and judges what they made."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

from recordings import Record, write

HERE = Path(__file__).parent.parent
VOID = {"meta", "br", "link", "input"}
#: Names that would break out of where they are put.
HOSTILE = ("<script>alert(1)</script>", "</style><b>", "\"'><img src=x onerror=alert(1)>", "{{ 7*7 }}", "a;b ]]> c",
           "\x1b[31mred\x00", "‮lanif", "&amp;&lt;", "${x}`</title>", "javascript:alert(1)", "\ud800")


def command(name: str, *arguments: str | Path, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", f"nagletrace_exporters.{name}.main", *map(str, arguments)], cwd=HERE,
                          capture_output=True, text=True, input=given, timeout=120)


def make(name: str, tmp_path: Path, lines: list[Record], *arguments: str) -> str:
    """What the command makes of a recording."""
    done = command(name, "--input", write(tmp_path / "recording", lines), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def text_of(page: str) -> str:
    """What one reads, without tags."""
    body = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


class Checker(HTMLParser):
    """Tags that are closed in order, ids that are there once, and what is asked of tables and headings."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.wanted: list[str] = []
        self.headings: list[int] = []
        self.faults: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = dict(attrs)
        for key, value in attrs:
            check_reference(tag, key, value or "")
        if "id" in named:
            self.ids.append(str(named["id"]))
        for key in ("aria-labelledby", "aria-describedby"):
            self.wanted += str(named.get(key) or "").split()
        if str(named.get("href") or "").startswith("#"):
            self.wanted.append(str(named["href"])[1:])
        if tag == "th" and named.get("scope") not in ("row", "col"):
            self.faults.append("a th without scope")
        if tag == "html" and named.get("lang") != "en":
            self.faults.append("no lang")
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if any(key.startswith("on") for key in named):
            self.faults.append(f"{tag} has a handler")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")


def check_html(text: str) -> Checker:
    """Well-formed, accessible in what can be read off it, and without any reference to elsewhere."""
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert not checker.faults and not checker.open, (checker.faults, checker.open)
    assert len(set(checker.ids)) == len(checker.ids)
    assert set(checker.wanted) <= set(checker.ids), set(checker.wanted) - set(checker.ids)
    assert checker.headings[0] == 1 and checker.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(checker.headings, checker.headings[1:]))
    assert "script" not in checker.tags
    for style in re.findall(r"<style>(.*?)</style>", text, re.DOTALL):
        check_code(style)
    assert "default-src 'none'" in text
    return checker


def check_reference(tag: str, key: str, value: str) -> None:
    """May this attribute name something that is loaded or followed? Only places of the same page."""
    if key.rpartition(":")[2].rpartition("}")[2] in ("src", "srcset", "href", "action", "formaction", "data", "poster",
                                                     "background", "ping", "manifest", "from", "to", "values"):
        assert value.startswith("#"), (tag, key, value)
    if key == "style":
        check_code(value)
    assert tag not in ("link", "base", "img", "image", "iframe", "object", "embed", "use", "video", "audio"), tag
    assert not (tag == "meta" and value.lower() == "refresh")


def check_code(text: str) -> None:
    """Style sheets and scripts that load nothing."""
    found = re.search(r"https?:|@import|url\(|\bfetch\b|XMLHttpRequest|WebSocket|import\(|sendBeacon|//\w+\.\w", text)
    assert not found, text[max(0, found.start() - 60):found.end() + 60]


def check_svg(text: str) -> ElementTree.Element:
    assert "<!ENTITY" not in text and "<!DOCTYPE" not in text and "<?xml-stylesheet" not in text
    root = ElementTree.fromstring(text)  # noqa: S314
    for element in root.iter():
        tag = element.tag.rpartition("}")[2]
        for key, value in element.attrib.items():
            check_reference(tag, key, value)
        if tag in ("style", "script"):
            check_code(element.text or "")
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len([e for e in root.iter() if e.tag.endswith("script")]) == 1
    assert not [key for e in root.iter() for key in e.attrib if key.startswith("on")]
    return root
