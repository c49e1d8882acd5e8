"""Data that fit public hints, evaluations of such data, and the errors they have."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Final, NamedTuple, Protocol

import msgspec
import numpy as np

from fedgauge.arrays import Floats
from fedgauge.errors import ResultWithheld, UndefinedMetric
from fedgauge.estimation.counts import SIGNAL, PooledCounts, drawn_blocks
from fedgauge.estimation.distribution import Aligned, estimate
from fedgauge.estimation.repair import consistent, monotone
from fedgauge.estimation.shrinkage import shrunk
from fedgauge.estimation.suppression import kept_edges, merged_axis
from fedgauge.histograms.axis import Axis
from fedgauge.metrics import curves
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.task import Contrast, Slice

_FILE: Final = "score_tables.json"


class ScoreQuantiles(msgspec.Struct, frozen=True, dict=True):
    """Quantiles of the log-odds that a model gave, and how much more likely positives are there.

    Quantiles are of both classes together, each counting the same, at the middles of equal shares;
    one that comes more than once is shared by as many of the rows, as forests, neighbours and naive
    Bayes tie. What both classes have in common may be rough; their ratio is smooth. With another
    share of positives log-odds move by the prior odds. Scores of 0 and 1 have log-odds of -40 and
    40.
    """

    name: str
    positive_rate: float
    quantiles: tuple[float, ...]
    log_ratios: tuple[float, ...]

    def shares(self, log_odds: Floats, positive_rate: float) -> tuple[Floats, Floats]:
        """Shares of negatives and of positives below, between and above such values."""
        moved = log_odds - (_prior_odds(positive_rate) - _prior_odds(self.positive_rate))
        both = np.diff(np.interp(moved, *self._knots), prepend=0.0, append=1.0)
        middles = (np.append(moved[0], moved) + np.append(moved, moved[-1])) / 2
        ratio = np.exp(np.interp(middles, *self._ratios))
        negatives, positives = both / (1 + ratio), both * ratio / (1 + ratio)
        return negatives / negatives.sum(), positives / positives.sum()

    @cached_property
    def _knots(self) -> tuple[Floats, Floats]:
        return _knots(self.quantiles)

    @cached_property
    def _ratios(self) -> tuple[Floats, Floats]:
        values, first = np.unique(self.quantiles, return_index=True)
        return values, np.array(self.log_ratios)[first]


def _prior_odds(share: float) -> float:
    return float(np.log(share / (1 - share)))


def _knots(quantiles: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Points of the share below: it jumps at a value that comes more than once."""
    values, counts = np.unique(quantiles, return_counts=True)
    through = np.cumsum(counts)
    tied = counts > 1
    # A value of its own stands for as much below it as above.
    left = np.where(tied, through - counts, through - 0.5)
    right = np.where(tied, through, through - 0.5)
    ends = values[0] - (values[1] - values[0]), values[-1] + (values[-1] - values[-2])
    x = np.concatenate([[ends[0]], np.stack([values, np.nextafter(values, np.inf)], 1).ravel()])
    y = np.concatenate([[0.0], np.stack([left, right], 1).ravel()])
    return np.append(x, ends[1]), np.append(y, through[-1]) / through[-1]


class _Stored(msgspec.Struct, frozen=True):
    source: str
    tables: tuple[ScoreQuantiles, ...]


@lru_cache(maxsize=1)
def score_tables() -> tuple[ScoreQuantiles, ...]:
    """The tables that come with the package, of public data."""
    stored = (files("fedgauge.planner") / _FILE).read_bytes()
    return msgspec.json.decode(stored, type=_Stored).tables


AT: Final = (np.arange(400) + 0.5) / 400  # where curves are compared
_FINE: Final = 12_288  # divisible by the planner's numbers of bins
_DIGITS: Final = 9
_EVEN: Final = 0.25
_LOG_ODDS: Final = (-45.0, 30.0)  # float64 tells no finer scores apart close to 1
_FAR: Final = 8.0  # log-odds up to which bins may be even in them


