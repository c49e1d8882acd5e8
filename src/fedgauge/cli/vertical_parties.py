"""`vertical` between parties: `roster`, `assign`, `check`, `answer` and `result`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

import fedgauge as fg
from fedgauge import storage
from fedgauge.cli.command import command
from fedgauge.cli.options import (
    HERE,
    Delta,
    FileOptions,
    HintRate,
    Model,
    NoiseKind,
    NoiseOption,
    Positive,
    ScoreOption,
    SiteOption,
    TreeOption,
    make_tree,
    refuse_given,
)
from fedgauge.cli.terminal import (
    fail,
    price,
    print_result,
    refuse_to_replace,
    say_counted,
    screen,
    warn,
    with_progress,
)
from fedgauge.data.columns import floats_of
from fedgauge.data.row_checks import ID, RowSummary, ids_in, scores_in
from fedgauge.errors import located
from fedgauge.keys import key_to_text
from fedgauge.plan.explain import brief
from fedgauge.site import Site
from fedgauge.vertical.answers import LabelAnswer, Preview, answer_alone, conclude_alone, preview
from fedgauge.vertical.files import (
    RankTotals,
    Roster,
    RosterBins,
    Totals,
    assign_bins,
    assign_ranks,
    check_rosters,
    read_file,
)
from fedgauge.vertical.joining import Unscored
from fedgauge.vertical.label_party import NamedLabels

if TYPE_CHECKING:
    from fedgauge.arrays import Floats
    from fedgauge.privacy import AnyPrivacyModel

    AnyAssignment = RosterBins[Totals] | RosterBins[RankTotals]

_ENDING = ".roster"
_USELESS = 0.02  # error of the AUC, as `fedgauge plan` judges it
_GUESSED_RATE = 0.2  # as bins are placed where nothing is hinted
_LEAST_SUM = 3  # parties, below which a sum hides nobody
_OF_SUMS = {"min_survivors", "max_colluding"}


class PairKind(StrEnum):
    """What each party can send for the AUC alone."""

    ADAPTIVE = "adaptive"
    ORTHOGONAL = "orthogonal"
    LAPLACE_GLOBAL = "laplace-global"
    LAPLACE_LOCAL = "laplace-local"
    GAUSSIAN = "gaussian"


@dataclass(frozen=True, kw_only=True)
class KeyColumns(FileOptions):
    """What names the examples of a label party."""

    key: Annotated[str | None, typer.Option("--id", help="Column of the id.")] = None
    score: Annotated[
        str | None,
        typer.Option(help="Instead of --id, if this party scored its examples itself."),
    ] = None

    @property
    def column(self) -> str:
        """The one column that is named."""
        if (self.key is None) == (self.score is None):
            raise fg.InputError(
                "name one column: of ids (--id) or, where this party scored its examples itself, "
                "of scores (--score)."
            )
        return self.key or self.score or ""


@dataclass(frozen=True, kw_only=True)
class AnswerColumns(KeyColumns):
    """Where the labels of an answer are, and what names them."""

    label: Annotated[str, typer.Option(help="Column of the true label.")]

    def rows(self, file: Path, bins: Path) -> NamedLabels:
        """The labels of a file, by the bins that this party was sent."""
        return NamedLabels(
            str(file), self.label, self.column, str(bins), self.score is not None, **self.dialect
        )


@command()
def roster(
    file: Annotated[Path, typer.Argument(help="CSV, TSV (also .gz) or Parquet of labels.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the roster.")],
    few_values: Annotated[
        bool,
        typer.Option(
            "--few-values", help="These are scores, even if their few values look like labels."
        ),
    ] = False,
    site_file: SiteOption = HERE,
    *,
    columns: KeyColumns,
) -> None:
    """Label party: sign a list of the ids of the examples it has labels for.

    Labels are not read. With --score it lists sorted scores instead of ids, for parties that score
    their own examples.

    Examples:
      fedgauge vertical roster bought.csv --id user --site shop-a/site.toml --output shop-a.roster
      fedgauge vertical roster scored.csv --score p --site shop-a/site.toml --output shop-a.roster
    """
    column, dialect = columns.column, columns.dialect
    refuse_to_replace(roster=output)
    site = Site.from_toml(site_file)
    if columns.score is None:
        refuse_given({"few_values"}, "{} would do nothing with --id. Leave it out.")
        ids = ids_in(file, key=column, separator=dialect["separator"], encoding=dialect["encoding"])
        with located(str(file)):
            made = Roster.of_ids(ids, site.key)
    else:
        scores = scores_in(file, score=column, **dialect)
        with located(str(file)):
            made = Roster.of_scores(scores, site.key, few_values=few_values)
    made.keep(site)
    _write(output, made.to_bytes())
    if made.has_few_values and not few_values:
        warn(
            f"column {column!r} has few distinct values, and the roster shows how many examples "
            "have each: make sure that it holds scores before you send it."
        )
    what = f"{made.examples:,} {'scores' if made.is_scored else 'ids'}, sorted"
    screen.print(f"Saved {output}: {what}, signed by {site.name}")
    screen.print(
        f"Its readers see column {column!r}. No other column was read, so it holds no label."
    )
    then = "gathers scores" if made.is_scored else "scores these examples"
    screen.print(f"Send it to whoever {then}.")


@dataclass(frozen=True, kw_only=True)
class AssignOptions(FileOptions):
    """How examples get their bins, and what each label is promised."""

    panel: ClassVar[str] = "Bins and privacy"

    key: Annotated[str | None, typer.Option("--id", help="Column of the id.")] = None
    score: ScoreOption = None
    client_scored: Annotated[
        bool, typer.Option("--client-scored", help="The scores are in the rosters, not in a file.")
    ] = False
    model: Annotated[
        Model,
        typer.Option(
            "--privacy",
            help="ddp: noise on counts. ldp: labels flipped at random, once.",
        ),
    ] = Model.DDP
    epsilon: Annotated[float, typer.Option(help="Privacy budget of one label.")]
    mechanism: Annotated[
        PairKind | None,
        typer.Option(help="For the AUC only: two noisy numbers from each party, without a sum."),
    ] = None
    delta: Delta = None
    noise: NoiseOption = NoiseKind.POLYA
    positive_rate: HintRate = None
    positive: Positive = None
    tree: TreeOption = None
    min_survivors: Annotated[
        int | None,
        typer.Option(help=r"Fewest parties in the sum. \[default: all, so none may drop out]"),
    ] = None
    max_colluding: Annotated[
        int, typer.Option(help="Most parties that may collude with a reader.")
    ] = 1

    def privacy(self) -> AnyPrivacyModel:
        """What each label is promised; options that it has no use for are refused."""
        if self.model is Model.SA:
            raise fg.PlanError(
                "an exact sum would show a label that is alone in its bin. Use --privacy ddp or "
                "ldp."
            )
        if self.model is Model.LDP:
            if self.client_scored:
                raise fg.PlanError(
                    "flips go by id, and parties that scored their examples themselves name none. "
                    "Use --privacy ddp."
                )
            idle = {*_OF_SUMS, "delta", "noise", "mechanism", "tree"}
            refuse_given(idle, "{} would do nothing with flipped labels. Leave it out.")
            return fg.LocalDP(self.epsilon, unit="label")
        if self.mechanism is not None:
            idle = {*_OF_SUMS, "noise", "tree", "positive_rate"}
            why = "{} would do nothing with --mechanism, which has no bins and its own noise."
            refuse_given(idle, f"{why} Leave it out.")
        gaussian = self.mechanism is PairKind.GAUSSIAN
        return fg.DistributedDP(
            self.epsilon,
            delta=self.delta,
            noise="discrete-gaussian" if gaussian else self.noise.value,
            unit="label",
            neighbours="flip",
        )

    def cohort(self, parties: int) -> fg.Cohort | None:
        """Who must take part; None leaves it to what follows from one or two parties."""
        if parties < _LEAST_SUM:
            refuse_given(
                _OF_SUMS,
                "{} would do nothing with one or two label parties, since each adds all of the "
                "noise. Leave it out.",
            )
            return None
        least = parties if self.min_survivors is None else self.min_survivors
        if least > parties:
            raise fg.PlanError(f"min_survivors must be at most the {parties} parties there are.")
        if least < _LEAST_SUM:
            raise fg.PlanError(
                f"min_survivors must be at least {_LEAST_SUM}: a party takes part in no smaller "
                "sum."
            )
        return fg.Cohort(least, self.max_colluding)

    def assign(
        self, held: dict[bytes, Roster], known: tuple[pa.Array, Floats] | None
    ) -> AnyAssignment:
        """The bins or ranks of the examples on the rosters, by their ids and scores if known."""
        privacy, cohort = self.privacy(), self.cohort(len(held))
        if self.mechanism is not None:
            return assign_ranks(known, held, privacy, self.mechanism.value, positive=self.positive)
        return assign_bins(
            known,
            held,
            privacy,
            cohort=cohort if privacy.needs_cohort else None,
            tree=make_tree(self.tree),
            positive_rate=self.positive_rate,
            positive=self.positive,
        )


@command(usual="files output key score client_scored epsilon model site_file quiet")
def assign(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="SCORES ROSTERS...",
            help="CSV, TSV (also .gz) or Parquet of scores, then the rosters of all parties.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A new folder, for the plan and the bins.")
    ],
    site_file: SiteOption = HERE,
    *,
    options: AssignOptions,
) -> None:
    """Scorer: assign a bin to each example on the rosters; writes a plan, and bins for each party.

    Parties are the peers in the site file. The edges of the bins, and how many examples each party
    has in them, stay beside the site file, for the result. One or two parties answer without a sum.
    So do parties whose labels are flipped (--privacy ldp) or that send the AUC only (--mechanism).

    Examples:
      fedgauge vertical assign scores.csv *.roster --id user --score p --epsilon 1 --output bins
      fedgauge vertical assign *.roster --client-scored --epsilon 1 --output bins
      fedgauge vertical assign scores.csv *.roster --id user --score p --epsilon 1 --mechanism \
      adaptive --output ranks
    """
    site = Site.from_toml(site_file)
    scores, rosters = _inputs(files, options)
    held = _by_party(rosters, site)
    options.privacy()  # refuses before anything is read
    _refuse_folder(output)
    options.cohort(len(held))
    if scores is None:
        _tell_units(held, site)
    known = None if scores is None else _known(scores, held, site)
    assigned = with_progress(lambda: options.assign(held, known), "Assigning bins")
    expected = _expected(assigned, options.positive_rate)
    kept = assigned.totals.keep(site)
    _save(assigned, output, site)
    useless = expected.noise > _USELESS
    if useless:
        warn(
            f"noise and bins are expected to move the AUC by {expected.noise:.2g}, and one in "
            "twenty times by more than twice as much: such a result is of little use. It takes "
            "more examples or a larger --epsilon."
        )
    _say_who(assigned, held, site)
    if not useless:
        noise, sampling = expected
        enough = "noise hardly adds to that" if noise < sampling / 2 else "more examples would help"
        screen.print(
            f"The AUC is expected to be off by {noise:.2g} through noise and bins, next to "
            f"{sampling:.2g} through so many examples: {enough}."
        )
    _say_next(assigned, output, site, kept)


def _inputs(files: list[Path], options: AssignOptions) -> tuple[fg.IdTable | None, list[Path]]:
    key, score = options.key, options.score
    if options.client_scored:
        if key is not None or score is not None:
            raise fg.InputError(
                "with --client-scored the scores are in the rosters. Leave out --id and --score."
            )
        return None, files
    first, *rosters = files
    if first.suffix == _ENDING:
        raise fg.InputError(
            f"the first file is that of scores, and {first} is a roster. Name the scores first; "
            "where parties scored their examples themselves: --client-scored."
        )
    if key is None or score is None:
        raise fg.InputError("name the columns of the scores' file: --id COLUMN --score COLUMN.")
    if not rosters:
        raise fg.InputError(
            "there are no rosters. Each label party makes one with `fedgauge vertical roster`. "
            "Name them after the file of scores."
        )
    return fg.IdTable(first, id=key, value=score, **options.dialect), rosters


def _known(scores: fg.IdTable, held: dict[bytes, Roster], site: Site) -> tuple[pa.Array, Floats]:
    """Ids and scores, unless they and the rosters cannot belong together."""
    ids, values = scores.read(numbers=True)
    check_rosters(held)
    if not any(each.is_scored for each in held.values()):
        _tell_mismatch(held, ids, site)
    return ids, floats_of(values)


def _by_party(paths: list[Path], site: Site) -> dict[bytes, Roster]:
    held: dict[bytes, Roster] = {}
    for path in paths:
        with located(str(path)):
            read = Roster.from_bytes(read_file(path))
            if read.party not in site.peers:
                raise fg.SiteError(
                    f"unknown party: no peer in {site.path} has the key that signed it. If you "
                    f"know whose it is: fedgauge site trust NAME {key_to_text(read.party)}"
                )
            if read.party in held:
                raise fg.InputError(f"{site.peers[read.party]} has two rosters. Name one.")
        held[read.party] = read
    return held


def _tell_mismatch(held: dict[bytes, Roster], scored: pa.Array, site: Site) -> None:
    """Refuse ids that cannot be right, and say where more would match if written alike."""
    known = scored.cast(ID)
    lost = [each.keys.filter(pc.invert(pc.is_in(each.keys, known))) for each in held.values()]
    told = Unscored(
        parties=[site.peers[party] for party in held],
        sizes=np.array([each.examples for each in held.values()]),
        scored=known,
        ids=pa.concat_arrays(lost),
        party=np.repeat(np.arange(len(lost)), [len(ids) for ids in lost]),
    ).told()
    if told is not None and "would have" in told:
        warn(told)


def _tell_units(held: dict[bytes, Roster], site: Site) -> None:
    """Say where some parties send probabilities and others, say, percent: such scores mix badly."""
    within = {
        party: bool(each.values[0] >= 0 and each.values[-1] <= 1)
        for party, each in held.items()
        if each.is_scored
    }
    if len(set(within.values())) > 1:
        beyond = ", ".join(site.peers[party] for party, fits in within.items() if not fits)
        warn(
            f"scores of {beyond} go beyond 0 to 1, and those of the others do not. Results are "
            "wrong unless all use one model and one unit: ask about percent and logits."
        )


class _Errors(NamedTuple):
    """Of the AUC: what noise and bins add, and what comes of which examples there are."""

    noise: float
    sampling: float


def _expected(assigned: AnyAssignment, positive_rate: float | None) -> _Errors:
    """What the result will be worth, from what is public."""
    from fedgauge.vertical.bins import predicted

    plan, totals, parties = assigned.plan, assigned.totals, len(assigned.bins)
    rate = _GUESSED_RATE if positive_rate is None else positive_rate
    if isinstance(totals, Totals):
        examples = sum(sum(by_bin) for _, by_bin in totals.by_party)
        if not plan.privacy.flips_labels:
            there = predicted(
                *(plan.privacy, plan.terms.sum_cohort, plan.tree),
                parties=parties,
                examples=examples,
                positive_rate=rate,
            )
            return _Errors(there.roc_auc_error, there.roc_auc_sampling)
    else:
        examples = totals.examples
    privacy = plan.privacy
    if isinstance(privacy, fg.LocalDP):
        privacy = fg.DistributedDP(privacy.epsilon, unit="label", neighbours="flip")
    assert isinstance(privacy, fg.DistributedDP)  # noqa: S101  (no exact sums are assigned)
    outlook = fg.plan_vertical(
        parties=parties, examples=max(examples, parties, 2), privacy=privacy, positive_rate=rate
    )
    paired = plan.paired
    added = outlook.flipped if paired is None else outlook.alike[paired.mechanism]
    return _Errors(added, outlook.sampling)


def _refuse_folder(folder: Path) -> None:
    """Refuse a folder that holds something: bins of two evaluations are easily confused."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise fg.InputError(f"{folder} exists and is no empty folder. Name a new one.")
    except OSError as error:
        raise fg.RecordError(f"cannot use {folder}: {error.strerror}.") from None


