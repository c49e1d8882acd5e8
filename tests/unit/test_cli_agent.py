"""What `site run`, `site approve` and `exchange run` print, and how they end."""

import configparser
import json
import shlex
from pathlib import Path

import pytest
from commands import complaint, run
from consortium import COORDINATOR, NAMES, A
from exchange import NOISY, make_world
from sites import open_policy

import fedgauge as fg
from fedgauge.engines.agent import Agent

pytestmark = pytest.mark.usefixtures("few_redraws")
EXAMPLE = Path(__file__).parents[2] / "examples" / "agent"
THREE = NAMES[:3]


@pytest.fixture
def world(folder):
    world = make_world(folder, THREE, NOISY, open_policy(findings="stop"))
    for name in THREE:
        path = world.site_file(name)
        rows = f'path = "../{name}.csv"\nlabel = "y"\nscore = "p"\n'
        path.write_text(f"{path.read_text()}\n[data]\n{rows}")
    (folder / "shared").mkdir()
    return world


def coordinate(world, *options):
    site = ["--site", world.site_file(COORDINATOR)]
    plan = world.folder / "plan.json"
    return run("exchange", "run", plan, world.folder / "shared", "--once", *options, *site)


def answer(world, name, *options):
    site = ["--site", world.site_file(name)]
    return run("site", "run", world.folder / "shared", "--once", *options, *site)


def lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_an_evaluation_by_cron(world):
    """3 until there is a result, then 0; what programs read says where it is."""
    for stage in range(1, 6):
        done = coordinate(world, "--json")
        assert done.exit_code == 3
        assert done.stderr == "fedgauge: it is not done yet. Run this again to go on.\n"
        (told,) = lines(done.stdout)
        assert (told["event"], told["round"]) == ("waiting", stage)
        assert told["missing"] == list(THREE)
        for name in THREE:
            said = answer(world, name, "--json")
            assert (said.exit_code, said.stderr) == (0, "")
            (told,) = lines(said.stdout)
            assert told["event"] == ("joined" if stage == 1 else "answered")
    done = coordinate(world, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    (told,) = lines(done.stdout)
    assert told["event"] == "finished"
    assert fg.Evaluation.from_json(told["result"]).clients == 3
    assert Path(told["report"]).read_text().startswith("<!doctype html>")
    verified = run("verify", told["result"], "--site", world.site_file(A))
    assert verified.exit_code == 0
    assert coordinate(world).exit_code == 3  # the next one begins
    assert len(list((world.folder / "shared").iterdir())) == 2


def test_a_folder_is_where_the_report_goes(world):
    """The result is shown all the same, and the next evaluation can begin."""
    for _ in range(5):
        assert coordinate(world).exit_code == 3
        for name in THREE:
            answer(world, name)
    (place,) = (world.folder / "shared").iterdir()
    (place / "report.html").mkdir()
    done = coordinate(world, "--json")
    assert done.exit_code == 0
    assert f"a folder is in its place. Remove {place / 'report.html'}" in done.stderr
    (told,) = lines(done.stdout)
    assert (told["result"], told["report"]) == (str(place / "result.json"), None)
    assert coordinate(world).exit_code == 3


def test_what_people_read(world):
    done = coordinate(world)
    assert "Round 1 of 5, join: 0 of 3 answered; waiting for hospital-a" in done.stdout
    assert coordinate(world, "--quiet").stdout == ""
    said = answer(world, A)
    assert " joined plan " in said.stdout
    assert answer(world, A, "--quiet").output == ""


def test_a_deadline_that_is_over(world):
    coordinate(world)
    done = coordinate(world, "--deadline", "0s")
    assert done.exit_code == 3
    assert "The deadline is over, and the plan needs them" in done.stdout


@pytest.mark.parametrize("deadline", ["3", "d", "3w", "xd", "1e999d", "nand", "-1d", ""])
def test_deadlines_that_are_none(world, deadline):
    told = complaint(coordinate(world, "--deadline", deadline))
    assert "--deadline is a time such as 3d, 12h or 30m" in told
    assert list((world.folder / "shared").iterdir()) == []


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "0", "1e300"])
@pytest.mark.parametrize("command", [coordinate, lambda world, *more: answer(world, A, *more)])
def test_seconds_that_are_none(world, command, seconds):
    """Refused before anybody is invited."""
    done = command(world, f"--every={seconds}")
    assert done.exit_code == 2
    assert "--every" in done.stderr
    assert list((world.folder / "shared").iterdir()) == []


def test_one_agent_and_one_run_at_a_time(world):
    with Agent(world.folder / "shared", world.site_file(A)).alone():
        said = answer(world, A)
    assert said.exit_code == 1
    assert "another process holds" in said.stderr


def test_a_folder_that_is_not_there_is_told(world):
    site = ["--site", world.site_file(A)]
    said = run("site", "run", world.folder / "shraed", "--once", *site)
    assert said.exit_code == 1
    assert "cannot look into" in said.stderr
    assert "shraed" in said.stderr


def test_rows_that_look_wrong_are_told_to_the_operator_alone(world):
    path = world.folder / f"{A}.csv"
    rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
    path.write_text("y,p\n" + "".join(f"{1 - int(y)},{p}\n" for y, p in rows))
    coordinate(world)
    said = answer(world, A)
    assert "reversed" in said.stderr, said.output
    assert world.entries(A) == []
    place = next((world.folder / "shared").iterdir())
    assert [path.name for path in place.iterdir()] == ["invitation.fgx"]


def test_approving_ahead(world):
    site = ["--site", world.site_file(A)]
    key = world.folder / "officer.key"
    run("site", "approver", "officer", key, *site)
    plan = world.folder / "plan.json"
    signed = ["site", "approve", plan, "--key", key, "--until", "2099-06-30", *site]
    done = run(*signed, "--times", 26)
    assert done.exit_code == 0
    assert f"asked for by {COORDINATOR}, 26 times until 2099-06-30" in done.stdout
    shown = run("site", "show", *site, columns=200)
    assert f"plan {NOISY.digest[:8]} on stroke-2026: at most 26 times" in shown.stdout
    assert "for 1 to 1,000 times" in complaint(run(*signed, "--times", 0))
    other = complaint(run(*signed, "--times", 1, "--coordinator", "nobody"))
    assert f"name one of the coordinators in {world.site_file(A)}: {COORDINATOR}" in other


def test_the_examples_of_services_run_the_command(world):
    """What the unit and the container start is a command that there is, with options it has."""
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str
    unit.read(EXAMPLE / "fedgauge-agent.service")
    _, *service = shlex.split(unit["Service"]["ExecStart"])
    text = (EXAMPLE / "Containerfile").read_text()
    contained = [
        word
        for line in text.splitlines()
        if line.startswith(("ENTRYPOINT", "CMD"))
        for word in json.loads(line.partition(" ")[2])
    ]
    assert contained[0] == "fedgauge"
    for words in (service, contained[1:]):
        assert words[:2] == ["site", "run"]
        place = words.index("--site") + 1
        words[2], words[place] = world.folder / "shared", world.site_file(A)
        assert run(*words, "--once").exit_code == 0
