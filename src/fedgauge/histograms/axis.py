"""The score axis: frozen edges that are the same bytes everywhere, and the bin of each score."""

import hashlib
import math
import reprlib
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats, Indices
from fedgauge.errors import AxisError

SlotFunction = Callable[[Floats], Indices]

_SLOTS_PER_EDGE = 4
_MOST_SLOTS = 1 << 18  # the table of first edges stays within a core's cache
_MOST_COMPARISONS = 4  # beyond this a binary search is as fast
_GRID = 4096  # parts of [0, 1], a power of two: a score times this is exact


class BinLookup:
    """Index of the bin that holds each score.

    `edges` are at least two increasing floats; the last may repeat (a bin of one value). Bin i is
    [edges[i], edges[i+1]), the last bin is closed.
    """

    def __init__(self, edges: Floats) -> None:
        self._inner = edges[1:-1]
        self._bins = len(edges) - 1
        self._direct: SlotFunction | None = None
        self._on_grid = False
        self._comparisons = _MOST_COMPARISONS + 1
        low, high = float(edges[0]), float(edges[-1])
        # Slots need a width that neither overflows nor underflows when divided.
        if math.isfinite(high - low) and high - low > _MOST_SLOTS * np.finfo(float).tiny:
            direct = _linear_slots(low, high, self._bins)
            if _is_exact(direct, edges):
                self._direct = direct
            elif (low, high) == (0.0, 1.0) and np.isin(np.arange(_GRID) / _GRID, edges).all():
                self._refine_grid()
            else:
                self._choose_table(low, high)

    def _refine_grid(self) -> None:
        """Prepare for parts of [0, 1] of which few are divided further."""
        self._on_grid = True
        parts = np.arange(_GRID + 1) / _GRID
        self._first = np.searchsorted(self._inner, parts, side="right")
        self._finer = np.setdiff1d(self._inner, parts)
        self._before = np.searchsorted(self._finer, parts)
        self._divided = np.append(np.diff(self._before) > 0, False)

    def _choose_table(self, low: float, high: float) -> None:
        size = min(_MOST_SLOTS, _SLOTS_PER_EDGE * self._bins)
        for slot in (_linear_slots(low, high, size), _folded_slots(low, high, size)):
            slots = slot(self._inner)
            crowded = int(np.bincount(slots).max(initial=0))
            if crowded <= _MOST_COMPARISONS:
                break
        self._slot = slot
        self._comparisons = crowded
        self._first = np.searchsorted(slots, np.arange(int(slot(np.array([high]))[0]) + 1))
        self._padded = np.append(self._inner, np.inf)

    def __call__(self, scores: Floats, *, touches_top: bool, steady: bool = False) -> Indices:
        """Bin of each score; all lie within the edges, and with `touches_top` maybe at the last.

        If `steady`, in a time that does not depend on where scores lie.
        """
        if self._on_grid and not steady:
            slots = (scores * _GRID).astype(np.intp)
            index = self._first.take(slots)
            some = np.flatnonzero(self._divided.take(slots))
            if some.size:
                within = np.searchsorted(self._finer, scores[some], side="right")
                index[some] += within - self._before.take(slots[some])
            return index
        if self._direct is not None:
            index = self._direct(scores)
            return np.minimum(index, self._bins - 1, out=index) if touches_top else index
        if self._comparisons > _MOST_COMPARISONS:
            return np.searchsorted(self._inner, scores, side="right")
        index = self._first.take(self._slot(scores), mode="clip")
        for _ in range(self._comparisons):
            index += scores >= self._padded.take(index, mode="clip")
        return index


def _is_exact(slot: SlotFunction, edges: Floats) -> bool:
    """Whether the slot of a score below the last edge is its bin.

    A monotone function that is right at every lower edge, and at the float just below every upper
    edge, is right everywhere between.
    """
    order = np.arange(len(edges) - 1)
    below = np.nextafter(edges[1:], -np.inf)
    return bool(np.all(slot(edges[:-1]) == order) and np.all(slot(below) == order))


