"""Scores at one party, labels at others: joined by id, binned, counted, evaluated."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

import fedgauge as fg
from fedgauge.vertical.assignment import balanced_ranks
from fedgauge.vertical.joining import join

SCORES = {1: 0.2, 2: 0.9, 3: 0.4, 4: 0.7}


def drawn(rows=20_000, rate=0.3, seed=0, decimals=None):
    rng = np.random.default_rng(seed)
    labels = (rng.random(rows) < rate).astype(int)
    scores = 1 / (1 + np.exp(-rng.normal(2.0 * labels - 1)))
    return labels, scores if decimals is None else scores.round(decimals)


def parties(labels, number):
    ids = np.arange(len(labels))
    return {f"party {k}": (ids[k::number], labels[k::number]) for k in range(number)}


@pytest.mark.parametrize("number", [1, 2, 3, 20])
def test_the_answer_is_that_of_pooled_rows(number):
    labels, scores = drawn()
    ids = np.arange(len(labels))
    result = fg.evaluate_vertical((ids, scores), parties(labels, number), seed=1)
    low, high = result.roc_auc.bounds
    assert low <= roc_auc_score(labels, scores) <= high
    assert high - low < 0.1
    assert result.average_precision.value == pytest.approx(
        average_precision_score(labels, scores), abs=0.01
    )
    assert (result.privacy.unit, result.privacy.neighbours) == ("label", "flip")
    assert result.privacy.epsilon == 1.0


@pytest.mark.parametrize("number", [1, 2])
def test_one_or_two_parties_add_all_the_noise(number):
    labels, scores = drawn(2000)
    result = fg.evaluate_vertical((np.arange(2000), scores), parties(labels, number), seed=1)
    cohort = result.plan.cohort
    assert cohort.min_survivors - cohort.max_colluding == 1


def test_few_values_are_exact_without_noise():
    labels, scores = drawn(5000, decimals=1)
    result = fg.evaluate_vertical(
        (np.arange(5000), scores), parties(labels, 4), privacy=fg.SecureAggregation()
    )
    assert result.roc_auc.value == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_half_the_scores_tied():
    labels, scores = drawn(400_000, seed=3)
    scores[::2] = 0.25
    result = fg.evaluate_vertical(
        (np.arange(400_000), scores),
        parties(labels, 4),
        tree=(16,),
        positive_rate=0.3,
        privacy=fg.SecureAggregation(),
    )
    assert result.roc_auc.value == pytest.approx(roc_auc_score(labels, scores), abs=1e-4)


def test_labels_change_neither_plan_nor_bins():
    labels, scores = drawn(1000)
    ids = np.arange(1000)
    results = []
    for place in (None, 0, 999):
        flipped = labels.copy()
        if place is not None:
            flipped[place] ^= 1
        results.append(fg.evaluate_vertical((ids, scores), parties(flipped, 5), seed=1))
    assert len({result.plan.digest for result in results}) == 1
    assert len({result.released.axis.digest for result in results}) == 1


def test_how_many_are_flagged_is_known():
    """The noise of both classes cancels there, but for rounding, which must not get in the way."""
    labels, scores = drawn(3000)
    result = fg.evaluate_vertical((np.arange(3000), scores), parties(labels, 5), seed=2)
    for threshold in np.linspace(0.01, 0.99, 40):
        at = result.at_threshold(threshold)
        assert at.flagged.parts["noise"] == pytest.approx(0.0, abs=1e-9)
        assert set(at.as_dict()) >= {"recall", "precision"}


def test_a_saved_result_says_the_same(tmp_path):
    labels, scores = drawn(3000)
    result = fg.evaluate_vertical((np.arange(3000), scores), parties(labels, 5), seed=2)
    result.to_json(tmp_path / "r.json")
    again = fg.Evaluation.from_json(tmp_path / "r.json")
    assert again.roc_auc == result.roc_auc
    assert again.record == result.record
    assert "scores at one party, labels at 5 others; 3,000 examples, about " in str(result)
    assert "privacy            label-DP, one label flipped: epsilon 1, delta " in str(result)


def test_the_secure_sum_says_the_same_without_noise():
    labels, scores = drawn(300)
    options = {"privacy": fg.SecureAggregation(), "tree": (8,)}
    plain, secure = (
        fg.evaluate_vertical(
            (np.arange(300), scores), parties(labels, 3), summation=summation, **options
        )
        for summation in ("plain", "secure")
    )
    assert np.array_equal(plain.released.counts, secure.released.counts)


def test_a_party_without_positives_is_like_any_other():
    labels, scores = drawn(3000)
    sides = parties(labels, 3)
    ids, values = sides["party 0"]
    sides["party 0"] = (ids, np.zeros_like(values))
    assert fg.evaluate_vertical((np.arange(3000), scores), sides, seed=1).roc_auc.value > 0.5


@pytest.mark.parametrize(
    ("scores", "labels", "told"),
    [
        (SCORES, {}, "mapping from parties"),
        (SCORES, {"a": [0, 1]}, "mapping from ids, a pair"),
        (SCORES, {"a": {1: 0}, "b": {1: 1}}, "1 of 2 labels have an id .* at another party"),
        (([1, 1], [0.2, 0.3]), {"a": {1: 0}}, "1 of 2 scores have an id that another"),
        (SCORES, {"a": {1: 0, 9: 1}, "b": {9: 1}}, "1 of 3 labels have an id .* at another party"),
        (([5, 1, 5, 5], [0.2] * 4), {"a": {1: 0}}, "2 of 4 scores have an id that another"),
        (([5, 1, 5, 5], [0.2] * 4), {"a": {1: 0, 5: 1}}, "2 of 4 scores have an id that another"),
        (SCORES, {"a": {7: 0, 8: 1}}, "no label of party 'a' has a score. Check"),
        (SCORES, {"a": {"x": 0}}, "its ids are text, those of the scores whole numbers"),
        (([1, None], [0.2, 0.3]), {"a": {1: 0}}, "scores: 1 id is missing"),
        (([1, 2], [0.2]), {"a": {1: 0}}, "2 ids and 1 values"),
        ({1: float("nan"), 2: 0.5}, {"a": {1: 0, 2: 1}}, "1 of 2 scores are missing"),
    ],
)
def test_what_cannot_be_joined_is_told(scores, labels, told):
    with pytest.raises(fg.InputError, match=told):
        fg.evaluate_vertical(scores, labels)


def test_ids_without_a_match_are_counted_and_left_out():
    joined = join(SCORES, {"a": {1: 0, 9: 1}, "b": {3: 1}})
    assert joined.unscored == (1, 0)
    assert joined.unlabelled == 2
    assert joined.scores.tolist() == [0.2, 0.4]


def test_balanced_bins_hold_rare_positives_apart():
    """Both classes fill bins evenly where scores are as the reference."""
    ranks = balanced_ranks(16, 0.05)
    assert np.all(np.diff(ranks) > 0)
    assert ranks[-1] > 0.98  # the top sixteenth holds few examples, where rare positives are
    # As if the odds were a quarter of those hinted: four to one are even.
    assert balanced_ranks(2, 0.8)[0] == pytest.approx(0.5, abs=1e-3)


def test_few_distinct_scores_have_a_bin_each():
    """Also some more than the bins that would be chosen; but as many as were asked for."""
    labels, scores = drawn(2000, decimals=1)
    ids, sides = np.arange(2000), parties(labels, 4)
    values = len(np.unique(scores))
    assert fg.evaluate_vertical((ids, scores), sides, seed=1).plan.tree == (values,)
    assert (
        fg.evaluate_vertical((ids, scores), sides, tree=(4,), seed=1).released.axis.kind != "values"
    )


def test_what_no_label_moves_has_no_noise():
    """How many are flagged is known: the noise of both classes cancels, up to rounding."""
    labels, scores = drawn(20_000, rate=0.1)
    result = fg.evaluate_vertical((np.arange(20_000), scores), parties(labels, 4), seed=1)
    for threshold in np.linspace(0.05, 0.95, 19):
        assert result.at_threshold(threshold).flagged.parts["noise"] < 1e-9
        result.at_threshold(threshold).as_dict()
