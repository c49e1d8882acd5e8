"""A metric is a row: computed once, listed and recorded as its row says."""

import fedgauge as fg
from fedgauge.measures.intervals import Estimate
from fedgauge.measures.metric import metric, metrics_of


class Thing:
    """Two metrics, one of them for the record only."""

    def __init__(self):
        self.computed = 0

    @metric("the second letter", listed=False, recorded=True)
    def b(self) -> Estimate:
        """B, in words."""
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
    assert Thing.b.__doc__ == "B, in words."


def test_an_attribute_is_an_estimate_computed_once():
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
