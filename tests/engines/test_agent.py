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


def charged(hospitals, name):
    """What a hospital spent, by dataset, and that nothing is set aside any more."""
    balances = hospitals.site(name).ledger.balances()
    assert all(each.reserved.epsilon == 0 for each in balances)
    return {each.account.dataset: each.spent.epsilon for each in balances}


def assert_released(hospitals, finished, week):
    """The result of a week is that of all its rows, signed, and every site paid for it once."""
    progress = finished.exchange.progress()
    assert progress.finished
    counts, truth = counts_of(finished.result), hospitals.truth(week)
    if hospitals.plan.is_noisy:
        # 48 counts, each with noise of a scale of about 1: beyond 60 once in 10^20 runs.
        assert np.abs(counts - truth).max() < 60
    else:
        np.testing.assert_array_equal(counts, truth)
    for name in hospitals.names:
        spends = hospitals.site(name).ledger.sessions()
        paid = [each for each in spends.values() if each.account.dataset == f"stroke-{week}"]
        assert [each.status for each in paid].count("committed") == 1
        left = paid[-1].departures
        assert [each.step for each in left] == ["join", "share", "submit", "confirm", "reveal"]


class Half:
    """26 weeks in which something goes wrong in most."""

    def __init__(self, hospitals, patch):
        self.hospitals = hospitals
        self.patch = patch

    def run(self, week):
        """One week; its result, or None where it was refused."""
        faults = {
            2: self.killed_agent,
            5: self.killed_coordinator,
            8: self.late_site,
            10: self.full_site,
            12: self.full_share,
            14: self.removed_folder,
            16: self.late_rows,
            18: self.every_one_killed,
            20: self.abandoned,
            22: self.fresh_agents,
        }
        return faults.get(week, self.hospitals.until_finished)()

    def killed_agent(self):
        last = iter(range(1, 60))
        tick = self.hospitals.look

        def dying_look(name):
            if name == A and self.hospitals.killed(A, next(last)):
                return []
            return tick(name)

        self.patch.setattr(self.hospitals, "look", dying_look, raising=True)
        finished = self.hospitals.until_finished(200)
        self.patch.undo()
        self.hospitals.enter(self.patch)
        return finished
