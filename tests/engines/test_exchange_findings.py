"""Rows that look wrong stop a site before it joins: nothing is sent, reserved or spent."""

import re
import sqlite3
from contextlib import closing
from datetime import timedelta

import commands
import numpy as np
import pytest
from consortium import NAMES, A
from exchange import EXACT, NOISY, begun
from sites import open_policy

import fedgauge as fg
from fedgauge.engines.exchange import Exchange, join
from fedgauge.engines.participant import Participant
from fedgauge.engines.review import rehearse
from fedgauge.errors import InputError
from fedgauge.plan import plan as plans
from fedgauge.site.rows import NamedRows

pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")
THREE = NAMES[:3]
STOPS = open_policy(findings="stop")
BOTH = pytest.mark.parametrize("plan", [EXACT, NOISY], ids=["exact", "noisy"])


def rows_of(labels, scores):
    pairs = zip(labels, scores, strict=True)
    return "y,p\n" + "".join(f"{label},{score}\n" for label, score in pairs)


def good(rows=200):
    rng = np.random.default_rng(5)
    labels = (rng.random(rows) < 0.3).astype(int)
    return labels, np.clip(rng.normal(0.35 + 0.25 * labels, 0.2), 0, 1).round(4)


LABELS, SCORES = good()
# What was exported, what the operator is told, and why.
WRONG = {
    "reversed labels": (rows_of(1 - LABELS, SCORES), "AUC of these rows alone is below 0.4"),
    "percent": (rows_of(LABELS, 100 * SCORES), "percentages, logits or points do not fit"),
    "0/1 predictions": (rows_of(LABELS, (SCORES > 0.5).astype(int)), "instead of scores"),
    "three grades": (rows_of(LABELS, (SCORES * 3).round() // 2 / 2), "instead of scores"),
    "words for labels": (rows_of(np.where(LABELS, "ill", "well"), SCORES), "none of 200 rows are"),
    "one class": (rows_of(0 * LABELS, SCORES), "none of 200 rows are positive"),
    "another scale": (rows_of(LABELS, SCORES / 1000), "all scores lie in one bin"),
    "codes 2 and 3": (rows_of(LABELS + 2, SCORES), "rows are positive"),
    "a short export": (rows_of(LABELS[:6], SCORES[:6]), "fewer than 10 rows"),
    "a header": ("y,p\n", ""),
    "three labels": (rows_of(np.arange(200) % 3, SCORES), "labels are neither"),
    "another share": (rows_of(*good(40)) + rows_of([1] * 160, [0.9] * 160)[4:], "positive_rate"),
}


def written(world, text):
    (world.folder / f"{A}.csv").write_text(text)
    return world.rows(A)


def untouched(world):
    site = world.site(A)
    assert site.ledger.entries() == []
    assert [path.name for path in world.run.iterdir()] == ["invitation.fgx"]


@BOTH
@pytest.mark.parametrize("kind", WRONG)
def test_it_stops_before_anything_is_spent(tmp_path, plan, kind):
    text, told = WRONG[kind]
    world = begun(tmp_path, THREE, plan, policy=STOPS)
    path = world.site_file(A)
    rows = written(world, text)
    table = f'[data]\npath = "{rows.path}"\nlabel = "y"\nscore = "p"\npositive_rate = 0.3\n'
    path.write_text(f"{path.read_text()}\n{table}")
    site, said = world.site(A), []
    exchange = Exchange(world.run, site)
    for _ in range(2):  # the second time without reading rows
        with pytest.raises(InputError) as stopped:
            join(exchange, site, tell=said.append)
        untouched(world)
    assert any(told in sentence for sentence in said) or kind == "a header"
    told = str(stopped.value).replace(str(tmp_path), "").replace(plan.digest[:8], "")
    assert not re.search(r"\d", told)


@BOTH
def test_another_hospitals_file_is_stopped(tmp_path, plan):
    """Its columns have other names, or its labels other words."""
    world = begun(tmp_path, THREE, plan, policy=STOPS)
    site = world.site(A)
    theirs = tmp_path / "theirs.csv"
    theirs.write_text(rows_of(LABELS, SCORES).replace("y,p", "outcome,risk"))
    coded = tmp_path / "coded.csv"
    coded.write_text(rows_of(np.where(LABELS, "J", "N"), SCORES))
    for path in (theirs, coded):
        with pytest.raises(InputError):
            join(Exchange(world.run, site), site, NamedRows(str(path), "y", "p"))
        untouched(world)


@BOTH
def test_good_rows_join_without_a_question(tmp_path, plan):
    world = begun(tmp_path, THREE, plan, policy=STOPS)
    rows = written(world, rows_of(LABELS, SCORES))
    site, said = world.site(A), []
    seen = rehearse(Exchange(world.run, site), site, rows)
    assert (seen.judged.findings, seen.stops, seen.is_well) == ((), False, True)
    join(Exchange(world.run, site), site, rows, tell=said.append)
    assert said == []
    assert world.entries(A) == ["reserve"]


def test_the_site_file_decides_before_rows_are_read(tmp_path):
    world = begun(tmp_path, THREE, NOISY, policy=open_policy())
    rows = written(world, rows_of(1 - LABELS, SCORES))
    site = world.site(A)
    seen = rehearse(Exchange(world.run, site), site, rows)
    assert len(seen.judged.findings) == 1
    assert not seen.stops
    join(Exchange(world.run, site), site, rows)
    assert world.entries(A) == ["reserve"]


def test_nothing_stops_a_site_that_has_joined(tmp_path):
    """Silence would tell of rows from then on."""
    world = begun(tmp_path, THREE, NOISY, policy=STOPS)
    for name in THREE:
        world.answer(world.run, name, 1)
    written(world, rows_of(1 - LABELS, SCORES))
    site = world.site(A)
    join(Exchange(world.run, site), site)
    world.advance(world.run)
    assert world.finish(2).clients == 3


def test_rows_that_stopped_a_site_are_judged_anew_once_they_change(tmp_path):
    """Else whoever chooses plans could ask many times, and learn from each stop."""
    world = begun(tmp_path, THREE, NOISY, policy=STOPS)
    path = written(world, rows_of(1 - LABELS, SCORES)).path
    file = world.site_file(A)
    file.write_text(f'{file.read_text()}\n[data]\npath = "{path}"\nlabel = "y"\nscore = "p"\n')
    site = world.site(A)
    stops = "look wrong", "stopped at these rows before"
    for run, reason in zip((world.run, world.folder / "other"), stops, strict=True):
        if run != world.run:
            plan = fg.EvaluationPlan.for_histogram(
                fg.Axis.uniform(16, outside="clip"), fg.Cohort(3, 1), privacy=fg.DistributedDP(0.1)
            )
            world.start(run, plan)
        with pytest.raises(InputError, match=reason):
            join(Exchange(run, site), site)
    written(world, rows_of(LABELS, SCORES))
    join(Exchange(world.run, site), site)
    assert world.entries(A) == ["reserve"]


def declare(world, table):
    file = world.site_file(A)
    file.write_text(f'{file.read_text()}\n[data]\n{table}\nlabel = "y"\nscore = "p"\n')
    return world.site(A)


def up_to(high):
    """A plan whose axis ends there."""
    axis = fg.Axis.uniform(16, high=high, outside="clip")
    return fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3, 1), privacy=fg.DistributedDP(0.1))


