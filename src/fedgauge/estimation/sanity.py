"""Sums that no rows have, refused or with a caution; end bins that hold too much of both classes.

A secure sum cannot tell who sent what. But where counts are below zero, or above what all clients
together may have, somebody counted otherwise than by rows. The same holds for sums of local
reports. A label party that answers alone is judged by itself, and named.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.errors import ProtocolError
from fedgauge.estimation.counts import PooledCounts, Released, counts_of
from fedgauge.estimation.repair import node_variances
from fedgauge.histograms.axis import Axis
from fedgauge.histograms.tables import Table, TableSum
from fedgauge.plan import EvaluationPlan, Slice
from fedgauge.plan.rounds import nodes_by_level
from fedgauge.plan.task import listed
from fedgauge.privacy.local import retold
from fedgauge.privacy.oracles import WHOLE

FALSE_ALARM: Final = 1e-6  # chance of a caution where everybody counted rows, over all its counts
_ROUNDING: Final = 1e-12  # of the largest count: least squares are taken in floats
_TRIED: Final = np.linspace(0.0, 1.0, 1001)[1:-1]
_PARTY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+/=-]{0,63}")  # a peer's name, or its key

_IMPOSSIBLE: Final = (
    "counts are further from possible ones than noise explains, except in one of "
    f"{1 / FALSE_ALARM:,.0f} results. A site sent impossible counts, or had more rows than the "
    "plan's largest count. Do not rely on the numbers; ask every site to check what it sent."
)


_REPORTS: Final = (
    "counts are further below zero than the randomness of reports explains, except in one of "
    f"{1 / FALSE_ALARM:,.0f} results. Many reports were not made from rows as the plan says. Do "
    "not rely on the numbers; find out who sent them."
)
_FLIPS: Final = (
    "counts are further from possible ones than flips explain, except in one of "
    f"{1 / FALSE_ALARM:,.0f} results. A party did not count flipped labels in its bins. Do not "
    "rely on the numbers; ask every party to check what it sent."
)


_PARTIES: Final = (
    "{} sent impossible numbers: they are further from those of any labels than noise or flips "
    f"explain, except in one of {1 / FALSE_ALARM:,.0f} results. Do not rely on the numbers; "
    "ask for the file that this plan was answered with, or evaluate without that party."
)


def doubt(parties: Sequence[str]) -> str | None:
    """What to know of label parties that sent what no labels have; None where there are none."""
    return _PARTIES.format(" and ".join(parties)) if parties else None


def are_names(parties: Sequence[str]) -> bool:
    """Whether these name parties, and can be printed."""
    return all(map(_PARTY.fullmatch, parties))


def check_exact(
    plan: EvaluationPlan,
    counts: NDArray[np.int64],
    sums: NDArray[np.int64],
    clients: int,
    tables: Sequence[TableSum] = (),
) -> None:
    """Refuse exact counts, score sums and tables over `clients` clients that no rows have.

    ProtocolError if a count is negative or above what all clients may have, or scores of the same
    rows are not of as many of each group and class, or a score sum is negative or above what the
    rows in its bin can add up to, or a table is not of as many rows of each group, class and range.
    """
    _refuse(bool(counts.min() < 0), "a count of the sum is negative")
    # In Python's integers: a plain sum may be over more clients than words have room for.
    _refuse(
        int(counts.max()) > clients * plan.summed.largest,
        "a count of the sum is above the plan's largest for all its sites together",
    )
    _refuse(
        any(np.any(each) for each, _ in _differences(plan, counts)),
        "scores of the same rows have different totals",
    )
    if plan.final.sum_steps:
        _refuse(bool(sums.min() < 0), "a score sum is negative")
        # Rounded up, and so without a product that could overflow.
        _refuse(
            bool(np.any(-(-sums // plan.final.sum_steps) > counts)),
            "a score sum is above what the examples in its bin add up to",
        )
    for table, cells in tables:
        _refuse(bool(cells.min() < 0), "a cell of a table is negative")
        _refuse(
            int(cells.max()) > clients * plan.summed.largest,
            "a cell of a table is above the plan's largest for all its sites together",
        )
        by_range = table.by_range(cells, counts, plan.task.layout, plan.axis)
        others = [_of_other_rows(plan, counts, table, cells)[0], *by_range]
        _refuse(
            any(np.any(each) for each in others), "a table and the counts come from different rows"
        )


def _of_other_rows(
    plan: EvaluationPlan, counts: NDArray[Any], table: Table, cells: NDArray[Any]
) -> tuple[NDArray[Any], int]:
    """Numbers of rows by a table, less those by the counts: zero without noise.

    By group and class, as far as the table tells them. Also how many channels are added up in each.
    """
    layout = plan.task.layout
    grouping = table.grouping or layout.groupings[0]
    block = next(each for each in layout.blocks if each.grouping == grouping)
    rows = counts[layout.rows(block)].sum(axis=1).reshape(-1, layout.by_block)
    told = table.totals(cells, layout)
    rows = rows if table.grouping else rows.sum(axis=0, keepdims=True)
    rows = rows if table.by_class else rows.sum(axis=1, keepdims=True)
    return told - rows, layout.cells(grouping) * layout.by_block // told.size


def _differences(plan: EvaluationPlan, counts: NDArray[Any]) -> Iterator[tuple[NDArray[Any], int]]:
    """Numbers of the same rows by several of their scores, less each other: zero without noise.

    A row is of one group and of one class by whichever score it is counted. Each difference comes
    with how many channels are added up in it.
    """
    layout, totals = plan.task.layout, counts.sum(axis=1)
    seen: dict[object, tuple[NDArray[Any], int]] = {}
    for block in layout.blocks if layout.per_row > 1 else ():
        cells = layout.cells(block.grouping)
        rows = totals[block.first :][: cells * layout.by_block].reshape(cells, -1)
        label = block.column if layout.labels > 1 else 0
        for told_by, told, channels in (
            ((block.grouping, label), rows, 1),
            (block.grouping, rows.sum(axis=1), layout.by_block),
            (label, rows.sum(axis=0), cells),
        ):
            if told_by in seen:
                before, of_before = seen[told_by]
                yield told - before, channels + of_before
            else:
                seen[told_by] = told, channels


def _refuse(impossible: bool, what: str) -> None:
    if impossible:
        raise ProtocolError(
            f"{what}, which is impossible: a site sent false counts. The sum does not show which "
            "site. No result is shown. Ask every site to check what it sent, or start again "
            "without sites you distrust."
        )


def impossible_caution(plan: EvaluationPlan, released: Released) -> str | None:
    """What is wrong with a noisy sum whose counts no rows have; None where nothing seems to be.

    Where every client counted rows, and had no more of them in a node than the plan's largest, it
    is None but with probability :data:`FALSE_ALARM`. So it is of local reports and flipped labels
    that each are of a row; and for label parties that answered alone, of all their answers and
    their sum together. Exact sums are refused instead.
    """
    if not plan.is_noisy:
        return None
    if released.doubted:
        return doubt(released.doubted)
    chance = chance_of_each(released.clients) if plan.is_alone else FALSE_ALARM
    if is_possible(plan, released, chance):
        return None
    if plan.final.sends_reports:
        return _REPORTS
    return _FLIPS if plan.final.flips_labels else _IMPOSSIBLE


def chance_of_each(parties: int) -> float:
    """Of a false alarm about each of so many parties that answered alone, and about their sum."""
    return FALSE_ALARM / (parties + 1)


def is_possible(
    plan: EvaluationPlan,
    released: Released,
    chance: float,
    levels: Sequence[NDArray[np.int64]] = (),
) -> bool:
    """Whether rows can have noisy counts; of rows it is True but with this probability.

    `levels` are the counts of a tree as one client sent them: all of them are of the same rows.
    """
    if plan.final.sends_reports:
        return not _are_below(plan, released, chance)
    if plan.final.flips_labels:
        return _are_flips(plan, released, chance)
    checked = [*_not_negative(plan, released), *_between_levels(plan, released, levels)]
    chance /= sum(numbers.size for numbers, _ in checked)
    parts = released.clients * plan.summed.noise_parts(plan.terms)
    rounding = _ROUNDING * float(np.abs(released.counts).max())
    return all(
        numbers.min() >= -noise_reach(variance, parts, chance) - rounding
        for numbers, variance in checked
    )


def _not_negative(plan: EvaluationPlan, released: Released) -> Iterator[tuple[Floats, float]]:
    """Numbers that only noise takes below zero, and the variance of the noise in each."""
    clients, most = released.clients, float(released.clients * plan.summed.largest)
    counts = np.asarray(released.counts, dtype=np.float64)
    variances = node_variances(plan.tree, plan.noise_variances(clients))
    for nodes, variance in zip(nodes_by_level(plan.tree), variances, strict=True):
        level = counts.reshape(len(counts), nodes, -1).sum(axis=2)
        yield level, variance
        yield most - level, variance
    by_channel = plan.tree[0] * variances[0]  # the highest nodes have no noise in common
    if plan.task.of_labels:  # so many examples there are, and so no more positives
        highest = counts.reshape(len(counts), plan.tree[0], -1).sum(axis=2)
        for many, blocks in _in_blocks(highest):
            yield blocks, many * variances[0]
        yield counts.sum(axis=1), by_channel
    for difference, channels in _differences(plan, counts):
        yield difference, channels * by_channel
        yield -difference, channels * by_channel
    law = plan.sums_law(shares=1)
    if law is not None and released.sums is not None:
        # In bins: the examples of a bin add up to between none and all of its width.
        sums, steps = released.sums / plan.final.sum_steps, plan.final.sum_steps
        variance = clients * law.variance / steps**2
        yield sums, variance
        yield counts - sums, variance + variances[-1]
    cells = zip(released.tables, plan.table_variances(clients), strict=True)
    for (table, values), variance in cells:
        yield values, variance
        yield most - values, variance
        difference, channels = _of_other_rows(plan, counts, table, values)
        added = values.size // difference.size * variance
        yield difference, added + channels * by_channel
        yield -difference, added + channels * by_channel


def _in_blocks(counts: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Sums over 2, 4, 8 and so on neighbours, and of how many each is at most.

    A little too few in each of many bins is nothing in any of them, and much in all together.
    """
    many = 2
    while many < counts.shape[-1]:
        yield many, np.add.reduceat(counts, np.arange(0, counts.shape[-1], many), axis=-1)
        many *= 2


