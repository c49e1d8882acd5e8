"""The thresholds that a page can be set to, with every number that it then shows."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from fedgauge.errors import UndefinedMetric
from fedgauge.measures.intervals import Estimate
from fedgauge.measures.thresholds import AtThreshold, ConfusionMatrix
from fedgauge.plots.page.thinned import rounded
from fedgauge.results.evaluation import Evaluation

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
    rows = {row: [_read(each, row) for each in points] for row in METRICS}
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
    return {name: [row.title, row.__doc__] for name, row in rows}


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


def _read(at: AtThreshold, metric: str) -> Estimate | None:
    try:
        estimate: Estimate = getattr(at, metric)
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
