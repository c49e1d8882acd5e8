"""Groups, models and classes: channels of their own, and a result for each slice."""

import copy
import pickle

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from plans import plan_for
from refusals import refused
from sklearn.metrics import average_precision_score, roc_auc_score

import fedgauge as fg
from fedgauge.histograms.channels import Layout
from fedgauge.histograms.tables import JointScores
from fedgauge.plan.task import AnyTask, BinaryTask, MulticlassTask, MultilabelTask, Slice

RNG = np.random.default_rng(11)
N = 3000
Y = RNG.random(N) < 0.3
S = 1 / (1 + np.exp(-RNG.normal(1.5 * Y - 1.0)))
OLD = 1 / (1 + np.exp(-RNG.normal(1.0 * Y - 1.0)))
SEX = RNG.choice(["women", "men", "unknown"], N, p=[0.5, 0.45, 0.05])
AGE = RNG.choice(["young", "old"], N)
CLASSES = ["cat", "dog", "owl"]
KIND = RNG.choice(CLASSES, N, p=[0.5, 0.3, 0.2])
CODES = np.searchsorted(CLASSES, KIND)
P3 = RNG.random((N, 3)) + 0.6 * (KIND[:, np.newaxis] == CLASSES)
P3 /= P3.sum(axis=1, keepdims=True)


def sites(**columns):
    rows = fg.Examples(**columns)
    return {"a": rows.select(slice(0, 1000)), "b": rows.select(slice(1000, N))}


def test_a_plain_task_is_the_bytes_it_was():
    assert msgspec.json.encode(BinaryTask()) == b'{"kind":"binary","positive":null}'
    assert msgspec.json.encode(BinaryTask("yes")) == b'{"kind":"binary","positive":"yes"}'


def test_channels_and_what_one_row_adds_to():
    for task, channels, per_row, slices in (
        (BinaryTask(), 2, 1, 1),
        (BinaryTask(groups={"sex": ["women", "men"]}), 6, 1, 4),
        (BinaryTask(models=("new", "old")), 4, 2, 2),
        (BinaryTask(groups={"sex": ["w"], "age": ["o", "y"]}), 2 * 2 + 2 * 3, 2, 1 + 2 + 3),
        (BinaryTask(groups={"sex": ["w"], "age": ["o", "y"]}, crossed=True), 12, 1, 1 + 6),
        (MulticlassTask(labels=CLASSES), 9, 3, 3),
        (MulticlassTask(labels=CLASSES, groups={"sex": ["w", "m"]}), 27, 3, 12),
        (MulticlassTask(labels=[0, 1], models=("new", "old")), 8, 4, 4),
        (MultilabelTask(labels=["fever", "cough"]), 4, 2, 2),
    ):
        assert (len(task.channels), task.rows, task.per_row) == (channels, channels, per_row)
        assert len(task.slices) == len(set(task.slices)) == slices
        assert msgspec.json.decode(msgspec.json.encode(task), type=AnyTask) == task
        assert hash(msgspec.json.decode(msgspec.json.encode(task), type=AnyTask)) == hash(task)
        for each in task.slices:
            negatives, positives = task.contrast(each)
            assert negatives
            assert positives
            assert not {*negatives} & {*positives}


def test_slices_of_all_rows_are_those_of_their_groups_together():
    task = MulticlassTask(labels=CLASSES, groups={"sex": ["women", "men"]})
    for label in CLASSES:
        parts = [task.contrast(Slice(group=g, label=label)) for g in ("women", "men", "other")]
        whole = task.contrast(Slice(label=label))
        assert {*whole.positives} == {row for part in parts for row in part.positives}
        assert {*whole.negatives} == {row for part in parts for row in part.negatives}


