"""Gaps and differences of models as rows of intervals, and the confusion matrix."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

from fedgauge.arrays import Floats
from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.metrics.estimate import Estimate
from fedgauge.metrics.multiclass import ClassConfusion, Normalize
from fedgauge.plan.task import OTHER
from fedgauge.plots.base import SMALL, decimals, is_dark, lay_out, plain, side
from fedgauge.results.comparison import Comparison
from fedgauge.results.groups import Gap, Gaps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection, PathCollection
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.image import AxesImage
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.text import Text

_COLOUR, _STANDS_OUT = "#0072B2", "#D55E00"  # Okabe & Ito 2008
# Inches: a row, one of many, and what stands above and below all of them.
_ROW, _LOW_ROW, _AROUND = 0.34, 0.2, 1.5
_MANY: Final = 20  # rows
_UNDEFINED: Final = "undefined"
_NAMES_AN_INCH: Final = 8
_LONGEST: Final = 28  # characters in a line of a row's name
_LETTERS_AN_INCH: Final = 14  # of small text
_VALUES_FROM: Final = 3.5  # inches of axes beside which there is room for numbers
_Read = tuple[str, Callable[[Comparison], Estimate]]
_OVER_ALL: Final[tuple[_Read, ...]] = (
    ("ROC AUC", lambda each: each.roc_auc),
    ("average precision", lambda each: each.average_precision),
    ("Brier score, lower is better", lambda each: each.brier_score),
)
_AT: Final = ("precision", "recall", "specificity")


class ForestRow(NamedTuple):
    """One estimate and its name; without an estimate, why there is none in a word."""

    name: str
    estimate: Estimate | None
    note: str = ""


@dataclass(eq=False)
class _Forest:
    """Rows of estimates with intervals, drawn on any axes."""

    rows: tuple[ForestRow, ...]

    ax_: Axes = field(init=False, repr=False)
    figure_: Figure | SubFigure = field(init=False, repr=False)
    points_: PathCollection = field(init=False, repr=False)
    intervals_: LineCollection = field(init=False, repr=False)

    def _label(self) -> str:
        """Of the abscissa."""
        raise NotImplementedError

    def _verdict(self) -> str:
        """What stands above the rows."""
        raise NotImplementedError

    def _draw_more(self) -> None:
        """What else a display shows."""

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw a row for each estimate, the first on top; returns the display.

        `ax` is by default that of a new figure, as high as the rows need. What was drawn is in
        `ax_`, `figure_`, `points_` and `intervals_`.
        """
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots(figsize=self._size(), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        self._dress()
        self._draw_rows()
        self._draw_more()
        self._write_values()
        self._write_verdict()
        return self

    def _size(self) -> tuple[float, float]:
        """Of a figure of its own, in inches."""
        from matplotlib import rcParams

        row = _ROW if len(self.rows) <= _MANY else _LOW_ROW
        return rcParams["figure.figsize"][0], _AROUND + row * len(self.rows)

    def _inches(self) -> tuple[float, float]:
        """Width and height of the axes, before labels get their room."""
        box = self.ax_.get_window_extent()
        return box.width / self.ax_.figure.dpi, box.height / self.ax_.figure.dpi

    def _dress(self) -> None:
        ax, (width, height), rows = self.ax_, self._inches(), len(self.rows)
        is_small = width <= SMALL or rows > _MANY or rows * 0.3 > height
        lines = 1 if is_small else 2
        longest = _LONGEST if width >= _VALUES_FROM else _LONGEST // 2 + 2
        names = [
            "\n".join(textwrap.wrap(row.name, longest, max_lines=lines, placeholder=" …"))
            for row in self.rows
        ]
        ax.set_yticks(
            range(0, rows, self._step),
            [plain(name) for name in names[:: self._step]],
            fontsize="x-small" if is_small else "small",
        )
        ax.set(xlabel=self._label(), ylim=(rows - 0.4, -0.6))
        ax.tick_params(axis="y", length=0)
        ax.grid(True, axis="x", alpha=0.35, linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right", "left"]].set_visible(False)

    @property
    def _step(self) -> int:
        """Which rows are named: every one, or fewer where names would lie on each other."""
        _, height = self._inches()
        return max(math.ceil(len(self.rows) / (_NAMES_AN_INCH * height)), 1)

    def _draw_rows(self) -> None:
        known = [(y, row.name, row.estimate) for y, row in enumerate(self.rows) if row.estimate]
        places = [y for y, _, _ in known]
        values = [each.value for *_, each in known]
        colours = [self._colour(name) for _, name, _ in known]
        self.intervals_ = self.ax_.hlines(
            places,
            [each.value if each.low is None else each.low for *_, each in known],
            [each.value if each.high is None else each.high for *_, each in known],
            colors=colours,
            linewidth=2,
        )
        self.points_ = self.ax_.scatter(values, places, c=colours, s=36, zorder=2.5)

    def _colour(self, name: str) -> str:
        """Of a row."""
        del name
        return _COLOUR

    def _write_values(self) -> None:
        """Numbers to the right of rows where there is room, and why there is none in them."""
        width, _ = self._inches()
        has_room = width >= _VALUES_FROM and self._step == 1
        digits = max((decimals(row.estimate) for row in self.rows if row.estimate), default=2)
        for y, row in enumerate(self.rows):
            if row.estimate is None or has_room:
                self.ax_.annotate(
                    row.note if row.estimate is None else _numbers(row.estimate, digits),
                    (0.5 if row.estimate is None else 1.02, y),
                    xycoords=("axes fraction", "data"),
                    ha="center" if row.estimate is None else "left",
                    va="center",
                    fontsize="small" if len(self.rows) <= _MANY else "x-small",
                    alpha=0.7,
                    annotation_clip=False,
                )

    def _write_verdict(self) -> None:
        """Above the rows and the numbers beside them, as other axes may be farther right."""
        lay_out(self.ax_)
        rows, around = self.ax_.get_window_extent(), self.ax_.get_tightbbox()
        width = (around or rows).x1 - rows.x0
        room = int(_LETTERS_AN_INCH * width / self.ax_.figure.dpi)
        told = textwrap.fill(self._verdict(), max(room, _LONGEST))
        self.ax_.set_title(plain(told), loc="left", fontsize="small")


def _read_at(at: float | None) -> tuple[_Read, ...]:
    """What is compared at a threshold, if one is given."""
    if at is None:
        return ()

    def metric(name: str) -> _Read:
        return f"{name} at {at:g}", lambda each: getattr(each.at_threshold(at), name)

    benefit = f"net benefit at {at:g}", lambda each: each.net_benefit(at)
    return *map(metric, _AT), benefit


def _why(withheld: str) -> str:
    return "withheld" if withheld.startswith("withheld") else _UNDEFINED


def _numbers(estimate: Estimate, digits: int) -> str:
    value = f"{estimate.value:.{digits}f}"
    if estimate.low is None or estimate.high is None:
        return value
    rough = ", rough" if estimate.caution else ""
    return f"{value} ({estimate.low:.{digits}f} to {estimate.high:.{digits}f}{rough})"


@dataclass(eq=False)
class GapDisplay(_Forest):
    """A metric of every group with its interval, and the largest gap between two of them.

    The range between those two is shaded; above stands a verdict, in colour where the gap stands
    out among all that were compared.

    Attributes
    ----------
    rows
        The metric of each group, or that it is withheld or undefined.
    metric
        What is compared.
    level
        Confidence of the intervals.
    largest
        The largest gap; None where no two groups can be compared.
    verdict
        On the largest gap, in words.

    Examples
    --------
    >>> y_true, y_score = [1, 1, 0, 0] * 50, [0.9, 0.7, 0.6, 0.2] * 25 + [0.9, 0.3, 0.6, 0.2] * 25
    >>> rows = fg.Examples(y_true, y_score, group=["a"] * 100 + ["b"] * 100)
    >>> gaps = fg.evaluate({"site": rows}, groups=["a", "b"]).gaps("recall", at=0.5)
    >>> fg.GapDisplay.from_gaps(gaps).plot().ax_.get_xlabel()
    'recall at 0.5, 95% intervals'
    """

    metric: str
    level: float
    largest: Gap | None
    verdict: str

    span_: Patch | None = field(init=False, repr=False)

    @classmethod
    def from_gaps(cls, gaps: Gaps) -> Self:
        """Of ``result.gaps("recall", at=0.5)``; rows of no listed group if they have the metric."""
        every = (
            ForestRow(name, each, _why(gaps.withheld.get(name, "")))
            for name, each in gaps.groups.items()
        )
        rows = [row for row in every if (row.name, row.note) != (OTHER, _UNDEFINED) or row.estimate]
        largest = gaps.largest if gaps.pairs else None
        return cls(tuple(rows), gaps.metric, gaps.level, largest, gaps.verdict)

    def _label(self) -> str:
        return f"{self.metric}, {self.level * 100:g}% intervals"

    def _verdict(self) -> str:
        return self.verdict

    def _colour(self, name: str) -> str:
        gap = self.largest
        marked = gap is not None and gap.stands_out and name in (gap.group, gap.against)
        return _STANDS_OUT if marked else _COLOUR

    def _draw_more(self) -> None:
        self.span_ = None
        gap = self.largest
        values = {row.estimate.value for row in self.rows if row.estimate}
        if gap is not None and gap.first.value in values:  # of xAUC, a gap is of other rows
            colour = _STANDS_OUT if gap.stands_out else self.ax_.xaxis.label.get_color()
            ends = gap.second.value, gap.first.value
            self.span_ = self.ax_.axvspan(*ends, color=colour, alpha=0.12, linewidth=0)


@dataclass(eq=False)
class ComparisonDisplay(_Forest):
    """Differences of two models on the same rows, with a line at 0 and the margin, if any.

    Attributes
    ----------
    rows
        Differences, the first model less the second.
    models
        Their names.
    level
        Confidence of the intervals.
    margin
        How much lower the first model's ROC AUC may be for it not to be inferior, or None.
    verdict
        On the difference of ROC AUC, in words.

    Examples
    --------
    >>> scores = {"new": [0.1, 0.9, 0.8, 0.3], "old": [0.6, 0.9, 0.4, 0.3]}
    >>> result = fg.evaluate({"a": fg.Examples([0, 1, 1, 0], scores)}, models=["new", "old"])
    >>> display = fg.ComparisonDisplay.from_comparison(result.compare("new", "old")).plot()
    >>> display.ax_.get_xlabel()
    'new less old, 95% intervals'
    """

    models: tuple[str, str]
    level: float
    margin: float | None
    verdict: str

    margin_: Line2D | None = field(init=False, repr=False)

    @classmethod
    def from_comparison(cls, comparison: Comparison, *, at: float | None = None) -> Self:
        """Of ``result.compare("new", "old")``: ROC AUC, average precision and Brier score.

        With a threshold `at`, also precision, recall, specificity and net benefit there.
        """
        rows = []
        for title, read in (*_OVER_ALL, *_read_at(at)):
            try:
                rows.append(ForestRow(title, read(comparison)))
            except (UndefinedMetric, InputError):  # as of scores that are no probabilities
                continue
        models = comparison.first, comparison.second
        level = comparison.pair.level
        return cls(tuple(rows), models, level, comparison.margin, comparison.verdict)

    def _label(self) -> str:
        first, second = map(plain, self.models)
        return f"{first} less {second}, {self.level * 100:g}% intervals"

    def _verdict(self) -> str:
        return self.verdict

    def _draw_more(self) -> None:
        ax, colour = self.ax_, self.ax_.xaxis.label.get_color()
        ax.axvline(0.0, color=colour, linewidth=1.0, zorder=1.5)
        self.margin_ = None
        if self.margin is not None:  # of the ROC AUC, which is the first row, and no other
            (self.margin_,) = ax.plot([-self.margin] * 2, [-0.4, 0.4], "--", color=_STANDS_OUT)
            ax.annotate(
                "margin",
                (-self.margin, 0.4),
                xytext=(0, -1),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize="x-small",
                color=_STANDS_OUT,
            )


_MOST_NUMBERS: Final = 20  # classes whose cells have numbers
_LARGEST, _SMALLEST = 10.0, 4.5  # points: of text in cells
_LETTER: Final = 0.62  # how wide it is, of its height
_LIGHT: Final = (0.299, 0.587, 0.114)  # how much red, green and blue look like (ITU-R BT.601)
_HALF_LIGHT: Final = 0.55
_LONGEST_NAME: Final = 20  # characters of a class's name
_SHARES: Final = {
    "true": "Share of the true class",
    "pred": "Share of the predicted class",
    "all": "Share of all examples",
}


@dataclass(eq=False)
class ConfusionMatrixDisplay:
    """A confusion matrix: rows are true classes, columns predicted ones.

    Cells have numbers for up to twenty classes where they fit. Under noise counts are estimates:
    those below 0 are drawn as 0. Shares of a class without examples are left grey.

    Attributes
    ----------
    confusion_matrix
        Counts or shares, by true and by predicted class.
    display_labels
        The classes.
    normalize
        What shares are of: ``"true"``, ``"pred"`` or ``"all"``; None for counts.
    noise
        Standard deviation of the noise in a count; 0 without.

    Examples
    --------
    >>> rows = fg.Examples(["cat", "dog", "dog"], np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]))
    >>> task = fg.MulticlassTask(labels=["cat", "dog"], also=["confusion"])
    >>> matrix = fg.evaluate({"site": rows}, task=task).confusion_matrix()
    >>> display = fg.ConfusionMatrixDisplay.from_matrix(matrix, normalize="true").plot()
    >>> [[cell.get_text() for cell in row] for row in display.text_]
    [['1.00', '0.00'], ['0.50', '0.50']]
    """

    confusion_matrix: Floats = field(repr=False)
    display_labels: tuple[str, ...] = field(kw_only=True)
    normalize: Normalize | None = field(default=None, kw_only=True)
    noise: float = field(default=0.0, kw_only=True)

    ax_: Axes = field(init=False, repr=False)
    figure_: Figure | SubFigure = field(init=False, repr=False)
    im_: AxesImage = field(init=False, repr=False)
    text_: tuple[tuple[Text, ...], ...] | None = field(init=False, repr=False)

    @classmethod
    def from_matrix(cls, matrix: ClassConfusion, *, normalize: Normalize | None = None) -> Self:
        """Of ``result.confusion_matrix()``: counts, or shares as its ``normalized`` gives them."""
        cells = matrix.normalized(normalize) if normalize else np.asarray(matrix, dtype=np.float64)
        return cls(
            np.maximum(cells, 0.0),
            display_labels=matrix.labels,
            normalize=normalize,
            noise=math.sqrt(matrix.variance),
        )

    def plot(
        self,
        ax: Axes | None = None,
        *,
        include_values: bool | None = None,
        cmap: Any = None,
        colorbar: bool = True,
    ) -> Self:
        """Draw the matrix.

        Parameters
        ----------
        ax
            Where to draw; by default the axes of a new figure.
        include_values
            Whether cells have numbers; by default where they fit.
        cmap
            Colours, as for matplotlib's ``imshow``.
        colorbar
            Whether to show what colours mean.

        Returns
        -------
        display
            Itself, with what was drawn: `ax_`, `figure_`, `im_`, and `text_` by class, or None.
        """
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots(figsize=self._size(), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        self._draw_cells(cmap)
        self._name_classes()
        if colorbar:
            told = _SHARES[self.normalize] if self.normalize else self._counted
            self.figure_.colorbar(self.im_, ax=ax, label=told, shrink=0.8)
        lay_out(ax)
        longest = max(len(text) for row in self._texts for text in row)
        size = min(_LARGEST, 0.85 * self._cell / (_LETTER * longest))
        if include_values is None:
            few = len(self.display_labels) <= _MOST_NUMBERS
            include_values = few and size >= _SMALLEST
        self.text_ = self._write_numbers(max(size, _SMALLEST)) if include_values else None
        return self

    @property
    def _cell(self) -> float:
        """The side of a cell in points."""
        return 72.0 * side(self.ax_) / len(self.display_labels)

    @property
    def _counted(self) -> str:
        return f"Examples, each with noise of {self.noise:,.0f}" if self.noise else "Examples"

    @property
    def _shown(self) -> Floats:
        """Cells, masked where there is nothing to share."""
        return np.ma.masked_invalid(self.confusion_matrix)

    @property
    def _texts(self) -> list[list[str]]:
        form = "{:.2f}" if self.normalize else "{:,.0f}"
        return [
            ["-" if math.isnan(cell) else form.format(cell) for cell in row]
            for row in self.confusion_matrix.tolist()
        ]

    def _size(self) -> tuple[float, float]:
        """Of a figure of its own, in inches."""
        from matplotlib import rcParams

        classes = len(self.display_labels)
        inner = min(max(rcParams["figure.figsize"][1] - 1.2, 0.3 * classes), 9.0)
        names = min(max(map(len, self.display_labels)), _LONGEST_NAME) * _LETTER * _LARGEST / 72.0
        return inner + names + 1.6, inner + 0.7 * names + 0.7

    def _draw_cells(self, cmap: Any) -> None:
        from matplotlib import colormaps

        dark = is_dark(self.ax_)
        colours = colormaps.get_cmap(cmap or ("Blues_r" if dark else "Blues"))
        colours = colours.with_extremes(bad="#555555" if dark else "#dddddd")
        top = 1.0 if self.normalize in ("true", "pred") else None
        self.im_ = self.ax_.imshow(self._shown, cmap=colours, vmin=0.0, vmax=top)

    def _name_classes(self) -> None:
        cell = self._cell
        step = max(math.ceil(6.0 / cell), 1)  # names that would lie on each other are left out
        size = min(_LARGEST, max(0.8 * cell * step, _SMALLEST))
        room = 0.4 * 72.0 * side(self.ax_) / (_LETTER * size)
        names = [
            _short(label, max(min(int(room), _LONGEST_NAME), 5)) for label in self.display_labels
        ]
        is_wide = max(map(len, names)) * _LETTER * size > 0.95 * cell * step
        places = range(0, len(names), step)
        self.ax_.set_yticks(places, names[::step], fontsize=size)
        turned: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        self.ax_.set_xticks(places, names[::step], fontsize=size, **(turned if is_wide else {}))
        self.ax_.set(xlabel="Predicted label", ylabel="True label")

    def _write_numbers(self, size: float) -> tuple[tuple[Text, ...], ...]:
        ground = self.im_.to_rgba(self._shown)[..., :3] @ _LIGHT
        look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": size}
        return tuple(
            tuple(
                self.ax_.text(x, y, text, color="black" if light > _HALF_LIGHT else "white", **look)
                for x, (text, light) in enumerate(zip(texts, lights, strict=True))
            )
            for y, (texts, lights) in enumerate(zip(self._texts, ground, strict=True))
        )


def _short(name: str, longest: int) -> str:
    """A name without its middle where it is long: many begin alike."""
    if len(name) > longest:
        name = f"{name[: longest // 2]}…{name[len(name) - (longest - 1) // 2 :]}"
    return name.replace("$", r"\$")
