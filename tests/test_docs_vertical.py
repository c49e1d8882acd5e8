"""What docs/vertical.md shows is what happens."""

import doctest
import re
from pathlib import Path

import fedgauge as fg

PAGE = Path(__file__).parents[1] / "docs" / "vertical.md"


def script(*titles):
    """The commands below some headings, in order."""
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    chosen = [text for text in sections if text.startswith(titles)]
    assert len(chosen) == len(titles)
    return "".join(re.findall(r"```sh\n(.*?)```", "".join(chosen), flags=re.DOTALL))


def test_its_examples_run():
    outcome = doctest.testfile(str(PAGE), module_relative=False)
    assert outcome.failed == 0
    assert outcome.attempted > 10


def test_its_commands_run(tmp_path, shell):
    (printed,) = re.findall(r"```text\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    told = []
    for command in script("In one process", "Which mechanism").splitlines():
        done = shell(command, tmp_path)
        assert done.returncode == 0, (command, done.stderr)
        told.append(done.stdout)
    _, full, alone, planned, for_two = told
    assert "scores at one party, labels at 4 others; 12,000 examples" in full
    assert "simulation" in alone
    rows = [line.split() for line in planned.splitlines()]
    assert [line for line in printed.splitlines() if line.split() not in rows] == []
    assert "it takes epsilon 0.54 with these examples, or about 17,000 examples" in planned
    assert "Enough to know the AUC within 0.02? no" in for_two


def test_the_parties_can_follow_it(tmp_path, shell):
    """A platform and four shops; two of them alone; then four with scores at the shops."""
    commands = script(
        "Between the parties", "One or two parties", "Parties that score their own examples"
    )
    done = shell(commands, tmp_path, COLUMNS="120")
    assert done.returncode == 0, done.stderr
    told = done.stdout
    assert told.count("No other was read, so no label is in it.") == 8
    assert "4 parties" in told
    assert "hostile coordinator" in told
    assert "verified: signed by platform, confirmed by 4 of 4 sites" in told
    assert told.count("scores at one party, labels at 4 others; 12,000 examples") == 2
    assert "label-DP, one label flipped: epsilon 1" in told
    assert "Round 2 of 5, share: 0 of 4 answered" in told.split("Saved scored-4.roster")[1]
    result = fg.Evaluation.from_json(tmp_path / "shared" / "result.json")
    assert result.privacy.claim == "enforced"
    assert result.clients == 4
    files = {path.name for path in (tmp_path / "assigned").iterdir()}
    assert files == {"plan.toml", *(f"shop-{number}.bins" for number in range(1, 5))}
    alone = fg.Evaluation.from_json(tmp_path / "two.json")
    assert (alone.clients, alone.signature.state) == (2, "unsigned")
    assert told.count("each answer was private before it was sent") == 2
    assert "mechanism:  adaptive" in told
    spent = fg.Site.from_toml(tmp_path / "shop-1" / "site.toml").ledger.balances()
    assert spent[0].spent.epsilon == 4.0  # the sum, then noise, a pair and flips alone
