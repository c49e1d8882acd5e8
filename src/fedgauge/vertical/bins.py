"""The bin of each scored example, how many bins, in which tree, and by which mechanism."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats, Tree
from fedgauge.data.examples import Label
from fedgauge.errors import InputError, PlanError
from fedgauge.estimation.distribution import Aligned, estimate
from fedgauge.estimation.repair import noise_covariance
from fedgauge.histograms.axis import Axis
from fedgauge.metrics import areas, curves
from fedgauge.metrics.estimate import LEVEL, critical
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.task import LabelTask
from fedgauge.planner.simulated import AT, SHAPES, Shape
from fedgauge.privacy import AnyPrivacyModel, Cohort, DistributedDP, LocalDP
from fedgauge.privacy.local import least_chance
from fedgauge.privacy.local import variances as flip_variances
from fedgauge.vertical.auc import MECHANISMS, PartyRanks, require_finite

REFERENCE_AUC: Final = 0.85
FEWER: Final = 0.25  # times the odds hinted: bins are laid for rarer positives


@dataclass(frozen=True, eq=False)
class Assignment:
    """The bins of examples, in the order in which they are listed."""

    axis: Axis  # the scores that bins reach from and to; whoever scored keeps it
    bins: NDArray[np.int32]  # the bin of each example


def assign(
    scores: Floats, bins: int, positive_rate: float, *, most_values: int | None = None
) -> Assignment:
    """Bins for scores, each about as telling as another.

    Where both classes count the same, an example at a given rank is as telling as the share of each
    class up to it. So edges lie at the ranks that both fill evenly if scores are binormal with an
    AUC of 0.85 and positives somewhat rarer than hinted, or above these where positives are rare.
    Ranks alone would leave rare positives a few bins. A value that many examples have gets a bin of
    its own, and so do all where up to `most_values` are distinct, by default as many as there are
    bins.

    Examples
    --------
    >>> assign(np.array([0.1, 0.9, 0.5, 0.7]), 2, 0.8).bins.tolist()
    [0, 1, 0, 1]
    """
    if not scores.size:
        raise InputError("there are no scored examples.")
    require_finite(scores)
    axis = _axis(np.sort(scores), bins, positive_rate, most_values or bins)
    return Assignment(axis, axis.index(scores).astype(np.int32))


def balanced_ranks(bins: int, positive_rate: float) -> Floats:
    """Where edges between bins lie among all examples, as shares from 0 to 1.

    As if the odds of a positive were a quarter of what is hinted: the top, where PR curves are
    made, is then divided more finely. For shares from 0.01 to 0.5, that costs ROC curves and the
    AUC at most a tenth of their error; where the odds are in truth a quarter, PR curves are off by
    half or less. The rarer positives are, the more bins are at the top: half as many noisy bins
    then tell average precision as well.
    """
    from scipy.special import ndtr, ndtri

    rarer = times_odds(positive_rate, FEWER)
    distance = np.sqrt(2.0) * float(ndtri(REFERENCE_AUC))
    at = np.linspace(-9.0, 9.0 + distance, 20_001)
    negatives, positives = ndtr(at), ndtr(at - distance)
    drawn_up = 1.0 + max(1.0 - 2.0 * positive_rate, 0.0) ** 2
    wanted = 1.0 - (1.0 - np.arange(1, bins) / bins) ** drawn_up
    scores = np.interp(wanted, (negatives + positives) / 2.0, at)
    ranks: Floats = (1.0 - rarer) * ndtr(scores) + rarer * ndtr(scores - distance)
    return ranks


def times_odds(positive_rate: float, times: float) -> float:
    """The share of positives whose odds are so many times another's."""
    return times * positive_rate / (times * positive_rate + 1.0 - positive_rate)


