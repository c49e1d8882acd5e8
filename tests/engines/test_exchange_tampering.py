"""The file exchange where files are tampered with on their way."""

import os
import shutil
import signal
import socket
import stat
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path

import msgspec
import pytest
from commands import run as run_here
from consortium import COORDINATOR, A, B, C
from envelopes import sealed
from exchange import (
    CLIENTS,
    EXACT,
    World,
    assert_right,
    copied,
    every_stage,
    later_stages,
    make_world,
)
from refusals import refused
from users import ALICE, MALLORY, as_user, needs_root

import fedgauge as fg
from fedgauge.doctor import examine
from fedgauge.engines.coordinator import Coordinator
from fedgauge.engines.participant import STEPS
from fedgauge.keys import SigningKey
from fedgauge.protocol import Envelope
from fedgauge.secagg import Stage
from fedgauge.secagg.evidence import Dispute, File, Signed

pytestmark = pytest.mark.usefixtures("few_redraws")


def flip(path, _):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def swap_site(path, _):
    """The file of another site in its place."""
    stage, _, *name = path.name.replace(A, B).split(".")
    (other,) = path.parent.glob(".".join([stage, "*", *name]))
    path.write_bytes(other.read_bytes())


def make_folder(path, _):
    path.unlink()
    path.mkdir()


def make_fifo(path, _):
    path.unlink()
    os.mkfifo(path)


TAMPERING = {
    "flip": flip,
    "cut": lambda path, _: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path, _: path.write_bytes(b""),
    "swap_site": swap_site,
    # The file of the same name from another evaluation of the same plan by the same sites.
    "swap_session": lambda path, other: path.write_bytes((other / path.name).read_bytes()),
    "make_folder": make_folder,
    "make_fifo": make_fifo,
    "remove": lambda path, _: path.unlink(),
}
tampering = pytest.mark.parametrize("tamper", TAMPERING)


@pytest.fixture
def no_hanging():
    """Whoever opens a FIFO waits for ever; fail instead."""

    def fail(*_):
        raise AssertionError("reading a file took too long")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def earlier_run(exact_steps):
    """The run folder of an earlier evaluation, which these sites have abandoned since."""
    with copied(exact_steps[Stage.ADVERTISE, "start"]) as world:
        world.start(world.run, EXACT)
        world.finish()
        yield world.run


@every_stage
@tampering
@pytest.mark.usefixtures("no_hanging")
def test_tampered_reply(exact_steps, earlier_run, stage, tamper):
    """It is set aside, and the site that answers again restores it."""
    with copied(exact_steps[stage, "advance"]) as world:
        path, before = world.reply(stage), world.published()
        TAMPERING[tamper](path, earlier_run)
        progress = world.exchange(world.run).progress()
        assert (progress.answered, progress.missing) == ((B, C), (A,))
        nothing = tamper in ("remove", "swap_site")  # the other site's reply is one, if misnamed
        assert list(progress.set_aside) == ([] if nothing else [path.name])
        refused(fg.ExchangeError, f"waits for {A} to {STEPS[stage]}", world.advance, world.run)
        again = world.answer(world.run, A, stage, CLIENTS[A])
        if path.is_dir():  # it stays where it is, and the reply goes beside it
            assert again.read_bytes() == before[path.name]
        else:
            assert world.published() == before
        result = world.advance(world.run)
        assert_right(world.finish(stage + 1) or result, world)


@later_stages
@tampering
@pytest.mark.usefixtures("no_hanging")
def test_tampered_request(exact_steps, earlier_run, stage, tamper):
    """The site refuses it and stays as it was; the coordinator's next `advance` restores it."""
    with copied(exact_steps[stage, "answer"]) as world:
        path, before, state = world.request(stage), world.published(), world.state().read_bytes()
        TAMPERING[tamper](path, earlier_run)
        with pytest.raises((fg.ProtocolError, fg.ExchangeError)):
            world.answer(world.run, A, stage, CLIENTS[A])
        assert world.state().read_bytes() == state
        assert not world.reply(stage).exists()
        refused(fg.ExchangeError, f"waits for {A}", world.advance, world.run)
        if not path.is_dir():
            assert world.published() == before
        world.answer(world.run, A, stage, CLIENTS[A])
        result = world.advance(world.run)
        assert_right(world.finish(stage + 1) or result, world)


