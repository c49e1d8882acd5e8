"""Estimates below each other with their intervals: the rows of a figure, as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from fedgauge.measures.intervals import Estimate, Interval, show
from fedgauge.plots.page.thinned import rounded


class Row(NamedTuple):
    """One estimate and what it is of; without an estimate, why there is none in a word.

    `ends` take the place of the estimate's own interval.
    """

    name: str
    estimate: Estimate | None
    ends: Interval | None = None
    note: str = "undefined"


def forest(
    name: str, title: str, label: str, rows: Iterable[Row], *, note: str, line: tuple[float, str]
) -> dict[str, Any]:
    """A figure of rows, with a dashed line at a value, and what that value means.

    Examples
    --------
    >>> rows = [Row("women", Estimate(0.7, (0.7, 0.7), 0.6, 0.8, 0.95)), Row("men", None)]
    >>> forest("by-slice", "By group", "ROC AUC", rows, note="", line=(0.5, "chance"))["rows"]
    [['women', 0.7, 0.6, 0.8, '0.7000 (0.6000 to 0.8000)'], ['men', None, None, None, 'undefined']]
    """
    told = [_plain(row) for row in rows]
    return {"id": name, "title": title, "label": label, "note": note, "line": line, "rows": told}


def words(estimate: Estimate, ends: Interval | None = None) -> str:
    """A number and its interval."""
    value, ends = show(estimate.value), ends or estimate.interval
    return value if ends is None else f"{value} ({show(ends.low)} to {show(ends.high)})"


def _plain(row: Row) -> list[Any]:
    if row.estimate is None:
        return [row.name, None, None, None, row.note]
    ends = row.ends or row.estimate.interval or Interval(*row.estimate.bounds)
    numbers = rounded([row.estimate.value, *ends])
    return [row.name, *numbers, words(row.estimate, row.ends)]
