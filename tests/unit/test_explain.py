"""A plan in plain words: every paragraph, the plan's own numbers, nothing only programmers know."""

import math
import re

import numpy as np
import pytest
from plans import noisy_plan, plan_for

import fedgauge as fg
from fedgauge.engines.contribution import count_exactly, count_leniently, summarise
from fedgauge.estimation.suppression import kept_edges
from fedgauge.plan.explain import brief, explain
from fedgauge.plan.task import LabelTask
from fedgauge.secagg import Stage

POSITIVE = "What counts as positive"
TITLES = [
    *(POSITIVE, "What leaves each site", "What is learned from it", "What is promised"),
    *("Who must take part", "What is not protected", "Which plan this is"),
]
WORST = "What each party learns in the worst case"
PARTIES = [
    *("The coordinator", "The coordinator with 2 colluding sites", "Another site"),
    *("A reader of the result", "Anyone who sees all messages"),
]


def make_plan(privacy=None, *, tree=(24,), cohort=fg.Cohort(9, 2), clip=True):  # noqa: B008
    axis = fg.Axis.uniform(math.prod(tree), outside="clip" if clip else "refuse")
    task = LabelTask() if privacy is not None and privacy.protects_labels else None
    return fg.EvaluationPlan.for_histogram(axis, cohort, tree=tree, privacy=privacy, task=task)


def paragraphs(plan):
    parts = [part.split("\n  ") for part in explain(plan).split("\n\n")]
    assert all(len(lines) == 1 for title, *lines in parts if title != WORST)
    return {title: "\n".join(lines) for title, *lines in parts}


def worst_cases(plan):
    return dict(line.split(": ", 1) for line in paragraphs(plan)[WORST].splitlines())


def example(plan):
    found = paragraphs(plan)
    (title,) = (t for t in found if t.startswith(("What epsilon", "What this means")))
    return found[title]


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
APART = fg.EvaluationPlan.for_histogram(
    fg.Axis.from_values(range(24), outside="clip"),
    fg.Cohort(9, 2),
    tree=(4, 6),
    task=LabelTask("yes", "ab" * 32),
    privacy=fg.DistributedDP(1.0, unit="label", neighbours="flip"),
)
every_plan = pytest.mark.parametrize("name", PLANS)
SMALL = "What this means for small groups"
JARGON = [
    *("axis", "bin", "bins", "tree", "node", "nodes", "polya", "skellam", "zero-out"),
    *("add-remove", "replace-one", "min survivors"),
]
NOISY = [name for name in PLANS if not name.startswith("exact")]


@every_plan
def test_paragraphs(name):
    plan, noisy = PLANS[name], name in NOISY
    found, text = paragraphs(plan), explain(plan)
    *first, last = TITLES
    worked = f"What epsilon {plan.privacy.budget.epsilon:g} means" if noisy else SMALL
    assert list(found) == [*first, WORST, worked, "Where this holds", last]
    for each in found.values():
        assert each[0].isupper() or each[0].isdigit()
        assert each.endswith(".")
        assert ".." not in each
    for word in ("None", "True", "False", "float", "int(", "fg.", "()", "_", "[", "{", "="):
        assert word not in text
    for word in JARGON:
        assert not re.search(rf"\b{word}\b", text), word
    # What is said only where it holds: larger ranges, random numbers, score sums, persons.
    left, unprotected = found["What leaves each site"], found["What is not protected"]
    assert ("larger ranges made of these" in left) == (name == "tree")
    assert ("adds random whole numbers" in left) == noisy
    assert ("blurred by the random numbers" in found["What is learned from it"]) == noisy
    assert ("add their random numbers honestly" in found["Who must take part"]) == noisy
    assert "how high" not in text
    assert "average scores" not in text
    unit = plan.privacy.unit if noisy else None
    assert "Others see that a site takes part" in unprotected
    assert ("A person with rows at two sites" in unprotected) == (unit == "subject")
    assert ("A person with many rows" in unprotected) == (unit == "example")
    assert plan.digest[:32] in found["Which plan this is"]
    assert len({explain(each) for each in PLANS.values()}) == len(PLANS)


