"""Who did it: a member that spoils a sum is found out, and nobody can make another look guilty. The
attacker is a member, or an approved coordinator, or both. What counts is what others can check by
themselves: `fedgauge exchange status` at any site, from the files that all can read."""

from contextlib import suppress

import hostile_member
import msgspec
import numpy as np
import pytest
from commands import complaint, run
from conformance import ExchangeEngine
from consortium import COORDINATOR, Consortium
from counts import counts_of, pooled_counts
from plans import exact_plan, noisy_plan, small_noisy_plan
from rows import draw_rows
from scene import BOSS, KEYS, VICTIM, Scene, changed, refuses

import fedgauge as fg
from fedgauge.keys import key_to_text
from fedgauge.protocol import Envelope
from fedgauge.secagg import Stage, SummationServer, masking
from fedgauge.secagg.evidence import Dispute, Signed
from fedgauge.secagg.messages import Ballot, Masked, Shares

pytestmark = pytest.mark.usefixtures("few_redraws")
HOSTILE, PEER = "site-1", "site-3"
# Where the classifier does badly, and most rows are: without them it looks good.
CLIENTS = {f"site-{i}": draw_rows(400, i, apart=0.5) for i in range(5)} | {
    PEER: draw_rows(1200, 9, apart=0.1)
}
EVIDENCE = "evidence.fgx"
DEEDS = {
    "junk-box": [hostile_member.junk_boxes()],
    "false-complaint": [hostile_member.false_complaint()],
    "wrong-opening": [hostile_member.wrong_opening(of_all=True)],
}


class Files:
    """Five sites that share a folder, one of them hostile."""

    def __init__(self, folder, monkeypatch):
        self.folder, self._monkeypatch = folder, monkeypatch
        self.sites = Consortium.make(folder / "sites", list(CLIENTS), policy=ExchangeEngine.policy)

    def turn(self, deeds):
        key = self.sites.site(HOSTILE).key
        hostile_member.turn(self._monkeypatch, key, deeds, peer=self.sites.keys[PEER])

    def evaluate(self, plan, place="run"):
        """The result, or what stopped it; who refused."""
        self.sites.start(self.folder / place, plan)
        return self.play(place, CLIENTS)

    def play(self, place, names):
        refused, outcome = {}, None
        for stage in Stage:
            for name in names:
                try:
                    if name not in refused:
                        self.sites.answer(self.folder / place, name, stage, CLIENTS[name])
                except fg.FedgaugeError as error:
                    refused[name] = error
            try:
                outcome = self.sites.advance(self.folder / place, without_missing=True)
            except fg.FedgaugeError as error:
                return error, refused
        return outcome, refused

    def status(self, name, place="run"):
        done = run("exchange", "status", self.folder / place, "--site", self.sites.site_file(name))
        assert done.exit_code == 0
        return done.stdout

    def evidence(self, place="run"):
        return self.folder / place / EVIDENCE

    def judged(self, name="site-4"):
        site = self.sites.site_file(name)
        done = run("exchange", "evidence", self.evidence(), "--site", site)
        assert done.exit_code == 0
        return done.stdout.splitlines()

    def at_fault(self, place="run"):
        """Whom all others hold at fault, by what `exchange status` says at each."""
        told = [
            hostile_member.named(self.status(name, place), CLIENTS)
            for name in (COORDINATOR, *CLIENTS)
            if name != HOSTILE
        ]
        assert all(each == told[0] for each in told)
        return told[0]


@pytest.fixture
def files(folder, monkeypatch):
    return Files(folder, monkeypatch)


@pytest.mark.parametrize(
    "plan", [exact_plan(bins=64), noisy_plan(1.0, bins=64)], ids=["exact", "noisy"]
)
def test_a_junk_box_does_not_evict_the_one_it_is_sent_to(files, plan):
    """The AUC is 0.824, and 0.961 without the victim's rows. Noise has a deviation of 0.006 here:
    false alarms beyond 7 of them do not come."""
    files.turn(DEEDS["junk-box"])
    result, refused = files.evaluate(plan)
    assert isinstance(result, fg.Evaluation)
    assert PEER not in refused
    labels, scores = (np.concatenate(parts) for parts in zip(*CLIENTS.values(), strict=True))
    assert float(result.roc_auc) == pytest.approx(pooled_auc(labels, scores), abs=0.045)
    assert files.at_fault() == {HOSTILE}


