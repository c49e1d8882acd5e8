"""Work that must stay little, counted in calls: the same on every machine."""

import sys
from contextlib import contextmanager

MOST_CALLS = 20_000  # of functions; what is refused in time takes far fewer, what is not millions


class Used(Exception):
    """A site worked longer than it should."""


@contextmanager
def limited(calls=MOST_CALLS):
    """Stop whoever calls too many functions: work that is the same on every machine."""
    left = [calls]

    def count(_frame, event, _argument):
        if event in ("call", "c_call"):
            left[0] -= 1
            if left[0] < 0:
                sys.setprofile(None)
                raise Used

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)
