"""Numbers on the data-protection officer's page are computed again; its commands do as it says."""

import math
import re
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest

import fedgauge as fg
from fedgauge.keys import key_to_text
from fedgauge.plan.explain import brief, explain
from fedgauge.privacy.models import PROTOCOL_FAILURE, chance, delta_of
from fedgauge.secagg.graph import MOST_COMPLETE
from fedgauge.site import (
    Policy,
    Site,
    add_trust,
    create_site,
)
from fedgauge.site.log import COLUMNS

DOCS = Path(__file__).parents[1] / "docs"
TEXT = (DOCS / "officer.md").read_text()
RANGES = ["0 to 0.25", "0.25 to 0.5", "0.5 to 0.75", "0.75 to 1"]


def section(title):
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def prose(title):
    return " ".join(section(title).split())


def tables(title):
    """The rows of each table of a section, without its head."""
    blocks = re.findall(r"(?:^\|.*\|\n)+", section(title), flags=re.MULTILINE)
    split = [[row.strip("| ").split(" | ") for row in block.splitlines()] for block in blocks]
    return [rows[2:] for rows in split]


def shown(prior, epsilon):
    """Bayes' rule with the largest ratio of chances there is, rounded up to a tenth."""
    odds = prior / (1 - prior) * math.exp(epsilon)
    return f"{math.ceil(1000 * odds / (1 + odds)) / 10:g}%"


def test_beliefs():
    rows, persons = tables("Epsilon in numbers")
    assert [row[0] for row in rows] == ["0.1", "0.5", "1", "3", "10"]
    for first, *told in rows:
        epsilon = float(first)
        expected = [shown(prior, epsilon) for prior in (0.01, 0.1, 0.5)]
        expected += [shown(prior, 2 * epsilon) for prior in (0.1, 0.5)]
        assert told == expected
    changes = [(1, 2), (2, 4), (3, 6)]  # of one; at two sites; with three rows
    assert [row[1:] for row in persons] == [[shown(0.1, k) for k in pair] for pair in changes]
    one, two = (shown(0.1, steps * 1.0) for steps in (1, 2))
    told = prose("Three questions")
    assert (
        f"a certain row is in the data. A result at epsilon 1 makes them at most {one} sure" in told
    )
    assert f"10% sure that it says stroke, they become at most {two} sure" in told


def test_three_evaluations_are_the_row_of_their_sum():
    spent, _ = fg.privacy.compose([(1.0, 0.0)] * 3)
    assert "Three with epsilon 1 on the same data are epsilon 3" in prose("Epsilon in numbers")
    assert spent == 3


def test_what_patients_read():
    """The percentages of epsilon 1, and of all that a budget allows."""
    told = prose("What to tell patients")
    percentages = [shown(0.1, steps).removesuffix("%") for steps in (1, 2)]
    assert "the percentages are {} and {}, and the chance".format(*percentages) in told
    told, budget = prose("Epsilon in numbers"), Policy().budget_epsilon
    assert f"**Why {budget:g}?**" in told
    assert f"{budget:g} is too much: 10% may become {shown(0.1, 2 * budget)}." in told
    assert f"then 10% becomes at most {shown(0.1, 2)}." in told


def test_delta_of_the_usual_noise():
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(16, outside="clip"), fg.Cohort(5, 1), privacy=fg.DistributedDP(1.0)
    )
    text, delta = prose("Epsilon in numbers"), plan.statement("enforced").delta
    others, most = (chance(delta_of(steps, 1.0, delta)) for steps in (3, 6))
    assert "Take epsilon 1 and the usual noise." in text
    assert f"the chance is delta, {chance(delta)}. For all other limits on this page" in text
    assert f"it is at most {most}." in text
    assert f"and the chance is {most}." in prose("What to tell patients")
    told = f"about {chance(delta)} (delta), the others with at most about {others}."
    assert told in explain(plan)


