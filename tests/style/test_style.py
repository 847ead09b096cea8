# SPDX-License-Identifier: GPL-2.0
"""The sources are formatted and without lint, and the Python that users get is typed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from repository import git
from tools import present

ROOT = Path(__file__).resolve().parents[2]
EXPORTERS = ROOT / "exporters"
#: The pages of figures: how each names the commit that was measured, and how many others may have changed bpf/ since.
FIGURES = {
    "performance.md": (r"at commit\s`([0-9a-f]{10})\+?`", 10),
    "accuracy.md": (r"\| `([0-9a-f]{10})\+?` \| 20", 20),
}
#: Others break lines elsewhere.
FORMATTER = "clang-format version 14."


def run(*command: str | Path, cwd: Path = EXPORTERS) -> None:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def tools() -> Path:
    programs = present()
    if programs is None:
        pytest.skip("ruff and mypy are not installed: tests/tools.py does it, as `make test` has it do")
    return programs


def test_c_is_as_make_format_leaves_it() -> None:
    found = shutil.which("clang-format")
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout if found else "none"
    if FORMATTER not in version:
        pytest.skip(f"clang-format 14, Debian 12's, formats; installed is {version.strip()}")
    run("make", "--no-print-directory", "format", "CLANG_FORMAT=clang-format --dry-run -Werror", cwd=ROOT)


def test_ruff_finds_nothing(tools: Path) -> None:
    run(tools / "ruff", "check", "--no-cache", ".", "../dashboards/grafana")


def test_ruff_finds_nothing_in_the_tests(tools: Path) -> None:
    run(tools / "ruff", "check", "--no-cache", "--select", "E,F,W", "--target-version", "py311", "../tests")


def test_every_function_is_typed(tools: Path) -> None:
    run(tools / "mypy", "--cache-dir", ROOT / "build" / "mypy", "--python-executable", "/usr/bin/python3",
        "nagletrace_exporters")


@pytest.mark.parametrize("page", FIGURES)
def test_the_figures_of_a_page_are_of_the_programs_as_they_are(page: str) -> None:
    """They were measured at a commit since which few others have changed the tracer's programs."""
    named, most = FIGURES[page]
    if not (ROOT / ".git").exists() or git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("a source archive or shallow clone does not know the commits")
    commits = re.findall(named, (ROOT / "docs" / page).read_text())
    assert commits, "`make bench` or `make accuracy` writes it"
    tracer = ("bpf", ":!bpf/sample.bpf.c", ":!bpf/keep.bpf.c")  # those are objects of their own
    for commit in commits:
        assert int(git("rev-list", "--count", f"{commit}..HEAD", "--", *tracer)) <= most, "measure it anew"


def test_each_part_of_the_tests_says_which_rooms_it_belongs_to() -> None:
    parts = re.findall(r"^\$\(eval \$\(call part,(\w+),", (ROOT / "Makefile").read_text(), re.MULTILINE)
    page = (ROOT / "docs" / "testing.md").read_text().partition("## The parts")[2]
    rows = re.findall(r"^\| `make test-(\w+)` \| [^|]+ \|", page, re.MULTILINE)
    assert sorted(rows) == sorted(parts) and parts
