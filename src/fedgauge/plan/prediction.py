"""What a planner expects of a plan: errors, and what would do better."""

from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

_NONE: Final = 1e-15  # error that stands for none


class PredictedErrors(NamedTuple):
    """Errors that a planner expects of one class by its score, for the pooled data."""

    roc_area_error: float
    pr_area_error: float
    roc_auc_error: float


class Prediction(PredictedErrors):
    """Those errors over all rows, and what else a planner says: not part of a plan's bytes.

    Attributes
    ----------
    span
        The least and the largest errors of plausible scores: what scores are like nobody knows
        beforehand.
    withheld
        The share of results that will say nothing because noise hides a class. In the errors each
        of them counts as 0.5.
    groups
        What to expect of one group, by what rows are grouped by, as if all groups were as large.
    advice
        What would have less noise; None where nothing is known to.
    instead
        What two rounds would give in the place of one, or one in the place of two; None where
        nobody asked.
    """

    span: tuple[PredictedErrors, PredictedErrors]
    withheld: float = 0.0
    groups: tuple[tuple[str, "Prediction"], ...] = ()
    advice: str | None = None
    instead: "Instead | None" = None

    @classmethod
    def of(cls, errors: PredictedErrors, span: tuple[PredictedErrors, PredictedErrors]) -> Self:
        """Errors, and their span."""
        made = cls(*errors)
        made.span = span
        return made

    @classmethod
    def of_worlds(cls, errors_by_world: NDArray[np.float64]) -> Self:
        """The geometric mean over worlds, and the least and the largest of them.

        A plain mean would be that of the world in which a plan does worst. Each row has the errors
        of one, and at last the share that is withheld.
        """
        errors, withheld = errors_by_world[:, :-1], errors_by_world[:, -1]
        usual = np.exp(np.log(np.maximum(errors, _NONE)).mean(axis=0))
        low, high = errors.min(axis=0), errors.max(axis=0)
        each = (np.where(high > 0, usual, 0.0), low, high)
        mean, least, largest = (PredictedErrors(*one.tolist()) for one in each)
        return cls.of(mean, (least, largest)).but(withheld=float(withheld.mean()))

    def but(self, **told: Any) -> Self:
        """The same errors, with something else said besides them."""
        made = type(self)(*self)
        vars(made).update(vars(self) | told)
        return made


class Instead(NamedTuple):
    """What as many rounds would give as a plan does not have, with so many bins."""

    rounds: int
    bins: int
    errors: Prediction
