# SPDX-License-Identifier: GPL-2.0
"""The chart of packaging/helm, and helm itself, built from its Go module."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import go_modules
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
CHART = ROOT / "packaging" / "helm" / "nagletrace"
MANIFEST = ROOT / "packaging" / "kubernetes" / "nagletrace.yaml"
RULES = ROOT / "dashboards" / "prometheus"
DASHBOARDS = sorted((ROOT / "dashboards" / "grafana").glob("*.json"))
#: The version for which helm renders where it asks no cluster; its makefile sets that of its libraries.
KUBERNETES = {f"helm.sh/helm/v3/pkg/{package}.k8sVersion{part}": number
              for package in ("chartutil", "lint/rules") for part, number in (("Major", "1"), ("Minor", "34"))}
#: The files of values that the tests render besides none.
VALUES = {path.stem: path for path in sorted((Path(__file__).parent / "values").glob("*.yaml"))}
Object = dict[str, Any]


class Helm:
    """Raises Unavailable where it cannot be had."""

    def __init__(self) -> None:
        self.program = go_modules.program("helm.sh/helm/v3", "v3.19.4", "cmd/helm", **KUBERNETES)

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60)

    def template(self, *arguments: str | Path) -> str:
        done = self.run("template", "nagletrace", CHART, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refuses(self, *arguments: str | Path) -> str:
        """What it says."""
        done = self.run("template", "nagletrace", CHART, *arguments)
        assert done.returncode, f"{arguments} renders"
        return done.stderr


def chosen(name: str) -> list[str | Path]:
    """The arguments that choose a file of values; "" chooses none. The release is in a namespace of its own."""
    values: list[str | Path] = ["--values", VALUES[name]] if name else []
    return ["--namespace", "releases", *values]


def named(text: str) -> dict[tuple[str, str], Object]:
    """The objects of a manifest by kind and name."""
    objects = [one for one in yaml.safe_load_all(text) if one]
    found = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    assert len(found) == len(objects)
    return found


def leaves(values: Object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The values by their path; lists and empty maps are values too, and so is what people fill in as a whole."""
    for key, value in values.items():
        here = (*path, key)
        if isinstance(value, dict) and value and key not in ("requests", "limits", "labels"):
            yield from leaves(value, here)
        else:
            yield here, value


def defaults() -> dict[tuple[str, ...], Any]:
    return dict(leaves(yaml.safe_load((CHART / "values.yaml").read_text())))
