# SPDX-License-Identifier: GPL-2.0
"""The dashboards are what their script makes, and keep the rules that dashboard-linter checks.

The linter itself is a Go program that cannot be had here; its rules are these, by its names. That each query returns
data is shown in test_end_to_end.py, that each metric and label exists in exporters/tests/test_words.py.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from stack import ROOT
from tools import tools

GRAFANA = ROOT / "dashboards" / "grafana"


def opened(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Its rows and panels, with those of its closed row."""
    return [one for panel in dashboard["panels"] for one in (panel, *panel.get("panels", []))]


DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(GRAFANA.glob("*.json"))}
PANELS = [(name, panel) for name, made in DASHBOARDS.items() for panel in opened(made) if panel["type"] != "row"]
#: What is drawn of queries; a text has none.
DRAWN = [(name, panel) for name, panel in PANELS if panel["type"] != "text"]
TARGETS = [(f"{name}: {panel['title']} {target['refId']}", panel, target)
           for name, panel in DRAWN for target in panel["targets"]]
#: Has no answer while nothing is wrong.
ONLY_TROUBLE = "Hosts to look after"
#: What Prometheus adds to each series that it scrapes; `cluster` where somebody says so.
OF_PROMETHEUS = {"cluster", "job", "instance"}
METRIC = r"(?:[a-z_]+:)?nagletrace_[\w:]+"

each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS.keys())
each_panel = pytest.mark.parametrize("panel", [pytest.param(panel, id=f"{name}: {panel['title']}")
                                               for name, panel in DRAWN])
each_target = pytest.mark.parametrize(("panel", "target"), [pytest.param(panel, target, id=where)
                                                            for where, panel, target in TARGETS])


def variables(dashboard: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}


def test_the_committed_ones_are_what_the_script_makes(tmp_path: Path) -> None:
    done = subprocess.run([tools() / "python3", "-B", GRAFANA / "generate.py", tmp_path], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in GRAFANA.glob("*.json")}, "run `make dashboard`"


@pytest.mark.quick
@each_dashboard
def test_template_datasource_job_and_instance_rules(dashboard: dict[str, Any]) -> None:
    found = variables(dashboard)
    source = found["datasource"]
    assert (source["type"], source["query"], source["label"]) == ("datasource", "prometheus", "Data source")
    for name in ("cluster", "job", "instance"):
        variable = found[name]
        assert variable["type"] == "query" and variable["multi"] and variable["includeAll"]
        assert variable["allValue"] in (".+", ".*") and variable["datasource"]["uid"] == "${datasource}"
        assert variable["label"] == name.capitalize()
    assert found["job"]["allValue"] == ".+", "all jobs of the server would be too many"
    assert found["cluster"]["allValue"] == ".*", "most have no such label"


@pytest.mark.quick
@each_dashboard
def test_template_on_time_change_reload_rule(dashboard: dict[str, Any]) -> None:
    assert all(v["refresh"] == 2 for v in variables(dashboard).values() if v["type"] == "query")


@pytest.mark.quick
@each_dashboard
def test_uneditable_dashboard_rule(dashboard: dict[str, Any]) -> None:
    assert dashboard["editable"] is False


