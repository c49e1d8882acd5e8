"""`fedgauge vertical`: files in, a result or an outlook out, mistakes in one line."""

import json
import re
import shlex

import commands
import numpy as np
import pytest
from alone_world import FLIPS, NOISE, TWO, make_alone
from commands import complaint, run
from commands import run as command
from consortium import COORDINATOR
from platform_world import BOUGHT, SCORES, SHOPS, make_platform
from sklearn.metrics import roc_auc_score

import fedgauge as fg
from fedgauge.secagg import Stage
from fedgauge.vertical.answers import LabelAnswer
from fedgauge.vertical.files import Roster

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


def words(text):
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


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


def test_the_result_is_that_of_the_library(rows):
    done = run(
        *EVALUATE,
        "scores.csv",
        "shop-0.csv",
        "shop-1.csv",
        *COLUMNS,
        "--seed",
        1,
        "--positive-rate",
        0.3,
        "--json",
        "r.json",
        "--at",
        0.5,
    )
    assert done.exit_code == 0, done.output
    labels, scores = rows
    ids = np.arange(ROWS)
    sides = {f"shop-{k}": (ids[k::2], labels[k::2]) for k in range(2)}
    expected = fg.evaluate_vertical((ids, scores), sides, positive_rate=0.3, seed=1)
    assert fg.Evaluation.from_json("r.json").record == expected.record
    assert "This is a simulation: one process read scores and labels." in done.stdout
    assert "recall" in done.stdout
    assert done.stderr == ""


def test_one_file_of_labels_with_a_column_of_parties_says_the_same():
    saved = []
    for files in (("shop-0.csv", "shop-1.csv"), ("labels.csv", "--party", "shop")):
        done = run(*EVALUATE, "scores.csv", *files, *COLUMNS, "--seed", 1, "--json", "-")
        saved.append(json.loads(done.stdout))
        assert "simulation" in done.stderr
    assert saved[0] == saved[1]


def test_parties_that_scored_need_no_ids():
    options = ("--client-scored", "--score", "p", "--label", "y", "--privacy", "sa")
    done = run(*EVALUATE, "clinic-0.csv", *options, "--json", "r.json")
    assert done.exit_code == 0, done.output
    assert fg.Evaluation.from_json("r.json").clients == 1


def test_the_auc_alone():
    options = (*COLUMNS, "--only", "roc_auc", "--seed", 1)
    done = run(*EVALUATE, "scores.csv", "shop-0.csv", "shop-1.csv", *options, "--json", "a.json")
    assert done.exit_code == 0, done.output
    saved = fg.LabelAuc.from_json("a.json")
    assert str(saved.roc_auc) in done.stdout
    again = run(*EVALUATE, "scores.csv", "labels.csv", "--party", "shop", *options, "--json", "-")
    assert json.loads(again.stdout)["roc_auc"]["value"] == saved.roc_auc.value
    over = run(
        *EVALUATE, "scores.csv", "labels.csv", "--party", "shop", *options, "-q", "--json", "a.json"
    )
    assert (over.exit_code, over.output) == (0, "")


def test_labels_can_be_flipped():
    done = run(*EVALUATE, "scores.csv", "shop-0.csv", *COLUMNS, "--privacy", "ldp", "--epsilon", 3)
    assert done.exit_code == 0, done.output
    assert "label-DP, one label flipped: epsilon 3" in done.stdout


def test_what_does_not_match_is_told(folder):
    text = (folder / "shop-0.csv").read_text().replace("\n10,", "\n99999,")
    (folder / "shop-0.csv").write_text(text)
    done = run(*EVALUATE, "scores.csv", "shop-0.csv", *COLUMNS)
    assert done.exit_code == 0
    assert "warning: 1 of 1,000 labels of party 'shop-0' have no score and are left" in done.stderr
    assert "note: 1,001 of 2,000 scores have no label and are left out." in done.stderr
    quiet = run(*EVALUATE, "scores.csv", "shop-0.csv", *COLUMNS, "-q")
    assert quiet.stdout == ""
    assert quiet.stderr.startswith("fedgauge: warning: 1 of 1,000 labels")
    assert "note" not in quiet.stderr


def test_percent_is_no_fault_but_told(folder):
    text = (folder / "scores.csv").read_text().splitlines()[1:]
    pairs = (line.split(",") for line in text)
    (folder / "scores.csv").write_text(
        "user,p\n" + "".join(f"{i},{100 * float(p)}\n" for i, p in pairs)
    )
    done = run(*EVALUATE, "scores.csv", "labels.csv", "--party", "shop", *COLUMNS)
    assert done.exit_code == 0
    assert "note: scores lie beyond 0 to 1." in done.stderr
    assert "divided by 100" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("shop-0.csv shop-1.csv", "shop-0.csv: there is no column 'p', but there is 'y'"),
        ("shop-0.csv scores.csv", "Name the file of scores first"),
        ("scores.csv shop-0.csv shop-0.csv", "shop-0.csv is given twice"),
        ("scores.csv", "scores.csv is one file"),
        ("none.csv shop-0.csv", "none.csv: there is no such file"),
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


