"""Scores that are no probabilities: two rounds played through, and one on bins for every scale."""

import copy
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal, get_args

import numpy as np

from fedgauge.binning.axis import Axis
from fedgauge.binning.search import TwoRound
from fedgauge.errors import PlanError
from fedgauge.estimation.cells import kept_edges
from fedgauge.plan import EvaluationPlan, Slice
from fedgauge.plan.prediction import Prediction
from fedgauge.plan.searching import Found
from fedgauge.plan.task import AnyTask, SearchTask
from fedgauge.planner.played import errors_of, mechanism
from fedgauge.planner.worlds import SHAPES, Scale, World, drawn_worlds, worlds
from fedgauge.privacy import AnyPrivacyModel, Cohort
from fedgauge.typing import Floats

Scores = Literal["probabilities", "margins", "unknown"]

_COARSE: Final = 512
_MARGIN: Final = 1.0  # margins hardly differ by less than a hundredth of this
_NARROWEST: Final = 1 / 128  # of an exact sum: what sites allow unless told otherwise
_FOUND: Final = (12, 16, 24, 32, 48, 64, 96)  # bins of equal depth to choose from
_FIXED: Final = (32, 64, 128)  # bins of one round
_FEW_DRAWS: Final = 2
_DRAWS: Final = 4
_PROMISING: Final = 2


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
        played = _play(plan, *hints, draws, groups=1, slice_=None, shrink=shrink)
        return float(np.log(played[:, :2]).mean())

    if len(plans) == 1:
        return plans[0]
    few = sorted(plans, key=lambda plan: error(plan, _FEW_DRAWS, shrink=False))[:_PROMISING]
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
    played = _play(plan, *hints, _DRAWS, groups=groups, slice_=slice_, shrink=True)
    return Prediction.of_worlds(played)


@lru_cache(maxsize=256)
def _play(
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
    """Mean errors of a plan in each world, both rounds played through where there are two."""
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
    if isinstance(plan.task, SearchTask):
        plan = _located(plan, plan.task.two, world, groups, rng)
    counts = _reported(plan, world.on(plan.axis), rng)
    variances = plan.noise_variances(_contributions(plan, counts))
    contrast = plan.task.contrast(slice_ or plan.task.slices[0])
    again = mechanism(plan, counts, variances, contrast, shrink=shrink)
    return again.expected(errors_of(plan, again.draw(rng, 1.0), world.truth))


def _located(
    plan: EvaluationPlan,
    two: TwoRound,
    world: World,
    groups: int,
    rng: np.random.Generator,
) -> EvaluationPlan:
    """The plan of the second round; the first counts all groups, each by every score."""
    rows = _reported(plan, world.on(two.coarse), rng).sum(axis=0) * groups
    counts, starts = rows * plan.channels, ()
    if plan.is_noisy:
        (variance,) = plan.noise_variances(_contributions(plan, rows))
        counts = counts + rng.normal(scale=np.sqrt(variance * plan.channels), size=two.coarse.bins)
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
