"""A budget that is spent several times: the same rows on accounts of several names.

The attacker is an approved coordinator. It chooses whom a plan protects and which neighbours it
means; every such pair is an account with a budget of its own, of the same rows.
"""

import itertools

import numpy as np
from commands import run
from hostile import VICTIM, Attacker, exact_policy, noisy_plan, small_sites
from rows import draw_client

import fedgauge as fg

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
    """A promise to a client or a subject is one to each of its rows, of the same epsilon.

    Replacing one row is to remove one and to add one: noise for it costs half as much where one
    is added. So plans of all kinds draw on the row's budget, and together must stay within it.
    """
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
