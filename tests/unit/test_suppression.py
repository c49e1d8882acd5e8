"""Groups too small to be shown: what a result says of them, and what a saved one must."""

import json

import numpy as np
import pytest
from plans import plan_for
from refusals import refused

import fedgauge as fg
from fedgauge.estimation.suppression import too_small
from fedgauge.plan.task import MulticlassTask, MultilabelTask

LEAST = 10


def rows(few=3, none=0):
    """Two large groups, one with a few rows of each class, and rows of no listed group."""
    rng = np.random.default_rng(2)
    y = rng.random(600) < 0.5
    group = np.where(np.arange(600) % 2, "a", "c").astype(object)
    group[np.flatnonzero(y)[:few]] = group[np.flatnonzero(~y)[:few]] = "b"
    group[np.flatnonzero(y)[few : few + none]] = group[np.flatnonzero(~y)[few : few + none]] = None
    return fg.Examples(y, np.clip(rng.normal(0.4 + 0.2 * y, 0.2), 0, 1), group=group)


def evaluate(data=None, least=LEAST, groups=("a", "b", "c")):
    task, alone = fg.BinaryTask(groups={"g": list(groups)}), fg.Cohort(1)
    plan = plan_for(None, None, alone, bins=16, outside="refuse", task=task, min_cell=least)
    return fg.evaluate({"site": data or rows()}, plan)


def test_small_groups_go_to_other_by_each_grouping():
    result = evaluate(rows(3, none=40))
    assert result.released.joined == ("b",)
    assert result.select(group="other").positives == 43
    assert result.select(group="a").withheld is None
    assert result.positives == 40 + 3 + sum(result.select(group=g).positives for g in "ac")
    task = fg.BinaryTask(groups={"g": ["a"], "h": ["x"]})
    counts = np.array([50, 50, 50, 50, 2, 60, 98, 40])[:, np.newaxis]
    assert too_small(task, counts, LEAST) == ("h x",)


def test_nothing_is_told_of_a_joined_group():
    part = evaluate().select(group="b")
    for ask in ("positives", "negatives", "roc_auc", "brier_score", "expected_calibration_error"):
        refused(fg.NoSignal, "group b is not shown: it is counted in 'other'", getattr, part, ask)
    for ask in (part.roc_curve, lambda: part.at_threshold(0.5), part.to_frame, part.calibrator):
        with pytest.raises(fg.NoSignal):
            ask()
    assert repr(part) == "<Evaluation at 1 client: group b is withheld>"
    assert str(part).startswith("group b: 1 client; too few examples to be shown\n")
    assert part.caution is None
    whole = evaluate()
    assert "not shown          b, c: at least one of them has fewer than 10 ex" in str(whole)
    frame = whole.to_frame(thresholds=[0.5])
    assert frame[frame["metric"] == "withheld"]["group"].tolist() == ["b", "c"]
    gaps = whole.gaps("recall", at=0.5)
    assert (gaps.groups["b"], gaps.pairs) == (None, ())
    assert gaps.withheld["b"].startswith("withheld: it is counted in 'other', because")
    assert str(gaps).endswith("No two groups can be compared.")
    with pytest.raises(fg.NoSignal, match="no two groups"):
        _ = gaps.largest


def test_without_the_rule_everything_is_shown_and_under_it_no_small_class():
    result = evaluate(least=0)
    assert result.released.joined == ()
    assert result.select(group="b").positives == 3
    assert not result.select(group="other").pooled.counts.any()
    with pytest.raises(fg.UndefinedMetric, match="there is no example"):
        _ = result.select(group="other").log_loss
    y = np.arange(300) < 5
    data = fg.Examples(y, np.linspace(0, 1, 300), group=["a"] * 300)
    refused(fg.ResultWithheld, "smallest cell, 10", evaluate, data)


@pytest.fixture
def saved(tmp_path):
    evaluate().to_json(tmp_path / "r.json")
    return tmp_path / "r.json"


def test_a_saved_result_names_what_is_joined(saved):
    again = fg.Evaluation.from_json(saved)
    assert again.released.joined == ("b", "c")
    assert again.record == evaluate().record
    evaluate(least=0).to_json(saved)
    assert "joined" not in json.loads(saved.read_bytes())


def moved(plain, *changes, slices=True):
    """Counts of the first bin, changed by channel, and in the slices that they are in."""
    for channel, change in changes:
        plain["channels"][channel][0] += change
        if slices:
            plain["slices"][channel // 2 + 1]["counts"][0][0] += change


BREAKS = {
    "an unknown group": lambda plain: plain.update(joined=["b", "c", "d"]),
    "the last": lambda plain: plain.update(joined=["b", "c", "other"]),
    "a shown one": lambda plain: plain.update(joined=["a", "b", "c"]),
    "no rule": lambda plain: plain["plan"].pop("min_cell"),
    "renamed": lambda plain: plain["slices"][1].update(group="c"),
    "small": lambda plain: moved(plain, (2, 3), (6, -3)),
    "negative": lambda plain: moved(plain, (2, -3), (6, 3), slices=False),
}


@pytest.mark.parametrize("name", BREAKS)
def test_saved_results_that_break_the_rule_are_refused(saved, name):
    plain = json.loads(saved.read_bytes())
    BREAKS[name](plain)
    saved.write_text(json.dumps(plain))
    refused(fg.RecordError, "not a fedgauge result", fg.Evaluation.from_json, saved)


def words(task, privacy=None):
    plan = plan_for(privacy, bins=16, task=task, min_cell=0 if privacy else 10)
    return dict(plan.in_words()), repr(plan._repr_html_())


def test_what_leaves_names_groups_classes_and_models():
    two = {"sex": ["women", "men"], "age": ["old"]}
    each, html = words(fg.BinaryTask(groups=two), fg.DistributedDP(1.0))
    assert (
        "how many positive and how many negative examples of each group by sex (women, men, "
        "other), and of each by age (old, other), have a score in each of 16 ranges. Each example "
        "counts 2 times, and the promise is for all of them together."
    ) in each["What leaves each site"]
    assert "a row counts in each" in html
    crossed, html = words(fg.BinaryTask(groups=two, crossed=True))
    told = crossed["What leaves each site"]
    assert "of each combination of sex (women, men, other) and age (old, other) have a" in told
    assert "times" not in told
    assert "crossed: a row counts once" in html
    assert (
        "nobody can subtract the other groups from the total"
        in crossed["What is shown of small groups"]
    )
    plain, _ = words(fg.BinaryTask())
    assert "subtract the other groups" not in plain["What is shown of small groups"]
    models, _ = words(fg.BinaryTask(models=("new", "old")))
    assert "have a score of each model (new, old) in each" in models["What leaves each site"]
    classes, html = words(MulticlassTask(labels=["cat", "dog"]))
    assert (
        "how many examples of each class (cat, dog) have a score for each class in each of"
        in (classes["What leaves each site"])
    )
    assert "cat, dog" in html
    labels, _ = words(MultilabelTask(labels=["fever", "cough"]))
    assert "for each label (fever, cough) how many positive" in labels["What leaves each site"]
    many, _ = words(fg.BinaryTask(groups={"g": [f"g{i}" for i in range(40)]}))
    assert "g19 and 21 more)" in many["What leaves each site"]
