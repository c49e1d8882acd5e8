"""Model and data."""

import numpy as np


def load_data(partition_id):
    """Train and test rows of one node."""
    rng = np.random.default_rng(partition_id)
    x = rng.normal(0.2 * partition_id, 1, (400, 3))
    y = (rng.random(400) < 1 / (1 + np.exp(1 - x @ [1.0, -1.0, 0.5]))).astype(int)
    return x[:200], x[200:], y[:200], y[200:]


def predict(weights, x):
    """Probabilities of a logistic regression."""
    return 1 / (1 + np.exp(-(x @ weights)))


def fit(weights, x, y, *, steps=20, rate=0.5):
    """Gradient descent."""
    for _ in range(steps):
        weights = weights - rate * x.T @ (predict(weights, x) - y) / len(y)
    return weights
