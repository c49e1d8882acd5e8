"""What a site's ledger lets its data cost, and in which order things may happen."""

import math
from datetime import UTC, datetime, timedelta
from functools import partial

import ledgers
import pytest
from ledgers import EXAMPLES, RULES, session

from fedgauge.errors import BudgetExceeded, LedgerError, PlanRefused
from fedgauge.site import Account, Balance, Cost
from fedgauge.site.entries import Roster
from fedgauge.site.exact import ExactSum

SUBJECTS = Account("stroke", "subject", "add-remove")
CLIENTS = Account("stroke", "client", "zero-out")
WHOLE = Account.whole("stroke")
OTHER = Account("heart", "example", "add-remove")
SUMS = Account("stroke", "-", "-")
EXACT = Cost(math.inf, 0.0)
LIMIT = Cost(1.0, 1e-5)
reserve = partial(ledgers.reserve, limit=LIMIT)
spend = partial(ledgers.spend, limit=LIMIT)


def sites(*numbers):
    return [session(1000 + number) for number in numbers]


def over(*numbers):
    """An exact sum over all these sites, or over none."""
    return ExactSum(Roster(frozenset(sites(*numbers)), len({*numbers})), "plan")


# What fits


def test_ten_tenths_fit_a_limit_of_one(ledger):
    for number in range(10):
        spend(ledger, number, 0.1)
    assert ledger.balances() == [Balance(EXAMPLES, None, Cost(1.0, 0.0), Cost(0.0, 0.0))]
    with pytest.raises(BudgetExceeded):
        reserve(ledger, 10, 1e-9)


def test_deltas_add_up_as_decimals_too(ledger):
    limit = Cost(1.0, 1e-7)
    for number in range(10):
        spend(ledger, number, Cost(0.01, 1e-8), limit=limit)
    with pytest.raises(BudgetExceeded, match=r"delta 1e-07; spent or reserved epsilon 0\.1"):
        reserve(ledger, 10, Cost(0.01, 1e-15), limit=limit)
    reserve(ledger, 10, Cost(0.01, 0.0), limit=limit)


def test_what_is_reserved_counts_and_what_is_released_does_not(ledger):
    reserve(ledger, 1, 0.7)
    with pytest.raises(BudgetExceeded):
        reserve(ledger, 2, 0.4)
    ledger.release(session(1))
    reserve(ledger, 2, 0.4)
    assert ledger.balances() == [Balance(EXAMPLES, None, Cost(0.0, 0.0), Cost(0.4, 0.0))]


def test_a_refusal_says_what_was_asked_and_what_to_do_and_changes_nothing(ledger):
    spend(ledger, 1, 0.75)
    with pytest.raises(BudgetExceeded) as caught:
        reserve(ledger, 2, Cost(0.5, 1e-6))
    for part in (
        "stroke (all plans)",
        "limit epsilon 1, delta 1e-05",
        "spent or reserved epsilon 0.75, delta 0",
        "asked epsilon 0.5, delta 1e-06",
        "`fedgauge ledger set-limit`",
    ):
        assert part in str(caught.value)
    assert ledger.status(session(2)) is None
    assert len(ledger.entries()) == 2


def test_all_plans_on_a_dataset_spend_one_budget(ledger):
    """Whomever a plan protects, it costs each row its epsilon and its delta."""
    spend(ledger, 1, Cost(0.5, 4e-6))
    spend(ledger, 2, Cost(0.2, 4e-6), SUBJECTS)
    for account in (EXAMPLES, SUBJECTS, CLIENTS):
        with pytest.raises(
            BudgetExceeded, match=r"stroke \(all plans\).* epsilon 0\.7, delta 8e-06"
        ):
            reserve(ledger, 3, 0.301, account)
        with pytest.raises(BudgetExceeded):
            reserve(ledger, 3, Cost(0.1, 2.1e-6), account)
    reserve(ledger, 3, Cost(0.3, 2e-6), CLIENTS)
    assert ledger.totals(default_limit=LIMIT) == [
        Balance(WHOLE, LIMIT, Cost(0.7, 8e-6), Cost(0.3, 2e-6))
    ]
    assert [balance.limit for balance in ledger.balances()] == [None, None, None]


