"""What others could do to a site that runs unattended. The attacker is an approved but hostile
coordinator, somebody else who writes to the folder, or the site's operator, who wants more than the
officer signed."""

import os
from datetime import date

import msgspec
import pytest
from agents import DAY, MINUTE, WEEK, Hospitals
from commands import run
from consortium import COORDINATOR, A, B
from exchange import NOISY
from refusals import refused
from sites import edit

import fedgauge as fg
from fedgauge.engines.agent import Agent
from fedgauge.engines.coordinator import Finished
from fedgauge.engines.exchange import INVITATION, RESULT, Exchange
from fedgauge.engines.folder import LocalFolder
from fedgauge.engines.participant import invited
from fedgauge.engines.review import approve, review
from fedgauge.errors import ExchangeError, LedgerError, PlanRefused, SiteError
from fedgauge.keys import SigningKey
from fedgauge.secagg import SummationServer
from fedgauge.secagg.evidence import File, Signed, WrongDealing
from fedgauge.secagg.secret_sharing import Kind
from fedgauge.site import add_approver, add_trust
from fedgauge.site.rows import NamedRows
from fedgauge.site.standing import approval_of, approve_ahead

pytestmark = pytest.mark.usefixtures("few_redraws")
UNTIL = date(2026, 6, 30)


def planned(axis=NOISY.axis, privacy=NOISY.privacy, **options):
    """The plan of all, but for what is named."""
    return fg.EvaluationPlan.for_histogram(axis, NOISY.cohort, privacy=privacy, **options)


CHEAP = planned(privacy=fg.DistributedDP(0.01))


@pytest.fixture
def make(folder, monkeypatch):
    with monkeypatch.context() as patch:

        def made(plan=NOISY, **options):
            hospitals = Hospitals.declared(folder, plan, **options)
            hospitals.enter(patch)
            hospitals.export_all()
            return hospitals

        yield made


@pytest.fixture
def hospitals(make):
    return make()


def invite(hospitals, name, plan=None, key=None, members=None):
    """An invitation in a folder of that name, signed by the coordinator unless by somebody else."""
    key = key or hospitals.site(COORDINATOR).key
    members = members or [hospitals.keys[each] for each in hospitals.names]
    server = SummationServer.invite(plan or hospitals.plan, members, key)
    folder = hospitals.shared / name
    folder.mkdir()
    (folder / INVITATION).write_bytes(server.invitation.data)
    return server.invitation


def joined(hospitals, name=A):
    return len(hospitals.site(name).ledger.sessions())


def test_a_thousand_invitations(make, monkeypatch):
    """A day's joins at most, and the budget at most; rows are judged for none but those."""
    hospitals = make(CHEAP, budget_epsilon=0.05)
    read = []
    monkeypatch.setattr(NamedRows, "data", lambda self, plan, _: read.append(1) or self.file(plan))
    for number in range(1000):
        invite(hospitals, f"{number:04}")
    for _ in range(30):
        hospitals.look(A)
        hospitals.clock += MINUTE
    (balance,) = hospitals.site(A).ledger.balances()
    assert balance.reserved.epsilon == pytest.approx(0.05)
    assert joined(hospitals) == 5
    assert len(read) <= 2 * 5
    edit_site(hospitals, "budget_epsilon = 0.05", "budget_epsilon = 3.0")
    for _ in range(30):
        hospitals.look(A)
        hospitals.clock += MINUTE
    assert joined(hospitals) == 10  # of a day
    assert len(read) <= 2 * 10
    assert len(list((hospitals.folder / A / "sessions").iterdir())) < 40
    hospitals.clock += DAY
    for _ in range(30):
        hospitals.look(A)
        hospitals.clock += MINUTE
    assert joined(hospitals) == 20


def edit_site(hospitals, old, new, name=A):
    edit(hospitals.site(name), old, new)


def test_what_is_under_way_goes_on_among_a_thousand_invitations(hospitals):
    for _ in range(2):
        hospitals.tick()
    for number in range(1000):
        invite(hospitals, f"0-{number:04}", CHEAP, SigningKey.generate())
    assert hospitals.until_finished(10).result is not None
    assert joined(hospitals) == 1


