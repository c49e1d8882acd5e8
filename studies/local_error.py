"""Error of the AUC under local DP against the number of reports: it falls like n^(-1/2).

    python studies/local_error.py            # 200 runs in each cell
    python studies/local_error.py --quick    # up to 100,000 reports

Balanced rows with an AUC near 0.85; axis and tree as the planner chooses them for a million. The
paper reports 5e-3 at epsilon 5 and a million reports.

The error is that of the AUC of the same rows. Their reports are not made one by one: the server
only adds them up, and their sums are drawn from the law that these have. Beside the error are two
parts of it: what binning leaves without noise, and `linear`, the mean error that noise gives to an
estimate that is linear in the counts and unbiased. An estimate of the same reports has less only by
what it knows beside them: that no count is negative, and that the ratio of classes is smooth.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from scipy.special import expit

import fedgauge as fg
from fedgauge.engines.reports import release_reports
from fedgauge.estimation.counts import PooledCounts, drawn_blocks
from fedgauge.metrics.areas import auc_gradient
from fedgauge.metrics.ranking import Reading
from fedgauge.privacy.local import OracleKind
from fedgauge.privacy.oracles import (
    WHOLE,
    HadamardResponse,
    Tallies,
    UnaryEncoding,
    debias,
)
from runner import Check, Found, Study, main

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
WANTED = {5.0: 1.5e-3, 1.0: 1e-2}
SEPARATION = 1.47
RATE = 0.5


@dataclass(frozen=True)
class Cell:
    """A mechanism and a number of reports."""

    epsilon: float
    oracle: OracleKind
    reports: int

    def plan(self) -> fg.EvaluationPlan:
        """The planner's choice for the most reports."""
        privacy = fg.LocalDP(self.epsilon, oracle=self.oracle)
        return fg.planner.propose(
            privacy=privacy, clients=1, examples=SIZES[-1], positive_rate=RATE
        )


def draw_rows(rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated scores."""
    labels = (rng.random(rows) < RATE).astype(np.int64)
    log_odds = rng.normal(SEPARATION * (labels - 0.5), 1.0)
    return labels, expit(SEPARATION * log_odds)


def draw_tallies(
    oracle: UnaryEncoding | HadamardResponse, counts: np.ndarray, rng: np.random.Generator
) -> Tallies:
    """What reports of so many rows in each cell add up to."""
    if isinstance(oracle, UnaryEncoding):
        others = counts.sum() - counts
        return rng.binomial(counts, 0.5) + rng.binomial(others, oracle.raised / WHOLE)
    said = rng.binomial(counts, 1 - oracle.blank / WHOLE)
    width, rows = oracle.numbers // (2 * oracle.blocks), -(-oracle.cells // oracle.blocks)
    block, row = np.divmod(np.arange(oracle.cells)[:, np.newaxis], rows)
    column = np.arange(width)
    minus = np.bitwise_count(row & column) % 2
    tallies = rng.multinomial((counts - said).sum(), np.full(oracle.numbers, 1 / oracle.numbers))
    np.add.at(
        tallies,
        (2 * block + minus) * width + column,
        rng.multinomial(said, np.full(width, 1 / width)),
    )
    return tallies


def reported(plan: fg.EvaluationPlan, exact: np.ndarray, rng: np.random.Generator) -> PooledCounts:
    """What reports of rows tell that are in these bins."""
    left, tallies, by_level = exact.ravel(), [], []
    for level, oracle in enumerate(plan.oracles):
        drawn = rng.binomial(left, 1 / (len(plan.oracles) - level))
        left = left - drawn
        tallies.append(draw_tallies(oracle, drawn.reshape(oracle.cells, -1).sum(axis=1), rng))
        by_level.append(int(drawn.sum()))
    rows = int(exact.sum())
    levels = debias(plan.oracles, tallies, by_level, len(exact))
    variances = plan.noise_variances(rows)
    released = release_reports(plan, levels, variances, clients=1, reports=rows)
    return PooledCounts.of(plan, released, plan.task.slices[0])


def area(pooled: PooledCounts) -> float:
    """The AUC as a result tells it."""
    return Reading(pooled, fg.Aligned(), 0.95).roc.path.area()


def linear_error(plan: fg.EvaluationPlan, exact: np.ndarray) -> float:
    """Mean error by noise of an unbiased linear estimate: sqrt(2 / pi) standard deviations."""
    rows, contrast = exact.astype(float), plan.task.contrast(plan.task.slices[0])
    drawn = drawn_blocks(plan, rows, contrast)
    variances = plan.noise_variances(int(exact.sum()))
    pooled = PooledCounts(plan.axis, rows, plan.tree, variances, drawn=drawn)
    return math.sqrt(pooled.noise_variance(auc_gradient(rows)) * 2 / math.pi)


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """The mean absolute error of the AUC of the same rows, reported again and again."""
    plan, (labels, scores) = cell.plan(), draw_rows(cell.reports, rng)
    truth, bins = fg.exact_roc_curve(labels, scores).path.area(), plan.axis.bins
    exact = np.bincount(plan.axis.index(scores) + labels * bins, minlength=2 * bins)
    exact = exact.reshape(2, bins)
    errors = []
    for _ in range(runs):
        pooled = reported(plan, exact, rng)
        errors.append(0.5 if pooled.hidden else abs(area(pooled) - truth))
    return {
        "bins": bins,
        "error": np.mean(errors),
        "standard error": np.std(errors, ddof=1) / math.sqrt(runs) if runs > 1 else math.nan,
        "binning": abs(area(PooledCounts(plan.axis, exact, plan.tree)) - truth),
        "linear": linear_error(plan, exact),
    }


def mechanism(found: Found[Cell]) -> tuple[float, str]:
    """What a line of the table is about."""
    return found.cell.epsilon, found.cell.oracle


def slope(group: Sequence[Found[Cell]]) -> float:
    """Of log error against log reports, where there is a signal."""
    used = [(each.cell.reports, each["error"]) for each in group if each["error"] < 0.05]
    logs = np.log(np.array(used))
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]) if len(used) > 1 else math.nan


def table(found: Sequence[Found[Cell]]) -> None:
    """Errors by mechanism, and their slope."""
    for (epsilon, oracle), each in groupby(found, mechanism):
        group = list(each)
        print(f"epsilon {epsilon:g}, {oracle}, {group[0]['bins']:.0f} bins")
        for one in group:
            print(
                f"  {one.cell.reports:>9,} reports: {one['error']:.1e} "
                f"(s.e. {one['standard error']:.0e}), of binning {one['binning']:.0e}, "
                f"linear {one['linear']:.1e}"
            )
        print(f"  slope {slope(group):.2f} (expected: about -0.5)")


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """The error at a million reports."""
    for each in found:
        if each.cell.reports == SIZES[-1]:
            wanted = WANTED[each.cell.epsilon]
            what = f"epsilon {each.cell.epsilon:g}, {each.cell.oracle}, a million reports: "
            kept = each["error"] <= wanted
            yield Check(f"{what}error at most {wanted:.1e}", kept, f"{each['error']:.1e}")


def grid(sizes: Sequence[int]) -> list[Cell]:
    """All mechanisms, for some numbers of reports."""
    oracles: tuple[OracleKind, ...] = ("oue", "hadamard")
    return [Cell(e, oracle, n) for e in WANTED for oracle in oracles for n in sizes]


STUDY = Study(
    "local_error",
    __doc__,
    cells=grid(SIZES),
    quick_cells=grid(SIZES[:3]),
    run=run,
    runs=200,
    quick_runs=10,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
