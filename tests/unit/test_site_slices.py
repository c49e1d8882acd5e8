"""What of its rows a site lets a plan tell apart: classes, groups, scores, and their tables."""

import msgspec
import pytest
from sites import BOSS, PEERS, make_site

from fedgauge import Axis, BinaryTask, Cohort, EvaluationPlan, MulticlassTask, MultilabelTask
from fedgauge.errors import PlanRefused, SiteError
from fedgauge.privacy import DistributedDP, LocalDP, SecureAggregation
from fedgauge.site import Policy

EXACT, NOISY = SecureAggregation(), DistributedDP(0.5)
CLASSES = MulticlassTask(labels=["cat", "dog", "owl"])
MODELS = BinaryTask(models=("new", "old"))
PAIR = BinaryTask(models=("new", "old"), pairs=[("new", "old")])
WOMEN = BinaryTask(groups={"sex": ["women", "men"]})


def plan_for(privacy, task, *, bins=64, **options):
    axis = Axis.uniform(bins, outside="clip")
    return EvaluationPlan.for_histogram(axis, Cohort(4, 1), privacy=privacy, task=task, **options)


def judge(site, plan):
    members = [site.key.public, *(key.public for key in PEERS.values())]
    site.judge(plan, members=members, coordinator=BOSS.public)


# Labels


@pytest.mark.parametrize("privacy", [EXACT, NOISY], ids=str)
def test_every_class_must_be_listed(tmp_path, privacy):
    """Which classes a site has would show in whether it falls silent."""
    site = make_site(tmp_path, labels=("cat", "dog", "owl", "2"))
    judge(site, plan_for(privacy, CLASSES))
    judge(site, plan_for(privacy, MulticlassTask(labels=["owl", 2])))
    with pytest.raises(PlanRefused, match=r"tells the class 'ant' apart, .* owl, 2 \(labels\)"):
        judge(site, plan_for(privacy, MulticlassTask(labels=["cat", "ant"])))


@pytest.mark.parametrize("privacy", [EXACT, NOISY], ids=str)
def test_several_labels_a_row_are_1_where_they_are_positive(tmp_path, privacy):
    """Their names are those of columns, which the site's operator chooses."""
    plan = plan_for(privacy, MultilabelTask(labels=["fever", "cough"]))
    judge(make_site(tmp_path / "one"), plan)
    with pytest.raises(PlanRefused, match=r"calls 1 the positive label.*\(labels\)"):
        judge(make_site(tmp_path / "other", labels=("fever", "cough")), plan)


# Groups


def test_groups_need_leave_and_are_few(tmp_path):
    closed = make_site(tmp_path / "closed", max_groups=0)
    some = make_site(tmp_path / "some", max_groups=5)
    two = {"sex": ["women", "men"]}
    both = two | {"age": ["old"]}
    for privacy in (NOISY, EXACT):
        plan = plan_for(privacy, BinaryTask(groups=two))
        judge(some, plan)
        with pytest.raises(
            PlanRefused, match=r"3 groups apart, .* allows none \(max_groups; 'other' is one, too\)"
        ):
            judge(closed, plan)
        judge(some, plan_for(privacy, BinaryTask(groups=both)))  # three and two
        with pytest.raises(PlanRefused, match=r"6 groups apart, .* allows 5 \(max_groups;"):
            judge(some, plan_for(privacy, BinaryTask(groups=both, crossed=True)))
    assert Policy().max_groups == 0
    with pytest.raises(SiteError, match="max_groups must be 0 or more"):
        Policy(max_groups=-1)


def test_an_exact_sum_is_of_groups_that_the_site_lists(tmp_path):
    """Among four groups one may be a single patient's, by an id or a rare value."""
    site = make_site(tmp_path, exact_groups=("women", "men", "old"))
    judge(site, plan_for(EXACT, WOMEN))
    patient = BinaryTask(groups={"sex": ["women"], "id": ["4711"]})
    judge(site, plan_for(NOISY, patient))
    with pytest.raises(PlanRefused, match=r"the group '4711' .* women, men, old \(exact_groups\)"):
        judge(site, plan_for(EXACT, patient))
    with pytest.raises(PlanRefused, match=r"allowed here: none \(exact_groups\)"):
        judge(make_site(tmp_path / "none", exact_groups=()), plan_for(EXACT, WOMEN))
    assert Policy().exact_groups == ()


# Scores