def test_one_step_looks_at_some_folders_only(hospitals, monkeypatch):
    looks = []
    init = Exchange.__init__
    monkeypatch.setattr(
        Exchange, "__init__", lambda self, *args: looks.append(1) or init(self, *args)
    )
    for number in range(1000):
        invite(hospitals, f"{number:04}", CHEAP, SigningKey.generate())
    hospitals.look(A)
    assert len(looks) == 50
    told = hospitals.told
    for _ in range(25):
        hospitals.look(A)
    assert len(told) == 1000  # each is refused once, and comes to its turn


def test_folders_without_an_invitation_take_no_turn(hospitals):
    """However many: they are not looked into, and what is in the last is joined at once."""
    for number in range(1000):
        (hospitals.shared / f"0-{number:04}").mkdir()
    invite(hospitals, "run")
    hospitals.look(A)
    assert last_told(hospitals).kind == "joined"


def test_copies_of_what_is_under_way_come_to_their_turn_only(hospitals, monkeypatch):
    """A site answers in the folder that the coordinator writes to, whichever it found first."""
    hospitals.running().step(hospitals.clock)
    (real,) = hospitals.shared.iterdir()
    for number in range(200):
        copy = hospitals.shared / f"0-{number:04}"
        copy.mkdir()
        os.link(real / INVITATION, copy / INVITATION)
    looks = []
    init = Exchange.__init__
    monkeypatch.setattr(
        Exchange, "__init__", lambda self, *args: looks.append(1) or init(self, *args)
    )
    for _ in range(10):
        looks.clear()
        hospitals.look(A)
        assert len(looks) <= 1 + 50
        hospitals.clock += MINUTE
    assert hospitals.until_finished().result is not None
    assert hospitals.entries(A) == ["reserve", "commit", "sent", "survivors"]


def test_two_agents_of_a_site(hospitals):
    """The second does not start; if it did, nothing would be sent or charged twice."""
    first, second = (Agent(hospitals.shared, hospitals.site_file(A)) for _ in range(2))
    with (
        first.alone(),
        pytest.raises(LedgerError, match="another process holds"),
        second.alone(),
    ):
        pass
    with second.alone():
        pass
    other = hospitals.agent(A)
    finished = None
    while finished is None:
        outcome = hospitals.tick()
        hospitals.agents[A] = first if hospitals.agents[A] is other else other
        hospitals.look(A)
        finished = getattr(outcome, "result", None)
    assert hospitals.entries(A) == ["reserve", "commit", "sent", "survivors"]


def test_what_is_given_back_counts_for_the_day(hospitals):
    """Else a coordinator could ask as often as it likes, at no cost."""
    edit_site(hospitals, "daily = 10", "daily = 1")
    first = invite(hospitals, "first")
    hospitals.look(A)
    Exchange(hospitals.shared / "first", hospitals.site(COORDINATOR)).write_end(first)
    hospitals.clock += MINUTE
    hospitals.look(A)
    assert hospitals.entries(A) == ["reserve", "release"]
    invite(hospitals, "second")
    hospitals.look(A)
    assert last_told(hospitals).kind == "refused"
    assert hospitals.entries(A) == ["reserve", "release"]


# Periods.


def charged(hospitals):
    return [each.account.dataset for each in hospitals.site(A).ledger.sessions().values()]


def test_a_day_that_was_full_does_not_change_which_rows_are_counted(hospitals):
    """The second invitation came on Sunday, too, and is joined a day later."""
    edit_site(hospitals, "daily = 10", "daily = 1")
    hospitals.clock += 6 * DAY
    for number in range(2):
        invite(hospitals, f"{number}")
    hospitals.look(A)
    assert joined(hospitals) == 1
    hospitals.clock += DAY + MINUTE
    hospitals.look(A)
    assert charged(hospitals) == ["stroke-2026-W01"] * 2


