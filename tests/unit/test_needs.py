"""What a wanted error or interval takes: answers that hold when asked back, and where none does."""

import math
from functools import cache

import numpy as np
import pytest
from refusals import refused
from scipy.special import logit

import fedgauge as fg
from fedgauge import planner
from fedgauge.metrics.estimate import metrics_of
from fedgauge.metrics.thresholds import AtThreshold
from fedgauge.plan.prediction import PredictedErrors, Prediction
from fedgauge.planner import requirements

pytestmark = pytest.mark.usefixtures("quick_search")

CLIENTS = 10
HINTS = {"clients": CLIENTS, "examples": 5_000, "positive_rate": 0.2}
WANTED = 0.003
METRICS = [row.name for row in metrics_of(AtThreshold)]
EXACT, NOISY, REPORTS = fg.SecureAggregation(), fg.DistributedDP(1.0), fg.LocalDP(4.0)
RECALL, ECE = {"metric": "recall", "at": 0.4}, {"metric": "expected_calibration_error"}
ENDS = (1e-4, 20.0)


@cache
def find_needs(wanted=WANTED, privacy=NOISY, **question):
    return planner.needs(wanted, privacy=privacy, **question, **HINTS)


def expected_of(privacy, examples=5_000, **question):
    plan = planner.propose(privacy=privacy, at=question.get("at"), **HINTS | {"examples": examples})
    wish = requirements._wish(question["metric"], question.get("at"))
    by_shape = wish.by_shape(plan, examples, HINTS["positive_rate"])
    return float(np.exp(np.log(by_shape).mean()))


def propose(privacy, examples=5_000):
    return planner.propose(privacy=privacy, **{**HINTS, "examples": examples})


@pytest.mark.parametrize(("privacy", "wanted"), [(NOISY, WANTED), (REPORTS, 0.02)])
def test_round_trip(privacy, wanted):
    needed = find_needs(wanted, privacy)
    assert isinstance(needed.examples, int)
    found = [
        propose(type(privacy)(needed.epsilon)).predicted.roc_area_error,
        propose(privacy, needed.examples).predicted.roc_area_error,
    ]
    assert found == pytest.approx([wanted, wanted], rel=0.2)
    assert needed.expected == pytest.approx(propose(privacy).predicted.roc_area_error)


def test_needs_go_the_right_way_and_an_exact_curve_has_none():
    # Both are less, or both more, than what there is.
    needed = find_needs()
    is_enough = needed.expected <= WANTED
    assert (needed.epsilon <= 1.1) == is_enough
    assert (needed.examples <= 5_500) == is_enough
    refused(fg.PlanError, r"DistributedDP or LocalDP .* Use more bins", find_needs, 0.01, EXACT)


@pytest.mark.parametrize("wanted", [0, -0.1, 0.5, 1, math.nan, "0.1", None, True])
def test_wanted_errors_that_make_no_sense(wanted):
    with pytest.raises(fg.PlanError, match=r"a wanted error lies between 0 and 0\.5"):
        planner.needs(wanted, privacy=NOISY, clients=CLIENTS)
    if wanted not in (0.1, None):
        with pytest.raises(fg.PlanError, match=r"a wanted half-width lies between 0 and 0\.5"):
            planner.needs(wanted, metric="recall", at=0.5, privacy=NOISY, clients=CLIENTS)


def textbook(metric, examples, at=0.3):
    """The geometric mean over the planner's shapes of a binomial half-width."""
    widths = []
    for shape in planner.SHAPES:
        below = shape.cumulative(np.array([logit(at)]), 0.2)
        share = float(below[0 if metric == "specificity" else 1][0])
        size = examples * (0.8 if metric == "specificity" else 0.2)
        widths.append(1.96 * math.sqrt(share * (1 - share) / size))
    return float(np.exp(np.mean(np.log(widths))))


@pytest.mark.parametrize("metric", ["recall", "specificity"])
def test_without_noise_to_speak_of_half_widths_are_binomial(metric):
    for privacy, examples in ((EXACT, 5_000), (EXACT, 80_000), (fg.DistributedDP(8.0), 5_000)):
        found = expected_of(privacy, examples, metric=metric, at=0.3)
        assert found == pytest.approx(textbook(metric, examples), rel=0.1)


def test_examples_take_the_square_and_epsilon_does_not_make_up_for_them():
    narrow, wide = (find_needs(w, EXACT, metric="recall", at=0.3) for w in (0.01, 0.02))
    assert narrow.epsilon is wide.epsilon is None
    assert narrow.examples / wide.examples == pytest.approx(4.0, rel=0.2)
    assert textbook("recall", narrow.examples) == pytest.approx(0.01, rel=0.1)
    needed = find_needs(0.005, NOISY, metric="recall", at=0.3)
    assert textbook("recall", 5_000) > 0.01
    assert needed.epsilon is None
    assert textbook("recall", needed.examples) == pytest.approx(0.005, rel=0.15)


