"""What tests of every kind may ask for."""

import os
import sys
from pathlib import Path

import pytest
from forks import fast_folder
from shells import serving_shells
from users import ALICE, People, home_of

# Behind all others: one of the studies has the name of a package that others may look for.
ROOT = Path(__file__).parents[1]
sys.path.extend(str(ROOT / folder) for folder in ("studies", "benchmarks"))

# Folders that tests make are their owner's, whatever the user's shell says: sites refuse others.
os.umask(0o022)


@pytest.fixture
def folder():
    with fast_folder() as made:
        yield made


@pytest.fixture
def few_redraws(monkeypatch):
    """Bounds that come fast. How good they are is tested in tests/statistics."""
    monkeypatch.setattr("fedgauge.metrics.ranking._DRAWS", 12)


@pytest.fixture
def people(monkeypatch):
    """The accounts and groups that there are, whatever the machine says."""
    return People(monkeypatch)


@pytest.fixture
def home(people):
    """A folder of Alice's, who has an account."""
    del people
    with home_of(ALICE) as folder:
        yield folder


@pytest.fixture(scope="session")
def shell():
    """Run a script in a folder, where `fedgauge` is the command; what became of it."""
    with serving_shells() as run:
        yield run
