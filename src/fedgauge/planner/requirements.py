"""Is there enough data? What a wanted error, or a wanted interval, takes.

The plan that would be proposed is simulated on the planner's worlds, at one epsilon or number of
examples after the other, until what is wanted is reached.
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from fedgauge.arrays import Floats
from fedgauge.errors import PlanError, PrivacyWarning, ResultWithheld, UndefinedMetric
from fedgauge.estimation.counts import DrawnBlock, PooledCounts, drawn_blocks, redraw
from fedgauge.estimation.distribution import Aligned
from fedgauge.histograms.axis import Axis
from fedgauge.metrics.areas import require_probabilities
from fedgauge.metrics.calibration import expected_calibration_error
from fedgauge.metrics.estimate import LEVEL, Estimate, metrics_of
from fedgauge.metrics.ranking import Reading
from fedgauge.metrics.thresholds import AtThreshold, ThresholdMetric
from fedgauge.plan import EvaluationPlan, Slice
from fedgauge.planner.search import MakesAxis, check_hints, like, predict, propose
from fedgauge.planner.simulated import World, on_axis, shown, worlds
from fedgauge.privacy import AnyPrivacyModel, Cohort, DistributedDP
from fedgauge.privacy.distributed import SUMS_SHARE
from fedgauge.privacy.models import LARGE_EPSILON

ROC_AREA_ERROR: Final = "roc_area_error"
CALIBRATION_ERROR: Final = "expected_calibration_error"

_DRAWS: Final = 4  # of noise: the length of intervals hardly varies
EPSILONS: Final = (1e-4, LARGE_EPSILON)  # to try
EXAMPLES: Final = (2.0, 1e12)
# Longest over shortest half-width of the shapes: up to this, 97% of other scores are within 1.5 of
# what is expected, beyond it 66% (4,182 half-widths; 3% to 50% of the examples positive).
_ROUGH: Final = 3.0
_STEPS: Final = 12
# In logarithms:
_CLOSE_ENOUGH: Final = 0.07  # to what is wanted
_NARROW: Final = 0.03  # between two plans, where a jump from one to the other is in the way
_FARTHEST: Final = math.log(1e3)  # that one step goes
_STEEPEST, _FLATTEST = -1.5, -0.2


class Needs(NamedTuple):
    """What it takes: this epsilon with the data there is, or this much data with this epsilon."""

    epsilon: float | None  # None without noise, or where none up to 20 is enough
    examples: int | None  # None where no number is enough: bins are too wide
    expected: float  # the error, or half-width, to expect as things are
    caution: str | None = None  # why it is rough: plausible scores differ too much


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

    Half-widths depend on the scores, which nobody has seen: the answer is a geometric mean over the
    planner's shapes, with a caution where these differ too much.

    Parameters
    ----------
    wanted
        The ROC Area Error, or half the length of the 95% interval of another metric.
    metric
        ``"roc_area_error"``, ``"expected_calibration_error"`` (of 15 groups of equal width), or a
        metric of :class:`fedgauge.AtThreshold`, such as ``"recall"``.
    at
        The threshold of such a one. It becomes a bin edge, unless an axis is given.
    score_sums
        Whether these take their share of epsilon.
    privacy, clients, examples, positive_rate, cohort, min_cell, axis
        As for :func:`propose`.

    Examples
    --------
    >>> hints = {"clients": 5, "examples": 2_000, "positive_rate": 0.2}
    >>> needed = needs(0.03, metric="recall", at=0.5, privacy=fg.SecureAggregation(), **hints)
    >>> needed.epsilon, round(needed.examples, -3), round(needed.expected, 2)
    (None, 4000, 0.04)
    """
    n, rate = check_hints(examples, positive_rate)
    wish = _wish(metric, at)
    wish.check(wanted, privacy)
    if metric == CALIBRATION_ERROR:
        require_probabilities(like(axis), "measures of calibration")
    known: dict[str, Any] = {"clients": clients, "cohort": cohort, "positive_rate": rate}
    known |= {"min_cell": min_cell, "axis": axis, "at": at}
    budget = privacy.budget
    share = _share_of_counts(privacy, score_sums=score_sums)
    trials = _Trials(wish, with_epsilon(privacy, share), n, known)
    epsilon = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        now = trials.expected(1.0, 1.0)
        if budget is not None:
            ends = (EPSILONS[0] / budget.epsilon, EPSILONS[1] / budget.epsilon)
            epsilon = solve(lambda scale: trials.expected(scale, 1.0), wanted, ends)
        ends = (EXAMPLES[0] / n, EXAMPLES[1] / n)
        many = solve(lambda scale: trials.expected(1.0, scale), wanted, ends)
        caution = trials.caution(epsilon or 1.0, 1.0) or trials.caution(1.0, many or 1.0)
    if budget is not None and epsilon is not None:
        epsilon *= budget.epsilon
    return Needs(epsilon, None if many is None else round(many * n), now, caution)


