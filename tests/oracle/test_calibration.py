"""Calibration against netcal, torchmetrics, scikit-learn, statsmodels and plain row-wise formulas.
The numbers of netcal and torchmetrics are kept in ``tests/fixtures/calibration_oracles.json``, with
how they were made. On an axis of known values each score is a bin of its own, so all numbers must
be those of the rows. Groups are left-closed here; where a package has another rule, its groups are
given as edges, so that only the rule differs."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import statsmodels.api as sm
from calibration_oracles import kept, rows
from scipy import stats
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss
from statsmodels.stats.proportion import proportion_confint

import fedgauge as fg
from fedgauge.planner.simulated import reference_axis

KEPT = kept()
SETS = tuple(KEPT["sets"])
OFF_EDGES = ("smooth", "overconfident", "rare", "one group")
SLOPED = ("smooth", "overconfident", "rare", "edges")
GROUPS = (10, 15)
SCORES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "scores"
REAL = ("adult_logistic", "adult_xgboost", "bank_logistic", "bank_xgboost")
ROUNDING = 1e-9


def evaluated(labels, scores, axis=None):
    axis = fg.Axis.from_values(scores) if axis is None else axis
    return fg.evaluate({"a": (labels, scores)}, axis=axis)


@pytest.fixture(scope="module")
def exact():
    """Each set, every score a bin of its own."""
    return {name: evaluated(*rows(KEPT["sets"][name])) for name in SETS}


def numbers(curve):
    return {"ECE": curve.ece, "MCE": curve.mce, "ACE": curve.ace, "RMS": curve.rms}


def of_netcal(name, groups):
    """ECE, MCE and ACE."""
    found = KEPT["sets"][name]["measures"][str(groups)]
    return {word: found[f"netcal {word}"] for word in ("ECE", "MCE", "ACE")}


def of_torchmetrics(name, groups):
    """The l1, max and l2 norms under the names that they have here."""
    found = KEPT["sets"][name]["measures"][str(groups)]
    words = {"ECE": "l1", "MCE": "max", "RMS": "l2"}
    return {word: found[f"torchmetrics {norm}"] for word, norm in words.items()}


def assert_same(curve, theirs):
    ours = {word: number for word, number in numbers(curve).items() if word in theirs}
    assert ours == pytest.approx(theirs, abs=ROUNDING)


@pytest.mark.parametrize("theirs", [of_netcal, of_torchmetrics])
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("name", OFF_EDGES)
def test_errors_are_those_of_other_packages(exact, name, groups, theirs):
    assert_same(exact[name].calibration_curve(groups), theirs(name, groups))


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("name", SETS)
def test_given_the_groups_of_other_packages_errors_are_theirs(exact, name, groups):
    curve = exact[name].calibration_curve(np.linspace(0, 1, groups + 1))
    assert_same(curve, of_netcal(name, groups))
    # A score of exactly 1 is in a group of its own there.
    edges = [*KEPT["edges of torch"][str(groups)][:-1], np.nextafter(1.0, 0.0), 1.0]
    assert_same(exact[name].calibration_curve(edges), of_torchmetrics(name, groups))


def test_scores_on_edges_are_in_the_group_above_at_three_tenths_too(exact):
    curve = exact["edges"].calibration_curve(15)
    assert_same(curve, of_netcal("edges", 15))  # numpy.linspace(0, 1, 16) is k / 15 throughout
    right_closed = exact["edges"].calibration_curve(right_closed_edges(np.linspace(0, 1, 16)))
    assert right_closed.ece > curve.ece + 0.05
    # As written; numpy.linspace(0, 1, 11)[3] is above 0.3, and netcal puts 0.3 below it.
    scores = np.repeat([0.25, 0.3, 0.6, 0.7], 10)
    result = evaluated((np.arange(40) % 3 == 0).astype(int), scores)
    assert result.calibration_curve(10).count.tolist() == [10, 10, 10, 10]
    assert result.calibration_curve(np.linspace(0, 1, 11)).count.tolist() == [20, 10, 10]


def right_closed_edges(edges):
    """Left-closed groups that hold what right-closed ones between these edges would."""
    return [0.0, *np.nextafter(edges[1:-1], 1.0), 1.0]


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("name", SETS)
def test_curve_is_that_of_scikit_learn_which_is_right_closed(exact, name, groups):
    observed, predicted = calibration_curve(*rows(KEPT["sets"][name]), n_bins=groups)
    curve = exact[name].calibration_curve(right_closed_edges(np.linspace(0, 1, groups + 1)))
    np.testing.assert_allclose(curve.observed, observed, atol=ROUNDING)
    np.testing.assert_allclose(curve.predicted, predicted, atol=ROUNDING)


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("name", ["smooth", "overconfident"])
def test_groups_of_equal_mass_differ_by_the_rows_at_their_edges(exact, name, groups):
    labels, scores = rows(KEPT["sets"][name])
    observed, predicted = calibration_curve(labels, scores, n_bins=groups, strategy="quantile")
    curve = exact[name].calibration_curve(groups, strategy="quantile")
    assert len(curve.observed) == groups
    # A group has about 133 or 200 rows, and at each end a row or a few ties can go either way.
    np.testing.assert_allclose(curve.observed, observed, atol=4 / (len(labels) / groups))
    np.testing.assert_allclose(curve.predicted, predicted, atol=5e-3)


@pytest.mark.parametrize("name", SETS)
def test_intervals_of_points_are_those_of_wilson(exact, name):
    curve = exact[name].calibration_curve(15)
    low, high = proportion_confint(curve.observed * curve.count, curve.count, method="wilson")
    np.testing.assert_allclose(curve.low, low, atol=ROUNDING)
    np.testing.assert_allclose(curve.high, high, atol=ROUNDING)


@pytest.mark.parametrize("name", ["smooth", "overconfident", "rare"])
def test_observed_shares_are_what_histogram_binning_of_netcal_takes(exact, name):
    rates = KEPT["sets"][name]["fits"]["netcal HistogramBinning of 10"]["rates"]
    curve = exact[name].calibration_curve(10)
    held = (curve.predicted * 10).astype(int)  # netcal gives groups without rows their middle
    np.testing.assert_allclose(curve.observed, np.array(rates)[held], atol=ROUNDING)


@pytest.mark.parametrize("name", SETS)
def test_calibration_in_the_large_and_spiegelhalter(exact, name):
    labels, scores = rows(KEPT["sets"][name])
    large = exact[name].calibration_in_the_large
    assert large.value == pytest.approx(np.mean(labels - scores), abs=ROUNDING)
    reach = stats.norm.ppf(0.975) * np.std(labels - scores) / np.sqrt(len(labels))
    assert large.high - large.low == pytest.approx(2 * reach, rel=1e-6)
    # Spiegelhalter 1986, row by row.
    slant = 1 - 2 * scores
    variance = np.sum(slant**2 * scores * (1 - scores))
    z = np.sum((labels - scores) * slant) / np.sqrt(variance)
    test = exact[name].spiegelhalter()
    assert test.statistic == pytest.approx(z, rel=ROUNDING)
    assert test.p_value == pytest.approx(2 * stats.norm.sf(abs(z)), rel=1e-6)


@pytest.mark.parametrize("name", SLOPED)
def test_hosmer_lemeshow(exact, name):
    """Positives and negatives of each group against what scores promise: two chi-squared terms."""
    labels, scores = rows(KEPT["sets"][name])
    owner = np.searchsorted(np.arange(1, 10) / 10, scores, side="right")
    statistic = 0.0
    for group in np.unique(owner):
        y, x = labels[owner == group], scores[owner == group]
        for seen, promised in ((y.sum(), x.sum()), ((1 - y).sum(), (1 - x).sum())):
            statistic += (seen - promised) ** 2 / promised
    test = exact[name].hosmer_lemeshow(10, strategy="uniform")
    assert test.statistic == pytest.approx(statistic, rel=1e-7)
    assert test.degrees == len(np.unique(owner))
    assert test.p_value == pytest.approx(stats.chi2.sf(statistic, test.degrees), rel=1e-6)


def test_parts_of_the_brier_score_add_up_where_each_score_is_a_group(exact):
    """Murphy 1973: then nothing is lost within groups. Plain parts are what bounds meet at."""
    labels, scores = rows(KEPT["sets"]["edges"])
    known = np.unique(scores)
    parts = exact["edges"].brier_decomposition([0.0, *known[1:], 1.0])
    plain = [np.mean(part.bounds) for part in parts[:3]]
    assert max(np.ptp(part.bounds) for part in parts[:3]) < ROUNDING
    reliability, resolution, uncertainty = plain
    brier = brier_score_loss(labels, scores)
    assert reliability - resolution + uncertainty == pytest.approx(brier, abs=ROUNDING)
    assert uncertainty == pytest.approx(labels.mean() * (1 - labels.mean()), abs=ROUNDING)


def recalibrated(labels, scores):
    """Logistic regression of labels on the log-odds of scores, by statsmodels, row by row."""
    scores = np.clip(scores, 1e-9, 1 - 1e-9)
    design = sm.add_constant(np.log(scores / (1 - scores)))
    return sm.GLM(labels, design, family=sm.families.Binomial()).fit(tol=1e-13, cov_type="HC0")


def away(result, fit):
    """How far intercept and slope are from those of rows, in standard errors."""
    ours = result.calibration_intercept.value, result.calibration_slope.value
    return np.abs(np.array(ours) - fit.params) / fit.bse


@pytest.mark.parametrize("name", SLOPED)
def test_slope_and_intercept_are_those_of_logistic_regression_and_near_them_on_bins(exact, name):
    fit = recalibrated(*rows(KEPT["sets"][name]))
    for at, part in enumerate(("intercept", "slope")):
        estimate = getattr(exact[name], f"calibration_{part}")
        assert estimate.value == pytest.approx(fit.params[at], rel=1e-7, abs=1e-7)
        np.testing.assert_allclose(estimate.interval, fit.conf_int()[at], rtol=1e-5, atol=1e-6)
    labels, scores = rows(KEPT["sets"][name])
    fit = recalibrated(labels, scores)
    assert away(evaluated(labels, scores, fg.Axis.uniform(4096)), fit).max() < 0.5
    coarse = reference_axis(64, labels.mean())
    assert away(evaluated(labels, scores, coarse), fit).max() < 0.8


@pytest.fixture(scope="module", params=["calibrated", "overconfident", "bent", *REAL])
def many(request):
    """Many rows, made or real: labels and scores."""
    if request.param in REAL:
        path = SCORES / f"{request.param}.parquet"
        if not path.exists():
            pytest.skip(f"needs {path}, which is not part of the project")
        table = pq.read_table(path)
        return table["y"].to_numpy(), table["p"].to_numpy().astype(np.float64)
    rng = np.random.default_rng(1610)
    log_odds = rng.normal(-1.0, 1.5, 50_000)
    labels = (rng.random(50_000) < 1 / (1 + np.exp(-log_odds))).astype(int)
    told = {
        "calibrated": log_odds,
        "overconfident": 1.8 * log_odds,
        "bent": log_odds + 0.4 * np.sin(2 * log_odds),
    }
    return labels, 1 / (1 + np.exp(-told[request.param]))


def error_of_rows(labels, scores, groups=15):
    """The plain expected calibration error, by left-closed groups of equal width."""
    owner = np.searchsorted(np.arange(1, groups) / groups, scores, side="right")
    return np.abs(np.bincount(owner, labels - scores)).sum() / len(labels)


def test_many_bins_give_what_rows_give(many):
    labels, scores = many
    result = evaluated(labels, scores, fg.Axis.uniform(4096))
    assert result.calibration_curve(15).ece == pytest.approx(error_of_rows(*many), abs=2e-4)
    fit = recalibrated(labels, scores)
    assert away(result, fit).max() < 0.5
    assert away(evaluated(labels, scores, reference_axis(64, labels.mean())), fit).max() < 0.8


@pytest.mark.parametrize("name", SETS)
def test_bins_that_divide_groups_tell_scores_on_edges_apart(name):
    """4,096 bins have no edge at k / 15, so they cannot; 3,840 bins, 256 for each group, can."""
    labels, scores = rows(KEPT["sets"][name])
    result = evaluated(labels, scores, fg.Axis.uniform(3840))
    error = error_of_rows(labels, scores)
    assert result.calibration_curve(15).ece == pytest.approx(error, abs=2e-4)
    low, high = result.expected_calibration_error.bounds
    assert low <= error <= high
