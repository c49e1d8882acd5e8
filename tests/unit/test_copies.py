"""What a user holds goes through pickle, copies and other processes, and says the same after."""

import copy
import os
import pickle
import shutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import commands
import numpy as np
import pytest
from cases import clients, numbers
from ledgers import every_call_fails, make_ledger, open_ledger, reserve, session, spend
from plans import plan_for
from refusals import refused
from sites import edit, make_site

import fedgauge as fg
from fedgauge.errors import LedgerError, SiteError
from fedgauge.keys import SigningKey
from fedgauge.site import Account, Ledger, Site, add_witness, create_site, ledger_file, name_dataset

SIGNED = Path(__file__).parents[1] / "fixtures" / "results" / "enforced.json"
EVALUATIONS = {
    "exact": lambda: fg.evaluate(clients(), axis=fg.Axis.uniform(16)),
    "sums": lambda: fg.evaluate(clients(), axis=fg.Axis.uniform(16), score_sums=True),
    "merged": lambda: fg.evaluate(
        clients(), plan_for(bins=64, cohort=fg.Cohort(6, 1), min_cell=20)
    ),
    "tree": lambda: fg.evaluate(clients(), privacy=fg.DistributedDP(2.0), tree=(4, 8), seed=1),
    "reports": lambda: fg.evaluate(
        clients(), privacy=fg.LocalDP(5.0), axis=fg.Axis.uniform(16, outside="clip"), seed=1
    ),
}
WAYS = {
    "pickle": lambda made: pickle.loads(pickle.dumps(made)),  # noqa: S301
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}
AXES = {
    "uniform": fg.Axis.uniform(10, -1, 1, outside="clip"),
    "logit": fg.Axis.logit(32),
    "edges": fg.Axis.from_edges([0, 0.1, 0.7, 1]),
    "values": fg.Axis.from_values([0, 1, 2]),
}

pytestmark = pytest.mark.usefixtures("few_redraws")


@pytest.fixture(scope="module", params=EVALUATIONS)
def result(request):
    return EVALUATIONS[request.param]()


@pytest.fixture(params=WAYS)
def copied(request):
    return WAYS[request.param]


def test_results_and_all_that_is_read_off_them(result, copied):
    again = copied(result)
    assert numbers(again) == numbers(result)
    assert again.record.to_json() == result.record.to_json()
    assert again.signature == result.signature
    assert str(again) == str(result)
    assert again.at_level(0.9).roc_auc == result.at_level(0.9).roc_auc
    result.roc_auc, result.auprg, result.roc_band(), result.record, result.caution
    result.plan.axis.index([0.5])
    assert numbers(copied(result)) == numbers(result)  # in use
    for made in (result.roc_auc, result.privacy, result.record, result.estimator, result.plan):
        assert copied(made) == made
    assert dict(copied(result.roc_auc).parts) == dict(result.roc_auc.parts)
    plan = copied(result.plan)
    assert (plan.digest, plan.to_bytes()) == (result.plan.digest, result.plan.to_bytes())
    at = result.at_threshold(0.52)
    at.precision  # noqa: B018
    assert copied(at).as_dict() == at.as_dict()
    assert copied(at).confusion_matrix == copied(at.confusion_matrix) == at.confusion_matrix
    grid = np.linspace(0.0, 1.0, 11)
    for kind in ("roc", "pr", "det", "prg", "gain"):
        curve = getattr(result, f"{kind}_curve")()
        again = copied(curve)
        np.testing.assert_array_equal(again(grid), curve(grid))
        for new, old in zip(again, curve, strict=True):
            np.testing.assert_array_equal(new, old)


def test_plan_with_a_prediction(copied):
    plan = fg.planner.propose(privacy=fg.DistributedDP(1.0), clients=5, examples=5000)
    assert plan.predicted is not None
    assert copied(plan).predicted == plan.predicted
    assert copied(plan) == plan


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
def test_axis(axis, copied):
    scores = axis.edges[:3]
    placed = axis.index(scores)
    again = copied(axis)
    assert again == axis
    assert hash(again) == hash(axis)
    assert (again.digest, again.spec, repr(again)) == (axis.digest, axis.spec, repr(axis))
    assert not again.edges.flags.writeable
    np.testing.assert_array_equal(again.index(scores), placed)


def test_altered_copies_are_refused_and_another_process_returns_results():
    data = pickle.dumps(fg.Axis.from_edges([0, 0.25, 1]))
    altered = data.replace(np.float64(0.25).tobytes(), np.float64(0.26).tobytes())
    assert altered != data
    with pytest.raises(fg.AxisError, match="changed on the way"):
        pickle.loads(altered)  # noqa: S301
    with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as pool:
        (made,) = pool.map(_evaluate, [16])
    assert made.record == _evaluate(16).record


def test_a_signed_result_stays_signed_and_an_edited_one_edited(copied, tmp_path):
    result = fg.Evaluation.from_json(SIGNED)
    assert result.signature.state == "unknown key"  # signed, and nobody said whose key it is
    assert copied(result).signature == result.signature
    assert copied(result.at_level(0.9)).signature == result.signature
    path = tmp_path / "r.json"
    path.write_bytes(SIGNED.read_bytes().replace(b'"clients":', b'"added":1,"clients":', 1))
    result = fg.Evaluation.from_json(path)
    assert result.signature.state == "broken"
    assert copied(result).signature.state == "broken"


