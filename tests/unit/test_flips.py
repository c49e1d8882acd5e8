"""Flips kept at a party: made once, the same ever after, and refused where they do not belong."""

import json
import os
import stat
import threading

import numpy as np
import pytest

import fedgauge as fg
from fedgauge.vertical.flips import Flips, count_by_bin

ROWS = 400
IDS = np.arange(ROWS)
LABELS = np.arange(ROWS) % 3 == 0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "labels.flips"


def kept(path, ids=IDS, labels=LABELS, epsilon=1.0):
    return Flips.kept(path, ids, labels, epsilon=epsilon)


def test_asked_again_they_are_the_same(path):
    first, again = kept(path), kept(path)
    assert np.array_equal(first.told, again.told)
    assert first.digest == again.digest
    assert (first.epsilon, first.told.dtype, first.told.shape) == (1.0, bool, (ROWS,))


def test_each_file_flips_anew(tmp_path):
    """Alike with a chance of (1 - 2 rho (1 - rho))^400, below 10^-80."""
    first, other = kept(tmp_path / "a"), kept(tmp_path / "b")
    assert not np.array_equal(first.told, other.told)
    assert first.digest != other.digest


def test_rows_may_come_in_any_order(path):
    first = kept(path)
    order = np.random.default_rng(0).permutation(ROWS)
    assert np.array_equal(kept(path, IDS[order], LABELS[order]).told, first.told[order])


def test_text_and_numbers_are_the_same_ids(path):
    first = kept(path)
    assert np.array_equal(kept(path, [str(i) for i in IDS]).told, first.told)


def test_a_positive_label_is_what_it_means(path):
    first = Flips.kept(path, IDS, LABELS, epsilon=1.0)
    for positive in (1, True, 1.0, "1", " true"):
        again = Flips.kept(path, IDS, LABELS, epsilon=1.0, positive=positive)
        assert again.digest == first.digest
    for positive in (0, 2, 1.5, "yes", "int 1", "9" * 400, "nan", "inf"):
        with pytest.raises(fg.SiteError, match="or of another positive label"):
            Flips.kept(path, IDS, LABELS, epsilon=1.0, positive=positive)


def test_a_large_epsilon_flips_nothing(path):
    with pytest.warns(fg.PrivacyWarning):
        flips = kept(path, epsilon=50.0)
    assert np.array_equal(flips.told, LABELS)


def test_only_the_owner_can_read_the_file(path):
    before = os.umask(0)
    try:
        kept(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644])
def test_a_file_that_others_can_read_or_change_is_refused(path, mode):
    kept(path)
    path.chmod(mode)
    with pytest.raises(fg.SiteError, match="chmod 600"):
        kept(path)
    path.chmod(0o600)
    kept(path)


OTHER_ROWS = {
    "one more": (np.arange(ROWS + 1), np.append(LABELS, True)),
    "one less": (IDS[1:], LABELS[1:]),
    "another": (np.append(IDS[1:], 9999), np.append(LABELS[1:], LABELS[0])),
    "none": (IDS[:0], LABELS[:0]),
}


@pytest.mark.parametrize("rows", OTHER_ROWS.values(), ids=OTHER_ROWS)
def test_other_ids_are_refused_with_what_they_cost(path, rows):
    kept(path)
    with pytest.raises(fg.SiteError, match=r"of other ids.*another file: that costs epsilon again"):
        kept(path, *rows)


def test_ids_do_not_run_into_one_another(path):
    kept(path, ["a", "bc"], LABELS[:2])
    with pytest.raises(fg.SiteError, match="of other ids"):
        kept(path, ["ab", "c"], LABELS[:2])


def test_a_changed_label_is_refused(path):
    kept(path)
    changed = LABELS.copy()
    changed[7] ^= True
    with pytest.raises(fg.SiteError, match=r"labels have changed.*would show which"):
        kept(path, labels=changed)


@pytest.mark.parametrize("epsilon", [0.5, 1.0000001, 2.0])
def test_another_epsilon_is_refused(path, epsilon):
    kept(path)
    with pytest.raises(fg.SiteError, match=r"flips of epsilon 1, .* Ask for 1\."):
        kept(path, epsilon=epsilon)


@pytest.mark.parametrize("field", ["format", "epsilon", "key", "ids", "labels", "bits", "seal"])
def test_a_changed_file_is_refused(path, field):
    kept(path)
    content = json.loads(path.read_bytes())
    content[field] = 2.0 if field == "epsilon" else "AAAA" + content[field][4:]
    path.write_text(json.dumps(content))
    with pytest.raises(fg.SiteError, match=r"was changed\. Restore it from a copy"):
        kept(path)


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"[1]"])
def test_what_is_no_file_of_flips_is_refused_and_left_alone(path, data):
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(fg.SiteError, match="does not keep flips"):
        kept(path)
    assert path.read_bytes() == data


def test_a_file_cut_short_is_refused(path):
    kept(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(fg.SiteError, match="does not keep flips"):
        kept(path)


def test_a_missing_folder_is_told(tmp_path):
    with pytest.raises(fg.SiteError, match=r"cannot keep flips in .*No such file"):
        kept(tmp_path / "none" / "labels.flips")


@pytest.mark.parametrize(
    ("ids", "labels", "told"),
    [
        ([1, 2, 2], [True, False, True], "1 ids come twice"),
        ([1, None, 3], [True, False, True], "1 ids are missing"),
        ([1, "a", 3], [True, False, True], "mix kinds"),
        ([1, 2, 3], [1, 0, 1], "truth values"),
        ([1, 2, 3], [True, False], "one for each id"),
    ],
)
def test_rows_that_cannot_be_flipped(path, ids, labels, told):
    with pytest.raises(fg.InputError, match=told):
        kept(path, ids, labels)
    assert not path.exists()


@pytest.mark.parametrize("epsilon", [0, -1.0, 1e-9, float("nan"), "1"])
def test_epsilon_is_one_that_a_label_can_have(path, epsilon):
    with pytest.raises(fg.PlanError, match="epsilon"):
        kept(path, epsilon=epsilon)


def test_who_asks_at_the_same_time_gets_the_same_flips(path):
    found = []
    asking = [threading.Thread(target=lambda: found.append(kept(path))) for _ in range(8)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert len({flips.digest for flips in found}) == 1
    assert len({flips.told.tobytes() for flips in found}) == 1
    assert len(found) == 8


def test_errors_name_no_id_and_no_label(path):
    kept(path, ["patient-17", "patient-18"], LABELS[:2])
    with pytest.raises(fg.SiteError) as caught:
        kept(path, ["patient-17", "patient-19"], LABELS[:2])
    assert "patient" not in str(caught.value)


def test_what_is_sent():
    told, bins = np.array([True, False, True, True]), np.array([0, 0, 2, 2])
    assert count_by_bin(told, bins, 4).tolist() == [1, 0, 2, 0]
