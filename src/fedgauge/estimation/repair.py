"""From noisy tree levels to consistent, monotone leaf counts. All of it is post-processing."""

import math
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats, Indices
from fedgauge.errors import PlanError

Loss = Literal["l1", "l2"]

_FEW_ROWS: Final = 8
_SHORT: Final = 64
_ROWS_AT_ONCE: Final = 512


def consistent(
    levels: Sequence[NDArray[Any]], tree: Sequence[int], variances: Sequence[float]
) -> Floats:
    """Leaf counts that agree best with the noisy counts of all levels of a tree.

    `levels` has counts by channel and node, from below the root to the leaves; `tree` the
    branchings from the root down; `variances` the noise variance of one node at each level.

    The weighted least-squares estimate, so of all linear unbiased ones the one with least variance.
    Every node's count is then the sum of its leaves. Counts that agree already come back bit for
    bit (whole numbers below 2^53). Leaves may be negative: `monotone` comes next.

    >>> consistent([np.array([[6.0]]), np.array([[1.0, 2.0]])], tree=(1, 2), variances=(1, 1))
    array([[2., 3.]])
    """
    upward = _upward_variances(tree, variances)
    estimates = _checked_levels(levels, tree)
    # Hay et al. 2010, theorem 3, for any branchings and variances. Upward: weigh a
    # node's own count against its children's sum by inverse variance. Written as a
    # correction of the sum, which is exactly zero where the two agree.
    for depth in range(len(tree) - 2, -1, -1):
        below = _children(estimates[depth + 1], tree[depth + 1]).sum(axis=2)
        weight = upward[depth] / variances[depth]
        estimates[depth] = below + weight * (estimates[depth] - below)
    # Downward: siblings have equal variances, so they share what is missing equally.
    for depth, branching in enumerate(tree[1:], start=1):
        siblings = _children(estimates[depth], branching)
        missing = estimates[depth - 1] - siblings.sum(axis=2)
        estimates[depth] = (siblings + missing[:, :, np.newaxis] / branching).reshape(
            estimates[depth].shape
        )
    return estimates[-1]


def noise_covariance(
    tree: Sequence[int], variances: Sequence[float], left: Floats, right: Floats
) -> Floats:
    """Noise covariance of two weighted sums of the leaf estimates of one channel.

    ``left @ C @ right``, where C is the inverse of ``sum_l A_l' A_l / v_l`` and A_l are the sums of
    leaves at level l: in time and memory linear in the bins, the last axis of both weights; further
    axes are kept.
    """
    upward = _upward_variances(tree, variances)
    total: Floats = np.zeros(())
    for variance, branching in zip(upward[:0:-1], tree[:0:-1], strict=True):
        a, b = (w.reshape(*w.shape[:-1], -1, branching) for w in (left, right))
        # Deviations from the siblings' mean, then what the parents hand down.
        left, right = a.mean(axis=-1), b.mean(axis=-1)
        within = (a * b).sum(axis=(-2, -1)) - branching * (left * right).sum(axis=-1)
        total = total + variance * within
    at_top: Floats = (left * right).sum(axis=-1)
    return total + upward[0] * at_top


def leaf_covariance(tree: Sequence[int], variances: Sequence[float]) -> Floats:
    """Noise covariance of all leaf estimates of one channel.

    >>> leaf_covariance((1, 2), (1.0, 1.0)).round(3)
    array([[ 0.667, -0.333],
           [-0.333,  0.667]])
    """
    weights = level_weights(tree, variances, np.eye(math.prod(tree)))
    return np.asarray(sum(v * w @ w.T for v, w in zip(variances, weights, strict=True)))


