"""Groups, classes, models and labels by files: columns are named by the plan's names."""

import csv
from collections import Counter

import msgspec
import numpy as np
import pytest
from commands import complaint, run
from consortium import COORDINATOR, NAMES, A
from counts import counts_of
from exchange import World
from sites import open_policy

import fedgauge as fg
from fedgauge.site.rows import NamedRows, column_options, read_note

pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")
CLASSES = ("cat", "dog", "owl")
GROUPS = {"sex": ["women", "men"], "ward": ["1", "2"]}
ROWS = 80
# A task, and how an operator names its columns.
TASKS = {
    "groups": (
        fg.BinaryTask(groups=GROUPS),
        "--label y --score p1 --group sex=gender",
        {"label": "y", "score": "p1", "group": {"sex": "gender", "ward": "ward"}},
    ),
    "classes": (
        fg.MulticlassTask(labels=CLASSES, also=["confusion"]),
        "--label kind --class-scores owl=p3,cat=p1,dog=p2",
        {"label": "kind", "score": ["p1", "p2", "p3"]},
    ),
    "models": (
        fg.BinaryTask(models=["new", "old"], groups={"ward": GROUPS["ward"]}),
        "--label y --model-score old=p1 --model-score new=p2",
        {"label": "y", "score": {"new": "p2", "old": "p1"}, "group": {"ward": "ward"}},
    ),
    "labels": (
        fg.MultilabelTask(labels=["fever", "cough"]),
        "--label cough=y2,fever=y --class-scores fever=p1,cough=p2",
        {"label": ["y", "y2"], "score": ["p1", "p2"]},
    ),
    "models and classes": (
        fg.MulticlassTask(labels=["cat", "dog"], models=["new", "old"]),
        "--label two --model-score new=p1,p2 --model-score old=p3,p4",
        {"label": "two", "score": {"new": ["p1", "p2"], "old": ["p3", "p4"]}},
    ),
}
POLICY = open_policy(
    labels=(*CLASSES, "1"),
    exact_groups=tuple(f"{name}={value}" for name, values in GROUPS.items() for value in values),
)
each = pytest.mark.parametrize("kind", TASKS)


def plan_of(kind, privacy=None):
    axis = fg.Axis.uniform(8, outside="clip")
    task = TASKS[kind][0]
    return fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3, 1), task=task, privacy=privacy)


def write_rows(path, seed, *, women="women"):
    rng = np.random.default_rng(seed)
    columns = {
        "y": rng.integers(0, 2, ROWS),
        "y2": rng.integers(0, 2, ROWS),
        "kind": rng.choice(CLASSES, ROWS),
        "two": rng.choice(CLASSES[:2], ROWS),
        "gender": rng.choice([women, "men", ""], ROWS),
        "ward": rng.choice(["1", "2.0", "3"], ROWS),
        **{name: rng.random(ROWS).round(6) for name in ("p1", "p2", "p3", "p4")},
    }
    lines = [
        ",".join(columns),
        *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)),
    ]
    path.write_text("\n".join(lines) + "\n")


def make_world(folder, plan):
    world = World.make(folder, NAMES[:3], policy=POLICY)
    for seed, name in enumerate(world.names):
        write_rows(world.folder / f"{name}.csv", seed)
    world.start(world.run, plan)
    return world


def command(world, verb, options, name=A):
    named = [world.folder / f"{name}.csv", *options.split()] if options else []
    site = ["--site", world.site_file(name)]
    return run("exchange", verb, world.run, *named, *site, columns=1000)


def done(result):
    assert result.exit_code == 0, result.output
    return result.stdout


@each
def test_an_exchange_counts_as_a_simulation_of_the_same_files(folder, kind):
    plan = plan_of(kind)
    _, options, named = TASKS[kind]
    world = make_world(folder, plan)
    assert "This site can join." in done(command(world, "check", options))
    for verb in ("join", "share", "submit", "confirm", "reveal"):
        for name in world.names:
            done(command(world, verb, options if verb == "join" else "", name))
        done(command(world, "advance", "", COORDINATOR))
    result = fg.Evaluation.from_json(world.run / "result.json")
    files = {name: fg.ScoreFile(world.folder / f"{name}.csv", **named) for name in world.names}
    expected = fg.evaluate(files, plan)
    np.testing.assert_array_equal(counts_of(result), counts_of(expected))


