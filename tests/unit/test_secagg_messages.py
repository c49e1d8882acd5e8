"""Messages of a secure sum: sets of members, advertisements, invitations."""

import hashlib
import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgauge import Axis
from fedgauge.errors import PlanError, ProtocolError
from fedgauge.keys import SigningKey
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import Cohort, DistributedDP
from fedgauge.protocol import (
    COORDINATOR,
    EVERYONE,
    Envelope,
    session_id,
)
from fedgauge.secagg.graph import MOST_MEMBERS, Graph, choose_graph
from fedgauge.secagg.messages import (
    Advertisement,
    Invitation,
    Stage,
    Terms,
    agreement,
    from_bitmap,
    sharing,
    to_bitmap,
)

KEY = SigningKey.from_bytes(b"k" * 32)
OTHER = SigningKey.from_bytes(b"o" * 32)


def changed(message, **fields):
    return msgspec.structs.replace(message, **fields)


# Sets of members


@given(data=st.data())
def test_sets_travel_as_bitmaps(data):
    count = data.draw(st.integers(1, 70))
    members = data.draw(st.frozensets(st.integers(0, count - 1)))
    sent = to_bitmap(members, count)
    assert len(sent) == -(-count // 8)
    assert from_bitmap(sent, count) == members


def test_the_first_member_is_the_first_bit():
    assert to_bitmap([0], 9) == b"\x80\x00"
    assert to_bitmap([8], 9) == b"\x00\x80"
    assert to_bitmap(iter([0, 7]), 9) == b"\x81\x00"
    assert to_bitmap([], 9) == b"\x00\x00"
    assert from_bitmap(b"\xff\x80", 9) == set(range(9))


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 17])
def test_a_bitmap_has_one_length(count):
    right = len(to_bitmap([], count))
    for length in {0, right - 1, right + 1, right + 8}:
        with pytest.raises(ProtocolError, match="wrong length"):
            from_bitmap(bytes(length), count)


@pytest.mark.parametrize("count", [1, 7, 9, 15, 17])
def test_a_bitmap_names_nobody_beyond_the_members(count):
    bits = np.unpackbits(np.frombuffer(to_bitmap([], count), dtype=np.uint8))
    for beyond in range(count, len(bits)):
        wrong = np.zeros_like(bits)
        wrong[beyond] = 1
        with pytest.raises(ProtocolError, match="do not exist"):
            from_bitmap(np.packbits(wrong).tobytes(), count)


def test_an_agreement_depends_on_everything_that_was_told():
    told = {}
    for session, *sets in itertools.product([b"s" * 32, b"t" * 32], *[[b"\x80", b"\xc0"]] * 4):
        told[agreement(session, *sets).told] = (session, *sets)
    assert len(told) == 32
    assert {len(digest) for digest in told} == {32}
    # Sets of several lengths are not run together.
    parts = (b"ab", b"c", b"d", b"e"), (b"a", b"bc", b"d", b"e")
    assert len({agreement(b"s" * 32, *each).told for each in parts}) == 2


def test_what_was_told_before_masking_is_no_agreement():
    parts = (b"s" * 32, b"\x80", b"\xc0")
    others = [(b"t" * 32, *parts[1:]), (parts[0], b"\x81", parts[2]), (*parts[:2], b"\xc1")]
    told = {sharing(*p).told for p in (parts, *others)}
    assert len(told) == 4
    assert agreement(*parts, b"", b"").told not in told
    digests = b"".join(hashlib.sha256(members).digest() for members in parts[1:])
    expected = hashlib.sha256(b"fedgauge sharing\0" + parts[0] + digests).digest()
    assert sharing(*parts).told == expected


# Advertisements


def advertised(**fields):
    keys = {"mask_key": OTHER.public, "box_key": KEY.public, "seed": b"s" * 16, "setting": b""}
    return Advertisement(**keys | fields)


def test_an_advertisement_with_usable_keys_is_taken():
    advertised().check()


@pytest.mark.parametrize("key", [b"", bytes(32), bytes(31), b"\1" + bytes(31), b"a" * 33])
@pytest.mark.parametrize("field", ["mask_key", "box_key"])
def test_an_advertisement_with_a_useless_key_is_refused(field, key):
    with pytest.raises(ProtocolError, match="public key"):
        advertised(**{field: key}).check()


@pytest.mark.parametrize("length", [0, 15, 17, 32])
def test_an_advertisement_with_a_seed_of_another_length_is_refused(length):
    with pytest.raises(ProtocolError, match="seed"):
        advertised(seed=bytes(length)).check()


@pytest.mark.parametrize("length", [1, 31, 33, 64])
def test_an_advertised_setting_is_a_digest_or_nothing(length):
    advertised(setting=b"d" * 32).check()
    with pytest.raises(ProtocolError, match="setting"):
        advertised(setting=bytes(length)).check()


# Invitations

