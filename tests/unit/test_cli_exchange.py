"""What commands read of an exchange's files: an invitation before joining, a site's text file."""

import json
import stat

import commands
import pytest
from consortium import COORDINATOR, NAMES, Consortium
from exchange import EXACT, NOISY, make_world

from fedgauge.engines.exchange import load_invitation
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.plan.explain import explain
from fedgauge.privacy.models import chance
from fedgauge.secagg import Invitation, Stage
from fedgauge.site import Policy
from fedgauge.site.policy import MODELS

A = NAMES[0]


@pytest.fixture
def world(tmp_path):
    world = make_world(tmp_path, NAMES[:3], NOISY)
    world.start(world.run, NOISY)
    return world


def run(*arguments):
    return commands.done(commands.run(*arguments, columns=200))


def test_an_invitation_is_explained_and_what_is_none_is_not(world, tmp_path):
    told = run("explain", world.run / "invitation.fgx")
    assert f"The holder of the key {key_to_text(world.keys[COORDINATOR])}" in told
    for name in world.names:
        assert f"  {key_to_text(world.keys[name])}\n" in told
    assert explain(NOISY) in told
    assert load_invitation(world.run / "invitation.fgx").session.hex()[:16] in told
    assert "None travels: each site brings its scores" in told
    assert "Only that the holder of that key signed this" in told
    assert "`fedgauge exchange review`" in told
    asked = load_invitation(world.run / "invitation.fgx")
    key, digest = world.site(COORDINATOR).key, bytes(range(32))
    made = Invitation.made(NOISY, asked.members, key, asked.run, asked.graph, model=digest)
    path = tmp_path / "with-model.fgx"
    path.write_bytes(made.data)
    assert f"its digest is {digest.hex()}" in run("explain", path)
    world.answer(world.run, A, Stage.ADVERTISE)
    whole = (world.run / "invitation.fgx").read_bytes()
    forged = world.run / "forged.fgx"
    forged.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    for path in (world.reply(Stage.ADVERTISE), forged, world.run / "absent.fgx"):
        told = commands.complaint(commands.run("explain", path, columns=200), code=1)
        assert str(path) in told


def test_a_site_joins_and_submits_a_file_of_its_own_manner(world):
    """Semicolons and decimal commas: the counts are those of the usual file."""
    usual = (world.folder / f"{A}.csv").read_text()
    file = world.folder / f"{A}.csv"
    file.write_text(usual.replace(",", ";").replace(".", ","))
    refused = commands.run(*world.arguments(A, "join"), columns=200)
    assert "(--separator)" in commands.complaint(refused)
    written = ["--separator", ";", "--decimal", ","]
    run(*world.arguments(A, "join", *written))
    assert (world.named(A).separator, world.named(A).decimal) == (";", ",")
    for name in world.names[1:]:
        run(*world.arguments(name, "join"))
    for name in (COORDINATOR, *world.names, COORDINATOR):
        run(*world.arguments(name, "advance" if name == COORDINATOR else "share"))
    named = [file, "--label", "y", "--score", "p"]
    other = commands.run(*world.arguments(A, "submit", *named), columns=200)
    assert "this site joined with" in commands.complaint(other, code=1)
    alone = commands.run(*world.arguments(A, "submit", *written), columns=200)
    assert "there are columns but no file" in commands.complaint(alone)
    result = commands.worked(*world.arguments(A, "submit", *named, *written), columns=200)
    assert result.stderr == ""  # no row was odd


def test_rows_named_by_earlier_versions_are_understood(world):
    """A note that says nothing of separators is one of a usual file, and is still written so."""
    run(*world.arguments(A, "join"))
    (note,) = (world.folder / A / "sessions").glob("*.note")
    assert b"separator" not in note.read_bytes()
    assert b"decimal" not in note.read_bytes()
    assert world.named(A) == world.rows(A)


@pytest.fixture
def asked(world, tmp_path):
    """As `world`; the first site has an officer."""
    told_by("site", "approver", "officer", tmp_path / "officer.key", "--site", world.site_file(A))
    return world


def told_by(*arguments):
    return commands.worked(*arguments, columns=200).stdout


def review(asked):
    return told_by(*asked.arguments(A, "review"))


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_approver_gets_a_key_file_of_its_own(tmp_path):
    sites = Consortium.make(tmp_path, NAMES[:3])
    file, key = sites.site_file(A), tmp_path / "officer.key"
    told = told_by("site", "approver", "officer", key, "--site", file)
    assert told.splitlines() == [
        f"Made {key}; officer approves of evaluations for {file}",
        "The key belongs to officer alone and has no password: anyone with a copy can approve. "
        "Keep it away from this machine, and bring it only to approve.",
    ]
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    public = SigningKey.load(key).public
    assert sites.site(A).approvers == {public: "officer"}
    (line,) = [
        each for each in told_by("site", "show", "--site", file).splitlines() if "Appr" in each
    ]
    assert line.split() == ["Approver", "officer", key_to_text(public)]


