"""Examples in docstrings use `fg` and `np` without importing them, and draw without a window."""

import os
import sys

import numpy as np
import pytest

import fedgauge as fg

os.environ.setdefault("MPLBACKEND", "agg")


@pytest.fixture(autouse=True, scope="session")
def _names_of_examples(doctest_namespace):
    doctest_namespace.update(fg=fg, np=np)


@pytest.fixture(autouse=True)
def _no_figure_left(request):
    """Close what an example has drawn."""
    yield
    if isinstance(request.node, pytest.DoctestItem) and "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
