"""A site's ledger, and spending from it."""

import sqlite3

import pytest

from fedgauge.errors import LedgerError
from fedgauge.site import Account, Cost, Ledger
from fedgauge.site.exact_sums import ExactRules, ExactSum
from fedgauge.site.ledger_entries import Departure, SumRoster

EXAMPLES = Account("stroke", "example", "add-remove")
LIMIT = Cost(5.0, 1e-5)
SUBMITTED = Departure.of("submit", b"masked counts")
RULES = ExactRules(1000, exact_dropouts=True, min_cohort=3, min_new_rows=0)


def session(number):
    return number.to_bytes(32, "big")


def exact_sum(sites, needed=3, **known):
    """An exact sum to which sites are invited that are named by letters."""
    return ExactSum(SumRoster(frozenset(key(site) for site in sites), needed), "plan", **known)


def key(letter):
    return letter.encode() * 32


def make_ledger(folder):
    return Ledger.create(folder / "ledger.sqlite", head=folder / "site.key.head")


def open_ledger(folder, **options):
    return Ledger(folder / "ledger.sqlite", head=folder / "site.key.head", **options)


def reserve(ledger, number, cost, account=EXAMPLES, limit=LIMIT, **options):
    if not isinstance(cost, Cost):
        cost = Cost(cost, 0.0)
    if cost.is_exact_sum:
        options = {"exact": exact_sum("abcdefgh"), "rules": RULES} | options
    ledger.reserve(session(number), account, cost, default_limit=limit, **options)


def spend(ledger, number, cost, account=EXAMPLES, **options):
    reserve(ledger, number, cost, account, **options)
    ledger.commit(session(number))


def alter(folder, statement, *values):
    connection = sqlite3.connect(folder / "ledger.sqlite")
    with connection:
        connection.execute(statement, values)
    connection.close()


def every_call_fails(ledger, match):
    survivors = [session(number) for number in (11, 12, 13)]
    calls = [
        lambda: reserve(ledger, 9, 0.1),
        lambda: reserve(ledger, 1, 0.5),
        lambda: ledger.commit(session(1)),
        lambda: ledger.release(session(1)),
        lambda: ledger.status(session(1)),
        lambda: ledger.record_survivors(session(1), survivors, rules=RULES),
        lambda: ledger.record_sent(session(1), SUBMITTED),
        lambda: ledger.spend(session(1)),
        lambda: ledger.set_limit(EXAMPLES, LIMIT),
        ledger.balances,
        lambda: ledger.totals(default_limit=LIMIT),
        ledger.datasets,
        ledger.entries,
    ]
    for call in calls:
        with pytest.raises(LedgerError, match=match):
            call()
