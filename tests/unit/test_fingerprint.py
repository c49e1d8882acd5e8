"""A fingerprint tells whether rows are those of last time, and nothing else of them."""

import itertools
import math

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgauge.data.examples import Examples
from fedgauge.data.fingerprint import Fingerprint, Fingerprinter
from fedgauge.histograms.channels import group_codes
from fedgauge.keys import SigningKey
from fedgauge.site import create_site

KEY = b"k" * 32
LABELS = [0, 1, 1, 0, 1]
SCORES = [0.1, 0.7, 0.7, 0.9, 0.25]
SUBJECTS = ["ada", "ada", "bob", "cy", "cy"]


def taken(*batches, key=KEY, **options):
    fingerprinter = Fingerprinter(key, **options)
    for batch in batches:
        fingerprinter.add(batch)
    return fingerprinter.fingerprint()


def of(labels=LABELS, scores=SCORES, subjects=SUBJECTS, **options):
    return taken(Examples(labels, scores, subject=subjects), **options)


def lenient(*labels):
    return Examples.leniently(np.array(labels, dtype=object), np.full(len(labels), 0.5))


def with_one(column, place, value):
    return [*column[:place], value, *column[place + 1 :]]


ROWS = of()


@given(order=st.permutations(range(5)), cuts=st.sets(st.integers(0, 5)))
def test_neither_order_nor_batches_matter(order, cuts):
    labels, scores, subjects = ([c[i] for i in order] for c in (LABELS, SCORES, SUBJECTS))
    bounds = [0, *sorted(cuts), 5]
    batches = [
        Examples(labels[a:b], scores[a:b], subject=subjects[a:b])
        for a, b in itertools.pairwise(bounds)
    ]
    assert taken(*batches) == ROWS


def test_neither_storage_nor_the_sign_of_zero_nor_the_form_of_nan_matters():
    for labels in (np.array(LABELS, bool), np.array(LABELS, float), pa.array(LABELS)):
        assert of(labels) == ROWS
    assert of(list(map(str, LABELS))) == ROWS
    assert of(scores=np.array(SCORES)) == ROWS
    assert of(subjects=pa.array(SUBJECTS).dictionary_encode()) == ROWS
    assert of(subjects=np.array(SUBJECTS, dtype=object)) == ROWS
    assert of(scores=with_one(SCORES, 0, -0.0)) == of(scores=with_one(SCORES, 0, 0.0))
    other_nan = np.array([0x7FF8000000000123], dtype=np.uint64).view(np.float64)[0]
    two = []
    for nan in (math.nan, other_nan):
        batch = Examples.leniently([0], np.array([nan]))
        two.append(taken(batch))
    assert two[0] == two[1] != taken(Examples([0], [0.0]))


def test_watching_changes_nothing_and_a_site_has_a_key_of_its_own(tmp_path):
    batches = [Examples([0, 1], [0.2, 0.7]), Examples([1], [0.5])]
    fingerprinter = Fingerprinter(KEY)
    assert list(fingerprinter.watch(iter(batches))) == batches
    assert fingerprinter.fingerprint() == taken(*batches)
    assert taken() == taken(Examples([], [])) == Fingerprint(0, "00" * 16, "00" * 16)
    one, two = (create_site(tmp_path / name, name=name, dataset="d") for name in "ab")
    keys = {one.fingerprint_key, two.fingerprint_key}
    assert len(keys) == 2
    assert one.fingerprint_key == SigningKey.load(one.key_path).derive(b"fingerprint")
    assert one.fingerprint_key != one.key.derive(b"anything else")
    secret = one.key_path.read_bytes()
    assert all(len(key) == 32 and key not in secret for key in keys)


@pytest.mark.parametrize("place", range(5))
def test_every_value_and_row_matters(place):
    other = of(with_one(LABELS, place, 1 - LABELS[place]))
    subject = of(subjects=with_one(SUBJECTS, place, "dee"))
    score = of(scores=with_one(SCORES, place, np.nextafter(SCORES[place], 1)))
    columns = LABELS, SCORES, SUBJECTS
    less = of(*([*c[:place], *c[place + 1 :]] for c in columns))
    more = of(*([*c, c[place]] for c in columns))  # the same row twice
    for changed in (other, subject, less, more):
        assert changed.labels != ROWS.labels
        assert changed.scores != ROWS.scores
    assert (score.labels, score.scores != ROWS.scores) == (ROWS.labels, True)
    assert (other.rows, less.rows, more.rows) == (5, 4, 6)
    assert less != more


