"""Several curves as one: the mean of their ordinates at every abscissa (vertical averaging)."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from fedgauge.estimation.piecewise import ParametricCurve, linear_pieces
from fedgauge.measures.curves import PrCurve, RocCurve
from fedgauge.typing import Floats

_POINTS: Final = 1000  # of a curve at least, where it is taken as lines
_OF_A_PIECE: Final = 3  # at least: bins are then so narrow that a curve is straight in them


def average_roc(curves: Sequence[RocCurve], weights: Floats) -> RocCurve:
    """The mean of true positive rates at each false positive rate.

    Of exact curves it is exact, so :func:`~fedgauge.area_error` compares the two.

    Examples
    --------
    >>> from fedgauge.measures.curves import exact_roc_curve
    >>> perfect = exact_roc_curve([0, 1], [0.2, 0.8])
    >>> chance = exact_roc_curve([0, 1], [0.5, 0.5])
    >>> average_roc([perfect, chance], np.array([0.5, 0.5]))([0.0, 0.5])
    array([0.5 , 0.75])
    """
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