def test_datasets_are_apart(ledger):
    spend(ledger, 1, 1.0)
    spend(ledger, 2, 1.0, OTHER)
    for account in (EXAMPLES, OTHER):
        with pytest.raises(BudgetExceeded):
            reserve(ledger, 3, 0.001, account)


def test_a_limit_of_a_dataset_replaces_the_default_and_the_last_one_holds(ledger):
    ledger.set_limit(WHOLE, Cost(0.5, 0.0))
    with pytest.raises(BudgetExceeded, match=r"limit epsilon 0\.5"):
        reserve(ledger, 1, 0.6)
    ledger.set_limit(WHOLE, Cost(2.0, 0.0))
    spend(ledger, 1, 1.5)
    ledger.set_limit(WHOLE, Cost(1.0, 0.0))  # below what is spent: nothing more
    with pytest.raises(BudgetExceeded):
        reserve(ledger, 2, 0.001, SUBJECTS)
    reserve(ledger, 2, 1.0, OTHER)
    assert ledger.totals(default_limit=LIMIT) == [
        Balance(Account.whole("heart"), LIMIT, Cost(0.0, 0.0), Cost(1.0, 0.0)),
        Balance(WHOLE, Cost(1.0, 0.0), Cost(1.5, 0.0), Cost(0.0, 0.0)),
    ]


def test_a_limit_of_an_account_is_met_besides_that_of_its_dataset(ledger):
    ledger.set_limit(EXAMPLES, Cost(0.5, 0.0))
    with pytest.raises(BudgetExceeded, match=r"stroke \(example, add-remove\).*limit epsilon 0\.5"):
        reserve(ledger, 1, 0.6)
    spend(ledger, 1, 0.4)
    reserve(ledger, 2, 0.5, SUBJECTS)
    ledger.set_limit(EXAMPLES, Cost(9.0, 1.0))  # grants no more than the dataset has
    with pytest.raises(BudgetExceeded, match="all plans"):
        reserve(ledger, 3, 0.2)
    assert ledger.balances() == [
        Balance(EXAMPLES, Cost(9.0, 1.0), Cost(0.4, 0.0), Cost(0.0, 0.0)),
        Balance(SUBJECTS, None, Cost(0.0, 0.0), Cost(0.5, 0.0)),
    ]


def test_exact_sums_have_no_part_in_the_total(ledger):
    spend(ledger, 1, EXACT, SUMS)
    assert ledger.totals(default_limit=LIMIT) == []
    reserve(ledger, 2, 1.0, mix_exact=True)
    assert ledger.totals(default_limit=LIMIT) == [
        Balance(WHOLE, LIMIT, Cost(0.0, 0.0), Cost(1.0, 0.0))
    ]


def test_an_old_ledger_that_spent_by_accounts_spends_no_more(ledger):
    """Entries stay as they are; what they come to is judged by today's rule."""
    for number, account in enumerate((EXAMPLES, SUBJECTS), start=1):
        reserve(ledger, number, 1.0, account, limit=Cost(2.0, 0.0))
    assert [balance.reserved.epsilon for balance in ledger.balances()] == [1.0, 1.0]
    assert [total.reserved.epsilon for total in ledger.totals(default_limit=LIMIT)] == [2.0]
    with pytest.raises(BudgetExceeded):
        reserve(ledger, 3, 0.001, CLIENTS)
    ledger.commit(session(1))


# The states of a session


def test_the_life_of_a_session(ledger):
    assert ledger.status(session(1)) is None
    reserve(ledger, 1, 0.1)
    assert ledger.status(session(1)) == "reserved"
    ledger.commit(session(1))
    assert ledger.status(session(1)) == "committed"
    reserve(ledger, 2, 0.1)
    ledger.release(session(2))
    assert ledger.status(session(2)) == "released"