@pytest.mark.parametrize("name", ["officer", "second"])
def test_a_key_file_is_never_overwritten(asked, name):
    before, site = files(asked.folder), ["--site", asked.site_file(A)]
    commands.complaint(commands.run("site", "approver", name, asked.folder / "officer.key", *site))
    assert files(asked.folder) == before
    other = commands.run("site", "approver", "officer", asked.folder / "x.key", *site)
    assert "comes twice" in commands.complaint(other)
    assert files(asked.folder) == before


def test_an_approver_with_a_key_made_elsewhere(asked):
    key, site = SigningKey.generate().public, ["--site", asked.site_file(A)]
    trust = ["site", "trust", "second", key_to_text(key), "--approver"]
    both = commands.run(*trust, "--coordinator", *site)
    assert "Choose one of the two" in commands.complaint(both)
    told = told_by(*trust, *site)
    assert told == f"second approves of evaluations for {asked.site_file(A)}\n"
    assert asked.site(A).approvers[key] == "second"


def test_review_tells_all_and_changes_nothing(asked):
    asked.site(A).ledger.entries()  # made when first looked at
    before = files(asked.folder)
    told = review(asked)
    assert f"Asked for by {COORDINATOR}, of 3 sites: " in told
    assert all(name in told for name in NAMES[:3])
    assert f"Plan {NOISY.digest[:32]}" in told
    delta = chance(NOISY.statement("enforced").delta)
    assert (
        "Spent or reserved on stroke-2026: epsilon 0, delta 0. Limit: epsilon 10, delta 1 in "
        f"100,000. After this evaluation: epsilon 1, delta {delta}."
    ) in told
    assert f"limit fails with a chance of at most about {delta} (delta)" in told
    assert "The site file\n  Allows it." in told
    assert "Approval\n  None yet.\n  You approve the plan, the sites, the coordinator" in told
    assert "The operator chooses" in told
    evaluation = asked.exchange(asked.run).invitation().session.hex()[:32]
    assert told.endswith(
        f"To approve:\n  fedgauge exchange approve {asked.run} --evaluation {evaluation} "
        f"--key officer.key --site {asked.site_file(A)}\n"
    )
    assert files(asked.folder) == before


def test_approve_then_join(asked):
    """As the officer and the operator do it, with the command that the review printed."""
    joined = commands.run(*asked.arguments(A, "join"), columns=200)
    assert "no approver has signed this evaluation" in commands.complaint(joined)
    reviewed = review(asked)
    printed = reviewed.splitlines()[-1].split()[1:]
    printed[printed.index("officer.key")] = str(asked.folder / "officer.key")
    told = told_by(*printed)
    session = asked.exchange(asked.run).invitation().session
    delta = chance(NOISY.statement("enforced").delta)
    assert told.startswith(f"Approved evaluation {session.hex()[:32]}, kept in {asked.folder}")
    assert told.splitlines()[1:] == [
        f"  plan {NOISY.digest[:32]}",
        f"  {reviewed.splitlines()[0]}",
        f"  on stroke-2026, at a cost of epsilon 1, delta {delta}",
    ]
    again = review(asked)
    assert "Approved by officer." in again
    assert "To approve" not in again
    told_by(*asked.arguments(A, "join"))
    again = review(asked)
    assert "This evaluation is in it." in again
    assert "How far it is\n  This site joined on " in again
    assert f"nothing yet. Reserved: epsilon 1, delta {delta}.\n\nThe site file\n  Allows" in again
    rows = told_by("site", "log", "--csv", "-", "--site", asked.site_file(A)).splitlines()
    assert rows[1].split(",")[5] == "officer"
    head, row = log_of(asked)
    assert (head[4], row[4]) == ("approver", "officer")


def log_of(asked):
    told = told_by("site", "log", "--site", asked.site_file(A))
    return [line.split() for line in told.splitlines()]


def approve(asked, evaluation=None):
    evaluation = evaluation or asked.exchange(asked.run).invitation().session.hex()
    key = asked.folder / "officer.key"
    return asked.arguments(A, "approve", "--key", key, "--evaluation", evaluation)


def test_what_was_reviewed_is_named_whole(asked):
    """Not left out, and not by so few digits that another one is found that has them too."""
    without = commands.run(*asked.arguments(A, "approve", "--key", asked.folder / "officer.key"))
    assert (without.exit_code, "--evaluation" in without.output) == (2, True)
    session = asked.exchange(asked.run).invitation().session.hex()
    told = commands.complaint(commands.run(*approve(asked, session[:31]), columns=200))
    assert "the first 32 digits" in told
    assert "Approval\n  None yet." in review(asked)
    told_by(*approve(asked, session[:32]))


