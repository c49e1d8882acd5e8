"""Trees of sums as matrices."""

import math

import numpy as np


def aggregations(tree):
    """Level by level, the matrix that sums leaves into nodes."""
    bins = math.prod(tree)
    widths = bins // np.cumprod(tree)
    return [np.kron(np.eye(bins // width), np.ones(width)) for width in widths]