def test_repeating_a_step_changes_nothing(ledger):
    reserve(ledger, 1, 0.6)
    reserve(ledger, 1, 0.6)  # no second 0.6: the limit is 1
    ledger.commit(session(1))
    ledger.commit(session(1))
    reserve(ledger, 2, 0.4)
    ledger.release(session(2))
    ledger.release(session(2))
    assert [entry.kind for entry in ledger.entries()] == ["reserve", "commit", "reserve", "release"]


def test_a_reservation_is_taken_up_even_where_it_would_no_longer_fit(ledger):
    reserve(ledger, 1, 0.6)
    ledger.set_limit(EXAMPLES, Cost(0.5, 0.0))
    reserve(ledger, 1, 0.6)
    assert ledger.status(session(1)) == "reserved"


@pytest.mark.parametrize(("account", "cost"), [(EXAMPLES, 0.2), (SUBJECTS, 0.1)])
def test_a_session_has_one_account_and_one_cost(ledger, account, cost):
    reserve(ledger, 1, 0.1)
    with pytest.raises(LedgerError, match="new session"):
        reserve(ledger, 1, cost, account)


@pytest.mark.parametrize("end", ["commit", "release"])
def test_an_ended_session_is_not_reserved_again(ledger, end):
    reserve(ledger, 1, 0.1)
    getattr(ledger, end)(session(1))
    with pytest.raises(LedgerError, match="new session"):
        reserve(ledger, 1, 0.1)


def test_what_was_spent_is_not_given_back(ledger):
    spend(ledger, 1, 0.1)
    with pytest.raises(LedgerError, match="given back"):
        ledger.release(session(1))
    assert ledger.status(session(1)) == "committed"


def test_what_was_given_back_is_not_spent(ledger):
    reserve(ledger, 1, 0.1)
    ledger.release(session(1))
    with pytest.raises(LedgerError, match="released"):
        ledger.commit(session(1))


@pytest.mark.parametrize("step", ["commit", "release"])
def test_unknown_sessions_are_refused(ledger, step):
    with pytest.raises(LedgerError, match="not in the ledger"):
        getattr(ledger, step)(session(1))
    with pytest.raises(LedgerError, match="not in the ledger"):
        ledger.record_survivors(session(1), sites(1, 2, 3), rules=RULES)


@pytest.mark.parametrize("bad", [b"", bytes(31), bytes(33), "0" * 32])
def test_a_session_id_is_32_bytes(ledger, bad):
    for call in (ledger.commit, ledger.release, ledger.status):
        with pytest.raises(LedgerError, match="32 bytes"):
            call(bad)
    with pytest.raises(LedgerError, match="32 bytes"):
        ledger.reserve(bad, EXAMPLES, Cost(0.1, 0.0), default_limit=LIMIT)


# Exact sums


def test_exact_sums_meet_no_limit(ledger):
    for number in range(3):
        spend(ledger, number, EXACT, SUMS, limit=Cost(0.0, 0.0), exact=over(1, 2, 3))
    assert ledger.balances() == [Balance(SUMS, None, EXACT, Cost(0.0, 0.0))]


@pytest.mark.parametrize("step", ["reserve", "commit"])
def test_an_exact_sum_would_void_a_promise_on_the_same_dataset(ledger, step):
    reserve(ledger, 1, 0.1, SUBJECTS)
    if step == "commit":
        ledger.commit(session(1))
    with pytest.raises(
        BudgetExceeded, match=r"with noise was begun on.*void that promise.*mix_exact = true"
    ):
        reserve(ledger, 2, EXACT, SUMS)
    reserve(ledger, 3, EXACT, Account("heart", "-", "-"))
    reserve(ledger, 2, EXACT, SUMS, mix_exact=True)


@pytest.mark.parametrize("step", ["reserve", "commit"])
def test_no_promise_after_an_exact_sum_on_the_same_dataset(ledger, step):
    reserve(ledger, 1, EXACT, SUMS)
    if step == "commit":
        ledger.commit(session(1))
    for account in (EXAMPLES, SUBJECTS):
        with pytest.raises(
            BudgetExceeded, match=r"exact sum was begun on.*voids any promise.*mix_exact = true"
        ):
            reserve(ledger, 2, 0.1, account)
    reserve(ledger, 3, 0.1, OTHER)
    reserve(ledger, 2, 0.1, EXAMPLES, mix_exact=True)


