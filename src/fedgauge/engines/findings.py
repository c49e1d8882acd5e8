"""What looks wrong with a site's rows, found at the site alone before it joins."""

import math
import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge import storage
from fedgauge.data.examples import Data
from fedgauge.data.row_checks import LenientRows, RowSummary
from fedgauge.engines.contribution import count_leniently, summarise
from fedgauge.errors import InputError, SiteError
from fedgauge.metrics.areas import straight_auc
from fedgauge.plan import EvaluationPlan
from fedgauge.plan import plan as plans
from fedgauge.plan.two_rounds import Found
from fedgauge.site import Site
from fedgauge.site.rows import Rows
from fedgauge.storage import MALFORMED, read_bounded

_FEW: Final = 10  # rows: an export that broke off; of a class, to say anything about its scores
_REVERSED: Final = 0.4  # below this a model is not poor but read the wrong way round
_PREDICTIONS: Final = 3  # different scores or fewer
_MANY: Final = 1000  # different scores: nobody wants to know how many more
_MANY_BINS: Final = 8  # of which scores on the plan's scale fill more than one
_FAR: Final = 3.0  # times the odds that were expected, and so many standard errors
_MOST_JUDGED: Final = 1000  # states of files
_MOST_BYTES: Final = 1 << 20
_REMEDY: Final = (
    "Nothing was sent, reserved or spent. `fedgauge exchange check` shows what was found, and lets "
    "them join where it finds nothing. Correct the file or [data], or join all the same: `fedgauge "
    "exchange join --anyway`."
)


class JudgedRows(NamedTuple):
    """The rows in a file as they would count under a plan, for the site's operator alone.

    `figures` are in words, `warnings` what an operator should see to, and `findings` those of them
    that suggest other rows or columns than meant: they stop a site, unless its file says otherwise.
    """

    path: str
    counted: RowSummary
    figures: str
    warnings: tuple[str, ...]
    findings: tuple[str, ...]


def judge_rows(site: Site, plan: EvaluationPlan, rows: Rows) -> JudgedRows:
    """What rows would count as, and what looks wrong; nothing is sent, reserved or stored."""
    told = _with_classes(plan)
    opened: list[Data] = []

    def data() -> Data:
        opened.append(rows.data(plan, site))
        return opened[-1]

    histogram, oddities = count_leniently(told, data)
    counted = summarise(told.task, histogram.counts, oddities)
    warnings = rows.warnings(counted, told)
    if oddities.failure or not oddities.rows:
        return JudgedRows(rows.path, counted, "", tuple(warnings), tuple(warnings))
    areas = dict(_areas(told, histogram.counts))
    stay = site.data is not None and site.data.inside  # rows stay in their database
    different = None if plan.task.of_labels or stay else _different(opened[-1])
    rate = None if site.data is None else site.data.positive_rate
    found = [f"{rows.path}: {each}" for each in _found(told, counted, areas, different, rate)]
    if told.axis.bins >= _MANY_BINS and _fills_one(told, histogram.counts):
        found.append(
            f"{rows.path}: all scores lie in one bin of the plan's axis. Are they on another scale?"
        )
    return JudgedRows(
        rows.path,
        counted,
        _in_words(counted, areas, different),
        (*warnings, *found),
        (*(warnings if counted.is_doubtful else ()), *found),
    )


def _with_classes(plan: EvaluationPlan) -> EvaluationPlan:
    """The plan with classes, on any bins: wrong labels would else show once two rounds are paid."""
    two = plan.task.two
    if two is None:
        return plan
    return plan.located(Found(two, (1,) * two.coarse.bins, clients=1))


def _areas(plan: EvaluationPlan, counts: NDArray[np.int64]) -> Iterator[tuple[str, float]]:
    """The AUC of all rows, by each score, where both classes have enough rows to say."""
    for each in plan.task.slices:
        if each.group is None:
            negatives, positives = (
                counts[list(side)].sum(axis=0, dtype=np.float64)
                for side in plan.task.contrast(each)
            )
            if min(negatives.sum(), positives.sum()) >= _FEW:
                yield str(each), straight_auc(negatives, positives)


def _fills_one(plan: EvaluationPlan, counts: NDArray[np.int64]) -> bool:
    """Whether all rows lie in one bin, by some score."""
    for each in plan.task.slices:
        if each.group is None:
            sides = [counts[list(side)].sum(axis=0) for side in plan.task.contrast(each)]
            if np.count_nonzero(sum(sides)) == 1:
                return True
    return False


