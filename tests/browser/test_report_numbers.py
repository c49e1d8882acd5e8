"""Every number that a report shows at a threshold is the library's, however it was set."""

import math
import re

import pytest
from shown import AS_GROUPS, REPORTS, at, parts, silence, told

import fedgauge as fg
from fedgauge.errors import UndefinedMetric
from fedgauge.metrics.estimate import metrics_of

_WITH_CURVES = [kind for kind in REPORTS if kind not in ("no signal", "one class")]
_UNLIKE = [kind for kind in _WITH_CURVES if kind not in AS_GROUPS]
# What is shown at the threshold that is set: its name, the outcomes, the metrics.
_SHOWN = """() => ({
  label: document.querySelector("#at").textContent,
  place: document.querySelector("#slider").valueAsNumber,
  said: document.querySelector("#slider").getAttribute("aria-valuetext"),
  outcomes: ["tn", "fp", "fn", "tp"].map(id => {
    const number = document.querySelector(`#${id} b`);
    return [number.textContent, number.nextSibling?.textContent ?? ""];
  }),
  metrics: Object.fromEntries([...document.querySelectorAll("[data-metric]")].map(
    row => [row.dataset.metric, [...row.querySelectorAll("td")].map(cell => cell.textContent)])),
})"""
_METRICS = """() => [...document.querySelectorAll("table[data-csv=metrics] tbody tr")].map(
  row => [...row.cells].slice(0, 3).map(cell => cell.textContent))"""
_FIRST = """() => [...document.querySelectorAll("#strip li")].map(
  each => [...each.childNodes].map(inside => inside.textContent))"""
_EVERYWHERE = f"""() => {{
  const slider = document.querySelector("#slider"), shown = {_SHOWN};
  return Array.from({{length: +slider.max + 1}}, (_, place) => {{
    slider.value = place;
    slider.dispatchEvent(new Event("input", {{bubbles: true}}));
    return shown();
  }});
}}"""
# Where the point is on a figure, as shares of its axes.
_POINT = """id => {
  const box = part => document.querySelector(`#${id} ${part}`).getBoundingClientRect();
  const dot = box(".point"), axis = box(".axis");
  return [(dot.left + dot.width / 2 - axis.left) / axis.width,
          (axis.bottom - dot.top - dot.height / 2) / axis.height];
}"""


def check(result, shown):
    here = at(result, shown["label"])
    assert shown["outcomes"] == [
        outcome(result, getattr(here.confusion_matrix, name)) for name in ("tn", "fp", "fn", "tp")
    ]
    assert {"recall", "precision", "fpr", "f1"} <= set(shown["metrics"])
    for metric, cells in shown["metrics"].items():
        assert (metric, cells) == (metric, told(here, metric))
    recall, precision, fpr = (told(here, metric)[0] for metric in ("recall", "precision", "fpr"))
    assert shown["said"] == (
        f"{shown['label']}: recall {recall}, precision {precision}, false positive rate {fpr}"
    )


def outcome(result, estimate):
    """A cell of the confusion matrix: under noise it has an interval."""
    ends = [f"{end:,.0f}" for end in estimate.bounds] if result.plan.is_noisy else []
    return [f"{estimate.value:,.0f}", " to ".join(ends)]


@pytest.mark.parametrize("kind", _WITH_CURVES)
def test_at_every_threshold_of_every_slice(open_report, kind):
    result, page = open_report(kind)
    for part in parts(page, result):
        why = silence(part)  # as of groups in which nobody is, or that are withheld
        assert page.locator("#explorer").is_hidden() == (why is not None)
        if why is not None:
            assert why in page.locator("#why").text_content()
            continue
        everywhere = page.evaluate(_EVERYWHERE)
        assert len(everywhere) > 5
        assert [shown["place"] for shown in everywhere] == list(range(len(everywhere)))
        thresholds = [at(part, shown["label"]).threshold for shown in everywhere]
        assert thresholds == sorted(set(thresholds))
        for shown in everywhere:
            check(part, shown)


