"""Populations of scores as real classifiers give them: ties, atoms, saturated and rare ones.

A population is many rows of each class, equally likely within it. A dataset draws rows with
replacement, so every true value is a sum over the population. Rows have the score of a model, that
of a second one, and a smooth score that the first is made of.
"""

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from scipy.special import expit

ROWS = 100_000  # of each class
FARTHEST = np.finfo(float).eps  # scores are kept this far from 0 and 1 in the log loss
NEAREST = 1e-9  # and this far in log-odds
NAMES = (
    *("smooth", "ties", "grid", "decisions", "saturated", "forest"),
    *("two modes", "rare", "reversed"),
)


@dataclass(frozen=True)
class Scores:
    """Scores of the negatives and of the positives of a population, and its share of positives."""

    negatives: np.ndarray
    positives: np.ndarray
    rate: float

    @cached_property
    def both(self) -> tuple[np.ndarray, np.ndarray]:
        """All scores, and the weight of each."""
        each = (self.negatives, 1 - self.rate), (self.positives, self.rate)
        return np.concatenate([scores for scores, _ in each]), np.concatenate(
            [np.full(len(scores), share / len(scores)) for scores, share in each]
        )

    def rates(self, threshold: float) -> tuple[float, float]:
        """False and true positive rate."""
        return float(np.mean(self.negatives >= threshold)), float(
            np.mean(self.positives >= threshold)
        )

    @cached_property
    def steps(self) -> tuple[np.ndarray, np.ndarray]:
        """False and true positive rate at all distinct scores, from the highest; 0 before them."""
        values = np.unique(self.both[0])[::-1]
        rates = [
            1 - np.searchsorted(np.sort(scores), values) / len(scores)
            for scores in (self.negatives, self.positives)
        ]
        return np.append(0.0, rates[0]), np.append(0.0, rates[1])

    @property
    def auc(self) -> float:
        """The area under the ROC curve; ties count half."""
        return float(np.trapezoid(*reversed(self.steps)))

    @property
    def average_precision(self) -> float:
        """As scikit-learn defines it."""
        fpr, recall = self.steps
        flagged = self.rate * recall[1:] + (1 - self.rate) * fpr[1:]
        return float(np.sum(np.diff(recall) * self.rate * recall[1:] / flagged))

    def loss(self, kind: str) -> float:
        """The mean log loss or squared loss."""
        _, weights = self.both
        right = np.append(1 - self.negatives, self.positives)
        if kind == "log":
            return float(-weights @ np.log(np.clip(right, FARTHEST, 1 - FARTHEST)))
        return float(weights @ (1 - right) ** 2)

    @cached_property
    def line(self) -> tuple[float, float]:
        """Intercept and slope of a logistic regression on the log-odds."""
        scores, weights = self.both
        kept = np.clip(scores, NEAREST, 1 - NEAREST)
        odds = np.log(kept) - np.log1p(-kept)
        labels = np.arange(len(scores)) >= len(self.negatives)
        found, columns = np.zeros(2), np.array([np.ones_like(odds), odds])
        for _ in range(60):
            chance = expit(found @ columns)
            bent = (columns * (weights * chance * (1 - chance))) @ columns.T
            step = np.linalg.solve(bent, columns @ (weights * (labels - chance)))
            found += step * min(1.0, 2.0 / max(np.abs(step).max(), 1e-9))
        return float(found[0]), float(found[1])