def test_names_that_are_none_are_refused():
    for make, told in (
        (lambda: BinaryTask(groups={"sex": ["w", "w"]}), "has a name twice"),
        (lambda: BinaryTask(groups={"sex": []}), "1 to 1,000 names"),
        (lambda: BinaryTask(groups={"sex": "women"}), "list of names"),
        (lambda: BinaryTask(groups={"sex": ["w", 3]}), "names that are text"),
        (lambda: BinaryTask(groups={"sex": ["other"]}), "rows of no listed group"),
        (lambda: BinaryTask(groups={"sex": ["w"]}, crossed=True), "can be crossed"),
        (lambda: BinaryTask(models=["new", "new"]), "has a name twice"),
        (lambda: BinaryTask(models=["new "]), "without blanks"),
        (lambda: BinaryTask(groups={"a\n": ["w"]}), "names that are text"),
        (lambda: BinaryTask(groups={"ward": ["caf\u00e9", "cafe\u0301"]}), "look the same"),
        (lambda: BinaryTask(groups={"ward": ["A1", "\uff211"]}), "look the same"),
        (lambda: BinaryTask(groups={"\u00e9": ["w"], "e\u0301": ["v"]}), "look the same"),
        (lambda: BinaryTask(groups={"sex": ["\uff4fther"]}), "rows of no listed group"),
        (lambda: BinaryTask(models=["n\u00e9", "ne\u0301"]), "look the same"),
        (lambda: MulticlassTask(labels=["\u00e9", "e\u0301"]), "look the same"),
        (lambda: MultilabelTask(labels=["\u00e9", "e\u0301"]), "look the same"),
        (lambda: MulticlassTask(labels=["cat"]), "2 to 1,000 labels"),
        (lambda: MulticlassTask(labels=["1", 1]), "mean the same class"),
        (lambda: MulticlassTask(labels="cat"), "list of classes"),
        (lambda: MultilabelTask(labels=["fever"]), "BinaryTask"),
        (
            lambda: BinaryTask(
                groups={"a": [f"{i}" for i in range(40)], "b": [f"{i}" for i in range(40)]},
                crossed=True,
            ),
            "at most 1,000 groups",
        ),
    ):
        # Rows are compared with names as they come: one form of Unicode is not another.
        assert BinaryTask(groups={"ward": ["e\u0301"]}).groups == {"ward": ("e\u0301",)}
        refused(fg.PlanError, told, make)


def test_each_row_adds_to_one_count_of_every_block():
    task = BinaryTask(groups={"sex": ["women", "men"], "age": ["old"]}, models=("new", "old"))
    plan = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(8), fg.Cohort(2), task=task)
    histogram = plan.histogram()
    rows = fg.Examples(Y, {"new": S, "old": OLD}, group={"sex": SEX, "age": AGE})
    histogram.update_batches([rows])
    assert histogram.sum() == N
    assert histogram.counts.sum() == N * task.per_row == N * 4
    for block in task.layout.blocks:
        cells = task.layout.cells(block.grouping) * 2
        assert histogram.counts[block.first : block.first + cells].sum() == N
    task = BinaryTask(groups={"code": ["1", "2"]})
    plan = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(2), fg.Cohort(2), task=task)
    for codes in ([1, 2, 3, 1], ["1", " 2", "3", "1"], [1.0, 2.0, 3.0, 1.0], [1, 2, None, 1]):
        histogram = plan.histogram()
        histogram.update_batches([fg.Examples([1, 1, 1, 0], [0.9] * 4, group=codes)])
        assert histogram.counts.sum(axis=1).tolist() == [1, 1, 0, 1, 0, 1]


def test_rows_that_do_not_fit_a_task_are_refused():
    for task, rows, told in (
        (BinaryTask(groups={"sex": ["w"]}), fg.Examples([1], [0.5]), "the examples have none"),
        (BinaryTask(models=("new", "old")), fg.Examples([1], [0.5]), "must map their names"),
        (BinaryTask(models=("new",)), fg.Examples([1], {"old": [0.5]}), "no scores of the model"),
        (BinaryTask(), fg.Examples([1], {"old": [0.5]}), "several scores each"),
        (BinaryTask(), fg.Examples([1], np.full((1, 3), 0.5)), "several scores each"),
        (MulticlassTask(labels=CLASSES), fg.Examples(["cat"], [0.5]), "one column"),
        (MulticlassTask(labels=CLASSES), fg.Examples(["cat"], np.ones((1, 2))), "2 columns"),
        (MulticlassTask(labels=CLASSES), fg.Examples(["cow"], np.ones((1, 3))), "none of the task"),
        (MulticlassTask(labels=CLASSES), fg.Examples([None], np.ones((1, 3))), "missing"),
        (MultilabelTask(labels=["a", "b"]), fg.Examples([1], np.ones((1, 2))), "one column"),
        (
            MultilabelTask(labels=["a", "b"]),
            fg.Examples(np.ones((1, 3)), np.ones((1, 2))),
            "3 columns",
        ),
    ):
        plan = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(2), fg.Cohort(1), task=task)
        refused(fg.InputError, told, plan.histogram().update_batches, [rows])


