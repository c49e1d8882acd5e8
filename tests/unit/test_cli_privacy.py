"""Privacy on the command line: evaluate under ddp, plan, explain."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import complaint, done, run

import fedgauge as fg
from fedgauge.cli.plan import Want, answer, read_want, takes
from fedgauge.histograms.calibrator import Beta
from fedgauge.plan.explain import explain
from fedgauge.planner import Needs

COLUMNS = ["--client", "site", "--label", "y", "--score", "p"]
DDP = ["--privacy", "ddp", "--epsilon", 1]
HINTS = ["--clients", 8, "--examples", 4_000, "--positive-rate", 0.5]


pytestmark = pytest.mark.usefixtures("few_redraws")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(6)
    labels = rng.integers(0, 2, 4_000)
    scores = np.clip(rng.normal(0.4 + 0.2 * labels, 0.2), 0, 1)
    rows = np.arange(4_000)
    return pd.DataFrame(
        {"y": labels, "p": scores, "site": [f"s{i % 8}" for i in rows], "who": rows // 16}
    )


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, table):
    monkeypatch.chdir(tmp_path)
    table.to_parquet("scores.parquet")
    return tmp_path


def evaluate(*arguments):
    return run("evaluate", "scores.parquet", *COLUMNS, *arguments)


def load(*arguments):
    done(evaluate(*arguments, "--json", "r.json"))
    return fg.Evaluation.from_json("r.json")


def test_evaluate_prints_the_verdict_and_a_seed_repeats_it():
    columns = {"client": "site", "label": "y", "score": "p"}
    expected = fg.evaluate(
        fg.ScoreTable(["scores.parquet"], **columns), privacy=fg.DistributedDP(1.0), seed=3
    )
    told = done(evaluate(*DDP, "--seed", 3))
    assert told == f"{expected}\n"
    assert "epsilon 1" in told
    assert "simulated" in told
    assert done(evaluate(*DDP, "--seed", 3)) == told != done(evaluate(*DDP, "--seed", 2))
    first, second = (load(*DDP).record.slices for _ in range(2))  # without a seed
    assert first != second


def test_axis_and_tree_reach_the_plan():
    for options, bins, tree in (
        *((["--tree", tree], 128, (16, 8)) for tree in ("16x8", "16X8")),
        *((["--tree", "32"], 32, (32,)), (["--bins", 16], 16, (16,))),
        (["--bins", 16, "--tree", "4x4"], 16, (4, 4)),
        *((["--axis", "logit"], 64, (64,)), (["--range", 0.1, 0.9], 64, (64,)), ([], 64, (8, 8))),
    ):
        plan = load(*DDP, *options).plan
        assert (plan.axis.bins, plan.tree, plan.axis.outside) == (bins, tree, "clip")
        assert (plan.privacy, plan.cohort) == (fg.DistributedDP(1.0), fg.Cohort(8, 1))


PRIVACY = {
    "skellam": (
        ["--epsilon", 8, "--noise", "skellam", "--delta", 1e-6],
        fg.DistributedDP(8.0, delta=1e-6, noise="skellam"),
    ),
    "gaussian": (
        ["--epsilon", 1, "--noise", "discrete-gaussian", "--delta", 1e-6],
        fg.DistributedDP(1.0, delta=1e-6, noise="discrete-gaussian"),
    ),
    "replace": (
        ["--epsilon", 8, "--neighbours", "replace-one"],
        fg.DistributedDP(8.0, neighbours="replace-one"),
    ),
    "subject": (
        ["--epsilon", 8, "--unit", "subject", "--subject", "who", "--max-per-unit", 2],
        fg.DistributedDP(8.0, unit="subject", max_per_unit=2),
    ),
    "client": (
        ["--epsilon", 8, "--unit", "client", "--max-per-unit", 10],
        fg.DistributedDP(8.0, unit="client", max_per_unit=10),
    ),
}


@pytest.mark.parametrize(("options", "expected"), PRIVACY.values(), ids=PRIVACY.keys())
def test_privacy_options_reach_the_plan(options, expected):
    loaded = load("--privacy", "ddp", "--tree", 8, "--seed", 1, *options)
    assert loaded.plan.privacy == expected
    assert loaded.privacy.unit == expected.unit


def test_hints_reach_the_planner():
    loaded = load(*DDP, "--examples", 4_000, "--positive-rate", 0.5)
    expected = fg.planner.propose(
        privacy=fg.DistributedDP(1.0), clients=8, examples=4_000, positive_rate=0.5
    )
    assert loaded.plan == expected
    assert loaded.privacy.public_inputs == ("examples 4000", "positive_rate 0.5")


@pytest.mark.parametrize("kind", ["aligned", "quantile", "range"])
def test_estimators(kind):
    assert done(evaluate(*DDP, "--estimator", kind, "--seed", 1)).startswith("8 clients, about ")
    if kind != "aligned":
        line = complaint(evaluate(*DDP, "--estimator", kind, "--no-shrink"))
        assert f"--estimator {kind} shrinks no counts. Leave it out." in line


def test_values_can_be_read_from_counts_as_noise_left_them():
    likely = done(evaluate(*DDP, "--seed", 1, "--json", "likely.json"))
    bare = done(evaluate(*DDP, "--seed", 1, "--no-shrink", "--json", "bare.json"))
    assert "docs/shrinkage.md" in likely
    assert "docs/shrinkage.md" not in bare
    told = {name: fg.Evaluation.from_json(f"{name}.json") for name in ("likely", "bare")}
    assert told["bare"].estimator == fg.Aligned(shrink=False)
    assert told["likely"].roc_auc.unshrunk == told["bare"].roc_auc
    assert told["likely"].roc_auc.value != told["bare"].roc_auc.value
    shown = done(run("show", "likely.json", "--no-shrink"))
    assert f"ROC AUC            {told['bare'].roc_auc}" in shown
    assert "read by            Aligned(interpolation='pchip', shrink=False)" in shown
    assert "Leave it out" in complaint(run("show", "bare.json", "--no-shrink"))


def test_scores_in_percent_are_cautioned_also_where_quiet(table):
    table.assign(p=100 * table.p).to_parquet("scores.parquet")
    asked = [*DDP, "--seed", 1, "--json", "r.json"]
    printed = done(evaluate(*asked))
    assert "\ncaution            the last bin of the axis" in printed
    assert done(run("show", "r.json")).splitlines()[:7] == printed.splitlines()[:7]
    for told in (evaluate(*asked, "-q"), run("show", "r.json", "-q")):
        assert (told.exit_code, told.stdout) == (0, "")
        assert told.stderr.startswith("fedgauge: warning: the last bin of the axis")
        assert told.stderr.count("\n") == 1


def test_precision_of_nobody_is_undefined_and_the_table_says_why(table):
    table.assign(p=table.p / 2).to_parquet("scores.parquet")
    printed = done(evaluate(*DDP, "--seed", 1, "--at", 0.99))
    assert re.search(r"^precision +undefined$", printed, re.M)
    assert "undefined: noise hides the count that it divides by." in printed


BAD_EVALUATE = {
    "no epsilon": (["--privacy", "ddp"], "--privacy ddp needs --epsilon", "--epsilon 1"),
    "no epsilon of reports": (["--privacy", "ldp"], "--privacy ldp needs --epsilon", ""),
    "epsilon nan": (["--privacy", "ddp", "--epsilon", "nan"], "epsilon must be a positive", ""),
    "delta with polya": ([*DDP, "--delta", 1e-6], "takes no delta", "--noise skellam"),
    "no delta": ([*DDP, "--noise", "skellam"], "needs a delta", "1e-6"),
    "delta 1": ([*DDP, "--noise", "skellam", "--delta", 1], "needs a delta between 0 and 1", ""),
    "words for a tree": ([*DDP, "--tree", "deep"], "written like 16x16", "16x16"),
    "half a tree": ([*DDP, "--tree", "16x"], "written like 16x16", "16x16"),
    "no subjects": ([*DDP, "--unit", "subject"], "id of its subject", "--subject COLUMN"),
    "no signal": (["--privacy", "ddp", "--epsilon", 0.005], "no signal", "Use a larger epsilon"),
}


@pytest.mark.parametrize(
    ("options", "what", "remedy"), BAD_EVALUATE.values(), ids=BAD_EVALUATE.keys()
)
def test_bad_options_are_told_in_one_line(options, what, remedy):
    told = complaint(evaluate(*options))
    assert what in told
    assert remedy in told


def test_one_client_is_told_to_add_clients_and_unknown_choices_are_refused():
    told = complaint(run("evaluate", "scores.parquet", *COLUMNS[2:], *DDP))
    assert "1 of 1 clients" in told
    assert "min_survivors" not in told
    for options in (["--privacy", "xdp"], ["--noise", "laplace"], ["--unit", "x"]):
        assert evaluate(*DDP, *options).exit_code == 2


def test_score_sums_reach_the_result_and_the_plan(needs):
    for options, privacy in ((["--clip"], fg.SecureAggregation()), (DDP, fg.DistributedDP(1.0))):
        loaded = load(*options, "--score-sums", "--bins", 16)
        assert loaded.plan.privacy == privacy
        assert loaded.plan.final.sum_steps == 256
        assert loaded.released.sums.shape == (2, 16)
        assert load(*options, "--bins", 16).plan.final.sum_steps == 0
    told_by("--epsilon", 1, "--score-sums", "--want", 0.01, "-o", "p.toml")
    plan = fg.EvaluationPlan.load("p.toml")
    assert plan.final.sum_steps == 256
    assert sum(plan.final.noise) + plan.final.sums.noise == pytest.approx(1.0)
    ((_, kwargs),) = needs
    assert kwargs["score_sums"] is True


def test_score_sums_that_cannot_be_are_told_with_the_remedy():
    skellam = [*DDP, "--noise", "skellam", "--delta", 1e-6]
    weak = ["--privacy", "ddp", "--epsilon", 0.2]
    for options, remedy in ((skellam, "Use --noise polya"), (weak, "Raise epsilon")):
        for refused in (evaluate, lambda *options: run("plan", *HINTS, *options)):
            told = complaint(refused(*options, "--score-sums"))
            assert f"{remedy}, or leave out --score-sums" in told


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_saved_plan_loads_and_matches(ending):
    told = done(run("plan", *HINTS, "--epsilon", 1, "-o", f"p.{ending}"))
    loaded = fg.EvaluationPlan.load(f"p.{ending}")
    expected = fg.planner.propose(
        privacy=fg.DistributedDP(1.0),
        clients=8,
        cohort=fg.Cohort(6),
        examples=4_000,
        positive_rate=0.5,
    )
    assert loaded == expected
    assert f"Saved p.{ending}" in told
    rows = " ".join(told.split())
    assert "about 4,000 examples, 0.5 of them positive" in rows
    assert f"{expected.axis.bins} bins" in rows
    assert f"{expected.predicted.roc_area_error:.1e} expected" in rows
    assert f"{expected.predicted.pr_area_error:.1e} expected" in rows
    assert f"{expected.predicted.roc_auc_error:.1e} expected" in rows
    for low, high in zip(*expected.predicted.span, strict=True):
        assert f"{low:.1e} to {high:.1e} depending on the score distribution" in rows
    assert f"{expected.bytes_per_client:,} bytes" in rows
    assert expected.digest[:8] in rows
    assert "[0, 1]" in rows


def test_plan_states_its_defaults_and_takes_options():
    rows = " ".join(done(run("plan", "--clients", 8, "--privacy", "sa")).split())
    assert "about 30,000 examples, 0.2 of them positive" in rows
    assert "64 bins of equal width on [0, 1]" in rows
    assert "Shown bins merged until each holds 0 or at least 10 " in rows
    assert "1,024 bytes" in rows
    assert "Shown" not in done(run("plan", "--clients", 8, "--privacy", "sa", "--min-cell", 0))
    options = ["--privacy", "sa", "--max-colluding", 3, "--positive", "yes", "--min-cell", 25]
    assert done(run("plan", "--clients", 8, *options, "-q", "-o", "p.json")) == ""
    loaded = fg.EvaluationPlan.load("p.json")
    assert loaded.cohort == fg.Cohort(8, 3)
    assert loaded.task == fg.BinaryTask("yes")
    assert loaded.privacy == fg.SecureAggregation()
    assert loaded.min_cell == 25
    assert loaded.not_after is None


def test_a_plan_that_expires():
    for moment in ("2026-12-31", "2026-12-31T23:59:59Z"):
        told = told_by("--epsilon", 1, "--not-after", moment, "-o", "p.toml")
        assert "Not after 2026-12-31T23:59:59Z " in " ".join(told.split())
        assert "ROC Area Error" in told
        assert fg.EvaluationPlan.load("p.toml").not_after == "2026-12-31T23:59:59Z"
    assert "Not after" not in told_by("--epsilon", 1)


@pytest.mark.parametrize(
    ("options", "survivors", "told"),
    [
        (["--clients", 3, "--epsilon", 1], 3, "all 3 clients: if one is late, all wait"),
        (["--clients", 4, "--epsilon", 1], 3, "3 of 4 clients"),
        (["--clients", 9, "--epsilon", 1], 7, "7 of 9 clients"),
        (["--clients", 4, "--epsilon", 1, "--max-colluding", 2], 4, "all 4 clients"),
        (["--clients", 9, "--epsilon", 1, "--min-survivors", 9], 9, "all 9 clients"),
        (["--clients", 9, "--privacy", "sa"], 9, "all 9 clients"),
    ],
)
def test_with_noise_a_quarter_of_the_clients_may_be_missing(options, survivors, told):
    rows = " ".join(done(run("plan", *options, "-o", "late.toml")).split())
    assert f"Who is needed {told}" in rows
    assert fg.EvaluationPlan.load("late.toml").cohort.min_survivors == survivors


def test_wanted_error_is_for_this_cohort(needs):
    """More colluders, more noise, a larger epsilon."""
    for want, enough in ((0.4, "yes"), (1e-5, "no")):
        cohort = ["--max-colluding", 4, "--min-survivors", 8]
        told = told_by("--epsilon", 1, *cohort, "--want", want)
        assert f"Enough for a ROC Area Error of {want:g}? {enough}: it takes epsilon 0.35 " in told
        assert "about 120,000 examples" in told
        args, kwargs = needs.pop()
        assert args == (want,)
        assert (kwargs["privacy"], kwargs["cohort"]) == (fg.DistributedDP(1.0), fg.Cohort(8, 4))
        known = (kwargs["clients"], kwargs["examples"], kwargs["positive_rate"])
        assert known == (8, 4_000, 0.5)


BAD_PLAN = {
    "no epsilon": (["--clients", 8], "--privacy ddp needs --epsilon"),
    "no clients": (["--clients", 0, "--epsilon", 1], "at least 1"),
    "one client": (["--clients", 1, "--epsilon", 1], "1 of 1 clients collude"),
    "all collude": (["--clients", 3, "--epsilon", 1, "--max-colluding", 3], "3 of 3 clients"),
    "examples": (["--clients", 8, "--epsilon", 1, "--examples", 1], "examples must be"),
    "rate": (["--clients", 8, "--epsilon", 1, "--positive-rate", 0], "--positive-rate must"),
    "want": (["--clients", 8, "--privacy", "sa", "--want", 0.01], "--want needs --privacy ddp"),
    "want 0": ([*HINTS, "--epsilon", 1, "--want", 0], "a wanted error lies between"),
    "ending": (["--clients", 8, "--privacy", "sa", "-o", "p.txt"], "ends in .json or .toml"),
}


@pytest.mark.parametrize(("options", "told"), BAD_PLAN.values(), ids=BAD_PLAN.keys())
def test_bad_plans_are_told_in_one_line(options, told):
    assert told in complaint(run("plan", *options))
    assert not Path("p.txt").exists()


def test_plans_in_folders_that_are_none_or_are_in_their_place(folder):
    (folder / "taken.toml").mkdir()
    for out in ("nowhere/p.toml", "taken.toml"):
        result = run("plan", "--clients", 8, "--privacy", "sa", "-o", out)
        assert result.exit_code in (1, 2)
        assert out in complaint(result, code=result.exit_code)
    assert "taken.toml is a folder. Name a plan" in complaint(run("explain", "taken.toml"))


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_explain(ending):
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(32, outside="clip"), fg.Cohort(8), privacy=fg.DistributedDP(0.5)
    )
    plan.save(f"p.{ending}")
    assert done(run("explain", f"p.{ending}")) == f"{explain(plan)}\n"


def examples_of(command):
    text = run(command, "--help").stdout
    lines = re.findall(rf"fedgauge {command} [^│\n]*", text)
    return [shlex.split(line)[1:] for line in lines if "[OPTIONS]" not in line]


def test_examples_of_the_help_run(table, needs):
    table.to_parquet("s.parquet")
    fg.Calibrator("platt", Beta(0.8, 0.8, -0.1)).to_json("map.json")
    examples = [*examples_of("plan"), *examples_of("explain")[:1]]
    examples += [e for e in examples_of("evaluate") if "ddp" in e]
    assert len(examples) == 15
    for arguments in examples:
        told = done(run(*arguments))
        assert told
    assert fg.EvaluationPlan.load("plan.toml").cohort.min_survivors == 30
    assert len(needs) == 3


def test_settings_that_protect_little_are_warned_of():
    weak = "--epsilon 1 --noise skellam --delta 0.01 --examples 4000 --tree 8"
    for options in ("--epsilon 50", weak):
        with pytest.warns(fg.PrivacyWarning):
            assert evaluate("--privacy", "ddp", *options.split()).exit_code == 0


ECE = "expected_calibration_error"


def test_wishes():
    for text, want in (
        ("0.001", Want(0.001, "roc_area_error", None)),
        ("1e-3", Want(0.001, "roc_area_error", None)),
        ("roc=0.001", Want(0.001, "roc_area_error", None)),
        ("recall@0.5=0.02", Want(0.02, "recall", 0.5)),
        ("recall@-2=0.02", Want(0.02, "recall", -2.0)),
        (" Recall @ 0.5 = 0.02 ", Want(0.02, "recall", 0.5)),
        ("balanced-accuracy@.3=.01", Want(0.01, "balanced_accuracy", 0.3)),
        ("NPV@0.5=0.02", Want(0.02, "npv", 0.5)),
        ("ece=0.01", Want(0.01, ECE, None)),
        (f"{ECE}=0.01", Want(0.01, ECE, None)),
    ):
        assert read_want(text) == want


def told_by(*options):
    return done(run("plan", *HINTS, *options))


@pytest.mark.parametrize("model", [["--epsilon", 1], ["--privacy", "ldp", "--epsilon", 5]])
def test_a_metric_at_a_threshold(needs, model, tmp_path):
    path = tmp_path / "p.toml"
    told = told_by(*model, "--want", "recall@0.29=0.02", "-o", path)
    assert (
        "Enough to know the recall at 0.29 within 0.02? no, within 0.05: it takes epsilon 0.35 "
        "with these examples, or about 120,000 examples with this epsilon." in told
    )
    assert 0.29 in fg.EvaluationPlan.load(path).axis.edges
    (((within,), asked),) = needs
    assert (within, asked["metric"], asked["at"]) == (0.02, "recall", 0.29)
    assert asked["privacy"].epsilon == float(model[-1])


def test_a_real_answer_without_noise():
    told = told_by("--privacy", "sa", "--want", "recall@0.5=0.02")
    known = {"clients": 8, "examples": 4_000, "positive_rate": 0.5}
    needed = fg.planner.needs(
        0.02, metric="recall", at=0.5, privacy=fg.SecureAggregation(), **known
    )
    assert f"it takes about {int(float(f'{needed.examples:.2g}')):,} examples.\n" in told


def test_calibration(needs):
    told = told_by("--privacy", "sa", "--min-cell", 5, "--want", "ece=0.1")
    assert "to know the expected calibration error within 0.1? yes, within 0.05: it takes" in told
    (((within,), asked),) = needs
    assert (within, asked["metric"], asked["at"]) == (0.1, ECE, None)
    assert asked["min_cell"] == 5


def test_answers_in_words():
    for epsilon, examples, noisy, words in (
        (None, 1_234, False, "it takes about 1,200 examples."),
        (None, None, False, "no number of examples is enough with such bins."),
        (None, None, True, "no epsilon and no number of examples is enough with such bins."),
        (
            0.5,
            None,
            True,
            "it takes epsilon 0.5 with these examples; more examples alone are not enough.",
        ),
        (
            None,
            1_234,
            True,
            "no epsilon that still protects anybody is enough with these examples; "
            "it takes about 1,200 "
            "examples with this epsilon.",
        ),
    ):
        assert takes(Needs(epsilon, examples, 0.1), noisy=noisy) == words


def test_answers_that_are_just_about_enough_or_rough_say_so():
    want = Want(0.01, ECE, None)
    for expected in (0.0095, 0.0105):
        told = answer(want, Needs(1.0, 4_000, expected), noisy=True)
        assert told == "Enough to know the expected calibration error within 0.01? just about."
    told = answer(want, Needs(1.0, 4_000, 0.1, "intervals differ 5-fold"), noisy=True)
    assert told.endswith("with this epsilon. A rough answer: intervals differ 5-fold.")
