"""What left a site: in its ledger, on the screen and as CSV."""

import csv
import hashlib
import io
import re

import commands
import ledgers
import pytest
from consortium import COORDINATOR, Consortium
from forks import fast_folder
from ledgers import SUBMITTED, exact_sum, session
from plans import exact_plan, noisy_plan
from refusals import refused
from rows import draw_client

import fedgauge as fg
from fedgauge.engines.participant import Delivery, Participant
from fedgauge.errors import LedgerError, PlanRefused
from fedgauge.keys import key_to_text
from fedgauge.local.encode import write_reports
from fedgauge.secagg import Stage, SummationServer
from fedgauge.site import Account, Cost, Policy, create_site
from fedgauge.site.ledger_entries import Asked, Departure
from fedgauge.site.log import COLUMNS, to_csv, what_left

NAMES = ("a", "b", "c")
CLIENTS = {name: draw_client(40, seed=i) for i, name in enumerate(NAMES)}
STEPS = ["join", "share", "submit", "confirm", "reveal"]
COST = Cost(1.0, noisy_plan().statement("enforced").delta)
JOINED = Departure.of("join", b"keys")


@pytest.fixture(scope="module")
def finished():
    """Three sites after an evaluation with noise, and the folder it went through."""
    with fast_folder() as folder:
        sites = Consortium.make(folder, NAMES)
        sites.start(folder / "run", noisy_plan())
        sites.play(folder / "run", CLIENTS)
        yield sites, folder / "run"


def log(sites, *more, name="a"):
    return commands.run("site", "log", *more, "--site", sites.site_file(name), columns=200)


def test_the_log_names_the_files_of_the_folder_and_whom_they_were_for(finished):
    sites, run = finished
    invitation = sites.exchange(run).invitation()
    for name in NAMES:
        rows = what_left(sites.site(name))
        assert [row.step for row in rows] == STEPS
        for row in rows:
            (file,) = run.glob(f"*-{row.step}.*.{name}.reply.fgx")
            data = file.read_bytes()
            assert (row.size, row.sha256) == (len(data), hashlib.sha256(data).hexdigest())
            assert row.evaluation == invitation.session.hex()
            assert row.plan == noisy_plan().digest
            assert (row.coordinator, row.model) == (COORDINATOR, "")
            assert row.coordinator_key == key_to_text(sites.keys[COORDINATOR])
            assert row.cost == (COST if row.step == "submit" else None)


def test_asking_again_adds_nothing(finished):
    sites, run = finished
    before = sites.site("a").ledger.entries()
    result = run / "result.json"
    hidden = result.rename(run / "hidden.json")  # with it nothing is answered at all
    for stage in Stage:
        sites.answer(run, "a", stage)
    hidden.rename(result)
    assert sites.site("a").ledger.entries() == before


def test_a_reply_is_recorded_before_it_is_given(tmp_path, monkeypatch):
    """Whatever ends the process in between, what is in the folder is in the log."""
    sites = Consortium.make(tmp_path, NAMES)
    run = tmp_path / "run"
    sites.start(run, noisy_plan())

    def refuse(*_):
        raise LedgerError("the disk is full")

    for stage in Stage:
        with monkeypatch.context() as broken:
            broken.setattr(fg.site.Ledger, "record_sent", refuse)
            for _ in range(2):  # also when asked again
                with pytest.raises(LedgerError, match="the disk is full"):
                    sites.answer(run, "a", stage, CLIENTS["a"])
        assert not list(run.glob(f"{stage:d}-*.a.reply.fgx"))
        sites.play(run, CLIENTS, since=stage, until=stage)
        assert [row.step for row in what_left(sites.site("a"))] == STEPS[:stage]