def level_weights(tree: Sequence[int], variances: Sequence[float], weights: Floats) -> list[Floats]:
    """The weight of each noisy count in a weighted sum of leaves: the adjoint of `consistent`."""
    upward = _upward_variances(tree, variances)
    by_level, down = [], weights
    for branching in tree[:0:-1]:
        siblings = down.reshape(*down.shape[:-1], -1, branching)
        mean = siblings.mean(axis=-1)
        by_level.append((siblings - mean[..., np.newaxis]).reshape(down.shape))
        down = mean
    by_level = [down, *by_level[::-1]]
    for depth, branching in enumerate(tree[1:]):
        own = upward[depth] / variances[depth]
        handed_down = np.repeat((1 - own) * by_level[depth], branching, -1)
        by_level[depth + 1] = by_level[depth + 1] + handed_down
        by_level[depth] = own * by_level[depth]
    return by_level


def node_variances(tree: Sequence[int], variances: Sequence[float]) -> list[float]:
    """Noise variance of the sum of the leaf estimates below one node, by level."""
    upward = _upward_variances(tree, variances)
    final = [upward[0]]
    for own, branching in zip(upward[1:], tree[1:], strict=True):
        # A child is its parent's final estimate over b, plus its own deviation from its
        # siblings' mean. The parent saw only their sum, so the two are uncorrelated.
        final.append(final[-1] / branching**2 + own * (1.0 - 1.0 / branching))
    return final


def leaf_variance(tree: Sequence[int], variances: Sequence[float]) -> float:
    """Noise variance of one leaf estimate, the same for all."""
    return node_variances(tree, variances)[-1]


def monotone(leaves: Floats) -> Floats:
    """Non-negative counts whose cumulative counts are nearest to those given, by channel and bin.

    Cumulative counts 0 <= c_1 <= ... <= c_B with c_B held at the channel's estimated total, nearest
    in squares to the noisy ones. The total is kept to rounding; one that is not above zero leaves
    an empty channel. Counts that are non-negative already come back bit for bit. The result is no
    longer unbiased: counts cannot be negative.

    >>> monotone(np.array([[3.0, -1.0, 4.0]]))
    array([[2.5, 0. , 3.5]])
    """
    repaired = _finite("leaves", leaves, ("channels", "bins"))
    # Valid rows are their own projection. Pooling would round totals near 2^53.
    broken = np.flatnonzero(np.any(repaired < 0, axis=1))
    for rows in np.split(broken, range(_ROWS_AT_ONCE, len(broken), _ROWS_AT_ONCE)):
        cumulative = np.cumsum(repaired[rows], axis=1)
        total = np.maximum(cumulative[:, -1:], 0.0)
        # Clipping an isotonic fit gives the best fit within the bounds. Pooling can only
        # raise the last value, so clipping puts it back; setting it undoes the rounding.
        cumulative = np.clip(_isotonic_rows(cumulative), 0.0, total)
        cumulative[:, -1:] = total
        repaired[rows] = np.diff(cumulative, axis=1, prepend=0.0)
    return repaired


def within_totals(leaves: Floats, totals: Floats) -> Floats:
    """Counts from 0 to known totals whose cumulative counts are nearest to those given.

    Cumulative counts neither fall nor rise faster than those of the totals: an isotonic fit whose
    steps have a largest size. Clipping bin by bin gives twice the error of a ROC curve. Time grows
    with the square of the bins.

    >>> within_totals(np.array([[3.0, -1.0, 6.0]]), np.array([[4.0, 4.0, 4.0]]))
    array([[3., 0., 4.]])
    """
    counts = _finite("leaves", leaves, ("channels", "bins"))
    broken = np.flatnonzero(np.any((counts < 0) | (counts > totals), axis=1))
    for rows in np.split(broken, range(_ROWS_AT_ONCE, len(broken), _ROWS_AT_ONCE)):
        if len(rows):
            counts[rows] = _nearest_between(counts[rows], totals[rows])
    return counts


