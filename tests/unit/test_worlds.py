"""What the planner takes for possible: tables of real scores, and the choice among designs."""

import importlib.util
import warnings
from importlib.resources import files
from pathlib import Path

import msgspec
import numpy as np
import pytest
from scipy.special import expit, logit

import fedgauge as fg
from fedgauge import planner
from fedgauge.planner import search, worlds
from fedgauge.planner.tables import ScoreQuantiles, score_tables

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TABLES = score_tables()
NONE = (0.0,) * 4  # no value tells the classes apart
EVEN = ScoreQuantiles("even", 0.5, (-3.0, -2.0, -1.0, 0.0), NONE)
TIED = ScoreQuantiles("tied", 0.5, (-40.0, 1.0, 1.0, 40.0), NONE)


def shares_below(table, at, rate=0.5):
    """Of negatives and of positives, below each value."""
    sides = table.shares(np.array(at, dtype=float), rate)
    return [np.cumsum(side)[:-1] for side in sides]


# Tables.


@pytest.mark.parametrize("rate", [1e-6, 0.2, 0.97])
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_shares_rise_from_0_to_1(table, rate):
    at = np.linspace(-200, 200, 4_001)
    for side, below in zip(table.shares(at, rate), shares_below(table, at, rate), strict=True):
        assert side.min() >= 0.0
        assert side.sum() == pytest.approx(1.0)
        assert (below[0], below[-1]) == (0.0, pytest.approx(1.0))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_as_many_scores_lie_below_a_quantile_as_it_says(table):
    """Both classes together, counting the same: to a quantile, and a smoothed ratio."""
    at = np.arange(-40.0005, 41, 0.01)
    both = np.mean(shares_below(table, at, table.positive_rate), axis=0)
    counted = np.searchsorted(table.quantiles, at) / len(table.quantiles)
    assert np.abs(both - counted).max() <= 0.05


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_positives_have_the_higher_scores(table):
    negatives, positives = shares_below(table, np.linspace(-45, 45, 901), table.positive_rate)
    assert np.all(positives <= negatives + 0.02)
    assert (negatives - positives).max() > 0.2


def test_shares_are_those_of_a_large_sample():
    """Scores drawn anew, each spread to its neighbours: 6 deviations, less than 1 in 10^7."""
    rng = np.random.default_rng(0)
    drawn = np.interp(rng.random(100_000), [0, 1 / 8, 7 / 8, 1], [-4.0, -3.0, 0.0, 1.0])
    at = np.linspace(-5, 2, 29)
    counted = np.searchsorted(np.sort(drawn), at) / len(drawn)
    for below in shares_below(EVEN, at):
        np.testing.assert_allclose(below, counted, atol=0.01)


def test_the_ratio_of_classes_is_the_one_stored():
    tilted = ScoreQuantiles("tilted", 0.5, (-3.0, -1.0, 1.0, 3.0), (-2.0, -1.0, 1.0, 2.0))
    negatives, positives = tilted.shares(np.linspace(-3, 3, 601), 0.5)
    found = np.log(positives[1:-1] / negatives[1:-1])  # at middles, which are 0.01 apart
    middles = np.linspace(-2.995, 2.995, 600)
    np.testing.assert_allclose(found, np.interp(middles, (-3, -1, 1, 3), (-2, -1, 1, 2)), atol=1e-9)


def test_shares_jump_where_scores_tie():
    for before, after in shares_below(TIED, [1.0, np.nextafter(1.0, 2.0)]):
        assert (before, after) == (0.25, 0.75)


def test_scores_of_0_and_1_stay_at_the_ends():
    """However rare positives are, they are in the first bin and in the last."""
    for rate in (1e-3, 0.2, 0.999):
        made = worlds.drawn_worlds([TIED], [expit], 100_000, rate)[0]
        # Half of a quantile lies on either side of one that no other shares.
        for row in made.on(fg.Axis.uniform(64)):
            assert row[[0, -1]].min() / row.sum() > 0.05


@pytest.mark.parametrize("rate", [0.01, 0.2, 0.9])
def test_log_odds_move_with_the_prior_odds(rate):
    at = np.linspace(-4, 4, 33)
    moved = EVEN.shares(at + logit(rate), rate)
    np.testing.assert_allclose(moved, EVEN.shares(at, 0.5), atol=1e-12)


# What comes with the package.


def stored():
    return msgspec.json.decode((files("fedgauge.planner") / "score_tables.json").read_bytes())


