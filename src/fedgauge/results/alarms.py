"""What a series of results raises where something moved, and what is watched in words."""

from __future__ import annotations

from typing import Final, NamedTuple

from fedgauge.measures.metric import metrics_of
from fedgauge.measures.thresholds import AtThreshold
from fedgauge.results.evaluation import Evaluation

_TESTS: Final = {
    "jump": "this look is far from those before it",
    "shift": "the last three looks together are far from those before them",
    "drift": "looks have moved one way, little by little",
}


class Alarm(NamedTuple):
    """Something that moved by more than chance, sampling and noise explain.

    Attributes
    ----------
    look
        The name of the look that raised it.
    metric, threshold
        What moved; the threshold where it is at one.
    tests
        Which tests say so: ``jump``, ``shift``, ``drift``.
    by
        How far the look is from the mean of those before it.

    Examples
    --------
    >>> import fedgauge as fg
    >>> print(fg.Alarm("2026-W10", "recall", 0.5, ("jump",), -0.0821))
    2026-W10: recall at 0.5 moved by -0.0821 (this look is far from those before it)
    """

    look: str
    metric: str
    threshold: float | None
    tests: tuple[str, ...]
    by: float

    @property
    def why(self) -> str:
        """What the tests say, in words."""
        return "; ".join(_TESTS[test] for test in self.tests)

    def __str__(self) -> str:
        what = title(self.metric, self.threshold)
        return f"{self.look}: {what} moved by {self.by:+.4f} ({self.why})"


def title(name: str, at: float | None = None) -> str:
    """Something that is watched, as tables call it."""
    rows = {row.name: row.title for kind in (Evaluation, AtThreshold) for row in metrics_of(kind)}
    told = rows.get(name, name.replace("_", " "))
    return told if at is None else f"{told} at {at:g}"
