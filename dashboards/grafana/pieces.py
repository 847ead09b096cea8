# SPDX-License-Identifier: GPL-2.0
"""What the dashboards are made of: selectors, queries, the kinds of panels, variables.

Needs grafana-foundation-sdk==0.0.21. What the SDK leaves out (refId, ids) is set at the end, by `complete()`. Colors
are names of Grafana's palette, which has each for the dark and for the light theme.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

warnings.simplefilter("ignore", DeprecationWarning)  # the classic schema is what provisioning reads everywhere

from grafana_foundation_sdk.builders import common as build  # noqa: E402
from grafana_foundation_sdk.builders import dashboard, heatmap, prometheus, stat, table, text, timeseries  # noqa: E402
from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: E402
from grafana_foundation_sdk.models import common  # noqa: E402
from grafana_foundation_sdk.models import dashboard as model  # noqa: E402
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode  # noqa: E402
from grafana_foundation_sdk.models.prometheus import PromQueryFormat  # noqa: E402
from grafana_foundation_sdk.models.text import TextMode  # noqa: E402

#: A Prometheus of one cluster has no label `cluster`, and `.*` takes that too.
SELECTOR = 'cluster=~"$cluster", job=~"$job", instance=~"$instance"'
BY_PROCESS = f'{SELECTOR}, comm=~"$comm"'
DATASOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
#: Of all panels but the numbers at the top, so that no row has a hole.
HEIGHT = 10
#: Of nagletrace_dropped_records_total: what leaves a count too low. The others leave out a name, a call stack, what
#: --max-late-acks keeps from a stream, or what is rare beside the writes; else NagletraceDroppedRecords fires.
DROPPED = 'where!~"stack|owners|late_ack_limit|recursion"'
#: Of nagletrace_holds_total: what can be a stall.
CAN_STALL = "nagle|cork|msg_more|cwnd|sndbuf|linger|handshake"

#: Units of what is counted per second: Grafana's own for it, cps, reads "c/s".
STALLS, HOLDS, ACKS, WRITES, RECORDS = (f"count:{what}/s" for what in ("stalls", "holds", "ACKs", "writes", "records"))
#: How high an axis of zeros alone is, but for time: it would go to 100, which is 10000 % of a share.
AXIS = {"percentunit": 0.1, "short": 1, **dict.fromkeys((STALLS, HOLDS, ACKS, WRITES, RECORDS), 1)}

Row = tuple[str, list[Any]]


# ---- queries ----


def rate(metric: str, by: str = "", selector: str = SELECTOR) -> str:
    """A counter's increase per second, summed up by these labels."""
    return f"sum{f' by ({by}) ' if by else ''}(rate({metric}{{{selector}}}[$__rate_interval]))"


def rate_that_occurs(metric: str, by: str, selector: str = SELECTOR) -> str:
    """rate(), without what did not rise within the range shown. Its end is asked for once, not for each point."""
    rose = f"sum by ({by}) (increase({metric}{{{selector}}}[$__range] @ end())) > 0"
    return f"{rate(metric, by, selector)} and on ({by}) {rose}"


def stalls_by(labels: str) -> str:
    """Stalls a second; the cause has its reason beside it: of a label without a value Grafana shows the name."""
    stalls = f"rate(nagletrace_stalls_total{{{BY_PROCESS}}}[$__rate_interval])"
    joined = f'label_join({stalls}, "cause", " ", "cause", "reason")'
    return f'sum by ({labels}) (label_replace({joined}, "cause", "$1", "cause", "(.*?) ?"))'


def by_cgroup(metric: str) -> str:
    """By host and cgroup; of a container's path, which no legend has room for, the id as container runtimes shorten
    it."""
    short = '"cgroup", "container $1", "cgroup", ".*?(\\\\w{12})\\\\w{52}(?:\\\\.scope)?"'
    return f"sum by (instance, cgroup) (label_replace(rate({metric}{{{BY_PROCESS}}}[$__rate_interval]), {short}))"


def query(expr: str, legend: str = "", instant: bool = False) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(expr).legend_format(legend).datasource(DATASOURCE)
    return made.instant() if instant else made.range()


