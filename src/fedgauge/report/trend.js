"use strict";
(() => {
  const { find, make, draw, put, table, addCsvButtons, tenths, axes, path, band, figure } = parts;
  const data = JSON.parse(find("data").textContent);
  // Texts in a picture shrink with it: on a phone it has fewer units.
  const narrow = matchMedia("(max-width: 40rem)");
  const size = () => (narrow.matches ? { width: 400, height: 260 } : { width: 760, height: 260 });
  const margins = { left: 58, right: 34, top: 14, bottom: 46 };
  const MOST_DOTS = 120; // looks: of more, a line says as much

  // Neighbouring looks of which something is known, without long times between them.
  function runs(values) {
    const found = [];
    values.forEach((value, at) => {
      if (value === null || value === undefined) return;
      if (found.at(-1)?.at(-1) === at - 1 && !data.gaps.includes(at)) found.at(-1).push(at);
      else found.push([at]);
    });
    return found;
  }
  const along = (run, values) => [run.map((at) => data.places[at]), run.map((at) => values[at])];
  const stairs = ([xs, ys]) => [xs.flatMap((x, i) => (i ? [x, x] : [x])), ys.flatMap((y, i) => (i ? [ys[i - 1], y] : [y]))];
  const whisker = (place, at, low, high) =>
    draw("path", { class: "whisker", d: path(place, [[data.places[at], data.places[at]], [low[at], high[at]]]) });

  function drawSeries(each) {
    const { value, low, high, other, alarms } = each;
    const box = { ...size(), ...margins };
    const ticks = { x: data.ticks[narrow.matches ? "narrow" : "wide"], y: tenths(...each.reach) };
    const { svg, place } = axes([data.limits, each.reach], [data.axis, each.label], ticks, box);
    for (const run of runs(low)) {
      if (run.length > 1) svg.append(draw("path", { class: "band", d: band(place, along(run, low), along(run, high)) }));
      else svg.append(whisker(place, run[0], low, high));
    }
    for (const run of runs(other)) svg.append(draw("path", { class: "curve two", d: path(place, along(run, other)) }));
    for (const run of runs(value)) {
      const line = along(run, value);
      svg.append(draw("path", { class: "curve", d: path(place, each.steps ? stairs(line) : line) }));
      for (const at of run) if (run.length === 1 || value.length <= MOST_DOTS) svg.append(dot(place, each, at));
    }
    for (const at of alarms) svg.append(mark(place, each, at));
    return svg;
  }
  const said = (each, at) => draw("title", {}, `${data.looks[at]}: ${each.rows[at].filter(Boolean).slice(0, 2).join(", ")}`);
  const dot = (place, each, at) =>
    draw("circle", { class: "dot", cx: place.x(data.places[at]), cy: place.y(each.value[at]), r: 3 }, said(each, at));
  // A shape of its own, so that nobody needs to tell colours apart.
  function mark(place, each, at) {
    const [x, y] = [place.x(data.places[at]), place.y(each.value[at] ?? each.reach[0])];
    return draw("path", { class: "mark", d: `M${x} ${y - 8}L${x + 8} ${y + 6}L${x - 8} ${y + 6}Z` }, said(each, at));
  }
  function show(each) {
    const rows = each.rows.map((row, at) => [data.looks[at], ...row]);
    if (!each.value.some((value) => value !== null)) {
      return put(each.id, make("h3", {}, each.title), make("p", {}, "Undefined in every look."));
    }
    figure(each.id, each.title, each.note, drawSeries(each), [each.columns, ...rows]);
  }
  function showAll() {
    data.figures.forEach(show);
  }

  for (const each of data.figures) document.querySelector(`#${each.where} .over-time`).append(make("div", { id: each.id }));
  for (const name of ["thresholds"]) {
    find(name).hidden = !data.figures.some((each) => each.where === name);
    document.querySelector(`nav a[href="#${name}"]`).hidden = find(name).hidden;
  }
  put("last", `Last look: ${data.looks.at(-1)}`);
  put("strip", make("ul", { class: "strip" }, ...data.headline.map(([title, value, ends]) => make("li", {}, title, make("b", {}, value), make("span", {}, ends)))));
  put("legend", `Line: the number at each look. Shaded: its interval${data.level ? ` at ${data.level}` : ""}. Triangle: an alarm. A gap: a look in which it is not known, or a time without looks.`);
  showAll();
  narrow.addEventListener("change", showAll);
  addCsvButtons(document);
})();
