"""What rows may be told apart by: slices of the result, and the channels that they are made of."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from fedgauge.binning.axis import Axis
from fedgauge.binning.channels import Block, Layout
from fedgauge.binning.tables import AnyTable
from fedgauge.errors import InputError, PlanError
from fedgauge.plan.names import MOST_NAMES, check_name, check_names, listed, require_apart, shown

OTHER: Final = "other"
REST: Final = "rest"  # all rows outside a group
TWO_CLASSES: Final = "how many positive and how many negative examples have a score"


class Slice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One part of the result with curves of its own; None means all.

    Examples
    --------
    >>> import fedgauge as fg
    >>> y_true, y_score = [0, 1, 1, 0, 1, 1], [0.2, 0.7, 0.9, 0.3, 0.4, 0.8]
    >>> rows = fg.Examples(y_true, y_score, group=list("FFFMMM"))
    >>> result = fg.evaluate({"a": rows}, groups=["F", "M"])
    >>> [str(each.slice) for each in result.slices]
    ['all', 'group F', 'group M', 'group other']
    """

    model: str | None = None
    group: str | None = None
    label: str | None = None

    def __str__(self) -> str:
        named = (f"{name} {getattr(self, name)}" for name in self.__struct_fields__)
        told = [
            each
            for each, name in zip(named, self.__struct_fields__, strict=True)
            if getattr(self, name) is not None
        ]
        return ", ".join(told) or "all"


class Channel(NamedTuple):
    """One row of a histogram: examples of one class in one group, by one of their scores."""

    slice: Slice
    name: str


class Group(NamedTuple):
    """Rows that have something in common: the values of one way of grouping them.

    `cell` is its number there. It is `listed` if the plan names all its values: rows of any other
    value are in the same way of grouping, but not in a group that means something.
    """

    name: str
    grouping: tuple[str, ...]
    cell: int
    listed: bool


class Contrast(NamedTuple):
    """The channels that add up to the negatives, and to the positives, that a slice tells apart."""

    negatives: tuple[int, ...]
    positives: tuple[int, ...]


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", dict=True):
    """What every task can be asked."""

    @property
    def layout(self) -> Layout:
        """Which channels rows are counted in."""
        raise NotImplementedError

    @property
    def slices(self) -> tuple[Slice, ...]:
        """The parts of the result."""
        raise NotImplementedError

    def contrast(self, slice_: Slice) -> Contrast:
        """The rows of counts that curves of a slice are made of."""
        raise NotImplementedError

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The counts that are sent, in order."""
        raise NotImplementedError

    @property
    def counted(self) -> str:
        """What is counted in each range of scores, in words."""
        return TWO_CLASSES

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """What else a plan tells apart: titles and names."""
        return ()

    @property
    def rows(self) -> int:
        """How many rows of counts a client has, sent or not, and a result."""
        return self.layout.channels

    @property
    def sent(self) -> slice:
        """Which rows of a client's histogram are sent."""
        return slice(0, self.rows)

    @property
    def rows_sent(self) -> int:
        """How many these are."""
        return len(range(self.rows)[self.sent])

    @property
    def per_row(self) -> int:
        """How many counts, at each level, one row adds to."""
        return self.layout.per_row

    def tables(self, axis: Axis, *, noisy: bool) -> tuple[AnyTable, ...]:
        """What its plans count besides the histogram, by axis and whether there is noise."""
        del axis, noisy
        return ()


