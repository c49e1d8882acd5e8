"""ROC and PR curves of a result as PNG files."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from fedgauge.errors import RecordError, UndefinedMetric
from fedgauge.estimation.piecewise import ParametricCurve
from fedgauge.measures.kinds import PR, ROC, CurveKind
from fedgauge.results.evaluation import Evaluation
from fedgauge.results.proof import Signature

if TYPE_CHECKING:  # matplotlib takes half a second to load: only commands that draw wait for it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POOLED = "#0b5394"
_EXACT = "#e69138"
_OTHER = "#b7b7b7"
_QUIET = "#666666"
_ALARM = "#b00020"
_FOOT_WIDTH = 80  # characters in a line
_POINTS = 8  # drawn on each piece of a curve
_MADE_BY = {"Software": "fedgauge"}
_TAG = b"Software\x00fedgauge"  # as a PNG holds it, near its beginning
_HEAD_BYTES = 1024

NAMES = ("roc.png", "pr.png")


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
    result: Evaluation,
    folder: str | Path,
    *,
    roc: Sequence[Overlay] = (),
    pr: Sequence[Overlay] = (),
    signature: Signature | None = None,
) -> list[Path]:
    """Draw the curves of a result into ``roc.png`` and ``pr.png``; returns their paths.

    Below them stands whether the result is signed: `signature`, if it was compared with known
    keys, else that of the result.
    """
    try:
        figures = dict(zip(NAMES, (_draw_roc(result, roc), _draw_pr(result, pr)), strict=True))
    except UndefinedMetric:
        raise UndefinedMetric(
            "this result has no curves to draw: a class has no examples, or noise hides it."
        ) from None
    for figure in figures.values():
        _foot(figure, signature or result.signature)
    return [_save(figure, Path(folder) / name) for name, figure in figures.items()]


def _draw_roc(result: Evaluation, overlays: Sequence[Overlay]) -> Figure:
    curve, auc = result.roc_curve(), result.roc_auc
    figure, axes = _square(ROC)
    axes.plot([0, 1], [0, 1], color=_OTHER, linewidth=1, linestyle=":", label="chance")
    _overlay(axes, overlays)
    _pooled(axes, curve.path, f"AUC {auc.value:.4f}")
    return _legend(figure, axes, "lower right")


def _draw_pr(result: Evaluation, overlays: Sequence[Overlay]) -> Figure:
    curve, ap = result.pr_curve(), result.average_precision
    figure, axes = _square(PR)
    axes.axhline(curve.precision[0], color=_OTHER, linewidth=1, linestyle=":", label="chance")
    _overlay(axes, overlays)
    _pooled(axes, curve.path, f"AP {ap.value:.4f}")
    return _legend(figure, axes, "best")


def _pooled(axes: Axes, path: ParametricCurve, area: str) -> None:
    # The knots alone would hide how the curve runs between them.
    x, y = path.sample(_POINTS)
    axes.plot(x, y, color=_POOLED, linewidth=2, label=f"fedgauge, {area}")


def _square(kind: CurveKind[Any]) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4, 5.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    x, y = kind.labels
    limits = (-0.01, 1.01)
    axes.set(title=kind.title, xlabel=x, ylabel=y, xlim=limits, ylim=limits, aspect="equal")
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


def _foot(figure: Figure, signature: Signature) -> None:
    text = "\n".join(textwrap.wrap(signature.in_brief, _FOOT_WIDTH))
    look = {"color": _ALARM, "weight": "bold"} if signature.state == "broken" else {"color": _QUIET}
    figure.supxlabel(text, x=0.99, ha="right", fontsize=7.5, **look)


def is_plot(path: Path) -> bool:
    """Whether a file is a picture that fedgauge drew."""
    with path.open("rb") as file:
        return _TAG in file.read(_HEAD_BYTES)


def _save(figure: Figure, path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="png", metadata=_MADE_BY)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror}.") from None
    return path