def pooled_auc(labels, scores):
    """The chance that a positive is above a negative, over all pairs."""
    above = np.searchsorted(np.sort(scores[labels == 0]), scores[labels == 1])
    return above.mean() / np.sum(labels == 0)


@pytest.mark.parametrize("deeds", DEEDS.values(), ids=DEEDS)
def test_every_site_can_see_who_did_it(files, deeds):
    files.turn(deeds)
    plan = exact_plan()
    result, _ = files.evaluate(plan)
    np.testing.assert_array_equal(counts_of(result), pooled_counts(plan, CLIENTS))
    assert files.at_fault() == {HOSTILE}
    assert [hostile_member.named(line, CLIENTS) for line in files.judged()] == [{HOSTILE}] * len(
        files.judged()
    )
    assert set(files.judged()) <= set(files.status("site-4").splitlines())


@pytest.mark.parametrize("without", [[], ["--without", HOSTILE]], ids=["found", "said"])
def test_wrong_shares_are_traced_to_who_dealt_them_and_a_second_run_without_it_is_one_command(
    files, without
):
    """All have paid when it shows; at least they know whom to leave out."""
    files.turn([hostile_member.wrong_shares(to_all=True)])
    stopped, refused = files.evaluate(noisy_plan(1.0))
    assert isinstance(stopped, fg.FedgaugeError)
    assert hostile_member.named(str(stopped), CLIENTS) == {HOSTILE}
    assert refused == {}
    assert files.at_fault() == {HOSTILE}
    site = ["--site", files.sites.site_file(COORDINATOR)]
    again = files.folder / "again"
    restart = ["exchange", "restart", files.folder / "run", again, *without, *site]
    assert "5 sites have spent epsilon 1" in complaint(run(*restart), code=1)
    assert run(*restart, "--yes").exit_code == 0
    stay = [name for name in CLIENTS if name != HOSTILE]
    members = files.sites.exchange(again).invitation().members
    assert members == sorted(files.sites.keys[name] for name in stay)
    result, refused = files.play("again", stay)
    assert (result.clients, refused) == (4, {})


def test_who_is_only_said_to_be_at_fault_must_be_named_to_be_left_out(files):
    """Its answer may have been lost, or taken away."""
    files.turn([hostile_member.junk_boxes(), hostile_member.silent(Stage.AGREE)])
    stopped, _ = files.evaluate(exact_plan())
    assert hostile_member.named(str(stopped), CLIENTS) == {HOSTILE}
    assert hostile_member.named("\n".join(files.judged()), CLIENTS) == {HOSTILE}
    again = [files.folder / "run", files.folder / "again"]
    site = ["--site", files.sites.site_file(COORDINATOR)]
    refused = run("exchange", "restart", *again, *site)
    assert refused.exit_code == 1
    assert "--without NAME" in refused.stderr
    assert run("exchange", "restart", *again, "--without", HOSTILE, "--yes", *site).exit_code == 0


def test_honest_members_leave_no_evidence(files):
    files.evaluate(exact_plan())
    assert not files.evidence().exists()
    assert files.at_fault() == set()


@pytest.mark.parametrize("deeds", DEEDS.values(), ids=DEEDS)
def test_evidence_of_another_session_counts_for_nothing(files, deeds, monkeypatch):
    with monkeypatch.context() as turned:
        hostile_member.turn(
            turned, files.sites.site(HOSTILE).key, deeds, peer=files.sites.keys[PEER]
        )
        files.evaluate(noisy_plan(1.0))
    files.evaluate(noisy_plan(1.0), "other")
    files.evidence("other").write_bytes(files.evidence().read_bytes())
    assert files.at_fault("other") == set()
    assert files.at_fault() == {HOSTILE}