@pytest.mark.parametrize("tamper", [kind for kind in TAMPERING if "swap" not in kind])
@pytest.mark.usefixtures("no_hanging")
def test_tampered_invitation(exact_steps, tamper):
    """Sites refuse it; the coordinator's next `advance` restores it."""
    with copied(exact_steps[Stage.ADVERTISE, "answer"]) as world:
        path, before = world.request(Stage.ADVERTISE), world.published()
        TAMPERING[tamper](path, None)
        for step in (
            lambda: world.answer(world.run, A, Stage.ADVERTISE),
            lambda: world.exchange(world.run).progress(),
        ):
            with pytest.raises((fg.ProtocolError, fg.ExchangeError)):
                step()
        assert world.entries(A) == []
        assert not world.reply(Stage.ADVERTISE).exists()
        if path.is_dir():
            with pytest.raises(fg.ExchangeError, match=f"a folder is in its place. Remove {path}"):
                world.advance(world.run)
            path.rmdir()
        refused(fg.ExchangeError, f"waits for {A}", world.advance, world.run)
        assert world.published() == before
        world.answer(world.run, A, Stage.ADVERTISE)
        world.advance(world.run)
        assert_right(world.finish(Stage.SHARE), world)


@later_stages
def test_a_lost_invitation_is_written_again_at_every_stage(exact_steps, stage):
    with copied(exact_steps[stage, "answer"]) as world:
        path, before = world.request(Stage.ADVERTISE), world.published()
        path.unlink()
        with pytest.raises(fg.ExchangeError, match=r"again with `fedgauge exchange advance`"):
            world.answer(world.run, A, stage, CLIENTS[A])
        refused(fg.ExchangeError, "waits for", world.advance, world.run)
        assert world.published() == before
        world.answer(world.run, A, stage, CLIENTS[A])
        result = world.advance(world.run)
        assert_right(world.finish(stage + 1) or result, world)


def test_which_of_several_invitations_was_lost(exact_steps):
    """Files beside it say so; where there are none, the coordinator does."""
    with copied(exact_steps[Stage.ADVERTISE, "start"]) as world:
        runs = [world.folder / name for name in ("one", "two")]
        sessions = [world.start(run, EXACT).hex() for run in runs]
        world.answer(runs[0], B, Stage.ADVERTISE)
        kept = [(run / "invitation.fgx").read_bytes() for run in runs]
        for run in runs:
            (run / "invitation.fgx").unlink()
        refused(fg.ExchangeError, "waits for", world.advance, runs[0])
        with pytest.raises(fg.ExchangeError, match="--evaluation") as told:
            world.advance(runs[1])
        assert all(session[:8] in str(told.value) for session in sessions)
        assert not list(runs[1].iterdir())
        with pytest.raises(fg.ExchangeError, match="there is no invitation"):
            world.coordinator(runs[1]).advance(evaluation="nothing")
        with pytest.raises(fg.ExchangeError, match="waits for"):
            world.coordinator(runs[1]).advance(evaluation=sessions[1][:8])
        assert [(run / "invitation.fgx").read_bytes() for run in runs] == kept


def test_an_invitation_is_not_written_into_the_folder_of_another_evaluation(exact_steps):
    with copied(exact_steps[Stage.ADVERTISE, "start"]) as world:
        other, mine = world.folder / "other", world.folder / "mine"
        world.start(other, EXACT)
        world.answer(other, B, Stage.ADVERTISE)
        world.coordinator(other).abandon()
        (other / "invitation.fgx").unlink()
        world.start(mine, EXACT)
        refused(fg.ExchangeError, "there is no invitation", world.advance, other)
        assert not (other / "invitation.fgx").exists()