def quantile(q: float) -> prometheus.Dataquery:
    """Exemplars of an exporter with --metrics.exemplars are dots: each is a stall, with its connection."""
    return query(f"histogram_quantile({q}, {rate('nagletrace_stall_seconds_bucket', 'le', BY_PROCESS)})",
                 f"p{q * 100:.0f}").exemplar(True)


# ---- panels ----


def lines(title: str, description: str, unit: str, *queries: prometheus.Dataquery, span: int = 12,
          stacked: bool = False) -> timeseries.Panel:
    """A name has its colour in all panels. Only what adds up is filled."""
    panel = (timeseries.Panel().title(title).description(description).unit(unit).datasource(DATASOURCE)
             .height(HEIGHT).span(span).min(0).line_width(1).fill_opacity(30 if stacked else 0)
             .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
             .show_points(common.VisibilityMode.NEVER)
             .legend(build.VizLegendOptions().show_legend(True).display_mode(common.LegendDisplayMode.LIST)
                     .placement(common.LegendPlacement.BOTTOM))
             .tooltip(build.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
                      .sort(common.SortOrder.DESCENDING)))
    if unit in AXIS:
        panel = panel.axis_soft_max(AXIS[unit])
    if stacked:
        panel = panel.stacking(build.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    for one in queries:
        panel = panel.with_target(one)
    return panel


def thresholds(*steps: tuple[str, float | None]) -> dashboard.ThresholdsConfig:
    return (dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE)
            .steps([model.Threshold(color=color, value=value) for color, value in steps]))


def number(title: str, description: str, unit: str, expr: str, *wrong_from: tuple[str, float], span: int = 6,
           instant: bool = False, name: str = "") -> stat.Panel:
    """wrong_from: colors, each from a value on; a number that is never wrong by itself has none. instant: what looks
    back over the whole range is asked once, not for each point of it. name: the legend, shown beside the value."""
    panel = (stat.Panel().title(title).description(description).unit(unit).datasource(DATASOURCE).height(5).span(span)
             .thresholds(thresholds(("green", None) if wrong_from else ("text", None), *wrong_from))
             .graph_mode(common.BigValueGraphMode.NONE if instant else common.BigValueGraphMode.AREA)
             .reduce_options(build.ReduceDataOptions().calcs(["lastNotNull"])).no_value("nobody" if name else "0")
             .with_target(query(expr, name, instant=instant)))
    return panel.text_mode(common.BigValueTextMode.VALUE_AND_NAME) if name else panel


def marks(panel: timeseries.Panel) -> timeseries.Panel:
    """Lines across at the two timers that stalls end with. One long stall leaves them apart, and off the floor."""
    return (panel.color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
            .thresholds(thresholds(("transparent", None), ("orange", 0.04), ("red", 0.2)))
            .scale_distribution(build.ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(10))
            .min(0.001).axis_soft_max(1)
            .thresholds_style(build.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)))


def heat_map() -> heatmap.Panel:
    return (heatmap.Panel().title("How long stalls last")
            .description("Stalls by duration. Those that a delayed-ACK timer ended lie in the row up to 45 ms, those "
                         "of a forgotten cork in the row up to 250 ms; the panel beside it has both as lines.")
            .unit("s").datasource(DATASOURCE).height(HEIGHT).span(12).calculate(False)
            .color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(32))
            .y_axis(heatmap.YAxisConfig().unit("s"))
            .cell_values(heatmap.CellValues().unit("short")).filter_values(heatmap.FilterValueRange().le(1e-9))
            .show_legend().exemplars_color("purple")
            .with_target(query(f"sum by (le) (increase(nagletrace_stall_seconds_bucket{{{BY_PROCESS}}}"
                               "[$__rate_interval]))", "{{le}}").format(PromQueryFormat.HEATMAP)))


#: One column of a table: its name, its unit, its query. "" is the unit of the panel.
Column = tuple[str, str, str]
#: The labels of a row, in the order of their columns: who first, then where. The numbers come after them.
LABELS = ("namespace", "pod", "container", "comm", "side", "cause", "reason", "instance", "cluster", "job")


