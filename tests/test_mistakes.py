"""Common mistakes and what they are told: a table, in which a row is a mistake. A row of `TABLE`
says where it is made (in brackets above), what spoils something before (in parentheses, or under
the row's name in `BEFORE`), the command, how that ends, and what the message must hold: the file or
the option, how many rows or sites where some are concerned, and what helps. No message may quote a
score or a label of the data, and none is a traceback."""

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from commands import run
from consortium import A, B, C
from exchange import EXACT, NOISY, copied, snapshots
from forks import fast_folder

import fedgauge as fg
from fedgauge.engines.participant import STEPS
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
    **{"{A}": A, "{B}": B, "{C}": C},
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
    before: Callable
    names_labels: bool


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


def meant(text):
    for word, meaning in WORDS.items():
        text = text.replace(word, meaning)
    return text


def words_of(command):
    return shlex.split(meant(command))


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
    def before(world):
        weekly(world)
        (world.folder / "weekly" / to).write_bytes((world.folder / name).read_bytes())

    return before


def cut_week(world):
    weekly(world)
    path = world.folder / "weekly/2026-W02.json"
    path.write_bytes(path.read_bytes()[:-40])


BEFORE = {
    "weekly": weekly,
    "cut_week": cut_week,
    "clinic": clinic,
    "header_only": header_only,
    "without_header": without_header,
    "falling": falling,
    "percent": percent,
    "one_class": one_class,
    "words": words,
    "no_numbers": no_numbers,
    "third_label": third_label,
    "a folder of looks without any": made("empty/notes.txt"),
    "plans for looks": lambda world: (made("plans/x")(world), REPORTS.save("plans/plan.toml")),
    "the same look twice": beside("weekly/2026-W01.json", "2026-W09.json"),
    "looks on bins that have nothing in common": beside("other-bins.json", "2026-W04.json"),
    "looks of another positive label": beside("other-label.json", "2026-W04.json"),
    "looks of which one has several classes": beside("classes.json", "2026-W04.json"),
    "looks of which some have no date": beside("other-bins.json", "latest.json"),
    "sliced by sex": sliced(by_sex),
    "groups that are written otherwise": sliced(
        by_sex, lambda number: (number % 2, 0.25, 0.75, LABELS[number % 2])
    ),
    "one group that is written otherwise": sliced(
        by_sex, lambda number: (number % 2, 0.25, 0.75, ("men", "F")[number % 2])
    ),
    "sliced by pets": sliced(of_pets),
    "classes that the plan does not list": sliced(
        of_pets, lambda number: (0, 0.25, 0.75, ("cat", "emu")[number % 2])
    ),
    "class scores that are swapped": sliced(
        of_pets,
        lambda number: (0, *((0.2, 0.8, "cat") if number % 2 else (0.9, 0.1, "dog"))),
    ),
    "scores of one class in percent": sliced(
        of_signs, lambda number: (number % 2, 0.25, 75, number % 2)
    ),
    "a label that nobody named": sliced(of_signs),
    "sliced by models": sliced(of_models),
    "ids apart with leading zeros": platform([f"00{row}" for row in bought]),
    "ids apart of another kind": platform([f"{LABELS[0]}-{row}" for row in bought]),
    "ids apart that come twice": platform(bought + bought[:3]),
    "an id apart that is missing": platform([*bought, ",1"]),
    "labels apart that are words": platform(
        [f"{number},{LABELS[number % 2]}" for number in range(100, 140)]
    ),
    "platform": platform(bought),
    "labels apart below a header alone": platform([]),
    "scores apart that are no numbers": platform(bought, score=LABELS[1]),
    "a cut invitation": cut("run/invitation.fgx"),
    "an empty invitation": made("run/invitation.fgx"),
    "a cut request": cut(f"run/3-*{A}.request.fgx"),
    "a cut reply": cut(f"run/3-*{A}.reply.fgx"),
    "submit a file that is gone": gone(f"{A}.csv"),
    "start with fewer sites than the plan needs": then(
        "plan --clients 9 --examples 6000 --positive-rate 0.3 --epsilon 1 -o many.toml"
    ),
    "result and map": then(mapped, f"evaluate {B}.csv {{columns}} --json r.json"),
    "apply to scores in percent": then(mapped, percent),
    "apply where scores are missing": then(mapped, no_scores),
    "apply to text": then(mapped, no_numbers),
    "apply to a file without rows": then(mapped, header_only),
    "a damaged map": then(mapped, cut("map.json")),
    "encode twice": then(encoded(A)),
    "intake of a cut file": then(many(B), encoded(A), encoded(B), cut(f"{A}.fgr")),
    "intake of reports of another plan": then(
        many(B), encoded(A), f"encode other.toml {B}.csv {{columns}} -o {B}.fgr"
    ),
    "first round": then(first_round(A)),
    "a second plan signed by a stranger": bins_found(B),
    "bins": bins_found("consortium"),
    "a second plan that is not signed": then(bins_found("consortium"), unsigned),
    "rows in another order in the second round": then(bins_found("consortium"), turned_round),
    "the second round encoded twice": then(bins_found("consortium"), second_round(A)),
    "reports that come after the bins were found": then(bins_found("consortium"), first_round(B)),
    "another spelling of the positive label": then(
        words, rewritten(lambda y, p: f"{LABELS[int(y)]},{p}", B)
    ),
    "a column of anything for the label": lambda world: (world.folder / f"{A}.csv").write_text(
        "p,p2\n" + "".join(f"{0.1234 + i},0.5\n" for i in range(60))
    ),
}
# Labels are the caller's own, and may be named.
NAME_LABELS = {"labels apart that are words", "another spelling of the positive label"}
TABLE = """
[reports]
a folder of looks that is not there (weekly) $ trend weeks -> 2
    weeks | no such
a folder of looks without any $ trend empty -> 2
    empty holds no result | --json
plans for looks $ trend plans -> 2
    plans holds no result
the same look twice $ trend weekly -> 2
    2026-W01 and 2026-W09 are the same result | leave one of them out
looks on bins that have nothing in common $ trend weekly -> 2
    no bin edge in common | by the same plan
looks of another positive label $ trend weekly -> 2
    count different labels as positive | 2026-W04
looks of which one has several classes $ trend weekly -> 2
    2026-W04 is of several classes | --class
looks of which some have no date $ trend weekly -> 2
    latest has no date in its name | 2026-11-16.json
a trend as a picture (weekly) $ trend weekly -o trend.png -> 2
    ends in .html, .json, .csv
a trend over a result (weekly) $ trend weekly -o weekly/2026-W01.json -> 2
    is no trend of fedgauge | Name another place
a threshold that is no number (weekly) $ trend weekly --at nan -> 2
    threshold
a rate of alarms in percent (weekly) $ trend weekly --rate 5 -> 2
    rate must lie above 0 and up to 0.5
a result and itself (weekly) $ diff weekly/2026-W01.json weekly/2026-W01.json -> 2
    both are the same result | Name two
results of different labels (weekly) $ diff weekly/2026-W01.json other-label.json -> 2
    count different labels as positive | Evaluate one of them again
results of which one has several classes (weekly) $ diff weekly/2026-W01.json classes.json -> 2
    classes is of several classes | Choose one | --class
a look that was cut short (cut_week) $ trend weekly -> 1
    weekly/2026-W02.json | truncated
a plan for a result $ diff reports.toml reports.toml -> 1
    reports.toml
a plan for a report $ report reports.toml -o r.html -> 1
    reports.toml
a report over a file of rows (weekly) $ report weekly/2026-W01.json -o {A}.csv -> 2
    {A}.csv exists and is no report of fedgauge
a column of groups that nobody named (sliced by sex)
    $ exchange check sliced rows.csv --label y --score p {a} -> 2
    rows.csv | groups by sex | no column of that name | --group sex=COLUMN
groups in the place of their column (sliced by sex)
    $ exchange check sliced rows.csv --label y --score p --group sex=women,men {a} -> 2
    --group sex= takes one column, got 2 | The plan says which values
groups that are written otherwise
    $ exchange check sliced rows.csv --label y --score p --group sex=gender {a} -> 0
    rows.csv: 200 of 200 rows | no listed group of sex | spells groups as the
one group that is written otherwise
    $ exchange check sliced rows.csv --label y --score p --group sex=gender {a} -> 0
    100 of 200 rows are of no listed group of sex, and none are of women
one score for two classes (sliced by pets)
    $ exchange check sliced rows.csv --label gender --score p {a} -> 2
    the plan has cat, dog | --class-scores cat=COLUMN,dog=COLUMN
one column for two classes (sliced by pets)
    $ exchange check sliced rows.csv --label gender --class-scores cat=p,dog=p {a} -> 2
    one column cannot be two things, and 'p' is named more than once
classes that the plan does not list
    $ exchange check sliced rows.csv --label gender --class-scores cat=p,dog=q {a} -> 1
    Refuses it | 100 of 200 labels are none of the plan's classes | first class
class scores that are swapped
    $ exchange check sliced rows.csv --label gender --class-scores cat=p,dog=q {a} -> 1
    the scores of cat, dog look swapped | which column belongs to
scores of one class in percent
    $ exchange check sliced rows.csv --label fever=y,cough=gender
        --class-scores fever=p,cough=q {a} -> 0
    200 of 400 scores lie beyond the axis | from 0 to 1, so percent
a label that nobody named
    $ exchange check sliced rows.csv --label y --class-scores fever=p,cough=q {a} -> 2
    several labels a row | --label fever=COLUMN,cough=COLUMN
a model that nobody named (sliced by models)
    $ exchange check sliced rows.csv --label y --model-score new=p {a} -> 2
    --model-score lacks old | --model-score new=COLUMN --model-score old=COLUMN
a column without its name (sliced by models)
    $ exchange check sliced rows.csv --label y --model-score p {a} -> 2
    --model-score takes a name and what belongs to it | got 'p'
ids apart with leading zeros $ vertical evaluate scores.csv shop.csv --id user {columns} -> 2
    no label of party 'shop' has a score | 40 would | without leading zeros
ids apart of another kind $ vertical evaluate scores.csv shop.csv --id user {columns} -> 2
    its ids are text, those of the scores whole numbers | the same ids
ids apart that come twice $ vertical evaluate scores.csv shop.csv --id user {columns} -> 2
    3 of 43 labels have an id that another label has at the same party
an id apart that is missing $ vertical evaluate scores.csv shop.csv --id user {columns} -> 2
    shop.csv: 1 id is missing (empty, null or NaN) | drop these rows
labels apart that are words $ vertical evaluate scores.csv shop.csv --id user {columns} -> 2
    40 of 40 labels are neither bool nor 0/1 | --positive LABEL
labels apart in the place of scores (platform)
    $ vertical evaluate shop.csv scores.csv --id user {columns} -> 2
    shop.csv: there is no column 'p' | Name the file of scores first
labels apart below a header alone $ vertical evaluate scores.csv shop.csv --id user {columns} -> 2
    shop.csv: there are no rows in it
scores apart that are no numbers $ vertical evaluate scores.csv shop.csv --id user {columns} -> 2
    scores.csv: column 'p' holds values that are not numbers | --decimal
labels apart that are named twice (platform)
    $ vertical evaluate scores.csv shop.csv ./shop.csv --id user {columns} -> 2
    shop.csv is given twice
a group without its values (clinic) $ evaluate clinic.csv --label y --score new --group sex -> 2
    --group sex needs the groups | --group sex=women,men | has 'men', 'women'
groups that are all misspelt (clinic)
    $ evaluate clinic.csv --label y --score new --group sex=Women,Men -> 2
    column 'sex' | all are in 'other' | Check the spelling | has 'men', 'women'
a group named other (clinic)
    $ evaluate clinic.csv --label y --score new --group sex=women,other -> 2
    'other' is what rows of no listed group are in. Leave it out
groups by a column that is not there (clinic)
    $ evaluate clinic.csv --label y --score new --group ward=a,b -> 2
    clinic.csv: there is no column 'ward' | The columns are 'y', 'sex'
one grouping crossed (clinic)
    $ evaluate clinic.csv --label y --score new --group sex=women,men --crossed -> 2
    only two or more groupings can be crossed | Leave out --crossed
a single class (clinic) $ evaluate clinic.csv --label kind --class-scores flu=new -> 2
    --class-scores names one class | Name all of them | is --score
classes without columns (clinic) $ evaluate clinic.csv --label kind --class-scores flu,cold -> 2
    --class-scores takes pairs | such as cat=p1,dog=p2
labels that match no class (clinic)
    $ evaluate clinic.csv --label y --class-scores flu=new,cold=old -> 2
    9 of 9 labels are none of the task's classes | Column 'y' has '0', '1'
a class that is not named (clinic)
    $ evaluate clinic.csv --label kind --class-scores flu=new,cold=old -> 2
    3 of 9 labels are none | Name all of them | Column 'kind' also has 'well'
scores named in two ways (clinic)
    $ evaluate clinic.csv --label kind --score new --class-scores flu=new,cold=old -> 2
    --score and --class-scores both name scores | Use one
scores named in no way (clinic) $ evaluate clinic.csv --label y -> 2
    which column is the score? | --class-scores | --model-score
a positive label among classes (clinic)
    $ evaluate clinic.csv --label kind --positive flu --class-scores flu=new,cold=old -> 2
    --positive is for two classes | Leave it out
a single model (clinic) $ evaluate clinic.csv --label y --model-score new=new -> 2
    --model-score names one model | --score COLUMN
two columns for a model (clinic)
    $ evaluate clinic.csv --label y --model-score a=new,old --model-score b=old -> 2
    --model-score a= names 2 columns | one score
a margin without models (clinic) $ evaluate clinic.csv --label y --score new --margin 0.01 -> 2
    --margin is for two models | Leave it out
a pair of one model (clinic)
    $ evaluate clinic.csv --label y --model-score a=new --model-score b=old --pair a -> 2
    --pair names two of the models, such as new,old
a table that there is not (clinic)
    $ evaluate clinic.csv --label kind --class-scores flu=new,cold=old,well=y --also matrix -> 2
    --also names each once, of: confusion, ranks, top
tables of two classes (clinic) $ evaluate clinic.csv --label y --score new --also confusion -> 2
    --also is for several classes | leave it out
local reports of scores together (clinic)
    $ evaluate clinic.csv --label y --model-score a=new --model-score b=old --pair a,b
        --privacy ldp --epsilon 5 -> 2
    about one score at a time | Leave out --pair | use --privacy ddp
score sums by group (clinic)
    $ evaluate clinic.csv --label y --score new --group sex=women,men --score-sums -> 2
    score sums are for one score | Leave out --score-sums
a rate of several scores (clinic)
    $ evaluate clinic.csv --label y --model-score a=new --model-score b=old --at-fpr 0.1 -> 2
    choose a threshold for one score | --model NAME | --at
labels and scores of other names (clinic)
    $ evaluate clinic.csv --label fever=y,cough=y --class-scores fever=new,cold=old -> 2
    --class-scores does not name 'cough', which --label has | fever, cough
a group that nobody is in (clinic)
    $ evaluate clinic.csv --label y --score new --group sex=women,divers -> 0
    warning: no row is of group 'divers' of column 'sex' | has 'men', 'women'
a plan of one class $ plan --clients 9 --epsilon 1 --classes a -> 2
    --classes names one
a plan of one model $ plan --clients 9 --epsilon 1 --models a -> 2
    --models names one
a plan of classes and labels $ plan --clients 9 --epsilon 1 --classes a,b --labels c,d -> 2
    --classes are those of which a row has one | Use one
a plan whose small cells show $ plan --clients 9 --privacy sa --classes a,b --also confusion -> 2
    cannot be merged | --privacy ddp | --min-cell 0
a want of slices $ plan --clients 9 --epsilon 1 --models a,b --want 0.01 -> 2
    --want is for one score and all rows
a plan by a group without values $ plan --clients 9 --epsilon 1 --group sex -> 2
    --group takes a name and what belongs to it, such as sex=women,men
nothing wanted $ plan --clients 9 --epsilon 1 --want '' -> 2
    --want is written like 0.001 | got ''
no width wanted $ plan --clients 9 --epsilon 1 --want recall@0.5 -> 2
    recall@0.5=0.02 or ece=0.01
no number wanted $ plan --clients 9 --epsilon 1 --want recall@half=0.1 -> 2
    got 'recall@half=0.1'
percent wanted $ plan --clients 9 --epsilon 1 --want recall@0.5=2% -> 2
    --want is written like
another word for recall wanted $ plan --clients 9 --epsilon 1 --want sensitivity@0.5=0.02 -> 2
    --want is for roc, ece or | precision, recall | got 'sensitivity'
recall of no threshold wanted $ plan --clients 9 --epsilon 1 --want recall=0.02 -> 2
    recall has a threshold | --want recall@0.5=0.02
calibration at a threshold wanted $ plan --clients 9 --epsilon 1 --want ece@0.5=0.01 -> 2
    expected_calibration_error has no threshold | leave it out
a threshold in percent wanted $ plan --clients 9 --epsilon 1 --want recall@50=0.02 -> 2
    a threshold lies between the ends of the axis, 0 and 1, got 50
a width in percent wanted $ plan --clients 9 --epsilon 1 --want recall@0.5=2 -> 2
    a wanted half-width lies between 0 and 0.5, got 2
calibration of logits wanted $ plan --clients 9 --privacy sa --range -8 8 --want ece=0.01 -> 2
    need probabilities | from -8 to 8
an exact curve wanted $ plan --clients 9 --privacy sa --want 0.001 -> 2
    --want needs --privacy ddp or ldp | Use more --bins

[noisy join answer]
status in a folder that is not there $ exchange status nowhere {a} -> 1
    there is no folder nowhere | invitation.fgx | coordinator
advance in a folder that is not there $ exchange advance nowhere {boss} -> 1
    there is no folder nowhere | invitation.fgx | coordinator
review in a folder that is not there $ exchange review nowhere {a} -> 1
    there is no folder nowhere | invitation.fgx | coordinator
approve in a folder that is not there $ exchange approve nowhere --evaluation {id} --key k {a} -> 1
    there is no folder nowhere | invitation.fgx | coordinator
abandon in a folder that is not there $ exchange abandon nowhere {a} -> 1
    there is no folder nowhere | invitation.fgx | coordinator
restart in a folder that is not there $ exchange restart nowhere new {boss} -> 1
    there is no folder nowhere | invitation.fgx | coordinator
join in a folder that is not there $ exchange join nowhere {A}.csv {columns} {a} -> 1
    there is no folder nowhere | invitation.fgx | coordinator
check in a folder that is not there $ exchange check nowhere {A}.csv {columns} {a} -> 1
    there is no folder nowhere | invitation.fgx | coordinator
status of a file $ exchange status {A}.csv {a} -> 1
    {A}.csv is no folder | Name the one that holds invitation.fgx
status of another folder $ exchange status {A} {a} -> 1
    there is no invitation.fgx in {A} | Get it from the coordinator
a folder as a site file $ exchange status run --site {A} -> 2
    {A} is a folder | Name the site file in it | {A}/site.toml
no site file $ exchange status run -> 2
    there is no site file | site.toml | --site | fedgauge site init

[noisy share answer]
a site that was not invited $ exchange share run {boss} -> 2
    site 'consortium' is not among those invited to run | --site

[noisy join answer]
join by the site that started it $ exchange join run {A}.csv {columns} {boss} -> 2
    site 'consortium' started this evaluation | --site
check by the site that started it $ exchange check run {A}.csv {columns} {boss} -> 1
    site 'consortium' started this evaluation | --site
approve by the site that started it
    $ exchange approve run --evaluation {id} --key {A}/site.key {boss} -> 2
    site 'consortium' started this evaluation | --site
abandon by a site that never joined $ exchange abandon run {a} -> 1
    site '{A}' did not join the evaluation in run | --site
restart by a site $ exchange restart run new {a} -> 1
    site '{A}' did not start this exchange | --site
restart without a stranger $ exchange restart run new --without nobody {boss} -> 1
    nobody was not invited | --without | It has {A}, {B}, {C}
approve with a key that is not there
    $ exchange approve run --evaluation {id} --key officer.key {a} -> 2
    there is no key file officer.key | fedgauge site approver
a cut invitation $ exchange status run {a} -> 1
    run/invitation.fgx | incomplete | Copy it again
an empty invitation $ exchange join run {A}.csv {columns} {a} -> 1
    run/invitation.fgx | incomplete | Copy it again

[noisy submit answer]
a cut request $ exchange submit run {a} -> 1
    {A}.request.fgx | incomplete | Copy it again

[noisy submit advance]
a cut reply $ exchange advance run {boss} -> 1
    waits for {A} to submit | {A}.reply.fgx: this is incomplete | Copy it again | wait.

[noisy join answer]
evidence that is none $ exchange evidence run/invitation.fgx {a} -> 1
    run/invitation.fgx as evidence | Copy it again
evidence that is not there $ exchange evidence evidence.fgx {a} -> 1
    there is no file evidence.fgx | Check its name
check of scores in percent (percent) $ exchange check run {A}.csv {columns} {a} -> 0
    {A}.csv: 59 of 60 scores | from 0 to 1 | convert the scores
check of a file without rows (header_only) $ exchange check run {A}.csv {columns} {a} -> 0
    {A}.csv: there are no rows that count | 0 rows | Check the export
check of labels that the plan does not know (words) $ exchange check run {A}.csv {columns} {a} -> 0
    {A}.csv: none of 60 rows are positive | recode | fedgauge plan --positive | (labels)

[exact join answer]
check of rows that an exact sum refuses (words) $ exchange check run {A}.csv {columns} {a} -> 1
    These rows would be refused | {A}.csv: 60 of 60 labels | fedgauge plan --positive

[noisy join answer]
join with a column that is not there $ exchange join run {A}.csv --label outcome --score p {a} -> 2
    {A}.csv | no column 'outcome' | The columns are 'y', 'p'
join with a file without a header (without_header) $ exchange join run {A}.csv {columns} {a} -> 2
    {A}.csv | add a row with the names of the columns
join with text for scores (no_numbers) $ exchange join run {A}.csv {columns} {a} -> 2
    {A}.csv | column 'p' | Check which column holds the score

[exact join answer]
join an exact sum with odd labels (third_label) $ exchange join run {A}.csv {columns} {a} -> 0
    {A}.csv: 36 of 60 labels | an exact sum stops at them | Correct the file

[noisy submit answer]
submit scores in percent (percent) $ exchange submit run {a} -> 0
    59 clipped | {A}.csv: 59 of 60 scores | convert the scores
submit one class (one_class) $ exchange submit run {a} -> 0
    0 positive | {A}.csv: none of 60 rows are positive | Check the label column
submit a file without rows (header_only) $ exchange submit run {a} -> 0
    Counted 0 rows | {A}.csv: there are no rows that count | Check the export
submit a file that is gone $ exchange submit run {a} -> 2
    {A}.csv: there is no such file | Check its name and folder

[exact submit answer]
submit other rows in an exact sum (words) $ exchange submit run {a} -> 2
    {A}.csv: 60 of 60 labels | fedgauge plan --positive LABEL | (labels)

[noisy share answer]
submit before its round $ exchange submit run {a} -> 1
    no request to submit | in run yet | fedgauge exchange advance

[noisy submit advance]
submit twice (percent) $ exchange submit run {a} -> 0
    first input stands | {A}.reply.fgx | fedgauge exchange abandon run --site {A}
submit another file $ exchange submit run {B}.csv {columns} {a} -> 1
    joined with | {A}.csv | the first input stands | fedgauge exchange abandon

[noisy submit answer]
submit another file than was named at join $ exchange submit run {B}.csv {columns} {a} -> 1
    joined with | {A}.csv | join again | fedgauge exchange join

[noisy join answer]
join with a semicolon where commas stand
    $ exchange join run {A}.csv {columns} --separator ; {a} -> 2
    {A}.csv | one column that holds ',' | --separator
start with fewer sites than the plan needs $ exchange start many.toml new {boss} -> 2
    needs 7 | fedgauge site trust | --min-survivors
explain a folder $ explain run -> 2
    run is a folder | invitation.fgx

[noisy reveal answer]
advance where one did not reveal $ exchange advance run {boss} -> 1
    waits for {A} to reveal | 3 of 3 are needed | All sites have spent their budget | wait.
advance without who did not reveal $ exchange advance run --without-missing {boss} -> 1
    2 shares | 3 are needed | nothing is lost | wait. | Missing: {A}
restart where one did not reveal $ exchange restart run again --without {A} {boss} -> 1
    3 sites have spent epsilon 1, delta 1 in | on the attempt in run | waiting costs nothing | --yes

[noisy submit advance]
abandon after submit $ exchange abandon run {a} -> 1
    {A} sent its numbers | Waiting costs nothing | --yes

[noisy confirm answer]
abandon by the coordinator once all have paid $ exchange abandon run {boss} -> 1
    3 sites have spent budget on the attempt in run | Waiting costs nothing | --yes

[noisy over]
join when it is over $ exchange join run {A}.csv {columns} {a} -> 1
    the evaluation in run is finished | cost nothing | run/result.json
check when it is over $ exchange check run {A}.csv {columns} {a} -> 1
    the evaluation in run is finished | cost nothing | run/result.json
submit when it is over $ exchange submit run {a} -> 1
    the evaluation in run is finished | cost nothing | run/result.json
approve when it is over $ exchange approve run --evaluation {id} --key {A}/site.key {a} -> 1
    the evaluation in run is finished | cost nothing | run/result.json

[noisy submit advance]
check after submit $ exchange check run {A}.csv {columns} {a} -> 1
    site '{A}' has submitted | first input stands | new invitation

[noisy over]
restart when it is over $ exchange restart run again --without {A} {boss} -> 1
    3 sites have spent epsilon 1 | It is finished: its result is run/result.json | --yes
review when it is over $ exchange review run {a} -> 0
    It is finished: its result is run/result.json

[reports]
apply with a result for a map (result and map) $ apply r.json {A}.csv --score p -o c.csv -> 2
    r.json: this is a result, not a map | fedgauge calibrate
evaluate with a result for a map (result and map)
    $ evaluate {A}.csv {columns} --calibrator r.json -> 2
    r.json: this is a result, not a map | fedgauge calibrate
calibrate with a map for a result (result and map) $ calibrate map.json -o new.json -> 1
    map.json: this is a map | not a result | fedgauge evaluate --json
calibrate with a file of rows to write to (result and map) $ calibrate r.json -o {A}.csv -> 2
    {A}.csv exists and is no map | --out
calibrate with a method that does not exist (result and map)
    $ calibrate r.json --method magic -o new.json -> 2
    'magic' | auto, beta, isotonic
evaluate with a map of percentages (result and map)
    $ evaluate {A}.csv {columns} --calibrator map.json --range 0 100 -> 2
    a map makes probabilities | from 0 to 100 | divide percentages by 100
apply with a file of rows to write to (result and map)
    $ apply map.json {A}.csv --score p -o {B}.csv -> 2
    {B}.csv exists | rows are not overwritten | --out
apply with a file to be mapped in place (result and map)
    $ apply map.json {A}.csv --score p -o {A}.csv -> 2
    {A}.csv exists | --out
apply with a column that is not there (result and map)
    $ apply map.json {A}.csv --score risk -o c.csv -> 2
    {A}.csv: there is no column 'risk' | The columns are 'y', 'p'
apply with a column that is there (result and map)
    $ apply map.json {A}.csv --score p --column-out y -o c.csv -> 2
    {A}.csv: there is a column 'y' already | --column-out | --replace
apply with a new column in place of the old (result and map)
    $ apply map.json {A}.csv --score p --column-out q --replace -o c.csv -> 2
    --replace adds no column | --column-out
apply with a target of another format (result and map)
    $ apply map.json {A}.csv --score p -o c.parquet -> 2
    rows of a .csv file | c.parquet
apply with a map that is not there (result and map) $ apply no.json {A}.csv --score p -o c.csv -> 2
    cannot read no.json | fedgauge calibrate
apply with a file that is not there (result and map) $ apply map.json no.csv --score p -o c.csv -> 2
    no.csv: there is no such file | Check its name
apply to scores in percent $ apply map.json {A}.csv --score p -o c.csv -> 2
    {A}.csv: rows 1 to 60: 59 of 60 scores lie outside 0 to 1 | by 100
apply where scores are missing $ apply map.json {A}.csv --score p -o c.csv -> 2
    {A}.csv: rows 1 to 60: 36 of 60 scores are missing | Drop these rows
apply to text $ apply map.json {A}.csv --score p -o c.csv -> 2
    {A}.csv: column 'p' holds values that are not numbers | --decimal
apply to a file without rows $ apply map.json {A}.csv --score p -o c.csv -> 0
    {A}.csv: there are no rows below the header | 0 rows
evaluate with a map that falls (falling) $ evaluate {A}.csv {columns} --calibrator falls.json -> 2
    falls in places | `fedgauge apply` | `fedgauge calibrate --method auto`
a damaged map $ apply map.json {A}.csv --score p -o c.csv -> 2
    map.json: this is not a fedgauge map
encode scores in percent (percent) $ encode reports.toml {A}.csv {columns} -o {A}.fgr -> 0
    59 clipped | {A}.csv: 59 of 60 scores | convert the scores
encode a file without rows (header_only) $ encode reports.toml {A}.csv {columns} -o {A}.fgr -> 0
    Counted 0 rows | {A}.csv: there are no rows that count | Check the export
encode labels that the plan does not know (words)
    $ encode reports.toml {A}.csv {columns} -o {A}.fgr -> 0
    {A}.csv: 60 of 60 labels | none of 60 rows are positive | fedgauge plan --positive
encode twice $ encode reports.toml {A}.csv {columns} -o {A}.fgr -> 1
    {A}.fgr exists | Send those reports again
intake of a cut file $ intake reports.toml {A}.fgr {B}.fgr -> 1
    {A}.fgr: 1 message refused | incomplete | copy the whole file again | 0 reports
intake of reports of another plan $ intake other.toml {A}.fgr {B}.fgr -> 1
    {A}.fgr: 1 message refused | of another plan | Name the plan
intake of an empty folder $ intake reports.toml {A} -> 2
    there is no .fgr file in {A} | fedgauge encode
two rounds without a site file $ encode two.toml {A}.csv {columns} -o {A}.fgr -> 2
    reported in one of them | (--site) | fedgauge site init
the first round encoded twice (first round)
    $ encode two.toml {A}.csv {columns} {a} -o again.fgr -> 2
    reports of the first round | Send that file again | fedgauge find-bins
a result of the first round (first round) $ intake two.toml {A}.fgr --json result.json -> 2
    no result | Leave out --json
bins of no reports $ find-bins two.toml {boss} -o second.json -> 2
    no reports yet
bins of a plan with one round $ find-bins reports.toml {boss} -o second.json -> 2
    reports.toml is no plan of two rounds | Name the plan
bins written over rows $ find-bins two.toml {boss} -o {A}.csv -> 2
    {A}.csv exists and is no plan of a second round | --out
a second plan signed by a stranger
    $ encode second.json {A}.csv {columns} --site {A}/site.toml -o {A}-2.fgr -> 2
    ed25519: | not approved here | coordinators
a second round without the first (bins)
    $ encode second.json {B}.csv {columns} --site {B}/site.toml -o {B}-2.fgr -> 2
    no reports of the first round | make those first
a second plan that is not signed
    $ encode plain.json {A}.csv {columns} --site {A}/site.toml -o {A}-2.fgr -> 2
    as its intake signed it | fedgauge find-bins
rows in another order in the second round
    $ encode second.json {A}.csv {columns} --site {A}/site.toml -o {A}-2.fgr -> 2
    not in the same order | reported twice | as it was then
the second round encoded twice $ encode second.json {A}.csv {columns} {a} -o again.fgr -> 2
    reports of the second round | Send that file again
reports that come after the bins were found $ intake two.toml {B}.fgr -> 1
    {B}.fgr: 1 message refused | closed | after `fedgauge find-bins` | second
reports of the first round taken in as of the second (bins) $ intake second.json {A}.fgr -> 2
    {A}.fgr: 1 message refused | of another plan | Name the plan
trust in half a key $ site trust partner ed25519:abc {a} -> 2
    a public key is 'ed25519:' and 48 | fedgauge site show
a key file in place of a card $ consortium create new.fgc {A}/site.key {a} -> 2
    {A}/site.key: this is not a site's card | Check the name
a consortium changed by who coordinates none $ consortium update new.fgc {A}/{A}.card {a} -> 2
    there is no file new.fgc | Check its name
a new key in a folder without a site $ site rekey --site nowhere/site.toml -> 2
    there is no site file | nowhere/site.toml | --site
init where a site is $ site init --name x --dataset d {A} -> 2
    {A}/site.toml exists | another folder
a witness in a folder that is not there $ site witness nowhere/b.head {b} -> 1
    no folder | nowhere for the witness | make the folder
a log into a folder that is not there $ site log --csv nowhere/left.csv {a} -> 2
    nowhere/left.csv | in a folder that is there
a log over a file $ site log --csv {A}.csv {a} -> 2
    {A}.csv exists | Name another file
release of what is not there $ ledger release 0badc0de {a} -> 1
    0badc0de | fedgauge ledger pending
another spelling of the positive label $ evaluate {A}.csv {B}.csv {columns} --positive Zebra -> 2
    21 of 60 labels | which no row has | of all files together has 'okapi', 'zebra'
a column of anything for the label $ evaluate {A}.csv --label p --score p2 --positive 1 -> 2
    60 labels | Column 'p' has more than 5 different values
"""


