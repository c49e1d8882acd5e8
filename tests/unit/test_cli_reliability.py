"""Calibration on the terminal: ``fedgauge show --calibration``."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

import fedgauge as fg
from fedgauge.cli import app


def shown(*arguments):
    result = CliRunner().invoke(app, ["show", *map(str, arguments)], env={"COLUMNS": "80"})
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def scored(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.2).astype(int)
    odds = 1.5 * rng.normal(1.5 * labels) - 1.125
    return labels, 1 / (1 + np.exp(-odds - np.log(0.25)))


@pytest.fixture(scope="module")
def result():
    return fg.evaluate({"a": scored(seed=1), "b": scored(seed=2)})


@pytest.fixture
def saved(result, tmp_path):
    result.to_json(tmp_path / "r.json")
    return tmp_path / "r.json"


def rows_below(text, header):
    """The rows of the table with this header, split into numbers."""
    lines = text[text.index(header) :].splitlines()[1:]
    rows = []
    for line in lines:
        numbers = re.findall(r"-?[\d,]*\.?\d+", line)
        if not re.fullmatch(r"[-\d,. to]+", line):
            break
        rows.append([float(number.replace(",", "")) for number in numbers])
    return rows


def test_reliability_table(saved, result):
    text, curve = shown(saved, "--calibration"), result.calibration_curve()
    rows = rows_below(text, "scores  examples  mean score")
    expected = np.array(
        [curve.lower, curve.upper, curve.count, curve.predicted, curve.observed, curve.low]
    ).T
    np.testing.assert_allclose(np.array(rows)[:, :6], expected, atol=6e-5)
    assert "15 groups of equal width, left-closed, of the bins counted." in text
    p_value = result.hosmer_lemeshow().p_value
    assert f"Hosmer-Lemeshow p = {p_value:.2g}, Spiegelhalter p = " in text


def test_decision_table(saved, result):
    text, curve = shown(saved, "--calibration"), result.decision_curve()
    rows = np.array(rows_below(text, "threshold  net benefit"))
    assert 10 <= len(rows) <= 12
    at = np.abs(curve.thresholds[:, np.newaxis] - rows[:, 0]).argmin(axis=0)
    expected = np.array(
        [
            *(curve.thresholds, curve.net_benefit, curve.low, curve.high, curve.treat_all),
            *(curve.advantage, curve.advantage_low, curve.advantage_high),
        ]
    )[:, at].T
    np.testing.assert_allclose(rows, expected, atol=6e-5)
    low = f"{curve.useful[0].low:.3g}"
    assert f"Better than both at 95%, each by itself: {low} to 0." in text
    assert "treating nobody is worth 0" in text


def test_only_where_asked_for(saved):
    assert "net benefit" not in shown(saved)
    assert "mean score" not in shown(saved)
    assert "net benefit" not in shown(saved, "--calibration", "--quiet")


def test_the_rule_stands_below_errors_of_calibration(saved):
    text = shown(saved)
    assert "expected calibration error" in text
    assert "Errors of calibration are of 15 groups of equal width, left-closed." in text
    assert "What other packages print is in the last column." in text


@pytest.mark.parametrize("privacy", [None, fg.DistributedDP(1.0), fg.LocalDP(4.0)], ids=str)
def test_tables_fit_80_columns(privacy, tmp_path):
    clients = {f"c{i}": scored(seed=i) for i in range(4)}
    options = {} if privacy is None else {"privacy": privacy, "seed": 1}
    fg.evaluate(clients, **options).to_json(tmp_path / "r.json")
    text = shown(tmp_path / "r.json", "--calibration")
    tables = text[text.index("mean score") :].splitlines()
    assert max(map(len, tables)) <= 80
    assert ("about examples" in text) == (privacy is not None)


def test_a_level(saved):
    assert "population, 80%" in shown(saved, "--calibration", "--level", 0.8)


def test_no_probabilities_is_said_in_one_line(tmp_path):
    axis = fg.Axis.uniform(10, -5, 5)
    result = fg.evaluate({"a": ([0, 1] * 20, np.linspace(-2, 3, 40))}, axis=axis)
    result.to_json(tmp_path / "r.json")
    lines = shown(tmp_path / "r.json", "--calibration").splitlines()
    (line,) = [line for line in lines if "this axis runs" in line]
    assert line.startswith("calibration        undefined: measures of calibration need prob")


def test_a_model_that_is_useful_nowhere(tmp_path):
    rng = np.random.default_rng(0)
    fg.evaluate({"a": (rng.integers(0, 2, 500), rng.random(500))}).to_json(tmp_path / "r.json")
    assert "each by itself: no threshold." in shown(tmp_path / "r.json", "--calibration")
