"""Groups that are hidden cannot be computed, nor nearly, from all that is shown. By brute force: of
every small table of groups by class, the release is taken, and all tables that fit what is shown.
Also against an ungrouped result, for crossed groups and two groupings."""

import itertools
from collections import defaultdict
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedgauge as fg
from fedgauge.estimation.counts import Released
from fedgauge.estimation.suppression import (
    hide_small,
    kept_edges,
    merge_small,
    too_small,
    ungrouped,
)
from fedgauge.plan.task import BinaryTask, MulticlassTask, MultilabelTask

LEAST = 3
MOST = 4  # examples of a class in a group
many = settings(deadline=None, max_examples=200)
THREE = BinaryTask(groups={"g": ["a", "b"]})  # and "other"


def release(task, counts, least=LEAST):
    counts = np.asarray(counts)
    return hide_small(task, Released(fg.Axis.uniform(counts.shape[1]), counts, 3), least, 0)


def obeys(counts, least=LEAST):
    return bool(np.all((counts == 0) | (counts >= least)))


@cache
def one_class(total, groups):
    """All ways in which some examples can be of groups."""
    if groups == 1:
        return [(total,)]
    return [
        (first, *rest)
        for first in range(total + 1)
        for rest in one_class(total - first, groups - 1)
    ]


@cache
def releases():
    """Every table of three groups by class, in one bin, and what is released; None if nothing."""
    found = []
    for cells in itertools.product(range(MOST + 1), repeat=6):
        table = np.array(cells)[:, np.newaxis]
        try:
            found.append((table, release(THREE, table)))
        except fg.ResultWithheld:
            found.append((table, None))
    return found


def shown_of(released, groups):
    """The counts that are shown: by bucket of groups that are counted together, and by class."""
    joined = {"ab".index(name) for name in released.joined}
    buckets = [[g] for g in range(groups) if g not in joined]
    buckets[-1] = sorted([*joined, *buckets[-1]])
    counts = released.counts[:, 0].reshape(groups, 2)
    return buckets, counts


def test_no_hidden_count_can_be_told_from_what_is_shown():
    """Every table of three groups with up to four examples of a class in each."""
    hidden = 0
    for table, released in releases():
        totals = table[:, 0].reshape(3, 2).sum(axis=0)
        assert (released is None) == (not obeys(totals))
        if released is None:
            continue
        assert obeys(released.counts)
        # An ungrouped result shows the totals, which follow from the same counts.
        assert (released.counts[:, 0].reshape(3, 2).sum(axis=0) == totals).all()
        buckets, counts = shown_of(released, 3)
        for bucket in buckets:
            for of_class in (0, 1):
                together = int(counts[bucket[-1], of_class])
                assert together == sum(table[2 * g + of_class, 0] for g in bucket)
                if len(bucket) > 1 and together:
                    fit = one_class(together, len(bucket))
                    for place in range(len(bucket)):
                        hidden += 1
                        assert len({each[place] for each in fit}) >= LEAST
    assert hidden > 10_000


def test_nor_by_whoever_knows_how_groups_are_chosen():
    """All tables with the same release: what is known of a hidden group in a class. That a group is
    hidden tells that one of those counted together has few of a class. More than that is not told:
    at least as many values as a small count can have, none included, remain."""
    by_release = defaultdict(list)
    for table, released in releases():
        if released is not None:
            by_release[released.joined, released.counts.tobytes()].append(table[:, 0])
    looked = 0
    for (joined, _), fit in by_release.items():
        fit = np.array(fit)
        bucket = [*("ab".index(name) for name in joined), 2]
        for of_class in (0, 1):
            together = int(fit[0][[2 * g + of_class for g in bucket]].sum())
            if joined and 0 < together <= MOST:  # larger ones need tables that were not looked at
                for group in bucket:
                    looked += 1
                    assert len(set(fit[:, 2 * group + of_class].tolist())) >= LEAST - 1
    assert looked > 50


def without_complement(task, counts, least):
    """A wrong rule: what is small goes to "other", however small that is."""
    totals = counts.sum(axis=1).reshape(-1, 2)
    return tuple(
        name
        for name, row in zip(task.groups_told, totals[:-1], strict=False)
        if not obeys(row, least)
    )


