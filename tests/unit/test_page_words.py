"""What a report says: its verdict, who could learn what, what stands next to what."""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from commands import run
from ledgers import spend
from parsed import Page
from sites import make_site

import fedgauge as fg
from fedgauge.measures.intervals import show
from fedgauge.plots.page import report, words
from fedgauge.plots.page.beside import beside
from fedgauge.plots.page.parts import part_of
from fedgauge.plots.page.slices import told_of
from fedgauge.plots.page.thresholds import thresholds_of
from fedgauge.results.proof import Signature
from fedgauge.site import Account

SIGNED = Path(__file__).parents[1] / "fixtures" / "signed-protocol-2.json"
BINS = fg.Axis.uniform(32, outside="clip")
GROUPS = ["women", "men", "few"]
pytestmark = pytest.mark.usefixtures("few_redraws")


def rows(skill=1.0, number=600, seed=3):
    rng = np.random.default_rng(seed)
    labels = rng.random(number) < 0.3
    return labels.astype(int), 1 / (1 + np.exp(-rng.normal(skill * labels - 1.0, 1.0)))


def short(result):
    return unescape(words.in_short(result, result.signature))


def privacy(result):
    return unescape(words.privacy(result, result.signature, None))


def of_skill(skill, **options):
    return fg.evaluate({"a": rows(skill), "b": rows(skill, seed=4)}, axis=BINS, **options)


@pytest.mark.parametrize(
    ("skill", "told"),
    [(2.0, None), (0.0, "may be no better than chance"), (-2.0, "worse than chance")],
    ids=["better", "chance", "reversed"],
)
def test_verdict_says_where_a_model_is_not_surely_better_than_chance(skill, told):
    text = short(of_skill(skill))
    assert ("chance" in text) == (told is not None)
    assert told is None or told in text


def test_verdict_says_that_noise_makes_an_interval_wide():
    words = "Most of what is uncertain is noise"
    loud = of_skill(2.0, privacy=fg.DistributedDP(0.5), seed=1)
    assert loud.roc_auc.parts["noise"] > loud.roc_auc.parts["sampling"]
    assert words in short(loud)
    assert words not in short(of_skill(2.0, privacy=fg.DistributedDP(8.0), seed=1))
    assert words not in short(of_skill(2.0))


def test_verdict_is_certain_only_without_noise():
    assert "for certain" in short(of_skill(1.0))
    noisy = short(of_skill(1.0, privacy=fg.DistributedDP(4.0), seed=1))
    assert "for certain" not in noisy
    assert "with 95% confidence" in noisy
    values = fg.evaluate(
        {"a": ([0, 1, 0, 1, 1] * 40, [1, 2, 3, 4, 5] * 40)}, axis=fg.Axis.from_values(range(8))
    )
    assert f"would be {show(values.roc_auc.value)} to four decimals, for certain" in short(values)


def test_two_models_are_told_with_whether_one_is_better():
    labels, scores = rows(2.0)
    both = fg.Examples(labels, {"new": scores, "old": np.roll(scores, 1)})
    result = fg.evaluate({"a": both}, models=["new", "old"], axis=BINS)
    text = short(result)
    assert result.compare("new", "old").verdict in text
    assert f"model new: ROC AUC {result.select(model='new').roc_auc}." in text


def test_who_could_have_learnt_what_stands_outside_what_is_folded():
    result = of_skill(1.0)
    told = privacy(result)
    outside, _, folded = told.partition("<details>")
    plan = result.plan
    for who, what in plan.privacy.learned(plan.cohort, plan.min_cell):
        assert who in outside
        assert what in outside
        assert what not in folded
    assert "whoever ran the process could see every row" in told
    assert "up to 1 site may" in told


def test_dropouts_are_counted_where_a_signature_says_who_was_invited():
    result = fg.Evaluation.from_json(SIGNED)
    invited = result.signature.invited
    assert invited > 1
    told = privacy(result)
    assert invited == result.clients
    assert f"none of {invited} sites that were invited" in told
    more = words.privacy(result, replace(result.signature, invited=invited + 2), None)
    assert f"2 of {invited + 2} sites that were invited" in more
    assert "enforced: a protocol between the parties kept it" in told
    assert "could see every row" not in told
    assert "none: all were in one process" in privacy(of_skill(1.0))


