"""Common mistakes and what they are told: a table, in which a row is a mistake.

A row says where it is made, with which command, how that ends, and what the message must hold: the
file or the option, how many rows or sites where some are concerned, and what helps. To add one,
write a row. No message may quote a score or a label of the data, and none is a traceback.
"""

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from commands import run
from exchange import EXACT, NOISY, A, B, C, copied, snapshots
from forks import fast_folder

import fedgauge as fg
from fedgauge.engines.exchange import VERBS
from fedgauge.histograms.calibrator import Beta, Steps
from fedgauge.local.rounds import read_plan
from fedgauge.secagg import Stage

pytestmark = pytest.mark.usefixtures("few_redraws")

# What stands for itself in commands. They run in a folder with one folder and one CSV file for each
# site, plans for local reports, and the exchange `run`.
WORDS = {
    "{columns}": "--label y --score p",
    "{a}": f"--site {A}/site.toml",
    "{b}": f"--site {B}/site.toml",
    "{boss}": "--site consortium/site.toml",
    "{id}": "0" * 32,
}
REPORTS = fg.EvaluationPlan.for_reports(fg.Axis.uniform(8, outside="clip"), fg.LocalDP(9.0))
OTHER_REPORTS = fg.EvaluationPlan.for_reports(fg.Axis.uniform(4, outside="clip"), fg.LocalDP(9.0))
TWO_ROUNDS = fg.EvaluationPlan.for_reports(fg.TwoRound(4, share=0.5), fg.LocalDP(1.0))
LABELS = ("okapi", "zebra")  # in no other text
SCORE = "0.7182818"


class Mistake(NamedTuple):
    """One row: `at` is where it is made (see `folder_at`), `before` what spoils something there."""

    id: str
    at: str
    command: str
    code: int
    told: tuple[str, ...]
    before: Callable = lambda _: None
    names_labels: bool = False


# What spoils something


def rewritten(change, name=A):
    """The file of a site, each row changed."""

    def before(world):
        path = world.folder / f"{name}.csv"
        rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
        path.write_text("y,p\n" + "".join(f"{change(*row)}\n" for row in rows))

    return before


percent = rewritten(lambda y, p: f"{y},{100 * float(p)}")
one_class = rewritten(lambda _, p: f"0,{p}")
words = rewritten(lambda y, p: f"{LABELS[int(y)]},{p}")
no_numbers = rewritten(lambda y, _: f"{y},{LABELS[0]}")
third_label = rewritten(lambda y, p: f"{y if float(p) < 0.4 else LABELS[0]},{p}")
no_scores = rewritten(lambda y, p: f"{y},{p if float(p) < 0.4 else ''}")


def header_only(world):
    (world.folder / f"{A}.csv").write_text("y,p\n")


def without_header(world):
    (world.folder / f"{A}.csv").write_text(f"1,{SCORE}\n0,{SCORE}\n")


def cut(pattern, by=40):
    """The file without its end."""

    def before(world):
        (path,) = world.folder.glob(pattern)
        path.write_bytes(path.read_bytes()[:-by])

    return before


def gone(name):
    def before(world):
        (world.folder / name).unlink()

    return before


def made(name, text=""):
    def before(world):
        path = world.folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)

    return before


def then(*steps):
    """First these commands, all of which work."""

    def before(world):
        for step in steps:
            if callable(step):
                step(world)
            else:
                done = run(*words_of(step))
                assert done.exit_code == 0, done.output

    return before


def mapped(_):
    fg.Calibrator("platt", Beta(0.8, 0.8, -0.1)).to_json("map.json")


def falling(_):
    fg.Calibrator("bbq", Steps([0.5], [0.6, 0.4])).to_json("falls.json")


def many(name):
    """Twenty times the rows, so that no noise of reports hides a class."""

    def before(world):
        path = world.folder / f"{name}.csv"
        header, *rows = path.read_text().splitlines(keepends=True)
        path.write_text(header + "".join(rows * 20))

    return before


def encoded(name):
    return f"encode reports.toml {name}.csv {{columns}} -o {name}.fgr"


def first_round(name):
    return f"encode two.toml {name}.csv {{columns}} --site {name}/site.toml -o {name}.fgr"


def second_round(name, plan="second.json"):
    return f"encode {plan} {name}.csv {{columns}} --site {name}/site.toml -o {name}-2.fgr"


def bins_found(signer):
    """The first round of two sites, up to the plan of the second."""
    signed = f"find-bins two.toml --site {signer}/site.toml -o second.json"
    return then(many(A), first_round(A), f"intake two.toml {A}.fgr", signed)


def unsigned(_):
    read_plan("second.json").save("plain.json")


def turned_round(world):
    """The rows of a site in another order."""
    path = world.folder / f"{A}.csv"
    header, *rows = path.read_text().splitlines(keepends=True)
    path.write_text(header + "".join(sorted(rows)))


def platform(labels, score=SCORE):
    """A file of scores by id, and one of labels whose rows are these."""

    def before(world):
        rows = "".join(f"{number},{score}\n" for number in range(100, 140))
        (world.folder / "scores.csv").write_text(f"user,p\n{rows}")
        (world.folder / "shop.csv").write_text("user,y\n" + "".join(f"{row}\n" for row in labels))

    return before


def clinic(_):
    """A file with groups, two models and three classes."""
    kinds = ("flu", "cold", "well")
    rows = [
        f"{n % 2},{'women' if n % 3 else 'men'},0.{n},0.{n + 1},{kinds[n % 3]}" for n in range(9)
    ]
    Path("clinic.csv").write_text("".join(f"{row}\n" for row in ("y,sex,new,old,kind", *rows)))


bought = [f"{number},{number % 2}" for number in range(100, 140)]


def sliced(task, row=lambda number: (number % 2, 0.25, 0.75, "men")):
    """Another exchange, whose plan has slices, and a file with columns for them."""

    def before(world):
        rows = "".join(",".join(map(str, row(number))) + "\n" for number in range(200))
        (world.folder / "rows.csv").write_text(f"y,p,q,gender\n{rows}")
        plan = fg.EvaluationPlan.for_histogram(
            fg.Axis.uniform(8, outside="clip"),
            fg.Cohort(3, 1),
            privacy=fg.DistributedDP(1.0),
            task=task,
        )
        world.start(world.folder / "sliced", plan)

    return before


