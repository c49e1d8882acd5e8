"""The commands about a site and its ledger."""

import re

import commands
import pytest
from ledgers import spend

import fedgauge as fg
from fedgauge.keys import SigningKey, key_from_text, key_to_text
from fedgauge.site import Account, Cost


def run(*arguments, code=0):
    result = commands.run(*arguments, columns=120)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


@pytest.fixture
def site(tmp_path):
    run("site", "init", "--name", "hospital-a", "--dataset", "stroke-2026", tmp_path / "a", "-q")
    return tmp_path / "a" / "site.toml"


def row_of(title, table):
    (line,) = [line for line in table.splitlines() if line.startswith(title)]
    return line.removeprefix(title).strip()


def key():
    return key_to_text(SigningKey.generate().public)


def test_exact_sums_are_allowed_by_name_only(tmp_path):
    """Not by a list of models, from which they could slip in with the rest."""
    init = ["site", "init", "--name", "a", "--dataset", "d"]
    told = run(*init, "--allow", "sa", "--allow", "ddp", tmp_path / "new", code=2)
    assert "--allow-exact" in told
    assert not (tmp_path / "new").exists()
    run(*init, "--allow-exact", tmp_path / "all", "-q")
    policy = fg.Site.from_toml(tmp_path / "all" / "site.toml").policy
    assert policy.models == ("distributed-dp", "secure-aggregation")
    run(*init, "--allow", "ddp", "--allow", "sa", "--allow-exact", tmp_path / "some", "-q")
    policy = fg.Site.from_toml(tmp_path / "some" / "site.toml").policy
    assert policy.models == ("distributed-dp", "secure-aggregation")


def test_init_takes_the_labels_that_plans_may_call_positive(site, tmp_path):
    assert fg.Site.from_toml(site).policy.labels == ("1",)
    init = ["site", "init", "--name", "a", "--dataset", "d"]
    run(*init, "--positive", "yes", "--positive", "maybe", tmp_path / "new", "-q")
    made = tmp_path / "new" / "site.toml"
    assert fg.Site.from_toml(made).policy.labels == ("yes", "maybe")
    assert row_of("Labels asked about", run("site", "show", "--site", made)) == "yes, maybe"


def test_init_takes_limits_and_labels_and_says_what_to_tell_the_partners(tmp_path):
    limits = ["--allow", "ddp", "--min-cohort", 5, "--max-epsilon", 0.5, "--max-bins", 64]
    run("site", "init", "--name", "a", "--dataset", "d", *limits, "--budget", 2, tmp_path / "new")
    policy = fg.Site.from_toml(tmp_path / "new" / "site.toml").policy
    assert policy.models == ("distributed-dp",)
    assert (policy.min_cohort, policy.max_epsilon, policy.max_bins) == (5, 0.5, 64)
    assert policy.budget_epsilon == 2
    told = run("site", "init", "--name", "a", "--dataset", "d", tmp_path / "open")
    made = fg.Site.from_toml(tmp_path / "open" / "site.toml")
    assert f"fedgauge site trust a {key_to_text(made.key.public)}" in told
    assert made.policy.models == ("distributed-dp",)


def test_groups_and_sums_are_refused_unless_allowed(site, tmp_path):
    def told(name, *options):
        made = ["site", "init", "--name", "a", "--dataset", "d", *options, tmp_path / name, "-q"]
        run(*made)
        return run("site", "show", "--site", tmp_path / name / "site.toml")

    groups, scores, exact = "Groups told apart", "Average score in each range", "Sums without noise"
    closed = run("site", "show", "--site", site)
    for title in (groups, scores, exact):
        assert row_of(title, closed) == "refused"
    grouped = told("groups", "--max-groups", "6")
    assert row_of(groups, grouped) == "at most 6"
    assert row_of("Counts that leave in one evaluation", grouped) == "at most 4,000,000"
    assert row_of(scores, told("sums", "--score-sums")) == "allowed"
    opened = told("exact", "--allow-exact")
    assert row_of(exact, opened) == "at most 3 on a dataset, over all sites invited"
    assert row_of("  their scores", opened) == "at most 1 for each row; not from models sent here"
    assert row_of("  their ranges", opened).endswith("each shown with 0 or at least 10 examples")


