# SPDX-License-Identifier: GPL-2.0
"""The dashboards as Grafana shows them: asked of a real Prometheus, drawn by Grafana's own components in Chromium.

Grafana itself is no package; the components that it draws panels with are one (@grafana/ui). What Grafana
does besides is here: it fills in variables, asks, and puts panels on the grid. grafana/ has the page's side.
"""

from __future__ import annotations

import contextlib
import functools
import html
import http.server
import json
import math
import re
import shutil
import subprocess
import tempfile
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chromium
import npm_modules
from stack import ROOT, get

HERE = Path(__file__).resolve().parent
GRAFANA = ROOT / "dashboards" / "grafana"
FONTS = Path("/usr/share/fonts/opentype/inter")
THEMES = ("dark", "light")
#: In px: of the page, and below what is shown of it.
WIDTH = 1600
MARGIN = 6
#: What Prometheus scrapes at in the tests, in s.
SCRAPED = 1

Dashboard = dict[str, Any]


def dashboards() -> dict[str, Dashboard]:
    """Each with its closed row opened."""
    made = {path.stem: json.loads(path.read_text()) for path in sorted(GRAFANA.glob("*.json"))}
    for one in made.values():
        one["panels"] += one["panels"][-1].pop("panels")
    return made


# ---- what Grafana asks ----


@dataclass(frozen=True)
class Chosen:
    """A value of a variable: as the bar above shows it, and as queries have it."""

    text: str
    value: str


@dataclass(frozen=True)
class Range:
    """From when to when, in s since 1970."""

    start: float
    end: float

    @property
    def seconds(self) -> int:
        return round(self.end - self.start)

    def step(self, panel: Dashboard) -> int:
        """In s: a point for each pixel at most, and for each scrape."""
        return max(SCRAPED, math.ceil(self.seconds / (WIDTH * panel["gridPos"]["w"] / 24)))


