"""`fedgauge vertical`: files in, a result or an outlook out, mistakes in one line."""

import json
import re
import shlex

import numpy as np
import pytest
from commands import complaint, run, words, worked

import fedgauge as fg

pytestmark = pytest.mark.usefixtures("folder")

ROWS = 2000
COLUMNS = ("--id", "user", "--score", "p", "--label", "y")
EVALUATE = ("vertical", "evaluate")
PLAN = ("vertical", "plan", "--parties", 4, "--examples", 20_000, "--positive-rate", 0.1)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    labels = (rng.random(ROWS) < 0.3).astype(int)
    return labels, (1 / (1 + np.exp(-rng.normal(2 * labels - 1.5)))).round(6)


@pytest.fixture
def folder(tmp_path, monkeypatch, rows):
    """The files of the help's examples, besides those of a platform and two shops."""
    monkeypatch.chdir(tmp_path)
    labels, scores = rows
    (tmp_path / "scores.csv").write_text(
        "user,p\n" + "".join(f"{i},{score}\n" for i, score in enumerate(scores))
    )
    every = list(enumerate(labels))
    for k in range(2):
        rows_of = "".join(f"{i},{label},{label}\n" for i, label in every[k::2])
        (tmp_path / f"shop-{k}.csv").write_text(f"user,y,bought\n{rows_of}")
        both = "".join(f"{label},{score}\n" for label, score in zip(labels, scores, strict=True))
        (tmp_path / f"clinic-{k}.csv").write_text(f"y,p\n{both}")
    all_rows = "".join(f"{i},{label},shop-{i % 2}\n" for i, label in every)
    (tmp_path / "labels.csv").write_text(f"user,y,shop\n{all_rows}")
    return tmp_path


def examples_of(command):
    text = words(run("vertical", command, "--help", columns=200).stdout)
    listed = text[text.index("Examples:") : text.index("Options" if command == "plan" else "Argum")]
    return [part.strip() for part in listed.split("fedgauge ")[1:]]


@pytest.mark.parametrize("command", ["evaluate", "plan"])
def test_examples_of_the_help_run(folder, command):
    examples = examples_of(command)
    assert len(examples) >= 3
    for example in examples:
        arguments = [
            name
            for word in shlex.split(example)
            for name in (sorted(p.name for p in folder.glob(word)) if "*" in word else [word])
        ]
        done = run(*arguments)
        assert done.exit_code == 0, (example, done.output)


def test_the_result_is_that_of_the_library_by_files_or_a_column_of_parties(rows):
    files = ("scores.csv", "shop-0.csv", "shop-1.csv", "--json", "r.json", "--at", 0.5)
    done = worked(*EVALUATE, *files, *COLUMNS, "--seed", 1, "--positive-rate", 0.3)
    labels, scores = rows
    ids = np.arange(ROWS)
    sides = {f"shop-{k}": (ids[k::2], labels[k::2]) for k in range(2)}
    expected = fg.evaluate_vertical((ids, scores), sides, positive_rate=0.3, seed=1)
    assert fg.Evaluation.from_json("r.json").record == expected.record
    assert "This is a simulation: one process read scores and labels." in done.stdout
    assert "recall" in done.stdout
    assert done.stderr == ""
    saved = []
    for files in (("shop-0.csv", "shop-1.csv"), ("labels.csv", "--party", "shop")):
        done = run(*EVALUATE, "scores.csv", *files, *COLUMNS, "--seed", 1, "--json", "-")
        saved.append(json.loads(done.stdout))
        assert "simulation" in done.stderr
    assert saved[0] == saved[1]


def test_parties_that_scored_need_no_ids_and_labels_can_be_flipped():
    options = ("--client-scored", "--score", "p", "--label", "y", "--privacy", "sa")
    done = worked(*EVALUATE, "clinic-0.csv", *options, "--json", "r.json")
    assert fg.Evaluation.from_json("r.json").clients == 1
    options = (*COLUMNS, "--privacy", "ldp", "--epsilon", 3)
    done = worked(*EVALUATE, "scores.csv", "shop-0.csv", *options)
    assert "label-DP, one label flipped: epsilon 3" in done.stdout


