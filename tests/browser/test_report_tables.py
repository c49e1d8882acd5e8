"""Tables and words of a report are the library's: slices, gaps, classes, errors, privacy, plan."""

from contextlib import suppress

import pytest
from shown import REPORTS, UNFOLD, parts, phrase, silence, tables

import fedgauge as fg
from fedgauge.metrics.estimate import metrics_of, show
from fedgauge.report import save_report

_SLICED = ["classes", "groups", "groups under noise", "small groups", "models", "hostile"]
_TEXT = "id => document.getElementById(id).innerText"


def shown(page, name):
    """Rows of the tables of one name, by caption; a row is what stands in each column."""
    page.evaluate(UNFOLD)
    found = {}
    for file, caption, (head, *rows) in tables(page):
        if file == name:
            assert caption not in found
            found[caption] = [dict(zip(head, row, strict=True)) for row in rows]
    return found


def only(page, name):
    """Rows of the only table of a name."""
    (rows,) = shown(page, name).values()
    return rows


def told(read):
    """A number in the library's words, or that it has none."""
    try:
        return phrase(read())
    except fg.UndefinedMetric:
        return "undefined"


@pytest.mark.parametrize("kind", _SLICED)
def test_every_slice_has_a_row(open_report, kind):
    result, page = open_report(kind)
    rows, words = only(page, "slices"), page.evaluate(_TEXT, "slices")
    assert [row["slice"] for row in rows] == [str(part.slice) for part in result.slices]
    for part, row in zip(result.slices, rows, strict=True):
        if part.withheld is not None:
            assert set(row.values()) == {str(part.slice), "withheld"}
            assert part.withheld in words
            continue
        assert row["examples"] == f"{part.examples:,}"
        assert row["positive"] == f"{part.positives:,}"
        assert row["ROC AUC"] == told(lambda part=part: part.roc_auc)
        assert row["average precision"] == told(lambda part=part: part.average_precision)


@pytest.mark.parametrize("kind", ["groups under noise", "small groups"])
def test_nothing_is_shown_of_what_is_withheld(open_report, kind):
    result, page = open_report(kind)
    hidden = 0
    for part in parts(page, result):
        if part.withheld is None:
            continue
        hidden += 1
        assert page.locator("figure:visible:not(#forests figure)").count() == 0
        assert page.locator("#strip b").count() == 0
        assert part.withheld in page.locator("#why").text_content()
        assert {row["value"] for row in only(page, "metrics")} == {"undefined"}
    assert hidden == 2


@pytest.mark.parametrize("kind", ["groups", "groups under noise", "hostile"])
def test_gaps_between_groups(open_report, kind):
    result, page = open_report(kind)
    tables, words = shown(page, "gaps"), page.evaluate(_TEXT, "slices")
    for part in result.slices:
        if part.slice.group is not None:
            continue
        of = "" if str(part.slice) == "all" else f" of {part.slice}"
        every = [part.gaps("roc_auc")]
        if kind != "hostile":  # of many slices there is less
            for metric in ("recall", "fpr", "precision", "flagged"):
                every.append(part.gaps(metric, at=0.5))
        for gaps in every:
            check_gaps(gaps, tables.pop(f"Gaps in {gaps.metric}{of}"), words)
    assert tables == {}


def check_gaps(gaps, rows, words):
    assert gaps.verdict in words
    assert [row["gap"] for row in rows] == [f"{e.group} - {e.against}" for e in gaps.pairs]
    for each, row in zip(gaps.pairs, rows, strict=True):
        assert row["first"] == show(each.first.value)
        assert row["second"] == show(each.second.value)
        assert row["difference"] == phrase(each.difference)
        assert row["all gaps together"] == " to ".join(map(show, each.joint))
        assert row["stands out"] == ("yes" if each.stands_out else "no")


def test_models_are_compared(open_report):
    result, page = open_report("models")
    comparison = result.compare("new", "old")
    assert {row["metric"]: row["difference"] for row in only(page, "models")} == {
        "ROC AUC": phrase(comparison.roc_auc),
        "average precision": phrase(comparison.average_precision),
        "Brier score, lower is better": phrase(comparison.brier_score),
    }
    assert comparison.verdict in page.evaluate(_TEXT, "slices")


