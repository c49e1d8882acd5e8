"""ROC and PR curves of a record as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from fedgauge.errors import RecordError, UndefinedMetric
from fedgauge.estimation.distribution import estimate
from fedgauge.measures.curves import PrCurve, RocCurve, pr_curve, roc_curve
from fedgauge.results.record import MetricRecord, Record

if TYPE_CHECKING:  # matplotlib takes half a second to load: only commands that draw wait for it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POOLED = "#0b5394"
_EXACT = "#e69138"
_OTHER = "#b7b7b7"
_POINTS = 8  # drawn on each piece of a curve


class Overlay(NamedTuple):
    """Another curve drawn beside the pooled one.

    `exact` marks the curve of the pooled data, `client` that of one client; only the
    first client drawn gets an entry in the legend.
    """

    label: str
    kind: Literal["exact", "client"]
    x: Any
    y: Any


def save_plots(
    record: Record,
    folder: str | Path,
    *,
    roc: Sequence[Overlay] = (),
    pr: Sequence[Overlay] = (),
) -> list[Path]:
    """Draw the curves of a record into ``roc.png`` and ``pr.png``; returns their paths."""
    (part,) = record.slices
    if part.curves.roc is None:
        raise UndefinedMetric(
            "this result has no curves to draw: a class has no examples, or noise hides it."
        )
    # The knots alone would hide how the curve runs between them.
    counts = np.array(part.counts, dtype=np.float64)
    distribution = estimate(record.plan.axis, counts, record.estimator)
    roc_figure = _draw_roc(roc_curve(distribution), part.metrics["roc_auc"], roc)
    pr_figure = _draw_pr(pr_curve(distribution), part.metrics["average_precision"], pr)
    return [
        _save(figure, Path(folder) / name)
        for figure, name in ((roc_figure, "roc.png"), (pr_figure, "pr.png"))
    ]


def _draw_roc(curve: RocCurve, auc: MetricRecord, overlays: Sequence[Overlay]) -> Figure:
    figure, axes = _square("ROC curve", "False positive rate", "True positive rate")
    axes.plot([0, 1], [0, 1], color=_OTHER, linewidth=1, linestyle=":", label="chance")
    _overlay(axes, overlays)
    label = f"fedgauge, AUC {auc.value:.4f}"
    axes.plot(*curve.path.sample(_POINTS), color=_POOLED, linewidth=2, label=label)
    return _legend(figure, axes, "lower right")


def _draw_pr(curve: PrCurve, ap: MetricRecord, overlays: Sequence[Overlay]) -> Figure:
    figure, axes = _square("Precision-recall curve", "Recall", "Precision")
    axes.axhline(curve.precision[0], color=_OTHER, linewidth=1, linestyle=":", label="chance")
    _overlay(axes, overlays)
    label = f"fedgauge, AP {ap.value:.4f}"
    axes.plot(*curve.path.sample(_POINTS), color=_POOLED, linewidth=2, label=label)
    return _legend(figure, axes, "best")


def _square(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4, 5.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.set(
        title=title, xlabel=x, ylabel=y, xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal"
    )
    axes.grid(color="#eeeeee")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _overlay(axes: Axes, overlays: Sequence[Overlay]) -> None:
    first_client = True
    for overlay in overlays:
        x, y = np.asarray(overlay.x), np.asarray(overlay.y)
        if overlay.kind == "client":
            label = overlay.label if first_client else None
            axes.plot(x, y, color=_OTHER, linewidth=1, label=label)
            first_client = False
        else:
            axes.plot(x, y, color=_EXACT, linewidth=4, alpha=0.6, label=overlay.label)


def _legend(figure: Figure, axes: Axes, where: Literal["lower right", "best"]) -> Figure:
    axes.legend(loc=where, frameon=True, framealpha=0.9, edgecolor="none", fontsize=9)
    return figure


def _save(figure: Figure, path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="png")
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror}.") from None
    return path
