"""Data that changes between two exact sums: their difference is what changed. The attacker is a
reader, or a coordinator that asks for the same exact sum over the same sites every week. It chooses
nothing but the day. It learns the bin and the label of whoever came."""

import numpy as np
import pytest
from conformance import ENGINES
from counts import counts_of
from hostile import VICTIM, Attacker, exact_plan, exact_policy, larger_sites, own_counts

import fedgauge as fg
from fedgauge.secagg import Stage

PLAN = exact_plan(4)
PATIENT = (1, 0.83)


def attacker(folder):
    return Attacker(folder, larger_sites(), policy=exact_policy())


def added(labels, scores):
    return np.append(labels, PATIENT[0]), np.append(scores, PATIENT[1])


def removed(labels, scores):
    return labels[1:], scores[1:]


def labels_exchanged(labels, scores):
    """Two patients' labels change places: the labels as such, and the scores, stay what they were.
    A digest of each column by itself does not see it."""
    first, second = np.flatnonzero(labels)[0], np.flatnonzero(labels == 0)[-1]
    changed = labels.copy()
    changed[[first, second]] = changed[[second, first]]
    return changed, scores


CHANGES = {
    "added": added,
    "removed": removed,
    "relabelled": lambda labels, scores: (np.append(1 - labels[:1], labels[1:]), scores),
    "rescored": lambda labels, scores: (labels, np.append((scores[:1] + 0.5) % 1, scores[1:])),
    "replaced": lambda *rows: added(*removed(*rows)),
    # Two rows alike: digests of rows that are combined by exclusive or would cancel.
    "added twice": lambda *rows: added(*added(*rows)),
    "labels exchanged": labels_exchanged,
}
SAME = {
    "unchanged": lambda *rows: rows,
    "reordered": lambda labels, scores: (labels[::-1], scores[::-1]),
    # The same rows, as a file that is read in parts gives them.
    "in chunks": lambda y, p: lambda: ((y[i : i + 7], p[i : i + 7]) for i in range(0, len(y), 7)),
    "spelled otherwise": lambda labels, scores: (labels.astype(bool), scores.tolist()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
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


@pytest.mark.parametrize("kind", ["exchange", "flower"])
def test_a_patient_who_came_does_not_show_in_any_engine(folder, monkeypatch, kind):
    """Also where the site learns of its rows only when it scores them."""
    engine = ENGINES[kind](folder, monkeypatch)
    clients = larger_sites()
    first = counts_of(engine.run(PLAN, clients))
    try:
        second = engine.run(PLAN, clients | {VICTIM: added(*clients[VICTIM])})
    except fg.FedgaugeError:
        return
    assert np.array_equal(counts_of(second), first)


def test_ids_that_were_not_given_before_do_not_hide_a_patient(folder):
    """The second time the operator names the column of subjects: another kind of digest."""
    attack = attacker(folder)
    first = attack.ask(PLAN)
    labels, scores = added(*attack.clients[VICTIM])
    attack.clients[VICTIM] = fg.Examples(labels, scores, subject=np.arange(len(labels)))
    assert_same_or_stopped(first, attack.ask(PLAN))


def test_data_that_changes_after_joining_is_noticed(folder):
    """Two sums are joined on the same data; a patient comes before the second is submitted."""
    attack = attacker(folder)
    sessions = [attack.begin(PLAN) for _ in range(2)]
    for session in sessions:
        session.play(Stage.ADVERTISE, Stage.SHARE)
    first = sessions[0].play(Stage.MASK, Stage.AGREE, Stage.OPEN)
    attack.clients[VICTIM] = added(*attack.clients[VICTIM])
    assert_same_or_stopped(first, sessions[1].play(Stage.MASK, Stage.AGREE, Stage.OPEN))


def assert_same_or_stopped(first, second):
    assert second.total is None or np.array_equal(first.total, second.total)


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
    """A careless operator: it is told that grown data needs a new name, and gives it one. The old
    rows are the same, so the difference of the sums is the one new row all the same."""
    attack = attacker(folder)
    before = attack.clients[VICTIM]
    first = attack.ask(PLAN)
    attack.clients[VICTIM] = added(*before)
    attack.rename(VICTIM, "stroke-2026-b")
    second = attack.ask(PLAN)
    told = own_counts(PLAN, added(*before)) - own_counts(PLAN, before)
    assert second.total is None or not np.array_equal(second.counts - first.counts, told)


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_the_same_rows_are_not_refused(folder, change):
    """The control: rows in another order, in parts or of other types are the same data."""
    attack = attacker(folder)
    first = attack.ask(PLAN)
    attack.clients[VICTIM] = change(*attack.clients[VICTIM])
    np.testing.assert_array_equal(attack.ask(PLAN).total, first.total)