@pytest.mark.parametrize(
    ("privacy", "question"),
    [(EXACT, RECALL), (EXACT, ECE), (fg.DistributedDP(0.2), ECE), (REPORTS, RECALL)],
)
def test_half_widths_round_trip(privacy, question):
    wanted = 0.7 * expected_of(privacy, **question)
    needed = find_needs(wanted, privacy, **question)
    assert needed.examples > 5_000
    # Another design may be best for so much more, with other bins.
    assert expected_of(privacy, needed.examples, **question) == pytest.approx(wanted, rel=0.35)
    if needed.epsilon is not None:
        assert needed.epsilon > privacy.epsilon
        larger = type(privacy)(needed.epsilon)
        assert expected_of(larger, **question) == pytest.approx(wanted, rel=0.2)


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_at_a_threshold_can_be_asked_for(metric):
    needed = find_needs(0.02, EXACT, metric=metric, at=0.3)
    assert 0 < needed.expected < 0.1
    assert 10 < needed.examples < 100_000


def test_no_data_make_up_for_wide_bins():
    """Between the edges 0.25 and 0.5 of four bins a fifth of the positives or so stays open."""
    axis = fg.Axis.uniform(4, outside="clip")
    for privacy in (EXACT, NOISY):
        needed = find_needs(0.01, privacy, metric="recall", at=0.3, axis=axis)
        assert needed[:2] == (None, None)
        assert needed.expected > 0.05
        at_an_edge = find_needs(0.01, privacy, metric="recall", at=0.5, axis=axis)
        assert at_an_edge.examples is not None


def test_merged_cells_widen_intervals_and_hidden_results_say_nothing():
    merged, kept = (
        find_needs(0.05, EXACT, metric="precision", at=0.9, min_cell=least) for least in (200, 0)
    )
    assert merged.expected > 1.5 * kept.expected
    hidden = fg.DistributedDP(0.001)
    assert expected_of(hidden, metric="recall", at=0.5) == 0.5
    assert expected_of(hidden, metric="mcc", at=0.5) == 1.0
    assert expected_of(hidden, metric="expected_calibration_error") == 0.5
    assert expected_of(EXACT, 30, metric="recall", at=0.5) == 0.5  # 6 positives, cells of 10


def test_answers_are_rough_where_shapes_differ():
    """At 50% few examples score, where positives are rare, of weak models next to none."""
    rare = {"clients": CLIENTS, "examples": 20_000, "positive_rate": 0.02}
    question = {"metric": "precision", "privacy": EXACT}
    rough = planner.needs(0.05, at=0.5, **question, **rare)
    assert "fold between scores that are all plausible" in rough.caution
    assert planner.needs(0.05, at=0.3, **question, **HINTS).caution is None
    assert find_needs().caution is None


def test_questions_that_cannot_be():
    for question, told in (
        ({"metric": "sensitivity", "at": 0.5}, "one at a threshold .*recall.*, got 'sensitivity'"),
        ({"metric": None}, "metric must be roc_area_error, expected_calibration_error or one"),
        ({"metric": "recall"}, "recall has a threshold: name it, such as at=0.5"),
        ({"at": 0.5}, "roc_area_error has no threshold: leave out at"),
        ({"metric": "expected_calibration_error", "at": 0.5}, "has no threshold"),
        ({"metric": "recall", "at": 1.5}, "a threshold lies between .* 0 and 1, got 1.5"),
        ({"metric": "recall", "at": 0}, "a threshold lies between"),
        ({"metric": "recall", "at": math.nan}, "a threshold lies between"),
        ({"metric": "recall", "at": "0.5"}, "a threshold lies between"),
        ({"score_sums": True, "privacy": REPORTS}, "local reports carry no score sums"),
        ({"privacy": "ddp"}, "privacy must be such as"),
    ):
        with pytest.raises(fg.PlanError, match=told):
            planner.needs(0.1, **{"privacy": NOISY, **question}, clients=CLIENTS)


def test_calibration_is_of_probabilities():
    axes = [fg.Axis.uniform(16, -8, 8, outside="clip")]
    axes.append(lambda bins: fg.Axis.uniform(bins, -8, 8, outside="clip"))
    for axis in axes:
        with pytest.raises(fg.UndefinedMetric, match="need probabilities"):
            find_needs(0.1, metric="expected_calibration_error", axis=axis)
        needed = find_needs(0.1, EXACT, metric="recall", at=-2.0, axis=axis)
        assert needed.expected < 0.1


@pytest.mark.parametrize("privacy", [EXACT, NOISY, REPORTS], ids=lambda p: p.kind)
def test_thresholds_become_edges_and_one_half_is_one(privacy):
    for at in (0.003, 0.29, [0.49, 0.51], 0.9999, None):
        plan = planner.propose(privacy=privacy, at=at, **HINTS)
        assert {0.5, *np.ravel([] if at is None else at)} <= {*plan.axis.edges}
        assert plan.axis.outside == "clip"
    with pytest.raises(fg.PlanError, match="have no edges for so many thresholds"):
        planner.with_edges(fg.Axis.uniform(4), (0.1, 0.2, 0.3))
    crowded = planner.with_edges(fg.Axis.uniform(4), (0.1, 0.2))
    assert crowded == fg.Axis.from_edges([0, 0.1, 0.2, 0.5, 1])


