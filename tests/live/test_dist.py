# SPDX-License-Identifier: GPL-2.0
"""A release: one version and known licences everywhere, and a source archive that is the same from every clone."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
from harness import NAGLETRACE, ROOT


def version_in(path: str, pattern: str) -> str:
    found = re.search(pattern, (ROOT / path).read_text(), re.MULTILINE)
    assert found, f"{path} has no version"
    return found[1]


@pytest.mark.quick
def test_the_version_is_the_same_everywhere() -> None:
    version = version_in("VERSION", r"^(\d+\.\d+\.\d+)$")
    assert (ROOT / "VERSION").resolve() == ROOT / "exporters" / "nagletrace_exporters" / "VERSION"
    assert version_in("CHANGELOG.md", r"^## (\d+\.\d+\.\d+)\b") == version, "the newest section with a number"
    said = subprocess.run([NAGLETRACE, "--version"], capture_output=True, text=True, check=True).stdout
    assert said == f"nagletrace {version}\n"


#: The text of each licence that a file names, beside the code.
TEXTS = {"GPL-2.0": "LICENSE", "BSD-2-Clause": "LICENSES/BSD-2-Clause.txt"}
ROOMS = ("bpf", "userspace", "exporters/nagletrace_exporters", "exporters/tests", "dashboards", "packaging", "tests")


def licences(path: Path) -> set[str]:
    found = re.search(r"SPDX-License-Identifier: ([\w.-]+(?: OR [\w.-]+)*)", path.read_text()[:300])
    assert found, f"{path.relative_to(ROOT)} does not say its licence"
    return set(found[1].split(" OR "))


@pytest.mark.quick
def test_every_source_says_its_licence_and_the_text_is_there() -> None:
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*")
               if path.suffix in (".c", ".h", ".py", ".sh", ".java", ".js", ".yml", ".yaml", ".service")
               and path.parent.name != "templates"]
    assert len(sources) > 200
    assert set.union(*map(licences, sources)) == set(TEXTS)
    assert all((ROOT / text).stat().st_size > 1000 for text in TEXTS.values())
    # who reads the records, or asks the verdict, need not be under the GPL
    for name in ("nagletrace.h", "verdict.h", "release.h", "judge.h"):
        assert licences(ROOT / "bpf" / name) == {"GPL-2.0", "BSD-2-Clause"}


@pytest.fixture(scope="module")
def git(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which git takes this tree, whoever owns it, and has no settings of the user's."""
    if not (ROOT / ".git").exists():
        pytest.skip("this tree is no clone: there is no commit to make an archive of")
    settings = tmp_path_factory.mktemp("git") / "config"
    settings.write_text("[safe]\n\tdirectory = *\n")
    return {**os.environ, "GIT_CONFIG_GLOBAL": str(settings), "GIT_CONFIG_NOSYSTEM": "1"}


def make_dist(clone: Path, umask: str, environment: dict[str, str], attributes: str = "") -> Path:
    """attributes: the clone's own."""
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True, env=environment)
    if attributes:
        (clone / ".git" / "info").mkdir(exist_ok=True)
        (clone / ".git" / "info" / "attributes").write_text(attributes)
    subprocess.run(["sh", "-c", f"umask {umask}; exec make --no-print-directory dist"], cwd=clone, check=True,
                   env=environment, stdout=subprocess.DEVNULL)
    archives = list((clone / "build").iterdir())
    assert len(archives) == 1
    return archives[0]


def test_two_clones_make_the_same_archive(tmp_path: Path, git: dict[str, str]) -> None:
    one = make_dist(tmp_path / "one", "022", {**git, "TZ": "UTC"})
    # another place, the user's settings and the clone's do not matter
    settings, attributes = tmp_path / "settings", tmp_path / "attributes"
    attributes.write_text("docs export-ignore\n")
    settings.write_text(f"[safe]\n\tdirectory = *\n[tar]\n\tumask = 0077\n[core]\n\tattributesFile = {attributes}\n")
    other = make_dist(tmp_path / "an other place", "077",
                      {**git, "GIT_CONFIG_GLOBAL": str(settings), "TZ": "Asia/Tokyo", "GZIP": "-1"},
                      attributes="bpf export-ignore\n")
    assert re.fullmatch(r"nagletrace-\d+\.\d+\.\d+\.tar\.gz", one.name) and one.name == other.name
    assert one.read_bytes() == other.read_bytes()
    flags_and_time = one.read_bytes()[3:8]  # of gzip, RFC 1952: neither a name nor when it was made
    assert flags_and_time == bytes(5)


def test_the_archive_is_the_commit_and_has_all_that_the_build_wants(tmp_path: Path, git: dict[str, str]) -> None:
    archive = make_dist(tmp_path / "clone", "022", git)
    top = archive.name.removesuffix(".tar.gz")
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        tar.extractall(tmp_path)

    def say(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=tmp_path / "clone", check=True, capture_output=True, text=True,
                              env=git).stdout

    listed = say("ls-tree", "-r", "--name-only", "-z", "HEAD")
    assert {m.name for m in members if not m.isdir()} == {f"{top}/{name}" for name in listed.split("\0") if name}
    assert {m.mode for m in members if not m.issym()} == {0o644, 0o755}
    assert {int(m.mtime) for m in members} == {int(say("log", "-1", "--format=%ct"))}
    assert {(m.uid, m.uname) for m in members} == {(0, "root")}
    # nothing is made: make only looks whether each file that another one is made of is there
    subprocess.run(["make", "-n", "DEPS=have", "build/nagletrace", "build/nagle-lab"], cwd=tmp_path / top, check=True,
                   env=git, stdout=subprocess.DEVNULL)
