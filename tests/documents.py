# SPDX-License-Identifier: GPL-2.0
"""The documents as the tests read them: blocks of code, commands, pasted outputs, links.

A block of commands is fenced as `sh`, one of commands with what they print as `console` (commands begin with `$`). A
pasted output has the comment `<!-- output: NAME -->` on the line above its fence; tests/pasted.py renews it. In manual
pages commands are `.Dl` lines and lines of a literal display that begin with `$` or `#`, and an output has the comment
`.\\" output: NAME` above its display.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARKDOWN = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
MARKDOWN += sorted((ROOT / "docs").rglob("*.md"))
MARKDOWN += sorted((ROOT / "packaging").rglob("*.md"))
MARKDOWN += sorted((ROOT / "dashboards").rglob("*.md"))
MANUAL = sorted((ROOT / "docs" / "man").glob("*.[18]"))

#: What is written otherwise in a manual page; mandoc's names of characters.
ROFF = {"→": r"\(->", "·": r"\(pc", "←": r"\(<-"}
#: A command in the text, between backquotes, begins with one of these.
WORDS = ("nagletrace", "nagletrace-exporter", "nagletrace-report", "nagletrace-flame", "nagletrace-join", "make",
         "clickhouse", "sudo", "systemctl", "journalctl", "ip", "sysctl", "nstat", "ss", "echo", "curl", "promtool")


@dataclass(frozen=True)
class Block:
    """What stands between two fences; line is the first one's number, from 1 on."""

    path: Path
    line: int
    indent: str
    language: str
    #: the name of a pasted output, or ""
    output: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def blocks(path: Path) -> list[Block]:
    """Of a document in Markdown; the text without the fence's indentation."""
    found: list[Block] = []
    lines = path.read_text().splitlines()
    begin = 0
    fence: re.Match[str] | None = None
    for number, line in enumerate(lines, 1):
        match = re.match(r"( *)```(\S*)\s*$", line)
        if match and not fence:
            fence, begin = match, number
        elif fence and line.rstrip() == f"{fence[1]}```":
            marker = re.fullmatch(r"\s*<!-- output: ([\w-]+) -->", lines[begin - 2]) if begin > 1 else None
            text = "\n".join(one.removeprefix(fence[1]) for one in lines[begin:number - 1])
            found.append(Block(path, begin, fence[1], fence[2], marker[1] if marker else "", text))
            fence = None
    assert not fence, f"{path}:{begin}: the fence has no end"
    return found


def manual_outputs(path: Path) -> list[Block]:
    """The pasted outputs of a manual page, as they are read."""
    found = []
    text = path.read_text()
    for match in re.finditer(r'^\.\\" output: ([\w-]+)\n\.Bd -literal.*\n((?:.*\n)*?)\.Ed\n', text, re.MULTILINE):
        shown = match[2].rstrip("\n")
        for character, name in ROFF.items():
            shown = shown.replace(name, character)
        found.append(Block(path, text.count("\n", 0, match.start()) + 1, "", "", match[1], shown))
    return found


def outputs() -> list[Block]:
    """All pasted outputs."""
    return [block for path in MARKDOWN for block in blocks(path) if block.output] + \
           [block for path in MANUAL for block in manual_outputs(path)]


def replaced(block: Block, text: str) -> str:
    """The document with this text for the block's."""
    lines = block.path.read_text().splitlines(keepends=True)
    if block.path in MANUAL:
        for character, name in ROFF.items():
            text = text.replace(character, name)
        first = block.line + 1
    else:
        first = block.line
    last = first + block.text.count("\n") + 1
    new = [f"{block.indent}{line}\n" if line else "\n" for line in text.splitlines()]
    return "".join(lines[:first] + new + lines[last:])


# ---- commands ----


def normal(command: str) -> str:
    """On one line, with single spaces, without the comment behind it."""
    command = re.sub(r"(^|\s)#( .*|)$", "", command, flags=re.MULTILINE)
    return " ".join(command.replace("\\\n", " ").split())


def commands_in(script: str) -> list[str]:
    """Each command of a shell script; one ends with its line, unless that ends with |, && or a backslash."""
    found: list[str] = []
    open_ = False
    for line in script.splitlines():
        bare = re.sub(r"(^|\s)#( .*|)$", "", line).rstrip()
        if not bare:
            continue
        if open_:
            found[-1] += f"\n{bare}"
        else:
            found.append(bare)
        open_ = bare.endswith(("|", "&&", "\\"))
    return [normal(command) for command in found]


def commands(path: Path) -> list[tuple[str, str]]:
    """The commands of a document with where they stand."""
    if path in MANUAL:
        return manual_commands(path)
    found = []
    for block in blocks(path):
        if block.language == "sh":
            found += [(command, block.where) for command in commands_in(block.text)]
        elif block.language == "console":
            script = "\n".join(line[2:] for line in block.text.splitlines() if line.startswith("$ "))
            found += [(command, block.where) for command in commands_in(script)]
    return found


def manual_commands(path: Path) -> list[tuple[str, str]]:
    """Of the EXAMPLES of a manual page; what root runs begins with sudo, as in the other documents."""
    examples = re.search(r"^\.Sh EXAMPLES\n((?:(?!\.Sh ).*\n)*)", path.read_text(), re.MULTILINE)
    found: list[tuple[str, str]] = []
    for prompt, command in re.findall(r"^(?:\.Dl )?([#$]) (.*)$", examples[1] if examples else "", re.MULTILINE):
        command = normal(f"sudo {command}" if prompt == "#" else command)
        if found and re.fullmatch(r"[A-Z]+=\S+", found[-1][0]):  # a variable for this one
            command = f"{found.pop()[0]}; {command}"
        found.append((command, str(path.relative_to(ROOT))))
    return found


def prose(path: Path) -> str:
    """A document in Markdown without its blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def spans(path: Path) -> list[str]:
    """What stands between backquotes in the text and looks like a command with arguments."""
    found = (normal(span) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose(path)))
    return [span for span in found if " " in span and span.split()[0] in WORDS]


# ---- links ----


def anchor(heading: str) -> str:
    """What a heading is linked by, as the usual renderers of Markdown make it."""
    heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "")).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    seen: dict[str, int] = {}
    found = set()
    for heading in re.findall(r"^#{1,6} (.*)$", prose(path), re.MULTILINE):
        name = anchor(heading)
        found.add(f"{name}-{seen[name]}" if name in seen else name)
        seen[name] = seen.get(name, 0) + 1
    return found


def links(path: Path) -> list[str]:
    """The targets within the repository."""
    found = re.findall(r"(?:\]\(|src(?:set)?=\")([^)\s\"]+)[)\"]", prose(path))
    return [target for target in found if not re.match(r"[a-z]+:", target)]
