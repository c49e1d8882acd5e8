"""What a first user of slices does: mistakes that are told, forms of data that are taken alike."""

import copy
import pickle

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

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


@pytest.mark.parametrize("groups", [[0, 1], [True, False]])
def test_groups_that_are_no_text_are_told_how_to_be(groups):
    with pytest.raises(fg.PlanError, match='write "1" for 1'):
        by_group(groups, group=np.arange(N) % 2)


def test_groups_of_numbers_are_selected_by_number():
    result = by_group(["0", "1"], group=np.arange(N) % 2, axis=COARSE)
    assert result.select(group=1).roc_auc == result.select(group="1").roc_auc


def test_names_come_in_arrays_too():
    assert by_group(np.array(["women", "men"]), axis=COARSE).plan == by_group(axis=COARSE).plan
    rows = {"a": fg.Examples(Y, {"new": S, "old": OLD})}
    names = np.array(["new", "old"])
    assert fg.evaluate(rows, models=names, axis=COARSE).plan == of_models(axis=COARSE).plan


@pytest.mark.parametrize("make", [fg.BinaryTask, lambda **of: fg.MulticlassTask(NAMES, **of)])
@pytest.mark.parametrize("groups", [["women", "men"], "sex", {"women", "men"}])
def test_groups_of_a_task_need_the_name_of_a_grouping(make, groups):
    with pytest.raises(fg.PlanError, match="groups must map groupings to their values"):
        make(groups=groups)


@pytest.mark.parametrize("models", [5, "new"])
def test_models_that_are_no_list_are_refused(models):
    with pytest.raises(fg.PlanError, match="models must be a list of names"):
        fg.evaluate({"a": fg.Examples(Y, {"new": S, "old": OLD})}, models=models)


# Questions


def test_thresholds_and_margins_that_are_no_numbers_are_told():
    grouped, models = by_group(axis=COARSE), of_models(axis=COARSE)
    assert grouped.gaps("recall", at="0.5").metric == "recall at 0.5"
    for ask in (
        lambda: grouped.gaps("recall", at="half"),
        lambda: grouped.at_threshold("half"),
        lambda: models.compare("new", "old").at_threshold(None),
        lambda: of_classes(axis=COARSE).macro("recall", at="half"),
    ):
        with pytest.raises(fg.InputError, match="a threshold must be a number"):
            ask()
    with pytest.raises(fg.InputError, match="margin must lie between 0 and 1"):
        models.compare("new", "old", margin="0.01")


def test_a_comparison_is_short_in_a_list():
    assert repr(of_models(axis=COARSE).compare("new", "old")).startswith(
        "<Comparison of new less old: ROC AUC "
    )


def test_top_k_takes_numbers_of_arrays():
    task = fg.MulticlassTask(labels=NAMES, also=["ranks"])
    result = of_classes(task=task, axis=COARSE)
    assert result.top_k_accuracy(np.int64(2)) == result.top_k_accuracy(2)


def test_several_models_of_classes_say_which():
    rows = fg.Examples(np.array(NAMES)[KIND], {"new": P3, "old": P3[:, ::-1]})
    task = fg.MulticlassTask(labels=NAMES, models=("new", "old"), also=["confusion"])
    result = fg.evaluate({"a": rows}, task=task, axis=COARSE)
    for ask in (result.confusion_matrix, lambda: result.macro("roc_auc")):
        with pytest.raises(fg.InputError, match=r"several models. Say which"):
            ask()


def test_scores_of_any_model_in_another_unit_are_a_caution():
    rows = {name: fg.Examples(Y, {"new": S, "old": 100 * OLD}) for name in "abc"}
    axis = fg.Axis.uniform(32, outside="clip")
    result = fg.evaluate(rows, models=["new", "old"], axis=axis)
    assert str(result.caution).startswith("model old: the last bin of the axis")
    assert result.select(model="new").caution is None
    assert str(result.select(model="old").caution).startswith("the last bin of the axis")
    scores = np.column_stack([P3[:, :2], 100 * P3[:, 2]])
    classes = of_classes(scores, axis=axis)
    assert str(classes.caution).startswith("label owl: the last bin of the axis")


def test_scores_near_0_are_no_crowd_of_many_classes():
    many = fg.MulticlassTask(labels=range(20))
    kind = RNG.integers(0, 20, 4000)
    odds = np.exp(3 * RNG.normal(size=(4000, 20)) + (kind[:, np.newaxis] == np.arange(20)))
    scores = odds / odds.sum(axis=1, keepdims=True)
    axis = fg.Axis.uniform(64, outside="clip")
    result = fg.evaluate({"a": fg.Examples(kind, scores)}, task=many, axis=axis)
    assert result.caution is None


