"""`propose`: tries designs in plausible worlds and takes the one with the least regret."""

import copy
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from numbers import Real
from typing import Final, Literal, NamedTuple, get_args

import msgspec
import numpy as np

from fedgauge.arrays import Floats
from fedgauge.data.examples import Label
from fedgauge.errors import PlanError
from fedgauge.estimation.suppression import kept_edges
from fedgauge.histograms.axis import Axis
from fedgauge.histograms.tables import NOISY_RANGES
from fedgauge.histograms.two_round import TwoRound
from fedgauge.plan import EvaluationPlan, Slice
from fedgauge.plan.limits import NO_SMALL_CELLS
from fedgauge.plan.prediction import Instead, Prediction
from fedgauge.plan.task import AnyTask, BinaryTask
from fedgauge.plan.two_rounds import Found
from fedgauge.planner.simulated import (
    SHAPES,
    Scale,
    World,
    drawn_worlds,
    errors_of,
    mechanism,
    reference_axis,
    simulate,
    worlds,
)
from fedgauge.privacy import AnyPrivacyModel, Cohort, DistributedDP

# Counts that a row adds to, below which Polya noise is less: from 9 on it is not, at epsilon 1 and
# delta 1e-6, and accounting for Skellam's takes a while.
_FEWEST_SEEN: Final = 5
_DELTA: Final = 1e-6
_BINS: Final = 8  # of the plans compared: their noise does not depend on it


def less_noise(privacy: AnyPrivacyModel, task: AnyTask, delta: float) -> DistributedDP | None:
    """The same promise but for a `delta`, by Skellam noise, where it is less than Polya's; or None.

    Polya noise grows with the number of counts that a row adds to, Skellam noise with its root.
    """
    if not isinstance(privacy, DistributedDP) or privacy.noise != "polya":
        return None
    if task.per_row < _FEWEST_SEEN:
        return None
    axis, cohort = Axis.uniform(_BINS, outside="clip"), Cohort(min_survivors=3)
    other = msgspec.structs.replace(privacy, noise="skellam", delta=delta)
    polya, skellam = (
        EvaluationPlan.under(model, axis, cohort=cohort, task=task).noise_variances(3)[0]
        for model in (privacy, other)
    )
    return other if skellam < polya else None


Scores = Literal["probabilities", "margins", "unknown"]

_COARSE: Final = 512
_MARGIN: Final = 1.0  # margins hardly differ by less than a hundredth of this
_NARROWEST: Final = 1 / 128  # of an exact sum: what sites allow unless told otherwise
_FOUND: Final = (12, 16, 24, 32, 48, 64, 96)  # bins of equal depth to choose from
_FIXED: Final = (32, 64, 128)  # bins of one round
_FEW_DRAWS: Final = 2
_DRAWS: Final = 4
_PROMISING_SCALES: Final = 2


def check_scores(scores: object) -> None:
    """Refuse what says nothing about scores."""
    if scores is not None and scores not in get_args(Scores):
        raise PlanError(f"scores must be one of {', '.join(get_args(Scores))}, got {scores!r}.")


def _scales(scores: Scores) -> Sequence[Scale]:
    """What log-odds may look like as scores, one way for each shape."""
    from scipy.special import expit

    if scores == "margins":
        return [lambda x: x] * len(SHAPES)
    return [
        lambda x: x,
        lambda x: 600 + 40 * x,  # points
        lambda x: 1e-4 * x,
        lambda x: np.exp(x / 2),
        expit,
        lambda x: 1e3 * x,
    ]


@lru_cache(maxsize=16)
def scaled_worlds(scores: Scores, examples: int, positive_rate: float) -> tuple[World, ...]:
    """Those of probabilities, or one for each shape; much finer than bins are."""
    if scores == "probabilities":
        return worlds(examples, positive_rate)
    return drawn_worlds(SHAPES, _scales(scores), examples, positive_rate)


