"""Cut points of an axis: how a database or a lazy frame says where its scores lie, exactly."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from fedgauge.arrays import Floats, Indices
from fedgauge.histograms.axis import Axis

if TYPE_CHECKING:
    import narwhals as nw

_MOST_LEAVES: Final = 256  # beyond, a database takes longer over the tree than over sending rows
_FEW_LEAVES: Final = 8  # up to so many, PostgreSQL takes less time over a grid than over a search
_FINEST: Final = 52  # halvings of 1 between two points of a grid


class _Leaf(NamedTuple):
    """Scores from a cut point on: all of one rank, or of the rank that a grid gives them.

    On a grid the rank is ``floor(score * scale) + rank``.
    """

    start: float
    rank: int
    scale: float | None = None


class CutPoints:
    """The scores at which a score's place changes: between two of them, all count alike.

    So whoever holds the rows only says how many cut points each score has reached, its rank. The
    axis then judges one score of each rank, as it judges any score: also what is beyond it,
    infinite or missing.

    Examples
    --------
    >>> cuts = CutPoints(Axis.uniform(2))
    >>> cuts.values.tolist()[1:4], cuts.rank_of_missing
    ([0.0, 0.5, 1.0], 7)
    >>> cuts.scores(np.array([0, 2, 3, 7]))
    array([-inf,  0. ,  0.5,  nan])
    """

    def __init__(self, axis: Axis) -> None:
        edges = axis.edges
        above = np.nextafter(edges if axis.kind == "values" else edges[-1:], np.inf)
        ends = [-np.finfo(np.float64).max, np.inf]
        self.values: Floats = np.unique(np.concatenate([edges, above, ends]))

    @property
    def rank_of_missing(self) -> int:
        """The rank of NaN and of a score that is missing."""
        return len(self.values) + 1

    def scores(self, ranks: Indices) -> Floats:
        """A score of each rank."""
        return np.concatenate([[-np.inf], self.values, [np.nan]])[ranks]

    def rank(self, score: "nw.Expr", literal: Callable[[float], "nw.Expr"]) -> "nw.Expr | None":
        """The rank of a column of floats, as an expression; None where that has too many parts.

        A product with a power of two is exact, and so is its floor: scores on such a grid need no
        comparison each. `literal` makes a number exactly that number.
        """
        import narwhals as nw  # here, for arrays and files do without

        leaves = self._leaves()
        if len(leaves) > _MOST_LEAVES:
            return None

        def tree(leaves: list[_Leaf]) -> nw.Expr:
            if len(leaves) == 1:
                [(_, rank, scale)] = leaves
                flat = nw.lit(float(rank))
                return flat if scale is None else (score * scale).floor() + float(rank)
            half = len(leaves) // 2
            below = score < literal(leaves[half].start)
            return nw.when(below).then(tree(leaves[:half])).otherwise(tree(leaves[half:]))

        missing = score.is_null() | score.is_nan()
        rank = nw.when(missing).then(nw.lit(float(self.rank_of_missing))).otherwise(tree(leaves))
        return rank.cast(nw.Int64())

    def in_postgres(self, score: str) -> str:
        """The same of a column of PostgreSQL, as text made of its name and numbers; null if null.

        There NaN is above all numbers, and a product that underflows is an error, which none here
        does.
        """
        leaves = self._leaves()
        if len(leaves) > _FEW_LEAVES:
            cuts = [*map(repr, self.values[:-1].tolist()), "Infinity", "NaN"]
            return f"width_bucket({score}::float8, '{{{','.join(cuts)}}}'::float8[])"
        ends = [*(leaf.start for leaf in leaves[1:]), np.nan]
        parts = []
        for (start, rank, scale), end in zip(leaves, ends, strict=True):
            inside = f"{score} >= '{start!r}'::float8 and {score} < '{end!r}'::float8"
            place = "" if scale is None else f"floor({score} * '{scale!r}'::float8)::int + "
            parts.append((scale is None, f"when {inside} then {place}{rank}"))
        parts.append((True, f"when {score} = 'NaN'::float8 then {self.rank_of_missing}"))
        return f"case {' '.join(part for _, part in sorted(parts))} end"

    def _leaves(self) -> list[_Leaf]:
        """The fewest parts that have one rank, or that a grid gives their ranks."""
        # Not below 1, where products of the smallest floats are no longer exact.
        scales = (2.0**halvings for halvings in range(_FINEST + 1))
        return min((self._leaves_on(scale) for scale in scales), key=len)

    def _leaves_on(self, scale: float) -> list[_Leaf]:
        cuts = self.values
        with np.errstate(over="ignore", invalid="ignore"):
            places = cuts * scale
            whole = (np.abs(places) < 2.0**_FINEST) & (np.floor(places) == places)
            # From such a cut point to the next one is one step of the grid.
            steps = np.append(whole[:-1] & whole[1:] & (np.diff(places) == 1.0), False)
        starts = np.flatnonzero(~steps | np.diff(steps, prepend=False))
        if len(starts) > _MOST_LEAVES:
            starts = starts[:_MOST_LEAVES]  # too many whatever they are
        leaves = [_Leaf(-np.inf, 0)]
        for place in starts.tolist():
            start, rank = float(cuts[place]), place + 1
            on_grid = bool(steps[place])
            leaves.append(
                _Leaf(start, rank - int(places[place]), scale) if on_grid else _Leaf(start, rank)
            )
        return leaves
