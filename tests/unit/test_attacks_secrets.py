"""Attacks on secrets of secure summation: guessing them, and putting together what is known."""

import itertools
import os

import numpy as np
import pytest
import scipy.stats
from masks import public_key, stripped
from scene import VICTIM, Scene

from fedgauge import Axis, Cohort, EvaluationPlan
from fedgauge.protocol import Envelope
from fedgauge.secagg import Stage, crypto
from fedgauge.secagg import boxes as boxes_module
from fedgauge.secagg.messages import (
    Masked,
)
from fedgauge.secagg.shamir import join, share_from_bytes

# Guessing keys


def test_secrets_are_32_bytes_of_the_operating_system(monkeypatch):
    """Masks from short seeds can be guessed: a mask of 28 bits takes seconds."""
    given = []

    def urandom(size, real=os.urandom):
        given.append(real(size))
        return given[-1]

    monkeypatch.setattr(os, "urandom", urandom)
    scene = Scene().until(Stage.MASK)
    found = [
        scene.secrets(m)[name] for m in range(6) for name in ("mask_key", "box_key", "own_mask")
    ]
    assert {len(secret) for secret in found} == {32}
    assert set(found) <= set(given)
    assert len(set(found)) == len(found)


def test_every_bit_of_a_secret_matters():
    """A key derived from a part of the shared secret is as weak as that part."""
    secret = int.from_bytes(os.urandom(32), "big")
    derived = {crypto.derive(secret.to_bytes(32, "big"), session=b"s", purpose=b"p")}
    for bit in range(256):
        other = (secret ^ 1 << bit).to_bytes(32, "big")
        derived.add(crypto.derive(other, session=b"s", purpose=b"p"))
    assert len(derived) == 257
    assert {len(key) for key in derived} == {32}


def test_masks_are_the_whole_secrets_and_nothing_else():
    """Written down a second time, from X25519, HKDF and AES-256-CTR alone."""
    scene = Scene().until(Stage.MASK)
    secrets = [scene.secrets(m) for m in range(6)]
    for member in range(6):
        pairs = [
            (other, secrets[member]["mask_key"], public_key(secrets[other]["mask_key"]))
            for other in range(6)
            if other != member
        ]
        own = secrets[member]["own_mask"]
        found = stripped(scene.said(member).words, member, scene.session, own=own, pairs=pairs)
        np.testing.assert_array_equal(found, scene.duties[member].values)


def test_no_key_serves_two_purposes_pairs_or_sessions(monkeypatch):
    """Even if all members of two sessions had the same keys, no derived key would repeat.

    Otherwise the difference of two inputs under one mask would be in the open.
    """
    masks, boxes = [], []
    real_mask, real_seal = crypto.mask, crypto.seal

    def mask(key, *args):
        masks.append(key)
        return real_mask(key, *args)

    def seal(key, *args):
        boxes.append(key)
        return real_seal(key, *args)

    monkeypatch.setattr(crypto, "mask", mask)
    monkeypatch.setattr(boxes_module, "seal", seal)
    monkeypatch.setattr(os, "urandom", lambda size: b"\x5a" * size)
    for run in (b"1" * 32, b"2" * 32):
        Scene(run=run).until(Stage.AGREE)
    # In each session 30 boxes, 15 pairs' masks, each used by two, and own masks: those are
    # equal here because the members' randomness is.
    assert len(boxes) == len(set(boxes)) == 2 * 30
    assert len(masks) == 2 * (30 + 6)
    assert len(set(masks)) == 2 * (15 + 1)
    assert not set(masks) & set(boxes)