def designs(
    scores: Scores,
    privacy: AnyPrivacyModel,
    cohort: Cohort | None,
    task: AnyTask,
    bins: int,
    min_cell: int,
) -> tuple[list[EvaluationPlan], list[EvaluationPlan]]:
    """Plans of two rounds and of one to choose from; of an exact sum, of so many bins."""

    def under(axis: Axis | TwoRound) -> EvaluationPlan:
        return EvaluationPlan.under(privacy, axis, cohort=cohort, task=task, min_cell=min_cell)

    exact = not privacy.adds_noise
    narrowest = _NARROWEST if exact and scores != "probabilities" else 0.0
    if narrowest:  # bins for smaller scores than margins would be too narrow for sites
        scores = "margins"
    coarse = _axis(scores, _COARSE)
    found = [
        TwoRound(b, coarse=coarse, narrowest=narrowest) for b in ((bins,) if exact else _FOUND)
    ]
    fixed = [_axis(scores, b) for b in ((bins,) if exact else _FIXED)]
    return [under(two) for two in found], [under(axis) for axis in fixed]


def _axis(scores: Scores, bins: int) -> Axis:
    if scores == "probabilities":
        return Axis.logit(bins, outside="clip")
    return Axis.asinh(bins, scale=_MARGIN) if scores == "margins" else Axis.asinh(bins)


def best(
    plans: Sequence[EvaluationPlan], scores: Scores, examples: int, positive_rate: float
) -> EvaluationPlan:
    """The plan with the least error; every world counts the same, whatever the size of its own."""

    def error(plan: EvaluationPlan, draws: int, *, shrink: bool) -> float:
        hints = (scores, examples, positive_rate)
        found = _simulate(plan, *hints, draws, groups=1, slice_=None, shrink=shrink)
        return float(np.log(found[:, :2]).mean())

    if len(plans) == 1:
        return plans[0]
    few = sorted(plans, key=lambda plan: error(plan, _FEW_DRAWS, shrink=False))[:_PROMISING_SCALES]
    return min(few, key=lambda plan: error(plan, _DRAWS, shrink=True))


def expected(
    plan: EvaluationPlan,
    scores: Scores,
    examples: int,
    positive_rate: float,
    groups: int = 1,
    slice_: Slice | None = None,
) -> Prediction:
    """Errors to expect of a plan, of all rows or of one of so many groups."""
    hints = (scores, examples, positive_rate)
    found = _simulate(plan, *hints, _DRAWS, groups=groups, slice_=slice_, shrink=True)
    return Prediction.of_worlds(found)


