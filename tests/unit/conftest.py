"""Ledgers to test."""

import pytest
from ledgers import EXAMPLES, LIMIT, open_ledger, spend


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
