"""A budget that is spent several times: the same rows on accounts of several names. The attacker is
an approved coordinator. It chooses whom a plan protects and which neighbours it means; every such
pair is an account with a budget of its own, of the same rows. What each plan tells of a label that
is the other one stands here by itself (tests/property/test_other_promises.py finds it by
enumeration)."""

import itertools
import shutil

import numpy as np
import pytest
from commands import run
from hostile import VICTIM, Attacker, exact_plan, exact_policy, noisy_plan, small_sites
from rows import draw_client

import fedgauge as fg
from fedgauge.errors import BudgetExceeded, LedgerError
from fedgauge.plan.task import LabelTask
from fedgauge.site import Account, Cost, add_witness, create_site
from fedgauge.site.ledger_entries import Asked, Departure, SumRoster
from fedgauge.vertical.flips import Flips, count_by_bin

BUDGET = 2.0
UNITS = ("example", "subject", "client")
NEIGHBOURS = ("add-remove", "replace-one")


def attacker(folder):
    rows = {
        name: fg.Examples(labels, scores, subject=np.arange(len(labels)))
        for name, (labels, scores) in small_sites().items()
    }
    return Attacker(folder, rows, policy=exact_policy(budget_epsilon=BUDGET))


def test_a_row_is_not_spent_on_several_accounts(folder):
    """A promise to a client or a subject is one to each of its rows, of the same epsilon. Replacing
    one row is to remove one and to add one: noise for it costs half as much where one is added. So
    plans of all kinds draw on the row's budget, and together must stay within it."""
    attack = attacker(folder)
    spent = 0.0
    for unit, neighbours in itertools.product(UNITS, NEIGHBOURS):
        model = fg.DistributedDP(1.0, unit=unit, neighbours=neighbours)
        for _ in range(int(BUDGET) + 1):
            if attack.ask(noisy_plan(4, privacy=model)).total is not None:
                spent += 1.0 if neighbours == "add-remove" else 0.5
    assert spent <= BUDGET


def test_a_lower_epsilon_does_not_raise_delta(folder):
    """An officer lowers the budget, in the words of the officer's page."""
    clients = {name: draw_client(50, seed=i) for i, name in enumerate([VICTIM, "a", "b", "c"])}
    attack = Attacker(folder, clients, policy=exact_policy(budget_delta=1e-12))
    assert attack.ask(noisy_plan(4)).total is not None  # delta is 9e-13
    assert VICTIM in attack.ask(noisy_plan(4)).refusals
    run("ledger", "set-limit", "--epsilon", 3, "--site", attack.sites.site_file(VICTIM))
    assert VICTIM in attack.ask(noisy_plan(4)).refusals


LIMIT = 2.0
STEPS = {"add-remove": 2, "zero-out": 2, "replace-one": 1, "flip": 1}
AXIS = fg.Axis.from_values(range(4), outside="clip")
FLIPS = fg.EvaluationPlan.for_flips(AXIS, fg.LocalDP(0.5, unit="label"))


def row_plans(epsilon, members=3):
    return [
        noisy_plan(members, privacy=fg.DistributedDP(epsilon, unit=unit, neighbours=neighbours))
        for unit, neighbours in itertools.product(UNITS, ("add-remove", "replace-one"))
    ]


def label_plan(epsilon):
    privacy = fg.DistributedDP(epsilon, unit="label", neighbours="flip")
    return fg.EvaluationPlan.under(privacy, AXIS, cohort=fg.Cohort(3, 1), task=LabelTask())


def report_plan(epsilon):
    return fg.EvaluationPlan.for_reports(fg.Axis.uniform(4, outside="clip"), fg.LocalDP(epsilon))


@pytest.fixture
def site(folder):
    made = create_site(
        folder / "shop", name="shop", dataset="labels", policy=exact_policy(budget_epsilon=100.0)
    )
    made.ledger.set_limit(Account.labels("labels"), Cost(LIMIT, 1e-6))
    return made


@pytest.mark.parametrize("seed", range(4))
def test_no_order_of_plans_tells_more_of_a_label(site, seed):
    """Plans of all kinds, begun, given up and finished as the attacker likes."""
    rng, told = np.random.default_rng(seed), {}
    plans = [
        plan
        for epsilon in (0.05, 0.2, 0.5)
        for plan in (*row_plans(epsilon), label_plan(epsilon), report_plan(epsilon), FLIPS)
    ]
    for number in range(60):
        plan, session = plans[rng.integers(len(plans))], number.to_bytes(32, "big")
        try:
            site.reserve(session, plan)
        except BudgetExceeded:
            continue
        if rng.random() < 0.3:
            site.ledger.release(session)
            continue
        stated = plan.statement("enforced")
        told[session] = STEPS[stated.neighbours] * stated.epsilon
        if rng.random() < 0.5:
            site.ledger.commit(session)
    assert 0.9 * LIMIT < sum(told.values()) <= LIMIT + 1e-12


def test_what_escapes_epsilon_is_counted_for_labels_too(site):
    """Two steps cost (1 + e^epsilon) times delta. Counted as one step, two such plans would fit."""
    account, noise = Account.labels("labels"), "discrete-gaussian"
    site.ledger.set_limit(account, Cost(LIMIT, 3e-7))
    spec = fg.DistributedDP(0.1, delta=1e-7, noise=noise)
    site.reserve(bytes(32), noisy_plan(3, privacy=spec))
    with pytest.raises(BudgetExceeded, match="label, flip"):
        site.reserve(bytes([1] * 32), noisy_plan(3, privacy=spec))
    again = fg.DistributedDP(0.1, delta=8e-8, noise=noise, neighbours="replace-one")
    site.reserve(bytes([2] * 32), noisy_plan(3, privacy=again))


