"""The commands of whoever approves of a site's evaluations."""

import stat

import commands
import pytest
from consortium import COORDINATOR, Consortium
from exchange import EXACT, NAMES, NOISY, make_world

from fedgauge.keys import SigningKey, key_to_text
from fedgauge.privacy.belief import chance
from fedgauge.secagg import Stage
from fedgauge.site import Policy
from fedgauge.site.policy import MODELS

A = NAMES[0]


@pytest.fixture
def world(tmp_path):
    """Three sites with an invitation, of which the first has an officer."""
    world = make_world(tmp_path, NAMES[:3], NOISY)
    run("site", "approver", "officer", tmp_path / "officer.key", "--site", world.site_file(A))
    world.start(world.run, NOISY)
    return world


def run(*arguments):
    done = commands.run(*arguments, columns=200)
    assert done.exit_code == 0, done.output
    return done.stdout


def review(world):
    return run(*world.arguments(A, "review"))


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_approver_gets_a_key_file_of_its_own(tmp_path):
    sites = Consortium.make(tmp_path, NAMES[:3])
    file, key = sites.site_file(A), tmp_path / "officer.key"
    told = run("site", "approver", "officer", key, "--site", file)
    assert told.splitlines() == [
        f"Made {key}; officer approves of evaluations for {file}",
        "The key is officer's alone and has no password: whoever copies it approves. Take it "
        "away; bring it to approve.",
    ]
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    public = SigningKey.load(key).public
    assert sites.site(A).approvers == {public: "officer"}
    (line,) = [each for each in run("site", "show", "--site", file).splitlines() if "Appr" in each]
    assert line.split() == ["Approver", "officer", key_to_text(public)]


@pytest.mark.parametrize("name", ["officer", "second"])
def test_a_key_file_is_never_overwritten(world, name):
    """Nor made where the site file would not be valid."""
    key, before = world.folder / "officer.key", files(world.folder)
    again = ["site", "approver", name, key, "--site", world.site_file(A)]
    commands.complaint(commands.run(*again))
    assert files(world.folder) == before
    other = ["site", "approver", "officer", world.folder / "x.key", "--site", world.site_file(A)]
    assert "comes twice" in commands.complaint(commands.run(*other))
    assert files(world.folder) == before


def test_an_approver_with_a_key_made_elsewhere(world):
    key = SigningKey.generate().public
    trust = ["site", "trust", "second", key_to_text(key), "--approver"]
    both = commands.run(*trust, "--coordinator", "--site", world.site_file(A))
    assert "Choose one of both" in commands.complaint(both)
    told = run(*trust, "--site", world.site_file(A))
    assert told == f"second approves of evaluations for {world.site_file(A)}\n"
    assert world.site(A).approvers[key] == "second"


def test_review_tells_all_and_changes_nothing(world):
    world.site(A).ledger.entries()  # made when first looked at
    before = files(world.folder)
    told = review(world)
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
    assert (
        "Which file and which model's scores stand behind that name, the operator chooses" in told
    )
    evaluation = world.exchange(world.run).invitation().session.hex()[:32]
    assert told.endswith(
        f"To approve:\n  fedgauge exchange approve {world.run} --evaluation {evaluation} "
        f"--key officer.key --site {world.site_file(A)}\n"
    )
    assert files(world.folder) == before


def test_approve_then_join(world):
    """As the officer and the operator do it, with the command that the review printed."""
    joined = commands.run(*world.arguments(A, "join"), columns=200)
    assert "no approver has signed this evaluation" in commands.complaint(joined)
    reviewed = review(world)
    printed = reviewed.splitlines()[-1].split()[1:]
    printed[printed.index("officer.key")] = str(world.folder / "officer.key")
    told = run(*printed)
    session = world.exchange(world.run).invitation().session
    delta = chance(NOISY.statement("enforced").delta)
    assert told.startswith(f"Approved evaluation {session.hex()[:32]}, kept in {world.folder}")
    assert told.splitlines()[1:] == [
        f"  plan {NOISY.digest[:32]}",
        f"  {reviewed.splitlines()[0]}",
        f"  on stroke-2026, at a cost of epsilon 1, delta {delta}",
    ]
    again = review(world)
    assert "Approved by officer." in again
    assert "To approve" not in again
    run(*world.arguments(A, "join"))
    again = review(world)
    assert "This evaluation is in it." in again
    assert "How far it is\n  This site joined on " in again
    assert f"nothing yet; set aside: epsilon 1, delta {delta}.\n\nThe site file\n  Allows" in again
    rows = run("site", "log", "--csv", "-", "--site", world.site_file(A)).splitlines()
    assert rows[1].split(",")[5] == "officer"
    head, row = (each.split() for each in run("site", "log", *rows_of(world)).splitlines())
    assert (head[4], row[4]) == ("approver", "officer")


