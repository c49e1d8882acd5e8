"""What `fedgauge doctor` finds, and that it changes nothing."""

import os
import shlex
import shutil
import subprocess
from collections import namedtuple
from datetime import UTC, datetime, timedelta
from importlib import metadata

import commands
import ledgers
import pytest
from consortium import Consortium
from plans import noisy_plan
from rows import draw_clients
from sites import make_site, text_of

from fedgauge import doctor
from fedgauge.secagg import Stage
from fedgauge.site import Account, Cost, Site, add_witness, create_site


@pytest.fixture
def site(tmp_path):
    return make_site(tmp_path / "site")


def found(about, *arguments):
    (finding,) = [each for each in doctor.examine(*arguments) if each.about == about]
    return finding


def told(about, state, *arguments):
    finding = found(about, *arguments)
    assert finding.state == state
    return finding.told


def states(*arguments):
    return {finding.state for finding in doctor.examine(*arguments)}


def test_a_new_site_is_well_and_is_left_as_it_was(site):
    before = sorted(path.name for path in site.folder.rglob("*"))
    assert states(site.path, site.folder) <= {"ok", "note"}
    assert found("Ledger", site.path).told == "0 entries; its head matches"
    assert "epsilon 10 of 10 left" in found("Budget", site.path).told
    assert sorted(path.name for path in site.folder.rglob("*")) == before


def test_every_finding_that_is_not_well_says_what_to_do(tmp_path):
    lonely = create_site(tmp_path / "lonely", name="a", dataset="d")
    assert "site trust --coordinator" in told("Trust", "note", lonely.path)
    text = lonely.path.read_text()
    lonely.path.write_text(f'{text}\n[[coordinators]]\nname = "b"\nkey = "{text_of(lonely.key)}"\n')
    assert "site trust NAME KEY" in told("Trust", "mend", lonely.path)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda site: site.path.unlink(), "there is no site file"),
        (lambda site: site.key_path.unlink(), "there is no key file"),
        (lambda site: site.key_path.chmod(0o644), "chmod 600"),
        (lambda site: site.path.chmod(0o664), "chmod go-w"),
        (lambda site: site.path.write_text("format = 1\n"), "missing required field"),
    ],
    ids=["file", "key", "key mode", "file mode", "text"],
)
def test_a_site_that_cannot_be_used(site, spoil, words):
    spoil(site)
    assert words in told("Site file and key", "mend", site.path)


def test_folders_and_ledgers_that_others_look_into(site):
    site.folder.chmod(0o755)
    assert "chmod 700" in told("Folder", "note", site.path)
    site.folder.chmod(0o700)
    assert found("Folder", site.path).state == "ok"
    site.ledger_path.chmod(0o666)
    assert "chmod 600" in told("Ledger", "mend", site.path)


def test_the_ledger_and_what_is_left(site):
    account = Account(site.dataset, "example", "add-remove")
    ledgers.spend(site.ledger, 1, 4.0, account)
    assert found("Ledger", site.path).told == "2 entries; its head matches"
    assert found("Budget", site.path).told == f"epsilon 6 of 10 left for {site.dataset}"
    ledgers.spend(site.ledger, 2, 6.0, account, limit=site.policy.default_limit)
    assert "ledger set-limit" in told("Budget", "note", site.path)


def test_an_exact_sum_leaves_no_budget_for_noise(site):
    ledgers.spend(site.ledger, 1, Cost(float("inf"), 0.0), Account(site.dataset, "-", "-"))
    refused = f"exact sums: 1 of 1000; noise refused for {site.dataset} (mix_exact)."
    assert found("Budget", site.path) == ("Budget", "note", refused)
    text = site.path.read_text()
    site.path.write_text(text.replace("mix_exact = false", "mix_exact = true"))
    assert found("Budget", site.path).told == f"epsilon 10 of 10 left for {site.dataset}"


@pytest.mark.parametrize("gone", ["ledger_path", "head_path"])
def test_a_ledger_or_head_that_is_gone(site, gone):
    ledgers.spend(site.ledger, 1, 1.0, Account(site.dataset, "example", "add-remove"))
    getattr(site, gone).unlink()
    for about in ("Ledger", "Budget"):
        assert found(about, site.path).state == "mend"
    assert "is gone" in found("Ledger", site.path).told
    for path in (site.ledger_path, site.head_path):
        path.unlink(missing_ok=True)
    assert "put both back" in told("Ledger", "mend", site.path)
    assert not site.ledger_path.exists()


def owners(site):
    return [each.told for each in doctor.examine(site.path) if each.about == "Owners"]


