"""The result a user holds: numbers, words and curves from counts."""

import json
import math
import sys
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from plans import plan_for, report_plan

import fedgauge as fg
from fedgauge import _html
from fedgauge.estimation import repair
from fedgauge.estimation.counts import PooledCounts, Released
from fedgauge.metrics import areas, ranking
from fedgauge.metrics.estimate import Estimate, metric, metrics_of
from fedgauge.metrics.ranking import Reading


def make_evaluation(counts, *, clients=3, estimator=None, axis=None):
    counts = np.array(counts)
    plan = fg.EvaluationPlan.for_histogram(
        axis or fg.Axis.uniform(counts.shape[1]), fg.Cohort(min_survivors=clients)
    )
    statement = plan.statement("simulated")
    estimator = estimator or fg.Aligned()
    released = Released(plan.axis, counts, clients)
    return fg.Evaluation(plan, statement, released, estimator=estimator)


COUNTS = [[30, 15, 4, 1], [2, 5, 6, 12]]


def test_numbers_are_plain_floats_and_the_auc_is_that_by_hand():
    # Pairs won outright plus half of those within a bin, over all pairs; then all or none of them.
    won = 12 * 49 + 6 * 45 + 5 * 30
    within = 12 * 1 + 6 * 4 + 5 * 15 + 2 * 30
    auc = make_evaluation(COUNTS, estimator=fg.Aligned("linear")).roc_auc
    assert auc.value == pytest.approx((won + within / 2) / 1250, abs=1e-11)
    assert auc.bounds == pytest.approx((won / 1250, (won + within) / 1250), abs=1e-11)
    assert auc.parts["binning"] == pytest.approx(within / 2 / 1250, abs=1e-11)
    for axis in (fg.Axis.uniform(4), fg.Axis.from_values([0.0, 0.2, 0.5, 1.0])):
        result = make_evaluation(COUNTS, axis=axis)
        for estimate in (result.roc_auc, result.average_precision):
            numbers = (estimate.value, *estimate.bounds, *estimate.parts.values())
            assert {type(number) for number in numbers} == {float}


@pytest.mark.parametrize("estimator", [fg.Aligned(), fg.Aligned("linear"), fg.Quantile(16)])
@pytest.mark.parametrize("alone", [False, True], ids=["mixed bins", "one example in a bin"])
def test_bounds_hold_the_value(estimator, alone):
    # One example in a bin leaves no doubt: the bounds meet, and rounding must not cross them.
    rng = np.random.default_rng(3)
    for _ in range(100):
        positive = rng.permutation([0, 0, 0, 1, 1, 1])
        counts = np.array([1 - positive, positive]) if alone else rng.integers(0, 4, (2, 6)) + 1
        result = make_evaluation(counts, estimator=estimator)
        for estimate in (result.roc_auc, result.average_precision):
            low, high = estimate.bounds
            assert 0.0 <= low <= estimate.value <= high <= 1.0


def test_another_estimator_reads_the_same_counts():
    first = make_evaluation(COUNTS)
    second = first.with_estimator(fg.Quantile(8))
    assert second.estimator == fg.Quantile(8)
    assert first.estimator == fg.Aligned()
    assert second.record.slices[0].counts == first.record.slices[0].counts
    assert second.roc_auc.bounds == first.roc_auc.bounds
    assert second.roc_auc.value != first.roc_auc.value
    assert (second.plan, second.privacy, second.clients) == (first.plan, first.privacy, 3)


def test_verdict_in_five_lines():
    result = make_evaluation(COUNTS)
    assert (result.negatives, result.positives, result.clients) == (50, 25, 3)
    who, *areas, privacy, measured = str(result).splitlines()
    assert who == "3 clients, 75 examples, 33.3% positive"
    for line, name, area in zip(
        areas,
        ("ROC AUC ", "average precision "),
        (result.roc_auc, result.average_precision),
        strict=True,
    ):
        assert line.startswith(name)
        assert f"{area.value:.4f}" in line
        assert f"{area.low:.4f} to {area.high:.4f} at 95%" in line
    assert "no differential privacy" in privacy
    assert "simulated" in privacy
    assert result.plan.digest[:8] in measured
    assert "64 bytes per client" in measured
    alone = make_evaluation(COUNTS, clients=1)
    assert str(alone).startswith("1 client, ")
    assert repr(result) == f"<Evaluation of 75 examples at 3 clients: ROC AUC {result.roc_auc}>"
    assert "1 clients" not in repr(alone)
    for axis, words in (
        (fg.Axis.uniform(4), "4 bins of equal width,"),
        (fg.Axis.logit(4), "4 bins of equal width in log-odds,"),
        (fg.Axis.from_edges([0, 0.1, 0.2, 0.3, 1]), "4 bins between given edges,"),
        (fg.Axis.from_values([0, 1, 2, 3]), "4 known score values,"),
    ):
        text = str(make_evaluation(COUNTS, axis=axis))
        assert len(text.splitlines()) == 5
        assert words in text