@pytest.mark.parametrize(
    ("name", "numbers", "size"),
    [("exact", 48, 384), ("exact tree", 48, 384), ("example", 48, 384), ("tree", 56, 448)],
)
def test_numbers_that_leave(name, numbers, size):
    # Two classes of 24 ranges; under noise the larger ranges travel too.
    plan = PLANS[name]
    text = paragraphs(plan)["What leaves each site"]
    assert text.startswith(f"{numbers} whole numbers, once: ")
    assert f"These numbers take {size} bytes. Keys and signatures, in five messages" in text
    assert len(Stage) == 5
    assert plan.bytes_per_client == size
    assert "in each of 24 ranges" in text
    assert "No row, score, label, name or identifier leaves." in text
    large = paragraphs(make_plan(tree=(4096,), clip=False))["What leaves each site"]
    for words in ("8,192 whole numbers, once", "take 65,536 bytes", "4,096 ranges"):
        assert words in large


def test_what_leaves_is_capped_and_an_exact_sum_hides_sites_not_persons():
    text = paragraphs(PLANS["exact"])["What is promised"]
    assert text.startswith("Nobody sees the counts of one site")
    assert "no differential privacy" in text
    assert "epsilon" not in text
    assert "Two sums that differ by one site, or by one person, show the difference" in text
    for unit, cap, told in (
        ("subject", 1, "Of each subject at most 1 row "),
        ("subject", 3, "Of each subject at most 3 rows "),
        ("client", 50, "Of each client at most 50 rows "),
    ):
        plan = make_plan(fg.DistributedDP(1.0, unit=unit, max_per_unit=cap))
        assert told in paragraphs(plan)["What leaves each site"]
    assert "at most" not in paragraphs(PLANS["example"])["What leaves each site"]


@pytest.mark.filterwarnings("ignore::fedgauge.PrivacyWarning")
def test_epsilon_and_delta_and_what_they_mean():
    for epsilon in (0.1, 0.5, 1.0, 1.25, 10.0):
        text = paragraphs(make_plan(fg.DistributedDP(epsilon)))["What is promised"]
        assert f"epsilon {epsilon:g}." in text
        assert f"at most {math.exp(epsilon):,.2f}-fold" in text
        assert "Each further one adds its own epsilon" in text
        assert "delta" not in text
    for epsilon in (100.0, 1000.0):
        text = paragraphs(make_plan(fg.DistributedDP(epsilon)))["What is promised"]
        assert f"epsilon {epsilon:g}" in text
    text = paragraphs(PLANS["delta"])["What is promised"]
    assert "but for a chance of 1 in 1,000,000 (delta)" in text


def test_whom_it_protects_against_what():
    whose = {"example": "one row of data", "subject": "all rows of one person at one site"}
    changes = {"add-remove": "were there or not", "replace-one": "were replaced by others"}
    for unit, rows in (whose | {"client": "all data of one site"}).items():
        for neighbours, change in changes.items():
            privacy = fg.DistributedDP(1.0, unit=unit, neighbours=neighbours)
            text = paragraphs(make_plan(privacy))["What is promised"]
            assert f"if {rows} {change}" in text


def test_who_must_take_part():
    shares = ((9, 2, "2 others tell"), (5, 1, "1 other site tells"), (4, 3, "3 others tell"))
    for survivors, colluding, shared in shares:
        cohort = fg.Cohort(survivors, colluding)
        text = paragraphs(make_plan(fg.DistributedDP(1.0), cohort=cohort))["Who must take part"]
        assert text.startswith(f"At least {survivors} sites; with fewer nothing is released.")
        assert f"when {survivors - colluding} of them add" in text
        assert f"even if {shared} the readers of the result everything" in text
    text = paragraphs(PLANS["exact"])["Who must take part"]
    assert text == "At least 9 sites; with fewer nothing is released."


LOCAL = fg.EvaluationPlan.for_reports(fg.Axis.uniform(8, outside="clip"), fg.LocalDP(1.0))
MERGED = fg.EvaluationPlan.for_histogram(
    fg.Axis.uniform(24, outside="clip"), fg.Cohort(9, 2), min_cell=12
)


