"""A refusal that stops nothing: several exact sums whose combination is one site's histogram. The
attacker is an approved coordinator. It chooses who is invited to which exact sum, and goes on
without those who do not answer. What it must not learn is the histogram of one site."""

import numpy as np
import pytest
from hostile import VICTIM, Attacker, exact_plan, exact_policy
from rows import draw_client

from fedgauge.secagg import Stage


def attacker(folder, others, **limits):
    clients = {VICTIM: draw_client(70, seed=99)}
    clients |= {f"site-{i}": draw_client(50 + 10 * i, seed=i) for i in range(1, others + 1)}
    return Attacker(folder, clients, policy=exact_policy(**limits))


def sites(*numbers):
    return [f"site-{i}" for i in numbers]


# Sites that stay with one roster, and sites that opted into several sets of survivors.
both = pytest.mark.parametrize("dropouts", [False, True], ids=["one roster", "dropouts"])


def assert_hidden(attacker):
    """No combination of what was opened is the victim's histogram."""
    assert not np.array_equal(attacker.shown(), attacker.truth(exact_plan(4)))


@both
def test_a_member_that_refuses_to_confirm_stops_the_sum(folder, dropouts):
    """{v,1,2,3} + {v,4,5,6} - all seven = v. The victim sees it and does not confirm the third sum.
    The coordinator goes on without the missing vote, with the victim's counts inside."""
    attack = attacker(folder, 6, exact_dropouts=dropouts)
    attack.ask(exact_plan(4), [VICTIM, *sites(1, 2, 3)])
    attack.ask(exact_plan(4), [VICTIM, *sites(4, 5, 6)])
    attack.ask(exact_plan(7))
    assert_hidden(attack)


@both
def test_a_sum_that_a_member_was_not_asked_to_confirm_counts(folder, dropouts):
    """The same three sums; the victim is never told who survived the first. Its counts left, so the
    sum may have been opened with it, and it was. Its own ledger must count the sum as opened over
    any set with it inside; today it does not count it at all."""
    attack = attacker(folder, 6, exact_dropouts=dropouts)
    attack.ask(exact_plan(4), [VICTIM, *sites(1, 2, 3)], silent={VICTIM: Stage.AGREE})
    attack.ask(exact_plan(4), [VICTIM, *sites(4, 5, 6)])
    attack.ask(exact_plan(7))
    assert_hidden(attack)


@pytest.mark.parametrize("size", [1, 2, 3], ids=lambda size: f"{2 * size + 1} and {4 * size}")
def test_sums_that_nobody_sees_together_do_not_show_a_site(folder, size):
    """{v} + A + B, {v} + C + D and A + B + C + D: the first two less the last are 2 v. No member is
    in all three, so no member's guard can add them up, whatever the cohort's size."""
    attack = attacker(folder, 4 * size)
    half = sites(*range(1, 2 * size + 1))
    rest = sites(*range(2 * size + 1, 4 * size + 1))
    attack.ask(exact_plan(2 * size + 1), [VICTIM, *half])
    attack.ask(exact_plan(2 * size + 1), [VICTIM, *rest])
    attack.ask(exact_plan(4 * size), [*half, *rest])
    assert_hidden(attack)


@both
def test_sums_begun_at_once_do_not_show_a_site(folder, dropouts):
    """The same three sums in parallel: all are joined before the first is submitted. A guard that
    looks at sums that are over sees none of them."""
    attack = attacker(folder, 6, exact_dropouts=dropouts)
    groups = [VICTIM, *sites(1, 2, 3)], [VICTIM, *sites(4, 5, 6)], None
    attack.ask_together([(exact_plan(len(group or range(7))), group) for group in groups])
    assert_hidden(attack)


@both
def test_two_sums_that_differ_by_one_site_begun_at_once(folder, dropouts):
    """All seven, and all but the victim: the sites that are in both must see it."""
    attack = attacker(folder, 6, exact_dropouts=dropouts)
    attack.ask_together([(exact_plan(7), None), (exact_plan(6), sites(1, 2, 3, 4, 5, 6))])
    assert_hidden(attack)


@both
def test_a_member_that_drops_out_of_one_of_two_sums_is_not_shown(folder, dropouts):
    """All seven twice; the second time the victim is not asked for its counts."""
    attack = attacker(folder, 6, exact_dropouts=dropouts)
    attack.ask(exact_plan(7))
    second = attack.ask(exact_plan(6), list(attack.clients), silent={VICTIM: Stage.MASK})
    assert second.total is None


def test_a_new_name_for_the_same_rows_does_not_change_the_roster(folder):
    """Operators who are told that another roster needs data of another name give it one. The rows
    are the same, so the sums can be combined as before."""
    attack = attacker(folder, 6)
    groups = [VICTIM, *sites(1, 2, 3)], [VICTIM, *sites(4, 5, 6)], list(attack.clients)
    for number, group in enumerate(groups):
        for name in attack.clients:
            attack.rename(name, f"stroke-{number}")
        attack.ask(exact_plan(len(group)), group)
    assert_hidden(attack)


def test_the_same_sites_again_are_not_refused(folder):
    """The control: a roster that stays the same shows nothing new, and is not an attack."""
    attack = attacker(folder, 3)
    for _ in range(2):
        assert attack.ask(exact_plan(4)).total is not None
    assert_hidden(attack)
