"""Ids of scores and labels from mappings, columns, frames and files, and what joins them."""

import gzip
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedgauge as fg
from fedgauge.data.ids import read_ids
from fedgauge.vertical.joining import join, scored_by_parties

BIG = 2**53
SCORES = {f"{i:03}": i / 10 for i in range(8)}
LABELS = {f"{i:03}": int(i > 3) for i in range(8)}


def table(make, values, column):
    return make({"id": list(values), column: list(values.values())})


def csv(path, values, column, separator=",", decimal="."):
    rows = (f"{key}{separator}{value}".replace(".", decimal) for key, value in values.items())
    text = f"id{separator}{column}\n" + "".join(f"{row}\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def parquet(path, values, column):
    pq.write_table(table(pa.table, values, column), path)
    return path


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_are_read(make):
    joined = join(
        fg.IdTable(table(make, SCORES, "p"), id="id", value="p"),
        {"a": fg.IdTable(table(make, LABELS, "y"), id="id", value="y")},
    )
    assert joined.scores.tolist() == list(SCORES.values())
    assert joined.labels[0].tolist() == list(LABELS.values())


@pytest.mark.parametrize("name", ["s.csv", "s.csv.gz", "s.tsv", "s.parquet"])
def test_files_are_read(tmp_path, name):
    separator = "\t" if "tsv" in name else ","
    scores, labels = tmp_path / name, tmp_path / name.replace("s.", "y.")
    if name.endswith("parquet"):
        parquet(scores, SCORES, "p"), parquet(labels, LABELS, "y")
    else:
        csv(scores, SCORES, "p", separator), csv(labels, LABELS, "y", separator)
    joined = join(
        fg.IdTable(scores, id="id", value="p"), {"a": fg.IdTable(labels, id="id", value="y")}
    )
    assert joined.scores.tolist() == list(SCORES.values())
    assert joined.left_out is None
    assert joined.unlabelled == 0


def test_files_with_other_separators_are_read(tmp_path):
    path = csv(tmp_path / "s.csv", SCORES, "p", ";", ",")
    scores = fg.IdTable(path, id="id", value="p", separator=";", decimal=",")
    assert join(scores, {"a": LABELS}).scores.tolist() == list(SCORES.values())
    with pytest.raises(fg.InputError, match=r"s.csv: .*separator"):
        fg.IdTable(path, id="id", value="p")


def test_several_files_are_one_table_whatever_their_kinds(tmp_path):
    text = csv(tmp_path / "1.csv", {1: "no", 2: "yes"}, "y")
    whole = parquet(tmp_path / "2.parquet", {3: "no", 4: "yes"}, "y")
    labels = fg.IdTable([text, whole], id="id", value="y")
    joined = join({i: i / 10 for i in range(1, 5)}, {"a": labels})
    assert joined.scores.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert joined.labels[0].to_pylist() == ["no", "yes", "no", "yes"]


def test_one_table_holds_the_labels_of_all_parties(tmp_path):
    frame = pd.DataFrame({"id": [1, 2, 3, 4], "y": [0, 1, 1, 0], "shop": ["b", "a", "b", "a"]})
    path = tmp_path / "y.csv"
    frame.to_csv(path, index=False)
    for source in (frame, path):
        labels = fg.IdTable(source, id="id", value="y", party="shop")
        joined = join({i: i / 10 for i in range(1, 5)}, labels)
        by_party = dict(zip(joined.parties, np.split(joined.scores, 2), strict=True))
        assert {k: v.tolist() for k, v in by_party.items()} == {"b": [0.1, 0.3], "a": [0.2, 0.4]}
    with pytest.raises(fg.InputError, match=r"'shop' names no party in 1 row"):
        join(
            {1: 0.5}, fg.IdTable(frame.replace("a", None).head(2), id="id", value="y", party="shop")
        )


def test_parties_that_score_may_hold_files(tmp_path):
    path = tmp_path / "all.csv"
    path.write_text("shop,y,p\na,no,0.1\nb,yes,0.2\na,yes,0.3\n")
    options = {"label": "y", "score": "p"}
    joined = scored_by_parties(fg.ScoreTable(path, client="shop", **options))
    assert joined.parties == ("a", "b")
    assert joined.scores.tolist() == [0.1, 0.3, 0.2]
    assert [column.to_pylist() for column in joined.labels] == [["no", "yes"], ["yes"]]
    assert scored_by_parties({"a": fg.ScoreFile(path, **options)}).scores.tolist() == [
        0.1,
        0.2,
        0.3,
    ]


# Which ids are the same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([7], ["7"]),
        ([7], np.array([7], dtype=np.uint8)),
        ([7], [7.0]),
        ([7], [Decimal(7)]),
        ([BIG + 1], [str(BIG + 1)]),
        (np.array([2**63 + 1], dtype=np.uint64), [str(2**63 + 1)]),
        ([-7], ["-7"]),
        (["é"], ["é"]),
        (["7"], pd.Series(["7"], dtype="category")),
        ([7], pd.Series([7, None]).dropna()),
        ([7], pd.Index([7])),
        ([7], pd.Series([7], dtype="Int64")),
        (["a"], pl.Series(["a"])),
        (["a"], pa.chunked_array([["a"]])),
    ],
)
def test_ids_that_are_the_same(one, other):
    assert join((one, [0.5]), {"a": (other, [1])}).scores.tolist() == [0.5]
    assert join((other, [0.5]), {"a": (one, [1])}).scores.tolist() == [0.5]


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ("7", "007", "1 would have one without leading zeros"),
        (7, "007", "1 would have one without leading zeros"),
        (7, "7.0", "1 would have one without the .0 at the end"),
        ("a", "a ", "1 would have one without the blanks around ids"),
        ("a", "A", "1 would have one if upper and lower case were one"),
        ("\u00e9", "e\u0301", "1 would have one in one form of Unicode"),
        ("7", " 007.0", "1 would have one without blanks, zeros and the like"),
        (BIG, BIG + 1, "Check that both sides use the same ids"),
        ("x", 7, "its ids are whole numbers, those of the scores text"),
        ("x", "7", "its ids are whole numbers, those of the scores text"),
    ],
)
def test_ids_that_are_not_the_same_and_why(one, other, told):
    with pytest.raises(fg.InputError, match=r"^no label of party 'a' has a score") as caught:
        join({one: 0.5}, {"a": {other: 1}})
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ([1.5], "^1 id is no whole number. Check"),
        ([float(BIG)], "^1 id is a decimal of .* do not tell whole numbers apart"),
        ([float("inf")], "do not tell whole numbers apart"),
        ([1.0, float("nan")], r"1 id is missing \(empty, null or NaN\)"),
        ([None, None], "2 ids are missing"),
        ([True], "must be text or whole numbers"),
        ([Decimal("1.5")], "must be text or whole numbers"),
        ([1, "a"], "not both"),
        ([2**64], "too large for a number"),
        ([["a"]], "must be text or whole numbers"),
        (np.ones((2, 2)), "no flat column"),
        (["\ud800"], "no flat column"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "must be text or whole numbers"),
        (7, "no flat column"),
    ],
)
def test_what_is_no_id_is_refused(ids, told):
    with pytest.raises(fg.InputError, match=told):
        read_ids(ids)


