"""Privacy of two rounds of reports by enumeration: all rows, both rounds, all reports. What is seen
of a row is the round that its id says, and its report. Chances of rounds come from the code that
asks whose turn it is, cells from the code that encodes rows, laws from the plans. As in
test_local_enumeration.py, exact fractions throughout."""

from fractions import Fraction

import msgspec
import numpy as np
import pytest
from report_laws import law_of, power, worst

import fedgauge as fg
from fedgauge.engines.reports import Turns
from fedgauge.local import messages
from fedgauge.plan.two_rounds import Found
from fedgauge.privacy.keystream import SimulatedKeystream

EPSILON = 1.0
COARSE = fg.Axis.uniform(4, 0.0, 4.0, outside="clip")
TWO = fg.TwoRound(3, share=0.25, coarse=COARSE)
ROWS = ([0, 1] * 5, np.repeat([-1.0, 0.5, 1.5, 2.5, 3.5], 2))  # every cell of both rounds


def plans(oracle="oue", counts=(5, 1, 1, 5)):
    first = fg.EvaluationPlan.for_reports(TWO, fg.LocalDP(EPSILON, oracle=oracle))
    return first, first.located(Found(TWO, counts, sum(counts)))


def chance_of(plan):
    """Of an id to be of this round: how many of all numbers of 64 bits are."""
    low, high = 0, 2**64  # the first numbers are of the first round, the others of the second
    turns = Turns(plan)

    def is_mine(number):
        octets = [*number.to_bytes(8, "little"), *bytes(8)]
        return bool(turns.fit(np.array([octets], dtype=np.uint8))[0])

    begins = is_mine(0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_mine(middle) == begins else (low, middle)
    return Fraction(high if begins else 2**64 - high, 2**64)


def cells_of(plan):
    read = messages._LeafCells(plan, ROWS, SimulatedKeystream(1)).read(100)
    return np.concatenate([cells for _, cells in read]).tolist()


def laws_by_round(both):
    """Of each round, the law of a report of every row."""
    laws = []
    for plan in both:
        (oracle,) = plan.oracles
        laws.append([law_of(oracle)[cell] for cell in cells_of(plan)])
    return laws


def seen_of(both, chances):
    """Probability of each round and message, for every row."""
    rounds = laws_by_round(both)
    return [
        {
            (number, said): chances(row)[number] * probability
            for number, law in enumerate(rounds)
            for said, probability in law[row].items()
        }
        for row in range(len(ROWS[0]))
    ]


@pytest.mark.parametrize("counts", [(5, 1, 1, 5), (0, 0, 9, 0)], ids=["ends", "crowd"])
@pytest.mark.parametrize("oracle", ["oue", "hadamard"])
def test_round_and_report_together_keep_epsilon(oracle, counts):
    both = plans(oracle, counts)
    share = [chance_of(plan) for plan in both]
    assert sum(share) == 1
    assert share[0] == Fraction(TWO.share)
    low, _ = power(EPSILON)
    assert 1 < worst(seen_of(both, lambda _: share)) <= low
    for plan in both:  # every cell is enumerated
        assert {*cells_of(plan)} == {*range(plan.oracles[0].cells)}


def test_a_row_in_both_rounds_or_a_coin_that_depends_on_it_breaks_epsilon():
    first, second = laws_by_round(plans("hadamard"))
    laws = [
        {(a, b): p * q for a, p in one.items() for b, q in other.items()}
        for one, other in zip(first, second, strict=True)
    ]
    assert worst(laws) > power(EPSILON)[1]
    share = Fraction(TWO.share)

    def likelier(row):  # as if positives reported a little more often in the first round
        more = share + Fraction(ROWS[0][row], 10)
        return [more, 1 - more]

    assert worst(seen_of(plans("hadamard"), likelier)) > power(EPSILON)[1]


@pytest.mark.parametrize("number", [0, 1], ids=["first", "second"])
def test_a_plan_with_too_little_noise_in_one_round_is_refused(number):
    plan, _ = plans()
    plan.check_promise()
    rounds = list(plan.rounds)
    noise = rounds[number].noise
    rounds[number] = msgspec.structs.replace(rounds[number], noise=(noise[0] - 1, *noise[1:]))
    with pytest.raises(fg.PlanError, match="cost more"):
        msgspec.structs.replace(plan, rounds=tuple(rounds)).check_promise()
