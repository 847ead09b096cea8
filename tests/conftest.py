# SPDX-License-Identifier: GPL-2.0
"""What the parts have in common: who may run them, a fixture of two, and the tests that are programs in C.

`tests/unit/test_x.c` is a group of cmocka tests, built as `build/unit/test_x`: it runs once, and each of its tests is
one here. `tests/fuzz/fuzz_x.c` is a target of libFuzzer, and one test.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from debian import Unavailable

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
#: The most inputs that the repository keeps for each target of libFuzzer.
SEEDS = 20
#: A group of cmocka tests takes less than a second.
GROUP_SECONDS = 300
#: Parts that need root: they attach the tracer, or make namespaces, roots and images.
NEED_ROOT = {"gadget", "images", "kubernetes", "live", "monitoring", "packages", "packets", "pictures"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hooks", default="auto", help="which hooks the tracer takes: auto, function, kprobe, tracepoint")
    parser.addoption("--fuzz-seconds", type=int, default=2, metavar="S", help="how long each target is fuzzed (2)")
    parser.addoption("--fuzz-keep", action="store_true", help="put new inputs into the corpus")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    wanted = [Path(argument).resolve() for argument in config.args]
    if os.geteuid() and any(one.is_relative_to(ROOT / "tests" / part) for one in wanted for part in NEED_ROOT):
        pytest.exit("these tests need root: run them by `make test`", 3)


@pytest.fixture(scope="session")
def helm() -> Any:
    import charts  # whose packages few parts have
    try:
        return charts.Helm()
    except Unavailable as reason:
        pytest.skip(str(reason))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    for prefix, kind in (("test_", Group), ("fuzz_", Target)):
        if file_path.name.startswith(prefix) and file_path.suffix == ".c":
            return kind.from_parent(parent, path=file_path)
    return None


class WrongInC(Exception):
    """What a program in C said of what is wrong; no traceback of Python's says more."""


class InC(pytest.Item):
    """A test that is not Python's."""

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> object:
        return str(excinfo.value) if isinstance(excinfo.value, WrongInC) else super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name


# ---- cmocka ----


class Group(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        """Runs it, as only it knows its tests."""
        program = BUILD / self.path.parent.name / self.path.stem
        if not program.exists():
            yield Told.from_parent(self, name=program.name, wrong=f"{program} is not built: run `make test`")
            return
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "told.xml"
            done = subprocess.run([program], cwd=ROOT, capture_output=True, text=True, errors="replace",
                                  timeout=GROUP_SECONDS, env={**os.environ, "CMOCKA_MESSAGE_OUTPUT": "xml",
                                                              "CMOCKA_XML_FILE": str(file)})
            cases = []
            with contextlib.suppress(OSError, ElementTree.ParseError):  # which is told below
                cases = list(ElementTree.parse(file).iter("testcase"))
        for case in cases:
            skipped = case.find("skipped")
            failed = next((case.find(tag) for tag in ("failure", "error") if case.find(tag) is not None), None)
            yield Told.from_parent(self, name=str(case.get("name")), skipped=skipped is not None,
                                   wrong=None if failed is None else failed.text or "it says no reason")
        if not cases or done.returncode and all(len(case) == 0 for case in cases):
            yield Told.from_parent(self, name=program.name, wrong=f"{program.name} ended with {done.returncode}, "
                                   f"{len(cases)} tests told of\n{done.stdout}{done.stderr}")


class Told(InC):
    """A test that has run with its group."""

    def __init__(self, wrong: str | None, skipped: bool = False, **others: object) -> None:
        super().__init__(**others)
        self.wrong, self.skipped = wrong, skipped

    def runtest(self) -> None:
        if self.skipped:
            pytest.skip("it needs root" if os.geteuid() else "the program skips it")
        if self.wrong is not None:
            raise WrongInC(self.wrong)


# ---- libFuzzer ----


class Target(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        yield Fuzzed.from_parent(self, name=self.path.stem)


def reached(control: Path) -> Iterator[tuple[Path, set[int]]]:
    """Each input of a merge with its features, as libFuzzer wrote them down: for an edge, one of eight by how often."""
    lines = control.read_text().splitlines()
    files = lines[2:2 + int(lines[0])]
    for line in lines[2 + len(files):]:
        kind, number, *features = line.split()
        if kind == "FT":
            yield Path(files[int(number)]), set(map(int, features))


def has_name(seed: Path) -> bool:
    """libFuzzer's own are named by their contents, those that people wrote for what they are."""
    return not re.fullmatch("[0-9a-f]{40}", seed.name)


def keep_seeds(program: Path, corpus: Path, new: Path) -> None:
    """Leaves at most SEEDS inputs in the corpus: those with a name, and of the others, old and new, the few that reach
    most: first edges, then features."""
    with tempfile.TemporaryDirectory() as merged:
        control = Path(merged) / "control"
        subprocess.run([program, "-set_cover_merge=1", f"-merge_control_file={control}", merged, corpus, new],
                       check=True, capture_output=True)
        left = sorted(reached(control), key=lambda one: (one[0].stat().st_size, one[0].name))
    kept: dict[Path, bytes] = {}
    features: set[int] = set()
    while left and len(kept) < SEEDS:
        edges = {feature // 8 for feature in features}
        best = max(left, key=lambda one: (has_name(one[0]), len({feature // 8 for feature in one[1]} - edges),
                                          len(one[1] - features)))
        file, more = best
        if not has_name(file) and more <= features:
            break
        contents = file.read_bytes()
        kept[file if has_name(file) else corpus / hashlib.sha1(contents).hexdigest()] = contents
        features |= more
        left.remove(best)
    for file in corpus.iterdir():
        file.unlink()
    for file, contents in kept.items():
        file.write_bytes(contents)


def fuzz(program: Path, seconds: int, keep: bool) -> str:
    """What it says; from its corpus on."""
    packed = ROOT / "tests" / "fuzz" / "corpus" / f"{program.name.removeprefix('fuzz_')}.zip"
    with tempfile.TemporaryDirectory() as corpus, tempfile.TemporaryDirectory() as new:
        if packed.exists() or not keep:
            shutil.unpack_archive(packed, corpus)
        done = subprocess.run([program, f"-max_total_time={seconds}", f"-artifact_prefix={program.parent}/", new,
                               corpus], capture_output=True, text=True, errors="replace", timeout=2 * seconds + 60)
        if keep:
            keep_seeds(program, Path(corpus), Path(new))
            shutil.make_archive(str(packed.with_suffix("")), "zip", corpus)
    return f"{done.stdout}{done.stderr}\n{program.name} ended with {done.returncode}\n"


class Fuzzed(InC):
    #: All targets of this run: as many at once as there are CPUs.
    begun: dict[str, Future[str]] = {}

    def runtest(self) -> None:
        if not self.begun:
            pool = ThreadPoolExecutor(os.cpu_count() or 1)
            for item in self.session.items:
                if isinstance(item, Fuzzed):
                    self.begun[item.name] = pool.submit(fuzz, BUILD / "fuzz" / item.name,
                                                        self.config.getoption("--fuzz-seconds"),
                                                        self.config.getoption("--fuzz-keep"))
        said = self.begun[self.name].result()
        runs = re.search(r"^Done (\d+) runs", said, re.MULTILINE)
        if not runs or not int(runs[1]) or not said.endswith("ended with 0\n"):
            raise WrongInC(said[-4000:])
