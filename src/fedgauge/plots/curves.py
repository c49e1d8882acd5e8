"""Curves drawn with matplotlib: a display holds arrays and draws them on any axes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self, cast, get_args

import numpy as np

from fedgauge.arrays import Floats
from fedgauge.errors import InputError
from fedgauge.metrics.bands import DET, GAIN, PR, PR_GAIN, ROC, BandKind, CurveKind
from fedgauge.plots.base import (
    SHARES,
    SMALL,
    By,
    Corner,
    Drawn,
    Limits,
    clearest,
    read_slices,
    side,
)
from fedgauge.results.evaluation import Evaluation

_LIFT_FROM: Final = 0.01
_RECALL_FROM: Final = 0.01
_DET_TICKS: Final = (0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999)


@dataclass(eq=False)
class _CurveDisplay(Drawn):
    """A curve of a kind: how it is read off a result."""

    _kind: ClassVar[CurveKind[Any]]
    _averages: ClassVar[bool] = False  # whether there is a curve of all classes

    @classmethod
    def from_evaluation(
        cls,
        result: Evaluation,
        *,
        name: str | None = None,
        band: BandKind | None = "pointwise",
        by: By | None = "auto",
    ) -> Self:
        """The curve of a result, or of each of its slices.

        Parameters
        ----------
        result
            What was measured. Of several models, classes or groups each has a curve; those with
            none, withheld or undefined, are named in the legend. More than ten are thin grey lines.
        name
            For the legend; of slices, before their own names.
        band
            ``"pointwise"`` holds the population's curve at each single abscissa with the result's
            level, ``"simultaneous"`` the whole of it (:meth:`Evaluation.roc_band`). None for no
            band. More than three slices have none.
        by
            What tells slices apart: ``"model"``, ``"label"`` (one class against the rest) or
            ``"group"``; by default the first of these that the result has, if nothing was selected.
            The others are left open: all rows and, of ROC and PR curves, the average of classes.
            None for one curve, of all.
        """
        if band not in (None, *get_args(BandKind)):
            raise InputError(f"band must be 'pointwise', 'simultaneous' or None, got {band!r}.")
        display = read_slices(
            result,
            by,
            lambda part, plain: cls(**cls._read(part, None if plain else band)),
            averages=cls._averages,
        )
        display.name = name
        return display

    @classmethod
    def _read(cls, result: Evaluation, band: BandKind | None) -> dict[str, Any]:
        kind = cls._kind
        if cls._averages and result.has_average:
            x, y = getattr(result, f"macro_{kind.name}_curve")().points()
            area = result.macro(kind.area[0]) if kind.area else None
            return {"x": x, "y": y, "area": area}
        x, y = getattr(result, f"{kind.name}_curve")().points()
        return {
            "x": x,
            "y": y,
            "band": getattr(result, f"{kind.name}_band")(band) if band else None,
            "area": getattr(result, kind.area[0]) if kind.area else None,
        }

    def _labels(self) -> tuple[str, str]:
        return self._kind.labels

    def _area_name(self) -> str | None:
        return self._kind.area[1] if self._kind.area else None


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
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.8])})
    >>> first = fg.RocCurveDisplay.from_evaluation(result, name="triage").plot()
    >>> first.line_.get_label()
    'triage (AUC 0.75, 0.23 to 0.97)'

    A second result goes on the axes of the first:

    >>> second = fg.RocCurveDisplay.from_evaluation(result, name="B").plot(ax=first.ax_)
    >>> len(second.ax_.get_legend().get_texts())
    4
    """

    _kind = ROC
    _averages = True


@dataclass(eq=False)
class PrecisionRecallDisplay(_CurveDisplay):
    """A PR curve: precision against recall.

    Attributes are those of :class:`RocCurveDisplay`; `area` is the average precision. Precision at
    the first 1% of recall hangs on few examples: where the highest score is a negative's, it starts
    at 0 and is not drawn.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.8])})
    >>> display = fg.PrecisionRecallDisplay.from_evaluation(result, name="triage").plot()
    >>> display.line_.get_label()
    'triage (AP 0.83, 0.17 to 0.99, rough)'
    """

    positive_rate: float = field(kw_only=True)

    _kind = PR
    _averages = True

    @classmethod
    def _read(cls, result: Evaluation, band: BandKind | None) -> dict[str, Any]:
        average = cls._averages and result.has_average
        curve = result.macro_pr_curve() if average else result.pr_curve()
        share = float(curve.precision[0])
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

    Attributes are those of :class:`RocCurveDisplay`, without an area. `x` and `y` are rates; those
    beyond 0.1% or 99.9%, 0 among them, are drawn at the edge.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.8])})
    >>> fg.DetCurveDisplay.from_evaluation(result, name="triage").plot().line_.get_label()
    'triage'
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

    Attributes are those of :class:`RocCurveDisplay`. Recall gains are drawn from 0 to 1; precision
    gains below -1 are not shown.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.8])})
    >>> fg.PrGainDisplay.from_evaluation(result, name="triage").plot().line_.get_label()
    'triage (AUPRG 0.25, -0.67 to 1.00, rough)'
    """

    _kind = PR_GAIN
    _legend_pad = 1.5  # above the chance level, which is 0

    def _limits(self) -> Limits:
        lowest = min(each.min() for each in (self.y, self.band.low if self.band else self.y))
        return SHARES, (max(lowest - 0.05, -1.0) if lowest < 0 else SHARES[0], SHARES[1])

    def _chance(self) -> tuple[Floats, Floats]:
        return np.array([0.0, 1.0]), np.zeros(2)

    def _corner(self) -> Corner:
        return clearest(self.ax_, ("lower left", "upper right"), self._legend_pad)


@dataclass(eq=False)
class GainDisplay(_CurveDisplay):
    """Cumulative gain: the share of positives found among the highest scores; or the lift.

    Attributes are those of :class:`RocCurveDisplay`, without an area. Lift at the first 1% of
    examples hangs on few of them: what rises above the rest there is cut off.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1, 0], [0.2, 0.7, 0.9, 0.8])})
    >>> fg.GainDisplay.from_evaluation(result, name="triage").plot().line_.get_label()
    'triage'
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
        by: By | None = "auto",
        lift: bool = False,
    ) -> Self:
        """The gain of a result, or its `lift` over chance; see :class:`RocCurveDisplay`."""
        gain = super().from_evaluation(result, name=name, band=band, by=by)
        return gain._lifted() if lift else gain

    def _lifted(self) -> Self:
        some = self.x > 0
        band = self.band
        if band is not None:
            x = band.x[band.x > 0]
            low, high = (each[band.x > 0] / x for each in (band.low, band.high))
            band = band._replace(x=x, low=low, high=high)
        y = self.y[some] / self.x[some]
        overlaid = self.overlaid
        if overlaid is not None:
            others = (cast("Self", each)._lifted() for each in overlaid.others)
            overlaid = overlaid._replace(others=tuple(others))
        return replace(self, x=self.x[some], y=y, band=band, lift=True, overlaid=overlaid)

    def _limits(self) -> Limits:
        if not self.lift:
            return SHARES, SHARES
        highest = float(self.y[self.x >= _LIFT_FROM].max())
        return SHARES, (0.0, max(1.05 * highest, 1.5))

    def _labels(self) -> tuple[str, str]:
        across, up = super()._labels()
        return across, "Lift (times chance)" if self.lift else up

    def _chance(self) -> tuple[Floats, Floats]:
        return np.array([0.0, 1.0]), np.array([1.0 if self.lift else 0.0, 1.0])

    def _corner(self) -> Corner:
        return "upper right" if self.lift else "lower right"
