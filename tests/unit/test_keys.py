"""Keys sign as RFC 8032 says, have one text form, and stay with their owner."""

import base64
import hashlib
import itertools
import os
import pickle
import re
import stat
import string
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

import fedgauge
from fedgauge import SiteError, storage
from fedgauge.engines import simulation
from fedgauge.keys import SigningKey, is_anybodys, key_from_text, key_to_text, verify
from fedgauge.privacy import DistributedDP, keystream
from fedgauge.privacy.keystream import KeptKeystream, Keystream, SimulatedKeystream

# RFC 8032, section 7.1: TEST 1, TEST 2, TEST 3, TEST SHA(abc).
VECTORS = {
    "empty": (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        b"",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9"
        "b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    "one byte": (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        b"\x72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f1"
        "1d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    "two bytes": (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        b"\xaf\x82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984d"
        "c6594a7c15e9716ed28dc027beceea1ec40a",
    ),
    "SHA-512 of abc": (
        "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        hashlib.sha512(b"abc").digest(),
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431"
        "e0303dca179c138ac17ad9bef1177331a704",
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_signatures_are_those_of_rfc_8032(name):
    secret, public, message, signature = VECTORS[name]
    key = SigningKey.from_bytes(bytes.fromhex(secret))
    assert key.public.hex() == public
    assert key.sign(message).hex() == signature
    assert verify(bytes.fromhex(public), message, bytes.fromhex(signature))


def test_any_change_breaks_a_signature_and_junk_is_none():
    key, message = SigningKey.from_bytes(bytes(range(32))), b"session"
    signature = key.sign(message)
    assert len(signature) == 64
    for place in range(64):
        changed = bytearray(signature)
        changed[place] ^= 1
        assert not verify(key.public, message, bytes(changed))
    assert not verify(key.public, message + b"\0", signature)
    assert not verify(SigningKey.generate().public, message, signature)
    for public in (b"", b"x", bytes(31), bytes(33), b"\xff" * 32, bytes(32)):
        for signature in (b"", bytes(63), bytes(65), b"\xff" * 64):
            assert verify(public, b"message", signature) is False
    assert len({SigningKey.generate().public for _ in range(20)}) == 20
    for size in (0, 31, 33, 64):
        refused(SiteError, "32 bytes", SigningKey.from_bytes, bytes(size))
    refused(SiteError, "32 bytes", key_to_text, bytes(31))


def test_text_and_back():
    for _ in range(20):
        public = SigningKey.generate().public
        text = key_to_text(public)
        assert text.startswith("ed25519:")
        assert len(text) == 8 + 48
        assert key_from_text(text) == public


GOOD = key_to_text(bytes(range(32)))


@pytest.mark.parametrize(
    "text",
    {
        "nothing": "",
        "prefix alone": "ed25519:",
        "no prefix": GOOD.removeprefix("ed25519:"),
        "other prefix": GOOD.replace("ed25519", "x25519"),
        "prefix twice": "ed25519:" + GOOD,
        "upper case": GOOD.upper(),
        "padded": GOOD + "=",
        "too short": GOOD[:-1],
        "too long": GOOD + "A",
        "newline": GOOD + "\n",
        "space": " " + GOOD,
        "space inside": GOOD[:20] + " " + GOOD[20:],
        "skipped letters": GOOD[:20] + "!" + GOOD[20:],
        "other alphabet": "ed25519:" + "+" * 48,
        "without a checksum": "ed25519:" + "A" * 43,
        "not ASCII": GOOD[:-1] + "é",
        "secret": "ed25519-secret:" + GOOD.removeprefix("ed25519:"),
    }.items(),
    ids=lambda item: item[0],
)
def test_only_the_canonical_text_is_a_key(text):
    refused(SiteError, "public key", key_from_text, text[1])


def test_the_text_of_a_key_is_fixed():
    """So that keys printed by one version are read by the next."""
    whole = bytes(range(32)) + hashlib.sha256(b"ed25519:" + bytes(range(32))).digest()[:4]
    assert "ed25519:" + base64.urlsafe_b64encode(whole).decode() == GOOD


def test_one_wrong_letter_or_two_swapped_are_no_key():
    """All that one slip of the hand can make of a key: 48 places, 63 other letters, and swaps."""
    prefix, letters = "ed25519:", string.ascii_letters + string.digits + "-_"
    body = GOOD.removeprefix(prefix)
    slips = {body[:at] + other + body[at + 1 :] for at in range(48) for other in letters}
    for one, other in itertools.combinations(range(48), 2):
        swapped = list(body)
        swapped[one], swapped[other] = swapped[other], swapped[one]
        slips.add("".join(swapped))
    slips.discard(body)
    assert len(slips) > 48 * 63
    for slip in slips:
        refused(SiteError, "its checksum differs. Copy the whole", key_from_text, prefix + slip)


def test_a_key_file_is_the_owners_alone_and_never_overwritten(tmp_path):
    path = tmp_path / "site.key"
    before = os.umask(0)
    try:
        key = SigningKey.generate()
        key.save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SigningKey.load(path).public == key.public
    assert SigningKey.load(str(path)).sign(b"m") == key.sign(b"m")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for taken in (path, tmp_path / "link"):
        refused(SiteError, "never overwritten", SigningKey.generate().save, taken)
    assert SigningKey.load(path).public == key.public
    assert not (tmp_path / "elsewhere").exists()


def test_a_key_that_others_may_use_is_refused(tmp_path):
    path = tmp_path / "site.key"
    SigningKey.generate().save(path)
    for mode in (0o644, 0o640, 0o604, 0o620, 0o610, 0o602, 0o601, 0o666):
        path.chmod(mode)
        refused(SiteError, "chmod 600", SigningKey.load, path)
    path.chmod(0o400)  # it may be read-only
    SigningKey.load(path)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\n", b"x" * 32, bytes(32), GOOD.encode(), b"\xff\xfe", b"ed25519-secret:"),
        *(b"A" * 5000, b"ed25519-secret:almost-a-key\n"),
        *(lambda good: good[:-5], lambda good: good + b"\n", lambda good: good + b"x" * 500),
    ],
    ids=range(12),
)
def test_other_and_damaged_files_are_no_keys_and_not_quoted(tmp_path, content):
    SigningKey.generate().save(tmp_path / "good")
    path = tmp_path / "bad"
    storage.write_new(
        path, content((tmp_path / "good").read_bytes()) if callable(content) else content
    )
    with pytest.raises(SiteError, match="not a site's private key") as caught:
        SigningKey.load(path)
    assert "almost" not in str(caught.value)