def test_under_noise_odd_rows_count_in_stated_places():
    task = MulticlassTask(labels=CLASSES, groups={"sex": ["women"]})
    plan = plan_for(None, None, fg.Cohort(2), bins=2, task=task)
    histogram = plan.histogram()
    rows = fg.Examples.leniently(
        np.array(["cow", None, "dog"], dtype=object),
        np.array([[0.1, np.nan, 2.0]] * 3),
        group=np.array([object(), None, "women"], dtype=object),
    )
    odd = histogram.update_leniently([rows])
    assert histogram.sum() == 3
    assert histogram.counts.sum() == 9
    assert (odd.missing_labels, odd.other_labels, odd.not_finite, odd.clipped) == (1, 1, 3, 3)


def test_examples_keep_their_columns_when_divided():
    rows = fg.Examples(Y, {"new": S, "old": OLD}, group=SEX)
    part = rows.select(Y)
    assert len(part) == int(Y.sum())
    assert part.scores["old"].tolist() == OLD[Y].tolist()
    assert list(part.groups[None]) == list(SEX[Y])
    assert sum(len(each) for each in rows.split(700)) == N
    with pytest.raises(fg.InputError, match="group has 2 rows"):
        fg.Examples([0, 1, 1], [0.1, 0.2, 0.3], group=["a", "b"])


def test_groups_models_classes_and_labels_give_what_their_rows_give():
    result = fg.evaluate(sites(y_true=Y, y_score=S, group=SEX), groups=["women", "men"])
    for group in ("women", "men"):
        mine, part = group == SEX, result.select(group=group)
        assert part.roc_auc.value == pytest.approx(roc_auc_score(Y[mine], S[mine]), abs=5e-5)
        assert part.at_threshold(0.5).recall.value == pytest.approx(np.mean(S[mine & Y] >= 0.5))
    assert result.select(group="other").positives == int(Y[SEX == "unknown"].sum())
    assert result.roc_auc.value == pytest.approx(roc_auc_score(Y, S), abs=5e-5)
    assert [str(each.slice) for each in result.slices] == [
        "all",
        "group women",
        "group men",
        "group other",
    ]
    refused(fg.InputError, r"no slice of group girls.*group women", result.select, group="girls")
    rows = sites(y_true=Y, y_score={"new": S, "old": OLD})
    result = fg.evaluate(rows, models=["new", "old"])
    for model, scores in (("new", S), ("old", OLD)):
        found = result.select(model=model).roc_auc.value
        assert found == pytest.approx(roc_auc_score(Y, scores), abs=5e-5)
    result = fg.evaluate(sites(y_true=KIND, y_score=P3), task=MulticlassTask(labels=CLASSES))
    for k, label in enumerate(CLASSES):
        part, truth = result.select(label=label), (label == KIND, P3[:, k])
        assert part.roc_auc.value == pytest.approx(roc_auc_score(*truth), abs=5e-5)
        expected = average_precision_score(*truth)
        assert part.average_precision.value == pytest.approx(expected, abs=1e-3)
    both = np.column_stack([Y, RNG.random(N) < 0.5])
    scores = np.column_stack([S, OLD])
    result = fg.evaluate(sites(y_true=both, y_score=scores), task=MultilabelTask(labels=["a", "b"]))
    for k, label in enumerate("ab"):
        expected = roc_auc_score(both[:, k], scores[:, k])
        assert result.select(label=label).roc_auc.value == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("privacy", [fg.SecureAggregation(), fg.DistributedDP(5.0)], ids=str)
def test_slices_are_saved_and_loaded(tmp_path, privacy):
    rows = sites(y_true=KIND, y_score=P3, group=SEX)
    task = MulticlassTask(labels=CLASSES, groups={"sex": ["women", "men"]})
    result = fg.evaluate(rows, task=task, privacy=privacy, seed=1)
    result.to_json(tmp_path / "r.json")
    again = fg.Evaluation.from_json(tmp_path / "r.json")
    for mine, theirs in zip(result.slices, again.slices, strict=True):
        assert mine.slice == theirs.slice
        assert np.array_equal(mine.pooled.released, theirs.pooled.released)
        if mine.slice.group != "other":  # which is small: noise hides it
            assert mine.roc_auc == theirs.roc_auc
    text = (tmp_path / "r.json").read_text()
    saved = msgspec.json.decode(text)
    saved["slices"][2]["counts"][0][3] += 40
    (tmp_path / "r.json").write_bytes(msgspec.json.encode(saved))
    with pytest.raises(fg.RecordError, match="channels do not fit its slices"):
        fg.Evaluation.from_json(tmp_path / "r.json")


