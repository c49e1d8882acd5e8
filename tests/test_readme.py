"""The README's code runs, and the numbers it shows are the demo's."""

import re
from pathlib import Path

from typer.testing import CliRunner

from fedgauge import demo
from fedgauge.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_python_blocks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    assert len(blocks("python")) == 1
    for block in blocks("python"):
        exec(block, namespace)
    assert len(capsys.readouterr().out.splitlines()) == 5
    (shown,) = re.findall(r"^result\.roc_auc  # (Estimate.*)$", README, flags=re.MULTILINE)
    assert repr(namespace["result"].roc_auc) == shown
    assert (tmp_path / "report.html").exists()


def test_commands_run(tmp_path, shell):
    """In order, in a folder in which nothing is but what they make."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("fedgauge ")]
    assert [command.split()[1] for command in commands] == ["demo", "evaluate"]
    for command, expected in zip(commands, ("site-a.csv", "ROC AUC"), strict=True):
        done = shell(command, tmp_path)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
    assert (tmp_path / "report.html").exists()


def test_demo_output_is_as_shown(tmp_path):
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert done.exit_code == 0
    shown = blocks("text")[0].splitlines()
    printed = [line.rstrip() for line in done.stdout.splitlines()]
    assert printed[: len(shown)] == shown


def test_headline_numbers_are_the_demos(tmp_path):
    found = demo.run(tmp_path)
    mean, pooled = re.findall(r"\*\*(0\.\d\d)\*\*", README)
    assert mean == f"{found.mean_client_auc:.2f}"
    assert pooled == f"{found.exact_auc:.2f}"


def test_pictures_are_there_and_small():
    shown = [*re.findall(r"!\[[^\]]+\]\((\S+)\)", README), *re.findall(r'<img src="(\S+)"', README)]
    assert len(shown) == 3
    for name in shown:
        assert (ROOT / name).stat().st_size < 120_000
