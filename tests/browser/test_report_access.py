"""A report without a mouse, with large letters, in colours that can be told apart."""

import pytest
from pages import faint_marks, overflow
from shown import UNFOLD

# One of each kind: what is reached by Tab, and where.
_FOCUSED = """() => {
  const part = document.activeElement;
  if (part === document.body) return null;
  const {outlineStyle, outlineWidth} = getComputedStyle(part);
  const {clientWidth, clientHeight} = document.documentElement;
  const {left, right, top, bottom} = part.getBoundingClientRect(), before = part.dataset.seen;
  part.dataset.seen = "yes";
  return {
    what: part.tagName.toLowerCase() + (part.id ? "#" + part.id : ""),
    again: before !== undefined,
    ring: outlineStyle === "none" ? 0 : parseFloat(outlineWidth),
    inside: right > 0 && left < clientWidth && bottom > 0 && top < clientHeight,
    place: [...document.querySelectorAll("*")].indexOf(part),
  };
}"""
_MOVES = """() => [...document.querySelectorAll("*")].filter(part => {
  const style = getComputedStyle(part);
  return style.scrollBehavior === "smooth" || style.animationName !== "none"
    || style.transitionDuration !== "0s";
}).map(part => part.tagName)"""


@pytest.mark.parametrize("kind", ["exact sum", "one class"])
@pytest.mark.parametrize("dark", [False, True])
def test_text_and_marks_of_figures_stand_out(open_page, report, kind, dark):
    page = open_page(report(kind)[1], dark=dark)
    page.evaluate(UNFOLD)
    assert faint_marks(page) == []


@pytest.mark.parametrize("kind", ["exact sum", "groups"])
def test_tab_goes_through_the_page_in_order_and_is_seen(open_page, report, kind):
    page = open_page(report(kind)[1], width=360)
    page.evaluate(UNFOLD)
    seen = []
    while True:
        page.keyboard.press("Tab")
        found = page.evaluate(_FOCUSED)
        if found is None or found["again"]:
            break
        seen.append(found)
    places = [each["place"] for each in seen]
    assert places == sorted(places)
    assert [each["what"] for each in seen if each["ring"] < 2] == []
    assert [each["what"] for each in seen if not each["inside"]] == []
    names = {each["what"] for each in seen}
    assert {"a", "input#slider", "select#want", "circle", "button#choose", "summary"} <= names


def test_focus_of_the_point_on_a_curve_is_drawn(open_page, report):
    page = open_page(report("exact sum")[1])
    page.locator("#pr .point").focus()
    page.keyboard.press("ArrowRight")
    figure = page.locator("#roc svg")
    without = figure.screenshot()
    page.locator("#roc .point").focus()
    assert figure.screenshot() != without


@pytest.mark.parametrize("kind", ["exact sum", "groups", "classes"])
def test_whatever_takes_the_focus_has_a_name(open_page, report, kind):
    page = open_page(report(kind)[1])
    page.evaluate(UNFOLD)
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")
    focusable = [
        node
        for node in tree["nodes"]
        if any(each["name"] == "focusable" for each in node.get("properties", ()))
        and node["role"]["value"] != "RootWebArea"
    ]
    assert len(focusable) > 30
    roles = [node["role"]["value"] for node in focusable if not node["name"]["value"].strip()]
    assert roles == []
    names = [node["name"]["value"] for node in focusable if node["role"]["value"] == "button"]
    assert sorted(names) == sorted(set(names))  # buttons that do one thing each


@pytest.mark.parametrize("kind", ["exact sum", "groups"])
def test_letters_of_twice_the_size_and_a_quarter_of_the_width(open_page, report, kind):
    # WCAG 2.2: 1.4.4 wants text of 200%, and 1.4.10 a width of 320 px, which is 1280 at 400%.
    page = open_page(report(kind)[1], width=320)
    page.evaluate(UNFOLD)
    assert overflow(page) == []
    page.set_viewport_size({"width": 1280, "height": 900})
    page.evaluate("() => { document.documentElement.style.fontSize = '200%'; }")
    assert overflow(page) == []


def test_nothing_moves_for_those_who_want_that(open_page, report):
    page = open_page(report("exact sum")[1])  # pages are opened so
    assert page.evaluate(_MOVES) == []
