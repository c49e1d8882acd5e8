"""Randomised response over the levels of a tree: rows to reports, reports to counts.

Where a row is in a cell of several blocks (one for each of its scores, and each way to group rows),
its report is about one of them, drawn at random and public, with all of epsilon: reports about each
with a share of epsilon would have far more noise. Every block is estimated from its own reports and
scaled to all rows, as every level is. The rows that a block is reported of are a sample of all, and
what that does to estimates counts as noise: so counts are of all rows in every block, and where
noise may have taken a number of all rows is known, not only that of a sample.
"""

from collections.abc import Sequence

import numpy as np

from fedgauge.errors import NoSignal
from fedgauge.privacy.keystream import WordSource
from fedgauge.privacy.oracles import (
    Cells,
    Oracle,
    Payloads,
    Tallies,
    draw_topics,
    mean_variance,
)
from fedgauge.typing import Floats


def variances(oracles: Sequence[Oracle], reports: int, blocks: int = 1) -> tuple[float, ...]:
    """Variance of one node's estimated count at each level, for a cell of mean frequency.

    With L levels of B blocks and n reports, n L B v + n (L B - 1) f (1 - f), where v is the
    variance that one report adds. It grows with the frequency f of a cell; here f = 1 / cells, its
    mean over the cells of a level whatever the data: public, and weights that do not look at the
    counts keep their least-squares estimate unbiased. `oracles` are those of one block.
    """
    drawn = len(oracles) * blocks
    return tuple(
        reports
        * (drawn * mean_variance(oracle) + (drawn - 1) * (1 - 1 / oracle.cells) / oracle.cells)
        for oracle in oracles
    )


def node_variances(oracles: Sequence[Oracle], leaves: Floats) -> list[Floats]:
    """Variance of every node's estimated count at each level, where `leaves` rows are in the bins.

    Unlike :func:`variances` this depends on the counts: for redrawing noise, not for weights. All
    rows are reported of.
    """
    levels, reports = len(oracles), leaves.sum()
    by_level = []
    for oracle in oracles:
        counts = leaves.reshape(oracle.cells, -1).sum(axis=1)
        # A level is told about by one in L reports: of a sample, scaled up by L.
        sampled = (levels - 1) * counts * (1 - counts / reports)
        by_level.append((levels * oracle.variances(counts) + sampled).reshape(len(leaves), -1))
    return by_level


def randomise(oracles: Sequence[Oracle], leaves: Cells, source: WordSource) -> list[Payloads]:
    """A report for each row, by level; `leaves` are the rows' cells at the last level."""
    drawn = draw_topics(source, len(leaves), len(oracles))
    finest = oracles[-1].cells
    # Bins of a node are next to each other, and a class has a whole number of nodes.
    return [
        oracle.encode(leaves[drawn == level] // (finest // oracle.cells), source)
        for level, oracle in enumerate(oracles)
    ]


def randomise_drawn(
    oracles: Sequence[Sequence[Oracle]], drawn: Cells, leaves: Cells, source: WordSource
) -> list[Payloads]:
    """A report for each row about the block that is drawn for it, by block and level.

    `oracles` are those of each block. Of a row its cell in that block is all that plays a part.
    """
    return [
        payloads
        for block, levels in enumerate(oracles)
        for payloads in randomise(levels, leaves[drawn == block], source)
    ]


def debias(
    oracles: Sequence[Oracle], tallies: Sequence[Tallies], reports: Sequence[int], channels: int
) -> list[Floats]:
    """Unbiased counts of all rows by channel and node, from the reports about each level."""
    if not any(reports):
        raise NoSignal("no signal: there are no reports yet.")
    if not all(reports):
        raise NoSignal(
            "no signal: a level of the tree has no report yet. Wait for more, or use a flat tree."
        )
    total = sum(reports)
    return [
        oracle.estimate(tally, count).reshape(channels, -1) * (total / count)
        for oracle, tally, count in zip(oracles, tallies, reports, strict=True)
    ]


def debias_drawn(
    oracles: Sequence[Sequence[Oracle]],
    tallies: Sequence[Tallies],
    reports: Sequence[int],
    channels: Sequence[int],
) -> list[Floats]:
    """Unbiased counts of all rows by channel and node, from the reports about each block and level.

    Each block has so many channels; tallies and reports are by block and level.
    """
    levels, total, blocks = len(oracles[0]), sum(reports), []
    for number, (own, rows) in enumerate(zip(oracles, channels, strict=True)):
        part = slice(number * levels, (number + 1) * levels)
        if total and not any(reports[part]):
            raise NoSignal(
                "no signal: a class, a model or a way to group rows has no report yet. Wait for "
                "more."
            )
        counts = debias(own, tallies[part], reports[part], rows)
        blocks.append([level * (total / sum(reports[part])) for level in counts])
    return [np.concatenate(level) for level in zip(*blocks, strict=True)]


def settle(leaves: Floats, reports: float | Floats, terms: Floats | None = None) -> Floats:
    """Leaf estimates that add up to the number of reports, which is public.

    All leaves have the same variance and the same covariance with the total, so the
    least-squares estimate given the total shares what is missing equally. `terms` is how many
    channels each row is the sum of, one unless given.
    """
    if terms is None:
        terms = np.ones(leaves.shape[-2])
    missing = reports - leaves.sum(axis=(-2, -1), keepdims=True)
    each = missing / (terms.sum() * leaves.shape[-1])
    return np.asarray(leaves + each * terms[:, np.newaxis])
