# SPDX-License-Identifier: GPL-2.0
"""Recording rules, alerts and their runbooks: what promtool says, and what it does not ask for."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from stack import ROOT, RULES

RUNBOOKS = ROOT / "docs" / "runbooks"


def promtool(*arguments: str) -> str:
    done = subprocess.run(["promtool", *arguments], cwd=RULES, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((RULES / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.mark.quick
def test_promtool_takes_the_rules_and_the_examples(tmp_path: Path) -> None:
    promtool("check", "rules", "recording.yml", "alerts.yml")
    promtool("check", "config", "prometheus.example.yml")
    # Debian's is built without Kubernetes: the rest of that one
    config = yaml.safe_load((RULES / "prometheus.kubernetes.example.yml").read_text())
    del config["scrape_configs"][0]["kubernetes_sd_configs"]
    config["rule_files"] = [str(RULES / name) for name in config["rule_files"]]
    (tmp_path / "config.yml").write_text(yaml.safe_dump(config))
    promtool("check", "config", str(tmp_path / "config.yml"))


@pytest.mark.quick
def test_kubernetes_pods_are_found_by_what_the_manifest_says() -> None:
    config = yaml.safe_load((RULES / "prometheus.kubernetes.example.yml").read_text())
    [job] = config["scrape_configs"]
    wanted = {rule["source_labels"][0]: rule["regex"] for rule in job["relabel_configs"] if "regex" in rule}
    documents = list(yaml.safe_load_all((ROOT / "packaging" / "kubernetes" / "nagletrace.yaml").read_text()))
    template = documents[1]["spec"]["template"]
    ports = {port["name"] for container in template["spec"]["containers"] for port in container.get("ports", [])}
    labels = template["metadata"]["labels"]
    assert wanted["__meta_kubernetes_pod_label_app_kubernetes_io_name"] == labels["app.kubernetes.io/name"]
    assert {wanted["__meta_kubernetes_pod_container_port_name"]} == ports
    assert job["kubernetes_sd_configs"][0]["namespaces"]["names"] == [documents[1]["metadata"]["namespace"]]


@pytest.mark.quick
def test_the_rules_do_what_they_say() -> None:
    assert "SUCCESS" in promtool("test", "rules", "tests/alerts_test.yml")


@pytest.mark.quick
def test_no_selector_takes_a_part_of_a_name() -> None:
    """pint's promql/regexp: one that does chooses what somebody else named."""
    for name in ("recording.yml", "alerts.yml"):
        for selector in re.findall(r"=~\s*\"([^\"]*)\"", (RULES / name).read_text()):
            assert not re.match(r"\.[*+]", selector) and not re.search(r"\.[*+]$", selector), selector


@pytest.mark.quick
def test_pods_have_their_names_of_kube_state_metrics() -> None:
    assert "SUCCESS" in promtool("test", "rules", "tests/kubernetes_test.yml")


@pytest.mark.quick
def test_each_alert_is_tested_firing_and_silent() -> None:
    cases = [case for page in (RULES / "tests").glob("*.yml") for case in yaml.safe_load(page.read_text())["tests"]]
    expected = [(case["alertname"], bool(case.get("exp_alerts")))
                for test in cases for case in test.get("alert_rule_test", [])]
    for alert in alerts():
        assert (alert["alert"], True) in expected and (alert["alert"], False) in expected, alert["alert"]


def of_the_host(alert: dict[str, Any]) -> str:
    """Returns the alert whose page says all of it: an alert of a pod has none of its own."""
    return alert["alert"].replace("NagletracePod", "Nagletrace")


@pytest.mark.quick
@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_each_alert_says_what_a_person_needs(alert: dict[str, Any]) -> None:
    assert re.fullmatch(r"\d+m", alert["for"])
    assert alert["labels"]["severity"] in ("info", "warning", "critical")
    annotations = alert["annotations"]
    assert "{{ $labels.instance }}" in annotations["summary"] and annotations["description"].endswith(".")
    page = RUNBOOKS / annotations["runbook_url"].rsplit("/", 1)[1]
    assert page.read_text().startswith(f"# {of_the_host(alert)}\n") and alert["alert"] in page.read_text()
    for heading in ("## What it means", "## What to look at", "## What to do"):
        assert heading in page.read_text(), f"{page}: {heading}"


@pytest.mark.quick
def test_no_runbook_is_left_over() -> None:
    assert {page.stem for page in RUNBOOKS.glob("*.md")} == {of_the_host(alert) for alert in alerts()}