def test_draws_are_not_carried_along():
    result = EVALUATIONS["tree"]()
    before = len(pickle.dumps(result))
    result.roc_band("pointwise")
    result.auprg  # noqa: B018
    assert result.pooled._draws
    assert len(pickle.dumps(result)) < before + 2000
    assert not pickle.loads(pickle.dumps(result)).pooled._draws  # noqa: S301


def _evaluate(bins):
    return fg.evaluate(clients(2, 100), axis=fg.Axis.uniform(bins))


@pytest.fixture
def place(tmp_path):
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk" / "a.head"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "site").mkdir()
    return tmp_path / "site"


@pytest.fixture
def ledger(folder, place):
    make_ledger(folder).appoint(place)
    made = open_ledger(folder, witness=place)
    for number in (1, 2):
        spend(made, number, 0.5)
    return made


def head_of(folder):
    return folder / "site.key.head"


def test_the_witness_says_what_the_head_says(ledger, folder, place, monkeypatch):
    for number in (3, 4):
        spend(ledger, number, 0.5)
        assert place.read_bytes() == head_of(folder).read_bytes()
    assert place.read_text().startswith(f"fedgauge-head/1 {len(ledger.entries())} ")
    assert sorted(os.listdir(place.parent)) == ["a.head", "a.head.lock"]

    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", refuse)  # a stick that knows no modes
    spend(ledger, 5, 0.5)
    assert place.read_bytes() == head_of(folder).read_bytes()


@pytest.mark.parametrize("lagging", ["witness", "head", "both"])
def test_what_lags_is_mended_before_anything_is_told(ledger, folder, place, lagging):
    files = {"witness": [place], "head": [head_of(folder)]}.get(lagging, [place, head_of(folder)])
    old = {path: path.read_bytes() for path in files}
    spend(ledger, 3, 0.5)
    latest = place.read_bytes()
    for path in files:
        path.write_bytes(old[path])
    with ledger._chain.open():
        assert place.read_bytes() == head_of(folder).read_bytes() == latest
    assert ledger.status(session(3)) == "committed"


