"""Averages, curves and confusion matrices of several classes, against scikit-learn's."""

import itertools

import numpy as np
import pytest
from sklearn import metrics

import fedgauge as fg
from fedgauge.metrics.curves import average_pr, average_roc

N = 20_000


def world(classes, seed=0, *, digits=None, n=N):
    """Labels and probabilities of so many classes; rounded, many of them tie."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(classes, 8.0))
    labels = rng.choice(classes, n, p=shares)
    logits = rng.normal(size=(n, classes)) + np.log(shares)
    logits[np.arange(n), labels] += 1.5
    scores = np.exp(logits)
    scores /= scores.sum(axis=1, keepdims=True)
    return labels, scores if digits is None else np.round(scores, digits)


def evaluated(labels, scores, **options):
    classes = list(range(scores.shape[1]))
    axis = options.pop("axis", None) or fg.Axis.uniform(4096)
    task = fg.MulticlassTask(labels=classes, also=options.pop("also", ()))
    half = len(labels) // 2
    rows = {
        "a": fg.Examples(labels[:half], scores[:half]),
        "b": fg.Examples(labels[half:], scores[half:]),
    }
    return fg.evaluate(rows, task=task, axis=axis, **options)


@pytest.mark.parametrize("classes", [3, 5, 10])
def test_areas_are_those_of_the_pooled_rows(classes):
    labels, scores = world(classes)
    result = evaluated(labels, scores)
    for average, against in itertools.product(["macro", "weighted"], ["rest", "one"]):
        expected = metrics.roc_auc_score(
            labels, scores, average=average, multi_class={"rest": "ovr", "one": "ovo"}[against]
        )
        found = result.macro("roc_auc", average=average, against=against)
        assert found.value == pytest.approx(expected, abs=1e-5)
        assert found.bounds[0] <= expected <= found.bounds[1]
        assert found.low < found.bounds[0]
        assert found.high > found.bounds[1]
    table = np.eye(classes)[labels]
    micro = metrics.roc_auc_score(table, scores, average="micro")
    assert result.macro("roc_auc", average="micro").value == pytest.approx(micro, abs=1e-5)
    for average in ("macro", "weighted", "micro"):
        expected = metrics.average_precision_score(table, scores, average=average)
        found = result.macro("average_precision", average=average)
        assert found.value == pytest.approx(expected, abs=1e-5)
        assert found.bounds[0] <= expected <= found.bounds[1]


@pytest.mark.parametrize(("known", "digits"), [(True, 3), (False, 3), (False, 2)])
@pytest.mark.parametrize("classes", [3, 5, 10])
def test_tied_scores_are_exact(classes, known, digits):
    """On an axis of the values, and on bins narrower than they are apart."""
    labels, scores = world(classes, digits=digits, n=5000)
    axis = fg.Axis.from_values(np.unique(scores)) if known else None
    result = evaluated(labels, scores, axis=axis)
    table = np.eye(classes)[labels]
    for average in ("macro", "weighted", "micro"):
        expected = metrics.average_precision_score(table, scores, average=average)
        found = result.macro("average_precision", average=average)
        assert found.value == pytest.approx(expected, abs=1e-12)
        expected = metrics.roc_auc_score(table, scores, average=average)
        assert result.macro("roc_auc", average=average).value == pytest.approx(expected, abs=1e-12)
    pairs = itertools.combinations(range(classes), 2)
    by_hand = [_hand_and_till(labels, scores, *pair) for pair in pairs]
    found = result.macro("roc_auc", against="one")
    assert found.value == pytest.approx(np.mean(by_hand), abs=1e-12)


def _hand_and_till(labels, scores, one, two):
    both = np.isin(labels, [one, two])
    first = metrics.roc_auc_score(labels[both] == one, scores[both, one])
    second = metrics.roc_auc_score(labels[both] == two, scores[both, two])
    return (first + second) / 2


@pytest.mark.parametrize("digits", [None, 3])
def test_fifty_classes(digits):
    """Their scores crowd near 0: a logit axis, or for rounded ones bins of equal width."""
    labels, scores = world(50, n=3000, digits=digits)
    axis = fg.Axis.logit(4096) if digits is None else fg.Axis.uniform(4096)
    result, table = evaluated(labels, scores, axis=axis), np.eye(50)[labels]
    for average in ("macro", "weighted", "micro"):
        for name in ("roc_auc", "average_precision"):
            expected = getattr(metrics, f"{name}_score")(table, scores, average=average)
            found = result.macro(name, average=average)
            assert found.value == pytest.approx(expected, abs=1e-4 if digits is None else 1e-12)


def test_metrics_at_a_threshold():
    labels, scores = world(4)
    result = evaluated(labels, scores)
    table, flagged = np.eye(4)[labels], scores >= 0.5
    for name, score in (
        ("recall", metrics.recall_score),
        ("precision", metrics.precision_score),
        ("f1", metrics.f1_score),
    ):
        for average in ("macro", "weighted", "micro"):
            expected = score(table, flagged, average=average)
            found = result.macro(name, average=average, at=0.5)
            assert found.value == pytest.approx(expected, abs=1e-12)
            assert found.low < expected < found.high


def test_classes_without_examples_are_left_out():
    labels, scores = world(4)
    kept = labels != 2
    labels, scores = labels[kept], scores[kept]
    result = evaluated(labels, scores)
    found = result.macro("roc_auc")
    there = [metrics.roc_auc_score(labels == k, scores[:, k]) for k in (0, 1, 3)]
    assert found.value == pytest.approx(np.mean(there), abs=1e-5)
    assert found.caution == "left out, without examples or hidden by noise: 2"
    pairs = [_hand_and_till(labels, scores, *pair) for pair in ((0, 1), (0, 3), (1, 3))]
    ovo = result.macro("roc_auc", against="one")
    assert ovo.value == pytest.approx(np.mean(pairs), abs=1e-5)
    shares = np.bincount(labels, minlength=4)[[0, 1, 3]]
    weighted = result.macro("roc_auc", average="weighted")
    assert weighted.value == pytest.approx(np.average(there, weights=shares), abs=1e-5)
    precisions = [metrics.average_precision_score(labels == k, scores[:, k]) for k in (0, 1, 3)]
    found = result.macro("average_precision")
    assert found.value == pytest.approx(np.mean(precisions), abs=1e-5)
    everything = (labels[:, None] == np.arange(4)).ravel(), scores.ravel()
    for name in ("roc_auc", "average_precision"):
        expected = getattr(metrics, f"{name}_score")(*everything)
        assert result.macro(name, average="micro").value == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("against", ["rest", "one"])
def test_averaged_curves_are_those_of_the_pooled_rows(against):
    labels, scores = world(3)
    result = evaluated(labels, scores)
    exact_roc, exact_pr, support = [], [], []
    pairs = (
        [(k, None) for k in range(3)] if against == "rest" else itertools.permutations(range(3), 2)
    )
    for mine, other in pairs:
        rows = slice(None) if other is None else np.isin(labels, [mine, other])
        pair = (labels[rows] == mine, scores[rows, mine])
        exact_roc.append(fg.exact_roc_curve(*pair))
        exact_pr.append(fg.exact_pr_curve(*pair))
        support.append(np.count_nonzero(np.isin(labels, [mine, other])))
    even, weights = np.full(len(support), 1 / len(support)), np.array(support) / np.sum(support)
    for average, chosen in (("macro", even), ("weighted", weights)):
        roc = result.macro_roc_curve(average=average, against=against)
        pr = result.macro_pr_curve(average=average, against=against)
        assert fg.area_error(roc, average_roc(exact_roc, chosen)) < 3e-5
        assert fg.area_error(pr, average_pr(exact_pr, chosen)) < 3e-4
        at = np.linspace(0.01, 0.99, 23)
        by_hand = sum(w * curve(at) for w, curve in zip(chosen, exact_roc, strict=True))
        assert np.abs(roc(at) - by_hand).max() < 2e-3
        area = result.macro("roc_auc", average=average, against=against).value
        assert roc.path.area() == pytest.approx(area, abs=1e-5)
        assert np.isnan(roc.thresholds).all()
    micro = result.macro_roc_curve(average="micro")
    assert micro.path.area() == pytest.approx(result.macro("roc_auc", average="micro"), abs=1e-6)
    assert np.isfinite(micro.thresholds[1:]).all()


@pytest.mark.parametrize("digits", [None, 1])
@pytest.mark.parametrize("classes", [3, 5, 10, 50])
def test_confusion_matrix_and_what_follows(classes, digits):
    labels, scores = world(classes, digits=digits, n=4000)
    result = evaluated(labels, scores, also=["confusion", "ranks", "top"], axis=fg.Axis.uniform(64))
    matrix, said = result.confusion_matrix(), scores.argmax(axis=1)
    everything = list(range(classes))
    assert (matrix.counts == metrics.confusion_matrix(labels, said, labels=everything)).all()
    for normalize in ("true", "pred", "all"):
        expected = metrics.confusion_matrix(labels, said, labels=everything, normalize=normalize)
        found = matrix.normalized(normalize)
        assert np.allclose(np.nan_to_num(found), expected, atol=1e-12)
        low, high = matrix.intervals(normalize)
        assert not np.any((found < low) | (found > high))
    for found, expected in (
        (matrix.accuracy, metrics.accuracy_score(labels, said)),
        (matrix.balanced_accuracy, metrics.balanced_accuracy_score(labels, said)),
        (matrix.macro_f1, metrics.f1_score(labels, said, average="macro")),
        (matrix.kappa, metrics.cohen_kappa_score(labels, said)),
        (matrix.mcc, metrics.matthews_corrcoef(labels, said)),
    ):
        assert found.value == pytest.approx(expected, abs=1e-10)
        assert found.low < expected < found.high
    if digits is None:
        for k in (1, 2):
            expected = metrics.top_k_accuracy_score(labels, scores, k=k, labels=everything)
            assert result.top_k_accuracy(k).value == pytest.approx(expected)
    assert result.top_k_accuracy(1) == matrix.accuracy
    assert result.top_k_accuracy(classes).value == 1.0


def test_calibration_of_the_top_label():
    labels, scores = world(4, n=4000)
    result = evaluated(labels, scores, also=["top"])
    right, top = scores.argmax(axis=1) == labels, scores.max(axis=1)
    part = result.top_label()
    assert part.brier_score.value == pytest.approx(np.mean((top - right) ** 2), abs=1e-4)
    assert part.roc_auc.value == pytest.approx(metrics.roc_auc_score(right, top), abs=1e-4)
    curve = part.calibration_curve(10)
    assert curve.count.sum() == len(labels)