def test_masked_inputs_look_uniform_and_unrelated():
    """Equal contributions, all zeros, must not show; false alarms: 1 in 10^7."""
    plan = EvaluationPlan.for_histogram(Axis.uniform(8192), Cohort(4, 1), largest=1000)
    scene = Scene(plan)
    for duty in scene.duties:
        duty.values = np.zeros(plan.numbers, dtype=np.int64)
    scene.until(Stage.MASK)
    replies = scene.answers()
    words = [Masked.from_bytes(Envelope.from_bytes(replies[m]).body).words for m in range(6)]
    words = [np.frombuffer(data, dtype="<u4") for data in words]
    seen = [*words, *(one - other for one, other in itertools.combinations(words, 2))]
    for array in seen:
        counts = np.bincount(array.view(np.uint8), minlength=256)
        assert scipy.stats.chisquare(counts).pvalue > 1e-7 / len(seen)


# What the server and its colluders know is not enough


def held_shares(scene, holders, about):
    """Shares of a member's own mask and of its key, as their holders have them."""
    held = {h: scene.secrets(h)["held"][about] for h in holders}
    return [{h + 1: share_from_bytes(pair[kind]) for h, pair in held.items()} for kind in (0, 1)]


def test_fewer_holders_than_the_threshold_learn_nothing():
    """Three of four: interpolating gives other numbers, four give the secret."""
    scene = Scene().until(Stage.AGREE)
    for member in range(6):
        scene.clients[member].receive(scene.server.requests[member])
    secrets = scene.secrets(VICTIM)
    real = [int.from_bytes(secrets[name], "little") for name in ("own_mask", "mask_key")]
    for holders in itertools.combinations((0, 1, 3, 4, 5), 4):
        for shares, secret in zip(held_shares(scene, holders, VICTIM), real, strict=True):
            assert join(shares) == secret
            for fewer in itertools.combinations(shares, 3):
                assert join({point: shares[point] for point in fewer}) != secret


@pytest.mark.parametrize("late", [False, True], ids=["in the sum", "left out"])
def test_a_single_input_stays_hidden_after_the_sum_is_opened(late):
    """The server, colluder 0 and all that is opened, about a victim in the sum or left out.

    Member 5 drops out before its input. The victim's own input is left out of the sum where
    it comes too late: the server has it all the same.
    """
    scene = Scene(silent={5: Stage.MASK}).until(Stage.MASK)
    secrets = [scene.secrets(m) for m in range(6)]
    words = scene.said(VICTIM).words
    if late:
        scene.silent[VICTIM] = Stage.MASK
    scene.until(Stage.OPEN)
    openings = {m: scene.opening(reply) for m, reply in scene.answers().items()}
    threshold = scene.invitation.graph.threshold

    def recovered(kind, member):
        shares = {
            holder + 1: share_from_bytes(part.share)
            for holder, opening in openings.items()
            for part in getattr(opening, kind)
            if part.member == member
        }
        if len(shares) < threshold:
            assert not shares
            return None
        return join(dict(list(shares.items())[:threshold])).to_bytes(32, "little")

    own = recovered("masks", VICTIM)
    key = recovered("keys", VICTIM)
    assert (own, key) == (
        (None, secrets[VICTIM]["mask_key"]) if late else (secrets[VICTIM]["own_mask"], None)
    )
    known = {0: secrets[0]["mask_key"], 5: recovered("keys", 5)}
    assert known[5] == secrets[5]["mask_key"]
    public = [public_key(secret["mask_key"]) for secret in secrets]
    if late:  # with the victim's key every pair's mask is known
        pairs = [(m, key, public[m]) for m in (0, 1, 3, 4, 5)]
        missing = {"own": secrets[VICTIM]["own_mask"]}
    else:
        pairs = [(m, known[m], public[VICTIM]) for m in known]
        missing = {"own": own}
    values = scene.duties[VICTIM].values
    rest = stripped(words, VICTIM, scene.session, own=own, pairs=pairs)
    # Not one of four words is right but by chance: 4 in 2^32.
    assert not (rest == values).any()
    # What is missing is exactly the masks that nobody told.
    if not late:
        pairs += [(m, secrets[m]["mask_key"], public[VICTIM]) for m in (1, 3, 4)]
    rest = stripped(words, VICTIM, scene.session, pairs=pairs, **missing)
    np.testing.assert_array_equal(rest, values)
    scene.finish()
