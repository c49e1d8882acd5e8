"""A real browser: Debian's Chromium, one for all tests of this folder."""

from contextlib import ExitStack
from functools import cache

import pytest
from pages import find_chromium, find_playwright, grave_violations, opened
from shown import REPORTS


# Closed with the folder, not with the session: while it is open an event loop runs in this thread,
# and other tests may start their own. pytest holds folders apart only where they are packages.
@pytest.fixture(scope="package")
def browser():
    api, chromium = find_playwright(), find_chromium()
    with api.sync_playwright() as playwright:
        # Its sandbox cannot be made by root, nor in most containers; the pages are our own.
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser):
    """Open a file, `width` pixels wide, light or dark; complaints and requests fail the test."""
    with ExitStack() as pages:
        yield lambda path, **how: pages.enter_context(opened(browser, path, **how))


@pytest.fixture
def open_report(open_page, report):
    def shown(kind):
        result, path = report(kind)
        return result, open_page(path)

    return shown


@pytest.fixture
def axe():
    """Serious and critical violations that axe-core finds in a page."""
    return grave_violations


@pytest.fixture(scope="package")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")

    @cache
    def made(kind):
        result, path = REPORTS[kind](), folder / f"{kind}.html"
        result.to_html(path)
        return result, path

    with pytest.MonkeyPatch.context() as patch:  # as few_redraws, for all tests of this folder
        patch.setattr("fedgauge.metrics.ranking._DRAWS", 12)
        yield made
