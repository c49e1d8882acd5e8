"""Ledgers to test, and scenes of few neighbours to attack."""

import pytest
import scene
from ledgers import EXAMPLES, LIMIT, make_ledger, spend
from matplotlib import pyplot
from plans import small_noisy_plan, small_plan

from fedgauge.planner import Needs, requirements, search


@pytest.fixture
def ledger(tmp_path):
    return make_ledger(tmp_path)


@pytest.fixture
def used(ledger):
    """A ledger with a limit and two spends."""
    ledger.set_limit(EXAMPLES, LIMIT)
    for number in (1, 2):
        spend(ledger, number, 0.5)
    return ledger


@pytest.fixture
def sparse(monkeypatch):
    return scene.sparse_scenes(monkeypatch)


@pytest.fixture(params=[small_plan, small_noisy_plan], ids=["exact", "noisy"])
def both_kinds(request, monkeypatch):
    """Scenes of an exact sum, which everybody must vote for, and of one with noise."""
    monkeypatch.setattr(scene, "small_plan", request.param)


@pytest.fixture
def quick_search(monkeypatch):
    """Few draws of few designs, for tests that do not ask which design is best."""
    for name, few in (("_DRAWS", 1), ("_FEW_DRAWS", 1), ("_PROMISING", 2)):
        monkeypatch.setattr(search, name, few)
    monkeypatch.setattr(requirements, "_DRAWS", 2)


@pytest.fixture
def figures_closed():
    yield
    pyplot.close("all")


@pytest.fixture
def needs(monkeypatch):
    """What the planner is asked for; its answer is always the same."""
    asked = []

    def answer(*args, **kwargs):
        asked.append((args, kwargs))
        return Needs(epsilon=0.3456, examples=123_456, expected=0.05)

    monkeypatch.setattr("fedgauge.planner.needs", answer)
    return asked