def test_an_officer_signs_for_the_week_in_which_the_agent_saw_it(hospitals, officer):
    hospitals.clock += 6 * DAY
    invitation = invite(hospitals, "run")
    hospitals.look(A)
    assert last_told(hospitals).kind == "waiting"
    hospitals.clock += DAY
    hospitals.export_all()
    site = hospitals.site(A)
    assert site.dataset == "stroke-2026-W02"
    assert review(site, invitation).budget.dataset == "stroke-2026-W01"
    approve(site, invitation, officer, evaluation=invitation.session.hex())
    assert review(site, invitation).approver == "officer"
    hospitals.look(A)
    assert charged(hospitals) == ["stroke-2026-W01"]


# Standing approvals.


@pytest.fixture
def officer(hospitals):
    add_approver(hospitals.site_file(A), "officer", hospitals.folder / "officer.key")
    return SigningKey.load(hospitals.folder / "officer.key")


def sign(hospitals, officer, plan=None, times=2, until=UNTIL):
    site = hospitals.site(A)
    (coordinator,) = site.coordinators
    return approve_ahead(
        site, plan or hospitals.plan, coordinator, officer, times=times, until=until
    )


def last_told(hospitals):
    return hospitals.told[-1][1]


def test_nothing_is_joined_without_an_approval(hospitals, officer):
    invite(hospitals, "run")
    hospitals.look(A)
    assert last_told(hospitals).kind == "waiting"
    assert joined(hospitals) == 0
    sign(hospitals, officer)
    hospitals.clock += MINUTE
    hospitals.look(A)
    assert last_told(hospitals).kind == "joined"
    (spend,) = hospitals.site(A).ledger.sessions().values()
    assert (spend.asked.approver, spend.asked.standing.most) == (officer.public, 2)


def test_an_approval_is_used_so_often_and_no_more(hospitals, officer):
    """Also by agents that are started anew, and in the week after."""
    sign(hospitals, officer)
    for number in range(2):
        hospitals.until_finished()
        hospitals.restart(A)
        hospitals.clock += WEEK
        hospitals.export_all()
        assert joined(hospitals) == number + 1
    invite(hospitals, "third")
    for _ in range(3):
        hospitals.restart(A)
        hospitals.look(A)
    assert "was used 2 times, and it is for 2" in last_told(hospitals).told
    assert joined(hospitals) == 2
    sign(hospitals, officer)  # the same words are the same approval
    hospitals.restart(A)
    hospitals.look(A)
    assert joined(hospitals) == 2
    sign(hospitals, officer, times=1)
    hospitals.restart(A)
    hospitals.look(A)
    assert joined(hospitals) == 3


def test_a_use_that_was_given_back_is_left(hospitals, officer):
    sign(hospitals, officer, times=1)
    first = invite(hospitals, "first")
    hospitals.look(A)
    exchange = Exchange(hospitals.shared / "first", hospitals.site(COORDINATOR))
    exchange.write_end(first)
    hospitals.clock += MINUTE
    hospitals.look(A)
    assert hospitals.entries(A) == ["reserve", "release"]
    invite(hospitals, "second")
    hospitals.look(A)
    assert hospitals.entries(A) == ["reserve", "release", "reserve"]


def test_an_approval_ends_on_its_day(hospitals, officer):
    """What was joined in time goes on, a clock set back opens nothing."""
    sign(hospitals, officer, until=hospitals.clock.date())
    hospitals.tick()
    hospitals.clock += DAY
    hospitals.until_finished()
    invite(hospitals, "late")
    hospitals.look(A)
    assert "was until 2026-01-05" in last_told(hospitals).told
    hospitals.clock -= DAY
    hospitals.restart(A)
    hospitals.look(A)
    assert "clock of this machine is behind the ledger" in last_told(hospitals).told
    site = hospitals.site(A)
    invitation = Exchange(hospitals.shared / "late", site).invitation()
    refused(PlanRefused, "was until", approval_of, site, NOISY, invited(invitation))
    assert joined(hospitals) == 1