def _save(assigned: AnyAssignment, folder: Path, site: Site) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fg.RecordError(f"cannot make folder {folder}: {error.strerror}.") from None
    assigned.plan.save(folder / "plan.toml")
    for party, bins in assigned.bins.items():
        _write(folder / f"{site.peers[party]}.bins", bins.to_bytes())


def _write(path: Path, data: bytes) -> None:
    """Write what one other party may read: its owner hands it over."""
    try:
        storage.replace(path, data)
    except OSError as error:
        raise fg.RecordError(f"cannot write {path}: {error.strerror}.") from None


def _say_who(assigned: AnyAssignment, held: dict[bytes, Roster], site: Site) -> None:
    plan, bins = assigned.plan, assigned.plan.axis.bins
    shape = f" (tree {'x'.join(map(str, plan.tree))})" if len(plan.tree) > 1 else ""
    parties = "1 party" if len(held) == 1 else f"{len(held)} parties"
    places = f"in {bins:,} bins{shape}" if plan.paired is None else "by rank, for the AUC alone"
    screen.print(f"Labels at {parties}, {places}")
    for party, each in held.items():
        missing = assigned.unscored[party]
        told = f", {missing:,} of them without a score: left out" if missing else ""
        screen.print(f"  {site.peers[party]}: {each.examples:,} examples{told}")
    if assigned.unlabelled:
        lost = assigned.unlabelled
        scores = "1 score is" if lost == 1 else f"{lost:,} scores are"
        screen.print(f"{scores} on no roster: left out")


