"""A small, seeded run of studies/calibration_coverage.py. With intervals that cover as often as the
study asks, the chance that any of the counts below is under its limit is one in a thousand over all
of them; so it is for tests that alarm as often as it allows."""

import dataclasses

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import binom, chi2

import calibration_coverage as study
from forecast_worlds import WORLDS

RUNS = 240
FALSE_ALARM = 1e-3
CELLS = [
    study.Cell("calibrated", "sa", 2_000, "uniform"),
    study.Cell("bent", "sa", 50_000, "quantile"),
    study.Cell("rare", "sa", 2_000, "quantile"),
    study.Cell("overconfident", "ddp 1", 2_000, "uniform"),
    study.Cell("calibrated", "ddp 0.3", 50_000, "uniform"),
]
OTHERS = ("slope", "intercept", "in the large", *study.BENEFITS)


@pytest.fixture(scope="module")
def found():
    """Figures of a cell, measured once."""
    kept = {}

    def measured(cell):
        if cell not in kept:
            kept[cell] = study.run(cell, np.random.default_rng(CELLS.index(cell)), RUNS)
        return kept[cell]

    return measured


def least(share, runs, tests):
    """The fewest that cover, if so many do on average, but for chance."""
    return binom.ppf(FALSE_ALARM / tests, runs, share) / runs


@pytest.mark.parametrize("cell", CELLS, ids=study.describe)
def test_intervals_of_calibration_error_cover_false_alarm_one_in_a_thousand(found, cell):
    of_cell = found(cell)
    assert of_cell["answered"] == RUNS
    tests = 2 * len(CELLS)
    assert of_cell["ECE covers"] >= least(study.LEAST["ECE"], RUNS, tests)
    assert of_cell["RMS covers"] >= least(study.LEAST["ECE"], RUNS / study.OFTEN, tests)
    assert abs(of_cell["ECE bias"]) < max(abs(of_cell["plain ECE bias"]), 0.004)


@pytest.mark.parametrize("name", OTHERS)
def test_other_intervals_cover_false_alarm_one_in_a_thousand(found, name):
    cells = [cell for cell in CELLS if cell.groups == "uniform"]
    runs = RUNS if name == "in the large" else RUNS / study.OFTEN
    for cell in cells:
        fewest = least(0.92, runs, len(OTHERS) * len(cells))
        assert found(cell)[f"{name} covers"] >= fewest, study.describe(cell)


@pytest.mark.parametrize("name", ["HL", "Spiegelhalter"])
def test_tests_alarm_seldom_where_scores_are_right_and_always_where_not(found, name):
    for cell in CELLS:
        share = found(cell).get(f"{name} rejects")
        if cell.world == "calibrated":
            assert share <= binom.isf(FALSE_ALARM / 4, RUNS, study.ALARMS[1]) / RUNS
            assert share > 0  # none of 240 where 3% alarm: less than one in a thousand
        elif share is not None:
            assert share > 0.95


def test_the_study_notices_intervals_that_are_too_narrow(monkeypatch):
    """Half the width covers about 67%."""
    real = study.calibration_error

    def narrow(groups, kind, level):
        found = real(groups, kind, level)
        half = (found.high - found.low) / 4
        middle = (found.high + found.low) / 2
        return dataclasses.replace(found, low=middle - half, high=middle + half)

    monkeypatch.setattr(study, "calibration_error", narrow)
    found = study.run(CELLS[1], np.random.default_rng(7), RUNS)
    assert found["ECE covers"] < least(study.LEAST["ECE"], RUNS, 1)


def test_checks_name_what_is_not_kept():
    values = {"answered": 4_000, "ECE covers": 0.929, "ECE caution": 1.0, "HL rejects": 0.09}
    values |= {"slope covers": 0.9, "slope caution": 0.9}
    values |= {"intercept covers": 0.9, "intercept caution": 0.1}
    found = [study.Found(CELLS[0], 4_000, values)]
    verdicts = {check.what.split()[0]: check for check in study.checks(found)}
    assert not verdicts["ECE"].kept
    assert "world=calibrated, privacy=sa" in verdicts["ECE"].found
    assert not verdicts["HL"].kept
    assert verdicts["slope"].kept
    assert verdicts["slope"].found.startswith("with a caution world=calibrated")
    assert not verdicts["intercept"].kept
    assert verdicts["Spiegelhalter"].kept
    smaller = [study.Found(CELLS[0], 200, values | {"answered": 200})]
    kept = {check.what.split()[0]: check.kept for check in study.checks(smaller)}
    assert all(kept.values())  # of so few, chance may do that
    few = [study.Found(CELLS[0], 200, values | {"answered": 200, "ECE covers": 0.8})]
    assert not next(study.checks(few)).kept


@pytest.mark.parametrize("name", WORLDS)
def test_shares_of_a_world_are_those_of_rows_drawn_from_it(name):
    """A fresh seed fails once in ten thousand times for each of the four."""
    world, rng, rows = WORLDS[name], np.random.default_rng(5), 400_000
    edges = np.linspace(0.0, 1.0, 33) ** 2
    d, base = world.separation, logit(world.rate)
    side = np.where(rng.random(rows) < world.rate, 0.5, -0.5)
    z = rng.normal(base + side * d * d, d)
    y = rng.random(rows) < expit(world.truth(z))
    index = np.clip(np.searchsorted(edges, expit(z), side="right") - 1, 0, 31)
    counts = np.bincount(index + 32 * y, minlength=64)
    bins = world.bins(edges)
    expected = rows * np.concatenate([bins.negatives, bins.positives])
    large = expected > 5
    rest = np.append(expected[large], expected[~large].sum())
    seen = np.append(counts[large], counts[~large].sum())
    used = rest > 0
    statistic = np.sum((seen - rest)[used] ** 2 / rest[used])
    assert chi2.sf(statistic, used.sum() - 1) > 1e-4
    sums = np.bincount(index, expit(z), minlength=32) / rows
    assert np.abs(sums - bins.scores).max() < 5 * np.sqrt(bins.totals.max() / rows)
    flagged = expit(z) >= world.rate
    w = world.rate / (1 - world.rate)
    worth = np.mean(flagged * np.where(y, 1.0, -w))
    assert worth == pytest.approx(world.benefit(world.rate), abs=5 / np.sqrt(rows))


def test_the_line_of_a_world_is_its_truth_where_that_is_a_line():
    assert WORLDS["calibrated"].line() == pytest.approx((0.0, 1.0))
    assert WORLDS["overconfident"].line() == pytest.approx((0.0, 1 / 1.7))
    assert WORLDS["rare"].line() == pytest.approx((-0.2, 0.9))
    assert WORLDS["calibrated"].index == 0.0
