"""What a plan asks for: the task, and what each client sends in a round."""

import math
from typing import Any

import msgspec
import numpy as np

from fedgauge.data.labels import Label
from fedgauge.errors import PlanError

LARGEST = 2**40  # rows of one client in one bin: more than any has, and 2^22 of them fit 64 bits

# Steps that the scores within a bin are summed in. Rounding, 1/512 of a bin, is far below what
# sampling and noise do to a mean. More would cost: tables of noise are as long as steps over
# epsilon, and `laws` draws from no longer ones than these steps have at epsilon 0.41.
SUM_STEPS = 256
NO_LOCAL_SUMS = "local reports carry no score sums. Leave score_sums out."


class Slice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One part of the result with curves of its own; None means all."""

    model: str | None = None
    group: str | None = None
    label: str | None = None


class BinaryTask(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="binary"
):
    """Tell positives from negatives by one score.

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
        """The parts of the result, each with a channel of negatives and one of positives."""
        return (Slice(),)


class ScoreSums(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For every class and bin, also the sum of its examples' places within the bin.

    An example at score s in a bin from a to b adds ``round((s - a) / (b - a) * steps)``. `noise` is
    the budget of the noise on these sums; 0 without.
    """

    steps: int
    noise: float = 0.0


class HistogramRound(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="histogram",
    omit_defaults=True,
):
    """Each client sends, for every channel, the counts of the nodes at some tree levels.

    `nodes` lists the number of nodes at each level sent. `noise` is the strength of the noise
    on the sum at each of them (see :class:`fedgauge.privacy.shares.ShareLaw`); empty without.
    `largest` is the largest count of one client; sums are taken in words that are wide enough
    for it. A larger one is refused by the client, or clipped under differential privacy,
    where a refusal that depends on data would be a leak. `sums` travel after the counts; a
    client's are at most `largest` times their steps.
    """

    nodes: tuple[int, ...]
    # Values from factories are always written. So plans without sums, which alone may be left
    # out, are the bytes that they were before there were sums.
    noise: tuple[float, ...] = msgspec.field(default_factory=lambda: ())
    largest: int = msgspec.field(default_factory=lambda: LARGEST)
    sums: ScoreSums | None = None
