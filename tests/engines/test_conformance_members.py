"""One member of five is hostile: the result is right, or the refusal names it. No other is blamed.
What it can do is in `tests/support/hostile_member.py`. That it counts what it likes is another
matter, and in `test_conformance_plans.py`."""

import hostile_member as member
import pytest
from conformance import CLIENTS, ENGINES, EVERYBODY, assert_sum_over
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
# Whatever the other members send suffices: the sum is opened, and it is shown who did it.
TRACED = {
    "junk-box": [member.junk_boxes()],
    "other-checks": [member.other_checks()],
    "other-box-key": [member.other_box_key()],
    "low-order-box-key": [member.other_box_key(LOW_ORDER[2])],
    "junk-box-answered-wrongly": [member.junk_boxes(), member.answers(member.made_up)],
    "junk-box-answered-in-short": [member.junk_boxes(), member.answers(member.cut_short)],
    "false-complaint": [member.false_complaint()],
    "false-complaints": [member.false_complaint(about_all=True)],
    "false-complaint-then-silence": [member.false_complaint(), member.silent(Stage.OPEN)],
    "wrong-opening-of-one": [member.wrong_opening()],
    "wrong-opening": [member.wrong_opening(of_all=True)],
}
# It does not say what is in its boxes: that is held against it, and is no proof. Of five members
# four must open what they hold of it, so nothing is opened where it is silent, too.
UNANSWERED = {
    "junk-box-of-somebody-else": [member.junk_boxes(late=True)],
    "checks-of-somebody-else": [member.other_checks(late=True)],
    "key-of-somebody-else": [member.other_box_key(late=True)],
    "junk-box-unanswered": [member.junk_boxes(), member.answers(member.withheld)],
    "junk-box-for-another-key": [member.junk_boxes(), member.answers(member.sealed_for_another)],
    "junk-boxes-then-silent-mask": [member.junk_boxes(to_all=True), member.silent(Stage.MASK)],
    "junk-box-then-silent-mask": [member.junk_boxes(), member.silent(Stage.MASK)],
    "junk-box-then-silent-agree": [member.junk_boxes(), member.silent(Stage.AGREE)],
    "junk-box-then-malformed-agree": [member.junk_boxes(), member.malformed(Stage.AGREE)],
}
# As any member that leaves: the others go on, if enough stay and the sum needs no vote of all.
LEAVES = {
    **{f"silent-{stage.name.lower()}": [member.silent(stage)] for stage in Stage},
    **{f"malformed-{stage.name.lower()}": [member.malformed(stage)] for stage in Stage},
    "short-box-key": [member.other_box_key(bytes(31))],
    "junk-opening": [member.junk_opening()],
    "short-opening": [member.short_opening()],
    "unsigned-opening": [member.wrong_opening(signed=False)],
}
# Its own secrets cannot be opened, so nothing can be.
SPOILT = {
    "junk-boxes": [member.junk_boxes(to_all=True)],
    "junk-box-then-silent-open": [member.junk_boxes(), member.silent(Stage.OPEN)],
    "wrong-shares": [member.wrong_shares(to_all=True)],
    "wrong-share": [member.wrong_shares()],
    "wrong-shares-then-silent-mask": [member.wrong_shares(to_all=True), member.silent(Stage.MASK)],
    "wrong-share-then-silent-mask": [member.wrong_shares(), member.silent(Stage.MASK)],
    "wrong-commitment": [member.wrong_commitment()],
}


@pytest.fixture(autouse=True)
def servers(monkeypatch):
    return member.watched(monkeypatch)


@pytest.fixture
def guilty(engine, servers):
    """Names of those whom the server holds at fault: proved, and only said."""

    def named_by_faults():
        names = {key: name for name, key in engine.sites(CLIENTS).keys.items()}
        said = [member.at_fault(servers[-1], proved=proved) for proved in (True, False)]
        return tuple({names[key] for key in keys} for keys in said)

    return named_by_faults


@pytest.fixture
def run(engine, monkeypatch):
    """Evaluate with a member that does these deeds, all of them where there is a result."""

    def evaluate(plan, deeds):
        sites = engine.sites(CLIENTS)
        # The first in order: its shares are among those that are joined.
        peer = min(sites.keys[name] for name in HONEST)
        done = member.turn(monkeypatch, sites.site(HOSTILE).key, deeds, peer=peer)
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
    assert member.named(str(error), EVERYBODY) == {HOSTILE}


@pytest.mark.parametrize("deeds", TRACED.values(), ids=TRACED)
def test_the_sum_is_right_and_the_member_known(engine, run, make_plan, guilty, deeds):
    plan = make_plan()
    assert_right(run(plan, deeds), plan)
    assert guilty() == ({HOSTILE}, set())
    assert engine.refusals.keys() <= {HOSTILE}


@pytest.mark.parametrize("deeds", UNANSWERED.values(), ids=UNANSWERED)
def test_who_does_not_answer_is_named_and_nothing_proved(engine, run, make_plan, guilty, deeds):
    with pytest.raises(fg.CohortTooSmall) as refused:
        run(make_plan(), deeds)
    assert_names_it(refused.value)
    assert guilty() == (set(), {HOSTILE})
    assert engine.refusals.keys() <= {HOSTILE}


@pytest.mark.parametrize("deeds", LEAVES.values(), ids=LEAVES)
def test_the_others_go_on_or_hear_who_is_missing(engine, run, make_plan, guilty, deeds):
    plan = make_plan()
    if deeds[-1].stage == Stage.AGREE and not plan.is_noisy:
        with pytest.raises(fg.CohortTooSmall, match="4 members answered and 5 are") as refused:
            run(plan, deeds)
        assert_names_it(refused.value)
    else:
        assert_right(run(plan, deeds), plan)
    assert guilty() == (set(), set())
    assert engine.refusals.keys() <= {HOSTILE}


@pytest.mark.parametrize("deeds", LEAVES.values(), ids=LEAVES)
def test_where_all_are_needed_it_is_named(engine, run, make_plan, guilty, deeds):
    plan = make_plan(cohort=fg.Cohort(5, 1))
    try:
        result = run(plan, deeds)
    except fg.FedgaugeError as refused:
        assert_names_it(refused)
    else:
        assert deeds[-1].stage > Stage.MASK  # its counts are in the sum
        assert_sum_over(result, plan, CLIENTS, EVERYBODY)
    assert guilty() == (set(), set())
    assert engine.refusals.keys() <= {HOSTILE}


@pytest.mark.parametrize("deeds", SPOILT.values(), ids=SPOILT)
def test_where_nothing_can_be_opened_the_refusal_names_the_member(
    engine, run, make_plan, guilty, deeds
):
    with pytest.raises(fg.FedgaugeError) as refused:
        run(make_plan(), deeds)
    assert_names_it(refused.value)
    assert guilty() == ({HOSTILE}, set())
    assert engine.refusals.keys() <= {HOSTILE}