def test_what_was_released_voids_nothing(ledger):
    reserve(ledger, 1, EXACT, SUMS)
    ledger.release(session(1))
    reserve(ledger, 2, 0.1)
    ledger.release(session(2))
    reserve(ledger, 3, EXACT, SUMS)


def test_mixing_does_not_lift_the_limit(ledger):
    spend(ledger, 1, EXACT, SUMS)
    with pytest.raises(BudgetExceeded, match="limit"):
        reserve(ledger, 2, 1.5, mix_exact=True)


# Survivors


def survive(ledger, number, *survivors, cost=EXACT, account=SUMS, min_cohort=3):
    """Take part in a sum to which others were invited who never came."""
    rules = RULES._replace(min_cohort=min_cohort)
    invited = over(*survivors, *range(100 * number, 100 * number + 6))
    spend(ledger, number, cost, account, mix_exact=True, exact=invited, rules=rules)
    ledger.record_survivors(session(number), sites(*survivors), rules=rules)


@pytest.mark.parametrize(
    "near", [(1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6, 7), (1, 2, 3, 4, 5, 7), (1, 2, 3, 4)]
)
def test_the_difference_of_two_exact_sums_hides_its_sites(ledger, near):
    survive(ledger, 1, 1, 2, 3, 4, 5, 6)
    survive(ledger, 2, 1, 2, 3, 4, 5, 6)  # the same sites
    survive(ledger, 3, 1, 2, 3)  # three fewer
    survive(ledger, 4, 1, 2, 3, 7, 8, 9, 10, 11, 12)  # six more; with the first, nine apart
    with pytest.raises(PlanRefused, match=r"sum over [12] sites?: .*at least 3"):
        survive(ledger, 5, *near)


def test_every_earlier_sum_is_looked_at(ledger):
    survive(ledger, 1, 1, 2, 3, 4)
    survive(ledger, 2, 11, 12, 13, 14)
    survive(ledger, 3, 21, 22, 23, 24)
    with pytest.raises(PlanRefused, match="sum over 1 site:"):
        survive(ledger, 4, 1, 2, 3)


def test_three_sums_can_show_what_no_two_do(ledger):
    survive(ledger, 1, 1, 2, 3, 4, 5, 6, 7)
    survive(ledger, 2, 1, 2, 3)
    with pytest.raises(PlanRefused, match="sum over 1 site:"):
        survive(ledger, 3, 4, 5, 6)  # the first less these two is site 7


def test_a_refused_set_is_not_recorded_and_stays_spent(ledger):
    survive(ledger, 1, 1, 2, 3, 4)
    with pytest.raises(PlanRefused):
        survive(ledger, 2, 1, 2, 3)
    assert ledger.status(session(2)) == "committed"
    assert [entry.session for entry in ledger.entries() if entry.survivors] == [session(1)]
    ledger.record_survivors(session(2), sites(1, 2, 3, 4), rules=RULES)


def test_the_minimum_is_the_sites_own(ledger):
    survive(ledger, 1, *range(10), min_cohort=5)
    survive(ledger, 2, *range(5), min_cohort=5)
    with pytest.raises(PlanRefused, match="sum over 4 sites:"):
        survive(ledger, 3, *range(5), *range(10, 14), min_cohort=5)


def test_the_least_sum_is_the_sites_own(ledger):
    with pytest.raises(PlanRefused, match="over 4 sites"):
        survive(ledger, 3, *range(20, 24), min_cohort=5)


def test_a_site_named_twice_counts_once(ledger):
    with pytest.raises(PlanRefused, match="over 2 sites"):
        survive(ledger, 1, 1, 2, 2, 1)


