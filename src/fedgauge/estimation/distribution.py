"""Estimators: from pooled counts to the rates of both classes along all thresholds.

An estimator joins the counts at the edges into one path of piecewise polynomials: false and true
positive rates as functions of a parameter, from (0, 0) at the highest threshold to (1, 1) at the
lowest.
"""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats, Indices
from fedgauge.data.examples import Examples
from fedgauge.errors import InputError, PlanError, UndefinedMetric
from fedgauge.estimation import repair
from fedgauge.histograms.axis import Axis

NARROWEST: Final = 1e-100  # width of a bin that curves pass through: its cube is still a float
_BISECTIONS: Final = 60
_DRAWN: Final = 1000  # points of a curve at least, and on each of its pieces at least
_DRAWN_OF_A_PIECE: Final = 8
_GRADES: Final = 40
_NUDGE: Final = 1e-6  # where a quotient is 0/0, look this far into the piece
# Exact for the polynomials here (degree 5 with the Jacobian); a quotient is smooth on a piece.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_QUADRATURE: Final = (0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS)


@dataclass(frozen=True, slots=True, eq=False)
class ParametricCurve:
    """Pieces ``t in [0, width]`` with ``x(t)`` and ``y(t) = top(t) / bottom(t)``, at most 1.

    Coefficients have shape (4, pieces), highest power first. `bottom` None means 1.
    """

    width: Floats
    x: Floats
    top: Floats
    bottom: Floats | None = None

    def ordinate(self, piece: Indices, t: Floats) -> Floats:
        """y at offset t of the given pieces."""
        top = horner(self.top[:, piece], t)
        if self.bottom is None:
            return top
        bottom = horner(self.bottom[:, piece], t)
        vanishing = bottom <= 0
        if np.any(vanishing):
            nudged = np.where(vanishing, t + _NUDGE * self.width[piece], t)
            top = np.where(vanishing, horner(self.top[:, piece], nudged), top)
            bottom = np.where(vanishing, horner(self.bottom[:, piece], nudged), bottom)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.minimum(np.where(bottom > 0, top / bottom, 1.0), 1.0)

    def at(self, x: Floats, *, side: str) -> Floats:
        """y at each x. Where the curve is vertical, `side` picks its start or its end."""
        piece, t = self.locate(x, side=side)
        return self.ordinate(piece, t)

    def locate(self, x: Floats, *, side: str) -> tuple[Indices, Floats]:
        """The piece and offset at which the curve reaches each x."""
        starts = np.maximum.accumulate(self.x[-1])
        if side == "end":  # the last parameter at which the abscissa is still x
            piece = np.searchsorted(starts, x, side="right") - 1
        else:
            piece = np.searchsorted(starts, x, side="left") - 1
        piece = np.clip(piece, 0, len(starts) - 1)
        coefficients = self.x[:, piece]
        below, above = np.zeros_like(x), self.width[piece].copy()
        for _ in range(_BISECTIONS):
            middle = 0.5 * (below + above)
            value = horner(coefficients, middle)
            low = value <= x if side == "end" else value < x
            below = np.where(low, middle, below)
            above = np.where(low, above, middle)
        t = 0.5 * (below + above)
        if side == "end":  # a flat end is reached before rounding lets a bisection see it
            t = np.where(x >= horner(coefficients, self.width[piece]), self.width[piece], t)
        return piece, t

    def sample(self, points: int) -> tuple[Floats, Floats]:
        """x and y along the curve, `points` on each piece, both ends included."""
        piece = np.arange(len(self.width))[:, np.newaxis]
        t = np.linspace(0.0, 1.0, points) * self.width[:, np.newaxis]
        return horner(self.x[:, piece], t).ravel(), self.ordinate(piece, t).ravel()

    def points(self) -> tuple[Floats, Floats]:
        """x and y along the curve, close enough to draw it: more on a piece where there are few."""
        return self.sample(max(_DRAWN_OF_A_PIECE, math.ceil(_DRAWN / len(self.width))))

    def area(self) -> float:
        """Integral of y over x."""
        nodes, weights = _QUADRATURE
        piece, begin, finish = self._smooth_parts(np.empty(0, dtype=np.intp), np.empty(0))
        span = (finish - begin)[:, None]
        t = begin[:, None] + nodes * span
        pieces = piece[:, None]
        slope = horner(derivative(self.x)[:, pieces], t)
        return float(np.sum(self.ordinate(pieces, t) * slope * weights * span))

    def distance(self, starts: Floats, ends: Floats, left: Floats, right: Floats) -> float:
        """Integral over x of ``|y - line|`` for adjoining line segments.

        Segment i runs from (starts[i], left[i]) to (ends[i], right[i]). Each piece is cut at the
        ends of segments and where it crosses the segment: on every part the integrand is smooth and
        of one sign.
        """
        knots = np.append(starts, ends[-1:])
        piece, begin, finish = self._smooth_parts(*self.locate(knots, side="end"))

        middle = horner(self.x[:, piece], 0.5 * (begin + finish))
        segment = np.clip(np.searchsorted(starts, middle, side="right") - 1, 0, len(starts) - 1)
        slope = (right[segment] - left[segment]) / (ends[segment] - starts[segment])
        offset = left[segment] - slope * starts[segment]

        x, top = self.x[:, piece], self.top[:, piece]
        line = slope * x
        line[-1] += offset
        if self.bottom is None:
            gap = line - top
        else:  # the truth is then a step, so line * bottom stays a cubic
            gap = offset * self.bottom[:, piece] - top
        cut = np.sort(_roots_within(gap, begin, finish), axis=0)
        bounds = np.vstack([begin, cut, finish])

        nodes, weights = _QUADRATURE
        span = np.diff(bounds, axis=0)[..., None]
        t = bounds[:-1, :, None] + nodes * span
        pieces = piece[None, :, None]
        here = horner(self.x[:, pieces], t)
        error = self.ordinate(pieces, t) - (offset[None, :, None] + slope[None, :, None] * here)
        jacobian = horner(derivative(self.x)[:, pieces], t)
        return float(np.sum(np.abs(error) * jacobian * weights * span))

    def _smooth_parts(self, cuts: Indices, offsets: Floats) -> tuple[Indices, Floats, Floats]:
        """Piece, begin and finish of parts on which y is smooth, cut also where asked."""
        whole = np.arange(len(self.width))
        pieces, begins = [whole, cuts], [np.zeros(len(whole)), offsets]
        if self.bottom is not None:
            for piece, t in (self._graded_cuts(self.bottom), self._clip_cuts(self.bottom)):
                pieces.append(piece)
                begins.append(t)
        piece, begin = np.concatenate(pieces), np.concatenate(begins)
        order = np.lexsort((begin, piece))
        piece, begin = piece[order], begin[order]
        last_of_piece = np.append(piece[1:] != piece[:-1], True)
        finish = np.where(last_of_piece, self.width[piece], np.append(begin[1:], 0.0))
        keep = finish > begin
        return piece[keep], begin[keep], finish[keep]

    def _graded_cuts(self, bottom: Floats) -> tuple[Indices, Floats]:
        """Cuts at halves of halves towards the start of pieces whose denominator grows fast.

        Such a quotient has a pole close before the start. On each graded part the pole is at least
        the part's length away, where the quadrature converges quickly.
        """
        grows = np.flatnonzero(horner(bottom, self.width) > 2.0 * bottom[-1])
        halves = 0.5 ** np.arange(1, _GRADES + 1)
        return np.repeat(grows, _GRADES), np.outer(self.width[grows], halves).ravel()

    def _clip_cuts(self, bottom: Floats) -> tuple[Indices, Floats]:
        """Cuts where the quotient reaches 1 and is clipped."""
        cuts = _roots_within(self.top - bottom, np.zeros_like(self.width), self.width)
        return np.tile(np.arange(len(self.width)), len(cuts)), cuts.ravel()