def rows_of(world):
    return "--site", world.site_file(A)


def approve(world, evaluation=None):
    evaluation = evaluation or world.exchange(world.run).invitation().session.hex()
    key = world.folder / "officer.key"
    return world.arguments(A, "approve", "--key", key, "--evaluation", evaluation)


def test_what_was_reviewed_is_named_whole(world):
    """Not left out, and not by so few digits that another one is found that has them too."""
    without = commands.run(*world.arguments(A, "approve", "--key", world.folder / "officer.key"))
    assert (without.exit_code, "--evaluation" in without.output) == (2, True)
    session = world.exchange(world.run).invitation().session.hex()
    told = commands.complaint(commands.run(*approve(world, session[:31]), columns=200))
    assert "the first 32 digits" in told
    assert "Approval\n  None yet." in review(world)
    run(*approve(world, session[:32]))


def test_the_log_shortens_an_approver_who_is_no_longer_one(world):
    key = SigningKey.load(world.folder / "officer.key").public
    run(*approve(world))
    run(*world.arguments(A, "join"))
    path = world.site_file(A)
    path.write_text(path.read_text().split("[[approvers]]\nname")[0])
    _, row = (each.split() for each in run("site", "log", *rows_of(world)).splitlines())
    assert row[4] == key_to_text(key)[:16]


def test_an_evaluation_that_is_over_is_not_refused(world):
    """Its review frightens nobody, and asks for no signature."""
    run(*approve(world))
    world.play(world.run, dict.fromkeys(NAMES[:3]), until=Stage.MASK)
    told = review(world)
    assert "This site counted on " in told
    assert "It has not opened the sum yet.\n\nThe site file\n  Allows it." in told
    world.play(world.run, dict.fromkeys(NAMES[:3]), since=Stage.AGREE)
    told = review(world)
    (time,) = (each.time for each in world.site(A).ledger.entries() if each.kind == "commit")
    delta = chance(NOISY.statement("enforced").delta)
    assert (
        f"This evaluation is over here: counted on {time:%Y-%m-%d %H:%M} UTC, cost epsilon 1, "
        f"delta {delta}.\n\nApproval\n  Approved by officer.\n"
    ) in told
    for words in ("Refuses", "in the ledger already", "To approve"):
        assert words not in told
    assert "is finished" in commands.complaint(commands.run(*approve(world)), code=1)


def test_an_evaluation_that_was_abandoned_is_not_refused(world):
    run(*approve(world))
    run(*world.arguments(A, "join"))
    run(*world.arguments(A, "abandon"))
    told = review(world)
    assert "This evaluation is over here: abandoned on " in told
    assert " UTC, nothing spent.\n\nApproval\n" in told
    for words in ("Refuses", "is in it", "After this", "To approve"):
        assert words not in told


def test_an_approval_that_does_not_hold_is_shown_as_none(world):
    run(*approve(world))
    run("site", "dataset", "other", "--site", world.site_file(A))
    told = review(world)
    assert "Approval\n  None: what officer approved is not this evaluation on this dataset" in told
    assert "To approve" in told


def test_what_is_refused_is_shown_with_its_reason(world):
    path = world.site_file(A)
    path.write_text(path.read_text().replace("max_epsilon = 1.0", "max_epsilon = 0.5"))
    told = review(world)
    assert "Refuses it: the plan costs epsilon 1.0, this site allows 0.5 (max_epsilon)." in told
    assert f"Plan {NOISY.digest[:32]}" in told
    assert "To approve" not in told


def test_a_used_up_budget_is_shown(world):
    path = world.site_file(A)
    path.write_text(path.read_text().replace("budget_epsilon = 10.0", "budget_epsilon = 0.5"))
    assert "Refuses it: the privacy budget of stroke-2026" in review(world)


def test_exact_sums_are_counted(tmp_path):
    world = make_world(tmp_path, NAMES[:3], EXACT, policy=Policy(models=MODELS, min_cell=0))
    world.start(world.run, EXACT)
    told = review(world)
    assert "Exact sums on stroke-2026: 0. Limit: 3. After this evaluation: 1." in told
    assert "None is wanted: the site file lists no approvers." in told
    run(*world.arguments(A, "join"))
    told = review(world)
    assert "Exact sums on stroke-2026: 1. Limit: 3. This evaluation is in it." in told
    assert "It has counted nothing yet; set aside: one exact sum." in told
