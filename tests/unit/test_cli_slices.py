"""Groups, classes and models on the command line: what they are told as, and what is kept."""

import re

import numpy as np
import pytest
from commands import complaint, run, worked

import fedgauge as fg
from fedgauge import demo
from fedgauge.cli.show_slices import confusion_table
from fedgauge.cli.terminal import screen

CLINICS = [f"clinic-{site}.csv" for site in "abc"]
BINS = ["--bins", 64]
GROUPS = [*CLINICS, *BINS, "--label", "y", "--score", "new", "--group", "sex=women,men"]
MODELS = [*CLINICS, *BINS, "--label", "y", "--model-score", "new=new", "--model-score", "old=old"]
SCORES = "flu=p_flu,cold=p_cold,well=p_well"
KINDS = ["--label", "kind", "--class-scores", SCORES]
CLASSES = [*CLINICS, *BINS, *KINDS]
WARD = "internal medicine, ward number"
ALL_TABLES = ["--also", "confusion,ranks,top"]
PLAN = ["plan", "--clients", 3, "--examples", 4500]

pytestmark = pytest.mark.usefixtures("few_redraws")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    demo.write_files(folder)
    rng = np.random.default_rng(1)
    fever, cough = rng.random((2, 300)) < 0.4
    ward = rng.integers(0, 50, 300)
    rows = [
        f'{int(f)},{int(c)},{0.6 * f + 0.3 * u:.3f},{0.5 * c + 0.4 * u:.3f},"{WARD} {w}"'
        for f, c, u, w in zip(fever, cough, rng.random(300), ward, strict=True)
    ]
    (folder / "signs.csv").write_text("\n".join(["fever,cough,p_fever,p_cough,ward", *rows]))
    return folder


@pytest.fixture(autouse=True)
def inside(files, monkeypatch):
    monkeypatch.chdir(files)


def evaluated(tmp_path, *arguments):
    """What was printed, and the result that was saved."""
    path = tmp_path / "r.json"
    done = worked("evaluate", *arguments, "--json", path)
    return done.stdout, fg.Evaluation.from_json(path)


def row(text, name):
    (found, *_) = (line for line in text.splitlines() if line.startswith(f"{name} "))
    return re.split(r"\s{2,}", found.strip())


def after(text, mark):
    return text[text.index(f"\n{mark}") :]


def shown(estimate):
    return [f"{estimate.value:.4f}", f"{estimate.low:.4f} to {estimate.high:.4f}"]


def clinics(**columns):
    return {path[:-4]: fg.ScoreFile(path, **columns) for path in CLINICS}


def test_groups_have_a_row_each_and_the_largest_gap_a_verdict(tmp_path):
    text, result = evaluated(tmp_path, *GROUPS, "--at", 0.5)
    rows = clinics(label="y", score="new", group={"sex": "sex"})
    same = fg.evaluate(rows, groups={"sex": ["women", "men"]}, axis=fg.Axis.uniform(64))
    assert result.record.to_json() == same.record.to_json()
    women = same.select(group="women")
    share = f"{women.positives / women.examples:.1%}"
    told = ["women", f"{women.examples:,}", share, *shown(women.roc_auc)]
    assert row(text, "women") == told
    assert row(text, "all")[3:] == shown(same.roc_auc)
    assert not re.search("^other ", text, re.MULTILINE)  # nobody is in it
    at = women.at_threshold(0.5)
    below = after(text, "group, at 0.5")
    assert row(below, "women") == ["women", *shown(at.recall), *shown(at.precision)]
    gap = same.gaps("recall", at=0.5).largest
    joint = f"{gap.joint.low:.4f} to {gap.joint.high:.4f}"
    told = ["recall at 0.5", f"{gap.difference.value:.4f}", joint, "yes", "men - women"]
    assert row(text, "recall at 0.5") == told
    assert row(after(text, "largest gap in"), "ROC AUC")[3] == "no"


def test_thresholds_by_a_rate_are_those_of_all_rows(tmp_path):
    text, result = evaluated(tmp_path, *GROUPS, "--at-fpr", 0.1)
    assert f"group, at {result.threshold_for(fpr=0.1).threshold:.6g}" in text