def test_noise_of_several_channels_is_that_of_all():
    """One class against K - 1 others: the negatives have the noise of K - 1 channels."""
    task = MulticlassTask(labels=CLASSES)
    result = fg.evaluate(sites(y_true=KIND, y_score=P3), task=task, privacy=fg.DistributedDP(1.0))
    pooled = result.select(label="cat").pooled
    assert pooled.terms == (2, 1)
    negatives, positives = pooled.deviations_of_totals
    assert negatives == pytest.approx(np.sqrt(2.0) * positives)
    assert (pooled.leaf_variances[0] == 2 * pooled.leaf_variances[1]).all()


@pytest.mark.parametrize("noise", ["polya", "skellam", "discrete-gaussian"])
def test_a_row_in_several_channels_is_paid_for_in_each(noise):
    """The budget of a row is that of one in as many levels as it has channels."""
    privacy = fg.DistributedDP(1.0, noise=noise, delta=None if noise == "polya" else 1e-6)
    axis, cohort = fg.Axis.uniform(16, outside="clip"), fg.Cohort(3)
    classes = fg.EvaluationPlan.for_histogram(
        axis, cohort, task=MulticlassTask(labels=CLASSES), privacy=privacy
    )
    plain = fg.EvaluationPlan.for_histogram(axis, cohort, privacy=privacy)
    assert classes.noise_variances(3)[0] > 2 * plain.noise_variances(3)[0]
    classes.check_promise()
    cheap = msgspec.structs.replace(classes, rounds=plain.rounds)
    refused(fg.PlanError, "its noise costs more", cheap.check_promise)


def test_what_slices_do_not_go_with_is_refused():
    axis = fg.Axis.uniform(16, outside="clip")
    for task, told in (
        (BinaryTask(models=("new", "old")), "score sums are for one score"),
        (BinaryTask(groups={"g": ["a"]}), "without groups"),
    ):
        with pytest.raises(fg.PlanError, match=told):
            fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3), task=task, score_sums=True)
    refused(fg.PlanError, "the task already has", fg.evaluate, {}, task=BinaryTask(), groups=["a"])
    plan = fg.EvaluationPlan.for_histogram(axis, fg.Cohort(1))
    refused(fg.PlanError, "already has groups", fg.evaluate, {}, plan, groups=["a"])
    assert Layout().is_plain


def classes_by_sex(**options):
    task = MulticlassTask(labels=CLASSES, groups={"sex": ["women", "men"]})
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(8), fg.Cohort(2), task=task, min_cell=options.get("min_cell", 0)
    )
    return fg.evaluate(sites(y_true=KIND, y_score=P3, group=SEX), plan)


def test_classes_of_groups_are_averaged_compared_and_named_once():
    result = classes_by_sex()
    of_women = SEX == "women"
    alone = fg.Examples(KIND[of_women], P3[of_women])
    task = MulticlassTask(labels=CLASSES)
    expected = fg.evaluate({"a": alone}, task=task, axis=fg.Axis.uniform(8)).macro("roc_auc")
    assert result.select(group="women").macro("roc_auc").value == pytest.approx(expected.value)
    owls = result.select(label="owl").gaps("roc_auc")
    parts = [result.select(label="owl", group=name).roc_auc for name in ("women", "men")]
    assert owls.pairs[0].difference.value == pytest.approx(parts[0].value - parts[1].value)
    refused(fg.InputError, r"several classes\. Say which", result.gaps, "roc_auc")
    # In lines of their own, or in one line of all; how groups combine in any case.
    titles = [line.split("  ")[0] for line in str(classes_by_sex()).splitlines()[1:]]
    assert titles[:4] == ["label cat", "label dog", "label owl", "group women, label cat"]
    assert titles[-4:] == ["macro average", "privacy", "measured", "groups"]
    one = str(classes_by_sex().select(label="owl")).splitlines()
    assert [line.split("  ")[0] for line in one[-2:]] == ["classes", "groups"]


