"""The pages on metrics name every metric there is, with the formula that computes it."""

import math
import re
import runpy
from functools import cached_property
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import fedgauge as fg
from fedgauge.estimation.counts import PooledCounts, Released
from fedgauge.estimation.distribution import Estimator
from fedgauge.metrics.estimate import metrics_of
from fedgauge.metrics.multiclass import ClassConfusion
from fedgauge.metrics.thresholds import Outcomes
from fedgauge.results.metrics import Metrics
from fedgauge.results.record import Record

DOCS = Path(__file__).parents[1] / "docs"
generated = runpy.run_path(str(DOCS / "_ext" / "generated.py"))
GUIDE = (DOCS / "metrics.md").read_text()
FORMULAS = generated["fill"]((DOCS / "metric-formulas.md").read_text())
TEXT = GUIDE + FORMULAS
# What an attribute may return without being a metric, a curve or a band.
PLAIN = (
    fg.EvaluationPlan,
    fg.PrivacyStatement,
    fg.Signature,
    fg.Evaluation,
    Estimator,
    Record,
    PooledCounts,
    Released,
    Any,  # its proof, as plain data
    int,
    float,
    type(None),
    int | None,
)


def measures(kind: type) -> list[str]:
    """Public attributes of a class that say something about the model."""
    found = []
    for name in dir(kind):
        attribute = getattr(kind, name)
        if isinstance(attribute, property):
            attribute = attribute.fget
        elif isinstance(attribute, cached_property):
            attribute = attribute.func
        if not name.startswith("_") and get_type_hints(attribute)["return"] not in PLAIN:
            found.append(name)
    return found


@pytest.mark.parametrize(
    ("holder", "name"),
    [("result", name) for name in measures(fg.Evaluation)]
    + [("at", name) for name in measures(fg.AtThreshold)],
)
def test_every_metric_curve_and_band_is_named(holder, name):
    assert re.search(rf"`{holder}\.{name}\b", TEXT), f"the pages lack {holder}.{name}"


def test_metrics_are_told_from_the_rest():
    """Else the test above could pass by finding nothing."""
    found = measures(fg.Evaluation)
    assert {"roc_auc", "partial_auc", "gain_curve", "prg_band", "threshold_for"} <= set(found)
    assert not {"plan", "privacy", "level", "positives", "record", "to_json"} & set(found)
    assert {"precision", "f_beta", "confusion_matrix"} <= set(measures(fg.AtThreshold))
    for kind in (fg.Evaluation, fg.AtThreshold):
        assert {row.name for row in metrics_of(kind)} < set(measures(kind))


def section(call):
    """What the page of formulas says of a call, up to the next heading."""
    (found,) = re.findall(
        rf"^### .*`{re.escape(call)}[`(].*\n\n((?:(?!#).*\n)+)", FORMULAS, flags=re.MULTILINE
    )
    return found


@pytest.mark.parametrize("row", metrics_of(Metrics), ids=lambda row: row.name)
def test_every_row_has_its_formula_and_source(row):
    said = section(f"result.{row.name}")
    assert said.startswith(row.meaning)
    assert "\n- Formula: " in said
    assert "\n- Source: " in said


@pytest.mark.parametrize("name", ["roc", "pr", "det", "prg", "gain"])
def test_every_curve_has_its_bands(name):
    said = section(f"result.{name}_curve")
    assert f"`result.{name}_band()`" in FORMULAS
    assert all(f"\n- {label}: " in said for label in ("Formula", "Simultaneous", "Pointwise"))


@pytest.mark.parametrize("row", metrics_of(fg.AtThreshold), ids=lambda row: row.name)
def test_the_formula_that_is_shown_is_the_one_computed(row):
    """Outcomes drawn at random go through the words and through the row."""
    (line,) = re.findall(rf"^\| `at\.{row.name}` \| (.*) \|$", FORMULAS, flags=re.MULTILINE)
    meaning, _, undefined, source = line.split(" | ")
    assert row.undefined.removesuffix(" it") in undefined
    assert source == row.source
    words = meaning.rpartition(": ")[2].removesuffix(".")
    times = re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", words)
    rng = np.random.default_rng(1)
    for counts in rng.integers(1, 50, size=(20, len(Outcomes._fields))).tolist():
        outcomes = Outcomes(*counts)
        names = outcomes._asdict() | {"n": sum(outcomes), "sqrt": math.sqrt}
        computed = eval(times, names)  # noqa: S307 - words of our own
        assert computed == pytest.approx(row.formula.value(outcomes), abs=1e-12)


def test_a_class_table_has_its_rows():
    for row in metrics_of(ClassConfusion):
        assert f"| `result.confusion_matrix().{row.name}` | {row.meaning} |" in FORMULAS


def test_sources_are_listed_and_cited():
    body, _, sources = FORMULAS.partition("## Sources")
    body += GUIDE + (DOCS / "calibration.md").read_text()
    name = r"([A-Z][\w-]+)"
    cited = set(re.findall(rf"{name}(?: et al\.| & {name})?(?:'s)? \(?((?:19|20)\d\d)", body))
    lines = [line for line in sources.splitlines() if line]
    of = {
        (first, second, year): [
            line
            for line in lines
            if line.endswith(f", {year}.") and first in line and second in line
        ]
        for first, second, year in cited
    }
    assert [source for source, found in of.items() if not found] == []
    assert {line for found in of.values() for line in found} == set(lines)
