"""Poison: one member sends counts that it did not count, for a result that it likes better. It has
a changed program and follows the protocol, so nobody can tell who it is. It succeeded against
earlier versions with any number that fits a word, negative ones included."""

import json
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from commands import complaint, run
from consortium import COORDINATOR
from hostile import Attacker, exact_plan, exact_policy, noisy_plan
from rows import draw_rows
from sites import open_policy

import fedgauge as fg
from fedgauge.engines.contribution import release
from fedgauge.secagg import Stage
from poison import at, poison

ROOT = Path(__file__).parents[2]
SCORES = ROOT.parent / "shared" / "data" / "scores"
CLIENTS = {f"site-{i}": draw_rows(400, seed=i, rate=0.3) for i in range(5)}
LARGEST = 10**6
HONEST = 0.76  # about what everybody would get


@pytest.fixture
def attack(folder):
    def make(plan):
        policy = open_policy() if plan.is_noisy else exact_policy()
        return Attacker(folder, CLIENTS, policy=policy)

    return make


def all_but_opened(attack, plan):
    """An evaluation up to where the coordinator takes the sum."""
    session = attack.begin(plan)
    session.play(*list(Stage)[:-1])
    for name in CLIENTS:
        session._ask(name, Stage.OPEN)
    return session._run


def opened(attack, run_folder, *options):
    site = attack.sites.site_file(COORDINATOR)
    return run("exchange", "advance", run_folder, "--site", site, *options)


def positives_to_the_top(plan, number):
    return at(plan, (1, plan.axis.bins - 1, number))


def negatives_and_back(plan):
    """Positives taken from where hardly any are and put on top: totals stay as they are."""
    return at(plan, (1, 0, -250), (1, plan.axis.bins - 1, 250))


by_what_is_added = pytest.mark.parametrize(
    "added",
    [lambda plan: positives_to_the_top(plan, 2**29), negatives_and_back],
    ids=["huge", "negative"],
)


@by_what_is_added
def test_an_exact_sum_is_refused_before_anything_is_shown(attack, monkeypatch, added):
    plan = exact_plan(5, largest=LARGEST)
    poison(monkeypatch, added(plan))
    attack = attack(plan)
    folder = all_but_opened(attack, plan)
    before = sorted(path.name for path in folder.iterdir())
    for _ in range(2):  # asked again it says the same
        told = complaint(opened(attack, folder), code=1)
        assert "which is impossible: a site sent false counts" in told
        assert "The sum does not show which site." in told
        assert sorted(path.name for path in folder.iterdir()) == before
    assert "result.json" not in before


@by_what_is_added
def test_a_noisy_result_carries_a_caution_wherever_it_is_read(attack, monkeypatch, added):
    plan = noisy_plan(5, largest=LARGEST)
    poison(monkeypatch, added(plan))
    attack = attack(plan)
    folder = all_but_opened(attack, plan)
    done = opened(attack, folder)
    assert done.exit_code == 0
    assert re.search(r"^caution +counts are further", done.stdout, re.MULTILINE)
    site = ("--site", attack.sites.site_file("site-0"))
    for command in ("show", "verify"):
        read = run(command, folder / "result.json", *site)
        assert read.exit_code == 0
        assert re.search(r"^caution +counts are further", read.stdout, re.MULTILINE)


def test_who_asks_for_quiet_still_hears_the_caution(attack, monkeypatch):
    plan = noisy_plan(5, largest=LARGEST)
    poison(monkeypatch, positives_to_the_top(plan, 2**29))
    attack = attack(plan)
    folder = all_but_opened(attack, plan)
    site = attack.sites.site_file(COORDINATOR)
    for told in (
        opened(attack, folder, "-q"),
        run("verify", folder / "result.json", "--site", site, "-q"),
    ):
        assert (told.exit_code, told.stdout) == (0, "")
        assert told.stderr.startswith("fedgauge: warning: counts are further")


@pytest.mark.parametrize("make", [exact_plan, noisy_plan])
def test_honest_members_hear_of_nothing(attack, make):
    """Chance of a false alarm under noise: 1e-6."""
    plan = make(5)
    attack = attack(plan)
    result = attack.ask(plan).result
    assert result is not None
    assert result.caution is None
    assert result.roc_auc.value == pytest.approx(HONEST, abs=0.05)


def own_auc(counts):
    """Pairs in order, ties counting half, by NumPy alone."""
    negatives, positives = counts
    below = np.cumsum(negatives) - negatives / 2
    return (positives * below).sum() / (negatives.sum() * positives.sum())


@pytest.mark.parametrize("times", [1, 10])
def test_made_up_rows_move_the_area_as_far_as_stated_and_no_further(times):
    """By their share of both classes: docs/security.md has the formula."""
    plan = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(64, outside="clip"), fg.Cohort(20, 1))
    members = []
    for seed in range(20):
        histogram = plan.histogram()
        histogram.update(*draw_rows(200, seed=seed))
        members.append(histogram.counts)
    others = sum(members[1:])
    mine = times * members[0].sum(axis=1)
    left = np.prod(1 - mine / (mine + others.sum(axis=1)))
    for ends, sign, stated in (
        ((0, -1), 1, 1 - left * (1 - own_auc(others))),
        ((-1, 0), -1, left * own_auc(others)),
    ):
        total = others.copy()
        total[[0, 1], ends] += mine
        reached = own_auc(release(plan, total.ravel(), 20).counts)
        # A little less: in the end bins they are ties with honest rows.
        assert 0 <= sign * (stated - reached) < 0.01


def table():
    """The table in docs/results.md: by what is sent, how far the area moves."""
    text = (ROOT / "docs" / "results.md").read_text()
    text = text.split("\n## Poisoned sums\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|$", text, re.MULTILINE)
    return {
        name: [float(each.replace("noticed", "nan")) for each in numbers] for name, *numbers in rows
    }


def test_the_table_of_the_documentation_holds():
    if not SCORES.is_dir():
        pytest.skip(f"needs {SCORES}, which is not part of the project")
    study = runpy.run_path(str(ROOT / "studies" / "poison.py"), run_name="loaded")
    measured = study["farthest"](sorted(SCORES.glob("*.parquet")))
    assert json.dumps(table()) == json.dumps(measured)  # in which noticed is noticed
