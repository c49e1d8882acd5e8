"""Exact sums as a query interface: one patient's score, found by asking again and again. The
attacker is an approved coordinator. Every plan is within the site's limits, over the same sites and
the same rows; it chooses the edges, or the map that scores go through first. It learns a score of
one patient as finely as floats are."""

import json

import msgspec
import numpy as np
import pytest
from hostile import VICTIM, Attacker, exact_plan, exact_policy, larger_sites, noisy_plan
from scipy.special import logit

import fedgauge as fg
from fedgauge.data.examples import Examples
from fedgauge.histograms.calibrator import Beta, LogOddsLine, Steps
from fedgauge.histograms.histogram import ScoreHistogram
from fedgauge.site.log import what_left

LEAST_WIDTH = 1 / 128
MOST_SUMS = 3


def attacker(folder, **limits):
    return Attacker(folder, larger_sites(inside=True), policy=exact_policy(**limits))


def zoomed(low, high, cells):
    """Edges between two scores, and a bin on either side for everybody else."""
    inner = np.linspace(low, high, cells + 1)
    edges = [*([0.0] if low > 0 else []), *inner, *([1.0] if high < 1 else [])]
    return fg.Axis.from_edges(np.unique(edges), outside="clip")


def lowest_positive(attack, questions=40, least=1e-12):
    """Where the lowest score among positives is: an interval, and how many sums it took."""
    low, high, sums = 0.0, 1.0, 0
    for _ in range(questions):
        try:
            axis = zoomed(low, high, 14)
        except fg.AxisError:
            break
        answer = attack.ask(exact_plan(4, axis))
        if answer.total is None:
            break
        sums += 1
        inside = np.flatnonzero((axis.edges[:-1] >= low) & (axis.edges[1:] <= high))
        first = inside[np.flatnonzero(answer.counts[1, inside])[0]]
        low, high = axis.edges[first], axis.edges[first + 1]
        if high - low < least:
            break
    return low, high, sums


def test_a_score_is_not_found_by_zooming_in(folder):
    """14 times finer with every sum; 16 bins each, so no plan looks fine."""
    attack = attacker(folder, max_bins=16)
    low, high, sums = lowest_positive(attack)
    scores = [scores[labels == 1] for labels, scores in attack.clients.values()]
    assert low <= np.concatenate(scores).min() <= high  # the attack is right
    assert high - low >= LEAST_WIDTH
    assert sums <= MOST_SUMS


@pytest.mark.parametrize("kind", ["values", "logit", "edges", "one narrow bin"])
def test_narrow_bins_of_every_kind_are_refused(folder, kind):
    """Known values are bins of no width; log-odds are narrow at the ends. One narrow bin asks
    whether the patient with this score is among the rows."""
    attack = attacker(folder)
    _, scores = attack.clients[VICTIM]
    after = np.nextafter(scores[0], 2)
    axis = {
        "values": fg.Axis.from_values([0.0, scores[0], after], outside="clip"),
        "logit": fg.Axis.logit(64, outside="clip"),
        "edges": fg.Axis.from_edges([0, scores[0], after, 1], outside="clip"),
        "one narrow bin": zoomed(scores[0] - 5e-10, scores[0] + 5e-10, 1),
    }[kind]
    assert attack.ask(exact_plan(4, axis)).total is None


def test_two_wide_axes_are_not_one_narrow_bin(folder):
    """Edges of the second sum lie 1e-9 above those of the first: the difference is that narrow.
    Every bin of both is wide. Whether a patient has a certain score, and which label, shows all the
    same: a coordinator who can work out a patient's score finds out the label."""
    attack = attacker(folder)
    labels, scores = attack.clients[VICTIM]
    patient = int(np.flatnonzero(labels)[0])
    low, high = (
        attack.ask(exact_plan(4, fg.Axis.from_edges([0, edge, 1], outside="clip")))
        for edge in (scores[patient] - 5e-10, scores[patient] + 5e-10)
    )
    assert low.total is None or high.total is None or not np.any(low.counts != high.counts)


def test_exact_sums_on_a_dataset_are_few(folder):
    """Coarse plans, each with other edges: together they are one fine plan."""
    attack = attacker(folder)
    opened = 0
    for shift in range(6):
        axis = fg.Axis.uniform(8, shift / 1000, 1 - shift / 1000, outside="clip")
        opened += attack.ask(exact_plan(4, axis)).total is not None
    assert opened <= MOST_SUMS


