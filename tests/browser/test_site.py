"""The documentation site: all can read it, and its search shows guides before attributes."""

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SITE = DOCS / "_build"


def found(docname, title, score, descr=None):
    """A result of Sphinx's search, as it hands one to the scorer."""
    return [docname, title, "", descr, score, f"{docname}.md"]


EXACT = "Python attribute, in AtThreshold"
RECALL = [
    found("api/fedgauge.AtThreshold", "fedgauge.AtThreshold.recall", 16, EXACT),
    found("metric-formulas", "Metric formulas", 15),
    found("five-minutes", "Five minutes", 5),
    found("changelog", "Changelog", 5),
    found("choose-recall", "Choose a recall", 15),
]
EVALUATE = [
    found("api/fedgauge.evaluate", "evaluate", 16),
    found("large-data", "Evaluate large data", 15),
    found("install", "Install", 5),
]


@pytest.mark.parametrize(
    ("query", "results", "ranked"),
    [
        (
            "recall",
            RECALL,
            ["choose-recall", "metric-formulas", "five-minutes", "changelog", "api"],
        ),
        ("at_threshold.recall", RECALL[::2], ["api", "choose-recall", "five-minutes"]),
        ("Evaluate", EVALUATE, ["large-data", "api", "install"]),
    ],
)
def test_search_shows_guides_before_attributes(browser, query, results, ranked):
    page = browser.new_page()
    try:
        page.add_script_tag(path=DOCS / "search_scorer.js")
        scores = [
            page.evaluate("([each, query]) => Scorer.score(each, query)", [each, query])
            for each in results
        ]
    finally:
        page.close()
    assert len(set(scores)) == len(scores)
    best = sorted(zip(scores, results, strict=True), key=lambda pair: -pair[0])
    assert [each[0].split("/")[0] for _, each in best] == ranked


@pytest.mark.parametrize(
    "name", ["index", "api", "auto_examples/index", "commands", "results", "search"]
)
@pytest.mark.parametrize("dark", [False, True])
def test_all_can_read_it(browser, axe, name, dark):
    if not (SITE / "index.html").is_file():
        pytest.skip("needs the site: make docs")
    context = browser.new_context(color_scheme="dark" if dark else "light", offline=True)
    try:
        page = context.new_page()
        page.goto((SITE / f"{name}.html").as_uri(), wait_until="load")
        assert axe(page) == []
    finally:
        context.close()
