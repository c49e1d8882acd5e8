"""Two results: how far they differ, what intervals rest on, what cannot be compared."""

import math
import re

import numpy as np
import pytest
from refusals import refused

import fedgauge as fg


def rows(n=2000, signal=1.5, seed=0, share=0.3):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < share
    return y, 1 / (1 + np.exp(1 - signal * y - rng.normal(size=n)))


def result(seed=0, signal=1.5, **options):
    y, s = rows(seed=seed, signal=signal)
    return fg.evaluate({"a": (y[::2], s[::2]), "b": (y[1::2], s[1::2])}, **options)


MAY, JUNE = result(), result(seed=1, signal=1.0)


def test_values_and_deviations_are_those_of_both_results():
    found = fg.diff(JUNE, MAY)
    for name in ("roc_auc", "average_precision", "brier_score", "log_loss", "calibration_slope"):
        expected = getattr(JUNE, name).value - getattr(MAY, name).value
        assert getattr(found, name).value == pytest.approx(expected)
    at = found.at_threshold(0.5)
    assert at.recall.value == pytest.approx(
        JUNE.at_threshold(0.5).recall.value - MAY.at_threshold(0.5).recall.value
    )
    share = JUNE.positives / JUNE.examples - MAY.positives / MAY.examples
    assert found.prevalence.value == pytest.approx(share)
    apart, over = fg.diff(JUNE, MAY), fg.diff(JUNE, MAY, rows="overlapping")
    one, other = (each.roc_auc.parts["sampling"] for each in (JUNE, MAY))
    assert apart.roc_auc.parts["sampling"] == pytest.approx(math.hypot(one, other))
    assert over.roc_auc.parts["sampling"] == pytest.approx(one + other)
    assert over.at_threshold(0.5).fpr.low < apart.at_threshold(0.5).fpr.low
    assert "assumed to have different rows" in apart.basis
    assert "may be in both" in over.basis
    assert apart.basis in str(apart)


def test_what_differs_and_what_is_the_same_is_noted():
    noisy = result(seed=2, privacy=fg.DistributedDP(epsilon=1.0))
    found = fg.diff(MAY, noisy)
    assert found.roc_auc.parts["noise"] == pytest.approx(noisy.roc_auc.parts["noise"])
    assert any("privacy differs" in note for note in found.notes)
    other = fg.evaluate({"a": rows(seed=3)}, axis=fg.Axis.uniform(50))
    notes = " ".join(fg.diff(MAY, other).notes)
    assert "axes differ" in notes
    assert "2 clients took part in one, 1 in the other" in notes
    assert not fg.diff(MAY, JUNE).notes
    found = fg.diff(MAY.with_calibrator(JUNE.calibrator("beta")), MAY)
    assert found.overlapping
    assert "same counts" in found.basis
    assert any("different calibrators" in note for note in found.notes)
    assert fg.diff(JUNE.at_level(0.8), MAY).roc_auc.level == 0.8


def grouped(names, seed=0, **options):
    y, s = rows(seed=seed)
    group = np.random.default_rng(seed).choice(names, len(y))
    examples = fg.Examples(y, s, group=group)
    return fg.evaluate({"a": examples}, groups=list(names), **options)


def test_slices_that_both_have_are_compared_one_by_one():
    found = fg.diff(grouped(["x", "y"]), grouped(["x", "z"], seed=1))
    named = [str(each.first.slice) for each in found.slices]
    assert named[:2] == ["all", "group x"]
    assert "group y" not in named
    assert any("in one of the results only" in note for note in found.notes)
    frame = found.to_frame([0.5])
    assert set(frame["group"].dropna()) == {"x", "other"}
    assert {"roc_auc", "recall", "prevalence"} <= set(frame["metric"])
    assert "ROC AUC, group x" in str(found)
    assert found.select(group="x").roc_auc == found.slices[1].roc_auc


def test_a_part_that_is_not_defined_says_so():
    one_class = fg.evaluate({"a": ([1, 1, 1], [0.2, 0.5, 0.9])})
    found = fg.diff(MAY, one_class)
    assert "ROC AUC" in str(found)
    assert "undefined" in str(found)
    row = found.to_frame().query("metric == 'roc_auc'").iloc[0]
    assert np.isnan(row["value"])
    assert row["caution"]
    y, s = rows()  # scores that are no probabilities have no losses
    wide = {"axis": fg.Axis.uniform(64, low=0, high=10)}
    parts = [fg.evaluate({"a": (y[i::2], 10 * s[i::2])}, **wide) for i in range(2)]
    assert re.search("Brier score +undefined", str(fg.diff(*parts)))


def of_classes(task):
    y, s = rows()
    scores = np.column_stack([1 - s, s])
    labels = np.array(["w", "s"])[y.astype(int)] if task is fg.MulticlassTask else scores > 0.5
    return fg.evaluate({"a": fg.Examples(labels, scores)}, task=task(labels=["w", "s"]))


def test_other_tasks_are_refused_and_a_class_of_one_may_be_the_other():
    classes, labels = of_classes(fg.MulticlassTask), of_classes(fg.MultilabelTask)
    with pytest.raises(fg.InputError, match=r"first is of several classes.*second of one score"):
        fg.diff(classes, MAY)
    with pytest.raises(fg.InputError, match=r"second is of several classes.*first of one score"):
        fg.diff(MAY, classes)
    refused(fg.InputError, "different kinds of task", fg.diff, classes, labels)
    y, s = rows(seed=4)
    sick = fg.evaluate({"a": (np.where(y, "s", "w"), s)}, positive="s")
    assert fg.diff(classes.select(label="s"), sick).roc_auc.value < 0.1


def test_what_cannot_be_compared_is_refused():
    sick, well = (fg.evaluate({"a": (["s", "w"], [0.9, 0.1])}, positive=p) for p in "sw")
    one, same = (grouped(["x", "y"]).select(group="x") for _ in range(2))
    for first, second, which, told in (
        (MAY, MAY, "different", "same result"),
        (MAY, "may.json", "different", "got str"),
        (MAY, JUNE, "paired", "'different' or 'overlapping'"),
        (sick, well, "different", "different labels as positive"),
        (one, same, "different", "same result"),
    ):
        refused(fg.InputError, told, fg.diff, first, second, rows=which)
    y, s = rows()
    one, other = (
        fg.evaluate({"a": fg.Examples(y, dict.fromkeys(names, s))}, models=list(names))
        for names in (("a", "b"), ("c", "d"))
    )
    refused(fg.InputError, "no model, class or group in common", fg.diff, one, other)
    found = fg.diff(one.select(model="a"), other.select(model="c"))
    assert found.roc_auc.value == 0
    assert "model a" in found.notes[0]
