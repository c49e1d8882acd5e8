"""The commands of docs/local.md run as written in an empty folder, and do what the text says."""

import re
from pathlib import Path

TEXT = (Path(__file__).parents[1] / "docs" / "local.md").read_text()


def test_commands_run(tmp_path, shell):
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines()]
    assert len(commands) == 22
    told = []
    for command in commands:
        done = shell(command, tmp_path)
        assert done.returncode == 0, (command, done.stderr)
        told.append(done.stdout)
    assert "Enough to know the recall at 0.5 within 0.01? no" in told[3]
    first, again, shown = told[7:10]
    assert "Took in 20,000 reports; 20,000 in all\n" in first
    assert "Took in 0 reports; 20,000 in all; refused so far: duplicate: 20,000" in again
    assert first.splitlines()[1:] == again.splitlines()[1:]
    assert "true positives" in shown
    searched, bins, second = told[-4], told[-3], told[-1]
    assert "there is no result yet" in searched
    assert "The first round is closed" in bins
    found, rest = (
        int(re.search(r"Took in ([\d,]+)", said)[1].replace(",", "")) for said in (searched, second)
    )
    assert found + rest == 10_000
    # Epsilon 5 and 9,000 reports leave an error of about 0.01.
    assert abs(auc_of(second) - auc_of(first)) < 0.06


def auc_of(said):
    return float(re.search(r"ROC AUC +([\d.]+)", said)[1])
