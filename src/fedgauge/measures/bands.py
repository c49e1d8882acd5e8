"""Bands around curves: where the curve of the population lies, at every point or at once."""

from typing import Final, Literal, NamedTuple

import numpy as np
from scipy.special import ndtr
from scipy.stats import kstwo

from fedgauge.errors import InputError
from fedgauge.estimation.piecewise import ParametricCurve
from fedgauge.estimation.pooled import PooledCounts
from fedgauge.measures.areas import edge_rates
from fedgauge.measures.curves import RocCurve
from fedgauge.measures.intervals import critical
from fedgauge.measures.thresholds import AtThreshold
from fedgauge.typing import Floats

Kind = Literal["simultaneous", "pointwise"]
_POINTS: Final = 401
_DEVIATES: Final = 4.0  # as far as DET curves are drawn, and beyond
_DRAWS: Final = 300
_LEAST: Final = 1e-12


class Band(NamedTuple):
    """The lowest and highest ordinate at each abscissa.

    A simultaneous band holds the whole curve of the population with confidence `level`, a
    pointwise one its value at each single abscissa.
    """

    x: Floats
    low: Floats
    high: Floats
    level: float
    kind: Kind


def roc_band(pooled: PooledCounts, curve: RocCurve, level: float, kind: Kind) -> Band:
    """A band for the ROC curve.

    The simultaneous one moves the curve by Kolmogorov's bounds for both classes (Campbell
    1994), so it holds for any sample size, and where no example is misplaced.
    """
    return _roc_band(pooled, curve, level, kind, np.linspace(0.0, 1.0, _POINTS))


def _roc_band(pooled: PooledCounts, curve: RocCurve, level: float, kind: Kind, x: Floats) -> Band:
    if _check(kind) == "pointwise":
        rates = [edge_rates(counts) for counts in _drawn(pooled)]
        again = [np.interp(x, fpr, tpr) for fpr, tpr in rates]
        low, high = _percentiles(again, curve(x), pooled.positives, level)
        low[x >= 1.0] = 1.0
        return Band(x, low, high, level, kind)
    of_fpr, of_tpr = _reaches(pooled, level**0.5)
    fpr, tpr = _knots(pooled, curve)
    # A point of the curve lies between the edges around it, whatever the bin's scores are.
    before = np.searchsorted(fpr, x - of_fpr, side="right") - 1
    after = np.searchsorted(fpr, x + of_fpr, side="left")
    low = np.where(before >= 0, tpr[np.maximum(before, 0)], 0.0) - of_tpr
    high = np.where(after < len(tpr), tpr[np.minimum(after, len(tpr) - 1)], 1.0) + of_tpr
    low[x >= 1.0] = 1.0
    return Band(x, np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0), level, kind)


def det_band(pooled: PooledCounts, curve: RocCurve, level: float, kind: Kind) -> Band:
    """A band for the DET curve: that of the ROC curve, at points even in normal deviates."""
    x = np.r_[0.0, ndtr(np.linspace(-_DEVIATES, _DEVIATES, _POINTS)), 1.0]
    roc = _roc_band(pooled, curve, level, kind, x)
    return Band(x, 1.0 - roc.high, 1.0 - roc.low, level, kind)


def pr_band(pooled: PooledCounts, curve: RocCurve, level: float, kind: Kind) -> Band:
    """A band for the PR curve: what the false positive rate can be at each recall."""
    recall = np.linspace(0.0, 1.0, _POINTS)
    if _check(kind) == "pointwise":
        drawn = _drawn(pooled)
        rates = drawn[:, 1].sum(axis=1) / drawn.sum(axis=(1, 2))
        again = [
            _precision(recall, fpr, rate)
            for fpr, rate in zip(_fpr_again(drawn, recall), rates, strict=True)
        ]
        here = _precision(recall, _fpr_at(curve, recall), _rate(pooled.counts))
        flagged = np.maximum(recall * pooled.positives, 1.0) / np.maximum(here, _LEAST)
        return Band(recall, *_percentiles(again, here, flagged, level), level, kind)
    part = level ** (1.0 / 3.0)
    lowest, highest = _fpr_range(pooled, curve, recall, part)
    share = AtThreshold(pooled, -np.inf, part).prevalence
    low = _precision(recall, highest, share.low or 0.0)
    high = _precision(recall, lowest, share.high or 1.0)
    return Band(recall, low, high, level, kind)


def prg_band(pooled: PooledCounts, curve: RocCurve, level: float, kind: Kind) -> Band:
    """A band for the precision-recall-gain curve, the share of positives taken as known."""
    ratio = pooled.positives / pooled.negatives
    gain = np.linspace(0.0, 1.0, _POINTS)
    recall = ratio / (1.0 + ratio - gain)
    if _check(kind) == "pointwise":
        again = _fpr_again(_drawn(pooled), recall)
        lowest, highest = _percentiles(again, _fpr_at(curve, recall), pooled.negatives, level)
    else:
        lowest, highest = _fpr_range(pooled, curve, recall, level**0.5)
    return Band(gain, 1.0 - highest / recall, 1.0 - lowest / recall, level, kind)