def test_models_are_compared(tmp_path):
    text, result = evaluated(tmp_path, *MODELS, "--margin", 0.01, "--at", 0.5)
    assert row(text, "old")[1:3] == shown(result.select(model="old").roc_auc)
    comparison = result.compare("new", "old", margin=0.01)
    assert f"Verdict: {comparison.verdict}" in text
    assert "Basis: from both scores of each row, counted together." in text
    below = after(text, "new less old")
    assert row(below, "Brier score") == ["Brier score", *shown(comparison.brier_score)]
    recall = comparison.at_threshold(0.5).recall
    assert row(below, "recall at 0.5") == ["recall at 0.5", *shown(recall)]
    assert run("evaluate", *MODELS, "--quiet").output == ""


def test_more_pairs_of_models_have_a_line_each(tmp_path):
    four = ("a=new", "b=old", "c=p_flu", "d=p_cold")
    named = [word for each in four for word in ("--model-score", each)]
    text, result = evaluated(tmp_path, *CLINICS, *BINS, "--label", "y", *named, "--pair", "a,b")
    assert result.plan.task.pairs == (("a", "b"),)
    assert text.count("ROC AUC differs by") == 6
    assert result.compare("a", "b").verdict in text
    assert text.count("Basis: ") == 2  # of the pair, and of all others


def test_classes_have_a_row_each_and_averages(tmp_path):
    text, result = evaluated(tmp_path, *CLASSES, *ALL_TABLES, "--at", 0.5)
    flu = result.select(label="flu")
    assert row(text, "flu")[3:] == shown(flu.roc_auc)
    assert row(text, "micro average")[1:3] == shown(result.macro("roc_auc", average="micro"))
    ones = result.macro("roc_auc", against="one")
    assert row(text, "macro, one against one")[1:3] == shown(ones)
    below = after(text, "class, at 0.5")
    macro = result.macro("recall", at=0.5)
    assert row(below, "macro average")[1:3] == shown(macro)
    matrix = result.confusion_matrix()
    below = after(text, "true class")
    assert row(below, "cold") == ["cold", *(f"{n:,}" for n in matrix.counts[1])]
    assert row(text, "accuracy")[1:] == shown(matrix.accuracy)
    assert row(text, "top-2 accuracy")[1:] == shown(result.top_k_accuracy(2))
    calibration = result.top_label().expected_calibration_error
    assert row(text, "top label: expected calibration error")[1:] == shown(calibration)


def test_what_is_given_twice_counts_twice(tmp_path):
    scores = [each for pair in SCORES.split(",") for each in ("--class-scores", pair)]
    tables = ["--also", "confusion", "--also", "ranks"]
    text, _ = evaluated(tmp_path, *CLINICS, *BINS, "--label", "kind", *scores, *tables)
    assert "\ntrue class" in text
    assert "\ntop-2 accuracy" in text
    planned = run(*PLAN, "--epsilon", 3, "--classes", "flu", "--classes", "cold,well")
    assert "flu, cold, well" in planned.stdout
    models = run(*PLAN, "--epsilon", 3, "--models", "new", "--models", "old")
    assert "new, old" in models.stdout


def test_groups_need_a_column_and_plans_take_none():
    asked = run("evaluate", *GROUPS[:-1], "women,men")
    assert "--group COLUMN=women,men" in complaint(asked)
    for option, names in (
        ("classes", "flu,cold"),
        ("models", "new,old"),
        ("labels", "fever,cough"),
    ):
        columns = ",".join(f"{name}=p_{name}" for name in names.split(","))
        told = complaint(run(*PLAN, "--epsilon", 3, f"--{option}", columns))
        assert f"--{option} takes names alone, as --{option} {names}:" in told


def test_several_labels_a_row(tmp_path):
    columns = ["--label", "fever=fever,cough=cough"]
    columns += ["--class-scores", "cough=p_cough,fever=p_fever"]
    text, result = evaluated(tmp_path, "signs.csv", *BINS, *columns)
    assert result.plan.task == fg.MultilabelTask(labels=["fever", "cough"])
    assert result.select(label="fever").roc_auc.value == 1.0
    assert row(text, "cough")[1] == f"{result.select(label='cough').positives}"
    assert "one against one" not in text


