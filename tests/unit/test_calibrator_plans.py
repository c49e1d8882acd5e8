"""A map in a plan: its bytes, its words, what is refused, and that rows go through it."""

import json
import math
import pickle

import msgspec
import numpy as np
import pytest
from calibrators import FORMS, MONOTONE, calibrator
from counts import counts_of
from plans import plan_for, report_plan
from rows import draw_clients, draw_rows
from sites import BOSS, PEERS, make_site

import fedgauge as fg
from fedgauge.binning.calibrator import Beta, Fitted, LogOddsLine, Steps
from fedgauge.data.examples import Examples
from fedgauge.engines.contribution import count_exactly
from fedgauge.engines.reporting import result_of
from fedgauge.errors import AxisMismatch
from fedgauge.plan.explain import explain
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.reports.intake import ReportServer

BETA = fg.Calibrator("beta", FORMS["beta"], Fitted(1000, 100, "exact sum"))
PLAN = plan_for(bins=32)
MAPPED = PLAN.with_calibrator(BETA)
CLIENTS = draw_clients(4)
THROUGH = {name: (y, BETA.transform(s)) for name, (y, s) in CLIENTS.items()}


# Bytes


def test_a_plan_without_a_map_has_the_bytes_it_had():
    assert b"calibrator" not in PLAN.to_bytes()
    assert PLAN.with_calibrator(None) == PLAN
    axis, cohort = fg.Axis.uniform(64), fg.Cohort(min_survivors=5)
    assert fg.EvaluationPlan.for_histogram(axis, cohort).digest.startswith("9997b8c9139d1e2f")


@pytest.mark.parametrize("form", MONOTONE.values(), ids=MONOTONE)
def test_a_map_survives_every_form_of_a_plan(form):
    plan = PLAN.with_calibrator(calibrator(form))
    loaded = pickle.loads(pickle.dumps(plan))  # noqa: S301
    for again in (
        fg.EvaluationPlan.from_bytes(plan.to_bytes()),
        fg.EvaluationPlan.from_toml(plan.to_toml()),
        loaded,
    ):
        assert again == plan
        assert again.digest == plan.digest
        assert again.calibrator.digest == plan.calibrator.digest
    assert plan.digest != PLAN.digest


def test_what_a_map_was_fitted_on_does_not_travel():
    assert MAPPED.calibrator == BETA.without_facts()
    with_facts = json.loads(MAPPED.to_bytes())
    with_facts["calibrator"]["fitted"] = json.loads(BETA.to_bytes())["fitted"]
    with pytest.raises(fg.PlanError, match="not in the form it is distributed in"):
        fg.EvaluationPlan.from_bytes(msgspec.json.encode(with_facts))


def test_a_plan_keeps_its_prediction():
    made = fg.planner.propose(privacy=fg.DistributedDP(1.0), clients=5, examples=5000)
    assert made.with_calibrator(BETA).predicted == made.predicted is not None


def test_a_saved_result_knows_its_map(tmp_path):
    result = fg.evaluate(CLIENTS, calibrator=BETA)
    result.to_json(tmp_path / "r.json")
    again = fg.Evaluation.from_json(tmp_path / "r.json")
    assert again.plan.calibrator == BETA.without_facts()
    assert again.record == result.record
    assert "of scores through a map (beta)" in str(again)


# What is refused


@pytest.mark.parametrize(
    ("axis", "form", "told"),
    [
        (fg.Axis.uniform(8), FORMS["falling"], "falls in places.*fedgauge apply"),
        (fg.Axis.uniform(8, 0, 100), FORMS["beta"], "axis runs from 0 to 100"),
        (fg.Axis.uniform(8, -1, 1), FORMS["beta"], "axis runs from -1 to 1"),
        (fg.Axis.from_values([0.0, 1.0]), FORMS["beta"], "this map is smooth"),
    ],
)
def test_maps_that_plans_cannot_have(axis, form, told):
    plan = fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3))
    with pytest.raises(fg.PlanError, match=told):
        plan.with_calibrator(calibrator(form))


