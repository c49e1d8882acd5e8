"""What is told apart, and so which channels are counted: slices times classes."""

import math
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fedgauge.data.labels import Label
from fedgauge.errors import PlanError


class Slice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One part of the result with curves of its own; None means all."""

    model: str | None = None
    group: str | None = None
    label: str | None = None


class Channel(NamedTuple):
    """One row of a histogram: examples of one class in one slice."""

    slice: Slice
    name: str


class Contrast(NamedTuple):
    """The channel of the negatives and that of the positives that a slice tells apart."""

    negatives: int
    positives: int


class BinaryTask(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="binary"
):
    """Tell positives from negatives by one score.

    `positive` is the label of the positive class; None where labels are bool or 0/1.

    Examples
    --------
    >>> [channel.name for channel in BinaryTask().channels]
    ['negatives', 'positives']
    """

    positive: Label | None = None

    def __post_init__(self) -> None:
        positive: Any = self.positive
        if isinstance(positive, np.generic):
            positive = positive.item()
        if not isinstance(positive, bool | int | float | str | None):
            raise PlanError(f"positive must be one label, got {type(positive).__name__}.")
        if isinstance(positive, float) and not math.isfinite(positive):
            raise PlanError("positive must be a finite number, a truth value or text.")
        msgspec.structs.force_setattr(self, "positive", positive)

    @property
    def slices(self) -> tuple[Slice, ...]:
        """The parts of the result."""
        return (Slice(),)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The rows of a histogram, in order."""
        return tuple(
            Channel(slice_, name) for slice_ in self.slices for name in ("negatives", "positives")
        )

    def contrast(self, slice_: Slice) -> Contrast:
        """The channels that curves of a slice are made of."""
        rows = {
            channel.name: place
            for place, channel in enumerate(self.channels)
            if channel.slice == slice_
        }
        return Contrast(**rows)