class Shape(NamedTuple):
    """Scores whose log-odds are normal in each class."""

    separation: float  # of the class means, in standard deviations of the negatives
    deviation: float = 1.0  # standard deviation of the positives over that of the negatives
    slope: float = 1.0  # how much too confident the scores are; 1: calibrated
    calibrated: bool = True  # whether scores know the base rate

    def cumulative(self, log_odds: Floats, positive_rate: float) -> tuple[Floats, Floats]:
        """Shares of negatives and of positives with log-odds up to each value."""
        from scipy.special import logit, ndtr  # here and below: only who plans waits for SciPy

        base = float(logit(positive_rate)) if self.calibrated else 0.0
        x = (log_odds / self.slope - base) / self.separation
        half = self.separation / 2
        return ndtr(x + half), ndtr((x - half) / self.deviation)

    def shares(self, log_odds: Floats, positive_rate: float) -> tuple[Floats, Floats]:
        """Shares of negatives and of positives below, between and above such values."""
        up_to = self.cumulative(log_odds, positive_rate)
        negatives, positives = (np.diff(each, prepend=0.0, append=1.0) for each in up_to)
        return negatives, positives


# What models in use look like: weak to strong, well calibrated or not.
SHAPES: Final = (
    Shape(1.2),
    Shape(2.0),
    Shape(2.8),
    Shape(1.8, deviation=1.5),
    Shape(2.0, slope=1.8),
    Shape(1.8, calibrated=False),
)
SMOOTH: Final = SHAPES[1:2]  # of these a planner that knows real scores needs few


@lru_cache(maxsize=64)
def reference_axis(
    bins: int, positive_rate: float, *, even: float = _EVEN, odds: float = 0.0
) -> Axis:
    """Bins that plausible scores fill about equally, both classes counting the same.

    A share `even` of the bins lies evenly over [0, 1], and a share `odds` evenly in log-odds.
    """
    from scipy.special import expit

    inner = _reference_quantiles(bins, positive_rate, even, odds)
    # Rounded, so that the last bits of a machine's arithmetic do not reach the plan; towards
    # the nearer end, so that edges close to 1 stay apart.
    near_zero = [float(f"{p:.{_DIGITS}g}") for p in expit(inner[inner <= 0])]
    near_one = [float(1 - Decimal(f"{q:.{_DIGITS}g}")) for q in expit(-inner[inner > 0])]
    return Axis.from_edges([0.0, *near_zero, *near_one, 1.0], outside="clip")


def _reference_quantiles(
    bins: int, positive_rate: float, even: float = _EVEN, odds: float = 0.0
) -> Floats:
    """Inner edges of the reference axis in log-odds."""
    filled, log_odds = _reference_distribution(positive_rate, even, odds)
    return np.interp(np.arange(1, bins) / bins, filled, log_odds)


@lru_cache(maxsize=16)
def _reference_distribution(
    positive_rate: float, even: float, odds: float
) -> tuple[Floats, Floats]:
    """The share of the reference axis up to log-odds, and these."""
    from scipy.special import expit

    log_odds = np.linspace(*_LOG_ODDS, 30_001)
    shapes = [np.mean(shape.cumulative(log_odds, positive_rate), axis=0) for shape in SHAPES]
    far = np.clip((log_odds / _FAR + 1.0) / 2.0, 0.0, 1.0)
    filled = even * expit(log_odds) + odds * far + (1.0 - even - odds) * np.mean(shapes, axis=0)
    return (filled - filled[0]) / (filled[-1] - filled[0]), log_odds


class Truth(NamedTuple):
    """What the pooled data would show, at fixed abscissas."""

    tpr: Floats
    precision: Floats
    auc: float


class World(NamedTuple):
    """Plausible data: how many of each class have each score, and the exact curves."""

    scores: Floats
    drawn: Floats
    truth: Truth
    rng: np.random.Generator  # for further draws; copy it first, for a world is shared

    def on(self, axis: Axis) -> Floats:
        """Its counts of both classes."""
        bins = axis.index(self.scores)
        return np.array([np.bincount(bins, row, minlength=axis.bins) for row in self.drawn])


class Plausible(Protocol):
    """What scores may look like."""

    def shares(self, log_odds: Floats, positive_rate: float) -> tuple[Floats, Floats]:
        """Shares of negatives and of positives below, between and above such values."""


Scale = Callable[[Floats], Floats]


def drawn_worlds(
    plausible: Sequence[Plausible], scales: Sequence[Scale], examples: int, positive_rate: float
) -> tuple[World, ...]:
    """One for each, much finer than bins are; `scales` are what log-odds look like as scores."""
    log_odds = _reference_quantiles(_FINE, positive_rate)
    middles = np.concatenate([log_odds[:1], (log_odds[1:] + log_odds[:-1]) / 2, log_odds[-1:]])
    positives = max(1, min(examples - 1, round(examples * positive_rate)))
    sizes = (examples - positives, positives)
    made = []
    for seed, (each, scale) in enumerate(zip(plausible, scales, strict=True)):
        rng = np.random.default_rng(seed)
        shares = each.shares(log_odds, positive_rate)
        drawn = np.array(
            [rng.multinomial(size, share) for size, share in zip(sizes, shares, strict=True)],
            dtype=np.float64,
        )
        made.append(World(scale(middles), drawn, truth_of(drawn), rng))
    return tuple(made)


