"""Report pages as people meet them: light and dark, on a phone, on paper, without a mouse."""

import pytest
from pages import overflow, printed
from shown import AS_GROUPS, REPORTS

from fedgauge.metrics.bands import DET, GAIN, PR, PR_GAIN, ROC

FIGURES = {
    **{kind.title: kind.labels for kind in (ROC, PR, DET, PR_GAIN, GAIN)},
    "Scores by class": ("Score", "Share of the class"),
    "Calibration": ("Mean score", "Share of positives"),
    "Decision curve": ("Threshold", "Net benefit"),
}
# Everything unfolded; of long tables the beginning, as axe-core takes 10 s for a thousand rows.
_UNFOLD = """() => {
  document.querySelectorAll("details").forEach(each => each.open = true);
  document.querySelectorAll("tbody tr:nth-child(n + 4)").forEach(each => each.remove());
}"""


@pytest.mark.parametrize("kind", REPORTS)
def test_all_can_read_it(open_page, report, axe, kind):
    page = open_page(report(kind)[1], width=360)
    page.evaluate(_UNFOLD)
    assert overflow(page) == []
    if kind in AS_GROUPS:
        return
    assert axe(page) == []
    page.emulate_media(color_scheme="dark")
    assert axe(page, colours=True) == []


@pytest.mark.parametrize("kind", ["exact sum", "distributed noise", "classes"])
def test_every_figure_is_printed(open_page, report, kind):
    page = open_page(report(kind)[1])
    paper = " ".join(" ".join(printed(page)).split())
    for title, labels in FIGURES.items():
        assert title in paper
        assert [label for label in labels if label not in paper] == []


def test_print_of_a_dark_page_is_black_on_white(open_page, report):
    page = open_page(report("exact sum")[1], dark=True)
    page.emulate_media(media="print", color_scheme="dark")
    seen = page.evaluate(
        "(({backgroundColor, color}) => [backgroundColor, color])(getComputedStyle(document.body))"
    )
    assert seen == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
