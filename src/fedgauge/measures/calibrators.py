"""The calibrators: one row for each way to fit a map to counts, and how far to trust it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fedgauge.binning.forms import Beta, LogOddsLine, Steps
from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.measures import bbq, shapes, smoothing, stepped
from fedgauge.measures.forecasts import Forecasts

Form = Beta | LogOddsLine | Steps

# Information on the slope of a map: examples at even odds whose log-odds are 2 from their mean
# have 1 each. 30 positives at epsilon 1, or 120 at 0.3, came to 20 to 25; below that a map with a
# shape was often worse than the scores as they were.
_SHAPELESS: Final = 20.0
_VAGUE: Final = 100.0  # a slope known to 0.2 either way


@dataclass(frozen=True)
class Method:
    """How a map is fitted.

    Attributes
    ----------
    name
        As in ``result.calibrator(name)``.
    title
        For people.
    fit
        The map of forecasts.
    """

    name: str
    title: str
    fit: Callable[[Forecasts], Form]


METHODS: Final = {
    row.name: row
    for row in (
        Method("auto", "beta calibration, moved where counts contradict it", smoothing.smooth),
        Method("beta", "beta calibration (Kull et al. 2017)", shapes.beta),
        Method("isotonic", "isotonic regression (Zadrozny & Elkan 2002)", stepped.isotonic),
        Method("platt", "a line in log-odds (Platt 1999)", shapes.platt),
        Method("temperature", "one factor for log-odds (Guo et al. 2017)", shapes.temperature),
        Method("binning", "histogram binning (Zadrozny & Elkan 2001)", stepped.binning),
        Method("bbq", "Bayesian binning into quantiles (Naeini et al. 2015)", bbq.bbq),
        Method("scaling-binning", "a binned curve (Kumar et al. 2019)", stepped.scaling_binning),
    )
}


def fit(forecasts: Forecasts, method: str = "auto") -> Form:
    """The map that a method fits to forecasts.

    Where noise leaves too little to tell a shape by, whatever the method, the map moves all
    log-odds by one number; :func:`caution` says so.

    Examples
    --------
    >>> import fedgauge as fg
    >>> from fedgauge.measures.reading import Reading
    >>> result = fg.evaluate({"a": ([0, 1, 0, 1, 1], [0.2, 0.2, 0.6, 0.6, 0.6])})
    >>> forecasts = Forecasts.of(Reading(result.pooled, result.estimator, result.level))
    >>> [round(value, 3) for value in fit(forecasts, "isotonic").values]
    [0.5, 0.667]
    """
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}; got {method!r}.")
    for count, name in zip(forecasts.counts.sum(axis=1), ("negative", "positive"), strict=True):
        if count <= 0:
            raise UndefinedMetric(
                f"no client has a {name} example, so there is no map to fit. Check which label "
                "counts as positive (positive=...)."
            )
    if forecasts.pooled.noisy and shapes.slope(forecasts)[1] < _SHAPELESS:
        return shapes.shift(forecasts)
    return METHODS[method].fit(forecasts)


def caution(forecasts: Forecasts) -> str | None:
    """Why a fitted map is not to be relied on, if it is not."""
    slope, information = shapes.slope(forecasts)
    if forecasts.pooled.noisy and information < _SHAPELESS:
        return (
            "noise leaves too little to tell the shape of a map by, so this one moves all "
            "log-odds by one number"
        )
    if slope < 0:
        return (
            "higher scores do not come with a larger share of positives, so the map is all but "
            "flat; check which label counts as positive"
        )
    if information < _VAGUE:
        known = f"to {1.96 / information**0.5:.1f} either way" if information > 1 else "not at all"
        return f"there is little to tell the shape of a map by: its slope is known {known}"
    return forecasts.pooled.faint