def _axis(ordered: Floats, bins: int, positive_rate: float, most_values: int) -> Axis:
    """Edges at scores of the wanted ranks; of few values, a bin for each."""
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    values, counts = ordered[starts], np.diff(np.append(starts, len(ordered)))
    if len(values) <= most_values:
        return Axis.from_values(values.tolist())
    # A value that fills a bin ties all its examples: alone in a bin, one float wide, it says so.
    heavy = values[counts >= len(ordered) / bins]
    always = np.concatenate([values[:1], heavy, np.nextafter(heavy, np.inf), values[-1:]])
    edges = _cut(ordered, always, bins, positive_rate)
    # Edges that ties make one are laid elsewhere, as far as that goes.
    for more in range(bins + 1, 2 * bins):
        if len(edges) > bins:
            break
        finer = _cut(ordered, always, more, positive_rate)
        edges = finer if len(finer) <= bins + 1 else edges
    return Axis.from_edges(edges.tolist())


def _cut(ordered: Floats, always: Floats, bins: int, positive_rate: float) -> Floats:
    """Edges at given scores, and at those of the ranks that bins would lie between."""
    last = len(ordered) - 1
    ranks = np.minimum(balanced_ranks(bins, positive_rate) * len(ordered), last)
    edges: Floats = np.unique(np.append(always, ordered[np.ceil(ranks).astype(np.intp)]))
    return edges


