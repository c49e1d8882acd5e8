"""The browser sees what it must: each fault that pages may have is made once, and found."""

import sys

import pytest
from pages import find_chromium, find_playwright, grave_violations, opened, overflow, printed

_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A page</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body {{ background: white; color: black }}
@media (prefers-color-scheme: dark) {{ body {{ background: black; color: {dark} }} }}
@media print {{ .screen {{ display: none }} }}</style></head>
<body><main><h1>A page</h1>{body}</main></body></html>"""


@pytest.fixture
def write(tmp_path):
    def written(body="", *, dark="white"):
        path = tmp_path / "page.html"
        path.write_text(_PAGE.format(body=body, dark=dark), encoding="utf-8")
        return path

    return written


def test_without_chromium_or_playwright_tests_are_skipped_and_say_how_it_is_installed(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(pytest.skip.Exception, match=r"As root: apt-get install .*chromium"):
        find_chromium()
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    with pytest.raises(pytest.skip.Exception, match=r"pip install 'fedgauge\[test\]'"):
        find_playwright()


@pytest.mark.parametrize("dark", [False, True])
def test_a_sound_page_has_no_fault(open_page, write, axe, dark):
    page = open_page(write("<p>All is well.</p>"), width=360, dark=dark)
    assert page.title() == "A page"
    assert axe(page) == []
    assert overflow(page) == []


FAULTS = {
    "console": ("<script>console.error('broken')</script>", "console error: broken"),
    "warning": ("<script>console.warn('odd')</script>", "console warning: odd"),
    "uncaught": ("<script>throw new Error('unforeseen')</script>", "uncaught: .*unforeseen"),
    "promise": ("<script>Promise.reject(new Error('late'))</script>", "uncaught: .*late"),
    "image": ('<img alt="" src="https://fedgauge.invalid/a.png">', "request: https://fedgauge"),
    "font": (
        "<style>@font-face { font-family: far; src: url(https://fedgauge.invalid/f) }"
        "p { font-family: far }</style><p>far</p>",
        "request: https://fedgauge.invalid/f",
    ),
    "fetch": (
        "<script>fetch('https://fedgauge.invalid/a').catch(() => 0)</script>",
        "request: https://fedgauge.invalid/a",
    ),
    "socket": (
        "<script>new WebSocket('wss://fedgauge.invalid/s')</script>",
        "request: wss://fedgauge.invalid/s",
    ),
    "file beside it": ('<img alt="" src="beside.png">', "request: file:.*beside.png"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_complaints_and_requests_fail(browser, write, name):
    body, told = FAULTS[name]
    with pytest.raises(AssertionError, match=told), opened(browser, write(body)):
        pass


def test_what_comes_of_a_click_fails_too(browser, write):
    path = write("<button onclick=\"console.error('clicked')\">Press</button>")
    with (
        pytest.raises(AssertionError, match="console error: clicked"),
        opened(browser, path) as page,
    ):
        page.get_by_role("button").click()


def test_pictures_in_the_file_are_no_requests(open_page, write):
    open_page(write('<img alt="" src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">'))


def test_low_contrast_is_found_in_the_dark_alone_too(browser, write):
    with opened(browser, write('<p style="color: #bbb">Pale</p>')) as page:
        assert [each.partition(":")[0] for each in grave_violations(page)] == ["color-contrast"]
    path = write(dark="#222")
    with opened(browser, path, dark=True) as page:
        assert [each.partition(":")[0] for each in grave_violations(page)] == ["color-contrast"]
    with opened(browser, path) as page:
        assert grave_violations(page) == []


def test_a_field_without_a_name_is_found(open_page, write, axe):
    assert "label: " in " ".join(axe(open_page(write('<input type="range">'))))


def test_a_page_that_scrolls_sideways_is_found_but_no_part_that_scrolls_by_itself(open_page, write):
    page = open_page(write('<div id="long" style="width: 500px">long</div>'), width=360)
    told = overflow(page)
    assert told[0].endswith("in 360")
    assert "div#long" in told
    inner = '<div style="overflow-x: auto"><div style="width: 500px">long</div></div>'
    assert overflow(open_page(write(inner), width=360)) == []


def test_print_has_what_is_printed(open_page, write):
    sheets = printed(open_page(write('<p>kept</p><p class="screen">left out</p>')))
    assert len(sheets) == 1
    assert "kept" in sheets[0]
    assert "left out" not in sheets[0]
