"""`Evaluation`: the result a user holds, or a slice of it."""

import hashlib
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, SupportsFloat

from msgspec import UNSET

from fedgauge import _html
from fedgauge.errors import InputError, NoSignal, UndefinedMetric, located
from fedgauge.estimation import sanity
from fedgauge.estimation.counts import PooledCounts, Released, counts_of, require_examples
from fedgauge.estimation.distribution import Estimator, shrinks
from fedgauge.estimation.remapping import mapped
from fedgauge.estimation.repair import leaf_variance
from fedgauge.histograms.axis import Axis
from fedgauge.histograms.calibrator import Calibrator, Fitted
from fedgauge.keys import SigningKey
from fedgauge.metrics import calibrators
from fedgauge.metrics.areas import Positions, positions
from fedgauge.metrics.bands import PR, ROC
from fedgauge.metrics.calibration import Forecasts
from fedgauge.metrics.curves import PrCurve, RocCurve, average_pr, average_roc
from fedgauge.metrics.estimate import LEVEL, Estimate, check_level
from fedgauge.metrics.multiclass import ClassConfusion, Shared
from fedgauge.metrics.ranking import Reading
from fedgauge.plan import EvaluationPlan, Slice
from fedgauge.privacy import PrivacyStatement
from fedgauge.results import averages
from fedgauge.results.averages import Against, Average
from fedgauge.results.comparison import Comparison, compare
from fedgauge.results.groups import Gaps, gaps_of, listed_group, share_rows, why_joined
from fedgauge.results.metrics import Metrics
from fedgauge.results.record import Record, facts_of, record_of
from fedgauge.results.signature import Signature, examine, follows, prove
from fedgauge.results.summary import (
    Backend,
    counted,
    metrics_frame,
    promise,
    thresholds_frame,
    verdict,
)
from fedgauge.secagg import Confirmed
from fedgauge.storage import read_whole, write_whole


