"""How many bins, and in which tree: the least error to expect, from what is public."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple

import numpy as np

from fedgauge.binning.axis import Axis
from fedgauge.estimation.distribution import Aligned, estimate
from fedgauge.estimation.repair import noise_covariance
from fedgauge.measures import areas, curves
from fedgauge.measures.intervals import LEVEL, critical
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.task import LabelTask
from fedgauge.planner.worlds import AT, SHAPES, Shape
from fedgauge.privacy import AnyPrivacyModel, Cohort
from fedgauge.privacy.flipping import least_chance
from fedgauge.privacy.flipping import variances as flip_variances
from fedgauge.typing import Floats
from fedgauge.vertical.assignment import FEWER, REFERENCE_AUC, balanced_ranks, times_odds

_TREES: Final = (
    *((bins,) for bins in (8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)),
    *((first, second) for first, second in ((4, 8), (8, 8), (16, 8), (16, 16))),
)
FLAT_BINS: Final = 64  # where no tree was chosen
_LOG_ODDS: Final = np.linspace(-45.0, 30.0, 30_001)
_POINTS: Final = 9  # on a piece of a curve, enough for a mean over it
_MANY: Final = 1e9  # examples, of which one less is as good
_FINE: Final = 1024  # bins that average precision loses nothing by
_MOST_BINNED: Final = 1.1  # times the noise of the AUC that binning may make of it
_OFF: Final = (0.25, 1.0, 4.0)  # times: how the odds of a positive may compare with what is hinted
_MOST_APART: Final = 0.75  # deviations that straight pieces may move the AUC by, in the mean
_MOST_MISSED: Final = 0.065  # of intervals for 95% of average precision
_MEAN_OF_NORMAL: Final = math.sqrt(2.0 / math.pi)  # of its absolute value, in deviations


class Expected(NamedTuple):
    """Errors to expect.

    Attributes
    ----------
    roc_area_error, pr_area_error
        Mean distance of the curve from that of all data, by noise and binning.
    roc_auc_error
        Root mean square error of the AUC, by noise and binning.
    roc_auc_sampling
        Standard deviation of the AUC over samples of examples: what no design changes.
    """

    roc_area_error: float
    pr_area_error: float
    roc_auc_error: float
    roc_auc_sampling: float


def choose_tree(
    privacy: AnyPrivacyModel,
    cohort: Cohort,
    *,
    parties: int,
    examples: int,
    positive_rate: float,
    only: Literal["roc_auc"] | None = None,
) -> tuple[int, ...]:
    """Branchings with the least error of ROC curve, PR curve and AUC together, or of the AUC alone.

    Errors are computed to first order in the noise, for plausible scores of all strengths: played
    through, with repair, trees come in the same order. Bins are as many as it takes for intervals
    of average precision to hold it also where the odds of a positive are a quarter of what was
    hinted, whatever the scores, and for those of the AUC to be no longer than need be
    (`studies/label_coverage.py`). For the AUC alone they are as many
    as keep what binning adds below its noise, also where these odds are four times off
    (`studies/label_choice.py`).

    Parameters
    ----------
    privacy
        What each label is promised.
    cohort
        Which label parties must take part.
    parties
        How many do.
    examples
        How many have a score and a label, which whoever scored knows.
    positive_rate
        About what share is positive: public knowledge, never read from labels.
    only
        ``"roc_auc"`` where nothing else is wanted.

    Examples
    --------
    >>> from fedgauge import DistributedDP
    >>> known = {"parties": 10, "positive_rate": 0.2}
    >>> privacy = DistributedDP(1.0, unit="label", neighbours="flip")
    >>> choose_tree(privacy, Cohort(10), examples=10_000, **known)
    (16,)
    """
    known = examples, positive_rate
    worlds = [(times_odds(positive_rate, off), shape) for off in _OFF for shape in SHAPES]

    def auc_error(tree: tuple[int, ...]) -> tuple[float, float]:
        variances = _variances(privacy, cohort, tree, parties)
        noise, binning = zip(
            *(_auc(tree, variances, *known, *each) for each in worlds), strict=True
        )
        total = np.hypot(noise, binning)
        return max(float(np.max(total / noise)), _MOST_BINNED), float(np.log(total).mean())

    def error(tree: tuple[int, ...]) -> tuple[float, float]:
        variances = _variances(privacy, cohort, tree, parties)
        by_shape = [_errors(tree, variances, *known, each) for each in SHAPES]
        missed = max(_missed(tree, variances, *known, each) for each in SHAPES)
        apart = float(np.mean([_apart(tree, variances, *known, *each) for each in worlds]))
        # Every measure and shape counts the same, whatever the size of its errors.
        return (
            max(missed / _MOST_MISSED, apart / _MOST_APART, 1.0),
            float(np.log([each[:3] for each in by_shape]).mean()),
        )

    return min(_TREES, key=error if only is None else auc_error)


def predicted(
    privacy: AnyPrivacyModel,
    cohort: Cohort,
    tree: Sequence[int],
    *,
    parties: int,
    examples: int,
    positive_rate: float,
    auc: float = REFERENCE_AUC,
) -> Expected:
    """Errors to expect of a tree, where scores are binormal with this AUC.

    Examples
    --------
    >>> from fedgauge import DistributedDP
    >>> privacy = DistributedDP(1.0, unit="label", neighbours="flip")
    >>> known = {"parties": 10, "examples": 10_000, "positive_rate": 0.2}
    >>> expected = predicted(privacy, Cohort(10), (16,), **known)
    >>> round(expected.roc_auc_error, 4), round(expected.roc_auc_sampling, 4)
    (0.001, 0.0048)
    """
    variances = _variances(privacy, cohort, tuple(tree), parties)
    return _errors(tuple(tree), variances, examples, positive_rate, _binormal(auc))


def flipped_deviation(
    epsilon: float, *, examples: int, positive_rate: float, auc: float = REFERENCE_AUC
) -> float:
    """Standard deviation of the AUC by flips of labels, read through bins.

    Examples
    --------
    >>> round(flipped_deviation(1.0, examples=10_000, positive_rate=0.2), 4)
    0.0214
    """
    world = _world(FLAT_BINS, positive_rate, positive_rate, _binormal(auc))
    each = flip_variances(world.shares.sum(axis=0), least_chance(epsilon))
    return math.sqrt(float(world.auc_weights**2 @ each) / examples)


def _binormal(auc: float) -> Shape:
    from scipy.special import ndtri

    return Shape(math.sqrt(2.0) * float(ndtri(auc)))


def _variances(
    privacy: AnyPrivacyModel, cohort: Cohort, tree: tuple[int, ...], parties: int
) -> tuple[float, ...]:
    axis = Axis.from_values(list(range(math.prod(tree))), outside="clip")
    plan = EvaluationPlan.under(privacy, axis, cohort=cohort, task=LabelTask(), tree=tree)
    return plan.noise_variances(parties)


@lru_cache(maxsize=1024)
def _errors(
    tree: tuple[int, ...],
    variances: tuple[float, ...],
    examples: int,
    positive_rate: float,
    shape: Shape,
) -> Expected:
    world = _world(math.prod(tree), positive_rate, positive_rate, shape)
    counts = world.shares * examples
    roc, pr = (
        _MEAN_OF_NORMAL * float(np.average(_deviations(tree, variances, moves), weights=spans))
        for moves, spans in (_roc_moves(counts), _pr_moves(counts))
    )
    return Expected(
        math.hypot(roc, world.roc),
        math.hypot(pr, world.pr),
        math.hypot(*_auc(tree, variances, examples, positive_rate, positive_rate, shape)),
        math.sqrt(areas.auc_sampling_variance(counts, tied=False)),
    )


def _auc(
    tree: tuple[int, ...],
    variances: tuple[float, ...],
    examples: int,
    hinted: float,
    positive_rate: float,
    shape: Shape,
) -> tuple[float, float]:
    """What noise adds to the error of the AUC, and what binning does."""
    world = _world(math.prod(tree), hinted, positive_rate, shape)
    return float(_deviations(tree, variances, world.auc_weights)) / examples, world.auc


def _apart(
    tree: tuple[int, ...],
    variances: tuple[float, ...],
    examples: int,
    hinted: float,
    positive_rate: float,
    shape: Shape,
) -> float:
    """How far the AUC is from that of straight pieces, in deviations.

    Intervals make room for it on one side: beyond 1.7 deviations they hold more than 97%.
    """
    noise, _ = _auc(tree, variances, examples, hinted, positive_rate, shape)
    world = _world(math.prod(tree), hinted, positive_rate, shape)
    return world.straight / math.hypot(noise, world.auc_sampling / math.sqrt(examples))


def _missed(
    tree: tuple[int, ...],
    variances: tuple[float, ...],
    examples: int,
    hinted: float,
    shape: Shape,
) -> float:
    """How often intervals miss average precision by their bins, if positives are rarer.

    Wide bins at the top, across which precision falls, move average precision, and they hide how
    it varies over samples: intervals lie too low, and are too short.
    """
    from scipy.special import ndtr

    rate = times_odds(hinted, FEWER)
    world = _world(math.prod(tree), hinted, rate, shape)
    noise = float(_deviations(tree, variances, world.precision_weights)) / examples
    told, true = (
        math.hypot(noise, each / math.sqrt(examples))
        for each in (world.precision_sampling, _fine_precision_sampling(rate, shape))
    )
    reach = critical(LEVEL) * told
    low, high = ((sign * world.average_precision - reach) / true for sign in (-1.0, 1.0))
    return float(ndtr(low) + ndtr(high))


def _deviations(tree: tuple[int, ...], variances: tuple[float, ...], weights: Floats) -> Floats:
    """Standard deviations of weighted sums of the positives released."""
    deviations: Floats = np.sqrt(noise_covariance(tree, variances, weights, weights))
    return deviations


class _World(NamedTuple):
    """Shares of all examples by class and bin, and how far binning alone moves each measure.

    `straight` is how far straight pieces move the AUC that is estimated. Weights are what one more
    positive does to AUC and average precision, one negative less: they fall with the number of
    examples, and deviations over samples with its root. Both are given for one example.
    """

    shares: Floats
    roc: float
    pr: float
    auc: float
    straight: float
    average_precision: float
    auc_weights: Floats
    auc_sampling: float
    precision_weights: Floats
    precision_sampling: float


class _Truth(NamedTuple):
    """What the scores themselves would show; TPR and precision at fixed abscissas."""

    tpr: Floats
    precision: Floats
    auc: float
    average_precision: float


@lru_cache(maxsize=64)
def _truth(positive_rate: float, shape: Shape) -> _Truth:
    fpr, tpr = (1.0 - up_to[::-1] for up_to in _cumulative(positive_rate, shape))
    hits = positive_rate * tpr
    flagged = hits + (1.0 - positive_rate) * fpr
    precision = np.divide(hits, flagged, out=np.ones_like(hits), where=flagged > 0)
    return _Truth(
        np.interp(AT, fpr, tpr),
        np.interp(AT, tpr, precision),
        _area(fpr, tpr),
        _area(tpr, precision),
    )


@lru_cache(maxsize=512)
def _world(bins: int, hinted: float, positive_rate: float, shape: Shape) -> _World:
    shares, truth = _shares(bins, hinted, positive_rate, shape), _truth(positive_rate, shape)
    estimated = estimate(Axis.uniform(bins), shares, Aligned())
    roc, pr = curves.roc_curve(estimated).path, curves.pr_curve(estimated).path
    tpr, precision = (np.interp(AT, *path.sample(_POINTS)) for path in (roc, pr))
    auc = roc.area()
    return _World(
        shares,
        float(np.abs(tpr - truth.tpr).mean()),
        float(np.abs(precision - truth.precision).mean()),
        abs(auc - truth.auc),
        abs(auc - areas.straight_auc(*shares)),
        abs(pr.area() - truth.average_precision),
        _difference(areas.auc_gradient(shares)),
        math.sqrt(_MANY * areas.auc_sampling_variance(_MANY * shares, tied=False)),
        _difference(areas.average_precision_gradient(shares)),
        math.sqrt(float(areas.average_precision_variance(shares, tied=False))),
    )


@lru_cache(maxsize=32)
def _fine_precision_sampling(positive_rate: float, shape: Shape) -> float:
    shares = _shares(_FINE, positive_rate, positive_rate, shape)
    return math.sqrt(float(areas.average_precision_variance(shares, tied=False)))


def _difference(gradient: Floats) -> Floats:
    negatives, positives = gradient
    difference: Floats = positives - negatives
    return difference


@lru_cache(maxsize=512)
def _shares(bins: int, hinted: float, positive_rate: float, shape: Shape) -> Floats:
    negatives, positives = _cumulative(positive_rate, shape)
    ranks = (1.0 - positive_rate) * negatives + positive_rate * positives
    edges = _edges(bins, hinted)
    shares = np.diff([np.interp(edges, ranks, up_to) for up_to in (negatives, positives)])
    scaled: Floats = shares * [[1.0 - positive_rate], [positive_rate]]
    return scaled


@lru_cache(maxsize=32)
def _cumulative(positive_rate: float, shape: Shape) -> tuple[Floats, Floats]:
    return shape.cumulative(_LOG_ODDS, positive_rate)


@lru_cache(maxsize=32)
def _edges(bins: int, hinted: float) -> Floats:
    return np.concatenate([[0.0], balanced_ranks(bins, hinted), [1.0]])


def _area(x: Floats, y: Floats) -> float:
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]))) / 2.0


def _roc_moves(counts: Floats) -> tuple[Floats, Floats]:
    """What one more positive in a bin does to TPR at the FPR of each inner edge, and its span.

    One more positive is one negative less: where rates move along the curve, nothing is lost.
    """
    negatives, positives = counts
    above = _above(len(positives))
    fpr, tpr = ((above @ row / row.sum())[:, np.newaxis] for row in counts)
    slope = (_at_edges(positives) / positives.sum()) / (_at_edges(negatives) / negatives.sum())
    moves = (above - tpr) / positives.sum() + slope[:, np.newaxis] * (above - fpr) / negatives.sum()
    return moves, _at_edges(negatives)


def _pr_moves(counts: Floats) -> tuple[Floats, Floats]:
    """The same for precision at the recall of each inner edge.

    With T = r P and F negatives flagged at recall r, precision is T / (T + F).
    """
    negatives, positives = counts
    above = _above(len(positives))
    false, true = ((above @ row)[:, np.newaxis] for row in counts)
    recall = true / positives.sum()
    odds = (_at_edges(negatives) / _at_edges(positives))[:, np.newaxis]
    of_false = -above - odds * (above - recall)
    return (recall * false - true * of_false) / (true + false) ** 2, _at_edges(positives)


def _above(bins: int) -> Floats:
    """Which bins are above each inner edge."""
    return np.triu(np.ones((bins, bins)))[1:]


def _at_edges(counts: Floats) -> Floats:
    around: Floats = counts[1:] + counts[:-1]
    return around