def _between_levels(
    plan: EvaluationPlan, released: Released, levels: Sequence[NDArray[np.int64]]
) -> Iterator[tuple[Floats, float]]:
    """What nodes of a tree have more, or less, than those below them: nothing but noise."""
    variances = plan.noise_variances(released.clients)
    for place in range(1, len(levels)):
        above, below = levels[place - 1], levels[place].reshape(len(levels[place - 1]), -1)
        difference = (above - below.sum(axis=1)).astype(np.float64)
        variance = variances[place - 1] + below.shape[1] * variances[place]
        yield difference, variance
        yield -difference, variance


def _are_flips(plan: EvaluationPlan, released: Released, chance: float) -> bool:
    """Whether as many labels of bins, side by side, are told to be positive as flips make.

    Of a bin without positives those are told that were flipped: a binomial law, and every positive
    makes more of them. Of a bin without negatives it is the same.
    """
    from scipy.special import betainc

    negatives, positives = np.rint(retold(np.asarray(released.counts), plan.flipped.chance))
    negatives, positives = (
        np.concatenate([told, *(blocks for _, blocks in _in_blocks(told)), [told.sum()]])
        for told in (negatives, positives)
    )
    if min(negatives.min(), positives.min()) < 0:
        return False
    kept = 1 - plan.flipped.chance / WHOLE
    # P(X <= k) of n is the regularised incomplete beta function of n - k and k + 1.
    tails = [
        np.where(rest > 0, betainc(np.maximum(rest, 1), told + 1, kept), 1.0)
        for told, rest in ((negatives, positives), (positives, negatives))
    ]
    return bool(np.min(tails) >= chance / np.size(tails))