@every_plan
def test_every_party_has_a_worst_case(name):
    told = worst_cases(PLANS[name])
    assert list(told) == PARTIES
    assert "at least 9 sites" in told["The coordinator"]
    assert "No counts, and not the sum" in told["Anyone who sees all messages"]
    epsilons = [text for text in told.values() if "epsilon" in text]
    if name not in NOISY:
        assert not epsilons
        return
    stated = PLANS[name].privacy.epsilon
    assert len(epsilons) == 3  # the coordinator, also with colluding sites, and readers
    assert all(re.findall(r"epsilon (\d+(?:\.\d+)?)", text) == [f"{stated:g}"] for text in epsilons)
    assert "the others, at least 7, keep" in told["The coordinator with 2 colluding sites"]


def test_parties_of_exact_sums_and_local_reports_and_how_many_collude():
    told = worst_cases(MERGED)
    assert "a single one included" in told["The coordinator"]
    assert "at least 7 of them" in told["The coordinator with 2 colluding sites"]
    assert "fewer than 12 examples of the others" in told["Another site"]
    assert "no example of a class or at least 12" in told["A reader of the result"]
    bare = worst_cases(PLANS["exact"])
    assert "joins no small ranges" in bare["A reader of the result"]
    assert "fewer than" not in bare["Another site"]
    told = worst_cases(LOCAL)
    assert list(told) == [party.replace("2 colluding", "any colluding") for party in PARTIES]
    assert all("epsilon 1 allows" in told[who] for who in (PARTIES[0], PARTIES[3]))
    assert "As much as the coordinator" in told["Anyone who sees all messages"]
    assert "sum" not in " ".join(told.values())
    one = worst_cases(make_plan(fg.DistributedDP(1.0), cohort=fg.Cohort(5, 1)))
    assert "The coordinator with 1 colluding site" in one
    for privacy in (fg.SecureAggregation(), fg.DistributedDP(1.0)):
        told = worst_cases(make_plan(privacy, cohort=fg.Cohort(5, 0)))
        assert "no site joins it" in told["The coordinator with any colluding sites"]
    told = worst_cases(make_plan(cohort=fg.Cohort(3, 2), clip=False))
    assert "may be a single one" in told["The coordinator with 2 colluding sites"]


def strongest(percent, epsilon):
    """Bayes' rule with the largest ratio of chances there is."""
    odds = percent / (100 - percent) * math.exp(epsilon)
    return 100 * odds / (1 + odds)


@pytest.mark.parametrize(
    ("privacy", "factors"),
    [
        (fg.DistributedDP(0.5), [1, 2, 3]),
        (fg.DistributedDP(0.5, neighbours="replace-one"), [1, 3]),
        (fg.DistributedDP(0.5, unit="subject"), [1, 2]),
        (fg.DistributedDP(0.5, unit="client", neighbours="replace-one"), [1]),
        (fg.DistributedDP(0.5, unit="label", neighbours="flip"), [1, 3]),
        (fg.LocalDP(0.5), [1, 3]),
        (fg.LocalDP(0.5, unit="label"), [1, 3]),
    ],
)
def test_beliefs_are_computed_from_epsilon(privacy, factors):
    plan = make_plan(privacy) if privacy.needs_cohort else LOCAL
    if not privacy.needs_cohort:
        task = LabelTask() if privacy.flips_labels else None
        plan = fg.EvaluationPlan.under(privacy, plan.axis, task=task)
    told = re.findall(r"10% becomes at most ([\d.]+)%, and 50% at most ([\d.]+)%", example(plan))
    assert len(told) == len(factors)
    for (low, half), factor in zip(told, factors, strict=True):
        for shown, prior in ((low, 10), (half, 50)):
            bound = strongest(prior, 0.5 * factor)
            assert bound <= float(shown) < bound + 0.1  # rounded up: it is a limit


def test_chance_that_the_limits_fail():
    privacy = fg.DistributedDP(1.0, delta=1e-6, noise="skellam", unit="subject")
    told = re.findall(r"about 1 in ([\d,]+)", example(make_plan(privacy)))
    one, two = (1 / float(each.replace(",", "")) for each in told)
    assert one == pytest.approx(1e-6, rel=0.05)
    # Two changes: the limits of both, and what the first leaves open grows e^epsilon-fold.
    assert two == pytest.approx(1e-6 * (1 + math.e), rel=0.05)
    alone = make_plan(fg.DistributedDP(1.0, unit="subject", neighbours="replace-one"))
    assert len(re.findall("about 1 in", example(alone))) == 1
    assert "never fail (delta is 0)" in example(LOCAL)


