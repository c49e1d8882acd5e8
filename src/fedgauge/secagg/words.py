"""Integers modulo 2^32 or 2^64: how counts are added under masks without ever wrapping."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.errors import CountOverflow, PlanError, ProtocolError

Words = NDArray[Any]
_TYPES: Final[dict[int, np.dtype[Any]]] = {32: np.dtype("<u4"), 64: np.dtype("<u8")}
_SIGNED: Final[dict[int, np.dtype[Any]]] = {32: np.dtype("<i4"), 64: np.dtype("<i8")}


def word_type(bits: int) -> np.dtype[Any]:
    """The unsigned type of a word."""
    return _TYPES[bits]


def word_bits(members: int, most: int) -> int:
    """The shortest word in which no sum over `members` values of at most `most` wraps.

    Every value lies in [-most, most], so every sum in [-members most, members most]; words of
    b bits hold [-2^(b-1), 2^(b-1) - 1], read as signed numbers.
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
