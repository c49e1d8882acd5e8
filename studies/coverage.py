"""Do the intervals cover? Thousands of simulated datasets per cell, against the known truth.

    python studies/coverage.py               # 2,000 datasets in each cell, about half an hour
    python studies/coverage.py --quick       # a small, seeded run
    python studies/coverage.py --runs 500 --only "privacy=ddp 0.3"

Scores are probabilities that a well calibrated model gives to two normal classes, so every
population value is an integral. A cell is a size, a share of positives, a separation of the
classes and a privacy model. For each metric it prints how many of the 95% intervals hold the
population value, and their mean width over that of an oracle: the textbook interval of the
noise-free pooled data, widened by the variance of the noise.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom, norm, rankdata

import fedgauge as fg
from fedgauge.estimation.counts import PooledCounts
from fedgauge.estimation.repair import consistent
from fedgauge.metrics import areas, ranking
from fedgauge.metrics.estimate import (
    Interval,
    add_noise,
    critical,
    log_interval,
    logit_interval,
)
from fedgauge.metrics.ranking import Reading
from fedgauge.metrics.thresholds import AtThreshold, ThresholdOutcomes
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy.keystream import SimulatedKeystream
from runner import Check, Found, Study, describe, main

CLIENTS = 20
LEVEL = 0.95
LEAST = 0.94  # coverage that no cell may be significantly below
WIDEST = 1.25  # times the oracle's width
FEWEST = 100  # answers to judge a cell by
METRICS = ("AUC", "AP", "precision", "recall", "accuracy", "log loss")
Z = critical(LEVEL)


@dataclass(frozen=True)
class Cell:
    """One setting."""

    examples: int
    rate: float
    separation: float
    privacy: str

    @property
    def epsilon(self) -> float | None:
        """The budget, None without noise."""
        return None if self.privacy == "sa" else float(self.privacy.split()[1])

    @property
    def bias(self) -> float:
        """Log-odds that calibrate the score."""
        return math.log(self.rate / (1.0 - self.rate))

    def plan(self) -> EvaluationPlan:
        """What `fg.evaluate` does, where the hints are stated."""
        if self.epsilon is None:
            axis, cohort = fg.Axis.uniform(4096), fg.Cohort(CLIENTS)
            return EvaluationPlan.under(fg.SecureAggregation(), axis, cohort=cohort)
        return fg.planner.propose(
            privacy=fg.DistributedDP(self.epsilon),
            clients=CLIENTS,
            examples=self.examples,
            positive_rate=self.rate,
        )

    def threshold(self, plan: EvaluationPlan) -> float:
        """The last bin edge up to a score that about as many examples exceed as are positive."""
        wanted = 0.5 if self.rate > 0.3 else 0.25
        edges = plan.axis.thresholds
        return float(edges[edges <= wanted].max())


def population(cell: Cell, threshold: float) -> np.ndarray:
    """The true values, by integration."""
    d, rate = cell.separation, cell.rate
    x = np.linspace(-d / 2 - 9, d / 2 + 9, 400_001)
    positive, negative = norm.pdf(x, d / 2), norm.pdf(x, -d / 2)
    step = x[1] - x[0]
    recall, fpr = norm.sf(x, d / 2), norm.sf(x, -d / 2)
    precision = rate * recall / (rate * recall + (1 - rate) * fpr)
    odds = d * x + cell.bias
    loss = rate * positive * np.logaddexp(0, -odds) + (1 - rate) * negative * np.logaddexp(0, odds)
    at = (math.log(threshold / (1 - threshold)) - cell.bias) / d
    tp, fp = rate * norm.sf(at, d / 2), (1 - rate) * norm.sf(at, -d / 2)
    return np.array(
        [
            norm.cdf(d / math.sqrt(2)),
            float(np.sum(positive * precision) * step),
            tp / (tp + fp),
            tp / rate,
            1 - (rate - tp) - fp,
            float(np.sum(loss) * step),
        ]
    )


def draw(cell: Cell, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores of one dataset."""
    labels = rng.random(cell.examples) < cell.rate
    d = cell.separation
    x = rng.normal(np.where(labels, d / 2, -d / 2), 1.0)
    return labels, 1.0 / (1.0 + np.exp(-(d * x + cell.bias)))