def test_an_axis_moves_the_nearest_edge_alone_or_stays():
    plain, moved = (planner.propose(privacy=EXACT, at=at, **HINTS).axis for at in (None, 0.29))
    assert plain.bins == moved.bins
    differ = np.flatnonzero(plain.edges != moved.edges)
    assert differ.tolist() == [np.argmin(abs(plain.edges - 0.29))]
    assert planner.propose(privacy=EXACT, at=0.5, **HINTS).axis == plain  # an edge already
    axis = fg.Axis.uniform(16, outside="clip")
    for given in (axis, lambda bins: fg.Axis.uniform(bins, outside="clip")):
        plan = planner.propose(privacy=NOISY, at=0.29, axis=given, **HINTS)
        assert plan.axis.kind == "uniform"
    values = fg.Axis.from_values(range(11))
    assert planner.propose(privacy=EXACT, at=10, axis=values, **HINTS).axis == values
    for at, axis in ((11, values), (0, values), (0.2, fg.Axis.uniform(8, 0.5, 1.0))):
        with pytest.raises(fg.PlanError, match="a threshold lies between the ends of the axis"):
            planner.propose(privacy=EXACT, at=at, axis=axis, **HINTS)


@pytest.mark.parametrize("power", [0.3, 0.5, 1.0, 1.4])
@pytest.mark.parametrize("wanted", [0.06, 0.1, 0.3])
def test_search_on_powers(power, wanted):
    asked = []

    def falls(x):
        asked.append(x)
        return 0.1 * x**-power

    found = requirements.solve(falls, wanted, ENDS)
    assert falls(found) == pytest.approx(wanted, rel=0.075)
    assert len(asked) <= 6


def test_search_beside_a_floor_over_a_jump_and_where_no_plan_can_be_made():
    def falls(x):
        return 0.1 * math.hypot(1.0, 2.0 / x)

    assert requirements.solve(falls, 0.09, ENDS) is None
    assert falls(requirements.solve(falls, 0.12, ENDS)) == pytest.approx(0.12, rel=0.075)
    # Over a jump it takes the side that is enough.
    assert 3.0 <= requirements.solve(lambda x: 0.2 if x < 3.0 else 0.05, 0.1, ENDS) < 3.2
    assert requirements.solve(lambda _: 0.01, 0.1, ENDS) == pytest.approx(1e-4)
    assert requirements.solve(lambda _: 0.3, 0.1, ENDS) is None
    assert requirements.solve(lambda x: 0.1 / x, 0.3, (0.01, 0.1)) == pytest.approx(0.33, rel=0.075)

    def falls(x):
        if not 0.5 < x < 2.0:
            raise fg.PlanError("no such noise")
        return 0.1 / x

    assert requirements.solve(falls, 0.02, ENDS) is None
    assert 0.5 < requirements.solve(falls, 0.9, ENDS) < 0.6
    refused(fg.PlanError, "no such noise", requirements.solve, lambda x: falls(3.0 * x), 0.1, ENDS)


@pytest.fixture
def asked(monkeypatch):
    """Plans asked for, which have an error of 10 over epsilon and examples."""
    asked = []

    def propose(*, privacy, examples, **known):
        del examples
        asked.append(known)
        axis = fg.Axis.uniform(4, outside="clip")
        return fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3), privacy=privacy)

    def predict(plan, *, examples, positive_rate):
        del positive_rate
        errors = PredictedErrors(10.0 / (plan.privacy.epsilon * examples), 0.1, 0.1)
        return Prediction.of(errors, (errors, errors))

    monkeypatch.setattr(requirements, "propose", propose)
    monkeypatch.setattr(requirements, "predict", predict)
    return asked


def test_needs_are_of_what_is_given_and_sums_take_a_quarter_more_epsilon(asked):
    axis, cohort = fg.Axis.uniform(16, outside="clip"), fg.Cohort(5, 2)
    planner.needs(0.01, privacy=NOISY, clients=5, axis=axis, cohort=cohort, min_cell=0)
    known = {"axis": axis, "cohort": cohort, "clients": 5, "min_cell": 0, "at": None}
    assert len(asked) > 1
    assert all(known.items() <= each.items() for each in asked)
    # Also where the noise of sums could not be drawn on the way: curves come from the counts.
    known = {"privacy": NOISY, "clients": CLIENTS, "examples": 1_000}
    found = [planner.needs(0.1, **known, score_sums=sums) for sums in (False, True)]
    assert found[0].epsilon == pytest.approx(0.1, rel=0.1)
    assert found[1].epsilon / found[0].epsilon == pytest.approx(1.25, rel=0.1)
    assert found[1].examples / found[0].examples == pytest.approx(1.25, rel=0.1)
    assert not any("score_sums" in each for each in asked)
