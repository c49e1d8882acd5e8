"""Commands of fedgauge, run in this process."""

from typing import NamedTuple

from typer.testing import CliRunner

from fedgauge import cli
from fedgauge.cli.terminal import screen


class Done(NamedTuple):
    """What became of a command in a process of its own."""

    code: int
    out: str
    err: str


def run(*arguments, columns=100, typed=None):
    """Run in this process; a crash is a failure of the test, not of the command."""
    arguments = [str(argument) for argument in arguments]
    before, screen.width = screen.width, columns  # a console reads COLUMNS once, when it is made
    result = CliRunner().invoke(cli.app, arguments, env={"COLUMNS": str(columns)}, input=typed)
    screen.width = before
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def complaint(result, code=2):
    """The one line on stderr of a command that failed."""
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("fedgauge: ")
    assert "Traceback" not in result.stderr
    return result.stderr