def invited(world, name, plan, site):
    world.start(world.folder / name, plan)
    return Exchange(world.folder / name, site)


def test_rows_are_not_weighed_by_one_axis_after_another(tmp_path):
    """Sites join or stop: by halving the axis, that would tell where scores lie, at no cost."""
    world = begun(tmp_path, THREE, NOISY, policy=STOPS)
    site = declare(world, f'path = "{written(world, rows_of(LABELS, SCORES)).path}"')
    found = []
    for number, high in enumerate((1.0, 0.5, 0.25, 0.125)):
        exchange = invited(world, f"run-{number}", up_to(high), site)
        found.append(len(rehearse(exchange, site).judged.findings))
        join(exchange, site)
        Participant(site).abandon(exchange.invitation().session)
    assert found[0] == 0
    assert found[-1] > 0
    assert world.entries(A) == ["reserve", "release"] * 4


def test_a_wrong_plan_stops_other_plans_until_the_operator_looks(tmp_path):
    world = begun(tmp_path, THREE, NOISY, policy=STOPS)
    site = declare(world, f'path = "{written(world, rows_of(LABELS, SCORES)).path}"')
    bad, good = (invited(world, str(high), up_to(high), site) for high in (0.125, 1.0))
    for exchange in (bad, good):
        with pytest.raises(InputError) as stopped:
            join(exchange, site)
    assert f"before, under plan {up_to(0.125).digest[:8]}" in str(stopped.value)
    assert rehearse(bad, site).stops
    with pytest.raises(InputError, match="before"):
        join(good, site)
    assert rehearse(good, site, NamedRows(world.rows(A).path, "y", "p")).is_well  # by hand
    with pytest.raises(InputError, match="before"):
        join(good, site)
    assert rehearse(good, site).is_well
    join(good, site)
    assert world.entries(A) == ["reserve"]


