"""What a site's operator is told of rows and of costs, and what is refused when it is over. Nothing
that is told changes what is sent, and nothing is charged for what no longer counts."""

import re
import shlex
import shutil

import msgspec
import pytest
from commands import complaint, run
from consortium import COORDINATOR, NAMES, A, B, C, D
from exchange import CLIENTS, EXACT, NOISY, begun, copied, every_stage, make_world
from sites import open_policy

import fedgauge as fg
from fedgauge.data.files import ScoreFile
from fedgauge.engines.exchange import Exchange, join, submit
from fedgauge.engines.participant import Participant
from fedgauge.keys import SigningKey
from fedgauge.results import signature
from fedgauge.results.record import Record
from fedgauge.secagg import Confirmed, Stage

pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")
PLANS = {"noisy": NOISY, "exact": EXACT}
both = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
COUNTED = "60 rows: 21 positive, 0 clipped into the end bins, 0 odd"


def check(world, name=A, code=0):
    named = [world.run, world.folder / f"{name}.csv", "--label", "y", "--score", "p"]
    done = run("exchange", "check", *named, "--site", world.site_file(name), columns=400)
    assert done.exit_code == code, done.output
    return done


def everything(world):
    """All files but those of SQLite that come and go, and what the ledger of each site says."""
    files = {
        path: path.read_bytes()
        for path in world.folder.rglob("*")
        if path.is_file() and "sqlite" not in path.name
    }
    entries = {name: list(world.site(name).ledger.entries()) for name in world.names}
    return files, entries


def spoil(world, change, name=A):
    path = world.folder / f"{name}.csv"
    rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
    path.write_text("y,p\n" + "".join(f"{change(*row)}\n" for row in rows))


@both
def test_check_sends_reserves_and_stores_nothing(folder, plan):
    world = begun(folder, NAMES[:3], plan)
    before = everything(world)
    told = check(world).stdout
    assert everything(world) == before
    assert f"{A}.csv would count as {COUNTED}" in told
    assert "Asked for by consortium, of 3 sites" in told
    assert "keep it at this site" in told
    assert told.endswith("This site can join.\n")
    costs = "After this evaluation: epsilon 1" if plan is NOISY else "Exact sums on stroke-2026: 0."
    assert costs in told


def test_check_counts_as_submit_does(folder):
    """Rows of every odd kind; nothing about them stops a site under noise."""
    world = begun(folder, NAMES[:3], NOISY)
    path = world.folder / f"{A}.csv"
    path.write_text(path.read_text() + "1,high\nperhaps,0.5\n,0.5\n1,7\n1,0.5,0.5\n")
    checked = check(world)
    world.play(world.run, world.clients, until=Stage.SHARE)
    done = run(*world.arguments(A, "submit"), columns=400)
    counted = "64 rows: 23 positive, 1 clipped into the end bins, 3 odd; 1 left out"
    assert f"would count as {counted}\n" in checked.stdout
    assert done.stdout.startswith(f"Counted {counted}\n")
    assert done.stderr == checked.stderr
    assert len(done.stderr.splitlines()) == 5
    assert not re.search("high|perhaps", done.stderr)
    sizes = {world.answer(world.run, name, Stage.MASK).stat().st_size for name in (B, C)}
    assert sizes == {world.reply(Stage.MASK).stat().st_size}
    world.advance(world.run)
    assert world.finish(Stage.AGREE).clients == 3


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (open_policy(max_epsilon=0.5), "max_epsilon"),
        (open_policy(models=("secure-aggregation",)), "not among those allowed"),
        (open_policy(budget_epsilon=0.5), "does not allow this"),
    ],
)
def test_check_says_why_the_site_would_refuse(folder, policy, told):
    world = begun(folder, NAMES[:3], NOISY, policy)
    done = check(world, code=1)
    assert re.search(rf"Refuses it: .*{told}", done.stdout)
    assert "This site can join" not in done.stdout
    assert told in complaint(run(*world.arguments(A, "join")))


def test_check_of_a_strangers_invitation_reads_no_plan(folder):
    world = begun(folder, NAMES[:3], NOISY)
    path = world.site_file(A)
    text = path.read_text()
    path.write_text(text[: text.index("[[coordinators]]")])
    done = check(world, code=1)
    assert "the coordinator is not approved here" in done.stdout
    assert "would count as" not in done.stdout


