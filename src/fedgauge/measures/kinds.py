"""The kinds of curves: one row for each, from which results and displays follow."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from fedgauge.estimation.distribution import ScoreDistribution
from fedgauge.measures import bands, curves
from fedgauge.measures.bands import Band, BandKind
from fedgauge.measures.curves import DetCurve, GainCurve, PrCurve, PrGainCurve, RocCurve
from fedgauge.measures.reading import Reading

Curve = TypeVar("Curve")


@dataclass(frozen=True)
class CurveKind(Generic[Curve]):
    """What a curve is called and how it is made.

    Attributes
    ----------
    name
        As in ``result.roc_curve()`` and ``result.roc_band()``.
    title
        For people.
    labels
        Of the abscissa and the ordinate.
    make
        The curve of a distribution.
    band
        Where the curve of the population lies.
    area
        The metric that is the area under it, and how a legend calls that; None where the area
        says nothing.
    """

    name: str
    title: str
    labels: tuple[str, str]
    make: Callable[[ScoreDistribution], Curve]
    band: Callable[[Reading, BandKind], Band]
    area: tuple[str, str] | None = None


ROC: Final[CurveKind[RocCurve]] = CurveKind(
    "roc",
    "ROC curve",
    ("False positive rate", "True positive rate"),
    curves.roc_curve,
    bands.roc_band,
    area=("roc_auc", "AUC"),
)
PR: Final[CurveKind[PrCurve]] = CurveKind(
    "pr",
    "Precision-recall curve",
    ("Recall", "Precision"),
    curves.pr_curve,
    bands.pr_band,
    area=("average_precision", "AP"),
)
DET: Final[CurveKind[DetCurve]] = CurveKind(
    "det",
    "DET curve",
    ("False positive rate", "False negative rate"),
    curves.det_curve,
    bands.det_band,
)
PR_GAIN: Final[CurveKind[PrGainCurve]] = CurveKind(
    "prg",
    "Precision-recall-gain curve",
    ("Recall gain", "Precision gain"),
    curves.prg_curve,
    bands.prg_band,
    area=("auprg", "AUPRG"),
)
GAIN: Final[CurveKind[GainCurve]] = CurveKind(
    "gain",
    "Cumulative gain curve",
    ("Share of examples flagged", "Recall"),
    curves.gain_curve,
    bands.gain_band,
)
