"""Trust that was withdrawn: what a site no longer allows must not go on.

The attacker is a coordinator, or a peer, that a site's operator strikes from the site file
while an evaluation is under way: a key was stolen, a contract ended.
"""

import re

import pytest
from hostile import VICTIM, Attacker, exact_policy, noisy_plan
from rows import draw_client

from fedgauge.secagg import Stage


@pytest.fixture
def attack(folder):
    clients = {VICTIM: draw_client(70, seed=9)}
    clients |= {f"site-{i}": draw_client(50, seed=i) for i in range(3)}
    return Attacker(folder, clients, policy=exact_policy())


def strike(attack, kind):
    """Take all coordinators, or all peers, out of the victim's file; or lower a limit."""
    path = attack.sites.site_file(VICTIM)
    text = path.read_text()
    changed = {
        "coordinator": re.sub(r"\n\[\[coordinators\]\]\n.*\n.*\n", "\n", text),
        "peers": re.sub(r"\n\[\[peers\]\]\n.*\n.*\n", "\n", text),
        "epsilon": text.replace("max_epsilon = 1.0", "max_epsilon = 0.1"),
    }[kind]
    assert changed != text
    path.write_text(changed)


@pytest.mark.parametrize("kind", ["coordinator", "peers", "epsilon"])
def test_counts_do_not_leave_for_whom_a_site_no_longer_trusts(attack, kind):
    """Joined while it was allowed; asked for counts when it no longer is."""
    session = attack.begin(noisy_plan(4))
    session.play(Stage.ADVERTISE, Stage.SHARE)
    strike(attack, kind)
    session.play(Stage.MASK)
    assert "commit" not in attack.entries()
    assert VICTIM in session.answer.refusals


def test_new_data_are_not_charged_to_the_old_name(attack):
    """Joined for one dataset, asked for counts when the site's file names the next one."""
    session = attack.begin(noisy_plan(4))
    session.play(Stage.ADVERTISE, Stage.SHARE)
    attack.rename(VICTIM, "stroke-2027")
    session.play(Stage.MASK)
    assert attack.entries() == ["reserve"]
    assert VICTIM in session.answer.refusals