@lru_cache(maxsize=256)
def _simulate(
    plan: EvaluationPlan,
    scores: Scores,
    examples: int,
    positive_rate: float,
    draws: int,
    *,
    groups: int,
    slice_: Slice | None,
    shrink: bool,
) -> Floats:
    """Mean errors of a plan in each world, both rounds simulated where there are two."""
    draws = draws if plan.is_noisy else 1
    errors = []
    for world in scaled_worlds(scores, max(examples // groups, 2), positive_rate):
        rng = copy.deepcopy(world.rng)  # a world is shared
        runs = [_run(plan, world, groups, slice_, rng, shrink=shrink) for _ in range(draws)]
        errors.append(np.mean(runs, axis=0))
    return np.array(errors)


def _run(
    plan: EvaluationPlan,
    world: World,
    groups: int,
    slice_: Slice | None,
    rng: np.random.Generator,
    *,
    shrink: bool,
) -> Floats:
    if plan.task.two is not None:
        plan = _located(plan, plan.task.two, world, groups, rng)
    counts = _reported(plan, world.on(plan.axis), rng)
    variances = plan.noise_variances(_contributions(plan, counts))
    contrast = plan.task.contrast(slice_ or plan.task.slices[0])
    again = mechanism(plan, counts, variances, contrast, shrink=shrink)
    return again.expected(errors_of(plan, again.draw(rng, 1.0), world.truth))


def _located(
    plan: EvaluationPlan, two: TwoRound, world: World, groups: int, rng: np.random.Generator
) -> EvaluationPlan:
    """The plan of the second round; the first counts all groups, each by every score."""
    rows = _reported(plan, world.on(two.coarse), rng).sum(axis=0) * groups
    counts, starts = rows * plan.task.rows_sent, ()
    if plan.is_noisy:
        (variance,) = plan.noise_variances(_contributions(plan, rows))
        counts = counts + rng.normal(
            scale=np.sqrt(variance * plan.task.rows_sent), size=two.coarse.bins
        )
    elif plan.min_cell:
        starts = tuple(kept_edges(counts[None].astype(np.int64), plan.min_cell)[:-1].tolist())
        counts = np.add.reduceat(counts, starts)
    whole = tuple(np.rint(counts).astype(np.int64).tolist())
    return plan.located(Found(two, whole, 1, starts))


def _reported(plan: EvaluationPlan, counts: Floats, rng: np.random.Generator) -> Floats:
    """Of local reports those of the round that is run."""
    if not plan.privacy.sends_reports:
        return counts
    return rng.binomial(counts.astype(np.int64), plan.chance_to_report).astype(np.float64)


def _contributions(plan: EvaluationPlan, counts: Floats) -> int:
    return max(int(counts.sum()), 1) if plan.cohort is None else plan.cohort.min_survivors


DEFAULT_EXAMPLES: Final = 30_000
DEFAULT_POSITIVE_RATE: Final = 0.2
MIN_CELL: Final = 10
EXACT_BINS: Final = 64  # most of an exact sum, which shows all of them to whoever takes it
_FEWEST_EXACT_BINS: Final = 8
_CELLS_PER_BIN: Final = 3  # smallest cells that a bin is to hold of the rarer class

_FINEST: Final = (16, 8)
_TREES: Final = (*((bins,) for bins in (8, 12, 16, 24, 32, 48, 64)), *((8, 8), _FINEST))
_FINER_TREES: Final = ((16, 16), (32, 16))  # where the finest of those is best
# Share of the bins for scores farther out than plausible ones: of one level, of two, where there
# are more bins anyway.
_FAR: Final = (0.1, 0.03)
_UNIFORM_TREES: Final = ((16,), (32,), (64,), (128,), (16, 16))  # where only the axis is known
_UNIFORM_TOO: Final = ((64,), (8, 8), (16, 8))
# Error that nobody minds, in standard deviations of a share among the rarer class.
_NEGLIGIBLE: Final = 0.02
_FIRST_BRANCHINGS: Final = (8, 16, 32)  # of trees over an axis that is given
_FEWEST_BRANCHES: Final = 4
_PROMISING: Final = 4

USUAL: Final = 0.5  # the threshold of whoever names none: an edge wherever scores are probabilities

MakesAxis = Callable[[int], Axis]
Thresholds = float | Sequence[float]


def propose(
    *,
    privacy: AnyPrivacyModel,
    clients: int,
    examples: int | None = None,
    positive_rate: float | None = None,
    cohort: Cohort | None = None,
    positive: Label | None = None,
    score_sums: bool = False,
    min_cell: int | None = None,
    axis: Axis | MakesAxis | None = None,
    at: Thresholds | None = None,
    task: AnyTask | None = None,
    delta: float | None = None,
    scores: Scores | None = None,
) -> EvaluationPlan:
    """A resolved plan for what is publicly known, with the errors to expect.

    Under differential privacy the axis and tree with the least error. An exact sum protects nobody
    from whoever takes it but by being coarse: for secure aggregation the axis has 8 to 64 bins of
    equal width on [0, 1], as few as leave 30 examples of the rarer class to a bin on average.
    Merging small cells is then rare where scores spread. :func:`fedgauge.evaluate` without a plan,
    which has all data at hand, takes 4,096 bins.

    Parameters
    ----------
    privacy
        The privacy model.
    clients
        How many clients will take part.
    examples, positive_rate
        About how many examples there are, and the share of positives: public knowledge or guesses,
        never read from the data. By default 30,000 and 0.2; of several classes the share of one, by
        default the same of each.
    cohort
        Who must take part; by default all clients, one of whom may collude.
    positive
        The label of the positive class, where labels are not bool or 0/1.
    score_sums
        Whether the sums of scores within bins are sent, too, for a part of the budget.
    min_cell
        Fewest examples of a class that a bin of the result holds, besides none; by default 10
        without noise, where fewer would show. 0 merges nothing.
    axis
        Where scores are no probabilities: their axis, or a function that makes one of so many bins,
        whose number is then chosen, such as ``lambda bins: Axis.uniform(bins, -8, 8,
        outside="clip")``. Errors are predicted as if it were [0, 1].
    at
        Thresholds that matter: they become bin edges, as 0.5 does, unless `axis` says where edges
        are.
    task
        What is told apart, where it is more than two classes by one score: groups, models and
        classes share the examples or the budget.
    delta
        The probability that may escape epsilon, if any may: Skellam noise is then proposed where it
        is less than Polya's, as for about ten classes.
    scores
        What scores are, which is public, too: ``"probabilities"``, the default; ``"margins"``,
        around 0 and about as large as log-odds; or ``"unknown"``, of any scale. For the latter two
        the plan has two rounds (:class:`TwoRound`) where these have less error than one.

    Returns
    -------
    EvaluationPlan
        Its ``predicted`` holds the Area Errors and the AUC error to expect: of one class over all
        rows, and of one group of each kind. A result that noise hides counts as an error of 0.5;
        ``withheld`` is their share. ``span`` holds the least and largest errors over plausible
        scores. Where `scores` are said, ``instead`` has the errors of one round in place of two, or
        the reverse.
    """
    if task is not None and positive is not None:
        raise PlanError("a task already says which label is positive. Name it there.")
    task = BinaryTask(positive) if task is None else task
    n, rate = check_hints(examples, positive_rate, task)
    if not isinstance(privacy, AnyPrivacyModel):
        raise PlanError(f"privacy must be such as DistributedDP(1.0), got {privacy!r}.")
    cohort = (cohort or Cohort(min_survivors=clients)) if privacy.needs_cohort else None
    if cohort is not None and cohort.min_survivors > clients:
        raise PlanError(
            f"min_survivors must be at most clients: {cohort.min_survivors:,} of {clients:,} never "
            "take part."
        )
    check_scores(scores)
    if min_cell and privacy.adds_noise:
        raise PlanError(NO_SMALL_CELLS)
    least = (0 if privacy.adds_noise else MIN_CELL) if min_cell is None else min_cell
    known = _Known(privacy, cohort, task, n, rate, least)
    if scores in ("margins", "unknown"):
        if axis is not None or at is not None or score_sums:
            raise PlanError(
                "where the scale of scores is not known bins are found: leave out axis, at and "
                "score_sums. Or leave out scores."
            )
        return _of_scale(scores, known)
    edges = () if at is None else check_thresholds(at, axis)
    is_given = axis is not None
    if privacy.adds_noise:
        plan = _least_error(known, axis, edges, delta, score_sums=score_sums)
    else:
        if not isinstance(axis, Axis):
            axis = _probabilities(known.bins, edges) if axis is None else axis(known.bins)
        plan = EvaluationPlan.under(
            privacy, axis, cohort=cohort, task=task, score_sums=score_sums, min_cell=least
        )
        plan = plan.with_prediction(predict(plan, examples=n, positive_rate=rate))
    return plan if scores is None or is_given else _beside_two_rounds(plan, known)


class _Known(NamedTuple):
    """What is known, and asked for, before anything is chosen."""

    privacy: AnyPrivacyModel
    cohort: Cohort | None
    task: AnyTask
    examples: int
    positive_rate: float
    min_cell: int

    @property
    def bins(self) -> int:
        """Of an exact sum."""
        rarer = self.examples * min(self.positive_rate, 1 - self.positive_rate)
        rarer /= max(_cells(self.task).values(), default=1)
        # A power of two that leaves a bin enough examples of the rarer class, on average.
        filled = max(rarer / (_CELLS_PER_BIN * MIN_CELL), 1.0)
        return min(max(1 << int(math.log2(filled)), _FEWEST_EXACT_BINS), EXACT_BINS)

    def designs(self, scores: Scores) -> tuple[list[EvaluationPlan], list[EvaluationPlan]]:
        """Plans of two rounds, and of one, to choose from."""
        return designs(scores, self.privacy, self.cohort, self.task, self.bins, self.min_cell)

    def best(
        self, plans: Sequence[EvaluationPlan], scores: Scores
    ) -> tuple[EvaluationPlan, Prediction]:
        """Of these the one with the least error, and its errors."""
        plan = best(plans, scores, self.examples, self.positive_rate)
        return plan, expected(plan, scores, self.examples, self.positive_rate)


def _least_error(
    known: _Known,
    axis: Axis | MakesAxis | None,
    at: tuple[float, ...],
    delta: float | None,
    *,
    score_sums: bool,
) -> EvaluationPlan:
    """Under noise: the axis and tree with the least error."""
    privacy, n, rate = known.privacy, known.examples, known.positive_rate
    usual = min(_DELTA, 0.1 / n)  # well below the share of one example
    less = less_noise(privacy, known.task, delta or usual)
    if delta is not None and less is not None:
        privacy, less = less, None

    def plans(designs: list[tuple[Axis, tuple[int, ...]]]) -> list[EvaluationPlan]:
        return [
            EvaluationPlan.under(
                privacy,
                axis,
                cohort=known.cohort,
                task=known.task,
                tree=tree,
                score_sums=score_sums,
            )
            for axis, tree in designs
        ]

    candidates = plans(_designs(axis, rate, at, known.task))
    promising = _by_regret(candidates, n, rate, draws=_FEW_DRAWS, shrink=False)[:_PROMISING]
    best = _by_regret(promising, n, rate, draws=_DRAWS, shrink=True)[0]
    if axis is None and best.tree == _FINEST:  # of so much data that shrinking does little
        finer = [best, *plans(_half_spread(_FINER_TREES, rate, at))]
        best = _by_regret(finer, n, rate, draws=_DRAWS, shrink=False)[0]
    predicted = predict(best, examples=n, positive_rate=rate)
    if less is not None:
        advice = (
            f"less noise, for a delta of {less.delta:.0e}: DistributedDP({less.epsilon:g}, "
            f'noise="skellam", delta={less.delta:.0e})'
        )
        predicted = predicted.but(advice=advice)
    return best.with_prediction(predicted)


def _of_scale(scores: Scores, known: _Known) -> EvaluationPlan:
    """Where scores are no probabilities: two rounds, or one if that has less error."""
    two, one = (known.best(plans, scores) for plans in known.designs(scores))
    (plan, errors), (other, others) = sorted((two, one), key=lambda each: each[1].roc_area_error)
    groups = []
    for name, cells in _cells(known.task).items():
        of_group = next(each for each in known.task.slices if each.group is not None)
        told = expected(plan, scores, known.examples, known.positive_rate, cells, of_group)
        groups.append((name, told))
    instead = _instead(other, others)
    return plan.with_prediction(errors.but(groups=tuple(groups), instead=instead))


def _beside_two_rounds(plan: EvaluationPlan, known: _Known) -> EvaluationPlan:
    """The plan for probabilities, remembering what two rounds would give."""
    if (
        plan.predicted is None
        or plan.tables
        or plan.privacy != known.privacy
        or plan.final.sum_steps
    ):
        return plan
    two, _ = known.designs("probabilities")
    other, errors = known.best(two, "probabilities")
    return plan.with_prediction(plan.predicted.but(instead=_instead(other, errors)))


def _instead(plan: EvaluationPlan, errors: Prediction) -> Instead:
    two = plan.task.two
    return Instead(2, two.bins, errors) if two is not None else Instead(1, plan.axis.bins, errors)


def _cells(task: AnyTask) -> dict[str, int]:
    """How many groups there are in each way to group rows, by what it is called."""
    layout = task.layout
    if not layout.groups:
        return {}
    return {" and ".join(grouping): layout.cells(grouping) for grouping in layout.groupings}


def _designs(
    axis: Axis | MakesAxis | None, positive_rate: float, at: tuple[float, ...], task: AnyTask
) -> list[tuple[Axis, tuple[int, ...]]]:
    """Axes and trees to choose from."""
    if axis is None and task.pairs:
        # As fine as scores of two models together can be under noise: errors of each alone, by
        # which designs are chosen, say nothing about their difference.
        return [(with_edges(reference_axis(NOISY_RANGES, positive_rate), at), (NOISY_RANGES,))]
    if isinstance(axis, Axis):
        bins = axis.bins
        split = [(first, bins // first) for first in _FIRST_BRANCHINGS if bins % first == 0]
        return [(axis, (bins,)), *((axis, tree) for tree in split if tree[1] >= _FEWEST_BRANCHES)]
    if axis is not None:
        return [(axis(math.prod(tree)), tree) for tree in _UNIFORM_TREES]
    even = [(_probabilities(math.prod(tree), at), tree) for tree in _UNIFORM_TOO]
    return _half_spread(_TREES, positive_rate, at) + even


def _half_spread(
    trees: Sequence[tuple[int, ...]], positive_rate: float, at: tuple[float, ...]
) -> list[tuple[Axis, tuple[int, ...]]]:
    """Bins of which half are where plausible scores are; the rest even over [0, 1] or log-odds."""
    designs = []
    for tree in trees:
        far = _FAR[len(tree) - 1]
        axis = reference_axis(math.prod(tree), positive_rate, even=0.5 - far, odds=far)
        designs.append((with_edges(axis, at), tree))
    return designs


def _probabilities(bins: int, at: tuple[float, ...]) -> Axis:
    return with_edges(Axis.uniform(bins, outside="clip"), at)


def with_edges(axis: Axis, at: Sequence[float] = ()) -> Axis:
    """An axis of probabilities with inner edges moved to thresholds: those named, and 0.5."""
    wanted = [*dict.fromkeys((*at, USUAL))]
    missing = [each for each in wanted if each not in axis.edges]
    edges = axis.edges.tolist()
    for threshold in missing:
        free = [edge for edge in edges[1:-1] if edge not in wanted]
        if free:
            edges.remove(min(free, key=lambda edge: abs(edge - threshold)))
            edges = sorted([*edges, threshold])
        elif threshold in at:
            raise PlanError(f"{axis.bins} bins have no edges for so many thresholds. Name fewer.")
    return Axis.from_edges(edges, axis.outside) if missing else axis


def _by_regret(
    plans: Sequence[EvaluationPlan],
    examples: int,
    positive_rate: float,
    *,
    draws: int,
    shrink: bool,
) -> list[EvaluationPlan]:
    """The plans by how much worse each is than the best one in the same world, least first.

    The mean over worlds, of ROC and PR alike: errors of worlds that are hard for all say nothing.
    """
    found = np.array(
        [simulate(plan, examples, positive_rate, draws, shrink=shrink) for plan in plans]
    )
    rarer = examples * min(positive_rate, 1 - positive_rate)
    errors = found[:, :, :2] + _NEGLIGIBLE / math.sqrt(max(rarer, 1.0))
    regrets = errors / errors.min(axis=0)
    order = np.argsort(regrets.mean(axis=(1, 2)), kind="stable")
    return [plans[place] for place in order]


def check_hints(
    examples: int | None, positive_rate: float | None, task: AnyTask | None = None
) -> tuple[int, float]:
    """The hints, or what stands in for them: of several classes all have the same share."""
    n = DEFAULT_EXAMPLES if examples is None else examples
    classes = () if task is None else task.layout.classes
    usual = 1.0 / len(classes) if classes else DEFAULT_POSITIVE_RATE
    rate = usual if positive_rate is None else positive_rate
    if not _is_real(n) or not 2 <= n < 2**62:
        raise PlanError(f"examples must be at least 2, got {examples!r}.")
    if not _is_real(rate) or not 0 < rate < 1:
        raise PlanError(f"positive_rate must lie between 0 and 1, got {positive_rate!r}.")
    return int(n), float(rate)


def check_thresholds(at: Thresholds, axis: Axis | MakesAxis | None) -> tuple[float, ...]:
    """The thresholds; one that divides no scores is refused."""
    axis = like(axis)
    low, high = axis.low, axis.high
    named = tuple(at) if isinstance(at, Sequence) else (at,)
    for each in named:
        is_last_value = axis.kind == "values" and each == high
        if not _is_real(each) or not (low < each < high or is_last_value):
            raise PlanError(
                f"a threshold lies between the ends of the axis, {low:g} and {high:g}, got "
                f"{each!r}."
            )
    return named


def like(axis: Axis | MakesAxis | None) -> Axis:
    """An axis with the ends of those to choose from."""
    if isinstance(axis, Axis):
        return axis
    return _probabilities(_FEWEST_EXACT_BINS, ()) if axis is None else axis(_FEWEST_EXACT_BINS)


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def predict(plan: EvaluationPlan, *, examples: int, positive_rate: float) -> Prediction:
    """Errors to expect of a plan: the geometric mean over plausible scores, and their span."""
    groups = []
    for name, cells in _cells(plan.task).items():
        few = max(examples // cells, 2)  # as if all groups were as large
        # Any group will do: all have as many channels, and so as much noise.
        of_group = next(each for each in plan.task.slices if each.group is not None)
        found = simulate(plan, few, positive_rate, _DRAWS, of_group)
        groups.append((name, Prediction.of_worlds(found)))
    told = Prediction.of_worlds(simulate(plan, examples, positive_rate, _DRAWS))
    return told.but(groups=tuple(groups))
