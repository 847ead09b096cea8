#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Writes the Grafana dashboard: generate.py > nagletrace.json.

Needs grafana-foundation-sdk==0.0.21. A panel is a call in `panels()`; a query's selector is `SELECTOR`, and counters
are looked at under rate or increase only. What the SDK leaves out (refId, ids) is set at the end.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

warnings.simplefilter("ignore", DeprecationWarning)  # the classic schema is what provisioning reads everywhere

from grafana_foundation_sdk.builders import common as build  # noqa: E402
from grafana_foundation_sdk.builders import dashboard, heatmap, prometheus, stat, table, timeseries  # noqa: E402
from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: E402
from grafana_foundation_sdk.models import common  # noqa: E402
from grafana_foundation_sdk.models import dashboard as model  # noqa: E402
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode  # noqa: E402
from grafana_foundation_sdk.models.prometheus import PromQueryFormat  # noqa: E402

SELECTOR = 'job=~"$job", instance=~"$instance"'
BY_PROCESS = f'{SELECTOR}, comm=~"$comm"'
DATASOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
#: Of all panels but the numbers at the top, so that no row has a hole; with room for ten rows of a legend.
HEIGHT = 10


def rate(metric: str, by: str = "", selector: str = SELECTOR) -> str:
    """A counter's increase per second, summed up by these labels."""
    return f"sum{f' by ({by}) ' if by else ''}(rate({metric}{{{selector}}}[$__rate_interval]))"


#: The sum comes first: what the exporters' own pods are called must not be taken for it.
BY_POD = (f"{rate('nagletrace_stall_excess_seconds_total', 'comm, container_id', BY_PROCESS)} * on (container_id) "
          "group_left (namespace, pod, container) container_id:kube_pod_container:names")


def query(expr: str, legend: str = "", instant: bool = False) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(expr).legend_format(legend).datasource(DATASOURCE)
    return made.instant().format(PromQueryFormat.TABLE) if instant else made.range()


def lines(title: str, description: str, unit: str, *queries: prometheus.Dataquery, span: int = 12,
          stacked: bool = False) -> timeseries.Panel:
    panel = (timeseries.Panel().title(title).description(description).unit(unit).datasource(DATASOURCE)
             .height(HEIGHT).span(span).min(0).line_width(1).fill_opacity(30 if stacked else 8)
             .show_points(common.VisibilityMode.NEVER)
             .legend(build.VizLegendOptions().show_legend(True).display_mode(common.LegendDisplayMode.TABLE)
                     .placement(common.LegendPlacement.RIGHT).calcs(["mean", "max"]).sort_by("Mean").sort_desc(True))
             .tooltip(build.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
                      .sort(common.SortOrder.DESCENDING)))
    if stacked:
        panel = panel.stacking(build.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    for one in queries:
        panel = panel.with_target(one)
    return panel


def number(title: str, description: str, unit: str, expr: str, red_above: float | None = None) -> stat.Panel:
    steps = [model.Threshold(color="green", value=None)]
    if red_above is not None:
        steps.append(model.Threshold(color="red", value=red_above))
    return (stat.Panel().title(title).description(description).unit(unit).datasource(DATASOURCE).height(4).span(6)
            .thresholds(dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps))
            .reduce_options(build.ReduceDataOptions().calcs(["lastNotNull"])).no_value("0").with_target(query(expr)))


def marks(panel: timeseries.Panel) -> timeseries.Panel:
    """Lines across at the two timers that stalls end with."""
    steps = [model.Threshold(color="transparent", value=None), model.Threshold(color="orange", value=0.04),
             model.Threshold(color="red", value=0.2)]
    return (panel.thresholds(dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps))
            .thresholds_style(build.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)))


def overview() -> list[Any]:
    return [
        number("Stalls per second", "All hosts and processes chosen: time lost for nothing, whichever the cause.",
               "cps", rate("nagletrace_stalls_total", selector=BY_PROCESS) + " or vector(0)"),
        number("Lost time", "What stalls lasted beyond the smallest round trip, as a share of the time that passed. "
               "Several connections can lose time at once, so it may exceed 100 %.", "percentunit",
               rate("nagletrace_stall_excess_seconds_total", selector=BY_PROCESS) + " or vector(0)", 0.25),
        number("Hosts watched", "Daemons that answer.", "short", f"sum(nagletrace_up{{{SELECTOR}}})"),
        number("Records dropped per second", "Stalls by process are too low while this is not zero; totals stay right.",
               "cps", rate("nagletrace_dropped_records_total", selector=f'{SELECTOR}, where!~"stack|owners"'), 0.001),
    ]


