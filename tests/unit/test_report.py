"""The report page: numbers are the library's, words are escaped, nothing is fetched."""

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from commands import run, worked
from ledgers import spend
from parsed import Page
from refusals import refused
from sites import make_site

import fedgauge as fg
from fedgauge.errors import InputError
from fedgauge.metrics.estimate import show
from fedgauge.report import figures, page, report, save_report
from fedgauge.report.figures import part_of, thresholds_of
from fedgauge.report.slices import beside
from fedgauge.results.signature import Signature
from fedgauge.site import Account


def rows(number=900, seed=3, skill=2.0):
    rng = np.random.default_rng(seed)
    labels = rng.random(number) < 0.3
    return labels.astype(int), 1 / (1 + np.exp(-rng.normal(skill * labels - 1.0, 1.0)))


def rows_words(skill=1.0, number=600, seed=3):
    return rows(number, seed, skill)


def exact(**options):
    return fg.evaluate({"a": rows(seed=1), "b": rows(seed=2)}, **options)


CASES = {
    "exact": lambda: exact(axis=fg.Axis.uniform(64)),
    "clipped": lambda: exact(axis=fg.Axis.uniform(16, 0.2, 0.8, outside="clip")),
    "values": lambda: fg.evaluate(
        {"a": ([0, 1, 0, 1, 1] * 40, [1, 2, 3, 4, 5] * 40)}, axis=fg.Axis.from_values(range(8))
    ),
    "ddp": lambda: exact(privacy=fg.DistributedDP(2.0), seed=1),
    "ldp": lambda: exact(privacy=fg.LocalDP(6.0), seed=1),
}


@pytest.fixture(scope="module", params=CASES)
def pair(request):
    result = CASES[request.param]()
    return result, Page(report({"r": result}))


def thresholds_shown(result, part):
    """Every threshold of a page, as the number that its label stands for."""
    words = {"above all scores": np.inf, "below all scores": -np.inf}
    edges = result.pooled.axis.edges
    for label in part["thresholds"]["labels"]:
        yield words[label] if label in words else edges[np.abs(edges - float(label)).argmin()]


def test_wishes_are_granted_as_the_library_grants_them(pair):
    result, page = pair
    grid = list(thresholds_shown(result, page.part))
    wishes = page.part["thresholds"]["wishes"]
    assert [each[0] for each in wishes["cost"]] == list(figures.COSTS)
    for name, told in wishes.items():
        for wish, place in told:
            asked = {name: (1.0, wish) if name == "cost" else wish}
            if place is None:
                with pytest.raises(fg.UndefinedMetric):
                    result.threshold_for(**asked)
            else:
                assert grid[place] == result.threshold_for(**asked).threshold
    assert [each[0] for each in wishes["recall"]] == list(figures.SHARES)


def test_many_slices_are_told_in_brief_and_a_binary_report_is_small():
    names = [f"ward {number}" for number in range(13)]
    labels, scores = rows()
    group = [names[place % 13] for place in range(900)]
    wards = fg.Examples(labels, scores, group=group)
    coarse = fg.evaluate({"a": wards}, groups=names, axis=fg.Axis.uniform(4))
    told = Page(report({"r": coarse})).part
    assert [each["name"] for each in told["curves"]] == ["roc", "pr"]
    part = part_of(fg.evaluate({"a": wards}, axis=fg.Axis.uniform(256)), brief=True)
    assert [each[0] for each in part["thresholds"]["wishes"]["recall"]] == list(figures.FEW_SHARES)
    # 120 of these, and 45 kB of page, are below 5 MB.
    assert len(json.dumps(part, separators=(",", ":"))) < 40_000
    assert len(report({"r": exact()}).encode()) < 150_000  # of 4,096 bins