def test_show_says_what_slices_an_exact_sum_may_have(tmp_path):
    asked = ("site", "init", "--name", "a", "--dataset", "d", "--allow-exact", "--quiet")
    run(*asked, tmp_path / "a")
    site = tmp_path / "a" / "site.toml"
    assert row_of("  their groups", run("site", "show", "--site", site)) == "none"
    text = site.read_text()
    for old, new in (
        ("exact_scores = 1 ", "exact_scores = 12 "),
        ("exact_pairs = false", "exact_pairs = true"),
        ("exact_groups = []", 'exact_groups = ["women", "men"]'),
    ):
        assert old in text
        text = text.replace(old, new)
    site.write_text(text)
    told = run("site", "show", "--site", site)
    assert "at most 12 for each row, two of them together; not" in row_of("  their scores", told)
    assert row_of("  their groups", told) == "women, men"


def test_nothing_is_written_over_or_where_a_key_is_wrong(site):
    before = site.read_bytes()
    assert "exists" in run("site", "init", "--name", "b", "--dataset", "d", site.parent, code=2)
    assert "public key" in run("site", "trust", "b", "ed25519:abc", "--site", site, code=2)
    assert site.read_bytes() == before


def test_show_names_the_trusted_and_the_limits_in_force(site):
    peer, boss = key(), key()
    run("site", "trust", "hospital-b", peer, "--site", site)
    run("site", "trust", "consortium", boss, "--coordinator", "--site", site)
    told = run("site", "show", "--site", site)
    costs = "epsilon 1, delta 1 in 1,000,000"
    for text in ("hospital-a", "stroke-2026", "Other site hospital-b", peer, costs):
        assert text in told
    assert "Coordinator consortium" in told
    assert boss in told

    def told():
        return row_of(
            "All evaluations of the dataset may cost", run("site", "show", "--site", site)
        )

    assert told() == "epsilon 3, delta 1 in 100,000"
    run("ledger", "set-limit", "--epsilon", 2, "--site", site)
    limit, default = (f"epsilon {number}, delta 1 in 100,000" for number in (2, 3))
    assert told() == f"{limit} (by the ledger; by the site file {default})"
    run("site", "dataset", "other", "--site", site)
    assert told() == "epsilon 3, delta 1 in 100,000"
    fg.Site.from_toml(site).ledger_path.unlink()
    assert "cannot be read" in told()


def test_show_says_that_nobody_may_start_an_evaluation_or_that_there_is_no_site(site, tmp_path):
    assert "fedgauge site trust --coordinator" in run("site", "show", "--site", site)
    told = run("site", "show", "--site", tmp_path / "site.toml", code=2)
    assert "--site" in told
    assert "fedgauge site init" in told


ROLES = {"peer": [], "coordinator": ["--coordinator"], "approver": ["--approver"]}


def trusted(path):
    site = fg.Site.from_toml(path)
    return [dict(parties) for parties in (site.peers, site.coordinators, site.approvers)]


@pytest.mark.parametrize("role", ROLES.values(), ids=ROLES.keys())
def test_a_trusted_key_is_replaced(site, role):
    old, new = key(), key()
    for name, options in (("one", []), ("two", ["--coordinator"]), ("three", ["--approver"])):
        run("site", "trust", name, key(), *options, "--site", site)
    run("site", "trust", "hospital-b", old, *role, "--site", site)
    site.write_text(site.read_text() + "# compared by phone\n")
    text, before = site.read_text(), trusted(site)
    told = run("site", "trust", "hospital-b", new, *role, "--replace", "--site", site)
    assert f"old key  {old}" in told
    assert f"new key  {new}" in told
    assert "another role" not in told
    assert site.read_text() == text.replace(old, new)
    public = {key_from_text(old): key_from_text(new)}
    assert trusted(site) == [
        {public.get(each, each): name for each, name in parties.items()} for parties in before
    ]


def test_a_key_in_two_roles_is_named_where_it_stays(site):
    old, new = key(), key()
    run("site", "trust", "hospital-b", old, "--site", site)
    run("site", "trust", "hospital-b", old, "--coordinator", "--site", site)
    told = run("site", "trust", "hospital-b", new, "--replace", "--site", site)
    assert f"fedgauge site trust hospital-b {new} --replace --coordinator --site {site}" in told
    assert list(fg.Site.from_toml(site).coordinators) == [key_from_text(old)]


