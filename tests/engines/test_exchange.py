"""The file exchange between processes: who vanishes, who crashes, and files that are tampered with.

Commands run in processes of their own, as `commands_child.py` starts them; one whole evaluation
is by `fedgauge` itself. Everything lies in a folder in memory where there is one: what a killed
process wrote is kept there like anywhere.
"""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from conformance import counts_of, draw_client, pooled_counts
from consortium import COORDINATOR, Consortium

import fedgauge as fg
from fedgauge.engines.exchange import VERBS
from fedgauge.engines.participant import Participant
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.protocol import Envelope
from fedgauge.secagg import Stage
from fedgauge.site import Policy, Site, create_site

A, B, C, D = NAMES = [f"hospital-{letter}" for letter in "abcd"]
CLIENTS = {name: draw_client(60 + 10 * i, seed=i) for i, name in enumerate(NAMES)}
KILLED = -signal.SIGKILL
EXACT = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(8, outside="clip"), fg.Cohort(3, 1))
NOISY = fg.EvaluationPlan.for_histogram(
    fg.Axis.uniform(8, outside="clip"), fg.Cohort(3, 1), privacy=fg.DistributedDP(1.0)
)
every_stage = pytest.mark.parametrize("stage", Stage, ids=VERBS.values())
later_stages = pytest.mark.parametrize("stage", list(Stage)[1:], ids=list(VERBS.values())[1:])
STEPS = [*VERBS.values(), "start", "advance", "abandon", "status"]


@contextmanager
def fast_folder():
    memory = Path("/dev/shm")  # noqa: S108  (a fresh folder in it)
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def few_redraws(monkeypatch):
    """Bounds that come fast. How good they are is tested in tests/statistics."""
    monkeypatch.setattr("fedgauge.measures.estimates._DRAWS", 12)


