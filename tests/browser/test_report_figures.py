"""Figures are drawn where the library has their points, on axes that say so, and so are tables."""

import re

import numpy as np
import pytest
from scipy.special import ndtri
from shown import UNFOLD, parts, silence, tables

from fedgauge.metrics.bands import DET, GAIN, PR, PR_GAIN, ROC
from fedgauge.report.figures import TOLERANCE

_KINDS = ["exact sum", "distributed noise", "local reports", "classes", "label parties"]
_CURVES = (ROC, PR, DET, PR_GAIN, GAIN)
# A tenth of a pixel, of 286: coordinates have one decimal.
_PIXEL = 0.1 / 286
_DRAWN = """id => {
  const svg = document.querySelector(`#${id} svg`), ticks = {x: [], y: []};
  for (const line of svg.querySelectorAll(".grid")) {
    const [, x, y, way] = line.getAttribute("d").match(/^M([\\d.e-]+) ([\\d.e-]+)([VH])/);
    const text = line.nextElementSibling.textContent;
    if (way === "V") ticks.x.push([+x, text]); else ticks.y.push([+y, text]);
  }
  const lines = {};
  for (const path of svg.querySelectorAll("path:not(.grid, .axis)"))
    (lines[path.getAttribute("class")] ??= []).push(path.getAttribute("d"));
  const dots = [...svg.querySelectorAll(".dot")].map(
    dot => ["cx", "cy"].map(name => +dot.getAttribute(name)));
  return {ticks, lines, dots};
}"""


class Drawing:
    """Marks of a figure in the numbers that its axes say."""

    def __init__(self, page, figure, number=float):
        raw = page.evaluate(_DRAWN, figure)
        self.scales = [_scale(raw["ticks"][way], number) for way in "xy"]
        self.lines = {kind: [self._line(d) for d in paths] for kind, paths in raw["lines"].items()}
        self.dots = self._put(np.array(raw["dots"]).reshape(-1, 2))

    def _line(self, path):
        text = path.rstrip("Z").replace("M", " ").replace("L", " ").split()
        return self._put(np.array(text, dtype=float).reshape(-1, 2))

    def _put(self, pixels):
        columns = zip(self.scales, pixels.T, strict=True)
        return np.stack([slope * column + start for (slope, start), column in columns], axis=1)


def _scale(ticks, number):
    """Slope and start of an axis, from what its ticks say; all of them agree."""
    pixels, values = np.array([(at, number(text)) for at, text in ticks]).T
    slope, start = np.polyfit(pixels, values, 1)
    assert np.abs(slope * pixels + start - values).max() < 1e-3 * abs(slope) * 286
    return slope, start


def put(kind, x, y):
    """A line of the library's as far as it is drawn, and as it is."""
    if kind is DET:  # on normal deviates, as Martin et al. 1997 draw it
        x, y = (ndtri(np.clip(each, 0.001, 0.999)) for each in (x, y))
    if kind is PR:  # from a recall of 1%: before, precision hangs on few examples
        x, y = np.append(0.01, x[x > 0.01]), np.append(np.interp(0.01, x, y), y[x > 0.01])
    if kind is PR_GAIN:
        y = np.maximum(y, -0.25)
    return np.stack([x, y], axis=1)


def off(points, line):
    """How far the farthest of some points is from a line."""
    start, along = line[:-1], np.diff(line, axis=0)
    away = points[:, np.newaxis] - start
    length = np.maximum((along**2).sum(axis=1), 1e-30)
    where = np.clip((away * along).sum(axis=2) / length, 0, 1)
    return np.linalg.norm(away - where[..., np.newaxis] * along, axis=2).min(axis=1).max()


