"""The calibrator: what it makes of scores, its bytes, and what is refused at the door."""

import copy
import json
import math
import pickle

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from calibrators import FORMS, MONOTONE, calibrator
from counts import counts_of
from plans import plan_for, report_plan
from refusals import refused
from rows import draw_clients, draw_rows
from sites import BOSS, PEERS, make_site

import fedgauge as fg
from fedgauge.data.examples import Examples
from fedgauge.engines.contribution import count_exactly
from fedgauge.errors import AxisMismatch
from fedgauge.histograms.calibrator import MOST_BYTES, MOST_KNOTS, Beta, Fitted, LogOddsLine, Steps
from fedgauge.histograms.histogram import mapped
from fedgauge.local.encode import result_of
from fedgauge.local.server import ReportServer
from fedgauge.plan.explain import explain
from fedgauge.privacy.keystream import SimulatedKeystream

FITTED = Fitted(50_000, 4_100, "epsilon 1 per example", 1.0, 0.0, "ab" * 32)
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def test_each_form_is_its_formula():
    x = np.array([0.01, 0.3, 0.5, 0.99])
    t = -0.3 + 0.7 * np.log(x) - 1.4 * np.log(1 - x)
    expected = 1 / (1 + np.exp(-t))
    np.testing.assert_allclose(calibrator(FORMS["beta"]).transform(x), expected, rtol=1e-14)
    form = FORMS["line"]
    ends = [form.x[0] - 2.0, *form.x, form.x[-1] + 2.0]
    scores = 1 / (1 + np.exp(-np.array(ends)))
    wanted = [form.y[0] - 2.0, *form.y, form.y[-1] + 2.0]
    expected = 1 / (1 + np.exp(-np.array(wanted)))
    np.testing.assert_allclose(calibrator(form).transform(scores), expected, rtol=1e-12)
    scores = [0.0, np.nextafter(0.1, 0), 0.1, np.nextafter(0.5, 0), 0.5, 1.0]
    assert calibrator(FORMS["steps"]).transform(scores).tolist() == [0.05, 0.05, 0.2, 0.2, 0.6, 0.9]


def test_the_ends_of_the_scores_and_what_is_said_of_order():
    middle = 1 / (1 + math.exp(-0.1))
    ends = {"identity": [0, 1], "beta": [0, 1], "line": [0, 1], "beta without a": [middle, 1]}
    ends |= {"beta without b": [0, middle], "constant": [1 / (1 + math.e)] * 2}
    for name, expected in ends.items():
        found = calibrator(FORMS[name]).transform([0.0, 1.0]).tolist()
        assert found == pytest.approx(expected, rel=1e-15)
    smallest = np.array([0.0, 1e-320, 1e-310, 1e-305, 1e-300, 1e-100])
    same = calibrator(FORMS["identity"]).transform(smallest)  # apart where floats allow
    np.testing.assert_allclose(same, smallest, rtol=1e-3, atol=0)
    assert np.all(np.diff(same) > 0)
    strict, falling = ("beta", "beta without a", "line"), calibrator(FORMS["falling"])
    for name in (*strict, "constant", "flat line", "steps"):
        each = calibrator(FORMS[name])
        assert (each.is_monotone, each.is_strict) == (True, name in strict)
    assert (falling.is_monotone, falling.is_strict) == (False, False)


def test_whatever_holds_one_column_is_taken():
    for scores in (
        [0.1, 0.5],
        (0.1, 0.5),
        np.array([0.1, 0.5]),
        np.array([[0.1], [0.5]]),
        np.array([0.1, 0.5], dtype=object),
        pa.array([0.1, 0.5]),
        pa.chunked_array([[0.1], [0.5]]),
        pd.Series([0.1, 0.5], index=[7, 3]),
        pd.DataFrame({"p": [0.1, 0.5]}),
        pl.Series([0.1, 0.5]),
        pl.DataFrame({"p": [0.1, 0.5]}),
        pa.table({"p": [0.1, 0.5]}),
    ):
        out = calibrator(Beta(0.5, 0.5, 0.0)).transform(scores)
        np.testing.assert_allclose(out, [0.25, 0.5], rtol=1e-15)
        line = calibrator(FORMS["line"])
        assert line.transform([]).tolist() == []
        with pytest.raises(AttributeError):
            line.method = "other"
        with pytest.raises(AttributeError):
            line.form.x = (0.0,)