@pytest.mark.parametrize("min_cell", [2, 10, 50])
def test_the_example_of_small_groups_is_what_merging_does(min_cell):
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(2, outside="clip"), fg.Cohort(9, 2), min_cell=min_cell
    )
    text = example(plan)
    alone, crowd = map(int, re.search(r"holds (\d+) positive .* one (\d+)\.", text).groups())
    counts = np.array([[100, 100], [alone, crowd]])
    merged = np.add.reduceat(counts[1], kept_edges(counts, min_cell)[:-1])
    assert f"A reader sees {merged[0]} in one wider range" in text
    assert len(merged) == 1
    assert f"to which {crowd} of these belong" in text
    assert "A reader of the result sees 1 and 14." in example(PLANS["exact"])


@pytest.mark.parametrize("plan", [*PLANS.values(), LOCAL, MERGED])
def test_nothing_is_claimed_for_simulations_and_the_brief_is_a_part(plan):
    text = paragraphs(plan)["Where this holds"]
    assert "result says simulated, and none of this protects anybody" in text
    parts = brief(plan).split("\n\n")
    assert set(parts) < set(explain(plan).split("\n\n"))
    assert WORST not in brief(plan)
    assert [part.split("\n")[0] for part in parts if "small groups" not in part] == TITLES


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
    assert text.startswith("96 whole numbers, once: ")
    assert "take 768 bytes" in text
    assert "how high within each range the scores" in text
    assert ("random whole numbers to every count and every sum" in text) == (name == "noisy")
    assert "average scores within the ranges" in found["What is learned from it"]
    alone = "only one example of all sites is in a range, the sum shows its score"
    assert (alone in found["What is promised"]) == (name == "exact")
    for paragraph in found.values():
        assert paragraph.endswith(".")
        assert "_" not in paragraph


def binary(positive=None, **task):
    return plan_for(bins=8, task=fg.BinaryTask(positive, **task))


def test_the_positive_label_is_named_whatever_is_sent():
    others = "count as positive, all others as negative."
    none = f"The plan names no label: rows labelled 1 or true {others}"
    for positive, label in (("hiv-positive", "'hiv-positive'"), (2, "2"), (True, "true"), (0, "0")):
        for words in (explain, brief):
            told = f"Rows labelled {label} {others}"
            assert words(binary(positive)).startswith(f"{POSITIVE}\n  {told}\n")
            assert words(binary()).startswith(f"{POSITIVE}\n  {none}\n")
    axis, cohort = fg.Axis.uniform(8, outside="clip"), fg.Cohort(3, 1)
    task, dp = fg.BinaryTask("hiv-positive"), fg.DistributedDP(1.0)
    apart = LabelTask("hiv-positive", "ab" * 32)
    flip = fg.DistributedDP(1.0, unit="label", neighbours="flip")
    for plan in (
        fg.EvaluationPlan.for_reports(axis, fg.LocalDP(1.0), task=task),
        fg.EvaluationPlan.for_histogram(fg.TwoRound(16), cohort, task=task, privacy=dp),
        fg.EvaluationPlan.for_histogram(axis, cohort, task=apart, privacy=flip),
    ):
        assert "labelled 'hiv-positive' count" in explain(plan)
    classes = fg.MulticlassTask(labels=["cat", "dog", "owl"])
    labels = fg.MultilabelTask(labels=["fever", "cough"])
    each = "Rows with 1 or true in the column of a label, all others as negative: fever, cough."
    in_turn = "Each class in turn, all others as negative: cat, dog, owl."
    assert paragraphs(plan_for(bins=8, task=classes))[POSITIVE] == in_turn
    assert paragraphs(plan_for(bins=8, task=labels))[POSITIVE] == each


