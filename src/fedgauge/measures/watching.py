"""A series of looks at a model: what is watched in each, how far it moved, and what is an alarm."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.axis import Axis
from fedgauge.errors import InputError
from fedgauge.estimation.pooled import PooledCounts
from fedgauge.estimation.repair import level_weights
from fedgauge.measures.drift import (
    Judged,
    Moved,
    Noise,
    Term,
    area,
    judge,
    least_change,
    moved,
    ratio,
)
from fedgauge.measures.outcomes import split
from fedgauge.typing import Floats, Indices

RATE: Final = 0.05
DISTRIBUTION: Final = "score_distribution"
_EDGES: Final = 3  # of an axis that tells scores apart: the ends, and one between
GROUPS: Final = 10  # of scores, as many in each at the first look
Terms = tuple[Term, ...]


class Watched(NamedTuple):
    """Something that is watched, at a threshold or over all.

    `of` gives its terms from the pool of all looks so far, the axis and what scores were at the
    first look: one set of them, or several of which any may move.
    """

    name: str
    of: Callable[[Floats, Axis, Floats], list[Terms]]
    at: float | None = None


@dataclass(frozen=True)
class Looks:
    """Counts of looks, by look, class and bin of one axis, and the noise in them."""

    axis: Axis
    counts: Floats
    noise: Noise | None

    @classmethod
    def of(cls, pooled: Sequence[PooledCounts]) -> "Looks":
        """Looks on the bins that all of them have: where bins were merged, those in common."""
        axes = [each.axis for each in pooled]
        axis = _common(axes)
        places = [_places(each, axis) for each in axes]
        counts = np.stack(
            [
                _gathered(each.unbiased, at, axis.bins)
                for each, at in zip(pooled, places, strict=True)
            ]
        )

        alike = [_noise_of(each, at) for each, at in zip(pooled, places, strict=True)]
        kinds = list(dict.fromkeys(alike))
        of_each = [kinds.index(each) for each in alike]
        firsts = [alike.index(kind) for kind in kinds]

        def covariance(left: Floats, right: Floats) -> Floats:
            told = [pooled[k].covariance(left[:, places[k]], right[:, places[k]]) for k in firsts]
            return np.array(told)[of_each]

        def loudest(weights: Floats, look: int) -> Floats:
            return _loudest(pooled[look], weights[:, places[look]])

        noisy = any(each.noisy for each in pooled)
        return cls(axis, counts, Noise(covariance, loudest) if noisy else None)

    def first(self, number: int) -> "Looks":
        """The first so many of them."""
        return Looks(self.axis, self.counts[:number], self.noise)


def _noise_of(pooled: PooledCounts, places: Indices) -> Any:
    """What the noise in counts hangs on: the same for looks that were summed by one plan."""
    if not _is_summed(pooled):
        return id(pooled)
    return pooled.tree, pooled.variances, pooled.terms, places.tobytes()


def _loudest(pooled: PooledCounts, weights: Floats) -> Floats:
    """The share of the noise of a weighted sum that the loudest node of the tree has.

    Local reports are many, and none is loud.
    """
    if pooled.drawn:
        return np.zeros(())
    if not pooled.noisy or not _is_summed(pooled):
        return np.ones(())
    return loudest_node(pooled.tree, pooled.variances, weights)


def loudest_node(tree: Sequence[int], variances: Sequence[float], weights: Floats) -> Floats:
    """The largest share of the noise variance of a weighted sum that is one node's.

    Examples
    --------
    >>> import numpy as np
    >>> float(loudest_node((4,), (2.0,), np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 1.0]])))
    0.25
    """
    by_level = zip(level_weights(tree, variances, weights), variances, strict=True)
    heard = [variance * each**2 for each, variance in by_level]
    total = np.sum([each.sum(axis=(-2, -1)) for each in heard], axis=0)
    most = np.max([each.max(axis=(-2, -1)) for each in heard], axis=0)
    told: Floats = np.where(total > 0, most / np.where(total > 0, total, 1.0), 1.0)
    return told


def _is_summed(pooled: PooledCounts) -> bool:
    """Whether all noise is that of the nodes of a tree: not of reports, labels alone, or a map."""
    return type(pooled) is PooledCounts and not pooled.drawn


class Run(NamedTuple):
    """One thing that is watched, over all looks.

    Attributes
    ----------
    moved
        How far each look is from those before it, by look and by what may move.
    judged
        How far that is on the way to an alarm.
    rate
        The part of the rate that each of what may move has.
    """

    moved: Moved
    judged: Judged
    rate: float

    @property
    def alarms(self) -> dict[str, NDArray[np.bool_]]:
        """Whether a look raises an alarm, by test: any of what may move is enough."""
        return {
            test: np.asarray((told >= 1.0).any(axis=1))
            for test, told in self.judged._asdict().items()
        }

    def nearest(self, look: int) -> int:
        """Which of what may move is nearest to an alarm at a look."""
        return int(np.argmax(np.max([each[look] for each in self.judged], axis=0)))

    @property
    def least(self) -> Floats:
        """The least lasting change that would be found, by look: of what moves least visibly."""
        told: Floats = least_change(self.moved, self.rate).max(axis=1)
        return told


def follow(
    first: Callable[[int], Looks], number: int, watched: Sequence[Watched], rate: float = RATE
) -> dict[Watched, Run]:
    """How each look stands to those before it, in all that is watched.

    Parameters
    ----------
    first
        The first so many looks, on bins that all of these have.
    number
        How many there are.
    watched
        What is watched. Each has the same part of the rate.
    rate
        The chance that any alarm is ever raised while nothing changes, at most.
    """
    starts = first_groups(first(1))
    found: dict[Watched, list[list[Moved]]] = {each: [] for each in watched}
    for look in range(1, number + 1):
        looks = first(look)
        pool = looks.counts.sum(axis=-3)
        for each, told in found.items():
            contrasts = each.of(pool, looks.axis, starts)
            told.append([moved(looks.counts, terms, looks.noise) for terms in contrasts])
    return {each: _run(told, rate / len(watched)) for each, told in found.items()}


def _run(told: list[list[Moved]], rate: float) -> Run:
    fields = range(len(Moved._fields))
    every = Moved(*(np.array([[m[k] for m in look] for look in told]) for k in fields))
    rate /= every.z.shape[1]
    return Run(every, judge(every.z, rate), rate)


def watch(axis: Axis, at: Sequence[float]) -> tuple[Watched, ...]:
    """What is watched of scores on an axis: without losses where they are no probabilities."""
    watched = [Watched("roc_auc", _area), Watched("prevalence", _prevalence)]
    if axis.low >= 0.0 and axis.high <= np.nextafter(1.0, 2.0):
        watched.append(Watched("calibration_in_the_large", _in_the_large))
        watched.append(Watched("brier_score", _brier))
    watched.append(Watched(DISTRIBUTION, _distribution))
    for threshold in at:
        for name, rows in _AT.items():
            watched.append(Watched(name, _at(threshold, *rows), threshold))
    return tuple(watched)


class Shift(NamedTuple):
    """How far the scores of a look are from those of the looks before it.

    Attributes
    ----------
    psi
        Population stability index, over as many groups of scores as the first look had tenths.
    psi_expected
        What it is on average while nothing changes: sampling and noise push it up.
    ks
        Largest difference of the shares of scores below a bin edge.
    """

    psi: float
    psi_expected: float
    ks: float


def shift(looks: Looks, starts: Floats) -> Shift | None:
    """How far the last look's scores are from those before; None where noise hides them."""
    rows = looks.counts.sum(axis=1)
    totals = rows.sum(axis=1)
    if len(totals) < 2 or totals[-1] <= 0 or totals[:-1].sum() <= 0:
        return None
    before = rows[:-1].sum(axis=0)
    groups = np.searchsorted(starts, looks.axis.edges[:-1], side="right")
    indicators = (groups == np.unique(groups)[:, np.newaxis]).astype(np.float64)
    now, then = indicators @ rows[-1] / totals[-1], indicators @ before / totals[:-1].sum()
    pooled = indicators @ rows.sum(axis=0) / totals.sum()
    held = pooled > 0
    # Half a row where none is, or noise says fewer, so that the logarithm is one.
    one, other = np.maximum(now, 0.5 / totals[-1]), np.maximum(then, 0.5 / totals[:-1].sum())
    psi = float(np.sum(((one - other) * np.log(one / other))[held]))
    variances = pooled * (1.0 - pooled) * (1.0 / totals[-1] + 1.0 / totals[:-1].sum())
    if looks.noise is not None:
        over = np.append(np.full(len(totals) - 1, totals[:-1].sum()), totals[-1])
        for place, (group, share) in enumerate(zip(indicators, pooled, strict=True)):
            weights = np.broadcast_to(group - share, looks.counts.shape[1:])
            of_looks = looks.noise.covariance(weights, weights)[: len(over)]
            variances[place] += (of_looks / over**2).sum()
    expected = float(np.sum((variances / np.where(held, pooled, 1.0))[held]))
    ks = np.abs(np.cumsum(rows[-1]) / totals[-1] - np.cumsum(before) / totals[:-1].sum()).max()
    return Shift(psi, expected, float(ks))