def _say_next(assigned: AnyAssignment, folder: Path, site: Site, kept: Path) -> None:
    names = [site.peers[party] for party in assigned.bins]
    what, within = "bins", "where bins lie, and how many examples each party has in them"
    if assigned.plan.paired is not None:
        what, within = "ranks", "how the ranks of each party lie"
    lines = [
        f"Kept {kept}: {within}; the result needs it",
        f"Saved {folder / 'plan.toml'}, for all, and for each party alone its {what}:",
        *(f"  {name}: {folder / f'{name}.bins'}" for name in names),
    ]
    plan, own = shlex.quote(str(folder / "plan.toml")), shlex.quote(str(site.path))
    column = "--score" if any(bins.scores for bins in assigned.bins.values()) else "--id"
    if assigned.plan.is_alone:
        how = "labels flipped once" if assigned.plan.privacy.flips_labels else "all of the noise"
        lines += [
            f"Without a secure sum each answers alone, with {how}:",
            f"  fedgauge vertical answer {plan} BINS LABELS --label COLUMN {column} COLUMN "
            "--output ANSWER --site site.toml",
            "  (an answer cannot be changed: `vertical check` shows beforehand what would count)",
            "Then, from their answers:",
            f"  fedgauge vertical result {plan} ANSWERS --site {own}",
        ]
    else:
        lines += ["Then:", f"  fedgauge exchange start {plan} RUN --site {own}"]
    screen.print("\n".join(lines))


