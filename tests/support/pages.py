"""Pages as a browser shows them: complaints, requests, what does not fit, what is printed."""

import shutil
from base64 import b64decode
from contextlib import contextmanager
from importlib import resources
from io import BytesIO
from unicodedata import normalize

import pytest

GRAVE = ("serious", "critical")  # axe-core's words for what shuts people out
# Parts that reach past the right edge, save those that a scrolling or clipping part holds.
_OVERFLOW = """() => {
  const root = document.documentElement, edge = root.clientWidth;
  if (root.scrollWidth <= edge) return [];
  const held = part => {
    for (let up = part.parentElement; up && up !== document.body; up = up.parentElement)
      if (getComputedStyle(up).overflowX !== "visible") return true;
    return false;
  };
  const wide = [...document.body.querySelectorAll("*")]
    .filter(part => part.getBoundingClientRect().right > edge + 0.5 && !held(part))
    .map(part => part.tagName.toLowerCase() + (part.id ? "#" + part.id : ""));
  return [`${root.scrollWidth} px wide in ${edge}`, ...wide.slice(0, 5)];
}"""
_AXE = """async how =>
  (await axe.run(document, {resultTypes: ["violations"], ...how})).violations.map(rule => [
    rule.impact, `${rule.id}: ${rule.help}: `
    + rule.nodes.slice(0, 3).map(node => node.target.join(" ")).join(", ")])"""
# Text and marks of figures by WCAG 2.2: 1.4.3 wants a contrast of 4.5, 1.4.11 one of 3. Grid lines
# only guide the eye, and lines are to be seen through bands: neither is held to it.
_FAINT = """() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(each => each / 255)
      .map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = part => {
    for (let up = part; up; up = up.parentElement) {
      const [r, g, b, alpha = 1] = parse(getComputedStyle(up).backgroundColor);
      if (alpha > 0) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const seen = (part, paint) => {
    const style = getComputedStyle(part);
    if (style[paint] === "none" || !part.checkVisibility()) return 0;
    const [r, g, b, alpha = 1] = parse(style[paint]), paper = behind(part.closest("svg"));
    let cover = alpha * style[paint + "Opacity"];
    for (let up = part; up.closest("svg"); up = up.parentElement)
      cover *= getComputedStyle(up).opacity;
    return ratio([r, g, b].map((each, i) => cover * each + (1 - cover) * paper[i]), paper);
  };
  const faint = new Set();
  for (const part of document.querySelectorAll("svg :is(text, path, circle, rect, line)")) {
    if (part.closest("clipPath") || part.matches(".grid, .band")) continue;
    if (!part.checkVisibility()) continue;
    const best = Math.max(seen(part, "fill"), seen(part, "stroke"));
    if (best < (part.tagName === "text" ? 4.5 : 3))
      faint.add(`${part.tagName}.${part.getAttribute("class")} ${best.toFixed(2)}`);
  }
  return [...faint];
}"""
# Links that save are not followed; what they would have saved is handed to `caught`.
_CATCH = """() => {
  let blob;
  URL.createObjectURL = each => { blob = each; return "blob:caught"; };
  HTMLAnchorElement.prototype.click = function () {
    const reader = new FileReader(), name = this.download, kind = blob.type;
    reader.onload = () => window.caught([name, kind, reader.result.split(",")[1]]);
    reader.readAsDataURL(blob);
  };
}"""
_PRESS_ALL = """async () => {
  const files = [];
  for (const button of document.querySelectorAll(".tools button")) {
    if (!button.checkVisibility()) continue;
    const come = new Promise(done => { window.caught = done; });
    button.click();
    files.push([button.getAttribute("aria-label") ?? button.textContent, ...await come]);
  }
  return files;
}"""


def find_playwright():
    """What drives a browser; without it the test is skipped."""
    return pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: pip install 'fedgauge[test]'"
    )


def find_chromium():
    """Where Debian's Chromium is; without it the test is skipped."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("needs Chromium. As root: apt-get install --no-install-recommends chromium")
    return found


@contextmanager
def opened(browser, path, *, width=1280, dark=False):
    """A page from a file. When it is closed, its complaints and its requests are failures."""
    faults = []
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        offline=True,
        reduced_motion="reduce",
    )
    try:
        page = context.new_page()
        page.set_default_timeout(120_000)  # nothing here hangs on time: a crowded machine is slow
        _listen(page, path.as_uri(), faults)
        page.goto(path.as_uri(), wait_until="load")
        yield page
        page.evaluate("() => new Promise(done => setTimeout(done))")  # what is queued comes first
    finally:
        context.close()
    assert not faults, f"{path.name}: " + "; ".join(faults)


def _listen(page, address, faults):
    def console(message):
        if message.type in ("error", "warning"):
            faults.append(f"console {message.type}: {message.text}")

    def request(asked):
        if asked.url.partition("#")[0] != address and not asked.url.startswith(("data:", "blob:")):
            faults.append(f"request: {asked.url}")

    page.on("console", console)
    page.on("pageerror", lambda error: faults.append(f"uncaught: {error}"))
    page.on("request", request)
    page.on("websocket", lambda socket: faults.append(f"request: {socket.url}"))


def grave_violations(page, *, colours=False):
    """What axe-core finds serious or critical, a line each; of `colours` alone if so."""
    source = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
    page.evaluate(source)  # not a script element, which the page's own policy may forbid
    how = {"runOnly": ["color-contrast"]} if colours else {}
    return [told for impact, told in page.evaluate(_AXE, how) if impact in GRAVE]


def faint_marks(page):
    """Text and marks of figures that do not stand out from the page, with their contrast."""
    return page.evaluate(_FAINT)


def saved(page):
    """What every button for a file saves: name, kind and bytes, by what the button is called. Read
    where the page hands it over: Chromium drops what is over ten downloads in a second."""
    page.evaluate(_CATCH)
    return {
        label: (name, kind, b64decode(inside))
        for label, name, kind, inside in page.evaluate(_PRESS_ALL)
    }


def overflow(page):
    """Where the page scrolls sideways: how wide it is, and the parts that stick out."""
    return page.evaluate(_OVERFLOW)


def printed(page):
    """The text of each page of its print."""
    from pypdf import PdfReader

    document = PdfReader(BytesIO(page.pdf(format="A4", print_background=True)))
    # Letters that are set as one, such as fl, are two again.
    return [normalize("NFKC", sheet.extract_text()) for sheet in document.pages]