@pytest.mark.parametrize("kind", ["classes", "models"])
def test_under_noise_the_same_columns_are_named(folder, kind):
    world = make_world(folder, plan_of(kind, fg.DistributedDP(1.0)))
    options = TASKS[kind][1]
    for name in world.names:
        done(command(world, "join", options, name))
    done(command(world, "advance", "", COORDINATOR))
    for name in world.names:
        done(command(world, "share", "", name))
    done(command(world, "advance", "", COORDINATOR))
    other = complaint(command(world, "submit", "--label y --score p3"), code=1)
    assert f"this site joined with {world.folder / A}.csv (label " in other
    told = command(world, "submit", options)
    assert told.stderr == ""
    assert f"Counted {ROWS} rows: " in told.stdout


@pytest.mark.parametrize("kind", ["labels", "models"])
def test_status_names_the_options_that_a_plan_takes(folder, kind):
    task, *_ = TASKS[kind]
    world = make_world(folder, plan_of(kind))
    told = done(run("exchange", "status", world.run, "--site", world.site_file(A), columns=1000))
    assert f"FILE {column_options(task)} --site" in told


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("groups", "{y 1} positive, 0 clipped into the end bins, 0 odd; by sex: women ({gender "
         "women}), men ({gender men}), other ({gender }); by ward: 1 ({ward 1}), 2 ({ward 2.0}), "
         "other ({ward 3})"),
        ("classes", "of classes cat ({kind cat}), dog ({kind dog}), owl ({kind owl}), 0 scores"),
        ("labels", "positive fever ({y 1}), cough ({y2 1}), 0 scores clipped into the end bins"),
    ],
)  # fmt: skip
def test_rows_are_told_by_class_and_group(folder, kind, told):
    world = make_world(folder, plan_of(kind))
    with (world.folder / f"{A}.csv").open() as file:
        rows = list(csv.DictReader(file))
    for column in rows[0]:
        for value, count in Counter(row[column] for row in rows).items():
            told = told.replace(f"{{{column} {value}}}", str(count))
    assert f"would count as {ROWS} rows: {told}" in done(command(world, "check", TASKS[kind][1]))


def test_models_of_several_classes_are_told_how_many_columns_each_takes():
    three = fg.MulticlassTask(labels=["cat", "dog", "owl"], models=["new", "old"])
    asked = "--model-score new=COLUMN,COLUMN,COLUMN --model-score old=COLUMN,COLUMN,COLUMN"
    assert column_options(three) == f"--label COLUMN {asked}"
    rows = NamedRows("rows.csv", "kind", classes={"cat": "p1", "dog": "p2", "owl": "p3"})
    with pytest.raises(fg.InputError, match=f"Name their columns: {asked}"):
        rows.by_task(three)
    many = fg.MulticlassTask(labels=[f"kind {k}" for k in range(9)], models=["new", "old"])
    assert "new=COLUMN,COLUMN,COLUMN,COLUMN,COLUMN,... " in column_options(many)


@pytest.mark.parametrize("privacy", [None, fg.DistributedDP(1.0)], ids=["exact", "noisy"])
def test_groups_that_are_written_otherwise_are_warned_of(folder, privacy):
    world = make_world(folder, plan_of("groups", privacy))
    write_rows(world.folder / f"{A}.csv", 0, women="F")
    told = command(world, "check", TASKS["groups"][1])
    assert (
        f"{A}.csv: 52 of 80 rows are of no listed group of sex, and none are of women: they count "
        "in 'other'. Check the column, and that it spells groups as the plan does."
    ) in told.stderr
    assert "of ward" not in told.stderr
    done(command(world, "join", TASKS["groups"][1]))  # nothing that is told stops a site


