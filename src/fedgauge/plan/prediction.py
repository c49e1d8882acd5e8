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
    """Errors over all rows, and other forecasts of a planner: not part of a plan's bytes."""

    span: tuple[PredictedErrors, PredictedErrors]  # least and largest errors over plausible scores
    withheld: float = 0.0  # share of results that noise hides; their error counts as 0.5
    groups: tuple[tuple[str, "Prediction"], ...] = ()  # for a group of each grouping, all alike
    advice: str | None = None  # how to get less noise, if anything is known
    instead: "Instead | None" = None  # two rounds in place of one, or the reverse

    @classmethod
    def of(cls, errors: PredictedErrors, span: tuple[PredictedErrors, PredictedErrors]) -> Self:
        """Errors, and their span."""
        made = cls(*errors)
        made.span = span
        return made

    @classmethod
    def of_worlds(cls, errors_by_world: NDArray[np.float64]) -> Self:
        """The geometric mean over worlds, and their least and largest errors.

        A plain mean would follow the hardest world. Rows: the errors of a world, and the share
        withheld.
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