def test_other_scores_are_refused():
    for scores, told in (
        ([0.1, math.nan], "1 of 2 scores are missing or no numbers. Drop these rows"),
        ([0.1, None], "1 of 2 scores are missing"),
        (["0.1", "high"], "1 of 2 scores are missing or no numbers"),
        ([10.0, 55.0], "2 of 2 scores lie outside 0 to 1.* Divide percentages by 100"),
        ([-3.0, 0.5], "1 of 2 scores lie outside .* of log-odds t take"),
        ([math.inf, 0.5], "1 of 2 scores lie outside"),
        (pd.DataFrame({"p": [0.1], "q": [0.2]}), "is a table; pass one column"),
        (np.zeros((2, 3)), "has 2 dimensions"),
    ):
        refused(fg.InputError, told, calibrator(FORMS["beta"]).transform, scores)


def test_rows_on_their_way_to_bins_are_never_refused():
    scores = np.array([0.1, math.nan, -1.0, 55.0, math.inf, 0.5])
    out = mapped(scores, calibrator(Beta(0.5, 0.5, 0.0)))
    np.testing.assert_allclose(out, [0.25, math.nan, -1.0, 55.0, math.inf, 0.5], rtol=1e-15)
    assert mapped(scores, None) is scores


@every_form
def test_json_copies_and_pickles_are_the_same_map(form, tmp_path):
    before = fg.Calibrator("auto", form, FITTED)
    scores = np.linspace(0, 1, 101)
    out = before.transform(scores)
    before.to_json(tmp_path / "map.json")
    assert before.to_bytes() == (tmp_path / "map.json").read_bytes()
    loaded = pickle.loads(pickle.dumps(before))  # noqa: S301
    read = fg.Calibrator.from_json(tmp_path / "map.json")
    for after in (read, loaded, copy.deepcopy(before), copy.copy(before)):
        assert after == before
        assert hash(after) == hash(before)
        assert (after.to_bytes(), after.digest) == (before.to_bytes(), before.digest)
        np.testing.assert_array_equal(after.transform(scores), out)


def test_the_digest_names_the_map_and_not_where_it_came_from():
    bare, known = calibrator(Beta(1, 1, -0.0)), fg.Calibrator("platt", Beta(1.0, 1.0, 0.0), FITTED)
    assert bare.digest == known.digest == known.without_facts().digest
    assert bare.digest == "b0722bfb65bedf2484b74e5d27f1e84d4c0d6f2cb16ab361a26fb5fcbd9d15cc"
    assert calibrator(Beta(1, 1, 1e-300)).digest != bare.digest


