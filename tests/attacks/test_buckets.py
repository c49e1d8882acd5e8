"""A folder at an address is in the hands of whoever runs the bucket, and of all who may write to
it. They can make an evaluation late. They stop nothing for good, and learn what a folder shows."""

import json
import logging
import re
import traceback

import pytest
from commands import complaint, run
from consortium import COORDINATOR, A, B, C
from exchange import CLIENTS, EXACT
from refusals import refused

pytest.importorskip("fsspec", reason="there is no fsspec: pip install 'fedgauge[remote]'")

from buckets import SECRET, THREE, Bucket, Errors, RemoteWorld, Strangers, put

import fedgauge as fg
from fedgauge.engines.coordinator import Coordinator, EvaluationSeries
from fedgauge.engines.exchange import Exchange
from fedgauge.engines.folder import open_folder
from fedgauge.keys import key_to_text
from fedgauge.plan import plan as plans
from fedgauge.secagg import Stage
from fedgauge.site import add_trust, create_site

pytestmark = pytest.mark.usefixtures("few_redraws")
TWO = fg.EvaluationPlan.for_histogram(
    fg.TwoRound(6, share=0.4, coarse=fg.Axis.uniform(16, outside="clip")),
    fg.Cohort(3, 1),
    privacy=fg.DistributedDP(1.0),
)
VERBS = ["share", "submit", "confirm", "reveal", "status", "advance", "abandon", "review"]


@pytest.fixture
def world(folder):
    Bucket.reset()
    made = RemoteWorld.make(folder, THREE)
    made.write_data()
    EXACT.save(folder / "plan.json")
    yield made
    Bucket.reset()


class Always(Errors):
    rate = 1.0


def go_on(world, session, since=Stage.ADVERTISE):
    for stage in Stage:
        if stage >= since:
            for name in THREE:
                world.answer(world.run, name, stage, CLIENTS[name])
            result = world.coordinator(world.run).advance(evaluation=session.hex())
    return result


@pytest.mark.parametrize("verb", [*VERBS, "join", "start"])
def test_no_command_repeats_what_a_driver_says(world, verb, caplog):
    """Drivers put addresses with passwords into their errors."""
    world.start(world.run, EXACT)
    Bucket.faults = Always(0)
    with caplog.at_level(logging.DEBUG):
        told = complaint(run(*world.arguments(A, verb)), 1)
    assert "bucket://run" in told
    assert "credentials in the environment" in told
    assert SECRET not in told + caplog.text


KINDS = [OSError, PermissionError, FileNotFoundError, FileExistsError, TimeoutError, KeyError]


@pytest.mark.parametrize("kind", KINDS)
def test_no_error_carries_what_a_driver_says(world, kind):
    """Nor does the traceback of a program that uses fedgauge."""
    world.start(world.run, EXACT)
    invitation = world.exchange(world.run).invitation()
    Bucket.faults = Always(0)
    Bucket.faults.kind = kind
    folder = open_folder(world.run)
    told = []
    for call in (
        folder.missing,
        folder.names,
        folder.folders,
        lambda: folder.holds("a.fgx"),
        lambda: folder.read("a.fgx", 9),
        lambda: [*folder.versions("a.fgx", 9)],
        lambda: folder.write("a.fgx", b""),
        lambda: folder.write_new("a.fgx", b""),
        lambda: world.exchange(world.run).progress(),
        lambda: world.exchange("bucket://new").write_first(invitation),
    ):
        try:
            call()
        except (fg.ExchangeError, FileExistsError) as error:
            told += traceback.format_exception(error)
    assert len(told) > 20
    assert SECRET not in "".join(told)


@pytest.mark.parametrize(
    "address",
    [
        f"sftp://user:{SECRET}@server/run",
        f"s3://KEY:{SECRET}@bucket/run",
        f"sftp://user:a/{SECRET}@server/run",
        f"sftp://user:a@{SECRET}@server/run",
        f"https://store/run?X-Amz-Signature={SECRET}",
        f"abfs://run@account/folder#{SECRET}",
        f"simplecache::s3://{SECRET}/run",
        f"file:///srv/{SECRET}",
        f"s3://bucket/{SECRET}\x1b[2J",
        f"s3://bucket/{SECRET}\nsaved",
    ],
)
@pytest.mark.parametrize("verb", ["status", "join", "start", "advance"])
def test_an_address_that_may_hold_a_secret_is_refused_and_not_repeated(world, address, verb):
    world.run = address
    told = complaint(run(*world.arguments(A, verb)))
    assert SECRET not in told
    assert "in fsspec's own configuration" in told


