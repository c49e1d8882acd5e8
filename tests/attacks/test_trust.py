"""Trust that was withdrawn: what a site no longer allows must not go on. The attacker is a
coordinator, or a peer, that a site's operator strikes from the site file while an evaluation is
under way: a key was stolen, a contract ended."""

import re

import pytest
from hostile import VICTIM, Attacker, exact_policy, noisy_plan, small_sites

from fedgauge.secagg import Stage


@pytest.fixture
def attack(folder):
    return Attacker(folder, small_sites(), policy=exact_policy())


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


@pytest.mark.parametrize("kind", ["coordinator", "peers", "epsilon", "dataset"])
def test_counts_do_not_leave_for_what_a_site_no_longer_allows(attack, kind):
    """Joined while it was allowed; asked for counts when it no longer is. Nor are new data charged
    to the old name, where the site's file names the next dataset."""
    session = attack.begin(noisy_plan(4))
    session.play(Stage.ADVERTISE, Stage.SHARE)
    if kind == "dataset":
        attack.rename(VICTIM, "stroke-2027")
    else:
        strike(attack, kind)
    session.play(Stage.MASK)
    assert attack.entries() == ["reserve"]
    assert VICTIM in session.answer.refusals