by_sex = fg.BinaryTask(groups={"sex": ["women", "men"]})
of_pets = fg.MulticlassTask(labels=["cat", "dog"])
of_models = fg.BinaryTask(models=["new", "old"])
of_signs = fg.MultilabelTask(labels=["fever", "cough"])


def weekly(world):
    """Results of three weeks in a folder, and of what is no series beside it."""
    folder = world.folder / "weekly"
    folder.mkdir()
    axis = fg.Axis.uniform(8, outside="clip")

    def result(seed, positive=1, **options):
        marks = [(seed + n) % 3 == 0 for n in range(60)]
        rows = [positive if mark else 0 for mark in marks], [(n % 9) / 10 for n in range(60)]
        return fg.evaluate({"a": rows}, **({"axis": axis, "positive": positive} | options))

    for week in (1, 2, 3):
        result(week).to_json(folder / f"2026-W0{week}.json")
    result(4, axis=fg.Axis.uniform(7, outside="clip")).to_json("other-bins.json")
    result(5, positive=2).to_json("other-label.json")
    classes = fg.Examples(["cat", "dog"] * 30, [[0.2, 0.8], [0.6, 0.4]] * 30)
    fg.evaluate({"a": classes}, task=of_pets).to_json("classes.json")


def beside(name, to):
    """One of these files, copied into the folder."""

    def before(world):
        weekly(world)
        (world.folder / "weekly" / to).write_bytes((world.folder / name).read_bytes())

    return before


def cut_week(world):
    weekly(world)
    path = world.folder / "weekly/2026-W02.json"
    path.write_bytes(path.read_bytes()[:-40])


