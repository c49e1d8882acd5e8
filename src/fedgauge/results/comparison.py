"""`Comparison`: two models on the same rows, their differences and a verdict."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from fedgauge import _html
from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.histograms.tables import JointScores
from fedgauge.metrics.differences import DifferencesAt, Joint, ModelPair
from fedgauge.metrics.estimate import Estimate
from fedgauge.results.averages import tables_of

if TYPE_CHECKING:
    from fedgauge.results.evaluation import Evaluation

_JOINT: Final = "from both scores of each row, counted together"
_MARGINS: Final = (
    "from the counts of each model alone, which do not show how their errors are correlated, so "
    "intervals allow for any correlation"
)
_APART: Final = "from reports about each model, which come from different rows"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Differences of two models on the same rows, the first less the second.

    Each is an :class:`Estimate`. Made by :meth:`Evaluation.compare`.

    Attributes
    ----------
    first, second
        The models' names.
    pair
        What the differences are read from.
    margin
        How much worse in ROC AUC the first model may be; None where that was not asked.

    Examples
    --------
    >>> y_true, scores = [0, 1, 1, 0], {"new": [0.1, 0.8, 0.6, 0.3], "old": [0.3, 0.4, 0.9, 0.5]}
    >>> result = fg.evaluate({"a": fg.Examples(y_true, scores)}, models=["new", "old"])
    >>> result.compare("new", "old").roc_auc.value
    0.25
    """

    first: str
    second: str
    pair: ModelPair
    margin: float | None = None

    @property
    def is_paired(self) -> bool:
        """Whether both scores of each row were counted together."""
        return self.pair.joint is not None

    @property
    def basis(self) -> str:
        """What the intervals rest on, in words."""
        if self.pair.apart:
            return _APART
        return _JOINT if self.is_paired else _MARGINS

    @cached_property
    def roc_auc(self) -> Estimate:
        """Difference of the areas under the ROC curves."""
        return self.pair.roc_auc()

    @cached_property
    def average_precision(self) -> Estimate:
        """Difference of the average precisions."""
        return self.pair.average_precision()

    @cached_property
    def brier_score(self) -> Estimate:
        """Difference of the Brier scores: below 0, the first model is better."""
        return self.pair.brier_score()

    def net_benefit(self, threshold: float) -> Estimate:
        """Difference of the net benefits of acting on scores from a threshold up."""
        return self.pair.net_benefit(threshold)

    def at_threshold(self, threshold: float) -> DifferencesAt:
        """Differences of precision, recall and more at a threshold."""
        return self.pair.at_threshold(threshold)

    @property
    def verdict(self) -> str:
        """What the difference of the ROC AUCs shows, in words."""
        auc = self.roc_auc
        low, high = auc.low or 0.0, auc.high or 0.0
        if low > 0:
            return f"{self.first} is better than {self.second}: ROC AUC differs by {auc}."
        if high < 0 and (self.margin is None or high < -self.margin):
            return f"{self.first} is worse than {self.second}: ROC AUC differs by {auc}."
        if self.margin is None:
            return (
                f"it is undecided whether {self.first} or {self.second} is better: ROC AUC "
                f"differs by {auc}."
            )
        if low > -self.margin:
            return (
                f"{self.first} is not inferior to {self.second}: ROC AUC differs by {auc}, less "
                f"than the margin of {self.margin:g} below."
            )
        return (
            f"it is undecided whether {self.first} is inferior to {self.second} by the margin of "
            f"{self.margin:g}: ROC AUC differs by {auc}."
        )

    def __repr__(self) -> str:
        return f"<Comparison of {self.first} less {self.second}: ROC AUC {self.roc_auc}>"

    def __str__(self) -> str:
        rows = self._rows()
        width = max(len(title) for title, _ in rows)
        told = [f"{title:<{width}}  {text}" for title, text in rows]
        return "\n".join([f"{self.first} less {self.second}", *told])

    def _repr_html_(self) -> str:
        return _html.table(self._rows(), caption=f"{self.first} less {self.second}")

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("verdict", self.verdict), ("ROC AUC", str(self.roc_auc))]
        for title, name in (
            ("average precision", "average_precision"),
            ("Brier score", "brier_score"),
        ):
            try:
                rows.append((title, str(getattr(self, name))))
            except (UndefinedMetric, InputError):  # as of scores that are no probabilities
                continue
        return [*rows, ("intervals", self.basis)]


def compare(
    one: "Evaluation", other: "Evaluation", models: tuple[str, str], margin: float | None
) -> Comparison:
    """The comparison of two models' results on the same rows."""
    is_number = isinstance(margin, int | float | np.number)
    if margin is not None and not (is_number and 0.0 < margin < 1.0):
        raise InputError(f"margin must lie between 0 and 1, such as 0.01, got {margin!r}.")
    apart = one.plan.final.sends_reports
    pair = ModelPair(one._reading, other._reading, _joint(one, models), apart)
    return Comparison(*models, pair, margin)


def _joint(result: "Evaluation", models: tuple[str, str]) -> Joint | None:
    """Both scores together, if they were counted of these rows."""
    plan, released = result.plan, result.released
    for table, values, variance in tables_of(plan, released, result.slice.group, JointScores):
        if {*table.models} != {*models}:
            continue
        counts = np.asarray(values, dtype=np.float64).reshape(-1, *table.ranges(released.axis))
        starts = table.starts
        if table.models != models:
            counts, starts = counts.transpose(0, 2, 1), (starts[1], starts[0])
        return Joint(counts, starts, variance, is_all=not plan.final.nodes)
    return None