def gain_band(pooled: PooledCounts, curve: RocCurve, level: float, kind: Kind) -> Band:
    """A band for the cumulative gain curve: recall at each share of examples flagged."""
    share = np.linspace(0.0, 1.0, _POINTS)
    if _check(kind) == "pointwise":
        again = [_gain(share, *edge_rates(counts), _rate(counts)) for counts in _drawn(pooled)]
        here = _gain(share, *_knots(pooled, curve), _rate(pooled.counts))
        low, high = _percentiles(again, here, pooled.positives, level)
        high[0], low[-1] = 0.0, 1.0  # every curve starts and ends there
        return Band(share, low, high, level, kind)
    part = level ** (1.0 / 3.0)
    roc = roc_band(pooled, curve, part**2, kind)
    rate = AtThreshold(pooled, -np.inf, part).prevalence
    ends = rate.low or 0.0, rate.high or 1.0
    # A higher ROC curve finds more at every share. Along one curve recall moves one way with
    # the share of positives. Between grid points the band is known at the points around.
    lowest = [_gain(share, roc.x, np.append(0.0, roc.low[:-1]), end) for end in ends]
    highest = [_gain(share, roc.x, np.append(roc.high[1:], 1.0), end) for end in ends]
    return Band(share, np.min(lowest, axis=0), np.max(highest, axis=0), level, kind)


def _gain(share: Floats, fpr: Floats, tpr: Floats, rate: float) -> Floats:
    """Recall at each share flagged, on the ROC curve from corner to corner by these points."""
    fpr, tpr = np.r_[0.0, fpr, 1.0], np.r_[0.0, tpr, 1.0]
    return np.interp(share, rate * tpr + (1.0 - rate) * fpr, tpr)


def _rate(counts: Floats) -> float:
    return float(counts[1].sum() / counts.sum())


def _fpr_again(drawn: Floats, recall: Floats) -> list[Floats]:
    """False positive rates at the given recalls in each of the draws."""
    rates = [edge_rates(counts) for counts in drawn]
    return [_first_fpr(recall, fpr, tpr) for fpr, tpr in rates]


def _first_fpr(recall: Floats, fpr: Floats, tpr: Floats) -> Floats:
    """The lowest false positive rate at which a path of lines reaches each recall."""
    recall = np.minimum(recall, tpr[-1])  # rounding
    after = np.searchsorted(tpr, recall, side="left")
    before = np.maximum(after - 1, 0)
    rise = np.where(after > before, tpr[after] - tpr[before], 1.0)
    reached: Floats = fpr[after] - (tpr[after] - recall) / rise * (fpr[after] - fpr[before])
    return reached


def _fpr_range(
    pooled: PooledCounts, curve: RocCurve, recall: Floats, level: float
) -> tuple[Floats, Floats]:
    """Lowest and highest false positive rate at which the population reaches each recall."""
    of_fpr, of_tpr = _reaches(pooled, level)
    fpr, tpr = _knots(pooled, curve)
    reached = np.searchsorted(tpr, recall - of_tpr, side="left")
    passed = np.searchsorted(tpr, recall + of_tpr, side="left")
    low = fpr[np.maximum(reached - 1, 0)] - of_fpr
    high = np.where(passed < len(fpr), fpr[np.minimum(passed, len(fpr) - 1)], 1.0) + of_fpr
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


def _precision(recall: Floats, fpr: Floats, rate: float) -> Floats:
    found, wrong = recall * rate, fpr * (1.0 - rate)
    with np.errstate(invalid="ignore"):
        return np.where(found + wrong > 0, found / (found + wrong), 1.0)


def _knots(pooled: PooledCounts, curve: RocCurve) -> tuple[Floats, Floats]:
    """Points of the curve between which it is only known to rise."""
    if pooled.noisy:  # bins are coarse: trust the curve between edges
        x, y = curve.path.sample(17)
        return np.maximum.accumulate(x), np.maximum.accumulate(y)
    return edge_rates(pooled.counts)


def _reaches(pooled: PooledCounts, level: float) -> tuple[float, float]:
    """How far the rates of each class can be off, at every threshold, each with `level`."""
    noise = np.zeros(2)
    if pooled.noisy:
        exact = np.cumsum(pooled.counts, axis=1) / pooled.counts.sum(axis=1, keepdims=True)
        drawn = pooled.redrawn(_DRAWS, np.random.default_rng(0), sampling=False)
        totals = np.maximum(drawn.sum(axis=2, keepdims=True), 1e-300)
        moved = np.abs(np.cumsum(drawn, axis=2) / totals - exact).max(axis=2)
        noise = np.quantile(moved, level, axis=0)
    sampling = [
        float(kstwo.ppf(level, max(round(total), 1)))
        for total in (pooled.negatives, pooled.positives)
    ]
    of_fpr, of_tpr = np.hypot(sampling, noise)
    return float(of_fpr), float(of_tpr)


def _drawn(pooled: PooledCounts) -> Floats:
    drawn = pooled.redrawn(_DRAWS, np.random.default_rng(0), sampling=True)
    kept: Floats = drawn[np.all(drawn.sum(axis=2) > 0, axis=1)]
    return kept


def _percentiles(
    curves: list[Floats], here: Floats, examples: float | Floats, level: float
) -> tuple[Floats, Floats]:
    """Where most of the curves lie, and Wilson's interval of the rate drawn, of `examples`.

    The bootstrap alone sees no error where a rate is 0 or 1.
    """
    low, high = np.quantile(curves, [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0)
    square = critical(level) ** 2 / examples
    middle = (here + square / 2.0) / (1.0 + square)
    half = np.sqrt(square * (here * (1.0 - here) + square / 4.0)) / (1.0 + square)
    low, high = np.minimum(low, middle - half), np.maximum(high, middle + half)
    return np.clip(np.minimum(low, here), 0.0, 1.0), np.clip(np.maximum(high, here), 0.0, 1.0)


def _fpr_at(curve: RocCurve, recall: Floats) -> Floats:
    """The lowest false positive rate at which a curve reaches each recall."""
    path = curve.path
    return ParametricCurve(path.width, path.top, path.x).at(recall, side="start")


def _check(kind: str) -> str:
    if kind not in ("simultaneous", "pointwise"):
        raise InputError(f"kind must be 'simultaneous' or 'pointwise', got {kind!r}.")
    return kind
