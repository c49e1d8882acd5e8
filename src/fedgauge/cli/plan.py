"""`plan` and `explain`: choose a plan, price its slices, say what a wanted error takes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import typer
from rich.table import Table

import fedgauge as fg
from fedgauge.cli.command import command
from fedgauge.cli.options import (
    At,
    AxisOptions,
    CalibratorFile,
    HintExamples,
    HintRate,
    MaxColluding,
    Model,
    Positive,
    PrivacyOptions,
    ScoreSums,
    load_map,
    read_lists,
    read_names,
    refuse_given,
)
from fedgauge.cli.slice_options import Also, Crossed, PairOption, SliceOptions
from fedgauge.cli.terminal import refuse_to_replace, screen, warn, with_progress
from fedgauge.plan.task import measured_by

if TYPE_CHECKING:
    from fedgauge.plan.prediction import Prediction
    from fedgauge.plan.task import MeasuredTask, ScoredTask

# What tables are called, by the tag that they have in a plan.
_TABLES = {
    "joint": "pairs of models together",
    "predicted": "confusion",
    "ranked": "ranks",
    "top-score": "top labels",
}
_ADVICE = re.compile(r'DistributedDP\([^,]+, noise="([a-z-]+)", delta=([^)]+)\)')


@dataclass(frozen=True, kw_only=True)
class PlannedParts:
    """What is told apart: names alone, as each site names its own columns."""

    panel: ClassVar[str] = "Groups, classes and models"

    positive: Positive = None
    group: Annotated[
        list[str] | None, typer.Option(help="Groups to tell apart: sex=women,men; may be repeated.")
    ] = None
    crossed: Crossed = False
    classes: Annotated[
        list[str] | None, typer.Option(help="Classes with a score each: flu,cold,well.")
    ] = None
    labels: Annotated[
        list[str] | None, typer.Option(help="Several labels a row, a score each: fever,cough.")
    ] = None
    also: Also = None
    models: Annotated[
        list[str] | None, typer.Option(help="Models that score the same rows: new,old.")
    ] = None
    pair: PairOption = None

    def task(self, *, one_by_one: bool) -> ScoredTask:
        """The task that the names make."""
        if self.classes and self.labels:
            raise fg.PlanError(
                "--classes are those of which a row has one, --labels those of which it may have "
                "several. Use one."
            )
        named = {"classes": self.classes, "models": self.models, "labels": self.labels}
        read: dict[str, tuple[str, ...]] = {}
        for what, texts in named.items():
            option = f"--{what}"
            names = read[what] = read_names(option, ",".join(texts)) if texts else ()
            if any("=" in name for name in names):  # no column could be given to such a name
                bare = ",".join(name.partition("=")[0].strip() for name in names)
                raise fg.PlanError(
                    f"{option} takes names alone, as {option} {bare}: each site names its own "
                    "columns."
                )
            if len(names) == 1 and what != "labels":
                raise fg.PlanError(f"{option} names one. Name at least two, or leave it out.")
        apart = SliceOptions(self.positive, self.crossed, self.also, self.pair, one_by_one)
        return apart.task(groups=read_lists("--group", self.group or ()), **read)


@dataclass(frozen=True, kw_only=True)
class PlannedPrivacy(PrivacyOptions):
    """Which privacy model sites take part under, and who may drop out or collude."""

    privacy: Annotated[
        Model, typer.Option(help="Exact secure sum (sa), distributed DP (ddp) or local DP (ldp).")
    ] = Model.DDP
    min_survivors: Annotated[
        int | None,
        typer.Option(
            help=r"Fewest clients in the sum. \[default: with noise, of four or more, three "
            "quarters; else all]"
        ),
    ] = None
    max_colluding: MaxColluding = 1
    min_cell: Annotated[
        int | None,
        typer.Option(
            help="Smallest count of a class, other than 0, that a bin of the result may show; 0 "
            r"merges nothing. \[default: 10 without noise]"
        ),
    ] = None
    not_after: Annotated[
        str | None,
        typer.Option(
            help="Last day, or moment such as 2026-12-31T18:00:00Z, of the plan's use, in UTC."
        ),
    ] = None

    def survivors(self, clients: int) -> int:
        """Fewest clients in the sum: a late one in four stops nothing, unless told otherwise.

        Exact sums are of all: sites that allow dropouts there are rare.
        """
        if self.min_survivors is not None:
            return self.min_survivors
        if self.privacy is not Model.DDP or clients < _ENOUGH_TO_MISS_ONE:
            return clients
        return max(clients - clients // 4, min(clients, self.max_colluding + 2))


@dataclass(frozen=True, kw_only=True)
class PlannedBins(AxisOptions):
    """What rows are counted in, and what is known and wanted of it."""

    score_sums: ScoreSums = False
    calibrator: CalibratorFile = None
    examples: HintExamples = None
    positive_rate: HintRate = None
    at: At = None
    want: Annotated[
        str | None,
        typer.Option(
            help="The accuracy you need: a ROC Area Error, or half the width of a 95% interval, "
            "such as recall@0.5=0.02 or ece=0.01. Prints what it takes."
        ),
    ] = None


def whose_errors(task: MeasuredTask) -> str:
    """What the errors over all rows are of, after a blank; nothing where there is one score."""
    if len({(s.model, s.label) for s in task.slices}) == 1:
        return ""
    kinds = [task.label_noun] * bool(task.slices[0].label) + ["model"] * bool(task.models)
    return f" of each {' of each '.join(kinds)}"


def errors_to_expect(predicted: Prediction, whose: str) -> Iterator[tuple[str, str]]:
    """Every error by its name: about how large, and between which sizes."""
    for title, mean, ends in _ranges(predicted):
        by = f"{ends} depending on the score distribution" if ends else ""
        yield title, f"{mean:.1e} expected{whose}{by}"


def _ranges(predicted: Prediction) -> Iterator[tuple[str, float, str]]:
    """The name of every error, its mean, and after a comma its range where it has one."""
    titles = ("ROC Area Error", "PR Area Error", "AUC error")
    for title, *sizes in zip(titles, predicted, *predicted.span, strict=True):
        _, low, high = (f"{size:.1e}" for size in sizes)
        yield title, sizes[0], f", {low} to {high}" if low != high else ""


def costs_of_slices(plan: fg.EvaluationPlan) -> Iterator[tuple[str, str]]:
    """What groups cost in error, who shares the budget, and what would have less noise."""
    predicted, task = plan.predicted, measured_by(plan.task)
    for name, errors in () if predicted is None else predicted.groups:
        roc, _, auc = (f"{title} {mean:.1e}{by}" for title, mean, by in _ranges(errors))
        yield f"In a group by {name}", f"{auc}; {roc}; if all groups are equally large"
    if plan.is_noisy and not plan.final.sends_reports:
        parts = list(_parts(plan, task))
        if sum(count for count, _ in parts) > 1:
            shared = ", ".join(f"{count} for {what}" for count, what in parts)
            yield "Budget", f"shared by {sum(count for count, _ in parts)}: {shared}"
    if predicted is not None and predicted.advice is not None:
        yield "Better", _ADVICE.sub(r"--noise \1 --delta \2", predicted.advice)


def _parts(plan: fg.EvaluationPlan, task: MeasuredTask) -> Iterator[tuple[int, str]]:
    """How many counts a row adds to, and what for."""
    tables = Counter(_TABLES[str(table.__struct_config__.tag)] for table in plan.tables)
    if plan.summed.nodes:
        layout = task.layout
        factors = [
            (len(task.models), "models"),
            (layout.scores, {"label": "labels", "class": "classes"}[task.label_noun]),
            (len(layout.groupings) if task.groups else 0, "groupings"),
            (len(plan.tree), "levels"),
        ]
        told = " x ".join(f"{count} {what}" for count, what in factors if count > 1)
        yield task.per_row * len(plan.tree), f"scores ({told})" if told else "scores"
    yield from ((count, what) for what, count in tables.items())


_USELESS = 0.02  # expected error of the AUC; one in twenty is then off by more than 0.05
_ENOUGH_TO_MISS_ONE = 4  # clients
_OFTEN = 0.1  # share of results that are withheld
_CLOSE = 0.07  # as the planner searches
_SHORT = {"roc": "roc_area_error", "ece": "expected_calibration_error", "auc": "roc_auc"}


class Want(NamedTuple):
    """What is wanted: a ROC Area Error, or an interval that reaches so far to either side."""

    within: float
    metric: str
    at: float | None

    @property
    def in_words(self) -> str:
        """After "Enough"."""
        if self.metric == _SHORT["roc"]:
            return f"for a ROC Area Error of {self.within:g}"
        where = "" if self.at is None else f" at {self.at:g}"
        name = "AUC" if self.metric == "roc_auc" else self.metric.replace("_", " ")
        return f"to know the {name}{where} within {self.within:g}"


def read_want(text: str) -> Want:
    """A number, or such as recall@0.5=0.02 and ece=0.01."""
    name, equals, within = text.rpartition("=")
    metric, has_threshold, at = name.partition("@")
    metric = metric.strip().lower().replace("-", "_")
    try:
        if bool(equals) != bool(metric):
            raise ValueError
        wanted = Want(float(within), metric or "roc", float(at) if has_threshold else None)
    except ValueError:
        raise fg.PlanError(
            f"--want is written like 0.001, recall@0.5=0.02 or ece=0.01, got {text!r}."
        ) from None
    return wanted._replace(metric=_SHORT.get(wanted.metric, wanted.metric))


def answer(want: Want, needed: fg.planner.Needs, *, noisy: bool) -> str:
    """Whether there is enough, and what would be."""
    if math.isclose(needed.expected, want.within, rel_tol=_CLOSE):
        return f"Enough {want.in_words}? just about."
    enough = "yes" if needed.expected < want.within else "no"
    if want.metric != _SHORT["roc"]:
        enough += f", within {needed.expected:.2g}"
    rough = "" if needed.caution is None else f" A rough answer: {needed.caution}."
    return f"Enough {want.in_words}? {enough}: {takes(needed, noisy=noisy)}{rough}"


def takes(needed: fg.planner.Needs, *, noisy: bool) -> str:
    """What it takes."""
    epsilon, examples = needed.epsilon, needed.examples
    about = "" if examples is None else f"about {int(float(f'{examples:.2g}')):,} examples"
    if not noisy:
        return f"it takes {about}." if about else "no number of examples is enough with such bins."
    if epsilon is None and not about:
        return "no epsilon and no number of examples is enough with such bins."
    if epsilon is None:
        return (
            "no epsilon that still protects anybody is enough with these examples; it takes "
            f"{about} with this epsilon."
        )
    if not about:
        return (
            f"it takes epsilon {epsilon:.2g} with these examples; more examples alone are not "
            "enough."
        )
    return f"it takes epsilon {epsilon:.2g} with these examples, or {about} with this epsilon."


def warn_of_useless(chosen: fg.EvaluationPlan, known: dict[str, Any]) -> None:
    """Say so where the AUC to expect is too wrong to be of use, and what would be enough."""
    if chosen.predicted is None or chosen.predicted.roc_auc_error <= _USELESS:
        return
    expected = chosen.predicted.roc_auc_error
    low, high = (f"{end.roc_auc_error:.2g}" for end in chosen.predicted.span)
    by = f" ({low} to {high} depending on the score distribution)" if low != high else ""
    enough = "It takes more examples, more bins or a smaller --min-cell."
    if chosen.is_noisy:
        enough = "It takes more examples or a larger --epsilon."
    if chosen.is_noisy and len(chosen.task.slices) == 1:  # of several no more is known
        with suppress(fg.FedgaugeError):  # no answer there: the words stay
            # The AUC is off by no more than the area between the curves.
            asked = {"privacy": chosen.privacy, **known}
            needed = with_progress(lambda: fg.planner.needs(_USELESS, **asked))
            enough = f"For an expected error of {_USELESS:g} {takes(needed, noisy=True)}"
    told = (
        f"the AUC is expected to be off by {expected:.2g}{by}, and in one case out of twenty by "
        "more than twice as much: such a result is of little use."
    )
    if (withheld := chosen.predicted.withheld) >= _OFTEN:
        told = (
            f"in about {withheld:.0%} of such evaluations noise is larger than one of the "
            "classes, so no result is shown."
        )
    warn(f"{told} {enough}")


@command(usual="clients examples positive_rate privacy epsilon group scores want out quiet")
def plan(
    clients: Annotated[int, typer.Option(help="How many clients will take part.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Save the plan (.toml or .json).")
    ] = None,
    *,
    privacy: PlannedPrivacy,
    bins: PlannedBins,
    parts: PlannedParts,
) -> None:
    """Choose axis, tree and noise from public hints, and predict the errors.

    Examples:
      fedgauge plan --examples 50000 --positive-rate 0.1 --clients 40 --epsilon 1 -o plan.toml
      fedgauge plan --examples 50000 --clients 40 --epsilon 0.3 --want 0.001
      fedgauge plan --examples 50000 --clients 40 --privacy sa --want recall@0.5=0.02
      fedgauge plan --examples 50000 --clients 40 --privacy ldp --epsilon 5 --want ece=0.01
      fedgauge plan --examples 50000 --clients 40 --privacy sa --min-cell 20 --at 0.2
      fedgauge plan --examples 50000 --clients 40 --epsilon 1 --not-after 2026-12-31
      fedgauge plan --examples 50000 --clients 40 --epsilon 1 --range -8 8
      fedgauge plan --examples 50000 --clients 40 --epsilon 1 --scores margins
      fedgauge plan --examples 50000 --clients 40 --privacy sa --values 0..10
      fedgauge plan --examples 50000 --clients 40 --epsilon 1 --calibrator map.json
      fedgauge plan --clients 40 --epsilon 1 --group sex=women,men --group age=young,old --crossed
      fedgauge plan --clients 40 --epsilon 1 --classes flu,cold,well --also confusion
      fedgauge plan --clients 40 --epsilon 1 --models new,old
    """
    refuse_to_replace(plan=out)
    cohort = fg.Cohort(privacy.survivors(clients), privacy.max_colluding)
    known = {"clients": clients, "cohort": cohort}
    chosen, enough = _choose(privacy, bins, parts, known)
    if out is not None:
        chosen.save(out)
    task = measured_by(chosen.task)
    hints = fg.planner.check_hints(bins.examples, bins.positive_rate, task)
    screen.print(_plan_table(chosen, *hints, clients=clients))
    if enough is not None:
        screen.print(enough)
    better = bins.exact_values(chosen.axis)
    if better is not None and chosen.axis.low >= 0:  # others are hardly points
        screen.print(f"If scores are whole numbers: {better}")
    if out is not None:
        screen.print(f"Saved {out}")


def _choose(
    privacy: PlannedPrivacy, bins: PlannedBins, parts: PlannedParts, known: dict[str, Any]
) -> tuple[fg.EvaluationPlan, str | None]:
    """The plan, and whether it is enough for what is wanted; warns of what it is no good for."""
    calibrator, model = load_map(bins.calibrator), privacy.model()
    known |= {"examples": bins.examples, "positive_rate": bins.positive_rate}
    known |= {"score_sums": bins.score_sums, "axis": bins.planned(noisy=model.adds_noise)}
    if bins.is_given or bins.is_searching:
        refuse_given({"at"}, "{} moves edges that the planner chooses. Leave it out, or the axis.")
    task = parts.task(one_by_one=model.sends_reports or bins.is_searching)
    wanted = None if bins.want is None else read_want(bins.want)
    if wanted is not None and bins.is_searching:
        raise fg.PlanError(
            "--want is for probabilities, or scores with a --range. Leave out --want or --scores."
        )
    if wanted is not None and len(task.slices) > 1:
        raise fg.PlanError(
            "--want is for one score and all rows. Leave it out: the plan prints the expected "
            "errors of each part."
        )
    edges = [*(bins.at or ()), *(() if wanted is None or wanted.at is None else (wanted.at,))]
    design = {"privacy": model, "min_cell": privacy.min_cell, **known}
    chosen = with_progress(
        lambda: fg.planner.propose(
            task=task,
            at=edges or None,
            scores=None if bins.scores is None else bins.scores.value,
            **design,
        ),
        "Planning",
    )
    chosen = chosen.with_not_after(privacy.not_after).with_calibrator(calibrator)
    enough = None
    if wanted is not None:
        needed = with_progress(
            lambda: fg.planner.needs(wanted.within, metric=wanted.metric, at=wanted.at, **design),
            "Planning",
        )
        enough = answer(wanted, needed, noisy=model.adds_noise)
    warn_of_useless(chosen, known)
    _warn_of_steep_map(chosen)
    return chosen, enough


@command()
def explain(
    path: Annotated[Path, typer.Argument(help="A plan, .toml or .json, or an invitation.fgx.")],
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql",
            metavar="QUERY",
            help="Print what PostgreSQL would run to count this query's label and score inside.",
        ),
    ] = None,
) -> None:
    """Say in plain words what leaves each site under a plan, and what each party can learn.

    For an invitation, also who asks. `fedgauge exchange review` compares it with your site file.

    Examples:
      fedgauge explain plan.toml
      fedgauge explain plan.toml --sql "select y, p from scores"
      fedgauge explain /shared/run-1/invitation.fgx
    """
    from fedgauge.plan.explain import explain as in_words

    if sql is not None:
        _print_sql(path, sql)
    elif path.suffix == ".fgx":
        from fedgauge.engines.review import explain_invitation

        screen.print(explain_invitation(path))
    elif path.is_dir():
        raise fg.PlanError(
            f"{path} is a folder. Name a plan, or the invitation.fgx of an exchange in it."
        )
    else:
        from fedgauge.local.rounds import read_plan

        screen.print(in_words(read_plan(path)))


def _print_sql(path: Path, query: str) -> None:
    from fedgauge.data.queries import counting_query
    from fedgauge.engines.contribution import needs_no_rows
    from fedgauge.histograms.cut_points import CutPoints
    from fedgauge.local.rounds import read_plan

    plan, query = read_plan(path), query.strip().rstrip(";")
    if not query:
        raise fg.InputError('--sql takes a query, such as "select y, p from scores".')
    if not needs_no_rows(plan):
        raise fg.PlanError(
            "under this plan a site reads rows, by its own query as it is: there is no other SQL."
        )
    told = counting_query(query, CutPoints(plan.axis), 0, 1, 2)
    screen.print(told, markup=False, highlight=False, soft_wrap=True)


def _bins(chosen: fg.EvaluationPlan) -> list[tuple[str, str]]:
    """The bins of a plan in words; of two rounds those of both."""
    axis, ends = chosen.axis, f"[{chosen.axis.low:g}, {chosen.axis.high:g}]"
    kinds = {
        "uniform": f"bins of equal width on {ends}",
        "probabilities": f"bins on {ends}, narrower near them",
        "logit": "bins of equal width in log-odds",
        "asinh": "bins that grow with the score",
        "edges": f"bins suited to such scores on {ends}",
        "values": f"known values on {ends}, each a bin of its own",
    }
    told = f"{axis.bins:,} {kinds[axis.kind]}"
    if chosen.task.two is not None:
        two = chosen.task.two
        then = f"at most {two.bins:,} bins of equal depth, found in the first"
        share = f", for {two.share:.0%} of epsilon" if chosen.is_noisy else ""
        share = f", for {two.share:.0%} of the rows" if chosen.final.sends_reports else share
        return [("First round", f"{told}{share}"), ("Second round", then)]
    tree = "one level" if len(chosen.tree) == 1 else f"tree {' x '.join(map(str, chosen.tree))}"
    return [("Axis", told), ("Tree", tree)]


def _instead(chosen: fg.EvaluationPlan) -> str | None:
    """What the other number of rounds would give."""
    predicted = chosen.predicted
    if predicted is None or predicted.instead is None:
        return None
    rounds, bins, errors = predicted.instead
    times = errors.roc_area_error / predicted.roc_area_error
    what = f"{'one round' if rounds == 1 else 'two rounds'} of {bins:,} bins"
    return f"{what} would have {times:.2g} times the ROC Area Error: {errors.roc_area_error:.1e}"


def _plan_table(chosen: fg.EvaluationPlan, examples: int, rate: float, *, clients: int) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    predicted, task = chosen.predicted, measured_by(chosen.task)
    classes = task.label_noun == "class" and task.labels_told[0] is not None
    kind = "of each class" if classes else "positive"
    table.add_row("Planned for", f"about {examples:,} examples, {rate:.3g} of them {kind}")
    for title, words in _bins(chosen):
        table.add_row(title, words)
    if chosen.calibrator is not None:
        table.add_row("Map", f"scores go through {chosen.calibrator.in_words()} first")
    if chosen.min_cell:
        table.add_row("Shown", f"bins merged until each holds 0 or at least {chosen.min_cell}")
    for title, names in chosen.task.told:
        table.add_row(title.capitalize(), names)
    if predicted is not None:
        for title, words in errors_to_expect(predicted, whose_errors(task)):
            table.add_row(title, words)
    instead = _instead(chosen)
    if instead is not None:
        table.add_row("Instead", instead)
    for title, words in costs_of_slices(chosen):
        table.add_row(title, words)
    sender = "Sent for each row" if chosen.final.sends_reports else "Sent by each client"
    table.add_row(sender, f"{chosen.bytes_per_client:,} bytes")
    if chosen.cohort is not None:
        table.add_row("Who is needed", _needed(chosen.cohort.min_survivors, clients))
    if chosen.not_after is not None:
        table.add_row("Not after", chosen.not_after)
    table.add_row("Plan", chosen.digest[:8])
    return table


def _needed(survivors: int, clients: int) -> str:
    """How many clients a result needs, and what it means if they are not there."""
    if survivors < clients:
        return f"{survivors:,} of {clients:,} clients: with fewer there is no result"
    return (
        f"all {clients:,} clients: if one is late, all wait; if one leaves, there is no result, "
        "and what the others have spent is lost"
    )


def _warn_of_steep_map(chosen: fg.EvaluationPlan) -> None:
    """Say so where sites, unless their files say otherwise, refuse the map in an exact sum."""
    from fedgauge.site.policy import Policy

    least = Policy().min_bin_width
    if chosen.calibrator is None or chosen.is_noisy or chosen.least_width >= least:
        return
    warn(
        f"bins of mapped scores are as narrow as {chosen.least_width:.2g} on the original scores, "
        f"and sites refuse exact sums below {least:g} (min_bin_width). Use fewer --bins, or noise."
    )
