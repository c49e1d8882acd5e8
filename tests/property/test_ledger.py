"""Whatever is asked of a ledger, in whatever order, it answers as plain bookkeeping would."""

import itertools
import math
import os
import tempfile
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgauge.errors import BudgetExceeded, LedgerError, PlanRefused
from fedgauge.site import Account, Cost, Ledger
from fedgauge.site.exact_sums import ExactRules, ExactSum
from fedgauge.site.ledger_entries import SumRoster

ACCOUNTS = [
    Account("stroke", "example", "add-remove"),
    Account("stroke", "client", "zero-out"),
    Account("stroke", "subject", "replace-one"),
    Account("heart", "example", "add-remove"),
    Account("stroke", "label", "flip"),
]
LABELS = ACCOUNTS[-1]
STEPS = {"add-remove": 2, "zero-out": 2, "replace-one": 1, "flip": 1}  # to the other label
DEFAULT = Cost(1.0, 3e-6)
NO_LIMIT = Cost(1e9, 1.0)
COHORT = 3
STORIES = 200  # ways in which unknown sums may have come out that are looked at
RULES = ExactRules(1000, exact_dropouts=True, min_cohort=COHORT, min_new_rows=0)
ENDS = ["committed", "released"]
SESSIONS = 6


@cache
def shows_few(sets):
    """Whether leaving out fewer than COHORT sites costs the sets rank: these are then shown."""
    rows = np.array([[site in chosen for site in range(7)] for chosen in sets], dtype=float)
    for shown in itertools.chain(*(itertools.combinations(range(7), n) for n in range(1, COHORT))):
        others = [site for site in range(7) if site not in shown]
        if np.linalg.matrix_rank(rows[:, others]) < np.linalg.matrix_rank(rows):
            return True
    return False


def fits(costs, limit):
    return all(
        sum(Decimal(str(getattr(c, part))) for c in costs if c.epsilon < math.inf)
        <= Decimal(str(getattr(limit, part)))
        for part in ("epsilon", "delta")
    )


def of_labels(account, cost):
    """What a plan costs a label, were it the other one."""
    if STEPS[account.neighbours] == 1 or cost.epsilon == math.inf:
        return cost
    return Cost(2 * cost.epsilon, cost.delta * (1 + math.exp(cost.epsilon)))


class Model:
    """The rules once more, on plain dictionaries and decimals."""

    def __init__(self):
        self.spends = {}
        self.limits = {}
        self.rosters = {}
        self.flips = {}
        self.survivors = {}
        self.length = 0

    def once(self, *statuses):
        """Sessions in some states, of those with the same flips the one that went furthest."""
        order, told, kept = ("committed", "reserved"), set(), []
        for session in sorted(self.spends, key=lambda s: self.spends[s][2] not in order[:1]):
            flips, (account, cost, status) = self.flips.get(session), self.spends[session]
            if status != "released" and (flips is None or flips not in told):
                kept += [(account, cost)] * (status in statuses)
                told.add(flips)
        return kept

    def live(self, test):
        return [cost for account, cost in self.once("reserved", "committed") if test(account)]

    def labels(self, *statuses):
        spends = self.once(*statuses)
        return [of_labels(a, c) for a, c in spends if a.dataset == LABELS.dataset and c.epsilon < 9]

    def stories(self, session):
        """All sets of sites that a sum can be over."""
        if session in self.survivors:
            return [self.survivors[session]]
        sites, needed = self.rosters[session]
        sizes = range(needed, len(sites) + 1)
        return [frozenset(s) for n in sizes for s in itertools.combinations(sorted(sites), n)]

    def may_show_few(self, session, dataset, sites):
        """Whether some way in which the other exact sums may have come out lays few bare."""
        known = [
            self.stories(other)
            for other, (account, cost, status) in self.spends.items()
            if other != session and account.dataset == dataset
            if status != "released" and cost.epsilon == math.inf
        ]
        others = [stories for stories in known if stories != [sites]]
        if len(sites) < COHORT:
            return True
        if not others:
            return False
        if math.prod(map(len, others)) not in range(1, STORIES + 1):
            return True
        return any(shows_few(frozenset([*story, sites])) for story in itertools.product(*others))

    def reserve(self, session, account, cost, mix, roster, flips=None):
        if session in self.spends:
            same = (self.spends[session][:2], self.flips[session]) == ((account, cost), flips)
            ended = self.spends[session][2] in ("released", *["committed"] * (flips is None))
            return "same" if same and not ended else LedgerError
        exact = cost.epsilon == math.inf
        others = self.live(lambda other: other.dataset == account.dataset)
        if not mix and any((other.epsilon == math.inf) != exact for other in others):
            return BudgetExceeded
        if not exact:
            own = self.live(lambda other: other == account)
            if flips in self.told():
                if cost != self.told()[flips]:
                    return LedgerError
                cost = Cost(0.0, 0.0)
            limit = self.limits.get(Account.whole(account.dataset), DEFAULT)
            if not fits([*others, cost], limit):
                return BudgetExceeded
            if account != LABELS and not fits([*own, cost], self.limits.get(account, NO_LIMIT)):
                return BudgetExceeded
            if account.dataset == LABELS.dataset:
                paid = [*self.labels("reserved", "committed"), of_labels(account, cost)]
                if not fits(paid, self.limits.get(LABELS, NO_LIMIT)):
                    return BudgetExceeded
        elif self.may_show_few(session, account.dataset, roster[0]):
            return PlanRefused
        self.spends[session] = (account, self.told().get(flips, cost), "reserved")
        self.rosters[session], self.flips[session] = roster, flips
        return "added"

    def told(self):
        """What flips are charged that some session holds."""
        live = [s for s, spend in self.spends.items() if spend[2] != "released"]
        return {self.flips[s]: self.spends[s][1] for s in live if self.flips[s]}

    def end(self, session, wanted):
        if session not in self.spends:
            return LedgerError
        account, cost, status = self.spends[session]
        if status == wanted:
            return "same"
        if status != "reserved":
            return LedgerError
        self.spends[session] = (account, cost, wanted)
        return "added"

    def record(self, session, sites):
        account, cost, status = self.spends.get(session, (None, None, None))
        if status != "committed":
            return LedgerError
        if session in self.survivors:
            return "same" if self.survivors[session] == sites else LedgerError
        if cost.epsilon == math.inf and self.may_show_few(session, account.dataset, sites):
            return PlanRefused
        self.survivors[session] = sites
        return "added"

    def limit(self, account, limit):
        self.limits[account] = limit
        return "added"


