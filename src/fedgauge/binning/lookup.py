"""Find the bin of each score among fixed edges: exact for every float, and fast.

A *slot* function maps a score to a small integer with a few array operations. It
only has to be monotone: then an edge in a lower slot lies below the score, an edge
in a higher slot above it, and the edges that share the score's slot are compared
one by one. Rounding inside the slot function can therefore never misplace a score.
"""

import math
from collections.abc import Callable

import numpy as np

from fedgauge.typing import Floats, Indices

SlotFunction = Callable[[Floats], Indices]

_SLOTS_PER_EDGE = 4
_MOST_SLOTS = 1 << 18  # the table of first edges stays within a core's cache
_MOST_COMPARISONS = 4  # beyond this a binary search is as fast


class BinLookup:
    """Index of the bin that holds each score.

    Parameters
    ----------
    edges
        At least two increasing floats; the last may repeat (a bin of one value).
        Bin i is [edges[i], edges[i+1]), the last bin is closed.
    """

    def __init__(self, edges: Floats) -> None:
        self._inner = edges[1:-1]
        self._bins = len(edges) - 1
        self._direct: SlotFunction | None = None
        self._comparisons = _MOST_COMPARISONS + 1
        low, high = float(edges[0]), float(edges[-1])
        # Slots need a width that neither overflows nor underflows when divided.
        if math.isfinite(high - low) and high - low > _MOST_SLOTS * np.finfo(float).tiny:
            direct = _linear_slots(low, high, self._bins)
            if _is_exact(direct, edges):
                self._direct = direct
            else:
                self._choose_table(low, high)

    def _choose_table(self, low: float, high: float) -> None:
        size = min(_MOST_SLOTS, _SLOTS_PER_EDGE * self._bins)
        for slot in (_linear_slots(low, high, size), _folded_slots(low, high, size)):
            slots = slot(self._inner)
            crowded = int(np.bincount(slots).max(initial=0))
            if crowded <= _MOST_COMPARISONS:
                break
        self._slot = slot
        self._comparisons = crowded
        self._first = np.searchsorted(slots, np.arange(int(slot(np.array([high]))[0]) + 1))
        self._padded = np.append(self._inner, np.inf)

    def __call__(self, scores: Floats, *, touches_top: bool) -> Indices:
        """Bin of each score; every score must lie within the edges.

        `touches_top` says whether any score may equal the last edge.
        """
        if self._direct is not None:
            index = self._direct(scores)
            return np.minimum(index, self._bins - 1, out=index) if touches_top else index
        if self._comparisons > _MOST_COMPARISONS:
            return np.searchsorted(self._inner, scores, side="right")
        index = self._first.take(self._slot(scores), mode="clip")
        for _ in range(self._comparisons):
            index += scores >= self._padded.take(index, mode="clip")
        return index


def _is_exact(slot: SlotFunction, edges: Floats) -> bool:
    """Whether the slot of a score below the last edge is its bin.

    A monotone function that is right at every lower edge, and at the float just below
    every upper edge, is right everywhere between.
    """
    order = np.arange(len(edges) - 1)
    below = np.nextafter(edges[1:], -np.inf)
    return bool(np.all(slot(edges[:-1]) == order) and np.all(slot(below) == order))


def _linear_slots(low: float, high: float, slots: int) -> SlotFunction:
    """Slots of equal width; the last edge has a slot of its own."""
    scale = slots / (high - low)

    def slot(scores: Floats) -> Indices:
        index = np.empty(scores.shape, dtype=np.intp)
        return np.multiply(scores - low if low else scores, scale, out=index, casting="unsafe")

    return slot


def _folded_slots(low: float, high: float, slots: int) -> SlotFunction:
    """Slots of equal ratio towards both ends, for edges that crowd there.

    The leading bits of a positive float are a monotone logarithm of it.
    """
    width = high - low
    smallest_exponent = -60
    octaves = -smallest_exponent
    fraction_bits = max(2, (slots // (2 * octaves)).bit_length())
    shift = 52 - fraction_bits
    base = int(np.float64(2.0**smallest_exponent).view(np.int64)) >> shift
    middle = (int(np.float64(0.5).view(np.int64)) >> shift) - base

    def slot(scores: Floats) -> Indices:
        unit = np.clip((scores - low) / width, 0.0, 1.0)
        distance = np.minimum(unit, 1.0 - unit)
        steps = (distance.view(np.int64) >> shift) - base
        np.maximum(steps, 0, out=steps)
        return np.where(unit < 0.5, steps, 2 * middle + 1 - steps).astype(np.intp, copy=False)

    return slot