def test_what_is_no_map_cannot_be_made():
    for make, told in (
        (lambda: Beta(-0.1, 1, 0), "cannot be negative"),
        (lambda: Beta(math.nan, 1, 0), "a of a beta map must be finite"),
        (lambda: Beta(1, 1e7, 0), "at most 1,000,000 from 0"),
        (lambda: Beta("x", 1, 0), "must be numbers"),
        (lambda: LogOddsLine([], []), "at least one knot"),
        (lambda: LogOddsLine([0, 1], [0]), "one y for each x"),
        (lambda: LogOddsLine([1, 1], [0, 1]), "knots x of a map must increase"),
        (lambda: LogOddsLine([0, 1], [1, 0]), "knots y of a map cannot decrease"),
        (lambda: LogOddsLine([0, math.inf], [0, 1]), "must be finite"),
        (lambda: LogOddsLine([[0.0]], [[1.0]]), "flat list"),
        (lambda: Steps([0.5], [0.1]), "one value more than edges"),
        (lambda: Steps([0.5, 0.5], [0.1, 0.2, 0.3]), "must increase"),
        (lambda: Steps([50], [0.1, 0.2]), "edges .* between 0 and 1. Divide percentages by 100"),
        (lambda: Steps([0.5], [0.1, 1.2]), "values .* between 0 and 1"),
        (lambda: Steps([0.5], [0.1, math.nan]), "must be finite"),
        (
            lambda: Steps(np.linspace(0, 1, MOST_KNOTS + 1), np.zeros(MOST_KNOTS + 2)),
            "at most 65,536",
        ),
        (lambda: fg.Calibrator("\x1b[31m", FORMS["beta"]), "method of a map is a name"),
        (lambda: fg.Calibrator("a" * 41, FORMS["beta"]), "method of a map is a name"),
        (lambda: Fitted(-1, 0, ""), "no less than 0"),
        (lambda: Fitted(1, 0, "a\nb"), "one line"),
        (lambda: Fitted(1, 0, "", math.nan), "must be finite"),
        (lambda: Fitted(1, 0, "", plan="../x"), "must be digests"),
    ):
        refused(fg.CalibratorError, told, make)


def changed(path, value):
    inner = data = json.loads(fg.Calibrator("auto", FORMS["line"], FITTED).to_bytes())
    *way, last = path
    for key in way:
        inner = inner[key]
    inner[last] = value
    return json.dumps(data).encode()


def test_a_broken_or_hostile_file_is_refused(tmp_path):
    for data, told in (
        (b"", "not a fedgauge map"),
        (b"\xff\xfe", "not a fedgauge map"),
        (b"[]", "not a fedgauge map"),
        (b"{}", "Name the JSON file that `fedgauge calibrate`"),
        (b'{"format": "fedgauge-evaluation/1"}', "this is a result, not a map. Fit a map on it"),
        (changed(["format"], "fedgauge-calibrator/9"), "another version"),
        (changed(["extra"], 1), "unknown field `extra`"),
        (changed(["form", "extra"], 1), "unknown field `extra`"),
        (changed(["fitted", "extra"], 1), "unknown field `extra`"),
        (changed(["form", "kind"], "spline"), "Invalid value 'spline'"),
        (changed(["form", "x"], [3, 2, 1, 0]), "^the knots x of a map must increase"),
        (changed(["form", "y"], [3, 2, 1, 0]), "^the knots y of a map cannot decrease"),
        (changed(["form", "y"], [0, 1, 2, math.nan]), "malformed"),
        (changed(["form", "y"], [0, 1, 2, 1e300]), "must be finite, and at most"),
        (changed(["form", "x"], list(range(MOST_KNOTS + 1))), "at most 65,536"),
        (changed(["form", "x"], "abcd"), "Expected `array`"),
        (changed(["method"], "<script>"), "method of a map"),
        (b"[" * 100_000, "not a fedgauge map"),
        (b'{"format": "fedgauge-calibrator/1", "method": ' + b"9" * 10_000 + b"}", "not a"),
        (b" " * (MOST_BYTES + 1), "at most 4,194,304 bytes"),
    ):
        refused(fg.CalibratorError, told, fg.Calibrator.from_bytes, data)
        path = tmp_path / "map.json"
        path.write_bytes(data)
        refused(fg.CalibratorError, r"^.*map\.json: ", fg.Calibrator.from_json, path)


def test_files_that_are_not_there_and_spaces_in_one_that_is(tmp_path):
    with pytest.raises(fg.CalibratorError, match=r"cannot read .*No such file.*fedgauge calibrate"):
        fg.Calibrator.from_json(tmp_path / "none.json")
    refused(fg.CalibratorError, "Is a directory", fg.Calibrator.from_json, tmp_path)
    before = fg.Calibrator("auto", FORMS["steps"], FITTED)
    spaced = json.dumps(json.loads(before.to_bytes()), indent=2).encode()
    assert fg.Calibrator.from_bytes(spaced) == before


