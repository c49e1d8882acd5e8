"""The report page: numbers are the library's, words are escaped, nothing is fetched."""

import base64
import hashlib
import json
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
from fedgauge.errors import InputError
from fedgauge.metrics.estimate import metrics_of, show
from fedgauge.report import figures, page, report, save_report
from fedgauge.report.figures import METRICS, kept, part_of, thresholds_of
from fedgauge.report.slices import beside, told_of
from fedgauge.results.signature import Signature
from fedgauge.site import Account

HOSTILE = '</script><img src=x onerror="alert(1)">&amp;'


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


def test_numbers_at_every_threshold_are_those_of_the_library(pair):
    result, page = pair
    shown = page.part["thresholds"]
    for place, threshold in enumerate(thresholds_shown(result, page.part)):
        there = result.at_threshold(threshold)
        for name in METRICS:
            told = [column[place] for column in shown["metrics"][name]]
            estimate = there.as_dict()[name]
            if estimate is None:
                assert told == [None] * 3
            else:
                ends = estimate.value, estimate.low, estimate.high
                # As JavaScript prints them: exactly what the library does.
                assert [f"{each:.4f}" for each in told] == [show(end + 0.0) for end in ends]
        for name, estimate in there.confusion_matrix._asdict().items():
            value, *bounds = (column[place] for column in shown["counts"][name])
            assert value == round(estimate.value)
            assert bounds in ([], [round(end) for end in estimate.bounds])
            assert bounds or estimate.bounds[0] == estimate.bounds[1]
        # For another prevalence the page computes with rates of seven digits.
        rates = [column[place] for column in shown["rates"]]
        assert rates == pytest.approx([there.fpr.value, there.recall.value], rel=1e-6)


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


def test_metrics_are_printed_as_the_library_prints_them(pair):
    result, page = pair
    told = {each["name"]: each for each in page.part["metrics"]}
    assert set(told) == {row.name for row in metrics_of(fg.Evaluation) if row.listed}
    for name, each in told.items():
        try:
            estimate = getattr(result, name)
        except fg.UndefinedMetric:
            assert "value" not in each
            continue
        assert each["value"] == show(estimate.value)
        assert each["interval"] == [show(estimate.low), show(estimate.high)]
        bounded = np.isfinite(estimate.bounds).all()
        assert each["bounds"] == ([show(end) for end in estimate.bounds] if bounded else None)
        assert set(each["parts"]) == set(estimate.parts)


def test_curves_are_drawn_where_the_library_has_them(pair):
    result, page = pair
    roc, pr = page.part["curves"][:2]
    roc_at = result.roc_curve()
    for x, y in zip(*roc["line"], strict=True):
        before, after = (roc_at(min(max(near, 0.0), 1.0)) for near in (x - 0.002, x + 0.002))
        assert (before if x > 0.002 else 0.0) - 0.002 <= y <= after + 0.002
    assert pr["line"][0] == sorted(pr["line"][0])
    assert roc["area"] == f"AUC {result.roc_auc}"


