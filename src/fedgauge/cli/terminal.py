"""What commands print: tables, warnings and errors; which files they may overwrite."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

import fedgauge as fg
from fedgauge.cli.options import STDOUT
from fedgauge.escaping import printable

if TYPE_CHECKING:
    from fedgauge.data.row_checks import RowSummary
    from fedgauge.site import Cost

_WIDEST = 1000  # characters, more than a row of names and digests has


class Screen(Console):
    """Where commands print: text moves, hides and styles nothing, whoever wrote it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, soft_wrap=True, emoji=False, **options)

    def render_str(self, text: str, **look: Any) -> Text:
        """Text as it is laid out, of cells and titles of tables too."""
        return super().render_str(printable(text), **look)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """All that is printed, also what came past `render_str`; in letters that the stream has."""
        for segment in super().render(renderable, options):
            text = printable(segment.text).encode(self.encoding, "backslashreplace")
            told = segment._replace(text=text.decode(self.encoding))
            yield segment if segment.is_control else told


screen = Screen()
stderr = Screen(stderr=True)

# What the library calls its options, and what they are called here.
_AS_OPTIONS = {
    "positive=...": "--positive LABEL",
    "Use an axis that covers them": "Cover them with --range LO HI (one scale for all clients)",
    "axis='two-round' finds it": "--axis two-round finds it",
    "outside='clip'": "--clip",
    'outside="clip"': "--clip",
    "Examples(y_true, y_score, subject=...)": "--subject COLUMN",
    "Raise min_survivors above max_colluding": "Use more clients",
    "min_survivors must be at most clients": "--min-survivors must be at most --clients",
    "Add clients or lower cohort.min_survivors": "Add files, or plan with --min-survivors",
    "(separator=...)": "(--separator)",
    "(decimal=...)": "(--decimal)",
    "(encoding=...)": "(--encoding)",
    "To flip again, name another file": "To flip again, name another file with --flips",
    "Raise min_survivors.": "Raise --min-survivors.",
    "Invite more, or lower min_survivors": (
        "Those are invited that the site file (--site) approves: `fedgauge site trust` adds one. "
        "Or plan with a lower --min-survivors"
    ),
    "smaller min_cell": "smaller --min-cell",
    "max_per_unit is for": "--max-per-unit is for",
    "Leave score_sums out": "Leave out --score-sums",
    "leave the score sums out": "leave out --score-sums",
    "widen the range": "widen --range",
    "low must be a finite number": "--range takes finite numbers",
    "high must be a finite number": "--range takes finite numbers",
    "such as (16, 16)": "such as 16x16",
    "Say only='roc_auc'": "Say --only roc_auc",
    "mechanism='histogram'": "--mechanism histogram",
    "needs DistributedDP with": "needs --privacy ddp and",
    ", unit='label' and neighbours='flip'": "",
    "Use LocalDP": "Use --privacy ldp",
    "Use DistributedDP": "Use --privacy ddp",
    "wants noise: DistributedDP": "wants noise, --privacy ddp",
    "Make one with EvaluationPlan.for_reports": "Make one with `fedgauge plan --privacy ldp`",
    "with EvaluationPlan.for_reports": "with `fedgauge plan --privacy ldp`",
    "with EvaluationPlan.for_histogram": "with `fedgauge plan`",
    "themselves (fedgauge apply, Calibrator.transform)": "themselves with `fedgauge apply`",
    "Fit to the scores as they were counted: result.with_calibrator(None).calibrator(...)": (
        "Name the file of the result as it was counted"
    ),
    "fit another: result.calibrator('auto')": "fit another: `fedgauge calibrate --method auto`",
    "Name the new one (column=...), or put it in the place of the scores": (
        "Name the new one with --column-out, or use --replace"
    ),
    "name it, such as at=0.5": "name it, such as --want recall@0.5=0.02",
    "metric must be roc_area_error, expected_calibration_error or": "--want is for roc, ece or",
    "leave out at, or": "leave it out, or",
    "privacy must be DistributedDP or LocalDP for": "--want needs --privacy ddp or ldp for",
    "Use more bins, or ask for": "Use more --bins, or --want",
    "the plan has a table whose small cells cannot be merged (min_cell)": (
        "small cells of what --also counts cannot be merged. Leave it out, use noise (--privacy "
        "ddp), or --min-cell 0, which sites may refuse"
    ),
    "Leave crossed out": "Leave out --crossed",
    "also must name each once": "--also names each once",
    'pairs must be a list of two of the models each, such as [("new", "old")]': (
        "--pair names two of the models, such as new,old"
    ),
    "Leave out pairs and also, or use DistributedDP": (
        "Leave out --pair and --also, or use --privacy ddp"
    ),
    "without groups. Leave them out": "without groups. Leave out --score-sums",
    "Say which: result.select(model=...)": "Choose one, as with `fedgauge show FILE --model NAME`",
    'Say which, result.select(label=...), or take an average: result.macro("roc_auc")': (
        "Choose one, as with `fedgauge show FILE --class NAME`"
    ),
    "y_true": "the label column",
    "y_score": "the score column",
}
# The same for commands that count by a plan which somebody else made.
_AS_PLANNED = {
    "Name the positive label (positive=...)": (
        "The plan calls 1 positive and 0 negative. Check the label column; {relabel}"
    ),
    "Check which label counts as positive (positive=...)": (
        "Check which label the plan calls positive (`fedgauge plan --positive LABEL`)"
    ),
    "Use an axis that covers them, or outside='clip' to count them in the end bins": (
        "Convert them, or ask for a plan whose axis covers them"
    ),
    "axis='two-round' finds it": "a plan of two rounds finds it (`fedgauge plan --scores unknown`)",
}
# An error begins with the parameter whose value it is about: mostly an option of the same name.
_PARAMETER = re.compile(
    r"^(epsilon|delta|parties|auc|examples|positive_rate|level|quantiles|max_per_unit|min_survivors|"
    r"max_colluding|min_cell|not_after)(?= (?:must|cannot|is for) )"
)
_NOISE = re.compile(r"noise=['\"](polya|skellam|discrete-gaussian)['\"]")
_RATE = re.compile(r"^(fpr|recall|precision)(?= must )")
_SETTING = re.compile(r"\b(min_survivors|min_cell) = (?=\d)")
_TREE = re.compile(r"\btree \((\d+(?:, \d+)*),?\)")
T = TypeVar("T")