def _different(data: Data) -> int:
    """How many different scores there are, in the column with the fewest; no more than many."""
    seen: dict[tuple[str | None, int], NDArray[np.float64]] = {}
    for batch in LenientRows(data):
        for model, scores in batch.scores.items():
            for place, column in enumerate(scores.T if scores.ndim == 2 else [scores]):
                before = seen.get((model, place), np.empty(0))
                merged = np.union1d(before, column[np.isfinite(column)])
                seen[model, place] = merged[: _MANY + 1]
        if min(map(len, seen.values())) > _MANY:
            break
    return min(map(len, seen.values()), default=0)


def _found(
    plan: EvaluationPlan,
    counted: RowSummary,
    areas: dict[str, float],
    different: int | None,
    rate: float | None,
) -> Iterator[str]:
    rows = counted.oddities.rows
    if rows < _FEW:
        yield f"there are fewer than {_FEW} rows. Was the export cut short?"
    for name, area in areas.items():
        if area < _REVERSED:
            whose = "" if name == "all" else f" ({name})"
            yield (
                f"the AUC of these rows alone is below {_REVERSED}{whose}. Are the labels "
                "reversed, or do high scores stand for negatives?"
            )
    if different is not None and different <= _PREDICTIONS < min(rows, plan.axis.bins):
        yield (
            f"a score takes {_PREDICTIONS} values or fewer. Are these predictions instead of "
            "scores?"
        )
    if rate is not None and counted.positives not in (None, 0, rows):
        share = (counted.positives or 0) / rows
        odds = math.log(share / (1 - share)) - math.log(rate / (1 - rate))
        chance = _FAR * math.sqrt(rate * (1 - rate) / rows)
        if abs(odds) > math.log(_FAR) and abs(share - rate) > chance:
            yield (
                "the share of positives is far from what this site expects (positive_rate in its "
                "[data]). Check the label column, and whose rows these are."
            )


def _in_words(counted: RowSummary, areas: dict[str, float], different: int | None) -> str:
    told = [f"AUC {area:.3f} ({name})".removesuffix(" (all)") for name, area in areas.items()]
    if different is not None:
        many = f"more than {_MANY:,}" if different > _MANY else f"{different:,}"
        told.append(f"{many} different scores")
    if counted.positives is not None:
        told.append(f"{counted.positives / counted.oddities.rows:.1%} positive")
    return ", ".join(told)


def require_fit(
    site: Site,
    plan: EvaluationPlan,
    rows: Rows,
    *,
    by_hand: bool,
    tell: Callable[[str], None],
) -> None:
    """Refuse to join with rows that look wrong, unless the site file lets them join.

    Whether a site joins shows others one bit about its rows, and they choose the plans. So declared
    rows are judged once, under one plan, until they, or what its file says of them, change.
    """
    if site.policy.findings == "join":
        return
    judged_before, state = {} if by_hand else _judged(site), _state(site, rows)
    if state in judged_before:
        if stopped := judged_before[state]:
            raise InputError(
                f"this site stopped at these rows before, under plan {stopped}. {_REMEDY}"
            )
        return
    judged = judge_rows(site, plan, rows)
    if not by_hand:
        _remember(site, judged_before | {state: plan.digest[:8] if judged.findings else ""})
    if judged.findings:
        for told in judged.findings:
            tell(told)
        raise InputError(
            f"the rows in {rows.path} look wrong, so this site did not join. {_REMEDY}"
        )


def allow(site: Site, rows: Rows) -> None:
    """Let declared rows that stopped this site join, as its operator decided."""
    judged_before, state = _judged(site), _state(site, rows)
    if judged_before.get(state):
        _remember(site, judged_before | {state: ""})


def _state(site: Site, rows: Rows) -> str:
    """What changes whenever a file does, or what the site file says of it; of a query, each day."""
    file = os.stat(rows.path) if os.path.exists(rows.path) else None
    changes = (plans.now().date(),) if file is None else (file.st_size, file.st_mtime_ns)
    about = (site.dataset, rows.path, *changes, site.written.data)
    return sha256(msgspec.json.encode(about)).hexdigest()


def _judged(site: Site) -> dict[str, str]:
    """The plan at which each state of rows stopped this site; empty where none did."""
    try:
        return msgspec.json.decode(read_bounded(_path(site), _MOST_BYTES), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, *MALFORMED):
        raise SiteError(f"{_path(site)} cannot be read. Remove it.") from None


def _remember(site: Site, judged: dict[str, str]) -> None:
    path = _path(site)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        storage.replace(path, msgspec.json.encode(dict([*judged.items()][-_MOST_JUDGED:])))
    except OSError as error:
        raise SiteError(f"cannot write {path}: {error.strerror}.") from None


def _path(site: Site) -> Path:
    return site.folder / "sessions" / "judged.json"