def test_classes_by_group_and_models_by_group(tmp_path):
    confused = ["--also", "confusion"]
    text, result = evaluated(tmp_path, *CLASSES, "--group", "sex=women,men", *confused)
    women = result.select(group="women")
    assert row(text, "women")[2:] == shown(women.macro("roc_auc"))
    alone = after(run("show", tmp_path / "r.json", "--group", "women").stdout, "true class")
    cold = women.confusion_matrix().counts[1]
    assert row(alone, "cold") == ["cold", *(f"{n:,}" for n in cold)]
    gap = result.select(label="cold").gaps("roc_auc").largest
    assert row(text, "cold: ROC AUC")[1] == f"{gap.difference.value:.4f}"
    text, result = evaluated(tmp_path, *MODELS, "--group", "sex=women,men")
    new, old = text.split("Model new\n")[1].split("Model old\n")
    for name, part in (("new", new), ("old", old)):
        auc = result.select(model=name, group="men").roc_auc
        assert row(part, "men")[3:] == shown(auc)
        assert "largest gap in" in part


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_tables_fit_the_screen(columns):
    for command in (GROUPS, MODELS, [*CLASSES, *ALL_TABLES]):
        text = run("evaluate", *command, "--at", 0.5, columns=columns).stdout
        tables = text.split("\n\n", 1)[1]
        wide = [line for line in tables.splitlines() if len(line.rstrip()) > columns]
        told = ("Verdict: ", "Basis: ", "A gap stands out", "Columns are")  # sentences
        assert [line for line in wide if not line.startswith(told)] == []
        assert "\x1b" not in text
    header = text.split("\n\n")[1].splitlines()[0]
    assert ("average precision" in header) == (columns == 120)


def test_many_groups_do_not_flood_and_long_names_are_cut(tmp_path):
    wards = ",".join(f'"{WARD} {n}"' for n in range(50))
    rows = ["signs.csv", "--label", "fever", "--score", "p_cough", "--group", f"ward={wards}"]
    text, _ = evaluated(tmp_path, *rows, *BINS)
    assert len(re.findall(r"^internal medicine,\.\.\..{4} +\d", text, re.MULTILINE)) == 20
    assert "31 more: all are in --json FILE, and `fedgauge show FILE --group NAME`" in text
    assert "holds for all 1,225 gaps together" in text
    text, _ = evaluated(tmp_path, *rows[:-1], f'ward={wards},"{WARD} 50"', *BINS)
    assert "holds for all 51 gaps together" in text
    assert "each is compared with all rows outside it" in text


def test_what_noise_hides_is_withheld_and_may_be_misspelt(tmp_path):
    noisy = ["--privacy", "ddp", "--epsilon", 0.1, "--seed", 1]
    few = [*GROUPS[:-1], "sex=women,men,divers"]
    text, result = evaluated(tmp_path, *few, *noisy)
    assert row(text, "divers")[-1] == "withheld"
    assert text.count("the noise (standard deviation ") == 1
    assert result.select(group="divers").withheld in text
    assert row(text, "divers")[-2].isdecimal()  # no share of positives: it would be noise
    noisy = ["--privacy", "ddp", "--epsilon", 1, "--seed", 1]
    done = run("evaluate", *GROUPS[:-1], "sex=women,man", *noisy)
    assert "noise hides group 'man' of column 'sex'. Check the spelling." in done.stderr
    assert "no two groups to compare" in done.stdout
    assert "A gap stands out" not in done.stdout


def test_swapped_columns_of_classes_and_classes_of_no_row_are_told(files):
    swapped = "flu=p_cold,cold=p_flu,well=p_well"
    text = run("evaluate", *CLINICS, *BINS, "--label", "kind", "--class-scores", swapped).stdout
    told = "flu, cold: other classes score higher. Check which column belongs to which class."
    assert told in text
    assert "score higher" not in run("evaluate", *CLASSES).stdout
    lines = (files / "clinic-a.csv").read_text().splitlines()
    kept = [line for line in lines if ",well," not in f",{line},"]
    assert 1 < len(kept) < len(lines)
    (files / "ill.csv").write_text("\n".join(kept))
    text = run("evaluate", "ill.csv", *BINS, *KINDS, "--at", 0.5).stdout
    assert row(text, "well")[-1] == "no examples"
    assert "--positive" not in text
    assert "positive=" not in text