def with_progress(work: Callable[[], T], doing: str = "Counting scores") -> T:
    """Do the work, with a sign of life where somebody watches."""
    if screen.quiet or not stderr.is_terminal:
        return work()
    with stderr.status(doing):
        return work()


@contextmanager
def readable_errors(*, by_plan: bool = False) -> Iterator[None]:
    """One line on stderr, and the error's exit code; `by_plan` as for :func:`command`."""
    try:
        yield
    except fg.FedgaugeError as error:
        fail(as_planned(str(error)) if by_plan else error, error.exit_code)
    except MemoryError:
        fail("not enough memory. Use fewer --bins.", 1)


def as_planned(told: str) -> str:
    """What the library says of rows, with remedies for who counts by somebody else's plan."""
    from fedgauge.data.row_checks import RELABEL

    for name, remedy in _AS_PLANNED.items():
        told = told.replace(name, remedy.format(relabel=RELABEL[:-1]))
    return told


def fail(reason: object, code: int) -> NoReturn:
    """Say why in one line, and end."""
    stderr.print(f"fedgauge: {as_options(str(reason))}")
    raise typer.Exit(code)


def as_options(reason: str) -> str:
    """An error of the library in one line, in words of the command line."""
    told = " ".join(reason.split())
    for name, option in _AS_OPTIONS.items():
        told = told.replace(name, option)
    told = _PARAMETER.sub(lambda found: _option(found[1]), told)
    told = _NOISE.sub(r"--noise \1", told)
    told = _RATE.sub(lambda found: f"--at-{found[1]}", told)
    told = _SETTING.sub(lambda found: f"{_option(found[1])} ", told)
    return _TREE.sub(lambda found: f"--tree {found[1].replace(', ', 'x')}", told)


def _option(parameter: str) -> str:
    return f"--{parameter.replace('_', '-')}"


def warn(message: Warning | str, *_: object, **__: object) -> None:
    """Say a warning in one line, without a place in the code."""
    stderr.print(f"fedgauge: warning: {message}")


def note(message: str) -> None:
    """Say in one line what could be better, and is no fault."""
    stderr.print(f"fedgauge: note: {message}")


def say_counted(seen: Sequence[RowSummary]) -> None:
    """Show a site's operator what its rows came to."""
    for counted in seen:
        screen.print(f"Counted {counted.in_words}")


def someone_is_there() -> bool:
    """Whether somebody can be asked, as in no script."""
    return sys.stdin.isatty()


def require_consent(costs: str, *, yes: bool) -> None:
    """Go on only if whoever runs the command says so, knowing what it costs."""
    if yes:
        return
    if not someone_is_there():
        raise fg.ExchangeError(f"{costs} To do it anyway, add --yes.")
    warn(costs)
    if not typer.confirm("Do it anyway?"):
        raise typer.Exit(1)


def print_result(
    result: fg.Evaluation | fg.LabelAuc, told: str | None = None, *, to: Console | None = None
) -> None:
    """Print the verdict; who asks for quiet still hears why not to rely on it."""
    if not screen.quiet:
        (to or screen).print(told or str(result))
    elif result.caution is not None:
        warn(result.caution)


