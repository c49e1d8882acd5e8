"""A member that sends numbers which it did not count."""

import numpy as np

from fedgauge.secagg import masking


def poison(monkeypatch, added):
    """The first member that sends adds these numbers to its own; others stay honest. It passes by
    its own check of sizes, as a changed program would. On every engine that sums under masks in
    this process."""
    encode, sent = masking.encode, []

    def hostile(values, most, bits):
        sent.append(values)
        if len(sent) > 1:
            return encode(values, most, bits)
        wrapped = (values + added).astype(np.uint64)
        return wrapped.astype(masking.word_type(bits))

    monkeypatch.setattr(masking, "encode", hostile)
    return sent


def at(plan, *changes):
    """Numbers to add: by class, bin and how many; on the leaves, and on the nodes above them."""
    counts = np.zeros((plan.task.rows_sent, plan.axis.bins), dtype=np.int64)
    for label, place, number in changes:
        counts[label, place] += number
    levels = [
        counts.reshape(plan.task.rows_sent, nodes, -1).sum(axis=2) for nodes in plan.final.nodes
    ]
    numbers = np.concatenate([level.ravel() for level in levels])
    return np.pad(numbers, (0, plan.numbers - numbers.size))


def sums_at(plan, label, place, number):
    """A number to add to one score sum."""
    added = np.zeros(plan.numbers, dtype=np.int64)
    added[plan.numbers - plan.task.rows_sent * plan.axis.bins + label * plan.axis.bins + place] = (
        number
    )
    return added
