"""Do the intervals cover where labels and scores are apart? Thousands of datasets per cell.

    python studies/label_coverage.py               # 2,000 datasets in each cell
    python studies/label_coverage.py --quick       # a small, seeded run
    python studies/label_coverage.py --only "epsilon=0.3"

Scores are normal in each class, so every population value is an integral. They are ranked and
assigned to bins as `fg.evaluate_vertical` does, with the bins that it chooses; positives are
counted by bin, and the noise is that of all label parties. A cell is a number of examples, a
share of positives, a distance of the classes, an epsilon, a number of label parties, and how many
times the true odds of a positive were hinted. Recall and precision are at the bin edge nearest to
the score that as many examples exceed as are positive.

Datasets in which noise hides a class have no result; `answered` is the share of the others.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

import fedgauge as fg
from fedgauge.estimation.counts import LabelCounts
from fedgauge.estimation.repair import consistent
from fedgauge.metrics import ranking
from fedgauge.metrics.ranking import Reading
from fedgauge.metrics.thresholds import AtThreshold
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.task import LabelTask
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.vertical.bins import assign, choose_tree, padded
from runner import Check, Found, Study, describe, main

LEVEL = 0.95
LIMITS = {"AUC": (0.93, 0.97), "recall": (0.93, 0.97), "precision": (0.93, 0.97), "AP": (0.93, 1.0)}
FEWEST = 0.9  # answers, of all datasets, to judge a cell by
CHANCE = 3.0  # standard deviations of a count of covering intervals that a limit leaves room for


@dataclass(frozen=True)
class Cell:
    """One setting."""

    examples: int
    rate: float
    separation: float
    epsilon: float = 1.0
    parties: int = 10
    hinted: float = 1.0

    @property
    def hint(self) -> float:
        """The share of positives that somebody guessed."""
        odds = self.hinted * self.rate / (1 - self.rate)
        return odds / (1 + odds)

    def plan(self) -> EvaluationPlan:
        """The plan that `fg.evaluate_vertical` makes."""
        everybody = fg.Cohort(self.parties, 1)
        privacy = fg.DistributedDP(self.epsilon, unit="label", neighbours="flip")
        known = {"parties": self.parties, "examples": self.examples, "positive_rate": self.hint}
        tree = choose_tree(privacy, everybody, **known)
        axis = fg.Axis.from_values(list(range(math.prod(tree))), outside="clip")
        return EvaluationPlan.under(privacy, axis, cohort=everybody, task=LabelTask(), tree=tree)


@dataclass(frozen=True)
class Population:
    """What is true of a cell."""

    rate: float
    separation: float

    def rates(self, at: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Recall and precision at scores."""
        recall = norm.sf(at - self.separation)
        flagged = self.rate * recall + (1 - self.rate) * norm.sf(at)
        return recall, self.rate * recall / flagged

    @property
    def auc(self) -> float:
        """The AUC."""
        return float(norm.cdf(self.separation / math.sqrt(2)))

    def average_precision(self) -> float:
        """By integration over the scores of positives."""
        x = self.separation + np.linspace(-9, 9, 200_001)
        _, precision = self.rates(x)
        return float(np.sum(norm.pdf(x - self.separation) * precision) * (x[1] - x[0]))

    def threshold(self) -> float:
        """A score that as many examples exceed as are positive."""
        x = np.linspace(-9, 9 + self.separation, 20_001)
        flagged = self.rate * norm.sf(x - self.separation) + (1 - self.rate) * norm.sf(x)
        return float(np.interp(-self.rate, -flagged, x))


def release(
    cell: Cell, plan: EvaluationPlan, variances: tuple[float, ...], rng: np.random.Generator
) -> LabelCounts:
    """The counts of one dataset as whoever scored gets them."""
    labels = rng.random(cell.examples) < cell.rate
    scores = rng.normal(np.where(labels, cell.separation, 0.0))
    assignment = assign(scores, plan.axis.bins, cell.hint)
    # Of few examples some bins are one: a bin less, or an empty one under a tree.
    flat = len(plan.tree) == 1
    axis = assignment.axis if flat else padded(assignment.axis, plan.axis.bins)
    tree = (axis.bins,) if flat else plan.tree
    totals, positives = (
        np.bincount(assignment.bins[rows], minlength=axis.bins) for rows in (slice(None), labels)
    )
    source, levels = SimulatedKeystream(int(rng.integers(2**63))), []
    for depth, law in enumerate(plan.noise_laws(shares=cell.parties)):
        exact = positives.reshape(1, math.prod(tree[: depth + 1]), -1).sum(axis=2)
        levels.append(exact + law.draw(source, exact.shape))
    (noisy,) = consistent(levels, tree, variances)
    return LabelCounts(axis, np.array([totals - noisy, noisy]), tree, variances)