def test_a_group_left_out_alone_would_be_the_total_less_the_others():
    """The control: without a second group, small counts are shown in "other"."""
    table = np.array([9, 9, 9, 1, 0, 0])[:, np.newaxis]
    assert without_complement(THREE, table, LEAST) == ("b",)  # then "other" shows 9 and 1
    assert too_small(THREE, table, LEAST) == ("a", "b")
    released = release(THREE, table)
    assert released.counts[:, 0].tolist() == [0, 0, 0, 0, 18, 10]


def test_which_groups_are_joined_is_by_the_order_of_the_plan():
    """The smallest of the others would tell of their sizes."""
    task = BinaryTask(groups={"g": ["a", "b", "c"]})
    for sizes in ((50, 20), (20, 50)):
        table = np.array([50, 50, 2, 50, sizes[0], sizes[1], 0, 0])[:, np.newaxis]
        assert too_small(task, table, 10) == ("b", "c")
    assert too_small(task, np.array([50, 2, 50, 50, 50, 50, 0, 9])[:, np.newaxis], 10) == ("a",)


@st.composite
def grouped_counts(draw, channels):
    bins = draw(st.integers(1, 7))
    cell = st.sampled_from([0, 0, 1, 1, 2, 3, 5, 9])
    rows = st.lists(cell, min_size=bins, max_size=bins)
    return np.array(draw(st.lists(rows, min_size=channels, max_size=channels)))


TASKS = {
    "one grouping": THREE,
    "crossed": BinaryTask(groups={"g": ["a"], "h": ["x"]}, crossed=True),
    "models": BinaryTask(groups={"g": ["a"]}, models=("new", "old")),
    "labels": MultilabelTask(labels=["u", "v"], groups={"g": ["a"]}),
    "classes": MulticlassTask(labels=["u", "v", "w"], groups={"g": ["a"]}),
}


@pytest.mark.parametrize("name", TASKS)
@many
@given(data=st.data(), least=st.integers(2, 4))
def test_with_an_ungrouped_result_of_the_same_rows_no_count_is_small(name, data, least):
    """Edges are among those of the ungrouped result, so what lies between is made of its bins."""
    task = TASKS[name]
    counts = data.draw(grouped_counts(task.rows))
    total = ungrouped(task, counts)
    if not obeys(total.sum(axis=1), least):
        with pytest.raises(fg.ResultWithheld):
            release(task, counts, least)
        return
    released = release(task, counts, least)
    assert obeys(released.counts, least)
    whole = merge_small(Released(fg.Axis.uniform(counts.shape[1]), total, 3), least, 0)
    assert set(released.axis.edges) <= set(whole.axis.edges)
    for one, other in itertools.combinations(sorted({*released.axis.edges, *whole.axis.edges}), 2):
        first, last = (round(edge * counts.shape[1]) for edge in (one, other))
        assert obeys(total[:, first:last].sum(axis=1), least)


def test_bins_merged_for_groups_alone_would_show_small_totals():
    """The control: merged on its own, a grouped result has edges that an ungrouped one has not."""
    counts = np.array([[3, 0, 1, 2], [9, 9, 9, 9], [0, 1, 3, 2], [9, 9, 9, 9], [0] * 4, [0] * 4])
    alone, whole = kept_edges(counts, 3), kept_edges(ungrouped(THREE, counts), 3)
    assert not set(alone) <= set(whole)
    assert set(np.rint(release(THREE, counts).axis.edges * 4)) <= set(whole)


def test_two_groupings_tell_no_combination():
    """Side by side they are the margins of a table, whose cells were never counted. Every table of
    two groups by two, with up to four in each: of all tables with the margins that are shown, a
    cell has as many values as a small count, or one that may be shown."""
    task = BinaryTask(groups={"g": ["a"], "h": ["x"]})
    for cells in itertools.product(range(5), repeat=4):
        joint = np.array(cells).reshape(2, 2)
        if not obeys(joint.sum()):
            continue
        margins = np.concatenate([joint.sum(axis=1), joint.sum(axis=0)])
        released = release(task, np.column_stack([margins, np.full(4, 9)]).reshape(8, 1))
        every = np.array(one_class(int(joint.sum()), 4)).reshape(-1, 2, 2)
        fits = np.ones(len(every), dtype=bool)
        if "g a" not in released.joined:
            fits &= (every.sum(axis=2) == joint.sum(axis=1)).all(axis=1)
        if "h x" not in released.joined:
            fits &= (every.sum(axis=1) == joint.sum(axis=0)).all(axis=1)
        for g, h in itertools.product(range(2), repeat=2):
            values = np.unique(every[fits, g, h])
            assert len(values) >= LEAST or (len(values) == 1 and obeys(values))
