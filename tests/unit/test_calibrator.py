"""The calibrator: what it makes of scores, its bytes, and what is refused at the door."""

import copy
import json
import math
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from calibrators import FORMS, calibrator

import fedgauge as fg
from fedgauge.binning.calibrator import MOST_BYTES, Beta, Fitted, LogOddsLine, Steps, mapped
from fedgauge.binning.forms import MOST_KNOTS

FITTED = Fitted(50_000, 4_100, "epsilon 1 per example", 1.0, 0.0, "ab" * 32)
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


# What comes out


def test_beta_is_the_formula():
    x = np.array([0.01, 0.3, 0.5, 0.99])
    t = -0.3 + 0.7 * np.log(x) - 1.4 * np.log(1 - x)
    expected = 1 / (1 + np.exp(-t))
    np.testing.assert_allclose(calibrator(FORMS["beta"]).transform(x), expected, rtol=1e-14)


def test_a_line_goes_through_its_knots_and_on_with_slope_one():
    form = FORMS["line"]
    ends = [form.x[0] - 2.0, *form.x, form.x[-1] + 2.0]
    scores = 1 / (1 + np.exp(-np.array(ends)))
    wanted = [form.y[0] - 2.0, *form.y, form.y[-1] + 2.0]
    expected = 1 / (1 + np.exp(-np.array(wanted)))
    np.testing.assert_allclose(calibrator(form).transform(scores), expected, rtol=1e-12)


def test_steps_are_closed_on_the_left():
    scores = [0.0, np.nextafter(0.1, 0), 0.1, np.nextafter(0.5, 0), 0.5, 1.0]
    assert calibrator(FORMS["steps"]).transform(scores).tolist() == [0.05, 0.05, 0.2, 0.2, 0.6, 0.9]


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("identity", [0.0, 1.0]),
        ("beta", [0.0, 1.0]),
        ("line", [0.0, 1.0]),
        ("beta without a", [1 / (1 + math.exp(-0.1)), 1.0]),
        ("beta without b", [0.0, 1 / (1 + math.exp(-0.1))]),
        ("constant", [1 / (1 + math.e), 1 / (1 + math.e)]),
    ],
)
def test_the_ends_of_the_scores(name, ends):
    assert calibrator(FORMS[name]).transform([0.0, 1.0]).tolist() == pytest.approx(ends, rel=1e-15)


def test_the_smallest_scores_stay_apart_where_floats_allow():
    scores = np.array([0.0, 1e-320, 1e-310, 1e-305, 1e-300, 1e-100])
    same = calibrator(FORMS["identity"]).transform(scores)
    np.testing.assert_allclose(same, scores, rtol=1e-3, atol=0)
    assert np.all(np.diff(same) > 0)


@pytest.mark.parametrize(
    ("name", "monotone", "strict"),
    [
        ("beta", True, True),
        ("beta without a", True, True),
        ("constant", True, False),
        ("line", True, True),
        ("flat line", True, False),
        ("steps", True, False),
        ("falling", False, False),
    ],
)
def test_what_is_said_of_order(name, monotone, strict):
    each = calibrator(FORMS[name])
    assert (each.is_monotone, each.is_strict) == (monotone, strict)


# What goes in


@pytest.mark.parametrize(
    "scores",
    [
        [0.1, 0.5],
        (0.1, 0.5),
        np.array([0.1, 0.5]),
        np.array([[0.1], [0.5]]),
        np.array([0.1, 0.5], dtype=object),
        pa.array([0.1, 0.5]),
        pa.chunked_array([[0.1], [0.5]]),
        pd.Series([0.1, 0.5], index=[7, 3]),
        pd.DataFrame({"p": [0.1, 0.5]}),
        pl.Series([0.1, 0.5]),
        pl.DataFrame({"p": [0.1, 0.5]}),
        pa.table({"p": [0.1, 0.5]}),
    ],
    ids=lambda scores: f"{type(scores).__module__.partition('.')[0]}.{type(scores).__name__}",
)
def test_whatever_holds_one_column_is_taken(scores):
    out = calibrator(Beta(0.5, 0.5, 0.0)).transform(scores)
    np.testing.assert_allclose(out, [0.25, 0.5], rtol=1e-15)


def test_no_scores_are_none():
    assert calibrator(FORMS["line"]).transform([]).tolist() == []