def test_without_ids_both_ways_out_are_named():
    told = complaint(run(*EVALUATE, "scores.csv", "shop-0.csv", "--score", "p", "--label", "y"))
    assert "--id" in told
    assert "--client-scored" in told


def test_nothing_else_is_overwritten():
    done = run(*EVALUATE, "scores.csv", "shop-0.csv", *COLUMNS, "--json", "labels.csv")
    assert "is not overwritten" in complaint(done)


# plan


def test_plan_says_what_to_expect():
    done = run(*PLAN, columns=120)
    assert done.exit_code == 0, done.output
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
    assert (
        "no epsilon that protects anybody is enough" in run(*PLAN, "--want", "roc_auc=0.005").stdout
    )
    enough = run(*PLAN, "--want", "auc=0.02").stdout
    assert "Enough to know the AUC within 0.02? yes, within 0.009: it takes epsilon" in enough
    assert "ROC Area Error of 0.001? no" in words(run(*PLAN, "--want", "roc=0.001").stdout)


def test_plan_answers_for_the_best_mechanism_where_the_auc_is_wanted_alone():
    few = ("vertical", "plan", "--parties", 1, "--examples", 300_000, "--epsilon", 0.02)
    few = (*few, "--positive-rate", 0.5)
    both = [
        float(
            re.search(r"within ([0-9.]+):", words(run(*few, *extra, "--want", "auc=0.001").stdout))[
                1
            ]
        )
        for extra in ((), ("--only", "roc_auc"))
    ]
    assert both[1] < both[0]


def test_plan_is_quiet_when_asked():
    assert run(*PLAN, "-q").output == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--parties 0 --examples 100", "--parties must be a whole number of at least 1"),
        ("--parties 9 --examples 5", "--examples must be a whole number of at least 9"),
        ("--parties 4 --examples 100 --auc 0.4", "--auc must lie between 0.5 and 1"),
        ("--parties 4 --examples 100 --positive-rate 0", "--positive-rate must lie"),
        ("--parties 4 --examples 100 --epsilon -1", "--epsilon must be"),
        ("--parties 4 --examples 100 --want recall@0.5=0.1", "written like roc_auc=0.01"),
        ("--parties 4 --examples 100 --want x", "written like roc_auc=0.01 or roc=0.001"),
        ("--parties 4 --examples 100 --want auc=2", "a wanted error lies between 0 and 0.5"),
    ],
)
def test_mistakes_of_a_plan(arguments, told):
    assert told in complaint(run("vertical", "plan", *arguments.split()))


def test_an_auc_alone_is_shown_again_and_not_verified(folder):
    said = (*EVALUATE, "scores.csv", "shop-0.csv", *COLUMNS, "--only", "roc_auc")
    first = run(*said, "--json", "auc.json", "--seed", 1).stdout.splitlines()
    shown = run("show", "auc.json")
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == [*first[:-1], "signature:  unsigned: simulated"]
    assert run("show", "auc.json", "--quiet").stdout == ""
    assert "holds the AUC alone" in complaint(run("show", "auc.json", "--at", 0.5))
    assert "auc.json is simulated" in complaint(run("verify", "auc.json"), 1)
    path = folder / "auc.json"
    path.write_text(path.read_text().replace('"simulated"', '"enforced"'))
    assert "auc.json is not signed" in complaint(run("verify", "auc.json"), 1)


SHOP = SHOPS[0]


def make(folder):
    made = make_platform(folder)
    rows = "".join(f"u{i},{score}\n" for i, score in enumerate(SCORES.tolist()))
    (folder / "scores.csv").write_text(f"user,p\n{rows}u-nobody,0.5\n")
    return made