MISTAKES = [
    # Results over time
    *(
        Mistake(what, "reports", command, 2, told, before)
        for what, command, told, before in (
            ("a folder of looks that is not there", "trend weeks", ("weeks", "no such"), weekly),
            (
                "a result for a folder",
                "trend weekly/2026-W01.json",
                ("it is a file", "Name the folder"),
                weekly,
            ),
            (
                "a folder of looks without any",
                "trend empty",
                ("empty holds no result", "--json"),
                made("empty/notes.txt"),
            ),
            (
                "plans for looks",
                "trend plans",
                ("plans holds no result",),
                lambda world: (made("plans/x")(world), REPORTS.save("plans/plan.toml")),
            ),
            (
                "the same look twice",
                "trend weekly",
                ("2026-W01 and 2026-W09 are the same result", "leave one of them out"),
                beside("weekly/2026-W01.json", "2026-W09.json"),
            ),
            (
                "looks on bins that have nothing in common",
                "trend weekly",
                ("no bin edge in common", "by the same plan"),
                beside("other-bins.json", "2026-W04.json"),
            ),
            (
                "looks of another positive label",
                "trend weekly",
                ("count different labels as positive", "2026-W04"),
                beside("other-label.json", "2026-W04.json"),
            ),
            (
                "looks of which one has several classes",
                "trend weekly",
                ("2026-W04 is of several classes", "--class"),
                beside("classes.json", "2026-W04.json"),
            ),
            (
                "looks of which some have no date",
                "trend weekly",
                ("latest.json has no date in its name", "2026-11-16.json"),
                beside("other-bins.json", "latest.json"),
            ),
            (
                "a trend as a picture",
                "trend weekly -o trend.png",
                ("ends in .html, .json, .csv",),
                weekly,
            ),
            (
                "a trend over a result",
                "trend weekly -o weekly/2026-W01.json",
                ("is no trend of fedgauge", "Name another place"),
                weekly,
            ),
            (
                "a threshold that is no number",
                "trend weekly --at nan",
                ("threshold",),
                weekly,
            ),
            (
                "a rate of alarms in percent",
                "trend weekly --rate 5",
                ("rate must lie above 0 and up to 0.5",),
                weekly,
            ),
            (
                "a result and itself",
                "diff weekly/2026-W01.json weekly/2026-W01.json",
                ("both are the same result", "Name two"),
                weekly,
            ),
            (
                "results of different labels",
                "diff weekly/2026-W01.json other-label.json",
                ("count different labels as positive", "Evaluate one of them again"),
                weekly,
            ),
            (
                "results of which one has several classes",
                "diff weekly/2026-W01.json classes.json",
                ("classes is of several classes", "Choose one", "--class"),
                weekly,
            ),
        )
    ),
    Mistake(
        "a look that was cut short",
        "reports",
        "trend weekly",
        1,
        ("weekly/2026-W02.json", "truncated"),
        cut_week,
    ),
    Mistake(
        "a plan for a result",
        "reports",
        "diff reports.toml reports.toml",
        1,
        ("reports.toml",),
    ),
    Mistake(
        "a plan for a report",
        "reports",
        "report reports.toml -o r.html",
        1,
        ("reports.toml",),
    ),
    Mistake(
        "a report over a file of rows",
        "reports",
        f"report weekly/2026-W01.json -o {A}.csv",
        2,
        (f"{A}.csv exists and is no report of fedgauge",),
        weekly,
    ),
    # Columns of groups, classes, models and labels
    *(
        Mistake(
            what, "reports", f"exchange check sliced rows.csv {options} {{a}}", code, told, before
        )
        for what, options, code, told, before in (
            (
                "a column of groups that nobody named",
                "--label y --score p",
                2,
                ("rows.csv", "groups by sex", "no column of that name", "--group sex=COLUMN"),
                sliced(by_sex),
            ),
            (
                "groups in the place of their column",
                "--label y --score p --group sex=women,men",
                2,
                ("--group sex= takes one column, got 2", "The plan says which values"),
                sliced(by_sex),
            ),
            (
                "groups that are written otherwise",
                "--label y --score p --group sex=gender",
                0,
                ("rows.csv: 200 of 200 rows", "no listed group of sex", "spells groups as the"),
                sliced(by_sex, lambda number: (number % 2, 0.25, 0.75, LABELS[number % 2])),
            ),
            (
                "one group that is written otherwise",
                "--label y --score p --group sex=gender",
                0,
                ("100 of 200 rows are of no listed group of sex, and none are of women",),
                sliced(by_sex, lambda number: (number % 2, 0.25, 0.75, ("men", "F")[number % 2])),
            ),
            (
                "one score for two classes",
                "--label gender --score p",
                2,
                ("the plan has cat, dog", "--class-scores cat=COLUMN,dog=COLUMN"),
                sliced(of_pets),
            ),
            (
                "one column for two classes",
                "--label gender --class-scores cat=p,dog=p",
                2,
                ("one column cannot be two things, and 'p' is named more than once",),
                sliced(of_pets),
            ),
            (
                "classes that the plan does not list",
                "--label gender --class-scores cat=p,dog=q",
                1,
                ("Refuses it", "100 of 200 labels are none of the plan's classes", "first class"),
                sliced(of_pets, lambda number: (0, 0.25, 0.75, ("cat", "emu")[number % 2])),
            ),
            (
                "class scores that are swapped",
                "--label gender --class-scores cat=p,dog=q",
                1,
                ("by the score of cat, dog another class scores highest", "which column is of"),
                sliced(
                    of_pets,
                    lambda number: (0, *((0.2, 0.8, "cat") if number % 2 else (0.9, 0.1, "dog"))),
                ),
            ),
            (
                "scores of one class in percent",
                "--label fever=y,cough=gender --class-scores fever=p,cough=q",
                0,
                ("200 of 400 scores lie beyond the axis", "from 0 to 1, and percent"),
                sliced(of_signs, lambda number: (number % 2, 0.25, 75, number % 2)),
            ),
            (
                "a label that nobody named",
                "--label y --class-scores fever=p,cough=q",
                2,
                ("several labels a row", "--label fever=COLUMN,cough=COLUMN"),
                sliced(of_signs),
            ),
            (
                "a model that nobody named",
                "--label y --model-score new=p",
                2,
                ("--model-score lacks old", "--model-score new=COLUMN --model-score old=COLUMN"),
                sliced(of_models),
            ),
            (
                "a column without its name",
                "--label y --model-score p",
                2,
                ("--model-score takes a name and what belongs to it", "got 'p'"),
                sliced(of_models),
            ),
        )
    ),
    # Labels and scores apart
    *(
        Mistake(
            what,
            "reports",
            f"vertical evaluate {files} --id user {{columns}}",
            2,
            told,
            before,
            names_labels=what == "labels apart that are words",
        )
        for what, files, before, told in (
            (
                "ids apart with leading zeros",
                "scores.csv shop.csv",
                platform([f"00{row}" for row in bought]),
                ("no label of party 'shop' has a score", "40 would", "without leading zeros"),
            ),
            (
                "ids apart of another kind",
                "scores.csv shop.csv",
                platform([f"{LABELS[0]}-{row}" for row in bought]),
                ("its ids are text, those of the scores whole numbers", "the same ids"),
            ),
            (
                "ids apart that come twice",
                "scores.csv shop.csv",
                platform(bought + bought[:3]),
                ("3 of 43 labels have an id that another label has at the same party",),
            ),
            (
                "an id apart that is missing",
                "scores.csv shop.csv",
                platform([*bought, ",1"]),
                ("shop.csv: 1 id is missing (empty, null or NaN)", "drop these rows"),
            ),
            (
                "labels apart that are words",
                "scores.csv shop.csv",
                platform([f"{number},{LABELS[number % 2]}" for number in range(100, 140)]),
                ("40 of 40 labels are neither bool nor 0/1", "--positive LABEL"),
            ),
            (
                "labels apart in the place of scores",
                "shop.csv scores.csv",
                platform(bought),
                ("shop.csv: there is no column 'p'", "Name the file of scores first"),
            ),
            (
                "labels apart below a header alone",
                "scores.csv shop.csv",
                platform([]),
                ("shop.csv: there are no rows in it",),
            ),
            (
                "scores apart that are no numbers",
                "scores.csv shop.csv",
                platform(bought, score=LABELS[1]),
                ("scores.csv: column 'p' holds values that are not numbers", "--decimal"),
            ),
            (
                "labels apart that are named twice",
                "scores.csv shop.csv ./shop.csv",
                platform(bought),
                ("shop.csv is given twice",),
            ),
        )
    ),
    # Groups, classes and models
    *(
        Mistake(what, "reports", f"evaluate clinic.csv --label {columns}", 2, told, clinic, True)
        for what, columns, told in (
            (
                "a group without its values",
                "y --score new --group sex",
                ("--group sex needs the groups", "--group sex=women,men", "has 'men', 'women'"),
            ),
            (
                "groups that are all misspelt",
                "y --score new --group sex=Women,Men",
                ("column 'sex'", "all are in 'other'", "Check the spelling", "has 'men', 'women'"),
            ),
            (
                "a group named other",
                "y --score new --group sex=women,other",
                ("'other' is what rows of no listed group are in. Leave it out",),
            ),
            (
                "groups by a column that is not there",
                "y --score new --group ward=a,b",
                ("clinic.csv: there is no column 'ward'", "The columns are 'y', 'sex'"),
            ),
            (
                "one grouping crossed",
                "y --score new --group sex=women,men --crossed",
                ("only two or more groupings can be crossed", "Leave out --crossed"),
            ),
            (
                "a single class",
                "kind --class-scores flu=new",
                ("--class-scores names one class", "Name all of them", "is --score"),
            ),
            (
                "classes without columns",
                "kind --class-scores flu,cold",
                ("--class-scores takes pairs", "such as cat=p1,dog=p2"),
            ),
            (
                "labels that match no class",
                "y --class-scores flu=new,cold=old",
                ("9 of 9 labels are none of the task's classes", "Column 'y' has '0', '1'"),
            ),
            (
                "a class that is not named",
                "kind --class-scores flu=new,cold=old",
                ("3 of 9 labels are none", "Name all of them", "Column 'kind' also has 'well'"),
            ),
            (
                "scores named in two ways",
                "kind --score new --class-scores flu=new,cold=old",
                ("--score and --class-scores both name scores", "Use one"),
            ),
            (
                "scores named in no way",
                "y",
                ("which column is the score?", "--class-scores", "--model-score"),
            ),
            (
                "a positive label among classes",
                "kind --positive flu --class-scores flu=new,cold=old",
                ("--positive is for two classes", "Leave it out"),
            ),
            (
                "a single model",
                "y --model-score new=new",
                ("--model-score names one model", "--score COLUMN"),
            ),
            (
                "two columns for a model",
                "y --model-score a=new,old --model-score b=old",
                ("--model-score a= names 2 columns", "one score"),
            ),
            (
                "a margin without models",
                "y --score new --margin 0.01",
                ("--margin is for two models", "Leave it out"),
            ),
            (
                "a pair of one model",
                "y --model-score a=new --model-score b=old --pair a",
                ("--pair names two of the models, such as new,old",),
            ),
            (
                "a table that there is not",
                "kind --class-scores flu=new,cold=old,well=y --also matrix",
                ("--also names each once, of: confusion, ranks, top",),
            ),
            (
                "tables of two classes",
                "y --score new --also confusion",
                ("--also is for several classes", "leave it out"),
            ),
            (
                "local reports of scores together",
                "y --model-score a=new --model-score b=old --pair a,b --privacy ldp --epsilon 5",
                ("about one score at a time", "Leave out --pair", "use --privacy ddp"),
            ),
            (
                "score sums by group",
                "y --score new --group sex=women,men --score-sums",
                ("score sums are for one score", "Leave out --score-sums"),
            ),
            (
                "a rate of several scores",
                "y --model-score a=new --model-score b=old --at-fpr 0.1",
                ("choose a threshold for one score", "--model NAME", "--at"),
            ),
            (
                "labels and scores of other names",
                "fever=y,cough=y --class-scores fever=new,cold=old",
                ("--class-scores does not name 'cough', which --label has", "fever, cough"),
            ),
        )
    ),
    Mistake(
        "a group that nobody is in",
        "reports",
        "evaluate clinic.csv --label y --score new --group sex=women,divers",
        0,
        ("warning: no row is of group 'divers' of column 'sex'", "has 'men', 'women'"),
        clinic,
        names_labels=True,
    ),
    *(
        Mistake(what, "reports", f"plan --clients 9 {options}", 2, told)
        for what, options, told in (
            ("a plan of one class", "--epsilon 1 --classes a", ("--classes names one",)),
            ("a plan of one model", "--epsilon 1 --models a", ("--models names one",)),
            (
                "a plan of classes and labels",
                "--epsilon 1 --classes a,b --labels c,d",
                ("--classes are those of which a row has one", "Use one"),
            ),
            (
                "a plan whose small cells show",
                "--privacy sa --classes a,b --also confusion",
                ("cannot be merged", "--privacy ddp", "--min-cell 0"),
            ),
            (
                "a want of slices",
                "--epsilon 1 --models a,b --want 0.01",
                ("--want is for one score and all rows",),
            ),
            (
                "a plan by a group without values",
                "--epsilon 1 --group sex",
                ("--group takes a name and what belongs to it, such as sex=women,men",),
            ),
        )
    ),
    # What `plan --want` cannot be asked
    *(
        Mistake(f"{what} wanted", "reports", f"plan --clients 9 {model} --want {want}", 2, told)
        for what, model, want, told in (
            ("nothing", "--epsilon 1", "''", ("--want is written like 0.001", "got ''")),
            ("no width", "--epsilon 1", "recall@0.5", ("recall@0.5=0.02 or ece=0.01",)),
            ("no number", "--epsilon 1", "recall@half=0.1", ("got 'recall@half=0.1'",)),
            ("percent", "--epsilon 1", "recall@0.5=2%", ("--want is written like",)),
            (
                "another word for recall",
                "--epsilon 1",
                "sensitivity@0.5=0.02",
                ("--want is for roc, ece or", "precision, recall", "got 'sensitivity'"),
            ),
            (
                "recall of no threshold",
                "--epsilon 1",
                "recall=0.02",
                ("recall has a threshold", "--want recall@0.5=0.02"),
            ),
            (
                "calibration at a threshold",
                "--epsilon 1",
                "ece@0.5=0.01",
                ("expected_calibration_error has no threshold", "leave it out"),
            ),
            (
                "a threshold in percent",
                "--epsilon 1",
                "recall@50=0.02",
                ("a threshold lies between the ends of the axis, 0 and 1, got 50",),
            ),
            (
                "a width in percent",
                "--epsilon 1",
                "recall@0.5=2",
                ("a wanted half-width lies between 0 and 0.5, got 2",),
            ),
            (
                "calibration of logits",
                "--privacy sa --range -8 8",
                "ece=0.01",
                ("need probabilities", "from -8 to 8"),
            ),
            (
                "an exact curve",
                "--privacy sa",
                "0.001",
                ("--want needs --privacy ddp or ldp", "Use more --bins"),
            ),
        )
    ),
    # A folder or a site file that is not what it should be
    *(
        Mistake(
            f"{verb} in a folder that is not there",
            "noisy join answer",
            f"exchange {verb} nowhere {rest}".strip(),
            1,
            ("there is no folder nowhere", "invitation.fgx", "coordinator"),
        )
        for verb, rest in {
            "status": "{a}",
            "advance": "{boss}",
            "review": "{a}",
            "approve": "--evaluation {id} --key k {a}",
            "abandon": "{a}",
            "restart": "new {boss}",
            "join": f"{A}.csv {{columns}} {{a}}",
            "check": f"{A}.csv {{columns}} {{a}}",
        }.items()
    ),
    Mistake(
        "status of a file",
        "noisy join answer",
        f"exchange status {A}.csv {{a}}",
        1,
        (f"{A}.csv is no folder", "Name the one that holds invitation.fgx"),
    ),
    Mistake(
        "status of another folder",
        "noisy join answer",
        f"exchange status {A} {{a}}",
        1,
        (f"there is no invitation.fgx in {A}", "Get it from the coordinator"),
    ),
    Mistake(
        "a folder as a site file",
        "noisy join answer",
        f"exchange status run --site {A}",
        2,
        (f"{A} is a folder", "Name the site file in it", f"{A}/site.toml"),
    ),
    Mistake(
        "no site file",
        "noisy join answer",
        "exchange status run",
        2,
        ("there is no site file", "site.toml", "--site", "fedgauge site init"),
    ),
    Mistake(
        "a site that was not invited",
        "noisy share answer",
        "exchange share run {boss}",
        2,
        ("site 'consortium' is not among those invited to run", "--site"),
    ),
    *(
        Mistake(
            f"{verb} by the site that started it",
            "noisy join answer",
            f"exchange {verb} run {rest}",
            code,
            ("site 'consortium' started this evaluation", "--site"),
        )
        for verb, rest, code in (
            ("join", f"{A}.csv {{columns}} {{boss}}", 2),
            ("check", f"{A}.csv {{columns}} {{boss}}", 1),
            ("approve", f"--evaluation {{id}} --key {A}/site.key {{boss}}", 2),
        )
    ),
    Mistake(
        "abandon by a site that never joined",
        "noisy join answer",
        "exchange abandon run {a}",
        1,
        (f"site '{A}' did not join the evaluation in run", "--site"),
    ),
    Mistake(
        "restart by a site",
        "noisy join answer",
        "exchange restart run new {a}",
        1,
        (f"site '{A}' did not start this exchange", "--site"),
    ),
    Mistake(
        "restart without a stranger",
        "noisy join answer",
        "exchange restart run new --without nobody {boss}",
        1,
        ("nobody was not invited", "--without", f"It has {A}, {B}, {C}"),
    ),
    Mistake(
        "approve with a key that is not there",
        "noisy join answer",
        "exchange approve run --evaluation {id} --key officer.key {a}",
        2,
        ("there is no key file officer.key", "fedgauge site approver"),
    ),
    # Files that were damaged on the way
    Mistake(
        "a cut invitation",
        "noisy join answer",
        "exchange status run {a}",
        1,
        ("run/invitation.fgx", "incomplete", "Copy it again"),
        cut("run/invitation.fgx"),
    ),
    Mistake(
        "an empty invitation",
        "noisy join answer",
        f"exchange join run {A}.csv {{columns}} {{a}}",
        1,
        ("run/invitation.fgx", "incomplete", "Copy it again"),
        made("run/invitation.fgx"),
    ),
    Mistake(
        "a cut request",
        "noisy submit answer",
        "exchange submit run {a}",
        1,
        (f"{A}.request.fgx", "incomplete", "Copy it again"),
        cut(f"run/3-*{A}.request.fgx"),
    ),
    Mistake(
        "a cut reply",
        "noisy submit advance",
        "exchange advance run {boss}",
        1,
        (
            f"waits for {A} to submit",
            f"{A}.reply.fgx: this is incomplete",
            "Copy it again",
            "wait.",
        ),
        cut(f"run/3-*{A}.reply.fgx"),
    ),
    Mistake(
        "evidence that is none",
        "noisy join answer",
        "exchange evidence run/invitation.fgx {a}",
        1,
        ("run/invitation.fgx as evidence", "Copy it again"),
    ),
    Mistake(
        "evidence that is not there",
        "noisy join answer",
        "exchange evidence evidence.fgx {a}",
        1,
        ("there is no file evidence.fgx", "Check its name"),
    ),
    # Rows, before anything is spent
    Mistake(
        "check of scores in percent",
        "noisy join answer",
        f"exchange check run {A}.csv {{columns}} {{a}}",
        0,
        (f"{A}.csv: 59 of 60 scores", "from 0 to 1", "convert the scores"),
        percent,
    ),
    Mistake(
        "check of a file without rows",
        "noisy join answer",
        f"exchange check run {A}.csv {{columns}} {{a}}",
        0,
        (f"{A}.csv: there are no rows that count", "0 rows", "Check the export"),
        header_only,
    ),
    Mistake(
        "check of labels that the plan does not know",
        "noisy join answer",
        f"exchange check run {A}.csv {{columns}} {{a}}",
        0,
        (
            f"{A}.csv: none of 60 rows are positive",
            "recode",
            "fedgauge plan --positive",
            "(labels)",
        ),
        words,
    ),
    Mistake(
        "check of rows that an exact sum refuses",
        "exact join answer",
        f"exchange check run {A}.csv {{columns}} {{a}}",
        1,
        ("These rows would be refused", f"{A}.csv: 60 of 60 labels", "fedgauge plan --positive"),
        words,
    ),
    Mistake(
        "join with a column that is not there",
        "noisy join answer",
        f"exchange join run {A}.csv --label outcome --score p {{a}}",
        2,
        (f"{A}.csv", "no column 'outcome'", "The columns are 'y', 'p'"),
    ),
    Mistake(
        "join with a file without a header",
        "noisy join answer",
        f"exchange join run {A}.csv {{columns}} {{a}}",
        2,
        (f"{A}.csv", "add a row with the names of the columns"),
        without_header,
    ),
    Mistake(
        "join with text for scores",
        "noisy join answer",
        f"exchange join run {A}.csv {{columns}} {{a}}",
        2,
        (f"{A}.csv", "column 'p'", "Check which column holds the score"),
        no_numbers,
    ),
    Mistake(
        "join an exact sum with odd labels",
        "exact join answer",
        f"exchange join run {A}.csv {{columns}} {{a}}",
        0,
        (f"{A}.csv: 36 of 60 labels", "an exact sum stops at them", "Mend the file"),
        third_label,
    ),
    # Rows, when it is too late to mend them
    Mistake(
        "submit scores in percent",
        "noisy submit answer",
        "exchange submit run {a}",
        0,
        ("59 clipped", f"{A}.csv: 59 of 60 scores", "convert the scores"),
        percent,
    ),
    Mistake(
        "submit one class",
        "noisy submit answer",
        "exchange submit run {a}",
        0,
        ("0 positive", f"{A}.csv: none of 60 rows are positive", "Check the label column"),
        one_class,
    ),
    Mistake(
        "submit a file without rows",
        "noisy submit answer",
        "exchange submit run {a}",
        0,
        ("Counted 0 rows", f"{A}.csv: there are no rows that count", "Check the export"),
        header_only,
    ),
    Mistake(
        "submit a file that is gone",
        "noisy submit answer",
        "exchange submit run {a}",
        2,
        (f"{A}.csv: there is no such file", "Check its name and folder"),
        gone(f"{A}.csv"),
    ),
    Mistake(
        "submit other rows in an exact sum",
        "exact submit answer",
        "exchange submit run {a}",
        2,
        (f"{A}.csv: 60 of 60 labels", "fedgauge plan --positive LABEL", "(labels)"),
        words,
    ),
    # The order of commands
    Mistake(
        "submit before its round",
        "noisy share answer",
        "exchange submit run {a}",
        1,
        ("no request to submit", "in run yet", "fedgauge exchange advance"),
    ),
    Mistake(
        "submit twice",
        "noisy submit advance",
        "exchange submit run {a}",
        0,
        ("first input stands", f"{A}.reply.fgx", f"fedgauge exchange abandon run --site {A}"),
        percent,
    ),
    Mistake(
        "submit another file",
        "noisy submit advance",
        f"exchange submit run {B}.csv {{columns}} {{a}}",
        1,
        ("joined with", f"{A}.csv", "the first input stands", "fedgauge exchange abandon"),
    ),
    Mistake(
        "submit another file than was named at join",
        "noisy submit answer",
        f"exchange submit run {B}.csv {{columns}} {{a}}",
        1,
        ("joined with", f"{A}.csv", "join again", "fedgauge exchange join"),
    ),
    Mistake(
        "join with a semicolon where commas stand",
        "noisy join answer",
        f"exchange join run {A}.csv {{columns}} --separator ; {{a}}",
        2,
        (f"{A}.csv", "one column that holds ','", "--separator"),
    ),
    Mistake(
        "start with fewer sites than the plan needs",
        "noisy join answer",
        "exchange start many.toml new {boss}",
        2,
        ("needs 9", "fedgauge site trust", "--min-survivors"),
        then("plan --clients 9 --examples 6000 --positive-rate 0.3 --epsilon 1 -o many.toml"),
    ),
    Mistake(
        "explain a folder",
        "noisy join answer",
        "explain run",
        2,
        ("run is a folder", "invitation.fgx"),
    ),
    Mistake(
        "advance where one did not reveal",
        "noisy reveal answer",
        "exchange advance run {boss}",
        1,
        (f"waits for {A} to reveal", "3 of 3 are needed", "Everybody has paid", "wait."),
    ),
    Mistake(
        "advance without who did not reveal",
        "noisy reveal answer",
        "exchange advance run --without-missing {boss}",
        1,
        ("2 shares", "3 are needed", "nothing is lost", "wait.", f"Missing: {A}"),
    ),
    Mistake(
        "restart where one did not reveal",
        "noisy reveal answer",
        f"exchange restart run again --without {A} {{boss}}",
        1,
        ("3 sites have paid for the attempt in run", "waiting costs nothing", "--yes"),
    ),
    Mistake(
        "abandon after submit",
        "noisy submit advance",
        "exchange abandon run {a}",
        1,
        (f"the numbers of {A} have left", "Waiting costs nothing", "--yes"),
    ),
    Mistake(
        "abandon by the coordinator once all have paid",
        "noisy confirm answer",
        "exchange abandon run {boss}",
        1,
        ("3 sites have paid for the attempt in run", "Waiting costs nothing", "--yes"),
    ),
    *(
        Mistake(
            f"{verb} when it is over",
            "noisy over",
            f"exchange {verb} run {rest}".strip(),
            1,
            ("the evaluation in run is finished", "cost nothing", "run/result.json"),
        )
        for verb, rest in {
            "join": f"{A}.csv {{columns}} {{a}}",
            "check": f"{A}.csv {{columns}} {{a}}",
            "submit": "{a}",
            "approve": f"--evaluation {{id}} --key {A}/site.key {{a}}",
        }.items()
    ),
    Mistake(
        "check after submit",
        "noisy submit advance",
        f"exchange check run {A}.csv {{columns}} {{a}}",
        1,
        (f"site '{A}' has submitted", "first input stands", "new invitation"),
    ),
    Mistake(
        "restart when it is over",
        "noisy over",
        f"exchange restart run again --without {A} {{boss}}",
        1,
        ("3 sites have paid", "It is finished: its result is run/result.json", "--yes"),
    ),
    Mistake(
        "review when it is over",
        "noisy over",
        "exchange review run {a}",
        0,
        ("It is finished: its result is run/result.json",),
    ),
    # Maps
    *(
        Mistake(
            f"{command.split()[0]} with a {what}",
            "reports",
            command,
            code,
            told,
            then(mapped, f"evaluate {B}.csv {{columns}} --json r.json"),
        )
        for command, code, what, told in (
            (
                f"apply r.json {A}.csv --score p -o c.csv",
                2,
                "result for a map",
                ("r.json: this is a result, not a map", "fedgauge calibrate"),
            ),
            (
                f"evaluate {A}.csv {{columns}} --calibrator r.json",
                2,
                "result for a map",
                ("r.json: this is a result, not a map", "fedgauge calibrate"),
            ),
            (
                "calibrate map.json -o new.json",
                1,
                "map for a result",
                ("map.json: this is a map", "not a result", "fedgauge evaluate --json"),
            ),
            (
                f"calibrate r.json -o {A}.csv",
                2,
                "file of rows to write to",
                (f"{A}.csv exists and is no map", "--out"),
            ),
            (
                "calibrate r.json --method magic -o new.json",
                2,
                "method that does not exist",
                ("'magic'", "auto, beta, isotonic"),
            ),
            (
                f"evaluate {A}.csv {{columns}} --calibrator map.json --range 0 100",
                2,
                "map of percentages",
                ("a map makes probabilities", "from 0 to 100", "divide percentages by 100"),
            ),
            (
                f"apply map.json {A}.csv --score p -o {B}.csv",
                2,
                "file of rows to write to",
                (f"{B}.csv exists", "rows are not overwritten", "--out"),
            ),
            (
                f"apply map.json {A}.csv --score p -o {A}.csv",
                2,
                "file to be mapped in place",
                (f"{A}.csv exists", "--out"),
            ),
            (
                f"apply map.json {A}.csv --score risk -o c.csv",
                2,
                "column that is not there",
                (f"{A}.csv: there is no column 'risk'", "The columns are 'y', 'p'"),
            ),
            (
                f"apply map.json {A}.csv --score p --column-out y -o c.csv",
                2,
                "column that is there",
                (f"{A}.csv: there is a column 'y' already", "--column-out", "--replace"),
            ),
            (
                f"apply map.json {A}.csv --score p --column-out q --replace -o c.csv",
                2,
                "new column in place of the old",
                ("--replace adds no column", "--column-out"),
            ),
            (
                f"apply map.json {A}.csv --score p -o c.parquet",
                2,
                "target of another format",
                ("rows of a .csv file", "c.parquet"),
            ),
            (
                f"apply no.json {A}.csv --score p -o c.csv",
                2,
                "map that is not there",
                ("cannot read no.json", "fedgauge calibrate"),
            ),
            (
                "apply map.json no.csv --score p -o c.csv",
                2,
                "file that is not there",
                ("no.csv: there is no such file", "Check its name"),
            ),
        )
    ),
    Mistake(
        "apply to scores in percent",
        "reports",
        f"apply map.json {A}.csv --score p -o c.csv",
        2,
        (f"{A}.csv: rows 1 to 60: 59 of 60 scores lie outside 0 to 1", "by 100"),
        then(mapped, percent),
    ),
    Mistake(
        "apply where scores are missing",
        "reports",
        f"apply map.json {A}.csv --score p -o c.csv",
        2,
        (f"{A}.csv: rows 1 to 60: 36 of 60 scores are missing", "Drop these rows"),
        then(mapped, no_scores),
    ),
    Mistake(
        "apply to text",
        "reports",
        f"apply map.json {A}.csv --score p -o c.csv",
        2,
        (f"{A}.csv: column 'p' holds values that are not numbers", "--decimal"),
        then(mapped, no_numbers),
    ),
    Mistake(
        "apply to a file without rows",
        "reports",
        f"apply map.json {A}.csv --score p -o c.csv",
        0,
        (f"{A}.csv: there are no rows below the header", "0 rows"),
        then(mapped, header_only),
    ),
    Mistake(
        "evaluate with a map that falls",
        "reports",
        f"evaluate {A}.csv {{columns}} --calibrator falls.json",
        2,
        ("falls in places", "`fedgauge apply`", "`fedgauge calibrate --method auto`"),
        falling,
    ),
    Mistake(
        "a damaged map",
        "reports",
        f"apply map.json {A}.csv --score p -o c.csv",
        2,
        ("map.json: this is not a fedgauge map",),
        then(mapped, cut("map.json")),
    ),
    # Local reports
    Mistake(
        "encode scores in percent",
        "reports",
        encoded(A),
        0,
        ("59 clipped", f"{A}.csv: 59 of 60 scores", "convert the scores"),
        percent,
    ),
    Mistake(
        "encode a file without rows",
        "reports",
        encoded(A),
        0,
        ("Counted 0 rows", f"{A}.csv: there are no rows that count", "Check the export"),
        header_only,
    ),
    Mistake(
        "encode labels that the plan does not know",
        "reports",
        encoded(A),
        0,
        (f"{A}.csv: 60 of 60 labels", "none of 60 rows are positive", "fedgauge plan --positive"),
        words,
    ),
    Mistake(
        "encode twice",
        "reports",
        encoded(A),
        1,
        (f"{A}.fgr exists", "Send those reports again"),
        then(encoded(A)),
    ),
    Mistake(
        "intake of a cut file",
        "reports",
        f"intake reports.toml {A}.fgr {B}.fgr",
        1,
        (f"{A}.fgr: 1 message refused", "incomplete", "copy it again", "0 reports"),
        then(many(B), encoded(A), encoded(B), cut(f"{A}.fgr")),
    ),
    Mistake(
        "intake of reports of another plan",
        "reports",
        f"intake other.toml {A}.fgr {B}.fgr",
        1,
        (f"{A}.fgr: 1 message refused", "of another plan", "Name the plan"),
        then(many(B), encoded(A), f"encode other.toml {B}.csv {{columns}} -o {B}.fgr"),
    ),
    Mistake(
        "intake of an empty folder",
        "reports",
        f"intake reports.toml {A}",
        2,
        (f"there is no .fgr file in {A}", "fedgauge encode"),
    ),
    # Local reports in two rounds
    Mistake(
        "two rounds without a site file",
        "reports",
        f"encode two.toml {A}.csv {{columns}} -o {A}.fgr",
        2,
        ("reported in one of them", "(--site)", "fedgauge site init"),
    ),
    Mistake(
        "the first round encoded twice",
        "reports",
        f"encode two.toml {A}.csv {{columns}} {{a}} -o again.fgr",
        2,
        ("reports of the first round", "Send that file again", "fedgauge find-bins"),
        then(first_round(A)),
    ),
    Mistake(
        "a result of the first round",
        "reports",
        f"intake two.toml {A}.fgr --json result.json",
        2,
        ("no result", "Leave out --json"),
        then(first_round(A)),
    ),
    Mistake(
        "bins of no reports",
        "reports",
        "find-bins two.toml {boss} -o second.json",
        2,
        ("no reports yet",),
    ),
    Mistake(
        "bins of a plan with one round",
        "reports",
        "find-bins reports.toml {boss} -o second.json",
        2,
        ("reports.toml is no plan of two rounds", "Name the plan"),
    ),
    Mistake(
        "bins written over rows",
        "reports",
        f"find-bins two.toml {{boss}} -o {A}.csv",
        2,
        (f"{A}.csv exists and is no plan of a second round", "--out"),
    ),
    Mistake(
        "a second plan signed by a stranger",
        "reports",
        second_round(A),
        2,
        ("ed25519:", "not approved here", "coordinators"),
        bins_found(B),
    ),
    Mistake(
        "a second round without the first",
        "reports",
        second_round(B),
        2,
        ("no reports of the first round", "make those first"),
        bins_found("consortium"),
    ),
    Mistake(
        "a second plan that is not signed",
        "reports",
        second_round(A, "plain.json"),
        2,
        ("as its intake signed it", "fedgauge find-bins"),
        then(bins_found("consortium"), unsigned),
    ),
    Mistake(
        "rows in another order in the second round",
        "reports",
        second_round(A),
        2,
        ("not in the same order", "reported twice", "as it was then"),
        then(bins_found("consortium"), turned_round),
    ),
    Mistake(
        "the second round encoded twice",
        "reports",
        f"encode second.json {A}.csv {{columns}} {{a}} -o again.fgr",
        2,
        ("reports of the second round", "Send that file again"),
        then(bins_found("consortium"), second_round(A)),
    ),
    Mistake(
        "reports that come after the bins were found",
        "reports",
        f"intake two.toml {B}.fgr",
        1,
        (f"{B}.fgr: 1 message refused", "closed", "after `fedgauge find-bins`", "second"),
        then(bins_found("consortium"), first_round(B)),
    ),
    Mistake(
        "reports of the first round taken in as of the second",
        "reports",
        f"intake second.json {A}.fgr",
        2,
        (f"{A}.fgr: 1 message refused", "of another plan", "Name the plan"),
        bins_found("consortium"),
    ),
    # Sites and ledgers
    Mistake(
        "trust in half a key",
        "reports",
        "site trust partner ed25519:abc {a}",
        2,
        ("a public key is 'ed25519:' and 43", "fedgauge site show"),
    ),
    Mistake(
        "init where a site is",
        "reports",
        f"site init --name x --dataset d {A}",
        2,
        (f"{A}/site.toml exists", "another folder"),
    ),
    Mistake(
        "a witness in a folder that is not there",
        "reports",
        "site witness nowhere/b.head {b}",
        1,
        ("no folder", "nowhere for the witness", "make the folder"),
    ),
    Mistake(
        "a log into a folder that is not there",
        "reports",
        "site log --csv nowhere/left.csv {a}",
        2,
        ("nowhere/left.csv", "in a folder that is there"),
    ),
    Mistake(
        "a log over a file",
        "reports",
        f"site log --csv {A}.csv {{a}}",
        2,
        (f"{A}.csv exists", "Name another file"),
    ),
    Mistake(
        "release of what is not there",
        "reports",
        "ledger release 0badc0de {a}",
        1,
        ("0badc0de", "fedgauge ledger pending"),
    ),
    # The caller's own data, and so its labels
    Mistake(
        "another spelling of the positive label",
        "reports",
        f"evaluate {A}.csv {B}.csv {{columns}} --positive Zebra",
        2,
        ("21 of 60 labels", "which no row has", "of all files together has 'okapi', 'zebra'"),
        then(words, rewritten(lambda y, p: f"{LABELS[int(y)]},{p}", B)),
        names_labels=True,
    ),
    Mistake(
        "a column of anything for the label",
        "reports",
        f"evaluate {A}.csv --label p --score p2 --positive 1",
        2,
        ("60 labels", "Column 'p' has more than 5 different values"),
        lambda world: (world.folder / f"{A}.csv").write_text(
            "p,p2\n" + "".join(f"{0.1234 + i},0.5\n" for i in range(60))
        ),
    ),
]


