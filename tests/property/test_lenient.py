"""What one row holds moves that row alone: the fact that a sensitivity rests on."""

import math
from decimal import Decimal

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from odd import Raises
from plans import noisy_plan

import fedgauge as fg
from fedgauge.engines.contribution import count_leniently

NUMBERS = st.sampled_from([0, 1, 2, -1, 0.0, 1.0, 0.5, 2**53 + 1, 2**63, 2**70, -(2**70), 10**400])
TEXT = st.text(max_size=3) | st.sampled_from(
    ["0", "1", "1.0", " 1", "true", "yes", "nan", "\udc80"]
)
ANYTHING = (
    NUMBERS
    | TEXT
    | st.floats()
    | st.booleans()
    | st.none()
    | st.binary(max_size=2)
    | st.sampled_from([Decimal(1), Decimal("NaN"), np.float32(1), np.int8(1), np.array([1]), 1j])
    | st.sampled_from([(), [1], [1, 2], {"a": 1}, b"yes", object, math.nan])
    | st.builds(Raises)
    | st.dates()
)
ROWS = st.tuples(ANYTHING, ANYTHING | st.floats(-0.5, 1.5), ANYTHING)
POSITIVES = st.sampled_from([None, 1, "yes", 2**53 + 1, "1"])
many = settings(deadline=None, max_examples=400)


def count(rows, positive, form, *, unit="example"):
    privacy = fg.DistributedDP(1.0, unit=unit)
    plan = noisy_plan(bins=4, privacy=privacy, task=fg.BinaryTask(positive))
    columns = [[row[part] for row in rows] for part in range(3)]
    if form == "objects":
        columns = [np.fromiter(column, dtype=object, count=len(rows)) for column in columns]
    chunks = [columns]
    if form == "chunks":
        chunks = [[column[:2] for column in columns], [column[2:] for column in columns]]
    ready = [fg.Examples.leniently(y, s, subject=who) for y, s, who in chunks]
    histogram, oddities = count_leniently(plan, lambda: lambda: ready)
    assert not oddities.failure
    return histogram.counts


@many
@given(st.lists(ROWS, max_size=6), ROWS, ROWS, st.data(), POSITIVES)
def test_one_row_moves_one_row(others, row, other, data, positive):
    place = data.draw(st.integers(0, len(others)))
    form = data.draw(st.sampled_from(["lists", "objects", "chunks"]))
    without = count(others, positive, form)
    counts = [
        count([*others[:place], one, *others[place:]], positive, form) for one in (row, other)
    ]
    for added in counts:
        change = added - without
        assert change.min() >= 0
        assert change.sum() == 1
    assert np.abs(counts[0] - counts[1]).sum() in (0, 2)


@many
@given(st.lists(ROWS, max_size=6), ROWS, st.data())
def test_one_subject_moves_one_row(others, row, data):
    """Without the one subject, what is kept of the others stays."""
    place = data.draw(st.integers(0, len(others)))
    form = data.draw(st.sampled_from(["lists", "objects", "chunks"]))
    alone = (*row[:2], "somebody else")
    without = count(others, None, form, unit="subject")
    rows = [*others[:place], alone, *others[place:]]
    change = count(rows, None, form, unit="subject") - without
    assert change.min() >= 0
    assert change.sum() == 1


@many
@given(st.lists(ROWS, min_size=1, max_size=6), st.data(), POSITIVES)
def test_a_row_counts_alone_as_among_others(rows, data, positive):
    form = data.draw(st.sampled_from(["lists", "objects", "chunks"]))
    alone = sum(count([row], positive, form) for row in rows)
    assert np.array_equal(count(rows, positive, form), alone)
