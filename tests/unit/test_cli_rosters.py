"""Commands of labels apart from scores: rosters, bins, and what the exchange then asks for."""

import re
import shutil

import numpy as np
import pytest
from commands import complaint
from commands import run as command
from consortium import COORDINATOR
from platform_world import BOUGHT, SCORES, SHOPS, make_platform
from sklearn.metrics import roc_auc_score

import fedgauge as fg
from fedgauge.secagg import Stage
from fedgauge.vertical.files import Roster

SHOP = SHOPS[0]


def make(folder):
    made = make_platform(folder)
    rows = "".join(f"u{i},{score}\n" for i, score in enumerate(SCORES.tolist()))
    (folder / "scores.csv").write_text(f"user,p\n{rows}u-nobody,0.5\n")
    return made


@pytest.fixture
def platform(tmp_path):
    return make(tmp_path)


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    made = make(tmp_path_factory.mktemp("listed"))
    rosters(made)
    return made


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Started, and nobody has joined, nor may."""
    made = make(tmp_path_factory.mktemp("started"))
    assigned(made)
    start(made, "--quiet")
    path = made.folder / f"{SHOP}.csv"
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([f"{header},p,s", *(f"{row},1,1" for row in rows)]))
    return made


def make_roster(platform, name=SHOP, *more, columns=("--id", "user")):
    return command(
        *("vertical", "roster", platform.folder / f"{name}.csv", *columns, *more),
        *("--site", platform.site_file(name), "--output", platform.folder / f"{name}.roster"),
    )


def rosters(platform, names=SHOPS, **options):
    for name in names:
        assert make_roster(platform, name, "--quiet", **options).exit_code == 0
    return [platform.folder / f"{name}.roster" for name in names]


def assign(platform, *files, scored=("--id", "user", "--score", "p"), more=()):
    return command(
        *("vertical", "assign", *files, *scored, "--epsilon", 8, "--positive", "yes", *more),
        *("--site", platform.site_file(COORDINATOR), "--output", platform.folder / "out"),
        columns=300,
    )


def exchange(platform, verb, name, *more):
    return command(
        "exchange", verb, platform.run, *more, "--site", platform.site_file(name), columns=300
    )


def start(platform, *more):
    plan, site = platform.folder / "out" / "plan.toml", platform.site_file(COORDINATOR)
    return command("exchange", "start", plan, platform.run, *more, "--site", site, columns=300)


def labels(platform, name, *column):
    bins = platform.folder / "out" / f"{name}.bins"
    return [platform.folder / f"{name}.csv", "--label", "bought", *column, "--bins", bins]


def test_a_roster_holds_ids_and_no_label(platform):
    done = make_roster(platform)
    path = platform.folder / f"{SHOP}.roster"
    assert done.stdout.splitlines() == [
        f"Saved {path}: 1,000 ids, sorted, signed by {SHOP}",
        "Its readers see column 'user'. No other column was read, so it holds no label.",
        "Send it to whoever scores these examples.",
    ]
    made = Roster.from_bytes(path.read_bytes())
    assert made.ids == tuple(sorted(f"u{i}" for i in platform.rows_of(SHOP)))
    assert b"yes" not in path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0
    assert make_roster(platform).exit_code == 0  # written again


def test_rows_that_make_no_roster_are_refused(platform):
    for rows, columns, told in (
        ("user,bought\nu1,yes\nu1,no\n", ["--id", "user"], "1 of 2 ids come again"),
        ("user,bought\nu1,1\nu2,0\nu3,0\n", ["--score", "bought"], "are 0 or 1, as labels are"),
        ("user,bought\n,yes\n", ["--id", "user"], "1 id is missing"),
        ("user,bought\nu1,yes\nu2\n", ["--id", "user"], "line 3 has 1 columns"),
        ("user,bought\n", ["--id", "user"], "there are no rows"),
        ("user,bought\nu1,yes\n", ["--id", "name"], "there is no column 'name'"),
        ("user,bought\nu1,yes\n", ["--score", "user"], "not numbers"),
        ("p,bought\n0.5,yes\n,no\n", ["--score", "p"], "1 of 2 scores are missing"),
        ("user,bought\nu1,yes\n", [], "name one column"),
        ("user,bought\nu1,yes\n", ["--id", "user", "--score", "p"], "name one column"),
    ):
        (platform.folder / f"{SHOP}.csv").write_text(rows)
        said = complaint(make_roster(platform, columns=columns))
        assert told in said
        assert "u1" not in said
        assert not (platform.folder / f"{SHOP}.roster").exists()


def test_neither_rosters_nor_bins_are_written_over_something_else(platform):
    path = platform.folder / f"{SHOP}.roster"
    path.write_text("precious")
    assert "is no roster of fedgauge, so it is not overwritten" in complaint(make_roster(platform))
    assert path.read_text() == "precious"
    path.unlink()
    (platform.folder / "out").mkdir()
    (platform.folder / "out" / "old.bins").write_text("")
    done = assign(platform, platform.folder / "scores.csv", *rosters(platform))
    assert "exists and is no empty folder" in complaint(done)


def test_bins_for_each_party_and_what_is_next(platform):
    path = platform.folder / f"{SHOP}.csv"
    path.write_text(f"{path.read_text()}u-unscored,no\n")
    done = assign(platform, platform.folder / "scores.csv", *rosters(platform))
    assert done.exit_code == 0, done.stderr
    told = done.stdout.splitlines()
    assert told[0].startswith("Labels at 4 parties, in ")
    assert told[1] == f"  {SHOP}: 1,001 examples, 1 of them without a score: left out"
    assert told[2] == f"  {SHOPS[1]}: 1,000 examples"
    assert told[5] == "1 score is on no roster: left out"
    assert re.fullmatch(r"The AUC is expected to be off by [\d.e-]+ through noise .*\.", told[6])
    folder = platform.folder / "out"
    assert {path.name for path in folder.iterdir()} == {
        "plan.toml",
        *(f"{name}.bins" for name in SHOPS),
    }
    assert (folder / f"{SHOP}.bins").stat().st_mode & 0o077 == 0
    assert told[-1] == (
        f"  fedgauge exchange start {folder / 'plan.toml'} RUN --site "
        f"{platform.site_file(COORDINATOR)}"
    )
    assert len(list((platform.folder / COORDINATOR / "assignments").iterdir())) == 1


def test_two_parties_answer_alone_and_noise_that_hides_all_is_warned_of(platform):
    scores, hiding = platform.folder / "scores.csv", ["--epsilon", 0.01, "--quiet"]
    done = assign(platform, scores, *rosters(platform), more=hiding)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "such a result is of little use" in done.stderr
    shutil.rmtree(platform.folder / "out")
    done = assign(platform, scores, *rosters(platform, SHOPS[:2]))
    assert "each answers alone, with all of the noise:\n  fedgauge vertical answer " in done.stdout
    assert "exchange start" not in done.stdout


@pytest.mark.parametrize(
    ("chosen", "scored", "more", "told"),
    [
        ("rosters", ["--id", "user", "--score", "p"], [], "the first file is that of scores"),
        ("scores", ["--id", "user", "--score", "p"], [], "there are no rosters"),
        ("both", [], [], "--id COLUMN --score COLUMN"),
        ("rosters", ["--client-scored", "--id", "user"], [], "the scores are in the rosters"),
        ("rosters", ["--client-scored"], [], "rosters of ids go with scores"),
        ("twice", ["--id", "user", "--score", "p"], [], "has two rosters"),
        ("both", ["--id", "user", "--score", "p"], ["--min-survivors", "5"], "--min-survivors"),
        ("both", ["--id", "user", "--score", "p"], ["--min-survivors", "2"], "at least 3"),
        ("rosters", ["--client-scored"], ["--privacy", "ldp"], "flips go by id"),
        ("both", ["--id", "user", "--score", "p"], ["--tree", "x"], "a tree is written like"),
    ],
)
def test_wrong_ways_to_assign(listed, chosen, scored, more, told):
    files = [listed.folder / f"{name}.roster" for name in SHOPS]
    scores = listed.folder / "scores.csv"
    named = {
        "rosters": files,
        "scores": [scores],
        "both": [scores, *files],
        "twice": [scores, files[0], files[0]],
    }[chosen]
    assert told in complaint(assign(listed, *named, scored=scored, more=more))
    assert not (listed.folder / "out").exists()


def test_ids_that_are_written_otherwise_are_refused_and_explained(platform):
    path = platform.folder / f"{SHOP}.csv"
    text = path.read_text()
    path.write_text("user,bought\nx1,no\nx2,yes\n")
    done = assign(platform, platform.folder / "scores.csv", *rosters(platform))
    assert f"no label of party '{SHOP}' has a score" in complaint(done)
    path.write_text(text.replace("\nu", "\nU"))
    done = assign(platform, platform.folder / "scores.csv", *rosters(platform))
    assert "1,000 would have one if upper and lower case were one" in complaint(done)
    assert not (platform.folder / "out").exists()
    path.write_text(text.replace("\nu0,", "\nU0,"))
    done = assign(platform, platform.folder / "scores.csv", *rosters(platform))
    assert done.exit_code == 0
    assert "1 of them would have one if upper and lower case were one" in done.stderr


def assigned(platform, names=SHOPS, more=("--min-survivors", "3", "--tree", "24")):
    done = assign(
        platform,
        *(platform.folder / "scores.csv", *rosters(platform, names)),
        more=[*more, "--quiet"],
    )
    assert done.exit_code == 0, done.stderr


def test_those_who_were_given_bins_are_invited_and_told_what_to_type(platform):
    assigned(platform, SHOPS[:3])
    done = start(platform)
    assert done.stdout.startswith("Invited 3 sites; 3 must stay to the end.")
    assert " FILE --label COLUMN --id COLUMN --bins FILE --site site.toml" in done.stdout
    told = exchange(platform, "status", SHOP).stdout
    assert "--id COLUMN --bins FILE" in told
    invitation = command("explain", platform.run / "invitation.fgx").stdout
    assert "the examples were scored when they were given their ranges" in " ".join(
        invitation.split()
    )


def test_labels_that_fit_no_bin_or_no_class_are_told_before_joining(platform):
    assigned(platform)
    start(platform, "--quiet")
    path = platform.folder / f"{SHOP}.csv"
    text = path.read_text()
    path.write_text(text.replace(",yes", ",1"))
    done = exchange(platform, "check", SHOP, *labels(platform, SHOP, "--id", "user"))
    assert "a plan made with `fedgauge vertical assign --positive LABEL`" in done.stderr
    path.write_text(text.replace("\nu", "\nU"))
    done = exchange(platform, "check", SHOP, *labels(platform, SHOP, "--id", "user"))
    told = "no row is of an example that has a bin: 1,000 would be if upper and lower case were one"
    assert f"{told}. Check the column 'user'" in done.stderr
    assert "This site can join, but the warnings above apply" in done.stdout
    path.write_text(text.replace("\nu", "\nU", 900))
    done = exchange(platform, "check", SHOP, *labels(platform, SHOP, "--id", "user"))
    assert "few rows are of an example that has a bin: 900 more would be if upper" in done.stderr
    path.write_text(text.replace("\nu", "\nU", 100))
    done = exchange(platform, "check", SHOP, *labels(platform, SHOP, "--id", "user"))
    assert "would be" not in done.stderr  # a few are no reason
    assert "U1" not in done.stderr


def test_who_is_no_peer_did_not_assign_or_sent_no_roster_is_left_out(platform):
    assigned(platform, SHOPS[:3])
    path = platform.site_file(COORDINATOR)
    text = path.read_text()
    path.write_text(re.sub(rf'\n\[\[peers\]\]\nname = "{SHOP}"\nkey = ".*"\n', "\n", text))
    assert "got bins but is no longer a peer" in complaint(start(platform))
    assert not platform.run.exists()
    path.write_text(text)
    plan, site = platform.folder / "out" / "plan.toml", platform.site_file(SHOP)
    done = command("exchange", "start", plan, platform.run, "--site", site)
    assert "did not assign the bins of this plan" in complaint(done, 1)
    done = start(platform, *(word for name in SHOPS for word in ("--invite", name)))
    assert f"{SHOPS[3]} sent no roster" in complaint(done, 1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--score", "p"], "the plan is for labels apart from scores"),
        (["--id", "user"], "--id needs the bins"),
        (["--id", "user", "--score", "p"], "do not go together"),
        (["--id", "user", "--bins", "BINS", "--subject", "s"], "--subject does not go with --bins"),
        (["--bins", "BINS"], "--bins needs the column"),
        ([], "Name the column of ids, and the bins that this site was sent: --id COLUMN --bins"),
        (["--score", "p", "--bins", "BINS"], "these bins go by ids"),
        (["--id", "user", "--bins", "none"], "cannot read the file"),
    ],
)
@pytest.mark.parametrize("verb", ["check", "join"])
def test_wrong_ways_to_join(started, verb, options, told):
    bins = started.folder / "out" / f"{SHOP}.bins"
    named = [str(bins) if word == "BINS" else word for word in options]
    file = [started.folder / f"{SHOP}.csv", "--label", "bought"]
    assert told in complaint(exchange(started, verb, SHOP, *file, *named))
    assert started.entries(SHOP) == []


def test_rows_are_checked_joined_and_submitted_by_id(platform):
    assigned(platform)
    start(platform, "--quiet")
    named = labels(platform, SHOP, "--id", "user")
    done = exchange(platform, "check", SHOP, *named)
    positives = int(BOUGHT[platform.rows_of(SHOP)].sum())
    assert f"would count as 1,000 rows: {positives} positive" in done.stdout
    for name in SHOPS:
        done = exchange(platform, "join", name, *labels(platform, name, "--id", "user"))
        assert "how many of the site's examples in each of " in done.stdout
    for verb in ("share", "submit"):
        assert exchange(platform, "advance", COORDINATOR, "--quiet").exit_code == 0
        for name in SHOPS:
            again = labels(platform, name, "--id", "user") if verb == "submit" else ()
            done = exchange(platform, verb, name, *again)
            assert done.exit_code == 0, done.stderr
    assert f"Counted 1,000 rows: {int(BOUGHT[platform.rows_of(SHOPS[3])].sum())} " in done.stdout


def test_another_attempt_has_the_same_bins_and_other_totals(platform):
    assigned(platform)
    start(platform, "--quiet")
    new = platform.folder / "second"
    done = exchange(platform, "restart", COORDINATOR, new, "--without", SHOP, "--yes", "--quiet")
    assert done.exit_code == 0, done.stderr
    for name in SHOPS:
        bins = (platform.folder / "out" / f"{name}.bins").read_bytes()
        (platform.folder / f"{name}.bins").write_bytes(bins)
    result = platform.play(new, dict.fromkeys(SHOPS[1:]))
    kept = np.concatenate([platform.rows_of(name) for name in SHOPS[1:]])
    assert int(result.released.counts.sum()) == len(kept)
    # Epsilon 8 leaves a deviation of some 3e-4: five of them, once in two million.
    assert result.roc_auc.value == pytest.approx(
        roc_auc_score(BOUGHT[kept], SCORES[kept]), abs=4e-3
    )


def test_shops_that_score_their_own_examples(platform):
    for name in SHOPS:
        rows = platform.rows_of(name)
        text = "".join(f"{SCORES[i]},{'yes' if BOUGHT[i] else 'no'}\n" for i in rows)
        (platform.folder / f"{name}.csv").write_text(f"p,bought\n{text}")
    done = make_roster(platform, columns=("--score", "p"))
    assert "1,000 scores, sorted, signed by" in done.stdout
    files = rosters(platform, columns=("--score", "p"))
    done = assign(platform, platform.folder / "scores.csv", *files)
    assert "rosters of ids go with scores, and rosters of scores without" in complaint(done)
    done = assign(platform, *files, scored=["--client-scored"], more=["--positive-rate", 0.3])
    assert done.exit_code == 0, done.stderr
    assert "FILE --label COLUMN --score COLUMN --bins FILE" in start(platform).stdout
    wrong = labels(platform, SHOP, "--id", "p")
    assert "these bins go by scores" in complaint(exchange(platform, "join", SHOP, *wrong))
    for name in SHOPS:
        named = labels(platform, name, "--score", "p")
        assert exchange(platform, "join", name, *named, "--quiet").exit_code == 0
    platform.advance(platform.run)
    result = platform.play(platform.run, dict.fromkeys(SHOPS), since=Stage.SHARE)
    assert int(result.released.counts.sum()) == len(SCORES)
    assert str(result).startswith("scores and labels at 4 parties; 4,000 examples")
    assert result.roc_auc.value == pytest.approx(roc_auc_score(BOUGHT, SCORES), abs=3e-3)
    assert isinstance(result, fg.Evaluation)


def test_scores_in_another_unit_at_one_party_are_warned_of(platform):
    for name, unit in zip(SHOPS, (1, 1, 100, 1), strict=True):
        text = "".join(f"{SCORES[i] * unit}\n" for i in platform.rows_of(name))
        (platform.folder / f"{name}.csv").write_text(f"p\n{text}")
    files = rosters(platform, columns=("--score", "p"))
    done = assign(platform, *files, scored=["--client-scored"])
    assert done.exit_code == 0
    assert f"scores of {SHOPS[2]} go beyond 0 to 1, and those of the others do not" in done.stderr