def _nearest_between(leaves: Floats, totals: Floats) -> Floats:
    """Agarwal, Phillips & Sadri 2010: the least sum of squares, as a function of the last value.

    Half its derivative is linear between knots. A step up of at most t leaves what is below the
    least point, moves what is above it by t, and is free in between; a further value x then adds c
    - x. Backwards, each value is the least point of its function, or as near as steps allow.
    """
    wanted = np.cumsum(leaves, axis=1)
    knots = np.stack([np.zeros(len(leaves)), totals[:, 0]], axis=1)
    slopes = knots - wanted[:, :1]
    least = np.empty_like(wanted)
    for place in range(1, leaves.shape[1]):
        least[:, place - 1], below = _root(knots, slopes)
        step, lowest = totals[:, place], least[:, place - 1]
        knots = _spread(knots, below, step, lowest, lowest + step)
        slopes = _spread(slopes, below, 0.0, 0.0, 0.0) + knots - wanted[:, [place]]
    least[:, -1], _ = _root(knots, slopes)
    for place in range(leaves.shape[1] - 1, 0, -1):
        above = least[:, place]
        least[:, place - 1] = np.clip(least[:, place - 1], above - totals[:, place], above)
    nearest: Floats = np.clip(np.diff(least, axis=1, prepend=0.0), 0.0, totals)
    return nearest


def _root(knots: Floats, slopes: Floats) -> tuple[Floats, Indices]:
    """Where each row's rising slopes reach 0, or its nearer end; and how many are below 0."""
    rows, below = np.arange(len(knots)), np.count_nonzero(slopes < 0, axis=1)
    before, after = np.maximum(below - 1, 0), np.minimum(below, knots.shape[1] - 1)
    low, high = slopes[rows, before], slopes[rows, after]
    part = np.divide(-low, high - low, out=np.zeros(len(rows)), where=high > low)
    start = knots[rows, before]
    root: Floats = start + part * (knots[rows, after] - start)
    return root, below


def _spread(values: Floats, below: Indices, move: Floats | float, *ends: Floats | float) -> Floats:
    """Two more values in each row, `ends`, after the first few; those above are moved."""
    rows, size = values.shape
    wider = np.empty((rows, size + 2))
    wider[:, 2:] = values + np.reshape(move, (-1, 1))
    np.copyto(wider[:, :size], values, where=np.arange(size) < below[:, np.newaxis])
    for place, end in enumerate(ends):
        wider[np.arange(rows), below + place] = end
    return wider


def smooth(series: Floats, loss: Loss) -> Floats:
    """The non-decreasing series within [0, 1] nearest to a noisy one (Barczewski et al. 2025).

    Least squares (``"l2"``) have one answer, least absolute deviations (``"l1"``) can have many:
    one of them is returned, to the 1e-7 of the solver.

    >>> smooth(np.array([-0.1, 0.5, 0.25, 0.75]), "l2")
    array([0.   , 0.375, 0.375, 0.75 ])
    """
    series = _finite("series", series, ("points",))
    if loss == "l2":
        return np.clip(_isotonic(series), 0.0, 1.0)
    if loss != "l1":
        raise PlanError(f"loss must be one of l1, l2, got {loss!r}.")
    # Within [0, 1], |x - s| and |x - clip(s)| differ by a constant: clipping first is
    # exact here (not for squares), and the solver takes 1e20 for infinity.
    nearest = _least_absolute(np.clip(series, 0.0, 1.0))
    # The solver lets a series fall by its tolerance.
    return np.clip(np.maximum.accumulate(nearest), 0.0, 1.0)


def _isotonic_rows(rows: Floats) -> Floats:
    """The isotonic fit of every row.

    Many short rows are fitted at once by the min-max formula (Robertson et al. 1988, theorem
    1.4.4): fit i is the largest over j <= i of the smallest over k >= i of the mean of j..k.
    """
    count, bins = rows.shape
    if count < _FEW_ROWS or bins > _SHORT:
        return np.array([_isotonic(row) for row in rows]).reshape(rows.shape)
    sums = np.pad(np.cumsum(rows, axis=1), ((0, 0), (1, 0)))
    first, last = np.arange(bins)[:, np.newaxis], np.arange(bins)
    ordered = last >= first
    lengths = np.where(ordered, last - first + 1, 1)
    means = np.where(
        ordered, (sums[:, np.newaxis, 1:] - sums[:, :-1, np.newaxis]) / lengths, np.inf
    )
    smallest = np.minimum.accumulate(means[:, :, ::-1], axis=2)[:, :, ::-1]
    fit: Floats = np.where(ordered, smallest, -np.inf).max(axis=1)
    return fit


