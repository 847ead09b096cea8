# SPDX-License-Identifier: GPL-2.0
"""One word for one thing: metrics, labels, and what dashboards, alerts, runbooks and the manual say of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from fake_daemon import FakeDaemon, series, snapshot, standby
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from nagletrace_exporters.exporter.collector import NagletraceCollector
from nagletrace_exporters.exporter.otlp.carrier import Carrier
from nagletrace_exporters.exporter.otlp.config import OtlpConfigFile, endpoint
from nagletrace_exporters.exporter.web.clients import Refusals

ROOT = Path(__file__).parent.parent.parent
MANUAL = ROOT / "docs" / "man" / "nagletrace-exporter.1"
MONITORING = sorted([*ROOT.glob("dashboards/prometheus/**/*.yml"), *ROOT.glob("dashboards/grafana/*.*"),
                     *ROOT.glob("docs/runbooks/*.md"), ROOT / "docs" / "fleets.md", MANUAL])
#: Words that names of metrics and labels leave to another: writes, excess, dropped, detached, release, reason.
BANNED = {"send", "sends", "sent", "lost", "losing", "cost", "let", "go", "end", "why", "owed", "withheld", "put"}
#: The same in sentences: delayed, pending or late; dropped; detached; release.
BANNED_PHRASES = re.compile(
    r"\bput(s|ting)?\b[^.]{0,30}\boff\b|\bput-off\b|\bowe[sd]\b|\bwith(he|ho)ld|\blet(s|ting)? go\b|"
    r"\blost records?\b|\brecords (are |were )?lost\b|\bloses? records?\b|\bhow (it|they) ended\b", re.IGNORECASE)
#: A recording rule, which has the level of its sums before its name.
RULE = re.compile(r"\b(?:instance|instance_comm):(nagletrace_\w+):(?:ratio_)?rate5m\b")
METRIC = re.compile(r"\bnagletrace_[a-z0-9_]+\b")
RECORDING = ROOT / "dashboards" / "prometheus" / "recording.yml"
#: What Prometheus adds to each series that it scrapes; `cluster` where somebody says so.
OF_PROMETHEUS = {"cluster", "job", "instance"}
SELECTORS = re.compile(r"([a-z_]+:[\w:]+|\bnagletrace_\w+)\{([^}]*)\}")
LISTS = re.compile(r"\b(?:by|on|group_left) \(([^)]*)\)")


def exposition(tmp_path: Path) -> str:
    """What an exporter shows whose daemon has a value for every metric."""
    answer = snapshot(series("java", [40.2], cgroup="/a"))
    answer.update(unseen=1, filtered=True, kept={"TCP_NODELAY": 1}, unnamed_stacks={"busy": 1},
                  detached_hooks=["tcp_probe"], standby=standby())
    answer["tracer"].update(bpf_cpu_us=1, share_ppm=1)
    registry = CollectorRegistry()
    registry.register(Refusals())
    with FakeDaemon(tmp_path / "s", answer) as daemon:
        registry.register(NagletraceCollector(daemon.path, 5.0))
        registry.register(Carrier(daemon.path, endpoint("http://h"), OtlpConfigFile(None, False), {}, 1, 1))
        return generate_latest(registry).decode()


def labels_by_metric(tmp_path: Path) -> dict[str, set[str]]:
    """All metrics, under the names of samples."""
    return {sample.name: set(sample.labels) for family in text_string_to_metric_families(exposition(tmp_path))
            for sample in family.samples if not sample.name.endswith("_created")}


def test_names_and_labels_have_no_banned_word(tmp_path: Path) -> None:
    found = labels_by_metric(tmp_path)
    assert len(found) > 30
    for name, labels in found.items():
        assert not BANNED & {*name.split("_"), *labels}, name


def test_help_texts_have_no_banned_phrase(tmp_path: Path) -> None:
    with FakeDaemon(tmp_path / "s", snapshot(series("java", [40.2]))) as daemon:
        texts = [family.documentation for family in NagletraceCollector(daemon.path, 5.0).collect()]
    assert len(texts) > 20
    assert not [text for text in texts if BANNED_PHRASES.search(text)]


@pytest.mark.parametrize("path", MONITORING, ids=lambda path: path.name)
def test_readers_of_metrics_use_the_same_words(path: Path, tmp_path: Path) -> None:
    """A query for a metric that no longer exists has no answer, and no error either."""
    text = path.read_text()
    assert not [found[0] for found in BANNED_PHRASES.finditer(text)]
    rules = set(RULE.findall(text))
    assert not [rule for rule in rules if BANNED & set(rule.split("_"))]
    metrics = set(labels_by_metric(tmp_path))
    families = {re.sub(r"_(total|bucket)$", "", name) for name in metrics}
    assert sorted(set(METRIC.findall(text)) - metrics - families - rules) == []
    assert not re.findall(r"nagletrace_delayed_acks_total\{[^}]*\b(?:end|why)=", text)


def recorded_labels() -> dict[str, set[str]]:
    """The labels that a recording rule's sums keep and that its joins add."""
    rules = [rule for group in yaml.safe_load(RECORDING.read_text())["groups"] for rule in group["rules"]]
    return {rule["record"]: {label for found in LISTS.findall(rule["expr"]) for label in found.split(", ")}
            for rule in rules}


@pytest.mark.parametrize("path", sorted(ROOT.glob("dashboards/grafana/*.json")), ids=lambda path: path.name)
def test_dashboards_ask_for_labels_that_exist(path: Path, tmp_path: Path) -> None:
    """A selector or a sum by a label that no series has answers something else, and no error either."""
    known = {**labels_by_metric(tmp_path), **recorded_labels()}
    exprs = [target["expr"] for row in json.loads(path.read_text())["panels"]
             for panel in (row, *row.get("panels", [])) for target in panel.get("targets", [])]
    assert len(exprs) > 10
    for expr in exprs:
        available = set(OF_PROMETHEUS)
        for metric, selector in SELECTORS.findall(expr):
            asked = set(re.findall(r"(\w+)[=!]", selector))
            assert metric in known and asked <= known[metric] | OF_PROMETHEUS, f"{metric}: {asked}"
            available |= known[metric]
        for record in re.findall(r"\bcontainer_id:[\w:]+", expr):
            available |= known[record]
        kept = {label for found in LISTS.findall(expr) for label in found.split(", ")}
        assert kept <= available, f"{kept - available}: {expr}"
