"""Metrics as a data frame: one row for each number, with its interval and bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from fedgauge.errors import InputError, NoSignal, UndefinedMetric
from fedgauge.measures.metric import metrics_of

if TYPE_CHECKING:  # a result makes its frame
    from fedgauge.measures.intervals import Estimate
    from fedgauge.measures.thresholds import AtThreshold
    from fedgauge.results.evaluation import Evaluation

Backend = Literal["pandas", "polars", "pyarrow"]
_BACKENDS: Final = ("pandas", "polars", "pyarrow")
_TEXT: Final = ("metric", "caution")  # of the columns; the others hold numbers


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
    rows = []
    for each in metrics_of(type(result)):
        try:
            rows.append(_Row.of(each.name, getattr(result, each.name)))
        except NoSignal:
            raise
        except UndefinedMetric:
            rows.append(_Row(each.name))
    return _frame(rows, backend)


def thresholds_frame(points: Iterable[AtThreshold], backend: Backend) -> Any:
    """Every metric and outcome at each threshold, one row for each."""
    rows, thresholds = [], []
    for at in points:
        named = {**at.as_dict(), **at.confusion_matrix._asdict()}
        rows += [_Row.of(name, estimate) for name, estimate in named.items()]
        thresholds += [at.threshold] * len(named)
    return _frame(rows, backend, thresholds)


def _frame(rows: list[_Row], backend: Backend, thresholds: list[float] | None = None) -> Any:
    import pyarrow as pa  # here, for results do without

    if backend not in _BACKENDS:
        raise InputError(f"backend must be one of {', '.join(_BACKENDS)}, got {backend!r}.")
    kinds = {name: pa.string() if name in _TEXT else pa.float64() for name in _Row._fields}
    columns = {
        name: pa.array([getattr(row, name) for row in rows], kind) for name, kind in kinds.items()
    }
    if thresholds is not None:
        columns = {"threshold": pa.array(thresholds, pa.float64())} | columns
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