def mistakes():
    for section in re.split(r"\n\n(?=\[)", TABLE.strip()):
        at, *lines = section.splitlines()
        for row in re.split(r"\n(?! )", "\n".join(lines)):
            head, code, told = re.fullmatch(r"(.*?) -> (\d)\n(.*)", row, flags=re.DOTALL).groups()
            name, command = re.split(r"\s+\$ ", head)
            name, after = re.fullmatch(r"(.*?)(?: \((.*)\))?", name).groups()
            told = [meant(part.strip()) for part in re.split(r" \| |\n", told)]
            before = BEFORE[after] if after else BEFORE.get(name, lambda _: None)
            names_labels = name in NAME_LABELS or before is clinic
            yield Mistake(name, at[1:-1], command, int(code), tuple(told), before, names_labels)


MISTAKES = list(mistakes())


@pytest.fixture(scope="module")
def scenes():
    """Folders before each step of an evaluation with noise and of one without."""
    with fast_folder() as folder:
        yield {
            "noisy": snapshots(folder / "noisy", NOISY),
            "exact": snapshots(folder / "exact", EXACT),
        }


def folder_at(scenes, at):
    """The folder where a mistake is made. `noisy submit answer` is before the first of three sites
    submits, the others have; `noisy submit advance` before the coordinator goes on from there.
    `noisy over` comes to its result. `reports` has plans for local reports, and no exchange under
    way."""
    kind, *step = at.split()
    if kind == "reports":
        return scenes["noisy"][Stage.ADVERTISE, "start"]
    if step == ["over"]:
        return scenes[kind][Stage.OPEN, "advance"]
    verb, moment = step
    (stage,) = [stage for stage in Stage if STEPS[stage] == verb]
    return scenes[kind][stage, moment]


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
