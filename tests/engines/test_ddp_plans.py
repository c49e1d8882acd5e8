"""Which plan `evaluate` makes under distributed differential privacy, and with which cohort."""

import numpy as np
import pytest
from ddp import POLYA, ROWS, clipping, every_model
from rows import split

import fedgauge as fg

pytestmark = pytest.mark.usefixtures("few_redraws")


def test_without_hints_one_flat_level_of_64_and_a_tree_sets_the_bins(clients):
    plan = fg.evaluate(clients, privacy=POLYA).plan
    assert plan.axis.spec == clipping(64).spec
    assert plan.tree == (64,)
    assert plan.rounds == (fg.HistogramRound((64,), (1.0,)),)
    plan = fg.evaluate(clients, privacy=POLYA, tree=(16, 8)).plan
    assert plan.axis.spec == clipping(128).spec
    assert plan.tree == (16, 8)
    assert plan.rounds == (fg.HistogramRound((16, 128), (0.5, 0.5)),)


def test_hints_choose_what_the_planner_proposes(clients):
    found = fg.evaluate(clients, privacy=POLYA, examples=3_000, positive_rate=0.3)
    planned = fg.planner.propose(privacy=POLYA, clients=6, examples=3_000, positive_rate=0.3)
    assert found.plan == planned
    assert found.plan.digest == planned.digest
    plan = fg.evaluate(clients, privacy=POLYA, examples=3_000, tree=(8, 4)).plan
    assert plan.tree == (8, 4)
    assert plan.axis == fg.planner.reference_axis(32, fg.planner.DEFAULT_POSITIVE_RATE)
    flat = fg.evaluate(clients, privacy=POLYA, positive_rate=0.3, tree="flat").plan
    assert flat.tree == (64,)
    assert flat.axis == fg.planner.reference_axis(64, 0.3)


@pytest.mark.parametrize(
    "scores", [ROWS[1], 3 * ROWS[1]], ids=["inside the axis", "outside the axis"]
)
def test_axis_that_refuses_is_refused(scores):
    with pytest.raises(fg.PlanError, match='outside="clip"'):
        fg.evaluate(split(ROWS[0], scores, 6), privacy=POLYA, axis=fg.Axis.uniform(16))


@pytest.mark.parametrize("options", [{}, {"tree": (4, 4)}, {"axis": clipping(16)}])
def test_scores_outside_are_clipped(options):
    labels, scores = ROWS
    wide = split(labels, 3 * scores - 1, 6)
    narrow = split(labels, np.clip(3 * scores - 1, 0, 1), 6)
    wide, narrow = (fg.evaluate(c, privacy=POLYA, seed=1, **options) for c in (wide, narrow))
    assert wide.record == narrow.record


@every_model
def test_plan_and_shortcuts_agree(clients, privacy):
    cohort = fg.Cohort(5, 2)
    plan = fg.EvaluationPlan.for_histogram(clipping(64), cohort, tree=(8, 8), privacy=privacy)
    by_plan = fg.evaluate(clients, plan, seed=9)
    by_options = fg.evaluate(
        clients, privacy=privacy, axis=clipping(64), tree=(8, 8), cohort=cohort, seed=9
    )
    assert by_plan.record == by_options.record
    assert by_plan.plan is plan


def test_plan_that_breaks_its_promise_is_refused_before_data_is_read():
    plan = fg.EvaluationPlan.for_histogram(clipping(8), fg.Cohort(6), privacy=POLYA)
    text = plan.to_bytes().replace(b'"noise":[1.0]', b'"noise":[1.5]')
    loose = fg.EvaluationPlan.from_bytes(text)

    def unread():
        raise AssertionError("data was read")

    with pytest.raises(fg.PlanError, match="promises epsilon 1 but its noise costs more"):
        fg.evaluate({f"s{i}": unread for i in range(6)}, loose)


BAD_HINTS = {
    "examples": (0, -5, float("nan"), float("inf"), "many"),
    "positive_rate": (0.0, 1.0, float("nan"), "few"),
}


@pytest.mark.parametrize(("name", "hint"), [(n, hint) for n in BAD_HINTS for hint in BAD_HINTS[n]])
@pytest.mark.parametrize("axis", ["auto", clipping(8)], ids=["auto", "given axis"])
def test_bad_hints_are_refused(clients, name, hint, axis):
    with pytest.raises(fg.PlanError, match=name):
        fg.evaluate(clients, privacy=POLYA, axis=axis, **{name: hint})


def neighbours_of(clients):
    """Datasets that differ by one row, added, removed or changed."""
    labels, scores = clients["site-2"]
    yield "removed", (labels[1:], scores[1:])
    yield "added", (np.append(labels, 1), np.append(scores, 0.999))
    yield "outside", (np.append(labels, 0), np.append(scores, 1e300))
    yield "label", (np.append(labels[:-1], 1 - labels[-1]), scores)
    yield "score", (labels, np.append(scores[:-1], 0.0))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tree": (8, 8)},
        {"axis": clipping(8)},
        {"examples": 3_000, "positive_rate": 0.3},
        {"positive_rate": 0.3, "tree": "flat"},
    ],
    ids=["nothing", "tree", "axis", "hints", "hint and tree"],
)
def test_neighbouring_datasets_give_the_same_plan(clients, options):
    plan = fg.evaluate(clients, privacy=POLYA, **options).plan.to_bytes()
    for name, data in neighbours_of(clients):
        other = fg.evaluate(clients | {"site-2": data}, privacy=POLYA, **options)
        assert other.plan.to_bytes() == plan, name


@every_model
def test_one_client_has_nobody_to_hide_behind(privacy):
    with pytest.raises(fg.PlanError, match="no noise is left when 1 of 1 clients collude"):
        fg.evaluate({"alone": ROWS}, privacy=privacy)


@pytest.mark.parametrize("colluding", [6, 7])
def test_everybody_colluding_is_refused(clients, colluding):
    with pytest.raises(fg.PlanError, match=f"no noise is left when {colluding} of 6"):
        fg.evaluate(clients, privacy=POLYA, cohort=fg.Cohort(6, colluding))


def test_cohorts_of_two_or_of_nobody_who_colludes(clients):
    found = fg.evaluate(split(*ROWS, sites=2), privacy=POLYA, seed=1)
    assert found.privacy.cohort == fg.Cohort(2, 1)
    # One client's shares alone are the noise of epsilon 1, and two add theirs.
    ratio = np.exp(-1)
    stated = found.record.slices[0].variances[0][0]
    assert stated == pytest.approx(2 * 2 * ratio / (1 - ratio) ** 2)
    found = fg.evaluate(clients, privacy=POLYA, cohort=fg.Cohort(1, 0), seed=1)
    ratio = np.exp(-1)
    stated = found.record.slices[0].variances[0][0]
    assert stated == pytest.approx(6 * 2 * ratio / (1 - ratio) ** 2)