def small_groups():
    """Counts with and without a stroke, by range: as the coordinator and as readers see them."""
    coordinator, readers = (
        {row[0]: (int(row[1]), int(row[2])) for row in rows}
        for rows in tables("Small groups: an example")
    )
    assert list(coordinator) == RANGES
    return coordinator, readers


def published(counts, min_cell):
    """What a result of three hospitals shows of such counts, in the words of the page."""
    middles = [0.125, 0.375, 0.625, 0.875]
    pairs = [*counts.values()]
    labels = np.concatenate([np.repeat([1, 0], pair) for pair in pairs])
    scores = np.repeat(middles, [sum(pair) for pair in pairs])
    clients = {name: (labels[i::3], scores[i::3]) for i, name in enumerate("abc")}
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(4, outside="clip"), fg.Cohort(3, 1), min_cell=min_cell
    )
    record = fg.evaluate(clients, plan).record
    edges = [f"{edge:g}" for edge in record.released_axis.edges]
    negatives, positives = record.slices[0].counts
    names = [f"{low} to {high}" for low, high in pairwise(edges)]
    return dict(zip(names, zip(positives, negatives, strict=True), strict=True))


def test_small_groups():
    coordinator, readers = small_groups()
    assert published(coordinator, 0) == coordinator
    assert published(coordinator, 10) == readers
    assert readers["0 to 0.25"] == (0, 180)  # and with it what everybody there had not
    assert "to score below 0.25 had no stroke" in prose("Small groups: an example")


def test_two_results_subtracted():
    """One patient more, and the readers of both results know what was added."""
    coordinator, readers = small_groups()
    with_stroke, without = coordinator["0.25 to 0.5"]
    later = published(coordinator | {"0.25 to 0.5": (with_stroke + 1, without)}, 10)
    before, after = readers["0.25 to 0.75"], later["0.25 to 0.75"]
    text = prose("Small groups: an example")
    assert "0.25 to 0.75 says {} and {}, not {} and {}".format(*after, *before) in text
    gained = tuple(b - a for a, b in zip(before, after, strict=True))
    assert gained == (1, 0)
    assert "So the new patient had a stroke." in text
    assert f"If {before[0] - 1} of the {before[0]} are its own" in text


def test_limits_of_a_new_site_file():
    policy = Policy()
    numbers = prose("Epsilon in numbers")
    allows = f"allows {policy.max_epsilon:g} for one evaluation and {policy.budget_epsilon:g} for"
    assert allows in numbers
    assert f"`min_cell` ({policy.min_cell})" in prose("Who learns what, at worst")
    assert policy.exact_sums == 3
    assert "at most three exact sums" in prose("Small groups: an example")
    for title in ("Small groups: an example", "Outline of an impact assessment"):
        assert f"at least {policy.min_new_rows} " in prose(title)
    assert "secure-aggregation" not in policy.models
    assert "Your site refuses it unless you allow it" in prose("Three questions")
    assert "local-dp" not in policy.models
    assert "the sum of at least three sites" in prose("Words")
    assert policy.min_cohort == 3


def test_figures_from_elsewhere():
    assert f"more than {MOST_COMPLETE} sites" in prose("What is not promised")
    assert "is about 1 in a million million in each" in prose("What is not promised")
    assert pytest.approx(1e-12, rel=0.1) == PROTOCOL_FAILURE
    mean, pooled = re.findall(r"\*\*(0\.\d\d)\*\*", (DOCS.parent / "README.md").read_text())
    assert f"an AUC of {mean} is really {pooled}" in prose("Outline of an impact assessment")


def test_links_lead_somewhere():
    for file, anchor in re.findall(r"\]\(([\w./]*)#([\w-]+)\)", TEXT):
        titles = re.findall(r"^#+ (.*)$", (DOCS / (file or "officer.md")).read_text(), re.MULTILINE)
        assert anchor in {
            re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles
        }
    for file in re.findall(r"\]\(([\w./]+\.md)", TEXT):
        assert (DOCS / file).exists()