def test_the_auc_alone_is_told_shown_again_and_not_verified(folder):
    options = (*COLUMNS, "--only", "roc_auc", "--seed", 1)
    done = worked(*EVALUATE, "scores.csv", "shop-0.csv", "shop-1.csv", *options, "--json", "a.json")
    saved = fg.LabelAuc.from_json("a.json")
    assert str(saved.roc_auc) in done.stdout
    again = run(*EVALUATE, "scores.csv", "labels.csv", "--party", "shop", *options, "--json", "-")
    assert json.loads(again.stdout)["roc_auc"]["value"] == saved.roc_auc.value
    over = run(
        *EVALUATE, "scores.csv", "labels.csv", "--party", "shop", *options, "-q", "--json", "a.json"
    )
    assert (over.exit_code, over.output) == (0, "")
    said = (*EVALUATE, "scores.csv", "shop-0.csv", *COLUMNS, "--only", "roc_auc")
    first = run(*said, "--json", "auc.json", "--seed", 1).stdout.splitlines()
    shown = worked("show", "auc.json")
    assert shown.stdout.splitlines() == [*first[:-1], "signature:  unsigned: simulated"]
    assert run("show", "auc.json", "--quiet").stdout == ""
    assert "holds the AUC only" in complaint(run("show", "auc.json", "--at", 0.5))
    assert "auc.json is simulated" in complaint(run("verify", "auc.json"), 1)
    path = folder / "auc.json"
    path.write_text(path.read_text().replace('"simulated"', '"enforced"'))
    assert "auc.json is not signed" in complaint(run("verify", "auc.json"), 1)


def test_what_does_not_match_and_percent_are_told(folder):
    text = (folder / "shop-0.csv").read_text().replace("\n10,", "\n99999,")
    (folder / "shop-0.csv").write_text(text)
    done = worked(*EVALUATE, "scores.csv", "shop-0.csv", *COLUMNS)
    assert "warning: 1 of 1,000 labels of party 'shop-0' have no score and are left" in done.stderr
    assert "note: 1,001 of 2,000 scores have no label and are left out." in done.stderr
    quiet = run(*EVALUATE, "scores.csv", "shop-0.csv", *COLUMNS, "-q")
    assert quiet.stdout == ""
    assert quiet.stderr.startswith("fedgauge: warning: 1 of 1,000 labels")
    assert "note" not in quiet.stderr
    text = (folder / "scores.csv").read_text().splitlines()[1:]
    pairs = (line.split(",") for line in text)
    (folder / "scores.csv").write_text(
        "user,p\n" + "".join(f"{i},{100 * float(p)}\n" for i, p in pairs)
    )
    done = worked(*EVALUATE, "scores.csv", "labels.csv", "--party", "shop", *COLUMNS)
    assert "note: scores lie beyond 0 to 1." in done.stderr
    assert "Divide percentages by 100" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("shop-0.csv shop-1.csv", "shop-0.csv: there is no column 'p', but there is 'y'"),
        ("shop-0.csv scores.csv", "Name the file of scores first"),
        ("scores.csv", "scores.csv is one file"),
        ("scores.csv shop-0.csv --party shop", "shop-0.csv: there is no column 'shop'"),
        ("scores.csv shop-0.csv --mechanism adaptive", "Say --only roc_auc, or use --mechanism"),
        (
            "scores.csv shop-0.csv --mechanism gaussian --only roc_auc",
            "gaussian needs --privacy ddp and --noise discrete-gaussian.",
        ),
        ("scores.csv shop-0.csv --only roc_auc --at 0.5", "--at would do nothing: --only asks"),
        ("scores.csv shop-0.csv --privacy sa --epsilon 1", "--epsilon would do nothing under"),
        ("scores.csv shop-0.csv --epsilon 0", "--epsilon must be"),
        ("scores.csv shop-0.csv --positive-rate 3", "--positive-rate must lie between 0 and 1"),
        ("scores.csv shop-0.csv --tree x", "a tree is written like"),
        ("clinic-0.csv --client-scored", "--id would do nothing"),
        ("scores.csv labels.csv x/labels.csv", "two files make a party named 'labels'"),
    ],
)
def test_mistakes(folder, arguments, told):
    (folder / "x").mkdir()
    (folder / "x" / "labels.csv").write_text("user,y\n1,0\n")
    assert told in complaint(run(*EVALUATE, *arguments.split(), *COLUMNS))


