"""Results that were saved by version 0.1.0 load and give the numbers they gave then.

The same evaluations, run again with their seeds, give the same results. Under noise all that is so
of counts as noise left them, which is how results were read then; values of likely counts, as they
are read now, are kept apart.
"""

import json
import re
from pathlib import Path

import pytest
from cases import CASES, as_then, in_words_of_then, numbers, shrunk_values

import fedgauge as fg

FOLDER = Path(__file__).parents[1] / "fixtures" / "results"
KEPT = sorted(path.name.removesuffix(".numbers.json") for path in FOLDER.glob("*.numbers.json"))
PRECISION = 1e-12  # relative, and absolute where zero is meant: kernels of BLAS round differently
# Plans for local reports named a cohort that meant nothing; without it they have other digests.
LOCAL = "local-dp"
LATER = {"expected_calibration_error", "calibration_in_the_large"}  # metrics not saved then
SHRUNK = json.loads((FOLDER.parent / "shrunk.json").read_bytes())


def kept(name):
    return json.loads((FOLDER / f"{name}.json").read_bytes())


def without_digest(text):
    told, count = re.subn(r"plan [0-9a-f]{8}\b", "plan", text)
    assert count == 1
    return told


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


def test_every_case_is_kept():
    assert set(CASES) < set(KEPT)
    assert {path.name for path in FOLDER.glob("*.json")} == {
        f"{name}{ending}.json" for name in KEPT for ending in ("", ".numbers")
    }
    models = {kept(name)["privacy"]["model"] for name in KEPT}
    assert models == {"secure-aggregation", "distributed-dp", "local-dp"}


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_result_gives_the_kept_numbers(name):
    result = as_then(fg.Evaluation.from_json(FOLDER / f"{name}.json"))
    told = json.loads(json.dumps(numbers(result)))
    told["text"] = in_words_of_then(told["text"])
    expected = json.loads((FOLDER / f"{name}.numbers.json").read_bytes())
    if kept(name)["privacy"]["model"] == LOCAL:
        told["text"] = without_digest(told["text"])
        expected["text"] = without_digest(expected["text"])
    assert_same(told, expected)


def test_noisy_results_gain_when_they_are_read():
    """A file that does not say so is read from likely counts."""
    results = {name: fg.Evaluation.from_json(FOLDER / f"{name}.json") for name in KEPT}
    noisy = {
        name
        for name, result in results.items()
        if result.withheld is None
        and result.pooled.noisy
        and isinstance(result.estimator, fg.Aligned)
    }
    assert set(SHRUNK) == noisy
    assert all(results[name].estimator == fg.Aligned() for name in noisy)


@pytest.mark.parametrize("name", SHRUNK)
def test_a_kept_result_gives_the_kept_values_of_likely_counts(name):
    """Roughly: whether the method is another one, not how well its constants are set."""
    result = fg.Evaluation.from_json(FOLDER / f"{name}.json")
    assert shrunk_values(result) == pytest.approx(SHRUNK[name], abs=0.03)


@pytest.mark.parametrize("name", CASES)
def test_a_case_run_again_gives_the_kept_result(name, tmp_path):
    """Counts, metrics and curves as they are saved: what else a result says follows from them."""
    result = as_then(CASES[name]())
    result.to_json(tmp_path / "again.json")
    told, expected = json.loads((tmp_path / "again.json").read_bytes()), kept(name)
    text = json.loads((FOLDER / f"{name}.numbers.json").read_bytes())["text"]
    words = in_words_of_then(str(result))
    if expected["privacy"]["model"] == LOCAL:
        assert without_digest(words) == without_digest(text)
        for saved in (told, expected):
            saved["privacy"].pop("cohort", None)
    else:
        assert words == text
    for part, old in zip(told["slices"], expected["slices"], strict=True):
        assert part["metrics"].keys() - old["metrics"].keys() <= LATER
        part["metrics"] = {key: part["metrics"][key] for key in old["metrics"]}
    assert told["estimator"].pop("shrink", False) is False
    for field in ("slices", "clients", "reports", "estimator", "level", "privacy"):
        assert_same(told.get(field), expected.get(field), field)
