"""A plan in plain words: every paragraph, the plan's own numbers, nothing only programmers know."""

import math
import re

import pytest

import fedgauge as fg
from fedgauge.plan.explain import explain

TITLES = [
    "What leaves each site",
    "What is learned from it",
    "What is promised",
    "Who must take part",
    "What is not protected",
    "Which plan this is",
]


def make_plan(privacy=None, *, tree=(24,), cohort=fg.Cohort(9, 2), clip=True):  # noqa: B008
    axis = fg.Axis.uniform(math.prod(tree), outside="clip" if clip else "refuse")
    return fg.EvaluationPlan.for_histogram(axis, cohort, tree=tree, privacy=privacy)


def paragraphs(plan):
    parts = [part.split("\n  ") for part in explain(plan).split("\n\n")]
    assert all(len(part) == 2 for part in parts)
    return {title: text for title, text in parts}  # noqa: C416  (pairs of a list)


PLANS = {
    "exact": make_plan(clip=False),
    "exact tree": make_plan(tree=(4, 6), clip=False),
    "example": make_plan(fg.DistributedDP(1.0)),
    "subject": make_plan(fg.DistributedDP(0.5, unit="subject", max_per_unit=3)),
    "client": make_plan(fg.DistributedDP(2.0, unit="client", max_per_unit=50)),
    "replace": make_plan(fg.DistributedDP(1.0, neighbours="replace-one")),
    "delta": make_plan(fg.DistributedDP(1.0, delta=1e-6, noise="skellam")),
    "tree": make_plan(fg.DistributedDP(1.0), tree=(4, 6)),
}
every_plan = pytest.mark.parametrize("name", PLANS)
NOISY = [name for name in PLANS if not name.startswith("exact")]


@every_plan
def test_paragraphs(name):
    found = paragraphs(PLANS[name])
    assert list(found) == TITLES
    for text in found.values():
        assert text[0].isupper() or text[0].isdigit()
        assert text.endswith(".")
        assert ".." not in text


@every_plan
def test_no_jargon(name):
    text = explain(PLANS[name])
    for word in ("None", "True", "False", "float", "int(", "fg.", "()", "_", "[", "{", "="):
        assert word not in text
    for word in (
        "axis",
        "bin",
        "bins",
        "tree",
        "node",
        "nodes",
        "polya",
        "skellam",
        "zero-out",
        "add-remove",
        "replace-one",
        "min survivors",
    ):
        assert not re.search(rf"\b{word}\b", text), word


@pytest.mark.parametrize(
    ("name", "numbers", "size"),
    [("exact", 48, 384), ("exact tree", 48, 384), ("example", 48, 384), ("tree", 56, 448)],
)
def test_numbers_that_leave(name, numbers, size):
    # Two classes of 24 ranges; under noise the larger ranges travel too.
    plan = PLANS[name]
    text = paragraphs(plan)["What leaves each site"]
    assert text.startswith(f"{numbers} whole numbers ({size} bytes), once: ")
    assert plan.bytes_per_client == size
    assert "in each of 24 ranges" in text
    assert "No row, score, label, name or identifier leaves." in text


def test_large_numbers_have_separators():
    plan = make_plan(tree=(4096,), clip=False)
    text = paragraphs(plan)["What leaves each site"]
    assert text.startswith("8,192 whole numbers (65,536 bytes)")
    assert "4,096 ranges" in text


@every_plan
def test_larger_ranges_are_told_only_where_they_travel(name):
    text = paragraphs(PLANS[name])["What leaves each site"]
    assert ("larger ranges made of these" in text) == (name == "tree")


@every_plan
def test_random_numbers_are_told_only_where_they_are_added(name):
    found = paragraphs(PLANS[name])
    noisy = name in NOISY
    assert ("adds random whole numbers" in found["What leaves each site"]) == noisy
    assert ("blurred by the random numbers" in found["What is learned from it"]) == noisy
    assert ("add their random numbers honestly" in found["Who must take part"]) == noisy


@pytest.mark.parametrize(
    ("unit", "cap", "told"),
    [
        ("subject", 1, "Of each subject at most 1 row "),
        ("subject", 3, "Of each subject at most 3 rows "),
        ("client", 50, "Of each client at most 50 rows "),
    ],
)
def test_cap(unit, cap, told):
    plan = make_plan(fg.DistributedDP(1.0, unit=unit, max_per_unit=cap))
    assert told in paragraphs(plan)["What leaves each site"]