def test_a_model_that_travels_is_in_the_log(tmp_path):
    sites, model = Consortium.make(tmp_path, NAMES), bytes(range(32))
    members = [sites.keys[name] for name in NAMES]
    boss = sites.site(COORDINATOR).key
    server = SummationServer.invite(noisy_plan(), members, boss, model=model)
    delivery = Delivery(model, b"\x01" * 32)
    reply = Participant(sites.site("a"), delivery=delivery).answer(server.invitation.data)
    (row,) = what_left(sites.site("a"))
    assert (row.model, row.sha256) == (model.hex(), hashlib.sha256(reply).hexdigest())


def test_a_report_file_is_in_the_log(tmp_path):
    policy = Policy(models=("local-dp",))
    site = create_site(tmp_path / "a", name="a", dataset="stroke", policy=policy)
    axis = fg.Axis.uniform(8, outside="clip")
    plan = fg.EvaluationPlan.for_reports(axis, privacy=fg.LocalDP(1.0))
    write_reports(plan, CLIENTS["a"], tmp_path / "a.fgr", site=site)
    (row,) = what_left(site)
    data = (tmp_path / "a.fgr").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    assert (row.step, row.size, row.sha256) == ("encode", len(data), digest)
    assert (row.plan, row.coordinator, row.cost) == (plan.digest, "", Cost(1.0, 0.0))
    assert [entry.kind for entry in site.ledger.entries()] == ["reserve", "commit", "sent"]


def test_a_step_leaves_once_and_none_of_a_session_that_was_released(ledger):
    refused(LedgerError, "not in the ledger", ledger.record_sent, session(2), JOINED)
    ledgers.reserve(ledger, 2, 0.1)
    ledger.release(session(2))
    with pytest.raises(LedgerError, match="was released: nothing more leaves in it"):
        ledger.record_sent(session(2), JOINED)
    ledgers.reserve(ledger, 1, 0.1)
    ledger.record_sent(session(1), JOINED)
    ledger.record_sent(session(1), JOINED)
    assert [entry.kind for entry in ledger.entries()][2:] == ["reserve", "reply"]
    assert not ledger.spend(session(1)).sent
    refused(LedgerError, "to be committed before", ledger.record_sent, session(1), SUBMITTED)
    with pytest.raises(LedgerError, match=r"sent something else at this step \(join\)"):
        ledger.record_sent(session(1), Departure.of("join", b"other keys"))
    ledger.commit(session(1))
    ledger.record_sent(session(1), SUBMITTED)
    assert ledger.spend(session(1)).sent
    refused(LedgerError, "not in the ledger", ledger.spend, session(3))
    with pytest.raises(LedgerError, match=r"sent something else at this step \(submit\)"):
        ledger.record_sent(session(1), Departure.of("submit", b"other counts"))
    assert [entry.left for entry in ledger.entries() if entry.left] == [JOINED, SUBMITTED]


def test_who_asked_is_kept(ledger):
    asked = Asked(bytes(range(32)), b"\x07" * 32)
    ledgers.reserve(ledger, 1, 0.1, asked=asked, exact=exact_sum("abc"))
    ledgers.reserve(ledger, 2, float("inf"), asked=asked, mix_exact=True)
    noisy, exact = ledger.entries()
    assert noisy.asked == exact.asked == asked
    assert noisy.plan == exact.plan == "plan"
    assert noisy.roster is None  # kept of exact sums alone


def test_the_plan_of_a_noisy_sum_is_no_concern_of_exact_ones(ledger):
    """All exact sums on a dataset are of one plan; noisy ones may be of others."""
    account, rules = Account("stroke", "-", "-"), ledgers.RULES
    other = exact_sum("abcdefgh")._replace(plan="another plan")
    ledgers.spend(ledger, 1, 0.1, exact=other)
    exact = {"exact": exact_sum("abcdefgh"), "rules": rules, "mix_exact": True}
    ledgers.spend(ledger, 2, float("inf"), account, **exact)
    with pytest.raises(PlanRefused, match="of another plan"):
        ledgers.spend(ledger, 3, float("inf"), account, **exact | {"exact": other})


