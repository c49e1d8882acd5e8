"""Reliability diagrams and decision curves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self, SupportsFloat

import numpy as np

from fedgauge.arrays import Floats
from fedgauge.metrics.bands import Band
from fedgauge.metrics.calibration import GROUPS, Strategy
from fedgauge.metrics.estimate import Interval
from fedgauge.plots.base import (
    STRIP,
    By,
    Corner,
    Limits,
    Zoomed,
    clearest,
    drawn_lines,
    entry,
    mark,
    read_slices,
    strip_of,
)
from fedgauge.results.evaluation import Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import Collection

_LEAST: Final = 1e-9
_NOTHING: Final = 0.95  # width of an interval that says nothing; of one example it is 0.79
_UNSURE: Final = 0.5  # width of an interval without which a point would mislead
_BARS: Final = 50  # of the score histogram
_ROOM: Final = 1.1  # beyond the farthest point
_HALF: Final = 0.5  # where points reach farther, the axes go to 1


class Spread(NamedTuple):
    """A histogram: edges of its bars, and how high they are."""

    edges: Floats
    density: Floats


@dataclass(eq=False)
class ReliabilityDisplay(Zoomed):
    """A reliability diagram: share of positives against mean score, and how scores spread.

    Where noise leaves nothing to say of a group, its interval is drawn without a point.

    Attributes
    ----------
    x, y
        Mean score and share of positives of each group of bins.
    band
        Where that share lies in the population, for each group by itself.
    area
        The expected calibration error, in the legend with its interval.
    name, rule
        For the legend; the latter says how bins were grouped.
    scores
        How scores spread, drawn in a strip below the points; None for no strip.
    log
        Whether both axes are logarithmic; shares of 0 are drawn at the edge.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.6])})
    >>> display = fg.ReliabilityDisplay.from_evaluation(result, bins=2).plot()
    >>> display.ax_.get_ylabel()
    'Share of positives'
    """

    rule: str = field(default="groups", kw_only=True)
    scores: Spread | None = field(default=None, kw_only=True, repr=False)
    log: bool = field(default=False, kw_only=True)

    strip_: Axes | None = field(init=False, repr=False)

    _look: ClassVar[dict[str, Any]] = {"marker": "o", "markersize": 4}
    _without_skill: ClassVar[str] = "calibrated"

    @classmethod
    def from_evaluation(
        cls,
        result: Evaluation,
        *,
        name: str | None = None,
        bins: int | Sequence[float] = GROUPS,
        strategy: Strategy = "uniform",
        histogram: bool = True,
        log: bool = False,
        by: By | None = "auto",
    ) -> Self:
        """The reliability diagram of a result, or of each of its slices.

        Parameters
        ----------
        result
            What was measured; its scores must be probabilities.
        name
            For the legend.
        bins, strategy
            As for :meth:`Evaluation.calibration_curve`.
        histogram
            Whether to show how scores spread.
        log
            Whether both axes are logarithmic. Where positives are rare, this and
            ``strategy="quantile"`` show what else is a dot in the corner.
        by
            What tells slices apart, as for :class:`RocCurveDisplay`. More than three have neither
            intervals nor a histogram, and of points only those with an interval below a half.
        """
        display = read_slices(
            result,
            by,
            lambda part, plain: cls._read(
                part, bins, strategy, plain=plain, histogram=histogram, log=log
            ),
            averages=False,
        )
        display.name = name
        return display

    @classmethod
    def _read(
        cls,
        result: Evaluation,
        bins: int | Sequence[float],
        strategy: Strategy,
        *,
        plain: bool,
        histogram: bool,
        log: bool,
    ) -> Self:
        curve = result.calibration_curve(bins, strategy=strategy)
        sure = curve.high - curve.low < _UNSURE
        kept = sure if plain and sure.any() else slice(None)
        x, y, low, high = (
            each[kept] for each in (curve.predicted, curve.observed, curve.low, curve.high)
        )
        display = cls(
            x,
            y,
            Band(x, low, high, curve.level, "pointwise"),
            result.calibration_error("expected", bins=bins, strategy=strategy),
            rule=curve.rule,
            log=log,
        )
        if histogram and not plain:
            display.scores = _spread(result, display._bars())
        return display

    def _labels(self) -> tuple[str, str]:
        return "Mean score", "Share of positives"

    def _area_name(self) -> str | None:
        return "ECE"

    def _shown_range(self) -> tuple[float, float]:
        """From where to where points are shown, on both axes."""
        points = np.concatenate(self._shown(self.x, self.y))
        reached = float(np.nanmax(points))
        end = 1.0 if reached > _HALF else (2.0 if self.log else _ROOM) * max(reached, _LEAST)
        if not self.log:
            return 0.0, end
        return float(points[points > 0].min(initial=end)) / 2.0, end

    def _shown(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        if self.band is None:
            return x, y
        known = self.band.high - self.band.low < _NOTHING
        return x, np.where(known, y, np.nan) if known.any() else y

    def _bars(self) -> Floats:
        """Edges of the score histogram."""
        low, end = self._shown_range()
        spaced = np.geomspace if self.log else np.linspace
        return spaced(low, end, _BARS + 1)

    def _limits(self) -> Limits:
        low, end = self._shown_range()
        floor = STRIP / (1.0 - STRIP) if self.scores is not None else 0.0
        if self.log:
            return (low, end), (low * (low / end) ** floor, end)
        room = 0.01 * end
        return (-room, end + room), (-max(floor * end, room) - room, end + room)

    def _scaled(self, values: Floats) -> Floats:
        return np.maximum(values, self._shown_range()[0])

    def _chance(self) -> tuple[Floats, Floats]:
        ends = np.array([_LEAST, 1.0]) if self.log else np.array([0.0, 1.0])
        return ends, ends

    def _corner(self) -> Corner:
        return clearest(self.ax_, ("upper left", "lower right"), self._legend_pad)

    def _set_limits(self, first: bool) -> None:
        if first and self.log:
            self.ax_.set(xscale="log", yscale="log")
        super()._set_limits(first)

    def _dress(self) -> None:
        super()._dress()
        if self.log:
            return
        from matplotlib.ticker import AutoLocator

        class NotNegative(AutoLocator):
            """Beside the strip there are no shares."""

            def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
                ticks: Sequence[float] = super().tick_values(max(vmin, 0.0), vmax)
                return ticks

        self.ax_.yaxis.set_major_locator(NotNegative())

    def _draw_band(self) -> Collection | None:
        if self.band is None:
            return None
        x, low, high = map(self._scaled, (self.band.x, self.band.low, self.band.high))
        drawn = self.ax_.vlines(
            x,
            low,
            high,
            color=self.line_.get_color(),
            alpha=0.6,
            linewidth=1.5,
            label=entry(self.ax_, f"{self.band.level * 100:g}% intervals of {self.rule}", None)
            or "",
        )
        mark(self.ax_, drawn, "band")
        return drawn

    def _draw_more(self, plain: bool) -> None:
        self.strip_ = strip_of(self.ax_)
        if plain or self.scores is None:
            return
        if self.strip_ is None:
            self.strip_ = self._new_strip()
        first, colour = not self.strip_.patches, self.line_.get_color()
        edges, density = self.scores
        self.strip_.stairs(density, edges, color=colour, fill=first, alpha=0.5 if first else 1.0)
        _, top = self.strip_.get_ylim()
        highest = 1.15 * float(density.max(initial=_LEAST))
        self.strip_.set_ylim(0.0, highest if first else max(top, highest))

    def _new_strip(self) -> Axes:
        strip = self.ax_.inset_axes((0.0, 0.0, 1.0, STRIP), sharex=self.ax_)
        strip.tick_params(
            which="both", left=False, labelleft=False, bottom=False, labelbottom=False
        )
        strip.spines[["left", "right", "bottom"]].set_visible(False)
        strip.set_ylabel("scores", fontsize="x-small", rotation=0, ha="right", va="center")
        mark(self.ax_, strip, "strip")
        return strip


def _spread(result: Evaluation, bars: Floats) -> Spread:
    """Examples by bar, over its width: so bars of different widths can be compared."""
    axis, totals = result.pooled.axis, result.pooled.counts.sum(axis=0)
    if axis.kind == "values":
        counts, _ = np.histogram(axis.edges[:-1], bars, weights=totals)
    else:
        below = np.append(0.0, np.cumsum(totals))
        counts = np.diff(np.interp(bars, axis.edges, below))
    widths = np.diff(bars) if bars[0] <= 0 else np.diff(np.log(bars))  # as wide as they look
    return Spread(bars, counts / (totals.sum() * widths))


_DEEPEST: Final = 0.25  # of what is shown above 0, is shown below it
_LOW: Final = 0.03  # of the highest benefit: where the last that is higher lies, the axes end
_RISKS: Final = np.linspace(0.0, 0.995, 200)  # at which treating everybody is drawn


@dataclass(eq=False)
class DecisionCurveDisplay(Zoomed):
    """A decision curve: net benefit against the threshold, next to treating all and none.

    A bar at the bottom marks thresholds at which the model is surely better than both. Nothing is
    shown beyond the last threshold at which there is much benefit, nor far below 0.

    Attributes
    ----------
    x, y
        Thresholds and net benefits.
    band
        Where the net benefit of the population lies, at each single threshold.
    name
        For the legend.
    positive_rate
        Share of positives, which decides what treating all is worth.
    useful
        Ranges of thresholds with surely better benefit; see :class:`fedgauge.DecisionCurve`.
    caution
        Why its intervals are rough, if they are.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1] * 200, [0.2, 0.7, 0.1, 0.6] * 100)})
    >>> display = fg.DecisionCurveDisplay.from_evaluation(result, name="triage").plot()
    >>> display.line_.get_label()
    'triage (useful 0.1 to 0.7)'
    """

    positive_rate: float = field(kw_only=True)
    useful: tuple[Interval, ...] = field(default=(), kw_only=True)
    caution: str | None = field(default=None, kw_only=True)

    _without_skill: ClassVar[str] = "treat all"

    @classmethod
    def from_evaluation(
        cls,
        result: Evaluation,
        *,
        name: str | None = None,
        thresholds: Iterable[SupportsFloat] | None = None,
        by: By | None = "auto",
    ) -> Self:
        """The decision curve of a result, or of each of its slices.

        Parameters
        ----------
        result
            What was measured; its scores must be probabilities.
        name
            For the legend.
        thresholds
            As for :meth:`Evaluation.decision_curve`.
        by
            What tells slices apart, as for :class:`RocCurveDisplay`. More than three have neither
            bands nor bars, and what treating all is worth is that of all rows.
        """
        at = None if thresholds is None else list(thresholds)
        display = read_slices(result, by, lambda part, _: cls._read(part, at), averages=False)
        display.name = name
        return display

    @classmethod
    def _read(cls, result: Evaluation, thresholds: list[SupportsFloat] | None) -> Self:
        curve = result.decision_curve(thresholds)
        pooled = result.pooled
        return cls(
            curve.thresholds,
            curve.net_benefit,
            Band(curve.thresholds, curve.low, curve.high, curve.level, "pointwise"),
            None,
            positive_rate=pooled.positives / (pooled.positives + pooled.negatives),
            useful=curve.useful,
            caution=curve.caution,
        )

    @property
    def rough(self) -> str | None:
        """Why its numbers are rough, if they are."""
        return self.caution

    def _labels(self) -> tuple[str, str]:
        return "Threshold", "Net benefit"

    def _area_name(self) -> str | None:
        return None

    def _label(self, name: str | None, brief: bool) -> Callable[[int], str | None]:
        ax, spans = self.ax_, self.useful
        if brief:
            return lambda _: entry(ax, name, None)
        ends = [(f"{low:.2g}", f"{high:.2g}") for low, high in spans]
        shown = ", ".join(" to ".join(dict.fromkeys(each)) for each in ends) or "nowhere"
        if len(spans) > 2:
            shown = f"{spans[0].low:.2g} to {spans[-1].high:.2g}, with gaps"
        rough = ", rough" if self.rough else ""
        return lambda _: entry(ax, name, f"useful {shown}{rough}")

    def _limits(self) -> Limits:
        low = self.band.low if self.band else self.y
        top = _ROOM * max(float(self.y.max()), self.positive_rate, 1e-9)
        bottom = max(min(float(low.min()), -0.05 * top), -_DEEPEST * top)
        worth = [*self.x[self.y > _LOW * top], *(span.high for span in self.useful), self.x[0]]
        return (0.0, min(_ROOM * float(max(worth)), float(self.x[-1]))), (bottom, top)

    def _corner(self) -> Corner:
        return clearest(self.ax_, ("upper right", "lower left"), self._legend_pad)

    def _chance(self) -> tuple[Floats, Floats]:
        odds = _RISKS / (1.0 - _RISKS)
        return _RISKS, self.positive_rate - odds * (1.0 - self.positive_rate)

    def _draw_more(self, plain: bool) -> None:
        from matplotlib.lines import Line2D

        ax, many = self.ax_, len(drawn_lines(self.ax_, "curve"))
        if not any(line.get_label() == "treat none" for line in ax.lines):
            colour = ax.xaxis.label.get_color()
            (line,) = ax.plot(_RISKS, 0.0 * _RISKS, "-", color=colour, linewidth=1.0, zorder=1.5)
            line.set(alpha=0.7, label="treat none")
            mark(ax, line, "chance")
        for span in () if plain else self.useful:
            bar = Line2D(
                span,
                [0.02 * many - 0.005] * 2,
                color=self.line_.get_color(),
                linewidth=3,
                solid_capstyle="butt",
                transform=ax.get_xaxis_transform(),
            )
            ax.add_line(bar)
            mark(ax, bar, "range")