def test_rows_have_no_cap():
    assert "at most" not in paragraphs(PLANS["example"])["What leaves each site"]


def test_exact_sum_promises_nothing():
    text = paragraphs(PLANS["exact"])["What is promised"]
    assert text.startswith("No differential privacy.")
    assert "epsilon" not in text
    assert "two sums that differ by one site show that site's counts" in text


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 1.25, 10.0])
def test_epsilon_and_what_it_means(epsilon):
    text = paragraphs(make_plan(fg.DistributedDP(epsilon)))["What is promised"]
    assert f"epsilon {epsilon:g}." in text
    assert f"at most {math.exp(epsilon):,.2f}-fold" in text
    assert "each further one adds its own epsilon" in text


@pytest.mark.parametrize("epsilon", [100.0, 1000.0])
def test_absurd_epsilon_is_explained_too(epsilon):
    with pytest.warns(fg.PrivacyWarning):
        privacy = fg.DistributedDP(epsilon)
    assert f"epsilon {epsilon:g}" in paragraphs(make_plan(privacy))["What is promised"]


@pytest.mark.parametrize(
    ("unit", "whose"),
    [
        ("example", "one row of data"),
        ("subject", "all rows of one person at one site"),
        ("client", "all data of one site"),
    ],
)
@pytest.mark.parametrize(
    ("neighbours", "change"),
    [("add-remove", "were there or not"), ("replace-one", "were replaced by others")],
)
def test_whom_it_protects_against_what(unit, whose, neighbours, change):
    privacy = fg.DistributedDP(1.0, unit=unit, neighbours=neighbours)
    text = paragraphs(make_plan(privacy))["What is promised"]
    assert f"if {whose} {change}" in text


def test_delta():
    text = paragraphs(PLANS["delta"])["What is promised"]
    assert "except with a probability below 1e-06" in text
    assert "except" not in paragraphs(PLANS["example"])["What is promised"]


@pytest.mark.parametrize(("survivors", "colluding"), [(9, 2), (5, 1), (4, 3)])
def test_who_must_take_part(survivors, colluding):
    cohort = fg.Cohort(survivors, colluding)
    text = paragraphs(make_plan(fg.DistributedDP(1.0), cohort=cohort))["Who must take part"]
    assert text.startswith(f"At least {survivors} sites; with fewer nothing is released.")
    assert f"when {survivors - colluding} of them add" in text
    assert f"even if {colluding} share" in text


def test_who_must_take_part_in_an_exact_sum():
    text = paragraphs(PLANS["exact"])["Who must take part"]
    assert text == "At least 9 sites; with fewer nothing is released."


@every_plan
def test_what_is_not_protected(name):
    text = paragraphs(PLANS[name])["What is not protected"]
    assert "That a site takes part" in text
    privacy = PLANS[name].privacy
    unit = privacy.unit if name in NOISY else None
    assert ("a person with rows at two sites" in text) == (unit == "subject")
    assert ("a person with many rows" in text) == (unit == "example")


@every_plan
def test_plan_is_named(name):
    assert PLANS[name].digest[:16] in paragraphs(PLANS[name])["Which plan this is"]


def test_different_plans_are_explained_differently():
    assert len({explain(plan) for plan in PLANS.values()}) == len(PLANS)


# Score sums

SUMS = {
    "exact": fg.EvaluationPlan.for_histogram(fg.Axis.uniform(24), fg.Cohort(9, 2), score_sums=True),
    "noisy": fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(24, outside="clip"),
        fg.Cohort(9, 2),
        privacy=fg.DistributedDP(1.0),
        score_sums=True,
    ),
}


@pytest.mark.parametrize("name", SUMS)
def test_score_sums_are_told(name):
    found = paragraphs(SUMS[name])
    text = found["What leaves each site"]
    assert text.startswith("96 whole numbers (768 bytes), once: ")
    assert "how high within each range the scores" in text
    assert ("random whole numbers to every count and every sum" in text) == (name == "noisy")
    assert "average scores within the ranges" in found["What is learned from it"]
    alone = "only one example of all sites is in a range, the sum shows its score"
    assert (alone in found["What is promised"]) == (name == "exact")
    for paragraph in found.values():
        assert paragraph.endswith(".")
        assert "_" not in paragraph


@every_plan
def test_score_sums_are_told_only_where_they_leave(name):
    text = explain(PLANS[name])
    assert "how high" not in text
    assert "average scores" not in text