@every_stage
def test_forged_reply_beside_the_real_one(exact_steps, stage):
    """Whoever can write into the folder cannot speak for a site, nor drown its voice."""
    with copied(exact_steps[stage, "advance"]) as world:
        real = Envelope.from_bytes(world.reply(stage).read_bytes())
        (world.run / f"{stage:d}-!.reply.fgx").write_bytes(forged(real))
        (world.run / f"{stage:d}-~.reply.fgx").write_bytes(forged(real))
        assert len(world.exchange(world.run).progress().set_aside) == 2
        result = world.advance(world.run)
        assert_right(world.finish(stage + 1) or result, world)


@later_stages
def test_forged_request_beside_the_real_one(exact_steps, stage):
    """Whoever can write into the folder cannot keep a site from the coordinator's request."""
    with copied(exact_steps[stage, "answer"]) as world:
        real = Envelope.from_bytes(world.request(stage).read_bytes())
        (world.run / f"{stage:d}-!.request.fgx").write_bytes(forged(real))
        later = msgspec.structs.replace(real, stage=int(Stage.OPEN))
        (world.run / "5-reveal.x.request.fgx").write_bytes(forged(later))
        assert world.exchange(world.run, B).progress().stage == stage
        world.answer(world.run, A, stage, CLIENTS[A])
        result = world.advance(world.run)
        assert_right(world.finish(stage + 1) or result, world)


def forged(envelope):
    """The same message signed by nobody who matters."""
    said = msgspec.structs.astuple(envelope)[1:-1]
    return sealed(SigningKey.generate(), *said).to_bytes()


@every_stage
@pytest.mark.parametrize("who", [A, COORDINATOR])
def test_link_in_the_run_folder_is_not_followed(exact_steps, stage, who):
    """Others may write into the folder: a link there must not lead a reply to a private file."""
    step = "advance" if who == COORDINATOR else "answer"
    with copied(exact_steps[stage, step]) as world:
        victim = world.folder / who / "notes.txt"
        victim.write_text("mine")
        if who == A:
            world.reply(stage).symlink_to(victim)
        elif stage == Stage.OPEN:
            (world.run / "result.json").symlink_to(victim)
        else:
            world.request(Stage(stage + 1)).symlink_to(victim)
        with suppress(fg.FedgaugeError):  # to refuse is right, too
            if who == A:
                world.answer(world.run, A, stage, CLIENTS[A])
            else:
                world.advance(world.run)
        assert victim.read_text() == "mine"


def lie_full_folder(path, _):
    (path / "in").mkdir(parents=True)
    (path / "in" / "it").touch()


def lie_device(path, _):
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("no devices are made here")


def lie_socket(path, _):
    with socket.socket(socket.AF_UNIX) as server, ExitStack() as back:
        back.callback(os.chdir, os.getcwd())
        os.chdir(path.parent)  # names of sockets are short
        server.bind(path.name)


LIES = {
    "folder": lambda path, _: path.mkdir(),
    "full_folder": lie_full_folder,
    "link_to_file": lambda path, victim: path.symlink_to(victim),
    "link_to_folder": lambda path, victim: path.symlink_to(victim.parent),
    "link_to_nothing": lambda path, _: path.symlink_to("nothing"),
    "link_to_device": lambda path, _: path.symlink_to("/dev/zero"),
    "device": lie_device,
    "pipe": lambda path, _: os.mkfifo(path),
    "socket": lie_socket,
    "huge_file": lambda path, _: path.touch() or os.truncate(path, 1 << 40),
}
every_lie = pytest.mark.parametrize("lie", LIES.values(), ids=LIES)


@pytest.fixture
def victim(folder):
    (folder / "notes").mkdir()
    path = folder / "notes" / "notes.txt"
    path.write_text("mine")
    yield path
    assert path.read_text() == "mine"
    assert os.listdir(path.parent) == ["notes.txt"]


