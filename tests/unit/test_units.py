from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

import fedgauge
from fedgauge import Axis, Examples
from fedgauge.data.files import ScoreTable
from fedgauge.errors import InputError
from fedgauge.privacy import DistributedDP, SecureAggregation
from fedgauge.privacy.units import UnitLimiter, limit_rows

many = settings(deadline=None, max_examples=100)
rows_of_subjects = st.lists(st.integers(0, 4), max_size=40)
cuts = st.lists(st.integers(0, 40), max_size=4)


def protecting(unit, cap):
    return DistributedDP(1.0, unit=unit, max_per_unit=cap)


def subjects(cap):
    return protecting("subject", cap).unit_cap


def clients(cap):
    return protecting("client", cap).unit_cap


def batch(ids, start=0):
    """Rows told apart by their score: start, start + 1, ..."""
    count = len(ids)
    return Examples(np.arange(count) % 2, start + np.arange(count, dtype=float), subject=ids)


def kept(batches):
    return [int(score) for part in batches for score in part.y_score]


def limited(limiter, rows, owners):
    return rows.select(limiter.within_cap(rows, owners))


def test_rows_stay_together_and_a_client_is_cut_at_its_cap():
    rows = Examples([1, 0, 1, 0], [0.9, 0.1, 0.8, 0.2], subject=["b", "a", "b", "c"])
    (part,) = limit_rows([rows], subjects(1))
    assert part.y_true.tolist() == [1, 0, 0]
    assert part.y_score.tolist() == [0.9, 0.1, 0.2]
    assert part.subject.tolist() == ["b", "a", "c"]
    batches = [batch(list("ab")), batch(list("cd"), 2), batch(list("ef"), 4)]
    assert kept(limit_rows(batches, clients(3))) == [0, 1, 2]
    without_ids = [Examples([0, 1, 1], [0.0, 1.0, 2.0])]
    assert kept(limit_rows(without_ids, clients(2))) == [0, 1]


def test_every_client_has_a_cap_and_subjects_of_its_own():
    limiter = UnitLimiter(clients(2))
    owners = np.array(["x", "y", "x", "x", "y", "y"], dtype=object)
    assert kept([limited(limiter, batch(list("aaaaaa")), owners)]) == [0, 1, 2, 4]
    others = np.array(["y", "z", "x"], dtype=object)
    assert kept([limited(limiter, batch(list("aaa"), 6), others)]) == [7]
    limiter = UnitLimiter(subjects(1))
    owners = np.array(["x", "y", "x", "y"], dtype=object)
    assert kept([limited(limiter, batch(list("aaaa")), owners)]) == [0, 1]
    assert kept([limited(limiter, batch(["a"], 4), "x")]) == []
    assert kept([limited(limiter, batch(["a"], 5), "z")]) == [5]


@pytest.mark.parametrize("privacy", [DistributedDP(1.0), SecureAggregation()])
@pytest.mark.parametrize("ids", [None, list("aaa"), ["a", None, "a"]])
def test_examples_pass_untouched(privacy, ids):
    rows = Examples([0, 1, 1], [0.1, 0.2, 0.3], subject=ids)
    (part,) = limit_rows([rows], privacy.unit_cap)
    assert part is rows


def test_subjects_need_ids_of_one_kind():
    refused(InputError, "subject=", list, limit_rows([Examples([0, 1], [0.1, 0.2])], subjects(1)))
    with pytest.raises(InputError, match=r"client 'b'.*subject="):
        fedgauge.evaluate(
            {"a": batch(list("xy")), "b": ([0, 1], [0.1, 0.2])},
            privacy=protecting("subject", 1),
            tree=(2,),
        )
    # A file read in chunks does this when only a later chunk holds an id such as "9a".
    batches = [batch([7, 8]), batch(["7", "9a"], 2)]
    try:
        rows = kept(limit_rows(batches, subjects(1)))
    except InputError:
        return
    assert rows == [0, 1, 3]


MISSING = {
    "None": ["a", None, "b"],
    "nan": [1.0, np.nan, 2.0],
    "pandas": pd.Series(["a", pd.NA, "b"]),
    "pandas numbers": pd.Series([1, None, 2], dtype="Int64"),
    "polars": pl.Series(["a", None, "b"]),
    "polars numbers": pl.Series([1, None, 2]),
    "arrow": pa.array([1, None, 2]),
    "arrow dictionary": pa.array(["a", None, "b"]).dictionary_encode(),
    "all": [None, None, None],
}


@pytest.mark.parametrize("name", MISSING)
def test_rows_without_an_id_are_refused(name):
    with pytest.raises(InputError, match="no subject id") as error:
        list(limit_rows([batch(MISSING[name])], subjects(1)))
    assert ("3 rows" if name == "all" else "1 row") in str(error.value)


