"""Is what `planner.needs` says enough? Its answers, held against evaluations of other scores.

    python studies/needs.py            # all cells, about ten minutes
    python studies/needs.py --quick    # a few of them

A cell is a question: a metric, the half-width wanted for it, and hints. The answer, an epsilon or a
number of examples, is tried out: rows are drawn, evaluated by the plan that the planner proposes
there, and the mean half-width of the intervals is divided by the one wanted. The scores have none
of the shapes that the planner plays with, and it is told nothing of them but their number and the
share of positives.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

import fedgauge as fg
from fedgauge.typing import Floats

CLIENTS = 10
WITHIN = 1.5
LEAST = 0.9

Rows = tuple[np.ndarray, Floats]


@dataclass(frozen=True)
class Cell:
    """One question, the scores it is tried out on, and which answer is."""

    scores: str
    rate: float
    examples: int
    privacy: str
    metric: str
    at: float | None
    wanted: float
    by: str

    @property
    def model(self) -> fg.SecureAggregation | fg.DistributedDP | fg.LocalDP:
        """The privacy model."""
        name, _, epsilon = self.privacy.partition(" ")
        if name == "sa":
            return fg.SecureAggregation()
        return (fg.DistributedDP if name == "ddp" else fg.LocalDP)(float(epsilon))


def beta(concentration: float, bend: float = 1.0) -> Callable[..., Rows]:
    """Scores that are beta-distributed and right, or a power of such."""

    def draw(rng: np.random.Generator, n: int, rate: float) -> Rows:
        p = rng.beta(concentration * rate, concentration * (1 - rate), n)
        return rng.random(n) < p, p**bend

    return draw


def tails(separation: float, freedom: float) -> Callable[..., Rows]:
    """Log-odds with Student's tails, of a model that does not know the base rate."""

    def draw(rng: np.random.Generator, n: int, rate: float) -> Rows:
        labels = rng.random(n) < rate
        log_odds = separation * (labels - 0.5) + rng.standard_t(freedom, n)
        return labels, expit(log_odds + 0.5 * logit(rate))

    return draw


def mixed(hard: float) -> Callable[..., Rows]:
    """An easy group and a hard one, of which a share `hard` is."""

    def draw(rng: np.random.Generator, n: int, rate: float) -> Rows:
        labels = rng.random(n) < rate
        separation = np.where(rng.random(n) < hard, 0.8, 3.0)
        x = rng.normal(separation * (labels - 0.5), 1.0)
        return labels, expit(separation * x + logit(rate))

    return draw


def votes(trees: int) -> Callable[..., Rows]:
    """Shares of trees that vote for the positive class: few values, and many of them 0."""

    def draw(rng: np.random.Generator, n: int, rate: float) -> Rows:
        p = rng.beta(2.5 * rate, 2.5 * (1 - rate), n)
        return rng.random(n) < p, rng.binomial(trees, p) / trees

    return draw