def test_what_belongs_together_and_each_of_two_twins_matters():
    """The same labels, scores and subjects, dealt out to the rows otherwise."""
    scores = of(scores=[SCORES[i] for i in (1, 0, 2, 3, 4)])  # rows of two labels
    assert scores.labels == ROWS.labels
    assert scores.scores != ROWS.scores
    subjects = of(subjects=[SUBJECTS[i] for i in (0, 3, 2, 1, 4)])
    assert subjects.labels != ROWS.labels
    assert of(labels=SUBJECTS, subjects=LABELS).labels != ROWS.labels
    one, other = (of(subjects=[2**53 + i, 1, 2, 3, 4]) for i in (0, 1))
    assert one.labels != other.labels  # large numbers are not rounded
    other = of(key=b"K" * 32)
    assert (other.rows, other.labels != ROWS.labels, other.scores != ROWS.scores) == (5, True, True)
    assert of(subjects=None).labels != ROWS.labels
    rows = [[0, 0, 1], [1, 1, 0]]
    one, two = (taken(Examples(labels, [0.5] * 3)) for labels in rows)
    assert one.labels != two.labels
    halves, same = (taken(Examples([0] * 3, scores)) for scores in ([0.5, 0.5, 0.7], [0.7] * 3))
    assert halves.labels == same.labels
    assert halves.scores != same.scores
    assert taken(Examples([0, 0], [0.5] * 2)).labels != taken(Examples([1, 1], [0.5] * 2)).labels


@pytest.mark.parametrize("absent", [None, math.nan])
def test_missing_values_and_mixed_kinds_are_told_apart_row_by_row(absent):
    missing = taken(lenient(1, absent))
    assert missing == taken(lenient(absent), lenient(1))
    for other in (0, "None", "nan"):
        assert missing != taken(lenient(1, other))
    values = [1, "ill", 2.5, absent, b"raw", True]
    whole = taken(lenient(*values))
    assert whole == taken(*map(lenient, values)) == taken(lenient(*values[::-1]))
    for place in range(6):
        assert taken(lenient(*with_one(values, place, "other"))) != whole


def grouped(*groups):
    rows = len(groups)
    return taken(Examples.leniently(LABELS[:rows], SCORES[:rows], group=np.array(groups, object)))


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (0, False), ("1", True), (7, "7.5"), (np.float32(0.1), float(np.float32(0.1)))],
)
def test_groups_that_are_counted_apart_matter(one, other):
    """A row of the group "1" is in no group "True"."""
    assert not np.array_equal(
        *(group_codes(np.array([each], object), (str(one),)) for each in (one, other))
    )
    assert grouped(one, 5, 5).groups != grouped(other, 5, 5).groups
    assert grouped(7, 5, 5) == grouped(7.0, 5, 5) == grouped("7", 5, 5)  # counted together


def named(names, columns, **options):
    """A table of columns under these names, as whoever counts reads them."""
    return pa.table(dict(zip(names, columns, strict=True)), **options)


COLUMNS = [[0.1, 0.7, 0.2], [0.8, 0.2, 0.5]]
TABLES = {
    "scores of classes": lambda names: Examples(LABELS[:3], named(names, COLUMNS)),
    "labels": lambda names: Examples(named(names, [[0, 1, 1], [1, 0, 1]]), named("ab", COLUMNS)),
    "models": lambda names: Examples(LABELS[:3], dict(zip(names, COLUMNS, strict=True))),
    "groups": lambda names: Examples(
        LABELS[:3],
        SCORES[:3],
        group=dict(zip(names, (["w", "m", "m"], ["w", "w", "m"]), strict=True)),
    ),
}


@pytest.mark.parametrize("what", TABLES)
@pytest.mark.parametrize("names", ["ba", "bc", "az"])
def test_what_columns_are_called_matters(what, names):
    """Whoever counts finds them by their names, so the same columns can be counted otherwise."""
    one, other = (taken(TABLES[what](each)) for each in ("ab", names))
    assert not one.fits(other)
    assert one.fits(taken(TABLES[what]("ab")))
    assert one.named is not None
    assert one.fits(msgspec.structs.replace(one, named=None))


def test_what_columns_are_called_matters_row_by_row_where_there_are_several():
    """Batches with the same columns in another order."""
    make = TABLES["scores of classes"]
    assert not taken(make("ab"), make("ba")).fits(taken(make("ab"), make("ab")))
    assert taken(make("ab"), make("ba")) == taken(make("ba"), make("ab"))
    assert of().named is of(subjects=pa.array(SUBJECTS).dictionary_encode()).named is None
    assert of(pa.array(list("01101")).dictionary_encode()).named is None
    assert grouped(1, 2).named is None


