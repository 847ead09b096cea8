# SPDX-License-Identifier: GPL-2.0
"""The two images: built by `make images`, with what the Debian packages install and nothing else, and used."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from debian import run_whole
from harness import ROOT, Lab, stalled_rounds
from processes import free_port, wait_until
from roots import Root
from stack import Program, get

OUT = ROOT / "build" / "images"
PACKAGES = {"nagletrace": "nagletrace", "nagletrace-exporter": "nagletrace-exporters"}
VERSION = (ROOT / "VERSION").read_text().strip()
#: In s: fetching a base and what the packages depend on, 50 MB, and unpacking it some times.
BUILD_S = 1500.0
#: In MB; measured: 130 and 173.
MOST_MB = {"nagletrace": 150, "nagletrace-exporter": 200}
#: Who a container runs as without more words.
NOBODY = "65532:65532"

each_image = pytest.mark.parametrize("name", PACKAGES)


@dataclass(frozen=True)
class Image:
    name: str
    config: dict[str, Any]
    root: Root

    @property
    def size_mb(self) -> float:
        files = [path for path in self.root.directory.rglob("*") if path.is_file() and not path.is_symlink()]
        return sum(path.stat().st_size for path in files) / 1e6


def unpack(archive: Path, into: Path) -> dict[str, Any]:
    """The layers of an OCI archive, one over the other; its configuration."""
    layout = into.parent / f"{into.name}.oci"
    with tarfile.open(archive) as tar:
        tar.extractall(layout)

    def blob(descriptor: dict[str, Any]) -> Path:
        return layout / "blobs" / descriptor["digest"].replace(":", "/")

    [image] = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(image).read_text())
    for layer in manifest["layers"]:
        subprocess.run(["tar", "-C", into, "-xpf", blob(layer)], check=True)
        for taken in [*into.rglob(".wh.*")]:
            assert taken.name != ".wh..wh..opq", "a directory that hides all below it"
            subprocess.run(["rm", "-rf", taken, taken.with_name(taken.name.removeprefix(".wh."))], check=True)
    config: dict[str, Any] = json.loads(blob(manifest["config"]).read_text())
    return config


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Image]:
    done = run_whole(["make", "-C", str(ROOT), "--no-print-directory", "images", "DEPS=have"], BUILD_S)
    said = done.stdout + done.stderr
    if done.returncode and re.search(r"Could not resolve|Failed to fetch|Temporary failure", said):
        pytest.skip(f"the images cannot be had: {said.strip()[-300:]}")
    assert done.returncode == 0, said
    made = {}
    for name in PACKAGES:
        directory = tmp_path_factory.mktemp(name)
        directory.chmod(0o755)  # what runs in it is not root only
        made[name] = Image(name, unpack(OUT / f"{name}.tar", directory), Root(name, directory))
    return made


def files_of(package: str) -> dict[str, str]:
    """Digests of what a package installs, by the path that it has where /lib is /usr/lib; "" for a link."""
    [deb] = (ROOT / "build" / "deb").glob(f"{package}_*.deb")
    found = {}
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as process, \
            tarfile.open(fileobj=process.stdout, mode="r|") as tar:
        for member in tar:
            path = re.sub(r"^\./(?=lib/)", "usr/", member.name).removeprefix("./")
            if member.issym():
                found[path] = ""
            elif member.isfile():
                file = tar.extractfile(member)
                assert file
                found[path] = hashlib.sha256(file.read()).hexdigest()
    return found


def left_out(root: Root, path: str) -> bool:
    """By the settings of the base's dpkg, of which the last that fits decides."""
    decided = False
    for file in sorted(root.path("/etc/dpkg/dpkg.cfg.d").iterdir()):
        for kind, pattern in re.findall(r"^path-(exclude|include)=(\S+)$", file.read_text(), re.MULTILINE):
            if fnmatch.fnmatch(f"/{path}", pattern):
                decided = kind == "exclude"
    return decided


# ---- what is in them ----


@each_image
def test_its_files_are_those_of_the_package(images: dict[str, Image], name: str) -> None:
    root, wanted = images[name].root, files_of(PACKAGES[name])
    assert len(wanted) > 10
    left = {path for path in wanted if left_out(root, path)}
    assert all(path.startswith(("usr/share/man/", "usr/share/doc/")) for path in left)
    assert f"usr/share/doc/{PACKAGES[name]}/copyright" not in left
    for path in wanted.keys() - left:
        there = root.directory / path
        assert there.is_symlink() or there.is_file(), f"{path} is missing"
        assert not wanted[path] or hashlib.sha256(there.read_bytes()).hexdigest() == wanted[path], f"{path} differs"
    assert not any((root.directory / path).exists() for path in left)