def test_an_empty_id_of_a_file_is_missing(tmp_path):
    path = csv(tmp_path / "s.csv", {"": 0.5, "b": 0.7}, "p")
    with pytest.raises(fg.InputError, match=r"s.csv: 1 id is missing"):
        join(fg.IdTable(path, id="id", value="p"), {"a": LABELS})


# What does not match


def test_labels_without_a_score_are_told():
    scores = {i: i / 100 for i in range(100)}
    labels = {"a": {i: i % 2 for i in range(60)} | {200: 1}}
    labels["b"] = {i: i % 2 for i in range(60, 90)}
    with pytest.warns(fg.InputWarning, match=r"^1 of 61 labels of party 'a' have no score") as told:
        fg.evaluate_vertical(scores, labels, seed=1)
    assert len(told) == 1
    assert told[0].filename == __file__


def test_parties_that_lose_labels_are_named_up_to_three():
    scores = {i: i / 100 for i in range(50)}
    sides = {f"p{k}": {10 * k: 1, 100 + k: 0} for k in range(5)}
    assert join(scores, sides).left_out == (
        "1 of 2 labels of party 'p0', 1 of 2 labels of party 'p1', 1 of 2 labels of party 'p2' and "
        "2 of 2 more parties have no score and are left out."
    )


def test_a_likely_cause_is_told_with_what_is_left_out():
    joined = join(
        {"1": 0.5, "2": 0.6, "3": 0.7, "4": 0.8}, {"a": {"1": 1, "2": 1, "03": 0, "9": 0}}
    )
    assert joined.left_out == (
        "2 of 4 labels of party 'a' have no score and are left out. 1 of them would have one "
        "without leading zeros."
    )


