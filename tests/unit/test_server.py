"""A reply is verified once, and nothing that was checked outlives a step."""

from contextlib import nullcontext

import pytest
from scene import KEYS, Scene, changed

from fedgauge import protocol
from fedgauge.errors import CohortTooSmall
from fedgauge.protocol import Envelope
from fedgauge.secagg import Stage

pytestmark = pytest.mark.usefixtures("both_kinds")
every_stage = pytest.mark.parametrize("stage", Stage)


@pytest.fixture
def verified(monkeypatch):
    """Public keys that signatures were verified with."""
    seen, verify = [], protocol.verify

    def watched(public, message, signature):
        seen.append(public)
        return verify(public, message, signature)

    monkeypatch.setattr(protocol, "verify", watched)
    return seen


def waiting_for_votes(scene, stage):
    """An exact sum waits for the votes of all; any other goes on without those set aside."""
    waits = stage == Stage.AGREE and not scene.plan.is_noisy
    return pytest.raises(CohortTooSmall) if waits else nullcontext()


def checked(scene, replies):
    for member, reply in replies.items():
        scene.server.check(member, reply)


@every_stage
def test_a_step_does_not_verify_what_was_checked(stage, verified):
    scene = Scene().until(stage)
    replies = scene.answers()
    verified.clear()
    checked(scene, replies)
    # Besides the message: who shared and which boxes came; the vote; the shares told.
    more = {Stage.MASK: 2, Stage.AGREE: 1, Stage.OPEN: 1}
    assert len(verified) == len(replies) * (1 + more.get(stage, 0))
    verified.clear()
    outcome = scene.server.step({member: bytes(bytearray(r)) for member, r in replies.items()})
    assert verified == []
    assert not scene.server.refused
    if stage == Stage.OPEN:
        assert outcome.survivors == tuple(range(6))
    else:
        scene.finish()


@every_stage
def test_a_step_verifies_what_was_not_checked(stage, verified):
    scene = Scene().until(stage)
    replies = scene.answers()
    checked(scene, {0: replies[0], 1: replies[1]})
    verified.clear()
    scene.server.step(replies)
    assert sorted(set(verified)) == [key.public for key in KEYS[2:6]]


@every_stage
def test_another_reply_than_the_checked_one_is_verified(stage, verified):
    scene = Scene().until(stage)
    replies = scene.answers()
    checked(scene, replies)
    forged = changed(Envelope.from_bytes(replies[1]), signature=bytes(64)).to_bytes()
    verified.clear()
    with waiting_for_votes(scene, stage):
        scene.server.step(replies | {1: forged})
        assert scene.server.refused.keys() == {1}
    assert verified == [KEYS[1].public]


def test_a_second_reply_that_passes_leaves_the_first_one_checked(verified):
    """Which of two files of one member counts is not for the check to say."""
    scene = Scene()
    replies = scene.answers()
    other = scene.reply(1, scene.said(0))
    scene.server.check(1, replies[1])
    scene.server.check(1, other)
    verified.clear()
    scene.server.step(replies)
    assert KEYS[1].public not in verified
    again = Scene()
    again.server.check(1, replies[1])
    verified.clear()
    again.server.step(replies | {1: other})
    assert KEYS[1].public in verified


def test_a_step_that_fails_forgets_what_was_checked(verified):
    scene = Scene()
    replies = scene.answers()
    checked(scene, replies)
    with pytest.raises(CohortTooSmall):
        scene.server.step({0: replies[0]})
    verified.clear()
    scene.server.step(replies)
    assert len(verified) == len(replies)
    scene.finish()


@pytest.mark.parametrize("stage", [*Stage][1:])
def test_a_check_does_not_reach_into_the_next_stage(stage):
    scene = Scene().until(stage - 1)
    late = scene.answers()
    scene.server.check(1, late[1])
    scene.step()
    match = f"a message of stage {stage - 1} came where {stage:d} is due."
    with waiting_for_votes(scene, stage):
        scene.server.step(scene.answers() | {1: late[1]})
        assert scene.server.refused[1] == match


@every_stage
def test_nothing_that_was_checked_is_stored(stage):
    scene = Scene().until(stage)
    before = scene.server.to_bytes()
    checked(scene, scene.answers())
    assert scene.server.to_bytes() == before
