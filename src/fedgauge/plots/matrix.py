"""Which class was predicted of which, as a square of colours and numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from fedgauge.measures.confusion import ClassConfusion, Normalize
from fedgauge.plots.axes import is_dark, lay_out, side
from fedgauge.typing import Floats

if TYPE_CHECKING:  # matplotlib takes half a second to load: only who draws waits for it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.image import AxesImage
    from matplotlib.text import Text

_MOST_NUMBERS: Final = 20  # classes whose cells have numbers
_LARGEST, _SMALLEST = 10.0, 4.5  # points: of text in cells
_LETTER: Final = 0.62  # how wide it is, of its height
_LIGHT: Final = (0.299, 0.587, 0.114)  # how much red, green and blue look like (ITU-R BT.601)
_HALF_LIGHT: Final = 0.55
_LONGEST: Final = 20  # characters of a class's name
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
    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> import fedgauge as fg
    >>> rows = fg.Examples(["cat", "dog", "dog"], np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]))
    >>> task = fg.MulticlassTask(labels=["cat", "dog"], also=["confusion"])
    >>> matrix = fg.evaluate({"site": rows}, task=task).confusion_matrix()
    >>> display = fg.ConfusionMatrixDisplay.from_matrix(matrix, normalize="true").plot()
    >>> [[cell.get_text() for cell in row] for row in display.text_]
    [['1.00', '0.00'], ['0.50', '0.50']]
    >>> matplotlib.pyplot.close(display.figure_)
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
        """Of a confusion matrix, ``result.confusion_matrix()``.

        Parameters
        ----------
        matrix
            By true and by predicted class.
        normalize
            Shares of the true class (``"true"``), of the predicted one (``"pred"``) or of all
            examples (``"all"``); None for counts.
        """
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
            Itself, with what was drawn: `ax_`, `figure_`, `im_`, and `text_`, by true and by
            predicted class, or None.
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
        size = min(_LARGEST, 0.85 * self._cell / (_LETTER * self._longest))
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

    @property
    def _longest(self) -> int:
        return max(len(text) for row in self._texts for text in row)

    def _size(self) -> tuple[float, float]:
        """Of a figure of its own, in inches."""
        from matplotlib import rcParams

        classes = len(self.display_labels)
        inner = min(max(rcParams["figure.figsize"][1] - 1.2, 0.3 * classes), 9.0)
        names = min(max(map(len, self.display_labels)), _LONGEST) * _LETTER * _LARGEST / 72.0
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
        names = [_short(label, max(min(int(room), _LONGEST), 5)) for label in self.display_labels]
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
