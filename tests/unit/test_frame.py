"""Metrics as data frames: the same numbers in pandas, polars and pyarrow."""

import math
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fedgauge as fg
from fedgauge.measures.metric import metrics_of

ROWS = ([0, 0, 1, 1, 0, 1], [0.1, 0.4, 0.35, 0.8, 0.2, 0.9])
COLUMNS = ["metric", "value", "low", "high", "pooled_low", "pooled_high", "level", "caution"]
KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table}


@pytest.fixture(scope="module")
def result():
    return fg.evaluate({"a": ROWS, "b": ROWS})


def plain(frame):
    """Rows by metric, missing values None, whatever made the frame."""
    table = pa.Table.from_pandas(frame) if isinstance(frame, pd.DataFrame) else frame
    rows = table.to_pylist() if isinstance(table, pa.Table) else table.to_dicts()
    return [
        {
            key: None if isinstance(value, float) and math.isnan(value) else value
            for key, value in row.items()
        }
        for row in rows
    ]


def expected(name, estimate):
    if estimate is None:
        return dict.fromkeys(COLUMNS) | {"metric": name}
    low, high = (None if math.isinf(bound) else bound for bound in estimate.bounds)
    return {
        "metric": name,
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "pooled_low": low,
        "pooled_high": high,
        "level": estimate.level,
        "caution": estimate.caution,
    }


@pytest.mark.parametrize("backend", KINDS)
def test_metrics(result, backend):
    frame = result.to_frame(backend=backend)
    assert isinstance(frame, KINDS[backend])
    names = [row.name for row in metrics_of(fg.Evaluation)]
    assert plain(frame) == [expected(name, getattr(result, name)) for name in names]
    assert {"roc_auc", "mann_whitney_u", "log_loss"} < set(names)


@pytest.mark.parametrize("backend", KINDS)
def test_metrics_at_thresholds(result, backend):
    frame = result.to_frame(thresholds=[0.3, 1.0], backend=backend)
    assert isinstance(frame, KINDS[backend])
    rows = []
    for threshold in (0.3, 1.0):
        at = result.at_threshold(threshold)
        named = at.as_dict() | at.confusion_matrix._asdict()
        rows += [{"threshold": threshold} | expected(*item) for item in named.items()]
    assert plain(frame) == rows
    assert [row["metric"] for row in rows if row["value"] is None] == ["precision", "mcc"]


def test_pandas_is_what_one_gets(result):
    assert list(result.to_frame().columns) == COLUMNS
    assert result.to_frame().dtypes["low"] == np.float64


def test_thresholds_of_a_table(result):
    table = result.threshold_table()
    frame = result.to_frame(table)
    assert frame["threshold"].unique().tolist() == [float(at) for at in table]
    assert len(frame) == len(table) * 17


def test_no_thresholds(result):
    frame = result.to_frame([], backend="polars")
    assert frame.shape == (0, len(COLUMNS) + 1)
    assert frame.schema["threshold"] == frame.schema["value"] == pl.Float64


def test_level(result):
    assert set(result.at_level(0.9).to_frame()["level"].dropna()) == {0.9}


def test_what_one_class_leaves_undefined_is_missing():
    frame = fg.evaluate({"a": ([0, 0], [0.1, 0.4])}).to_frame().set_index("metric")
    assert math.isnan(frame["value"]["roc_auc"])
    assert frame["value"]["brier_score"] == pytest.approx(0.085, abs=1e-3)


def test_without_signal_there_is_no_frame():
    hidden = fg.evaluate({"a": ROWS, "b": ROWS}, privacy=fg.DistributedDP(0.1), seed=1)
    for thresholds in (None, [0.5]):
        with pytest.raises(fg.NoSignal):
            hidden.to_frame(thresholds)


@pytest.mark.parametrize("backend", ["pandas", "polars"])
def test_a_library_that_is_not_installed(result, backend, monkeypatch):
    monkeypatch.setitem(sys.modules, backend, None)
    with pytest.raises(fg.InputError, match=rf"{backend} is not installed.*pip install {backend}"):
        result.to_frame(backend=backend)
    assert result.to_frame(backend="pyarrow").num_rows == len(metrics_of(fg.Evaluation))


def test_another_library(result):
    with pytest.raises(fg.InputError, match="one of pandas, polars, pyarrow, got 'numpy'"):
        result.to_frame(backend="numpy")