def test_a_broken_signature_comes_before_all_numbers(tmp_path):
    text = SIGNED.read_text()
    path = tmp_path / "edited.json"
    path.write_text(text.replace('"level":0.95', '"level":0.9'))
    result = fg.Evaluation.from_json(path)
    assert result.signature.state == "broken"
    assert short(result).startswith('<p class="caution">Do not use these numbers: ')


def test_a_broken_signature_is_told_above_several_results():
    one, other = of_skill(1.0), of_skill(2.0)
    broken = Signature("broken", "it was changed after it was signed")
    told = beside({"may": one, "june": other}, {"may": one.signature, "june": broken})
    caution = '<p class="caution">Do not use the numbers of june: not what was signed.</p>'
    assert told.startswith(caution)
    assert "caution" not in beside({"may": one, "june": other})


@pytest.mark.parametrize(("state", "shown"), [("unsigned", False), ("unknown key", True)])
def test_that_privacy_was_enforced_rests_on_a_signature(state, shown):
    result = fg.Evaluation.from_json(SIGNED)
    told = words.privacy(result, replace(result.signature, state=state), None)
    assert ("by the word of this file alone" not in told) == shown


def test_examples_next_to_each_other_are_about_so_many_under_noise():
    noisy = of_skill(1.0, privacy=fg.DistributedDP(2.0), seed=1)
    told = re.sub("<[^>]*>", "|", beside({"exact": of_skill(1.0), "noisy": noisy}))
    assert f"|about {noisy.examples:,}||2||" in told
    assert told.count("|about ") == 1


def test_budget_is_that_of_a_ledger_or_said_to_be_unknown(tmp_path):
    result = of_skill(1.0, privacy=fg.DistributedDP(2.0), seed=1)
    assert "not known to this file" in privacy(result)
    site = make_site(tmp_path / "site")
    account = Account(site.dataset, "example", "add-remove")
    limit = site.policy.default_limit
    spend(site.ledger, 1, limit.epsilon / 4, account, limit=limit)
    result.to_json(tmp_path / "r.json")
    out = tmp_path / "r.html"
    done = run("report", tmp_path / "r.json", "--site", site.path, "-o", out)
    assert done.exit_code == 0
    told = f"epsilon {limit.epsilon * 0.75:g} of {limit.epsilon:g} for {site.dataset}"
    assert told in Page(out.read_text()).texts["privacy"]


def test_several_results_stand_next_to_each_other():
    labels, scores = rows(1.0)
    hidden = fg.evaluate({"a": rows()}, axis=BINS, privacy=fg.LocalDP(0.01), seed=1)
    both = fg.evaluate(
        {"a": fg.Examples(labels, {"new": scores, "old": scores})},
        models=["new", "old"],
        axis=BINS,
    )
    one = of_skill(2.0)
    told = re.sub("<[^>]*>", "|", beside({"week 1": one, "week 2": hidden, "pair": both}))
    assert f"|week 1||{show(one.roc_auc.value)} ({show(one.roc_auc.low)} to " in told
    assert "|week 2||undefined||undefined||undefined||hidden||0.01||simulated|" in told
    assert "|pair, model new||" in told
    assert "|pair, model old||" in told
    assert beside({"week 1": one}) == ""


def grouped(**options):
    labels, scores = rows(1.5, number=900)
    group = [GROUPS[0 if place % 2 else 1] if place % 60 else "few" for place in range(900)]
    return fg.evaluate(
        {"a": fg.Examples(labels, scores, group=group)}, groups=GROUPS, axis=BINS, **options
    )


def test_figures_of_slices_and_gaps_have_the_numbers_of_the_library():
    result = grouped()
    by_slice, gaps = told_of(result, brief=False).forests
    told = {row[0]: row[1:4] for row in by_slice["rows"]}
    auc = result.select(group="women").roc_auc
    assert told["group women"] == pytest.approx([auc.value, *auc.interval], abs=5.1e-5)
    assert {row[0]: row[4] for row in by_slice["rows"]}["group other"] == "undefined"
    shown = {row[0]: row[1:4] for row in gaps["rows"]}
    for metric, at in (("roc_auc", None), ("recall", 0.5), ("flagged", 0.5)):
        every = result.gaps(metric, at=at)
        for each in every.pairs:
            row = shown[f"{every.metric}: {each.group} - {each.against}"]
            assert row == pytest.approx([each.difference.value, *each.joint], abs=5.1e-5)