def padded(axis: Axis, bins: int) -> Axis:
    """The axis with empty bins after its last, up to so many: a tree divides them evenly."""
    edges = axis.edges.tolist()
    while len(edges) <= bins:
        edges.append(float(np.nextafter(edges[-1], np.inf)))
    return axis if len(edges) == axis.bins + 1 else Axis.from_edges(edges)


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
    """Errors to expect."""

    roc_area_error: float  # mean distance of curves from those of all data, by noise and bins
    pr_area_error: float
    roc_auc_error: float  # root mean square error of the AUC, by noise and binning
    roc_auc_sampling: float  # standard deviation over samples, which no design changes


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
    (`studies/label_coverage.py`). For the AUC alone they are as many as keep what binning adds
    below its noise, also where these odds are four times off (`studies/label_choice.py`).

    Examples
    --------
    >>> known = {"parties": 10, "examples": 10_000, "positive_rate": 0.2}
    >>> choose_tree(LABEL_DP, Cohort(10), **known)
    (16,)
    """
    worlds = [(times_odds(positive_rate, off), shape) for off in _OFF for shape in SHAPES]

    def auc_error(tree: tuple[int, ...]) -> tuple[float, float]:
        design = _design(privacy, cohort, tree, parties, examples, positive_rate)
        noise, binning = zip(*(design.auc(*each) for each in worlds), strict=True)
        total = np.hypot(noise, binning)
        return max(float(np.max(total / noise)), _MOST_BINNED), float(np.log(total).mean())

    def error(tree: tuple[int, ...]) -> tuple[float, float]:
        design = _design(privacy, cohort, tree, parties, examples, positive_rate)
        by_shape = [_errors(design, each) for each in SHAPES]
        missed = max(map(design.missed, SHAPES))
        apart = float(np.mean([design.apart(*each) for each in worlds]))
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
    """Errors to expect of a tree, where scores are binormal with this AUC."""
    design = _design(privacy, cohort, tuple(tree), parties, examples, positive_rate)
    return _errors(design, _binormal(auc))


def flipped_deviation(
    epsilon: float, *, examples: int, positive_rate: float, auc: float = REFERENCE_AUC
) -> float:
    """Standard deviation of the AUC by flips of labels, read through bins."""
    world = _world(FLAT_BINS, positive_rate, positive_rate, _binormal(auc))
    each = flip_variances(world.shares.sum(axis=0), least_chance(epsilon))
    return math.sqrt(float(world.auc_weights**2 @ each) / examples)


def _binormal(auc: float) -> Shape:
    from scipy.special import ndtri

    return Shape(math.sqrt(2.0) * float(ndtri(auc)))


class _Design(NamedTuple):
    """A tree, the variances of its noise, how many examples, and the hinted share of positives."""

    tree: tuple[int, ...]
    variances: tuple[float, ...]
    examples: int
    hinted: float

    def auc(self, positive_rate: float, shape: Shape) -> tuple[float, float]:
        """What noise adds to the error of the AUC, and what binning does."""
        world = _world(math.prod(self.tree), self.hinted, positive_rate, shape)
        return float(self.deviations(world.auc_weights)) / self.examples, world.auc

    def apart(self, positive_rate: float, shape: Shape) -> float:
        """How far the AUC is from that of straight pieces, in deviations.

        Intervals make room for it on one side: beyond 1.7 deviations they hold more than 97%.
        """
        noise, _ = self.auc(positive_rate, shape)
        world = _world(math.prod(self.tree), self.hinted, positive_rate, shape)
        return world.straight / math.hypot(noise, world.auc_sampling / math.sqrt(self.examples))

    def missed(self, shape: Shape) -> float:
        """How often intervals miss average precision by their bins, if positives are rarer.

        Wide bins at the top, across which precision falls, move average precision, and hide how it
        varies over samples: intervals lie too low, and are too short.
        """
        from scipy.special import ndtr

        rate = times_odds(self.hinted, FEWER)
        world = _world(math.prod(self.tree), self.hinted, rate, shape)
        noise = float(self.deviations(world.precision_weights)) / self.examples
        told, true = (
            math.hypot(noise, each / math.sqrt(self.examples))
            for each in (world.precision_sampling, _fine_precision_sampling(rate, shape))
        )
        reach = critical(LEVEL) * told
        low, high = ((sign * world.average_precision - reach) / true for sign in (-1.0, 1.0))
        return float(ndtr(low) + ndtr(high))

    def deviations(self, weights: Floats) -> Floats:
        """Standard deviations of weighted sums of the positives released."""
        deviations: Floats = np.sqrt(noise_covariance(self.tree, self.variances, weights, weights))
        return deviations


def _design(
    privacy: AnyPrivacyModel,
    cohort: Cohort,
    tree: tuple[int, ...],
    parties: int,
    examples: int,
    hinted: float,
) -> _Design:
    axis = Axis.from_values(list(range(math.prod(tree))), outside="clip")
    plan = EvaluationPlan.under(privacy, axis, cohort=cohort, task=LabelTask(), tree=tree)
    return _Design(tree, plan.noise_variances(parties), examples, hinted)


@lru_cache(maxsize=1024)
def _errors(design: _Design, shape: Shape) -> Expected:
    """Errors where the share of positives is as hinted."""
    rate = design.hinted
    world = _world(math.prod(design.tree), rate, rate, shape)
    counts = world.shares * design.examples
    roc, pr = (
        _MEAN_OF_NORMAL * float(np.average(design.deviations(moves), weights=spans))
        for moves, spans in (_roc_moves(counts), _pr_moves(counts))
    )
    return Expected(
        math.hypot(roc, world.roc),
        math.hypot(pr, world.pr),
        math.hypot(*design.auc(rate, shape)),
        math.sqrt(areas.auc_sampling_variance(counts, tied=False)),
    )


class _World(NamedTuple):
    """Shares of all examples by class and bin, and how far binning alone moves each measure.

    Weights are what one more positive does, one negative less: they fall with the number of
    examples, deviations over samples with its root. Both are given for one example.
    """

    shares: Floats
    roc: float
    pr: float
    auc: float
    straight: float  # how far straight pieces move the AUC that is estimated
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
    return np.triu(np.ones((bins, bins)))[1:]


def _at_edges(counts: Floats) -> Floats:
    around: Floats = counts[1:] + counts[:-1]
    return around


LABEL_DP: Final = DistributedDP(1.0, unit="label", neighbours="flip")
_DEFAULT_RATE: Final = 0.2


def everybody(parties: int) -> Cohort:
    """All label parties, one of whom may collude; one or two each add all of the noise."""
    return Cohort(parties, max_colluding=max(parties - 1, 0) if parties <= 2 else 1)


def check_rate(positive_rate: float | None) -> float:
    """The hinted share of positives; 0.2 without one."""
    rate = _DEFAULT_RATE if positive_rate is None else positive_rate
    if not 0 < rate < 1:
        raise PlanError(f"positive_rate must lie between 0 and 1, got {positive_rate!r}.")
    return rate


def predicted_deviations(
    known: PartyRanks,
    privacy: AnyPrivacyModel,
    cohort: Cohort | None,
    tree: Sequence[int],
    positive_rate: float,
    auc: float = REFERENCE_AUC,
) -> dict[str, float]:
    """What each mechanism adds to the error of the AUC, the least first; empty without noise.

    Scores are taken to be binormal with this AUC, `positive_rate` of them positive. The histogram
    over `tree` adds noise and binning, pairs add noise alone. Flipped labels are counted by bin:
    there is nothing to choose from.

    Examples
    --------
    >>> def best(parties, alike=True):
    ...     known = PartyRanks.evenly(100_000, parties, alike=alike)
    ...     return next(iter(predicted_deviations(known, LABEL_DP, everybody(parties), (64,), 0.2)))
    >>> best(2), best(20), best(8), best(8, alike=False)
    ('adaptive', 'histogram', 'histogram', 'adaptive')
    """
    examples = known.examples
    if isinstance(privacy, LocalDP):
        by_flips = flipped_deviation(
            privacy.epsilon, examples=examples, positive_rate=positive_rate, auc=auc
        )
        return {"histogram": by_flips}
    if not isinstance(privacy, DistributedDP) or cohort is None:
        return {}
    by_bins = predicted(
        privacy,
        cohort,
        tree,
        parties=len(known),
        examples=examples,
        positive_rate=positive_rate,
        auc=auc,
    )
    found = {"histogram": by_bins.roc_auc_error}
    for name, mechanism in MECHANISMS.items():
        if mechanism.noise == privacy.noise:
            found[name] = mechanism.deviation(known, privacy, auc, positive_rate * examples)
    return dict(sorted(found.items(), key=lambda item: item[1]))


class Binned(NamedTuple):
    """Which bins examples are in, and the plan by which labels are counted."""

    plan: EvaluationPlan
    axis: Axis
    bins: NDArray[np.int32]
    rate: float
    hints: tuple[str, ...]

    @property
    def totals(self) -> NDArray[np.int64]:
        """Examples by bin."""
        return np.bincount(self.bins, minlength=self.axis.bins)


def bin_scores(
    scores: Floats,
    parties: int,
    privacy: AnyPrivacyModel,
    *,
    cohort: Cohort | None = None,
    tree: Tree = "auto",
    positive_rate: float | None = None,
    positive: Label | None = None,
    only: Literal["roc_auc"] | None = None,
    self_scored: bool = False,
) -> Binned:
    """Bins for scores, and a plan to count so many parties' labels by, from what is public."""
    rate = check_rate(positive_rate)
    if cohort is None and privacy.needs_cohort:
        cohort = everybody(parties)
    branchings = _branchings(tree, privacy, cohort, parties, len(scores), rate, only)
    bins = math.prod(branchings)
    # A bin for each distinct score loses nothing: worth the noise of twice as many bins.
    most_values = 2 * bins if tree == "auto" else bins
    assignment = assign(scores, bins, rate, most_values=most_values)
    branchings = _fitting(branchings, assignment.axis)
    axis = padded(assignment.axis, math.prod(branchings))
    plan = EvaluationPlan.under(
        privacy,
        Axis.from_values(list(range(axis.bins)), outside="clip"),
        cohort=cohort,
        task=LabelTask(positive, self_scored=self_scored),
        tree=branchings,
    )
    hints = () if positive_rate is None else (f"positive_rate {positive_rate}",)
    return Binned(plan, axis, assignment.bins, rate, hints)


def _branchings(
    tree: Tree,
    privacy: AnyPrivacyModel,
    cohort: Cohort | None,
    parties: int,
    examples: int,
    rate: float,
    only: Literal["roc_auc"] | None,
) -> tuple[int, ...]:
    if not isinstance(tree, str):
        return tuple(tree)
    # Over flipped labels, which need no cohort, a tree gains nothing.
    if tree == "auto" and privacy.adds_noise and cohort is not None:
        return choose_tree(
            privacy, cohort, parties=parties, examples=examples, positive_rate=rate, only=only
        )
    return (FLAT_BINS,)


def _fitting(tree: tuple[int, ...], axis: Axis) -> tuple[int, ...]:
    """Branchings over the bins of an axis and as few more as can be: ties make more, or fewer."""
    below = math.prod(tree[1:])
    if axis.kind == "values" or axis.bins < below:
        return (axis.bins,)
    return (-(-axis.bins // below), *tree[1:])
