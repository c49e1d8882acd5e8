"""Bins of a second round that sites can judge before the first: how narrow, and how many."""

import itertools

import msgspec
import numpy as np
import pytest

import fedgauge as fg
from fedgauge.binning.search import Counted
from fedgauge.plan.sizes import PlanSizes, first_session, peek

COARSE = {
    "uniform": fg.Axis.uniform(64, outside="clip"),
    "logit": fg.Axis.logit(64, outside="clip"),
    "asinh": fg.Axis.asinh(512),
}


@pytest.mark.parametrize("coarse", COARSE.values(), ids=COARSE.keys())
@pytest.mark.parametrize("narrowest", [0.0, 1 / 128, 0.3, 50.0])
def test_no_two_edges_of_either_round_are_closer_than_allowed(coarse, narrowest):
    """Sums over the bins of both rounds are subtracted; edges of the first alone may be close."""
    two, rng = fg.TwoRound(32, coarse=coarse, narrowest=narrowest), np.random.default_rng(8)
    for scale, low in itertools.product((1e-3, 0.2, 30.0), (0, -40)):
        scores = np.clip(np.abs(rng.normal(0.3, scale, 2000)), coarse.low, coarse.high)
        counts = np.histogram(scores, coarse.edges)[0] + rng.integers(low, 5, coarse.bins)
        axis = two.axis(Counted(range(coarse.bins), counts.tolist()))
        two.check(axis)
        assert axis.bins >= 2
        inner = axis.edges[1:-1]
        assert np.diff(inner).min(initial=np.inf) >= narrowest
        for edge in np.setdiff1d(inner, coarse.edges):
            assert np.abs(coarse.edges[1:-1] - edge).min() >= narrowest


def test_an_edge_close_to_a_coarse_one_is_refused():
    two = fg.TwoRound(4, coarse=fg.Axis.uniform(4, outside="clip"), narrowest=0.05)
    close = fg.Axis.from_edges([0, 0.25 + 1 / 64, 0.5, 1], outside="clip")
    with pytest.raises(fg.AxisError, match=r"closer than 0\.05 to one of the first"):
        two.check(close)
    msgspec.structs.replace(two, narrowest=0.01).check(close)
    # Beyond the outermost edges nothing is told apart: scores are clipped there.
    two.check(fg.Axis.from_edges([0, 1 / 64, 0.5, 1 - 1 / 64, 1], outside="clip"))


def test_bins_as_wide_as_no_rule_asks_for_are_refused():
    two = fg.TwoRound(32, coarse=COARSE["asinh"], narrowest=1 / 128, widest=64)
    low, high = two.coarse.low, two.coarse.high
    with pytest.raises(fg.AxisError, match="wider than 64 coarse bins"):
        two.check(fg.Axis.from_edges([low, 0, high], outside="clip"))


def search(**changes):
    two = fg.TwoRound(8, coarse=fg.Axis.uniform(16, outside="clip"))
    plan = fg.EvaluationPlan.for_histogram(two, fg.Cohort(3, 1))
    plain = msgspec.json.decode(plan.to_bytes())
    plain["task"] |= changes
    return plan, msgspec.json.encode(plain)


def test_sizes_are_those_of_the_larger_round():
    plan, data = search()
    assert peek(data) == PlanSizes(16, 1, 16)
    groups = {"kind": "binary", "positive": None, "groups": {"sex": ["women", "men"]}}
    assert peek(search(of=groups)[1]) == PlanSizes(16, 1, 8 * 2 * 3)
    located = plan.located(fg.plan.searching.Found(plan.task.two, (1,) * 16, 3))
    assert peek(located.to_bytes()) == peek(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"two": {"bins": 1 << 40, "coarse": {"bins": 16}}},
        {"two": {"bins": 8, "coarse": {"bins": 1 << 40}}},
        {"of": {"kind": "binary", "groups": {str(i): ["a"] for i in range(2000)}}},
        {"of": {"kind": "multiclass", "labels": list(range(5000))}},
    ],
    ids=["bins", "coarse", "groups", "classes"],
)
def test_what_no_site_could_hold_is_refused_before_it_is_built(changes):
    with pytest.raises(fg.PlanError, match="at most"):
        peek(search(**changes)[1])


def test_which_first_round_a_plan_follows_is_told_without_reading_it():
    plan, data = search()
    assert first_session(data) is None
    found = fg.plan.searching.Found(plan.task.two, (1,) * 16, 3)
    assert first_session(plan.located(found).to_bytes()) == b""
    named = msgspec.structs.replace(found, session="ab" * 32)
    located = plan.located(named).to_bytes()
    assert first_session(located) == b"\xab" * 32
    with pytest.raises(fg.PlanError, match="in which session"):
        first_session(located.replace(b"ab" * 32, b"AB" * 32))
    with pytest.raises(fg.PlanError, match="64 hexadecimal digits"):
        msgspec.structs.replace(found, session="ab")
