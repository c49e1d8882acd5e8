"""What pooled data could look like: plausible shapes of scores, and counts drawn from them."""

from decimal import Decimal
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from fedgauge.binning.axis import Axis
from fedgauge.typing import Floats

AT: Final = (np.arange(400) + 0.5) / 400  # where curves are compared
_FINE: Final = 12_288  # divisible by the planner's numbers of bins
_DIGITS: Final = 9
_LOG_ODDS: Final = (-45.0, 30.0)  # float64 tells no finer scores apart close to 1


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


# What models in use look like: weak to strong, well calibrated or not.
SHAPES: Final = (
    Shape(1.2),
    Shape(2.0),
    Shape(2.8),
    Shape(1.8, deviation=1.5),
    Shape(2.0, slope=1.8),
    Shape(1.8, calibrated=False),
)


@lru_cache(maxsize=64)
def reference_axis(bins: int, positive_rate: float) -> Axis:
    """Bins that plausible scores fill about equally, both classes counting the same.

    A quarter of the bins lies evenly over [0, 1], whatever the scores may be.
    """
    from scipy.special import expit

    inner = _reference_quantiles(bins, positive_rate)
    # Rounded, so that the last bits of a machine's arithmetic do not reach the plan; towards
    # the nearer end, so that edges close to 1 stay apart.
    near_zero = [float(f"{p:.{_DIGITS}g}") for p in expit(inner[inner <= 0])]
    near_one = [float(1 - Decimal(f"{q:.{_DIGITS}g}")) for q in expit(-inner[inner > 0])]
    return Axis.from_edges([0.0, *near_zero, *near_one, 1.0], outside="clip")


def log_odds_grid(positive_rate: float) -> Floats:
    """Log-odds between which about equally many plausible scores lie, thousands of them."""
    return _reference_quantiles(_FINE, positive_rate)


def _reference_quantiles(bins: int, positive_rate: float) -> Floats:
    """Inner edges of the reference axis in log-odds."""
    filled, log_odds = _reference_distribution(positive_rate)
    return np.interp(np.arange(1, bins) / bins, filled, log_odds)


@lru_cache(maxsize=4)
def _reference_distribution(positive_rate: float) -> tuple[Floats, Floats]:
    """The share of the reference axis up to log-odds, and these."""
    from scipy.special import expit

    log_odds = np.linspace(*_LOG_ODDS, 30_001)
    shapes = [np.mean(shape.cumulative(log_odds, positive_rate), axis=0) for shape in SHAPES]
    filled = 0.25 * expit(log_odds) + 0.75 * np.mean(shapes, axis=0)
    return (filled - filled[0]) / (filled[-1] - filled[0]), log_odds


class Truth(NamedTuple):
    """What the pooled data would show, at fixed abscissas."""

    tpr: Floats
    precision: Floats
    auc: float


class World(NamedTuple):
    """Data drawn from a shape: its counts on an axis, and the exact curves.

    `rng` is where further draws go on from; copy it first, for a world is shared.
    """

    counts: Floats
    truth: Truth
    rng: np.random.Generator


@lru_cache(maxsize=64)
def worlds(axis: Axis, examples: int, positive_rate: float) -> tuple[World, ...]:
    """One for each shape, drawn much finer than the axis, unless it lists all values there are."""
    known, axis = axis.kind == "values", _of_probabilities(axis)
    fine, cumulative = _refined(axis, positive_rate)
    shares = np.diff(cumulative)
    shares /= shares.sum(axis=-1, keepdims=True)
    owner = np.clip(np.searchsorted(axis.edges, fine[:-1], side="right") - 1, 0, axis.bins - 1)
    positives = max(1, min(examples - 1, round(examples * positive_rate)))
    sizes = (examples - positives, positives)
    drawn_worlds = []
    for seed, by_class in enumerate(shares):
        rng = np.random.default_rng(seed)
        drawn = np.array(
            [rng.multinomial(size, share) for size, share in zip(sizes, by_class, strict=True)],
            dtype=np.float64,
        )
        counts = np.array([np.bincount(owner, row, minlength=axis.bins) for row in drawn])
        drawn_worlds.append(World(counts, truth_of(counts if known else drawn), rng))
    return tuple(drawn_worlds)


def _of_probabilities(axis: Axis) -> Axis:
    """The axis with its ends at 0 and 1, where the shapes are; known values are equal parts."""
    low, high, kind = axis.low, axis.high, axis.kind
    if low >= 0 and high <= 1 and kind != "values":
        return axis
    if kind in ("uniform", "values"):
        return Axis.uniform(axis.bins)
    return Axis.from_edges(np.clip((axis.edges - low) / (high - low), 0.0, 1.0))


def _refined(axis: Axis, positive_rate: float) -> tuple[Floats, Floats]:
    """Scores within the bins of an axis, and the shares of data up to each by shape and class."""
    scores, cumulative = _fine_grid(positive_rate)
    place = np.searchsorted(scores, axis.edges)
    new = scores[np.minimum(place, len(scores) - 1)] != axis.edges
    place, edges = place[new], axis.edges[new]
    at_edges = _cumulative(edges, positive_rate)
    return np.insert(scores, place, edges), np.insert(cumulative, place, at_edges, axis=-1)


@lru_cache(maxsize=4)
def _fine_grid(positive_rate: float) -> tuple[Floats, Floats]:
    """Scores of about equal mass in between, and the shares of data up to each."""
    from scipy.special import expit

    scores = np.unique(expit(_reference_quantiles(_FINE, positive_rate)))
    return scores, _cumulative(scores, positive_rate)


def _cumulative(scores: Floats, positive_rate: float) -> Floats:
    from scipy.special import logit

    with np.errstate(divide="ignore"):
        log_odds = logit(scores)
    return np.array([shape.cumulative(log_odds, positive_rate) for shape in SHAPES])


def truth_of(drawn: Floats) -> Truth:
    """The exact curves of data with so many of each class at each score, lowest first."""
    from_top = np.cumsum(drawn[:, ::-1], axis=1)
    false, true = (np.append(0.0, row) for row in from_top)
    fpr, tpr = false / false[-1], true / true[-1]
    at_recall = np.clip(np.searchsorted(tpr, AT), 1, None)
    precision = true[at_recall] / (true[at_recall] + false[at_recall])
    auc = float(np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2))
    return Truth(np.interp(AT, fpr, tpr), precision, auc)