def test_groups_too_small_to_be_shown_have_no_row(tmp_path):
    task = fg.BinaryTask(groups={"ward": [f"{WARD} 0", f"{WARD} 1"]})
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(8), fg.Cohort(1, max_colluding=0), task=task, min_cell=10
    )
    plan.save(tmp_path / "plan.toml")
    rows = ["signs.csv", "--label", "fever", "--score", "p_cough"]
    text, result = evaluated(tmp_path, *rows, "--plan", tmp_path / "plan.toml")
    assert result.released.joined == (f"{WARD} 0", f"{WARD} 1")
    assert f"not shown          {WARD} 0, {WARD} 1: at least one of them has fewer than 10" in text
    assert row(text, "other")[1] == "300"
    assert "\ninternal" not in text
    assert "no two groups to compare" in text


def test_a_map_is_fitted_to_one_slice(tmp_path):
    _, result = evaluated(tmp_path, *MODELS)
    path, out = tmp_path / "r.json", tmp_path / "map.json"
    assert run("calibrate", path, "--model", "old", "--method", "beta", "-o", out).exit_code == 0
    fitted = fg.Calibrator.from_json(out)
    assert fitted.digest == result.select(model="old").calibrator("beta").digest
    assert "are shown by themselves" in run("show", path, "--calibrator", out).stdout
    mapped = run("show", path, "--calibrator", out, "--model", "old")
    assert "mapped by" in mapped.stdout
    told = complaint(run("calibrate", path, "-o", out))
    assert "several models. Choose one, as with" in told
    assert "--model NAME" in told


def test_show_chooses_one_slice(tmp_path):
    evaluated(tmp_path, *MODELS, "--group", "sex=women,men")
    path = tmp_path / "r.json"
    whole = run("show", path)
    assert "Model old" in whole.stdout
    assert "signature " in whole.stdout
    result = fg.Evaluation.from_json(path)
    one = run("show", path, "--group", "women", "--model", "old", "--at", 0.5).stdout
    assert one.startswith("model old, group women: 3 clients")
    assert row(one, "ROC AUC  ")[1] == str(result.select(model="old", group="women").roc_auc)
    assert "false negatives" in one
    group = run("show", path, "--group", "men").stdout
    comparison = result.select(group="men").compare("new", "old")
    assert f"Verdict: {comparison.verdict}" in group
    assert "largest gap" not in group
    told = complaint(run("show", path, "--group", "womn"))
    assert "no group 'womn'. There are: women; men; other." in told
    assert "does not distinguish by class. Leave out --class." in complaint(
        run("show", path, "--class", "flu")
    )


@pytest.mark.parametrize(
    "command",
    [
        [*GROUPS, "--group", "age=young,old"],
        [*GROUPS, "--privacy", "ddp", "--epsilon", 3, "--seed", 1],
        MODELS,
        [*MODELS, "--group", "sex=women,men"],
        [*CLASSES, *ALL_TABLES],
        [*CLASSES, "--group", "sex=women,men", "--group", "age=young,old", "--crossed"],
    ],
)
def test_a_saved_result_gives_the_same_numbers(tmp_path, command):
    """All slices are in the file, and what is read from it is what was measured."""
    _, loaded = evaluated(tmp_path, *command)
    fields = loaded.record.slices[0].__struct_fields__
    assert {"model", "group", "label", "counts", "variances", "metrics", "curves"} <= {*fields}
    record = fg.Evaluation.from_json(tmp_path / "r.json").record
    assert record.to_json() == (tmp_path / "r.json").read_bytes()
    told = [(part.model, part.group, part.label) for part in record.slices]
    task = loaded.plan.task
    assert told == [(s.model, s.group, s.label) for s in task.slices]
    for part, kept in zip(loaded.slices, record.slices, strict=True):
        if part.withheld is None and part.examples:
            assert kept.metrics["roc_auc"].value == part.roc_auc.value
    text = run("show", tmp_path / "r.json").stdout
    if task.groups and not loaded.is_several:
        gap = loaded.gaps("roc_auc").largest.difference
        assert row(after(text, "largest gap in"), "ROC AUC")[1] == f"{gap.value:.4f}"
    if loaded.has_average:
        assert row(text, "macro average")[1:3] == shown(loaded.macro("roc_auc"))