sessions = st.integers(0, SESSIONS - 1)
accounts = st.sampled_from([*ACCOUNTS, ACCOUNTS[0]])
wholes = st.sampled_from([Account.whole("stroke"), Account.whole("heart")])
epsilons = st.sampled_from([0.1, 0.2, 0.3, 0.7, 1.0])
finite = st.builds(Cost, epsilons, st.sampled_from([0.0, 1e-6, 2e-6]))
costs = finite | st.just(Cost(math.inf, 0.0))
cohorts = st.frozensets(st.integers(0, 6), min_size=2)
flips = st.sampled_from(["a" * 64, "b" * 64])
# Most sums are over all who are invited, or over none.
rosters = cohorts.flatmap(
    lambda sites: st.tuples(st.just(sites), st.sampled_from([len(sites)] * 3 + [len(sites) - 1]))
)
steps = st.one_of(
    st.tuples(st.just("reserve"), sessions, accounts, costs, st.booleans(), rosters).map(
        lambda s: [s]
    ),
    st.tuples(sessions, finite, rosters, flips).map(
        lambda drawn: [("reserve", drawn[0], LABELS, drawn[1], True, *drawn[2:])]
    ),
    st.tuples(st.just("end"), sessions, st.sampled_from(ENDS)).map(lambda s: [s]),
    st.tuples(st.just("record"), sessions, cohorts).map(lambda s: [s]),
    st.tuples(st.just("limit"), accounts | wholes, finite).map(lambda s: [s]),
    # A whole session: steps drawn one by one seldom come in this order.
    st.tuples(sessions, accounts, costs, rosters, cohorts, st.booleans()).map(
        lambda drawn: [
            ("reserve", *drawn[:3], True, drawn[3]),
            ("end", drawn[0], "committed"),
            ("record", drawn[0], drawn[4] if drawn[5] else drawn[3][0]),
        ]
    ),
)
histories = st.lists(steps, min_size=4, max_size=14).map(
    lambda drawn: [step for part in drawn for step in part]
)


