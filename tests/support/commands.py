"""Commands of fedgauge, run in this process."""

import re
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
    arguments = [str(argument) for argument in arguments]
    before, screen.width = screen.width, columns  # a console reads COLUMNS once, when it is made
    result = CliRunner().invoke(cli.app, arguments, env={"COLUMNS": str(columns)}, input=typed)
    screen.width = before
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def worked(*arguments, **options):
    result = run(*arguments, **options)
    assert result.exit_code == 0, result.output
    return result


def done(result):
    """What a command printed that ended well and complained of nothing."""
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def words(text):
    """The text without frames and line breaks, which depend on the terminal."""
    return " ".join(re.sub(r"[^\x20-\x7e]", " ", text).split())


def complaint(result, code=2):
    """The one line on stderr of a command that failed."""
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("fedgauge: ")
    assert "Traceback" not in result.stderr
    return result.stderr