@pytest.fixture
def platform(tmp_path):
    return make(tmp_path)


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """With rosters; nothing is assigned, and nothing may be."""
    made = make(tmp_path_factory.mktemp("listed"))
    rosters(made)
    return made


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Started, and nobody has joined, nor may."""
    made = make(tmp_path_factory.mktemp("started"))
    assigned(made)
    start(made, "--quiet")
    path = made.folder / f"{SHOP}.csv"
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([f"{header},p,s", *(f"{row},1,1" for row in rows)]))
    return made


def make_roster(platform, name=SHOP, *more, columns=("--id", "user")):
    return command(
        *("vertical", "roster", platform.folder / f"{name}.csv", *columns, *more),
        *("--site", platform.site_file(name), "--output", platform.folder / f"{name}.roster"),
    )


def rosters(platform, names=SHOPS, **options):
    for name in names:
        assert make_roster(platform, name, "--quiet", **options).exit_code == 0
    return [platform.folder / f"{name}.roster" for name in names]


def assign(platform, *files, scored=("--id", "user", "--score", "p"), more=()):
    return command(
        *("vertical", "assign", *files, *scored, "--epsilon", 8, "--positive", "yes", *more),
        *("--site", platform.site_file(COORDINATOR), "--output", platform.folder / "out"),
        columns=300,
    )


def exchange(platform, verb, name, *more):
    return command(
        "exchange", verb, platform.run, *more, "--site", platform.site_file(name), columns=300
    )


def start(platform, *more):
    plan, site = platform.folder / "out" / "plan.toml", platform.site_file(COORDINATOR)
    return command("exchange", "start", plan, platform.run, *more, "--site", site, columns=300)


def labels(platform, name, *column):
    bins = platform.folder / "out" / f"{name}.bins"
    return [platform.folder / f"{name}.csv", "--label", "bought", *column, "--bins", bins]


# Rosters


def test_a_roster_holds_ids_and_no_label(platform):
    done = make_roster(platform)
    path = platform.folder / f"{SHOP}.roster"
    assert done.stdout.splitlines() == [
        f"Saved {path}: 1,000 ids, sorted, signed by {SHOP}",
        "It shows column 'user' to whoever reads it. No other was read, so no label is in it.",
        "Send it to whoever scores these examples.",
    ]
    made = Roster.from_bytes(path.read_bytes())
    assert made.ids == tuple(sorted(f"u{i}" for i in platform.rows_of(SHOP)))
    assert b"yes" not in path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0
    assert make_roster(platform).exit_code == 0  # written again


@pytest.mark.parametrize(
    ("rows", "columns", "told"),
    [
        ("user,bought\nu1,yes\nu1,no\n", ["--id", "user"], "1 of 2 ids come again"),
        ("user,bought\nu1,1\nu2,0\nu3,0\n", ["--score", "bought"], "are 0 or 1, as labels are"),
        ("user,bought\n,yes\n", ["--id", "user"], "1 id is missing"),
        ("user,bought\nu1,yes\nu2\n", ["--id", "user"], "line 3 has 1 columns"),
        ("user,bought\n", ["--id", "user"], "there are no rows"),
        ("user,bought\nu1,yes\n", ["--id", "name"], "there is no column 'name'"),
        ("user,bought\nu1,yes\n", ["--score", "user"], "not numbers"),
        ("p,bought\n0.5,yes\n,no\n", ["--score", "p"], "1 of 2 scores are missing"),
        ("user,bought\nu1,yes\n", [], "name one column"),
        ("user,bought\nu1,yes\n", ["--id", "user", "--score", "p"], "name one column"),
    ],
)
def test_rows_that_make_no_roster_are_refused(platform, rows, columns, told):
    (platform.folder / f"{SHOP}.csv").write_text(rows)
    said = complaint(make_roster(platform, columns=columns))
    assert told in said
    assert "u1" not in said
    assert not (platform.folder / f"{SHOP}.roster").exists()


def test_what_is_no_roster_is_not_overwritten(platform):
    path = platform.folder / f"{SHOP}.roster"
    path.write_text("precious")
    assert "is no roster of fedgauge, so it is not overwritten" in complaint(make_roster(platform))
    assert path.read_text() == "precious"


# Bins


def test_bins_for_each_party_and_what_is_next(platform):
    path = platform.folder / f"{SHOP}.csv"
    path.write_text(f"{path.read_text()}u-unscored,no\n")
    done = assign(platform, platform.folder / "scores.csv", *rosters(platform))
    assert done.exit_code == 0, done.stderr
    told = done.stdout.splitlines()
    assert told[0].startswith("Labels at 4 parties, in ")
    assert told[1] == f"  {SHOP}: 1,001 examples, 1 of them without a score: left out"
    assert told[2] == f"  {SHOPS[1]}: 1,000 examples"
    assert told[5] == "1 score is on no roster: left out"
    assert re.fullmatch(r"The AUC is expected to be off by [\d.e-]+ through noise .*\.", told[6])
    folder = platform.folder / "out"
    assert {path.name for path in folder.iterdir()} == {
        "plan.toml",
        *(f"{name}.bins" for name in SHOPS),
    }
    assert (folder / f"{SHOP}.bins").stat().st_mode & 0o077 == 0
    assert told[-1] == (
        f"  fedgauge exchange start {folder / 'plan.toml'} RUN --site "
        f"{platform.site_file(COORDINATOR)}"
    )
    assert len(list((platform.folder / COORDINATOR / "assignments").iterdir())) == 1


def test_two_parties_answer_alone(platform):
    files = rosters(platform, SHOPS[:2])
    done = assign(platform, platform.folder / "scores.csv", *files)
    assert "each answers alone, with all of the noise:\n  fedgauge vertical answer " in done.stdout
    assert "exchange start" not in done.stdout


@pytest.mark.parametrize(
    ("chosen", "scored", "more", "told"),
    [
        ("rosters", ["--id", "user", "--score", "p"], [], "the first file is that of scores"),
        ("scores", ["--id", "user", "--score", "p"], [], "there are no rosters"),
        ("both", [], [], "--id COLUMN --score COLUMN"),
        ("rosters", ["--client-scored", "--id", "user"], [], "the scores are in the rosters"),
        ("rosters", ["--client-scored"], [], "rosters of ids go with scores"),
        ("twice", ["--id", "user", "--score", "p"], [], "has two rosters"),
        ("both", ["--id", "user", "--score", "p"], ["--min-survivors", "5"], "--min-survivors"),
        ("both", ["--id", "user", "--score", "p"], ["--min-survivors", "2"], "at least 3"),
        ("rosters", ["--client-scored"], ["--privacy", "ldp"], "flips go by id"),
        ("both", ["--id", "user", "--score", "p"], ["--tree", "x"], "a tree is written like"),
    ],
)
def test_wrong_ways_to_assign(listed, chosen, scored, more, told):
    files = [listed.folder / f"{name}.roster" for name in SHOPS]
    scores = listed.folder / "scores.csv"
    named = {
        "rosters": files,
        "scores": [scores],
        "both": [scores, *files],
        "twice": [scores, files[0], files[0]],
    }[chosen]
    assert told in complaint(assign(listed, *named, scored=scored, more=more))
    assert not (listed.folder / "out").exists()


def test_ids_that_are_written_otherwise_are_refused_and_explained(platform):
    path = platform.folder / f"{SHOP}.csv"
    text = path.read_text()
    path.write_text("user,bought\nx1,no\nx2,yes\n")
    done = assign(platform, platform.folder / "scores.csv", *rosters(platform))
    assert f"no label of party '{SHOP}' has a score" in complaint(done)
    path.write_text(text.replace("\nu", "\nU"))
    done = assign(platform, platform.folder / "scores.csv", *rosters(platform))
    assert "1,000 would have one if upper and lower case were one" in complaint(done)
    assert not (platform.folder / "out").exists()
    path.write_text(text.replace("\nu0,", "\nU0,"))
    done = assign(platform, platform.folder / "scores.csv", *rosters(platform))
    assert done.exit_code == 0
    assert "1 of them would have one if upper and lower case were one" in done.stderr


def test_bins_are_not_mixed_with_others(platform):
    (platform.folder / "out").mkdir()
    (platform.folder / "out" / "old.bins").write_text("")
    done = assign(platform, platform.folder / "scores.csv", *rosters(platform))
    assert "exists and is no empty folder" in complaint(done)


def test_noise_that_hides_all_is_warned_of(platform):
    done = assign(
        *(platform, platform.folder / "scores.csv", *rosters(platform)),
        more=["--epsilon", 0.01, "--quiet"],
    )
    assert done.exit_code == 0
    assert done.stdout == ""
    assert "such a result is of little use" in done.stderr


# The exchange of a label plan


def assigned(platform, names=SHOPS, more=("--min-survivors", "3", "--tree", "24")):
    done = assign(
        platform,
        *(platform.folder / "scores.csv", *rosters(platform, names)),
        more=[*more, "--quiet"],
    )
    assert done.exit_code == 0, done.stderr


def test_those_who_were_given_bins_are_invited_and_told_what_to_type(platform):
    assigned(platform, SHOPS[:3])
    done = start(platform)
    assert done.stdout.startswith("Invited 3 sites; 3 must stay to the end.")
    assert " FILE --label COLUMN --id COLUMN --bins FILE --site site.toml" in done.stdout
    told = exchange(platform, "status", SHOP).stdout
    assert "--id COLUMN --bins FILE" in told
    invitation = command("explain", platform.run / "invitation.fgx").stdout
    assert "the examples were scored when they were given their ranges" in " ".join(
        invitation.split()
    )


def test_labels_that_fit_no_bin_or_no_class_are_told_before_joining(platform):
    assigned(platform)
    start(platform, "--quiet")
    path = platform.folder / f"{SHOP}.csv"
    text = path.read_text()
    path.write_text(text.replace(",yes", ",1"))
    done = exchange(platform, "check", SHOP, *labels(platform, SHOP, "--id", "user"))
    assert "a plan made with `fedgauge vertical assign --positive LABEL`" in done.stderr
    path.write_text(text.replace("\nu", "\nU"))
    done = exchange(platform, "check", SHOP, *labels(platform, SHOP, "--id", "user"))
    told = "no row is of an example that has a bin: 1,000 would be if upper and lower case were one"
    assert f"{told}. Check the column 'user'" in done.stderr
    assert "This site can join, and what is warned of then stands" in done.stdout
    path.write_text(text.replace("\nu", "\nU", 900))
    done = exchange(platform, "check", SHOP, *labels(platform, SHOP, "--id", "user"))
    assert "few rows are of an example that has a bin: 900 more would be if upper" in done.stderr
    path.write_text(text.replace("\nu", "\nU", 100))
    done = exchange(platform, "check", SHOP, *labels(platform, SHOP, "--id", "user"))
    assert "would be" not in done.stderr  # a few are no reason
    assert "U1" not in done.stderr


def test_others_are_not_invited(platform):
    assigned(platform, SHOPS[:3])
    done = start(platform, *(word for name in SHOPS for word in ("--invite", name)))
    assert f"{SHOPS[3]} sent no roster" in complaint(done, 1)


def test_a_party_that_is_no_peer_any_more_is_not_invited(platform):
    assigned(platform)
    path = platform.site_file(COORDINATOR)
    text = path.read_text()
    path.write_text(re.sub(rf'\n\[\[peers\]\]\nname = "{SHOP}"\nkey = ".*"\n', "\n", text))
    assert "was given bins and is no peer" in complaint(start(platform))
    assert not platform.run.exists()


def test_who_did_not_assign_does_not_start(platform):
    assigned(platform)
    plan = platform.folder / "out" / "plan.toml"
    done = command("exchange", "start", plan, platform.run, "--site", platform.site_file(SHOP))
    assert "did not assign the bins of this plan" in complaint(done, 1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--score", "p"], "the plan is for labels apart from scores"),
        (["--id", "user"], "--id needs the bins"),
        (["--id", "user", "--score", "p"], "one too many"),
        (["--id", "user", "--bins", "BINS", "--subject", "s"], "Leave out --subject"),
        (["--bins", "BINS"], "--bins needs the column"),
        ([], "Name the column of ids, and the bins that this site was sent: --id COLUMN --bins"),
        (["--score", "p", "--bins", "BINS"], "these bins go by ids"),
        (["--id", "user", "--bins", "none"], "cannot read the file"),
    ],
)
@pytest.mark.parametrize("verb", ["check", "join"])
def test_wrong_ways_to_join(started, verb, options, told):
    bins = started.folder / "out" / f"{SHOP}.bins"
    named = [str(bins) if word == "BINS" else word for word in options]
    file = [started.folder / f"{SHOP}.csv", "--label", "bought"]
    assert told in complaint(exchange(started, verb, SHOP, *file, *named))
    assert started.entries(SHOP) == []


def test_rows_are_checked_joined_and_submitted_by_id(platform):
    assigned(platform)
    start(platform, "--quiet")
    named = labels(platform, SHOP, "--id", "user")
    done = exchange(platform, "check", SHOP, *named)
    positives = int(BOUGHT[platform.rows_of(SHOP)].sum())
    assert f"would count as 1,000 rows: {positives} positive" in done.stdout
    for name in SHOPS:
        done = exchange(platform, "join", name, *labels(platform, name, "--id", "user"))
        assert "how many of the site's examples in each of " in done.stdout
    for verb in ("share", "submit"):
        assert exchange(platform, "advance", COORDINATOR, "--quiet").exit_code == 0
        for name in SHOPS:
            again = labels(platform, name, "--id", "user") if verb == "submit" else ()
            done = exchange(platform, verb, name, *again)
            assert done.exit_code == 0, done.stderr
    assert f"Counted 1,000 rows: {int(BOUGHT[platform.rows_of(SHOPS[3])].sum())} " in done.stdout


def test_another_attempt_has_the_same_bins_and_other_totals(platform):
    assigned(platform)
    start(platform, "--quiet")
    new = platform.folder / "second"
    done = exchange(platform, "restart", COORDINATOR, new, "--without", SHOP, "--yes", "--quiet")
    assert done.exit_code == 0, done.stderr
    for name in SHOPS:
        bins = (platform.folder / "out" / f"{name}.bins").read_bytes()
        (platform.folder / f"{name}.bins").write_bytes(bins)
    result = platform.play(new, dict.fromkeys(SHOPS[1:]))
    kept = np.concatenate([platform.rows_of(name) for name in SHOPS[1:]])
    assert int(result.released.counts.sum()) == len(kept)
    # Epsilon 8 leaves a deviation of some 3e-4: five of them, once in two million.
    assert result.roc_auc.value == pytest.approx(
        roc_auc_score(BOUGHT[kept], SCORES[kept]), abs=4e-3
    )


def test_shops_that_score_their_own_examples(platform):
    for name in SHOPS:
        rows = platform.rows_of(name)
        text = "".join(f"{SCORES[i]},{'yes' if BOUGHT[i] else 'no'}\n" for i in rows)
        (platform.folder / f"{name}.csv").write_text(f"p,bought\n{text}")
    done = make_roster(platform, columns=("--score", "p"))
    assert "1,000 scores, sorted, signed by" in done.stdout
    files = rosters(platform, columns=("--score", "p"))
    done = assign(platform, platform.folder / "scores.csv", *files)
    assert "rosters of ids go with scores, and rosters of scores without" in complaint(done)
    done = assign(platform, *files, scored=["--client-scored"], more=["--positive-rate", 0.3])
    assert done.exit_code == 0, done.stderr
    assert "FILE --label COLUMN --score COLUMN --bins FILE" in start(platform).stdout
    wrong = labels(platform, SHOP, "--id", "p")
    assert "these bins go by scores" in complaint(exchange(platform, "join", SHOP, *wrong))
    for name in SHOPS:
        named = labels(platform, name, "--score", "p")
        assert exchange(platform, "join", name, *named, "--quiet").exit_code == 0
    platform.advance(platform.run)
    result = platform.play(platform.run, dict.fromkeys(SHOPS), since=Stage.SHARE)
    assert int(result.released.counts.sum()) == len(SCORES)
    assert str(result).startswith("scores and labels at 4 parties; 4,000 examples")
    assert result.roc_auc.value == pytest.approx(roc_auc_score(BOUGHT, SCORES), abs=3e-3)
    assert isinstance(result, fg.Evaluation)


def test_scores_in_another_unit_at_one_party_are_warned_of(platform):
    for name, unit in zip(SHOPS, (1, 1, 100, 1), strict=True):
        text = "".join(f"{SCORES[i] * unit}\n" for i in platform.rows_of(name))
        (platform.folder / f"{name}.csv").write_text(f"p\n{text}")
    files = rosters(platform, columns=("--score", "p"))
    done = assign(platform, *files, scored=["--client-scored"])
    assert done.exit_code == 0
    assert f"scores of {SHOPS[2]} go beyond 0 to 1, and those of the others do not" in done.stderr


SHOP_ANSWERS, OTHER = TWO


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_alone(tmp_path)


def save(world, made):
    made.plan.save(world.folder / "plan.toml")
    return made


def answer(shop=SHOP_ANSWERS, *more, labels=None, **changed):
    options = {"--label": "bought", "--id": "user", "--output": f"{shop}.answer"}
    options |= {f"--{name}": value for name, value in changed.items()}
    said = [part for name, value in options.items() if value is not None for part in (name, value)]
    site = ("--site", f"{shop}/site.toml")
    files = ("plan.toml", f"{shop}.bins", labels or f"{shop}.csv")
    return commands.run("vertical", "answer", *files, *said, *site, *more, columns=400)


def result(*answers, more=()):
    site = ("--site", f"{COORDINATOR}/site.toml")
    return commands.run("vertical", "result", "plan.toml", *answers, *site, *more, columns=400)


@pytest.mark.parametrize("kind", ["noise", "adaptive", "flips"])
def test_answers_and_a_result(world, kind):
    mechanism = "adaptive" if kind == "adaptive" else None
    save(world, world.told(FLIPS if kind == "flips" else NOISE, mechanism))
    explained = commands.run("explain", "plan.toml", columns=400)
    assert (explained.exit_code, explained.stderr) == (0, "")
    assert ("never fail (delta is 0)" in explained.stdout) is (kind != "noise")
    site = ("--site", f"{COORDINATOR}/site.toml")
    started = commands.complaint(commands.run("exchange", "start", "plan.toml", "run", *site))
    assert "`fedgauge vertical answer`" in started
    for shop in TWO:
        done = answer(shop)
        assert (done.exit_code, done.stderr) == (0, "")
        leaves = done.stdout.index("What leaves each site")
        assert leaves < done.stdout.index("What is promised") < done.stdout.index("Counted 1,000")
        assert done.stdout.endswith(f"Saved {shop}.answer: send it to whoever scored\n")
    done = result("shop-a.answer", "shop-b.answer", more=("--json", "r.json"))
    assert done.exit_code == 0, done.stderr
    assert "Saved r.json, unsigned" in done.stdout
    kind = fg.LabelAuc if mechanism else fg.Evaluation
    assert kind.from_json("r.json").privacy.claim == "enforced"
    assert result("shop-a.answer", "shop-b.answer", more=("--json", "r.json")).exit_code == 0


def test_quiet_says_nothing_and_a_second_time_is_told(world):
    save(world, world.told())
    done = answer(SHOP_ANSWERS, "--quiet")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    spent = world.spent(SHOP_ANSWERS)
    again = answer(output="again.answer")
    assert again.exit_code == 0
    assert "that answer stands, whatever its file holds now" in again.stderr
    assert "Counted" not in again.stdout
    assert world.spent(SHOP_ANSWERS) == spent
    answer(OTHER)
    done = result("shop-a.answer", "shop-b.answer", more=("--quiet",))
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("kind", ["noise", "adaptive"])
@pytest.mark.parametrize("far", [(700, 10**9), (-(10**4), 0)], ids=["shown", "no signal"])
def test_what_no_labels_have_is_told_also_to_who_asks_for_quiet(world, kind, far):
    made = save(world, world.told(NOISE, "adaptive" if kind == "adaptive" else None))
    numbers = [*far] if kind == "adaptive" else [far[0]] * made.plan.numbers
    world.answers(made.plan, OTHER)
    lie = LabelAnswer.signed(world.site(SHOP_ANSWERS).key, made.plan, bytes(32), numbers)
    world.file(SHOP_ANSWERS).write_bytes(lie.to_bytes())
    for more in ((), ("--quiet",)):
        done = result("shop-a.answer", "shop-b.answer", more=("--json", "r.json", *more))
        assert f"{SHOP_ANSWERS} sent what no labels have" in done.stdout + done.stderr
        assert done.exit_code == (0 if far[0] > 0 and kind == "adaptive" else 2)
    if not done.exit_code:
        shown = commands.run("show", "r.json", "--quiet", columns=400)
        assert f"{SHOP_ANSWERS} sent what no labels have" in shown.stderr


def check(shop=SHOP_ANSWERS, *more):
    files = ("plan.toml", f"{shop}.bins", f"{shop}.csv", "--label", "bought", "--id", "user")
    site = ("--site", f"{shop}/site.toml")
    return commands.run("vertical", "check", *files, *site, *more, columns=400)


@pytest.mark.parametrize("kind", ["noise", "adaptive", "flips"])
def test_what_would_count_is_told_before_anything_is_charged(world, kind):
    mechanism = "adaptive" if kind == "adaptive" else None
    save(world, world.told(FLIPS if kind == "flips" else NOISE, mechanism))
    before = sorted(path for path in (world.folder / SHOP_ANSWERS).rglob("*"))
    done = check()
    assert (done.exit_code, done.stderr) == (0, "")
    assert "The site file allows it, at a cost of epsilon " in done.stdout
    assert done.stdout.endswith("This site can answer.\n")
    path = world.folder / f"{SHOP_ANSWERS}.csv"
    text = path.read_text()
    path.write_text(text.replace("\nu", "\nU"))
    done = check()
    assert "no row is of an example that has a bin: 1,000 would be if upper" in done.stderr
    path.write_text(text.replace("yes", "Yes"))
    done = check()
    assert "This site can answer, and what is warned of then stands.\n" in done.stdout
    assert "none of 1,000 rows are positive" in done.stderr
    path.write_text(text)
    assert (check(SHOP_ANSWERS, "--quiet").stdout, world.spent(SHOP_ANSWERS)) == ("", 0)
    assert sorted(path for path in (world.folder / SHOP_ANSWERS).rglob("*")) == before
    counted = [each for each in answer().stdout.splitlines() if each.startswith("Counted")]
    assert f"would count as {counted[0].removeprefix('Counted ')}\n" in check().stdout
    assert "answered the plan before: that answer stands" in check().stdout


def test_labels_that_changed_since_they_were_flipped_are_refused_with_the_option(world):
    save(world, world.told(FLIPS))
    assert answer().exit_code == 0
    save(world, world.told(FLIPS, positive_rate=0.4))
    path = world.folder / f"{SHOP_ANSWERS}.csv"
    path.write_text(path.read_text().replace(",no", ",yes", 1))
    told = answer(SHOP_ANSWERS, "--quiet", output="again.answer")
    assert "name another file with --flips" in commands.complaint(told)


def test_a_plan_that_the_site_refuses_fails_the_check(world):
    save(world, world.told())
    path = world.folder / SHOP_ANSWERS / "site.toml"
    path.write_text(re.sub("max_epsilon = .*", "max_epsilon = 0.5", path.read_text()))
    done = check()
    assert done.exit_code == 1
    assert "Refuses it: " in done.stdout
    assert "can answer" not in done.stdout


def test_odd_rows_are_told_without_naming_one(world):
    save(world, world.told())
    (world.folder / "odd.csv").write_text("user,bought\nu0,yes\nu0,yes\nnobody,yes\n")
    done = answer(labels="odd.csv")
    assert done.exit_code == 0
    for told in ("1 rows are of examples without a bin", "999 examples with a bin have no row"):
        assert told in done.stderr
    assert "nobody" not in done.output
    assert "u0" not in done.output


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"label": "y"}, "there is no column 'y'"),
        ({"id": "key"}, "there is no column 'key'"),
        ({"labels": "gone.csv"}, "there is no such file"),
        ({"id": None}, "name one column: of ids (--id) or"),
        ({"score": "p"}, "name one column: of ids (--id) or"),
        ({"id": None, "score": "p"}, "these bins go by ids"),
        ({"flips": "x.flips"}, "the plan flips no labels. Leave out --flips."),
        ({"output": "shop-a.csv"}, "exists. If it is this site's answer, send it again"),
    ],
)
def test_mistakes_of_a_label_party_end_in_one_line(world, changed, told):
    save(world, world.told())
    if changed.get("score") and "id" in changed:
        (world.folder / "shop-a.csv").write_text("p,bought\n0.5,yes\n")
    assert told in commands.complaint(answer(**changed))
    assert world.spent(SHOP_ANSWERS) == 0.0


def test_files_that_are_not_what_they_should_be(world):
    made = save(world, world.told())
    (world.folder / "shop-a.bins").write_bytes(made.bins[world.keys[OTHER]].to_bytes())
    assert "shop-a.bins: the bins are for another party." in commands.complaint(answer())
    (world.folder / "shop-a.bins").write_text("user,bought\n")
    assert "shop-a.bins: these are not a party's bins" in commands.complaint(answer())
    (world.folder / "plan.toml").write_text("user,bought\n")
    assert "not a plan in TOML" in commands.complaint(answer())
    told = commands.complaint(answer(output="nowhere/shop-a.answer"), code=2)
    assert "not a plan" in told
    save(world, world.told(cohort=fg.Cohort(2, 1)))
    assert "fedgauge exchange join" in commands.complaint(answer())
    save(world, world.told())
    told = commands.complaint(answer(output="nowhere/shop-a.answer"), code=1)
    assert "there is no such folder" in told
    assert world.spent(SHOP_ANSWERS) == 0.0


def test_mistakes_of_the_scorer_end_in_one_line(world):
    save(world, world.told())
    answer(SHOP_ANSWERS)
    told = commands.complaint(result("shop-a.answer"), code=1)
    assert "shop-b did not answer yet" in told
    assert "--without-missing" in told
    assert result("shop-a.answer", more=("--without-missing",)).exit_code == 0
    for file, why in (
        ("shop-a.bins", "shop-a.bins: this is not an answer"),
        ("shop-a.csv", "shop-a.csv: this is not an answer"),
        ("gone.answer", "gone.answer: cannot read the file"),
    ):
        assert why in commands.complaint(result("shop-a.answer", file))
    told = commands.complaint(result("shop-a.answer", "shop-a.answer"))
    assert "shop-a answered twice" in told
    more = ("--without-missing", "--json", "shop-a.csv")
    assert "is not overwritten" in commands.complaint(result("shop-a.answer", more=more))
    save(world, world.told())
    told = commands.complaint(result("shop-a.answer"))
    assert "the answer of shop-a is to another plan" in told


def assign_answers(*more, output="made"):
    known = ("--id", "user", "--score", "p", "--epsilon", "1", "--positive", "yes")
    site = ("--site", f"{COORDINATOR}/site.toml", "--output", output)
    files = ("scores.csv", *(f"{shop}.roster" for shop in TWO))
    return commands.run("vertical", "assign", *files, *known, *site, *more, columns=400)


@pytest.fixture
def rosters_answers(world):
    rows = "".join(f"u{i},{i / 4000}\n" for i in range(4000))
    (world.folder / "scores.csv").write_text(f"user,p\n{rows}")
    for roster in world.rosters().values():
        name = world.site(COORDINATOR).peers[roster.party]
        (world.folder / f"{name}.roster").write_bytes(roster.to_bytes())
    return world


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ((), "histogram"),
        (("--privacy", "ldp"), "flips"),
        (("--mechanism", "orthogonal"), "pair"),
        (("--mechanism", "gaussian", "--delta", "1e-6"), "pair"),
    ],
)
@pytest.mark.usefixtures("rosters")
def test_assigning_says_that_parties_answer_alone(options, kind):
    done = assign_answers(*options)
    assert done.exit_code == 0
    costly = "--privacy" in options or "--delta" in options
    worth = "move the AUC by" if costly else "The AUC is expected to be off by"
    assert worth in (done.stderr if costly else done.stdout)
    assert (done.stderr == "") is not costly
    how = "labels flipped once" if kind == "flips" else "all of the noise"
    assert f"each answers alone, with {how}:\n" in done.stdout
    assert "fedgauge vertical result made/plan.toml" in done.stdout
    plan = fg.EvaluationPlan.load("made/plan.toml")
    assert plan.is_alone
    assert f'kind = "{kind}"' in plan.to_toml()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--privacy", "sa"), "an exact sum would show a label"),
        (("--privacy", "ldp", "--mechanism", "adaptive"), "--mechanism would do nothing"),
        (("--privacy", "ldp", "--noise", "skellam"), "--noise would do nothing"),
        (("--mechanism", "adaptive", "--tree", "8x8"), "--tree would do nothing"),
        (("--mechanism", "gaussian"), "needs a delta"),
        (("--mechanism", "adaptive", "--min-survivors", "2"), "--min-survivors would do nothing"),
    ],
)
def test_options_that_do_nothing_are_refused(rosters_answers, options, told):
    assert told in commands.complaint(assign_answers(*options))
    assert not (rosters_answers.folder / "made").exists()
