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
from fedgauge.planner.tables import ScoreTable, score_tables

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TABLES = score_tables()
EVEN = ScoreTable("even", 0.5, (-3.0, -2.0, -1.0, 0.0), (0.0, 1.0, 2.0, 3.0))
TIED = ScoreTable("tied", 0.5, (-40.0, -40.0, -1.0, 0.0), (0.0, 1.0, 1.0, 40.0))


def share_below(table, at, rate=None):
    sides = table.cumulative(np.array(at, dtype=float), rate or table.positive_rate)
    return [side.tolist() for side in sides]


# Tables.


@pytest.mark.parametrize("rate", [1e-6, 0.2, 0.97])
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_shares_rise_from_0_to_1(table, rate):
    for side in table.cumulative(np.linspace(-200, 200, 4_001), rate):
        assert np.all(np.diff(side) >= 0)
        assert (side[0], side[-1]) == (0.0, 1.0)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_as_many_scores_lie_below_a_quantile_as_it_says(table):
    """Counted among the quantiles: those below, and half of one that no other shares."""
    both = table.cumulative(np.arange(-40.0005, 41), table.positive_rate)
    for quantiles, side in zip((table.negatives, table.positives), both, strict=True):
        counted = np.searchsorted(np.sort(quantiles), np.arange(-40.0005, 41)) / len(quantiles)
        # Between two quantiles the share rises by as much as one of them stands for.
        assert np.abs(side - counted).max() <= 1 / len(quantiles) + 1e-12


def test_shares_are_those_of_a_large_sample():
    """Scores drawn anew, each spread to its neighbours: 6 deviations, less than 1 in 10^7."""
    rng = np.random.default_rng(0)
    drawn = np.interp(rng.random(100_000), [0, 1 / 8, 7 / 8, 1], [-4.0, -3.0, 0.0, 1.0])
    at = np.linspace(-5, 2, 29)
    negatives, _ = EVEN.cumulative(at, 0.5)
    counted = np.searchsorted(np.sort(drawn), at) / len(drawn)
    np.testing.assert_allclose(negatives, counted, atol=0.01)


def test_shares_jump_where_scores_tie():
    below, above = 1.0, np.nextafter(1.0, 2.0)
    _, (before, after) = share_below(TIED, [below, above])
    assert (before, after) == (0.25, 0.75)


def test_scores_of_0_and_1_stay_at_the_ends():
    """However rare positives are, what was 0 is below every bin but the first."""
    negatives, positives = share_below(TIED, [-30.0, 30.0])
    assert 0.5 <= negatives[0] < 0.625  # half of the next quantile lies in between
    assert 0.75 < positives[1] <= 0.875
    for rate in (1e-6, 0.2, 0.999):
        made = worlds.drawn_worlds([TIED], [expit], 10_000, rate)[0]
        ends = made.on(fg.Axis.uniform(64))
        zeros, ones = ends[0, 0] / ends[0].sum(), ends[1, -1] / ends[1].sum()
        assert zeros > 0.45
        assert ones > 0.1 or ends[1].sum() < 20


@pytest.mark.parametrize("rate", [0.01, 0.2, 0.9])
def test_log_odds_move_with_the_prior_odds(rate):
    at = np.linspace(-4, 4, 33)
    moved = EVEN.cumulative(at + logit(rate), rate)
    np.testing.assert_allclose(moved, EVEN.cumulative(at, 0.5), atol=1e-12)


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
        assert set(table) == {"name", "positive_rate", "negatives", "positives"}
        assert table["positive_rate"] == round(table["positive_rate"], 4)
        for side in (table["negatives"], table["positives"]):
            assert len(side) == 96
            assert side == sorted(side)
            assert side == np.round(side, 3).tolist()
            assert -40 <= side[0] <= side[-1] <= 40


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
    """Shares of 200,000 drawn against those of the table: 6 deviations, less than 1 in 10^6."""
    at = np.array([0.01, 0.1, 0.3, 0.5, 0.8, 0.95])
    for table, world in zip(TABLES, worlds.worlds(200_000, 0.3), strict=False):
        wanted = table.cumulative(logit(at), 0.3)
        inside = np.cumsum(world.on(fg.Axis.from_edges([0, *at, 1])), axis=1)[:, :-1]
        shares = inside / world.drawn.sum(axis=1, keepdims=True)
        # A grid of 12,288 values stands for all: a tie next to an edge may be on its other side.
        near = table.cumulative(logit(at) - 0.02, 0.3), table.cumulative(logit(at) + 0.02, 0.3)
        chance = 6 * 0.5 / np.sqrt(world.drawn.sum(axis=1, keepdims=True))
        assert np.all(shares >= np.array(near[0]) - chance), table.name
        assert np.all(shares <= np.array(near[1]) + chance), table.name
        assert np.shape(wanted) == shares.shape


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
