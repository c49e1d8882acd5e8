"""Curves drawn with matplotlib: a display holds arrays and draws them on any axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, get_args

import numpy as np

from fedgauge.errors import InputError
from fedgauge.measures.bands import Band, BandKind
from fedgauge.measures.intervals import Estimate
from fedgauge.measures.kinds import DET, GAIN, PR, PR_GAIN, ROC, CurveKind
from fedgauge.plots.axes import (
    SMALL,
    Corner,
    area_text,
    clearest,
    decimals,
    draw_legend,
    drawn_lines,
    entry,
    even_decimals,
    is_dark,
    is_default,
    mark,
    new_axes,
    side,
)
from fedgauge.results.evaluation import Evaluation
from fedgauge.typing import Floats

if TYPE_CHECKING:  # matplotlib takes half a second to load: only who draws waits for it
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

Limits = tuple[tuple[float, float], tuple[float, float]]

_SHARES: Final = (-0.01, 1.01)
# Okabe & Ito 2008: told apart by colour-blind people; the line styles survive a grey print.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_STYLES: Final = ("-", "--", "-.", (0, (6, 1.5, 1.5, 1.5, 1.5, 1.5)), (0, (8, 2)), (0, (3, 1)))
_LIFT_FROM: Final = 0.01
_RECALL_FROM: Final = 0.01
_DET_TICKS: Final = (0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999)


@dataclass(eq=False)
class _CurveDisplay:
    """What all displays share: the arrays, and how they get on the axes."""

    x: Floats = field(repr=False)
    y: Floats = field(repr=False)
    band: Band | None = field(default=None, repr=False)
    area: Estimate | None = None
    name: str | None = None

    ax_: Axes = field(init=False, repr=False)
    figure_: Figure | SubFigure = field(init=False, repr=False)
    line_: Line2D = field(init=False, repr=False)
    band_: PolyCollection | None = field(init=False, repr=False)
    chance_level_: Line2D | None = field(init=False, repr=False)

    _kind: ClassVar[CurveKind[Any]]
    _legend_pad: ClassVar[float] = 0.5

    @classmethod
    def from_evaluation(
        cls, result: Evaluation, *, name: str | None = None, band: BandKind | None = "pointwise"
    ) -> Self:
        """The curve of a result.

        Parameters
        ----------
        result
            What was measured.
        name
            For the legend.
        band
            ``"pointwise"`` holds the population's curve at each single abscissa with the
            result's level, ``"simultaneous"`` the whole of it, for any sample size; see
            :meth:`Evaluation.roc_band`. None for no band.
        """
        return cls(**cls._read(result, band), name=name)

    @classmethod
    def _read(cls, result: Evaluation, band: BandKind | None) -> dict[str, Any]:
        """What there is to draw of a result."""
        if band not in (None, *get_args(BandKind)):
            raise InputError(f"band must be 'pointwise', 'simultaneous' or None, got {band!r}.")
        kind = cls._kind
        x, y = getattr(result, f"{kind.name}_curve")().points()
        return {
            "x": x,
            "y": y,
            "band": getattr(result, f"{kind.name}_band")(band) if band else None,
            "area": getattr(result, kind.area[0]) if kind.area else None,
        }

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
        self.ax_ = new_axes() if ax is None else ax
        self.figure_ = self.ax_.figure
        first = not drawn_lines(self.ax_, "curve")
        self._set_limits(first)
        if first:
            self._dress()
        own = self._label(name or self.name)
        self.line_ = self._draw_line({"label": own(self._decimals)} | line_kwargs)
        if "label" not in line_kwargs:
            even_decimals(self.ax_, self.line_, self._decimals, own)
        self.band_ = self._draw_band()
        self.chance_level_ = self._draw_chance() if plot_chance_level else None
        draw_legend(self.ax_, self._corner(), self._legend_pad)
        return self

    def _limits(self) -> Limits:
        return _SHARES, _SHARES

    def _labels(self) -> tuple[str, str]:
        return self._kind.labels

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

    def _label(self, name: str | None) -> Callable[[int], str | None]:
        """The entry of the legend, with an area of so many decimals."""
        ax, area, called = self.ax_, self.area, self._kind.area

        def label(digits: int) -> str | None:
            return entry(ax, name, area_text(called[1], area, digits) if called and area else None)

        return label

    def _shown(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """What of a curve is drawn."""
        return x, y

    def _draw_line(self, kwargs: dict[str, Any]) -> Line2D:
        x, y = map(self._scaled, self._shown(self.x, self.y))
        (line,) = self.ax_.plot(x, y, **kwargs)
        if is_default(line) and not {"color", "c"} & set(kwargs):
            line.remove()
            self.ax_.set_prop_cycle(color=_COLOURS, linestyle=_STYLES)
            (line,) = self.ax_.plot(x, y, **kwargs)
        mark(self.ax_, line, "curve")
        return line

    def _draw_band(self) -> PolyCollection | None:
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
        colour = self.ax_.xaxis.label.get_color()  # of any style, dark ones too
        (line,) = self.ax_.plot(x, y, ":", color=colour, alpha=0.7, linewidth=1.2, zorder=1.5)
        line.set_label("_chance" if there else "chance")
        mark(self.ax_, line, "chance")
        return line


@dataclass(eq=False)
class RocCurveDisplay(_CurveDisplay):
    """A ROC curve: true positive rate against false positive rate.

    Attributes
    ----------
    x, y
        Points along the curve, close enough to show how it runs between bin edges.
    band
        Where the curve of the population lies, or None.
    area
        The area under the curve, shown in the legend with its interval, or None.
    name
        For the legend.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> import fedgauge as fg
    >>> result = fg.evaluate({"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])})
    >>> display = fg.RocCurveDisplay.from_evaluation(result, name="triage").plot()
    >>> display.line_.get_label()
    'triage (AUC 0.89, 0.40 to 0.99)'
    >>> matplotlib.pyplot.close(display.figure_)

    A second result goes on the axes of the first:

    >>> first = fg.RocCurveDisplay.from_evaluation(result, name="A").plot()
    >>> second = fg.RocCurveDisplay.from_evaluation(result, name="B").plot(ax=first.ax_)
    >>> len(second.ax_.get_legend().get_texts())
    4
    >>> matplotlib.pyplot.close(first.figure_)
    """

    _kind = ROC


@dataclass(eq=False)
class PrecisionRecallDisplay(_CurveDisplay):
    """A PR curve: precision against recall.

    Attributes are those of :class:`RocCurveDisplay`; `area` is the average precision. Precision
    at the first 1% of recall hangs on few examples, and where the highest score is a negative's it
    starts at 0: it is not drawn.
    """

    positive_rate: float = field(kw_only=True)

    _kind = PR

    @classmethod
    def _read(cls, result: Evaluation, band: BandKind | None) -> dict[str, Any]:
        share = float(result.pr_curve().precision[0])
        return super()._read(result, band) | {"positive_rate": share}

    def _chance(self) -> tuple[Floats, Floats]:
        return np.array([0.0, 1.0]), np.full(2, self.positive_rate)

    def _shown(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        if x[0] > x[-1]:
            x, y = x[::-1], y[::-1]
        some = x > _RECALL_FROM
        start = np.interp(_RECALL_FROM, x, y)
        return np.append(_RECALL_FROM, x[some]), np.append(start, y[some])

    def _corner(self) -> Corner:
        return clearest(self.ax_, ("lower left", "upper right", "lower right"), self._legend_pad)


@dataclass(eq=False)
class DetCurveDisplay(_CurveDisplay):
    """A DET curve: false negative rate against false positive rate, as normal deviates.

    Attributes are those of :class:`RocCurveDisplay`, without an area. `x` and `y` are rates;
    those beyond 0.1% or 99.9%, 0 among them, are drawn at the edge.
    """

    _kind = DET

    def _limits(self) -> Limits:
        from scipy.special import ndtri  # here and below: only a DET curve needs it

        edge = 1.01 * float(ndtri(_DET_TICKS[-1]))
        return (-edge, edge), (-edge, edge)

    def _chance(self) -> tuple[Floats, Floats]:
        x, _ = self._limits()
        return np.array(x), np.array(x[::-1])

    def _corner(self) -> Corner:
        return "upper right"

    def _scaled(self, values: Floats) -> Floats:
        from scipy.special import ndtri

        deviates: Floats = ndtri(np.clip(values, _DET_TICKS[0], _DET_TICKS[-1]))
        return deviates

    def _dress(self) -> None:
        from scipy.special import ndtri

        super()._dress()
        room = side(self.ax_)
        ticks = _DET_TICKS[:: 1 if room > 3.3 else 2 if room > SMALL else 4]
        for axis in (self.ax_.xaxis, self.ax_.yaxis):
            axis.set_ticks(ndtri(ticks), [f"{100 * tick:g}%" for tick in ticks])


@dataclass(eq=False)
class PrGainDisplay(_CurveDisplay):
    """A precision-recall-gain curve (Flach & Kull 2015).

    Attributes are those of :class:`RocCurveDisplay`. Recall gains are drawn from 0 to 1;
    precision gains below -1 are not shown.
    """

    _kind = PR_GAIN
    _legend_pad = 1.5  # above the chance level, which is 0

    def _limits(self) -> Limits:
        lowest = min(each.min() for each in (self.y, self.band.low if self.band else self.y))
        return _SHARES, (max(lowest - 0.05, -1.0) if lowest < 0 else _SHARES[0], _SHARES[1])

    def _chance(self) -> tuple[Floats, Floats]:
        return np.array([0.0, 1.0]), np.zeros(2)

    def _corner(self) -> Corner:
        return clearest(self.ax_, ("lower left", "upper right"), self._legend_pad)


@dataclass(eq=False)
class GainDisplay(_CurveDisplay):
    """Cumulative gain: the share of positives found among the highest scores; or the lift.

    Attributes are those of :class:`RocCurveDisplay`, without an area. Lift at the first 1% of
    examples hangs on few of them: what rises above the rest there is cut off.
    """

    lift: bool = field(default=False, kw_only=True)

    _kind = GAIN

    @classmethod
    def from_evaluation(
        cls,
        result: Evaluation,
        *,
        name: str | None = None,
        band: BandKind | None = "pointwise",
        lift: bool = False,
    ) -> Self:
        """The gain of a result, or with `lift` how many times that of chance it is.

        Other parameters are as for :class:`RocCurveDisplay`.
        """
        gain = super().from_evaluation(result, name=name, band=band)
        return gain._lifted() if lift else gain

    def _lifted(self) -> Self:
        some = self.x > 0
        band = self.band
        if band is not None:
            x = band.x[band.x > 0]
            low, high = (each[band.x > 0] / x for each in (band.low, band.high))
            band = band._replace(x=x, low=low, high=high)
        y = self.y[some] / self.x[some]
        return replace(self, x=self.x[some], y=y, band=band, lift=True)

    def _limits(self) -> Limits:
        if not self.lift:
            return _SHARES, _SHARES
        highest = float(self.y[self.x >= _LIFT_FROM].max())
        return _SHARES, (0.0, max(1.05 * highest, 1.5))

    def _labels(self) -> tuple[str, str]:
        across, up = super()._labels()
        return across, "Lift (times chance)" if self.lift else up

    def _chance(self) -> tuple[Floats, Floats]:
        return np.array([0.0, 1.0]), np.array([1.0 if self.lift else 0.0, 1.0])

    def _corner(self) -> Corner:
        return "upper right" if self.lift else "lower right"
