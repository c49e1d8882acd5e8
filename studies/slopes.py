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

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.special import betainc, expit, logit, ndtr

import fedgauge as fg
from fedgauge.estimation.distribution import ScoreDistribution, estimate
from fedgauge.estimation.piecewise import ParametricCurve, linear_pieces
from fedgauge.estimation.repair import monotone
from fedgauge.measures import curves
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.privacy.shares import ShareLaw
from runner import Check, Found, Study, describe, main

SITES = 20
POPULATION = 10**12
LATTICE = 2**15  # distinct scores of a population; every number of bins divides it
VALUES = 64  # scores of the study of noise alone
FINEST = 2**20  # points for the AUC of a population, whose error falls below a lattice's
THRESHOLDS = 20
NEAR = 0.1  # to a bound's slope: few examples, whose counts repair improves, flatten others
SPREAD = 1.2  # standard deviation of binormal log-odds
AREAS = ("ROC Area Error", "PR Area Error", "AUC error")
RATES = ("precision", "recall", "accuracy")


class World(NamedTuple):
    """A family of score distributions and the share of positives."""

    family: str
    rate: float

    def __str__(self) -> str:
        return f"{self.family}, {self.rate:.0%} positives"

    @property
    def ratio(self) -> float:
        """Positives over negatives."""
        return self.rate / (1 - self.rate)

    def split(self, examples: int) -> tuple[int, int]:
        """Numbers of negatives and positives."""
        positives = round(examples * self.rate)
        return examples - positives, positives

    def cumulative(self, scores: np.ndarray, gap: float) -> np.ndarray:
        """Shares of negatives and positives below each score."""
        if self.family == "beta":
            return np.array([betainc(2, 2 + gap, scores), betainc(2 + gap, 2, scores)])
        with np.errstate(divide="ignore"):
            log_odds = logit(scores)
        return np.array([ndtr((log_odds + side * gap / 2) / SPREAD) for side in (1, -1)])

    def density(self, gap: float) -> float:
        """The largest density of either class: the Lipschitz constant of the theorems."""
        edges = np.linspace(0, 1, LATTICE + 1)
        return float(np.diff(self.cumulative(edges, gap)).max() * LATTICE)

    def draw(self, examples: int, gap: float, rng: np.random.Generator) -> tuple:
        """Labels and scores of independent rows, negatives first."""
        sizes = self.split(examples)
        if self.family == "beta":
            parts = [rng.beta(2, 2 + gap, sizes[0]), rng.beta(2 + gap, 2, sizes[1])]
        else:
            middles = (-gap / 2, gap / 2)
            parts = [expit(rng.normal(m, SPREAD, n)) for m, n in zip(middles, sizes, strict=True)]
        return np.repeat([0, 1], sizes), np.concatenate(parts)

    def counts(self, edges: np.ndarray, gap: float) -> np.ndarray:
        """Counts of a population between edges."""
        sizes = np.array(self.split(POPULATION), dtype=np.float64)
        # Rounded once from below: roundings of single cells would add up.
        below = np.rint(self.cumulative(edges, gap) * sizes[:, np.newaxis])
        return np.diff(below).astype(np.int64)


WORLDS = tuple(World(family, rate) for family in ("binormal", "beta") for rate in (0.5, 0.05))


def draw_gap(rng: np.random.Generator) -> float:
    """How far apart the classes are, from AUC 0.76 to 0.95 or so."""
    return float(rng.uniform(1.5, 2.5))


class Bound(NamedTuple):
    """What a theorem allows at each x; `scaled` up to a constant, else with its own."""

    source: str
    values: np.ndarray
    scaled: bool = True


class Series(NamedTuple):
    """Errors of one quantity, runs by x, and the bounds to hold."""

    quantity: str
    x: np.ndarray
    errors: np.ndarray
    bounds: tuple[Bound, ...]


class Fit(NamedTuple):
    """A slope in log-log and its confidence interval."""

    slope: float
    low: float
    high: float


def fit(x: np.ndarray, errors: np.ndarray, level: float = 0.95) -> Fit:
    """The least-squares slope of log mean error; its interval covers chance, not curvature."""
    centred = np.log(x) - np.log(x).mean()
    weights = centred / (centred @ centred)
    mean = errors.mean(axis=0)
    slope = float(weights @ np.log(mean))
    each = errors / mean @ weights  # the delta method: what each run adds to the slope
    runs = len(errors)
    reach = stats.t.isf((1 - level) / 2, runs - 1) * each.std(ddof=1) / np.sqrt(runs)
    return Fit(slope, slope - reach, slope + reach)


