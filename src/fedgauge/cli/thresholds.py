"""Metrics at thresholds on the terminal: which were asked for, and a few side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

import fedgauge as fg
from fedgauge.cli.terminal import plain_table, screen, with_interval
from fedgauge.measures.intervals import show_count
from fedgauge.measures.metric import metrics_of

_COLUMNS = 2  # thresholds side by side
_WIDE = 80  # characters that they need
_HIDDEN = "undefined: what it divides by does not stand out of the noise."
_BETWEEN = "A threshold that divides a bin: intervals include all that this bin allows."


# Thresholds by value, by the false positive rate, the recall and the precision that they have.
Rates = tuple[list[float] | None, list[float] | None, list[float] | None, list[float] | None]


class Wanted:
    """Thresholds that were asked for, by value or by what they should do."""

    def __init__(
        self,
        at: Sequence[float] | None,
        fpr: Sequence[float] | None,
        recall: Sequence[float] | None,
        precision: Sequence[float] | None,
    ) -> None:
        self._at = at or ()
        self._for = {"fpr": fpr or (), "recall": recall or (), "precision": precision or ()}

    def points(self, result: fg.Evaluation) -> list[tuple[str, fg.AtThreshold]]:
        """What was asked for, in words, and the metrics there; none where there are several scores.

        Of these each has its own at a threshold, but none in common for a rate.
        """
        if result.is_several:
            if any(self._for.values()):
                raise fg.InputError(
                    "--at-fpr, --at-recall and --at-precision choose a threshold for one score, "
                    "and here are several. Choose one, as with `fedgauge show FILE --class NAME` "
                    "or --model NAME, or name thresholds with --at."
                )
            return []
        points = [("", result.at_threshold(within(threshold, result))) for threshold in self._at]
        for name, rates in self._for.items():
            sign = "<=" if name == "fpr" else ">="
            for rate in rates:
                wanted: dict[str, Any] = {name: rate}
                points.append((f"{name} {sign} {rate:g}", result.threshold_for(**wanted)))
        return points

    def thresholds(self, result: fg.Evaluation) -> list[float]:
        """The thresholds that slices are shown at: the same for all of them."""
        points = self.points(result)
        if result.is_several:
            return [within(threshold, result) for threshold in self._at]
        return [at.threshold for _, at in points]


def within(threshold: float, result: fg.Evaluation) -> float:
    """A threshold of which the counts say something."""
    axis = result.released.axis
    low, high = (axis.low, axis.high) if result.mapped_by is None else (0.0, 1.0)
    if not math.isfinite(threshold) or low <= threshold <= high:
        return threshold
    raise fg.InputError(
        f"--at {threshold:g} lies outside the axis of this result, which goes from {low:g} to "
        f"{high:g}: of scores beyond it nothing is known. Name a threshold within it."
    )


def threshold_tables(
    points: Sequence[tuple[str, fg.AtThreshold]], result: fg.Evaluation
) -> Iterator[Table]:
    """Metrics at thresholds, a few of them side by side."""
    columns = _COLUMNS if screen.width >= _WIDE else 1
    for start in range(0, len(points), columns):
        part = points[start : start + columns]
        table = plain_table()
        table.add_column(f"value and {result.level * 100:g}% interval")
        for reason, at in part:
            title = f"at {at.threshold!r}" if at.on_edge else f"at {at.threshold:.6g}"
            table.add_column(f"{title}\n{reason}" if reason else title, justify="right")
        estimates = [at.as_dict() for _, at in part]
        for row in metrics_of(fg.AtThreshold):
            if row.listed:
                table.add_row(row.title, *(with_interval(each[row.name]) for each in estimates))
        table.add_row()
        exactly = all(at.on_edge for _, at in part)
        table.add_row(Text(_counted(result, exactly=exactly), "bold"))
        for name in ("tp", "fp", "fn", "tn"):
            counts = [getattr(at.confusion_matrix, name) for _, at in part]
            table.add_row(_OUTCOMES[name], *map(_count, counts))
        notes = [] if exactly else [_BETWEEN]
        if result.pooled.noisy and any(None in each.values() for each in estimates):
            notes.append(_HIDDEN)
        cautions = {e.caution for each in estimates for e in each.values() if e and e.caution}
        table.caption = "\n".join([*notes, *(f"* rough: {why}" for why in sorted(cautions))])
        yield table


_OUTCOMES = {
    "tp": "true positives",
    "fp": "false positives",
    "fn": "false negatives",
    "tn": "true negatives",
}


def _count(count: fg.Estimate) -> str:
    value, low, high = map(show_count, (count.value, *count.bounds))
    return value if low == high else f"{value}  {low} to {high}"


def _counted(result: fg.Evaluation, *, exactly: bool) -> str:
    """What the rows of counts show: they have no interval."""
    if result.pooled.noisy:
        return f"count, pooled data at {result.level * 100:g}%"
    return "count" if exactly else "count, pooled data"