@pytest.mark.parametrize(
    ("scores", "told"),
    [
        ([0.1, math.nan], "1 of 2 scores are missing or no numbers. Drop these rows"),
        ([0.1, None], "1 of 2 scores are missing"),
        (["0.1", "high"], "1 of 2 scores are missing or no numbers"),
        ([10.0, 55.0], "2 of 2 scores lie outside 0 to 1.* Divide percentages by 100"),
        ([-3.0, 0.5], "1 of 2 scores lie outside .* of log-odds t take"),
        ([math.inf, 0.5], "1 of 2 scores lie outside"),
        (pd.DataFrame({"p": [0.1], "q": [0.2]}), "is a table; pass one column"),
        (np.zeros((2, 3)), "has 2 dimensions"),
    ],
)
def test_other_scores_are_refused(scores, told):
    with pytest.raises(fg.InputError, match=told):
        calibrator(FORMS["beta"]).transform(scores)


def test_rows_on_their_way_to_bins_are_never_refused():
    scores = np.array([0.1, math.nan, -1.0, 55.0, math.inf, 0.5])
    out = mapped(scores, calibrator(Beta(0.5, 0.5, 0.0)))
    np.testing.assert_allclose(out, [0.25, math.nan, -1.0, 55.0, math.inf, 0.5], rtol=1e-15)
    assert mapped(scores, None) is scores


# Bytes


@every_form
def test_json_reads_back_to_the_same_map_and_bytes(form, tmp_path):
    before = fg.Calibrator("auto", form, FITTED)
    before.to_json(tmp_path / "map.json")
    after = fg.Calibrator.from_json(tmp_path / "map.json")
    assert after == before
    assert after.to_bytes() == before.to_bytes() == (tmp_path / "map.json").read_bytes()
    assert after.digest == before.digest
    scores = np.linspace(0, 1, 101)
    np.testing.assert_array_equal(after.transform(scores), before.transform(scores))


def test_the_digest_names_the_map_and_not_where_it_came_from():
    bare, known = calibrator(Beta(1, 1, -0.0)), fg.Calibrator("platt", Beta(1.0, 1.0, 0.0), FITTED)
    assert bare.digest == known.digest == known.without_facts().digest
    assert bare.digest == "b0722bfb65bedf2484b74e5d27f1e84d4c0d6f2cb16ab361a26fb5fcbd9d15cc"
    assert calibrator(Beta(1, 1, 1e-300)).digest != bare.digest


@every_form
def test_copies_and_pickles(form):
    each = calibrator(form)
    each.transform([0.2])
    loaded = pickle.loads(pickle.dumps(each))  # noqa: S301
    for other in (loaded, copy.deepcopy(each), copy.copy(each)):
        assert other == each
        assert hash(other) == hash(each)


def test_a_map_cannot_be_changed():
    each = calibrator(FORMS["line"])
    with pytest.raises(AttributeError):
        each.method = "other"
    with pytest.raises(AttributeError):
        each.form.x = (0.0,)


# At the door


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Beta(-0.1, 1, 0), "cannot be negative"),
        (lambda: Beta(math.nan, 1, 0), "a of a beta map must be finite"),
        (lambda: Beta(1, 1e7, 0), "at most 1,000,000 from 0"),
        (lambda: Beta("x", 1, 0), "must be numbers"),
        (lambda: LogOddsLine([], []), "at least one knot"),
        (lambda: LogOddsLine([0, 1], [0]), "one y for each x"),
        (lambda: LogOddsLine([1, 1], [0, 1]), "knots x of a map must increase"),
        (lambda: LogOddsLine([0, 1], [1, 0]), "knots y of a map cannot decrease"),
        (lambda: LogOddsLine([0, math.inf], [0, 1]), "must be finite"),
        (lambda: LogOddsLine([[0.0]], [[1.0]]), "flat list"),
        (lambda: Steps([0.5], [0.1]), "one value more than edges"),
        (lambda: Steps([0.5, 0.5], [0.1, 0.2, 0.3]), "must increase"),
        (lambda: Steps([50], [0.1, 0.2]), "edges .* between 0 and 1. Divide percentages by 100"),
        (lambda: Steps([0.5], [0.1, 1.2]), "values .* between 0 and 1"),
        (lambda: Steps([0.5], [0.1, math.nan]), "must be finite"),
        (
            lambda: Steps(np.linspace(0, 1, MOST_KNOTS + 1), np.zeros(MOST_KNOTS + 2)),
            "at most 65,536",
        ),
        (lambda: fg.Calibrator("\x1b[31m", FORMS["beta"]), "method of a map is a name"),
        (lambda: fg.Calibrator("a" * 41, FORMS["beta"]), "method of a map is a name"),
        (lambda: Fitted(-1, 0, ""), "no less than 0"),
        (lambda: Fitted(1, 0, "a\nb"), "one line"),
        (lambda: Fitted(1, 0, "", math.nan), "must be finite"),
        (lambda: Fitted(1, 0, "", plan="../x"), "must be digests"),
    ],
)
def test_what_is_no_map_cannot_be_made(make, told):
    with pytest.raises(fg.CalibratorError, match=told):
        make()


