"""What an operator is told of rows with classes, labels and groups."""

import numpy as np
import pytest
from plans import noisy_plan

import fedgauge as fg
from fedgauge.engines.contribution import count_exactly, count_leniently
from fedgauge.plan.summary import summarise

CLASSES = ("cat", "dog", "owl")


def counted(task, *rows, **more):
    plan = noisy_plan(bins=8, task=task)
    histogram, oddities = count_leniently(plan, lambda: fg.Examples.leniently(*rows, **more))
    assert not oddities.failure
    return summarise(plan.task, histogram.counts, oddities)


def told(task, *rows, **more):
    return counted(task, *rows, **more).warnings(None, 0.0, 1.0)


def pets(rows=600, order=(0, 1, 2), seed=3):
    """Labels and scores of a fair model, the columns in an order."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, rows)
    odds = np.exp(rng.normal(size=(rows, 3)) + 1.0 * (kind[:, None] == np.arange(3)))
    scores = odds / odds.sum(axis=1, keepdims=True)
    return np.array(CLASSES)[kind], scores[:, list(order)]


@pytest.mark.parametrize(
    ("order", "swapped"),
    [
        ((0, 1, 2), ()),
        ((1, 0, 2), ("cat", "dog")),
        ((2, 1, 0), ("cat", "owl")),
        ((1, 2, 0), CLASSES),
    ],
)
@pytest.mark.parametrize("groups", [{}, {"sex": ["women"], "ward": ["1", "2"]}])
def test_columns_of_classes_that_are_swapped_are_told(order, swapped, groups):
    labels, scores = pets(order=order)
    task = fg.MulticlassTask(labels=CLASSES, groups=groups)
    group = {name: np.resize([*values, "none"], len(labels)) for name, values in groups.items()}
    seen = counted(task, labels, scores, group=group or None)
    assert seen.swapped == swapped
    sentences = [each for each in seen.warnings(None, 0, 1) if "another class scores" in each]
    assert len(sentences) == bool(swapped)
    assert all(f"by the score of {', '.join(swapped)} another" in each for each in sentences)


def test_nothing_is_told_of_the_order_of_columns_by_few_rows():
    labels, scores = pets(rows=100, order=(1, 0, 2))
    assert counted(fg.MulticlassTask(labels=CLASSES), labels, scores).swapped == ()


def test_a_model_that_cannot_tell_classes_apart_has_no_columns_swapped():
    """Scores that favour owls whatever a row is: no two classes stand in each other's place."""
    labels, scores = pets()
    scores[:, :] = np.where(labels == "owl", 0.9, 0.1)[:, None]
    assert counted(fg.MulticlassTask(labels=CLASSES), labels, scores).swapped == ()


def test_the_scores_of_the_first_model_are_looked_at():
    labels, right = pets()
    _, wrong = pets(order=(1, 0, 2))
    task = fg.MulticlassTask(labels=CLASSES, models=["new", "old"])
    assert counted(task, labels, {"new": wrong, "old": right}).swapped == ("cat", "dog")
    assert counted(task, labels, {"new": right, "old": wrong}).swapped == ()


@pytest.mark.parametrize(
    ("groups", "warned"),
    [
        pytest.param(["women", "men"] * 5, None, id="all listed"),
        pytest.param(["women", "men", "x", "x", "x"] * 2, "6 of 10", id="most unlisted"),
        pytest.param(["women", "men", "men", "x", "x"] * 2, None, id="some unlisted"),
        pytest.param(["men"] * 8 + ["x"] * 2, "and none are of women", id="one written otherwise"),
        pytest.param(["men"] * 9 + ["x"], None, id="none there"),
        pytest.param(["Women", "Men"] * 5, "and none are of women, men", id="capitals"),
        pytest.param([None] * 10, "10 of 10 rows", id="missing"),
    ],
)
def test_groups_that_hardly_occur_are_told(groups, warned):
    task = fg.BinaryTask(groups={"sex": ["women", "men"]})
    sentences = told(task, [0, 1] * 5, [0.5] * 10, group=groups)
    assert len(sentences) == (warned is not None)
    assert all(warned in each and "group of sex" in each for each in sentences)


def test_two_groupings_are_told_crossed_or_not():
    rows = [0, 1, 1, 0], [0.5] * 4
    groups = {"sex": ["women", "men", "men", "x"], "ward": [1.0, 2.0, 3.0, None]}
    lists = {"sex": ["women", "men"], "ward": ["1", "2"]}
    for crossed in (False, True):
        seen = counted(fg.BinaryTask(groups=lists, crossed=crossed), *rows, group=groups)
        assert [dict(parts.rows) for parts in seen.groups] == [
            {"women": 1, "men": 2, "other": 1},
            {"1": 1, "2": 1, "other": 2},
        ]


def test_labels_of_which_one_has_no_rows_are_told():
    labels = np.array([[0, 1], [0, 0]])
    (sentence,) = told(
        fg.MultilabelTask(labels=["fever", "cough"]), labels, np.array([[0.1, 0.2], [0.3, 0.4]])
    )
    assert sentence.startswith("none of 2 rows have the label fever, which is 1 in its column.")


def test_a_class_that_has_all_rows_is_told():
    scores = np.full((2, 3), 0.3)
    (sentence,) = told(fg.MulticlassTask(labels=CLASSES), ["dog", "dog"], scores)
    assert sentence == "all of 2 rows are of the class dog. Check the label column."


def test_odd_scores_and_labels_are_counted_once_however_many_groupings():
    task = fg.MultilabelTask(labels=["a", "b"], groups={"sex": ["w"], "ward": ["1"]})
    labels = np.array([[0, None], [1, 1]], dtype=object)
    scores = np.array([[0.1, 7.0], [np.nan, 0.4]])
    seen = counted(task, labels, scores, group={"sex": ["w", "w"], "ward": ["1", "1"]})
    assert seen.oddities.in_words == [
        "1 of 4 scores are missing, infinite or no numbers: counted in an end bin.",
        "1 of 4 scores lie beyond the axis: counted in its end bins.",
        "1 of 4 labels are missing: counted as negative.",
    ]
    assert seen.in_words.startswith("2 rows: positive a (1), b (1), 1 scores clipped")


def test_many_classes_are_told_in_short():
    names = [f"class {number}" for number in range(40)]
    task = fg.MulticlassTask(labels=names)
    seen = counted(task, names[:3] * 2, np.full((6, 40), 0.5))
    assert seen.in_words.startswith("6 rows: of classes 3 of 40 have rows, 0 scores clipped")


@pytest.mark.parametrize("order", ["C", "F"])
def test_clipped_scores_of_an_exact_sum_are_those_of_all_columns(order):
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(4, outside="clip"), fg.Cohort(3), task=fg.MulticlassTask(labels=CLASSES)
    )
    scores = np.asarray([[0.1, 20.0, 30.0], [0.1, 0.2, -1.0]], order=order)
    histogram, seen = count_exactly(plan, [fg.Examples(["cat", "dog"], scores)])
    assert histogram.sum() == seen.oddities.rows == 2
    assert seen.oddities.clipped == 3
    assert "3 of 6 scores lie beyond the axis" in seen.warnings(None, 0, 1)[0]
    assert "percent" in seen.warnings(None, 0, 1)[0]