def test_command_writes_a_report_of_several_results(tmp_path):
    for name, seed in (("one", 1), ("two", 2)):
        made = fg.evaluate({"a": rows(seed=seed)}, axis=fg.Axis.uniform(16))
        made.to_json(tmp_path / f"{name}.json")
    out = tmp_path / "r.html"
    done = worked("report", tmp_path / "one.json", tmp_path / "two.json", "-o", out)
    assert f"Open {out}" in done.stdout.replace("\n", "")
    page = Page(out.read_text())
    assert [each["name"] for each in page.data["reports"]] == ["one", "two"]
    told = [attrs for _, attrs in page.elements if "data-report" in attrs]
    assert ["hidden" in attrs for attrs in told] == [False, True] * 5
    assert run("report", tmp_path / "one.json", "-o", out).exit_code == 0  # its own may be replaced
    out.write_text("mine")
    refused = run("report", tmp_path / "one.json", "-o", out)
    assert refused.exit_code == 2
    assert out.read_text() == "mine"


def test_a_result_named_twice_and_no_result_are_refused(tmp_path):
    path = tmp_path / "r.json"
    CASES["values"]().to_json(path)
    assert run("report", path, path, "-o", tmp_path / "r.html").exit_code == 2
    with pytest.raises(InputError):
        save_report({}, tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_evaluate_saves_a_report(tmp_path):
    labels, scores = rows(60)
    lines = [f"{y},{p:.4f}\n" for y, p in zip(labels, scores, strict=True)]
    (tmp_path / "a.csv").write_text("y,p\n" + "".join(lines))
    html = tmp_path / "r.html"
    worked(
        *("evaluate", tmp_path / "a.csv", "--label", "y", "--score", "p"),
        *("--bins", 16, "--html", html),
    )
    assert Page(html.read_text()).data["reports"][0]["name"] == "r"


SIGNED = Path(__file__).parents[1] / "fixtures" / "results" / "enforced.json"
BINS = fg.Axis.uniform(32, outside="clip")
pytestmark = pytest.mark.usefixtures("few_redraws")


def short(result):
    return unescape(page.in_short(result, result.signature))


def privacy(result):
    return unescape(page.privacy(result, result.signature, None))


def of_skill(skill, **options):
    clients = {"a": rows_words(skill), "b": rows_words(skill, seed=4)}
    return fg.evaluate(clients, axis=BINS, **options)


@pytest.mark.parametrize(
    ("skill", "told"),
    [(2.0, None), (0.0, "may be no better than chance"), (-2.0, "worse than chance")],
    ids=["better", "chance", "reversed"],
)
@pytest.mark.filterwarnings("ignore:client .* the ROC AUC is below")
def test_verdict_says_where_a_model_is_not_surely_better_than_chance(skill, told):
    text = short(of_skill(skill))
    assert ("chance" in text) == (told is not None)
    assert told is None or told in text


def test_verdict_is_certain_without_noise_and_says_where_noise_makes_an_interval_wide():
    wide = "Most of the uncertainty comes from noise"
    loud, quiet = (of_skill(2.0, privacy=fg.DistributedDP(e), seed=1) for e in (0.5, 8.0))
    assert loud.roc_auc.parts["noise"] > loud.roc_auc.parts["sampling"]
    assert wide in short(loud)
    assert wide not in short(quiet)
    assert "for certain" not in short(quiet)
    assert "with 95% confidence" in short(quiet)
    assert "for certain" in short(of_skill(1.0))
    assert wide not in short(of_skill(2.0))
    values = CASES["values"]()
    assert "calibration" not in part_of(values)  # which is for probabilities alone
    assert f"would be {show(values.roc_auc.value)} to four decimals, for certain" in short(values)


def test_who_could_have_learnt_what_stands_outside_what_is_folded():
    result = of_skill(1.0)
    told = privacy(result)
    outside, _, folded = told.partition("<details>")
    plan = result.plan
    for who, what in plan.privacy.learned(plan.cohort, plan.min_cell):
        assert who in outside
        assert what in outside
        assert what not in folded
    assert "the person who ran the process could see every row" in told
    assert "up to 1 site may" in told
    labels, scores = rows_words(2.0)
    both = fg.Examples(labels, {"new": scores, "old": np.roll(scores, 1)})
    result = fg.evaluate({"a": both}, models=["new", "old"], axis=BINS)
    text = short(result)
    assert result.compare("new", "old").verdict in text
    assert f"model new: ROC AUC {result.select(model='new').roc_auc}." in text
    kinds = fg.Examples([*"cdo"] * 200, np.random.default_rng(4).random((600, 3)))
    result = fg.evaluate({"a": kinds}, task=fg.MulticlassTask(labels=[*"cdo"]), axis=BINS)
    assert str(result.macro("roc_auc")) in short(result)


def test_dropouts_are_counted_where_a_signature_says_who_was_invited():
    result = fg.Evaluation.from_json(SIGNED)
    invited = result.signature.invited
    assert invited > 1
    told = privacy(result)
    assert invited == result.clients
    assert f"none of {invited} sites that were invited" in told
    more = page.privacy(result, replace(result.signature, invited=invited + 2), None)
    assert f"2 of {invited + 2} sites that were invited" in more
    assert "enforced: a protocol between the sites protected the data" in told
    assert "could see every row" not in told
    assert "none: all were in one process" in privacy(of_skill(1.0))


def test_a_broken_signature_comes_before_all_numbers(tmp_path):
    text = SIGNED.read_text()
    path = tmp_path / "edited.json"
    path.write_text(text.replace('"level":0.95', '"level":0.9'))
    result = fg.Evaluation.from_json(path)
    assert result.signature.state == "broken"
    assert short(result).startswith('<p class="caution">Do not use these numbers: ')
    one, other = of_skill(1.0), of_skill(2.0)
    broken = Signature("broken", "it was changed after it was signed")
    told = beside({"may": one, "june": other}, {"may": one.signature, "june": broken})
    caution = '<p class="caution">Do not use the numbers of june: not what was signed.</p>'
    assert told.startswith(caution)
    assert "caution" not in beside({"may": one, "june": other})


@pytest.mark.parametrize(("state", "shown"), [("unsigned", False), ("unknown key", True)])
def test_that_privacy_was_enforced_rests_on_a_signature(state, shown):
    result = fg.Evaluation.from_json(SIGNED)
    told = page.privacy(result, replace(result.signature, state=state), None)
    assert ("as this file says: no signature" not in told) == shown


def test_budget_is_that_of_a_ledger_or_said_to_be_unknown(tmp_path):
    result = of_skill(1.0, privacy=fg.DistributedDP(2.0), seed=1)
    assert "not in this file" in privacy(result)
    site = make_site(tmp_path / "site")
    account = Account(site.dataset, "example", "add-remove")
    limit = site.policy.default_limit
    spend(site.ledger, 1, limit.epsilon / 4, account, limit=limit)
    result.to_json(tmp_path / "r.json")
    out = tmp_path / "r.html"
    worked("report", tmp_path / "r.json", "--site", site.path, "-o", out)
    told = f"epsilon {limit.epsilon * 0.75:g} of {limit.epsilon:g} for {site.dataset}"
    assert told in Page(out.read_text()).texts["privacy"]


def test_several_results_stand_next_to_each_other():
    labels, scores = rows_words(1.0)
    hidden = fg.evaluate({"a": rows_words()}, axis=BINS, privacy=fg.LocalDP(0.01), seed=1)
    both = fg.evaluate(
        {"a": fg.Examples(labels, {"new": scores, "old": scores})}, models=["new", "old"], axis=BINS
    )
    assert "There is no verdict: no signal" in short(hidden)
    one, noisy = of_skill(2.0), of_skill(1.0, privacy=fg.DistributedDP(2.0), seed=1)
    exact_and_noisy = re.sub("<[^>]*>", "|", beside({"exact": one, "noisy": noisy}))
    assert f"|about {noisy.examples:,}||2||" in exact_and_noisy
    assert exact_and_noisy.count("|about ") == 1
    told = re.sub("<[^>]*>", "|", beside({"week 1": one, "week 2": hidden, "pair": both}))
    assert f"|week 1||{show(one.roc_auc.value)} ({show(one.roc_auc.low)} to " in told
    assert "|week 2||undefined||undefined||undefined||hidden||0.01||simulated|" in told
    assert "|pair, model new||" in told
    assert "|pair, model old||" in told
    assert beside({"week 1": one}) == ""


def test_a_label_of_a_threshold_is_the_edge_itself_and_known_values_have_bars_of_one_width():
    axis = fg.Axis.from_edges([0.0, 0.1234567890123, 0.5078125, 2 / 3, 1.0])
    result = fg.evaluate({"a": rows_words()}, axis=axis)
    labels = thresholds_of(result)["labels"]
    assert [float(each) for each in labels if each[0].isdigit()] == axis.thresholds.tolist()
    labels = rows_words()[0]
    result = fg.evaluate({"a": (labels, np.arange(600) % 4)}, axis=fg.Axis.from_values(range(4)))
    told = part_of(result, brief=True)["histogram"]
    assert "density" not in told
    assert told["at"] == [0, 1, 2, 3, 4]
    assert told["ticks"] == [[0.5, "0"], [1.5, "1"], [2.5, "2"], [3.5, "3"]]


def test_bars_are_drawn_to_the_scale_of_the_axis():
    for axis, equal, ticks in (
        (fg.Axis.uniform(64), True, False),
        (fg.Axis.probabilities(), True, False),
        (fg.Axis.from_edges([0.0, 0.1, 0.15, 0.5, 1.0]), False, False),
        (fg.Axis.logit(64), True, True),
    ):
        told = part_of(fg.evaluate({"a": rows_words()}, axis=axis), brief=True)["histogram"]
        assert told.get("density", False) == (not equal)
        assert ("ticks" in told) == ticks
        if ticks:
            place = {text: at for at, text in told["ticks"]}
            assert place["0.5"] == pytest.approx(len(told["positives"]) / 2)
            assert told["at"] == list(range(len(told["edges"])))


@pytest.mark.parametrize(
    ("what", "out", "remedy"),
    [
        ("rows.csv", "r.html", "Name the JSON file"),
        ("nothing.json", "r.html", "Name the JSON file"),
        (".", "r.html", "Name the JSON file"),
        ("r.json", "r.json", "Name another place with --out"),
        ("r.json", ".", "Name a file in it"),
        ("r.json", "none/r.html", "Make it first"),
    ],
    ids=["csv", "missing", "folder", "itself", "into a folder", "no folder"],
)
def test_a_wrong_request_is_told_with_a_remedy(tmp_path, monkeypatch, what, out, remedy):
    monkeypatch.chdir(tmp_path)
    of_skill(1.0).to_json("r.json")
    Path("rows.csv").write_text("y,p\n1,0.5\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = run("report", what, "-o", out)
    assert done.exit_code in (1, 2)
    assert remedy in done.stderr.replace("\n", " ")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_average_of_clients_stands_next_to_the_pooled_number_where_it_is_known(tmp_path):
    result = of_skill(1.0)
    assert "not on this page" in unescape(report({"a": result}))
    told = unescape(page.average_of_clients(result, 0.9876))
    assert "0.9876" in told
    assert str(result.roc_auc) in told
    assert show(0.9876 - result.roc_auc.value) in told
    result.to_html(tmp_path / "r.html", client_average=0.9876)
    assert told in unescape((tmp_path / "r.html").read_text())
    result.to_json(tmp_path / "r.json")
    asked = ("report", tmp_path / "r.json", "-o", tmp_path / "s.html", "--client-average", "0.9876")
    assert run(*asked).exit_code == 0
    assert told in unescape((tmp_path / "s.html").read_text())


@pytest.mark.parametrize("average", [92.8, -0.1, float("nan")])
def test_an_average_that_is_no_roc_auc_is_refused(average):
    refused(fg.InputError, "from 0 to 1", report, {"a": of_skill(1.0)}, client_average=average)
    with pytest.raises(fg.InputError, match="of the one result"):
        report({"a": of_skill(1.0), "b": of_skill(1.0)}, client_average=0.9)
