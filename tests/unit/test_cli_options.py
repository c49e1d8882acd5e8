"""Options of evaluate and plan: what does nothing, overwrites or counts twice is refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import complaint, run
from sklearn.metrics import average_precision_score, roc_auc_score

import fedgauge as fg
from fedgauge.cli.options import read_columns, read_lists, read_pairs
from fedgauge.plan.prediction import PredictedErrors, Prediction
from fedgauge.plots.figures import NAMES

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
    """A working folder with the rows of three clients."""
    monkeypatch.chdir(tmp_path)
    for name, part in zip(FILES, np.array_split(np.arange(len(rows)), 3), strict=True):
        rows.iloc[part].to_csv(name, index=False)
    return tmp_path


@pytest.fixture
def needs(monkeypatch):
    """What was asked of `planner.needs`, which takes many seconds, and a made-up answer."""
    asked = []

    def answer(*args, **kwargs):
        asked.append((args, kwargs))
        return fg.planner.Needs(epsilon=1.234, examples=3_972, expected=0.05)

    monkeypatch.setattr("fedgauge.planner.needs", answer)
    return asked


def done(result):
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


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
@pytest.mark.parametrize(
    ("model", "idle", "remedy"),
    [
        *((["--privacy", "sa"], idle, "--privacy ddp") for idle in IDLE.values()),
        *((LDP, IDLE[name], "--privacy ddp") for name in ("noise", "unit", "neighbours", "cap")),
        (LDP, IDLE["delta"], "--privacy ddp"),
        (DDP, IDLE["oracle"], "--privacy ldp"),
    ],
)
def test_what_a_model_has_no_use_for_is_refused(command, model, idle, remedy):
    """Also where it is given with its default: who asks for noise believes to get it."""
    told = complaint(command(*model, *idle))
    assert f"{idle[0]} would do nothing under --privacy {model[1]}" in told
    assert remedy in told


def test_all_that_is_idle_is_named():
    told = complaint(evaluate(*COLUMNS, "--unit", "client", "--noise", "skellam"))
    assert "--noise, --unit would do nothing" in told


@pytest.mark.parametrize("option", ["--min-survivors", "--max-colluding"])
def test_reports_need_nobody_else(option):
    assert f"{option} would do nothing" in complaint(plan(*LDP, option, 2))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--examples", 100], "--examples would do nothing"),
        (["--positive-rate", 0.1], "--positive-rate would do nothing"),
        (["--tree", "16x16"], "--tree would do nothing"),
        ([*DDP, "--bins", 16, "--positive-rate", 0.1], "--positive-rate would do nothing"),
        (["--subject", "who"], "--subject needs --privacy ddp --unit subject"),
        ([*DDP, "--subject", "who"], "--subject needs --privacy ddp --unit subject"),
    ],
)
def test_hints_and_columns_that_change_nothing_are_refused(options, told):
    assert told in complaint(evaluate(*COLUMNS, *options))


@pytest.mark.parametrize("model", [["--epsilon", 1], ["--privacy", "sa"]])
def test_more_survivors_than_clients_are_refused(model):
    told = complaint(run("plan", "--clients", 3, "--min-survivors", 4, *model, "-o", "p.toml"))
    assert "--min-survivors must be at most --clients: 4 of 3" in told
    assert not Path("p.toml").exists()
    assert run("plan", "--clients", 3, "--min-survivors", 3, *model).exit_code == 0


def test_survivors_in_the_library():
    options = {"privacy": fg.DistributedDP(1.0), "clients": 3, "cohort": fg.Cohort(4)}
    for call in (fg.planner.propose, lambda **rest: fg.planner.needs(0.01, **rest)):
        with pytest.raises(fg.PlanError, match="min_survivors must be at most clients"):
            call(**options)


def test_a_useless_plan_says_what_would_be_enough(needs):
    options = ["--examples", 300, "--epsilon", 0.1, "--max-colluding", 1, "-o", "p.toml"]
    result = run("plan", "--clients", 3, *options)
    assert result.exit_code == 0
    assert Path("p.toml").exists()
    assert result.stderr.startswith(
        "fedgauge: warning: in about 100% of such evaluations noise hides a class, and nothing is "
        "told at all. For an expected error of 0.02 it takes"
    )
    assert "epsilon 1.2 with these examples, or about 4,000 examples" in result.stderr
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


def test_what_is_said_to_be_enough_is():
    """The AUC error that a plan with the epsilon named predicts is not one to be warned of."""
    known = {"clients": 3, "examples": 300}
    needed = fg.planner.needs(0.02, privacy=fg.DistributedDP(0.1), **known)
    enough = fg.planner.propose(privacy=fg.DistributedDP(needed.epsilon), **known)
    assert enough.predicted.roc_auc_error < 0.02


def test_a_useless_plan_of_reports_says_what_would_be_enough(needs):
    told = run("plan", "--clients", 3, "--examples", 14_000, *LDP).stderr
    expected = fg.planner.propose(privacy=fg.LocalDP(1.0), clients=3, examples=14_000).predicted
    assert f"the AUC is expected to be off by {expected.roc_auc_error:.2g}" in told
    words = "of little use. For an expected error of 0.02 it takes epsilon 1.2 with these examples"
    assert words in told
    (((wanted,), asked),) = needs
    assert (wanted, asked["privacy"]) == (0.02, fg.LocalDP(1.0))


def test_what_would_be_enough_without_noise(needs):
    told = run("plan", "--clients", 3, "--examples", 100, "--privacy", "sa").stderr
    assert "of little use" in told
    assert "more examples, more bins or a smaller --min-cell" in told
    assert not needs


def test_where_needs_has_no_answer_words_stay(monkeypatch):
    def refuse(*_, **__):
        raise fg.PlanError("no")

    monkeypatch.setattr("fedgauge.planner.needs", refuse)
    told = run("plan", "--clients", 3, "--examples", 300, "--epsilon", 0.1, "-q").stderr
    assert "It takes more examples or a larger --epsilon" in told


def test_a_file_counts_once(folder):
    told = complaint(run("evaluate", "a.csv", "a.csv", *COLUMNS))
    assert "a.csv is given twice" in told
    (folder / "link.csv").symlink_to("a.csv")
    told = complaint(run("evaluate", "a.csv", "link.csv", *COLUMNS))
    assert "link.csv is the same file as a.csv" in told
    told = complaint(run("evaluate", "a.csv", "b.csv", "./a.csv", *COLUMNS))
    assert "a.csv is given twice" in told
    told = complaint(run("evaluate", "a.csv", folder / "a.csv", *COLUMNS, "--client", "who"))
    assert "is the same file as a.csv" in told


def test_json_replaces_results_alone():
    before = Path("a.csv").read_bytes()
    told = complaint(evaluate(*COLUMNS, "--json", "a.csv"))
    assert "a.csv exists and is no result of fedgauge" in told
    assert "--json" in told
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


@pytest.mark.parametrize("name", NAMES)
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


def test_intake_replaces_results_alone():
    done(
        run(
            "plan",
            "--clients",
            2,
            "--examples",
            20_000,
            "--privacy",
            "ldp",
            "--epsilon",
            5,
            "-o",
            "l.toml",
        )
    )
    done(run("encode", "l.toml", "a.csv", *COLUMNS, "-o", "a.fgr"))
    told = complaint(run("intake", "l.toml", "a.fgr", "--json", "a.csv"))
    assert "a.csv exists and is no result" in told
    assert not Path("intake").exists()


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


def test_values_below_nought():
    made, _ = planned("--privacy", "sa", "--values", "-2..2")
    assert made.axis == fg.Axis.from_values(range(-2, 3))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ("0..x", "written like 0..10 or 0,0.5,1"),
        ("", "written like"),
        ("0..", "written like"),
        ("0,,1", "written like"),
        ("5..1", "must go up"),
        ("0..9999999", "at most 262,144"),
        ("0,nan", "finite"),
    ],
)
@pytest.mark.parametrize(
    "command", [lambda *o: plan("--privacy", "sa", *o), lambda *o: evaluate(*POINTS, *o)]
)
def test_values_that_are_none(command, values, told):
    assert told in complaint(command("--values", values))


@pytest.mark.parametrize("other", [["--bins", 4], ["--axis", "uniform"], ["--range", 0, 10]])
@pytest.mark.parametrize(
    "command", [lambda *o: plan("--privacy", "sa", *o), lambda *o: evaluate(*POINTS, *o)]
)
def test_values_are_all_there_is_to_say_of_bins(command, other):
    told = complaint(command("--values", "0..10", *other))
    assert "Leave out --bins, --axis and --range" in told


def test_a_score_that_is_not_listed_is_refused():
    told = complaint(evaluate(*POINTS, "--values", "0..9"))
    assert "lie outside the axis of 10 values" in told


NOTE = "fedgauge: note: the scores are whole numbers: --values 0..10 counts each by itself"


@pytest.mark.parametrize(
    ("bins", "why"), [([], "spread them out"), (["--bins", 4], "2.5 wide join several")]
)
def test_whole_numbers_in_a_range_are_noticed(bins, why):
    for result in (
        evaluate(*POINTS, "--range", 0, 10, *bins),
        evaluate(*POINTS, "--range", 0, 10, *bins, "--client", "who"),
    ):
        assert result.exit_code == 0
        assert NOTE in result.stderr
        assert why in result.stderr
    assert evaluate(*POINTS, "--range", 0, 10, "-q").stderr == ""


@pytest.mark.parametrize(
    "options",
    [[*COLUMNS, "--range", 0, 10], [*POINTS, "--range", 0, 10.5], [*COLUMNS, "--range", 0, 1]],
    ids=["other scores", "other range", "probabilities"],
)
def test_other_scores_are_not_taken_for_points(options):
    done(evaluate(*options))


def planned(*options):
    told = done(plan(*options, "-o", "p.toml"))
    return fg.EvaluationPlan.load("p.toml"), " ".join(told.split())


@pytest.mark.parametrize(
    "model", [["--privacy", "sa"], ["--epsilon", 1], ["--privacy", "ldp", "--epsilon", 5]]
)
def test_range_of_a_plan(model):
    made, told = planned(*model, "--range", -8, 8)
    assert (made.axis.kind, made.axis.low, made.axis.high) == ("uniform", -8, 8)
    assert made.axis.outside == "clip"
    assert f"{made.axis.bins} bins of equal width on [-8, 8]" in told
    assert "--values" not in told


@pytest.mark.parametrize("model", [["--privacy", "sa"], ["--epsilon", 1]])
def test_bins_of_a_plan(model):
    made, told = planned(*model, "--bins", 48, "--axis", "logit")
    assert made.axis == fg.Axis.logit(48, outside="clip")
    assert "48 bins of equal width in log-odds" in told
    made, _ = planned(*model, "--bins", 40)
    assert made.axis == fg.Axis.uniform(40, outside="clip")
    made, _ = planned(*model, "--axis", "logit")
    assert made.axis.kind == "logit"


def test_values_of_a_plan():
    made, told = planned("--privacy", "sa", "--values", "0..10")
    assert made.axis == fg.Axis.from_values(range(11))
    assert "11 known values on [0, 10], each a bin of its own" in told
    made, _ = planned("--epsilon", 1, "--values", "0..10")
    assert made.axis == fg.Axis.from_values(range(11), outside="clip")


def test_a_range_of_points_is_asked_about():
    _, told = planned("--epsilon", 1, "--range", 0, 100)
    assert "If scores are whole numbers: --values 0..100 counts each by itself" in told
    assert "wide join several" in told
    _, told = planned("--epsilon", 1, "--range", 0, 1)
    assert "--values" not in told


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--bins", 0], "at least 1 bin"),
        (["--range", 1, 0], "low < high"),
        (["--axis", "logit", "--range", 0, 1], "Drop --range"),
    ],
)
@pytest.mark.parametrize("model", [["--privacy", "sa"], ["--epsilon", 1]])
def test_axes_that_cannot_be_planned(model, options, told):
    assert told in complaint(plan(*model, *options))


def test_wants_are_of_the_axis_asked_for(needs):
    done(plan("--epsilon", 1, "--values", "0..10", "--want", 0.01))
    ((_, asked),) = needs
    assert asked["axis"] == fg.Axis.from_values(range(11), outside="clip")


@pytest.mark.parametrize("model", [["--privacy", "sa"], ["--epsilon", 1]])
def test_a_plan_is_rehearsed(model):
    made, _ = planned(*model, "--values", "0..10")
    told = done(evaluate(*POINTS, "--plan", "p.toml", "--json", "r.json"))
    assert "simulated in one process, nothing was protected" in told
    result = fg.Evaluation.from_json("r.json")
    assert result.plan == made
    assert result.privacy.claim == "simulated"


@pytest.mark.parametrize(
    "said",
    [
        ["--privacy", "sa"],
        ["--epsilon", 1],
        ["--delta", 1e-6],
        ["--noise", "polya"],
        ["--unit", "example"],
        ["--neighbours", "add-remove"],
        ["--max-per-unit", 1],
        ["--oracle", "oue"],
        ["--examples", 100],
        ["--positive-rate", 0.2],
        ["--bins", 8],
        ["--tree", "8"],
        ["--axis", "uniform"],
        ["--range", 0, 1],
        ["--values", "0..10"],
        ["--clip"],
        ["--score-sums"],
        ["--positive", "1"],
    ],
    ids=lambda said: said[0],
)
def test_a_plan_says_it_all(said):
    Path("p.toml").write_text("")
    told = complaint(evaluate(*COLUMNS, "--plan", "p.toml", *said))
    assert f"p.toml says it: leave out {said[0]}, or --plan." in told


def test_a_rehearsal_needs_the_clients_of_the_plan():
    planned("--privacy", "sa")
    told = complaint(run("evaluate", "a.csv", *COLUMNS, "--plan", "p.toml"))
    assert "the plan needs 3 clients and 1 took part" in told
    assert "cohort" not in told


def test_a_rehearsal_takes_subjects_where_the_plan_protects_them():
    planned("--epsilon", 1, "--unit", "subject", "--max-per-unit", 2)
    assert "--subject COLUMN" in complaint(evaluate(*COLUMNS, "--plan", "p.toml"))
    done(evaluate(*COLUMNS, "--plan", "p.toml", "--subject", "who"))


@pytest.mark.parametrize("separator", [";", r"\t", "tab"])
def test_separator_and_decimal(separator):
    mark = ";" if separator == ";" else "\t"
    for name in FILES:
        pd.read_csv(name).to_csv(f"eu-{name}", sep=mark, decimal=",", index=False)
    written = ["--separator", separator, "--decimal", ","]
    files = [f"eu-{name}" for name in FILES]
    usual = done(evaluate(*COLUMNS))
    assert done(run("evaluate", *files, *COLUMNS, *written)) == usual


def test_remedies_for_text_files_are_options():
    Path("x.csv").write_text("y;p\n0;0,5\n")
    told = complaint(run("evaluate", "x.csv", *COLUMNS))
    assert "(--separator)" in told
    told = complaint(run("evaluate", "x.csv", *COLUMNS, "--separator", ";"))
    assert "(--decimal)" in told


def test_encode_reads_such_files():
    done(
        run(
            "plan",
            "--clients",
            2,
            "--examples",
            20_000,
            "--privacy",
            "ldp",
            "--epsilon",
            5,
            "-o",
            "l.toml",
        )
    )
    pd.read_csv("a.csv").to_csv("eu.csv", sep=";", decimal=",", index=False)
    written = ["--separator", ";", "--decimal", ","]
    done(run("encode", "l.toml", "eu.csv", *COLUMNS, *written, "-o", "eu.fgr"))
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


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["evaluate", *FILES, *MARGINS], "--axis two-round finds it"),
        (
            ["evaluate", *FILES, *MARGINS, "--axis", "two-round", "--range", 0, 10],
            "Leave out --range and --values",
        ),
        (
            ["evaluate", *FILES, *MARGINS, "--scores", "margins", "--range", 0, 10],
            "Leave out --axis, --bins, --range and --values; or --scores",
        ),
        (
            [*["evaluate", *FILES, *MARGINS, *DDP, "--axis", "two-round"], *SKELLAM],
            "Use --noise polya",
        ),
        (["plan", "--clients", 3, *DDP, "--axis", "two-round"], "Use --scores margins, or"),
        (["plan", "--clients", 3, *DDP, "--scores", "margins", "--bins", 8], "; or --scores"),
        (["plan", "--clients", 3, *DDP, "--scores", "margins", "--want", 0.01], "or --scores"),
    ],
)
def test_bins_that_are_both_found_and_said_are_refused(command, told):
    assert told in complaint(run(*command))


def test_what_says_nothing_about_scores_is_refused():
    refused = run("plan", "--clients", 3, *DDP, "--scores", "percent")
    assert refused.exit_code == 2
    assert "'percent' is not one of 'probabilities', 'margins', 'unknown'" in refused.stderr


def test_pairs_keep_their_order_and_lose_blanks():
    assert list(read_pairs("--class-scores", "owl=p3, cat = p1").items()) == [
        ("owl", "p3"),
        ("cat", "p1"),
    ]


def test_the_first_sign_ends_a_name():
    assert read_pairs("--label", "a=b=c") == {"a": "b=c"}
    assert read_lists("--group", ["age=<50,>=50"]) == {"age": ("<50", ">=50")}


@pytest.mark.parametrize("text", ["", "p1", "cat=", "=p1", "cat=p1,", "cat=p1,,dog=p2"])
def test_what_is_no_pair_is_refused(text):
    with pytest.raises(fg.InputError, match="--class-scores takes pairs of a name and a column"):
        read_pairs("--class-scores", text)


@pytest.mark.parametrize("text", ["", "sex", "sex=", "=women", "sex=women,", "sex=,men"])
def test_what_is_no_list_is_refused(text):
    with pytest.raises(fg.InputError, match="--group takes a name and what belongs to it"):
        read_lists("--group", [text])


def test_a_name_twice_is_refused():
    with pytest.raises(fg.InputError, match="--class-scores names 'cat' twice"):
        read_pairs("--class-scores", "cat=p1,cat=p2")
    with pytest.raises(fg.InputError, match="--group names 'sex' twice"):
        read_lists("--group", ["sex=women", "sex=men"])


def test_values_where_a_column_is_wanted_are_refused():
    with pytest.raises(fg.InputError, match="--group sex= takes one column, got 2"):
        read_columns("--group", ["sex=women,men"])


@pytest.mark.parametrize(
    ("option", "text", "remedy"),
    [
        ("--model-score", "p_new", "such as new=p1"),
        ("--group", "sex", "such as sex=women,men"),
        ("--group", "sex=women,", "Leave out blanks after commas, or put all of it in quotes"),
    ],
)
def test_what_is_no_list_is_told_what_is(option, text, remedy):
    with pytest.raises(fg.InputError, match=remedy):
        read_lists(option, [text])


def test_under_a_plan_a_group_is_told_its_column():
    with pytest.raises(fg.InputError, match="such as sex=COLUMN"):
        read_columns("--group", ["sex"])