def exponent(x: np.ndarray, bound: Bound) -> float:
    """The slope of a bound over the same points."""
    return float(np.polyfit(np.log(x), np.log(bound.values), 1)[0])


def scaled(series: Series, bound: Bound) -> np.ndarray:
    """The bound through the first point, or with its own constant."""
    factor = series.errors[:, 0].mean() / bound.values[0] if bound.scaled else 1.0
    return factor * bound.values


def keeps(series: Series, bound: Bound, level: float = 0.95) -> bool:
    """Whether the errors keep to a bound, up to chance."""
    if bound.scaled:
        return bool(fit(series.x, series.errors, level).low <= exponent(series.x, bound))
    return bool(np.all(series.errors.mean(axis=0) <= bound.values))


class Truth(NamedTuple):
    """The curves and the AUC that an evaluation should find."""

    roc: fg.RocCurve
    pr: fg.PrCurve
    auc: float


def truth_of(roc: fg.RocCurve, pr: fg.PrCurve) -> Truth:
    """Exact curves and the area below."""
    return Truth(roc, pr, roc.path.area())


def area_errors(roc: fg.RocCurve, pr: fg.PrCurve, truth: Truth) -> tuple[float, float, float]:
    """ROC Area Error, PR Area Error and AUC error."""
    return (
        fg.area_error(roc, truth.roc),
        fg.area_error(pr, truth.pr),
        abs(roc.path.area() - truth.auc),
    )


def both_curves(distribution: ScoreDistribution) -> tuple[fg.RocCurve, fg.PrCurve]:
    """The ROC and the PR curve."""
    return curves.roc_curve(distribution), curves.pr_curve(distribution)


def population_truth(world: World, gap: float, counts: np.ndarray) -> Truth:
    """Curves of a population, straight between the points of the lattice, and its AUC."""
    axis = fg.Axis.from_values(np.arange(LATTICE) / LATTICE)
    roc, pr = both_curves(estimate(axis, counts, fg.Aligned()))
    recall = pr.recall[::-1]
    precision = pr.precision[-2::-1]
    precision = np.append(precision[0], precision)
    width = np.ones(len(recall) - 1)
    path = ParametricCurve(
        width,
        linear_pieces(width, recall[:-1], recall[1:]),
        linear_pieces(width, precision[:-1], precision[1:]),
    )
    below, positives = world.cumulative(np.linspace(0, 1, FINEST + 1), gap)
    auc = float(np.diff(positives) @ (below[1:] + below[:-1]) / 2)
    return Truth(roc, dataclasses.replace(pr, path=path), auc)