PlanFile = Annotated[Path, typer.Argument(help="The plan, as the scorer sent it.")]
BinsFile = Annotated[Path, typer.Argument(help="The bins or ranks that this party was sent.")]
LabelsFile = Annotated[
    Path, typer.Argument(metavar="LABELS", help="CSV, TSV (also .gz) or Parquet of labels.")
]


def register(app: typer.Typer) -> None:
    """Add these commands to those for labels apart from scores."""
    for each in (roster, assign, check, answer, result):
        app.command()(each)


@command(by_plan=True)
def check(
    plan: PlanFile,
    bins: BinsFile,
    file: LabelsFile,
    site_file: SiteOption = HERE,
    *,
    columns: AnswerColumns,
) -> None:
    """Label party, before it answers: check the plan against the site file, and the labels.

    An answer cannot be changed later, even if the file was wrong. Here nothing is charged, sent or
    stored. The output describes rows, so keep it at this site. Exit code 1 if the site would not
    answer.

    Example:
      fedgauge vertical check plan.toml a.bins bought.csv --label y --id user
    """
    with _as_input():
        named = columns.rows(file, bins)
        site, loaded = Site.from_toml(site_file), fg.EvaluationPlan.load(plan)
        seen = preview(site, loaded, named)
    _say_preview(seen, site, loaded, file)
    for sentence in seen.warnings:
        warn(sentence)
    if seen.refusal is not None:
        raise typer.Exit(1)