DIFFERENT = {
    "epsilon": planned(privacy=fg.DistributedDP(0.999)),
    "noise": planned(privacy=fg.DistributedDP(1.0, noise="discrete-gaussian", delta=1e-9)),
    "unit": planned(privacy=fg.DistributedDP(1.0, neighbours="replace-one")),
    "bins": planned(axis=fg.Axis.uniform(9, outside="clip")),
    "range": planned(axis=fg.Axis.uniform(8, high=1.1, outside="clip")),
    "positive": planned(task=fg.BinaryTask(1)),
    "day": NOISY.with_not_after("2026-12-31"),
}


@pytest.mark.parametrize("field", DIFFERENT)
def test_a_plan_that_differs_by_one_field(hospitals, officer, field):
    sign(hospitals, officer)
    invite(hospitals, "other", DIFFERENT[field])
    hospitals.look(A)
    assert (last_told(hospitals).kind, joined(hospitals)) == ("waiting", 0)
    assert "approver" in last_told(hospitals).told


def test_another_coordinator_has_no_part_in_an_approval(hospitals, officer):
    other = SigningKey.generate()
    add_trust(hospitals.site_file(A), "coordinator", "other", fg.keys.key_to_text(other.public))
    site = hospitals.site(A)
    approve_ahead(site, NOISY, hospitals.keys[COORDINATOR], officer, times=2, until=UNTIL)
    invite(hospitals, "run", key=other)
    hospitals.look(A)
    assert (last_told(hospitals).kind, joined(hospitals)) == ("waiting", 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('dataset = "stroke"', 'dataset = "heart"'),
        ('periods = "disjoint"', ""),
        ("W{week}", "Q{quarter}"),
    ],
    ids=["name", "periods", "pattern"],
)
def test_an_approval_is_for_its_data(hospitals, officer, old, new):
    sign(hospitals, officer)
    edit_site(hospitals, old, new)
    invite(hospitals, "run")
    hospitals.look(A)
    assert (last_told(hospitals).kind, joined(hospitals)) == ("waiting", 0)


def test_an_approval_that_is_withdrawn(hospitals, officer):
    """Also after it was joined under: then nothing is counted."""
    path = sign(hospitals, officer)
    hospitals.tick()
    path.unlink()
    for _ in range(6):
        hospitals.tick()
    assert any("was withdrawn" in event.told for _, event in hospitals.told)
    assert hospitals.entries(A) == ["reserve"]


@pytest.mark.parametrize("field", ["plan", "coordinator", "dataset", "times", "until", "approver"])
def test_a_forged_approval(hospitals, officer, field):
    """Nobody but the officer can change a word of one, nor put theirs in its place."""
    path = sign(hospitals, officer)
    forged = SigningKey.generate()
    kept = msgspec.json.decode(path.read_bytes())
    other = {
        "plan": DIFFERENT["epsilon"].digest,
        "coordinator": fg.keys.key_to_text(forged.public),
        "dataset": "heart",
        "times": 1000,
        "until": "2030-01-01",
        "approver": fg.keys.key_to_text(forged.public),
    }[field]
    path.write_bytes(msgspec.json.encode(kept | {field: other}))
    invite(hospitals, "run")
    hospitals.look(A)
    assert (last_told(hospitals).kind, joined(hospitals)) == ("waiting", 0)


def test_nothing_is_signed_that_the_site_refuses(hospitals, officer):
    dear = planned(privacy=fg.DistributedDP(2.0))
    refused(PlanRefused, "max_epsilon", sign, hospitals, officer, dear)
    refused(SiteError, "is over", sign, hospitals, officer, until=date(2025, 1, 1))
    refused(SiteError, "not an approver's", sign, hospitals, SigningKey.generate())


# Whoever else can write to the folder.


def under_way(hospitals):
    """The folder of an evaluation that one site joined, and its invitation."""
    hospitals.running().step(hospitals.clock)
    hospitals.look(A)
    (place,) = hospitals.shared.iterdir()
    return place, Exchange(place, hospitals.site(A)).invitation()