def rates_from(found: np.ndarray, wrong: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Precision, recall and accuracy from numbers of positives and negatives flagged."""
    negatives, positives = totals
    right = found + negatives - wrong
    return np.array([found / (found + wrong), found / positives, right / (negatives + positives)])


def read_rates(edges: np.ndarray, counts: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Precision, recall and accuracy from pooled counts, read linearly within a bin."""
    totals = counts.sum(axis=1)
    below = [np.interp(thresholds, edges, np.append(0, np.cumsum(row))) for row in counts]
    wrong, found = totals[:, np.newaxis] - below
    return rates_from(found, wrong, totals)


def draw_thresholds(rng: np.random.Generator) -> np.ndarray:
    """Thresholds anywhere in the middle of the axis."""
    return rng.uniform(0.2, 0.8, THRESHOLDS)


def repeat(
    runs: int, rng: np.random.Generator, run: Callable[[np.random.Generator], list]
) -> np.ndarray:
    """Errors of independent runs: quantities by runs by x."""
    errors = np.array([run(child) for child in rng.spawn(runs)])
    return np.moveaxis(errors, 2, 0)


def against_bins(
    world: World, bins: list[int], runs: int, rng: np.random.Generator
) -> Iterator[Series]:
    """Study 1: Area Errors and AUC error of a population."""

    def run(rng: np.random.Generator) -> list:
        gap = draw_gap(rng)
        counts = world.counts(np.linspace(0, 1, LATTICE + 1), gap)
        truth = population_truth(world, gap, counts)
        errors = []
        for size in bins:
            pooled = counts.reshape(2, size, -1).sum(axis=2)
            found = estimate(fg.Axis.uniform(size), pooled, fg.Aligned())
            errors.append(area_errors(*both_curves(found), truth))
        return errors

    x = np.array(bins, dtype=np.float64)
    bounds = (
        (Bound("X&C 4.4: 1/B", 1 / x),),
        (Bound("X&C 4.3: 1/(B r), log left out", 1 / x),),
        (Bound("C&M lemma 3: 1/B", 1 / x), Bound("C&M 4: 1/B^2", 1 / x**2)),
    )
    errors = repeat(runs, rng, run)
    for name, found, allowed in zip(AREAS, errors, bounds, strict=True):
        yield Series(name, x, found, allowed)


def against_bins_drawn(
    world: World, bins: list[int], runs: int, rng: np.random.Generator, examples: int = 20_000
) -> Iterator[Series]:
    """Study 1b: the same on drawn rows, next to bounds with their own constants."""
    gap = draw_gap(rng)

    def run(rng: np.random.Generator) -> list:
        rows = world.draw(examples, gap, rng)
        truth = truth_of(fg.exact_roc_curve(*rows), fg.exact_pr_curve(*rows))
        errors = []
        for size in bins:
            result = fg.evaluate({"all": rows}, axis=fg.Axis.uniform(size))
            errors.append(area_errors(result.roc_curve(), result.pr_curve(), truth))
        return errors

    x = np.array(bins, dtype=np.float64)
    alpha = world.density(gap) / x
    rates = (alpha, pr_bound(alpha, world.ratio), alpha)
    errors = repeat(runs, rng, run)
    for name, found, own in zip(AREAS, errors, rates, strict=True):
        bounds = (Bound("1/B", 1 / x), Bound("X&C eq. 18, 48: its constant", own, scaled=False))
        yield Series(name, x, found, bounds)


def pr_bound(alpha: np.ndarray, ratio: float) -> np.ndarray:
    """PR Area Error where the false positive rate is off by alpha (X&C, eq. 48); at most 1."""
    share = alpha / min(ratio, 1.0)
    usable = np.minimum(share, 0.5)
    return np.where(share < 0.5, np.minimum(usable * (2 - np.log(usable)), 1.0), 1.0)


def rates_against_bins(
    world: World, bins: list[int], runs: int, rng: np.random.Generator
) -> Iterator[Series]:
    """Study 2: precision, recall and accuracy of a population at thresholds between edges."""

    def run(rng: np.random.Generator) -> list:
        gap, thresholds = draw_gap(rng), draw_thresholds(rng)
        totals = np.array(world.split(POPULATION), dtype=np.float64)
        wrong, found = totals[:, np.newaxis] * (1 - world.cumulative(thresholds, gap))
        truth = rates_from(found, wrong, totals)
        errors = []
        for size in bins:
            edges = fg.Axis.uniform(size).edges
            read = read_rates(edges, world.counts(edges, gap), thresholds)
            errors.append(np.abs(read - truth).mean(axis=1))
        return errors

    x = np.array(bins, dtype=np.float64)
    bounds = (Bound("C&M 2: 1/B", 1 / x),)
    for name, found in zip(RATES, repeat(runs, rng, run), strict=True):
        yield Series(name, x, found, bounds)


class Setting(NamedTuple):
    """How many examples, and the privacy they get."""

    examples: int
    epsilon: float

    @property
    def product(self) -> float:
        """Examples times epsilon."""
        return self.examples * self.epsilon


def planned_errors(
    world: World, settings: list[Setting], variable: str, runs: int, rng: np.random.Generator
) -> Iterator[Series]:
    """Study 3: all of the error, with axis and tree from the planner."""
    plans = [
        fg.planner.propose(
            privacy=fg.DistributedDP(s.epsilon),
            clients=SITES,
            examples=s.examples,
            positive_rate=world.rate,
        )
        for s in settings
    ]

    def run(rng: np.random.Generator) -> list:
        return [_planned(world, s, plan, rng) for s, plan in zip(settings, plans, strict=True)]

    product = np.array([s.product for s in settings])
    x = product if variable == "n epsilon" else np.array([s.epsilon for s in settings])
    noise = [np.sqrt(max(p.tree) * len(p.tree) ** 3) for p in plans]
    alpha = np.array([1 / p.axis.bins for p in plans]) + noise / product
    bounds = (
        Bound("X&C 4.5 for the tree", alpha),
        Bound("X&C 4.5 for the tree, constant 1", alpha, scaled=False),
        Bound("C&M: (n eps)^(-2/3)", product ** (-2 / 3)),
    )
    for name, found in zip(AREAS, repeat(runs, rng, run), strict=True):
        yield Series(name, x, found, bounds)


def _planned(
    world: World, setting: Setting, plan: fg.EvaluationPlan, rng: np.random.Generator
) -> tuple[float, float, float]:
    labels, scores = world.draw(setting.examples, draw_gap(rng), rng)
    scores = scores.round(4)  # as exported; the exact curve is that of the rounded scores
    truth = truth_of(fg.exact_roc_curve(labels, scores), fg.exact_pr_curve(labels, scores))
    clients = {str(i): (labels[i::SITES], scores[i::SITES]) for i in range(SITES)}
    result = fg.evaluate(clients, plan, seed=int(rng.integers(2**32)))
    return area_errors(result.roc_curve(), result.pr_curve(), truth)


@cache
def flat_noise(epsilon: float) -> ShareLaw:
    """The noise on each count of a flat histogram, whatever its bins."""
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(VALUES, outside="clip"),
        fg.Cohort(SITES),
        privacy=fg.DistributedDP(epsilon),
    )
    (law,) = plan.noise_laws(shares=SITES)
    return law


