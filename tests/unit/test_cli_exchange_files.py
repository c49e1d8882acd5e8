"""What commands read of an exchange's files: an invitation before joining, a site's text file."""

import commands
import pytest
from consortium import COORDINATOR
from exchange import NAMES, NOISY, make_world

from fedgauge.engines.exchange import load_invitation
from fedgauge.keys import key_to_text
from fedgauge.plan.explain import explain
from fedgauge.secagg import Invitation, Stage

A = NAMES[0]


@pytest.fixture
def world(tmp_path):
    """Three sites with an invitation."""
    world = make_world(tmp_path, NAMES[:3], NOISY)
    world.start(world.run, NOISY)
    return world


def run(*arguments):
    done = commands.run(*arguments, columns=200)
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    return done.stdout


def test_an_invitation_is_explained(world):
    told = run("explain", world.run / "invitation.fgx")
    assert f"The holder of the key {key_to_text(world.keys[COORDINATOR])}" in told
    for name in world.names:
        assert f"  {key_to_text(world.keys[name])}\n" in told
    assert explain(NOISY) in told
    assert load_invitation(world.run / "invitation.fgx").session.hex()[:16] in told
    assert "None travels: each site brings its scores" in told
    assert "Nothing but that the holder of that key signed this" in told
    assert "`fedgauge exchange review`" in told


def test_an_invitation_names_its_model(world, tmp_path):
    asked = load_invitation(world.run / "invitation.fgx")
    key, digest = world.site(COORDINATOR).key, bytes(range(32))
    made = Invitation.made(NOISY, asked.members, key, asked.run, asked.graph, model=digest)
    path = tmp_path / "with-model.fgx"
    path.write_bytes(made.data)
    assert f"its digest is {digest.hex()}" in run("explain", path)


def test_what_is_no_invitation_is_not_explained(world):
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
    assert "columns are named with a file" in commands.complaint(alone)
    result = commands.run(*world.arguments(A, "submit", *named, *written), columns=200)
    assert result.exit_code == 0
    assert result.stderr == ""  # no row was odd


def test_rows_named_by_earlier_versions_are_understood(world):
    """A note that says nothing of separators is one of a usual file, and is still written so."""
    run(*world.arguments(A, "join"))
    (note,) = (world.folder / A / "sessions").glob("*.note")
    assert b"separator" not in note.read_bytes()
    assert b"decimal" not in note.read_bytes()
    assert world.named(A) == world.rows(A)