def test_the_log_shortens_an_approver_who_is_no_longer_one(asked):
    key = SigningKey.load(asked.folder / "officer.key").public
    told_by(*approve(asked))
    told_by(*asked.arguments(A, "join"))
    path = asked.site_file(A)
    path.write_text(path.read_text().split("[[approvers]]\nname")[0])
    _, row = log_of(asked)
    assert row[4] == key_to_text(key)[:16]


def test_an_evaluation_that_is_over_is_not_refused(asked):
    """Its review frightens nobody, and asks for no signature."""
    told_by(*approve(asked))
    asked.play(asked.run, dict.fromkeys(NAMES[:3]), until=Stage.MASK)
    told = review(asked)
    assert "This site counted on " in told
    assert "It has not opened the sum yet.\n\nThe site file\n  Allows it." in told
    asked.play(asked.run, dict.fromkeys(NAMES[:3]), since=Stage.AGREE)
    told = review(asked)
    (time,) = (each.time for each in asked.site(A).ledger.entries() if each.kind == "commit")
    delta = chance(NOISY.statement("enforced").delta)
    assert (
        f"This evaluation is over here: counted on {time:%Y-%m-%d %H:%M} UTC, cost epsilon 1, "
        f"delta {delta}.\n\nApproval\n  Approved by officer.\n"
    ) in told
    for words in ("Refuses", "in the ledger already", "To approve"):
        assert words not in told
    assert "is finished" in commands.complaint(commands.run(*approve(asked)), code=1)


def test_an_evaluation_that_was_abandoned_is_not_refused(asked):
    told_by(*approve(asked))
    told_by(*asked.arguments(A, "join"))
    told_by(*asked.arguments(A, "abandon"))
    told = review(asked)
    assert "This evaluation is over here: abandoned on " in told
    assert " UTC, nothing spent.\n\nApproval\n" in told
    for words in ("Refuses", "is in it", "After this", "To approve"):
        assert words not in told


def test_an_approval_that_does_not_hold_is_shown_as_none(asked):
    told_by(*approve(asked))
    told_by("site", "dataset", "other", "--site", asked.site_file(A))
    told = review(asked)
    assert "Approval\n  None: what officer approved is not this evaluation on this dataset" in told
    assert "To approve" in told


def test_what_is_refused_is_shown_with_its_reason(asked):
    path = asked.site_file(A)
    text = path.read_text()
    path.write_text(text.replace("budget_epsilon = 10.0", "budget_epsilon = 0.5"))
    assert "Refuses it: the privacy budget of stroke-2026" in review(asked)
    path.write_text(text.replace("max_epsilon = 1.0", "max_epsilon = 0.5"))
    told = review(asked)
    assert "Refuses it: the plan costs epsilon 1.0, this site allows 0.5 (max_epsilon)." in told
    assert f"Plan {NOISY.digest[:32]}" in told
    assert "To approve" not in told


def test_exact_sums_are_counted(tmp_path):
    world = make_world(tmp_path, NAMES[:3], EXACT, policy=Policy(models=MODELS, min_cell=0))
    world.start(world.run, EXACT)
    told = review(world)
    assert "Exact sums on stroke-2026: 0. Limit: 3. After this evaluation: 1." in told
    assert "No approval is needed: the site file lists no approvers." in told
    told_by(*world.arguments(A, "join"))
    told = review(world)
    assert "Exact sums on stroke-2026: 1. Limit: 3. This evaluation is in it." in told
    assert "It has counted nothing yet. Reserved: one exact sum." in told


def test_status_as_json_says_who_is_awaited_and_where_the_result_is(world):
    def status(name=A):
        told = run("exchange", "status", world.run, "--json", "--site", world.site_file(name))
        assert told.count("\n") == 1
        return json.loads(told)

    begun = status()
    session = load_invitation(world.run / "invitation.fgx").session.hex()
    assert begun == {
        "evaluation": session[:8],
        "plan": NOISY.digest[:8],
        "folder": str(world.run),
        "second": False,
        "round": 1,
        "step": "join",
        "answered": [],
        "missing": world.names,
        "waits_for": "sites",
        "paid": 0,
        "result": None,
        "set_aside": {},
        "faults": [],
        "proved": False,
    }
    (world.run / "1-x.reply.fgx").write_bytes(b"x")
    for name in world.names:
        world.answer(world.run, name, Stage.ADVERTISE)
    answered = status(COORDINATOR)
    assert (answered["answered"], answered["missing"]) == (world.names, [])
    assert answered["waits_for"] == "coordinator"
    assert [*answered["set_aside"]] == ["1-x.reply.fgx"]
    world.advance(world.run)
    world.finish(Stage.SHARE)
    over = status()
    assert (over["result"], over["waits_for"]) == (str(world.run / "result.json"), None)
    assert over["paid"] == 3
