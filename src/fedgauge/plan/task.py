"""What is told apart, and so which channels are counted: slices times classes."""

import math
import re
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from fedgauge.data.labels import Label
from fedgauge.errors import PlanError

_DIGEST: Final = re.compile("[0-9a-f]{64}")


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


class Labelled(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """What every task of two classes says of labels.

    `positive` is the label of the positive class; None where labels are bool or 0/1.
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
    def rows(self) -> int:
        """How many rows of counts a client has, sent or not, and a result."""
        return len(Contrast._fields)

    def contrast(self, slice_: Slice) -> Contrast:
        """The rows of counts that curves of a slice are made of."""
        del slice_  # there is one
        return Contrast(negatives=0, positives=1)


class BinaryTask(Labelled, frozen=True, tag="binary"):
    """Tell positives from negatives by one score.

    Examples
    --------
    >>> [channel.name for channel in BinaryTask().channels]
    ['negatives', 'positives']
    """

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The counts that are sent, in order."""
        return tuple(
            Channel(slice_, name) for slice_ in self.slices for name in ("negatives", "positives")
        )

    @property
    def sent(self) -> slice:
        """Which rows of a client's histogram these are."""
        return slice(0, 2)


class LabelTask(Labelled, frozen=True, tag="labels", omit_defaults=True):
    """Tell positives from negatives where one party scores the examples and others have labels.

    A label party counts its positives by bin, and that alone is sent. Whoever scored the examples
    knows how many of them each party has in each bin: the rest are negatives.

    `assignment` is the digest of the bins that the examples were given, empty where nobody is
    held to one (simulation). `self_scored` says that label parties scored their own examples, and
    another one only gave them bins.

    Examples
    --------
    >>> [channel.name for channel in LabelTask().channels]
    ['positives']
    """

    assignment: str = ""
    self_scored: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.assignment and not _DIGEST.fullmatch(self.assignment):
            raise PlanError("assignment must be the digest of bins: 64 hexadecimal digits.")

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The counts that are sent."""
        return tuple(Channel(slice_, "positives") for slice_ in self.slices)

    @property
    def sent(self) -> slice:
        """Which rows of a client's histogram these are."""
        return slice(1, 2)


AnyTask = BinaryTask | LabelTask
