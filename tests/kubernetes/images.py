# SPDX-License-Identifier: GPL-2.0
"""The images of the cluster, as archives that `ctr images import` takes: a root with the Debian packages installed, and
a static program that does nothing, in which a pod's namespaces live.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from debian import run_whole
from roots import archive as root_archive
from roots import unpacked

ROOT = Path(__file__).resolve().parent.parent.parent
VERSION = (ROOT / "VERSION").read_text().strip()
SUITE = "bookworm"
#: In s; a build of the packages takes about 40 alone.
BUILD_S = 600
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}

PAUSE = """\
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number)
{
	_exit(0);
}

int main(void)
{
	signal(SIGTERM, end);
	signal(SIGINT, end);
	for (;;) {
		pause();
		while (waitpid(-1, 0, WNOHANG) > 0)
			;
	}
}
"""


class Image(NamedTuple):
    #: below docker.io/library
    name: str
    entrypoint: str
    user: str = ""


def assemble(target: Path, layer: Path, *images: Image) -> Path:
    """An archive of images that are this one layer."""
    digest = hashlib.sha256(layer.read_bytes()).hexdigest()
    members, manifest = {}, []
    for number, image in enumerate(images):
        members[f"{number}.json"] = json.dumps({
            "architecture": MACHINES[platform.machine()], "os": "linux",
            "config": {"Entrypoint": [image.entrypoint], "User": image.user,
                       "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        })
        manifest.append({"Config": f"{number}.json", "RepoTags": [f"docker.io/library/{image.name}"],
                         "Layers": ["layer.tar"]})
    members["manifest.json"] = json.dumps(manifest)
    with tarfile.open(target, "w") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
        tar.add(layer, "layer.tar")
    return target


def packages() -> list[Path]:
    done = run_whole(["make", "-C", str(ROOT), "--no-print-directory", "deb", "DEPS=have"], BUILD_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted((ROOT / "build" / "deb").glob("*.deb"))


def depends(files: Sequence[Path]) -> str:
    """What they depend on, in apt's syntax, without each other."""
    wanted = []
    for file in files:
        done = subprocess.run(["dpkg-deb", "-f", file, "Depends"], capture_output=True, text=True, check=True)
        wanted += [one.strip() for one in done.stdout.split(",") if one.strip()]
    return ", ".join(sorted(set(wanted)))


def of_packages(directory: Path) -> Path:
    """The two images that the chart names, of one root with both packages. Raises Unavailable."""
    files = packages()
    layer = directory / "layer.tar"
    with unpacked(SUITE, root_archive(SUITE, depends(files))) as root:
        root.say("dpkg", "--install", *(f"/{file.name}" for file in files),
                 shown={f"/{file.name}": file for file in prepared(root.directory, files)})
        subprocess.run(["tar", "-C", root.directory, "--exclude=./*.deb", "--exclude=./usr/share/doc",
                        "--exclude=./usr/share/locale", "--exclude=./var/cache", "-cf", layer, "."], check=True)
    return assemble(directory / "packages.tar", layer, Image(f"nagletrace:{VERSION}", "/usr/sbin/nagletrace"),
                    Image(f"nagletrace-exporter:{VERSION}", "/usr/bin/nagletrace-exporter", "65532:65532"))


def prepared(root: Path, files: Sequence[Path]) -> Sequence[Path]:
    """The files to show in a root need something there to be mounted on."""
    for file in files:
        (root / file.name).touch()
    return files


def of_program(directory: Path, name: str, program: Path) -> Path:
    """An image of one static program alone."""
    path = f"/{program.name}"
    layer = directory / f"{name.partition(':')[0]}-layer.tar"

    def by_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.mode = 0o755
        return info

    with tarfile.open(layer, "w") as tar:
        tar.add(program.resolve(), path.lstrip("/"), filter=by_root)
    return assemble(directory / f"{name.partition(':')[0]}.tar", layer, Image(name, path))


def pause(directory: Path) -> Path:
    source, program = directory / "pause.c", directory / "pause"
    source.write_text(PAUSE)
    subprocess.run(["gcc", "-O2", "-static", "-o", program, source], check=True)
    return of_program(directory, "pause:1", program)


def lab(directory: Path) -> Path:
    return of_program(directory, "nagle-lab:1", ROOT / "build" / "nagle-lab-static")