@dataclass(frozen=True)
class World:
    """Rows of each class with three scores: of the first model, of the second, a smooth one."""

    rate: float
    scores: tuple[np.ndarray, np.ndarray]  # by class: kind of score and row

    def of(self, kind: int) -> Scores:
        """The population of one kind of scores."""
        return Scores(self.scores[0][kind], self.scores[1][kind], self.rate)

    def draw(self, examples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Labels, and scores by kind, of one dataset."""
        labels = rng.random(examples) < self.rate
        scores = np.empty((3, examples))
        for rows, at in zip(self.scores, (~labels, labels), strict=True):
            scores[:, at] = rows[:, rng.integers(rows.shape[1], size=np.count_nonzero(at))]
        return labels, scores


def _told(name: str, odds: np.ndarray) -> np.ndarray:
    """Scores of a world, from log-odds that are right."""
    smooth = expit(odds)
    if name == "ties":
        return np.clip((smooth - 0.124) / 0.58, 0, 1)  # 40% are 0 and 14% are 1
    if name == "grid":
        return np.round(smooth * 20) / 20
    if name == "decisions":
        return (smooth >= 0.5) * 1.0
    if name == "saturated":
        return expit(8 * odds)
    return 1 - smooth if name == "reversed" else smooth


@cache
def world(name: str) -> World:
    """The population of a name, the same every time."""
    rng = np.random.default_rng([36, NAMES.index(name)])
    if name == "forest":
        return _forest(rng)
    rate, apart = (0.005 if name == "rare" else 0.3), 1.6
    made = []
    for positive in (0, 1):
        error = rng.normal(size=ROWS)
        errors = np.array([error, 0.8 * error + 0.6 * rng.normal(size=ROWS)])
        latent = errors + apart * (positive - 0.5) * np.array([[1.0], [0.9]])
        if name == "two modes":
            latent = errors
            if positive:
                latent = 0.6 * errors + np.where(rng.random(ROWS) < 0.5, 1.6, -1.6)
        odds = apart * latent + np.log(rate / (1 - rate))
        made.append(np.vstack([_told(name, odds), expit(odds[:1])]))
    return World(rate, (made[0], made[1]))


def _forest(rng: np.random.Generator) -> World:
    """Two forests on the digits of scikit-learn, where 5 and more are positive."""
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import cross_val_predict

    features, digits = load_digits(return_X_y=True)
    labels = digits >= 5
    first, second = (
        cross_val_predict(
            RandomForestClassifier(100, max_features=most, random_state=0),
            *(features, labels),
            cv=5,
            method="predict_proba",
        )[:, 1]
        for most in ("sqrt", 1)
    )
    smooth = expit(rng.normal(size=len(labels)) + 1.6 * labels - 0.8)
    scores = np.array([first, second, smooth])
    return World(float(labels.mean()), (scores[:, ~labels], scores[:, labels]))


@dataclass(frozen=True)
class Classes:
    """Rows of three classes, each with a score of each class."""

    shares: tuple[float, ...]
    scores: np.ndarray  # by class, class scored and row

    @property
    def macro_auc(self) -> float:
        """The mean of the AUCs of each class against the rest."""
        aucs = []
        for own in range(len(self.shares)):
            others = [self.scores[k, own] for k in range(len(self.shares)) if k != own]
            # Of the others by their shares: as many rows of each as it has of them.
            weights = [self.shares[k] for k in range(len(self.shares)) if k != own]
            aucs.append(
                sum(
                    weight * Scores(other, self.scores[own, own], 0.5).auc
                    for weight, other in zip(weights, others, strict=True)
                )
                / sum(weights)
            )
        return float(np.mean(aucs))

    def draw(self, examples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Classes, and scores by class, of one dataset."""
        labels = rng.choice(len(self.shares), size=examples, p=self.shares)
        rows = rng.integers(self.scores.shape[2], size=examples)
        return labels, self.scores[labels, :, rows].T


@cache
def classes(name: str) -> Classes:
    """Three classes whose scores are like those of a world."""
    rng = np.random.default_rng([37, NAMES.index(name)])
    shares = (0.2, 0.3, 0.5)
    latent = rng.normal(size=(3, 3, ROWS // 4)) + 1.6 * np.eye(3)[:, :, np.newaxis]
    odds = 1.6 * latent + np.log(shares)[:, np.newaxis]
    others = np.log(np.exp(odds).sum(axis=1, keepdims=True) - np.exp(odds))
    return Classes(shares, _told(name, odds - others))
