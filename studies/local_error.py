"""Error of the AUC under local DP against the number of reports: it falls like n^(-1/2).

    python studies/local_error.py            # 40 runs in each cell
    python studies/local_error.py --quick    # up to 100,000 reports

Balanced rows with an AUC near 0.85; axis and tree as the planner chooses them for a million. The
paper reports 5e-3 at epsilon 5 and a million reports.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from scipy.special import expit

import fedgauge as fg
from fedgauge.privacy.local import OracleKind
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


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """The mean absolute error of the AUC of the same rows, reported again and again."""
    plan, data = cell.plan(), draw_rows(cell.reports, rng)
    exact = fg.exact_roc_curve(*data).path.area()
    errors = []
    for _ in range(runs):
        result = fg.evaluate({"all": data}, plan, seed=int(rng.integers(2**32)))
        try:
            errors.append(abs(result.roc_curve().path.area() - exact))
        except fg.NoSignal:
            errors.append(0.5)
    chance = np.std(errors, ddof=1) / math.sqrt(runs) if runs > 1 else math.nan
    return {"bins": plan.axis.bins, "error": np.mean(errors), "standard error": chance}


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
            reports, error = one.cell.reports, one["error"]
            print(f"  {reports:>9,} reports: {error:.1e} (s.e. {one['standard error']:.0e})")
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
    runs=40,
    quick_runs=10,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
