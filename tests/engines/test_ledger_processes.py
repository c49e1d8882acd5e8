"""Processes that share a ledger, and processes that are killed while they spend from it."""

import shutil

import ledger_child
import pytest
from forks import KILLED, serving

from fedgauge.errors import BudgetExceeded, LedgerError
from fedgauge.site import Account, Cost, Ledger

ACCOUNT = Account("stroke", "example", "add-remove")
SESSION = bytes(range(32))


@pytest.fixture(scope="module")
def ask():
    with serving("ledger_child.py") as send:
        yield lambda work, folder, **request: send(request | {"work": work, "folder": str(folder)})


@pytest.fixture(params=["alone", "witness"])
def start(folder, request):
    """Where a new ledger is, with a witness elsewhere or without."""
    place = folder / "start"
    place.mkdir()
    ledger = Ledger.create(place / "ledger.sqlite", head=place / "head")
    if request.param == "witness":
        (place / "elsewhere").mkdir()
        ledger.appoint(place / "elsewhere" / "witness")
    return place


def open_ledger(folder):
    """The ledger in a folder, as its children open it."""
    return ledger_child.open_ledger({"folder": folder})


def check_agree(folder):
    """The ledger's end, its head and its witness are one."""
    entries = open_ledger(folder).entries()
    assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
    head = (folder / "head").read_bytes()
    assert head.startswith(b"fedgauge-head/1 %d " % len(entries))
    if (folder / "elsewhere").exists():
        assert (folder / "elsewhere" / "witness").read_bytes() == head
    return entries


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
def test_a_spend_killed_at_any_step_is_whole_and_can_be_taken_up(ask, folder, start, before):
    cost = 1.0
    if before == "used":
        cost = 0.3
        reserve(open_ledger(start), bytes(32), 0.7, 1.0)
        open_ledger(start).commit(bytes(32))
    seen, last, codes = set(), 0, [KILLED]
    while codes == [KILLED]:
        last += 1
        place = shutil.copytree(start, folder / str(last))
        answer = ask("once", place, session=SESSION.hex(), cost=cost, limit=1.0, last=last)
        codes = answer["codes"]
        ledger = open_ledger(place)
        status = check_whole(ledger, answer["said"])
        check_agree(place)
        seen.add((status, *answer["said"]))
        if status != "committed":  # take it up as a site does that starts again
            reserve(ledger, SESSION, cost, 1.0)
            ledger.commit(SESSION)
        assert spent(ledger) == (1.0, 0.0)
        assert len(check_agree(place)) == (2 if before == "new" else 4)
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


@pytest.mark.parametrize("start", ["witness"], indirect=True)
def test_an_old_copy_is_noticed_however_its_site_was_killed(ask, folder, start):
    """From the moment that a call returns, and no sooner: nothing has left by then."""
    noticed, last, codes = set(), 0, [KILLED]
    while codes == [KILLED]:
        last += 1
        place = shutil.copytree(start, folder / str(last))
        answer = ask("once", place, session=SESSION.hex(), cost=0.5, limit=1.0, last=last)
        codes = answer["codes"]
        shutil.copy(start / "ledger.sqlite", place)
        shutil.copy(start / "head", place)
        try:
            assert open_ledger(place).entries() == []
        except LedgerError:
            noticed.add(len(answer["said"]))
        else:
            assert not answer["said"]
    assert noticed == {0, 1, 2}


def test_making_a_ledger_and_its_witness_is_taken_up_wherever_it_was_killed(ask, folder):
    last, codes = 0, [KILLED]
    while codes == [KILLED]:
        last += 1
        place = folder / str(last)
        (place / "elsewhere").mkdir(parents=True)
        codes = ask("begin", place, last=last)["codes"]
        if not (place / "ledger.sqlite").exists():
            Ledger.create(place / "ledger.sqlite", head=place / "head")
        alone = Ledger(place / "ledger.sqlite", head=place / "head")
        alone.appoint(place / "elsewhere" / "witness")
        assert check_agree(place) == []
    assert codes == [0]
    assert last > 60


def test_spending_that_is_killed_at_any_moment_loses_nothing(ask, start):
    said = set()
    for milliseconds in range(0, 30):
        answer = ask("on", start, cost=0.001, limit=900.0, seconds=milliseconds / 1000)
        assert answer["codes"] == [KILLED]
        said |= set(answer["said"])
        entries = check_agree(start)
        committed = {entry.session.hex() for entry in entries if entry.kind == "commit"}
        reserved = [entry.session.hex() for entry in entries if entry.kind == "reserve"]
        assert said <= committed <= set(reserved)
        assert len(reserved) == len(set(reserved))
    assert len(said) >= 30


def test_many_processes_spend_exactly_what_the_limit_allows(ask, start):
    answer = ask("all", start, cost=0.1, limit=4.0, tries=12, processes=8)
    assert answer["codes"] == [0] * 8
    assert len(answer["said"]) == len(set(answer["said"])) == 40  # of 96 tries
    assert spent(open_ledger(start)) == (4.0, 0.0)
    entries = check_agree(start)
    assert len(entries) == 80
    committed = [entry.session.hex() for entry in entries if entry.kind == "commit"]
    assert sorted(committed) == sorted(answer["said"])


def test_processes_killed_while_others_spend_never_pass_the_limit(ask, start):
    for _ in range(5):
        ask("on", start, cost=0.01, limit=50.0, processes=4, seconds=0.1)
    answer = ask("all", start, cost=1.0, limit=50.0, tries=15, processes=4)
    assert answer["codes"] == [0] * 4
    ledger = open_ledger(start)
    used, held = spent(ledger)
    assert 49.0 < used + held <= 50.0
    for entry in ledger.entries():
        if entry.kind == "reserve" and ledger.status(entry.session) == "reserved":
            ledger.commit(entry.session)  # whoever was killed comes back
    assert spent(ledger) == (pytest.approx(used + held), 0.0)
    check_agree(start)
