"""Calibration on the terminal: what came true of the scores, and what acting on them is worth."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.table import Table

import fedgauge as fg
from fedgauge.cli.terminal import plain_table, span
from fedgauge.measures.intervals import show, show_count

_RISKS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)


def calibration_tables(result: fg.Evaluation) -> Iterator[Table | str]:
    """Tables of calibration and of decisions, or one line that says why there are none."""
    try:
        yield reliability_table(result)
        yield decision_table(result)
    except fg.UndefinedMetric as error:
        yield f"calibration        undefined: {error}"


def reliability_table(result: fg.Evaluation) -> Table:
    """Share of positives against mean score, by groups; and tests whether they agree."""
    curve = result.calibration_curve()
    examples = "about examples" if result.pooled.noisy else "examples"
    table = _right("scores", examples, "mean score", "share positive", _population(curve.level))
    for row in zip(
        *(curve.lower, curve.upper, curve.count, curve.predicted, curve.observed),
        *(curve.low, curve.high),
        strict=True,
    ):
        lower, upper, count, predicted, observed, low, high = map(float, row)
        within = f"{lower:.4f} to {upper:.4f}"
        table.add_row(within, show_count(count), show(predicted), show(observed), span((low, high)))
    table.caption = "\n".join([f"{curve.rule}, of the bins counted.", *_tested(result)])
    return table


def _tested(result: fg.Evaluation) -> Iterator[str]:
    """How often scores that are right look as wrong as these."""
    told = []
    for name, test in (
        ("Hosmer-Lemeshow", result.hosmer_lemeshow),
        ("Spiegelhalter", result.spiegelhalter),
    ):
        try:
            told.append(f"{name} p = {test().p_value:.2g}")
        except fg.UndefinedMetric:
            continue
    if told:
        yield f"Tests that scores are right: {', '.join(told)}."


def decision_table(result: fg.Evaluation) -> Table:
    """Net benefits at a few thresholds, next to treating all; and where the model is useful."""
    curve = result.decision_curve()
    share = result.positives / max(result.positives + result.negatives, 1)
    wanted = np.array([*_RISKS, share])
    near = np.abs(curve.thresholds[:, np.newaxis] - wanted).argmin(axis=0)
    better = f"better than both by, {curve.level * 100:g}%"
    table = _right("threshold", "net benefit", _population(curve.level), "treat all", better)
    for i in np.unique(near):
        ahead = span((curve.advantage_low[i], curve.advantage_high[i]))
        table.add_row(
            f"{curve.thresholds[i]:.4g}",
            show(curve.net_benefit[i]),
            span((curve.low[i], curve.high[i])),
            show(curve.treat_all[i]),
            f"{show(curve.advantage[i])}  {ahead}",
        )
    ranges = ", ".join(f"{low:.3g} to {high:.3g}" for low, high in curve.useful)
    table.caption = (
        "In true positives for each example; treating nobody is worth 0.\n"
        f"Better than both at {curve.level * 100:g}%, each by itself: {ranges or 'no threshold'}."
    )
    return table


def _right(*titles: str) -> Table:
    table = plain_table()
    for title in titles:
        table.add_column(title, justify="right")
    return table


def _population(level: float) -> str:
    return f"population, {level * 100:g}%"
