"""From one client's data to the numbers it adds to the sum, and from the sum to counts."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.histogram import ScoreHistogram
from fedgauge.data.examples import Data, read_batches
from fedgauge.estimation.repair import consistent
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy.keystream import WordSource
from fedgauge.privacy.units import limit_rows
from fedgauge.secagg.words import check_size


class Released(NamedTuple):
    """What a sum over clients tells: counts of the bins, and score sums where they were sent.

    Counts are exact, or least-squares estimates from noisy levels. Sums are whole numbers, with
    the noise that was added to them.
    """

    counts: NDArray[Any]
    sums: NDArray[np.int64] | None


def histogram_of(plan: EvaluationPlan, data: Data, *, may_be_empty: bool = True) -> ScoreHistogram:
    """One client's histogram, each unit's rows capped as the plan says.

    A client without rows counts like any other, since its silence would tell that it has none.
    """
    histogram = ScoreHistogram(plan.axis, sum_steps=plan.sum_steps)
    rows = limit_rows(read_batches(data), plan.privacy)
    histogram.update_batches(rows, positive=plan.task.positive, may_be_empty=may_be_empty)
    return histogram


def contribution(
    plan: EvaluationPlan, histogram: ScoreHistogram, source: WordSource
) -> NDArray[np.int64]:
    """What one client adds: its counts at the levels sent, then its score sums.

    Each number has its share of the noise.
    """
    largest, sums = plan.rounds[0].largest, histogram.sums
    laws = plan.noise_laws(shares=1)
    if not laws:
        check_size(histogram.counts, largest)  # sums may be larger, and then fit too
        parts = [histogram.counts] if sums is None else [histogram.counts, sums]
        return np.concatenate([part.ravel() for part in parts])
    numbers = list(zip(laws, histogram.levels(plan.tree), [largest] * len(laws), strict=True))
    sums_law = plan.sums_law(shares=1)
    if sums is not None and sums_law is not None:
        numbers.append((sums_law, sums, largest * plan.sum_steps))
    # Clipping moves nothing further than a row does: the sensitivity stays what it was.
    noisy = [np.minimum(part, most) + law.draw(source, part.shape) for law, part, most in numbers]
    return np.concatenate([part.ravel() for part in noisy])


def released(plan: EvaluationPlan, total: NDArray[np.int64], clients: int) -> Released:
    """What the sum over `clients` clients tells."""
    nodes = plan.rounds[0].nodes
    ends = np.cumsum([plan.channels * count for count in nodes])
    *levels, sums = (part.reshape(plan.channels, -1) for part in np.split(total, ends))
    laws = plan.noise_laws(shares=clients)
    counts = consistent(levels, plan.tree, [law.variance for law in laws]) if laws else levels[0]
    return Released(counts, sums if plan.sum_steps else None)
