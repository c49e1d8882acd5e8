"""What a planner expects of a plan."""

from collections.abc import Sequence
from typing import NamedTuple, Self


class Errors(NamedTuple):
    """Errors that a planner expects of one class by its score, for the pooled data."""

    roc_area_error: float
    pr_area_error: float
    roc_auc_error: float


class Instead(NamedTuple):
    """What as many rounds would give as a plan does not have, with so many bins."""

    rounds: int
    bins: int
    errors: Errors


class Prediction(Errors):
    """Those errors over all rows, and what else a planner says: not part of a plan's bytes.

    Attributes
    ----------
    groups
        The errors of one group, by what rows are grouped by, as if all groups were as large.
    advice
        What would have less noise; None where nothing is known to.
    instead
        What two rounds would give in the place of one, or one in the place of two; None where
        nobody asked.
    """

    groups: tuple[tuple[str, Errors], ...] = ()
    advice: str | None = None
    instead: Instead | None = None

    @classmethod
    def of(
        cls,
        errors: Errors,
        groups: Sequence[tuple[str, Errors]] = (),
        advice: str | None = None,
        instead: Instead | None = None,
    ) -> Self:
        """Errors, those of groups, advice, and what else could be done."""
        made = cls(*errors)
        made.groups, made.advice, made.instead = tuple(groups), advice, instead
        return made