@lru_cache(maxsize=16)
def worlds(examples: int, positive_rate: float, *, smooth: bool = False) -> tuple[World, ...]:
    """Worlds of probabilities: real ones, and of smooth shapes; or of these alone."""
    from scipy.special import expit

    plausible: Sequence[Plausible] = SHAPES if smooth else (*score_tables(), *SMOOTH)
    return drawn_worlds(plausible, [expit] * len(plausible), examples, positive_rate)


def on_axis(world: World, axis: Axis) -> tuple[World, Floats]:
    """A world and its counts on an axis, of which probabilities fill the whole."""
    if axis.kind == "values":  # as if there were no other scores
        known = Axis.uniform(axis.bins)
        counts = world.on(known)
        return World(known.edges[:-1], counts, truth_of(counts), world.rng), counts
    return world, world.on(_of_probabilities(axis))


def _of_probabilities(axis: Axis) -> Axis:
    """The axis with its ends at 0 and 1, where probabilities are."""
    low, high = axis.low, axis.high
    if low >= 0 and high <= 1:
        return axis
    if axis.kind == "uniform":
        return Axis.uniform(axis.bins)
    return Axis.from_edges(np.clip((axis.edges - low) / (high - low), 0.0, 1.0))


def truth_of(drawn: Floats) -> Truth:
    """The exact curves of data with so many of each class at each score, lowest first."""
    from_top = np.cumsum(drawn[:, ::-1], axis=1)
    false, true = (np.append(0.0, row) for row in from_top)
    fpr, tpr = false / false[-1], true / true[-1]
    at_recall = np.clip(np.searchsorted(tpr, AT), 1, None)
    precision = true[at_recall] / (true[at_recall] + false[at_recall])
    auc = float(np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2))
    return Truth(np.interp(AT, fpr, tpr), precision, auc)


_PARTS: Final = 768  # of which the noise of every bin is a sum
_MOST_SHRUNK: Final = 128  # bins, as far as that is quick
_WITHHELD: Final = 0.5  # error of a result that says nothing: as wrong as chance
_POINTS: Final = 9  # on a piece, enough for a mean over the curve


def simulate(
    plan: EvaluationPlan,
    examples: int,
    positive_rate: float,
    draws: int,
    slice_: Slice | None = None,
    *,
    shrink: bool = True,
) -> Floats:
    """Mean errors of a plan in each world, by playing the evaluation of a slice through.

    At last the share of results that are withheld, each an error of 0.5 in the means. Without
    `shrink` in a fraction of the time, and with more error where noise is large.
    """
    contributions = examples if plan.cohort is None else plan.cohort.min_survivors
    variances = plan.noise_variances(contributions)
    contrast = plan.task.contrast(slice_ or plan.task.slices[0])
    draws = draws if variances else 1
    return _played(plan, variances, contrast, examples, positive_rate, draws, shrink)


@lru_cache(maxsize=1024)
def _played(
    plan: EvaluationPlan,
    variances: tuple[float, ...],
    contrast: Contrast,
    examples: int,
    positive_rate: float,
    draws: int,
    shrink: bool,
) -> Floats:
    errors = []
    for world in worlds(examples, positive_rate):
        there, counts = on_axis(world, plan.axis)
        again = mechanism(plan, counts, variances, contrast, shrink=shrink)
        runs = [
            errors_of(plan, drawn, there.truth)
            for drawn in _in_pairs(again.draw, copy.deepcopy(world.rng), draws)  # it is shared
        ]
        errors.append(again.expected(np.mean(runs, axis=0)))
    return np.array(errors)


def _in_pairs(
    again: Callable[[np.random.Generator, float], Floats], rng: np.random.Generator, draws: int
) -> Iterator[Floats]:
    """Counts under noise and under its negative, in turn: means are then much the same sooner."""
    for _ in range(0, draws, 2):
        same = copy.deepcopy(rng)
        yield again(rng, 1.0)
        yield again(same, -1.0)


