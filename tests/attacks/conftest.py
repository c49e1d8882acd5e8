"""Where attacks take place: a folder in memory, a disk that nobody waits for."""

import os

import pytest


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """No waiting for the disk: nothing crashes here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
