"""Refusals: a call, the error that it ends in, and words of that error."""

import pytest


def refused(error, words, call, *given, **options):
    """Checks that a call is refused with these words, which are a regular expression."""
    with pytest.raises(error, match=words):
        call(*given, **options)