@pytest.mark.parametrize("kind", _UNLIKE)
def test_by_keyboard_and_by_mouse(open_report, kind):
    result, page = open_report(kind)
    slider = page.get_by_role("slider", name="Threshold", exact=False).first
    slider.focus()
    last = int(slider.get_attribute("max"))
    ways = {"Home": 0, "ArrowRight": 1, "ArrowUp": 2, "ArrowLeft": 1, "End": last}
    for key, place in (*ways.items(), ("ArrowDown", last - 1)):
        page.keyboard.press(key)
        shown = page.evaluate(_SHOWN)
        assert (key, shown["place"]) == (key, place)
        check(result.slices[0], shown)
    slider = page.locator("#slider")
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    labels = set()
    for share in (0.1, 0.4, 0.8):
        page.mouse.click(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        shown = page.evaluate(_SHOWN)
        check(result.slices[0], shown)
        labels.add(shown["label"])
    assert len(labels) == 3


@pytest.mark.parametrize(
    ("figure", "axes"), [("roc", ("fpr", "recall")), ("pr", ("recall", "precision"))]
)
def test_points_on_curves_are_dragged_and_moved_by_keys(open_report, figure, axes):
    result, page = open_report("exact sum")
    points = [
        tuple(told(at(result, shown["label"]), name)[0] for name in axes)
        for shown in page.evaluate(_EVERYWHERE)
    ]
    dot = page.locator(f"#{figure} .point")
    dot.scroll_into_view_if_needed()
    line = page.locator(f"#{figure} .axis").bounding_box()

    def check_point(place):
        shown = page.evaluate(_SHOWN)
        assert shown["place"] == place
        check(result, shown)
        if "undefined" not in points[place]:
            expected = [float(each) for each in points[place]]
            assert page.evaluate(_POINT, figure) == pytest.approx(expected, abs=0.002)
        assert dot.get_attribute("aria-valuenow") == str(place)
        assert dot.get_attribute("aria-valuetext") == shown["said"]

    def away(place, x, y):
        if "undefined" in points[place]:
            return math.inf
        over, up = map(float, points[place])
        return math.hypot((over - x) * line["width"], (up - y) * line["height"])

    box = dot.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    for x, y in ((0.7, 0.5), (0.45, 0.9), (0.3, 0.65)):
        page.mouse.move(line["x"] + x * line["width"], line["y"] + (1 - y) * line["height"])
        place = page.locator("#slider").evaluate("slider => slider.valueAsNumber")
        check_point(place)
        # The nearest there is, but for the pixel to which the pointer is rounded.
        assert away(place, x, y) < min(away(each, x, y) for each in range(len(points))) + 1
    page.mouse.up()
    last = len(points) - 1
    ways = {"Home": 0, "PageUp": 10, "ArrowRight": 11, "ArrowDown": 10, "ArrowUp": 11}
    ends = {"PageDown": 1, "ArrowLeft": 0, "End": last}
    for key, place in (ways | ends).items():
        page.keyboard.press(key)  # the point has the focus
        check_point(place)


@pytest.mark.parametrize("kind", ["exact sum", "distributed noise", "local reports"])
def test_by_what_is_wanted(open_report, kind):
    result, page = open_report(kind)
    refused = 0
    for want in ("recall", "fpr", "precision", "cost"):
        page.select_option("#want", want)
        choices = page.locator("#wanted option").all_text_contents()
        for choice in (*choices[:: len(choices) // 3], choices[-1]):
            page.select_option("#wanted", label=choice)
            page.get_by_role("button", name="Set").click()
            number = float(re.match(r"[\d.]+", choice)[0])
            wish = {want: (1.0, number) if want == "cost" else number / 100}
            said = page.locator("#told").text_content()
            try:
                chosen = result.threshold_for(**wish)
            except UndefinedMetric:
                assert said.startswith("No threshold has")
                refused += 1
                continue
            shown = page.evaluate(_SHOWN)
            assert at(result, shown["label"]).threshold == chosen.threshold
            assert said.endswith(f"{choice}: threshold {shown['said']}.")
            check(result, shown)
    assert refused == (kind != "exact sum")  # a precision of 99.9%, under noise


def test_ppv_and_npv_follow_prevalence_and_threshold(open_report):
    result, page = open_report("exact sum")
    page.locator("#prevalence").fill("2.5")
    for key in ("Home", "PageUp", "PageUp", "PageUp"):
        page.locator("#slider").press(key)
        here = at(result, page.locator("#at").text_content())
        r, f, p = here.recall.value, here.fpr.value, 0.025
        words = page.locator("#elsewhere").text_content()
        assert words.endswith("where 2.5% are positive.")
        said = re.findall(r"[PN]PV (undefined|[\d.]+)", words)
        missed, spared = (1 - r) * p, (1 - f) * (1 - p)
        ppv, npv = (
            r * p / (r * p + f * (1 - p)),
            spared / (spared + missed) if spared + missed else None,
        )
        assert float(said[0]) == pytest.approx(ppv, abs=5.1e-5)
        assert (
            said[1] == "undefined"
            if npv is None
            else float(said[1]) == pytest.approx(npv, abs=5.1e-5)
        )


@pytest.mark.parametrize("kind", REPORTS)
def test_metrics_over_all_thresholds(open_report, kind):
    result, page = open_report(kind)
    titles = {row.title: row.name for row in metrics_of(fg.Evaluation)}
    for part in parts(page, result):
        rows = page.evaluate(_METRICS)
        assert len(rows) > 10
        first = page.evaluate(_FIRST)
        assert len(first) > 3 or silence(part) is not None
        for title, *cells in (*rows, *first):
            assert (title, cells) == (title, told(part, titles[title]))


@pytest.mark.parametrize("kind", ["no signal", "one class"])
def test_without_curves_it_says_why(open_report, kind):
    result, page = open_report(kind)
    assert page.locator("#explorer").is_hidden()
    said = page.locator("#why").text_content()
    assert said.startswith("There are no curves")
    assert said.endswith(silence(result))
