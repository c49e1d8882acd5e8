"""What a planner expects of a plan."""

from collections.abc import Sequence
from typing import NamedTuple, Self


class Errors(NamedTuple):
    """Errors that a planner expects of one class by its score, for the pooled data."""

    roc_area_error: float
    pr_area_error: float
    roc_auc_error: float


class Prediction(Errors):
    """Those errors over all rows, and what else a planner says: not part of a plan's bytes.

    Attributes
    ----------
    groups
        The errors of one group, by what rows are grouped by, as if all groups were as large.
    advice
        What would have less noise; None where nothing is known to.
    """

    groups: tuple[tuple[str, Errors], ...] = ()
    advice: str | None = None

    @classmethod
    def of(
        cls, errors: Errors, groups: Sequence[tuple[str, Errors]] = (), advice: str | None = None
    ) -> Self:
        """Errors, those of groups, and advice."""
        made = cls(*errors)
        made.groups, made.advice = tuple(groups), advice
        return made
