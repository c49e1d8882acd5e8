"""Engines to test, and sites that exchange files, at every step of an evaluation."""

import os
import warnings

import pytest
from commands import Done
from ddp import ROWS
from exchange import EXACT, NOISY, make_world, snapshots
from forks import fast_folder, serving
from plans import exact_plan, noisy_plan
from rows import split

import fedgauge as fg


@pytest.fixture
def quick_disk(monkeypatch):
    """No waiting for the disk: for what does not crash."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def pytest_generate_tests(metafunc):
    """Tests that ask for an engine run on every one; only they need Flower."""
    chosen = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "make_engine" in metafunc.fixturenames and not any("make_engine" in each for each in chosen):
        from conformance import ENGINES

        metafunc.parametrize("make_engine", ENGINES.values(), ids=ENGINES.keys(), indirect=True)


@pytest.fixture
def make_engine(request, folder, monkeypatch):
    def make(seed=None):
        return request.param(folder, monkeypatch, seed=seed)

    return make


@pytest.fixture
def engine(make_engine):
    return make_engine()


@pytest.fixture
def noiseless():
    """A DP plan with an epsilon so large that noise comes once in 10^11 runs. It shows what is
    clipped; and exact sums over cohorts that differ by one are refused."""

    def make(**options):
        return noisy_plan(30.0, **options)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "epsilon 30 protects nobody", fg.PrivacyWarning)
        yield make


@pytest.fixture(params=["exact", "noiseless"])
def make_plan(request, noiseless):
    """Makes plans for exact sums, which need everybody's vote, and for others, which do not."""
    return exact_plan if request.param == "exact" else noiseless


@pytest.fixture
def clients():
    return split(*ROWS, sites=6)


@pytest.fixture(params=["enforced", "simulated"])
def federation(request, folder, monkeypatch):
    """Makes Flower nodes with site files, or of a simulation; `claim` says which."""
    from nodes import Federation  # needs Flower

    if request.param == "simulated":
        monkeypatch.setenv("FEDGAUGE_SIMULATION", "1")

    def make(name="nodes", **options):
        return Federation(folder / name if request.param == "enforced" else None, **options)

    make.claim = request.param
    return make


@pytest.fixture
def enforced_shops(folder):
    """Makes nodes with labels and site files."""
    from shops import Shops  # needs Flower

    return lambda name="nodes", **options: Shops(folder / name, **options)


@pytest.fixture(params=["enforced", "simulated"])
def make_shops(request, enforced_shops, monkeypatch):
    """The same, and nodes of a simulation; `claim` says which."""
    from shops import Shops

    def simulated(_name="", **options):
        return Shops(**options)

    if request.param == "simulated":
        monkeypatch.setenv("FEDGAUGE_SIMULATION", "1")

    def make(*name, **options):
        made = enforced_shops if request.param == "enforced" else simulated
        return made(*name, **options)

    make.claim = request.param
    return make


@pytest.fixture(scope="session")
def commands():
    """Run commands at the same time, each in its own process; what became of each."""
    with serving("commands_child.py") as send:
        yield lambda *requests: [Done(**done) for done in send(requests)]


@pytest.fixture
def world(folder):
    return make_world(folder)


@pytest.fixture(scope="session")
def exact_steps():
    with fast_folder() as folder:
        yield snapshots(folder, EXACT)


@pytest.fixture(scope="session")
def noisy_steps():
    with fast_folder() as folder:
        yield snapshots(folder, NOISY)