@dataclass(frozen=True)
class _Trials:
    """Evaluations with some times the epsilon, or the examples, that there are."""

    wish: "_Wish"
    privacy: AnyPrivacyModel
    examples: int
    known: dict[str, Any]
    _proposed: dict[tuple[int, ...], EvaluationPlan] = field(default_factory=dict)

    def expected(self, of_epsilon: float, of_examples: float) -> float:
        """What to expect there: every shape counts the same, however long its intervals."""
        return float(np.exp(np.log(self._by_shape(of_epsilon, of_examples)).mean()))

    def caution(self, of_epsilon: float, of_examples: float) -> str | None:
        """Whether shapes differ too much there."""
        by_shape = self._by_shape(of_epsilon, of_examples)
        times = float(by_shape.max() / by_shape.min())
        if times <= _ROUGH:
            return None
        return f"intervals differ {times:.0f}-fold between scores that are all plausible"

    def _by_shape(self, of_epsilon: float, of_examples: float) -> Floats:
        near = self._near(round(math.log2(of_epsilon)), round(math.log2(of_examples)))
        plan = EvaluationPlan.under(
            with_epsilon(self.privacy, of_epsilon),
            near.axis,
            cohort=near.cohort,
            tree=near.tree,
            min_cell=near.min_cell,
        )
        many = round(self.examples * of_examples)
        return self.wish.by_shape(plan, many, self.known["positive_rate"])

    def _near(self, *powers: int) -> EvaluationPlan:
        """A plan for powers of two times what there is.

        Which design is best takes long to find, and hardly changes over a factor of 1.4.
        """
        if powers not in self._proposed:
            of_epsilon, of_examples = (2.0**power for power in powers)
            self._proposed[powers] = propose(
                privacy=with_epsilon(self.privacy, of_epsilon),
                examples=max(2, round(self.examples * of_examples)),
                **self.known,
            )
        return self._proposed[powers]


def with_epsilon(privacy: AnyPrivacyModel, scale: float) -> AnyPrivacyModel:
    """The model with so many times its epsilon, if it has one."""
    if privacy.budget is None:
        return privacy
    return msgspec.structs.replace(privacy, epsilon=privacy.budget.epsilon * scale)


def _share_of_counts(privacy: AnyPrivacyModel, *, score_sums: bool) -> float:
    """The share of epsilon left to counts, for plans without sums: their noise may be too wide."""
    if not score_sums or not privacy.adds_noise:
        return 1.0
    if not isinstance(privacy, DistributedDP):
        raise PlanError("local reports carry no score sums. Leave score_sums out.")
    privacy.require_polya()
    return float(1 - SUMS_SHARE)


