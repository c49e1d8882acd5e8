"""From one client's data to the numbers it adds to the sum, and from the sum to counts."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgauge.histogram import ScoreHistogram
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy.keystream import WordSource
from fedgauge.privacy.units import limit_rows
from fedgauge.repair import consistent
from fedgauge.scores import Data, read_batches


def histogram_of(plan: EvaluationPlan, data: Data, *, may_be_empty: bool = True) -> ScoreHistogram:
    """One client's histogram, each unit's rows capped as the plan says.

    A client without rows counts like any other, since its silence would tell that it has none.
    """
    histogram = ScoreHistogram(plan.axis)
    rows = limit_rows(read_batches(data), plan.privacy)
    histogram.update_batches(rows, positive=plan.task.positive, may_be_empty=may_be_empty)
    return histogram


def contribution(
    plan: EvaluationPlan, histogram: ScoreHistogram, source: WordSource
) -> NDArray[np.int64]:
    """What one client adds: its counts at the levels sent, each with its share of the noise."""
    laws = plan.noise_laws(shares=1)
    if not laws:
        return histogram.counts.ravel()
    parts = []
    for law, level in zip(laws, histogram.levels(plan.tree), strict=True):
        # Clipping moves no count further than a row does: the sensitivity stays what it was.
        clipped = np.minimum(level, plan.rounds[0].largest)
        parts.append((clipped + law.draw(source, level.shape)).ravel())
    return np.concatenate(parts)


def released(plan: EvaluationPlan, total: NDArray[np.int64], clients: int) -> NDArray[Any]:
    """Counts of the bins from the sum: exact, or least-squares estimates from noisy levels."""
    nodes = plan.rounds[0].nodes
    ends = np.cumsum([plan.channels * count for count in nodes])
    levels = [part.reshape(plan.channels, -1) for part in np.split(total, ends[:-1])]
    laws = plan.noise_laws(shares=clients)
    if not laws:
        return levels[0]
    return consistent(levels, plan.tree, [law.variance for law in laws])
