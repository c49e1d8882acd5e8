"""A report of 20 classes in 5 groups: time to make, bytes, and how soon its slider answers.

Next to it, the same ROC and PR curves by scikit-learn and matplotlib from the pooled rows, saved as
one PNG for each slice: pictures that answer nothing. Both in seconds of a processor. The browser is
Debian's Chromium; times in it are a clock's, from the navigation, or a choice, until it is drawn.
"""

import argparse
import io
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, sync_playwright

import fedgauge as fg
from fedgauge.report import save_report

GROUPS = ("north", "east", "south", "west", "centre")
# Before any script of the page: what it takes until a slider that is moved shows where it is.
ANSWER = """addEventListener("DOMContentLoaded", () => {
  const slider = document.querySelector("#slider"), at = document.querySelector("#at");
  const before = at.textContent;
  slider.value = 1;
  slider.dispatchEvent(new Event("input", {bubbles: true}));
  if (at.textContent === before) throw new Error("the slider did not answer");
  requestAnimationFrame(() => setTimeout(() => { window.answered = performance.now(); }));
});"""
# From a choice, or a move, until it is drawn.
DRAWN = """([id, value, kind]) => new Promise(done => {
  const control = document.querySelector(id), start = performance.now();
  control.value = value;
  control.dispatchEvent(new Event(kind, {bubbles: true}));
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
})"""


Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def make(classes: int, rows: int) -> Rows:
    """Labels, probabilities of all classes, and groups."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, rows)
    scores = rng.normal(size=(rows, classes))
    scores[np.arange(rows), labels] += 1.5
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return labels, scores, rng.choice(GROUPS, rows)


def evaluated(rows: Rows, classes: int) -> fg.Evaluation:
    """The result of which the page is made, of one site: how many there are changes nothing."""
    task = fg.MulticlassTask(labels=range(classes), groups={"region": GROUPS}, also=["confusion"])
    labels, scores, groups = rows
    return fg.evaluate({"site": fg.Examples(labels, scores, group=groups)}, task=task)


def pictures(rows: Rows, classes: int) -> Iterator[int]:
    """Bytes of a PNG with the ROC and PR curve of each class, of all rows and of each group."""
    from matplotlib.figure import Figure
    from sklearn.metrics import PrecisionRecallDisplay, RocCurveDisplay

    labels, scores, groups = rows
    for each in range(classes):
        for group in (None, *GROUPS):
            kept = slice(None) if group is None else groups == group
            one = labels[kept] == each, scores[kept, each]
            axes = Figure(figsize=(9.6, 4.4)).subplots(1, 2)
            RocCurveDisplay.from_predictions(*one, ax=axes[0])
            PrecisionRecallDisplay.from_predictions(*one, ax=axes[1])
            file = io.BytesIO()
            axes[0].figure.savefig(file)
            yield len(file.getvalue())


def opened(browser: Browser, path: Path) -> tuple[float, float, float]:
    """Milliseconds until the slider answers, of a move, and of the choice of another slice."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    broken: list[str] = []
    page.on("pageerror", lambda error: broken.append(str(error)))
    page.add_init_script(ANSWER)
    page.goto(path.as_uri())
    first = page.wait_for_function("() => window.answered").json_value()
    moved = statistics.median(page.evaluate(DRAWN, ["#slider", n, "input"]) for n in range(2, 12))
    chosen = statistics.median(page.evaluate(DRAWN, ["#part", n, "change"]) for n in range(1, 6))
    # A script that stops half-way is quick: the slider may answer on a page that draws nothing.
    drawn = page.locator("#roc .curve").count() == 1
    page.close()
    if broken or not drawn:
        raise RuntimeError(f"the page does not work: {broken or 'no ROC curve'}")
    return first, moved, chosen


def main() -> None:
    """Print what each takes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    rows = make(asked.classes, asked.rows)
    result = evaluated(rows, asked.classes)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "report.html"
        start = time.process_time()
        save_report({"report": result}, path)
        ours, size = time.process_time() - start, path.stat().st_size
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        opened(browser, path)
        times = np.median([opened(browser, path) for _ in range(asked.rounds)], axis=0)
    start = time.process_time()
    sizes = list(pictures(rows, asked.classes))
    theirs = time.process_time() - start
    print(f"{asked.rows:,} rows, {asked.classes} classes, {len(GROUPS)} groups")
    print(f"{'report':28}{ours:8.1f} s {size / 1e6:8.2f} MB  {len(result.slices)} slices")
    total = sum(sizes)
    print(
        f"{'scikit-learn, matplotlib':28}{theirs:8.1f} s {total / 1e6:8.2f} MB  {len(sizes)} PNGs"
    )
    print(f"{'ratio':28}{ours / theirs:8.2f}   {size / total:8.2f}")
    for what, found in zip(("slider answers", "slider moved", "slice chosen"), times, strict=True):
        print(f"{what:28}{found:8.0f} ms")


if __name__ == "__main__":
    main()
