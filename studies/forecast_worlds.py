"""Worlds of forecasts whose truth is known: scores, and the probability that each comes true.

Log-odds z of the scores are two normals, those that a calibrated model gives two normal classes;
the true log-odds are a curve of z. What is wanted of a population is then an integral over z.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.integrate import cumulative_trapezoid
from scipy.special import expit, logit
from scipy.stats import norm

REACH = 30.0  # log-odds beyond which there are no scores
POINTS = 2**18


class Bins(NamedTuple):
    """Shares of all examples by bin: negatives, positives, and what the scores add up to."""

    negatives: np.ndarray
    positives: np.ndarray
    scores: np.ndarray

    @property
    def excess(self) -> np.ndarray:
        """Positives above what the scores promise."""
        return self.positives - self.scores

    @property
    def totals(self) -> np.ndarray:
        """Examples."""
        return self.negatives + self.positives


@dataclass(frozen=True)
class World:
    """Scores of a model that believes in `rate` and `separation`, and the true log-odds."""

    rate: float
    separation: float
    truth: Callable[[np.ndarray], np.ndarray]

    def density(self, z: np.ndarray) -> np.ndarray:
        """Of the log-odds of scores."""
        d, base = self.separation, math.log(self.rate / (1.0 - self.rate))
        positive, negative = norm.pdf(z, base + d * d / 2, d), norm.pdf(z, base - d * d / 2, d)
        return self.rate * positive + (1.0 - self.rate) * negative

    def bins(self, edges: np.ndarray) -> Bins:
        """What the population has between edges; the first and last hold all beyond them."""
        inner = logit(edges[1:-1])
        z = np.union1d(np.linspace(-REACH, REACH, POINTS + 1), inner)
        here, true = self.density(z), expit(self.truth(z))
        parts = [here * (1.0 - true), here * true, here * expit(z)]
        below = cumulative_trapezoid(parts, z, initial=0.0) / np.trapezoid(here, z)
        at = np.concatenate([[0], np.searchsorted(z, inner), [len(z) - 1]])
        return Bins(*np.diff(below[:, at]))

    @property
    def prevalence(self) -> float:
        """The true share of positives."""
        return float(self.bins(np.array([0.0, 1.0])).positives[0])

    @property
    def index(self) -> float:
        """The integrated calibration index: how far scores are from what comes true, on average."""
        z = np.linspace(-REACH, REACH, POINTS + 1)
        return float(np.trapezoid(self.density(z) * np.abs(expit(self.truth(z)) - expit(z)), z))

    def benefit(self, threshold: float) -> float:
        """Net benefit of treating all from a risk up."""
        above = self.bins(np.array([0.0, threshold, 1.0]))
        return float(above.positives[1] - threshold / (1.0 - threshold) * above.negatives[1])

    def line(self) -> tuple[float, float]:
        """Intercept and slope of a logistic regression on the log-odds, of the population."""
        z = np.linspace(-REACH, REACH, 2**14 + 1)
        here, true = self.density(z), expit(self.truth(z))
        design, found = np.stack([np.ones_like(z), z]), np.zeros(2)
        for _ in range(50):
            fitted = expit(found @ design)
            score = design @ (here * (true - fitted))
            found = found + np.linalg.solve(
                (design * here * fitted * (1 - fitted)) @ design.T, score
            )
        return float(found[0]), float(found[1])


# Chosen once, before any coverage was looked at.
WORLDS = {
    "calibrated": World(0.3, 1.5, lambda z: z),
    "bent": World(0.3, 1.5, lambda z: 0.6 * z + 0.4 * np.sin(1.5 * z)),
    "overconfident": World(0.3, 1.5, lambda z: z / 1.7),
    "rare": World(0.02, 2.0, lambda z: 0.9 * z - 0.2),
    "reversed": World(0.3, 1.5, lambda z: -z),
    "two modes": World(0.3, 1.5, lambda z: 0.5 * (z + 1.0) ** 2 - 2.0),
}