def intervals(pooled: LabelCounts, threshold: float) -> np.ndarray:
    """Low and high of each metric."""
    reading, at = Reading(pooled, fg.Aligned(), LEVEL), AtThreshold(pooled, threshold, LEVEL)
    answers = (
        ranking.roc_auc(reading),
        at.recall,
        at.precision,
        ranking.average_precision(reading),
    )
    return np.array([(each.low, each.high) for each in answers])


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """Simulate one cell: share answered, then coverage and mean width of each metric."""
    plan, truth = cell.plan(), Population(cell.rate, cell.separation)
    variances = plan.noise_variances(cell.parties)
    wanted, precision = truth.threshold(), truth.average_precision()
    held, below, widths = [], [], []
    for _ in range(runs):
        pooled = release(cell, plan, variances, rng)
        if pooled.hidden:
            continue
        edges = pooled.axis.thresholds
        at = float(edges[np.argmin(np.abs(edges - wanted))])
        true = np.array([truth.auc, *truth.rates(at), precision])
        low, high = intervals(pooled, at).T
        held.append((low <= true) & (true <= high))
        below.append(high < true)
        widths.append(high - low)
    found = {"bins": plan.axis.bins, "levels": len(plan.tree), "answered": len(held) / runs}
    if held:
        means = zip(LIMITS, *(np.mean(each, axis=0) for each in (held, below, widths)), strict=True)
        for name, covers, too_low, width in means:
            found |= {f"{name} covers": covers, f"{name} below": too_low, f"{name} width": width}
    return found


def table(found: Sequence[Found[Cell]]) -> None:
    """Coverage of each metric by cell."""
    print(f"{'M':>7} {'rate':>5} {'sep':>4} {'eps':>4} {'K':>4} {'hint':>5} {'bins':>9}", end="")
    print(f" {'answered':>8}", *(f"{name:>9}" for name in LIMITS))
    for each in found:
        c = each.cell
        print(f"{c.examples:>7} {c.rate:>5} {c.separation:>4} {c.epsilon:>4}", end="")
        bins = f"{each['bins']:.0f} ({each['levels']:.0f})"
        print(f" {c.parties:>4} {c.hint:>5.3g} {bins:>9} {each['answered']:>8.1%}", end="")
        covered = (each.values.get(f"{name} covers", math.nan) for name in LIMITS)
        print("".join(f" {share:>9.1%}" for share in covered))


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """Coverage within its limits, but for chance."""
    judged = [each for each in found if each["answered"] >= FEWEST]
    for name, (least, most) in LIMITS.items():
        odd = []
        for each in judged:
            share, number = each[f"{name} covers"], each["answered"] * each.runs
            if not (least - _stray(least, number) <= share <= most + _stray(most, number)):
                odd.append(f"{describe(each.cell)}: {share:.1%}")
        yield Check(f"{name} covers {least:.0%} to {most:.0%}", not odd, "; ".join(odd))


def _stray(share: float, number: float) -> float:
    return CHANCE * math.sqrt(share * (1 - share) / number)


CELLS = [
    Cell(examples, rate, separation, epsilon, parties, hinted)
    for epsilon in (1.0, 0.3)
    for examples, rate, separation, parties, hinted in (
        (500, 0.5, 1.0, 10, 1.0),
        (500, 0.2, 1.5, 10, 1.0),
        (500, 0.2, 1.5, 10, 0.25),
        (500, 0.2, 1.5, 10, 4.0),
        (2_000, 0.2, 1.5, 3, 1.0),
        (2_000, 0.2, 1.5, 10, 0.25),
        (2_000, 0.05, 2.0, 10, 1.0),
        (2_000, 0.05, 2.0, 10, 4.0),
        (10_000, 0.2, 1.0, 10, 1.0),
        (10_000, 0.2, 1.5, 2, 4.0),
        (10_000, 0.05, 1.5, 10, 1.0),
        (10_000, 0.05, 2.0, 10, 0.25),
        (10_000, 0.05, 1.5, 10, 4.0),
        (100_000, 0.2, 1.5, 10, 1.0),
        (100_000, 0.2, 1.5, 458, 0.25),
        (100_000, 0.01, 2.0, 10, 1.0),
        (100_000, 0.01, 1.5, 10, 0.25),
        (100_000, 0.01, 1.5, 10, 4.0),
    )
]
STUDY = Study(
    "label_coverage",
    __doc__,
    cells=CELLS,
    quick_cells=[cell for cell in CELLS if cell.examples < 100_000],
    run=run,
    runs=2_000,
    quick_runs=200,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
