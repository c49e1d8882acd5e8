"""The cases of scikit-learn's own ranking tests that a pooled evaluation must agree with."""

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn import metrics as sk

import fedgauge as fg
from fedgauge import Axis, UndefinedMetric


@dataclass
class Measured:
    roc: fg.RocCurve
    pr: fg.PrCurve
    auc: float
    ap: float


def from_pooled(labels, scores):
    """The exact curves and the areas under them."""
    roc, pr = fg.exact_roc_curve(labels, scores), fg.exact_pr_curve(labels, scores)
    auc = np.trapezoid(roc.tpr, roc.fpr)
    return Measured(roc, pr, auc, -np.sum(np.diff(pr.recall) * pr.precision[:-1]))


def from_clients(labels, scores):
    """The same through counts of three clients on an axis of all scores."""
    parts = np.arange(len(labels)) % min(3, len(labels))
    clients = {
        f"site-{part}": (np.asarray(labels)[parts == part], np.asarray(scores)[parts == part])
        for part in np.unique(parts)
    }
    result = fg.evaluate(clients, axis=Axis.from_values(scores))
    auc, ap = result.roc_auc, result.average_precision
    assert auc.bounds == (auc.value, auc.value)
    assert ap.bounds == (ap.value, ap.value)
    return Measured(result.roc_curve(), result.pr_curve(), auc.value, ap.value)


ways = pytest.mark.parametrize("measure", [from_pooled, from_clients])
# A model that is neither good nor useless: labels, probabilities and hard decisions.
LABELS = np.tile([0, 1], 50)
PROBABILITIES = np.random.default_rng(37).beta(2 + LABELS, 3 - LABELS)
DECISIONS = (PROBABILITIES > 0.5).astype(int)


def draw(name):
    rng = np.random.default_rng(len(name))
    labels = np.repeat([0, 1], [70, 50])[rng.permutation(120)]
    if name == "probabilities":
        return LABELS, PROBABILITIES
    if name == "hard decisions":
        return LABELS, DECISIONS
    if name == "three scores":
        return labels, rng.integers(0, 3, 120)
    if name == "no signal":
        return labels, rng.uniform(size=120)
    if name == "one decimal":
        return labels, np.round(rng.beta(2 + labels, 3 - labels), 1)
    if name == "margins":
        return labels, rng.normal(labels, 1.5) * 10
    if name == "tiny scores":
        return labels, 1e-6 * rng.beta(2 + labels, 3 - labels)
    if name == "neighbouring floats":
        return labels, 0.5 + np.spacing(0.5) * rng.integers(0, 5, 120)
    if name == "rare positives":
        labels = (np.arange(120) % 60 == 0).astype(int)
        return labels, rng.beta(1 + labels, 5)
    if name == "one positive":
        return (np.arange(120) == 60).astype(int), rng.uniform(size=120)
    return (np.arange(120) != 60).astype(int), rng.uniform(size=120)


DATA = [
    "probabilities",
    "hard decisions",
    "three scores",
    "no signal",
    "one decimal",
    "margins",
    "tiny scores",
    "neighbouring floats",
    "rare positives",
    "one positive",
    "one negative",
]
data = pytest.mark.parametrize("name", DATA)
EVEN = [0, 0, 1, 1]
# labels and scores; fpr, tpr and AUC; precision, recall and AP
TOYS = {
    "right": (([0, 1], [0, 1]), ([0, 0, 1], [0, 1, 1], 1), ([0.5, 1, 1], [1, 1, 0], 1)),
    "other order": (([1, 0], [1, 0]), ([0, 0, 1], [0, 1, 1], 1), ([0.5, 1, 1], [1, 1, 0], 1)),
    "wrong": (([0, 1], [1, 0]), ([0, 1, 1], [0, 0, 1], 0), ([0.5, 0, 1], [1, 0, 0], 0.5)),
    "tied at one": (([1, 0], [1, 1]), ([0, 1], [0, 1], 0.5), ([0.5, 1], [1, 0], 0.5)),
    "tied between": (([1, 0], [0.5, 0.5]), ([0, 1], [0, 1], 0.5), ([0.5, 1], [1, 0], 0.5)),
    "textbook": (
        (EVEN, [0.1, 0.4, 0.35, 0.8]),
        ([0, 0, 0.5, 0.5, 1], [0, 0.5, 0.5, 1, 1], 0.75),
        ([0.5, 2 / 3, 0.5, 1, 1], [1, 1, 0.5, 0.5, 0], (1 + 2 / 3) / 2),
    ),
    "positives tied with one negative": (
        (EVEN, [0.1, 0.5, 0.5, 0.5]),
        ([0, 0.5, 1], [0, 1, 1], 0.75),
        ([0.5, 2 / 3, 1], [1, 1, 0], 2 / 3),
    ),
    "negative on top": (
        ([0, 1, 0], [1.0, 0.5, 0.0]),
        ([0, 0.5, 0.5, 1], [0, 0, 1, 1], 0.5),
        ([1 / 3, 0.5, 0, 1], [1, 1, 0, 0], 0.5),
    ),
}