IDS = {
    "text": ["7", "8", "7"],
    "numbers": [7, 8, 7],
    "array": np.array([7, 8, 7], dtype=np.int32),
    "unsigned": np.array([2**64 - 1, 8, 2**64 - 1], dtype=np.uint64),
    "wide text": np.array(["seven", "8", "seven"]),
    "objects": np.array(["7", "8", "7"], dtype=object),
    "pandas": pd.Series(["7", "8", "7"]),
    "categories": pd.Series(["7", "8", "7"], dtype="category"),
    "polars": pl.Series([7, 8, 7]),
    "arrow": pa.array(["7", "8", "7"]),
    "truth": [True, False, True],
    "dates": np.array(["2020-01-01", "2021-01-01", "2020-01-01"], dtype="datetime64[D]"),
}


@pytest.mark.parametrize("name", IDS)
def test_ids_of_any_kind_are_told_apart_within_and_between_batches(name):
    batches = [batch(IDS[name]), batch(IDS[name], 3)]
    assert kept(limit_rows(batches, subjects(1))) == [0, 1]
    assert kept(limit_rows(batches, subjects(3))) == [0, 1, 2, 3, 4]


def test_which_ids_are_one_subject():
    for batches, stay in (
        ([[2**60, 2**60 + 1, 2**60]], [0, 1]),  # neighbouring large numbers are two subjects
        # A subject stays one when batches are typed differently.
        ([[7, 8], [7.0, 9.0]], [0, 1, 3]),
        ([["7", "8"], np.array(["7", "9"], dtype=object)], [0, 1, 3]),
    ):
        parts = [batch(ids, 2 * place) for place, ids in enumerate(batches)]
        assert kept(limit_rows(parts, subjects(1))) == stay


@pytest.mark.parametrize(
    "ids", [np.array([7, "7"], dtype=object), np.array([[1], [2]], dtype=object), [2**70, 1]]
)
def test_ids_that_are_not_of_one_kind_are_refused(ids):
    with pytest.raises(InputError, match="subject"):
        list(limit_rows([batch(ids)], subjects(1)))
    with pytest.raises(InputError, match="subject has 1 rows and y_score 2"):
        Examples([0, 1], [0.1, 0.2], subject=["a"])


def split(ids, scores, cuts):
    edges = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    for start, stop in pairwise(edges):
        labels = np.zeros(stop - start, dtype=int)
        yield Examples(labels, scores[start:stop], subject=np.array(ids[start:stop], dtype=int))


def naive(ids, cap):
    return [i for i, subject in enumerate(ids) if ids[:i].count(subject) < cap]


@many
@given(rows_of_subjects, cuts, st.integers(1, 5))
def test_the_limit_is_that_of_a_naive_count(ids, cuts, cap):
    batches = split(ids, np.arange(len(ids), dtype=float), cuts)
    assert kept(limit_rows(batches, subjects(cap))) == naive(ids, cap)


HEAVY = {
    "a": Examples([0, 1, 1, 1, 0], [0.1, 0.9, 0.9, 0.9, 0.1], subject=list("pqqqr")),
    "b": Examples([1, 0, 0, 0, 0], [0.6, 0.4, 0.4, 0.4, 0.4], subject=list("qpppp")),
    "c": Examples([1, 0], [0.7, 0.3], subject=list("xy")),
}


def totals(data, privacy):
    # Budgets this large leave no noise to speak of: a node errs once in 10^7 draws.
    result = fedgauge.evaluate(data, privacy=privacy, axis=Axis.uniform(2, outside="clip"))
    return result.negatives, result.positives


@pytest.mark.filterwarnings("ignore::fedgauge.errors.PrivacyWarning")
def test_an_evaluation_counts_what_the_cap_allows():
    def capped(unit, cap):
        return DistributedDP(40.0 * cap, unit=unit, max_per_unit=cap)

    assert totals(HEAVY, DistributedDP(40.0)) == (7, 5)
    assert totals(HEAVY, capped("subject", 1)) == (4, 3)
    assert totals(HEAVY, capped("subject", 2)) == (5, 4)
    assert totals(HEAVY, capped("client", 1)) == (1, 2)
    assert totals(HEAVY.items(), capped("client", 2)) == (3, 3)


@pytest.mark.filterwarnings("ignore::fedgauge.errors.PrivacyWarning")
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_of_many_clients_is_capped_alike(tmp_path, suffix):
    rows = [
        (client, label, score, subject)
        for client, data in HEAVY.items()
        for label, score, subject in zip(data.y_true, data.y_score, data.subject, strict=True)
    ]
    rows = rows[::2] + rows[1::2]  # clients interleave
    frame = pl.DataFrame(rows, schema=["site", "y", "p", "who"], orient="row")
    path = tmp_path / f"all.{suffix}"
    frame.write_csv(path) if suffix == "csv" else frame.write_parquet(path)
    columns = {"client": "site", "label": "y", "score": "p"}
    table = ScoreTable([path], **columns, subject="who")
    assert totals(table, DistributedDP(40.0, unit="subject")) == (4, 3)
    assert sum(totals(table, DistributedDP(80.0, unit="client", max_per_unit=2))) == 6
    assert totals(ScoreTable([path], **columns), DistributedDP(40.0)) == (7, 5)
    refused(InputError, "subject", totals, ScoreTable([path], **columns), protecting("subject", 1))
