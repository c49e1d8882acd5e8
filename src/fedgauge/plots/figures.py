"""Pictures of a result as PNG files: its curves, calibration, and what slices are compared by."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np

from fedgauge.errors import InputError, RecordError, UndefinedMetric
from fedgauge.metrics.bands import PR, ROC
from fedgauge.plan import Slice
from fedgauge.plots.base import Drawn, draw_legend, is_dark
from fedgauge.plots.calibration import DecisionCurveDisplay, ReliabilityDisplay
from fedgauge.plots.comparison import ComparisonDisplay, ConfusionMatrixDisplay, GapDisplay
from fedgauge.plots.curves import PrecisionRecallDisplay, RocCurveDisplay
from fedgauge.results.evaluation import Evaluation
from fedgauge.results.signature import Signature
from fedgauge.results.summary import mapping, promise, who
from fedgauge.storage import open_regular, written_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_EXACT = "#e69138"
_OTHER = "#9a9a9a"
_QUIET, _ALARM = "#666666", "#b00020"
_QUIET_ON_DARK, _ALARM_ON_DARK = "#aaaaaa", "#ff7b72"
_FOOT_WIDTH = 88  # characters in a line
# Inches. The curves are a square of one size; what stands below it makes the picture higher.
_WIDTH, _SIDE, _LEFT, _ABOVE, _LABELS = 5.4, 4.3, 0.8, 0.9, 0.65
_LEGEND_LINE, _FOOT_LINE, _MARGIN = 0.19, 0.135, 0.12
_MADE_BY = {"Software": "fedgauge"}
_TAG = b"Software\x00fedgauge"  # as a PNG holds it, near its beginning
_HEAD_BYTES = 1024

NAMES = ("roc.png", "pr.png", "reliability.png", "decision.png")
OF_SLICES = ("gaps.png", "confusion.png", "comparison.png")


_Table = GapDisplay | ComparisonDisplay | ConfusionMatrixDisplay
_TWO = 2  # models, which are compared


class Overlay(NamedTuple):
    """Another curve drawn beside the pooled one."""

    label: str
    kind: Literal["exact", "client"]  # only the first client is in the legend
    x: Any
    y: Any


def save_plots(
    result: Evaluation,
    folder: str | Path,
    *,
    name: str = "pooled",
    roc: Sequence[Overlay] = (),
    pr: Sequence[Overlay] = (),
    signature: Signature | None = None,
) -> list[Path]:
    """Draw a result into ``roc.png`` and ``pr.png``; returns the paths.

    Where scores are probabilities, also into ``reliability.png`` and ``decision.png``. Slices have
    curves in them. ``gaps.png`` has the ROC AUC of groups, ``comparison.png`` how two models
    differ, and ``confusion.png`` the confusion matrix of classes where it was counted.

    Parameters
    ----------
    result
        What was measured. Who took part and what is promised stands above the curves; below,
        whether it is signed, and why its numbers are not to be relied on, if so.
    folder
        Where to save them.
    name
        Of the model, for the legend; slices have names of their own.
    roc, pr
        Other curves.
    signature
        If it was compared with known keys; else that of the result.
    """
    called = None if len(result.slices) > 1 else name
    pictures = [
        *zip(_curves(result, called), (ROC.title, PR.title), (roc, pr), strict=True),
        *((each, title, ()) for each, title in _of_probabilities(result, called)),
    ]
    signed, figures = signature or result.signature, {}
    for file, (display, title, overlays) in zip(NAMES, pictures, strict=False):
        figure, axes = _square(title, result)
        _overlay(axes, overlays, display)
        look = {} if display.overlaid else {"linewidth": 2}
        display._draw(axes, None, look, chance=True, spacious=True)
        draw_legend(axes, "below", 0.0)
        foot = _Foot.of(axes, signed, result, display.rough)
        figure.text(0.985, 0.015, foot.text, ha="right", va="bottom", **foot.look)
        _fit(figure, axes, foot.lines)
        figures[file] = figure
    for file, title, table in _of_slices(result):
        figures[file] = _laid_out(title, table, signed, result)
    return [_save(figure, Path(folder) / file) for file, figure in figures.items()]


def draw(result: Evaluation) -> Figure:
    """The curves of a result in one figure, two in a row."""
    import matplotlib.pyplot as plt

    name = None if len(result.slices) > 1 else "pooled"
    pictures = [
        *zip(_curves(result, name), (ROC.title, PR.title), strict=True),
        *_of_probabilities(result, name),
    ]
    rows = len(pictures) // 2
    figure, axes = plt.subplots(
        rows, 2, figsize=(2 * _WIDTH, rows * _WIDTH), layout="constrained", squeeze=False
    )
    figure.suptitle(_facts(result))
    for (display, title), place in zip(pictures, axes.flat, strict=True):
        display.plot(ax=place)
        place.set_title(title)
    return figure


def _curves(result: Evaluation, name: str | None) -> tuple[Drawn, Drawn]:
    try:
        return (
            RocCurveDisplay.from_evaluation(result, name=name),
            PrecisionRecallDisplay.from_evaluation(result, name=name),
        )
    except UndefinedMetric:
        raise UndefinedMetric(
            "this result has no curves to draw: a class has no examples, or noise hides it."
        ) from None


def _of_probabilities(result: Evaluation, name: str | None) -> list[tuple[Drawn, str]]:
    """Displays and their titles; none where scores are no probabilities."""
    try:
        return [
            (ReliabilityDisplay.from_evaluation(result, name=name), "Reliability diagram"),
            (DecisionCurveDisplay.from_evaluation(result, name=name), "Decision curve"),
        ]
    except (UndefinedMetric, InputError):  # the latter of several models and classes at once
        return []


def _of_slices(result: Evaluation) -> list[tuple[str, str, _Table]]:
    """Files, titles and displays of what slices are compared by."""
    task, mine, mapped = result.plan.task, result.slice, result.mapped_by is not None
    found: list[tuple[str, str, _Table]] = []
    if task.groups and mine.group is None and not result.is_several:
        gaps = GapDisplay.from_gaps(result.gaps("roc_auc"))
        found.append((OF_SLICES[0], "ROC AUC by group", gaps))
    if "confusion" in task.also:
        if result.has_average and mine.group is None and not mapped:
            matrix = ConfusionMatrixDisplay.from_matrix(result.confusion_matrix(), normalize="true")
            found.append((OF_SLICES[1], "Confusion matrix", matrix))
    elif (
        len(task.models) == _TWO and mine == Slice() and task.labels_told == (None,) and not mapped
    ):
        both = ComparisonDisplay.from_comparison(result.compare(*task.models))
        found.append((OF_SLICES[2], "Difference of the models", both))
    return found


def _square(title: str, result: Evaluation) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _WIDTH), dpi=150)
    axes = figure.add_axes((_LEFT / _WIDTH, 0.1, _SIDE / _WIDTH, _SIDE / _WIDTH))
    axes.set_title(title, pad=35)
    axes.annotate(
        _facts(result),
        (0.5, 1.02),
        xycoords="axes fraction",
        ha="center",
        va="bottom",
        fontsize="small",
        alpha=0.7,
        linespacing=1.4,
    )
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _facts(result: Evaluation) -> str:
    """Who took part, and what is promised."""
    return f"{who(result)}\n{promise(result) or 'exact sum'}"


def _fit(figure: Figure, axes: Axes, foot_lines: int) -> None:
    """Make the picture as high as the legend and the foot need."""
    legend = axes.get_legend()
    entries = [text.get_text() for text in legend.get_texts()] if legend else []
    legend_lines = sum(1 + entry.count("\n") for entry in entries)
    below = _LABELS + legend_lines * _LEGEND_LINE + foot_lines * _FOOT_LINE + 2 * _MARGIN
    height = _ABOVE + _SIDE + below
    figure.set_size_inches(_WIDTH, height)
    axes.set_position((_LEFT / _WIDTH, below / height, _SIDE / _WIDTH, _SIDE / height))


def _overlay(axes: Axes, overlays: Sequence[Overlay], display: Drawn) -> None:
    """Draw the other curves, as much of them as the display shows of its own."""
    first_client = True
    for overlay in overlays:
        x, y = display._shown(np.asarray(overlay.x), np.asarray(overlay.y))
        if overlay.kind == "client":
            label = overlay.label if first_client else None
            axes.plot(x, y, color=_OTHER, linewidth=1, label=label)
            first_client = False
        else:
            axes.plot(x, y, color=_EXACT, linewidth=5, alpha=0.6, label=overlay.label)


class _Foot(NamedTuple):
    """What to know about a picture, to stand below it."""

    text: str
    look: dict[str, Any]

    @property
    def lines(self) -> int:
        return 1 + self.text.count("\n")

    @classmethod
    def of(cls, axes: Axes, signature: Signature, result: Evaluation, rough: str | None) -> Self:
        """Of a result on axes, which may be dark."""
        caution, through = result.caution, mapping(result)
        told = [f"mapped by {through}"] if through else []
        told += [f"rough: {rough}"] if rough else []
        told += [f"caution: {caution}"] if caution else []
        told.append(signature.in_brief)
        lines = [line for each in told for line in textwrap.wrap(each, _FOOT_WIDTH)]
        quiet, alarm = (_QUIET_ON_DARK, _ALARM_ON_DARK) if is_dark(axes) else (_QUIET, _ALARM)
        look: dict[str, Any] = {"color": quiet}
        if caution is not None or signature.state == "broken":
            look = {"color": alarm, "weight": "bold"}
        return cls("\n".join(lines), {"fontsize": 7.5, **look})


def _laid_out(title: str, table: _Table, signature: Signature, result: Evaluation) -> Figure:
    """A picture as large as what it shows needs, with the same words around it."""
    from matplotlib.figure import Figure

    width, height = table._size()
    figure = Figure(figsize=(max(width, _WIDTH), height + 1.0), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    foot = _Foot.of(axes, signature, result, None)
    figure.suptitle(f"{title}\n{_facts(result)}", fontsize="medium", linespacing=1.4)
    figure.supxlabel(foot.text, x=0.985, ha="right", **foot.look)
    table.plot(ax=axes)
    return figure


def is_plot(path: Path) -> bool:
    """Whether a file is a picture that fedgauge drew."""
    with open_regular(path) as file:
        return _TAG in file.read(_HEAD_BYTES)


def _save(figure: Figure, path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror}.") from None
    with written_whole(path) as file:
        figure.savefig(file, format="png", metadata=_MADE_BY)
    return path
