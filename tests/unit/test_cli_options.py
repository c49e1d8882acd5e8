"""Options of evaluate and plan: what does nothing, overwrites or counts twice is refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import complaint, done, run, worked
from refusals import refused
from sklearn.metrics import average_precision_score, roc_auc_score

import fedgauge as fg
from fedgauge.cli.options import read_columns, read_lists, read_pairs
from fedgauge.plan.prediction import PredictedErrors, Prediction
from fedgauge.plots.figures import NAMES, OF_SLICES

COLUMNS = ["--label", "y", "--score", "p"]
POINTS = ["--label", "y", "--score", "points"]
FILES = ["a.csv", "b.csv", "c.csv"]
DDP = ["--privacy", "ddp", "--epsilon", 1]
LDP = ["--privacy", "ldp", "--epsilon", 1]

pytestmark = pytest.mark.usefixtures("few_redraws")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 1_200)
    points = np.clip(np.round(rng.normal(4 + 2 * y, 2)), 0, 10).astype(int)
    p = np.clip(rng.normal(0.4 + 0.2 * y, 0.2), 0, 1)
    return pd.DataFrame({"y": y, "points": points, "p": p, "who": np.arange(1_200) // 2})


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, rows):
    monkeypatch.chdir(tmp_path)
    for name, part in zip(FILES, np.array_split(np.arange(len(rows)), 3), strict=True):
        rows.iloc[part].to_csv(name, index=False)
    return tmp_path


def evaluate(*options):
    return run("evaluate", *FILES, *options)


def plan(*options):
    return run("plan", "--clients", 3, "--examples", 6_000, *options)


IDLE = {
    "noise": ["--noise", "polya"],
    "unit": ["--unit", "example"],
    "neighbours": ["--neighbours", "add-remove"],
    "cap": ["--max-per-unit", 1],
    "oracle": ["--oracle", "oue"],
    "delta": ["--delta", 1e-6],
    "epsilon": ["--epsilon", 0],
}


@pytest.mark.parametrize("command", [plan, lambda *options: evaluate(*COLUMNS, *options)])
def test_what_a_model_has_no_use_for_is_refused(command):
    """Also where it is given with its default: who asks for noise believes to get it."""
    for model, idle, remedy in (
        *((["--privacy", "sa"], idle, "--privacy ddp") for idle in IDLE.values()),
        *((LDP, IDLE[name], "--privacy ddp") for name in ("noise", "unit", "neighbours", "cap")),
        (LDP, IDLE["delta"], "--privacy ddp"),
        (DDP, IDLE["oracle"], "--privacy ldp"),
    ):
        told = complaint(command(*model, *idle))
        assert f"{idle[0]} would do nothing under --privacy {model[1]}" in told
        assert remedy in told


def test_hints_and_columns_that_change_nothing_are_refused():
    for options, told in (
        (["--examples", 100], "--examples would do nothing"),
        (["--positive-rate", 0.1], "--positive-rate would do nothing"),
        (["--tree", "16x16"], "--tree would do nothing"),
        ([*DDP, "--bins", 16, "--positive-rate", 0.1], "--positive-rate would do nothing"),
        (["--subject", "who"], "--subject needs --privacy ddp --unit subject"),
        ([*DDP, "--subject", "who"], "--subject needs --privacy ddp --unit subject"),
        (["--unit", "client", "--noise", "skellam"], "--noise, --unit would do nothing"),
    ):
        assert told in complaint(evaluate(*COLUMNS, *options))


def test_more_survivors_than_clients_are_refused():
    for model in (["--epsilon", 1], ["--privacy", "sa"]):
        told = complaint(run("plan", "--clients", 3, "--min-survivors", 4, *model, "-o", "p.toml"))
        assert "--min-survivors must be at most --clients: 4 of 3" in told
        assert not Path("p.toml").exists()
        assert run("plan", "--clients", 3, "--min-survivors", 3, *model).exit_code == 0
    for option in ("--min-survivors", "--max-colluding"):  # reports need nobody else
        assert f"{option} would do nothing" in complaint(plan(*LDP, option, 2))
    options = {"privacy": fg.DistributedDP(1.0), "clients": 3, "cohort": fg.Cohort(4)}
    for call in (fg.planner.propose, lambda **rest: fg.planner.needs(0.01, **rest)):
        refused(fg.PlanError, "min_survivors must be at most clients", call, **options)


def test_a_useless_plan_says_what_would_be_enough(needs):
    options = ["--examples", 300, "--epsilon", 0.1, "--max-colluding", 1, "-o", "p.toml"]
    result = worked("plan", "--clients", 3, *options)
    assert Path("p.toml").exists()
    assert result.stderr.startswith(
        "fedgauge: warning: in about 100% of such evaluations noise is larger than one of the "
        "classes, so no result is shown. For an expected error of 0.02 it takes"
    )
    assert "epsilon 0.35 with these examples, or about 120,000 examples" in result.stderr
    (((wanted,), asked),) = needs
    assert wanted == 0.02
    assert asked["privacy"] == fg.DistributedDP(0.1)
    assert (asked["examples"], asked["cohort"]) == (300, fg.Cohort(3))


@pytest.mark.parametrize("error", [0.0201, 0.0199])
def test_useless_is_an_expected_error_above_a_fiftieth(monkeypatch, needs, error):
    proposed = fg.planner.propose(privacy=fg.DistributedDP(1.0), clients=3, examples=6_000)
    errors = PredictedErrors(0.1, 0.1, error)
    prediction = Prediction.of(errors, (errors, errors))
    monkeypatch.setattr(
        "fedgauge.planner.propose", lambda **_: proposed.with_prediction(prediction)
    )
    told = plan("--epsilon", 1).stderr
    assert ("of little use" in told) == (error > 0.02) == bool(needs)


def test_a_useless_plan_of_reports_says_what_would_be_enough(needs):
    told = run("plan", "--clients", 3, "--examples", 14_000, *LDP).stderr
    expected = fg.planner.propose(privacy=fg.LocalDP(1.0), clients=3, examples=14_000).predicted
    assert f"the AUC is expected to be off by {expected.roc_auc_error:.2g}" in told
    words = "of little use. For an expected error of 0.02 it takes epsilon 0.35 with these examples"
    assert words in told
    (((wanted,), asked),) = needs
    assert (wanted, asked["privacy"]) == (0.02, fg.LocalDP(1.0))


def test_words_stay_without_noise_and_where_needs_has_no_answer(monkeypatch, needs):
    told = run("plan", "--clients", 3, "--examples", 100, "--privacy", "sa").stderr
    assert "of little use" in told
    assert "more examples, more bins or a smaller --min-cell" in told
    assert not needs

    def refuse(*_, **__):
        raise fg.PlanError("no")

    monkeypatch.setattr("fedgauge.planner.needs", refuse)
    told = run("plan", "--clients", 3, "--examples", 300, "--epsilon", 0.1, "-q").stderr
    assert "It takes more examples or a larger --epsilon" in told


def test_a_file_counts_once(folder):
    (folder / "link.csv").symlink_to("a.csv")
    for files, told in (
        (["a.csv"], "a.csv is given twice"),
        (["link.csv"], "link.csv is the same file as a.csv"),
        (["b.csv", "./a.csv"], "a.csv is given twice"),
        ([folder / "a.csv", "--client", "who"], "is the same file as a.csv"),
    ):
        assert told in complaint(run("evaluate", "a.csv", *files, *COLUMNS))


def test_json_replaces_results_alone():
    before = Path("a.csv").read_bytes()
    done(run("plan", "--clients", 2, "--examples", 20_000, *LDP[:-1], 5, "-o", "l.toml"))
    done(run("encode", "l.toml", "a.csv", *COLUMNS, "-o", "a.fgr"))
    for command in (
        evaluate(*COLUMNS, "--json", "a.csv"),
        run("intake", "l.toml", "a.fgr", "--json", "a.csv"),
    ):
        told = complaint(command)
        assert "a.csv exists and is no result of fedgauge" in told
        assert "--json" in told
    assert not Path("intake").exists()
    assert Path("a.csv").read_bytes() == before
    Path("empty.json").touch()
    for _ in range(2):
        done(evaluate(*COLUMNS, "--json", "r.json"))
        done(evaluate(*COLUMNS, "--json", "empty.json"))
    assert fg.Evaluation.from_json("empty.json").record == fg.Evaluation.from_json("r.json").record


def test_a_plan_is_no_result_and_a_result_no_plan():
    done(evaluate(*COLUMNS, "--json", "r.json"))
    done(plan("--privacy", "sa", "-o", "p.json"))
    done(plan("--privacy", "sa", "-o", "p.json"))
    for taken in (["-o", "r.json"], ["-o", "site.toml"]):
        run("site", "init", "--name", "a", "--dataset", "d", ".")
        before = Path(taken[1]).read_bytes()
        assert f"{taken[1]} exists and is no plan" in complaint(plan("--privacy", "sa", *taken))
        assert Path(taken[1]).read_bytes() == before
    assert "p.json exists and is no result" in complaint(evaluate(*COLUMNS, "--json", "p.json"))


@pytest.mark.parametrize("name", [*NAMES, *OF_SLICES])
def test_plots_replace_plots_alone(name):
    done(evaluate(*COLUMNS, "--json", "r.json", "--plots", "ours"))
    done(evaluate(*COLUMNS, "--plots", "ours"))
    Path("theirs").mkdir()
    other = Path("theirs") / name
    other.write_bytes(b"\x89PNG\r\n\x1a\n not ours")
    for command in (
        evaluate(*COLUMNS, "--plots", "theirs"),
        run("show", "r.json", "--plots", "theirs"),
    ):
        assert f"{other} exists and is no plot of fedgauge" in complaint(command)
    assert other.read_bytes().endswith(b"not ours")
    assert len(list(Path("theirs").iterdir())) == 1


@pytest.mark.parametrize("values", ["0..10", "0,1,2,3,4,5,6,7,8,9,10", "0..4,5,6..10"])
def test_values_make_the_result_exact(rows, values):
    done(evaluate(*POINTS, "--values", values, "--json", "r.json"))
    result = fg.Evaluation.from_json("r.json")
    assert result.plan.axis == fg.Axis.from_values(range(11))
    assert result.roc_auc.value == pytest.approx(roc_auc_score(rows.y, rows.points), abs=1e-12)
    expected = average_precision_score(rows.y, rows.points)
    assert result.average_precision.value == pytest.approx(expected, abs=1e-12)


def test_values_under_noise_are_ties(rows):
    """A bin of one value is a step of the PR curve, with noise as without."""
    options = ["--privacy", "ddp", "--epsilon", 50, "--values", "0..10", "--seed", 1]
    with pytest.warns(fg.PrivacyWarning):
        evaluate(*POINTS, *options, "--json", "r.json")
    with pytest.warns(fg.PrivacyWarning):
        result = fg.Evaluation.from_json("r.json")
    assert result.plan.axis == fg.Axis.from_values(range(11), outside="clip")
    # Noise of epsilon 50 changes a count of these with a chance below 1e-19.
    expected = average_precision_score(rows.y, rows.points)
    assert result.average_precision.value == pytest.approx(expected, abs=1e-9)
    assert result.roc_auc.value == pytest.approx(roc_auc_score(rows.y, rows.points), abs=1e-9)


def test_values_of_a_plan_and_of_what_is_wanted(needs):
    made, told = planned("--privacy", "sa", "--values", "0..10")
    assert made.axis == fg.Axis.from_values(range(11))
    assert "11 known values on [0, 10], each a bin of its own" in told
    made, _ = planned("--privacy", "sa", "--values", "-2..2")
    assert made.axis == fg.Axis.from_values(range(-2, 3))
    made, _ = planned("--epsilon", 1, "--values", "0..10")
    assert made.axis == fg.Axis.from_values(range(11), outside="clip")
    done(plan("--epsilon", 1, "--values", "0..10", "--want", 0.01))
    ((_, asked),) = needs
    assert asked["axis"] == fg.Axis.from_values(range(11), outside="clip")


def test_values_that_are_none_or_beside_bins_are_refused():
    for options, told in (
        *((["0..x"], "written like 0..10 or 0,0.5,1"), (["5..1"], "must go up")),
        *(([values], "written like") for values in ("", "0..", "0,,1")),
        *((["0..9999999"], "at most 262,144"), (["0,nan"], "finite")),
        *(
            (["0..10", *other], "Leave out --bins, --axis and --range")
            for other in (["--bins", 4], ["--axis", "uniform"], ["--range", 0, 10])
        ),
    ):
        assert told in complaint(plan("--privacy", "sa", "--values", *options))
        assert told in complaint(evaluate(*POINTS, "--values", *options))


def test_whole_numbers_in_a_range_are_noticed():
    note = "fedgauge: note: the scores are whole numbers: --values 0..10 counts each by itself"
    in_range = [*POINTS, "--range", 0, 10]
    for bins, why in (([], "spread them out"), (["--bins", 4], "2.5 wide join several")):
        for client in ([], ["--client", "who"]):
            result = evaluate(*in_range, *bins, *client)
            assert result.exit_code == 0
            assert note in result.stderr
            assert why in result.stderr
    assert evaluate(*in_range, "-q").stderr == ""
    for columns, high in ((COLUMNS, 10), (POINTS, 10.5), (COLUMNS, 1)):  # not taken for points
        done(evaluate(*columns, "--range", 0, high))
    told = complaint(evaluate(*POINTS, "--values", "0..9"))
    assert "lie outside the axis of 10 values" in told


def planned(*options):
    told = done(plan(*options, "-o", "p.toml"))
    return fg.EvaluationPlan.load("p.toml"), " ".join(told.split())


@pytest.mark.parametrize("model", [["--privacy", "sa"], ["--epsilon", 1], [*LDP[:-1], 5]])
def test_range_of_a_plan(model):
    made, told = planned(*model, "--range", -8, 8)
    assert (made.axis.kind, made.axis.low, made.axis.high) == ("uniform", -8, 8)
    assert made.axis.outside == "clip"
    assert f"{made.axis.bins} bins of equal width on [-8, 8]" in told
    assert "--values" not in told
    if model[0] == "--epsilon":  # points, it may be
        _, told = planned(*model, "--range", 0, 100)
        assert "If scores are whole numbers: --values 0..100 counts each by itself" in told
        assert "wide join several" in told
        _, told = planned(*model, "--range", 0, 1)
        assert "--values" not in told


@pytest.mark.parametrize("model", [["--privacy", "sa"], ["--epsilon", 1]])
def test_bins_of_a_plan_and_axes_that_cannot_be_planned(model):
    made, told = planned(*model, "--bins", 48, "--axis", "logit")
    assert made.axis == fg.Axis.logit(48, outside="clip")
    assert "48 bins of equal width in log-odds" in told
    made, _ = planned(*model, "--bins", 40)
    assert made.axis == fg.Axis.uniform(40, outside="clip")
    made, _ = planned(*model, "--axis", "logit")
    assert made.axis.kind == "logit"
    assert "at least 1 bin" in complaint(plan(*model, "--bins", 0))
    assert "low < high" in complaint(plan(*model, "--range", 1, 0))
    assert "Drop --range" in complaint(plan(*model, "--axis", "logit", "--range", 0, 1))


@pytest.mark.parametrize("model", [["--privacy", "sa"], ["--epsilon", 1]])
def test_a_plan_is_rehearsed(model):
    made, _ = planned(*model, "--values", "0..10")
    told = done(evaluate(*POINTS, "--plan", "p.toml", "--json", "r.json"))
    assert "simulated: one process saw all the data" in told
    result = fg.Evaluation.from_json("r.json")
    assert result.plan == made
    assert result.privacy.claim == "simulated"


SAID = "--privacy sa; --epsilon 1; --delta 1e-6; --noise polya; --unit example; --max-per-unit 1; "
SAID += "--neighbours add-remove; --oracle oue; --examples 100; --positive-rate 0.2; --bins 8; "
SAID += "--tree 8; --axis uniform; --range 0 1; --values 0..10; --clip; --score-sums; --positive 1"


@pytest.mark.parametrize("said", SAID.split("; "))
def test_a_plan_says_it_all(said):
    Path("p.toml").write_text("")
    told = complaint(evaluate(*COLUMNS, "--plan", "p.toml", *said.split()))
    assert f"p.toml says it: leave out {said.split()[0]}, or --plan." in told


def test_a_rehearsal_needs_the_clients_and_subjects_of_the_plan():
    planned("--privacy", "sa")
    told = complaint(run("evaluate", "a.csv", *COLUMNS, "--plan", "p.toml"))
    assert "the plan needs 3 clients and 1 took part" in told
    assert "cohort" not in told
    planned("--epsilon", 1, "--unit", "subject", "--max-per-unit", 2)
    assert "--subject COLUMN" in complaint(evaluate(*COLUMNS, "--plan", "p.toml"))
    done(evaluate(*COLUMNS, "--plan", "p.toml", "--subject", "who"))


def test_separator_and_decimal():
    usual = done(evaluate(*COLUMNS))
    for separator, mark in ((r"\t", "\t"), ("tab", "\t"), (";", ";")):
        for name in FILES:
            pd.read_csv(name).to_csv(f"eu-{name}", sep=mark, decimal=",", index=False)
        written = ["--separator", separator, "--decimal", ","]
        assert done(run("evaluate", *(f"eu-{name}" for name in FILES), *COLUMNS, *written)) == usual
    told = complaint(run("evaluate", "eu-a.csv", *COLUMNS))
    assert "(--separator)" in told
    told = complaint(run("evaluate", "eu-a.csv", *COLUMNS, "--separator", ";"))
    assert "(--decimal)" in told
    done(run("plan", "--clients", 2, "--examples", 20_000, *LDP[:-1], 5, "-o", "l.toml"))
    done(run("encode", "l.toml", "eu-a.csv", *COLUMNS, *written, "-o", "eu.fgr"))
    done(run("encode", "l.toml", "a.csv", *COLUMNS, "-o", "a.fgr"))
    assert Path("eu.fgr").stat().st_size == Path("a.fgr").stat().st_size


MARGINS = ["--label", "y", "--score", "points"]
SKELLAM = ["--noise", "skellam", "--delta", 1e-6]


def test_bins_are_found_where_the_scale_is_not_known():
    told = done(run("evaluate", *FILES, *MARGINS, "--axis", "two-round", "--json", "r.json"))
    assert "bins found in a first round" in told
    assert fg.Evaluation.from_json("r.json").plan.found.two.bins == 1024
    assert "bins found in a first round" in run("show", "r.json").stdout
    noisy = done(run("evaluate", *FILES, *MARGINS, *DDP, "--axis", "two-round", "--bins", 20))
    assert "10% and 90% of epsilon in two rounds" in noisy
    assert "bins found" in done(run("evaluate", *FILES, *MARGINS, "--scores", "unknown"))


def test_a_plan_says_what_the_other_number_of_rounds_would_give():
    hints = ["--clients", 3, "--examples", 20_000]
    for scores, instead in (("margins", "one round of"), ("probabilities", "two rounds of")):
        told = done(run("plan", *hints, *DDP, "--scores", scores, "-o", f"{scores}.toml"))
        assert instead in told
        assert "times the ROC Area" in told
        assert ("found in the first" in told) == (scores == "margins")
    assert fg.EvaluationPlan.load("margins.toml").is_search
    assert "Two rounds" in run("explain", "margins.toml").stdout
    assert "found in a first" in done(run("evaluate", *FILES, *MARGINS, "--plan", "margins.toml"))
    refused = plan(*DDP, "--scores", "percent")
    assert refused.exit_code == 2
    assert "'percent' is not one of 'probabilities', 'margins', 'unknown'" in refused.stderr


FOUND, MARGIN = [*MARGINS, "--axis", "two-round"], ["--scores", "margins"]


def test_bins_that_are_both_found_and_said_are_refused():
    for command, told in (
        ([evaluate, *MARGINS], "--axis two-round finds it"),
        ([evaluate, *FOUND, "--range", 0, 10], "Leave out --range and --values"),
        ([evaluate, *MARGINS, *MARGIN, "--range", 0, 10], "--bins, --range and --values; or --s"),
        ([evaluate, *FOUND, *DDP, *SKELLAM], "Use --noise polya"),
        ([plan, *DDP, "--axis", "two-round"], "Use --scores margins, or"),
        ([plan, *DDP, *MARGIN, "--bins", 8], "; or --scores"),
        ([plan, *DDP, *MARGIN, "--want", 0.01], "or --scores"),
    ):
        command, *options = command
        assert told in complaint(command(*options))


def test_pairs_keep_their_order_lose_blanks_and_end_names_at_the_first_sign():
    pairs = read_pairs("--class-scores", "owl=p3, cat = p1")
    assert list(pairs.items()) == [("owl", "p3"), ("cat", "p1")]
    assert read_pairs("--label", "a=b=c") == {"a": "b=c"}
    assert read_lists("--group", ["age=<50,>=50"]) == {"age": ("<50", ">=50")}


def test_what_is_no_pair_list_or_column_is_refused():
    for read, option, text, told in (
        *(
            (read_pairs, "--class-scores", text, "takes pairs of a name and a column")
            for text in ("", "p1", "cat=", "=p1", "cat=p1,", "cat=p1,,dog=p2")
        ),
        *(
            (read_lists, "--group", [text], "takes a name and what belongs to it")
            for text in ("", "sex", "sex=", "=women", "sex=women,", "sex=,men")
        ),
        (read_pairs, "--class-scores", "cat=p1,cat=p2", "names 'cat' twice"),
        (read_lists, "--group", ["sex=women", "sex=men"], "names 'sex' twice"),
        (read_columns, "--group", ["sex=women,men"], "sex= takes one column, got 2"),
        (read_lists, "--model-score", ["p_new"], "such as new=p1"),
        (read_lists, "--group", ["sex"], "such as sex=women,men"),
        (read_lists, "--group", ["sex=women,"], "after commas, or put all of it in quotes"),
        (read_columns, "--group", ["sex"], "such as sex=COLUMN"),
    ):
        refused(fg.InputError, f"{option}.*{told}", read, option, text)


def test_explain_prints_the_sql_of_a_plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    axis = fg.Axis.uniform(2, outside="clip")
    fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3)).save("plan.toml")
    answer = run("explain", "plan.toml", "--sql", "select y, p from scores;", columns=400)
    assert answer.exit_code == 0
    assert answer.stdout.startswith("select case when c2 >= '0.0'::float8")
    assert answer.stdout.endswith(
        "(\nselect y, p from scores\n) as scores (c1, c2)\ngroup by 1, 2\n"
    )
    task = fg.BinaryTask(groups={"sex": ["f"]})
    fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3), task=task).save("groups.toml")
    for told, *more in (("reads rows", "groups.toml", "select 1"), ("a query", "plan.toml", " ")):
        answer = run("explain", more[0], "--sql", more[1])
        assert answer.exit_code == 2
        assert told in " ".join(answer.stderr.split())