@pytest.mark.parametrize("backwards", [False, True])
def test_sums_between_sites_tell_no_more_of_a_label(folder, backwards):
    clients = {VICTIM: draw_client(70, seed=9), **{n: draw_client(50, seed=1) for n in "abc"}}
    rows = {
        name: fg.Examples(labels, scores, subject=np.arange(len(labels)))
        for name, (labels, scores) in clients.items()
    }
    attack = Attacker(folder, rows, policy=exact_policy())
    limit = ("ledger", "set-limit", "--epsilon", LIMIT, "--unit", "label")
    run(*limit, "--site", attack.sites.site_file(VICTIM))
    told = 0.0
    for plan in row_plans(0.75, members=4)[:: -1 if backwards else 1]:
        if attack.ask(plan).total is not None:
            told += STEPS[plan.privacy.neighbours] * 0.75
    assert 0 < told <= LIMIT


def test_an_exact_sum_beside_a_promise_to_labels(folder):
    """Whichever comes first, with whatever session of the other under way."""
    orders = itertools.permutations([label_plan(1.0), exact_plan(3)])
    for number, (first, second) in enumerate(orders):
        site = create_site(
            folder / str(number), name="shop", dataset="labels", policy=exact_policy()
        )
        roster = SumRoster(frozenset(bytes([n]) * 32 for n in range(3)), 3)
        site.reserve(bytes(32), first, roster=roster)
        with pytest.raises(BudgetExceeded, match=r"void"):
            site.reserve(bytes([1] * 32), second, roster=roster)


IDS, LABELS = np.arange(200), np.arange(200) % 2 == 0


class Party:
    """Flips are made and kept, then charged, then told."""

    def __init__(self, site, asked=0):
        self.site, self.asked = site, asked

    def answer(self, bins, name="labels.flips", key=b"\x01" * 32):
        """What an evaluation is told whose scorer assigned these bins."""
        flips = Flips.kept(self.site.folder / name, IDS, LABELS, epsilon=0.5)
        self.asked += 1
        session = self.asked.to_bytes(32, "big")
        self.site.reserve(session, FLIPS, flips=flips.digest, asked=Asked(key))
        self.site.ledger.commit(session)
        counts = count_by_bin(flips.told, bins, 4)
        self.site.ledger.record_sent(session, Departure.of("submit", counts.tobytes()))
        return counts

    @property
    def spent(self):
        return self.site.ledger.total("labels", default_limit=Cost(9.0, 1.0)).spent.epsilon


def test_any_number_of_questions_finds_one_set_of_flips(site):
    """Bins that single out a label show it as flipped, and asking again shows it as flipped."""
    party = Party(site)
    for place in range(3):
        alone = np.where(place == IDS, 1, 0)
        assert len({int(party.answer(alone)[1]) for _ in range(5)}) == 1
    assert party.spent == 0.5


def test_flips_made_anew_do_not_average_out_within_one_budget(site):
    """From many sets of flips labels would follow: each costs, up to the limit."""
    party = Party(site)
    bins = np.zeros(200, dtype=np.int64)
    for number in range(4):
        party.answer(bins, f"{number}.flips")
    with pytest.raises(BudgetExceeded):
        party.answer(bins, "5.flips")
    assert party.spent == LIMIT
    party.answer(bins, "0.flips")  # told before


def test_flips_are_not_free_beside_other_plans(site):
    Party(site).answer(np.zeros(200, dtype=np.int64))
    site.reserve(bytes([7] * 32), label_plan(0.5))
    site.reserve(bytes([8] * 32), noisy_plan(3, 0.5))
    with pytest.raises(BudgetExceeded):
        site.reserve(bytes([9] * 32), label_plan(0.1))


@pytest.mark.parametrize("where", ["reserve", "commit", "record_sent"])
def test_a_crash_tells_nothing_unpaid_and_pays_nothing_twice(site, monkeypatch, where):
    bins = np.zeros(200, dtype=np.int64)

    def crash(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(fg.site.Ledger, where, crash)
        with pytest.raises(KeyboardInterrupt):
            Party(site).answer(bins)
    assert Party(site).spent == (0.5 if where == "record_sent" else 0)
    told = Party(site).answer(bins)  # the same session is taken up
    assert Party(site).spent == 0.5
    assert np.array_equal(told, Party(site, asked=1).answer(bins))
    assert Party(site).spent == 0.5


@pytest.mark.parametrize("witnessed", [False, True])
def test_an_old_copy_does_not_flip_for_free(site, folder, witnessed):
    """The ledger alone put back: its head tells. The whole folder: a witness does."""
    if witnessed:
        (folder / "elsewhere").mkdir()
        add_witness(site.path, folder / "elsewhere" / "shop.head")
    shutil.copytree(site.folder, folder / "backup")
    bins = np.zeros(200, dtype=np.int64)
    Party(fg.Site.from_toml(site.path)).answer(bins)
    if witnessed:
        shutil.rmtree(site.folder)
        shutil.copytree(folder / "backup", site.folder)
    else:
        shutil.copy(folder / "backup" / "ledger.sqlite", site.ledger_path)
        (site.folder / "labels.flips").unlink()
    with pytest.raises(LedgerError, match="old copy"):
        Party(fg.Site.from_toml(site.path), asked=1).answer(bins)
