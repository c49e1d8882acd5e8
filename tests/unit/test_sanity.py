"""Where the line runs between sums of rows and sums that no rows have."""

import math
import warnings
from functools import reduce

import numpy as np
import pytest
from plans import exact_plan, noisy_plan, plan_for, report_plan
from refusals import refused
from rows import draw_rows, split

import fedgauge as fg
from fedgauge.engines.contribution import release, to_numbers
from fedgauge.estimation import sanity
from fedgauge.estimation.counts import PooledCounts, Released
from fedgauge.estimation.repair import node_variances
from fedgauge.estimation.sanity import check_exact, impossible_caution, noise_reach
from fedgauge.histograms.tables import JointScores
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import noise
from noise import share_law

CLIENTS, LARGEST = 5, 1000
MOST = CLIENTS * LARGEST
COHORT = fg.Cohort(CLIENTS, 1)
NOISES = {
    "polya": fg.DistributedDP(1.0),
    "skellam": fg.DistributedDP(1.0, 1e-6, noise="skellam"),
    "discrete-gaussian": fg.DistributedDP(1.0, 1e-6, noise="discrete-gaussian"),
}
BY = {"sex": ["women"], "age": ["old"]}
REPORTS = 10_000
PAIR = {"models": ("new", "old"), "pairs": [("new", "old")]}
ROWS = 6000
MODELS = {"exact": None, "ddp": fg.DistributedDP(1.0), "ldp": fg.LocalDP(5.0)}
every_model = pytest.mark.parametrize("privacy", MODELS.values(), ids=MODELS)


def exact(counts, sums=None):
    plan = exact_plan(bins=4, largest=LARGEST, score_sums=sums is not None)
    total = np.concatenate([np.ravel(part) for part in (counts, sums) if part is not None])
    return release(plan, total, CLIENTS)


def rows(*changes):
    counts = np.full((2, 4), 50)
    for place, number in changes:
        counts.flat[place] = number
    return counts


SLICED = {
    "models": (fg.BinaryTask(models=("new", "old")), [(0, 2)]),
    "classes": (fg.MulticlassTask(labels=["a", "b"]), [(0, 2)]),
    # By label the rows are not the same, but those of each group are.
    "labels": (fg.MultilabelTask(labels=["fever", "cough"]), [(0, 2), (0, 3)]),
    # A row is in one of two groups by sex and in one of two by age, and has one class by both.
    "groupings": (fg.BinaryTask(groups=BY), [(0, 4), (2, 6), (0, 6)]),
}


@pytest.mark.parametrize("kind", SLICED)
def test_scores_of_the_same_rows_are_of_as_many_of_each_group_and_class(kind):
    """One channel alone cannot have one row more; two that a row is in together can."""
    task, together = SLICED[kind]
    plan = exact_plan(bins=4, task=task)
    fits = np.full((plan.task.rows_sent, 4), 50)
    release(plan, fits.ravel(), CLIENTS)
    for channel in range(plan.task.rows_sent):
        counts = fits.copy()
        counts[channel, 1] += 1
        refused(fg.ProtocolError, "scores of the same rows", release, plan, counts.ravel(), CLIENTS)
    for channels in together:
        counts = fits.copy()
        for place, channel in enumerate(channels):
            counts[channel, place] += 1
        release(plan, counts.ravel(), CLIENTS)


def test_models_agree_on_each_class_of_each_group():
    """Two women more who are negative, two fewer who are positive; the men the other way round."""
    plan = exact_plan(bins=4, task=fg.BinaryTask(groups={"sex": ["women"]}, models=("new", "old")))
    counts = np.full((plan.task.rows_sent, 4), 50)
    counts[:4, 0] += [2, -2, -2, 2]  # by the new model, of four channels each
    refused(fg.ProtocolError, "scores of the same rows", release, plan, counts.ravel(), CLIENTS)
    counts[4:, 1] += [2, -2, -2, 2]
    release(plan, counts.ravel(), CLIENTS)


