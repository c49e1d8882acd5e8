"""What docs/vertical.md shows is what happens."""

import doctest
import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "vertical.md"


def test_its_examples_run():
    outcome = doctest.testfile(str(PAGE), module_relative=False)
    assert outcome.failed == 0
    assert outcome.attempted > 10


def test_its_commands_run(tmp_path, shell):
    blocks = re.findall(r"```(sh|text)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    commands = [line for kind, block in blocks if kind == "sh" for line in block.splitlines()]
    (printed,) = [block for kind, block in blocks if kind == "text"]
    told = []
    for command in commands:
        done = shell(command, tmp_path)
        assert done.returncode == 0, (command, done.stderr)
        told.append(done.stdout)
    _, full, alone, planned, for_two = told
    assert "4 clients, about 12,000 examples" in full
    assert "simulation" in alone
    rows = [line.split() for line in planned.splitlines()]
    assert [line for line in printed.splitlines() if line.split() not in rows] == []
    assert "it takes epsilon 0.54 with these examples, or about 17,000 examples" in planned
    assert "Enough to know the AUC within 0.02? no" in for_two