def release(plan: EvaluationPlan, exact: np.ndarray, seed: int) -> PooledCounts:
    """The counts as the server gets them."""
    laws = plan.noise_laws(shares=CLIENTS)
    if not laws:
        return PooledCounts(plan.axis, exact, plan.tree)
    source = SimulatedKeystream(seed)
    levels = []
    for depth, law in enumerate(laws):
        nodes = math.prod(plan.tree[: depth + 1])
        counts = exact.reshape(2, nodes, -1).sum(axis=2)
        levels.append(counts + law.draw(source, counts.shape))
    variances = tuple(law.variance for law in laws)
    counts = consistent(levels, plan.tree, variances)
    return PooledCounts(plan.axis, counts, plan.tree, variances)


def intervals(pooled: PooledCounts, threshold: float) -> np.ndarray:
    """What fedgauge says: low and high of each metric."""
    reading, at = Reading(pooled, fg.Aligned(), LEVEL), AtThreshold(pooled, threshold, LEVEL)
    answers = [
        ranking.roc_auc(reading),
        ranking.average_precision(reading),
        at.precision,
        at.recall,
        at.accuracy,
        ranking.mean_loss(reading, "log"),
    ]
    return np.array([(each.low, each.high) for each in answers])


def oracle(labels: np.ndarray, scores: np.ndarray, noise: np.ndarray, at: float) -> np.ndarray:
    """Textbook intervals of the pooled data, widened by known standard deviations of noise."""
    positives, negatives = int(labels.sum()), int((~labels).sum())
    ranks = rankdata(scores)
    of_positives = (ranks[labels] - rankdata(scores[labels])) / negatives
    of_negatives = 1.0 - (ranks[~labels] - rankdata(scores[~labels])) / positives
    auc = of_positives.mean()
    deviation = math.sqrt(
        of_positives.var(ddof=1) / positives + of_negatives.var(ddof=1) / negatives
    )
    found = [(auc, logit_interval(auc, deviation, Z))]
    order = np.argsort(scores)
    each = np.array([~labels[order], labels[order]], dtype=float)
    ap = float(areas.straight_average_precision(each))
    deviation = math.sqrt(np.sum(each * areas.average_precision_gradient(each) ** 2))
    found.append((ap, logit_interval(ap, deviation, Z)))
    flagged = scores >= at
    for right, of in (
        (labels[flagged], flagged.sum()),
        (flagged[labels], positives),
        (flagged == labels, len(labels)),
    ):
        share = right.sum() / max(of, 1)
        found.append((share, _wilson(share, max(int(of), 1))))
    losses = -np.log(np.where(labels, scores, 1.0 - scores))
    deviation = losses.std(ddof=1) / math.sqrt(len(losses))
    found.append((losses.mean(), log_interval(losses.mean(), deviation, Z)))
    return np.array(
        [add_noise(value, span, sd, Z) for (value, span), sd in zip(found, noise, strict=True)]
    )


def _wilson(share: float, of: int) -> Interval:
    middle = (share + Z * Z / (2 * of)) / (1 + Z * Z / of)
    half = Z * math.sqrt(share * (1 - share) / of + Z * Z / (4 * of * of)) / (1 + Z * Z / of)
    return Interval(middle - half, middle + half)


