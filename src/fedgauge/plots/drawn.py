"""What all displays share: they hold arrays, and draw them on any axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np

from fedgauge.measures.bands import Band
from fedgauge.measures.intervals import Estimate
from fedgauge.plots.axes import (
    Corner,
    area_text,
    clear_curves,
    decimals,
    draw_legend,
    drawn_lines,
    entry,
    even_decimals,
    is_dark,
    is_default,
    mark,
    new_axes,
)
from fedgauge.plots.overlaid import Overlaid, put_slices
from fedgauge.typing import Floats

if TYPE_CHECKING:  # matplotlib takes half a second to load: only who draws waits for it
    from matplotlib.axes import Axes
    from matplotlib.collections import Collection
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

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
            Where to draw: the axes of another display of this kind, or any others; by default
            those of a new figure.
        name
            For the legend, instead of the display's own.
        plot_chance_level
            Whether to draw what a classifier without skill would do; axes get it once.
        line_kwargs
            For matplotlib's ``plot``, such as ``color``.

        Returns
        -------
        display
            Itself, with what was drawn: `ax_`, `figure_`, `line_`, and `band_` and
            `chance_level_`, which may be None.
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