def test_nothing_is_told_of_classes_of_a_small_group():
    result = classes_by_sex(min_cell=60)
    assert result.released.joined == ("men",)
    hidden = result.select(group="men")
    for ask in (
        lambda: hidden.examples,
        lambda: hidden.macro("roc_auc"),
        lambda: hidden.macro("roc_auc", average="micro"),
        lambda: hidden.macro_roc_curve(),
    ):
        refused(fg.NoSignal, "group men is not shown", ask)
    assert hidden.withheld.startswith("group men is not shown")
    lines = str(hidden).splitlines()
    assert lines[0] == "group men: 2 clients; too few examples to be shown"
    assert [line.split()[-1] for line in lines[1:5]] == ["withheld"] * 4
    assert repr(hidden) == "<Evaluation at 2 clients: group men is withheld>"
    assert result.select(group="women").withheld is None


@pytest.mark.parametrize("groups", [None, ["women", "men"]])
def test_the_only_model_need_not_be_named(groups):
    rows = sites(y_true=Y, y_score={"new": S}, group=SEX)
    result = fg.evaluate(rows, models=["new"], groups=groups)
    assert result.roc_auc == result.select(model="new").roc_auc
    assert result.slice == Slice("new")
    assert len(result.slices) == (1 if groups is None else 4)
    assert str(result).startswith("model new: 2 clients, 3,000 examples")


@pytest.mark.parametrize(("classes", "bins"), [(3, 24), (5, 12), (20, 8)])
def test_the_more_counts_share_a_budget_the_fewer_bins_there_are(classes, bins):
    """Without hints. 64 bins of five classes at epsilon 1 put an AUC 0.03 off."""
    scores = np.random.default_rng(4).random((60, classes))
    rows = fg.Examples(np.arange(60) % classes, scores)
    task = fg.MulticlassTask(labels=list(range(classes)))
    plan = fg.evaluate({"a": rows, "b": rows}, task=task, privacy=fg.DistributedDP(1.0)).plan
    assert plan.axis.bins == bins


MISTAKES = fg.MulticlassTask(labels=CLASSES, also=["confusion"])
COARSE = fg.Axis.uniform(64)


def by_group(groups=("women", "men"), group=SEX, **options):
    return fg.evaluate({"a": fg.Examples(Y, S, group=group)}, groups=groups, **options)


def of_classes(y_score=P3, y_true=None, task=MISTAKES, **options):
    return fg.evaluate(
        {"a": fg.Examples(KIND if y_true is None else y_true, y_score)}, task=task, **options
    )


def of_models(**options):
    return fg.evaluate(
        {"a": fg.Examples(Y, {"new": S, "old": OLD})}, models=["new", "old"], **options
    )


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
    refused(fg.PlanError, "not in the form", fg.EvaluationPlan.from_bytes, changed)


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


CALLED_ALIKE = {"a": ["x, b y", "x"], "b": ["y, b y", "y"]}
ODD_LABELS = ["cat\n\nWhat is promised\nAll", "\x1b[2J", " cat", "c" * 201]


def test_names_that_no_task_can_have_are_refused():
    for make, told in (
        (lambda: fg.BinaryTask(groups={"a": ["b c"], "a b": ["c"]}), "called the same"),
        (lambda: fg.BinaryTask(groups=CALLED_ALIKE, crossed=True), "called the same"),
        (lambda: fg.BinaryTask(groups={"sex": ["women", "rest"]}), "'rest' is what"),
        *(
            (lambda groups=groups: by_group(groups, group=np.arange(N) % 2), 'write "1" for 1')
            for groups in ([0, 1], [True, False])
        ),
        *(
            (lambda make=make, groups=groups: make(groups=groups), "groups must map groupings to")
            for make in (fg.BinaryTask, lambda **of: fg.MulticlassTask(CLASSES, **of))
            for groups in (["women", "men"], "sex", {"women", "men"})
        ),
        *(
            (lambda models=models: fg.evaluate({}, models=models), "models must be a list of names")
            for models in (5, "new")
        ),
        *(
            (lambda task=task, label=label: task(labels=["dog", label]), "labels needs names")
            for task in (fg.MulticlassTask, fg.MultilabelTask)
            for label in ODD_LABELS
        ),
        (lambda: fg.MulticlassTask(labels=["cat", "nan"]), "called like a missing value"),
    ):
        refused(fg.PlanError, told, make)
        assert len(fg.BinaryTask(groups=CALLED_ALIKE).slices) == 7