def first_groups(looks: Looks) -> Floats:
    """Where the tenths of the first look's scores end, by bin edges."""
    rows = np.maximum(looks.counts[..., 0, :, :].sum(axis=-2), 0.0)
    rows = rows.reshape(-1, rows.shape[-1]).mean(axis=0)  # of many series at once, the same
    shares = np.cumsum(rows)[:-1] / max(float(rows.sum()), 1.0)
    wanted = np.arange(1, GROUPS) / GROUPS
    near = np.abs(shares[:, np.newaxis] - wanted).argmin(axis=0) if len(shares) else []
    return looks.axis.edges[1:-1][np.unique(np.asarray(near, dtype=np.intp))]


def _area(pool: Floats, axis: Axis, starts: Floats) -> list[Terms]:
    del axis, starts
    return [area(pool)]


def _prevalence(pool: Floats, axis: Axis, starts: Floats) -> list[Terms]:
    del axis, starts
    return [ratio(pool, _of_class(pool, 0.0, 1.0), np.ones(pool.shape[-2:]))]


def _in_the_large(pool: Floats, axis: Axis, starts: Floats) -> list[Terms]:
    del starts
    score = _scores(axis)
    return [ratio(pool, np.stack([-score, 1.0 - score]), np.ones(pool.shape[-2:]))]


