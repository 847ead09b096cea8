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
OPENSHIFT = "security.openshift.io/"


@pytest.mark.parametrize("version", ["1.25", "1.34"])
@pytest.mark.parametrize("name", ["", *VALUES])
def test_kubernetes_takes_the_objects(helm: Helm, tmp_path: Path, name: str, version: str) -> None:
    own = [one for one in named(helm.template(*chosen(name))).values()
           if not one["apiVersion"].startswith((OPERATOR, OPENSHIFT))]
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
        kind, schema = defined(path)
        found[kind] = strict(schema["properties"]["spec"])
    return found


def defined(path: Path) -> tuple[str, Any]:
    """The kind that this definition is of, and its schema."""
    spec = yaml.safe_load(path.read_text())["spec"]
    [version] = [one for one in spec["versions"] if one["storage"]]
    return spec["names"]["kind"], version["schema"]["openAPIV3Schema"]


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


# ---- OpenShift ----


def test_openshift_takes_the_constraints_and_they_allow_what_the_pod_asks_for_and_no_more(helm: Helm) -> None:
    try:
        module = go_modules.module("github.com/openshift/api", "v0.0.0-20251015095338-264e80a2b6e7")
    except Unavailable as reason:
        pytest.skip(str(reason))
    kind, schema = defined(module / "security" / "v1" / "zz_generated.crd-manifests"
                           / "0000_03_config-operator_01_securitycontextconstraints.crd.yaml")
    objects = named(helm.template(*chosen("everything")))
    constraints, pod = objects[kind, "nagletrace"], objects["DaemonSet", "nagletrace"]["spec"]["template"]["spec"]
    jsonschema.Draft7Validator(strict(schema)).validate(constraints)
    [user] = constraints["users"]
    assert user == f"system:serviceaccount:tracing:{pod['serviceAccountName']}"
    assert ("ServiceAccount", pod["serviceAccountName"]) in objects
    allowed = {key for key, value in constraints.items() if key.startswith("allow") and value is True}
    assert allowed == {"allowHostPID"} and pod["hostPID"]
    assert set(constraints["volumes"]) == {key for volume in pod["volumes"] for key in volume} - {"name"}
    asked = [one["securityContext"] for one in pod["containers"]]
    assert set(constraints["allowedCapabilities"]) == {name for one in asked
                                                       for name in one["capabilities"].get("add", [])}
    assert all(one["capabilities"]["drop"] == constraints["requiredDropCapabilities"] for one in asked)
    assert constraints["readOnlyRootFilesystem"] and all(one["readOnlyRootFilesystem"] for one in asked)
    assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}, "seLinuxOptions": {"type": "spc_t"}}
    assert constraints["seccompProfiles"] == ["runtime/default"]


def test_constraints_for_nobody_are_refused(helm: Helm) -> None:
    told = helm.refuses(*chosen(""), "--set", "securityContextConstraints.create=true")
    assert "securityContextConstraints.create: " in told and "serviceAccount.create=true" in told


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
