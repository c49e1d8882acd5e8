"""Keys, masks and sealed boxes of a secure summation, and integers that wrap by design.

All keys have 256 bits, come from the operating system or from a key agreement, and are derived for
one purpose, one pair and one session.
"""

import hashlib
import os
from typing import Any, Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from fedgauge.errors import CountOverflow, PlanError, ProtocolError

Words = NDArray[Any]
_TYPES: Final[dict[int, np.dtype[Any]]] = {32: np.dtype("<u4"), 64: np.dtype("<u8")}
_SIGNED: Final[dict[int, np.dtype[Any]]] = {32: np.dtype("<i4"), 64: np.dtype("<i8")}


def word_type(bits: int) -> np.dtype[Any]:
    """The unsigned type of a word."""
    return _TYPES[bits]


def word_bits(members: int, most: int) -> int:
    """The shortest word in which no sum over `members` values in [-most, most] wraps.

    Words of b bits hold [-2^(b-1), 2^(b-1) - 1], read as signed numbers.
    """
    for bits in _TYPES:
        if members * most < 2 ** (bits - 1):
            return bits
    raise PlanError(
        f"sums over {members:,} clients of counts up to {most:,} do not fit 64 bits. "
        "Lower the plan's largest count."
    )


def encode(values: NDArray[np.int64], most: int, bits: int) -> Words:
    """Signed values as words; refused when one is larger than the plan allows."""
    check_size(values, most)
    return values.astype(_SIGNED[bits]).view(_TYPES[bits])


def check_size(values: NDArray[np.int64], most: int) -> None:
    """Refuse values larger than the plan allows."""
    if values.size and max(int(values.max()), -int(values.min())) > most:
        raise CountOverflow(
            f"a count of this client is larger than the {most:,} that the plan allows. "
            "Ask the coordinator for a plan with a higher largest count."
        )


def decode(words: Words, bits: int) -> NDArray[np.int64]:
    """The signed values that words stand for."""
    return words.view(_SIGNED[bits]).astype(np.int64)


def from_bytes(data: bytes, length: int, bits: int) -> Words:
    """Words as sent."""
    if len(data) != length * bits // 8:
        raise ProtocolError("a masked input does not have the length that the plan asks for.")
    return np.frombuffer(data, dtype=_TYPES[bits])


KEY_BYTES: Final = 32
COMMITMENT_BYTES: Final = 32
_NONCE_BYTES: Final = 12
SEAL_BYTES: Final = _NONCE_BYTES + 16  # what sealing adds: the nonce and a tag


class AgreementKey:
    """An X25519 key pair."""

    def __init__(self, private: bytes) -> None:
        self._private = X25519PrivateKey.from_private_bytes(private)
        self.public = self._private.public_key().public_bytes_raw()

    @property
    def private(self) -> bytes:
        """The secret half."""
        return self._private.private_bytes_raw()

    def __repr__(self) -> str:
        return f"<AgreementKey with public {self.public.hex()[:8]}>"

    def agree(self, public: bytes) -> bytes:
        """The secret shared with the holder of the other key."""
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            # Not 32 bytes, or a point of small order: the secret would be known to all.
            raise ProtocolError(
                "a public key is not one that a secret can be agreed with."
            ) from None


def derive(secret: bytes, *, session: bytes, purpose: bytes) -> bytes:
    """A 256-bit key for one purpose in one session (HKDF-SHA256)."""
    return hkdf(secret, salt=session, info=b"fedgauge " + purpose, length=KEY_BYTES)


def hkdf(secret: bytes, *, salt: bytes, info: bytes, length: int) -> bytes:
    """HKDF with SHA-256 (RFC 5869)."""
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(secret)


def pair(one: int, other: int) -> bytes:
    """A name for an ordered pair of members."""
    return b"%d %d" % (one, other)


def mask(key: bytes, length: int, bits: int) -> Words:
    """`length` uniform words: the keystream of AES-256-CTR from counter zero."""
    stream = aes_ctr(key, bytes(16), bytes(length * bits // 8))
    return np.frombuffer(stream, dtype=word_type(bits))


def aes_ctr(key: bytes, counter: bytes, data: bytes) -> bytes:
    """AES in counter mode."""
    return Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor().update(data)


def seal(key: bytes, plain: bytes, about: bytes) -> bytes:
    """Encrypt (AES-256-GCM, fresh nonce in front); `about` is authenticated with it."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, about)


def unseal(key: bytes, box: bytes, about: bytes) -> bytes:
    """The inverse of :func:`seal`."""
    try:
        return AESGCM(key).decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], about)
    except (InvalidTag, ValueError):
        raise ProtocolError(
            "a box of shares was not made for whom it came to, by its sender."
        ) from None


def commitment(secret: bytes, session: bytes) -> bytes:
    """A digest that binds its maker to a 256-bit secret without telling it."""
    return hashlib.sha256(b"fedgauge commitment\0" + session + secret).digest()
