"""One member of five is hostile: the result is right, or the refusal names it. No other is blamed.

What it can do is in `tests/support/hostile_member.py`. That it counts what it likes is another
matter, and in `test_conformance_poison.py`.
"""

import pytest
from conformance import CLIENTS, ENGINES, EVERYBODY, assert_sum_over
from hostile_member import (
    answers,
    at_fault,
    false_complaint,
    junk_boxes,
    junk_opening,
    made_up,
    malformed,
    named,
    other_checks,
    other_ephemeral,
    short_opening,
    silent,
    turn,
    watched,
    withheld,
    wrong_commitment,
    wrong_opening,
    wrong_shares,
)
from scene import LOW_ORDER

import fedgauge as fg
from fedgauge.secagg import Stage

pytestmark = [
    pytest.mark.usefixtures("few_redraws", "quick_disk"),
    pytest.mark.parametrize(
        "make_engine",
        [ENGINES["exchange"], ENGINES["flower"]],
        ids=["exchange", "flower"],
        indirect=True,
    ),
]

HOSTILE = "site-1"
HONEST = [name for name in EVERYBODY if name != HOSTILE]

# Whatever the other members send suffices: the sum is opened, and it is known who did it.
TRACED = {
    "junk-box": [junk_boxes()],
    "other-checks": [other_checks()],
    "other-ephemeral": [other_ephemeral()],
    "junk-box-unanswered": [junk_boxes(), answers(withheld)],
    "junk-box-answered-wrongly": [junk_boxes(), answers(made_up)],
    "false-complaint": [false_complaint()],
    "false-complaints": [false_complaint(about_all=True)],
    "false-complaint-then-silence": [false_complaint(), silent(Stage.OPEN)],
    "wrong-opening-of-one": [wrong_opening()],
    "wrong-opening": [wrong_opening(of_all=True)],
}
# As any member that leaves: the others go on, if enough stay and the sum needs no vote of all.
LEAVES = {
    **{f"silent-{stage.name.lower()}": [silent(stage)] for stage in Stage},
    **{f"malformed-{stage.name.lower()}": [malformed(stage)] for stage in Stage},
    "junk-opening": [junk_opening()],
    "short-opening": [short_opening()],
}
# Its own secrets cannot be opened, so nothing can be; or its boxes are refused at once.
SPOILT = {
    "low-order-ephemeral": [other_ephemeral(LOW_ORDER[2])],
    "short-ephemeral": [other_ephemeral(bytes(31))],
    "junk-boxes": [junk_boxes(to_all=True)],
    "junk-boxes-then-silent-mask": [junk_boxes(to_all=True), silent(Stage.MASK)],
    "junk-box-then-silent-mask": [junk_boxes(), silent(Stage.MASK)],
    "junk-box-then-silent-agree": [junk_boxes(), silent(Stage.AGREE)],
    "junk-box-then-silent-open": [junk_boxes(), silent(Stage.OPEN)],
    "wrong-shares": [wrong_shares(to_all=True)],
    "wrong-share": [wrong_shares()],
    "wrong-shares-then-silent-mask": [wrong_shares(to_all=True), silent(Stage.MASK)],
    "wrong-share-then-silent-mask": [wrong_shares(), silent(Stage.MASK)],
    "wrong-commitment": [wrong_commitment()],
}


@pytest.fixture
def run(engine, monkeypatch):
    """Evaluate with a member that does these deeds, all of them where there is a result."""

    def evaluate(plan, deeds):
        sites = engine.sites(CLIENTS)
        # The first in order: its shares are among those that are joined.
        peer = min(sites.keys[name] for name in HONEST)
        done = turn(monkeypatch, sites.site(HOSTILE).key, deeds, peer=peer)
        try:
            result = engine.run(plan, CLIENTS)
        finally:
            assert done[:1] == deeds[:1]
        assert done == deeds
        return result

    return evaluate


def assert_right(result, plan):
    """The pooled counts, with or without the hostile member, and with all the others."""
    assert_sum_over(result, plan, CLIENTS, EVERYBODY if result.clients == 5 else HONEST)


def assert_names_it(error):
    """The hostile member, and nobody else."""
    assert named(str(error), EVERYBODY) == {HOSTILE}


@pytest.mark.parametrize("deeds", TRACED.values(), ids=TRACED)
def test_the_sum_is_right_and_the_member_known(engine, run, make_plan, monkeypatch, deeds):
    servers, plan = watched(monkeypatch), make_plan()
    assert_right(run(plan, deeds), plan)
    assert at_fault(servers[-1]) == {engine.sites(CLIENTS).keys[HOSTILE]}
    assert engine.refusals.keys() <= {HOSTILE}


@pytest.mark.parametrize("deeds", LEAVES.values(), ids=LEAVES)
def test_the_others_go_on_or_hear_who_is_missing(engine, run, make_plan, deeds):
    plan = make_plan()
    if deeds[-1].stage == Stage.AGREE and not plan.is_noisy:
        with pytest.raises(fg.CohortTooSmall, match="4 members answered and 5 are") as refused:
            run(plan, deeds)
        assert_names_it(refused.value)
    else:
        assert_right(run(plan, deeds), plan)
    assert engine.refusals.keys() <= {HOSTILE}


@pytest.mark.parametrize("deeds", LEAVES.values(), ids=LEAVES)
def test_where_all_are_needed_it_is_named(engine, run, make_plan, deeds):
    plan = make_plan(cohort=fg.Cohort(5, 1))
    try:
        result = run(plan, deeds)
    except fg.FedgaugeError as refused:
        assert_names_it(refused)
    else:
        assert deeds[-1].stage > Stage.MASK  # its counts are in the sum
        assert_sum_over(result, plan, CLIENTS, EVERYBODY)
    assert engine.refusals.keys() <= {HOSTILE}


@pytest.mark.parametrize("deeds", SPOILT.values(), ids=SPOILT)
def test_the_sum_is_right_or_the_refusal_names_the_member(engine, run, make_plan, deeds):
    plan = make_plan()
    try:
        result = run(plan, deeds)
    except fg.FedgaugeError as refused:
        assert_names_it(refused)
    else:
        assert_right(result, plan)
    assert engine.refusals.keys() <= {HOSTILE}
