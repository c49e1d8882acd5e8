"""Plans that expire: how the moment is written, and who refuses after it."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from plans import exact_plan, noisy_plan, report_plan
from sites import BOSS, PEERS, make_site

import fedgauge as fg
from fedgauge import EvaluationPlan, PlanError
from fedgauge.engines.reporting import write_reports
from fedgauge.plan import expiry
from fedgauge.plan.explain import explain
from fedgauge.site.entries import Roster

LAST = datetime(2026, 12, 31, 18, tzinfo=UTC)
WRITTEN = "2026-12-31T18:00:00Z"
SECOND = timedelta(seconds=1)
ROWS = ([0, 1], [0.2, 0.9])


@pytest.fixture
def clock(monkeypatch):
    """Sets the clock."""
    return lambda moment: monkeypatch.setattr(expiry, "now", lambda: moment)


# How it is written


def test_the_clock_is_of_now():
    before = datetime.now(UTC)
    assert before <= expiry.now() <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("2026-12-31", "2026-12-31T23:59:59Z"),
        ("2028-02-29", "2028-02-29T23:59:59Z"),
        (WRITTEN, WRITTEN),
        ("2026-12-31T00:00:00Z", "2026-12-31T00:00:00Z"),
    ],
)
def test_a_plan_stores_one_form(given, stored):
    plan = noisy_plan().with_not_after(given)
    assert plan.not_after == stored
    for again in (
        EvaluationPlan.from_bytes(plan.to_bytes()),
        EvaluationPlan.from_toml(plan.to_toml()),
        EvaluationPlan.from_toml(plan.to_toml().replace(f'"{stored}"', f'"{given}"')),
        EvaluationPlan.from_toml(plan.to_toml().replace(f'"{stored}"', given)),  # TOML's own
    ):
        assert again == plan
        assert again.digest == plan.digest


def test_plans_that_do_not_expire_have_the_bytes_they_had():
    plan = noisy_plan()
    assert plan.not_after is None
    assert b"not_after" not in plan.to_bytes()
    assert "not_after" not in plan.to_toml()
    assert plan.with_not_after(WRITTEN).with_not_after(None).to_bytes() == plan.to_bytes()
    assert plan.with_not_after(WRITTEN).digest != plan.digest


def test_what_is_distributed_is_written_in_the_stored_form():
    plain = json.loads(noisy_plan().to_bytes()) | {"not_after": "2026-12-31"}
    with pytest.raises(PlanError, match="not in the form it is distributed in"):
        EvaluationPlan.from_bytes(json.dumps(plain, separators=(",", ":")).encode())


MALFORMED = [
    "",
    "soon",
    "2026-02-29",
    "2026-13-01",
    "2026-1-1",
    "20261231",
    "2026-W53-4",
    "2026-12-31T18:00:00",
    "2026-12-31T18:00Z",
    "2026-12-31T18:00:00.5Z",
    "2026-12-31T24:00:00Z",
    "2026-12-31T25:00:00Z",
    "2026-12-31T18:00:00+02:00",
    "2026-12-31T18:00:00z",
    "2026-12-31 18:00:00Z",
    "2026-12-31Z",
    "2026-12-31T18:00:00Z\n",
    "٢٠٢٦-12-31",
]


@pytest.mark.parametrize("moment", MALFORMED)
def test_a_malformed_moment_is_refused(moment):
    plan = noisy_plan()
    with pytest.raises(PlanError, match="not_after must be a day or a moment in UTC"):
        plan.with_not_after(moment)
    plain = json.loads(plan.to_bytes()) | {"not_after": moment}
    with pytest.raises(PlanError, match="not_after must be a day or a moment in UTC"):
        EvaluationPlan.from_bytes(json.dumps(plain, separators=(",", ":")).encode())
    toml = f"not_after = {json.dumps(moment)}\n{plan.to_toml()}"
    with pytest.raises(PlanError, match="not_after must be a day or a moment in UTC"):
        EvaluationPlan.from_toml(toml)


@pytest.mark.parametrize(
    "moment", ["1", "true", "18:00:00", "2026-12-31T18:00:00", "2026-12-31T18:00:00+02:00"]
)
def test_other_values_of_toml_are_refused(moment):
    with pytest.raises(PlanError, match="not_after"):
        EvaluationPlan.from_toml(f"not_after = {moment}\n{noisy_plan().to_toml()}")


def test_a_moment_is_text():
    with pytest.raises(PlanError, match="got datetime"):
        noisy_plan().with_not_after(LAST)


def test_what_a_planner_expects_stays():
    plan = fg.planner.propose(privacy=fg.DistributedDP(1.0), clients=5)
    assert plan.predicted is not None
    assert plan.with_not_after(WRITTEN).predicted == plan.predicted


def test_explain_says_until_when():
    plan = noisy_plan()
    assert WRITTEN not in explain(plan)
    assert f"No site counts under it after {WRITTEN}" in explain(plan.with_not_after(WRITTEN))


# Who refuses


@pytest.mark.parametrize(
    ("moment", "refused"),
    [(LAST, False), (LAST + 0.999 * SECOND, False), (LAST + SECOND, True)],
    ids=["at", "within its second", "after"],
)
@pytest.mark.parametrize("make", [noisy_plan, exact_plan])
def test_a_site_judges_by_its_clock(tmp_path, clock, make, moment, refused):
    site = make_site(tmp_path / "site")
    members = [site.key.public, *(key.public for key in PEERS.values())]
    clock(moment)
    site.judge(make(), members=members, coordinator=BOSS.public)  # does not expire
    asked = {"members": members, "coordinator": BOSS.public}
    if not refused:
        site.judge(make().with_not_after(WRITTEN), **asked)
        return
    with pytest.raises(fg.PlanRefused, match=re.escape(f"until {WRITTEN} (not_after)")):
        site.judge(make().with_not_after(WRITTEN), **asked)


@pytest.mark.parametrize("with_site", [True, False])
def test_no_report_is_made_of_an_expired_plan(tmp_path, clock, with_site):
    site = make_site(tmp_path / "site") if with_site else None
    plan = report_plan(fg.LocalDP(1.0), (8,)).with_not_after(WRITTEN)
    clock(LAST)
    write_reports(plan, ROWS, tmp_path / "in-time.fgr", site=site)
    clock(LAST + SECOND)
    with pytest.raises(fg.PlanRefused, match="not_after"):
        write_reports(plan, ROWS, tmp_path / "late.fgr", site=site)
    with pytest.raises(fg.PlanRefused, match="not_after"):
        next(fg.encode_rows(plan, ROWS))
    assert not (tmp_path / "late.fgr").exists()
    if site is not None:
        with pytest.raises(fg.PlanRefused, match="not_after"):
            site.judge_reports(plan)
        assert [entry.kind for entry in site.ledger.entries()] == ["reserve", "commit", "sent"]


def test_reports_that_were_made_in_time_are_taken_in_later(clock):
    """They are private by themselves, and nothing in them says when they were made."""
    plan = report_plan(fg.LocalDP(1.0), (8,)).with_not_after(WRITTEN)
    clock(LAST)
    messages = list(fg.encode_rows(plan, ROWS))
    clock(LAST + SECOND)
    with fg.ReportServer(plan) as server:
        assert server.accept_all(messages).accepted == 2


def test_exact_sums_go_on_under_a_later_date(tmp_path, clock):
    """One plan for all exact sums on a dataset: a later date measures nothing else."""
    site = make_site(tmp_path / "site")
    roster = Roster(frozenset([site.key.public, *(key.public for key in PEERS.values())]), 6)
    clock(LAST)
    for number, moment in enumerate([None, WRITTEN, "2027-12-31"]):
        plan = exact_plan(cohort=fg.Cohort(6)).with_not_after(moment)
        site.reserve(bytes([number]) * 32, plan, roster=roster)
    with pytest.raises(fg.PlanRefused):
        site.reserve(b"x" * 32, exact_plan(cohort=fg.Cohort(6), bins=16), roster=roster)