def test_the_estimator_decides_which_counts_are_likely():
    clients = {f"s{i}": ([0, 0, 1] * 200, [0.2, 0.6, 0.7] * 200) for i in range(3)}
    noisy = fg.evaluate(clients, privacy=fg.DistributedDP(1.0), tree=(8,), seed=1)
    assert noisy.is_shrunk
    for estimator in (fg.Aligned(shrink=False), fg.Quantile(8), fg.Range()):
        read = noisy.with_estimator(estimator)
        assert not read.is_shrunk
        assert read.pooled.likely is read.pooled.counts
        assert "smoothed to reduce noise" not in str(read)
    assert "smoothed to reduce noise" in str(noisy)
    assert not fg.evaluate(clients).is_shrunk


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
    bounds = [None if math.isinf(bound) else bound for bound in estimate.bounds]
    numbers = (estimate.value, estimate.low, estimate.high, *bounds)
    return dict(zip(COLUMNS, (name, *numbers, estimate.level, estimate.caution), strict=True))


@pytest.mark.parametrize("backend", KINDS)
def test_frames_of_metrics(result, backend):
    frame = result.to_frame(backend=backend)
    assert isinstance(frame, KINDS[backend])
    names = [row.name for row in metrics_of(fg.Evaluation)]
    assert plain(frame) == [expected(name, getattr(result, name)) for name in names]
    assert {"roc_auc", "mann_whitney_u", "log_loss"} < set(names)
    frame = result.to_frame(thresholds=[0.3, 1.0], backend=backend)
    assert isinstance(frame, KINDS[backend])
    rows = []
    for threshold in (0.3, 1.0):
        at = result.at_threshold(threshold)
        named = at.as_dict() | at.confusion_matrix._asdict()
        rows += [{"threshold": threshold} | expected(*item) for item in named.items()]
    assert plain(frame) == rows
    assert [row["metric"] for row in rows if row["value"] is None] == ["precision", "mcc"]


def test_frames_of_thresholds_levels_and_undefined_metrics(result):
    table = result.threshold_table()
    frame = result.to_frame(table)
    assert frame["threshold"].unique().tolist() == [float(at) for at in table]
    assert len(frame) == len(table) * 17
    frame = result.to_frame([], backend="polars")
    assert frame.shape == (0, len(COLUMNS) + 1)
    assert frame.schema["threshold"] == frame.schema["value"] == pl.Float64
    assert list(result.to_frame().columns) == COLUMNS
    assert result.to_frame().dtypes["low"] == np.float64
    other = result.at_level(0.9)
    assert set(other.to_frame()["level"].dropna()) == {0.9}
    assert other.roc_auc.level == other.roc_band().level == other.at_threshold(0.5).mcc.level == 0.9
    assert other.roc_auc.value == result.roc_auc.value
    frame = fg.evaluate({"a": ([0, 0], [0.1, 0.4])}).to_frame().set_index("metric")
    assert math.isnan(frame["value"]["roc_auc"])
    assert frame["value"]["brier_score"] == pytest.approx(0.085, abs=1e-3)
    with pytest.raises(fg.InputError, match="one of pandas, polars, pyarrow, got 'numpy'"):
        result.to_frame(backend="numpy")


@pytest.mark.parametrize("backend", ["pandas", "polars"])
def test_a_library_that_is_not_installed(result, backend, monkeypatch):
    monkeypatch.setitem(sys.modules, backend, None)
    with pytest.raises(fg.InputError, match=rf"{backend} is not installed.*pip install {backend}"):
        result.to_frame(backend=backend)
    assert result.to_frame(backend="pyarrow").num_rows == len(metrics_of(fg.Evaluation))


AXIS = fg.Axis.uniform(4, outside="clip")
COUNTS_READING = np.array([[40.0, 20.0, -3.0, 6.0], [5.0, -2.0, 20.0, 40.0]])


