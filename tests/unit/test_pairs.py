"""The AUC alone, from a noisy pair of each label party."""

import copy
import json
import pickle
from fractions import Fraction

import commands
import numpy as np
import pytest
from refusals import refused
from sklearn.metrics import roc_auc_score

import fedgauge as fg
from fedgauge.vertical import auc
from fedgauge.vertical.auc import MECHANISMS, PairAnswer, PartyRanks, auc_estimate, auc_of

LABEL_DP = fg.DistributedDP(1.0, unit="label", neighbours="flip")
GAUSSIAN = fg.DistributedDP(1.0, 1e-6, noise="discrete-gaussian", unit="label", neighbours="flip")
NOTHING = auc.DiscreteLaplace(Fraction(0))


def drawn(rows=4000, decimals=None, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.random(rows) < 0.3
    scores = rng.normal(1.5 * labels)
    return labels, scores if decimals is None else scores.round(decimals)


def privacy_of(name):
    return GAUSSIAN if MECHANISMS[name].noise == "discrete-gaussian" else LABEL_DP


def by_party(labels, scores, number, *, apart=False):
    order = np.argsort(scores) if apart else np.arange(len(labels))
    rows = np.array_split(order, number) if apart else [order[k::number] for k in range(number)]
    return {f"party {k}": (labels[at], scores[at]) for k, at in enumerate(rows)}


@pytest.mark.parametrize("decimals", [None, 1, 0])
def test_the_auc_of_doubled_midranks_is_scikit_learns(decimals):
    labels, scores = drawn(decimals=decimals)
    ranks = auc.doubled_midranks(scores)
    found = auc_of(int(labels.sum()), int(ranks[labels].sum()), len(labels))
    assert found == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("number", [1, 3, 40])
def test_pairs_without_noise_give_the_auc(name, number):
    labels, scores = drawn(decimals=1)
    ranks, party = auc.doubled_midranks(scores), np.arange(len(labels)) % number
    known = PartyRanks.of(ranks, party, number)
    pairs = [
        auc.noisy_pair(
            labels[party == k],
            ranks[party == k],
            auc.PartyTerms(terms.centre, NOTHING, NOTHING),
            None,
        )
        for k, terms in enumerate(MECHANISMS[name].terms(known, privacy_of(name)))
    ]
    found = auc_estimate(pairs, MECHANISMS[name], known, privacy_of(name))
    assert found.value == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_what_parties_send_and_the_balance_rank():
    at = auc.balance_rank(0.8, 1000, 5000)
    total = 0.8 * 2 * 1000 * 4000 + 1000 * 999
    assert auc_of(1001, total + at, 5000) == pytest.approx(0.8, abs=1e-6)
    assert auc_of(1001, total + at + 2000, 5000) > 0.8001
    ranks = np.array([0, 2, 4, 6, 8, 10])
    known = PartyRanks.of(ranks, np.array([0, 0, 0, 1, 1, 2]), 4)
    splits = {name: row.split(known) for name, row in MECHANISMS.items()}
    assert splits["laplace-global"].reach.tolist() == [10, 10, 10, 10]
    assert splits["laplace-local"].reach.tolist() == [4, 8, 10, 0]
    assert splits["orthogonal"].reach.tolist() == [2, 1, 0, 0]
    assert splits["orthogonal"].centre.tolist() == [2, 7, 10, 0]
    # A party whose ranks are all alike spends everything on its positives.
    assert (splits["adaptive"].share == 2**16).tolist() == [False, False, True, True]
    part = splits["adaptive"].share[1] / 2**16
    assert part == pytest.approx(7 ** (2 / 3) / (7 ** (2 / 3) + 1), abs=1e-4)


@pytest.mark.parametrize("name", MECHANISMS)
def test_any_mechanism_can_be_asked_for(name):
    labels, scores = drawn(20_000)
    result = fg.evaluate_vertical(
        None,
        by_party(labels, scores, 3),
        only="roc_auc",
        mechanism=name,
        privacy=privacy_of(name),
        seed=1,
    )
    low, high = result.roc_auc.bounds
    assert low <= roc_auc_score(labels, scores) <= high
    assert high - low < 0.1
    assert (result.mechanism, result.parties, result.examples) == (name, 3, 20_000)
    stated = result.privacy
    assert (stated.unit, stated.neighbours, stated.epsilon) == ("label", "flip", 1.0)
    assert (stated.delta, stated.cohort) == (privacy_of(name).delta or 0.0, None)


def test_a_result_says_what_it_is_from_scores_by_id_or_of_parties(result):
    labels, scores = drawn()
    ids = np.arange(len(labels))
    apart = {f"party {k}": (ids[k::3], labels[k::3]) for k in range(3)}
    together = by_party(labels, scores, 3)
    for options in ({}, {"only": "roc_auc"}, {"only": "roc_auc", "mechanism": "adaptive"}):
        one = fg.evaluate_vertical((ids, scores), apart, seed=1, **options)
        other = fg.evaluate_vertical(None, together, seed=1, **options)
        assert one.roc_auc == other.roc_auc
    text = str(result)
    assert "mechanism:  adaptive" in text
    assert "labels:     4,000, at 1 party" in text
    assert "label-DP, one label flipped: epsilon 1" in text
    assert "label-DP" in result._repr_html_()
    assert str(copy.deepcopy(result)) == str(pickle.loads(pickle.dumps(result))) == text  # noqa: S301


@pytest.mark.parametrize(
    ("number", "apart", "expected"),
    [(1, False, True), (2, False, True), (20, False, False), (3, True, True), (400, True, False)],
)
def test_auto_takes_pairs_of_few_parties_or_of_parties_that_differ(number, apart, expected):
    labels, scores = drawn(200_000)
    result = fg.evaluate_vertical(
        None, by_party(labels, scores, number, apart=apart), only="roc_auc", seed=1
    )
    assert (result.mechanism != "histogram") == expected
    assert result.predicted[result.mechanism] == min(result.predicted.values())
    assert set(result.predicted) == {"histogram", *MECHANISMS} - {"gaussian"}


def test_labels_and_flips_choose_nothing_and_a_histogram_may_give_the_auc_alone():
    parties, flips = by_party(*drawn(), 3), fg.LocalDP(1.0, unit="label")
    alone = fg.evaluate_vertical(None, parties, privacy=flips, only="roc_auc", seed=1)
    assert alone.roc_auc == fg.evaluate_vertical(None, parties, privacy=flips, seed=1).roc_auc
    assert (alone.mechanism, list(alone.predicted)) == ("histogram", ["histogram"])
    labels, scores = drawn()
    one, other = (
        fg.evaluate_vertical(None, by_party(read, scores, 3), only="roc_auc", seed=1)
        for read in (labels, np.roll(labels, 1))
    )
    assert one.predicted == other.predicted
    assert one.mechanism == other.mechanism
    parties, same = by_party(labels, scores, 5), {"tree": (16,), "seed": 1}
    alone = fg.evaluate_vertical(None, parties, only="roc_auc", mechanism="histogram", **same)
    assert alone.roc_auc == fg.evaluate_vertical(None, parties, **same).roc_auc


def test_hidden_classes_are_told_and_an_impossible_auc_is_brought_back():
    parties = by_party(np.arange(40) < 2, np.arange(40.0), 4)
    with pytest.raises(fg.NoSignal, match="hides the number of positives"):
        fg.evaluate_vertical(None, parties, only="roc_auc", mechanism="adaptive", seed=1)
    known = PartyRanks.of(np.arange(0, 2000, 2), np.zeros(1000, dtype=int), 1)
    with pytest.raises(fg.NoSignal, match="hides the number of negatives"):
        auc_estimate([PairAnswer(998, 10**6)], MECHANISMS["laplace-local"], known, LABEL_DP)
    found = auc_estimate([PairAnswer(300, 10**6)], MECHANISMS["laplace-local"], known, LABEL_DP)
    assert (found.value, found.bounds[1], found.high) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("name", "least", "most"), [("adaptive", 2.0, 2.17), ("gaussian", 1.959, 1.961)]
)
def test_bounds_and_intervals_know_the_noise(name, least, most):
    """Noise of one party is Laplace: 1.96 deviations hold 94% of it, 2.16 hold 95%."""
    known = PartyRanks.of(np.arange(0, 20_000, 2), np.zeros(10_000, dtype=int), 1)
    privacy = privacy_of(name)
    (terms,) = MECHANISMS[name].terms(known, privacy)
    ranks = round(0.8 * 2 * 3000 * 7000 + 3000 * 2999) - terms.centre * 3000
    found = auc_estimate([PairAnswer(3000, ranks)], MECHANISMS[name], known, privacy)
    noise, sampling = found.parts["noise"], found.parts["sampling"]
    reach = (found.bounds[1] - found.bounds[0]) / 2
    assert least <= reach / noise <= most
    assert (found.high - found.low) / 2 == pytest.approx(np.hypot(reach, 1.96 * sampling), rel=0.01)


