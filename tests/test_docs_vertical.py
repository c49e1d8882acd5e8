"""What docs/vertical.md shows is what happens."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "vertical.md"


def test_its_examples_run():
    outcome = doctest.testfile(str(PAGE), module_relative=False)
    assert outcome.failed == 0
    assert outcome.attempted > 10