def horner(coefficients: Floats, t: Floats) -> Floats:
    """Polynomials with coefficients along the first axis, highest power first, at t."""
    value: Floats = coefficients[0]
    for coefficient in coefficients[1:]:
        value = value * t + coefficient
    return value


def derivative(coefficients: Floats) -> Floats:
    """Coefficients of the derivatives."""
    powers = np.arange(len(coefficients) - 1, 0, -1.0)
    return coefficients[:-1] * powers[:, None]


def shifted(coefficients: Floats, origin: Floats) -> Floats:
    """Coefficients of the same cubics around another origin."""
    a, b, c, _ = coefficients
    value = horner(coefficients, origin)
    slope = (3 * a * origin + 2 * b) * origin + c
    return np.vstack([a, 3 * a * origin + b, slope, value])


def linear_pieces(width: Floats, start: Floats, end: Floats) -> Floats:
    """Coefficients, as cubics, of straight lines from start to end."""
    zero = np.zeros_like(start)
    return np.vstack([zero, zero, (end - start) / width, start])


def monotone_cubics(x: Floats, y: Floats) -> Floats:
    """Coefficients of the monotone cubics (PCHIP) through the points, three or more.

    Points lie along the last axis of `y`; in the result powers are the first axis and pieces the
    last. Bit for bit SciPy's ``PchipInterpolator``, whose checks of its input take longer than its
    arithmetic.
    """
    width = np.diff(x)
    slope = np.diff(y) / width
    before, after = slope[..., :-1], slope[..., 1:]
    # Fritsch & Butland 1984: a weighted harmonic mean where both sides go the same way.
    w1 = 2 * width[1:] + width[:-1]
    w2 = width[1:] + 2 * width[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = 1.0 / ((w1 / before + w2 / after) / (w1 + w2))
    inner = np.where((np.sign(before) == np.sign(after)) & (before != 0), mean, 0.0)
    first = _end_slope(width[0], width[1], slope[..., :1], slope[..., 1:2])
    last = _end_slope(width[-1], width[-2], slope[..., -1:], slope[..., -2:-1])
    tangent = np.concatenate([first, inner, last], axis=-1)
    start, finish = tangent[..., :-1], tangent[..., 1:]
    bend = (start + finish - 2 * slope) / width
    return np.stack([bend / width, (slope - start) / width - bend, start, y[..., :-1]])


def _end_slope(width: float, next_width: float, slope: Floats, next_slope: Floats) -> Floats:
    """The slope at an end, one-sided and kept from overshooting (Moler 2004, section 3.6)."""
    end = ((2 * width + next_width) * slope - width * next_slope) / (width + next_width)
    turns = (np.sign(slope) != np.sign(next_slope)) & (np.abs(end) > 3.0 * np.abs(slope))
    return np.where(np.sign(end) != np.sign(slope), 0.0, np.where(turns, 3.0 * slope, end))


def _roots_within(cubics: Floats, begin: Floats, finish: Floats) -> Floats:
    """Up to three real roots of each cubic in [begin, finish], padded with `finish`.

    [begin, finish] is rescaled to [0, 1]. The extrema of the cubic split it into monotone runs; a
    run whose ends differ in sign holds one root.
    """
    span = finish - begin
    a, b, c, d = shifted(cubics, begin) * np.vstack([span**3, span**2, span, np.ones_like(span)])
    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.sqrt(np.maximum(b * b - 3 * a * c, 0.0))
        # Stable form of the roots of 3 a t^2 + 2 b t + c.
        q = -(b + np.copysign(half, b))
        extrema = np.vstack([q / (3 * a), c / q])
    extrema = np.sort(np.where((extrema > 0) & (extrema < 1), extrema, 1.0), axis=0)
    knots = np.vstack([np.zeros_like(span), extrema, np.ones_like(span)])
    scaled = np.vstack([a, b, c, d])
    low, high = knots[:-1].copy(), knots[1:].copy()
    rising = horner(scaled[:, None, :], low)
    crosses = np.signbit(rising) != np.signbit(horner(scaled[:, None, :], high))
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        same = np.signbit(horner(scaled[:, None, :], middle)) == np.signbit(rising)
        low = np.where(same, middle, low)
        high = np.where(same, high, middle)
    return np.where(crosses, begin + span * 0.5 * (low + high), finish)


Interpolation = Literal["pchip", "linear"]
_ROUNDING: Final = 1e-12
_STILL: Final = 1e-90  # of both rates together: the square of a lesser step is no float


class Aligned(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="aligned"
):
    """Join the exact points at the bin edges, both classes at the same thresholds.

    Between edges the path is a monotone cubic (PCHIP) in the sum of both rates. It is approximate
    only there; on an axis of known values it is exact everywhere.

    Parameters
    ----------
    interpolation
        Monotone cubic or straight.
    shrink
        Under noise: whether counts are first brought nearer to a smooth ratio of both classes, on
        up to 256 bins. Less error on nearly all data, and no privacy spent.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 0], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])})
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

    Each quantile is the left edge of its bin. The classes have thresholds of their own, so between
    quantiles the two rates are misaligned: kept to compare with the paper.

    Parameters
    ----------
    quantiles
        How many quantiles to take from each class.
    interpolation
        Monotone cubic or straight.
    pr
        ``"separate"`` takes precision from both classes, ``"combine"`` its denominator from the
        quantiles of all examples.

    Examples
    --------
    >>> sites = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
    >>> fg.evaluate(sites, estimator=fg.Quantile()).roc_auc.value > 0.5
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

    Each class is smoothed on its own, in least squares or least absolute deviations. Kept to
    compare with that paper.

    Examples
    --------
    >>> sites = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
    >>> fg.evaluate(sites, estimator=fg.Range()).roc_auc.value > 0.5
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

    `thresholds`, `fpr`, `tpr` and `flagged`, the number of examples at or above the threshold, are
    the knots, from threshold infinity down. `width` and the coefficient arrays hold the path
    between knots as cubics. `steps` says of each piece that precision holds still on it, as it does
    when every score in a bin is equal.
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

    Counts are not negative: noisy ones are repaired before, but for `Range`, which smooths the
    rates itself. With `straight`, `Aligned` joins points by lines whatever its interpolation.
    `single` says of bins that their scores are one; by default the axis does.
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
    kept = np.diff(u, prepend=0.0) > _STILL
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
    """The path through evenly spaced quantiles of negatives, positives and (to combine) all."""
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
    """All survivals, from 0 to 1, as pieces over descending knots, with a unit piece a jump."""
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
