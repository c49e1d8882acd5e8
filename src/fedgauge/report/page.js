"use strict";
(() => {
  const { find, make, draw, fill, put, share, count, percent, between, span, table, quoted, save, button, addCsvButtons, square, tenths, axes, clipped, path, band, figure } = parts;
  const data = JSON.parse(find("data").textContent);
  const state = { report: 0, part: 0, at: 0 };
  const part = () => data.reports[state.report].parts[state.part];

  const points = {}; // of the curves on which the threshold is a point
  function drawCurve(curve) {
    const ticks = curve.ticks && { x: curve.ticks, y: curve.ticks };
    const { svg, place } = axes(curve.limits, curve.labels, ticks && thinned(ticks));
    clipped(svg).append(
      draw("path", { class: "band", d: band(place, ...curve.band) }),
      draw("path", { class: "chance", d: path(place, curve.chance) }),
      draw("path", { class: "curve", d: path(place, curve.line) }));
    const held = `Shaded: the ${part().level} interval of the population's curve at each point. Dashed: a model without skill.`;
    const note = curve.area ? `${curve.area}. ${held}` : held;
    const said = (value) => (curve.ticks ? value.toFixed(4) : share(value));
    const where = curve.ticks ? curve.labels.map((each) => `${each}, normal deviate`) : curve.labels;
    const rows = curve.line[0].map((x, i) => [said(x), said(curve.line[1][i])]);
    if (curve.name === "roc" || curve.name === "pr") addPoint(curve, svg, place);
    figure(curve.name, curve.title, note, svg, [where, ...rows]);
    // A picture hides what is in it from a screen reader, and this one has a slider in it.
    if (points[curve.name]?.svg === svg) svg.setAttribute("role", "group");
  }
  const thinned = (ticks) => ({ x: ticks.x.filter((_, i) => i % 2 === 0), y: ticks.y });

  function addPoint(curve, svg, place) {
    const { metrics } = part().thresholds;
    const [xs, ys] = curve.name === "roc" ? [metrics.fpr[0], metrics.recall[0]] : [metrics.recall[0], metrics.precision[0]];
    const missing = draw("text", { class: "missing", "text-anchor": "start", hidden: "" }, "precision is undefined: nobody is flagged");
    const dot = draw("circle", { class: "point", r: 8, tabindex: "0", role: "slider", "aria-label": `Threshold, on the ${curve.title}`, "aria-valuemin": 0, "aria-valuemax": xs.length - 1 });
    svg.append(missing, dot);
    svg.classList.add("moves");
    points[curve.name] = { svg, place, dot, xs, ys, missing };
    const drag = (event) => {
      const box = svg.getBoundingClientRect();
      const [px, py] = [((event.clientX - box.left) * square.width) / box.width, ((event.clientY - box.top) * square.height) / box.height];
      set(nearest(points[curve.name], px, py));
    };
    svg.addEventListener("pointerdown", (event) => {
      svg.setPointerCapture(event.pointerId);
      drag(event);
      dot.focus({ preventScroll: true });
      event.preventDefault();
    });
    svg.addEventListener("pointermove", (event) => svg.hasPointerCapture(event.pointerId) && drag(event));
    dot.addEventListener("keydown", (event) => {
      const last = xs.length - 1;
      const to = { ArrowRight: state.at + 1, ArrowUp: state.at + 1, ArrowLeft: state.at - 1, ArrowDown: state.at - 1, PageUp: state.at + 10, PageDown: state.at - 10, Home: 0, End: last }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      set(Math.min(Math.max(to, 0), last));
    });
  }
  function nearest({ place, xs, ys }, px, py) {
    let [best, least] = [state.at, Infinity];
    xs.forEach((x, i) => {
      if (x === null || ys[i] === null) return;
      const away = (place.x(x) - px) ** 2 + (place.y(ys[i]) - py) ** 2;
      if (away < least) [best, least] = [i, away];
    });
    return best;
  }

  function drawHistogram({ edges, negatives, positives, at, ticks, density, label }) {
    const ends = at ?? edges;
    const last = edges.length - 1;
    const high = (shares) => shares?.map((each, i) => (density ? each / (ends[i + 1] - ends[i]) : each));
    const [filled, outlined] = [high(negatives), high(positives)];
    const top = 1.05 * Math.max(...(filled ?? [0]), ...(outlined ?? [0]), 1e-9);
    const labels = [label ?? "Score", density ? "Share of the class, by width" : "Share of the class"];
    const { svg, place } = axes([[ends[0], ends[last]], [0, top]], labels, ticks && { x: ticks, y: tenths(0, top) });
    const steps = (heights) => {
      const xs = heights.flatMap((_, i) => [ends[i], ends[i + 1]]);
      const ys = heights.flatMap((each) => [each, each]);
      return path(place, [[ends[0], ...xs, ends[last]], [0, ...ys, 0]]);
    };
    if (filled) svg.append(draw("path", { class: "bar", d: steps(filled) }));
    if (outlined) svg.append(draw("path", { class: "bar two", d: steps(outlined) }));
    const adds = density ? "Bars differ in width: the area of each class is 1." : "Each adds up to 1.";
    const note = `Filled: negatives. Outlined: positives. ${adds}`;
    const cell = (shares, i) => (shares ? share(shares[i]) : "none");
    const rows = edges.slice(1).map((edge, i) => [edges[i] === edge ? String(edge) : `${edges[i]} to ${edge}`, cell(negatives, i), cell(positives, i)]);
    figure("histogram", "Scores by class", note, svg, [["score", "share of negatives", "share of positives"], ...rows]);
  }

  function drawCalibration({ predicted, observed, low, high, count: counts, rule }) {
    const { svg, place } = axes([[0, 1], [0, 1]], ["Mean score", "Share of positives"]);
    svg.append(draw("path", { class: "chance", d: path(place, [[0, 1], [0, 1]]) }));
    predicted.forEach((x, i) => {
      svg.append(draw("path", { class: "whisker", d: path(place, [[x, x], [low[i], high[i]]]) }));
      svg.append(draw("circle", { class: "dot", cx: place.x(x), cy: place.y(observed[i]), r: 4 }));
    });
    const note = `Dashed: perfect calibration. Points are ${rule}; lines are intervals at ${part().level}.`;
    const rows = predicted.map((x, i) => [share(x), share(observed[i]), span(share(low[i]), share(high[i])), count(counts[i])]);
    figure("calibration", "Calibration", note, svg, [["mean score", "share of positives", "interval", "examples"], ...rows]);
  }

  function drawDecision({ thresholds, net_benefit: benefit, low, high, treat_all: everybody, limits, useful }) {
    const { svg, place } = axes([[0, 1], limits], ["Threshold", "Net benefit"]);
    clipped(svg).append(
      draw("path", { class: "band", d: band(place, [thresholds, low], [thresholds, high]) }),
      draw("path", { class: "axis", d: path(place, [[0, 1], [0, 0]]) }),
      draw("path", { class: "curve two", d: path(place, [thresholds, everybody]) }),
      draw("path", { class: "curve", d: path(place, [thresholds, benefit]) }));
    if (thresholds.length === 1) { // a line of one point is not seen
      svg.append(draw("path", { class: "whisker", d: path(place, [[thresholds[0], thresholds[0]], [low[0], high[0]]]) }));
      svg.append(draw("circle", { class: "dot", cx: place.x(thresholds[0]), cy: place.y(benefit[0]), r: 4 }));
    }
    const better = useful.length ? `Better than both with ${part().level} confidence ${useful.join(", ")}.` : "Nowhere better than both by more than chance.";
    const note = `Line: treating by the model. Dashed: treating everybody. Treating nobody is worth 0. ${better}`;
    const rows = thresholds.map((at, i) => [share(at), share(benefit[i]), span(share(low[i]), share(high[i])), share(everybody[i])]);
    figure("decision", "Decision curve", note, svg, [["threshold", "net benefit", "interval", "treating everybody"], ...rows]);
  }

  // Estimates below each other: names above their lines, or beside them where there are many

  const manyRows = 24;
  // In the middle: what sets names apart may stand at their ends.
  const cut = (text, most) => (text.length > most ? `${text.slice(0, Math.ceil(most / 2) - 1)}\u2026${text.slice(-Math.floor(most / 2))}` : text);
  function drawForest({ id, title, label, note, line: [line, meaning], rows }) {
    const many = rows.length > manyRows;
    const [step, left, most] = many ? [18, 150, 24] : [36, 14, 30];
    const known = rows.filter((row) => row[1] !== null);
    const seen = known.flatMap((row) => row.slice(1, 4));
    let [low, high] = seen.length ? [Math.min(...seen), Math.max(...seen)] : [line, line];
    if (line === 0 || (line > low - (high - low) && line < high)) [low, high] = [Math.min(low, line), Math.max(high, line)];
    const room = 0.04 * (high - low) || 0.05;
    [low, high] = [low - room, high + room];
    const across = (value) => left + ((square.width - left - 14) * (value - low)) / (high - low);
    const bottom = 8 + step * rows.length;
    const svg = draw("svg", { viewBox: `0 0 ${square.width} ${bottom + 44}` });
    for (const [at, text] of tenths(low, high)) {
      svg.append(draw("path", { class: "grid", d: `M${across(at)} 4V${bottom}` }));
      svg.append(draw("text", { x: across(at), y: bottom + 16, "text-anchor": "middle" }, text));
    }
    const crossed = line > low && line < high;
    if (crossed) svg.append(draw("path", { class: "chance", d: `M${across(line)} 4V${bottom}` }));
    svg.append(draw("path", { class: "axis", d: `M${left} ${bottom}H${square.width - 14}` }));
    svg.append(draw("text", { x: (left + square.width - 14) / 2, y: bottom + 36, "text-anchor": "middle" }, label));
    rows.forEach(([name, value, from, to, told], i) => {
      const top = 8 + step * i;
      const y = top + (many ? 9 : 25);
      svg.append(draw("text", { class: "key", x: many ? left - 8 : left, y: top + 13, "text-anchor": many ? "end" : "start" }, cut(name, most)));
      if (!many || value === null) svg.append(draw("text", { x: many ? left + 4 : square.width - 14, y: top + 13, "text-anchor": many ? "start" : "end" }, told));
      if (value === null) return;
      svg.append(draw("path", { class: "whisker", d: `M${across(from)} ${y}H${across(to)}` }));
      svg.append(draw("circle", { class: "dot", cx: across(value), cy: y, r: many ? 3 : 4 }));
    });
    const cells = rows.map(([name, value, from, to, told]) => (value === null ? [name, told, ""] : [name, share(value), span(share(from), share(to))]));
    figure(id, title, crossed ? `${note} Dashed: ${meaning}.` : note, svg, [["", label, "interval"], ...cells]);
  }
  function drawForests() {
    const { forests } = data.reports[state.report];
    put("forests", ...forests.map(({ id, title, rows }) => {
      const place = make("div", { id });
      return rows.length > manyRows ? make("details", {}, make("summary", {}, `Figure: ${title}`), place) : place;
    }));
    forests.forEach(drawForest);
  }

  // Numbers over all thresholds, and their errors

  const headline = ["roc_auc", "average_precision", "ks_statistic", "brier_score", "log_loss", "calibration_slope"];
  const note = ({ plain, caution }) => [plain && `plain ${plain}, as other packages print it: chance keeps it above 0 even for right scores`, caution && `rough: ${caution}`].filter(Boolean).join("; ");
  function showNumbers() {
    const { metrics, level } = part();
    const defined = metrics.filter((each) => each.value !== undefined);
    const first = headline.map((name) => defined.find((each) => each.name === name)).filter(Boolean);
    const strip = make("ul", { class: "strip" }, ...first.map((each) => make("li", {}, each.title, make("b", {}, each.value), make("span", {}, between(each.interval)))));
    put("strip", first.length ? strip : make("p", {}, "None of the metrics over all thresholds is defined here."));
    const [people, sure] = [`population, ${level}`, data.reports[state.report].noisy ? `pooled data, ${level}` : "pooled data, certain"];
    const rows = metrics.map((each) => each.value === undefined
      ? [each.title, "undefined", "", "", ""]
      : [each.title, each.value, between(each.interval), between(each.bounds), note(each)]);
    put("metrics", make("details", {}, make("summary", {}, "All metrics, and what each says"),
      table("Metrics over all thresholds", ["metric", "value", people, sure, "note"], rows, "metrics"),
      make("dl", { class: "facts" }, ...defined.flatMap((each) => [make("dt", {}, each.title), make("dd", {}, data.over[each.name][1])]))));
    const errors = defined.filter((each) => each.parts && Object.keys(each.parts).length);
    find("errors").hidden = !errors.length;
    put("parts", table("Sources of error", ["metric", "value", "binning, at most", "noise", "sampling", sure],
      errors.map((each) => [each.title, each.value, each.parts.binning ?? "", each.parts.noise ?? "none", each.parts.sampling ?? "", between(each.bounds)]), "errors"));
  }

  // One threshold

  const outcomes = { tn: "true negatives", fp: "false positives", fn: "false negatives", tp: "true positives" };
  function set(at) {
    state.at = at;
    const { labels, metrics } = part().thresholds;
    const slider = find("slider");
    slider.value = at;
    const said = `${labels[at]}: recall ${share(metrics.recall[0][at])}, precision ${share(metrics.precision[0][at])}, false positive rate ${share(metrics.fpr[0][at])}`;
    slider.setAttribute("aria-valuetext", said);
    find("at").textContent = labels[at];
    for (const { dot, place, xs, ys, missing } of Object.values(points)) {
      const known = xs[at] !== null && ys[at] !== null;
      const [cx, cy] = [place.x(xs[at] ?? 0), place.y(ys[at] ?? 0.5)];
      fill(dot, { cx, cy, "aria-valuenow": at, "aria-valuetext": said }, []);
      dot.classList.toggle("hollow", !known);
      fill(missing, { x: cx + 14, y: cy + 4 }, []);
      missing.toggleAttribute("hidden", known);
    }
    showMatrix(at);
    showMetrics(at);
    showElsewhere();
  }
  function showMatrix(at) {
    const { counts } = part().thresholds;
    const cell = (name) => {
      const [value, low, high] = counts[name].map((each) => count(each[at]));
      return make("td", { id: name }, outcomes[name], make("b", {}, value), span(low, high));
    };
    const row = (title, ...names) => make("tr", {}, make("th", { scope: "row" }, title), ...names.map(cell));
    const head = make("tr", {}, ...["", "not flagged", "flagged"].map((each) => (each ? make("th", { scope: "col" }, each) : make("td", {}))));
    put("matrix", make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Confusion matrix" },
      make("table", { class: "outcomes" }, make("caption", {}, "Confusion matrix"), make("thead", {}, head),
        make("tbody", {}, row("negative", "tn", "fp"), row("positive", "fn", "tp")))));
  }
  function showMetrics(at) {
    const { metrics } = part().thresholds;
    const rows = Object.entries(metrics).map(([name, [value, low, high]]) => [data.at[name][0], share(value[at]), value[at] === null ? "" : span(share(low[at]), share(high[at]))]);
    const made = table("At this threshold", ["metric", "value", `population, ${part().level}`], rows, "threshold");
    [...made.querySelectorAll("tbody tr")].forEach((row, i) => row.setAttribute("data-metric", Object.keys(metrics)[i]));
    put("at-metrics", made, wholeGrid());
    addCsvButtons(find("at-metrics"));
  }
  let grid; // of the part that is shown: made once, as it does not change with the threshold
  function wholeGrid() {
    if (grid) return grid;
    const { labels, counts, metrics } = part().thresholds;
    const columns = ["threshold", ...Object.keys(outcomes), ...Object.keys(metrics).flatMap((name) => [name, `${name} low`, `${name} high`])];
    const rows = () => labels.map((label, at) => [label, ...Object.keys(outcomes).map((name) => counts[name][0][at]), ...Object.values(metrics).flatMap((each) => each.map((column) => column[at] ?? ""))]);
    const press = () => save("thresholds.csv", new Blob([[columns, ...rows()].map((row) => row.map((each) => quoted(String(each))).join(",")).join("\r\n") + "\r\n"], { type: "text/csv" }));
    grid = make("div", { class: "tools" }, button("CSV of all thresholds", "Save as CSV: all thresholds", press));
    return grid;
  }
  function showElsewhere() {
    const p = find("prevalence").valueAsNumber / 100;
    const [f, r] = part().thresholds.rates.map((each) => each[state.at]);
    if (!(p > 0 && p < 1) || f === null || r === null) return put("elsewhere", "");
    const ppv = (r * p) / (r * p + f * (1 - p));
    const npv = ((1 - f) * (1 - p)) / ((1 - f) * (1 - p) + (1 - r) * p);
    const told = (value) => (Number.isNaN(value) ? "undefined" : value.toFixed(4));
    put("elsewhere", `PPV ${told(ppv)}, NPV ${told(npv)} where ${percent(p)} are positive.`);
  }
  function listWishes() {
    const kind = find("want").value;
    const told = (wish) => (kind === "cost" ? `${wish} times` : `${+(100 * wish).toFixed(1)}%`);
    const middle = { recall: 0.9, fpr: 0.05, precision: 0.5, cost: 1 }[kind];
    put("wanted", ...part().thresholds.wishes[kind].map(([wish], i) => make("option", { value: i, ...(Math.abs(wish - middle) < 1e-9 ? { selected: "" } : {}) }, told(wish))));
  }
  function choose() {
    const [kind, wanted] = [find("want"), find("wanted")];
    const [, at] = part().thresholds.wishes[kind.value][wanted.value];
    const asked = `${kind.selectedOptions[0].textContent} ${wanted.selectedOptions[0].textContent}`;
    if (at === null) return put("told", `No threshold has ${asked}.`);
    set(at);
    put("told", `${asked}: threshold ${find("slider").getAttribute("aria-valuetext")}.`);
  }

  // The page

  function showPart() {
    const shown = part();
    grid = undefined;
    for (const name of Object.keys(points)) delete points[name];
    put("told", "");
    showNumbers();
    const known = shown.thresholds !== undefined;
    find("explorer").hidden = !known;
    find("why").hidden = known;
    find("why").textContent = known ? "" : `There are no curves and thresholds: ${shown.why}`;
    if (known) {
      shown.curves.forEach(drawCurve);
      find("more").hidden = shown.curves.length === 2;
      find("slider").max = shown.thresholds.labels.length - 1;
      listWishes();
      set(shown.thresholds.start);
    }
    find("scores").hidden = !shown.histogram;
    if (shown.histogram) drawHistogram(shown.histogram);
    find("probabilities").hidden = !shown.calibration;
    if (shown.calibration) {
      drawCalibration(shown.calibration);
      drawDecision(shown.decision);
    }
    addCsvButtons(document);
  }
  function showReport() {
    state.part = 0;
    for (const each of document.querySelectorAll("[data-report]")) each.hidden = +each.dataset.report !== state.report;
    const { parts } = data.reports[state.report];
    options("part", parts.map((each) => each.name));
    find("slices").hidden = parts.length === 1;
    drawForests();
    showPart();
    for (const link of document.querySelectorAll("nav a")) link.hidden = document.querySelector(link.getAttribute("href")).hidden;
  }
  function options(id, names) {
    put(id, ...names.map((name, i) => make("option", { value: i }, name)));
    find(id).parentElement.hidden = names.length === 1;
  }

  find("slider").addEventListener("input", (event) => set(+event.target.value));
  find("want").addEventListener("change", listWishes);
  find("choose").addEventListener("click", choose);
  find("prevalence").addEventListener("input", showElsewhere);
  find("part").addEventListener("change", (event) => {
    state.part = +event.target.value;
    showPart();
  });
  find("which").addEventListener("change", (event) => {
    state.report = +event.target.value;
    showReport();
  });
  options("which", data.reports.map((each) => each.name));
  showReport();
})();
