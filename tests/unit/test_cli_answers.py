"""`fedgauge vertical answer` and `result`: what they show, and what a mistake is told."""

import re

import commands
import pytest
from alone_world import FLIPS, NOISE, TWO, make_alone
from consortium import COORDINATOR

import fedgauge as fg
from fedgauge.vertical.answers import LabelAnswer

SHOP, OTHER = TWO


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_alone(tmp_path)


def save(world, made):
    made.plan.save(world.folder / "plan.toml")
    return made


def answer(shop=SHOP, *more, labels=None, **changed):
    options = {"--label": "bought", "--id": "user", "--output": f"{shop}.answer"}
    options |= {f"--{name}": value for name, value in changed.items()}
    said = [part for name, value in options.items() if value is not None for part in (name, value)]
    site = ("--site", f"{shop}/site.toml")
    files = ("plan.toml", f"{shop}.bins", labels or f"{shop}.csv")
    return commands.run("vertical", "answer", *files, *said, *site, *more, columns=400)


def result(*answers, more=()):
    site = ("--site", f"{COORDINATOR}/site.toml")
    return commands.run("vertical", "result", "plan.toml", *answers, *site, *more, columns=400)


@pytest.mark.parametrize("kind", ["noise", "adaptive", "flips"])
def test_answers_and_a_result(world, kind):
    mechanism = "adaptive" if kind == "adaptive" else None
    save(world, world.told(FLIPS if kind == "flips" else NOISE, mechanism))
    explained = commands.run("explain", "plan.toml", columns=400)
    assert (explained.exit_code, explained.stderr) == (0, "")
    assert ("never fail (delta is 0)" in explained.stdout) is (kind != "noise")
    site = ("--site", f"{COORDINATOR}/site.toml")
    started = commands.complaint(commands.run("exchange", "start", "plan.toml", "run", *site))
    assert "`fedgauge vertical answer`" in started
    for shop in TWO:
        done = answer(shop)
        assert (done.exit_code, done.stderr) == (0, "")
        leaves = done.stdout.index("What leaves each site")
        assert leaves < done.stdout.index("What is promised") < done.stdout.index("Counted 1,000")
        assert done.stdout.endswith(f"Saved {shop}.answer: send it to the scorer\n")
    done = result("shop-a.answer", "shop-b.answer", more=("--json", "r.json"))
    assert done.exit_code == 0, done.stderr
    assert "Saved r.json, unsigned" in done.stdout
    kind = fg.LabelAuc if mechanism else fg.Evaluation
    assert kind.from_json("r.json").privacy.claim == "enforced"
    assert result("shop-a.answer", "shop-b.answer", more=("--json", "r.json")).exit_code == 0


def test_quiet_says_nothing_and_a_second_time_is_told(world):
    save(world, world.told())
    done = answer(SHOP, "--quiet")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    spent = world.spent(SHOP)
    again = answer(output="again.answer")
    assert again.exit_code == 0
    assert "that answer stands, whatever its file holds now" in again.stderr
    assert "Counted" not in again.stdout
    assert world.spent(SHOP) == spent
    answer(OTHER)
    done = result("shop-a.answer", "shop-b.answer", more=("--quiet",))
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("kind", ["noise", "adaptive"])
@pytest.mark.parametrize("far", [(700, 10**9), (-(10**4), 0)], ids=["shown", "no signal"])
def test_what_no_labels_have_is_told_also_to_who_asks_for_quiet(world, kind, far):
    made = save(world, world.told(NOISE, "adaptive" if kind == "adaptive" else None))
    numbers = [*far] if kind == "adaptive" else [far[0]] * made.plan.numbers
    world.answers(made.plan, OTHER)
    lie = LabelAnswer.signed(world.site(SHOP).key, made.plan, bytes(32), numbers)
    world.file(SHOP).write_bytes(lie.to_bytes())
    for more in ((), ("--quiet",)):
        done = result("shop-a.answer", "shop-b.answer", more=("--json", "r.json", *more))
        assert f"{SHOP} sent impossible numbers" in done.stdout + done.stderr
        assert done.exit_code == (0 if far[0] > 0 and kind == "adaptive" else 2)
    if not done.exit_code:
        shown = commands.run("show", "r.json", "--quiet", columns=400)
        assert f"{SHOP} sent impossible numbers" in shown.stderr