def test_exact_sums_begun_at_once_are_few(folder):
    """All joined before the first is submitted: what is under way counts."""
    attack = attacker(folder)
    answers = attack.ask_together([(exact_plan(4), None)] * 6)
    assert sum(answer.total is not None for answer in answers) <= MOST_SUMS


def test_another_coordinator_does_not_start_the_count_anew(folder):
    """Two approved coordinators, or one under two names, who tell each other what they got."""
    attack = attacker(folder)
    opened = sum(attack.ask(exact_plan(4)).total is not None for _ in range(MOST_SUMS))
    attack.second_coordinator()
    opened += sum(attack.ask(exact_plan(4)).total is not None for _ in range(MOST_SUMS))
    assert opened <= MOST_SUMS


def through(form, plan=None):
    return (plan or exact_plan(4)).with_calibrator(fg.Calibrator("auto", form))


def target(attack):
    """A patient of the victim's whose score nobody else has."""
    labels, scores = attack.clients[VICTIM]
    return int(labels[0]), float(scores[0])


CLIFFS = {
    "steps": lambda s: Steps((s, np.nextafter(s, 2)), (0.1, 0.5, 0.9)),
    "line": lambda s: LogOddsLine(
        (logit(s) - 1e-7, logit(s) - 5e-8, logit(s) + 5e-8, logit(s) + 1e-7), (-3, -0.1, 0.1, 3)
    ),
    "steep": lambda s: Beta(1e5, 1e5, -1e5 * logit(s)),
}


@pytest.mark.parametrize("kind", CLIFFS)
def test_a_cliff_on_either_side_of_a_patient_is_refused(folder, kind):
    """Eight bins of equal width, and one of them holds the scores next to the patient's alone."""
    attack = attacker(folder)
    _, score = target(attack)
    plan = through(CLIFFS[kind](score))
    # The attack is right: the map puts the patient alone into a bin.
    everybody = np.concatenate([scores for _, scores in attack.clients.values()])
    index = plan.axis.index(plan.calibrator.transform(everybody))
    (alone,) = plan.axis.index(plan.calibrator.transform([score]))
    assert np.count_nonzero(index == alone) == 1
    answer = attack.ask(plan)
    assert answer.total is None
    assert "narrower than" in str(answer.refusals[VICTIM][1])


def test_two_plans_that_differ_by_the_map_alone_are_not_both_opened(folder):
    """Every bin of both is wide; the difference of two sums is as narrow as the maps are alike."""
    attack = attacker(folder)
    _, score = target(attack)
    answers = [
        attack.ask(through(Steps((edge,), (0.1, 0.9)))) for edge in (score, np.nextafter(score, 2))
    ]
    assert [answer.total is None for answer in answers] == [False, True]
    assert "another plan" in str(answers[1].refusals[VICTIM][1])


def test_a_map_after_none_is_another_plan(folder):
    """A map that changes nothing, or a name alone: the second sum is refused all the same."""
    attack = attacker(folder)
    assert attack.ask(exact_plan(4)).total is not None
    assert attack.ask(through(Beta(1, 1, 0))).total is None
    other = exact_plan(4).with_calibrator(fg.Calibrator("beta", Beta(1, 1, 0)))
    assert attack.ask(other).total is None


def test_a_wide_map_shows_no_more_than_a_wide_axis(folder):
    """What is joined is the sum that an allowed axis of raw scores would give."""
    attack = attacker(folder)
    plan = through(Beta(1.2, 1.2, 0.3))
    answer = attack.ask(plan)
    assert np.diff(plan.score_axis.edges[1:-1]).min() >= LEAST_WIDTH
    pooled = np.zeros((2, plan.score_axis.bins), dtype=int)
    for labels, scores in attack.clients.values():
        for label in (0, 1):
            pooled[label] += np.histogram(scores[labels == label], plan.score_axis.edges)[0]
    np.testing.assert_array_equal(answer.counts, pooled)


def test_an_axis_that_a_site_allows_does_not_vouch_for_maps(folder):
    """Sites that allow a fine axis by its digest; the map makes a finer one of it."""
    fine = exact_plan(4, bins=256)
    attack = attacker(folder, axes=(fine.axis.digest,))
    _, score = target(attack)
    assert attack.ask(through(CLIFFS["steps"](score), fine)).total is None


