"""Site files of earlier versions are refused, with the command that writes them anew."""

import stat

import commands
import ledgers
import msgspec
import pytest
from ledgers import exact_sum, session
from sites import BOSS, PEERS, text_of

from fedgauge.errors import LedgerError, PlanRefused, SiteError
from fedgauge.keys import SigningKey
from fedgauge.site import (
    Account,
    Cost,
    Policy,
    Site,
    create_site,
    migrate_site,
    name_dataset,
    new_ledger,
)
from fedgauge.site.policy import FORMAT, MODELS

# As the version before wrote it, with limits of its own.
OLD = f"""\
# A fedgauge site: whom it trusts and what it allows. A plan outside this is refused before any
# data is read. Keep site.key and site.key.head private, and never put back old copies.

name = "hospital-a"
dataset = "stroke-2026"  # what budgets are about; give new data a new name
key = "site.key"  # relative to this file
ledger = "ledger.sqlite"  # relative to this file; on a local disk

[policy]
models = ["distributed-dp", "local-dp", "secure-aggregation"]  # privacy models that plans may use
min_cohort = 4  # fewest sites in a sum; never below 3
max_epsilon = 0.5  # of one plan
max_delta = 1e-07
max_bins = 512  # finest axis
rows_per_bin = 5000  # more than this site ever has: exact sums must have room for them
score_sums = true  # true: plans may sum up the scores within bins, which tell more of small bins
budget_epsilon = 2.5  # of all plans together, unless the ledger sets a limit
budget_delta = 2e-06
mix_exact = true  # true: exact sums and differential privacy may meet on this dataset

# [[coordinators]] may start an evaluation; [[peers]] are the other sites. Each has a name and
# a key. Compare keys over the phone, or in person: whoever holds one is trusted.

[[peers]]
name = "hospital-b"
key = "{text_of(PEERS["b"])}"

[[coordinators]]
name = "consortium"
key = "{text_of(BOSS)}"

[[peers]]
name = "hospital-c"
key = "{text_of(PEERS["c"])}"
"""
KEPT = {
    "min_cohort": 4,
    "max_epsilon": 0.5,
    "max_delta": 1e-7,
    "max_bins": 512,
    "rows_per_bin": 5000,
    "score_sums": True,
    "budget_epsilon": 2.5,
    "budget_delta": 2e-6,
    "mix_exact": True,
}


@pytest.fixture
def old(tmp_path):
    """A site file of the version before, with a key and a ledger that was used."""
    path = tmp_path / "site.toml"
    path.write_text(OLD)
    path.chmod(0o640)
    SigningKey.generate().save(tmp_path / "site.key")
    ledger = ledgers.make_ledger(tmp_path)
    ledgers.spend(ledger, 1, 0.5, account=Account("stroke-2026", "example", "add-remove"))
    return path


def run(*arguments, code=0):
    result = commands.run(*arguments, columns=200)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


# Refused


def test_an_old_file_is_refused_with_the_command(old):
    before = old.read_bytes()
    with pytest.raises(SiteError, match=r"earlier version.*`fedgauge site migrate --site FILE`"):
        Site.from_toml(old)
    assert "fedgauge site migrate" in run("site", "show", "--site", old, code=2)
    assert "fedgauge site migrate" in run("ledger", "show", "--site", old, code=2)
    with pytest.raises(SiteError, match="site migrate"):
        name_dataset(old, "stroke-2027")
    assert old.read_bytes() == before


def test_a_file_that_says_it_is_old_is_old(old):
    old.write_text(OLD.replace("name =", "format = 1\nname =", 1))
    with pytest.raises(SiteError, match="site migrate"):
        Site.from_toml(old)
    migrate_site(old)
    assert Site.from_toml(old).name == "hospital-a"


@pytest.mark.parametrize("number", [0, 3, -1, 10**9])
def test_a_file_of_another_format_is_refused(old, number):
    old.write_text(OLD.replace("name =", f"format = {number}\nname =", 1))
    for read in (Site.from_toml, migrate_site):
        with pytest.raises(SiteError, match=f"format {number}, and this fedgauge reads {FORMAT}"):
            read(old)
    assert not list(old.parent.glob("*.old"))


def test_a_new_site_says_its_format(tmp_path):
    site = create_site(tmp_path, name="a", dataset="d")
    assert f"\nformat = {FORMAT}\n" in site.path.read_text()


# Migrated