def test_a_withheld_group_is_named_and_has_no_numbers():
    task = fg.BinaryTask(groups={"group": GROUPS})
    plan = fg.EvaluationPlan.for_histogram(
        BINS, fg.Cohort(1, max_colluding=0), task=task, min_cell=20
    )
    labels, scores = rows(1.5, number=900)
    group = ["few" if place < 15 else GROUPS[place % 2] for place in range(900)]
    result = fg.evaluate({"a": fg.Examples(labels, scores, group=group)}, plan=plan)
    assert "few" in result.released.joined
    html, (by_slice, *_) = told_of(result, brief=False)
    assert html.count("Withheld: group few is not shown") == 1
    told = {row[0]: row[1:] for row in by_slice["rows"]}
    assert told["group few"] == [None, None, None, "withheld"]


def test_marks_that_turn_text_around_are_shown_as_what_they_are():
    name = "safe\u202e.5870 CUA\u2066\u200f"
    text = report({name: of_skill(1.0), "other": of_skill(1.0)})
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f") & set(text)
    page = Page(text)
    assert "safe[U+202E].5870 CUA[U+2066][U+200F]" in page.texts["h1"]
    assert page.data["reports"][0]["name"].startswith("safe[U+202E]")


def test_a_label_of_a_threshold_is_the_edge_itself():
    axis = fg.Axis.from_edges([0.0, 0.1234567890123, 0.5078125, 2 / 3, 1.0])
    result = fg.evaluate({"a": rows()}, axis=axis)
    labels = thresholds_of(result)["labels"]
    assert [float(each) for each in labels if each[0].isdigit()] == axis.thresholds.tolist()


@pytest.mark.parametrize(
    ("axis", "equal", "ticks"),
    [
        (fg.Axis.uniform(64), True, False),
        (fg.Axis.from_edges([0.0, 0.1, 0.15, 0.5, 1.0]), False, False),
        (fg.Axis.logit(64), True, True),
    ],
    ids=["uniform", "edges", "logit"],
)
def test_bars_are_drawn_to_the_scale_of_the_axis(axis, equal, ticks):
    told = part_of(fg.evaluate({"a": rows()}, axis=axis), brief=True)["histogram"]
    assert told.get("density", False) == (not equal)
    assert ("ticks" in told) == ticks
    if ticks:
        place = {text: at for at, text in told["ticks"]}
        assert place["0.5"] == pytest.approx(len(told["positives"]) / 2)
        assert told["at"] == list(range(len(told["edges"])))


def test_every_known_value_has_a_bar_as_wide_as_the_others():
    labels = rows()[0]
    result = fg.evaluate(
        {"a": (labels, np.arange(len(labels)) % 4)}, axis=fg.Axis.from_values(range(4))
    )
    told = part_of(result, brief=True)["histogram"]
    assert "density" not in told
    assert told["at"] == [0, 1, 2, 3, 4]
    assert told["ticks"] == [[0.5, "0"], [1.5, "1"], [2.5, "2"], [3.5, "3"]]


@pytest.mark.parametrize(
    ("what", "out", "remedy"),
    [
        ("plan.toml", "r.html", "Name the JSON file"),
        ("rows.csv", "r.html", "Name the JSON file"),
        ("nothing.json", "r.html", "Name the JSON file"),
        (".", "r.html", "Name the JSON file"),
        ("r.json", "r.json", "Name another place with --out"),
        ("r.json", "rows.csv", "Name another place with --out"),
        ("r.json", ".", "Name a file in it"),
        ("r.json", "none/r.html", "Make it first"),
    ],
    ids=["plan", "csv", "missing", "folder", "itself", "rows", "into a folder", "no folder"],
)
def test_a_wrong_request_is_told_with_a_remedy(tmp_path, monkeypatch, what, out, remedy):
    monkeypatch.chdir(tmp_path)
    result = of_skill(1.0)
    result.to_json("r.json")
    result.plan.save("plan.toml")
    Path("rows.csv").write_text("y,p\n1,0.5\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = run("report", what, "-o", out)
    assert done.exit_code in (1, 2)
    assert remedy in done.stderr.replace("\n", " ")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_average_of_clients_stands_next_to_the_pooled_number_where_it_is_known(tmp_path):
    result = of_skill(1.0)
    assert "not on this page" in unescape(report({"a": result}))
    told = unescape(words.client_average(result, 0.9876))
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
    with pytest.raises(fg.InputError, match="from 0 to 1"):
        report({"a": of_skill(1.0)}, client_average=average)
    with pytest.raises(fg.InputError, match="of the one result"):
        report({"a": of_skill(1.0), "b": of_skill(1.0)}, client_average=0.9)
