"""Averages over classes and labels: what they are of, their intervals, and what is refused."""

import msgspec
import numpy as np
import pytest
from plans import plan_for
from refusals import refused
from sklearn.metrics import average_precision_score, recall_score, roc_auc_score

import fedgauge as fg
from fedgauge.engines.simulation import simulate
from fedgauge.estimation.counts import Released
from fedgauge.histograms.channels import Layout
from fedgauge.plan.explain import explain
from fedgauge.results.evaluation import Evaluation

CLASSES = ["cat", "dog", "owl"]
BY_SEX = {"sex": ["women", "men"]}
TASK = fg.MulticlassTask(labels=CLASSES)


def rows(seed=1, n=3000, classes=3):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    logits = rng.normal(size=(n, classes))
    logits[np.arange(n), labels] += 1.5
    scores = np.exp(logits)
    return labels, scores / scores.sum(axis=1, keepdims=True)


KIND, SCORES = rows()
NAMES = np.array(CLASSES)[KIND]
SEX = np.random.default_rng(2).choice(["women", "men"], len(KIND))


@pytest.fixture(scope="module")
def result():
    return fg.evaluate({"a": fg.Examples(NAMES, SCORES)}, task=TASK)


@pytest.fixture(scope="module")
def of_all_kinds():
    task = fg.MulticlassTask(labels=CLASSES, groups=BY_SEX, models=("new", "old"))
    both = {"new": SCORES, "old": SCORES[:, [1, 0, 2]]}
    return fg.evaluate({"a": fg.Examples(NAMES, both, group=SEX)}, task=task)


def test_no_class_is_taken_for_all(result, of_all_kinds):
    for ask in (
        *[lambda r: r.roc_auc, lambda r: r.roc_curve(), lambda r: r.at_threshold(0.5)],
        *[lambda r: r.expected_calibration_error, lambda r: r.positives, lambda r: r.negatives],
        *[lambda r: r.pooled, lambda r: r.calibrator()],
    ):
        refused(fg.InputError, r"several classes.*select\(label=.*macro\(", ask, result)
        refused(fg.InputError, r"several models.*select\(model=", ask, of_all_kinds)
        assert ask(result.select(label="dog")) is not None


def test_what_is_left_open_is_all(of_all_kinds):
    new = of_all_kinds.select(model="new")
    assert len(new.slices) == 3 * 4
    women = new.select(group="women")
    assert [each.slice.label for each in women.slices] == CLASSES
    assert women.select(label="cat").slice == fg.Slice("new", "women", "cat")
    mine = SEX == "women"
    expected = roc_auc_score(KIND[mine], SCORES[mine], multi_class="ovr")
    assert women.macro("roc_auc").value == pytest.approx(expected, abs=1e-5)
    assert new.macro("roc_auc").value == pytest.approx(
        roc_auc_score(KIND, SCORES, multi_class="ovr"), abs=1e-5
    )
    assert women.at_level(0.9).macro("roc_auc").level == 0.9
    refused(fg.InputError, "no slice of model newest", of_all_kinds.select, model="newest")


def test_slices_are_told_one_by_one(result, of_all_kinds):
    lines = str(result).splitlines()
    assert lines[0] == "1 client, 3,000 examples"
    assert [line[:9] for line in lines[1:4]] == ["label cat", "label dog", "label owl"]
    assert lines[4].startswith("macro average      ROC AUC 0.9")
    assert repr(result) == "<Evaluation of 3,000 examples at 1 client: 3 slices>"
    assert "label owl</th><td" in result._repr_html_()
    told = str(of_all_kinds)
    assert "12 more: result.slices" in told
    assert "macro average" not in told
    assert "macro average" in str(of_all_kinds.select(model="old"))
    one = str(result.select(label="owl"))
    assert "macro" not in one
    assert one.splitlines()[1].startswith("ROC AUC")


def test_labels_are_averaged_like_classes():
    rng = np.random.default_rng(3)
    labels = rng.random((2000, 3)) < [0.5, 0.2, 0.3]
    scores = np.clip(0.3 * labels + 0.7 * rng.random((2000, 3)), 0, 1)
    task = fg.MultilabelTask(labels=["fever", "cough", "rash"])
    result = fg.evaluate({"a": fg.Examples(labels, scores)}, task=task)
    for average in ("macro", "weighted", "micro"):
        for name, score in (
            ("roc_auc", roc_auc_score),
            ("average_precision", average_precision_score),
        ):
            found = result.macro(name, average=average)
            assert found.value == pytest.approx(score(labels, scores, average=average), abs=5e-4)
            assert found.low < found.value < found.high
        recall = result.macro("recall", average=average, at=0.5)
        expected = recall_score(labels, scores >= 0.5, average=average)
        assert recall.value == pytest.approx(expected)
    refused(fg.InputError, "not told from each other", result.macro, "roc_auc", against="one")
    refused(fg.InputError, "does not count this", result.confusion_matrix)