@ways
@pytest.mark.parametrize("toy", TOYS)
def test_toy_cases_have_known_answers(measure, toy):
    rows, (fpr, tpr, auc), (precision, recall, ap) = TOYS[toy]
    found = measure(*rows)
    np.testing.assert_allclose(found.roc.fpr, fpr, atol=1e-15)
    np.testing.assert_allclose(found.roc.tpr, tpr, atol=1e-15)
    np.testing.assert_allclose(found.pr.precision, precision, atol=1e-15)
    np.testing.assert_allclose(found.pr.recall, recall, atol=1e-15)
    assert found.auc == pytest.approx(auc, abs=1e-15)
    assert found.ap == pytest.approx(ap, abs=1e-15)


@ways
@data
def test_curves_and_areas_are_scikit_learns(measure, name):
    labels, scores = draw(name)
    expected = sk.roc_curve(labels, scores, drop_intermediate=False)
    for found, wanted in zip(measure(labels, scores).roc, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    expected = sk.precision_recall_curve(labels, scores)
    for found, wanted in zip(measure(labels, scores).pr, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-15)
    found = measure(labels, scores)
    assert found.auc == pytest.approx(sk.roc_auc_score(labels, scores), abs=1e-13)
    assert found.ap == pytest.approx(sk.average_precision_score(labels, scores), abs=1e-13)


@data
def test_bounds_close_in_as_bins_multiply(name):
    labels, scores = draw(name)
    low, high = float(np.min(scores)) - 1e-3, float(np.max(scores)) + 1e-3
    widths = []
    for bins in (1, 4, 64, 1024):
        result = fg.evaluate({"a": (labels, scores)}, axis=Axis.uniform(bins, low, high))
        widths.append(np.ptp(result.roc_auc.bounds))
    assert np.all(np.diff(widths) <= 1e-14)
    assert widths[0] == pytest.approx(1)


@ways
@pytest.mark.parametrize("constant", [0.0, 0.25, 1.0, -3.0])
def test_a_constant_score_is_chance_and_base_rate(measure, constant):
    labels = np.zeros(100, dtype=int)
    labels[::4] = 1
    found = measure(labels, np.full(100, constant))
    np.testing.assert_array_equal(found.roc.fpr, [0, 1])
    np.testing.assert_array_equal(found.roc.tpr, [0, 1])
    assert found.auc == 0.5
    assert found.ap == 0.25
    np.testing.assert_allclose(found.roc([0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=1e-15)
    np.testing.assert_array_equal(found.pr([0.1, 0.5, 1.0]), 0.25)


@pytest.mark.parametrize("constant", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("bins", [1, 10])
@pytest.mark.parametrize("estimator", [fg.Aligned(), fg.Aligned("linear"), fg.Quantile(16)])
def test_a_constant_score_on_a_uniform_axis(constant, bins, estimator):
    labels = np.zeros(100, dtype=int)
    labels[::4] = 1
    rows = {"a": (labels, np.full(100, constant))}
    result = fg.evaluate(rows, axis=Axis.uniform(bins), estimator=estimator)
    assert result.roc_auc.value == pytest.approx(0.5, abs=1e-14)
    assert result.roc_curve()(0.25) == pytest.approx(0.25)
    assert result.average_precision.value == pytest.approx(0.25, abs=1e-14)
    assert result.roc_auc.bounds == (0, 1)
    assert result.average_precision.bounds[1] == 1


@ways
@pytest.mark.parametrize("scores", [[0.1, 0.2, 0.8, 0.9], [0.3, 0.3, 0.7, 0.7], [-2, -1, 0, 9]])
def test_a_perfect_ranking(measure, scores):
    found = measure([0, 0, 1, 1], scores)
    assert found.auc == 1
    assert found.ap == 1
    np.testing.assert_array_equal(found.roc([0, 0.5, 1]), 1)
    np.testing.assert_array_equal(found.pr([0, 0.5, 1]), 1)


def test_a_change_of_score_and_edges_changes_no_curve():
    edges = np.linspace(0, 1, 17)
    before = fg.evaluate({"a": (LABELS, PROBABILITIES)}, axis=Axis.from_edges(edges))
    after = fg.evaluate({"a": (LABELS, PROBABILITIES**2)}, axis=Axis.from_edges(edges**2))
    assert after.roc_auc == before.roc_auc
    assert after.average_precision == before.average_precision


def test_duplicate_examples_change_no_estimated_curve():
    axis = Axis.uniform(16)
    before = fg.evaluate({"a": (LABELS, PROBABILITIES)}, axis=axis)
    after = fg.evaluate({"a": (LABELS, PROBABILITIES), "b": (LABELS, PROBABILITIES)}, axis=axis)
    x = np.linspace(0, 1, 101)
    np.testing.assert_allclose(after.roc_curve()(x), before.roc_curve()(x), atol=1e-9)
    np.testing.assert_allclose(after.pr_curve()(x[1:]), before.pr_curve()(x[1:]), atol=1e-9)


@ways
@pytest.mark.parametrize(
    ("labels", "scores"),
    [
        ([0, 0, 0, 0, 1, 1], [0.0, 0.2, 0.5, 0.6, 0.7, 1.0]),
        (
            [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1],
            [0.0, 0.1, 0.6, 0.6, 0.7, 0.8, 0.9, 0.6, 0.7, 0.8, 0.9, 0.9, 1.0],
        ),
    ],
)
def test_dropping_knots_on_a_line_leaves_the_same_curve(measure, labels, scores):
    roc = measure(labels, scores).roc
    fpr, tpr, thresholds = sk.roc_curve(labels, scores, drop_intermediate=True)
    assert len(thresholds) < len(roc.thresholds)
    assert set(thresholds) <= set(roc.thresholds)
    x = np.linspace(0.001, 1, 100)
    np.testing.assert_allclose(roc(x), np.interp(x, fpr, tpr), atol=1e-12)


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("axis", [Axis.from_values([0.25, 0.75]), Axis.uniform(4)], ids=repr)
@pytest.mark.parametrize(
    "read",
    [
        lambda result: result.roc_auc,
        lambda result: result.average_precision,
        lambda result: result.roc_curve(),
        lambda result: result.pr_curve(),
    ],
    ids=["roc_auc", "average_precision", "roc_curve", "pr_curve"],
)
def test_one_class_has_no_pooled_curve(read, axis, label):
    result = fg.evaluate({"a": ([label, label], [0.25, 0.75])}, axis=axis)
    with pytest.raises(
        UndefinedMetric, match=f"has a {'negative' if label else 'positive'} example"
    ):
        read(result)


def test_one_class_at_each_client_is_enough():
    result = fg.evaluate(
        {"sick": ([1, 1], [0.4, 0.8]), "well": ([0, 0], [0.1, 0.4])},
        axis=Axis.from_values([0.1, 0.4, 0.8]),
    )
    assert result.roc_auc.value == pytest.approx(3.5 / 4, abs=1e-15)
