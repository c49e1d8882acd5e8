"""Slices chosen to single out: groups of one patient, scores side by side, plans in turn. The
attacker is an approved coordinator of exact sums. It sees the sum before small cells are merged,
and names the groups, classes and models that it wants told apart."""

import msgspec
import numpy as np
import pytest
from hostile import Attacker, exact_policy
from rows import draw_rows

import fedgauge as fg

SITES = [f"site-{i}" for i in range(3)]
PAIR = fg.BinaryTask(models=("new", "old"), pairs=[("new", "old")])


def plan_of(task, *, bins=8, min_cell=10, **options):
    axis = fg.Axis.uniform(bins, outside="clip")
    return fg.EvaluationPlan.for_histogram(
        axis, fg.Cohort(3, 1), task=task, min_cell=min_cell, **options
    )


def sites_of(make, rows=400):
    """Rows of three sites; `make` makes examples of labels and scores."""
    return {name: make(*draw_rows(rows, seed=i, rate=0.3)) for i, name in enumerate(SITES)}


def refusal(answer):
    assert answer.total is None
    return str(answer.refusals["site-0"][1])


def with_ids(labels, scores):
    ids = [f"{int(1e6 * score):07d}" for score in scores]
    return fg.Examples(labels, scores, group=ids)


def patient_plan(clients):
    """A group that is one patient of the first site, beside what all others are in."""
    (patient,) = clients["site-0"].groups[None][:1].tolist()
    return plan_of(fg.BinaryTask(groups={"sex": [patient]}))


def test_a_group_of_one_patient_is_refused(folder):
    """It has two groups, and the site allows four: how many says nothing of how large they are."""
    clients = sites_of(with_ids)
    plan = patient_plan(clients)
    attack = Attacker(folder / "a", clients, policy=exact_policy(max_groups=4))
    assert "(exact_groups)" in refusal(attack.ask(plan))
    # The control: where a site lists it, the sum shows the patient's label and score.
    (patient,) = plan.task.groups["sex"]
    careless = exact_policy(max_groups=4, exact_groups=(f"sex={patient}",))
    shown = Attacker(folder / "b", clients, policy=careless).ask(plan).total
    assert shown.reshape(4, -1)[:2].sum() == 1


def test_the_number_of_a_ward_is_not_the_number_of_a_patient(folder):
    """The site lists wards 1 and 2; the plan names the column that has patients' numbers."""
    wards = exact_policy(max_groups=4, exact_groups=("ward=1", "ward=2", "1", "2"))
    clients = sites_of(
        lambda labels, scores: fg.Examples(
            labels,
            scores,
            group={"ward": np.arange(len(labels)) % 2 + 1, "patient": np.arange(len(labels))},
        )
    )
    attack = Attacker(folder, clients, policy=wards)
    asked = {name: fg.BinaryTask(groups={name: ["1", "2"]}) for name in ("patient", "ward")}
    assert "the group '1' of 'patient'" in refusal(attack.ask(plan_of(asked["patient"])))
    assert attack.ask(plan_of(asked["ward"])).total is not None


def moved_a_little(labels, scores):
    return fg.Examples(labels, {"new": scores, "old": np.clip(scores + 1 / 1024, 0, 1)})


@pytest.mark.parametrize("classes", [False, True], ids=["models", "classes"])
def test_two_scores_that_differ_by_a_little_do_not_show_what_lies_between_edges(folder, classes):
    """Edges a 1024th apart, where the site wants an 8th: by models, or by a class's score."""
    clients = sites_of(moved_a_little)
    task = fg.BinaryTask(models=("new", "old"))
    if classes:
        clients = {
            name: fg.Examples(rows.labels, np.column_stack([*rows.scores.values()]))
            for name, rows in clients.items()
        }
        task = fg.MulticlassTask(labels=[0, 1])
    policy = {"min_bin_width": 1 / 8, "labels": ("0", "1")}
    attack = Attacker(folder / "a", clients, policy=exact_policy(**policy))
    assert "(exact_scores)" in refusal(attack.ask(plan_of(task)))
    # The control: counts below an edge differ by those who lie within a 1024th below it.
    careless = Attacker(folder / "b", clients, policy=exact_policy(**policy, exact_scores=2))
    new, old = careless.ask(plan_of(task)).total.reshape(2, 2, 8).cumsum(axis=2)
    between = (new - old)[:, :-1]
    assert 0 < between.sum() < 20


