"""Shamir's secret sharing of 256-bit secrets, and the sealed boxes in which shares travel."""

import hashlib
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from fedgauge.errors import ProtocolError
from fedgauge.secagg.masking import KEY_BYTES, SEAL_BYTES, AgreementKey, derive, pair, seal, unseal

PRIME: Final = 2**256 + 297  # the smallest above 2^256, so that every 32-byte secret fits
SECRET_BYTES: Final = 32
SHARE_BYTES: Final = 33


def split(
    secret: int,
    holders: Sequence[int],
    threshold: int,
    *,
    prime: int = PRIME,
    random_below: Callable[[int], int] = secrets.randbelow,
) -> dict[int, int]:
    """Shares of a secret for holders named by distinct points from 1 to ``prime - 1``.

    Values of a polynomial with the secret as constant term and ``threshold - 1`` uniform
    coefficients. `prime` and `random_below` are there to enumerate the law over a small field.
    """
    if not 1 <= threshold <= len(holders):
        raise ProtocolError("a secret needs at least as many holders as its threshold.")
    if len(set(holders)) != len(holders) or not all(0 < point < prime for point in holders):
        raise ProtocolError("holders of shares must be distinct points above zero.")
    if not 0 <= secret < prime:
        raise ProtocolError("a secret must lie in the field.")
    coefficients = [random_below(prime) for _ in range(threshold - 1)]
    shares = {}
    for point in holders:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value + coefficient) * point % prime
        shares[point] = (value + secret) % prime
    return shares


def join(shares: Mapping[int, int], *, prime: int = PRIME) -> int:
    """The secret behind at least `threshold` shares; fewer give an unrelated number."""
    points = tuple(shares)
    weights = _weights(points, prime)
    return (
        sum(weight * shares[point] for weight, point in zip(weights, points, strict=True)) % prime
    )


@lru_cache(maxsize=4096)
def _weights(points: tuple[int, ...], prime: int) -> tuple[int, ...]:
    """Lagrange weights at zero, with one inversion for all of them."""
    # Points are small, so products of dozens of them are cheaper than reducing at each step.
    whole = math.prod(points)
    below = [
        point * math.prod([other - point for other in points if other != point]) % prime
        for point in points
    ]
    return tuple(whole * inverse % prime for inverse in _inverses(below, prime))


def _inverses(numbers: Sequence[int], prime: int) -> list[int]:
    # Montgomery's trick: invert the product, then peel off one factor at a time.
    prefix = [1]
    for number in numbers:
        prefix.append(prefix[-1] * number % prime)
    rest = pow(prefix[-1], -1, prime)
    inverses = []
    for before, number in zip(reversed(prefix[:-1]), reversed(numbers), strict=True):
        inverses.append(before * rest % prime)
        rest = rest * number % prime
    return inverses[::-1]


def secret_to_int(secret: bytes) -> int:
    """A 32-byte secret as a field element."""
    return int.from_bytes(secret, "little")


def secret_from_int(number: int) -> bytes:
    """The inverse of :func:`secret_to_int`."""
    try:
        return number.to_bytes(SECRET_BYTES, "little")
    except OverflowError:
        raise ProtocolError("shares do not belong together.") from None


def share_to_bytes(share: int) -> bytes:
    """A share as sent."""
    return share.to_bytes(SHARE_BYTES, "little")


def share_from_bytes(data: bytes) -> int:
    """The inverse of :func:`share_to_bytes`."""
    share = int.from_bytes(data, "little")
    if len(data) != SHARE_BYTES or share >= PRIME:
        raise ProtocolError("a share is not an element of the field.")
    return share


DIGEST_BYTES: Final = 32
_SEALED_BYTES: Final = 2 * SHARE_BYTES + SEAL_BYTES


class Kind(IntEnum):
    """What a share is of: a member's own mask, or the key of its masks with others."""

    MASK = 0
    KEY = 1


class SharePair(NamedTuple):
    """What a holder is dealt: a share of each secret."""

    mask: bytes
    key: bytes

    def checks(self, session: bytes, dealer: int, holder: int) -> bytes:
        """Digests of both shares, by which each can be recognised later."""
        kinds = zip(Kind, self, strict=True)
        return b"".join(_check(share, kind, session, dealer, holder) for kind, share in kinds)


class Box(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Two sealed shares, on their way to or from a member; `checks` are digests of them."""

    member: int
    key: bytes
    sealed: bytes
    checks: bytes

    @classmethod
    def made(
        cls,
        shares: SharePair,
        key: AgreementKey,
        theirs: bytes,
        session: bytes,
        dealer: int,
        holder: int,
    ) -> "Box":
        """Seal shares with the key of this box for the holder of a public key."""
        about = b"box " + pair(dealer, holder)
        sealed_with = derive(key.agree(theirs), session=session, purpose=about)
        sealed = seal(sealed_with, b"".join(shares), session + about)
        return cls(holder, key.public, sealed, shares.checks(session, dealer, holder))

    @property
    def has_right_size(self) -> bool:
        """Whether its parts are as long as they must be."""
        sizes = (len(self.key), len(self.sealed), len(self.checks))
        return sizes == (KEY_BYTES, _SEALED_BYTES, 2 * DIGEST_BYTES)

    def opened(self, mine: AgreementKey, session: bytes, dealer: int, holder: int) -> SharePair:
        """The shares, by the holder's key."""
        return self._unsealed(mine.agree(self.key), session, dealer, holder)

    def shown(
        self, key: bytes, theirs: bytes, session: bytes, dealer: int, holder: int
    ) -> SharePair:
        """The shares, by the private key of the box and the holder's public one."""
        if len(key) != KEY_BYTES or AgreementKey(key).public != self.key:
            raise ProtocolError("that is not the key of the box.")
        return self._unsealed(AgreementKey(key).agree(theirs), session, dealer, holder)

    def _unsealed(self, secret: bytes, session: bytes, dealer: int, holder: int) -> SharePair:
        about = b"box " + pair(dealer, holder)
        sealed_with = derive(secret, session=session, purpose=about)
        plain = unseal(sealed_with, self.sealed, session + about)
        shares = SharePair(plain[:SHARE_BYTES], plain[SHARE_BYTES:])
        for share in shares:
            share_from_bytes(share)
        if shares.checks(session, dealer, holder) != self.checks:
            raise ProtocolError("a box holds other shares than it says.")
        return shares

    def digest(self, dealer: int, holder: int) -> bytes:
        """What tells this box from every other one."""
        parts = (self.key, self.sealed, self.checks)
        told = hashlib.sha256(b"fedgauge box\0" + pair(dealer, holder))
        for part in parts:
            told.update(hashlib.sha256(part).digest())
        return told.digest()


def is_share(
    share: bytes, kind: Kind, checks: bytes, session: bytes, dealer: int, holder: int
) -> bool:
    """Whether a share is the one that was dealt."""
    place = DIGEST_BYTES * kind
    expected = checks[place : place + DIGEST_BYTES]
    return _check(share, kind, session, dealer, holder) == expected


def _check(share: bytes, kind: Kind, session: bytes, dealer: int, holder: int) -> bytes:
    # A share is uniform over 257 bits, so its digest tells nothing of it.
    about = b"%s %s" % (kind.name.encode(), pair(dealer, holder))
    return hashlib.sha256(b"fedgauge share\0" + session + about + b"\0" + share).digest()
