"""A site whose `sessions` folder alone is lost or put back, the ledger and its witness intact.

The attacker is chance, or an operator in a hurry. Nothing leaves twice at a step; but what the site
refused to send must not be what it goes on from. Else an honest site is shown to have lied,
others give away keys of boxes that were made for it, and all have paid for a sum of nonsense.
"""

import shutil

import pytest
from hostile import VICTIM, Attacker, exact_policy, noisy_plan, small_sites
from rows import draw_client

import fedgauge as fg
from fedgauge.errors import FedgaugeError, LedgerError
from fedgauge.local import encode
from fedgauge.plan import EvaluationPlan
from fedgauge.secagg import Stage
from fedgauge.site import add_witness
from fedgauge.site.ledger import Ledger


class Sessions(Attacker):
    """Five sites; the victim has a witness elsewhere."""

    def __init__(self, folder):
        super().__init__(folder, small_sites(4), policy=exact_policy())
        (folder / "elsewhere").mkdir()
        add_witness(self.sites.site_file(VICTIM), folder / "elsewhere" / "victim.head")
        self.session = self.begin(noisy_plan(3))
        self.run = folder / "run-0"

    @property
    def state(self):
        (path,) = (self.sites.folder / VICTIM / "sessions").glob("*.client")
        return path

    def answer_again(self, stage):
        """The operator tries the step once more, and is told that it cannot be."""
        with pytest.raises(LedgerError, match="sent something else at this step"):
            self.sites.answer(self.run, VICTIM, stage, self.clients[VICTIM])

    def guilty(self):
        """Whom evidence in the folder shows to have lied."""
        exchange = self.sites.exchange(self.run, "site-0")
        invitation = exchange.invitation()
        faults = exchange.faults(invitation)
        return {exchange.name(invitation, fault.member) for fault in faults if fault.proved}


@pytest.fixture
def attack(folder):
    return Sessions(folder)


def test_a_site_that_lost_its_state_after_joining_is_not_shown_to_have_lied(attack):
    """It joins again with other keys, which nobody gets, and complains of all boxes."""
    for name in attack.clients:
        attack.sites.answer(attack.run, name, Stage.ADVERTISE, attack.clients[name])
    attack.state.unlink()
    attack.answer_again(Stage.ADVERTISE)
    attack.sites.advance(attack.run)
    attack.session.play(*list(Stage)[1:])
    assert attack.guilty() == set()


def test_a_site_whose_state_is_put_back_after_sharing_is_not_shown_to_have_lied(attack):
    """It masks with another mask than it dealt shares of."""
    attack.session.play(Stage.ADVERTISE)
    before = attack.state.read_bytes()
    for name in attack.clients:
        attack.sites.answer(attack.run, name, Stage.SHARE)
    attack.state.write_bytes(before)
    attack.answer_again(Stage.SHARE)
    attack.sites.advance(attack.run)
    attack.session.play(*list(Stage)[2:])
    assert attack.guilty() == set()


@pytest.mark.parametrize("first", ["copy", "witness"])
def test_a_witness_notices_copies_made_after_it_was_named(folder, first):
    """Nothing in an older folder tells that there is one, so older copies are to be destroyed."""
    clients = {name: draw_client(50, seed=i) for i, name in enumerate([VICTIM, "a", "b", "c"])}
    attack = Attacker(folder, clients, policy=exact_policy())
    home = attack.sites.folder / VICTIM
    (folder / "elsewhere").mkdir()
    if first == "copy":
        shutil.copytree(home, folder / "backup")
    add_witness(home / "site.toml", folder / "elsewhere" / "victim.head")
    if first == "witness":
        shutil.copytree(home, folder / "backup")
    assert attack.ask(noisy_plan(4)).result is not None
    shutil.rmtree(home)
    shutil.copytree(folder / "backup", home)
    noticed = VICTIM in attack.ask(noisy_plan(4)).refusals
    assert noticed == (first == "witness")


def test_no_report_is_in_an_outbox_before_it_is_in_the_log(attack, monkeypatch):
    """Killed in between, reports stay where others may fetch them, and the log is empty."""
    outbox = attack.folder / "outbox"
    outbox.mkdir()
    seen = []

    def killed(*_):
        seen.extend(path.stat().st_size for path in outbox.iterdir())
        raise LedgerError("killed")

    monkeypatch.setattr(Ledger, "record_sent", killed)
    plan = EvaluationPlan.for_reports(fg.Axis.uniform(8, outside="clip"), fg.LocalDP(1.0))
    with pytest.raises(FedgaugeError, match="killed"):
        encode.write_reports(
            plan, attack.clients[VICTIM], outbox / "r.bin", site=attack.sites.site(VICTIM)
        )
    assert sum(seen) == 0