@pytest.mark.parametrize("allow", [False, True])
def test_a_migrated_file(old, allow):
    """Exact sums are allowed only when that is said again; all else stays."""
    key = (old.parent / "site.key").read_bytes()
    aside = migrate_site(old, allow_exact=allow)
    site = Site.from_toml(old)
    assert (site.name, site.dataset) == ("hospital-a", "stroke-2026")
    assert site.policy.allows_exact == allow
    noisy = ("distributed-dp", "local-dp")
    assert site.policy.models == (MODELS if allow else noisy)
    assert site.policy == Policy(**KEPT, models=site.policy.models)
    assert sorted(site.peers.values()) == ["hospital-a", "hospital-b", "hospital-c"]
    assert site.peers[PEERS["b"].public] == "hospital-b"
    assert dict(site.coordinators) == {BOSS.public: "consortium"}
    assert (old.parent / "site.key").read_bytes() == key
    assert aside == old.with_name("site.toml.old")
    assert aside.read_text() == OLD
    assert stat.S_IMODE(old.stat().st_mode) == 0o640


def test_what_is_new_has_its_default_and_a_comment(old):
    migrate_site(old, allow_exact=True)
    text = old.read_text()
    fresh = msgspec.structs.asdict(Policy())
    for name in fresh.keys() - KEPT.keys():
        assert f"\n{name} = " in text
    assert "whoever chooses the" in text
    for name in fresh.keys() - KEPT.keys() - {"models"}:
        assert getattr(Site.from_toml(old).policy, name) == fresh[name]


@pytest.mark.parametrize("allow", [False, True])
def test_a_site_that_had_no_exact_sums(old, allow):
    before = 'models = ["distributed-dp", "local-dp", "secure-aggregation"]'
    old.write_text(OLD.replace(before, 'models = ["distributed-dp"]'))
    migrate_site(old, allow_exact=allow)
    more = ("secure-aggregation",) if allow else ()
    assert Site.from_toml(old).policy.models == ("distributed-dp", *more)


def test_a_ledger_needs_no_migration(old):
    files = [old.parent / name for name in ("ledger.sqlite", "site.key.head")]
    before = [file.read_bytes() for file in files]
    migrate_site(old)
    assert [file.read_bytes() for file in files] == before
    (balance,) = Site.from_toml(old).ledger.balances()
    assert balance.spent == Cost(0.5, 0.0)


def test_nothing_is_migrated_twice(old):
    migrate_site(old)
    written = old.read_bytes()
    with pytest.raises(SiteError, match="is of this version"):
        migrate_site(old)
    assert old.read_bytes() == written
    assert old.with_name("site.toml.old").read_text() == OLD


def test_an_older_copy_is_not_overwritten(old):
    aside = old.with_name("site.toml.old")
    aside.write_text("precious")
    with pytest.raises(SiteError, match="Move it away"):
        migrate_site(old)
    assert aside.read_text() == "precious"
    assert old.read_text() == OLD


@pytest.mark.parametrize(
    "change",
    [("min_cohort = 4", "min_cohort = 1"), ("ed25519:", "ed25519!"), ("max_bins", "bins")],
    ids=["limit", "key", "field"],
)
def test_a_file_that_was_wrong_before_is_left_alone(old, change):
    wrong = OLD.replace(*change, 1)
    old.write_text(wrong)
    with pytest.raises(SiteError, match=str(old)):
        migrate_site(old)
    assert old.read_text() == wrong
    assert not old.with_name("site.toml.old").exists()


def test_a_site_without_its_key_is_left_alone(old):
    (old.parent / "site.key").unlink()
    with pytest.raises(SiteError, match=r"site\.key"):
        migrate_site(old)
    assert old.read_text() == OLD
    assert not old.with_name("site.toml.old").exists()


def test_the_command_says_what_became_of_exact_sums(old):
    told = run("site", "migrate", "--site", old)
    assert "Exact sums are not allowed (--allow-exact)" in told
    assert str(old.with_name("site.toml.old")) in told
    assert not Site.from_toml(old).policy.allows_exact
    assert "is of this version" in run("site", "migrate", "--site", old, code=2)


def test_the_command_allows_exact_sums_when_told(old):
    assert "Exact sums are allowed" in run("site", "migrate", "--allow-exact", "--site", old)
    assert Site.from_toml(old).policy.allows_exact


# Sites made before ledgers were made with them


@pytest.fixture
def bare(tmp_path):
    """A site file of the version before, with a key and nothing else."""
    path = tmp_path / "site.toml"
    path.write_text(OLD)
    SigningKey.generate().save(tmp_path / "site.key")
    return path


def test_a_site_file_without_its_ledger_starts_none_by_migration(bare):
    told = " ".join(commands.run("site", "migrate", "--site", bare).stdout.split())
    assert "never took part in anything, run `fedgauge ledger new`" in told
    site = Site.from_toml(bare)
    with pytest.raises(LedgerError, match="neither a ledger"):
        site.ledger.entries()
    assert not site.ledger_path.exists()


