"""The file exchange where files are tampered with on their way."""

import os
import signal
from contextlib import suppress

import msgspec
import pytest
from consortium import COORDINATOR
from exchange import (
    CLIENTS,
    EXACT,
    A,
    B,
    C,
    assert_right,
    copied,
    every_stage,
    later_stages,
)

import fedgauge as fg
from fedgauge.engines.exchange import VERBS
from fedgauge.keys import SigningKey
from fedgauge.protocol import Envelope
from fedgauge.secagg import Stage

pytestmark = pytest.mark.usefixtures("few_redraws")


# Files are tampered with


def flip(path, _):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def cut(path, _):
    path.write_bytes(path.read_bytes()[:-1])


def empty(path, _):
    path.write_bytes(b"")


def swap_site(path, _):
    """The file of another site in its place."""
    stage, _, *name = path.name.replace(A, B).split(".")
    (other,) = path.parent.glob(".".join([stage, "*", *name]))
    path.write_bytes(other.read_bytes())


def swap_session(path, other):
    """The file of the same name from another evaluation of the same plan by the same sites."""
    path.write_bytes((other / path.name).read_bytes())


def make_folder(path, _):
    path.unlink()
    path.mkdir()


def make_fifo(path, _):
    path.unlink()
    os.mkfifo(path)


def remove(path, _):
    path.unlink()


TAMPERING = [flip, cut, empty, swap_site, swap_session, make_folder, make_fifo, remove]
tampering = pytest.mark.parametrize("tamper", TAMPERING, ids=lambda tamper: tamper.__name__)


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
        tamper(path, earlier_run)
        progress = world.exchange(world.run).progress()
        assert (progress.answered, progress.missing) == ((B, C), (A,))
        nothing = tamper in (remove, swap_site)  # the other site's reply is one, if misnamed
        assert list(progress.set_aside) == ([] if nothing else [path.name])
        with pytest.raises(fg.ExchangeError, match=f"waits for {A} to {VERBS[stage]}"):
            world.advance(world.run)
        if path.is_dir() or path.is_fifo():
            with pytest.raises(fg.FedgaugeError, match="it is not a file"):
                world.answer(world.run, A, stage, CLIENTS[A])
            path.rmdir() if path.is_dir() else path.unlink()
        world.answer(world.run, A, stage, CLIENTS[A])
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
        tamper(path, earlier_run)
        with pytest.raises((fg.ProtocolError, fg.ExchangeError)):
            world.answer(world.run, A, stage, CLIENTS[A])
        assert world.state().read_bytes() == state
        assert not world.reply(stage).exists()
        if path.is_dir() or path.is_fifo():
            with pytest.raises(fg.FedgaugeError, match="it is not a file"):
                world.advance(world.run)
            path.rmdir() if path.is_dir() else path.unlink()
        with pytest.raises(fg.ExchangeError, match=f"waits for {A}"):
            world.advance(world.run)
        assert world.published() == before
        world.answer(world.run, A, stage, CLIENTS[A])
        result = world.advance(world.run)
        assert_right(world.finish(stage + 1) or result, world)


@pytest.mark.parametrize("tamper", [flip, cut, empty, make_folder, make_fifo, remove])
@pytest.mark.usefixtures("no_hanging")
def test_tampered_invitation(exact_steps, tamper):
    """Sites refuse it; the coordinator's next `advance` restores it."""
    with copied(exact_steps[Stage.ADVERTISE, "answer"]) as world:
        path, before = world.request(Stage.ADVERTISE), world.published()
        tamper(path, None)
        for step in (
            lambda: world.answer(world.run, A, Stage.ADVERTISE),
            lambda: world.exchange(world.run).progress(),
        ):
            with pytest.raises((fg.ProtocolError, fg.ExchangeError)):
                step()
        assert world.entries(A) == []
        assert not world.reply(Stage.ADVERTISE).exists()
        if path.is_dir() or path.is_fifo():
            with pytest.raises(fg.FedgaugeError, match="it is not a file"):
                world.advance(world.run)
            path.rmdir() if path.is_dir() else path.unlink()
        with pytest.raises(fg.ExchangeError, match=f"waits for {A}"):
            world.advance(world.run)
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
        with pytest.raises(fg.ExchangeError, match="waits for"):
            world.advance(world.run)
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
        with pytest.raises(fg.ExchangeError, match="waits for"):
            world.advance(runs[0])
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
        with pytest.raises(fg.ExchangeError, match="there is no invitation"):
            world.advance(other)
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
        world.answer(world.run, A, stage, CLIENTS[A])
        result = world.advance(world.run)
        assert_right(world.finish(stage + 1) or result, world)


def test_forged_request_does_not_change_what_round_it_is(exact_steps):
    with copied(exact_steps[Stage.SHARE, "answer"]) as world:
        real = Envelope.from_bytes(world.request(Stage.SHARE).read_bytes())
        later = msgspec.structs.replace(real, stage=int(Stage.OPEN))
        (world.run / "5-reveal.x.request.fgx").write_bytes(forged(later))
        assert world.exchange(world.run, B).progress().stage == Stage.SHARE


def forged(envelope):
    """The same message signed by nobody who matters."""
    return Envelope.sealed(
        SigningKey.generate(),
        session=envelope.session,
        stage=envelope.stage,
        sender=envelope.sender,
        recipient=envelope.recipient,
        body=envelope.body,
    ).to_bytes()


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
