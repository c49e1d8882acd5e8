"""Who must take part before anything is released."""

from numbers import Integral
from typing import Final

import msgspec

from fedgauge.errors import PlanError

MOST_CLIENTS: Final = 1 << 24  # four times as many as sums of the largest counts have room for


class Cohort(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The clients a release needs.

    Parameters
    ----------
    min_survivors
        Fewest contributions that a released sum may hold.
    max_colluding
        How many contributors may pool what they know with the reader of the result. By default 1: a
        contributor who reads the result can subtract its own part.

    Examples
    --------
    >>> fg.Cohort(min_survivors=5, max_colluding=1)  # at least five stay, one may collude
    Cohort(min_survivors=5, max_colluding=1)
    """

    min_survivors: int = 3
    max_colluding: int = 1

    def __post_init__(self) -> None:
        for name in ("min_survivors", "max_colluding"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral):
                raise PlanError(f"{name} must be a whole number, got {type(value).__name__}.")
            msgspec.structs.force_setattr(self, name, int(value))
        if self.min_survivors < 1:
            raise PlanError(f"min_survivors must be at least 1, got {self.min_survivors}.")
        if max(self.min_survivors, self.max_colluding) > MOST_CLIENTS:
            raise PlanError(f"a cohort has at most {MOST_CLIENTS:,} clients.")
        if self.max_colluding < 0:
            raise PlanError(f"max_colluding cannot be negative, got {self.max_colluding}.")