def test_commands_name_the_site_file():
    """Else they look for one where the officer happens to be."""
    about_a_site = re.findall(r"`(fedgauge (?:exchange|ledger|site|doctor)\b[^`]*)`", TEXT)
    assert len(about_a_site) > 5
    for command in about_a_site:
        assert command.endswith(" --site hospital-a/site.toml")


# The commands. Hospital A is the page's; two others and a coordinator are made for it.

HOSPITALS = ["hospital-a", "hospital-b", "hospital-c"]
PARTNERS = ["consortium", *HOSPITALS[1:]]
DATASET = "stroke-2026"
PERSONS = {"unit": "subject", "max_per_unit": 2}
(LOCK,) = re.findall(r"`(fedgauge ledger set-limit [^`]*--unit example[^`]*)`", TEXT)


class Consortium:
    """Hospital A as the page's commands left it, with plans for rows refused; and partners."""

    def __init__(self, folder, shell):
        self._folder, self._shell = folder, shell
        rng = np.random.default_rng(5)
        rows = [f"{i // 2},{int(rng.random() < 0.3)},{rng.random():.4f}" for i in range(200)]
        (folder / "rows.csv").write_text("\n".join(["id,y,p", *rows]))
        for block in re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL):
            self.told = self.run(block)
        self.run(LOCK)
        made = [create_site(folder / name, name=name, dataset=DATASET) for name in PARTNERS]
        sites = [Site.from_toml(folder / "hospital-a" / "site.toml"), *made]
        for site, other in permutations(sites, 2):
            role = "coordinator" if other.name == "consortium" else "peer"
            add_trust(site.path, role, other.name, key_to_text(other.key.public))

    def run(self, script, *, code=0):
        """What a script said, which must end with this code."""
        done = self._shell(script, self._folder, COLUMNS="120")
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def at(self, site, command, *, code=0):
        return self.run(f"fedgauge {command} --site {site}/site.toml", code=code)

    def start(self, name, **privacy):
        model = fg.DistributedDP(1.0, **privacy)
        axis = fg.Axis.uniform(8, outside="clip")
        plan = fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3, 1), privacy=model)
        plan.save(self._folder / f"{name}.toml")
        self.at("consortium", f"exchange start {name}.toml {name}")

    def join(self, name, site="hospital-a", *, code=0):
        columns = "--label y --score p --subject id"
        return self.at(site, f"exchange join {name} rows.csv {columns}", code=code)

    def sessions(self):
        folder = self._folder / "hospital-a" / "sessions"
        return sorted(path.suffix for path in folder.iterdir() if path.name != "lock")


@pytest.fixture
def consortium(tmp_path, shell):
    return Consortium(tmp_path, shell)


def test_row_plans_are_refused_and_plans_for_persons_are_not(consortium, tmp_path):
    assert re.search(r"stroke-2026 +all +all +0 +0 +2 +2", consortium.told)
    for neighbours in ("add-remove", "replace-one"):
        consortium.start(neighbours, neighbours=neighbours)
        assert f"(example, {neighbours})" in consortium.join(neighbours, code=2)
    reports = fg.EvaluationPlan.for_reports(fg.Axis.uniform(8, outside="clip"), fg.LocalDP(1.0))
    reports.save(tmp_path / "reports.toml")
    encode = "encode reports.toml rows.csv --label y --score p -o rows.fgr"
    assert "local-dp is not among those" in consortium.at("hospital-a", encode, code=2)
    consortium.run(LOCK.replace("--epsilon 0", "--epsilon 2"))  # undone, as the page says
    consortium.start("rows")
    consortium.join("rows")
    consortium.at("hospital-a", "exchange abandon rows")
    consortium.start("persons", **PERSONS)
    told = consortium.join("persons")
    assert brief(fg.EvaluationPlan.load(tmp_path / "persons.toml")) in told  # the rest is explain's
    assert re.search(r"all +all +0 +1 +2 +1", consortium.at("hospital-a", "ledger show"))


