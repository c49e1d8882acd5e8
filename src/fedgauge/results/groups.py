"""`Gaps`: a metric by group, and how far it differs between groups, in numbers and words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, combinations
from typing import TYPE_CHECKING, Any, Final

from fedgauge import _html
from fedgauge.errors import InputError, NoSignal, UndefinedMetric
from fedgauge.estimation.counts import PooledCounts, require_examples
from fedgauge.estimation.remapping import mapped
from fedgauge.metrics.differences import gap, level_of_each
from fedgauge.metrics.estimate import Estimate, Interval, metrics_of, show
from fedgauge.metrics.ranking import Reading
from fedgauge.metrics.thresholds import AtThreshold, check_threshold
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.task import REST, Contrast, Group, Slice, Task
from fedgauge.results.metrics import Metrics, NamedMetric
from fedgauge.results.summary import Backend, frame_of

if TYPE_CHECKING:
    from fedgauge.results.evaluation import Evaluation

XAUC: Final = "xauc"
_ALSO: Final = {"selection_rate": "flagged"}  # what those who compare groups call it
JOINED: Final = (
    "it is counted in {1!r}, because this group or one counted with it has fewer than {0} examples "
    "of a class (min_cell)."
)


@dataclass(frozen=True, eq=False)
class Gap:
    """How far a metric of one group is above that of another.

    Attributes
    ----------
    group, against
        The two groups.
    first, second
        The metric of each. For xAUC: positives of the first against negatives of the second, and
        the other way round.
    difference
        The first less the second.
    joint
        An interval of the difference that holds together with those of all other gaps.

    Examples
    --------
    >>> rows = fg.Examples([0, 1, 1, 0, 1, 1], [0.2, 0.7, 0.9, 0.3, 0.4, 0.8], group=list("FFFMMM"))
    >>> gap = fg.evaluate({"a": rows}, groups=["F", "M"]).gaps("recall", at=0.5).largest
    >>> gap.difference.value, gap.stands_out
    (0.5, False)
    """

    group: str
    against: str
    first: Estimate
    second: Estimate
    difference: Estimate
    joint: Interval

    @property
    def stands_out(self) -> bool:
        """Whether it is more than chance, noise and binning, among so many gaps."""
        return not self.joint.low <= 0.0 <= self.joint.high

    def turned(self) -> Gap:
        """The same seen from the other group."""
        low, high = self.joint
        difference = gap(self.second, self.first)
        joint = Interval(-high, -low)
        return Gap(self.against, self.group, self.second, self.first, difference, joint)


@dataclass(frozen=True, eq=False)
class Gaps:
    """A metric of every group, and its gaps between groups.

    Attributes
    ----------
    metric
        What is compared.
    level
        Confidence of the intervals.
    groups
        The metric of each group; None where it is withheld or undefined. For xAUC: positives of the
        group against negatives of all other rows.
    withheld
        Why it is, by group, in words.
    pairs
        The gaps between groups that both have it.
    compared
        How many gaps joint intervals hold for, including those that are withheld.

    Examples
    --------
    >>> rows = fg.Examples([0, 1, 1, 0, 1, 1], [0.2, 0.7, 0.9, 0.3, 0.4, 0.8], group=list("FFFMMM"))
    >>> gaps = fg.evaluate({"a": rows}, groups=["F", "M"]).gaps("recall", at=0.5)
    >>> gaps.pairs[0].difference.value, gaps.largest.stands_out
    (0.5, False)
    """

    metric: str
    level: float
    groups: Mapping[str, Estimate | None]
    withheld: Mapping[str, str]
    pairs: tuple[Gap, ...]
    compared: int

    @property
    def largest(self) -> Gap:
        """The largest gap, from the group that is above."""
        if not self.pairs:
            raise NoSignal("no two groups that could be compared have this metric.")
        widest = max(self.pairs, key=lambda each: abs(each.difference.value))
        return widest if widest.difference.value >= 0 else widest.turned()

    @property
    def standing_out(self) -> tuple[Gap, ...]:
        """Gaps that are more than chance, noise and binning, all of them taken together."""
        return tuple(each for each in self.pairs if each.stands_out)

    def to_frame(self, *, backend: Backend = "pandas") -> Any:
        """The gaps as a data frame, one row for each.

        Its columns are `group`, `against`, the metric of both (`first`, `second`), their difference
        (`value`) with its interval (`low`, `high`), the joint interval (`joint_low`, `joint_high`),
        `level` and `caution`.
        """
        rows = [
            (
                *(each.group, each.against, each.first.value, each.second.value),
                *(d.value, d.low, d.high, *each.joint, d.level, d.caution),
            )
            for each in self.pairs
            for d in (each.difference,)
        ]
        return frame_of(_COLUMNS, rows, backend)

    def __str__(self) -> str:
        rows = self._rows()
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {words}" for name, words in rows]
        return "\n".join([f"{self.metric}, by group", *lines, self.verdict])

    def __repr__(self) -> str:
        return f"<Gaps of {self.metric}: {len(self.groups)} groups, {len(self.pairs)} gaps>"

    def _repr_html_(self) -> str:
        rows = [*self._rows(), ("", self.verdict)]
        return _html.table(rows, caption=f"{self.metric}, by group")

    def _rows(self) -> list[tuple[str, str]]:
        told = [
            (name, self.withheld[name] if each is None else str(each))
            for name, each in self.groups.items()
        ]
        return [*told, *((f"{g.group} - {g.against}", str(g.difference)) for g in self.pairs)]

    @property
    def verdict(self) -> str:
        """What the largest gap shows, in words."""
        if not self.pairs:
            return "No two groups can be compared."
        widest = self.largest
        low, high = widest.joint
        span = f"{show(low)} to {show(high)} at {self.level * 100:g}%"
        together = f", all {self.compared} gaps together" if self.compared > 1 else ""
        out = "stands out" if widest.stands_out else "does not stand out"
        return (
            f"The largest gap, {widest.group} - {widest.against}, {out}: "
            f"{show(widest.difference.value)} ({span}{together})."
        )


_COLUMNS: Final = (
    *("group", "against", "first", "second", "value", "low", "high"),
    *("joint_low", "joint_high", "level", "caution"),
)


class _Reader:
    """Reads one metric off any channels of a result, at any level, each once."""

    def __init__(self, result: Evaluation, metric: str, at: float | None) -> None:
        self._result = result
        self._read, self.title = _metric(metric, None if at is None else check_threshold(at))
        self._known: dict[tuple[Contrast, float], Estimate | UndefinedMetric] = {}

    def __call__(self, contrast: Contrast, level: float) -> Estimate:
        """The metric; raises where noise hides it, or it is not defined."""
        key = contrast, level
        if key not in self._known:
            try:
                self._known[key] = self._compute(contrast, level)
            except UndefinedMetric as error:
                self._known[key] = error
        known = self._known[key]
        if isinstance(known, UndefinedMetric):
            raise known
        return known

    def _compute(self, contrast: Contrast, level: float) -> Estimate:
        result = self._result
        pooled = PooledCounts.between(result.plan, result.released, contrast)
        if result.mapped_by is not None:
            pooled = mapped(pooled, result.mapped_by)
        if pooled.hidden is not None:
            raise NoSignal(f"the noise hides the number of {pooled.hidden}.")
        require_examples(pooled)
        return self._read(Reading(pooled, result.estimator, level))


def gaps_of(result: Evaluation, metric: str, at: float | None, against: str | None) -> Gaps:
    """See :meth:`fedgauge.Evaluation.gaps`."""
    task = result.plan.task
    if not task.groups:
        raise InputError(
            "the plan has no groups, so there are no gaps. Name groups with groups=... ."
        )
    if result.slice.group is not None:
        raise InputError(
            "gaps are between groups, and this is a single group. Use the whole result."
        )
    result._require_one()
    read = _Reader(result, metric, at)
    rows = {
        name: task.contrast(Slice(result.slice.model, name, result.slice.label))
        for name in task.groups_told
    }
    rest = {name: _rest(task.groups_told, rows, name) for name in rows}
    groups: dict[str, Estimate | None] = dict.fromkeys(rows)
    withheld = {n: f"withheld: {why_joined(result.plan, n)}" for n in result.released.joined}
    for name in rows:
        if name not in withheld:
            own = _crossed(rows[name], rest[name]) if metric == XAUC else rows[name]
            try:
                part = PooledCounts.between(result.plan, result.released, rows[name])
                if not part.noisy:
                    require_examples(part, listed_group(result.plan, name))
                groups[name] = read(own, result.level)
            except UndefinedMetric as error:
                hidden = isinstance(error, NoSignal)
                withheld[name] = f"withheld: {error}" if hidden else str(error)
    pairs = _pairs(task, against)
    each = level_of_each(result.level, len(pairs))
    found = []
    for one, other in pairs:
        sides = rows[one], rest[one] if other is None else rows[other]
        if metric == XAUC:
            sides = _crossed(*sides), _crossed(*sides[::-1])
        if withheld.keys().isdisjoint((one, other)):
            with suppress(UndefinedMetric):
                found.append(_gap(read, (one, other or REST), sides, (result.level, each)))
    return Gaps(read.title, result.level, groups, withheld, tuple(found), len(pairs))


def listed_group(plan: EvaluationPlan, name: str | None) -> str | None:
    """The name of a group, if the plan lists all its values."""
    return name if name is not None and plan.task.groups_told[name].listed else None


def share_rows(plan: EvaluationPlan, one: str | None, other: str | None) -> bool:
    """Whether a row may be in both groups; None is of all rows."""
    if one is None or other is None or one == other:
        return True
    groups = plan.task.groups_told
    return groups[one].grouping != groups[other].grouping


def why_joined(plan: EvaluationPlan, name: str) -> str:
    """Why a group is not shown by itself."""
    groups = plan.task.groups_told
    *_, last = (n for n, each in groups.items() if each.grouping == groups[name].grouping)
    return JOINED.format(plan.min_cell, last)


def _gap(
    read: _Reader,
    names: tuple[str, str],
    sides: tuple[Contrast, Contrast],
    levels: tuple[float, float],
) -> Gap:
    alone, together = levels
    first, second = (read(side, alone) for side in sides)
    joint = gap(*(read(side, together) for side in sides)).interval
    assert joint is not None  # noqa: S101  (a gap has one)
    return Gap(*names, first, second, gap(first, second), joint)


def _pairs(task: Task, against: str | None) -> list[tuple[str, str | None]]:
    """Which groups are compared with which; None is all rows outside the first."""
    told = task.groups_told
    if against is not None and against != REST and against not in told:
        raise InputError(
            f"there is no group {against!r} to compare with. The groups are: {', '.join(told)}; "
            f"{REST!r} is all rows outside each."
        )
    pairs: list[tuple[str, str | None]] = []
    for grouping in task.layout.groupings:
        every = [each for each in told.values() if each.grouping == grouping]
        listed = [each.name for each in every if each.listed]
        if against is not None and against in told:
            if told[against].grouping == grouping:
                pairs += [(name, against) for name in listed if name != against]
        elif against == REST:
            pairs += [(name, None) for name in listed]
        else:  # one group alone is compared with the rows that are not in it
            pairs += combinations(listed if len(listed) > 1 else [g.name for g in every], 2)
    return pairs


def _rest(groups: Mapping[str, Group], rows: Mapping[str, Contrast], name: str) -> Contrast:
    """All rows outside a group."""
    others = [
        rows[other]
        for other, each in groups.items()
        if each.grouping == groups[name].grouping and other != name
    ]
    return Contrast(*(tuple(chain.from_iterable(side)) for side in zip(*others, strict=True)))


def _crossed(positives: Contrast, negatives: Contrast) -> Contrast:
    """The positives of some rows against the negatives of others."""
    return Contrast(negatives.negatives, positives.positives)


def _metric(name: str, at: float | None) -> tuple[Callable[[Reading], Estimate], str]:
    """How a metric is read, and what it is called."""
    attribute = "roc_auc" if name == XAUC else _ALSO.get(name, name)
    for row in metrics_of(AtThreshold):
        if row.name == attribute:
            if at is None:
                raise InputError(f"{name} is at a threshold. Say which: gaps({name!r}, at=0.5).")
            return NamedMetric(attribute, at).read, f"{row.title} at {at:g}"
    for row in metrics_of(Metrics):
        if row.name == attribute:
            if at is not None:
                raise InputError(f"{name} is over all thresholds. Leave out at=.")
            return NamedMetric(attribute, None).read, "xAUC" if name == XAUC else row.title
    known = ", ".join(row.name for kind in (AtThreshold, Metrics) for row in metrics_of(kind))
    raise InputError(
        f"there is no metric {name!r}. There are: {known}, {', '.join(_ALSO)}, {XAUC}."
    )