def test_junk_in_place_of_the_result_is_not_built(hospitals, monkeypatch):
    """Empty lists take thirty times the memory of their text."""
    place, _ = under_way(hospitals)
    built = []
    monkeypatch.setattr("fedgauge.results.signature._once_each", built.append)
    for junk in (b'{"a":{},"b":[[],[]]}', b'{"a":{},"proof":{}}'):
        (place / "result.json").write_bytes(junk)
        assert not Exchange(place, hospitals.site(A)).progress().finished
    assert built == []


def test_evidence_of_more_things_than_there_can_be_is_not_judged(hospitals, monkeypatch):
    """Nor is it read where it is larger than that of so few members can be."""
    place, invitation = under_way(hospitals)
    nothing = Signed(b"", bytes(64))
    found = WrongDealing(0, Kind.MASK, nothing, nothing, [])
    judged, read = [], []
    judge = WrongDealing.judged
    monkeypatch.setattr(WrongDealing, "judged", lambda *a: judged.append(1) or judge(*a))
    decode = File.from_bytes
    monkeypatch.setattr(File, "from_bytes", lambda data: read.append(1) or decode(data))
    for number, times in ((12, 1), (13, 1), (20_000, 0)):
        data = File(invitation=invitation.data, found=[found] * number).to_bytes()
        (place / "evidence.fgx").write_bytes(data)
        judged.clear()
        read.clear()
        Exchange(place, hospitals.site(A)).progress()
        assert len(read) == times
        assert len(judged) == (12 if number == 12 else 0)


def test_a_folder_full_of_rubbish(hospitals):
    """Pipes, links, deep folders and files that are no invitations stop nothing."""
    shared = hospitals.shared
    (shared / "file").write_bytes(b"x")
    os.mkfifo(shared / "pipe")
    (shared / "link").symlink_to(hospitals.folder / A)
    for number, data in enumerate((b"", b"\x00" * 100, os.urandom(5000), b"\x93" * 2000)):
        (shared / f"bad-{number}").mkdir()
        (shared / f"bad-{number}" / INVITATION).write_bytes(data)
    (shared / "fifo").mkdir()
    os.mkfifo(shared / "fifo" / INVITATION)
    (shared / "folder" / INVITATION).mkdir(parents=True)
    (shared / "\x1b[2J\n").mkdir()
    (shared / "\x1b[2J\n" / INVITATION).write_bytes(b"x")
    assert hospitals.until_finished().result is not None
    assert joined(hospitals) == 1


def test_a_stranger_replaces_files_of_every_round(hospitals):
    """Each file of a round is replaced once by rubbish, and the result comes all the same."""
    replaced = set()
    for _ in range(200):
        outcome = hospitals.tick()
        if hasattr(outcome, "result"):
            break
        hospitals.clock += 10 * MINUTE
        for path in (hospitals.shared / outcome.place).glob("*.fgx"):
            if path.name not in replaced:
                replaced.add(path.name)
                path.write_bytes(b"rubbish")
    assert len(replaced) == 1 + 3 * 5 + 3 * 4
    for name in hospitals.names:
        assert hospitals.entries(name) == ["reserve", "commit", "sent", "survivors"]


def test_nobody_else_ends_an_evaluation(hospitals):
    """What says that an attempt was given up is signed by its coordinator, for this attempt."""
    hospitals.tick()
    other = invite(hospitals, "other", CHEAP)
    coordinator = Exchange(hospitals.shared / "other", hospitals.site(COORDINATOR))
    coordinator.write_end(other)
    (place,) = (each for each in hospitals.shared.iterdir() if each.name.startswith("2026"))
    for_another = (hospitals.shared / "other" / "ended.fgx").read_bytes()
    Exchange(place, hospitals.site(B)).write_end(Exchange(place, hospitals.site(B)).invitation())
    by_another = (place / "ended.fgx").read_bytes()
    for forged in (by_another, for_another):
        (place / "ended.fgx").write_bytes(forged)
        hospitals.tick()
    assert hospitals.until_finished().result is not None


