# SPDX-License-Identifier: GPL-2.0
"""The packages, used, upgraded and removed: Debian's, built by `make deb`, in roots of Debian 12 and 13; RPM's, built
by `make rpm`, in a root of Debian 12, by Debian's rpm."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import harness
import pytest
from ends import own_end
from harness import ROOT, Lab, Tracer, assert_durations_match, stalled_rounds
from debian import run_whole
from processes import free_port, wait_until
from roots import Root, archive, contents, unpacked
from stack import Program, get

SUITES = ["bookworm", "trixie"]
#: rpm installs in a root of this suite.
RPM_SUITE = "bookworm"
NAMES = ("nagletrace", "nagletrace-exporters")
UNITS = ("nagletrace.service", "nagletrace-exporter.service")
#: In s; a build takes about 40 alone, the first of arm64's static binary more.
BUILD_S = 300

#: rpm prints these: it keeps options that the host changed, and systemd-sysusers makes the user.
TOLD = re.compile(r"warning: /etc/default/nagletrace |Creating (group|user) 'nagletrace' ")

#: In place of systemctl it writes down what packages ask systemd for.
SYSTEMCTL = '#!/bin/sh\necho "$*" >>/tmp/systemctl.log\n'

#: Loads a completion as bash does at the first TAB, and completes a word.
COMPLETE = """
source /usr/share/bash-completion/bash_completion
loader=$(complete -p -D | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$loader" nagletrace
[ $? = 124 ] || exit 1
COMP_WORDS=(nagletrace "$1") COMP_CWORD=1
"$(complete -p nagletrace | sed 's/.*-F \\([^ ]*\\).*/\\1/')"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@dataclass(frozen=True)
class Built:
    """What one run of dpkg-buildpackage left."""

    directory: Path

    @property
    def tree(self) -> Path:
        [tree] = (path for path in self.directory.iterdir() if path.is_dir())
        return tree

    @property
    def packages(self) -> list[Path]:
        return sorted(self.directory.glob("*.deb"))

    def field(self, package: str, name: str) -> str:
        [file] = self.directory.glob(f"{package}_*.deb")
        done = subprocess.run(["dpkg-deb", "-f", file, name], capture_output=True, text=True, check=True)
        return done.stdout.strip()


def version() -> str:
    return (ROOT / "VERSION").read_text().strip()


@pytest.fixture(scope="session")
def built() -> Built:
    done = run_whole(["make", "-C", str(ROOT), "--no-print-directory", "deb", "DEPS=have"], BUILD_S)
    assert done.returncode == 0, done.stdout + done.stderr
    built = Built(ROOT / "build" / "deb")
    # the last words of the target are what is to be installed
    assert [ROOT / line for line in done.stdout.splitlines()] == built.packages
    return built


@pytest.fixture(scope="session")
def newer(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Packaged once more, with other options in /etc/default/nagletrace."""
    newer = Built(tmp_path_factory.mktemp("newer"))
    tree = shutil.copytree(built.tree, newer.directory / built.tree.name, symlinks=True)
    (tree / "debian" / "files").unlink()
    changelog = subprocess.run(["debian/changelog.py", f"{version()}-2", "CHANGELOG.md"], cwd=tree, check=True,
                               capture_output=True, text=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1800000000"})
    (tree / "debian" / "changelog").write_text(changelog.stdout)
    with (tree / "packaging" / "systemd" / "nagletrace.options").open("a") as options:
        options.write("# another line\n")
    done = subprocess.run(["dpkg-buildpackage", "-b", "-nc", "-us", "-uc"], cwd=tree, capture_output=True, text=True,
                          timeout=BUILD_S, env={**os.environ, "DEB_BUILD_OPTIONS": "noautodbgsym"})
    assert done.returncode == 0, done.stdout + done.stderr
    return newer


@pytest.fixture(scope="session")
def archives(built: Built) -> dict[str, Path]:
    depends = ", ".join(field for name in NAMES if (field := built.field(name, "Depends")))
    with ThreadPoolExecutor(len(SUITES)) as pool:
        return dict(zip(SUITES, pool.map(lambda suite: archive(suite, depends), SUITES)))


#: Provides to rpm what the root has from dpkg.
HAS = """
Name: has
Version: 1
Release: 1
Summary: What the root has
License: none
BuildArch: noarch
Provides: /bin/sh /usr/bin/systemd-sysusers /usr/bin/python3 python3 = 3.11
Provides: python3dist(bcrypt) python3dist(jinja2) python3dist(prometheus-client) python3dist(pyyaml)
Provides: python3dist(uvicorn)
%description
%files
"""


@dataclass(frozen=True)
class Rpms:
    """A package of what the root has; those for this machine, and packaged once more, with other options in
    /etc/default; and all."""

    has: list[Path]
    packages: list[Path]
    newer: list[Path]
    all: list[Path]


@pytest.fixture(scope="session")
def rpms(tmp_path_factory: pytest.TempPathFactory) -> Rpms:
    done = run_whole(["make", "-C", str(ROOT), "--no-print-directory", "rpm", "DEPS=have"], 2 * BUILD_S)
    assert done.returncode == 0, done.stdout + done.stderr
    place = tmp_path_factory.mktemp("rpms")
    (place / "has.spec").write_text(HAS)
    (place / "tree").mkdir()
    for name in set(os.listdir(ROOT)) - {"packaging"}:
        (place / "tree" / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "packaging", place / "tree" / "packaging")
    with (place / "tree" / "packaging" / "systemd" / "nagletrace.options").open("a") as options:
        options.write("# another line\n")
    binary = f"build/static/nagletrace-{version()}-{os.uname().machine}"
    for command in (["rpmbuild", "-bb", "--define", f"_topdir {place}", "--define", f"_rpmdir {place}", "has.spec"],
                    ["tree/packaging/rpm.sh", str(place / "newer"), "2", binary]):
        made = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=BUILD_S)
        assert made.returncode == 0, made.stdout + made.stderr
    of_make = ROOT / "build" / "rpm"
    here = [[file for kind in (os.uname().machine, "noarch") for file in there.glob(f"*.{kind}.rpm")]
            for there in (of_make, place / "newer")]
    return Rpms([*(place / "noarch").glob("*.rpm")], *here, [*of_make.glob("*.rpm")])


@dataclass(frozen=True)
class Host:
    """A root, the packages, and its files before they came. A script that logs its calls replaces systemctl."""

    root: Root
    packages: list[Path]
    newer: list[Path]
    before: dict[str, str]

    def change(self, *words: str, packages: Iterable[Path] = ()) -> str:
        """As if systemd ran; what was asked of it."""
        running = self.root.path("/run/systemd/system")
        files = [f"/tmp/{Path(shutil.copy(package, self.root.path('/tmp'))).name}" for package in packages]
        running.mkdir(parents=True)
        try:
            self.manage(*words, *files)
        finally:
            running.rmdir()
        return self.asked()

    def manage(self, *words: str) -> None:
        self.root.apt("-o", "Dpkg::Options::=--force-confold", *words)

    def install(self, packages: list[Path]) -> str:
        return self.change("install", packages=packages)

    def remove(self) -> str:
        """Removes all but the configuration, and returns the calls of systemctl."""
        return self.change("remove", *NAMES)

    def purge(self) -> None:
        assert self.root.path("/etc/default/nagletrace").exists(), "only a purge takes the configuration"
        self.change("purge", *NAMES)

    def version(self, name: str) -> str:
        return self.root.say("dpkg-query", "-W", "-f", "${Version}", name)

    def asked(self) -> str:
        """The calls of systemctl, a line each, since they were forgotten."""
        log = self.root.path("/tmp/systemctl.log")
        return log.read_text() if log.exists() else ""

    def forget(self) -> None:
        self.root.path("/tmp/systemctl.log").unlink(missing_ok=True)


class RpmHost(Host):
    """By the machine's rpm."""

    def manage(self, *words: str) -> None:
        self.rpm(*(str(self.root.path(word)) if word.startswith("/") else word for word in words))

    def rpm(self, *words: str) -> str:
        done = run_whole(["rpm", "--force-debian", "--root", str(self.root.directory), "--dbpath", "/var/lib/rpm",
                          *words], BUILD_S)
        said = [line for line in done.stderr.splitlines() if not TOLD.match(line)]
        assert done.returncode == 0 and not said, done.stdout + done.stderr
        return done.stdout

    def install(self, packages: list[Path]) -> str:
        return self.change("-U", packages=packages)

    def remove(self) -> str:
        return self.change("-e", *NAMES)

    def purge(self) -> None:
        for kept in ("rpmsave", "rpmnew"):
            self.root.path(f"/etc/default/nagletrace.{kept}").unlink()

    def version(self, name: str) -> str:
        return self.rpm("-q", "--qf", "%{VERSION}-%{RELEASE}", name)


@pytest.fixture(scope="module", params=[*SUITES, "rpm"])
def host(request: pytest.FixtureRequest, archives: dict[str, Path], built: Built) -> Iterator[Host]:
    """With the packages installed. The tests below are in the order of a life: use, upgrade, removal."""
    rpm = request.param == "rpm"
    suite = RPM_SUITE if rpm else request.param
    with unpacked(suite, archives[suite]) as root:
        systemctl = root.path("/usr/bin/systemctl")
        systemctl.write_text(SYSTEMCTL)
        systemctl.chmod(0o755)
        before = contents(root)
        if rpm:
            rpms: Rpms = request.getfixturevalue("rpms")
            host: Host = RpmHost(root, rpms.packages, rpms.newer, before)
            host.install(rpms.has)
        else:
            host = Host(root, built.packages, request.getfixturevalue("newer").packages, before)
        host.install(host.packages)
        yield host


@pytest.fixture
def recording(host: Host) -> Iterator[tuple[str, list[harness.Record], list[harness.Record]]]:
    """In the root, of the lab's client: its place there, the rounds that stalled, and what was told of them."""
    with pytest.MonkeyPatch.context() as patched, Lab("write-write-read", "--rounds", "12") as lab:
        patched.setattr(harness, "NAGLETRACE", Path("/usr/bin/nagletrace"))
        with Tracer("-p", str(lab.client), "--stacks", prefix=tuple(host.root.command())) as tracer:
            result = lab.play()
            tracer.wait()
            place = "/tmp/recording.jsonl"
            host.root.path(place).write_text(tracer.lines.text() + "\n")
            yield place, stalled_rounds(result), tracer.stalls()


# ---- as they are built ----


def test_both_packages_have_the_version_of_the_source(built: Built) -> None:
    assert {name: built.field(name, "Version") for name in NAMES} == dict.fromkeys(NAMES, f"{version()}-1")
    assert built.field("nagletrace-exporters", "Architecture") == "all"


def test_symbols_of_bcc_are_no_dependency(built: Built) -> None:
    for relation in ("Depends", "Recommends"):
        assert "bpfcc" not in built.field("nagletrace-exporters", relation)
    assert "python3-bpfcc" in built.field("nagletrace-exporters", "Suggests")


def test_lintian_finds_no_error(built: Built) -> None:
    [changes] = built.directory.glob("*.changes")
    done = run_whole(["lintian", "--allow-root", "--fail-on", "error", "--tag-display-limit", "0", str(changes)], 120)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_the_build_needs_is_what_make_installs(built: Built) -> None:
    said = subprocess.run(["make", "--no-print-directory", "-s", "--eval",
                           "wanted: ; @echo $(BUILD_PACKAGES) $(DEB_PACKAGES)", "wanted"], cwd=ROOT, check=True,
                          capture_output=True, text=True).stdout.split()
    control = (ROOT / "packaging" / "debian" / "control").read_text()
    field = re.search(r"^Build-Depends:\n((?: .*\n)+)", control, re.MULTILINE)
    assert field
    needed = {re.split(r"[ (,]", line.strip())[0] for line in field[1].splitlines()}
    # build-essential, which every build in Debian has, brings gcc and libc6-dev
    assert needed - {"debhelper-compat"} == set(said) - {"build-essential", "debhelper", "gcc", "libc6-dev"}


def make_of(tree: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """packaging/deb.sh in a tree, with a dpkg-buildpackage that builds nothing."""
    tools = out.with_name(f"{out.name}-tools")
    tools.mkdir()
    (tools / "dpkg-buildpackage").write_text("#!/bin/sh\ntouch ../nagletrace.deb\n")
    (tools / "dpkg-buildpackage").chmod(0o755)
    return subprocess.run([tree / "packaging" / "deb.sh", out, "1"], cwd=tree, capture_output=True, text=True,
                          env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"})


def test_a_source_archive_is_packaged_likewise(built: Built, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(built.tree, source, symlinks=True, ignore=shutil.ignore_patterns("build", "debian", "__pycache__"))
    shutil.copytree(ROOT / "packaging" / "debian", source / "packaging" / "debian")
    (source / "build").mkdir()
    (source / "build" / "left").touch()
    done = make_of(source, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    [tree] = (path for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert not (tree / "build").exists()
    parsed = subprocess.run(["dpkg-parsechangelog", "-S", "Version"], cwd=tree, capture_output=True, text=True,
                            check=True)
    assert parsed.stdout == f"{version()}-1\n"
    for name in ("Makefile", "debian/control", "packaging/debian/rules", "VERSION"):
        assert (tree / name).read_bytes() == (built.tree / name).read_bytes(), name


@pytest.mark.parametrize("script", ["deb.sh", "rpm.sh"])
@pytest.mark.parametrize("revision", ["0", "01", "1~x", "-1"])
def test_a_revision_that_is_no_number_is_refused(script: str, revision: str, tmp_path: Path) -> None:
    done = subprocess.run([ROOT / "packaging" / script, tmp_path / "out", revision], capture_output=True, text=True)
    assert done.returncode == 2 and not (tmp_path / "out").exists()
    assert done.stderr.count("\n") == 1 and f"REVISION={revision}: " in done.stderr and "give" in done.stderr


def test_a_version_without_a_section_is_refused(tmp_path: Path) -> None:
    done = subprocess.run([ROOT / "packaging" / "debian" / "changelog.py", "99.0.0-1", ROOT / "CHANGELOG.md"],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "no section 99.0.0" in done.stderr


def test_released_versions_are_dated_by_the_changelog(tmp_path: Path) -> None:
    (tmp_path / "CHANGELOG.md").write_text("## 0.2.0 - 2027-02-01\n\n- Newer.\n\n## 0.1.0 - 2027-01-05\n\n### Added\n\n"
                                           "- **Old** and [linked](x.md).\n")
    done = subprocess.run([ROOT / "packaging" / "debian" / "changelog.py", "0.2.0-3", tmp_path / "CHANGELOG.md"],
                          capture_output=True, text=True, check=True)
    (tmp_path / "changelog").write_text(done.stdout)
    parsed = subprocess.run(["dpkg-parsechangelog", "--all", "-l", tmp_path / "changelog"], capture_output=True,
                            text=True, check=True)
    assert not parsed.stderr
    assert re.search(r"^Version: 0\.2\.0-3$", parsed.stdout, re.MULTILINE)
    assert "nagletrace (0.1.0-1) unstable" in parsed.stdout and "* Old and linked." in parsed.stdout
    assert "Mon, 01 Feb 2027" in parsed.stdout


#: Where RPM distributions have what lies there in Debian, and what only Debian's packages have.
PLACES = (("/usr/sbin/", "/usr/bin/"), ("/lib/systemd/", "/usr/lib/systemd/"), ("/zsh/vendor-completions/",
                                                                             "/zsh/site-functions/"))
OF_DEBIAN = re.compile(r"/changelog(\.Debian)?$|/copyright$|/usr/share/python3/runtime\.d/|/lintian/")


def test_the_rpms_need_no_library_and_have_the_files_of_the_debian_ones(built: Built, rpms: Rpms) -> None:
    def told(*words: str) -> list[str]:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()

    for name, package in zip(NAMES, rpms.packages):
        needs = told("rpm", "-qp", "--requires", str(package))
        assert not [line for line in needs if ".so" in line], needs
        [deb] = built.directory.glob(f"{name}_*.deb")
        files = {line.split()[5].removeprefix(".").removesuffix(".gz") for line in told("dpkg-deb", "-c", str(deb))
                 if line.startswith("-")}
        for of_debian, of_rpm in PLACES:
            files = {path.replace(of_debian, of_rpm) for path in files}
        missing = files - set(told("rpm", "-qpl", str(package)))
        assert not {path for path in missing if not OF_DEBIAN.search(path)}, name
    assert "python3dist(uvicorn)" in needs


def test_each_rpm_has_a_binary_of_its_machine_and_nothing_of_the_host_that_built_it(rpms: Rpms) -> None:
    kinds = set()
    for package in rpms.all:
        about = "%{ARCH} %{BUILDHOST}\n[%{FILENAMES} %{FILECLASS}\n]"
        told = subprocess.run(["rpm", "-qp", "--qf", about, package], capture_output=True, text=True, check=True).stdout
        arch, host = told.splitlines()[0].split()
        kinds.add(arch)
        assert host == "localhost"
        if arch != "noarch":
            assert re.search(rf"^/usr/bin/nagletrace ELF 64-bit .*{arch.replace('_', '.')}.*statically linked", told,
                             re.MULTILINE), told
    assert {os.uname().machine, "noarch"} <= kinds


# ---- installed ----


def test_nothing_is_enabled_and_nobody_is_served(host: Host) -> None:
    root = host.root
    assert not re.search(r"\b(start|restart|enable|preset)\b", host.asked()), host.asked()
    assert not [path for path in root.path("/etc/systemd/system").rglob("nagletrace*")]
    assert root.say("getent", "group", "nagletrace").startswith("nagletrace:")
    passwd = root.say("getent", "passwd", "nagletrace").strip().split(":")
    assert passwd[6].endswith("nologin")


def test_systemd_takes_the_units(host: Host) -> None:
    # it writes into /run
    done = host.root.run("sh", "-c", 'mount -t tmpfs tmpfs /run && exec systemd-analyze verify --man=no "$@"', "sh",
                         *UNITS)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    for unit in UNITS:
        shown = host.root.path(f"/lib/systemd/system/{unit}").read_text()
        for program in re.findall(r"^ExecStart=(\S+)", shown, re.MULTILINE) or ["no ExecStart"]:
            assert os.access(host.root.path(program), os.X_OK), program
        for document in re.findall(r"^Documentation=file:(\S+)", shown, re.MULTILINE) or ["no Documentation"]:
            assert host.root.path(document).is_file(), document


def test_it_names_the_stalls_of_a_program(recording: tuple[str, list[harness.Record], list[harness.Record]]) -> None:
    _, felt, stalls = recording
    assert len(felt) >= 8
    assert_durations_match(felt, stalls)
    assert {own_end(stall)["comm"] for stall in stalls} == {"lab-client"}


def test_the_readers_read_it(host: Host, recording: tuple[str, list[harness.Record], list[harness.Record]]) -> None:
    place, felt, _ = recording
    page = host.root.say("nagletrace-report", "-i", place)
    assert page.startswith("<!DOCTYPE html>") and "lab-client" in page
    folded = host.root.say("nagletrace-flame", "-i", place)
    assert felt and re.search(r"^lab-client\b.*;send_call\S*;\S+ \d+$", folded, re.MULTILINE), folded
    assert host.root.say("nagletrace-flame", "-i", place, "--output", "svg").startswith("<?xml")
    done = host.root.run("nagletrace-flame", "-i", place, "--symbols", "bcc")
    assert done.returncode and done.stderr.count("\n") == 1 and "python3-bpfcc" in done.stderr


def test_the_daemon_and_the_exporter_serve_with_what_their_units_give(host: Host, tmp_path: Path) -> None:
    root, port = host.root, free_port()
    place = root.path("/run/nagletrace")
    place.mkdir()
    try:
        root.say("chown", "nagletrace:nagletrace", "/run/nagletrace")
        capabilities = "-all,+bpf,+perfmon"
        daemon = Program("nagletrace daemon", tmp_path / "daemon.log", [
            *root.command("setpriv", "--reuid=nagletrace", "--regid=nagletrace", "--init-groups", "--no-new-privs",
                          f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}",
                          f"--bounding-set={capabilities}", "nagletrace", "daemon", "--group", "nagletrace")])
        group = root.say("getent", "group", "nagletrace").split(":")[2]
        exporter = Program("nagletrace-exporter", tmp_path / "exporter.log", [
            *root.command("setpriv", "--reuid=65534", "--regid=65534", f"--groups={group}", "--inh-caps=-all",
                          "--bounding-set=-all", "nagletrace-exporter", "--web.listen-address", f"127.0.0.1:{port}")])
        try:
            daemon.wait_for(lambda: "nagletrace: ready" in daemon.log.read_text())
            exporter.wait_for(lambda: "nagletrace-exporter: ready" in exporter.log.read_text())
            with Lab("write-write-read", "--rounds", "12") as lab:
                felt = stalled_rounds(lab.play())
            assert len(felt) >= 8
            told = re.compile(r'^nagletrace_stalls_total\{.*cause="nagle_delayed_ack",.*comm="lab-client".*\} (\S+)$',
                              re.MULTILINE)

            def all_told() -> bool:
                metrics = get(f"http://127.0.0.1:{port}/metrics")
                assert "\nnagletrace_up 1.0\n" in metrics
                return sum(map(float, told.findall(metrics))) >= len(felt)

            wait_until(f"{len(felt)} stalls are told", all_told)
        finally:
            exporter.stop()
            daemon.stop()
    finally:
        shutil.rmtree(place)


def test_man_shows_the_pages_and_bash_completes(host: Host) -> None:
    for name in ("nagletrace", "nagletrace-exporter", "nagletrace-report", "nagletrace-flame", "nagletrace-join"):
        assert re.search(rf"^ +{name} +— +\w", host.root.say("man", "-P", "cat", name), re.MULTILINE), name
    assert host.root.say("bash", "-c", COMPLETE, "bash", "che") == "check\n"
    assert len([*host.root.path("/usr/share/zsh").rglob("_nagletrace")]) == 1


def test_the_documents_are_there_and_can_be_used_as_they_are(host: Host) -> None:
    exporters = host.root.path("/usr/share/doc/nagletrace-exporters")
    for name in ("nagletrace", "nagletrace-fleet", "nagletrace-connection"):
        assert json.loads((exporters / "grafana" / f"{name}.json").read_text())["panels"], name
    alerts = (exporters / "prometheus" / "alerts.yml").read_text()
    pages = re.findall(r"runbook_url: file://(\S+)", alerts)
    assert pages and all(host.root.path(page).is_file() for page in pages)
    manual = host.root.say("man", "-P", "cat", "nagletrace")
    named = re.findall(r"/usr/share/doc/nagletrace/\w[\w.-]*", manual)
    assert named and all(host.root.path(name).is_file() for name in named), named
    assert not [path for path in exporters.rglob("*.yml.gz")]


# ---- upgraded, removed ----


def test_an_upgrade_keeps_the_configuration_and_restarts_what_runs(host: Host) -> None:
    options = host.root.path("/etc/default/nagletrace")
    options.write_text('NAGLETRACE_OPTIONS="--min 10ms"\n')
    host.forget()
    asked = host.install(host.newer)
    assert {host.version(name) for name in NAMES} == {f"{version()}-2"}
    assert options.read_text() == 'NAGLETRACE_OPTIONS="--min 10ms"\n'
    for unit in UNITS:
        assert re.search(rf"\btry-restart {unit}", asked), asked
        others = asked.replace("try-restart", "")
        assert not re.search(rf"\b(stop|start|restart|enable|disable)\b.*{unit}", others), asked
    assert asked.index("daemon-reload") < asked.index("try-restart")
    assert host.root.say("nagletrace", "--version") == f"nagletrace {version()}\n"
    assert host.root.say("nagletrace-report", "--version") == f"nagletrace-report {version()}\n"


def test_removed_they_stop_and_purged_they_leave_nothing(host: Host) -> None:
    host.forget()
    asked = host.remove()
    for unit in UNITS:
        assert re.search(rf"\b(stop|disable --now) {unit}", asked), asked
    assert host.root.run("nagletrace", "--version").returncode == 127
    host.purge()
    after = contents(host.root)
    assert set(after) - set(host.before) == set(), "left behind"
    assert set(host.before) - set(after) == set(), "taken along"
    assert {name for name in after if after[name] != host.before[name]} == set(), "changed"
    # lest another package's user gets its number, and its files
    assert host.root.say("getent", "passwd", "nagletrace")
