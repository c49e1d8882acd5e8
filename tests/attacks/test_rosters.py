"""Rosters of hostile and of careless parties: what leaves, unpaid, and what the scorer takes in."""

import re
import shutil

import numpy as np
import pytest
from commands import complaint
from commands import run as command
from consortium import COORDINATOR
from platform_world import SHOPS, make_platform

import fedgauge as fg
from fedgauge.keys import SigningKey
from fedgauge.vertical.files import Roster
from fedgauge.vertical.label_party import OwnLabels

VICTIM = SHOPS[0]


@pytest.fixture
def platform(folder):
    return make_platform(folder)


def assert_silent_about_rows(told):
    """Neither an id nor a label."""
    assert not re.search(r"\bu\d", told)
    assert "yes" not in told


def test_a_roster_that_was_edited_on_the_way_is_refused(platform, tmp_path):
    data = Roster.of_ids(["u1", "u2", "u3"], platform.site(VICTIM).key).to_bytes()
    assert told_of(platform, tmp_path, data)[0] == 0
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(fg.ProtocolError) as caught:
            Roster.from_bytes(changed)
        assert_silent_about_rows(str(caught.value))
    code, told = told_of(platform, tmp_path, data.replace(b"u2", b"u4"))
    assert code == 1
    assert "a.roster: the roster is not signed by the party it names" in told


def test_an_unknown_partys_roster_is_refused(platform, tmp_path):
    data = Roster.of_ids(["u1", "u2", "u3"], SigningKey.generate()).to_bytes()
    code, told = told_of(platform, tmp_path, data)
    assert code == 2
    assert "unknown party: no peer in" in told
    assert_silent_about_rows(told.replace(str(tmp_path), ""))
    assert not (tmp_path / "out").exists()


def test_numbers_of_examples_that_wrap_around_are_refused():
    """2^24 scores of 2^40 examples each, and five more, were taken for five."""
    key, far = SigningKey.generate(), np.array([1 << 40, 5], "<i8").tobytes()
    made = Roster.of_scores(np.array([0.1, 0.2]), key, few_values=True)
    forged = Roster._signed(key, scores=made.scores, rows=far)
    with pytest.raises(fg.ProtocolError, match="not as they must be"):
        Roster.from_bytes(forged.to_bytes())


@pytest.mark.parametrize("labels", [[0, 1, 1, 0], [1, 1], [0, 0], [0.0, -0.0, 1.0]])
def test_a_column_of_labels_taken_for_scores_does_not_leave(tmp_path, platform, labels):
    """Nobody pays for a roster, and in this one the number of positives would be exact."""
    for few in (False, True):
        with pytest.raises(fg.InputError, match="as labels are"):
            Roster.of_scores(np.array(labels, dtype=float), SigningKey.generate(), few_values=few)
    for more in ((), ("--few-values",)):
        done = roster_of(platform, tmp_path, labels, "--quiet", *more)
        assert "Name the column of scores" in complaint(done, 2)
        assert not (tmp_path / "a.roster").exists()


AS_LABELS = {
    "1 and 2": [1, 2, 2, 1, 1],
    "-1 and 1": [-1, 1, 1, -1],
    "0 and 100": [0, 100, 0, 0],
    "two of any kind": [0.31, 0.77, 0.31],
    "all alike": [7.5, 7.5, 7.5],
    "one": [0.3],
    "0, 1 and a code": [0, 1, 1, 9, 0],
    "grades": [1, 2, 3, 4, 5, 5, 5],
    "large ones": [1e300, 1e300, -1e300],
}


def roster_of(platform, folder, values, *more):
    (folder / "scored.csv").write_text("".join(f"{row}\n" for row in ["bought", *values]))
    return command(
        *("vertical", "roster", folder / "scored.csv", "--score", "bought", *more),
        *("--site", platform.site_file(VICTIM), "--output", folder / "a.roster"),
        columns=400,
    )


@pytest.mark.parametrize("values", AS_LABELS.values(), ids=AS_LABELS)
def test_labels_in_whatever_numbers_do_not_leave_as_scores(tmp_path, platform, values):
    """Their counts left unpaid. Who knows that they are scores can say so."""
    told = complaint(roster_of(platform, tmp_path, values), 2)
    assert "may be labels" in told
    assert "--few-values" in told
    assert not re.search(r"\b(31|77|100|300|9)\b", told.replace(str(tmp_path), ""))
    assert not (tmp_path / "a.roster").exists()
    assert not (platform.folder / VICTIM / "rosters").exists()
    done = roster_of(platform, tmp_path, values, "--few-values")
    assert (done.exit_code, done.stderr) == (0, "")
    assert Roster.from_bytes((tmp_path / "a.roster").read_bytes()).examples == len(values)


@pytest.mark.parametrize("values", [["yes", "no", "yes"], ["true", "false"], ["yes", ""]])
def test_labels_in_words_do_not_leave_as_scores(tmp_path, platform, values):
    for more in ((), ("--few-values",)):
        complaint(roster_of(platform, tmp_path, values, *more), 2)
        assert not (tmp_path / "a.roster").exists()


@pytest.mark.parametrize("values", AS_LABELS.values(), ids=AS_LABELS)
def test_nor_do_they_over_a_network(values):
    """Where a node's columns are the wrong way round."""
    key, rows = SigningKey.generate(), (values, [0.5] * len(values))
    with pytest.raises(fg.InputError, match="may be labels"):
        OwnLabels(lambda: rows, scored=True).roster(key)
    assert OwnLabels(lambda: rows, scored=True, few_values=True).roster(key).is_scored


def test_few_distinct_scores_are_a_warning(tmp_path, platform):
    done = roster_of(platform, tmp_path, [0.1, 0.5, 0.9] * 4)
    assert done.exit_code == 0
    assert "make sure that it holds scores" in done.stderr
    (tmp_path / "a.roster").unlink()
    assert roster_of(platform, tmp_path, np.linspace(0, 1, 11).tolist()).stderr == ""


def test_options_for_scores_do_nothing_to_ids(tmp_path, platform):
    (tmp_path / "ids.csv").write_text("user\nu1\n")
    done = command(
        *("vertical", "roster", tmp_path / "ids.csv", "--id", "user", "--few-values"),
        *("--site", platform.site_file(VICTIM), "--output", tmp_path / "a.roster"),
    )
    assert "--few-values would do nothing" in complaint(done, 2)


def told_of(platform, folder, roster):
    """What `assign` says to one roster: of one party, so nothing is started."""
    (folder / "a.roster").write_bytes(roster)
    (folder / "scores.csv").write_text("user,p\nu1,0.1\nu2,0.2\nu3,0.7\n")
    shutil.rmtree(folder / "out", ignore_errors=True)
    done = command(
        *("vertical", "assign", folder / "scores.csv", folder / "a.roster", "--id", "user"),
        *("--score", "p", "--epsilon", "1", "--site", platform.site_file(COORDINATOR)),
        *("--output", folder / "out", "--tree", "3", "--quiet"),
    )
    return done.exit_code, "" if done.exit_code == 0 else complaint(done, done.exit_code)
