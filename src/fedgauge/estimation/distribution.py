"""From pooled counts to the rates of both classes along all thresholds.

An estimator joins what the counts say at the edges into one path: false and true
positive rates as functions of a parameter, from (0, 0) at the highest threshold to
(1, 1) at the lowest.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.axis import Axis
from fedgauge.data.examples import Examples
from fedgauge.errors import InputError, PlanError, UndefinedMetric
from fedgauge.estimation import repair
from fedgauge.estimation.piecewise import horner, linear_pieces, monotone_cubics, shifted
from fedgauge.typing import Floats

Interpolation = Literal["pchip", "linear"]
_ROUNDING: Final = 1e-12


class Aligned(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="aligned"
):
    """Join the exact points at the bin edges, both classes at the same thresholds.

    Between edges the path is a monotone cubic (PCHIP) in the sum of both rates. It is
    approximate only there; on an axis of known values it is exact everywhere.

    Parameters
    ----------
    interpolation
        Monotone cubic or straight.
    shrink
        Under noise: whether counts are first brought nearer to a smooth ratio of both classes, on
        up to 256 bins. Less error on nearly all data, and no privacy spent.

    Examples
    --------
    >>> import fedgauge as fg
    >>> sites = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
    >>> result = fg.evaluate(sites)
    >>> fg.Aligned().interpolation
    'pchip'
    >>> result.with_estimator(fg.Aligned("linear")).roc_auc.value == result.roc_auc.value
    True
    """

    interpolation: Interpolation = "pchip"
    shrink: bool = True

    def __post_init__(self) -> None:
        _check_choice("interpolation", self.interpolation, ("pchip", "linear"))
        if not isinstance(self.shrink, bool):
            raise PlanError(f"shrink must be True or False, got {self.shrink!r}.")


class Quantile(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="quantile"
):
    """Evenly spaced quantiles of each class, joined in score (Xu & Cormode 2025, algorithm 1).

    Each quantile is the left edge of its bin. The classes have thresholds of their own,
    so between quantiles the two rates are misaligned: kept to compare with the paper.

    Parameters
    ----------
    quantiles
        How many quantiles to take from each class.
    interpolation
        Monotone cubic or straight.
    pr
        ``"separate"`` takes precision from both classes, ``"combine"`` its denominator
        from the quantiles of all examples.

    Examples
    --------
    >>> import fedgauge as fg
    >>> sites = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
    >>> result = fg.evaluate(sites)
    >>> result.with_estimator(fg.Quantile()).roc_auc.value > 0.5
    True
    """

    quantiles: int = 256
    interpolation: Interpolation = "pchip"
    pr: Literal["separate", "combine"] = "separate"

    def __post_init__(self) -> None:
        if not isinstance(self.quantiles, int) or self.quantiles < 2:
            raise PlanError(f"quantiles must be a whole number from 2, got {self.quantiles!r}.")
        _check_choice("interpolation", self.interpolation, ("pchip", "linear"))
        _check_choice("pr", self.pr, ("separate", "combine"))


class Range(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="range"):
    """Rates at the bin edges, smoothed to be monotone and joined by lines (Barczewski et al. 2025).

    Each class is smoothed on its own, in least squares or least absolute deviations. Kept
    to compare with that paper.

    Examples
    --------
    >>> import fedgauge as fg
    >>> sites = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
    >>> result = fg.evaluate(sites)
    >>> result.with_estimator(fg.Range()).roc_auc.value > 0.5
    True
    """

    smoothing: Literal["l1", "l2"] = "l2"

    def __post_init__(self) -> None:
        _check_choice("smoothing", self.smoothing, ("l1", "l2"))


Estimator = Aligned | Quantile | Range


def shrinks(estimator: Estimator) -> bool:
    """Whether an estimator reads likely counts in the place of those that noise left."""
    return isinstance(estimator, Aligned) and estimator.shrink


@dataclass(frozen=True, slots=True, eq=False)
class ScoreDistribution:
    """Rates of both classes along all thresholds, and the class totals.

    `thresholds`, `fpr`, `tpr` and `flagged`, the number of examples at or above the
    threshold, are the knots, from threshold infinity down. `width` and the coefficient
    arrays hold the path between knots as cubics. `steps` says of each piece that precision holds
    still on it, as it does when every score in a bin is equal.
    """

    negatives: float
    positives: float
    thresholds: Floats
    fpr: Floats
    tpr: Floats
    flagged: Floats
    width: Floats
    fpr_pieces: Floats
    tpr_pieces: Floats
    flagged_pieces: Floats
    steps: NDArray[np.bool_]


def estimate(
    axis: Axis,
    counts: NDArray[Any],
    estimator: Estimator,
    *,
    straight: bool = False,
    single: NDArray[np.bool_] | None = None,
) -> ScoreDistribution:
    """The distribution that an estimator sees in pooled counts (negatives, positives).

    Counts are not negative: noisy ones are repaired before. Only `Range` takes them as they
    were released, because it smooths the rates itself. With `straight`, `Aligned` joins points by
    lines whatever its interpolation. `single` says of bins that their scores are one; by default it
    is what the axis says.
    """
    negatives, positives = (float(row.sum()) for row in counts)
    require_both_classes(negatives, positives)
    if isinstance(estimator, Range):
        return _ranges(axis, counts, estimator)
    if isinstance(estimator, Aligned):
        return _aligned(axis, counts, estimator, straight=straight, single=single)
    rows = [*counts, counts.sum(axis=0)]
    quantiles = [_left_edges(axis, row, estimator.quantiles) for row in rows]
    return from_quantiles(quantiles, (negatives, positives), estimator)


def from_exact_quantiles(y_true: Any, y_score: Any, estimator: Quantile) -> ScoreDistribution:
    """The quantile estimator fed with exact quantiles of pooled data: a baseline for studies."""
    examples = Examples(y_true, y_score)
    labels, scores = examples.y_true, examples.y_score
    groups = [scores[labels == 0], scores[labels == 1], scores]
    if len(groups[0]) + len(groups[1]) != len(scores) or not np.all(np.isfinite(scores)):
        raise InputError("exact quantiles need labels 0 and 1 and finite scores.")
    negatives, positives = float(len(groups[0])), float(len(groups[1]))
    require_both_classes(negatives, positives)
    levels = np.linspace(0.0, 1.0, estimator.quantiles)
    quantiles = [np.quantile(group, levels) for group in groups]
    return from_quantiles(quantiles, (negatives, positives), estimator)


def require_both_classes(negatives: float, positives: float) -> None:
    """Refuse to draw a curve of one class."""
    for count, name in ((positives, "positive"), (negatives, "negative")):
        if count <= 0:
            raise UndefinedMetric(
                f"no client has a {name} example, so ROC and PR curves do not exist. "
                "Check which label counts as positive (positive=...)."
            )


def _aligned(
    axis: Axis,
    counts: NDArray[Any],
    estimator: Aligned,
    *,
    straight: bool,
    single: NDArray[np.bool_] | None,
) -> ScoreDistribution:
    from_top = np.cumsum(counts[:, ::-1], axis=1, dtype=np.float64)
    # Where scores in a bin are one value, examples in it are tied: chance joins the points.
    straight = straight or axis.kind == "values" or estimator.interpolation == "linear"
    rates = from_top / from_top[:, -1:]
    return _through(axis, from_top[:, -1], rates, straight=straight, single=single)


def _ranges(axis: Axis, counts: NDArray[Any], estimator: Range) -> ScoreDistribution:
    from_top = np.cumsum(counts[:, ::-1], axis=1, dtype=np.float64)
    rates = np.array([repair.smooth(row / row[-1], estimator.smoothing) for row in from_top])
    rates[:, -1] = 1.0  # the lowest threshold flags everything
    return _through(axis, from_top[:, -1], rates, straight=True)


def _through(
    axis: Axis,
    totals: Floats,
    rates: Floats,
    *,
    straight: bool,
    single: NDArray[np.bool_] | None = None,
) -> ScoreDistribution:
    """The path through the rates of both classes at the edges, from the top edge down."""
    negatives, positives = totals
    fpr, tpr = rates
    u = fpr + tpr
    kept = np.diff(u, prepend=0.0) > 0
    thresholds = np.append(np.inf, axis.thresholds[::-1][kept])
    fpr, tpr, u = (np.append(0.0, rate[kept]) for rate in (fpr, tpr, u))
    width = np.diff(u)
    tied = (axis.single if single is None else single)[::-1][kept]
    if straight or len(u) < 3:
        fpr_pieces = linear_pieces(width, fpr[:-1], fpr[1:])
        tpr_pieces = linear_pieces(width, tpr[:-1], tpr[1:])
    else:
        both = monotone_cubics(u, np.stack([fpr, tpr]))
        fpr_pieces, tpr_pieces = both[:, 0], both[:, 1]
        for rate, pieces in ((fpr, fpr_pieces), (tpr, tpr_pieces)):
            pieces[:, tied] = linear_pieces(width[tied], rate[:-1][tied], rate[1:][tied])
    return ScoreDistribution(
        negatives=float(negatives),
        positives=float(positives),
        thresholds=thresholds,
        fpr=fpr,
        tpr=tpr,
        flagged=negatives * fpr + positives * tpr,
        width=width,
        fpr_pieces=fpr_pieces,
        tpr_pieces=tpr_pieces,
        flagged_pieces=negatives * fpr_pieces + positives * tpr_pieces,
        steps=tied,
    )


def _left_edges(axis: Axis, row: NDArray[Any], quantiles: int) -> Floats:
    # Level i of Q lies in the first bin with cumulative >= i n / (Q - 1), compared in
    # whole numbers: the product of a rounded level with n can exceed a whole rank.
    cumulative = np.cumsum(row, dtype=np.float64)
    ranks = np.arange(quantiles) * cumulative[-1]
    bins = np.searchsorted(cumulative * (quantiles - 1), ranks, side="left")
    edges: Floats = axis.thresholds[np.minimum(bins, axis.bins - 1)]
    return edges


def from_quantiles(
    quantiles: list[Floats], totals: tuple[float, float], estimator: Quantile
) -> ScoreDistribution:
    """The path through evenly spaced quantiles of negatives, positives and (to combine) all.

    `totals` are the numbers of negatives and positives.
    """
    negatives, positives = totals
    levels = np.linspace(0.0, 1.0, estimator.quantiles)
    survivals = [_survival(q, levels, estimator.interpolation) for q in quantiles]
    if estimator.pr == "separate":
        survivals = survivals[:2]
    knots = np.unique(np.concatenate([survival.x for survival in survivals]))[::-1]
    width, pieces = _along(survivals, knots)
    fpr_pieces, tpr_pieces = pieces[0], pieces[1]
    if estimator.pr == "separate":
        flagged_pieces = negatives * fpr_pieces + positives * tpr_pieces
    else:
        flagged_pieces = (negatives + positives) * pieces[2]
    # Piece 2 i jumps at knot i; piece 2 i + 1 runs from knot i down to knot i + 1.
    fpr, tpr, flagged = (
        np.maximum.accumulate([0.0, *pieces[-1, 1::2], end])
        for pieces, end in (
            (fpr_pieces, 1.0),
            (tpr_pieces, 1.0),
            (flagged_pieces, negatives + positives),
        )
    )
    return ScoreDistribution(
        negatives=negatives,
        positives=positives,
        thresholds=np.append(np.inf, knots),
        fpr=fpr,
        tpr=tpr,
        flagged=flagged,
        width=width,
        fpr_pieces=fpr_pieces,
        tpr_pieces=tpr_pieces,
        flagged_pieces=flagged_pieces,
        steps=np.zeros(len(width), dtype=bool),
    )


class _Survival(NamedTuple):
    """A survival function: its knots, and cubics between them."""

    x: Floats
    c: Floats


def _survival(quantiles: Floats, levels: Floats, interpolation: Interpolation) -> _Survival:
    """1 - ECDF through the quantiles; equal ones are one knot at their mean level."""
    knots, group = np.unique(quantiles, return_inverse=True)
    survival = 1.0 - np.bincount(group, weights=levels) / np.bincount(group)
    if interpolation == "pchip" and len(knots) > 2:
        return _Survival(knots, monotone_cubics(knots, survival))
    return _Survival(knots, linear_pieces(np.diff(knots), survival[:-1], survival[1:]))


def _along(survivals: list[_Survival], knots: Floats) -> tuple[Floats, list[Floats]]:
    """All survivals as pieces over descending knots, with a unit piece for each jump.

    A survival is 0 above its highest quantile and 1 below its lowest, so every path
    starts at 0 and ends at 1.
    """
    width = np.ones(2 * len(knots) - 1)
    width[1::2] = -np.diff(knots)
    pieces = []
    for survival in survivals:
        runs = _between(survival, knots)
        before = np.append(0.0, np.clip(horner(runs, width[1::2]), 0.0, 1.0))
        runs[-1] = np.clip(runs[-1], 0.0, 1.0)
        after = np.append(runs[-1], 1.0)
        before = np.where(np.abs(after - before) < _ROUNDING, after, before)
        joined = np.empty((4, len(width)))
        joined[:, 1::2] = runs
        joined[:, 0::2] = linear_pieces(np.ones(len(knots)), before, after)
        pieces.append(joined)
    return width, pieces


def _between(survival: _Survival, knots: Floats) -> Floats:
    """Coefficients of the survival in ``t = knot - s`` from each knot down to the next."""
    upper, lower = knots[:-1], knots[1:]
    runs = np.zeros((4, len(upper)))
    runs[-1] = np.where(upper <= survival.x[0], 1.0, 0.0)
    inside = (lower >= survival.x[0]) & (upper <= survival.x[-1])
    if np.any(inside):
        piece = np.searchsorted(survival.x, lower[inside], side="right") - 1
        local = shifted(survival.c[:, piece], upper[inside] - survival.x[piece])
        runs[:, inside] = local * np.array([[-1.0], [1.0], [-1.0], [1.0]])
    return runs


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise PlanError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")
