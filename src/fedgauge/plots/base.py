"""What all displays share: axes, legends, and several slices on the same axes."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Self, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from fedgauge.arrays import Floats
from fedgauge.errors import InputError, NoSignal, UndefinedMetric
from fedgauge.escaping import printable
from fedgauge.metrics.bands import Band
from fedgauge.metrics.estimate import Estimate
from fedgauge.plan import Slice
from fedgauge.results.evaluation import Evaluation

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.collections import Collection
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

Corner = Literal["lower left", "lower right", "upper left", "upper right", "below", "beside"]
Role = Literal["curve", "band", "chance", "range", "strip", "absent"]

_TIGHT: Final = {"fontsize": "x-small", "handlelength": 1.2, "borderpad": 0.3, "labelspacing": 0.3}
_LINES_AN_INCH: Final = 2.5  # of a legend inside axes, by their side
_OUTSIDE: Final = ("below", "beside")
_PLACES: Final = 200  # looked at along a curve
STRIP: Final = 0.16  # of the height of axes, for what stands in a strip below the curves
SMALL: Final = 2.2  # inches: on axes up to this size, text is smaller and ticks are few

# How a curve is called: decimals that it needs, and its entry with more.
_LABELS: WeakKeyDictionary[Line2D, tuple[int, Callable[[int], str | None]]] = WeakKeyDictionary()


def decimals(area: Estimate) -> int:
    """As many as tell the ends of its interval apart, and from the value where they differ."""
    if area.low is None or area.high is None:
        return 2
    width = max(area.high - area.low, 1e-4)
    digits = min(max(-math.floor(math.log10(width)), 2), 4)
    ends = [end for end in (area.low, area.high) if end != area.value]
    while digits < 4 and any(f"{end:.{digits}f}" == f"{area.value:.{digits}f}" for end in ends):
        digits += 1
    return digits


def area_text(name: str, area: Estimate, digits: int, *, brief: bool = False) -> str:
    """An area with its interval, or in brief without."""
    if brief or area.low is None or area.high is None:
        return f"{name} {area.value:.{digits}f}"
    rough = ", rough" if area.caution else ""
    value, low, high = (f"{number:.{digits}f}" for number in (area.value, area.low, area.high))
    plain = "" if area.plain is None else f"; plain {area.plain:.{digits}f}"
    return f"{name} {value}, {low} to {high}{rough}{plain}"


def even_decimals(ax: Axes, line: Line2D, digits: int, label: Callable[[int], str | None]) -> None:
    """Label the curves on the axes anew, all with as many decimals as the one that needs most."""
    _LABELS[line] = digits, label
    labels = {each: _LABELS[each] for each in drawn_lines(ax, "curve") if each in _LABELS}
    most = max(digits for digits, _ in labels.values())
    for each, (_, text) in labels.items():
        each.set_label(text(most))


def entry(ax: Axes, name: str | None, area: str | None) -> str | None:
    """A curve's entry: long names are broken to the width of the axes or shortened."""
    room = max(min(int(20 * side(ax)) - 8, 38), 12)
    lines = textwrap.wrap(name or "", room, max_lines=2, placeholder=" …")
    if area and len(lines) == 1 and len(lines[0]) + len(area) <= room:
        lines = [f"{lines[0]} ({area})"]
    elif area:
        shown = f"({area})" if lines else area
        lines.append(shown if len(shown) <= room else shown.replace(", ", ",\n", 1))
    text = plain("\n".join(lines))
    # What starts with an underscore has no place in legends: with a blank before it, it has.
    return f" {text}" if text.startswith("_") else text or None


def plain(text: str) -> str:
    """Text that is only read: a dollar starts no formula either."""
    return printable(text).replace("$", r"\$")


def side(ax: Axes) -> float:
    """The side of square axes in inches, before labels get their room."""
    box = ax.get_window_extent()
    return float(min(box.width, box.height)) / ax.figure.dpi


def mark(ax: Axes, artist: Artist, role: Role) -> None:
    """Remember on the artist what it is; such names are unique, as files in SVG need."""
    artist.set_gid(f"fedgauge-{role}-{len(ax.get_children())}")


def has_role(artist: Artist, role: Role) -> bool:
    """Whether a display drew the artist as this."""
    return (artist.get_gid() or "").startswith(f"fedgauge-{role}-")


def drawn_lines(ax: Axes, role: Role) -> list[Line2D]:
    """Lines that displays have drawn on the axes."""
    return [line for line in ax.lines if has_role(line, role)]


def new_axes() -> Axes:
    """Axes of a new square figure, as high as figures are by default."""
    from matplotlib import pyplot, rcParams

    _, height = rcParams["figure.figsize"]
    _, ax = pyplot.subplots(figsize=(height, height), layout="constrained")
    return ax