def rows(title: str, description: str, columns: list[Column], span: int = 12,
         link: tuple[str, str, str] | None = None) -> table.Panel:
    """A row for each set of labels that a column's query answers; link: a label, whither it leads, and how."""
    [(first, unit, _), *_] = columns
    panel = (table.Panel().title(title).description(description).unit(unit).datasource(DATASOURCE).height(HEIGHT)
             .span(span).min_width(100).sort_by([build.TableSortByFieldState().display_name(first).desc(True)]))
    for (name, its_unit, expr), letter in zip(columns, "ABCDEFGH"):
        settings = [model.DynamicConfigValue(id_val="displayName", value=name)]
        if its_unit != unit:
            settings.append(model.DynamicConfigValue(id_val="unit", value=its_unit))
        panel = (panel.with_target(query(expr, instant=True).format(PromQueryFormat.TABLE))
                 .override_by_name("Value" if len(columns) == 1 else f"Value #{letter}", settings))
    if len(columns) > 1:
        panel = panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    panel = panel.with_transformation(model.DataTransformerConfig(id_val="organize", options={
        "excludeByName": {"Time": True}, "indexByName": {label: place for place, label in enumerate(LABELS)}}))
    if link:
        label, title, url = link
        panel = panel.override_by_name(label, [model.DynamicConfigValue(
            id_val="links", value=[{"title": title, "url": url, "targetBlank": False}])])
    return panel


def words(title: str, description: str, content: str) -> text.Panel:
    return (text.Panel().title(title).description(description).mode(TextMode.MARKDOWN).content(content)
            .height(HEIGHT).span(12))


def link_to(uid: str, **fields: str) -> str:
    """The address of a dashboard for a row of a table: these variables have the values of the row's labels, and what
    is chosen for all hosts stays."""
    chosen = "".join(f"&var-{name}=${{__data.fields.{field}:percentencode}}" for name, field in fields.items())
    kept = "".join(f"&${{{name}:queryparam}}" for name in ("datasource", "cluster", "job"))
    return f"/d/{uid}?${{__url_time_range}}{kept}{chosen}"


# ---- panels that more than one dashboard has ----


#: The sum comes first: what the exporters' own pods are called must not be taken for it.
BY_POD = (f"{rate('nagletrace_stall_excess_seconds_total', 'comm, container_id', BY_PROCESS)} * on (container_id) "
          "group_left (namespace, pod, container) container_id:kube_pod_container:names")


#: What stands where nothing is known of pods.
NO_PODS = "no stall in a pod, or no --by-cgroup and no kube-state-metrics"


def by_pod() -> timeseries.Panel:
    return lines("Lost time by pod", "In Kubernetes, where the daemons run with --by-cgroup and this Prometheus "
                 "scrapes kube-state-metrics too (recording.yml has the names of containers).", "percentunit",
                 query(BY_POD, "{{namespace}}/{{pod}} {{container}}: {{comm}}"), stacked=True).no_value(NO_PODS)


def by_evidence() -> timeseries.Panel:
    return lines("Stalls per second by evidence", "seen: both ends are on the host, or one shows it all, as of a cork. "
                 "inferred: one end is, and nothing else explains the wait.", STALLS,
                 query(rate("nagletrace_stalls_total", "evidence, side", BY_PROCESS), "{{evidence}}, {{side}}"))


def by_reason(title: str, description: str, unit: str, metric: str) -> timeseries.Panel:
    """Those that occur; what can be a stall stands first."""
    return lines(title, description, unit, *(
        query(rate_that_occurs(metric, "reason", f'{SELECTOR}, reason{is_one}"{CAN_STALL}"'), "{{reason}}" + note)
        for is_one, note in (("=~", ""), ("!~", " (no stall)"))))


def holds() -> timeseries.Panel:
    return by_reason("Holds per second by reason", "Times that an unsent tail waited. Those that cannot be stalls say "
                     "so.", HOLDS, "nagletrace_holds_total")


def delayed_acks() -> timeseries.Panel:
    return lines("Delayed ACKs per second", "Those that their timer sent: somebody may have waited for them.", ACKS,
                 query(rate("nagletrace_delayed_acks_total", "cluster, job, instance"), "{{instance}}"), stacked=True)


