"""Old copies: backups put back, sites moved by halves, machines cloned, `sessions` lost. The
attacker is an operator in a hurry, or one whose budget is used up. What was spent must not come
back, and no site may send other noise under masks that it has used."""

import shutil

import numpy as np
import pytest
from hostile import VICTIM, Attacker, exact_policy, noisy_plan, small_sites
from ledgers import SUBMITTED
from rows import draw_client

import fedgauge as fg
from fedgauge.errors import FedgaugeError, LedgerError, SiteError
from fedgauge.local import encode
from fedgauge.plan import EvaluationPlan
from fedgauge.protocol import Envelope
from fedgauge.secagg import Stage
from fedgauge.secagg.messages import Masked
from fedgauge.site import Site, add_witness, create_site
from fedgauge.site.ledger import Ledger


class Copying(Attacker):
    """The victim's folder, its copies, and a disk elsewhere."""

    @property
    def home(self):
        return self.sites.folder / VICTIM

    def appoint(self):
        (self.folder / "elsewhere").mkdir()
        add_witness(self.home / "site.toml", self.folder / "elsewhere" / "victim.head")

    def keep(self):
        return shutil.copytree(self.home, self.folder / "backup")

    def put_back(self, copy, names=None):
        shutil.rmtree(self.home)
        shutil.copytree(copy, self.home)
        for path in self.home.iterdir():
            if names is not None and path.name not in names:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def files(self):
        return {path.name for path in self.home.iterdir()}

    def spent(self):
        site = self.sites.site(VICTIM)
        totals = site.ledger.totals(default_limit=site.policy.default_limit)
        return sum(total.spent.epsilon for total in totals)

    def submit(self):
        run = self.folder / "run-0"
        reply = self.sites.answer(run, VICTIM, Stage.MASK, self.clients[VICTIM])
        words = Masked.from_bytes(Envelope.from_bytes(reply.read_bytes()).body).words
        return np.frombuffer(words, dtype="<u4")


@pytest.fixture
def attack(folder):
    return Copying(folder, small_sites(), policy=exact_policy())


def refused(answer):
    stage, error = answer.refusals[VICTIM]
    return answer.result is None and stage == Stage.ADVERTISE and isinstance(error, LedgerError)


def test_without_a_witness_a_folder_that_is_put_back_has_its_budget_again(attack):
    """What docs say of it: nothing inside of a folder tells that the whole of it is old."""
    copy = attack.keep()
    assert attack.ask(noisy_plan(4)).result is not None
    assert attack.spent() == pytest.approx(1.0)
    attack.put_back(copy)
    assert attack.spent() == 0


def test_with_a_witness_a_folder_that_is_put_back_spends_nothing(attack):
    attack.appoint()
    copy = attack.keep()
    assert attack.ask(noisy_plan(4)).result is not None
    attack.put_back(copy)
    for call in (attack.spent, attack.entries):
        with pytest.raises(LedgerError, match=r"an old copy, or another copy.*Keep the one"):
            call()
    answer = attack.ask(noisy_plan(4))
    assert answer.refusals[VICTIM][0] == Stage.ADVERTISE
    assert "old copy" in str(answer.refusals[VICTIM][1])


def test_the_latest_folder_goes_on(attack):
    """A backup made after the last evaluation, or a site that moved, is no attack."""
    attack.appoint()
    attack.ask(noisy_plan(4))
    attack.put_back(attack.keep())
    assert attack.ask(noisy_plan(4)).result is not None
    assert attack.spent() == pytest.approx(2.0)


def test_with_a_witness_nothing_is_masked_twice(attack):
    attack.appoint()
    attack.begin(noisy_plan(4)).play(Stage.ADVERTISE, Stage.SHARE)
    copy = attack.keep()
    attack.submit()
    attack.put_back(copy)
    with pytest.raises(LedgerError, match="old copy"):
        attack.submit()


def test_without_a_witness_other_counts_under_the_same_masks_have_noise_of_their_own(attack):
    """The difference of two inputs under the same masks is bare: it must not show noise. So the
    same counts are the same bytes. As docs say, what changed is bare but for the noise of two
    shares of this site alone."""
    attack.begin(noisy_plan(4)).play(Stage.ADVERTISE, Stage.SHARE)
    copy, (labels, scores) = attack.keep(), attack.clients[VICTIM]
    first = attack.submit()
    for order in (slice(None), slice(None, None, -1)):
        attack.put_back(copy)
        attack.clients[VICTIM] = (labels[order], scores[order])
        assert np.array_equal(attack.submit(), first)
    attack.put_back(copy)
    attack.clients[VICTIM] = (labels[1:], scores[1:])
    bare = (attack.submit() - first).view("<i4")
    assert np.abs(bare).max() < 1000  # of numbers that look like any of 2^32
    assert np.count_nonzero(bare) > 4  # of one row alone there would be one at each level


def test_a_site_does_not_sign_twice_whose_sum_it_reveals(attack):
    attack.appoint()
    session = attack.begin(noisy_plan(4))
    session.play(Stage.ADVERTISE, Stage.SHARE, Stage.MASK)
    copy = attack.keep()
    session.play(Stage.AGREE)
    attack.put_back(copy)
    with pytest.raises(LedgerError, match="old copy"):
        attack.sites.answer(attack.folder / "run-0", VICTIM, Stage.AGREE)