def test_tables_are_of_sets_for_development_alone(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    if importlib.util.find_spec("sklearn") is None:
        pytest.skip("the sets are trained with scikit-learn")
    import score_sets

    names = {table.name for table in TABLES}
    assert names <= set(score_sets.names("development"))
    assert not names & set(score_sets.names("final"))


def test_tables_are_rounded_quantiles_and_nothing_else():
    found = stored()
    assert set(found) == {"source", "tables"}
    for word in ("public data", "Adult", "Bank Marketing", "CC BY 4.0", "score_tables.py"):
        assert word in found["source"]
    for table in found["tables"]:
        assert set(table) == {"name", "positive_rate", "quantiles", "log_ratios"}
        assert table["positive_rate"] == round(table["positive_rate"], 4)
        assert table["quantiles"] == sorted(table["quantiles"])
        assert -40 <= table["quantiles"][0] <= table["quantiles"][-1] <= 40
        for numbers in (table["quantiles"], table["log_ratios"]):
            assert len(numbers) == 64
            assert numbers == np.round(numbers, 3).tolist()


# Worlds.


def test_worlds_have_the_hinted_numbers_and_their_own_truth():
    made = worlds.worlds(5_000, 0.2)
    assert len(made) == len(TABLES) + len(worlds.SMOOTH)
    for world in made:
        np.testing.assert_array_equal(world.drawn.sum(axis=1), [4_000, 1_000])
        assert np.all(np.diff(world.scores) >= 0)
        assert 0.5 < world.truth.auc <= 1.0
        assert world.on(fg.Axis.uniform(16)).sum() == 5_000


def test_a_world_keeps_the_quantiles_of_its_table():
    """Shares of 200,000 drawn against those of the table: chance is at most 0.01, at 1 in 10^6.

    Twice as much is left to the grid, of which wide steps in the tails have one ratio.
    """
    at = np.array([0.01, 0.1, 0.3, 0.5, 0.8, 0.95])
    for table, world in zip(TABLES, worlds.worlds(200_000, 0.3), strict=False):
        inside = np.cumsum(world.on(fg.Axis.from_edges([0, *at, 1])), axis=1)[:, :-1]
        shares = inside / world.drawn.sum(axis=1, keepdims=True)
        # A grid of values stands for all: a tie next to an edge may be on its other side.
        fine = np.linspace(-45, 30, 75_001)
        below = np.array(shares_below(table, fine, 0.3))
        for found, wanted in zip(shares, below, strict=True):
            assert np.all(found >= np.interp(logit(at) - 0.02, fine, wanted) - 0.03), table.name
            assert np.all(found <= np.interp(logit(at) + 0.02, fine, wanted) + 0.03), table.name


# The choice.


@pytest.fixture
def quick(monkeypatch):
    """Few draws of few designs: which one is chosen is not asked."""
    for name, few in (("_DRAWS", 1), ("_FEW_DRAWS", 1), ("_PROMISING", 2)):
        monkeypatch.setattr(search, name, few)


def ordered(monkeypatch, errors, examples=10_000):
    """Names of plans by regret, where each has these errors in each world."""
    played = {name: np.array([[e, e, e] for e in row]) for name, row in errors.items()}
    monkeypatch.setattr(search, "play", lambda plan, *_, **__: played[plan])
    return search._by_regret(list(errors), examples, 0.2, draws=1, shrink=True)


def test_the_choice_is_near_the_best_in_every_world(monkeypatch):
    """Best in two worlds of three, and ten times as bad in the last: not chosen."""
    errors = {"brilliant": (0.01, 0.01, 0.3), "steady": (0.013, 0.013, 0.03)}
    assert ordered(monkeypatch, errors) == ["steady", "brilliant"]


def test_a_world_where_all_is_bad_does_not_decide(monkeypatch):
    """Its errors are the largest, but much the same whatever is chosen."""
    errors = {"good": (0.01, 0.01, 0.31), "bad": (0.02, 0.02, 0.30)}
    assert ordered(monkeypatch, errors) == ["good", "bad"]


def test_no_error_in_a_world_divides_nothing(monkeypatch):
    errors = {"exact": (0.0, 0.01), "close": (1e-9, 0.009), "far": (0.1, 0.1)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # What nobody minds decides nothing: the other world does.
        assert ordered(monkeypatch, errors) == ["close", "exact", "far"]
        assert ordered(monkeypatch, {"a": (0.0, 0.0), "b": (0.0, 0.0)}) == ["a", "b"]


@pytest.mark.parametrize("at", [0.003, 0.9])
@pytest.mark.usefixtures("quick")
def test_a_threshold_becomes_an_edge(at):
    hints = {"clients": 5, "examples": 5_000, "at": at}
    assert at in planner.propose(privacy=fg.DistributedDP(1.0), **hints).axis.edges


EXTREMES = {
    "two examples": {"examples": 2},
    "hardly any positives": {"positive_rate": 1e-6},
    "hardly any negatives": {"positive_rate": 1 - 1e-6},
    "a billion": {"examples": 10**9},
    "small epsilon": {"privacy": fg.DistributedDP(1e-3)},
    "large epsilon": {"privacy": fg.DistributedDP(20.0)},
    "a thousand clients": {"clients": 1_000},
    "local": {"privacy": fg.LocalDP(1.0)},
}


@pytest.mark.parametrize("hints", EXTREMES.values(), ids=EXTREMES.keys())
@pytest.mark.usefixtures("quick")
def test_extreme_hints_have_a_plan(hints):
    known = {"privacy": fg.DistributedDP(1.0), "clients": 5, "examples": 5_000, **hints}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", fg.PrivacyWarning)
        plan = planner.propose(**known)
    plan.check_promise()
    told = np.array([plan.predicted, *plan.predicted.span])
    assert np.all(np.isfinite(told))
    assert np.all((told >= 0) & (told <= 1))
    assert np.all(told[1] <= told[2])