def is_default(line: Line2D) -> bool:
    """Whether a line has the colour matplotlib gives when nobody chose one."""
    from matplotlib import rcParamsDefault

    return bool(line.get_color() == rcParamsDefault["axes.prop_cycle"].by_key()["color"][0])


def is_dark(ax: Axes) -> bool:
    """Whether the ground is dark: the text is light then, also where the axes have no ground."""
    from matplotlib.colors import to_rgb

    return sum(to_rgb(ax.xaxis.label.get_color())) > 1.5


def lay_out(ax: Axes) -> None:
    """Let the layout engine of the figure, if it has one, set the size of the axes."""
    root = ax.figure.figure  # of a part of a figure, the whole of it
    if root.get_layout_engine() is not None:
        root.draw_without_rendering()


def clearest(ax: Axes, corners: Sequence[Corner], pad: float) -> Corner:
    """The corner in which the legend lies on least of the curves; of equal ones the first."""
    lay_out(ax)

    def hidden(corner: Corner) -> int:
        draw_legend(ax, corner, pad)
        return _covered(ax)

    return min(corners, key=hidden)


def _covered(ax: Axes) -> int:
    """How many places on curves the legend lies on."""
    legend = ax.get_legend()
    if legend is None:
        return 0
    box = legend.get_window_extent()
    places = np.concatenate([_along(line) for line in drawn_lines(ax, "curve")])
    return int(np.count_nonzero([box.contains(x, y) for x, y in places]))


def _along(line: Line2D) -> Floats:
    """Places on a line, in pixels: equally many however far its points are apart."""
    points = line.get_transform().transform(line.get_xydata())
    points = points[np.isfinite(points).all(axis=1)]
    far = np.append(0.0, np.cumsum(np.hypot(*np.diff(points, axis=0).T)))
    at = np.linspace(0.0, far[-1], _PLACES)
    return np.column_stack([np.interp(at, far, along) for along in points.T])


def draw_legend(ax: Axes, corner: Corner, pad: float) -> None:
    """All curves, then each kind of band once in all its colours, then chance."""
    from matplotlib.legend_handler import HandlerTuple

    curves: list[tuple[Any, str]] = []
    bands: dict[str, tuple[Any, ...]] = {}
    chance: list[tuple[Any, str]] = []
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
        if has_role(handle, "band"):
            bands[label] = (*bands.get(label, ()), handle)
        else:
            (chance if has_role(handle, "chance") else curves).append((handle, label))
    entries = [*curves, *((each, label) for label, each in bands.items()), *chance]
    if entries:
        handles, labels = zip(*entries, strict=True)
        ax.legend(
            handles,
            labels,
            **_place(ax, corner),
            borderaxespad=pad,
            **(_TIGHT if _is_tight(ax, corner, labels) else {"fontsize": "small"}),
            facecolor=ax.get_facecolor(),
            labelcolor=ax.xaxis.label.get_color(),
            handler_map={tuple: HandlerTuple(ndivide=None)},
        )


def _is_tight(ax: Axes, corner: Corner, labels: Sequence[str]) -> bool:
    """Whether axes are small, or would be half full of the legend in them."""
    lines = sum(1 + label.count("\n") for label in labels)
    return side(ax) <= SMALL or (corner not in _OUTSIDE and lines > _LINES_AN_INCH * side(ax))


def clear_curves(ax: Axes) -> None:
    """Put a legend that lies on curves to the right of the axes, and let the figure grow for it."""
    figure = ax.figure.figure
    figure.draw_without_rendering()
    if not _covered(ax):
        return
    draw_legend(ax, "beside", 0.0)
    legend = ax.get_legend()
    assert legend is not None  # noqa: S101  (it covered something)
    figure.draw_without_rendering()
    width, height = figure.get_size_inches()
    more = legend.get_window_extent().width / figure.dpi + 0.2
    figure.set_size_inches(width + more, height)
    for _ in range(2):  # constrained layout comes closer each time; once cuts the labels
        figure.draw_without_rendering()


def strip_of(ax: Axes) -> Axes | None:
    """The strip at the bottom of the axes, if a display put one there."""
    strips: list[Any] = [each for each in ax.child_axes if has_role(each, "strip")]
    return strips[0] if strips else None


