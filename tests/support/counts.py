"""Counts in results, and counts of rows made here to hold them against."""

import numpy as np

from fedgauge import ScoreHistogram


def pooled_counts(plan, clients, names=None):
    """The counts of the pooled rows, by NumPy alone: label by bin."""
    edges = plan.axis.edges
    total = np.zeros((2, plan.axis.bins), dtype=np.int64)
    for name in clients if names is None else names:
        labels, scores = clients[name]
        positive = plan.task.positive
        labels = np.asarray(labels) == (1 if positive is None else positive)
        clipped = np.clip(scores, edges[0], edges[-1])
        for label in (0, 1):
            total[label] += np.histogram(clipped[labels == label], edges)[0]
    return total


def pooled_sums(plan, clients, names=None):
    edges = plan.axis.edges
    total = np.zeros((2, plan.axis.bins), dtype=np.int64)
    for name in clients if names is None else names:
        labels, scores = (np.asarray(column) for column in clients[name])
        clipped = np.clip(scores, edges[0], edges[-1])
        index = np.minimum(np.searchsorted(edges, clipped, side="right") - 1, plan.axis.bins - 1)
        places = (clipped - edges[index]) / (edges[index + 1] - edges[index])
        steps = np.round(places * plan.final.sum_steps).astype(np.int64)
        np.add.at(total, (labels.astype(np.int64), index), steps)
    return total


def sums_of(result):
    return np.array(result.record.slices[0].score_sums)


def counts_of(result):
    return np.array(result.record.slices[0].counts)


def counts_on(axis, labels, scores):
    """The counts of these rows on this axis."""
    histogram = ScoreHistogram(axis)
    histogram.update(labels, scores)
    return histogram.counts