class Evaluation(Metrics):
    """A pooled evaluation of a classifier, made by :func:`fedgauge.evaluate` or :meth:`from_json`.

    It holds the plan, the pooled counts and what may be claimed about privacy; all else follows.

    Examples
    --------
    >>> result = fg.evaluate({"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])})
    >>> result.roc_auc
    Estimate(0.8889, interval 0.4010..0.9884 at 95%)
    >>> round(result.at_threshold(0.5).recall, 3)
    0.667
    """

    def __init__(
        self,
        plan: EvaluationPlan,
        privacy: PrivacyStatement,
        released: Released,
        *,
        estimator: Estimator,
        level: float = LEVEL,
        proof: Any = None,
        calibrator: Calibrator | None = None,
        slice_: Slice | None = None,
    ) -> None:
        self._plan = plan
        self._released = released
        self._chosen = slice_
        slices, self._slice = plan.task.slices, slice_ or plan.task.whole
        # What it is about: one slice, or all that agree with what was selected.
        self._several = self._slice not in slices
        if slice_ is None:
            self._parts = slices
        else:
            self._parts = _agreeing(slices, slice_) if self._several else (slice_,)
        self._counts = counts_of(plan, released, self._parts[0])
        self._calibrator = calibrator
        self._pooled = self._counts if calibrator is None else mapped(self._counts, calibrator)
        if not shrinks(estimator):
            self._pooled = self._pooled.unshrunk
        self._privacy = privacy
        self._estimator = estimator
        self._level = check_level(level)
        self._proof = proof
        self._saved: bytes | None = None  # what it was read from
        self._origin = self  # what it is another reading of

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
    def slices(self) -> tuple["Evaluation", ...]:
        """The result of each slice, in the order of the plan; of itself where it is one."""
        if len(self._parts) == 1:
            return (self,)
        return tuple(self._of(each) for each in self._parts)

    def select(
        self, *, model: str | None = None, group: Any = None, label: Any = None
    ) -> "Evaluation":
        """The result of one slice: a model, a group, a class, or several of these.

        A group alone has all its classes, which :meth:`macro` averages.

        Examples
        --------
        >>> rows = fg.Examples([0, 1, 0, 1], [0.2, 0.7, 0.6, 0.4], group=["a", "a", "b", "b"])
        >>> fg.evaluate({"site": rows}, groups=["a", "b"]).select(group="b").roc_auc.value
        0.0
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
            Names of models of the plan.
        margin
            How much lower the first model's ROC AUC may be for it not to be inferior.

        Returns
        -------
        Comparison
            Differences, the first less the second. Where the plan has the pair, they rest on both
            scores of each row; else on the counts of each model, and are as wide as can be
            (`basis`).

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> y, noise = rng.random(4000) < 0.3, rng.normal(size=(2, 4000))
        >>> scores = {"new": 1.5 * y + noise[0], "old": y + noise[0] + 0.4 * noise[1]}
        >>> rows = fg.Examples(y, {name: 1 / (1 + np.exp(-s)) for name, s in scores.items()})
        >>> fg.evaluate({"site": rows}, models=["new", "old"]).compare("new", "old").roc_auc
        Estimate(0.1189, interval 0.1108..0.1270 at 95%)
        """
        if self._calibrator is not None:
            raise InputError(
                "this result is already mapped. Compare the scores as they were counted: "
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

    def macro(
        self,
        metric: str,
        *,
        average: Average = "macro",
        against: Against = "rest",
        at: float | None = None,
    ) -> Estimate:
        """A metric averaged over the classes, or the labels, of the task.

        Classes without examples, or hidden by noise, are left out; `caution` names them. Counts do
        not tell how the scores of one example go together: the interval allows for any way.

        Parameters
        ----------
        metric
            A metric of one slice, such as ``"roc_auc"``; with `at` one at a threshold, such as
            ``"recall"``.
        average
            ``"macro"``: every class counts the same. ``"weighted"``: by its number of examples.
            ``"micro"``: one metric of all pairs of an example and a class.
        against
            ``"rest"``: each class against all others. ``"one"``: every class against every other,
            by the score of each in turn (Hand & Till 2001); weighted by the examples of both.
        at
            The threshold, the same for every score.

        Examples
        --------
        >>> scores = np.array([[0.8, 0.1, 0.1], [0.3, 0.6, 0.1], [0.2, 0.5, 0.3], [0.5, 0.1, 0.4]])
        >>> rows = fg.Examples(["cat", "dog", "owl", "cat"], scores)
        >>> task = fg.MulticlassTask(labels=["cat", "dog", "owl"])
        >>> print(f"{fg.evaluate({'site': rows}, task=task).macro('roc_auc', against='one'):.3f}")
        0.917
        """
        return averages.macro(self, metric, average, against, at)

    def macro_roc_curve(self, *, average: Average = "macro", against: Against = "rest") -> RocCurve:
        """The mean over classes of true positive rates at each FPR; options as for :meth:`macro`.

        Its `thresholds` are NaN, but for a micro average, which is one curve.
        """
        by_class, weights = averages.distributions(self, average, against)
        if average == "micro":
            return ROC.make(by_class[0])
        return average_roc([ROC.make(each) for each in by_class], weights)

    def macro_pr_curve(self, *, average: Average = "macro", against: Against = "rest") -> PrCurve:
        """The mean over classes of precisions at each recall, as :meth:`macro_roc_curve`."""
        by_class, weights = averages.distributions(self, average, against)
        if average == "micro":
            return PR.make(by_class[0])
        return average_pr([PR.make(each) for each in by_class], weights)

    def confusion_matrix(self) -> ClassConfusion:
        """How often each class was predicted, by its highest score, of examples of each class.

        For plans whose task counts it: ``MulticlassTask(labels, also=["confusion"])``.

        Examples
        --------
        >>> scores = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
        >>> rows = fg.Examples(["cat", "dog", "dog"], scores)
        >>> task = fg.MulticlassTask(labels=["cat", "dog"], also=["confusion"])
        >>> fg.evaluate({"site": rows}, task=task).confusion_matrix().counts.tolist()
        [[1, 0], [1, 1]]
        """
        return averages.class_table(self, "confusion")

    def top_k_accuracy(self, k: int) -> Estimate:
        """Share of examples whose class has one of the `k` highest scores.

        Ties go to earlier classes. For plans whose task counts it: ``MulticlassTask(labels,
        also=["ranks"])``.
        """
        return averages.top_k_accuracy(self, k)

    def top_label(self) -> Metrics:
        """The highest score of each example, as a forecast that its class is the true one.

        Positives are the examples predicted rightly, so calibration is that of the top label. For
        plans whose task counts it: ``MulticlassTask(labels, also=["top"])``.
        """
        return averages.top_label(self)

    @cached_property
    def _shared(self) -> Shared:
        """The channels that classes or labels have in common."""
        return averages.shared(self)

    def gaps(self, metric: str, *, at: float | None = None, against: str | None = None) -> Gaps:
        """How far a metric differs between groups of the same grouping, with intervals.

        The largest of many gaps is large by chance, so each also has an interval that holds
        together with all the others' (Bonferroni). A gap stands out if that excludes 0.

        Parameters
        ----------
        metric
            A metric at a threshold, such as ``"recall"`` or ``"selection_rate"`` (the share
            flagged); one over all thresholds, such as ``"roc_auc"``; or ``"xauc"``: the chance that
            a positive of one group scores higher than a negative of another, less the same the
            other way round (Kallus & Zhou 2019).
        at
            The threshold, where the metric is at one.
        against
            A group that all others are compared with, or ``"rest"``: each group with all rows
            outside it. By default every pair of groups.

        Examples
        --------
        >>> rows = fg.Examples([1, 1, 0, 0], [0.9, 0.7, 0.6, 0.2], group=["a", "b", "a", "b"])
        >>> gaps = fg.evaluate({"site": rows}, groups=["a", "b"]).gaps("recall", at=0.8)
        >>> gaps.largest.difference.value, gaps.largest.stands_out
        (1.0, False)
        """
        return gaps_of(self, metric, at, against)

    @property
    def withheld(self) -> str | None:
        """Why this part of the result is not shown, if so: noise, or too small a group."""
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
        group = self._slice.group
        require_examples(self._pooled, group and listed_group(self._plan, group))
        return self._pooled

    @property
    def privacy(self) -> PrivacyStatement:
        """What may be claimed about privacy."""
        return self._privacy

    @property
    def estimator(self) -> Estimator:
        """How curves are drawn between the bin edges."""
        return self._estimator

    @property
    def is_shrunk(self) -> bool:
        """Whether values come from smoothed counts, `Aligned(shrink=)`; most intervals do not."""
        parts = self.slices if self.is_several else (self,)
        return any(part._pooled.is_shrunk for part in parts)

    @property
    def in_sample(self) -> bool:
        """Whether the map it is read through was fitted on these counts, which flatters it."""
        fitted = None if self._calibrator is None else self._calibrator.fitted
        return fitted is not None and fitted.source in self._sources

    @property
    def level(self) -> float:
        """Confidence of the intervals and, under noise, of the bounds."""
        return self._level

    @cached_property
    def caution(self) -> str | None:
        """What seems wrong with the rows, where noise does not explain it.

        Counts are such as no rows have; an end bin is crowded with both classes, as by scores in
        percent on an axis from 0 to 1; scores look like decisions, or are saturated; the AUC is
        below 0.4, as where labels are reversed. Each comes up falsely about once in a million.
        Label parties that answered alone are judged when the result is made; their names are saved.
        """
        told = (
            sanity.impossible_caution(self._plan, self._released),
            sanity.scores_caution(self._plan, self._released, self._scored),
        )
        return " ".join(each for each in told if each) or None

    @property
    def proof(self) -> Any:
        """What shows who made the result, as plain data; None where nothing does."""
        return self._proof

    @property
    def signature(self) -> Signature:
        """Whether the result is what its coordinator signed and its members confirmed.

        ``result.signature.by({key: name})`` compares the key with those that you know.
        """
        return self._origin._examined

    @cached_property
    def _examined(self) -> Signature:
        facts = facts_of(self)
        signature = examine(self._saved or facts.to_json(), facts)
        if signature.state != "unknown key" or self._saved is None:
            return signature
        if not follows(self._saved, self.record):
            return signature.as_broken("its metrics or curves are not those of its counts")
        return signature

    def signed(self, confirmed: Confirmed, key: SigningKey) -> "Evaluation":
        """The same result with a proof: what members confirmed, and the coordinator's signature."""
        return Evaluation(
            self._plan,
            self._privacy,
            self._released,
            estimator=self._estimator,
            level=self._level,
            proof=prove(facts_of(self), confirmed, key),
            calibrator=self._calibrator,
        )

    def with_estimator(self, estimator: Estimator) -> "Evaluation":
        """The same counts read by another estimator."""
        return self._again(estimator, self._level, self._calibrator, self._chosen)

    def at_level(self, level: float) -> "Evaluation":
        """The same result with intervals of another confidence, such as 0.9."""
        return self._again(self._estimator, level, self._calibrator, self._chosen)

    def with_calibrator(self, calibrator: Calibrator | None) -> "Evaluation":
        """The same result as if every score had been mapped before it was counted.

        It judges a map on the counts of a result that the map was not fitted on. Ranks, and so ROC
        curve and AUC, stay where the map always rises; scores that it sends to one value tie.

        The map goes on top of one that the plan has. Score sums are left out. A bin within which
        the map steps, or stops rising, is divided as its neighbours suggest; bounds hold for any
        division, except those of calibration measures.

        Parameters
        ----------
        calibrator
            The map, in place of one the result was read through; None reads scores as counted.

        Examples
        --------
        >>> from fedgauge.histograms.calibrator import Beta
        >>> result = fg.evaluate({"a": ([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])})
        >>> after = result.with_calibrator(fg.Calibrator("temperature", Beta(0.5, 0.5, 0.0)))
        >>> round(result.brier_score.value, 3), round(after.brier_score.value, 3)
        (0.158, 0.177)
        """
        if not isinstance(calibrator, Calibrator | None):
            raise InputError(
                f"a map is a Calibrator or None, got {type(calibrator).__name__}. Read a file with "
                "fg.Calibrator.from_json(path)."
            )
        return self._again(self._estimator, self._level, calibrator, self._chosen)

    def _of(self, slice_: Slice) -> "Evaluation":
        return self._again(self._estimator, self._level, self._calibrator, slice_)

    def _again(
        self,
        estimator: Estimator,
        level: float,
        calibrator: Calibrator | None,
        slice_: Slice | None,
    ) -> "Evaluation":
        result = Evaluation(
            self._plan,
            self._privacy,
            self._released,
            estimator=estimator,
            level=level,
            proof=self._proof,
            calibrator=calibrator,
            slice_=slice_,
        )
        result._origin = self._origin
        return result

    @cached_property
    def _positions(self) -> Positions | None:
        """Where in the bins the scores lie, if that was measured and no map moved them."""
        if self._released.sums is None or self._calibrator is not None:
            return None
        law = self._plan.sums_law(shares=self._released.clients)
        return positions(
            self._counts.counts,
            self._released.sums,
            self._plan.final.sum_steps,
            noise=(
                (law.variance, leaf_variance(self._plan.tree, self._counts.variances))
                if law is not None
                else None
            ),
            merged=self._released.axis != self._plan.axis,
        )

    @cached_property
    def _reading(self) -> Reading:
        """What metrics and curves are read from, if the counts say anything."""
        return Reading(self._signal, self._estimator, self._level, self._positions)

    def calibrator(self, method: str = "auto") -> Calibrator:
        """A map from scores to calibrated probabilities, fitted to the counts.

        It costs no privacy beyond the result. Judge it on other examples: on these it is flattered.

        Parameters
        ----------
        method
            ``"auto"``, a beta curve that is moved where the counts contradict it; ``"beta"``,
            ``"isotonic"``, ``"platt"``, ``"temperature"``, ``"binning"``, ``"bbq"`` or
            ``"scaling-binning"``.

        Examples
        --------
        >>> labels, scores = [0, 1, 0, 1, 1] * 200, [0.1, 0.1, 0.6, 0.6, 0.9] * 200
        >>> calibrator = fg.evaluate({"a": (labels, scores)}).calibrator("isotonic")
        >>> calibrator.transform([0.1, 0.6, 0.9]).round(3)
        array([0.5, 0.5, 1. ])
        """
        if self._calibrator is not None:
            raise InputError(
                "this result is already mapped, and a calibrator fitted to it would be a second "
                "one. Fit to the scores as they were counted: "
                "result.with_calibrator(None).calibrator(...)."
            )
        forecasts = self._reading.once(Forecasts.of)
        form = calibrators.fit(forecasts, method)
        own = "the result that it was fitted on has a caution" if self.caution else ""
        fitted = Fitted(
            self.examples,
            self.positives,
            promise(self) or "no differential privacy",
            self._privacy.epsilon,
            self._privacy.delta,
            self._plan.digest,
            self._source(self._slice),
            calibrators.caution(forecasts) or own,
        )
        return Calibrator(method, form, fitted)

    def to_frame(
        self, thresholds: Iterable[SupportsFloat] | None = None, *, backend: Backend = "pandas"
    ) -> Any:
        """The metrics as a data frame, one row for each.

        Its columns are `metric`, `value`, the interval (`low`, `high`), the bounds (`pooled_low`,
        `pooled_high`), `level` and `caution`. Numbers that an estimate does not have are missing.
        Several slices have rows of their own, with the columns `model`, `group` and `label` where
        there are several; a slice that is withheld has one row `withheld`, which says why.

        Parameters
        ----------
        thresholds
            Metrics and outcomes at these thresholds, such as :meth:`threshold_table` gives, with a
            column `threshold`; in place of metrics over all thresholds.
        backend
            Whose data frame it is: ``"pandas"``, ``"polars"`` or ``"pyarrow"``.

        Examples
        --------
        >>> result = fg.evaluate({"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 1], [0.1, 0.4])})
        >>> frame = result.to_frame(thresholds=[0.3, 0.5])
        >>> frame[frame["metric"] == "recall"][["threshold", "value"]].round(3).values.tolist()
        [[0.3, 1.0], [0.5, 0.667]]
        """
        if thresholds is None:
            return metrics_frame(self, backend)
        return thresholds_frame(self, map(float, thresholds), backend)

    @cached_property
    def record(self) -> Record:
        """The result as plain data."""
        if self._chosen is not None:
            raise InputError(
                "this is a part of a result, and files hold whole results. Save the whole result, "
                "and select the part again after loading it."
            )
        return record_of(self)

    def to_json(self, path: str | Path) -> None:
        """Save the result."""
        write_whole(path, self.record.to_json())

    def to_html(
        self, path: str | Path, *, name: str | None = None, client_average: float | None = None
    ) -> None:
        """Save a report for people: one HTML file that a browser opens without a network.

        Parameters
        ----------
        name
            Its title; by default the name of the file.
        client_average
            The average of the clients' own ROC AUCs, shown next to that of pooled data.

        Examples
        --------
        >>> import tempfile
        >>> result = fg.evaluate({"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 1], [0.1, 0.4])})
        >>> result.to_html(f"{tempfile.mkdtemp()}/report.html")
        """
        from fedgauge.report import save_report  # only who wants a report waits for it

        save_report({name or Path(path).stem: self}, path, client_average=client_average)

    @classmethod
    def from_json(cls, path: str | Path) -> "Evaluation":
        """Load a saved result."""
        data = read_whole(path)
        with located(str(path)):
            return cls.from_bytes(data)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Evaluation":
        """The same of a saved result's bytes."""
        record = Record.from_json(data)
        result = cls(
            record.plan,
            record.privacy,
            record.released(),
            estimator=record.estimator,
            level=record.level,
            proof=None if record.proof is UNSET else record.proof,
            calibrator=None if record.calibrator is UNSET else record.calibrator,
        )
        result._saved = data
        return result

    def __getstate__(self) -> dict[str, Any]:
        # With metrics that were asked for, but without the arrays they were computed from.
        return {
            name: value
            for name, value in vars(self).items()
            if type(getattr(Evaluation, name, None)) is not cached_property
        }

    def __str__(self) -> str:
        return verdict(self)

    def __repr__(self) -> str:
        if self._slice.group is not None and self.withheld is not None:
            return f"<Evaluation at {counted(self)}: group {self._slice.group} is withheld>"
        whose = f"{self.examples:,} examples at {counted(self)}"
        if self._several:
            return f"<Evaluation of {whose}: {len(self._parts)} slices>"
        try:
            auc = str(self.roc_auc)
        except UndefinedMetric:
            auc = "undefined"
        return f"<Evaluation of {whose}: ROC AUC {auc}>"

    def _repr_html_(self) -> str:
        who, *lines = verdict(self).splitlines()
        parts = (line.partition("  ") for line in lines)
        return _html.table(((title, words.strip()) for title, _, words in parts), caption=who)


def _agreeing(slices: tuple[Slice, ...], wanted: Slice) -> tuple[Slice, ...]:
    """The slices that have all that is wanted of them."""
    told = [(name, getattr(wanted, name)) for name in Slice.__struct_fields__]
    return tuple(
        each
        for each in slices
        if all(getattr(each, name) == value for name, value in told if value is not None)
    )
