"""Take the pictures of the report that README and the documentation show.

``make screenshots`` runs it, in Chromium. The pictures are of the demo's report, as small as a
palette makes them.
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from fedgauge import demo

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
LARGEST = 120_000  # bytes of a picture: README is read over slow lines, too
COLOURS = 256


def main() -> None:
    """Both pictures; end with a reason where there is no browser, or a picture is too large."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("There is no Chromium. As root: apt-get install --no-install-recommends chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        report = demo.run(Path(folder)).report.resolve().as_uri()
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        save("report-wide.png", whole_beginning(browser, report))
        save("report-narrow.png", thresholds_on_a_phone(browser, report))
        browser.close()


def whole_beginning(browser: Browser, report: str) -> bytes:
    """From the title to the curves, on a wide screen in the light."""
    page = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme="light")
    page.goto(report)
    return taken(page, "header", "#roc svg")


def thresholds_on_a_phone(browser: Browser, report: str) -> bytes:
    """A threshold that was chosen by the recall that it has, on a narrow screen in the dark."""
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, color_scheme="dark", device_scale_factor=1.5
    )
    page = context.new_page()
    page.goto(report)
    page.click("#choose")
    page.evaluate("document.activeElement.blur()")
    return taken(page, "#thresholds h2", "#roc svg")


def taken(page: Page, first: str, last: str) -> bytes:
    """All between two parts of a page, with a little room."""
    top, end = page.locator(first).bounding_box(), page.locator(last).bounding_box()
    scrolled = page.evaluate("scrollY")
    begin = max(0, top["y"] + scrolled - 12)
    height = end["y"] + end["height"] + scrolled - begin
    clip = {"x": 0, "y": begin, "width": page.viewport_size["width"], "height": height}
    return page.screenshot(full_page=True, clip=clip)


def save(name: str, picture: bytes) -> None:
    """A picture with as many colours as text and lines need."""
    shown = Image.open(io.BytesIO(picture)).convert("RGB")
    path = IMAGES / name
    shown.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.name}: {shown.width} x {shown.height}, {size:,} bytes")
    if size > LARGEST:
        sys.exit(f"{path} must have at most {LARGEST:,} bytes.")


if __name__ == "__main__":
    main()
