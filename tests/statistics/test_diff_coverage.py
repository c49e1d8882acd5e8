"""A small, seeded run of studies/diff_coverage.py. With intervals that hold the truth as often as
they say, fewer than the limit has a chance of one in ten thousand."""

import numpy as np
import pytest
from scipy.stats import binom
from scripts import load_script

study = load_script("diff_coverage")
RUNS = 60
LEAST = binom.ppf(1e-4, RUNS, study.LEVEL) / RUNS


@pytest.mark.parametrize("correlation", [0.9, -0.9])
def test_intervals_for_rows_in_both_hold_the_truth_false_alarm_one_in_ten_thousand(correlation):
    found = study.run(study.Cell(500, 1.0, correlation), np.random.default_rng(1), RUNS)
    assert found["auc wide"] >= LEAST
    assert found["recall wide"] >= LEAST
    assert 1.3 < found["wider"] < 1.5  # about the root of two


def test_intervals_for_rows_of_their_own_do_where_none_is_in_both():
    found = study.run(study.Cell(500, 0.0, 0.0), np.random.default_rng(2), RUNS)
    assert found["auc apart"] >= LEAST
    assert found["recall apart"] >= LEAST