@pytest.mark.quick
@each_panel
def test_panel_title_description_units_datasource_and_no_targets_rules(panel: dict[str, Any]) -> None:
    assert panel["title"] and panel["description"].endswith(".") and panel["targets"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert all(target["refId"] for target in panel["targets"])


@pytest.mark.quick
def test_a_text_names_variables_and_files_that_exist() -> None:
    texts = [(name, panel) for name, panel in PANELS if panel["type"] == "text"]
    assert texts
    for name, panel in texts:
        content = panel["options"]["content"]
        assert panel["title"] and panel["description"].endswith(".")
        assert set(re.findall(r"\$\{?(\w+)", content)) <= variables(DASHBOARDS[name]).keys()
        files = re.findall(r"dashboards/[\w./-]+", content)
        assert files and all((ROOT / file).is_file() for file in files)


@pytest.mark.quick
@each_dashboard
def test_ids_are_unique_and_panels_do_not_overlap(dashboard: dict[str, Any]) -> None:
    panels = opened(dashboard)
    assert len({panel["id"] for panel in panels}) == len(panels) and 0 not in {panel["id"] for panel in panels}
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


@pytest.mark.quick
@each_dashboard
def test_rows_have_no_holes(dashboard: dict[str, Any]) -> None:
    """All panels that begin at one height end at one, and fill the width; the next begin there."""
    rows: dict[int, list[dict[str, int]]] = {}
    for panel in opened(dashboard):
        rows.setdefault(panel["gridPos"]["y"], []).append(panel["gridPos"])
    end = 0
    for y, row in sorted(rows.items()):
        assert y == end, f"a hole above {y}"
        assert len({at["h"] for at in row}) == 1, f"panels of different heights at {y}"
        assert sum(at["w"] for at in row) == 24, f"a hole at {y}"
        end = y + row[0]["h"]


@pytest.mark.quick
@each_dashboard
def test_the_last_row_is_the_tracer_itself(dashboard: dict[str, Any]) -> None:
    """Who reads a number has to see whether it may be too low; the others need not pass by it."""
    *_, last = dashboard["panels"]
    assert last["title"].startswith("The tracer") and last["collapsed"]
    assert not any(panel.get("collapsed") for panel in dashboard["panels"][:-1])
    shown = " ".join(target["expr"] for panel in last["panels"] for target in panel["targets"])
    for metric in ("nagletrace_up", "nagletrace_dropped_records", "nagletrace_missing_hooks",
                   "nagletrace_detached_hooks", "nagletrace_unseen_delayed_acks"):
        assert metric in shown


# ---- what a person reads ----


def unit_of(panel: dict[str, Any], target: dict[str, Any]) -> str:
    """The column's own in a table, else the panel's."""
    name = f"Value #{target['refId']}" if len(panel["targets"]) > 1 else "Value"
    own = {option["id"]: option["value"] for override in panel["fieldConfig"]["overrides"]
           if override["matcher"]["options"] == name for option in override["properties"]}
    unit: str = own.get("unit", panel["fieldConfig"]["defaults"]["unit"])
    return unit


def unit_for(expr: str) -> str:
    """By what the query makes of its metric. The first that fits is right: what is counted has no other unit."""
    counted = r"\brate\(nagletrace_{0}_total|nagletrace_{0}:rate5m"
    for pattern, unit in ((r"^count\b", "short"), (r"^histogram_quantile\(", "s"),
                          (r" / \(|:ratio_", "percentunit"),  # a share
                          (r"\brate\(nagletrace_\w+_seconds_total|_seconds:rate5m", "percentunit"),
                          (r"\bincrease\(nagletrace_\w+_seconds_total", "s"),
                          (r"^sum\(increase\(", "short"),
                          *((counted.format(metric), f"count:{what}/s") for metric, what in (
                              (r"(?:contradicted_|folded_)?stalls", "stalls"), ("holds", "holds"),
                              ("delayed_acks", "ACKs"), ("writes", "writes"), ("dropped_records", "records"))),
                          (r"_bytes\{", "bytes"), (r"_seconds\{", "s")):
        if re.search(pattern, expr):
            return unit
    return "short"


@pytest.mark.quick
@each_target
def test_a_unit_is_what_the_query_makes(panel: dict[str, Any], target: dict[str, Any]) -> None:
    """Seconds in a second are a share: as seconds, 140 connections that wait would read "2.33 mins"."""
    if panel["type"] == "heatmap":
        assert panel["options"]["yAxis"]["unit"] == "s" and panel["options"]["cellValues"]["unit"] == "short"
    else:
        assert unit_of(panel, target) == unit_for(target["expr"])
    assert "per second" not in panel["title"] or unit_of(panel, target).endswith("s/s")


@pytest.mark.quick
def test_lines_have_the_width_and_a_name_has_one_colour() -> None:
    """Only what adds up is filled: lines of many hosts would be one block."""
    for _, panel in PANELS:
        if panel["type"] == "timeseries":
            legend, drawn = panel["options"]["legend"], panel["fieldConfig"]["defaults"]
            assert (legend["showLegend"], legend["displayMode"], legend["placement"]) == (True, "list", "bottom")
            assert drawn["color"] == {"mode": "palette-classic" if "thresholds" in drawn else "palette-classic-by-name"}
            stacked = drawn["custom"].get("stacking", {}).get("mode") == "normal"
            assert (drawn["custom"]["fillOpacity"] > 0) == stacked, panel["title"]


@pytest.mark.quick
def test_a_number_is_green_only_where_it_can_be_red() -> None:
    numbers = [panel for _, panel in PANELS if panel["type"] == "stat"]
    ladders = {tuple(step["color"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"])
               for panel in numbers}
    assert ladders == {("text",), ("green", "red"), ("green", "orange", "red")}
    for panel in numbers:
        assert (panel["options"]["graphMode"] == "area") == (not panel["targets"][0].get("instant"))


@pytest.mark.quick
def test_who_is_answered_on_the_first_screen() -> None:
    """By a table that ends within 700 pixels, which a small screen has below Grafana's own bars."""
    for name, title in (("nagletrace", "Top offenders"), ("nagletrace-connection", "Where, and why")):
        [at] = [panel["gridPos"] for of, panel in PANELS if (of, panel["title"]) == (name, title)]
        assert 38 * (at["y"] + at["h"]) <= 700


def kept(expr: str) -> set[str]:
    """The labels of what a query answers: those that its outermost sum keeps, and those that a join adds."""
    joined = {label for found in re.findall(r"group_left \(([^)]*)\)", expr) for label in found.split(", ")}
    outermost = re.match(r"(?:topk\(\d+, )?\w+ by \(([^)]*)\)", expr)
    if outermost:
        return joined | set(outermost[1].split(", "))
    aggregated = re.match(r"(sum|max|count|quantile|histogram_quantile)\(", expr)
    return joined if aggregated else joined | OF_PROMETHEUS


@pytest.mark.quick
@each_panel
def test_a_legend_tells_apart_what_the_query_keeps_and_names_nothing_else(panel: dict[str, Any]) -> None:
    if panel["type"] != "timeseries":
        return
    for target in panel["targets"]:
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert named <= kept(target["expr"]), f"{target['legendFormat']}: {target['expr']}"
        # a container's id has its name beside it
        missing = kept(target["expr"]) - named - {"cluster", "job", "container_id"}
        assert not missing, f"{target['legendFormat']} does not tell {missing} apart"
    legends = [target["legendFormat"] for target in panel["targets"]]
    assert all(legends) and len(set(legends)) == len(legends)


@pytest.mark.quick
@each_panel
def test_a_table_names_its_columns_and_has_the_worst_first(panel: dict[str, Any]) -> None:
    if panel["type"] != "table":
        return
    overrides = {override["matcher"]["options"]: {option["id"]: option["value"] for option in override["properties"]}
                 for override in panel["fieldConfig"]["overrides"]}
    names = [overrides[f"Value #{target['refId']}" if len(panel["targets"]) > 1 else "Value"]["displayName"]
             for target in panel["targets"]]
    assert panel["options"]["sortBy"] == [{"displayName": names[0], "desc": True}]
    assert all(target["instant"] and target["format"] == "table" for target in panel["targets"])
    # columns of one row are put together by its labels
    assert len({frozenset(kept(target["expr"])) for target in panel["targets"]}) == 1
    *merge, organize = panel["transformations"]
    assert [one["id"] for one in merge] == ["merge"] * (len(names) > 1)
    # Grafana's versions hide a column by settings of different names, and all by this
    assert organize["id"] == "organize" and organize["options"]["excludeByName"] == {"Time": True}
    assert kept(panel["targets"][0]["expr"]) <= organize["options"]["indexByName"].keys()


def values(of: Any, key: str) -> Iterator[Any]:
    if isinstance(of, dict):
        yield from (value for name, value in of.items() if name == key)
        of = list(of.values())
    for inner in of if isinstance(of, list) else ():
        yield from values(inner, key)


@pytest.mark.quick
@each_dashboard
def test_colors_are_names_that_each_theme_has_its_own_for(dashboard: dict[str, Any]) -> None:
    used = {color for color in values(dashboard, "color") if isinstance(color, str)}
    assert used and used <= {"green", "orange", "purple", "red", "text", "transparent"}


@pytest.mark.quick
def test_links_lead_to_dashboards_and_choose_what_a_row_says() -> None:
    for name, dashboard in DASHBOARDS.items():
        assert dashboard["uid"] == name and dashboard["tags"] == ["nagletrace", "tcp"]
        [link] = dashboard["links"]
        assert (link["type"], link["tags"]) == ("dashboards", ["nagletrace"])
        assert link["includeVars"] and link["keepTime"]
    found = [(panel, url) for _, panel in DRAWN for url in values(panel["fieldConfig"], "url")]
    assert {panel["title"] for panel, _ in found} == {panel["title"] for _, panel in DRAWN if panel["type"] == "table"}
    for panel, url in found:
        [uid] = re.findall(r"^/d/([\w-]+)\?", url)
        chosen = re.findall(r"&var-(\w+)=\$\{__data\.fields\.(\w+):percentencode\}", url)
        assert chosen and {variable for variable, _ in chosen} <= variables(DASHBOARDS[uid]).keys()
        assert {field for _, field in chosen} <= kept(panel["targets"][0]["expr"])


# ---- queries ----


@pytest.mark.quick
@each_target
def test_target_rules(panel: dict[str, Any], target: dict[str, Any]) -> None:
    """target-job, target-instance, target-rate-interval, target-counter-agg."""
    expr = target["expr"]
    selectors = re.findall(rf"({METRIC})\{{([^}}]*)\}}", expr)
    assert selectors and len(re.findall(METRIC, expr)) == len(selectors), "a metric without a selector"
    for metric, selector in selectors:
        assert {f'{name}=~"${name}"' for name in OF_PROMETHEUS} <= set(selector.split(", "))
        if re.search(r"_(total|bucket|sum|count)$", metric):
            assert re.search(rf"\b(rate|increase)\({metric}\{{[^}}]*\}}\[\$__(rate_interval|range)\]\)", expr), metric
    assert not re.findall(r"\[(?!\$__rate_interval|\$__range\])", expr)
    # for each point of a graph, the whole range would be read again
    assert "$__range" not in expr.replace("[$__range] @ end()", "") or target["instant"]


@pytest.mark.quick
def test_the_40_and_200_ms_lines_are_there() -> None:
    for name in ("nagletrace", "nagletrace-connection"):
        drawn = [panel["fieldConfig"]["defaults"] for of, panel in PANELS
                 if (of, panel["type"]) == (name, "timeseries")]
        [durations] = [one for one in drawn if "thresholds" in one]
        assert [step["value"] for step in durations["thresholds"]["steps"]] == [None, 0.04, 0.2]
        # one stall of 2 s would press them to the floor
        assert durations["custom"]["scaleDistribution"] == {"type": "log", "log": 10} and durations["min"] > 0
        assert [panel["type"] for panel in DASHBOARDS[name]["panels"]].count("heatmap") == 1


@pytest.mark.quick
def test_a_connections_story_is_of_one_process() -> None:
    found = variables(DASHBOARDS["nagletrace-connection"])
    assert not found["comm"]["multi"] and "current" not in found["comm"]
    exemplars = [target for where, _, target in TARGETS
                 if where.startswith("nagletrace-connection") and target.get("exemplar")]
    assert exemplars and all("nagletrace_stall_seconds_bucket" in target["expr"] for target in exemplars)


def filled_in(expr: str, **chosen: str) -> str:
    """As Grafana would send it with everything chosen."""
    for name, value in {"cluster": ".*", "job": ".+", "instance": ".*", "comm": ".*", **chosen}.items():
        expr = expr.replace(f"${name}", value)
    assert not re.search(r"\$(?!1\b)", expr), expr
    return expr


#: Of two clusters that call their hosts alike. In c1: `a` is blind in part, the daemon of `b` is gone, `c` with its
#: exporter. In c2: `a` lacks hooks and drops records, `b` is well, in another pod since a roll-out; what c1's `a` drops
#: leaves no count too low.
A_FLEET = {
    'nagletrace_up{cluster="c1", job="j", instance="a"}': "1x10",
    'nagletrace_up{cluster="c1", job="j", instance="b"}': "1x5 0x4",
    'nagletrace_up{cluster="c1", job="j", instance="c"}': "1x5 stale",
    'nagletrace_up{cluster="c2", job="j", instance="a"}': "1x10",
    'nagletrace_up{cluster="c2", job="j", instance="b", pod="old"}': "1x5 stale",
    'nagletrace_up{cluster="c2", job="j", instance="b", pod="new"}': "_x6 1x4",
    'nagletrace_missing_hooks{cluster="c1", job="j", instance="a"}': "0x10",
    'nagletrace_missing_hooks{cluster="c2", job="j", instance="a"}': "2x10",
    'nagletrace_missing_hooks{cluster="c2", job="j", instance="b"}': "0x10",
    'nagletrace_detached_hooks{cluster="c1", job="j", instance="a"}': "5x10",
    'nagletrace_detached_hooks{cluster="c2", job="j", instance="a"}': "0x10",
    'nagletrace_detached_hooks{cluster="c2", job="j", instance="b"}': "0x10",
    'instance:nagletrace_dropped_records:rate5m{cluster="c1", job="j", instance="a", where="stack"}': "3x10",
    'instance:nagletrace_dropped_records:rate5m{cluster="c2", job="j", instance="a", where="ring_full"}': "0.5x10",
    'instance:nagletrace_dropped_records:rate5m{cluster="c2", job="j", instance="b", where="ring_full"}': "0x10",
    'instance:nagletrace_unseen_delayed_acks:ratio_rate5m{cluster="c1", job="j", instance="a"}': "0.2x10",
    'instance:nagletrace_unseen_delayed_acks:ratio_rate5m{cluster="c2", job="j", instance="b"}': "0.01x10",
    'instance:nagletrace_tracer_cpu_seconds:rate5m{cluster="c1", job="j", instance="a"}': "0.01x10",
    'instance:nagletrace_tracer_cpu_seconds:rate5m{cluster="c1", job="j", instance="b"}': "0.01x5",
    'instance:nagletrace_tracer_cpu_seconds:rate5m{cluster="c2", job="j", instance="a"}': "0.01x10",
    # of the first, looks in standby estimate a part
    'instance:nagletrace_excess_seconds:rate5m{cluster="c1", job="j", instance="a"}': "0.85x10",
    'instance:nagletrace_excess_seconds:rate5m{cluster="c2", job="j", instance="a"}': "1x10",
    'instance:nagletrace_excess_seconds:rate5m{cluster="c2", job="j", instance="b"}': "0x2 0.5x2 0x5",
    'instance_comm:nagletrace_stall_excess_seconds:rate5m{cluster="c1", job="j", instance="a", comm="java"}': "0.5x10",
    'instance_comm:nagletrace_stall_excess_seconds:rate5m{cluster="c1", job="j", instance="a", comm="php"}': "0.25x10",
    # which lived for three minutes of the ten
    'instance_comm:nagletrace_stall_excess_seconds:rate5m{cluster="c2", job="j", instance="b", comm="cron"}':
        "_x3 0.5x2 stale",
    'instance_comm:nagletrace_stall_excess_seconds:rate5m{cluster="c2", job="j", instance="a", comm="java"}': "1x10",
    'instance_comm:nagletrace_stall_excess_seconds:rate5m{cluster="c2", job="j", instance="b", comm="java"}': "0x10",
}


def host(cluster: str, instance: str) -> str:
    return f'{{cluster="{cluster}", job="j", instance="{instance}"}}'


def of(cluster: str, comm: str) -> str:
    return f'{{cluster="{cluster}", comm="{comm}"}}'


#: By panel, what each of its queries answers.
ANSWERS: dict[str, list[dict[str, float]]] = {
    "Lost time now": [{"{}": 1.85}],
    "Hosts that lose time": [{"{}": 2}],
    "Hosts watched": [{"{}": 3}],
    "Hosts not watched": [{"{}": 2}],
    "Hosts that lack hooks": [{"{}": 2}],
    "Hosts that drop records": [{"{}": 1}],
    "Lost time by cluster": [{'{cluster="c1"}': 0.85, '{cluster="c2"}': 1}],
    "Lost time: one host or all": [{"{}": 0.425}, {"{}": 0.9550000000000001}, {"{}": 1}],
    "Hosts that lose most": [{host("c1", "a"): 0.85, host("c2", "a"): 1, host("c2", "b"): 0.15}],
    "Processes that lose most, and on how many hosts": [
        {of("c1", "java"): 0.5, of("c1", "php"): 0.25, of("c2", "cron"): 0.15, of("c2", "java"): 1},
        {of("c1", "java"): 1, of("c1", "php"): 1, of("c2", "cron"): 1, of("c2", "java"): 1}],
    ONLY_TROUBLE: [{host("c1", "b"): 1, host("c1", "c"): 1}, {host("c2", "a"): 2}, {host("c1", "a"): 5},
                   {host("c2", "a"): 0.5}, {host("c1", "a"): 0.2}],
    "Hosts watched by cluster": [{'{cluster="c1"}': 1, '{cluster="c2"}': 2}],
}


def check(name: str, series: dict[str, str], answers_by_title: dict[str, list[dict[str, float]]], path: Path) -> None:
    """Has promtool compare what the queries of that dashboard's panels answer of these series."""
    asked = {panel["title"]: panel["targets"] for of, panel in DRAWN if of == name}
    tests = []
    for title, answers in answers_by_title.items():
        for target, answer in zip(asked[title], answers, strict=True):
            tests.append({"expr": filled_in(target["expr"], __range="10m", __rate_interval="5m"), "eval_time": "10m15s",
                          "exp_samples": [{"labels": labels, "value": value} for labels, value in answer.items()]})
    path.write_text(yaml.safe_dump({"tests": [{
        "interval": "1m", "promql_expr_test": tests,
        "input_series": [{"series": one, "values": samples} for one, samples in series.items()]}]}))
    done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.quick
def test_the_fleet_says_which_hosts_lose_time_and_which_are_not_watched(tmp_path: Path) -> None:
    check("nagletrace-fleet", A_FLEET, ANSWERS, tmp_path / "fleet.yml")


@pytest.mark.quick
def test_a_reason_that_does_not_occur_has_no_line(tmp_path: Path) -> None:
    series = {f'nagletrace_holds_total{{job="j", instance="a", reason="{reason}"}}': samples for reason, samples in (
        ("nagle", "0+6x10"), ("sndbuf", "3x10"), ("tso_defer", "0+12x10"), ("autocork", "0x10"))}
    answers: list[dict[str, float]] = [{'{reason="nagle"}': 0.1}, {'{reason="tso_defer"}': 0.2}]
    check("nagletrace", series, {"Holds per second by reason": answers}, tmp_path / "holds.yml")


@pytest.mark.quick
def test_provisioning_names_a_prometheus_and_a_place_for_the_dashboard() -> None:
    [provider] = yaml.safe_load((GRAFANA / "provisioning/dashboards/nagletrace.yml").read_text())["providers"]
    assert provider["type"] == "file" and provider["options"]["path"].startswith("/")
    [source] = yaml.safe_load((GRAFANA / "provisioning/datasources/nagletrace.yml").read_text())["datasources"]
    assert source["type"] == "prometheus" and source["isDefault"]
    scraped = [yaml.safe_load(path.read_text())["global"]["scrape_interval"]
               for path in (ROOT / "dashboards" / "prometheus").glob("prometheus*.example.yml")]
    assert source["jsonData"]["timeInterval"] == max(scraped) == "30s" and len(scraped) == 2
    [dot] = source["jsonData"]["exemplarTraceIdDestinations"]
    assert dot["name"] in ("local", "remote"), "labels of the exporter's exemplars"
    assert re.findall(r"^/d/([\w-]+)\?", dot["url"]) == ["nagletrace-connection"]
    assert re.findall(r"[?&]var-(\w+)=\$\$\{([\w.]+):percentencode\}", dot["url"]) == [
        (name, f"__data.fields.{name}") for name in ("job", "instance", "comm")]
    assert {"job", "instance", "comm"} <= variables(DASHBOARDS["nagletrace-connection"]).keys()
