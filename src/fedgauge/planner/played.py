"""Evaluations played through: what plans release of plausible data, and how wrong that is."""

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from fedgauge.binning.axis import Axis
from fedgauge.errors import ResultWithheld, UndefinedMetric
from fedgauge.estimation.cells import kept_edges, merged_axis
from fedgauge.estimation.distribution import Aligned, estimate
from fedgauge.estimation.drawn import drawn_blocks, redraw
from fedgauge.estimation.repair import monotone
from fedgauge.measures import curves
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.slices import Contrast, Slice
from fedgauge.planner.worlds import AT, Truth, World, worlds
from fedgauge.typing import Floats

FEW_DRAWS: Final = 6
DRAWS: Final = 24
_POINTS: Final = 9  # on a piece, enough for a mean over the curve


def play(
    plan: EvaluationPlan,
    examples: int,
    positive_rate: float,
    draws: int,
    slice_: Slice | None = None,
) -> Floats:
    """Mean errors of a plan for each shape, by playing the evaluation of a slice through."""
    contributions = examples if plan.cohort is None else plan.cohort.min_survivors
    variances = plan.noise_variances(contributions)
    contrast = plan.task.contrast(slice_ or plan.task.slices[0])
    played = _played(plan, variances, contrast, examples, positive_rate, draws if variances else 1)
    return np.array([np.mean(runs.errors, axis=0) for runs in played])


class _Runs(NamedTuple):
    """Errors of one plan in one world by draw, and where the next draws come from."""

    errors: Floats
    rng: np.random.Generator


@lru_cache(maxsize=1024)
def _played(
    plan: EvaluationPlan,
    variances: tuple[float, ...],
    contrast: Contrast,
    examples: int,
    positive_rate: float,
    draws: int,
) -> tuple[_Runs, ...]:
    """Runs in every world. Many draws go on from the few that a plan was first tried with."""
    if draws > FEW_DRAWS:
        begun = _played(plan, variances, contrast, examples, positive_rate, FEW_DRAWS)
    else:
        begun = tuple(
            _Runs(np.empty((0, 3)), world.rng)
            for world in worlds(plan.axis, examples, positive_rate)
        )
    return tuple(
        _go_on(plan, world, variances, contrast, runs, draws)
        for world, runs in zip(worlds(plan.axis, examples, positive_rate), begun, strict=True)
    )


def _go_on(
    plan: EvaluationPlan,
    world: World,
    variances: tuple[float, ...],
    contrast: Contrast,
    runs: _Runs,
    draws: int,
) -> _Runs:
    """More runs in a world, until there are so many draws."""
    rng = copy.deepcopy(runs.rng)  # others go on from the same place
    again = mechanism(plan, world.counts, variances, contrast)
    more = [errors_of(plan, again(rng), world.truth) for _ in range(draws - len(runs.errors))]
    return _Runs(np.concatenate([runs.errors, more]), rng)


def mechanism(
    plan: EvaluationPlan, counts: Floats, variances: tuple[float, ...], contrast: Contrast
) -> Callable[[np.random.Generator], Floats]:
    """What draws the counts that a plan would release of a slice with these."""
    if not variances:
        return lambda _: counts
    if plan.final.sends_reports:
        (block,) = drawn_blocks(plan, _every_channel(plan, counts, contrast), contrast)
        return lambda rng: counts + block.moved(1, plan.tree, variances, rng, sampling=False)[0, :2]
    terms = np.array([len(rows) for rows in contrast], dtype=np.float64)[:, np.newaxis]
    return lambda rng: redraw(counts, plan.tree, variances, rng, terms=terms)


def _every_channel(plan: EvaluationPlan, counts: Floats, contrast: Contrast) -> Floats:
    """Counts of all channels, where those of a slice are alike, and other groups like it."""
    rows = len(contrast.negatives) + len(contrast.positives)
    channels = np.tile(counts.sum(axis=0) / rows, (plan.channels, 1))
    for side, own in zip(counts, contrast, strict=True):
        channels[list(own)] = side / len(own)
    return channels


def errors_of(plan: EvaluationPlan, counts: Floats, truth: Truth) -> tuple[float, float, float]:
    """Area Errors of ROC and PR curve, and the error of the AUC."""
    try:
        d = estimate(*shown(plan, counts), Aligned())
    except (UndefinedMetric, ResultWithheld):  # nothing left of a class: as wrong as chance
        return 0.5, 0.5, 0.5
    fpr, tpr = curves.roc_curve(d).path.sample(_POINTS)
    recall, precision = curves.pr_curve(d).path.sample(_POINTS)
    return (
        float(np.abs(np.interp(AT, fpr, tpr) - truth.tpr).mean()),
        float(np.abs(np.interp(AT, recall, precision) - truth.precision).mean()),
        abs(float(np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2)) - truth.auc),
    )


def shown(plan: EvaluationPlan, counts: Floats) -> tuple[Axis, Floats]:
    """What a result shows of the counts released, and on which bins."""
    if not plan.min_cell:
        return plan.axis, monotone(counts)
    kept = kept_edges(counts.astype(np.int64), plan.min_cell)
    return merged_axis(plan.axis, kept), np.add.reduceat(counts, kept[:-1], axis=1)