@pytest.mark.parametrize("kind", _KINDS)
def test_every_curve_and_its_bands_are_the_library_s(open_report, kind):
    result, page = open_report(kind)
    for part in parts(page, result):
        page.evaluate(UNFOLD)
        cells = {name: rows[1:] for name, _, rows in tables(page)}
        for curve in _CURVES:
            check_curve(page, part, curve, np.array(cells[curve.name], dtype=float))
        check_calibration(part.calibration_curve(), Drawing(page, "calibration"), cells)
        check_decision(part.decision_curve(), Drawing(page, "decision"), cells)


def check_curve(page, part, kind, rows):
    """A curve is where the library has it: its line, its band, and the numbers in its table."""
    drawing = Drawing(page, kind.name, percent if kind is DET else float)
    line = put(kind, *getattr(part, f"{kind.name}_curve")().points())
    band = getattr(part, f"{kind.name}_band")("pointwise")
    edges = [put(kind, band.x, edge) for edge in (band.low, band.high)]
    long = 2 * ndtri(0.999) if kind is DET else 1.25  # the longer axis
    (drawn,), (area,) = drawing.lines["curve"], drawing.lines["band"]
    assert off(rows, line) <= 1e-4
    assert off(drawn, rows) <= _PIXEL * long
    assert off(line, drawn) <= (TOLERANCE + _PIXEL) * long
    closed = np.concatenate([*edges[:1], edges[1][::-1]])
    assert off(area, closed) <= _PIXEL * long
    assert off(np.concatenate(edges), area) <= (TOLERANCE + _PIXEL) * long
    if kind.area is not None:
        title, said = kind.area[1], page.locator(f"#{kind.name} figcaption").text_content()
        assert f"{title} {getattr(part, kind.area[0])}" in said


def percent(text):
    """Where a DET curve has its ticks."""
    return ndtri(float(text.removesuffix("%")) / 100)


def check_calibration(curve, drawing, cells):
    points = np.stack([curve.predicted, curve.observed], axis=1)
    ends = np.stack([curve.low, curve.high], axis=1)
    assert drawing.dots == pytest.approx(points, abs=_PIXEL)
    whiskers = np.array(drawing.lines["whisker"])
    assert whiskers[:, :, 1] == pytest.approx(ends, abs=_PIXEL)
    assert whiskers[:, :, 0] == pytest.approx(np.stack([curve.predicted] * 2, 1), abs=_PIXEL)
    assert cells["calibration"] == [
        [four(x), four(y), f"{four(low)} to {four(high)}", f"{round(count):,}"]
        for (x, y), (low, high), count in zip(points, ends, curve.count, strict=True)
    ]


def check_decision(curve, drawing, cells):
    long = abs(drawing.scales[1][0]) * 286
    for kind, values in (("curve", curve.net_benefit), ("curve two", curve.treat_all)):
        (line,) = drawing.lines[kind]
        assert line[:, 0] == pytest.approx(curve.thresholds, abs=_PIXEL)
        assert line[:, 1] == pytest.approx(values, abs=_PIXEL * long + 5.1e-5)
    (band,) = drawing.lines["band"]
    edges = np.append(curve.low, curve.high[::-1])
    assert band[:, 1] == pytest.approx(edges, abs=_PIXEL * long + 5.1e-5)
    columns = curve.thresholds, curve.net_benefit, curve.low, curve.high, curve.treat_all
    assert cells["decision"] == [
        [four(at), four(worth), f"{four(low)} to {four(high)}", four(everybody)]
        for at, worth, low, high, everybody in zip(*columns, strict=True)
    ]


def four(number):
    """Four decimals, and no minus in front of a zero."""
    return f"{float(f'{number:.4f}') + 0.0:.4f}"


@pytest.mark.parametrize("kind", [*_KINDS, "one class", "groups under noise"])
def test_histograms_are_the_library_s(open_report, kind):
    result, page = open_report(kind)
    for part in parts(page, result):
        page.evaluate(UNFOLD)
        found = {name: rows[1:] for name, _, rows in tables(page)}.get("histogram")
        assert (found is None) == (part.withheld is not None)
        if found is not None:
            check_histogram(part.pooled, page, found)