def test_check_says_that_rows_changed_since_the_last_exact_sum(folder):
    world = begun(folder, NAMES[:3], EXACT, open_policy(min_new_rows=100))
    world.finish()
    shutil.move(world.run, world.folder / "before")
    world.start(world.run, EXACT)
    assert check(world).stderr == ""
    path = world.folder / f"{A}.csv"
    path.write_text(path.read_text() + "1,0.5\n")
    refused = complaint(run(*world.arguments(A, "join")))
    assert refused.removeprefix("fedgauge: ").rstrip() in check(world, code=1).stdout


@both
def test_join_reads_and_shows_rows_of_exact_sums_alone(folder, monkeypatch, plan):
    world, read = make_world(folder, NAMES[:3], plan), []
    world.start(world.run, plan)
    monkeypatch.setattr(ScoreFile, "__call__", reading(read, ScoreFile.__call__))
    monkeypatch.setattr(ScoreFile, "leniently", reading(read, ScoreFile.leniently))
    done = run(*world.arguments(A, "join"))
    assert done.exit_code == 0
    assert (f"Counted {COUNTED}\nJoined:" in done.stdout) == bool(read) == (plan is EXACT)


def reading(read, method):
    """Notes that rows are read."""
    return lambda *arguments: read.append(method) or method(*arguments)


def test_odd_rows_do_not_stop_join_to_an_exact_sum(folder):
    """A refusal there would be an answer about rows that costs the asker nothing."""
    world = begun(folder, NAMES[:3], EXACT)
    spoil(world, lambda y, p: f"{y if float(p) < 0.4 else ''},{p}")
    done = run(*world.arguments(A, "join"))
    assert done.exit_code == 0
    assert "an exact sum stops at them, at `submit`" in done.stderr
    assert world.entries(A) == ["reserve"]


@both
@pytest.mark.parametrize("stage", [Stage.ADVERTISE, Stage.MASK], ids=["join", "submit"])
def test_who_cannot_be_told_answers_all_the_same(folder, plan, stage):
    world = begun(folder, NAMES[:3], plan)
    spoil(world, lambda y, p: f"{y},{100 * float(p)}")
    if stage > Stage.ADVERTISE:
        world.play(world.run, world.clients, until=Stage(stage - 1))

    def closed(_):
        raise SystemExit(1)

    site = world.site(A)
    exchange = Exchange(world.run, site)
    if stage == Stage.ADVERTISE:
        join(exchange, site, world.rows(A), tell=closed, show=closed)
    else:
        submit(exchange, site, tell=closed, show=closed)
    other = world.answer(world.run, B, stage)
    assert world.reply(stage).stat().st_size == other.stat().st_size
    assert world.entries(A) == world.entries(B)


def test_clipped_scores_are_told_in_an_exact_sum_too(folder):
    world = begun(folder, NAMES[:3], EXACT)
    spoil(world, lambda y, p: f"{y},{100 * float(p)}")
    world.play(world.run, world.clients, until=Stage.SHARE)
    done = run(*world.arguments(A, "submit"), columns=400)
    assert done.exit_code == 0
    assert "59 clipped into the end bins" in done.stdout
    assert (
        "59 of 60 scores lie beyond the axis: counted in its end bins. It goes from" in done.stderr
    )


def test_a_log_is_told_of_odd_rows_alone(noisy_steps):
    """As at a Flower node: how many rows there are, and of which class, is for a screen."""
    with copied(noisy_steps[Stage.MASK, "answer"]) as world:
        exchange, told = world.exchange(world.run, A), []
        request = exchange.request_to_me(exchange.invitation(), Stage.MASK)
        rows = ([0] * 9, [0.5] * 8 + [7.0])
        Participant(world.site(A), lambda: rows, tell=told.append).answer(request)
        assert told == ["1 of 9 scores lie beyond the axis: counted in its end bins."]


def test_what_was_submitted_first_stands(noisy_steps):
    with copied(noisy_steps[Stage.MASK, "answer"]) as world:
        first = run(*world.arguments(A, "submit"))
        assert "Submitted:" in first.stdout
        before = everything(world)
        spoil(world, lambda y, p: f"{y},{float(p) / 2}")
        again = run(*world.arguments(A, "submit"))
        assert (again.exit_code, again.stdout) == (0, "")
        assert "its first input stands" in again.stderr
        spoil(world, lambda y, p: f"{y},{float(p) * 2}")
        assert everything(world) == before
        sent = world.reply(Stage.MASK).read_bytes()
        for lost in ([], [world.folder / f"{A}.csv"]):  # the reply on the way, and then the rows
            for path in (world.reply(Stage.MASK), *lost):
                path.unlink()
            assert run(*world.arguments(A, "submit", "-q")).exit_code == 0
            assert world.reply(Stage.MASK).read_bytes() == sent
            assert lost or everything(world) == before


