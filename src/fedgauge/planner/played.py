"""Evaluations played through: what plans release of plausible data, and how wrong that is."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from fedgauge.binning.axis import Axis
from fedgauge.errors import ResultWithheld, UndefinedMetric
from fedgauge.estimation.cells import kept_edges, merged_axis
from fedgauge.estimation.distribution import Aligned, estimate
from fedgauge.estimation.drawn import drawn_blocks
from fedgauge.estimation.pooled import SIGNAL, PooledCounts
from fedgauge.estimation.repair import consistent, monotone
from fedgauge.estimation.shrinkage import shrunk
from fedgauge.measures import curves
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.slices import Contrast, Slice
from fedgauge.planner.worlds import AT, Truth, on_axis, worlds
from fedgauge.typing import Floats

_PARTS: Final = 768  # of which the noise of every bin is a sum
_MOST_SHRUNK: Final = 128  # bins, as far as that is quick
_WITHHELD: Final = 0.5  # error of a result that says nothing: as wrong as chance
_POINTS: Final = 9  # on a piece, enough for a mean over the curve


def play(
    plan: EvaluationPlan,
    examples: int,
    positive_rate: float,
    draws: int,
    slice_: Slice | None = None,
    *,
    shrink: bool = True,
) -> Floats:
    """Mean errors of a plan in each world, by playing the evaluation of a slice through.

    At last the share of results that are withheld; in the means each is an error of 0.5. Without
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
    """What draws the counts that a result is read from, and how often there is none.

    The noise is taken so many times: 1 or -1.
    """

    draw: Callable[[np.random.Generator, float], Floats]
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

    shrink = shrink and exact.is_shrunk and plan.axis.bins <= _MOST_SHRUNK

    def noise(rng: np.random.Generator) -> Floats:
        if exact.drawn:
            return block.moved(1, plan.tree, variances, rng, sampling=False)[0, :2]
        return _drawn_alike(counts.shape, plan.tree, variances, rng, exact.terms)

    def likely(rng: np.random.Generator, times: float) -> Floats:
        noisy = counts + times * noise(rng)
        if not shrink or noisy.sum(axis=1).min() <= 0:
            return monotone(noisy)
        return shrunk(plan.axis, noisy, exact.noise_matrix, quick=True)

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

    A design is compared with others: what noise does to all of them alike does not matter.
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
    channels = np.tile(counts.sum(axis=0) / rows, (plan.channels, 1))
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
