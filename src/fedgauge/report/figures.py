"""The numbers behind the figures and tables of one slice, at thresholds and along curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.errors import UndefinedMetric
from fedgauge.metrics.bands import DET, GAIN, PR, PR_GAIN, ROC, Band, CurveKind
from fedgauge.metrics.estimate import Estimate, metrics_of, show
from fedgauge.metrics.thresholds import AtThreshold, ConfusionMatrix
from fedgauge.results.evaluation import Evaluation

TOLERANCE: Final = 0.0007  # of the axis: a third of a pixel where a figure is 460 wide
_DECIMALS: Final = 4


def kept(x: Floats, y: Floats, tolerance: float = TOLERANCE) -> NDArray[np.intp]:
    """Which points of a line are enough: no other is farther than `tolerance` from what they draw.

    Douglas & Peucker 1973, both axes having length 1.

    >>> kept(np.array([0.0, 0.2, 0.5, 1.0]), np.array([0.0, 0.4, 1.0, 1.0])).tolist()
    [0, 2, 3]
    """
    last = len(x) - 1
    chosen = np.zeros(len(x), dtype=bool)
    chosen[[0, last]] = True
    spans = [(0, last)]
    while spans:
        first, end = spans.pop()
        away = _distances(x[first : end + 1], y[first : end + 1])
        farthest = int(away.argmax())
        if away[farthest] > tolerance:
            middle = first + farthest
            chosen[middle] = True
            spans += [(first, middle), (middle, end)]
    return np.flatnonzero(chosen)


def _distances(x: Floats, y: Floats) -> Floats:
    """How far points are from the line between the first and the last."""
    along = np.array([x[-1] - x[0], y[-1] - y[0]])
    away = np.array([x - x[0], y - y[0]])
    length = float(along @ along)
    # Beyond its ends a line does not cover: a curve may turn back.
    where = np.clip(along @ away / length, 0.0, 1.0) if length > 0 else np.zeros(len(x))
    distances: Floats = np.hypot(*(away - along[:, np.newaxis] * where))
    return distances


def line(x: Floats, y: Floats, scale: tuple[float, float] = (1.0, 1.0)) -> list[list[float]]:
    """The abscissas and ordinates that are enough; `scale` is how long the axes are."""
    few = kept(x / scale[0], y / scale[1])
    return [rounded(x[few]), rounded(y[few])]


def rounded(values: Iterable[float]) -> list[float]:
    """Numbers with as many decimals as are drawn or read; no minus in front of a zero."""
    # Through text, as `show` prints them: np.round goes through a product that is rounded itself.
    return [float(f"{value:.{_DECIMALS}f}") + 0.0 for value in values]


METRICS: Final = (
    "recall",
    "precision",
    "fpr",
    "f1",
    "specificity",
    "npv",
    "accuracy",
    "mcc",
    "flagged",
)
_FINE: Final = (0.001, 0.005, 0.01, 0.02)
SHARES: Final = (
    *_FINE,
    *(share / 100 for share in range(5, 100, 5)),
    *(1 - share for share in reversed(_FINE)),
)
FEW_SHARES: Final = (0.01, 0.05, *(share / 10 for share in range(1, 10)), 0.95, 0.99)
COSTS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_SPREAD, _FEW_SPREAD = 41, 15  # edges over the axis
_USUAL: Final = 0.5

Wishes = dict[str, list[tuple[float, float | None]]]


def thresholds_of(result: Evaluation, *, brief: bool = False) -> dict[str, Any]:
    """All that the page knows of thresholds, as plain data; fewer of them if it is to be brief.

    ``labels`` are the thresholds in words, ascending. ``counts`` and ``metrics`` have a column of
    values, one of lows and one of highs for each. ``wishes`` name for each share, or cost, the
    place of the threshold that the library chooses; None where there is none.
    """
    wished = _wishes(result, FEW_SHARES if brief else SHARES)
    asked = {at for each in wished.values() for _, at in each if at is not None}
    grid = sorted(asked | _spread(result, _FEW_SPREAD if brief else _SPREAD))
    points = [result.at_threshold(threshold) for threshold in grid]
    places = {threshold: place for place, threshold in enumerate(grid)}
    rows = {row: [read(each, row) for each in points] for row in METRICS}
    return {
        "labels": [_label(threshold) for threshold in grid],
        "counts": _counts(points, noisy=result.pooled.noisy),
        "metrics": {row: _columns(each) for row, each in rows.items()},
        # Of more digits than are read: PPV at another prevalence is computed from these.
        "rates": [_rates(rows["fpr"]), _rates(rows["recall"])],
        "wishes": {
            name: [[wish, None if at is None else places[at]] for wish, at in each]
            for name, each in wished.items()
        },
        "start": _start(grid, points),
    }


def named() -> dict[str, list[str]]:
    """What each metric at a threshold is called, and what it is."""
    rows = ((name, getattr(AtThreshold, name)) for name in METRICS)
    return {name: [row.title, row.meaning] for name, row in rows}


def _wishes(result: Evaluation, shares: tuple[float, ...]) -> Wishes:
    """What can be wanted of a threshold, and which does it."""
    wished: Wishes = {
        name: [(share, _chosen(result, **{name: share})) for share in shares]
        for name in ("recall", "fpr", "precision")
    }
    # A missed positive is so many times as bad as a false alarm.
    wished["cost"] = [(times, _chosen(result, cost=(1.0, times))) for times in COSTS]
    return wished


def _chosen(result: Evaluation, **wish: Any) -> float | None:
    try:
        return result.threshold_for(**wish).threshold
    except UndefinedMetric:
        return None


def _spread(result: Evaluation, number: int) -> set[float]:
    """Edges over the axis, and the usual threshold where it is one."""
    axis = result.pooled.axis
    edges = axis.thresholds
    lowest = 1 if axis.outside == "clip" else 0  # scores below the axis are in its first bin
    places = np.linspace(lowest, len(edges) - 1, number).round().astype(int)
    spread = {float(edges[place]) for place in places if place < len(edges)}
    if axis.low < _USUAL < axis.high:
        spread.add(float(edges[lowest:][np.abs(edges[lowest:] - _USUAL).argmin()]))
    return spread


def _start(grid: list[float], points: list[AtThreshold]) -> int:
    """Where the page begins: at one half, or where there is none, where classes differ most."""
    near = [place for place, at in enumerate(grid) if math.isclose(at, _USUAL, rel_tol=0.01)]
    if near:
        return min(near, key=lambda place: abs(grid[place] - _USUAL))
    return max(range(len(points)), key=lambda place: points[place].youden_j.value)


def read(of: Evaluation | AtThreshold, metric: str) -> Estimate | None:
    """A metric; None where it is not defined."""
    try:
        estimate: Estimate = getattr(of, metric)
    except UndefinedMetric:
        return None
    return estimate


def _columns(estimates: list[Estimate | None]) -> list[list[float | None]]:
    """Values, lows and highs; None where a metric is not defined."""
    return [
        [None if e is None else rounded([getattr(e, name)])[0] for e in estimates]
        for name in ("value", "low", "high")
    ]


def _counts(points: list[AtThreshold], *, noisy: bool) -> dict[str, list[list[int]]]:
    """The four outcomes: their numbers, and under noise, or between edges, where these lie."""
    found: dict[str, list[list[int]]] = {}
    for name in ConfusionMatrix._fields:
        every: list[Estimate] = [getattr(each.confusion_matrix, name) for each in points]
        columns = [[round(e.value) for e in every]]
        if noisy or any(e.bounds[0] < e.bounds[1] for e in every):
            columns += [[round(e.bounds[side]) for e in every] for side in (0, 1)]
        found[name] = columns
    return found


def _rates(estimates: list[Estimate | None]) -> list[float | None]:
    return [None if e is None else float(f"{e.value:.7g}") for e in estimates]


def _label(threshold: float) -> str:
    if math.isinf(threshold):
        return "above all scores" if threshold > 0 else "below all scores"
    return repr(threshold)  # all digits: a rounded edge lies within a bin


_CURVES: Final = (ROC, PR, DET, PR_GAIN, GAIN)
_BARS: Final = 48  # of a histogram
_EVEN_BARS: Final = 32
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

    To be `brief`, as one of many, it has ROC and PR curve alone, and fewer thresholds. ``why`` says
    why there are no curves and thresholds, where there are none.
    """
    part: dict[str, Any] = {"name": str(result.slice), "level": f"{result.level * 100:g}%"}
    part["metrics"] = [
        _metric(result, row.name, row.title) for row in metrics_of(Evaluation) if row.listed
    ]
    part["histogram"] = _histogram(result)
    try:
        part["curves"] = [_curve(result, kind) for kind in _CURVES[: 2 if brief else None]]
        part["thresholds"] = thresholds_of(result, brief=brief)
    except UndefinedMetric as error:
        return part | {"why": str(error)}
    return part | _of_probabilities(result, _few_risks(result) if brief else None)