def test_only_a_key_that_is_there_is_replaced_by_one_that_can_be(site):
    mine, other = key(), key()
    for name, public, *role in (("b", mine), ("c", other), ("boss", key(), "--coordinator")):
        run("site", "trust", name, public, *role, "--site", site)
    before = site.read_bytes()
    for name, public, options, told in (
        ("d", key(), [], "no peer named d whose key could be replaced. Add it without"),
        ("b", key(), ["--coordinator"], "no coordinator named b"),
        ("boss", key(), [], "There is a coordinator of that name: say which (--coordinator)"),
        ("b", mine, [], "has that key already"),
        ("b", other, [], "have the same key"),
        ("b", "ed25519:abc", [], "public key"),
    ):
        replace = ["site", "trust", name, public, *options, "--replace", "--site", site]
        assert told in run(*replace, code=2)
        assert site.read_bytes() == before


def test_a_key_written_in_another_way_is_left_to_hands(site):
    old = key()
    text = site.read_text()
    line = f'peers = [{{ name = "hospital-b", key = "{old}" }}]\n'
    site.write_text(text.replace("[policy]", f"{line}[policy]"))
    told = run("site", "trust", "hospital-b", key(), "--replace", "--site", site, code=2)
    assert "Edit it by hand" in told
    assert old in site.read_text()


def test_an_unused_ledger_and_examples_of_the_help(site):
    assert "Nothing has been spent yet" in run("ledger", "show", "--site", site)
    for command in ("init", "show", "trust"):
        assert "fedgauge site" in run("site", command, "--help")


def test_the_ledger_shows_what_is_spent_reserved_and_left(site):
    run("ledger", "set-limit", "--epsilon", 3, "--delta", 1e-6, "--site", site)
    ledger = fg.Site.from_toml(site).ledger
    account = Account("stroke-2026", "example", "add-remove")
    for number, epsilon in enumerate([1.0, 0.5], start=1):
        session = bytes([number]) * 32
        ledger.reserve(session, account, Cost(epsilon, 0.0), default_limit=Cost(10, 1e-5))
        if number == 1:
            ledger.commit(session)
    told = run("ledger", "show", "--entries", "--site", site)
    rows = [line.split() for line in told.splitlines() if line.startswith("stroke-2026")]
    assert rows == [
        ["stroke-2026", "all", "all", "1", "0.5", "3", "1.5"],
        ["stroke-2026", "example", "add-remove", "1", "0.5", "-", "-"],
    ]
    assert "limit" in told
    assert "commit     evaluation 01010101" in told


def test_the_ledger_shows_exact_sums(site):
    ledger = fg.Site.from_toml(site).ledger
    spend(ledger, 1, Cost(float("inf"), 0.0), Account("stroke-2026", "-", "-"))
    told = run("ledger", "show", "--entries", "--site", site)
    assert "exact sums: 1, no more allowed; noise refused" in told
    text = site.read_text().replace('["distributed-dp"', '["secure-aggregation"')
    site.write_text(text.replace("mix_exact = false", "mix_exact = true"))
    assert "exact sums: 1 of 3  " in run("ledger", "show", "--site", site)
    assert "all" not in told.split()
    assert "exact sum" in told


def test_limits_that_make_no_sense_are_refused(site):
    for limit, told in (
        (["--epsilon", -1], "Invalid value"),
        (["--epsilon", 1, "--delta", 2], "Invalid value"),
        (["--epsilon", 2, "--neighbours", "add-remove"], "goes with --unit"),
    ):
        assert told in run("ledger", "set-limit", *limit, "--site", site, code=2)


def test_limits_of_a_unit_are_of_all_that_may_differ_about_it(site):
    """One of a kind alone would let the other kind pass."""
    for unit in ("client", "example"):
        run("ledger", "set-limit", "--epsilon", 2, "--unit", unit, "--site", site)
    accounts = [row.account for row in fg.Site.from_toml(site).ledger.balances()]
    assert [(account.unit, account.neighbours) for account in accounts] == [
        ("client", "replace-one"),
        ("client", "zero-out"),  # what the counts of a client are without it
        ("example", "add-remove"),
        ("example", "replace-one"),
    ]