PLAN = EvaluationPlan.for_histogram(Axis.uniform(4), Cohort(3, 1))
MEMBERS = sorted(SigningKey.from_bytes(bytes([i] * 32)).public for i in range(5))
GRAPH = choose_graph(5, PLAN.cohort)
INVITATION = Invitation.made(PLAN, MEMBERS, KEY, b"r" * 32, GRAPH)
ENVELOPE = Envelope.from_bytes(INVITATION.data)
TERMS = Terms.from_bytes(ENVELOPE.body)


def proposed(terms, key=KEY, **place):
    """An invitation with other terms, rightly signed by the coordinator it names."""
    body = terms if isinstance(terms, bytes) else terms.to_bytes()
    place = {
        "session": session_id(body),
        "stage": Stage.ADVERTISE,
        "sender": COORDINATOR,
        "recipient": EVERYONE,
    } | place
    return Envelope.sealed(key, **place, body=body).to_bytes()


def test_an_invitation_says_what_it_invites_to():
    arrived = Invitation(INVITATION.data)
    assert arrived.plan == PLAN
    assert arrived.members == MEMBERS
    assert arrived.coordinator == KEY.public
    assert arrived.graph == GRAPH == (5, 4, 4)
    assert arrived.session == INVITATION.session
    assert arrived.data == INVITATION.data
    assert arrived.bits == 64
    assert arrived.model == b""
    named = Invitation.made(PLAN, MEMBERS, KEY, b"r" * 32, GRAPH, model=b"m" * 32)
    assert Invitation(named.data).model == b"m" * 32
    assert Invitation(proposed(TERMS)).data == INVITATION.data


def test_an_invitation_sorts_its_members_and_takes_each_once():
    shuffled = [*reversed(MEMBERS), MEMBERS[2]]
    assert Invitation.made(PLAN, shuffled, KEY, b"r" * 32, GRAPH).data == INVITATION.data


def test_who_must_vote():
    """Everybody, on an exact sum in which all know each other; else as many as open secrets."""
    noisy = EvaluationPlan.for_histogram(
        Axis.uniform(4, outside="clip"), Cohort(3, 1), privacy=DistributedDP(1.0)
    )
    exact, other = (Invitation.made(p, MEMBERS, KEY, b"r" * 32, GRAPH) for p in (PLAN, noisy))
    assert exact.is_unanimous
    assert [exact.votes_needed(survivors) for survivors in (4, 5)] == [4, 5]
    assert not other.is_unanimous
    assert [other.votes_needed(survivors) for survivors in (4, 5)] == [4, 4]
    many = [SigningKey.from_bytes(i.to_bytes(32, "big")).public for i in range(201)]
    plan = EvaluationPlan.for_histogram(Axis.uniform(4), Cohort(20, 1))
    for count in (200, 201):
        graph = choose_graph(count, plan.cohort)
        sparse = Invitation.made(plan, many[:count], KEY, b"r" * 32, graph)
        assert sparse.is_unanimous == (count == 200)
        assert sparse.votes_needed(180) == (180 if count == 200 else graph.threshold)


def test_short_words_where_the_plan_allows_them():
    plan = EvaluationPlan.for_histogram(Axis.uniform(4), Cohort(3, 1), largest=1000)
    assert Invitation.made(plan, MEMBERS, KEY, b"r" * 32, GRAPH).bits == 32


@pytest.mark.parametrize(
    "data",
    [
        changed(ENVELOPE, signature=bytes(64)).to_bytes(),
        changed(ENVELOPE, session=b"s" * 32).to_bytes(),
        changed(ENVELOPE, stage=2).to_bytes(),
        changed(ENVELOPE, sender=0).to_bytes(),
        changed(ENVELOPE, recipient=0).to_bytes(),
        proposed(TERMS, OTHER),
        proposed(TERMS, session=b"s" * 32),
        proposed(TERMS, stage=Stage.SHARE),
        proposed(TERMS, sender=0),
        proposed(TERMS, recipient=COORDINATOR),
        proposed(b"no terms"),
        proposed(TERMS.to_bytes() + b"\0"),
        TERMS.to_bytes(),
        b"",
    ],
    ids=range(14),
)
def test_an_invitation_that_is_not_signed_in_its_place_is_refused(data):
    with pytest.raises(ProtocolError):
        Invitation(data)