@pytest.fixture(scope="module")
def scenes():
    """Folders before each step of an evaluation with noise and of one without."""
    with fast_folder() as folder:
        yield {
            "noisy": snapshots(folder / "noisy", NOISY),
            "exact": snapshots(folder / "exact", EXACT),
        }


def folder_at(scenes, at):
    """The folder where a mistake is made.

    `noisy submit answer` is before the first of three sites submits, the others have; `noisy submit
    advance` before the coordinator goes on from there. `noisy over` comes to its result. `reports`
    has plans for local reports, and no exchange under way.
    """
    kind, *step = at.split()
    if kind == "reports":
        return scenes["noisy"][Stage.ADVERTISE, "start"]
    if step == ["over"]:
        return scenes[kind][Stage.OPEN, "advance"]
    verb, moment = step
    (stage,) = [stage for stage in Stage if VERBS[stage] == verb]
    return scenes[kind][stage, moment]


def words_of(command):
    for word, meaning in WORDS.items():
        command = command.replace(word, meaning)
    return shlex.split(command)


def secrets_of(folder):
    """What data files hold: scores, and labels that are words."""
    fields = {
        field
        for path in folder.glob("*.csv")
        for line in path.read_text().splitlines()[1:]
        for field in line.split(",")
    }
    return {field for field in fields if len(field) > 4}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_a_mistake_is_told_with_its_place_and_its_remedy(scenes, monkeypatch, mistake):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    with copied(folder_at(scenes, mistake.at)) as world:
        monkeypatch.chdir(world.folder)
        REPORTS.save("reports.toml")
        OTHER_REPORTS.save("other.toml")
        TWO_ROUNDS.save("two.toml")
        if mistake.at.endswith("over"):
            world.advance(world.run)
        mistake.before(world)
        secrets = secrets_of(world.folder) | {SCORE}
        done = run(*words_of(mistake.command), columns=1000)  # a crash fails the test
        said = done.stdout + done.stderr
        assert done.exit_code == mistake.code, said
        assert not [part for part in mistake.told if part not in said], said
        assert "Traceback" not in said
        if mistake.code:
            assert done.stderr.startswith("fedgauge: ") or "efuse" in done.stdout
        if not mistake.names_labels:
            assert not [secret for secret in secrets if secret in said], said


def test_every_mistake_has_its_name():
    names = [mistake.id for mistake in MISTAKES]
    assert len(names) == len(set(names))