def test_a_flood_of_files_floods_no_log(hospitals):
    """A few are named, first those that somebody has to remove, and the others are counted."""
    outcome = hospitals.running().step(hospitals.clock)
    place = hospitals.shared / outcome.place
    (place / RESULT).mkdir()
    for number in range(1, 2001):
        (place / f"1-{number}.reply.fgx").touch()
    waiting = hospitals.running().step(hospitals.clock)
    aside = waiting.progress.set_aside
    assert len(aside) == 11
    assert next(iter(aside)) == RESULT
    assert "1,991 more" in aside
    assert len(waiting.why) < 3000
    assert "1,990 more" in waiting.why
    told = run("exchange", "status", place, "--site", hospitals.site_file(A)).stdout
    assert "Set aside 1,991 more: for such reasons" in told
    assert len(told) < 3000


def test_the_log_shows_no_control_characters(hospitals):
    name = "\x1b[2J\u202e"
    (hospitals.shared / name).mkdir()
    (hospitals.shared / name / INVITATION).write_bytes(b"x")
    for option in ((), ("--json",)):
        done = run(
            "site", "run", hospitals.shared, "--site", hospitals.site_file(A), "--once", *option
        )
        assert done.exit_code == 0
        assert "\x1b" not in done.output
        assert "\u202e" not in done.output
        assert "U+001B" in done.output


# Whoever can write to the folder of a run that was stopped before it showed its result.


def until_result(hospitals):
    """A result that the coordinator has not closed yet, and so gets again."""
    while not isinstance(outcome := hospitals.tick(), Finished):
        pass
    return outcome


def made_up(hospitals):
    """A result that nobody signed."""
    return fg.evaluate({name: hospitals.rows_of(name, "2020-W01") for name in hospitals.names})


def test_a_result_is_swapped_after_it_was_checked(hospitals, monkeypatch):
    """What is shown are the bytes that were checked, whatever the file holds by then."""
    finished = until_result(hospitals)
    path = hospitals.shared / finished.place / RESULT
    forged, read = made_up(hospitals).record.to_json(), LocalFolder.read
    reads = []

    def swapped(folder, name, most):
        data = read(folder, name, most)
        if name == RESULT:
            reads.append(name)
            path.write_bytes(forged)
        return data

    monkeypatch.setattr(LocalFolder, "read", swapped)
    again = hospitals.running().step(hospitals.clock)
    assert reads
    assert path.read_bytes() == forged
    assert again.result.record.to_json() == finished.result.record.to_json()


@pytest.mark.parametrize("of", ["nobody", "last week"])
def test_another_result_is_put_in_place_of_a_result(hospitals, of):
    """Unsigned, or that of last week with its invitation."""
    earlier = hospitals.until_finished()
    hospitals.clock += WEEK
    hospitals.export_all()
    finished = until_result(hospitals)
    before, now = (hospitals.shared / each.place for each in (earlier, finished))
    if of == "nobody":
        (now / RESULT).write_bytes(made_up(hospitals).record.to_json())
    else:
        for name in (INVITATION, RESULT):
            (now / name).write_bytes((before / name).read_bytes())
    with pytest.raises(ExchangeError, match="its result is not there"):
        hospitals.running().step(hospitals.clock)


def test_one_run_for_all_spellings_of_a_folder(hospitals, monkeypatch):
    """Otherwise all sites pay twice; nor is a name taken for that of another place."""
    monkeypatch.chdir(hospitals.folder)
    place = hospitals.running().step(hospitals.clock).place
    link = hospitals.folder / "link"
    link.symlink_to(hospitals.shared)
    for spelled in ("shared", "./shared/", f"{link}", f"{hospitals.shared}/../shared"):
        hospitals.shared = spelled
        assert hospitals.running().step(hospitals.clock).place == place
    elsewhere = hospitals.folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    hospitals.shared = "shared"
    assert hospitals.running().step(hospitals.clock).place != place
