"""Calibration: the curve, its errors with intervals, and the groups of bins these rest on.

Chance and noise make the plain distance from the diagonal too large: above 0 also for scores that
are right. So values and intervals of errors come from inverting a test (:func:`invert`), and the
plain numbers stand on the curve.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats, Indices
from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.estimation.counts import SIGNAL, PooledCounts
from fedgauge.metrics.areas import LIKELY_OFF, Positions, likely, require_probabilities, within_bins
from fedgauge.metrics.estimate import Estimate, Interval, critical, holding, within
from fedgauge.metrics.ranking import Reading, reading_metric

_ANYWHERE: Final = 12**-0.5  # widths by which scores spread evenly over a bin are off its middle
_CROWD: Final = 4.0  # times the density of its neighbour
FARTHEST: Final = 1e-9  # from 0 and 1, where log-odds are still told apart


@dataclass(frozen=True, eq=False)
class Forecasts:
    """The mean score of each bin, both classes together, and the counts it is held against.

    Means of each class would tell the label: within a wide bin positives score higher, and what is
    left of the label looks like miscalibration.
    """

    pooled: PooledCounts
    scores: Floats  # the mean score by bin, from 0 to 1
    lowest: Floats  # what the mean score of a bin can be, at least
    highest: Floats  # and at most
    misplaced: Floats  # how far the mean score typically is from `scores`

    @classmethod
    def of(cls, reading: Reading) -> "Forecasts":
        """The forecasts of a reading, whose scores must be probabilities."""
        pooled = reading.pooled
        axis = pooled.axis
        require_probabilities(axis, "measures of calibration")
        lower, upper = np.clip([axis.edges[:-1], axis.edges[1:]], 0.0, 1.0)
        scores, misplaced = lower, np.zeros(axis.bins)
        if axis.kind != "values":
            place, off = _places(axis.edges, pooled.counts, reading.positions)
            off = np.where(_crowded(axis.edges, pooled.counts, reading.positions), _ANYWHERE, off)
            scores, misplaced = lower + place * (upper - lower), off * (upper - lower)
        lowest, highest = (scores, scores) if axis.separates_all else (lower, upper)
        if axis.outside == "clip":  # the end bins hold every score beyond them
            lowest, highest = lowest.copy(), highest.copy()
            lowest[0], highest[-1] = 0.0, 1.0
        return cls(pooled, scores, lowest, highest, misplaced)

    @property
    def counts(self) -> Floats:
        """Negatives and positives by bin, none of them negative."""
        return self.pooled.counts

    @cached_property
    def totals(self) -> Floats:
        """Examples by bin."""
        totals: Floats = self.counts.sum(axis=0)
        return totals

    @cached_property
    def log_odds(self) -> Floats:
        """The log-odds of the mean scores."""
        scores = np.clip(self.scores, FARTHEST, 1.0 - FARTHEST)
        odds: Floats = np.log(scores) - np.log1p(-scores)
        return odds

    @property
    def hidden(self) -> Floats:
        """How far the mean score is off in bins where examples crowd; 0 in all others.

        There it could be anywhere in the bin; elsewhere the neighbours tell well enough.
        """
        widths = self.highest - self.lowest
        return np.where(self.misplaced >= _ANYWHERE * widths, self.misplaced, 0.0)

    @cached_property
    def noise(self) -> Floats:
        """Noise variance of one count, by bin: the mean of both classes."""
        if not self.pooled.noisy:
            return np.zeros(len(self.scores))
        noise: Floats = self.pooled.leaf_variances.mean(axis=0)
        return noise


def _crowded(edges: Floats, counts: Floats, positions: Positions | None) -> NDArray[np.bool_]:
    """Which bins next to 0 or 1 hold so many examples that their neighbours do not say where."""
    crowded = np.zeros(counts.shape[1], dtype=bool)
    if positions is not None or len(crowded) < 2:
        return crowded
    with np.errstate(all="ignore"):  # bins as narrow as floats can be, or of one value
        density = counts.sum(axis=0) / np.diff(edges)
    crowded[0] = edges[0] <= 0 and density[0] > _CROWD * density[1]
    crowded[-1] = edges[-1] >= 1 and density[-1] > _CROWD * density[-2]
    return crowded


def _places(edges: Floats, counts: Floats, positions: Positions | None) -> tuple[Floats, Floats]:
    """Where in its bin the mean score of both classes lies, from 0 to 1, and how far off."""
    totals = counts.sum(axis=0, keepdims=True)
    _, middle = within_bins(edges, totals)
    if positions is None:
        return middle[0], np.full(len(middle[0]), LIKELY_OFF)
    shares = np.where(totals > 0, counts / np.maximum(totals, 1e-300), 0.5)
    mean = (shares * positions.mean).sum(axis=0)
    with np.errstate(invalid="ignore"):  # no examples of a class: endless deviation, no share
        each = np.where(shares > 0, shares * positions.deviation, 0.0)
    deviation = np.sqrt((each**2).sum(axis=0))
    place = likely(middle[0], Positions(mean, deviation, positions.reach))
    return place, np.minimum(deviation, LIKELY_OFF)


Strategy = Literal["uniform", "quantile"]

GROUPS: Final = 15
_MOST: Final = 10_000


class Span(NamedTuple):
    """The least and the most that each group's number can be."""

    least: Floats
    most: Floats