def test_a_falling_map_is_refused_in_bytes_too():
    plain = json.loads(PLAN.with_calibrator(calibrator(FORMS["steps"])).to_bytes())
    plain["calibrator"]["form"]["values"] = [0.9, 0.2, 0.6, 0.1]
    with pytest.raises(fg.PlanError, match="falls in places"):
        fg.EvaluationPlan.from_bytes(msgspec.json.encode(plain))
    plain["calibrator"]["form"]["values"] = [0.1, 0.2, 0.6, 7.5]
    with pytest.raises(fg.PlanError, match="between 0 and 1"):
        fg.EvaluationPlan.from_bytes(msgspec.json.encode(plain))


def test_steps_fit_an_axis_of_their_values():
    form = FORMS["steps"]
    axis = fg.Axis.from_values(form.values)
    clients = {name: (y, s) for name, (y, s) in CLIENTS.items()}
    result = fg.evaluate(clients, axis=axis, calibrator=calibrator(form))
    total = sum(len(y) for y, _ in clients.values())
    assert counts_of(result).sum() == total


@pytest.mark.parametrize("given", ["beta", {"a": 1}, FORMS["beta"]])
def test_what_is_no_map(given):
    with pytest.raises(fg.PlanError, match="calibrator must be a Calibrator"):
        fg.evaluate(CLIENTS, calibrator=given)


def test_a_plan_says_its_own_map():
    with pytest.raises(fg.PlanError, match="a plan already says calibrator"):
        fg.evaluate(CLIENTS, plan=PLAN, calibrator=BETA)


# Words


def test_the_words_name_the_map():
    text = explain(MAPPED)
    assert "What scores go through first" in text
    assert f"beta (a smooth curve of three numbers), map {BETA.digest[:32]}" in text
    assert "What scores go through first" not in explain(PLAN)
    line = PLAN.with_calibrator(calibrator(FORMS["line"], "auto"))
    assert "auto (straight pieces between 4 knots, in log-odds)" in explain(line)
    assert BETA.digest[:32] in MAPPED._repr_html_()


# Rows


def test_rows_are_mapped_and_then_binned():
    assert counts_of(fg.evaluate(CLIENTS, MAPPED)).tolist() == (
        counts_of(fg.evaluate(THROUGH, PLAN)).tolist()
    )
    direct = fg.evaluate(CLIENTS, calibrator=BETA)
    assert direct.brier_score.value == fg.evaluate(THROUGH).brier_score.value
    assert direct.brier_score.value != fg.evaluate(CLIENTS).brier_score.value


def test_noise_does_not_depend_on_the_map():
    noisy = plan_for(fg.DistributedDP(1.0), bins=32)
    mapped = fg.evaluate(CLIENTS, noisy.with_calibrator(BETA), seed=3)
    assert counts_of(mapped).tolist() == counts_of(fg.evaluate(THROUGH, noisy, seed=3)).tolist()


def test_score_sums_are_of_mapped_scores():
    plan = plan_for(bins=32, score_sums=True)
    mapped, plain = fg.evaluate(CLIENTS, plan.with_calibrator(BETA)), fg.evaluate(THROUGH, plan)
    assert mapped.record.slices[0].score_sums == plain.record.slices[0].score_sums


def test_many_rows_on_several_threads_are_mapped():
    labels, scores = draw_rows(1_200_000)
    mapped = fg.evaluate({"a": (labels, scores)}, calibrator=BETA)
    assert counts_of(mapped).tolist() == (
        counts_of(fg.evaluate({"a": (labels, BETA.transform(scores))})).tolist()
    )


def test_reports_are_of_mapped_scores():
    plan = report_plan(fg.LocalDP(8.0), (16,))
    labels, scores = draw_rows(400)

    def counts(plan, scores):
        source = SimulatedKeystream(5)
        with ReportServer(plan) as server:
            server.accept_all(fg.encode_rows(plan, (labels, scores), source=source))
            return counts_of(result_of(server))

    step = calibrator(Steps((0.5,), (0.1, 0.9)))
    mapped = counts(plan.with_calibrator(step), scores)
    expected = counts(plan, step.transform(scores))
    np.testing.assert_allclose(mapped, expected, atol=1e-6)


