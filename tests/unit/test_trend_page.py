"""The page of a trend: numbers are the record's, words are escaped, nothing is fetched."""

import base64
import hashlib
import json
import re

import numpy as np
import pytest
from commands import run

import fedgauge as fg
from fedgauge.measures.intervals import show
from fedgauge.plots.page.trend import trend_page

HOSTILE = "</script><img src=x onerror=alert(1)>"
AXIS = fg.Axis.uniform(32, outside="clip")


def week(seed, signal=1.6, rows=1500, share=0.3, **options):
    rng = np.random.default_rng(seed)
    y = rng.random(rows) < share
    s = 1 / (1 + np.exp(1 - signal * y - rng.normal(size=rows)))
    sites = {f"site {n}": (y[n::3], s[n::3]) for n in range(3)}
    return fg.evaluate(sites, axis=AXIS, seed=seed, **options)


def page_of(trend, name="weekly"):
    text = trend_page(trend, name=name)
    block = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return text, json.loads(block[1])


def figures(data):
    return {each["id"]: each for each in data["figures"]}


WEEKS = {f"w{n}": week(n, 1.6 if n < 5 else 0.9) for n in range(1, 7)}
TREND = fg.Trend.of(WEEKS, at=[0.5])
TEXT, DATA = page_of(TREND)


def test_every_number_is_that_of_the_record_as_the_library_prints_it():
    shown = figures(DATA)
    record = TREND.record
    names = [each["name"] for each in record["looks"]]
    assert DATA["looks"] == names
    for row in record["rows"]:
        if row["metric"] in ("psi", "psi_expected"):
            told = shown["psi"]["rows"][names.index(row["look"])]
            number = told[row["metric"] == "psi_expected"]
            assert number == ("" if row["value"] is None else show(row["value"]))
            continue
        at = "" if row["threshold"] is None else f"-at-{row['threshold']:g}"
        value, ends, by, z, least, alarm = shown[row["metric"] + at]["rows"][
            names.index(row["look"])
        ]
        assert value == ("undefined" if row["value"] is None else show(row["value"]))
        assert ends == ("" if row["low"] is None else f"{show(row['low'])} to {show(row['high'])}")
        assert by == ("" if row["moved"] is None else f"{row['moved']:+.4f}")
        assert z == ("" if row["z"] is None else f"{row['z']:+.2f}")
        assert least == ("" if row["least"] is None else f"{row['least']:.4f}")
        assert alarm == (row["alarm"] or "")


def test_figures_are_drawn_from_the_values_and_alarms_are_marked():
    auc = figures(DATA)["roc_auc"]
    assert auc["value"] == pytest.approx([each.roc_auc.value for each in WEEKS.values()], rel=1e-4)
    assert auc["low"] == pytest.approx([each.roc_auc.low for each in WEEKS.values()], rel=1e-4)
    alarms = {each.look for each in TREND.alarms if each.metric == "roc_auc"}
    assert {DATA["looks"][at] for at in auc["alarms"]} == alarms != set()
    low, high = auc["reach"]
    assert low < min(auc["low"])
    assert max(auc["high"]) < high


def test_words_come_first_and_are_those_of_the_library():
    verdict = TREND.verdict
    assert f"{verdict[0].upper()}{verdict[1:]}." in TEXT
    assert TREND.promise in TEXT
    for alarm in TREND.alarms:
        assert str(alarm) in TEXT
    assert TEXT.index(verdict[1:]) < TEXT.index("Over all thresholds</h2>")


def test_only_its_own_style_and_script_run():
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', TEXT)
    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", TEXT, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r'(src|href)="(?!#)', TEXT)


def test_names_are_text():
    trend = fg.Trend.of({HOSTILE: WEEKS["w1"], "b": WEEKS["w2"]}, skipped={HOSTILE: "no"})
    text, data = page_of(trend, name=HOSTILE)
    assert "<img" not in text
    assert data["looks"][0] == HOSTILE


def test_days_stand_where_they_are_and_long_times_without_a_look_are_gaps():
    days = ["2026-01-05", "2026-01-12", "2026-01-19", "2026-03-30", "2026-04-06"]
    looks = dict(zip(days, list(WEEKS.values())[:5], strict=True))
    _, data = page_of(fg.Trend.of(looks, when={day: day for day in days}))
    assert data["places"] == [0, 7, 14, 84, 91]
    assert data["gaps"] == [3]
    assert data["axis"] == "Day"
    assert data["ticks"]["wide"][0] == [0, "2026-01-05"]
    assert data["ticks"]["narrow"][-1] == [91, "2026-04-06"]


def test_times_of_files_stand_within_their_days():
    when = {"a": "2026-01-05T06:00:00+00:00", "b": "2026-01-05T18:00:00+00:00"}
    _, data = page_of(fg.Trend.of(dict(zip("ab", WEEKS.values(), strict=False)), when=when))
    assert data["places"] == [0, 0.5]


def test_looks_without_days_stand_one_after_the_other():
    assert DATA["places"] == [0, 1, 2, 3, 4, 5]
    assert DATA["ticks"]["wide"] == [[n, f"w{n + 1}"] for n in range(6)]
    long = fg.Trend.of({"a name that is rather long": WEEKS["w1"]})
    assert page_of(long)[1]["ticks"]["wide"] == [[0, "a name tha\u2026"]]


def test_one_look_has_a_page():
    text, data = page_of(fg.Trend.of({"a": WEEKS["w1"]}))
    assert "nothing to compare it with yet" in text
    assert figures(data)["roc_auc"]["rows"][0][2:] == ["", "", "", ""]


def test_a_look_that_is_not_defined_is_a_gap():
    one_class = week(7, share=0.0)
    _, data = page_of(fg.Trend.of({"a": WEEKS["w1"], "b": one_class, "c": WEEKS["w2"]}))
    auc = figures(data)["roc_auc"]
    assert auc["value"][1] is None
    assert auc["rows"][1][0] == "undefined"


def test_the_budget_is_drawn_where_it_adds_up():
    noisy = {str(n): week(n, privacy=fg.DistributedDP(1.0)) for n in range(2)}
    hidden = week(9, rows=30, privacy=fg.DistributedDP(0.1))
    text, data = page_of(fg.Trend.of({**noisy, "hidden": hidden}))
    budget = figures(data)["budget"]
    assert budget["value"] == pytest.approx([1.0, 2.0, 2.1])
    assert [row[2] for row in budget["rows"]] == ["1.0000", "2", "2.1000"]
    assert "Looks in no test" in text
    assert "budget" not in figures(DATA)


def test_command_and_method_write_it_and_overwrite_nothing_else(tmp_path):
    for name, result in WEEKS.items():
        result.to_json(tmp_path / f"{name}.json")
    path = tmp_path / "trend.html"
    for _ in range(2):  # its own file is written again
        done = run("trend", tmp_path, "--at", "0.5", "-o", path, "--quiet")
        assert done.exit_code == 0, done.output
    by_method = tmp_path / "other.html"
    fg.read_trend(tmp_path, at=[0.5]).to_html(by_method, name="trend")
    assert (
        page_of(TREND)[1]["figures"]
        == json.loads(re.search(r'id="data">(.*?)</script>', by_method.read_text(), re.DOTALL)[1])[
            "figures"
        ]
    )
    WEEKS["w1"].to_html(tmp_path / "report.html")
    done = run("trend", tmp_path, "-o", tmp_path / "report.html")
    assert done.exit_code == 2
    assert "is no trend of fedgauge" in done.stderr
    assert run("report", tmp_path / "w1.json", "-o", path).exit_code == 2
