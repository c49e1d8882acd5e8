"""The walkthroughs in the documentation run as written."""

import re
from pathlib import Path

import numpy as np

import fedgauge as fg

DOCS = Path(__file__).parents[1] / "docs"


def test_the_file_exchange_runs_as_written(tmp_path, shell):
    rng = np.random.default_rng(3)
    for hospital in "abc":
        labels = rng.random(2100) < 0.3
        scores = np.clip(rng.normal(0.35 + 0.2 * labels, 0.2), 0, 1)
        rows = [f"{int(y)},{p:.6f}\n" for y, p in zip(labels, scores, strict=True)]
        for name, count in (("", 2000), ("-week-1", 2000), ("-week-2", 2100)):
            text = "".join(["y,p\n", *rows[:count]])
            (tmp_path / f"{hospital}{name}.csv").write_text(text)
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / "exchange.md").read_text(), flags=re.DOTALL)
    done = shell("\n".join(blocks), tmp_path, COLUMNS="120")
    assert done.returncode == 0, done.stderr
    assert "Waiting for the coordinator" in done.stdout
    assert "enforced between the sites" in done.stdout
    result = fg.Evaluation.from_json(tmp_path / "shared" / "result.json")
    assert result.privacy.claim == "enforced"
    assert done.stdout.count("verified: signed by ") == 2
    assert result.clients == 3
    assert abs(result.negatives + result.positives - 6000) < 500
    hashes = re.findall(r"^([0-9a-f]{64})  shared/", done.stdout, flags=re.MULTILINE)
    logged = (tmp_path / "left.csv").read_text()
    assert len(hashes) == 5
    assert all(each in logged for each in hashes)
    assert "Approved evaluation" in done.stdout
    assert len(list((tmp_path / "second").glob("1-join.*.hospital-a.reply.fgx"))) == 1
    for week, rows in (("week-1", 6000), ("week-2", 6300)):
        exact = fg.Evaluation.from_json(tmp_path / week / "result.json")
        assert exact.privacy.epsilon is None
        assert exact.negatives + exact.positives == rows