def noise_deviations(pooled: PooledCounts, exact: np.ndarray, threshold: float) -> np.ndarray:
    """Standard deviations that the noise gives each metric, to first order, at the truth."""
    if not pooled.noisy:
        return np.zeros(len(METRICS))
    rows = exact.astype(float)
    clean = PooledCounts(pooled.axis, rows, pooled.tree, pooled.variances, shrinks=False)
    (corner,) = ThresholdOutcomes(clean, threshold).corners  # of a bin edge
    at = (AtThreshold.precision, AtThreshold.recall, AtThreshold.accuracy)
    return np.array(
        [
            math.sqrt(clean.noise_variance(areas.auc_gradient(clean.counts))),
            math.sqrt(clean.noise_variance(areas.average_precision_gradient(clean.counts))),
            *(math.sqrt(each.formula.variances(corner)[0]) for each in at),
            ranking.mean_loss(Reading(clean, fg.Aligned(), LEVEL), "log").parts["noise"],
        ]
    )


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """Simulate one cell: share answered, then coverage and relative width of each metric."""
    plan = cell.plan()
    at = cell.threshold(plan)
    truth = population(cell, at)
    held, ours, theirs = [], [], []
    for _ in range(runs):
        labels, scores = draw(cell, rng)
        index = plan.axis.index(scores)
        exact = np.bincount(index + labels * plan.axis.bins, minlength=2 * plan.axis.bins)
        exact = exact.reshape(2, -1)
        pooled = release(plan, exact, int(rng.integers(2**63)))
        if min(exact.sum(axis=1)) < 2 or pooled.hidden:
            continue
        try:
            spans = intervals(pooled, at)
        except fg.UndefinedMetric:  # noise hides the flagged examples
            continue
        held.append((spans[:, 0] <= truth) & (truth <= spans[:, 1]))
        ours.append(spans[:, 1] - spans[:, 0])
        wide = oracle(labels, scores, noise_deviations(pooled, exact, at), at)
        theirs.append(wide[:, 1] - wide[:, 0])
    found = {"bins": plan.axis.bins, "levels": len(plan.tree), "answered": len(held)}
    if held:
        ratios = np.mean(ours, axis=0) / np.mean(theirs, axis=0)
        for name, covered, ratio in zip(METRICS, np.mean(held, axis=0), ratios, strict=True):
            found |= {f"{name} coverage": covered, f"{name} width": ratio}
    return found


def grid(*sizes: int) -> list[Cell]:
    """All settings of some sizes."""
    return [
        Cell(examples, rate, separation, privacy)
        for privacy in ("sa", "ddp 1", "ddp 0.3")
        for examples in sizes
        for rate in (0.5, 0.1)
        for separation in (1.0, 2.0)
    ]


def table(found: Sequence[Found[Cell]]) -> None:
    """Coverage and width of each metric, by cell."""
    print("coverage% and width over the oracle's")
    print(f"{'n':>6} {'rate':>4} {'sep':>3} {'privacy':>7} {'bins':>9} {'answered':>8}", end="")
    print("".join(f"{name:>14}" for name in METRICS))
    for each in found:
        c = each.cell
        print(
            f"{c.examples:>6} {c.rate:>4} {c.separation:>3.0f} {c.privacy:>7} "
            f"{each['bins']:>5.0f} ({each['levels']:.0f}) {each['answered'] / each.runs:>8.0%}",
            end="",
        )
        if each["answered"] < FEWEST:
            print("  not judged: noise hides a class in nearly all datasets")
            continue
        pairs = ((each[f"{name} coverage"], each[f"{name} width"]) for name in METRICS)
        print("".join(f"{covered:>8.1%} {width:>4.2f}x" for covered, width in pairs))


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """Coverage that is not significantly below 94%, 5% over all tests, and widths."""
    judged = [each for each in found if each["answered"] >= FEWEST]
    narrow, wide = [], []
    for each in judged:
        answered = round(each["answered"])
        for name in METRICS:
            covered, width = each[f"{name} coverage"], each[f"{name} width"]
            chance = binom.cdf(round(covered * answered), answered, LEAST)
            if chance < 0.05 / (len(judged) * len(METRICS)):
                narrow.append(f"{describe(each.cell)}: {name} {covered:.1%}")
            if width > WIDEST:
                wide.append(f"{describe(each.cell)}: {name} {width:.2f}x")
    yield Check("no interval covers significantly less than 94%", not narrow, "; ".join(narrow))
    yield Check(f"no width above {WIDEST} of the oracle's", not wide, "; ".join(wide))


STUDY = Study(
    "coverage",
    __doc__,
    cells=grid(500, 5_000, 50_000),
    quick_cells=grid(500, 5_000),
    run=run,
    runs=2_000,
    quick_runs=200,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
