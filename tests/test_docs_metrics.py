"""The metrics reference names every metric there is."""

import re
from functools import cached_property
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import fedgauge as fg
from fedgauge.estimation.counts import PooledCounts, Released
from fedgauge.estimation.distribution import Estimator
from fedgauge.metrics.estimate import metrics_of
from fedgauge.results.record import Record

TEXT = (Path(__file__).parents[1] / "docs" / "metrics.md").read_text()
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
    assert re.search(rf"`{holder}\.{name}\b", TEXT), f"docs/metrics.md lacks {holder}.{name}"


def test_metrics_are_told_from_the_rest():
    """Else the test above could pass by finding nothing."""
    found = measures(fg.Evaluation)
    assert {"roc_auc", "partial_auc", "gain_curve", "prg_band", "threshold_for"} <= set(found)
    assert not {"plan", "privacy", "level", "positives", "record", "to_json"} & set(found)
    assert {"precision", "f_beta", "confusion_matrix"} <= set(measures(fg.AtThreshold))
    for kind in (fg.Evaluation, fg.AtThreshold):
        assert {row.name for row in metrics_of(kind)} < set(measures(kind))


def test_every_source_cited_is_listed():
    body, sources = TEXT.split("## Sources")
    name = r"([A-Z][A-Za-z-]+)"
    cited = set(re.findall(rf"{name}(?: et al\.| & {name})?(?:'s)? \(?((?:19|20)\d\d)", body))
    assert len(cited) >= 20
    for first, second, year in cited:
        lines = [line for line in sources.splitlines() if line.endswith(f", {year}.")]
        assert any(first in line and second in line for line in lines), f"{first} {second} {year}"
