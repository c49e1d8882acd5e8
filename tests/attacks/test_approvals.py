"""Evaluations that nobody at the site agreed to, or that are not the one that the officer read. The
site's file lists an officer without whose signature nothing is joined. The attacker is whoever
operates the site, or gets at its folder, and an approved coordinator: they have the site's own key
and every approval ever given, but not the officer's key."""

import os
import re
import shutil
from dataclasses import replace

import msgspec
import pytest
from consortium import COORDINATOR
from envelopes import sealed
from hostile import VICTIM, Attacker, exact_policy, invite, noisy_plan, small_sites
from refusals import refused

import fedgauge as fg
from fedgauge.engines.exchange import INVITATION
from fedgauge.engines.participant import Delivery, Participant
from fedgauge.engines.review import approve, review
from fedgauge.errors import ExchangeError, FedgaugeError, PlanRefused, SiteError
from fedgauge.keys import SigningKey, key_to_text, verify
from fedgauge.protocol import COORDINATOR as SENDER
from fedgauge.protocol import EVERYONE, session_id
from fedgauge.secagg import Invitation, Stage
from fedgauge.secagg.graph import choose_graph
from fedgauge.secagg.messages import Terms, box_key
from fedgauge.site import add_approver, add_trust
from fedgauge.site.site import approval_path
from fedgauge.site.site import approve as sign

PLAN = noisy_plan(4)


@pytest.fixture
def attack(folder):
    made = Attacker(folder, small_sites(), policy=exact_policy())
    add_approver(made.sites.site_file(VICTIM), "officer", folder / "officer.key")
    return made


@pytest.fixture
def officer(attack):
    return SigningKey.load(attack.folder / "officer.key")


def invitation_of(attack, number):
    return attack.sites.exchange(attack.folder / f"run-{number}", VICTIM).invitation()


def approve_run(attack, officer, number, name=VICTIM):
    return approve_all(attack.sites.site(name), invitation_of(attack, number), officer)


def approve_all(site, invitation, key):
    return approve(site, invitation, key, evaluation=invitation.session.hex())


def refusal(session):
    """Why the victim did not go on, and at which stage."""
    stage, error = session.answer.refusals[VICTIM]
    assert isinstance(error, PlanRefused)
    return stage, str(error)


def test_an_approved_evaluation_runs(attack, officer):
    session = attack.begin(PLAN)
    approve_run(attack, officer, 0)
    assert session.play().result is not None
    reserved = attack.sites.site(VICTIM).ledger.entries()[0]
    assert reserved.asked.approver == officer.public


def test_nothing_is_joined_without_an_approval(attack):
    session = attack.begin(PLAN)
    session.play(Stage.ADVERTISE)
    stage, told = refusal(session)
    assert stage == Stage.ADVERTISE
    assert "no approver has signed" in told
    assert attack.entries() == []


def forge(path, key, claimed):
    """An approval with a signature of somebody else, in the name of whoever is claimed."""
    kept = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode(kept | {"approver": key_to_text(claimed)}))
    assert key.public != claimed


@pytest.mark.parametrize("whose", ["site", "peer", "coordinator", "stranger"])
@pytest.mark.parametrize("lies", [True, False], ids=["in the officer's name", "in their own"])
def test_an_approval_by_somebody_else_is_worth_nothing(attack, officer, whose, lies):
    session = attack.begin(PLAN)
    site = attack.sites.site(VICTIM)
    key = {
        "site": site.key,
        "peer": attack.sites.site("site-1").key,
        "coordinator": attack.sites.site(COORDINATOR).key,
        "stranger": SigningKey.generate(),
    }[whose]
    invitation = invitation_of(attack, 0)
    refused(SiteError, "not an approver's", approve_all, site, invitation, key)
    with_code_of_their_own = replace(site, approvers={key.public: "me"})
    path = sign(with_code_of_their_own, invitation.session, invitation.plan, key)
    if lies:
        forge(path, key, officer.public)
    session.play(Stage.ADVERTISE)
    assert ("is forged" if lies else "not an approver here") in refusal(session)[1]
    assert attack.entries() == []


def test_an_approval_of_another_session_is_worth_nothing(attack, officer):
    """The same plan for the same sites, approved once: the second run is another question."""
    attack.begin(PLAN).play()
    second = attack.begin(PLAN)
    first = approve_run(attack, officer, 0)
    shutil.copy(first, approval_path(attack.sites.site(VICTIM), invitation_of(attack, 1).session))
    second.play(Stage.ADVERTISE)
    assert "not this evaluation" in refusal(second)[1]