@pytest.mark.parametrize(
    "fields",
    [
        {"plan": TERMS.plan + b" "},
        {"plan": TERMS.plan.replace(b'"min_survivors":3', b'"min_survivors":2')},
        {"run": b"R" * 32},
        {"members": MEMBERS[:-1]},
        {"members": [*MEMBERS[:-1], b"\xff" * 32]},
        {"coordinator": OTHER.public},
        {"degree": 3},
        {"threshold": 5},
        {"model": b"m" * 32},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_terms_that_are_altered_on_the_way_are_refused(fields):
    altered = changed(TERMS, **fields)
    assert altered != TERMS
    with pytest.raises(ProtocolError):
        Invitation(changed(ENVELOPE, body=altered.to_bytes()).to_bytes())
    # Also with the session that the altered terms would have.
    resealed = changed(ENVELOPE, body=altered.to_bytes(), session=session_id(altered.to_bytes()))
    with pytest.raises(ProtocolError, match="not signed"):
        Invitation(resealed.to_bytes())


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"members": MEMBERS[::-1]}, "sorted and distinct"),
        ({"members": [MEMBERS[0], *MEMBERS]}, "sorted and distinct"),
        ({"members": [*MEMBERS[:4], MEMBERS[3]]}, "sorted and distinct"),
        ({"members": [*MEMBERS[:4], b"\xff" * 31]}, "wrong length"),
        ({"members": [b"", *MEMBERS[1:]]}, "wrong length"),
        ({"members": [*MEMBERS[:4], b"\xff" * 33]}, "wrong length"),
        ({"run": b"r" * 31}, "wrong length"),
        ({"run": b"r" * 64}, "wrong length"),
        ({"coordinator": KEY.public[:-1]}, "wrong length"),
        ({"model": b"m"}, "wrong length"),
        ({"model": b"m" * 31}, "wrong length"),
        ({"model": b"m" * 33}, "wrong length"),
    ],
)
def test_terms_of_a_wrong_form_are_refused_though_signed(fields, match):
    with pytest.raises(ProtocolError, match=match):
        Invitation(proposed(changed(TERMS, **fields)))


def test_too_many_members_are_refused():
    many = [i.to_bytes(32, "big") for i in range(MOST_MEMBERS + 1)]
    with pytest.raises(ProtocolError, match="sorted and distinct"):
        Invitation(proposed(changed(TERMS, members=many)))


def plan_of(terms):
    return Invitation(proposed(terms)).plan


@pytest.mark.parametrize(
    ("degree", "threshold"),
    [
        (4, 3),
        (4, 1),
        (4, 0),
        (4, -1),
        (4, 6),
        (3, 4),
        (0, 1),
        (-1, 4),
        (5, 4),
        (2**40, 4),
        (4, 2**63),
    ],
)
def test_a_graph_that_protects_too_little_is_refused(degree, threshold):
    with pytest.raises(ProtocolError, match="threshold too low"):
        plan_of(changed(TERMS, degree=degree, threshold=threshold))


def test_a_higher_threshold_protects_as_well():
    assert plan_of(changed(TERMS, threshold=5)) == PLAN


@pytest.mark.parametrize(
    "plan",
    [
        b"",
        b"{}",
        TERMS.plan + b" ",
        TERMS.plan[:-1],
        TERMS.plan.replace(b":", b": ", 1),
        TERMS.plan.replace(b'"min_survivors":3', b'"min_survivors":0'),
        TERMS.plan.replace(b'"min_survivors":3', b'"min_survivors":6'),
        TERMS.plan.replace(b'"max_colluding":1', b'"max_colluding":5'),
        TERMS.plan.replace(b'"max_colluding":1', b'"max_colluding":1,"more":1'),
        TERMS.plan.replace(b'"max_colluding":1', b'"max_colluding":1180591620717411303424'),
        b"\xff" + TERMS.plan,
    ],
    ids=range(11),
)
def test_a_plan_that_cannot_be_or_does_not_fit_is_refused(plan):
    assert plan != TERMS.plan
    with pytest.raises(PlanError):
        plan_of(changed(TERMS, plan=plan))


def test_more_colluders_than_the_graph_was_made_for_are_refused():
    plan = TERMS.plan.replace(b'"max_colluding":1', b'"max_colluding":3')
    with pytest.raises(ProtocolError, match="threshold too low"):
        plan_of(changed(TERMS, plan=plan))


def test_a_plan_is_not_read_before_it_is_asked_for(monkeypatch):
    """A site judges first who the coordinator is: reading a plan can be made costly."""

    def refuse(*_):
        raise AssertionError("it was read")

    monkeypatch.setattr(EvaluationPlan, "from_bytes", refuse)
    invitation = Invitation(INVITATION.data)
    with pytest.raises(AssertionError, match="it was read"):
        _ = invitation.plan


@pytest.mark.parametrize(
    "other",
    [
        Invitation.made(
            EvaluationPlan.for_histogram(Axis.uniform(5), Cohort(3, 1)),
            MEMBERS,
            KEY,
            b"r" * 32,
            GRAPH,
        ),
        Invitation.made(PLAN, MEMBERS, KEY, b"R" * 32, GRAPH),
        Invitation.made(PLAN, MEMBERS[1:], KEY, b"r" * 32, Graph(4, 3, 3)),
        Invitation.made(PLAN, MEMBERS, OTHER, b"r" * 32, GRAPH),
        Invitation.made(PLAN, MEMBERS, KEY, b"r" * 32, Graph(5, 4, 5)),
        Invitation.made(PLAN, MEMBERS, KEY, b"r" * 32, GRAPH, model=b"m" * 32),
    ],
    ids=["plan", "run", "members", "coordinator", "threshold", "model"],
)
def test_every_invitation_has_a_session_of_its_own(other):
    assert other.session != INVITATION.session
