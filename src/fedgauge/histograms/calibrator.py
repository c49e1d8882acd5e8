"""`Calibrator`: a map from scores to probabilities, its forms and its file."""

import hashlib
import math
import re
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.data.columns import floats_of, read_only_column
from fedgauge.errors import CalibratorError, InputError
from fedgauge.storage import read_bounded, write_whole

LOWEST: Final = -700.0  # in log-odds; exp overflows at 710

MOST_KNOTS: Final = 1 << 16
_FARTHEST: Final = 1e6  # of any number in log-odds: those of the smallest float are -745


class Stretches(NamedTuple):
    """Parts of the scores from 0 to 1 on which a map rises or stands still.

    `ends` lie between them: a score at one belongs to the upper part. `values` has one more, each
    what all scores of a part become, NaN where the map rises.
    """

    ends: Floats
    values: Floats


class Beta(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="beta"):
    """A smooth map: the log-odds of the result are ``c + a log(x) - b log(1 - x)``.

    Kull et al. 2017. With ``a = b`` it is Platt scaling in log-odds, with ``c = 0`` besides
    temperature scaling. 0 and 1 stay where they are, unless `a` or `b` is 0.
    """

    a: float
    b: float
    c: float

    def __post_init__(self) -> None:
        for name in ("a", "b", "c"):
            number = _numbers(f"{name} of a beta map", [getattr(self, name)])[0]
            msgspec.structs.force_setattr(self, name, number)
        if self.a < 0 or self.b < 0:
            raise CalibratorError(
                "a and b of a beta map cannot be negative: higher scores would come out lower. "
                "Set a negative one to 0 and fit the other two again."
            )

    @property
    def is_monotone(self) -> bool:
        """Whether a higher score never comes out lower."""
        return True

    @property
    def is_strict(self) -> bool:
        """Whether a higher score always comes out higher."""
        return self.a > 0 or self.b > 0

    def in_words(self) -> str:
        """What it looks like."""
        return "a smooth curve of three numbers"

    def apply(self, scores: Floats) -> Floats:
        """The calibrated scores."""
        log_odds = np.full(scores.shape, self.c)
        with np.errstate(divide="ignore"):  # 0 and 1 have endless log-odds
            if self.a:
                log_odds += self.a * np.log(scores)
            if self.b:
                log_odds -= self.b * np.log1p(-scores)
        return _probabilities(log_odds)

    def stretches(self) -> Stretches:
        """Where it stands still."""
        alike = np.nan if self.is_strict else self.apply(np.array([0.5]))[0]
        return Stretches(np.empty(0), np.array([alike]))


class LogOddsLine(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="log-odds-line",
    dict=True,
):
    """Straight pieces from log-odds of scores, `x`, to those of the result, `y`; slope 1 beyond."""

    x: tuple[float, ...]
    y: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("x", "y"):
            knots = _numbers(f"knots {name} of a map", getattr(self, name))
            msgspec.structs.force_setattr(self, name, knots)
        if not self.x or len(self.x) != len(self.y):
            raise CalibratorError("a map needs at least one knot, and one y for each x.")
        if not _increase(self.x):
            raise CalibratorError("the knots x of a map must increase; sort them, drop repeats.")
        if any(later < earlier for earlier, later in pairwise(self.y)):
            raise CalibratorError(
                "the knots y of a map cannot decrease: higher scores would come out lower. Make "
                "them isotonic first."
            )

    @property
    def is_monotone(self) -> bool:
        """Whether a higher score never comes out lower."""
        return True

    @cached_property
    def is_strict(self) -> bool:
        """Whether a higher score always comes out higher."""
        return _increase(self.y)

    def in_words(self) -> str:
        """What it looks like."""
        return f"straight pieces between {_counted(len(self.x), 'knot')}, in log-odds"

    @cached_property
    def _knots(self) -> tuple[Floats, Floats]:
        return np.array(self.x), np.array(self.y)

    def apply(self, scores: Floats) -> Floats:
        """The calibrated scores."""
        x, y = self._knots
        with np.errstate(divide="ignore"):  # 0 and 1 have endless log-odds
            log_odds = np.log(scores) - np.log1p(-scores)
        last = len(x) - 1
        after = np.searchsorted(x, log_odds, side="right")
        lower, upper = np.maximum(after - 1, 0), np.minimum(after, last)
        with np.errstate(divide="ignore", invalid="ignore"):  # beyond the ends, replaced below
            share = (log_odds - x[lower]) / (x[upper] - x[lower])
            # Rounding may take the end of a piece above the knot it leads to.
            mapped = np.minimum(y[lower] + share * (y[upper] - y[lower]), y[upper])
        mapped = np.where(after == 0, y[0] + (log_odds - x[0]), mapped)
        return _probabilities(np.where(after > last, y[last] + (log_odds - x[last]), mapped))

    def stretches(self) -> Stretches:
        """Where it stands still."""
        x, y = self._knots
        ends = np.concatenate([[0.0], _probabilities(x), [1.0]])
        values = np.where(np.diff(y) > 0, np.nan, _probabilities(y)[:-1])
        values = np.concatenate([[np.nan], values, [np.nan]])
        some = np.diff(ends) > 0  # knots far out are one float
        return _joined(ends[:-1][some][1:], values[some])