@pytest.fixture
def folder():
    with fast_folder() as made:
        yield made


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def commands():
    """Run commands at the same time, each in its own process; what became of each."""
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("commands_child.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )

    def run(*requests):
        process.stdin.write(json.dumps(requests) + "\n")
        process.stdin.flush()
        return [Done(**done) for done in json.loads(process.stdout.readline())]

    with process:
        yield run
        process.stdin.close()


class World(Consortium):
    """The sites, their data as CSV files, and the run folder they share."""

    @property
    def run(self):
        return self.folder / "run"

    def write_data(self):
        for name in self.names:
            labels, scores = CLIENTS[name]
            rows = "".join(f"{y},{p!r}\n" for y, p in zip(labels, scores.tolist(), strict=True))
            (self.folder / f"{name}.csv").write_text(f"y,p\n{rows}")

    def arguments(self, name, verb, *more):
        """The command line of one step."""
        site = ["--site", str(self.site_file(name))]
        if verb == "start":
            return ["exchange", verb, str(self.folder / "plan.json"), str(self.run), *more, *site]
        if verb == "submit":
            data = [str(self.folder / f"{name}.csv"), "--label", "y", "--score", "p"]
            return ["exchange", verb, str(self.run), *data, *more, *site]
        return ["exchange", verb, str(self.run), *more, *site]

    @property
    def clients(self):
        return {name: CLIENTS[name] for name in self.names}

    def finish(self, since=Stage.ADVERTISE, *, skip=()):
        return self.play(self.run, self.clients, since=since, skip=skip)

    def reply(self, stage, name=A):
        return self.run / f"{stage:d}-{VERBS[stage]}.{name}.reply.fgx"

    def request(self, stage, name=A):
        if stage == Stage.ADVERTISE:
            return self.run / "invitation.fgx"
        return self.run / f"{stage:d}-{VERBS[stage]}.{name}.request.fgx"

    def published(self):
        """All that others can have read."""
        files = [*self.run.glob("*.fgx"), *self.run.glob("result.json")]
        return {path.name: path.read_bytes() for path in files}

    def state(self, name=A):
        (path,) = (self.folder / name / "sessions").glob("*.client")
        return path

    def truth(self, names=None):
        return pooled_counts(EXACT, self.clients, names)


def make_world(folder, names=NAMES, plan=EXACT, policy=None):
    world = World.make(folder, names, policy=policy)
    world.write_data()
    plan.save(world.folder / "plan.json")
    return world


@pytest.fixture
def world(folder):
    return make_world(folder)


def snapshots(folder, plan):
    """Three sites before each step of an evaluation: by stage, of the first site or `advance`."""
    world = make_world(folder / "now", NAMES[:3], plan)
    saved = {}

    def save(key):
        saved[key] = shutil.copytree(world.folder, folder / "-".join(map(str, key)))

    save((Stage.ADVERTISE, "start"))
    world.start(world.run, plan)
    for stage in Stage:
        for name in (B, C):
            world.answer(world.run, name, stage, CLIENTS[name])
        save((stage, "answer"))
        world.answer(world.run, A, stage, CLIENTS[A])
        save((stage, "advance"))
        world.advance(world.run)
    return saved


@pytest.fixture(scope="module")
def exact_steps():
    with fast_folder() as folder:
        yield snapshots(folder, EXACT)


@pytest.fixture(scope="module")
def noisy_steps():
    with fast_folder() as folder:
        yield snapshots(folder, NOISY)


@contextmanager
def copied(template):
    with fast_folder() as folder:
        yield World(shutil.copytree(template, folder / "world"), NAMES[:3])


def assert_right(result, world, names=None):
    np.testing.assert_array_equal(counts_of(result), world.truth(names))
    assert fg.Evaluation.from_json(world.run / "result.json").record == result.record
    assert result.privacy.claim == "enforced"


# A whole evaluation, as people do it


def fedgauge(*arguments):
    """The command as a shell would run it."""
    done = subprocess.run(
        [sys.executable, "-c", "from fedgauge.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_a_whole_evaluation_by_commands(world, commands):
    """Four sites, of which one leaves before it submits.

    The coordinator and one site run `fedgauge`, the others what it runs, in forks.
    """

    def step(name, verb, *more):
        return fedgauge(*world.arguments(name, verb, *more))

    def round_of(verb, *others):
        done = commands(*({"arguments": world.arguments(name, verb)} for name in others))
        assert [each.code for each in done] == [0] * len(others), done
        mine = step(A, verb)
        assert mine.code == 0, mine.err
        assert mine.err == ""
        return mine.out

    started = step(COORDINATOR, "start")
    assert started.code == 0
    assert started.out.startswith("Invited 4 sites; 3 must stay to the end.\nEvaluation ")
    assert "Round 1 of 5, join: 0 of 4 answered" in started.out
    assert f"Waiting for {', '.join(NAMES)}:\n  fedgauge exchange join {world.run}" in started.out
    joined = round_of("join", B, C, D)
    assert "16 whole numbers (128 bytes), once" in joined
    assert joined.endswith(f"Joined: {world.reply(Stage.ADVERTISE)}\n")
    assert "Waiting for the coordinator:\n  fedgauge exchange advance" in step(A, "status").out
    assert "Round 2 of 5, share: 0 of 4 answered" in step(COORDINATOR, "advance").out
    assert round_of("share", B, C, D) == f"Answered: {world.reply(Stage.SHARE)}\n"
    assert step(COORDINATOR, "advance", "-q") == Done(0, "", "")
    assert round_of("submit", B, C) == f"Submitted: {world.reply(Stage.MASK)}\n"
    waiting = step(COORDINATOR, "advance")
    assert waiting.code == 1
    assert waiting.out == ""
    assert waiting.err == (
        f"fedgauge: round 3 of 5 waits for {D} to submit. `fedgauge exchange advance` again then, "
        "or go on without them: --without-missing (3 must stay to the end).\n"
    )
    went_on = step(COORDINATOR, "advance", "--without-missing")
    assert "Round 4 of 5, confirm: 0 of 3 answered" in went_on.out
    round_of("confirm", B, C)
    step(COORDINATOR, "advance", "-q")
    round_of("reveal", B, C)
    told = step(COORDINATOR, "advance")
    result = fg.Evaluation.from_json(world.run / "result.json")
    assert told.out == f"{result}\nSaved {world.run / 'result.json'}\n"
    assert_right(result, world, [A, B, C])
    assert result.clients == 3
    late = [step(D, "submit"), step(COORDINATOR, "advance"), step(A, "status")]
    assert late[0].code == 0  # it was asked; its reply comes too late to matter
    assert late[1] == Done(
        1, "", f"fedgauge: the evaluation is finished: its result is {world.run}/result.json.\n"
    )
    assert "Finished: the result is in result.json" in late[2].out
    assert json.loads((world.run / "result.json").read_bytes())["privacy"]["claim"] == "enforced"


def test_own_folders_and_files_carried_by_hand(folder):
    """Each party has a run folder of its own; a site gets its requests and nothing else."""
    world = make_world(folder)
    mail = {name: folder / "mail" / name for name in (COORDINATOR, *NAMES)}
    world.start(mail[COORDINATOR], NOISY)
    for stage in Stage:
        for name in NAMES:
            request = mail[COORDINATOR] / world.request(stage, name).name
            mail[name].mkdir(exist_ok=True)
            shutil.copy(request, mail[name])
            shutil.copy(world.answer(mail[name], name, stage, CLIENTS[name]), mail[COORDINATOR])
        result = world.advance(mail[COORDINATOR])
    assert result.clients == 4
    assert len(list(mail[A].iterdir())) == 2 * len(Stage)


# Somebody vanishes


@every_stage
def test_a_site_vanishes(world, commands, stage):
    def run(*steps):
        return commands(*({"arguments": world.arguments(*step)} for step in steps))

    assert run((COORDINATOR, "start"))[0].code == 0
    for now in Stage:
        present = NAMES if now < stage else NAMES[:3]
        assert [done.code for done in run(*((name, VERBS[now]) for name in present))] == [
            0 for _ in present
        ]
        if now == stage:
            (status,) = run((B, "status"))
            assert f"Waiting for {D}:\n  fedgauge exchange {VERBS[now]} " in status.out
            (waiting,) = run((COORDINATOR, "advance"))
            assert waiting.code == 1
            assert f"waits for {D} to {VERBS[now]}" in waiting.err
            assert not (world.run / "result.json").exists()
        (advanced,) = run((COORDINATOR, "advance", "--without-missing"))
        assert advanced.code == 0, advanced.err
    names = NAMES[:3] if stage <= Stage.MASK else NAMES
    assert_right(fg.Evaluation.from_json(world.run / "result.json"), world, names)


@every_stage
def test_too_many_vanish(exact_steps, commands, stage):
    """Of three sites all must stay. The coordinator can wait on: nothing is lost by asking."""
    with copied(exact_steps[stage, "answer"]) as world:
        arguments = world.arguments(COORDINATOR, "advance", "--without-missing")
        (done,) = commands({"arguments": arguments})
        assert done.code == 1
        assert re.fullmatch(r"fedgauge: .*2 .* and 3 are needed\..*\n", done.err)
        assert not (world.run / "result.json").exists()
        world.answer(world.run, A, stage, CLIENTS[A])
        result = world.advance(world.run)
        assert_right(world.finish(stage + 1) or result, world)


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
    path.write_bytes(Path(str(path).replace(A, B)).read_bytes())


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
    with copied(exact_steps[Stage.ADVERTISE, "answer"]) as world:
        path, before = world.request(Stage.ADVERTISE), world.published()
        tamper(path, None)
        for step in (
            lambda: world.answer(world.run, A, Stage.ADVERTISE),
            lambda: world.advance(world.run),
            lambda: world.exchange(world.run).progress(),
        ):
            with pytest.raises((fg.ProtocolError, fg.ExchangeError)):
                step()
        assert world.entries(A) == []
        assert not world.reply(Stage.ADVERTISE).exists()
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)
        path.write_bytes(before[path.name])
        world.answer(world.run, A, Stage.ADVERTISE)
        world.advance(world.run)
        assert_right(world.finish(Stage.SHARE), world)


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


# Crashes


def die_at_every_step(commands, template, who, verb, *more):
    """Worlds in which a process was killed before its n-th change of a file, for every n."""
    for last in itertools.count(1):
        with copied(template) as world:
            request = {"arguments": world.arguments(who, verb, *more)}
            (done,) = commands(request | {"last": last})
            if done.code != KILLED:
                assert done.code == 0, done.err
                assert last > 2  # it was killed at least twice
                return
            kept = world.published()
            (again,) = commands(request)
            assert kept.items() <= world.published().items()  # the same bytes, never others
            yield world, again


def assert_spent_once(world):
    for name in world.names:
        assert world.entries(name) == ["reserve", "commit", "survivors"]


@every_stage
def test_site_killed_at_every_step(exact_steps, commands, stage):
    for world, again in die_at_every_step(commands, exact_steps[stage, "answer"], A, VERBS[stage]):
        assert again.code == 0, again.err
        reply = world.reply(stage).read_bytes()
        result = world.advance(world.run)
        result = world.finish(stage + 1) or result
        assert_right(result, world)
        assert_spent_once(world)
        assert world.reply(stage).read_bytes() == reply


def test_noise_is_not_drawn_again_after_it_left(noisy_steps, commands):
    """Two contributions under the same masks would show the difference of their noise."""
    kept = []
    for world, again in die_at_every_step(commands, noisy_steps[Stage.MASK, "answer"], A, "submit"):
        assert again.code == 0, again.err
        sent = world.reply(Stage.MASK).read_bytes()
        (answered,) = [
            reply
            for reply in msgspec.msgpack.decode(world.state().read_bytes())["answered"].values()
            if Envelope.from_bytes(reply).stage == Stage.MASK
        ]
        assert answered == sent
        (third,) = commands({"arguments": world.arguments(A, "submit")})
        assert third.code == 0
        assert world.reply(Stage.MASK).read_bytes() == sent
        kept.append(sent)
        world.advance(world.run)
        result = world.finish(Stage.AGREE)
        assert result.clients == 3
        assert_spent_once(world)
    assert len(set(kept)) > 1  # the noise is fresh as long as nothing was stored


def test_what_was_stored_is_sent_whatever_the_file_says_then(noisy_steps, commands):
    """After the counts were stored, the same command with other data sends the stored ones."""
    seen = set()
    for last in itertools.count(1):
        with copied(noisy_steps[Stage.MASK, "answer"]) as world:
            arguments = world.arguments(A, "submit")
            (done,) = commands({"arguments": arguments, "last": last})
            if done.code != KILLED:
                break
            answered = msgspec.msgpack.decode(world.state().read_bytes())["answered"].values()
            masked = [r for r in answered if Envelope.from_bytes(r).stage == Stage.MASK]
            (world.folder / f"{A}.csv").write_text("y,p\n1,0.5\n")
            (again,) = commands({"arguments": arguments})
            assert again.code == 0
            seen.add(bool(masked))
            if masked:
                assert world.reply(Stage.MASK).read_bytes() == masked[0]
    assert seen == {True, False}


@every_stage
def test_coordinator_killed_at_every_step(exact_steps, commands, stage):
    told = set()
    for world, again in die_at_every_step(
        commands, exact_steps[stage, "advance"], COORDINATOR, "advance"
    ):
        # It goes on, or has gone on before it died and now waits, or was done.
        told.add(again.code)
        done = stage == Stage.OPEN
        finished = r"fedgauge: the evaluation is finished: .*\n"
        waits = rf"fedgauge: round {stage + 1} of 5 waits for .*\n"
        assert again.code == 0 or re.fullmatch(finished if done else waits, again.err), again.err
        result = world.finish(stage + 1)
        assert_right(result or fg.Evaluation.from_json(world.run / "result.json"), world)
        assert_spent_once(world)
    assert 0 in told


def test_coordinator_killed_while_it_goes_on_without_some(commands, folder):
    """Whoever comes late is in the sum or not; what was told to the others is not told anew."""
    world = make_world(folder / "world")
    world.start(world.run, EXACT)
    world.play(world.run, world.clients, until=Stage.SHARE)
    for name in NAMES[:3]:
        world.answer(world.run, name, Stage.MASK, CLIENTS[name])
    seen = set()
    for last in itertools.count(1):
        copy = World(shutil.copytree(world.folder, folder / str(last)), NAMES)
        request = {"arguments": copy.arguments(COORDINATOR, "advance", "--without-missing")}
        (done,) = commands(request | {"last": last})
        if done.code != KILLED:
            break
        kept = copy.published()
        copy.answer(copy.run, D, Stage.MASK, CLIENTS[D])
        (again,) = commands(request)
        # Those who were not asked to confirm yet are not taken for missing.
        assert again.code == 0 or "0 members answered and 3 are needed" in again.err
        assert kept.items() <= copy.published().items()
        stay = [name for name in NAMES if copy.request(Stage.AGREE, name).exists()]
        seen.add(len(stay))
        assert_right(copy.finish(Stage.AGREE, skip={*NAMES} - {*stay}), copy, stay)
    assert seen == {3, 4}


def test_start_killed_at_every_step(exact_steps, commands):
    template = exact_steps[Stage.ADVERTISE, "start"]
    for world, again in die_at_every_step(commands, template, COORDINATOR, "start"):
        assert again.code == 0 or "holds an exchange already" in again.err
        assert_right(world.finish(), world)


@pytest.mark.parametrize("stage", [Stage.SHARE, Stage.AGREE], ids=["unsent", "sent"])
def test_abandon_killed_at_every_step(noisy_steps, commands, stage):
    for world, again in die_at_every_step(commands, noisy_steps[stage, "answer"], A, "abandon"):
        assert again.code == 0, again.err
        assert not list((world.folder / A / "sessions").glob("*.client"))
        last = "release" if stage == Stage.SHARE else "commit"
        assert world.entries(A) == ["reserve", last]


@pytest.mark.parametrize("stage", [Stage.SHARE, Stage.MASK, Stage.AGREE], ids=lambda s: VERBS[s])
def test_a_crash_leaves_no_keys_behind(exact_steps, commands, stage):
    """Half-written states hold keys; when the evaluation is over they are gone, too."""
    for world, _ in die_at_every_step(commands, exact_steps[stage, "answer"], A, VERBS[stage]):
        world.advance(world.run)
        for now in Stage:
            if now > stage:
                secrets = read_secrets(world.state())
                for name in world.names:
                    world.answer(world.run, name, now, CLIENTS[name])
                world.advance(world.run)
        assert find(secrets, world.folder / A) == []


# Secrets


def read_secrets(state):
    fields = msgspec.msgpack.decode(state.read_bytes())
    secrets = [fields[name] for name in ("mask_key", "box_key", "own_mask")]
    assert all(len(secret) == 32 for secret in secrets)
    return secrets


def find(secrets, folder):
    """Files that hold one of these secrets, as bytes or in hexadecimal."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [
        path
        for path in files
        for secret in secrets
        if secret in path.read_bytes() or secret.hex().encode() in path.read_bytes()
    ]


def test_states_are_private(exact_steps):
    mask = os.umask(0)
    try:
        for stage in Stage:
            with copied(exact_steps[stage, "answer"]) as world:
                world.answer(world.run, A, stage, CLIENTS[A])
                sessions = world.folder / A / "sessions"
                assert sessions.stat().st_mode & 0o777 == 0o700
                assert {p.stat().st_mode & 0o777 for p in sessions.iterdir()} == {0o600}
                for path in (world.folder / A).iterdir():
                    if path.is_file() and path.name not in ("site.toml",):
                        assert path.stat().st_mode & 0o777 == 0o600, path.name
        with copied(exact_steps[Stage.ADVERTISE, "start"]) as world:
            world.start(world.run, EXACT)
            sessions = world.folder / COORDINATOR / "sessions"
            assert sessions.stat().st_mode & 0o777 == 0o700
            assert [p.stat().st_mode & 0o777 for p in sessions.iterdir()] == [0o600]
    finally:
        os.umask(mask)


@pytest.mark.parametrize("plan", [EXACT, NOISY], ids=["exact", "noisy"])
def test_no_key_is_left_after_reveal(world, monkeypatch, plan):
    """All randomness of a site is recorded. Of its keys and its noise nothing stays on disk."""
    drawn, urandom = [], os.urandom

    def record(count):
        drawn.append(urandom(count))
        return drawn[-1]

    world.start(world.run, plan)
    for stage in Stage:
        for name in NAMES:
            with monkeypatch.context() as patch:
                if name == A:
                    patch.setattr(os, "urandom", record)
                world.answer(world.run, name, stage, CLIENTS[name])
        keys = [secret for secret in drawn if len(secret) == 32]
        held = find(keys, world.folder / A)
        assert set(held) == ({world.state()} if stage < Stage.OPEN else set())
        assert find(keys, world.run) == []
        world.advance(world.run)
    assert len(keys) == 4  # two agreement keys, the own mask, the key of the noise
    assert find(keys, world.folder) == []


@pytest.mark.parametrize("stage", list(Stage)[:4], ids=list(VERBS.values())[:4])
def test_no_key_is_left_after_abandon(exact_steps, commands, stage):
    with copied(exact_steps[stage, "advance"]) as world:
        fields = msgspec.msgpack.decode(world.state().read_bytes())
        secrets = [fields[name] for name in ("mask_key", "box_key")]
        assert set(find(secrets, world.folder)) == {world.state()}
        (done,) = commands({"arguments": world.arguments(A, "abandon")})
        assert done.out == f"Abandoned the evaluation in {world.run}\n"
        assert find(secrets, world.folder) == []


# Two processes of one site at once


@pytest.mark.parametrize(
    "stage", [Stage.ADVERTISE, Stage.SHARE, Stage.MASK], ids=lambda s: VERBS[s]
)
def test_the_same_command_twice_at_once(noisy_steps, commands, stage):
    """Two answers to one request, with other keys or other noise, must never both leave."""
    with copied(noisy_steps[stage, "answer"]) as world:
        meet = world.folder / "meet"
        meet.mkdir()
        request = {"arguments": world.arguments(A, VERBS[stage]), "meet": str(meet)}
        done = commands(request, request)
        assert 0 in [each.code for each in done], done
        sent = {path.read_bytes() for path in meet.glob("sent-*")}
        assert len(sent) == 1
        assert world.reply(stage).read_bytes() in sent
        world.advance(world.run)
        assert world.finish(stage + 1).clients == 3
        assert_spent_once(world)


# Budgets


def balance(world, name=A):
    (only,) = world.site(name).ledger.balances()
    return only.spent.epsilon, only.reserved.epsilon


@every_stage
def test_abandon_gives_back_what_did_not_leave(noisy_steps, commands, stage):
    with copied(noisy_steps[stage, "advance"]) as world:
        (done,) = commands({"arguments": world.arguments(A, "abandon")})
        assert done.code == 0
        assert balance(world) == ((0.0, 0.0) if stage < Stage.MASK else (1.0, 0.0))
        assert balance(world, B) == ((0.0, 1.0) if stage < Stage.MASK else (1.0, 0.0))
        # It is out for good: neither the next round nor a new start of this one.
        (joined,) = commands({"arguments": world.arguments(A, "join")})
        assert joined.code == 1
        assert "A new attempt needs a new session" in joined.err
        if stage < Stage.OPEN:
            world.advance(world.run)
            with pytest.raises(fg.ExchangeError, match="did not join"):
                world.answer(world.run, A, Stage(stage + 1), CLIENTS[A])


def test_abandon_by_the_coordinator(noisy_steps, commands):
    with copied(noisy_steps[Stage.MASK, "advance"]) as world:
        (done,) = commands({"arguments": world.arguments(COORDINATOR, "abandon")})
        assert done.code == 0
        assert not list((world.folder / COORDINATOR / "sessions").glob("*.server"))
        (advanced,) = commands({"arguments": world.arguments(COORDINATOR, "advance")})
        assert advanced.code == 1
        assert "did not start this exchange, or has abandoned it" in advanced.err


@pytest.mark.parametrize("stage", [Stage.ADVERTISE, Stage.SHARE], ids=["joined", "shared"])
def test_old_state_put_back_after_the_counts_left(noisy_steps, stage):
    """It would add new noise under the old masks."""
    with copied(noisy_steps[stage, "advance"]) as world:
        old = world.state().read_bytes()
        world.advance(world.run)
        world.play(world.run, world.clients, since=stage + 1, until=Stage.SHARE)
        world.answer(world.run, A, Stage.MASK, CLIENTS[A])
        sent = world.reply(Stage.MASK).read_bytes()
        world.state().write_bytes(old)
        for now in (Stage.SHARE, Stage.MASK):
            if now > stage:
                with pytest.raises((fg.ExchangeError, fg.ProtocolError)):
                    world.answer(world.run, A, now, CLIENTS[A])
        assert world.reply(Stage.MASK).read_bytes() == sent
        assert balance(world) == (1.0, 0.0)


def test_no_data_are_read_before_the_plan_is_judged(world):
    def data():
        raise AssertionError("the data were read")

    too_fine = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(8192, outside="clip"), fg.Cohort(3, 1)
    )
    world.start(world.run, too_fine)
    site = world.site(A)
    with pytest.raises(fg.PlanRefused, match="max_bins"):
        Participant(site, data).answer(world.exchange(world.run).invitation().data)


def test_bad_data_cost_nothing(noisy_steps, commands):
    """A file that cannot be read is the operator's to mend: the session waits."""
    with copied(noisy_steps[Stage.MASK, "answer"]) as world:
        path, state = world.folder / f"{A}.csv", world.state().read_bytes()
        good = path.read_text()
        for bad in ("y,p\n1,high\n", "y,q\n1,0.5\n"):
            path.write_text(bad)
            (done,) = commands({"arguments": world.arguments(A, "submit")})
            assert done.code == 2
            assert re.fullmatch(r"fedgauge: .*\n", done.err)
            assert "high" not in done.err
            assert world.state().read_bytes() == state
            assert balance(world) == (0.0, 1.0)
            assert not world.reply(Stage.MASK).exists()
        path.write_text(good)
        (done,) = commands({"arguments": world.arguments(A, "submit")})
        assert done.code == 0
        assert balance(world) == (1.0, 0.0)


def test_data_that_fail_to_come_are_not_blamed_on_the_sessions(noisy_steps):
    """What a site's own reader raises reaches its operator as it is."""

    def data():
        raise OSError(5, "the tape is torn")

    with copied(noisy_steps[Stage.MASK, "answer"]) as world:
        request = world.request(Stage.MASK).read_bytes()
        with pytest.raises(OSError, match="the tape is torn"):
            Participant(world.site(A), data).answer(request)
        assert balance(world) == (0.0, 1.0)


# Differencing


def run_with(world, number, names, plan=EXACT):
    """One evaluation among some of the sites, up to their confirmation."""
    run = world.folder / f"run-{number}"
    clients = {name: world.clients[name] for name in names}
    world.start(run, plan, invited=names)
    world.play(run, clients, until=Stage.MASK)
    return run, clients


def finish_with(world, run, clients):
    return world.play(run, clients, since=Stage.AGREE)


def test_cohorts_that_differ_by_one_site(world):
    first = finish_with(world, *run_with(world, 1, NAMES))
    np.testing.assert_array_equal(counts_of(first), world.truth())
    run, clients = run_with(world, 2, NAMES[:3])
    for name in clients:
        before = world.entries(name)
        with pytest.raises(fg.PlanRefused):
            world.answer(run, name, Stage.AGREE)
        assert world.entries(name) == before
        assert before[-2:] == ["reserve", "commit"]  # the masked counts left; nothing is opened
        assert not (run / f"4-confirm.{name}.reply.fgx").exists()
    with pytest.raises(fg.CohortTooSmall):
        world.advance(run, without_missing=True)
    assert not (run / "result.json").exists()
    # The same sites as before may go on.
    third = finish_with(world, *run_with(world, 3, NAMES))
    np.testing.assert_array_equal(counts_of(third), world.truth())


def test_cohort_that_grew_by_one_site_after_a_dropout(world):
    """The sum over all but one, then over all: the one who dropped out would be laid bare."""
    world.start(world.run, EXACT)
    world.play(world.run, world.clients, until=Stage.SHARE)
    np.testing.assert_array_equal(
        counts_of(world.finish(Stage.MASK, skip={D})), world.truth(NAMES[:3])
    )
    run, _ = run_with(world, 2, NAMES)
    for name in NAMES[:3]:
        with pytest.raises(fg.PlanRefused):
            world.answer(run, name, Stage.AGREE)
    world.answer(run, D, Stage.AGREE)  # it knows of no other sum, and is not heard alone
    with pytest.raises(fg.CohortTooSmall):
        world.advance(run, without_missing=True)


def test_cohorts_that_differ_by_enough_sites(folder):
    names = [f"site-{i}" for i in range(6)]
    world = Consortium.make(folder, names)
    clients = {name: draw_client(50, seed=i) for i, name in enumerate(names)}
    for number, chosen in enumerate((names[:3], names, names[3:], names)):
        run = folder / f"run-{number}"
        world.start(run, EXACT, invited=chosen)
        result = world.play(run, {name: clients[name] for name in chosen})
        np.testing.assert_array_equal(counts_of(result), pooled_counts(EXACT, clients, chosen))


def test_noisy_sums_are_free_to_differ(world):
    finish_with(world, *run_with(world, 1, NAMES, NOISY))
    assert finish_with(world, *run_with(world, 2, NAMES[:3], NOISY)).clients == 3
    assert world.entries(A) == ["reserve", "commit", "survivors"] * 2


def test_exact_sum_after_noise_is_not_joined(world, commands):
    finish_with(world, *run_with(world, 1, NAMES, NOISY))
    world.start(world.run, EXACT)
    (done,) = commands({"arguments": world.arguments(A, "join")})
    assert_refused(world, done, "an exact sum would void that promise", entries=3)


# What is not joined


def assert_refused(world, done, reason, *, entries=0, name=A):
    assert done.code == 2
    assert done.out == ""
    assert re.fullmatch(r"fedgauge: .+\n", done.err)
    assert reason in done.err
    assert len(world.entries(name)) == entries
    assert not (world.folder / name / "sessions").exists() or entries
    assert [path.name for path in world.run.iterdir()] == ["invitation.fgx"]


def plan_of(*, bins=8, cohort=(3, 1), privacy=None, score_sums=False):
    axis = fg.Axis.uniform(bins, outside="clip")
    return fg.EvaluationPlan.for_histogram(
        axis, fg.Cohort(*cohort), privacy=privacy, score_sums=score_sums
    )


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (plan_of(cohort=(2, 1)), "min_cohort"),
        (plan_of(cohort=(3, 1)), "min_cohort"),
        (plan_of(cohort=(4, 3)), "collude"),
        (plan_of(cohort=(4, 0)), "max_colluding"),
        (plan_of(cohort=(4, 1), bins=8192), "max_bins"),
        (plan_of(cohort=(4, 1), privacy=fg.DistributedDP(0.51)), "max_epsilon"),
        (
            plan_of(cohort=(4, 1), privacy=fg.DistributedDP(0.5, delta=1e-5, noise="skellam")),
            "max_delta",
        ),
        (plan_of(cohort=(4, 1), score_sums=True), "score_sums"),
        (plan_of(cohort=(4, 1), privacy=fg.DistributedDP(0.5), score_sums=True), "score_sums"),
    ],
)
def test_plan_outside_the_site_file(folder, commands, plan, reason):
    world = make_world(folder, policy=Policy(min_cohort=4, max_epsilon=0.5), plan=plan)
    (started,) = commands({"arguments": world.arguments(COORDINATOR, "start")})
    assert started.code == 0
    (done,) = commands({"arguments": world.arguments(A, "join")})
    assert_refused(world, done, reason)


