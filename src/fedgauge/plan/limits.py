"""What no plan may hold, and how large one may be: judged before anything is built from it."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from fedgauge.errors import AxisError, PlanError, PlanRefused
from fedgauge.histograms.axis import MOST_BINS, MOST_POINTS, Axis
from fedgauge.histograms.calibrator import Calibrator, Steps

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
    if plan.calibrator is not None:
        _check_map(plan.calibrator, plan.axis)


def require_clipping(axis: Axis) -> None:
    """Refuse an axis that refuses scores, where that would leak."""
    if axis.outside != "clip":
        raise PlanError(
            "under differential privacy a client may not refuse scores, since a refusal that "
            'depends on data is a leak. Make the axis with outside="clip".'
        )


def check_unit(plan: "EvaluationPlan") -> None:
    """Refuse a promise for labels where more than them is counted, or the other way round."""
    if plan.privacy.protects_labels != plan.task.of_labels:
        raise PlanError(
            "a promise for labels (unit='label') goes with a task of labels apart from scores, "
            "and no other. Evaluate with fedgauge.evaluate_vertical, or protect examples."
        )


def _check_apart(plan: "EvaluationPlan") -> None:
    """Refuse what needs scores where label parties have none, but bins that they were told."""
    if plan.task.of_labels and (plan.final.sum_steps or plan.calibrator is not None):
        raise PlanError(
            "label parties have no scores to sum or to map. Leave out score sums and the map: the "
            "scorer maps scores before it assigns bins."
        )


def _check_reported(plan: "EvaluationPlan") -> None:
    """Refuse tables in local reports, whose noise differs from cell to cell."""
    if plan.privacy.sends_reports and plan.task.tables(plan.axis, noisy=True):
        raise PlanError(
            "local reports are about one score at a time, and not about scores of a row "
            "together. Leave out pairs and also, or use DistributedDP."
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
    if plan.final.sum_steps and not math.isfinite(plan.axis.high - plan.axis.low):
        raise PlanError("merged bins are too wide for score sums. Narrow the axis.")


def _check_map(calibrator: Calibrator, axis: Axis) -> None:
    """Refuse a map that plans cannot have, or not on such an axis."""
    if not calibrator.is_monotone:
        raise PlanError(
            "the map falls in places, so higher scores come out lower, and a plan takes none that "
            "does. Map the scores themselves (fedgauge apply, Calibrator.transform), or fit "
            "another: result.calibrator('auto')."
        )
    if axis.low < 0 or axis.high > 1:
        raise PlanError(
            f"a map makes probabilities, and the axis runs from {axis.low:g} to {axis.high:g}. Use "
            "an axis from 0 to 1: divide percentages by 100; of log-odds t take 1 / (1 + exp(-t))."
        )
    if axis.kind == "values" and not isinstance(calibrator.form, Steps):
        raise PlanError(
            "on an axis of known values every score must be one of them to the last digit, and "
            "this map is smooth. Use bins, such as Axis.uniform(64)."
        )


MOST_BYTES: Final = 1 << 23  # holds the most points an axis may list, at 25 bytes each
MOST_LEVELS: Final = 24  # more than halving the most bins takes
_MOST_PER_ROW: Final = 1000  # counts that one row adds to: the budget is shared among them
_SESSION: Final = re.compile("([0-9a-f]{64})?")
_MOST_NUMBERS: Final = 1 << 26  # of a histogram: half a gigabyte
_MOST_SAID: Final = 300  # characters of what is wrong: a number may have thousands


class _Found(msgspec.Struct):
    session: str = ""


class _Second(msgspec.Struct):
    """Which first round a plan follows; all other parts are passed over."""

    found: _Found | None = None


def check_bins(bins: int, most: int) -> None:
    """Refuse an axis of more bins than any plan, or than a site allows, before it is made."""
    if bins > MOST_BINS:
        raise PlanError(f"the plan's axis has {bins:,} bins; at most {MOST_BINS:,} can be.")
    if bins > most:
        raise PlanRefused(
            f"the plan's axis has {bins:,} bins, this site allows {most:,} (max_bins)."
        )


def first_session(data: bytes) -> bytes | None:
    """The session that found a plan's bins: None without such bins, empty without a session."""
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


def has_long_keys(text: str) -> bool:
    """Whether TOML has a key of more parts than any file of ours: reading it takes their square."""
    return _DOTTED.search(text) is not None


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
        reason = str(error)[:_MOST_SAID].rstrip(".")
        raise PlanError(f"this is not a plan in {form}: {reason}.") from None
    except RecursionError:
        raise PlanError(f"this is not a plan in {form}: it is nested too deeply.") from None
    except PlanError:
        raise
    except ValueError:
        raise PlanError(f"this is not a plan in {form}: a number in it is too long.") from None