@every_lie
@pytest.mark.usefixtures("no_hanging")
def test_what_lies_where_files_go_does_not_stop_an_evaluation(exact_steps, victim, lie):
    """Anybody who can write to the shared folder may have put it there before."""
    with copied(exact_steps[Stage.ADVERTISE, "start"]) as world:
        world.start(world.run, EXACT)
        for stage in Stage:
            lie(world.reply(stage), victim)
            if stage > Stage.ADVERTISE:
                lie(world.request(stage), victim)
        lie(world.run / "second", victim)
        for stage in Stage:
            for name in (A, B, C):
                world.answer(world.run, name, stage, CLIENTS[name])
            assert world.exchange(world.run, B).progress().missing == ()
            result = world.advance(world.run)
        assert_right(result, world)


@every_lie
@pytest.mark.usefixtures("no_hanging")
def test_what_lies_where_a_reply_goes_is_named(exact_steps, commands, victim, lie):
    """The site's operator, and who looks at the status, read what to remove."""
    with copied(exact_steps[Stage.ADVERTISE, "answer"]) as world:
        path = world.reply(Stage.ADVERTISE)
        lie(path, victim)
        assert path.name in world.exchange(world.run, B).progress().set_aside or path.is_symlink()
        (done,) = commands({"arguments": world.arguments(A, "join")})
        assert done.code == 0, done.err
        if path.is_dir() and not path.is_symlink():
            assert f"a folder is in its place. Remove {path}" in " ".join(done.err.split())
            (told,) = commands({"arguments": world.arguments(B, "status")})
            assert f"Set aside {path.name}: " in told.out
            assert f"Remove {path}" in told.out
        else:
            assert done.err == ""


@every_lie
@pytest.mark.usefixtures("no_hanging")
def test_what_lies_where_the_result_or_evidence_goes(exact_steps, victim, lie):
    with copied(exact_steps[Stage.OPEN, "advance"]) as world:
        path = world.run / "result.json"
        lie(path, victim)
        assert not world.exchange(world.run).progress().finished
        if path.is_dir() and not path.is_symlink():
            with pytest.raises(fg.ExchangeError, match=f"a folder is in its place. Remove {path}"):
                world.advance(world.run)
            shutil.rmtree(path)
        assert_right(world.advance(world.run), world)
    with copied(exact_steps[Stage.SHARE, "answer"]) as world:
        exchange = world.exchange(world.run)
        path = world.run / "evidence.fgx"
        lie(path, victim)
        assert "Remove" in exchange.progress().set_aside[path.name]
        nothing = Signed(b"", b"")
        found = [Dispute(0, 1, nothing, nothing, b"", None)]
        exchange.write_evidence(exchange.invitation(), File(exchange.invitation().data, found))
        if path.is_dir() and not path.is_symlink():
            assert "Remove" in exchange.progress().set_aside[path.name]
        else:
            assert stat.S_ISREG(path.lstat().st_mode)


@every_lie
@pytest.mark.usefixtures("no_hanging")
def test_what_lies_where_an_invitation_was(exact_steps, commands, victim, lie):
    """Sites refuse it at once, and say what is there."""
    with copied(exact_steps[Stage.ADVERTISE, "answer"]) as world:
        path = world.request(Stage.ADVERTISE)
        path.unlink()
        lie(path, victim)
        verbs = ["check", "join", "review", "status", "share", "submit", "abandon"]
        for verb in verbs:
            like = "join" if verb == "check" else verb
            arguments = ["exchange", verb, *world.arguments(A, like)[2:]]
            (done,) = commands({"arguments": arguments})
            assert (done.code, done.out) == (1, "")
            assert str(path) in done.err
            assert "Traceback" not in done.err