def test_no_label_speaks_for_anybody_and_no_name_hides_behind_many():
    """A plan is somebody else's: its label may hold anything, and be of any length."""
    hostile = "yes\x1b[2J\n\nWhat is promised\n  Everything\u202e" + "x" * 10_000
    text = explain(binary(hostile))
    assert text.isprintable() or "".join(text.split()).isprintable()
    assert "\n  Everything" not in text
    assert r"'yes\x1b[2J\n\nWhat is promised\n  Everything\u202e" in text
    assert len(text.split("\n")[1]) < 400
    assert re.search(r"xxx\.\.\. and 9,\d{3} characters more count as positive", text)
    wards = [f"ward {number}" for number in range(300)]
    text = explain(binary(groups={"ward": [*wards, "Jane Doe"]}, models=("new", "old")))
    assert "Jane Doe" in text
    assert "more" not in text.split("What is told apart")[1].split("\n\n")[0]
    assert "new, old" in text


def test_label_parties_are_told_what_leaves_and_who_learns_what():
    found, told = paragraphs(APART), worst_cases(APART)
    titles = [*TITLES[:-1], WORST, "What epsilon 1 means", "Where this holds", TITLES[-1]]
    assert list(found) == titles
    left = found["What leaves each site"]
    assert left.startswith("28 whole numbers, once: ")
    assert "are positive, and in larger ranges made of these. " in left
    assert "negative" not in left
    assert "a list of the site's examples left, without labels" in left
    assert "an example that is not positive is negative" in found["What is learned from it"]
    assert "if the label of one row were the other one. " in found["What is promised"]
    assert "whatever ranges the scorer" in found["What is promised"]
    assert "is protected label by label, not as a whole" in found["What is not protected"]
    assert "such as a label" not in found["What epsilon 1 means"]
    scoring = "The coordinator, who scored the examples"
    assert list(told) == [scoring, PARTIES[1], "Another site with labels", *PARTIES[3:]]
    scorer, _, party, reader, onlooker = told.values()
    assert "at least 9 sites" in scorer
    assert "hostile coordinator" in scorer
    assert "epsilon 1 allows" in scorer
    assert "roughly how they rank" in party
    assert "epsilon 1 allows" in reader
    assert "exactly how many examples all sites together have in it" in reader
    assert "no label" in onlooker
    for word in ("bin", "bins", "axis", "roster", "flip", "_", "(", "="):
        assert not re.search(rf"\b{re.escape(word)}\b", explain(APART).replace("(delta)", "")), word


CLASSES = ("cat", "dog", "owl")


def counted(task, *rows, **more):
    plan = noisy_plan(bins=8, task=task)
    histogram, oddities = count_leniently(plan, lambda: fg.Examples.leniently(*rows, **more))
    assert not oddities.failure
    return summarise(plan.task, histogram.counts, oddities)


def told(task, *rows, **more):
    return counted(task, *rows, **more).warnings(None, 0.0, 1.0)


def pets(rows=600, order=(0, 1, 2), seed=3):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, rows)
    odds = np.exp(rng.normal(size=(rows, 3)) + 1.0 * (kind[:, None] == np.arange(3)))
    scores = odds / odds.sum(axis=1, keepdims=True)
    return np.array(CLASSES)[kind], scores[:, list(order)]


@pytest.mark.parametrize("groups", [{}, {"sex": ["women"], "ward": ["1", "2"]}])
def test_columns_of_classes_that_are_swapped_are_told(groups):
    for order, swapped in (
        ((0, 1, 2), ()),
        ((1, 0, 2), ("cat", "dog")),
        ((2, 1, 0), ("cat", "owl")),
        ((1, 2, 0), CLASSES),
    ):
        labels, scores = pets(order=order)
        task = fg.MulticlassTask(labels=CLASSES, groups=groups)
        group = {name: np.resize([*values, "none"], len(labels)) for name, values in groups.items()}
        seen = counted(task, labels, scores, group=group or None)
        assert seen.swapped == swapped
        sentences = [each for each in seen.warnings(None, 0, 1) if "look swapped" in each]
        assert len(sentences) == bool(swapped)
        assert all(f"the scores of {', '.join(swapped)} look" in each for each in sentences)


