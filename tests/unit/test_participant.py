"""What a site adds to the protocol: its word on the survivors."""

import math

import pytest
from consortium import Consortium
from plans import noisy_plan
from sites import open_policy

from fedgauge.binning.axis import Axis
from fedgauge.engines.duties import SiteDuties
from fedgauge.engines.participant import Participant
from fedgauge.errors import PlanRefused
from fedgauge.keys import SigningKey
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import Cohort
from fedgauge.secagg import Invitation, Stage
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
        duties = SiteDuties(site, None, None, print)
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


@pytest.mark.parametrize("error", [OSError(32, "Broken pipe"), SystemExit(1)])
def test_an_operator_who_cannot_be_told_does_not_silence_a_site(tmp_path, error):
    """Odd rows are told on a console, which fails where its pipe is closed; clean rows are not."""
    names = ["a", "b", "c"]
    sites = Consortium.make(tmp_path, names)
    run, rows = tmp_path / "run", ([0, 1], [0.5, math.nan])
    sites.start(run, noisy_plan())
    sites.play(run, dict.fromkeys(names, rows), until=Stage.SHARE)
    exchange = sites.exchange(run, "a")
    request = exchange.request_to_me(exchange.invitation(), Stage.MASK)

    def tell(_):
        raise error

    assert Participant(sites.site("a"), lambda: rows, tell=tell).answer(request)
    assert sites.entries("a") == ["reserve", "commit", "sent"]