def test_the_witness_is_written_between_the_ledger_and_the_head(ledger, folder, place, monkeypatch):
    """So no head says what the witness does not know."""
    before = place.read_bytes()

    def fail(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(ledger_file.storage, "replace", fail)
        with pytest.raises(LedgerError, match=r"cannot use the witness .*Input/output error"):
            reserve(ledger, 3, 0.5)
    assert place.read_bytes() == head_of(folder).read_bytes() == before
    reserve(ledger, 3, 0.5)
    assert [entry.session for entry in ledger.entries()].count(session(3)) == 1
    assert place.read_bytes() == head_of(folder).read_bytes() != before


def test_copies_of_a_site_wait_for_each_other(ledger, folder, place, tmp_path):
    shutil.copytree(folder, tmp_path / "twin")
    twin = open_ledger(tmp_path / "twin", witness=place, timeout=0.05)
    with (
        ledger._chain.open(),
        pytest.raises(LedgerError, match=r"another process holds .*a\.head\.lock"),
    ):
        twin.entries()
    assert len(twin.entries()) == 4


def test_a_witness_that_is_ahead_or_of_another_line(ledger, folder, place, tmp_path):
    for name in ("old", "twin"):
        shutil.copytree(folder, tmp_path / name)
    spend(ledger, 6, 0.5)
    every_call_fails(open_ledger(tmp_path / "old", witness=place), "lacks what its witness")
    twin = open_ledger(tmp_path / "twin")
    for number in (3, 4, 5):
        spend(twin, number, 0.5)
    every_call_fails(open_ledger(tmp_path / "twin", witness=place), "another copy of this site")
    assert ledger.status(session(6)) == "committed"


def test_an_absent_or_damaged_witness_stops_everything(ledger, place):
    latest = place.read_bytes()
    shutil.rmtree(place.parent)
    every_call_fails(ledger, "out of reach. Mount its disk.*`fedgauge site witness`")
    place.parent.mkdir()  # the mount point, with nothing on it
    every_call_fails(ledger, "out of reach")
    assert os.listdir(place.parent) == []
    place.write_bytes(latest)
    assert ledger.status(session(1)) == "committed"
    for content in (b"", b"\xff", b"fedgauge-head/1 5\n"):
        place.write_bytes(content)
        every_call_fails(ledger, "witness .* is damaged.*take the line `witness` out")
    place.unlink()
    place.mkdir()
    every_call_fails(ledger, "cannot use the witness .*: Is a directory")


def test_a_witness_that_a_killed_call_left_is_taken_up(folder, place):
    ledger = make_ledger(folder)
    ledger.appoint(place)
    spend(ledger, 1, 0.5)  # without
    ledger.appoint(place)
    assert place.read_bytes() == head_of(folder).read_bytes()
    assert open_ledger(folder, witness=place).status(session(1)) == "committed"


def test_no_witness_of_other_files_or_of_a_ledger_that_is_not_whole(
    ledger, place, tmp_path, folder
):
    (tmp_path / "other").mkdir()
    other = make_ledger(tmp_path / "other")
    latest = place.read_bytes()
    refused(LedgerError, "lacks what its witness", other.appoint, place)
    assert place.read_bytes() == latest
    (place.parent / "letter").write_text("precious")
    refused(LedgerError, "is damaged", ledger.appoint, place.parent / "letter")
    assert (place.parent / "letter").read_text() == "precious"
    shutil.copy(folder / "ledger.sqlite", folder / "old")
    spend(ledger, 3, 0.5)
    (folder / "old").replace(folder / "ledger.sqlite")
    refused(LedgerError, "old copy", open_ledger(folder).appoint, place.parent / "new")
    assert not (place.parent / "new").exists()


@pytest.fixture
def site(tmp_path):
    return make_site(tmp_path / "site")


def test_a_witness_for_a_site(site, place):
    before = site.path.read_text()
    named = add_witness(site.path, place)
    assert named.witness_path == place
    spend(named.ledger, 1, 0.5, Account(site.dataset, "example", "add-remove"))
    assert place.read_bytes() == site.head_path.read_bytes()
    lines = site.path.read_text().splitlines(keepends=True)
    (new,) = [line for line in lines if line.startswith("witness = ")]
    assert lines[lines.index(new) - 1].startswith("ledger = ")
    assert "".join(line for line in lines if line != new) == before
    with pytest.raises(SiteError, match="move that file and change the line"):
        add_witness(site.path, place.parent / "other")


def test_a_file_written_by_hand(site, place):
    edit(site, "\n[policy]", 'witness = ""\n[policy]')
    refused(SiteError, "witness must be the path of a file", Site.from_toml, site.path)
    edit(site, 'witness = ""\n[policy]', "\n[policy]")
    edit(site, "ledger = ", '"ledger" = ')
    refused(SiteError, "no line that begins with ledger", add_witness, site.path, place)
    assert not place.exists()


def test_a_path_in_the_site_file_is_relative_to_it_and_stays(site, place, monkeypatch):
    add_witness(site.path, place)
    assert name_dataset(site.path, "next").witness_path == place
    edit(site, f'"{place}"', '"../disk/a.head"')
    monkeypatch.chdir("/")
    assert Site.from_toml(site.path).witness_path == site.folder / "../disk/a.head"
    assert Site.from_toml(site.path).ledger.entries() == []


@pytest.mark.parametrize("inside", ["a.head", "sub/a.head", "../site/a.head", "../link/a.head"])
def test_a_witness_in_the_sites_folder_is_none(site, place, tmp_path, inside):
    (site.folder / "sub").mkdir()
    (tmp_path / "link").symlink_to(site.folder)
    # A link in it to somewhere else would be replaced by a file.
    (site.folder / "b.head").symlink_to(place)
    before = site.path.read_text()
    for path in (site.folder / inside, site.folder / "b.head"):
        with pytest.raises(SiteError, match="own folder, and a copy of that would bring it along"):
            add_witness(site.path, path)
    assert (site.folder / "b.head").is_symlink()
    assert site.path.read_text() == before
    assert not (site.folder / inside).exists()
    edit(site, "\n[policy]", f'witness = "{inside}"\n[policy]')
    refused(SiteError, "own folder", Site.from_toml, site.path)


@pytest.mark.parametrize("spoil", ["ledger", "disk"])
def test_a_site_file_names_no_witness_that_could_not_be_written(site, place, spoil):
    before = site.path.read_text()
    if spoil == "ledger":
        site.ledger_path.unlink()
    else:
        place.parent.rmdir()
    with pytest.raises(LedgerError, match="is gone" if spoil == "ledger" else "there is no folder"):
        add_witness(site.path, place)
    assert site.path.read_text() == before
    assert not place.exists()


def test_the_commands_tell_of_the_witness_and_rename_no_dataset_without_a_ledger(site, place):
    run = commands.run
    assert "none: `fedgauge site witness`" in run("site", "show", "--site", site.path).stdout
    done = commands.worked("site", "witness", place, "--site", site.path, columns=200)
    assert f"{place} is the witness of hospital-a" in done.stdout
    assert str(place) in run("site", "show", "--site", site.path, columns=200).stdout
    place.unlink()
    done = run("ledger", "show", "--site", site.path)
    assert done.exit_code == 1
    assert "out of reach" in done.stderr
    before = site.path.read_text()
    site.ledger_path.unlink()
    assert commands.run("site", "dataset", "next", "--site", site.path).exit_code == 1
    assert site.path.read_text() == before


def test_every_site_that_has_a_key_has_had_a_ledger(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SigningKey, "save", fail)
    refused(SiteError, "No space left", create_site, tmp_path, name="a", dataset="d")
    assert Ledger(tmp_path / "ledger.sqlite", head=tmp_path / "site.key.head").entries() == []
