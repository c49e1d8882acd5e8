"""Small cells: a reader of an exact result finds people who are alone in their bin and class. The
reader has `result.json` and nothing else. It chooses nothing: it looks for ones."""

import json

import numpy as np
from commands import run
from hostile import Attacker, exact_plan, exact_policy
from rows import draw_rows

import fedgauge as fg

MIN_CELL = 10


def attacker(folder, rows, rate=0.3, **limits):
    clients = {f"site-{i}": draw_rows(rows, seed=i, rate=rate) for i in range(3)}
    return Attacker(folder, clients, policy=exact_policy(**limits))


def test_score_sums_in_a_result_hide_in_a_crowd(folder):
    """Of a cell with one person the score sum is that person's score."""
    attack = attacker(folder, 200, 0.1, score_sums=True)
    answer = attack.ask(exact_plan(3, bins=64, score_sums=True))
    assert answer.result is not None
    (part,) = json.loads((folder / "run-0" / "result.json").read_text())["slices"]
    assert np.shape(part["counts"]) == np.shape(part["score_sums"])
    assert alone(part["counts"]) == 0


def test_counts_and_curves_in_a_result_hide_in_a_crowd(folder):
    """Three sites of 2,000 rows, planned as the documentation says. Every class by bin has nobody
    in it or at least ten. The knots of the curve times the number of a class are counts again."""
    path = folder / "plan.json"
    hints = ["--clients", 3, "--examples", 6000, "--positive-rate", 0.3]
    assert run("plan", *hints, "--privacy", "sa", "-o", path, "--quiet").exit_code == 0
    assert attacker(folder, 2000).ask(fg.EvaluationPlan.load(path)).result is not None
    (part,) = json.loads((folder / "run-0" / "result.json").read_text())["slices"]
    for rates, counts in zip(("fpr", "tpr"), part["counts"], strict=True):
        assert alone(counts) == 0
        steps = np.diff(part["curves"]["roc"][rates]) * sum(counts)
        assert alone(np.rint(np.abs(steps))) == 0


def alone(counts):
    """The share of rows that are in cells with too few others."""
    counts = np.asarray(counts)
    return counts[(counts > 0) & (counts < MIN_CELL)].sum() / counts.sum()


def test_thresholds_do_not_show_a_single_row(folder):
    """As people look: metrics at an edge and at the next. Their difference is a cell."""
    attack = attacker(folder, 100)
    result = attack.ask(exact_plan(3, bins=128)).result
    assert result is not None
    edges = result.released.axis.thresholds  # between them a result only guesses
    shares = [result.at_threshold(edge).recall.value for edge in edges]
    assert alone(np.rint(-np.diff([*shares, 0.0]) * result.positives)) == 0


def test_a_small_total_is_not_told(folder):
    """Three sites with four positives in all: merging has nothing left to merge with."""
    clients = {f"site-{i}": draw_rows(100, seed=i, rate=0.0) for i in range(3)}
    labels, scores = clients["site-0"]
    clients["site-0"] = (np.where(np.arange(100) < 4, 1, labels), scores)
    attack = Attacker(folder, clients, policy=exact_policy())
    attack.ask(exact_plan(3))
    path = folder / "run-0" / "result.json"
    if path.exists():
        (part,) = json.loads(path.read_text())["slices"]
        assert sum(part["counts"][1]) == 0 or sum(part["counts"][1]) >= MIN_CELL


def test_results_are_not_subtracted_to_small_cells(folder):
    """Three plans that merge a little differently: no result has a small cell, their edges differ.
    A reader of all three subtracts what they say between the edges that each of them kept."""
    attack = attacker(folder, 100)
    results = [attack.ask(exact_plan(3, bins=128, min_cell=least)).result for least in (10, 11, 13)]
    opened = [result for result in results if result is not None]
    assert opened
    edges = {tuple(result.released.axis.edges) for result in opened}
    assert len(edges) == 1


