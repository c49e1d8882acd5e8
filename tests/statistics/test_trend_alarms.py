"""A small, seeded run of studies/trend_alarms.py. With alarms as rare as stated, more of them than
the limit has a chance of one in ten thousand."""

from dataclasses import replace

import numpy as np
from scipy.stats import binom, kstest, norm
from scripts import load_script, some_at_once

study = load_script("trend_alarms")
RUNS = 40
QUIET = [study.Cell(2_000, 0.3), study.Cell(2_000, 0.3, epsilon=1.0, tree=(8, 8))]
CHANGED = [study.Cell(10_000, 0.3, shift=0.05), study.Cell(10_000, 0.3, epsilon=1.0, shift=0.05)]


@some_at_once("cell", QUIET, ids=lambda cell: str(cell.epsilon))
def test_quiet_series_raise_few_alarms_false_alarm_one_in_ten_thousand(cell, monkeypatch):
    monkeypatch.setattr(study, "LOOKS", 26)
    found = study.run(cell, np.random.default_rng(1), RUNS)
    assert found["alarmed"] <= binom.isf(1e-4, RUNS, study.RATE) / RUNS


@some_at_once("cell", CHANGED, ids=lambda cell: str(cell.epsilon))
def test_a_fall_of_the_auc_is_found_soon(cell):
    """With a chance of 0.99 of each, fewer than 35 of 40 have one of 1e-6."""
    assert study.run(cell, np.random.default_rng(2), RUNS)["within"] >= 35 / 40


def test_a_change_as_large_as_is_said_to_be_seen_is_found_and_half_of_it_is_not():
    """In 0.89 and in 0.1 of many series: fewer, or more, than 24 of 40 have a chance of 1e-5."""
    cell = study.Cell(10_000, 0.3)
    found = study.series(cell, 40, study.CHANGE, np.random.default_rng(4))
    (auc,) = (run for each, run in found.items() if each.name == "roc_auc")
    least = float(np.median(auc.least[-1]))
    for shift, low, high in ((least, 24, 40), (least / 2, 0, 24)):
        changed = replace(cell, shift=shift)
        within = study.run(changed, np.random.default_rng(5), RUNS)["within"]
        assert low <= RUNS * within <= high


def test_comparisons_without_noise_are_normal_and_independent_false_alarm_one_in_a_thousand():
    found = study.series(study.Cell(10_000, 0.3), 100, 24, np.random.default_rng(3))
    (auc,) = (run.moved.z[1:, 0] for each, run in found.items() if each.name == "roc_auc")
    assert kstest(auc.ravel(), norm.cdf).pvalue > 5e-4
    together = np.mean(auc[1:] * auc[:-1])
    assert abs(together) < norm.isf(2.5e-4) / np.sqrt(auc[1:].size)