def test_two_scores_together_are_refused(folder):
    """Of 1,200 rows some fifty are alone in their cell, as the coordinator sees it."""
    clients = sites_of(moved_a_little)
    rng = np.random.default_rng(5)
    clients = {
        name: fg.Examples(
            rows.labels, dict(rows.scores) | {"old": rng.normal(rows.scores["new"], 0.1)}
        )
        for name, rows in clients.items()
    }
    attack = Attacker(folder / "a", clients, policy=exact_policy(exact_scores=2))
    plan = plan_of(PAIR, bins=64)
    assert "(exact_pairs)" in refusal(attack.ask(plan))
    opened = exact_policy(exact_scores=2, exact_pairs=True)
    answer = Attacker(folder / "b", clients, policy=opened).ask(plan)
    assert (
        np.count_nonzero(answer.total[plan.numbers - plan.summed.cells(plan.terms)[0] :] == 1) > 50
    )
    (shown,) = answer.result.released.tables
    assert shown.values[shown.values > 0].min() >= 10  # what a reader sees


def test_how_many_labels_two_scores_together_give_away():
    """Those in cells of one class, to whoever knows the scores; documented in security.md. Seeded.
    10,000 rows, 30% positive, scores correlated by 0.9."""
    rng = np.random.default_rng(1)
    labels, (shared, own) = rng.random(10_000) < 0.3, rng.normal(size=(2, 10_000))
    odds = {"new": 1.5 * labels - 1.2 + shared}
    odds["old"] = 1.4 * labels - 1.2 + 0.9 * shared + 0.44 * own
    rows = fg.Examples(labels, {name: 1 / (1 + np.exp(-each)) for name, each in odds.items()})
    released = fg.evaluate({"a": rows}, task=PAIR, axis=fg.Axis.uniform(128)).released
    ((_, together),) = released.tables

    def given_away(negatives, positives):
        certain = (negatives == 0) | (positives == 0)
        return (negatives + positives)[certain].sum() / 10_000

    assert round(given_away(*together.reshape(2, -1)), 2) == 0.17
    assert round(given_away(*released.counts[:2]), 2) == 0.04


KINDS = np.array(["cat", "dog", "owl"])


def all_at_once(labels, scores):
    """Rows that every plan below can be asked of, by its own columns."""
    sex = np.where(np.arange(len(labels)) % 2, "women", "men")
    return {"labels": labels, "scores": scores, "sex": sex}


def as_asked(columns, task):
    labels, scores = columns["labels"], columns["scores"]
    if isinstance(task, fg.MulticlassTask):
        kinds = KINDS[labels + (scores > 0.7)]
        columns = [1 - scores, scores, scores / 2, scores / 3][: len(task.labels)]
        return fg.Examples(kinds, np.column_stack(columns))
    if task.models:
        models = {"new": scores, "old": scores / 2, "third": scores / 3}
        return fg.Examples(labels, {name: models[name] for name in task.models})
    return fg.Examples(labels, scores, group=columns["sex"] if task.groups else None)


SEX = {"sex": ["women", "men"]}
TWO, BY_SEX = fg.BinaryTask(models=("new", "old")), fg.BinaryTask(groups=SEX)
ANIMALS = fg.MulticlassTask(labels=["cat", "dog", "owl"])
IN_TURN = {
    "no groups, then groups": (fg.BinaryTask(), BY_SEX),
    "groups, then none": (BY_SEX, fg.BinaryTask()),
    "a group left out": (BY_SEX, fg.BinaryTask(groups={"sex": ["women"]})),
    "groups in another order": (BY_SEX, fg.BinaryTask(groups={"sex": ["men", "women"]})),
    "a grouping renamed": (BY_SEX, fg.BinaryTask(groups={"sx": SEX["sex"]})),
    "a class more": (ANIMALS, fg.MulticlassTask(labels=["cat", "dog", "owl", "ant"])),
    "classes in another order": (ANIMALS, fg.MulticlassTask(labels=["owl", "dog", "cat"])),
    "a model more": (TWO, fg.BinaryTask(models=("new", "old", "third"))),
    "a model less": (TWO, fg.BinaryTask()),
    "two of them together": (TWO, PAIR),
}


def open_policy(**options):
    allowed = {
        "labels": ("1", "cat", "dog", "owl", "ant"),
        "max_groups": 4,
        "exact_groups": ("women", "men"),
        "exact_scores": 4,
        "exact_pairs": True,
    }
    return exact_policy(**(allowed | options))


