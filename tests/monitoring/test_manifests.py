# SPDX-License-Identifier: GPL-2.0
"""The Kubernetes manifest and the images: valid, and with no more privilege than is explained."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml
from stack import ROOT
from tools import tools

MANIFEST = ROOT / "packaging" / "kubernetes" / "nagletrace.yaml"
CONTAINERFILE = ROOT / "packaging" / "container" / "Containerfile"


def pod() -> dict[str, Any]:
    [daemonset] = [d for d in yaml.safe_load_all(MANIFEST.read_text()) if d["kind"] == "DaemonSet"]
    spec: dict[str, Any] = daemonset["spec"]["template"]["spec"]
    return spec


def containers() -> dict[str, dict[str, Any]]:
    return {container["name"]: container for container in pod()["containers"]}


def test_it_is_what_kubernetes_takes() -> None:
    for version in ("1.25", "1.34"):
        done = subprocess.run([tools() / "kubernetes-validate", "--strict", "-k", version, MANIFEST],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.quick
def test_the_daemon_has_two_capabilities_each_explained_and_the_exporter_none() -> None:
    daemon, exporter = containers()["daemon"]["securityContext"], containers()["exporter"]["securityContext"]
    assert daemon["capabilities"] == {"drop": ["ALL"], "add": ["BPF", "PERFMON"]}
    assert exporter["capabilities"] == {"drop": ["ALL"]} and exporter["runAsNonRoot"]
    for capability in ("BPF", "PERFMON"):
        assert re.search(rf"^ +- {capability} # \w+", MANIFEST.read_text(), re.MULTILINE)
    for context in (daemon, exporter):
        assert context["readOnlyRootFilesystem"] and context["allowPrivilegeEscalation"] is False
        assert not context.get("privileged")
    # the socket is of the group that the exporter runs as
    assert daemon["runAsGroup"] == exporter["runAsGroup"]
    assert not any("hostPath" in volume for volume in pod()["volumes"]) and not pod().get("hostNetwork")


@pytest.mark.quick
def test_the_unit_asks_for_the_same_two() -> None:
    unit = (ROOT / "packaging" / "systemd" / "nagletrace.service").read_text()
    for setting in ("AmbientCapabilities", "CapabilityBoundingSet"):
        assert re.findall(rf"^{setting}=(.*)$", unit, re.MULTILINE) == ["CAP_BPF CAP_PERFMON"]
    exporter = (ROOT / "packaging" / "systemd" / "nagletrace-exporter.service").read_text()
    assert re.findall(r"^CapabilityBoundingSet=(.*)$", exporter, re.MULTILINE) == [""]
    assert "\nDynamicUser=yes\n" in exporter and "AmbientCapabilities" not in exporter


def settings(unit: str) -> dict[str, str]:
    text = (ROOT / "packaging" / "systemd" / f"{unit}.service").read_text()
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


@pytest.mark.quick
def test_the_units_and_the_daemonset_have_the_limits_that_the_design_has() -> None:
    """tests/live/test_limits.py and exporters/tests/test_hostile_clients.py measure that both live within."""
    table = re.findall(r"^\| `(nagletrace[a-z-]*)` \| (\w+) \| ([^|]+) \| (\w+) \| (\w+) \|$",
                       (ROOT / "docs" / "design.md").read_text(), re.MULTILINE)
    assert {(unit, limit) for unit, limit, *_ in table} == {
        (unit, limit) for unit in ("nagletrace", "nagletrace-exporter")
        for limit in ("MemoryMax", "TasksMax", "LimitNOFILE")}
    for unit, limit, _, written, manifest in table:
        assert settings(unit)[limit] == written, f"{unit}: {limit}"
        resources = containers()["exporter" if "exporter" in unit else "daemon"]["resources"]
        if limit == "MemoryMax":
            assert resources["limits"]["memory"] == manifest and resources["requests"]["memory"]


@pytest.mark.quick
def test_each_image_is_of_one_debian_package_and_only_the_daemon_is_user_0() -> None:
    """tests/images builds them, and compares."""
    stages = dict(re.findall(r"^FROM \S+ AS (\w+)\n(.*?)(?=^FROM|\Z)", CONTAINERFILE.read_text(), re.M | re.S))
    for stage, package in (("daemon", "nagletrace"), ("exporter", "nagletrace-exporters")):
        assert set(re.findall(r"/(nagletrace\S*)_\*\.deb", stages[stage])) == {package}
        assert f"\nPackage: {package}\n" in (ROOT / "packaging" / "debian" / "control").read_text()
    exporter = containers()["exporter"]["securityContext"]
    assert re.findall(r"^USER (.*)", stages["exporter"], re.MULTILINE) == [
        f"{exporter['runAsUser']}:{exporter['runAsGroup']}"]
    assert "USER" not in stages["daemon"] and containers()["daemon"]["securityContext"]["runAsUser"] == 0