def test_privacy_model_that_is_not_allowed(folder, commands):
    world = make_world(folder, policy=Policy(models=("distributed-dp",)))
    world.start(world.run, EXACT)
    (done,) = commands({"arguments": world.arguments(A, "join")})
    assert_refused(world, done, "secure-aggregation is not among those allowed")


def test_budget_that_is_used_up(folder, commands):
    world = make_world(folder, policy=Policy(budget_epsilon=1.5))
    finish_with(world, *run_with(world, 1, NAMES, NOISY))
    world.start(world.run, NOISY)
    (done,) = commands({"arguments": world.arguments(A, "join")})
    assert_refused(world, done, "spent or reserved epsilon 1,", entries=3)


def test_made_up_sites(world, commands):
    """Sock puppets would make the cohort look large, and their counts are known."""
    puppets = [SigningKey.generate().public for _ in range(3)]
    world.run.mkdir()
    world.coordinator(world.run).start(EXACT, [world.keys[A], *puppets])
    (done,) = commands({"arguments": world.arguments(A, "join")})
    assert_refused(world, done, "3 of 4 sites are not approved here")


def test_site_that_was_not_invited(world, commands):
    world.start(world.run, EXACT, invited=NAMES[:3])
    (done,) = commands({"arguments": world.arguments(D, "join")})
    assert_refused(world, done, "not among those invited", name=D)