class Sliced(Task, frozen=True, omit_defaults=True, kw_only=True):
    """A task whose rows may be of groups, and have scores of several models.

    Names are the plan's: a row of a group that is not named counts in a group of its own.
    """

    groups: Mapping[str, Sequence[str]] = {}
    models: Sequence[str] = ()
    crossed: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.groups, Mapping):
            raise PlanError(
                'groups must map groupings to their values, such as {"sex": ["women", "men"]}.'
            )
        groups = {
            check_name("a grouping", name): check_names(f"groups of {name!r}", values)
            for name, values in self.groups.items()
        }
        require_apart("groups", [*groups])
        told = {shown(value) for values in groups.values() for value in values}
        if OTHER in told:
            raise PlanError(f"{OTHER!r} is what rows of no listed group are in. Leave it out.")
        if REST in told:
            raise PlanError(f"{REST!r} is what all rows outside a group are called. Rename it.")
        if self.crossed and len(groups) < 2:
            raise PlanError("only two or more groupings can be crossed. Leave crossed out.")
        msgspec.structs.force_setattr(self, "groups", groups)
        none = isinstance(self.models, Sequence) and not self.models
        models = () if none else check_names("models", self.models)
        msgspec.structs.force_setattr(self, "models", models)
        cells = math.prod(len(values) + 1 for values in groups.values()) if self.crossed else 1
        if max(cells, len(models)) > MOST_NAMES:
            raise PlanError(f"a task has at most {MOST_NAMES:,} groups or models.")
        ways = (tuple(groups),) if self.crossed else tuple((name,) for name in groups)
        called = [shown(each) for way in ways for each, _ in _called(groups, way)]
        if len({*called}) < len(called):  # one of them would stand for both
            raise PlanError(
                "two groups are called the same, grouping and value together. Rename a grouping."
            )

    def __hash__(self) -> int:
        return hash(msgspec.json.encode(self))  # groups are in a mapping, which has no hash

    @property
    def labels_told(self) -> tuple[str | None, ...]:
        """Names of the classes, or labels, that have curves of their own; None for the only one."""
        return (None,)

    @cached_property
    def slices(self) -> tuple[Slice, ...]:
        """The parts of the result: of all rows first, then of each group."""
        pairs = list(itertools.product(self.models or (None,), self.labels_told))
        return tuple(
            Slice(model, group, label)
            for group in (None, *self.groups_told)
            for model, label in pairs
        )

    @cached_property
    def groups_told(self) -> dict[str, Group]:
        """The groups that have curves of their own, by what they are called."""
        return {
            called: Group(called, grouping, cell, OTHER not in values)
            for grouping in (self.layout.groupings if self.groups else ())
            for cell, (called, values) in enumerate(_called(self.groups, grouping))
        }

    def _blocks(self, slice_: Slice) -> tuple[Block, ...]:
        """The blocks that a slice's counts are in, of one way of grouping."""
        if slice_ not in self.slices:
            raise InputError(f"there is no slice of {slice_} in the plan.")
        grouping = self.layout.groupings[0]
        if slice_.group is not None:
            grouping = self.groups_told[slice_.group].grouping
        return tuple(
            block
            for block in self.layout.blocks
            if block.model == slice_.model and block.grouping == grouping
        )

    def _cells(self, slice_: Slice, block: Block) -> tuple[int, ...]:
        """The groups of a block that a slice is made of: one, or all."""
        if slice_.group is None:
            return tuple(range(self.layout.cells(block.grouping)))
        return (self.groups_told[slice_.group].cell,)

    @cached_property
    def channels(self) -> tuple[Channel, ...]:
        """The counts that are sent, in order."""
        layout = self.layout
        if layout.is_plain:
            return tuple(Channel(Slice(), name) for name in Contrast._fields)
        names = {(each.grouping, each.cell): each.name for each in self.groups_told.values()}
        return tuple(
            Channel(
                Slice(block.model, names.get((block.grouping, cell)), self._label_of(block)),
                self._class_name(number),
            )
            for block in layout.blocks
            for cell in range(layout.cells(block.grouping))
            for number in range(layout.by_block)
        )

    @property
    def counted(self) -> str:
        """What is counted in each range of scores, in words."""
        score = f"a score of each model ({listed(self.models)})" if self.models else "a score"
        return f"{self._examples}{self._by_group} have {score}"

    @property
    def _examples(self) -> str:
        return "how many positive and how many negative examples"

    @property
    def _by_group(self) -> str:
        if not self.groups:
            return ""
        every = [f"{name} ({listed([*self.groups[name], OTHER])})" for name in self.groups]
        if self.crossed:
            return f" of each combination of {' and '.join(every)}"
        return f" of each group by {', and of each by '.join(every)}{',' * (len(every) > 1)}"

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """What else a plan tells apart: titles and names, and what a row then counts for."""
        rows = []
        if self.groups:
            every = [f"{name}: {listed([*self.groups[name], OTHER])}" for name in self.groups]
            how = ""
            if len(every) > 1:
                how = "; crossed: a row counts once" if self.crossed else "; a row counts in each"
            rows.append(("groups", "; ".join(every) + how))
        return (*rows, ("models", listed(self.models))) if self.models else tuple(rows)

    def _label_of(self, block: Block) -> str | None:
        return self.labels_told[block.column]

    def _class_name(self, number: int) -> str:
        return Contrast._fields[number]

    def _grouping(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        return tuple((name, tuple(values)) for name, values in self.groups.items())


def _called(
    groups: Mapping[str, Sequence[str]], grouping: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What the groups of one way of grouping are called, and the values of each, in order."""
    for values in itertools.product(*((*groups[name], OTHER) for name in grouping)):
        pairs = zip(grouping, values, strict=True)
        several = ", ".join(f"{name} {value}" for name, value in pairs)
        yield (values[0] if len(groups) == 1 else several), values