def test_a_key_file_is_missing_or_cannot_be_kept(tmp_path, monkeypatch):
    refused(SiteError, "site init", SigningKey.load, tmp_path / "none")
    refused(SiteError, "site init", SigningKey.load, tmp_path)
    with pytest.raises(SiteError, match="cannot write key"):
        SigningKey.generate().save(tmp_path / "none" / "site.key")

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", fail)
    refused(SiteError, "No space left", SigningKey.generate().save, tmp_path / "site.key")
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_not_shown_nor_pickled():
    raw = bytes(range(32))
    key = SigningKey.from_bytes(raw)
    secret = key_to_text(raw).removeprefix("ed25519:")[:42]
    shown = repr(key) + str(key)
    assert key_to_text(key.public) in shown
    assert secret not in shown
    assert raw.hex() not in shown
    with pytest.raises(TypeError):
        pickle.dumps(key)


def test_keys_that_anybody_can_sign_with_are_refused():
    """All points of small order, computed here, in every form that a key can have."""
    prime, order = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
    d = -121665 * pow(121666, -1, prime)

    def add(one, other):
        (x1, y1), (x2, y2) = one, other
        k = d * x1 * x2 * y1 * y2
        x = (x1 * y2 + x2 * y1) * pow(1 + k, -1, prime) % prime
        return x, (y1 * y2 + x1 * x2) * pow(1 - k, -1, prime) % prime

    def times(factor, point):
        total = (0, 1)
        for bit in f"{factor:b}":
            total = add(total, total)
            total = add(total, point) if bit == "1" else total
        return total

    # Any point of the curve, times the order of its large part, is one of small order.
    points = {(0, 1)}
    for y in range(2, 40):
        square = (y * y - 1) * pow(d * y * y + 1, -1, prime) % prime
        root = pow(square, (prime + 3) // 8, prime)
        roots = (root, root * pow(2, (prime - 1) // 4, prime) % prime)
        points |= {times(order, (x, y)) for x in roots if x * x % prime == square}
    ys = {y for _, y in points}
    assert len(ys) == 5
    forms = [value for y in ys for value in (y, y + prime) if value < 1 << 255]
    for value in (value | sign for value in forms for sign in (0, 1 << 255)):
        assert is_anybodys(value.to_bytes(32, "little"))
    assert not any(is_anybodys(SigningKey.generate().public) for _ in range(100))


CLIENTS = {name: ([0, 1], [0.2, 0.8]) for name in "abc"}
SOURCES = sorted(Path(keystream.__file__).parent.glob("*.py"))


def test_words_fill_64_bits_and_repeat_by_seed():
    words = SimulatedKeystream(1).words(1000)
    assert (words.dtype, words.shape) == (np.uint64, (1000,))
    assert np.bitwise_or.reduce(words) == np.uint64(2**64 - 1)
    assert np.bitwise_and.reduce(words) == 0
    assert len(np.unique(words)) == 1000
    for parts in ((8,), (3, 5), (1,) * 8, (0, 7, 0, 1)):
        pieces = SimulatedKeystream(1)
        read = np.concatenate([pieces.words(count) for count in parts])
        assert read.tolist() == words[:8].tolist()
    same = [SimulatedKeystream(5).words(16).tolist() for _ in range(2)]
    assert same[0] == same[1]
    assert len({tuple(SimulatedKeystream(seed).words(4).tolist()) for seed in range(50)}) == 50


def test_a_keystream_has_a_key_of_its_own_by_the_operating_system_and_takes_no_seed(monkeypatch):
    drawn = {tuple(Keystream().words(4).tolist()) for _ in range(50)}
    assert len(drawn) == 50
    asked = []
    monkeypatch.setattr(keystream.os, "urandom", lambda size: asked.append(size) or bytes(size))
    first, second = Keystream(), Keystream()
    assert asked == [32, 32]
    assert first.words(4).tolist() == second.words(4).tolist()
    with pytest.raises(TypeError):
        Keystream(1)


def test_without_a_seed_an_evaluation_never_simulates_its_words(monkeypatch):
    def refuse(seed):
        raise AssertionError(seed)

    monkeypatch.setattr(simulation, "SimulatedKeystream", refuse)
    privacy = DistributedDP(1.0)
    fedgauge.evaluate(CLIENTS, privacy=privacy, tree=(2,))
    with pytest.raises(AssertionError):
        fedgauge.evaluate(CLIENTS, privacy=privacy, tree=(2,), seed=1)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_privacy_has_no_other_randomness(source):
    # os.urandom is the keystream's alone; ordinary generators are nobody's.
    text = source.read_text()
    wrong = r"default_rng|np\.random|numpy\.random|^\s*(import|from) (random|secrets)\b"
    assert re.search(wrong, text, flags=re.MULTILINE) is None
    assert ("urandom" in text) == (source.stem == "keystream")


def test_words_of_a_secret_take_a_secret():
    refused(ValueError, "32 bytes or more", KeptKeystream, bytes(31), b"purpose")
    drawn = {
        tuple(KeptKeystream(secret * 32, purpose).words(4).tolist())
        for secret in (b"a", b"b")
        for purpose in (b"noise on 1", b"noise on 2")
        for _ in range(2)
    }
    assert len(drawn) == 4
