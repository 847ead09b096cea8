# SPDX-License-Identifier: GPL-2.0
"""Each dashboard as a person sees it, dark and light: every panel is drawn, has data, and shows all that is in it."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dashboards
import pytest
from dashboards import HERE, THEMES, WIDTH, Browser, Shown
from debian import Unavailable
from scene import ACTORS, GONE, HOSTS, looked_at

MADE = dashboards.dashboards()
#: In s; rates look back over ten.
STALLING_S, MENDED_S = 25.0, 15.0
EACH = [pytest.param(name, panel, id=f"{name}: {panel['title']}") for name, made in MADE.items()
        for panel in made["panels"] if panel["type"] != "row"]

each_panel = pytest.mark.parametrize(("name", "panel"), EACH)
each_dashboard = pytest.mark.parametrize("name", MADE)


@dataclass(frozen=True)
class Seen:
    """All dashboards, and what there is to be seen of each in each theme."""

    browser: Browser
    shown: dict[str, Shown]
    told: dict[tuple[str, str], Any]

    def panel(self, name: str, title: str) -> list[dict[str, Any]]:
        """In each theme."""
        [panel] = [panel for panel in MADE[name]["panels"] if panel["title"] == title]
        return [self.told[name, theme]["panels"][str(panel["id"])] for theme in THEMES]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        with dashboards.browser() as made:
            yield made
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def seen(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    shown = {one.dashboard["uid"]: one for one in looked_at(tmp_path_factory.mktemp("scene"), STALLING_S, MENDED_S)}
    return Seen(browser, shown, {(name, theme): browser.told(one, theme) for name, one in shown.items()
                                 for theme in THEMES})


@each_panel
def test_each_panel_is_drawn_without_an_error_and_has_data(seen: Seen, name: str, panel: dict[str, Any]) -> None:
    for drawn in seen.panel(name, panel["title"]):
        assert drawn["error"] is None
        assert not drawn["empty"] and "No data" not in drawn["text"], "no data"
        assert drawn["text"].startswith(panel["title"])
        if panel["type"] in ("timeseries", "heatmap"):
            assert drawn["ink"] > 2000, "an empty canvas"
        if panel["type"] == "timeseries":
            assert drawn["legend"] and all(drawn["legend"])
        if panel["type"] == "stat":
            assert re.search(r"\d", drawn["text"].removeprefix(panel["title"]))
        if panel["type"] == "table":
            assert any(drawn["cells"])


@each_panel
def test_each_panel_shows_all_that_is_in_it(seen: Seen, name: str, panel: dict[str, Any]) -> None:
    """No name of a legend and no column is out of sight, no name and no text is cut."""
    for drawn in seen.panel(name, panel["title"]):
        assert drawn["hidden"] == []
        assert drawn["cut"] == []


@each_dashboard
def test_a_page_has_its_rows_and_variables_and_no_script_fails(seen: Seen, name: str) -> None:
    for theme in THEMES:
        told = seen.told[name, theme]
        assert told["errors"] == []
        assert told["variables"] == [one["label"] for one in MADE[name]["templating"]["list"]]
        assert len(told["panels"]) == len(MADE[name]["panels"])
        red, green, blue = map(int, re.findall(r"\d+", told["background"])[:3])
        assert (red + green + blue < 150) if theme == "dark" else (red + green + blue > 600)


def test_tables_name_who_loses_time_and_which_host_nobody_watches(seen: Seen) -> None:
    [dark, _] = seen.panel("nagletrace", "Top offenders")
    assert dark["columns"] == ["comm", "cause", "instance", "cluster", "excess"]
    rows = [dark["cells"][i:i + 5] for i in range(0, len(dark["cells"]), 5)]
    actors = {actor.name: actor for actor in ACTORS}
    assert {comm: (instance, cluster) for comm, _, instance, cluster, _ in rows} == {
        comm: (actors[comm].host, HOSTS[actors[comm].host]) for comm in ("checkout", "search", "billing", "mailer")}
    assert all(re.fullmatch(r"[\d.]+ (ms|s|mins)", row[-1]) for row in rows)
    [dark, _] = seen.panel("nagletrace-fleet", "Hosts to look after")
    assert dark["cells"][:4] == [GONE, HOSTS[GONE], "nagletrace", "1"]


def test_a_units_text_is_what_a_person_reads(seen: Seen) -> None:
    """By panel, the text of its number: `2.33 mins` of time lost in a second would be a wrong unit."""
    for title, pattern in (("Loses most now", r"\w+ on \S+[\d.]+%"), ("Stalls per second now", r"[\d.]+ stalls/s"),
                           ("Lost time now", r"[\d.]+%"), ("Hosts watched", "3")):
        for drawn in seen.panel("nagletrace", title):
            assert re.fullmatch(pattern, drawn["text"].removeprefix(title)), drawn["text"]
    for drawn in seen.panel("nagletrace-connection", "A stall lasts"):
        assert re.fullmatch(r"A stall lasts[\d.]+ ms", drawn["text"])


def test_a_process_has_one_colour(seen: Seen) -> None:
    for theme in range(len(THEMES)):
        one, other = (dict(zip(drawn["legend"], drawn["colours"])) for drawn in (
            seen.panel("nagletrace", f"{what} by process")[theme] for what in ("Lost time", "Stalls per second")))
        assert one == other and len(set(one.values())) > 2, (one, other)


def test_only_reasons_that_occur_are_there_and_those_that_can_be_stalls_come_first(seen: Seen) -> None:
    for drawn in seen.panel("nagletrace", "Holds per second by reason"):
        innocent = [name.endswith(" (no stall)") for name in drawn["legend"]]
        assert innocent == sorted(innocent) and {"nagle", "cork"} <= set(drawn["legend"]), drawn["legend"]
        assert "sndbuf" not in drawn["legend"]


def test_a_container_is_called_by_its_short_id(seen: Seen) -> None:
    for drawn in seen.panel("nagletrace-connection", "Lost time by host and cgroup"):
        [name] = drawn["legend"]
        assert re.fullmatch(r"web-1 container [0-9a-f]{12}", name)


def test_dots_are_stalls_and_the_words_beside_them_lead_on(seen: Seen) -> None:
    story = seen.shown["nagletrace-connection"]
    told = [answer for answers in story.answers.values() for answer in answers["answers"] if "exemplars" in answer]
    for drawn in seen.panel("nagletrace-connection", "Each dot is a stall, with its connection"):
        assert drawn["dots"] == sum(len(answer["exemplars"]) for answer in told) > 0
    for drawn in seen.panel("nagletrace-connection", "From the dot to the write, and to the fix"):
        assert "nagletrace report" in drawn["text"] and "set TCP_NODELAY" in drawn["text"]


def test_a_picture_ends_where_it_is_told_to(seen: Seen, tmp_path: Path) -> None:
    into = tmp_path / "picture.png"
    seen.browser.picture(seen.shown["nagletrace"], "dark", into, "Top offenders")
    width, height = struct.unpack(">II", into.read_bytes()[16:24])
    [dark, _] = seen.panel("nagletrace", "Top offenders")
    assert (width, height) == (WIDTH, dark["bottom"] + dashboards.MARGIN)


def test_the_modules_are_pinned_and_name_no_host() -> None:
    wanted = json.loads((HERE / "package.json").read_text())["dependencies"]
    assert wanted and all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())
    text = (HERE / "package-lock.json").read_text()
    locked = json.loads(text)["packages"]
    assert locked[""]["dependencies"] == wanted
    assert all(one["integrity"].startswith("sha512-") for path, one in locked.items() if path)
    assert "://" not in text