@pytest.mark.parametrize("place", range(8))
def test_numbers_of_an_exact_sum_lie_between_zero_and_the_largest_of_all(place):
    for number in (0, MOST):
        assert exact(rows((place, number))).counts.flat[place] == number
    for number in (0, 50 * 256):
        assert exact(rows(), rows((place, number))).sums.flat[place] == number
    for counts, sums, told in (
        (rows((place, -1)), None, "a count of the sum is negative"),
        (rows((place, MOST + 1)), None, "above the plan's largest for all"),
        (rows(), rows((place, -1)), "a score sum is negative"),
        (rows(), rows((place, 50 * 256 + 1)), "a score sum is above"),
    ):
        refused(fg.ProtocolError, told, exact, counts, sums)


def test_merging_and_large_sums_hide_nothing():
    plan = exact_plan(bins=1, score_sums=True)
    counts, sums = np.array([[0], [2**62]]), np.array([[0], [2**63 - 1]])
    check_exact(plan, counts, sums, clients=2**24)
    with pytest.raises(fg.ProtocolError, match="score sum is above"):
        check_exact(plan, np.array([[0], [2**55 - 1]]), sums, clients=2**24)
    plan = exact_plan(bins=4, min_cell=10)
    for counts in (np.array([[50, 50, 50, 50], [5, -1, 50, 50]]), -rows()):
        refused(fg.ProtocolError, "negative", release, plan, counts.ravel(), CLIENTS)
    refused(fg.ProtocolError, "negative", exact, -rows())


def noisy(counts, plan, *, sums=None, clients=CLIENTS):
    return Released(plan.axis, np.asarray(counts, float), clients, sums)


def bins_with(plan, place, number):
    counts = np.full((2, plan.axis.bins), 50.0)
    counts[1, place] = number
    return counts


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
@pytest.mark.parametrize("place", [0, 3])
def test_counts_beyond_what_noise_does(noise, place):
    plan = plan_for(noise, None, COHORT, bins=4, largest=LARGEST)
    law = plan.noise_laws(shares=1)[0]
    reach = noise_reach(CLIENTS * law.variance, CLIENTS * law.parts, 1e-6 / (2 * 4 * 2))
    for number in (-reach + 0.01, MOST + reach - 0.01):
        assert impossible_caution(plan, noisy(bins_with(plan, place, number), plan)) is None
    for number in (-reach - 0.01, MOST + reach + 0.01):
        assert impossible_caution(plan, noisy(bins_with(plan, place, number), plan)) is not None


def test_inner_nodes_show_what_each_leaf_hides():
    """Leaves that are all a little too low: their parents are lower than chance."""
    tree, flat = (plan_for(NOISES["polya"], t, COHORT) for t in ((4, 16), (64,)))
    counts = np.full((2, 64), 50.0)
    counts[1, :16] = -12.0
    assert impossible_caution(flat, noisy(counts, flat)) is None
    assert impossible_caution(tree, noisy(counts, tree)) is not None
    plan = report_plan(fg.LocalDP(2.0), (4, 16))
    counts = np.full((2, 64), REPORTS / 128)
    counts[1, :16], counts[0, :16] = -140, REPORTS / 64 + 140
    told = Released(plan.axis, counts, 1, reports=REPORTS)
    assert impossible_caution(plan, told) is not None
    spread = counts[:, np.random.default_rng(0).permutation(64)]
    assert impossible_caution(plan, Released(plan.axis, spread, 1, reports=REPORTS)) is None


