"""Curves over all thresholds: estimated, exact from pooled data, or averaged over classes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from fedgauge.arrays import Floats
from fedgauge.data.examples import Examples, Label
from fedgauge.errors import InputError
from fedgauge.estimation.distribution import (
    ParametricCurve,
    ScoreDistribution,
    linear_pieces,
    require_both_classes,
)
from fedgauge.histograms.channels import LabelReader


@dataclass(frozen=True, slots=True, eq=False)
class RocCurve:
    """True positive rate against false positive rate.

    `fpr`, `tpr` and `thresholds` are the knots of scikit-learn's ``roc_curve``, from threshold
    infinity down. Call the curve for the true positive rate at any false positive rate: the upper
    end where it is vertical.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.6])})
    >>> result.roc_curve()(0.5)  # true positive rate at 50% false positives
    1.0
    >>> fpr, tpr, thresholds = result.roc_curve()
    """

    fpr: Floats
    tpr: Floats
    thresholds: Floats
    path: ParametricCurve = field(repr=False)

    def __call__(self, fpr: Any) -> Any:
        """True positive rate at each false positive rate; a float at a single one."""
        return _as_given(_read_off(self.path, fpr, side="end"))

    def points(self) -> tuple[Floats, Floats]:
        """False and true positive rates along the curve, close enough to draw it."""
        return self.path.points()

    def __iter__(self) -> Iterator[Floats]:
        return iter((self.fpr, self.tpr, self.thresholds))


@dataclass(frozen=True, slots=True, eq=False)
class PrCurve:
    """Precision against recall.

    `precision`, `recall` and `thresholds` are the knots of scikit-learn's
    ``precision_recall_curve``: thresholds ascend, and a last point (0, 1) without one closes the
    curve. Call the curve for the precision at any recall: that of the highest threshold which
    reaches it.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.6])})
    >>> result.pr_curve()(0.5)  # precision at 50% recall
    1.0
    """

    precision: Floats
    recall: Floats
    thresholds: Floats
    path: ParametricCurve = field(repr=False)

    def __call__(self, recall: Any) -> Any:
        """Precision at each recall; a float at a single one."""
        return _as_given(_read_off(self.path, recall, side="start"))

    def points(self) -> tuple[Floats, Floats]:
        """Recall and precision along the curve, close enough to draw it."""
        return self.path.points()

    def __iter__(self) -> Iterator[Floats]:
        return iter((self.precision, self.recall, self.thresholds))


@dataclass(frozen=True, slots=True, eq=False)
class DetCurve:
    """False negative rate against false positive rate: detection error tradeoff.

    `fpr`, `fnr` and `thresholds` are the knots of scikit-learn's ``det_curve``: thresholds ascend,
    from the first that misses no positive to the last that flags no negative. Call the curve for
    the false negative rate at any false positive rate.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.6])})
    >>> fpr, fnr, thresholds = result.det_curve()
    >>> float(fnr[0])
    0.0
    """

    fpr: Floats
    fnr: Floats
    thresholds: Floats
    roc: RocCurve = field(repr=False)

    def __call__(self, fpr: Any) -> Any:
        """False negative rate at each false positive rate; a float at a single one."""
        return 1.0 - self.roc(fpr)

    def points(self) -> tuple[Floats, Floats]:
        """False positive and false negative rates along the curve, close enough to draw it."""
        fpr, tpr = self.roc.points()
        return fpr, 1.0 - tpr

    def __iter__(self) -> Iterator[Floats]:
        return iter((self.fpr, self.fnr, self.thresholds))


@dataclass(frozen=True, slots=True, eq=False)
class PrGainCurve:
    """Precision gain against recall gain (Flach & Kull 2015).

    Both gains are 0 where precision or recall equals the share of positives, and 1 where it is 1.
    The knots, thresholds descending, start where recall gain reaches 0.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.6])})
    >>> result.prg_curve()(0.5)  # precision gain at a recall gain of 50%
    1.0
    """

    precision_gain: Floats
    recall_gain: Floats
    thresholds: Floats
    ratio: float = field(repr=False)
    inverse: ParametricCurve = field(repr=False)

    def __call__(self, recall_gain: Any) -> Any:
        """Precision gain at each recall gain from 0 to 1; a float at a single one."""
        recall = self.ratio / (1.0 + self.ratio - _rates(recall_gain))
        fpr = self.inverse.at(recall.ravel(), side="start").reshape(recall.shape)
        return _as_given(1.0 - fpr / recall)

    def points(self) -> tuple[Floats, Floats]:
        """Recall gain, from 0 up, and precision gain along the curve, close enough to draw it."""
        tpr, fpr = self.inverse.points()
        shown = tpr > self.ratio / (1.0 + self.ratio)
        recall_gain = 1.0 + self.ratio - self.ratio / tpr[shown]
        precision_gain = 1.0 - fpr[shown] / tpr[shown]
        return np.append(0.0, recall_gain), np.append(self.precision_gain[0], precision_gain)

    def __iter__(self) -> Iterator[Floats]:
        return iter((self.precision_gain, self.recall_gain, self.thresholds))


@dataclass(frozen=True, slots=True, eq=False)
class GainCurve:
    """Cumulative gain: recall against the share of examples flagged, highest scores first.

    `flagged`, `recall` and `thresholds` are the knots, thresholds descending. Call the curve for
    the recall at any flagged share; :meth:`lift` is how many times that of chance it is.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.6])})
    >>> result.gain_curve()(0.5)  # positives among the half with the highest scores
    1.0
    """

    flagged: Floats
    recall: Floats
    thresholds: Floats
    path: ParametricCurve = field(repr=False)

    def __call__(self, flagged: Any) -> Any:
        """Recall at each share of examples flagged; a float at a single one."""
        return _as_given(_read_off(self.path, flagged, side="end"))

    def lift(self, flagged: Any) -> Any:
        """Recall over the share flagged; NaN where nothing is flagged."""
        share = _rates(flagged)
        with np.errstate(divide="ignore", invalid="ignore"):
            return _as_given(np.where(share > 0, self(share) / share, np.nan))

    def points(self) -> tuple[Floats, Floats]:
        """Share flagged and recall along the curve, close enough to draw it."""
        return self.path.points()

    def __iter__(self) -> Iterator[Floats]:
        return iter((self.flagged, self.recall, self.thresholds))


def _rates(values: Any) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if not np.all((array >= 0) & (array <= 1)):
        raise InputError("a rate lies between 0 and 1.")
    return array


def _read_off(path: ParametricCurve, x: Any, *, side: str) -> Floats:
    array = _rates(x)
    return np.clip(path.at(array.ravel(), side=side), 0.0, 1.0).reshape(array.shape)


def _as_given(values: Floats) -> Any:
    """Values as their abscissas came: an array, or a single number."""
    return values if values.ndim else float(values)


def roc_curve(distribution: ScoreDistribution) -> RocCurve:
    """The ROC curve of a distribution."""
    d = distribution
    path = ParametricCurve(d.width, d.fpr_pieces, d.tpr_pieces)
    return RocCurve(d.fpr, d.tpr, d.thresholds, path)


def pr_curve(distribution: ScoreDistribution) -> PrCurve:
    """The PR curve of a distribution."""
    d = distribution
    hits, flagged = d.positives * d.tpr[1:], d.flagged[1:]
    precision = np.divide(hits, flagged, out=np.ones_like(hits), where=flagged > 0)
    precision = np.minimum(precision, 1.0)
    if d.steps.all():
        path = _steps(d.tpr, precision)
    else:
        top, bottom, still = d.positives * d.tpr_pieces, d.flagged_pieces, np.flatnonzero(d.steps)
        if still.size:
            bottom = bottom.copy()
            top[:, still] = bottom[:, still] = 0.0
            top[-1, still], bottom[-1, still] = precision[still], 1.0
        path = ParametricCurve(d.width, d.tpr_pieces, top, bottom)
    return PrCurve(
        precision=np.append(precision[::-1], 1.0),
        recall=np.append(d.tpr[:0:-1], 0.0),
        thresholds=d.thresholds[:0:-1],
        path=path,
    )


def _steps(recall: Floats, precision: Floats) -> ParametricCurve:
    """Between two recalls, the precision of the threshold that reaches the higher one."""
    width = np.ones(len(precision))
    top = linear_pieces(width, precision, precision)
    return ParametricCurve(width, linear_pieces(width, recall[:-1], recall[1:]), top)


def det_curve(distribution: ScoreDistribution) -> DetCurve:
    """The DET curve of a distribution."""
    roc = roc_curve(distribution)
    start = int(np.searchsorted(roc.fpr, 0.0, side="right")) - 1
    end = int(np.searchsorted(roc.tpr, roc.tpr[-1])) + 1
    kept = slice(start, max(end, start + 1))
    fpr, tpr, thresholds = (each[kept][::-1] for each in roc)
    return DetCurve(fpr, 1.0 - tpr, thresholds, roc)


def prg_curve(distribution: ScoreDistribution) -> PrGainCurve:
    """The precision-recall-gain curve of a distribution.

    With r positives for each negative: precision gain 1 - FPR / TPR, recall gain 1 + r - r / TPR.
    """
    d = distribution
    ratio = d.positives / d.negatives
    start = ratio / (1.0 + ratio)
    inverse = ParametricCurve(d.width, d.tpr_pieces, d.fpr_pieces)
    beyond = d.tpr >= start
    fpr = np.append(inverse.at(np.array([start]), side="start"), d.fpr[beyond])
    tpr = np.append(start, d.tpr[beyond])
    first = int(np.argmax(beyond))
    return PrGainCurve(
        precision_gain=1.0 - fpr / tpr,
        recall_gain=1.0 + ratio - ratio / tpr,
        thresholds=np.append(d.thresholds[first], d.thresholds[beyond]),
        ratio=ratio,
        inverse=inverse,
    )


def gain_curve(distribution: ScoreDistribution) -> GainCurve:
    """The cumulative gain curve of a distribution."""
    d = distribution
    total = d.negatives + d.positives
    path = ParametricCurve(d.width, d.flagged_pieces / total, d.tpr_pieces)
    return GainCurve(np.minimum(d.flagged / total, 1.0), d.tpr, d.thresholds, path)


def exact_roc_curve(y_true: Any, y_score: Any, *, positive: Label | None = None) -> RocCurve:
    """The ROC curve of pooled data: every distinct score is a knot, joined by lines.

    Examples
    --------
    >>> fpr, tpr, thresholds = exact_roc_curve([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> fpr
    array([0. , 0. , 0.5, 0.5, 1. ])
    """
    hits, wrong, thresholds = _exact_counts(y_true, y_score, positive)
    tpr, fpr = hits / hits[-1], wrong / wrong[-1]
    width = np.diff(fpr + tpr)
    path = ParametricCurve(
        width, linear_pieces(width, fpr[:-1], fpr[1:]), linear_pieces(width, tpr[:-1], tpr[1:])
    )
    return RocCurve(fpr, tpr, thresholds, path)


def exact_pr_curve(y_true: Any, y_score: Any, *, positive: Label | None = None) -> PrCurve:
    """The PR curve of pooled data: a step at every distinct score, as in scikit-learn.

    Examples
    --------
    >>> precision, recall, thresholds = exact_pr_curve([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> recall
    array([1. , 1. , 0.5, 0.5, 0. ])
    """
    hits, wrong, thresholds = _exact_counts(y_true, y_score, positive)
    precision = hits[1:] / (hits[1:] + wrong[1:])
    recall = hits / hits[-1]
    return PrCurve(
        precision=np.append(precision[::-1], 1.0),
        recall=recall[::-1],
        thresholds=thresholds[:0:-1],
        path=_steps(recall, precision),
    )


def _exact_counts(
    y_true: Any, y_score: Any, positive: Label | None
) -> tuple[Floats, Floats, Floats]:
    """True and false positives at threshold infinity and at each distinct score, descending."""
    examples = Examples(y_true, y_score)
    reader, scores = LabelReader(positive), examples.y_score
    if getattr(examples.labels, "ndim", 1) > 1:
        raise InputError("an exact curve needs one label for each example. Pass one column.")
    labels = reader(examples.labels)
    if reader.missing or reader.unusable or not np.all(np.isfinite(scores)):
        raise InputError("an exact curve needs finite scores and labels of two classes.")
    thresholds, group = np.unique(-scores, return_inverse=True)
    hits = np.cumsum(np.bincount(group, weights=labels))
    wrong = np.cumsum(np.bincount(group, weights=1.0 - labels))
    require_both_classes(*(float(c[-1]) if len(c) else 0.0 for c in (wrong, hits)))
    return np.append(0.0, hits), np.append(0.0, wrong), np.append(np.inf, -thresholds)


def area_error(estimated: RocCurve | PrCurve, exact: RocCurve | PrCurve) -> float:
    """Area between an estimated curve and an exact one (Xu & Cormode 2025, definition 4.1).

    The integral of the absolute difference over the false positive rate (ROC) or the recall (PR),
    piece by piece between all breakpoints and crossings, not on a grid.

    Parameters
    ----------
    estimated
        A curve of any kind.
    exact
        A curve of the same kind from :func:`exact_roc_curve` or :func:`exact_pr_curve`.

    Examples
    --------
    >>> truth = exact_roc_curve([0, 1], [0.2, 0.8])
    >>> chance = exact_roc_curve([0, 1], [0.5, 0.5])
    >>> round(area_error(chance, truth), 12)
    0.5
    """
    if type(estimated) is not type(exact):
        raise InputError("area_error compares two ROC curves or two PR curves.")
    path = exact.path
    if path.bottom is not None or np.any(path.x[:2]) or np.any(path.top[:2]):
        raise InputError(
            "the second curve must be exact: make it with exact_roc_curve or exact_pr_curve."
        )
    moves = path.x[2] > 0
    width = path.width[moves]
    x, y = path.x[:, moves], path.top[:, moves]
    return estimated.path.distance(
        starts=x[3], ends=x[3] + x[2] * width, left=y[3], right=y[3] + y[2] * width
    )


_POINTS: Final = 1000  # of a curve at least, where it is taken as lines
_OF_A_PIECE: Final = 3  # at least: bins are then so narrow that a curve is straight in them


def average_roc(curves: Sequence[RocCurve], weights: Floats) -> RocCurve:
    """The mean of true positive rates at each false positive rate; exact where the curves are."""
    x, y = _mean([each.path for each in curves], weights)
    return RocCurve(x, y, np.full(len(x), np.nan), _path(x, y))


def average_pr(curves: Sequence[PrCurve], weights: Floats) -> PrCurve:
    """The mean of precisions at each recall; exact where the curves are."""
    x, y = _mean([each.path for each in curves], weights)
    return PrCurve(y[::-1], x[::-1], np.full(len(x) - 1, np.nan), _path(x, y))


def _mean(paths: Sequence[ParametricCurve], weights: Floats) -> tuple[Floats, Floats]:
    """Points of the mean, two where a curve is vertical: where it is reached, and where left."""
    lines = [_lines(path) for path in paths]
    at = np.unique(np.concatenate([x for x, _ in lines]))
    reached, left = np.zeros_like(at), np.zeros_like(at)
    for (x, y), weight in zip(lines, weights, strict=True):
        first, last = (np.searchsorted(x, at, side=side) for side in ("left", "right"))
        between = weight * np.interp(at, x, y)
        known = first < last  # the curve has a point there, or several
        reached += np.where(known, weight * y[np.minimum(first, len(y) - 1)], between)
        left += np.where(known, weight * y[np.maximum(last - 1, 0)], between)
    x, y = np.repeat(at, 2), np.column_stack([reached, left]).ravel()
    kept = np.append(True, (np.diff(x) > 0) | (np.diff(y) != 0))
    return x[kept], y[kept]


def _lines(path: ParametricCurve) -> tuple[Floats, Floats]:
    """Points along a curve that lines join: its knots where it is made of lines."""
    straight = path.bottom is None and not (np.any(path.x[:2]) or np.any(path.top[:2]))
    points = 2 if straight else max(_OF_A_PIECE, math.ceil(_POINTS / len(path.width)))
    x, y = path.sample(points)
    return np.clip(np.maximum.accumulate(x), 0.0, 1.0), np.clip(y, 0.0, 1.0)


def _path(x: Floats, y: Floats) -> ParametricCurve:
    width = np.ones(len(x) - 1)
    return ParametricCurve(
        width, linear_pieces(width, x[:-1], x[1:]), linear_pieces(width, y[:-1], y[1:])
    )
