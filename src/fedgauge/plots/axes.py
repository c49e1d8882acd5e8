"""The axes that displays draw on: how large, what is on them already, and the legend."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakKeyDictionary

import numpy as np

from fedgauge.escaping import printable
from fedgauge.measures.intervals import Estimate
from fedgauge.typing import Floats

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
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
    return f"{name} {value}, {low} to {high}{rough}"


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