def test_an_address_that_cannot_be_used(world):
    world.run = "nothing://bucket/run"
    assert "no folder is at nothing://" in complaint(run(*world.arguments(A, "status")))


def stranger_of(folder):
    """Somebody with a site of their own, whom nobody trusts, but who may write to the bucket."""
    return create_site(folder / "stranger", name="stranger", dataset="none")


def test_a_stranger_replaces_the_invitation(world):
    """Sites follow who they know, and the coordinator puts its own beside it."""
    session = world.start(world.run, EXACT)
    for name in THREE:
        world.answer(world.run, name, Stage.ADVERTISE)
    stranger = stranger_of(world.folder)
    for name in THREE:
        add_trust(stranger.path, "peer", name, key_to_text(world.keys[name]))
    other = Coordinator(Exchange("bucket://other", stranger), stranger)
    forged = other.start(EXACT, list(world.keys.values())[1:]).invitation
    put("invitation.fgx", forged.data)
    refused(fg.PlanRefused, "not approved", world.answer, world.run, A, Stage.ADVERTISE)
    world.advance(world.run)
    assert world.exchange(world.run, A).invitation().session == session
    world.assert_right(go_on(world, session, Stage.SHARE))
    assert Bucket.store["/run/invitation.fgx"].getvalue() == forged.data


def test_an_old_invitation_is_put_back(world):
    """Sites know its coordinator, too. The name of the folder says which evaluation is in it."""
    old = world.start("bucket://old", EXACT)
    world.answer("bucket://old", A, Stage.ADVERTISE)
    session = world.start(world.run, EXACT)
    world.run = f"bucket://2026-11-19-{session.hex()[:8]}"
    within = f"/2026-11-19-{session.hex()[:8]}"
    put("invitation.fgx", Bucket.store["/run/invitation.fgx"].getvalue(), within)
    for name in THREE:
        world.answer(world.run, name, Stage.ADVERTISE)
    put("invitation.fgx", Bucket.store["/old/invitation.fgx"].getvalue(), within)
    assert world.exchange(world.run, A).invitation().session == old
    world.coordinator(world.run).advance(evaluation=session.hex())
    assert world.exchange(world.run, A).invitation().session == session
    world.assert_right(go_on(world, session, Stage.SHARE))


def test_a_stranger_takes_every_name_first_in_both_rounds(folder):
    Bucket.reset()
    world = RemoteWorld.make(folder, THREE)
    world.write_data()
    result, _ = world.persist(TWO, Strangers(0))
    assert result.clients == 3
    assert Bucket.forbidden == []
    for name in THREE:
        site = world.site(name)
        total = site.ledger.total(site.dataset, default_limit=site.policy.default_limit)
        assert (total.spent.epsilon, total.reserved.epsilon) == (1.0, 0.0)
    Bucket.reset()


def test_a_flood_of_foreign_objects(world):
    """Huge ones are not fetched, and none of them counts."""
    session = world.start(world.run, EXACT)
    for number in range(300):
        put(f"{number % 5 + 1}-{number}.reply.fgx", b"\x00" * number)
        put(f"{number % 5 + 1}-{number}.request.fgx", b"\x91" * number)
        put(f"{number:016x}.invitation.fgx", b"\x91" * number)
    world.assert_right(go_on(world, session))


def test_a_folder_that_no_address_can_name_is_left_out(world):
    """An agent would stop at it, and at every step again."""
    put("x", b"", "/run/a#b")
    put("x", b"", "/run/good")
    assert open_folder(world.run).folders() == ["good"]
    open_folder(world.run).folder("good")


