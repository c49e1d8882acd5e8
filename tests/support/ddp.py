"""Models and rows for tests of `evaluate` under distributed differential privacy."""

import pytest
from counts import counts_on
from rows import draw_rows

import fedgauge as fg

POLYA = fg.DistributedDP(1.0)
MODELS = {
    "polya": POLYA,
    "skellam": fg.DistributedDP(1.0, delta=1e-6, noise="skellam"),
    "discrete-gaussian": fg.DistributedDP(1.0, delta=1e-6, noise="discrete-gaussian"),
}
every_model = pytest.mark.parametrize("privacy", MODELS.values(), ids=MODELS.keys())


def easy_rows(rows, seed, rate=0.3):
    return draw_rows(rows, seed, rate, apart=0.3, deviation=0.15, low=0.35)


ROWS = easy_rows(3_000, seed=1)


def clipping(bins):
    return fg.Axis.uniform(bins, outside="clip")


def exact_counts(axis, labels=ROWS[0], scores=ROWS[1]):
    return counts_on(axis, labels, scores)