# Forms of data

FORMS = {
    "lists": lambda table: table.tolist(),
    "pandas": lambda table: pd.DataFrame(table, columns=NAMES),
    "unnamed": pd.DataFrame,
    "polars": lambda table: pl.DataFrame(table, schema=NAMES),
    "arrow": lambda table: pa.table(dict(zip(NAMES, table.T, strict=True))),
    "in another order": lambda table: pd.DataFrame(table, columns=NAMES)[NAMES[::-1]],
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@every_form
def test_scores_of_classes_come_in_tables_of_any_kind(form):
    result = of_classes(form(P3), axis=COARSE)
    assert np.array_equal(result.released.counts, of_classes(axis=COARSE).released.counts)
    parts = fg.Examples(np.array(NAMES)[KIND], form(P3)).split(100)
    in_parts = fg.evaluate({"a": lambda: parts}, task=CLASSES, axis=COARSE)
    assert np.array_equal(in_parts.released.counts, result.released.counts)


@every_form
def test_labels_and_scores_of_several_labels_come_in_tables_of_any_kind(form):
    labels, scores = np.column_stack([Y, ~Y, KIND == 1]).astype(int), P3
    task = fg.MultilabelTask(labels=NAMES)
    results = [
        fg.evaluate({"a": fg.Examples(*rows)}, task=task, axis=COARSE).released.counts
        for rows in (
            (labels, scores),
            (form(labels), scores),
            (labels, form(scores)),
            (form(labels), form(scores)),
        )
    ]
    assert all(np.array_equal(results[0], each) for each in results)


def test_columns_of_numbered_classes_go_by_their_names():
    task = fg.MulticlassTask(labels=[3, 1, 2])
    frame = pd.DataFrame(P3, columns=[1, 2, 3])
    by_name = of_classes(frame, y_true=KIND + 1, task=task, axis=COARSE)
    by_place = of_classes(P3[:, [2, 0, 1]], y_true=KIND + 1, task=task, axis=COARSE)
    assert np.array_equal(by_name.released.counts, by_place.released.counts)


def test_tables_that_do_not_fit_are_told():
    frame = pd.DataFrame(P3, columns=["cat", "dog", "p"])
    with pytest.raises(fg.InputError, match="called like some of the classes"):
        of_classes(frame)
    with pytest.raises(fg.InputError, match=r"maps names to columns, which is for models"):
        of_classes(dict(zip(NAMES, P3.T, strict=True)))
    with pytest.raises(fg.InputError, match=r"one label a row. Pass one column"):
        of_classes(y_true=np.eye(3)[KIND])
    labels = np.where(P3 > 0.5, 1, -1)
    with pytest.raises(fg.LabelError, match=r"neither bool nor 0/1. Recode them"):
        of_classes(y_true=labels, task=fg.MultilabelTask(labels=NAMES))


@pytest.mark.parametrize("group", [SEX, {"gender": SEX}])
def test_a_grouping_of_another_name_is_told_how_to_be_named(group):
    with pytest.raises(fg.InputError, match=r"group=\{'sex': ...\}"):
        by_group({"sex": ["women"], "age": ["old"]}, group=group)
    with pytest.raises(fg.InputError, match=r"the examples none: Examples\(y_true"):
        by_group({"sex": ["women"], "age": ["old"]}, group=None)


def test_groups_that_are_no_column_are_told_so():
    with pytest.raises(fg.InputError, match=r"group has 0 dimensions. Pass one value for each"):
        fg.Examples(Y, S, group="women")
    with pytest.raises(fg.InputError, match="map their names to columns"):
        fg.Examples(Y, S, group=pd.DataFrame({"sex": SEX, "age": SEX}))


def test_text_that_spells_nan_is_a_missing_class():
    with pytest.raises(fg.PlanError, match="called like a missing value"):
        fg.MulticlassTask(labels=["cat", "nan"])
    labels = np.array(NAMES)[KIND].astype(object)
    labels[:2] = "NaN"
    with pytest.raises(fg.InputError, match=r"2 of 900 labels are missing"):
        of_classes(y_true=labels)


@pytest.mark.parametrize("label", ["cat\n\nWhat is promised\nAll", "\x1b[2J", " cat", "c" * 201])
@pytest.mark.parametrize("task", [fg.MulticlassTask, fg.MultilabelTask])
def test_no_label_can_pass_for_another_part_of_what_officers_read(task, label):
    with pytest.raises(fg.PlanError, match="labels needs names"):
        task(labels=["dog", label])


# Groups of nobody


def test_a_misspelt_group_is_told_as_such():
    result = by_group(["Women", "men"], axis=COARSE)
    told = "no example of Women, so nothing is defined. Rows of no listed group are in 'other'"
    with pytest.raises(fg.UndefinedMetric, match=told):
        result.select(group="Women").roc_auc  # noqa: B018
    assert "group Women        no examples" in str(result)
    for metric, at in (("recall", 0.5), ("xauc", None)):
        assert told in result.gaps(metric, at=at).withheld["Women"]
    for frame in (result.to_frame(), result.to_frame(thresholds=[0.5])):
        (row,) = frame[frame["group"] == "Women"].to_dict("records")
        assert row["metric"] == "undefined"
        assert told in row["caution"]


def test_a_group_that_noise_hides_is_not_one_of_nobody():
    rows = {name: fg.Examples(Y, S, group=SEX) for name in "abc"}
    private = fg.evaluate(rows, groups=["men", "Women"], privacy=fg.DistributedDP(1.0), seed=2)
    assert repr(private.select(group="Women")) == (
        "<Evaluation at 3 clients: group Women is withheld>"
    )
    assert "group Women        withheld" in str(private)


# Maps


def test_a_map_is_judged_in_sample_on_its_own_part_alone():
    both = {"sex": ["women", "men"], "age": ["young", "old"]}
    age = np.where(np.arange(N) % 2, "young", "old")
    result = by_group(both, group={"sex": SEX, "age": age}, axis=COARSE)
    women = result.select(group="sex women").calibrator("platt")
    after = result.with_calibrator(women)
    told = {str(each.slice): each.in_sample for each in after.slices}
    assert not told.pop("group sex men")
    assert not told.pop("group sex other")
    assert all(told.values())  # some of their rows are women's
    assert after.in_sample
    whole = result.calibrator("platt")
    assert all(each.in_sample for each in result.with_calibrator(whole).slices)
    models = of_models(axis=COARSE)
    new = models.with_calibrator(models.select(model="new").calibrator("platt"))
    assert [each.in_sample for each in new.slices] == [True, False]


def test_the_only_model_of_classes_need_not_be_named():
    rows = fg.Examples(np.array(NAMES)[KIND], {"new": P3})
    task = fg.MulticlassTask(labels=NAMES, models=("new",), also=["confusion"])
    result, plain = fg.evaluate({"a": rows}, task=task, axis=COARSE), of_classes(axis=COARSE)
    assert result.macro("roc_auc") == plain.macro("roc_auc")
    assert result.select(label="dog").roc_auc == plain.select(label="dog").roc_auc
    assert np.array_equal(result.confusion_matrix().counts, plain.confusion_matrix().counts)
    assert "macro average" in str(result)


def test_other_arrays_are_taken_or_told():
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.asmatrix(P3)
    assert of_classes(matrix, axis=COARSE).macro("roc_auc").value > 0.5
    labels = scipy.sparse.csr_matrix(P3 > 0.5)
    with pytest.raises(fg.InputError, match=r"y_true is a sparse array. Pass all its values"):
        fg.Examples(labels, P3)
    with pytest.raises(fg.InputError, match="y_score has two columns of one name"):
        of_classes(pd.DataFrame(P3, columns=["cat", "cat", "owl"]))


@pytest.mark.parametrize(
    "rows",
    [
        fg.Examples([0, 1], {"new": [0.1, 0.9]}),
        fg.Examples([0, 1], np.ones((2, 3))),
        fg.Examples(np.ones((2, 3)), [0.1, 0.9]),
    ],
)
def test_whose_rows_do_not_fit_is_told_of_small_clients_too(rows):
    with pytest.raises(fg.InputError, match=r"^client 'b': "):
        fg.evaluate({"a": ([0, 1], [0.2, 0.7]), "b": rows})


def test_a_plan_by_hand_may_lack_what_its_task_counts():
    plan = of_classes(axis=COARSE).plan
    (sent,) = plan.rounds
    bare = msgspec.structs.replace(plan, rounds=(msgspec.structs.replace(sent, tables=()),))
    rows = {"a": fg.Examples(np.array(NAMES)[KIND], P3)}
    with pytest.raises(fg.InputError, match="the plan does not count this"):
        fg.evaluate(rows, bare).confusion_matrix()
