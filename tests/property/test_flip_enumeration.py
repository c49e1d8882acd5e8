"""Privacy of flipped labels by enumeration: all labels of a few rows, all that can be told of them.
Probabilities are exact fractions, written here from the chance in the plan; other tests hold the
code that flips to that law."""

import itertools
import math
from fractions import Fraction

import mpmath
import msgspec
import numpy as np
import pytest

import fedgauge as fg
from fedgauge.privacy.local import flip, keeps_epsilon, least_chance
from fedgauge.privacy.oracles import KEEP, WHOLE, odds
from fedgauge.vertical.flips import count_by_bin

EPSILONS = (1e-6, 0.01, 0.5, 1.0, math.log(3), 3.0, 10.0, 20.0)
ROWS = 4
BINS = ([0, 1, 2, 3], [0, 0, 1, 2], [1, 1, 1, 1], [3, 0, 0, 3])
VECTORS = list(itertools.product((False, True), repeat=ROWS))
every_epsilon = pytest.mark.parametrize("epsilon", EPSILONS, ids=lambda e: f"{e:.3g}")


def power(epsilon):
    """A fraction just below e^epsilon, and one just above."""
    with mpmath.workprec(400):
        scaled = mpmath.exp(mpmath.mpf(epsilon)) * 2**300
        return Fraction(int(mpmath.floor(scaled)), 2**300), Fraction(int(scaled) + 1, 2**300)


def plan_for(epsilon, bins=4):
    axis = fg.Axis.from_values(range(bins), outside="clip")
    return fg.EvaluationPlan.for_flips(axis, fg.LocalDP(epsilon, unit="label"))


def told_law(labels, chance):
    """Probability of every vector of told labels."""
    rho = Fraction(chance, WHOLE)
    return {
        told: math.prod(
            rho if one != other else 1 - rho for one, other in zip(told, labels, strict=True)
        )
        for told in VECTORS
    }


def sent_law(labels, chance, bins):
    """Probability of every message, by the code that counts what is told."""
    law = {}
    for told, probability in told_law(labels, chance).items():
        sent = tuple(count_by_bin(np.array(told), np.array(bins), 4).tolist())
        law[sent] = law.get(sent, 0) + probability
    return law


def worst(laws):
    """Largest ratio of an output's probabilities over all labels and every flip of one of them."""
    assert all(sum(law.values()) == 1 for law in laws.values())
    ratios = [Fraction(1)]
    for labels in VECTORS:
        for place in range(ROWS):
            other = (*labels[:place], not labels[place], *labels[place + 1 :])
            one, two = laws[labels], laws[other]
            ratios += [one[output] / two[output] for output in one]
    return max(ratios)


@every_epsilon
def test_the_worst_ratio_is_epsilon_and_no_more(epsilon):
    chance = plan_for(epsilon).flipped.chance
    low, high = power(epsilon)
    ratio = worst({labels: told_law(labels, chance) for labels in VECTORS})
    assert ratio == odds(chance)
    assert ratio <= low
    # No more flips than need be: a chance of one in 2^64 less, rho rounded down, breaks it.
    assert worst({labels: told_law(labels, chance - 1) for labels in VECTORS}) > high


@every_epsilon
@pytest.mark.parametrize("bins", BINS, ids=str)
def test_what_is_sent_tells_no_more_whatever_the_bins(epsilon, bins):
    chance = plan_for(epsilon).flipped.chance
    ratio = worst({labels: sent_law(labels, chance, bins) for labels in VECTORS})
    assert ratio <= odds(chance)
    if 1 in np.bincount(bins):  # alone in a bin, a label is told as it was flipped
        assert ratio == odds(chance)


def test_the_log_ratio_at_one():
    chance = least_chance(1.0)
    assert math.log(odds(chance)) == pytest.approx(1.0, abs=1e-15)


def test_flips_told_again_cost_nothing_and_flipped_again_cost_again():
    """Two evaluations: of the same flips, in other bins; and of labels flipped for each."""
    chance = least_chance(1.0)
    same, anew = {}, {}
    for labels in VECTORS:
        told = told_law(labels, chance)
        same[labels] = {}
        for vector, probability in told.items():
            sent = tuple(
                tuple(count_by_bin(np.array(vector), np.array(bins), 4)) for bins in BINS[:2]
            )
            same[labels][sent] = same[labels].get(sent, 0) + probability
        anew[labels] = {
            (one, two): told[one] * told[two] for one, two in itertools.product(VECTORS, repeat=2)
        }
    assert worst(same) == odds(chance)
    assert worst(anew) == odds(chance) ** 2
    assert math.log(worst(anew)) == pytest.approx(2.0, abs=1e-12)


def test_labels_that_change_under_the_same_flips_show():
    """Why flips are bound to labels: what is told then and now differs where they do, for sure."""
    chance = least_chance(1.0)
    then, now = (False, False, True, True), (True, False, True, True)
    unchanged = {(told, told) for told in told_law(then, chance)}
    changed = {
        (told, tuple(t ^ a ^ b for t, a, b in zip(told, then, now, strict=True)))
        for told in told_law(then, chance)
    }
    assert not unchanged & changed


@pytest.mark.parametrize("off", [-1, -(2**20), -(2**60)])
def test_a_plan_with_rarer_flips_is_refused(off):
    plan = plan_for(1.0)
    plan.check_promise()
    rarer = msgspec.structs.replace(plan.final, chance=plan.flipped.chance + off)
    altered = msgspec.structs.replace(plan, rounds=(rarer,))
    assert not keeps_epsilon(rarer.chance, 1.0)
    with pytest.raises(fg.PlanError, match="flips cost more"):
        altered.check_promise()


@pytest.mark.parametrize("chance", [0, -1, KEEP, WHOLE])
def test_a_chance_that_tells_all_or_nothing_is_none(chance):
    plan = plan_for(1.0)
    with pytest.raises(fg.PlanError, match="such as none has"):
        msgspec.structs.replace(plan, rounds=(fg.plan.FlipRound((4,), chance),))


class Words:
    """Gives the words it was given."""

    def __init__(self, octets, rest=()):
        self._parts = [np.array(octets, dtype=np.uint8).view("<u8"), np.array(rest, np.uint64)]

    def words(self, count):
        taken = self._parts.pop(0)
        assert len(taken) == count
        return taken


def test_labels_flip_by_words_below_the_chance_and_not_by_themselves():
    chance = least_chance(1.0)
    first, rest = divmod(chance, 2**56)
    octets = [first - 1, first + 1, first, first, 0, 255, first - 1, first + 1]
    source = Words(octets, [(rest - 1) << 8, rest << 8])
    labels = np.array([True, True, True, True, False, False, False, False])
    flips = np.array([True, False, True, False, True, False, True, False])
    assert np.array_equal(flip(labels, chance, source), labels ^ flips)
    from fedgauge.privacy.keystream import SimulatedKeystream

    chance = least_chance(0.5)
    flips = {
        tuple(flip(np.array(labels), chance, SimulatedKeystream(3)) ^ labels) for labels in VECTORS
    }
    assert len(flips) == 1


@every_epsilon
def test_a_label_drawn_at_random_is_told_as_close_as_the_other_one(epsilon):
    """What a label that does not count is told like, whatever the share of positives."""
    rho = Fraction(least_chance(epsilon), WHOLE)
    for share in (Fraction(n, 7) for n in range(8)):
        drawn = share * (1 - rho) + (1 - share) * rho
        for one, other in ((rho, drawn), (1 - rho, drawn), (rho, 1 - drawn), (1 - rho, 1 - drawn)):
            assert max(one / other, other / one) <= power(epsilon)[1]
