"""Errors against bins, examples and epsilon, next to the bounds that two papers prove.

X&C, Xu & Cormode (2025), bound the Area Error; C&M, Cormode & Markov (2023), the AUC and precision,
recall and accuracy at a threshold. A bound holds up to a constant: it is scaled to pass through the
first point, and errors keep to it where their fitted slope is not above the bound's, up to chance.

1a. Exact sums, Area Errors and AUC error against bins. Populations of 10^12 examples, since in a
    sample of n the roughness of the data, about (n bins)^(-1/2), hides what binning costs.
1b. The same on drawn rows, where it does: slopes near -1/2 are that roughness. Also next to the
    bounds with the constants of their proofs.
2.  Exact sums, rates at thresholds between edges against bins, on populations.
3a. Distributed DP, errors against n and epsilon with the planner's design, whose bins are not
    those that balance the theorems. At a fixed n much of the error is there without noise.
3b. The part of the noise alone, on scores of 64 known values, where binning costs nothing.
4.  Distributed DP, rates at thresholds with (n epsilon)^(2/3) bins, which balances the theorem.

With 5% positives n starts at 10^4: the theorems need n well above the noise.

    python studies/slopes.py                  # 4 minutes of a core
    python studies/slopes.py --quick          # fewer points and runs
    python studies/slopes.py --only "part=3a"
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from error_series import (
    WORLDS,
    Series,
    Setting,
    World,
    against_bins,
    against_bins_drawn,
    by_examples,
    noise_errors,
    noisy_rates,
    planned_errors,
    rates_against_bins,
)
from log_slopes import exponent, fit, keeps, scaled
from runner import Check, Found, Study, describe, main

NEAR = 0.1  # to a bound's slope: few examples, whose counts repair improves, flatten others
SHARES = {"1a": 0.05, "1b": 0.03, "2": 1.0, "3a": 0.12, "3b": 1.0, "4": 0.24}  # of the runs
AGAINST_BINS = {"1a": against_bins, "1b": against_bins_drawn, "2": rates_against_bins}
PRIVATE = {"3a": planned_errors, "3b": noise_errors, "4": noisy_rates}


@dataclass(frozen=True)
class Cell:
    """A part of the study in one world; so many points, if not all budgets."""

    part: str
    family: str
    rate: float
    variable: str
    points: int

    def series(self, rng: np.random.Generator, runs: int) -> Iterator[Series]:
        """Errors of each quantity."""
        world, runs = World(self.family, self.rate), max(round(runs * SHARES[self.part]), 3)
        if self.part in AGAINST_BINS:
            bins = [2**k for k in range(4, 4 + self.points)]
            chosen = bins[::2] if self.part == "1a" else bins
            yield from AGAINST_BINS[self.part](world, chosen, runs, rng)
            return
        settings = [Setting(100_000, e) for e in (0.1, 0.3, 1.0, 3.0)]
        if self.variable == "n epsilon":
            settings = by_examples(world, [round(10 ** (3 + k / 2)) for k in range(self.points)])
        yield from PRIVATE[self.part](world, settings, self.variable, runs, rng)


def grid(points: int) -> list[Cell]:
    """All parts in all worlds."""
    kinds = [(part, "bins", points) for part in AGAINST_BINS]
    kinds += [(part, "n epsilon", points) for part in PRIVATE]
    kinds += [(part, "epsilon", 4) for part in PRIVATE]
    return [Cell(part, *world, *rest) for part, *rest in kinds for world in WORLDS]


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """The figures of a part, named `quantity | x | what`, with what is fitted below `slope`."""
    found = {}
    for series in cell.series(rng, runs):
        mean = series.errors.mean(axis=0)
        chance = series.errors.std(axis=0, ddof=1) / np.sqrt(len(series.errors))
        slope = fit(series.x, series.errors)
        columns = {"error": mean, "s.e.": chance}
        fitted = {"value": slope.slope, "low": slope.low, "high": slope.high}
        for bound in series.bounds:
            columns[bound.source] = scaled(series, bound)
            fitted[bound.source] = exponent(series.x, bound)
            fitted[f"keeps {bound.source}"] = keeps(series, bound)
        for what, values in columns.items():
            for x, value in zip(series.x, values, strict=True):
                found[f"{series.quantity} | {x:g} | {what}"] = value
        for what, value in fitted.items():
            found[f"{series.quantity} | slope | {what}"] = value
    return found


def by_quantity(found: Found[Cell]) -> dict[str, dict[str, dict[str, float]]]:
    """Figures of a cell by quantity and x."""
    nested: dict[str, dict[str, dict[str, float]]] = {}
    for name, value in found.values.items():
        quantity, x, what = name.split(" | ")
        nested.setdefault(quantity, {}).setdefault(x, {})[what] = value
    return nested


def sources(fitted: dict[str, float]) -> list[str]:
    """The bounds that a quantity is held against."""
    return [name.removeprefix("keeps ") for name in fitted if name.startswith("keeps ")]


def print_points(found: Found[Cell]) -> None:
    """Print each point next to the bounds, and how much of a bound it uses."""
    cell = found.cell
    for quantity, points in by_quantity(found).items():
        print(f"\n{cell.part} {World(cell.family, cell.rate)}; {quantity}")
        held = sources(points.pop("slope"))
        print(f"{cell.variable:>12} {'error':>10} {'s.e.':>10}", *held, sep="   ")
        for x, at in points.items():
            bounds = [f"{at[one]:.2e} ({at['error'] / at[one]:.3f})" for one in held]
            print(f"{float(x):12g} {at['error']:10.2e} {at['s.e.']:10.1e}", *bounds, sep="   ")


def table(found: Sequence[Found[Cell]]) -> None:
    """All points, then one line for each slope."""
    for each in found:
        print_points(each)
    print("\nSlopes in log-log with 95% intervals, the bound's slope, and whether it is kept:")
    print("(A bound with a constant is kept where errors stay below it. Elsewhere, where slopes")
    print('are equal, chance says "no" once in 40 times.)')
    for each in found:
        cell, world = each.cell, World(each.cell.family, each.cell.rate)
        for quantity, points in by_quantity(each).items():
            fitted = points["slope"]
            for source in sources(fitted):
                print(
                    f"{cell.part:2} {world!s:24} {quantity:15} {cell.variable:9} "
                    f"{fitted['value']:6.2f} [{fitted['low']:6.2f}, {fitted['high']:6.2f}] "
                    f"{fitted[source]:6.2f}  {'yes' if fitted[f'keeps {source}'] else 'no':3}  "
                    f"{source}"
                )


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """Bounds with their own constants everywhere; slopes where nothing else hides them.

    In 1b that is the roughness of drawn rows, in 3a the error that is there without noise.
    """
    above, steep = [], []
    for each in found:
        for quantity, points in by_quantity(each).items():
            fitted = points["slope"]
            for source in sources(fitted):
                where = f"{describe(each.cell)}: {quantity}, {source}"
                if "constant" in source:
                    above += [] if fitted[f"keeps {source}"] else [where]
                elif each.cell.part not in ("1b", "3a") and fitted["low"] > fitted[source] + NEAR:
                    steep.append(f"{where}: {fitted['value']:.2f}")
    yield Check("no error is above a bound with its constant", not above, "; ".join(above))
    yield Check(f"no slope is {NEAR} above its bound's", not steep, "; ".join(steep))


STUDY = Study(
    "slopes",
    __doc__,
    cells=grid(7),
    quick_cells=grid(5),
    run=run,
    runs=100,
    quick_runs=30,
    table=table,
    checks=checks,
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