def test_what_cannot_be_had_is_refused():
    for options, told in (
        ({"mechanism": "adaptive"}, "adaptive gives the AUC and nothing else"),
        ({"only": "roc_auc", "mechanism": "magic"}, "mechanism must be one of auto, histogram"),
        ({"privacy": fg.DistributedDP(1.0)}, "Say LocalDP.epsilon, unit='label'. or Distributed"),
        ({"only": "f1"}, "only must be 'roc_auc' or None"),
        ({"only": "roc_auc", "mechanism": "gaussian"}, "needs DistributedDP with noise='discrete"),
        (
            {"only": "roc_auc", "mechanism": "adaptive", "privacy": GAUSSIAN},
            "needs DistributedDP with noise='polya'",
        ),
    ):
        refused(fg.PlanError, told, fg.evaluate_vertical, {1: 0.5}, {"a": {1: 1}}, **options)


def test_labels_and_scores_that_do_not_go_together_are_refused():
    for labels, told in (
        ({}, "mapping from parties to their labels and scores"),
        ({"a": [0, 1]}, r"party 'a': expected \(y_true, y_score\)"),
        ({"a": ([0, 1], [0.5])}, "party 'a'"),
        ({"a": ([0, 1], [0.5, np.nan])}, "1 of 2 scores are missing or infinite"),
        ({"a": ([0, 1, None], [0.5, 0.6, 0.7])}, "party 'a': 1 of 3 labels are missing"),
        ({"a": ([0, 1, 7], [0.5, 0.6, 0.7])}, "party 'a': 1 of 3 labels are neither bool"),
    ):
        with pytest.raises(fg.InputError, match=told):
            fg.evaluate_vertical(None, labels, only="roc_auc", mechanism="adaptive")