def test_names_and_numbers_come_in_arrays_too():
    result = by_group(["0", "1"], group=np.arange(N) % 2, axis=COARSE)
    assert result.select(group=1).roc_auc == result.select(group="1").roc_auc
    assert by_group(np.array(["women", "men"]), axis=COARSE).plan == by_group(axis=COARSE).plan
    rows = {"a": fg.Examples(Y, {"new": S, "old": OLD})}
    names = np.array(["new", "old"])
    assert fg.evaluate(rows, models=names, axis=COARSE).plan == of_models(axis=COARSE).plan
    task = fg.MulticlassTask(labels=CLASSES, also=["ranks"])
    result = of_classes(task=task, axis=COARSE)
    assert result.top_k_accuracy(np.int64(2)) == result.top_k_accuracy(2)


def test_questions_that_cannot_be_answered_are_told():
    grouped, models, classes = (make(axis=COARSE) for make in (by_group, of_models, of_classes))
    assert grouped.gaps("recall", at="0.5").metric == "recall at 0.5"
    compared = models.compare("new", "old")
    assert repr(compared).startswith("<Comparison of new less old: ROC AUC ")
    rows = fg.Examples(KIND, {"new": P3, "old": P3[:, ::-1]})
    task = fg.MulticlassTask(labels=CLASSES, models=("new", "old"), also=["confusion"])
    several = fg.evaluate({"a": rows}, task=task, axis=COARSE)
    (sent,) = classes.plan.rounds  # a plan by hand may lack what its task counts
    rounds = (msgspec.structs.replace(sent, tables=()),)
    bare = fg.evaluate(
        {"a": fg.Examples(KIND, P3)},
        msgspec.structs.replace(classes.plan, rounds=rounds),
    )
    for ask, told in (
        (lambda: grouped.gaps("recall", at="half"), "a threshold must be a number"),
        (lambda: grouped.at_threshold("half"), "a threshold must be a number"),
        (lambda: compared.at_threshold(None), "a threshold must be a number"),
        (lambda: classes.macro("recall", at="half"), "a threshold must be a number"),
        (lambda: models.compare("new", "old", margin="0.01"), "margin must lie between 0 and 1"),
        (several.confusion_matrix, "several models. Say which"),
        (lambda: several.macro("roc_auc"), "several models. Say which"),
        (bare.confusion_matrix, "the plan does not count this"),
    ):
        refused(fg.InputError, told, ask)


def test_scores_in_another_unit_are_a_caution_and_those_near_0_no_crowd():
    rows = {name: fg.Examples(Y, {"new": S, "old": 100 * OLD}) for name in "abc"}
    axis = fg.Axis.uniform(32, outside="clip")
    result = fg.evaluate(rows, models=["new", "old"], axis=axis)
    assert str(result.caution).startswith("model old: the last bin of the axis")
    assert result.select(model="new").caution is None
    assert str(result.select(model="old").caution).startswith("the last bin of the axis")
    scores = np.column_stack([P3[:, :2], 100 * P3[:, 2]])
    classes = of_classes(scores, axis=axis)
    assert str(classes.caution).startswith("label owl: the last bin of the axis")
    many = fg.MulticlassTask(labels=range(20))
    kind = RNG.integers(0, 20, 4000)
    odds = np.exp(3 * RNG.normal(size=(4000, 20)) + (kind[:, np.newaxis] == np.arange(20)))
    scores = odds / odds.sum(axis=1, keepdims=True)
    axis = fg.Axis.uniform(64, outside="clip")
    result = fg.evaluate({"a": fg.Examples(kind, scores)}, task=many, axis=axis)
    assert result.caution is None


