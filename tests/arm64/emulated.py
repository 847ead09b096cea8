# SPDX-License-Identifier: GPL-2.0
"""An emulated arm64 machine: Debian's kernel, busybox, and the static binaries of nagletrace and the lab.

There is no disk and no network; what is played there comes back by its serial line.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests" / "guests"))
from debian import Unavailable  # noqa: E402
from kernels import obtain  # noqa: E402
from sysroot import unpacked  # noqa: E402

STATIC = ROOT / "build" / "static"
RESULTS = ROOT / "build" / "results" / "arm64"
LAB = STATIC / "aarch64" / "nagle-lab-static"
EMULATOR = "qemu-system-aarch64"
#: So many lines of the serial line are shown when the machine dies.
LAST_LINES = 30

Record = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """nagletrace's arguments, and those of each nagle-lab that plays meanwhile, one after the other.

    In nagletrace's CLIENT and SERVER stand for the pids of the first lab.
    """

    name: str
    tracer: str
    labs: tuple[str, ...] = ()


@dataclass
class Played:
    """What came of a case."""

    code: int = -1
    files: dict[str, str] = field(default_factory=dict)

    def records(self, kind: str) -> list[Record]:
        return [r for r in map(json.loads, self.files["output"].splitlines()) if r["type"] == kind]

    def lab(self, number: int, kind: str) -> Record:
        """That lab's line of that type; the first one's number is 1."""
        lines = [r for r in map(json.loads, self.files[f"lab{number}"].splitlines()) if r["type"] == kind]
        assert lines, f"nagle-lab: {self.files[f'lab-errors{number}']}"
        return lines[0]

    def stalls(self, number: int) -> list[Record]:
        """Those of that lab's connections."""
        ends = [{c["client"], c["server"]} for c in self.lab(number, "ready")["connections"]]
        return [r for r in self.records("stall") if {r["sender"]["address"], r["receiver"]["address"]} in ends]


def nagletrace() -> Path:
    """The arm64 binary that `make static` has built."""
    found = sorted(STATIC.glob("nagletrace-*-aarch64"), key=lambda path: path.stat().st_mtime)
    assert found and LAB.exists(), "arm64's binaries are not built: run `make test-arm64`"
    return found[-1]


def initramfs(place: Path, cases: list[Case]) -> Path:
    """The archive that the kernel unpacks as its root."""
    busybox = unpacked("arm64", ["busybox-static"]) / "bin" / "busybox"
    root = place / "root"
    (root / "bin").mkdir(parents=True)
    for source, target in ((busybox, "bin/busybox"), (nagletrace(), "bin/nagletrace"), (LAB, "bin/nagle-lab"),
                           (Path(__file__).with_name("init.sh"), "init")):
        shutil.copy(source, root / target)
        (root / target).chmod(0o755)
    (root / "dev").mkdir()
    (root / "cases").write_text("".join("|".join((case.name, case.tracer, *case.labs)) + "\n" for case in cases))
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    packed = subprocess.run(["busybox", "cpio", "-o", "-H", "newc"], cwd=root, input=names.encode(),
                            capture_output=True, timeout=60)
    assert packed.returncode == 0, packed.stderr.decode()
    archive = place / "initramfs"
    archive.write_bytes(packed.stdout)
    return archive


def read_cases(console: str) -> dict[str, Played]:
    """What init.sh has printed, by the case's name."""
    played: dict[str, Played] = {}
    for part in re.split(r"^@", console, flags=re.MULTILINE)[1:]:
        head, _, text = part.partition("\n")
        name, *what = head.split()
        if what[:1] == ["code"]:
            played[name].code = int(what[1])
        elif what:
            played.setdefault(name, Played()).files[what[0]] = text.strip("\n")
    return played


def play(kernel: str, cases: list[Case], timeout: float) -> dict[str, Played]:
    """Boots the kernel of that name and plays the cases; timeout in s for all of it.

    Raises Unavailable where the kernel, busybox or the emulator cannot be had; asserts that all was played.
    """
    if not shutil.which(EMULATOR):
        raise Unavailable(f"{EMULATOR} is not installed (Debian package qemu-system-arm)")
    RESULTS.mkdir(parents=True, exist_ok=True)
    log = RESULTS / f"console-{kernel}.txt"
    with tempfile.TemporaryDirectory(prefix="nagletrace-arm64-") as name:
        place = Path(name)
        image = obtain(kernel, "arm64").image
        command = [EMULATOR, "-M", "virt", "-cpu", "max,pauth-impdef=on", "-smp", "1", "-m", "1G",
                   "-accel", "tcg", "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio",
                   "-kernel", str(image), "-initrd", str(initramfs(place, cases)),
                   "-append", "console=ttyAMA0 loglevel=1 oops=panic panic=-1 rdinit=/init"]
        with log.open("wb") as file:
            try:
                subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                               timeout=timeout)
            except subprocess.TimeoutExpired:
                pass  # what it has not played is missed below
    console = log.read_text(errors="replace").replace("\r", "")
    last = "\n".join(console.splitlines()[-LAST_LINES:])
    done = re.search(r"^@end$", console, re.MULTILINE)
    assert done, f"arm64 kernel {kernel}: it died, or was not done in {timeout:.0f} s:\n{last}"
    return read_cases(console)