def test_coordinator_that_is_not_approved(world, commands):
    stranger = create_site(world.folder / "stranger", name="stranger", dataset="none")
    world.run.mkdir()
    text = stranger.path.read_text()
    for name in NAMES:
        key = key_to_text(world.keys[name])
        text += f'\n[[peers]]\nname = "{name}"\nkey = "{key}"\n'
    stranger.path.write_text(text)
    (started,) = commands({"arguments": world.arguments("stranger", "start")})
    assert started.code == 0
    (done,) = commands({"arguments": world.arguments(A, "join")})
    assert_refused(world, done, "the coordinator is not approved here")


def test_site_file_that_grew_stricter(exact_steps, commands):
    """A session that was joined goes on: its plan was judged, its budget set aside."""
    with copied(exact_steps[Stage.SHARE, "answer"]) as world:
        path = world.site_file(A)
        path.write_text(path.read_text().replace("max_bins = 4096", "max_bins = 2"))
        assert Site.from_toml(path).policy.max_bins == 2
        (done,) = commands({"arguments": world.arguments(A, "share")})
        assert done.code == 0


# Two invitations


def test_two_plans_for_two_groups_of_sites(world):
    """A coordinator shows half of the sites one plan and half another: neither gives a result."""
    coarse = plan_of(bins=4)
    runs = [world.folder / "one", world.folder / "two"]
    for run, plan in zip(runs, (EXACT, coarse), strict=True):
        world.start(run, plan)
    for name in NAMES:
        own = runs[NAMES.index(name) // 2]
        world.answer(own, name, Stage.ADVERTISE)
        # The coordinator passes all replies on to both runs.
        other = runs[1 - NAMES.index(name) // 2]
        shutil.copy(own / f"1-join.{name}.reply.fgx", other)
    for run in runs:
        assert len(world.exchange(run).progress().set_aside) == 2
        with pytest.raises(fg.CohortTooSmall, match="2 members answered and 3 are needed"):
            world.advance(run, without_missing=True)


def test_two_evaluations_at_once(world):
    """Sessions of one site do not touch each other."""
    runs = [world.folder / "one", world.folder / "two"]
    for run in runs:
        world.start(run, EXACT)
    for stage in Stage:
        for run in runs:
            for name in NAMES:
                world.answer(run, name, stage, CLIENTS[name])
            result = world.advance(run)
            if stage == Stage.OPEN:
                np.testing.assert_array_equal(counts_of(result), world.truth())
    assert len(list((world.folder / A / "sessions").glob("*.client"))) == 2


# Commands that cannot work


@pytest.mark.parametrize("verb", ["join", "advance", "status", "abandon"])
def test_empty_folder(world, commands, verb):
    world.run.mkdir()
    (done,) = commands({"arguments": world.arguments(A, verb)})
    assert done == Done(
        1,
        "",
        f"fedgauge: there is no invitation.fgx in {world.run}. Get it from the coordinator, who "
        "makes it with `fedgauge exchange start`.\n",
    )


@later_stages
def test_verb_before_its_round(exact_steps, commands, stage):
    with copied(exact_steps[Stage.ADVERTISE, "answer"]) as world:
        (done,) = commands({"arguments": world.arguments(B, VERBS[stage])})
        assert done.code == 1
        assert re.fullmatch(
            rf"fedgauge: there is no request to {VERBS[stage]} for this site .* yet: .*\n", done.err
        )


def test_advance_by_a_site(exact_steps, commands):
    with copied(exact_steps[Stage.ADVERTISE, "advance"]) as world:
        (done,) = commands({"arguments": world.arguments(A, "advance")})
        assert done.code == 1
        assert f"site '{A}' did not start this exchange" in done.err


def test_start_where_an_exchange_is(exact_steps, commands):
    with copied(exact_steps[Stage.ADVERTISE, "advance"]) as world:
        before = world.published()
        (done,) = commands({"arguments": world.arguments(COORDINATOR, "start")})
        assert done.code == 1
        assert "holds an exchange already" in done.err
        assert world.published() == before


@pytest.mark.parametrize("verb", STEPS)
def test_run_folder_that_is_a_file(world, commands, verb):
    world.run.write_text("")
    name = COORDINATOR if verb in ("start", "advance") else A
    (done,) = commands({"arguments": world.arguments(name, verb)})
    assert done.code in (1, 2), done.err
    assert re.fullmatch(r"fedgauge: .+\n", done.err)
