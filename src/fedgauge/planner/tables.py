"""Real scores as worlds: small tables of quantiles, moved to another share of positives."""

from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Final

import msgspec
import numpy as np

from fedgauge.typing import Floats

_FILE: Final = "score_tables.json"


class ScoreQuantiles(msgspec.Struct, frozen=True, dict=True):
    """Quantiles of the log-odds that a model gave, and how much more likely positives are there.

    Quantiles are those of both classes together, each counting the same, at the middles of equal
    shares: one that comes more than once is shared by as many of the rows, as forests, neighbours
    and naive Bayes tie. What both classes have in common may be rough; their ratio is smooth, as
    it is in samples. Of another share of positives log-odds move by as much as the prior odds do.
    Scores of 0 and 1 have log-odds of -40 and 40, beyond all others.
    """

    name: str
    positive_rate: float
    quantiles: tuple[float, ...]
    log_ratios: tuple[float, ...]

    def shares(self, log_odds: Floats, positive_rate: float) -> tuple[Floats, Floats]:
        """Shares of negatives and of positives below, between and above such values."""
        moved = log_odds - (_prior_odds(positive_rate) - _prior_odds(self.positive_rate))
        both = np.diff(np.interp(moved, *self._knots), prepend=0.0, append=1.0)
        middles = (np.append(moved[0], moved) + np.append(moved, moved[-1])) / 2
        ratio = np.exp(np.interp(middles, *self._ratios))
        negatives, positives = both / (1 + ratio), both * ratio / (1 + ratio)
        return negatives / negatives.sum(), positives / positives.sum()

    @cached_property
    def _knots(self) -> tuple[Floats, Floats]:
        return _knots(self.quantiles)

    @cached_property
    def _ratios(self) -> tuple[Floats, Floats]:
        values, first = np.unique(self.quantiles, return_index=True)
        return values, np.array(self.log_ratios)[first]


def _prior_odds(share: float) -> float:
    return float(np.log(share / (1 - share)))


def _knots(quantiles: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Points of the share below: it jumps at a value that comes more than once."""
    values, counts = np.unique(quantiles, return_counts=True)
    through = np.cumsum(counts)
    tied = counts > 1
    # A value of its own stands for as much below it as above.
    left = np.where(tied, through - counts, through - 0.5)
    right = np.where(tied, through, through - 0.5)
    ends = values[0] - (values[1] - values[0]), values[-1] + (values[-1] - values[-2])
    x = np.concatenate([[ends[0]], np.stack([values, np.nextafter(values, np.inf)], 1).ravel()])
    y = np.concatenate([[0.0], np.stack([left, right], 1).ravel()])
    return np.append(x, ends[1]), np.append(y, through[-1]) / through[-1]


class _Stored(msgspec.Struct, frozen=True):
    source: str
    tables: tuple[ScoreQuantiles, ...]


@lru_cache(maxsize=1)
def score_tables() -> tuple[ScoreQuantiles, ...]:
    """The tables that come with the package, of public data.

    Examples
    --------
    >>> [table.name for table in score_tables()][:2]
    ['adult bayes test', 'adult forest test']
    """
    stored = (files("fedgauge.planner") / _FILE).read_bytes()
    return msgspec.json.decode(stored, type=_Stored).tables
