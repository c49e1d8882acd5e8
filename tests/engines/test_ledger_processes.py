"""Processes that share a ledger, and processes that are killed while they spend from it."""

import shutil

import pytest
from forks import KILLED, serving

from fedgauge.errors import BudgetExceeded
from fedgauge.site import Account, Cost, Ledger

ACCOUNT = Account("stroke", "example", "add-remove")
SESSION = bytes(range(32))


@pytest.fixture(scope="module")
def ask():
    """Send a request to the process that forks, and read its answer."""
    with serving("ledger_child.py") as send:
        yield lambda work, folder, **request: send(request | {"work": work, "folder": str(folder)})


def open_ledger(folder):
    return Ledger(folder / "ledger.sqlite", head=folder / "head")


def spent(ledger):
    (balance,) = [b for b in ledger.balances() if b.account == ACCOUNT]
    return balance.spent.epsilon, balance.reserved.epsilon


def reserve(ledger, session, cost, limit):
    ledger.reserve(session, ACCOUNT, Cost(cost, 0.0), default_limit=Cost(limit, 0.0))


def check_whole(ledger, said):
    """A call that returned has happened; one that did not has happened whole or not at all."""
    status = ledger.status(SESSION)
    if "commit" in said:
        assert status == "committed"
    elif "reserve" in said:
        assert status in ("reserved", "committed")
    else:
        assert status in (None, "reserved")
    kinds = [entry.kind for entry in ledger.entries() if entry.session == SESSION]
    assert kinds == {None: [], "reserved": ["reserve"], "committed": ["reserve", "commit"]}[status]
    return status


@pytest.mark.parametrize("before", ["new", "used"])
def test_a_spend_killed_at_any_step_is_whole_and_can_be_taken_up(ask, folder, before):
    cost = 1.0
    (folder / "start").mkdir()
    if before == "used":
        cost = 0.3
        reserve(open_ledger(folder / "start"), bytes(32), 0.7, 1.0)
        open_ledger(folder / "start").commit(bytes(32))
    seen, last, codes = set(), 0, [KILLED]
    while codes == [KILLED]:
        last += 1
        place = shutil.copytree(folder / "start", folder / str(last))
        answer = ask("once", place, session=SESSION.hex(), cost=cost, limit=1.0, last=last)
        codes = answer["codes"]
        ledger = open_ledger(place)
        status = check_whole(ledger, answer["said"])
        seen.add((status, *answer["said"]))
        if status != "committed":  # take it up as a site does that starts again
            reserve(ledger, SESSION, cost, 1.0)
            ledger.commit(SESSION)
        assert spent(ledger) == (1.0, 0.0)
        assert len(ledger.entries()) == (2 if before == "new" else 4)
        with pytest.raises(BudgetExceeded):
            reserve(ledger, bytes([1] * 32), 0.001, 1.0)
    assert codes == [0]
    assert last > 60  # points before and after some thirty calls
    # Killed before and after each of the two commits, on either side of the call's return.
    assert seen == {
        (None,),
        ("reserved",),
        ("reserved", "reserve"),
        ("committed", "reserve"),
        ("committed", "reserve", "commit"),
    }


def test_spending_that_is_killed_at_any_moment_loses_nothing(ask, folder):
    said = set()
    for milliseconds in range(0, 30):
        answer = ask("on", folder, cost=0.001, limit=900.0, seconds=milliseconds / 1000)
        assert answer["codes"] == [KILLED]
        said |= set(answer["said"])
        ledger = open_ledger(folder)
        entries = ledger.entries()
        committed = {entry.session.hex() for entry in entries if entry.kind == "commit"}
        reserved = [entry.session.hex() for entry in entries if entry.kind == "reserve"]
        assert said <= committed <= set(reserved)
        assert len(reserved) == len(set(reserved))
    assert len(said) >= 30


def test_many_processes_spend_exactly_what_the_limit_allows(ask, folder):
    answer = ask("all", folder, cost=0.1, limit=4.0, tries=12, processes=8)
    assert answer["codes"] == [0] * 8
    assert len(answer["said"]) == len(set(answer["said"])) == 40  # of 96 tries
    ledger = open_ledger(folder)
    assert spent(ledger) == (4.0, 0.0)
    entries = ledger.entries()
    assert [entry.number for entry in entries] == list(range(1, 81))
    committed = [entry.session.hex() for entry in entries if entry.kind == "commit"]
    assert sorted(committed) == sorted(answer["said"])


def test_processes_killed_while_others_spend_never_pass_the_limit(ask, folder):
    for _ in range(5):
        ask("on", folder, cost=0.01, limit=50.0, processes=4, seconds=0.1)
    answer = ask("all", folder, cost=1.0, limit=50.0, tries=15, processes=4)
    assert answer["codes"] == [0] * 4
    ledger = open_ledger(folder)
    used, held = spent(ledger)
    assert 49.0 < used + held <= 50.0
    for entry in ledger.entries():
        if entry.kind == "reserve" and ledger.status(entry.session) == "reserved":
            ledger.commit(entry.session)  # whoever was killed comes back
    assert spent(ledger) == (pytest.approx(used + held), 0.0)
