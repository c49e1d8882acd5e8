"""The file exchange between processes: a whole evaluation, who vanishes, what is not joined.
Commands run in processes of their own, as `commands_child.py` starts them. `fedgauge` itself runs
in tests/test_docs.py."""

import json
import re
import shutil

import numpy as np
import pytest
from commands import Done
from consortium import COORDINATOR, NAMES, A, B, C, D
from counts import counts_of
from exchange import (
    CLIENTS,
    EXACT,
    NOISY,
    assert_refused,
    assert_right,
    begun,
    copied,
    every_stage,
    later_stages,
    make_world,
)
from plans import plan_for
from sites import open_policy

import fedgauge as fg
from fedgauge.engines.participant import STEPS
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.secagg import Stage
from fedgauge.site import Site, add_trust, create_site

pytestmark = pytest.mark.usefixtures("few_redraws")
VERBS = [*STEPS.values(), "start", "advance", "abandon", "status"]
FOUR = {"bins": 8, "cohort": fg.Cohort(4, 1)}
OF_SUBJECTS = fg.DistributedDP(0.5, unit="subject", max_per_unit=3)


def test_a_whole_evaluation_by_commands(world, commands):
    """Four sites, of which one leaves before it submits."""

    def step(name, verb, *more):
        (done,) = commands({"arguments": world.arguments(name, verb, *more)})
        return done

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
    assert "16 whole numbers, once" in joined
    assert joined.endswith(f"Joined: {world.reply(Stage.ADVERTISE)}\n")
    assert "Waiting for the coordinator:\n  fedgauge exchange advance" in step(A, "status").out
    assert "Round 2 of 5, share: 0 of 4 answered" in step(COORDINATOR, "advance").out
    assert round_of("share", B, C, D) == f"Answered: {world.reply(Stage.SHARE)}\n"
    assert step(COORDINATOR, "advance", "-q") == Done(0, "", "")
    told = "Counted 60 rows: 21 positive, 0 clipped into the end bins, 0 odd\n"
    assert round_of("submit", B, C) == f"{told}Submitted: {world.reply(Stage.MASK)}\n"
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
    saved, key = world.run / "result.json", key_to_text(world.keys[COORDINATOR])
    check = ["verify", str(saved), "--key", key]
    told_to_check = f"Signed. Readers check it:\n  fedgauge {' '.join(check)}\n"
    assert told.out == f"{result}\nSaved {saved}\n{told_to_check}"
    (checked,) = commands({"arguments": check})
    assert checked.out.startswith(f"verified: signed by {key}, confirmed by 3 of 3 sites\n")
    assert_right(result, world, [A, B, C])
    assert result.clients == 3
    late = [step(D, "submit"), step(COORDINATOR, "advance"), step(A, "status")]
    assert late[0].code == 1  # it was asked, and would have paid for nothing
    assert f"the evaluation in {world.run} is finished" in late[0].err
    assert late[1] == Done(
        1, "", f"fedgauge: the evaluation is finished: its result is {world.run}/result.json.\n"
    )
    assert "Finished: the result is in result.json" in late[2].out
    assert json.loads((world.run / "result.json").read_bytes())["privacy"]["claim"] == "enforced"


