# SPDX-License-Identifier: GPL-2.0
"""The Python package that users get installs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from stack import ROOT

EXPORTERS = ROOT / "exporters"


def run(*command: str | Path) -> None:
    done = subprocess.run([str(word) for word in command], cwd=EXPORTERS, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_installs_and_brings_the_commands(tmp_path: Path) -> None:
    """Into a virtual environment that sees Debian's libraries, as a user's `pip install` would."""
    source = tmp_path / "source"
    run("cp", "-r", EXPORTERS, source)  # setuptools leaves its traces where it builds
    run("/usr/bin/python3", "-m", "venv", "--system-site-packages", tmp_path / "venv")
    run(tmp_path / "venv" / "bin" / "pip", "install", "-q", "--disable-pip-version-check", source)
    recording = tmp_path / "recording"
    recording.touch()
    programs = tmp_path / "venv" / "bin"
    run(programs / "nagletrace-exporter", "--version")
    run(programs / "nagletrace-report", "-i", recording, "-o", tmp_path / "page.html")
    run(programs / "nagletrace-flame", "-i", recording, "--output", "svg", "-o", tmp_path / "flame.svg")