def _are_below(plan: EvaluationPlan, released: Released, chance: float) -> bool:
    """Whether the lowest node of a level is further below zero than reports of rows take it.

    Of a node without rows a report says by chance that it holds one: a binomial law with a chance
    of at most a half, whose lower tail is within the bound of a normal one's (Okamoto 1958).
    """
    slices = plan.task.slices
    whole = counts_of(plan, released, slices[0])
    if not whole.counts.any():
        return True
    levels = nodes_by_level(plan.tree)
    chance /= len(slices) * len(whole.unbiased) * sum(levels)
    return _is_below(whole, levels, chance) or any(
        _is_below(counts_of(plan, released, slice_), levels, chance) for slice_ in slices[1:]
    )


def _is_below(pooled: PooledCounts, levels: Sequence[int], chance: float) -> bool:
    for nodes in levels:
        by_node = pooled.unbiased.reshape(len(pooled.unbiased), nodes, -1)
        counts = by_node.sum(axis=2)
        weights = np.zeros(by_node.shape)
        weights[np.unravel_index(counts.argmin(), counts.shape)] = 1.0
        variance = float(pooled.noise_variance(weights.reshape(pooled.unbiased.shape)))
        if counts.min() < -noise_reach(variance, math.inf, chance):
            return True
    return False