def test_histogram_adds_up_to_one_for_each_class_and_from_a_threshold_up_to_its_rates(pair):
    told = pair[1].part["histogram"]
    for name in ("negatives", "positives"):
        assert sum(told[name]) == pytest.approx(1.0, abs=0.01)
        assert len(told["edges"]) == len(told[name]) + 1 <= 50
    result, page = pair
    told = page.part["histogram"]
    at = result.at_threshold(told["edges"][len(told["edges"]) // 2])
    if at.on_edge:
        above = [sum(told[name][len(told["edges"]) // 2 :]) for name in ("negatives", "positives")]
        assert above == pytest.approx([at.fpr.value, at.recall.value], abs=0.01)


def test_page_says_why_there_are_no_curves_and_what_is_for_probabilities_alone():
    hidden = exact(privacy=fg.LocalDP(0.01), seed=1)
    page = Page(report({"r": hidden}))
    assert page.part["why"] == hidden.withheld
    assert "There is no verdict: no signal" in page.texts["short"]
    one = Page(report({"r": fg.evaluate({"a": ([0, 0], [0.1, 0.4])})}))
    assert "no client has a positive example" in one.part["why"]
    assert one.part["histogram"]["positives"] is None
    part = Page(report({"r": CASES["exact"]()})).part
    result = CASES["exact"]()
    curve, decision = result.calibration_curve(), result.decision_curve()
    assert part["calibration"]["observed"] == pytest.approx(curve.observed, abs=5.1e-5)
    assert part["calibration"]["count"] == curve.count.round().tolist()
    assert part["decision"]["net_benefit"] == pytest.approx(decision.net_benefit, abs=5.1e-5)
    assert "calibration" not in Page(report({"r": CASES["values"]()})).part


def test_names_stay_text_and_marks_that_turn_it_around_are_shown():
    plain = fg.Examples(*rows(), group=["x", "y"] * 450)
    result = fg.evaluate({"a": plain}, groups=["x", "y"], axis=fg.Axis.uniform(8))
    text = report({HOSTILE: result, "other": result})
    page = Page(text)
    assert HOSTILE in page.texts["title"]
    assert HOSTILE in page.texts["h1"]
    assert page.data["reports"][0]["name"] == HOSTILE
    assert "img" not in {tag for tag, _ in page.elements}
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    name = "safe\u202e.5870 CUA\u2066\u200f"
    text = report({name: of_skill(1.0), "other": of_skill(1.0)})
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f") & set(text)
    page = Page(text)
    assert "safe[U+202E].5870 CUA[U+2066][U+200F]" in page.texts["h1"]
    assert page.data["reports"][0]["name"].startswith("safe[U+202E]")


def test_page_may_run_its_own_script_and_fetch_nothing():
    text = report({"r": CASES["exact"]()})
    page = Page(text)
    (policy,) = (
        attrs["content"]
        for _, attrs in page.elements
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for kind, source in (("script", r"<script>(.*?)</script>"), ("style", r"<style>(.*?)</style>")):
        (inside,) = re.findall(source, text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    fetched = {"src", "action", "srcset", "poster", "style"}
    assert not any(fetched & attrs.keys() for _, attrs in page.elements)
    assert all(attrs["href"].startswith("#") for tag, attrs in page.elements if "href" in attrs)
    assert "http://" not in re.sub(r"http://www\.w3\.org/2000/svg", "", text)
    assert "https://" not in text


def test_every_section_has_a_title_and_every_control_a_label():
    page = Page(report({"r": CASES["exact"]()}))
    ids = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
    labelled = {attrs["for"] for tag, attrs in page.elements if tag == "label"}
    sections = [attrs for tag, attrs in page.elements if tag == "section"]
    assert len(sections) == 9
    assert all(attrs["aria-labelledby"] in ids for attrs in sections)
    controls = {attrs["id"] for tag, attrs in page.elements if tag in ("select", "input")}
    assert controls <= labelled
    assert {tag for tag, _ in page.elements} >= {"header", "nav", "main", "footer"}


def test_privacy_is_told_in_the_words_of_the_plan():
    result = CASES["ddp"]()
    page = Page(report({"r": result}))
    for title, words in result.plan.in_words():
        assert title in page.texts["privacy"]
        assert words.splitlines()[0] in page.texts["privacy"]
    assert "simulated: one process saw all the data" in page.texts["privacy"]
    assert result.plan.digest in page.texts["plan"]


def test_slices_and_classes_are_tables_with_gaps_differences_and_averages():
    labels, scores = rows()
    other = np.clip(scores + np.random.default_rng(5).normal(0, 0.1, len(scores)), 0, 1)
    group = ["women", "men", "men"] * 300
    both = fg.Examples(labels, {"new": scores, "old": other}, group=group)
    result = fg.evaluate(
        {"a": both}, models=["new", "old"], groups=["women", "men"], axis=fg.Axis.uniform(32)
    )
    page = Page(report({"r": result}))
    told = page.texts["slices"]
    assert [each["name"] for each in page.data["reports"][0]["parts"]] == [
        str(each.slice) for each in result.slices
    ]
    assert result.select(model="new").gaps("roc_auc").verdict in told
    assert result.compare("new", "old").verdict in told
    assert show(result.select(model="old", group="men").roc_auc.value) in told
    rng = np.random.default_rng(4)
    kinds = rng.choice(3, 900)
    odds = np.exp(rng.normal(size=(900, 3)) + 1.5 * np.eye(3)[kinds])
    names = ["cat", "dog", "owl"]
    task = fg.MulticlassTask(labels=names, also=["confusion"])
    rows_ = fg.Examples([names[k] for k in kinds], odds / odds.sum(axis=1, keepdims=True))
    result = fg.evaluate({"a": rows_}, task=task, axis=fg.Axis.uniform(32))
    page = Page(report({"r": result}))
    assert show(result.macro("roc_auc").value) in page.texts["slices"]
    assert f"{result.confusion_matrix().normalized('true')[0, 0]:.1%}" in page.texts["slices"]
    assert str(result.macro("roc_auc")) in page.texts["short"]


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


def test_a_line_is_thinned_to_what_looks_the_same():
    x = np.linspace(0, 1, 2000)
    y = np.sqrt(x) + 0.01 * np.sin(40 * x)
    few = kept(x, y)
    assert len(few) < 120
    assert few[[0, -1]].tolist() == [0, len(x) - 1]
    start, along = np.array([x, y])[:, few[:-1]], np.diff(np.array([x, y])[:, few])
    away = np.array([x, y])[:, :, None] - start[:, None]
    where = np.clip(np.einsum("ck,cpk->pk", along, away) / (along**2).sum(axis=0), 0, 1)
    distances = np.hypot(*(away - along[:, None] * where)).min(axis=1)
    assert distances.max() <= figures.TOLERANCE
    assert kept(np.array([0.0, 0.5, 0.0]), np.zeros(3)).tolist() == [0, 1, 2]


def test_command_writes_a_report_of_several_results(tmp_path):
    for name, seed in (("one", 1), ("two", 2)):
        made = fg.evaluate({"a": rows(seed=seed)}, axis=fg.Axis.uniform(16))
        made.to_json(tmp_path / f"{name}.json")
    out = tmp_path / "r.html"
    done = run("report", tmp_path / "one.json", tmp_path / "two.json", "-o", out)
    assert done.exit_code == 0
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
    done = run(
        *("evaluate", tmp_path / "a.csv", "--label", "y", "--score", "p"),
        *("--bins", 16, "--html", html),
    )
    assert done.exit_code == 0
    assert Page(html.read_text()).data["reports"][0]["name"] == "r"


SIGNED = Path(__file__).parents[1] / "fixtures" / "results" / "enforced.json"
BINS = fg.Axis.uniform(32, outside="clip")
GROUPS = ["women", "men", "few"]
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
    done = run("report", tmp_path / "r.json", "--site", site.path, "-o", out)
    assert done.exit_code == 0
    told = f"epsilon {limit.epsilon * 0.75:g} of {limit.epsilon:g} for {site.dataset}"
    assert told in Page(out.read_text()).texts["privacy"]


def test_several_results_stand_next_to_each_other():
    labels, scores = rows_words(1.0)
    hidden = fg.evaluate({"a": rows_words()}, axis=BINS, privacy=fg.LocalDP(0.01), seed=1)
    both = fg.evaluate(
        {"a": fg.Examples(labels, {"new": scores, "old": scores})}, models=["new", "old"], axis=BINS
    )
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


def grouped(**options):
    labels, scores = rows_words(1.5, number=900)
    group = [GROUPS[0 if place % 2 else 1] if place % 60 else "few" for place in range(900)]
    rows_ = fg.Examples(labels, scores, group=group)
    return fg.evaluate({"a": rows_}, groups=GROUPS, axis=BINS, **options)


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
    plan = fg.EvaluationPlan.for_histogram(BINS, fg.Cohort(1, 0), task=task, min_cell=20)
    labels, scores = rows_words(1.5, number=900)
    group = ["few" if place < 15 else GROUPS[place % 2] for place in range(900)]
    result = fg.evaluate({"a": fg.Examples(labels, scores, group=group)}, plan=plan)
    assert "few" in result.released.joined
    html, (by_slice, *_) = told_of(result, brief=False)
    assert html.count("Withheld: group few is not shown") == 1
    told = {row[0]: row[1:] for row in by_slice["rows"]}
    assert told["group few"] == [None, None, None, "withheld"]


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
    with pytest.raises(fg.InputError, match="from 0 to 1"):
        report({"a": of_skill(1.0)}, client_average=average)
    with pytest.raises(fg.InputError, match="of the one result"):
        report({"a": of_skill(1.0), "b": of_skill(1.0)}, client_average=0.9)
