"""Net benefit against its definition on raw scores, by scikit-learn's confusion matrix. The
definition is that of Vickers & Elkin 2006, as in the R and Python packages dcurves: positive from
the threshold up, ``tp_rate - t / (1 - t) * fp_rate`` with rates of all examples."""

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

import fedgauge as fg
from fedgauge import Axis

AXES = {
    "uniform": lambda _: Axis.uniform(20),
    "fine": lambda _: Axis.uniform(4096),
    "logit": lambda _: Axis.logit(16, limit=3, outside="clip"),
    "values": lambda scores: Axis.from_values(scores),
}


def draw(rate, n=700):
    rng = np.random.default_rng(round(1000 * rate))
    labels = (rng.random(n) < rate).astype(int)
    return labels, np.round(rng.beta(1 + 3 * labels, 4), 2)  # many scores on edges


def benefits(labels, scores, threshold):
    """Of the model and of treating everybody."""
    weight = threshold / (1 - threshold)
    found = []
    for flagged in (scores >= threshold, np.ones(len(scores), dtype=bool)):
        (_, fp), (_, tp) = confusion_matrix(labels, flagged, labels=[False, True])
        found.append(tp / len(labels) - weight * fp / len(labels))
    return found


@pytest.mark.parametrize("kind", AXES)
@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_exact_at_edges(kind, rate):
    labels, scores = draw(rate)
    axis = AXES[kind](scores)
    result = fg.evaluate(
        {"a": (labels[:300], scores[:300]), "b": (labels[300:], scores[300:])}, axis=axis
    )
    curve = result.decision_curve()
    expected = np.array([benefits(labels, scores, t) for t in curve.thresholds])
    np.testing.assert_allclose(curve.net_benefit, expected[:, 0], atol=1e-12)
    np.testing.assert_allclose(curve.treat_all, expected[:, 1], atol=1e-12)
    for threshold, (model, _) in zip(curve.thresholds[::7], expected[::7], strict=True):
        found = result.net_benefit(threshold)
        assert found.bounds == pytest.approx((model, model), abs=1e-12)


@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_bounds_hold_it_between_edges(rate):
    labels, scores = draw(rate)
    result = fg.evaluate({"a": (labels, scores)}, axis=Axis.uniform(10))
    for threshold in np.arange(1, 100) / 100:
        low, high = result.net_benefit(threshold).bounds
        assert low - 1e-12 <= benefits(labels, scores, threshold)[0] <= high + 1e-12
