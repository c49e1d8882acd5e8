"""How large a plan is, judged from its bytes before anything is built from them.

A few hundred bytes can ask for gigabytes of edges or minutes of noise tables, and a site must
be able to say no before it spends them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec

from fedgauge.binning.axis import MOST_BINS, MOST_POINTS
from fedgauge.binning.forms import MOST_KNOTS
from fedgauge.errors import AxisError, PlanError

MOST_BYTES: Final = 1 << 23  # holds the most points an axis may list, at 25 bytes each
MOST_LEVELS: Final = 24  # more than halving the most bins takes
_MOST_ROUNDS: Final = 8


class PlanSizes(NamedTuple):
    """What a plan asks a site to hold: the bins of its axis, and the levels of its tree."""

    bins: int
    levels: int


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


class _Outline(msgspec.Struct):
    """The parts of a plan that say how large it is; all others are passed over."""

    axis: _Axis
    tree: list[int]
    rounds: list[_Round]
    calibrator: _Map | None = None


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
    PlanSizes(bins=64, levels=1)
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
    if axis.bins > MOST_BINS:
        raise PlanError(f"the plan's axis has {axis.bins:,} bins; at most {MOST_BINS:,} can be.")
    if len(axis.points or ()) > MOST_POINTS + 1:
        raise PlanError(f"the plan's axis lists more than {MOST_POINTS + 1:,} points.")
    form = _Form() if outline.calibrator is None else outline.calibrator.form
    if max(map(len, (form.x, form.y, form.edges, form.values))) > MOST_KNOTS:
        raise PlanError(f"the plan's map has more than {MOST_KNOTS:,} knots.")
    check_levels(tree)
    if len(outline.rounds) > _MOST_ROUNDS or any(
        len(sent.nodes) > MOST_LEVELS for sent in outline.rounds
    ):
        raise PlanError(f"the rounds of a plan have at most {MOST_LEVELS} levels each.")
    return PlanSizes(axis.bins, len(tree))


def check_bytes(count: int) -> None:
    """Refuse more bytes than a plan has."""
    if count > MOST_BYTES:
        raise PlanError(f"a plan has at most {MOST_BYTES:,} bytes, got {count:,}.")


def check_levels(tree: Sequence[int]) -> None:
    """Refuse a tree of more levels than tell bins apart: each has noise tables of its own."""
    if len(tree) > MOST_LEVELS:
        raise PlanError(f"a tree has at most {MOST_LEVELS} levels, got {len(tree):,}.")
    if len(tree) > 1 and 1 in tree:
        raise PlanError(
            "a level of one branch repeats the level above it, at the cost of more noise. Leave "
            "it out of the tree."
        )


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