def test_without_ids_both_ways_out_are_named_and_nothing_else_is_overwritten():
    told = complaint(run(*EVALUATE, "scores.csv", "shop-0.csv", "--score", "p", "--label", "y"))
    assert "--id" in told
    assert "--client-scored" in told
    done = run(*EVALUATE, "scores.csv", "shop-0.csv", *COLUMNS, "--json", "labels.csv")
    assert "is not overwritten" in complaint(done)


def test_plan_says_what_to_expect():
    done = worked(*PLAN, columns=120)
    outlook = fg.plan_vertical(parties=4, examples=20_000, positive_rate=0.1)
    said = words(done.stdout)
    assert f"{outlook.tree[0]} in one level" in said
    assert "about 20,000 examples, 0.1 of them positive, at 4 label parties" in said
    for name, error in outlook.alike.items():
        assert re.search(
            rf"{name} (everything|AUC alone) {error:.1e} {outlook.apart[name]:.1e}", said
        )
    assert f"flipped labels everything, repeatedly {outlook.flipped:.1e}" in said
    assert "Best for the AUC alone: histogram." in said
    fewer = words(run(*PLAN, "--parties", 3, columns=120).stdout)
    assert "AUC alone: histogram where scores are alike, orthogonal where apart." in fewer


def test_plan_says_what_it_takes():
    told = run(*PLAN, "--want", "roc_auc=0.005").stdout
    assert "no epsilon that still protects anybody is enough" in told
    enough = run(*PLAN, "--want", "auc=0.02").stdout
    assert "Enough to know the AUC within 0.02? yes, within 0.009: it takes epsilon" in enough
    assert "ROC Area Error of 0.001? no" in words(run(*PLAN, "--want", "roc=0.001").stdout)
    assert run(*PLAN, "-q").output == ""
    few = ("vertical", "plan", "--parties", 1, "--examples", 300_000, "--epsilon", 0.02)
    few = (*few, "--positive-rate", 0.5, "--want", "auc=0.001")
    both = [words(run(*few, *extra).stdout) for extra in ((), ("--only", "roc_auc"))]
    everything, alone = (float(re.search(r"within ([0-9.]+):", told)[1]) for told in both)
    assert alone < everything  # by the best mechanism


def test_mistakes_of_a_plan():
    for arguments, told in (
        ("--parties 0 --examples 100", "--parties must be a whole number of at least 1"),
        ("--parties 9 --examples 5", "--examples must be a whole number of at least 9"),
        ("--parties 4 --examples 100 --auc 0.4", "--auc must lie between 0.5 and 1"),
        ("--parties 4 --examples 100 --positive-rate 0", "--positive-rate must lie"),
        ("--parties 4 --examples 100 --epsilon -1", "--epsilon must be"),
        ("--parties 4 --examples 100 --want recall@0.5=0.1", "written like roc_auc=0.01"),
        ("--parties 4 --examples 100 --want x", "written like roc_auc=0.01 or roc=0.001"),
        ("--parties 4 --examples 100 --want auc=2", "a wanted error lies between 0 and 0.5"),
    ):
        assert told in complaint(run("vertical", "plan", *arguments.split()))
