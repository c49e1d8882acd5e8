"""A site's data get a new name: what becomes of their budget, and of the site file."""

import commands
import ledgers
import pytest
from ledgers import exact_sum, session

from fedgauge.errors import PlanRefused, SiteError
from fedgauge.site import Account, Cost, Site, create_site, name_dataset


def run(*arguments, code=0):
    result = commands.run(*arguments, columns=200)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


@pytest.fixture
def site(tmp_path):
    return create_site(tmp_path, name="hospital-a", dataset="stroke-2026")


def test_a_new_name_for_the_data(site):
    before = site.path.read_text()
    renamed = name_dataset(site.path, "stroke-2026-week-2")
    assert renamed.dataset == Site.from_toml(site.path).dataset == "stroke-2026-week-2"
    old, new = 'dataset = "stroke-2026"', 'dataset = "stroke-2026-week-2"'
    assert site.path.read_text() == before.replace(old, new)


def test_an_earlier_name_goes_on_where_it_stood(site):
    ledgers.spend(site.ledger, 1, 0.5, account=Account(site.dataset, "example", "add-remove"))
    before = site.path.read_bytes()
    assert name_dataset(site.path, "next").ledger.balances()[0].account.dataset == site.dataset
    again = name_dataset(site.path, site.dataset)
    assert site.path.read_bytes() == before
    (balance,) = again.ledger.balances()
    assert balance.spent == Cost(0.5, 0.0)


@pytest.mark.parametrize("line", ["dataset='stroke-2026'", 'dataset   =  "stroke-2026" # mine'])
def test_a_line_that_was_written_by_hand(site, line):
    text = site.path.read_text()
    start = text.index("dataset = ")
    end = text.index("\n", start)
    site.path.write_text(text[:start] + line + text[end:])
    assert name_dataset(site.path, "next").dataset == "next"
    assert ("# mine" in site.path.read_text()) == ("# mine" in line)


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
        ("week-2", "nothing is spent on it, so use it for new data only"),
        (site.dataset, "its ledger goes on"),
    ):
        told = run("site", "dataset", name, "--site", site.path)
        assert told == f"The data of hospital-a are now {name}; {stands}\n"
        assert Site.from_toml(site.path).dataset == name
    assert "dataset must be" in run("site", "dataset", "week 2", "--site", site.path, code=2)


def test_help_has_an_example():
    assert "fedgauge site dataset" in run("site", "dataset", "--help")