def noise_reach(variance: float, parts: float, chance: float) -> float:
    """How far noise in an estimate goes, to one side, with at most this probability.

    `variance` is that of the noise in the estimate: a sum of the noise of single numbers, each with
    a weight between -1 and 1, as least squares over a tree give it. `parts` is of how many Laplace
    laws the noise of a number is made (:attr:`ShareLaw.parts`).

    Chernoff's bound. With c = cosh(s) - 1, the moment generating function at s of noise of variance
    v is ``(1 - v c / k)^-k`` for k parts of discrete Laplace; ``exp(v c)`` for Skellam; and for a
    discrete Gaussian, by Jacobi's triple product, a product of factors ``1 + a c`` whose a add up
    to v, so at most ``exp(v c)``, the first one's limit for many parts. A weight w between -1 and 1
    puts cosh(w s) - 1 <= w^2 c in place of c, and a product of ``1 - x`` is at least 1 less the sum
    of the x: so the same holds of the weighted sum with its own variance. Any s gives a bound; of
    those tried, with t = v c, the least is taken.

    >>> round(noise_reach(100.0, math.inf, 1e-6), 1)  # near a normal law's 47.5
    53.1
    """
    needed = -math.log(chance)
    t = _TRIED * min(needed, parts)
    exponent = t if math.isinf(parts) else -parts * np.log1p(-t / parts)
    s = 2.0 * np.arcsinh(np.sqrt(t / (2.0 * variance)))  # cosh(s) - 1 is 2 sinh(s / 2)^2
    return float(np.min((exponent + needed) / s))


SHARE: Final = 0.1  # of each class in one end bin: less is no crowd
EVEN: Final = 3.0  # times its share of the axis, which evenly spread scores would have there

_CROWDED: Final = (
    "the {end} bin of the axis, which also holds all scores {beyond} it, has over {share:.0%} of "
    "the negatives and of the positives. Were scores in percent, points or logits on an axis of "
    "{low:g} to {high:g}? Then all numbers are wrong: plan an axis with their range. If scores "
    "really pile up there, such as decisions of 0 and 1, the numbers are right, but scores in "
    "that bin are not distinguished."
)


def scores_caution(plan: EvaluationPlan, released: Released, slices: Sequence[Slice]) -> str | None:
    """What seems wrong with the scores; it says with which, where there are several."""
    seen: dict[str, list[str]] = {}
    classes = bool(plan.task.layout.classes)
    for slice_ in slices:
        pooled = counts_of(plan, released, slice_)
        crowded = crowded_caution(plan, released, pooled, len(slices))
        for text in (crowded or odd_scores(pooled, not classes), reversed_scores(pooled)):
            if text is not None:
                seen.setdefault(text, []).append(str(slice_))
    several = len(slices) > 1
    told = [f"{listed(of)}: {text}" if several else text for text, of in seen.items()]
    return " ".join(told) or None


REVERSED: Final = 0.4  # an AUC below it that is no chance has a cause
_SURE: Final = 4.75  # deviations, which noise or chance exceed on one side once in a million
_ENOUGH: Final = 20  # examples: fewer take two values by chance
_MANY: Final = 0.005  # of all pairs: the ROC AUC is then uncertain by half of it
_NARROW: Final = 1e-9  # an end bin that tells 0 or 1 apart from all else
_TWO_VALUES: Final = (
    "the scores take two values at most: these look like predictions, not scores. Give scores that "
    "rank examples, such as `predict_proba` of scikit-learn, or declare them (`--values 0,1`)."
)
_SATURATED: Final = (
    "over half of the scores lie in the end bins of the axis, which do not tell them apart. Try "
    "bins of equal width in log-odds (`--axis logit`)."
)
_REVERSED: Final = (
    f"the ROC AUC is below {REVERSED:g}: low scores go with positives. Are labels reversed, or are "
    "these scores of the other class?"
)


