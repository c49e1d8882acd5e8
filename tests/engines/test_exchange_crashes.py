"""The file exchange where processes are killed: nothing is spent twice, and no key is left behind.
Everything lies in a folder in memory where there is one: what a killed process wrote is kept there
like anywhere."""

import hashlib
import itertools
import os
import re
import shutil

import exchange
import msgspec
import pytest
from consortium import COORDINATOR, D
from forks import KILLED

import fedgauge as fg
from fedgauge.engines.participant import STEPS
from fedgauge.protocol import Envelope
from fedgauge.secagg import Stage
from fedgauge.site.log import what_left

pytestmark = pytest.mark.usefixtures("few_redraws")


def die_at_every_step(commands, template, who, verb, *more):
    """Worlds in which a process was killed before its n-th change of a file, for every n."""
    for last in itertools.count(1):
        with exchange.copied(template) as world:
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
        assert world.entries(name) == ["reserve", "commit", "sent", "survivors"]


def assert_logged(world):
    """Everything in the folder is in the logs of those who sent it, once."""
    for name in world.names:
        sent = [world.reply(stage, name).read_bytes() for stage in Stage]
        logged = [row.sha256 for row in what_left(world.site(name))]
        assert logged == [hashlib.sha256(data).hexdigest() for data in sent]


@exchange.every_stage
def test_site_killed_at_every_step(exact_steps, commands, stage):
    for world, again in die_at_every_step(
        commands, exact_steps[stage, "answer"], exchange.A, STEPS[stage]
    ):
        assert again.code == 0, again.err
        reply = world.reply(stage).read_bytes()
        result = world.advance(world.run)
        result = world.finish(stage + 1) or result
        exchange.assert_right(result, world)
        assert_spent_once(world)
        assert_logged(world)
        assert world.reply(stage).read_bytes() == reply


def test_noise_is_not_drawn_again_after_it_left(noisy_steps, commands):
    """Two contributions under the same masks would show the difference of their noise."""
    kept = []
    for world, again in die_at_every_step(
        commands, noisy_steps[Stage.MASK, "answer"], exchange.A, "submit"
    ):
        assert again.code == 0, again.err
        sent = world.reply(Stage.MASK).read_bytes()
        (answered,) = [
            reply
            for reply in msgspec.msgpack.decode(world.state().read_bytes())["answered"].values()
            if Envelope.from_bytes(reply).stage == Stage.MASK
        ]
        assert answered == sent
        (third,) = commands({"arguments": world.arguments(exchange.A, "submit")})
        assert third.code == 0
        assert world.reply(Stage.MASK).read_bytes() == sent
        kept.append(sent)
        world.advance(world.run)
        result = world.finish(Stage.AGREE)
        assert result.clients == 3
        assert_spent_once(world)
    assert len(set(kept)) == 1  # also before anything was stored


def test_what_was_stored_is_sent_whatever_the_file_says_then(noisy_steps, commands):
    """After the counts were stored, the same command with other data sends the stored ones."""
    seen = set()
    for last in itertools.count(1):
        with exchange.copied(noisy_steps[Stage.MASK, "answer"]) as world:
            arguments = world.arguments(exchange.A, "submit")
            (done,) = commands({"arguments": arguments, "last": last})
            if done.code != KILLED:
                break
            answered = msgspec.msgpack.decode(world.state().read_bytes())["answered"].values()
            masked = [r for r in answered if Envelope.from_bytes(r).stage == Stage.MASK]
            (world.folder / f"{exchange.A}.csv").write_text("y,p\n1,0.5\n")
            (again,) = commands({"arguments": arguments})
            assert again.code == 0
            seen.add(bool(masked))
            if masked:
                assert world.reply(Stage.MASK).read_bytes() == masked[0]
    assert seen == {True, False}


@exchange.every_stage
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
        exchange.assert_right(result or fg.Evaluation.from_json(world.run / "result.json"), world)
        assert_spent_once(world)
    assert 0 in told


def test_coordinator_killed_while_it_goes_on_without_some(commands, folder):
    """Whoever comes late is in the sum or not; what was told to the others is not told anew."""
    world = exchange.begun(folder / "world")
    world.play(world.run, world.clients, until=Stage.SHARE)
    for name in exchange.NAMES[:3]:
        world.answer(world.run, name, Stage.MASK, exchange.CLIENTS[name])
    seen = set()
    for last in itertools.count(1):
        copy = exchange.World(shutil.copytree(world.folder, folder / str(last)), exchange.NAMES)
        request = {"arguments": copy.arguments(COORDINATOR, "advance", "--without-missing")}
        (done,) = commands(request | {"last": last})
        if done.code != KILLED:
            break
        kept = copy.published()
        copy.answer(copy.run, D, Stage.MASK, exchange.CLIENTS[D])
        (again,) = commands(request)
        # Those who were not asked to confirm yet are not taken for missing.
        assert again.code == 0 or "0 members answered and 3 are needed" in again.err
        assert kept.items() <= copy.published().items()
        stay = [name for name in exchange.NAMES if copy.request(Stage.AGREE, name).exists()]
        seen.add(len(stay))
        exchange.assert_right(
            copy.finish(Stage.AGREE, skip={*exchange.NAMES} - {*stay}), copy, stay
        )
    assert seen == {3, 4}


