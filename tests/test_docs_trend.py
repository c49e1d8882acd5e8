"""The page on results over time runs as written, and prints what is shown."""

import doctest
import re
from pathlib import Path

TEXT = (Path(__file__).parents[1] / "docs" / "trend.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def test_examples_print_what_is_shown():
    assert BLOCKS
    test = doctest.DocTestParser().get_doctest("\n".join(BLOCKS), {}, "trend.md", None, 0)
    told: list[str] = []
    outcome = doctest.DocTestRunner().run(test, out=told.append)
    assert outcome.failed == 0, "".join(told)