class Prometheus:
    def __init__(self, address: str) -> None:
        self.address = address

    def ask(self, path: str, **values: Any) -> Any:
        answer = json.loads(get(f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(values)}"))
        return answer["data"]


def filled_in(text: str, values: dict[str, str]) -> str:
    """$1 stays, which is label_replace's."""
    return re.sub(r"\$(?:\{(\w+)\}|([a-z_]\w*))", lambda found: values[found[1] or found[2]], text)


def choose(dashboard: Dashboard, prometheus: Prometheus, wanted: dict[str, str]) -> dict[str, Chosen]:
    """Of each variable what is wanted, else what it begins with."""
    chosen: dict[str, Chosen] = {}
    for variable in dashboard["templating"]["list"]:
        name = variable["name"]
        if name in wanted:
            chosen[name] = Chosen(wanted[name], wanted[name])
        elif variable["type"] == "datasource":
            chosen[name] = Chosen("Prometheus", "prometheus")
        elif variable.get("current", {}).get("value") == "$__all":
            chosen[name] = Chosen("All", variable["allValue"])
        else:
            found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
            assert found, variable["query"]
            match = filled_in(found[1], {name: one.value for name, one in chosen.items()})
            first, *_ = prometheus.ask(f"label/{found[2]}/values", **{"match[]": match})
            chosen[name] = Chosen(first, first)
    return chosen


def answers(panel: Dashboard, prometheus: Prometheus, when: Range, chosen: dict[str, Chosen]) -> Dashboard:
    """What each query of a panel brings, as Grafana would ask it."""
    step = when.step(panel)
    values = {name: one.value for name, one in chosen.items()} | {
        "__rate_interval": f"{max(step + SCRAPED, 4 * SCRAPED)}s", "__range": f"{when.seconds}s"}
    found = []
    for target in panel.get("targets", []):
        query = filled_in(target["expr"], values)
        if target["instant"]:
            answer = {"result": prometheus.ask("query", query=query, time=when.end)["result"]}
        else:
            times = {"start": when.start, "end": when.end, "step": step}
            answer = {"result": prometheus.ask("query_range", query=query, **times)["result"]}
        if target.get("exemplar"):
            told = prometheus.ask("query_exemplars", query=query, start=when.start, end=when.end)
            answer["exemplars"] = [exemplar for series in told for exemplar in series["exemplars"]]
        found.append({"target": target, **answer})
    return {"step": step * 1000, "answers": found}


@dataclass(frozen=True)
class Shown:
    """A dashboard with what it is drawn of, which is the same in each theme."""

    dashboard: Dashboard
    chosen: dict[str, Chosen]
    when: Range
    answers: dict[int, Dashboard]

    def input(self, theme: str) -> str:
        others = [one["title"] for one in dashboards().values() if one["uid"] != self.dashboard["uid"]]
        return json.dumps({
            "dashboard": self.dashboard, "theme": theme, "width": WIDTH, "from": self.when.start * 1000,
            "to": self.when.end * 1000, "chosen": {name: vars(one) for name, one in self.chosen.items()},
            "answers": self.answers, "others": others})


def ask(dashboard: Dashboard, address: str, when: Range, wanted: dict[str, str]) -> Shown:
    prometheus = Prometheus(address)
    chosen = choose(dashboard, prometheus, wanted)
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    return Shown(dashboard, chosen, when,
                 {panel["id"]: answers(panel, prometheus, when, chosen) for panel in panels})


# ---- what draws it ----


class Site:
    """The page and what it loads, in a directory of its own, served on loopback. Raises Unavailable."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        modules = npm_modules.modules(HERE)
        subprocess.run([modules / ".bin" / "esbuild", HERE / "grafana" / "page.jsx", "--bundle", "--minify",
                        "--jsx=automatic", "--define:process.env.NODE_ENV=\"production\"", "--loader:.ttf=empty",
                        "--log-level=error", f"--outfile={directory / 'page.js'}"],
                       check=True, env={"NODE_PATH": str(modules), "PATH": "/usr/local/bin:/usr/bin:/bin"})
        icons = directory / "public" / "build" / "img"
        icons.mkdir(parents=True)
        shutil.copytree(modules / "@grafana" / "ui" / "dist" / "public" / "img" / "icons", icons / "icons")
        fonts = directory / "public" / "fonts" / "inter"
        fonts.mkdir(parents=True)
        for font in FONTS.glob("Inter-*.otf"):
            (fonts / f"{font.stem}.woff2").symlink_to(font)

    def page(self, shown: Shown, theme: str) -> str:
        name = f"{shown.dashboard['uid']}-{theme}.html"
        data = shown.input(theme).replace("<", "\\u003c")
        (self.directory / name).write_text(
            f"<!doctype html><html lang=en><meta charset=utf-8><link rel=stylesheet href=page.css>"
            f"<script>window.__grafana_public_path__ = 'public/'; window.input = {data};</script>"
            f"<body><div id=root></div><script src=page.js></script>")
        return name


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Browser:
    def __init__(self, site: Site, address: str) -> None:
        self.site, self.address = site, address

    def told(self, shown: Shown, theme: str) -> Dashboard:
        """What there is to be seen of each panel, as grafana/page.jsx says it."""
        document = chromium.document(f"{self.address}/{self.site.page(shown, theme)}", WIDTH)
        found = re.search(r'data-told="([^"]*)"', document)
        assert found, f"the page has not ended: {document[-2000:]}"
        told: Dashboard = json.loads(html.unescape(found[1]))
        return told

    def picture(self, shown: Shown, theme: str, into: Path, last: str) -> None:
        """Down to the panel of that title."""
        [panel] = [panel for panel in shown.dashboard["panels"] if panel["title"] == last]
        told = self.told(shown, theme)
        assert not told["errors"], told["errors"]
        height = told["panels"][str(panel["id"])]["bottom"] + MARGIN
        chromium.picture(f"{self.address}/{self.site.page(shown, theme)}", into, WIDTH, height)


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    with tempfile.TemporaryDirectory() as directory:
        site = Site(Path(directory))
        handler = functools.partial(Quiet, directory=directory)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield Browser(site, f"http://127.0.0.1:{server.server_address[1]}")
            finally:
                server.shutdown()