def check(shop=SHOP, *more):
    files = ("plan.toml", f"{shop}.bins", f"{shop}.csv", "--label", "bought", "--id", "user")
    site = ("--site", f"{shop}/site.toml")
    return commands.run("vertical", "check", *files, *site, *more, columns=400)


@pytest.mark.parametrize("kind", ["noise", "adaptive", "flips"])
def test_what_would_count_is_told_before_anything_is_charged(world, kind):
    mechanism = "adaptive" if kind == "adaptive" else None
    save(world, world.told(FLIPS if kind == "flips" else NOISE, mechanism))
    before = sorted(path for path in (world.folder / SHOP).rglob("*"))
    done = check()
    assert (done.exit_code, done.stderr) == (0, "")
    assert "The site file allows it, at a cost of epsilon " in done.stdout
    assert done.stdout.endswith("This site can answer.\n")
    path = world.folder / f"{SHOP}.csv"
    text = path.read_text()
    path.write_text(text.replace("\nu", "\nU"))
    done = check()
    assert "no row is of an example that has a bin: 1,000 would be if upper" in done.stderr
    path.write_text(text.replace("yes", "Yes"))
    done = check()
    assert (
        "This site can answer, but the warnings above apply, and an answer cannot be changed.\n"
        in done.stdout
    )
    assert "none of 1,000 rows are positive" in done.stderr
    path.write_text(text)
    assert (check(SHOP, "--quiet").stdout, world.spent(SHOP)) == ("", 0)
    assert sorted(path for path in (world.folder / SHOP).rglob("*")) == before
    counted = [each for each in answer().stdout.splitlines() if each.startswith("Counted")]
    assert f"would count as {counted[0].removeprefix('Counted ')}\n" in check().stdout
    assert "answered the plan before, and that answer stands" in check().stdout


def test_labels_that_changed_since_they_were_flipped_are_refused_with_the_option(world):
    save(world, world.told(FLIPS))
    assert answer().exit_code == 0
    save(world, world.told(FLIPS, positive_rate=0.4))
    path = world.folder / f"{SHOP}.csv"
    path.write_text(path.read_text().replace(",no", ",yes", 1))
    told = answer(SHOP, "--quiet", output="again.answer")
    assert "name another file with --flips" in commands.complaint(told)


def test_a_refused_plan_and_odd_rows_are_told(world):
    save(world, world.told())
    (world.folder / "odd.csv").write_text("user,bought\nu0,yes\nu0,yes\nnobody,yes\n")
    done = answer(labels="odd.csv")
    assert done.exit_code == 0
    for told in ("1 rows are of examples without a bin", "999 examples with a bin have no row"):
        assert told in done.stderr
    assert "nobody" not in done.output
    assert "u0" not in done.output
    save(world, world.told())
    path = world.folder / SHOP / "site.toml"
    path.write_text(re.sub("max_epsilon = .*", "max_epsilon = 0.5", path.read_text()))
    done = check()
    assert done.exit_code == 1
    assert "Refuses it: " in done.stdout
    assert "can answer" not in done.stdout


def test_mistakes_of_a_label_party_end_in_one_line(world):
    for changed, told in (
        ({"label": "y"}, "there is no column 'y'"),
        ({"id": "key"}, "there is no column 'key'"),
        ({"labels": "gone.csv"}, "there is no such file"),
        ({"id": None}, "name one column: of ids (--id) or"),
        ({"score": "p"}, "name one column: of ids (--id) or"),
        ({"id": None, "score": "p"}, "these bins go by ids"),
        ({"flips": "x.flips"}, "the plan flips no labels. Leave out --flips."),
        ({"output": "shop-a.csv"}, "exists. If it is this site's answer, send it again"),
    ):
        save(world, world.told())
        if changed.get("score") and "id" in changed:
            (world.folder / "shop-a.csv").write_text("p,bought\n0.5,yes\n")
        assert told in commands.complaint(answer(**changed))
        assert world.spent(SHOP) == 0.0


