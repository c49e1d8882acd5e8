"""Do intervals cover where bins were found in the rows they count? 95% ones, of known truths.

    python studies/two_round_coverage.py     # 1,000 datasets in each cell, 5 minutes of a core
    python studies/two_round_coverage.py --quick

Two normal classes on scales that nobody knows, so every population value is an integral. Precision
and recall are read at the bin edge next to a fixed score.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom, norm

import fedgauge as fg
from runner import Check, Found, Study, describe, main
from score_scales import SCALES, SEPARATION, draw

BACK: Mapping[str, Callable[[float], float]] = {
    "margins": lambda score: score / 3.0 + 0.7,
    "lognormal": lambda score: math.log(score) / 1.5,
}
METRICS = ("AUC", "AP", "precision", "recall")
LEAST = 0.94  # coverage that no cell may be significantly below
MIDDLE = 1.0  # where the classes are told apart, before they are scaled


@dataclass(frozen=True)
class Cell:
    """One setting; epsilon 0 stands for exact sums."""

    scale: str
    epsilon: float
    rows: int
    rate: float = 0.3

    def evaluate(self, rng: np.random.Generator) -> fg.Evaluation:
        """The result of a new dataset."""
        rows = draw(self.scale, self.rate, rng, self.rows)
        privacy = fg.DistributedDP(self.epsilon) if self.epsilon else fg.SecureAggregation()
        clients = {str(i): tuple(column[i::2] for column in rows) for i in range(2)}
        cohort, seed = fg.Cohort(2, 0), int(rng.integers(2**32))
        return fg.evaluate(clients, privacy=privacy, axis=fg.TwoRound(48), cohort=cohort, seed=seed)

    def average_precision(self) -> float:
        """Of the population."""
        z = np.linspace(-9.0, 9.0 + SEPARATION, 200_001)
        positive, negative = norm.sf(z, SEPARATION), norm.sf(z)
        flagged = self.rate * positive + (1 - self.rate) * negative
        density = norm.pdf(z, SEPARATION) * (z[1] - z[0])
        return float(np.sum(density * self.rate * positive / flagged))

    def at(self, z: float) -> tuple[float, float]:
        """Precision and recall of the population."""
        recall, fpr = float(norm.sf(z, SEPARATION)), float(norm.sf(z))
        return self.rate * recall / (self.rate * recall + (1 - self.rate) * fpr), recall


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """The share of intervals that hold the truth, and their mean width."""
    auc, ap = float(norm.cdf(SEPARATION / math.sqrt(2))), cell.average_precision()
    wanted = float(SCALES[cell.scale](np.array(MIDDLE)))
    held, widths = [], []
    for _ in range(runs):
        result = cell.evaluate(rng)
        edges = result.axis.edges[1:-1]
        edge = float(edges[np.argmin(np.abs(edges - wanted))])
        at = result.at_threshold(edge)
        answers = (result.roc_auc, result.average_precision, at.precision, at.recall)
        truth = (auc, ap, *cell.at(BACK[cell.scale](edge)))
        held.append([a.low <= value <= a.high for a, value in zip(answers, truth, strict=True)])
        widths.append([each.high - each.low for each in answers])
    return {
        f"{name} {what}": value
        for what, values in (("coverage", held), ("width", widths))
        for name, value in zip(METRICS, np.mean(values, axis=0), strict=True)
    }


def table(found: Sequence[Found[Cell]]) -> None:
    """Coverage by cell."""
    print(f"{'scale':>10} {'epsilon':>7} {'rows':>6}" + "".join(f"{m:>18}" for m in METRICS))
    for each in found:
        cell = each.cell
        pairs = ((each[f"{name} coverage"], each[f"{name} width"]) for name in METRICS)
        print(
            f"{cell.scale:>10} {cell.epsilon:>7g} {cell.rows:>6}"
            + "".join(f"{covered:>9.1%} ({width:.4f})"[:18].rjust(18) for covered, width in pairs)
        )


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """Coverage that is not significantly below 94%, 5% over all tests."""
    tests = len(found) * len(METRICS)
    narrow = [
        f"{describe(each.cell)}: {name} {each[f'{name} coverage']:.1%}"
        for each in found
        for name in METRICS
        if binom.cdf(round(each[f"{name} coverage"] * each.runs), each.runs, LEAST) < 0.05 / tests
    ]
    yield Check("no interval covers significantly less than 94%", not narrow, "; ".join(narrow))


STUDY = Study(
    "two_round_coverage",
    __doc__,
    cells=[Cell(s, eps, rows) for s in BACK for eps in (0.0, 1.0) for rows in (5_000, 50_000)],
    quick_cells=[Cell(scale, eps, 5_000) for scale in BACK for eps in (0.0, 1.0)],
    run=run,
    runs=1_000,
    quick_runs=200,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