@pytest.mark.parametrize("tree", [(8,), (4, 2)], ids=["flat", "tree"])
def test_scores_of_the_same_rows_differ_by_noise_alone(tree):
    """By two models: more rows of a class by one of them than noise explains are a caution."""
    task = fg.BinaryTask(models=("new", "old"))
    plan = plan_for(NOISES["polya"], tree, COHORT, task=task)
    variances = node_variances(tree, plan.noise_variances(CLIENTS))
    checked = 2 * 4 * sum(plan.final.nodes) + 2 * (2 + 1 + 2)
    by_class = noise_reach(
        2 * tree[0] * variances[0], CLIENTS * plan.summed.noise_parts(plan.terms), 1e-6 / checked
    )
    for beyond, told in ((-0.01, False), (0.01, True)):
        counts = np.full((4, 8), 500.0)
        counts[2] -= (by_class + beyond) / 8  # of one class, by the second model
        assert (impossible_caution(plan, noisy(counts, plan)) is not None) == told
        counts[0] = counts[2]
        assert impossible_caution(plan, noisy(counts, plan)) is None


def test_honest_rows_of_slices_are_not_cautioned():
    """Seeded. Chance of a false alarm: 1e-6 each of 15."""
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 3, 300)
    rows = fg.Examples(labels, rng.random((300, 3)), group=rng.choice(["a", "b"], 300))
    task = fg.MulticlassTask(labels=[0, 1, 2], groups={"g": ["a"]}, also=["confusion"])
    plan = plan_for(NOISES["polya"], (4, 2), COHORT, task=task)
    for seed in range(15):
        result = fg.evaluate({str(i): rows for i in range(5)}, plan, seed=seed)
        assert result.caution is None


@pytest.mark.parametrize(
    ("number", "told"), [(-1e6, True), (0, False), (50 * 256, False), (50 * 256 + 1e6, True)]
)
def test_score_sums_under_noise(number, told):
    plan = noisy_plan(1.0, bins=4, score_sums=True)
    sums = np.full((2, 4), 50 * 128)
    sums[1, 2] = number
    released = noisy(bins_with(plan, 2, 50), plan, sums=sums)
    assert (impossible_caution(plan, released) is not None) == told


def test_score_sums_are_held_against_counts_that_are_noisy_too():
    plan = noisy_plan(1.0, bins=4, score_sums=True)
    counts, sums = plan.noise_laws(shares=1)[0], plan.sums_law(shares=1)
    variance = CLIENTS * (counts.variance + sums.variance / 256**2)
    reach = noise_reach(variance, CLIENTS * counts.parts, 1e-6 / (2 * 4 * 4))
    for beyond, told in ((-0.1, False), (0.1, True)):
        measured = np.full((2, 4), 50 * 128)
        measured[1, 2] = (50 + reach + beyond) * 256
        released = noisy(bins_with(plan, 2, 50), plan, sums=measured)
        assert (impossible_caution(plan, released) is not None) == told


def reported(plan, place, number):
    """A node without rows that comes out as this number; the others share the rest."""
    counts = np.full(2 * plan.axis.bins, (REPORTS - number) / (2 * plan.axis.bins - 1))
    counts[place] = number
    return Released(plan.axis, counts.reshape(2, -1), REPORTS, reports=REPORTS)


@pytest.mark.parametrize("place", [0, 7])
def test_counts_of_reports_below_what_their_randomness_does(place):
    plan = report_plan(fg.LocalDP(1.0), (4,))
    e = math.e
    # Settled to the public total, a bin keeps 1 - 1 / 8 of its variance, and little of the others'.
    variance = REPORTS * 4 * e / (e - 1) ** 2
    reach = noise_reach(variance, math.inf, 1e-6 / 8)
    assert impossible_caution(plan, reported(plan, place, -0.9 * reach)) is None
    assert "not made from rows" in impossible_caution(plan, reported(plan, place, -1.02 * reach))


def test_reports_without_any_count_and_rounding_of_huge_ones():
    plan = report_plan(fg.LocalDP(1.0), (4,))
    released = Released(plan.axis, -np.full((2, 4), 1e6), 1, reports=100)
    assert impossible_caution(plan, released) is not None
    plan = noisy_plan(1.0, bins=4)
    counts = bins_with(plan, 0, 2.0**42)
    counts[1, 1] = -noise_reach(CLIENTS * plan.noise_laws(1)[0].variance, 2.5, 1e-6 / 16) - 1e-3
    assert impossible_caution(plan, noisy(counts, plan)) is None
    exactly = exact_plan(bins=4)
    assert impossible_caution(exactly, noisy(-np.full((2, 4), 1e6), exactly)) is None