HALVES = {
    "file and key": {"site.toml", "site.key"},
    "no ledger": {"site.toml", "site.key", "site.key.head", "sessions"},
    "no head": {"site.toml", "site.key", "ledger.sqlite", "sessions"},
    "sessions": {"site.toml", "site.key", "sessions"},
}


@pytest.mark.parametrize("names", HALVES.values(), ids=HALVES)
def test_a_site_that_left_its_ledger_behind_starts_no_budget(attack, names):
    """Nothing makes a ledger but the making of a site, and that not where one was."""
    attack.ask(noisy_plan(4))
    attack.put_back(attack.keep(), names)
    assert refused(attack.ask(noisy_plan(4)))
    with pytest.raises(LedgerError):
        attack.spent()
    with pytest.raises(SiteError, match="exists"):
        create_site(attack.home, name="victim", dataset="stroke")
    assert not {"ledger.sqlite", "site.key.head"} - names & attack.files()


def test_two_copies_in_use_do_not_share_a_budget(attack):
    """Whichever is first goes on; the other one, and whatever it had begun, stops."""
    attack.appoint()
    attack.begin(noisy_plan(4)).play(Stage.ADVERTISE, Stage.SHARE)
    twin = Site.from_toml(attack.keep() / "site.toml")
    session = Envelope.from_bytes((attack.folder / "run-0" / "invitation.fgx").read_bytes()).session
    twin.ledger.commit(session)
    with pytest.raises(LedgerError, match="another copy of this site is in use"):
        attack.submit()
    twin.ledger.record_sent(session, SUBMITTED)


def test_two_copies_that_added_a_line_each(attack):
    """On a share without locks, at one moment: same number, another line. One is left."""
    attack.appoint()
    twin = Site.from_toml(attack.keep() / "site.toml")
    witness = twin.witness_path.read_bytes()
    attack.begin(noisy_plan(4)).play(Stage.ADVERTISE)
    twin.witness_path.write_bytes(witness)
    twin.reserve(bytes(32), noisy_plan(4))
    assert refused(attack.begin(noisy_plan(4)).play())
    assert len(twin.ledger.entries()) == 1


@pytest.mark.parametrize("name", ["ledger.sqlite", "site.key.head", "site.key", "site.toml"])
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_no_budget_that_others_can_write(attack, name, mode):
    attack.ask(noisy_plan(4))
    (attack.home / name).chmod(mode)
    stage, error = attack.ask(noisy_plan(4)).refusals[VICTIM]
    assert stage == Stage.ADVERTISE
    assert "Run `chmod" in str(error)


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
def lost(folder):
    return Sessions(folder)


def test_a_site_that_lost_its_state_after_joining_is_not_shown_to_have_lied(lost):
    """It joins again with other keys, which nobody gets, and complains of all boxes."""
    for name in lost.clients:
        lost.sites.answer(lost.run, name, Stage.ADVERTISE, lost.clients[name])
    lost.state.unlink()
    lost.answer_again(Stage.ADVERTISE)
    lost.sites.advance(lost.run)
    lost.session.play(*list(Stage)[1:])
    assert lost.guilty() == set()


def test_a_site_whose_state_is_put_back_after_sharing_is_not_shown_to_have_lied(lost):
    """It masks with another mask than it dealt shares of."""
    lost.session.play(Stage.ADVERTISE)
    before = lost.state.read_bytes()
    for name in lost.clients:
        lost.sites.answer(lost.run, name, Stage.SHARE)
    lost.state.write_bytes(before)
    lost.answer_again(Stage.SHARE)
    lost.sites.advance(lost.run)
    lost.session.play(*list(Stage)[2:])
    assert lost.guilty() == set()


@pytest.mark.parametrize("first", ["copy", "witness"])
def test_a_witness_notices_copies_made_after_it_was_named(folder, first):
    """Nothing in an older folder tells that there is one, so older copies are to be destroyed."""
    clients = {name: draw_client(50, seed=i) for i, name in enumerate([VICTIM, "a", "b", "c"])}
    lost = Attacker(folder, clients, policy=exact_policy())
    home = lost.sites.folder / VICTIM
    (folder / "elsewhere").mkdir()
    if first == "copy":
        shutil.copytree(home, folder / "backup")
    add_witness(home / "site.toml", folder / "elsewhere" / "victim.head")
    if first == "witness":
        shutil.copytree(home, folder / "backup")
    assert lost.ask(noisy_plan(4)).result is not None
    shutil.rmtree(home)
    shutil.copytree(folder / "backup", home)
    noticed = VICTIM in lost.ask(noisy_plan(4)).refusals
    assert noticed == (first == "witness")


def test_no_report_is_in_an_outbox_before_it_is_in_the_log(lost, monkeypatch):
    """Killed in between, reports stay where others may fetch them, and the log is empty."""
    outbox = lost.folder / "outbox"
    outbox.mkdir()
    seen = []

    def killed(*_):
        seen.extend(path.stat().st_size for path in outbox.iterdir())
        raise LedgerError("killed")

    monkeypatch.setattr(Ledger, "record_sent", killed)
    plan = EvaluationPlan.for_reports(fg.Axis.uniform(8, outside="clip"), fg.LocalDP(1.0))
    with pytest.raises(FedgaugeError, match="killed"):
        encode.write_reports(
            plan, lost.clients[VICTIM], outbox / "r.bin", site=lost.sites.site(VICTIM)
        )
    assert sum(seen) == 0