def test_averages_that_are_none_are_refused(result):
    for asked, told in (
        ({"metric": "auc"}, "no metric 'auc'"),
        ({"metric": "recall"}, r"needs a threshold \(at="),
        ({"metric": "roc_auc", "at": 0.5}, "takes no threshold"),
        ({"metric": "roc_auc", "average": "mean"}, "average must be one of macro, weighted, micro"),
        ({"metric": "roc_auc", "against": "all"}, "against must be one of rest, one"),
        ({"metric": "roc_auc", "average": "micro", "against": "one"}, "all pairs at once"),
        ({"metric": "log_loss", "average": "micro"}, "log_loss has a macro and a weighted average"),
    ):
        refused(fg.InputError, told, result.macro, **asked)


def test_averages_of_one_class_or_none_are_refused_and_losses_have_some(result, of_all_kinds):
    refused(fg.InputError, "about one label", result.select(label="cat").macro, "roc_auc")
    refused(fg.InputError, "several models", of_all_kinds.macro, "roc_auc")
    plain = fg.evaluate({"a": ([0, 1], [0.2, 0.8])})
    refused(fg.InputError, "this task has none", plain.macro, "roc_auc")
    alone = fg.evaluate({"a": fg.Examples(["cat", "cat"], SCORES[:2])}, task=TASK)
    with pytest.raises(fg.UndefinedMetric):
        alone.macro("roc_auc")
    refused(fg.InputError, r"also=\[\"confusion\"\]", result.confusion_matrix)
    with pytest.raises(fg.PlanError, match="also must name each once"):
        fg.MulticlassTask(labels=CLASSES, also=["matrix"])
    parts = [result.select(label=label).brier_score for label in CLASSES]
    found = result.macro("brier_score")
    assert found.value == pytest.approx(np.mean(parts))
    assert found.low == pytest.approx(np.mean([each.low for each in parts]))
    assert result.macro("brier_score", average="weighted").value != found.value


def test_strata_are_rows_that_blocks_share():
    blocks, strata = Layout(classes=("a", "b", "c"), groups=(("g", ("x",)),)).strata
    assert blocks.tolist() == [0] * 6 + [1] * 6 + [2] * 6
    assert strata.tolist() == [0, 1, 2, 3, 4, 5] * 3
    blocks, strata = Layout(labels=2).strata
    assert (blocks.tolist(), strata.tolist()) == ([0, 0, 1, 1], [0, 0, 0, 0])


@pytest.fixture(scope="module")
def noisy_results():
    axis, privacy = fg.Axis.uniform(8, outside="clip"), fg.DistributedDP(1.0)
    task = fg.MulticlassTask(labels=[0, 1, 2])
    plan = fg.EvaluationPlan.for_histogram(axis, fg.Cohort(2), task=task, privacy=privacy)
    rows_ = {"a": fg.Examples(*rows(n=40_000))}
    exact = fg.evaluate(rows_, task=task, axis=fg.Axis.uniform(8)).released.counts
    rng, scale = np.random.default_rng(7), np.sqrt(plan.noise_variances(2)[0] / 2)
    return [
        Evaluation(
            plan,
            plan.statement("simulated"),
            Released(axis, exact + rng.laplace(0, scale, exact.shape), 2),
            estimator=fg.Aligned(),
        )
        for _ in range(300)
    ]


@pytest.mark.parametrize(
    "asked",
    [*({"average": name} for name in ("macro", "weighted", "micro")), {"against": "one"}],
    ids=str,
)
def test_noise_in_an_average_is_what_is_stated(noisy_results, asked):
    """The deviation over 300 draws is within 16% of what is stated; false alarm 1e-4 each.

    Of a deviation from 300 draws, which is off by 4.1% as a rule.
    """
    drawn = [result.macro("roc_auc", **asked) for result in noisy_results]
    deviation = np.std([each.value for each in drawn])
    stated = np.mean([each.parts["noise"] for each in drawn])
    assert deviation == pytest.approx(stated, rel=0.16)


