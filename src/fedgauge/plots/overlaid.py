"""Slices of a result on the same axes: which of them, how each looks, and what the legend says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from fedgauge.errors import InputError, NoSignal, UndefinedMetric
from fedgauge.plan import Slice
from fedgauge.plan.slices import Sliced
from fedgauge.plan.task import MulticlassTask
from fedgauge.plots.axes import entry, mark
from fedgauge.results.evaluation import Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedgauge.plots.drawn import Drawn

By = Literal["auto", "model", "label", "group"]

MOST_BANDS: Final = 3  # slices that have bands: more lie on each other
_MOST_COLOURS: Final = 10  # slices that are told apart by colour and line
_MOST_NAMED: Final = 3  # slices without a curve that the legend names
# What must be chosen comes first: without it there is no one curve, while all groups have one.
_KINDS: Final = ("model", "label", "group")
ALL: Final = "all"
MACRO: Final = "macro average"
_REFERENCE: Final[dict[str, dict[str, Any]]] = {
    ALL: {"linewidth": 1.2, "alpha": 0.8, "zorder": 1.9},
    MACRO: {"linewidth": 2.5, "zorder": 2.5},
}
_CROWD: Final = {"linewidth": 0.6, "alpha": 0.4}

_Display = TypeVar("_Display", bound="Drawn")


class Absent(NamedTuple):
    """A slice without a curve, and why in a word."""

    name: str
    why: str


class Overlaid(NamedTuple):
    """Slices that are drawn with a display, on the same axes.

    Attributes
    ----------
    kinds
        What they are: models, classes, labels or groups.
    own
        What the display itself shows, for the legend.
    is_reference
        Whether that is all rows, or the average of all classes, and not one of the slices.
    others
        Displays of the slices, or of those after the first.
    absent
        Slices of which nothing is shown.
    """

    kinds: str
    own: str
    is_reference: bool
    others: tuple[Drawn, ...]
    absent: tuple[Absent, ...]

    @property
    def slices(self) -> int:
        """How many slices are shown."""
        return len(self.others) + (not self.is_reference)

    @property
    def is_plain(self) -> bool:
        """Whether slices are too many for more than a line each."""
        return self.slices > MOST_BANDS

    @property
    def is_crowd(self) -> bool:
        """Whether slices are too many to be told apart."""
        return self.slices > _MOST_COLOURS


def read_slices(
    result: Evaluation,
    by: By | None,
    read: Callable[[Evaluation, bool], _Display],
    *,
    averages: bool,
) -> _Display:
    """The display of a result, with those of its slices if it has several.

    `read` makes the display of one slice; its second argument says whether as a line and nothing
    else. `averages` says whether it can make one of all classes.
    """
    kind = _kind(result, by)
    if kind is None:
        return read(result, False)
    parts = {name: result.select(**{kind: name}) for name in _names(result, kind)}
    shown, why = _read_each(parts, read)
    own = _reference(result, kind, averages)
    if own is None and not shown:
        raise next(iter(why.values()))
    if own is None:
        (first, display), *others = shown.items()
    else:
        first, display, others = own, read(result, bool(shown)), list(shown.items())
    for name, each in others:
        each.name = name
    absent = [
        Absent(name, "withheld" if isinstance(error, NoSignal) else "undefined")
        for name, error in why.items()
        if kind != "group" or _is_listed(result, name)
    ]
    slices = tuple(each for _, each in others)
    kinds = _plural(result, kind)
    display.overlaid = Overlaid(kinds, first, own is not None, slices, tuple(absent))
    return display


def _read_each(
    parts: Mapping[str, Evaluation], read: Callable[[Evaluation, bool], _Display]
) -> tuple[dict[str, _Display], dict[str, UndefinedMetric]]:
    """Displays of those that have one, as lines if they are many; and why others have none."""
    shown, why, many = {}, {}, len(parts) > MOST_BANDS
    for name, part in parts.items():
        try:
            shown[name] = read(part, many)
        except UndefinedMetric as error:
            why[name] = error
    if many and len(shown) <= MOST_BANDS:
        shown = {name: read(parts[name], False) for name in shown}
    return shown, why


def _kind(result: Evaluation, by: By | None) -> str | None:
    """What tells the slices apart that are drawn; None for a curve alone."""
    if by is None:
        return None
    known = [kind for kind in _KINDS if _names(result, kind)]
    if by == "auto":
        return known[0] if known and len(result.slices) > 1 else None
    if by not in known:
        told = ", ".join(map(repr, known))
        raise InputError(
            f"by={by!r} is nothing that this result tells apart. "
            + (f"It has {told}." if known else "Leave it out: it is of one slice.")
        )
    return by


def _names(result: Evaluation, kind: str) -> list[str]:
    """What there is of a kind, unless one of it was selected."""
    mine = result.slice
    if getattr(mine, kind) is not None:
        return []
    return list(
        dict.fromkeys(
            getattr(each, kind)
            for each in result.plan.task.slices
            if getattr(each, kind) is not None
            and all(
                getattr(mine, other) in (None, getattr(each, other))
                for other in Slice.__struct_fields__
            )
        )
    )


def _plural(result: Evaluation, kind: str) -> str:
    if kind == "label" and isinstance(result.plan.task, MulticlassTask):
        return "classes"
    return f"{kind}s"


def _is_listed(result: Evaluation, group: str) -> bool:
    """Whether the plan names the group: of other rows nobody misses the curve."""
    task = result.plan.task
    return isinstance(task, Sliced) and task.groups_told[group].listed


def _reference(result: Evaluation, kind: str, averages: bool) -> str | None:
    """What slices are seen against, if anything."""
    if kind == "group":
        return ALL
    if kind == "label" and averages and result.has_average and result.mapped_by is None:
        return MACRO
    return None


def put_slices(
    display: Drawn,
    ax: Axes,
    name: str | None,
    line_kwargs: dict[str, Any],
    *,
    chance: bool,
    brief: bool,
) -> None:
    """Draw a display with its slices: told apart by colour, or if they are too many in grey."""
    overlaid = display.overlaid
    assert overlaid is not None  # noqa: S101  (else there is one curve)
    plain, slices = overlaid.is_plain, overlaid.others
    text = ax.xaxis.label.get_color()  # of any style, dark ones too
    if overlaid.is_reference:
        look = {"color": text, "linestyle": "-", "marker": "", **_REFERENCE[overlaid.own]}
        called = _joined(name, overlaid.own)
        alone = not slices
        display._put(ax, called, look | line_kwargs, chance=chance, plain=not alone, brief=brief)
    else:
        slices = (display, *slices)
    for number, each in enumerate(slices):
        called = _joined(name, overlaid.own if each is display else each.name)
        look = {}
        if overlaid.is_crowd:
            label = "_slice" if number else _of_all(overlaid, ax, name, slices)
            look = {"color": text, "linestyle": "-", "marker": "", "label": label, **_CROWD}
        with_chance = chance and (each is display or not plain)
        each._put(ax, called, look | line_kwargs, chance=with_chance, plain=plain, brief=brief)
    _name_absent(overlaid, ax, name)


def _joined(*names: str | None) -> str:
    return ", ".join(each for each in names if each)


def _of_all(overlaid: Overlaid, ax: Axes, name: str | None, slices: Sequence[Drawn]) -> str | None:
    """The entry that stands for more slices than can be told apart."""
    shown, every = overlaid.slices, overlaid.slices + len(overlaid.absent)
    number = f"{shown}" if shown == every else f"{shown} of {every}"
    areas = sorted(each.area.value for each in slices if each.area)
    called = slices[0]._area_name()
    span = f"{called} {areas[0]:.2f} to {areas[-1]:.2f}" if called and areas else None
    return entry(ax, _joined(name, f"{number} {overlaid.kinds}"), span)


def _name_absent(overlaid: Overlaid, ax: Axes, name: str | None) -> None:
    """Entries without a line, for slices that have no curve."""
    from matplotlib.lines import Line2D

    told = list(overlaid.absent)
    if len(told) > _MOST_NAMED:
        many = Counter(each.why for each in told)
        told = [Absent(f"{count} {overlaid.kinds}", why) for why, count in many.items()]
    for each in told:
        line = Line2D([], [], linestyle="none", label=entry(ax, _joined(name, each.name), each.why))
        ax.add_line(line)
        mark(ax, line, "absent")
