"""How far calibrated scores are from the truth: maps of ours against those of Cormode & Markov.

    python studies/calibrator_error.py            # 20 datasets in each cell
    python studies/calibrator_error.py --quick    # up to 10,000 examples

The truth is known, so the error is E|c(s) - p(s)|, over all scores. Calibration errors of groups
hide errors within the groups, most of all where groups are the map's own steps. Scores are
overconfident and bent, or bent twice as much; their AUC is 0.79, that of the paper's first dataset.

Theirs is histogram binning, the object of theorems 7 and 8, and BBQ as they adapt it: n^(1/3)
buckets, under local DP sqrt(epsilon) n^(1/4), with edges at the exact quantiles of the sample,
which nobody would have; discrete Laplace noise on each count, or optimised unary encoding of the
bucket and label. BBQ averages all numbers of neighbouring buckets to a group by the marginal
likelihood of Naeini et al. (2015). Ours are fitted through plans as users get them: 4,096 bins for
exact sums, the planner's choice otherwise. Judged are bent scores; the others show how far it goes.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, expit, softmax
from scipy.stats import norm

from calibrator_loss import evaluate, plan_for
from forecast_worlds import World
from runner import Check, Found, Study, main

WORLDS = {
    "bent": World(0.35, 1.85, lambda z: 0.5 * z + 0.15 * np.sin(z)),
    "bent more": World(0.35, 1.8, lambda z: 0.5 * z + 0.3 * np.sin(z)),
}
SIZES = (1_000, 10_000, 100_000, 1_000_000)
PRIVACY = ("exact", "epsilon 1", "local 5")
MOST = {"exact": 0.75, "epsilon 1": 0.75, "local 5": 0.55}  # times their error
THEIRS = ("their binning", "their BBQ")
OURS = ("auto", "beta", "isotonic", "binning", "bbq", "scaling-binning")
POINTS = 20_001  # scores that the error is an average over
ALL_RUNS = 100_000  # examples up to which a cell has all runs


@dataclass(frozen=True)
class Cell:
    """A truth, a privacy model and a number of examples."""

    world: str
    privacy: str
    examples: int


def draw(world: World, examples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores."""
    d, base = world.separation, math.log(world.rate / (1.0 - world.rate))
    believed = rng.random(examples) < world.rate
    z = rng.normal(base + np.where(believed, d * d / 2, -d * d / 2), d)
    labels = rng.random(examples) < expit(world.truth(z))
    return labels.astype(np.int64), expit(z)


def everywhere(world: World) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores that stand for all, the truth at each, and how many examples each stands for."""
    d, base = world.separation, math.log(world.rate / (1.0 - world.rate))
    middles = norm.ppf((np.arange(POINTS) + 0.5) / POINTS) * d + base
    z = np.concatenate([middles + d * d / 2, middles - d * d / 2])
    shares = np.repeat([world.rate, 1.0 - world.rate], POINTS) / POINTS
    return expit(z), expit(world.truth(z)), shares


def their_buckets(cell: Cell) -> int:
    """Theorem 7; under local DP theorem 8."""
    if cell.privacy.startswith("local"):
        epsilon = float(cell.privacy.split()[1])
        return round(math.sqrt(epsilon) * cell.examples**0.25)
    return round(cell.examples ** (1 / 3))


def their_counts(
    cell: Cell, labels: np.ndarray, buckets: np.ndarray, number: int, rng: np.random.Generator
) -> np.ndarray:
    """Negatives and positives by bucket, with the noise of the privacy model."""
    counts = np.stack([np.bincount(buckets[labels == y], minlength=number) for y in (0, 1)])
    if cell.privacy == "exact":
        return counts.astype(np.float64)
    epsilon = float(cell.privacy.split()[1])
    if cell.privacy.startswith("local"):  # Wang et al. 2017: own bit kept by 1/2, others' lie
        lie = 1.0 / (math.exp(epsilon) + 1.0)
        said = rng.binomial(counts, 0.5) + rng.binomial(len(labels) - counts, lie)
        return (said - len(labels) * lie) / (0.5 - lie)
    stay = 1.0 - math.exp(-epsilon)
    noise = rng.geometric(stay, counts.shape) - rng.geometric(stay, counts.shape)
    return counts + noise.astype(np.float64)


def their_maps(
    cell: Cell, labels: np.ndarray, scores: np.ndarray, rng: np.random.Generator
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Edges and values of histogram binning and of BBQ."""
    number = their_buckets(cell)
    edges = np.unique(np.quantile(scores, np.arange(1, number) / number))
    buckets = np.searchsorted(edges, scores, side="right")
    counts = np.maximum(their_counts(cell, labels, buckets, len(edges) + 1, rng), 0.0)
    bounds = np.concatenate([[0.0], edges, [1.0]])
    middles = (bounds[1:] + bounds[:-1]) / 2.0
    total = counts.sum(axis=0)
    binning = np.where(total > 0, counts[1] / np.maximum(total, 1e-300), middles)
    return {"their binning": (edges, binning), "their BBQ": (edges, their_bbq(counts, bounds))}


