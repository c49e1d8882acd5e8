"""Is there enough data? What a wanted error, or a wanted interval, takes.

The planner's worlds are played through with the plan that it would propose, at one epsilon or
number of examples after the other, until what is wanted is reached.
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from fedgauge.binning.axis import Axis
from fedgauge.errors import PlanError, PrivacyWarning, ResultWithheld, UndefinedMetric
from fedgauge.estimation.pooled import PooledCounts, redraw
from fedgauge.measures.intervals import LEVEL, Estimate
from fedgauge.measures.metric import metrics_of
from fedgauge.measures.thresholds import AtThreshold, ThresholdMetric
from fedgauge.plan import EvaluationPlan
from fedgauge.planner.search import MakesAxis, check_hints, propose, shown
from fedgauge.planner.worlds import World, worlds
from fedgauge.privacy import AnyPrivacyModel, Cohort, DistributedDP
from fedgauge.privacy.distributed import SUMS_SHARE
from fedgauge.privacy.models import LARGE_EPSILON

ROC_AREA_ERROR: Final = "roc_area_error"

_DRAWS: Final = 4  # of noise: the length of intervals hardly varies
_EPSILONS: Final = (1e-4, LARGE_EPSILON)  # to try
_EXAMPLES: Final = (2.0, 1e12)
_STEPS: Final = 12
# In logarithms:
_CLOSE_ENOUGH: Final = 0.07  # to what is wanted
_NARROW: Final = 0.03  # between two plans, where a jump from one to the other is in the way
_FARTHEST: Final = math.log(1e3)  # that one step goes
_STEEPEST, _FLATTEST = -1.5, -0.2


class Needs(NamedTuple):
    """What it takes: this epsilon with the data there is, or this much data with this epsilon.

    Attributes
    ----------
    epsilon
        None where none up to 20 is enough, since examples are too few or bins too wide; and
        without noise, where there is none.
    examples
        None where no number of examples is enough, since bins are too wide.
    expected
        The error, or half-width, to expect as things are.
    """

    epsilon: float | None
    examples: int | None
    expected: float


def needs(
    wanted: float,
    *,
    metric: str = ROC_AREA_ERROR,
    at: float | None = None,
    privacy: AnyPrivacyModel,
    clients: int,
    examples: int | None = None,
    positive_rate: float | None = None,
    cohort: Cohort | None = None,
    score_sums: bool = False,
    min_cell: int | None = None,
    axis: Axis | MakesAxis | None = None,
) -> Needs:
    """The epsilon, or the number of examples, that brings an error or an interval to a wanted size.

    Half-widths depend on the scores, which nobody has seen: the answer is for what lies in the
    middle of the planner's shapes (a geometric mean; the ROC Area Error is a plain one).

    Parameters
    ----------
    wanted
        The ROC Area Error, or half the length of the 95% interval of another metric.
    metric
        ``"roc_area_error"``, or a metric of :class:`fedgauge.AtThreshold`, such as ``"recall"``.
    at
        The threshold of such a metric. It becomes a bin edge, unless an axis is given.
    score_sums
        Whether these take their share of epsilon.
    privacy, clients, examples, positive_rate, cohort, min_cell, axis
        As for :func:`propose`.

    Examples
    --------
    >>> from fedgauge import SecureAggregation
    >>> hints = {"clients": 5, "examples": 2_000, "positive_rate": 0.2}
    >>> needed = needs(0.03, metric="recall", at=0.5, privacy=SecureAggregation(), **hints)
    >>> needed.epsilon, round(needed.examples, -3), round(needed.expected, 2)
    (None, 4000, 0.04)
    """
    n, rate = check_hints(examples, positive_rate)
    wish = _wish(metric, at)
    wish.check(wanted, privacy)
    share = _share_of_counts(privacy, score_sums=score_sums)
    known: dict[str, Any] = {"clients": clients, "cohort": cohort, "positive_rate": rate}
    known |= {"min_cell": min_cell, "axis": axis, "at": at}

    @cache
    def expected(epsilon: float | None, many: int) -> float:
        asked = privacy
        if epsilon is not None:
            asked = msgspec.structs.replace(privacy, epsilon=epsilon * share)
        return wish.expected(propose(privacy=asked, examples=many, **known), many, rate)

    epsilon = None if privacy.budget is None else privacy.budget.epsilon
    enough = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        now = expected(epsilon, n)
        if epsilon is not None:
            enough = _solve(lambda x: expected(x, n), wanted, epsilon, _EPSILONS)
        many = _solve(lambda x: expected(epsilon, round(x)), wanted, n, _EXAMPLES)
    return Needs(enough, None if many is None else round(many), now)


def _share_of_counts(privacy: AnyPrivacyModel, *, score_sums: bool) -> float:
    """The share of epsilon that counts are left with, of which all that is asked for is made.

    So plans are asked for without sums, also where the noise of these would be too wide.
    """
    if not score_sums or not privacy.adds_noise:
        return 1.0
    if not isinstance(privacy, DistributedDP):
        raise PlanError("local reports carry no score sums. Leave score_sums out.")
    privacy.require_polya()
    return float(1 - SUMS_SHARE)


class _Wish(NamedTuple):
    """A metric asked for: half the length of its interval, or the ROC Area Error.

    `read` makes an estimate of pooled counts, and is None for the ROC Area Error. `largest` is an
    answer that says nothing.
    """

    read: Callable[[PooledCounts], Estimate] | None
    largest: float

    def check(self, wanted: float, privacy: AnyPrivacyModel) -> None:
        """Refuse what cannot be wanted, and what nothing would change."""
        if not isinstance(privacy, AnyPrivacyModel):
            raise PlanError(f"privacy must be such as DistributedDP(1.0), got {privacy!r}.")
        if self.read is None and not privacy.adds_noise:
            raise PlanError(
                "privacy must be DistributedDP or LocalDP for a wanted ROC Area Error: without "
                "noise it comes from the bins alone. Use more bins, or ask for a metric at a "
                "threshold."
            )
        is_number = isinstance(wanted, int | float) and not isinstance(wanted, bool)
        if not is_number or not 0 < wanted < self.largest:
            what = "error" if self.read is None else "half-width"
            raise PlanError(f"a wanted {what} lies between 0 and {self.largest:g}, got {wanted!r}.")

    def expected(self, plan: EvaluationPlan, examples: int, positive_rate: float) -> float:
        """What to expect of a plan."""
        if self.read is None:
            assert plan.predicted is not None  # noqa: S101  (propose predicts)
            return plan.predicted.roc_area_error
        contributions = examples if plan.cohort is None else plan.cohort.min_survivors
        variances = plan.noise_variances(contributions)
        by_world = [
            np.mean([self._half_width(pooled) for pooled in _played(plan, world, variances)])
            for world in worlds(plan.axis, examples, positive_rate)
        ]
        return float(np.exp(np.mean(np.log(by_world))))

    def _half_width(self, pooled: PooledCounts | None) -> float:
        """Half the length of the interval; the largest where there would be no result."""
        if pooled is None or pooled.hidden is not None:
            return self.largest
        assert self.read is not None  # noqa: S101  (an error has no width)
        try:
            interval = self.read(pooled).interval
        except UndefinedMetric:
            return self.largest
        assert interval is not None  # noqa: S101  (only counts have none)
        return (interval.high - interval.low) / 2


def _wish(metric: str, at: float | None) -> _Wish:
    """The metric asked for, by its name."""
    rows = {row.name: row for row in metrics_of(AtThreshold) if isinstance(row, ThresholdMetric)}
    if metric == ROC_AREA_ERROR:
        if at is not None:
            raise PlanError(f"{metric} has no threshold: leave out at, or name a metric at one.")
        return _Wish(None, 0.5)
    if metric not in rows:
        raise PlanError(
            f"metric must be {ROC_AREA_ERROR} or one at a threshold ({', '.join(rows)}), got "
            f"{metric!r}."
        )
    if at is None:
        raise PlanError(f"{metric} has a threshold: name it, such as at=0.5.")
    low, high = rows[metric].formula.scale
    return _Wish(lambda pooled: rows[metric].read(AtThreshold(pooled, at, LEVEL)), (high - low) / 2)


def _played(
    plan: EvaluationPlan, world: World, variances: tuple[float, ...]
) -> Iterator[PooledCounts | None]:
    """What evaluations would release; None where nothing."""
    if not variances:
        try:
            axis, counts = shown(plan, world.counts)
        except ResultWithheld:
            yield None
        else:
            yield PooledCounts(axis, counts, (axis.bins,))
        return
    rng = copy.deepcopy(world.rng)
    by_node = plan.node_variances(world.counts)
    for _ in range(_DRAWS):
        counts = redraw(world.counts, plan.tree, variances, rng, node_variances=by_node)
        yield PooledCounts(
            plan.axis,
            counts,
            plan.tree,
            variances,
            plan.node_variances if plan.final.sends_reports else None,
        )


class _Tried(NamedTuple):
    """The logarithms of what was tried and of what it gave."""

    x: float
    y: float


def _solve(
    expected: Callable[[float], float], wanted: float, start: float, ends: tuple[float, float]
) -> float | None:
    """Where about what is wanted is reached; None where it is not, however large.

    What is expected falls about like a power: steps are those of a secant in logarithms, until
    what is wanted lies between two of them, and within these from then on.
    """
    low, high = (math.log(end) for end in (min(ends[0], start), max(ends[1], start)))
    missed = reached = before = None
    x, goal = math.log(start), math.log(wanted)
    for step in range(_STEPS):
        try:
            tried = _Tried(x, math.log(expected(math.exp(x))))
        except PlanError:  # no such plan can be made
            if step == 0:
                raise
            tried = _Tried(x, math.inf)
        if abs(tried.y - goal) < _CLOSE_ENOUGH:
            return math.exp(x)
        if tried.y > goal:
            missed = tried
        else:
            reached = tried
        if x == (high if tried is missed else low):
            break
        if missed is not None and reached is not None:
            if reached.x - missed.x < _NARROW:
                break
            x = _between(missed, reached, goal)
        else:
            x = min(max(_beyond(before, tried, goal), low), high)
        before = tried
    return None if reached is None else math.exp(reached.x)


def _between(missed: _Tried, reached: _Tried, goal: float) -> float:
    """Where a line reaches the goal, well within both ends."""
    part = (missed.y - goal) / (missed.y - reached.y) if math.isfinite(missed.y) else 0.5
    return missed.x + min(max(part, 0.1), 0.9) * (reached.x - missed.x)


def _beyond(before: _Tried | None, tried: _Tried, goal: float) -> float:
    """Where the secant through the last two reaches the goal."""
    slope = -0.7
    if before is not None and math.isfinite(tried.y):
        slope = min(max((tried.y - before.y) / (tried.x - before.x), _STEEPEST), _FLATTEST)
    return tried.x + min(max((goal - tried.y) / slope, -_FARTHEST), _FARTHEST)