def _linear_slots(low: float, high: float, slots: int) -> SlotFunction:
    """Slots of equal width; the last edge has a slot of its own."""
    scale = slots / (high - low)

    def slot(scores: Floats) -> Indices:
        index = np.empty(scores.shape, dtype=np.intp)
        return np.multiply(scores - low if low else scores, scale, out=index, casting="unsafe")

    return slot


def _folded_slots(low: float, high: float, slots: int) -> SlotFunction:
    """Slots of equal ratio towards both ends, by the leading bits of floats: a logarithm."""
    width = high - low
    smallest_exponent = -60
    octaves = -smallest_exponent
    fraction_bits = max(2, (slots // (2 * octaves)).bit_length())
    shift = 52 - fraction_bits
    base = int(np.float64(2.0**smallest_exponent).view(np.int64)) >> shift
    middle = (int(np.float64(0.5).view(np.int64)) >> shift) - base

    def slot(scores: Floats) -> Indices:
        unit = np.clip((scores - low) / width, 0.0, 1.0)
        distance = np.minimum(unit, 1.0 - unit)
        steps = (distance.view(np.int64) >> shift) - base
        np.maximum(steps, 0, out=steps)
        return np.where(unit < 0.5, steps, 2 * middle + 1 - steps).astype(np.intp, copy=False)

    return slot


Kind = Literal["uniform", "probabilities", "logit", "asinh", "edges", "values"]
Outside = Literal["refuse", "clip"]

_NEAREST: Final = 52  # halvings of a probability's distance from 0 or 1 that bins tell apart
MOST_BINS: Final = 1 << 20  # 256 times what is ever needed; a plan is judged in half a second
MOST_LOGIT_BINS: Final = 1 << 18  # each edge takes microseconds of exact arithmetic
MOST_POINTS: Final = 1 << 18  # bins of a listed axis: each edge travels in the plan
_BYTES_PER_COUNT: Final = 8


class AxisSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An axis as plain data, the form it takes in a plan."""

    kind: Kind
    bins: int
    outside: Outside
    digest: str
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    points: tuple[float, ...] | None = None
    scale: float | msgspec.UnsetType = msgspec.UNSET  # left out of all other kinds


class Placed(NamedTuple):
    """Bins of scores, the scores as they count there, and how many had to be moved."""

    bins: Indices
    scores: Floats
    not_finite: int = 0
    clipped: int = 0


class Axis:
    """A frozen division of the scores into bins.

    Bins are left-closed, ``[edges[i], edges[i+1])``; the last one is closed. A score counts as
    predicted positive at threshold t when ``score >= t``, so at every edge but the top one the
    confusion matrix read from a histogram is exact.

    Made by :meth:`uniform`, :meth:`probabilities`, :meth:`logit`, :meth:`asinh`,
    :meth:`from_edges` or :meth:`from_values`.

    Examples
    --------
    >>> Axis.uniform(10).index([0.0, 0.3, 0.95, 1.0])
    array([0, 3, 9, 9])
    >>> Axis.uniform(10) == Axis.from_edges([i / 10 for i in range(11)])
    True
    """

    __slots__ = ("_digest", "_edges", "_lookup", "_spec")

    def __init__(self, edges: Floats, spec: AxisSpec) -> None:
        edges.setflags(write=False)
        self._edges = edges
        digest = _digest(edges, spec)
        if spec.digest not in ("", digest):
            raise AxisError(
                f"the axis says its digest is {spec.digest[:8]}, its edges give {digest[:8]}. It "
                "was changed on the way: fetch the plan again."
            )
        self._digest = digest
        self._spec = msgspec.structs.replace(spec, digest=digest)
        self._lookup: BinLookup | None = None

    @classmethod
    def uniform(
        cls, bins: int, low: float = 0.0, high: float = 1.0, outside: Outside = "refuse"
    ) -> "Axis":
        """Bins of equal width.

        `low` and `high` are read as the decimals they print as, and each edge is the float nearest
        to its true value: ``Axis.uniform(8, 0.1, 0.9)`` has exactly the edges 0.1, 0.2, ..., 0.9.
        """
        bins = _check_bins(bins)
        low, high = _number("low", low), _number("high", high)
        if not low < high or not math.isfinite(high - low):
            raise AxisError("an axis needs finite low < high. Swap or widen the range.")
        spec = AxisSpec("uniform", bins, _check_outside(outside), "", low=low, high=high)
        return cls(
            _increasing(_uniform_edges(bins, low, high), "widen the range or use fewer bins"), spec
        )

    @classmethod
    def probabilities(cls, at: Iterable[float] = (), outside: Outside = "refuse") -> "Axis":
        """4,096 bins of equal width on [0, 1], and more where scores tie or crowd.

        Scores of exactly 0 and of exactly 1 have a bin each. Towards both ends each bin is half as
        wide as the last, down to 2e-16. Thresholds named (`at`) are edges.

        Examples
        --------
        >>> axis = Axis.probabilities()
        >>> axis.bins, axis.index([0.0, 1e-9, 0.5, 1.0])
        (4178, array([   0,   24, 2089, 4177]))
        """
        named = np.unique(_points("at", at))
        if len(named) and not (named[0] > 0 and named[-1] < 1):
            raise AxisError("thresholds of probabilities lie between 0 and 1.")
        near = 0.5 ** np.arange(math.log2(_GRID) + 1, _NEAREST + 1)
        grid = np.arange(1, _GRID) / _GRID
        after_zero = np.nextafter(0.0, 1.0)
        usual = np.concatenate([[after_zero], near, grid, 1.0 - near])
        named = np.setdiff1d(named, usual)
        inner = np.union1d(usual, named)
        spec = AxisSpec(
            "probabilities",
            len(inner) + 2,
            _check_outside(outside),
            "",
            points=tuple(named.tolist()) or None,
        )
        return cls(np.concatenate([[0.0], inner, [1.0, 1.0]]), spec)

    @classmethod
    def logit(cls, bins: int, *, limit: float = 16.0, outside: Outside = "refuse") -> "Axis":
        """Bins of equal width in log-odds, for probabilities that crowd near 0 or 1.

        Inner edges run from log-odds ``-limit`` to ``limit``; the end bins take what is beyond.
        """
        bins = _check_bins(bins)
        if bins > MOST_LOGIT_BINS:
            raise AxisError(f"a logit axis has at most {MOST_LOGIT_BINS:,} bins, got {bins:,}.")
        limit = _number("limit", limit)
        if not 0 < limit <= 36:
            raise AxisError("limit must lie in (0, 36]: beyond, float64 cannot tell 1 - p from 1.")
        spec = AxisSpec("logit", bins, _check_outside(outside), "", limit=limit)
        return cls(_increasing(_logit_edges(bins, limit), "use fewer bins"), spec)

    @classmethod
    def asinh(
        cls, bins: int, *, scale: float = 1e-6, limit: float = 1e6, outside: Outside = "clip"
    ) -> "Axis":
        """Bins for scores of any scale: equally wide below `scale`, then growing with the score.

        Edges run from ``-limit`` to `limit`, evenly in ``asinh(score / scale)``; zero is one of
        them where the number of bins is even.

        Examples
        --------
        >>> Axis.asinh(4, scale=1.0, limit=100.0).edges.round(2)
        array([-100.  ,   -7.04,    0.  ,    7.04,  100.  ])
        """
        bins = _check_bins(bins)
        if bins > MOST_LOGIT_BINS:
            raise AxisError(f"an asinh axis has at most {MOST_LOGIT_BINS:,} bins, got {bins:,}.")
        scale, limit = _number("scale", scale), _number("limit", limit)
        if not 1e-100 <= scale < limit <= 1e100:
            raise AxisError("an asinh axis needs 0 < scale < limit, between 1e-100 and 1e100.")
        spec = AxisSpec("asinh", bins, _check_outside(outside), "", limit=limit, scale=scale)
        return cls(_increasing(_asinh_edges(bins, scale, limit), "use fewer bins"), spec)

    @classmethod
    def from_edges(cls, edges: Iterable[float], outside: Outside = "refuse") -> "Axis":
        """Bins between the given increasing edges (at least two)."""
        array = _points("edges", edges)
        if len(array) < 2:
            raise AxisError("an axis needs at least two edges.")
        _check_points(len(array) - 1)
        _increasing(array, "sort the edges and drop repeated ones")
        spec = AxisSpec(
            "edges", len(array) - 1, _check_outside(outside), "", points=tuple(array.tolist())
        )
        return cls(array, spec)

    @classmethod
    def from_values(cls, values: Iterable[float], outside: Outside = "refuse") -> "Axis":
        """One bin for each value a score can take, e.g. the k + 1 scores of a kNN.

        Curves are then exact. With ``outside="clip"`` a score between two values goes to the lower
        one: curves are those of such scores, and bounds allow for scores in between.
        """
        array = np.unique(_points("values", values))
        if len(array) < 1:
            raise AxisError("an axis needs at least one value.")
        _check_points(len(array))
        spec = AxisSpec(
            "values", len(array), _check_outside(outside), "", points=tuple(array.tolist())
        )
        return cls(np.append(array, array[-1]), spec)

    @classmethod
    def from_spec(cls, spec: AxisSpec) -> "Axis":
        """Rebuild an axis from plain data and check that its edges are the same bytes."""
        if spec.kind != "asinh" and spec.scale is not msgspec.UNSET:
            raise AxisError(f"a scale is for asinh axes; this one is {spec.kind}.")
        match spec:
            case AxisSpec(
                kind="uniform", low=float(low), high=float(high), limit=None, points=None
            ):
                axis = cls.uniform(spec.bins, low, high, spec.outside)
            case AxisSpec(kind="probabilities", low=None, high=None, limit=None):
                axis = cls.probabilities(spec.points or (), spec.outside)
            case AxisSpec(kind="logit", limit=float(limit), low=None, high=None, points=None):
                axis = cls.logit(spec.bins, limit=limit, outside=spec.outside)
            case AxisSpec(
                kind="asinh",
                limit=float(limit),
                scale=float(scale),
                low=None,
                high=None,
                points=None,
            ):
                axis = cls.asinh(spec.bins, scale=scale, limit=limit, outside=spec.outside)
            case AxisSpec(kind="edges", points=tuple(points), low=None, high=None, limit=None):
                axis = cls.from_edges(points, spec.outside)
            case AxisSpec(kind="values", points=tuple(points), low=None, high=None, limit=None):
                axis = cls.from_values(points, spec.outside)
            case _:
                raise AxisError(f"the {spec.kind} axis lacks a field or has one of another kind.")
        if axis.bins != spec.bins:
            raise AxisError(f"the axis says {spec.bins} bins but its points make {axis.bins}.")
        return cls(axis.edges, spec)

    @property
    def spec(self) -> AxisSpec:
        """The axis as plain data."""
        return self._spec

    @property
    def kind(self) -> Kind:
        """How the axis was made: uniform, probabilities, logit, asinh, edges or values."""
        return self._spec.kind

    @property
    def bins(self) -> int:
        """Number of bins."""
        return self._spec.bins

    @property
    def outside(self) -> Outside:
        """What happens to scores outside: ``"refuse"`` or ``"clip"``."""
        return self._spec.outside

    @property
    def edges(self) -> Floats:
        """The ``bins + 1`` edges, read-only; the last is repeated if its bin is of one value."""
        return self._edges

    @property
    def thresholds(self) -> Floats:
        """The lower edge of each bin: where threshold metrics are exact."""
        return self._edges[:-1]

    @property
    def low(self) -> float:
        """The lowest score inside the axis."""
        return float(self._edges[0])

    @property
    def high(self) -> float:
        """The highest score inside the axis."""
        return float(self._edges[-1])

    @property
    def separates_all(self) -> bool:
        """Whether scores in one bin are always equal, so that nothing is lost by binning."""
        return self.kind == "values" and self.outside == "refuse"

    @property
    def single(self) -> NDArray[np.bool_]:
        """Which bins stand for one score: those of known values, and those one float wide."""
        if self.kind == "values":
            return np.ones(self.bins, dtype=bool)
        single: NDArray[np.bool_] = np.nextafter(self._edges[:-1], np.inf) >= self._edges[1:]
        return single

    @property
    def tied(self) -> NDArray[np.bool_]:
        """In which bins scores are surely equal: where scores beyond are counted, in no end bin."""
        refuses = self.outside == "refuse"
        if self.kind == "values":
            return np.full(self.bins, refuses)
        tied = self.single
        tied[0] &= refuses
        tied[-1] &= refuses and self._edges[-2] == self._edges[-1]  # else it has both ends
        return tied

    @property
    def digest(self) -> str:
        """SHA-256 of the edges' bytes and of what decides a score's bin."""
        return self._digest

    def index(self, scores: Any) -> Indices:
        """Bin of each score; AxisError if one is not finite, or beyond an axis that refuses."""
        try:
            array = np.atleast_1d(np.asarray(scores, dtype=np.float64))
        except (TypeError, ValueError, OverflowError):
            raise AxisError("scores must be numbers.") from None
        index = self.place(array)
        if index is None:
            refused = self.count_refused(array)
            raise AxisError(f"{refused:,} of {array.size:,} scores do not fit {self}.")
        return index

    def count_refused(self, scores: Floats) -> int:
        """How many of the scores have no bin on this axis."""
        if self.outside == "clip":
            return int(np.count_nonzero(~np.isfinite(scores)))
        if self.kind == "values":
            return int(np.count_nonzero(~np.isin(scores, self._edges)))
        return int(np.count_nonzero(~((scores >= self.low) & (scores <= self.high))))

    def count_beyond(self, scores: Floats) -> int:
        """How many of the scores are finite and lie beyond the ends of this axis."""
        beyond = (scores < self.low) | (scores > self.high)
        return int(np.count_nonzero(beyond & np.isfinite(scores)))

    def place(self, scores: Floats) -> Indices | None:
        """Bin of each score, or None if any of them is refused."""
        if self._lookup is None:
            self._lookup = BinLookup(self._edges)
        if not scores.size:
            return np.empty(0, dtype=np.intp)
        lowest, highest = scores.min(), scores.max()  # both NaN if any score is NaN
        if not (lowest >= self.low and highest <= self.high):
            if self.outside == "refuse" or not (np.isfinite(lowest) and np.isfinite(highest)):
                return None
            scores = np.clip(scores, self.low, self.high)
        index = self._lookup(scores, touches_top=bool(highest >= self.high))
        if self.separates_all and np.any(self._edges[index] != scores):
            return None
        return index

    def place_any(self, scores: Floats) -> Placed:
        """Bin of each score whatever it is.

        A score beyond the axis counts as its end, also an infinite one; NaN as the lower end. The
        time does not depend on the scores, for those who must not see them may measure it.
        """
        if self._lookup is None:
            self._lookup = BinLookup(self._edges)
        if not scores.size:
            return Placed(np.empty(0, dtype=np.intp), scores)
        inside = np.fmin(np.fmax(scores, self.low), self.high)  # which take NaN for no number
        not_finite = scores.size - int(np.count_nonzero(np.isfinite(scores)))
        moved = int(np.count_nonzero(inside != scores))
        bins = self._lookup(inside, touches_top=True, steady=True)
        return Placed(bins, inside, not_finite, moved - not_finite)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Axis) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return Axis, (self._edges, self._spec)  # the lookup holds functions, and is soon made anew

    def __repr__(self) -> str:
        spec = self.spec
        match self.kind:
            case "uniform":
                inside = f"uniform({self.bins}, {spec.low!r}, {spec.high!r}"
            case "probabilities":
                inside = f"probabilities({spec.points or ()!r}"
            case "logit":
                inside = f"logit({self.bins}, limit={spec.limit!r}"
            case "asinh":
                inside = f"asinh({self.bins}, scale={spec.scale!r}, limit={spec.limit!r}"
            case _:
                inside = f"from_{self.kind}({reprlib.repr(list(spec.points or ()))}"
        return f"Axis.{inside}, outside={self.outside!r})"


def _digest(edges: Floats, spec: AxisSpec) -> str:
    rule = "values" if spec.kind == "values" else "edges"
    header = f"fedgauge-axis/1 {rule} {spec.outside} {len(edges)}\n".encode()
    return hashlib.sha256(header + edges.astype("<f8").tobytes()).hexdigest()


def _uniform_edges(bins: int, low: float, high: float) -> Floats:
    start, stop = Fraction(repr(low)), Fraction(repr(high))
    step = (stop - start) / bins
    bottom = math.lcm(start.denominator, step.denominator)
    first, increment = int(start * bottom), int(step * bottom)
    if max(abs(first), abs(first + increment * bins), bottom) < 2**53:
        # Exact integers, then one correctly rounded division.
        top = first + increment * np.arange(bins + 1, dtype=np.int64)
        return top.astype(np.float64) / float(bottom)
    return np.array([(first + increment * i) / bottom for i in range(bins + 1)])


def _logit_edges(bins: int, limit: float) -> Floats:
    import mpmath  # loaded only where there is such an axis

    if bins <= 2:
        return np.array([0.0, 0.5, 1.0] if bins == 2 else [0.0, 1.0])
    # numpy's exp differs between processors in the last bit; mpmath's arithmetic is
    # done in integers. 160 bits leave over 100 after the longest product.
    with mpmath.workprec(160):
        span = mpmath.mpf(repr(limit))
        odds = mpmath.exp(-span)
        ratio = mpmath.exp(2 * span / (bins - 2))
        inner = []
        for _ in range(bins - 1):
            inner.append(float(odds / (1 + odds)))
            odds *= ratio
    return np.array([0.0, *inner, 1.0])


def _asinh_edges(bins: int, scale: float, limit: float) -> Floats:
    import mpmath  # as for logit edges

    with mpmath.workprec(640):  # sums of powers up to 1e200, and of their inverses
        unit, end = mpmath.mpf(repr(scale)), mpmath.mpf(repr(limit))
        span = mpmath.asinh(end / unit)
        power, ratio = mpmath.exp(-span), mpmath.exp(2 * span / bins)
        inner = []
        for place in range(1, bins):
            power *= ratio
            at_zero = 2 * place == bins
            inner.append(0.0 if at_zero else float(unit * (power - 1 / power) / 2))
    return np.array([-limit, *inner, limit])


def _check_bins(bins: int) -> int:
    if isinstance(bins, bool) or not isinstance(bins, (int, np.integer)):
        raise AxisError(f"bins must be a whole number, got {type(bins).__name__}.")
    if bins < 1:
        raise AxisError(f"an axis needs at least 1 bin, got {bins}. 4096 is a good start.")
    if bins > MOST_BINS:
        gigabytes = bins * _BYTES_PER_COUNT / 1e9
        raise AxisError(
            f"{bins:,} bins would need {gigabytes:,.1f} GB for each row of a histogram; "
            f"at most {MOST_BINS:,} are allowed. 4096 is a good start."
        )
    return int(bins)


def _check_points(bins: int) -> None:
    if bins > MOST_POINTS:
        raise AxisError(
            f"an axis of listed edges or values has at most {MOST_POINTS:,} bins, got {bins:,}."
        )


def _check_outside(outside: Outside) -> Outside:
    if outside not in ("refuse", "clip"):
        raise AxisError(f"outside must be 'refuse' or 'clip', got {outside!r}.")
    return outside


def _number(name: str, value: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise AxisError(f"{name} must be a finite number, got {value!r}.")
    return number + 0.0  # -0.0 and 0.0 are one number and must digest alike


def _points(name: str, points: Iterable[float]) -> Floats:
    try:
        array = np.array(list(points), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise AxisError(f"{name} must be numbers.") from None
    if array.ndim != 1 or not np.all(np.isfinite(array)):
        raise AxisError(f"{name} must be a flat list of finite numbers.")
    return array + 0.0


def _increasing(edges: Floats, remedy: str) -> Floats:
    if not np.all(edges[1:] > edges[:-1]):
        raise AxisError(f"the edges of an axis must increase; {remedy}.")
    return edges