def test_leaving_before_counts_are_sent_costs_nothing(consortium):
    consortium.start("persons", **PERSONS)
    consortium.join("persons")
    assert consortium.sessions() == [".client", ".note"]
    consortium.at("hospital-a", "exchange abandon persons")
    assert consortium.sessions() == []
    assert re.search(r"all +all +0 +0 +2 +2", consortium.at("hospital-a", "ledger show"))


def test_three_sites_cannot_finish_without_one_whose_counts_were_sent(consortium):
    assert "With three sites, or without noise and with up to 200 sites, nobody" in prose(
        "Three questions"
    )
    consortium.start("persons", **PERSONS)
    for site in HOSPITALS:
        consortium.join("persons", site)
    for verb in ("share", "submit"):
        consortium.at("consortium", "exchange advance persons")
        for site in HOSPITALS:
            consortium.at(site, f"exchange {verb} persons")
    consortium.at("hospital-a", "exchange abandon persons --yes")
    consortium.at("consortium", "exchange advance persons")
    for site in HOSPITALS[1:]:
        consortium.at(site, "exchange confirm persons")
    told = consortium.at("consortium", "exchange advance persons --without-missing", code=1)
    assert "3 are needed" in told


def test_a_budget_of_zero_refuses_everything_with_noise(consortium):
    consortium.at("hospital-a", "ledger set-limit --epsilon 0")
    consortium.start("persons", **PERSONS)
    assert "(all plans) does not allow this" in consortium.join("persons", code=2)


def test_what_is_kept_after_an_evaluation(consortium, tmp_path):
    consortium.start("persons", **PERSONS)
    for site in HOSPITALS:
        consortium.join("persons", site)
    for verb in ("share", "submit", "confirm", "reveal"):
        consortium.at("consortium", "exchange advance persons")
        for site in HOSPITALS:
            consortium.at(site, f"exchange {verb} persons")
    assert "enforced between the sites" in consortium.at("consortium", "exchange advance persons")
    assert consortium.sessions() == [".client", ".note"]
    consortium.at("hospital-a", "exchange abandon persons")
    assert consortium.sessions() == []
    assert re.search(r"all +all +1 +0 +2 +1", consortium.at("hospital-a", "ledger show"))
    kept = {path.name for path in (tmp_path / "hospital-a").iterdir()}
    assert {"site.toml", "site.key", "site.key.head", "ledger.sqlite"} <= kept
    # Nobody deletes them.
    assert list((tmp_path / "persons").glob("3-submit.*.hospital-a.reply.fgx"))


def test_your_own_yes(consortium):
    """The key as the page makes it; what goes round it, and what then shows."""
    (made,) = re.findall(r"`(fedgauge site approver [^`]*)`", TEXT)
    consortium.run(made.replace("/media/stick/", ""))
    consortium.start("persons", **PERSONS)
    assert "no approver has signed" in consortium.join("persons", code=2)
    (look,) = re.findall(r"`(fedgauge exchange review [^`]*)`", TEXT)
    reviewed = consortium.run(look.replace("FOLDER", "persons"))
    consortium.run(reviewed.splitlines()[-1])
    consortium.join("persons")
    assert " officer " in consortium.at("hospital-a", "site log")


def test_a_limit_for_labels_allows_one_plan_at_epsilon_1(consortium):
    assert "so this allows one of them at epsilon 1" in prose("How a site stops it")
    (limit,) = re.findall(r"`(fedgauge ledger set-limit [^`]*--unit label[^`]*)`", TEXT)
    consortium.run(limit)
    consortium.start("persons", **PERSONS | {"max_per_unit": 1})
    consortium.join("persons")
    consortium.start("again", **PERSONS | {"max_per_unit": 1})
    assert "(label, flip)" in consortium.join("again", code=2)


