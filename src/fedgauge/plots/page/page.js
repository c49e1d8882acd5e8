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
    const held = `Shaded: where the curve of the population lies at each single point, with ${part().level} confidence. Dashed: a model without skill.`;
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
    const dot = draw("circle", { class: "point", r: 8, tabindex: "0", role: "slider", "aria-label": `Threshold, on the ${curve.title}`, "aria-valuemin": 0, "aria-valuemax": xs.length - 1 });
    svg.append(dot);
    svg.classList.add("moves");
    points[curve.name] = { svg, place, dot, xs, ys };
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

  function drawHistogram({ edges, negatives, positives }) {
    const bars = edges.length - 1;
    const top = Math.max(...(negatives ?? [0]), ...(positives ?? [0]));
    const step = Math.max(1, Math.round(bars / 4));
    const ticks = edges.map((text, i) => [i, text]).filter(([i]) => i % step === 0);
    const { svg, place } = axes([[0, bars], [0, 1.05 * top]], ["Score", "Share of the class"], { x: ticks, y: tenths(0, 1.05 * top) });
    const steps = (shares) => {
      const xs = shares.flatMap((_, i) => [i, i + 1]);
      const ys = shares.flatMap((each) => [each, each]);
      return path(place, [[0, ...xs, bars], [0, ...ys, 0]]);
    };
    if (negatives) svg.append(draw("path", { class: "bar", d: steps(negatives) }));
    if (positives) svg.append(draw("path", { class: "bar two", d: steps(positives) }));
    const note = "Filled: negatives. Outlined: positives. Each adds up to 1.";
    const cell = (shares, i) => (shares ? share(shares[i]) : "none");
    const rows = edges.slice(1).map((edge, i) => [`${edges[i]} to ${edge}`, cell(negatives, i), cell(positives, i)]);
    figure("histogram", "Scores by class", note, svg, [["score", "share of negatives", "share of positives"], ...rows]);
  }

  function drawCalibration({ predicted, observed, low, high, count: counts, rule }) {
    const { svg, place } = axes([[0, 1], [0, 1]], ["Mean score", "Share of positives"]);
    svg.append(draw("path", { class: "chance", d: path(place, [[0, 1], [0, 1]]) }));
    predicted.forEach((x, i) => {
      svg.append(draw("path", { class: "whisker", d: path(place, [[x, x], [low[i], high[i]]]) }));
      svg.append(draw("circle", { class: "dot", cx: place.x(x), cy: place.y(observed[i]), r: 4 }));
    });
    const note = `Dashed: scores that are right. Points are ${rule}; lines are intervals at ${part().level}.`;
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
    const better = useful.length ? `Surely better than both from ${useful.join(", ")}.` : "Nowhere surely better than both.";
    const note = `Line: acting on the model. Dashed: treating everybody. Nobody is worth 0. ${better}`;
    const rows = thresholds.map((at, i) => [share(at), share(benefit[i]), span(share(low[i]), share(high[i])), share(everybody[i])]);
    figure("decision", "Decision curve", note, svg, [["threshold", "net benefit", "interval", "treating everybody"], ...rows]);
  }

  // Numbers over all thresholds, and their errors

  const headline = ["roc_auc", "average_precision", "ks_statistic", "brier_score", "log_loss", "calibration_slope"];
  function showNumbers() {
    const { metrics, level } = part();
    const defined = metrics.filter((each) => each.value !== undefined);
    const first = headline.map((name) => defined.find((each) => each.name === name)).filter(Boolean);
    put("strip", make("ul", { class: "strip" }, ...first.map((each) => make("li", {}, each.title, make("b", {}, each.value), make("span", {}, between(each.interval))))));
    const [people, sure] = [`population, ${level}`, data.reports[state.report].noisy ? `pooled data, ${level}` : "pooled data, surely"];
    const rows = metrics.map((each) => each.value === undefined
      ? [each.title, "undefined", "", "", ""]
      : [each.title, each.value, between(each.interval), between(each.bounds), each.caution ? `rough: ${each.caution}` : ""]);
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
    for (const { dot, place, xs, ys } of Object.values(points)) {
      const shown = xs[at] !== null && ys[at] !== null;
      fill(dot, { cx: place.x(shown ? xs[at] : 0), cy: place.y(shown ? ys[at] : 1), "aria-valuenow": at, "aria-valuetext": said }, []);
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