def state() -> list[timeseries.Panel]:
    """Whether the daemons saw all that they should: what makes the panels above too low."""
    unseen = rate("nagletrace_unseen_delayed_acks_total", "cluster, job, instance")
    timers = rate("nagletrace_delayed_acks_total", "cluster, job, instance", f'{SELECTOR}, release="timer"')
    return [
        lines("Daemons that answer", "0: nobody watches that host.", "short",
              query(f"nagletrace_up{{{SELECTOR}}}", "{{instance}}")),
        lines("Records dropped per second by where", "Each record that finds no room is counted.", RECORDS,
              query(rate("nagletrace_dropped_records_total", "where"), "{{where}}")),
        lines("Hooks in use, missing and detached", "Which family of hooks each daemon uses, how many of them its "
              "kernel lacks, and how many it detached for --max-overhead.", "short",
              *(query(f"nagletrace_{kind}_hooks{{{SELECTOR}}} * on (cluster, job, instance) group_left (hooks) "
                      f"nagletrace_hooks_info{{{SELECTOR}}}", f"{{{{instance}}}} {{{{hooks}}}}: {kind}")
                for kind in ("missing", "detached"))),
        lines("Delayed-ACK timers that no hook saw", "As a share of those that the kernel counts. Stalls that such a "
              "timer ended are inferred, or missing.", "percentunit",
              query(f"{unseen} / ({unseen} + {timers} > 0)", "{{instance}}")),
    ]


# ---- dashboards ----


def variable(name: str, label: str, metric: str, selector: str, one: bool = False) -> dashboard.QueryVariable:
    """one: a single value is chosen, the first at the beginning; a link from another dashboard may bring all."""
    expr = f"label_values({metric}{selector}, {name})"
    made = (dashboard.QueryVariable(name).label(label).datasource(DATASOURCE).query(expr).definition(expr)
            .include_all(True).all_value(".*" if name != "job" else ".+").multi(not one)
            .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(model.VariableSort.ALPHABETICAL_ASC))
    return made if one else made.current(model.VariableOption(selected=True, text="All", value="$__all"))


COMM = ("comm", "Process", "nagletrace_stalls_total", f"{{{SELECTOR}}}")


def make(uid: str, title: str, description: str, rows_of: list[Row], *variables: Any) -> Any:
    made = (dashboard.Dashboard(title).uid(uid).tags(["nagletrace", "tcp"]).readonly().description(description)
            .time("now-1h", "now").refresh("30s").timezone("browser")
            .tooltip(model.DashboardCursorSync.CROSSHAIR)
            .link(dashboard.DashboardLink("nagletrace").type(model.DashboardLinkType.DASHBOARDS).tags(["nagletrace"])
                  .tooltip("The other dashboards, with what is chosen here").include_vars(True).keep_time(True))
            .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
            .with_variable(variable("cluster", "Cluster", "nagletrace_up", ""))
            .with_variable(variable("job", "Job", "nagletrace_up", '{cluster=~"$cluster"}'))
            .with_variable(variable("instance", "Instance", "nagletrace_up", '{cluster=~"$cluster", job=~"$job"}')))
    for one in variables:
        made = made.with_variable(one)
    for row, panels in rows_of:
        made = made.with_row(dashboard.Row(row))
        for panel in panels:
            made = made.with_panel(panel)
    return complete(json.loads(json.dumps(made.build(), cls=JSONEncoder)))


def complete(made: Any) -> Any:
    """What the SDK leaves out: ids of panels, refIds of queries, the revision of the schema. The last row, of the
    tracer itself, is closed until somebody opens it."""
    made["schemaVersion"] = 39
    for link in made["links"]:
        link.pop("placement", None)  # the SDK knows a menu only, where nobody finds them
    made["id"] = None
    for number_of, panel in enumerate(made["panels"], 1):
        panel["id"] = number_of
        for letter, target in zip("ABCDEFGH", panel.get("targets", [])):
            target["refId"] = letter
    *_, last = (place for place, panel in enumerate(made["panels"]) if panel["type"] == "row")
    made["panels"][last].update(collapsed=True, panels=made["panels"][last + 1:])
    del made["panels"][last + 1:]
    return made