def plain_table() -> Table:
    """A table without lines, and what is to know about it below."""
    return Table(
        box=None, pad_edge=False, header_style="bold", caption_justify="left", caption_style=""
    )


def span(ends: tuple[float | None, float | None]) -> str:
    """From low to high; nothing where there are no ends."""
    from fedgauge.metrics.estimate import show

    low, high = ends
    if low is None or high is None or (low, high) == (-math.inf, math.inf):
        return ""
    return f"{show(low)} to {show(high)}"


def with_interval(estimate: fg.Estimate | None, *, below: bool = False) -> str:
    """A number with its interval, next to it or below; a star marks one that is rough."""
    from fedgauge.metrics.estimate import show

    if estimate is None:
        return "undefined"
    mark = "*" if estimate.caution else ""
    between = "\n" if below else "  "
    return f"{show(estimate.value)}{between}{span((estimate.low, estimate.high))}{mark}"


def print_whole(table: Table) -> None:
    """Print a table whose lines may be longer than the screen is wide: nothing is cut off."""
    options = screen.options.update(max_width=_WIDEST)
    table.width = Measurement.get(screen, options, table).maximum
    screen.print(table, crop=False)


def price(cost: Cost) -> str:
    """A cost as an officer reads it."""
    from fedgauge.privacy.models import chance

    if cost.is_exact_sum:
        return "one exact sum"
    return f"epsilon {cost.epsilon:.12g}, delta {chance(cost.delta) if cost.delta else 0}"


def epsilon_of(cost: Cost) -> str:
    """A price in one word."""
    return "exact" if cost.is_exact_sum else f"{cost.epsilon:g}"


# Kinds of files that commands write, and the options that name them.
_KINDS = {
    "json": ("result", "--json"),
    "html": ("report", "--html"),
    "report": ("report", "--out"),
    "plots": ("plot", "--plots"),
    "plan": ("plan", "--out"),
    "second": ("plan of a second round", "--out"),
    "calibrator": ("map", "--out"),
    "roster": ("roster", "--output"),
    "trend": ("trend", "--out"),
}


def refuse_to_replace(**paths: Path | None) -> None:
    """Refuse, before any work, to write over files that are not of the kind to be written.

    Kinds are those of `_KINDS`, and `rows`: these are never written over, as no file of rows can be
    told from somebody's data.
    """
    for name, path in paths.items():
        if path is None or path == STDOUT:
            continue
        if name == "rows":
            if path.exists():
                raise fg.InputError(
                    f"{path} exists, and rows are not overwritten. Name another place with --out, "
                    "or move that file away."
                )
            continue
        kind, option = _KINDS[name]
        files = [path]
        if name == "plots":
            from fedgauge.plots.figures import NAMES, OF_SLICES

            files = [path / plot for plot in (*NAMES, *OF_SLICES)]
        for file in files:
            try:
                # What is no file is refused where it is written; empty ones hold nothing to lose.
                replaces = file.is_file() and file.stat().st_size > 0 and not _is_one(kind, file)
            except OSError as error:
                raise fg.RecordError(f"cannot write {file}: {error.strerror}.") from None
            if replaces:
                raise fg.InputError(
                    f"{file} exists and is no {kind} of fedgauge, so it is not overwritten. Name "
                    f"another place with {option}, or move that file away."
                )


def _is_one(kind: str, path: Path) -> bool:
    if kind == "plot":
        from fedgauge.plots.figures import is_plot

        return is_plot(path)
    if kind == "report":
        from fedgauge.report import is_report

        return is_report(path)
    if kind == "trend":
        from fedgauge.monitoring.page import is_trend_page
        from fedgauge.monitoring.trend_file import is_trend

        return is_trend_page(path) if path.suffix == ".html" else is_trend(path)
    return any(_reads(read, path) for read in _readers(kind))


def _readers(kind: str) -> tuple[Callable[[Path], object], ...]:
    """What reads files of a kind, and fails at others."""
    if kind == "result":
        return fg.Evaluation.from_json, fg.LabelAuc.from_json
    if kind == "plan":
        return (fg.EvaluationPlan.load,)
    if kind == "map":
        return (fg.Calibrator.from_json,)
    if kind == "roster":
        from fedgauge.vertical.files import Roster, read_file

        return (lambda path: Roster.from_bytes(read_file(path)),)
    from fedgauge.local.rounds import SecondPlan

    return (SecondPlan.load,)


def _reads(read: Callable[[Path], object], path: Path) -> bool:
    try:
        read(path)
    except fg.FedgaugeError:
        return False
    return True
