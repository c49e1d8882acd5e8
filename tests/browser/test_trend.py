"""The page of a trend as people meet it: numbers, light and dark, on a phone, on paper."""

from functools import cache

import numpy as np
import pytest
from pages import overflow, printed

import fedgauge as fg
from fedgauge.metrics.estimate import show

AXIS = fg.Axis.uniform(16, outside="clip")
LONG = "the week in which the new analyser was installed <b>and</b> nobody wrote down why"
# Everything unfolded; of long tables the beginning, as axe-core takes long for many rows.
_UNFOLD = """() => {
  document.querySelectorAll("details").forEach(each => each.open = true);
  document.querySelectorAll("tbody tr:nth-child(n + 8)").forEach(each => each.remove());
}"""
_CELLS = """id => [...document.querySelectorAll(`[id="${id}"] tbody tr`)]
  .map(row => [...row.cells].map(cell => cell.textContent))"""


def week(seed, signal=1.6, rows=900, share=0.3, **options):
    rng = np.random.default_rng(seed)
    y = rng.random(rows) < share
    s = 1 / (1 + np.exp(1 - signal * y - rng.normal(size=rows)))
    sites = {f"site {n}": (y[n::3], s[n::3]) for n in range(3)}
    return fg.evaluate(sites, axis=AXIS, seed=seed, **options)


def moving():
    """A fall, a long time without looks, one that is not defined, and a long name."""
    days = [f"2026-0{month}-{day:02}" for month in (1, 2, 6) for day in (5, 12, 19)]
    looks = {day: week(n, 1.6 if n < 6 else 0.4) for n, day in enumerate(days)}
    looks[days[2]] = week(2, share=0.0)
    looks[LONG] = week(20, 0.4)
    return fg.Trend.of(looks, at=[0.5], when={**{day: day for day in days}, LONG: "2026-06-26"})


def noisy():
    looks = {f"week {n}": week(n, privacy=fg.DistributedDP(1.0)) for n in range(3)}
    looks["hidden"] = week(9, rows=20, privacy=fg.DistributedDP(0.1))
    return fg.Trend.of(looks, skipped={"notes.txt": "its name does not end in .json"})


TRENDS = {"moving": moving, "noisy": noisy, "one look": lambda: fg.Trend.of({"a": week(1)})}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A trend of a kind, and the page that was made of it."""
    folder = tmp_path_factory.mktemp("trends")

    @cache
    def make(kind):
        trend, path = TRENDS[kind](), folder / f"{kind}.html"
        trend.to_html(path)
        return trend, path

    return make


def expected(row):
    """A row of the record, as the table of its figure shows it."""
    ends = "" if row["low"] is None else f"{show(row['low'])} to {show(row['high'])}"
    return [
        row["look"],
        "undefined" if row["value"] is None else show(row["value"]),
        ends,
        "" if row["moved"] is None else f"{row['moved']:+.4f}",
        "" if row["z"] is None else f"{row['z']:+.2f}",
        "" if row["least"] is None else f"{row['least']:.4f}",
        row["alarm"] or "",
    ]


@pytest.mark.parametrize("kind", TRENDS)
def test_every_number_shown_is_the_librarys(open_page, made, kind):
    trend, path = made(kind)
    page = open_page(path)
    record = trend.record
    for each in record["watched"]:
        at = each["threshold"]
        rows = [
            row
            for row in record["rows"]
            if (row["metric"], row["threshold"]) == (each["metric"], at)
        ]
        name = each["metric"] if at is None else f"{each['metric']}-at-{at:g}"
        if all(row["value"] is None for row in rows):  # as KS of one look
            assert "Undefined in every look" in page.locator(f'[id="{name}"]').inner_text()
            continue
        assert page.evaluate(_CELLS, name) == [expected(row) for row in rows]
        marks = page.locator(f'[id="{name}"] svg .mark').count()
        assert marks == sum(row["alarm"] is not None for row in rows)
    told = page.locator("#short").inner_text()
    assert record["verdict"][1:] in told
    assert record["promise"] in told
    last = next(row for row in record["rows"] if row["look"] == trend.looks[-1])
    assert page.locator("#strip li").first.inner_text().split("\n")[1] == expected(last)[1]


@pytest.mark.parametrize("kind", TRENDS)
def test_all_can_read_it(open_page, made, axe, kind):
    page = open_page(made(kind)[1], width=360)
    page.evaluate(_UNFOLD)
    assert overflow(page) == []
    assert axe(page) == []
    page.emulate_media(color_scheme="dark")
    assert axe(page) == []


def test_every_figure_is_printed(open_page, made):
    trend, path = made("moving")
    page = open_page(path)
    paper = " ".join(" ".join(printed(page)).split())
    titles = page.locator("figcaption").evaluate_all("all => all.map(e => e.firstChild.data)")
    assert len(titles) == len(trend.record["watched"]) + 1  # and PSI
    assert [title for title in titles if title not in paper] == []
    assert paper.count("2026-01-05") > len(titles)


def test_figures_have_gaps_where_nothing_is_known_and_fit_a_phone(open_page, made):
    """Looks 2 is not defined, and months are missing before look 6: three lines."""
    page = open_page(made("moving")[1])
    lines = page.locator('[id="roc_auc"] svg path.curve')
    assert lines.count() == 3
    picture = page.locator('[id="roc_auc"] svg')
    assert picture.get_attribute("viewBox").startswith("0 0 760 ")
    page.set_viewport_size({"width": 360, "height": 800})
    page.locator('[id="roc_auc"] svg[viewBox^="0 0 400 "]').wait_for()  # until it is drawn again
    assert lines.count() == 3


def test_figures_and_tables_are_saved(open_page, made):
    trend, path = made("moving")
    page = open_page(path)
    saved = {}
    for kind in ("CSV", "SVG", "PNG"):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Save as {kind}: ROC AUC", exact=True).click()
        saved[kind] = download.value
    assert saved["CSV"].suggested_filename == "roc_auc.csv"
    table = saved["CSV"].path().read_text()
    assert f'"{show(trend.results["2026-01-05"].roc_auc.value)}"' in table
    assert '"+' in table  # a number with its sign stays one, without an apostrophe before it
    assert "'" not in table
    assert saved["SVG"].path().read_text().startswith("<svg")
    assert saved["PNG"].path().read_bytes().startswith(b"\x89PNG")