@pytest.mark.parametrize("deeds", DEEDS.values(), ids=DEEDS)
def test_altered_evidence_blames_nobody_else(files, deeds):
    """A number or a bit changed at each of many places, or the end cut off."""
    files.turn(deeds)
    files.evaluate(noisy_plan(1.0))
    whole = files.evidence().read_bytes()
    cut = [whole[:at] for at in range(0, len(whole), max(1, len(whole) // 50))]
    exchange = files.sites.exchange(files.folder / "run", "site-4")
    assert hostile_member.named("\n".join(exchange.progress().faults), CLIENTS) == {HOSTILE}
    # Every tenth: tests/unit/test_evidence.py tries them all, without files.
    for altered in (*list(hostile_member.forgeries(whole))[::10], *cut, whole + whole):
        files.evidence().write_bytes(altered)
        assert hostile_member.named("\n".join(exchange.progress().faults), CLIENTS) <= {HOSTILE}


@pytest.fixture
def hostile_scene(monkeypatch):
    """Six members without files, of whom the first is hostile; by its deeds."""

    def make(*deeds, **options):
        hostile_member.turn(monkeypatch, KEYS[0], deeds, peer=KEYS[VICTIM].public)
        return Scene(**options)

    return make


@pytest.mark.parametrize("plan", [None, small_noisy_plan()], ids=["exact", "noisy"])
@pytest.mark.parametrize("deeds", DEEDS.values(), ids=DEEDS)
def test_machines_find_who_did_it(hostile_scene, plan, deeds):
    scene = hostile_scene(*deeds, plan=plan)
    outcome = scene.finish()
    assert list(outcome.survivors) == list(range(6))
    assert hostile_member.at_fault(scene.server) == {KEYS[0].public}


@pytest.mark.parametrize("withhold", [True, False], ids=["withheld", "silent"])
def test_machines_go_on_without_an_answer(hostile_scene, withhold):
    """It may have had another reason to fall silent, so nothing is proved."""
    deeds = [
        hostile_member.junk_boxes(),
        *([hostile_member.answers(hostile_member.withheld)] if withhold else []),
    ]
    leaves = {} if withhold else {0: Stage.AGREE}
    scene = hostile_scene(*deeds, plan=small_noisy_plan(), silent=leaves).until(Stage.AGREE)
    outcome = scene.finish(refused={0} if withhold else ())
    assert list(outcome.survivors) == list(range(6))
    assert hostile_member.at_fault(scene.server, proved=False) == {KEYS[0].public}
    assert hostile_member.at_fault(scene.server, proved=True) == set()


def junk(box, _):
    return changed(box, sealed=bytes(len(box.sealed)))


def of_another_sender(box, boxes):
    other = next(each for each in boxes if each.member != box.member)
    return changed(other, member=box.member)


def of_another_session(box, _):
    other = Scene(run=b"o" * 32).until(Stage.MASK).asked(VICTIM)
    return next(each for each in other.boxes if each.member == box.member)


def other_checks(box, boxes):
    other = next(each for each in boxes if each.member != box.member)
    return changed(box, checks=other.checks)


@pytest.mark.parametrize("alter", [junk, of_another_sender, of_another_session, other_checks])
def test_a_box_altered_on_its_way_is_not_held_against_its_sender(alter):
    """Who gets it complains of a box that nobody dealt: neither it nor the sender is blamed."""
    scene = Scene(small_noisy_plan()).until(Stage.MASK)
    inbox = scene.asked(VICTIM)
    boxes = [alter(inbox.boxes[0], inbox.boxes), *inbox.boxes[1:]]
    reply = scene.clients[VICTIM].receive(scene.request(VICTIM, changed(inbox, boxes=boxes)))
    masked = Masked.from_bytes(Envelope.from_bytes(reply).body)
    (said,) = masked.complaints
    assert said.member == 0
    with pytest.raises(fg.ProtocolError, match="did not sign what it was told"):
        scene.server.check(VICTIM, reply)
    replied, state = scene.replied, scene.server._state
    dealt = Envelope.from_bytes(replied[Stage.SHARE][0])
    shares, keys = Signed(dealt.body, dealt.signature), state.peers[VICTIM]
    dispute = Dispute(0, VICTIM, shares, Signed(keys.body, keys.signature), said.signature, None)
    with pytest.raises(fg.ProtocolError, match="shows nothing"):
        dispute.judged(scene.invitation)
    scene.server.step(scene.answers_of_others())
    complaints = [[[VICTIM, said.box, said.signature]]]
    refuses(scene.clients[0], with_complaints(scene, 0, complaints), "given another box")


def two_stories(scene, alter=None):
    """The first member deals twice, and the coordinator tells the victim of the other dealing. Both
    are signed by their dealer. What others are told, and the rest, is as it should be."""
    scene.until(Stage.SHARE)
    other, request = scene.restored(0), scene.server.requests[0]
    dealt = other.receive(request)
    if alter is not None:
        dealt = hostile_member.said_instead(KEYS[0], dealt, alter)
    server = SummationServer.from_bytes(scene.server.to_bytes(), BOSS)
    replies = scene.answers()
    told = server.step(replies | {0: dealt})[VICTIM]
    scene.server.step(replies)
    masked = scene.answers_of_others() | {VICTIM: scene.clients[VICTIM].receive(told)}
    scene.server.step(masked)


def with_junk(body):
    shares = Shares.from_bytes(body)
    boxes = [junk(box, None) if box.member == VICTIM else box for box in shares.boxes]
    return changed(shares, boxes=boxes).to_bytes()


@pytest.mark.parametrize("alter", [None, with_junk], ids=["other-shares", "junk"])
@pytest.mark.parametrize("plan", [None, small_noisy_plan()], ids=["exact", "noisy"])
def test_whoever_was_told_another_story_is_not_blamed(plan, alter):
    """A dealer and a coordinator against one member. Its share, or its complaint, does not fit the
    dealing that others are shown."""
    scene, told = Scene(plan), ""
    try:
        two_stories(scene, alter)
        while scene.server.stage < Stage.OPEN:
            scene.server.step(scene.answers())
        scene.server.step(scene.answers())
    except fg.FedgaugeError as stopped:
        told = str(stopped)
    assert KEYS[VICTIM].public not in hostile_member.at_fault(scene.server)
    assert key_to_text(KEYS[VICTIM].public) not in told


def complaints_to(scene, member):
    """What a member is told, beside the survivors, of complaints about its boxes."""
    _survivors, *complaints = msgspec.msgpack.decode(
        Envelope.from_bytes(scene.server.requests[member]).body
    )
    return complaints


def revealed(reply):
    """The keys of boxes in an answer."""
    return [said.key for said in Ballot.from_bytes(Envelope.from_bytes(reply).body).answers]


def with_complaints(scene, member, complaints):
    """The coordinator's request of the fourth round with other complaints in it."""

    def alter(body):
        survivors, *_ = msgspec.msgpack.decode(body)
        return msgspec.msgpack.encode([survivors, *complaints])

    return hostile_member.said_instead(BOSS, scene.server.requests[member], alter)


def assert_reveals_nothing(client, request):
    """It refuses, or votes and says nothing else."""
    with suppress(fg.ProtocolError):
        assert revealed(client.receive(request)) == []


def test_a_complaint_opens_the_one_box_that_it_is_about(hostile_scene):
    """Which the one who complains could open anyway."""
    scene = hostile_scene(hostile_member.false_complaint()).until(Stage.AGREE)
    assert any(complaints_to(scene, VICTIM))
    (key,) = revealed(scene.answers()[VICTIM])
    sent = Shares.from_bytes(Envelope.from_bytes(scene.replied[Stage.SHARE][VICTIM]).body)
    (opened,) = [box.member for box in sent.boxes if box.key == masking.AgreementKey(key).public]
    assert opened == 0
    for member in (1, 3, 4, 5):
        assert revealed(scene.answers()[member]) == []


@pytest.fixture
def complained(monkeypatch):
    """A scene where the first member complained about the victim, who was not told yet."""
    with monkeypatch.context() as turned:
        hostile_member.turn(
            turned, KEYS[0], [hostile_member.false_complaint()], peer=KEYS[VICTIM].public
        )
        return Scene().until(Stage.AGREE)


def test_a_complaint_of_another_session_or_that_nobody_signed_opens_nothing(complained):
    """Else a coordinator could ask for the shares of whom it likes, in any session."""
    complaints = complaints_to(complained, VICTIM)
    assert any(complaints)
    other = Scene(run=b"o" * 32).until(Stage.AGREE)
    assert_reveals_nothing(other.clients[VICTIM], with_complaints(other, VICTIM, complaints))
    # In another member's name, about another box, or with a bit of it changed.
    assert any(complaints)
    forged = list(hostile_member.forgeries(complaints))
    assert len(forged) > len(complained.clients)
    for each in forged:
        request = with_complaints(complained, VICTIM, each)
        assert_reveals_nothing(complained.restored(VICTIM), request)


@pytest.mark.parametrize("deed", ["junk-box", "false-complaint"])
def test_a_complaint_told_to_somebody_else_opens_nothing(hostile_scene, deed):
    scene = hostile_scene(*DEEDS[deed]).until(Stage.AGREE)
    complaints = next((c for m in scene.server.requests if any(c := complaints_to(scene, m))), [])
    assert complaints
    for member in (1, 3, 4, 5):
        request = with_complaints(scene, member, complaints)
        assert_reveals_nothing(scene.restored(member), request)