@pytest.mark.parametrize(
    ("task", "scores"),
    [
        (MODELS, 2),
        (CLASSES, 3),
        (MultilabelTask(labels=["fever", "cough"]), 2),
        (MulticlassTask(labels=["cat", "dog"], models=("new", "old", "third")), 6),
    ],
    ids=["models", "classes", "labels", "classes of models"],
)
def test_an_exact_sum_counts_as_many_scores_of_a_row_as_the_site_allows(tmp_path, task, scores):
    labels = ("1", "cat", "dog", "owl")
    enough, few = (
        make_site(tmp_path / str(most), exact_scores=most, labels=labels)
        for most in (scores, scores - 1)
    )
    judge(enough, plan_for(EXACT, task))
    judge(few, plan_for(NOISY, task))
    with pytest.raises(PlanRefused, match=rf"{scores} scores .* allows .*\(exact_scores\)"):
        judge(few, plan_for(EXACT, task))
    assert Policy().exact_scores == 1
    with pytest.raises(SiteError, match="exact_scores must be at least 1"):
        Policy(exact_scores=0)


def test_two_scores_together_need_leave_and_a_smallest_cell(tmp_path):
    closed, opened = (
        make_site(tmp_path / str(leave), exact_pairs=leave) for leave in (False, True)
    )
    hidden, bare = plan_for(EXACT, PAIR, min_cell=10), plan_for(EXACT, PAIR)
    judge(opened, hidden)
    judge(closed, plan_for(NOISY, PAIR))
    with pytest.raises(PlanRefused, match=r"two scores .* does not allow it \(exact_pairs\)"):
        judge(closed, hidden)
    with pytest.raises(PlanRefused, match="Plan with a min_cell, or with noise"):
        judge(opened, bare)
    with pytest.raises(PlanRefused, match=r"fewer than 11 .*\(min_cell\)"):
        judge(make_site(tmp_path / "eleven", min_cell=11), hidden)
    assert not Policy().exact_pairs


@pytest.mark.parametrize("also", ["confusion", "ranks", "top", "paired_brier"])
def test_tables_whose_small_cells_show_are_for_noise(tmp_path, also):
    """Their small cells cannot be merged, so no plan of theirs has a smallest one."""
    task = MulticlassTask(labels=["cat", "dog"], also=[also]) if also != "paired_brier" else None
    pair = msgspec.structs.replace(PAIR, paired_brier=True)
    site = make_site(tmp_path / "site", min_cell=2, labels=("1", "cat", "dog"))
    judge(site, plan_for(DistributedDP(1.0), task or pair))
    with pytest.raises(PlanRefused, match=r"cannot be merged .* none below 2 \(min_cell\)"):
        judge(site, plan_for(EXACT, task or pair))
    if task is not None:
        judge(make_site(tmp_path / "bare", labels=("cat", "dog")), plan_for(EXACT, task))


# Sizes


@pytest.mark.parametrize("privacy", [EXACT, NOISY], ids=str)
def test_a_plan_asks_for_as_many_counts_as_the_site_allows(tmp_path, privacy):
    task = MulticlassTask(labels=["cat", "dog", "owl"], also=["confusion"])
    plan = plan_for(privacy, task)
    assert plan.numbers == 3 * 3 * 64 + 9
    labels = ("cat", "dog", "owl")
    judge(make_site(tmp_path / "enough", max_counts=585, labels=labels), plan)
    with pytest.raises(PlanRefused, match=r"585 counts, this site allows 584 \(max_counts\)"):
        judge(make_site(tmp_path / "few", max_counts=584, labels=labels), plan)


def test_local_reports_are_judged_by_the_same_rules(tmp_path):
    axis = Axis.uniform(64, outside="clip")
    plan = EvaluationPlan.for_reports(axis, LocalDP(1.0))
    make_site(tmp_path / "enough").judge_reports(plan)
    with pytest.raises(PlanRefused, match=r"\(max_counts\)"):
        make_site(tmp_path / "few", max_counts=127).judge_reports(plan)


# Local reports


def test_reports_are_judged_as_sums_are(tmp_path):
    site = make_site(tmp_path, labels=("cat", "dog", "owl"), max_groups=3, max_epsilon=2.0)
    axis, privacy = Axis.uniform(16, outside="clip"), LocalDP(1.0)

    def judge_task(task):
        site.judge_reports(EvaluationPlan.for_reports(axis, privacy, task=task))

    judge_task(MulticlassTask(labels=CLASSES.labels, groups={"sex": ["women", "men"]}))
    with pytest.raises(PlanRefused, match=r"tells the class 'ant' apart"):
        judge_task(MulticlassTask(labels=["cat", "ant"]))
    with pytest.raises(PlanRefused, match=r"5 groups apart.*\(max_groups; "):
        judge_task(MulticlassTask(labels=CLASSES.labels, groups={"ward": ["a", "b", "c", "d"]}))
