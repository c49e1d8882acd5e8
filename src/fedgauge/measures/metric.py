"""A metric as an attribute: computed once, and a row of every table that lists metrics."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from fedgauge.measures.intervals import Estimate


class Metric(cached_property[Estimate]):
    """What a metric is called and where it is listed.

    An attribute of :class:`AtThreshold` or :class:`Evaluation`: there it is an
    :class:`Estimate`, made when first asked for. On the class it is this row, from which
    tables of the command line and saved results follow.

    Attributes
    ----------
    title
        As tables print it.
    listed
        Whether tables for people have it.
    recorded
        Whether a saved result has it.
    """

    def __init__(
        self,
        compute: Callable[[Any], Estimate],
        title: str,
        *,
        listed: bool = True,
        recorded: bool = False,
    ) -> None:
        super().__init__(compute)
        self.title = title
        self.listed = listed
        self.recorded = recorded

    @property
    def name(self) -> str:
        """The attribute, and the key in a saved result."""
        return str(self.attrname)


def metric(
    title: str, *, listed: bool = True, recorded: bool = False
) -> Callable[[Callable[[Any], Estimate]], Metric]:
    """Make a method a metric; its docstring is that of the metric."""
    return partial(Metric, title=title, listed=listed, recorded=recorded)


def metrics_of(kind: type) -> tuple[Metric, ...]:
    """The metrics of a class, in the order in which it lists them, those of its bases first."""
    return tuple(
        each
        for base in reversed(kind.__mro__)
        for each in vars(base).values()
        if isinstance(each, Metric)
    )
