"""Names are anybody's text: none runs, asks for anything, or breaks the page; nor does a script."""

import pytest
from pages import opened, overflow, saved
from shown import HOSTILE_CLASSES, HOSTILE_GROUPS, UNFOLD, parts

from fedgauge.report import save_report

# The last has a mark that turns what follows it round, as file names may: it is written out.
_NAMES = (*HOSTILE_CLASSES[:2], HOSTILE_GROUPS[2], "\u202etxt.exe")
_RAN = "() => window.ran"
_INJECT = """kind => {
  const blocked = new Promise(done => addEventListener(
    "securitypolicyviolation", event => done(event.effectiveDirective), {once: true}));
  const ran = new Promise(done => { window.ran = () => done("ran"); });
  const names = {script: "script", style: "style", frame: "iframe"};
  const part = document.createElement(names[kind] ?? "img");
  const put = {
    script: () => { part.textContent = "ran()"; },
    style: () => { part.textContent = "body { color: red }"; },
    handler: () => { part.setAttribute("onerror", "ran()"); part.src = "data:image/png,"; },
    picture: () => { part.src = "https://fedgauge.invalid/a.png"; },
    frame: () => { part.src = "https://fedgauge.invalid/"; },
    eval: () => setTimeout(() => eval("ran()")),
    fetch: () => fetch("https://fedgauge.invalid/").catch(() => {}),
    form: () => {
      const form = document.createElement("form");
      form.action = "https://fedgauge.invalid/";
      document.body.append(form);
      form.submit();
    },
  };
  put[kind]();
  document.body.append(part);
  return Promise.race([blocked, ran]);
}"""
_BLOCKED = {
    "script": "script-src-elem",
    "style": "style-src-elem",
    "handler": "script-src-attr",
    "eval": "script-src",
    "picture": "img-src",
    "frame": "frame-src",
    "fetch": "connect-src",
    "form": "form-action",
}


def test_names_of_classes_and_groups_stay_text(open_page, report):
    result, path = report("hostile")
    page = open_page(path, width=360)
    for part in parts(page, result):
        page.evaluate(UNFOLD)
        assert overflow(page) == []
        assert page.locator("#part option:checked").text_content() == str(part.slice)
    page.select_option("#part", index=0)
    page.evaluate(UNFOLD)
    assert len(saved(page)) > 8
    assert page.evaluate(_RAN) is None
    shown = page.evaluate("() => document.body.textContent")
    for name in (*HOSTILE_CLASSES, *HOSTILE_GROUPS):
        assert name in shown
    assert page.locator("img, iframe, body svg:not(figure svg)").count() == 0


def test_names_of_results_stay_text(open_page, report, tmp_path):
    path = tmp_path / "r.html"
    save_report(dict.fromkeys(_NAMES, report("no signal")[0]), path)
    page = open_page(path, width=360)
    names = [name.replace("\u202e", "[U+202E]") for name in _NAMES]
    assert page.locator("#which option").all_text_contents() == names
    for name in names:
        page.select_option("#which", label=name)
        assert overflow(page) == []
    assert page.title() == "fedgauge: " + ", ".join(names)
    assert page.evaluate(_RAN) is None


@pytest.mark.parametrize("kind", _BLOCKED)
def test_what_gets_into_the_page_is_kept_from_running_and_asking(browser, report, kind):
    path = report("no signal")[1]
    # Chromium complains of each: that the page asks for nothing is tested elsewhere.
    with (
        pytest.raises(AssertionError, match="Content Security Policy"),
        opened(browser, path) as page,
    ):
        assert page.evaluate(_INJECT, kind) == _BLOCKED[kind]


def test_policy_allows_nothing_unsafe(open_page, report):
    page = open_page(report("exact sum")[1])
    rules = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert "default-src 'none'" in rules
    assert "unsafe" not in rules
    assert "*" not in rules
