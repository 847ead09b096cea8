"use strict";
(function () {
  // Places are percents, kept as they were in data-x, data-w and data-d; zooming only shifts and stretches them.
  const frames = Array.from(document.querySelectorAll(".frame"), function (g) {
    return { g: g, box: g.querySelector("svg"), name: g.querySelector("text").textContent,
      label: g.getAttribute("aria-label"), x: Number(g.dataset.x), w: Number(g.dataset.w), d: Number(g.dataset.d) };
  });
  const of = new Map(frames.map(function (f) { return [f.g, f]; }));
  const details = document.getElementById("details");
  const found = document.getElementById("found");
  const search = document.getElementById("search");
  const slack = 1e-4;
  let zoomed = frames[0];

  function isIn(inner, outer) {
    return inner.x >= outer.x - slack && inner.x + inner.w <= outer.x + outer.w + slack;
  }

  function zoom(to) {
    zoomed = to;
    for (const f of frames) {
      const below = f.d >= to.d && isIn(f, to);
      const above = f.d < to.d && isIn(to, f);
      f.g.classList.toggle("gone", !below && !above);
      f.g.classList.toggle("around", above);
      f.g.setAttribute("aria-hidden", String(!below && !above));
      f.box.setAttribute("x", above ? "0%" : (f.x - to.x) / to.w * 100 + "%");
      f.box.setAttribute("width", above ? "100%" : f.w / to.w * 100 + "%");
    }
    details.textContent = to.d ? "Zoomed into " + to.label : " ";
  }

  function focus(f) {
    for (const one of frames) one.g.setAttribute("tabindex", one === f ? "0" : "-1");
    f.g.focus();
  }

  // Of the frames that match, those within another one do not count twice.
  function mark() {
    const wanted = search.value.toLowerCase();
    const matches = frames.filter(function (f) {
      const is = wanted !== "" && f.name.toLowerCase().includes(wanted);
      f.g.classList.toggle("match", is);
      return is;
    });
    let share = 0, end = -1;
    for (const f of matches.slice().sort(function (a, b) { return a.x - b.x || a.d - b.d; })) {
      if (f.x + slack < end) continue;
      share += f.w;
      end = f.x + f.w;
    }
    found.textContent = wanted === "" ? "" : matches.length + " frames, " + share.toFixed(1) + " %";
  }

  function neighbour(f, key) {
    const seen = frames.filter(function (one) { return !one.g.classList.contains("gone"); });
    if (key === "ArrowUp") return seen.find(function (one) { return one.d === f.d - 1 && isIn(f, one); });
    if (key === "ArrowDown") return seen.find(function (one) { return one.d === f.d + 1 && isIn(one, f); });
    const row = seen.filter(function (one) { return one.d === f.d; });
    return row[row.indexOf(f) + (key === "ArrowRight" ? 1 : -1)];
  }

  function reset() {
    search.value = "";
    mark();
    zoom(frames[0]);
  }

  const tree = document.getElementById("frames");
  tree.addEventListener("click", function (event) {
    const f = of.get(event.target.closest(".frame"));
    if (f) { zoom(f); focus(f); }
  });
  function describe(event) {
    const f = of.get(event.target.closest(".frame"));
    if (f) details.textContent = f.label;
  }
  tree.addEventListener("mouseover", describe);
  tree.addEventListener("focusin", describe);
  tree.addEventListener("keydown", function (event) {
    const f = of.get(event.target.closest(".frame"));
    if (!f) return;
    if (event.key === "Enter" || event.key === " ") zoom(f);
    else if (event.key.startsWith("Arrow")) {
      const next = neighbour(f, event.key);
      if (next) focus(next);
    } else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape") { reset(); focus(frames[0]); }
    else if (event.key === "/" && document.activeElement !== search) { search.focus(); event.preventDefault(); }
  });
  search.addEventListener("input", mark);
  document.getElementById("reset").addEventListener("click", reset);
  const controls = document.getElementById("controls");
  controls.addEventListener("submit", function (event) { event.preventDefault(); });
  controls.removeAttribute("hidden");
})();