def test_a_site_that_kept_its_ledger_is_told_nothing(bare):
    ledgers.make_ledger(bare.parent)
    assert "ledger new" not in commands.run("site", "migrate", "--site", bare).stdout


def test_a_new_ledger_when_asked_for(bare):
    migrate_site(bare)
    done = commands.run("ledger", "new", "--site", bare, columns=200)
    assert done.exit_code == 0
    assert "in which nothing is spent" in done.stdout
    assert Site.from_toml(bare).ledger.entries() == []
    again = commands.run("ledger", "new", "--site", bare)
    assert again.exit_code == 1
    assert "exists" in again.stderr


def test_a_site_that_joined_something_had_a_ledger(bare):
    migrate_site(bare)
    (bare.parent / "sessions").mkdir(mode=0o700)
    (bare.parent / "sessions" / "lock").touch()  # of a command that was refused
    (bare.parent / "sessions" / "00.client").touch()
    with pytest.raises(SiteError, match="took part"):
        new_ledger(bare)
    assert not (bare.parent / "ledger.sqlite").exists()
    (bare.parent / "sessions" / "00.client").unlink()
    assert new_ledger(bare).ledger.entries() == []


# New names of data


@pytest.fixture
def site(tmp_path):
    return create_site(tmp_path, name="hospital-a", dataset="stroke-2026")


def test_a_new_name_for_the_data(site):
    before = site.path.read_text()
    renamed = name_dataset(site.path, "stroke-2026-week-2")
    assert renamed.dataset == Site.from_toml(site.path).dataset == "stroke-2026-week-2"
    old, new = 'dataset = "stroke-2026"', 'dataset = "stroke-2026-week-2"'
    assert site.path.read_text() == before.replace(old, new)


@pytest.mark.parametrize("line", ["dataset='stroke-2026'", 'dataset   =  "stroke-2026" # mine'])
def test_a_line_that_was_written_by_hand(site, line):
    text = site.path.read_text()
    start = text.index("dataset = ")
    end = text.index("\n", start)
    site.path.write_text(text[:start] + line + text[end:])
    assert name_dataset(site.path, "next").dataset == "next"
    assert ("# mine" in site.path.read_text()) == ("# mine" in line)


def test_an_earlier_name_goes_on_where_it_stood(site):
    ledgers.spend(site.ledger, 1, 0.5, account=Account(site.dataset, "example", "add-remove"))
    before = site.path.read_bytes()
    assert name_dataset(site.path, "next").ledger.balances()[0].account.dataset == site.dataset
    again = name_dataset(site.path, site.dataset)
    assert site.path.read_bytes() == before
    (balance,) = again.ledger.balances()
    assert balance.spent == Cost(0.5, 0.0)


@pytest.mark.parametrize("name", ["", "a b", "../x", 'a"', "a\nname = 1"])
def test_a_name_is_a_name(site, name):
    before = site.path.read_bytes()
    with pytest.raises(SiteError, match="dataset must be"):
        name_dataset(site.path, name)
    assert site.path.read_bytes() == before


def test_a_new_name_starts_anew(site):
    exact = Cost(float("inf"), 0.0)
    rules = ledgers.RULES._replace(exact_sums=1)
    invited = {"exact": exact_sum("abc"), "rules": rules}
    ledgers.spend(site.ledger, 1, exact, Account(site.dataset, "-", "-"), **invited)
    with pytest.raises(PlanRefused, match="exact_sums"):
        ledgers.reserve(site.ledger, 2, exact, Account(site.dataset, "-", "-"), **invited)
    renamed = name_dataset(site.path, "week-2")
    ledgers.reserve(renamed.ledger, 2, exact, Account(renamed.dataset, "-", "-"), **invited)
    assert renamed.ledger.status(session(2)) == "reserved"


def test_the_command_names_data(site):
    ledgers.spend(site.ledger, 1, 0.5, account=Account(site.dataset, "example", "add-remove"))
    for name, stands in (
        ("week-2", "nothing is spent on it: for new data only"),
        (site.dataset, "its ledger goes on"),
    ):
        told = run("site", "dataset", name, "--site", site.path)
        assert told == f"The data of hospital-a are now {name}; {stands}\n"
        assert Site.from_toml(site.path).dataset == name
    assert "dataset must be" in run("site", "dataset", "week 2", "--site", site.path, code=2)


@pytest.mark.parametrize("command", ["migrate", "dataset"])
def test_help_has_an_example(command):
    assert f"fedgauge site {command}" in run("site", command, "--help")