def node_masses(law, clients):
    """Values of the noise at one node and their probabilities, by convolution of its tables."""
    edges = np.array([0, *law._table.cumulative, 2**noise.BITS], dtype=object)
    masses = (np.diff(edges) / 2**noise.BITS).astype(float)
    if not law._signed:  # a difference of two draws
        total = np.convolve(masses, masses[::-1])
        return np.arange(len(total)) - len(masses) + 1, total
    total = reduce(np.convolve, [masses] * clients)
    return np.arange(len(total)) + clients * law._table.first, total


@pytest.mark.parametrize("chance", [1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize("clients", [4, 10])
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
@pytest.mark.parametrize("parameter", [0.05, 1.0, 30.0])
def test_the_exact_tail_of_every_law_is_within_the_bound(noise, clients, chance, parameter):
    """And the bound is no more than half as far again as the tail, and one."""
    law = share_law(noise, parameter, parties=4, shares=clients)
    values, total = node_masses(law, clients)
    parts = share_law(noise, parameter, parties=4).parts * clients
    reach = noise_reach(law.variance, parts, chance)
    assert total[values >= reach].sum() <= chance
    assert total[values >= reach / 1.5 - 1].sum() > chance


@pytest.mark.parametrize("parts", [1.0, math.inf])
def test_the_bound_grows_with_the_deviation_however_large(parts):
    small, large = (noise_reach(variance, parts, 1e-6) for variance in (1e8, 1e28))
    assert large / small == pytest.approx(1e10, rel=1e-6)


def test_parts_of_shares_and_the_stated_chance_of_a_false_alarm():
    assert share_law(NOISES["polya"], 1.0, parties=4, shares=6).parts == 1.5
    for name in ("skellam", "discrete-gaussian"):
        assert share_law(NOISES[name], 9.0, parties=4, shares=6).parts == math.inf
    assert sanity.FALSE_ALARM == 1e-6
    plan = noisy_plan(1.0, bins=4)
    told = impossible_caution(plan, noisy(bins_with(plan, 0, -1e6), plan))
    assert "one of 1,000,000 results" in told


TABLED = {
    "joint": fg.BinaryTask(**PAIR),
    "joint by group": fg.BinaryTask(**PAIR, groups=BY),
    "classes": fg.MulticlassTask(labels=["a", "b"], also=["confusion", "ranks", "top"]),
    "classes by group": fg.MulticlassTask(
        labels=["a", "b"], also=["confusion", "ranks", "top"], groups={"sex": ["women"]}
    ),
}


def tabled(plan, rows=400):
    rng, task = np.random.default_rng(3), plan.task
    kinds, scores = rng.integers(0, 2, rows), rng.random((rows, 2))
    group = {by: np.where(rng.random(rows) < 0.5, v[0], "x") for by, v in task.groups.items()}
    labels = np.array(task.layout.classes or (0, 1), dtype=object)[kinds]
    given = dict(zip(task.models, scores.T, strict=True)) if task.models else scores
    histogram = plan.histogram()
    histogram.update_batches([fg.Examples(labels, given, group=group or None)])
    return to_numbers(plan, histogram)


def moves(plan):
    """Of each table: a row taken from a cell, and given to another of the table."""
    end = plan.numbers
    for table, cells in zip(plan.tables[::-1], plan.summed.cells(plan.terms)[::-1], strict=True):
        end -= cells
        by_group = np.arange(end, end + cells).reshape(table.groups(plan.task.layout), -1)
        if len(by_group) > 1:
            yield by_group[0], by_group[-1]  # another group
        if table.by_class:
            size = by_group.shape[1] // 2
            yield by_group[0][:size], by_group[0][size:]  # another class
        if isinstance(table, JointScores):
            yield by_group[0][:4], by_group[0][12:16]  # another range of the first model
            yield by_group[0][:16:4], by_group[0][3:16:4]  # of the second


@pytest.mark.parametrize("kind", TABLED)
def test_tables_are_of_the_rows_of_the_counts(kind):
    """By group, class and range, as far as a table tells them; and no larger than rows can be."""
    plan = exact_plan(bins=4, largest=LARGEST, task=TABLED[kind])
    total = tabled(plan)
    release(plan, total, CLIENTS)
    seen = 0
    for out_of, into in moves(plan):
        wrong = total.copy()
        wrong[max(out_of, key=lambda cell: total[cell])] -= 1
        wrong[into[0]] += 1
        refused(
            fg.ProtocolError,
            "a table and the counts come from different rows",
            release,
            plan,
            wrong,
            CLIENTS,
        )
        seen += 1
    assert seen >= 2
    wrapped = total.copy()
    wrapped[-4:] += 2**62  # which add up to nothing in 64 bits
    refused(fg.ProtocolError, "a cell of a table is above", release, plan, wrapped, CLIENTS)


@pytest.mark.parametrize("kind", TABLED)
def test_tables_of_other_rows_beyond_what_noise_does(kind):
    plan = plan_for(NOISES["polya"], None, COHORT, bins=64, largest=20 * LARGEST, task=TABLED[kind])
    total = tabled(plan, rows=40_000)
    assert impossible_caution(plan, release(plan, total, CLIENTS)) is None
    last = plan.tables[-1]
    for change in (10_000, -10_000, 20 * MOST):
        wrong = total.copy()
        wrong[-1] += change
        assert impossible_caution(plan, release(plan, wrong, CLIENTS)) is not None
    if last.grouping or last.by_class:  # none below zero, and as many rows in all
        wrong, half = total.copy(), plan.summed.cells(plan.terms)[-1] // 2
        wrong[-half:] += wrong[-2 * half : -half]
        wrong[-2 * half : -half] = 0
        assert impossible_caution(plan, release(plan, wrong, CLIENTS)) is not None


def rows_crowded(scale=1.0, *, rate=0.4, count=ROWS, apart=2.0, middle=-2.0, seed=0):
    """Labels, and probabilities of a fair model times a scale."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(count) < rate).astype(int)
    odds = rng.normal(middle + apart * labels, 1.5)
    return labels, scale / (1 + np.exp(-odds))


def logits(labels, probabilities):
    return labels, np.log(probabilities / (1 - probabilities))


def decisions(labels, probabilities):
    return labels, (probabilities >= 0.5).astype(float)


def caution(data, axis, privacy=None):
    options = {} if privacy is None else {"privacy": privacy, "seed": 1}
    return fg.evaluate(at_three(data), axis=axis, **options).caution


def at_three(data):
    return {f"site {i}": tuple(column[i::3] for column in data) for i in range(3)}


CLIPPED = {
    "percent": rows_crowded(100.0),
    "points": rows_crowded(1000.0),
    "logits": logits(*rows_crowded()),
}
AXES = {
    "uniform": fg.Axis.uniform(64, outside="clip"),
    "fine": fg.Axis.uniform(4096, outside="clip"),
    "few": fg.Axis.uniform(8, outside="clip"),
    "logit": fg.Axis.logit(64, outside="clip"),
    "edges": fg.Axis.from_edges([0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 1], outside="clip"),
    "values": fg.Axis.from_values(np.arange(21) / 20, outside="clip"),
}
every_axis = pytest.mark.parametrize("axis", AXES.values(), ids=AXES)


@every_axis
@every_model
@pytest.mark.parametrize("data", CLIPPED.values(), ids=CLIPPED)
def test_scores_in_another_unit_have_a_caution(data, axis, privacy):
    told = caution(data, axis, privacy)
    assert "Were scores in percent, points or logits on an axis of 0 to 1?" in told


@every_axis
@every_model
def test_probabilities_have_none(axis, privacy):
    assert caution(rows_crowded(), axis, privacy) is None


def test_the_end_and_what_is_clipped_into_it_are_named():
    for data, told in (
        (CLIPPED["percent"], "the last bin of the axis, which also holds all scores above"),
        (CLIPPED["logits"], "the first bin of the axis, which also holds all scores below"),
        (
            decisions(*rows_crowded()),
            "decisions of 0 and 1, the numbers are right",
        ),  # which look the same
    ):
        assert told in caution(data, AXES["uniform"])


def clip(*ends):
    return fg.Axis.uniform(*ends, outside="clip")


def test_what_is_no_crowd():
    for data, axis in (
        # A confident model that works: most scores are in the end bins, each class at its own.
        (rows_crowded(apart=14.0, middle=-7.0), AXES["uniform"]),
        # An axis that refuses.
        (
            (rows_crowded()[0], np.minimum(rows_crowded(100.0)[1] * 50, 100)),
            fg.Axis.uniform(64, 0, 100),
        ),
        # The scores' own range.
        (rows_crowded(100.0), clip(64, 0, 100)),
        (CLIPPED["logits"], clip(64, -12, 12)),
        # Bins as wide as a third: nothing could tell.
        *((rows_crowded(scale), clip(bins)) for scale in (1.0, 100.0) for bins in (1, 2, 3)),
    ):
        assert "Then all numbers are wrong" not in str(caution(data, axis))


def test_decisions_saturated_and_reversed_scores_are_named_and_no_others():
    labels, scores = draw_rows(3000, seed=5)
    steep = scores**8 / (scores**8 + (1 - scores) ** 8)
    odd = {
        "predictions, not scores": (labels, np.where(scores > 0.5, 0.7, 0.2)),
        "log-odds (`--axis logit`)": (labels, steep),
        "Are labels reversed": (1 - labels, scores),
    }
    for privacy in (fg.SecureAggregation(), fg.DistributedDP(1.0)):
        asked = {"privacy": privacy, "axis": clip(64, 0, 1), "seed": 1}
        assert fg.evaluate(split(labels, scores, 3), **asked).caution is None
        for told, rows in odd.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", fg.InputWarning)
                assert told in fg.evaluate(split(*rows, 3), **asked).caution
    confident = fg.evaluate(split(*rows_crowded(apart=14.0, middle=-7.0), 3), axis=clip(64, 0, 1))
    assert confident.caution is None
    chance = np.random.default_rng(3).random((2, 400)) > 0.5
    assert fg.evaluate({"a": (chance[0], scores[:400])}).caution is None
    sites = {"a": (labels, scores), "b": (1 - labels[:900], scores[:900])}
    with pytest.warns(fg.InputWarning, match="client 'b': the ROC AUC is below 0.4"):
        fg.evaluate(sites)


def test_what_few_examples_and_a_confident_model_show():
    """Two in three of both classes at the end are no evidence; ten of ten are."""
    few = ([0, 0, 0, 1, 1, 1], [0.2, 5, 5, 0.5, 5, 5])
    assert caution(few, AXES["uniform"]) is None
    assert caution(([0, 1] * 10, [5.0] * 20), AXES["uniform"]) is not None
    axis = AXES["uniform"]
    assert "numbers are wrong" not in caution((np.ones(500, int), np.full(500, 7.0)), axis)
    plan = plan_for(fg.DistributedDP(1.0), bins=64)
    counts = np.zeros((2, 64))
    counts[0, -1], counts[1] = 1000, -1.0  # noise alone
    released = Released(plan.axis, counts, 5)
    assert sanity.crowded_caution(plan, released, pooled(plan, released)) is None
    _, scores = rows_crowded(apart=14.0, middle=-7.0)
    assert np.mean((scores < 1 / 64) | (scores > 63 / 64)) > 0.9


def pooled(plan, released):
    (slice_,) = plan.task.slices
    return PooledCounts.of(plan, released, slice_)


def at_the_end(plan, share, count=1000.0, **options):
    """So large a share of each class in the last bin, the others evenly in the first half."""
    half = plan.axis.bins // 2
    counts = np.zeros((2, plan.axis.bins))
    counts[:, :half] = count * (1 - share) / half
    counts[:, -1] = count * share
    return Released(plan.axis, counts, 5, **options)


PLANS = {
    "exact": plan_for(bins=64),
    "flat": plan_for(fg.DistributedDP(1.0), bins=64),
    "tree": plan_for(fg.DistributedDP(1.0), (8, 8)),
    "reports": report_plan(fg.LocalDP(2.0), (64,)),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_line_is_the_share_and_what_noise_and_sampling_leave_open(name):
    plan = PLANS[name]
    options = {"reports": 2000} if name == "reports" else {}
    told = {
        share: sanity.crowded_caution(plan, released, pooled(plan, released))
        for share in (0.09, 0.11, 0.9)
        for released in [at_the_end(plan, share, **options)]
    }
    assert told[0.09] is told[0.11] is None  # 0.11 is within what chance does
    assert "over 10% of the negatives and of the positives" in told[0.9]


@pytest.mark.parametrize("noise", ["polya", None])
def test_the_line_in_numbers(noise):
    plan, count, parts = PLANS["exact"], 1000.0, math.inf
    variance = count * 0.1 * 0.9
    if noise:
        plan = PLANS["flat"]
        law = plan.noise_laws(shares=1)[0]
        variance += 5 * law.variance * (0.9**2 + 63 * 0.1**2)
        parts = 5 * law.parts
    reach = 1.1 * noise_reach(variance / 1.1**2, parts, 1e-6 / 2)
    for beyond, told in ((-0.01, False), (0.01, True)):
        released = at_the_end(plan, 0.1 + (reach + beyond) / count, count)
        assert (sanity.crowded_caution(plan, released, pooled(plan, released)) is not None) == told


def test_both_classes_must_be_there_in_a_bin_not_wide_by_merging():
    plan = PLANS["exact"]
    for row in range(2):
        counts = np.array(at_the_end(plan, 0.9).counts)
        counts[row] = at_the_end(plan, 0.05).counts[row]
        released = Released(plan.axis, counts, 5)
        assert sanity.crowded_caution(plan, released, pooled(plan, released)) is None
    axis = fg.Axis.uniform(64, outside="clip")
    plan = EvaluationPlan.for_histogram(axis, fg.Cohort(3, 1), min_cell=10)
    wide = fg.Axis.from_edges([0.0, 0.25, 0.5, 1.0], outside="clip")
    counts = np.full((2, 3), 400)
    released = Released(wide, counts, 5)
    assert sanity.crowded_caution(plan, released, pooled(plan, released)) is None


def test_a_caution_is_in_the_verdict_and_survives_a_file(tmp_path):
    result = fg.evaluate(at_three(rows_crowded(100.0)), privacy=fg.DistributedDP(1.0), seed=1)
    assert str(result).splitlines()[-1] == f"caution            {result.caution}"
    result.to_json(tmp_path / "r.json")
    assert fg.Evaluation.from_json(tmp_path / "r.json").caution == result.caution
    plan = PLANS["flat"]
    released = at_the_end(plan, 0.9)
    released.counts[1, 40] = -1e5
    result = fg.Evaluation(plan, plan.statement("simulated"), released, estimator=fg.Aligned())
    assert "impossible counts" in result.caution
    released.counts[1, 40], released.counts[1, -1] = -1e3, 1e4
    assert "impossible counts" in result.at_level(0.9).caution
    assert "percent" in result.at_level(0.9).caution


def test_a_known_value_counts_as_one_of_as_many():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 3000)
    few = fg.Axis.from_values(range(5), outside="clip")
    assert caution((labels, rng.integers(0, 5, 3000)), few) is None
    many = fg.Axis.from_values(range(21), outside="clip")
    assert caution((labels, rng.integers(0, 26, 3000)), many) is not None
    assert caution((np.ones(9, int), np.full(9, 7.0)), fg.Axis.from_values([3], "clip")) is None