@pytest.fixture
def late(folder):
    """Four sites, of which the last joined and fell silent, and one was told of it too late."""
    world = begun(folder, plan=NOISY)
    for name in NAMES:
        world.answer(world.run, name, Stage.ADVERTISE)
    for stage in list(Stage)[1:]:
        world.advance(world.run, without_missing=True)
        for name in NAMES[:3] if stage > Stage.SHARE else NAMES:
            world.answer(world.run, name, stage, CLIENTS[name])
    return world


def test_a_late_site_pays_nothing(late):
    late.advance(late.run, without_missing=True)
    for verb in ("submit", "join", "check"):
        named = [late.folder / f"{D}.csv", "--label", "y", "--score", "p"] * (verb == "check")
        told = complaint(run(*late.arguments(D, verb, *named)), code=1)
        assert f"the evaluation in {late.run} is finished" in told
        assert f"fedgauge exchange abandon {late.run} gives back" in told.replace("`", "")
    assert late.entries(D) == ["reserve"]
    assert run(*late.arguments(D, "abandon")).exit_code == 0
    assert late.entries(D) == ["reserve", "release"]


def test_a_site_that_never_joined_is_told_that_it_is_over(folder, monkeypatch):
    """Only a plan from a coordinator one trusts is worth the work of reading it."""
    world = begun(folder, plan=NOISY)
    world.finish(skip=[D])
    told = complaint(run(*world.arguments(D, "join")), code=1)
    assert "is finished" in told
    assert "gives back" not in told
    assert world.entries(D) == []
    path = world.site_file(D)
    text = path.read_text()
    path.write_text(text[: text.index("[[coordinators]]")])
    monkeypatch.setattr(fg.EvaluationPlan, "from_bytes", None)
    assert "the coordinator is not approved" in complaint(run(*world.arguments(D, "join")))


def signed_by(key, run):
    """The result of another run, signed anew by a key."""
    record = fg.Evaluation.from_json(run / "result.json").record
    parts = msgspec.structs.astuple(msgspec.convert(record.proof, signature.Proof))[:-1]
    return msgspec.structs.replace(record, proof=signature.prove(record, parts, key)).to_json()


def unsigned(result):
    fields = msgspec.json.decode(result)
    del fields["proof"]
    return msgspec.json.encode(fields)