def test_nothing_left_yet_and_no_cell_is_a_formula_to_a_spreadsheet(tmp_path):
    sites = Consortium.make(tmp_path, NAMES)
    assert log(sites).stdout == "Nothing left yet.\n"
    assert log(sites, "--csv", "-").stdout == f"{','.join(COLUMNS)}\n"
    # Nor where a sum is exact, which protects no unit: its account is named by dashes.
    sites.start(tmp_path / "run", exact_plan())
    sites.play(tmp_path / "run", CLIENTS)
    cells = list(csv.DictReader(io.StringIO(log(sites, "--csv", "-").stdout)))
    assert cells[2]["epsilon"] == "inf"
    for row in cells:
        assert all(re.fullmatch(r"[A-Za-z0-9].*|", value) for value in row.values())


def test_the_table_is_short_and_the_entries_of_the_ledger_say_it_too(finished):
    sites, _ = finished
    told = log(sites).stdout
    assert commands.run("site", "log", "--site", sites.site_file("a"), columns=40).stdout == told
    head, *lines = told.splitlines()
    assert head.split() == [
        *("time", "(UTC)", "evaluation", "coordinator", "approver", "step", "plan", "model"),
        *("bytes", "sha256", "epsilon"),
    ]
    row = what_left(sites.site("a"))[2]
    assert lines[2].split() == [
        *f"{row.time:%Y-%m-%d %H:%M}".split(),
        *(row.evaluation[:8], COORDINATOR, "-", "submit", row.plan[:8], "-"),
        *(f"{row.size:,}", row.sha256[:8], "1"),
    ]
    assert lines[0].rstrip().endswith(" -")  # joining costs nothing
    site = finished[0].site_file("a")
    told = commands.run("ledger", "show", "--entries", "--site", site, columns=200).stdout
    size = what_left(finished[0].site("a"))[2].size
    assert re.search(rf"sent +evaluation \w+  submit: {size:,} bytes", told)


def test_the_csv_holds_every_digit(finished, tmp_path):
    sites, _ = finished
    assert (
        f"Saved {tmp_path / 'left.csv'}: 5 rows"
        in log(sites, "--csv", tmp_path / "left.csv").stdout
    )
    text = (tmp_path / "left.csv").read_text()
    assert text == log(sites, "--csv", "-").stdout == to_csv(what_left(sites.site("a")))
    cells = list(csv.DictReader(io.StringIO(text)))
    row = what_left(sites.site("a"))[2]
    assert cells[2] == {
        "time": row.time.isoformat(),
        "evaluation": row.evaluation,
        "dataset": "stroke-2026",
        "coordinator": COORDINATOR,
        "coordinator_key": row.coordinator_key,
        "approver": "",
        "approver_key": "",
        "step": "submit",
        "plan": noisy_plan().digest,
        "model": "",
        "bytes": str(row.size),
        "sha256": row.sha256,
        "unit": "example",
        "neighbours": "add-remove",
        "epsilon": "1.0",
        "delta": repr(COST.delta),
    }
    assert sum(float(each["epsilon"] or 0) for each in cells) == 1  # charged once


def test_a_file_is_not_overwritten(finished, tmp_path):
    path = tmp_path / "left.csv"
    path.write_text("mine")
    told = commands.complaint(log(finished[0], "--csv", path))
    assert told == f"fedgauge: {path} exists. Name another file, or move that one away.\n"
    assert path.read_text() == "mine"
    assert "cannot write" in commands.complaint(log(finished[0], "--csv", tmp_path / "no" / "x"))


def test_the_log_names_the_plan_as_it_was_asked_for(tmp_path):
    """Exact sums are compared by the plan without its date, and it left under the whole one."""
    site = create_site(tmp_path / "site", name="a", dataset="d")
    undated = noisy_plan(1.0)
    plan = undated.with_not_after("2999-12-31")
    site.reserve(bytes(32), plan)
    site.ledger.commit(bytes(32))
    site.ledger.record_sent(bytes(32), SUBMITTED)
    (row,) = what_left(site)
    assert row.plan == plan.digest != undated.digest