def test_all_that_others_could_change_is_told_at_once(site):
    """Each with its command: when all were run, the site is well."""
    assert owners(site) == ["nobody else can change the site's files"]
    spoilt = [site.folder, site.path, site.key_path, site.ledger_path, site.head_path]
    for place in (site.folder / "sessions", site.folder / "answers"):
        place.mkdir()
        spoilt.append(place)
    for place in spoilt:
        place.chmod(0o777)
    findings = [each for each in doctor.examine(site.path) if each.state == "mend"]
    words = " ".join(each.told for each in findings)
    for place in spoilt:
        assert words.count(f" {place}`") == 1
    for command in words.split("`")[1::2]:
        subprocess.run(shlex.split(command), check=True)
    assert owners(site) == ["nobody else can change the site's files"]
    assert states(site.path) <= {"ok", "note"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_site_of_another_user(site):
    for place in (site.folder, *site.folder.iterdir()):
        os.chown(place, 47_001, 47_001)
    findings = [each for each in doctor.examine(site.path) if each.state == "mend"]
    words = " ".join(each.told for each in findings)
    for place in (site.folder, site.path, site.key_path, site.ledger_path, site.head_path):
        assert f"`chown root {place}`" in words


def test_a_ledger_under_a_name_of_its_own(site):
    site.ledger_path.rename(site.folder / "l.db")
    site.path.write_text(site.path.read_text().replace("ledger.sqlite", "l.db"))
    (site.folder / "l.db").chmod(0o644)
    site.path.chmod(0o666)
    assert any("chmod 600" in told and "l.db" in told for told in owners(site))


def test_the_witness(site, tmp_path):
    assert "fedgauge site witness PATH" in told("Witness", "note", site.path)
    (tmp_path / "disk").mkdir()
    place = add_witness(site.path, tmp_path / "disk" / "head").witness_path
    assert told("Witness", "ok", site.path) == f"{place} knows the latest entry"
    shutil.copytree(site.folder, tmp_path / "old")
    ledgers.spend(Site.from_toml(site.path).ledger, 1, 1.0, Account("d", "example", "add-remove"))
    old = tmp_path / "old" / "site.toml"
    assert found("Ledger", old).state == "ok"
    assert "old copy" in told("Witness", "mend", old)
    place.unlink()
    assert "Mount its disk" in told("Witness", "mend", site.path)
    site.ledger_path.unlink()
    assert found("Witness", site.path).told == "unknown without the ledger."


def test_a_clock_that_went_back_and_a_full_disk(site, monkeypatch):
    ledgers.spend(site.ledger, 1, 1.0, Account(site.dataset, "example", "add-remove"))
    assert found("Clock", site.path).state == "ok"

    class Earlier(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) - timedelta(hours=1)

    monkeypatch.setattr(doctor, "datetime", Earlier)
    assert found("Clock", site.path).state == "mend"
    assert f"{datetime.now(UTC):%Y-%m-%d}" in found("Clock", site.path).told
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 20))
    full = "1 MiB free: make room, or nothing can be stored."
    assert found("Disk", site.path) == ("Disk", "mend", full)


def test_evaluations_under_way(tmp_path):
    clients = draw_clients(4)
    sites = Consortium.make(tmp_path / "sites", clients)
    sites.start(tmp_path / "run", noisy_plan())
    path = sites.site_file("site-0")
    assert found("Evaluations", path).state == "ok"
    sites.play(tmp_path / "run", clients, until=Stage.AGREE)
    assert found("Evaluations", path).told.startswith("1 joined and not over")
    sites.play(tmp_path / "run", clients, since=Stage.OPEN)
    assert found("Evaluations", path).state == "ok"
    (state,) = (path.parent / "sessions").glob("*.client")
    state.write_bytes(b"junk")
    assert found("Evaluations", path).state == "mend"


def test_the_folder_of_an_exchange(site, tmp_path):
    (tmp_path / "run").mkdir()
    assert found("Exchange", None, tmp_path / "run").state == "ok"
    assert list((tmp_path / "run").iterdir()) == []
    assert "Is it mounted?" in told("Exchange", "mend", site.path, tmp_path / "none")


def test_an_installation(monkeypatch):
    assert states() <= {"ok", "note"}

    def version(name):
        if name == "scipy":
            raise metadata.PackageNotFoundError
        return "9.9"

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(doctor.sys, "version_info", (3, 10, 1))
    assert found("Packages").told == "scipy: not installed. pip install fedgauge again."
    assert found("Python").state == "mend"
    assert found("Flower").state == "note"


def test_the_command_ends_with_1_when_something_must_be_mended(site):
    well = commands.worked("doctor", "--site", site.path, columns=200)
    assert "ok    Ledger" in well.stdout or "note  Ledger" in well.stdout
    site.key_path.unlink()
    ill = commands.run("doctor", "--site", site.path, columns=200)
    assert ill.exit_code == 1
    assert "mend" in ill.stdout
    assert commands.run("doctor", "--site", site.path, "-q").stdout == ""
    assert "fedgauge doctor --site" in commands.run("doctor", "--help").stdout