BETA = fg.Calibrator("beta", FORMS["beta"], Fitted(1000, 100, "exact sum"))
PLAN = plan_for(bins=32)
MAPPED = PLAN.with_calibrator(BETA)
CLIENTS = draw_clients(4)
THROUGH = {name: (y, BETA.transform(s)) for name, (y, s) in CLIENTS.items()}


def test_a_plan_without_a_map_has_the_bytes_it_had_and_with_one_its_prediction():
    assert b"calibrator" not in PLAN.to_bytes()
    assert PLAN.with_calibrator(None) == PLAN
    axis, cohort = fg.Axis.uniform(64), fg.Cohort(min_survivors=5)
    assert fg.EvaluationPlan.for_histogram(axis, cohort).digest.startswith("9997b8c9139d1e2f")
    made = fg.planner.propose(privacy=fg.DistributedDP(1.0), clients=5, examples=5000)
    assert made.with_calibrator(BETA).predicted == made.predicted is not None


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


def test_plans_in_bytes_hold_no_facts_and_no_impossible_values():
    assert MAPPED.calibrator == BETA.without_facts()
    with_facts = json.loads(MAPPED.to_bytes())
    with_facts["calibrator"]["fitted"] = json.loads(BETA.to_bytes())["fitted"]
    with pytest.raises(fg.PlanError, match="not in the form it is distributed in"):
        fg.EvaluationPlan.from_bytes(msgspec.json.encode(with_facts))
    plain = json.loads(PLAN.with_calibrator(calibrator(FORMS["steps"])).to_bytes())
    plain["calibrator"]["form"]["values"] = [0.1, 0.2, 0.6, 7.5]
    with pytest.raises(fg.PlanError, match="between 0 and 1"):
        fg.EvaluationPlan.from_bytes(msgspec.json.encode(plain))


def test_results_and_words_name_the_map(tmp_path):
    result = fg.evaluate(CLIENTS, calibrator=BETA)
    result.to_json(tmp_path / "r.json")
    again = fg.Evaluation.from_json(tmp_path / "r.json")
    assert again.plan.calibrator == BETA.without_facts()
    assert again.record == result.record
    assert "of scores through a map (beta)" in str(again)
    text = explain(MAPPED)
    assert "What scores go through first" in text
    assert f"beta (a smooth curve of three numbers), map {BETA.digest[:32]}" in text
    assert "What scores go through first" not in explain(PLAN)
    line = PLAN.with_calibrator(calibrator(FORMS["line"], "auto"))
    assert "auto (straight pieces between 4 knots, in log-odds)" in explain(line)
    assert BETA.digest[:32] in MAPPED._repr_html_()


def test_maps_that_plans_cannot_have():
    for axis, form, told in (
        (fg.Axis.uniform(8), FORMS["falling"], "falls in places.*fedgauge apply"),
        (fg.Axis.uniform(8, 0, 100), FORMS["beta"], "axis runs from 0 to 100"),
        (fg.Axis.uniform(8, -1, 1), FORMS["beta"], "axis runs from -1 to 1"),
        (fg.Axis.from_values([0.0, 1.0]), FORMS["beta"], "this map is smooth"),
    ):
        with pytest.raises(fg.PlanError, match=told):
            fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3)).with_calibrator(calibrator(form))
    for given in ("beta", {"a": 1}, FORMS["beta"]):
        with pytest.raises(fg.PlanError, match="calibrator must be a Calibrator"):
            fg.evaluate(CLIENTS, calibrator=given)
    with pytest.raises(fg.PlanError, match="the plan already has calibrator"):
        fg.evaluate(CLIENTS, plan=PLAN, calibrator=BETA)


