"""Local reports of rows: which of two rounds one is of, simulated ones, and what they release.

Each report has an id, and a public coin in it says which round the report is of: whether its first
64 bits are a number below the share of the first round. A client draws the ids of its rows from a
secret that it keeps between the rounds, so each row is reported in one of them.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.errors import PlanError
from fedgauge.estimation.counts import Released
from fedgauge.estimation.repair import consistent
from fedgauge.histograms.histogram import Draw, ScoreHistogram
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy.keystream import KeptKeystream, WordSource
from fedgauge.privacy.oracles import Oracle, Tallies, debias_drawn, draw_topics, randomise, settle

ID_BYTES: Final = 16
LEAST_SECRET: Final = 32  # bytes: nobody may guess whose turn it is, and so which rows are which
_WORD_BYTES: Final = 8
_AT_ONCE: Final = 65_536  # rows reported together

Ids = NDArray[np.uint8]
Mask = NDArray[np.bool_]


class Turns:
    """Which ids report in one of two rounds, under a plan before or after its bins were found.

    >>> from fedgauge import LocalDP, TwoRound
    >>> plan = EvaluationPlan.for_reports(TwoRound(8, share=0.5), LocalDP(1.0))
    >>> Turns(plan).fit(np.array([[0] * 16, [255] * 16], dtype=np.uint8))
    array([ True, False])
    """

    def __init__(self, plan: EvaluationPlan) -> None:
        # Exact: the share is a float, and 2^64 a power of two.
        self._below = np.uint64(int(plan.whole.chance_to_report * 2.0**64))
        self._is_first = plan.is_search

    def fit(self, ids: Ids) -> Mask:
        """Whether each id, 16 bytes, is of this round."""
        octets = np.ascontiguousarray(ids[:, :_WORD_BYTES])
        coins = octets.view("<u8").ravel()
        return np.asarray((coins < self._below) == self._is_first)


class RoundRows(NamedTuple):
    """Ids of some rows, and whether each is reported in this round."""

    ids: Ids
    mine: Mask


class KeptIds:
    """The ids of a client's rows, in order: the same under both plans of an evaluation.

    A row is known by its place, whatever it holds. `secret` are random bytes, 32 or more, that the
    client keeps between the rounds.
    """

    def __init__(self, plan: EvaluationPlan, secret: bytes | None) -> None:
        if not isinstance(secret, bytes) or len(secret) < LEAST_SECRET:
            raise PlanError(
                "each row is reported in one of the two rounds of this plan, and a secret says in "
                f"which: {LEAST_SECRET} random bytes or more (secret=), drawn once and kept until "
                "the second."
            )
        self._stream = KeptKeystream(secret, b"report ids " + bytes.fromhex(plan.whole.digest))
        self._turns = Turns(plan)

    def take(self, rows: int) -> RoundRows:
        """The ids of the next rows."""
        words = self._stream.words(rows * (ID_BYTES // _WORD_BYTES))
        ids = words.astype("<u8").view(np.uint8).reshape(rows, ID_BYTES)
        return RoundRows(ids, self._turns.fit(ids))


def draws_of(plan: EvaluationPlan, source: WordSource, secret: bytes) -> Draw | None:
    """What draws the block that each row is reported of; None where there is one, for all rows.

    In one of two rounds, -1 for rows that report in the other. The secret says which.
    """
    blocks = len(plan.task.layout.blocks)
    if not plan.has_two_rounds:
        return None if blocks == 1 else lambda rows: draw_topics(source, rows, blocks)
    kept = KeptIds(plan, secret)

    def drawn(rows: int) -> NDArray[np.int64]:
        return np.where(kept.take(rows).mine, draw_topics(source, rows, blocks), -1)

    return drawn


def simulate_reports(
    plan: EvaluationPlan, pooled: ScoreHistogram, clients: int, source: WordSource
) -> Released:
    """The release of a report for every row of a histogram drawn by :func:`draws_of`."""
    by_block, layout = plan.reported.by_block(plan.terms), plan.task.layout
    tallies, by_level = [], []
    for oracles, block in zip(by_block, layout.blocks, strict=True):
        found = simulate_block(oracles, pooled.counts[layout.rows(block)], source)
        tallies += found[0]
        by_level += found[1]
    reports = sum(by_level)
    levels = debias_drawn(by_block, tallies, by_level, layout.sizes)
    variances = plan.noise_variances(reports)
    return release_reports(plan, levels, variances, clients=clients, reports=reports)


def simulate_block(
    oracles: Sequence[Oracle], counts: NDArray[np.int64], source: WordSource
) -> tuple[list[Tallies], list[int]]:
    """Sums, and numbers, of the reports about each level of one block."""
    tallies = [np.zeros(oracle.tallies, dtype=np.int64) for oracle in oracles]
    by_level = [0] * len(oracles)
    # Sums do not depend on the order of rows, so a row's cell is all there is to know.
    ends = np.cumsum(counts.ravel())
    for start in range(0, int(ends[-1]), _AT_ONCE):
        rows = np.arange(start, min(start + _AT_ONCE, int(ends[-1])))
        leaves = np.searchsorted(ends, rows, side="right")
        for level, payloads in enumerate(randomise(oracles, leaves, source)):
            oracles[level].add(tallies[level], payloads)
            by_level[level] += len(payloads)
    return tallies, by_level


def release_reports(
    plan: EvaluationPlan,
    levels: list[Floats],
    variances: tuple[float, ...],
    *,
    clients: int,
    reports: int,
) -> Released:
    """Counts of all rows by bin and block: least squares over the tree, given how many reports."""
    layout, counts = plan.task.layout, consistent(levels, plan.tree, variances)
    blocks = [settle(counts[layout.rows(block)], reports) for block in layout.blocks]
    return Released(plan.axis, np.concatenate(blocks), clients, reports=reports)