def test_other_datasets_and_noisy_sums_do_not_matter(ledger):
    survive(ledger, 1, 1, 2, 3, 4)
    survive(ledger, 2, 1, 2, 3, account=Account("heart", "-", "-"))
    survive(ledger, 3, 1, 2, 3, cost=Cost(0.1, 0.0), account=EXAMPLES)
    survive(ledger, 4, 1, 2, 3, 4, 5, 6, cost=Cost(0.1, 0.0), account=EXAMPLES)
    survive(ledger, 5, 1, 2, 3, 4, 5, 6, 7)
    assert len([entry for entry in ledger.entries() if entry.kind == "survivors"]) == 5


def test_survivors_are_recorded_once(ledger):
    survive(ledger, 1, 1, 2, 3)
    ledger.record_survivors(session(1), sites(3, 2, 1), rules=RULES)
    with pytest.raises(LedgerError, match="other survivors"):
        ledger.record_survivors(session(1), sites(11, 12, 13), rules=RULES)
    survive(ledger, 2, 1, 2, 3, cost=Cost(0.1, 0.0), account=EXAMPLES)
    with pytest.raises(LedgerError, match="other survivors"):
        ledger.record_survivors(session(2), sites(1, 2), rules=RULES)
    assert len(ledger.entries()) == 6


def test_survivors_of_what_did_not_leave_are_refused(ledger):
    reserve(ledger, 1, EXACT, SUMS)
    with pytest.raises(LedgerError, match="has to be committed"):
        ledger.record_survivors(session(1), sites(1, 2, 3), rules=RULES)
    ledger.release(session(1))
    with pytest.raises(LedgerError, match="has to be committed"):
        ledger.record_survivors(session(1), sites(1, 2, 3), rules=RULES)


def test_survivors_are_public_keys(ledger):
    spend(ledger, 1, EXACT, SUMS)
    with pytest.raises(LedgerError, match="32 bytes"):
        ledger.record_survivors(session(1), [b"a", b"b", b"c"], rules=RULES)


# Values


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(-0.1, 0), (math.nan, 0), (0.1, -1e-9), (0.1, 1.1), (0.1, math.nan), (True, 0), ("1", 0),
     (None, 0), (0.1, math.inf), (10**400, 0)],
)  # fmt: skip
def test_a_cost_is_two_numbers(epsilon, delta):
    with pytest.raises(LedgerError, match=r"epsilon|delta"):
        Cost(epsilon, delta)


def test_a_limit_is_finite(ledger):
    with pytest.raises(LedgerError, match="finite"):
        ledger.set_limit(EXAMPLES, EXACT)
    with pytest.raises(LedgerError, match="finite"):
        reserve(ledger, 1, 0.1, limit=EXACT)


def test_entries_tell_everything(ledger):
    before = datetime.now(UTC) - timedelta(seconds=2)
    ledger.set_limit(SUMS, Cost(3.0, 1e-7))
    survive(ledger, 1, 3, 1, 2)
    limit, reserved, committed, recorded = entries = ledger.entries()
    assert [entry.number for entry in entries] == [1, 2, 3, 4]
    assert all(before < entry.time <= datetime.now(UTC) for entry in entries)
    assert (limit.kind, limit.account, limit.cost) == ("limit", SUMS, Cost(3.0, 1e-7))
    assert (reserved.kind, reserved.session) == ("reserve", session(1))
    assert (reserved.account, reserved.cost) == (SUMS, EXACT)
    assert reserved.roster == Roster(frozenset(sites(1, 2, 3, *range(100, 106))), 9)
    assert (committed.kind, committed.session, committed.cost) == ("commit", session(1), None)
    assert recorded.survivors == frozenset(sites(1, 2, 3))


@pytest.mark.parametrize("epsilon", [0.1, 1e-300, 5e-324, 1 / 3, 1e22, 123456.789])
def test_costs_read_back_as_written(ledger, epsilon):
    cost = Cost(epsilon, 1 / 7)
    reserve(ledger, 1, cost, limit=Cost(1e300, 1.0))
    assert ledger.entries()[0].cost == cost


def test_odd_names_read_back(ledger):
    account = Account('a"\n\\ü\0', "-", "")
    reserve(ledger, 1, 0.1, account)
    assert ledger.balances()[0].account == account
