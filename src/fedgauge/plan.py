"""The evaluation plan: a frozen, fully resolved, digestible statement of what is measured."""

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from fedgauge.axis import Axis, AxisSpec
from fedgauge.errors import AxisError, PlanError
from fedgauge.histogram import check_tree
from fedgauge.privacy import Cohort, SecureAggregation
from fedgauge.scores import Label

BYTES_PER_COUNT = 8


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


class HistogramRound(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="histogram"
):
    """Each client sends, for every channel, the counts of the nodes at some tree levels.

    `nodes` lists the number of nodes at each level sent.
    """

    nodes: tuple[int, ...]


class EvaluationPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """What is measured, how, and under which protection.

    A plan is complete: nothing in it is left to be chosen later, and every party that
    holds the same bytes does the same thing. :attr:`digest` names those bytes.

    Parameters
    ----------
    task
        What is told apart.
    axis
        How scores are binned.
    tree
        Branchings over the bins, from the root down; ``(bins,)`` is flat.
    privacy
        The privacy model.
    cohort
        Who must take part.
    rounds
        What each client sends, in order.

    Examples
    --------
    >>> plan = EvaluationPlan.for_histogram(Axis.uniform(64), Cohort(min_survivors=5))
    >>> plan.bytes_per_client
    1024
    >>> EvaluationPlan.from_toml(plan.to_toml()) == plan
    True
    """

    task: BinaryTask
    axis: Axis
    tree: tuple[int, ...]
    privacy: SecureAggregation
    cohort: Cohort
    rounds: tuple[HistogramRound, ...]

    def __post_init__(self) -> None:
        try:
            check_tree(self.tree, self.axis.bins)
        except AxisError as error:
            raise PlanError(str(error)) from None
        # Under secure aggregation the inner nodes are sums of leaves: only leaves travel.
        if self.rounds != (HistogramRound(nodes=(self.axis.bins,)),):
            raise PlanError(
                f"under secure aggregation a plan has one round of {self.axis.bins:,} leaf counts; "
                "make plans with EvaluationPlan.for_histogram."
            )

    @classmethod
    def for_histogram(
        cls,
        axis: Axis,
        cohort: Cohort,
        *,
        task: BinaryTask | None = None,
        tree: tuple[int, ...] | None = None,
        privacy: SecureAggregation | None = None,
    ) -> Self:
        """A plan for one histogram of leaf counts."""
        return cls(
            task=task or BinaryTask(),
            axis=axis,
            tree=tree or (axis.bins,),
            privacy=privacy or SecureAggregation(),
            cohort=cohort,
            rounds=(HistogramRound(nodes=(axis.bins,)),),
        )

    @property
    def channels(self) -> int:
        """Slices times classes."""
        return 2 * len(self.task.slices)

    @property
    def bytes_per_client(self) -> int:
        """Size of one client's counts, before any protocol around them."""
        numbers = sum(sum(round_.nodes) for round_ in self.rounds)
        return self.channels * numbers * BYTES_PER_COUNT

    @cached_property
    def digest(self) -> str:
        """SHA-256 of :meth:`to_bytes`."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """The plan as distributed: JSON in the one form that :meth:`from_bytes` accepts."""
        return msgspec.json.encode(self, enc_hook=encode_axis)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a distributed plan; its digest is that of exactly these bytes."""
        with _plan_errors("JSON"):
            plan = msgspec.json.decode(data, type=cls, dec_hook=decode_axis)
        if plan.to_bytes() != data:
            raise PlanError(
                "the plan is not in the form it is distributed in, so its digest would differ "
                "between sites. Write it with EvaluationPlan.to_bytes."
            )
        return plan

    def to_toml(self) -> str:
        """The plan as TOML, to be read and edited by people."""
        plain = msgspec.to_builtins(self, enc_hook=encode_axis)
        return msgspec.toml.encode(_without_none(plain)).decode()

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read a plan from TOML."""
        with _plan_errors("TOML"):
            return msgspec.toml.decode(text, type=cls, dec_hook=decode_axis)

    def save(self, path: str | Path) -> None:
        """Write the plan to a ``.json`` (as distributed) or ``.toml`` file."""
        path = Path(path)
        data = self.to_toml().encode() if _is_toml(path) else self.to_bytes()
        path.write_bytes(data)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a plan from a ``.json`` or ``.toml`` file."""
        path = Path(path)
        try:
            data = path.read_bytes()
            return cls.from_toml(data.decode()) if _is_toml(path) else cls.from_bytes(data)
        except OSError as error:
            raise PlanError(f"cannot read plan {path}: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise PlanError(f"{path} is not text, so it is not a TOML plan.") from None


@contextmanager
def _plan_errors(form: str) -> Iterator[None]:
    """Turn decoding errors into a PlanError that names the format."""
    try:
        yield
    except AxisError as error:
        raise PlanError(str(error)) from None
    except UnicodeDecodeError:
        raise PlanError(f"this is not a plan in {form}: it is not UTF-8.") from None
    except msgspec.MsgspecError as error:
        raise PlanError(f"this is not a plan in {form}: {error}.") from None


def _is_toml(path: Path) -> bool:
    if path.suffix not in (".json", ".toml"):
        raise PlanError(f"a plan file ends in .json or .toml, got {path.name!r}.")
    return path.suffix == ".toml"


def encode_axis(value: Any) -> Any:
    """Plain data for an axis: msgspec's hook for types it does not know."""
    if isinstance(value, Axis):
        return value.spec
    raise NotImplementedError(type(value).__name__)


def decode_axis(kind: type, value: Any) -> Any:
    """The inverse of :func:`encode_axis`."""
    if kind is Axis:
        return Axis.from_spec(msgspec.convert(value, AxisSpec))
    raise NotImplementedError(kind.__name__)


def _without_none(value: Any) -> Any:
    # TOML has no null; a missing field reads back as its default, None.
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