def check_histogram(pooled, page, rows):
    """Bars are as high as shares of a class; by their width, where they differ in it."""
    ends = np.array([row[0].split(" to ") for row in rows], dtype=float)
    bins = [np.abs(pooled.axis.edges - end).argmin() for end in (*ends[:, 0], ends[-1, 1])]
    assert bins[0] == 0
    assert bins[-1] == pooled.axis.bins
    widths = np.diff(pooled.axis.edges[bins])
    density = np.ptp(widths) > 1e-6
    bars = iter(Drawing(page, "histogram").lines.values())
    for row, column in ((0, 1), (1, 2)):
        counts = np.add.reduceat(pooled.likely[row], bins[:-1])
        if not counts.sum():
            assert {each[column] for each in rows} == {"none"}
            continue
        shares = counts / counts.sum()
        assert [each[column] for each in rows] == [four(share) for share in shares]
        ((line,),) = (next(bars),)
        heights = shares / widths if density else shares
        sides = np.stack([pooled.axis.edges[bins[:-1]], pooled.axis.edges[bins[1:]]], axis=1)
        assert line[1:-1, 0].reshape(-1, 2) == pytest.approx(sides, abs=2 * _PIXEL)
        long = max(1.0, heights.max())
        tolerance = (_PIXEL + (5.1e-5 / widths.min() if density else 5.1e-5)) * long
        assert line[1:-1, 1].reshape(-1, 2) == pytest.approx(
            np.stack([heights] * 2, 1), abs=tolerance
        )


@pytest.mark.parametrize("kind", ["classes", "groups under noise", "models"])
def test_slices_gaps_and_models_are_drawn_with_their_intervals(open_report, kind):
    result, page = open_report(kind)
    page.evaluate(UNFOLD)
    cells = {name: rows[1:] for name, _, rows in tables(page)}
    expected = {"by-slice": [line_of(part, str(part.slice)) for part in result.slices]}
    if kind == "groups under noise":
        every = [result.gaps("roc_auc")]
        every += [result.gaps(name, at=0.5) for name in ("recall", "fpr", "precision", "flagged")]
        expected["gaps-0"] = [
            (f"{gaps.metric}: {gap.group} - {gap.against}", gap.difference.value, gap.joint)
            for gaps in every
            for gap in gaps.pairs
        ]
    if kind == "models":
        compared = result.compare("new", "old")
        expected["models-0"] = [
            (title, estimate.value, estimate.interval)
            for title, estimate in (
                ("ROC AUC", compared.roc_auc),
                ("average precision", compared.average_precision),
                ("Brier score, lower is better", compared.brier_score),
            )
        ]
    for figure, rows in expected.items():
        check_lines(page, figure, rows, cells[figure])


def line_of(part, name):
    """Name, value and interval of a slice's ROC AUC; no value where there is none."""
    if silence(part) is not None:
        return name, None, None
    return name, part.roc_auc.value, part.roc_auc.interval


def check_lines(page, figure, rows, cells):
    """Each estimate is written, and drawn as a dot on a line, where there is one."""
    assert [row[0] for row in cells] == [name for name, *_ in rows]
    known = [(value, ends) for _, value, ends in rows if value is not None]
    shown = [row[1:] for row, (_, value, _) in zip(cells, rows, strict=True) if value is not None]
    assert shown == [[four(value), " to ".join(map(four, ends))] for value, ends in known]
    raw = page.evaluate(_DRAWN, figure)
    slope, start = _scale(raw["ticks"]["x"], float)
    dots = slope * np.array(raw["dots"])[:, 0] + start
    lines = [
        [slope * float(x) + start for x in re.match(r"M([\d.e-]+) [\d.e-]+H([\d.e-]+)", d).groups()]
        for d in raw["lines"]["whisker"]
    ]
    assert dots == pytest.approx([value for value, _ in known], abs=1e-3)
    assert np.array(lines) == pytest.approx(np.array([ends for _, ends in known]), abs=1e-3)
