"""What to expect of labels apart from scores, before there is any data."""

import math

import numpy as np
import pytest
from refusals import refused

import fedgauge as fg
from fedgauge.vertical.auc import PartyRanks

KNOWN = {"parties": 4, "examples": 20_000, "positive_rate": 0.1}


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize(("examples", "parties"), [(10, 3), (100, 7), (101, 7), (5, 5), (13, 1)])
def test_ranks_of_parties_need_no_list_of_examples(examples, parties, alike):
    place = np.arange(examples)
    party = place % parties if alike else place * parties // examples
    one = PartyRanks.of(2 * place, party, parties)
    other = PartyRanks.evenly(examples, parties, alike=alike)
    for name in ("mean", "reach", "highest"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()


def test_the_plan_is_what_the_evaluation_does_and_what_is_needed_enough():
    rng = np.random.default_rng(0)
    labels = rng.random(20_000) < 0.1
    scores, ids = rng.normal(1.47 * labels), np.arange(20_000)
    sides = {f"{k}": (ids[k::4], labels[k::4]) for k in range(4)}
    outlook = fg.plan_vertical(**KNOWN)
    known = {"positive_rate": 0.1, "seed": 1}
    assert fg.evaluate_vertical((ids, scores), sides, **known).plan.tree == outlook.tree
    alone = fg.evaluate_vertical((ids, scores), sides, only="roc_auc", **known)
    assert alone.predicted == pytest.approx(dict(outlook.alike), rel=0.01)
    assert next(iter(alone.predicted)) == next(iter(outlook.alike))
    needed = outlook.needs(0.01)
    assert needed.expected == pytest.approx(outlook.half_width())
    there = fg.plan_vertical(**{**KNOWN, "examples": needed.examples})
    assert there.half_width() == pytest.approx(0.01, rel=0.08)
    privacy = fg.DistributedDP(needed.epsilon, unit="label", neighbours="flip")
    assert fg.plan_vertical(**KNOWN, privacy=privacy).half_width() == pytest.approx(0.01, rel=0.08)
    assert outlook.needs(0.001, metric="roc_area_error").epsilon > 1.0
    assert outlook.over_sampling(0.0) == 1.0
    assert outlook.half_width() == pytest.approx(
        1.96 * math.hypot(outlook.sampling, outlook.alike["histogram"])
    )
    gaussian = {"noise": "discrete-gaussian", "delta": 1e-6}
    privacy = fg.DistributedDP(1.0, unit="label", neighbours="flip", **gaussian)
    assert set(fg.plan_vertical(**KNOWN, privacy=privacy).alike) == {"histogram", "gaussian"}


def test_what_cannot_be_planned_or_wanted_is_refused():
    for wrong, told in (
        *(
            ({"privacy": p}, "unit='label'")
            for p in (fg.DistributedDP(1.0), fg.SecureAggregation())
        ),
        *(({"parties": wrong}, "parties must be a whole number") for wrong in (0, True)),
        ({"examples": 3}, "examples must be a whole number of at least 4"),
        ({"examples": 1e4}, "examples must be a whole number"),
        ({"positive_rate": 1.0}, "positive_rate must lie"),
        ({"auc": 1.0}, "auc must lie"),
    ):
        refused(fg.PlanError, told, fg.plan_vertical, **{**KNOWN, **wrong})
    outlook = fg.plan_vertical(**KNOWN)
    refused(fg.PlanError, r"between 0 and 0\.5", outlook.needs, 0.5)
    refused(fg.PlanError, "roc_auc or roc_area_error", outlook.needs, 0.1, metric="recall")
