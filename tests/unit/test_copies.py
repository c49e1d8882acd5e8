"""What a user holds goes through pickle, copies and other processes, and says the same after."""

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from cases import clients, numbers
from plans import plan_for

import fedgauge as fg

SIGNED = Path(__file__).parents[1] / "fixtures" / "signed-protocol-2.json"
EVALUATIONS = {
    "exact": lambda: fg.evaluate(clients(), axis=fg.Axis.uniform(16)),
    "sums": lambda: fg.evaluate(clients(), axis=fg.Axis.uniform(16), score_sums=True),
    "merged": lambda: fg.evaluate(
        clients(), plan_for(bins=64, cohort=fg.Cohort(6, 1), min_cell=20)
    ),
    "tree": lambda: fg.evaluate(clients(), privacy=fg.DistributedDP(2.0), tree=(4, 8), seed=1),
    "reports": lambda: fg.evaluate(
        clients(), privacy=fg.LocalDP(5.0), axis=fg.Axis.uniform(16, outside="clip"), seed=1
    ),
}
WAYS = {
    "pickle": lambda made: pickle.loads(pickle.dumps(made)),  # noqa: S301
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}
AXES = {
    "uniform": fg.Axis.uniform(10, -1, 1, outside="clip"),
    "logit": fg.Axis.logit(32),
    "edges": fg.Axis.from_edges([0, 0.1, 0.7, 1]),
    "values": fg.Axis.from_values([0, 1, 2]),
}

pytestmark = pytest.mark.usefixtures("few_redraws")


@pytest.fixture(scope="module", params=EVALUATIONS)
def result(request):
    return EVALUATIONS[request.param]()


@pytest.fixture(params=WAYS)
def copied(request):
    return WAYS[request.param]


def test_result(result, copied):
    again = copied(result)
    assert numbers(again) == numbers(result)
    assert again.record == result.record
    assert again.record.to_json() == result.record.to_json()
    assert again.signature == result.signature
    assert str(again) == str(result)
    assert again.at_level(0.9).roc_auc == result.at_level(0.9).roc_auc


def test_result_in_use(result, copied):
    result.roc_auc, result.auprg, result.roc_band(), result.record, result.caution
    result.plan.axis.index([0.5])
    assert numbers(copied(result)) == numbers(result)


def test_numbers_and_records(result, copied):
    for made in (result.roc_auc, result.privacy, result.record, result.estimator):
        assert copied(made) == made
    assert dict(copied(result.roc_auc).parts) == dict(result.roc_auc.parts)


def test_plan(result, copied):
    plan = copied(result.plan)
    assert plan == result.plan
    assert (plan.digest, plan.to_bytes()) == (result.plan.digest, result.plan.to_bytes())


def test_plan_with_a_prediction(copied):
    plan = fg.planner.propose(privacy=fg.DistributedDP(1.0), clients=5, examples=5000)
    assert plan.predicted is not None
    assert copied(plan).predicted == plan.predicted
    assert copied(plan) == plan


def test_threshold(result, copied):
    at = result.at_threshold(0.52)
    at.precision  # noqa: B018
    again = copied(at)
    assert again.as_dict() == at.as_dict()
    assert again.confusion_matrix == at.confusion_matrix
    assert copied(at.confusion_matrix) == at.confusion_matrix


@pytest.mark.parametrize("kind", ["roc", "pr", "det", "prg", "gain"])
def test_curve(result, copied, kind):
    curve = getattr(result, f"{kind}_curve")()
    again = copied(curve)
    grid = np.linspace(0.0, 1.0, 11)
    np.testing.assert_array_equal(again(grid), curve(grid))
    for new, old in zip(again, curve, strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
def test_axis(axis, copied):
    scores = axis.edges[:3]
    placed = axis.index(scores)
    again = copied(axis)
    assert again == axis
    assert hash(again) == hash(axis)
    assert (again.digest, again.spec, repr(again)) == (axis.digest, axis.spec, repr(axis))
    assert not again.edges.flags.writeable
    np.testing.assert_array_equal(again.index(scores), placed)


def test_an_axis_that_was_altered_on_the_way_is_refused():
    data = pickle.dumps(fg.Axis.from_edges([0, 0.25, 1]))
    altered = data.replace(np.float64(0.25).tobytes(), np.float64(0.26).tobytes())
    assert altered != data
    with pytest.raises(fg.AxisError, match="altered on the way"):
        pickle.loads(altered)  # noqa: S301


def test_a_signed_result_stays_signed(copied):
    result = fg.Evaluation.from_json(SIGNED)
    assert result.signature.state == "unknown key"  # signed, and nobody said whose key it is
    assert copied(result).signature == result.signature
    assert copied(result.at_level(0.9)).signature == result.signature


def test_an_edited_result_stays_edited(copied, tmp_path):
    edited = tmp_path / "r.json"
    edited.write_bytes(SIGNED.read_bytes().replace(b'"clients":', b'"added":1,"clients":', 1))
    result = fg.Evaluation.from_json(edited)
    assert result.signature.state == "broken"
    assert copied(result).signature.state == "broken"


def test_draws_are_not_carried_along():
    result = EVALUATIONS["tree"]()
    before = len(pickle.dumps(result))
    result.roc_band("pointwise")
    result.auprg  # noqa: B018
    assert result.pooled._draws
    assert len(pickle.dumps(result)) < before + 2000
    assert not pickle.loads(pickle.dumps(result)).pooled._draws  # noqa: S301


def _evaluate(bins):
    return fg.evaluate(clients(2, 100), axis=fg.Axis.uniform(bins))


def test_another_process_returns_results():
    with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as pool:
        (made,) = pool.map(_evaluate, [16])
    assert made.record == _evaluate(16).record
