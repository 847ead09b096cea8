# SPDX-License-Identifier: GPL-2.0
"""Puts a summary into the words and rows of the report's page; templates/report.html lays them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..records import Connection, Report, Stall
from ..reports import connection_key
from ..units import clock, milliseconds, signed
from .charts import HEIGHT, Row, SliceRow, TimeLine, histogram_rows, slice_rows, time_line
from .durations import Histogram
from .ladder.choose import Chosen
from .ladder.from_events import ladder_of, zero_of
from .ladder.from_record import Ladder
from .ladder.svg import Drawing, draw
from .summary import Group, Summary

#: The most rows of a table; its caption says how many there are.
MAX_ROWS = 50
MAX_ADVICE = 10
MAX_SLOW_HOLDS = 5
#: Places where the kernel side drops a record that it has counted; elsewhere it may not have come to count it.
TOTALS_HAVE = {"ring_full", "ring_share"}


@dataclass(frozen=True)
class StallRow:
    """A row of the table of processes or of connections."""

    name: str
    excess: str
    stalls: int
    p50: str
    p99: str
    longest: str
    causes: str = ""
    side: str = ""
    local: str = ""
    remote: str = ""
    evidence: str = ""
    pattern: str = ""
    ladders: tuple[int, ...] = ()


@dataclass(frozen=True)
class Advice:
    heading: str
    what: str
    why: str
    fix: str


@dataclass(frozen=True)
class LadderPart:
    heading: str
    description: str
    caption: str
    notes: list[str]
    zero: str
    drawing: Drawing
    rows: list[tuple[str, str, str, str]]


@dataclass
class Page:
    title: str = "nagletrace: stalls"
    lead: str = ""
    origin: str = ""
    remarks: list[str] = field(default_factory=list)
    figures: list[tuple[str, str]] = field(default_factory=list)
    histogram: list[Row] = field(default_factory=list)
    histogram_of: str = ""
    time_line: TimeLine | None = None
    time_line_height: int = HEIGHT
    time_line_text: str = ""
    slices: list[SliceRow] = field(default_factory=list)
    processes: list[StallRow] = field(default_factory=list)
    processes_caption: str = ""
    connections: list[StallRow] = field(default_factory=list)
    connections_caption: str = ""
    advice: list[Advice] = field(default_factory=list)
    ladders: list[LadderPart] = field(default_factory=list)
    ladders_text: str = ""
    slow_holds: list[tuple[str, ...]] = field(default_factory=list)
    looked_at: str = ""
    counts: list[tuple[str, str, str, str]] = field(default_factory=list)
    read: list[str] = field(default_factory=list)


def make_page(summary: Summary, chosen: list[Chosen], name: str, remarks: list[str]) -> Page:
    page, report = Page(), summary.report()
    stalls, excess_us, span_us = found(summary, report)
    page.lead = lead(summary, stalls, excess_us, span_us)
    page.origin = origin(summary, name)
    page.remarks = remarks + shortcomings(summary, report)
    page.figures = figures(summary, report, stalls, excess_us, span_us)
    if summary.all.stalls:
        page.ladders = [ladder_part(one) for one in chosen]
        page.ladders_text = (f"{len(page.ladders)} of {plural(summary.all.stalls, 'stall')}: of each kind the one that "
                             "lost most, those with recorded events first. Time runs down, to scale but where shaded.")
        from_stalls(page, summary, chosen)
    elif report:
        from_report(page, summary, report)
    looked_at(page, report)
    return page


def found(summary: Summary, report: Report | None) -> tuple[int, int, int | None]:
    """Returns stalls, lost time and span: of the recorded stalls if there are any, else of the tracer's report."""
    span_us = report.span_us if report else None
    if summary.all.stalls and summary.first_us is not None and summary.last_us is not None:
        return summary.all.stalls, summary.all.excess_us, span_us or max(1, summary.last_us - summary.first_us)
    if report:
        return report.stalls, report.excess_us, span_us
    return 0, 0, span_us


