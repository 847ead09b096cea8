# SPDX-License-Identifier: GPL-2.0
"""What the Makefile promises besides building: install, uninstall, and systems without apt."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import documents
import pytest
from harness import ROOT


def make(*arguments: str) -> None:
    subprocess.run(["make", "--no-print-directory", "DEPS=have", *arguments], cwd=ROOT, check=True, capture_output=True,
                   env={**os.environ, "DEPS": "have"})


def files(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}


@pytest.mark.quick
def test_install_honours_destdir_and_prefix_and_uninstall_removes_all(tmp_path: Path) -> None:
    make("install", f"DESTDIR={tmp_path}", "prefix=/usr")
    assert os.readlink(tmp_path / "usr/bin/nagletrace") == "../sbin/nagletrace"
    assert {"usr/sbin/nagletrace", "usr/bin/nagletrace", "usr/bin/nagletrace-exporter", "usr/bin/nagletrace-report",
            "usr/bin/nagletrace-flame", "usr/bin/nagletrace-join", "usr/lib/systemd/system/nagletrace.service",
            "usr/share/nagletrace/exporters/nagletrace_exporters/report/templates/report.html",
            "usr/share/doc/nagletrace/runbooks/NagletraceStalls40ms.md", "usr/share/man/man8/nagletrace.8",
            "usr/share/man/man1/nagletrace-exporter.1", "usr/share/bash-completion/completions/nagletrace",
            "usr/share/zsh/site-functions/_nagletrace"} <= files(tmp_path)
    package = {f"usr/share/nagletrace/{path.relative_to(ROOT)}" for path in (ROOT / "exporters").rglob("*.py")
               if "tests" not in path.parts}
    assert len(package) > 20 and package <= files(tmp_path)
    assert all(name.startswith("usr/") for name in files(tmp_path))
    assert subprocess.run([tmp_path / "usr/sbin/nagletrace", "--version"], capture_output=True).returncode == 0
    make("uninstall", f"DESTDIR={tmp_path}", "prefix=/usr")
    assert files(tmp_path) == set()


def test_what_is_installed_elsewhere_names_its_place(tmp_path: Path) -> None:
    make("install", f"DESTDIR={tmp_path}", "prefix=/opt/n")
    for name, program in (("nagletrace", "sbin/nagletrace daemon"), ("nagletrace-exporter", "bin/nagletrace-exporter")):
        unit = (tmp_path / f"opt/n/lib/systemd/system/{name}.service").read_text()
        assert f"\nExecStart=/opt/n/{program} " in unit
        assert "\nDocumentation=file:/opt/n/share/doc/nagletrace/README.md\n" in unit
    assert ".It Pa /opt/n/share/doc/nagletrace/\n" in (tmp_path / "opt/n/share/man/man8/nagletrace.8").read_text()
    alerts = (tmp_path / "opt/n/share/doc/nagletrace/prometheus/alerts.yml").read_text()
    runbooks = re.findall(r"runbook_url: file://(.*)", alerts)
    assert len(runbooks) > 5 and all((tmp_path / path[1:]).is_file() for path in runbooks)
    assert '"/opt/n/share/nagletrace/exporters"' in (tmp_path / "opt/n/bin/nagletrace-exporter").read_text()


def test_installed_documents_lead_to_each_other(tmp_path: Path) -> None:
    make("install", f"DESTDIR={tmp_path}", "prefix=/usr")
    room = tmp_path / "usr/share/doc/nagletrace"
    #: of the source tree only
    left = {"CONTRIBUTING.md", "LICENSES/BSD-2-Clause.txt"}
    found = 0
    for path in room.rglob("*.md"):
        for target in {link.partition("#")[0] for link in documents.links(path)} - left - {""}:
            assert (path.parent / target).exists(), f"{path.name}: {target}"
            found += 1
    assert found > 15


def test_installed_commands_take_no_module_from_where_they_are_started(tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    make("install", f"prefix={installed}")
    for module in ("yaml", "jinja2", "json"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('a module of somebody else')")
    for name in ("nagletrace-exporter", "nagletrace-report", "nagletrace-flame", "nagletrace-join"):
        done = subprocess.run([installed / "bin" / name, "--version"], cwd=tmp_path, capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(tmp_path)})
        assert done.returncode == 0 and done.stdout.startswith(f"{name} "), done.stderr


def test_the_installed_report_finds_its_templates(tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    make("install", f"prefix={installed}")
    for name, output, begin in (("report", (), "<!DOCTYPE html>"), ("flame", ("--output", "svg"), "<?xml")):
        done = subprocess.run([installed / "bin" / f"nagletrace-{name}", *output], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.startswith(begin), done.stderr


@pytest.mark.quick
def test_without_apt_deps_says_what_is_wanted(tmp_path: Path) -> None:
    for tool in ("sh", "grep", "id", "env"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    done = subprocess.run(["sh", "tests/deps.sh", "gcc", "clang"], cwd=ROOT, capture_output=True, text=True,
                          env={"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert "no apt" in done.stderr and "gcc clang" in done.stderr