def noisy(counts=COUNTS_READING, variance=9.0, estimator=fg.Aligned()):  # noqa: B008
    return Reading(PooledCounts(AXIS, counts, (4,), (variance,)), estimator, 0.95)


def counting(monkeypatch, module, name):
    calls, function = [], getattr(module, name)
    monkeypatch.setattr(module, name, lambda *given: calls.append(1) or function(*given))
    return calls


def test_counts_are_repaired_once_and_losses_computed_once(monkeypatch):
    calls = counting(monkeypatch, repair, "monotone")
    for estimator in (fg.Aligned(), fg.Quantile(5)):
        reading = noisy(estimator=estimator)
        assert reading.distribution.tpr[-1] == 1
        assert reading.pooled.counts.min() == 0
        assert reading.roc.tpr is reading.distribution.tpr
        assert [calls.pop(), calls] == [1, []]
    fpr = noisy(estimator=fg.Range()).distribution.fpr  # it reads counts as they were released
    assert calls == []
    expected = repair.smooth(np.cumsum(COUNTS_READING[0, ::-1]) / COUNTS_READING[0].sum(), "l2")
    np.testing.assert_allclose(fpr[-2:], expected[-2:])
    calls = counting(monkeypatch, ranking, "bin_losses")
    reading = noisy()
    assert reading.losses("log") is reading.losses("log")
    assert reading.losses("squared") is not reading.losses("log")
    assert len(calls) == 2


def test_draws_without_a_class_are_left_out_and_rates_have_a_ratio():
    few = noisy(np.array([[2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 5.0, 400.0]]), variance=4.0)
    drawn = few.pooled.redrawn(300, sampling=True)
    empty = np.any(drawn.sum(axis=2) <= 0, axis=1)
    assert 0 < empty.sum() < 300
    np.testing.assert_array_equal(few.redrawn(300, sampling=True), drawn[~empty])
    many = noisy()
    assert many.redrawn(50, sampling=True) is many.pooled.redrawn(50, sampling=True)
    counts = np.array([[6.0, 3.0, 1.0, 0.0], [1.0, 0.0, 2.0, 2.0]])
    reading = noisy(counts, estimator=fg.Aligned(shrink=False))
    fpr, tpr = reading.rates
    np.testing.assert_allclose(fpr, [0, 0, 0.1, 0.4, 1])
    np.testing.assert_allclose(tpr, [0, 0.4, 0.8, 0.8, 1])
    assert reading.ratio == pytest.approx(0.5)
    assert not reading.tied.any()
    with pytest.raises(fg.UndefinedMetric, match="negative"):
        noisy(np.array([[0.0] * 4, [1.0] * 4])).ratio  # noqa: B018


def test_losses_of_a_merged_bin_of_the_value_1_are_those_of_1():
    """It ends a float above 1: that is no probability, and has no loss."""
    axis = fg.Axis.from_edges([0.2, 0.5, 1.0, np.nextafter(1.0, 2.0)])
    found = areas.bin_losses(axis, np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]]), "log")
    assert np.isfinite(found).all()
    assert found.mean[0, -1] == pytest.approx(-math.log(areas.CLIP))
    assert found.mean[1, -1] == pytest.approx(0.0, abs=1e-12)


def spread(bins, *, step=1, rows=2):
    """So many rows of either class in every bin, or in every second one and so on."""
    counts = np.zeros((2, bins))
    counts[:, ::step] = rows
    return counts


def exact(counts, estimator=fg.Aligned(), axis=None):  # noqa: B008
    bins = counts.shape[1]
    return Reading(PooledCounts(axis or fg.Axis.uniform(bins), counts, (bins,)), estimator, 0.95)


def test_rows_that_share_bins_far_apart_are_tied():
    assert exact(spread(64, step=2)).pooled.apart
    touching = spread(64, step=2)
    touching[0, 1] = 1
    few = spread(64, step=8, rows=1)
    assert few.sum() == 16  # eight rows more than bins: ten are asked for
    lonely = spread(64, step=2, rows=1) * [[1.0], [0.0]]
    for counts in (touching, few, lonely):
        assert not exact(counts).pooled.apart
    assert not exact(spread(64, step=2), axis=fg.Axis.uniform(64, outside="clip")).pooled.apart
    noisy_ones = PooledCounts(fg.Axis.uniform(64), spread(64, step=2), (64,), (1.0,))
    assert not noisy_ones.apart


