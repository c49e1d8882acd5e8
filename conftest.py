"""Names that examples in docstrings use without importing them."""

import numpy as np
import pytest

import fedgauge as fg


@pytest.fixture(autouse=True, scope="session")
def _names_of_examples(doctest_namespace):
    doctest_namespace.update(fg=fg, np=np)
