# SPDX-License-Identifier: GPL-2.0
"""The page: its figures, its bounds, what hostile names do to it, and what a browser makes of it."""

from __future__ import annotations

import colorsys
import re
from collections import Counter
from pathlib import Path

import pytest
import recordings as r
from browser import dump, needs_chromium, run_script
from pages import HERE, HOSTILE, check_html, command, make, text_of

from nagletrace_exporters.flame.svg import colour
from nagletrace_exporters.records import MAX_NUMBER, Stall, decode
from nagletrace_exporters.report.charts import height_of, levels_between
from nagletrace_exporters.report.durations import BOUNDS_US, Durations
from nagletrace_exporters.report.summary import Groups, Points, Slices, Summary
from nagletrace_exporters.units import milliseconds


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table under this heading."""
    section = page[page.index(f'id="{heading}"'):]
    table = section[section.index("<tbody>"):section.index("</tbody>")]
    return [[text_of(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)]
            for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)]


@pytest.mark.parametrize(("us", "text"), [
    (0, "0 us"), (999, "999 us"), (1000, "1.00 ms"), (9994, "9.99 ms"), (9995, "10.0 ms"),
    (99_949, "99.9 ms"), (99_950, "100 ms"), (250_000, "250 ms"), (999_499, "999 ms"), (999_500, "1.00 s"),
    (12_340_000, "12.3 s"), (86_400_000_000, "86400 s")])
def test_durations_are_formatted_as_the_tracer_formats_them(us: int, text: str) -> None:
    assert milliseconds(us) == text


def test_the_page_shows_the_figures_of_the_recording(tmp_path: Path) -> None:
    lines = r.mixed()
    stalls = [line for line in lines if line["type"] == "stall"]
    page = make("report", tmp_path, lines)
    check_html(page)
    text = text_of(page)
    excess = sum(stall["excess_us"] for stall in stalls)
    assert f"{len(stalls)} stalls in 23.0 s lost {excess / 1e6:.2f} s" in text
    assert [(row[0], row[1]) for row in rows(page, "durations") if row[1] != "0"] == [
        ("35 ms to 40 ms", "7"), ("40 ms to 45 ms", "19"), ("50 ms to 75 ms", "7"), ("200 ms to 250 ms", "4")]
    assert sum(int(row[1]) for row in rows(page, "timeline")) == len(stalls) == page.count('class="spot') - 3
    assert [row[0] for row in rows(page, "processes")] == ["java[4242]", "httpd[55]", "nginx[77]", "redis[900]"]
    first = rows(page, "connections")[0]
    assert first[:3] == ["java[4242] (sender) 127.0.0.1:51234 → 127.0.0.1:8000", "879 ms", "21"]
    assert "seen 21" in first and "Ladder 1" in first[-1]
    assert "Fix write both parts at once (writev, a buffer, MSG_MORE), or set TCP_NODELAY" in text
    assert page.count('<svg class="ladder"') == 4
    assert "50 writes, 26 holds, 24 delayed ACKs in 23.0 s" in text


def test_the_page_says_what_is_measured_and_what_is_inferred(tmp_path: Path) -> None:
    text = text_of(make("report", tmp_path, r.mixed()))
    assert "Drawn from recorded events of both ends." in text
    assert "The other end was not seen: that its ACK was pending, and when, is inferred" in text
    assert "The sender was not seen: that it held that data for the ACK is inferred" in text
    assert "evidence seen" in text and "evidence inferred" in text


@pytest.mark.parametrize("lines", [[], [r.start()], [r.start(), r.report()]])
def test_without_a_stall_it_says_so_and_what_was_looked_at(tmp_path: Path, lines: list[r.Record]) -> None:
    page = make("report", tmp_path, lines)
    check_html(page)
    text = text_of(page)
    assert "No stall" in text
    told = "50 writes, 26 holds, 24 delayed ACKs" if len(lines) == 2 else "The recording does not say"
    assert told in text[text.index("What was looked at"):]
    assert f"Read from recording: {len(lines)} lines" in text


def test_a_recording_of_reports_only_is_summed_up_from_them(tmp_path: Path) -> None:
    other = r.connection(pid=9, comm="other", stalls=1, excess_us=500_000)
    lines = [r.start(), r.report(r.connection(), closing=False), r.report(r.connection(), other, closing=False)]
    page = make("report", tmp_path, lines)
    check_html(page)
    assert rows(page, "connections")[1][1:6] == ["262 ms", "6", "–", "–", "44.0 ms"], "percentiles cannot be added"
    assert "7 stalls in 60.0 s lost 762 ms" in text_of(page)
    assert "only the tracer's sums" in text_of(page)
    closed = make("report", tmp_path, [*lines, r.report(r.connection(), other)])
    assert rows(closed, "connections")[1][1:4] == ["131 ms", "3", "43.9 ms"], "the closing one is of all"


def test_processes_stand_with_their_pod_or_container(tmp_path: Path) -> None:
    uid, container = "3f2a91c4-6b0e-4d7a-9c35-d1e8f0a2b467", "6d1f0a2c9b8e" + 52 * "0"
    page = make("report", tmp_path, [r.start(), *(r.seen(pod_uid=uid, container_id=container) for _ in range(3)),
                                     r.seen(pid=55, comm="nginx", container_id=container)])
    assert [row[0] for row in rows(page, "processes")] == [
        "java[4242] in pod 3f2a91c4…", "nginx[55] in container 6d1f0a2c9b8e…"]
    assert rows(page, "connections")[0][0].startswith("java[4242] in pod 3f2a91c4… (sender) ")


def test_what_is_wrong_with_a_recording_is_on_the_page(tmp_path: Path) -> None:
    path = r.write(tmp_path / "x", [r.seen(), r.report(r.connection(), stalls=9, dropped={"ring_full": 8})])
    path.write_bytes(b"no json\n" + path.read_bytes() + b'{"type":"stall",')
    text = text_of(command("report", "-i", path).stdout)
    for said in ("2 of 4 lines could not be read (the first: line 1: not JSON)", "ends in the middle of a line",
                 "ring_full 8", "reported 9 stalls; 1 of them are in the recording", "does not begin with the start"):
        assert said in text, text


@pytest.mark.parametrize(("dropped", "said"), [
    ({"ring_full": 8, "ring_share": 1, "recursion": 0}, "ring_share 1. The totals count them, the tables do not."),
    ({"ring_full": 8, "recursion": 1}, "recursion 1. The tables lack them, and totals may be too low as well.")])
def test_the_totals_are_called_right_only_where_they_are(dropped: dict[str, int], said: str, tmp_path: Path) -> None:
    assert said in text_of(make("report", tmp_path, [r.start(), r.seen(), r.report(r.connection(), dropped=dropped)]))


@pytest.mark.parametrize("name", HOSTILE)
def test_names_from_outside_cannot_break_out(tmp_path: Path, name: str) -> None:
    evil = {"comm": name, "cgroup": name, "local": name, "remote": name}
    ack = {**r.seen()["receiver"]["pending_ack"], "reason": name, "release": name}
    advice = r.connection(pattern_text=name, cause_text=name, fix=name, **evil)
    lines = [{**r.start(), "kernel": name, "version": name, "missing_hooks": [name]},
             r.seen(pattern=name, receiver={**r.seen()["receiver"], "comm": name, "pending_ack": ack},
                    hold=r.hold(reason=name, release=name), **evil),
             r.peer_holds(**evil), {**r.report(advice), "dropped": {name: 1}}]
    lines[-1]["totals"]["holds"] = {name: 3}
    for line in r.events():
        lines.insert(1, {**line, "local": name, "remote": name, "comm": name, "release": name})
    checker = check_html(make("report", tmp_path, lines))
    assert not set(checker.tags) & {"img", "b", "iframe", "object"}


def test_the_same_recording_makes_the_same_bytes(tmp_path: Path) -> None:
    assert make("report", tmp_path, r.mixed()) == make("report", tmp_path, r.mixed())


def luminance(colour: str) -> float:
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def palettes_of(css: str) -> list[dict[str, str]]:
    return [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{[^}]*\}", css)]


@pytest.mark.parametrize(("style", "grounds", "inks"), [
    ("report/templates/report.css", ("paper", "shade"), ("ink", "soft", "link", "hold", "ack", "data")),
    ("flame/templates/flame.css", ("paper",), ("ink", "soft"))])
def test_colours_have_enough_contrast(style: str, grounds: tuple[str, ...], inks: tuple[str, ...]) -> None:
    """WCAG AA: 4.5 to 1 for text, in light, dark and print."""
    css = (HERE / "nagletrace_exporters" / style).read_text()
    assert "opacity" not in css, "it takes contrast from the text"
    palettes = palettes_of(css)
    assert len(palettes) == 3
    for palette in palettes:
        for ground in grounds:
            for ink in inks:
                assert contrast(palette[ground], palette[ink]) >= 4.5, (ink, ground, palette)


def test_names_in_frames_have_enough_contrast() -> None:
    css = (HERE / "nagletrace_exporters" / "flame" / "templates" / "flame.css").read_text()
    ink = re.findall(r"\.frame text \{ fill: (#[0-9a-f]{6})", css)[0]
    for name in ["all", *(f"f{n}" for n in range(500))]:
        hue, saturation, light = map(int, re.findall(r"\d+", colour(name)))
        parts = colorsys.hls_to_rgb(hue / 360, light / 100, saturation / 100)
        ground = "#" + "".join(f"{round(255 * part):02x}" for part in parts)
        assert contrast(ink, ground) >= 4.5, name
    fill, text = (re.findall(rf"\.frame\.match {what} \{{ fill: (#[0-9a-f]{{6}})", css)[0] for what in ("rect", "text"))
    assert contrast(fill, text) >= 4.5


def test_the_bounds_are_the_daemons() -> None:
    """Those of a recording's histogram; a snapshot brings its own."""
    [bounds] = re.findall(r"nt_bucket_ns\[\w+\] = \{(.*?)\}",
                          (HERE.parent / "userspace" / "summary" / "series.c").read_text(), re.DOTALL)
    assert [us // 1000 for us in BOUNDS_US] == [int(ms) for ms in re.findall(r"(\d+) \* MS", bounds)]


def test_percentiles_are_right_within_three_percent() -> None:
    for durations in ([40_000], [*range(1, 2_000)], [1, 2, 3], [43_900] * 99 + [200_000], [2**40, 5]):
        sums = Durations()
        for us in durations:
            sums.add(us)
        for percent in (50, 99, 100):
            right = sorted(durations)[-(-len(durations) * percent // 100) - 1]
            assert right <= sums.percentile(percent) <= right * 1.04 + 1


def test_memory_is_bounded_and_what_was_left_out_is_said() -> None:
    groups: Groups[int] = Groups(most=100)
    points, slices = Points(most=50), Slices()
    for n in range(5_000):
        stall = decode(Stall, r.seen(60_000_000 * n, 40_000 + n))
        groups.add(n, stall.process, None, stall)
        points.add(stall)
        slices.add(stall)
    assert len(groups.groups) <= 100
    assert sum(g.stalls for g in groups.groups.values()) + groups.folded_stalls == 5_000
    assert len(points.chosen()) <= 50 + 40 and max(p.duration_us for p in points.chosen()) == 44_999
    assert len(slices.slices) <= 24 and sum(s.stalls for s in slices.slices.values()) == 5_000
    summary = Summary(max_groups=10, max_points=20)
    for n in range(100):
        summary.add(decode(Stall, r.seen(1_000_000 * n, pid=n + 1)))
    assert len(summary.by_process.groups) <= 10 and summary.by_process.folded_stalls >= 90


def test_percentiles_need_no_python_newer_than_the_package_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Counter, "total", raising=False)  # since 3.10
    sums = Durations()
    sums.add(40_000)
    assert sums.percentile(50) == 40_000


@pytest.mark.parametrize(("least", "most"), [(1, 1), (3, 5), (43_900, 203_400), (1, MAX_NUMBER),
                                             (MAX_NUMBER, MAX_NUMBER)])
def test_levels_enclose_all_durations(least: int, most: int) -> None:
    levels = levels_between(least, most)
    assert levels[0] <= least <= most <= levels[-1] and levels == sorted(set(levels))
    assert height_of(levels[-1], levels) < height_of(levels[0], levels)


@pytest.mark.parametrize("rtt_us", [1, MAX_NUMBER])
def test_the_longest_stall_that_can_be_told_fits_the_page(tmp_path: Path, rtt_us: int) -> None:
    evil = [make_of(duration_us=MAX_NUMBER, excess_us=MAX_NUMBER, min_rtt_us=rtt_us)
            for make_of in (r.seen, r.inferred, r.cork_ceiling, r.peer_holds)]
    evil[-1]["receiver"]["pending_ack"]["duration_us"] = MAX_NUMBER
    for lines in (evil, [*evil, r.seen()]):
        page = make("report", tmp_path, lines)
        check_html(page)
        assert page.count('<svg class="ladder"') == 4 and 'class="timeline"' in page


def test_a_lost_time_that_is_not_known_is_not_called_zero(tmp_path: Path) -> None:
    text = text_of(make("report", tmp_path, [r.start(), r.report(r.connection(), folded_stalls=12)]))
    assert "no row has 12 stalls of those that lost least" in text


def test_a_ladder_names_the_moment_that_its_table_counts_from(tmp_path: Path) -> None:
    """Without the sender's record that is the pending ACK's begin, a round trip before the record's hold would be."""
    page = make("report", tmp_path, [r.peer_holds(1_000_000, 40_000, 2_000)])
    assert "from 2026-11-21 08:00:00.958 UTC on" in text_of(page)
    page = make("report", tmp_path, [r.seen(1_000_000, 40_000, 2_000)])
    assert "from 2026-11-21 08:00:00.960 UTC on" in text_of(page)


@needs_chromium
def test_a_browser_shows_the_figures(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(make("report", tmp_path, r.mixed()))
    shown = text_of(dump(page, tmp_path))
    assert "37 stalls in 23.0 s lost 2.19 s" in shown and "hold: 7 B" in shown and "pending ACK" in shown


@needs_chromium
@pytest.mark.parametrize("width", [340, 1200])
def test_nothing_is_off_the_page_or_covers_another_text(tmp_path: Path, width: int) -> None:
    """On a telephone too; tables that are wider scroll by themselves."""
    page = tmp_path / "page.html"
    page.write_text(make("report", tmp_path, [*r.mixed(), *r.with_events(90_000_000, 41_000, 4_000, pid=7)]))
    result = run_script(page, tmp_path, f"const width = {width};" + """
        const frame = document.createElement('iframe');  // windows are not as narrow as telephones
        frame.style = 'position: fixed; left: 0; top: 0; border: 0; height: 800px; width: ' + width + 'px';
        frame.srcdoc = document.documentElement.outerHTML.replace(/<script>[^]*<.script>/, '');
        const loaded = new Promise(done => frame.onload = done);
        document.body.append(frame);
        await loaded;
        const inside = frame.contentDocument, cover = [];
        for (const svg of inside.querySelectorAll('.ladder')) {
          const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
          const all = svg.getBoundingClientRect();
          texts.forEach(([one, a], i) => {
            if (a.left < all.left - 1 || a.right > all.right + 1) cover.push(one + ' is off');
            texts.slice(i + 1).forEach(([other, b]) => {
              const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
              const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
              if (wide > 1 && high > a.height / 3) cover.push(one + ' and ' + other);
            });
          });
        }
        const root = inside.documentElement;
        return {cover: cover, ladders: inside.querySelectorAll('.ladder').length, scroll: root.scrollWidth,
                inner: root.clientWidth, window: frame.contentWindow.innerWidth,
                spots: inside.querySelectorAll('.timeline .spot').length};
        """, "--window-size=1300,900")
    assert result["ladders"] >= 4 and result["spots"] == 38
    assert result["cover"] == []
    assert result["scroll"] <= result["inner"] <= result["window"] == width


def test_what_cost_time_and_was_no_stall_is_told_of_all_intervals(tmp_path: Path) -> None:
    slow = {"reason": "rwnd", "pid": 7, "comm": "python3", "netns": 1, "family": 4, "local": "127.0.0.1:5",
            "remote": "127.0.0.1:6", "holds": 10, "hold_us": 2_000_000, "mss": 32_768, "window_bytes": 2304,
            "advice": "leave SO_RCVBUF to the kernel"}
    lines = [r.start(), r.report(closing=False, slow_holds=[slow]),
             r.report(closing=False, slow_holds=[slow, slow | {"pid": 8, "reason": "cwnd", "hold_us": 1}])]
    page = make("report", tmp_path, lines)
    check_html(page)
    assert ("python3[7] rwnd 4.00 s 20 200 ms 127.0.0.1:5 → 127.0.0.1:6 leave SO_RCVBUF to the kernel"
            in text_of(page))
    assert "python3[8]" not in text_of(page)  # it is less than a hundredth of the time
    lines[-1] = r.report(closing=False, slow_holds=[slow | {"pid": 8}])
    assert "python3 rwnd 4.00 s" in text_of(make("report", tmp_path, lines))