def _isotonic(series: Floats) -> Floats:
    from scipy.optimize import isotonic_regression  # loaded only where there is noise

    fit: Floats = isotonic_regression(series).x
    return fit


def _least_absolute(series: Floats) -> Floats:
    """Minimise sum(p + q) subject to ``x + p - q = series``, x rising, p and q >= 0."""
    size = len(series)
    from scipy import sparse
    from scipy.optimize import linprog

    unit = sparse.eye_array(size)
    falls = sparse.eye_array(size - 1, size) - sparse.eye_array(size - 1, size, k=1)
    solution = linprog(
        np.repeat([0.0, 1.0, 1.0], size),
        A_ub=sparse.hstack([falls, sparse.csr_array((size - 1, 2 * size))]),
        b_ub=np.zeros(size - 1),
        A_eq=sparse.hstack([unit, unit, -unit]),
        b_eq=series,
        method="highs",
    )
    fit: Floats = solution.x[:size]
    return fit


def _children(nodes: Floats, branching: int) -> Floats:
    """Nodes of one level by channel, parent and place among siblings."""
    return nodes.reshape(len(nodes), -1, branching)


def _upward_variances(tree: Sequence[int], variances: Sequence[float]) -> list[float]:
    """Variance of a node's estimate from its own count and all counts below it, by level."""
    if not tree or any(not isinstance(b, int) or b < 1 for b in tree):
        raise PlanError(f"tree {tuple(tree)} must list one positive branching for each level.")
    if len(variances) != len(tree):
        raise PlanError(
            f"variances has {len(variances)} entries for a tree of {len(tree)} levels. "
            "Give the noise variance of one node at each level."
        )
    if not all(math.isfinite(variance) and variance > 0 for variance in variances):
        raise PlanError(
            "variances must be finite and above 0. Exact counts need no repair: use the leaves."
        )
    upward = [float(variances[-1])]
    for own, branching in zip(variances[-2::-1], tree[:0:-1], strict=True):
        below = branching * upward[-1]
        upward.append(own * (below / (own + below)))  # 1 / (1 / own + 1 / below)
    return upward[::-1]


def _checked_levels(levels: Sequence[NDArray[Any]], tree: Sequence[int]) -> list[Floats]:
    """A copy of the levels in floats, of the shapes that the tree asks for."""
    if len(levels) != len(tree):
        raise PlanError(
            f"levels has {len(levels)} arrays for a tree of {len(tree)} levels. "
            "Give one for each level, the root left out."
        )
    checked = [
        _finite(f"levels[{depth}]", level, ("channels", "nodes"))
        for depth, level in enumerate(levels)
    ]
    for depth, level in enumerate(checked):
        expected = (len(checked[0]), math.prod(tree[: depth + 1]))
        if level.shape != expected:
            raise PlanError(
                f"levels[{depth}] has shape {level.shape}, tree {tuple(tree)} needs {expected}. "
                "Repair with the tree that the counts were summed over."
            )
    return checked


def _finite(name: str, values: NDArray[Any], dimensions: tuple[str, ...]) -> Floats:
    """A copy in floats, so that no result shares memory with what was given."""
    array = np.array(values, dtype=np.float64)
    if array.ndim != len(dimensions) or not array.size:
        raise PlanError(
            f"{name} must have axes ({', '.join(dimensions)}), none of them empty, got shape "
            f"{array.shape}. Reshape it, even for a single channel."
        )
    if not np.all(np.isfinite(array)):
        raise PlanError(f"{name} must be finite. Check the noise variances and the debiasing.")
    return array
