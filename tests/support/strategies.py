"""What hypothesis draws in several tests."""

import hypothesis.strategies as st
import numpy as np

GRID = 24  # scores that tie, and that lie on edges
ON_GRID = st.integers(0, GRID).map(lambda i: i / GRID)


@st.composite
def labelled(draw, scores, *, both=True, most=20):
    """Labels, of both classes unless told otherwise, balanced or rare, and scores that may tie."""
    drawn = draw(st.lists(scores, min_size=2 if both else 1, max_size=most))
    size = len(drawn)
    if not both:
        mask = draw(st.integers(0, 2**size - 1))
    elif draw(st.booleans()):
        mask = draw(st.integers(1, 2**size - 2))
    else:
        mask = (1 << draw(st.integers(0, size - 1))) ^ draw(st.sampled_from([0, 2**size - 1]))
    return np.array([mask >> i & 1 for i in range(size)]), np.array(drawn)
