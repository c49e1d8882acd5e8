"""What tests of every kind may ask for."""

import pytest


@pytest.fixture
def few_redraws(monkeypatch):
    """Bounds that come fast. How good they are is tested in tests/statistics."""
    monkeypatch.setattr("fedgauge.measures.estimates._DRAWS", 12)
