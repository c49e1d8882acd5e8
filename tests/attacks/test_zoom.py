"""Exact sums as a query interface: one patient's score, found by asking again and again.

The attacker is an approved coordinator. Every plan is within the site's limits, over the same
sites and the same rows; it chooses the edges. It learns a score of one patient as finely as
floats are.
"""

import numpy as np
import pytest
from hostile import VICTIM, Attacker, exact_plan, exact_policy, larger_sites

import fedgauge as fg

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
    """Known values are bins of no width; log-odds are narrow at the ends.

    One narrow bin asks whether the patient with this score is among the rows.
    """
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

    Every bin of both is wide. Whether a patient has a certain score, and which label, shows all
    the same: a coordinator who can work out a patient's score finds out the label.
    """
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
