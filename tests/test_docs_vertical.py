"""What docs/vertical.md shows is what happens."""

import doctest
import re
from pathlib import Path

import pytest

import fedgauge as fg

PAGE = Path(__file__).parents[1] / "docs" / "vertical.md"


def test_its_examples_run():
    outcome = doctest.testfile(str(PAGE), module_relative=False)
    assert outcome.failed == 0
    assert outcome.attempted > 10


def test_two_shops_answer_alone_as_written(tmp_path, shell):
    """Binormal scores, two deviations apart: an AUC of 0.921, and the labels are of one seed."""
    script = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text(), flags=re.DOTALL))
    done = shell(script, tmp_path, COLUMNS="200")
    assert done.returncode == 0, done.stderr
    result = fg.Evaluation.from_json(tmp_path / "r.json")
    assert result.roc_auc.value == pytest.approx(0.92, abs=0.04)
    assert (result.clients, result.privacy.claim) == (2, "enforced")
    assert "all of the noise itself, whatever others do" in done.stdout
    assert "mechanism:  adaptive" in done.stdout
    site = fg.Site.from_toml(tmp_path / "shop-a" / "site.toml")
    spent = sum(balance.spent.epsilon for balance in site.ledger.balances())
    assert spent == 3.0  # noise, a pair, and flips
