"""Where the line runs between healthy scores and those of another unit, clipped into the ends."""

import math

import numpy as np
import pytest
from plans import plan_for, report_plan

import fedgauge as fg
from fedgauge.estimation import crowded
from fedgauge.estimation.impossible import noise_reach
from fedgauge.estimation.pooled import PooledCounts
from fedgauge.estimation.released import Released
from fedgauge.plan import EvaluationPlan

ROWS = 6000


def rows(scale=1.0, *, rate=0.4, count=ROWS, apart=2.0, middle=-2.0, seed=0):
    """Labels, and probabilities of a fair model times a scale."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(count) < rate).astype(int)
    odds = rng.normal(middle + apart * labels, 1.5)
    return labels, scale / (1 + np.exp(-odds))


def logits(labels, probabilities):
    return labels, np.log(probabilities / (1 - probabilities))


def decisions(labels, probabilities):
    return labels, (probabilities >= 0.5).astype(float)


def caution(data, axis, privacy=None):
    options = {} if privacy is None else {"privacy": privacy, "seed": 1}
    return fg.evaluate(at_three(data), axis=axis, **options).caution


def at_three(data):
    return {f"site {i}": tuple(column[i::3] for column in data) for i in range(3)}


CLIPPED = {
    "percent": rows(100.0),
    "points": rows(1000.0),
    "logits": logits(*rows()),
}
AXES = {
    "uniform": fg.Axis.uniform(64, outside="clip"),
    "fine": fg.Axis.uniform(4096, outside="clip"),
    "few": fg.Axis.uniform(8, outside="clip"),
    "logit": fg.Axis.logit(64, outside="clip"),
    "edges": fg.Axis.from_edges([0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 1], outside="clip"),
    "values": fg.Axis.from_values(np.arange(21) / 20, outside="clip"),
}
MODELS = {"exact": None, "ddp": fg.DistributedDP(1.0), "ldp": fg.LocalDP(5.0)}
every_axis = pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
every_model = pytest.mark.parametrize("privacy", MODELS.values(), ids=MODELS)


@every_axis
@every_model
@pytest.mark.parametrize("data", CLIPPED.values(), ids=CLIPPED)
def test_scores_in_another_unit_have_a_caution(data, axis, privacy):
    told = caution(data, axis, privacy)
    assert "Were scores in percent, points or logits on an axis of 0 to 1?" in told


@every_axis
@every_model
def test_probabilities_have_none(axis, privacy):
    assert caution(rows(), axis, privacy) is None


def test_the_end_and_what_is_clipped_into_it_are_named():
    assert "the last bin of the axis, which also holds all scores above" in caution(
        CLIPPED["percent"], AXES["uniform"]
    )
    assert "the first bin of the axis, which also holds all scores below" in caution(
        CLIPPED["logits"], AXES["uniform"]
    )


def test_decisions_look_the_same_and_the_words_say_so():
    assert "decisions of 0 and 1, are right" in caution(decisions(*rows()), AXES["uniform"])


def test_a_confident_model_that_works_has_none():
    """Nearly all scores are in the end bins: each class at its own end."""
    labels, scores = rows(apart=14.0, middle=-7.0)
    assert np.mean((scores < 1 / 64) | (scores > 63 / 64)) > 0.9
    assert caution((labels, scores), AXES["uniform"]) is None


def test_an_axis_that_refuses_has_none():
    axis = fg.Axis.uniform(64, 0, 100)
    labels, scores = rows(100.0)
    assert caution((labels, np.minimum(scores * 50, 100)), axis) is None


def test_the_scores_own_range_ends_it():
    assert caution(rows(100.0), fg.Axis.uniform(64, 0, 100, outside="clip")) is None
    assert caution(CLIPPED["logits"], fg.Axis.uniform(64, -12, 12, outside="clip")) is None


@pytest.mark.parametrize("bins", [1, 2, 3])
def test_bins_as_wide_as_a_third_are_no_crowd(bins):
    axis = fg.Axis.uniform(bins, outside="clip")
    assert caution(rows(), axis) is None
    assert caution(rows(100.0), axis) is None  # nothing could tell


def test_few_examples_may_lie_there_by_chance():
    """Two in three of both classes at the end are no evidence; ten of ten are."""
    few = ([0, 0, 0, 1, 1, 1], [0.2, 5, 5, 0.5, 5, 5])
    assert caution(few, AXES["uniform"]) is None
    assert caution(([0, 1] * 10, [5.0] * 20), AXES["uniform"]) is not None


def test_a_class_without_examples_is_no_evidence():
    axis = AXES["uniform"]
    assert caution((np.ones(500, int), np.full(500, 7.0)), axis) is None
    plan = plan_for(fg.DistributedDP(1.0), bins=64)
    counts = np.zeros((2, 64))
    counts[0, -1], counts[1] = 1000, -1.0  # noise alone
    released = Released(plan.axis, counts, 5)
    assert crowded.caution(plan, released, pooled(plan, released)) is None


def pooled(plan, released):
    (slice_,) = plan.task.slices
    return PooledCounts.of(plan, released, slice_)


def at_the_end(plan, share, count=1000.0, **options):
    """So large a share of each class in the last bin, the others evenly in the first half."""
    half = plan.axis.bins // 2
    counts = np.zeros((2, plan.axis.bins))
    counts[:, :half] = count * (1 - share) / half
    counts[:, -1] = count * share
    return Released(plan.axis, counts, 5, **options)


PLANS = {
    "exact": plan_for(bins=64),
    "flat": plan_for(fg.DistributedDP(1.0), bins=64),
    "tree": plan_for(fg.DistributedDP(1.0), (8, 8)),
    "reports": report_plan(fg.LocalDP(2.0), (64,)),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_line_is_the_share_and_what_noise_and_sampling_leave_open(name):
    plan = PLANS[name]
    options = {"reports": 2000} if name == "reports" else {}
    told = {
        share: crowded.caution(plan, released, pooled(plan, released))
        for share in (0.09, 0.11, 0.9)
        for released in [at_the_end(plan, share, **options)]
    }
    assert told[0.09] is told[0.11] is None  # 0.11 is within what chance does
    assert "over 10% of the negatives and of the positives" in told[0.9]


@pytest.mark.parametrize("noise", ["polya", None])
def test_the_line_in_numbers(noise):
    plan, count, parts = PLANS["exact"], 1000.0, math.inf
    variance = count * 0.1 * 0.9
    if noise:
        plan = PLANS["flat"]
        law = plan.noise_laws(shares=1)[0]
        variance += 5 * law.variance * (0.9**2 + 63 * 0.1**2)
        parts = 5 * law.parts
    reach = 1.1 * noise_reach(variance / 1.1**2, parts, 1e-6 / 2)
    for beyond, told in ((-0.01, False), (0.01, True)):
        released = at_the_end(plan, 0.1 + (reach + beyond) / count, count)
        assert (crowded.caution(plan, released, pooled(plan, released)) is not None) == told


def test_both_classes_must_be_there():
    plan = PLANS["exact"]
    for row in range(2):
        counts = np.array(at_the_end(plan, 0.9).counts)
        counts[row] = at_the_end(plan, 0.05).counts[row]
        released = Released(plan.axis, counts, 5)
        assert crowded.caution(plan, released, pooled(plan, released)) is None


def test_a_bin_that_small_cells_were_merged_into_counts_by_its_width():
    axis = fg.Axis.uniform(64, outside="clip")
    plan = EvaluationPlan.for_histogram(axis, fg.Cohort(3, 1), min_cell=10)
    wide = fg.Axis.from_edges([0.0, 0.25, 0.5, 1.0], outside="clip")
    counts = np.full((2, 3), 400)
    released = Released(wide, counts, 5)
    assert crowded.caution(plan, released, pooled(plan, released)) is None


def test_it_is_the_last_line_of_the_verdict_and_survives_a_file(tmp_path):
    result = fg.evaluate(at_three(rows(100.0)), privacy=fg.DistributedDP(1.0), seed=1)
    assert str(result).splitlines()[-1] == f"caution            {result.caution}"
    result.to_json(tmp_path / "r.json")
    assert fg.Evaluation.from_json(tmp_path / "r.json").caution == result.caution


def test_both_cautions_stand_beside_each_other():
    plan = PLANS["flat"]
    released = at_the_end(plan, 0.9)
    released.counts[1, 40] = -1e5
    result = fg.Evaluation(plan, plan.statement("simulated"), released, estimator=fg.Aligned())
    assert "no rows have" in result.caution
    released.counts[1, 40], released.counts[1, -1] = -1e3, 1e4
    assert "no rows have" in result.at_level(0.9).caution
    assert "percent" in result.at_level(0.9).caution


def test_a_known_value_counts_as_one_of_as_many():
    """A fifth of both classes at the highest of five values, or of twenty-one."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 3000)
    few = fg.Axis.from_values(range(5), outside="clip")
    assert caution((labels, rng.integers(0, 5, 3000)), few) is None
    many = fg.Axis.from_values(range(21), outside="clip")
    assert caution((labels, rng.integers(0, 26, 3000)), many) is not None
    assert caution((np.ones(9, int), np.full(9, 7.0)), fg.Axis.from_values([3], "clip")) is None
