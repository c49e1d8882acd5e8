"""One slice of a result as the numbers that its figures and tables are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from fedgauge.errors import UndefinedMetric
from fedgauge.measures.bands import Band
from fedgauge.measures.intervals import Estimate, show
from fedgauge.measures.kinds import DET, GAIN, PR, PR_GAIN, ROC, CurveKind
from fedgauge.measures.metric import metrics_of
from fedgauge.plots.page.thinned import line, rounded
from fedgauge.plots.page.thresholds import thresholds_of
from fedgauge.results.evaluation import Evaluation
from fedgauge.typing import Floats

_CURVES: Final = (ROC, PR, DET, PR_GAIN, GAIN)
_BARS: Final = 48  # of a histogram
_DET_TICKS: Final = (0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999)
_MOST_TICKS: Final = 11
_LOGIT_TICKS: Final = (0.5, 0.9, 0.1, 0.99, 0.01, 0.999, 0.001, 0.9999, 0.0001)
_GAIN_FROM: Final = -0.25  # PR-gain curves go to minus infinity
_LEAST_BENEFIT: Final = 1e-3  # that a figure is made for
# Where a decision curve is read as one of many: at all thresholds it takes half of all the time.
_RISKS: Final = (0.01, 0.02, 0.03, 0.04, *(risk / 20 for risk in range(1, 20)))
_RECALL_FROM: Final = 0.01  # as pictures of PR curves: before, precision hangs on few examples


def part_of(result: Evaluation, *, brief: bool = False) -> dict[str, Any]:
    """What the page shows of a result of one model and class, as plain data.

    To be `brief`, as one of many, it has ROC and PR curve alone, and fewer thresholds.

    ``why`` says why there are no curves and thresholds, where there are none.
    """
    part: dict[str, Any] = {"name": str(result.slice), "level": f"{result.level * 100:g}%"}
    part["metrics"] = [_metric(result, row.name, row.title) for row in _listed()]
    part["histogram"] = _histogram(result)
    try:
        part["curves"] = [_curve(result, kind) for kind in _CURVES[: 2 if brief else None]]
        part["thresholds"] = thresholds_of(result, brief=brief)
    except UndefinedMetric as error:
        return part | {"why": str(error)}
    return part | _of_probabilities(result, _few_risks(result) if brief else None)


def _listed() -> list[Any]:
    return [row for row in metrics_of(Evaluation) if row.listed]


def _metric(result: Evaluation, name: str, title: str) -> dict[str, Any]:
    """A metric as it is read: numbers in the words of `fedgauge show`."""
    told: dict[str, Any] = {"name": name, "title": title}
    try:
        estimate: Estimate = getattr(result, name)
    except UndefinedMetric:
        return told
    told["value"] = show(estimate.value)
    told["interval"] = _shown(estimate.interval)
    told["bounds"] = _shown(estimate.bounds)
    told["parts"] = {source: _size(error) for source, error in estimate.parts.items()}
    told["sizes"] = {source: float(f"{error:.3g}") for source, error in estimate.parts.items()}
    return told | ({"caution": estimate.caution} if estimate.caution else {})


def _shown(ends: tuple[float, float] | None) -> list[str] | None:
    """Both ends; None where there are none, as of calibration slopes, whose bounds are infinite."""
    if ends is None or not all(map(math.isfinite, ends)):
        return None
    return [show(end) for end in ends]


def _size(error: float) -> str:
    """How large an error is: two digits say enough, however small it is."""
    return "0" if error == 0 else f"{error:.2g}"


def _curve(result: Evaluation, kind: CurveKind[Any]) -> dict[str, Any]:
    x, y = getattr(result, f"{kind.name}_curve")().points()
    band: Band = getattr(result, f"{kind.name}_band")("pointwise")
    told: dict[str, Any] = {
        "name": kind.name,
        "title": kind.title,
        "labels": list(kind.labels),
        "limits": [[0.0, 1.0], [0.0, 1.0]],
        "chance": _chance(result, kind),
    }
    if kind.area is not None:
        metric, brief = kind.area
        told["area"] = f"{brief} {getattr(result, metric)}"
    if kind is DET:
        return told | _deviates(x, y, band)
    if kind is PR_GAIN:
        told["limits"] = [[0.0, 1.0], [_GAIN_FROM, 1.0]]
        y = np.maximum(y, _GAIN_FROM)
        band = band._replace(low=np.maximum(band.low, _GAIN_FROM))
    start = _RECALL_FROM if kind is PR else -1.0
    edges = [line(*_from(start, band.x, edge)) for edge in (band.low, band.high)]
    return told | {"line": line(*_from(start, x, y)), "band": edges}


def _from(start: float, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """As much of a line as lies beyond an abscissa."""
    beyond = x > start
    if beyond.all():
        return x, y
    return np.append(start, x[beyond]), np.append(np.interp(start, x, y), y[beyond])


def _deviates(x: Floats, y: Floats, band: Band) -> dict[str, Any]:
    """A DET curve as it is drawn, on normal deviates, with ticks that say the rates."""
    from scipy.special import ndtri  # loaded only where a page is made

    ends = _DET_TICKS[0], _DET_TICKS[-1]

    def put(rates: Floats) -> Floats:
        deviates: Floats = ndtri(np.clip(rates, *ends))
        return deviates

    reach = float(ndtri(ends[1]))
    ticks = [[float(f"{ndtri(t):.4f}"), f"{100 * t:g}%"] for t in _DET_TICKS]
    scale = 2 * reach, 2 * reach
    return {
        "limits": [[-reach, reach], [-reach, reach]],
        "ticks": ticks,
        "line": line(put(x), put(y), scale),
        "band": [line(put(band.x), put(edge), scale) for edge in (band.low, band.high)],
        "chance": [[-reach, reach], [reach, -reach]],
    }


def _chance(result: Evaluation, kind: CurveKind[Any]) -> list[list[float]]:
    """What a classifier without skill would do."""
    if kind is PR:
        share = result.pooled.positives / (result.pooled.positives + result.pooled.negatives)
        return [[0.0, 1.0], rounded([share, share])]
    return [[0.0, 1.0], [0.0, 0.0] if kind is PR_GAIN else [0.0, 1.0]]


def _histogram(result: Evaluation) -> dict[str, Any] | None:
    """Shares of each class by runs of neighbouring bins; None where nothing is told of them.

    Of the counts that curves are drawn from, so that bars beyond a threshold add up to its rates.
    """
    if result.withheld is not None:
        return None
    pooled = result.pooled
    totals = pooled.likely.sum(axis=1)
    if not totals.any():
        return None
    least = -(-pooled.axis.bins // _BARS)
    even = (width for width in range(least, 2 * least) if pooled.axis.bins % width == 0)
    width = next(even, least)  # the same for all bars where bins allow it
    starts = np.arange(0, pooled.axis.bins, width)
    counts = np.add.reduceat(pooled.likely, starts, axis=1)
    edges = pooled.axis.edges[np.append(starts, pooled.axis.bins)]
    return _scaled(pooled.axis.kind, edges) | {
        "edges": edges.tolist(),
        "negatives": rounded(counts[0] / totals[0]) if totals[0] else None,
        "positives": rounded(counts[1] / totals[1]) if totals[1] else None,
    }


def _scaled(kind: str, edges: Floats) -> dict[str, Any]:
    """How bars stand: as wide as they are, or as high, too, as the area of unequal ones says.

    Bins of equal width in log-odds stand so, with ticks where round scores are; known values stand
    next to each other, each with a bar.
    """
    places = np.arange(len(edges), dtype=np.float64)
    if kind == "logit":
        return _placed("Score, on a scale of log-odds", places, *_round_scores(edges, places))
    if kind == "values":  # the last bin holds the last value alone, and is of no width
        step = -(-(len(edges) - 1) // _MOST_TICKS)
        chosen = slice(None, -1, step)
        return _placed("Score", places, places[chosen] + 0.5, edges[chosen].tolist())
    widths = np.diff(edges)
    return {"density": not np.allclose(widths, widths[0], rtol=1e-6)}


def _round_scores(edges: Floats, places: Floats) -> tuple[Floats, list[float]]:
    """Where round scores stand among bars, and which do with room between them."""
    room = places[-1] / _MOST_TICKS * 1.5
    chosen: dict[float, float] = {}
    for score in _LOGIT_TICKS:
        at = float(np.interp(score, edges, places))
        if edges[0] <= score <= edges[-1] and all(abs(at - x) >= room for x in chosen.values()):
            chosen[score] = at
    return np.array(list(chosen.values())), list(chosen)


def _placed(label: str, places: Floats, at: Floats, scores: list[float]) -> dict[str, Any]:
    ticks = [[place, f"{score:g}"] for place, score in zip(at.tolist(), scores, strict=True)]
    return {"label": label, "at": places.tolist(), "ticks": ticks}


def _few_risks(result: Evaluation) -> list[float] | None:
    """Edges at which a decision curve is read as one of many; None where it has too few."""
    axis = result.pooled.axis
    edges = axis.thresholds[1:] if axis.outside == "clip" else axis.thresholds
    edges = edges[(edges > 0) & (edges < 1)]
    if not len(edges):
        return None
    # Between edges a bin is open, and each interval takes four times as long.
    nearest = np.abs(edges[:, np.newaxis] - np.array(_RISKS)).argmin(axis=0)
    risks: list[float] = edges[np.unique(nearest)].tolist()
    return risks


def _of_probabilities(result: Evaluation, risks: Sequence[float] | None) -> dict[str, Any]:
    """Calibration and decision curve; nothing where scores are no probabilities."""
    try:
        curve, decision = result.calibration_curve(), result.decision_curve(risks)
    except UndefinedMetric:
        return {}
    top = max(float(decision.high.max()), float(decision.treat_all.max()), _LEAST_BENEFIT)
    columns = {
        name: rounded(getattr(decision, name))
        for name in ("thresholds", "net_benefit", "low", "high", "treat_all")
    }
    points = {
        name: rounded(getattr(curve, name)) for name in ("predicted", "observed", "low", "high")
    }
    return {
        "calibration": points
        | {"count": [round(float(n)) for n in curve.count], "rule": curve.rule},
        "decision": columns
        | {
            "limits": [-top / 2, top],  # what is worse leaves the figure
            "useful": [
                f"from {show(low)} to {show(high)}" if low < high else f"at {show(low)}"
                for low, high in decision.useful
            ],
        },
    }
