"""Data that changes between two exact sums: their difference is what changed.

The attacker is a reader, or a coordinator that asks for the same exact sum over the same sites
every week. It chooses nothing but the day. It learns the bin and the label of whoever came.
"""

import numpy as np
import pytest
from hostile import VICTIM, Attacker, exact_plan, exact_policy, own_counts
from rows import draw_client

PLAN = exact_plan(4)
PATIENT = (1, 0.83)


def attacker(folder):
    clients = {VICTIM: draw_client(300, seed=5)}
    clients |= {f"site-{i}": draw_client(200 + i, seed=i) for i in range(3)}
    return Attacker(folder, clients, policy=exact_policy())


def added(labels, scores):
    return np.append(labels, PATIENT[0]), np.append(scores, PATIENT[1])


def removed(labels, scores):
    return labels[1:], scores[1:]


def relabelled(labels, scores):
    return np.append(1 - labels[:1], labels[1:]), scores


def rescored(labels, scores):
    return labels, np.append((scores[:1] + 0.5) % 1, scores[1:])


def replaced(labels, scores):
    return added(*removed(labels, scores))


def reordered(labels, scores):
    return labels[::-1], scores[::-1]


def unchanged(labels, scores):
    return labels, scores


CHANGES = [added, removed, relabelled, rescored, replaced]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_two_exact_sums_do_not_differ_by_one_patient(folder, change):
    """The same sites twice; one site's data changed by one row, under the same name."""
    attack = attacker(folder)
    before = attack.clients[VICTIM]
    first = attack.ask(PLAN)
    attack.clients[VICTIM] = change(*before)
    second = attack.ask(PLAN)
    told = own_counts(PLAN, change(*before)) - own_counts(PLAN, before)
    assert np.any(told)  # there is something to be learnt
    assert second.total is None or not np.array_equal(second.counts - first.counts, told)


def test_a_patient_is_not_laid_bare(folder):
    """As it would be read: one cell of two results differs, by one. It is the patient's."""
    attack = attacker(folder)
    first = attack.ask(PLAN)
    attack.clients[VICTIM] = added(*attack.clients[VICTIM])
    second = attack.ask(PLAN)
    cells = [] if second.total is None else np.argwhere(second.counts != first.counts).tolist()
    label, score = PATIENT
    assert [label, int(PLAN.axis.index([score])[0])] not in cells


def test_a_new_name_does_not_hide_that_one_patient_came(folder):
    """A careless operator: it is told that grown data needs a new name, and gives it one.

    The old rows are the same, so the difference of the sums is the one new row all the same.
    """
    attack = attacker(folder)
    before = attack.clients[VICTIM]
    first = attack.ask(PLAN)
    attack.clients[VICTIM] = added(*before)
    rename(attack, VICTIM, "stroke-2026-b")
    second = attack.ask(PLAN)
    told = own_counts(PLAN, added(*before)) - own_counts(PLAN, before)
    assert second.total is None or not np.array_equal(second.counts - first.counts, told)


@pytest.mark.parametrize("change", [unchanged, reordered], ids=lambda change: change.__name__)
def test_the_same_rows_are_not_refused(folder, change):
    """The control: rows in another order are the same data."""
    attack = attacker(folder)
    first = attack.ask(PLAN)
    attack.clients[VICTIM] = change(*attack.clients[VICTIM])
    np.testing.assert_array_equal(attack.ask(PLAN).total, first.total)


def rename(attack, name, dataset):
    """What an operator does who gives the data a new name."""
    path = attack.sites.site_file(name)
    path.write_text(path.read_text().replace('dataset = "stroke-2026"', f'dataset = "{dataset}"'))