class Mechanism(NamedTuple):
    """What draws the counts that a result is read from, and how often there is none."""

    draw: Callable[[np.random.Generator, float], Floats]  # takes the noise so many times: 1 or -1
    withheld: float

    def expected(self, errors: Floats) -> Floats:
        """Mean errors where those of results that are told are such, and the share withheld."""
        mean = self.withheld * _WITHHELD + (1 - self.withheld) * errors
        return np.append(mean, self.withheld)


def mechanism(
    plan: EvaluationPlan,
    counts: Floats,
    variances: tuple[float, ...],
    contrast: Contrast,
    *,
    shrink: bool,
) -> Mechanism:
    """That of a plan for a slice with these counts."""
    if not variances:
        return Mechanism(lambda _, __: counts, 0.0)
    sizes = (len(contrast.negatives), len(contrast.positives))
    exact = PooledCounts(plan.axis, counts, plan.tree, variances, sizes)
    if plan.final.sends_reports:
        (block,) = drawn_blocks(plan, _every_channel(plan, counts, contrast), contrast)
        exact = replace(exact, drawn=(block,))

    shrink = shrink and exact.noisy and plan.axis.bins <= _MOST_SHRUNK

    def noise(rng: np.random.Generator) -> Floats:
        if exact.drawn:
            return block.moved(1, plan.tree, variances, rng, sampling=False)[0, :2]
        return _drawn_alike(counts.shape, plan.tree, variances, rng, exact.terms)

    def likely(rng: np.random.Generator, times: float) -> Floats:
        noisy = counts + times * noise(rng)
        if not shrink or noisy.sum(axis=1).min() <= 0:
            return monotone(noisy)
        found = shrunk(plan.axis, noisy, exact.noise_matrix, quick=True)
        return monotone(noisy) if found is None else found

    return Mechanism(likely, _share_withheld(exact))


def _share_withheld(exact: PooledCounts) -> float:
    """How often noise hides a class of such counts: it is nearly normal in a total."""
    from scipy.special import ndtr

    far = exact.counts.sum(axis=1) / exact.deviations_of_totals
    return float(1 - np.prod(ndtr(far - SIGNAL)))


def _drawn_alike(
    shape: tuple[int, ...],
    tree: Sequence[int],
    variances: Sequence[float],
    rng: np.random.Generator,
    terms: tuple[int, int],
) -> Floats:
    """Normal noise of counts, which from the same numbers is much the same on other bins.

    Designs are compared: what noise does to all of them alike does not matter.
    """
    levels: list[Floats] = []
    for depth in reversed(range(len(tree))):  # leaves first, which designs have in common
        nodes = math.prod(tree[: depth + 1])
        parts = max(_PARTS, nodes)
        starts = np.arange(nodes) * parts // nodes
        fine = np.add.reduceat(rng.standard_normal((shape[0], parts)), starts, axis=1)
        scale = np.sqrt(np.multiply.outer(terms, variances[depth] / np.diff(starts, append=parts)))
        levels.insert(0, fine * scale)
    return consistent(levels, tree, variances)


def _every_channel(plan: EvaluationPlan, counts: Floats, contrast: Contrast) -> Floats:
    """Counts of all channels, where those of a slice are alike, and other groups like it."""
    rows = len(contrast.negatives) + len(contrast.positives)
    channels = np.tile(counts.sum(axis=0) / rows, (plan.task.rows_sent, 1))
    for side, own in zip(counts, contrast, strict=True):
        channels[list(own)] = side / len(own)
    return channels


def errors_of(plan: EvaluationPlan, counts: Floats, truth: Truth) -> Floats:
    """Area Errors of ROC and PR curve, and the error of the AUC."""
    try:
        d = estimate(*shown(plan, counts), Aligned())
    except (UndefinedMetric, ResultWithheld):  # nothing left of a class
        return np.full(3, _WITHHELD)
    fpr, tpr = curves.roc_curve(d).path.sample(_POINTS)
    recall, precision = curves.pr_curve(d).path.sample(_POINTS)
    return np.array(
        [
            np.abs(np.interp(AT, fpr, tpr) - truth.tpr).mean(),
            np.abs(np.interp(AT, recall, precision) - truth.precision).mean(),
            abs(np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2) - truth.auc),
        ]
    )


def shown(plan: EvaluationPlan, counts: Floats) -> tuple[Axis, Floats]:
    """What a result shows of counts, and on which bins."""
    if not plan.min_cell:
        return plan.axis, counts
    kept = kept_edges(counts.astype(np.int64), plan.min_cell)
    return merged_axis(plan.axis, kept), np.add.reduceat(counts, kept[:-1], axis=1)