def heat_map() -> heatmap.Panel:
    return (heatmap.Panel().title("How long stalls last")
            .description("Stalls by duration. Those that a delayed-ACK timer ended lie in the row up to 45 ms, those "
                         "of a forgotten cork in the row up to 250 ms; the panel beside it has both as lines.")
            .unit("s").datasource(DATASOURCE).height(HEIGHT).span(12).calculate(False)
            .color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(32))
            .y_axis(heatmap.YAxisConfig().unit("s"))
            .cell_values(heatmap.CellValues().unit("short")).filter_values(heatmap.FilterValueRange().le(1e-9))
            .show_legend()
            .with_target(query(f"sum by (le) (increase(nagletrace_stall_seconds_bucket{{{BY_PROCESS}}}"
                               "[$__rate_interval]))", "{{le}}").format(PromQueryFormat.HEATMAP)))


def quantile(q: float) -> prometheus.Dataquery:
    """Exemplars of an exporter with --metrics.exemplars are dots: each is a stall, with its connection."""
    return query(f"histogram_quantile({q}, {rate('nagletrace_stall_seconds_bucket', 'le', BY_PROCESS)})",
                 f"p{q * 100:.0f}").exemplar(True)


def offenders() -> table.Panel:
    excess = (f"topk(20, sum by (instance, comm, cause) "
              f"(increase(nagletrace_stall_excess_seconds_total{{{BY_PROCESS}}}[$__range])) > 0)")
    hidden = [model.DynamicConfigValue(id_val="custom.hidden", value=True)]
    return (table.Panel().title("Top offenders")
            .description("Who lost most time in the range shown. `nagletrace report` on the host names the connection, "
                         "the write and the fix.")
            .unit("s").datasource(DATASOURCE).height(HEIGHT).span(12)
            .with_target(query(excess, instant=True))
            .override_by_name("Time", hidden)
            .override_by_name("Value", [model.DynamicConfigValue(id_val="displayName", value="excess")]))


