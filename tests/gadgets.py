#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""nagletrace's gadget, built by Inspektor Gadget's own `ig`, which is built from its Go module.

`gadgets.py DIRECTORY` leaves there the image nagletrace-VERSION.tar for amd64 and arm64, with `ig`, and prints where.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import go_modules
from debian import Unavailable, locked
from repository import git

ROOT = Path(__file__).resolve().parent.parent
GADGET = ROOT / "packaging" / "gadget"
MODULE, VERSION = "github.com/inspektor-gadget/inspektor-gadget", "v0.45.0"

#: ig keeps images below /var/lib: here below a directory of ours, $1, in a mount namespace of its own.
APART = """\
mount --bind "$1" /var/lib
shift
exec "$@"
"""


def ig() -> Path:
    """Raises Unavailable."""
    return go_modules.program(MODULE, VERSION, "cmd/ig", tags="netgo",
                              **{f"{MODULE}/internal/version.version": VERSION})


def image() -> str:
    return f"nagletrace:{(ROOT / 'VERSION').read_text().strip()}"


def apart(store: Path, *command: object) -> list[str]:
    """The command line that runs this with images of its own; who is not root is so in there."""
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *own, "--mount", "--propagation", "private", "sh", "-euc", APART, "sh", str(store),
            *map(str, command)]


def committed() -> str:
    """When the last commit was made, or what CHANGELOG.md has of it, in s since 1970."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return git("log", "-1", "--format=%ct")
    return f"{(ROOT / 'CHANGELOG.md').stat().st_mtime:.0f}"


def build(directory: Path) -> Path:
    """The image's archive. Raises Unavailable where ig cannot be had, and CalledProcessError."""
    program, headers = ig(), go_modules.module(MODULE, VERSION, go_modules.toolchain()) / "include"
    directory.mkdir(parents=True, exist_ok=True)
    archive = directory / f"{image().replace(':', '-')}.tar"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", committed())}
    with locked(directory / "lock"):
        store = directory / "store"
        shutil.rmtree(store, ignore_errors=True)
        store.mkdir()
        # build.yaml finds Inspektor Gadget's headers there
        for name, target in (("include", headers), ("ig", program)):
            (directory / name).unlink(missing_ok=True)
            (directory / name).symlink_to(target)
        for command in (("image", "build", "--local", "--tag", image(), GADGET), ("image", "export", image(), archive)):
            done = subprocess.run(apart(store, program, *command), env=environment, cwd=ROOT, capture_output=True,
                                  text=True)
            if done.returncode:
                sys.stderr.write(done.stdout + done.stderr)
                done.check_returncode()
    return archive


def main() -> int:
    try:
        print(build(Path(sys.argv[1])))
    except (Unavailable, subprocess.CalledProcessError) as error:
        print(f"nagletrace: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
