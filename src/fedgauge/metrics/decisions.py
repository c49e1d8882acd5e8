"""Net benefit: what acting on a score is worth, next to treating everybody and treating nobody.

Who acts from a risk t up holds a false alarm to be w = t / (1 - t) times as bad as a right one is
good. So benefits count in true positives, for each example (Vickers & Elkin 2006).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, Final, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.errors import InputError
from fedgauge.estimation.counts import PooledCounts
from fedgauge.metrics.areas import require_probabilities
from fedgauge.metrics.estimate import Estimate, Interval, accepted
from fedgauge.metrics.thresholds import (
    AtThreshold,
    Corner,
    Formula,
    Outcomes,
    noise_variance,
    stand_out,
)

# Of 400 cells drawn at random the interval covered less than 92% in 7, and 89% at least; in all of
# these about half an example or less was expected to have one of the outcomes that count
# (studies/benefit_coverage.py).
_FEW: Final = 3
_HUNDREDTHS: Final = np.arange(1, 100) / 100.0
_OF_SHARE: Final = np.arange(1, 31) / 10.0  # where positives are rare, 1% is a high risk


@dataclass(frozen=True)
class Worth(Formula):
    """The mean of what outcomes are worth: `gain` for some, `-loss` for others, 0 for the rest."""

    gain: float
    gaining: Outcomes  # 1 for each outcome that gains, else 0
    loss: float
    losing: Outcomes  # likewise

    @property
    def scale(self) -> Interval:
        """Where it can lie."""
        return Interval(-self.loss, self.gain)

    def value(self, outcomes: Outcomes) -> float:
        """The mean; NaN without examples."""
        total = sum(outcomes)
        return float(self.weights @ np.array(outcomes)) / total if total > 0 else math.nan

    def interval(self, corner: Corner, z: float, *, sampling: bool) -> Interval:
        """Values that a score test does not reject.

        Where the mean worth is x, the sum of worths less x has mean zero, with the variance of the
        noise and of examples that gain, lose or do neither as is likeliest for x. With equal gain
        and loss this is Tango's interval (1998). A normal interval covers nothing where no example
        gains.
        """
        total = float(sum(corner.unbiased))
        if total <= 0:
            return self.scale
        worth = float(self.weights @ np.array(corner.unbiased))
        gained, lost, counted = self._counted(corner)
        linear, square = float(self.weights @ corner.noise.sum(axis=1)), float(corner.noise.sum())
        constant = float(self.weights @ corner.noise @ self.weights)

        def variance(x: float) -> float:
            noise = constant - 2.0 * x * linear + x * x * square  # of the worths less x
            if not sampling:
                return noise
            p, q = likeliest(gained, lost, counted, self.loss / self.gain, x / self.gain)
            return noise + counted * (self.gain**2 * p + self.loss**2 * q - x * x)

        start = min(max(worth / total, -self.loss), self.gain)
        return accepted(start, lambda x: worth - x * total, variance, z, self.scale)

    def variances(self, corner: Corner) -> tuple[float, float]:
        """Variance by noise and by sampling, to first order."""
        slope = self.slopes(corner.outcomes)
        return noise_variance(slope, corner), float(slope**2 @ np.array(corner.outcomes))

    def slopes(self, outcomes: Outcomes) -> Floats:
        """Derivatives by the four counts; 0 where nothing is counted."""
        total = sum(outcomes)
        if total <= 0:
            return np.zeros(len(outcomes))
        slope: Floats = (self.weights - self.value(outcomes)) / total
        return slope

    def has_base(self, corner: Corner) -> bool:
        """Whether the number of examples stands out of the noise."""
        return stand_out(np.ones(len(corner.outcomes)), corner)

    def caution(self, corners: Sequence[Corner]) -> str | None:
        """What hardly any example does says little about how often it happens."""
        few = min(min(self._counted(corner)[:2]) for corner in corners) < _FEW
        return f"fewer than {_FEW} examples have one of the outcomes weighed" if few else None

    def _counted(self, corner: Corner) -> tuple[float, float, float]:
        """Examples that gain, that lose, and all."""
        counts = np.maximum(np.array(corner.outcomes), 0.0)
        gained, lost = (float(counts @ np.array(side)) for side in (self.gaining, self.losing))
        return gained, lost, float(counts.sum())

    @cached_property
    def weights(self) -> Floats:
        """What each outcome is worth."""
        weights: Floats = self.gain * np.array(self.gaining) - self.loss * np.array(self.losing)
        return weights


def likeliest(
    gained: float, lost: float, counted: float, odds: float, mean: float
) -> tuple[float, float]:
    """The likeliest shares p of examples that gain and q that lose, with ``p - odds q == mean``.

    Of `counted` examples some `gained` and some `lost`. The likelihood is highest where a quadratic
    in q is zero (Tango 1998, who has odds of 1).
    """
    a = counted * odds * (1.0 + odds)
    b = odds * (1.0 - mean) * (gained + lost) - mean * (1.0 + odds) * (counted - gained)
    c = lost * mean * (1.0 - mean)
    q = (b + math.sqrt(max(b * b + 4.0 * a * c, 0.0))) / (2.0 * a)
    q = min(max(q, 0.0, -mean / odds), (1.0 - mean) / (1.0 + odds))
    return mean + odds * q, q


def benefit_of_model(threshold: float) -> Worth:
    """Of treating those that the model flags: (tp - w fp) / n."""
    return Worth(1.0, Outcomes(tp=1), _odds(threshold), Outcomes(fp=1))


def benefit_of_all(threshold: float) -> Worth:
    """Of treating everybody: (tp + fn - w (fp + tn)) / n."""
    return Worth(1.0, Outcomes(tp=1, fn=1), _odds(threshold), Outcomes(fp=1, tn=1))


def benefit_over_all(threshold: float) -> Worth:
    """What the model adds to treating everybody: (w tn - fn) / n.

    It has an interval of its own: the two benefits move together, so comparing theirs would say too
    little.
    """
    return Worth(_odds(threshold), Outcomes(tn=1), 1.0, Outcomes(fn=1))


def _odds(threshold: float) -> float:
    return threshold / (1.0 - threshold)


class Decision(AtThreshold):
    """Benefits where examples from a risk up are treated; a risk is a threshold within (0, 1)."""

    def __init__(self, pooled: PooledCounts, threshold: float, level: float) -> None:
        super().__init__(pooled, _checked(threshold), level)

    def net_benefit(self) -> Estimate:
        """Of treating those that the model flags."""
        return self._worth(benefit_of_model)

    def treat_all(self) -> Estimate:
        """Of treating everybody."""
        return self._worth(benefit_of_all)

    def over_treat_all(self) -> Estimate:
        """What the model adds to treating everybody."""
        return self._worth(benefit_over_all)

    def _worth(self, formula: Callable[[float], Worth]) -> Estimate:
        return self._estimate("net_benefit", formula(self.threshold), "there is no example")


@dataclass(frozen=True, eq=False)
class DecisionCurve:
    """Net benefit along thresholds, next to treating everybody; treating nobody is worth 0.

    Attributes
    ----------
    thresholds
        Risks from which examples are treated, ascending.
    net_benefit, low, high
        Of the model, with its interval at each single threshold.
    treat_all, treat_all_low, treat_all_high
        Of treating everybody.
    advantage, advantage_low, advantage_high
        Of the model over the better of treating everybody and nobody; what both have in common
        cancels.
    level
        Confidence of the intervals.
    caution
        Why they are rough at all thresholds, if they are.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.6])})
    >>> result.decision_curve([0.2, 0.5]).thresholds
    array([0.2, 0.5])
    """

    thresholds: Floats
    net_benefit: Floats
    low: Floats
    high: Floats
    treat_all: Floats
    treat_all_low: Floats
    treat_all_high: Floats
    advantage: Floats
    advantage_low: Floats
    advantage_high: Floats
    level: float
    caution: str | None = None

    @cached_property
    def useful(self) -> tuple[Interval, ...]:
        """Ranges of thresholds where the model is surely better than both, each by itself."""
        return _runs(self.thresholds, self.advantage_low > 0)

    @cached_property
    def likely_useful(self) -> tuple[Interval, ...]:
        """Ranges of thresholds at which the model is better than both by its value."""
        return _runs(self.thresholds, self.advantage > 0)

    def __repr__(self) -> str:
        spans = ", ".join(f"{low:.3g} to {high:.3g}" for low, high in self.useful)
        return f"<DecisionCurve at {len(self.thresholds)} thresholds: useful {spans or 'nowhere'}>"


def net_benefit(pooled: PooledCounts, threshold: float, level: float) -> Estimate:
    """Net benefit of treating examples that score at least `threshold`."""
    require_probabilities(pooled.axis, "net benefits")
    return Decision(pooled, threshold, level).net_benefit()


def decision_curve(
    pooled: PooledCounts, thresholds: Iterable[SupportsFloat] | None, level: float
) -> DecisionCurve:
    """Net benefits at thresholds; see :meth:`fedgauge.Evaluation.decision_curve`."""
    require_probabilities(pooled.axis, "net benefits")
    if thresholds is None:
        risks = _usual(pooled)
    else:
        try:
            numbers = [float(threshold) for threshold in thresholds]
        except (TypeError, ValueError):
            numbers = []
        risks = np.unique([_checked(number) for number in numbers])
        if not len(risks):
            raise InputError("thresholds must be a list of risks, such as [0.1, 0.2].")
    each = [Decision(pooled, float(risk), level) for risk in risks]
    model, everybody, over = (
        _columns([read(decision) for decision in each])
        for read in (Decision.net_benefit, Decision.treat_all, Decision.over_treat_all)
    )
    # Better than both is better than each. Value and interval are those of the lesser difference.
    advantage = np.minimum(model, over)
    return DecisionCurve(
        risks,
        *(model[0], model[1], model[2]),
        *(everybody[0], everybody[1], everybody[2]),
        *(advantage[0], advantage[1], advantage[2]),
        level,
        pooled.faint,
    )


def _columns(estimates: Sequence[Estimate]) -> Floats:
    """Value, low and high of each, as rows."""
    return np.array([(each.value, each.low, each.high) for each in estimates], dtype=np.float64).T


def _usual(pooled: PooledCounts) -> Floats:
    """The edges nearest to hundredths and to tenths, up to three, of the share of positives."""
    axis = pooled.axis
    share = pooled.positives / max(pooled.positives + pooled.negatives, 1.0)
    wanted = np.union1d(_HUNDREDTHS, share * _OF_SHARE)
    wanted = wanted[(wanted > 0) & (wanted < 1)]
    edges = axis.thresholds[1:] if axis.outside == "clip" else axis.thresholds
    edges = edges[(edges > 0) & (edges < 1)]
    if axis.separates_all or not len(edges):
        return wanted
    nearest = np.abs(edges[:, np.newaxis] - wanted).argmin(axis=0)
    usual: Floats = edges[np.unique(nearest)]
    return usual


def _runs(thresholds: Floats, holds: NDArray[np.bool_]) -> tuple[Interval, ...]:
    """From the first to the last threshold of each run in which something holds."""
    ends = np.flatnonzero(np.diff(np.r_[False, holds, False])).reshape(-1, 2)
    return tuple(
        Interval(float(thresholds[first]), float(thresholds[after - 1])) for first, after in ends
    )


def _checked(threshold: Any) -> float:
    number = isinstance(threshold, Real) and not isinstance(threshold, bool)
    if not number or not 0.0 < float(threshold) < 1.0:
        raise InputError(
            f"a threshold of a net benefit must lie between 0 and 1, got {threshold!r}. It is the "
            "risk from which examples are treated."
        )
    return float(threshold)
