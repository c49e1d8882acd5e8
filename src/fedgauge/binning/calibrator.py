"""The calibrator: a map from scores to calibrated probabilities, small enough to travel."""

import hashlib
import math
import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from fedgauge.binning import scalar
from fedgauge.binning.forms import Beta, LogOddsLine, Steps
from fedgauge.data.columns import floats_of, read_only_column
from fedgauge.errors import CalibratorError, InputError
from fedgauge.storage.whole import read_bounded, write_whole
from fedgauge.typing import Floats

if TYPE_CHECKING:
    from fedgauge.binning.transformer import CalibratorTransformer

__all__ = ["Beta", "Calibrator", "Fitted", "LogOddsLine", "Steps", "mapped"]

MOST_BYTES: Final = 1 << 22  # holds the most knots, at two numbers of 25 bytes each
FORMAT: Final = "fedgauge-calibrator/1"
_MOST_COUNT: Final = 1 << 62
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_DIGEST: Final = re.compile(r"([0-9a-f]{64})?")
_MOST_WORDS: Final = 200


class Fitted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a map was fitted on.

    Parameters
    ----------
    examples, positives
        How many, rounded; under noise as estimated.
    privacy
        What may be said of the privacy of the result it was fitted on.
    epsilon, delta
        Of differential privacy; None without.
    plan
        The digest of the plan of that result.
    source
        The digest of its counts: whoever has that result can tell that a map is judged on what it
        was fitted on. It tells others no more than the numbers of the map do, which follow from
        the counts as well.
    caution
        Why the map is not to be relied on; empty where nothing speaks against it.
    """

    examples: int
    positives: int
    privacy: str
    epsilon: float | None = None
    delta: float | None = None
    plan: str = ""
    source: str = ""
    caution: str = ""

    def __post_init__(self) -> None:
        if not all(0 <= count <= _MOST_COUNT for count in (self.examples, self.positives)):
            raise CalibratorError("a map was fitted on no less than 0 examples, and under 2^62.")
        for words in (self.privacy, self.caution):
            if len(words) > _MOST_WORDS or not words.isprintable():
                raise CalibratorError(
                    "what a map says of privacy, and its caution, is one line of at most "
                    f"{_MOST_WORDS} characters."
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

    Made by ``result.calibrator("auto")`` from the counts of a result, and made to travel: it
    holds a few numbers, no row, and costs no privacy beyond the result it was fitted on.

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
    >>> calibrator.is_strict
    True
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

    def in_words(self) -> str:
        """What fitted it, and what it looks like: one line.

        Examples
        --------
        >>> Calibrator("binning", Steps([0.5], [0.1, 0.8])).in_words()
        'binning (2 steps)'
        """
        return f"{self.method} ({self.form.in_words()})"

    def transform(self, scores: Any) -> Floats:
        """Calibrated probabilities of scores, in their order.

        Parameters
        ----------
        scores
            Numbers from 0 to 1: a list, an array, a column of a data frame, or a frame or array
            that has one column.

        Raises
        ------
        InputError
            If a score is missing, is no number, or lies outside 0 to 1.
        """
        column = read_only_column("scores", scores)
        numbers = floats_of(column)
        _check_scores(numbers)
        return self.form.apply(numbers)

    def pull_back(self, edges: Floats) -> Floats:
        """The least score that :func:`mapped` takes to each edge or above it.

        So bins of mapped scores are bins of scores: a map that never falls, and an axis, are
        another axis. Edges lie in (0, 1]; where only scores above 1 get there, the next float
        after 1 is given.

        Examples
        --------
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

    def to_python(self) -> str:
        """The map as Python source: a function ``calibrate(score)`` that needs Python alone.

        For phones, databases and other places without NumPy.

        Examples
        --------
        >>> space = {}
        >>> exec(Calibrator("temperature", Beta(0.5, 0.5, 0.0)).to_python(), space)
        >>> round(space["calibrate"](0.1), 12)
        0.25
        """
        return scalar.source(self.in_words(), self.digest, self.form.to_python())

    def as_transformer(self) -> "CalibratorTransformer":
        """The map as scikit-learn's pipelines want it; fitting it again does nothing.

        Examples
        --------
        >>> Calibrator("temperature", Beta(0.5, 0.5, 0.0)).as_transformer().transform([[0.1]])
        array([[0.25]])
        """
        from fedgauge.binning.transformer import CalibratorTransformer

        return CalibratorTransformer(self)

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
            _check_header(msgspec.json.decode(data, type=_Header))
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


def mapped(scores: Floats, calibrator: Calibrator | None) -> Floats:
    """The scores of rows on their way to bins; as they came where there is no map.

    Scores outside 0 to 1, and what is no number, also stay as they came. What becomes of them is
    the axis's to say, and they are noticed there.
    """
    if calibrator is None:
        return scores
    # NumPy's logarithm of a number depends on how its array lies in memory, and a row that stays as
    # it is must not change that for the others, nor the time that they take.
    inside = (scores >= 0.0) & (scores <= 1.0)
    return np.where(inside, calibrator.form.apply(np.where(inside, scores, 0.5)), scores)


class _Header(msgspec.Struct):
    format: str = ""


def _check_header(header: _Header) -> None:
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