def test_files_that_are_not_what_they_should_be(world):
    made = save(world, world.told())
    (world.folder / "shop-a.bins").write_bytes(made.bins[world.keys[OTHER]].to_bytes())
    assert "shop-a.bins: the bins are for another party." in commands.complaint(answer())
    (world.folder / "shop-a.bins").write_text("user,bought\n")
    assert "shop-a.bins: these are not a party's bins" in commands.complaint(answer())
    (world.folder / "plan.toml").write_text("user,bought\n")
    assert "not a plan in TOML" in commands.complaint(answer())
    told = commands.complaint(answer(output="nowhere/shop-a.answer"), code=2)
    assert "not a plan" in told
    save(world, world.told(cohort=fg.Cohort(2, 1)))
    assert "fedgauge exchange join" in commands.complaint(answer())
    save(world, world.told())
    told = commands.complaint(answer(output="nowhere/shop-a.answer"), code=1)
    assert "there is no such folder" in told
    assert world.spent(SHOP) == 0.0


def test_mistakes_of_the_scorer_end_in_one_line(world):
    save(world, world.told())
    answer(SHOP)
    told = commands.complaint(result("shop-a.answer"), code=1)
    assert "shop-b did not answer yet" in told
    assert "--without-missing" in told
    assert result("shop-a.answer", more=("--without-missing",)).exit_code == 0
    for file, why in (
        ("shop-a.bins", "shop-a.bins: this is not an answer"),
        ("shop-a.csv", "shop-a.csv: this is not an answer"),
        ("gone.answer", "gone.answer: cannot read the file"),
    ):
        assert why in commands.complaint(result("shop-a.answer", file))
    told = commands.complaint(result("shop-a.answer", "shop-a.answer"))
    assert "shop-a answered twice" in told
    more = ("--without-missing", "--json", "shop-a.csv")
    assert "is not overwritten" in commands.complaint(result("shop-a.answer", more=more))
    save(world, world.told())
    told = commands.complaint(result("shop-a.answer"))
    assert "the answer of shop-a is to another plan" in told


def assign(*more, output="made"):
    known = ("--id", "user", "--score", "p", "--epsilon", "1", "--positive", "yes")
    site = ("--site", f"{COORDINATOR}/site.toml", "--output", output)
    files = ("scores.csv", *(f"{shop}.roster" for shop in TWO))
    return commands.run("vertical", "assign", *files, *known, *site, *more, columns=400)


@pytest.fixture
def rosters(world):
    rows = "".join(f"u{i},{i / 4000}\n" for i in range(4000))
    (world.folder / "scores.csv").write_text(f"user,p\n{rows}")
    for roster in world.rosters().values():
        name = world.site(COORDINATOR).peers[roster.party]
        (world.folder / f"{name}.roster").write_bytes(roster.to_bytes())
    return world


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ((), "histogram"),
        (("--privacy", "ldp"), "flips"),
        (("--mechanism", "orthogonal"), "pair"),
        (("--mechanism", "gaussian", "--delta", "1e-6"), "pair"),
    ],
)
@pytest.mark.usefixtures("rosters")
def test_assigning_says_that_parties_answer_alone(options, kind):
    done = assign(*options)
    assert done.exit_code == 0
    costly = "--privacy" in options or "--delta" in options
    worth = "move the AUC by" if costly else "The AUC is expected to be off by"
    assert worth in (done.stderr if costly else done.stdout)
    assert (done.stderr == "") is not costly
    how = "labels flipped once" if kind == "flips" else "all of the noise"
    assert f"each answers alone, with {how}:\n" in done.stdout
    assert "fedgauge vertical result made/plan.toml" in done.stdout
    plan = fg.EvaluationPlan.load("made/plan.toml")
    assert plan.is_alone
    assert f'kind = "{kind}"' in plan.to_toml()


def test_options_that_do_nothing_are_refused(rosters):
    for options, told in (
        (("--privacy", "sa"), "an exact sum would show a label"),
        (("--privacy", "ldp", "--mechanism", "adaptive"), "--mechanism would do nothing"),
        (("--privacy", "ldp", "--noise", "skellam"), "--noise would do nothing"),
        (("--mechanism", "adaptive", "--tree", "8x8"), "--tree would do nothing"),
        (("--mechanism", "gaussian"), "needs a delta"),
        (("--mechanism", "adaptive", "--min-survivors", "2"), "--min-survivors would do nothing"),
    ):
        assert told in commands.complaint(assign(*options))
        assert not (rosters.folder / "made").exists()