def test_intervals_of_an_average_of_copies_and_of_perfect_scores():
    """Two copies of one score: the average is as uncertain as one of them, and not less."""
    labels, scores = rows()
    labels = np.column_stack([labels == 0] * 2)
    twice = np.column_stack([scores[:, 0]] * 2)
    task = fg.MultilabelTask(labels=["one", "two"])
    result = fg.evaluate({"a": fg.Examples(labels, twice)}, task=task)
    one, both = result.select(label="one").roc_auc, result.macro("roc_auc")
    assert both.value == pytest.approx(one.value)
    assert both.interval == pytest.approx(one.interval, abs=1e-6)
    assert both.bounds == pytest.approx(one.bounds)
    labels = np.repeat([0, 1, 2], 30)
    result = fg.evaluate(
        {"a": fg.Examples(labels, np.eye(3)[labels])},
        task=fg.MulticlassTask(labels=range(3), also=["confusion"]),
    )
    for found in (
        result.macro("roc_auc"),
        result.macro("average_precision"),
        result.macro("recall", at=0.5),
        result.confusion_matrix().macro_f1,
        result.confusion_matrix().kappa,
    ):
        assert found.value == pytest.approx(1.0)
        assert 0.6 < found.low < 0.99
        assert found.high == pytest.approx(1.0)


def test_classes_hidden_by_noise_are_left_out():
    labels, scores = rows(n=20_000, classes=4)
    rare = (labels != 3) | (np.arange(len(labels)) < 100)
    task = fg.MulticlassTask(labels=range(4), also=["confusion"])
    labels, scores = labels[rare], scores[rare]
    result = fg.evaluate(
        {
            "a": fg.Examples(labels[:5000], scores[:5000]),
            "b": fg.Examples(labels[5000:], scores[5000:]),
        },
        task=task,
        privacy=fg.DistributedDP(1.0),
        seed=3,
    )
    found = result.macro("roc_auc")
    assert found.caution == "left out, without examples or hidden by noise: 3"
    there = [result.select(label=k).roc_auc.value for k in range(3)]
    assert found.value == pytest.approx(np.mean(there))
    assert result.confusion_matrix().balanced_accuracy.caution == found.caution


def test_tables_are_saved_and_loaded(tmp_path):
    task = fg.MulticlassTask(labels=CLASSES, also=["confusion", "ranks", "top"])
    sites = {
        "a": fg.Examples(NAMES[:900], SCORES[:900]),
        "b": fg.Examples(NAMES[900:], SCORES[900:]),
    }
    result = fg.evaluate(sites, task=task, privacy=fg.DistributedDP(5.0), seed=1)
    result.to_json(tmp_path / "r.json")
    again = fg.Evaluation.from_json(tmp_path / "r.json")
    assert again.plan == result.plan
    assert again.confusion_matrix().mcc == result.confusion_matrix().mcc
    assert again.top_k_accuracy(2) == result.top_k_accuracy(2)
    assert again.top_label().roc_auc == result.top_label().roc_auc
    for bad in (0, 4, 1.5, True):
        refused(fg.InputError, "k must be a whole number from 1 to 3", result.top_k_accuracy, bad)


def test_tables_are_of_one_model_and_may_be_of_all_rows_only():
    task = fg.MulticlassTask(
        labels=CLASSES, groups={"sex": ["women"]}, models=("new", "old"), also=["confusion"]
    )
    both = {"new": SCORES, "old": SCORES[:, [1, 0, 2]]}
    result = fg.evaluate({"a": fg.Examples(NAMES, both, group=SEX)}, task=task)
    new = result.select(model="new").confusion_matrix()
    old = result.select(model="old").confusion_matrix()
    assert (new.counts[:, [1, 0, 2]] == old.counts).all()
    refused(fg.InputError, "several models", result.confusion_matrix)
    task = fg.MulticlassTask(labels=CLASSES, groups={"sex": ["women"]}, also=["confusion"])
    made = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(8), fg.Cohort(1), task=task)
    (sent,) = made.rounds

    def by(grouping):
        tables = tuple(msgspec.structs.replace(each, grouping=grouping) for each in sent.tables)
        return msgspec.structs.replace(made, rounds=(msgspec.structs.replace(sent, tables=tables),))

    result = fg.evaluate({"a": fg.Examples(NAMES, SCORES, group=SEX)}, by(()))
    assert result.confusion_matrix().counts.sum() == len(NAMES)
    with pytest.raises(fg.InputError, match="of all rows, not by group"):
        result.select(group="women").confusion_matrix()
    refused(fg.PlanError, "grouping that the task has not", by, ("age",))


def of_tables(part):
    top = part.top_label()
    return part.confusion_matrix().counts.tolist(), part.top_k_accuracy(2), top.roc_auc