def test_a_huge_object_is_not_fetched(world, monkeypatch):
    monkeypatch.setattr("fedgauge.engines.exchange.MOST_BYTES", 1 << 16)
    world.start(world.run, EXACT)
    put("1-!.reply.fgx", bytes((1 << 16) + 1))
    fetched = []
    whole = Bucket.cat_file

    def fetch(self, path, **options):
        fetched.append(path)
        return whole(self, path, **options)

    monkeypatch.setattr(Bucket, "cat_file", fetch)
    progress = world.exchange(world.run).progress()
    assert "larger than 65,536 bytes" in progress.set_aside["1-!.reply.fgx"]
    assert fetched
    assert not any("!" in path for path in fetched)


def test_whoever_runs_the_bucket_reads_no_name_of_rows_or_data(world):
    """They see names of sites, the plan, who answered when, and the result."""
    result = go_on(world, world.start(world.run, EXACT))
    world.assert_right(result)
    seen = b"".join(each.getvalue() + path.encode() for path, each in Bucket.store.items())
    dataset = world.site(A).dataset
    assert dataset == "stroke-2026"
    for secret in (dataset, str(world.folder), ".csv", "site.toml", "ledger"):
        assert secret.encode() not in seen
    for name in THREE:
        assert name.encode() in seen
        key = (world.folder / name / "site.key").read_bytes()
        assert key.strip() not in seen


def test_a_site_that_a_bucket_hides_is_missed_and_nothing_is_lost(world):
    session = world.start(world.run, EXACT)
    for name in THREE:
        world.answer(world.run, name, Stage.ADVERTISE)

    class Hides:
        def listing(self, _, found):
            return [each for each in found if C not in each["name"]]

    Bucket.faults = Hides()
    refused(fg.ExchangeError, f"waits for {C}", world.advance, world.run)
    assert world.exchange(world.run, B).progress().missing == (C,)
    with pytest.raises(fg.FedgaugeError):
        world.advance(world.run, without_missing=True)  # three must stay
    Bucket.faults = None
    world.assert_right(go_on(world, session))


def test_a_made_up_result_takes_the_name_of_the_result(world):
    """Commands show, name and report the true one, which goes beside it."""
    session = world.start(world.run, EXACT)
    forged = fg.evaluate(dict.fromkeys(THREE, CLIENTS[A])).record.to_json()
    put("result.json", forged)
    true = go_on(world, session)
    world.assert_right(true)
    (name,) = (path for path in Bucket.store if re.search(r"[0-9a-f]{16}\.result\.json$", path))
    place = f"bucket:/{name}"
    exchange = world.exchange(world.run)
    assert exchange.result(exchange.invitation()) == Bucket.store[name].getvalue()
    assert exchange.result_path == place
    assert f"result is in {place.rpartition('/')[2]}" in run(*world.arguments(A, "status")).stdout
    told = json.loads(run(*world.arguments(A, "status"), "--json").stdout)
    assert told["result"] == place
    assert place in complaint(run(*world.arguments(A, "join")), 1)
    assert Bucket.store["/run/result.json"].getvalue() == forged


@pytest.mark.parametrize("killed", [False, True])
def test_a_made_up_result_is_there_before_the_run_ends(world, killed):
    """Also for `exchange run` that was killed before it showed its result."""
    site = world.site(COORDINATOR)
    members = [world.keys[name] for name in THREE]
    series = EvaluationSeries("bucket://runs", site, EXACT, members)
    place = series.step(plans.now()).place
    forged = fg.evaluate(dict.fromkeys(THREE, CLIENTS[A])).record.to_json()
    put("result.json", forged, f"/runs/{place}")
    for stage in Stage:
        for name in THREE:
            world.answer(f"bucket://runs/{place}", name, stage, CLIENTS[name])
        finished = series.step(plans.now())
    if killed:
        finished = EvaluationSeries("bucket://runs", site, EXACT, members).step(plans.now())
    world.assert_right(finished.result)
    shown = finished.exchange.result_path.removeprefix("bucket:/")
    assert Bucket.store[shown].getvalue() == finished.result.record.to_json()


def test_a_stranger_takes_the_name_of_the_end(world):
    """Sites see that an attempt was given up, by what the coordinator wrote beside it."""
    world.start(world.run, EXACT)
    put("ended.fgx", b"junk")
    exchange = world.exchange(world.run, A)
    invitation = exchange.invitation()
    assert not exchange.has_ended(invitation)
    world.coordinator(world.run).abandon()
    assert exchange.has_ended(invitation)