def _place(ax: Axes, corner: Corner) -> dict[str, Any]:
    if corner == "beside":
        return {"loc": "upper left", "bbox_to_anchor": (1.03, 1.0)}
    if corner == "below":  # the labels of the axis
        return {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14)}
    floor = 0.0 if strip_of(ax) is None else STRIP
    return {"loc": corner, "bbox_to_anchor": (0.0, floor, 1.0, 1.0 - floor)}


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
    """Slices that are drawn with a display, on the same axes."""

    kinds: str  # models, classes, labels or groups
    own: str  # what the display itself shows, for the legend
    is_reference: bool  # that is all rows or the average of classes, not a slice
    others: tuple[Drawn, ...]  # displays of the slices, or of those after the first
    absent: tuple[Absent, ...]  # slices of which nothing is shown

    @property
    def slices(self) -> int:
        """How many slices are shown."""
        return len(self.others) + (not self.is_reference)

    @property
    def is_plain(self) -> bool:
        """Whether slices are too many for more than a line each."""
        return self.slices > MOST_BANDS


def read_slices(
    result: Evaluation,
    by: By | None,
    read: Callable[[Evaluation, bool], _Display],
    *,
    averages: bool,
) -> _Display:
    """The display of a result, with those of its slices if it has several.

    `read` makes one slice's display, as a line alone if its second argument says so. `averages`
    says whether it can make one of all classes.
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
        # Of rows of no listed group nobody misses the curve.
        if kind != "group" or result.plan.task.groups_told[name].listed
    ]
    slices = tuple(each for _, each in others)
    noun = result.plan.task.label_noun if kind == "label" else kind
    kinds = "classes" if noun == "class" else f"{noun}s"
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
        if overlaid.slices > _MOST_COLOURS:
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


Limits = tuple[tuple[float, float], tuple[float, float]]

SHARES: Final = (-0.01, 1.01)
# Okabe & Ito 2008: told apart by colour-blind people; the line styles survive a grey print.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_STYLES: Final = ("-", "--", "-.", (0, (6, 1.5, 1.5, 1.5, 1.5, 1.5)), (0, (8, 2)), (0, (3, 1)))


@dataclass(eq=False)
class Drawn:
    """A line of points, its band, and how they get on the axes."""

    x: Floats = field(repr=False)
    y: Floats = field(repr=False)
    band: Band | None = field(default=None, repr=False)
    area: Estimate | None = None
    name: str | None = None
    overlaid: Overlaid | None = field(default=None, kw_only=True, repr=False)

    ax_: Axes = field(init=False, repr=False)
    figure_: Figure | SubFigure = field(init=False, repr=False)
    line_: Line2D = field(init=False, repr=False)
    band_: Collection | None = field(init=False, repr=False)
    chance_level_: Line2D | None = field(init=False, repr=False)

    _legend_pad: ClassVar[float] = 0.5
    _look: ClassVar[dict[str, Any]] = {}
    _without_skill: ClassVar[str] = "chance"

    @property
    def rough(self) -> str | None:
        """Why its numbers are rough, if they are."""
        return self.area.caution if self.area else None

    def plot(
        self,
        ax: Axes | None = None,
        *,
        name: str | None = None,
        plot_chance_level: bool = True,
        **line_kwargs: Any,
    ) -> Self:
        """Draw the curve and its band.

        Parameters
        ----------
        ax
            Where to draw: the axes of another display of this kind, or any others; by default those
            of a new figure.
        name
            For the legend, instead of the display's own.
        plot_chance_level
            Whether to draw what a classifier without skill would do; axes get it once.
        line_kwargs
            For matplotlib's ``plot``, such as ``color``.

        Returns
        -------
        display
            Itself, with what was drawn: `ax_`, `figure_`, `line_`, and `band_` and `chance_level_`,
            which may be None.
        """
        own = ax is None
        where = new_axes() if ax is None else ax
        self._draw(where, name, line_kwargs, chance=plot_chance_level, spacious=own)
        draw_legend(self.ax_, self._corner(), self._legend_pad)
        if own and self.overlaid is not None:
            clear_curves(self.ax_)
        return self

    @property
    def lines_(self) -> list[Line2D]:
        """The curves as drawn: its own, and those of slices."""
        others = self.overlaid.others if self.overlaid else ()
        return [self.line_, *(each.line_ for each in others)]

    def _draw(
        self,
        ax: Axes,
        name: str | None,
        line_kwargs: dict[str, Any],
        *,
        chance: bool,
        spacious: bool,
    ) -> None:
        """All but the legend, whose entries are brief unless there is much room for them."""
        name = name or self.name
        if self.overlaid is None:
            self._put(ax, name, line_kwargs, chance=chance)
        else:
            brief = self.overlaid.is_plain and not spacious
            put_slices(self, ax, name, line_kwargs, chance=chance, brief=brief)

    def _put(
        self,
        ax: Axes,
        name: str | None,
        line_kwargs: dict[str, Any],
        *,
        chance: bool,
        plain: bool = False,
        brief: bool = False,
    ) -> None:
        """Draw the curve; unless it is to be plain, also its band and what else there is."""
        self.ax_, self.figure_ = ax, ax.figure
        first = not drawn_lines(ax, "curve")
        self._set_limits(first)
        if first:
            self._dress()
        own = self._label(name, brief)
        self.line_ = self._draw_line({"label": own(self._decimals)} | self._look | line_kwargs)
        if "label" not in line_kwargs:
            even_decimals(ax, self.line_, self._decimals, own)
        self.band_ = None if plain else self._draw_band()
        self.chance_level_ = self._draw_chance() if chance else None
        self._draw_more(plain)

    def _limits(self) -> Limits:
        return SHARES, SHARES

    def _labels(self) -> tuple[str, str]:
        """Of the abscissa and the ordinate."""
        raise NotImplementedError

    def _area_name(self) -> str | None:
        """How the legend calls `area`."""
        raise NotImplementedError

    def _chance(self) -> tuple[Floats, Floats]:
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])

    def _corner(self) -> Corner:
        """Where the legend hides least."""
        return "lower right"

    def _scaled(self, values: Floats) -> Floats:
        """Values as they are drawn."""
        return values

    def _set_limits(self, first: bool) -> None:
        across, (bottom, top) = self._limits()
        if first:
            self.ax_.set(xlim=across, ylim=(bottom, top))
        elif (bottom, top) != across:  # limits made for the curve; a user's zoom stays otherwise
            low, high = self.ax_.get_ylim()
            self.ax_.set_ylim(min(bottom, low), max(top, high))

    def _dress(self) -> None:
        across, up = self._labels()
        self.ax_.set(xlabel=across, ylabel=up, box_aspect=1)
        self.ax_.grid(True, alpha=0.35, linewidth=0.6)
        self.ax_.set_axisbelow(True)

    @property
    def _decimals(self) -> int:
        return decimals(self.area) if self.area else 0

    def _label(self, name: str | None, brief: bool) -> Callable[[int], str | None]:
        """The entry of the legend, with an area of so many decimals."""
        ax, area, called = self.ax_, self.area, self._area_name()

        def label(digits: int) -> str | None:
            if not (called and area):
                return entry(ax, name, None)
            return entry(ax, name, area_text(called, area, digits, brief=brief))

        return label

    def _shown(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """What of a curve is drawn."""
        return x, y

    def _draw_line(self, kwargs: dict[str, Any]) -> Line2D:
        x, y = map(self._scaled, self._shown(self.x, self.y))
        (line,) = self.ax_.plot(x, y, **kwargs)
        if is_default(line) and not {"color", "c"} & set(kwargs):
            line.remove()
            styles = (*_STYLES, *_STYLES[1:], _STYLES[0])  # a colour again, in another style
            self.ax_.set_prop_cycle(color=_COLOURS * 2, linestyle=styles)
            (line,) = self.ax_.plot(x, y, **kwargs)
        mark(self.ax_, line, "curve")
        return line

    def _draw_band(self) -> Collection | None:
        if self.band is None:
            return None
        x, low = self._shown(self.band.x, self.band.low)
        _, high = self._shown(self.band.x, self.band.high)
        drawn = self.ax_.fill_between(
            self._scaled(x),
            self._scaled(low),
            self._scaled(high),
            color=self.line_.get_color(),
            alpha=0.4 if is_dark(self.ax_) else 0.2,
            linewidth=0,
            label=f"{self.band.level * 100:g}% band, {self.band.kind}",
        )
        mark(self.ax_, drawn, "band")
        return drawn

    def _draw_chance(self) -> Line2D:
        """The chance level, unless another display drew it: to the eye, the same one."""
        x, y = self._chance()
        there = drawn_lines(self.ax_, "chance")
        for line in there:
            if np.allclose(line.get_ydata(), y, atol=0.02):
                return line
        # The first has the colour of text in any style, dark ones too; others tell whose they are.
        colour = self.line_.get_color() if there else self.ax_.xaxis.label.get_color()
        (line,) = self.ax_.plot(x, y, ":", color=colour, alpha=0.7, linewidth=1.2, zorder=1.5)
        line.set_label("_chance" if there else self._without_skill)
        mark(self.ax_, line, "chance")
        return line

    def _draw_more(self, plain: bool) -> None:
        """What else a display shows."""


@dataclass(eq=False)
class Zoomed(Drawn):
    """A display whose axes go no farther than what there is to see, on all of them."""

    def _set_limits(self, first: bool) -> None:
        across, up = self._limits()
        if not first:
            across, up = (
                (min(low, limits[0]), max(high, limits[1]))
                for (low, high), limits in (
                    (across, self.ax_.get_xlim()),
                    (up, self.ax_.get_ylim()),
                )
            )
        self.ax_.set(xlim=across, ylim=up)
