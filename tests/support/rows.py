"""Labels and scores, drawn with a seed, and how they are spread over clients."""

import numpy as np
from scipy.special import expit


def draw_rows(rows, seed=1, rate=0.4, *, apart=0.2, deviation=0.2, low=0.4):
    """Scores normal in each class, with a mean of `low` among negatives, clipped to 0..1."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(rows) < rate).astype(np.int64)
    return labels, np.clip(rng.normal(low + apart * labels, deviation), 0, 1)


def draw_log_odds(rows, rate, seed, *, apart, deviation, low):
    """Scores whose log-odds are normal in each class, with a mean of `low` among negatives."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(rows) < rate).astype(np.int64)
    return labels, expit(rng.normal(0, deviation, rows) + apart * labels + low)


def split(labels, scores, sites):
    """The rows dealt out to so many sites, by name."""
    return {f"site-{i}": (labels[i::sites], scores[i::sites]) for i in range(sites)}


def draw_client(rows, seed, *, shift=0.0):
    return draw_rows(rows, seed, 0.35, apart=0.25, low=0.35 + shift)


def draw_clients(count, *, seed=7):
    sizes = np.random.default_rng(seed).integers(5, 400, count)
    return {f"site-{i}": draw_client(int(size), seed + i) for i, size in enumerate(sizes)}


def drawn(rows=20_000, rate=0.3, seed=0, decimals=None):
    rng = np.random.default_rng(seed)
    labels = (rng.random(rows) < rate).astype(int)
    scores = 1 / (1 + np.exp(-rng.normal(2.0 * labels - 1)))
    return labels, scores if decimals is None else scores.round(decimals)


def parties(labels, number=4):
    ids = np.arange(len(labels))
    return {f"party {k}": (ids[k::number], labels[k::number]) for k in range(number)}