FORGED = {
    "nothing": lambda *_: b"",
    "junk": lambda *_: b"\xff\x00",
    "a list": lambda *_: b"[1]",
    "no result": lambda *_: b"{}",
    "a cut one": lambda _, result: result[:-100],
    "an unsigned one": lambda _, result: unsigned(result),
    "of another evaluation": lambda _, result: result,
    "by another key": lambda world, _: signed_by(SigningKey.generate(), world.folder / "before"),
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_result_stops_nobody(folder, kind):
    """Whoever can write to the folder could keep a site from answering, and none would know why."""
    world = begun(folder, NAMES[:3], NOISY)
    world.finish()
    shutil.move(world.run, world.folder / "before")
    world.start(world.run, NOISY)
    forged = FORGED[kind](world, (world.folder / "before" / "result.json").read_bytes())
    for stage in Stage:
        (world.run / "result.json").write_bytes(forged)
        status = run(*world.arguments(A, "status")).stdout
        assert "Finished" not in status
        assert "Set aside result.json: " in status
        for name in world.names:
            world.answer(world.run, name, stage)
        world.advance(world.run)
    assert "Finished" in run(*world.arguments(A, "status")).stdout


def test_nothing_is_built_from_a_result_that_is_not_signed(noisy_steps, monkeypatch):
    """Its plan could be as large as plans can be."""
    with copied(noisy_steps[Stage.OPEN, "advance"]) as world:
        world.advance(world.run)
        path = world.run / "result.json"
        edited = msgspec.json.decode(path.read_bytes())
        edited["clients"] += 1
        monkeypatch.setattr(Record, "from_json", None)
        holed, listed = edited | {"slices": [None]}, edited | {"slices": [[1]]}
        for forged in ({"proof": {"invitation": ""}}, edited, holed, listed):
            path.write_bytes(msgspec.json.encode(forged))
            assert not world.exchange(world.run).progress().finished


def test_a_coordinator_alone_ends_nothing(folder):
    """What it signs without its members' votes is no result."""
    world = begun(folder, NAMES[:3], NOISY)
    world.finish()
    path = world.run / "result.json"
    record = fg.Evaluation.from_json(path).record
    parts = Confirmed(*msgspec.structs.astuple(msgspec.convert(record.proof, signature.Proof))[:-1])
    alone = signature.prove(record, parts._replace(votes=()), world.site(COORDINATOR).key)
    path.write_bytes(msgspec.structs.replace(record, proof=alone).to_json())
    assert "too few of its sites confirmed it" in run(*world.arguments(A, "status")).stdout
    assert not world.exchange(world.run).progress().finished


@every_stage
def test_a_site_and_the_coordinator_are_asked_once_something_is_spent(noisy_steps, stage):
    with copied(noisy_steps[stage, "advance"]) as world:
        before = everything(world)
        done = run(*world.arguments(A, "abandon"))
        asked = Stage.MASK <= stage < Stage.OPEN
        assert done.exit_code == asked
        assert (everything(world) == before) == asked
        if asked:
            assert f"{A} sent its numbers" in complaint(done, code=1)
            assert run(*world.arguments(A, "abandon", "--yes")).exit_code == 0
        assert not list((world.folder / A / "sessions").glob("*.client"))
    with copied(noisy_steps[stage, "answer"]) as world:
        asked = stage >= Stage.MASK
        done = run(*world.arguments(COORDINATOR, "abandon"))
        assert done.exit_code == asked
        if asked:
            paid = 2 if stage == Stage.MASK else 3
            assert f"{paid} sites have spent budget" in complaint(done, code=1)
            state = list((world.folder / COORDINATOR / "sessions").glob("*.server"))
            assert len(state) == 1
            again = [*world.arguments(COORDINATOR, "restart", world.folder / "new"), "--without", C]
            assert f"{paid} sites have spent epsilon 1" in complaint(run(*again), code=1)
            assert not (world.folder / "new").exists()


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("", 1)])
def test_whoever_sits_there_is_asked(noisy_steps, monkeypatch, answer, code):
    with copied(noisy_steps[Stage.MASK, "advance"]) as world:
        monkeypatch.setattr("fedgauge.cli.terminal.someone_is_there", lambda: True)
        done = run(*world.arguments(A, "abandon"), typed=answer)
        assert done.exit_code == code
        assert "Do it anyway?" in done.output
        assert bool(list((world.folder / A / "sessions").glob("*.client"))) == bool(code)


def test_a_site_that_was_only_late_finishes_the_fifth_round(noisy_steps):
    with copied(noisy_steps[Stage.OPEN, "answer"]) as world:
        for option in ([], ["--without-missing"]):
            told = complaint(run(*world.arguments(COORDINATOR, "advance", *option)), code=1)
            assert "All sites have spent their budget" in told
            assert "start again." not in told
        status = run(*world.arguments(A, "status")).stdout
        assert "All of them have spent their budget: wait." in status
        world.answer(world.run, A, Stage.OPEN)
        assert world.advance(world.run).clients == 3


def test_the_commands_that_status_prints_work_when_copied(folder):
    """In a folder whose name a shell would take apart."""
    world = begun(folder / "a folder's name", NAMES[:3], NOISY)
    for _ in Stage:
        for name in world.names:
            done = run(*words_of(copied_command(world, name), world, name))
            assert done.exit_code == 0, done.output
        done = run(*words_of(copied_command(world, COORDINATOR), world, COORDINATOR))
        assert done.exit_code == 0, done.output
    assert "Finished" in run(*world.arguments(A, "status")).stdout


def copied_command(world, name):
    told = run(*world.arguments(name, "status"), columns=1000).stdout
    (command,) = re.findall(r"^  fedgauge (exchange .*)$", told, flags=re.MULTILINE)
    assert command.endswith(f"--site {shlex.quote(str(world.site_file(name)))}")
    return command


def words_of(command, world, name):
    """The command, with the file and the columns that only who types it knows."""
    known = {"--label COLUMN": "--label y", "--score COLUMN": "--score p"}
    known["FILE"] = shlex.quote(str(world.folder / f"{name}.csv"))
    for word, meaning in known.items():
        command = command.replace(word, meaning)
    return shlex.split(command)