@each_image
def test_nothing_of_ours_is_in_it_that_no_package_owns(images: dict[str, Image], name: str) -> None:
    root, wanted = images[name].root, files_of(PACKAGES[name])
    ours = {str(path.relative_to(root.directory)) for path in root.directory.rglob("*nagletrace*")
            if path.is_file() or path.is_symlink()}
    ours |= {str(path.relative_to(root.directory)) for path in root.directory.glob("usr/share/nagletrace/**/*")
             if path.is_file()}
    known = re.compile(r"var/lib/dpkg/info/nagletrace[\w.-]*|.*/__pycache__/.*|var/lib/systemd/deb-systemd-helper-\S*")
    assert {path for path in ours - wanted.keys() if not known.fullmatch(path)} == set()
    assert root.say("dpkg-query", "-W", "-f", "${Version} ${db:Status-Status}", PACKAGES[name]) \
        == f"{VERSION}-1 installed"
    assert root.say("dpkg", "--audit") == ""
    installed = root.say("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n").splitlines()
    assert [line for line in installed if line.startswith("nagletrace")
            and line.endswith(" installed")] == [f"{PACKAGES[name]} installed"]


@each_image
def test_it_has_no_compiler_no_lists_and_no_packages_of_ours_left(
        images: dict[str, Image], name: str, record_property: Callable[[str, object], None]) -> None:
    root = images[name].root
    for program in ("gcc", "clang", "make", "bpftool", "git"):
        assert not root.path(f"/usr/bin/{program}").exists()
    assert not list(root.path("/var/lib/apt/lists").glob("*Packages*"))
    assert not list(root.directory.rglob("*.deb"))
    # whom the exporter trusts, as it hands records on over https
    assert (name == "nagletrace-exporter") == root.path("/etc/ssl/certs/ca-certificates.crt").exists()
    size = images[name].size_mb
    record_property("measured", f"image {name}: {size:.0f} MB of files")
    assert size < MOST_MB[name], f"{size:.0f} MB"


@each_image
def test_it_says_what_it_is_and_what_it_starts(images: dict[str, Image], name: str) -> None:
    config = images[name].config["config"]
    program = {"nagletrace": "/usr/sbin/nagletrace", "nagletrace-exporter": "/usr/bin/nagletrace-exporter"}[name]
    assert config["Entrypoint"] == [program] and not config.get("Cmd")
    assert config.get("User", "") == ("" if name == "nagletrace" else NOBODY)
    assert {key.rpartition(".")[2]: value for key, value in config["Labels"].items() if "opencontainers" in key} == {
        "title": name, "version": VERSION, "licenses": "GPL-2.0-only"}


# ---- what they do ----


@each_image
def test_its_program_starts_as_its_user(images: dict[str, Image], name: str) -> None:
    image = images[name]
    [program] = image.config["config"]["Entrypoint"]
    user = image.config["config"].get("User") or "0:0"
    uid, gid = user.split(":")
    bare = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--bounding-set=-all", "--no-new-privs"]
    assert image.root.say(*bare, program, "--version") == f"{name} {VERSION}\n"
    assert re.search(r"^ +--\S*socket", image.root.say(*bare, program, "--help"), re.MULTILINE)


def test_both_together_tell_prometheus_of_a_stall(images: dict[str, Image], tmp_path: Path) -> None:
    """As the manifest runs them: the daemon is user 0 with two capabilities, the exporter nobody with none."""
    port = free_port()
    daemon_root, exporter_root = images["nagletrace"].root, images["nagletrace-exporter"].root
    shared = tmp_path / "run"
    shared.mkdir()
    for root in (daemon_root, exporter_root):
        root.path("/run/nagletrace").mkdir(exist_ok=True)
    capabilities = "-all,+bpf,+perfmon"
    tmp_path.chmod(0o755)
    daemon = Program("daemon", tmp_path / "daemon.log", [*daemon_root.command(
        "setpriv", "--reuid=0", "--regid=65532", "--clear-groups", f"--inh-caps={capabilities}",
        f"--bounding-set={capabilities}", "--no-new-privs", "/usr/sbin/nagletrace", "daemon", "--socket",
        "/run/nagletrace/socket", shown={"/run/nagletrace": shared})])
    exporter = Program("exporter", tmp_path / "exporter.log", [*exporter_root.command(
        "setpriv", "--reuid=65532", "--regid=65532", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all",
        "--no-new-privs", "/usr/bin/nagletrace-exporter", "--daemon.socket", "/run/nagletrace/socket",
        "--web.listen-address", f"127.0.0.1:{port}", shown={"/run/nagletrace": shared})])
    try:
        daemon.wait_for(lambda: "nagletrace: ready" in daemon.log.read_text())
        exporter.wait_for(lambda: "nagletrace-exporter: ready" in exporter.log.read_text())
        # by a name that no other program of this host has
        with Lab("write-write-read", "--rounds", "12", "--client-name", "from-images") as lab:
            felt = len(stalled_rounds(lab.play()))
        assert felt >= 8
        told = re.compile(r'^nagletrace_stalls_total\{.*cause="nagle_delayed_ack",.*comm="from-images".*\} (\S+)$',
                          re.MULTILINE)
        wait_until(f"{felt} stalls are told", lambda: sum(map(float, told.findall(
            get(f"http://127.0.0.1:{port}/metrics")))) >= felt)
    finally:
        exporter.stop()
        daemon.stop()