def test_more_that_would_match_than_do_are_refused():
    scores = {str(i): 0.5 for i in range(10)}
    labels = {"a": {f"{i:02}": 1 for i in range(10)} | {"3": 0}, "b": {"1": 0}}
    with pytest.raises(fg.InputError, match=r"^only 1 of 11 labels of party 'a' have a score: 10 "):
        join(scores, labels)


def test_few_that_match_are_enough_where_no_way_of_writing_matches_more():
    joined = join({"a": 0.5, "b": 0.6}, {"a": {f"x{i}": 1 for i in range(99)} | {"a": 0}})
    assert joined.left_out.startswith("99 of 100 labels")
    assert joined.scores.tolist() == [0.5]


def test_repeats_within_a_party_and_between_parties_are_told_apart():
    for labels, told in (
        ({"a": ([1, 1], [0, 1])}, "1 of 2 labels .* at the same party"),
        ({"a": ([1, 2, 2], [0, 1, 1]), "b": ([1], [0])}, "1 of 4 labels .* at the same party"),
        ({"a": {1: 0, 9: 1}, "b": {9: 0, 1: 1}}, "2 of 4 labels .* at another party"),
    ):
        with pytest.raises(fg.InputError, match=told):
            join({1: 0.5, 2: 0.6, 9: 0.1}, labels)


def test_a_party_without_labels_is_refused():
    with pytest.raises(fg.InputError, match=r"labels of party 'b': there are none"):
        join({1: 0.5}, {"a": {1: 1}, "b": {}})


def test_no_complaint_quotes_an_id_or_a_label():
    scores = {"okapi-1": 0.5, "okapi-2": 0.6}
    for labels in ({"OKAPI-1": "zebra"}, {"okapi-1 ": "zebra"}, {"horse": "zebra"}, {7: "zebra"}):
        with pytest.raises(fg.InputError) as caught:
            fg.evaluate_vertical(scores, {"a": labels})
        told = str(caught.value).lower()
        assert not [secret for secret in ("okapi", "zebra", "horse") if secret in told]


def test_scores_that_are_no_numbers_are_refused(tmp_path):
    path = csv(tmp_path / "s.csv", {"1": "high"}, "p")
    for scores in (
        {1: "high"},
        fg.IdTable(pd.DataFrame({"id": [1], "p": ["high"]}), id="id", value="p"),
        fg.IdTable(path, id="id", value="p"),
        fg.IdTable(parquet(tmp_path / "s.parquet", {1: "high"}, "p"), id="id", value="p"),
    ):
        with pytest.raises(fg.InputError, match=r"not numbers"):
            join(scores, {"a": {1: 1}})


def test_a_table_names_what_it_lacks(tmp_path):
    path = csv(tmp_path / "s.csv", SCORES, "p")
    with pytest.raises(fg.InputError, match=r"s.csv: there is no column 'user'"):
        fg.IdTable(path, id="user", value="p")
    with pytest.raises(fg.InputError, match=r"the data frame: there is no column 'q'"):
        fg.IdTable(table(pd.DataFrame, SCORES, "p"), id="id", value="q")
    with pytest.raises(fg.InputError, match=r"one column cannot be two things"):
        fg.IdTable(path, id="p", value="p")