def test_an_approval_for_another_dataset_is_worth_nothing(attack, officer):
    session = attack.begin(PLAN)
    approve_run(attack, officer, 0)
    attack.rename(VICTIM, "all-patients")
    session.play(Stage.ADVERTISE)
    assert "on this dataset" in refusal(session)[1]
    assert attack.entries() == []


def test_an_approval_of_another_site_is_worth_nothing(attack, officer):
    """One officer for two hospitals, whose datasets have the same name."""
    other = attack.sites.site_file("site-1")
    add_trust(other, "approver", "officer", key_to_text(officer.public))
    session = attack.begin(PLAN)
    path = approve_run(attack, officer, 0, "site-1")
    mine = approval_path(attack.sites.site(VICTIM), invitation_of(attack, 0).session)
    mine.parent.mkdir(mode=0o700)
    shutil.copy(path, mine)
    session.play(Stage.ADVERTISE)
    assert "site-1" not in session.answer.refusals
    assert "is forged" in refusal(session)[1]


def test_an_approval_at_another_cost_is_worth_nothing(attack, officer, monkeypatch):
    """Signed when accounting said 0.1; what is charged then is what counts."""
    session = attack.begin(PLAN)
    with monkeypatch.context() as cheap:
        cheap.setattr(fg.Site, "cost", lambda *_: fg.site.Cost(0.1, 0.0))
        approve_run(attack, officer, 0)
    session.play(Stage.ADVERTISE)
    assert "at this cost" in refusal(session)[1]


DAMAGED = [b"", b"{}", b"[]", b"\xff" * 5000, b"[" * 100_000, b'{"a":' * 50_000, b"9" * 10_000]
DAMAGED += [b'{"approver":"x"}', b'{"approver":"\xff","signature":"AA"}', b"1e999999", b"a = 9"]