def _say_preview(seen: Preview, site: Site, plan: fg.EvaluationPlan, file: Path) -> None:
    allowed = "The site file allows it" if seen.refusal is None else f"Refuses it: {seen.refusal}"
    lines = [
        allowed if seen.refusal else f"{allowed}, at a cost of {price(site.cost(plan))}.",
        f"{file} would count as {seen.counted.in_words}",
        "Nothing was charged or stored. This describes rows: keep it at this site.",
    ]
    if seen.stood:
        lines.append(
            "This site answered the plan before, and that answer stands, whatever this file holds."
        )
    elif seen.refusal is None:
        lines.append(
            "This site can answer, but the warnings above apply, and an answer cannot be changed."
            if seen.warnings
            else "This site can answer."
        )
    screen.print("\n".join(lines))


@command(by_plan=True)
def answer(
    plan: PlanFile,
    bins: BinsFile,
    file: LabelsFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the answer.")],
    flips: Annotated[
        Path | None,
        typer.Option(
            help=r"File of the flipped labels. \[default: labels.flips beside the site file]"
        ),
    ] = None,
    site_file: SiteOption = HERE,
    *,
    columns: AnswerColumns,
) -> None:
    """Label party: answer a plan alone, with all of the noise or with labels flipped once.

    It shows what will leave, charges the ledger, and only then reads labels. Only this screen shows
    how many rows there were, and how many were positive or odd. The site keeps its answer: run
    again, it gives the same one and charges nothing. `vertical check` shows beforehand what would
    count.

    Example:
      fedgauge vertical answer plan.toml a.bins bought.csv --label y --id user --output a.answer
    """
    seen: list[RowSummary] = []
    with _as_input():
        named = columns.rows(file, bins)
        site, loaded = Site.from_toml(site_file), fg.EvaluationPlan.load(plan)
        if flips is not None and not loaded.privacy.flips_labels:
            raise fg.InputError("the plan flips no labels. Leave out --flips.")

        def explain() -> None:
            screen.print(f"{brief(loaded)}\n")

        made = answer_alone(
            site, loaded, named, output, flips=flips, ready=explain, tell=warn, show=seen.append
        )
    if made.stood:
        warn(
            "this site answered the plan before, and that answer stands, whatever its file holds "
            f"now. {output} has the same bytes, and nothing more is charged."
        )
    say_counted(seen)
    screen.print(f"Saved {output}: send it to the scorer")


