"""A small, seeded run of studies/local_error.py: sums of reports are drawn from their law.

Limits are 4.8 standard deviations of a mean and 5 of a variance or deviation over hundreds of
draws of 24 cells, so that another seed would fail less than once in ten thousand.
"""

import numpy as np
import pytest
from scripts import load_script

import fedgauge as fg
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.privacy.oracles import HadamardResponse, UnaryEncoding

study = load_script("local_error")
COUNTS = 40 * np.arange(24)
DRAWS = 1_000


@pytest.mark.parametrize("epsilon", [1.0, 5.0])
@pytest.mark.parametrize("kind", [UnaryEncoding, HadamardResponse])
def test_sums_have_the_law_of_reports_false_alarm_one_in_ten_thousand(kind, epsilon):
    oracle, rng = kind.calibrated(epsilon, cells=len(COUNTS)), np.random.default_rng(1)
    drawn = np.array(
        [
            oracle.estimate(study.draw_tallies(oracle, COUNTS, rng), COUNTS.sum())
            for _ in range(DRAWS)
        ]
    )
    variances = oracle.variances(COUNTS.astype(float))
    assert np.abs(drawn.mean(axis=0) - COUNTS).max() < 4.8 * np.sqrt(variances.max() / DRAWS)
    assert np.abs(drawn.var(axis=0) / variances - 1.0).max() < 5.0 * np.sqrt(2.0 / DRAWS)


def test_a_sum_of_hadamard_reports_counts_each_once():
    oracle = HadamardResponse.calibrated(1.0, cells=len(COUNTS))
    made = np.zeros(oracle.tallies, dtype=np.int64)
    cells = np.repeat(np.arange(len(COUNTS)), COUNTS)
    oracle.add(made, oracle.encode(cells, SimulatedKeystream(1)))
    drawn = study.draw_tallies(oracle, COUNTS, np.random.default_rng(1))
    assert drawn.shape == made.shape
    assert drawn.sum() == made.sum() == COUNTS.sum()


def test_a_tree_is_reported_level_by_level():
    axis = fg.Axis.uniform(16, outside="clip")
    plan = fg.EvaluationPlan.for_reports(axis, fg.LocalDP(5.0), tree=(4, 4))
    exact = np.array([np.arange(16, 0, -1), np.arange(1, 17)]) * 500
    pooled = study.reported(plan, exact, np.random.default_rng(1))
    assert pooled.unbiased.sum() == pytest.approx(exact.sum())
    assert np.abs(pooled.unbiased - exact).max() < 6.0 * np.sqrt(pooled.leaf_variances.max())


def test_a_linear_estimate_errs_as_much_as_one_without_shrinkage():
    rng = np.random.default_rng(1)
    axis = fg.Axis.uniform(8, outside="clip")
    plan = fg.EvaluationPlan.for_reports(axis, fg.LocalDP(5.0))
    exact = np.array([np.arange(8, 0, -1), np.arange(1, 9)]) * 5_000
    straight = [study.area(study.reported(plan, exact, rng).unshrunk) for _ in range(400)]
    spread = np.std(straight) * np.sqrt(2 / np.pi)
    assert spread == pytest.approx(study.linear_error(plan, exact), rel=0.18)