def test_a_limit_is_of_all_plans_unless_a_unit_is_named(site):
    limits = ["ledger", "set-limit", "--site", site, "--epsilon"]
    assert "stroke-2026 (all plans): at most epsilon 3, delta 1e-05" in run(*limits, 3)
    assert "all" in run("ledger", "show", "--site", site).split()
    told = run(*limits, 1, "--unit", "subject", "--neighbours", "replace-one")
    assert "stroke-2026 (subject, replace-one): at most epsilon 1" in told
    rows = [line.split() for line in run("ledger", "show", "--site", site).splitlines()[1:]]
    assert rows == [
        ["stroke-2026", "all", "all", "0", "0", "3", "3"],
        ["stroke-2026", "subject", "replace-one", "0", "0", "1", "1"],
    ]


def test_show_uses_no_programmer_s_words(site):
    """It is what a data-protection officer reads of a site."""
    run("site", "trust", "hospital-b", key(), "--site", site)
    told = run("site", "show", "--site", site)
    for word in ("axis", "bin", "bins", "max_counts", "score sums", "peer", "distributed-dp"):
        assert not re.search(rf"\b{word}\b", told, re.IGNORECASE), word
    assert row_of("Sums with noise", told) == "allowed"
    assert row_of("Local reports, with noise", told) == "refused"
    assert row_of("Colluding sites to withstand", told) == "at least 1"
    assert row_of("One evaluation may cost", told) == "epsilon 1, delta 1 in 1,000,000"


def test_init_declares_the_rows(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("y;p\n1;0,5\n0;0,2\n")
    init = ["site", "init", "--name", "a", "--dataset", "d"]
    named = ["--data", rows, "--label", "y", "--score", "p", "--separator", ";", "--decimal", ","]
    run(*init, *named, tmp_path / "new", "-q")
    path = tmp_path / "new" / "site.toml"
    data = fg.Site.from_toml(path).data
    assert (data.path, data.label, data.score) == (str(rows), "y", "p")
    assert (data.separator, data.decimal, data.periods) == (";", ",", None)
    shown = run("site", "show", "--site", path)
    assert "rows.csv: label y, score p" in " ".join(shown.split())
    assert row_of("Rows that look wrong", shown) == "refused before joining"
    assert "Periods" not in shown


def test_init_declares_rows_in_periods(tmp_path):
    init = ["site", "init", "--name", "a", "--dataset", "d"]
    named = ["--data", tmp_path / "{year}-W{week}.csv", "--label", "y", "--score", "p"]
    run(*init, *named, tmp_path / "new", "-q")
    path = tmp_path / "new" / "site.toml"
    assert fg.Site.from_toml(path).dataset == "d"
    path.write_text(path.read_text().replace("[data]", '[data]\nperiods = "disjoint"', 1))
    assert re.fullmatch(r"d-\d{4}-W\d\d", fg.Site.from_toml(path).dataset)
    assert "nobody has rows in two periods" in " ".join(run("site", "show", "--site", path).split())


@pytest.mark.parametrize(
    ("named", "told"),
    [
        (["--data", "{rows}", "--label", "y"], "--data needs the columns"),
        (["--label", "y", "--score", "p"], "Name it: --data FILE"),
        (["--data", "{rows}", "--label", "y", "--score", "risk"], "no column 'risk'"),
        (["--data", "{rows}x", "--label", "y", "--score", "p"], "no such file"),
        (["--data", "W{{week}}.csv", "--label", "y", "--score", "p"], "one kind of period"),
    ],
)
def test_init_makes_no_site_with_rows_that_cannot_be_read(tmp_path, named, told):
    (tmp_path / "rows.csv").write_text("y,p\n1,0.5\n0,0.2\n")
    named = [word.format(rows=tmp_path / "rows.csv") for word in named]
    init = ["site", "init", "--name", "a", "--dataset", "d", *named]
    assert told in run(*init, tmp_path / "new", code=2)
    assert not (tmp_path / "new").exists()


def test_the_example_of_data_in_a_new_site_file_can_be_taken_as_it_is(site):
    text = site.read_text()
    assert fg.Site.from_toml(site).data is None
    table = re.search(r"(?m)^# \[data\](.|\n# )*", text)[0]
    site.write_text(text.replace(table, re.sub("(?m)^# ", "", table)))
    made = fg.Site.from_toml(site)
    assert made.has_periods
    assert made.written.data.positive_rate == 0.3