@every_stage
@pytest.mark.parametrize("plan", [EXACT, NOISY], ids=["exact", "noisy"])
def test_a_site_vanishes(folder, commands, plan, stage):
    world = make_world(folder, plan=plan)

    def run(*steps):
        return commands(*({"arguments": world.arguments(*step)} for step in steps))

    assert run((COORDINATOR, "start"))[0].code == 0
    for now in Stage:
        present = NAMES if now < stage else NAMES[:3]
        assert {done.code for done in run(*((name, STEPS[now]) for name in present))} == {0}
        if now == stage:
            (status,) = run((B, "status"))
            assert f"Waiting for {D}:\n  fedgauge exchange {STEPS[now]} " in status.out
            (waiting,) = run((COORDINATOR, "advance"))
            assert waiting.code == 1
            assert f"waits for {D} to {STEPS[now]}" in waiting.err
            assert not (world.run / "result.json").exists()
            needs_it = plan is EXACT and stage == Stage.AGREE
            assert ("--without-missing" in waiting.err) is not needs_it
        (advanced,) = run((COORDINATOR, "advance", "--without-missing"))
        if now == stage and needs_it:  # it is not opened without the vote of everybody in it
            assert advanced.code == 1
            assert "3 members answered and 4 are needed" in advanced.err
            assert not (world.run / "result.json").exists()
            return
        assert advanced.code == 0, advanced.err
    names = NAMES[:3] if stage <= Stage.MASK else NAMES
    result = fg.Evaluation.from_json(world.run / "result.json")
    assert result.clients == len(names)
    if plan is EXACT:
        assert_right(result, world, names)


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


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (plan_for(bins=8, cohort=fg.Cohort(2, 1)), "min_cohort"),
        (plan_for(bins=8, cohort=fg.Cohort(3, 1)), "min_cohort"),
        (plan_for(bins=8, cohort=fg.Cohort(4, 3)), "collude"),
        (plan_for(bins=8, cohort=fg.Cohort(4, 0)), "max_colluding"),
        (plan_for(cohort=fg.Cohort(4, 1), bins=8192), "max_bins"),
        (plan_for(**FOUR, privacy=fg.DistributedDP(0.51)), "max_epsilon"),
        (plan_for(**FOUR, privacy=fg.DistributedDP(0.5, delta=1e-5, noise="skellam")), "max_delta"),
        (plan_for(**FOUR, score_sums=True), "score_sums"),
        (plan_for(**FOUR, privacy=fg.DistributedDP(0.5), score_sums=True), "score_sums"),
        (plan_for(**FOUR, privacy=OF_SUBJECTS), "--subject"),
        (plan_for(**FOUR, privacy=fg.DistributedDP(0.5), task=fg.BinaryTask(7)), "(labels)"),
    ],
)
def test_a_plan_that_the_site_file_or_the_rows_do_not_fit(folder, commands, plan, reason):
    world = make_world(folder, policy=open_policy(min_cohort=4, max_epsilon=0.5), plan=plan)
    (started,) = commands({"arguments": world.arguments(COORDINATOR, "start")})
    assert started.code == 0
    (done,) = commands({"arguments": world.arguments(A, "join")})
    assert_refused(world, done, reason)


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
    for name in NAMES:
        add_trust(stranger.path, "peer", name, key_to_text(world.keys[name]))
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


def test_two_plans_for_two_groups_of_sites(world):
    """A coordinator shows half of the sites one plan and half another: neither gives a result."""
    coarse = plan_for(bins=4)
    runs = [world.folder / "one", world.folder / "two"]
    for run, plan in zip(runs, (EXACT, coarse), strict=True):
        world.start(run, plan)
    for name in NAMES:
        own = runs[NAMES.index(name) // 2]
        world.answer(own, name, Stage.ADVERTISE)
        # The coordinator passes all replies on to both runs.
        other = runs[1 - NAMES.index(name) // 2]
        shutil.copy(own / world.file_name(Stage.ADVERTISE, name), other)
    for run in runs:
        assert len(world.exchange(run).progress().set_aside) == 2
        with pytest.raises(fg.CohortTooSmall, match="2 members answered and 3 are needed"):
            world.advance(run, without_missing=True)


def test_two_evaluations_at_once(world):
    """Sessions of one site do not touch each other. Both are over all sites or over none, so the
    other one leaves nothing open."""
    plan = plan_for(bins=8, cohort=fg.Cohort(4, 1))
    runs = [world.folder / "one", world.folder / "two"]
    for run in runs:
        world.start(run, plan)
    for stage in Stage:
        for run in runs:
            for name in NAMES:
                world.answer(run, name, stage, CLIENTS[name])
            result = world.advance(run)
            if stage == Stage.OPEN:
                np.testing.assert_array_equal(counts_of(result), world.truth())
    assert len(list((world.folder / A / "sessions").glob("*.client"))) == 2


def test_a_site_that_joined_does_not_join_with_other_rows_and_may_name_its_own_again(
    exact_steps, commands
):
    with copied(exact_steps[Stage.MASK, "answer"]) as world:
        data = [str(world.folder / f"{A}.csv"), "--label", "y", "--score", "p"]
        (done,) = commands({"arguments": world.arguments(A, "submit", *data)})
        assert (done.code, done.err) == (0, "")
        assert done.out.endswith(f"\nSubmitted: {world.reply(Stage.MASK)}\n")
    with copied(exact_steps[Stage.MASK, "answer"]) as world:
        site = ["--site", str(world.site_file(A))]
        other = [str(world.folder / f"{B}.csv"), "--label", "y", "--score", "p", *site]
        (done,) = commands({"arguments": ["exchange", "join", str(world.run), *other]})
        assert (done.code, done.out) == (1, "")
        assert "this site joined with" in done.err
        (done,) = commands({"arguments": world.arguments(A, "submit")})
        assert done.code == 0


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ([f"{B}.csv", "--label", "y", "--score", "p"], "this site joined with"),
        ([f"{A}.csv", "--label", "p", "--score", "y"], "this site joined with"),
        ([f"{A}.csv", "--label", "y", "--score", "p", "--subject", "y"], "this site joined with"),
        ([f"{A}.csv"], "a file needs --label and --score"),
        ([f"{A}.csv", "--label", "y"], "a file needs --label and --score"),
        (["--label", "y"], "there are columns but no file"),
        (["--subject", "y"], "there are columns but no file"),
    ],
)
def test_other_rows_than_those_named_at_join_are_refused(exact_steps, commands, more, told):
    with copied(exact_steps[Stage.MASK, "answer"]) as world:
        before = world.entries(A)
        named = [str(world.folder / word) if word.endswith(".csv") else word for word in more]
        (done,) = commands({"arguments": world.arguments(A, "submit", *named)})
        assert done.code in (1, 2)
        assert told in done.err
        assert world.entries(A) == before
        assert not world.reply(Stage.MASK).exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "no such file"),
        ("y,q\n1,0.5\n", "'p'"),
        ("y,p\n1,high\n0,low\n", "Check which column holds the score"),
    ],
    ids=["file", "column", "type"],
)
@pytest.mark.parametrize("plan", [EXACT, NOISY], ids=["exact", "noisy"])
def test_a_file_that_cannot_be_read_is_not_joined_with(folder, commands, plan, text, reason):
    """Nothing is reserved: file, columns and types are no matter of rows."""
    world = begun(folder, plan=plan)
    path = world.folder / f"{A}.csv"
    path.unlink()
    if text is not None:
        path.write_text(text)
    (done,) = commands({"arguments": world.arguments(A, "join")})
    assert_refused(world, done, reason)