@pytest.mark.parametrize("groups", [["sex"], ["sex", "age"]], ids=["one grouping", "two"])
def test_tables_of_a_group_are_those_of_its_rows(groups):
    named = {"sex": ["women"], "age": ["young"]}
    given = {"sex": SEX, "age": np.where(SCORES[:, 0] > 0.3, "young", "old")}
    also = ["confusion", "ranks", "top"]
    task = fg.MulticlassTask(labels=CLASSES, groups={g: named[g] for g in groups}, also=also)
    rows = fg.Examples(NAMES, SCORES, group={g: given[g] for g in groups})
    result = fg.evaluate({"a": rows}, task=task)
    women = "women" if len(groups) == 1 else "sex women"
    for part, held in ((result, SEX != ""), (result.select(group=women), SEX == "women")):
        own = fg.Examples(NAMES[held], SCORES[held])
        alone = fg.evaluate({"a": own}, task=fg.MulticlassTask(labels=CLASSES, also=also))
        assert of_tables(part) == of_tables(alone)


def test_groups_of_tables_add_up_under_noise_and_a_table_costs_what_a_class_does():
    task = fg.MulticlassTask(labels=CLASSES, groups={"sex": ["women"]}, also=["confusion"])
    rows = fg.Examples(NAMES, SCORES, group=SEX)
    result = fg.evaluate({"a": rows, "b": rows}, task=task, privacy=fg.DistributedDP(1.0), seed=4)
    whole = result.confusion_matrix()
    parts = [result.select(group=name).confusion_matrix() for name in ("women", "other")]
    assert whole.variance == sum(part.variance for part in parts)
    assert (whole.counts == sum(part.counts for part in parts)).all()
    assert "in each group by sex (women, other)" in explain(result.plan)
    with_table, four = (
        plan_for(fg.DistributedDP(1.0), bins=8, task=task)
        for task in (
            fg.MulticlassTask(labels=CLASSES, also=["confusion"]),
            fg.MulticlassTask(labels=[*CLASSES, "cow"]),
        )
    )
    assert with_table.noise_variances(3) == four.noise_variances(3)
    assert "highest score for each of them" in explain(with_table)


def test_intervals_of_the_matrix_hold_the_noise():
    """All nine cells of 40 draws; each holds the true share at 95%, so 360 hold over 310.

    False alarm below 1e-9.
    """
    labels, scores = rows(n=5000)
    task = fg.MulticlassTask(labels=range(3), also=["confusion"])
    plan = plan_for(fg.DistributedDP(1.0), None, fg.Cohort(2), bins=8, task=task)
    clients = {"a": (labels[:2500], scores[:2500]), "b": (labels[2500:], scores[2500:])}
    truth = np.bincount(labels * 3 + scores.argmax(axis=1), minlength=9).reshape(3, 3)
    truth = truth / truth.sum(axis=1, keepdims=True)
    held = 0
    for seed in range(40):
        matrix = simulate(
            {name: fg.Examples(*pair) for name, pair in clients.items()}, plan, seed=seed
        ).confusion_matrix()
        low, high = matrix.intervals("true")
        held += np.count_nonzero((low <= truth) & (truth <= high))
        assert matrix.accuracy.bounds[0] < matrix.accuracy.value < matrix.accuracy.bounds[1]
    assert held > 310


def test_the_planner_prices_classes_and_groups():
    known = {"privacy": fg.DistributedDP(1.0), "clients": 5, "examples": 20_000}
    axis = fg.Axis.uniform(16, outside="clip")
    plain = fg.planner.propose(**known, axis=axis, positive_rate=1 / 3)
    classes = fg.planner.propose(**known, axis=axis, task=TASK)
    groups = fg.planner.propose(**known, axis=axis, task=fg.BinaryTask(groups=BY_SEX))
    assert classes.task == TASK
    # Bins of equal width cost both the same; three times the noise is more.
    assert classes.predicted.pr_area_error > 1.2 * plain.predicted.pr_area_error
    assert plain.predicted.groups == ()
    ((name, of_group),) = groups.predicted.groups
    assert name == "sex"
    assert of_group.roc_auc_error > groups.predicted.roc_auc_error
    with pytest.raises(fg.PlanError, match="already says which label"):
        fg.planner.propose(**known, task=TASK, positive="cat")
    axis = fg.Axis.uniform(8, outside="clip")
    known = {"clients": 5, "examples": 50_000, "axis": axis, "privacy": fg.DistributedDP(1.0)}
    ten = fg.MulticlassTask(labels=range(10))
    told = fg.planner.propose(**known, task=ten)
    assert told.privacy == fg.DistributedDP(1.0)
    assert told.predicted.advice.endswith('DistributedDP(1, noise="skellam", delta=1e-06)')
    taken = fg.planner.propose(**known, task=ten, delta=1e-6)
    assert taken.privacy == fg.DistributedDP(1.0, noise="skellam", delta=1e-6)
    assert taken.noise_variances(5)[0] < told.noise_variances(5)[0]
    few = fg.planner.propose(**known, task=TASK, delta=1e-6)
    assert (few.privacy.noise, few.predicted.advice) == ("polya", None)
