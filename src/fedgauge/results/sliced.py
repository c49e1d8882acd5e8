"""Which part of a release a result is about: its counts, its slices, and how parts differ."""

import hashlib
from abc import abstractmethod
from functools import cached_property
from typing import Any, Self

from fedgauge.binning.axis import Axis
from fedgauge.binning.calibrator import Calibrator
from fedgauge.errors import InputError, NoSignal
from fedgauge.estimation.labelled import counts_of
from fedgauge.estimation.pooled import PooledCounts, require_examples
from fedgauge.estimation.regrouped import mapped
from fedgauge.estimation.released import Released
from fedgauge.plan import EvaluationPlan, Slice
from fedgauge.results.averaged import Averaged
from fedgauge.results.compared import Comparison, compare
from fedgauge.results.gaps import Gaps, gaps_of, listed_group, share_rows, why_joined


class SlicedResult(Averaged):
    """The counts of one slice, or of several, of what was released.

    `slice_` is None for the whole result.
    """

    def __init__(
        self,
        plan: EvaluationPlan,
        released: Released,
        slice_: Slice | None,
        calibrator: Calibrator | None,
    ) -> None:
        self._plan = plan
        self._released = released
        self._chosen = slice_
        self._slice = slice_ or _whole(plan.task.slices)
        self._several = self._slice not in plan.task.slices
        self._counts = counts_of(plan, released, self._parts[0])
        self._calibrator = calibrator
        self._pooled = self._counts if calibrator is None else mapped(self._counts, calibrator)

    @property
    def plan(self) -> EvaluationPlan:
        """What was measured."""
        return self._plan

    @property
    def axis(self) -> Axis:
        """The bins that were counted in: as planned, found in a first round, or merged since."""
        return self._released.axis

    @property
    def clients(self) -> int:
        """Number of clients whose examples were counted."""
        return self._released.clients

    @property
    def reports(self) -> int | None:
        """Number of local reports, which is public; None unless under local DP."""
        return self._released.reports

    @property
    def released(self) -> Released:
        """What the result is made of: counts as they reached the server."""
        return self._released

    @property
    def pooled(self) -> PooledCounts:
        """The counts of both classes, and the noise in them; of mapped scores under a map."""
        self._require_one()
        return self._pooled

    @property
    def mapped_by(self) -> Calibrator | None:
        """The map that scores are read through; None where they are as the model gave them."""
        return self._calibrator

    @cached_property
    def _parts(self) -> tuple[Slice, ...]:
        """The slices that it is about: one, or all that agree with what was selected."""
        slices = self._plan.task.slices
        if self._chosen is None:
            return slices
        return (self._slice,) if not self._several else _agreeing(slices, self._slice)

    @property
    def _scored(self) -> tuple[Slice, ...]:
        """Its slices without those of groups in it: one for each score of a row."""
        return tuple(each for each in self._parts if each.group == self._slice.group)

    def _source(self, slice_: Slice) -> str:
        """The digest of what a map to a slice is fitted on: of all counts, and which part."""
        digest = self._released.digest
        if slice_ == Slice():
            return digest
        return hashlib.sha256(f"{digest} {slice_}".encode()).hexdigest()

    @property
    def _sources(self) -> set[str]:
        """The digests of all slices of the release that have a score of the same rows as it."""
        scored, group = {(each.model, each.label) for each in self._scored}, self._slice.group
        return {
            self._source(each)
            for each in self._plan.task.slices
            if (each.model, each.label) in scored and share_rows(self._plan, group, each.group)
        }

    @property
    def is_several(self) -> bool:
        """Whether it is of several classes or models, of which metrics must say which."""
        return self._several

    @property
    def has_average(self) -> bool:
        """Whether it is of all classes or labels of one model, which :meth:`macro` averages."""
        first = self._parts[0]
        of_one_model = first.label is not None and first.model == self._slice.model
        return self._several and of_one_model and self._calibrator is None

    def _require_one(self) -> None:
        """Refuse to take the first class, or the first model, for all."""
        if not self._several:
            return
        first = self._parts[0]
        if first.model is not None and self._slice.model is None:
            raise InputError(
                "this result is of several models. Say which: result.select(model=...)."
            )
        raise InputError(
            "this result is of several classes. Say which, result.select(label=...), or take an "
            'average: result.macro("roc_auc").'
        )

    @property
    def slice(self) -> Slice:
        """Which part of the rows, scores and classes this result is about; None means all."""
        return self._slice

    @cached_property
    def slices(self) -> tuple[Self, ...]:
        """The result of each slice, in the order of the plan; of itself where it is one."""
        if len(self._parts) == 1:
            return (self,)
        return tuple(self._of(each) for each in self._parts)

    def select(self, *, model: str | None = None, group: Any = None, label: Any = None) -> Self:
        """The result of one slice: a model, a group, a class, or several of these.

        What is left open is all: of a group alone, all its classes, which :meth:`macro` averages.

        Examples
        --------
        >>> import fedgauge as fg
        >>> rows = fg.Examples([0, 1, 0, 1], [0.2, 0.7, 0.6, 0.4], group=["a", "a", "b", "b"])
        >>> result = fg.evaluate({"site": rows}, groups=["a", "b"])
        >>> result.select(group="a").roc_auc.value, result.select(group="b").roc_auc.value
        (1.0, 0.0)
        """
        mine = self._slice
        given = [None if each is None else str(each) for each in (model, group, label)]
        pairs = zip((mine.model, mine.group, mine.label), given, strict=True)
        wanted = Slice(*(old if new is None else new for old, new in pairs))
        if not _agreeing(self._plan.task.slices, wanted):
            told = "; ".join(map(str, self._plan.task.slices[:20]))
            raise InputError(f"there is no slice of {wanted}. The slices are: {told}.")
        return self._of(wanted)

    def compare(self, first: str, second: str, *, margin: float | None = None) -> Comparison:
        """How much better one model is than another on the same rows.

        Parameters
        ----------
        first, second
            Names of models of the plan. Differences are those of the first less the second.
        margin
            How much lower the first model's ROC AUC may be for it not to be inferior.

        Returns
        -------
        Comparison
            Differences with intervals. Where the plan has the pair, they rest on both scores of
            each row; else on the counts of each model, and are as wide as can be (`basis`).

        Examples
        --------
        >>> import numpy as np, fedgauge as fg
        >>> rng = np.random.default_rng(0)
        >>> y, noise = rng.random(4000) < 0.3, rng.normal(size=(2, 4000))
        >>> scores = {"new": 1.5 * y + noise[0], "old": y + noise[0] + 0.4 * noise[1]}
        >>> rows = fg.Examples(y, {name: 1 / (1 + np.exp(-s)) for name, s in scores.items()})
        >>> result = fg.evaluate({"site": rows}, models=["new", "old"])
        >>> result.compare("new", "old").roc_auc
        Estimate(0.1189, interval 0.1108..0.1270 at 95%)
        """
        if self._calibrator is not None:
            raise InputError(
                "this result is read through a map. Compare the scores as they were counted: "
                "result.with_calibrator(None).compare(...)."
            )
        if first == second:
            raise InputError("a model is compared with another one. Name two.")
        where = self._slice
        one, other = (
            self.select(model=model, group=where.group, label=where.label)
            for model in (first, second)
        )
        return compare(one, other, (first, second), margin)

    @abstractmethod
    def _of(self, slice_: Slice) -> Self:
        """The same reading of another part."""

    def gaps(self, metric: str, *, at: float | None = None, against: str | None = None) -> Gaps:
        """How far a metric differs between groups, with intervals.

        Groups that the plan lists are compared, each with every other of the same grouping. The
        largest of many gaps is large by chance, so each gap also has an interval that holds
        together with all the others' (Bonferroni); what it excludes 0 of stands out.

        Parameters
        ----------
        metric
            A metric at a threshold, such as ``"recall"``, ``"fpr"``, ``"precision"`` or
            ``"selection_rate"`` (the share flagged); one over all thresholds, such as
            ``"roc_auc"`` or ``"calibration_in_the_large"``; or ``"xauc"``: the chance that a
            positive of one group scores higher than a negative of another, less the same the
            other way round (Kallus & Zhou 2019).
        at
            The threshold, where the metric is at one.
        against
            A group that all others are compared with, or ``"rest"``: each group with all rows
            outside it. Every pair of groups unless given.

        Examples
        --------
        >>> import fedgauge as fg
        >>> rows = fg.Examples(
        ...     [1, 1, 0, 0] * 50, [0.9, 0.7, 0.6, 0.2] * 25 + [0.9, 0.3, 0.6, 0.2] * 25,
        ...     group=["a"] * 100 + ["b"] * 100)
        >>> gaps = fg.evaluate({"site": rows}, groups=["a", "b"]).gaps("recall", at=0.5)
        >>> gaps.largest.difference
        Estimate(0.5000, interval 0.3486..0.6336 at 95%)
        >>> gaps.largest.stands_out
        True
        """
        return gaps_of(self, metric, at, against)

    @property
    def withheld(self) -> str | None:
        """Why nothing is told of this part of the result; None where something is.

        Noise hides a class, or a group has so few examples that it is counted in another one.
        """
        group = self._slice.group
        if group is not None and self._is_joined:
            return f"group {group} is not shown: {why_joined(self._plan, group)}"
        if self._several:  # noise may hide one class and not another: each says so
            return None
        hidden = self._pooled.hidden
        if hidden is None:
            return None
        return (
            f"no signal: the noise (standard deviation {self._pooled.deviation_of_totals:,.0f}) "
            f"hides the number of {hidden}. Use a larger epsilon, more examples, or fewer bins or "
            "levels."
        )

    @property
    def negatives(self) -> int:
        """Number of negative examples; an estimate under differential privacy."""
        self._require_one()
        return self._number(0)

    @property
    def positives(self) -> int:
        """Number of positive examples; an estimate under differential privacy."""
        self._require_one()
        return self._number(1)

    @property
    def _is_joined(self) -> bool:
        """Whether this is a group that is counted in another one."""
        return self._slice.group in self._released.joined

    def _number(self, row: int) -> int:
        if self._is_joined:
            raise NoSignal(str(self.withheld))
        return max(0, round(float(self._counts.released[row].sum())))

    @property
    def examples(self) -> int:
        """Number of examples; an estimate under differential privacy."""
        return self._number(0) + self._number(1)

    @cached_property
    def _signal(self) -> PooledCounts:
        """The counts, if they say anything."""
        self._require_one()
        withheld = self.withheld
        if withheld is not None:
            raise NoSignal(withheld)
        require_examples(self._pooled, listed_group(self._plan, self._slice.group))
        return self._pooled


def _whole(slices: tuple[Slice, ...]) -> Slice:
    """What a result is about of which nothing was selected: all, or the only model there is."""
    models, labels = {each.model for each in slices}, {each.label for each in slices}
    return Slice(
        model=models.pop() if len(models) == 1 else None,
        label=labels.pop() if len(labels) == 1 else None,
    )


def _agreeing(slices: tuple[Slice, ...], wanted: Slice) -> tuple[Slice, ...]:
    """The slices that have all that is wanted of them."""
    told = [(name, getattr(wanted, name)) for name in Slice.__struct_fields__]
    return tuple(
        each
        for each in slices
        if all(getattr(each, name) == value for name, value in told if value is not None)
    )
