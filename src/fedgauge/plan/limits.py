"""What no plan may hold, and how large one may be: judged before anything is built from it."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from fedgauge.errors import AxisError, PlanError
from fedgauge.histograms.axis import MOST_BINS, MOST_POINTS, Axis
from fedgauge.histograms.calibrator import MOST_KNOTS
from fedgauge.histograms.two_round import MOST_COARSE, MOST_FOUND
from fedgauge.plan.task import LabelTask

if TYPE_CHECKING:
    from fedgauge.plan.plan import EvaluationPlan

MOST_MIN_CELL: Final = 1_000_000
NO_SMALL_CELLS: Final = (
    "min_cell is for exact sums: under differential privacy noise hides small cells. Leave it out."
)


def check_rules(plan: "EvaluationPlan") -> None:
    """Refuse a plan that promises, sums or merges what it cannot."""
    _check_apart(plan)
    _check_reported(plan)
    _check_min_cell(plan)


def require_clipping(axis: Axis) -> None:
    """Refuse an axis that refuses scores, where that would leak."""
    if axis.outside != "clip":
        raise PlanError(
            "under differential privacy a client may not refuse scores, since a refusal that "
            'depends on data is a leak. Make the axis with outside="clip".'
        )


def check_unit(plan: "EvaluationPlan") -> None:
    """Refuse a promise for labels where more than them is counted, or the other way round."""
    if plan.privacy.protects_labels != isinstance(plan.task, LabelTask):
        raise PlanError(
            "a promise for labels (unit='label') goes with a task of labels apart from scores, "
            "and no other. Evaluate with fedgauge.evaluate_vertical, or protect examples."
        )


def _check_apart(plan: "EvaluationPlan") -> None:
    """Refuse what needs scores where label parties have none, but bins that they were told."""
    if isinstance(plan.task, LabelTask) and (plan.sum_steps or plan.calibrator is not None):
        raise PlanError(
            "label parties have no scores to sum or to map. Leave out score sums and the map: "
            "whoever scored the examples maps scores before they are given bins."
        )


def _check_reported(plan: "EvaluationPlan") -> None:
    """Refuse tables in local reports, whose noise differs from cell to cell."""
    if plan.privacy.sends_reports and plan.task.tables(plan.axis, noisy=True):
        raise PlanError(
            "local reports are about one score at a time, and not about scores of a row "
            "together. Leave out pairs, paired_brier and also, or use DistributedDP."
        )


def _check_min_cell(plan: "EvaluationPlan") -> None:
    least = plan.min_cell
    if isinstance(least, bool) or not isinstance(least, int):
        raise PlanError(f"min_cell must be a whole number, got {type(least).__name__}.")
    if least == 0:
        return
    if not 2 <= least <= MOST_MIN_CELL:
        raise PlanError(
            f"min_cell must be 0, which merges nothing, or lie between 2 and {MOST_MIN_CELL:,}."
        )
    if plan.privacy.adds_noise:
        raise PlanError(NO_SMALL_CELLS)
    if not all(table.hides_small for table in plan.tables):
        raise PlanError("the plan has a table whose small cells cannot be merged (min_cell).")
    if plan.axis.bins > MOST_POINTS:
        raise PlanError(f"small cells are merged on at most {MOST_POINTS:,} bins. Use fewer.")
    if plan.sum_steps and not math.isfinite(plan.axis.high - plan.axis.low):
        raise PlanError("merged bins are too wide for score sums. Narrow the axis.")


MOST_BYTES: Final = 1 << 23  # holds the most points an axis may list, at 25 bytes each
MOST_LEVELS: Final = 24  # more than halving the most bins takes
_MOST_ROUNDS: Final = 8
_MOST_PER_ROW: Final = 1000  # counts that one row adds to: the budget is shared among them
_SESSION: Final = re.compile("([0-9a-f]{64})?")
_MOST_NUMBERS: Final = 1 << 26  # of a histogram: half a gigabyte


class PlanSizes(NamedTuple):
    """What a plan asks a site to hold.

    The bins of its axis, the levels of its tree, and the counts of its histogram: bins times
    groups, classes and scores. Of two rounds, the most that either has.
    """

    bins: int
    levels: int
    counts: int


class _Axis(msgspec.Struct):
    bins: int
    points: list[float] | None = None


class _Round(msgspec.Struct):
    nodes: list[int]


class _Form(msgspec.Struct):
    x: list[float] = []
    y: list[float] = []
    edges: list[float] = []
    values: list[float] = []


class _Map(msgspec.Struct):
    form: _Form


class _Two(msgspec.Struct):
    bins: int
    coarse: _Axis


class _Found(msgspec.Struct):
    two: _Two
    counts: list[int]
    starts: list[int] = []
    session: str = ""


class _Measured(msgspec.Struct):
    kind: str = ""
    labels: list[Any] = []
    models: list[Any] = []
    groups: dict[str, list[Any]] = {}
    crossed: bool = False

    @property
    def scores(self) -> int:
        """Scores of a row: of each model, and each class or label."""
        return max(len(self.models), 1) * max(len(self.labels), 1)

    @property
    def per_row(self) -> int:
        """Counts that a row adds to: of each score, and each way of grouping."""
        groupings = 1 if self.crossed else len(self.groups)
        return self.scores * max(groupings, 1)

    @property
    def channels(self) -> int:
        """Rows of counts, as :class:`fedgauge.histograms.channels.Layout` has them."""
        groups = [len(values) + 1 for values in self.groups.values()]
        cells = math.prod(groups) if self.crossed else sum(groups) or 1
        classes = len(self.labels) if self.kind == "multiclass" else 2
        return self.scores * cells * classes


class _Task(_Measured):
    of: _Measured | None = None  # what a search is for
    two: _Two | None = None


class _Outline(msgspec.Struct):
    """The parts of a plan that say how large it is; all others are passed over."""

    task: _Task
    axis: _Axis
    tree: list[int]
    rounds: list[_Round]
    calibrator: _Map | None = None
    found: _Found | None = None

    @property
    def measured(self) -> _Measured:
        """What is told apart in the end."""
        return self.task.of or self.task

    @property
    def two(self) -> _Two | None:
        """How bins are, or were, found."""
        return self.found.two if self.found is not None else self.task.two


class _Second(msgspec.Struct):
    found: _Found | None = None


def peek(data: bytes) -> PlanSizes:
    """The sizes of a distributed plan, which is not read any further.

    Raises
    ------
    PlanError
        If it is no plan, or larger than any may be.

    Examples
    --------
    >>> from fedgauge import Axis, Cohort, EvaluationPlan
    >>> peek(EvaluationPlan.for_histogram(Axis.uniform(64), Cohort(3)).to_bytes())
    PlanSizes(bins=64, levels=1, counts=128)
    """
    check_bytes(len(data))
    with plan_errors("JSON"):
        return _judged(msgspec.json.decode(data, type=_Outline))


def peek_plain(plain: Any, form: str) -> PlanSizes:
    """The same for a plan as plain data, read from such a form."""
    with plan_errors(form):
        return _judged(msgspec.convert(plain, _Outline))


def _judged(outline: _Outline) -> PlanSizes:
    axis, tree = outline.axis, outline.tree
    _check_axis(axis)
    form = _Form() if outline.calibrator is None else outline.calibrator.form
    if max(map(len, (form.x, form.y, form.edges, form.values))) > MOST_KNOTS:
        raise PlanError(f"the plan's map has more than {MOST_KNOTS:,} knots.")
    check_levels(tree)
    if len(outline.rounds) > _MOST_ROUNDS or any(
        len(sent.nodes) > MOST_LEVELS for sent in outline.rounds
    ):
        raise PlanError(f"the rounds of a plan have at most {MOST_LEVELS} levels each.")
    bins = max(axis.bins, *_bins_of(outline))
    task = outline.measured
    check_counts(max(task.per_row, len(task.groups)), 0)  # before anything is multiplied
    counts = task.channels * axis.bins
    if outline.two is not None:  # of either round, whichever it is
        counts = max(task.channels * outline.two.bins, task.scores * outline.two.coarse.bins)
    check_counts(task.per_row, counts)
    return PlanSizes(bins, len(tree), counts)


def _check_axis(axis: _Axis) -> None:
    if axis.bins > MOST_BINS:
        raise PlanError(f"the plan's axis has {axis.bins:,} bins; at most {MOST_BINS:,} can be.")
    if len(axis.points or ()) > MOST_POINTS + 1:
        raise PlanError(f"the plan's axis lists more than {MOST_POINTS + 1:,} points.")


def _bins_of(outline: _Outline) -> tuple[int, ...]:
    """The bins of both rounds, where there are two."""
    two, found = outline.two, outline.found
    if two is None:
        return (0,)
    _check_axis(two.coarse)
    listed = () if found is None else (len(found.counts), len(found.starts))
    if max(two.coarse.bins, *listed, 0) > MOST_COARSE or two.bins > MOST_FOUND:
        raise PlanError(
            f"the first of two rounds has at most {MOST_COARSE:,} bins, and the second at most "
            f"{MOST_FOUND:,}."
        )
    return two.coarse.bins, two.bins


def first_session(data: bytes) -> bytes | None:
    """The session in which the bins of a distributed plan were found, which is not read further.

    None where they were not found; empty where they were, in no session.
    """
    check_bytes(len(data))
    with plan_errors("JSON"):
        found = msgspec.json.decode(data, type=_Second).found
    if found is None:
        return None
    if not is_session(found.session):
        raise PlanError("the plan does not say in which session its bins were found.")
    return bytes.fromhex(found.session)


def is_session(text: str) -> bool:
    """Whether a text is the id of a session, or empty."""
    return _SESSION.fullmatch(text) is not None


def check_bytes(count: int) -> None:
    """Refuse more bytes than a plan has."""
    if count > MOST_BYTES:
        raise PlanError(f"a plan has at most {MOST_BYTES:,} bytes, got {count:,}.")


def check_counts(per_row: int, counts: int) -> None:
    """Refuse slices that no site could hold, or whose shares of a budget would be nothing."""
    if per_row > _MOST_PER_ROW or counts > _MOST_NUMBERS:
        # How many they are is not said: a number may have a hundred thousand digits.
        raise PlanError(
            f"a plan counts each row at most {_MOST_PER_ROW:,} times, once for each class, label, "
            f"model and grouping, and has at most {_MOST_NUMBERS:,} counts. Tell less apart, or "
            "use fewer bins."
        )


def check_levels(tree: Sequence[int]) -> None:
    """Refuse a tree of more levels than tell bins apart: each has noise tables of its own."""
    if len(tree) > MOST_LEVELS:
        raise PlanError(f"a tree has at most {MOST_LEVELS} levels, got {len(tree):,}.")
    if len(tree) > 1 and 1 in tree:
        raise PlanError(
            "a level of one branch repeats the level above it, at the cost of more noise. Leave "
            "it out of the tree."
        )


# Each name that a dot goes before: of long ones a reader of TOML keeps the head of each length.
_DOTTED: Final = re.compile(
    rf"""(?<![\w."'-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{MOST_LEVELS}}}"""
)


def check_keys(text: str) -> None:
    """Refuse TOML with a key of so many parts that no plan has: reading it takes their square."""
    if _DOTTED.search(text):
        raise PlanError("this is not a plan in TOML: a key in it has too many parts.")


@contextmanager
def plan_errors(form: str) -> Iterator[None]:
    """Turn decoding errors into a PlanError that names the format."""
    try:
        yield
    except AxisError as error:
        raise PlanError(str(error)) from None
    except UnicodeDecodeError:
        raise PlanError(f"this is not a plan in {form}: it is not UTF-8.") from None
    except msgspec.MsgspecError as error:
        reason = str(error).rstrip(".")
        raise PlanError(f"this is not a plan in {form}: {reason}.") from None
    except RecursionError:
        raise PlanError(f"this is not a plan in {form}: it is nested too deeply.") from None
    except PlanError:
        raise
    except ValueError:
        raise PlanError(f"this is not a plan in {form}: a number in it is too long.") from None