FORMS = {
    "lists": lambda table: table.tolist(),
    "pandas": lambda table: pd.DataFrame(table, columns=CLASSES),
    "unnamed": pd.DataFrame,
    "polars": lambda table: pl.DataFrame(table, schema=CLASSES),
    "arrow": lambda table: pa.table(dict(zip(CLASSES, table.T, strict=True))),
    "in another order": lambda table: pd.DataFrame(table, columns=CLASSES)[CLASSES[::-1]],
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@every_form
def test_scores_of_classes_come_in_tables_of_any_kind(form):
    result = of_classes(form(P3), axis=COARSE)
    assert np.array_equal(result.released.counts, of_classes(axis=COARSE).released.counts)
    parts = fg.Examples(KIND, form(P3)).split(100)
    in_parts = fg.evaluate({"a": lambda: parts}, task=MISTAKES, axis=COARSE)
    assert np.array_equal(in_parts.released.counts, result.released.counts)


@every_form
def test_labels_and_scores_of_several_labels_come_in_tables_of_any_kind(form):
    labels, scores = np.column_stack([Y, ~Y, KIND == "dog"]).astype(int), P3
    task = fg.MultilabelTask(labels=CLASSES)
    results = [
        fg.evaluate({"a": fg.Examples(y, s)}, task=task, axis=COARSE).released.counts
        for y in (labels, form(labels))
        for s in (scores, form(scores))
    ]
    assert all(np.array_equal(results[0], each) for each in results)


def test_numbered_classes_go_by_their_names_and_an_only_model_without():
    task = fg.MulticlassTask(labels=[3, 1, 2])
    frame = pd.DataFrame(P3, columns=[1, 2, 3])
    by_name = of_classes(frame, y_true=CODES + 1, task=task, axis=COARSE)
    by_place = of_classes(P3[:, [2, 0, 1]], y_true=CODES + 1, task=task, axis=COARSE)
    assert np.array_equal(by_name.released.counts, by_place.released.counts)
    rows = fg.Examples(KIND, {"new": P3})
    task = fg.MulticlassTask(labels=CLASSES, models=("new",), also=["confusion"])
    result, plain = fg.evaluate({"a": rows}, task=task, axis=COARSE), of_classes(axis=COARSE)
    assert result.macro("roc_auc") == plain.macro("roc_auc")
    assert result.select(label="dog").roc_auc == plain.select(label="dog").roc_auc
    assert np.array_equal(result.confusion_matrix().counts, plain.confusion_matrix().counts)
    assert "macro average" in str(result)


def test_tables_groups_and_arrays_that_do_not_fit_are_told():
    frame = pd.DataFrame(P3, columns=["cat", "dog", "p"])
    twice = pd.DataFrame(P3, columns=["cat", "cat", "owl"])
    both = {"sex": ["women"], "age": ["old"]}
    missing = KIND.astype(object)
    missing[:2] = "NaN"
    several = {"y_true": np.where(P3 > 0.5, 1, -1), "task": fg.MultilabelTask(labels=CLASSES)}
    for ask, told in (
        (lambda: of_classes(frame), "named like some of the classes"),
        (lambda: of_classes(twice), "y_score has two columns with the same name"),
        (
            lambda: of_classes(dict(zip(CLASSES, P3.T, strict=True))),
            "maps names to columns, which is",
        ),
        (lambda: of_classes(y_true=np.eye(3)[CODES]), "one label a row. Pass one column"),
        (lambda: of_classes(**several), "neither bool nor 0/1. Recode them"),
        (lambda: of_classes(y_true=missing), "2 of 3,000 labels are missing"),
        (lambda: by_group(both, group=SEX), r"group=\{'sex': ...\}"),
        (lambda: by_group(both, group={"gender": SEX}), r"group=\{'sex': ...\}"),
        (lambda: by_group(both, group=None), r"the examples have none: Examples\(y_true"),
        (lambda: fg.Examples(Y, S, group="women"), "group has 0 dimensions. Pass one value for"),
        (lambda: fg.Examples(Y, S, group=frame), "map their names to columns"),
        (lambda: fg.Examples(scipy.sparse.csr_matrix(P3 > 0.5), P3), "y_true is a sparse array"),
    ):
        refused(fg.InputError, told, ask)
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.asmatrix(P3)
    assert of_classes(matrix, axis=COARSE).macro("roc_auc").value > 0.5


def test_a_misspelt_group_is_told_as_such_and_a_hidden_one_as_hidden():
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
    rows = {name: fg.Examples(Y, S, group=SEX) for name in "abc"}
    private = fg.evaluate(rows, groups=["men", "Women"], privacy=fg.DistributedDP(1.0), seed=2)
    assert repr(private.select(group="Women")) == (
        "<Evaluation at 3 clients: group Women is withheld>"
    )
    assert "group Women        withheld" in str(private)


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


@pytest.mark.parametrize(
    "rows",
    [
        fg.Examples([0, 1], {"new": [0.1, 0.9]}),
        fg.Examples([0, 1], np.ones((2, 3))),
        fg.Examples(np.ones((2, 3)), [0.1, 0.9]),
    ],
)
def test_whose_rows_do_not_fit_is_told_of_small_clients_too(rows):
    refused(fg.InputError, r"^client 'b': ", fg.evaluate, {"a": ([0, 1], [0.2, 0.7]), "b": rows})
