"""What one flipped label moves in what a party sends: what the noise is for, and no more."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

import fedgauge as fg
from fedgauge.data.row_checks import ID, PlacedRows, Places
from fedgauge.engines import contribution
from fedgauge.plan.task import LabelTask

LABEL_DP = fg.DistributedDP(8.0, unit="label", neighbours="flip")


class Batches:
    """Named labels of any kind, in batches as a file would give them."""

    def __init__(self, keys, labels, cuts):
        self.parts = [
            (pa.array(keys[a:b]), labels[a:b])
            for a, b in itertools.pairwise([0, *cuts, len(labels)])
        ]

    def leniently(self, _):
        yield from self.parts


def keys_of(rng, rows, *, by_id):
    """Ids or scores, most of them several times, some that nobody listed."""
    drawn = rng.integers(0, 8, rows)
    return pa.array([f"u{i}" for i in drawn], ID) if by_id else pa.array(drawn / 8)


@pytest.mark.parametrize("by_id", [True, False], ids=["ids", "scores"])
@pytest.mark.parametrize("seed", range(20))
def test_a_flipped_label_moves_one_count_at_each_level_by_one(seed, by_id):
    """Whatever bins it is given, however often its id or score comes, wherever batches end."""
    rng = np.random.default_rng(seed)
    tree = [(16,), (4, 4), (2, 2, 4)][seed % 3]
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.from_values(range(16), outside="clip"),
        fg.Cohort(3, 1),
        task=LabelTask("yes", "ab" * 32),
        privacy=LABEL_DP,
        tree=tree,
    )
    listed = keys_of(rng, 6, by_id=by_id).unique()
    places = Places(listed, rng.integers(-1, 16, len(listed)).astype(np.int32))
    keys, cuts = keys_of(rng, 12, by_id=by_id), sorted(rng.integers(0, 12, 3).tolist())
    labels = rng.choice(["yes", "no", "", "third"], 12).astype(object)
    ranks = places.bins[places.bins >= 0].tolist()
    for row in range(12):
        sent, sums = [], []
        for told in ("yes", "no"):
            labels[row] = told
            data = PlacedRows(Batches(keys, labels, cuts), places)
            histogram, oddities = contribution.count_leniently(plan, lambda data=data: data)
            assert not oddities.failure
            sent.append(contribution.to_numbers(plan, histogram))
            sums.append(int(histogram.counts[1] @ np.arange(16)))
        moved = np.abs(sent[0] - sent[1])
        assert moved.sum() in (0, len(tree))
        assert moved.max() <= 1
        assert abs(sums[0] - sums[1]) in (0, *ranks)  # a rank on the list, so within its reach