def test_a_signature_can_be_withdrawn_before_confirming(consortium, tmp_path):
    consortium.run("fedgauge site approver officer officer.key --site hospital-a/site.toml")
    consortium.start("persons", **PERSONS)
    reviewed = consortium.at("hospital-a", "exchange review persons")
    consortium.run(reviewed.splitlines()[-1])
    for site in HOSPITALS:
        consortium.join("persons", site)
    for verb in ("share", "submit"):
        consortium.at("consortium", "exchange advance persons")
        for site in HOSPITALS:
            consortium.at(site, f"exchange {verb} persons")
    consortium.at("consortium", "exchange advance persons")
    assert "delete its file in `sessions/`" in prose("How a site stops it")
    (signature,) = (tmp_path / "hospital-a" / "sessions").glob("*.approval")
    signature.unlink()
    told = consortium.at("hospital-a", "exchange confirm persons", code=2)
    assert "no approver has signed this evaluation" in told


def test_what_goes_round_your_own_yes(consortium, tmp_path):
    consortium.run("fedgauge site approver officer officer.key --site hospital-a/site.toml")
    file = tmp_path / "hospital-a" / "site.toml"
    file.write_text(re.sub(r"\n\[\[approvers\]\]\n.*\n.*\n", "\n", file.read_text()))
    consortium.start("persons", **PERSONS)
    consortium.join("persons")
    (row,) = consortium.at("hospital-a", "site log --csv -").splitlines()[1:]
    assert row.split(",")[COLUMNS.index("approver")] == ""
    assert "another approver or none" in prose("How a site stops it")
    reports = fg.EvaluationPlan.for_reports(fg.Axis.uniform(8, outside="clip"), fg.LocalDP(1.0))
    reports.save(tmp_path / "reports.toml")
    consortium.run("fedgauge encode reports.toml rows.csv --label y --score p -o rows.fgr")
    assert "encode" not in consortium.at("hospital-a", "site log")
    assert "| run `encode` without `--site` | no record at all |" in section("How a site stops it")


def test_what_an_operator_does_shows_where_the_page_says(consortium):
    """Higher limits and new names; the lines that the page shows of a new site."""
    (lines,) = re.findall(r"```text\n(.*?)```", TEXT, flags=re.DOTALL)
    told = consortium.at("consortium", "site show").splitlines()
    assert {*lines.splitlines()} <= {line.rstrip() for line in told}
    consortium.at("hospital-a", "ledger set-limit --epsilon 5")
    assert re.search(r" limit +stroke-2026 ", consortium.at("hospital-a", "ledger show --entries"))
    consortium.at("hospital-a", "site dataset renamed")
    consortium.start("persons", **PERSONS)
    consortium.join("persons")
    assert ",renamed," in consortium.at("hospital-a", "site log --csv -")
    names = re.findall(r"^[\w-]+", consortium.at("hospital-a", "ledger show"), re.MULTILINE)
    assert {"stroke-2026", "renamed"} <= {*names}


def test_why_a_new_site_file_has_the_budget_that_it_has():
    """Beliefs on the page about choosing epsilon, too."""
    text = " ".join((DOCS / "choose-epsilon.md").read_text().split())
    policy = Policy()
    budget = policy.budget_epsilon
    assert f"## Why a budget of {budget:g} " in text
    assert (
        f"allows epsilon {policy.max_epsilon:g} for one evaluation and {budget:g} for all" in text
    )
    assert f"becomes at most {shown(0.01, budget)} sure, and 10% becomes at most" in text
    assert f"10% becomes at most {shown(0.1, budget)}. That is suspicion" in text
    assert f"At 10 the same 1% may become {shown(0.01, 10)}," in text
    assert f"under the usual plans, and 10% may become {shown(0.1, 2 * budget)}." in text
