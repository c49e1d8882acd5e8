"""Small, seeded runs of studies of coverage. With intervals that cover as often as a study asks
for, the chance that any count below falls under its limit is one in a thousand over all cells of
that study."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom
from scripts import load_script, some_at_once

import fedgauge as fg
from fedgauge.metrics.differences import gap

pooled, labels, gaps, models, both = (
    load_script(name)
    for name in ("coverage", "label_coverage", "gap_coverage", "comparison", "diff_coverage")
)
POOLED = [
    pooled.Cell("smooth", "exact", 500),
    pooled.Cell("smooth", "ddp 1", 2_000),
    pooled.Cell("reversed", "ddp 0.3", 5_000),
    *(pooled.Cell("smooth", "ddp 3", 2_000, asked) for asked in pooled.ASKED),
]
LABELS = [
    labels.Cell(500, 0.5, 1.0),
    labels.Cell(2_000, 0.05, 2.0, hinted=4.0),
    labels.Cell(10_000, 0.2, 1.5, epsilon=0.3, parties=2),
    labels.Cell(10_000, 0.05, 1.5, hinted=0.25),
]
UNEQUAL, FEW = gaps.PAIRS[1], gaps.PAIRS[3]
GAPS = [gaps.Cell(*UNEQUAL, bins=64), gaps.Cell(*FEW, bins=16, epsilon=1.0)]
GAP_CHANCE = 1e-3 / (len(GAPS) * len(gaps.METRICS) + 1)
MODELS = [
    models.Cell(5_000, 0.4),
    models.Cell(8_000, 0.4, 1.0),
]


def run(study, cell, seed, runs):
    return study.run(cell, np.random.default_rng(seed), runs)


def least(runs, share, chance):
    return binom.ppf(chance, runs, share) / runs


LEAST_LABELS = least(150, 0.935, 1e-3 / (len(LABELS) * len(labels.LIMITS)))
LEAST_MODELS = least(60, 0.94, 1e-3 / (len(MODELS) * len(models.METRICS)))
LEAST_BOTH = least(60, both.LEVEL, 1e-4)


def measured(cell, runs):
    """Each metric with the least coverage that is no alarm; a metric found low is run again."""
    found = pooled.lines([pooled.Found(cell, runs, run(pooled, cell, 7, runs))])
    assert found
    return [(line, least(line.results, 0.94, 1e-3 / 60)) for line in found]


@some_at_once("cell", POOLED, 2, ids=pooled.describe)
def test_intervals_cover_false_alarm_one_in_a_thousand(cell):
    for line, limit in measured(cell, 60):
        assert line.withheld == 0
        assert line.covers >= limit or line.caution >= pooled.CAUTIOUS, line


@some_at_once("cell", LABELS, 2, ids=lambda cell: f"{cell.examples}-{cell.hinted}")
def test_intervals_of_labels_cover_false_alarm_one_in_a_thousand(cell):
    found = run(labels, cell, 11, 150)
    assert found["answered"] == 1.0
    for name in labels.LIMITS:
        assert found[f"{name} covers"] >= LEAST_LABELS, name


def test_the_studies_notice_intervals_that_are_too_narrow(monkeypatch):
    """Half the width covers about 67%: far below the limit in every metric."""

    def halved(ends, value):
        return [value + (end - value) / 2 for end in ends]

    real, add = labels.intervals, pooled.Tally.add

    def narrow(counts, threshold):
        return np.array([halved(span, span.mean()) for span in real(counts, threshold)])

    def add_narrow(tally, told, true):
        ends = halved(told.interval, told.value)
        add(tally, fg.Estimate(told.value, told.bounds, *ends, told.level), true)

    monkeypatch.setattr(labels, "intervals", narrow)
    monkeypatch.setattr(pooled.Tally, "add", add_narrow)
    for line, limit in measured(POOLED[0], 120):
        assert line.covers < limit or line.metric in pooled.BANDS, line
    found = run(labels, LABELS[0], 11, 150)
    assert all(found[f"{name} covers"] < LEAST_LABELS for name in labels.LIMITS)


def test_the_study_of_labels_notices_quantile_bins(monkeypatch):
    """Ranks alone leave rare positives a few bins: average precision is covered in about 40%."""

    def cut_by_rank(ordered, always, bins, rate):  # noqa: ARG001
        ranks = np.minimum(np.arange(1, bins) / bins * len(ordered), len(ordered) - 1)
        return np.unique(np.append(always, ordered[np.ceil(ranks).astype(np.intp)]))

    monkeypatch.setattr("fedgauge.vertical.bins._cut", cut_by_rank)
    assert run(labels, labels.Cell(20_000, 0.02, 2.0), 11, 150)["AP covers"] < LEAST_LABELS


@some_at_once("cell", GAPS, ids=lambda cell: f"{cell.positives:.0f}-{cell.epsilon}")
def test_gaps_cover_false_alarm_one_in_a_thousand(cell):
    found = run(gaps, cell, 5, 60)
    assert found["answered"] > 0.85
    limit = least(round(60 * found["answered"]), gaps.LEAST_FEW, GAP_CHANCE)
    for name in gaps.METRICS:
        assert found[f"{name} covers"] >= limit, name


def test_ten_equal_groups_are_not_flagged_by_chance():
    found = run(gaps, gaps.Cell(gaps.Group(80, 0.5), gaps.Group(80, 0.5), 16, groups=10), 5, 60)
    most = binom.isf(GAP_CHANCE, 60, gaps.FLAGGED) / 60
    assert found["flagged"] <= most
    assert found["alone"] > most  # the largest gap's own interval would be
    assert found["largest"] > 0.15


def test_the_study_of_gaps_notices_intervals_that_are_too_narrow(monkeypatch):
    """A third of the width covers about 49%: far below the limit in every metric."""

    def narrow(one, other):
        found = gap(one, other)
        ends = (found.value + (end - found.value) / 3 for end in found.interval)
        return fg.Estimate(found.value, found.bounds, *ends, found.level, found.parts)

    monkeypatch.setattr(gaps, "gap", narrow)
    found, limit = run(gaps, GAPS[0], 5, 60), least(60, gaps.LEAST_FEW, GAP_CHANCE)
    assert all(found[f"{name} covers"] < limit for name in gaps.METRICS)


@some_at_once("cell", MODELS, ids=models.describe)
def test_differences_are_covered_false_alarm_one_in_a_thousand(cell):
    found = run(models, cell, 8, 60)
    for name in models.METRICS:
        assert found[f"{name} covers"] >= LEAST_MODELS, name
    if not cell.epsilon:
        assert found["AUC width"] <= 1.05


def test_the_study_of_models_notices_models_taken_for_alike(monkeypatch):
    """As if errors went together fully: intervals are too narrow where models differ."""
    monkeypatch.setattr(
        "fedgauge.metrics.differences._of_difference",
        lambda ends, covariance: abs(ends[0] - ends[1]),  # noqa: ARG005
    )
    assert run(models, replace(MODELS[0], correlation=0.5), 8, 60)["AUC covers"] < LEAST_MODELS


@pytest.mark.parametrize("correlation", [0.9, -0.9])
def test_intervals_for_rows_in_both_hold_the_truth_false_alarm_one_in_ten_thousand(correlation):
    found = run(both, both.Cell(500, 1.0, correlation), 1, 60)
    assert min(found["auc wide"], found["recall wide"]) >= LEAST_BOTH
    assert 1.3 < found["wider"] < 1.5  # about the root of two


def test_intervals_for_rows_of_their_own_do_where_none_is_in_both():
    found = run(both, both.Cell(500, 0.0, 0.0), 2, 60)
    assert min(found["auc apart"], found["recall apart"]) >= LEAST_BOTH
