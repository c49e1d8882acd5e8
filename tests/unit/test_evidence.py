"""Evidence shows who broke the rules, and nothing makes somebody look guilty who kept to them.

The first member is hostile, and so is whoever writes evidence: it has the first member's signing
key, and everything that anybody ever sent or held, in two sessions.
"""

import os
from contextlib import suppress
from typing import NamedTuple

import msgspec
import pytest
from hostile_member import (
    Deed,
    answers,
    false_complaint,
    forgeries,
    junk_boxes,
    made_up,
    other_box_key,
    turn,
    wrong_commitment,
    wrong_opening,
    wrong_shares,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import small_noisy_plan
from refusals import refused
from scene import BOSS, KEYS, VICTIM, Scene, changed, refuses, sealed, sets_aside

import fedgauge as fg
from fedgauge.protocol import COORDINATOR, EVERYONE, Envelope
from fedgauge.secagg import Stage, secret_sharing
from fedgauge.secagg.evidence import Dispute, File, Signed, WrongDealing, WrongShare
from fedgauge.secagg.masking import AgreementKey
from fedgauge.secagg.messages import (
    Advertisement,
    Ballot,
    BoxKey,
    Complaint,
    Opened,
    Opening,
    SealedOpening,
    Shares,
    complaint,
    opening,
    receipt,
)
from fedgauge.secagg.secret_sharing import Box, Kind, SharePair

HOSTILE, OTHER = 0, 4
SHOWS_NOTHING = "what is said to be evidence shows nothing"


class Story(NamedTuple):
    """What the hostile member does, who else falls silent when, and what that leaves."""

    deeds: list[Deed]
    found: set[type]
    proved: bool = True
    leaves: tuple[tuple[int, Stage], ...] = ()


STORIES = {
    "junk-box": Story([junk_boxes()], {Dispute}),
    "other-box-key": Story([other_box_key()], {Dispute}),
    "junk-box-answered-wrongly": Story([junk_boxes(), answers(made_up)], {Dispute}),
    "junk-box-unanswered": Story(
        [junk_boxes()], {Dispute}, proved=False, leaves=((HOSTILE, Stage.AGREE),)
    ),
    "false-complaint": Story([false_complaint()], {Dispute}),
    "wrong-opening": Story([wrong_opening(of_all=True)], {WrongShare}),
    "wrong-opening-of-a-key": Story(
        [wrong_opening(of_all=True)], {WrongShare}, leaves=((OTHER, Stage.MASK),)
    ),
    "wrong-shares": Story([wrong_shares()], {WrongDealing}),
    "wrong-commitment": Story([wrong_commitment()], {WrongDealing}),
    "wrong-shares-of-a-key": Story(
        [wrong_shares()], {WrongDealing}, leaves=((HOSTILE, Stage.MASK),)
    ),
    "both": Story([false_complaint(), wrong_opening(of_all=True)], {Dispute, WrongShare}),
}
every_story = pytest.mark.parametrize("name", STORIES)


def played(story, *, run=b"r" * 32):
    """A scene at its end, whatever that is."""
    with pytest.MonkeyPatch.context() as turned:
        turn(turned, KEYS[HOSTILE], story.deeds, peer=KEYS[VICTIM].public)
        scene = Scene(small_noisy_plan(), run=run, silent=story.leaves)
        with suppress(fg.FedgaugeError):
            scene.until(Stage.OPEN)
            scene.step()
    return scene


@pytest.fixture(scope="module")
def scenes():
    return {name: played(story) for name, story in STORIES.items()}


@every_story
def test_evidence_shows_who_did_it(scenes, name):
    story, evidence = STORIES[name], scenes[name].server.evidence
    assert {type(each) for each in evidence.found} == story.found
    faults = File.from_bytes(evidence.to_bytes()).judged()
    assert {(fault.member, fault.proved) for fault in faults} == {(HOSTILE, story.proved)}


@every_story
def test_it_is_evidence_about_its_session_alone(scenes, name):
    other = Scene(small_noisy_plan(), run=b"o" * 32).invitation
    for each in scenes[name].server.evidence.found:
        refused(fg.ProtocolError, SHOWS_NOTHING, each.judged, other)


def signature(member, stage, body, to=EVERYONE, *, session):
    place = {"stage": stage, "session": session, "recipient": to}
    return Envelope.from_bytes(sealed(KEYS[member], member, body, **place)).signature


class Hand:
    """A session in which all but the first kept to the rules; it complained without reason.

    `held` are shares as members hold them, by holder and dealer; `opened` what each told.
    """

    def __init__(self, *deeds):
        with pytest.MonkeyPatch.context() as turned:
            turn(turned, KEYS[HOSTILE], deeds, peer=KEYS[VICTIM].public)
            self.scene = Scene(small_noisy_plan()).until(Stage.OPEN)
        self.held = [
            {
                int(dealer): SharePair(*pair)
                for dealer, pair in self.scene.secrets(m)["held"].items()
            }
            for m in range(6)
        ]
        self.clients = [self.scene.restored(m) for m in range(6)]  # with keys
        self.opened = {m: self.scene.opening(r) for m, r in self.scene.answers().items()}
        self.invitation, self.session = self.scene.invitation, self.scene.session

    def signed(self, stage, member):
        envelope = Envelope.from_bytes(self.scene.replied[stage][member])
        return Signed(envelope.body, envelope.signature)

    def shares(self, dealer):
        return self.signed(Stage.SHARE, dealer)

    def keys(self, member):
        return self.signed(Stage.ADVERTISE, member)

    def ballot(self, member):
        return self.signed(Stage.AGREE, member)

    def box(self, dealer, holder, shares=None):
        dealt = Shares.from_bytes((shares or self.shares(dealer)).body).boxes
        return next(box for box in dealt if box.member == holder)

    def boxes_to(self, holder):
        return [self.box(m, holder).digest(m, holder) for m in range(6) if m != holder]

    def said(self, stage, message, to=COORDINATOR, by=HOSTILE):
        body = message.to_bytes()
        return Signed(body, signature(by, stage, body, to, session=self.session))

    def with_box(self, dealer, alter):
        """Shares of a dealer with another box for one holder, signed by the hostile member."""
        shares = Shares.from_bytes(self.shares(dealer).body)
        return self.said(Stage.SHARE, changed(shares, boxes=[alter(b) for b in shares.boxes]))

    def word(self, stage, told, by=HOSTILE):
        return signature(by, stage, told.to_bytes(), session=self.session)

    def complaint(self, dealer, holder, box=None, by=HOSTILE):
        box = box or self.box(dealer, holder)
        return self.word(Stage.MASK, complaint(self.session, box.digest(dealer, holder)), by)

    def dispute(self, dealer, holder, **fields):
        """A complaint and its answer, as they are; where one is missing, forged."""
        parts = {
            "shares": self.shares(dealer),
            "keys": self.keys(holder),
            "complaint": self.complaint(dealer, holder),
            "ballot": self.ballot(dealer),
        }
        return Dispute(dealer, holder, **(parts | fields))

    def wrong_share(self, dealer, holder, share, **fields):
        told = Opening.digests(self.opened[holder].masks, self.opened[holder].keys)
        masked = self.scene.server._state.survivors[holder]
        parts = {
            "shares": self.shares(dealer),
            "boxes": self.boxes_to(holder),
            "receipt": masked.receipt,
            "opened": told,
            "opening": self.opened[holder].signature,
        }
        return WrongShare(dealer, holder, Kind.MASK, share, **(parts | fields))

    def dealing(self, dealer, kind, holders, **fields):
        told = [Opened(h, self.held[h][dealer][kind]) for h in holders]
        parts = {"shares": self.shares(dealer), "keys": self.keys(dealer), "opened": told}
        return WrongDealing(dealer, kind, **(parts | fields))

    def shows_nothing(self, evidence):
        refused(fg.ProtocolError, SHOWS_NOTHING, evidence.judged, self.invitation)


@pytest.fixture(scope="module")
def hand():
    return Hand(false_complaint())


def test_a_false_complaint_is_the_holders_fault_where_it_was_answered(hand):
    """Whoever hands evidence on can leave the answer out, and then nothing is proved."""
    assert hand.dispute(VICTIM, HOSTILE).judged(hand.invitation).member == HOSTILE
    fault = hand.dispute(VICTIM, HOSTILE, ballot=None).judged(hand.invitation)
    assert (fault.member, fault.proved) == (VICTIM, False)
    hand.shows_nothing(hand.dispute(OTHER, VICTIM, ballot=None))  # nobody complained
    ballot = answer_of(hand, VICTIM, HOSTILE, key=os.urandom(32))  # not the dealer's answer
    hand.shows_nothing(hand.dispute(VICTIM, HOSTILE, ballot=ballot))


def junked(box):
    return changed(box, sealed=bytes(len(box.sealed)))


def test_shares_that_the_dealer_and_keys_that_the_holder_did_not_sign_are_none(hand):
    shares = hand.with_box(VICTIM, lambda box: junked(box) if box.member == HOSTILE else box)
    said = hand.complaint(VICTIM, HOSTILE, hand.box(VICTIM, HOSTILE, shares))
    hand.shows_nothing(hand.dispute(VICTIM, HOSTILE, shares=shares, complaint=said))
    keys = Advertisement.from_bytes(hand.keys(HOSTILE).body)
    other = changed(keys, box_key=AgreementKey(os.urandom(32)).public)
    second = hand.said(Stage.ADVERTISE, other, EVERYONE)
    hand.shows_nothing(hand.dispute(VICTIM, HOSTILE, keys=second))


def answer_of(hand, dealer, holder, *, key=None, box_key=None):
    """A ballot of the hostile member with an answer in it."""
    theirs = Advertisement.from_bytes(hand.keys(holder).body).box_key
    client = hand.clients[dealer]
    key = key or client._key_of_box(holder, client._state).private
    said = BoxKey(holder, key, box_key or theirs)
    vote = hand.scene.vote(dealer)
    return hand.said(Stage.AGREE, Ballot(vote=vote, answers=[said]))


def test_who_did_not_complain_of_a_box_is_not_said_to_have(hand):
    """The dealer shows that a box opens of which nobody complained, or another than that one."""
    right = hand.dispute(
        HOSTILE,
        VICTIM,
        complaint=hand.complaint(HOSTILE, VICTIM, by=VICTIM),
        ballot=answer_of(hand, HOSTILE, VICTIM),
    )
    assert right.judged(hand.invitation).member == VICTIM  # all else fits
    hand.shows_nothing(changed(right, complaint=hand.complaint(HOSTILE, VICTIM)))
    said = hand.complaint(HOSTILE, VICTIM, junked(hand.box(HOSTILE, VICTIM)), by=VICTIM)
    hand.shows_nothing(changed(right, complaint=said))


def test_keys_that_the_holder_did_not_advertise_open_nothing(hand):
    """The dealer seals for a key that it made up, and says that it is the holder's."""
    made_up_key, mine = AgreementKey(os.urandom(32)), AgreementKey(os.urandom(32))
    pair = hand.held[VICTIM][HOSTILE]
    box = Box.made(pair, mine, made_up_key.public, hand.session, HOSTILE, VICTIM)
    shares = hand.with_box(HOSTILE, lambda each: box if each.member == VICTIM else each)
    keys = Advertisement.from_bytes(hand.keys(VICTIM).body)
    dispute = hand.dispute(
        HOSTILE,
        VICTIM,
        shares=shares,
        complaint=hand.complaint(HOSTILE, VICTIM, box, by=VICTIM),
        ballot=answer_of(hand, HOSTILE, VICTIM, key=mine.private, box_key=made_up_key.public),
        keys=hand.said(Stage.ADVERTISE, changed(keys, box_key=made_up_key.public), EVERYONE),
    )
    hand.shows_nothing(dispute)
    hand.shows_nothing(changed(dispute, keys=hand.keys(VICTIM)))


@pytest.mark.parametrize("times", [0, 2])
def test_there_is_one_answer_and_one_box(hand, times):
    ballot, word = answer_of(hand, HOSTILE, VICTIM), hand.complaint(HOSTILE, VICTIM, by=VICTIM)
    whole = hand.dispute(HOSTILE, VICTIM, complaint=word, ballot=ballot)
    assert whole.judged(hand.invitation).proved
    said = Ballot.from_bytes(ballot.body)
    answered = hand.said(Stage.AGREE, changed(said, answers=said.answers * times))
    hand.shows_nothing(changed(whole, ballot=answered))
    shares = Shares.from_bytes(hand.shares(HOSTILE).body)
    boxes = [box for box in shares.boxes for _ in range(times if box.member == VICTIM else 1)]
    hand.shows_nothing(changed(whole, shares=hand.said(Stage.SHARE, changed(shares, boxes=boxes))))


def told(hand, holder, dealer):
    return next(part.share for part in hand.opened[holder].masks if part.member == dealer)


def other_share():
    return secret_sharing.share_to_bytes(1234567)


@pytest.mark.parametrize("dealer", [HOSTILE, OTHER, VICTIM])
def test_only_a_wrong_share_that_the_holder_signed_is_a_fault(hand, dealer):
    hand.shows_nothing(hand.wrong_share(dealer, VICTIM, told(hand, VICTIM, dealer)))
    hand.shows_nothing(hand.wrong_share(dealer, VICTIM, other_share()))  # it was not told
    digests = [Opened(dealer, other_share()).digest(Kind.MASK)]
    word = hand.word(Stage.OPEN, opening(hand.session, digests))
    forged = hand.wrong_share(dealer, VICTIM, other_share(), opened=digests, opening=word)
    hand.shows_nothing(forged)
    evidence = hand.wrong_share(dealer, VICTIM, told(hand, VICTIM, dealer))
    hand.shows_nothing(changed(evidence, kind=Kind.KEY))


def test_a_box_that_the_holder_did_not_get_is_not_held_against_it(hand):
    """The dealer signs a second dealing, with checks of other shares."""
    shares = hand.with_box(HOSTILE, lambda box: changed(box, checks=bytes(64)))
    right = told(hand, VICTIM, HOSTILE)
    evidence = hand.wrong_share(HOSTILE, VICTIM, right, shares=shares)
    hand.shows_nothing(evidence)
    boxes = [hand.box(HOSTILE, VICTIM, shares).digest(HOSTILE, VICTIM)]
    hand.shows_nothing(changed(evidence, boxes=boxes))
    got = receipt(hand.session, boxes)
    hand.shows_nothing(changed(evidence, boxes=boxes, receipt=hand.word(Stage.MASK, got)))
    received = hand.word(Stage.MASK, got, by=VICTIM)  # all else fits
    assert changed(evidence, boxes=boxes, receipt=received).judged(hand.invitation)


@pytest.mark.parametrize("kind", Kind)
def test_shares_show_nothing_unless_they_were_dealt_and_do_not_belong_together(hand, kind):
    for holders in (range(1, 5), range(1, 6), [5, 3, 2, 1]):  # they belong together
        hand.shows_nothing(hand.dealing(VICTIM, kind, holders))
    # Too few give some number, which is not the secret.
    for holders in ([], [1, 3, 5], [1, 3, 5, 5], [1, 1, 1, 1]):
        hand.shows_nothing(hand.dealing(VICTIM, kind, holders))
    evidence = hand.dealing(VICTIM, kind, range(1, 5))
    for holder in (1, VICTIM):  # not what was dealt
        wrong = [
            changed(part, share=other_share()) if part.member == holder else part
            for part in evidence.opened
        ]
        hand.shows_nothing(changed(evidence, opened=wrong))
    for nobody in (-1, 6, 2**62):
        more = [*evidence.opened, Opened(nobody, other_share())]
        hand.shows_nothing(changed(evidence, opened=more))


def test_what_the_dealer_did_not_sign_binds_nobody(hand):
    """A commitment, a key, checks of own shares."""
    shares = Shares.from_bytes(hand.shares(VICTIM).body)
    forged = hand.said(Stage.SHARE, changed(shares, commitment=bytes(32)))
    hand.shows_nothing(hand.dealing(VICTIM, Kind.MASK, range(1, 5), shares=forged))
    keys = Advertisement.from_bytes(hand.keys(VICTIM).body)
    other = changed(keys, mask_key=AgreementKey(os.urandom(32)).public)
    for shown in (hand.said(Stage.ADVERTISE, other, EVERYONE), hand.keys(OTHER)):
        hand.shows_nothing(hand.dealing(VICTIM, Kind.KEY, range(1, 5), keys=shown))
    forged = hand.said(Stage.SHARE, changed(shares, own=bytes(64)))
    hand.shows_nothing(hand.wrong_share(VICTIM, VICTIM, told(hand, VICTIM, VICTIM), shares=forged))


def blamed(file):
    with suppress(fg.ProtocolError):
        return {fault.member for fault in file.judged() if fault.proved}
    return set()


@every_story
def test_a_changed_number_or_byte_blames_nobody_else(scenes, name):
    evidence = scenes[name].server.evidence
    sent = msgspec.msgpack.decode(evidence.to_bytes())
    for altered in forgeries(sent):
        with suppress(fg.ProtocolError):
            file = File.from_bytes(msgspec.msgpack.encode(altered))
            assert blamed(file) <= {HOSTILE}


@pytest.fixture(scope="module")
def pool(scenes, hand):
    """All that was ever signed, by kind, and what the hostile member may sign besides."""
    parts = {Signed: [], bytes: [], list: []}
    others = [played(story, run=b"o" * 32) for story in STORIES.values()]
    for scene in (*scenes.values(), *others, hand.scene):
        for replies in scene.replied.values():
            for envelope in map(Envelope.from_bytes, replies.values()):
                parts[Signed].append(Signed(envelope.body, envelope.signature))
        for each in scene.server.evidence.found:
            for value in msgspec.structs.astuple(each):
                if type(value) in parts:
                    parts[type(value)].append(value)
    parts[Signed] += [
        hand.with_box(dealer, alter)
        for dealer in (HOSTILE, VICTIM)
        for alter in (junked, lambda box: changed(box, checks=bytes(64)))
    ]
    parts[bytes] += [hand.complaint(VICTIM, HOSTILE), hand.complaint(HOSTILE, VICTIM)]
    parts[bytes] += [pair[kind] for held in hand.held for pair in held.values() for kind in Kind]
    return parts


def other_value(draw, value, pool):
    if isinstance(value, Kind):
        return draw(st.sampled_from(Kind))
    if isinstance(value, int):
        return draw(st.integers(-1, 6))
    if isinstance(value, list):
        shorter = value[: draw(st.integers(0, len(value)))]
        return draw(st.sampled_from([shorter, value + value, *map(list, pool[list])]))
    kind = Signed if value is None else type(value)
    return draw(st.sampled_from([*pool[kind], None] if kind is Signed else pool[kind]))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_evidence_put_together_at_will_blames_nobody_else(scenes, pool, data):
    """Fields of all that was signed in two sessions, in any place."""
    draw = data.draw
    scene = scenes[draw(st.sampled_from(sorted(scenes)))]
    each = draw(st.sampled_from(scene.server.evidence.found))
    names = draw(st.sets(st.sampled_from(each.__struct_fields__), min_size=1, max_size=3))
    fields = {name: other_value(draw, getattr(each, name), pool) for name in sorted(names)}
    forged = File(invitation=scene.invitation.data, found=[changed(each, **fields)])
    with suppress(fg.ProtocolError):
        assert blamed(File.from_bytes(forged.to_bytes())) <= {HOSTILE}


def test_evidence_needs_an_invitation_that_was_signed(scenes):
    evidence = scenes["junk-box"].server.evidence
    envelope = Envelope.from_bytes(evidence.invitation)
    forged = changed(envelope, signature=BOSS.sign(b"something else")).to_bytes()
    refused(fg.ProtocolError, "not signed", changed(evidence, invitation=forged).judged)


@pytest.fixture(params=[None, small_noisy_plan()], ids=["exact", "noisy"])
def scene(request):
    with pytest.MonkeyPatch.context() as turned:
        turn(turned, KEYS[0], [false_complaint()], peer=KEYS[VICTIM].public)
        scene = Scene(request.param).until(Stage.MASK)
        scene.answers()
    return scene


def word(scene, member, box):
    body = complaint(scene.session, box)
    place = {"stage": Stage.MASK, "session": scene.session, "recipient": EVERYONE}
    return Envelope.from_bytes(sealed(KEYS[member], member, body, **place)).signature


def another_box(scene, said):
    box = os.urandom(32)
    return changed(said, box=box, signature=word(scene, 0, box))


@pytest.mark.parametrize(
    ("alter", "why"),
    [
        (lambda _, said: [said, said], "complains twice"),
        (lambda scene, said: [another_box(scene, said)], "was not sent"),
        (lambda _, said: [changed(said, member=4)], "was not sent"),
        (lambda _, said: [changed(said, member=0)], "was not sent"),
        (lambda scene, said: [changed(said, signature=word(scene, 1, said.box))], "did not sign"),
    ],
    ids=["twice", "another box", "another dealer", "of itself", "unsigned"],
)
def test_a_coordinator_sets_aside_what_is_no_complaint(scene, alter, why):
    masked = scene.said(0)
    (said,) = masked.complaints
    assert said.member == VICTIM
    reply = scene.reply(0, changed(masked, complaints=alter(scene, said)))
    sets_aside(scene, 0, reply, why)


def is_refused(scene, member, body, why):
    refused(fg.ProtocolError, why, scene.server.check, member, scene.reply(member, body))


def test_a_coordinator_sets_aside_what_is_no_answer(scene):
    scene.until(Stage.AGREE)
    ballot = scene.said(VICTIM)
    (said,) = ballot.answers
    for wrong in ([], [said, said], [said, changed(said, member=1)], [changed(said, member=1)]):
        is_refused(scene, VICTIM, changed(ballot, answers=wrong), "does not answer the compl")
    other = changed(said, box_key=os.urandom(32))
    is_refused(scene, VICTIM, changed(ballot, answers=[other]), "sealed a box for another key")
    is_refused(scene, VICTIM, changed(ballot, vote=scene.said(1).vote), "did not sign")


def asks(scene, *complaints):
    asked = changed(scene.asked(VICTIM), complaints=list(complaints))
    return scene.request(VICTIM, asked)


def test_a_dealer_answers_to_whom_it_dealt_alone(scene):
    scene.until(Stage.AGREE)
    (said,) = scene.asked(VICTIM).complaints
    client = scene.restored(VICTIM)
    refuses(client, asks(scene, said, said), "comes twice")
    not_dealt = "not from a holder of this site's shares"
    refuses(client, asks(scene, changed(said, member=1)), not_dealt)
    refuses(client, asks(scene, changed(said, signature=word(scene, 1, said.box))), not_dealt)
    mine = Complaint(VICTIM, said.box, word(scene, VICTIM, said.box))
    refuses(client, asks(scene, mine), not_dealt)
    box = os.urandom(32)
    other = Complaint(0, box, word(scene, 0, box))
    refuses(client, asks(scene, other), "given another box than this site sent")
    refuses(client, asks(scene, said, changed(other, member=1)), not_dealt)
    client.receive(asks(scene, said))


def test_what_a_member_opens_is_under_its_signature(scene):
    """Else a wrong share could not be shown to be its own."""
    scene.until(Stage.OPEN)
    told = scene.said(1)
    assert {part.member for part in told.masks} == set(range(6))
    assert {part.member for part in scene.said(0).masks} == set(range(6)) - {VICTIM}
    high = Opened(told.masks[0].member, secret_sharing.PRIME.to_bytes(33, "little"))
    is_refused(scene, 1, changed(told, masks=[high, *told.masks[1:]]), "not an element of the fi")
    more = Opened(VICTIM, told.masks[0].share)
    first = scene.said(0)
    is_refused(scene, 0, changed(first, masks=[*first.masks, more]), "opens other shares than")
    unsigned = changed(told, signature=first.signature)
    sealed_up = SealedOpening.of(unsigned, scene.invitation, 1, scene.box_keys[1])
    is_refused(scene, 1, sealed_up, "did not sign")