def test_plans_say_what_slices_cost():
    noisy = [*PLAN, "--epsilon", 1, "--bins", 8]
    text = run(*noisy, "--group", "sex=women,men", "--group", "age=young,old").stdout
    assert "sex: women, men, other; age: young, old, other; a row counts in each" in text
    assert "In a group by sex    AUC error" in text
    assert "shared by 2: 2 for scores (2 groupings)" in text
    crossed = ["--group", "sex=women,men", "--group", "age=young,old", "--crossed"]
    text = run(*noisy, *crossed).stdout
    assert "In a group by sex and age" in text
    assert "shared by" not in text
    text = run(*noisy, "--classes", "flu,cold,well", "--also", "confusion").stdout
    assert "0.333 of them of each class" in text
    assert "expected of each class" in text
    assert "shared by 4: 3 for scores (3 classes), 1 for confusion" in text
    alone = run(*PLAN, "--bins", 8, "--epsilon", 5, "--privacy", "ldp", "--models", "new,old")
    assert "Models             new, old" in alone.stdout  # of which no row is counted in both
    text = run(*noisy, "--labels", "fever,cough").stdout
    assert "expected of each label" in text
    many = run(*noisy, "--classes", ",".join("abcdefghijkl")).stdout
    assert "--noise skellam --delta" in many


def test_a_plan_is_evaluated_by_columns_alone(tmp_path):
    plan = tmp_path / "plan.toml"
    named = ["--classes", "well,cold,flu", "--group", "years=young,old"]
    assert run(*PLAN, "--privacy", "sa", *named, "-o", plan).exit_code == 0
    text, result = evaluated(tmp_path, *CLINICS, *KINDS, "--plan", plan, "--group", "years=age")
    rows = clinics(label="kind", score=["p_well", "p_cold", "p_flu"], group={"years": "age"})
    same = fg.evaluate(rows, fg.EvaluationPlan.load(plan))
    assert result.macro("roc_auc").value == same.macro("roc_auc").value
    assert row(text, "young")[1] == f"{same.select(group='young', label='flu').examples:,}"
    told = complaint(run("evaluate", *CLINICS, *KINDS, "--plan", plan, "--also", "ranks"))
    assert "says it: leave out --also" in told


def test_officers_read_what_is_told_apart(tmp_path):
    plan = tmp_path / "plan.toml"
    run(*PLAN, "--privacy", "sa", "--models", "new,old", "--group", "sex=women,men", "-o", plan)
    text = run("explain", plan).stdout
    told = text.split("What is told apart\n")[1].split("\n\n")[0]
    assert "Models that score the same rows: new, old." in told
    assert "counted together, of these models: new and old." in told
    assert "Groups by sex (women, men, other)." in told
    assert "In an exact sum, groups make small numbers likelier" in told
    run(*PLAN, "--epsilon", 1, "--bins", 8, "--classes", "flu,cold,well", "-o", plan)
    told = run("explain", plan).stdout.split("What is told apart\n")[1].split("\n\n")[0]
    assert "Classes, of which a row has one, with a score for each: flu, cold, well." in told
    assert "exact" not in told
    run(*PLAN, "--epsilon", 1, "--bins", 8, "-o", plan)
    assert "told apart" not in run("explain", plan).stdout


def confusion(labels, count):
    counts = np.full((len(labels), len(labels)), count)
    return confusion_table(fg.ClassConfusion(tuple(labels), counts, 0.0, 0.95))


def test_a_confusion_matrix_is_shaped_to_the_screen(monkeypatch):
    monkeypatch.setattr(screen, "_width", 80)
    small = confusion("abc", 7)
    assert small.caption.endswith("examples.")
    wide = confusion([f"class {n}" for n in range(10)], 10**7)
    assert wide.caption.endswith("shares of each true class.")
    titles = [str(column.header) for column in wide.columns]
    assert len({*titles}) == 11  # names that begin alike are still told apart
    assert sum(len(title) + 2 for title in titles) <= 80
    assert "is in --json FILE" in confusion([str(n) for n in range(11)], 1)


def test_scores_that_are_whole_numbers_are_noted_for_models_too(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("y,a,b\n" + "".join(f"{n % 2},{n % 5},{n % 7}\n" for n in range(70)))
    models = ["--model-score", "a=a", "--model-score", "b=b"]
    done = run("evaluate", path, "--label", "y", *models, "--range", 0, 10)
    assert "the scores are whole numbers: --values 0..10" in done.stderr