def test_scores_that_the_map_brings_inside_the_axis_are_not_clipped():
    axis = fg.Axis.uniform(8, 0.25, 0.75, outside="clip")
    plan = fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3)).with_calibrator(
        calibrator(Steps((0.5,), (0.3, 0.9)))
    )
    rows = Examples([0, 1, 1], [0.1, 0.6, 7.0])
    _, counted = count_exactly(plan, [rows])
    assert counted.oddities.clipped == 2


def test_percentages_are_refused_as_without_a_map():
    percent = {"a": ([0, 1, 1], [10.0, 55.0, 80.0])}
    with pytest.raises(fg.InputError, match=r"3 of 3 scores lie outside the axis \[0, 1\]"):
        fg.evaluate(percent, calibrator=BETA)
    with pytest.raises(fg.InputError, match="missing, NaN or infinite"):
        fg.evaluate({"a": ([0, 1], [0.2, math.nan])}, calibrator=BETA)


def test_histograms_of_different_maps_do_not_add():
    with pytest.raises(AxisMismatch, match="different maps"):
        PLAN.histogram() + MAPPED.histogram()
    assert MAPPED.histogram() + MAPPED.histogram() == MAPPED.histogram()
    assert PLAN.histogram() != MAPPED.histogram()


# Edges before the map


def test_edges_are_pulled_back():
    plan = plan_for(bins=4).with_calibrator(
        calibrator(Steps((0.2, 0.3, 0.9), (0.1, 0.3, 0.6, 0.7)))
    )
    assert plan.score_axis.edges.tolist() == [-1.0, 0.2, 0.3, math.nextafter(1, 2), 2.0]
    same = plan_for(bins=4).with_calibrator(calibrator(FORMS["identity"]))
    np.testing.assert_allclose(same.score_axis.edges[1:-1], [0.25, 0.5, 0.75], rtol=1e-15)
    assert PLAN.score_axis is PLAN.axis


# What a site says


def judged(site, plan):
    members = [site.key.public, *(PEERS[name].public for name in "bcd")]
    site.judge(plan, members=members, coordinator=BOSS.public)


def exact(bins=16, **options):
    return plan_for(bins=bins, cohort=fg.Cohort(4, 1), **options)


@pytest.fixture
def site(tmp_path):
    return make_site(tmp_path / "site", min_bin_width=1 / 128, score_sums=True)


def test_a_gentle_map_is_joined(site):
    judged(site, exact().with_calibrator(calibrator(Beta(0.9, 1.1, 0.2))))


CLIFF = calibrator(LogOddsLine((0.0, 1e-4), (-3.0, 3.0)))


def test_a_cliff_is_refused_in_an_exact_sum(site):
    plan = exact().with_calibrator(CLIFF)
    with pytest.raises(fg.PlanRefused, match=r"bins, on scores before the plan's map, are narrow"):
        judged(site, plan)
    noisy = exact(privacy=fg.DistributedDP(1.0)).with_calibrator(CLIFF)
    judged(site, noisy)


def test_the_axis_that_a_site_allows_is_the_one_before_the_map(tmp_path):
    fine = exact(256)
    steep = fine.with_calibrator(CLIFF)
    allowed = {"min_bin_width": 1 / 128, "max_bins": 256}
    site = make_site(tmp_path / "axis", axes=(fine.axis.digest,), **allowed)
    judged(site, fine)
    with pytest.raises(fg.PlanRefused, match=steep.score_axis.digest):
        judged(site, steep)
    judged(make_site(tmp_path / "map", axes=(steep.score_axis.digest,), **allowed), steep)


def test_exact_score_sums_take_no_map(site):
    summed = exact(score_sums=True)
    judged(site, summed)
    with pytest.raises(fg.PlanRefused, match="score sums of scores that go through a map"):
        judged(site, summed.with_calibrator(calibrator(FORMS["identity"])))
    noisy = exact(score_sums=True, privacy=fg.DistributedDP(1.0))
    judged(site, noisy.with_calibrator(CLIFF))
