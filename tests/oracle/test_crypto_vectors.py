"""The primitives of secure summation, against the vectors published with their standards."""

import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from refusals import refused

from fedgauge.errors import ProtocolError
from fedgauge.secagg import masking

raw = bytes.fromhex
# RFC 7748, section 5.2: scalar, u-coordinate, result.
X25519 = [
    (
        "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
        "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
        "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
    ),
    (
        "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
        "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
        "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
    ),
]
# RFC 7748, section 5.2: after so many rounds of k, u = X25519(k, u), k from the base point.
ITERATED = {
    1: "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079",
    1000: "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51",
}
# RFC 7748, section 6.1: private and public keys of Alice and Bob, and what they share.
ALICE = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
ALICE_PUBLIC = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
BOB = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
BOB_PUBLIC = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
SHARED = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
# Points of order 1, 2, 4 and 8 on the curve and its twist (Bernstein, cr.yp.to/ecdh.html):
# 0, 1, the two of order 8, and p - 1, p, p + 1.
SMALL_ORDER = [
    "00" * 32,
    "01" + "00" * 31,
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ec" + "ff" * 30 + "7f",
    "ed" + "ff" * 30 + "7f",
    "ee" + "ff" * 30 + "7f",
]
# RFC 5869, appendix A.1 to A.3: secret, salt, info, output.
HKDF = [
    (
        "0b" * 22,
        "000102030405060708090a0b0c",
        "f0f1f2f3f4f5f6f7f8f9",
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
    ),
    (
        bytes(range(0x00, 0x50)).hex(),
        bytes(range(0x60, 0xB0)).hex(),
        bytes(range(0xB0, 0x100)).hex(),
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
        "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71"
        "cc30c58179ec3e87c14c01d5c1f3434f1d87",
    ),
    (
        "0b" * 22,
        "",
        "",
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
    ),
]
# NIST SP 800-38A, F.5.5 (CTR-AES256.Encrypt).
CTR_KEY = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"
CTR_COUNTER = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
CTR_PLAIN = (
    "6bc1bee22e409f96e93d7e117393172a"
    "ae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52ef"
    "f69f2445df4f9b17ad2b417be66c3710"
)
CTR_CIPHER = (
    "601ec313775789a5b7a7f504bbf3d228"
    "f443e3ca4d62b59aca84e990cacaf5c5"
    "2b0930daa23de94ce87017ba2d84988d"
    "dfc9c58db67aada613c2dd08457941a6"
)
# McGrew and Viega, "The Galois/Counter Mode of Operation", test cases 13 and 14: AES-256,
# key and nonce zero, nothing else authenticated.
GCM = [
    ("", "530f8afbc74536b9a963b4f1c4cb738b"),
    ("00" * 16, "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"),
]


@pytest.mark.parametrize(("scalar", "point", "result"), X25519)
def test_x25519(scalar, point, result):
    assert masking.AgreementKey(raw(scalar)).agree(raw(point)) == raw(result)


def test_x25519_once_and_iterated():
    alice, bob = masking.AgreementKey(raw(ALICE)), masking.AgreementKey(raw(BOB))
    assert (alice.public, bob.public) == (raw(ALICE_PUBLIC), raw(BOB_PUBLIC))
    assert alice.agree(bob.public) == bob.agree(alice.public) == raw(SHARED)
    k = u = bytes([9]) + bytes(31)
    for step in range(1, 1001):
        k, u = masking.AgreementKey(k).agree(u), k
        if step in ITERATED:
            assert k == raw(ITERATED[step])


def test_a_private_key_is_not_shown():
    shown = repr(masking.AgreementKey(raw(ALICE)))
    assert ALICE_PUBLIC[:8] in shown
    assert not any(ALICE[i : i + 8] in shown for i in range(len(ALICE) - 8))


@pytest.mark.parametrize("top_bit", [0, 0x80])
@pytest.mark.parametrize("point", SMALL_ORDER)
def test_points_of_small_order_are_refused(point, top_bit):
    # X25519 ignores the highest bit, so with it these are the same points.
    public = raw(point)[:31] + bytes([raw(point)[31] | top_bit])
    refused(ProtocolError, "public key", masking.AgreementKey(raw(ALICE)).agree, public)


@pytest.mark.parametrize("length", [0, 1, 31, 33, 64])
def test_public_keys_of_another_length_are_refused(length):
    with pytest.raises(ProtocolError, match="public key"):
        masking.AgreementKey(raw(ALICE)).agree(raw(BOB_PUBLIC * 2)[:length])


