"""The axes that displays draw on: how large, what is on them already, and the legend."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from fedgauge.measures.intervals import Estimate

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

Corner = Literal["lower left", "lower right", "upper right"]
Role = Literal["curve", "band", "chance"]

_TIGHT: Final = {"fontsize": "x-small", "handlelength": 1.2, "borderpad": 0.3, "labelspacing": 0.3}
SMALL: Final = 2.2  # inches: on axes up to this size, text is smaller and ticks are few


def area_text(name: str, area: Estimate) -> str:
    """An area with its interval, to as many decimals as tell its ends apart."""
    if area.low is None or area.high is None:
        return f"{name} {area.value:.2f}"
    width = max(area.high - area.low, 1e-4)
    digits = min(max(-math.floor(math.log10(width)), 2), 4)
    rough = ", rough" if area.caution else ""
    value, low, high = (f"{number:.{digits}f}" for number in (area.value, area.low, area.high))
    return f"{name} {value}, {low} to {high}{rough}"


def entry(ax: Axes, name: str | None, area: str | None) -> str | None:
    """A curve's entry: long names are broken to the width of the axes or shortened."""
    room = max(min(int(20 * side(ax)) - 8, 38), 12)
    lines = textwrap.wrap(name or "", room, max_lines=2, placeholder=" …")
    if area and len(lines) == 1 and len(lines[0]) + len(area) <= room:
        lines = [f"{lines[0]} ({area})"]
    elif area:
        shown = f"({area})" if lines else area
        lines.append(shown if len(shown) <= room else shown.replace(", ", ",\n", 1))
    return "\n".join(lines).replace("$", r"\$") or None  # a dollar starts no formula


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


def all_low(ax: Axes) -> bool:
    """Whether all curves run through the lower half early on."""
    middle = 0.5 * sum(ax.get_ylim())
    ys = [np.asarray(line.get_ydata()) for line in drawn_lines(ax, "curve")]
    xs = [np.asarray(line.get_xdata()) for line in drawn_lines(ax, "curve")]
    return all(np.interp(0.25, x, y) < middle for x, y in zip(xs, ys, strict=True))


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
            loc=corner,
            borderaxespad=pad,
            **({"fontsize": "small"} if side(ax) > SMALL else _TIGHT),
            facecolor=ax.get_facecolor(),
            labelcolor=ax.xaxis.label.get_color(),
            handler_map={tuple: HandlerTuple(ndivide=None)},
        )