def test_average_precision_is_of_examples_where_bins_are_fine():
    fine = spread(1024)
    assert exact(fine).precision_of_rows > 0.5  # each positive is itself among those flagged
    for tied in (exact(spread(64, step=2)), exact(fine, axis=fg.Axis.from_values(range(1024)))):
        assert tied.precision_of_rows == pytest.approx(0.5)
    pooled = PooledCounts(fg.Axis.uniform(1024), fine, (1024,), (1.0,))
    for coarse_or_other in (
        exact(fine[:, 1:]),
        exact(fine, fg.Quantile(32)),
        Reading(pooled, fg.Aligned(), 0.95),
    ):
        assert coarse_or_other.precision_of_rows is None


HOSTILE = "<script>alert('x')</script>&\"<b>"


class Page(HTMLParser):
    """The tags of a page, whether they are closed in order, and its cells."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.cells, self._open = set(), [], []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self._open.append(tag)
        assert not [name for name, _ in attributes if name != "style"]
        assert "color" not in str(attributes)  # of the page, light or dark

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.cells.append(data)


TABLE = {"table", "caption", "tbody", "tr", "th", "td"}


def cells(html):
    page = Page(html)
    assert page.tags <= TABLE | {"span"}
    return page.cells


def test_evaluations_and_thresholds_are_tables():
    result = fg.evaluate({"a": ROWS, "b": ROWS})
    who, *shown = cells(result._repr_html_())
    assert who == str(result).splitlines()[0]
    assert dict(zip(shown[::2], shown[1::2], strict=True))["ROC AUC"] == str(result.roc_auc)
    assert " ".join([who, *shown]).split() == str(result).split()
    at = fg.evaluate({"a": ROWS}).at_threshold(1.0)
    caption, *shown = cells(at._repr_html_())
    assert caption == "At threshold 1"
    rows = dict(zip(shown[::2], shown[1::2], strict=True))
    assert rows["precision"] == "undefined"
    assert rows["recall"] == str(at.recall)
    assert rows["tp"] == str(at.confusion_matrix.tp)


def test_text_tables_and_estimates_are_escaped(monkeypatch):
    assert cells(_html.text(HOSTILE)) == [HOSTILE]
    assert cells(_html.table([(HOSTILE, HOSTILE)], caption=HOSTILE)) == [HOSTILE] * 3
    estimate = fg.Estimate(0.5, (0.4, 0.6), 0.3, 0.7, 0.95, caution=HOSTILE)
    assert "".join(cells(estimate._repr_html_())) == str(estimate)
    monkeypatch.setattr(fg.Estimate, "__str__", lambda _: HOSTILE)
    assert cells(estimate._repr_html_()) == [HOSTILE]


def test_plan():
    for plan, told in (
        (plan_for(bins=16, task=fg.BinaryTask(HOSTILE)), ["secure aggregation", repr(HOSTILE)]),
        (plan_for(bins=16, outside="refuse", min_cell=12), ["12", "bool or 0/1"]),
        (plan_for(fg.DistributedDP(1.0), (4, 4)), ["4 x 4", "at least 3 clients"]),
        (plan_for(bins=16).with_not_after("2026-12-31"), ["2026-12-31T23:59:59Z"]),
        (report_plan(fg.LocalDP(1.0), (16,)), ["bytes per report"]),
    ):
        text = " ".join(cells(plan._repr_html_()))
        for words in (*told, plan.digest[:8], repr(plan.axis)):
            assert words in text


def test_results_without_an_auc_or_any_signal():
    one_class = fg.evaluate({"a": ([0, 0], [0.1, 0.4])})
    assert repr(one_class) == "<Evaluation of 2 examples at 1 client: ROC AUC undefined>"
    hidden = fg.evaluate({"a": ROWS, "b": ROWS}, privacy=fg.DistributedDP(0.1), seed=1)
    for ask in (lambda: hidden.roc_auc, hidden.to_frame, lambda: hidden.to_frame([0.5])):
        with pytest.raises(fg.NoSignal):
            ask()
    assert repr(hidden).endswith("ROC AUC undefined>")
    assert cells(hidden._repr_html_())


class Thing:
    """Two metrics, one of them for the record only."""

    def __init__(self):
        self.computed = 0

    @metric("the second letter", listed=False, recorded=True)
    def b(self) -> Estimate:
        """B, in words
        on two lines.

        Formula: 2.
        """
        self.computed += 1
        return Estimate(2.0, (1.0, 3.0))

    @metric("the first letter")
    def a(self) -> Estimate:
        """A, in words."""
        return Estimate(1.0, (1.0, 1.0))

    @property
    def c(self) -> int:
        return 3


def test_a_row_has_what_tables_need():
    rows = metrics_of(Thing)
    assert [(row.name, row.title, row.listed, row.recorded) for row in rows] == [
        ("b", "the second letter", False, True),
        ("a", "the first letter", True, False),
    ]
    assert Thing.b is rows[0]
    assert Thing.b.meaning == "B, in words on two lines."
    assert "Formula: 2." in Thing.b.__doc__
    thing = Thing()
    assert thing.b is thing.b
    assert (thing.b.value, thing.computed) == (2.0, 1)
    assert Thing().computed == 0


def test_rows_of_a_result_say_what_is_listed_and_recorded():
    rows = metrics_of(fg.Evaluation)
    assert [row.title for row in rows if row.listed] == [
        *("ROC AUC", "average precision", "PR-gain area", "KS distance"),
        *("log loss", "Brier score", "normalized entropy"),
        *("expected calibration error", "maximum calibration error", "RMS calibration error"),
        *("calibration in the large", "calibration slope", "calibration intercept"),
        "integrated calibration index",
    ]
    result = fg.evaluate({"a": ([0, 1, 0, 1], [0.1, 0.6, 0.7, 0.9])})
    (part,) = result.record.slices
    assert list(part.metrics) == [row.name for row in rows if row.recorded]
    assert list(part.metrics) == [
        *("roc_auc", "average_precision", "ks_statistic"),
        *("log_loss", "brier_score", "normalized_entropy"),
        *("expected_calibration_error", "calibration_in_the_large"),
    ]


def test_first_tries_in_python_say_what_to_write_or_show_it(tmp_path):
    """What somebody types who has read nothing."""
    labels, scores = [0, 1, 1, 0], [0.2, 0.7, 0.9, 0.6]
    with pytest.raises(fg.PlanError, match=r"fg\.evaluate\(\{\"all\": \(y_true, y_score\)\}\)"):
        fg.evaluate(labels, scores)
    with pytest.raises(fg.InputError, match=r'\{"site-a": \(y_true, y_score\)'):
        fg.evaluate((labels, scores))
    result = fg.evaluate({"all": (labels, scores)})
    assert repr(result.at_threshold(0.5)).startswith(
        "<AtThreshold 0.5: precision 0.6667, recall 1, specificity 0.5, npv 1, accuracy 0.75"
    )
    assert "precision undefined" in repr(result.at_threshold(1.0))
    table = result.threshold_table([0.5, 1.0])
    assert table[1].threshold == 1.0
    assert repr(table).splitlines()[1].split() == ["0.5", "0.6667", "1", "0.5", "1", "0.75"]
    frame = table.to_frame()
    assert frame["threshold"].tolist() == [0.5, 1.0]
    assert frame["fp"].tolist() == [1.0, 0.0]
    assert frame["precision"].isna().tolist() == [False, True]
    assert repr(result.calibrator("beta")).endswith("fitted to 4 examples>")
    result.to_json(tmp_path / "r.json")
    assert result.to_dict() == json.loads((tmp_path / "r.json").read_text())
    path = tmp_path / "a.csv"
    path.write_text("y,p,s\n0,0.5,a\n")
    table = fg.ScoreTable(path, client="s", label="y", score="p")
    assert repr(table) == f"<ScoreTable of {path}: label 'y', score 'p', client 's'>"


def test_pictures_and_methods_are_those_that_a_result_has():
    rng = np.random.default_rng(2)
    labels = rng.integers(2, size=300)
    two = fg.evaluate({"all": (labels, 0.5 * labels + 0.5 * rng.random(300))})
    assert len(two.plot().axes) == 4
    margins = fg.evaluate({"all": (labels, 9.0 * labels - rng.random(300))}, axis="two-round")
    assert len(margins.plot().axes) == 2
    classes = fg.MulticlassTask(labels=["a", "b"], also=["confusion"])
    rows = fg.Examples(np.array(["a", "b"])[labels], rng.random((300, 2)))
    several = fg.evaluate({"all": rows}, task=classes)
    assert len(several.plot().axes) == 4
    named = {"macro", "confusion_matrix", "top_k_accuracy"}
    assert named <= {*dir(several)}
    assert not named & {*dir(two)}
    assert {"roc_auc", "compare", "plot"} <= {*dir(two)} & {*dir(several)}
