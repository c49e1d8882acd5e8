"""The command line: arguments to calls, nothing else."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from traceback import extract_tb
from typing import Annotated, Final, NoReturn

import click
import typer

import fedgauge as fg
from fedgauge.cli.elsewhere import Commands
from fedgauge.cli.terminal import screen, stderr, warn

app = typer.Typer(
    cls=Commands,
    help="Measure a classifier on data nobody may pool.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_DEBUG: Final = "FEDGAUGE_DEBUG"  # shows where in the code an error came from
_PRINTERS: Final = {"click", "rich", "typer"}
_INTERRUPTED = 130  # what typer returns when the user stops a command


def _version(wanted: bool) -> None:
    if wanted:
        screen.print(f"fedgauge {fg.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run the command line."""
    warnings.showwarning = warn
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # closed ones are None
            stream.reconfigure(errors="backslashreplace")  # for terminals without all letters
    try:
        code = typer.main.get_command(app).main(prog_name="fedgauge", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        code = error.exit_code  # the help has been printed
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "fedgauge"
        # Typer suggests commands, and later versions of click add the same once more.
        told = error.message if "Did you mean" in error.message else error.format_message()
        stderr.print(f"fedgauge: {' '.join(told.split())} Try '{command} --help'.", markup=False)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except Exception as error:
        if os.environ.get(_DEBUG):
            raise
        stderr.print(f"fedgauge: {_told(error)}", markup=False)
        code = 1
    if code == _INTERRUPTED:
        stderr.print("fedgauge: stopped.", markup=False)
        code = 1
    sys.exit(code or 0)


def _told(error: Exception) -> str:
    """An error that no command expects, without its own words, which can quote a row."""
    place = extract_tb(error.__traceback__)[-1]
    if isinstance(error, OSError) and _PRINTERS & {*Path(place.filename).parts}:
        with open(os.devnull, "w") as nowhere:  # or Python tries again when it ends
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return f"cannot write what this command prints: {error.strerror}."
    return (
        f"this is a fault in fedgauge {fg.__version__}, not yours: {type(error).__name__} in "
        f"{Path(place.filename).name}, line {place.lineno}. Please report this line. The same "
        f"command with {_DEBUG}=1 before it shows more."
    )