@pytest.mark.parametrize("kind", ["classes", "hostile"])
def test_averages_and_confusion_of_classes(open_report, kind):
    result, page = open_report(kind)
    for row in only(page, "averages"):
        for title, metric in (("ROC AUC", "roc_auc"), ("average precision", "average_precision")):
            assert row[title] == phrase(result.macro(metric, average=row["average"]))
    matrix = result.confusion_matrix()
    rows = only(page, "confusion")
    assert [next(iter(row.values())) for row in rows] == list(matrix.labels)
    shares = matrix.normalized("true")
    for true, row in enumerate(rows):
        for said, name in enumerate(matrix.labels):
            count = matrix.counts[true][said]
            assert row[name] == f"{shares[true][said]:.1%} ({count:,.0f})"


@pytest.mark.parametrize("kind", REPORTS)
def test_sources_of_error(open_report, kind):
    result, page = open_report(kind)
    for part in parts(page, result):
        known = with_errors(part)
        found = [row for rows in shown(page, "errors").values() for row in rows]
        assert [row["metric"] for row in found] == list(known)
        assert page.locator("#errors").is_visible() == bool(known)
        for row in found:
            metric, value, *errors, bounds = row.values()
            estimate = known[metric]
            assert value == show(estimate.value)
            for source, cell in zip(("binning", "noise", "sampling"), errors, strict=True):
                size = estimate.parts.get(source)
                assert (source, cell) == (source, error_in_words(source, size))
            finite = max(map(abs, estimate.bounds)) < float("inf")
            assert bounds == (" to ".join(map(show, estimate.bounds)) if finite else "")


def with_errors(part):
    """Metrics over all thresholds whose sources of error are known, by title."""
    found = {}
    for row in metrics_of(fg.Evaluation):
        with suppress(fg.UndefinedMetric):
            if row.listed and getattr(part, row.name).parts:
                found[row.title] = getattr(part, row.name)
    return found


def error_in_words(source, size):
    """How large an error is; no noise is said to be none."""
    if size is None:
        return "none" if source == "noise" else ""
    return f"{size:.2g}" if size else "0"


@pytest.mark.parametrize("kind", ["exact sum", "distributed noise", "local reports"])
def test_verdict_privacy_and_plan(open_report, kind):
    result, page = open_report(kind)
    page.evaluate(UNFOLD)
    short, privacy, plan = (page.evaluate(_TEXT, part) for part in ("short", "privacy", "plan"))
    assert f"{result.roc_auc.value:.1%}" in short
    assert " and ".join(map(show, result.roc_auc.bounds)) in short
    assert result.privacy.claim in privacy
    for title, words in result.plan.in_words():
        assert title in privacy
        assert [line for line in words.split("\n") if line.strip() not in privacy] == []
    if result.privacy.epsilon is not None:
        assert f"{result.privacy.epsilon:g}" in privacy
        assert result.privacy.neighbours in privacy
    else:
        assert "without differential privacy" in privacy
    assert result.plan.digest in plan
    assert result.plan.to_toml().strip() in page.locator("#plan pre").text_content()


def test_of_two_results_the_chosen_one_is_shown(open_page, report, tmp_path):
    results = {name: report(name)[0] for name in ("distributed noise", "classes", "no signal")}
    path = tmp_path / "all.html"
    save_report(results, path)
    page = open_page(path)
    noisy, classes, hidden = only(page, "results")
    assert noisy["ROC AUC"] == phrase(results["distributed noise"].roc_auc)
    assert classes["ROC AUC"] == phrase(results["classes"].macro("roc_auc"))
    assert hidden["ROC AUC"] == "undefined"
    for name in ("classes", "no signal", "distributed noise", "classes"):
        page.select_option("#which", label=name)
        result = results[name]
        assert result.plan.digest in page.evaluate(_TEXT, "plan")
        others = {each.plan.digest for each in results.values()} - {result.plan.digest}
        assert not any(each in page.evaluate("() => document.body.innerText") for each in others)
        assert page.locator("#slices").is_visible() == (name == "classes")
        assert page.locator("#part").is_visible() == (name == "classes")
        for part in parts(page, result):
            rows = {row["metric"]: row["value"] for row in only(page, "metrics")}
            auc = told(lambda part=part: part.roc_auc).partition(" ")[0]
            assert rows["ROC AUC"] == auc
            if silence(part) is None:
                assert auc in page.locator("#strip").text_content()
                assert f"AUC {part.roc_auc}" in page.locator("#roc figcaption").text_content()
                check_threshold(page, part)


def check_threshold(page, part):
    """The outcomes at the first threshold add up to the examples of the slice."""
    page.locator("#slider").press("Home")
    cells = page.locator("#matrix td b").all_text_contents()
    total = sum(int(each.replace(",", "")) for each in cells)
    assert total == pytest.approx(part.examples, abs=2)
