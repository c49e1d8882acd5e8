"""Coverage of intervals for gaps between groups, and how often the largest of many is flagged.

    python studies/gap_coverage.py               # 1,000 datasets in each cell
    python studies/gap_coverage.py --quick       # a small, seeded run
    python studies/gap_coverage.py --only "epsilon=1.0"

The log-odds of scores are normal in each class of each group, so every population value is a sum or
an integral. A cell is two groups, each with a number of examples, a share of positives, a distance
of the classes and a shift of its scores; a number of bins; and an epsilon, or none for an exact
sum. Gaps are of the first group less the second, at the threshold 0.5, which is an edge.

In cells of ten groups all are alike. `flagged` is how often any of the 45 gaps in recall stands
out, all of them taken together, `alone` how often the largest one's own interval leaves 0 out, and
`largest` how large it is on average.

Datasets in which noise hides a class of a group have no result; `answered` is the share of the
others.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

import fedgauge as fg
from fedgauge.estimation.counts import PooledCounts
from fedgauge.metrics import ranking
from fedgauge.metrics.calibration import calibration_in_the_large
from fedgauge.metrics.differences import gap, level_of_each
from fedgauge.metrics.estimate import Estimate
from fedgauge.metrics.ranking import Reading
from fedgauge.metrics.thresholds import AtThreshold
from fedgauge.privacy.keystream import SimulatedKeystream
from runner import Check, Found, Study, describe, main

LEVEL = 0.95
AT = 0.5
SITES = 10
RATES = ("recall", "fpr", "precision", "flagged")
METRICS = (*RATES, "AUC", "xAUC", "calibration")
LEAST, LEAST_FEW, FEW = 0.93, 0.92, 50  # coverage; that with few positives in a group
FLAGGED = 0.06  # at most, of ten groups that are alike
CHANCE = 3.0  # standard deviations of a count that a limit leaves room for


class Group(NamedTuple):
    """Rows of one kind: how many, how many of them positive, how far apart, how high."""

    examples: int
    rate: float
    separation: float = 1.5
    shift: float = 0.0


@dataclass(frozen=True)
class Cell:
    """One setting; ten groups are all like the first."""

    first: Group
    second: Group
    bins: int
    epsilon: float | None = None
    groups: int = 2

    @property
    def every(self) -> list[Group]:
        """All groups."""
        return [self.first, self.second] if self.groups == 2 else [self.first] * self.groups

    @property
    def positives(self) -> float:
        """In the smaller group, on average."""
        return min(each.examples * each.rate for each in self.every)

    def plan(self) -> fg.EvaluationPlan:
        """Of groups that a row is in one of: the noise is that of a plan without groups."""
        names = [f"g{place}" for place in range(self.groups)]
        return fg.EvaluationPlan.for_histogram(
            fg.Axis.uniform(self.bins, outside="clip"),
            fg.Cohort(SITES, 1),
            task=fg.BinaryTask(groups={"group": names}),
            privacy=None if self.epsilon is None else fg.DistributedDP(self.epsilon),
        )


def latent(group: Group) -> tuple[float, float]:
    """Means of the log-odds of negatives and positives."""
    middle = group.separation / 2
    return group.shift - middle, group.shift + middle


def bin_shares(group: Group, edges: np.ndarray) -> np.ndarray:
    """Share of each class in each bin."""
    with np.errstate(divide="ignore"):
        at = np.log(edges) - np.log1p(-edges)
    return np.array([np.diff(norm.cdf(at - mean)) for mean in latent(group)])


def truths(first: Group, second: Group) -> dict[str, float]:
    """The gaps in the population."""
    own = [_of_group(group) for group in (first, second)]
    found = {name: own[0][name] - own[1][name] for name in own[0]}
    ahead = latent(first)[1] - latent(second)[0], latent(second)[1] - latent(first)[0]
    one, other = norm.cdf(np.array(ahead) / math.sqrt(2))
    return found | {"xAUC": float(one - other)}


def _of_group(group: Group) -> dict[str, float]:
    fpr, recall = (float(norm.sf(-mean)) for mean in latent(group))
    flagged = group.rate * recall + (1 - group.rate) * fpr
    x = np.linspace(-9, 9, 20_001)
    scores = [1 / (1 + np.exp(-(x + mean))) for mean in latent(group)]
    means = [float(np.sum(norm.pdf(x) * each) * (x[1] - x[0])) for each in scores]
    mean = (1 - group.rate) * means[0] + group.rate * means[1]
    return {
        "recall": recall,
        "fpr": fpr,
        "precision": group.rate * recall / flagged,
        "flagged": flagged,
        "AUC": float(norm.cdf(group.separation / math.sqrt(2))),
        "calibration": group.rate - mean,
    }


def draw(
    cell: Cell, plan: fg.EvaluationPlan, shares: list[np.ndarray], rng: np.random.Generator
) -> list[PooledCounts]:
    """The counts of all groups in one dataset, as they are released."""
    source = SimulatedKeystream(int(rng.integers(2**63)))
    laws, released = plan.noise_laws(shares=SITES), []
    variances = plan.noise_variances(SITES)
    for group, of_class in zip(cell.every, shares, strict=True):
        positives = int(rng.binomial(group.examples, group.rate))
        sizes = group.examples - positives, positives
        counts = np.array([rng.multinomial(n, row) for n, row in zip(sizes, of_class, strict=True)])
        for law in laws:
            counts = counts + law.draw(source, counts.shape)
        released.append(PooledCounts(plan.axis, counts, plan.tree, variances))
    return released


def crossed(positives: PooledCounts, negatives: PooledCounts) -> PooledCounts:
    """Positives of one group against negatives of another, as gaps in xAUC take them."""
    counts = np.array([negatives.released[0], positives.released[1]])
    return PooledCounts(positives.axis, counts, positives.tree, positives.variances)


def measured(pooled: PooledCounts) -> dict[str, Estimate]:
    """The metrics of one group."""
    reading, at = Reading(pooled, fg.Aligned(), LEVEL), AtThreshold(pooled, AT, LEVEL)
    return {name: getattr(at, name) for name in RATES} | {
        "AUC": ranking.roc_auc(reading),
        "calibration": calibration_in_the_large(reading),
    }


def gaps(first: PooledCounts, second: PooledCounts) -> dict[str, Estimate]:
    """The gaps of one dataset."""
    one, other = measured(first), measured(second)
    found = {name: gap(one[name], other[name]) for name in one}
    cross = [
        ranking.roc_auc(Reading(crossed(*pair), fg.Aligned(), LEVEL))
        for pair in ((first, second), (second, first))
    ]
    return found | {"xAUC": gap(*cross)}


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """Simulate one cell."""
    plan = cell.plan()
    shares = [bin_shares(group, plan.axis.edges) for group in cell.every]
    datasets = (draw(cell, plan, shares, rng) for _ in range(runs))
    answered = [each for each in datasets if not any(group.hidden for group in each)]
    found: dict[str, float] = {"answered": len(answered) / runs}
    if not answered:
        return found
    measure = _two if cell.groups == 2 else _many
    return found | measure(cell, answered)


def _two(cell: Cell, datasets: list[list[PooledCounts]]) -> dict[str, float]:
    true, found = truths(cell.first, cell.second), {}
    every = [gaps(*dataset) for dataset in datasets]
    for name in METRICS:
        spans = np.array([each[name].interval for each in every])
        low, high = spans.T
        found[f"{name} covers"] = float(np.mean((low <= true[name]) & (true[name] <= high)))
        found[f"{name} width"] = float(np.mean(high - low))
    return found


def _many(cell: Cell, datasets: list[list[PooledCounts]]) -> dict[str, float]:
    pairs = list(combinations(range(cell.groups), 2))
    levels = LEVEL, level_of_each(LEVEL, len(pairs))
    largest, flags = [], []
    for dataset in datasets:
        by_level = [[AtThreshold(each, AT, level).recall for each in dataset] for level in levels]
        alone, together = ([gap(of[i], of[j]) for i, j in pairs] for of in by_level)
        widest = max(range(len(pairs)), key=lambda place: abs(alone[place].value))
        largest.append(abs(alone[widest].value))
        flags.append((_leaves_out_0(alone[widest]), any(map(_leaves_out_0, together))))
    by_one, by_all = np.mean(flags, axis=0)
    return {"largest": float(np.mean(largest)), "alone": float(by_one), "flagged": float(by_all)}


def _leaves_out_0(difference: Estimate) -> bool:
    low, high = difference.interval
    return not low <= 0 <= high


def table(found: Sequence[Found[Cell]]) -> None:
    """Coverage of each gap by cell, then how often groups that are alike are flagged."""
    print(f"{'positives':>13} {'bins':>5} {'eps':>4} {'answered':>8}", end="")
    print("".join(f" {name:>11}" for name in METRICS))
    for each in found:
        cell = each.cell
        sizes = "/".join(f"{g.examples * g.rate:.0f}" for g in (cell.first, cell.second))
        told = f"{cell.groups} x {sizes.split('/')[0]}" if cell.groups > 2 else sizes
        print(
            f"{told:>13} {cell.bins:>5} {cell.epsilon or '-':>4} {each['answered']:>8.1%}", end=""
        )
        if cell.groups == 2:
            covered = (each.values.get(f"{name} covers", math.nan) for name in METRICS)
            print("".join(f" {share:>11.1%}" for share in covered))
        else:
            names = ("largest", "alone", "flagged")
            print("  ", ", ".join(f"{n} {each.values.get(n, math.nan):.3f}" for n in names))


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """Coverage and flags within their limits, but for chance."""
    for name in METRICS:
        odd = []
        for each in found:
            least = LEAST_FEW if each.cell.positives < FEW else LEAST
            share, number = each.values.get(f"{name} covers"), each["answered"] * each.runs
            if share is not None and share < least - _stray(least, number):
                odd.append(f"{describe(each.cell)}: {share:.1%}")
        told = f"gaps in {name} cover {LEAST:.0%}, {LEAST_FEW:.0%} with few positives"
        yield Check(told, not odd, "; ".join(odd))
    flagged = [
        f"{describe(each.cell)}: {each['flagged']:.1%}"
        for each in found
        if each.cell.groups > 2 and each["flagged"] > FLAGGED + _stray(FLAGGED, each.runs)
    ]
    yield Check(f"ten equal groups flagged in {FLAGGED:.0%}", not flagged, "; ".join(flagged))


def _stray(share: float, number: float) -> float:
    return CHANCE * math.sqrt(share * (1 - share) / number)


PAIRS = (
    (Group(2_000, 0.2), Group(2_000, 0.2)),
    (Group(5_000, 0.2, 1.5, 0.3), Group(2_000, 0.3, 1.0, -0.2)),
    (Group(20_000, 0.05, 2.0), Group(4_000, 0.1, 1.0, 0.4)),
    (Group(5_000, 0.2), Group(200, 0.2, 1.0)),  # about 40 positives
    (Group(400, 0.1, 2.0), Group(400, 0.1, 1.0, 0.5)),  # in both
)
CELLS = [
    *(Cell(*pair, bins=512) for pair in PAIRS),
    *(Cell(*pair, bins=64, epsilon=1.0) for pair in PAIRS[:3]),
    *(Cell(*pair, bins=16, epsilon=1.0) for pair in PAIRS),
    Cell(Group(400, 0.5), Group(400, 0.5), 512, groups=10),
    Cell(Group(80, 0.5), Group(80, 0.5), 512, groups=10),
    Cell(Group(400, 0.5), Group(400, 0.5), 16, 1.0, groups=10),
]
STUDY = Study(
    "gap_coverage",
    __doc__,
    cells=CELLS,
    quick_cells=CELLS,
    run=run,
    table=table,
    checks=checks,
    runs=1_000,
    quick_runs=50,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
