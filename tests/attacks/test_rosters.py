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
from fedgauge.vertical.roster import Roster

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
    made = Roster.of_scores(np.array([0.1, 0.2]), key)
    forged = Roster._signed(key, scores=made.scores, rows=far)
    with pytest.raises(fg.ProtocolError, match="not as they must be"):
        Roster.from_bytes(forged.to_bytes())


@pytest.mark.parametrize("labels", [[0, 1, 1, 0], [1, 1], [0, 0], [0.0, -0.0, 1.0]])
def test_a_column_of_labels_taken_for_scores_does_not_leave(tmp_path, platform, labels):
    """Nobody pays for a roster, and in this one the number of positives would be exact."""
    with pytest.raises(fg.InputError, match="as labels are"):
        Roster.of_scores(np.array(labels, dtype=float), SigningKey.generate())
    (tmp_path / "scored.csv").write_text("".join(f"{row}\n" for row in ["bought", *labels]))
    done = command(
        *("vertical", "roster", tmp_path / "scored.csv", "--score", "bought", "--quiet"),
        *("--site", platform.site_file(VICTIM), "--output", tmp_path / "a.roster"),
    )
    assert "Name the column of scores" in complaint(done, 2)
    assert not (tmp_path / "a.roster").exists()


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
