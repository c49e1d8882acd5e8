"""Bands around curves, and the registry of curves: one `CurveKind` for each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, Literal, NamedTuple, TypeVar, get_args

import numpy as np

from fedgauge.arrays import Floats
from fedgauge.errors import InputError
from fedgauge.estimation.counts import PooledCounts
from fedgauge.estimation.distribution import (
    ParametricCurve,
    ScoreDistribution,
    require_both_classes,
)
from fedgauge.metrics import curves
from fedgauge.metrics.areas import edge_rates
from fedgauge.metrics.curves import DetCurve, GainCurve, PrCurve, PrGainCurve, RocCurve
from fedgauge.metrics.estimate import critical
from fedgauge.metrics.ranking import Reading
from fedgauge.metrics.thresholds import AtThreshold

BandKind = Literal["simultaneous", "pointwise"]
_POINTS: Final = 401
_DEVIATES: Final = 4.0  # as far as DET curves are drawn, and beyond
_DRAWS: Final = 300
_WITHIN: Final = 17  # points of a curve from one edge to the next
_LEAST: Final = 1e-12


class Band(NamedTuple):
    """The lowest and highest ordinate at each abscissa.

    A simultaneous band holds the population's whole curve with confidence `level`, a pointwise one
    its value at each single abscissa. Under noise a simultaneous one takes the curve within bins as
    drawn, unless scores may be tied: then it trusts edges alone.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.6])})
    >>> result.roc_band().level
    0.95
    """

    x: Floats
    low: Floats
    high: Floats
    level: float
    kind: BandKind


def roc_band(reading: Reading, kind: BandKind) -> Band:
    """A band for the ROC curve; the simultaneous one holds for any sample size.

    It moves the curve by Kolmogorov's bounds for both classes (Campbell 1994).
    """
    band = _roc_band(reading.unshrunk, kind, np.linspace(0.0, 1.0, _POINTS), reading.level)
    return _held(reading, band, reading.roc)


def _held(reading: Reading, band: Band, curve: Callable[[Floats], Floats]) -> Band:
    """The band of counts as noise left them, widened to hold the curve of likely ones."""
    if reading.unshrunk is reading:
        return band
    drawn = curve(band.x)
    return band._replace(low=np.minimum(band.low, drawn), high=np.maximum(band.high, drawn))


def _roc_band(reading: Reading, kind: BandKind, x: Floats, level: float) -> Band:
    pooled = reading.pooled
    if _pointwise(reading, kind):
        again = [np.interp(x, fpr, tpr) for fpr, tpr in _rates_again(reading)]
        low, high = _percentiles(again, reading.roc(x), pooled.positives, level)
        low[x >= 1.0] = 1.0
        return Band(x, low, high, level, kind)
    of_fpr, of_tpr = _reaches(pooled, level**0.5)
    # A point of the curve lies between the edges around it, whatever the bin's scores are.
    fpr, tpr = _knots(reading.worst)
    before = np.searchsorted(fpr, x - of_fpr, side="right") - 1
    low = np.where(before >= 0, tpr[np.maximum(before, 0)], 0.0) - of_tpr
    fpr, tpr = _knots(reading.best)
    after = np.searchsorted(fpr, x + of_fpr, side="left")
    high = np.where(after < len(tpr), tpr[np.minimum(after, len(tpr) - 1)], 1.0) + of_tpr
    low[x >= 1.0] = 1.0
    return Band(x, np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0), level, kind)


def det_band(reading: Reading, kind: BandKind) -> Band:
    """A band for the DET curve: that of the ROC curve, at points even in normal deviates."""
    from scipy.special import ndtr  # loaded only where a DET curve has a band

    x = np.r_[0.0, ndtr(np.linspace(-_DEVIATES, _DEVIATES, _POINTS)), 1.0]
    roc = _held(reading, _roc_band(reading.unshrunk, kind, x, reading.level), reading.roc)
    return Band(x, 1.0 - roc.high, 1.0 - roc.low, reading.level, kind)


def pr_band(reading: Reading, kind: BandKind) -> Band:
    """A band for the PR curve: what the false positive rate can be at each recall."""
    return _held(reading, _pr_band(reading.unshrunk, kind), reading.pr)


def _pr_band(reading: Reading, kind: BandKind) -> Band:
    pooled, level = reading.pooled, reading.level
    recall = np.linspace(0.0, 1.0, _POINTS)
    if _pointwise(reading, kind):
        again = [
            _precision(recall, _first_fpr(recall, *rates), share)
            for rates, share in zip(_rates_again(reading), _shares_again(reading), strict=True)
        ]
        here = _precision(recall, _fpr_at(reading.roc, recall), _share(pooled.counts))
        flagged = np.maximum(recall * pooled.positives, 1.0) / np.maximum(here, _LEAST)
        return Band(recall, *_percentiles(again, here, flagged, level), level, kind)
    part = level ** (1.0 / 3.0)
    lowest, highest = _fpr_range(reading, recall, part)
    share = AtThreshold(pooled, -np.inf, part).prevalence
    low = _precision(recall, highest, share.low or 0.0)
    high = _precision(recall, lowest, share.high or 1.0)
    return Band(recall, low, high, level, kind)


def prg_band(reading: Reading, kind: BandKind) -> Band:
    """A band for the precision-recall-gain curve, the share of positives taken as known."""

    def curve(recall_gain: Floats) -> Floats:
        recall = _recall_of(recall_gain, reading.ratio)
        return np.asarray(1.0 - _fpr_at(reading.roc, recall) / recall)

    return _held(reading, _prg_band(reading.unshrunk, kind), curve)


def _recall_of(recall_gain: Floats, ratio: float) -> Floats:
    return np.asarray(ratio / (1.0 + ratio - recall_gain))


def _prg_band(reading: Reading, kind: BandKind) -> Band:
    pooled, level = reading.pooled, reading.level
    ratio = reading.ratio
    recall_gain = np.linspace(0.0, 1.0, _POINTS)
    recall = _recall_of(recall_gain, ratio)
    if _pointwise(reading, kind):
        again = [_first_fpr(recall, *rates) for rates in _rates_again(reading)]
        here = _fpr_at(reading.roc, recall)
        lowest, highest = _percentiles(again, here, pooled.negatives, level)
    else:
        lowest, highest = _fpr_range(reading, recall, level**0.5)
    return Band(recall_gain, 1.0 - highest / recall, 1.0 - lowest / recall, level, kind)


def gain_band(reading: Reading, kind: BandKind) -> Band:
    """A band for the cumulative gain curve: recall at each share of examples flagged."""

    def curve(flagged: Floats) -> Floats:
        return _recall_at(flagged, *_knots(reading), _share(reading.pooled.likely))

    return _held(reading, _gain_band(reading.unshrunk, kind), curve)


def _gain_band(reading: Reading, kind: BandKind) -> Band:
    pooled, level = reading.pooled, reading.level
    flagged = np.linspace(0.0, 1.0, _POINTS)
    if _pointwise(reading, kind):
        again = [
            _recall_at(flagged, *rates, share)
            for rates, share in zip(_rates_again(reading), _shares_again(reading), strict=True)
        ]
        here = _recall_at(flagged, *_knots(reading), _share(pooled.counts))
        low, high = _percentiles(again, here, pooled.positives, level)
        high[0], low[-1] = 0.0, 1.0  # every curve starts and ends there
        return Band(flagged, low, high, level, kind)
    part = level ** (1.0 / 3.0)
    roc = _roc_band(reading, kind, np.linspace(0.0, 1.0, _POINTS), part**2)
    share = AtThreshold(pooled, -np.inf, part).prevalence
    ends = share.low or 0.0, share.high or 1.0
    # A higher ROC curve finds more at every share. Along one curve recall moves one way with
    # the share of positives. Between grid points the band is known at the points around.
    lowest = [_recall_at(flagged, roc.x, np.append(0.0, roc.low[:-1]), end) for end in ends]
    highest = [_recall_at(flagged, roc.x, np.append(roc.high[1:], 1.0), end) for end in ends]
    return Band(flagged, np.min(lowest, axis=0), np.max(highest, axis=0), level, kind)


def _recall_at(flagged: Floats, fpr: Floats, tpr: Floats, share: float) -> Floats:
    """Recall at each share flagged, on the ROC curve by these points; `share`: of positives."""
    fpr, tpr = np.r_[0.0, fpr, 1.0], np.r_[0.0, tpr, 1.0]
    return np.interp(flagged, share * tpr + (1.0 - share) * fpr, tpr)


def _share(counts: Floats) -> float:
    return float(counts[1].sum() / counts.sum())


def _shares_again(reading: Reading) -> list[float]:
    """Shares of positives in each of the draws."""
    return [_share(counts) for counts in reading.redrawn(_DRAWS, sampling=True)]


def _rates_again(reading: Reading) -> Iterator[tuple[Floats, Floats]]:
    """False and true positive rates at the edges in each of the draws."""
    return zip(*edge_rates(reading.redrawn(_DRAWS, sampling=True)), strict=True)


def _first_fpr(recall: Floats, fpr: Floats, tpr: Floats) -> Floats:
    """The lowest false positive rate at which a path of lines reaches each recall."""
    recall = np.minimum(recall, tpr[-1])  # rounding
    after = np.searchsorted(tpr, recall, side="left")
    before = np.maximum(after - 1, 0)
    rise = np.where(after > before, tpr[after] - tpr[before], 1.0)
    reached: Floats = fpr[after] - (tpr[after] - recall) / rise * (fpr[after] - fpr[before])
    return reached


def _fpr_range(reading: Reading, recall: Floats, level: float) -> tuple[Floats, Floats]:
    """Lowest and highest false positive rate at which the population reaches each recall."""
    of_fpr, of_tpr = _reaches(reading.pooled, level)
    fpr, tpr = _knots(reading.best)
    reached = np.searchsorted(tpr, recall - of_tpr, side="left")
    low = fpr[np.maximum(reached - 1, 0)] - of_fpr
    fpr, tpr = _knots(reading.worst)
    passed = np.searchsorted(tpr, recall + of_tpr, side="left")
    high = np.where(passed < len(fpr), fpr[np.minimum(passed, len(fpr) - 1)], 1.0) + of_fpr
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


def _precision(recall: Floats, fpr: Floats, share: float) -> Floats:
    """Precision where positives are this share of all examples."""
    hits, wrong = recall * share, fpr * (1.0 - share)
    with np.errstate(invalid="ignore"):
        return np.where(hits + wrong > 0, hits / (hits + wrong), 1.0)


def _knots(reading: Reading) -> tuple[Floats, Floats]:
    """Points of the ROC curve between which it is only known to rise."""
    pooled = reading.pooled
    if not pooled.noisy or pooled.lumped:
        return reading.rates
    # Bins are coarse: trust the curve between edges, but where a bin holds one value.
    x, y = reading.roc.path.sample(_WITHIN)
    kept = np.ones((len(x) // _WITHIN, _WITHIN), dtype=bool)
    kept[reading.distribution.steps, 1:-1] = False
    x, y = x[kept.ravel()], y[kept.ravel()]
    return np.maximum.accumulate(x), np.maximum.accumulate(y)


def _reaches(pooled: PooledCounts, level: float) -> tuple[float, float]:
    """How far the rates of each class can be off, at every threshold, each with `level`."""
    totals = pooled.counts.sum(axis=1)
    noise = np.zeros(len(totals))
    if pooled.noisy:
        exact = np.cumsum(pooled.counts, axis=1) / totals[:, np.newaxis]
        drawn = pooled.redrawn(_DRAWS, sampling=False)
        drawn_totals = np.maximum(drawn.sum(axis=2, keepdims=True), 1e-300)
        moved = np.abs(np.cumsum(drawn, axis=2) / drawn_totals - exact).max(axis=2)
        noise = np.quantile(moved, level, axis=0)
    from scipy.stats import kstwo  # a third of a second to load: only who draws bands waits

    sampling = [float(kstwo.ppf(level, max(round(total), 1))) for total in totals]
    of_fpr, of_tpr = np.hypot(sampling, noise)
    return float(of_fpr), float(of_tpr)


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


def _pointwise(reading: Reading, kind: BandKind) -> bool:
    """Whether the band is a pointwise one; refused where there is no curve, or no such kind."""
    require_both_classes(reading.pooled.negatives, reading.pooled.positives)
    if kind not in get_args(BandKind):
        raise InputError(f"kind must be 'simultaneous' or 'pointwise', got {kind!r}.")
    return kind == "pointwise"


Curve = TypeVar("Curve")


@dataclass(frozen=True)
class CurveKind(Generic[Curve]):
    """What a curve is called and how it is made."""

    name: str  # as in ``result.roc_curve()``
    title: str  # for people
    labels: tuple[str, str]  # of the abscissa and the ordinate
    make: Callable[[ScoreDistribution], Curve]
    band: Callable[[Reading, BandKind], Band]
    area: tuple[str, str] | None = None  # the metric that is the area below, its name in legends


ROC: Final[CurveKind[RocCurve]] = CurveKind(
    "roc",
    "ROC curve",
    ("False positive rate", "True positive rate"),
    curves.roc_curve,
    roc_band,
    area=("roc_auc", "AUC"),
)
PR: Final[CurveKind[PrCurve]] = CurveKind(
    "pr",
    "Precision-recall curve",
    ("Recall", "Precision"),
    curves.pr_curve,
    pr_band,
    area=("average_precision", "AP"),
)
DET: Final[CurveKind[DetCurve]] = CurveKind(
    "det", "DET curve", ("False positive rate", "False negative rate"), curves.det_curve, det_band
)
PR_GAIN: Final[CurveKind[PrGainCurve]] = CurveKind(
    "prg",
    "Precision-recall-gain curve",
    ("Recall gain", "Precision gain"),
    curves.prg_curve,
    prg_band,
    area=("auprg", "AUPRG"),
)
GAIN: Final[CurveKind[GainCurve]] = CurveKind(
    "gain",
    "Cumulative gain curve",
    ("Share of examples flagged", "Recall"),
    curves.gain_curve,
    gain_band,
)