def noisy(counts: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """What a flat histogram releases under distributed DP."""
    source = SimulatedKeystream(int(rng.integers(2**32)))
    return counts + flat_noise(epsilon).draw(source, counts.shape)


def noise_errors(
    world: World, settings: list[Setting], variable: str, runs: int, rng: np.random.Generator
) -> Iterator[Series]:
    """Study 3: the error of noise alone, on scores of known values."""
    axis = fg.Axis.from_values((np.arange(VALUES) + 0.5) / VALUES)

    def run(rng: np.random.Generator) -> list:
        return [_noise(world, s, axis, rng) for s in settings]

    product = np.array([s.product for s in settings])
    x = product if variable == "n epsilon" else np.array([s.epsilon for s in settings])
    bounds = (
        (Bound("X&C 4.5: 1/(n eps)", 1 / product),),
        (Bound("X&C 4.5: log(n eps r)/(n eps r)", pr_bound(1 / product, world.ratio)),),
        (Bound("C&M 5: 1/(n eps)", 1 / product),),
    )
    errors = repeat(runs, rng, run)
    for name, found, allowed in zip(AREAS, errors, bounds, strict=True):
        yield Series(name, x, found, allowed)


def _noise(
    world: World, setting: Setting, axis: fg.Axis, rng: np.random.Generator
) -> tuple[float, float, float]:
    shares = np.diff(world.cumulative(np.linspace(0, 1, VALUES + 1), draw_gap(rng)))
    sizes = world.split(setting.examples)
    counts = np.array([rng.multinomial(n, p) for n, p in zip(sizes, shares, strict=True)])
    truth = truth_of(*both_curves(estimate(axis, counts, fg.Aligned())))
    released = noisy(counts, setting.epsilon, rng)
    return area_errors(*both_curves(estimate(axis, monotone(released), fg.Aligned())), truth)


def noisy_rates(
    world: World, settings: list[Setting], variable: str, runs: int, rng: np.random.Generator
) -> Iterator[Series]:
    """Study 4: precision, recall and accuracy with as many bins as balance the theorem."""

    def run(rng: np.random.Generator) -> list:
        return [_noisy_rates(world, s, rng) for s in settings]

    product = np.array([s.product for s in settings])
    x = product if variable == "n epsilon" else np.array([s.epsilon for s in settings])
    bounds = (Bound("C&M 2: (n eps)^(-2/3)", product ** (-2 / 3)),)
    for name, found in zip(RATES, repeat(runs, rng, run), strict=True):
        yield Series(name, x, found, bounds)


def _noisy_rates(world: World, setting: Setting, rng: np.random.Generator) -> np.ndarray:
    labels, scores = world.draw(setting.examples, draw_gap(rng), rng)
    thresholds = draw_thresholds(rng)
    histogram = fg.ScoreHistogram(fg.Axis.uniform(round(setting.product ** (2 / 3))))
    histogram.update(labels, scores)
    totals = np.array(world.split(setting.examples), dtype=np.float64)
    wrong, found = (
        np.array([np.count_nonzero(part >= t) for t in thresholds])
        for part in (scores[labels == 0], scores[labels == 1])
    )
    counts = noisy(histogram.counts, setting.epsilon, rng)
    read = read_rates(histogram.axis.edges, counts, thresholds)
    return np.abs(read - rates_from(found, wrong, totals)).mean(axis=1)


def by_examples(world: World, examples: list[int]) -> list[Setting]:
    """Settings of epsilon 1, with at least 500 examples of each class."""
    return [Setting(n, 1.0) for n in examples if min(world.split(n)) >= 500]


SHARES = {"1a": 0.05, "1b": 0.03, "2": 1.0, "3a": 0.12, "3b": 1.0, "4": 0.24}  # of the runs
AGAINST_BINS = {"1a": against_bins, "1b": against_bins_drawn, "2": rates_against_bins}
PRIVATE = {"3a": planned_errors, "3b": noise_errors, "4": noisy_rates}


@dataclasses.dataclass(frozen=True)
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
