"""A small, seeded run of studies/gap_coverage.py. With intervals that cover as often as the study
asks for, the chance that any of the counts below falls under its limit is one in a thousand over
all of them."""

import numpy as np
from scipy.stats import binom
from scripts import load_script, some_at_once

import fedgauge as fg
from fedgauge.metrics.differences import gap

RUNS = 60
FALSE_ALARM = 1e-3
study = load_script("gap_coverage")
UNEQUAL, FEW = study.PAIRS[1], study.PAIRS[3]
CELLS = [study.Cell(*UNEQUAL, bins=64), study.Cell(*FEW, bins=16, epsilon=1.0)]
CHANCE = FALSE_ALARM / (len(CELLS) * len(study.METRICS) + 1)


def least(runs):
    return binom.ppf(CHANCE, runs, study.LEAST_FEW) / runs


@some_at_once("cell", CELLS, ids=lambda cell: f"{cell.positives:.0f}-{cell.epsilon}")
def test_gaps_cover_false_alarm_one_in_a_thousand(cell):
    found = study.run(cell, np.random.default_rng(5), RUNS)
    assert found["answered"] > 0.85
    for name in study.METRICS:
        assert found[f"{name} covers"] >= least(round(RUNS * found["answered"])), name


def test_ten_equal_groups_are_not_flagged_by_chance():
    cell = study.Cell(study.Group(80, 0.5), study.Group(80, 0.5), 16, groups=10)
    found = study.run(cell, np.random.default_rng(5), RUNS)
    most = binom.isf(CHANCE, RUNS, study.FLAGGED) / RUNS
    assert found["flagged"] <= most
    assert found["alone"] > most  # the largest gap's own interval would be
    assert found["largest"] > 0.15


def test_the_study_notices_intervals_that_are_too_narrow(monkeypatch):
    """A third of the width covers about 49%: far below the limit in every metric."""

    def narrow(one, other):
        found = gap(one, other)
        ends = (found.value + (end - found.value) / 3 for end in found.interval)
        return fg.Estimate(found.value, found.bounds, *ends, found.level, found.parts)

    monkeypatch.setattr(study, "gap", narrow)
    found = study.run(CELLS[0], np.random.default_rng(5), RUNS)
    assert all(found[f"{name} covers"] < least(RUNS) for name in study.METRICS)
