"""Where attacks take place: a folder in memory, a disk that nobody waits for."""

import os

import pytest
from forks import fast_folder


@pytest.fixture
def folder():
    with fast_folder() as made:
        yield made


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """No waiting for the disk: nothing crashes here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