class Reach(NamedTuple):
    """What groups could hold, empty ones too, if scores were put into them and not whole bins."""

    least: Floats  # excess
    most: Floats  # excess
    fewest: Floats  # examples
    greatest: Floats  # examples


@dataclass(frozen=True, eq=False)
class Groups:
    """Neighbouring bins taken together, none of the groups empty."""

    forecasts: Forecasts
    owners: Indices  # the group of each bin, from 0; -1 for bins of groups without examples
    rule: str  # how bins were grouped, in words
    first: Indices  # the first group that scores of a bin can lie in, empty ones counted
    last: Indices  # the last one

    @classmethod
    def of(
        cls, forecasts: Forecasts, bins: int | Sequence[float], strategy: Strategy = "uniform"
    ) -> "Groups":
        """Bins in groups: so many of equal width or mass, or those between given edges.

        A whole bin goes to the left-closed group of its mean score (the last group is closed), or,
        with equal mass, to the group of its middle example.
        """
        if strategy not in get_args(Strategy):
            raise InputError(f"strategy must be 'uniform' or 'quantile', got {strategy!r}.")
        if isinstance(bins, Sequence | np.ndarray):
            edges = _checked_edges(bins)
            if strategy != "uniform":
                raise InputError("give either edges or strategy='quantile', not both.")
            rule = f"{len(edges) - 1:,} given groups, left-closed"
        else:
            edges = np.arange(_checked_number(bins) + 1) / bins
            equal = "width, left-closed" if strategy == "uniform" else "mass"
            rule = f"{bins:,} groups of equal {equal}"
        if strategy == "uniform":
            places = forecasts.lowest, forecasts.scores, forecasts.highest
        else:
            places = _ranks(forecasts.totals)
        low, middle, high = places
        owners = _group_of(edges, middle)
        first, last = _group_of(edges, low), _group_of(edges, high, before=True)
        held = np.bincount(owners, forecasts.totals) > 0
        numbers = np.where(held, np.cumsum(held) - 1, -1)  # without gaps
        return cls(forecasts, numbers[owners], rule, first, np.maximum(first, last))

    def __len__(self) -> int:
        return int(self.owners.max()) + 1

    @cached_property
    def counts(self) -> Floats:
        """Examples by group, none of them negative."""
        return self._sums(self.forecasts.totals)

    @cached_property
    def predicted(self) -> Floats:
        """Mean score by group."""
        return self._sums(self.forecasts.totals * self.forecasts.scores) / self.counts

    @cached_property
    def excess(self) -> Floats:
        """Positives above what the scores promised: right on average also under noise."""
        return self._sums((self._weights * self.forecasts.pooled.unbiased).sum(axis=0))

    @cached_property
    def observed(self) -> Floats:
        """Share of positives by group."""
        return np.clip(self.predicted + self.excess / self.counts, 0.0, 1.0)

    @cached_property
    def covariance(self) -> Floats:
        """Covariance of the excesses: examples drawn anew, the noise, and misplaced scores."""
        counts, scores = self.forecasts.counts, self.forecasts.scores
        squares = counts[0] * scores**2 + counts[1] * (1.0 - scores) ** 2
        squares += (self.forecasts.totals * self.forecasts.misplaced) ** 2
        covariance: Floats = np.diag(self._sums(squares)) + self.noise
        return covariance

    @cached_property
    def hidden(self) -> Floats:
        """Variance of the excess by where scores lie in bins that they crowd in."""
        return self._sums((self.forecasts.totals * self.forecasts.hidden) ** 2)

    @cached_property
    def noise(self) -> Floats:
        """Covariance of the excesses by noise alone."""
        return self.noise_of(self._weights)

    def noise_of(self, weights: Floats) -> Floats:
        """Noise covariance of sums by group, where each bin of a class counts as weighed."""
        pooled = self.forecasts.pooled
        if not pooled.noisy:
            return np.zeros((len(self), len(self)))
        each = weights * self.members[:, np.newaxis, :]
        return pooled.covariance(each[:, np.newaxis], each[np.newaxis, :])

    @cached_property
    def members(self) -> Floats:
        """1 where a bin is in a group, by group and bin."""
        members: Floats = (np.arange(len(self))[:, np.newaxis] == self.owners).astype(np.float64)
        return members

    @cached_property
    def visible(self) -> NDArray[np.bool_]:
        """Whether the number of examples of a group stands out of the noise."""
        deviations = np.sqrt(np.diag(self.noise_of(np.ones_like(self._weights))))
        seen: NDArray[np.bool_] = self.counts >= SIGNAL * deviations
        return seen

    @cached_property
    def reach(self) -> Reach:
        """What is possible wherever in its bin, and so on which side of an edge, a score lies."""
        forecasts = self.forecasts
        positives, totals = forecasts.pooled.unbiased[1], forecasts.totals
        whole = self.first == self.last
        number = int(self.last.max()) + 1

        def sure(by_bin: Floats) -> Floats:
            return _sums(self.first[whole], by_bin[whole], number)

        fewest = sure(totals)
        reach = Reach(
            sure(positives - totals * forecasts.highest),
            sure(positives - totals * forecasts.lowest),
            fewest,
            fewest.copy(),
        )
        for split in np.flatnonzero(~whole & (totals > 0)):
            touched = slice(self.first[split], self.last[split] + 1)
            negative, positive = forecasts.counts[:, split]
            reach.least[touched] -= negative * forecasts.highest[split]
            reach.most[touched] += positive * (1.0 - forecasts.lowest[split])
            reach.greatest[touched] += totals[split]
        return reach

    @cached_property
    def reach_noise(self) -> tuple[Floats, Floats]:
        """Noise deviations of the excess and the number of examples of all that groups can hold."""
        pooled = self.forecasts.pooled
        held = [(self.first <= at) & (at <= self.last) for at in range(len(self.reach.fewest))]
        of_excess, of_count = (
            np.sqrt([max(float(pooled.noise_variance(weights * each)), 0.0) for each in held])
            for weights in (self._weights, np.ones_like(self._weights))
        )
        return of_excess, of_count

    @cached_property
    def edges(self) -> Span:
        """The lowest and the highest score that the bins of a group take."""
        held = [np.flatnonzero(self.owners == group) for group in range(len(self))]
        return Span(
            np.array([self.forecasts.lowest[bins[0]] for bins in held]),
            np.array([self.forecasts.highest[bins[-1]] for bins in held]),
        )

    def intervals(self, z: float) -> Span:
        """Where the share of positives of each group lies, by a score test (Wilson, Fieller).

        A share p is accepted if sum n+ (1 - p) - n- p is within z of its deviations from zero: a
        quadratic inequality in p.
        """
        unbiased = self.forecasts.pooled.unbiased
        negatives, positives = (self._sums(row) for row in unbiased)
        own = np.zeros_like(self._weights)
        own[1] = 1.0
        of_positives = np.diag(self.noise_of(own))
        of_negatives = np.diag(self.noise_of(own[::-1]))
        of_both = np.diag(self.noise_of(np.ones_like(own)))
        shared = (of_both - of_positives - of_negatives) / 2.0
        total = negatives + positives
        square = total**2 + z * z * (self.counts - of_both)
        line = -2.0 * positives * total - z * z * (self.counts - 2.0 * (of_positives + shared))
        rest = positives**2 - z * z * of_positives
        under = line**2 - 4.0 * square * rest
        some = (square > 0) & (total > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            root = np.sqrt(np.maximum(under, 0.0))  # none is accepted: the one nearest to it
            low, high = ((-line - root) / (2 * square), (-line + root) / (2 * square))
        low, high = np.where(some, low, 0.0), np.where(some, high, 1.0)
        return Span(
            np.clip(np.minimum(low, self.observed), 0.0, 1.0),
            np.clip(np.maximum(high, self.observed), 0.0, 1.0),
        )

    @property
    def _weights(self) -> Floats:
        """What an example of each class and bin adds to the excess."""
        scores = self.forecasts.scores
        return np.array([-scores, 1.0 - scores])

    def _sums(self, by_bin: Floats) -> Floats:
        held = self.owners >= 0
        return _sums(self.owners[held], by_bin[held], len(self))


def _sums(owners: Indices, by_bin: Floats, number: int) -> Floats:
    sums = np.bincount(owners, by_bin, minlength=number)
    return sums.astype(np.float64, copy=False)


def _group_of(edges: Floats, places: Floats, *, before: bool = False) -> Indices:
    """The left-closed group of each place, or of all that lies just `before` it."""
    owners = np.searchsorted(edges, places, side="left" if before else "right") - 1
    return np.clip(owners, 0, len(edges) - 2)


def _ranks(totals: Floats) -> tuple[Floats, Floats, Floats]:
    """The share of examples below each bin, below the middle of its own, and up to its end."""
    total = max(float(totals.sum()), 1e-300)
    above = np.cumsum(totals) / total
    below = np.append(0.0, above[:-1])
    return below, (below + above) / 2.0, above


def _checked_number(bins: object) -> int:
    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or not 1 <= bins <= _MOST:
        raise InputError(f"bins must be a whole number from 1 to {_MOST:,}, or edges of groups.")
    return int(bins)


def _checked_edges(bins: Sequence[float]) -> Floats:
    try:
        edges = np.asarray(bins, dtype=np.float64)
    except (TypeError, ValueError):
        edges = np.empty(0)
    rising = edges.ndim == 1 and len(edges) > 1 and all(low < high for low, high in pairwise(edges))
    if not rising or edges[0] != 0 or edges[-1] != 1:
        raise InputError(
            "bins must be a whole number, or edges of groups that rise from 0 to 1, such as "
            "[0, 0.1, 0.5, 1]."
        )
    return edges


_STEPS: Final = 64
_REFINEMENTS: Final = 3
_PAST: Final = 1.0 + 1e-12
_FAR: Final = 12.0  # deviations above what was seen where no interval ends

Power = Literal[1, 2]


class Deviations(NamedTuple):
    """Sums, each with its deviation from zero, and how they vary."""

    sums: Floats  # as measured, and so is their covariance
    covariance: Floats
    weights: Floats  # what each counts for

    @property
    def scales(self) -> Floats:
        """Standard deviations of the sums."""
        scales: Floats = np.sqrt(np.maximum(np.diag(self.covariance), 1e-300))
        return scales


class Inverted(NamedTuple):
    """A distance: its value, its interval, and where the sums lie that have this value."""

    value: float
    interval: Interval
    centres: Floats


def invert(deviations: Deviations, power: Power, z: float) -> Inverted:
    """The distance whose expected statistic is the one seen, and all that a test accepts.

    The test compares T = sum w |D|^power with its mean and deviation for centres on a path through
    what was seen: towards zero each shrinks as ``max(0, |D| - l^2 s^2 / |D|)``, away from zero all
    grow by the same number of deviations. Where T is less than centres of zero would give, the
    interval is that of as much.
    """
    seen, scales = np.abs(deviations.sums), deviations.scales
    statistic = float(np.sum(deviations.weights * seen**power))
    moments = _moments(deviations, power)
    whole = float(np.max(seen / scales, initial=0.0)) * _PAST  # rounding leaves nothing above 0

    def centres(places: Floats) -> Floats:
        """Sums at places along the path: what was seen at 0, all zero at `-whole`."""
        at = places[:, np.newaxis]
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            lost = np.where((at < 0) & (seen > 0), (at * scales) ** 2 / seen, 0.0)
        moved: Floats = np.maximum(np.where(at < 0, seen - lost, seen + at * scales), 0.0)
        return moved

    def above(times: float, level: float) -> Callable[[Floats], Floats]:
        def gap(places: Floats) -> Floats:
            mean, deviation = moments(centres(places))
            return mean + times * deviation - level

        return gap

    (least,), _ = moments(np.zeros((1, len(seen))))
    # Chance only ever adds, so what is expected where sums are as seen is no less than was seen.
    places = np.array(
        [
            _crossing(above(0.0, statistic), -whole, 0.0),
            _crossing(above(z, statistic), -whole, 0.0),
            _crossing(above(-z, max(statistic, float(least))), -whole, _FAR + z),
        ]
    )
    path = centres(places)
    value, low, high = (float(each) for each in (deviations.weights * path**power).sum(axis=-1))
    return Inverted(value, Interval(min(low, value), max(high, value)), path[0])


def _crossing(rises: Callable[[Floats], Floats], low: float, high: float) -> float:
    """Where a function that rises crosses zero; the nearer end if it does not."""
    for _ in range(_REFINEMENTS):
        at = np.linspace(low, high, _STEPS + 1)
        gaps = rises(at)
        if gaps[0] >= 0:
            return low
        if not (gaps >= 0).any():
            return high
        first = int(np.argmax(gaps >= 0))
        low, high = float(at[first - 1]), float(at[first])
    below, above = gaps[first - 1 : first + 1]
    return low - (high - low) * float(below / (above - below))


def _moments(deviations: Deviations, power: Power) -> Callable[[Floats], tuple[Floats, Floats]]:
    """Mean and deviation of the statistic for centres, one row for each set of them."""
    from scipy.special import erf

    weights, scales = deviations.weights, deviations.scales
    signs = np.sign(deviations.sums)
    apart = deviations.covariance * np.outer(signs, signs)
    np.fill_diagonal(apart, 0.0)

    def squared(centres: Floats) -> tuple[Floats, Floats]:
        mean = (weights * (centres**2 + scales**2)).sum(axis=-1)
        own = (weights**2 * (2.0 * scales**4 + 4.0 * (centres * scales) ** 2)).sum(axis=-1)
        slopes = 2.0 * weights * centres
        joint = np.einsum("ij,jk,ik->i", slopes, apart, slopes)
        return mean, np.sqrt(np.maximum(own + joint, 0.0))

    def folded(centres: Floats) -> tuple[Floats, Floats]:
        ratio = centres / scales
        side = erf(ratio / math.sqrt(2.0))  # probability of the centre's side, less the other's
        each = scales * math.sqrt(2.0 / math.pi) * np.exp(-(ratio**2) / 2.0) + centres * side
        own = (weights**2 * np.maximum(centres**2 + scales**2 - each**2, 0.0)).sum(axis=-1)
        # Of two that vary together, the first term of the Hermite series of their moduli.
        slopes = weights * side
        joint = np.einsum("ij,jk,ik->i", slopes, apart, slopes)
        return (weights * each).sum(axis=-1), np.sqrt(np.maximum(own + joint, 0.0))

    return folded if power == 1 else squared


ErrorKind = Literal["expected", "maximum", "average", "rms"]

_KINDS: Final[tuple[ErrorKind, ...]] = get_args(ErrorKind)
FEW: Final = 20  # examples below which errors say little


@dataclass(frozen=True, eq=False)
class CalibrationCurve:
    """What came true against what the scores promised, by groups of bins.

    Attributes
    ----------
    predicted, observed
        Mean score and share of positives of each group.
    low, high
        Where that share lies in the population, for each group by itself.
    count
        Examples of each group; an estimate under noise.
    lower, upper
        Edges of each group.
    level
        Confidence of the intervals.
    rule
        How bins were grouped, in words.
    ece, mce, ace, rms
        Calibration errors of the points, as other packages print them: above 0 also for scores that
        are right. For the population ask ``result.calibration_error(...)``.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.6])})
    >>> result.calibration_curve(bins=2).observed.round(2).tolist()
    [0.0, 0.67]
    """

    predicted: Floats = field(repr=False)
    observed: Floats = field(repr=False)
    low: Floats = field(repr=False)
    high: Floats = field(repr=False)
    count: Floats = field(repr=False)
    lower: Floats = field(repr=False)
    upper: Floats = field(repr=False)
    level: float
    rule: str
    ece: float
    mce: float
    ace: float
    rms: float


def calibration_curve(groups: Groups, level: float) -> CalibrationCurve:
    """The points of a reliability diagram."""
    _require_examples(groups)
    return CalibrationCurve(
        groups.predicted,
        groups.observed,
        *groups.intervals(critical(level)),
        groups.counts,
        *groups.edges,
        level,
        groups.rule,
        *(_plain(groups, kind, np.abs(groups.excess)) for kind in _KINDS),
    )


def calibration_error(groups: Groups, kind: ErrorKind, level: float) -> Estimate:
    """A distance of the population's points from the diagonal; bounds are of the plain number."""
    if kind not in _KINDS:
        raise InputError(f"kind must be one of {', '.join(map(repr, _KINDS))}, got {kind!r}.")
    _require_examples(groups)
    z = critical(level)
    found = _inverted(groups, kind, z)
    slack = _plain(groups, kind, z * np.sqrt(np.maximum(np.diag(groups.noise), 0.0)))
    plain, (least, most) = _plain(groups, kind, np.abs(groups.excess)), _bounds(groups, kind)
    sampling, noise = _shares_of(groups, kind)
    parts = {"binning": max(plain - least, most - plain), "sampling": sampling}
    if groups.forecasts.pooled.noisy:
        parts["noise"] = noise
    low, high = within(holding(found.interval, found.value), 0.0, 1.0)
    pooled = groups.forecasts.pooled
    caution = pooled.faint or _caution(groups, kind) or pooled.lumped
    if groups.forecasts.pooled.noisy and kind in ("maximum", "average"):
        bounds = _bounds_in_noise(groups, kind, level)
    else:
        bounds = _bounds(groups, kind, slack)
    return Estimate(min(found.value, 1.0), bounds, low, high, level, parts, caution, plain)


def _by_width(reading: Reading, kind: ErrorKind) -> Estimate:
    groups = Groups.of(reading.once(Forecasts.of), GROUPS)
    return calibration_error(groups, kind, reading.level)


@reading_metric("expected calibration error", recorded=True)
def expected_calibration_error(reading: Reading) -> Estimate:
    """Mean distance of scores from what comes true, in 15 groups of equal width (ECE).

    Formula: ``sum_g |D_g| / n``. Value, bounds and interval: see ``calibration_error``.

    Source: Naeini et al. 2015.

    Beware: an ECE with as many groups as a calibrator has steps is near 0 for poor ones too.
    """
    return _by_width(reading, "expected")


@reading_metric("maximum calibration error")
def maximum_calibration_error(reading: Reading) -> Estimate:
    """The largest distance of one of 15 groups of equal width (MCE).

    Formula: ``max_g |D_g| / N_g``.

    Source: Naeini et al. 2015.

    Interval: Wilson's intervals of all groups at once, by Bonferroni's inequality.

    Beware: it is about one group, mostly the smallest.
    """
    return _by_width(reading, "maximum")


@reading_metric("average calibration error", listed=False)
def average_calibration_error(reading: Reading) -> Estimate:
    """Mean distance over 15 groups of equal width (ACE).

    Formula: the mean over groups of ``|D_g| / N_g``.

    Source: Neumann et al. 2018.
    """
    return _by_width(reading, "average")


@reading_metric("RMS calibration error")
def rms_calibration_error(reading: Reading) -> Estimate:
    """Root mean square distance over examples, in 15 groups of equal width.

    Formula: the root of ``sum_g D_g^2 / N_g / n``.

    Source: Kumar et al. 2019.
    """
    return _by_width(reading, "rms")


class _Value(NamedTuple):
    value: float
    interval: Interval


def _inverted(groups: Groups, kind: ErrorKind, z: float) -> _Value:
    """Value and interval in the population."""
    total = float(groups.counts.sum())
    if kind == "expected":
        found = _invert(groups, np.full(len(groups), 1.0 / total), 1, z)
        return _Value(found.value, found.interval)
    if kind == "rms":
        found = _invert(groups, 1.0 / (groups.counts * total), 2, z)
        low, high = map(math.sqrt, found.interval)
        return _Value(math.sqrt(found.value), Interval(low, high))
    seen: Indices = np.flatnonzero(groups.visible)
    if kind == "average":
        weights = np.zeros(len(groups))
        weights[seen] = 1.0 / (groups.counts[seen] * max(len(seen), 1))
        found = _invert(groups, weights, 1, z)
        return _Value(found.value, found.interval)
    return _largest(groups, seen, z)


def _invert(groups: Groups, weights: Floats, power: Power, z: float) -> Inverted:
    return invert(Deviations(groups.excess, groups.covariance, weights), power, z)


def _largest(groups: Groups, seen: Indices, z: float) -> _Value:
    """The largest distance: score intervals of all groups at once, by Bonferroni's inequality."""
    found = _invert(groups, np.full(len(groups), 1.0), 1, z)
    level = math.erf(z / math.sqrt(2.0))
    least, most = groups.intervals(critical(1.0 - (1.0 - level) / max(len(seen), 1)))
    below, above = groups.predicted - least, most - groups.predicted
    low = np.max(np.maximum(-below, -above)[seen], initial=0.0)
    high = np.max(np.maximum(below, above)[seen], initial=0.0)
    value = float(np.max((found.centres / groups.counts)[seen], initial=0.0))
    return _Value(value, Interval(float(low), float(high)))


def _plain(groups: Groups, kind: ErrorKind, distances: Floats) -> float:
    """An error of such distances of the sums, as if chance had no part in them."""
    counts, total = groups.counts, float(groups.counts.sum())
    if kind == "expected":
        return float(distances.sum()) / total
    if kind == "rms":
        return math.sqrt(float(np.sum(distances**2 / counts)) / total)
    seen = groups.visible
    each = distances[seen] / counts[seen]
    if not len(each):
        return 0.0
    return float(each.max() if kind == "maximum" else each.mean())


def _bounds(groups: Groups, kind: ErrorKind, slack: float = 0.0) -> Interval:
    """Where the plain error of the pooled examples lies, wherever in its bin a score does.

    All kinds are norms of the excesses: noise moves them by at most its own norm where the numbers
    of examples are known, or those of all groups.
    """
    reach, total = groups.reach, float(groups.counts.sum())
    least = np.maximum(np.maximum(reach.least, -reach.most), 0.0)
    most = np.maximum(np.abs(reach.least), np.abs(reach.most))
    some, maybe = reach.fewest > 0, reach.greatest > 0
    nearest = np.divide(least, reach.greatest, out=np.zeros_like(least), where=maybe)
    farthest = np.divide(most, reach.fewest, out=np.where(maybe, 1.0, 0.0), where=some)
    farthest = np.minimum(farthest, 1.0)
    if kind == "expected":
        ends = least.sum() / total, most.sum() / total
    elif kind == "rms":
        ends = math.sqrt(least @ nearest / total), math.sqrt(most @ farthest / total)
    elif kind == "maximum":
        ends = nearest.max(), farthest.max()
    else:
        ends = nearest.sum() / maybe.sum(), farthest.sum() / max(some.sum(), 1)
    return within(Interval(float(ends[0]) - slack, float(ends[1]) + slack), 0.0, 1.0)


def _bounds_in_noise(groups: Groups, kind: ErrorKind, level: float) -> Interval:
    """The same under noise where each distance is divided by the examples of its own group.

    Noise hides the smallest groups first, which say most. So every group has bounds of its own, at
    once by Bonferroni's inequality; a hidden group may hold anything.
    """
    reach, (of_excess, of_count) = groups.reach, groups.reach_noise
    z = critical(1.0 - (1.0 - level) / (2 * len(of_count)))
    fewest, greatest = reach.fewest - z * of_count, reach.greatest + z * of_count
    seen = fewest > 0
    least = np.maximum(np.maximum(reach.least, -reach.most) - z * of_excess, 0.0)
    most = np.maximum(np.abs(reach.least), np.abs(reach.most)) + z * of_excess
    nearest = np.divide(least, greatest, out=np.zeros_like(least), where=seen)
    farthest = np.minimum(np.divide(most, fewest, out=np.ones_like(most), where=seen), 1.0)
    if kind == "maximum":
        return within(Interval(float(nearest.max()), float(farthest.max())), 0.0, 1.0)
    return within(Interval(float(nearest.mean()), float(farthest.mean())), 0.0, 1.0)


def _shares_of(groups: Groups, kind: ErrorKind) -> tuple[float, float]:
    """Standard deviations of the plain number by sampling and by noise, to first order."""
    counts, total = groups.counts, float(groups.counts.sum())
    signs = np.sign(groups.excess)
    if kind == "expected":
        slopes = signs / total
    elif kind == "rms":
        root = max(_plain(groups, kind, np.abs(groups.excess)), 1e-300)
        slopes = groups.excess / (counts * total * root)
    else:
        slopes = np.where(groups.visible, signs / counts, 0.0)
        if kind == "average":
            slopes /= max(int(np.count_nonzero(groups.visible)), 1)
        else:
            largest = int(np.argmax(np.abs(groups.excess * slopes)))
            slopes = np.where(np.arange(len(groups)) == largest, slopes, 0.0)
    noise = float(slopes @ groups.noise @ slopes)
    both = float(slopes @ groups.covariance @ slopes)
    return math.sqrt(max(both - noise, 0.0)), math.sqrt(max(noise, 0.0))


def _caution(groups: Groups, kind: ErrorKind) -> str | None:
    if groups.counts.sum() < FEW:
        return f"there are fewer than {FEW} examples"
    if kind in ("maximum", "average") and not groups.visible.all():
        return "groups that do not stand out of the noise are left out"
    return None


def _require_examples(groups: Groups) -> None:
    if not len(groups):
        raise UndefinedMetric("measures of calibration need examples: there are none.")


@reading_metric("calibration in the large", recorded=True)
def calibration_in_the_large(reading: Reading) -> Estimate:
    """Share of positives less the mean score.

    Formula: ``sum_g D_g / n``; 0 where scores are right.

    Source: Van Calster et al. 2019.

    Bounds: scores at either end of their bins.

    Interval: first-order variance, normal.
    """
    forecasts, level = reading.once(Forecasts.of), reading.level
    pooled, scores = forecasts.pooled, forecasts.scores
    total = float(forecasts.totals.sum())
    if total <= 0:
        raise UndefinedMetric("measures of calibration need examples: there are none.")
    weights = np.array([-scores, 1.0 - scores])
    value = float(np.sum(weights * pooled.unbiased)) / total
    # What noise does to the number of examples matters in proportion to the value.
    centred = (weights - value) / total
    noise = math.sqrt(max(float(pooled.noise_variance(centred)), 0.0))
    sampling = math.sqrt(float(np.sum(centred**2 * forecasts.counts)))
    z = critical(level)
    positives = float(pooled.unbiased[1].sum())
    least, most = (
        (positives - float(np.sum(forecasts.totals * each))) / total
        for each in (forecasts.highest, forecasts.lowest)
    )
    bounds = within(Interval(least - z * noise, most + z * noise), -1.0, 1.0)
    off = float(np.linalg.norm(forecasts.totals * forecasts.misplaced)) / total
    reach = z * math.hypot(sampling, noise, off)
    interval = within(Interval(value - reach, value + reach), -1.0, 1.0)
    parts = {"binning": max(value - least, most - value), "sampling": sampling}
    if pooled.noisy:
        parts["noise"] = noise
    caution = f"there are fewer than {FEW} examples" if total < FEW else pooled.faint
    value = min(max(value, -1.0), 1.0)
    return Estimate(value, holding(bounds, value), *interval, level, parts, caution)


@dataclass(frozen=True, eq=False)
class Partition:
    """Every bin in a group, in order."""

    owners: Indices  # the group of each bin, from 0, never falling
    groups: int  # how many there are; some may hold no bin

    @classmethod
    def equal_mass(cls, totals: Floats, groups: int) -> "Partition":
        """About so many groups of about as many examples, none of them empty.

        A bin belongs to the group that its middle example lies in; without examples, to its
        neighbour's.
        """
        middles = np.cumsum(totals) - totals / 2.0
        wanted = np.floor(middles * groups / totals.sum())
        firsts = np.flatnonzero(np.diff(wanted, prepend=-1.0))
        firsts = firsts[np.add.reduceat(totals, firsts) > 0]
        firsts[0] = 0
        owners = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(totals)))
        return cls(owners, len(firsts))

    @classmethod
    def equal_width(cls, scores: Floats, groups: int) -> "Partition":
        """Left-closed groups of equal width from 0 to 1; a bin is where its mean score is."""
        return cls(np.searchsorted(np.arange(1, groups) / groups, scores, "right"), groups)

    def sums(self, by_bin: Floats) -> Floats:
        """Sums over the bins of each group."""
        total = np.bincount(self.owners, by_bin, minlength=self.groups)
        return total.astype(np.float64, copy=False)

    def noise_variance(self, forecasts: Forecasts, weights: Floats) -> Floats:
        """Noise variance of each group's sum of counts, weighed by class and bin."""
        if not forecasts.pooled.noisy:
            return np.zeros(self.groups)
        members = np.arange(self.groups)[:, np.newaxis] == self.owners
        return forecasts.pooled.noise_variance(weights * members[:, np.newaxis])

    def excess(self, forecasts: Forecasts, p: Floats) -> tuple[Floats, Floats, Floats]:
        """Positives above what p promised; its variances by sampling and by noise where p holds."""
        weights = np.array([-p, 1.0 - p])
        return (
            self.sums((weights * forecasts.pooled.unbiased).sum(axis=0)),
            self.sums(forecasts.totals * p * (1.0 - p)),
            self.noise_variance(forecasts, weights),
        )