def test_who_joins_anyway_decides_for_these_rows(tmp_path):
    world = begun(tmp_path, THREE, NOISY, policy=STOPS)
    site = declare(world, f'path = "{written(world, rows_of(1 - LABELS, SCORES)).path}"')
    with pytest.raises(InputError):
        join(Exchange(world.run, site), site)
    join(Exchange(world.run, site), site, anyway=True)
    join(invited(world, "other", NOISY, site), site)
    assert world.entries(A) == ["reserve"] * 2


def test_a_query_is_judged_anew_each_day(tmp_path, monkeypatch):
    """A database may have been corrected, which no file shows."""
    world = begun(tmp_path, THREE, NOISY, policy=STOPS)
    site = declare(world, 'query = "select y, p from scores"')
    monkeypatch.setenv("FEDGAUGE_DATABASE", f"sqlite:///{tmp_path / 'rows.db'}")

    def fill(labels):
        with closing(sqlite3.connect(tmp_path / "rows.db")) as base, base:
            base.execute("drop table if exists scores")
            base.execute("create table scores (y int, p real)")
            rows = zip(labels.tolist(), SCORES.tolist(), strict=True)
            base.executemany("insert into scores values (?, ?)", rows)

    fill(1 - LABELS)
    with pytest.raises(InputError, match="look wrong"):
        join(Exchange(world.run, site), site)
    fill(LABELS)
    with pytest.raises(InputError, match="before"):
        join(Exchange(world.run, site), site)
    tomorrow = plans.now() + timedelta(days=1)
    monkeypatch.setattr(plans, "now", lambda: tomorrow)
    join(Exchange(world.run, site), site)
    assert world.entries(A) == ["reserve"]


def command(world, verb, *more):
    return commands.run(
        "exchange", verb, str(world.run), *more, "--site", str(world.site_file(A)), columns=300
    )


def test_the_commands_say_what_they_found(tmp_path):
    world = begun(tmp_path, THREE, NOISY, policy=STOPS)
    path = written(world, rows_of(1 - LABELS, SCORES)).path
    file = world.site_file(A)
    file.write_text(f'{file.read_text()}\n[data]\npath = "{path}"\nlabel = "y"\nscore = "p"\n')
    done = command(world, "check")
    assert done.exit_code == 1
    assert "at this site alone: AUC 0.1" in done.stdout
    assert "different scores, 7" in done.stdout
    assert "This site stops before it joins (findings)" in done.stdout
    assert "can join" not in done.stdout
    assert "Are the labels reversed" in done.stderr
    done = command(world, "join")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "did not join. Nothing was sent, reserved or spent." in done.stderr
    untouched(world)
    assert command(world, "join", "--anyway").exit_code == 0
    assert world.entries(A) == ["reserve"]