@pytest.mark.parametrize("junk", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_approval_is_none(attack, officer, junk):
    session = attack.begin(PLAN)
    approve_run(attack, officer, 0).write_bytes(junk)
    session.play(Stage.ADVERTISE)
    assert "is damaged" in refusal(session)[1]


def strike_officer(attack):
    path = attack.sites.site_file(VICTIM)
    path.write_text(re.sub(r"\n\[\[approvers\]\]\n.*\n.*\n", "\n", path.read_text()))
    assert not attack.sites.site(VICTIM).approvers


@pytest.mark.parametrize("until", [Stage.SHARE, Stage.MASK], ids=["counts", "confirmation"])
@pytest.mark.parametrize("how", ["deleted", "struck off", "replaced", "both"])
def test_an_approval_that_was_withdrawn_stops_it(attack, officer, until, how):
    """Joined while it was approved; then the approval, or the officer, is gone."""
    session = attack.begin(PLAN)
    path = approve_run(attack, officer, 0)
    session.play(*(stage for stage in Stage if stage <= until))
    assert VICTIM not in session.answer.refusals
    if how in ("deleted", "both"):
        path.unlink()
    if how != "deleted":
        strike_officer(attack)
    if how == "replaced":
        add_approver(attack.sites.site_file(VICTIM), "officer", attack.folder / "new.key")
    before = attack.entries()
    session.play(Stage(until + 1))
    stage, told = refusal(session)
    assert stage == until + 1
    assert ("no approver has signed" if how in ("deleted", "both") else "or no longer") in told
    assert attack.entries() == before
    assert "commit" not in before or until == Stage.MASK


def test_an_officer_who_came_later_is_asked_before_rows_are_counted(attack, officer):
    strike_officer(attack)
    session = attack.begin(PLAN)
    session.play(Stage.ADVERTISE, Stage.SHARE)
    path = attack.sites.site_file(VICTIM)
    add_trust(path, "approver", "officer", key_to_text(officer.public))
    session.play(Stage.MASK)
    assert "no approver has signed" in refusal(session)[1]
    assert attack.entries() == ["reserve"]


def test_an_evaluation_that_was_abandoned_needs_a_new_approval(attack, officer):
    """What is given up is over: the same invitation is not joined again, approved or not."""
    session = attack.begin(PLAN)
    path = approve_run(attack, officer, 0)
    session.play(Stage.ADVERTISE)
    Participant(attack.sites.site(VICTIM)).abandon(invitation_of(attack, 0).session)
    assert not path.exists()
    with pytest.raises(PlanRefused, match="no approver has signed"):
        attack.sites.answer(attack.folder / "run-0", VICTIM, Stage.ADVERTISE)
    refused(fg.LedgerError, "as released", approve_run, attack, officer, 0)


def test_another_invitation_in_place_of_the_reviewed_one_is_not_signed(attack, officer):
    """A coordinator may put a second invitation of its own into the folder after the review."""
    attack.begin(PLAN)
    reviewed = invitation_of(attack, 0)
    attack.begin(noisy_plan(4, bins=64))
    run, other = (attack.folder / f"run-{i}" / "invitation.fgx" for i in range(2))
    shutil.copy(other, run)
    swapped = invitation_of(attack, 0)
    site = attack.sites.site(VICTIM)
    with pytest.raises(ExchangeError, match="another evaluation than the one that was reviewed"):
        approve(site, swapped, officer, evaluation=reviewed.session.hex()[:32])
    assert not approval_path(site, swapped.session).exists()


def test_what_the_site_refuses_is_not_signed(attack, officer):
    """Not what its file refuses, nor what its budget has no room for."""
    path = attack.sites.site_file(VICTIM)
    attack.begin(noisy_plan(4, epsilon=0.5))
    path.write_text(path.read_text().replace("max_epsilon = 1.0", "max_epsilon = 0.1"))
    refused(PlanRefused, "max_epsilon", approve_run, attack, officer, 0)
    path.write_text(path.read_text().replace("max_epsilon = 0.1", "max_epsilon = 1.0"))
    path.write_text(path.read_text().replace("budget_epsilon = 3.0", "budget_epsilon = 0.1"))
    refused(fg.BudgetExceeded, "does not allow this", approve_run, attack, officer, 0)
    assert not list((path.parent / "sessions").glob("*"))
    assert attack.entries() == []


def test_a_stranger_makes_no_officer_read_a_plan(attack):
    path = attack.sites.site_file(VICTIM)
    attack.begin(PLAN)
    path.write_text(re.sub(r"\n\[\[coordinators\]\]\n.*\n.*\n", "\n", path.read_text()))
    seen = review(attack.sites.site(VICTIM), invitation_of(attack, 0))
    assert "the coordinator is not approved here" in seen.refusal
    assert seen.plan is seen.budget is None
    assert seen.coordinator == key_to_text(attack.sites.keys[COORDINATOR])


GAUSSIAN = fg.DistributedDP(1.0, delta=1e-7, noise="discrete-gaussian")


@pytest.mark.parametrize(
    ("plan", "noise"),
    [(PLAN, 1.2), (PLAN, 1e-300), (noisy_plan(4, privacy=GAUSSIAN), 1e300)],
    ids=["too little", "too wide to draw", "too wide to account"],
)
def test_a_promise_that_noise_does_not_keep_is_not_shown(attack, officer, plan, noise):
    """Its words would say epsilon 1."""
    sent = msgspec.structs.replace(plan.final, noise=(noise,))
    invitation = Invitation.made(
        msgspec.structs.replace(plan, rounds=(sent,)),
        [attack.sites.keys[name] for name in attack.clients],
        attack.sites.site(COORDINATOR).key,
        bytes(32),
        choose_graph(4, plan.cohort),
    )
    site = attack.sites.site(VICTIM)
    seen = review(site, invitation)
    assert re.search("noise|wide", seen.refusal)
    assert seen.plan is seen.budget is None
    refused(PlanRefused, r"noise|wide", approve_all, site, invitation, officer)


@pytest.mark.parametrize("whose", ["its own", "a peer's", "a coordinator's"])
def test_a_key_that_signs_something_else_is_no_second_key(attack, whose, officer):
    """Else who operates the site approves of what it joins, or who asks of what it asks."""
    owner = {"its own": VICTIM, "a peer's": "site-1", "a coordinator's": COORDINATOR}[whose]
    path = attack.sites.site_file(VICTIM)
    before = path.read_text()
    with pytest.raises(SiteError, match="has the key of"):
        add_trust(path, "approver", "second", key_to_text(attack.sites.keys[owner]))
    assert path.read_text() == before
    for kind in ("peer", "coordinator"):
        with pytest.raises(SiteError, match="approver 'officer' has the key of"):
            add_trust(attack.sites.site_file(VICTIM), kind, "friend", key_to_text(officer.public))


def test_over_flower_such_a_site_takes_part_in_nothing(attack, officer):
    """Nobody can read and sign while a run waits: not even a signature in time counts."""
    sites = attack.sites
    members = [sites.keys[name] for name in attack.clients]
    server = invite(PLAN, members, sites.site(COORDINATOR).key)
    site = sites.site(VICTIM)
    delivery = Delivery(server.invitation.model, b"\x01" * 32)
    participant = Participant(site, lambda: attack.clients[VICTIM], delivery=delivery)
    sign(site, server.invitation.session, PLAN, officer)
    with pytest.raises(PlanRefused, match=r"while a run waits\. Evaluate by files"):
        participant.answer(server.invitation.data)
    assert attack.entries() == []


def test_local_reports_do_not_pass_by_the_officer(attack):
    axis = fg.Axis.uniform(8, outside="clip")
    plan = fg.EvaluationPlan.for_reports(axis, privacy=fg.LocalDP(1.0))
    with pytest.raises(PlanRefused, match="nobody can approve of local reports"):
        attack.sites.site(VICTIM).judge_reports(plan)


HARMLESS, HARMFUL = noisy_plan(4, 0.1), noisy_plan(4, 1.0)
DIGITS = 8  # as `status` and `approve` show an id; 16, as `review` does, take 2^32 tries


def begins_alike(key, members):
    """Two invitations, to another plan each, whose ids begin with the same digits."""
    graph, seen = choose_graph(len(members), HARMLESS.cohort), {HARMLESS: {}, HARMFUL: {}}
    box, ordered = box_key(key, b""), sorted(members)

    def body(plan, run):
        terms = Terms(
            plan=plan.to_bytes(),
            run=run,
            members=ordered,
            coordinator=key.public,
            degree=graph.degree,
            threshold=graph.threshold,
            model=b"",
            box=box.public,
        )
        return terms.to_bytes()

    place = body(HARMLESS, b"\0" * 32).index(b"\0" * 32)
    starts = {plan: body(plan, bytes(32)) for plan in seen}
    for _ in range(1 << 22):
        for plan, runs in seen.items():
            run, start = os.urandom(32), starts[plan]
            at = place + len(start) - len(starts[HARMLESS])
            digest = session_id(start[:at] + run + start[at + 32 :])[: DIGITS // 2]
            runs[digest] = run
            (other,) = seen.keys() - {plan}
            if digest in seen[other]:
                return [
                    _invitation(key, body(each, seen[each][digest])) for each in (HARMLESS, HARMFUL)
                ]
    pytest.fail("no two ids begin alike")


def _invitation(key, body):
    envelope = sealed(key, session_id(body), 1, SENDER, EVERYONE, body)
    return Invitation(envelope.to_bytes())


def test_what_was_not_reviewed_is_not_signed_though_its_id_begins_alike(attack):
    sites = attack.sites
    read, swapped = begins_alike(
        sites.site(COORDINATOR).key, [sites.keys[name] for name in sites.names]
    )
    assert read.session != swapped.session
    run, site = attack.folder / "run", sites.site(VICTIM)
    run.mkdir()
    (run / INVITATION).write_bytes(read.data)
    seen = review(site, sites.exchange(run, VICTIM).invitation())
    assert seen.plan == HARMLESS
    (run / INVITATION).write_bytes(swapped.data)
    with pytest.raises(FedgaugeError):
        approve(
            site,
            sites.exchange(run, VICTIM).invitation(),
            SigningKey.load(attack.folder / "officer.key"),
            evaluation=read.session.hex()[:DIGITS],
        )


# Points of small order, as public keys: 1, -1, and each again in a second form.
ANYBODYS = [
    b"\1" + bytes(31),
    b"\xec" + b"\xff" * 30 + b"\x7f",
    b"\1" + bytes(30) + b"\x80",
    b"\xee" + b"\xff" * 30 + b"\x7f",
]


@pytest.mark.parametrize("kind", ["approver", "peer", "coordinator"])
@pytest.mark.parametrize("key", ANYBODYS, ids=["one", "minus one", "one again", "p plus one"])
def test_a_key_that_anybody_can_sign_with_is_nobodys(attack, kind, key):
    """Evidence against a member with such a key shows nothing, and its approval is no approval."""
    signatures = [point + bytes(32) for point in ANYBODYS]
    assert any(verify(key, b"%d" % i, each) for each in signatures for i in range(16))
    with pytest.raises(SiteError):
        add_trust(attack.sites.site_file(VICTIM), kind, "anybody", key_to_text(key))