@pytest.mark.parametrize("verb", ["join", "advance", "status", "abandon"])
def test_empty_folder(world, commands, verb):
    world.run.mkdir()
    (done,) = commands({"arguments": world.arguments(A, verb)})
    assert done == Done(
        1,
        "",
        f"fedgauge: there is no invitation.fgx in {world.run}. Get it from the coordinator, who "
        "makes it with `fedgauge exchange start`, and again with `fedgauge exchange advance`.\n",
    )


def test_a_lost_invitation_by_command(world, commands):
    sessions = [world.start(run, EXACT).hex() for run in (world.run, world.folder / "other")]
    path = world.run / "invitation.fgx"
    before = path.read_bytes()
    path.unlink()
    (done,) = commands({"arguments": world.arguments(COORDINATOR, "advance")})
    assert (done.code, path.exists()) == (1, False)
    assert all(session[:8] in done.err for session in sessions)
    chosen = ("--evaluation", sessions[0][:8])
    (done,) = commands({"arguments": world.arguments(COORDINATOR, "advance", *chosen)})
    assert "round 1 of 5 waits for" in done.err
    assert path.read_bytes() == before


@later_stages
def test_verb_before_its_round(exact_steps, commands, stage):
    with copied(exact_steps[Stage.ADVERTISE, "answer"]) as world:
        (done,) = commands({"arguments": world.arguments(B, STEPS[stage])})
        assert done.code == 1
        assert re.fullmatch(
            rf"fedgauge: there is no request to {STEPS[stage]} for this site .* yet: .*\n", done.err
        )


def test_advance_by_a_site_and_start_where_an_exchange_is_are_refused(exact_steps, commands):
    with copied(exact_steps[Stage.ADVERTISE, "advance"]) as world:
        (done,) = commands({"arguments": world.arguments(A, "advance")})
        assert done.code == 1
        assert f"site '{A}' did not start this exchange" in done.err
    with copied(exact_steps[Stage.ADVERTISE, "advance"]) as world:
        before = world.published()
        (done,) = commands({"arguments": world.arguments(COORDINATOR, "start")})
        assert done.code == 1
        assert "holds an exchange already" in done.err
        assert world.published() == before


@pytest.mark.parametrize("verb", VERBS)
def test_run_folder_that_is_a_file(world, commands, verb):
    world.run.write_text("")
    name = COORDINATOR if verb in ("start", "advance") else A
    (done,) = commands({"arguments": world.arguments(name, verb)})
    assert done.code in (1, 2), done.err
    assert re.fullmatch(r"fedgauge: .+\n", done.err)
