"""Two rounds of local reports against edges at the true quantiles and one round of all users.

    python studies/two_rounds_local.py            # 20 runs in each cell of a million reports
    python studies/two_rounds_local.py --quick    # 100,000 reports

Epsilon 5; a tenth of the users find the bins of the others. Scores of three scales that nobody knew
before, and an AUC near 0.85. The error is the ROC Area Error.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

import fedgauge as fg
from runner import Check, Found, Study, main

EPSILON: Final = 5.0
RATE: Final = 0.3
SEPARATION: Final = 1.47
WANTED: Final = 2.0
WORLDS: Final = {
    "margins": lambda z: 3.0 * z,
    "points": lambda z: np.clip(np.rint(600.0 + 80.0 * z), 300.0, 850.0),
    "lognormal": lambda z: np.exp(1.5 * z),
}


@dataclass(frozen=True)
class Cell:
    """Scores of some scale, the bins of the second round, and the users."""

    world: str
    bins: int
    reports: int

    def rows(self, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Labels and scores."""
        labels = (rng.random(self.reports) < RATE).astype(np.int64)
        return labels, WORLDS[self.world](rng.normal(SEPARATION * labels, 1.0))


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """Mean errors with the bins found and with those of the true quantiles, each of new rows."""
    privacy = fg.LocalDP(EPSILON)
    errors: list[tuple[float, float]] = []
    for _ in range(runs):
        labels, scores = cell.rows(rng)
        # Chords of 4,000 levels of scores are within 1e-7 of the curve, and quick to compare with.
        levels = np.unique(np.quantile(scores, np.linspace(0.0, 1.0, 4001)))
        exact = fg.exact_roc_curve(labels, np.searchsorted(levels, scores))
        quantiles = np.unique(np.quantile(scores, np.linspace(0.0, 1.0, cell.bins + 1)))
        oracle = fg.Axis.from_edges(quantiles, outside="clip")
        both = []
        for axis in (fg.TwoRound(cell.bins), oracle):
            seed = int(rng.integers(2**32))
            result = fg.evaluate({"all": (labels, scores)}, privacy=privacy, axis=axis, seed=seed)
            both.append(fg.area_error(result.roc_curve(), exact))
        errors.append((both[0], both[1]))
    found, true = np.mean(errors, axis=0)
    spread = np.std(errors, axis=0, ddof=1) / math.sqrt(runs) if runs > 1 else (math.nan,) * 2
    return {
        "two rounds": found,
        "true quantiles": true,
        "two rounds s.e.": spread[0],
        "true quantiles s.e.": spread[1],
        "ratio": found / true,
    }


def table(found: Sequence[Found[Cell]]) -> None:
    """Errors and their ratio."""
    for each in found:
        cell = each.cell
        print(
            f"{cell.world:9} {cell.bins} bins, {cell.reports:>9,} reports: two rounds "
            f"{each['two rounds']:.2e} (s.e. {each['two rounds s.e.']:.0e}), true quantiles "
            f"{each['true quantiles']:.2e} (s.e. {each['true quantiles s.e.']:.0e}), "
            f"ratio {each['ratio']:.2f}"
        )


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """What not knowing the scale costs."""
    for each in found:
        what = (
            f"{each.cell.world}, {each.cell.bins} bins: at most {WANTED:g}x that of true quantiles"
        )
        yield Check(what, each["ratio"] <= WANTED, f"{each['ratio']:.2f}")


def grid(reports: int) -> list[Cell]:
    """All scales, for a number of users."""
    return [Cell(world, bins, reports) for world in WORLDS for bins in (32, 48)]


STUDY = Study(
    "two_rounds_local",
    __doc__,
    cells=grid(1_000_000),
    quick_cells=grid(100_000),
    run=run,
    runs=20,
    quick_runs=10,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
