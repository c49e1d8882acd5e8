"""A small, seeded run of studies/label_coverage.py. With intervals that cover 93.5% of the time,
the chance that any of the counts below falls under its limit is one in a thousand over all of
them."""

import numpy as np
from scipy.stats import binom
from scripts import load_script, some_at_once

RUNS = 150
FALSE_ALARM = 1e-3
study = load_script("label_coverage")
CELLS = [
    study.Cell(500, 0.5, 1.0),
    study.Cell(2_000, 0.05, 2.0, hinted=4.0),
    study.Cell(10_000, 0.2, 1.5, epsilon=0.3, parties=2),
    study.Cell(10_000, 0.05, 1.5, hinted=0.25),
]
CHANCE = FALSE_ALARM / (len(CELLS) * len(study.LIMITS))
LEAST = binom.ppf(CHANCE, RUNS, 0.935) / RUNS


@some_at_once("cell", CELLS, 2, ids=lambda cell: f"{cell.examples}-{cell.hinted}")
def test_intervals_cover_false_alarm_one_in_a_thousand(cell):
    found = study.run(cell, np.random.default_rng(11), RUNS)
    assert found["answered"] == 1.0
    for name in study.LIMITS:
        assert found[f"{name} covers"] >= LEAST, name


def test_the_study_notices_intervals_that_are_too_narrow(monkeypatch):
    """Half the width covers about 67%: far below the limit in every metric."""
    real = study.intervals

    def narrow(pooled, threshold):
        spans = real(pooled, threshold)
        middle = spans.mean(axis=1, keepdims=True)
        return middle + (spans - middle) / 2

    monkeypatch.setattr(study, "intervals", narrow)
    found = study.run(CELLS[0], np.random.default_rng(11), RUNS)
    assert all(found[f"{name} covers"] < LEAST for name in study.LIMITS)


def test_the_study_notices_quantile_bins(monkeypatch):
    """Ranks alone leave rare positives a few bins: average precision is covered in about 40%."""

    def cut_by_rank(ordered, always, bins, rate):  # noqa: ARG001
        ranks = np.minimum(np.arange(1, bins) / bins * len(ordered), len(ordered) - 1)
        return np.unique(np.append(always, ordered[np.ceil(ranks).astype(np.intp)]))

    monkeypatch.setattr("fedgauge.vertical.bins._cut", cut_by_rank)
    cell = study.Cell(20_000, 0.02, 2.0)
    found = study.run(cell, np.random.default_rng(11), RUNS)
    assert found["AP covers"] < LEAST