@pytest.mark.parametrize("privacy", [None, fg.DistributedDP(1.0)], ids=["exact", "noisy"])
def test_a_column_of_ids_is_warned_of_where_the_sum_has_no_noise(folder, privacy):
    """The wrong column: by ids, each of the plan's wards is one patient."""
    world = make_world(folder, plan_of("groups", privacy))
    path = world.folder / f"{A}.csv"
    first, *rows = path.read_text().splitlines()
    path.write_text("\n".join([f"{first},id", *(f"{row},{k}" for k, row in enumerate(rows))]))
    options = f"{TASKS['groups'][1]} --group ward=id"
    told = command(world, "check", options).stderr
    assert ("fewer than 10 rows are of 1, 2, by ward, and the sum has no noise" in told) == (
        privacy is None
    )
    assert "are of women" not in told


SEX = "--group sex=gender"
OF_CLASSES = "--label kind --class-scores cat=p1,dog=p2"
WRONG = [
    ("groups", "--label y --score p1", "groups by sex, and there is no column of that name. Name"),
    ("groups", "--label y --score p1", "it: --group sex=COLUMN. The columns are 'y', 'y2', 'kind'"),
    ("groups", f"--label y --score p1 {SEX} --group age=p2", "by age. It has: sex, ward."),
    ("groups", "--label y --score p1 --group sex=nothing", "there is no column 'nothing'"),
    ("groups", "--label y --score p1 --group sex=y", "one column cannot be two things, and 'y'"),
    ("groups", f"--label y --class-scores a=p1,b=p2 {SEX}", "one score a row. Name its column:"),
    ("groups", f"--label y --model-score a=p1 {SEX}", "of one model. Leave out --model-score"),
    ("groups", f"--label a=y --score p1 {SEX}", "one label a row. Name its column: --label COLUMN"),
    ("classes", "--label kind --score p1", "the plan has cat, dog, owl. Name their columns: --cl"),
    ("classes", "--label kind --score p1", "--class-scores cat=COLUMN,dog=COLUMN,owl=COLUMN"),
    ("classes", OF_CLASSES, "--class-scores lacks owl, and the plan has cat, dog, owl."),
    ("classes", f"{OF_CLASSES},emu=p3", "--class-scores names emu, and the plan has cat, dog"),
    ("classes", f"{OF_CLASSES},owl=p2", "one column cannot be two things, and 'p2' is"),
    ("classes", f"{OF_CLASSES},owl=gender", "column 'gender' holds values that are not numbers"),
    ("classes", f"{OF_CLASSES},owl=p3 {SEX}", "no groups by sex. It has none: leave out --group"),
    ("models", "--label y --score p1", "s: --model-score new=COLUMN --model-score old=COLUMN"),
    ("models", "--label y --model-score new=p1", "--model-score lacks old, and the plan has new"),
    ("models", "--label y --model-score new=p1,p2 --model-score old=p3", "each model one column"),
    (
        "models",
        "--label y --score p1 --model-score new=p1",
        "--score and --model-score do not go together",
    ),
    (
        "models and classes",
        "--label two --model-score new=p1 --model-score old=p2",
        "takes for each model 2 columns, of cat, dog",
    ),
    ("labels", "--label y --class-scores fever=p1,cough=p2", "--label fever=COLUMN,cough=COLUMN"),
    ("labels", "--label fever=y,cough=y2 --score p1", "--class-scores fever=COLUMN,cough=COLUMN"),
]


@pytest.mark.parametrize(("kind", "options", "told"), WRONG)
def test_columns_that_a_plan_does_not_fit_cost_nothing(invited, kind, options, told):
    world = invited[kind]
    assert told in complaint(command(world, "check", options))
    if options.endswith("--score p1"):
        assert told in complaint(command(world, "join", options))
    assert world.entries(A) == []


@pytest.fixture(scope="module")
def invited(tmp_path_factory):
    """Sites that were invited; what is refused changes nothing there."""
    return {
        kind: make_world(tmp_path_factory.mktemp("invited"), plan_of(kind, fg.DistributedDP(1.0)))
        for kind in TASKS
    }


def test_a_note_names_what_is_not_usual():
    note = b'{"path":"/a.csv","label":"y","score":"p"}'
    assert read_note(note) == NamedRows("/a.csv", "y", "p")
    assert msgspec.json.encode(NamedRows("/a.csv", "y", "p")) == note
    rows = NamedRows("/a.csv", {"a": "y"}, models={"new": ("p", "q")}, groups={"sex": "g"})
    assert read_note(msgspec.json.encode(rows)) == rows