class Steps(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="steps",
    dict=True,
):
    """One value for all scores of a step: from its edge on, up to the next one.

    `values` has one more than `edges`. They may fall, as histogram binning and BBQ fit them.
    """

    edges: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("edges", "values"):
            points = _numbers(f"the {name} of a map's steps", getattr(self, name))
            if not all(0.0 <= point <= 1.0 for point in points):
                raise CalibratorError(
                    f"the {name} of a map's steps must lie between 0 and 1. Divide percentages "
                    "by 100."
                )
            msgspec.structs.force_setattr(self, name, points)
        if len(self.values) != len(self.edges) + 1:
            raise CalibratorError("the steps of a map have one value more than edges between them.")
        if not _increase(self.edges):
            raise CalibratorError("the edges of a map's steps must increase; sort, drop repeats.")

    @cached_property
    def is_monotone(self) -> bool:
        """Whether a higher score never comes out lower."""
        return all(low <= high for low, high in pairwise(self.values))

    @property
    def is_strict(self) -> bool:
        """Whether a higher score always comes out higher: never, within a step all are equal."""
        return False

    def in_words(self) -> str:
        """What it looks like."""
        return _counted(len(self.values), "step")

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats]:
        return np.array(self.edges), np.array(self.values)

    def apply(self, scores: Floats) -> Floats:
        """The calibrated scores."""
        edges, values = self._arrays
        mapped: Floats = values[np.searchsorted(edges, scores, side="right")]
        return mapped

    def stretches(self) -> Stretches:
        """Where it stands still: everywhere."""
        return _joined(*self._arrays)


def _probabilities(log_odds: Floats) -> Floats:
    """The probability of each log-odds: rounded, but never out of order.

    Each step of 1 / (1 + exp(-t)) is monotone when rounded, unlike exp(t) / (1 + exp(t)). Where
    exp(-t) would overflow, exp(t) is what is left of it.
    """
    inside = np.maximum(log_odds, LOWEST)
    usual = 1.0 / (1.0 + np.exp(-inside))
    probabilities: Floats = np.where(
        log_odds < LOWEST, np.minimum(np.exp(np.minimum(log_odds, 0.0)), usual), usual
    )
    return probabilities


def _joined(ends: Floats, values: Floats) -> Stretches:
    """Stretches with neighbours that are alike made one."""
    before, after = values[:-1], values[1:]
    changes = ~((before == after) | (np.isnan(before) & np.isnan(after)))
    return Stretches(ends[changes], values[np.append(True, changes)])


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    try:
        array: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise CalibratorError(f"{name} must be numbers.") from None
    if array.ndim != 1 or array.size > MOST_KNOTS:
        raise CalibratorError(f"{name} must be a flat list of at most {MOST_KNOTS:,} numbers.")
    if not np.all(np.abs(array) <= _FARTHEST):
        raise CalibratorError(f"{name} must be finite, and at most {_FARTHEST:,.0f} from 0.")
    return tuple((array + 0.0).tolist())  # -0.0 and 0.0 are one number and must digest alike


