"""The sets of real scores that benchmarks measure on, and their split."""

import gzip

import numpy as np
import pytest

import score_sets


def pairs(side):
    return {name.rsplit(" ", 1)[0] for name in score_sets.names(side)}


def test_the_split_keeps_both_kinds_of_rows_of_a_pair_on_one_side():
    development, final = score_sets.names("development"), score_sets.names("final")
    assert (len(development), len(final)) == (18, 12)
    assert sorted([*development, *final]) == sorted(set(score_sets.names()))
    assert not pairs("development") & pairs("final")


def test_the_final_pairs_stay_those_that_were_drawn_before_anything_was_measured():
    assert pairs("final") == {
        "adult boosting",
        "adult network",
        "bank forest",
        "bank knn",
        "bank logistic",
        "digits forest",
        "digits logistic",
    }


def test_a_set_is_trained_once_and_is_the_same_when_trained_again(tmp_path, monkeypatch):
    name = "digits bayes test"
    first = score_sets.load(name, tmp_path / "first")
    again = score_sets.load(name, tmp_path / "again")
    assert first.name == name
    assert len(first.labels) == len(first.scores) == 1797
    assert first.scores.dtype == np.float64
    assert first.scores.min() >= 0
    assert first.scores.max() <= 1
    assert np.array_equal(first.labels, again.labels)
    assert np.array_equal(first.scores, again.scores)
    monkeypatch.delattr(score_sets, "_train")
    assert np.array_equal(score_sets.load(name, tmp_path / "first").scores, first.scores)


def test_halves_score_all_rows_once_and_a_text_is_numbered(tmp_path):
    texts = [" c", " a", " b"]
    lines = [f"{k},{texts[k % 3]}, {'>50K' if k % 4 == 0 else '<=50K'}" for k in range(41)]
    (tmp_path / "adult.data.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    features, labels = score_sets._table("adult", tmp_path)
    assert np.array_equal(features[:4], [[0, 2], [1, 0], [2, 1], [3, 2]])
    assert np.array_equal(np.flatnonzero(labels), np.arange(0, 41, 4))
    test = score_sets.load("adult bayes test", tmp_path / "cache", tmp_path)
    training = score_sets.load("adult bayes training", tmp_path / "cache", tmp_path)
    assert (len(test.scores), len(training.scores)) == (21, 20)
    assert test.labels.sum() + training.labels.sum() == labels.sum()


def test_without_the_files_only_digits_can_be_trained(tmp_path):
    with pytest.raises(FileNotFoundError, match="Only sets of digits"):
        score_sets.load("bank bayes test", tmp_path / "cache", tmp_path)


def test_what_is_left_out_for_want_of_files_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(score_sets, "PAIRS", ("bank bayes", "digits bayes"))
    found = score_sets.prepare("all", tmp_path / "cache", tmp_path, jobs=1)
    assert found == ("digits bayes test",)
    assert "are left out." in " ".join(capsys.readouterr().err.split())


def test_a_name_or_side_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match="names\\(\\) lists them"):
        score_sets.load("digits bayes training", tmp_path)
    with pytest.raises(ValueError, match="The sides are"):
        score_sets.names("finals")
