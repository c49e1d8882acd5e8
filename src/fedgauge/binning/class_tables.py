"""Tables of several classes: which was predicted, how high the true one ranks, how high the top is.

What is counted of all scores of a row together, which counts by score do not tell.
"""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedgauge.binning.axis import Axis
from fedgauge.binning.channels import Layout
from fedgauge.binning.table import Table, TableRows
from fedgauge.errors import PlanError
from fedgauge.typing import Floats


class _OfClasses(Table, frozen=True):
    """A table of rows by their scores for all classes, of one model."""

    model: str | None = None

    def check(self, layout: Layout, axis: Axis) -> None:
        """Refuse a table of classes where there are none, or of a model that there is not."""
        del axis
        if not layout.classes:
            raise PlanError("a table of predicted classes is for a task of several classes.")
        if self.model not in (layout.models or (None,)):
            raise PlanError(f"a table of predicted classes is of no model {self.model!r}.")

    def size(self, layout: Layout, axis: Axis) -> int:
        """The classes, times the classes or ranks."""
        del axis
        return len(layout.classes) ** 2

    def _scores(self, rows: TableRows) -> Floats:
        """Scores by class and row."""
        columns = range(len(rows.layout.classes))
        return np.stack([rows.scores[self.model, column] for column in columns])

    @property
    def _whose(self) -> str:
        return "" if self.model is None else f" of {self.model}"


class Predicted(_OfClasses, frozen=True, tag="predicted"):
    """How many rows of each class have their highest score for each class; the first of equals.

    Examples
    --------
    >>> Predicted().cells(Layout(classes=("cat", "dog", "owl")), Axis.uniform(16))
    9
    """

    by_class: ClassVar[bool] = True

    def places(self, rows: TableRows) -> list[tuple[NDArray[Any], None]]:
        """One to the cell of each row's class and predicted class."""
        classes = len(rows.layout.classes)
        cell = rows.classes[0] * classes + np.argmax(self._scores(rows), axis=0)
        return [(cell, None)]

    def words(self, layout: Layout, axis: Axis) -> str:
        """What its numbers are."""
        del axis
        return (
            f"how many examples of each of {len(layout.classes):,} classes have their highest "
            f"score{self._whose} for each of them"
        )


class Ranked(_OfClasses, frozen=True, tag="ranked"):
    """How many rows of each class have so many higher scores than that for their class.

    Of equal scores the first counts as the higher one, as for :class:`Predicted`.
    """

    by_class: ClassVar[bool] = True

    def places(self, rows: TableRows) -> list[tuple[NDArray[Any], None]]:
        """One to the cell of each row's class and rank."""
        scores, mine = self._scores(rows), rows.classes[0]
        classes = len(scores)
        own = scores[mine, np.arange(len(mine))]
        before = np.arange(classes)[:, np.newaxis] < mine
        rank = np.count_nonzero((scores > own) | ((scores == own) & before), axis=0)
        return [(mine * classes + rank, None)]

    def words(self, layout: Layout, axis: Axis) -> str:
        """What its numbers are."""
        del axis
        return (
            f"for how many examples of each of {len(layout.classes):,} classes the score"
            f"{self._whose} for their class is the highest, the second highest and so on"
        )


class TopScore(_OfClasses, frozen=True, tag="top-score"):
    """How many rows have their highest score in each bin, by whether it is for their class."""

    def size(self, layout: Layout, axis: Axis) -> int:
        """Wrong and right, times the bins."""
        del layout
        return 2 * axis.bins

    def places(self, rows: TableRows) -> list[tuple[NDArray[Any], None]]:
        """One to the cell of each row: wrong or right, and the bin of its highest score."""
        top = np.argmax(self._scores(rows), axis=0)
        bins = np.stack([rows.bins[self.model, column] for column in range(top.max(initial=0) + 1)])
        right = top == rows.classes[0]
        return [(right * rows.axis.bins + bins[top, np.arange(len(top))], None)]

    def words(self, layout: Layout, axis: Axis) -> str:
        """What its numbers are."""
        del layout
        return (
            f"how many examples have their highest score{self._whose} in each of {axis.bins:,} "
            "ranges, those where it is for the right class apart from the others"
        )
