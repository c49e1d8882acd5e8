"""A small, seeded run of studies/comparison.py. With intervals that cover 94% of the time, the
chance that any of the counts below falls under its limit is one in a thousand over all of them."""

from dataclasses import replace

import numpy as np
from scipy.stats import binom
from scripts import load_script, some_at_once

RUNS = 60
study = load_script("comparison")
CELLS = [
    study.Cell(5_000, 0.4),
    study.Cell(8_000, 0.4, 1.0),
    study.Cell(8_000, 0.4, 1.0, losses=True),
]
LEAST = binom.ppf(1e-3 / (len(CELLS) * len(study.METRICS)), RUNS, 0.94) / RUNS


@some_at_once("cell", CELLS, ids=study.describe)
def test_differences_are_covered_false_alarm_one_in_a_thousand(cell):
    found = study.run(cell, np.random.default_rng(8), RUNS)
    for name in study.METRICS:
        assert found[f"{name} covers"] >= LEAST, name
    if not cell.epsilon:
        assert found["AUC width"] <= 1.05
    if cell.losses:
        assert found["Brier width"] <= 1.25  # of 8,000 rows; of 20,000 it is 1.09


def test_the_study_notices_models_taken_for_alike(monkeypatch):
    """As if errors went together fully: intervals are too narrow where models differ."""
    monkeypatch.setattr(
        "fedgauge.metrics.differences._of_difference",
        lambda ends, covariance: abs(ends[0] - ends[1]),  # noqa: ARG005
    )
    found = study.run(replace(CELLS[0], correlation=0.5), np.random.default_rng(8), RUNS)
    assert found["AUC covers"] < LEAST