def plain(form=FORMS["line"]):
    return json.loads(fg.Calibrator("auto", form, FITTED).to_bytes())


def changed(path, value):
    data = plain()
    *way, last = path
    inner = data
    for key in way:
        inner = inner[key]
    inner[last] = value
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "not a fedgauge map"),
        (b"\xff\xfe", "not a fedgauge map"),
        (b"[]", "not a fedgauge map"),
        (b"{}", "Name the JSON file that `fedgauge calibrate`"),
        (b'{"format": "fedgauge-evaluation/1"}', "this is a result, not a map. Fit a map on it"),
        (changed(["format"], "fedgauge-calibrator/9"), "another version"),
        (changed(["extra"], 1), "unknown field `extra`"),
        (changed(["form", "extra"], 1), "unknown field `extra`"),
        (changed(["fitted", "extra"], 1), "unknown field `extra`"),
        (changed(["form", "kind"], "spline"), "Invalid value 'spline'"),
        (changed(["form", "x"], [3, 2, 1, 0]), "^the knots x of a map must increase"),
        (changed(["form", "y"], [3, 2, 1, 0]), "^the knots y of a map cannot decrease"),
        (changed(["form", "y"], [0, 1, 2, math.nan]), "malformed"),
        (changed(["form", "y"], [0, 1, 2, 1e300]), "must be finite, and at most"),
        (changed(["form", "x"], list(range(MOST_KNOTS + 1))), "at most 65,536"),
        (changed(["form", "x"], "abcd"), "Expected `array`"),
        (changed(["method"], "<script>"), "method of a map"),
        (b"[" * 100_000, "not a fedgauge map"),
        (b'{"format": "fedgauge-calibrator/1", "method": ' + b"9" * 10_000 + b"}", "not a"),
        (b" " * (MOST_BYTES + 1), "at most 4,194,304 bytes"),
    ],
    ids=range(20),
)
def test_a_broken_or_hostile_file_is_refused(data, told, tmp_path):
    with pytest.raises(fg.CalibratorError, match=told):
        fg.Calibrator.from_bytes(data)
    path = tmp_path / "map.json"
    path.write_bytes(data)
    with pytest.raises(fg.CalibratorError, match=r"^.*map\.json: "):
        fg.Calibrator.from_json(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(fg.CalibratorError, match=r"cannot read .*No such file.*fedgauge calibrate"):
        fg.Calibrator.from_json(tmp_path / "none.json")
    with pytest.raises(fg.CalibratorError, match="Is a directory"):
        fg.Calibrator.from_json(tmp_path)


def test_spaces_in_a_file_change_nothing():
    before = fg.Calibrator("auto", FORMS["steps"], FITTED)
    spaced = json.dumps(json.loads(before.to_bytes()), indent=2).encode()
    assert fg.Calibrator.from_bytes(spaced) == before


# Without NumPy


def test_the_source_needs_python_alone():
    for form in FORMS.values():
        text = calibrator(form).to_python()
        imports = {line for line in text.splitlines() if line.startswith(("import", "from"))}
        assert imports <= {"import math", "from bisect import bisect_right"}


@every_form
def test_the_source_refuses_what_transform_refuses(form):
    space = {}
    exec(calibrator(form).to_python(), space)
    for score in (math.nan, -0.1, 1.1, 55.0, math.inf):
        with pytest.raises(ValueError, match="between 0 and 1"):
            space["calibrate"](score)
