"""What a first user of slices does: mistakes that are told, forms of data that are taken alike."""

import copy
import pickle

import msgspec
import numpy as np
import pytest

import fedgauge as fg
from fedgauge.binning.tables import JointScores

RNG = np.random.default_rng(4)
N = 900
Y = RNG.random(N) < 0.4
S = np.clip(RNG.normal(0.4 + 0.2 * Y, 0.2), 0, 1)
OLD = np.clip(S + RNG.normal(0, 0.1, N), 0, 1)
SEX = RNG.choice(["women", "men"], N)
NAMES = ["cat", "dog", "owl"]
KIND = RNG.choice(3, N, p=[0.5, 0.3, 0.2])
P3 = RNG.random((N, 3)) + 0.6 * (KIND[:, np.newaxis] == np.arange(3))
P3 /= P3.sum(axis=1, keepdims=True)
CLASSES = fg.MulticlassTask(labels=NAMES, also=["confusion"])
COARSE = fg.Axis.uniform(64)


def by_group(groups=("women", "men"), group=SEX, **options):
    return fg.evaluate({"a": fg.Examples(Y, S, group=group)}, groups=groups, **options)


def of_classes(y_score=P3, y_true=None, task=CLASSES, **options):
    labels = np.array(NAMES)[KIND] if y_true is None else y_true
    return fg.evaluate({"a": fg.Examples(labels, y_score)}, task=task, **options)


def of_models(**options):
    return fg.evaluate(
        {"a": fg.Examples(Y, {"new": S, "old": OLD})}, models=["new", "old"], **options
    )


# Copies and files


@pytest.mark.parametrize("make", [of_models, of_classes], ids=["pair", "confusion"])
@pytest.mark.parametrize("bins", [16, 128])
def test_a_plan_with_tables_keeps_its_digest_when_it_is_copied(make, bins):
    plan = make(axis=fg.Axis.uniform(bins)).plan
    for again in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):  # noqa: S301
        assert again.digest == plan.digest
    assert fg.EvaluationPlan.from_bytes(plan.to_bytes()).digest == plan.digest
    assert b'"noise":0.0' not in plan.to_bytes()


def test_a_table_has_one_form():
    made = JointScores(models=("new", "old"))
    spelled = JointScores(models=("new", "old"), starts=((), ()), noise=float("0.0"))
    assert msgspec.json.encode(made) == msgspec.json.encode(spelled)
    plan = of_models(axis=COARSE).plan
    changed = plan.to_bytes().replace(b'"kind":"joint"', b'"kind":"joint","noise":0.0')
    assert changed != plan.to_bytes()
    with pytest.raises(fg.PlanError, match="not in the form"):
        fg.EvaluationPlan.from_bytes(changed)


@pytest.mark.parametrize(
    ("make", "part"),
    [(by_group, {"group": "men"}), (of_models, {"model": "new"}), (of_classes, {"label": "dog"})],
)
def test_a_part_is_not_saved_as_if_it_were_the_whole(make, part, tmp_path):
    result = make(axis=COARSE)
    with pytest.raises(fg.InputError, match="part of a result"):
        result.select(**part).to_json(tmp_path / "part.json")
    assert not (tmp_path / "part.json").exists()
    result.to_json(tmp_path / "whole.json")
    again = fg.Evaluation.from_json(tmp_path / "whole.json").select(**part)
    assert again.roc_auc == result.select(**part).roc_auc
    copied = pickle.loads(pickle.dumps(result.select(**part)))  # noqa: S301
    assert (str(copied), copied.slice) == (str(again), again.slice)


def test_classes_read_through_a_map_print():
    result = of_classes(axis=COARSE)
    after = result.with_calibrator(result.select(label="dog").calibrator("platt"))
    assert "label owl" in str(after)
    assert "macro average" in str(result)
    assert "macro average" not in str(after)
    assert "label owl" in after._repr_html_()


# Names


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ({"a": ["b c"], "a b": ["c"]}, "called the same"),
        ({"sex": ["women", "rest"]}, "'rest' is what"),
    ],
)
def test_names_of_groups_that_stand_for_two_things_are_refused(groups, told):
    with pytest.raises(fg.PlanError, match=told):
        fg.BinaryTask(groups=groups)


def test_crossed_groups_are_called_differently():
    same = {"a": ["x, b y", "x"], "b": ["y, b y", "y"]}
    with pytest.raises(fg.PlanError, match="called the same"):
        fg.BinaryTask(groups=same, crossed=True)
    assert len(fg.BinaryTask(groups=same).slices) == 7