def _increase(points: tuple[float, ...]) -> bool:
    return all(low < high for low, high in pairwise(points))


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


__all__ = ["Beta", "Calibrator", "Fitted", "LogOddsLine", "Steps"]

MOST_BYTES: Final = 1 << 22  # holds the most knots, at two numbers of 25 bytes each
FORMAT: Final = "fedgauge-calibrator/1"
_MOST_COUNT: Final = 1 << 62
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_DIGEST: Final = re.compile(r"([0-9a-f]{64})?")
_MOST_WORDS: Final = 200


class Fitted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a map was fitted on; with noise numbers of examples are estimates.

    Whoever has the result knows by `source` that a map is judged on what it was fitted on. It tells
    others no more than the numbers of the map, which follow from the counts as well.
    """

    examples: int
    positives: int
    privacy: str  # what may be said of the privacy of the result
    epsilon: float | None = None  # of differential privacy
    delta: float | None = None
    plan: str = ""  # digest of the plan of that result
    source: str = ""  # digest of its counts
    caution: str = ""  # why the map is not to be relied on, if anything

    def __post_init__(self) -> None:
        if not all(0 <= count <= _MOST_COUNT for count in (self.examples, self.positives)):
            raise CalibratorError("a map was fitted on no less than 0 examples, and under 2^62.")
        for words in (self.privacy, self.caution):
            if len(words) > _MOST_WORDS or not words.isprintable():
                raise CalibratorError(
                    "the privacy statement and the caution of a map are one line each, of at "
                    f"most {_MOST_WORDS} characters."
                )
        for promised in (self.epsilon, self.delta):
            if promised is not None and not 0 <= promised < math.inf:
                raise CalibratorError("the epsilon and delta of a map must be finite, 0 or more.")
        if not all(_DIGEST.fullmatch(digest) for digest in (self.plan, self.source)):
            raise CalibratorError(
                "the plan and the source that a map names must be digests, 64 digits of hex."
            )


class Calibrator(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="format",
    tag=FORMAT,
    dict=True,
):
    """A map from scores to calibrated probabilities.

    Made by ``result.calibrator("auto")``. It holds a few numbers and no row, and costs no privacy
    beyond the result it was fitted on.

    Parameters
    ----------
    method
        The name of what fitted it.
    form
        The map itself.
    fitted
        What it was fitted on; None where that is left out, as in a plan.

    Examples
    --------
    >>> calibrator = Calibrator("temperature", Beta(0.5, 0.5, 0.0))
    >>> calibrator.transform([0.0, 0.1, 0.5, 1.0])
    array([0.  , 0.25, 0.5 , 1.  ])
    >>> Calibrator.from_bytes(calibrator.to_bytes()) == calibrator
    True
    """

    method: str
    form: Beta | LogOddsLine | Steps
    fitted: Fitted | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.method):
            raise CalibratorError(
                "the method of a map is a name of small letters, digits and hyphens, at most 40."
            )

    @property
    def is_monotone(self) -> bool:
        """Whether a higher score never comes out lower."""
        return self.form.is_monotone

    @property
    def is_strict(self) -> bool:
        """Whether a higher score always comes out higher, so that ROC curve and AUC stay."""
        return self.form.is_strict

    def __repr__(self) -> str:
        told = "" if self.fitted is None else f", fitted to {self.fitted.examples:,} examples"
        return f"<Calibrator {self.in_words()}{told}>"

    def in_words(self) -> str:
        """What fitted it, and its form, in one line, such as "binning (2 steps)"."""
        return f"{self.method} ({self.form.in_words()})"

    def transform(self, scores: Any) -> Floats:
        """Calibrated probabilities of scores, in their order.

        Scores are a list, an array, a column of a data frame, or a frame or array with one column.
        InputError if one is missing, is no number, or lies outside 0 to 1.
        """
        column = read_only_column("scores", scores)
        numbers = floats_of(column)
        _check_scores(numbers)
        return self.form.apply(numbers)

    def pull_back(self, edges: Floats) -> Floats:
        """The least score that the map takes to each edge in (0, 1], or above it.

        So bins of mapped scores are bins of scores. Where only scores above 1 get there, the next
        float after 1 is given.

        >>> steps = Calibrator("binning", Steps([0.25, 0.5], [0.1, 0.4, 0.8]))
        >>> steps.pull_back(np.array([0.1, 0.3, 0.4, 0.7]))
        array([0.  , 0.25, 0.25, 0.5 ])
        """
        # Halving the floats themselves, which are in order as whole numbers: exact, in 62 steps.
        one = int(np.float64(1.0).view(np.int64))
        low = np.zeros(len(edges), dtype=np.int64)
        high = np.full(len(edges), one + 1)
        while np.any(low < high):
            middle = np.minimum(low + (high - low) // 2, one)
            reaches = self.form.apply(middle.view(np.float64)) >= edges
            low, high = np.where(reaches, low, middle + 1), np.where(reaches, middle, high)
        return low.view(np.float64)

    def without_facts(self) -> "Calibrator":
        """The same map without what it was fitted on: what a plan carries."""
        return Calibrator(self.method, self.form)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the map itself: equal maps have equal ones, whatever they were fitted on."""
        return hashlib.sha256(msgspec.json.encode(self.form)).hexdigest()

    def to_bytes(self) -> bytes:
        """The map as JSON, always the same bytes."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Calibrator":
        """Read a map from JSON."""
        if len(data) > MOST_BYTES:
            raise CalibratorError(f"a map has at most {MOST_BYTES:,} bytes, got {len(data):,}.")
        try:
            _check_header(msgspec.json.decode(data, type=_CalibratorHeader))
            return msgspec.json.decode(data, type=cls)
        except CalibratorError:
            raise
        except msgspec.MsgspecError as error:
            if isinstance(error.__cause__, CalibratorError):
                raise error.__cause__ from None
            raise CalibratorError(f"this is not a fedgauge map: {error}.") from None
        except (UnicodeDecodeError, RecursionError, ValueError):
            raise CalibratorError(
                "this is not a fedgauge map: it is not UTF-8, is nested too deeply, or holds "
                "numbers that are too long."
            ) from None

    def to_json(self, path: str | Path) -> None:
        """Write the map to a file."""
        write_whole(path, self.to_bytes())

    @classmethod
    def from_json(cls, path: str | Path) -> "Calibrator":
        """Read a map from a file."""
        try:
            data = read_bounded(path, MOST_BYTES)
        except OSError as error:
            raise CalibratorError(
                f"cannot read {path}: {error.strerror}. Name the JSON file of a map, such as "
                "`fedgauge calibrate` saves."
            ) from None
        try:
            return cls.from_bytes(data)
        except CalibratorError as error:
            raise CalibratorError(f"{path}: {error}") from None


class _CalibratorHeader(msgspec.Struct):
    format: str = ""


def _check_header(header: _CalibratorHeader) -> None:
    kind, _, _ = header.format.partition("/")
    if kind == "fedgauge-evaluation":
        raise CalibratorError(
            "this is a result, not a map. Fit a map on it first: fedgauge calibrate RESULT -o "
            "map.json."
        )
    if kind != FORMAT.partition("/")[0]:
        raise CalibratorError(
            "this is not a fedgauge map. Name the JSON file that `fedgauge calibrate` or "
            "Calibrator.to_json saved."
        )
    if header.format != FORMAT:
        raise CalibratorError(
            "this map was saved by another version of fedgauge; this one reads "
            f"{FORMAT!r}. Fit it again."
        )


def _check_scores(scores: Floats) -> None:
    if not scores.size:
        return
    lowest, highest = scores.min(), scores.max()  # both NaN if any score is NaN
    if lowest >= 0.0 and highest <= 1.0:
        return
    missing = int(np.count_nonzero(np.isnan(scores)))
    if missing:
        raise InputError(
            f"{missing:,} of {scores.size:,} scores are missing or no numbers. Drop these rows, or "
            "fill them in, first."
        )
    outside = int(np.count_nonzero((scores < 0.0) | (scores > 1.0)))
    raise InputError(
        f"{outside:,} of {scores.size:,} scores lie outside 0 to 1, and a map takes probabilities. "
        "Divide percentages by 100; of log-odds t take 1 / (1 + exp(-t))."
    )