@pytest.mark.parametrize(
    "plan",
    [PLAN, plan_for(fg.DistributedDP(1.0), bins=32), plan_for(bins=32, score_sums=True)],
    ids=["exact", "noisy", "sums"],
)
def test_rows_are_mapped_and_then_binned(plan):
    mapped = fg.evaluate(CLIENTS, plan.with_calibrator(BETA), seed=3)
    plain = fg.evaluate(THROUGH, plan, seed=3)
    for name in ("counts", "score_sums"):
        one, other = (getattr(each.record.slices[0], name) for each in (mapped, plain))
        assert one == other


def test_many_rows_on_several_threads_are_mapped():
    labels, scores = draw_rows(1_200_000)
    mapped = fg.evaluate({"a": (labels, scores)}, calibrator=BETA)
    through = fg.evaluate({"a": (labels, BETA.transform(scores))})
    assert counts_of(mapped).tolist() == counts_of(through).tolist()


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


def test_scores_are_judged_by_the_axis_once_mapped_and_percentages_are_refused():
    axis = fg.Axis.uniform(8, 0.25, 0.75, outside="clip")
    plan = fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3))
    plan = plan.with_calibrator(calibrator(Steps((0.5,), (0.3, 0.9))))
    _, counted = count_exactly(plan, [Examples([0, 1, 1], [0.1, 0.6, 7.0])])
    assert counted.oddities.clipped == 2  # the map brings the first inside
    percent = {"a": ([0, 1, 1], [10.0, 55.0, 80.0])}
    with pytest.raises(fg.InputError, match=r"3 of 3 scores lie outside the axis \[0, 1\]"):
        fg.evaluate(percent, calibrator=BETA)
    with pytest.raises(fg.InputError, match="missing, NaN or infinite"):
        fg.evaluate({"a": ([0, 1], [0.2, math.nan])}, calibrator=BETA)


def test_edges_are_pulled_back_and_counts_of_different_maps_do_not_add():
    plan = plan_for(bins=4).with_calibrator(
        calibrator(Steps((0.2, 0.3, 0.9), (0.1, 0.3, 0.6, 0.7)))
    )
    assert plan.score_axis.edges.tolist() == [-1.0, 0.2, 0.3, math.nextafter(1, 2), 2.0]
    same = plan_for(bins=4).with_calibrator(calibrator(FORMS["identity"]))
    np.testing.assert_allclose(same.score_axis.edges[1:-1], [0.25, 0.5, 0.75], rtol=1e-15)
    assert PLAN.score_axis is PLAN.axis
    form = FORMS["steps"]
    axis = fg.Axis.from_values(form.values)
    result = fg.evaluate(CLIENTS, axis=axis, calibrator=calibrator(form))
    assert counts_of(result).sum() == sum(len(labels) for labels, _ in CLIENTS.values())
    with pytest.raises(AxisMismatch, match="different maps"):
        PLAN.histogram() + MAPPED.histogram()
    assert MAPPED.histogram() + MAPPED.histogram() == MAPPED.histogram()
    assert PLAN.histogram() != MAPPED.histogram()


def test_a_site_allows_bins_by_their_digest_on_scores_before_the_map(tmp_path):
    cliff = calibrator(LogOddsLine((0.0, 1e-4), (-3.0, 3.0)))
    fine = plan_for(bins=256, cohort=fg.Cohort(4, 1)).with_calibrator(cliff)

    def judge(name, axis, plan=fine):
        site = make_site(tmp_path / name, min_bin_width=1 / 128, axes=(axis.digest,), max_bins=256)
        members = [site.key.public, *(PEERS[name].public for name in "bcd")]
        site.judge(plan, members=members, coordinator=BOSS.public)

    refused(fg.PlanRefused, fine.score_axis.digest, judge, "axis", fine.axis)
    judge("map", fine.score_axis)
    with pytest.raises(fg.PlanRefused, match=r"bins, on scores before the plan's map, are narrow"):
        judge("cliff", fine.axis, plan_for(bins=16, cohort=fg.Cohort(4, 1)).with_calibrator(cliff))