@pytest.mark.parametrize(("secret", "salt", "info", "output"), HKDF)
def test_hkdf(secret, salt, info, output):
    derived = masking.hkdf(raw(secret), salt=raw(salt), info=raw(info), length=len(raw(output)))
    assert derived == raw(output)


def test_derived_keys_are_hkdf_with_the_session_as_salt_and_depend_on_each_input():
    expected = masking.hkdf(b"secret", salt=b"session", info=b"fedgauge purpose", length=32)
    assert masking.derive(b"secret", session=b"session", purpose=b"purpose") == expected
    choices = itertools.product(
        [b"\0" * 32, b"\0" * 31 + b"\1"], [b"s" * 32, b"t" * 32], [b"box 1 2", b"box 2 1"]
    )
    keys = {masking.derive(one, session=two, purpose=three) for one, two, three in choices}
    assert len(keys) == 8
    assert {len(key) for key in keys} == {32}


def test_no_two_pairs_have_one_name():
    numbers = [0, 1, 2, 9, 10, 11, 12, 20, 21, 99, 100, 111, 112, 1112]
    assert len({masking.pair(a, b) for a in numbers for b in numbers}) == len(numbers) ** 2


def test_aes_ctr():
    sealed = masking.aes_ctr(raw(CTR_KEY), raw(CTR_COUNTER), raw(CTR_PLAIN))
    assert sealed == raw(CTR_CIPHER)


@pytest.mark.parametrize(("bits", "kind"), [(32, "<u4"), (64, "<u8")])
@pytest.mark.parametrize("length", [0, 1, 3, 1000])
def test_a_mask_is_the_keystream_from_counter_zero(bits, kind, length):
    cipher = Cipher(algorithms.AES(raw(CTR_KEY)), modes.CTR(bytes(16)))
    stream = cipher.encryptor().update(bytes(length * bits // 8))
    mask = masking.mask(raw(CTR_KEY), length, bits)
    assert mask.dtype == np.dtype(kind)
    numbers = [stream[i : i + bits // 8] for i in range(0, len(stream), bits // 8)]
    assert mask.tolist() == [int.from_bytes(number, "little") for number in numbers]


def test_masks_use_every_bit():
    # Each bit of a word is the same in all of 1000 words with a chance of 2^-999.
    for bits in (32, 64):
        mask = masking.mask(raw(CTR_KEY), 1000, bits)
        assert int(np.bitwise_or.reduce(mask)) == 2**bits - 1
        assert int(np.bitwise_and.reduce(mask)) == 0


@pytest.mark.parametrize(("plain", "sealed"), GCM)
def test_boxes_are_aes_gcm_after_their_nonce(plain, sealed, monkeypatch):
    key, nonce = bytes(32), bytes(12)
    assert masking.unseal(key, nonce + raw(sealed), b"") == raw(plain)
    monkeypatch.setattr(masking.os, "urandom", bytes)
    assert masking.seal(key, raw(plain), b"") == nonce + raw(sealed)


KEY, PLAIN, ABOUT = raw(CTR_KEY), b"two shares", b"session, from, to"
BOX = masking.seal(KEY, PLAIN, ABOUT)


def test_a_box_opens_in_one_way_and_no_two_have_the_same_nonce():
    assert masking.unseal(KEY, BOX, ABOUT) == PLAIN
    assert PLAIN not in BOX
    boxes = [b"", BOX[:-1], BOX[1:], BOX[:15], BOX[-16:], BOX + b"\0"]
    others = [(KEY, box, ABOUT) for box in boxes]
    topics = [b"", ABOUT[:-1], ABOUT + b"\0", b"session, to, from"]
    others += [(KEY, BOX, about) for about in topics]
    keys = [bytes(32), KEY[:-1] + b"\0", KEY[::-1], b"", KEY[:-1]]
    for key, box, about in [*others, *((key, BOX, ABOUT) for key in keys)]:
        refused(ProtocolError, "box", masking.unseal, key, box, about)
    boxes = [masking.seal(bytes(32), b"share", b"") for _ in range(100)]
    assert len({box[:12] for box in boxes}) == 100


def test_an_altered_box_does_not_open():
    for bit in range(8 * len(BOX)):
        altered = bytearray(BOX)
        altered[bit // 8] ^= 1 << bit % 8
        refused(ProtocolError, "box", masking.unseal, KEY, bytes(altered), ABOUT)


def test_a_commitment_depends_on_secret_and_session():
    pairs = itertools.product([b"\0" * 32, b"\1" + b"\0" * 31], [b"s" * 32, b"t" * 32])
    told = {masking.commitment(secret, session) for secret, session in pairs}
    assert len(told) == 4
    assert {len(digest) for digest in told} == {32}
