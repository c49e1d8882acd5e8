"""A curve y(x) given by polynomial pieces of a parameter: evaluate, integrate, compare.

Both coordinates are piecewise polynomials in u of degree at most 3. The abscissa never
decreases. The ordinate may be a quotient, which is what precision is.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from fedgauge.typing import Floats, Indices

_BISECTIONS: Final = 60
_DRAWN: Final = 1000  # points of a curve at least, and on each of its pieces at least
_DRAWN_OF_A_PIECE: Final = 8
_GRADES: Final = 40
_NUDGE: Final = 1e-6  # where a quotient is 0/0, look this far into the piece
# Exact for the polynomials here (degree 5 with the Jacobian); a quotient is smooth on a piece.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_QUADRATURE: Final = (0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS)


@dataclass(frozen=True, slots=True, eq=False)
class ParametricCurve:
    """Pieces ``t in [0, width]`` with ``x(t)`` and ``y(t) = top(t) / bottom(t)``.

    Coefficients have shape (4, pieces), highest power first. `bottom` None means 1.
    Quotients are clipped to at most 1.
    """

    width: Floats
    x: Floats
    top: Floats
    bottom: Floats | None = None

    def ordinate(self, piece: Indices, t: Floats) -> Floats:
        """y at offset t of the given pieces."""
        top = horner(self.top[:, piece], t)
        if self.bottom is None:
            return top
        bottom = horner(self.bottom[:, piece], t)
        vanishing = bottom <= 0
        if np.any(vanishing):
            nudged = np.where(vanishing, t + _NUDGE * self.width[piece], t)
            top = np.where(vanishing, horner(self.top[:, piece], nudged), top)
            bottom = np.where(vanishing, horner(self.bottom[:, piece], nudged), bottom)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.minimum(np.where(bottom > 0, top / bottom, 1.0), 1.0)

    def at(self, x: Floats, *, side: str) -> Floats:
        """y at each x. Where the curve is vertical, `side` picks its start or its end."""
        piece, t = self.locate(x, side=side)
        return self.ordinate(piece, t)

    def locate(self, x: Floats, *, side: str) -> tuple[Indices, Floats]:
        """The piece and offset at which the curve reaches each x."""
        starts = np.maximum.accumulate(self.x[-1])
        if side == "end":  # the last parameter at which the abscissa is still x
            piece = np.searchsorted(starts, x, side="right") - 1
        else:
            piece = np.searchsorted(starts, x, side="left") - 1
        piece = np.clip(piece, 0, len(starts) - 1)
        coefficients = self.x[:, piece]
        below, above = np.zeros_like(x), self.width[piece].copy()
        for _ in range(_BISECTIONS):
            middle = 0.5 * (below + above)
            value = horner(coefficients, middle)
            low = value <= x if side == "end" else value < x
            below = np.where(low, middle, below)
            above = np.where(low, above, middle)
        t = 0.5 * (below + above)
        if side == "end":  # a flat end is reached before rounding lets a bisection see it
            t = np.where(x >= horner(coefficients, self.width[piece]), self.width[piece], t)
        return piece, t

    def sample(self, points: int) -> tuple[Floats, Floats]:
        """x and y along the curve, `points` on each piece, both ends included."""
        piece = np.arange(len(self.width))[:, np.newaxis]
        t = np.linspace(0.0, 1.0, points) * self.width[:, np.newaxis]
        return horner(self.x[:, piece], t).ravel(), self.ordinate(piece, t).ravel()

    def points(self) -> tuple[Floats, Floats]:
        """x and y along the curve, close enough to draw it: more on a piece where there are few."""
        return self.sample(max(_DRAWN_OF_A_PIECE, math.ceil(_DRAWN / len(self.width))))

    def area(self) -> float:
        """Integral of y over x."""
        nodes, weights = _QUADRATURE
        piece, begin, finish = self._smooth_parts(np.empty(0, dtype=np.intp), np.empty(0))
        span = (finish - begin)[:, None]
        t = begin[:, None] + nodes * span
        pieces = piece[:, None]
        slope = horner(derivative(self.x)[:, pieces], t)
        return float(np.sum(self.ordinate(pieces, t) * slope * weights * span))

    def distance(self, starts: Floats, ends: Floats, left: Floats, right: Floats) -> float:
        """Integral over x of ``|y - line|`` for adjoining line segments.

        Segment i runs from (starts[i], left[i]) to (ends[i], right[i]). Each piece is cut
        at the ends of segments and where it crosses the segment, so that on every part
        the integrand is smooth and of one sign.
        """
        knots = np.append(starts, ends[-1:])
        piece, begin, finish = self._smooth_parts(*self.locate(knots, side="end"))

        middle = horner(self.x[:, piece], 0.5 * (begin + finish))
        segment = np.clip(np.searchsorted(starts, middle, side="right") - 1, 0, len(starts) - 1)
        slope = (right[segment] - left[segment]) / (ends[segment] - starts[segment])
        offset = left[segment] - slope * starts[segment]

        x, top = self.x[:, piece], self.top[:, piece]
        line = slope * x
        line[-1] += offset
        if self.bottom is None:
            gap = line - top
        else:  # the truth is then a step, so line * bottom stays a cubic
            gap = offset * self.bottom[:, piece] - top
        cut = np.sort(_roots_within(gap, begin, finish), axis=0)
        bounds = np.vstack([begin, cut, finish])

        nodes, weights = _QUADRATURE
        span = np.diff(bounds, axis=0)[..., None]
        t = bounds[:-1, :, None] + nodes * span
        pieces = piece[None, :, None]
        here = horner(self.x[:, pieces], t)
        error = self.ordinate(pieces, t) - (offset[None, :, None] + slope[None, :, None] * here)
        jacobian = horner(derivative(self.x)[:, pieces], t)
        return float(np.sum(np.abs(error) * jacobian * weights * span))

    def _smooth_parts(self, cuts: Indices, offsets: Floats) -> tuple[Indices, Floats, Floats]:
        """Piece, begin and finish of parts on which y is smooth, cut also where asked."""
        whole = np.arange(len(self.width))
        pieces, begins = [whole, cuts], [np.zeros(len(whole)), offsets]
        if self.bottom is not None:
            for piece, t in (self._graded_cuts(self.bottom), self._clip_cuts(self.bottom)):
                pieces.append(piece)
                begins.append(t)
        piece, begin = np.concatenate(pieces), np.concatenate(begins)
        order = np.lexsort((begin, piece))
        piece, begin = piece[order], begin[order]
        last_of_piece = np.append(piece[1:] != piece[:-1], True)
        finish = np.where(last_of_piece, self.width[piece], np.append(begin[1:], 0.0))
        keep = finish > begin
        return piece[keep], begin[keep], finish[keep]

    def _graded_cuts(self, bottom: Floats) -> tuple[Indices, Floats]:
        """Cuts at halves of halves towards the start of pieces whose denominator grows fast.

        Such a quotient has a pole close before the start. On each graded part the pole is
        at least the part's length away, where the quadrature converges quickly.
        """
        grows = np.flatnonzero(horner(bottom, self.width) > 2.0 * bottom[-1])
        halves = 0.5 ** np.arange(1, _GRADES + 1)
        return np.repeat(grows, _GRADES), np.outer(self.width[grows], halves).ravel()

    def _clip_cuts(self, bottom: Floats) -> tuple[Indices, Floats]:
        """Cuts where the quotient reaches 1 and is clipped."""
        cuts = _roots_within(self.top - bottom, np.zeros_like(self.width), self.width)
        return np.tile(np.arange(len(self.width)), len(cuts)), cuts.ravel()


def horner(coefficients: Floats, t: Floats) -> Floats:
    """Polynomials with coefficients along the first axis, highest power first, at t."""
    value: Floats = coefficients[0]
    for coefficient in coefficients[1:]:
        value = value * t + coefficient
    return value


def derivative(coefficients: Floats) -> Floats:
    """Coefficients of the derivatives."""
    powers = np.arange(len(coefficients) - 1, 0, -1.0)
    return coefficients[:-1] * powers[:, None]


def shifted(coefficients: Floats, origin: Floats) -> Floats:
    """Coefficients of the same cubics around another origin."""
    a, b, c, _ = coefficients
    value = horner(coefficients, origin)
    slope = (3 * a * origin + 2 * b) * origin + c
    return np.vstack([a, 3 * a * origin + b, slope, value])


def linear_pieces(width: Floats, start: Floats, end: Floats) -> Floats:
    """Coefficients, as cubics, of straight lines from start to end."""
    zero = np.zeros_like(start)
    return np.vstack([zero, zero, (end - start) / width, start])


def monotone_cubics(x: Floats, y: Floats) -> Floats:
    """Coefficients of the monotone cubics (PCHIP) through the points, three or more.

    Points lie along the last axis of `y`; pieces are the last axis of what is returned, powers
    the first. Bit for bit SciPy's ``PchipInterpolator``, whose checks of its input take longer
    than its arithmetic.
    """
    width = np.diff(x)
    slope = np.diff(y) / width
    before, after = slope[..., :-1], slope[..., 1:]
    # Fritsch & Butland 1984: a weighted harmonic mean where both sides go the same way.
    w1 = 2 * width[1:] + width[:-1]
    w2 = width[1:] + 2 * width[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = 1.0 / ((w1 / before + w2 / after) / (w1 + w2))
    inner = np.where((np.sign(before) == np.sign(after)) & (before != 0), mean, 0.0)
    first = _end_slope(width[0], width[1], slope[..., :1], slope[..., 1:2])
    last = _end_slope(width[-1], width[-2], slope[..., -1:], slope[..., -2:-1])
    tangent = np.concatenate([first, inner, last], axis=-1)
    start, finish = tangent[..., :-1], tangent[..., 1:]
    bend = (start + finish - 2 * slope) / width
    return np.stack([bend / width, (slope - start) / width - bend, start, y[..., :-1]])


def _end_slope(width: float, next_width: float, slope: Floats, next_slope: Floats) -> Floats:
    """The slope at an end, one-sided and kept from overshooting (Moler 2004, section 3.6)."""
    end = ((2 * width + next_width) * slope - width * next_slope) / (width + next_width)
    turns = (np.sign(slope) != np.sign(next_slope)) & (np.abs(end) > 3.0 * np.abs(slope))
    return np.where(np.sign(end) != np.sign(slope), 0.0, np.where(turns, 3.0 * slope, end))


def _roots_within(cubics: Floats, begin: Floats, finish: Floats) -> Floats:
    """Up to three real roots of each cubic in [begin, finish], padded with `finish`.

    On [begin, finish] the parameter is rescaled to [0, 1]. The extrema of the cubic split
    it into monotone runs; a run whose ends differ in sign holds one root.
    """
    span = finish - begin
    a, b, c, d = shifted(cubics, begin) * np.vstack([span**3, span**2, span, np.ones_like(span)])
    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.sqrt(np.maximum(b * b - 3 * a * c, 0.0))
        # Stable form of the roots of 3 a t^2 + 2 b t + c.
        q = -(b + np.copysign(half, b))
        extrema = np.vstack([q / (3 * a), c / q])
    extrema = np.sort(np.where((extrema > 0) & (extrema < 1), extrema, 1.0), axis=0)
    knots = np.vstack([np.zeros_like(span), extrema, np.ones_like(span)])
    scaled = np.vstack([a, b, c, d])
    low, high = knots[:-1].copy(), knots[1:].copy()
    rising = horner(scaled[:, None, :], low)
    crosses = np.signbit(rising) != np.signbit(horner(scaled[:, None, :], high))
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        same = np.signbit(horner(scaled[:, None, :], middle)) == np.signbit(rising)
        low = np.where(same, middle, low)
        high = np.where(same, high, middle)
    return np.where(crosses, begin + span * 0.5 * (low + high), finish)
