"""Sites that run unattended: what their agents answer, refuse and survive."""

import numpy as np
import pytest
from agents import Hospitals
from consortium import A, B, C
from counts import counts_of
from exchange import EXACT, NOISY

pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")


@pytest.fixture
def make(folder, monkeypatch):
    with monkeypatch.context() as patch:

        def made(plan=NOISY, **options):
            hospitals = Hospitals.declared(folder, plan, **options)
            hospitals.enter(patch)
            return hospitals

        yield made


def test_an_evaluation_runs_by_itself(make):
    hospitals = make(EXACT)
    hospitals.export_all()
    finished = hospitals.until_finished()
    np.testing.assert_array_equal(counts_of(finished.result), hospitals.truth())
    assert finished.place.startswith("2026-01-05-")
    for name in (A, B, C):
        assert hospitals.entries(name) == ["reserve", "commit", "sent", "survivors"]
        assert hospitals.kinds(name) == ["joined", *["answered"] * 4]
        (spend,) = hospitals.site(name).ledger.sessions().values()
        assert spend.account.dataset == "stroke-2026-W01"