@pytest.fixture
def result():
    return fg.evaluate_vertical(
        None, by_party(*drawn(), 1), only="roc_auc", mechanism="adaptive", seed=1
    )


@pytest.mark.parametrize("exact", [False, True])
def test_a_result_is_saved_and_loaded(result, tmp_path, exact):
    if exact:
        result = fg.evaluate_vertical(
            None, by_party(*drawn(), 1), only="roc_auc", privacy=fg.SecureAggregation()
        )
        assert "no differential privacy" in str(result)
    result.to_json(tmp_path / "auc.json")
    again = fg.LabelAuc.from_json(tmp_path / "auc.json")
    assert str(again) == str(result)
    assert (again.roc_auc, again.privacy) == (result.roc_auc, result.privacy)
    assert again.predicted == result.predicted


@pytest.mark.parametrize("text", [b"{}", b"\xff", b'{"format": "fedgauge-evaluation/1"}'])
def test_other_files_and_versions_are_refused(result, text, tmp_path):
    path = tmp_path / "other.json"
    path.write_bytes(text)
    refused(fg.RecordError, r"other\.json", fg.LabelAuc.from_json, path)
    result.to_json(path)
    path.write_text(path.read_text().replace("label-auc/1", "label-auc/2"))
    refused(fg.RecordError, "another version", fg.LabelAuc.from_json, path)


def without(record, *path):
    name, *rest = path
    left = {key: value for key, value in record.items() if key != name}
    return left | {name: without(record[name], *rest)} if rest else left


ODD = {
    "no noise": lambda r: without(r, "roc_auc", "parts", "noise"),
    "no parts": lambda r: without(r, "roc_auc", "parts"),
    "no epsilon": lambda r: without(r, "privacy", "epsilon"),
    "an AUC of 17": lambda r: r | {"roc_auc": r["roc_auc"] | {"value": 17}},
    "no interval": lambda r: r | {"roc_auc": r["roc_auc"] | {"low": None}},
    "an interval upside down": lambda r: r | {"roc_auc": r["roc_auc"] | {"low": 0.99, "high": 0.1}},
    "a level of 2": lambda r: r | {"roc_auc": r["roc_auc"] | {"level": 2}},
    "negative noise": lambda r: r | {"roc_auc": r["roc_auc"] | {"parts": {"noise": -1}}},
    "words": lambda r: r | {"roc_auc": r["roc_auc"] | {"caution": "\x1b[2J VERIFIED"}},
    "no parties": lambda r: r | {"parties": 0},
    "far too many": lambda r: r | {"examples": 1 << 70},
    "another mechanism": lambda r: r | {"mechanism": "\x1b[2J"},
    "another prediction": lambda r: r | {"predicted": {"\u202e": 0.1}},
    "another model": lambda r: r | {"privacy": r["privacy"] | {"epsilon": -1.0}},
    "doubts": lambda r: r | {"doubted": [f"shop-{k}" for k in range(9)]},
}


@pytest.mark.parametrize("change", ODD.values(), ids=ODD)
def test_fields_that_are_missing_or_odd_are_one_line(result, tmp_path, change):
    path = tmp_path / "auc.json"
    result.to_json(path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    for command in ("show", "verify"):
        told = commands.complaint(commands.run(command, path), 1)
        assert "not an AUC that fedgauge saved" in told