def with_groups(sizes, seed=0):
    """Three sites of 400 rows; of the second group so many rows of each site."""
    clients = {}
    for i, few in enumerate(sizes):
        labels, scores = draw_rows(400, seed=seed + i, rate=0.3)
        group = np.where(np.arange(400) < few, "few", np.where(np.arange(400) < 200, "a", "b"))
        clients[f"site-{i}"] = fg.Examples(labels, scores, group=group)
    return clients


GROUPS = {"g": ["a", "few", "b"]}
POLICY = exact_policy(max_groups=4, exact_groups=("a", "few", "b"))


def grouped_plan(groups=None, **options):
    return fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(8, outside="clip"),
        fg.Cohort(3, 1),
        task=fg.BinaryTask(groups=groups or GROUPS),
        min_cell=MIN_CELL,
        **options,
    )


def test_a_small_group_is_not_told_nor_the_total_less_the_others(folder):
    """The reader adds up all groups that are shown, and takes them off the whole."""
    attack = Attacker(folder, with_groups((2, 2, 2)), policy=POLICY)
    result = attack.ask(grouped_plan()).result
    assert result is not None
    saved = json.loads((folder / "run-0" / "result.json").read_text())
    whole, *parts = saved["slices"]
    assert all(alone(part["counts"]) == 0 for part in parts if np.any(part["counts"]))
    shown = {part["group"]: np.array(part["counts"]) for part in parts}
    assert saved["joined"] == ["few", "b"]
    assert not shown["few"].any()
    assert not shown["b"].any()
    left = np.array(whole["counts"]) - shown["a"]  # the few, in a crowd
    assert alone(left) == 0


def test_results_with_and_without_groups_do_not_meet_on_the_same_rows(folder):
    """Both are exact sums of the same rows: a site takes part in the first alone, whichever."""
    for number, (first, second) in enumerate([(True, False), (False, True)]):
        where = folder / str(number)
        where.mkdir()
        attack = Attacker(where, with_groups((2, 2, 2)), policy=POLICY)
        plans = {True: grouped_plan(), False: exact_plan(3)}
        assert attack.ask(plans[first]).result is not None
        answer = attack.ask(plans[second])
        assert answer.result is None
        assert "of another plan" in str(next(iter(answer.refusals.values()))[1])


def test_a_row_that_changes_its_group_is_not_the_difference_of_two_sums(folder):
    """The same plan on the same labels and scores, but for one row's group."""
    attack = Attacker(folder, with_groups((50, 50, 50)), policy=POLICY)
    assert attack.ask(grouped_plan()).result is not None
    attack.clients |= with_groups((51, 50, 50))
    answer = attack.ask(grouped_plan())
    assert answer.result is None
    assert "not those of the earlier exact sums" in str(answer.refusals["site-0"][1])


def test_a_coarse_simulation_stays_exact():
    """The control: in one process nothing is hidden, and nothing is merged unless asked for."""
    labels, scores = draw_rows(100)
    result = fg.evaluate({"a": (labels, scores)}, axis=fg.Axis.uniform(64))
    assert result.at_threshold(0.5).recall.value == labels[scores >= 0.5].sum() / labels.sum()
    assert alone(result.record.slices[0].counts) > 0


def test_a_score_and_the_same_moved_up_show_few_rows():
    """What is not promised, as slices.md says: a reader who knows how the scores were made."""
    sites = {}
    for seed in range(3):
        labels, scores = draw_rows(400, seed=seed, rate=0.3)
        moved = {"new": scores, "old": np.minimum(scores + 1 / 1024, 1.0)}
        sites[f"site-{seed}"] = fg.Examples(labels, moved)
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(8),
        fg.Cohort(3),
        task=fg.BinaryTask(models=("new", "old")),
        min_cell=MIN_CELL,
    )
    counts = fg.evaluate(sites, plan).released.counts
    assert alone(counts) == 0
    new, old = counts.reshape(2, 2, -1).cumsum(axis=2)
    assert alone(new - old) > 0
