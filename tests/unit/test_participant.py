"""What a site adds to the protocol: its word on the survivors."""

import pytest
from sites import open_policy

from fedgauge.binning.axis import Axis
from fedgauge.engines.participant import _Duties
from fedgauge.errors import PlanRefused
from fedgauge.keys import SigningKey
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import Cohort
from fedgauge.secagg import Invitation
from fedgauge.secagg.graph import choose_graph
from fedgauge.site import Site, create_site
from fedgauge.site.entries import Roster


def new_keys(count):
    return [SigningKey.generate().public for _ in range(count)]


@pytest.mark.parametrize(("colluding", "shown"), [(1, False), (2, True)])
def test_colluders_know_their_own_part_of_a_difference(tmp_path, monkeypatch, colluding, shown):
    """Sums over V and x, and over V and two colluders: their difference is x to these two."""
    site = create_site(tmp_path, name="a", dataset="stroke", policy=open_policy())
    members = [site.key.public, *new_keys(9)]
    monkeypatch.setattr(Site, "judge", lambda *_, **__: None)  # of strangers, as here
    plan = EvaluationPlan.for_histogram(Axis.uniform(2, outside="clip"), Cohort(5, colluding))
    boss = SigningKey.generate()

    def confirm(run, survivors):
        invited = [*survivors, *new_keys(6)]  # the six never come
        graph = choose_graph(len(invited), plan.cohort)
        duties = _Duties(site, None, None, print)
        duties.invitation = invitation = Invitation.made(plan, invited, boss, run, graph)
        roster = Roster(frozenset(invited), invitation.needed)
        site.reserve(invitation.session, plan, roster=roster)
        site.ledger.commit(invitation.session)
        duties.agree(survivors)

    confirm(b"1" * 32, members[:8])
    second = [*members[:7], *members[8:]]  # one less, two more
    if shown:
        with pytest.raises(PlanRefused, match="sum over 3 sites"):
            confirm(b"2" * 32, second)
    else:
        confirm(b"2" * 32, second)
