"""What pooled data could look like: plausible shapes of scores, and counts drawn from them."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

import numpy as np

from fedgauge.binning.axis import Axis
from fedgauge.planner.tables import score_tables
from fedgauge.typing import Floats

AT: Final = (np.arange(400) + 0.5) / 400  # where curves are compared
_FINE: Final = 12_288  # divisible by the planner's numbers of bins
_DIGITS: Final = 9
_EVEN: Final = 0.25
_LOG_ODDS: Final = (-45.0, 30.0)  # float64 tells no finer scores apart close to 1
_FAR: Final = 8.0  # log-odds up to which bins may be even in them


class Shape(NamedTuple):
    """Scores whose log-odds are normal in each class.

    `separation` is the distance of the class means in standard deviations of the negatives,
    `deviation` the standard deviation of the positives over that of the negatives, `slope` how
    much too confident the scores are (1: calibrated), `calibrated` whether they know the base
    rate.
    """

    separation: float
    deviation: float = 1.0
    slope: float = 1.0
    calibrated: bool = True

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

    Whatever the scores may be, a share `even` of the bins lies evenly over [0, 1], and a share
    `odds` evenly in log-odds.
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
    """Plausible data: how many of each class have each score, and the exact curves.

    `rng` is where further draws go on from; copy it first, for a world is shared.
    """

    scores: Floats
    drawn: Floats
    truth: Truth
    rng: np.random.Generator

    def on(self, axis: Axis) -> Floats:
        """Its counts of both classes."""
        bins = axis.index(self.scores)
        return np.array([np.bincount(bins, row, minlength=axis.bins) for row in self.drawn])

    def of_known(self, bins: int) -> "World":
        """The same if scores were so many known values, and there were no others."""
        axis = Axis.uniform(bins)
        counts = self.on(axis)
        return self._replace(scores=axis.edges[:-1], drawn=counts, truth=truth_of(counts))


class Plausible(Protocol):
    """What scores may look like."""

    def shares(self, log_odds: Floats, positive_rate: float) -> tuple[Floats, Floats]:
        """Shares of negatives and of positives below, between and above such values."""


Scale = Callable[[Floats], Floats]


def drawn_worlds(
    plausible: Sequence[Plausible],
    scales: Sequence[Scale],
    examples: int,
    positive_rate: float,
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

    plausible: Sequence[Plausible] = SHAPES if smooth else plausible_scores()
    return drawn_worlds(plausible, [expit] * len(plausible), examples, positive_rate)


def plausible_scores() -> tuple[Plausible, ...]:
    """What the planner takes for possible: scores of real models, and smooth ones."""
    return (*score_tables(), *SMOOTH)


def on_axis(world: World, axis: Axis) -> tuple[World, Floats]:
    """A world and its counts on an axis, of which probabilities fill the whole."""
    if axis.kind == "values":
        world = world.of_known(axis.bins)
        return world, world.drawn
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
