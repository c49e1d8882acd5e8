"""Errors of exact and of private evaluations against bins, examples and epsilon.

The parts that `slopes` holds against the bounds of two papers; what each is about is said there.
"""

import dataclasses
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import betainc, expit, logit, ndtr

import fedgauge as fg
from fedgauge.estimation.distribution import (
    ParametricCurve,
    ScoreDistribution,
    estimate,
    linear_pieces,
)
from fedgauge.estimation.repair import monotone
from fedgauge.metrics import curves
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.privacy.noise import ShareLaw
from log_slopes import Bound, Series

SITES = 20
POPULATION = 10**12
LATTICE = 2**15  # distinct scores of a population; every number of bins divides it
VALUES = 64  # scores of the study of noise alone
FINEST = 2**20  # points for the AUC of a population, whose error falls below a lattice's
THRESHOLDS = 20
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