def their_bbq(counts: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The average over numbers of groups of buckets, by Naeini's marginal likelihood."""
    number = counts.shape[1]
    values, evidence = [], []
    for groups in range(1, number + 1):
        owners = np.arange(number) * groups // number
        negatives, positives = (np.bincount(owners, row) for row in counts)
        firsts = np.searchsorted(owners, np.arange(groups + 1))
        middles = (bounds[firsts[1:]] + bounds[firsts[:-1]]) / 2.0
        prior = 2.0 / groups * np.array([1.0 - middles, middles])
        posterior = prior + np.array([negatives, positives])
        values.append((posterior[1] / posterior.sum(axis=0))[owners])
        evidence.append(float((betaln(*posterior) - betaln(*prior)).sum()))
    return softmax(evidence) @ np.array(values)


def one_dataset(cell: Cell, rng: np.random.Generator) -> dict[str, float]:
    """The error of every map."""
    world = WORLDS[cell.world]
    labels, scores = draw(world, cell.examples, rng)
    points, truth, shares = everywhere(world)
    mapped = {"as it is": points}
    for name, (edges, values) in their_maps(cell, labels, scores, rng).items():
        mapped[name] = values[np.searchsorted(edges, points, side="right")]
    plan = plan_for(cell.privacy, cell.examples, round(world.prevalence, 2))
    result = evaluate((labels, scores), plan, int(rng.integers(2**32)))
    for name in OURS:
        mapped[name] = result.calibrator(name).transform(points)
    return {name: float(np.abs(each - truth) @ shares) for name, each in mapped.items()}


def run(cell: Cell, rng: np.random.Generator, runs: int) -> dict[str, float]:
    """Means over datasets, of which large ones need fewer."""
    runs = max(2, min(runs, runs * ALL_RUNS // cell.examples))
    found = [one_dataset(cell, rng) for _ in range(runs)]
    return {name: float(np.mean([each[name] for each in found])) for name in found[0]}


def table(found: Sequence[Found[Cell]]) -> None:
    """Errors by method."""
    names = ("as it is", *THEIRS, *OURS)
    print(f"{'':31}" + "".join(f"{name:>16}" for name in names))
    for each in found:
        place = f"{each.cell.world:10} {each.cell.privacy:10}{each.cell.examples:>10,}"
        print(place + "".join(f"{each[name]:>16.4f}" for name in names))
    print("E|c(s) - p(s)|, mean over datasets")


def checks(found: Sequence[Found[Cell]]) -> Iterator[Check]:
    """Ours over theirs."""
    judged = [each for each in found if each.cell.world == "bent"]
    for privacy, most in MOST.items():
        for their in THEIRS:
            ratios = [each["auto"] / each[their] for each in judged if each.cell.privacy == privacy]
            if ratios:
                what = f"{privacy}: auto at most {most:g} times the error of {their}"
                shown = f"{min(ratios):.2f} to {max(ratios):.2f}"
                yield Check(what, max(ratios) <= most, shown)


CELLS = tuple(
    Cell(world, privacy, examples) for world in WORLDS for privacy in PRIVACY for examples in SIZES
)
QUICK = tuple(cell for cell in CELLS if cell.examples <= 10_000)
STUDY = Study("calibrator_error", __doc__, CELLS, run, 20, table, checks, QUICK, 5)

if __name__ == "__main__":
    sys.exit(main(STUDY))