class _Wish(NamedTuple):
    """A metric asked for: half the length of its interval, or the ROC Area Error."""

    read: Callable[[PooledCounts], Estimate] | None  # None for the ROC Area Error
    largest: float  # an answer that says nothing

    def check(self, wanted: float, privacy: AnyPrivacyModel) -> None:
        """Refuse what cannot be wanted, and what nothing would change."""
        if not isinstance(privacy, AnyPrivacyModel):
            raise PlanError(f"privacy must be such as DistributedDP(1.0), got {privacy!r}.")
        if self.read is None and not privacy.adds_noise:
            raise PlanError(
                "privacy must be DistributedDP or LocalDP for a wanted ROC Area Error: without "
                "noise it comes from the bins alone. Use more bins, or ask for another metric."
            )
        is_number = isinstance(wanted, int | float) and not isinstance(wanted, bool)
        if not is_number or not 0 < wanted < self.largest:
            what = "error" if self.read is None else "half-width"
            raise PlanError(f"a wanted {what} lies between 0 and {self.largest:g}, got {wanted!r}.")

    def by_shape(self, plan: EvaluationPlan, examples: int, positive_rate: float) -> Floats:
        """What to expect of a plan for every shape of scores; one mean for the ROC Area Error."""
        if self.read is None:
            return np.array(predict(plan, examples=examples, positive_rate=positive_rate)[:1])
        contributions = examples if plan.cohort is None else plan.cohort.min_survivors
        variances = plan.noise_variances(contributions)
        return np.array(
            [
                np.mean([self._half_width(pooled) for pooled in _played(plan, world, variances)])
                for world in worlds(examples, positive_rate, smooth=True)
            ]
        )

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
    rows = {row.name: row for row in metrics_of(AtThreshold) if isinstance(row, ThresholdMetric)}
    if metric in (ROC_AREA_ERROR, CALIBRATION_ERROR):
        if at is not None:
            raise PlanError(f"{metric} has no threshold: leave out at, or name a metric at one.")
        if metric == ROC_AREA_ERROR:
            return _Wish(None, 0.5)
        return _Wish(
            lambda pooled: expected_calibration_error(Reading(pooled, Aligned(), LEVEL)), 0.5
        )
    if metric not in rows:
        raise PlanError(
            f"metric must be {ROC_AREA_ERROR}, {CALIBRATION_ERROR} or one at a threshold "
            f"({', '.join(rows)}), got {metric!r}."
        )
    if at is None:
        raise PlanError(f"{metric} has a threshold: name it, such as at=0.5.")
    low, high = rows[metric].formula.scale
    return _Wish(lambda pooled: rows[metric].read(AtThreshold(pooled, at, LEVEL)), (high - low) / 2)


def _played(
    plan: EvaluationPlan, world: World, variances: tuple[float, ...]
) -> Iterator[PooledCounts | None]:
    """What evaluations would release; None where nothing."""
    world, exact = on_axis(world, plan.axis)
    if not variances:
        try:
            axis, counts = shown(plan, exact)
        except ResultWithheld:
            yield None
        else:
            yield PooledCounts(axis, counts, (axis.bins,))
        return
    rng = copy.deepcopy(world.rng)
    by_node = plan.node_variances(exact)
    for _ in range(_DRAWS):
        counts = redraw(exact, plan.tree, variances, rng, node_variances=by_node)
        drawn: tuple[DrawnBlock, ...] = ()
        if plan.final.sends_reports:
            drawn = drawn_blocks(plan, counts, plan.task.contrast(Slice()))
        # Not shrunk: that moves values, and hardly ever an interval.
        yield PooledCounts(plan.axis, counts, plan.tree, variances, drawn=drawn, shrinks=False)


class _Tried(NamedTuple):
    """The logarithms of what was tried and of what it gave."""

    x: float
    y: float


def solve(
    expected: Callable[[float], float], wanted: float, ends: tuple[float, float]
) -> float | None:
    """How much of what there is reaches about what is wanted; None where none does.

    What is expected falls about like a power: steps are those of a secant in logarithms, between
    the two nearest ones once there are two.
    """
    low, high = min(math.log(ends[0]), 0.0), max(math.log(ends[1]), 0.0)
    missed = reached = before = None
    x, goal = 0.0, math.log(wanted)
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