def test_start_killed_at_every_step(exact_steps, commands):
    template = exact_steps[Stage.ADVERTISE, "start"]
    for world, again in die_at_every_step(commands, template, COORDINATOR, "start"):
        assert again.code == 0 or "holds an exchange already" in again.err
        exchange.assert_right(world.finish(), world)


@pytest.mark.parametrize("stage", [Stage.SHARE, Stage.AGREE], ids=["unsent", "sent"])
def test_abandon_killed_at_every_step(noisy_steps, commands, stage):
    for world, again in die_at_every_step(
        commands, noisy_steps[stage, "answer"], exchange.A, "abandon", "--yes"
    ):
        assert again.code == 0, again.err
        assert not list((world.folder / exchange.A / "sessions").glob("*.client"))
        last = ["release"] if stage == Stage.SHARE else ["commit", "sent"]
        assert world.entries(exchange.A) == ["reserve", *last]


@pytest.mark.parametrize("stage", [Stage.SHARE, Stage.MASK, Stage.AGREE], ids=lambda s: STEPS[s])
def test_a_crash_leaves_no_keys_behind(exact_steps, commands, stage):
    """Half-written states hold keys; when the evaluation is over they are gone, too."""
    for world, _ in die_at_every_step(
        commands, exact_steps[stage, "answer"], exchange.A, STEPS[stage]
    ):
        world.advance(world.run)
        for now in Stage:
            if now > stage:
                secrets = read_secrets(world.state())
                for name in world.names:
                    world.answer(world.run, name, now, exchange.CLIENTS[name])
                world.advance(world.run)
        assert find(secrets, world.folder / exchange.A) == []


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
            with exchange.copied(exact_steps[stage, "answer"]) as world:
                world.answer(world.run, exchange.A, stage, exchange.CLIENTS[exchange.A])
                sessions = world.folder / exchange.A / "sessions"
                assert sessions.stat().st_mode & 0o777 == 0o700
                assert {p.stat().st_mode & 0o777 for p in sessions.iterdir()} == {0o600}
                for path in (world.folder / exchange.A).iterdir():
                    if path.is_file() and path.name not in ("site.toml",):
                        assert path.stat().st_mode & 0o777 == 0o600, path.name
        with exchange.copied(exact_steps[Stage.ADVERTISE, "start"]) as world:
            world.start(world.run, exchange.EXACT)
            sessions = world.folder / COORDINATOR / "sessions"
            assert sessions.stat().st_mode & 0o777 == 0o700
            assert [p.stat().st_mode & 0o777 for p in sessions.iterdir()] == [0o600]
    finally:
        os.umask(mask)


@pytest.mark.parametrize("plan", [exchange.EXACT, exchange.NOISY], ids=["exact", "noisy"])
def test_no_key_is_left_after_reveal(world, monkeypatch, plan):
    """All randomness of a site is recorded. Of its keys and its noise nothing stays on disk."""
    drawn, urandom = [], os.urandom

    def record(count):
        drawn.append(urandom(count))
        return drawn[-1]

    world.start(world.run, plan)
    for stage in Stage:
        for name in exchange.NAMES:
            with monkeypatch.context() as patch:
                if name == exchange.A:
                    patch.setattr(os, "urandom", record)
                world.answer(world.run, name, stage, exchange.CLIENTS[name])
        keys = [secret for secret in drawn if len(secret) == 32]
        held = find(keys, world.folder / exchange.A)
        assert set(held) == ({world.state()} if stage < Stage.OPEN else set())
        # The key of the noise goes with the numbers: who has it can test guesses of them.
        noise_key = msgspec.msgpack.decode(world.state().read_bytes())["noise_key"]
        assert bool(noise_key) == (stage < Stage.MASK)
        assert find(keys, world.run) == []
        world.advance(world.run)
    assert len(keys) == 4  # two agreement keys, the own mask, the key of the noise
    assert find(keys, world.folder) == []


@pytest.mark.parametrize("stage", list(Stage)[:4], ids=list(STEPS.values())[:4])
def test_no_key_is_left_after_abandon(exact_steps, commands, stage):
    with exchange.copied(exact_steps[stage, "advance"]) as world:
        fields = msgspec.msgpack.decode(world.state().read_bytes())
        secrets = [fields[name] for name in ("mask_key", "box_key")]
        assert set(find(secrets, world.folder)) == {world.state()}
        (done,) = commands({"arguments": world.arguments(exchange.A, "abandon", "--yes")})
        assert done.out.startswith(f"Abandoned the evaluation in {world.run}\n")
        assert find(secrets, world.folder) == []


@pytest.mark.parametrize(
    "stage", [Stage.ADVERTISE, Stage.SHARE, Stage.MASK], ids=lambda s: STEPS[s]
)
def test_the_same_command_twice_at_once(noisy_steps, commands, stage):
    """Two answers to one request, with other keys or other noise, must never both leave."""
    with exchange.copied(noisy_steps[stage, "answer"]) as world:
        meet = world.folder / "meet"
        meet.mkdir()
        request = {"arguments": world.arguments(exchange.A, STEPS[stage]), "meet": str(meet)}
        done = commands(request, request)
        assert 0 in [each.code for each in done], done
        sent = {path.read_bytes() for path in meet.glob("sent-*")}
        assert len(sent) == 1
        assert world.reply(stage).read_bytes() in sent
        world.advance(world.run)
        assert world.finish(stage + 1).clients == 3
        assert_spent_once(world)