@needs_root
@pytest.mark.parametrize("mode", [0o777, 0o1777], ids=oct)
def test_a_stranger_in_the_shared_folder(home, mode):
    """What belongs to another user can be neither read nor, in a sticky folder, replaced."""

    def begin():
        world = make_world(home / "world", (A, B, C))
        world.start(world.run, EXACT)
        later = [world.request(stage, name) for stage in Stage for name in (A, B, C)]
        return "\n".join(map(str, [world.reply(stage) for stage in Stage] + later))

    run = home / "world" / "run"
    places = {Path(line) for line in as_user(ALICE, begin).splitlines()} - {run / "invitation.fgx"}
    os.chown(run, 0, 0)  # the owner of a sticky folder may replace what others put there
    os.chmod(run, mode)

    def lie():
        for number, path in enumerate(sorted(places)):
            make = (os.mkdir, os.mkfifo, Path.touch)[number % 3]
            make(path)
            path.chmod(0)
        (run / "second").mkdir(mode=0)
        return len(places)

    assert as_user(MALLORY, lie) == "17"

    def play():
        world = World(home / "world", (A, B, C))
        assert_right(world.finish(), world)
        return "right"

    assert as_user(ALICE, play) == "right"


@needs_root
@pytest.mark.parametrize("hidden", ["run", "above", "second"])
def test_a_folder_that_nobody_may_look_into(home, hidden):
    """What the share's owner closed is told, and no traceback."""

    def begin():
        world = make_world(home / "world", (A, B, C))
        world.start(home / "share" / "run", EXACT)
        return "begun"

    import_module("warm")  # Alice need not be allowed to read where Python is
    examine()
    assert as_user(ALICE, begin) == "begun"
    run = home / "share" / "run"
    (run / "second").mkdir()
    closed = {"run": run, "above": run.parent, "second": run / "second"}[hidden]
    os.chown(closed, 0, 0)
    closed.chmod(0)
    codes = []
    for verb in ("status", "share", "abandon", "review"):
        arguments = ["exchange", verb, run, "--site", home / "world" / A / "site.toml"]
        told = as_user(ALICE, lambda arguments=arguments: complaint_of(run_here(*arguments)))
        assert told.startswith(("fedgauge: ", "Usage: ", "0")), told
        codes.append(told)
    assert ("0" in codes) == (hidden == "second")
    finding = as_user(ALICE, lambda: examine(run=run)[-1].state)
    assert finding == ("ok" if hidden == "second" else "mend")


def complaint_of(done):
    """What a command complained of; its code where it did well."""
    return done.stderr.strip() or str(done.exit_code)


def states(world):
    return list((world.folder / COORDINATOR / "sessions").glob("*.server"))


def test_two_that_start_in_one_folder_at_the_same_moment(exact_steps, monkeypatch):
    """Both saw an empty folder; one of them is told, and leaves the other's invitation alone."""
    with copied(exact_steps[Stage.ADVERTISE, "start"]) as world:
        store, sessions = Coordinator._store, []

        def meanwhile(self, server):
            store(self, server)
            if not sessions:
                sessions.append(None)
                sessions[0] = world.start(world.run, EXACT)

        monkeypatch.setattr(Coordinator, "_store", meanwhile)
        refused(fg.ExchangeError, "holds an exchange already", world.start, world.run, EXACT)
        assert world.exchange(world.run).invitation().session == sessions[0]
        assert [path.stem for path in states(world)] == [sessions[0].hex()[:32]]
        assert_right(world.finish(), world)


def test_two_processes_that_start_in_one_folder(exact_steps, commands):
    for _ in range(5):
        with copied(exact_steps[Stage.ADVERTISE, "start"]) as world:
            request = {"arguments": world.arguments(COORDINATOR, "start")}
            done = commands(*[request] * 4)
            assert sorted(each.code for each in done) == [0, 1, 1, 1]
            for each in done:
                assert each.code == 0 or "holds an exchange already" in each.err
            session = world.exchange(world.run).invitation().session
            assert [path.stem for path in states(world)] == [session.hex()[:32]]
            assert_right(world.finish(), world)


def test_a_disk_without_links_to_files(exact_steps, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    with copied(exact_steps[Stage.ADVERTISE, "start"]) as world:
        monkeypatch.setattr(os, "link", refuse)
        world.start(world.run, EXACT)
        refused(fg.ExchangeError, "holds an exchange already", world.start, world.run, EXACT)
        assert_right(world.finish(), world)
