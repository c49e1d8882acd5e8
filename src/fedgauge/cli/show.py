"""`show` and `verify`: the verdict, metrics, thresholds, calibration, and who signed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import typer
from rich.table import Table
from rich.text import Text

import fedgauge as fg
from fedgauge.cli.command import command
from fedgauge.cli.options import STDOUT, At, AtLevel, NoShrink, Plots
from fedgauge.cli.show_slices import slice_tables
from fedgauge.cli.slice_options import Margin, PartOptions
from fedgauge.cli.terminal import (
    fail,
    plain_table,
    print_result,
    refuse_to_replace,
    screen,
    span,
    warn,
    with_interval,
    with_progress,
)
from fedgauge.metrics.estimate import metrics_of, show_count
from fedgauge.metrics.estimate import show as show_number
from fedgauge.results.summary import mapping, verdict
from fedgauge.vertical.auc import is_auc

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
        table.add_row(
            within,
            show_count(count),
            show_number(predicted),
            show_number(observed),
            span((low, high)),
        )
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
        yield f"Tests of calibration: {', '.join(told)}."


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
            show_number(curve.net_benefit[i]),
            span((curve.low[i], curve.high[i])),
            show_number(curve.treat_all[i]),
            f"{show_number(curve.advantage[i])}  {ahead}",
        )
    ranges = ", ".join(f"{low:.3g} to {high:.3g}" for low, high in curve.useful)
    table.caption = (
        "Unit: true positives per example. Treating nobody is worth 0.\nBetter than both at "
        f"{curve.level * 100:g}%, each threshold by itself: {ranges or 'no threshold'}."
    )
    return table


def _right(*titles: str) -> Table:
    table = plain_table()
    for title in titles:
        table.add_column(title, justify="right")
    return table


def _population(level: float) -> str:
    return f"population, {level * 100:g}%"


_COLUMNS = 2  # thresholds side by side
_WIDE = 80  # characters that they need
_HIDDEN = "undefined: noise hides the count that it divides by."
_BETWEEN = "The threshold lies inside a bin: intervals include every split of that bin."


@dataclass(frozen=True, kw_only=True)
class ThresholdOptions:
    """Thresholds by value or by what they should do, and how sure intervals are."""

    panel: ClassVar[str] = "Thresholds and intervals"

    at: At = None
    at_fpr: Annotated[
        list[float] | None,
        typer.Option(help="At a threshold with at most this false positive rate."),
    ] = None
    at_recall: Annotated[
        list[float] | None, typer.Option(help="At a threshold with at least this recall.")
    ] = None
    at_precision: Annotated[
        list[float] | None, typer.Option(help="At a threshold with at least this precision.")
    ] = None
    level: AtLevel = None

    def at_level(self, result: fg.Evaluation) -> fg.Evaluation:
        """The result with intervals of the level that was asked for."""
        return result if self.level is None else result.at_level(self.level)

    def points(self, result: fg.Evaluation) -> list[tuple[str, fg.AtThreshold]]:
        """The metrics at each point asked for, by its name in words; none for several scores."""
        rates = {"fpr": self.at_fpr, "recall": self.at_recall, "precision": self.at_precision}
        if result.is_several:
            if any(rates.values()):
                raise fg.InputError(
                    "--at-fpr, --at-recall and --at-precision choose a threshold for one score, "
                    "and here are several. Choose one, as with `fedgauge show FILE --class NAME` "
                    "or --model NAME, or name thresholds with --at."
                )
            return []
        points = [("", result.at_threshold(within(at, result))) for at in self.at or ()]
        for name, wanted in rates.items():
            sign = "<=" if name == "fpr" else ">="
            for rate in wanted or ():
                asked: dict[str, Any] = {name: rate}
                points.append((f"{name} {sign} {rate:g}", result.threshold_for(**asked)))
        return points

    def for_slices(self, result: fg.Evaluation) -> list[float]:
        """The thresholds that slices are shown at: the same for all of them."""
        points = self.points(result)
        if result.is_several:
            return [within(threshold, result) for threshold in self.at or ()]
        return [at.threshold for _, at in points]


def within(threshold: float, result: fg.Evaluation) -> float:
    """A threshold of which the counts say something."""
    axis = result.released.axis
    low, high = (axis.low, axis.high) if result.mapped_by is None else (0.0, 1.0)
    if not math.isfinite(threshold) or low <= threshold <= high:
        return threshold
    raise fg.InputError(
        f"--at {threshold:g} lies outside the axis of this result, {low:g} to {high:g}, so "
        "nothing is known there. Name a threshold within it."
    )


def threshold_tables(
    points: Sequence[tuple[str, fg.AtThreshold]], result: fg.Evaluation
) -> Iterator[Table]:
    """Metrics at thresholds, a few of them side by side."""
    columns = _COLUMNS if screen.width >= _WIDE else 1
    for start in range(0, len(points), columns):
        part = points[start : start + columns]
        table = plain_table()
        table.add_column(f"value and {result.level * 100:g}% interval")
        for reason, at in part:
            title = f"at {at.threshold!r}" if at.on_edge else f"at {at.threshold:.6g}"
            table.add_column(f"{title}\n{reason}" if reason else title, justify="right")
        estimates = [at.as_dict() for _, at in part]
        for row in metrics_of(fg.AtThreshold):
            if row.listed:
                table.add_row(row.title, *(with_interval(each[row.name]) for each in estimates))
        table.add_row()
        exactly = all(at.on_edge for _, at in part)
        table.add_row(Text(_counted(result, exactly=exactly), "bold"))
        for name in ("tp", "fp", "fn", "tn"):
            counts = [getattr(at.confusion_matrix, name) for _, at in part]
            table.add_row(_OUTCOMES[name], *map(_count, counts))
        notes = [] if exactly else [_BETWEEN]
        if result.pooled.noisy and any(None in each.values() for each in estimates):
            notes.append(_HIDDEN)
        cautions = {e.caution for each in estimates for e in each.values() if e and e.caution}
        table.caption = "\n".join([*notes, *(f"* rough: {why}" for why in sorted(cautions))])
        yield table


_OUTCOMES = {
    "tp": "true positives",
    "fp": "false positives",
    "fn": "false negatives",
    "tn": "true negatives",
}


def _count(count: fg.Estimate) -> str:
    value, low, high = map(show_count, (count.value, *count.bounds))
    return value if low == high else f"{value}  {low} to {high}"


def _counted(result: fg.Evaluation, *, exactly: bool) -> str:
    """What the rows of counts show: they have no interval."""
    if result.pooled.noisy:
        return f"count, pooled data at {result.level * 100:g}%"
    return "count" if exactly else "count, pooled data"


@dataclass(frozen=True, kw_only=True)
class KeyOptions:
    """Whose signatures are known."""

    panel: ClassVar[str] = "Signature"

    key: Annotated[
        list[str] | None,
        typer.Option(help="Public key of a coordinator you know; may be repeated."),
    ] = None
    site_file: Annotated[
        Path | None,
        typer.Option(
            "--site",
            help="Your site file: its own key and those of its coordinators are known keys. A "
            "report also shows its remaining budget.",
        ),
    ] = None

    def read(self) -> tuple[dict[bytes, str], fg.Site | None]:
        """Keys that were named and those that a site file names, and that site."""
        from fedgauge.keys import key_from_text

        site = None if self.site_file is None else fg.Site.from_toml(self.site_file)
        known = {key_from_text(text): "" for text in self.key or ()}
        if site is not None:
            known |= {site.key.public: site.name, **site.coordinators}
        return known, site


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """What else is shown of a result, and how its counts are read."""

    panel: ClassVar[str] = "Reading"

    no_shrink: NoShrink = False
    calibrator: Annotated[
        Path | None,
        typer.Option(help="Show what the numbers would be after this calibrator."),
    ] = None
    plots: Plots = None
    margin: Margin = None
    calibration: Annotated[
        bool,
        typer.Option("--calibration", help="Also show calibration and the decision curve."),
    ] = False

    def applied(self, result: fg.Evaluation, path: Path) -> fg.Evaluation:
        """The result as it is to be read; `path` names it in errors."""
        if self.no_shrink:
            if not result.is_shrunk:
                raise fg.InputError(
                    f"--no-shrink would do nothing: values in {path} are not smoothed. Leave it "
                    "out."
                )
            result = result.with_estimator(msgspec.structs.replace(result.estimator, shrink=False))
        if self.calibrator is not None:
            result = result.with_calibrator(fg.Calibrator.from_json(self.calibrator))
            if result.plan.calibrator is not None:
                warn(
                    f"{path} has scores that were mapped ({result.plan.calibrator.method}) before "
                    f"they were counted, and {self.calibrator} maps them again. To judge the "
                    "first map, leave out --calibrator."
                )
        return result


@command(usual="path at level group calibration plots site_file quiet")
def show_result(
    path: Annotated[Path, typer.Argument(help="A result saved as JSON.")],
    *,
    thresholds: ThresholdOptions,
    reading: ReadingOptions,
    keys: KeyOptions,
    part: PartOptions,
) -> None:
    """Print a saved result: the verdict, who signed it, all metrics, and those at thresholds.

    Examples:
      fedgauge show r.json
      fedgauge show r.json --site site.toml
      fedgauge show r.json --at 0.5 --at-fpr 0.01 --level 0.9
      fedgauge show r.json --calibration --plots pictures
      fedgauge show r.json --calibrator map.json
      fedgauge show r.json --group women --at 0.5
    """
    refuse_to_replace(plots=reading.plots)
    if is_auc(path):
        if (thresholds, reading, part) != (ThresholdOptions(), ReadingOptions(), PartOptions()):
            raise fg.InputError(
                f"{path} holds the AUC only: it has no curves, thresholds, slices or other "
                "levels. Leave out the options that ask for them."
            )
        auc = fg.LabelAuc.from_json(path)  # which nobody signs
        print_result(auc, f"{auc}\nsignature:  {auc.signature.in_words}")
        return
    whole = fg.Evaluation.from_json(path)
    signature = whole.signature.by(keys.read()[0])
    result = reading.applied(thresholds.at_level(part.of(whole)), path)
    told, tables = with_progress(lambda: _measured(result, thresholds, reading), "Measuring")
    if reading.plots is not None:
        from fedgauge.plots import save_plots

        folder = reading.plots
        with_progress(
            lambda: save_plots(result, folder, name=path.stem, signature=signature), "Drawing"
        )
    print_result(result, told)
    screen.print(f"signature          {signature.in_words}")
    if result.estimator != fg.Aligned():  # which no signature covers
        screen.print(f"read by            {result.estimator!r}")
    for table in tables:
        screen.print()
        screen.print(table)
    if signature.state == "broken":
        fail(f"{path} is not what was signed: {signature.reason}. Get it again.", 1)


def _measured(
    result: fg.Evaluation, thresholds: ThresholdOptions, reading: ReadingOptions
) -> tuple[str, list[Table | str]]:
    """A result in words, and its metrics over all thresholds and at those that are wanted."""
    tables: list[Table | str] = []
    if not result.is_several:  # of which each has metrics of its own
        tables = [metrics_table(result), *threshold_tables(thresholds.points(result), result)]
    tables += calibration_tables(result) if reading.calibration else ()
    tables += slice_tables(result, thresholds.for_slices(result), reading.margin)
    return verdict(result, slices=False), tables


@command()
def verify(
    path: Annotated[Path, typer.Argument(help="A result saved as JSON.")], *, keys: KeyOptions
) -> None:
    """Check that a result is what a coordinator you know signed and its sites confirmed.

    Exit code 0 only then; 1 if it was edited, is unsigned, or is signed by another key.

    Examples:
      fedgauge verify result.json --site site.toml
      fedgauge verify result.json --key ed25519:h0uVvOFdqJGDl1LNIzz1lbqkZ1V3Dbzc5BsCPXxlKVtWq6mQ
    """
    known, site = keys.read()
    if is_auc(path):
        fail(f"{path} {_unverified(fg.LabelAuc.from_json(path).signature)}", 1)
    result = fg.Evaluation.from_json(path)
    signature = result.signature.by(known)
    if signature.state != "verified":
        fail(f"{path} {_unverified(signature)}", 1)
    through = mapping(result)
    if screen.quiet:
        if through is not None:
            warn(f"the numbers in {path} are for scores mapped by {through}.")
        if result.caution is not None:
            warn(result.caution)
        return
    screen.print(signature.in_words)
    if site is not None:
        screen.print(f"sites    {_named(signature.members, site)}")
    screen.print(f"key      {signature.key}")
    screen.print(f"plan     {result.plan.digest}")
    mapped = "" if through is None else f", of scores mapped by {through}"
    screen.print(
        f"numbers  read by {result.estimator!r} at level {result.level:g}{mapped}; the signature "
        "is under the counts"
    )
    if signature.model is not None:
        screen.print(f"model    {signature.model}")
    if result.caution is not None:
        screen.print(f"caution  {result.caution}")


def _named(members: Sequence[str], site: fg.Site) -> str:
    """Who confirmed, by the names in a site file: a coordinator could make up others."""
    from fedgauge.keys import key_to_text

    peers = {key_to_text(key): name for key, name in site.peers.items()}
    named = sorted(peers[member] for member in members if member in peers)
    strangers = len(members) - len(named)
    return ", ".join(
        [*named, *([f"{strangers:,} that {site.path.name} does not name"] if strangers else [])]
    )


def _unverified(signature: fg.Signature) -> str:
    if signature.state == "broken":
        return (
            f"is BROKEN: {signature.reason}. Do not use its numbers. Get the file again from its "
            "coordinator."
        )
    if signature.simulated:
        return "is simulated: no sites took part that could have signed or confirmed it."
    if signature.state == "unsigned":
        return (
            "is not signed: anybody can have made or edited it. Results between sites are signed; "
            "get the file from its coordinator. Those of local reports, and of label parties that "
            "answered alone, are not."
        )
    if signature.compared:
        return (
            f"is signed by {signature.key}, which is none of the keys that you know. Ask the "
            "coordinator for its key, over a channel on which you know it."
        )
    return (
        f"is signed by {signature.key}, but you did not say whose key you expect. Name your site "
        "file (--site), or the coordinator's key (--key), as it told you."
    )


def read_out(
    result: fg.Evaluation,
    thresholds: ThresholdOptions,
    *,
    name: str,
    json: Path | None,
    plots: Path | None,
    html: Path | None = None,
    margin: float | None = None,
) -> tuple[str, list[Table | str]]:
    """A new result in words and tables; saves what is to be saved."""
    try:
        require_curves(result)
        hidden = None
    except fg.NoSignal as error:
        hidden = error
    if json is not None:  # also without curves: the budget is spent
        save_json(result, json)
    if html is not None:
        result.to_html(html)
    if hidden is not None:
        raise hidden
    if plots is not None:
        from fedgauge.plots import save_plots

        save_plots(result, plots, name=name)
    points = threshold_tables(thresholds.points(result), result)
    tables = [*points, *slice_tables(result, thresholds.for_slices(result), margin)]
    return verdict(result, slices=False), tables


def require_curves(result: fg.Evaluation) -> None:
    """Refuse a result without any curve: of several classes or models one is enough."""
    parts = (result,) if not result.is_several else result.slices
    for part in parts:
        try:
            part.roc_curve()
        except fg.UndefinedMetric:
            if part is parts[-1]:
                raise
        else:
            return


def save_json(result: fg.Evaluation | fg.LabelAuc, path: Path) -> None:
    """Save a result to a file, or the same bytes to stdout for another program to read."""
    if path == STDOUT:
        typer.echo(result.record.to_json(), nl=False)
    else:
        result.to_json(path)


def metrics_table(result: fg.Evaluation) -> Table:
    """Every metric over all thresholds, with its interval and bounds."""
    noisy = result.privacy.epsilon is not None
    table = plain_table()
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column(f"population, {result.level * 100:g}%", justify="right")
    sure = f", {result.level * 100:g}%" if noisy else ", certain"
    table.add_column(f"pooled data{sure}", justify="right")
    cautions: set[str] = set()
    for row in (row for row in metrics_of(fg.Evaluation) if row.listed):
        try:
            estimate: fg.Estimate = getattr(result, row.name)
        except fg.UndefinedMetric:
            table.add_row(row.title, "undefined")
            continue
        population = span((estimate.low, estimate.high))
        if estimate.caution:
            population += "*"
            cautions.add(estimate.caution)
        told = row.title, show_number(estimate.value), population
        if estimate.plain is None:
            table.add_row(*told, span(estimate.bounds))
        else:  # which the bounds are of
            table.add_row(*told)
            table.add_row("  plain", show_number(estimate.plain), "", span(estimate.bounds))
    table.caption = "\n".join([*_grouped(result), *(f"* rough: {w}" for w in sorted(cautions))])
    return table


def _grouped(result: fg.Evaluation) -> list[str]:
    """What errors of calibration are of, and why plain numbers differ, where there are any."""
    try:
        return [
            f"Errors of calibration are of {result.calibration_curve().rule}.",
            "Other packages print the plain number, which chance keeps above 0 even for right "
            "scores; values are corrected for it.",
        ]
    except fg.UndefinedMetric:
        return []
