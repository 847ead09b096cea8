# SPDX-License-Identifier: GPL-2.0
"""What docs/install.md says of the chart: each value with its default, and the commands."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import documents
from charts import CHART, ROOT, Helm, defaults, named

PAGE = ROOT / "docs" / "install.md"
VERSION = (ROOT / "VERSION").read_text().strip()
COMMANDS = [command for command, _ in documents.commands(PAGE) if command.startswith("helm ")]


def test_the_table_has_each_value_with_its_default() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| `(.*?)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert {name: json.loads(value) for name, value, _ in rows} == {
        ".".join(path): value for path, value in defaults().items()}
    assert len(rows) == len(defaults())


def test_the_commands_install_what_the_page_says(helm: Helm, tmp_path: Path) -> None:
    """A cluster is not asked: `helm template` takes what `helm install` does, and what that keeps of values is told it
    again."""
    (tmp_path / "packaging").symlink_to(ROOT / "packaging")
    (tmp_path / "fleet.key").write_text("0" * 32 + "\n")
    told: list[str] = []
    objects = {}
    for command in COMMANDS:
        _, verb, release, chart, *values = shlex.split(command)
        assert (tmp_path / chart).resolve() == CHART and verb == ("upgrade" if told else "install"), command
        assert ("--reuse-values" in values) == bool(told), command
        told += [word for word in values if word != "--reuse-values"]
        done = subprocess.run([helm.program, "template", release, chart, *told], cwd=tmp_path, capture_output=True,
                              text=True, timeout=60)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        objects = named(done.stdout)
    daemon, exporter = objects["DaemonSet", "nagletrace"]["spec"]["template"]["spec"]["containers"]
    assert (daemon["image"], exporter["image"]) == (f"registry.example/nagletrace:{VERSION}",
                                                    f"registry.example/nagletrace-exporter:{VERSION}")
    assert {kind for kind, _ in objects} == {"Namespace", "DaemonSet", "PodMonitor", "PrometheusRule", "ConfigMap",
                                             "Secret", "ServiceAccount", "SecurityContextConstraints"}
    for kind in ("PodMonitor", "PrometheusRule"):
        assert objects[kind, "nagletrace"]["metadata"]["labels"]["release"] == "prometheus"
