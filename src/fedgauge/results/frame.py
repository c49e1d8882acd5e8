"""Metrics as a data frame: one row for each number, with its interval and bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from fedgauge.errors import InputError, NoSignal, UndefinedMetric
from fedgauge.measures.metric import metrics_of
from fedgauge.plan.slices import Slice

if TYPE_CHECKING:  # a result makes its frame
    from fedgauge.measures.intervals import Estimate
    from fedgauge.results.evaluation import Evaluation

Backend = Literal["pandas", "polars", "pyarrow"]
_BACKENDS: Final = ("pandas", "polars", "pyarrow")
# Columns of text; the others hold numbers.
_TEXT: Final = (*Slice.__struct_fields__, "against", "metric", "caution", "look", "when", "alarm")


class _Row(NamedTuple):
    """One number; None where there is none."""

    metric: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    pooled_low: float | None = None
    pooled_high: float | None = None
    level: float | None = None
    caution: str | None = None

    @classmethod
    def of(cls, name: str, estimate: Estimate | None) -> _Row:
        if estimate is None:
            return cls(name)
        e = estimate
        lowest, highest = (None, None) if math.inf in e.bounds else e.bounds
        return cls(name, e.value, e.low, e.high, lowest, highest, e.level, e.caution)


def metrics_frame(result: Evaluation, backend: Backend) -> Any:
    """Every metric over all thresholds; those that the counts do not define have no value."""
    return _over_slices(result, _metrics, ("metric",), backend)


def thresholds_frame(result: Evaluation, thresholds: Iterable[float], backend: Backend) -> Any:
    """Every metric and outcome at each threshold, one row for each."""
    chosen = list(thresholds)

    def rows_of(part: Evaluation) -> Iterator[tuple[Any, ...]]:
        for at in part.threshold_table(chosen):
            named = {**at.as_dict(), **at.confusion_matrix._asdict()}
            yield from ((at.threshold, *_Row.of(*each)) for each in named.items())

    return _over_slices(result, rows_of, ("threshold", "metric"), backend)


def _metrics(result: Evaluation) -> Iterator[tuple[Any, ...]]:
    _ = result._signal  # refused where there is nothing to tell
    for each in metrics_of(type(result)):
        try:
            yield _Row.of(each.name, getattr(result, each.name))
        except NoSignal:
            raise
        except UndefinedMetric:
            yield _Row(each.name)


def _over_slices(
    result: Evaluation,
    rows_of: Callable[[Evaluation], Iterable[tuple[Any, ...]]],
    keys: tuple[str, ...],
    backend: Backend,
) -> Any:
    """The rows of each slice, with what it is a slice of in front.

    Of several slices, one that is withheld, or has no examples, has one row, which says why.
    """
    parts = result.slices
    told = [name for name in Slice.__struct_fields__ if any(_named(part, name) for part in parts)]
    rows: list[tuple[Any, ...]] = []
    for part in parts:
        of = tuple(_named(part, name) for name in told)
        try:
            rows += [(*of, *row) for row in rows_of(part)]
        except UndefinedMetric as error:
            if len(parts) == 1:
                raise
            told_as = "withheld" if isinstance(error, NoSignal) else "undefined"
            row = _Row(told_as, caution=str(error))
            rows.append((*of, *(None,) * (len(keys) - 1), *row))
    return frame_of((*told, *keys, *_Row._fields[1:]), rows, backend)


def _named(part: Evaluation, name: str) -> str | None:
    named: str | None = getattr(part.slice, name)
    return named


def frame_of(names: Sequence[str], rows: Sequence[Sequence[Any]], backend: Backend) -> Any:
    """Rows as a data frame."""
    import pyarrow as pa  # here, for results do without

    if backend not in _BACKENDS:
        raise InputError(f"backend must be one of {', '.join(_BACKENDS)}, got {backend!r}.")
    columns = {
        name: pa.array([row[place] for row in rows], pa.string() if name in _TEXT else pa.float64())
        for place, name in enumerate(names)
    }
    table = pa.table(columns)
    if backend == "pyarrow":
        return table
    try:
        module = import_module(backend)
    except ImportError:
        raise InputError(
            f"{backend} is not installed. Install it (pip install {backend}), or take another: "
            'to_frame(backend="pyarrow") always works.'
        ) from None
    return table.to_pandas() if backend == "pandas" else module.from_arrow(table)
