# SPDX-License-Identifier: GPL-2.0
"""Programs and files out of Go modules, in the cache. Whichever Go the machine has fetches the toolchain that builds
them, as a module too: Debian's own is older than what the modules ask for.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from debian import Unavailable, cache, locked, run_whole

TOOLCHAIN = "1.25.5"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
#: In s: helm and its two hundred modules take six minutes on two busy cores.
PATIENCE = 1800.0
#: Settings of the user's that would choose another toolchain, or change what is built, count for nothing.
SETTINGS = ("-u", "GOROOT", "GOTOOLCHAIN=local", "GOFLAGS=-buildvcs=false", "GOWORK=off", "CGO_ENABLED=0")


def run_go(go: str | Path, *arguments: str, cwd: Path) -> str:
    try:
        done = run_whole(["nice", "-n", "10", "env", *SETTINGS, str(go), *arguments], PATIENCE, cwd)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"go {' '.join(arguments)}: not done in {PATIENCE:.0f} s") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or [str(done.returncode)]
        # with -json the reason is one of several lines
        reason = next((line.strip() for line in lines if '"Error":' in line), lines[-1])
        raise Unavailable(f"go {' '.join(arguments)}: {reason}")
    return done.stdout


def module(path: str, version: str, go: str | Path | None = None) -> Path:
    """The directory of the module's files, which nobody may change. Raises Unavailable."""
    go = go or shutil.which("go")
    if not go:
        raise Unavailable(f"{path} cannot be had: no go is installed")
    with tempfile.TemporaryDirectory() as empty:
        try:
            told = run_go(go, "mod", "download", "-json", f"{path}@{version}", cwd=Path(empty))
        except Unavailable as reason:
            raise Unavailable(f"{path} cannot be had: {reason}") from None
    return Path(json.loads(told)["Dir"])


def toolchain() -> Path:
    """The program `go` of TOOLCHAIN. A module's files are not executable: a copy is."""
    machine = MACHINES.get(platform.machine())
    if not machine:
        raise Unavailable(f"Go {TOOLCHAIN} cannot be had for {platform.machine()}")
    place = cache() / f"go-{TOOLCHAIN}"
    with locked(cache() / "go.lock"):
        if not place.exists():
            files = module("golang.org/toolchain", f"v0.0.1-go{TOOLCHAIN}.linux-{machine}")
            part = place.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(files, part, copy_function=shutil.copyfile)
            for directory in (part, *(path for path in part.rglob("*") if path.is_dir())):
                directory.chmod(0o755)
            for program in (*(part / "bin").iterdir(), *(part / "pkg" / "tool").rglob("*")):
                program.chmod(0o755)
            part.rename(place)
    return place / "bin" / "go"


def with_staged(source: Path, version: str, go: Path, directory: Path) -> Path:
    """A go.mod for a module whose own parts of it are modules too ("staging"): their places in its tree, which the
    module lacks, become that version of them."""
    for name in ("go.mod", "go.sum"):
        shutil.copyfile(source / name, directory / name)
    told = json.loads(run_go(go, "mod", "edit", "-json", cwd=directory))
    edits = [f"-replace={one['Old']['Path']}={one['Old']['Path']}@{version}" for one in told["Replace"]
             if one["New"]["Path"].startswith("./staging/")]
    run_go(go, "mod", "edit", *edits, cwd=directory)
    return directory / "go.mod"


def program(path: str, version: str, package: str, *, tags: str = "", staged: str = "", **strings: str) -> Path:
    """What `package` of the module (".": itself) builds, with these build tags and strings, as its own makefile would.
    `staged`: the version of those of its parts that are modules too. Links no library of the machine's. Raises
    Unavailable."""
    name = (re.sub(r"/v\d+$", "", path) if package == "." else package).rsplit("/", 1)[-1]
    linked = " ".join(["-s -w", *(f"-X {place}={text}" for place, text in strings.items())])
    key = hashlib.sha256(f"{path} {version} {TOOLCHAIN} {tags} {staged} {linked}".encode()).hexdigest()[:8]
    built = cache() / f"{name}-{version}-{key}"
    go = toolchain()
    with locked(cache() / f"{name}.lock"), tempfile.TemporaryDirectory() as own:
        if not built.exists():
            part = built.with_name(f"{built.name}.part")
            source = module(path, version, go)
            try:
                more = []
                if staged:
                    more = ["-mod=mod", f"-modfile={with_staged(source, staged, go, Path(own))}"]
                run_go(go, "build", "-trimpath", "-tags", tags, "-ldflags", linked, "-o", str(part), *more,
                       f"./{package}", cwd=source)
            except Unavailable as reason:
                raise Unavailable(f"{name} cannot be had: {reason}") from None
            part.rename(built)
    return built
