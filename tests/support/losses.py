"""What noisy counts give away: losses of small inputs, from the tables that are drawn from."""

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np

from fedgauge import Axis, Examples, ScoreHistogram
from fedgauge.engines import contribution
from fedgauge.privacy import noise
from fedgauge.privacy.units import limit_rows


@cache
def log_law(table):
    """Log-probabilities of the difference of two draws, at -reach..reach."""
    edges = [0, *table.cumulative, 2**noise.BITS]
    mass = np.array(
        [float(Fraction(b - a, 2**noise.BITS)) for a, b in itertools.pairwise(edges)]
    )  # fmt: skip
    law = np.correlate(mass, mass, mode="full")
    return np.log(law[law > 2.0**-80])


def node_loss(law, shift):
    """Largest log-ratio of an output's probabilities when the count moves by `shift`."""
    logs = log_law(law._table)
    assert len(logs) > 2 * shift
    return float(np.abs(logs[shift:] - logs[: len(logs) - shift]).max())


def worst_loss(node_laws, changes):
    """Largest loss of the whole tree; `changes` has the moves of all nodes for each pair."""
    loss = np.zeros(len(changes[0]))
    for law, moves in zip(node_laws, changes, strict=True):
        shifts, places = np.unique(moves, return_inverse=True)
        table = np.array([node_loss(law, shift) for shift in shifts.tolist()])
        loss += table[places.reshape(moves.shape)].sum(axis=1)
    return float(loss.max())


def count_rows(tree, spec, units):
    """Node counts by level, for units of rows (label, leaf), by the code a client runs."""
    bins = math.prod(tree)
    total = ScoreHistogram(Axis.uniform(bins, outside="clip"))

    def add(rows, ids):
        if rows:
            labels, leaves = zip(*rows, strict=True)
            examples = Examples(labels, (np.array(leaves) + 0.5) / bins, subject=ids)
            total.update_batches(limit_rows([examples], spec.unit_cap))

    if spec.unit == "client":
        for rows in units:
            add(rows, None)
    else:
        ids = [i for i, rows in enumerate(units) for _ in rows]
        add([row for rows in units for row in rows], ids)
    return np.concatenate([level.ravel() for level in total.levels(tree)])


def moves_of_flips(plan, bins):
    """By level, how far each count moves, for every labelling of some bins and every flip."""

    def numbers(labels):
        rows = np.array(labels), np.array(bins, dtype=float)
        return contribution.to_numbers(plan, contribution.count_rows(plan, rows))

    moved = []
    for labels in itertools.product((0, 1), repeat=len(bins)):
        for place in range(len(bins)):
            flipped = (*labels[:place], 1 - labels[place], *labels[place + 1 :])
            moved.append(np.abs(numbers(flipped) - numbers(labels)))
    return np.split(np.unique(moved, axis=0), np.cumsum(plan.final.nodes)[:-1], axis=1)
