# SPDX-License-Identifier: GPL-2.0
"""What others say of the objects of chart and manifest: Kubernetes' schemas, the Prometheus operator's, checkov."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import go_modules
import jsonschema
import pytest
import yaml
from charts import MANIFEST, VALUES, Helm, Object, chosen, named
from debian import Unavailable
from tools import tools

WANTED = Path(__file__).parent / "requirements.txt"
OPERATOR = "monitoring.coreos.com/"


@pytest.mark.parametrize("version", ["1.25", "1.34"])
@pytest.mark.parametrize("name", ["", *VALUES])
def test_kubernetes_takes_the_objects(helm: Helm, tmp_path: Path, name: str, version: str) -> None:
    own = [one for one in named(helm.template(*chosen(name))).values() if not one["apiVersion"].startswith(OPERATOR)]
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(own))
    done = subprocess.run([tools() / "kubernetes-validate", "--strict", "-k", version, tmp_path / "objects.yaml"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# ---- the Prometheus operator ----


def strict(schema: Any) -> Any:
    """As the API server asks with fieldValidation=Strict: a key that the schema does not name is wrong."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    known = {key: strict(value) for key, value in schema.items()}
    if "properties" in known and "additionalProperties" not in known:
        known["additionalProperties"] = False
    return known


def operator_schemas() -> dict[str, Any]:
    """By kind."""
    module = go_modules.module("github.com/prometheus-operator/prometheus-operator", "v0.85.0")
    found = {}
    for name in ("podmonitors", "prometheusrules"):
        path = module / "example" / "prometheus-operator-crd" / f"monitoring.coreos.com_{name}.yaml"
        spec = yaml.safe_load(path.read_text())["spec"]
        [version] = [one for one in spec["versions"] if one["storage"]]
        found[spec["names"]["kind"]] = strict(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    return found


@pytest.mark.parametrize("name", VALUES)
def test_the_prometheus_operator_takes_its_objects(helm: Helm, name: str) -> None:
    try:
        schemas = operator_schemas()
    except Unavailable as reason:
        pytest.skip(str(reason))
    objects = [one for one in named(helm.template(*chosen(name))).values() if one["apiVersion"].startswith(OPERATOR)]
    assert objects
    for one in objects:
        jsonschema.Draft7Validator(schemas[one["kind"]]).validate(one["spec"])


# ---- checkov ----

#: What it finds in all of them, and why it stays.
ALWAYS = {
    "CKV_K8S_17": "hostPID: the kernel tells processes by their number on the node; the report names them",
    "CKV_K8S_23": "the daemon is root: a container's added capabilities reach root only, and root without others may "
                  "nothing more than anybody. The exporter is not",
    "CKV_K8S_25": "BPF and PERFMON load and attach the programs; the manifest explains each on its line",
    "CKV_K8S_40": "the daemon is root, as above; the exporter's user is 65532",
}
#: What values mend, and why the manifest does not.
WITHOUT_VALUES = {
    "CKV_K8S_11": "a limit of CPU would stop the daemon in the middle of what it measures; it has a limit of memory",
    "CKV_K8S_15": "the name of the image is to be replaced by one of your registry; its policy is Kubernetes' default",
    "CKV_K8S_43": "likewise its digest",
    "CKV2_K8S_6": "who scrapes is not known; networkPolicy.enabled lets in whom networkPolicy.from names",
}
KNOWN = {"": ALWAYS | WITHOUT_VALUES, "everything": ALWAYS,
         "fleet": {key: why for key, why in (ALWAYS | WITHOUT_VALUES).items() if key != "CKV2_K8S_6"}}


def checkov(manifest: Path) -> set[str]:
    """What it finds, without its service."""
    try:
        program = tools(WANTED, "helm-tools") / "checkov"
    except subprocess.CalledProcessError as error:
        pytest.skip(f"checkov cannot be had: pip ended with {error.returncode}")
    done = subprocess.run([program, "--file", manifest, "--framework", "kubernetes", "--skip-download", "--output",
                           "json"], capture_output=True, text=True, timeout=300, cwd=manifest.parent)
    told: Object = json.loads(done.stdout)
    assert told["summary"]["passed"] > 50 and not told["summary"]["parsing_errors"], done.stdout
    return {one["check_id"] for one in told["results"]["failed_checks"]}


@pytest.mark.parametrize("name", ["", *VALUES])
def test_checkov_finds_what_is_explained_and_nothing_else(helm: Helm, tmp_path: Path, name: str) -> None:
    """An explanation of what it does not find any more fails too."""
    (tmp_path / "objects.yaml").write_text(helm.template(*chosen(name)))
    assert checkov(tmp_path / "objects.yaml") == KNOWN[name].keys()


def test_checkov_finds_nothing_else_in_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(MANIFEST.read_text())
    assert checkov(tmp_path / "manifest.yaml") == KNOWN[""].keys()