@command(by_plan=True)
def result(
    plan: PlanFile,
    answers: Annotated[list[Path], typer.Argument(help="The answers of the parties.")],
    without_missing: Annotated[
        bool,
        typer.Option("--without-missing", help="Continue without parties that did not answer."),
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Save the result to this file.")] = None,
    site_file: SiteOption = HERE,
) -> None:
    """Scorer: compute the result from the parties' answers.

    The result shows its readers the edges of the bins and how many examples are in each. It is
    unsigned: no party confirms it, so readers must trust the scorer.

    Example:
      fedgauge vertical result plan.toml *.answer --site platform/site.toml --json r.json
    """
    with _as_input():
        refuse_to_replace(json=json)
        site, loaded = Site.from_toml(site_file), fg.EvaluationPlan.load(plan)
        given = [LabelAnswer.load(path) for path in answers]
        made = with_progress(
            lambda: conclude_alone(site, loaded, given, without_missing=without_missing),
            "Measuring",
        )
        if json is not None:  # the budget is spent: kept, whatever it shows
            made.to_json(json)
        if isinstance(made, fg.Evaluation):
            _require_curves(made)
    print_result(made)
    if json is not None:
        screen.print(f"Saved {json}, unsigned")


def _require_curves(made: fg.Evaluation) -> None:
    """A result without curves is an error here, which a caution may explain."""
    try:
        made.roc_curve()
    except fg.UndefinedMetric:
        if made.caution is not None:
            warn(made.caution)
        raise


@contextmanager
def _as_input() -> Iterator[None]:
    """What another party sent is input here: a wrong file is the caller's to mend."""
    try:
        yield
    except fg.ProtocolError as error:
        fail(error, fg.InputError.exit_code)