def test_a_fingerprint_holds_nothing_of_the_rows_and_fits_them_with_or_without_scores():
    found = {taken(Examples([label], [score])).labels for label, score in [(0, 0.1), (1, 0.1)]}
    for text in (*found, ROWS.labels, ROWS.scores):
        assert len(text) == 32
        assert "0" * 8 not in text
    one, other = (of(scores=scores, with_scores=False) for scores in (SCORES, SCORES[::-1]))
    assert one == other
    assert one.scores is None
    assert one.labels == ROWS.labels
    rescored = of(scores=SCORES[::-1])
    without = of(with_scores=False)
    assert ROWS.fits(ROWS)
    assert not ROWS.fits(rescored)
    assert ROWS.fits(without)
    assert without.fits(rescored)
    more = Fingerprint(ROWS.rows + 1, ROWS.labels, ROWS.scores)
    assert not ROWS.fits(more)
    assert not without.fits(of(with_one(LABELS, 0, 1), with_scores=False))


def test_groups_are_part_of_rows_and_tell_two_of_the_same_label_apart():
    groups = ["a", "a", "b", "b", "c"]
    grouped = taken(Examples(LABELS, SCORES, subject=SUBJECTS, group=groups))
    assert grouped.labels == ROWS.labels
    assert (grouped.groups is None, ROWS.groups is None) == (False, True)
    assert grouped.fits(ROWS)  # the same rows, whose groups nobody asked for
    changed = with_one(groups, 2, "c")
    moved = taken(Examples(LABELS, SCORES, subject=SUBJECTS, group=changed))
    assert not moved.fits(grouped)
    two = {"sex": groups, "age": changed}
    both = taken(Examples(LABELS, SCORES, subject=SUBJECTS, group=two))
    swapped = {"sex": changed, "age": groups}
    assert both != taken(Examples(LABELS, SCORES, subject=SUBJECTS, group=swapped))
    one, other = (
        taken(Examples([1, 1], [0.2, 0.7], group=groups)) for groups in (["a", "b"], ["b", "a"])
    )
    assert (one.labels, one.scores) == (other.labels, other.scores)
    assert not one.fits(other)
    one, other = (
        taken(Examples([1, 1], {"new": [0.2, 0.7], "old": old})) for old in ([0.1, 0.9], [0.9, 0.1])
    )
    assert one.columns == other.columns
    assert not one.fits(other)


OLD = [0.2, 0.6, 0.6, 0.8, 0.3]


def of_models(**scores):
    return taken(Examples(LABELS, scores, subject=SUBJECTS))


def test_all_scores_are_part_of_rows():
    both = of_models(new=SCORES, old=OLD)
    assert both == of_models(old=OLD, new=SCORES)
    assert len(both.columns) == 2
    assert both.labels == ROWS.labels
    for place in range(5):
        assert not both.fits(of_models(new=SCORES, old=with_one(OLD, place, 0.5)))
        assert not both.fits(of_models(new=with_one(SCORES, place, 0.5), old=OLD))
    table = np.column_stack([SCORES, OLD])
    classes = taken(Examples(LABELS, table, subject=SUBJECTS))
    assert classes == taken(
        *(
            Examples(LABELS[i : i + 1], table[i : i + 1], subject=SUBJECTS[i : i + 1])
            for i in range(5)
        )
    )
    assert classes.columns == both.columns


def test_a_score_in_common_is_the_same_data():
    """A further model, other groups or another name do not make rows new."""
    both = of_models(new=SCORES, old=OLD)
    assert both.overlaps(ROWS)
    assert ROWS.overlaps(both)
    assert both.overlaps(of_models(third=OLD, fourth=[0.5] * 5))
    assert not both.overlaps(of_models(third=[0.4] * 5, fourth=[0.5] * 5))
    grouped, moved = (
        taken(Examples(LABELS, SCORES, subject=SUBJECTS, group=groups))
        for groups in (["a"] * 5, ["b"] * 5)
    )
    assert grouped.overlaps(moved)
    assert not grouped.fits(moved)
    assert both.overlaps(of(with_scores=False))
    assert not both.overlaps(of(with_one(LABELS, 0, 1), with_scores=False))


def test_all_labels_of_a_row_are_part_of_it():
    labels = np.column_stack([LABELS, LABELS[::-1]])
    several = taken(Examples(labels, SCORES))
    assert several.labels != taken(Examples(LABELS, SCORES)).labels
    assert several == taken(Examples(labels[:2], SCORES[:2]), Examples(labels[2:], SCORES[2:]))
    for row in range(5):
        changed = labels.copy()
        changed[row, 1] = 1 - changed[row, 1]
        assert taken(Examples(changed, SCORES)).labels != several.labels