@pytest.mark.parametrize("renamed", [False, True], ids=["one name", "another name"])
@pytest.mark.parametrize("turn", IN_TURN)
def test_slices_of_two_plans_do_not_meet_on_the_same_rows(folder, turn, renamed):
    """A second exact sum that tells other slices apart, of the same dataset or by another name."""
    first, second = IN_TURN[turn]
    columns = sites_of(all_at_once)
    clients = {name: as_asked(rows, first) for name, rows in columns.items()}
    attack = Attacker(folder, clients, policy=open_policy())
    assert attack.ask(plan_of(first)).total is not None
    attack.clients = {name: as_asked(rows, second) for name, rows in columns.items()}
    if renamed:
        attack.rename("site-0", "stroke-2")
    told = refusal(attack.ask(plan_of(second)))
    assert ("under another name" if renamed else "of another plan") in told


def test_classes_that_are_merged_do_not_make_other_data(folder):
    """The operator recodes owls as dogs, under another name: the difference shows the owls."""
    columns = sites_of(all_at_once)
    whole, merged = (fg.MulticlassTask(labels=names) for names in (KINDS.tolist(), ["cat", "dog"]))
    clients = {name: as_asked(rows, whole) for name, rows in columns.items()}
    attack = Attacker(folder, clients, policy=open_policy())
    assert attack.ask(plan_of(whole)).total is not None
    attack.rename("site-0", "stroke-2")
    attack.clients = {
        name: fg.Examples(
            np.where(rows.labels == "owl", "dog", rows.labels), rows.scores[None][:, :2]
        )
        for name, rows in clients.items()
    }
    assert "nearly as many rows" in refusal(attack.ask(plan_of(merged)))


def swapped(values, rows):
    """The same column in which two rows have each other's value."""
    changed = np.array(values, dtype=object)
    one, other = rows
    changed[[one, other]] = changed[[other, one]]
    return changed


@pytest.mark.parametrize("what", ["groups", "scores"])
def test_two_rows_that_swap_are_not_the_difference_of_two_sums(folder, what):
    """Of the same label: by labels, and each column by itself, the rows are those of last time."""
    columns = sites_of(all_at_once)
    task = fg.BinaryTask(groups=SEX) if what == "groups" else PAIR
    clients = {name: as_asked(rows, task) for name, rows in columns.items()}
    attack = Attacker(folder, clients, policy=open_policy())
    assert attack.ask(plan_of(task)).total is not None
    rows = columns["site-0"]
    negatives = np.flatnonzero(rows["labels"] == 0)
    women, men = (negatives[rows["sex"][negatives] == sex][0] for sex in ("women", "men"))
    if what == "groups":
        again = fg.Examples(
            rows["labels"], rows["scores"], group=swapped(rows["sex"], (women, men))
        )
    else:
        old = swapped(rows["scores"] / 2, (women, men)).astype(float)
        again = fg.Examples(rows["labels"], {"new": rows["scores"], "old": old})
    attack.clients["site-0"] = again
    assert "not those of the earlier exact sums" in refusal(attack.ask(plan_of(task)))


def test_a_class_that_is_left_out_shows_once(folder):
    """A plan without one of a site's classes stops it, which is one bit, and costs an exact sum."""
    columns = sites_of(all_at_once)
    whole = fg.MulticlassTask(labels=["cat", "dog", "owl"])
    clients = {name: as_asked(rows, whole) for name, rows in columns.items()}
    clients = {
        name: fg.Examples(rows.labels, rows.scores[None][:, :2]) for name, rows in clients.items()
    }
    attack = Attacker(folder, clients, policy=open_policy())
    part = plan_of(fg.MulticlassTask(labels=["cat", "dog"]))
    assert "are none of the task's classes" in refusal(attack.ask(part))
    assert attack.entries("site-0") == ["reserve", "commit"]
    # The same again, as often as the site has exact sums; then it does not join.
    answers = [attack.ask(part) for _ in range(4)]
    assert [a.refusals["site-0"][0] for a in answers].count(answers[-1].refusals["site-0"][0]) == 2
    assert attack.entries("site-0").count("commit") == 3


def test_a_plan_says_what_its_slices_are_and_what_they_show():
    """Whoever approves reads the names, how often a row counts, and what noise would hide. Under
    noise the two scores together are all that is sent: a row counts once."""
    task = msgspec.structs.replace(PAIR, groups=SEX)
    exact, noisy = plan_of(task), plan_of(task, min_cell=0, privacy=fg.DistributedDP(1.0))
    for plan in (exact, noisy):
        told = " ".join(text for _, text in plan.in_words())
        for word in (
            "women, men, other",
            "their score of new",
            "that of old",
            "at the same time",
            "of all sites together, and of each model of each group;",
        ):
            assert word in told
        for word in ("each model (new, old)", "counts 3 times"):  # under noise a row counts once
            assert (word in told) == (plan is exact)
        for word in ("Where a group is one person", "many are alone there"):
            assert (word in told) == (plan is exact)
