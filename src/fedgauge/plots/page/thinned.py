"""Lines of many points as lines of few that look the same."""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedgauge.typing import Floats

TOLERANCE: Final = 0.0007  # of the axis: a third of a pixel where a figure is 460 wide
_DECIMALS: Final = 4


def kept(x: Floats, y: Floats, tolerance: float = TOLERANCE) -> NDArray[np.intp]:
    """Which points of a line are enough: no other is farther than `tolerance` from what they draw.

    Douglas & Peucker 1973, both axes having length 1.

    Examples
    --------
    >>> import numpy as np
    >>> kept(np.array([0.0, 0.2, 0.5, 1.0]), np.array([0.0, 0.4, 1.0, 1.0])).tolist()
    [0, 2, 3]
    """
    last = len(x) - 1
    chosen = np.zeros(len(x), dtype=bool)
    chosen[[0, last]] = True
    spans = [(0, last)]
    while spans:
        first, end = spans.pop()
        away = _distances(x[first : end + 1], y[first : end + 1])
        farthest = int(away.argmax())
        if away[farthest] > tolerance:
            middle = first + farthest
            chosen[middle] = True
            spans += [(first, middle), (middle, end)]
    return np.flatnonzero(chosen)


def _distances(x: Floats, y: Floats) -> Floats:
    """How far points are from the line between the first and the last."""
    along = np.array([x[-1] - x[0], y[-1] - y[0]])
    away = np.array([x - x[0], y - y[0]])
    length = float(along @ along)
    # Beyond its ends a line does not cover: a curve may turn back.
    where = np.clip(along @ away / length, 0.0, 1.0) if length > 0 else np.zeros(len(x))
    distances: Floats = np.hypot(*(away - along[:, np.newaxis] * where))
    return distances


def line(x: Floats, y: Floats, scale: tuple[float, float] = (1.0, 1.0)) -> list[list[float]]:
    """The abscissas and ordinates that are enough; `scale` is how long the axes are."""
    few = kept(x / scale[0], y / scale[1])
    return [rounded(x[few]), rounded(y[few])]


def rounded(values: Iterable[float]) -> list[float]:
    """Numbers with as many decimals as are drawn or read; no minus in front of a zero."""
    # Through text, as `show` prints them: np.round goes through a product that is rounded itself.
    return [float(f"{value:.{_DECIMALS}f}") + 0.0 for value in values]
