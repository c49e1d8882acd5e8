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
    """Errors over all rows, and other forecasts of a planner: not part of a plan's bytes.

    Attributes
    ----------
    span
        The least and the largest errors over plausible scores.
    withheld
        The share of results that say nothing because noise hides a class; their error counts as
        0.5.
    groups
        The prediction for one group of each grouping, as if all groups were equally large.
    advice
        How to get less noise; None if nothing is known.
    instead
        What two rounds would give in place of one, or one in place of two.
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
        """The geometric mean over worlds, and their least and largest errors.

        A plain mean would follow the hardest world. A row has the errors of one world, and the
        share withheld.
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