def test_how_columns_are_ordered_is_seen_of_the_first_model_and_of_many_rows():
    """Of few rows, and of scores that favour owls whatever a row is: no two classes swap."""
    labels, scores = pets(rows=100, order=(1, 0, 2))
    assert counted(fg.MulticlassTask(labels=CLASSES), labels, scores).swapped == ()
    labels, scores = pets()
    scores[:, :] = np.where(labels == "owl", 0.9, 0.1)[:, None]
    assert counted(fg.MulticlassTask(labels=CLASSES), labels, scores).swapped == ()
    # Many classes are told in short.
    names = [f"class {number}" for number in range(40)]
    seen = counted(fg.MulticlassTask(labels=names), names[:3] * 2, np.full((6, 40), 0.5))
    assert seen.in_words.startswith("6 rows: of classes 3 of 40 have rows, 0 scores clipped")
    labels, right = pets()
    _, wrong = pets(order=(1, 0, 2))
    task = fg.MulticlassTask(labels=CLASSES, models=["new", "old"])
    assert counted(task, labels, {"new": wrong, "old": right}).swapped == ("cat", "dog")
    assert counted(task, labels, {"new": right, "old": wrong}).swapped == ()


def test_groups_that_hardly_occur_are_told():
    for groups, warned in (
        (["women", "men"] * 5, None),
        (["women", "men", "x", "x", "x"] * 2, "6 of 10"),
        (["women", "men", "men", "x", "x"] * 2, None),
        (["men"] * 8 + ["x"] * 2, "and none are of women"),
        (["men"] * 9 + ["x"], None),
        (["Women", "Men"] * 5, "and none are of women, men"),
        ([None] * 10, "10 of 10 rows"),
    ):
        task = fg.BinaryTask(groups={"sex": ["women", "men"]})
        sentences = told(task, [0, 1] * 5, [0.5] * 10, group=groups)
        assert len(sentences) == (warned is not None)
        assert all(warned in each and "group of sex" in each for each in sentences)


def test_rows_are_told_by_grouping_label_and_class():
    rows = [0, 1, 1, 0], [0.5] * 4
    groups = {"sex": ["women", "men", "men", "x"], "ward": [1.0, 2.0, 3.0, None]}
    lists = {"sex": ["women", "men"], "ward": ["1", "2"]}
    for crossed in (False, True):
        seen = counted(fg.BinaryTask(groups=lists, crossed=crossed), *rows, group=groups)
        assert [dict(parts.rows) for parts in seen.groups] == [
            {"women": 1, "men": 2, "other": 1},
            {"1": 1, "2": 1, "other": 2},
        ]
    labels, task = np.array([[0, 1], [0, 0]]), fg.MultilabelTask(labels=["fever", "cough"])
    (sentence,) = told(task, labels, np.array([[0.1, 0.2], [0.3, 0.4]]))
    assert sentence.startswith("none of 2 rows have the label fever, which is 1 in its column.")
    scores = np.full((2, 3), 0.3)
    (sentence,) = told(fg.MulticlassTask(labels=CLASSES), ["dog", "dog"], scores)
    assert sentence == "all of 2 rows are of the class dog. Check the label column."


def test_odd_scores_and_labels_are_counted_once_however_many_groupings():
    task = fg.MultilabelTask(labels=["a", "b"], groups={"sex": ["w"], "ward": ["1"]})
    labels = np.array([[0, None], [1, 1]], dtype=object)
    scores = np.array([[0.1, 7.0], [np.nan, 0.4]])
    seen = counted(task, labels, scores, group={"sex": ["w", "w"], "ward": ["1", "1"]})
    assert seen.oddities.in_words == [
        "1 of 4 scores are missing, infinite or no numbers: counted in an end bin.",
        "1 of 4 scores lie beyond the axis: counted in its end bins.",
        "1 of 4 labels are missing: counted as negative.",
    ]
    assert seen.in_words.startswith("2 rows: positive a (1), b (1), 1 scores clipped")


@pytest.mark.parametrize("order", ["C", "F"])
def test_clipped_scores_of_an_exact_sum_are_those_of_all_columns(order):
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(4, outside="clip"), fg.Cohort(3), task=fg.MulticlassTask(labels=CLASSES)
    )
    scores = np.asarray([[0.1, 20.0, 30.0], [0.1, 0.2, -1.0]], order=order)
    histogram, seen = count_exactly(plan, [fg.Examples(["cat", "dog"], scores)])
    assert histogram.sum() == seen.oddities.rows == 2
    assert seen.oddities.clipped == 3
    assert "3 of 6 scores lie beyond the axis" in seen.warnings(None, 0, 1)[0]
    assert "percent" in seen.warnings(None, 0, 1)[0]
