"""Ledgers to test, and scenes of few neighbours to attack."""

import pytest
from ledgers import EXAMPLES, LIMIT, open_ledger, spend
from scene import sparse_scenes


@pytest.fixture
def ledger(tmp_path):
    return open_ledger(tmp_path)


@pytest.fixture
def used(ledger):
    """A ledger with a limit and two spends."""
    ledger.set_limit(EXAMPLES, LIMIT)
    for number in (1, 2):
        spend(ledger, number, 0.5)
    return ledger


@pytest.fixture
def sparse(monkeypatch):
    return sparse_scenes(monkeypatch)
