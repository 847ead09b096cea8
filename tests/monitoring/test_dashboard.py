# SPDX-License-Identifier: GPL-2.0
"""The dashboard is what its script makes, and keeps the rules that dashboard-linter checks.

The linter itself is a Go program that cannot be had here; its rules are these, by its names. That each query returns
data is shown in test_end_to_end.py.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
import yaml
from stack import ROOT
from tools import tools

GRAFANA = ROOT / "dashboards" / "grafana"
DASHBOARD = json.loads((GRAFANA / "nagletrace.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [(panel["title"], target) for panel in PANELS for target in panel["targets"]]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}


def exprs() -> list[Any]:
    return [pytest.param(target["expr"], id=f"{title} {target['refId']}") for title, target in TARGETS]


def test_the_committed_one_is_what_the_script_makes() -> None:
    done = subprocess.run([tools() / "python3", GRAFANA / "generate.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (GRAFANA / "nagletrace.json").read_text(), \
        "run `make dashboard`"


@pytest.mark.quick
def test_template_datasource_job_and_instance_rules() -> None:
    source = VARIABLES["datasource"]
    assert (source["type"], source["query"], source["label"]) == ("datasource", "prometheus", "Data source")
    for name in ("job", "instance"):
        variable = VARIABLES[name]
        assert variable["type"] == "query" and variable["multi"] and variable["includeAll"]
        assert variable["allValue"] in (".+", ".*") and variable["datasource"]["uid"] == "${datasource}"
        assert variable["label"] == name.capitalize()
    assert VARIABLES["job"]["allValue"] == ".+", "all jobs of the server would be too many"


@pytest.mark.quick
def test_template_on_time_change_reload_rule() -> None:
    assert all(v["refresh"] == 2 for v in VARIABLES.values() if v["type"] == "query")


@pytest.mark.quick
def test_uneditable_dashboard_rule() -> None:
    assert DASHBOARD["editable"] is False


@pytest.mark.quick
@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panel_title_description_units_datasource_and_no_targets_rules(panel: dict[str, Any]) -> None:
    assert panel["title"] and panel["description"].endswith(".") and panel["targets"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert all(target["refId"] for target in panel["targets"])


@pytest.mark.quick
def test_ids_are_unique_and_panels_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) and 0 not in {panel["id"] for panel in panels}
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


@pytest.mark.quick
def test_rows_have_no_holes() -> None:
    """All panels that begin at one height end at one, and fill the width."""
    rows: dict[int, list[dict[str, int]]] = {}
    for panel in DASHBOARD["panels"]:
        rows.setdefault(panel["gridPos"]["y"], []).append(panel["gridPos"])
    for y, row in rows.items():
        assert len({at["h"] for at in row}) == 1, f"panels of different heights at {y}"
        assert sum(at["w"] for at in row) == 24, f"a hole at {y}"


@pytest.mark.quick
@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_seconds_in_a_second_are_a_share(panel: dict[str, Any]) -> None:
    """As seconds, 140 connections that wait would read "2.33 mins"."""
    shares = {bool(re.search(r"\brate\(nagletrace_\w+_seconds_total", target["expr"])) for target in panel["targets"]}
    assert shares == {panel["fieldConfig"]["defaults"]["unit"] == "percentunit"}
    assert shares == {False} or "per second" not in panel["title"]


@pytest.mark.quick
def test_a_legend_has_room_for_its_rows_and_those_that_matter_come_first() -> None:
    """A row takes 24 pixels, and a unit of height 38; ten reasons and a heading have to fit."""
    for panel in PANELS:
        if panel["type"] == "timeseries":
            legend = panel["options"]["legend"]
            assert legend["showLegend"] and legend["placement"] == "right"
            assert (legend["displayMode"], legend["sortBy"], legend["sortDesc"]) == ("table", "Mean", True)
            assert legend["calcs"][0] == "mean" and panel["gridPos"]["w"] >= 12
            assert 38 * panel["gridPos"]["h"] - 60 >= 24 * 11, panel["title"]


@pytest.mark.quick
@pytest.mark.parametrize("expr", exprs())
def test_target_rules(expr: str) -> None:
    """target-job, target-instance, target-rate-interval, target-counter-agg."""
    selectors = re.findall(r"(nagletrace_\w+)\{([^}]*)\}", expr)
    assert selectors and len(re.findall(r"nagletrace_\w+", expr)) == len(selectors), "a metric without a selector"
    for metric, selector in selectors:
        assert 'job=~"$job"' in selector and 'instance=~"$instance"' in selector
        if re.search(r"_(total|bucket|sum|count)$", metric):
            assert re.search(rf"\b(rate|increase)\({metric}\{{[^}}]*\}}\[\$__(rate_interval|range)\]\)", expr), metric
    assert not re.findall(r"\[(?!\$__rate_interval|\$__range\])", expr)


@pytest.mark.quick
def test_the_40_and_200_ms_lines_are_there() -> None:
    drawn = [step["value"] for panel in PANELS for step in
             panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])]
    assert {0.04, 0.2} <= set(drawn)
    assert [panel["type"] for panel in PANELS].count("heatmap") == 1


@pytest.mark.quick
def test_provisioning_names_a_prometheus_and_a_place_for_the_dashboard() -> None:
    [provider] = yaml.safe_load((GRAFANA / "provisioning/dashboards/nagletrace.yml").read_text())["providers"]
    assert provider["type"] == "file" and provider["options"]["path"].startswith("/")
    [source] = yaml.safe_load((GRAFANA / "provisioning/datasources/nagletrace.yml").read_text())["datasources"]
    assert source["type"] == "prometheus" and source["isDefault"]