def _metric(result: Evaluation, name: str, title: str) -> dict[str, Any]:
    """A metric as it is read: numbers in the words of `fedgauge show`."""
    told: dict[str, Any] = {"name": name, "title": title}
    estimate = read(result, name)
    if estimate is None:
        return told
    told["value"] = show(estimate.value)
    told["interval"] = _shown(estimate.interval)
    told["bounds"] = _shown(estimate.bounds)
    told["parts"] = {
        source: f"{error:.2g}" if error else "0" for source, error in estimate.parts.items()
    }
    told["sizes"] = {source: float(f"{error:.3g}") for source, error in estimate.parts.items()}
    if estimate.plain is not None:
        told["plain"] = show(estimate.plain)
    return told | ({"caution": estimate.caution} if estimate.caution else {})


def _shown(ends: tuple[float, float] | None) -> list[str] | None:
    """Both ends; None where there are none, as of calibration slopes, whose bounds are infinite."""
    if ends is None or not all(map(math.isfinite, ends)):
        return None
    return [show(end) for end in ends]


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
    """Shares of each class by runs of neighbouring bins; None where they are withheld.

    From the counts that curves are drawn from, so that bars beyond a threshold add up to its rates.
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
    if pooled.axis.kind == "probabilities":  # equally wide, though bins near 0 and 1 are not
        starts = np.searchsorted(pooled.axis.edges, np.arange(_EVEN_BARS) / _EVEN_BARS)
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