def _brier(pool: Floats, axis: Axis, starts: Floats) -> list[Terms]:
    del starts
    score = _scores(axis)
    return [ratio(pool, np.stack([score**2, (1.0 - score) ** 2]), np.ones(pool.shape[-2:]))]


def _distribution(pool: Floats, axis: Axis, starts: Floats) -> list[Terms]:
    """The shares of scores from each of the first look's tenths up, at edges that are there."""
    edges = axis.edges[1:-1]
    if not len(edges) or not len(starts):
        return [ratio(pool, np.ones(pool.shape[-2:]), np.ones(pool.shape[-2:]))] * GROUPS
    near = np.abs(edges[:, np.newaxis] - starts).argmin(axis=0) + 1
    from_each = (np.arange(axis.bins) >= near[:, np.newaxis]).astype(np.float64)
    ones = np.ones(pool.shape[-2:])
    return [ratio(pool, np.broadcast_to(flags, pool.shape[-2:]), ones) for flags in from_each]


_AT: Final = {  # rows that are counted, and those among which, of negatives and positives
    "recall": ((0.0, 1.0), (0.0, 1.0), False),
    "fpr": ((1.0, 0.0), (1.0, 0.0), False),
    "precision": ((0.0, 1.0), (1.0, 1.0), True),
}


def _at(
    threshold: float, counted: tuple[float, float], among: tuple[float, float], flagged: bool
) -> Callable[[Floats, Axis, Floats], list[Terms]]:
    def of(pool: Floats, axis: Axis, starts: Floats) -> list[Terms]:
        del starts
        first, is_open, share = split(axis, threshold)
        flags = (np.arange(axis.bins) >= first).astype(np.float64)
        if is_open:
            flags[first - 1] = share
        below = _of_class(pool, *among)
        return [ratio(pool, _of_class(pool, *counted) * flags, below * flags if flagged else below)]

    return of


def _of_class(pool: Floats, negatives: float, positives: float) -> Floats:
    weights = np.empty(pool.shape[-2:])
    weights[0], weights[1] = negatives, positives
    return weights


def _scores(axis: Axis) -> Floats:
    """The middle of each bin, or its value."""
    scores: Floats = axis.edges[:-1]
    if axis.kind != "values":
        scores = (axis.edges[:-1] + axis.edges[1:]) / 2.0
    return np.clip(scores, 0.0, 1.0)


def _common(axes: Sequence[Axis]) -> Axis:
    """The axis of all, or one with the edges that all have."""
    first, *others = axes
    if all(each == first for each in others):
        return first
    if any((each.low, each.high) != (first.low, first.high) for each in others):
        raise InputError(
            "the axes of these results reach from and to different scores, so they are no series. "
            "Evaluate all looks on one axis: by the same plan."
        )
    edges = first.edges
    for each in others:
        edges = np.intersect1d(edges, each.edges)
    if len(edges) < _EDGES:
        raise InputError(
            "the axes of these results have no bin edge in common, so they are no series. Evaluate "
            "all looks on one axis: by the same plan."
        )
    return Axis.from_edges(edges, first.outside)


def _places(axis: Axis, common: Axis) -> Indices:
    """The bin of the common axis that each bin is in."""
    if axis == common:
        return np.arange(axis.bins)
    return np.searchsorted(common.edges, axis.edges[:-1], side="right") - 1


def _gathered(counts: Floats, places: Indices, bins: int) -> Floats:
    return np.stack([np.bincount(places, row, minlength=bins) for row in counts])
