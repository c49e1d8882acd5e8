"""How often intervals of `fg.diff` hold the true difference, where rows are in both results.

    python studies/diff_coverage.py            # 500 pairs of results in each cell
    python studies/diff_coverage.py --quick    # 60

Two results of two models. A share `shared` of the rows of the first is in the second too, where
scores of both models go together by `correlation` in each class: below 0 they err against each
other, the worst that can be. Log-odds are normal. Each row of the table has how often the intervals
at 95% hold the difference of the AUCs and of the recalls at 0.5: those for rows of their own
(`apart`), and those that `rows="overlapping"` makes as wide as can be (`wide`); and how much wider
these are.

All cells take about 7 minutes on one core.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

import fedgauge as fg
from runner import Check, Found, Study, describe, main

LEVEL = 0.95
AXIS = fg.Axis.uniform(64)
APART = (1.5, 1.2)  # of the classes, in each model
BASE = -1.0  # where the log-odds of negatives lie
AT = 0.5


@dataclass(frozen=True)
class Cell:
    """One setting."""

    examples: int
    shared: float
    correlation: float
    rate: float = 0.3


def draw(cell: Cell, rng: np.random.Generator) -> list[fg.Evaluation]:
    """Two results, of which some rows are the same."""
    labels = rng.random((2, cell.examples)) < cell.rate
    errors = rng.normal(size=(2, cell.examples))
    same = round(cell.shared * cell.examples)
    labels[1, :same] = labels[0, :same]
    alone = math.sqrt(1.0 - cell.correlation**2)
    errors[1, :same] = cell.correlation * errors[0, :same] + alone * errors[1, :same]
    results = []
    for y, error, apart in zip(labels, errors, APART, strict=True):
        scores = 1.0 / (1.0 + np.exp(-(BASE + apart * y + error)))
        results.append(fg.evaluate({"a": (y, scores)}, axis=AXIS))
    return results


def truth() -> tuple[float, float]:
    """The differences of the AUCs and of the recalls."""
    aucs = [norm.cdf(apart / math.sqrt(2.0)) for apart in APART]
    recalls = [norm.cdf(BASE + apart) for apart in APART]
    return aucs[0] - aucs[1], recalls[0] - recalls[1]


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """The shares of intervals that hold the truth."""
    held: dict[str, list[bool]] = {}
    wider = []
    for _ in range(runs):
        results = draw(cell, rng)
        widths = []
        for name, rows in (("apart", "different"), ("wide", "overlapping")):
            found = fg.diff(*results, rows=rows)
            told = found.roc_auc, found.at_threshold(AT).recall
            for metric, estimate, true in zip(("auc", "recall"), told, truth(), strict=True):
                held.setdefault(f"{metric} {name}", []).append(
                    estimate.low <= true <= estimate.high
                )
            widths.append(told[0].high - told[0].low)
        wider.append(widths[1] / widths[0])
    return {name: float(np.mean(each)) for name, each in held.items()} | {
        "wider": float(np.mean(wider))
    }


def cells() -> Iterator[Cell]:
    """Nothing shared, some, all; models that err alike, apart, and against each other."""
    for examples in (2_000, 500):
        yield Cell(examples, 0.0, 0.0)
        for shared in (0.5, 1.0):
            for correlation in (0.9, 0.0, -0.9):
                yield Cell(examples, shared, correlation)


def table(found: Sequence[Found[Cell]]) -> str:
    """The figures in Markdown."""
    names = ("auc apart", "auc wide", "recall apart", "recall wide")
    lines = [f"| cell | {' | '.join(names)} | wider |", "|" + "---|" * (len(names) + 2)]
    for each in found:
        shares = " | ".join(f"{each[name]:.1%}" for name in names)
        lines.append(f"| {describe(each.cell)} | {shares} | {each['wider']:.2f} |")
    return "\n".join(lines)


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """Wide intervals hold the truth whatever is shared; others where nothing is."""
    for each in found:
        least = LEVEL - 3.0 * math.sqrt(LEVEL * (1 - LEVEL) / each.runs)
        kinds = ["wide"] if each.cell.shared else ["wide", "apart"]
        for name in (f"{metric} {kind}" for metric in ("auc", "recall") for kind in kinds):
            what = f"{name} holds: {describe(each.cell)}"
            yield Check(what, each[name] >= least, f"{each[name]:.3f}")


STUDY = Study(
    "diff_coverage",
    __doc__ or "",
    cells=list(cells()),
    run=run,
    runs=500,
    quick_runs=60,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