def odd_scores(pooled: PooledCounts, lower: bool = True) -> str | None:
    """That scores look like decisions, or pile up in end bins (the upper one) that could be finer.

    One class may well have most of its scores in an end bin, as where positives are rare. Finer
    bins help only if both classes lie there.
    """
    axis, totals = pooled.axis, pooled.unbiased.sum(axis=0)
    total = float(totals.sum())
    if axis.kind == "values" or axis.bins <= 2 or total < _ENOUGH:
        return None
    others = np.ones(axis.bins)
    others[np.argsort(totals)[-2:]] = 0.0
    unsure = _SURE * math.sqrt(max(float(pooled.noise_variance(np.array([others] * 2))), 0.0))
    if float(totals @ others) <= unsure <= 0.05 * total:
        return _TWO_VALUES
    ends = np.zeros(axis.bins)
    ends[[0, -1]] = np.diff(axis.edges)[[0, -1]] > _NARROW
    ends[0] *= lower
    part = float(np.diff(axis.edges) @ ends) / (axis.high - axis.low)
    finer = axis.kind == "uniform" or (axis.kind == "edges" and not pooled.noisy)
    if not finer or axis.low < 0 or axis.high > 1 or EVEN * part > 1:
        return None
    weights = np.array([ends - max(0.5, EVEN * part)] * 2)
    deviation = math.sqrt(max(float(pooled.noise_variance(weights)), 0.0) + 0.25 * total)
    is_most = float(np.sum(weights * pooled.unbiased)) > _SURE * deviation
    undecided = float(ends @ np.prod(pooled.unbiased, axis=0))  # pairs of a negative and a positive
    return (
        _SATURATED if is_most and undecided > _MANY * np.prod(pooled.unbiased.sum(axis=1)) else None
    )


def reversed_scores(pooled: PooledCounts) -> str | None:
    """That positives have the lower scores, by more than chance and noise explain."""
    negatives, positives = pooled.unbiased
    n, p = float(negatives.sum()), float(positives.sum())
    if min(n, p) < 1:
        return None
    below = (np.cumsum(negatives) - negatives / 2.0) / n
    above = 1.0 - (np.cumsum(positives) - positives / 2.0) / p
    auc = float(positives @ below) / p
    noise = float(pooled.noise_variance(np.array([(above - auc) / n, (below - auc) / p])))
    deviation = math.sqrt(max(noise, 0.0) + (n + p + 1.0) / (12.0 * n * p))
    return _REVERSED if auc < REVERSED and auc < 0.5 - _SURE * deviation else None


def crowded_caution(
    plan: EvaluationPlan, released: Released, pooled: PooledCounts, among: int = 1
) -> str | None:
    """What seems wrong where an end bin holds much of both classes; None where nothing does.

    Much is over :data:`SHARE` of the examples of a class, and over :data:`EVEN` times what evenly
    spread scores would put there: wide bins are no crowd. Where the population has less of one of
    the classes in each end bin, it is None but with probability :data:`FALSE_ALARM`, by noise and
    sampling; over `among` such questions together. An axis that refuses scores beyond it needs no
    caution. With many classes scores near 0 are common, so there only the upper end is looked at.
    """
    axis = released.axis
    if axis.outside != "clip":
        return None
    ends = ((0, "first", "below"), (axis.bins - 1, "last", "above"))
    for place, end, beyond in ends[bool(plan.task.layout.classes) :]:
        share = max(SHARE, EVEN * _part_of(axis, place))
        if share < 1.0 and all(
            _holds_more(plan, released, pooled, row, place, share, among) for row in range(2)
        ):
            return _CROWDED.format(
                end=end, beyond=beyond, share=share, low=plan.axis.low, high=plan.axis.high
            )
    return None


def _part_of(axis: Axis, place: int) -> float:
    """What share of an axis a bin is: by its width, or one of the known values."""
    if axis.kind == "values":
        return 1.0 / axis.bins
    return float(axis.edges[place + 1] - axis.edges[place]) / (axis.high - axis.low)


def _holds_more(
    plan: EvaluationPlan,
    released: Released,
    pooled: PooledCounts,
    row: int,
    place: int,
    share: float,
    among: int,
) -> bool:
    """Whether a bin surely holds more than a share of one class."""
    weights = np.zeros(pooled.unbiased.shape)
    weights[row] = -share
    weights[row, place] += 1.0
    excess = float(np.sum(weights * pooled.unbiased))
    if excess <= 0.0:
        return False
    examples = max(float(pooled.unbiased[row].sum()), 0.0)
    variance = float(pooled.noise_variance(weights)) + examples * share * (1.0 - share)
    parts = math.inf
    if pooled.noisy and not (plan.final.sends_reports or plan.final.flips_labels):
        parts = released.clients * plan.summed.noise_parts(plan.terms)
    # Least squares weigh a bin and a total by up to 1 each, and a bound holds for weights up to 1.
    scale = 1.0 + share
    return excess > scale * noise_reach(variance / scale**2, parts, FALSE_ALARM / 2 / among)