def test_score_sums_do_not_look_inside_a_bin(folder):
    """Both halves of a bin at its two ends: the sum of places counts the rows above a cliff."""
    attack = attacker(folder, score_sums=True)
    _, score = target(attack)
    plan = exact_plan(4, fg.Axis.uniform(2, outside="clip"), score_sums=True)
    hidden = Steps((score, np.nextafter(score, 2)), (0.5, 0.75, 1.0))  # one bin, wide
    assert through(hidden, plan).score_axis.bins <= 2
    answer = attack.ask(through(hidden, plan))
    assert answer.total is None
    assert "score sums" in str(answer.refusals[VICTIM][1])


def test_a_map_that_falls_is_no_plan():
    """Bins that join scores far apart, or leave out one patient in the middle."""
    score = 0.437
    with pytest.raises(fg.PlanError, match="falls in places"):
        through(Steps((score, np.nextafter(score, 2)), (0.1, 0.9, 0.1)))
    plain = json.loads(through(Steps((0.4, 0.6), (0.1, 0.5, 0.9))).to_bytes())
    plain["calibrator"]["form"]["values"] = [0.1, 0.9, 0.1]
    with pytest.raises(fg.PlanError, match="falls in places"):
        fg.EvaluationPlan.from_bytes(msgspec.json.encode(plain))


def test_under_noise_any_map_costs_the_same(folder):
    """One row is in one bin whatever the map: a cliff is joined, and charged like any plan."""
    attack = attacker(folder, max_epsilon=1.0)
    _, score = target(attack)
    plain = noisy_plan(4)
    answer = attack.ask(through(CLIFFS["steps"](score), plain))
    assert answer.total is not None
    site = attack.sites.site(VICTIM)
    assert site.cost(through(CLIFFS["steps"](score), plain)) == site.cost(plain)


@pytest.mark.parametrize("view", [slice(None), slice(None, None, -1), slice(None, None, 2)])
def test_under_noise_a_row_outside_of_the_map_moves_no_other_row(view):
    """Rows at an edge that the last digit of a logarithm decides, and one with a score of 2. NumPy
    takes logarithms of an array that lies backwards in memory by another function. Where that row
    made a copy of the others, all of them were in another bin."""
    scores = np.random.default_rng(0).random(200_000)
    form = Beta(1.0, 0.0, 0.0)
    ways = np.array([form.apply(scores), form.apply(scores[::-1])[::-1]])
    torn = int(np.argmax(ways[0] != ways[1]))  # the first score, where both are one function
    axis = fg.Axis.from_edges([0.0, ways[:, torn].max(), 1.0], outside="clip")
    counts = []
    for last in (scores[torn], 2.0):
        rows = np.append(np.full(999, scores[torn]), last)[view]
        histogram = ScoreHistogram(axis, calibrator=fg.Calibrator("beta", form))
        histogram.update_leniently([Examples.leniently(np.ones(len(rows), dtype=int), rows)])
        counts.append(histogram.counts)
    assert np.abs(counts[0] - counts[1]).sum() <= 2  # one row was replaced


def test_two_maps_that_an_officer_sees_as_one_take_too_long_to_find():
    """Maps have numbers to spare, so that two digests which begin alike are found by trying."""
    seen = {}
    for c in range(1 << 20):
        made = fg.Calibrator("beta", Beta(1.0, 1.0, c * 2.0**-40))
        other = seen.setdefault(made.digest[:8], made)  # of 16 digits it takes 2^32 tries
        if other is not made:
            break
    shown = [through(each.form).in_words() for each in (made, other)]
    assert shown[0] != shown[1]
    assert made.digest[:32] in str(shown[0])


def test_the_ledger_names_the_plan_with_its_map(folder):
    """A map is no other model under the old name: what left is listed by the plan that holds it."""
    attack = attacker(folder)
    plain, mapped = noisy_plan(4, 0.4), through(Beta(1.2, 1.2, 0.3), noisy_plan(4, 0.4))
    assert attack.ask(plain).total is not None
    assert attack.ask(mapped).total is not None
    left = what_left(attack.sites.site(VICTIM))
    assert list(dict.fromkeys(row.plan for row in left)) == [plain.digest, mapped.digest]
    assert {row.model for row in left} == {""}
