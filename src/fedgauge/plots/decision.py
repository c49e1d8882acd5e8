"""What acting on scores is worth: decision curves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Final, Self, SupportsFloat

import numpy as np

from fedgauge.measures.bands import Band
from fedgauge.measures.intervals import Interval
from fedgauge.plots.axes import Corner, clearest, drawn_lines, entry, mark
from fedgauge.plots.drawn import Limits, Zoomed
from fedgauge.plots.overlaid import By, read_slices
from fedgauge.results.evaluation import Evaluation
from fedgauge.typing import Floats

_ROOM: Final = 1.1  # beyond the farthest point
_DEEPEST: Final = 0.25  # of what is shown above 0, is shown below it
_LOW: Final = 0.03  # of the highest benefit: where the last that is higher lies, the axes end
_RISKS: Final = np.linspace(0.0, 0.995, 200)  # at which treating everybody is drawn


@dataclass(eq=False)
class DecisionCurveDisplay(Zoomed):
    """A decision curve: net benefit against the threshold, next to treating all and none.

    Thresholds at which the model is surely better than both are marked by a bar at the bottom.
    Nothing is shown beyond the last threshold at which there is much benefit, nor far below 0.

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
    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> import fedgauge as fg
    >>> result = fg.evaluate({"a": ([0, 1] * 200, [0.2, 0.7, 0.1, 0.6] * 100)})
    >>> display = fg.DecisionCurveDisplay.from_evaluation(result, name="triage").plot()
    >>> display.line_.get_label()
    'triage (useful 0.1 to 0.7)'
    >>> matplotlib.pyplot.close(display.figure_)
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
