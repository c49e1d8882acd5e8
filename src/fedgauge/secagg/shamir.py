"""Shamir's secret sharing of 256-bit secrets: fewer than `threshold` shares say nothing."""

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from fedgauge.errors import ProtocolError

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

    The shares are values of a polynomial whose constant term is the secret and whose other
    ``threshold - 1`` coefficients are uniform. `prime` and `random_below` exist so that the
    law of the shares can be enumerated over a small field.
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
