"""The commands of docs/local.md run as written, and do what the text says."""

import re
from pathlib import Path

import numpy as np

TEXT = (Path(__file__).parents[1] / "docs" / "local.md").read_text()


def write_rows(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = (rng.random(10_000) < 0.4).astype(int)
    scores = np.clip(rng.normal(0.35 + 0.3 * labels, 0.15), 0, 1)
    rows = [f"{y},{p:.5f}" for y, p in zip(labels, scores, strict=True)]
    path.write_text("\n".join(["y,p", *rows]))


def test_commands_run(tmp_path, shell):
    for seed, name in enumerate(("phone-a", "phone-b")):
        write_rows(tmp_path / f"{name}.csv", seed)
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines()]
    assert len(commands) == 8
    told = []
    for command in commands:
        done = shell(command, tmp_path)
        assert done.returncode == 0, (command, done.stderr)
        told.append(done.stdout)
    first, again, shown = told[-3:]
    assert "Took in 20,000 reports; 20,000 in all\n" in first
    assert "Took in 0 reports; 20,000 in all; refused so far: duplicate: 20,000" in again
    assert first.splitlines()[1:] == again.splitlines()[1:]
    assert "true positives" in shown
