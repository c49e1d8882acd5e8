"""Randomised response over the levels of a tree: rows to reports, reports to counts."""

from collections.abc import Sequence

import numpy as np

from fedgauge.errors import NoSignal
from fedgauge.privacy.keystream import WordSource
from fedgauge.privacy.oracles import (
    Cells,
    Oracle,
    Payloads,
    Tallies,
    draw_levels,
    mean_variance,
)
from fedgauge.typing import Floats


def variances(oracles: Sequence[Oracle], reports: int) -> tuple[float, ...]:
    """Variance of one node's estimated count at each level, for a cell of mean frequency.

    With L levels and n reports, n L v + n (L - 1) f (1 - f), where v is the variance that one
    report adds. It grows with the frequency f of a cell; here f = 1 / cells, its mean over the
    cells of a level whatever the data: public, and weights that do not look at the counts keep
    their least-squares estimate unbiased.
    """
    levels = len(oracles)
    return tuple(
        reports
        * (levels * mean_variance(oracle) + (levels - 1) * (1 - 1 / oracle.cells) / oracle.cells)
        for oracle in oracles
    )


def node_variances(oracles: Sequence[Oracle], leaves: Floats) -> list[Floats]:
    """Variance of every node's estimated count at each level, where `leaves` rows are in the bins.

    Unlike :func:`variances` this depends on the counts: for redrawing noise, not for weights.
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
    drawn = draw_levels(source, len(leaves), len(oracles))
    finest = oracles[-1].cells
    # Bins of a node are next to each other, and a class has a whole number of nodes.
    return [
        oracle.encode(leaves[drawn == level] // (finest // oracle.cells), source)
        for level, oracle in enumerate(oracles)
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


def settle(leaves: Floats, reports: float | Floats) -> Floats:
    """Leaf estimates that add up to the number of reports, which is public.

    All leaves have the same variance and the same covariance with the total, so the
    least-squares estimate given the total shares what is missing equally.
    """
    cells = leaves.shape[-2] * leaves.shape[-1]
    missing = reports - leaves.sum(axis=(-2, -1), keepdims=True)
    return np.asarray(leaves + missing / cells)