def plural(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def lead(summary: Summary, stalls: int, excess_us: int, span_us: int | None) -> str:
    within = f" in {milliseconds(span_us)}" if span_us else ""
    if not stalls:
        return f"No stall{within}."
    worst = summary.by_process.top(1)
    of_one = (f", {milliseconds(worst[0].excess_us)} of it by {worst[0].process.name()}"
              if worst and len(summary.by_process.groups) > 1 else f" by {worst[0].process.name()}" if worst else "")
    return f"{plural(stalls, 'stall')}{within} lost {milliseconds(excess_us)}{of_one}."


def origin(summary: Summary, name: str) -> str:
    parts = [f"From {name}"]
    if summary.starts:
        start = summary.starts[-1]
        parts.append(f"nagletrace {start.version}, kernel {start.kernel}, {start.hooks} hooks")
    if summary.first_us is not None and summary.last_us is not None:
        parts.append(f"stalls from {clock(summary.first_us, True)} to {clock(summary.last_us, True)} UTC")
    return "; ".join(parts) + "."


def shortcomings(summary: Summary, report: Report | None) -> list[str]:
    """Returns what the reader has to know before believing the figures."""
    said = []
    if summary.traces > 1:
        said.append(f"The recording holds {summary.traces} traces; the figures are of all of them together.")
    if summary.starts and summary.starts[-1].missing_hooks:
        said.append(f"Hooks that this kernel lacks: {', '.join(summary.starts[-1].missing_hooks)}.")
    if not summary.traces and not summary.snapshot and (summary.all.stalls or report):
        said.append("The recording does not begin with the start of a trace.")
    dropped = dropped_records(report) if report else {}
    if dropped:
        said.append("Records were dropped: " + ", ".join(f"{word} {count:,}" for word, count in dropped.items())
                    + (". The totals count them, the tables do not." if dropped.keys() <= TOTALS_HAVE else
                       ". The tables lack them, and totals may be too low as well."))
    if report and summary.all.stalls and report.stalls > summary.all.stalls:
        said.append(f"The tracer reported {plural(report.stalls, 'stall')}; {summary.all.stalls:,} of them are in the "
                    "recording.")
    if report and report.stalls and not summary.all.stalls:
        said.append("There are no single stalls here, only the tracer's sums: no histogram of them, no time line, no "
                    "ladders. A trace without --interval records them" + (
                        ", and so does --duration with --socket." if summary.snapshot else "."))
    return said


def dropped_records(report: Report) -> dict[str, int]:
    """By place, those that a table lacks: not what only a name, a stack or a join over two hosts lacks."""
    return {word: count for word, count in report.dropped.items()
            if count and word not in ("stack", "owners", "late_ack_limit")}


def figures(summary: Summary, report: Report | None, stalls: int, excess_us: int, span_us: int | None
            ) -> list[tuple[str, str]]:
    rows = [("Stalls", f"{stalls:,}"), ("Lost time", milliseconds(excess_us))]
    if span_us:
        rows.append(("Traced", milliseconds(span_us)))
    if summary.all.stalls:
        durations = summary.all.durations
        rows += [("Median (p50)", milliseconds(durations.percentile(50))),
                 ("p99", milliseconds(durations.percentile(99))), ("Longest", milliseconds(durations.longest))]
        rows.append(("Evidence", words(summary.all.evidence)))
    if report:
        rows.append(("Records dropped", f"{sum(dropped_records(report).values()):,}"))
    return rows


def words(counted: Mapping[str, int]) -> str:
    """Writes counts by word, the most frequent first."""
    return ", ".join(f"{word} {count:,}" for word, count in sorted(counted.items(), key=lambda item: -item[1]) if count)


def from_stalls(page: Page, summary: Summary, chosen: list[Chosen]) -> None:
    page.histogram = histogram_rows(summary.histogram)
    points = summary.points.chosen()
    first, last = min(p.time_us for p in points), max(p.time_us for p in points)
    page.time_line = time_line(points, first, last)
    durations = [point.duration_us for point in points]
    page.time_line_text = (
        f"Each mark is a stall: from left to right when it ended, upwards how long it lasted, from "
        f"{milliseconds(min(durations))} to {milliseconds(max(durations))} on a logarithmic scale.")
    if len(points) < summary.all.stalls:
        page.time_line_text += (f" Drawn are {len(points):,} of {summary.all.stalls:,}: one in "
                                f"{summary.points.step}, and the longest.")
    page.slices = slice_rows(summary.slices)
    processes, connections = summary.by_process, summary.by_connection
    page.processes = [group_row(group, ()) for group in processes.top(MAX_ROWS)]
    page.processes_caption = caption("process", "processes", len(processes.groups), processes.folded_stalls,
                                     processes.folded_us)
    shown = connections.top(MAX_ROWS)
    page.connections = []
    for group in shown:
        key = group_key(group)
        numbers = tuple(number + 1 for number, one in enumerate(chosen) if connection_key(one.stall) == key)
        page.connections.append(group_row(group, numbers))
    page.advice = advice([one for group in shown if (one := summary.advice.get(group_key(group)))])
    page.connections_caption = caption("connection", "connections", len(connections.groups),
                                       connections.folded_stalls, connections.folded_us)


def group_key(group: Group) -> tuple[object, ...]:
    socket = group.socket
    return (group.side, group.cause, group.process.pid, group.process.comm,
            *((socket.netns, socket.local, socket.remote) if socket else ()))


def caption(one: str, several: str, count: int, folded_stalls: int, folded_us: int | None) -> str:
    """Returns the caption of a table. `folded_us` is None where the tracer's report does not have it."""
    text = f"{count:,} {one if count == 1 else several}, by lost time"
    if count > MAX_ROWS:
        text += f"; the first {MAX_ROWS} are shown"
    if folded_stalls:
        excess = f" ({milliseconds(folded_us)})" if folded_us is not None else ""
        text += (f". There were too many for a row each: no row has {plural(folded_stalls, 'stall')}{excess} of those "
                 "that lost least, and what a row says may be short by some of them")
    return text + "."


def group_row(group: Group, ladders: tuple[int, ...]) -> StallRow:
    local, remote = (group.socket.local, group.socket.remote) if group.socket else ("", "")
    durations = group.durations
    return StallRow(group.process.placed(), milliseconds(group.excess_us), group.stalls,
                    milliseconds(durations.percentile(50)), milliseconds(durations.percentile(99)),
                    milliseconds(durations.longest), words(group.causes), group.side, local, remote,
                    words(group.evidence), words(group.patterns), ladders)


def advice(connections: list[Connection]) -> list[Advice]:
    """Returns the tracer's advice, once for all connections with one problem: of the first of them.

    What one problem is, the tracer's `groups` say too: userspace/summary/groups.h.
    """
    problems: dict[tuple[object, ...], list[Connection]] = {}
    for connection in connections:
        key = (connection.process.comm, connection.side, connection.why, connection.pattern)
        problems.setdefault(key, []).append(connection)
    made = []
    for first, *others in problems.values():
        heading = f"{first.process.placed()}, {first.socket.local} → {first.socket.remote}"
        more = f", and {plural(len(others), 'connection')} more" if others else ""
        made.append(Advice(heading + more, first.pattern_text, first.cause_text, first.fix))
    return made[:MAX_ADVICE]


def from_report(page: Page, summary: Summary, report: Report) -> None:
    """Fills the page from the sums of the tracer or the daemon, where there are no single stalls."""
    if summary.snapshot:
        snapshot = summary.snapshot
        if snapshot.bounds_us:
            page.histogram = histogram_rows(Histogram(snapshot.bounds_us, snapshot.buckets(), snapshot.stalls))
        page.histogram_of = f" since the daemon's start, {clock(summary.snapshot.started_us, True)} UTC"
    by_process: dict[tuple[str, str], list[Connection]] = {}
    for connection in report.connections:
        by_process.setdefault((connection.process.name(), connection.why), []).append(connection)
    rows = [StallRow(name, milliseconds(sum(c.excess_us for c in group)), sum(c.stalls for c in group), "–", "–",
                     milliseconds(max(c.max_us for c in group)), cause)
            for (name, cause), group in sorted(by_process.items(),
                                               key=lambda item: -sum(c.excess_us for c in item[1]))]
    page.processes = rows[:MAX_ROWS]
    page.processes_caption = caption("process", "processes", len(rows), report.folded_stalls, None)
    connections = sorted(report.connections, key=lambda c: -c.excess_us)
    page.connections = [connection_row(connection) for connection in connections[:MAX_ROWS]]
    page.advice = advice(connections[:MAX_ROWS])
    page.connections_caption = caption("connection", "connections", len(connections), report.folded_stalls, None)


def connection_row(connection: Connection) -> StallRow:
    return StallRow(connection.process.placed(), milliseconds(connection.excess_us), connection.stalls,
                    percentile(connection.p50_us), percentile(connection.p99_us), milliseconds(connection.max_us),
                    connection.why, connection.side, connection.socket.local, connection.socket.remote,
                    words(connection.evidence), connection.pattern)


def percentile(us: int | None) -> str:
    return "–" if us is None else milliseconds(us)


def ladder_part(chosen: Chosen) -> LadderPart:
    ladder, stall = ladder_of(chosen), chosen.stall
    drawing = draw(ladder)
    heading = f"{milliseconds(stall.duration_us)}, {stall.process.name()} ({stall.side}), {stall.pattern}"
    notes = [*ladder.notes]
    if drawing.bands:
        notes.append(f"Shaded: what happened within {' and '.join(milliseconds(band.us) for band in drawing.bands)} "
                     "is drawn in order, evenly apart.")
    if drawing.unlabelled:
        notes.append(f"{plural(drawing.unlabelled, 'label')} found no room; the table has them.")
    return LadderPart(heading, describe(ladder), caption_of(stall), notes,
                      f"{clock(zero_of(stall), True)} UTC", drawing,
                      [(signed(at, milliseconds), end, what, basis) for at, end, what, basis in ladder.rows()])


def describe(ladder: Ladder) -> str:
    """Describes the drawing in a few sentences, for those who do not see it."""
    spans = [f"At the {span.end}: {span.text()} ({span.basis})." for span in ladder.spans[:6]]
    return " ".join([f"Two life lines, sender and receiver, with {plural(len(ladder.arrows), 'arrow')} between them.",
                     *spans, "The table below has every part."])


def caption_of(stall: Stall) -> str:
    peer = f", peer {stall.peer.name()}" if stall.peer else ""
    rtt = f", smallest round trip {milliseconds(stall.min_rtt_us)}" if stall.min_rtt_us else ""
    return (f"{stall.process.name()}, {stall.socket.local} → {stall.socket.remote}{peer}. It ended at "
            f"{clock(stall.time_us, True)} UTC; excess {milliseconds(stall.excess_us)}{rtt}; cause {stall.why}; "
            f"evidence {stall.evidence}.")


def looked_at(page: Page, report: Report | None) -> None:
    if report is None:
        return
    page.slow_holds = [(slow.name(), slow.reason, milliseconds(slow.hold_us), f"{slow.holds:,}",
                        milliseconds(slow.hold_us // max(1, slow.holds)),
                        f"{slow.socket.local} → {slow.socket.remote}", slow.advice)
                       for slow in report.slow_holds[:MAX_SLOW_HOLDS] if slow.hold_us >= report.span_us / 100]
    totals = report.totals
    page.looked_at = (f"{plural(totals.writes, 'write')}, {plural(sum(totals.holds.values()), 'hold')}, "
                      f"{plural(sum(totals.delayed_acks.values()), 'delayed ACK')} in {milliseconds(report.span_us)}.")
    rows: list[tuple[str, str, str, str]] = [("Writes", "all", f"{totals.writes:,}", "")]
    for what, table in (("Holds, by reason", totals.holds), ("Holds, by release", totals.releases),
                        ("Delayed ACKs, sent by", totals.delayed_acks), ("Stalls, by cause", totals.stalls)):
        for word, count in Counter(table).most_common():
            spent = totals.hold_us.get(word) if table is totals.holds else None
            if count:
                rows.append((what, word, f"{count:,}", milliseconds(spent) if spent else ""))
        if not any(table.values()):
            rows.append((what, "none", "0", ""))
    page.counts = rows
