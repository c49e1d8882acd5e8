"""Kept results load and give the numbers they gave; the same evaluations, run again, give them."""

import json

import pytest
from cases import CASES, DIGESTS, MADE_ONCE, RESULTS, numbers

import fedgauge as fg

# Kernels of BLAS round differently. Smoothed counts are found by iteration, and where a curve is
# flat, its inverse moves by the square root of rounding.
PRECISION = 1e-7
ALL = sorted(CASES | MADE_ONCE)
KEPT_DIGESTS = json.loads(DIGESTS.read_bytes())


def kept(name):
    return json.loads((RESULTS / f"{name}.json").read_bytes())


def assert_same(new, old, place=""):
    """Plain data that is the same, floats up to rounding."""
    if isinstance(old, dict):
        assert new.keys() == old.keys(), place
        for key, value in old.items():
            assert_same(new[key], value, f"{place} {key}")
    elif isinstance(old, list):
        assert len(new) == len(old), place
        for number, (a, b) in enumerate(zip(new, old, strict=True)):
            assert_same(a, b, f"{place} {number}")
    elif isinstance(old, float):
        assert new == pytest.approx(old, rel=PRECISION, abs=PRECISION, nan_ok=True), place
    else:
        assert new == old, place


def test_every_case_model_and_task_is_kept():
    assert {path.name for path in RESULTS.iterdir()} == {
        f"{name}{ending}.json" for name in ALL for ending in ("", ".numbers")
    }
    assert set(KEPT_DIGESTS) == set(ALL)
    plans = [kept(name)["plan"] for name in ALL]
    models = {plan["privacy"]["model"] for plan in plans}
    assert models == {"secure-aggregation", "distributed-dp", "local-dp"}
    noises = {plan["privacy"].get("noise") for plan in plans} - {None}
    assert noises == {"polya", "skellam", "discrete-gaussian"}
    assert {plan["task"]["kind"] for plan in plans} == {
        *("binary", "multiclass", "multilabel", "labels")
    }


@pytest.mark.parametrize("name", ALL)
def test_a_kept_result_gives_the_kept_numbers(name):
    result = fg.Evaluation.from_json(RESULTS / f"{name}.json")
    assert result.plan.digest == KEPT_DIGESTS[name]
    expected = json.loads((RESULTS / f"{name}.numbers.json").read_bytes())
    assert_same(json.loads(json.dumps(numbers(result))), expected)


@pytest.mark.parametrize("name", CASES)
def test_a_case_run_again_gives_the_kept_plan_and_result(name, tmp_path):
    result = CASES[name]()
    assert result.plan.digest == KEPT_DIGESTS[name]
    result.to_json(tmp_path / "again.json")
    assert_same(json.loads((tmp_path / "again.json").read_bytes()), kept(name))


def test_a_kept_signature_is_verified():
    """What members signed is the same bytes as when they signed it."""
    signature = fg.Evaluation.from_json(RESULTS / "enforced.json").signature
    assert (signature.state, signature.clients, len(signature.members)) == ("unknown key", 5, 5)