def panels() -> list[tuple[str, list[Any]]]:
    """By row."""
    return [
        ("Overview", overview()),
        ("Stalls", [
            lines("Stalls per second by process", "Each a time that a connection lost because one end held a segment "
                  "and the other the ACK (nagle_delayed_ack), or since a cork was not ended (cork_ceiling).", "cps",
                  query(rate("nagletrace_stalls_total", "comm, cause", BY_PROCESS), "{{comm}} {{cause}}"),
                  stacked=True),
            lines("Lost time by process", "What a fix would save, as a share of the time that passed. Where the "
                  "fleet's stalls are in ClickHouse, lost-time.sql of dashboards/clickhouse/queries names both hosts, "
                  "processes and pods.", "percentunit",
                  query(rate("nagletrace_stall_excess_seconds_total", "comm", BY_PROCESS), "{{comm}}"), stacked=True),
            heat_map(),
            marks(lines("Durations, with the timers at 40 and 200 ms", "Half, nine of ten and 99 of 100 stalls are "
                        "shorter. Dashed: the delayed-ACK timer, and the smallest retransmission timeout, which ends "
                        "corks. Dots, where exporters run with --metrics.exemplars, are single stalls: each names its "
                        "process, its connection and the bytes that waited.", "s",
                        quantile(0.5), quantile(0.9), quantile(0.99))),
            offenders(),
            lines("Lost time by pod", "In Kubernetes, where the daemons run with --by-cgroup and this Prometheus "
                  "scrapes kube-state-metrics too (recording.yml has the names of containers).", "percentunit",
                  query(BY_POD, "{{namespace}}/{{pod}} {{container}}: {{comm}}"), stacked=True),
            lines("Stalls per second by evidence", "seen: both ends are on the host. inferred: one end is, and nothing "
                  "else explains the wait.", "cps",
                  query(rate("nagletrace_stalls_total", "evidence, side", BY_PROCESS), "{{evidence}}, {{side}}"),
                  span=24),
        ]),
        ("What holds segments and ACKs", [
            lines("Holds per second by reason", "Times that an unsent tail waited. Only those of nagle, cork and "
                  "msg_more can be stalls.", "cps",
                  query(rate("nagletrace_holds_total", "reason"), "{{reason}}")),
            lines("Held time by reason", "As a share of the time that passed; several connections at once add up.",
                  "percentunit",
                  query(rate("nagletrace_hold_seconds_total", "reason"), "{{reason}}")),
            lines("Delayed ACKs per second by release", "piggyback is what delaying is for; timer is what a sender may "
                  "have waited for.", "cps",
                  query(rate("nagletrace_delayed_acks_total", "release"), "{{release}}"),
                  stacked=True),
            lines("Writes per second", "To the sockets watched: with these the holds can be compared.", "cps",
                  query(rate("nagletrace_writes_total", "instance"), "{{instance}}")),
        ]),
        ("The tracer itself", [
            lines("CPU of the tracer", "Of the daemon, and of its programs in the kernel where that keeps statistics "
                  "(kernel.bpf_stats_enabled). 1 is a whole CPU.", "percentunit",
                  query(rate("nagletrace_tracer_cpu_seconds_total", "instance, part"), "{{instance}} {{part}}")),
            lines("Memory of the daemon, at most", "The most that it ever had.", "bytes",
                  query(f"nagletrace_tracer_resident_memory_max_bytes{{{SELECTOR}}}", "{{instance}}")),
            lines("Records dropped per second", "By where; each record that finds no room is counted.", "cps",
                  query(rate("nagletrace_dropped_records_total", "instance, where"), "{{instance}} {{where}}")),
            lines("Daemons that answer", "0: nobody watches that host.", "short",
                  query(f"nagletrace_up{{{SELECTOR}}}", "{{instance}}")),
            lines("Time a scrape takes", "Until the daemon answered.", "s",
                  query(f"nagletrace_scrape_duration_seconds{{{SELECTOR}}}", "{{instance}}")),
            lines("Hooks in use, and missing", "Which family of hooks each daemon uses, and how many of them its "
                  "kernel lacks.", "short",
                  query(f"nagletrace_missing_hooks{{{SELECTOR}}} * on (job, instance) group_left (hooks) "
                        f"nagletrace_hooks_info{{{SELECTOR}}}", "{{instance}} {{hooks}}: missing")),
        ]),
    ]


def variable(name: str, label: str, metric: str, selector: str) -> dashboard.QueryVariable:
    text = f"label_values({metric}{selector}, {name})"
    return (dashboard.QueryVariable(name).label(label).datasource(DATASOURCE).query(text).definition(text).multi(True)
            .include_all(True).all_value(".*" if name != "job" else ".+")
            .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(model.VariableSort.ALPHABETICAL_ASC)
            .current(model.VariableOption(selected=True, text="All", value="$__all")))


def make() -> Any:
    made = (dashboard.Dashboard("nagletrace").uid("nagletrace").tags(["nagletrace", "tcp"]).readonly()
            .description("Time that TCP connections lose to Nagle's algorithm, cork and delayed ACKs.")
            .time("now-1h", "now").refresh("30s").timezone("browser")
            .tooltip(model.DashboardCursorSync.CROSSHAIR)
            .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
            .with_variable(variable("job", "Job", "nagletrace_up", ""))
            .with_variable(variable("instance", "Instance", "nagletrace_up", '{job=~"$job"}'))
            .with_variable(variable("comm", "Process", "nagletrace_stalls_total", f"{{{SELECTOR}}}")))
    for title, row in panels():
        made = made.with_row(dashboard.Row(title))
        for panel in row:
            made = made.with_panel(panel)
    return json.loads(json.dumps(made.build(), cls=JSONEncoder))


def complete(made: Any) -> Any:
    """What the SDK leaves out: ids of panels, refIds of queries, the revision of the schema."""
    made["schemaVersion"] = 39
    made["id"] = None
    for number_of, panel in enumerate(made["panels"], 1):
        panel["id"] = number_of
        for letter, target in zip("ABCDEFGH", panel.get("targets", [])):
            target["refId"] = letter
    return made


if __name__ == "__main__":
    json.dump(complete(make()), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
