"""What a planner expects of a plan."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

_NONE: Final = 1e-15  # error that stands for none


class Errors(NamedTuple):
    """Errors that a planner expects of one class by its score, for the pooled data."""

    roc_area_error: float
    pr_area_error: float
    roc_auc_error: float

    @classmethod
    def of_worlds(cls, played: NDArray[np.float64]) -> tuple["Errors", tuple["Errors", "Errors"]]:
        """The geometric mean over worlds, one to a row, and the least and the largest of them.

        A plain mean would be that of the world in which a plan does worst.
        """
        usual = np.exp(np.log(np.maximum(played, _NONE)).mean(axis=0))
        low, high = played.min(axis=0), played.max(axis=0)
        each = (np.where(high > 0, usual, 0.0), low, high)
        mean, least, largest = (cls(*errors.tolist()) for errors in each)
        return mean, (least, largest)


class Prediction(Errors):
    """Those errors over all rows, and what else a planner says: not part of a plan's bytes.

    Attributes
    ----------
    span
        The least and the largest errors of plausible scores: what scores are like nobody knows
        beforehand.
    groups
        What to expect of one group, by what rows are grouped by, as if all groups were as large.
    advice
        What would have less noise; None where nothing is known to.
    instead
        What two rounds would give in the place of one, or one in the place of two; None where
        nobody asked.
    """

    span: tuple[Errors, Errors]
    groups: tuple[tuple[str, "Prediction"], ...] = ()
    advice: str | None = None
    instead: "Instead | None" = None

    @classmethod
    def of(
        cls,
        errors: Errors,
        span: tuple[Errors, Errors],
        groups: Sequence[tuple[str, "Prediction"]] = (),
        advice: str | None = None,
        instead: "Instead | None" = None,
    ) -> Self:
        """Errors, their span, those of groups, advice, and what else could be done."""
        made = cls(*errors)
        made.span, made.groups = span, tuple(groups)
        made.advice, made.instead = advice, instead
        return made


class Instead(NamedTuple):
    """What as many rounds would give as a plan does not have, with so many bins."""

    rounds: int
    bins: int
    errors: Prediction