def apply(ledger, step):
    match step:
        case "reserve", session, account, cost, mix, (sites, needed), *told:
            invited = ExactSum(SumRoster(frozenset(map(name, sites)), needed), "plan")
            ledger.reserve(
                name(session),
                account,
                cost,
                default_limit=DEFAULT,
                mix_exact=mix,
                exact=invited,
                rules=RULES,
                flips=told[0] if told else None,
            )
        case "end", session, "committed":
            ledger.commit(name(session))
        case "end", session, "released":
            ledger.release(name(session))
        case "record", session, sites:
            ledger.record_survivors(name(session), map(name, sites), rules=RULES)
        case "limit", account, limit:
            ledger.set_limit(account, limit)


def name(number):
    return number.to_bytes(32, "big")


def totals(model, status, test):
    held = [cost for other, cost in model.once(status) if test(other)]
    if any(cost.epsilon == math.inf for cost in held):
        return Cost(math.inf, 0.0)
    return Cost(
        float(sum(Decimal(str(cost.epsilon)) for cost in held)),
        float(sum(Decimal(str(cost.delta)) for cost in held)),
    )


@contextmanager
def new_ledger():
    # What reaches the disk is not the matter here, and waiting for it is slow.
    memory = Path("/dev/shm")  # noqa: S108  (a fresh folder in it)
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield Ledger.create(Path(folder, "ledger.sqlite"), head=Path(folder, "head"))


@settings(deadline=None, max_examples=120)
@given(history=histories)
def test_a_ledger_keeps_books_like_the_model(history):
    model = Model()
    with new_ledger() as ledger:
        for step in history:
            kind, *rest = step
            expected = getattr(model, kind)(*rest)
            if isinstance(expected, str):
                apply(ledger, step)
                model.length += expected == "added"
            else:
                with pytest.raises((LedgerError, PlanRefused)) as caught:
                    apply(ledger, step)
                assert caught.type is expected
        check(ledger, model)


def check(ledger, model):
    assert len(ledger.entries()) == model.length
    for session in range(SESSIONS):
        spend = model.spends.get(session)
        assert ledger.status(name(session)) == (spend and spend[2])
    used = {spend[0] for spend in model.spends.values()} | set(model.limits)
    assert [tuple(balance) for balance in ledger.balances() if balance.account != LABELS] == [
        (
            account,
            model.limits.get(account),
            totals(model, "committed", account.__eq__),
            totals(model, "reserved", account.__eq__),
        )
        for account in sorted(used)
        if account.unit != "all" and account != LABELS
    ]
    check_labels(ledger, model, LABELS in used)
    check_totals(ledger, model)


def check_labels(ledger, model, used):
    """All plans on the dataset are in what its labels have cost."""
    shown = [balance for balance in ledger.balances() if balance.account == LABELS]
    assert len(shown) == used
    for _, limit, *amounts in shown:
        assert limit == model.limits.get(LABELS)
        for status, amount in zip(("committed", "reserved"), amounts, strict=True):
            held = model.labels(status)
            assert amount.epsilon == pytest.approx(sum(cost.epsilon for cost in held), abs=1e-12)
            assert amount.delta == pytest.approx(sum(cost.delta for cost in held), rel=1e-12)


def check_totals(ledger, model):
    noisy = {a for a, cost, _ in model.spends.values() if cost.epsilon < math.inf}
    found = ledger.totals(default_limit=DEFAULT)
    assert [total.account for total in found] == [
        Account.whole(dataset) for dataset in sorted({a.dataset for a in {*noisy, *model.limits}})
    ]
    for account, limit, *amounts in found:
        assert limit == model.limits.get(account, DEFAULT)
        for status, amount in zip(("committed", "reserved"), amounts, strict=True):
            live = [c for a, c in model.once(status) if a.dataset == account.dataset]
            held = [c for c in live if c.epsilon < math.inf]
            assert amount.epsilon == float(sum(Decimal(str(c.epsilon)) for c in held))
            assert amount.delta == float(sum(Decimal(str(c.delta)) for c in held))


@settings(deadline=None, max_examples=60)
@given(
    costs=st.lists(st.integers(1, 400), min_size=1, max_size=12), limit=st.integers(1, 1500),
    scale=st.sampled_from([100, 1000, 10**7]),
)  # fmt: skip
def test_limits_are_met_exactly_as_decimals(costs, limit, scale):
    spent, top = 0, Cost(limit / scale, 0.0)
    with new_ledger() as ledger:
        for number, cost in enumerate(costs):
            fits = spent + cost <= limit
            with nullcontext() if fits else pytest.raises(BudgetExceeded):
                ledger.reserve(
                    name(number), ACCOUNTS[0], Cost(cost / scale, 0.0), default_limit=top
                )
            spent += cost * fits
