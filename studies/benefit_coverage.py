"""Do intervals of net benefit cover where few examples decide? Exact sums, one threshold a cell.

    python studies/benefit_coverage.py           # 2,000 datasets in each of 568 cells, 3 minutes
    python studies/benefit_coverage.py --quick   # a small, seeded run

Scores are those of a calibrated model on two normal classes, moved by `shift` deviations where the
cells are drawn at random. An interval that covers less than 92% must come with a caution in most
datasets. Noise and planned axes are in `calibration_coverage.py`.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import expit, logit
from scipy.stats import binom, norm

from fedgauge.metrics.decisions import Worth, benefit_of_model, benefit_over_all
from fedgauge.metrics.estimate import critical
from fedgauge.metrics.thresholds import Corner, Outcomes
from runner import Check, Found, Study, describe, main

Z = critical(0.95)
LEAST = 0.92
DRAWN = 400
CHANCE = 1e-4  # that a cell which covers 92% is called low
NOTHING = np.zeros((4, 4))


@dataclass(frozen=True)
class Cell:
    """Examples, share of positives, distance of the classes, threshold, and how far it is off."""

    examples: int
    rate: float
    separation: float
    threshold: float
    shift: float = 0.0

    def outcomes(self) -> Outcomes:
        """Shares of the four outcomes in the population."""
        cut = logit(self.threshold) - logit(self.rate) + self.separation**2 / 2
        at = cut / self.separation + self.shift
        tpr, fpr = norm.sf(at - self.separation), norm.sf(at)
        rest = 1.0 - self.rate
        return Outcomes(
            tp=self.rate * tpr, fp=rest * fpr, fn=self.rate * (1 - tpr), tn=rest * (1 - fpr)
        )


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """How often the interval holds the net benefit, and its difference to treating all."""
    shares = np.array(cell.outcomes())
    drawn, times = np.unique(
        rng.multinomial(cell.examples, shares / shares.sum(), size=runs), axis=0, return_counts=True
    )
    found = {}
    for name, formula in (
        ("model", benefit_of_model(cell.threshold)),
        ("over all", benefit_over_all(cell.threshold)),
    ):
        truth, weights = formula.value(Outcomes(*shares)), np.array(formula.weights)
        held, warned = np.array([_judged(formula, row, truth) for row in drawn.tolist()]).T
        found |= {
            f"{name} covers": float(held @ times) / runs,
            f"{name} caution": float(warned @ times) / runs,
            f"{name} expected": cell.examples * float(shares[weights != 0].min()),
        }
    return found


def _judged(formula: Worth, counts: list[int], truth: float) -> tuple[bool, bool]:
    corner = Corner(Outcomes(*counts), Outcomes(*counts), NOTHING)
    low, high = formula.interval(corner, Z, sampling=True)
    return low <= truth <= high, formula.caution([corner]) is not None


def table(found: Sequence[Found[Cell]]) -> None:
    """The cells of the grid together, those drawn together, and the worst ones."""
    for name in ("model", "over all"):
        grid = [each for each in found if each.cell.shift == 0]
        drawn = [each for each in found if each.cell.shift != 0]
        for what, part in (("grid", grid), ("drawn", drawn)):
            if part:
                covers = np.array([each[f"{name} covers"] for each in part])
                share = np.mean(covers >= LEAST)
                print(
                    f"{name:>9}, {what:>5}: {len(part):>4} cells, least {covers.min():.1%}", end=""
                )
                print(f", at least {LEAST:.0%} in {share:.1%} of them")
        for each in sorted(found, key=lambda each: each[f"{name} covers"])[:5]:
            print(f"    {each[f'{name} covers']:.1%} in {describe(each.cell)}", end="")
            print(
                f"; {each[f'{name} expected']:.2f} expected, caution {each[f'{name} caution']:.0%}"
            )
    print()


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """What covers too little says so."""
    for name in ("model", "over all"):
        low = [
            f"{describe(each.cell)}: {each[f'{name} covers']:.1%}"
            for each in found
            if _is_low(each, name) and each[f"{name} caution"] <= 0.5
        ]
        yield Check(f"{name}: at least {LEAST:.0%}, or a caution", not low, "; ".join(low))


def _is_low(found: Found[Cell], name: str) -> bool:
    """Whether it covers less than it should, beyond what chance does to one cell of many."""
    held = round(found[f"{name} covers"] * found.runs)
    return bool(binom.cdf(held, found.runs, LEAST) < CHANCE)


def drawn_cells(number: int) -> list[Cell]:
    """Cells of any size, share of positives and threshold."""
    rng = np.random.default_rng(0)
    return [
        Cell(
            examples=round(np.exp(rng.uniform(*np.log([50, 5000])))),
            rate=round(float(np.exp(rng.uniform(*np.log([0.005, 0.6])))), 4),
            separation=round(rng.uniform(0.3, 3.0), 2),
            threshold=round(float(expit(rng.uniform(-4.5, 4.5))), 4),
            shift=round(rng.normal(), 2) or 0.01,
        )
        for _ in range(number)
    ]


GRID = [
    Cell(*each)
    for each in product(
        (200, 500, 2000, 5000),
        (0.02, 0.1, 0.3),
        (1.0, 2.0),
        (0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.95),
    )
]
STUDY = Study(
    "benefit_coverage",
    __doc__,
    cells=[*GRID, *drawn_cells(DRAWN)],
    quick_cells=[*GRID[::12], *drawn_cells(DRAWN)[::40]],
    run=run,
    runs=2_000,
    quick_runs=200,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
